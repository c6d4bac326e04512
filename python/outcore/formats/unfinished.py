"""
Raw files whose last rows are still being written.

Problem: the length of a raw file is its size, which grows with the first appended byte, long before the
last one is written. A process that opens it in the meantime, or after a kill, would read rows that do
not exist yet.
Approach: a record next to the file (``.<name>.outcore-growth``) states the old length. It is durable
before the file grows, and its removal, when all elements are durable, makes the array longer. A reader
that finds a record uses the old length; the next process that changes the length, or opens the file for
writing, cuts off what a killed process left.
Invariants: a record is valid for the file that it was made for (inode and device), while that file ends
with the mark of the record: 16 random bytes after the new rows, which are removed when all elements are
durable. A file that another program has re-created has no such end, and the record is ignored.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import NamedTuple

from outcore import _core
from outcore.errors import StorageError
from outcore.formats import durable, locks
from outcore.formats.side_files import create_side_file, open_side_file

_MAGIC = b"outgrow2"
# Magic; inode and device of the file; its size before and after, without the mark; the mark.
_RECORD = struct.Struct("<8sQQqq16s")
# Checksum of the record.
_CHECK = struct.Struct("<I")
_MARK = 16


class _Record(NamedTuple):
    magic: bytes
    inode: int
    device: int
    old: int
    new: int
    mark: bytes


def make_record_path(path: str) -> str:
    """Return the path of the record of a file."""
    return durable.make_sibling_path(os.path.realpath(path), ".outcore-growth", before=".")


def begin(path: str, old: int, new: int) -> None:
    """
    Allocate a file of `new` bytes that counts as `old` bytes long until `end`, whatever its size.

    The caller must be within `begin_growing`.
    """
    name, mark = make_record_path(path), os.urandom(_MARK)
    with durable.os_errors("preparing to append to", path):
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            record = _RECORD.pack(_MAGIC, found.st_ino, found.st_dev, old, new, mark)
            fd = create_side_file(name, found)
            try:
                durable.write_all(fd, record + _CHECK.pack(zlib.crc32(record)), 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            _core.fsync_folder(name)
            durable.write_all(file, mark, new)
            _core.allocate(file, old, new)
            os.fsync(file)
        finally:
            os.close(file)


def end(path: str, new: int) -> None:
    """Make the file as long as its size; the appended bytes are durable."""
    name = make_record_path(path)
    durable.change_length(path, new, new)
    with durable.os_errors("appending to", path):
        os.unlink(name)
        _core.fsync_folder(name)


def read_size(path: str) -> int:
    """Return the bytes of a file without those that are being appended; `OSError` if it is missing."""
    while True:
        before = os.stat(path).st_size
        record = _read_record(path)
        # Without a record the size is that of an array, unless it was taken while there was one.
        if record is None and os.stat(path).st_size == before:
            return before
        if record is not None:
            return record.old


def undo_unfinished_append(path: str) -> None:
    """Cut off an unfinished append of a killed process. The caller must be within `begin_growing`."""
    name = make_record_path(path)
    if not os.path.lexists(name):
        return
    with durable.os_errors("cutting off an unfinished append to", path):
        record = _read_record(path, alone=True)
        if record is not None:
            durable.change_length(path, record.old, record.old)
        os.unlink(name)


def undo_if_abandoned(path: str) -> None:
    """Call `undo_unfinished_append` if the process that appended is gone and this one may write."""
    if (
        os.path.lexists(make_record_path(path))
        and not locks.is_growing(path)
        and os.access(path, os.W_OK)
    ):
        with locks.lock_length(path):
            undo_unfinished_append(path)


def _read_record(path: str, *, alone: bool = False) -> _Record | None:
    """Return the record if there is a valid one; `OSError` if that cannot be determined."""
    fd = _open_record(path, alone=alone)
    if fd is None:
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
        if not same or not 0 <= record.old <= record.new:
            return None
        if not alone and locks.is_growing(path):
            return record
        if found.st_size != record.new + _MARK:
            return None
        # After a power cut its bytes may be missing.
        mark = durable.read_at(fd, _MARK, record.new)
        return record if mark in (record.mark, bytes(_MARK)) else None
    finally:
        os.close(fd)


def _open_record(path: str, *, alone: bool) -> int | None:
    """Open the record, if there is one."""
    try:
        return open_side_file(make_record_path(path), os.stat(path))
    except StorageError:
        # A process that is appending now has permission to write, whoever owns the record.
        if alone or not locks.is_growing(path):
            raise
        return open_side_file(make_record_path(path), anybody=True)
