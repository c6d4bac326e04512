"""
The chunk table of one HDF5 dataset: where chunks are, and how encoded ones are stored.

Problem: HDF5 keeps the addresses of chunks in a B-tree (or one of four other indices) that only its
library should read, at about a microsecond per chunk. Compressed chunks change their size and place
with every write, and other processes may write between our accesses.
Approach: of a large table, outcore reads only the part that an access needs (`lookup`). A table is
read completely, on first use, if it is small, if all of it is requested, or if outcore does not know
its index. It is stored in sorted NumPy arrays (32 bytes per stored chunk, counted in the memory
budget) and searched by bisection. HDF5 stores encoded chunks as they are (``write_direct_chunk``). The
file's time stamp shows whether another program has written, if the stamp was old enough when it was
taken that a later change must have another (decision 0011); otherwise the table is read again.
The library (2.0) lists chunks in wrong places, although it reads them correctly, if they are in an
extensible array whose axis without a limit is not the first. Outcore reads such a table itself, or
raises an error.
Invariants: every returned address lies inside the file as it was when the table was read; no two
chunks of one answer share a byte; a chunk that is not encoded has exactly the size of a chunk.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import BudgetError, StorageError
from outcore.formats import durable
from outcore.formats.hdf5 import access, filters, lookup, origin
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.index import Read, check_index, make_reader
from outcore.formats.hdf5.library import check_library
from outcore.formats.hdf5.lookup import Cell, Rows
from outcore.formats.layout import TableGuard, TableSource

# Number of cells that the library looks up one by one before it loads a table of unknown kind. HDF5
# walks through all chunks for each cell, but in C, thirty times faster than it passes them to Python.
# So a first small read of a file of a million chunks, or a small write, does not wait for the whole
# table.
_MAX_LOOKUPS = 24
# A table of at most this many chunks is read completely: looking up one cell takes as long, and does
# not show whether another chunk claims the same place.
_SMALL_TABLE = 256
# Bytes of a stored chunk in the table: its place and its row.
_ROW_BYTES = 32
# Numbers that are collected from HDF5 one by one before they are copied into arrays.
_BLOCK = 1 << 18

# Seconds since the last change of the file that a stamp needs to be reliable. With HDF5's lock held no
# change is in progress, and only the resolution of file times matters.
QUIET = 2.0
QUIET_IF_LOCKED = 0.05

Stamp = tuple[int, int, int, int]
Encoded = tuple[Cell, int, NDArray[np.uint8]]
AddRows = Callable[[Rows], None]


class LoadedTable(NamedTuple):
    """A table as it was at `stamp`: sorted places in the grid, and their rows. Never changed."""

    keys: Rows
    rows: Rows
    stamp: Stamp
    settled: bool
    held: _core.Reservation
    # Number of chunks outside the dataset, and the place of one.
    strays: int
    stray: Cell | None
    #: Identity of file and dataset (`origin.identify`), if the rows are valid while it is unchanged.
    seen: origin.DatasetIdentity | None


class ChunkBounds(NamedTuple):
    """The bytes of a file where chunks of a dataset can be."""

    path: str
    name: str
    chunk_bytes: int
    encoded: bool
    #: Elements are stored after this byte.
    low: int

    def check(self, rows: Rows) -> None:
        """Raise `FormatError` for addresses outside the file's data, wrong sizes, or overlaps."""
        size = os.stat(self.path).st_size
        offset, stored = rows[:, 0], rows[:, 1]
        wrong = (stored < 0) | (offset > size - stored)
        wrong |= offset < self.low
        if not self.encoded:
            wrong |= stored != self.chunk_bytes
        if wrong.any():
            self._raise_outside(rows[int(np.argmax(wrong))], size)
        if (offset[1:] >= offset[:-1] + stored[:-1]).all():
            return  # in order, as in most files
        order = np.argsort(offset, kind="stable")
        ends = (offset + stored)[order]
        overlap = (offset[order][1:] < ends[:-1]) & (stored[order][1:] > 0)
        if overlap.any():
            first = int(np.argmax(overlap))
            begin = int(offset[order][first + 1])
            raise make_damage_error(
                self.path,
                f"two chunks of dataset {self.name!r} share bytes (one ends at {ends[first]}, the next "
                f"begins at {begin})",
                code="chunk-overlap",
                offset=begin,
            )

    def _raise_outside(self, row: Rows, size: int) -> None:
        expected = "" if self.encoded else f" (a chunk has {self.chunk_bytes} bytes)"
        raise make_damage_error(
            self.path,
            f"the chunk table of dataset {self.name!r} lists {row[1]} bytes at byte {row[0]}{expected}, "
            f"but the file has elements between {self.low} and {size}",
            code="chunk-out-of-file",
            offset=int(row[0]),
        )


