"""Edge loops: the bits of the loop in memory, for every budget, partition, format, number of ranks."""

import gc
import json
import time

import numpy as np
import pytest

import outcore
from meshes import triangulation
from outcore.problems.unstructured import edge_loop as loops
from outcore.testing.sim import SimWorld
from schedule_check import check_schedule

N = 2500


@pytest.fixture(scope="module")
def mesh():
    points, edges = triangulation(N, seed=1)
    rng = np.random.default_rng(2)
    return {
        "points": points,
        "edges": edges,
        "y": rng.standard_normal(N) * 10.0 ** rng.integers(-8, 8, N),
        "q": rng.standard_normal((N, 3)),
        "w": rng.standard_normal(len(edges)),
        "x": rng.standard_normal(N),
        "r": rng.standard_normal((N, 3)),
    }


def sweep(edges, x, y):
    """The report's Figure 7."""
    a, b = edges.T
    np.add.at(x, a, y[b])
    np.add.at(x, b, y[a])


def flux(edges, r, q, w):
    a, b = edges.T
    f = w[:, None] * (q[a] - q[b]) * np.abs(q[a] + q[b])
    for c in range(3):
        r[:, c] += np.bincount(a, f[:, c], len(r))
    np.subtract.at(r, b, f)


def in_memory(kernel, edges, start, **reads):
    """The loop that the documentation promises."""
    added = {name: np.zeros_like(x) for name, x in start.items()}
    kernel(edges, **added, **reads)
    return {name: x + added[name] for name, x in start.items()}


PARTITIONS = {
    "none": lambda points: None,
    "rcb": lambda points: outcore.unstructured.partition(points, 6),
    "hilbert": lambda points: outcore.unstructured.partition(points, 3, method="hilbert"),
    "scattered": lambda points: outcore.unstructured.Partition(np.arange(N) * 7 % 11 % 5, 6),
    "one": lambda points: outcore.unstructured.Partition.blocks(N, 1),
}


@pytest.mark.parametrize("budget", ["192 KiB", "512 KiB", "1 GiB"])
@pytest.mark.parametrize("name", PARTITIONS)
def test_bits_are_those_of_the_loop_in_memory(mesh, name, budget, tmp_path):
    expected = in_memory(sweep, mesh["edges"], {"x": mesh["x"]}, y=mesh["y"])["x"]
    assert (expected != mesh["x"] + in_any_order(mesh)).any(), "sums that order does not change"
    edges = outcore.create(tmp_path / "e.npy", data=mesh["edges"])
    x = outcore.create(tmp_path / "x.npy", data=mesh["x"])
    y = outcore.create(tmp_path / "y.npy", data=mesh["y"])
    partition = PARTITIONS[name](mesh["points"])
    with outcore.memory(budget):
        outcore.unstructured.edge_loop(
            edges, reads={"y": y}, updates={"x": x}, kernel=sweep, partition=partition
        )
    assert expected.tobytes() == x[:].tobytes()


def in_any_order(mesh):
    added = np.zeros(N)
    sweep(mesh["edges"][::-1], added, mesh["y"])
    return added


@pytest.mark.parametrize("budget", ["384 KiB", "1 GiB"])
@pytest.mark.parametrize("kind", ["npy", "zarr", "h5", "memory", "big endian", "by columns"])
def test_rows_edge_data_and_formats(mesh, kind, budget, tmp_path):
    expected = in_memory(flux, mesh["edges"], {"r": mesh["r"]}, q=mesh["q"], w=mesh["w"])["r"]

    def made(name):
        data = mesh[name]
        if kind == "memory":
            return data.copy()
        if kind == "big endian":
            return outcore.create(
                tmp_path / f"{name}.npy", data=data.astype(data.dtype.newbyteorder(">"))
            )
        if kind == "by columns":
            return outcore.create(tmp_path / f"{name}.npy", data=data, order="F")
        words = {} if kind == "npy" else {"chunks": (300, *data.shape[1:]), "compression": "zstd"}
        if kind == "h5":
            words["compression"] = "gzip"
        path = f"{tmp_path}/{name}.{kind}" + ("::/data" if kind == "h5" else "")
        return outcore.create(path, data=data, **words)

    r, q, w, edges = made("r"), made("q"), made("w"), made("edges")
    if kind in ("h5", "zarr") and budget != "1 GiB":
        budget = "2 MiB"  # chunks go through codecs, which need some memory
    with outcore.memory(budget):
        outcore.unstructured.edge_loop(
            edges, reads={"q": q}, edge_data={"w": w}, updates={"r": r}, kernel=flux
        )
    assert expected.tobytes() == r[:].astype("<f8").tobytes()


