"""
The files of the lane: one array in several formats, made once, and whether it is as it should be.

A file that is being written may be left half way by a run that is ended. A mark beside it says that
it holds what it should: it is taken away before the first write, and the file is made anew if it is
missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from irregular.patterns import ROW, SLAB, slabs, values

CHUNK = 1 << 15
"""Elements of a chunk: 256 KiB."""


@dataclass(frozen=True)
class Stored:
    """An array in a file: format, path, number of elements, and what each has `more` than `values`."""

    format: str
    path: Path
    n: int
    more: float = 0.0

    @property
    def _mark(self) -> Path:
        return self.path.with_name(f"{self.path.name}.made")

    def make(self) -> Stored:
        """Write the file, unless it is there and was not changed."""
        if self._mark.exists() and self.path.exists():
            return self
        if self.path.is_dir():
            shutil.rmtree(self.path)
        _CREATE[self.format](self.path, self.n)
        put, close = _writer(self)
        step = SLAB * 8
        block = np.empty(min(step, self.n))
        filled = 0
        for at, slab in slabs(self.n):
            np.add(slab, self.more, out=block[filled : filled + len(slab)])
            filled += len(slab)
            if filled == step or at + len(slab) == self.n:
                put(at + len(slab) - filled, block[:filled])
                filled = 0
        close()
        self._mark.touch()
        return self

    def spoiled(self) -> None:
        """Say that the file is going to be written."""
        self._mark.unlink(missing_ok=True)

    def restore(self, where: np.ndarray) -> None:
        """Give the elements at `where` (flat, ascending) their values back; what is next to them too."""
        if self.format.startswith("npy"):
            mapped = np.load(self.path, mmap_mode="r+").reshape(-1)
            for at in range(0, len(where), SLAB):
                some = where[at : at + SLAB]
                mapped[some] = values(some) + self.more
            self._mark.touch()
            return
        put, close = _writer(self)
        for at, slab in slabs(self.n):
            low, high = np.searchsorted(where, (at, at + len(slab)))
            if low < high:
                first, last = int(where[low]) - at, int(where[high - 1]) - at + 1
                first, last = first // CHUNK * CHUNK, min(-(-last // CHUNK) * CHUNK, len(slab))
                put(at + first, slab[first:last] + self.more)
        close()
        self._mark.touch()

    def holds(self, where: np.ndarray, more: float) -> bool:
        """
        Whether every element is as it was made, but those at `where`, which have `more` added.

        Parameters
        ----------
        where
            Flat indices, ascending, each once.
        """
        reader = _reader(self)
        for at, slab in slabs(self.n):
            low, high = np.searchsorted(where, (at, at + len(slab)))
            slab += self.more
            slab[where[low:high] - at] += more
            if not np.array_equal(next(reader), slab):
                return False
        return True


def flat(where: np.ndarray, rows: bool) -> np.ndarray:
    """Indices of elements, of indices of elements or of rows."""
    return (where[:, None] * ROW + np.arange(ROW)).reshape(-1) if rows else where


# ------------------------------------------------------------------------------------ by format


def _npy(path: Path, shape: tuple[int, ...]) -> None:
    np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape).flush()


def _hdf5(path: Path, n: int, chunks: tuple[int, ...] | None) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("d", (n,), np.float64, chunks=chunks)


def _zarr(path: Path, n: int, compressed: bool) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    codec: Any = ZstdCodec(level=3) if compressed else None
    zarr.create_array(path, shape=(n,), chunks=(CHUNK,), dtype=np.float64, compressors=codec)


_CREATE: dict[str, Callable[[Path, int], None]] = {
    "npy": lambda path, n: _npy(path, (n,)),
    "npy rows": lambda path, n: _npy(path, (n // ROW, ROW)),
    "HDF5 contiguous": lambda path, n: _hdf5(path, n, None),
    "HDF5 chunks": lambda path, n: _hdf5(path, n, (CHUNK,)),
    "Zarr": lambda path, n: _zarr(path, n, False),
    "Zarr zstd": lambda path, n: _zarr(path, n, True),
}
FORMATS = tuple(_CREATE)


def tensorstore_of(path: Path, threads: int = 2) -> Any:
    """A Zarr array, opened by tensorstore; what it writes is not synced, as nobody else's is."""
    import tensorstore as ts

    context = ts.Context(
        {
            "data_copy_concurrency": {"limit": threads},
            "file_io_concurrency": {"limit": 8},
            "file_io_sync": False,
        }
    )
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    return ts.open(spec, context=context, open=True).result()


def _writer(stored: Stored) -> tuple[Callable[[int, np.ndarray], None], Callable[[], None]]:
    """A call that writes some elements from an index on, by the library that owns the format."""
    array: Any
    close: Callable[[], None] = lambda: None  # noqa: E731
    if stored.format.startswith("npy"):
        array = np.load(stored.path, mmap_mode="r+").reshape(-1)
    elif stored.format.startswith("HDF5"):
        import h5py

        file = h5py.File(stored.path, "r+")
        array, close = file["d"], file.close
    else:
        array = tensorstore_of(stored.path)

    def put(at: int, some: np.ndarray) -> None:
        array[at : at + len(some)] = some

    return put, close


def _reader(stored: Stored) -> Iterator[np.ndarray]:
    """All slabs of an array, by a library that is not ours."""
    ends = range(0, stored.n, SLAB)
    if stored.format.startswith("npy"):
        mapped = np.load(stored.path, mmap_mode="r").reshape(-1)
        yield from (mapped[at : at + SLAB] for at in ends)
    elif stored.format.startswith("HDF5"):
        import h5py

        with h5py.File(stored.path, "r") as file:
            yield from (file["d"][at : at + SLAB] for at in ends)
    else:
        array = tensorstore_of(stored.path)
        yield from (array[at : at + SLAB].read().result() for at in ends)
