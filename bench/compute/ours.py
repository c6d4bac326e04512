"""outcore itself, through its public functions; run by `worker.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

import outcore

# Function that each task calls.
_CALLS = {
    "transpose": outcore.transpose,
    "rechunk": outcore.rechunk,
    "matmul": outcore.matmul,
    "jacobi": outcore.stencil,
    "fft2": outcore.fft.fft2,
    "cholesky": outcore.linalg.cholesky,
    "lu": outcore.linalg.lu_factor,
    "median": outcore.ndimage.median_filter,
    "sum": outcore.sum,
    "mean_var": outcore.statistics,
    "sort": outcore.sort,
}
FIVE_POINTS = ((0.0, 0.25, 0.0), (0.25, 0.0, 0.25), (0.0, 0.25, 0.0))


def _call(task: str, *arguments: Any, memory: int, **words: Any) -> Any:
    outcore.memory(memory)
    return _CALLS[task](*arguments, memory=memory, **words)


def transpose(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """`outcore.transpose`."""
    _call("transpose", inputs[0], (1, 0), out=out, memory=memory)


def rechunk(inputs: list[str], out: str, memory: int, cores: int, chunks: list[int]) -> None:
    """`outcore.rechunk`."""
    _call("rechunk", inputs[0], tuple(chunks), out=out, memory=memory, compression="none")


def matmul(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """`outcore.matmul`."""
    _call("matmul", *inputs, out=out, memory=memory)


def jacobi(inputs: list[str], out: str, memory: int, cores: int, steps: int) -> None:
    """`outcore.stencil` with the mean of four neighbours; the border stays."""
    weights = np.array(FIVE_POINTS)
    _call("jacobi", inputs[0], weights, boundary="untouched", steps=steps, out=out, memory=memory)


def fft2(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """`outcore.fft.fft2`."""
    _call("fft2", inputs[0], out=out, memory=memory)


def cholesky(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """`outcore.linalg.cholesky`, the lower factor."""
    _call("cholesky", inputs[0], out=out, memory=memory)


def lu(inputs: list[str], out: str, memory: int, cores: int) -> dict[str, Any]:
    """`outcore.linalg.lu_factor`; its interchanges as the order of rows."""
    _, interchanged = _call("lu", inputs[0], out=out, memory=memory)
    permutation = np.arange(len(interchanged))
    for i, other in enumerate(interchanged.tolist()):
        permutation[[i, other]] = permutation[[other, i]]
    return {"save": lambda: np.save(f"{out}.permutation.npy", permutation)}


def median(inputs: list[str], out: str, memory: int, cores: int, size: int) -> None:
    """`outcore.ndimage.median_filter`."""
    _call("median", inputs[0], size, mode="reflect", out=out, memory=memory)


def sum(inputs: list[str], out: str, memory: int, cores: int, axis: int) -> dict[str, Any]:
    """`outcore.sum`."""
    found = _call("sum", inputs[0], axis=axis, memory=memory)
    return {"save": lambda: np.save(out, np.asarray(found))}


def mean_var(inputs: list[str], out: str, memory: int, cores: int) -> dict[str, Any]:
    """Mean and variance along axis 0, in one pass."""
    found = _call("mean_var", inputs[0], axis=0, what=("mean", "var"), memory=memory)
    return {"save": lambda: np.save(out, np.stack([found["mean"], found["var"]]))}


def sort(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """`outcore.sort`."""
    _call("sort", inputs[0], out=out, memory=memory)
