"""
One-dimensional transforms of blocks in memory, and the operations between them.

Idea. A block passes through stages in order. Complex transforms are done in place; a stage that
changes the dtype or the length of an axis writes into the next block of the step. With SciPy,
several lines are transformed together, on all processors and in place; without it, NumPy is used.

Invariants. A stage allocates no more memory than `count_scratch_bytes` returns. Which lines are
transformed together changes no bit of the result. Angles of factors are reduced as exact integers.

References: twiddle factors of the four-step transform: Bailey, "FFTs in external or hierarchical
memory", J. Supercomputing 4 (1990); chirps: Bluestein, "A linear filtering approach to the
computation of discrete Fourier transform", IEEE Trans. Audio Electroacoustics 18 (1970).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.base.background import Background

__all__ = ["FourierStage", "count_scratch_bytes", "find_mirrored", "transform"]

# Lines that SciPy transforms together, for each item size: the widest vectors of its builds.
_LANES = {8: 8, 16: 4}
# Elements that are transformed together where that needs memory.
_BATCH = 1 << 14
# Largest block, in bytes, of which one thread transforms all lines.
_ALONE = 1 << 20
# Elements of a Hermitian axis that are reversed together.
_FEW = 1 << 12
# Columns of a tile that have a common twiddle factor for each row.
_TWIDDLED = 32
# Rows of a tile for which these factors are made together; the same for chirps.
_ROWS, _CHIRPED = 64, 32

Part = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class FourierStage:
    """
    One operation on a block.

    In place: ``c2c``, ``conj``, ``zero``, ``mirror``, ``twiddle``, ``chirp``, ``filter``,
    ``product``. From one block to the next: ``cast``, ``r2c``, ``c2r``, ``real``.

    `axis` is the axis of the operation; for ``chirp`` and ``filter``, the axis that counts the rows
    of a line. `length` is the transform's length; ``zero``: first index of the array that becomes
    0; ``twiddle``: length of the divided transform; ``mirror``: of the whole axis; ``chirp``,
    ``filter``: of the line. `other` is for ``twiddle`` the axis of the second part, for ``mirror``
    the stored elements of the axis, for ``chirp`` and ``filter`` the axis within a row. For these
    two, `row` is the number of elements of a row, and `count` the elements of the line (the rest is
    0) or of the result.
    """

    kind: str
    axis: int = 0
    length: int = 0
    forward: bool = True
    norm: str = "backward"
    other: int = 0
    row: int = 0
    count: int = 0


def count_scratch_bytes(stage: FourierStage, lines: int, itemsize: int, cores: int) -> int:
    """Return the bytes that a stage needs in addition to its blocks; `itemsize` is complex."""
    n = stage.length
    if stage.kind == "twiddle":
        return 64 * _TWIDDLED * _ROWS
    if stage.kind in ("chirp", "filter"):
        return 128 * _TWIDDLED * _CHIRPED
    if stage.kind == "mirror":
        return itemsize * _FEW
    if stage.kind not in ("c2c", "r2c", "c2r", "product"):
        return 0
    lanes = min(lines, _LANES[itemsize] * cores) or 1
    # Tables, and a copy of each line in progress; three to four times as long if the length has a
    # large prime factor (Bluestein).
    held = (2 + lanes) * (n if _is_smooth(n) else 4 * n)
    if stage.kind in ("r2c", "c2r") or _import_scipy() is None:
        held += min(max(_BATCH, n), n * lines)
    return itemsize * held


@cache
def _is_smooth(n: int) -> bool:
    """Return whether all prime factors of `n` are small enough to transform the length itself."""
    rest, p = n, 2
    while p * p <= rest:
        while rest % p == 0:
            rest //= p
        p += 1
    return rest * rest <= n or rest < 50


@cache
def _import_scipy() -> Any:
    try:
        return importlib.import_module("scipy.fft")
    except ImportError:
        return None


def transform(
    blocks: Sequence[NDArray[Any]],
    stages: Sequence[FourierStage],
    starts: Sequence[int],
    cores: int,
) -> None:
    """
    Run stages on the blocks of a step.

    The first block was loaded and the last one will be stored; results of stages are in the blocks
    between them. The factor of a ``product`` is an additional last block. `starts` has the index of
    the first block's begin along each axis of the array.
    """
    left = list(blocks)
    x = left.pop(0)
    for stage in stages:
        kind, axis = stage.kind, stage.axis
        if kind == "c2c":
            _transform_in_place(x, stage, cores)
        elif kind == "zero":
            np.moveaxis(x, axis, 0)[max(stage.length - starts[axis], 0) :] = 0
        elif kind == "conj":
            np.conjugate(x, out=x)
        elif kind in _PLACED:
            _PLACED[kind](x, stage, starts)
        elif kind == "product":
            _transform_in_place(blocks[-1], stage, cores)
            np.multiply(x, blocks[-1], out=x)
        else:
            y = left.pop(0)
            if kind == "cast":
                np.copyto(y, x, casting="unsafe")
            elif kind == "real":
                np.copyto(y, x.real)
            else:
                _transform_between(x, y, stage, cores)
            x = y


def _transform_in_place(x: NDArray[Any], stage: FourierStage, cores: int) -> None:
    if not x.size:
        return
    library, axis = _import_scipy(), stage.axis
    name = "fft" if stage.forward else "ifft"
    if library is not None:
        call = getattr(library, name)

        def lines(part: Part) -> None:
            done = call(x[part], axis=axis, norm=stage.norm, overwrite_x=True)
            if not np.may_share_memory(done, x):
                np.copyto(x[part], done)

        _run_in_threads(lines, list(_cut_slabs(x.shape, axis, cores if x.nbytes > _ALONE else 1)))
        return
    for part in _cut_parts(x.shape, axis):
        x[part] = getattr(np.fft, name)(x[part], axis=axis, norm=stage.norm)


def _transform_between(x: NDArray[Any], y: NDArray[Any], stage: FourierStage, cores: int) -> None:
    """Transform from real to complex elements, or back."""
    axis, to_real = stage.axis, stage.kind == "c2r"
    call = getattr(_import_scipy() or np.fft, "irfft" if to_real else "rfft")
    longer = y.shape if to_real else x.shape
    # All threads together copy no more than a batch at a time.
    cores = min(cores, _BATCH // max(longer[axis], 1)) if max(x.nbytes, y.nbytes) > _ALONE else 1
    slabs = list(_cut_slabs(longer, axis, cores))

    def lines(slab: Part) -> None:
        here, there = x[slab], y[slab]
        for part in _cut_parts((there if to_real else here).shape, axis, _BATCH // len(slabs)):
            there[part] = call(here[part], stage.length, axis=axis, norm=stage.norm)

    _run_in_threads(lines, slabs)


def _cut_slabs(shape: tuple[int, ...], axis: int, most: int) -> Iterator[Part]:
    """Yield at most `most` slabs of whole lines, of about equal size, one for each thread."""
    others = [n if d != axis else 1 for d, n in enumerate(shape)]
    longest = max(range(len(shape)), key=others.__getitem__)
    number = max(min(most, others[longest]), 1)
    if number == 1:
        yield (slice(None),) * len(shape)
        return
    for k in range(number):
        ends = slice(k * shape[longest] // number, (k + 1) * shape[longest] // number)
        yield (*(slice(None),) * longest, ends)


def _run_in_threads(work: Callable[[Part], None], slabs: Sequence[Part]) -> None:
    """
    Run `work` on each slab in its own thread.

    SciPy's own threads (``workers=``) stay alive, and a later fork of the process ends them first:
    a thread that is about to sleep at that moment misses the signal, and the fork never returns.
    """
    if len(slabs) == 1:
        work(slabs[0])
        return
    with Background("outcore-fft") as background:
        for slab in slabs:
            background.start(work, slab)


def _cut_parts(shape: tuple[int, ...], axis: int, batch: int = _BATCH) -> Iterator[Part]:
    """Yield parts of whole lines with at most `batch` elements, if one line has no more."""
    todo = [tuple((0, n) for n in shape)] if math.prod(shape) else []
    while todo:
        box = todo.pop()
        sizes = [high - low for low, high in box]
        longest = max(range(len(box)), key=lambda k: sizes[k] if k != axis else 0)
        if math.prod(sizes) <= batch or longest == axis or sizes[longest] == 1:
            # The transformed axis is whole, since its length changes.
            yield tuple(slice(*ends) if k != axis else slice(None) for k, ends in enumerate(box))
            continue
        low, high = box[longest]
        middle = (low + high) // 2
        todo.append((*box[:longest], (middle, high), *box[longest + 1 :]))
        todo.append((*box[:longest], (low, middle), *box[longest + 1 :]))


def find_mirrored(length: int, low: int, high: int) -> tuple[int, int, int]:
    """
    Return how a Hermitian half stores the part ``low:high`` of a whole axis of `length` elements.

    The result is the first index of the part that is not stored, and the section of the half that
    it mirrors.
    """
    middle = min(max(length // 2 + 1, low), high)
    return middle, length - high + 1, length - middle + 1


def _mirror(x: NDArray[Any], stage: FourierStage, starts: Sequence[int]) -> None:
    """Complete a Hermitian axis; the mirrored part was loaded in the order of the half."""
    line, low = np.moveaxis(x, stage.axis, 0), starts[stage.axis]
    middle, first, _ = find_mirrored(stage.length, low, low + len(line))
    direct, other = line[: middle - low], line[middle - low :]
    direct[max(stage.other - low, 0) :] = 0
    other[max(stage.other - first, 0) :] = 0
    np.conjugate(other, out=other)
    # From both ends, a few at a time, to avoid a copy of the whole axis.
    count = len(other)
    few = max(_FEW // max(math.prod(other.shape[1:]), 1), 1)
    for k in range(0, count // 2, few):
        n = min(few, count // 2 - k)
        front, back = other[k : k + n], other[count - k - n : count - k]
        kept = front.copy()
        front[...] = back[::-1]
        back[...] = kept[::-1]


def _multiply_twiddle(x: NDArray[Any], stage: FourierStage, starts: Sequence[int]) -> None:
    """Multiply with ``exp(-2 pi i k j / n)``: `k` along one axis, `j` along the other."""
    n, first = stage.length, starts[stage.other]
    tile = np.moveaxis(x, (stage.axis, stage.other), (-2, -1))
    rows, columns = tile.shape[-2:]
    # A limited number of rows at a time keeps the tables small.
    for low in range(0, rows, _ROWS):
        k = np.arange(low, min(low + _ROWS, rows))
        part = tile[..., low : low + _ROWS, :]
        # A factor is the product of a factor for its group of columns and one for its place in it.
        small = _compute_roots(
            k[:, None] * np.arange(min(_TWIDDLED, columns)), n, stage.forward, x.dtype
        )
        for j in range(0, columns, _TWIDDLED):
            group = part[..., j : j + _TWIDDLED]
            group *= small[:, : group.shape[-1]]
            group *= _compute_roots(k * (first + j), n, stage.forward, x.dtype)[:, None]


def _compute_roots(
    exponents: NDArray[np.int64], n: int, forward: bool, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return powers of the primitive n-th root of unity; exponents are exact integers."""
    angles = (exponents % n) * ((-2 if forward else 2) * math.pi / n)
    roots: NDArray[Any] = np.exp(1j * angles).astype(dtype, copy=False)
    return roots


