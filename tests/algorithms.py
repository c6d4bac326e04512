"""Every algorithm on arrays on disk, as one call that the tests of all of them make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg, ndimage

import outcore

MIB = 2**20


@dataclass
class Case:
    """
    One call of an algorithm.

    Parameters
    ----------
    inputs
        The arrays; each test stores them in files.
    call
        ``call(*inputs, out=..., **how)``.
    expected
        From the inputs in memory, what NumPy gives; a tuple if there are several results.
    memory
        A budget at which there are several steps.
    exact
        Results are equal, not close.
    outs
        Suffixes of the results; none if the result is returned in memory.
    repeatable
        Its journal says how to go on with it.
    begun
        Calls of ``progress`` after which something has been stored.
    bits
        Results are the same bits for any number of ranks.
    """

    inputs: Sequence[np.ndarray]
    call: Callable[..., Any]
    expected: Callable[..., Any]
    memory: int = MIB
    exact: bool = True
    outs: Sequence[str] = (".npy",)
    repeatable: bool = True
    begun: int = 2
    bits: bool = True
    words: dict[str, Any] = field(default_factory=dict)
    #: What makes results equal that are as good as each other.
    alike: Callable[..., tuple[np.ndarray, ...]] = lambda *results: results


def random(*shape, dtype="f8", seed=0):
    return (np.random.default_rng(seed).random(shape) * 1000).astype(dtype)


JACOBI = [[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]]


def jacobi(a, steps):
    for _ in range(steps):
        b = a.copy()
        b[1:-1, 1:-1] = (
            (a[:-2, 1:-1] * a.dtype.type(0.25) + a[1:-1, :-2] * a.dtype.type(0.25))
            + a[1:-1, 2:] * a.dtype.type(0.25)
        ) + a[2:, 1:-1] * a.dtype.type(0.25)
        a = b
    return a


def until(a):
    """Jacobi's steps until no element changes by more than 60."""
    for _ in range(60):
        before, a = a, jacobi(a, 1)
        if np.abs(a - before).max() <= 60.0:
            break
    return a


def positive(n):
    a = random(n, n) / 1000
    return a @ a.T + n * np.eye(n)


def signs_of(*arrays):
    """Q and R, or U, s and Vh, with the signs that make sums of rows of the last one positive."""
    signs = np.where(arrays[-1].sum(1) < 0, -1.0, 1.0)
    return arrays[0] * signs, *arrays[1:-1], arrays[-1] * signs[:, None]