def test_one_schedule_for_several_loops(mesh, tmp_path):
    partition = outcore.unstructured.partition(mesh["points"], 5)
    with outcore.memory("512 KiB"):
        outcore.unstructured.edge_schedule(
            mesh["edges"], N, partition=partition, out=tmp_path / "loop", bytes_per_node=48
        ).close()
        with outcore.unstructured.EdgeSchedule.open(tmp_path / "loop") as schedule:
            assert schedule.blocks >= 5
            x, y = mesh["x"].copy(), mesh["y"].copy()
            for _ in range(3):
                outcore.unstructured.edge_loop(
                    schedule, reads={"y": y}, updates={"x": x}, kernel=sweep
                )
                x, y = y, x
    expected, other = mesh["x"], mesh["y"]
    for _ in range(3):
        expected = in_memory(sweep, mesh["edges"], {"x": expected}, y=other)["x"]
        expected, other = other, expected
    assert (expected.tobytes(), other.tobytes()) == (x.tobytes(), y.tobytes())


def test_blocks_have_all_edges_of_their_nodes(mesh):
    part = np.arange(N) * 7 % 11 % 5
    schedule = outcore.unstructured.edge_schedule(
        mesh["edges"], N, partition=outcore.unstructured.Partition(part, 5)
    )
    owners = np.sort(part[mesh["edges"]], axis=1)
    expected = [int((owners == p).any(axis=1).sum()) for p in range(5)]
    assert expected == schedule.edges_of_blocks.tolist()
    own, off = schedule.nodes_of_blocks.T
    assert np.bincount(part).tolist() == own.tolist()
    for p in range(5):
        mine = mesh["edges"][(owners == p).any(axis=1)]
        assert (part[np.unique(mine)] != p).sum() == off[p]


@pytest.mark.parametrize("dtype", ["f8", "i4", "u1"])
@pytest.mark.parametrize("combine", ["min", "max", "add"])
def test_ways_to_combine(mesh, combine, dtype):
    at = {"add": np.add, "min": np.minimum, "max": np.maximum}[combine].at
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 200, N).astype(dtype) for _ in range(2))
    expected = x.copy()
    at(expected, mesh["edges"][:, 0], y[mesh["edges"][:, 1]])

    def kernel(edges, x, y):
        at(x, edges[:, 0], y[edges[:, 1]])

    with outcore.memory("256 KiB"):
        outcore.unstructured.edge_loop(
            mesh["edges"], reads={"y": y}, updates={"x": (x, combine)}, kernel=kernel
        )
    np.testing.assert_array_equal(expected, x)


def test_cells_loops_and_nodes_without_edges():
    """Triangles, a node twice in an edge, the same edge twice, nodes without edges, no edge at all."""
    cells = np.array([[0, 1, 2], [2, 1, 0], [5, 5, 5], [8, 0, 5]])

    def kernel(edges, x, y):
        np.add.at(x, edges, y[edges].sum(axis=1)[:, None])

    y = np.arange(10.0)
    for edges in (cells, cells[:0]):
        expected = in_memory(kernel, edges, {"x": np.full(10, -0.0)}, y=y)["x"]
        for parts in (1, 4, 20):
            x = np.full(10, -0.0)
            outcore.unstructured.edge_loop(
                edges,
                reads={"y": y},
                updates={"x": x},
                kernel=kernel,
                partition=outcore.unstructured.Partition.blocks(10, parts),
            )
            assert expected.tobytes() == x.tobytes(), parts
    outcore.unstructured.edge_loop(cells[:0], updates={"x": np.zeros(0)}, kernel=kernel)


