"""
JSON documents with metadata: read safely and checked field by field.

Problem: a document may be made to cause harm: huge, deeply nested, a pipe instead of a file, numbers
that are not numbers.
Approach: reading is bounded and, for large documents, counted in the memory budget in advance. `Judge`
turns every invalid value into a `FormatError` that names file and field.
Invariants: only regular files are read, at most 64 MiB of each.
"""

from __future__ import annotations

import errno
import json
import os
import reprlib
import stat
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from outcore import _core
from outcore.errors import BudgetError, FormatError, UnsupportedError, budget_error
from outcore.formats import durable

Document = dict[str, Any]
#: Device, inode, size, time of the bytes and of the file in nanoseconds: which state of a file.
Stamp = tuple[int, int, int, int, int]

MAX_DOCUMENT = 64 << 20
MAX_LENGTH = 2**63 - 1


class Judge:
    """
    Checks the values of one metadata document; its errors name the file and the field.

    `of` names the writer of such documents, and `again` what may have to be created again, for
    messages.
    """

    def __init__(self, path: str, of: str = "a Zarr library", again: str = "the array") -> None:
        self.path = path
        self._of, self._again = of, again

    def bad(self, what: str) -> FormatError:
        """Return the error for a document that breaks the rules of its format."""
        return FormatError(
            f"{self.path!r}: {what}; the metadata is damaged or was not written by {self._of}: restore "
            f"the file, or create {self._again} again",
            code="bad-metadata",
            path=self.path,
        )

    def make_unsupported_error(self, what: str) -> UnsupportedError:
        """Return the error for a valid document that needs something that outcore lacks."""
        return UnsupportedError(
            f"{self.path!r}: outcore does not support {what}; rewrite the array with supported features "
            "(docs/status/formats.md)",
            code="unsupported-feature",
            path=self.path,
        )

    def integer(self, value: Any, name: str, low: int = 0, high: int = MAX_LENGTH) -> int:
        """Return an integer between `low` and `high`."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.bad(f"{name} is {reprlib.repr(value)}, not an integer in {low}..{high}")
        return value

    def text(self, value: Any, name: str) -> str:
        """Return a string."""
        if not isinstance(value, str):
            raise self.bad(f"{name} is {reprlib.repr(value)}, not a string")
        return value

    def mapping(self, value: Any, name: str) -> Document:
        """Return a JSON object."""
        if not isinstance(value, dict):
            raise self.bad(f"{name} is {reprlib.repr(value)}, not an object")
        return value

    def sequence(self, value: Any, name: str, limit: int = 64) -> list[Any]:
        """Return a JSON array of at most `limit` items."""
        if not isinstance(value, list):
            raise self.bad(f"{name} is {reprlib.repr(value)}, not a list")
        if len(value) > limit:
            raise self.bad(f"{name} has {len(value)} items, more than {limit}")
        return value

    def lengths(self, value: Any, name: str, low: int) -> tuple[int, ...]:
        """Return a list of axis lengths, each at least `low`."""
        return tuple(self.integer(n, name, low) for n in self.sequence(value, name))

    def pair(self, value: Any, name: str) -> tuple[int, int]:
        """Return two lengths."""
        lengths = self.lengths(value, name, 0)
        if len(lengths) != 2:
            raise self.bad(f"{name} has {len(lengths)} items, not 2")
        return lengths[0], lengths[1]

    def dtype(self, descr: Any) -> np.dtype[Any]:
        """Return the dtype for the JSON form of a `numpy.lib.format.dtype_to_descr` result."""
        try:
            return dtype_from_descr(descr)
        except Exception as error:  # NumPy raises a dozen kinds for invalid values
            raise self.bad(f"dtype {descr!r:.200} is invalid ({error!s:.100})") from error

    def parse_name(self, value: Any, name: str) -> tuple[str, Document]:
        """Return an extension point of Zarr v3: a name, or a name with its configuration."""
        if isinstance(value, str):
            return value, {}
        entry = self.mapping(value, name)
        label = self.text(entry.get("name"), f"name of {name}")
        for key, extra in entry.items():
            if key not in ("name", "configuration", "must_understand"):
                self.ignorable(f"{name}.{key}", extra)
        return label, self.mapping(entry.get("configuration", {}), f"configuration of {name}")

    def ignorable(self, name: str, value: Any) -> None:
        """Raise for an unknown field, unless it states that it may be ignored."""
        if not (isinstance(value, dict) and value.get("must_understand") is False):
            raise self.make_unsupported_error(f"the field {reprlib.repr(name)}")


def dtype_from_descr(descr: Any) -> np.dtype[Any]:
    """Invert `numpy.lib.format.dtype_to_descr` after JSON, which has lists for tuples."""

    def tuples(one: Any, depth: int = 0) -> Any:
        if depth > 16:
            raise ValueError("nested too deeply")
        if not isinstance(one, list):
            return one
        # A list of fields is a list of lists; a field, or a subarray, begins with text or a dtype.
        if one and all(isinstance(item, list) for item in one):
            return [tuple(tuples(item, depth + 1) for item in field) for field in one]
        return tuple(tuples(item, depth + 1) for item in one)

    return npy_format.descr_to_dtype(tuples(descr))


def make_stamp(status: os.stat_result) -> Stamp:
    """Return the state of a file, which changes when the file does."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times


