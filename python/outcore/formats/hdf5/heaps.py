"""
Global heaps of HDF5 files, checked before the HDF5 library reads them.

Problem: data of variable length (text attributes, the references by which NetCDF4 names its axes) is
stored in *global heap collections*. A damaged size in one of them sends the library (2.0) into an
endless loop that cannot be interrupted; other damage makes it crash.
Approach: a file object of outcore reads the same data first. The library requests bytes from it, and
each collection in these bytes is checked before they are returned; an invalid one becomes a
`FormatError`. Then the library may read the data again directly.
Invariants: every collection of a valid file is accepted; any other that the library would not read to
its end is rejected. Sizes in a collection do not determine allocations.

Reference: HDF5 File Format Specification 3.0, III.E "Global Heap".
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

from outcore.base.closable import Closable
from outcore.errors import FormatError, OutcoreError
from outcore.formats import durable
from outcore.formats.hdf5 import access
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.file_object import FileObject
from outcore.formats.hdf5.library import check_library, h5py
from outcore.formats.hdf5.superblock import find_superblock, read_widths

_STEP = "restore it from a copy, or remove the attribute with h5py"
# Signature and version; the library does not check the following bytes either.
_MARK = b"GCOL\x01"
# Classes of datatypes: variable length; integers, floats, text and references.
_VLEN = 9
_PLAIN = (0, 1, 3, 7)
# Bytes of the largest attribute.
_MAX_ATTRIBUTE_BYTES = 64 << 20
# Bytes of a collection that are read at once.
_WINDOW = 1 << 16


def check_attributes(path: str, name: str, only: Iterable[str] | None = None) -> None:
    """Raise `FormatError` if reading attributes (None: all) of an object would not end."""
    with AttributeChecker(path) as checker:
        checker.check(name, only)


class AttributeChecker(Closable):
    """`check_attributes` for several objects of one file, which is opened once; closed by `close`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._held = contextlib.ExitStack()
        self._opened: tuple[Any, _CheckedFile] | None = None

    def close(self) -> None:
        """Close the file, if it is open."""
        with access.take_turn():
            self._opened = None
            self._held.close()

    def check(self, name: str, only: Iterable[str] | None = None) -> None:
        """Raise `FormatError` if reading these attributes (None: all) would not end."""
        check_library(self._path)
        with access.take_turn():
            try:
                if self._opened is None:
                    self._opened = self._held.enter_context(_open_checked(self._path))
                _check(self._path, *self._opened, name, only)
            except BaseException as error:
                # The reader stores the error: another object needs another reader.
                self._opened = None
                held, self._held = self._held, contextlib.ExitStack()
                if not held.__exit__(type(error), error, error.__traceback__):
                    raise


def _check(
    path: str, file: Any, reader: _CheckedFile, name: str, only: Iterable[str] | None
) -> None:
    item = file[name]
    wanted = set(item.attrs) if only is None else set(only)
    for attribute in wanted:
        if attribute not in item.attrs:
            continue
        check_size(path, item, attribute)
        if _has_variable_length(path, item, attribute):
            try:
                item.attrs[attribute]
            except Exception:
                # The library raises its own error again when the attribute is read.
                if reader.error is not None:
                    raise reader.error from None
    if reader.error is not None:
        raise reader.error


def is_readable(path: str, item: Any, attribute: str) -> bool:
    """
    Return whether an attribute has a fixed size, or is text or plain sequences of variable length.

    The others (references, compounds with text in them) should not be touched in a damaged file.
    """
    check_size(path, item, attribute)
    if not item.attrs.get_id(attribute).dtype.hasobject:
        return True
    return _has_variable_length(path, item, attribute)


def check_size(path: str, item: Any, attribute: str) -> None:
    """Raise `FormatError` if an attribute is too large: the library allocates what its type claims."""
    found = item.attrs.get_id(attribute)
    claimed = math.prod(found.shape or ()) * found.get_type().get_size()
    most = min(os.stat(path).st_size, _MAX_ATTRIBUTE_BYTES)
    if claimed > most:
        problem = f"claims {claimed} bytes, but at most {most} are possible"
        raise _make_error(path, item, attribute, problem)


