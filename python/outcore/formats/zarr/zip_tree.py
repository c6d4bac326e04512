"""
Zarr in a zip file, read in place.

Problem: a store of many small files is often stored and sent as one zip file (zarr's ``ZipStore``, or
``zip -0 -r``). Unpacking it needs its size on disk again.
Approach: members that are stored uncompressed, as by zarr, are byte ranges of one file. So chunks are
found like those of an HDF5 file, through a table (`TableSource`): reads are planned, go directly to the
caller's memory, and run concurrently. The index of a shard is read here, and its chunks are ranges too.
A member that zip has deflated has one more codec, ``zip``, the outermost; its stored bytes begin at the
header of the member, which has the CRC. A member that zip stores because it would not get smaller is a
chunk without this codec.
Invariants: nothing is ever written. Members that cannot be addressed raise an error that names them:
deflated shards, members with other compression methods, and encrypted members.

References: zarr-python, ``zarr.storage.ZipStore``; Zarr v3, ``sharding_indexed``.
"""

from __future__ import annotations

import array
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import FormatError, UnsupportedError
from outcore.formats import durable, texts
from outcore.formats.documents import Document
from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    Codec,
    FileSource,
    ShardSource,
    TableSource,
)
from outcore.formats.members import Kind
from outcore.formats.spec import Entry
from outcore.formats.zarr import shards as zarr_shards
from outcore.formats.zarr import version2 as zarr2
from outcore.formats.zarr import version3 as zarr3
from outcore.formats.zarr.chunks import COORDINATE
from outcore.formats.zarr.tree import join_name, missing_node_error, split_node
from outcore.formats.zarr.zip_archive import Archive, ZipMember

V3, ARRAY, _GROUP, _ATTRS = "zarr.json", ".zarray", ".zgroup", ".zattrs"
MARKS = (V3, ARRAY, _GROUP)
# Memory for a chunk in a table.
_ROW = 64
# Maximum number of cached indexes of shards.
_MOST_INDEXES = 64


Names = tuple[str, ...]


