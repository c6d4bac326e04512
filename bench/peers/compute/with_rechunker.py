"""rechunker, with dask's threads."""

from __future__ import annotations

import shutil

import dask
import rechunker
import zarr


def rechunk(inputs: list[str], out: str, memory: int, cores: int, chunks: list[int]) -> None:
    between = f"{out}.between"
    words = {"compressor": None}
    with dask.config.set(scheduler="threads", num_workers=cores):
        plan = rechunker.rechunk(
            zarr.open(inputs[0], mode="r"),
            target_chunks=tuple(chunks),
            # Of each worker.
            max_mem=memory // cores // 2,
            target_store=out,
            target_options=words,
            temp_store=between,
            temp_options=words,
        )
        plan.execute()
    shutil.rmtree(between, ignore_errors=True)
