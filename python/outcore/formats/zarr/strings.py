"""
Text and bytes of variable length in Zarr stores.

Problem: a chunk of text holds its elements one after another, each with its length, so its decoded size
is not known in advance.
Approach: the header of the encoded frame states the decoded size. So the core decodes the byte codecs
like those of a chunk of that many bytes; elements are then cut out here: ``vlen-utf8`` and
``vlen-bytes`` are only a count, and lengths (u32).
Invariants: memory for decoded bytes is counted before they are decoded. A frame without a size, and
lengths that do not add up, raise an error.

References: numcodecs, ``VLenUTF8``; zarr-extensions, data type ``string``, codec ``vlen-utf8``.
"""

from __future__ import annotations

import base64
import math
import os
import reprlib
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.base.hints import Hints
from outcore.errors import FormatError
from outcore.formats import durable
from outcore.formats.documents import Document, Judge
from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    Codec,
    FileSource,
    ShardSource,
    TableSource,
)
from outcore.formats.texts import Texts
from outcore.formats.zarr import codecs as zarr_codecs
from outcore.formats.zarr import shards as zarr_shards
from outcore.formats.zarr.chunks import chunk_path

__all__ = ["is_text_v2", "is_text_v3", "make_texts", "parse_pipeline_v2", "parse_pipeline_v3"]

# Dtype in place of an element: the core never sees elements.
STANDS_FOR = np.dtype("u1")

_CODECS = {"vlen-utf8": "utf-8", "vlen-bytes": None}
# Names of data types, and how elements are encoded.
_V3 = {
    "string": "vlen-utf8",
    "variable_length_utf8": "vlen-utf8",
    "bytes": "vlen-bytes",
    "variable_length_bytes": "vlen-bytes",
}
# Codecs whose frames state the decoded size.
_FRAMES = ("zstd", "blosc", "lz4", "gzip", "deflate")


def is_text_v3(document: Document) -> bool:
    """Return whether an array of version 3 has elements of variable length."""
    kind = document.get("data_type")
    name = kind.get("name") if isinstance(kind, dict) else kind
    return isinstance(name, str) and name in _V3


def is_text_v2(document: Document) -> bool:
    """Return whether an array of version 2 has objects that a filter for text or bytes encodes."""
    filters = document.get("filters")
    first = filters[0] if isinstance(filters, list) and filters else None
    name = first.get("id") if isinstance(first, dict) else None
    return document.get("dtype") == "|O" and isinstance(name, str) and name in _CODECS


def parse_pipeline_v3(value: Any, kind: Any, chunks: tuple[int, ...], judge: Judge) -> Any:
    """Return the pipeline from the elements of a chunk to stored bytes, in version 3."""
    name, _ = judge.parse_name(kind, "data_type")
    steps = judge.sequence(value, "codecs")
    if len(steps) == 1 and judge.parse_name(steps[0], "codec")[0] == "sharding_indexed":
        options = judge.parse_name(steps[0], "codec")[1]
        inside = _replace_text_codec(name, options.get("codecs", []), judge)
        shards = {"name": "sharding_indexed", "configuration": {**options, "codecs": inside}}
        plain = [shards]
    else:
        plain = _replace_text_codec(name, steps, judge)
    return _check_pipeline(zarr_codecs.from_v3(plain, chunks, STANDS_FOR, judge), judge)


def _replace_text_codec(name: str, value: Any, judge: Judge) -> list[Any]:
    """Return codecs of text as if its elements were bytes, which is equivalent for the other codecs."""
    steps = judge.sequence(value, "codecs")
    names = [judge.parse_name(step, "codec")[0] for step in steps]
    if _V3[name] not in names or names[0] not in ("transpose", _V3[name]):
        raise judge.make_unsupported_error(f"data_type {name} without the codec {_V3[name]}")
    return [
        {"name": "bytes"} if name in _CODECS else step
        for name, step in zip(names, steps, strict=True)
    ]


def parse_pipeline_v2(document: Document, chunks: tuple[int, ...], judge: Judge) -> Any:
    """Return the pipeline from the elements of a chunk to stored bytes, in version 2."""
    rest = document["filters"][1:] or None
    found = zarr_codecs.from_v2(
        rest, document.get("compressor"), document.get("order"), chunks, STANDS_FOR, judge
    )
    return _check_pipeline(found, judge)


def _check_pipeline(pipeline: Any, judge: Judge) -> Any:
    frames = [codec.name for codec in pipeline.codecs if codec.name != "crc32c"]
    if len(frames) > 1 or any(name not in _FRAMES for name in frames):
        raise judge.make_unsupported_error(
            f"text of variable length with the codecs {', '.join(frames)}"
        )
    return pipeline