def test_two_updates_and_paths(mesh, tmp_path):
    outcore.create(tmp_path / "a.npy", data=mesh["x"]).close()
    b = np.zeros((N, 3))

    def kernel(edges, a, b, y):
        sweep(edges, a, y)
        np.add.at(b, edges[:, 0], 1.0)

    with outcore.memory("384 KiB"):
        outcore.unstructured.edge_loop(
            mesh["edges"],
            reads={"y": mesh["y"]},
            updates={"a": str(tmp_path / "a.npy"), "b": b},
            kernel=kernel,
        )
    expected = in_memory(
        kernel, mesh["edges"], {"a": mesh["x"], "b": np.zeros((N, 3))}, y=mesh["y"]
    )
    assert expected["a"].tobytes() == np.load(tmp_path / "a.npy").tobytes()
    np.testing.assert_array_equal(expected["b"], b)


def test_columns_of_one_array_are_two_arrays(mesh):
    both = np.stack([mesh["x"], mesh["y"]], axis=1)
    expected = in_memory(sweep, mesh["edges"], {"x": mesh["x"]}, y=mesh["y"])["x"]
    outcore.unstructured.edge_loop(
        mesh["edges"], reads={"y": both[:, 1]}, updates={"x": both[:, 0]}, kernel=sweep
    )
    assert expected.tobytes() == both[:, 0].tobytes()
    assert mesh["y"].tobytes() == both[:, 1].tobytes()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_share_the_blocks(mesh, size, tmp_path):
    expected = in_memory(sweep, mesh["edges"], {"x": mesh["x"]}, y=mesh["y"])["x"]
    with outcore.memory("512 KiB"):
        outcore.unstructured.edge_schedule(mesh["edges"], N, out=tmp_path / "loop").close()
    outcore.create(tmp_path / "x.npy", data=mesh["x"]).close()
    outcore.create(tmp_path / "y.npy", data=mesh["y"]).close()
    calls = []

    def body(t):
        def kernel(edges, x, y):
            calls.append(t.rank)
            sweep(edges, x, y)

        with outcore.unstructured.EdgeSchedule.open(tmp_path / "loop") as schedule:
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": tmp_path / "y.npy"},
                updates={"x": tmp_path / "x.npy"},
                kernel=kernel,
                comm=t,
            )
            return schedule.blocks

    blocks = SimWorld(size).run(body)[0]
    assert expected.tobytes() == np.load(tmp_path / "x.npy").tobytes()
    assert len(calls) == blocks >= 5
    assert set(calls) == set(range(size))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_have_their_parts_of_a_hierarchical_partition(mesh, size, tmp_path):
    expected = in_memory(sweep, mesh["edges"], {"x": mesh["x"]}, y=mesh["y"])["x"]
    two = outcore.unstructured.partition(mesh["points"], 8, levels=(4, 2))
    outcore.unstructured.edge_schedule(
        mesh["edges"], N, partition=two, out=tmp_path / "loop"
    ).close()
    outcore.create(tmp_path / "x.npy", data=mesh["x"]).close()

    def body(t):
        seen = []

        def kernel(edges, x, y):
            seen.append(len(edges))
            sweep(edges, x, y)

        with outcore.unstructured.EdgeSchedule.open(tmp_path / "loop") as schedule:
            assert (schedule.ranks, schedule.blocks) == (2, 8)
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": mesh["y"]},
                updates={"x": tmp_path / "x.npy"},
                kernel=kernel,
                comm=t,
            )
            return seen, schedule.edges_of_blocks

    found = SimWorld(size).run(body)
    assert expected.tobytes() == np.load(tmp_path / "x.npy").tobytes()
    edges = found[0][1]
    if size == 2:
        assert [seen for seen, _ in found] == [edges[0::2].tolist(), edges[1::2].tolist()]
    else:
        assert sorted(number for seen, _ in found for number in seen) == sorted(edges)


