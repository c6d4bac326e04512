"""What tests of crashes share."""

from __future__ import annotations

import os
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB; needs the right to mount."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "outcore-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small file system: a full disk is NOT tested for real")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
