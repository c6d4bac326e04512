"""
Changes of an HDF5 file that happen completely or not at all.

Problem: while the HDF5 library changes a file it overwrites metadata in place, block by block. A
process that is killed in between leaves a file that no library opens.
Approach: a redo log. The library writes through a file object of outcore (`Overlay`). Bytes past the
old end of the file are written there immediately: nothing refers to them yet. Bytes that overwrite
older ones go into a log next to the file, and are read from there. When the library has closed the
file the log is completed, and only then are its bytes copied to their places. A process that finds a
complete log later copies them again (`recover`); an incomplete log is removed, and the file is the old
one.
Invariants: until the log is complete no byte of the old file changes. Exactly the bytes that the
library wrote are copied, so elements that others write in place in the meantime remain. A process that
changes or recovers holds the lock that HDF5 itself would take (`flock` on the file). The library never
sees a failing write: it would keep a file that it cannot close in a broken state, and crash the
process later. Its changes are discarded instead, with `failure` as the reason.

A kill at any moment is covered. So is a power cut if `sync` is set, by syncs in the same order; for
encoded chunks only after `flush`.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import fcntl
import os
import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

from outcore import _core
from outcore.errors import StorageError
from outcore.formats import durable, locks
from outcore.formats.hdf5.file_object import FileObject
from outcore.formats.side_files import create_side_file, open_side_file

_MAGIC = b"outcred3"
# Magic; inode and device of the file; its size before and after (-1: unchanged); number of extents;
# their position in the log, checksum of their bytes, checksum of the extents.
_FOOTER = struct.Struct("<8sQQqqqqII")
# Checksum of the footer.
_CHECK = struct.Struct("<I")
_PIECE = 1 << 20


def make_log_path(path: str) -> str:
    """Return the path of the log of a file."""
    # Links of folders affect its name like that of the file.
    name = os.path.realpath(path) if os.path.islink(path) else path
    return durable.make_sibling_path(name, ".outcore-redo", before=".")


class Overlay(FileObject):
    """A file as the library sees it while it changes it; see the head of this module."""

    def __init__(self, path: str, fd: int) -> None:
        super().__init__(fd)
        self.path = path
        self.failure: OSError | None = None
        self._log = -1
        self._log_end = 0
        self._decided = False
        self.old_size = self._size
        # Extents of the file that are in the log: sorted, disjoint.
        self._starts: list[int] = []
        self._rest: list[tuple[int, int]] = []  # length, place in the log

    # Methods for the library
    # ruff: noqa: D102

    def writable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        with self._record_failure():
            view, count = self._read_here(into)
            low, high = self._at, self._at + len(view)
            for k in range(max(bisect.bisect_right(self._starts, low) - 1, 0), len(self._starts)):
                start, (length, place) = self._starts[k], self._rest[k]
                if start >= high:
                    break
                a, b = max(start, low), min(start + length, high)
                if a < b:
                    durable.read_into(self._log, view[a - low : b - low], place + a - start)
                    count = max(count, b - low)
        self._at += count
        return count

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        with contextlib.suppress(OSError), self._record_failure():
            if self._at < self.old_size:
                self._overwrite(self._at, view)  # in one piece, as `find_in_log` expects it
            else:
                durable.write_all(self._fd, view, self._at)
        self._at += len(view)
        self._size = max(self._size, self._at)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        with contextlib.suppress(OSError), self._record_failure():
            if self._size >= self.old_size:
                os.ftruncate(self._fd, self._size)
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    @contextlib.contextmanager
    def _record_failure(self) -> Any:
        """Record an error for `failure`: the library ignores it, or makes it unrecognisable."""
        if self._fd < 0:
            raise ValueError(f"{self.path!r} is closed")
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error
            raise

    # The log

    def _get_log(self) -> int:
        if self._log < 0:
            self._log = _open_log(self.path, self._fd)
        return self._log

    def _overwrite(self, offset: int, data: memoryview) -> None:
        durable.write_all(self._get_log(), data, self._log_end)
        self._map(offset, len(data), self._log_end)
        self._log_end += len(data)

    def _map(self, offset: int, length: int, place: int) -> None:
        """Map `length` bytes of the file to the bytes at `place` in the log."""
        end = offset + length
        # Cut existing extents: at most one remains before, one after.
        first = bisect.bisect_left(self._starts, offset)
        if first and self._starts[first - 1] + self._rest[first - 1][0] > offset:
            first -= 1
        last = bisect.bisect_left(self._starts, end)
        pieces = [(offset, length, place)]
        if first < last:
            start, (_, old) = self._starts[first], self._rest[first]
            if start < offset:
                pieces.insert(0, (start, offset - start, old))
            start, (had, old) = self._starts[last - 1], self._rest[last - 1]
            if start + had > end:
                pieces.append((end, start + had - end, old + end - start))
        self._starts[first:last] = [piece[0] for piece in pieces]
        self._rest[first:last] = [piece[1:] for piece in pieces]

    def find_in_log(self, offset: int, length: int) -> int | None:
        """Return where bytes of the file are in the log, in one piece; None if they are in the file."""
        k = bisect.bisect_right(self._starts, offset) - 1
        if k >= 0 and self._starts[k] + self._rest[k][0] >= offset + length:
            return self._rest[k][1] + offset - self._starts[k]
        k += k < 0 or self._starts[k] + self._rest[k][0] <= offset
        if k < len(self._starts) and self._starts[k] < offset + length:
            raise OSError(errno.EIO, "only a part of a chunk is in the log")
        return None

    def copy_to_log(self, offset: int, length: int, low: int, high: int) -> int | None:
        """
        Copy bytes `low` to `high` of a range into the log; return where the range begins there.

        The caller may change these bytes. None: the range is past the old end of the file, and may be
        changed there.
        """
        if offset >= self.old_size:
            return None
        log = self._get_log()
        # The rest of it is a hole in the log.
        begin = -(-self._log_end // _PIECE) * _PIECE
        for at in range(offset + low, offset + high, _PIECE):
            piece = bytearray(min(_PIECE, offset + high - at))
            self.seek(at)
            self.readinto(piece)
            durable.write_all(log, memoryview(piece), begin + at - offset)
        self._log_end = begin + length
        os.ftruncate(log, self._log_end)
        self._map(offset + low, high - low, begin + low)
        return begin

    def allocate_blocks(self, size: int) -> None:
        """Allocate disk blocks of the file up to `size`: past the old end the caller writes."""
        with self._record_failure():
            _core.allocate(self._fd, os.fstat(self._fd).st_size, size)
        self._size = max(self._size, size)

    def close(self) -> None:
        """Prevent further reads and writes: the descriptor may soon belong to another file."""
        self._fd = -1
        super().close()

    def commit(self, *, sync: bool) -> None:
        """Apply the changes of the library to the file."""
        final = self._size if self._size < self.old_size else -1
        if not self._starts and final < 0:
            if sync:
                os.fsync(self._fd)
            return
        self._get_log()
        if sync:
            os.fsync(self._fd)
        index = array("q")
        for start, (length, place) in zip(self._starts, self._rest, strict=True):
            index.extend((start, length, place))
        found = os.fstat(self._fd)
        raw = index.tobytes()
        counts = (self.old_size, final, len(self._starts), self._log_end)
        crcs = (_compute_checksum(self._log, index), zlib.crc32(raw))
        footer = _FOOTER.pack(_MAGIC, found.st_ino, found.st_dev, *counts, *crcs)
        check = _CHECK.pack(zlib.crc32(footer))
        durable.write_all(self._log, memoryview(raw + footer + check), self._log_end)
        if sync:
            os.fsync(self._log)
            _core.fsync_folder(self.path)
        # The change is decided: what fails from here on, `recover` completes.
        self._decided = True
        _apply(self._log, self._fd, index, final, sync)
        self._remove_log()

    def discard(self) -> None:
        """Leave the file as it was; once the log is complete, leave the change to the next `recover`."""
        if self._decided:
            os.close(self._log)
            self._log = -1
            return
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size > self.old_size:
                os.ftruncate(self._fd, self.old_size)
        self._remove_log()

    def _remove_log(self) -> None:
        if self._log >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(make_log_path(self.path))
            os.close(self._log)
            self._log = -1


def _open_log(path: str, file: int) -> int:
    """Create an empty, locked log for an open file; the caller holds the lock on the file."""
    found = os.fstat(file)
    # A user who may read and write the file may complete the change.
    fd = create_side_file(make_log_path(path), found, 0o600 | (found.st_mode & 0o044))
    with contextlib.suppress(OSError):  # a file system without locks
        locks.lock_file(fd)
    return fd


def _apply(log: int, fd: int, index: array[int], final: int, sync: bool) -> None:
    for at, piece in _read_pieces(log, index):
        durable.write_all(fd, memoryview(piece), at)
    if final >= 0:
        os.ftruncate(fd, final)
    if sync:
        os.fsync(fd)


def recover(path: str, locked: int | None = None) -> None:
    """
    Complete, or discard, a change that a killed process left.

    Without such a change this costs one look at the folder. It does nothing while another process
    holds the file's lock, because that process will recover. `locked` is the caller's descriptor that
    has the lock.
    """
    name = make_log_path(path)
    if not os.path.lexists(name):
        return
    with (
        durable.os_errors("checking an interrupted change of", path),
        contextlib.ExitStack() as held,
    ):
        log = _open_leftover(name, path, alone=locked is not None)
        if log is None:
            return
        held.callback(os.close, log)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC) if locked is None else locked
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            if _read_log(log, os.stat(path)) is None:
                return
            raise StorageError(
                f"{path!r}: an interrupted change is only partly in the file; open the file once with "
                "write permission to complete it",
                code="half-changed",
                path=path,
                errno=error.errno,
            ) from error
        if locked is None:
            held.callback(os.close, fd)
        if locked is None and locks.lock_file(fd) is False:
            return  # another process holds the lock
        alone = locks.lock_file(log)
        if alone is False or not _is_same_file(name, log):
            return  # its owner is alive
        found = _read_log(log, os.fstat(fd))
        if found is not None:
            _apply(log, fd, *found, sync=True)
        elif alone is None and locked is None:
            return  # without locks its owner may be alive, and writing it
        os.unlink(name)


def _open_leftover(name: str, path: str, *, alone: bool) -> int | None:
    """Open the log that a process left, if there is one and no process is at work."""
    try:
        return open_side_file(name, os.stat(path))
    except StorageError:
        # A user who may write the file, but is not its owner, may be changing it now.
        if not alone and _is_locked(path):
            return None
        raise


def _is_locked(path: str) -> bool:
    """Return whether another process holds the file's lock for writing."""
    with contextlib.suppress(OSError), durable.open_fd(path) as fd:
        return locks.lock_file(fd, fcntl.LOCK_SH) is False
    return False


