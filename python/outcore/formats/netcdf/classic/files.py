"""
Headers of classic NetCDF files as they are on the disk: read, and changed in one step.

Problem. A header has no spare places: one more attribute moves everything after it, so that most of the
header has to be written again. A process that is killed meanwhile leaves half of each.
Idea. A record next to the file (``.<name>.outcore-header``) has the old header and the new one. It is
durable before the first byte of the file changes and is removed after the last one. Readers that find
it take the new header from it; the next process that changes the file, or opens it for writing,
completes the change.
Invariants. The record counts for the file that it was made for (device and inode), and only while each
byte of that file's header is the old one or the new one: another program may have changed the file
since. The number of records is not part of it: a single small write changes that.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from outcore import _core
from outcore.errors import BudgetError, StorageError
from outcore.formats import durable, locks
from outcore.formats.netcdf.classic import places
from outcore.formats.netcdf.classic.header import MOST_BYTES, Header, parse
from outcore.formats.side_files import create_side_file, open_side_file

__all__ = [
    "ClassicFile",
    "changing",
    "complete_if_left",
    "get_record_path",
    "is_changing",
    "read",
    "replace_header",
    "write_records",
]

_MAGIC = b"outhead1"
# Magic; inode and device of the file; bytes of either header; checksum of both.
_RECORD = struct.Struct("<8sQQQI")
# A header is read twice if the file was changed less than this number of nanoseconds ago.
_QUIET = 2_000_000_000
# Headers with more bytes are counted in the memory budget while they are read: objects take more.
_LARGE, _OBJECTS = 1 << 20, 16
# Bytes from the list of variables on by which an open array notices changes of the header.
_COMPARED = 1 << 16
# Headers that were read last, by file; many arrays of one file are opened one after the other.
_known: dict[tuple[int, int], tuple[bytes, Header]] = {}
_MOST_KNOWN = 8


@dataclass(frozen=True, slots=True)
class ClassicFile:
    """A file as its header describes it; `id` and `mark` as `Origin.file` and `Origin.header`."""

    path: str
    header: Header
    records: int
    size: int
    id: tuple[int, int, int]
    mark: tuple[int, bytes]


def get_record_path(path: str) -> str:
    """Return the path of the record of a file."""
    return durable.make_sibling_path(os.path.realpath(path), ".outcore-header", before=".")


def read(path: str, *, writable: bool = False) -> ClassicFile:
    """Read the header of a file."""
    with durable.os_errors("opening", path):
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        with durable.os_errors("reading", path):
            return _read(path, fd)
    finally:
        os.close(fd)


def _read(path: str, fd: int) -> ClassicFile:
    before: bytes | None = None
    while True:
        pending = _find_pending(path, fd)
        status = os.fstat(fd)

        def more(count: int, pending: bytes | None = pending) -> bytes:
            found = durable.read_at(fd, count, 0)
            if pending is None:
                return found
            end = _find_end_of_count(pending)
            return found[:end] + pending[end:count] + found[len(pending) : count]

        raw, header = _parse_header(path, more, status)
        # Another process may be writing the header: then it is read until it is the same twice.
        settled = time.time_ns() - status.st_mtime_ns > _QUIET
        if _find_pending(path, fd) != pending or not (settled or raw == before):
            before = raw
            continue
        size = max(status.st_size, os.fstat(fd).st_size)
        # The bytes in the file may still be the old header: open arrays compare them with the file.
        count = min(header.size - header.lists, _COMPARED)
        mark = header.lists, durable.read_at(fd, count, header.lists)
        records = places.count_records(header, size)
        return ClassicFile(path, header, records, size, _core.file_id(fd), mark)


def _parse_header(
    path: str, more: Callable[[int], bytes], status: os.stat_result
) -> tuple[bytes, Header]:
    """Return a header and its bytes; one that was read before is not parsed again."""
    key = (status.st_dev, status.st_ino)
    known = _known.get(key)
    if known is not None:
        raw, header = known
        found = more(len(raw))
        width = 8 if header.version == 5 else 4
        if found[:4] == raw[:4] and found[4 + width :] == raw[4 + width :]:
            number = int.from_bytes(found[4 : 4 + width], "big")
            unknown = number == 256**width - 1
            return found, header.with_records(None if unknown else number)
    with contextlib.ExitStack() as stack:

        def count(count: int) -> bytes:
            if count > _LARGE:
                stack.enter_context(_reserve(path, count))
            return more(count)

        header = parse(path, count, status.st_size)
    places.check(header, path)
    raw = more(header.size)
    if len(raw) < _LARGE:
        while len(_known) >= _MOST_KNOWN:
            _known.pop(next(iter(_known)), None)
        _known[key] = raw, header
    return raw, header


@contextlib.contextmanager
def _reserve(path: str, nbytes: int) -> Iterator[None]:
    """Count the memory for a large header, and for what is made of it."""
    try:
        held = _core.Reservation("metadata", _OBJECTS * nbytes)
    except BudgetError as error:
        raise BudgetError(
            f"{path!r}: {error.message}", code=error.code, path=path, needed=error.needed
        ) from None
    try:
        yield
    finally:
        held.release()


@contextlib.contextmanager
def changing(path: str) -> Iterator[ClassicFile]:
    """Keep other processes and threads from changing a file; first complete an interrupted change."""
    with locks.lock_length(path):
        _complete(path)
        yield read(path, writable=True)


def complete_if_left(path: str) -> None:
    """Complete a change that a killed process left, if this process may write the file."""
    is_left = os.path.lexists(get_record_path(path)) and not locks.is_growing(path)
    if is_left and os.access(path, os.W_OK):
        with locks.lock_length(path):
            _complete(path)


def replace_header(file: ClassicFile, header: Header) -> None:
    """
    Write another header into a file, in one step; durable. The caller is alone (`changing`).

    No element may lie where the new header ends. The number of records stays as the file has it.
    """
    path, new = file.path, places.to_bytes(header)
    length = max(len(new), file.header.size)
    with durable.os_errors("changing the header of", path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            old = durable.read_at(fd, length, 0).ljust(length, b"\0")
            both = old + _keep_count(new.ljust(length, b"\0"), old)
            head = (_MAGIC, status.st_ino, status.st_dev, length, zlib.crc32(both))
            name = get_record_path(path)
            side = create_side_file(name, status)
            try:
                durable.write_all(side, _RECORD.pack(*head) + both, 0)
                os.fsync(side)
            finally:
                os.close(side)
            _core.fsync_folder(name)
            _write(fd, both[length:])
            os.unlink(name)
            _core.fsync_folder(name)
        finally:
            os.close(fd)


def write_records(file: ClassicFile, records: int) -> None:
    """Write the number of records; durable. The caller is alone, and the records are durable."""
    width = 8 if file.header.version == 5 else 4
    with durable.os_errors("changing the number of records of", file.path):
        fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            durable.write_all(fd, records.to_bytes(width, "big"), 4)
            os.fsync(fd)
        finally:
            os.close(fd)


def _keep_count(new: bytes, old: bytes) -> bytes:
    """Return a header with the number of records of another one of the same version."""
    end = _find_end_of_count(new)
    return new[:4] + old[4:end] + new[end:]


def _write(fd: int, new: bytes) -> None:
    """Write all of a header but its number of records."""
    durable.write_all(fd, new[:4], 0)
    end = _find_end_of_count(new)
    durable.write_all(fd, new[end:], end)
    os.fsync(fd)


def _complete(path: str) -> None:
    """Complete the change that a record describes, and remove the record. The caller is alone."""
    name = get_record_path(path)
    if not os.path.lexists(name):
        return
    with durable.os_errors("completing a change of", path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            new = _find_pending(path, fd)
            if new is not None:
                _write(fd, new)
        finally:
            os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _find_pending(path: str, fd: int) -> bytes | None:
    """Return the header that a file is to have, if there is a record of it that counts."""
    name = get_record_path(path)
    status = os.fstat(fd)
    try:
        side = open_side_file(name, status)
    except StorageError:
        # A process that changes the file has the right to, whoever owns the file.
        if not locks.is_growing(path):
            raise
        side = open_side_file(name, anybody=True)
    if side is None:
        return None
    try:
        found = durable.read_at(side, _RECORD.size + 2 * MOST_BYTES, 0)
    finally:
        os.close(side)
    if len(found) < _RECORD.size:
        return None
    magic, inode, device, length, checksum = _RECORD.unpack(found[: _RECORD.size])
    both = found[_RECORD.size :]
    is_for_this = magic == _MAGIC and (inode, device) == (status.st_ino, status.st_dev)
    if not is_for_this or len(both) != 2 * length or zlib.crc32(both) != checksum:
        return None
    now = durable.read_at(fd, length, 0).ljust(length, b"\0")
    here, old, new = (np.frombuffer(raw, np.uint8) for raw in (now, both[:length], both[length:]))
    fits = (here == old) | (here == new)
    fits[4 : _find_end_of_count(both)] = True
    return both[length:] if fits.all() else None


def _find_end_of_count(header: bytes) -> int:
    """Return the first byte after the number of records."""
    return 12 if header[3] == 5 else 8


def is_changing(path: str) -> bool:
    """Return whether a header is being changed, or was left half changed."""
    return os.path.lexists(get_record_path(path))
