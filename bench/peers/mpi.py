"""MPI-IO as a peer: a section as a datatype, hints set, collective and independent calls."""

from __future__ import annotations

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
    ) -> None:
        mpi = ranks.mpi
        info = hints(mpi)
        mode = mpi.MODE_RDWR if write else mpi.MODE_RDONLY
        self._file = mpi.File.Open(ranks.comm, str(path), mode, info)
        kind, begin = mpi.FLOAT, 0
        if all(len(range(n)[s]) for s, n in zip(key, shape, strict=True)):
            kind, begin = section_type(mpi, key, shape, mpi.FLOAT)
        self._file.Set_view(base + begin, mpi.FLOAT, kind, "native", info)

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
