"""
Selection by counting: elements with given ranks along axes that do not fit in memory.

Problem. The rank of an element is known only after all elements have been read. Sorting them on
disk would move them several times.
Idea. Elements are converted to integers with the same order, and a pass counts them by their
leading bits. The counts determine the bin of each wanted rank. The next pass counts the elements in
these bins by the following bits, or collects them as soon as they fit. The elements in the bins are
then sorted, and the ranks taken.
The ranks of a job (processes) share each pass: each counts a part of the tiles into a row of a
temporary array, and all of them determine the wanted bins from the rows. The rows also give the
number of elements of a bin in each part, and thus the position of each collected element.

Invariants. The elements with these ranks are found exactly. All passes have the same parts.

Reference: J. I. Munro, M. S. Paterson, "Selection and sorting with limited storage", 1980.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.schedule import Block, Buffer, Schedule, ScheduleStep, Section, Store
from outcore.base.report import format_count
from outcore.compute.jobs import (
    Bound,
    DeferredPhase,
    InsufficientBuffersError,
    Program,
    Result,
    Terms,
)
from outcore.compute.reduce.counting import AT_ONCE, CountingRead, plan_read

__all__ = ["plan_selection"]

Shape = tuple[int, ...]
#: Function from the number of elements of each output to its ranks.
Ranks = Callable[[NDArray[np.int64]], NDArray[np.int64]]
#: Number of ranks, the ranks, and the function that makes the result of the elements with these
#: ranks.
Wanted = tuple[int, Ranks, Callable[[NDArray[Any], NDArray[np.int64]], NDArray[Any]]]
_I8 = np.dtype("i8")
# Maximum and minimum number of bits distinguished in a pass: fewer would be extremely slow.
_BITS, _LEAST_BITS = 20, 4
# Fraction of the buffer memory for one copy of the counts of a pass. There are two copies, and
# several arrays computed from them.
_PART = 8
# Bytes that Python needs for a wanted rank of an output.
_EACH_RANK = 512


def plan_selection(
    name: str,
    shape: Shape,
    dtype: np.dtype[Any],
    axes: Shape,
    wanted: Wanted,
    result: tuple[Shape, np.dtype[Any]],
    *,
    nan: bool = False,
) -> Callable[[Terms], Program]:
    """
    Return the planner of a selection; elements along `axes` are ranked together.

    `wanted` has the number of ranks of each output; a function from the numbers of elements, one
    output per row, to ranks from 0; and a function from the elements, ranks first, and these
    numbers to the result. With `nan`, NaN is skipped; it has the highest ranks.
    """
    each, ranks, finish = wanted
    what = _Selection(shape, dtype, axes, each, ranks, nan=nan)

    def plan(terms: Terms) -> Program:
        most = terms.room // (8 * _PART)
        wanted = what.outputs * each
        bits = what.bits
        first = what.width(most, what.outputs, bits)
        later = what.width(most, wanted, bits - first)
        if first < min(_LEAST_BITS, bits) or (
            first < bits and later < min(_LEAST_BITS, bits - first)
        ):
            raise InsufficientBuffersError(8 * _PART * max(wanted << _LEAST_BITS, AT_ONCE))
        passes = 1 + (-(-(bits - first) // later) if first < bits else 0)
        usual = what.usual_passes(most, first, later)
        size = math.prod(result[0])
        beside = size * result[1].itemsize + wanted * _EACH_RANK
        read = plan_read(
            name, terms, shape, dtype, 2 * 8 * most + beside, lambda steps: min(terms.ranks, steps)
        )
        arrays = ("input", "result", *(f"counts {n}" for n in range(passes)))
        job = _SelectionPasses(what, read, arrays, most)
        rows, nbytes = read.rows, math.prod(shape) * dtype.itemsize
        kept = rows * most * 8
        phases = [
            DeferredPhase(
                name=name,
                steps=read.steps,
                held=read.compute_bytes((most, _I8), 0) + beside,
                # Each rank reads the counts of all previous passes.
                loaded=nbytes + n * kept * terms.ranks,
                stored=kept,
                at_once={0: read.reads, 2 + n: 1},
                make=lambda opened, n=n: job.schedule(opened, n),  # type: ignore[misc]
                seldom=n >= usual,
            )
            for n in range(passes)
        ]
        last = DeferredPhase(
            name=name,
            steps=1,
            held=size * result[1].itemsize + 4 * 8 * most + wanted * _EACH_RANK,
            loaded=usual * kept * terms.ranks,
            stored=0 if terms.infos[1] is None else size * result[1].itemsize,
            at_once={1: 1},
            make=lambda opened: _make_stored(
                name, arrays, finish(*job.read_selected(opened)), result
            ),
        )
        return Program(
            (*phases, last),
            f"{format_count(usual, 'pass')} in {read.method}, which count the elements by their "
            "leading bits"
            + (f"; up to {passes} if very many have them in common" if passes > usual else ""),
            Bound.of({0: nbytes}, "input once"),
            tuple(Result((rows, most), _I8) for _ in range(passes)),
        )

    return plan


def _make_stored(
    name: str, arrays: Sequence[str], values: NDArray[Any], result: tuple[Shape, np.dtype[Any]]
) -> Schedule:
    shape, dtype = result

    def kernel(blocks: Sequence[NDArray[Any]]) -> None:
        blocks[0][...] = values

    step = ScheduleStep(
        (Block(0, shape),), (), (Store(1, tuple(slice(0, n) for n in shape), 0),), 0
    )
    buffers = (Buffer(math.prod(shape), dtype),)
    return Schedule(name, tuple(arrays), buffers, 1, lambda number: step, (kernel,))


class _Selection:
    """Specification of the wanted elements."""

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], axes: Shape, each: int, ranks: Ranks, *, nan: bool
    ) -> None:
        self.shape, self.dtype, self.axes = shape, dtype, axes
        self.wanted, self.ranks = each, ranks
        self.kept = [k for k in range(len(shape)) if k not in axes]
        self.outputs = math.prod(shape[k] for k in self.kept)
        self.count = math.prod(shape[k] for k in axes)
        self.bits = 8 * dtype.itemsize
        #: Number of outputs for which the first pass counts NaN.
        self.others = self.outputs if nan else 0

    def usual_passes(self, most: int, first: int, later: int) -> int:
        """
        Estimate the number of passes for most data, with `first` bits, then `later` bits in each.

        Floats have about four different exponents, and integers use half of their bits. The pass
        for which all remaining elements fit collects them.
        """
        alike = self.bits // 2
        if self.dtype.kind == "f":
            alike = self.bits - np.finfo(self.dtype).nmant - 2
        known, passes = first, 1
        while known < self.bits:
            passes += 1
            left = self.outputs * max(self.wanted // 2, 1) * self.count
            if left >> max(known - alike, 0) <= most:
                break
            known += later
        return passes

    def width(self, most: int, targets: int, left: int) -> int:
        """Return the number of bits that a pass can distinguish."""
        if left == self.bits:
            most -= self.others
        return min(max((most // max(targets, 1)).bit_length() - 1, 0), _BITS, left)

    def keys(self, part: NDArray[Any]) -> NDArray[np.uint64]:
        """Convert elements to integers in the same order, with NaN above all."""
        unsigned = np.dtype(f"u{self.dtype.itemsize}")
        if self.dtype.kind in "bu":
            return part.view(unsigned).astype(np.uint64)
        top = np.uint64(1 << (self.bits - 1))
        if self.dtype.kind == "i":
            return part.view(unsigned).astype(np.uint64) ^ top
        # Both zeros become one.
        bits = (part + part.dtype.type(0)).view(unsigned).astype(np.uint64)
        every = np.uint64(2**self.bits - 1)
        keys = np.where(bits & top, ~bits & every, bits | top)
        return np.where(np.isnan(part), every, keys)

    def value(self, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Convert keys back to elements."""
        unsigned = np.dtype(f"u{self.dtype.itemsize}")
        top = np.uint64(1 << (self.bits - 1))
        if self.dtype.kind in "bu":
            values = keys.astype(unsigned).view("u1" if self.dtype.kind == "b" else self.dtype)
        elif self.dtype.kind == "i":
            values = (keys ^ top).astype(unsigned).view(self.dtype)
        else:
            every = np.uint64(2**self.bits - 1)
            bits = np.where(keys & top, keys & ~top, ~keys & every).astype(unsigned)
            values = np.where(keys == every, np.nan, bits.view(self.dtype)).astype(self.dtype)
        return values

    def split_outputs(
        self, tile: NDArray[Any], section: Section
    ) -> Sequence[tuple[int, NDArray[Any]]]:
        """Return the outputs that a tile has elements of, with these elements, some at a time."""
        starts = [section[k].start for k in self.kept]
        sizes = [self.shape[k] for k in self.kept]
        turned = tile.transpose(*self.kept, *self.axes) if tile.ndim else tile
        lengths = turned.shape[: len(self.kept)]
        found = []
        for place in np.ndindex(*lengths):
            output = 0
            for start, k, size in zip(starts, place, sizes, strict=True):
                output = output * size + start + k
            one = turned[place]
            found.append((output, one))
        return found

    def slices(self, one: NDArray[Any]) -> Any:
        """Yield an output's elements of a tile, flat, some at a time."""
        for part in np.nditer(
            one, ["external_loop", "buffered", "zerosize_ok"], order="K", buffersize=AT_ONCE
        ):
            yield np.asarray(part)


