"""Every public algorithm, called with random arguments beside what NumPy or SciPy has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, ndimage

import outcore
from outcore.public import find_public, list_public

INTEGERS = ("i1", "u1", "i2", ">i4", "u4", "i8", ">u8")
FLOATS = ("f4", "f8", ">f4", ">f8")
COMPLEX = ("c8", "c16", ">c8", ">c16")
REAL = (*INTEGERS, *FLOATS)
NUMBERS = (*REAL, *COMPLEX)
SHAPES = {
    1: [(1,), (2,), (13,), (1009,), (60,)],
    2: [(1, 17), (17, 1), (11, 13), (40, 53), (1, 1)],
    3: [(3, 5, 7), (1, 6, 1), (12, 2, 19)],
    4: [(2, 3, 4, 5), (1, 7, 1, 3)],
}
EMPTY = [(0,), (0, 4), (3, 0), (2, 0, 3)]
NORMS = (None, "ortho", "forward")
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")


def algorithms() -> dict[str, Callable[..., Any]]:
    """What of `outcore` computes with arrays: by name."""
    return {
        name.rpartition(".")[2]: one
        for name, one in list_public()
        if inspect.isfunction(one)
        and ".compute." in inspect.unwrap(one).__module__
        and not name.startswith("outcore.jobs.")
    }


@dataclass
class Call:
    """
    One call of an algorithm.

    Parameters
    ----------
    inputs
        Arrays that are stored in files.
    call
        ``call(*inputs, **how)``.
    truth
        From the inputs in memory, in native byte order, what NumPy or SciPy gives; or None.
    close
        How far a result may be, in shares of the largest element; 0: equal.
    right
        ``right(results, *inputs)`` instead of `truth`.
    """

    inputs: Sequence[np.ndarray]
    call: Callable[..., Any]
    truth: Callable[..., Any] | None = None
    close: float = 0.0
    right: Callable[..., None] | None = None


class Chance:
    """Draws arguments."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, *values: Any) -> Any:
        """One of these."""
        return values[int(self.rng.integers(len(values)))]

    def number(self, low: int, high: int) -> int:
        """From `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, dims: Sequence[int] = (1, 2, 3, 4), empty: bool = True) -> tuple[int, ...]:
        """With so many axes."""
        if empty and self.rng.random() < 0.08:
            found = [one for one in EMPTY if len(one) in dims]
            if found:
                return self.of(*found)
        return self.of(*SHAPES[self.of(*dims)])

    def array(self, dtypes: Sequence[str] = NUMBERS, shape: Any = None, **more: Any) -> np.ndarray:
        """Numbers of small magnitude; floats in a few digits, so that ties occur."""
        shape = self.shape(**more) if shape is None else shape
        kind = np.dtype(self.of(*dtypes))
        low = 0 if kind.kind in "ub" else -50
        data = self.rng.integers(low, 50, shape)
        if kind.kind in "fc":
            data = data + self.rng.integers(0, 8, shape) / 8
        if kind.kind == "c":
            data = data + 1j * self.rng.integers(-50, 50, shape)
        return np.asarray(data).astype(kind)

    def axis(self, ndim: int) -> int:
        """An axis, counted from either end."""
        return self.number(-ndim, ndim - 1)

    def axes(self, ndim: int) -> Any:
        """None, an axis, or several."""
        many = tuple(k for k in range(ndim) if self.rng.random() < 0.5)
        return self.of(None, self.axis(ndim), many)


def single(data: np.ndarray) -> bool:
    return native(data).dtype in (np.float32, np.complex64)


def tolerance(data: np.ndarray) -> float:
    return 2e-5 if single(data) else 1e-11


def native(data: np.ndarray) -> np.ndarray:
    return data.astype(data.dtype.newbyteorder("="), copy=False)


def reduction(
    name: str, numpy: str | None = None, dtypes: Sequence[str] = NUMBERS, **fixed: Any
) -> Any:
    def made(d: Chance) -> Call:
        a = d.array(dtypes)
        if "prod" in name:
            a = (np.sign(a.real) + (a == 0)).astype(a.dtype)
        if name.startswith("nan") and a.dtype.kind in "fc" and a.size:
            a[d.rng.random(a.shape) < 0.1] = np.nan
        one = name.endswith(("argmin", "argmax")) or "cum" in name
        axis = d.of(None, d.axis(a.ndim)) if one else d.axes(a.ndim)
        words = {"axis": axis, **fixed}
        if "cum" not in name:
            words["keepdims"] = d.of(False, True)
        if name.endswith(("var", "std")):
            words[d.of("ddof", "correction")] = d.of(0, 1)
        if name in CHOOSES and d.rng.random() < 0.5:
            words["where"] = d.rng.random(a.shape) < 0.7
        if name.endswith(("sum", "prod")) or (name in CHOOSES and name.endswith(("min", "max"))):
            words["initial"] = d.of(1, 3)
        if "cum" in name:
            words = {"axis": axis}
        exact = a.dtype.kind in "iu" and name.removeprefix("nan") not in ("mean", "var", "std")
        chosen = name.endswith(("min", "max", "any", "all", "nonzero", "ptp"))
        return Call(
            [a],
            lambda a, **how: find_public(name)(a, **words, **how),
            lambda a: getattr(np, numpy or name)(a, **words),
            0.0 if exact or chosen else 50 * tolerance(a),
        )

    return made


#: Those with ``where=``.
CHOOSES = (
    *("sum", "prod", "mean", "var", "std", "nansum", "nanprod", "nanmean", "nanvar", "nanstd"),
    *("min", "max", "nanmin", "nanmax", "any", "all"),
)


def quantiles(name: str, q: Any) -> Any:
    def made(d: Chance) -> Call:
        a, words = d.array(REAL, empty=False), {"keepdims": d.of(False, True)}
        if name.startswith("nan") and a.dtype.kind == "f":
            a[d.rng.random(a.shape) < 0.3] = np.nan
        words["axis"] = d.axes(a.ndim)
        if words["axis"] == ():
            words["axis"] = None
        args = () if q is None else (d.of(q[0], list(q)),)
        if q is not None:
            words["method"] = d.of("linear", "nearest", "lower", "higher", "hazen")

        def truth(a: Any) -> Any:
            # Where all of the first line is missing, NumPy's has the dtype of `a`.
            dtype = np.asarray(getattr(np, name)(np.nan_to_num(a), *args, **words)).dtype
            return np.asarray(getattr(np, name)(a, *args, **words)).astype(dtype)

        return Call(
            [a],
            lambda a, **how: find_public(name)(a, *args, **words, **how),
            truth,
            tolerance(a),
        )

    return made


def one_transform(name: str) -> Any:
    def made(d: Chance) -> Call:
        a = d.array(REAL if name in ("rfft", "ihfft") else NUMBERS)
        words = {"axis": d.axis(a.ndim), "n": d.of(None, 1, 8, 31), "norm": d.of(*NORMS)}
        return transform(name, a, words)

    return made


def many_transforms(name: str) -> Any:
    def made(d: Chance) -> Call:
        a = d.array(REAL if name.startswith("rfft") else NUMBERS, dims=(2, 3, 4))
        axes = [
            int(k) for k in d.rng.permutation(a.ndim)[: 2 if name[-1] == "2" else d.number(1, 3)]
        ]
        s = d.of(None, [d.number(1, 9) for _ in axes])
        return transform(name, a, {"axes": axes, "s": s, "norm": d.of(*NORMS)})

    return made


def transform(name: str, a: np.ndarray, words: dict[str, Any]) -> Call:
    close = 1e-5 if native(a).dtype in (np.float32, np.complex64) else 1e-12

    def truth(a: np.ndarray) -> np.ndarray:
        # NumPy 2.4 reads past the end of an empty array that it pads: irfft([], n=8) is not zero.
        found = getattr(np.fft, name)(a, **words)
        return found if a.size else np.zeros_like(found)

    return Call([a], lambda a, **how: find_public(name)(a, **words, **how), truth, close)


def window(name: str) -> Any:
    """Filters over a window."""

    def made(d: Chance) -> Call:
        a = d.array((*REAL, "?"), empty=False)
        words: dict[str, Any] = {"mode": d.of(*MODES), "cval": d.of(0.0, 1.0)}
        words["origin"] = d.of(0, 0, -1)
        axes = d.of(None, sorted({d.axis(a.ndim) % a.ndim}))
        if axes is not None:
            words["axes"] = axes
        size = [d.number(1, 3) for _ in axes or a.shape]
        if a.ndim == 1 and a.size < 3:
            words["mode"] = "reflect"  # SciPy's ranks read past the end where it is "mirror"
        words["origin"] = words["origin"] if np.min(size) > 1 else 0
        if a.dtype.kind != "f" or name != "uniform_filter":
            words["output"] = d.of(None, None, "f8", "i8")
        args: tuple[Any, ...] = ()
        if name == "rank_filter":
            args = (0,)
        if name == "percentile_filter":
            args = (40,)
        if name == "generic_filter":
            args = (np.ptp,)

        def truth(a: np.ndarray) -> np.ndarray:
            if "uniform" in name or "generic" in name:
                return getattr(ndimage, name)(a, *args, size=size, **words)
            # SciPy's ranks in one dimension write the bits of the input's dtype into the output.
            own = {**words, "output": None}
            found = getattr(ndimage, name)(a, *args, size=size, **own)
            return found.astype(words["output"] or a.dtype)

        made = native(a).dtype if words.get("output") is None else np.dtype(words["output"])
        close = 5e-5 if made == np.float32 else 1e-11
        close = close if name == "uniform_filter" and made.kind == "f" else 0.0
        return Call(
            [a],
            lambda a, **how: find_public(name)(a, *args, size=size, **words, **how),
            truth,
            close,
        )

    return made


def line_filter(name: str) -> Any:
    """Filters along one axis."""

    def made(d: Chance) -> Call:
        a = d.array(REAL, empty=False)
        words: dict[str, Any] = {"mode": d.of(*MODES), "cval": d.of(0.0, 1.0)}
        words["axis"] = d.axis(a.ndim)
        what = d.of(0.8, 1.5) if name.startswith("gauss") else d.number(1, 7)
        if "co" in name:
            what = d.rng.integers(-3, 4, what) / 8
        elif "gauss" in name:
            words["order"] = d.of(0, 1, 2)
        else:
            words["origin"] = d.of(0, -(what // 2), (what - 1) // 2)
        means = "uniform" in name and a.dtype.kind == "f"
        return Call(
            [a],
            lambda a, **how: find_public(name)(a, what, **words, **how),
            lambda a: getattr(ndimage, name)(a, what, **words),
            5e-5 * means,
        )

    return made


def weighted(name: str) -> Any:
    def made(d: Chance) -> Call:
        a = d.array(empty=False)
        weights = d.rng.integers(-3, 4, [d.number(1, 4) for _ in a.shape]) / 8
        words: dict[str, Any] = {"mode": d.of(*MODES), "cval": d.of(0.0, 3.0)}
        if min(weights.shape) > 2:
            words["origin"] = d.of(0, -1, 1)
        return Call(
            [a],
            lambda a, **how: find_public(name)(a, weights, **words, **how),
            lambda a: getattr(ndimage, name)(a, weights, **words),
        )

    return made


def gaussian(d: Chance) -> Call:
    a = d.array(FLOATS, d.of((13,), (60,), (11, 13), (40, 53), (9, 12, 7)))
    words = {"mode": d.of(*MODES), "order": d.of(0, 1), "truncate": d.of(2.0, 4.0)}
    sigma = d.of(0.7, 1.5)
    return Call(
        [a],
        lambda a, **how: outcore.ndimage.gaussian_filter(a, sigma, **words, **how),
        lambda a: ndimage.gaussian_filter(a, sigma, **words),
        tolerance(a),
    )


def stencil(d: Chance) -> Call:
    a = d.array(("f4", "f8", ">f8", "i4"), dims=(1, 2, 3), empty=False)
    weights = d.rng.integers(-3, 4, (3,) * a.ndim) / 8
    weights.flat[0] = 0.125
    mode, steps = d.of(*MODES), d.number(0, 3)

    def truth(a: np.ndarray) -> np.ndarray:
        a = a if a.dtype.kind == "f" else a.astype("f8")
        for _ in range(steps):
            a = ndimage.correlate(a, weights, mode=mode)
        return a

    return Call(
        [a],
        lambda a, **how: outcore.stencil(a, weights, steps=steps, boundary=mode, **how),
        truth,
        tolerance(a),
    )


def product(name: str) -> Any:
    def made(d: Chance) -> Call:
        kind = d.of("i4", "f4", "f8", "c8", "c16", ">f8")
        k, n, m = d.number(1, 30), d.number(1, 30), d.number(1, 30)
        many = d.of((), (3,))
        shapes = {
            "matmul": d.of(
                ((*many, n, k), (k, m)), ((k,), (k, m)), ((n, k), (k,)), ((0, k), (k, m))
            ),
            "dot": d.of(
                ((k,), (k,)),
                ((n, k), (k, m)),
                ((*many, n, k), (k,)),
                ((n, k), (*many, k, m)),
                ((), (k,)),
            ),
            "inner": d.of(((n, k), (m, k)), ((k,), (k,))),
            "outer": ((n,), (m,)),
            "vdot": d.of(((k,), (k,)), ((n, k), (n, k))),
            "vecdot": d.of(((n, k), (n, k)), ((k,), (k,)), ((n, k), (k,)), ((1, k), (*many, n, k))),
        }[name]
        a, b = (d.array((kind,), one) for one in shapes)
        return Call(
            [a, b],
            lambda a, b, **how: find_public(name)(a, b, **how),
            lambda a, b: getattr(np, name)(a, b),
            tolerance(a) if a.dtype.kind in "fc" else 0.0,
        )

    return made


def tensordot(d: Chance) -> Call:
    kind = d.of("i4", "f8", "c16")
    a, b = d.array((kind,), (4, 3, 5)), d.array((kind,), (5, 6, 3))
    axes = d.of(((2, 1), (0, 2)), ((1,), (2,)), ([2], [0]), 0)
    if axes == 0:
        a = a[0, 0]
    return Call(
        [a, b],
        lambda a, b, **how: outcore.tensordot(a, b, axes, **how),
        lambda a, b: np.tensordot(a, b, axes),
        tolerance(a) if a.dtype.kind in "fc" else 0.0,
    )


def matrix(d: Chance, rows: int, columns: int, kind: str) -> np.ndarray:
    found = d.rng.standard_normal((rows, columns))
    if np.dtype(kind).kind == "c":
        found = found + 1j * d.rng.standard_normal((rows, columns))
    return found.astype(kind)


KINDS = ("f4", "f8", "c8", "c16", ">f8")


def near(expected: np.ndarray, actual: np.ndarray, scale: float, kind: np.dtype) -> None:
    limit = 1e-3 if kind.newbyteorder("=") in (np.float32, np.complex64) else 1e-9
    assert expected.shape == actual.shape
    assert np.abs(expected - actual).max(initial=0.0) <= limit * max(scale, 1.0)


def factorisation(name: str) -> Any:
    def made(d: Chance) -> Call:
        n, kind = d.of(1, 5, 23, 60), d.of(*KINDS)
        tall = matrix(d, n + d.of(0, 7, 300), n, kind)
        square = matrix(d, n, n, kind) + np.asarray(n * np.eye(n), kind)
        b = matrix(d, n, d.number(1, 4), kind)
        b = b[:, 0].copy() if d.of(True, False) else b
        positive = (square @ square.conj().T).astype(kind)

        def pieces(*found: np.ndarray) -> list[np.ndarray]:
            return [native(np.asarray(one)) for one in found]

        def lu(found, a):
            p, lower, upper = pieces(*found)
            near(a, p.astype(a.dtype) @ lower @ upper, n, a.dtype)

        def lu_factor(found, a):
            wanted = linalg.lu_factor(native(a))
            near(wanted[0], found[0], n, a.dtype)
            np.testing.assert_array_equal(wanted[1], found[1])

        def qr(found, a):
            q, r = pieces(*found)
            near(native(a), q @ r, n, a.dtype)
            near(np.eye(q.shape[1]), q.conj().T @ q, n, a.dtype)

        def svd(found, a):
            u, s, vh = pieces(*found)
            near(native(a), (u * s) @ vh, n, a.dtype)
            near(np.linalg.svd(native(a), compute_uv=False), s, n, a.dtype)

        def lstsq(found, a, b):
            wanted = np.linalg.lstsq(native(a), native(b), rcond=None)[0]
            # Both are as far from the truth as the condition says.
            worst = np.linalg.cond(native(a)) * max(np.abs(wanted).max(), 1.0)
            near(wanted, np.asarray(found[0]), worst * (1e-2 if single(a) else 1e-4), a.dtype)

        def solution(found, a, b):
            near(np.linalg.solve(native(a), native(b)), np.asarray(found[0]), 1, a.dtype)

        calls = {
            "cholesky": ([positive], lambda a, **how: outcore.linalg.cholesky(a, **how), None),
            "lu": ([square], lambda a, **how: outcore.linalg.lu(a, **how), lu),
            "lu_factor": ([square], lambda a, **how: outcore.linalg.lu_factor(a, **how), lu_factor),
            "qr": ([tall], lambda a, **how: outcore.linalg.qr(a, **how), qr),
            "svd": ([tall], lambda a, **how: outcore.linalg.svd(a, **how), svd),
            "lstsq": (
                [tall, matrix(d, len(tall), 2, kind)],
                lambda a, b, **how: outcore.linalg.lstsq(a, b, **how),
                lstsq,
            ),
            "solve": ([square, b], lambda a, b, **how: outcore.linalg.solve(a, b, **how), solution),
        }
        inputs, call, right = calls[name]
        if right is None:

            def right(found, a):
                near(np.linalg.cholesky(native(a)), np.asarray(found[0]), n * n, a.dtype)

        return Call(inputs, call, right=right)

    return made


def solved(name: str) -> Any:
    """With factors that SciPy made."""

    def made(d: Chance) -> Call:
        n, kind = d.of(1, 5, 23, 60), d.of("f4", "f8", "c8", "c16")
        square = matrix(d, n, n, kind) + np.asarray(n * np.eye(n), kind)
        b = matrix(d, n, d.number(1, 4), kind)
        if name == "lu_solve":
            lu, pivots = linalg.lu_factor(square)
            trans = d.of(0, 1, 2)

            def right(found, lu, b):
                near(linalg.lu_solve((lu, pivots), b, trans), np.asarray(found[0]), 1, b.dtype)

            return Call(
                [lu, b],
                lambda lu, b, **how: outcore.linalg.lu_solve((lu, pivots), b, trans, **how),
                right=right,
            )
        lower = d.of(True, False)
        c, _ = linalg.cho_factor(square @ square.conj().T, lower=lower)
        c = np.tril(c) if lower else np.triu(c)

        def right(found, c, b):
            near(linalg.cho_solve((c, lower), b), np.asarray(found[0]), 1, b.dtype)

        return Call(
            [c, b], lambda c, b, **how: outcore.linalg.cho_solve((c, lower), b, **how), right=right
        )

    return made


def sorting(name: str) -> Any:
    def made(d: Chance) -> Call:
        a = d.array()
        axis = d.of(None, d.axis(a.ndim))
        words = {"stable": True} if name == "argsort" else {}
        return Call(
            [a],
            lambda a, **how: find_public(name)(a, axis, **how),
            lambda a: getattr(np, name)(a, axis, **words),
        )

    return made


def unique(d: Chance) -> Call:
    a = d.array()
    words = {f"return_{one}": d.of(True, False) for one in ("index", "inverse", "counts")}
    words["axis"] = d.of(None, d.axis(a.ndim))
    return Call(
        [a],
        lambda a, **how: outcore.unique(a, **words, **how),
        lambda a: np.unique(a, **words),
    )


def searchsorted(d: Chance) -> Call:
    kind, side = d.of(*REAL), d.of("left", "right")
    a = native(d.array((kind,), dims=(1,)))
    if d.of(True, False):
        return Call(
            [a.astype(kind), d.array((kind,)), np.argsort(a)],
            lambda a, v, s, **how: outcore.searchsorted(a, v, side, s, **how),
            lambda a, v, s: np.searchsorted(a, v, side, s),
        )
    a = np.sort(a).astype(kind)
    return Call(
        [a, d.array((kind,))],
        lambda a, v, **how: outcore.searchsorted(a, v, side, **how),
        lambda a, v: np.searchsorted(a, v, side),
    )


def bincount(d: Chance) -> Call:
    a, least = abs(d.array(("u1", "i2", "i8"), dims=(1,)).astype("i8")), d.of(0, 80)
    if d.of(True, False):
        return Call(
            [a, d.rng.standard_normal(a.shape).astype(d.of("f4", "i2", ">f8"))],
            lambda a, w, **how: outcore.bincount(a, w, least, **how),
            lambda a, w: np.bincount(a, w, least),
            1e-12,
        )
    return Call(
        [a],
        lambda a, **how: outcore.bincount(a, minlength=least, **how),
        lambda a: np.bincount(a, minlength=least),
    )


def histogram(d: Chance) -> Call:
    a = d.array(REAL, empty=False)
    bins = d.of(10, 7, [-20.0, 0.0, 3.5, 60.0])
    return Call(
        [a],
        lambda a, **how: outcore.histogram(a, bins, **how),
        lambda a: np.histogram(a, bins),
        1e-13,
    )


def statistics(d: Chance) -> Call:
    a = d.array(REAL, empty=False)
    axis = d.axes(a.ndim)
    what = ("sum", "mean", "min", "max", "var")

    def truth(a: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.asarray(getattr(np, one)(a, axis=axis)) for one in what)

    def call(a: Any, **how: Any) -> Any:
        found = outcore.statistics(a, axis, what, **how)
        return tuple(found[one] for one in what) if isinstance(found, dict) else found

    return Call([a], call, truth, 50 * tolerance(a))


def norm(d: Chance) -> Call:
    a = d.array((*FLOATS, *COMPLEX, "i4"), dims=(1, 2, 3), empty=False)
    axis = d.of(None, d.axis(a.ndim))
    power = d.of(None, None if axis is None else 1, None if axis is None else np.inf)
    return Call(
        [a],
        lambda a, **how: outcore.linalg.norm(a, power, axis, **how),
        lambda a: np.linalg.norm(a, power, axis),
        tolerance(a),
    )


def transpose(d: Chance) -> Call:
    a = d.array((*NUMBERS, "?", "S3"))
    axes = d.of(None, tuple(int(k) for k in d.rng.permutation(a.ndim)))
    return Call(
        [a],
        lambda a, **how: outcore.transpose(a, axes, **how),
        lambda a: np.transpose(a, axes),
    )


def rechunk(d: Chance) -> Call:
    a = d.array((*NUMBERS, "?", "S3"))
    chunks = [d.number(1, max(n, 1)) for n in a.shape]

    def call(a: Any, **how: Any) -> Any:
        out = str(how.pop("out", None) or "out.zarr")
        return outcore.rechunk(a, chunks, out=out if ".npy" not in out else None, **how)

    return Call([a], call, lambda a: a)


def convert(d: Chance) -> Call:
    a, order = d.array(), d.of("C", "F")
    dtype = d.of(None, "c16")

    def call(a: Any, **how: Any) -> Any:
        out = how.pop("out", None)
        out = out if isinstance(out, str) else "converted.npy"
        words = {"order": order} if ".npy" in out else {}
        if not isinstance(a, outcore.DiskArray):
            np.save("plain.npy", a)
            a = "plain.npy"
        done = outcore.convert(a, out, dtype=dtype, overwrite=True, **words, **how)
        return done if how.get("explain") else outcore.open(out)

    return Call([a], call, lambda a: a if dtype is None else a.astype(dtype))


def map_blocks(d: Chance) -> Call:
    a = d.array(("i4", "f4", ">f8", "c16"))
    width, mode = d.of(0, 1), d.of(*MODES)
    names = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge"}

    def function(block: np.ndarray) -> np.ndarray:
        inner = (slice(width, block.shape[0] - width), ...)
        return block[inner] + (block[: -2 * width or None] if width else block)

    def truth(a: np.ndarray) -> np.ndarray:
        if not a.size or not width:
            return a + a
        wide = np.pad(a, [(1, 1), *[(0, 0)] * (a.ndim - 1)], mode=names.get(mode, mode))
        return a + wide[:-2]

    halo = (width, *(0,) * (a.ndim - 1))
    return Call(
        [a],
        lambda a, **how: outcore.map_blocks(function, a, halo=halo, boundary=mode, **how),
        truth,
    )


def apply_along_axis(d: Chance) -> Call:
    a = d.array(("i4", "f4", ">f8", "c16"))
    axis = d.axis(a.ndim)
    function = d.of(np.sort, np.ptp, np.cumsum, lambda line: np.outer(line[:2], line[:3]))
    return Call(
        [a],
        lambda a, **how: outcore.apply_along_axis(function, axis, a, **how),
        lambda a: np.apply_along_axis(function, axis, a),
    )


def named(make: Callable[[str], Any], *names: str) -> dict[str, Any]:
    return {name: make(name) for name in names}


SUMS = ("sum", "prod", "mean", "var", "std", "nansum", "nanprod", "nanmean", "nanvar", "nanstd")
ORDERED = ("min", "max", "ptp", "argmin", "argmax", "nanmin", "nanmax", "nanargmin", "nanargmax")

CALLS: dict[str, Callable[[Chance], Call]] = {
    **named(reduction, *SUMS, *ORDERED, "any", "all", "count_nonzero"),
    **named(reduction, "cumsum", "cumprod", "nancumsum", "nancumprod"),
    "quantile": quantiles("quantile", (0.3, 0.5)),
    "percentile": quantiles("percentile", (30, 75)),
    "median": quantiles("median", None),
    "nanquantile": quantiles("nanquantile", (0.3, 0.5)),
    "nanpercentile": quantiles("nanpercentile", (30, 75)),
    "nanmedian": quantiles("nanmedian", None),
    **named(one_transform, "fft", "ifft", "rfft", "irfft", "hfft", "ihfft"),
    **named(
        many_transforms, "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"
    ),
    **named(window, "median_filter", "minimum_filter", "maximum_filter", "uniform_filter"),
    **named(window, "rank_filter", "percentile_filter", "generic_filter"),
    **named(weighted, "correlate", "convolve"),
    **named(line_filter, "uniform_filter1d", "gaussian_filter1d", "correlate1d", "convolve1d"),
    **named(line_filter, "minimum_filter1d", "maximum_filter1d"),
    "gaussian_filter": gaussian,
    "stencil": stencil,
    **named(product, "matmul", "dot", "inner", "outer", "vdot", "vecdot"),
    "tensordot": tensordot,
    **named(factorisation, "cholesky", "lu", "lu_factor", "qr", "svd", "lstsq", "solve"),
    **named(solved, "lu_solve", "cho_solve"),
    **named(sorting, "sort", "argsort"),
    "unique": unique,
    "searchsorted": searchsorted,
    "bincount": bincount,
    "histogram": histogram,
    "statistics": statistics,
    "norm": norm,
    "transpose": transpose,
    "rechunk": rechunk,
    "convert": convert,
    "map_blocks": map_blocks,
    "apply_along_axis": apply_along_axis,
}
