"""
Zarr on the file system: metadata documents, folders that appear at once.

Problem. A reader must never meet new metadata over old chunks, a half written document, or a document
made to hurt (huge, deeply nested, a pipe instead of a file).
Idea. Documents are replaced by rename. A new folder is built in a hidden folder beside its place and
renamed into it; a folder that is replaced changes places with the new one in one step (``renameat2``
with ``RENAME_EXCHANGE``).
Invariants. What a document says is judged by `Judge`, so that everything wrong with it is a
`FormatError`. The hidden folder itself holds no metadata, so no library takes what a crash leaves behind
for a member of a group.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import reprlib
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from outcore import _core
from outcore.errors import (
    BudgetError,
    FormatError,
    OutcoreError,
    StorageError,
    UnsupportedError,
    UsageError,
)
from outcore.formats import durable, locks

Document = dict[str, Any]
#: Device, inode, size, time of the bytes and of the file in nanoseconds: which state of a file.
Stamp = tuple[int, int, int, int, int]

MAX_DOCUMENT = 64 << 20
MAX_LENGTH = 2**63 - 1
_SHELTER = re.compile(durable.BEGUN)


class Judge:
    """Checks the values of one metadata document; what it refuses names the file and the field."""

    def __init__(self, path: str) -> None:
        self.path = path

    def bad(self, what: str) -> FormatError:
        """The error for a document that breaks the rules of its format."""
        return FormatError(
            f"{self.path!r}: {what}; the metadata is damaged or not of a Zarr library: restore the "
            "file, or make the array again",
            code="bad-metadata",
            path=self.path,
        )

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for a valid document that asks for something outcore lacks."""
        return UnsupportedError(
            f"{self.path!r}: {what}; rewrite the array with what outcore supports "
            "(docs/status/formats.md)",
            code="unsupported-feature",
            path=self.path,
        )

    def integer(self, value: Any, name: str, low: int = 0, high: int = MAX_LENGTH) -> int:
        """A whole number between `low` and `high`."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.bad(f"{name} is {reprlib.repr(value)}, not an integer in {low}..{high}")
        return value

    def text(self, value: Any, name: str) -> str:
        """A string."""
        if not isinstance(value, str):
            raise self.bad(f"{name} is {reprlib.repr(value)}, not a string")
        return value

    def mapping(self, value: Any, name: str) -> Document:
        """A JSON object."""
        if not isinstance(value, dict):
            raise self.bad(f"{name} is {reprlib.repr(value)}, not an object")
        return value

    def sequence(self, value: Any, name: str, limit: int = 64) -> list[Any]:
        """A JSON array of at most `limit` items."""
        if not isinstance(value, list):
            raise self.bad(f"{name} is {reprlib.repr(value)}, not a list")
        if len(value) > limit:
            raise self.bad(f"{name} has {len(value)} items, more than {limit}")
        return value

    def lengths(self, value: Any, name: str, low: int) -> tuple[int, ...]:
        """A list of axis lengths, each at least `low`."""
        return tuple(self.integer(n, name, low) for n in self.sequence(value, name))

    def named(self, value: Any, name: str) -> tuple[str, Document]:
        """An extension point of Zarr v3: a name, or a name with its configuration."""
        if isinstance(value, str):
            return value, {}
        entry = self.mapping(value, name)
        label = self.text(entry.get("name"), f"name of {name}")
        for key, extra in entry.items():
            if key not in ("name", "configuration", "must_understand"):
                self.ignorable(f"{name}.{key}", extra)
        return label, self.mapping(entry.get("configuration", {}), f"configuration of {name}")

    def ignorable(self, name: str, value: Any) -> None:
        """Refuse an unknown field, unless it says that it may be ignored."""
        if not (isinstance(value, dict) and value.get("must_understand") is False):
            raise self.unsupported(f"the field {reprlib.repr(name)} is not known")


def stamp_of(status: os.stat_result) -> Stamp:
    """Which state of a file the system speaks of."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times


def read_document(path: str) -> Document | None:
    """The JSON object in the file `path`, or None if there is no such file."""
    found = read_stamped(path)
    return None if found is None else found[0]