def _has_variable_length(path: str, item: Any, attribute: str) -> bool:
    """Return whether an attribute is one sequence or text of variable length, per element."""
    # H5Tencode puts two bytes before the datatype message: class, three bytes of bits, size, base
    # type.
    encoded = bytes(item.attrs.get_id(attribute).get_type().encode())[2:]
    if len(encoded) < 16 or encoded[0] & 15 != _VLEN:
        return False
    bits, base = int.from_bytes(encoded[1:4], "little"), encoded[8] & 15
    # The library trusts these bits, and would call a function that does not exist.
    if bits & 15 > 1 or bits >> 4 & 15 > 2 or bits >> 8 > 1:
        problem = f"has an invalid type (variable length, bits {bits:#x})"
        raise _make_error(path, item, attribute, problem)
    return base in _PLAIN


def _make_error(path: str, item: Any, attribute: str, problem: str) -> FormatError:
    return make_damage_error(
        path, f"attribute {attribute!r} of {item.name!r} {problem}", step=_STEP
    )


@contextlib.contextmanager
def _open_checked(path: str) -> Iterator[tuple[Any, _CheckedFile]]:
    with _CheckedFile(path) as reader:
        try:
            file = h5py.File(reader, "r")
            try:
                yield file, reader
            finally:
                with contextlib.suppress(Exception):
                    file.close()
        except OutcoreError:
            raise
        except Exception as error:
            if reader.error is not None:
                raise reader.error from error
            with access.translate_errors(path):
                raise


class _CheckedFile(FileObject):
    """A file, as the library reads it; `found` is the error in a collection."""

    def __init__(self, path: str) -> None:
        super().__init__(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._path = path
        self._good: set[int] = set()
        self._widths: int | None = None
        self.error: FormatError | None = None

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
            self._fd = -1  # another file may soon have the number
        super().close()

    def readinto(self, into: Any) -> int:
        _, count = self._read_here(into)
        # The previous read may have ended with a part of the signature.
        low = max(self._at - len(_MARK) + 1, 0)
        around = durable.read_at(self._fd, count + 2 * (len(_MARK) - 1), low)
        at = around.find(_MARK)
        while at >= 0:
            self._check(low + at)
            at = around.find(_MARK, at + 1)
        self._at += count
        return count

    def _read_width(self) -> int:
        """Return the bytes of a length in this file, from the superblock (after a user block)."""
        if self._widths is None:
            found = find_superblock(self._fd)
            self._widths = read_widths(found[1])[1] if found else 8
        return self._widths

    def _check(self, start: int) -> None:
        """Walk through a collection as the library does."""
        if start in self._good:
            return
        width = self._read_width()
        size = int.from_bytes(durable.read_at(self._fd, width, start + 8), "little")
        end = start + size
        header = -(-(8 + width) // 8) * 8
        at = start + header
        if end > self._size or width not in (2, 4, 8):
            self._fail(start, f"its size of {size} bytes exceeds the file")
        window, low = b"", 0
        while at + header <= end:
            if not (low <= at and at + header <= low + len(window)):
                window, low = durable.read_at(self._fd, min(_WINDOW, end - at), at), at
            place = at - low
            index = int.from_bytes(window[place : place + 2], "little")
            length = int.from_bytes(window[place + 8 : place + 8 + width], "little")
            need = header + -(-length // 8) * 8 if index else length
            if need < header or at + need > end:
                self._fail(start, f"object {index} at byte {at} has {length} bytes")
            at += need
        self._good.add(start)

    def _fail(self, start: int, why: str) -> None:
        problem = f"the global heap collection at byte {start} is invalid: {why}"
        self.error = make_damage_error(self._path, problem, offset=start, step=_STEP)
        raise OSError(str(self.error))
