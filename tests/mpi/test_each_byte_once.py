"""Cold files: what one rank reads does not bring what others read as well."""

import os

import numpy as np
import pytest

import outcore
from outcore import _core
from ranks import ranks

# Rows of a page each; `_PIECE` of them are looked at as a whole.
_ROW, _PIECE = 1024, 8


@pytest.fixture
def slow_disk(folder):
    """A disk on which a page that is cached is worth having; its figures, for as long as a test runs."""
    _core.set_disks({os.stat(folder).st_dev: (1 << 20, 5_000_000, 100_000_000, 100_000_000)})
    yield
    _core.set_disks({})


def cold(path, shape, first):
    """Drop a file from the page cache, then read its first bytes and nothing else."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        with outcore.open(path, format="raw", dtype="f4", shape=shape) as array:
            # New pages are on lists of the processors at first, from where they are not dropped.
            for _ in range(100):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                if not sum(cached_pieces(array)):
                    break
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(fd, first, 0)
    finally:
        os.close(fd)


def cached_pieces(array):
    """Of each piece the share that is in the page cache, in thousandths."""
    rows = array.shape[0]
    return [array._core.cached(np.s_[k : k + _PIECE]) for k in range(0, rows, _PIECE)]


@ranks(2, 4)
@pytest.mark.parametrize("together", [True, False])
def test_a_part_that_is_cached_a_little_brings_no_other_parts(world, folder, slow_disk, together):
    """
    The first pages of a file are there, because somebody looked at its header. So it costs least to read
    the rest of the first part through the page cache, where the kernel reads ahead: as far as the parts
    that the other ranks read past the cache.
    """

    def body(t):
        rows = 128 * t.size
        files = [folder / f"{k}.raw" for k in range(3)]
        for k, path in enumerate(files[: 3 * (t.rank == 0)]):
            data = k + np.arange(rows * _ROW, dtype="f4").reshape(rows, _ROW)
            outcore.create(path, data=data).close()
            cold(path, data.shape, 4 * 4096)
        t.barrier()
        arrays = [outcore.open(p, comm=t, format="raw", dtype="f4", shape=(rows, _ROW)) for p in files]
        # Before anybody reads anything.
        there = [sum(cached_pieces(array)) for array in arrays]
        t.barrier()
        part = np.s_[t.rank * 128 : (t.rank + 1) * 128]
        told = {array.explain(part).method for array in arrays}
        if t.agree(int(there != [500] * 3)):
            pytest.skip("this file system drops nothing from the page cache, or more is read of it")
        if t.agree(int(t.rank > 0 and told != {"list"})):
            pytest.skip("this file system has no direct I/O")
        assert t.rank or told == {"straight"}
        if together:
            found = outcore.read_all([(array, part) for array in arrays], method="direct")
        else:
            found = [array.read_all(part, method="direct") for array in arrays]
        t.barrier()
        for k, got in enumerate(found):
            right = k + np.arange(rows * _ROW, dtype="f4").reshape(rows, _ROW)[part]
            np.testing.assert_array_equal(got, right)
        # The first part, at most; pages that a short memory dropped again count for nobody.
        assert all(not sum(cached_pieces(array)[128 // _PIECE :]) for array in arrays)
        done = [array.stats()["read_bytes"] for array in arrays]
        assert done == [128 * 4096] * len(arrays), "each byte by one rank, once"

    world.run(body)


@ranks(1)
def test_small_reads_are_read_ahead_of_again(world, folder, slow_disk):
    """What a large read told the kernel of a descriptor, the next small one takes back."""

    def body(t):
        data = np.arange(1024 * _ROW, dtype="f4").reshape(-1, _ROW)
        there = []
        for large_first in (False, True):
            path = folder / f"{large_first}.raw"
            outcore.create(path, data=data).close()
            cold(path, data.shape, 4 * 4096)
            array = outcore.open(path, format="raw", dtype="f4", shape=data.shape)
            if sum(cached_pieces(array)) != 500:
                pytest.skip("this file system drops nothing from the page cache")
            if large_first:
                np.testing.assert_array_equal(array[:128], data[:128])
                assert not sum(cached_pieces(array)[128 // _PIECE :])
            for k in range(512, 528, 2):
                np.testing.assert_array_equal(array[k : k + 2], data[k : k + 2])
            there.append(sum(share > 0 for share in cached_pieces(array)[512 // _PIECE :]))
            array.close()
        if there[0] <= 2:
            pytest.skip("nothing is read ahead here")
        assert there[1] > 2, "more than the two pieces that were read"

    world.run(body)
