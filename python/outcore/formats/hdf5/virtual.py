"""
Virtual datasets of HDF5: the map from sections to sections of other datasets.

Problem: a virtual dataset has no elements of its own. Its layout message leads to a list of mappings
in the global heap: a selection of this dataset, a file, a dataset in it, a selection of that.
Selections are hyperslabs, with blocks and strides on either side, maybe without a limit, and names of
files may contain the number of a block (``%b``).
Approach: the library reads the list. Each mapping becomes pieces (`Pieces`): regular sections with the
same number of elements along each axis on both sides. Blocks are cut either into lattices, one for
each place in a block, or into runs, whichever are fewer. So code that reads sections needs no other
concept.
Invariants: elements of a mapping correspond to those of its source in C order, as in the library. Only
the name of a source is used here; a missing file is searched for again on each read.

References: HDF5 File Format Specification 3.0, IV.A.2.i (layout class 3) and VIII (selections); HDF5
Reference Manual, H5Pset_virtual, for the search for files.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from outcore.errors import FormatError, StorageError, UnsupportedError
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.elsewhere import list_candidates
from outcore.formats.hdf5.library import h5py
from outcore.formats.layout import ArrayInfo, Chunked, VirtualMapping, VirtualSource
from outcore.formats.spec import byte_strides

#: Maximal number of pieces of a dataset, and of files of one mapping.
MAX_PIECES = 1 << 16
#: Maximal depth of virtual datasets over virtual datasets.
MAX_DEPTH = 16

# Depth of the dataset that is being described.
_depth: ContextVar[int] = ContextVar("_depth", default=0)


class HyperslabAxis(NamedTuple):
    """A hyperslab along an axis: position ``p`` is ``start + p // block * stride + p % block``."""

    start: int
    stride: int
    block: int
    number: int

    def at(self, position: int) -> int:
        """Return the index at a position."""
        return self.start + position // self.block * self.stride + position % self.block

    @property
    def step(self) -> int | None:
        """Distance between consecutive indices; None if it varies."""
        if self.stride == self.block or self.number <= self.block:
            return 1
        return self.stride if self.block == 1 else None

    def within(self, length: int) -> HyperslabAxis:
        """Return the positions whose index is below `length`."""
        whole, rest = divmod(max(length - self.start, 0), self.stride)
        return self._replace(number=min(self.number, whole * self.block + min(rest, self.block)))


# Start on both sides, elements, step on both sides; this array comes first.
_Segment = tuple[int, int, int, int, int]


class SourceMapping(NamedTuple):
    """One entry of the list, or one file of one: selections on both sides."""

    here: tuple[HyperslabAxis, ...]
    #: None: all of the source, whose shape is not in the list.
    there: tuple[HyperslabAxis, ...] | None
    file: str
    name: str


def make_layout(
    path: str,
    name: str,
    plist: Any,
    shape: tuple[int, ...],
    below: tuple[int, ...],
    item: int,
    describe: Callable[[str, str], ArrayInfo],
) -> Chunked:
    """
    Return where the elements of a virtual dataset are.

    `path` is absolute. `shape` is the current shape, which follows the sources if there is no limit.
    `below` is the shape of an element that is an array, and `item` the bytes of an element. `describe`
    describes a dataset, from its file and its name. Errors have the code ``hdf5-virtual``: an
    unsupported selection or too many pieces (`UnsupportedError`), or virtual datasets in a circle
    (`FormatError`).
    """
    depth = _depth.get()
    if depth > MAX_DEPTH:
        raise FormatError(
            f"{path!r}: virtual dataset {name!r} is reached through {depth} others, which refer to "
            "each other without end; create it again with h5py, from datasets that are not virtual",
            code="hdf5-virtual",
            path=path,
        )
    found = _PieceBuilder(path, name, below)
    for mapping in _read_mappings(path, name, plist, shape):
        found.add(mapping)
    sources = tuple(found.sources)

    def open(number: int) -> ArrayInfo | None:
        return _describe_source(path, *sources[number], depth, describe)

    def places() -> list[tuple[str, str]]:
        files = ((find_source_file(path, file), inner) for file, inner in sources)
        return [(file, inner) for file, inner in files if file is not None]

    source = VirtualSource(path, found.pieces(len(shape)), found.cut, open, places)
    chunks = tuple(max(n, 1) for n in (*shape, *below))
    return Chunked(chunks, byte_strides(chunks, item, "C"), (), source)


