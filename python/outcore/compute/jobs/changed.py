"""
Detection of inputs that have changed since a job was interrupted.

Problem. A job that is resumed after days must not mix results of two inputs, and reading all inputs
again would take too long. The time of a file is enough, unless the job writes to that file itself.
Idea. For files that the job only reads, times and lengths are compared: of the file, or of all
files in the folder of the array. For an array inside a file that also holds a result (HDF5,
NetCDF4), the stored bytes are compared: their place, their number and, of a long array at evenly
spaced places, the bytes.

Invariants. The job itself changes none of this. Nothing is decoded, and little memory is used.
"""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.compute.jobs.memory import InMemory
from outcore.formats import durable
from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    FileSource,
    ShardSource,
    Strided,
    TableSource,
    VirtualSource,
    identify_file,
    virtual_source,
)

__all__ = ["Files", "find_containers", "fingerprint_input"]

#: Bytes that are read at one place, and the maximum number of places.
PIECE, PIECES = 64 << 10, 1024
# Approximate number of files whose times are read in a larger folder.
_LOOKED_AT = 100_000
# Larger offsets are in the log of an unfinished change.
_IN_LOG = 2**62
# Elements of an array in memory that are copied in C order in one step.
_ORDERED = 1 << 16

#: Files, as `outcore.formats.layout.identify_file` returns them.
Files = frozenset[tuple[int, int] | str]


def find_containers(array: Any) -> Files:
    """Return the files that may hold elements of this array and of others."""
    files = _list_files(array.info) if isinstance(array, DiskArray) else ()
    return frozenset(map(identify_file, files))


def fingerprint_input(array: Any, written: Files) -> tuple[str, Any]:
    """
    Return the kind and value that show whether an input has changed.

    The kind is ``"time"`` or ``"bytes"``, and JSON can hold the value. `written` are the files to
    which the job writes.
    """
    if isinstance(array, InMemory):
        return "bytes", _digest(_copy_in_order(array))
    layout = array.info.layout
    if isinstance(layout, Chunked) and isinstance(layout.source, FileSource | ShardSource):
        return "time", _digest_folder(
            layout.source.root, math.prod(_count_chunks(array.info, layout))
        )
    files = _list_files(array.info)
    if virtual_source(array.info) is not None or written.isdisjoint(map(identify_file, files)):
        times = [[found.st_mtime_ns, found.st_size] for found in map(_stat, files)]
        return "time", times[0] if len(times) == 1 else _digest([repr(times).encode()])
    return "bytes", _digest(_sample_bytes(array.info))


def _digest(pieces: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()[:16]


def _copy_in_order(array: InMemory) -> Iterator[bytes]:
    flags = ("external_loop", "buffered", "zerosize_ok")
    blocks = np.nditer(array.data, flags, order="C", buffersize=_ORDERED)  # type: ignore[call-overload]
    return (block.tobytes() for block in blocks)


def _stat(path: str) -> os.stat_result:
    with durable.os_errors("looking at", path):
        return os.stat(path)


def _list_files(info: ArrayInfo) -> list[str]:
    """List the files that hold the elements; none if each chunk has its own file."""
    if isinstance(info.layout, Strided):
        return list(dict.fromkeys(part.path for part in info.layout.parts))
    source = info.layout.source
    if isinstance(source, VirtualSource):
        return [source.path, *dict.fromkeys(path for path, _ in source.places())]
    return [source.path] if isinstance(source, TableSource) else []


def _count_chunks(info: ArrayInfo, layout: Chunked) -> tuple[int, ...]:
    return tuple(-(-n // c) for n, c in zip(info.shape, layout.chunks, strict=False))


def _digest_folder(root: str, chunks: int) -> list[Any]:
    """
    Return a digest of names, times and lengths of the files in a folder, and the number of files.

    In a large folder, only a fixed sample of the files counts with times and lengths.
    """
    one_of, seen, total = max(chunks // _LOOKED_AT, 1), 0, 0
    folders = [(root, "")]
    while folders:
        folder, above = folders.pop()
        with durable.os_errors("looking at", folder), os.scandir(folder) as entries:
            for entry in entries:
                name = f"{above}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, f"{name}/"))
                    continue
                if entry.name.startswith(".") and entry.name.endswith("tmp"):
                    continue  # left by a killed writer; any writer may remove it
                text = name
                if zlib.crc32(os.fsencode(name)) % one_of == 0:
                    status = entry.stat()
                    text = f"{name} {status.st_mtime_ns} {status.st_size}"
                seen += 1
                # A sum, since the system lists files in any order.
                word = hashlib.blake2b(os.fsencode(text), digest_size=8).digest()
                total = (total + int.from_bytes(word)) % 2**64
    return [f"{total:016x}", seen]


def _sample_bytes(info: ArrayInfo) -> Iterator[bytes]:
    """Yield where the elements are stored, and the stored bytes at some places."""
    extents: list[tuple[str, int, int]]
    if isinstance(info.layout, Strided):
        extents = _rows(info, info.layout)
        yield repr([extent[1:] for extent in extents]).encode()
    else:
        source = info.layout.source
        assert isinstance(source, TableSource)
        grid = _count_chunks(info, info.layout)
        places = source.stored((0,) * len(grid), grid)
        with _core.Reservation("places of chunks", places.nbytes):
            yield places.tobytes()
            extents = _sample_chunks(source, grid, places)
        yield repr([extent[1:] for extent in extents]).encode()
        # A chunk that was encoded again almost always has another length.
        yield repr(source.nbytes() if source.nbytes is not None else None).encode()
    step = max(-(-sum(n for _, _, n in extents) // PIECES), PIECE)
    for path, begin, nbytes in extents:
        with durable.os_errors("looking at", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for at in range(0, nbytes, step):
                    yield durable.read_at(fd, min(PIECE, nbytes - at), begin + at)
            finally:
                os.close(fd)


def _rows(info: ArrayInfo, layout: Strided) -> list[tuple[str, int, int]]:
    """Where elements are: the parts, or some rows if other arrays lie between rows (NetCDF records)."""
    part = layout.parts[0]
    nbytes = math.prod(info.shape) * info.dtype.itemsize
    if len(layout.parts) != 1 or part.nbytes <= nbytes or layout.strides[0] != max(layout.strides):
        return [(part.path, part.offset, part.nbytes) for part in layout.parts]
    rows = info.shape[0]
    step, row = max(-(-rows // PIECES), 1), nbytes // rows
    return [
        (part.path, part.offset + n * layout.strides[0], row)
        for n in (*range(0, rows, step), rows - 1)
    ]


def _sample_chunks(
    source: TableSource, grid: tuple[int, ...], places: np.ndarray[Any, np.dtype[np.int64]]
) -> list[tuple[str, int, int]]:
    """Return the places of chunks, evenly spaced, including the last one."""
    found = []
    for place in places[:: -max(-(-len(places) // PIECES), 1)]:
        cell = tuple(int(n) for n in np.unravel_index(int(place), grid))
        ((offset, nbytes, _),) = source.fetch(cell, (1,) * len(grid)).tolist()
        if 0 <= offset < _IN_LOG:
            found.append((source.path, offset, nbytes))
    return found
