"""
The sections that are timed.

The paper's (Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of
Out-of-Core Arrays", Tables 1, 2, 3 and 5): 4K x 4K there, column-major; here bounds and offsets
times the scale, strides kept. A column-major array is a row-major one with its axes exchanged, so
the keys below are ``[second, first]`` on a row-major file, the same bytes.
"""

from __future__ import annotations

Key = tuple[slice, ...]


def _axis(low: int, high: int, step: int, offset: int, p: int, scale: int) -> slice:
    """Fortran ``low+offset*p : high+offset*p : step``, scaled: bounds and offsets, not strides."""
    shift = offset * p * scale
    return slice((low - 1) * scale + shift, high * scale + shift, step)


_PAPER = {
    # name: (processor, first axis (l, u, s, ov), second axis)
    "T1.I": (0, (1, 100, 1, 0), (1, 100, 1, 0)),
    "T1.II": (0, (200, 300, 1, 0), (200, 300, 1, 0)),
    "T1.III": (0, (400, 800, 1, 0), (400, 800, 1, 0)),
    "T1.IV": (0, (32, 64, 1, 0), (128, 1024, 1, 0)),
    "T1.V": (0, (1, 16, 1, 0), (1, 4096, 1, 0)),
    "T1.VI": (0, (1, 4096, 1, 0), (1, 16, 1, 0)),
    "T2.I": (3, (1, 100, 1, 0), (1, 100, 1, 10)),
    "T2.II": (3, (1, 100, 1, 0), (1, 100, 1, 50)),
    "T2.III": (3, (400, 800, 1, 0), (400, 800, 1, 100)),
    "T2.IV": (3, (1, 4096, 1, 0), (1, 16, 1, 8)),
    "T2.V": (3, (1, 100, 1, 50), (1, 100, 1, 0)),
    "T2.VI": (3, (400, 800, 1, 100), (400, 800, 1, 0)),
    "T2.VII": (3, (1, 16, 1, 8), (1, 4096, 1, 0)),
    "T2.VIII": (3, (200, 400, 1, 100), (200, 400, 1, 100)),
    "T3.I": (2, (1, 100, 1, 0), (1, 100, 1, 100)),
    "T3.II": (2, (1, 100, 1, 100), (1, 100, 1, 0)),
    "T3.III": (2, (200, 400, 1, 200), (512, 1024, 1, 0)),
    "T3.IV": (2, (1, 16, 1, 32), (1, 4096, 1, 0)),
    "T3.V": (2, (200, 400, 1, 200), (1, 512, 1, 200)),
    "T3.VI": (2, (1, 32, 1, 32), (1, 1024, 1, 100)),
    "T5.I": (1, (2, 4096, 16, 0), (2, 4096, 16, 0)),
    "T5.II": (1, (1, 250, 2, 250), (1, 250, 2, 250)),
    "T5.III": (1, (1, 500, 3, 200), (1, 500, 3, 200)),
    "T5.IV": (1, (1, 64, 2, 64), (500, 2500, 3, 0)),
    "T5.V": (1, (500, 2500, 3, 0), (1, 64, 2, 64)),
}


def paper(n: int) -> dict[str, Key]:
    """The paper's sections on an n x n row-major array (n a multiple of 4096)."""
    scale = n // 4096
    return {
        name: (_axis(*second, p, scale), _axis(*first, p, scale))
        for name, (p, first, second) in _PAPER.items()
    }


def common(n: int) -> dict[str, Key]:
    """Shapes that people read every day, on an n x n row-major array."""
    whole = slice(None)
    return {
        "block of rows, contiguous": (slice(n // 4, n // 2), whole),
        "a[::7, ::5]": (slice(None, None, 7), slice(None, None, 5)),
        "one column": (whole, slice(n // 3, n // 3 + 1)),
        "ten columns": (whole, slice(n // 3, n // 3 + 10)),
        "strided window": (slice(n // 8, n // 2, 2), slice(n // 8, n // 2, 3)),
        "left half": (whole, slice(0, n // 2)),
    }


def cube(n: int) -> dict[str, Key]:
    """Slabs and pencils of an n x n x n array."""
    w, m = slice(None), slice(n // 2, n // 2 + 4)
    return {
        "3-d slab [i]": (m, w, w),
        "3-d slab [j]": (w, m, w),
        "3-d slab [k]": (w, w, m),
        "3-d pencil [:, j, k]": (w, m, m),
        "3-d pencil [i, j, :]": (m, m, w),
        "3-d strided": (slice(0, n, 3), slice(0, n, 2), slice(0, n, 2)),
    }


def hyper(n: int) -> dict[str, Key]:
    """Slabs and pencils of an n x n x n x n array."""
    w, m = slice(None), slice(n // 2, n // 2 + 2)
    return {
        "4-d slab [i]": (m, w, w, w),
        "4-d slab [:, j]": (w, m, w, w),
        "4-d slab [..., l]": (w, w, w, m),
        "4-d pencil": (w, m, m, w),
    }


def count(key: Key, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a section."""
    return tuple(len(range(n)[s]) for n, s in zip(shape, key, strict=True))
