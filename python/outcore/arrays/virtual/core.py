"""
Arrays whose elements are sections of other arrays: HDF5 virtual datasets.

Problem: a virtual dataset is a layout over several files, each with its own layout, codecs and table of
chunks. The core plans an access to one file.
Approach: a section of a virtual array is a list of sections of its sources, each with a position in
memory (`outcore.arrays.pieces`). Reading it is the core's read of many arrays (`_core.read_many`):
planned, budgeted and decoded as if each section had been requested. A `VirtualCore` has the methods of
the core's own `Array`, so all layers above, from keys to schedules, treat it as one. An empty array of
the same shape handles everything that needs no elements (keys, shapes, checks of `out`, bounds of
indices). It also supplies the fill value where there is no piece or no source.

Invariants: if pieces have a common element, the last piece provides it, as in the library: parts that
may intersect are read one after the other. Elements that belong to no piece, are outside a source, or
whose source is missing, read as the fill value; an existing source that cannot be read is an error.
Nothing is written.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.pieces import intersect_axis, intersect_numbered, view_upwards
from outcore.arrays.virtual.sections import (
    Key,
    clip_section,
    convert_elements,
    drop_axes,
    find_overlaps,
    get_range,
    iterate_slabs,
    shift_to_zero,
)
from outcore.base.hints import Hints
from outcore.errors import FormatError, UnsupportedError
from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    VirtualMapping,
    VirtualSource,
    make_empty_source,
    virtual_source,
)

__all__ = ["Source", "SourceSection", "VirtualCore", "open_core"]

# Number of small sections that are read from the disk concurrently.
_LANES = 4
# Number of sources that stay open.
_OPEN = 256
# Maximum number of cells of the grid for detecting overlaps of pieces.
_CELLS = 1 << 20
# Maximum number of parts that are compared with each other.
_COMPARED = 1 << 11
# Kinds of numeric types, which are converted as in the HDF5 library.
_NUMBERS = "iufc"
# Number of bytes of a source of another type that are converted at a time.
_CONVERTED = 8 << 20
# Counts of reports that are summed.
_SUMMED = (
    "reads",
    "read_bytes",
    "writes",
    "written_bytes",
    "mapped_bytes",
    "decodes",
    "encodes",
    "cached_chunks",
    "rounds",
)


class SourceSection(NamedTuple):
    """A section of a source and its destination: memory of its shape with the virtual array's dtype."""

    source: int
    #: Keeps the source open even if its name is removed.
    opened: Source
    key: Key
    place: NDArray[Any]
    #: The destination as a section of the memory of all parts.
    where: tuple[slice, ...]


class Source(NamedTuple):
    """An open source: its description, and its core array."""

    info: ArrayInfo
    core: Any


def open_core(info: ArrayInfo, writable: bool, hints: Hints) -> _core.Array:
    """Return the core array of an array, or a `VirtualCore` over the sources of a virtual one."""
    source = virtual_source(info)
    if source is None:
        return _core.Array(info, writable, hints)
    made: Any = VirtualCore(info, source, hints)
    return made  # type: ignore[no-any-return]


