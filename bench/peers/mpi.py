"""MPI-IO as a peer: sections and points as datatypes, hints set, collective and independent calls."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from peers import Key


def section_type(mpi: Any, key: Key, shape: tuple[int, ...], item: Any) -> tuple[Any, int]:
    """A section of a row-major array as a committed datatype, and where it begins, bytes."""
    size = item.Get_size()
    strides = [size * int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))]
    ranges = [range(n)[s] for s, n in zip(key, shape, strict=True)]
    kind, dense = item, size
    for r, stride in zip(reversed(ranges), reversed(strides), strict=True):
        if r.step * stride == dense:
            kind, dense = kind.Create_contiguous(len(r)), dense * len(r)
        else:
            kind, dense = kind.Create_hvector(len(r), 1, r.step * stride), -1
    kind.Commit()
    return kind, sum(r.start * s for r, s in zip(ranges, strides, strict=True))


def hints(mpi: Any) -> Any:
    """Collective buffering and data sieving on; buffers of 16 MiB (ROMIO's defaults: 16 and 4)."""
    info = mpi.Info.Create()
    for name in ("romio_cb_read", "romio_ds_read", "romio_cb_write", "romio_ds_write"):
        info.Set(name, "enable")
    for name in ("cb_buffer_size", "ind_rd_buffer_size"):
        info.Set(name, str(16 << 20))
    return info


class MpiFile:
    """A section of a file opened through MPI-IO; `read` and `write` move it whole."""

    def __init__(
        self,
        ranks: Any,
        path: Path,
        key: Key,
        shape: tuple[int, ...],
        base: int,
        write: bool = False,
        item: Any = None,
    ) -> None:
        mpi = ranks.mpi
        info = hints(mpi)
        mode = mpi.MODE_RDWR if write else mpi.MODE_RDONLY
        self._file = mpi.File.Open(ranks.comm, str(path), mode, info)
        item = item or mpi.FLOAT
        kind, begin = item, 0
        if all(len(range(n)[s]) for s, n in zip(key, shape, strict=True)):
            kind, begin = section_type(mpi, key, shape, item)
        self._file.Set_view(base + begin, item, kind, "native", info)

    def read(self, out: np.ndarray, collective: bool) -> None:
        """Fill `out`."""
        (self._file.Read_at_all if collective else self._file.Read_at)(0, out)

    def write(self, value: np.ndarray, collective: bool, sync: bool) -> None:
        """Store `value`; with `sync` durably."""
        (self._file.Write_at_all if collective else self._file.Write_at)(0, value)
        if sync:
            self._file.Sync()

    def close(self) -> None:
        """Close; collective."""
        self._file.Close()


class IndexedType:
    """
    A rank's float64 elements as an indexed type, which is made once for an index list.

    A view has to ascend, so elements travel in ascending order, and are put into the order of the index
    list afterwards (before, writing).

    Attributes
    ----------
    made
        Seconds that sorting and making the type took.
    """

    def __init__(self, mpi: Any, index: np.ndarray) -> None:
        start = time.perf_counter()
        self.order = np.argsort(index)
        self.memory = np.empty(len(index))
        places = index[self.order].astype(np.int32)  # what mpi4py hands over as it is
        self.kind = mpi.DOUBLE.Create_indexed_block(1, places)
        self.kind.Commit()
        self.made = time.perf_counter() - start


class MpiPoints:
    """Elements of a file opened through MPI-IO; `read` and `write` move them all."""

    def __init__(
        self, ranks: Any, path: Path, points: IndexedType, base: int, write: bool = False
    ) -> None:
        mpi, self._points = ranks.mpi, points
        info = hints(mpi)
        mode = mpi.MODE_RDWR if write else mpi.MODE_RDONLY
        self._file = mpi.File.Open(ranks.comm, str(path), mode, info)
        self._file.Set_view(base, mpi.DOUBLE, points.kind, "native", info)

    def read(self, out: np.ndarray, collective: bool) -> None:
        """Fill `out`; reordering counts."""
        memory = self._points.memory
        (self._file.Read_at_all if collective else self._file.Read_at)(0, memory)
        out[self._points.order] = memory

    def write(self, value: np.ndarray, collective: bool) -> None:
        """Store `value`; reordering counts."""
        memory = np.take(value, self._points.order, out=self._points.memory, mode="clip")
        (self._file.Write_at_all if collective else self._file.Write_at)(0, memory)

    def close(self) -> None:
        """Close; collective."""
        self._file.Close()
