"""
Zip files, as far as arrays in them are concerned: members, where their bytes are, and documents.

Problem. A zip file has a directory at its end, which names members by the place of a header of theirs;
their bytes lie behind that, whose length only it tells. Idea. `zipfile` reads the directory (zip64 too);
what is kept of it are names and a few numbers. Headers of members are looked at when their bytes are
wanted.
Invariants. Memory for the directory is counted before it is read. A header that is not that of its
member, and bytes that lead out of the file, are a `FormatError`; so is all that `zipfile` refuses. What
the core checks a deflated member by, in front of its bytes or behind, is what the directory says.

Reference: APPNOTE.TXT, .ZIP File Format Specification 6.3, sections 4.3 and 4.5.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from outcore import _core
from outcore.errors import FormatError, StorageError
from outcore.formats import durable
from outcore.formats.documents import MAX_DOCUMENT, Document, Judge, document_of

__all__ = ["Archive", "Member", "Stamp", "begins_as_zip"]

#: Device, inode, size and time of the bytes of a file.
Stamp = tuple[int, int, int, int]

_HEADER, _MARK = 30, b"PK\x03\x04"
_END = b"PK\x05\x06"
# Bytes that `zipfile` and we take for a member, about, beside its name; and of its entry on the disk, at
# least.
_EACH, _ENTRY = 900, 46
# Bytes of a member that are kept, beside its name.
_KEPT = 400
_PIECE = 1 << 20


# Flags of a member: its bytes are encrypted; its CRC and sizes follow them, in a descriptor.
_ENCRYPTED, _FOLLOWS = 1, 8
_DESCRIPTOR = b"PK\x07\x08"
# Bytes behind a member with a descriptor that have its CRC: it may begin with a mark.
_BEHIND = 8


class Member(NamedTuple):
    """A member of a zip file."""

    #: Where its header begins.
    at: int
    #: Bytes as they are stored, and as they were.
    nbytes: int
    size: int
    #: Whether the bytes are the file itself, or that deflated.
    stored: bool
    deflated: bool
    crc: int


def _member(found: zipfile.ZipInfo) -> Member:
    method = None if found.flag_bits & _ENCRYPTED else found.compress_type
    return Member(
        found.header_offset,
        found.compress_size,
        found.file_size,
        method == zipfile.ZIP_STORED,
        method == zipfile.ZIP_DEFLATED,
        found.CRC,
    )


def begins_as_zip(path: str) -> bool:
    """Whether a file begins as zip files do."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return durable.read_at(fd, 4, 0) in (_MARK, _END)
        finally:
            os.close(fd)
    return False


