"""The papers' tables of `bench`: what they count and how they are printed, all tiny."""

import argparse
import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from outcore.model import tables

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module", autouse=True)
def bench():
    """The modules of `bench`, for these tests only."""
    # The tests of crashes have a module of this name, too.
    other = sys.modules.pop("cases", None)
    before = set(sys.modules)
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))
    for name in set(sys.modules) - before:
        where = getattr(sys.modules[name], "__file__", None) or ""
        if where.startswith(str(BENCH)):
            del sys.modules[name]
    if other is not None:
        sys.modules["cases"] = other


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


def test_what_does_not_exist_is_said(tmp_path, capsys, monkeypatch):
    import outcore
    from cases import papers

    for name in ("stencil", "fft2", "matmul"):
        monkeypatch.delattr(outcore, name, raising=False)
        monkeypatch.delitem(outcore._HOMES, name)
    papers.run(asked(tmp_path, "passion 3", "passion 4", "passion 13"))
    said = capsys.readouterr().out
    for name in ("stencil", "fft2", "matmul"):
        assert f"here: not there (outcore.{name})" in said
    assert "| theirs, 16 | 617 | 562 | 503 | 485 |" in said
    assert list(tmp_path.iterdir()) == []


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


def test_parts_of_groups_are_drawn_by_real_ranks(tmp_path, capsys, monkeypatch):
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