class _KnownBins:
    """Bins of all ranks, as far as earlier passes have determined them."""

    def __init__(self, what: _Selection) -> None:
        shape = (what.outputs, what.wanted)
        self.what, self.bits = what, 0
        #: Number of elements of each output. For some outputs the first pass determines it.
        self.counts = np.full(what.outputs, what.count, np.int64)
        #: Leading bits for each output and rank, and the rank among elements with these bits.
        self.prefixes = np.zeros(shape, np.uint64)
        self.left = np.zeros(shape, np.int64)
        self.targets, self.which = self._targets(self.prefixes)
        #: Number of each target among the counts of the last pass.
        self.bins = np.zeros(0, np.int64)
        self.inside = 0

    def narrow(self, counts: NDArray[np.int64], width: int) -> None:
        """Narrow the bins by the counts of a pass."""
        if not self.bits:
            self.left[...] = self.what.ranks(self.counts)
        bins: dict[tuple[int, int], int] = {}
        sums = np.cumsum(counts, axis=1)
        for place, target in np.ndenumerate(self.which):
            ends = sums[target]
            bin_ = int(np.searchsorted(ends, self.left[place], "right"))
            self.left[place] -= ends[bin_ - 1] if bin_ else 0
            self.prefixes[place] = (int(self.prefixes[place]) << width) | bin_
            bins.setdefault((place[0], int(self.prefixes[place])), (int(target) << width) | bin_)
        self.bits += width
        self.targets, self.which = self._targets(self.prefixes)
        self.bins = np.array([bins[target] for target in self.targets], np.int64)
        self.inside = int(counts.reshape(-1)[self.bins].sum())

    def of(self) -> dict[int, list[tuple[int, np.uint64]]]:
        """Return the targets of each output: their numbers and prefixes."""
        found: dict[int, list[tuple[int, np.uint64]]] = {}
        for number, (output, prefix) in enumerate(self.targets):
            found.setdefault(output, []).append((number, np.uint64(prefix)))
        return found

    def select_prefix(self, keys: NDArray[np.uint64], prefix: np.uint64) -> NDArray[np.uint64]:
        """Return the keys with a prefix."""
        if not self.bits:
            return keys
        of_it: NDArray[np.uint64] = keys[(keys >> np.uint64(self.what.bits - self.bits)) == prefix]
        return of_it

    def _targets(
        self, prefixes: NDArray[np.uint64]
    ) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
        """Return the different pairs of output and prefix, and the pair of each rank."""
        targets: dict[tuple[int, int], int] = {}
        which = np.zeros(prefixes.shape, np.int64)
        for (output, n), prefix in np.ndenumerate(prefixes):
            which[output, n] = targets.setdefault((output, int(prefix)), len(targets))
        return list(targets), which


