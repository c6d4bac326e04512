"""System calls of an access, counted: they do not depend on what else the machine does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import outcore

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

_PROGRAM = """
import os, sys, outcore
import numpy as np
array = outcore.open(sys.argv[1])
key = eval(sys.argv[2], {"np": np})
array[key]  # whatever is done once
os.access("/begin", 0)
array[key]
os.access("/end", 0)
"""
# On some systems they have other names.
_SAME = {"newfstatat": "fstat", "pread64": "pread"}


def calls(tmp_path: Path, path: Path, key: str) -> Counter[str]:
    """How often the second of two equal reads makes each call."""
    trace = tmp_path / "trace"
    words = ["strace", "-f", "-qq", "-o", str(trace), sys.executable, "-c", _PROGRAM]
    done = subprocess.run([*words, str(path), key], capture_output=True, text=True)
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip("strace may not be used here")
    assert done.returncode == 0, done.stderr
    lines = trace.read_text().splitlines()
    marks = [k for k, line in enumerate(lines) if '"/begin"' in line or '"/end"' in line]
    names = (line.split(None, 1)[1].split("(")[0] for line in lines[marks[0] : marks[1]])
    return Counter(_SAME.get(name, name) for name in names if name.isidentifier())


@pytest.mark.parametrize("key", ["np.s_[::64]", "np.s_[:, ::64]"])
def test_a_chunk_in_a_file_of_its_own_costs_four_calls(tmp_path: Path, key: str) -> None:
    chunks = 144
    path = tmp_path / "a.zarr"
    with outcore.create(path, (768, 768), "f8", chunks=(64, 64)) as array:
        array[:] = 1.0
    found = calls(tmp_path, path, key)
    assert found["openat"] == chunks and found["close"] == chunks
    # Beside them only the metadata, which tell that it is the same array still.
    assert found["fstat"] <= chunks + 2
    assert found["pread"] + found["preadv"] <= chunks
    # Small chunks are not worth a mapping each.
    assert found["mmap"] + found["munmap"] < chunks
