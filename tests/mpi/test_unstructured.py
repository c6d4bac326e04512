"""Edge loops of several ranks: the bits of one process in memory; failures that all ranks hear of."""

import importlib
import os
import threading
import time

import numpy as np
import pytest

import outcore
from meshes import spread
from ranks import UNDER_MPI, once, ranks

SIZES = (1, 2, 3, 5, 8)
NODES, EDGES = 1200, 5000


def problem(folder, seed):
    """A schedule and arrays in a folder; what the loop gives in memory."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 4))
    middles = rng.integers(0, NODES, (EDGES, 1))
    edges = (middles + rng.integers(-30, 30, (EDGES, columns))) % NODES
    parts = outcore.unstructured.Partition(
        rng.integers(0, 3, NODES) * 5 + np.arange(NODES) * 5 // NODES, 15
    )
    y = rng.standard_normal(NODES) * 10.0 ** rng.integers(-9, 9, NODES)
    outcore.unstructured.edge_schedule(edges, NODES, partition=parts, out=folder / "loop").close()
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
        with outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule:
            outcore.unstructured.edge_loop(
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
            outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule,
            pytest.raises(outcore.errors.CollectiveError) as caught,
        ):
            outcore.unstructured.edge_loop(
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
            outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule,
            pytest.raises(outcore.errors.CollectiveError, match="on purpose") as caught,
        ):
            outcore.unstructured.edge_loop(
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
            outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule,
            pytest.raises(
                (outcore.errors.CollectiveError, outcore.errors.NotFoundError), match="missing"
            ),
        ):
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": folder / "y.npy"},
                updates={"x": folder / ("missing.npy" if t.rank == 1 else "x.npy")},
                kernel=spread,
                comm=t,
            )

    world.run(body)


# Made by all ranks together

POINTS = {
    "plane": lambda rng: rng.random((NODES, 2)) * [1, 3],
    "in order": lambda rng: np.sort(rng.standard_normal(NODES)),
    "ties": lambda rng: rng.integers(-3, 3, (NODES, 3)),
    "one place": lambda rng: np.full((NODES, 2), -0.0),
    "few": lambda rng: rng.random((3, 2)),
}
WEIGHTS = {"none": None, "integers": (0, 6), "floats": (0.0, 1e-3)}


def heavy(rng, n, kind):
    if WEIGHTS[kind] is None:
        return None
    return rng.integers(*WEIGHTS[kind], n) if kind == "integers" else rng.random(n) ** 8 * 1e-3


@pytest.mark.parametrize(
    ("weights", "budget"), [("none", 1 << 30), ("integers", 192 << 10), ("floats", 192 << 10)]
)
@pytest.mark.parametrize("method", ["rcb", "hilbert"])
@ranks(1, 2, 5)
def test_partitions_are_those_of_one_process(world, folder, method, weights, budget):
    made = {}

    def alone():
        for n, (name, points) in enumerate(POINTS.items()):
            rng = np.random.default_rng(n)
            where = folder / f"{n}"
            outcore.create(where.with_suffix(".npy"), data=points(rng)).close()
            weight = heavy(rng, len(np.load(where.with_suffix(".npy"))), weights)
            if weight is not None:
                outcore.create(folder / f"{n}w.npy", data=weight).close()
            more = {} if weight is None else {"weights": weight}
            for parts, levels in ((7, None), (40, (4, 10))):
                found = outcore.unstructured.partition(
                    where.with_suffix(".npy"), parts, method=method, levels=levels, **more
                )
                made[name, parts] = found.part[:].tobytes()

    def body(t):
        once(t, alone)
        found = {}
        for n, name in enumerate(POINTS):
            more = {} if WEIGHTS[weights] is None else {"weights": folder / f"{n}w.npy"}
            for parts, levels in ((7, None), (40, (4, 10))):
                with outcore.unstructured.partition(
                    folder / f"{n}.npy",
                    parts,
                    method=method,
                    levels=levels,
                    out=folder / f"parts{parts}",
                    comm=t,
                    **more,
                ) as one:
                    assert (one.parts, one.levels, one.method) == (parts, levels, method)
                    found[name, parts] = one.part[:].tobytes()
        t.barrier()
        once(t, lambda: nothing_is_left(folder))
        return found

    with outcore.memory(of_ranks(world, budget)):
        found = world.run(body)
    for key, expected in made.items():
        assert all(one[key] == expected for one in found), key


def of_ranks(world, budget):
    """The budget of a process with simulated ranks, which share it."""
    return budget if UNDER_MPI else budget * world.size


def nothing_is_left(folder):
    assert [one.name for one in folder.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("budget", [256 << 10, 1 << 30], ids=["little", "much"])
@pytest.mark.parametrize("kind", ["none", "scattered", "levels"])
@ranks(2, 5)
def test_schedules_are_those_of_one_process(world, folder, kind, budget):
    """File by file, byte by byte."""
    rng = np.random.default_rng(3)
    edges = (rng.integers(0, NODES, (EDGES, 1)) + rng.integers(-30, 30, (EDGES, 3))) % NODES
    scattered = np.arange(NODES) * 7 % 11 % 6

    def given():
        if kind == "none":
            return None
        return outcore.unstructured.Partition(
            scattered, 6, levels=(3, 2) if kind == "levels" else None
        )

    def alone():
        with outcore.memory(budget):
            outcore.unstructured.edge_schedule(
                edges, NODES, partition=given(), out=folder / "1"
            ).close()

    def body(t):
        once(t, alone)
        with outcore.unstructured.edge_schedule(
            edges, NODES, partition=given(), out=folder / "all", comm=t
        ) as schedule:
            assert schedule.edges == EDGES
        once(t, lambda: nothing_is_left(folder))
        files = sorted(one.name for one in (folder / "1").iterdir())
        assert len(files) == 5
        for name in files:
            assert (folder / "1" / name).read_bytes() == (folder / "all" / name).read_bytes(), name

    with outcore.memory(of_ranks(world, budget)):
        world.run(body)


@ranks(2, 3, 5, 8)
def test_invalid_input_of_one_rank_raises_on_all(world, folder):
    points, edges = np.zeros((NODES, 2)), np.zeros((EDGES, 2), int)
    points[NODES - 1, 1] = np.nan
    edges[EDGES - 1, 0] = NODES

    def body(t):
        with pytest.raises(outcore.OutcoreError, match=rf"coordinates\[{NODES - 1}, 1\] is nan"):
            outcore.unstructured.partition(points, 4, out=folder / "parts", comm=t)
        with pytest.raises(outcore.OutcoreError, match=rf"edges\[{EDGES - 1}, 0\] is {NODES}"):
            outcore.unstructured.edge_schedule(edges, NODES, out=folder / "loop", comm=t)
        with pytest.raises(outcore.OutcoreError, match="pass out=") as caught:
            outcore.unstructured.partition(points, 4, comm=t)
        assert caught.value.code == "missing-argument"
        with pytest.raises(outcore.errors.CollectiveError) as caught:
            outcore.unstructured.partition(points, 4 + t.rank, out=folder / "parts", comm=t)
        assert caught.value.code == "mismatched-call"
        t.barrier()
        once(t, lambda: nothing_is_left(folder))
        assert not (folder / "loop" / "edge-schedule.json").exists()

    world.run(body)


@ranks(1, 2, 3)
def test_metis_on_one_rank_for_all(world, folder):
    pytest.importorskip("pymetis", reason="pymetis is not installed: METIS is NOT tested")
    rng = np.random.default_rng(0)
    edges = (rng.integers(0, NODES, (EDGES, 1)) + rng.integers(-30, 30, (EDGES, 2))) % NODES

    def body(t):
        expected = outcore.unstructured.partition(NODES, 4, method="metis", edges=edges)
        with outcore.unstructured.partition(
            NODES, 4, method="metis", edges=edges, out=folder / "parts", comm=t
        ) as found:
            np.testing.assert_array_equal(expected.part, found.part)

    world.run(body)


@pytest.mark.parametrize(
    ("module", "name"),
    [("bisection", "scatter"), ("groups", "scatter"), ("translation", "read_slabs")],
    ids=["bisection", "groups", "translation"],
)
@ranks(2, 3)
def test_nobody_reads_what_a_late_rank_has_not_written(world, folder, module, name, monkeypatch):
    rng = np.random.default_rng(5)
    edges = (rng.integers(0, NODES, (EDGES, 1)) + rng.integers(-30, 30, (EDGES, 2))) % NODES
    points, slow = rng.random((NODES, 2)), threading.local()
    where = importlib.import_module(f"outcore.problems.unstructured.{module}")
    whole = getattr(where, name)

    def late(*words):
        if getattr(slow, "here", False):
            time.sleep(0.2)
        return whole(*words)

    expected = outcore.unstructured.partition(points, 20)

    def body(t):
        slow.here = t.rank == t.size - 1
        with outcore.unstructured.partition(points, 20, out=folder / "parts", comm=t) as found:
            np.testing.assert_array_equal(expected.part, found.part)
            outcore.unstructured.edge_schedule(
                edges, NODES, partition=found, out=folder / "all", comm=t
            ).close()
        slow.here = False
        once(
            t,
            lambda: outcore.unstructured.edge_schedule(
                edges, NODES, partition=expected, out=folder / "1"
            ).close(),
        )
        for one in (folder / "1").iterdir():
            assert one.read_bytes() == (folder / "all" / one.name).read_bytes(), one.name

    monkeypatch.setattr(where, name, late)
    world.run(body)


@ranks(2, 3)
def test_a_rank_that_cannot_flush_leaves_no_schedule(world, folder, monkeypatch):
    from outcore.problems.unstructured import edge_schedule

    failing, seen = threading.local(), []
    whole, say = outcore.DiskArray.flush, edge_schedule._write_blocks

    def flush(self):
        if getattr(failing, "here", False) and self.path.endswith("index.npy"):
            time.sleep(0.3)
            raise OSError("on purpose")
        whole(self)

    monkeypatch.setattr(outcore.DiskArray, "flush", flush)
    monkeypatch.setattr(
        "outcore.problems.unstructured.edge_schedule._write_blocks",
        lambda *words: (seen.append(1), say(*words)),
    )

    def body(t):
        failing.here = t.rank == t.size - 1
        with pytest.raises(outcore.errors.CollectiveError, match="on purpose"):
            outcore.unstructured.edge_schedule([[0, 1], [1, 2]], 3, out=folder / "loop", comm=t)
        t.barrier()
        assert not (folder / "loop" / "edge-schedule.json").exists()

    world.run(body)
    assert seen == []


# Arrays in chunks, and loops that go on

CHUNKED = {
    "zarr": ("x.zarr", {"chunks": (100,), "compression": "zstd"}),
    "shards": ("x.zarr", {"chunks": (20,), "shards": (300,)}),
    "hdf5": ("x.h5::/x", {"chunks": (128,), "compression": "gzip"}),
    "hdf5 as it is": ("x.h5::/x", {"chunks": (128,)}),
}


@pytest.mark.parametrize("kind", CHUNKED)
@ranks(1, 2, 3, 5)
def test_ranks_encode_whole_chunks(world, folder, kind):
    name, words = CHUNKED[kind]
    expected = []

    def begin():
        expected.append(problem(folder, 1))
        x = np.load(folder / "x.npy")
        outcore.create(f"{folder}/{name}", data=x, **words).close()

    def body(t):
        once(t, begin)
        x = outcore.open(f"{folder}/{name}", "r+")
        encodes = x.stats()["encodes"]
        with outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule:
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": folder / "y.npy"},
                updates={"x": x, "z": (folder / "x.npy", "max")},
                kernel=both,
                comm=t,
            )
        done = t.allgather(np.array([x.stats()["encodes"] - encodes], np.int64)).sum()
        if "compression" in words:
            assert done == -(-NODES // words["chunks"][0]), "each chunk once, by one rank"
        x.close()
        t.barrier()
        with outcore.open(f"{folder}/{name}") as x:
            found = x[:].tobytes()
        t.barrier()
        once(t, lambda: nothing_is_left(folder))
        return found

    found = world.run(body)
    for wanted in expected:
        assert all(one == wanted.tobytes() for one in found)


def both(edges, x, y, z):
    spread(edges, x, y)
    np.maximum.at(z, edges[:, 0], y[edges[:, 0]])


@pytest.mark.parametrize("kind", ["npy", "zarr"])
@ranks(1, 2, 3)
def test_a_loop_goes_on_with_what_other_ranks_have_done(world, folder, kind, monkeypatch):
    """Begun by one process that fails in a late block; what was stored is not computed again."""
    monkeypatch.setattr("outcore.compute.jobs.checkpoints._CHECKPOINT", 0.0)
    path = folder / ("x.npy" if kind == "npy" else "x.zarr")
    expected, calls = [], []

    def loop(kernel, t=None):
        with outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule:
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": folder / "y.npy"},
                updates={"x": path},
                kernel=kernel,
                resume=True,
                comm=t,
            )
            return schedule.blocks

    def kernel(edges, x, y):
        calls.append(1)
        if os.environ.get("OUTCORE_TEST_FAILS") and len(calls) == 7:
            raise ZeroDivisionError("on purpose")
        spread(edges, x, y)

    def begin():
        expected.append(problem(folder, 2))
        if kind == "zarr":
            outcore.create(path, data=np.load(folder / "x.npy"), chunks=(100,)).close()
        monkeypatch.setenv("OUTCORE_TEST_FAILS", "1")
        before = outcore.open(path)[:].tobytes()
        with pytest.raises(ZeroDivisionError) as caught:
            loop(kernel)
        assert "resume=True" in caught.value.__notes__[0]
        assert before == outcore.open(path)[:].tobytes(), "changed before all is there"
        monkeypatch.delenv("OUTCORE_TEST_FAILS")
        with pytest.raises(outcore.errors.UsageError, match="was interrupted") as refused:
            outcore.unstructured.edge_loop(
                [[0, 1]], updates={"x": path}, kernel=spread, nodes=NODES
            )
        assert refused.value.code == "other-job"
        calls.clear()

    def body(t):
        once(t, begin)
        blocks = loop(kernel, t)
        t.barrier()
        once(t, lambda: nothing_is_left(folder))
        assert [one for one in os.listdir(folder) if "outcore" in one] == []
        with outcore.open(path) as x:
            return blocks, x[:].tobytes()

    found = world.run(body)
    for wanted in expected:
        assert all(one == wanted.tobytes() for _, one in found)
        if not UNDER_MPI:
            assert 0 < len(calls) < found[0][0] - 3


@ranks(2, 3, most=4)
def test_another_loop_does_not_go_on(world, folder, monkeypatch):
    monkeypatch.setattr("outcore.compute.jobs.checkpoints._CHECKPOINT", 0.0)

    def loop(t, kernel, **words):
        with outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule:
            outcore.unstructured.edge_loop(
                schedule,
                **{"reads": {"y": folder / "y.npy"}, **words},
                updates={"x": folder / "x.npy"},
                kernel=kernel,
                resume=True,
                comm=t,
            )

    def kernel(edges, x, y):
        raise ZeroDivisionError("on purpose")

    def body(t):
        once(t, lambda: problem(folder, 0))
        with pytest.raises(outcore.errors.CollectiveError, match="on purpose"):
            loop(t, kernel)
        once(t, lambda: nothing_is_left(folder))
        assert not [one for one in os.listdir(folder) if "outcore" in one], "nothing worth going on"
        calls = []

        def late(edges, x, y):
            calls.append(1)
            # There are three copies of what is updated: the first block is stored by now.
            if len(calls) == 4:
                raise ZeroDivisionError("on purpose")

        with pytest.raises(outcore.errors.CollectiveError, match="on purpose"):
            loop(t, late)
        before = (folder / "x.npy").read_bytes()
        for words in ({"kernel": spread}, {"kernel": late, "reads": {"y": folder / "x2.npy"}}):
            once(
                t,
                lambda: outcore.create(
                    folder / "x2.npy", data=np.ones(NODES), overwrite=True
                ).close(),
            )
            with pytest.raises(outcore.OutcoreError, match="belongs to another job"):
                loop(t, **words)
        assert before == (folder / "x.npy").read_bytes()
        once(
            t,
            lambda: [outcore.jobs.clean(one) for one in outcore.jobs.unfinished(folder)],
        )
        assert not [one for one in os.listdir(folder) if "outcore" in one]

    world.run(body)
