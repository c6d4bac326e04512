"""Translation tables and partition allocation lists, against lists made element by element."""

import numpy as np
import pytest

import outcore
from meshes import triangulation
from outcore.problems.unstructured.indirect import gather, scatter
from outcore.problems.unstructured.tables import as_table

PARTITIONS = {
    "rcb": lambda points: outcore.unstructured.partition(points, 7),
    "scattered": lambda points: outcore.unstructured.Partition(
        np.random.default_rng(3).integers(0, 9, len(points)).astype("u8"), 12
    ),
    "blocks": lambda points: outcore.unstructured.Partition.blocks(len(points), 5),
    "one": lambda points: outcore.unstructured.Partition.blocks(len(points), 1),
    "more parts than elements": lambda points: outcore.unstructured.Partition.blocks(
        len(points), 3000
    ),
}


@pytest.fixture(scope="module")
def mesh():
    return triangulation(1500, seed=4)


def offsets(part):
    """Of each element: how many before it are in the same part."""
    seen, found = {}, np.empty(len(part), np.int64)
    for i, p in enumerate(part.tolist()):
        found[i] = seen[p] = seen.get(p, -1) + 1
    return found


@pytest.mark.parametrize("budget", ["64 KiB", "1 GiB"])
@pytest.mark.parametrize("name", PARTITIONS)
def test_dereference(mesh, name, budget):
    partition = PARTITIONS[name](mesh[0])
    part = np.asarray(partition.part)
    wanted = np.random.default_rng(1).integers(0, 1500, (70, 40))
    with outcore.memory(budget), outcore.unstructured.TranslationTable(partition) as table:
        where, offset = table.dereference(wanted)
        members = [table.members(p) for p in range(0, partition.parts, 3)]
    np.testing.assert_array_equal(part[wanted], where)
    np.testing.assert_array_equal(offsets(part)[wanted], offset)
    assert (where.dtype, offset.dtype) == (np.int32, np.int64)
    for n, found in enumerate(members):
        np.testing.assert_array_equal(np.flatnonzero(part == 3 * n), found)


def test_tables_are_on_disk_when_they_do_not_fit(mesh):
    partition = outcore.unstructured.partition(np.random.default_rng(0).random((30_000, 2)), 6)
    wanted = np.random.default_rng(1).integers(0, 30_000, 20_000)
    with outcore.memory("256 KiB"), outcore.unstructured.TranslationTable(partition) as table:
        assert isinstance(table.order._positions, outcore.DiskArray)
        where, offset = table.dereference(wanted)
    part = np.asarray(partition.part)
    np.testing.assert_array_equal(part[wanted], where)
    np.testing.assert_array_equal(offsets(part)[wanted], offset)


def allocated(part, edges):
    """The part of each edge: of the most of its elements, the lowest."""
    found = []
    for row in part[edges].tolist():
        found.append(min(row, key=lambda p: (-row.count(p), p)))
    return np.array(found, np.int64)


def cells_of(mesh, columns):
    rng = np.random.default_rng(columns)
    return mesh[1] if columns == 2 else rng.integers(0, 1500, (2000, columns))