def make_texts(info: ArrayInfo, encoding_name: str, missing: Any, judge: Judge) -> Texts:
    """
    Return an array of text from its description without the elements.

    `info` has the dtype `STANDS_FOR`. `encoding_name` is ``vlen-utf8`` or ``vlen-bytes``, and `missing`
    the fill value in the document.
    """
    # In version 2, libraries that have no fill value for objects write 0.
    stated = missing is not None and missing != 0
    missing = missing if stated else ""
    encoding, raw = _CODECS[encoding_name], judge.text(missing, "fill_value").encode()
    if encoding is None:
        try:
            raw = base64.b64decode(raw, validate=True)
        except ValueError:
            raise judge.bad(f"fill_value {reprlib.repr(missing)} is not base64") from None
    chunk = partial(_read_chunk, zarr_shards.IndexCache(_MOST_INDEXES))
    return Texts.of(info, encoding=encoding, missing=raw, stated=stated, chunk=chunk)


def find_codec_v3(document: Document) -> str:
    """Return the codec of the data type of an array of version 3."""
    kind = document["data_type"]
    return _V3[kind["name"] if isinstance(kind, dict) else kind]


def _read_chunk(
    indexes: zarr_shards.IndexCache, info: ArrayInfo, at: tuple[int, ...]
) -> list[bytes] | None:
    """Return all elements of a chunk, in the order in which they are stored; None if it is missing."""
    layout = info.layout
    assert isinstance(layout, Chunked)
    place = _locate(layout, at, indexes)
    if place is None:
        return None
    raw = _decode(place, layout.codecs, info.path)
    if raw is None:
        return None
    with raw[1]:
        return _cut_elements(raw[0], math.prod(layout.chunks), place.file)


class _ChunkLocation(NamedTuple):
    """Position of the bytes of a chunk."""

    file: str
    offset: int
    #: Number of bytes; None: the whole file.
    nbytes: int | None
    #: Bits of the codecs that were skipped.
    mask: int = 0


def _locate(
    layout: Chunked, at: tuple[int, ...], indexes: zarr_shards.IndexCache
) -> _ChunkLocation | None:
    """Return the position of a chunk; None if it is missing."""
    source = layout.source
    if isinstance(source, FileSource):
        return _ChunkLocation(chunk_path(source.root, source.prefix, source.separator, at), 0, None)
    if isinstance(source, ShardSource):
        return _locate_in_shard(source, at, indexes)
    assert isinstance(source, TableSource)
    ((offset, nbytes, mask),) = source.fetch(at, (1,) * len(at)).tolist()
    return None if offset < 0 else _ChunkLocation(source.path, offset, nbytes, mask)