def read_stamped(path: str) -> tuple[Document, Stamp] | None:
    """
    The JSON object in the file `path` and which state of the file it is; None if there is no such file.

    Raises
    ------
    FormatError
        Not JSON, not UTF-8, not an object, nested too deeply, larger than 64 MiB.
    StorageError
        The file cannot be read.
    """
    judge = Judge(path)
    with durable.os_errors("reading", path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise judge.bad("this is not a regular file")
            if status.st_size > MAX_DOCUMENT:
                raise judge.bad(f"{status.st_size} bytes of metadata are more than {MAX_DOCUMENT}")
            # The text is counted before it is read, and what it makes before it is made.
            text = _reserved(path, status.st_size)
            raw = file.read(status.st_size)
    if text is not None:
        text.release()
    held = _reserved(path, len(raw) + _most_bytes(raw))
    try:
        document = judge.mapping(_parsed(raw, judge), "the document")
        return _counted(document, held), stamp_of(status)
    except BaseException:
        if held is not None:  # the traceback of the error keeps it
            held.release()
        raise


def _parsed(raw: bytes, judge: Judge) -> Any:
    try:
        document = json.loads(raw.decode("utf-8-sig"))
        if b"\\ud" in raw.lower():  # escapes of halves of characters have no UTF-8 form
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise judge.bad("the JSON text is nested too deeply") from None
    except ValueError as error:
        raise judge.bad(f"the text is not valid JSON ({error})") from None
    return document


# Documents that take less are not counted.
LARGE = 1 << 20
# Values that are looked at to see whether a part of a large document is small.
_FEW = 1 << 10


class _Counted(dict[str, Any]):
    """A large document, or a part of one: counted in the memory budget as long as it lives."""

    held: _core.Reservation | None = None


def _counted(value: Document, held: _core.Reservation | None) -> Document:
    if held is None:
        return value
    counted = _Counted(value)
    counted.held = held
    return counted


def part_of(document: Document, part: Document) -> Document:
    """A part of a document, for a caller who keeps the part and not the rest."""
    held = getattr(document, "held", None)
    return part if held is None or _is_small(part) else _counted(part, held)


def _is_small(value: Any) -> bool:
    """Whether a JSON value holds few values and little text."""
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


def _most_bytes(raw: bytes) -> int:
    """
    The most that parsing takes, its result included: told by what the text is made of.

    Of CPython 3.11 to 3.14: an empty object takes 64 bytes, one with members 184 to 272 and up to 130 a
    member while it grows; a list 56, and 18 an item while it grows; a number 32; a string 80, and its
    characters; these take up to 4 bytes in a text with an emoji, and exist twice.
    """
    width = 1 if raw.isascii() else 4
    marks = {b"{": 272, b":": 130, b"[": 56, b",": 50, b'"': 40}
    escaped = 6 * len(raw) if b"\\ud" in raw.lower() else 0
    return 2 * width * len(raw) + escaped + sum(raw.count(mark) * n for mark, n in marks.items())


def _reserved(path: str, nbytes: int) -> _core.Reservation | None:
    """Memory for a document, if that is much."""
    if nbytes < LARGE:
        return None
    try:
        return _core.Reservation("metadata", nbytes)
    except BudgetError as error:
        raise BudgetError(
            f"{path!r}: {error.message}", code=error.code, path=path, needed=error.needed
        ) from None


def write_document(path: str, document: Mapping[str, Any]) -> None:
    """Replace the file `path` by `document`, durably; not through a link out of its folder."""
    if os.path.islink(path) and not _lies_in(os.path.dirname(path), path):
        raise leads_out(path)
    text = dump(document, path)

    durable.create_file(path, lambda fd: durable.write_all(fd, text, 0), exclusive=False)


def leads_out(path: str) -> StorageError:
    """The error for a change that would go through a symbolic link out of the array's folder."""
    return StorageError(
        f"{path!r} is not changed: a symbolic link on the way to it leads out of the array's folder; "
        "put the files themselves there, or mount the other folder in place of the link",
        code="link-leads-out",
        path=path,
    )


def _lies_in(folder: str, path: str) -> bool:
    """Whether `path`, links followed, lies in `folder` or is it."""
    folder, path = os.path.realpath(folder), os.path.realpath(path)
    return path == folder or path.startswith(os.path.join(folder, ""))


def refuse_outside(folder: str, path: str) -> None:
    """Refuse to change what lies at `path` if that is not in `folder`, links followed."""
    if not _lies_in(folder, path):
        raise leads_out(path)


def dump(document: Mapping[str, Any], path: str) -> bytes:
    """`document` as UTF-8 JSON. Attributes that are not JSON are a `UsageError`."""
    try:
        # The round trip turns NumPy's values into JSON's before the check for NaN and infinity.
        plain = json.loads(json.dumps(document, default=_plain))
        return json.dumps(_finite(plain), indent=2, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path!r}: the attributes cannot be written as JSON ({error}); use strings, numbers, "
            "lists and dictionaries",
            code="bad-attributes",
            path=path,
        ) from error


