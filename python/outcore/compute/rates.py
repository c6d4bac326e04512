"""Rates of kernels, measured once per process; only predictions use them, no plan depends on them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["count_operations", "measure_product_rate", "measure_seconds"]


def measure_seconds(call: Callable[[], object], times: int = 3) -> float:
    """Return the seconds of the fastest of some calls."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return max(min(seconds), 1e-9)


def count_operations(multiplications: int, dtype: np.dtype[Any]) -> int:
    """Return the real operations of that many multiplications with one addition each."""
    return (8 if dtype.kind == "c" else 2) * multiplications


@functools.cache
def measure_product_rate(char: str) -> float:
    """Return the real operations per second of products of matrices in memory (`numpy.dtype.char`)."""
    n = 384 if char in "fdFD" else 64
    a, out = np.ones((2, n, n), char)
    return count_operations(n**3, a.dtype) / measure_seconds(lambda: np.matmul(a, a, out=out))
