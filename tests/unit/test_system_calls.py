"""System calls of an access, counted: they do not depend on what else the machine does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
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
_OPENING = """
import os, sys, outcore
outcore.open(sys.argv[1]).close()  # whatever is done once
os.access("/begin", 0)
outcore.open(sys.argv[1]).close()
os.access("/end", 0)
"""
# On some systems they have other names.
_SAME = {"newfstatat": "fstat", "pread64": "pread"}


def calls(tmp_path: Path, path: Path, key: str) -> Counter[str]:
    """How often the second of two equal reads makes each call."""
    return traced(tmp_path, _PROGRAM, str(path), key)


def traced(tmp_path: Path, program: str, *arguments: str) -> Counter[str]:
    """How often a program makes each call between its two marks."""
    trace = tmp_path / "trace"
    words = ["strace", "-f", "-qq", "-o", str(trace), sys.executable, "-c", program]
    done = subprocess.run([*words, *arguments], capture_output=True, text=True)
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


# Which calls look at a file, under the names of several systems.
_LOOKS = ("stat", "lstat", "fstat", "statx")


def opening(tmp_path: Path, path: Path) -> dict[str, int]:
    """How often opening an array makes the calls that ask a file system."""
    found = traced(tmp_path, _OPENING, str(path))
    counts = {"look": sum(found.pop(name, 0) for name in _LOOKS)}
    names = ("openat", "close", "read", "pread", "lseek", "ioctl", "readlink", "getdents64")
    return counts | {name: found[name] for name in names if found[name]}


@pytest.mark.parametrize("axes", [1, 3])
def test_a_npy_file_is_opened_by_six_calls(tmp_path: Path, axes: int) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((4,) * axes))
    os.utime(path, (1, 1))
    # Looks: for pipes and devices, at the size after the header was read, at the identity of the file.
    assert opening(tmp_path, path) == {"openat": 1, "pread": 1, "look": 3, "close": 1}


def test_a_header_that_was_written_lately_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(4))
    os.utime(path, (2**33, 2**33))
    assert opening(tmp_path, path) == {"openat": 1, "pread": 2, "look": 4, "close": 1}


def test_a_npy_header_of_more_than_a_page_takes_one_read_more(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(4, [(f"a field with a long name {k}", "f8") for k in range(200)]))
    os.utime(path, (1, 1))
    assert opening(tmp_path, path) == {"openat": 1, "pread": 2, "look": 3, "close": 1}


def test_a_npy_file_of_another_suffix_is_opened_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.array"
    np.save(tmp_path / "a.npy", np.zeros(4))
    os.utime(tmp_path / "a.npy", (1, 1))
    (tmp_path / "a.npy").rename(path)
    expected = {"openat": 2, "pread": 2, "look": 3, "close": 2}
    assert opening(tmp_path, path) == expected