def _multiply_chirp(x: NDArray[Any], stage: FourierStage, starts: Sequence[int]) -> None:
    """Multiply element `j` of a line with ``exp(-pi i j^2 / n)``, and set elements past its end to 0."""
    factor = _compute_factor(stage)
    for part, first, indices in _cut_pieces(x, stage, starts):
        beyond = indices >= stage.count
        if not beyond.all():
            exponents = _compute_squares(first, indices.shape[-1], 1, stage.length)
            part *= _compute_roots(exponents, 2 * stage.length, stage.forward, x.dtype)
            if factor != 1:
                part *= x.real.dtype.type(factor)
        if beyond.any():
            part[..., beyond] = 0


def _fill_filter(x: NDArray[Any], stage: FourierStage, starts: Sequence[int]) -> None:
    """
    Fill a line with the factor of the convolution: ``exp(pi i d^2 / n)`` at distance `d` both ways.

    Negative distances are at the end, as in any circular convolution.
    """
    n, points = stage.length, x.shape[stage.axis] * stage.row
    for part, first, indices in _cut_pieces(x, stage, starts):
        after, columns = indices < stage.count, indices.shape[-1]
        there = _compute_squares(first, columns, 1, n)
        back = _compute_squares([points - k for k in first], columns, -1, n)
        part[...] = _compute_roots(np.where(after, there, back), 2 * n, not stage.forward, x.dtype)
        between = ~after & (indices <= points - n)
        if between.any():
            part[..., between] = 0


