"""Partitions: the same parts from memory and from disk, of equal weight, near together; bad input."""

import json

import numpy as np
import pytest

import outcore
from meshes import bisected, cut_edges, triangulation
from outcore.problems.unstructured.curves import make_hilbert_keys, make_ordered_keys

BUDGETS = ("128 KiB", "200 KiB", "1 MiB")
POINTS = {
    "plane": lambda rng: rng.random((4000, 2)) * [1, 3],
    "line": lambda rng: rng.standard_normal(4000),
    "space": lambda rng: rng.standard_normal((4000, 3)).astype("f4"),
    "integers": lambda rng: rng.integers(-5, 5, (4000, 2)),
    "one place": lambda rng: np.full((4000, 2), 0.25),
    "signs of zero": lambda rng: rng.choice([0.0, -0.0, 1.0], (4000, 2)),
    "huge": lambda rng: rng.uniform(-1, 1, (4000, 2)) * 1.7e308,
    "big endian": lambda rng: rng.random((4000, 2)).astype(">f8"),
}
WEIGHTS = {
    "none": lambda rng: None,
    "integers": lambda rng: rng.integers(0, 6, 4000),
    "floats": lambda rng: rng.random(4000) ** 8,
    "one heavy": lambda rng: np.r_[np.ones(3999), 1e9],
    "bytes": lambda rng: rng.integers(0, 255, 4000).astype("u1"),
}


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def stored(path, data):
    return outcore.create(path, data=data)


@pytest.mark.parametrize("parts", [1, 2, 7, 64])
@pytest.mark.parametrize("kind", POINTS)
def test_bisection_is_what_sorting_makes(kind, parts, rng):
    points = POINTS[kind](rng)
    found = outcore.unstructured.partition(points, parts)
    np.testing.assert_array_equal(bisected(points, [1] * 4000, parts), found.part)
    assert np.ptp(found.counts) <= 1


@pytest.mark.parametrize("weights", [name for name in WEIGHTS if name not in ("none", "floats")])
def test_weighted_bisection_is_what_sorting_makes(weights, rng):
    points, weights = POINTS["plane"](rng), WEIGHTS[weights](rng)
    found = outcore.unstructured.partition(points, 6, weights=weights)
    np.testing.assert_array_equal(bisected(points, [int(w) for w in weights], 6), found.part)


CASES = [*((kind, "none") for kind in POINTS), *(("plane", one) for one in WEIGHTS)]
CASES += [("integers", "integers"), ("one place", "floats")]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("kind", "weights"), CASES)
@pytest.mark.parametrize("method", ["rcb", "hilbert"])
def test_the_budget_changes_nothing(method, kind, weights, budget, rng, tmp_path):
    points, weights = POINTS[kind](rng), WEIGHTS[weights](rng)
    expected = outcore.unstructured.partition(points, 11, method=method, weights=weights)
    with stored(tmp_path / "x.npy", points) as x, outcore.memory(budget):
        found = outcore.unstructured.partition(x, 11, method=method, weights=weights)
        assert outcore.unstructured.partition(x, 1, method=method).counts.tolist() == [4000]
    np.testing.assert_array_equal(expected.part, found.part[:])
    np.testing.assert_array_equal(expected.counts, found.counts)


@pytest.mark.parametrize("method", ["rcb", "hilbert"])
def test_little_memory_really_takes_other_ways(method, rng, tmp_path, monkeypatch):
    from outcore.problems.unstructured import cuts

    done = []
    for name in ("count", "collect"):
        whole = getattr(cuts._CutSearch, name)
        monkeypatch.setattr(
            cuts._CutSearch,
            name,
            lambda self, slabs, whole=whole, name=name: (done.append(name), whole(self, slabs))[1],
        )
    points = rng.random((20_000, 2))
    expected = outcore.unstructured.partition(points, 4, method=method)
    assert done == []
    with stored(tmp_path / "x.npy", points) as x, outcore.memory("256 KiB"):
        found = outcore.unstructured.partition(x, 4, method=method)
    assert {"count", "collect"} == set(done)
    assert isinstance(found.part, outcore.DiskArray)
    np.testing.assert_array_equal(expected.part, found.part[:])


