"""
Tables 3, 4 and 13 of the PASSION report on this machine, by what `outcore` has for them.

| table | the report                               | here
|
|-------|------------------------------------------|-----------------------------------------------------|
| 3     | Jacobi, 10 iterations, three ways        | `stencil`: a pass for each step; all in one pass
| | 4     | FFT with slabs of 1/16 to 1/2            | `fft2` with such a part of the array as its
budget   | | 13    | product, without and with prefetching    | `matmul(prefetch=False)` and `True`
|

One process, files of the report's sizes, the source cold; the result is durable. Memory is an eighth
of an array where the report does not say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import outcore
from compute.ours import FIVE_POINTS
from harness import Row, evict, interleave
from outcore.model.machines import tables

_LEAST = 1 << 20


def _array(folder: Path, name: str, shape: tuple[int, ...], dtype: str) -> Path:
    path = folder / f"papers-{name}-{'x'.join(map(str, shape))}.npy"
    if not path.exists():
        rng = np.random.default_rng(5)
        data = rng.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            data = data + 1j * rng.standard_normal(shape)
        np.save(path, data.astype(dtype))
    return path


class _Table:
    """Rows of one table: each with ways to compute the same result."""

    def __init__(self, folder: Path, repeat: int) -> None:
        self.folder, self._repeat = folder, repeat
        self.out = folder / "papers-result.npy"

    def row(
        self,
        name: str,
        inputs: list[Path],
        ways: dict[str, Callable[[], Any]],
        right: Callable[[np.ndarray], bool],
    ) -> Row:
        """Time all ways, interleaved."""

        def before(_way: str) -> None:
            for path in self.folder.glob("papers-result*"):
                path.unlink()
            evict(inputs)

        def timed(call: Callable[[], Any]) -> Callable[[], None]:
            def run() -> None:
                made = call()
                made.close()
                fd = os.open(self.out, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)

            return run

        row = interleave(
            Row(name, sum(path.stat().st_size for path in inputs)),
            {way: timed(call) for way, call in ways.items()},
            repeat=self._repeat,
            before=before,
            check=lambda way: right(np.load(self.out)),
        )
        before("")
        return row


def _memory(nbytes: int) -> int:
    return max(nbytes, _LEAST)


def laplace(folder: Path, repeat: int) -> dict[str, Row]:
    """Table 3: rows are shapes."""
    table, weights = _Table(folder, repeat), np.array(FIVE_POINTS)
    found = {}
    for shape in dict.fromkeys(cell.shape for cell in tables.passion(3)):
        source = _array(folder, "field", shape, "f4")
        words = {"boundary": "untouched", "memory": _memory(source.stat().st_size // 8)}
        other = folder / "papers-result-other.npy"

        def step_by_step(
            source: Path = source, words: dict[str, Any] = words, other: Path = other
        ) -> Any:
            here: Path = source
            for number in range(10):
                target = table.out if number % 2 else other
                made = outcore.stencil(here, weights, out=target, overwrite=True, **words)
                if number < 9:
                    made.close()
                here = target
            return made

        def at_once(source: Path = source, words: dict[str, Any] = words) -> Any:
            return outcore.stencil(source, weights, steps=10, out=table.out, **words)

        old = np.load(source)
        for _ in range(10):
            new = old.copy()
            new[1:-1, 1:-1] = 0.25 * (
                old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
            )
            old = new
        name = f"{shape[0]} x {shape[1]}"
        found[name] = table.row(
            name,
            [source],
            {"a pass for each step": step_by_step, "one pass": at_once},
            lambda result, old=old: bool(np.allclose(result, old, rtol=1e-5, atol=1e-5)),
        )
    return found


def fft(folder: Path, repeat: int) -> dict[str, Row]:
    """Table 4: one row; ways are budgets."""
    table = _Table(folder, repeat)
    (shape,) = {cell.shape for cell in tables.passion(4)}
    source = _array(folder, "signal", shape, "c16")
    wanted = np.fft.fft2(np.load(source))
    size = 16 * shape[0] * shape[1]

    def transform(part: int) -> Callable[[], Any]:
        return lambda: outcore.fft.fft2(source, out=table.out, memory=_memory(size // part))

    parts = {cell.method: int(cell.method[2:]) for cell in tables.passion(4)}
    name = f"{shape[0]} x {shape[1]}"
    row = table.row(
        name,
        [source],
        {method: transform(part) for method, part in parts.items()},
        lambda result: bool(np.allclose(result, wanted, rtol=1e-9, atol=1e-6)),
    )
    return {name: row}


def product(folder: Path, repeat: int, edges: tuple[int, ...] = (512, 2048)) -> dict[str, Row]:
    """Table 13: the edge of the report, and one that takes as long today as disks can be seen."""
    table = _Table(folder, repeat)
    found = {}
    for n in edges:
        a, b = (_array(folder, name, (n, n), "f8") for name in ("left", "right"))
        wanted = np.load(a) @ np.load(b)

        def multiply(prefetch: bool, a: Path = a, b: Path = b, n: int = n) -> Any:
            memory = _memory(n * n * 4)  # half of a matrix
            return outcore.matmul(a, b, out=table.out, memory=memory, prefetch=prefetch)

        ways: dict[str, Callable[[], Any]] = {
            "waiting": lambda multiply=multiply: multiply(False),
            "prefetching": lambda multiply=multiply: multiply(True),
        }
        name = f"{n} x {n}"
        found[name] = table.row(
            name,
            [a, b],
            ways,
            lambda result, wanted=wanted: bool(np.allclose(result, wanted, rtol=1e-9, atol=1e-9)),
        )
    return found