def test_a_rank_that_fails_is_known_to_all(mesh, tmp_path):
    parts = outcore.unstructured.Partition.blocks(N, 6)
    outcore.unstructured.edge_schedule(
        mesh["edges"], N, partition=parts, out=tmp_path / "loop"
    ).close()
    outcore.create(tmp_path / "x.npy", data=mesh["x"]).close()

    def body(t):
        def kernel(edges, x):
            raise ZeroDivisionError("on purpose")

        def other(edges, x):
            np.add.at(x, edges[:, 0], 1)

        with (
            outcore.unstructured.EdgeSchedule.open(tmp_path / "loop") as schedule,
            pytest.raises(outcore.errors.CollectiveError) as caught,
        ):
            outcore.unstructured.edge_loop(
                schedule,
                updates={"x": tmp_path / "x.npy"},
                kernel=kernel if t.rank == 1 else other,
                comm=t,
            )
        assert caught.value.ranks == (1,)
        assert "on purpose" in str(caught.value)

    SimWorld(3).run(body)


@pytest.mark.parametrize("budget", ["256 KiB", "1 GiB"])
def test_columns_that_are_updated(budget):
    """A matrix times a vector: each element of the matrix is worked on once, by the owner of its row."""
    rng = np.random.default_rng(0)
    places, values = rng.integers(0, N, (9000, 2)), rng.standard_normal(9000)

    def product(edges, y, x, a):
        np.add.at(y, edges[:, 0], a * x[edges[:, 1]])

    x, expected, y = rng.standard_normal(N), np.zeros(N), np.zeros(N)
    product(places, expected, x, values)
    with outcore.memory(budget):
        schedule = outcore.unstructured.edge_schedule(places, N, updated=[0], bytes_per_edge=8)
        outcore.unstructured.edge_loop(
            schedule, reads={"x": x}, edge_data={"a": values}, updates={"y": y}, kernel=product
        )
    assert schedule.edges_of_blocks.sum() == 9000
    assert expected.tobytes() == y.tobytes()
    for bad in ([], [2], [-1, 0]):
        with pytest.raises(outcore.errors.UsageError, match="columns"):
            outcore.unstructured.edge_schedule(places, N, updated=bad)


def test_ranks_update_only_what_is_on_disk(mesh, tmp_path):
    outcore.unstructured.edge_schedule(mesh["edges"], N, out=tmp_path / "loop").close()

    def body(t):
        with outcore.unstructured.EdgeSchedule.open(tmp_path / "loop") as schedule:
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": mesh["y"]},
                updates={"x": mesh["x"].copy()},
                kernel=sweep,
                comm=t,
            )

    with pytest.raises(outcore.OutcoreError, match="several ranks cannot update 'x'"):
        SimWorld(2).run(body)
    SimWorld(1).run(body)


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_make_a_schedule_for_one_loop(mesh, size, tmp_path):
    expected = in_memory(sweep, mesh["edges"], {"x": mesh["x"]}, y=mesh["y"])["x"]
    outcore.create(tmp_path / "x.npy", data=mesh["x"]).close()
    parts = outcore.unstructured.partition(mesh["points"], 6)

    def body(t, edges):
        seen = []

        def kernel(edges, x, y):
            seen.append(len(edges))
            sweep(edges, x, y)

        outcore.unstructured.edge_loop(
            edges,
            reads={"y": mesh["y"]},
            updates={"x": tmp_path / "x.npy"},
            kernel=kernel,
            partition=parts,
            comm=t,
        )
        return len(seen)

    calls = SimWorld(size).run(lambda t: body(t, mesh["edges"]))
    assert expected.tobytes() == np.load(tmp_path / "x.npy").tobytes()
    assert sum(calls) == 6 and min(calls) >= 1
    with pytest.raises(outcore.OutcoreError, match=r"is 2500, which is out of range; use 0..2499"):
        SimWorld(size).run(lambda t: body(t, mesh["edges"] + 1))
    assert [one.name for one in tmp_path.iterdir()] == ["x.npy"], "what was temporary is gone"


# How it runs