class ZipStore:
    """The nodes in a zip file, of either version of Zarr."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.archive = Archive(path)
        members = self.archive.members
        #: Common prefix of all members, if a folder was zipped and not its contents.
        self.root = ""
        if not any(mark in members for mark in MARKS):
            tops = {name.partition("/")[0] for name in members if "/" in name}
            marked = [t for t in tops if any(f"{t}/{mark}" in members for mark in MARKS)]
            if len(marked) == 1:
                self.root = f"{marked[0]}/"

    def prefix(self, names: Names) -> str:
        """Return the prefix of the names of a node's members."""
        return self.root + "".join(f"{name}/" for name in names)

    def document(self, names: Names, *marks: str) -> tuple[str, Document] | None:
        """Return name and content of the first of these documents that a node has."""
        for mark in marks:
            found = self.archive.document(self.prefix(names) + mark)
            if found is not None:
                return mark, found
        return None

    def kind(self, names: Names) -> Kind | None:
        """Return the kind of a node; None if there is no node of that name."""
        own = self.document(names, *MARKS)
        if own is None:
            return "group" if self.below(names) else None
        is_group = own[0] == _GROUP or (own[0] == V3 and own[1].get("node_type") == "group")
        return "group" if is_group else "array"

    def version(self, names: Names) -> str:
        """Return the format of a node, or of those below it, as in a folder."""
        own = self.document(names, *MARKS)
        if own is None and (below := self.below(names)):
            return self.version(below[0])
        return zarr3.Zarr3.name if own is None or own[0] == V3 else zarr2.Zarr2.name

    def attrs(self, names: Names) -> Document:
        """Return the attributes of a group."""
        own = self.document(names, V3)
        found = None if own is None else own[1].get("attributes")
        if own is None and (beside := self.document(names, _ATTRS)):
            found = beside[1]
        return dict(found) if isinstance(found, dict) else {}

    def below(self, names: Names) -> list[Names]:
        """Return the nodes below a node, or an array itself, by name."""
        above = self.prefix(names)
        found = set()
        for name in self.archive.members:
            folder, _, last = name.rpartition("/")
            if last in MARKS and f"{folder}/".startswith(above or ""):
                inner = f"{folder}/"[len(self.root) :] if folder else ""
                found.add(tuple(part for part in inner.split("/") if part))
        own = self.document(names, V3, ARRAY)
        is_group = own is None or (own[0] == V3 and own[1].get("node_type") == "group")
        return sorted(found - ({names} if is_group else set()))

    def arrays(self, names: Names) -> list[str]:
        """Return the relative names of the arrays below a group."""
        found = []
        for node in self.below(names):
            own = self.document(node, V3, ARRAY)
            if own is not None and (own[0] == ARRAY or own[1].get("node_type") == "array"):
                found.append("/".join(node[len(names) :]))
        return found

    def deepest(self, names: Names) -> Names:
        """Return the deepest existing node on the way to a node, for messages."""
        while names and not any(self.prefix(names) + m in self.archive.members for m in MARKS):
            names = names[:-1]
        return names

    def entry(self, names: Names) -> Entry:
        """Return the line of a list for one node."""
        where = join_name(self.path, names)
        try:
            own = self.document(names, V3, ARRAY)
            if own is None or (own[0] == V3 and own[1].get("node_type") == "group"):
                return Entry(where, "group")
            return texts.make_entry(where, self.array("/" + "/".join(names)))
        except FormatError as error:
            return Entry(where, "array", note=str(error))

    def array(self, inner: str | None) -> ArrayInfo:
        """Describe an array."""
        names = split_node(inner, self.path)
        own = self.document(names, V3, ARRAY)
        if own is None or (own[0] == V3 and own[1].get("node_type") != "array"):
            arrays = self.arrays(self.deepest(names))
            if inner is None and len(arrays) == 1:
                return self.array(f"/{arrays[0]}")
            raise missing_node_error(self.path, names, arrays)
        where = join_name(self.path, names)
        folder = f"{self.archive.path}::/{self.prefix(names)}".rstrip("/")
        if own[0] == V3:
            info = zarr3.describe(where, folder, own[1])
        else:
            attrs = self.document(names, _ATTRS)
            info = zarr2.describe(where, folder, own[1], attrs[1] if attrs else {})
        return self._in_place(info, self.prefix(names))

    def _in_place(self, info: ArrayInfo, prefix: str) -> ArrayInfo:
        """Return the array with chunks that are found in the zip file."""
        layout = info.layout
        assert isinstance(layout, Chunked)
        source = layout.source
        assert isinstance(source, FileSource | ShardSource)
        per = source.per_shard if isinstance(source, ShardSource) else (1,) * len(info.shape)
        grid = tuple(-(-n // c) for n, c in zip(info.shape, layout.chunks, strict=True))
        units = tuple(-(-n // k) for n, k in zip(grid, per, strict=True))
        whole = None
        if not layout.codecs and not isinstance(info, texts.Texts):
            whole = math.prod(layout.chunks) * info.dtype.itemsize
        # The only chunk of an array without axes is the file `c`, or, without a prefix, `0`.
        alone = prefix + (source.prefix.rstrip("/.") or "0")
        keys = _ChunkNames(prefix + source.prefix, source.separator, units, alone)
        table: _Table
        if isinstance(source, ShardSource):
            table = _Shards(info.path, self.archive, keys, grid, whole, source)
        else:
            table = _Table(info.path, self.archive, keys, grid, whole, 1 << len(layout.codecs))
        if table.deflated:
            layout = replace(layout, codecs=(*layout.codecs, Codec("zip")))
        found = TableSource(
            self.archive.path,
            table.fetch,
            table.stored,
            None,
            check=table.check,
            nbytes=table.nbytes,
        )
        extra = {**info.extra, "file": self.archive.path, "dataset": prefix}
        return replace(info, format="zarrzip", layout=replace(layout, source=found), extra=extra)


class _ChunkNames:
    """
    Names of chunks, or of shards, and their positions in the grid.

    `prefix` and `separator` are those of `FileSource`, with the prefix of the node. `units` are the
    chunks, or shards, along each axis. `alone` is the name of the only chunk of an array without axes.
    """

    def __init__(self, prefix: str, separator: str, units: tuple[int, ...], alone: str) -> None:
        self.prefix, self.separator, self.units, self.alone = prefix, separator, units, alone

    def place(self, name: str) -> int | None:
        """Return the number in C order of the chunk of that name; None if there is no such chunk."""
        if not self.units:
            return 0 if name == self.alone else None
        if not name.startswith(self.prefix):
            return None
        words = name[len(self.prefix) :].split(self.separator)
        if len(words) != len(self.units):
            return None
        number = 0
        for word, length in zip(words, self.units, strict=True):
            if not COORDINATE.fullmatch(word) or int(word) >= length:
                return None
            number = number * length + int(word)
        return number


class _Table:
    """
    Positions of the chunks of an array in a zip file.

    `path` is that of the array; `grid` are the chunks along each axis. `whole` is the size of a chunk
    that is not encoded, or None. `skips` is the filter mask of a chunk that is not deflated, among
    others that are; 0: no chunk may be deflated.
    """

    def __init__(
        self,
        path: str,
        archive: Archive,
        keys: _ChunkNames,
        grid: tuple[int, ...],
        whole: int | None,
        skips: int,
    ) -> None:
        self.path, self.archive, self.keys, self.grid, self.whole = path, archive, keys, grid, whole
        numbers, names = array.array("q"), []
        for name in archive.members:
            number = keys.place(name)
            if number is not None:
                numbers.append(number)
                names.append(name)
        self._held = _core.Reservation("chunk table", _ROW * len(names))
        self._numbers = np.array(numbers, np.int64)
        order = self._numbers.argsort()
        self._numbers = self._numbers[order]
        self._names = [names[k] for k in order]
        # Positions of their bytes (deflated: number of bytes), -1 until the header was read.
        self._begins = np.full(len(names), -1, np.int64)
        #: Whether some of them are deflated.
        self.deflated = any(archive.members[name].deflated for name in names)
        self._skips = skips if self.deflated else 0
        for name in names:
            one = archive.members[name]
            if not one.stored and not (one.deflated and skips):
                self._refuse(name, one)

    def _refuse(self, name: str, member: ZipMember) -> NoReturn:
        how = "is encrypted, or compressed by another method than deflate,"
        if member.deflated:
            how = "is a shard that zip has deflated as a whole,"
        raise UnsupportedError(
            f"{self.path!r}: member {name!r} {how} so its chunks cannot be read in place; unzip the "
            "file, or create it with `zip -0 -r` or zarr",
            code="zip-member",
            path=self.path,
        )

    def fetch(
        self, lo: tuple[int, ...], count: tuple[int, ...], locked: bool = False
    ) -> NDArray[np.int64]:
        """Return file offset (-1: not stored), stored bytes and filter mask of the chunks in a box."""
        self.archive.still()
        numbers = _number_cells(lo, count, self.grid)
        rows = np.full((len(numbers), 3), (-1, 0, 0), np.int64)
        sizes = np.full(len(numbers), -1 if self.whole is None else self.whole, np.int64)
        hits, at = self._at(numbers)
        with durable.os_errors("reading", self.archive.path):
            fd = os.open(self.archive.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for hit, k in zip(hits.tolist(), at.tolist(), strict=True):
                    member = self._member(k)[1]
                    rows[hit] = self._range(fd, k)
                    sizes[hit] = member.size
            finally:
                os.close(fd)
        self._sound(sizes)
        return rows

    def _sound(self, sizes: NDArray[np.int64]) -> None:
        """Raise for unencoded chunks that do not have the size of a chunk."""
        wrong = sizes != self.whole
        if self.whole is not None and wrong.any():
            raise self.archive.make_damage_error(
                f"a chunk of {self.path!r} has {sizes[int(wrong.argmax())]} bytes, not {self.whole}"
            )

    def _at(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which of the numbers have a member, and their indices in the table."""
        at = np.searchsorted(self._numbers, numbers)
        known = at < len(self._numbers)
        known[known] = self._numbers[at[known]] == numbers[known]
        (hits,) = known.nonzero()
        return hits, at[hits]

    def _member(self, k: int) -> tuple[str, ZipMember]:
        return self._names[k], self.archive.members[self._names[k]]

    def _range(self, fd: int, k: int) -> tuple[int, int, int]:
        """Return position and bytes of a chunk, and the mask of codecs that it lacks."""
        name, member = self._member(k)
        if member.deflated:
            if self._begins[k] < 0:
                self._begins[k] = self.archive.whole(fd, name, member)
            return member.at, int(self._begins[k]), 0
        if self._begins[k] < 0:
            self._begins[k] = self.archive.begin(fd, name, member)
        return int(self._begins[k]), member.nbytes, self._skips

    def stored(
        self, lo: tuple[int, ...], count: tuple[int, ...], locked: bool = False
    ) -> NDArray[np.int64]:
        """Return the positions in a box of the chunks that are stored, in C order."""
        return _find_in_box(self._numbers, self.grid, lo, count)

    def check(self) -> None:
        """Compare all chunks with their CRC."""
        self.archive.still()
        self.archive.check_places()
        for name in self._names:
            self.archive.check(name)

    def nbytes(self) -> int:
        """Return the bytes of all stored chunks."""
        return sum(self.archive.members[name].nbytes for name in self._names)


class _Shards(_Table):
    """Positions of chunks in shards: a member has several, and an index."""

    def __init__(
        self,
        path: str,
        archive: Archive,
        keys: _ChunkNames,
        grid: tuple[int, ...],
        whole: int | None,
        source: ShardSource,
    ) -> None:
        super().__init__(path, archive, keys, grid, whole, 0)
        self._source = source
        self._per = source.per_shard
        self._indexes = zarr_shards.IndexCache(_MOST_INDEXES)

    def fetch(
        self, lo: tuple[int, ...], count: tuple[int, ...], locked: bool = False
    ) -> NDArray[np.int64]:
        """Return the same as for chunks that are separate members."""
        self.archive.still()
        rows = np.full((math.prod(count), 3), (-1, 0, 0), np.int64)
        if not len(rows):
            return rows
        box = rows.reshape(*count, 3)
        first = [a // k for a, k in zip(lo, self._per, strict=True)]
        last = [(a + n - 1) // k for a, n, k in zip(lo, count, self._per, strict=True)]
        shards = itertools.product(*(range(a, b + 1) for a, b in zip(first, last, strict=True)))
        with durable.os_errors("reading", self.archive.path):
            fd = os.open(self.archive.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for shard in shards:
                    number = np.array([_number_cell(shard, self.keys.units)], np.int64)
                    _, at = self._at(number)
                    if len(at):
                        here, there = self._meet(shard, lo, count)
                        box[here] = self._index(fd, int(at[0]))[there]
            finally:
                os.close(fd)
        self._sound(rows[rows[:, 0] >= 0, 1])
        return rows

    def _meet(
        self, shard: tuple[int, ...], lo: tuple[int, ...], count: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the intersection of a box and a shard: slices in the box, and in the shard."""
        here, there = [], []
        for s, k, a, n in zip(shard, self._per, lo, count, strict=True):
            low, high = max(s * k, a), min((s + 1) * k, a + n)
            here.append(slice(low - a, high - a))
            there.append(slice(low - s * k, high - s * k))
        return tuple(here), tuple(there)

    def _index(self, fd: int, k: int) -> NDArray[np.int64]:
        """Return the rows of the chunks of a shard, by their position in it."""

        def read() -> NDArray[np.int64]:
            name, (begin, nbytes, _) = self._names[k], self._range(fd, k)
            what = f"shard {name!r}"
            return zarr_shards.index(
                fd, begin, nbytes, self._source, what, self.archive.make_damage_error
            )

        return self._indexes.read(k, read)

    def stored(
        self, lo: tuple[int, ...], count: tuple[int, ...], locked: bool = False
    ) -> NDArray[np.int64]:
        """Return the positions in a box of the chunks that are stored, in C order."""
        (places,) = (self.fetch(lo, count)[:, 0] >= 0).nonzero()
        return places.astype(np.int64)


def _number_cell(cell: Sequence[int], grid: tuple[int, ...]) -> int:
    number = 0
    for at, length in zip(cell, grid, strict=True):
        number = number * length + at
    return number


def _number_cells(
    lo: tuple[int, ...], count: tuple[int, ...], grid: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the numbers, in C order, of the cells of a box."""
    numbers = np.zeros(1, np.int64)
    for first, n, length in zip(lo, count, grid, strict=True):
        numbers = (numbers[:, None] * length + np.arange(first, first + n)).reshape(-1)
    return numbers


def _find_in_box(
    numbers: NDArray[np.int64], grid: tuple[int, ...], lo: tuple[int, ...], count: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the positions in a box of those sorted cell numbers that are in it."""
    if not grid:
        return numbers
    inside = np.ones(len(numbers), bool)
    places = np.zeros(len(numbers), np.int64)
    for at, first, n in zip(np.unravel_index(numbers, grid), lo, count, strict=True):
        inside &= (at >= first) & (at < first + n)
        places = places * n + (at - first)
    return places[inside]
