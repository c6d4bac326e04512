"""
The arrays that rows read, made once and slab by slab.

`noise` and `other`: normal numbers, of a generator for each slab. `definite`: symmetric and positive
definite; entry (i, j) is computed from i * j, so the two halves are the same to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from compute.rows import Input

_SLAB = 64 << 20


def _noise(seed: int) -> Callable[[Input, int, int], np.ndarray]:
    def make(of: Input, begin: int, end: int) -> np.ndarray:
        dtype = np.dtype(of.dtype)
        shape = (end - begin, *of.shape[1:])
        rng = np.random.Generator(np.random.SFC64([seed, begin]))
        real = np.dtype(dtype.char.lower())
        found = np.empty(shape, dtype)
        for part in (found.real, found.imag) if dtype.kind == "c" else (found,):
            part[...] = rng.standard_normal(shape, real)
        return found

    return make


def _definite(of: Input, begin: int, end: int) -> np.ndarray:
    i = np.arange(begin, end, dtype=np.float64)[:, None]
    j = np.arange(of.shape[1], dtype=np.float64)[None, :]
    found = np.sin((i + 1) * (j + 1))
    rows = np.arange(end - begin)
    found[rows, rows + begin] += of.shape[1]
    return found


_KINDS = {"noise": _noise(1), "other": _noise(2), "definite": _definite}


def slabs(of: Input) -> Iterator[tuple[int, np.ndarray]]:
    """Consecutive slabs along the first axis, with where each begins."""
    row = max(of.nbytes // max(of.shape[0], 1), 1)
    step = max(_SLAB // row, 1)
    if of.chunks:
        step = max(step // of.chunks[0], 1) * of.chunks[0]
    for begin in range(0, of.shape[0], step):
        end = min(begin + step, of.shape[0])
        yield begin, _KINDS[of.kind](of, begin, end)


def make(of: Input, folder: Path) -> Path:
    """The array as a file (or folder of chunks); made if it is not there."""
    path = folder / of.name
    if path.exists():
        return path
    fresh = path.with_name(f"fresh-{path.name}")
    if of.chunks:
        _make_zarr(of, fresh)
    else:
        header = {"descr": np.dtype(of.dtype).str, "fortran_order": False, "shape": of.shape}
        with fresh.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for _, slab in slabs(of):
                slab.tofile(file)
    fresh.rename(path)
    return path


def _make_zarr(of: Input, folder: Path) -> None:
    """Slabs of whole rows of chunks, version 2, not compressed."""
    folder.mkdir(exist_ok=True)
    (folder / ".zarray").write_text(json.dumps(zarr_metadata(of.shape, of.dtype, of.chunks)))
    for begin, slab in slabs(of):
        for at in range(0, len(slab), of.chunks[0]):
            slab[at : at + of.chunks[0]].tofile(folder / f"{(begin + at) // of.chunks[0]}.0")


def zarr_metadata(shape: tuple[int, ...], dtype: str, chunks: tuple[int, ...]) -> dict[str, object]:
    """The file ``.zarray``."""
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": np.dtype(dtype).str,
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