def test_counting_goes_down_to_single_keys(rng):
    """More equal elements than memory holds: nothing is collected."""
    points = np.repeat([0.0, 1.0, 2.0], 10_000)[rng.permutation(30_000)]
    expected = outcore.unstructured.partition(points, 5)
    with outcore.memory("128 KiB"):
        found = outcore.unstructured.partition(points, 5)
    np.testing.assert_array_equal(expected.part, found.part[:])
    assert expected.counts.tolist() == [6000] * 5
    # Equal ones go by index.
    first = np.flatnonzero(points == 0)
    np.testing.assert_array_equal(np.repeat([0, 1], [6000, 4000]), expected.part[first])


@pytest.mark.parametrize("method", ["rcb", "hilbert"])
@pytest.mark.parametrize(("n", "parts"), [(0, 3), (1, 1), (1, 5), (3, 8), (10, 10), (65, 64)])
def test_more_parts_than_elements(method, n, parts, rng):
    found = outcore.unstructured.partition(rng.random((n, 2)), parts, method=method)
    assert found.counts.sum() == n == found.elements
    assert found.counts.size == parts
    assert found.counts.max() - found.counts.min() <= 1
    for p in range(parts):
        np.testing.assert_array_equal(np.flatnonzero(np.asarray(found.part) == p), found.members(p))