def _is_same_file(name: str, fd: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(name), os.fstat(fd))
    return False


def _read_log(log: int, file: os.stat_result) -> tuple[array[int], int] | None:
    """Return extents and final size of a complete log of this very file."""
    size = os.fstat(log).st_size - _CHECK.size
    if size < _FOOTER.size:
        return None
    footer = _read_exactly(log, _FOOTER.size, size - _FOOTER.size)
    if _CHECK.pack(zlib.crc32(footer)) != _read_exactly(log, _CHECK.size, size):
        return None
    magic, inode, device, old, final, count, length, crc, index_crc = _FOOTER.unpack(footer)
    fits = min(length, count) >= 0 and length + 24 * count + _FOOTER.size == size
    if magic != _MAGIC or (inode, device) != (file.st_ino, file.st_dev) or not fits:
        return None
    index = array("q")
    raw = _read_exactly(log, 24 * count, length)
    if zlib.crc32(raw) != index_crc:
        return None
    index.frombytes(raw)
    for k in range(0, len(index), 3):
        start, extent, place = index[k : k + 3]
        if min(start, extent, place) < 0 or start >= old or place + extent > length:
            return None
    return (index, final) if _compute_checksum(log, index) == crc else None


def _compute_checksum(log: int, index: array[int]) -> int:
    """Return the checksum of the bytes of all extents, in their order."""
    found = 0
    for _, piece in _read_pieces(log, index):
        found = zlib.crc32(piece, found)
    return found


def _read_pieces(log: int, index: array[int]) -> Iterator[tuple[int, bytearray]]:
    """Yield the bytes of all extents in the log, in pieces, with their offsets in the file."""
    for k in range(0, len(index), 3):
        start, length, place = index[k : k + 3]
        for at in range(0, length, _PIECE):
            yield start + at, _read_exactly(log, min(_PIECE, length - at), place + at)


def _read_exactly(fd: int, length: int, offset: int) -> bytearray:
    """Read exactly `length` bytes of the log."""
    found = bytearray(length)
    if durable.read_into(fd, memoryview(found), offset) < length:
        raise OSError(errno.EIO, "the log became shorter while it was read")
    return found