def changed_attributes(
    old: Mapping[str, Any], attrs: Mapping[str, Any], drop: Collection[str] | None, path: str
) -> Document:
    """Attributes after a change, as they will be read again; `drop` as in `formats.set_attrs`."""
    kept = {} if drop is None else {name: old[name] for name in old if name not in drop}
    return json.loads(dump({**kept, **attrs}, path))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays, which attributes often hold, as Python's own."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"{type(value).__name__} is not JSON")
    return convert()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become the strings that Zarr uses for fill values."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@contextlib.contextmanager
def locked(file: str) -> Iterator[None]:
    """
    Keep others from changing the document `file`, and from storing chunks of its array.

    The core locks one byte of the same file for each chunk that it stores (`FileSource.lock`); this
    waits for all of them. Without it, one writer could hold the old file and one the new.
    """
    fd = locks.lock_by_name(file, locks.CONTENT)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


@contextlib.contextmanager
def editing(file: str) -> Iterator[None]:
    """
    `locked`, for who puts another file in the place of the array's own document `file`.

    Who appends holds a lock on that file as well, which would be gone with it.
    """
    with contextlib.ExitStack() as held:
        if not locks.grown_by_me(file):
            held.enter_context(locks.growing(file))
        held.enter_context(locked(file))
        yield


def check_writable(folder: str) -> None:
    """Raise `StorageError` if this process may not write into `folder`."""
    if not os.access(folder, os.W_OK | os.X_OK):
        with durable.os_errors("opening for writing", folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def publish(target: str, build: Callable[[str], None], *, exclusive: bool) -> None:
    """
    Make the folder `target` whole: `build` fills a new folder, which then takes the place of `target`.

    Parameters
    ----------
    target
        If it exists it is replaced, in one step where the system can; its old content is removed.
    build
        Gets the path of an empty folder.
    exclusive
        Raise `StorageError` (``already-exists``) if `target` exists, even if it appears meanwhile.
    """
    parent = os.path.dirname(target)
    with durable.os_errors("creating", target):
        if exclusive and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        _sweep_shelters(parent)
        shelter = durable.begun_name(target)
        fresh = os.path.join(shelter, "new")
        os.mkdir(shelter)
        held = os.open(shelter, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _core.hold_temporary(held)
            os.mkdir(fresh)
            build(fresh)
            _core.move_into_place(fresh, target, os.path.join(shelter, "old"), exclusive)
        except OutcoreError as error:
            # The shelter is nobody's business, and is about to go.
            error.speak_of(target, instead_of=fresh)
            error.path = target
            raise
        finally:
            shutil.rmtree(shelter, ignore_errors=True)
            os.close(held)


def _sweep_shelters(folder: str) -> None:
    """Remove what killed processes left of the folders that they were about to publish here."""
    with contextlib.suppress(OSError):
        with os.scandir(folder or ".") as entries:
            found = [e.path for e in entries if _SHELTER.fullmatch(e.name)]
        for shelter in found:
            _core.remove_orphan(shelter)
