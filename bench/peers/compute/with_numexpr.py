"""numexpr: the loops of `by_hand` with its compiled expressions on all cores as kernels."""

from __future__ import annotations

from typing import Any

import by_hand
import numexpr as ne
import numpy as np


def _step(old: np.ndarray, new: np.ndarray, cores: int) -> None:
    names = {
        "n": old[:-2, 1:-1],
        "s": old[2:, 1:-1],
        "w": old[1:-1, :-2],
        "e": old[1:-1, 2:],
    }
    ne.evaluate("0.25 * (n + s + w + e)", names, out=new[1:-1, 1:-1])


def jacobi(inputs: list[str], out: str, memory: int, cores: int, steps: int) -> None:
    ne.set_num_threads(cores)
    by_hand.jacobi(inputs, out, memory, cores, steps, step=_step)


def _slabs(path: str, memory: int) -> Any:
    a = np.load(path, mmap_mode="r")
    each = max(memory // 4 // (a.shape[1] * a.itemsize), 1)
    slab = np.empty((min(each, len(a)), a.shape[1]), a.dtype)
    for part in by_hand.cut(len(a), each):
        yield part, by_hand.read_rows(a, part, slab)


def sum(inputs: list[str], out: str, memory: int, cores: int, axis: int) -> dict[str, Any]:
    ne.set_num_threads(cores)
    found = [
        ne.evaluate("sum(slab, axis=0)" if axis == 0 else "sum(slab, axis=1)", {"slab": slab})
        for _, slab in _slabs(inputs[0], memory)
    ]
    result = np.sum(found, axis=0) if axis == 0 else np.concatenate(found)
    return {"save": lambda: np.save(out, result)}


def mean_var(inputs: list[str], out: str, memory: int, cores: int) -> dict[str, Any]:
    """Sums and sums of squares, in one pass."""
    ne.set_num_threads(cores)
    total, square, count = 0.0, 0.0, 0
    for _, slab in _slabs(inputs[0], memory):
        total = total + ne.evaluate("sum(slab, axis=0)", {"slab": slab})
        square = square + ne.evaluate("sum(slab * slab, axis=0)", {"slab": slab})
        count += len(slab)
    mean = total / count
    return {"save": lambda: np.save(out, np.stack([mean, square / count - mean * mean]))}
