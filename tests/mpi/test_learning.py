"""What ranks find out together about a disk that nobody measured."""

import numpy as np
import pytest

import outcore
from outcore import _core
from page_cache import forget
from ranks import UNDER_MPI, of_all, once, ranks

# Each fourth row: 32 kB apart.
SHAPE = (4800, 2048)
# Requests of the first trial, and of both: `crates/access/src/learning.rs`.
TRIALS = (44, 84)


@pytest.fixture
def learning():
    _core.set_disks({})
    _core.set_learning(True)
    yield
    _core.set_learning(False)
    _core.set_disks({})


@ranks(2, 4, per_node=(None, 2))
# With method="direct" each rank reads what it wants before it says anything.
@pytest.mark.parametrize(
    ("method", "write"),
    [("auto", False), ("two-phase", False), ("auto", True), ("direct", True), ("two-phase", True)],
)
def test_one_rank_of_a_node_tries_the_disk_for_all(world, folder, learning, write, method):
    """And only once; the others know from then on what it found, and try nothing themselves."""
    data = np.arange(SHAPE[0] * SHAPE[1], dtype="f4").reshape(SHAPE)
    path = folder / "a.npy"

    def body(t):
        once(t, lambda: np.save(path, data))
        key = np.s_[4 * t.rank :: 4 * t.size, :64]
        counts = []
        for learns in (False, True, True):
            # Pages that are mapped stay in the page cache.
            with outcore.open(path, "r+", comm=t) as a:
                once(t, lambda: forget(path))
                _core.set_learning(learns)
                t.barrier()
                if write:
                    a.write_all(key, data[key] + 1, method=method)
                else:
                    np.testing.assert_array_equal(a.read_all(key, method=method), data[key])
                counts.append(a.stats()["reads"])
            t.barrier()
        return t.nodes[t.rank], counts

    ran = of_all(world.run(body))
    found = [one for each in ran for one in (each if isinstance(each, list) else [each])]
    tries = []
    for node in sorted({node for node, _ in found}):
        counts = np.array([each for of, each in found if of == node])
        tried = counts[:, 1] - counts[:, 0]
        tries.append((tried > 0).sum())
        assert counts[:, 2].sum() <= counts[:, 0].sum(), counts
        # With other figures a plan may have fewer requests.
        if method != "auto" and tries[-1]:
            assert tried.sum() in TRIALS, counts
    # Simulated nodes are one process, and may find that the other one has tried the disk.
    assert max(tries) == 1 and (min(tries) == 1 or not UNDER_MPI), tries
    if write:
        np.testing.assert_array_equal(np.load(path)[::4, :64], data[::4, :64] + 1)


@ranks(1, 2, 4, per_node=(None, 1))
@pytest.mark.parametrize("write", [False, True])
def test_ranks_of_one_node_ignore_read_times(world, folder, monkeypatch, write):
    """Each rank has a part of what the disk does; also after a call that failed."""
    calls = []
    monkeypatch.setattr(_core, "share_disks", calls.append)
    data = np.arange(64.0 * 64).reshape(64, 64)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            key = np.s_[:, t.rank :: t.size]
            if write:
                a.write_all(key, data[key], method="two-phase")
            else:
                a.read_all(key, method="two-phase")
            with pytest.raises(outcore.errors.OutcoreError):
                a.write_all(np.s_[99], 1.0) if write else a.read_all(np.s_[99])
            t.barrier()
            return t.nodes.count(t.nodes[t.rank]) > 1

    alone = not any(others for ran in of_all(world.run(body)) for others in np.ravel(ran))
    assert calls.count(True) == calls.count(False)
    assert alone == (not calls)
