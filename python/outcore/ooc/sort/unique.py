"""
The different elements of an array on disk.

Problem. A table of the elements seen so far may be as large as the array.
Idea. In sorted order equal elements are neighbours. The array is sorted (`outcore.ooc.sort.sorting`),
read once to count where a new element begins, and once more to store those. Places in the stable order
tell where each was first.

Invariants. Blocks are cut as they were when they were counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import UnsupportedError, UsageError
from outcore.hints import memory as promise
from outcore.hints import nbytes
from outcore.jobs import (
    Bound,
    InMemory,
    Operation,
    Program,
    Result,
    Source,
    Terms,
    TooLittle,
    collective,
    complete,
    opened,
)
from outcore.ooc.sort.sorting import argsort, sort
from outcore.schedule import Block, Buffer, Load, Schedule, Step, Store

__all__ = ["unique"]

# Elements that are compared at once, and bytes that this takes for each, beside the elements.
_PIECE, _BESIDE = 2048, 48


@collective
def unique(
    ar: Source,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    The different elements of an array, in ascending order.

    Parameters
    ----------
    ar
        A path, an open array or a NumPy array; all its elements count as one line, in C order.
    return_index
        Also where each element is first.
    return_inverse
        Not supported.
    return_counts
        Also how often each is there.
    axis
        Only None.
    equal_nan
        All NaNs are one element; else each is one.
    sorted
        They are sorted in any case.
    out
        Where the results go: a path or an open array, a tuple of these (or None) if there are several
        results. By default temporary arrays on disk, which go away with their handles.
    how
        ``memory``, ``progress``, ``overwrite`` and wishes for the new arrays; see
        `outcore.jobs.complete`.

    Returns
    -------
    DiskArray or tuple
        The different elements, of one axis; then index and counts, int64, those that are asked for.

    Raises
    ------
    UnsupportedError
        ``bad-option``: an `axis`, or `return_inverse`; ``bad-dtype``: elements without an order.
    UsageError
        ``bad-out``: `out` is no tuple for several results; ``unknown-option``: explain or resume, which
        need to know beforehand how many elements differ.
    BudgetError
        Not even a few elements fit; ``needed`` says what would do.

    Notes
    -----
    Memory: as much as there is. What is moved: a sort (`outcore.sort`), reading the sorted elements
    twice, and storing what differs; `return_index` costs an `outcore.argsort` more. What is sorted lies
    in temporary arrays. Collective with ``comm=``: ranks share each pass.

    Knuth, volume 3, section 6.5, on sorting to find what is equal.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.array([[3, 1], [1, 2]]))
    >>> values, index, counts = outcore.unique(a, return_index=True, return_counts=True)
    >>> values[...], index[...], counts[...]
    (array([1, 2, 3]), array([1, 3, 0]), array([2, 1, 1]))
    """
    if axis is not None:
        raise UnsupportedError(
            f"unique: axis={axis!r} is not supported; leave it out, for all elements",
            code="bad-option",
        )
    if return_inverse:
        raise UnsupportedError(
            "unique: return_inverse is not supported; look elements up in the result with "
            "outcore.searchsorted",
            code="bad-option",
        )
    for name in ("explain", "resume"):
        if how.pop(name, False):
            raise UsageError(
                f"unique() has no option {name!r}: how many elements differ is not known beforehand. "
                "Sort first (outcore.sort), which has it",
                code="unknown-option",
            )
    asked = [True, return_index, return_counts]
    outs = _outs(out, sum(asked))
    places = iter(outs)
    targets = [next(places) if one else None for one in asked]
    words = {name: how.pop(name) for name in ("memory", "comm") if name in how}
    limit = int(promise())
    budget = min(nbytes(words["memory"]), limit) if "memory" in words else limit
    with contextlib.ExitStack() as stack:
        (source,) = stack.enter_context(opened(ar))
        given = source.data if isinstance(source, InMemory) else source
        ordered = stack.enter_context(sort(given, None, **words))
        order = None
        if return_index:
            order = stack.enter_context(argsort(given, None, **words))
        cut = _Cut.of(ordered, budget, equal_nan=equal_nan)
        inputs = (ordered,) if order is None else (ordered, order)
        found = _stored(inputs, cut, targets, {**words, **how}, counts=return_counts)
    return found[0] if len(found) == 1 else tuple(found)


def _outs(out: Any, count: int) -> tuple[Any, ...]:
    if count == 1:
        return (out,)
    if out is None:
        return (None,) * count
    if not isinstance(out, tuple) or len(out) != count:
        raise UsageError(
            f"unique: out={out!r} for {count} results; give a tuple of {count}", code="bad-out"
        )
    return out


