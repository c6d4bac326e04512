"""Flushes after sparse writes: gaps are written along where requests are dear, and change nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import outcore
from disks import SLOW, is_local, pages_of_linux
from outcore import _core
from outcore.errors import StorageError

SIDE = 1024  # a row is a page of 4 KiB
KEY = np.s_[::8, 5:9]  # a part of every eighth page
BETWEEN = 7 * (SIDE // 8 - 1)


@pytest.fixture
def slow(tmp_path):
    """A disk that takes 5 ms for a request."""
    _core.set_disks({os.stat(tmp_path).st_dev: SLOW})
    yield
    _core.set_disks({})


@pytest.fixture
def made(tmp_path):
    data = np.arange(SIDE * SIDE, dtype="f4").reshape(SIDE, SIDE)
    np.save(tmp_path / "a.npy", data)
    return tmp_path / "a.npy", data


@pages_of_linux
@pytest.mark.parametrize("sync", [False, True])
def test_gaps_are_written_along_and_keep_their_bytes(made, slow, sync):
    path, data = made
    # Somebody else has the file open: no window may be rewritten (0010).
    with open(path, "rb"), outcore.open(path, "r+", hints={"sync": sync}) as a:
        a[KEY] = -1
        a.flush()
        assert a.handle.core.gap_pages() == (BETWEEN if is_local(path) else 0)
        a.flush()
        a[3] = data[3]
        a.flush()
        assert a.handle.core.gap_pages() in (0, BETWEEN), "nothing sparse was written since"
    data[KEY] = -1
    np.testing.assert_array_equal(data, np.load(path))


@pages_of_linux
def test_many_small_writes_are_seen_together(made, slow):
    path, data = made
    with open(path, "rb"), outcore.open(path, "r+") as a:
        for row in range(0, SIDE, 8):
            a[row, 7] = -row
        a.flush()
        assert a.handle.core.gap_pages() == (BETWEEN if is_local(path) else 0)
    data[::8, 7] = -np.arange(0, SIDE, 8)
    np.testing.assert_array_equal(data, np.load(path))


def test_no_gap_is_written_on_a_fast_disk_or_past_the_cache(made, tmp_path):
    path, data = made
    _core.set_disks({})
    with open(path, "rb"), outcore.open(path, "r+") as a:
        a[KEY] = -1
        a.flush()
        assert a.handle.core.gap_pages() == 0
    _core.set_disks({os.stat(tmp_path).st_dev: SLOW})
    with open(path, "rb"), outcore.open(path, "r+", hints={"cache": "bypass"}) as a:
        a[KEY] = -2
        a.flush()
        assert a.handle.core.gap_pages() == 0
    _core.set_disks({})
    data[KEY] = -2
    np.testing.assert_array_equal(data, np.load(path))


@pages_of_linux
def test_a_file_that_somebody_shortened_is_an_error_of_the_flush(made, slow):
    path, _ = made
    if not is_local(path):
        pytest.skip("gaps are left alone on this file system")
    with outcore.open(path, "r+") as a, open(path, "rb+") as other:
        a[KEY] = -1
        other.truncate(10_000)
        with pytest.raises(StorageError) as caught:
            a.flush()
        assert caught.value.code == "file-changed"
        a.flush()
    assert os.path.getsize(path) == 10_000


# Writes numbers into the gaps, as fast as it can, until told to stop; then says what it wrote last.
OTHER = """
import mmap, os, select, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
mapped = mmap.mmap(fd, 0)
places = [128 + row * 4096 + at for row in range(1, 1024, 8) for at in (-128, 512)]
print("ready", flush=True)
turn = 0
while turn < 3 or not select.select([0], [], [], 0)[0]:
    turn += 1
    for k, at in enumerate(places):
        value = struct.pack("<i", turn * 1000 + k)
        if k % 2:
            os.pwrite(fd, value, at)
        else:
            mapped[at:at + 4] = value
        if mapped[at:at + 4] != value:
            sys.exit(f"an update was lost at {at}, turn {turn}")
print(turn, flush=True)
"""


@pages_of_linux
def test_a_program_that_writes_into_the_gaps_loses_nothing(made, slow):
    path, data = made
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin is not None and other.stdout is not None
    assert other.stdout.readline() == b"ready\n"
    with outcore.open(path, "r+") as a:
        for turn in range(30):
            a[KEY] = turn
            a.flush()
        filled = a.handle.core.gap_pages()
    told, _ = other.communicate(b"stop")
    assert other.returncode == 0, told
    turn = int(told)
    data[KEY] = 29
    expected = bytearray(path.read_bytes()[:128] + data.tobytes())
    places = [128 + row * 4096 + at for row in range(1, 1024, 8) for at in (-128, 512)]
    for k, at in enumerate(places):
        expected[at : at + 4] = (turn * 1000 + k).to_bytes(4, "little")
    assert bytes(expected) == path.read_bytes()
    assert not is_local(path) or filled > 0
