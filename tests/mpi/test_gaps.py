"""Flushes of many ranks after sparse writes: gaps are written along, once all ranks have said which."""

import numpy as np

import outcore
from disks import is_local, pages_of_linux
from ranks import ranks

SIDE = 1024  # a row is a page of 4 KiB


@pages_of_linux
@ranks(1, 2, 4)
def test_ranks_fill_gaps_together(world, folder, slow_disk):
    """Each rank writes rows of its own; the pages between them are written along."""
    data = np.arange(SIDE * SIDE, dtype="f4").reshape(SIDE, SIDE)
    path = folder / "a.npy"

    def body(t):
        if t.rank == 0:
            np.save(path, data)
        t.barrier()
        each = SIDE // t.size
        key = np.s_[t.rank * each : (t.rank + 1) * each : 8, 5:9]
        with open(path, "rb"), outcore.open(path, "r+", comm=t) as a:
            a.write_all(key, np.float32(-1 - t.rank), method="direct")
            a.flush_all()
            filled = a.handle.core.gap_pages()
        assert filled == (7 * (-(-each // 8) - 1) if is_local(path) else 0)
        t.barrier()
        expected = data.copy()
        for rank in range(t.size):
            expected[rank * each : (rank + 1) * each : 8, 5:9] = -1 - rank
        np.testing.assert_array_equal(expected, np.load(path))

    world.run(body)