class VirtualCore:
    """The interface of a core array, for an array over other arrays, read with `hints`."""

    def __init__(self, info: ArrayInfo, source: VirtualSource, hints: Hints) -> None:
        self.info, self.source, self._hints = info, source, hints
        assert isinstance(info.layout, Chunked)
        empty = make_empty_source(source.path)
        layout = replace(info.layout, codecs=(), source=empty)
        self.base = _core.Array(replace(info, layout=layout), False, hints)
        self._open: dict[int, Source] = {}
        self._cut: dict[int, tuple[tuple[int, ...], VirtualMapping]] = {}
        #: State of the sources for collective reads.
        self.handles: dict[int, Any] = {}
        self._before: dict[str, int] = {}
        self._seconds_before: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        # Keys, shapes, budgets: everything that needs no elements.
        return getattr(self.base, name)

    # Sources

    def open_source(self, number: int) -> Source | None:
        """Open a source; None while it is missing."""
        found = self._open.get(number)
        if found is None:
            info = self.source.open(number)
            if info is None:
                return None
            self._check(info)
            found = Source(info, open_core(info, False, self._hints))
            while len(self._open) >= _OPEN:
                try:
                    old = self._open.pop(next(iter(self._open)))
                except (KeyError, StopIteration, RuntimeError):  # another thread evicted it first
                    break
                # Current reads of it continue; the last one closes its files.
                _add_counts(self._before, old.core.stats())
                _add_counts(self._seconds_before, old.core.seconds())
            self._open[number] = found
        return found

    def _check(self, info: ArrayInfo) -> None:
        mine, theirs = self.info.dtype, info.dtype
        numbers = theirs.kind in _NUMBERS and mine.kind in _NUMBERS
        if not np.can_cast(theirs, mine, "same_kind" if numbers else "equiv"):
            raise UnsupportedError(
                f"{self.info.path!r} has elements of type {mine}, but its source {info.path!r} has "
                f"type {theirs}, which is not converted; read the source itself",
                code="hdf5-virtual",
                path=self.info.path,
            )

    # Sections

    def parts(self, section: list[int], memory: NDArray[Any]) -> Iterator[SourceSection]:
        """
        Yield the sections of sources that are in a section, and the position of each.

        `memory` is that of the section, with all axes of the array in ascending order.
        """
        words = zip(section[::3], section[1::3], section[2::3], strict=True)
        key = tuple(slice(a, a + (n - 1) * s + 1 if n else a, s) for a, n, s in words)
        every = self.source.pieces
        for number, _, _ in intersect_numbered(every.there, every.here, key):
            source = int(every.of[number])
            found = self.open_source(source)
            if found is None:
                continue
            pieces = self._pieces(number, found.info)
            for k, there, place in intersect_numbered(pieces.there, pieces.here, key):
                axes = pieces.axes[k] or ()
                part = clip_section(axes, there, place if key else (), found.info.shape)
                if part is not None:
                    yield SourceSection(
                        source, found, part[0], drop_axes(memory, axes, part[1]), part[1]
                    )

    def _pieces(self, number: int, info: ArrayInfo) -> VirtualMapping:
        """Divide a piece whose source is now known into pieces along axes of both arrays."""
        every = self.source.pieces
        if every.axes[number] is None:
            kept = self._cut.get(number)
            if kept is None or kept[0] != info.shape:
                kept = self._cut[number] = info.shape, self.source.cut(number, info.shape)
            return kept[1]
        axes = every.axes[number] or ()
        if len(axes) != len(info.shape):
            raise FormatError(
                f"{info.path!r} has {len(info.shape)} axes, but {self.info.path!r} maps "
                f"{len(axes)} of it; restore the original dataset",
                code="hdf5-virtual",
                path=info.path,
            )
        one = slice(number, number + 1)
        return VirtualMapping(every.of[one], every.here[one], every.there[one], (axes,))

    def brought(self, key: Any, out: Any = None) -> tuple[NDArray[Any], bool, list[SourceSection]]:
        """Return the result of a read, filled with the fill value; whether it is a scalar; its parts."""
        section, axes, scalar = self.base.section_of(key)
        result = self.base.empty(key) if out is None else out
        self.base.read(key, result)
        memory = view_upwards(result, axes, len(self.info.shape))
        return result, scalar, list(self.parts(section, memory))

    def read(self, key: Any, out: NDArray[Any] | None = None) -> Any:
        """Read a section, as `DiskArray.read`."""
        section, axes, scalar = self.base.section_of(key)
        result = self.base.empty(key) if out is None else out
        filled = not self._can_skip_fill(result, section, axes)
        if filled:
            self.base.read(key, result)  # also raises the errors of `out`
        parts = self.parts(section, view_upwards(result, axes, len(self.info.shape)))
        if not filled:
            known = list(parts)
            if sum(part.place.size for part in known) < result.size:
                self.base.read(key, result)
            parts = iter(known)
        # A limited number at a time: sources stay open while they are read.
        while some := list(itertools.islice(parts, _OPEN)):
            for alone in self._group_in_order(some):
                self._read_parts(alone)
        return result[()] if scalar and out is None else result

    def _can_skip_fill(
        self, result: Any, section: list[int], axes: Sequence[tuple[int, bool] | None]
    ) -> bool:
        """Return whether memory need not be filled if the parts have as many elements as the section."""
        shape = tuple(1 if axis is None else section[3 * axis[0] + 1] for axis in axes)
        return (
            not self.base.closed
            and isinstance(result, np.ndarray)
            and (result.shape, result.dtype) == (shape, self.info.dtype)
            and result.flags.writeable
            and result.flags.forc
            and len(self.source.pieces.of) <= _OPEN
            and self._are_apart
        )

    @cached_property
    def _are_apart(self) -> bool:
        """True if no two pieces intersect, as far as their bounding boxes show."""
        here = self.source.pieces.here
        low = here[:, :, 0]
        ends = low + (here[:, :, 1] - 1) * here[:, :, 2] + 1
        # Cells between all starts and ends of boxes.
        edges = [np.unique([low[:, d], ends[:, d]]) for d in range(low.shape[1])]
        if math.prod(len(one) for one in edges) > _CELLS:
            return False
        taken = np.zeros([len(one) for one in edges], bool)
        for first, last in zip(low, ends, strict=True):
            box = tuple(
                slice(*np.searchsorted(edge, (a, b)).tolist())
                for edge, a, b in zip(edges, first, last, strict=True)
            )
            if taken[box].any():
                return False
            taken[box] = True
        return True

    def find_contended(self, parts: Sequence[SourceSection]) -> list[bool]:
        """Return for each part whether others may have common elements; True for very many parts."""
        if self._are_apart:
            return [False] * len(parts)
        if len(parts) > _COMPARED:
            return [True] * len(parts)
        found: list[bool] = (find_overlaps([p.where for p in parts]).sum(axis=0) > 1).tolist()
        return found

    def _group_in_order(self, parts: list[SourceSection]) -> Iterator[list[SourceSection]]:
        """Yield groups of successive parts that have no common elements."""
        low = 0
        if not self._are_apart:
            meet = find_overlaps([part.where for part in parts])
            for high in range(1, len(parts)):
                if meet[high, low:high].any():
                    yield parts[low:high]
                    low = high
        yield parts[low:]

    def _read_parts(self, parts: list[SourceSection]) -> None:
        plain = []
        for part in parts:
            found = part.opened
            if found.info.dtype != self.info.dtype:
                self._convert(found, part)
            elif isinstance(found.core, VirtualCore):
                found.core.read(part.key, part.place)
            else:
                plain.append((found.core, part.key, part.place))
        if plain:
            _core.read_many(plain, lanes=_LANES)

    def _convert(self, found: Source, part: SourceSection) -> None:
        """Read elements of another type, one slab at a time."""
        shape = part.place.shape
        most = max(_CONVERTED // max(found.info.dtype.itemsize, 1), 1)
        held = min(math.prod(shape), most) * found.info.dtype.itemsize
        with _core.Reservation("conversion of a source", held):
            for key, place in iterate_slabs(part.key, shape, most):
                into: Any = (*place, ...)
                part.place[into] = convert_elements(found.core.read(key), self.info.dtype)

    # Cost of reads

    def list_sections(self, key: Any) -> list[SourceSection]:
        """Return the parts of a section without memory, for queries that move no data."""
        section, axes, _ = self.base.section_of(key)
        shape = tuple(1 if axis is None else section[3 * axis[0] + 1] for axis in axes)
        memory = np.broadcast_to(np.empty((), self.info.dtype), shape)
        return list(self.parts(section, view_upwards(memory, axes, len(self.info.shape))))

    def _list_sections(self, key: Any) -> Iterator[tuple[Source, Key, int]]:
        """Yield sources and sections of a key, and the number of elements of each."""
        for part in self.list_sections(key):
            yield part.opened, part.key, part.place.size

    def explain(self, key: Any, write: bool = False, assumed: int | None = None) -> dict[str, Any]:
        """Sum the plans of reading a section over its sources; `assumed` bytes count as free."""
        told = self.base.explain(key, write, assumed)
        looked = self._list_sections(key)
        return self._sum_counts(
            told, [(s.core.explain(k, False, assumed), n) for s, k, n in looked]
        )

    def _sum_counts(
        self, told: dict[str, Any], each: list[tuple[dict[str, Any], int]]
    ) -> dict[str, Any]:
        if not each:
            return {**told, "why": "virtual: no source has any of it, the fill value does"}
        largest = max(each, key=lambda one: one[1])[0]
        total = {**largest, **{name: told[name] for name in ("path", "section", "useful_bytes")}}
        for name in _SUMMED:
            total[name] = sum(one[name] for one, _ in each)
        total["peak_bytes"] = max(one["peak_bytes"] for one, _ in each)
        known = [
            (one["page_cache_fraction"], n)
            for one, n in each
            if one["page_cache_fraction"] is not None
        ]
        elements = sum(n for _, n in known)
        total["page_cache_fraction"] = sum(c * n for c, n in known) / elements if elements else None
        sections = "1 section" if len(each) == 1 else f"{len(each)} sections, of the largest"
        total["why"] = f"virtual, {sections}: {largest['why']}"
        return total

    def counts(self, key: Any, write: bool = False) -> list[int]:
        """Return requests and bytes of a section."""
        total = self.base.counts(key, write)
        for source, part, _ in self._list_sections(key):
            total = [a + b for a, b in zip(total, source.core.counts(part, write), strict=True)]
        return total

    def price(self, key: Any, write: bool = False, cold: bool = False) -> tuple[int, int]:
        """Return the cost of a section, and how much of it is cached."""
        prices = [s.core.price(k, write, cold) for s, k, _ in self._list_sections(key)]
        return sum(p for p, _ in prices), sum(c for _, c in prices)

    def stats(self) -> dict[str, int]:
        """Return the counts of accesses, summed over all sources."""
        total = {**self.base.stats()}
        for one in (self._before, *(s.core.stats() for s in list(self._open.values()))):
            _add_counts(total, one)
        return total

    def seconds(self) -> dict[str, float]:
        """Return the thread times of accesses, summed over all sources."""
        total = {**self.base.seconds()}
        for one in (self._seconds_before, *(s.core.seconds() for s in list(self._open.values()))):
            _add_counts(total, one)
        return total

    def stored(self) -> None:
        """Return None: the set of stored places is unknown, so all are visited."""

    def prefetch(self, key: Any) -> None:
        """Ask the operating system to load a section into the page cache."""
        for source, part, _ in self._list_sections(key):
            source.core.prefetch(part)

    def begin_loop(self, choose: Callable[[int], int], writes_to: Any = None) -> _core.Loop:
        """Start a loop whose reads need the memory of reads of the first source."""
        for number in dict.fromkeys(self.source.pieces.of.tolist()):
            source = self.open_source(number)
            if source is not None:
                return source.core.begin_loop(choose, writes_to)  # type: ignore[no-any-return]
        return self.base.begin_loop(choose, writes_to)

    def close(self) -> None:
        """Release the files."""
        self.base.close()
        for source in list(self._open.values()):
            source.core.close()
            source.info.forget()
        for handle in self.handles.values():
            handle.close()

    # Elements selected by indices

    def read_points(
        self,
        axes: tuple[int, ...],
        lists: tuple[NDArray[np.int64], ...],
        mode: str,
        rest: list[int],
        out: NDArray[Any],
    ) -> None:
        """Read elements, or blocks of them, by lists of indices, from each source those that it has."""
        self.base.read_points(axes, lists, mode, rest, out)  # checks the lists and fills `out`
        for one in self.choose_points(axes, lists, mode, rest):
            source = self.open_source(one.source)
            if source is None:
                continue
            dtype = source.info.dtype
            with _core.Reservation("elements of a source", math.prod(one.shape) * dtype.itemsize):
                buffer = np.empty(one.shape, dtype)
                if one.axes:
                    source.core.read_points(one.axes, one.lists, "points", one.rest, buffer)
                else:
                    # Its one index along these axes is in the section.
                    buffer[...] = source.core.read(one.section)
                lengths = [part.stop - part.start for part in map(shift_to_zero, one.place)]
                into: Any = (one.points, *one.place)
                here = buffer.reshape(len(buffer), *lengths)
                out[into] = convert_elements(here, self.info.dtype)

    def explain_points(
        self,
        axes: tuple[int, ...],
        lists: tuple[NDArray[np.int64], ...],
        mode: str,
        rest: list[int],
        write: bool,
    ) -> dict[str, Any]:
        """Return the plan of `read_points`, summed over the sources."""
        told = self.base.explain_points(axes, lists, mode, rest, write)
        each = []
        for one in self.choose_points(axes, lists, mode, rest):
            source = self.open_source(one.source)
            if source is not None and one.axes:
                words = one.axes, one.lists, "points", one.rest
                each.append((source.core.explain_points(*words, write), math.prod(one.shape)))
            elif source is not None:
                each.append((source.core.explain(one.section, write), math.prod(one.shape)))
        return self._sum_counts(told, each)

    def choose_points(
        self,
        axes: tuple[int, ...],
        lists: tuple[NDArray[np.int64], ...],
        mode: str,
        rest: list[int],
        looked: dict[int, tuple[int, ...] | None] | None = None,
    ) -> Iterator[_PiecePoints]:
        """
        Yield for each piece the points of a list that it contains.

        `looked` receives the shape of each source that was opened, None if it is missing.
        """
        lengths = [self.info.shape[d] for d in axes]
        number = math.prod(one.size for one in lists) if mode == "outer" else lists[0].size
        with _core.Reservation("indices of sources", 8 * number * (2 * len(axes) + 1)):
            each: list[NDArray[np.int64]]
            if mode == "outer":
                each = [one.reshape(-1) for one in np.meshgrid(*lists, indexing="ij")]
            elif mode == "flat":
                total = math.prod(lengths)
                flat = np.where(lists[0] < 0, lists[0] + total, lists[0])
                each = list(np.unravel_index(flat, lengths))
            else:
                each = list(lists)
            indices = {
                d: np.where(one < 0, one + n, one)
                for d, one, n in zip(axes, each, lengths, strict=True)
            }
            every = self.source.pieces
            for piece in range(len(every.of)):
                if not _is_hit(every.here[piece].tolist(), indices):
                    continue
                number = int(every.of[piece])
                source = self.open_source(number)
                if looked is not None:
                    looked[number] = None if source is None else source.info.shape
                if source is not None:
                    pieces = self._pieces(piece, source.info)
                    each_of = (
                        self._choose_points_of(source, number, pieces, k, indices, rest)
                        for k in range(len(pieces.of))
                    )
                    yield from (one for one in each_of if one is not None)

    def _choose_points_of(
        self,
        source: Source,
        number: int,
        pieces: VirtualMapping,
        piece: int,
        indices: dict[int, NDArray[np.int64]],
        rest: list[int],
    ) -> _PiecePoints | None:
        """Return the points that a piece contains."""
        here, there = pieces.here[piece].tolist(), pieces.there[piece].tolist()
        inside = np.ones(len(next(iter(indices.values()))), bool)
        for d, one in indices.items():
            start, count, step = here[d]
            inside &= (one >= start) & (one <= start + (count - 1) * step)
            inside &= (one - start) % step == 0
        if not inside.any():
            return None
        # Along the other axes, the part of the section in the piece.
        sections, place = [slice(0, 1)] * len(here), [slice(0, 1)] * len(here)
        for d, (start, count, step) in enumerate(here):
            if d in indices:
                continue
            first, wanted, every = rest[3 * d : 3 * d + 3]
            key = slice(first, first + (wanted - 1) * every + 1, every)
            low = max(-((start - first) // step), 0)
            high = min((key.stop - 1 - start) // step, count - 1)
            both = (
                intersect_axis(there[d], here[d], low, high, key)
                if wanted and low <= high
                else None
            )
            if both is None:
                return None
            sections[d], place[d] = both
        axes = pieces.axes[piece] or ()
        found: dict[int, NDArray[np.int64]] = {}
        for e, (d, _) in enumerate(axes):
            if d in indices:
                found[e] = there[d][0] + (indices[d] - here[d][0]) // here[d][2] * there[d][2]
                inside &= found[e] < source.info.shape[e]
        part = clip_section(axes, tuple(sections), tuple(place), source.info.shape)
        (points,) = inside.nonzero()
        if part is None or not len(points):
            return None
        words: list[int] = []
        for at in part[0]:
            words += (at, 1, 1) if isinstance(at, int) else get_range(at)
        section = tuple(slice(at, at + 1) if isinstance(at, int) else at for at in part[0])
        lengths = [n for e, n in enumerate(words[1::3]) if e not in found]
        return _PiecePoints(
            number,
            tuple(found),
            tuple(np.ascontiguousarray(one[points]) for one in found.values()),
            words,
            section,
            (len(points) if found else 1, *lengths),
            points,
            tuple(one for d, one in enumerate(part[1]) if d not in indices),
        )


def _is_hit(here: list[list[int]], indices: dict[int, NDArray[np.int64]]) -> bool:
    """Return whether a point may be in a piece: between its ends along all axes."""
    inside: Any = True
    for d, one in indices.items():
        start, count, step = here[d]
        inside = inside & (one >= start) & (one <= start + (count - 1) * step)
    return bool(np.any(inside))


class _PiecePoints(NamedTuple):
    """The points of a list that are in one piece."""

    source: int
    #: The axes of the source that have lists, and these lists.
    axes: tuple[int, ...]
    lists: tuple[NDArray[np.int64], ...]
    #: Start, count and step along all axes; and the same section as a key.
    rest: list[int]
    section: tuple[slice, ...]
    #: Shape of the memory that the source is read into.
    shape: tuple[int, ...]
    #: Positions of the points, and the section along the other axes.
    points: NDArray[np.intp]
    place: tuple[slice, ...]


def _add_counts(total: dict[str, Any], some: Mapping[str, Any]) -> None:
    for name, value in some.items():
        total[name] = total.get(name, 0) + value