def test_the_schedule_of_the_loop_is_sound(mesh, monkeypatch):
    """The checker of schedules accepts it: blocks fit, nothing is stored twice, all rows are stored."""
    checked = []
    whole = loops._Loop.run

    def run(self, plan, schedule, steps, *more):
        shapes = [one.shape for one in self.arrays(schedule)]
        check_schedule(plan, shapes)
        checked.append(plan)
        assert plan.held <= int(outcore.memory()) // 2
        whole(self, plan, schedule, steps, *more)

    monkeypatch.setattr(loops._Loop, "run", run)
    with outcore.memory("384 KiB"):
        outcore.unstructured.edge_loop(
            mesh["edges"],
            reads={"q": mesh["q"]},
            edge_data={"w": mesh["w"]},
            updates={"r": mesh["r"].copy()},
            kernel=flux,
            partition=outcore.unstructured.partition(mesh["points"], 4),
        )
    assert checked[0].steps > 4


def test_the_next_block_is_read_while_a_kernel_runs(mesh, monkeypatch):
    begun = []
    whole = loops.Indirect.iread

    def iread(self, key, *, out):
        begun.append(key[0].start)
        return whole(self, key, out=out)

    seen = []

    def kernel(edges, x, y):
        seen.append(len(begun))
        sweep(edges, x, y)

    monkeypatch.setattr(loops.Indirect, "iread", iread)
    schedule = outcore.unstructured.edge_schedule(
        mesh["edges"], N, partition=outcore.unstructured.Partition.blocks(N, 4)
    )
    outcore.unstructured.edge_loop(
        schedule, reads={"y": mesh["y"]}, updates={"x": mesh["x"].copy()}, kernel=kernel
    )
    assert seen == [4, 6, 8, 8], "two arrays of each block, one block ahead"


def test_memory_stays_within_the_budget(tmp_path):
    import tracemalloc

    rng = np.random.default_rng(0)
    n, m = 100_000, 300_000
    ends = rng.integers(0, n, m)
    edges = np.stack([ends, np.minimum(ends + rng.integers(1, 50, m), n - 1)], axis=1)
    stored = outcore.create(tmp_path / "e.npy", data=edges)
    x = outcore.create(tmp_path / "x.npy", (n,), "f8")
    y = outcore.create(tmp_path / "y.npy", data=rng.random(n))
    whole = y[:]
    added = np.zeros(n)
    sweep(edges, added, whole)
    del edges, ends
    with outcore.memory("2 MiB"):
        tracemalloc.start()
        outcore.unstructured.edge_loop(stored, reads={"y": y}, updates={"x": x}, kernel=sweep)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert added.tobytes() == x[:].tobytes()
    assert peak < 2 * 2**20, f"{peak} bytes, beside blocks, which NumPy does not see"


# Bad input


def refused(mesh, code, **words):
    given = {
        "edges": mesh["edges"],
        "reads": {"y": mesh["y"]},
        "updates": {"x": mesh["x"].copy()},
        "kernel": sweep,
    } | words
    with pytest.raises(outcore.OutcoreError) as caught:
        outcore.unstructured.edge_loop(given.pop("edges"), **given)
    assert caught.value.code == code
    return str(caught.value)


def test_edges_out_of_range_change_nothing(mesh):
    for bad in (-1, N):
        edges, x = mesh["edges"].copy(), mesh["x"].copy()
        edges[1234, 1] = bad
        with outcore.memory("256 KiB"):
            text = refused(mesh, "index-out-of-bounds", edges=edges, updates={"x": x})
        assert f"edges[1234, 1] is {bad}" in text
        assert x.tobytes() == mesh["x"].tobytes()


