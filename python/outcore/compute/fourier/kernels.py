"""
One-dimensional transforms of blocks in memory, and what goes between them.

Idea. A block goes through operations in order. Complex transforms are done where the block is; what
changes its dtype or the length of an axis goes into the next block of the step. SciPy transforms
several lines at once, on all processors, and in place; NumPy does without SciPy.

Invariants. No operation takes memory of its own beyond what `scratch` says. Which lines are transformed
together changes no bit of any of them. Angles of factors are reduced as exact integers.

References: twiddle factors of the four-step transform: Bailey, "FFTs in external or hierarchical
memory", J. Supercomputing 4 (1990); chirps: Bluestein, "A linear filtering approach to the computation
of discrete Fourier transform", IEEE Trans. Audio Electroacoustics 18 (1970).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stage", "mirrored", "scratch", "transform"]

# Lines of so many elements that SciPy transforms together: the widest vectors of its builds.
_LANES = {8: 8, 16: 4}
# Elements that are transformed at once where that takes memory.
_BATCH = 1 << 14
# Bytes up to which one thread does all lines.
_ALONE = 1 << 20
# Elements of a Hermitian axis that are turned round at once.
_FEW = 1 << 12
# Columns of a tile that have a common twiddle factor for each row.
_TWIDDLED = 32
# Rows of a tile for which these factors are made at once; those of chirps.
_ROWS, _CHIRPED = 64, 32

Part = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """
    One operation on a block.

    Parameters
    ----------
    kind
        ``c2c``, ``conj``, ``zero``, ``mirror``, ``twiddle``, ``chirp``, ``filter``, ``product``: in
        place. ``cast``, ``r2c``, ``c2r``, ``real``: from one block to the next.
    axis
        Along which; ``chirp``, ``filter``: the axis of the rows of a line.
    length
        Of the transform; ``zero``: from which index of the array on; ``twiddle``: of the transform that
        is divided; ``mirror``: of the whole axis; ``chirp``, ``filter``: of the line.
    forward, norm
        As for `numpy.fft`.
    other
        ``twiddle``: the axis of the second part; ``mirror``: how much of the axis there is; ``chirp``,
        ``filter``: the axis within a row.
    row
        ``chirp``, ``filter``: elements of a row.
    count
        ``chirp``: elements of the line that count, the rest is 0; ``filter``: elements of the result.
    """

    kind: str
    axis: int = 0
    length: int = 0
    forward: bool = True
    norm: str = "backward"
    other: int = 0
    row: int = 0
    count: int = 0


def scratch(stage: Stage, lines: int, itemsize: int, cores: int) -> int:
    """
    Bytes that an operation takes beside its blocks.

    Parameters
    ----------
    stage
        The operation.
    lines
        How many lines are transformed.
    itemsize
        Of a complex element.
    cores
        Processors that take part.
    """
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
    # Tables, and a copy of each line under way; three to four times as long if the length has a large
    # prime factor (Bluestein).
    held = (2 + lanes) * (n if _is_smooth(n) else 4 * n)
    if stage.kind in ("r2c", "c2r") or _library() is None:
        held += min(max(_BATCH, n), n * lines)
    return itemsize * held


@cache
def _is_smooth(n: int) -> bool:
    """Whether no prime factor of `n` is so large that the length is transformed as another one."""
    rest, p = n, 2
    while p * p <= rest:
        while rest % p == 0:
            rest //= p
        p += 1
    return rest * rest <= n or rest < 50


@cache
def _library() -> Any:
    try:
        return importlib.import_module("scipy.fft")
    except ImportError:
        return None


def transform(
    blocks: Sequence[NDArray[Any]], stages: Sequence[Stage], starts: Sequence[int], cores: int
) -> None:
    """
    The kernel.

    Parameters
    ----------
    blocks
        Of the step: what was loaded first, what is stored last; the rest between them. After these, the
        factor of a ``product``.
    stages
        What is done.
    starts
        Per axis, where the first block begins in the array.
    cores
        Processors that take part.
    """
    left = list(blocks)
    x = left.pop(0)
    for stage in stages:
        kind, axis = stage.kind, stage.axis
        if kind == "c2c":
            _in_place(x, stage, cores)
        elif kind == "zero":
            np.moveaxis(x, axis, 0)[max(stage.length - starts[axis], 0) :] = 0
        elif kind == "conj":
            np.conjugate(x, out=x)
        elif kind == "mirror":
            _mirror(x, stage, starts)
        elif kind == "twiddle":
            _twiddle(x, stage, starts)
        elif kind == "chirp":
            _chirp(x, stage, starts)
        elif kind == "filter":
            _filter(x, stage, starts)
        elif kind == "product":
            _in_place(blocks[-1], stage, cores)
            np.multiply(x, blocks[-1], out=x)
        else:
            y = left.pop(0)
            if kind == "cast":
                np.copyto(y, x, casting="unsafe")
            elif kind == "real":
                np.copyto(y, x.real)
            else:
                _between(x, y, stage, cores)
            x = y


def _in_place(x: NDArray[Any], stage: Stage, cores: int) -> None:
    if not x.size:
        return
    library, axis = _library(), stage.axis
    name = "fft" if stage.forward else "ifft"
    if library is not None:
        call = getattr(library, name)

        def lines(part: Part) -> None:
            done = call(x[part], axis=axis, norm=stage.norm, overwrite_x=True)
            if not np.may_share_memory(done, x):
                np.copyto(x[part], done)

        _side_by_side(lines, list(_slabs(x.shape, axis, cores if x.nbytes > _ALONE else 1)))
        return
    for part in _parts(x.shape, axis):
        x[part] = getattr(np.fft, name)(x[part], axis=axis, norm=stage.norm)


def _between(x: NDArray[Any], y: NDArray[Any], stage: Stage, cores: int) -> None:
    """From real to complex, or back."""
    library, axis = _library(), stage.axis
    name = "rfft" if stage.kind == "r2c" else "irfft"
    call = getattr(library or np.fft, name)
    longer = y.shape if stage.kind == "c2r" else x.shape

    def lines(batch: int) -> Callable[[Part], None]:
        def of(slab: Part) -> None:
            here, there = x[slab], y[slab]
            for part in _parts(there.shape if stage.kind == "c2r" else here.shape, axis, batch):
                there[part] = call(here[part], stage.length, axis=axis, norm=stage.norm)

        return of

    # Of all threads together, no more is under way than a batch.
    cores = min(cores, _BATCH // max(longer[axis], 1)) if max(x.nbytes, y.nbytes) > _ALONE else 1
    slabs = list(_slabs(longer, axis, cores))
    _side_by_side(lines(_BATCH // len(slabs)), slabs)


def _slabs(shape: tuple[int, ...], axis: int, most: int) -> Iterator[Part]:
    """At most so many slabs of whole lines, about equal, for a thread each."""
    others = [n if d != axis else 1 for d, n in enumerate(shape)]
    longest = max(range(len(shape)), key=others.__getitem__)
    number = max(min(most, others[longest]), 1)
    if number == 1:
        yield (slice(None),) * len(shape)
        return
    for k in range(number):
        ends = slice(k * shape[longest] // number, (k + 1) * shape[longest] // number)
        yield (*(slice(None),) * longest, ends)


def _side_by_side(work: Callable[[Part], None], slabs: Sequence[Part]) -> None:
    """
    Work on each slab in a thread.

    SciPy could do so (``workers=``). But its threads stay, and end before each fork of the process from
    then on: one that is just about to sleep misses that, and the fork never returns.
    """
    if len(slabs) == 1:
        work(slabs[0])
        return
    with ThreadPoolExecutor(len(slabs)) as pool:
        for _ in pool.map(work, slabs):
            pass


def _parts(shape: tuple[int, ...], axis: int, batch: int = _BATCH) -> Iterator[Part]:
    """Parts of whole lines, with few elements each."""
    todo = [tuple((0, n) for n in shape)] if math.prod(shape) else []
    while todo:
        box = todo.pop()
        sizes = [high - low for low, high in box]
        longest = max(range(len(box)), key=lambda k: sizes[k] if k != axis else 0)
        if math.prod(sizes) <= batch or longest == axis or sizes[longest] == 1:
            # Along the transformed axis whatever is there: its length changes.
            yield tuple(slice(*ends) if k != axis else slice(None) for k, ends in enumerate(box))
            continue
        low, high = box[longest]
        middle = (low + high) // 2
        todo.append((*box[:longest], (middle, high), *box[longest + 1 :]))
        todo.append((*box[:longest], (low, middle), *box[longest + 1 :]))


def mirrored(length: int, low: int, high: int) -> tuple[int, int, int]:
    """
    Where the Hermitian half of an axis has what belongs to a part of the whole axis.

    Parameters
    ----------
    length
        Of the whole axis.
    low, high
        The part.

    Returns
    -------
    tuple of int
        First index of the part that is in the other half, and the section of the half that it mirrors.
    """
    middle = min(max(length // 2 + 1, low), high)
    return middle, length - high + 1, length - middle + 1


def _mirror(x: NDArray[Any], stage: Stage, starts: Sequence[int]) -> None:
    """Complete a Hermitian axis; the mirrored part was loaded as it is in the half."""
    line, low = np.moveaxis(x, stage.axis, 0), starts[stage.axis]
    middle, first, _ = mirrored(stage.length, low, low + len(line))
    direct, other = line[: middle - low], line[middle - low :]
    direct[max(stage.other - low, 0) :] = 0
    other[max(stage.other - first, 0) :] = 0
    np.conjugate(other, out=other)
    # From both ends, a few at a time: no copy of it all.
    count = len(other)
    few = max(_FEW // max(math.prod(other.shape[1:]), 1), 1)
    for k in range(0, count // 2, few):
        n = min(few, count // 2 - k)
        front, back = other[k : k + n], other[count - k - n : count - k]
        kept = front.copy()
        front[...] = back[::-1]
        back[...] = kept[::-1]


def _twiddle(x: NDArray[Any], stage: Stage, starts: Sequence[int]) -> None:
    """Multiply with ``exp(-2 pi i k j / n)``: `k` along one axis, `j` along the other."""
    n, first = stage.length, starts[stage.other]
    tile = np.moveaxis(x, (stage.axis, stage.other), (-2, -1))
    rows, columns = tile.shape[-2:]
    # Where rows are many, some of them at a time: the tables stay small.
    for low in range(0, rows, _ROWS):
        k = np.arange(low, min(low + _ROWS, rows))
        part = tile[..., low : low + _ROWS, :]
        # Columns in groups: each factor is that of its group times that of its place in the group.
        small = _roots(k[:, None] * np.arange(min(_TWIDDLED, columns)), n, stage.forward, x.dtype)
        for j in range(0, columns, _TWIDDLED):
            group = part[..., j : j + _TWIDDLED]
            group *= small[:, : group.shape[-1]]
            group *= _roots(k * (first + j), n, stage.forward, x.dtype)[:, None]


def _roots(
    exponents: NDArray[np.int64], n: int, forward: bool, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Powers of the primitive n-th root of unity; exponents are exact integers."""
    angles = (exponents % n) * ((-2 if forward else 2) * math.pi / n)
    roots: NDArray[Any] = np.exp(1j * angles).astype(dtype, copy=False)
    return roots


