"""The papers' tables of `bench`: what they count and how they are printed, all tiny."""

import argparse
import dataclasses
import os
import re

import numpy as np
import pytest

from bench_modules import bench_modules
from outcore.model.machines import tables


@pytest.fixture(scope="module", autouse=True)
def bench():
    """The modules of `bench`, for these tests only."""
    with bench_modules():
        yield


def asked(folder, *names, **words):
    more = {"repeat": 1, "cache": ["warm"], "results": folder, "size": "quick", "ranks": [2]}
    return argparse.Namespace(tables=names, folder=folder, **{**more, **words})


def test_direct_access_here_needs_the_requests_of_the_report(tmp_path):
    from papers import local_files

    found = local_files.counts(tmp_path)
    direct = [cell for cell in tables.passion(11) if cell.method == "direct"]
    assert len(direct) == 10
    for cell in direct:
        here = found[cell.section, cell.operation]
        assert here["direct"] == cell.seconds
        if cell.operation == "requests":
            assert 0 < here["sieve"] < 20
        else:
            assert cell.seconds < here["sieve"] <= 65536


def test_sieving_moves_what_it_should(tmp_path, monkeypatch):
    from papers import local_files

    found = local_files.sieving(tmp_path, "warm", repeat=1, files=2)
    assert len(found) == 10
    for row in found.values():
        assert not row.wrong
        assert set(row.seconds) == {"direct", "sieve", "outcore"}
    monkeypatch.setattr(local_files.np, "array_equal", lambda *_: False)
    found = local_files.sieving(tmp_path, "warm", repeat=1, files=1)
    assert all(row.wrong == {"direct", "sieve", "outcore"} for row in found.values())


def test_tables_are_printed(tmp_path, capsys):
    from cases import papers

    papers.run(asked(tmp_path, "passion 11"))
    said = capsys.readouterr().out
    assert "| (1:2048:2, 1:32:2) requests | 16384 | 2 | 16384 |" in said
    with pytest.raises(SystemExit, match="no table is called 'passion 12'"):
        papers.run(asked(tmp_path, "passion 12"))


@pytest.mark.parametrize("table", [9, 10])
def test_ranks_access_what_the_programs_do(table):
    from papers import ranks_of

    n, ranks = 1024, 4
    for access in ranks_of.accesses(table, n, ranks):
        (array,) = access.case.arrays
        assert array.shape == (n, n)
        seen = np.zeros((n, n), np.int8)
        for _, section in array.sections:
            seen[section] += 1
        if access.case.write or table == 9:
            assert seen.max() == 1


def test_molecular_dynamics_is_printed_as_in_the_report(tmp_path, capsys, monkeypatch):
    from cases import papers
    from papers import molecular

    monkeypatch.setattr(molecular, "atoms_of", lambda table: 400)
    papers.run(asked(tmp_path, "passion 6", "passion 7", "passion 8", "passion 9"))
    said = capsys.readouterr().out
    assert "| theirs, 8 processors | 115 | 99.7 | 94.6 | 92.2 | 98.5 |" in said
    assert "| theirs, 4 processors | 26.2 | 24.8 | 23 | 22.2 | 23.4 |" in said
    assert "the text names 8 processors" in said
    lines = [line for line in said.splitlines() if line.startswith("| here, 1 process |")]
    assert [line.count("-") for line in lines] == [0] * 4
    models = [line for line in said.splitlines() if line.startswith("| model, ")]
    assert len(models) == 16
    assert {line.count("|") for line in models} == {7}


def test_forces_that_are_wrong_show(tmp_path, monkeypatch):
    from papers import molecular

    kernel = molecular.Kernel(tmp_path, 400)
    assert kernel.pairs > 400
    assert kernel.run(16 << 10)[2]
    kernel._right[7] += 1e-9
    assert not kernel.run(16 << 10)[2]


