"""Any unstructured problem: partitions by sorting, lists element by element, loops in memory."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from meshes import bisected, spread
from outcore.testing.sim import SimWorld

SETTINGS = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
BUDGETS = st.sampled_from(["128 KiB", "160 KiB", "400 KiB", "1 GiB"])


@st.composite
def points(draw):
    """Coordinates with many ties, or none, on few axes."""
    n, axes = draw(st.integers(0, 1500)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return draw(
        st.sampled_from(
            [
                rng.standard_normal((n, axes)),
                rng.integers(-2, 3, (n, axes)),
                rng.integers(0, 50, (n, axes)).astype("f4"),
                np.zeros((n, axes)),
            ]
        )
    )


@SETTINGS
@given(points(), st.integers(1, 40), st.sampled_from(["none", "small", "heavy"]), BUDGETS)
def test_bisection(x, parts, kind, budget):
    rng = np.random.default_rng(1)
    weights = {
        "none": None,
        "small": rng.integers(0, 4, len(x)),
        "heavy": 2 ** rng.integers(0, 30, len(x)),
    }[kind]
    if weights is not None and not weights.any():
        weights = None
    each = [1] * len(x) if weights is None else [int(w) for w in weights]
    with outcore.memory(budget):
        found = outcore.unstructured.partition(x, parts, weights=weights)
    np.testing.assert_array_equal(bisected(x, each, parts), np.asarray(found.part))
    if weights is None:
        assert np.ptp(found.counts) <= 1


@SETTINGS
@given(points(), st.integers(1, 40), BUDGETS)
def test_curves(x, parts, budget):
    expected = outcore.unstructured.partition(x, parts, method="hilbert")
    with outcore.memory(budget):
        found = outcore.unstructured.partition(x, parts, method="hilbert")
    np.testing.assert_array_equal(expected.part, found.part[:])
    assert np.ptp(found.counts) <= 1


@st.composite
def problems(draw):
    """Nodes, edges of some columns, parts of nodes."""
    nodes, columns = draw(st.integers(1, 600)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    edges = rng.integers(0, nodes, (draw(st.integers(0, 900)), columns))
    parts = draw(st.integers(1, 9))
    part = draw(
        st.sampled_from(
            [
                rng.integers(0, parts, nodes),
                np.arange(nodes) * parts // nodes,
                np.zeros(nodes, np.int64),
            ]
        )
    )
    return nodes, edges.astype(draw(st.sampled_from(["i4", "i8", "u8"]))), part, parts


@SETTINGS
@given(problems(), st.sampled_from(["192 KiB", "400 KiB", "1 GiB"]), st.integers(0, 99))
def test_edge_loops(problem, budget, seed):
    nodes, edges, part, parts = problem
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(nodes) * 10.0 ** rng.integers(-9, 9, nodes)
    x = rng.standard_normal(nodes)
    added = np.zeros(nodes)
    spread(edges, added, y)
    expected = (x + added).tobytes()
    with outcore.memory(budget):
        partition = outcore.unstructured.Partition(part, parts)
        outcore.unstructured.edge_loop(
            edges, reads={"y": y}, updates={"x": x}, kernel=spread, partition=partition
        )
    assert expected == x.tobytes()


@SETTINGS
@given(problems(), st.integers(1, 4))
def test_ranks_change_nothing(tmp_path, problem, size):
    nodes, edges, part, parts = problem
    y, added = np.random.default_rng(0).standard_normal(nodes), np.zeros(nodes)
    spread(edges, added, y)
    partition = outcore.unstructured.Partition(part, parts)
    outcore.unstructured.edge_schedule(
        edges, nodes, partition=partition, out=tmp_path / "loop"
    ).close()
    outcore.create(tmp_path / "x.npy", (nodes,), "f8", overwrite=True).close()

    def body(t):
        with outcore.unstructured.EdgeSchedule.open(tmp_path / "loop") as schedule:
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": y},
                updates={"x": tmp_path / "x.npy"},
                kernel=spread,
                comm=t,
            )

    SimWorld(size).run(body)
    assert added.tobytes() == np.load(tmp_path / "x.npy").tobytes()


@SETTINGS
@given(problems())
def test_allocation_lists(problem):
    _, edges, part, parts = problem
    table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition(part, parts))
    pal = outcore.unstructured.AllocationList(edges, table)
    seen = np.zeros(len(edges), np.int64)
    for p in range(parts):
        mine, numbers = pal.edges(p)
        seen[numbers] += 1
        np.testing.assert_array_equal(edges[numbers], mine)
        times = [(part[row] == p).sum() for row in mine]
        most = [np.bincount(part[row]).max() for row in mine]
        assert times == most
        local = pal.localize(p)
        np.testing.assert_array_equal(mine, np.r_[local.members, local.off][local.edges])
    assert (seen == 1).all()
