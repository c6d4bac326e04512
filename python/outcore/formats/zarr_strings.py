"""
Text and bytes of variable length in Zarr stores.

Problem. A chunk of text holds its elements one behind the other, each with its length: nobody knows how
many bytes it has before it is decoded. Idea. The encoded chunk says so itself, in the header of its
frame. So its byte codecs are undone by the core, as those of a chunk of that many bytes; elements are
then cut out here, which is all that ``vlen-utf8`` and ``vlen-bytes`` are: a count, and lengths (u32).
Invariants. Memory for what is decoded is counted before it is decoded. A frame that does not say what it
holds, and lengths that do not add up, are refused.

References: numcodecs, ``VLenUTF8``; zarr-extensions, data type ``string``, codec ``vlen-utf8``.
"""

from __future__ import annotations

import base64
import math
import os
import reprlib
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import FormatError
from outcore.formats import durable, zarr_codecs
from outcore.formats.documents import Document, Judge
from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    Codec,
    FileSource,
    TableSource,
)
from outcore.formats.texts import Texts
from outcore.hints import Hints

__all__ = ["described", "is_text_v2", "is_text_v3", "pipeline_v2", "pipeline_v3"]

# What stands in place of an element: the core never sees one.
STANDS_FOR = np.dtype("u1")

_CODECS = {"vlen-utf8": "utf-8", "vlen-bytes": None}
# Names of data types, and how elements are encoded.
_V3 = {
    "string": "vlen-utf8",
    "variable_length_utf8": "vlen-utf8",
    "bytes": "vlen-bytes",
    "variable_length_bytes": "vlen-bytes",
}
# Of these the frame says how many bytes it holds.
_FRAMES = ("zstd", "blosc", "lz4", "gzip", "deflate")


def is_text_v3(document: Document) -> bool:
    """Whether an array of version 3 has elements of variable length."""
    kind = document.get("data_type")
    name = kind.get("name") if isinstance(kind, dict) else kind
    return isinstance(name, str) and name in _V3


def is_text_v2(document: Document) -> bool:
    """The same of version 2: objects that a filter for text or bytes encodes."""
    filters = document.get("filters")
    first = filters[0] if isinstance(filters, list) and filters else None
    name = first.get("id") if isinstance(first, dict) else None
    return document.get("dtype") == "|O" and isinstance(name, str) and name in _CODECS


def pipeline_v3(value: Any, kind: Any, chunks: tuple[int, ...], judge: Judge) -> Any:
    """The way from the elements of a chunk to stored bytes."""
    name, _ = judge.named(kind, "data_type")
    steps = judge.sequence(value, "codecs")
    if steps and judge.named(steps[0], "codec")[0] == "sharding_indexed":
        raise judge.unsupported("text of variable length in shards")
    names = [judge.named(step, "codec")[0] for step in steps]
    if _V3[name] not in names or names[0] not in ("transpose", _V3[name]):
        raise judge.unsupported(f"data_type {name} without the codec {_V3[name]}")
    # To the rest it is as if the elements were bytes.
    plain = [
        {"name": "bytes"} if name in _CODECS else step
        for name, step in zip(names, steps, strict=True)
    ]
    return _checked(zarr_codecs.from_v3(plain, chunks, STANDS_FOR, judge), judge)


def pipeline_v2(document: Document, chunks: tuple[int, ...], judge: Judge) -> Any:
    """The same of version 2."""
    rest = document["filters"][1:] or None
    found = zarr_codecs.from_v2(
        rest, document.get("compressor"), document.get("order"), chunks, STANDS_FOR, judge
    )
    return _checked(found, judge)


def _checked(pipeline: Any, judge: Judge) -> Any:
    frames = [codec.name for codec in pipeline.codecs if codec.name != "crc32c"]
    if len(frames) > 1 or any(name not in _FRAMES for name in frames):
        raise judge.unsupported(f"text of variable length with the codecs {', '.join(frames)}")
    return pipeline


def described(info: ArrayInfo, encoding_name: str, missing: Any, judge: Judge) -> Texts:
    """
    An array of text, of what is known of it but for its elements.

    Parameters
    ----------
    info
        Of dtype `STANDS_FOR`.
    encoding_name
        ``vlen-utf8`` or ``vlen-bytes``.
    missing
        The fill value, as the document has it.
    judge
        Of the document.
    """
    # Of version 2, 0 is what libraries write that have no fill value for objects.
    stated = missing is not None and missing != 0
    missing = missing if stated else ""
    encoding, raw = _CODECS[encoding_name], judge.text(missing, "fill_value").encode()
    if encoding is None:
        try:
            raw = base64.b64decode(raw, validate=True)
        except ValueError:
            raise judge.bad(f"fill_value {reprlib.repr(missing)} is not base64") from None
    told = {one.name: getattr(info, one.name) for one in fields(ArrayInfo)}
    return Texts(**told, encoding=encoding, missing=raw, stated=stated, chunk=_chunk)


def name_v3(document: Document) -> str:
    """The codec of the data type of an array of version 3."""
    kind = document["data_type"]
    return _V3[kind["name"] if isinstance(kind, dict) else kind]


