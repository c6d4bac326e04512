"""Figures 5 and 6 of the paper on disk resident arrays on modelled machines."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from outcore.cli import main
from outcore.model.machines import rates
from outcore.model.simulate import disk_arrays

DECIDED = (
    Path(__file__).resolve().parents[2] / "docs/design/0044-scattered-elements-are-simulated.md"
)
MB = 1_000_000


def run(capsys, *words):
    status = main(["simulate", *map(str, words)])
    return status, capsys.readouterr()


def touched(section, shape):
    """Which elements a block moves: all between its first and its last, as sieving does."""
    seen = np.zeros(shape, bool)
    seen[section] = True
    places = np.flatnonzero(seen)
    seen.reshape(-1)[places[0] : places[-1] + 1] = True
    return seen


# -------------------------------------------------------------------------------- what the text says


def test_rates_are_those_of_the_text():
    """Four of figure 5, four of PIOFS, none of figure 6; typed again here."""
    five = {(one.operation, one.fit): one.rate for one in rates.load_rates(5)}
    assert five == {
        ("write", "aligned"): 42.7,
        ("write", "nonaligned"): 36.9,
        ("read", "aligned"): 35.5,
        ("read", "nonaligned"): 34.2,
    }
    assert {(one.ranks, one.buffer) for one in rates.load_rates(5)} == {(32, 2 * MB)}
    assert rates.load_rates(6) == ()
    changes, piofs = rates.load_piofs()
    assert [one.rate for one in piofs] == [33.4, 31.4, 44.0, 42.1]
    assert {one.ranks for one in piofs} == {16}
    assert {one.fit for one in piofs if one.fitted} == {"aligned"}
    assert changes["servers"] == 8  # "striped across the 8 I/O nodes"


def test_settings_are_those_of_the_text():
    for figure, machine, buffers in ((5, "paragon", (MB, 2 * MB)), (6, "sp", (2 * MB,))):
        one = rates.load_transfers(figure)
        assert (one.machine, one.buffers) == (machine, buffers)
        # "5000 x 5000 double-precision global array", "200 MB transfer".
        assert (one.edge, one.section, one.nbytes) == (10000, 5000, 200 * MB)


def test_no_claim_has_a_rate_that_the_text_lacks():
    said = {figure: " ".join(rates.load_transfers(figure).claims) for figure in rates.FIGURES}
    assert re.findall(r"(\d+) ?MB/s", said[5]) == []
    assert re.findall(r"(\d+) ?MB/s", said[6]) == ["2"]


# ------------------------------------------------------------------------------------- accesses


@pytest.mark.parametrize("ranks", [1, 3, 32])
def test_a_section_has_the_blocks_that_the_text_counts(ranks):
    for buffer, nonaligned, aligned in rates.load_transfers(5).subsections:
        case = disk_arrays.make_accesses(5, "read", "nonaligned", buffer, ranks)
        parts = [section[-1].step > 1 for _, section in case.arrays[0].sections]
        assert (parts.count(True), parts.count(False)) == (nonaligned, aligned)
        # In turns, so no rank has more than one more than another.
        each = np.bincount([rank for rank, _ in case.arrays[0].sections], minlength=ranks)
        assert each.max() - each.min() <= 1


@pytest.mark.parametrize("figure", rates.FIGURES)
@pytest.mark.parametrize("operation", ["read", "write"])
def test_blocks_that_are_not_aligned_move_whole_and_are_read_before_they_are_written(
    figure, operation
):
    points = disk_arrays.PAPER_FIGURES.points(figure)
    nbytes = rates.load_transfers(figure).nbytes
    assert {p.ranks for p in points} == set(disk_arrays.RANKS[figure])
    # Figure 5: stripes at both ends; 6: chunks at all edges.
    more, parts = (1.1, 0.2) if figure == 5 else (1.21, 0.40)
    for point in points:
        if point.operation != operation:
            continue
        if point.fit == "aligned":
            assert (point.moved, point.requests) == (nbytes, nbytes // point.buffer)
        else:
            moved = more + (parts if operation == "write" else 0)
            assert point.moved == pytest.approx(moved * nbytes)
            assert point.requests == round(moved * nbytes / point.buffer)


def test_blocks_cover_the_section_once(monkeypatch):
    """A tiny array: 8 x 8 with stripes of two rows; each block is one run of a file."""
    tiny = rates.load_transfers(5)
    tiny = {
        "edge": 8,
        "section": 4,
        "itemsize": 8,
        "stripe_rows": 2,
        "buffers": (32,),
        **{
            name: getattr(tiny, name)
            for name in ("figure", "machine", "named", "storage", "subsections", "claims")
        },
    }
    monkeypatch.setattr(disk_arrays.rates, "load_transfers", lambda figure: rates.Transfers(**tiny))
    for fit, stripes in (("aligned", 2), ("nonaligned", 3)):
        (array,) = disk_arrays.make_accesses(5, "read", fit, 32, 3).arrays
        seen = sum(touched(section, array.shape).astype(int) for _, section in array.sections)
        assert seen.max() == 1
        assert seen.sum() == stripes * 2 * 4
        local = disk_arrays.make_accesses(6, "read", fit, 32, 3)
        every = [(rank, file) for file, a in enumerate(local.arrays) for rank, _ in a.sections]
        assert all(rank == file for rank, file in every)
        # Chunks of 2 x 2.
        assert len(every) == len({s[0].start for a in local.arrays for _, s in a.sections})
        assert len(every) == stripes**2


# ------------------------------------------------------------------------------------- figures


def test_rates_and_sentences_are_met_as_the_documents_say():
    text = DECIDED.read_text()
    for figure in rates.FIGURES:
        for one in disk_arrays.compare_rates(figure):
            fitted = " (calibrated)" if one.fitted else ""
            ours = f"{one.ours:.1f} | {one.ratio:.2f}{fitted}"
            line = f"| {figure} | {one.where} | {one.theirs} | {ours} |"
            assert line in text, line
        for claim in disk_arrays.PAPER_FIGURES.claims(figure):
            line = f"| {figure} | “{claim.said}” | {'yes' if claim.holds else '**no**'} | {claim.ours} |"
            assert line in text, line


def test_a_claim_is_looked_up(monkeypatch):
    """On a machine whose disks write twice as fast as they read, writes are faster."""
    from outcore.model.machines.machine import machine

    fast = machine("paragon", write_rate=5_600_000, write_seek_ns=0)
    writes, nonaligned, *_ = disk_arrays.PAPER_FIGURES.claims(5, fast)
    assert writes.holds
    assert nonaligned.holds
    assert not any(claim.holds for claim in disk_arrays.PAPER_FIGURES.claims(5)[:2])
    slow = disk_arrays.PAPER_FIGURES.claims(6, machine("sp", servers=1))
    assert not slow[0].holds  # one disk for all


# ------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize("figure", rates.FIGURES)
def test_figures_as_a_command(capsys, figure):
    status, said = run(capsys, "--paper", f"dra {figure}")
    assert status == 0
    assert f"Disk Resident Arrays, figure {figure}: " in said.out
    for words in rates.load_transfers(figure).claims:
        assert f"theirs: “{words}”\nours: " in said.out
    assert "of the figure are not in its text" in said.out
    told = "theirs 42.7 MB/s" if figure == 5 else "theirs 44.0 MB/s"
    assert told in said.out
    assert f"{rates.load_transfers(figure).machine} was calibrated on " in said.out


def test_a_figure_as_a_document(capsys):
    status, said = run(capsys, "--paper", "DRA  5", "--json")
    found = json.loads(said.out)
    assert status == 0
    assert [one["name"] for one in found["machines"]] == ["paragon"]
    assert len(found["points"]) == len(disk_arrays.PAPER_FIGURES.points(5)) == 2 * 4 * 7
    assert found["points"][0]["rate"] == pytest.approx(disk_arrays.PAPER_FIGURES.points(5)[0].rate)
    assert [one["theirs"] for one in found["rates"]] == [42.7, 36.9, 35.5, 34.2]
    assert found["cells"] == []


def test_another_machine_and_no_such_figure(capsys):
    status, said = run(capsys, "--paper", "dra 6", "--machine", "today")
    assert status == 0
    assert "(model: today)" in said.out
    status, said = run(capsys, "--paper", "dra 4")
    assert status == 2
    assert "'dra 5', 'dra 6'" in said.err
