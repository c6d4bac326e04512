"""
The promise about memory, measured from outside.

A process works on an array eight times larger than its budget, in a memory control group of
budget + 64 MiB + result: if it held more, the kernel would end it. Where no such group can be made,
the high-water mark of the process is compared with the same number.
"""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from groups import group_of, told_by

import outcore

MIB = 2**20
BUDGET = 64 * MIB
SHAPE = (8192, 16384)  # float32: 512 MiB, every element exact below 2**24 rows x columns
ALLOWANCE = 64 * MIB
# What `import h5py` adds to the interpreter and NumPy, before a file is open (11 MiB measured).
H5PY = 12 * MIB
RESULTS = {"read": 32 * MIB, "read_strided": 16 * MIB}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("peak")
    rows = np.lib.format.open_memmap(path / "a.npy", "w+", "f4", SHAPE)
    for i in range(0, SHAPE[0], 512):
        rows[i : i + 512] = np.arange(i * SHAPE[1], (i + 512) * SHAPE[1]).reshape(512, -1)
    rows.flush()
    del rows
    chunks = {"chunks": (512, 1024), "compression": "zstd"}
    outcore.convert(path / "a.npy", path / "a.zarr", **chunks)
    outcore.convert(path / "a.npy", f"{path}/a.h5::/a", chunks=(512, 1024), compression="gzip")
    yield path
    shutil.rmtree(path)


CASES = [
    *(
        (case, source)
        for source in ("a.npy", "a.zarr", "a.h5::/a")
        for case in ("read", "read_strided", "read_column", "blocks")
    ),
    ("write", "a.npy"),
    ("write", "a.zarr"),
    ("write_strided", "a.npy"),
    *(("convert_" + case, "a.npy") for case in ("transposed", "chunked", "cast", "hdf5")),
    ("convert_transposed", "a.zarr"),
    ("convert_transposed", "a.h5::/a"),
]


@pytest.mark.parametrize(("case", "source"), CASES)
def test_peak_slow(folder, case, source):
    limit = BUDGET + ALLOWANCE + RESULTS.get(case, 0)
    limit += H5PY if "hdf5" in case or ".h5" in source else 0
    try:
        with group_of(limit) as group:
            peak = told_by("peak_work.py", case, folder, source, BUDGET, group or "")["peak"]
    finally:
        for made in (*folder.glob("made-*"), *folder.glob("to*")):
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    print(f"{case} {source}: peak {peak / MIB:.1f} of {limit / MIB:.0f} MiB")
    assert peak <= limit


DEFAULT = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
import outcore
print(int(outcore.memory()))
"""


def test_the_default_comes_from_the_control_group():
    with group_of(512 * MIB) as group:
        if group is None:
            pytest.skip("no control group can be made: the default budget in one is NOT tested")
        done = subprocess.run(
            [sys.executable, "-c", DEFAULT, group],
            capture_output=True,
            text=True,
            env={
                **{name: value for name, value in os.environ.items() if name != "OUTCORE_MEMORY"},
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
    assert str(128 * MIB) == done.stdout.strip(), done.stderr