def read_document(path: str, judge: Judge | None = None) -> Document | None:
    """Return the JSON object in a file, or None if there is no such file; see `read_stamped`."""
    found = read_stamped(path, judge)
    return None if found is None else found[0]


def read_stamped(path: str, judge: Judge | None = None) -> tuple[Document, Stamp] | None:
    """
    Return the JSON object in a file and the state of the file; None if there is no such file.

    `judge` names the owner of the document in errors; default: a Zarr library. `FormatError`: not JSON,
    not UTF-8, not an object, nested too deeply, or larger than 64 MiB. `StorageError`: the file cannot
    be read.
    """
    judge = Judge(path) if judge is None else judge
    with durable.os_errors("reading", path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            # A symbolic link to itself is broken, like a link to a missing file.
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise judge.bad("this is not a regular file")
            if status.st_size > MAX_DOCUMENT:
                raise judge.bad(f"{status.st_size} bytes of metadata are more than {MAX_DOCUMENT}")
            # The text is counted before it is read, and the document before it is parsed.
            text = _reserve(path, status.st_size)
            raw = file.read(status.st_size)
    if text is not None:
        text.release()
    return parse_document(raw, judge), make_stamp(status)


def parse_document(raw: bytes, judge: Judge) -> Document:
    """Return the JSON object in a text; counted in the memory budget if it is large."""
    held = _reserve(judge.path, len(raw) + _estimate_bytes(raw))
    try:
        return _attach_reservation(judge.mapping(_parse(raw, judge), "the document"), held)
    except BaseException:
        if held is not None:  # the traceback of the error keeps a reference
            held.release()
        raise


def _parse(raw: bytes, judge: Judge) -> Any:
    try:
        document = json.loads(raw.decode("utf-8-sig"))
        if b"\\ud" in raw.lower():  # escapes of halves of characters have no UTF-8 form
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise judge.bad("the JSON text is nested too deeply") from None
    except ValueError as error:
        raise judge.bad(f"the text is not valid JSON ({error})") from None
    return document


# Bytes of a document that is counted in the memory budget, at least.
LARGE = 1 << 20
# Number of values that are inspected to find out whether a part of a large document is small.
_FEW = 1 << 10


class _CountedDocument(dict[str, Any]):
    """A large document, or a part of one: counted in the memory budget during its lifetime."""

    held: _core.Reservation | None = None


def _attach_reservation(value: Document, held: _core.Reservation | None) -> Document:
    if held is None:
        return value
    counted = _CountedDocument(value)
    counted.held = held
    return counted


def extract_part(document: Document, part: Document) -> Document:
    """Return a part of a document, for a caller that keeps only this part."""
    held = document.held if isinstance(document, _CountedDocument) else None
    return part if held is None or _is_small(part) else _attach_reservation(part, held)


def _is_small(value: Any) -> bool:
    """Return whether a JSON value has few values and little text."""
    left, text, pending = _FEW, 0, [value]
    while pending:
        value = pending.pop()
        text += len(value) if isinstance(value, str) else 0
        if isinstance(value, (dict, list)):
            left -= len(value)
            if left < 0:
                return False
            pending.extend(value)
            if isinstance(value, dict):
                pending.extend(value.values())
    return text < LARGE


def _estimate_bytes(raw: bytes) -> int:
    """
    Return an upper bound of the memory for parsing, including the result, from the characters of a
    text.

    In CPython 3.11 to 3.14 an empty object takes 64 bytes, an object with members 184 to 272 and up to
    130 per member while it grows; a list 56, and 18 per item while it grows; a number 32; a string 80
    and its characters, which take up to 4 bytes each in a text with an emoji, and exist twice.
    """
    width = 1 if raw.isascii() else 4
    marks = {b"{": 272, b":": 130, b"[": 56, b",": 50, b'"': 40}
    escaped = 6 * len(raw) if b"\\ud" in raw.lower() else 0
    return 2 * width * len(raw) + escaped + sum(raw.count(mark) * n for mark, n in marks.items())


def _reserve(path: str, nbytes: int) -> _core.Reservation | None:
    """Reserve memory for a large document; None if it is small."""
    if nbytes < LARGE:
        return None
    try:
        return _core.Reservation("metadata", nbytes)
    except BudgetError as error:
        raise budget_error(
            repr(path),
            nbytes,
            "the memory budget has less left",
            error.needed,
            reason="a metadata document",
            code=error.code,
            path=path,
        ) from None
