"""
File systems that lack a call: each is taken away in turn, and all that outcore does goes on without it.

A preloaded library makes the calls fail on files of one folder (`lacking.c`); a child does everything
there, with every format (`lacking.py`).
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import killed

COMPILER = shutil.which("cc")
#: The calls, the error, and whether something is not guaranteed then, of which one warning tells.
LACKING = {
    "all locks": ("flock,ofd", errno.ENOLCK, True),
    "shared mappings": ("mmap", errno.ENODEV, False),
}
ONE_BY_ONE = {
    "flock": ("flock", errno.ENOLCK, True),
    "flock at all": ("flock", errno.ENOSYS, True),
    "locks of ranges": ("ofd", errno.EINVAL, True),
    "all locks at all": ("flock,ofd", errno.EOPNOTSUPP, True),
    "nothing": ("none", errno.ENODEV, False),
}


@pytest.fixture(scope="session")
def lacking_calls(tmp_path_factory):
    if COMPILER is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler, or not Linux: file systems that lack calls are NOT tested")
    made = tmp_path_factory.mktemp("lacking") / "lacking.so"
    source = Path(__file__).with_name("lacking.c")
    words = ["-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    subprocess.run([COMPILER, *words], check=True)
    return made


@pytest.mark.parametrize("lack", LACKING)
def test_all_goes_on_where_the_file_system_lacks(lack, lacking_calls, tmp_path):
    goes_on(*LACKING[lack], lacking_calls, tmp_path)


@pytest.mark.parametrize("lack", ONE_BY_ONE)
def test_all_goes_on_where_the_file_system_lacks_one_call_slow(lack, lacking_calls, tmp_path):
    goes_on(*ONE_BY_ONE[lack], lacking_calls, tmp_path)


def goes_on(calls, error, warned, lacking_calls, tmp_path):
    """A child does everything without these calls, and warns once if it has to."""
    with killed.quick_folder(tmp_path) as folder:
        words = {
            "LD_PRELOAD": str(lacking_calls),
            "LACKING_CALLS": calls,
            "LACKING_ERROR": str(error),
            "LACKING_FOLDER": str(folder),
        }
        child = Path(__file__).with_name("lacking.py")
        done = subprocess.run(
            [sys.executable, str(child)],
            env={**os.environ, **words},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    count, *said = done.stdout.splitlines()
    assert int(count) == int(warned), said
