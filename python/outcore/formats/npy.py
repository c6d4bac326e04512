"""
``.npy``, versions 1 to 3: NumPy's own format, one dense array after a short header.

Problem: the header is a Python literal. A file from elsewhere may have a header that is huge, that
states a wrong size, or that requests unpickling.
Approach: the length is limited before reading, the literal is parsed like in `numpy.lib.format`, but in
time proportional to its length, and the result is compared with the size of the file. Objects are
rejected; nothing is ever unpickled.
Invariants: elements are inside the file whose header was read (`Origin`): other programs replace the
file, and `numpy.save` writes another array into the same one. The header has space for any length of
the slowest axis (NumPy pads it too), so `resize` rewrites it in place. Growing: space first, then the
header; shrinking: the header first. In both cases a crash leaves the old or the new array.

Reference: NEP 1 and the docstring of `numpy.lib.format`.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import math
import os
import re
import reprlib
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from outcore import _core
from outcore.errors import FormatError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable, locks, raw
from outcore.formats.format import Format, Resizable
from outcore.formats.layout import ArrayInfo, Origin, Part, Strided
from outcore.formats.spec import Spec, byte_strides, check_dtype, check_shape, make_descr

_MAGIC = b"\x93NUMPY"
_ALIGN = 64
# The elements of large arrays begin at a page: rows of whole pages are then whole pages of the file,
# which are written bypassing the page cache without a page that two rows share.
_PAGE, _LARGE = 4096, 2**20
# Larger headers exist only for structured dtypes of thousands of fields; NumPy itself stops at 10 000
# bytes unless the caller trusts the file.
_MAX_HEADER = 256 * 1024
# Most headers are shorter than this, and many files have the same one.
_READ = 4096
# A header is read twice if the file was changed within this many nanoseconds.
_QUIET = 2_000_000_000
# Digits kept free for the growing axis, as NumPy does (numpy.lib.format.GROWTH_AXIS_MAX_DIGITS).
_GROWTH_DIGITS = 21


class Npy(Format, Resizable):
    """NumPy's own format."""

    name = "npy"
    suffixes = (".npy",)
    checks_marks = True
    plain_orders = ("C", "F")

    def recognise(self, path: str) -> bool:
        """Return whether the file begins with NumPy's magic bytes."""
        return durable.read_beginning(path, len(_MAGIC)) == _MAGIC

    def describe(self, path: str, inner: str | None, writable: bool) -> ArrayInfo:
        """
        Read the header of a ``.npy`` file.

        `FormatError`: the header is invalid, or the file is shorter than the header states.
        `UnsupportedError`: the array holds Python objects.
        """
        raw.check_no_inner("a .npy file", path, inner)
        return _read_file(path, writable=writable)

    def create(self, path: str, inner: str | None, spec: Spec) -> ArrayInfo:
        """Create a ``.npy`` file: header, allocated space that reads as zeros, then the name."""
        raw.check_no_inner("a .npy file", path, inner)
        raw.check_storable(self.name, path, spec, chunks=True, attrs=True, dims=True)
        fortran = spec.order == "F" and len(spec.shape) > 0
        descr = _make_descr(path, spec.dtype)
        align = _PAGE if spec.nbytes >= _LARGE else _ALIGN
        written = _encode(path, descr, fortran, spec.shape, align=align)
        header = written[1]
        made: list[tuple[int, int, int]] = []

        def fill(fd: int) -> None:
            durable.write_all(fd, header, 0)
            _core.allocate(fd, len(header), len(header) + spec.nbytes)
            made.append(_core.file_id(fd))

        durable.create_file(path, fill, exclusive=spec.exclusive)
        order = "F" if fortran else "C"
        return _make_info(path, spec.shape, spec.dtype, order, written, made[0])

    @contextlib.contextmanager
    def lock_length(self, info: ArrayInfo) -> Iterator[ArrayInfo]:
        """Keep others from changing the length; yield the array with the length in its header."""
        part = _get_part(info)
        with locks.lock_length(part.path):
            now = _read_again(info)
            yield _reshape(info, now.shape, _get_part(now).origin)

    def reserve(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Allocate space for a longer array; the header still states the old shape.

        To append so that a crash leaves old or new: `reserve`, write the elements, fsync, `resize`.
        """
        raw.find_growth_axis(info, shape)
        part, longer = _get_part(info), _reshape(info, shape, _get_part(info).origin)
        if _get_part(longer).nbytes > part.nbytes:
            durable.change_length(part.path, _find_end(info), _find_end(longer))
        return longer

    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """Change the length of the slowest axis by rewriting the header in place."""
        raw.find_growth_axis(info, shape)
        path, origin = _get_part(info).path, _get_part(info).origin
        with durable.os_errors("opening", path), builtins.open(path, "rb", buffering=0) as file:
            version, header = _read_header(path, file.fileno())
            same = origin is None or origin.file == _core.file_id(file.fileno())
        old_shape, fortran, dtype = _parse(path, version, header)
        start = len(header)
        if not same or start != _get_part(info).offset or dtype != info.dtype:
            raise _changed_error(path)
        descr = _make_descr(path, dtype)
        _, header = _encode(path, descr, fortran, shape, version, start)
        # Reserved space already has its elements.
        old_end = max(start + math.prod(old_shape) * dtype.itemsize, _find_end(info))
        new_end = start + math.prod(shape) * dtype.itemsize
        if new_end > old_end:
            durable.change_length(path, old_end, new_end)
        with durable.os_errors("resizing", path):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                durable.write_all(fd, header, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        if new_end < old_end:
            durable.change_length(path, old_end, new_end)
        return _reshape(info, shape, origin and replace(origin, header=(0, header)))

    def release(self, info: ArrayInfo) -> None:
        """Release the space that was reserved for an array that did not grow."""
        now = _read_file(_get_part(info).path, writable=True)
        durable.change_length(_get_part(now).path, _find_end(now), _find_end(now))


def _read_file(path: str, *, writable: bool) -> ArrayInfo:
    """Read the header of a file."""
    with durable.os_errors("opening", path):
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            return _read_info(path, fd)
        finally:
            os.close(fd)


def _read_info(path: str, fd: int) -> ArrayInfo:
    seen: bytes | None = None
    while True:
        version, header, size = _read_undisturbed(path, fd)
        shape, fortran, dtype = _parse(path, version, header)
        start, need = len(header), math.prod(shape) * dtype.itemsize
        if start + need <= size:
            order = "F" if fortran else "C"
            return _make_info(path, shape, dtype, order, (version, header), _core.file_id(fd))
        if header == seen:
            raise FormatError(
                f"{path!r} has {size} bytes, but its header requires {start + need} (shape {shape}, "
                f"dtype {dtype!s:.200}, data from byte {start}); the file was cut off, copy it again",
                code="file-too-short",
                path=path,
                offset=size,
            )
        seen = header  # another process may be making it shorter


def _read_again(info: ArrayInfo) -> ArrayInfo:
    """Read the header again; the same array may have another length."""
    path, origin = _get_part(info).path, _get_part(info).origin
    try:
        now = _read_file(path, writable=False)
    except (FormatError, UnsupportedError) as error:
        raise _changed_error(path) from error
    found = _get_part(now).origin
    same = origin is None or found is None or found.file == origin.file
    if not same or _describe_elements(now) != _describe_elements(info):
        raise _changed_error(path)
    return now


def _describe_elements(info: ArrayInfo) -> tuple[object, ...]:
    """Return all properties that determine the elements, except the length of the slowest axis."""
    across = info.shape[1:] if info.order == "C" else info.shape[:-1]
    return len(info.shape), across, info.dtype, info.order, _get_part(info).offset


def _changed_error(path: str) -> StorageError:
    return StorageError(
        f"{path!r} was replaced by another array since it was opened; open it again",
        code="file-changed",
        path=path,
    )


def _read_undisturbed(path: str, fd: int) -> tuple[tuple[int, int], bytes, int]:
    """
    Return the result of `_read_header`, and a size of the file that matches it.

    A process that makes an array longer writes the header last. So the size is read after the header;
    and if the file was changed recently, the header is read until it is the same twice, because another
    process may be writing it.
    """
    found: tuple[tuple[int, int], bytes] | None = None
    while True:
        before, found = found, _read_header(path, fd)
        status = os.fstat(fd)
        if found == before or time.time_ns() - status.st_mtime_ns > _QUIET:
            return *found, status.st_size


def _read_header(path: str, fd: int) -> tuple[tuple[int, int], bytes]:
    """Return the version, and all bytes before the data."""
    # One call is enough for nearly all headers, and for all checks before the rest is read.
    found = os.pread(fd, _READ, 0)
    if found[:6] != _MAGIC or len(found) < 8:
        raise FormatError(
            f"{path!r} is not a .npy file: it begins with {found[:6]!r} instead of {_MAGIC!r}; "
            "check the file, or pass format=",
            code="bad-magic",
            path=path,
            offset=0,
        )
    version = (found[6], found[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise UnsupportedError(
            f"{path!r} is .npy version {version[0]}.{version[1]}, and outcore reads 1.0, 2.0 and 3.0; "
            "save it again with numpy.save, or use a newer outcore",
            code="npy-version",
            path=path,
        )
    prefix = _count_prefix_bytes(version)
    length = int.from_bytes(found[8:prefix], "little")
    start = prefix + length
    if len(found) < start and length <= _MAX_HEADER:
        found = durable.read_at(fd, start, 0)
    if len(found) < start:
        raise FormatError(
            f"{path!r}: the header states {length} bytes, but the file has {os.fstat(fd).st_size} and "
            f"the limit is {_MAX_HEADER}; the file is damaged, copy it again",
            code="bad-header",
            path=path,
            offset=8,
        )
    return version, found[:start]


def _count_prefix_bytes(version: tuple[int, int]) -> int:
    """Return the bytes before the text of the header: magic, version, length."""
    return 10 if version == (1, 0) else 12


@functools.lru_cache(maxsize=256)
def _read_plain_fields(text: str, old: bool) -> tuple[Any, ...]:
    """Parse a short header without fields; cached for hundreds of files of one shape."""
    return _read_fields(text, old)


def _read_fields(text: str, old: bool) -> tuple[Any, ...]:
    """Return shape, order and dtype; `old` headers may be from Python 2."""
    try:
        fields = _parse_literal(text)
    except SyntaxError:
        if not old:
            raise
        # Python 2 wrote long integers as `3L`. NumPy finds them with Python's own tokenizer, which takes
        # a minute for 20 KB of certain blanks.
        fields = _parse_literal(_LONG.sub(lambda found: found[0].removesuffix("L"), text))
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise ValueError(
            f"{reprlib.repr(fields)} does not have the fields descr, fortran_order and shape"
        )
    shape, fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not all(isinstance(n, int) for n in shape):
        raise ValueError(f"shape {reprlib.repr(shape)} is not a tuple of integers")
    if not isinstance(fortran, bool):
        raise ValueError(f"fortran_order {reprlib.repr(fortran)} is not a bool")
    return shape, fortran, npy_format.descr_to_dtype(fields["descr"])


# A string (or text that begins like one), or a long integer of Python 2 outside of a string.
_LONG = re.compile(r"""'(?:[^'\\\n]|\\.)*'?|"(?:[^"\\\n]|\\.)*"?|\b[0-9]+L\b""")


