"""What tests of crashes share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = shutil.which("cc")


@pytest.fixture(scope="session")
def failing_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is loaded before all other libraries: calls of the whole process fail when it is told so."""
    if COMPILER is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler, or not Linux: failing calls are NOT tested one by one")
    made = tmp_path_factory.mktemp("failing") / "failing.so"
    source = Path(__file__).with_name("failing.c")
    words = ["-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    subprocess.run([COMPILER, *words], check=True)
    return made


@pytest.fixture
def small_disk(request, tmp_path):
    """A file system of 4 MiB, or of what the test says; needs the right to mount."""
    size = getattr(request, "param", "4m")
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "outcore-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small file system: a full disk is NOT tested for real")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
