"""tensorstore: two passes through square chunks as wide as the memory allows."""

from __future__ import annotations

import shutil
from typing import Any

import tensorstore as ts


def rechunk(inputs: list[str], out: str, memory: int, cores: int, chunks: list[int]) -> None:
    context = ts.Context(
        {"data_copy_concurrency": {"limit": cores}, "file_io_concurrency": {"limit": 8}}
    )

    def spec(path: str) -> dict[str, Any]:
        return {"driver": "zarr", "kvstore": {"driver": "file", "path": path}}

    source = ts.open(spec(inputs[0]), context=context, open=True).result()
    rows, columns = source.shape
    item = source.dtype.numpy_dtype.itemsize
    # A slab that is read, and what becomes of it while it is written.
    high, wide = source.chunk_layout.read_chunk.shape[0], chunks[1]
    unit = max(high, wide)
    edge = max(memory // 4 // (max(rows, columns) * item) // unit, 1) * unit

    def made(path: str, pieces: list[int]) -> Any:
        metadata = {"chunks": pieces, "compressor": None}
        return ts.open(
            {**spec(path), "metadata": metadata},
            context=context,
            create=True,
            dtype=source.dtype,
            shape=source.shape,
        ).result()

    between, target = made(f"{out}.between", [edge, edge]), made(out, chunks)
    for i in range(0, rows, edge):
        part = slice(i, min(i + edge, rows))
        between[part].write(source[part].read().result()).result()
    for j in range(0, columns, edge):
        part = slice(j, min(j + edge, columns))
        target[:, part].write(between[:, part].read().result()).result()
    shutil.rmtree(f"{out}.between")