def adopt_source_chunks(info: ArrayInfo) -> ArrayInfo:
    """
    Return a virtual dataset with the chunks and codecs of its sources, if all pieces follow these.

    Only the first existing source is checked. If others have other chunks, blocks that follow the
    chunks of the first are slower, but correct.
    """
    source = info.layout.source if isinstance(info.layout, Chunked) else None
    if not isinstance(source, VirtualSource):
        return info
    below = None
    for number in dict.fromkeys(source.pieces.of.tolist()):
        with contextlib.suppress(FormatError, StorageError):
            below = source.open(number)
        if below is not None:
            break
    if below is None:
        return info
    chunks = _align_chunks(source, below, number, info.shape)
    encoded = below.layout.codecs if isinstance(below.layout, Chunked) else ()
    strides = byte_strides(chunks, info.dtype.itemsize, "C")
    return replace(info, layout=Chunked(chunks, strides, encoded, source))


def _align_chunks(
    source: VirtualSource, below: ArrayInfo, number: int, shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Return lengths of a source's chunks along the axes of the dataset; the whole axis if none fit."""
    pieces, chunks = source.pieces, [1] * len(shape)
    whole = below.layout.chunks if isinstance(below.layout, Chunked) else None
    first = int((pieces.of == number).argmax())
    one, k = pieces, first
    if pieces.axes[first] is None:
        try:
            one, k = source.cut(first, below.shape), 0
        except FormatError:
            return tuple(max(n, 1) for n in shape)
    for axis, (across, _) in enumerate(one.axes[k] or ()):
        if across < 0:
            continue
        length = int(one.here[k, across, 1]) if whole is None else int(whole[axis])
        # Pieces that are all of their sources, like this one.
        alike = np.array([axes is None for axes in pieces.axes])
        begin = np.where(alike, 0, pieces.there[:, across, 0])
        dense = alike | ((pieces.here[:, across, 2] == 1) & (pieces.there[:, across, 2] == 1))
        offset = pieces.here[:, across, 0] - (begin if whole is not None else 0)
        fits = bool((dense & (offset % length == 0)).all()) and one.here[k, across, 2] == 1
        chunks[across] = max(min(length, shape[across]) if fits else shape[across], 1)
    return tuple(chunks)


def find_source_file(path: str, file: str) -> str | None:
    """Return the file of a mapping: the first that exists, in the order in which HDF5 searches."""
    if file == ".":
        return path
    return next((one for one in list_candidates(path, file) if os.path.isfile(one)), None)


def _describe_source(
    path: str, file: str, inner: str, depth: int, describe: Callable[[str, str], ArrayInfo]
) -> ArrayInfo | None:
    """Describe a source; return None while it, or its file, is missing."""
    where = find_source_file(path, file)
    if where is None:
        return None
    token = _depth.set(depth + 1)
    try:
        return describe(where, inner or "/")
    except FormatError as error:
        if error.code == "no-such-array":
            return None
        raise
    finally:
        _depth.reset(token)


def _read_mappings(
    path: str, name: str, plist: Any, shape: tuple[int, ...]
) -> Iterator[SourceMapping]:
    def refuse(what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{path!r}: virtual dataset {name!r} {what}; copy it with h5py, or h5repack -l {name}:CONTI",
            code="hdf5-virtual",
            path=path,
        )

    for number in range(plist.get_virtual_count()):
        file, inner = plist.get_virtual_filename(number), plist.get_virtual_dsetname(number)
        here = _to_axes(plist.get_virtual_vspace(number))
        space = plist.get_virtual_srcspace(number)
        whole = space.get_select_type() == h5py.h5s.SEL_ALL
        there = None if whole else _to_axes(space)
        if here is None or (there is None and not whole):
            raise refuse("has a mapping whose selection is not a regular hyperslab")
        endless = [d for d, axis in enumerate(here) if axis.number < 0]
        limited = tuple(
            _limit_axis(axis, n).within(n) if axis.number < 0 else axis
            for axis, n in zip(here, shape, strict=True)
        )
        if not endless:
            if any(axis.number < 0 for axis in there or ()):
                raise refuse("maps a selection with a limit to one without")
            yield SourceMapping(limited, there, _unescape(file), _unescape(inner))
        elif there is not None and any(axis.number < 0 for axis in there):
            (d,) = endless
            (e,) = (k for k, axis in enumerate(there) if axis.number < 0)
            count = limited[d].number
            ended = tuple(
                _limit_axis(axis, count * max(axis.stride, 1) + axis.start)._replace(number=count)
                if k == e
                else axis
                for k, axis in enumerate(there)
            )
            yield SourceMapping(limited, ended, _unescape(file), _unescape(inner))
        else:
            (d,) = endless
            axis = limited[d]
            blocks = -(-axis.number // axis.block)
            if blocks > MAX_PIECES:
                raise refuse(f"names {blocks} numbered files, more than {MAX_PIECES}")
            for k in range(blocks):
                one = HyperslabAxis(axis.start + k * axis.stride, 1, axis.block, axis.block)
                block = (*limited[:d], one, *limited[d + 1 :])
                yield SourceMapping(block, there, _insert_number(file, k), _insert_number(inner, k))


def _to_axes(space: Any) -> tuple[HyperslabAxis, ...] | None:
    """
    Return a selection as hyperslabs along the axes; None if it is not one.

    A count below 0 has no limit.
    """
    kind, dims = space.get_select_type(), space.get_simple_extent_dims()
    if kind == h5py.h5s.SEL_NONE:
        return tuple(HyperslabAxis(0, 1, 1, 0) for _ in dims)
    if kind == h5py.h5s.SEL_ALL:
        return tuple(HyperslabAxis(0, max(n, 1), max(n, 1), n) for n in dims)
    if kind != h5py.h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        return None
    endless = h5py.h5s.UNLIMITED
    axes = []
    for start, stride, count, block in zip(*space.get_regular_hyperslab(), strict=True):
        if block == endless:
            axes.append(HyperslabAxis(int(start), 1, 1, -1))
        elif count == endless:
            axes.append(HyperslabAxis(int(start), int(stride), int(block), -1))
        else:
            axes.append(HyperslabAxis(int(start), int(stride), int(block), int(count) * int(block)))
    return tuple(axes)


def _limit_axis(axis: HyperslabAxis, length: int) -> HyperslabAxis:
    """Return an unlimited axis with a limit of at least the index `length`."""
    blocks = max(-(-(length - axis.start) // axis.stride), 0)
    return axis._replace(number=blocks * axis.block)


def _unescape(text: str) -> str:
    return text.replace("%%", "%") if "%b" in text else text


def _insert_number(text: str, number: int) -> str:
    """Return a name with the number of a block: ``%b`` is the number, ``%%`` a percent sign."""
    return "%".join(part.replace("%b", str(number)) for part in text.split("%%"))


@dataclass
class _PieceBuilder:
    """Pieces of a virtual dataset, while they are collected."""

    path: str
    name: str
    below: tuple[int, ...]

    def __post_init__(self) -> None:
        self.sources: dict[tuple[str, str], int] = {}
        self._whole: dict[int, SourceMapping] = {}
        self._of: list[int] = []
        self._here: list[list[tuple[int, int, int]]] = []
        self._there: list[list[tuple[int, int, int]]] = []
        self._axes: list[tuple[tuple[int, int], ...] | None] = []

    def cut(self, number: int, shape: tuple[int, ...]) -> VirtualMapping:
        """Return the pieces of a piece that is all of a source of this shape."""
        mapping, axes = self._whole[number], shape[: len(shape) - len(self.below)]
        found = _PieceBuilder(self.path, self.name, self.below)
        found.add(
            mapping._replace(there=tuple(HyperslabAxis(0, max(n, 1), max(n, 1), n) for n in axes))
        )
        return found.pieces(len(mapping.here))

    def pieces(self, ndim: int) -> VirtualMapping:
        """Return all pieces; the axes of an element that is an array follow the others."""
        inner = np.array([(0, n, 1) for n in self.below], np.int64).reshape(1, -1, 3)
        inner = np.repeat(inner, len(self._of), axis=0)
        here, there = (
            np.concatenate([np.array(one, np.int64).reshape(-1, ndim, 3), inner], axis=1)
            for one in (self._here, self._there)
        )
        more = tuple((ndim + k, -1) for k in range(len(self.below)))
        axes = tuple(None if one is None else (*one, *more) for one in self._axes)
        return VirtualMapping(np.array(self._of, np.int64), here, there, axes)

    def add(self, mapping: SourceMapping) -> None:
        """Cut a mapping into pieces."""
        here, there = mapping.here, mapping.there
        if not math.prod(axis.number for axis in here):
            return
        source = self.sources.setdefault((mapping.file, mapping.name), len(self.sources))
        if there is None:
            self._check_limit(1)
            self._whole[len(self._of)] = mapping
            self._of.append(source)
            ends = [(axis.at(0), axis.at(axis.number - 1)) for axis in here]
            self._here.append([(low, high - low + 1, 1) for low, high in ends])
            self._there.append([(0, 1, 1)] * len(here))
            self._axes.append(None)
            return
        mine = [d for d, axis in enumerate(here) if axis.number != 1]
        theirs = [d for d, axis in enumerate(there) if axis.number != 1]
        lengths = [here[d].number for d in mine], [there[d].number for d in theirs]
        if math.prod(lengths[0]) != math.prod(lengths[1]):
            raise make_damage_error(
                self.path,
                f"virtual dataset {self.name!r} maps {math.prod(lengths[0])} elements to "
                f"{math.prod(lengths[1])} of {mapping.file}::{mapping.name}",
                "hdf5-virtual",
            )
        if lengths[0] == lengths[1]:
            axes = dict(zip(theirs, mine, strict=True))
            segments = [
                _split_segments(here[d], there[e], 0, here[d].number) for e, d in axes.items()
            ]
            self._check_limit(math.prod(map(len, segments)))
            first = tuple(axis.at(0) for axis in here), tuple(axis.at(0) for axis in there)
            for chosen in itertools.product(*segments):
                self._add(source, axes, first, dict(zip(axes, chosen, strict=True)))
            return
        # Sections with other shapes but equal sizes: runs along the last axes.
        run = math.gcd(lengths[0][-1], lengths[1][-1])
        self._check_limit(math.prod(lengths[0]) // run)
        axes = {theirs[-1]: mine[-1]}
        for number in range(0, math.prod(lengths[0]), run):
            places = [np.unravel_index(number, n) for n in lengths]
            ours = dict(zip(mine, map(int, places[0]), strict=True))
            other = dict(zip(theirs, map(int, places[1]), strict=True))
            first = (
                tuple(axis.at(ours.get(d, 0)) for d, axis in enumerate(here)),
                tuple(axis.at(other.get(d, 0)) for d, axis in enumerate(there)),
            )
            begin = ours[mine[-1]], other[theirs[-1]]
            for one in _split_segments(here[mine[-1]], there[theirs[-1]], begin, run):
                self._add(source, axes, first, {theirs[-1]: one})

    def _check_limit(self, more: int) -> None:
        if len(self._of) + more > MAX_PIECES:
            raise UnsupportedError(
                f"{self.path!r}: virtual dataset {self.name!r} consists of more than {MAX_PIECES} "
                f"pieces; copy it with h5py, or h5repack -l {self.name}:CONTI",
                code="hdf5-virtual",
                path=self.path,
            )

    def _add(
        self,
        source: int,
        axes: dict[int, int],
        first: tuple[tuple[int, ...], tuple[int, ...]],
        segments: dict[int, _Segment],
    ) -> None:
        """Add one piece: a segment for each axis of the source that runs along one of this dataset."""
        here = [(start, 1, 1) for start in first[0]]
        there = [(0, 1, 1)] * len(here)
        for e, (start, begin, count, step, leap) in segments.items():
            here[axes[e]], there[axes[e]] = (start, count, step), (begin, count, leap)
        self._of.append(source)
        self._here.append(here)
        self._there.append(there)
        self._axes.append(
            tuple((axes[e], -1) if e in axes else (-1, at) for e, at in enumerate(first[1]))
        )


def _split_segments(
    here: HyperslabAxis, there: HyperslabAxis, first: int | tuple[int, int], count: int
) -> list[_Segment]:
    """Split `count` positions of both axes, from `first` on, into segments of constant step."""
    p, q = (first, first) if isinstance(first, int) else first
    step, leap = here.step, there.step
    if step is not None and leap is not None:
        return [(here.at(p), there.at(q), count, step, leap)]
    blocks = {axis.block for axis, one in ((here, step), (there, leap)) if one is None}
    block = min(blocks)
    if len(blocks) == 1 and p == q == 0 and block * block <= count:
        # One lattice for each place in a block.
        steps = [axis.stride if axis.step is None else axis.step * block for axis in (here, there)]
        return [
            (here.at(j), there.at(j), -(-(count - j) // block), steps[0], steps[1])
            for j in range(block)
        ]
    ends: Sequence[int] = sorted(
        {count}
        | (set(range(-p % here.block, count, here.block)) if step is None else set())
        | (set(range(-q % there.block, count, there.block)) if leap is None else set())
    )
    found, low = [], 0
    for end in ends:
        if end > low:
            found.append((here.at(p + low), there.at(q + low), end - low, step or 1, leap or 1))
            low = end
    return found