class _SelectionPasses:
    """Passes of a selection; each depends on the counts of the ones before."""

    def __init__(
        self, what: _Selection, read: CountingRead, arrays: Sequence[str], most: int
    ) -> None:
        self.what, self.read, self.arrays, self.most = what, read, arrays, most

    def width(self, known: _KnownBins) -> int:
        """Return the number of bits that the next pass distinguishes."""
        return self.what.width(self.most, len(known.targets), self.what.bits - known.bits)

    def get_known(self, opened: Sequence[Any], number: int) -> tuple[_KnownBins, int]:
        """Return what is known before a pass, and the number of passes that have counted."""
        known = _KnownBins(self.what)
        for n in range(number):
            if self.can_collect(known) or known.bits == self.what.bits:
                return known, n
            width = self.width(known)
            size = len(known.targets) << width
            counts = np.zeros(size, np.int64)
            for row in range(self.read.rows):
                counts += opened[2 + n][row, :size]
                if not n and self.what.others:
                    known.counts -= opened[2][row, size : size + self.what.others]
            known.narrow(counts.reshape(-1, 1 << width), width)
        return known, number

    def can_collect(self, known: _KnownBins) -> bool:
        """Return whether the elements in the bins fit."""
        fits = known.inside + len(known.targets) <= self.most
        return 0 < known.bits < self.what.bits and fits

    def schedule(self, opened: Sequence[Any], number: int) -> Schedule:
        """Plan a pass; it has no steps if nothing remains to be done."""
        with _core.Reservation("counts of a quantile", 4 * 8 * self.most):
            known, counted = self.get_known(opened, number)
            if counted < number or known.bits == self.what.bits:
                return Schedule(
                    self.read.name, tuple(self.arrays), (), 0, lambda number: ScheduleStep(())
                )
            if self.can_collect(known):
                return self.plan_collection(opened, known, number)
        width = self.width(known)
        size, low = 1 << width, np.uint64(self.what.bits - known.bits - width)
        mask, of = np.uint64(size - 1), known.of()

        others = 0 if number else self.what.others
        nan = np.uint64(2**self.what.bits - 1)

        def count(tile: NDArray[Any], section: Section, kept: NDArray[Any], row: int) -> None:
            counts = kept[: len(known.targets) * size].reshape(-1, size)
            for output, keys in self.parts(tile, section):
                if others:
                    kept[counts.size + output] += np.count_nonzero(keys == nan)
                for target, prefix in of.get(output, ()):
                    mine = known.select_prefix(keys, prefix)
                    np.add.at(counts[target], ((mine >> low) & mask).astype(np.int64), 1)

        total = len(known.targets) * size + others
        return self.read.schedule(self.arrays, 2 + number, (total, _I8), count)

    def plan_collection(self, opened: Sequence[Any], known: _KnownBins, number: int) -> Schedule:
        """Plan the collecting pass: first the number of elements of each target, then the elements."""
        of, begins = known.of(), self.find_begins(opened, known, number)
        targets = len(known.targets)

        def collect(tile: NDArray[Any], section: Section, kept: NDArray[Any], row: int) -> None:
            for output, keys in self.parts(tile, section):
                for target, prefix in of.get(output, ()):
                    mine = known.select_prefix(keys, prefix)
                    at = targets + begins[row, target] + kept[target]
                    kept[at : at + mine.size] = mine.view(np.int64)
                    kept[target] += mine.size

        return self.read.schedule(self.arrays, 2 + number, (targets + known.inside, _I8), collect)

    def find_begins(
        self, opened: Sequence[Any], known: _KnownBins, number: int
    ) -> NDArray[np.int64]:
        """Return where the elements of each part and target begin in the row of the part."""
        last = int(known.bins.max()) + 1
        rows = [opened[1 + number][row, :last][known.bins] for row in range(self.read.rows)]
        ends = np.cumsum(rows, axis=1)
        return np.asarray(ends - rows)

    def read_selected(self, opened: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the elements with the ranks, ranks first, and the number of elements of each output."""
        what = self.what
        with _core.Reservation("counts of a quantile", 4 * 8 * self.most):
            known, number = self.get_known(opened, len(self.arrays) - 2)
            keys = known.prefixes
            if known.bits < what.bits:
                keys = self.read_collected(opened, known, number)
        return what.value(keys).T, known.counts

    def read_collected(
        self, opened: Sequence[Any], known: _KnownBins, number: int
    ) -> NDArray[np.uint64]:
        """Return the keys with the remaining ranks among the collected ones."""
        targets, begins = len(known.targets), self.find_begins(opened, known, number)
        rows = []
        for row in range(self.read.rows):
            counts = opened[2 + number][row, :targets]
            size = int(counts.sum())
            rows.append((counts, opened[2 + number][row, targets : targets + size].view(np.uint64)))
        keys = np.zeros(known.which.shape, np.uint64)
        order = np.argsort(known.which, axis=None, kind="stable")
        before, ordered = -1, np.zeros(0, np.uint64)
        for place in zip(*np.unravel_index(order, known.which.shape), strict=True):
            target = int(known.which[place])
            if target != before:
                mine = [
                    part[begins[n, target] :][: counts[target]]
                    for n, (counts, part) in enumerate(rows)
                ]
                before, ordered = target, np.sort(np.concatenate(mine))
            keys[place] = ordered[known.left[place]]
        return keys

    def parts(self, tile: NDArray[Any], section: Section) -> Any:
        """Return the outputs that a tile has elements of, with their keys, some at a time."""
        for output, one in self.what.split_outputs(tile, section):
            for part in self.what.slices(one):
                yield output, self.what.keys(part)