class Archive:
    """
    The directory of a zip file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FormatError
        ``bad-zip``: damaged, or no zip file.
    BudgetError
        The directory does not fit the memory budget.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        with durable.os_errors("opening", path):
            found = os.stat(path)
        self.stamp: Stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        self._size = found.st_size
        self.held = _core.Reservation("directory of a zip file", self._claim())
        try:
            with self._refusing("its directory"), zipfile.ZipFile(path) as file:
                entries = file.infolist()
                # Of several members of one name the last one counts, as for zarr and zipfile.
                self.members = {one.filename: _member(one) for one in entries if not one.is_dir()}
        finally:
            self.held.release()
        # What is kept of it.
        names = sum(map(len, self.members))
        self.held = _core.Reservation("directory of a zip file", _KEPT * len(self.members) + names)

    def _claim(self) -> int:
        """Bytes that reading the directory takes, at most."""
        # The directory lies before its end, and an entry has a header at the least.
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            low = max(self._size - (1 << 16) - 22, 0)
            tail = durable.read_at(fd, self._size - low, low)
        finally:
            os.close(fd)
        at = tail.rfind(_END)
        size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
        if size == 0xFFFFFFFF:  # zip64 tells it elsewhere
            other = tail.rfind(b"PK\x06\x06")
            size = int.from_bytes(tail[other + 40 : other + 48], "little") if other >= 0 else 0
        size = min(size, self._size)
        return size // _ENTRY * _EACH + 2 * size + (1 << 16)

    @contextlib.contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise self.damaged(f"{what} cannot be read ({error})") from error
        except RuntimeError as error:  # encrypted
            raise self.damaged(f"{what} cannot be read ({error})") from error
        except OSError as error:
            with durable.os_errors("reading", self.path):
                raise error

    def damaged(self, what: str) -> FormatError:
        """The error for a file that is not as a zip file is."""
        return FormatError(
            f"{self.path!r}: {what}; the zip file is damaged or was cut off: copy it again, or see what "
            "`unzip -t` says of it",
            code="bad-zip",
            path=self.path,
        )

    def document(self, name: str) -> Document | None:
        """The JSON object in a member, checked by its CRC; None if there is no such member."""
        member = self.members.get(name)
        if member is None:
            return None
        where = f"{self.path}::/{name}"
        judge = Judge(where)
        with self._refusing(f"member {name!r}"), zipfile.ZipFile(self.path) as file:
            size = file.getinfo(name).file_size
            if size > MAX_DOCUMENT:
                raise judge.bad(f"{size} bytes of metadata are more than {MAX_DOCUMENT}")
            raw = file.read(name)
        return document_of(raw, judge)

    def still(self) -> None:
        """
        Refuse a file that is not the one whose directory was read.

        Raises
        ------
        StorageError
            ``file-changed``.
        """
        with durable.os_errors("looking at", self.path):
            found = os.stat(self.path)
        if (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) != self.stamp:
            raise StorageError(
                f"{self.path!r} was changed since it was opened; open it again",
                code="file-changed",
                path=self.path,
            )

    def begin(self, fd: int, name: str, member: Member) -> int:
        """
        Where the bytes of a member begin.

        Parameters
        ----------
        fd
            The file, open.
        name, member
            Which one.
        """
        return self._header(fd, name, member)[0]

    def _header(self, fd: int, name: str, member: Member) -> tuple[int, bytes]:
        header = durable.read_at(fd, _HEADER, member.at)
        own, extra = (int.from_bytes(header[k : k + 2], "little") for k in (26, 28))
        first = member.at + _HEADER + own + extra
        if header[:4] != _MARK or first + member.nbytes > self._size:
            raise self.damaged(
                f"member {name!r} has no header at byte {member.at}, or leads out of the file"
            )
        return first, header

    def whole(self, fd: int, name: str, member: Member) -> int:
        """
        Bytes of a deflated member from its header to its CRC, which is what the core decodes.

        Parameters
        ----------
        fd
            The file, open.
        name, member
            Which one.
        """
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
            raise self.damaged(f"member {name!r} has not the CRC that the directory has of it")
        return end - member.at

    def check(self, name: str) -> None:
        """Compare the bytes of a member, inflated if they are deflated, with its CRC."""
        member, found, size = self.members[name], 0, 0
        for piece in self.pieces(name):
            found, size = zlib.crc32(piece, found), size + len(piece)
        if found != member.crc or size != member.size:
            raise self.damaged(
                f"member {name!r} has {size} bytes with the CRC {found:08x}, not {member.size} with "
                f"{member.crc:08x}"
            )

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a member as they were, at most 1 MiB at a time."""
        member = self.members[name]
        inflate = zlib.decompressobj(-zlib.MAX_WBITS) if member.deflated else None
        with durable.os_errors("reading", self.path):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with durable.os_errors("reading", self.path):
                at = self.begin(fd, name, member)
            end = at + member.nbytes
            while at < end:
                with durable.os_errors("reading", self.path):
                    piece = durable.read_at(fd, min(end - at, _PIECE), at)
                if not piece:
                    break
                at += len(piece)
                if inflate is None:
                    yield piece
                    continue
                with self._refusing(f"member {name!r}"):
                    some = inflate.decompress(piece, _PIECE)
                yield some
                while inflate.unconsumed_tail:
                    with self._refusing(f"member {name!r}"):
                        some = inflate.decompress(inflate.unconsumed_tail, _PIECE)
                    yield some
            if inflate is not None:
                with self._refusing(f"member {name!r}"):
                    last = inflate.flush()
                yield last
        finally:
            os.close(fd)