def _chirp(x: NDArray[Any], stage: Stage, starts: Sequence[int]) -> None:
    """Multiply element `j` of a line with ``exp(-pi i j^2 / n)``; what is beyond its end is 0."""
    factor = _factor(stage)
    for part, first, indices in _pieces(x, stage, starts):
        beyond = indices >= stage.count
        if not beyond.all():
            exponents = _squares(first, indices.shape[-1], 1, stage.length)
            part *= _roots(exponents, 2 * stage.length, stage.forward, x.dtype)
            if factor != 1:
                part *= x.real.dtype.type(factor)
        if beyond.any():
            part[..., beyond] = 0


def _filter(x: NDArray[Any], stage: Stage, starts: Sequence[int]) -> None:
    """
    What a line is convolved with: ``exp(pi i d^2 / n)`` at distance `d`, in either direction.

    Distances to elements before are at the end, as in any circular convolution.
    """
    n, points = stage.length, x.shape[stage.axis] * stage.row
    for part, first, indices in _pieces(x, stage, starts):
        after, columns = indices < stage.count, indices.shape[-1]
        there = _squares(first, columns, 1, n)
        back = _squares([points - k for k in first], columns, -1, n)
        part[...] = _roots(np.where(after, there, back), 2 * n, not stage.forward, x.dtype)
        between = ~after & (indices <= points - n)
        if between.any():
            part[..., between] = 0


