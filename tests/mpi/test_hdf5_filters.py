"""Collective reads of chunks that HDF5's library decodes, and of bit planes."""

import numpy as np
import pytest

import outcore
from outcore.errors import CollectiveError
from ranks import once, ranks

h5py = pytest.importorskip("h5py")
plugin = pytest.importorskip("hdf5plugin")

DATA = (np.arange(96 * 80, dtype="i4").reshape(96, 80) * 7) % 1001


def make(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("offset", data=DATA, chunks=(16, 24), scaleoffset=0)
        file.create_dataset("bits", data=DATA, chunks=(16, 24), **plugin.Bitshuffle())
        bad = file.create_dataset("bad", data=DATA, chunks=(16, 24), scaleoffset=0)
        bad.id.write_direct_chunk((32, 24), b"\xff" * 30, 0)


@ranks(1, 2, 3, 5, per_node=(None, 2))
def test_all_ranks_read_and_fail_together(world, folder):
    path = folder / "a.h5"

    def body(t):
        once(t, lambda: make(path))
        for name in ("offset", "bits"):
            for method in ("two-phase", "direct"):
                with outcore.open(f"{path}::{name}", comm=t) as a:
                    key = np.s_[t.rank :: t.size, 3:70]
                    np.testing.assert_array_equal(DATA[key], a.read_all(key, method=method))
        with outcore.open(f"{path}::bad", comm=t) as a:
            with pytest.raises(CollectiveError, match=r"codec hdf5: filter 6 \(scaleoffset\)"):
                a.read_all(method="two-phase")
            np.testing.assert_array_equal(DATA[:32], a.read_all(np.s_[:32], method="two-phase"))

    world.run(body)