def _locate_in_shard(
    source: ShardSource, at: tuple[int, ...], indexes: zarr_shards.IndexCache
) -> _ChunkLocation | None:
    """Return the position of a chunk in a shard; None if the chunk or the shard is missing."""
    both = list(zip(at, source.per_shard, strict=True))
    shard = [a // k for a, k in both]
    file = chunk_path(source.root, source.prefix, source.separator, shard)
    with durable.open_if_exists(file) as fd:
        if fd is None:
            return None
        found = os.fstat(fd)
        # A rewritten shard has another state.
        state = (file, found.st_ino, found.st_size, found.st_mtime_ns)
        damaged = partial(_damaged_error, file)
        rows = indexes.read(
            state,
            partial(zarr_shards.index, fd, 0, found.st_size, source, "the shard", damaged),
        )
    offset, nbytes, _ = rows[tuple(a % k for a, k in both)].tolist()
    return None if offset < 0 else _ChunkLocation(file, offset, nbytes)


def _damaged_error(file: str, what: str) -> FormatError:
    return FormatError(
        f"{file!r}: {what}; the shard is damaged, write it again",
        code="chunk-table-damaged",
        path=file,
    )


# Maximum number of cached indexes of shards: a walk in the order of the array alternates between the
# shards of a row.
_MOST_INDEXES = 16


def _decode(
    place: _ChunkLocation, codecs: tuple[Codec, ...], path: str
) -> tuple[NDArray[np.uint8], _core.Reservation] | None:
    """Return the decoded bytes of a chunk, with their reservation; None if there is no such file."""
    file, offset, nbytes, mask = place
    codecs = tuple(codec for k, codec in enumerate(codecs) if not mask >> k & 1)
    with durable.open_if_exists(file) as fd:
        if fd is None:
            return None
        nbytes = os.fstat(fd).st_size - offset if nbytes is None else nbytes
        if codecs and codecs[-1].name == "zip":
            size = _find_size(_InflatedBytes(fd, offset, nbytes), codecs[:-1], path)
        else:
            size = _find_size(_StoredBytes(fd, offset, nbytes), codecs, path)
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


class _StoredBytes:
    """The stored bytes of a chunk as a small file: part of the file `fd`."""

    def __init__(self, fd: int, offset: int, nbytes: int) -> None:
        self._fd, self._offset, self.nbytes = fd, offset, nbytes

    def read(self, at: int, nbytes: int) -> bytes:
        """Read at most `nbytes` bytes at a position."""
        return durable.read_at(self._fd, max(min(nbytes, self.nbytes - at), 0), self._offset + at)


class _InflatedBytes:
    """
    The bytes of a chunk that zip has deflated, inflated as far as needed, and counted.

    `offset` and `nbytes` are those of the member, header included.
    """

    def __init__(self, fd: int, offset: int, nbytes: int) -> None:
        header = durable.read_at(fd, 30, offset)
        begin = 30 + sum(int.from_bytes(header[k : k + 2], "little") for k in (26, 28))
        self._raw = _StoredBytes(fd, offset + begin, nbytes - begin)
        self._restart()
        self.nbytes = self._length()
        self._restart()

    def _restart(self) -> None:
        import zlib

        self._inflate, self._from, self._at = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
        self._ahead = b""

    def _piece(self) -> bytes:
        """Return the next bytes; none at the end or if the stream is damaged, which the core reports."""
        import zlib

        while not self._inflate.eof:
            data = self._inflate.unconsumed_tail
            if not data:
                data = self._raw.read(self._from, _PIECE)
                self._from += len(data)
            if not data:
                break
            try:
                some = self._inflate.decompress(data, _PIECE)
            except zlib.error:
                break
            if some:
                return some
        return b""

    def _length(self) -> int:
        length = 0
        while some := self._piece():
            length += len(some)
        return length

    def read(self, at: int, nbytes: int) -> bytes:
        """Read at most `nbytes` bytes at a position."""
        if at < self._at:
            self._restart()
        while at + nbytes > self._at + len(self._ahead):
            some = self._piece()
            if not some:
                break
            keep = self._ahead[max(at - self._at, 0) :]
            self._at, self._ahead = self._at + len(self._ahead) - len(keep), keep + some
        return self._ahead[at - self._at :][:nbytes]


def _find_size(stored: _StoredBytes | _InflatedBytes, codecs: tuple[Codec, ...], path: str) -> int:
    """Return the bytes of a chunk without its codecs."""
    after = 0
    for codec in reversed(codecs):
        if codec.name == "crc32c":
            after += 4
            continue
        found = _find_frame_size(codec.name, stored, stored.nbytes - after, path)
        # The content of the frame may have a separate checksum.
        inside = codecs[: codecs.index(codec)]
        return found - 4 * len(inside)
    return stored.nbytes - after


def _find_frame_size(
    name: str, stored: _StoredBytes | _InflatedBytes, nbytes: int, path: str
) -> int:
    head = stored.read(0, min(nbytes, 18))
    size = None
    if name == "blosc" and len(head) >= 16:
        size = int.from_bytes(head[4:8], "little")
    elif name == "lz4" and len(head) >= 4:
        size = int.from_bytes(head[:4], "little")
    elif name == "gzip" and nbytes >= 18:
        size = int.from_bytes(stored.read(nbytes - 4, 4), "little")
    elif name == "zstd":
        size = _find_zstd_size(head)
    elif name == "deflate":
        size = _count_zlib_bytes(stored, nbytes)
    if size is None:
        raise FormatError(
            f"{path!r}: a chunk does not state how many bytes of text it holds ({name}); it is damaged, "
            "or was written as a stream: write the array again",
            code="bad-text",
            path=path,
        )
    return size


def _find_zstd_size(head: bytes) -> int | None:
    """Return the size of the content in the header of a Zstandard frame (RFC 8878, 3.1.1.1)."""
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None
    flag, single, dictionary = head[4] >> 6, head[4] >> 5 & 1, head[4] & 3
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[dictionary]
    width = (1 if single else 0, 2, 4, 8)[flag]
    if not width or at + width > len(head):
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


def _count_zlib_bytes(stored: _StoredBytes | _InflatedBytes, nbytes: int) -> int | None:
    """Return the size of decoded zlib data, which states none: it is decoded once, piece by piece."""
    import zlib

    decoder, size, at, end = zlib.decompressobj(), 0, 0, nbytes
    try:
        while at < end and not decoder.eof:
            data = stored.read(at, min(_PIECE, end - at))
            if not data:
                break
            at += len(data)
            while data and not decoder.eof:
                size += len(decoder.decompress(data, _PIECE))
                data = decoder.unconsumed_tail
    except zlib.error:
        return None
    return size if decoder.eof else None


_PIECE = 1 << 18


def _cut_elements(raw: NDArray[np.uint8], count: int, file: str) -> list[bytes]:
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
            f"{file!r}: a chunk of text states {told} elements and contains {len(found)}, but should "
            f"have {count}; it is damaged, write it again",
            code="bad-text",
            path=file,
        )
    return found
