"""
What a wheel has to do where nothing but it and NumPy is installed. Run in a folder of its own:

    python -I tests/release/smoke.py VERSION
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import outcore


def installed_is_what_was_built(version: str) -> None:
    home = Path(outcore.__file__).resolve().parent
    assert home.is_relative_to(Path(sys.prefix).resolve()), f"{home} is not of {sys.prefix}"
    assert outcore.__version__ == version == importlib.metadata.version("outcore")
    assert (home / "py.typed").exists()
    for name in ("h5py", "zarr", "scipy", "mpi4py", "hypothesis"):
        assert importlib.util.find_spec(name) is None, (
            f"{name} is here: this is no empty environment"
        )


def what_only_tests_need_is_not_there() -> None:
    """No engine that injects faults; no generators and judges. There is nothing to be switched on."""
    home = Path(outcore.__file__).resolve().parent
    (module,) = home.glob("_core*.so")
    assert b"faulty" not in module.read_bytes(), "the module was built with the feature `testing`"
    for name in ("strategies", "oracle"):
        assert importlib.util.find_spec(f"outcore.testing.{name}") is None


def arrays_are_written_and_read() -> None:
    data = np.arange(60 * 80, dtype="f4").reshape(60, 80)
    options = {"a.npy": {}, "b.raw": {}, "c.zarr2": {"chunks": (16, 32)}}
    codecs = ("gzip", "zstd", "lz4", "blosc")
    options |= {f"{c}.zarr": {"chunks": (16, 32), "compression": c} for c in codecs}
    for path, words in options.items():
        outcore.create(path, data=data, **words).close()
        how = {"dtype": "f4", "shape": data.shape} if path == "b.raw" else {}
        with outcore.open(path, "r+", **how) as a:
            assert (a[5:50:7, ::-3] == data[5:50:7, ::-3]).all(), path
            assert (a[[3, 1], [0, 79]] == data[[3, 1], [0, 79]]).all(), path
            a[10, 20:30] = -1
            assert a[10, 19:31].tolist() == [819, *[-1] * 10, 830], path
        assert outcore.verify(path) == [] if path != "b.raw" else True


def computations_and_ranks_work() -> None:
    from outcore.testing.sim import SimWorld

    data = np.arange(300 * 200.0).reshape(300, 200)
    outcore.create("in.npy", data=data).close()
    with outcore.transpose("in.npy", out="turned.npy", memory="1 MiB") as turned:
        assert (turned[...] == data.T).all()
    with outcore.matmul("turned.npy", "in.npy", memory="2 MiB") as product:
        assert np.allclose(product[...], data.T @ data)
    outcore.convert("in.npy", "out.zarr", chunks=(100, 50), compression="zstd")

    def columns(comm) -> bool:
        mine = np.s_[:, comm.rank :: comm.size]
        with outcore.open("out.zarr", comm=comm) as a:
            return bool((a.read_all(mine, method="two-phase") == data[mine]).all())

    assert all(SimWorld(3).run(columns))


def what_is_missing_is_named() -> None:
    Path("x.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(2000))
    told = ""
    try:
        outcore.open("x.h5::/field")
    except outcore.OutcoreError as error:
        told = str(error)
    assert "pip install h5py" in told, told or "an HDF5 file was opened without h5py"


def the_command_is_installed(version: str) -> None:
    command = os.path.join(sys.prefix, "bin", "outcore")

    def say(*words: str) -> str:
        return subprocess.run([command, *words], capture_output=True, text=True, check=True).stdout

    assert say("--version").strip().endswith(version)
    assert json.loads(say("info", "a.npy", "--json"))["shape"] == [60, 80]


if __name__ == "__main__":
    installed_is_what_was_built(sys.argv[1])
    what_only_tests_need_is_not_there()
    arrays_are_written_and_read()
    computations_and_ranks_work()
    what_is_missing_is_named()
    the_command_is_installed(sys.argv[1])
    print("smoke test passed")
