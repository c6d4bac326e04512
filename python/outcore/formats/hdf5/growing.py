"""
HDF5 datasets that become longer: elements and length in one change of the file.

Problem: the library publishes a new length as soon as a dataset is extended; outcore writes the
elements later. A reader in between, or after a kill, finds rows that were never written.
Approach: the library extends the dataset inside a change that is still open (`redo`), and returns
where the chunks are in it. Chunks past the old end of the file are written there: nothing refers to
them yet. New elements of other chunks go into the log, like all bytes that overwrite the old file.
Then the library closes the file, and the log makes the whole change effective.
Invariants: the lock for writing is held from before the length is read until the change is made, so
readers of outcore wait, and see the old array or the new one. The library is blocked only while it
works: a thread that writes the elements may wait for memory, and others for the library.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from outcore import _core
from outcore.errors import FormatError, InternalError
from outcore.formats import durable, locks
from outcore.formats.growing import Growing
from outcore.formats.hdf5 import access, origin, redo
from outcore.formats.hdf5.chunks import ChunkTable, Encoded, LoadedTable
from outcore.formats.hdf5.index import Read, find_layout
from outcore.formats.hdf5.library import check_library
from outcore.formats.hdf5.lookup import Cell, Rows
from outcore.formats.layout import ArrayInfo, Chunked, TableSource
from outcore.formats.spec import check_shape

#: ``describe(path, name, writable)`` and ``extend(info, dataset, shape)`` of `format`.
Describe = Callable[[str, str | None, bool], ArrayInfo]
Extend = Callable[[ArrayInfo, Any, tuple[int, ...]], None]

# Offsets from here on are places in the log (`outcore_io::store::table::LOG`).
_LOG = 1 << 62


@contextlib.contextmanager
def grow(
    info: ArrayInfo, path: str, name: str, describe: Describe, extend: Extend
) -> Iterator[Growing]:
    """Yield the dataset `name` of `path`, which no other process or thread changes until the end."""
    inner, dataset = _locate(path, name)
    with (
        locks.forbid_nesting(os.path.realpath(inner), info.path),
        access.lock_for_writing(inner, alone=True) as fd,
        # A signal handler that reads the file during the change would wait for this thread.
        _core.Changing(os.fstat(fd).st_dev, os.fstat(fd).st_ino),
    ):
        now = describe(path, name, True)
        if _get_kind(now) != _get_kind(info):
            raise FormatError(
                f"{info.path!r} was replaced by another array since it was opened; open it again",
                code="file-changed",
                path=info.path,
            )
        with contextlib.ExitStack() as held:
            yield _GrowingDataset(now, (inner, dataset), fd, extend, held)


def _locate(path: str, name: str) -> tuple[str, str]:
    """Return file and name of a dataset, also if external links lead to it."""
    check_library(path)
    with access.open_session(path, "r") as file:
        if not access.is_external(file, name):
            return path, name
        return os.path.realpath(file[name].file.filename), str(file[name].name)


def _get_kind(info: ArrayInfo) -> tuple[object, ...]:
    """Return the properties of an array that do not change when it becomes longer."""
    layout = info.layout
    if isinstance(layout, Chunked):
        return info.dtype, len(info.shape), layout.chunks, layout.codecs
    return info.dtype, info.shape


class _GrowingDataset:
    """A `Growing`: a dataset, and the change of its file after `reserve`."""

    def __init__(
        self,
        info: ArrayInfo,
        place: tuple[str, str],
        fd: int,
        extend: Extend,
        held: contextlib.ExitStack,
    ) -> None:
        self.info = info
        self._path, self._name = place
        self._fd = fd
        self._extend = extend
        self._held = held
        self._table: _OpenTable | None = None

    def reserve(self, shape: tuple[int, ...]) -> ArrayInfo:
        """Begin the change, and extend the dataset in it."""
        info, layout = self.info, self.info.layout
        full = check_shape(shape, info.dtype.itemsize, info.path, stored=False)
        change = self._held.enter_context(access.FileChange(self._path, self._fd))
        with access.take_turn(), access.translate_errors(self._path):
            dset = change.file[self._name]
            self._extend(info, dset, full)
            if not isinstance(layout, Chunked):
                raise InternalError(
                    f"{info.path!r} was extended without chunks", code="internal", path=info.path
                )
            grown = tuple((a, b) for a, b in zip(info.shape, full, strict=True))
            table = _OpenTable(change, dset, self._name, layout, info.dtype.itemsize, grown)
            table.allocate_blocks()
        self._table = table
        source = TableSource(
            self._path,
            table.fetch,
            table.list_stored,
            table.commit,
            forget=table.forget,
            log=redo.make_log_path(self._path),
        )
        return replace(info, shape=full, layout=replace(layout, source=source))

    def finish(self) -> ArrayInfo:
        """Commit the change."""
        table, info = self._table, self.info
        if table is None or not isinstance(info.layout, Chunked):
            return info
        # Do not read the file for the new shape: that could fail, although the rows are in it.
        with access.take_turn(), access.translate_errors(self._path):
            shape = table.get_shape()
        self._held.close()
        source = table.copy().make_source(access.make_guard(table.path), writable=True)
        layout = replace(info.layout, source=source)
        self.info = replace(info, shape=shape + info.shape[len(shape) :], layout=layout)
        return self.info


class _OpenTable(ChunkTable):
    """The chunk table of a dataset in a change that is still open."""

    def __init__(
        self,
        change: access.FileChange,
        dset: Any,
        name: str,
        layout: Chunked,
        item: int,
        grown: tuple[tuple[int, int], ...],
    ) -> None:
        chunks = tuple(int(n) for n in dset.chunks)
        grid = tuple(-(-n // c) for n, c in zip(dset.shape, chunks, strict=True))
        nbytes = math.prod(layout.chunks) * item
        words = (change.path, name, grid, chunks, nbytes, bool(layout.codecs))
        super().__init__(*words, origin.get_fingerprint(dset))
        self._change = change
        self._dset = dset
        self._layout = layout
        self._item = item
        self._grown = grown
        # Chunks of the old file with a part in the log: their offsets in the file and in the log.
        self._moved_chunks: dict[int, int] = {}

    def copy(self) -> ChunkTable:
        """Return the table of the dataset after the change."""
        words = (self.path, self.name, self.grid, self.chunks, self.chunk_bytes, self.encoded)
        return ChunkTable(*words, self.fingerprint)

    @contextlib.contextmanager
    def _open_dataset(self, locked: bool) -> Iterator[Any]:
        with access.take_turn(), access.translate_errors(self.path):
            limits = self._dset.maxshape
            if limits[0] is not None and None in limits:  # the library may list its chunks wrongly
                with self._open_reader() as read:
                    self._message = find_layout(self._dset, read)
            yield self._dset

    @contextlib.contextmanager
    def _open_reader(self) -> Iterator[Read]:
        """Yield a function that reads bytes of the file as changed so far."""
        self._change.file.flush()
        overlay = self._change.overlay

        def read(offset: int, length: int) -> bytes:
            overlay.seek(offset)
            return overlay.read(length) or b""

        yield read

    def _fetch_partly(self, *_: Any) -> None:
        return None  # the index is not in the file yet

    def _identify(self, dset: Any) -> None:
        return None  # the change is not in the file yet

    def _is_valid(self, table: LoadedTable) -> bool:
        return True  # until a chunk is stored

    def fetch(self, lo: Cell, count: Cell, locked: bool = False) -> Rows:
        """Return rows like other tables; bytes that must not change in the file are in the log."""
        overlay = self._change.overlay
        with access.take_turn(), durable.os_errors("changing", self.path):
            rows = super().fetch(lo, count, locked)
            old = np.flatnonzero((rows[:, 0] >= 0) & (rows[:, 0] < overlay.old_size))
            if not len(old):
                return rows
            rows = rows.copy()
            cells = itertools.product(*(range(a, a + n) for a, n in zip(lo, count, strict=True)))
            wanted = set(old.tolist())
            for k, cell in enumerate(cells):
                if k not in wanted:
                    continue
                offset, stored, _ = rows[k].tolist()
                place = (
                    overlay.find_in_log(offset, stored)
                    if self.encoded
                    else self._move_to_log(offset, cell)
                )
                if place is not None:
                    rows[k, 0] = _LOG + place
        return rows

    def commit(self, chunks: Iterable[Encoded]) -> None:
        """Store chunks in the change."""
        with access.take_turn(), access.translate_errors(self.path):
            self._store(self._dset, chunks)
            self.allocate_blocks()
            self.forget()

    def get_shape(self) -> tuple[int, ...]:
        """Return the shape of the dataset."""
        return tuple(int(n) for n in self._dset.shape)

    def allocate_blocks(self) -> None:
        """
        Allocate disk blocks for space that the library has reserved: chunks are written there in
        place.
        """
        if not self.encoded:
            end = self._change.file.id.get_filesize()
            with durable.os_errors("changing", self.path):
                self._change.overlay.allocate_blocks(end)

    def _move_to_log(self, offset: int, cell: Sequence[int]) -> int | None:
        if offset not in self._moved_chunks:
            low, high = self._find_span(cell)
            place = self._change.overlay.copy_to_log(offset, self.chunk_bytes, low, high)
            if place is None:
                return None
            self._moved_chunks[offset] = place
        return self._moved_chunks[offset]

    def _find_span(self, cell: Sequence[int]) -> tuple[int, int]:
        """Return the first byte of the new elements in a chunk, and the byte after the last."""
        axes = zip(cell, self._layout.chunks, self._grown, self._layout.strides, strict=False)
        low = high = 0
        for k, length, (old, new), stride in axes:
            first = max(old - k * length, 0) if new > old else 0
            low += min(first, length - 1) * stride
            high += (min(new - k * length, length) - 1) * stride
        if sum(new > old for old, new in self._grown) != 1 or not 0 <= low <= high:
            return 0, self.chunk_bytes
        return low, high + self._item