def test_bad_arguments(mesh, tmp_path):
    x, y = mesh["x"].copy(), mesh["y"]
    refused(mesh, "bad-dtype", edges=mesh["edges"] * 1.0)
    refused(mesh, "bad-shape", edges=mesh["edges"][:, 0])
    refused(mesh, "shape-mismatch", reads={"y": y[1:]})
    refused(mesh, "shape-mismatch", edge_data={"w": y})
    refused(mesh, "shape-mismatch", nodes=N + 1)
    refused(mesh, "bad-value", updates={})
    refused(mesh, "bad-value", reads={"x": y})
    refused(mesh, "bad-value", reads={"edges": y})
    refused(mesh, "bad-option", updates={"x": (x, "mul")})
    refused(mesh, "bad-dtype", updates={"x": x > 0})
    refused(mesh, "bad-dtype", updates={"x": (x.astype(complex), "min")})
    refused(mesh, "bad-out", updates={"x": x.tolist()})
    refused(mesh, "bad-out", reads={"y": x[::-1]}, updates={"x": x})
    refused(mesh, "bad-out", updates={"x": x, "z": x})
    refused(mesh, "bad-partition", partition=outcore.unstructured.Partition.blocks(N - 1, 2))
    fixed = x.copy()
    fixed.flags.writeable = False
    refused(mesh, "bad-out", updates={"x": fixed})
    outcore.create(tmp_path / "x.npy", data=x).close()
    with outcore.open(tmp_path / "x.npy") as opened:
        refused(mesh, "bad-out", updates={"x": opened})
    with outcore.open(tmp_path / "x.npy", "r+") as opened:
        refused(mesh, "bad-out", updates={"x": opened}, reads={"y": tmp_path / "x.npy"})
    schedule = outcore.unstructured.edge_schedule(mesh["edges"], N)
    refused(
        mesh, "bad-value", edges=schedule, partition=outcore.unstructured.Partition.blocks(N, 2)
    )
    refused(mesh, "bad-value", edges=schedule, nodes=N + 1)
    with pytest.raises(outcore.errors.UsageError):
        outcore.unstructured.edge_schedule(mesh["edges"], -1)


