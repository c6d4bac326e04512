"""
Bare files whose last rows are still being written.

Problem. The length of a raw file is its size, which grows with the first byte that is appended, long
before the last is there. Who opens it meanwhile, or after a kill, takes for rows what are none.
Idea. A record beside the file (``.<name>.outcore-growth``) says how long it was. It is durable before
the file grows, and its removal, when all elements are on the disk, is what makes the array longer.
Whoever finds a record takes the old length; whoever changes the length next, or opens the file for
writing, cuts off what a killed process left.
Invariants. A record counts for the file it was made for (inode and device), while its size is between
the two that the record names. If its maker is gone, the last bytes before the old end must still be
those that were there, too: else another program has made the file anew since, and the record is nothing.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import NamedTuple

from outcore import _core
from outcore.formats import durable, locks

_MAGIC = b"outgrow1"
# Magic; inode and device of the file; its size before and after; checksum of the last bytes before.
_RECORD = struct.Struct("<8sQQqqI")
_CHECK = struct.Struct("<I")
_TAIL = 4096


class _Record(NamedTuple):
    magic: bytes
    inode: int
    device: int
    old: int
    new: int
    tail: int


def record_of(path: str) -> str:
    """Where the record of a file lies."""
    return durable.neighbour(os.path.realpath(path), ".outcore-growth", before=".")


def begin(path: str, old: int, new: int) -> None:
    """From here on the file is `old` bytes long, whatever its size. The caller is alone (`growing`)."""
    name = record_of(path)
    with durable.os_errors("preparing to append to", path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            tail = zlib.crc32(durable.read_at(fd, min(_TAIL, old), max(old - _TAIL, 0)))
        finally:
            os.close(fd)
        record = _RECORD.pack(_MAGIC, found.st_ino, found.st_dev, old, new, tail)
        fd = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )
        try:
            durable.write_all(fd, record + _CHECK.pack(zlib.crc32(record)), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        _core.fsync_folder(name)


def end(path: str) -> None:
    """What was appended is durable: the file is as long as its size says."""
    name = record_of(path)
    with durable.os_errors("appending to", path):
        os.unlink(name)
        _core.fsync_folder(name)


def size_of(path: str) -> int:
    """Bytes of the file, without those that are still being appended; `OSError` if there is none."""
    while True:
        before = os.stat(path).st_size
        record = _read(path)
        # Without a record the size is that of an array, unless it was taken while there was one.
        if record is None and os.stat(path).st_size == before:
            return before
        if record is not None:
            return record.old


def settle(path: str) -> None:
    """Cut off what a killed process did not finish to append. The caller is alone (`growing`)."""
    name = record_of(path)
    if not os.path.lexists(name):
        return
    with durable.os_errors("cutting off what was not appended whole to", path):
        record = _read(path, alone=True)
        if record is not None:
            durable.change_length(path, record.old, record.old)
        os.unlink(name)


def settle_if_left(path: str) -> None:
    """The same, if its maker is gone and this process may write."""
    if os.path.lexists(record_of(path)) and not locks.is_growing(path) and os.access(path, os.W_OK):
        with locks.growing(path):
            settle(path)


def _read(path: str, *, alone: bool = False) -> _Record | None:
    """The record, if there is one and it counts; `OSError` if nobody can tell."""
    try:
        fd = os.open(record_of(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        raw = durable.read_at(fd, _RECORD.size + _CHECK.size + 1, 0)
    finally:
        os.close(fd)
    if len(raw) != _RECORD.size + _CHECK.size:
        return None
    body = raw[: _RECORD.size]
    record = _Record(*_RECORD.unpack(body))
    if record.magic != _MAGIC or _CHECK.pack(zlib.crc32(body)) != raw[_RECORD.size :]:
        return None
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        same = (found.st_ino, found.st_dev) == (record.inode, record.device)
        if not same or not 0 <= record.old <= found.st_size <= record.new:
            return None
        if not alone and locks.is_growing(path):
            return record
        tail = durable.read_at(fd, min(_TAIL, record.old), max(record.old - _TAIL, 0))
        return record if zlib.crc32(tail) == record.tail else None
    finally:
        os.close(fd)
