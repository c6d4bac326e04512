"""Cold files: what one rank reads does not bring what others read as well."""

import numpy as np
import pytest

import outcore
from page_cache import forget
from ranks import ranks

# Rows of a page each; `PIECE` of them are looked at as a whole. A rank wants `PART` rows.
ROW, PIECE, PART = 1024, 8, 128


def pieces(array):
    """Of each piece the share that is in the page cache, in thousandths."""
    return [
        array.handle.core.price(np.s_[k : k + PIECE])[1] for k in range(0, array.shape[0], PIECE)
    ]


@ranks(2, 4)
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("method", ["direct", "two-phase"])
def test_cached_header_pages_cause_no_read_ahead(world, folder, slow_disk, method, together):
    """
    On a slow disk a page that is cached is worth having.

    Opening a file brings its first pages. The rest of the first part then seems to cost least through
    the page cache, where the kernel, which finds its own read-ahead, goes on with it: over the parts of
    the other ranks, who read past the page cache.
    """

    def body(t):
        shape = (PART * t.size, ROW)
        files = [folder / f"{k}.npy" for k in range(t.size)]
        gone = True
        for k, path in enumerate(files[: t.size * (t.rank == 0)]):
            data = k + np.arange(PART * t.size * ROW, dtype="f4").reshape(shape)
            outcore.create(path, data=data).close()
            gone = forget(path) and gone
        t.barrier()
        arrays = [outcore.open(path, comm=t) for path in files]
        before = [pieces(array) for array in arrays]
        part = np.s_[t.rank * PART : (t.rank + 1) * PART]
        # No rank goes on before all have looked.
        if t.agree(int(not gone)):
            pytest.skip("this file system drops nothing from the page cache")
        if t.agree(int(arrays[0].explain(np.s_[-PART:]).method != "list")):
            pytest.skip("this file system has no direct I/O")
        if together:
            found = outcore.mpi.read_all([(array, part) for array in arrays], method=method)
        else:
            found = [array.read_all(part, method=method) for array in arrays]
        t.barrier()
        for k, got in enumerate(found):
            right = k + np.arange(PART * t.size * ROW, dtype="f4").reshape(shape)[part]
            np.testing.assert_array_equal(got, right)
        for old, new in zip(before, map(pieces, arrays), strict=True):
            assert not any(old[PART // PIECE :]), "only what the header brought was there"
            # Not equal: a system that is short of memory drops pages.
            assert all(a >= b for a, b in zip(old, new, strict=True)), "nothing was read ahead"
        # Parts begin within blocks, two of which are read beside them.
        done = sum(array.stats()["read_bytes"] for array in arrays)
        wanted = t.size * PART * ROW * 4
        assert wanted <= done <= wanted + 2 * 4096 * t.size, "each byte by one rank, once"

    world.run(body)