@pytest.mark.parametrize("budget", ["2 MiB", "1 GiB"])
@pytest.mark.parametrize("columns", [1, 2, 3, 4])
@pytest.mark.parametrize("name", PARTITIONS)
def test_allocation_and_local_numbers(mesh, name, columns, budget, tmp_path, monkeypatch):
    if budget == "2 MiB":  # tables of any size are on disk
        monkeypatch.setattr("outcore.problems.unstructured.tables._IN_MEMORY", 2**40)
    partition, edges = PARTITIONS[name](mesh[0]), cells_of(mesh, columns)
    part = np.asarray(partition.part)
    expected = allocated(part, edges)
    x = np.arange(1500) * 1.5
    stored = outcore.create(tmp_path / "edges.npy", data=edges.astype("i4"))
    with (
        outcore.memory(budget),
        outcore.unstructured.TranslationTable(partition) as table,
        outcore.unstructured.AllocationList(stored, table) as pal,
    ):
        np.testing.assert_array_equal(np.bincount(expected, minlength=partition.parts), pal.counts)
        for p in {0, 1, partition.parts // 2, partition.parts - 1} & set(range(partition.parts)):
            mine, numbers = pal.edges(p)
            np.testing.assert_array_equal(np.flatnonzero(expected == p), numbers)
            np.testing.assert_array_equal(edges[numbers], mine)
            local = pal.localize(p)
            np.testing.assert_array_equal(np.flatnonzero(part == p), local.members)
            away = np.unique(edges[numbers])
            np.testing.assert_array_equal(away[part[away] != p], local.off)
            np.testing.assert_array_equal(part[local.off], local.off_part)
            np.testing.assert_array_equal(offsets(part)[local.off], local.off_offset)
            both = np.r_[local.members, local.off]
            np.testing.assert_array_equal(edges[numbers], both[local.edges])
            np.testing.assert_array_equal(x[both], local.gather(x))


@pytest.mark.parametrize("combine", ["add", "min", "max"])
def test_contributions_of_all_parts(mesh, combine, tmp_path):
    points, edges = mesh
    rng = np.random.default_rng(0)
    y, start = rng.integers(-9, 9, 1500), rng.integers(-9, 9, 1500)
    at = {"add": np.add, "min": np.minimum, "max": np.maximum}[combine].at
    expected = start.copy()
    at(expected, edges[:, 0], y[edges[:, 1]])
    at(expected, edges[:, 1], 2 * y[edges[:, 0]])
    x = outcore.create(tmp_path / "x.npy", data=start)
    neutral = {"add": 0, "min": 10**6, "max": -(10**6)}[combine]
    table = outcore.unstructured.TranslationTable(outcore.unstructured.partition(points, 6))
    pal = outcore.unstructured.AllocationList(edges, table)
    for p in range(6):
        local = pal.localize(p)
        mine, added = local.gather(y), np.full(local.members.size + local.off.size, neutral)
        at(added, local.edges[:, 0], mine[local.edges[:, 1]])
        at(added, local.edges[:, 1], 2 * mine[local.edges[:, 0]])
        local.scatter(x, added, combine)
    np.testing.assert_array_equal(expected, x[:])


# Gathers and scatters

ROWS = {
    "line": np.arange(500.0),
    "rows": np.arange(1500, dtype="i4").reshape(500, 3),
    "big endian": np.arange(500, dtype=">f8"),
    "boxes": np.arange(4000, dtype="f4").reshape(500, 2, 4),
}


@pytest.mark.parametrize("kind", ["npy", "zarr", "memory"])
@pytest.mark.parametrize("name", ROWS)
def test_gather_and_scatter(name, kind, tmp_path):
    data = ROWS[name]
    words = {"chunks": (64, *data.shape[1:])} if kind == "zarr" else {}
    stored = data.copy()
    if kind != "memory":
        stored = outcore.create(f"{tmp_path}/a.{kind}", data=data, **words)
    table, rng = as_table(stored), np.random.default_rng(0)
    for indices in (
        rng.integers(0, 500, 300),
        np.sort(rng.integers(0, 500, 300)),
        np.arange(20, 90),
        np.array([7]),
        np.array([], np.int64),
        np.array([499, 0, 499, 3]),
    ):
        for budget in ("32 KiB", "1 GiB"):
            with outcore.memory(budget):
                out = np.empty((len(indices), *data.shape[1:]), data.dtype)
                gather(table, indices, out)
                np.testing.assert_array_equal(data[indices], out)
                expected, values = (
                    table[...],
                    -out
                    - np.arange(len(out)).reshape(-1, *[1] * (data.ndim - 1)).astype(data.dtype),
                )
                expected[indices] = values
                scatter(table, indices, values)
                np.testing.assert_array_equal(expected, table[...])
                table[...] = data


# Bad input


def test_bad_indices(mesh):
    points, edges = mesh
    table = outcore.unstructured.TranslationTable(outcore.unstructured.partition(points, 4))
    with pytest.raises(
        outcore.errors.SectionError, match=r"indices\[1, 0\] is 1500, which is out of range"
    ):
        table.dereference([[0, 1], [1500, -1]])
    with pytest.raises(outcore.errors.SectionError, match=r"indices\[2\] is -1"):
        table.dereference([0, 1, -1])
    with pytest.raises(outcore.errors.UsageError, match="float64"):
        table.dereference([0.5])
    assert table.dereference([])[0].shape == (0,)
    for p in (-1, 4):
        with pytest.raises(outcore.errors.SectionError):
            table.members(p)
    bad = edges.copy()
    bad[2100, 1] = 1500
    with (
        outcore.memory("128 KiB"),
        pytest.raises(outcore.errors.SectionError, match=r"edges\[2100, 1\] is 1500"),
    ):
        outcore.unstructured.AllocationList(bad, table)
    for wrong in (edges[:, 0], edges * 1.0, edges[:, :0]):
        with pytest.raises(outcore.errors.UsageError):
            outcore.unstructured.AllocationList(wrong, table)


def test_bad_scatters(mesh):
    points, edges = mesh
    table = outcore.unstructured.TranslationTable(outcore.unstructured.partition(points, 4))
    local = outcore.unstructured.AllocationList(edges, table).localize(1)
    values = local.gather(np.ones(1500))
    with pytest.raises(outcore.errors.UsageError, match="did you mean 'add'"):
        local.scatter(np.ones(1500), values, "ad")
    with pytest.raises(outcore.errors.UsageError, match="shape"):
        local.scatter(np.ones(1500), values[1:])
    with pytest.raises(outcore.errors.UsageError, match="no row for element"):
        local.gather(np.ones(100))


def test_a_part_too_large_for_the_budget(mesh):
    _, edges = mesh
    with outcore.memory("192 KiB"):
        table = outcore.unstructured.TranslationTable(
            outcore.unstructured.Partition.blocks(1500, 1)
        )
        pal = outcore.unstructured.AllocationList(edges, table)
        with pytest.raises(outcore.BudgetError) as caught:
            pal.localize(0)
        with outcore.memory(caught.value.needed):
            assert len(pal.localize(0).edges) == len(edges)
