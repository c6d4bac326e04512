"""
The slowest possible reader and writer of Zarr layouts, with numcodecs as the judge of codecs, so that
the format can be tested without the core.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import google_crc32c
import numcodecs
import numpy as np

from outcore.formats.layout import ArrayInfo, Chunked, Codec, ShardSource

MISSING = 2**64 - 1


def read(info: ArrayInfo) -> np.ndarray:
    """All elements of an array."""
    out = np.zeros(info.shape, info.dtype)
    if info.fill_value is not None:
        out[...] = info.fill_value
    layout = info.layout
    for cell, where, inside in cells(info.shape, layout.chunks):
        stored = _stored(layout, cell)
        if stored is None:
            continue
        chunk = _view(bytearray(_decode(stored, layout.codecs)), layout, info.dtype)
        out[where] = chunk[inside]
    return out


def write(info: ArrayInfo, values: np.ndarray, padding: int = 0) -> None:
    """Store all elements; what sticks out of the shape is filled with the byte `padding`."""
    values = np.asarray(values, info.dtype)
    assert values.shape == info.shape
    layout = info.layout
    shards: dict[tuple[int, ...], dict[tuple[int, ...], bytes]] = {}
    nbytes = int(np.prod(layout.chunks)) * info.dtype.itemsize
    for cell, where, inside in cells(info.shape, layout.chunks):
        buffer = bytearray([padding]) * nbytes
        _view(buffer, layout, info.dtype)[inside] = values[where]
        data = _encode(bytes(buffer), layout.codecs)
        if isinstance(layout.source, ShardSource):
            per = layout.source.per_shard
            shard = tuple(i // n for i, n in zip(cell, per, strict=True))
            local = tuple(i % n for i, n in zip(cell, per, strict=True))
            shards.setdefault(shard, {})[local] = data
        else:
            file = key(layout.source, cell)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    for shard, chunks in shards.items():
        file = key(layout.source, shard)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_shard(layout.source, chunks))


def cells(shape, chunks):
    """Grid coordinates, section of the array, section of the chunk."""
    grid = [range(-(-n // c)) for n, c in zip(shape, chunks, strict=True)]
    for cell in itertools.product(*grid):
        low = [i * c for i, c in zip(cell, chunks, strict=True)]
        high = [min(n, a + c) for n, a, c in zip(shape, low, chunks, strict=True)]
        where = tuple(map(slice, low, high))
        yield cell, where, tuple(slice(0, b - a) for a, b in zip(low, high, strict=True))


def key(source, cell) -> Path:
    """The file of a chunk or shard, by the rules of `FileSource`."""
    name = source.separator.join(map(str, cell))
    if not cell:
        name = "c" if source.prefix else "0"
        return Path(source.root) / name
    return Path(source.root) / (source.prefix + name)


def _view(buffer: bytearray, layout: Chunked, dtype: np.dtype) -> np.ndarray:
    assert len(buffer) == int(np.prod(layout.chunks)) * dtype.itemsize
    return np.ndarray(layout.chunks, dtype, buffer, 0, layout.strides)


def _stored(layout: Chunked, cell) -> bytes | None:
    source = layout.source
    if not isinstance(source, ShardSource):
        file = key(source, cell)
        return file.read_bytes() if file.exists() else None
    file = key(source, tuple(i // n for i, n in zip(cell, source.per_shard, strict=True)))
    if not file.exists():
        return None
    data = file.read_bytes()
    count = int(np.prod(source.per_shard))
    size = 16 * count + 4 * source.index_crc32c
    index = data[:size] if source.index_at == "start" else data[-size:]
    if source.index_crc32c:
        assert google_crc32c.value(index[:-4]) == struct.unpack("<I", index[-4:])[0]
    table = np.frombuffer(index[: 16 * count], "<u8").reshape(*source.per_shard, 2)
    offset, length = table[tuple(i % n for i, n in zip(cell, source.per_shard, strict=True))]
    return None if offset == MISSING else data[int(offset) : int(offset + length)]


def _shard(source: ShardSource, chunks) -> bytes:
    table = np.full((*source.per_shard, 2), MISSING, "<u8")
    size = table.nbytes + 4 * source.index_crc32c
    body, at = b"", size if source.index_at == "start" else 0
    for local, data in chunks.items():
        table[local] = at + len(body), len(data)
        body += data
    index = table.tobytes()
    if source.index_crc32c:
        index += struct.pack("<I", google_crc32c.value(index))
    return index + body if source.index_at == "start" else body + index


def _codec(codec: Codec):
    options = codec.options
    match codec.name:
        case "deflate":
            return numcodecs.Zlib(int(options["level"]))
        case "gzip":
            return numcodecs.GZip(int(options["level"]))
        case "zstd":
            return numcodecs.Zstd(int(options["level"]), checksum=bool(options["checksum"]))
        case "bzip2":
            return numcodecs.BZ2(int(options["level"]))
        case "lz4":
            return numcodecs.LZ4()
        case "blosc":
            return numcodecs.Blosc(
                cname=str(options["cname"]),
                clevel=int(options["level"]),
                shuffle=int(options["shuffle"]),
                blocksize=int(options["blocksize"]),
            )
        case "shuffle":
            return numcodecs.Shuffle(int(options["itemsize"]))
        case "crc32c":
            return numcodecs.get_codec({"id": "crc32c"})
        case "fletcher32":
            return numcodecs.Fletcher32()
    raise NotImplementedError(codec.name)


def _encode(data: bytes, codecs) -> bytes:
    for codec in codecs:
        item = int(codec.options.get("itemsize", 1)) if codec.name == "blosc" else 1
        buffer = np.frombuffer(data, f"V{item}" if len(data) % item == 0 else "u1")
        data = bytes(_codec(codec).encode(buffer.view("u1") if item == 1 else buffer))
    return data


def _decode(data: bytes, codecs) -> bytes:
    for codec in reversed(codecs):
        data = bytes(np.asarray(_codec(codec).decode(np.frombuffer(data, "u1"))).tobytes())
    return data