def _cut_pieces(
    x: NDArray[Any], stage: FourierStage, starts: Sequence[int]
) -> Iterator[tuple[NDArray[Any], list[int], NDArray[np.int64]]]:
    """Yield parts of a block, with the line indices of their first column and of all elements."""
    tile = np.moveaxis(x, (stage.axis, stage.other), (-2, -1))
    rows, columns = tile.shape[-2:]
    origin = starts[stage.axis] * stage.row + starts[stage.other]
    for low in range(0, rows, _CHIRPED):
        high = min(low + _CHIRPED, rows)
        for j in range(0, columns, _TWIDDLED):
            part = tile[..., low:high, j : j + _TWIDDLED]
            first = [origin + r * stage.row + j for r in range(low, high)]
            yield part, first, np.array(first)[:, None] + np.arange(part.shape[-1])


def _compute_squares(first: Sequence[int], count: int, step: int, n: int) -> NDArray[np.int64]:
    """Return ``(k + step * d) ** 2`` modulo `2 n`, for `k` of `first` and `d` below `count`, exactly."""
    base = np.array([k * k % (2 * n) for k in first])[:, None]
    twice = np.array([2 * k * step % (2 * n) for k in first])[:, None]
    d = np.arange(count)
    found: NDArray[np.int64] = (base + twice * d + d * d) % (2 * n)
    return found


def _compute_factor(stage: FourierStage) -> float:
    """Return the factor of the norm."""
    if stage.norm == "ortho":
        return 1 / math.sqrt(stage.length)
    return 1.0 if (stage.norm == "backward") == stage.forward else 1 / stage.length


# Operations that depend on the place of the block in the array.
_PLACED = {
    "mirror": _mirror,
    "twiddle": _multiply_twiddle,
    "chirp": _multiply_chirp,
    "filter": _fill_filter,
}
