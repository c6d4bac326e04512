"""
Is a result right? By slabs where that is cheap, by samples and residuals where it is not.

Each check gives an empty text, or what is wrong. Samples are drawn by a fixed seed, and have the corners
in. Products and factorisations are multiplied with random vectors (Freivalds, 1979); sorted numbers are
compared as a multiset by sums of their words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from compute.rows import Row

_SLAB = 64 << 20
_SAMPLES = 24


def opened(path: Path) -> Any:
    """An array on disk, read by somebody else's code than ours."""
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r")
    import zarr

    return zarr.open_array(path, mode="r")


def check(row: Row, inputs: list[Path], out: Path) -> str:
    """What is wrong with the result of a row, or nothing."""
    if not out.exists():
        return f"no result {out.name}"
    found, read = opened(out), [opened(path) for path in inputs]
    check = _CHECKS[row.task]
    return check(found, *read, **row.words)


def _slabs(a: Any) -> Iterator[tuple[slice, np.ndarray]]:
    row = max(a.nbytes // max(a.shape[0], 1), 1)
    each = max(_SLAB // row, 1)
    if getattr(a, "chunks", None):
        each = max(each // a.chunks[0], 1) * a.chunks[0]
    for at in range(0, a.shape[0], each):
        part = slice(at, min(at + each, a.shape[0]))
        yield part, np.asarray(a[part])


def _patches(shape: tuple[int, ...], edge: int) -> Iterator[tuple[slice, ...]]:
    """Corners, and places by chance, of at most `edge` in each axis."""
    rng = np.random.default_rng(7)
    high, wide = (max(n - edge, 0) for n in shape)
    places = [(0, 0), (0, wide), (high, 0), (high, wide)]
    places += [(int(rng.integers(high + 1)), int(rng.integers(wide + 1))) for _ in range(_SAMPLES)]
    for i, j in places:
        yield slice(i, min(i + edge, shape[0])), slice(j, min(j + edge, shape[1]))


def _shape(found: Any, wanted: tuple[int, ...]) -> str:
    return "" if found.shape == wanted else f"shape {found.shape}, not {wanted}"


def _transposed(found: Any, a: Any) -> str:
    wrong = _shape(found, a.shape[::-1])
    for i, j in () if wrong else _patches(found.shape, 256):
        if not np.array_equal(found[i, j], a[j, i].T):
            return f"other elements at {i.start}, {j.start}"
    return wrong


def _rechunked(found: Any, a: Any, chunks: list[int]) -> str:
    wrong = _shape(found, a.shape)
    if tuple(found.chunks) != tuple(chunks):
        wrong = f"chunks {found.chunks}, not {tuple(chunks)}"
    for i, j in () if wrong else _patches(found.shape, 64):
        if not np.array_equal(found[i, j], a[i, j]):
            return f"other elements at {i.start}, {j.start}"
    return wrong


def _vector(n: int) -> np.ndarray:
    return np.random.default_rng(8).standard_normal((n, 2))


def _times(a: Any, x: np.ndarray, part: Callable[[np.ndarray, slice], np.ndarray]) -> np.ndarray:
    """A @ x by slabs, each through `part` first."""
    return np.concatenate([part(slab, at) @ x for at, slab in _slabs(a)])


def _times_transposed(
    a: Any, x: np.ndarray, part: Callable[[np.ndarray, slice], np.ndarray]
) -> Any:
    total = np.zeros((a.shape[1], x.shape[1]))
    for at, slab in _slabs(a):
        total += part(slab, at).T @ x[at]
    return total


def _whole(slab: np.ndarray, _: slice) -> np.ndarray:
    return slab


def _lower(slab: np.ndarray, at: slice) -> np.ndarray:
    return np.tril(slab, at.start)


def _upper(slab: np.ndarray, at: slice) -> np.ndarray:
    return np.triu(slab, at.start)


def _strictly_lower(slab: np.ndarray, at: slice) -> np.ndarray:
    return np.tril(slab, at.start - 1)


def _near(found: np.ndarray, wanted: np.ndarray, what: str, tolerance: float = 1e-9) -> str:
    apart = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
    return "" if apart <= tolerance else f"{what}: {apart:.1e} apart"


def _product(found: Any, a: Any, b: Any) -> str:
    x = _vector(b.shape[1])
    wanted = _times(a, _times(b, x, _whole), _whole)
    return _shape(found, (a.shape[0], b.shape[1])) or _near(
        _times(found, x, _whole), wanted, "A (B x) and C x"
    )


def _cholesky(found: Any, a: Any) -> str:
    x = _vector(len(a))
    below = _times(found, _times_transposed(found, x, _lower), _lower)
    return _shape(found, a.shape) or _near(below, _times(a, x, _whole), "L (L^T x) and A x")


def _lu(found: Any, a: Any) -> str:
    wrong = _shape(found, a.shape)
    if wrong:
        return wrong
    where = Path(found.filename)
    order = np.load(where.with_name(f"{where.name}.permutation.npy"))
    if not np.array_equal(np.sort(order), np.arange(len(a))):
        return "the permutation is none"
    x = _vector(len(a))
    upper = _times(found, x, _upper)
    product = upper + _times(found, upper, _strictly_lower)
    growth = max(float(np.abs(_strictly_lower(slab, at)).max()) for at, slab in _slabs(found))
    if growth > 1 + 1e-12:
        return f"an element {growth:.3g} of L: no partial pivoting"
    return _near(product, _times(a, x, _whole)[order], "L (U x) and P A x")


def _stepped(found: Any, a: Any, steps: int) -> str:
    wrong = _shape(found, a.shape)
    for places in () if wrong else _patches(a.shape, 48):
        around = tuple(
            slice(max(p.start - steps, 0), min(p.stop + steps, n))
            for p, n in zip(places, a.shape, strict=True)
        )
        old = np.array(a[around])
        for _ in range(steps):
            new = old.copy()
            new[1:-1, 1:-1] = 0.25 * (
                old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
            )
            old = new
        inside = tuple(
            slice(p.start - w.start, p.stop - w.start) for p, w in zip(places, around, strict=True)
        )
        if not np.allclose(found[places], old[inside], rtol=1e-12, atol=1e-14):
            return f"other elements at {places[0].start}, {places[1].start}"
    return wrong


def _filtered(found: Any, a: Any, size: int) -> str:
    from scipy.ndimage import median_filter

    wrong, halo = _shape(found, a.shape), size // 2
    for places in () if wrong else _patches(a.shape, 64):
        around = tuple(
            slice(max(p.start - halo, 0), min(p.stop + halo, n))
            for p, n in zip(places, a.shape, strict=True)
        )
        inside = tuple(
            slice(p.start - w.start, p.stop - w.start) for p, w in zip(places, around, strict=True)
        )
        # Only at the edges of the array is the edge of this block one.
        wanted = median_filter(np.array(a[around]), size, mode="reflect")[inside]
        if not np.array_equal(found[places], wanted):
            return f"other elements at {places[0].start}, {places[1].start}"
    return wrong


def _spectrum(found: Any, a: Any) -> str:
    """With F the matrix of the transform, the spectrum is F A F, so S x = F (A (F x))."""
    x = _vector(a.shape[1])
    wanted = np.fft.fft(_times(a, np.fft.fft(x, axis=0), _whole), axis=0)
    return _shape(found, a.shape) or _near(
        _times(found, x, _whole), wanted, "S x and F (A (F x))", 1e-5
    )


def _sums(found: Any, a: Any, axis: int) -> str:
    if axis == 0:
        wanted = sum(slab.sum(0, dtype=np.float64) for _, slab in _slabs(a))
    else:
        wanted = np.concatenate([slab.sum(1, dtype=np.float64) for _, slab in _slabs(a)])
    return _shape(found, wanted.shape) or _near(np.asarray(found[:]), wanted, "sums")


def _moments(found: Any, a: Any) -> str:
    total = sum(slab.sum(0, dtype=np.float64) for _, slab in _slabs(a))
    mean = total / len(a)
    variance = sum(((slab - mean) ** 2).sum(0) for _, slab in _slabs(a)) / len(a)
    return (
        _shape(found, (2, a.shape[1]))
        or _near(found[0], mean, "means")
        or _near(found[1], variance, "variances")
    )


def _sorted(found: Any, a: Any) -> str:
    wrong = _shape(found, a.shape)
    if wrong:
        return wrong
    last = -np.inf
    for at, slab in _slabs(found):
        if slab[0] < last or (slab[1:] < slab[:-1]).any():
            return f"not sorted at {at.start} or behind it"
        last = slab[-1]
    return "" if _multiset(found) == _multiset(a) else "other numbers than were there"


def _multiset(a: Any) -> tuple[int, int]:
    """Sums of words and of mixed words, modulo 2^64: the same for any order."""
    plain, mixed = 0, 0
    for _, slab in _slabs(a):
        words = slab.view(np.uint64)
        plain += int(words.sum(dtype=np.uint64))
        folded = (words ^ (words >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
        mixed += int((folded ^ (folded >> np.uint64(29))).sum(dtype=np.uint64))
    return plain % 2**64, mixed % 2**64


_CHECKS: dict[str, Callable[..., str]] = {
    "transpose": _transposed,
    "rechunk": _rechunked,
    "matmul": _product,
    "jacobi": _stepped,
    "fft2": _spectrum,
    "cholesky": _cholesky,
    "lu": _lu,
    "median": _filtered,
    "sum": _sums,
    "mean_var": _moments,
    "sort": _sorted,
}
