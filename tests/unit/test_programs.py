"""The papers' programs on modelled machines: extended 9 and 10, PASSION 3, 4, 10 and 11."""

import dataclasses
from pathlib import Path

import pytest

from outcore.cli import main
from outcore.model.machines import tables
from outcore.model.machines.machine import machine
from outcore.model.simulate import programs, simulate
from outcore.model.simulate.paper import summarize
from outcore.model.simulate.programs import TABLES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cells():
    return {name: table(None) for name, table in TABLES.items()}


@pytest.mark.parametrize(
    ("table", "sums"),
    [
        (3, {"direct": 698.57, "two-phase": 677.86, "reuse": 656.02}),
        (4, {"1/16": 1824.29, "1/8": 1689.78, "1/4": 1519.83, "1/2": 1419.80}),
        (10, {"direct": 197.855, "sieve": 33.616}),
        (11, {"direct": 2 * 30771, "sieve": 10 + 294912}),
        (13, {"waiting": 991.5, "prefetching": 924.6}),
    ],
)
def test_sums_of_columns(table, sums):
    """Added up from the report's text, not from these files, so that a mistyped cell shows."""
    found = {}
    for cell in tables.passion(table):
        found[cell.method] = found.get(cell.method, 0) + cell.seconds
    assert found == pytest.approx(sums)


def test_table_11_is_what_its_sections_are():
    for cell in tables.passion(11):
        (section,) = tables.sections(cell.section, 1)
        rows, columns = (range(n)[part] for part, n in zip(section, cell.shape, strict=True))
        wide = columns[-1] + 1 - columns[0]
        wanted = {
            ("requests", "direct"): len(rows) * len(columns),
            ("elements", "direct"): len(rows) * len(columns),
            ("requests", "sieve"): -(
                -(section[1].stop - section[1].start) // tables.SIEVED_COLUMNS
            ),
            # Up to the bound of the section, an element of it or not.
            ("elements", "sieve"): max(wide, section[1].stop - section[1].start) * cell.shape[0],
        }
        assert cell.seconds == wanted[cell.operation, cell.method], cell


def test_the_programs_are_met_as_the_documents_say(cells):
    text = (ROOT / "docs/design/0015-simulated-machines.md").read_text()
    for table in cells.values():
        (found,) = summarize(table)
        line = (
            f"| {found.paper} {found.table} | {found.cells} | {found.median:.2f} | {found.worst:.1f} "
            f"| {found.cells} | {found.median:.2f} | {found.worst:.1f} | {found.alike} of {found.rows} |"
        )
        assert line in text, line


def test_sieving_needs_the_requests_of_the_report_and_no_more_elements(cells):
    for cell in cells["passion 11"]:
        if cell.unit == "requests" or cell.column == "direct":
            assert cell.ours == cell.theirs, cell
        else:
            assert 0.85 * cell.theirs < cell.ours <= cell.theirs, cell


def test_two_phases_win_in_whole_programs_as_they_did(cells):
    for name in ("extended 9", "extended 10"):
        pairs = {}
        for cell in cells[name]:
            pairs.setdefault((cell.row, cell.ranks), {})[cell.column] = cell
        assert len(pairs) == 15
        for pair in pairs.values():
            assert pair["dynamic"].theirs < pair["direct"].theirs
            assert pair["dynamic"].ours < pair["direct"].ours


@pytest.mark.parametrize(("n", "ranks"), [(1024, 8), (2048, 128)])
def test_a_product_reads_a_once_b_for_each_block_of_rows_and_writes_c_once(n, ranks):
    useful = [
        each.times * simulate(each.case, machine("delta"), "direct").useful
        for each in programs.list_product_accesses(n, ranks)
    ]
    assert useful == [4 * n * n, 4 * n * n * n // programs._ROWS, 4 * n * n]


@pytest.mark.parametrize("ranks", [8, 16, 128])
def test_an_iteration_writes_each_element_once_and_reads_borders_twice(ranks):
    n = 1024
    accesses = list(programs.list_laplace_accesses(n, ranks))
    assert {each.times for each in accesses} == {10}
    useful = {False: 0, True: 0}
    for each in accesses:
        outcome = simulate(each.case, machine("delta"), "direct")
        useful[each.case.write] += outcome.useful // 4
    assert useful[True] == n * n
    blocks = 2 * ranks
    down = {16: 4, 32: 4, 256: 16}[blocks]
    across = blocks // down
    inside = (n + 2 * (down - 1)) * (n + 2 * (across - 1))
    assert useful[False] == inside


def test_local_files_begin_at_one_disk_after_the_other():
    """Three servers, two files of a stripe: nobody waits for the other."""
    one = machine("delta", servers=3, stripe=4096, block=4096, call_ns=0, client_ns=0)
    whole = programs._make_own_sections((slice(0, 4096),))
    both = programs._make_files(2, (4096,), 1, whole, one)
    alone = programs._make_files(1, (4096,), 1, whole, one)
    assert simulate(both, one, "direct").ns == simulate(alone, one, "direct").ns
    narrow = dataclasses.replace(one, servers=1)
    assert simulate(both, narrow, "direct").ns > simulate(alone, narrow, "direct").ns


def test_one_table_as_a_command(capsys):
    assert main(["simulate", "--paper", "Passion  10"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("PASSION report, table 10 (seconds)\n")
    assert said.count("table 10") == 1
    assert "(1:2048:2, 1:32:2) read      theirs     52.95" in said
    assert "sp2" not in said
    assert main(["simulate", "--paper", "extended 11"]) == 2
    assert "'extended 1' to 'extended 10'" in capsys.readouterr().err
