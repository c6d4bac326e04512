"""
PIO (NCAR ParallelIO) as a peer: `PIOc_read_darray` and `PIOc_write_darray` by the box rearranger.

No wheel and no package has the library; who has one built with PnetCDF, for the MPI library of the run,
names its file (``--pio``). Every rank is an I/O task. The decomposition is made once and timed
apart, as PIO means it to be used. The file is CDF-5, so elements are big-endian: whoever reads them
swaps bytes, which is PIO's own.

Reference: the public header ``pio.h`` of PIO 2.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np

_PNETCDF, _BOX, _CDF5, _WRITE, _DOUBLE = 1, 1, 0x0020, 0x0001, 6
_NAME = b"v"


class Library:
    """The library, loaded after the MPI library that mpi4py loaded; all ranks make it together."""

    def __init__(self, path: Path, mpi: Any) -> None:
        self._c, self._mpi = ctypes.CDLL(str(path)), mpi
        self.system = ctypes.c_int()
        comm = mpi.COMM_WORLD
        words = ctypes.c_int(comm.size), ctypes.c_int(1), ctypes.c_int(0), ctypes.c_int(_BOX)
        self.call("Init_Intracomm", self.handle(comm), *words, ctypes.byref(self.system))

    def call(self, name: str, *words: Any) -> None:
        """A function by its name; raises where it does not return 0."""
        code = getattr(self._c, f"PIOc_{name}")(*words)
        if code:
            raise OSError(f"PIOc_{name}: error {code}")

    def handle(self, thing: Any) -> Any:
        """A communicator as C passes it."""
        return ctypes.c_void_p(self._mpi._handleof(thing))


class Decomposition:
    """
    Which elements of a one-dimensional float64 variable each rank has; made once. Collective.

    Attributes
    ----------
    made
        Seconds that this rank took to make it.
    """

    def __init__(self, library: Library, n: int, index: np.ndarray) -> None:
        self.number, self.count = ctypes.c_int(), ctypes.c_int64(len(index))
        start = time.perf_counter()
        from_one = index + 1
        shape, way = (ctypes.c_int * 1)(n), ctypes.c_int(_BOX)
        library.call(
            "InitDecomp",
            *(library.system, ctypes.c_int(_DOUBLE), ctypes.c_int(1), shape),
            *(ctypes.c_int(len(index)), _memory(from_one), ctypes.byref(self.number)),
            *(ctypes.byref(way), None, None),
        )
        self.made = time.perf_counter() - start


class PioPoints:
    """A rank's elements of the variable in a file, opened by all ranks."""

    def __init__(
        self, library: Library, path: Path, points: Decomposition, write: bool = False
    ) -> None:
        self._library, self._points, self._file = library, points, ctypes.c_int()
        kind, mode = ctypes.c_int(_PNETCDF), ctypes.c_int(_WRITE if write else 0)
        words = ctypes.byref(self._file), ctypes.byref(kind), str(path).encode(), mode
        library.call("openfile", library.system, *words)
        self._variable = ctypes.c_int()
        library.call("inq_varid", self._file, _NAME, ctypes.byref(self._variable))

    def read(self, out: np.ndarray) -> None:
        """Fill `out`."""
        words = self._points.number, self._points.count, _memory(out)
        self._library.call("read_darray", self._file, self._variable, *words)

    def write(self, value: np.ndarray) -> None:
        """Store `value`; it is in the page cache then."""
        words = self._points.number, self._points.count, _memory(value), None
        self._library.call("write_darray", self._file, self._variable, *words)
        self._library.call("sync", self._file)

    def close(self) -> None:
        """Close; collective."""
        self._library.call("closefile", self._file)


def create(path: Path, n: int, slabs: Any) -> None:
    """Make a CDF-5 file with one variable ``v`` of `n` float64, as one process."""
    # The header of the format (PnetCDF, "File format specification, version 5"): one dimension, no
    # attribute, one variable, which begins behind it. Numbers are big-endian, names end at four bytes.
    number = lambda value: int(value).to_bytes(8, "big")  # noqa: E731
    tag = lambda value: int(value).to_bytes(4, "big")  # noqa: E731
    name = number(1) + b"v\0\0\0"
    absent = tag(0) + number(0)
    head = b"CDF\x05" + number(0) + tag(10) + number(1) + number(1) + b"x\0\0\0" + number(n)
    head += absent + tag(11) + number(1) + name + number(1) + number(0) + absent + tag(_DOUBLE)
    begin = len(head) + 16
    head += number(8 * n) + number(begin)
    with path.open("wb") as file:
        file.write(head)
        for _, slab in slabs:
            file.write(slab.astype(">f8").data)


def _memory(values: np.ndarray) -> Any:
    return ctypes.c_void_p(values.ctypes.data)
