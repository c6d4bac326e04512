"""
The rows of the lane: what is computed, within what, and what it may take.

A row is a value; at a scale every edge is divided by it, and budgets as areas are. The limit of a row is
`streams` times reading the inputs and writing the result once (`stream.py`), or the time of the same
kernel on data in memory (`incore.py`), or the larger of the two; the target is a multiple of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

MIB = 1 << 20
_LEAST_BUDGET = 16 * MIB


@dataclass(frozen=True)
class Input:
    """An array that a row reads: `kind` is a function of `inputs.py`, chunks are those of Zarr."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Of its file."""
        edges = "x".join(map(str, self.shape))
        ending = f"-{'x'.join(map(str, self.chunks))}.zarr" if self.chunks else ".npy"
        return f"{self.kind}-{self.dtype}-{edges}{ending}"

    @property
    def nbytes(self) -> int:
        """Of its elements."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Row:
    """
    A line of the table.

    Attributes
    ----------
    name, what
        What it is called on the command line; what it is.
    task
        The function that computes it, of whoever does.
    inputs, budget
        What is read; bytes of memory.
    words
        Further arguments of the task.
    written
        Bytes of the result on disk; 0 if it is small, and given in memory.
    streams, core
        How often `stream` goes into the limit; whether `core` does.
    target
        What the row may take, as a multiple of its limit.
    """

    name: str
    what: str
    task: str
    inputs: tuple[Input, ...]
    budget: int
    written: int
    streams: int
    core: bool
    target: float
    words: dict[str, Any] = field(default_factory=dict)

    def limit(self, stream: float, core: float) -> float:
        """Seconds that nobody can be below, by what was measured beside it."""
        return max(self.streams * stream, core if self.core else 0.0)

    @property
    def limit_name(self) -> str:
        """In words."""
        parts = [{0: "", 1: "stream", 2: "2 streams"}[self.streams], "core" if self.core else ""]
        return " or ".join(part for part in parts if part)


def rows(scale: int = 1) -> list[Row]:
    """All rows, with edges divided by `scale`."""

    def budget(mib: int) -> int:
        return max(mib * MIB // scale**2, _LEAST_BUDGET)

    wide, side = 32768 // scale, 16384 // scale
    factor, product = 12000 // scale, 12288 // scale
    length = (1 << 29) // scale**2
    half = budget(512)
    big = Input("noise", (wide, wide), "f4")
    slabs = Input("noise", (wide, wide), "f4", (max(128 // scale, 16), wide))
    field8 = Input("noise", (side, side), "f8")
    image = Input("noise", (side, side), "f4")
    signal = Input("noise", (side, side), "c8")
    left, right = (Input(kind, (product, product), "f8") for kind in ("noise", "other"))
    made = [
        Row("transpose", f"{wide}^2 float32 .npy", "transpose", (big,), budget(1024), big.nbytes,
            1, False, 1.4),
        Row("rechunk", f"{wide}^2 float32 Zarr, row slabs to column slabs", "rechunk", (slabs,),
            budget(1024), slabs.nbytes, 1, False, 1.4, {"chunks": slabs.chunks[::-1]}),
        Row("matmul", f"{product}^3 float64", "matmul", (left, right), half, left.nbytes,
            0, True, 1 / 0.95),
    ]  # fmt: skip
    for steps in (1, 10, 100):
        core = steps == 100
        target = 1.5 if core else 1.6
        made.append(
            Row(f"jacobi-{steps}", f"{side}^2 float64, {steps} steps", "jacobi", (field8,), half,
                field8.nbytes, 0 if core else 1, core, target, {"steps": steps})
        )  # fmt: skip
    made.append(
        Row("fft2", f"{side}^2 complex64", "fft2", (signal,), half, signal.nbytes, 2, False, 1.6)
    )
    for name, kind in (("cholesky", "definite"), ("lu", "noise")):
        matrix = Input(kind, (factor, factor), "f8")
        made.append(
            Row(name, f"{factor}^2 float64", name, (matrix,), half, matrix.nbytes,
                0, True, 1 / 0.8)
        )  # fmt: skip
    for size in (3, 5):
        made.append(
            Row(f"median-{size}", f"{size}x{size} of {side}^2 float32", "median", (image,), half,
                image.nbytes, 1, True, 1.5, {"size": size})
        )  # fmt: skip
    reductions = (
        ("sum-0", "sum", {"axis": 0}),
        ("sum-1", "sum", {"axis": 1}),
        ("mean-var", "mean_var", {}),
    )
    for name, task, words in reductions:
        what = "mean and variance in one pass" if not words else f"sum along axis {words['axis']}"
        made.append(
            Row(name, f"{what}, {side}^2 float64", task, (field8,), half, 0, 1, False, 1.15, words)
        )
    made.append(
        Row("sort", f"{length} float64", "sort", (Input("noise", (length,), "f8"),), budget(1024),
            length * 8, 2, True, 1.5)
    )  # fmt: skip
    return made


def chosen(names: Sequence[str], scale: int) -> list[Row]:
    """The rows whose name is, or begins with, one of `names`; all of them if there are none."""
    found = [
        row
        for row in rows(scale)
        if not names or any(row.name == n or row.name.startswith(f"{n}-") for n in names)
    ]
    if not found:
        known = ", ".join(row.name for row in rows())
        raise SystemExit(f"no row is called {', '.join(names)}; rows: {known}")
    return found