@pytest.mark.parametrize("method", ["rcb", "hilbert", "metis"])
def test_levels(method, rng):
    if method == "metis":
        pytest.importorskip("pymetis", reason="pymetis is not installed: METIS is NOT tested")
    points, edges = triangulation(2000)
    two = outcore.unstructured.partition(points, 12, method=method, edges=edges, levels=(4, 3))
    assert two.hierarchical and two.levels == (4, 3)
    upper = two.first_level()
    assert not upper.hierarchical
    np.testing.assert_array_equal(np.asarray(two.part) // 3, upper.part)
    one = outcore.unstructured.partition(points, 4, method=method, edges=edges)
    np.testing.assert_array_equal(one.part, upper.part)
    if method == "rcb":
        expected = bisected(points, [1] * 2000, 12, within=3)
        np.testing.assert_array_equal(expected, two.part)
    if method != "metis":
        assert np.ptp(two.counts) <= 1


@pytest.mark.parametrize("method", ["rcb", "hilbert", "metis"])
def test_what_is_near_stays_together(method):
    """Far fewer edges are cut than by numbers alone."""
    if method == "metis":
        pytest.importorskip("pymetis", reason="pymetis is not installed: METIS is NOT tested")
    points, edges = triangulation(3000)
    found = outcore.unstructured.partition(points, 8, method=method, edges=edges)
    blocks = outcore.unstructured.Partition.blocks(3000, 8)
    assert cut_edges(np.asarray(found.part), edges) * 8 < cut_edges(blocks.part, edges)
    assert found.counts.max() <= 1.05 * 3000 / 8


def test_metis_with_weights_and_cells():
    pytest.importorskip("pymetis", reason="pymetis is not installed: METIS is NOT tested")
    points, edges = triangulation(1000)
    weights = np.where(points[:, 0] < 0.5, 9, 1)
    found = outcore.unstructured.partition(1000, 4, method="metis", edges=edges, weights=weights)
    again = outcore.unstructured.partition(
        points, 4, method="metis", edges=edges, weights=weights * 1e12
    )
    np.testing.assert_array_equal(found.part, again.part)
    heavy = np.bincount(np.asarray(found.part), weights)
    assert heavy.max() <= 1.1 * heavy.mean()
    cells = np.array([[0, 1, 2], [1, 2, 3], [3, 3, 4], [5, 6, 7], [6, 7, 8], [7, 8, 9]])
    halves = outcore.unstructured.partition(10, 2, method="metis", edges=cells)
    assert sorted(halves.counts) == [5, 5]
    assert outcore.unstructured.partition(3, 8, method="metis", edges=cells[:0]).counts.sum() == 3
    assert outcore.unstructured.partition(
        0, 2, method="metis", edges=cells[:0]
    ).counts.tolist() == [0, 0]


def test_metis_fits_the_budget_or_is_refused(tmp_path):
    pytest.importorskip("pymetis", reason="pymetis is not installed: METIS is NOT tested")
    _, edges = triangulation(2000)
    with outcore.memory("256 KiB"), pytest.raises(outcore.BudgetError) as caught:
        outcore.unstructured.partition(2000, 4, method="metis", edges=edges)
    with outcore.memory(caught.value.needed):
        outcore.unstructured.partition(2000, 4, method="metis", edges=edges)


def test_without_pymetis_the_message_names_the_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    with pytest.raises(outcore.errors.UnsupportedError, match="pip install pymetis") as caught:
        outcore.unstructured.partition(3, 2, method="metis", edges=[[0, 1]])
    assert caught.value.code == "needs-pymetis"


# Curves


@pytest.mark.parametrize(("axes", "bits"), [(2, 3), (2, 5), (3, 3), (4, 2)])
def test_neighbours_on_the_curve_are_neighbours(axes, bits):
    """On the corners of a grid the curve goes through all cells, a step at a time."""
    side = 1 << bits
    grid = np.stack(np.meshgrid(*[np.arange(side)] * axes, indexing="ij"), -1).reshape(-1, axes)
    keys = make_hilbert_keys((grid + 0.5) / side, np.zeros(axes), np.ones(axes))
    walk = grid[np.argsort(keys)]
    assert np.unique(keys).size == len(grid)
    assert (np.abs(np.diff(walk, axis=0)).sum(axis=1) == 1).all()


def test_ordered_keys_order():
    values = np.array([-np.inf, -1.7e308, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 2.0, np.inf])
    keys = make_ordered_keys(values)
    assert keys[4] == keys[5]
    assert (np.diff(np.delete(keys, 4).astype(object)) > 0).all()


# Partitions as values


def test_saved_and_opened(tmp_path, rng):
    made = outcore.unstructured.partition(rng.random((500, 2)), 6, levels=(2, 3))
    made.save(tmp_path / "parts")
    found = outcore.unstructured.Partition.open(tmp_path / "parts")
    np.testing.assert_array_equal(made.part, found.part)
    assert (found.parts, found.levels, found.method) == (6, (2, 3), "rcb")
    outcore.unstructured.Partition.blocks(10, 2).save(tmp_path / "parts")  # replaces it
    assert outcore.unstructured.Partition.open(tmp_path / "parts").counts.tolist() == [5, 5]


def test_made_in_a_folder(tmp_path, rng):
    points = rng.random((40_000, 2))
    expected = outcore.unstructured.partition(points, 6)
    with outcore.memory("256 KiB"):
        made = outcore.unstructured.partition(points, 6, out=tmp_path / "parts")
        assert isinstance(made.part, outcore.DiskArray)
        found = outcore.unstructured.Partition.open(tmp_path / "parts")
        assert isinstance(found.part, outcore.DiskArray)
    np.testing.assert_array_equal(expected.part, made.part[:])
    np.testing.assert_array_equal(expected.part, found.part[:])
    np.testing.assert_array_equal(expected.part, np.load(tmp_path / "parts" / "part.npy"))


def test_what_was_not_finished_is_not_opened(tmp_path):
    outcore.unstructured.Partition.blocks(10, 2).save(tmp_path / "parts")
    manifest = tmp_path / "parts" / "partition.json"
    words = json.loads(manifest.read_text())
    lies = ({"parts": "two"}, {"parts": 0}, {"elements": 11}, {"levels": [2, 3]}, {"method": 1})
    for damage in ({"version": 2}, {"format": "other"}, *lies):
        manifest.write_text(json.dumps({**words, **damage}))
        with pytest.raises(outcore.errors.FormatError) as caught:
            outcore.unstructured.Partition.open(tmp_path / "parts")
        expected = "unsupported-feature" if "version" in damage else "bad-metadata"
        assert caught.value.code == expected
    manifest.write_text("{")
    with pytest.raises(outcore.errors.FormatError):
        outcore.unstructured.Partition.open(tmp_path / "parts")
    manifest.unlink()
    with pytest.raises(outcore.errors.NotFoundError):
        outcore.unstructured.Partition.open(tmp_path / "parts")


def test_a_partition_that_is_made_again_is_not_half_of_each(tmp_path, rng, monkeypatch):
    points = rng.random((500, 2))
    outcore.unstructured.partition(points, 6, out=tmp_path / "parts")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("outcore.problems.unstructured.partition._write_manifest", killed)
    with pytest.raises(KeyboardInterrupt):
        outcore.unstructured.partition(points, 4, out=tmp_path / "parts")
    with pytest.raises(outcore.errors.NotFoundError):
        outcore.unstructured.Partition.open(tmp_path / "parts")


def test_temporary_parts_go_away(tmp_path, rng, monkeypatch):
    monkeypatch.setenv("OUTCORE_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    with outcore.memory("256 KiB"):
        with outcore.unstructured.partition(rng.random((20_000, 2)), 3) as made:
            assert len(list((tmp_path / "scratch").iterdir())) == 1
        del made
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(("n", "parts"), [(0, 2), (7, 3), (3, 7), (100, 1)])
def test_blocks(n, parts):
    found = outcore.unstructured.Partition.blocks(n, parts)
    assert (np.diff(found.part) >= 0).all()
    assert np.ptp(found.counts) <= 1 and found.counts.size == parts


# Bad input


def refused(code, *words, **keywords):
    with pytest.raises(outcore.OutcoreError) as caught:
        outcore.unstructured.partition(*words, **keywords)
    assert caught.value.code == code
    return str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_coordinates_that_are_not_finite(bad, rng, tmp_path):
    points = rng.random((5000, 3))
    points[4321, 2] = bad
    with stored(tmp_path / "x.npy", points) as x, outcore.memory("256 KiB"):
        for method in ("rcb", "hilbert"):
            text = refused("bad-coordinates", x, 4, method=method)
            assert "coordinates[4321, 2]" in text and str(bad) in text


def test_bad_weights(rng):
    points = rng.random((5000, 2))
    for bad in (-1, np.nan, np.inf):
        weights = np.ones(5000)
        weights[4000] = bad
        assert "weights[4000]" in refused("bad-weights", points, 4, weights=weights)
    refused("bad-weights", points, 4, weights=np.zeros(5000))
    refused("shape-mismatch", points, 4, weights=np.ones(4999))
    refused("bad-dtype", points, 4, weights=np.ones(5000, complex))


def test_bad_arguments(rng):
    points = rng.random((50, 2))
    assert "'rcb'" in refused("bad-partition", points, 4, method="rbc")
    for parts in (0, -1, 2.0, True, 2**31):
        refused("bad-partition", points, parts)
    for levels in ((2, 3), (4,), 4, (4, 0), (0, 4)):
        refused("bad-partition", points, 4, levels=levels)
    refused("bad-shape", rng.random((2, 2, 2)), 4)
    refused("bad-shape", rng.random((5, 0)), 4)
    refused("bad-dtype", points.astype(complex), 4)
    refused("bad-dtype", points > 0, 4)
    refused("missing-argument", 50, 4)
    refused("missing-argument", points, 4, method="metis")


def test_bad_edges_for_metis():
    pytest.importorskip("pymetis", reason="pymetis is not installed: METIS is NOT tested")
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    assert "edges[2, 1] is 3" in refused("index-out-of-bounds", 3, 2, method="metis", edges=edges)
    text = refused("index-out-of-bounds", 4, 2, method="metis", edges=edges - [1, 0])
    assert "edges[0, 0] is -1" in text
    refused("bad-shape", 3, 2, method="metis", edges=[0, 1])
    refused("bad-dtype", 3, 2, method="metis", edges=edges * 1.0)


def test_bad_partitions():
    for bad in (-1, 3):
        with pytest.raises(outcore.errors.SectionError, match=rf"part\[2\] is {bad}"):
            outcore.unstructured.Partition(np.array([0, 1, bad]), 3)
    for bad in (np.zeros((2, 2), int), np.zeros(3)):
        with pytest.raises(outcore.errors.UsageError):
            outcore.unstructured.Partition(bad, 3)
    with pytest.raises(outcore.errors.SectionError):
        outcore.unstructured.Partition.blocks(3, 2).members(2)
    with pytest.raises(outcore.errors.UsageError):
        outcore.unstructured.Partition.blocks(3, 2).first_level()


def test_too_many_parts_for_the_budget(rng):
    points = rng.random((5000, 2))
    for method in ("rcb", "hilbert"):
        with outcore.memory("128 KiB"), pytest.raises(outcore.BudgetError) as caught:
            outcore.unstructured.partition(points, 5000, method=method)
        with outcore.memory(caught.value.needed):
            assert outcore.unstructured.partition(points, 5000, method=method).counts.max() == 1


def test_memory_stays_within_the_budget(rng, tmp_path):
    """What this process takes in NumPy arrays while it partitions, beside the core's own buffers."""
    import tracemalloc

    points = rng.random((100_000, 2))
    with stored(tmp_path / "x.npy", points) as x, outcore.memory("1 MiB"):
        del points
        outcore.unstructured.partition(
            x, 16, method="rcb"
        ).close()  # modules that are imported would count, too
        for method in ("rcb", "hilbert"):
            tracemalloc.start()
            outcore.unstructured.partition(x, 16, method=method, weights=None).close()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2**20, f"{method}: {peak} bytes"
