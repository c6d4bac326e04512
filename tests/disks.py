"""File systems and disks, for tests of what is written to them."""

import ctypes
import os
import sys

import pytest

# Kept in step with `crates/io/src/claim.rs`.
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs")

# Figures of a disk that takes 5 ms for a request, for `_core.set_disks`.
SLOW = (1 << 20, 5_000_000, 220_000_000, 120_000_000)
# And of an ordinary one.
ORDINARY = (128 << 10, 100_000, 2_000_000_000, 1_000_000_000)

# For tests that count pages.
pages_of_linux = pytest.mark.skipif(
    sys.platform != "linux" or os.sysconf("SC_PAGE_SIZE") != 4096,
    reason="counts pages of 4 KiB on file systems that Linux names",
)


def is_local(path):
    """Whether a file lies on a file system of this machine alone, as the core sees it."""
    device = os.stat(path).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo") as lines:
        kinds = [line.split(" - ")[1].split()[0] for line in lines if line.split()[2] == name]
    return bool(kinds) and kinds[0] in _LOCAL


def dirty_pages(path):
    """Pages of a file that are written and not on the disk, or on their way; None where nobody says."""
    cachestat = 451
    fd = os.open(path, os.O_RDONLY)
    try:
        whole = (ctypes.c_uint64 * 2)(0, os.fstat(fd).st_size)
        found = (ctypes.c_uint64 * 5)()
        failed = ctypes.CDLL(None).syscall(cachestat, fd, whole, found, 0)
    finally:
        os.close(fd)
    _, dirty, under_way, _, _ = found
    return None if failed else dirty + under_way