class PartialIndex(NamedTuple):
    """The parts of an index that were read at `stamp`."""

    found: lookup.ChunkIndex
    stamp: Stamp
    settled: bool
    #: As in `LoadedTable`.
    seen: origin.DatasetIdentity | None


@dataclass(eq=False)
class ChunkTable:
    """
    The chunk table of a dataset, read on first use.

    `grid` is the number of chunks along each axis and `chunks` the shape of a chunk, both without the
    axes of an array type. `chunk_bytes` is the size of a decoded chunk. `fingerprint` is the result of
    `origin.get_fingerprint` for the dataset; None if the dataset is not compared.
    """

    path: str
    name: str
    grid: Cell
    chunks: Cell
    chunk_bytes: int
    encoded: bool
    fingerprint: tuple[object, ...] | None = None

    def __post_init__(self) -> None:
        self._loaded: LoadedTable | None = None
        self._parts: PartialIndex | None = None
        # The last message about the index, and the bytes of its addresses and lengths.
        self._message: tuple[bytes, tuple[int, int]] = b"", (0, 0)
        self._lookups = 0
        # The index is invalid: the library reports the reason when it reads all of it.
        self._is_unreadable = False
        self._has_promise = False

    def make_source(
        self, guard: TableGuard, *, writable: bool, axes: Cell | None = None
    ) -> TableSource:
        """
        Return the source of the chunks, as the core uses it.

        `axes` is the shape to which the dataset is extended before the first write, if it is shorter.
        """
        stretch = functools.partial(self.stretch, axes) if writable and axes is not None else None
        return TableSource(
            self.path,
            self.fetch,
            self.list_stored,
            self.commit if writable else None,
            self.load,
            self.forget,
            guard,
            stretch,
            check=self.check,
            nbytes=self.sum_bytes,
            decode=filters.decode,
        )

    def fetch(self, lo: Cell, count: Cell, locked: bool = False) -> Rows:
        """Return offset (-1: never written), stored bytes and filter mask of cells in a box, C order."""
        rank = len(self.grid)
        lo, count = lo[:rank], count[:rank]  # further axes, of an array type, have one cell
        cells = math.prod(count)
        table = self._loaded
        if table is not None and not self._is_valid(table):
            self.forget()
            table = None
        # A loop over all chunks was promised memory for the whole table.
        if table is None and not self._has_promise and math.prod(self.grid) > _SMALL_TABLE:
            some = self._fetch_partly(lo, count, locked)
            if some is not None:
                return some
        if table is None and not self._is_unreadable and self._lookups + cells <= _MAX_LOOKUPS:
            with self._open_dataset(locked) as dset:
                by_one = self._lookups or int(dset.id.get_num_chunks()) > _SMALL_TABLE
                if by_one and not self._is_misread(dset):
                    self._lookups += cells
                    return self._look_up(dset, lo, count)
                table = self._read(dset, locked)
        keys, rows, *_ = self._load(locked) if table is None else table
        wanted = lookup.number_cells(lo, count, self.grid)
        answer = np.full((cells, 3), (-1, 0, 0), np.int64)
        if len(keys):
            at = np.searchsorted(keys, wanted)
            at[at == len(keys)] = 0
            found = keys[at] == wanted
            answer[found] = rows[at[found]]
        return answer

    def list_stored(self, lo: Cell, count: Cell, locked: bool = False) -> Rows:
        """Return the places in a box, in C order, of the chunks that are stored."""
        rank, table = len(self.grid), self._get_table(locked)
        with _core.Reservation("chunk table", (rank + 2) * 8 * len(table.keys), self._has_promise):
            places = np.zeros(len(table.keys), np.int64)
            inside = np.ones(len(table.keys), bool)
            cells = np.unravel_index(table.keys, self.grid) if len(table.keys) else [places] * rank
            for cell, a, n in zip(cells, lo[:rank], count[:rank], strict=True):
                inside &= (cell >= a) & (cell < a + n)
                places *= n
                places += cell - a
            return places[inside]

    def check(self) -> None:
        """
        Raise `FormatError` if chunks lie outside the dataset; reads ignore them, like the HDF5
        library.

        The library leaves none when a dataset becomes smaller. The place of such a chunk was damaged,
        and the chunk is missing where it belongs.
        """
        table = self._get_table()
        if table.strays:
            raise make_damage_error(
                self.path,
                f"the chunk table of dataset {self.name!r} lists {table.strays} "
                f"{'chunk' if table.strays == 1 else 'chunks'} outside the dataset (one at element "
                f"{table.stray}), and their correct places read as never written",
                "chunk-table-damaged",
            )

    def sum_bytes(self) -> int:
        """Return the total bytes of all stored chunks."""
        return int(self._get_table().rows[:, 1].sum())

    def load(self, new: int) -> int:
        """
        Read the table if necessary.

        Return the bytes needed to read it again while it is in memory, when it has up to `new` more
        chunks.
        """
        table = self._get_table()
        self._has_promise = True  # by the calling loop: no loop lacks memory when it is read again
        new = min(new, max(math.prod(self.grid) - len(table.keys), 0))
        return table.held.nbytes + 2 * _ROW_BYTES * new

    def _get_table(self, locked: bool = False) -> LoadedTable:
        table = self._loaded
        if table is None or not self._is_valid(table):
            self.forget()
            table = self._load(locked)
        return table

    def commit(self, chunks: Iterable[Encoded]) -> None:
        """
        Store encoded chunks ``(grid coordinates, filter mask, bytes)`` through HDF5; not synced.

        The bytes of a chunk remain valid only until the next chunk is requested.
        """
        with access.open_for_changes(self.path, None, sync=False) as file:
            self._store(self._find_dataset(file), chunks)
        self.forget()

    def _store(self, dset: Any, chunks: Iterable[Encoded]) -> None:
        for cell, mask, data in chunks:
            place = tuple(i * c for i, c in zip(cell, self.chunks, strict=False))
            dset.id.write_direct_chunk(place, data, mask)

    def stretch(self, axes: Cell) -> None:
        """Extend the dataset to the length of the array, so that all readers see new elements."""
        with access.open_for_changes(self.path, None) as file:
            dset = self._find_dataset(file)
            full = tuple(map(max, dset.shape, axes))
            if full != dset.shape:
                dset.resize(full)
        self.forget()

    def forget(self) -> None:
        """Release the table; it is read again on next use."""
        self._loaded, self._parts, self._lookups, self._is_unreadable = None, None, 0, False

    @contextlib.contextmanager
    def _open_dataset(self, locked: bool) -> Iterator[Any]:
        """Open the dataset in the library; `locked` as for `open_session`."""
        check_library(self.path)
        with access.open_session(self.path, "r", locked=locked) as file:
            dset = self._find_dataset(file)
            self._message = check_index(self.path, dset)
            yield dset

    @contextlib.contextmanager
    def _open_reader(self) -> Iterator[Read]:
        """Yield a function that reads bytes of the file."""
        with durable.open_fd(self.path) as fd:
            yield make_reader(fd)

    def _is_misread(self, dset: Any) -> bool:
        """Return whether the library lists the chunks in wrong places."""
        limits = dset.maxshape
        if limits[0] is None or sum(most is None for most in limits) != 1:
            return False
        found = lookup.find_index(*self._message, len(self.grid))
        # A library that uses another index for such a dataset lists it correctly.
        return found is not None and found[0] is lookup.ExtensibleArray

    def _fetch_partly(self, lo: Cell, count: Cell, locked: bool) -> Rows | None:
        """Return rows of a box from the part of the index that it needs; None if not possible."""
        with _core.Reservation("chunk table", 2 * _ROW_BYTES * math.prod(count), False):
            rows = self._fetch_cached(lo, count)
            if rows is not None:
                return rows
            self._parts = None
            with self._open_dataset(locked) as dset, durable.os_errors("reading", self.path):
                parts = self._open_index(dset, locked)
                if parts is None:
                    return None
                rows = self._search(parts, lo, count)
                self._is_unreadable = rows is None
                self._parts = None if rows is None else parts
            return rows

    def _fetch_cached(self, lo: Cell, count: Cell) -> Rows | None:
        """Return rows of a box without the library, if the parts in memory are up to date."""
        parts = self._parts
        if parts is None:
            return None
        if parts.settled and self._read_stamp() == parts.stamp:
            with durable.os_errors("reading", self.path):
                rows = self._search(parts, lo, count)
            # Nodes that were read now are valid if the file has not changed since.
            return rows if self._read_stamp() == parts.stamp else None
        if parts.seen is None or not origin.is_unchanged(self.path, *parts.seen):
            return None
        # Chunks that are not encoded stay in place; there may be more of them now.
        with contextlib.suppress(lookup.UnreadableIndexError):
            rows = parts.found.find(_raise_unread, lo, count)
            if (rows[:, 0] >= 0).all():
                return rows
        return None

    def _open_index(self, dset: Any, locked: bool = False) -> PartialIndex | None:
        """Return an index of which nothing was read yet."""
        stamp, settled = self._take_stamp(locked)
        found = lookup.find_index(*self._message, len(self.grid))
        if found is None:
            return None
        kind, address = found
        base = origin.get_userblock(dset)
        limits = zip(dset.maxshape, self.chunks, strict=True)
        most = tuple(0 if n is None else -(-n // c) for n, c in limits)
        words = (address, base, self.grid, most, self.chunks, self.chunk_bytes, self.encoded)
        check = self._make_bounds(dset).check
        seen = None if self.encoded else self._identify(dset)
        return PartialIndex(kind(*words, check), stamp, settled, seen)

    def _search(self, parts: PartialIndex, lo: Cell, count: Cell) -> Rows | None:
        try:
            with self._open_reader() as read:
                rows = parts.found.find(read, lo, count)
        except lookup.UnreadableIndexError:
            return None
        parts.found.check(rows[rows[:, 0] >= 0])
        return rows

    def _find_dataset(self, file: Any) -> Any:
        """Return the dataset in an open file; raise an error if another one has its name."""
        dset = origin.find_dataset(file, self.name)
        if dset is None or self.fingerprint not in (None, origin.get_fingerprint(dset)):
            raise StorageError(
                f"{self.path!r}: dataset {self.name!r} was replaced, or removed, since it was opened; "
                "open it again",
                code="file-changed",
                path=self.path,
            )
        return dset

    def _load(self, locked: bool = False) -> LoadedTable:
        with self._open_dataset(locked) as dset:
            return self._read(dset, locked)

    def _read(self, dset: Any, locked: bool) -> LoadedTable:
        """Read the whole table, check it and store it."""
        stamp, settled = self._take_stamp(locked)
        count = int(dset.id.get_num_chunks())
        # Twice: in blocks, and as one sorted table. A caller with a promise of memory waits for a
        # moment.
        with _core.Reservation("chunk table", 2 * _ROW_BYTES * count, True):
            visit = self._walk_index if self._is_misread(dset) else self._visit_chunks
            keys, rows, strays, stray = self._collect(dset, visit)
            if (keys[1:] < keys[:-1]).any():
                order = np.argsort(keys, kind="stable")
                keys, rows = keys[order], rows[order]
            self._check_duplicates(keys, rows)
            self._make_bounds(dset).check(rows)
        held, stays = self._reserve(_ROW_BYTES * len(keys))
        whole = not self.encoded and len(rows) == math.prod(self.grid)
        seen = self._identify(dset) if whole else None
        table = LoadedTable(keys, rows, stamp, settled, held, strays, stray, seen)
        self._loaded = table if stays else None
        return table

    def _reserve(self, nbytes: int) -> tuple[_core.Reservation, bool]:
        """Reserve memory for a table; return False too if the memory was promised to others."""
        with contextlib.suppress(BudgetError):
            return _core.Reservation("chunk table", nbytes, self._has_promise), True
        return _core.Reservation("chunk table", nbytes, True), False

    def _make_bounds(self, dset: Any) -> ChunkBounds:
        low = origin.get_userblock(dset) + access.SUPERBLOCK
        return ChunkBounds(self.path, self.name, self.chunk_bytes, self.encoded, low)

    def _identify(self, dset: Any) -> origin.DatasetIdentity | None:
        return origin.identify(self.path, dset)

    def _visit_chunks(self, dset: Any, add: AddRows) -> None:
        """
        Pass the chunks to `add` through the library: first elements, offset, stored bytes, filter
        mask.
        """
        numbers = array("q")
        rank = len(self.grid)

        def close_block() -> None:
            block = np.array(numbers, np.int64).reshape(-1, rank + 3)
            del numbers[:]
            add(block)

        def visit(info: Any) -> None:
            numbers.extend(info.chunk_offset)
            address = info.byte_offset
            numbers.extend((-1 if address is None else address, info.size, info.filter_mask))
            if len(numbers) >= _BLOCK:
                close_block()

        dset.id.chunk_iter(visit)
        close_block()

    def _walk_index(self, dset: Any, add: AddRows) -> None:
        """Pass the chunks to `add` without the library."""
        parts = self._open_index(dset)
        if parts is None or not isinstance(parts.found, lookup.ExtensibleArray):
            return
        try:
            with self._open_reader() as read:
                for cells, rows in parts.found.iterate(read):
                    add(np.concatenate([cells * np.array(self.chunks), rows], axis=1))
        except lookup.UnreadableIndexError as error:
            problem = f"the index of the chunks of dataset {self.name!r} is invalid ({error})"
            raise make_damage_error(self.path, problem, "chunk-table-damaged") from error

    def _collect(
        self, dset: Any, visit: Callable[[Any, AddRows], None]
    ) -> tuple[Rows, Rows, int, Cell | None]:
        """
        Return places in the grid and rows of all stored chunks, in the order of HDF5's index.

        Also return the number of chunks outside the dataset, and the place of one.
        """
        keys, rows = [np.empty(0, np.int64)], [np.empty((0, 3), np.int64)]
        rank = len(self.grid)
        grid, chunks = np.array(self.grid, np.int64), np.array(self.chunks, np.int64)
        # Another program may have extended the dataset since this array was opened.
        whole = np.maximum(grid, -(-np.array(dset.shape, np.int64) // chunks))
        strays, stray = 0, None

        def add(block: Rows) -> None:
            nonlocal strays, stray
            cells = block[:, :rank] // chunks
            # Chunks without an address, or past the shape of this array, do not belong to it.
            there = block[:, rank] >= 0
            lost = there & (cells >= whole).any(axis=1)
            if lost.any():
                strays += int(lost.sum())
                stray = stray or tuple(block[lost, :rank][0].tolist())
            keep = there & (cells < grid).all(axis=1)
            places = np.zeros(int(keep.sum()), np.int64)
            for axis, length in enumerate(self.grid):
                places = places * length + cells[keep, axis]
            keys.append(places)
            rows.append(block[keep, rank:])

        visit(dset, add)
        return np.concatenate(keys), np.concatenate(rows), strays, stray

    def _check_duplicates(self, keys: Rows, rows: Rows) -> None:
        """Raise `FormatError` if two chunks claim one place: either may have the elements."""
        twins = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twins):
            first = int(twins[0])
            cell = np.unravel_index(int(keys[first]), self.grid)
            place = tuple(int(k) * c for k, c in zip(cell, self.chunks, strict=True))
            raise make_damage_error(
                self.path,
                f"the chunk table of dataset {self.name!r} lists two chunks for the elements from "
                f"{place} on (at bytes {rows[first, 0]} and {rows[first + 1, 0]})",
                "chunk-table-damaged",
                offset=int(rows[first, 0]),
            )

    def _look_up(self, dset: Any, lo: Cell, count: Cell) -> Rows:
        rows = []
        for cell in itertools.product(*(range(a, a + n) for a, n in zip(lo, count, strict=True))):
            place = tuple(i * c for i, c in zip(cell, self.chunks, strict=True))
            info = dset.id.get_chunk_info_by_coord(place)
            known = info.byte_offset is not None
            rows.append((info.byte_offset, info.size, info.filter_mask) if known else (-1, 0, 0))
        # In the session, so that an address of more than 63 bits becomes a `FormatError` too.
        table = np.array(rows, np.int64).reshape(-1, 3)
        self._make_bounds(dset).check(table[table[:, 0] >= 0])
        return table

    def _is_valid(self, table: LoadedTable) -> bool:
        """Return whether a table is up to date: a complete, unencoded table never changes."""
        if self.encoded or len(table.rows) != math.prod(self.grid):
            return table.settled and self._read_stamp() == table.stamp
        return table.seen is None or origin.is_unchanged(self.path, *table.seen)

    def _take_stamp(self, locked: bool) -> tuple[Stamp, bool]:
        """Return the stamp of the file, and whether a later change must have another."""
        stamp = self._read_stamp()
        # By the change time alone, which no program can set.
        return stamp, time.time_ns() - stamp[1] > (QUIET_IF_LOCKED if locked else QUIET) * 1e9

    def _read_stamp(self) -> Stamp:
        with durable.os_errors("examining", self.path):
            found = os.stat(self.path)
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _raise_unread(at: int, length: int) -> bytes:
    raise lookup.UnreadableIndexError("not read yet")
