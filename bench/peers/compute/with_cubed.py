"""cubed with threads: bounded memory by plan, Zarr in between; results are Zarr arrays."""

from __future__ import annotations

from typing import Any

import cubed
import cubed.array_api as xp
import numpy as np


def _spec(out: str, memory: int, cores: int) -> Any:
    # A worker's share; what the imports take is not counted.
    return cubed.Spec(work_dir=f"{out}.between", allowed_mem=memory // cores, reserved_mem=0)


def _executor(cores: int) -> Any:
    from cubed.runtime.create import create_executor

    return create_executor("threads", {"max_workers": cores})


def _edge(item: int, memory: int, cores: int) -> int:
    return max(int((memory / item / cores / 8) ** 0.5), 16)


def _opened(path: str, chunks: Any, spec: Any) -> Any:
    if path.endswith(".zarr"):
        return cubed.from_zarr(path, spec=spec)
    return cubed.from_array(np.load(path, mmap_mode="r"), chunks=chunks, spec=spec)


def _stored(array: Any, out: str, cores: int) -> None:
    cubed.to_zarr(array, out, executor=_executor(cores))
    _clean(out)


def _clean(out: str) -> None:
    import shutil

    shutil.rmtree(f"{out}.between", ignore_errors=True)


def transpose(inputs: list[str], out: str, memory: int, cores: int) -> None:
    a = _opened(inputs[0], _edge(4, memory, cores), _spec(out, memory, cores))
    _stored(xp.permute_dims(a, (1, 0)), out, cores)


def rechunk(inputs: list[str], out: str, memory: int, cores: int, chunks: list[int]) -> None:
    a = _opened(inputs[0], None, _spec(out, memory, cores))
    _stored(a.rechunk(tuple(chunks)), out, cores)


def matmul(inputs: list[str], out: str, memory: int, cores: int) -> None:
    spec, edge = _spec(out, memory, cores), _edge(8, memory, cores)
    a, b = (_opened(path, edge, spec) for path in inputs)
    _stored(xp.matmul(a, b), out, cores)


def jacobi(inputs: list[str], out: str, memory: int, cores: int, steps: int) -> None:
    """Each step an overlap of one, all of them one plan."""
    a = _opened(inputs[0], _edge(8, memory, cores), _spec(out, memory, cores))

    def one(block: np.ndarray, block_id: Any = None) -> np.ndarray:
        return 0.25 * (block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:])

    def stay(old: np.ndarray, new: np.ndarray, block_id: Any = None) -> np.ndarray:
        new = new.copy()
        row, column = block_id
        last_row, last_column = a.numblocks[0] - 1, a.numblocks[1] - 1
        if row == 0:
            new[0] = old[0]
        if row == last_row:
            new[-1] = old[-1]
        if column == 0:
            new[:, 0] = old[:, 0]
        if column == last_column:
            new[:, -1] = old[:, -1]
        return new

    for _ in range(steps):
        stepped = cubed.map_overlap(
            one, a, dtype=a.dtype, chunks=a.chunks, depth=1, boundary=0.0, trim=False
        )
        a = cubed.map_blocks(stay, a, stepped, dtype=a.dtype)
    _stored(a, out, cores)


def sum(inputs: list[str], out: str, memory: int, cores: int, axis: int) -> dict[str, Any]:
    a = _opened(inputs[0], _edge(8, memory, cores), _spec(out, memory, cores))
    found = xp.sum(a, axis=axis).compute(executor=_executor(cores))
    _clean(out)
    return {"save": lambda: np.save(out, found)}


def mean_var(inputs: list[str], out: str, memory: int, cores: int) -> dict[str, Any]:
    a = _opened(inputs[0], _edge(8, memory, cores), _spec(out, memory, cores))
    found = cubed.compute(xp.mean(a, axis=0), xp.var(a, axis=0), executor=_executor(cores))
    _clean(out)
    return {"save": lambda: np.save(out, np.stack(found))}