def test_kernels_that_do_something_else(mesh):
    def returning(edges, x, y):
        return x

    assert "numpy.add.at" in refused(mesh, "bad-function", kernel=returning)

    def writing(edges, x, y):
        y[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        outcore.unstructured.edge_loop(
            mesh["edges"], reads={"y": mesh["y"]}, updates={"x": mesh["x"].copy()}, kernel=writing
        )


def test_temporary_arrays_go_away(mesh, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("OUTCORE_SCRATCH", str(scratch))
    seen = []

    def kernel(edges, x, y):
        seen.append(len(list(scratch.iterdir())))
        sweep(edges, x, y)

    with outcore.memory("256 KiB"), outcore.unstructured.partition(mesh["points"], 20) as partition:
        outcore.unstructured.edge_loop(
            mesh["edges"],
            reads={"y": mesh["y"]},
            updates={"x": mesh["x"].copy()},
            kernel=kernel,
            partition=partition,
        )
        with pytest.raises(outcore.errors.SectionError):
            outcore.unstructured.edge_schedule(mesh["edges"] + 1, N, partition=partition)
        gc.collect()
    assert min(seen) >= 3, "edges, their numbers and the index do not fit"
    deadline = time.monotonic() + 10
    while list(scratch.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not list(scratch.iterdir())


def test_memory_is_given_back_whatever_fails(mesh, tmp_path):
    from outcore import _core

    def failing(edges, x, y):
        raise ZeroDivisionError

    x = outcore.create(tmp_path / "x.npy", data=mesh["x"])
    bad = mesh["edges"].copy()
    bad[-1] = N
    with outcore.memory("512 KiB"):
        before = _core.memory_state()[0]
        with pytest.raises(ZeroDivisionError):
            outcore.unstructured.edge_loop(
                mesh["edges"], reads={"y": mesh["y"]}, updates={"x": x}, kernel=failing
            )
        assert _core.memory_state()[0] == before
        for partition in (None, outcore.unstructured.Partition.blocks(N, 3)):
            with pytest.raises(outcore.errors.SectionError):
                outcore.unstructured.edge_loop(
                    bad,
                    reads={"y": mesh["y"]},
                    updates={"x": x},
                    kernel=sweep,
                    partition=partition,
                )
            assert _core.memory_state()[0] == before
        outcore.unstructured.edge_loop(
            mesh["edges"], reads={"y": mesh["y"]}, updates={"x": x}, kernel=sweep
        )
        assert _core.memory_state()[0] == before
    x.close()


def test_a_node_with_more_edges_than_memory():
    star = np.stack([np.full(9000, 17), np.arange(9000)], axis=1)
    x = np.zeros(9000)

    def kernel(edges, x):
        np.add.at(x, edges[:, 0], 1.0)

    with outcore.memory("256 KiB"), pytest.raises(outcore.BudgetError, match="node 17") as caught:
        outcore.unstructured.edge_loop(star, updates={"x": x}, kernel=kernel)
    with outcore.memory(caught.value.needed):
        outcore.unstructured.edge_loop(star, updates={"x": x}, kernel=kernel)
    assert x[17] == 9000


def test_a_schedule_for_a_larger_budget_is_refused_with_a_number(mesh):
    schedule = outcore.unstructured.edge_schedule(mesh["edges"], N)
    x = mesh["x"].copy()
    with outcore.memory("128 KiB"), pytest.raises(outcore.BudgetError) as caught:
        outcore.unstructured.edge_loop(
            schedule, reads={"y": mesh["y"]}, updates={"x": x}, kernel=sweep
        )
    with outcore.memory(caught.value.needed):
        outcore.unstructured.edge_loop(
            schedule, reads={"y": mesh["y"]}, updates={"x": x}, kernel=sweep
        )


def test_damaged_folders(mesh, tmp_path):
    outcore.unstructured.edge_schedule(mesh["edges"], N, out=tmp_path / "loop").close()
    manifest = tmp_path / "loop" / "edge-schedule.json"
    words = json.loads(manifest.read_text())
    lies = ({"nodes": N + 1}, {"nodes": -1}, {"edges": -1})
    for damage in ({"version": 3}, {"copies": 7}, {"blocks": None}, {"index": 1}, *lies):
        manifest.write_text(json.dumps({**words, **damage}))
        with pytest.raises(outcore.errors.FormatError):
            outcore.unstructured.EdgeSchedule.open(tmp_path / "loop")
    manifest.write_text(json.dumps(words))
    blocks = np.load(tmp_path / "loop" / "blocks.npy")
    for damage in (
        *([1, 0, 0, 0, 0], [0, 0, 0, -1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, -1]),
        *(
            [0, 1, 0, -1, 0],
            [0, 0, 10**9, 0, 0],
        ),  # more own nodes, or others than there is room for
    ):
        np.save(tmp_path / "loop" / "blocks.npy", blocks + damage)
        with pytest.raises(outcore.errors.FormatError, match="do not match its arrays"):
            outcore.unstructured.EdgeSchedule.open(tmp_path / "loop")
    manifest.unlink()
    with pytest.raises(outcore.errors.NotFoundError):
        outcore.unstructured.EdgeSchedule.open(tmp_path / "loop")


def test_a_schedule_that_is_made_again_is_not_half_of_each(mesh, tmp_path, monkeypatch):
    outcore.unstructured.edge_schedule(mesh["edges"], N, out=tmp_path / "loop").close()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("outcore.problems.unstructured.edge_schedule._write_blocks", killed)
    with pytest.raises(KeyboardInterrupt):
        outcore.unstructured.edge_schedule(mesh["edges"][::-1], N, out=tmp_path / "loop")
    with pytest.raises(outcore.errors.NotFoundError):
        outcore.unstructured.EdgeSchedule.open(tmp_path / "loop")


@pytest.mark.parametrize("name", ["local", "index", "numbers"])
@pytest.mark.parametrize("wrong", [-1, 10**8])
def test_numbers_of_a_damaged_schedule_are_not_believed(mesh, tmp_path, name, wrong):
    """NumPy would take negative ones for others, counted from the end."""
    outcore.unstructured.edge_schedule(mesh["edges"], N, out=tmp_path / "loop").close()
    array = np.load(tmp_path / "loop" / f"{name}.npy", mmap_mode="r+")
    array[17] = wrong
    del array
    with (
        outcore.unstructured.EdgeSchedule.open(tmp_path / "loop") as schedule,
        pytest.raises(outcore.errors.FormatError) as caught,
    ):
        outcore.unstructured.edge_loop(
            schedule,
            reads={"q": mesh["q"]},
            edge_data={"w": mesh["w"]},
            updates={"r": np.zeros((N, 3))},
            kernel=flux,
        )
    assert caught.value.code == "bad-metadata"