def _chunk(info: ArrayInfo, at: tuple[int, ...]) -> list[bytes] | None:
    """All elements of a chunk, in the order in which they are stored; None if there is none."""
    layout = info.layout
    assert isinstance(layout, Chunked)
    place = _place(layout, at)
    if place is None:
        return None
    file, offset, nbytes = place
    raw = _decoded(file, offset, nbytes, layout.codecs, info.path)
    if raw is None:
        return None
    with raw[1]:
        return _elements(raw[0], math.prod(layout.chunks), file)


def _place(layout: Chunked, at: tuple[int, ...]) -> tuple[str, int, int | None] | None:
    """File, offset and bytes (None: all of the file) of a chunk; None if it is missing."""
    source = layout.source
    if isinstance(source, FileSource):
        name = source.prefix + source.separator.join(map(str, at))
        if not at:
            name = source.prefix.rstrip("/.") or "0"
        return os.path.join(source.root, name), 0, None
    assert isinstance(source, TableSource)
    ((offset, nbytes, _),) = source.fetch(at, (1,) * len(at)).tolist()
    return None if offset < 0 else (source.path, offset, nbytes)


def _decoded(
    file: str, offset: int, nbytes: int | None, codecs: tuple[Codec, ...], path: str
) -> tuple[NDArray[np.uint8], _core.Reservation] | None:
    """The bytes of a chunk without its codecs, counted; None if there is no such file."""
    with durable.os_errors("reading", file):
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            nbytes = os.fstat(fd).st_size - offset if nbytes is None else nbytes
            size = _size(fd, offset, nbytes, codecs, path)
        finally:
            os.close(fd)
    held = _core.Reservation("a chunk of text", max(size, 1))
    try:
        row = np.array([[offset, nbytes, 0]], np.int64)
        source = TableSource(
            file, lambda lo, count, locked=False: row, lambda lo, count, locked=False: _FIRST, None
        )
        layout = Chunked((max(size, 1),), (1,), codecs, source)
        one = ArrayInfo(path, "raw", (size,), STANDS_FOR, layout)
        core = _core.Array(replace(one, format="zarr"), False, Hints())
        try:
            out = np.empty(size, np.uint8)
            core.read(..., out)
        finally:
            core.close()
    except BaseException:
        held.release()
        raise
    return out, held


_FIRST = np.zeros(1, np.int64)


def _size(fd: int, offset: int, nbytes: int, codecs: tuple[Codec, ...], path: str) -> int:
    """How many bytes a chunk has without its codecs."""
    after = 0
    for codec in reversed(codecs):
        if codec.name == "crc32c":
            after += 4
            continue
        found = _in_frame(codec.name, fd, offset, nbytes - after, path)
        # What is inside the frame may have a checksum of its own.
        inside = codecs[: codecs.index(codec)]
        return found - 4 * len(inside)
    return nbytes - after


def _in_frame(name: str, fd: int, offset: int, nbytes: int, path: str) -> int:
    head = durable.read_at(fd, min(nbytes, 18), offset)
    size = None
    if name == "blosc" and len(head) >= 16:
        size = int.from_bytes(head[4:8], "little")
    elif name == "lz4" and len(head) >= 4:
        size = int.from_bytes(head[:4], "little")
    elif name == "gzip" and nbytes >= 18:
        size = int.from_bytes(durable.read_at(fd, 4, offset + nbytes - 4), "little")
    elif name == "zstd":
        size = _zstd_size(head)
    elif name == "deflate":
        size = _zlib_size(fd, offset, nbytes)
    if size is None:
        raise FormatError(
            f"{path!r}: a chunk does not say how many bytes of text it holds ({name}); it is damaged, "
            "or was written as a stream: write the array again",
            code="bad-text",
            path=path,
        )
    return size


def _zstd_size(head: bytes) -> int | None:
    """The size of the content in the header of a Zstandard frame (RFC 8878, 3.1.1.1)."""
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None
    flag, single, dictionary = head[4] >> 6, head[4] >> 5 & 1, head[4] & 3
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[dictionary]
    width = (1 if single else 0, 2, 4, 8)[flag]
    if not width or at + width > len(head):
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


def _zlib_size(fd: int, offset: int, nbytes: int) -> int | None:
    """Zlib has no such field: it is decoded once to count, a piece at a time."""
    import zlib

    decoder, size, at, end = zlib.decompressobj(), 0, offset, offset + nbytes
    try:
        while at < end and not decoder.eof:
            data = durable.read_at(fd, min(_PIECE, end - at), at)
            at += len(data)
            while data and not decoder.eof:
                size += len(decoder.decompress(data, _PIECE))
                data = decoder.unconsumed_tail
    except zlib.error:
        return None
    return size if decoder.eof else None


_PIECE = 1 << 18


def _elements(raw: NDArray[np.uint8], count: int, file: str) -> list[bytes]:
    """Cut elements out of a chunk: their number, then length and bytes of each."""
    data, found, at = raw.data, [], 4
    told = int.from_bytes(data[:4], "little") if len(data) >= 4 else -1
    if told == count:
        for _ in range(count):
            nbytes = int.from_bytes(data[at : at + 4], "little")
            at += 4
            if at > len(data) or at + nbytes > len(data):
                break
            found.append(bytes(data[at : at + nbytes]))
            at += nbytes
    if len(found) != count:
        raise FormatError(
            f"{file!r}: a chunk of text has {told} elements, of which {len(found)} are there, and not "
            f"{count}; it is damaged, write it again",
            code="bad-text",
            path=file,
        )
    return found