#: By name: made when they are asked for.
CASES: dict[str, Callable[[], Case]] = {
    "transpose": lambda: Case([random(500, 900)], outcore.transpose, np.transpose),
    "transpose of 3 axes": lambda: Case(
        [random(60, 70, 90, dtype="f4")],
        lambda a, **how: outcore.transpose(a, (2, 0, 1), **how),
        lambda a: a.transpose(2, 0, 1),
    ),
    "rechunk": lambda: Case(
        [random(500, 900)],
        lambda a, **how: outcore.rechunk(a, (500, 30), **how),
        lambda a: a,
        outs=[".zarr"],
        words={"compression": None},  # in every process, whatever tests make the default
        memory=2 * MIB,
    ),
    "convert": lambda: Case(
        [random(500, 900)],
        lambda a, out, **how: outcore.convert(a, out, dtype="f4", order="F", **how),
        lambda a: a.astype("f4"),
    ),
    "map_blocks": lambda: Case(
        [random(700, 400), random(400, seed=1)],
        lambda a, b, **how: outcore.map_blocks(
            lambda p, q: (p[1:-1] + q, p[2:] - p[:-2]),
            a,
            b,
            halo=(1, 0),
            boundary="nearest",
            dtype=("f8", "f8"),
            **how,
        ),
        lambda a, b: (
            a + b,
            np.diff(np.pad(a, ((1, 1), (0, 0)), mode="edge"), axis=0)[1:]
            + np.diff(np.pad(a, ((1, 1), (0, 0)), mode="edge"), axis=0)[:-1],
        ),
        outs=[".npy", ".npy"],
        exact=False,
        repeatable=False,
    ),
    "stencil": lambda: Case(
        [random(400, 300)],
        lambda a, **how: outcore.stencil(a, JACOBI, steps=20, boundary="untouched", **how),
        lambda a: jacobi(a, 20),
    ),
    "stencil in several passes": lambda: Case(
        [random(64, 20000, dtype="f4")],
        lambda a, **how: outcore.stencil(a, JACOBI, steps=3, boundary="untouched", **how),
        lambda a: jacobi(a, 3),
        begun=6,
    ),
    "stencil until": lambda: Case(
        [random(300, 400)],
        lambda a, **how: outcore.stencil(
            a, JACOBI, steps=60, until=60.0, boundary="untouched", **how
        ),
        until,
        begun=12,
    ),
    "sort": lambda: Case(
        [random(300_000)], lambda a, **how: outcore.sort(a, **how), lambda a: np.sort(a)
    ),
    "sort of lines": lambda: Case(
        [random(700, 400)],
        lambda a, **how: outcore.sort(a, 0, **how),
        lambda a: np.sort(a, 0),
    ),
    "argsort": lambda: Case(
        [random(200_000, dtype="f4")],
        lambda a, **how: outcore.argsort(a, **how),
        lambda a: np.argsort(a, stable=True),
    ),
    "sum": lambda: Case(
        [random(64, 30_000)],
        lambda a, **how: outcore.sum(a, 0, **how),
        lambda a: np.sum(a, 0),
        exact=False,
        begun=20,
    ),
    "standard deviation": lambda: Case(
        [random(30_000, 40, dtype="f4")],
        lambda a, **how: outcore.std(a, 1, ddof=1, keepdims=True, **how),
        lambda a: np.std(a, 1, ddof=1, keepdims=True),
        exact=False,
    ),
    "cumsum": lambda: Case(
        [random(300, 2_000)],
        lambda a, **how: outcore.cumsum(a, 0, **how),
        lambda a: np.cumsum(a, 0),
    ),
    "nancumsum": lambda: Case(
        [np.where(random(300, 2_000, seed=1) < 100, np.nan, random(300, 2_000))],
        lambda a, **how: outcore.nancumsum(a, 0, **how),
        lambda a: np.nancumsum(a, 0),
    ),
    "quantile of more than fits": lambda: Case(
        [random(300_001)],
        lambda a, **how: outcore.quantile(a, [0.1, 0.5], method="lower", **how),
        lambda a: np.quantile(a, [0.1, 0.5], method="lower"),
        memory=MIB * 3 // 2,
        begun=36,
    ),
    "quantile": lambda: Case(
        [random(3_000, 200)],
        lambda a, **how: outcore.quantile(a, [0.1, 0.5], 1, **how),
        lambda a: np.quantile(a, [0.1, 0.5], 1),
    ),
    "fft": lambda: Case(
        [random(300, 500)],
        lambda a, **how: outcore.fft.fft(a, axis=0, **how),
        lambda a: np.fft.fft(a, axis=0),
        exact=False,
    ),
    "fft of a long signal": lambda: Case(
        [random(300_000)],
        outcore.fft.rfft,
        np.fft.rfft,
        exact=False,
        memory=2 * MIB,
    ),
    "fft of a prime length": lambda: Case(
        [random(50_021)],
        outcore.fft.fft,
        np.fft.fft,
        exact=False,
        begun=12,
    ),
    "fft2": lambda: Case([random(300, 500)], outcore.fft.fft2, np.fft.fft2, exact=False),
    "hfft": lambda: Case(
        [random(300, 500)],
        lambda a, **how: outcore.fft.hfft(a, norm="forward", **how),
        lambda a: np.fft.hfft(a, norm="forward"),
        exact=False,
    ),
    "irfft2": lambda: Case(
        [random(300, 200)],
        lambda a, **how: outcore.fft.irfft2(a, s=(290, 400), **how),
        lambda a: np.fft.irfft2(a, s=(290, 400)),
        exact=False,
    ),
    "cholesky": lambda: Case(
        [positive(300)],
        outcore.linalg.cholesky,
        np.linalg.cholesky,
        exact=False,
        begun=3,
        memory=MIB // 2,
    ),
    "cholesky by tiles": lambda: Case(
        [positive(300)],
        outcore.linalg.cholesky,
        np.linalg.cholesky,
        exact=False,
        begun=40,
        memory=250_000,
    ),
    "lu": lambda: Case(
        [random(300, 300)],
        outcore.linalg.lu,
        linalg.lu,
        outs=[".npy", ".npy", ".npy"],
        exact=False,
    ),
    "lu_factor": lambda: Case(
        [random(300, 300)],
        outcore.linalg.lu_factor,
        linalg.lu_factor,
        outs=[".npy", ".npy"],
        exact=False,
    ),
    "solve": lambda: Case(
        [positive(300), random(300, 20, seed=1)], outcore.linalg.solve, np.linalg.solve, exact=False
    ),
    "apply_along_axis": lambda: Case(
        [random(300, 400)],
        lambda a, **how: outcore.apply_along_axis(np.sort, 0, a, **how),
        lambda a: np.sort(a, axis=0),
        repeatable=False,
    ),
    "matmul by blocks": lambda: Case(
        [random(400, 500), random(500, 300, seed=1)],
        lambda a, b, **how: outcore.matmul(a, b, method="blocks", **how),
        np.matmul,
        exact=False,
        bits=False,
        begun=10,
    ),
    "matmul by slabs": lambda: Case(
        [random(400, 300), random(300, 500, seed=1)],
        lambda a, b, **how: outcore.matmul(a, b, method="slabs", **how),
        np.matmul,
        exact=False,
        bits=False,
    ),
    "sort of all elements": lambda: Case(
        [random(700, 300, dtype="f4")],
        lambda a, **how: outcore.sort(a, None, **how),
        lambda a: np.sort(a, None),
    ),
    "unique": lambda: Case(
        [random(400, 500, dtype="i4")],
        lambda a, **how: outcore.unique(a, True, True, True, **how),
        lambda a: np.unique(a, True, True, True),
        outs=[".npy", ".npy", ".npy", ".npy"],
        memory=2 * MIB,
        begun=8,
    ),
    "unique of rows": lambda: Case(
        [np.where(random(20_000, 6, seed=1) < 1, np.nan, random(20_000, 6) // 400)],
        lambda a, **how: outcore.unique(a, True, True, True, axis=0, **how),
        lambda a: np.unique(a, True, True, True, axis=0),
        outs=[".npy", ".npy", ".npy", ".npy"],
        begun=8,
    ),
    "unique of long rows": lambda: Case(
        [np.repeat(random(8, 15_000) // 100, 5, axis=0)[::-1]],
        lambda a, **how: outcore.unique(a, True, True, True, axis=0, **how),
        lambda a: np.unique(a, True, True, True, axis=0),
        outs=[".npy", ".npy", ".npy", ".npy"],
        begun=8,
    ),
    "searchsorted": lambda: Case(
        [np.sort(random(5_000)), random(400, 500, seed=1)],
        outcore.searchsorted,
        np.searchsorted,
        memory=2 * MIB,
    ),
    "searchsorted with a sorter": lambda: Case(
        [random(5_000), random(400, 500, seed=1), np.argsort(random(5_000))],
        lambda a, v, s, **how: outcore.searchsorted(a, v, sorter=s, **how),
        lambda a, v, s: np.searchsorted(a, v, sorter=s),
        memory=2 * MIB,
    ),
    "tensordot": lambda: Case(
        [random(200, 8, 15), random(15, 180, 8, seed=1)],
        lambda a, b, **how: outcore.tensordot(a, b, axes=((2, 1), (0, 2)), **how),
        lambda a, b: np.tensordot(a, b, axes=((2, 1), (0, 2))),
        exact=False,
        bits=False,
        memory=MIB // 2,
        begun=4,
    ),
    "median_filter": lambda: Case(
        [random(900, 500)],
        lambda a, **how: outcore.ndimage.median_filter(a, 3, **how),
        lambda a: ndimage.median_filter(a, 3),
    ),
    "gaussian_filter": lambda: Case(
        [random(900, 500)],
        lambda a, **how: outcore.ndimage.gaussian_filter(a, 1.5, mode="nearest", **how),
        lambda a: ndimage.gaussian_filter(a, 1.5, mode="nearest"),
    ),
    "uniform_filter": lambda: Case(
        [random(900, 500)],
        lambda a, **how: outcore.ndimage.uniform_filter(a, (3, 5), **how),
        lambda a: ndimage.uniform_filter(a, (3, 5)),
        exact=False,
    ),
    "generic_filter": lambda: Case(
        [random(300, 200)],
        lambda a, **how: outcore.ndimage.generic_filter(a, np.max, 3, **how),
        lambda a: ndimage.generic_filter(a, np.max, 3),
        repeatable=False,
    ),
    "argmin": lambda: Case(
        [random(30_000, 40, dtype="f4")],
        lambda a, **how: outcore.argmin(a, 1, **how),
        lambda a: np.argmin(a, 1),
    ),
    "nanmedian": lambda: Case(
        [np.where(random(3_000, 200, seed=1) < 100, np.nan, random(3_000, 200))],
        lambda a, **how: outcore.nanmedian(a, 1, **how),
        lambda a: np.nanmedian(a, 1),
    ),
    "qr": lambda: Case(
        [random(9_000, 20)],
        outcore.linalg.qr,
        lambda a: tuple(np.linalg.qr(a)),
        outs=[".npy", ".npy"],
        exact=False,
        alike=signs_of,
    ),
    "svd": lambda: Case(
        [random(9_000, 20)],
        lambda a, **how: outcore.linalg.svd(a, full_matrices=False, **how),
        lambda a: tuple(np.linalg.svd(a, full_matrices=False)),
        outs=[".npy", ".npy", ".npy"],
        exact=False,
        alike=signs_of,
    ),
}
