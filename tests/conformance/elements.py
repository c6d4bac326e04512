"""
The slowest possible reader and writer of an `ArrayInfo`: plain Python, element by element or chunk by
chunk, so that a format can be judged without the core.
"""

from __future__ import annotations

import itertools
import zlib

import numpy as np

from outcore.formats.layout import ArrayInfo, Chunked, Codec, Strided, TableSource


def read(info: ArrayInfo) -> np.ndarray:
    """All elements of an array."""
    if isinstance(info.layout, Strided):
        data = b"".join(_bytes(p.path, p.offset, p.nbytes) for p in info.layout.parts)
        return _view(bytearray(data), info.shape, info.dtype, info.layout.strides).copy()
    out = np.empty(info.shape, info.dtype)
    out[...] = np.zeros((), info.dtype) if info.fill_value is None else info.fill_value
    layout = info.layout
    for cell, where, inside, row in _cells(info, layout):
        if row[0] < 0:
            continue
        path = layout.source.path
        data = _decode(_bytes(path, int(row[0]), int(row[1])), layout.codecs, int(row[2]))
        assert len(data) == int(np.prod(layout.chunks)) * info.dtype.itemsize, cell
        out[where] = _view(bytearray(data), layout.chunks, info.dtype, layout.strides)[inside]
    return out


def write(info: ArrayInfo, values: np.ndarray) -> None:
    """Store all elements, into the bytes that the layout names."""
    values = np.asarray(values, info.dtype)
    assert values.shape == info.shape
    layout = info.layout
    if isinstance(layout, Strided):
        buffer = bytearray(sum(p.nbytes for p in layout.parts))
        _view(buffer, info.shape, info.dtype, layout.strides)[...] = values
        start = 0
        for part in layout.parts:
            _store(part.path, part.offset, buffer[start : start + part.nbytes])
            start += part.nbytes
        return
    commits = []
    for cell, where, inside, row in _cells(info, layout):
        nbytes = int(np.prod(layout.chunks)) * info.dtype.itemsize
        buffer = bytearray(nbytes)
        chunk = _view(buffer, layout.chunks, info.dtype, layout.strides)
        if info.fill_value is not None:  # beyond the edge: seen again if the array grows
            chunk[...] = info.fill_value
        chunk[inside] = values[where]
        if layout.codecs:
            commits.append((cell, 0, _encode(bytes(buffer), layout.codecs)))
        else:
            assert row[0] >= 0 and row[1] == nbytes, "an unencoded chunk must be allocated"
            _store(layout.source.path, int(row[0]), buffer)
    if commits:
        assert layout.source.commit is not None
        layout.source.commit(commits)


def _cells(info: ArrayInfo, layout: Chunked):
    assert isinstance(layout.source, TableSource)
    grid = tuple(-(-n // c) for n, c in zip(info.shape, layout.chunks, strict=True))
    table = layout.source.fetch((0,) * len(grid), grid)
    assert table.dtype == np.int64 and table.shape == (int(np.prod(grid)), 3)
    for number, cell in enumerate(itertools.product(*map(range, grid))):
        where, inside = [], []
        for i, c, n in zip(cell, layout.chunks, info.shape, strict=True):
            where.append(slice(i * c, min(n, (i + 1) * c)))
            inside.append(slice(0, min(n, (i + 1) * c) - i * c))
        yield cell, tuple(where), tuple(inside), table[number]


def _view(buffer, shape, dtype, strides):
    return np.ndarray(shape, dtype, buffer if len(buffer) else None, 0, strides)


def _bytes(path: str, offset: int, nbytes: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(nbytes)
    assert len(data) == nbytes, (path, offset, nbytes, len(data))
    return data


def _store(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def _shuffle(data: bytes, size: int, back: bool) -> bytes:
    whole = len(data) // size * size
    rows = (size, whole // size) if back else (whole // size, size)
    return np.frombuffer(data[:whole], "u1").reshape(rows).T.tobytes() + data[whole:]


def _encode(data: bytes, codecs: tuple[Codec, ...]) -> bytes:
    for codec in codecs:
        if codec.name == "shuffle":
            data = _shuffle(data, int(codec.options["itemsize"]), back=False)
        elif codec.name == "deflate":
            data = zlib.compress(data, int(codec.options.get("level", 4)))
        else:
            raise NotImplementedError(codec.name)
    return data


def _decode(data: bytes, codecs: tuple[Codec, ...], mask: int) -> bytes:
    for number, codec in reversed(list(enumerate(codecs))):
        if mask >> number & 1:
            continue
        if codec.name == "shuffle":
            data = _shuffle(data, int(codec.options["itemsize"]), back=True)
        elif codec.name == "deflate":
            data = zlib.decompress(data)
        elif codec.name == "fletcher32":
            data = data[:-4]
        else:
            raise NotImplementedError(codec.name)
    return data