@dataclass(frozen=True, slots=True)
class _Cut:
    """
    Blocks of sorted elements, and how many new ones each has.

    Parameters
    ----------
    length, block
        Of the array, and of a block.
    counts, following
        Of each block: elements that are new there, and where the next one behind it begins.
    equal_nan
        Whether all NaNs are one.
    """

    length: int
    block: int
    counts: NDArray[np.int64]
    following: NDArray[np.int64]
    equal_nan: bool

    @property
    def total(self) -> int:
        """How many elements differ."""
        return int(self.counts.sum())

    @classmethod
    def of(cls, ordered: Any, budget: int, *, equal_nan: bool) -> _Cut:
        """Count, with a quarter of the budget."""
        length, size = ordered.shape[0], ordered.dtype.itemsize
        # With what is stored of it at most, twice.
        block = max(budget // 4 // (2 * size + 2 * (size + 24)), 1)
        number = -(-length // block)
        counts, first = np.zeros(number, np.int64), np.full(number, length, np.int64)
        with _core.Reservation("counting what differs", 2 * (block + 1) * size + _PIECE * _BESIDE):
            ahead: Any = None
            for n in range(number):
                reading = ahead or ordered.iread(_part(n, block, length))
                ahead = ordered.iread(_part(n + 1, block, length)) if n + 1 < number else None
                data = reading.wait()
                for at, begins in _begins(data, n == 0, equal_nan=equal_nan):
                    if len(begins):
                        if not counts[n]:
                            first[n] = n * block + at + begins[0]
                        counts[n] += len(begins)
        following = np.full(number, length, np.int64)
        for n in range(number - 2, -1, -1):
            following[n] = first[n + 1] if counts[n + 1] else following[n + 1]
        return cls(length, block, counts, following, equal_nan)


def _part(number: int, block: int, length: int) -> tuple[slice]:
    """A block, with the element before it."""
    return (slice(max(number * block - 1, 0), min((number + 1) * block, length)),)


def _begins(
    data: NDArray[Any], is_first: bool, *, equal_nan: bool
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Where new elements begin, piece by piece; but for the first block, element 0 is the one before."""
    own = 0 if is_first else 1
    for begin in range(own, len(data), _PIECE):
        end = min(begin + _PIECE, len(data))
        if begin == 0:
            new = np.ones(end, bool)
            new[1:] = _differ(data[1:end], data[: end - 1], equal_nan=equal_nan)
        else:
            new = _differ(data[begin:end], data[begin - 1 : end - 1], equal_nan=equal_nan)
        yield begin - own, np.flatnonzero(new)


def _differ(data: NDArray[Any], before: NDArray[Any], *, equal_nan: bool) -> NDArray[np.bool_]:
    new = np.asarray(data != before)
    if equal_nan and data.dtype.kind in "fcmM":
        new &= ~(np.isnan(data) & np.isnan(before))
    return new


def _stored(
    inputs: tuple[Any, ...],
    cut: _Cut,
    targets: Sequence[Any],
    how: Any,
    *,
    counts: bool,
) -> list[Any]:
    """The elements, where each was first, and how often each is there."""
    place = np.dtype(np.int64)
    native = inputs[0].dtype.newbyteorder("=")
    dtypes = [native] + [place] * (len(inputs) - 1) + [place] * counts
    outs = [targets[0]] + [targets[1]] * (len(inputs) - 1) + [targets[2]] * counts
    results = tuple(Result((cut.total,), dtype) for dtype in dtypes)
    sums = np.concatenate([[0], np.cumsum(cut.counts)])
    most = int(cut.counts.max(initial=0))
    loaded = min(cut.block, cut.length)

    def step(number: int) -> Step:
        part = _part(number, cut.block, cut.length)
        own = slice(number * cut.block, part[0].stop)
        loads = [Load(0, part, 0)]
        blocks = [Block(0, (part[0].stop - part[0].start,)), Block(1, (_PIECE * _BESIDE,))]
        if len(inputs) > 1:
            loads.append(Load(1, (own,), 2))
            blocks.append(Block(2, (own.stop - own.start,)))
        low, high = int(sums[number]), int(sums[number + 1])
        stores = []
        for n in range(len(results)):
            if high > low:
                stores.append(Store(len(inputs) + n, (slice(low, high),), len(blocks)))
            blocks.append(Block(1 + len(inputs) + n, (high - low,)))
        return Step(
            blocks=tuple(blocks),
            loads=tuple(loads),
            stores=tuple(stores),
            kernel=0,
            arguments=(number,),
        )

    def kernel(blocks: Sequence[NDArray[Any]], number: int) -> None:
        data, outputs = blocks[0], blocks[1 + len(inputs) :]
        base, reached = number * cut.block, 0
        for at, begins in _begins(data, number == 0, equal_nan=cut.equal_nan):
            place = slice(reached, reached + len(begins))
            own = data if number == 0 else data[1:]
            np.take(own, begins + at, out=outputs[0][place])
            if len(inputs) > 1:
                np.take(blocks[2], begins + at, out=outputs[1][place])
            if counts:
                np.add(begins, base + at, out=outputs[-1][place])
            reached = place.stop
        if counts and reached:
            starts = outputs[-1]
            for begin in range(0, reached - 1, _PIECE):
                end = min(begin + _PIECE, reached - 1)
                starts[begin:end] = starts[begin + 1 : end + 1] - starts[begin:end]
            starts[-1] = cut.following[number] - starts[-1]

    def plan(terms: Terms) -> Program:
        buffers = [Buffer(loaded + 1, native, copies=2), Buffer(_PIECE * _BESIDE, np.dtype("u1"))]
        if len(inputs) > 1:
            buffers.append(Buffer(loaded, place, copies=2))
        buffers += [Buffer(most, dtype, copies=2) for dtype in dtypes]
        steps, held = len(cut.counts), sum(buffer.nbytes for buffer in buffers)
        if held > terms.room:
            raise TooLittle(held)
        names = ("sorted", "order")[: len(inputs)]
        arrays = (*names, "elements", "index", "counts")[: len(inputs) + len(results)]
        schedule = Schedule("unique", arrays, tuple(buffers), steps, step, (kernel,))
        moved = sum(one.nbytes for one in (*inputs, *results))
        bound = Bound(moved, "sorted elements and results once")
        return Program((schedule,), f"{steps} blocks of sorted elements", bound)

    operation = Operation("unique", inputs, results, plan, repeatable=False)
    out = outs[0] if len(outs) == 1 else tuple(outs)
    found = complete(operation, out, how)
    return list(found) if isinstance(found, tuple) else [found]
