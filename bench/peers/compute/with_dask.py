"""
dask.array with threads, as its documentation does such things; chunks as large as the memory allows.

Its `lu` exchanges rows within a diagonal block only, so there is no row of it; it has no `sort`.
"""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr


def _edge(item: int, memory: int, cores: int) -> int:
    """Of square chunks: each thread has some of them at a time, and there are some between threads."""
    return max(int((memory / item / cores / 8) ** 0.5), 16)


def _opened(path: str, chunks: Any) -> da.Array:
    return da.from_array(np.load(path, mmap_mode="r"), chunks=chunks)


def _stored(array: da.Array, out: str) -> None:
    made = np.lib.format.open_memmap(out, "w+", array.dtype, array.shape)
    da.store(array, made, lock=False)
    made.flush()


def _set(cores: int) -> None:
    dask.config.set(scheduler="threads", num_workers=cores)


def transpose(inputs: list[str], out: str, memory: int, cores: int) -> None:
    _set(cores)
    a = _opened(inputs[0], _edge(4, memory, cores))
    _stored(a.T, out)


def rechunk(inputs: list[str], out: str, memory: int, cores: int, chunks: list[int]) -> None:
    _set(cores)
    a = da.from_zarr(inputs[0])
    made = zarr.create_array(
        out, shape=a.shape, chunks=tuple(chunks), dtype=a.dtype, compressors=None, zarr_format=2
    )
    with dask.config.set({"array.chunk-size": memory // 8, "array.rechunk.method": "tasks"}):
        da.store(a.rechunk(tuple(chunks)), made, lock=False)


def matmul(inputs: list[str], out: str, memory: int, cores: int) -> None:
    _set(cores)
    edge = _edge(8, memory, cores)
    _stored(_opened(inputs[0], edge) @ _opened(inputs[1], edge), out)


def jacobi(inputs: list[str], out: str, memory: int, cores: int, steps: int) -> None:
    """Up to ten steps a pass, with as much overlap."""
    _set(cores)
    shape = np.load(inputs[0], mmap_mode="r").shape
    source, names = inputs[0], [out, f"{out}.other.npy"]
    passes = [10] * (steps // 10) + ([steps % 10] if steps % 10 else [])
    if len(passes) % 2 == 0:
        names.reverse()
    for number, count in enumerate(passes):

        def several(block: np.ndarray, count: int = count, block_info: Any = None) -> np.ndarray:
            # Overlap is cut at the array's edges ("none"), where the border stays as it is.
            for _ in range(count):
                new = block.copy()
                new[1:-1, 1:-1] = 0.25 * (
                    block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]
                )
                block = new
            return block

        a = _opened(source, _edge(8, memory, cores))
        done = a.map_overlap(several, depth=count, boundary="none", dtype=a.dtype)
        assert done.shape == shape
        target = names[number % 2]
        _stored(done, target)
        source = target


def fft2(inputs: list[str], out: str, memory: int, cores: int) -> None:
    _set(cores)
    a = np.load(inputs[0], mmap_mode="r")
    high = max(memory // 8 // cores // (a.shape[1] * a.itemsize), 1)
    rows = da.fft.fft(da.from_array(a, chunks=(high, -1)), axis=1)
    columns = da.fft.fft(rows.rechunk((-1, high)), axis=0)
    _stored(columns.astype(a.dtype), out)


def cholesky(inputs: list[str], out: str, memory: int, cores: int) -> None:
    _set(cores)
    n, most = len(np.load(inputs[0], mmap_mode="r")), _edge(8, memory, cores)
    edge = next(edge for edge in range(most, 0, -1) if n % edge == 0)  # all blocks square
    _stored(da.linalg.cholesky(_opened(inputs[0], edge), lower=True), out)


def median(inputs: list[str], out: str, memory: int, cores: int, size: int) -> None:
    from scipy.ndimage import median_filter

    _set(cores)
    a = _opened(inputs[0], _edge(4, memory, cores))
    _stored(
        a.map_overlap(median_filter, depth=size // 2, boundary="reflect", dtype=a.dtype, size=size),
        out,
    )


def _tall(path: str, memory: int, cores: int) -> da.Array:
    a = np.load(path, mmap_mode="r")
    high = max(memory // 8 // cores // (a.shape[1] * a.itemsize), 1)
    return da.from_array(a, chunks=(high, -1))


def sum(inputs: list[str], out: str, memory: int, cores: int, axis: int) -> dict[str, Any]:
    _set(cores)
    found = _tall(inputs[0], memory, cores).sum(axis).compute()
    return {"save": lambda: np.save(out, found)}


def mean_var(inputs: list[str], out: str, memory: int, cores: int) -> dict[str, Any]:
    _set(cores)
    a = _tall(inputs[0], memory, cores)
    found = dask.compute(a.mean(0), a.var(0))
    return {"save": lambda: np.save(out, np.stack(found))}
