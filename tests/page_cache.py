"""
The page cache in tests: who needs a file to be cold waits until it is.

The kernel drops pages if it can. It cannot those that are mapped, that somebody still writes, or that it
is reading ahead; new pages are on lists of the processors at first.
"""

import ctypes
import mmap
import os
import time

import numpy as np


def forget(path, seconds=10.0):
    """
    Take a file out of the page cache; tell whether that went.

    It does not where files are in memory, or as long as this file is mapped.
    """
    end = time.monotonic() + seconds
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        while True:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not cached_pages(fd):
                return True
            if time.monotonic() > end:
                return False
            time.sleep(1e-3)
    finally:
        os.close(fd)


def cached_pages(fd):
    """How many pages of an open file are in the page cache."""
    size = os.fstat(fd).st_size
    if not size:
        return 0
    pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped:
        memory = np.frombuffer(mapped, np.uint8)
        words = (memory.ctypes.data, size, pages.ctypes.data)
        failed = _libc.mincore(*map(ctypes.c_void_p, words))
        number = ctypes.get_errno()
        del memory
    if failed:
        raise OSError(number, os.strerror(number))
    return int((pages & 1).sum())


_libc = ctypes.CDLL(None, use_errno=True)
