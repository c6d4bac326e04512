"""
Each call of a write fails once, for every format: what is found then is old or new, and goes on working.

The calls of the whole process are met (Python's, the core's, those of HDF5's library), by a library that
is loaded before all others (``failing.c``): nothing in the shipped module knows of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cases

KINDS = {
    **cases.KINDS,
    "zarr2 lz4": ("a.zarr2", {"chunks": (20, 20), "compression": "lz4"}),
    "h5 gzip": ("a.h5", {"chunks": (20, 20), "compression": "gzip"}),
    "nc": ("a.nc", {"chunks": (20, 20), "compression": "gzip"}),
}
GROWING = {**cases.GROWING, "zarr2 lz4": KINDS["zarr2 lz4"]}


@pytest.mark.parametrize(
    ("kind", "change"),
    [("npy", "write"), ("zarr shards gzip", "write")]
    + [(kind, "append") for kind in ("npy", "parts", "raw", "zarr shards gzip", "h5", "h5 gzip")],
)
def test_each_call_fails(tmp_path, failing_calls, kind, change):
    fail_each(tmp_path, failing_calls, kind, change, "EIO")


@pytest.mark.parametrize("how", ["EIO", "ENOSPC for good", "half"])
@pytest.mark.parametrize(
    ("kind", "change"),
    [(kind, "write") for kind in KINDS] + [(kind, "append") for kind in GROWING],
)
def test_each_call_fails_in_each_way_slow(tmp_path, failing_calls, kind, change, how):
    fail_each(tmp_path, failing_calls, kind, change, how)


@pytest.mark.parametrize(
    ("kind", "method"),
    [("npy", "two-phase"), ("zarr zstd", "two-phase"), ("npy", "direct, sync")],
)
def test_each_call_of_a_collective_fails(tmp_path, failing_calls, kind, method):
    """All ranks raise or none; the file is old or new, block by block; the next collective works."""
    fail_each(tmp_path, failing_calls, kind, method, "EIO", "each_collective_call.py")


@pytest.mark.parametrize("how", ["EIO", "ENOSPC for good", "half"])
@pytest.mark.parametrize("method", ["two-phase", "direct", "two-phase, sync", "direct, sync"])
@pytest.mark.parametrize("kind", ["npy", "zarr", "zarr zstd", "zarr shards gzip"])
def test_each_call_of_a_collective_fails_in_each_way_slow(
    tmp_path, failing_calls, kind, method, how
):
    fail_each(tmp_path, failing_calls, kind, method, how, "each_collective_call.py")


def fail_each(
    tmp_path: Path,
    failing_calls: Path,
    kind: str,
    change: str,
    how: str,
    child: str = "each_call.py",
) -> None:
    name, options = (GROWING if change == "append" else KINDS)[kind]
    words = [str(Path(__file__).with_name(child)), str(tmp_path), name, repr(options), change, how]
    environment = {**os.environ, "LD_PRELOAD": str(failing_calls), "FAILING": str(failing_calls)}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    calls, failures = map(int, done.stdout.split())
    assert calls >= 3
    assert failures == 0 if how == "half" else failures >= 2
