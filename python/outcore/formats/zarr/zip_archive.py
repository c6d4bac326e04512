"""
Zip files with arrays: members, the positions of their bytes, and documents.

Problem: a zip file has a directory at its end, which gives the position of each member's header. The
bytes follow the header, whose length only the header states. A few stored bytes may inflate to any
number.
Approach: `zip_directory` stores the names and a few numbers. Headers of members are read when their
bytes are needed, and the bytes are inflated piece by piece.
Invariants: memory for the directory is counted before it is read. A header of another member, bytes
outside the file, and more bytes than the directory states for a member, are a `FormatError`. The CRC by
which the core checks a deflated member, before or after its bytes, is that of the directory.

Reference: APPNOTE.TXT, .ZIP File Format Specification 6.3, sections 4.3 and 4.5.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import Protocol

from outcore import _core
from outcore.errors import FormatError, OutcoreError, StorageError
from outcore.formats import durable
from outcore.formats.documents import LARGE, MAX_DOCUMENT, Document, Judge, parse_document
from outcore.formats.zip_directory import BZIP2, DEFLATED, LZMA, ZipMember, read_directory

__all__ = ["Archive", "Stamp", "ZipMember", "begins_as_zip"]

#: Device, inode, size and time of the bytes of a file.
Stamp = tuple[int, int, int, int]

_HEADER, _MARK = 30, b"PK\x03\x04"
_END = b"PK\x05\x06"
_PIECE = 1 << 20
# Flag of a member: its CRC and sizes follow its bytes, in a descriptor.
_FOLLOWS = 8
_DESCRIPTOR = b"PK\x07\x08"
# Bytes after a member with a descriptor that include its CRC: the descriptor may begin with a mark.
_BEHIND = 8


def begins_as_zip(path: str) -> bool:
    """Return whether a file begins like a zip file."""
    return durable.read_beginning(path, 4) in (_MARK, _END)


class Archive:
    """
    The directory of a zip file.

    `FormatError` ``bad-zip``: damaged, or not a zip file. `BudgetError`: the directory does not fit the
    memory budget.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        with durable.os_errors("opening", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with durable.os_errors("reading", path), self._refusing("its directory"):
                found = os.fstat(fd)
                self.stamp: Stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
                self._size = found.st_size
                self.members = read_directory(fd, found.st_size)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OutcoreError:
            raise
        except (zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
            raise self.make_damage_error(f"{what} cannot be read ({error})") from error

    def make_damage_error(self, what: str) -> FormatError:
        """Return the error for an invalid zip file."""
        return FormatError(
            f"{self.path!r}: {what}; the zip file is damaged or was cut off: copy it again, or check it "
            "with `unzip -t`",
            code="bad-zip",
            path=self.path,
        )

    def document(self, name: str) -> Document | None:
        """Return the JSON object in a member, checked by its CRC; None if there is no such member."""
        member = self.members.get(name)
        if member is None:
            return None
        where = f"{self.path}::/{name}"
        judge = Judge(where)
        if member.size > MAX_DOCUMENT:
            raise judge.bad(f"{member.size} bytes of metadata are more than {MAX_DOCUMENT}")
        with contextlib.ExitStack() as held:
            if member.size >= LARGE:  # the pieces, and the text that they make
                held.enter_context(_core.Reservation("metadata", 2 * member.size))
            raw = b"".join(self._check_members(name))
        return parse_document(raw, judge)

    def still(self) -> None:
        """Raise `StorageError` ``file-changed`` unless the file is still the one that was read."""
        with durable.os_errors("inspecting", self.path):
            found = os.stat(self.path)
        if (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) != self.stamp:
            raise StorageError(
                f"{self.path!r} was changed since it was opened; open it again",
                code="file-changed",
                path=self.path,
            )

    def begin(self, fd: int, name: str, member: ZipMember) -> int:
        """Return the position of the bytes of a member; `fd` is the open file."""
        return self._header(fd, name, member)[0]

    def _header(self, fd: int, name: str, member: ZipMember) -> tuple[int, bytes]:
        header = durable.read_at(fd, _HEADER, member.at)
        own, extra = (int.from_bytes(header[k : k + 2], "little") for k in (26, 28))
        first = member.at + _HEADER + own + extra
        if header[:4] != _MARK or first + member.nbytes > self._size:
            raise self.make_damage_error(
                f"member {name!r} has no header at byte {member.at}, or extends past the end of the file"
            )
        return first, header

    def whole(self, fd: int, name: str, member: ZipMember) -> int:
        """Return the bytes of a deflated member from its header to its CRC, as the core decodes it."""
        first, header = self._header(fd, name, member)
        end = first + member.nbytes
        crc = member.crc.to_bytes(4, "little")
        if not int.from_bytes(header[6:8], "little") & _FOLLOWS:
            told = header[14:18] == crc
        else:
            behind = durable.read_at(fd, _BEHIND, end)
            end += _BEHIND
            told = behind.removeprefix(_DESCRIPTOR).startswith(crc) or behind.startswith(crc)
        if not told or end > self._size:
            raise self.make_damage_error(
                f"member {name!r} has another CRC than the directory states"
            )
        return end - member.at

    def check_places(self) -> None:
        """Raise if two members share bytes."""
        shared = self.members.shared_bytes()
        if shared is not None:
            raise self.make_damage_error(f"members {shared[0]!r} and {shared[1]!r} share bytes")

    def check(self, name: str) -> None:
        """Compare the decoded bytes of a member with its CRC."""
        for _ in self._check_members(name):
            pass

    def _check_members(self, name: str) -> Iterator[bytes]:
        """Yield the decoded bytes of a member; raise at the end if size or CRC are wrong."""
        member, found, size = self.members[name], 0, 0
        for piece in self.pieces(name):
            found, size = zlib.crc32(piece, found), size + len(piece)
            yield piece
        if found != member.crc or size != member.size:
            raise self.make_damage_error(
                f"member {name!r} has {size} bytes with the CRC {found:08x}, not {member.size} with "
                f"{member.crc:08x}"
            )

    def pieces(self, name: str) -> Iterator[bytes]:
        """
        Yield the decoded bytes of a member in pieces of at most 1 MiB, as many as the directory states.

        `FormatError` ``bad-zip``: there are more, they cannot be decoded, or the member is encrypted or
        compressed by a method that outcore lacks.
        """
        member, size = self.members[name], 0
        with durable.os_errors("reading", self.path):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = self._read_stored(fd, name, member)
            if not member.stored:
                pieces = self._inflate(pieces, name, member)
            for piece in pieces:
                size += len(piece)
                if size > member.size:
                    raise self.make_damage_error(
                        f"member {name!r} has more than the {member.size} bytes in the directory"
                    )
                yield piece
        finally:
            os.close(fd)

    def _read_stored(self, fd: int, name: str, member: ZipMember) -> Iterator[bytes]:
        with durable.os_errors("reading", self.path):
            at = self.begin(fd, name, member)
        end = at + member.nbytes
        while at < end:
            with durable.os_errors("reading", self.path):
                piece = durable.read_at(fd, min(end - at, _PIECE), at)
            if not piece:
                return
            at += len(piece)
            yield piece

    def _inflate(self, stored: Iterator[bytes], name: str, member: ZipMember) -> Iterator[bytes]:
        with self._refusing(f"member {name!r}"):
            decoder = _decoder(member)
        with _core.Reservation("decoder of a member of a zip file", decoder.nbytes):
            for piece in stored:
                while True:
                    with self._refusing(f"member {name!r}"):
                        some, piece = decoder.decode(piece)
                    if not some and not piece:
                        break
                    yield some


class _Decoder(Protocol):
    """Decodes a stream in pieces of at most 1 MiB; needs `nbytes` of memory."""

    nbytes: int

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        """Return decoded bytes, and the data for the next call; both empty: done."""


class _Inflate:
    """A bare stream of DEFLATE."""

    nbytes = 1 << 16

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        if self._stream.eof:
            return b"", b""
        some = self._stream.decompress(data, _PIECE)
        return some, self._stream.unconsumed_tail


class _Bzip2:
    """A stream of bzip2, whose decoder stores input that it has not decoded yet."""

    nbytes = 4 << 20

    def __init__(self) -> None:
        self._stream = bz2.BZ2Decompressor()

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        if self._stream.eof:
            return b"", b""
        try:
            return self._stream.decompress(data, _PIECE), b""
        except OSError as error:  # invalid data, not an error of the system
            raise ValueError(str(error)) from None


class _Lzma:
    """
    LZMA as in zip files: version, length of the properties, properties, stream.

    The file format of the old LZMA tools has the properties first, and then the length of the data, or
    a mark that it is unknown. A dictionary longer than the data is useless.
    """

    def __init__(self, size: int) -> None:
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_ALONE)
        self._dictionary = min(max(size, 1 << 12), 1 << 30)
        self._head: bytes | None = b""
        self.nbytes = self._dictionary + (1 << 16)

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        if self._stream.eof:
            return b"", b""
        if self._head is not None:
            self._head += data
            if len(self._head) < 9:
                return b"", b""
            if self._head[2:4] != b"\5\0":
                raise ValueError("its properties of LZMA are not 5 bytes")
            asked = int.from_bytes(self._head[5:9], "little")
            # The old format only has powers of two.
            room = 1 << (min(asked, self._dictionary) - 1).bit_length() if asked else 1 << 12
            data = self._head[4:5] + room.to_bytes(4, "little") + b"\xff" * 8 + self._head[9:]
            self._head = None
        return self._stream.decompress(data, _PIECE), b""


def _decoder(member: ZipMember) -> _Decoder:
    if member.method == DEFLATED:
        return _Inflate()
    if member.method == BZIP2:
        return _Bzip2()
    if member.method == LZMA:
        return _Lzma(member.size)
    raise ValueError("it is encrypted, or compressed by an unknown method")