def test_curves_of_the_irregular_paper():
    from papers import irregular_figures

    for figure in irregular_figures.FIGURES:
        assert f"figure {figure}:" in irregular_figures.title(figure)
        said = "\n".join(irregular_figures.theirs(figure))
        assert ("3 I/O nodes" if figure == 15 else "16 I/O nodes") in said
    ten = irregular_figures.curves(10, ranks=4)
    # Eight groups need eight ranks.
    assert set(ten) == {("read", "4 groups"), ("write", "4 groups")}
    assert len(irregular_figures.curves(10, ranks=8)) == 4
    assert ten["write", "4 groups"]["1024 KiB"] == {"groups": 4, "chunk": 1 << 20}
    assert set(irregular_figures.curves(9, ranks=4)) == {("read", "1 group"), ("write", "1 group")}
    twelve = irregular_figures.curves(12, ranks=4)["read", "chunks of 4096 KiB"]
    assert list(twelve) == ["1 group", "2 groups", "4 groups"]
    assert [words["groups"] for words in twelve.values()] == [1, 2, 4]
    assert {words["chunk"] for words in twelve.values()} == {4 << 20}


@pytest.mark.parametrize("parts", [0, 3])
def test_the_section_of_disk_resident_arrays_is_in_parts_of_its_layout(tmp_path, parts):
    import outcore
    from papers import transfers

    n, ranks = 64, 3
    path = transfers.make(tmp_path, n, parts)
    assert len(transfers._files(path)) == max(parts, 1)
    with outcore.open(path) as array:
        stored = array[...]
    # Stripes of 16 rows, in which columns follow each other.
    whole = np.arange(float(n * n)).reshape(n, n)
    assert np.array_equal(stored.transpose(0, 2, 1).reshape(n, n), whole)
    for fit, low, count in (("aligned", 0, 1), ("nonaligned", 8, 3)):
        for rank in range(ranks):
            section = transfers.Section(n, fit, rank, ranks)
            assert len(section.keys) == count
            section.local.fill(-1)
            for key, seen in zip(section.keys, section.seen, strict=True):
                seen[...] = stored[key]
            columns = slice(rank * 32 // ranks, (rank + 1) * 32 // ranks)
            assert np.array_equal(section.local, whole[low : low + 32, columns].T)
            assert section.is_right()
            assert section.is_written(path)
            section.local[-1, -1] += 1
            assert not section.is_right()
            assert not section.is_written(path)
    transfers.remove(path)
    assert list(tmp_path.iterdir()) == []


def tiny(tmp_path, monkeypatch, *names):
    """What is asked for: figures of an array of 64 x 64, two ranks."""
    import mpi_ranks
    from papers import disk_arrays

    monkeypatch.setitem(disk_arrays.SIDES, "quick", 64)
    monkeypatch.setattr(mpi_ranks, "RESULTS", tmp_path)
    return asked(tmp_path, *names, library=["openmpi"])


@pytest.mark.parametrize("figure", [pytest.param(5, id="5"), pytest.param(6, id="6_slow")])
def test_figures_of_disk_resident_arrays_are_drawn_by_real_ranks_slow(
    tmp_path, capsys, monkeypatch, figure
):
    from cases import papers

    papers.run(tiny(tmp_path, monkeypatch, f"dra {figure}"))
    said = capsys.readouterr().out
    assert "wrong" not in said
    assert "of the figure are not in its text" in said
    assert ("theirs 42.7 MB/s" in said) == (figure == 5)
    assert "| here, MB/s; ranks that do I/O | 1 rank | 2 ranks | each its own | chosen |" in said
    rows = [line.split(" | ") for line in said.splitlines() if re.match(r"\| (read|write), ", line)]
    assert len(rows) == 2 * 2 * (2 if figure == 5 else 1)
    assert all(float(cell.strip(" |")) > 0 for row in rows for cell in row[1:])
    assert all(len(row) == 1 + 4 for row in rows)
    # What was written is gone, what was read is kept for the next run.
    left = {path.name for path in tmp_path.iterdir()}
    assert not any("written" in name for name in left)
    assert ("dra-64.npy" in left) == (figure == 5)


def test_real_ranks_write_a_file_for_each_rank_that_does_io(tmp_path, monkeypatch):
    from papers import disk_arrays

    rows = disk_arrays.here(6, 2, "write", "warm", tiny(tmp_path, monkeypatch))
    assert [row.case for row in rows] == [
        f"write, {fit}, buffer of 2 MB, 2 ranks, warm" for fit in ("aligned", "nonaligned")
    ]
    for row in rows:
        assert set(row.seconds) == {"1 rank", "2 ranks", "each its own", "chosen"}
        assert not row.wrong
        assert row.nbytes == 8 * 32 * 32


def test_a_figure_is_printed_as_bandwidth(tmp_path, capsys, monkeypatch):
    from cases import papers
    from harness import Row
    from papers import irregular_figures

    def found(figure, ranks, cache, options):
        row = Row(
            "read, stripe 64 KiB", 8_000_000, {"1 groups": [2.0, 4.0, 3.0], "2 groups": [1.0]}
        )
        row.wrong.add("2 groups")
        more = Row("read, more ranks", 8_000_000, {"4 groups": [2.0]})
        return [row, more]

    monkeypatch.setattr(irregular_figures, "here", found)
    papers.run(asked(tmp_path, "irregular 12"))
    said = capsys.readouterr().out
    assert "| here, MB/s | 1 groups | 2 groups | 4 groups |" in said
    assert "| read, stripe 64 KiB | 2.67 | wrong | - |" in said
    assert "| read, more ranks | - | - | 4 |" in said
    assert "not in its text" in said
    assert "chunks 4 MB      " in said  # the model's


def drawn(figure, tmp_path, capsys, monkeypatch, ranks):
    """Run the command for a figure, with files of 32 KiB a rank and two chunks; the rows of ours."""
    import mpi_ranks
    from cases import papers
    from papers import irregular_figures

    every = tables.irregular()

    def small(number=None):
        some = [one for one in every if number in (None, one.figure)]
        return tuple(
            dataclasses.replace(one, nbytes=one.ranks << 15, chunk=one.chunk and 1 << 14)
            for one in some
        )

    lines = irregular_figures.lines(figure)
    monkeypatch.setattr(irregular_figures, "lines", lambda _: lines)
    monkeypatch.setattr(irregular_figures.tables, "irregular", small)
    monkeypatch.setattr(irregular_figures, "CHUNKS", (1 << 13, 1 << 14))
    monkeypatch.setattr(mpi_ranks, "RESULTS", tmp_path)
    words = {"ranks": [ranks], "library": ["openmpi"]}
    papers.run(asked(tmp_path, f"irregular {figure}", **words))
    said = capsys.readouterr().out
    assert "wrong" not in said
    return [line.split(" | ") for line in said.splitlines() if re.match(r"\| (read|write), ", line)]


def test_parts_of_groups_are_drawn_by_real_ranks_slow(tmp_path, capsys, monkeypatch):
    rows = drawn(14, tmp_path, capsys, monkeypatch, 4)
    assert [row[0].rsplit(", ", 1)[1] for row in rows] == [
        *("I/O", "communication", "computation", "all"),
        *("I/O", "communication", "computation", "all"),
    ]
    for io, communication, _, every in (rows[:4], rows[4:]):
        for column in (1, 2):
            seconds = [float(row[column].strip(" |")) for row in (io, communication, every)]
            assert min(seconds) > 0
            assert max(seconds[:2]) < seconds[2]


@pytest.mark.parametrize("figure", [9, 10, 11, 12, 13, 15])
def test_all_figures_are_drawn_by_real_ranks_slow(tmp_path, capsys, monkeypatch, figure):
    rows = drawn(figure, tmp_path, capsys, monkeypatch, 4)
    assert len(rows) == {9: 2, 10: 2, 11: 4, 12: 2, 13: 8, 15: 2}[figure]
    assert all(float(cell.strip(" |")) > 0 for row in rows for cell in row[1:])
    if figure == 12:
        assert [row[0] for row in rows] == [
            f"| {operation}, chunks of 16 KiB, 4 ranks, warm" for operation in ("read", "write")
        ]
        assert {len(row) for row in rows} == {1 + 3}  # 1, 2 and 4 groups


def test_an_out_of_core_product_is_measured_by_real_ranks_slow(tmp_path, capsys, monkeypatch):
    import mpi_ranks
    from cases import papers
    from papers import disk_product

    monkeypatch.setattr(mpi_ranks, "RESULTS", tmp_path)
    monkeypatch.setitem(disk_product.SIDES, "quick", 300)
    before = dict(os.environ)
    papers.run(asked(tmp_path, "dra 8", ranks=[2], cache=["warm"], library=["openmpi"]))
    assert before == dict(os.environ), (
        "threads of BLAS are set for the ranks, not for who starts them"
    )
    said = capsys.readouterr().out
    assert "wrong" not in said
    assert "| here, 300 x 300, sections of 60 | in memory, Mflop/s | out of core, Mflop/s |" in said
    (row,) = (line for line in said.splitlines() if line.startswith("| 2 ranks, warm"))
    rates = [float(cell) for cell in row.strip("| ").split(" | ")[1:]]
    assert all(rate > 0 for rate in rates)
    assert rates[3] == pytest.approx(100 * rates[1] / rates[0], rel=0.02)
    assert max(rates[5:7]) < 100  # of the time, in products
    assert rates[7] == pytest.approx(4 * rates[0] / 60, rel=0.02)
    assert "theirs: “efficiency degrades as the number of processors increases”" in said
    assert not list(tmp_path.glob("product-*"))


def test_checkpoints_are_timed_by_real_ranks_slow(tmp_path, capsys, monkeypatch):
    import mpi_ranks
    from cases import checkpoints, disk_arrays

    monkeypatch.setitem(checkpoints.SIZES, "quick", 4 * 8 * 65 * 65)
    monkeypatch.setattr(mpi_ranks, "RESULTS", tmp_path)
    words = {"library": ["openmpi"], "without": []}
    names = ["checkpoint", "restore"]
    disk_arrays.run(asked(tmp_path, only=names, op=["read", "sync"], **words))
    said = capsys.readouterr().out
    assert "wrong" not in said
    rows = [line for line in said.splitlines() if "| openmpi" in line]
    assert {line.split(" | ")[0].strip("| ") for line in rows} == set(checkpoints.CASES)
    assert len(rows) == len(checkpoints.CASES)
    assert not any(" - " in line for line in rows)
    assert "| outcore | one stream | streams | / one stream | / best |" in said
    assert "| checkpoint | copy | held | until it stands | / checkpoint |" in said
    assert re.search(r"held / copy: \d", said)
    # Checkpoints are writes with fsync; who asks for reads gets none.
    disk_arrays.run(asked(tmp_path, only=["checkpoint, rows"], op=["read"], **words))
    assert capsys.readouterr().out == ""


def test_a_checkpoint_that_was_changed_shows(tmp_path):
    from cases import checkpoints
    from outcore.mpi import transport

    ranks = argparse.Namespace(node_barrier=transport(None))
    state = checkpoints.State(ranks, tmp_path, 4 * 8 * 40 * 40, "blocks")
    state.fill()
    state.checkpoint()
    state.write_plain("one stream")
    for name in ("outcore", "one stream"):
        assert state.is_kept(name)
    state.spoil()
    assert not state.is_right()
    state.restore()
    assert state.is_right()
    (file,) = state.path("outcore").glob("arrays-*/a3.npy")
    np.load(file, mmap_mode="r+")[39, 39] += 1
    assert not state.is_kept("outcore")
    path = state.path("one stream")
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    assert not state.is_kept("one stream")
    state.clear("one stream")
    assert not path.parent.exists()
