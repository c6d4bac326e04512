"""
*Core*: the kernel of a row on data in memory, with all cores; run by `worker.py` without a group.

Of what the project has kernels for, its own is taken; else NumPy, SciPy and their BLAS and LAPACK.
Where the data of a row would not fit, a smaller array is timed (`MOST`) and its rate taken: `measured`
says so. Memory is touched before, so that no page has to be found while the clock runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

MOST = {"matmul": 6144, "square": 8192, "sort": 1 << 26}
_rng = np.random.default_rng(3)


def _timed(call: Callable[[], Any], factor: float, measured: str) -> dict[str, Any]:
    start = time.perf_counter()
    call()
    return {"seconds": (time.perf_counter() - start) * factor, "measured": measured}


def _square(n: int, dtype: str) -> tuple[np.ndarray, float]:
    """A square array of at most the edge that is timed, and how many times larger the row's is."""
    m = min(n, MOST["square"])
    real = np.dtype(dtype.replace("c8", "f4"))
    a = _rng.standard_normal((m, m), real).astype(dtype)
    return a, (n / m) ** 2


def matmul(n: int, cores: int, **_: Any) -> dict[str, Any]:
    """BLAS."""
    m = min(n, MOST["matmul"])
    a, b = _rng.standard_normal((m, m)), _rng.standard_normal((m, m))
    c = np.ones((m, m))
    np.matmul(a[:512], b, out=c[:512])
    return _timed(lambda: np.matmul(a, b, out=c), (n / m) ** 3, f"numpy.matmul {m}^3")


def jacobi(n: int, cores: int, steps: int, **_: Any) -> dict[str, Any]:
    """Two arrays, step by step, by the kernel of `outcore.stencil`."""
    a, factor = _square(n, "f8")
    b = a.copy()
    few = min(steps, 10)
    step = _one_step(len(a), cores)

    def run() -> None:
        old, new = a, b
        for _ in range(few):
            step(old, new)
            old, new = new, old

    step(a, b)
    return _timed(run, factor * steps / few, f"StencilPass, {len(a)}^2, two arrays, {few} steps")


def _one_step(n: int, cores: int) -> Callable[[np.ndarray, np.ndarray], Any]:
    from ours import FIVE_POINTS

    from outcore import _core

    places = [(i - 1, j - 1) for i in range(3) for j in range(3) if FIVE_POINTS[i][j]]
    taps = [(place, 0.25, 0.0) for place in places]
    made = _core.StencilPass(
        (n, n),
        taps,
        ("untouched", "untouched"),
        width=1,
        double=True,
        fill=(0.0, 0.0),
        levels=1,
        rows=32,
        columns=None,
        measured=None,
    )
    kept, scratch = np.ones(max(made.kept, 1)), np.ones(made.scratch * cores)
    changes = np.zeros(4)
    return lambda old, new: made.run(old, new, kept, scratch, changes, 0, made.positions)


def fft2(n: int, cores: int, **_: Any) -> dict[str, Any]:
    """scipy.fft with workers."""
    from scipy import fft

    a, factor = _square(n, "c8")
    factor *= math.log2(n) / math.log2(len(a))
    fft.fft2(a[:512, :512], workers=cores)
    return _timed(
        lambda: fft.fft2(a, workers=cores, overwrite_x=True), factor, f"scipy.fft {len(a)}^2"
    )


def cholesky(n: int, cores: int, **_: Any) -> dict[str, Any]:
    """LAPACK, in place."""
    from scipy.linalg.lapack import dpotrf

    a = np.full((n, n), 0.25, order="F")
    a[np.arange(n), np.arange(n)] = n
    dpotrf(np.eye(512, order="F"))  # threads of BLAS are there then
    return _timed(lambda: dpotrf(a, lower=True, clean=False, overwrite_a=True), 1.0, f"potrf {n}^2")


def lu(n: int, cores: int, **_: Any) -> dict[str, Any]:
    """LAPACK, in place."""
    from scipy.linalg.lapack import dgetrf

    a = _rng.standard_normal((n, n)).T
    dgetrf(np.eye(512, order="F"))
    return _timed(lambda: dgetrf(a, overwrite_a=True), 1.0, f"getrf {n}^2")


def median(n: int, cores: int, size: int, **_: Any) -> dict[str, Any]:
    """The kernel of `outcore.ndimage.median_filter`."""
    from outcore import _core

    a, factor = _square(n, "f4")
    out = np.ones_like(a)
    made = _core.RankFilter((size, size), size * size // 2)
    around = np.pad(a, size // 2, mode="symmetric")
    scratch = np.ones(max(made.scratch, 1) * cores, a.dtype)
    return _timed(lambda: made.run(around, out, (0, 0), scratch), factor, f"RankFilter, {len(a)}^2")


def sum(n: int, cores: int, axis: int, **_: Any) -> dict[str, Any]:
    """NumPy, a slab for each core."""
    return _reduced(n, cores, lambda slab: slab.sum(axis), f"numpy.sum axis {axis}")


def mean_var(n: int, cores: int, **_: Any) -> dict[str, Any]:
    """NumPy: mean, and mean of squares."""
    return _reduced(
        n, cores, lambda slab: (slab.mean(0), np.einsum("ij,ij->j", slab, slab)), "NumPy"
    )


def _reduced(n: int, cores: int, kernel: Callable[[np.ndarray], Any], name: str) -> dict[str, Any]:
    a, factor = _square(n, "f8")
    slabs = np.array_split(a, max(len(a) // 256, cores))

    def run() -> None:
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(kernel, slabs))

    return _timed(run, factor, f"{name} {len(a)}^2")


def sort(n: int, cores: int, **_: Any) -> dict[str, Any]:
    """The kernels of `outcore.sort`: sixteen runs, which are merged."""
    from outcore import _core

    m = min(n, MOST["sort"]) // 16 * 16
    words = _rng.standard_normal(m).view(np.uint64)
    out = np.ones(m, np.uint64)
    scratch = np.ones(_core.merge_scratch(16, 8), np.uint64)

    def run() -> None:
        _core.sort_lines(words, 1, "f", m // 16)
        runs = [(n * m // 16, m // 16) for n in range(16)]
        _core.merge_runs(words, runs, 0, out, scratch, 1, "f", True)

    factor = n / m * math.log2(max(n, 2)) / math.log2(max(m, 2))
    return _timed(run, factor, f"sort_lines and merge_runs of {m}")