def _parse_literal(text: str) -> Any:
    for turn in range(100):
        try:
            return ast.literal_eval(text)
        except SystemError:
            # CPython 3.11 counts the depth of its parser for all threads together (gh-106905), so
            # concurrent parsing in another thread can cause this error. A lock would not help: it may
            # be held at a fork, and other code parses literals too.
            if turn == 99:
                raise
    raise AssertionError  # the last turn returns or raises


def _parse(
    path: str, version: tuple[int, int], header: bytes
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        text = header[_count_prefix_bytes(version) :]
        words = text.decode("utf-8" if version == (3, 0) else "latin1")
        # A dtype with fields is mutable, so each array has its own.
        read = _read_plain_fields if len(text) < _READ and b"[" not in text else _read_fields
        found = read(words, version != (3, 0))
    except Exception as error:  # NumPy's parser raises a dozen kinds for invalid literals
        raise FormatError(
            f"{path!r}: the header is not a NumPy header ({error!s:.200}); the file is damaged, "
            "copy it again",
            code="bad-header",
            path=path,
            offset=10,
        ) from error
    shape, fortran, dtype = found
    if dtype.subdtype is not None:
        base, below = dtype.subdtype
        shape, dtype = (*shape, *below), base
        if fortran and len(below) < len(shape):
            raise UnsupportedError(
                f"{path!r} has a subarray dtype in Fortran order; save the array with a plain dtype",
                code="bad-dtype",
                path=path,
            )
    dtype = check_dtype(dtype, path, stored=True)
    return check_shape(shape, dtype.itemsize, path, stored=True), bool(fortran), dtype


def _make_descr(path: str, dtype: np.dtype[Any]) -> Any:
    """Return the header's form of a dtype; raise if reading it back would give another dtype."""
    descr = make_descr(dtype, path)
    if npy_format.descr_to_dtype(descr) != dtype:
        raise UsageError(
            f"{path!r}: .npy cannot represent dtype {dtype!r}; save a view with a plain dtype",
            code="bad-dtype",
            path=path,
        )
    return descr


def _encode(
    path: str,
    descr: Any,
    fortran: bool,
    shape: tuple[int, ...],
    version: tuple[int, int] | None = None,
    total: int | None = None,
    align: int = _ALIGN,
) -> tuple[tuple[int, int], bytes]:
    """
    Return the bytes before the data; their number is a multiple of `align`.

    With `version` and `total` the header must have exactly that version and size (rewriting in place);
    otherwise it has the oldest possible version, with space for the growing axis.
    """
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    room = 0
    if shape and total is None:
        room = _GROWTH_DIGITS - len(str(shape[-1 if fortran else 0]))
    for trial in ((1, 0), (2, 0), (3, 0)) if version is None else (version,):
        try:
            body = text.encode("utf-8" if trial == (3, 0) else "latin1")
        except UnicodeEncodeError:
            continue
        prefix = _count_prefix_bytes(trial)
        size = -(-(prefix + len(body) + room + 1) // align) * align if total is None else total
        pad = size - prefix - len(body) - 1
        if pad < 0 or size - prefix > (0xFFFF if trial == (1, 0) else _MAX_HEADER):
            continue
        length = struct.pack("<H" if trial == (1, 0) else "<I", size - prefix)
        return trial, _MAGIC + bytes(trial) + length + body + b" " * pad + b"\n"
    raise UnsupportedError(
        f"{path!r}: the header of {len(text)} characters does not fit "
        f"({'the limit is ' + str(_MAX_HEADER) if total is None else 'the file has ' + str(total)} "
        "bytes); write a new file instead",
        code="header-too-long",
        path=path,
    )


def _make_info(
    path: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    order: str,
    header: tuple[tuple[int, int], bytes],
    file: tuple[int, int, int],
) -> ArrayInfo:
    version, text = header

    def check() -> tuple[int, bytes]:
        origin = _get_part(_read_again(info)).origin
        return origin.header if origin else (0, text)

    part = Part(path, len(text), math.prod(shape) * dtype.itemsize, Origin(file, (0, text), check))
    info = ArrayInfo(
        path=path,
        format=Npy.name,
        shape=shape,
        dtype=dtype,
        layout=Strided((part,), byte_strides(shape, dtype.itemsize, order)),
        order=order,
        extra={"version": f"{version[0]}.{version[1]}", "header_bytes": len(text)},
    )
    return info


def _reshape(info: ArrayInfo, shape: tuple[int, ...], origin: Origin | None) -> ArrayInfo:
    part = replace(_get_part(info), nbytes=math.prod(shape) * info.dtype.itemsize, origin=origin)
    layout = Strided((part,), byte_strides(shape, info.dtype.itemsize, info.order))
    return replace(info, shape=shape, layout=layout)


def _find_end(info: ArrayInfo) -> int:
    """Return the position after the last element."""
    return _get_part(info).offset + _get_part(info).nbytes


def _get_part(info: ArrayInfo) -> Part:
    if not isinstance(info.layout, Strided):
        raise UsageError(f"{info.path!r} is not a .npy array", code="bad-layout", path=info.path)
    return info.layout.parts[0]