def _pieces(
    x: NDArray[Any], stage: Stage, starts: Sequence[int]
) -> Iterator[tuple[NDArray[Any], list[int], NDArray[np.int64]]]:
    """Parts of a block; the indices in the line of the first column of each, and of all elements."""
    tile = np.moveaxis(x, (stage.axis, stage.other), (-2, -1))
    rows, columns = tile.shape[-2:]
    origin = starts[stage.axis] * stage.row + starts[stage.other]
    for low in range(0, rows, _CHIRPED):
        high = min(low + _CHIRPED, rows)
        for j in range(0, columns, _TWIDDLED):
            part = tile[..., low:high, j : j + _TWIDDLED]
            first = [origin + r * stage.row + j for r in range(low, high)]
            yield part, first, np.array(first)[:, None] + np.arange(part.shape[-1])


def _squares(first: Sequence[int], count: int, step: int, n: int) -> NDArray[np.int64]:
    """``(k + step * d) ** 2`` modulo `2 n`, for `k` of `first` and `d` below `count`; none overflows."""
    base = np.array([k * k % (2 * n) for k in first])[:, None]
    twice = np.array([2 * k * step % (2 * n) for k in first])[:, None]
    d = np.arange(count)
    found: NDArray[np.int64] = (base + twice * d + d * d) % (2 * n)
    return found


def _factor(stage: Stage) -> float:
    """What `norm` divides the result by."""
    if stage.norm == "ortho":
        return 1 / math.sqrt(stage.length)
    return 1.0 if (stage.norm == "backward") == stage.forward else 1 / stage.length
