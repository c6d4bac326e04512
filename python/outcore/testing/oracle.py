"""
Reference reader: reads an array by its `ArrayInfo`, element by element, without the core.

Problem: planners, executors and formats must agree on every byte, and tests need an independent
reference.
Approach: the simplest possible reader: for each element, compute its address and read its bytes. It is
slow and shares nothing with the code under test. Chunks with codecs are decoded by other libraries
(zlib, and numcodecs if installed).
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    Codec,
    FileSource,
    ShardSource,
    Strided,
    TableSource,
)

__all__ = ["read_all"]

Index = tuple[int, ...]


def read_all(info: ArrayInfo) -> NDArray[Any]:
    """
    Return all elements of an array, read one at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from outcore import formats
    >>> np.save("small.npy", np.arange(6).reshape(2, 3))
    >>> read_all(formats.open_info("small.npy"))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    item = info.dtype.itemsize
    fetch = _Strided(info) if isinstance(info.layout, Strided) else _Chunked(info, info.layout)
    elements = [fetch.element(i, item) for i in itertools.product(*map(range, info.shape))]
    flat = np.frombuffer(b"".join(elements), np.uint8).copy()
    return (
        flat.view(info.dtype).reshape(info.shape) if elements else np.empty(info.shape, info.dtype)
    )


class _Strided:
    def __init__(self, info: ArrayInfo) -> None:
        assert isinstance(info.layout, Strided)
        self._strides = info.layout.strides
        pieces = []
        for part in info.layout.parts:
            with open(part.path, "rb") as file:
                file.seek(part.offset)
                pieces.append(file.read(part.nbytes))
        self._bytes = b"".join(pieces)

    def element(self, index: Index, item: int) -> bytes:
        at = sum(i * s for i, s in zip(index, self._strides, strict=True))
        return self._bytes[at : at + item]


class _Chunked:
    def __init__(self, info: ArrayInfo, layout: Chunked) -> None:
        self._layout = layout
        self._fill = (
            bytes(info.dtype.itemsize)
            if info.fill_value is None
            else np.full((), info.fill_value, info.dtype).tobytes()
        )
        self._size = math.prod(layout.chunks) * info.dtype.itemsize
        self._chunks: dict[Index, bytes | None] = {}

    def element(self, index: Index, item: int) -> bytes:
        layout = self._layout
        place = tuple(i // c for i, c in zip(index, layout.chunks, strict=True))
        if place not in self._chunks:
            self._chunks[place] = self._load(place)
        chunk = self._chunks[place]
        if chunk is None:
            return self._fill
        inside = (i % c for i, c in zip(index, layout.chunks, strict=True))
        at = sum(i * s for i, s in zip(inside, layout.strides, strict=True))
        return chunk[at : at + item]

    def _load(self, place: Index) -> bytes | None:
        source = self._layout.source
        if isinstance(source, TableSource):
            (row,) = source.fetch(place, (1,) * len(place))
            if row[0] < 0:
                return None
            with open(source.path, "rb") as file:
                file.seek(int(row[0]))
                stored, mask = file.read(int(row[1])), int(row[2])
        elif isinstance(source, ShardSource):
            found = _in_shard(source, place)
            if found is None:
                return None
            stored, mask = found, 0
        else:
            assert isinstance(source, FileSource), "no oracle reads virtual arrays"
            path = _chunk_path(source, place)
            if not os.path.exists(path):
                return None
            with open(path, "rb") as file:
                stored, mask = file.read(), 0
        for number in reversed(range(len(self._layout.codecs))):
            if not mask >> number & 1:
                stored = _decode(self._layout.codecs[number], stored)
        assert len(stored) == self._size, f"chunk {place}: {len(stored)} bytes, not {self._size}"
        return stored


def _chunk_path(source: FileSource | ShardSource, place: Index) -> str:
    if place:
        name = source.prefix + source.separator.join(map(str, place))
    else:
        name = source.prefix.rstrip("/") or "0"
    return os.path.join(source.root, name)


def _in_shard(source: ShardSource, place: Index) -> bytes | None:
    shard = tuple(i // n for i, n in zip(place, source.per_shard, strict=True))
    path = _chunk_path(source, shard)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        content = file.read()
    size = 16 * math.prod(source.per_shard) + 4 * source.index_crc32c
    index = content[:size] if source.index_at == "start" else content[-size:]
    number = 0
    for i, n in zip(place, source.per_shard, strict=True):
        number = number * n + i % n
    offset, length = struct.unpack_from("<QQ", index, 16 * number)
    return None if offset == 2**64 - 1 else content[offset : offset + length]


def _decode(codec: Codec, stored: bytes) -> bytes:
    if codec.name == "deflate":
        return zlib.decompress(stored)
    if codec.name == "gzip":
        return zlib.decompress(stored, wbits=31)
    if codec.name in ("crc32c", "fletcher32"):
        return stored[:-4]
    if codec.name == "shuffle":
        item = int(codec.options.get("itemsize", 1))
        whole = len(stored) // item * item
        planes = np.frombuffer(stored[:whole], np.uint8).reshape(item, -1)
        return planes.T.tobytes() + stored[whole:]
    import numcodecs

    if codec.name in ("zstd", "lz4", "blosc"):
        return bytes(numcodecs.get_codec({"id": codec.name}).decode(stored))
    raise NotImplementedError(f"the oracle knows no codec {codec.name!r}")
