"""Edge loops of several ranks: the bits of one process in memory; failures that all ranks hear of."""

import numpy as np
import pytest

import outcore
from ranks import once, ranks

SIZES = (1, 2, 3, 5, 8)
NODES, EDGES = 1200, 5000


def spread(edges, x, y):
    for column in range(edges.shape[1]):
        np.add.at(x, edges[:, column], y[edges].sum(axis=1) * (column + 0.1))


def problem(folder, seed):
    """A schedule and arrays in a folder; what the loop gives in memory."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 4))
    middles = rng.integers(0, NODES, (EDGES, 1))
    edges = (middles + rng.integers(-30, 30, (EDGES, columns))) % NODES
    parts = outcore.Partition(rng.integers(0, 3, NODES) * 5 + np.arange(NODES) * 5 // NODES, 15)
    y = rng.standard_normal(NODES) * 10.0 ** rng.integers(-9, 9, NODES)
    outcore.edge_schedule(edges, NODES, partition=parts, out=folder / "loop").close()
    outcore.create(folder / "y.npy", data=y).close()
    outcore.create(folder / "x.npy", data=-y).close()
    added = np.zeros(NODES)
    spread(edges, added, y)
    return -y + added


@pytest.mark.parametrize("seed", range(4))
@ranks(*SIZES)
def test_random_edge_loops(world, folder, seed):
    expected = []

    def body(t):
        once(t, lambda: expected.append(problem(folder, seed)))
        with outcore.EdgeSchedule.open(folder / "loop") as schedule:
            outcore.edge_loop(
                schedule,
                reads={"y": folder / "y.npy"},
                updates={"x": folder / "x.npy"},
                kernel=spread,
                comm=t,
            )
        t.barrier()
        return np.load(folder / "x.npy").tobytes()

    found = world.run(body)
    for wanted in expected:  # of the rank that has made it
        assert all(one == wanted.tobytes() for one in found)


@ranks(2, 3, 5, 8)
def test_ranks_that_mean_different_loops_all_raise(world, folder):
    def body(t):
        once(t, lambda: problem(folder, 0))
        once(t, lambda: outcore.create(folder / "z.npy", (NODES, 2), "f8").close())
        before = (folder / "x.npy").read_bytes()
        with (
            outcore.EdgeSchedule.open(folder / "loop") as schedule,
            pytest.raises(outcore.CollectiveError) as caught,
        ):
            outcore.edge_loop(
                schedule,
                reads={"y": folder / ("z.npy" if t.rank == 1 else "y.npy")},
                updates={"x": folder / "x.npy"},
                kernel=spread,
                comm=t,
            )
        assert caught.value.code == "mismatched-call"
        assert before == (folder / "x.npy").read_bytes()

    world.run(body)


@ranks(2, 3, 5, 8)
def test_a_kernel_that_fails_on_one_rank_fails_on_all(world, folder):
    def body(t):
        once(t, lambda: problem(folder, 0))

        def kernel(edges, x, y):
            if t.rank == 1:
                raise ZeroDivisionError("on purpose")

        with (
            outcore.EdgeSchedule.open(folder / "loop") as schedule,
            pytest.raises(outcore.CollectiveError, match="on purpose") as caught,
        ):
            outcore.edge_loop(
                schedule,
                reads={"y": folder / "y.npy"},
                updates={"x": folder / "x.npy"},
                kernel=kernel,
                comm=t,
            )
        assert caught.value.ranks == (1,)

    world.run(body)


@ranks(2, 3, 5, 8)
def test_an_array_that_one_rank_cannot_open(world, folder):
    """It fails before the ranks have synchronised for the first time; the others hear of it there."""

    def body(t):
        once(t, lambda: problem(folder, 0))
        with (
            outcore.EdgeSchedule.open(folder / "loop") as schedule,
            pytest.raises((outcore.CollectiveError, outcore.NotFoundError), match="missing"),
        ):
            outcore.edge_loop(
                schedule,
                reads={"y": folder / "y.npy"},
                updates={"x": folder / ("missing.npy" if t.rank == 1 else "x.npy")},
                kernel=spread,
                comm=t,
            )

    world.run(body)
