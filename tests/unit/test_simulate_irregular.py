"""Elements chosen one by one on modelled machines: beside all indices, real schedules, the papers."""

import dataclasses
import itertools
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.cli import main
from outcore.model.machines import tables
from outcore.model.machines.machine import machine
from outcore.model.simulate import Scattered, figures, irregular, simulate_scattered
from outcore.model.simulate.molecular import MOLECULAR
from outcore.model.simulate.paper import summarize
from outcore.ranks.collective.planning import AGREED
from outcore.testing.sim import SimWorld

ROOT = Path(__file__).resolve().parents[2]
DECIDED = ROOT / "docs/design/0044-scattered-elements-are-simulated.md"
CASES = [
    Scattered(8, 200),
    Scattered(7, 120, run=3, spread=3),
    Scattered(5, 64, run=16, itemsize=4, spread=2, write=True),
    Scattered(12, 50, itemsize=16, write=True),
    Scattered(3, 1),
]
WAYS = [
    {"chunk": 1 << 20},
    {"chunk": 700, "groups": 2},
    {"chunk": 333, "groups": 3, "io_ranks": 3},
    {"chunk": 64, "io_ranks": 1, "groups": 4},
]


def counted(case, *, chunk, groups=1, io_ranks=None):
    """Look at all indices of all ranks: rounds, and elements of each message of each step."""
    owners = io_ranks or case.ranks
    lists = [case.indices(rank) for rank in range(case.ranks)]
    rounds = _core.rounds_of(case.nbytes, owners, chunk)
    width, bins = _core.bins_of(case.nbytes // case.itemsize, 1, owners)
    sums = np.sum([_core.count_bins(one, width, bins) for one in lists], axis=0)
    part = _core.cut_bins(sums, owners, rounds)
    messages = {}
    groups = min(groups, owners)
    for rank, one in enumerate(lists):
        own = _core.count_bins(one, width, bins)
        counts = np.bincount(part, weights=own, minlength=owners * rounds).astype(np.int64)
        for number, count in enumerate(counts.tolist()):
            at = number % owners * case.ranks // owners
            if count and at != rank:
                key = (number // owners, at, rank)
                messages[key] = messages.get(key, 0) + count
    return rounds, messages


# ------------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize("case", CASES)
def test_each_element_has_one_rank(case):
    lists = [case.indices(rank) for rank in range(case.ranks)]
    assert np.array_equal(np.sort(np.concatenate(lists)), np.arange(case.nbytes // case.itemsize))
    for rank, one in enumerate(lists):
        assert one.size == case.blocks * case.run
        part = case.nbytes // case.itemsize // case.ranks * case.spread
        assert set(one // part) == {rank // case.spread}


def test_blocks_are_in_no_order_of_ranks():
    """A permutation of ranks in each stratum, and others in others."""
    case = Scattered(16, 500)
    table = np.empty(16 * 500, int)
    for rank in range(16):
        table[case.indices(rank)] = rank
    rows = {tuple(row) for row in table.reshape(500, 16)}
    assert len(rows) > 60  # of 128: factors without a divisor of 16, times shifts
    after = np.mean([row.index(0) < row.index(1) for row in rows])
    assert 0.35 < after < 0.65


@pytest.mark.parametrize(
    "words",
    [{"ranks": 0}, {"blocks": 0}, {"run": -1}, {"spread": 9}, {"itemsize": 0}],
)
def test_patterns_that_are_none(words):
    with pytest.raises(outcore.errors.UsageError, match="counts of at least 1") as raised:
        Scattered(**{"ranks": 8, "blocks": 4, **words})
    assert raised.value.code == "bad-option"


def test_ways_that_are_none():
    case = Scattered(8, 4)
    for words in ({"chunk": 0}, {"groups": 0}, {"io_ranks": 9}, {"io_ranks": 0}):
        with pytest.raises(outcore.errors.UsageError, match="1 to 8 I/O ranks") as raised:
            simulate_scattered(case, machine("today"), **words)
        assert raised.value.code == "bad-hint"
    with pytest.raises(outcore.errors.UsageError, match="direct, collective, pipelined"):
        simulate_scattered(case, machine("today"), "quick")
    with pytest.raises(outcore.errors.UsageError, match="rank 8 does not exist; pass 0 to 7"):
        case.indices(8)


# --------------------------------------------------------------------------- against enumeration


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("words", WAYS)
@pytest.mark.parametrize("method", ["collective", "pipelined"])
def test_counts_are_those_of_all_indices(case, words, method):
    words = {**words, "io_ranks": min(words.get("io_ranks", case.ranks), case.ranks)}
    rounds, messages = counted(case, **words)
    found = simulate_scattered(case, machine("paragon"), method, **words)
    assert found.rounds == rounds
    assert (found.messages, found.message_bytes) == (
        len(messages),
        case.itemsize * sum(messages.values()),
    )
    assert (found.bytes, found.useful) == (case.nbytes, case.nbytes)
    assert found.ns >= max(found.busiest_ns, found.exchange_ns) >= found.copy_ns


@pytest.mark.parametrize("words", WAYS)
def test_steps_are_those_of_real_schedules(tmp_path, words):
    """Ranks that schedule these indices have the same rounds, parts and messages."""
    case = Scattered(6, 150, run=2, spread=3)
    path = tmp_path / "a.npy"
    outcore.create(path, data=np.arange(case.nbytes // 8, dtype=float)).close()
    words = {**words, "io_ranks": min(words.get("io_ranks", 6), 6)}
    rounds, messages = counted(case, **words)

    def body(comm):
        with outcore.open(path, comm=comm) as a:
            mine = case.indices(comm.rank)
            schedule = a.schedule_all(mine, **words)
            assert np.array_equal(schedule.gather_all(method="pipelined"), mine)
            steps = schedule._owned.steps
            order = [(steps.get_round(k), steps.get_owners(k)) for k in range(steps.number)]
            return schedule.rounds, order, steps.theirs.T.tolist()

    real = SimWorld(6).run(body)
    owners = words["io_ranks"]
    seen = {}
    for rank, (_, _, parts) in enumerate(real):
        for number, counts in enumerate(parts):
            seen |= {(number, rank, to): n for to, n in enumerate(counts) if n and to != rank}
    assert seen == messages
    groups = min(words.get("groups", 1), owners)
    for made, steps, _ in real:
        assert made == rounds
        assert len(steps) == rounds * groups
        assert sum(len(owned) for _, owned in steps) == rounds * owners
    found = simulate_scattered(case, machine("today", per_node=1), **words)
    assert (found.rounds, found.messages) == (rounds, len(messages))


def test_ranks_alone_make_a_request_for_each_block():
    case = Scattered(16, 100, run=4, spread=4)
    found = simulate_scattered(case, machine("delta"), "direct")
    assert (found.requests, found.bytes, found.messages) == (1600, case.nbytes, 0)
    # A block is longer than what is asked for at once.
    long = Scattered(2, 3, run=AGREED.slot // 8 + 1)
    assert simulate_scattered(long, machine("delta"), "direct").requests == 2 * 3 * 2


# ------------------------------------------------------------------------------ what has to grow


@pytest.mark.parametrize("spread", [0, 8])
@pytest.mark.parametrize("write", [False, True])
def test_larger_chunks_need_no_more_messages_requests_or_time(spread, write):
    case = Scattered(32, 1 << 12, spread=spread, write=write)
    # Without a disk that seeks: what comes first there changes what comes later.
    model = machine("paragon", seek_ns=0, write_seek_ns=0, streams=1)
    found = [
        simulate_scattered(case, model, "collective", chunk=chunk)
        for chunk in (1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15)
    ]
    for small, large in itertools.pairwise(found):
        assert large.rounds < small.rounds
        assert large.messages <= small.messages
        assert large.requests <= small.requests
        assert large.ns < small.ns


def test_pipelining_hides_what_groups_exchange():
    """One group at a time: all but one exchange is hidden; each step costs an agreement."""
    case = Scattered(64, 1 << 15)
    model = machine("paragon", write_seek_ns=0, seek_ns=0)
    words = {"chunk": 1 << 18, "groups": 8, "in_turn": True}
    one, other = (simulate_scattered(case, model, m, **words) for m in ("collective", "pipelined"))
    assert (one.messages, one.requests, one.exchange_ns) == (
        other.messages,
        other.requests,
        other.exchange_ns,
    )
    assert other.ns < one.ns - one.exchange_ns // 2
    for method in ("collective", "pipelined"):
        # Ours let the next group begin: no later than one group at a time.
        ours = simulate_scattered(case, model, method, **{**words, "in_turn": False})
        theirs = simulate_scattered(case, model, method, **words)
        assert ours.ns <= theirs.ns * 1.02


def test_collectives_beat_ranks_alone_on_all_machines():
    for name in ("delta", "paragon", "red", "sp2", "today"):
        for write in (False, True):
            case = irregular.make_case("random", 16, 1 << 14, write=write)
            alone = simulate_scattered(case, machine(name), "direct")
            both = simulate_scattered(case, machine(name), "pipelined")
            assert 2 * both.ns < alone.ns, name


@pytest.mark.parametrize("name", irregular.CASES)
def test_a_hundred_thousand_ranks(name):
    case = irregular.make_case(name, 100_000)
    begin = time.process_time()
    for method in irregular.METHODS:
        found = simulate_scattered(case, machine("today"), method, io_ranks=548, groups=4)
        assert (found.bytes, found.useful) == (case.nbytes, case.nbytes)
        if method != "direct":
            assert found.rounds == -(-case.nbytes // 548 // irregular.CHUNK)
            assert found.message_bytes <= case.nbytes
    assert time.process_time() - begin < 60


def test_what_no_machine_can_hold_is_refused():
    for words in ({"blocks": 1 << 60}, {"blocks": 1 << 44, "run": 1}):
        with pytest.raises(outcore.OutcoreError):
            simulate_scattered(Scattered(**{"ranks": 64, "blocks": 1, **words}), machine("delta"))
    with pytest.raises(outcore.OutcoreError, match="chunks of a simulation"):
        simulate_scattered(Scattered(64, 1 << 30), machine("today"), chunk=1)


# --------------------------------------------------------------------------------------- papers


def test_figures_are_met_as_the_documents_say():
    text = DECIDED.read_text()
    for figure in figures.FIGURES:
        for claim in figures.PAPER_FIGURES.claims(figure):
            line = f"| {figure} | “{claim.said}” | {'yes' if claim.holds else '**no**'} | {claim.ours} |"
            assert line in text, line


@pytest.mark.parametrize("figure", figures.FIGURES)
def test_curves_have_the_settings_of_the_paper(figure):
    some = figures.PAPER_FIGURES.points(figure)
    settings = tables.irregular(figure)
    if settings[0].against == "chunk size":
        assert len(some) == len(figures.CHUNKS) * len(settings)
    else:
        for ranks, most in ((64, 32), (128, 64)):
            of = [point.groups for point in some if point.ranks == ranks]
            assert sorted(set(of)) == [1 << k for k in range(most.bit_length())]
    for point in some:
        assert point.nbytes == point.ranks << 22
        parts = point.io + point.communication + point.computation
        assert 0.5 * point.seconds < parts
        if point.groups == 1 and point.chunk == 4 << 20:
            assert parts <= point.seconds


def _slower_with_chunks(point):
    more = point.chunk / (1 << 18)
    words = {"io": point.io * more, "communication": point.communication * more}
    return dataclasses.replace(point, seconds=point.seconds * more, **words)


def _faster_with_groups(point):
    return dataclasses.replace(point, seconds=point.seconds / point.groups)


def _slower_with_stripes(point):
    return dataclasses.replace(point, seconds=point.seconds * point.stripe)


def _best_of_text(point):
    best = (point.groups, point.stripe) == (4, 256 << 10)
    return dataclasses.replace(point, seconds=point.nbytes / 1e6 / (39.0 if best else 20.0))


@pytest.mark.parametrize(
    ("figure", "number", "holds", "change"),
    [
        (9, 0, False, _slower_with_chunks),
        (9, 1, False, _slower_with_stripes),
        (9, 2, False, _slower_with_stripes),
        (10, 0, True, _best_of_text),
        (10, 0, False, _slower_with_stripes),
        (12, 0, False, _faster_with_groups),
        (13, 0, False, _slower_with_chunks),
        (13, 1, True, _slower_with_chunks),
        (15, 0, False, _faster_with_groups),
        (15, 1, False, _faster_with_groups),
    ],
)
def test_claims_tell_curves_that_are_so_from_those_that_are_not(
    monkeypatch, figure, number, holds, change
):
    real = figures._simulate_point
    monkeypatch.setattr(figures, "_simulate_point", lambda *settings: change(real(*settings)))
    assert figures.PAPER_FIGURES.claims(figure)[number].holds == holds


def test_the_kernel_is_met_as_the_documents_say():
    text = DECIDED.read_text()
    for name, table in MOLECULAR.items():
        cells = table(None)
        assert (len(cells), sum(cell.fitted for cell in cells)) == (20, 2)
        (found,), (other,) = summarize(cells), summarize(cells, fitted=False)
        line = (
            f"| {name} | {found.cells} | {found.median:.2f} | {found.worst:.1f} "
            f"| {other.cells} | {other.median:.2f} | {other.worst:.1f} |"
        )
        assert line in text, line


# -------------------------------------------------------------------------------------- command


def run(capsys, *words):
    status = main(["simulate", *map(str, words)])
    return status, capsys.readouterr()


def test_the_command_simulates_cases_of_indices(capsys):
    words = ("--case", "random", "--ranks", "16,64", "--bytes", "64KiB", "--chunk", "16KiB")
    status, said = run(capsys, *words, "--groups", 2, "--write")
    assert status == 0
    assert "each rank writes 64KiB (random)" in said.out
    lines = [line.split() for line in said.out.splitlines() if re.match(r" +(16|64) ", line)]
    assert [line[:2] for line in lines] == [
        [ranks, method] for ranks in ("16", "64") for method in irregular.METHODS
    ]
    status, said = run(capsys, *words, "--methods", "pipelined", "--io-ranks", 4, "--json")
    (first, _) = json.loads(said.out)["outcomes"]
    expected = simulate_scattered(
        irregular.make_case("random", 16, 1 << 16), machine("today"), chunk=1 << 14, io_ranks=4
    )
    assert {name: first[name] for name in dataclasses.asdict(expected)} == dataclasses.asdict(
        expected
    )


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--case", "rows", "--groups", "2"], "--chunk and --groups are for irregular cases"),
        (["--case", "random", "--methods", "dynamic"], "use direct, collective, pipelined"),
        (["--case", "columns", "--methods", "pipelined"], "use direct, sieve"),
        (["--case", "random", "--groups", "0"], "at least one group"),
        (["--paper", "irregular 8"], "'irregular 9' to 'irregular 15'"),
    ],
)
def test_options_that_make_no_sense(capsys, words, part):
    status, said = run(capsys, *words)
    assert status == 2
    assert part in said.err


@pytest.mark.parametrize("figure", figures.FIGURES)
def test_figures_as_a_command(capsys, figure):
    status, said = run(capsys, "--paper", f"irregular {figure}")
    assert status == 0
    assert f"Irregular paper, figure {figure}: " in said.out
    for words in tables.load_irregular_claims()[figure]:
        assert f"theirs: “{words}”\nours: " in said.out
    name = "red" if figure == 15 else "paragon"
    assert f"{name} was calibrated on one value in the irregular paper's text" in said.out
    assert ("communication" in said.out) == (figure in (13, 14))


def test_figures_as_a_document(capsys):
    status, said = run(capsys, "--paper", "irregular 12", "--json")
    found = json.loads(said.out)
    assert status == 0
    assert [one["name"] for one in found["machines"]] == ["paragon"]
    assert len(found["points"]) == len(figures.PAPER_FIGURES.points(12))
    assert found["points"][0]["rate"] == pytest.approx(figures.PAPER_FIGURES.points(12)[0].rate)
    assert found["claims"][0]["figure"] == 12
    assert found["cells"] == []


@pytest.mark.parametrize("number", [6, 7, 8, 9])
def test_the_kernel_as_a_command(capsys, number):
    status, said = run(capsys, "--paper", f"passion {number}")
    assert status == 0
    assert f"PASSION report, table {number} (seconds)" in said.out
    theirs = [line.split()[-20:] for line in said.out.splitlines() if " theirs   " in line]
    assert [float(cell) for row in theirs for cell in row] == [
        float(f"{cell.seconds:.4g}") for cell in tables.passion(number)
    ]
    assert "ipsc was calibrated on no cell" in said.out


def test_another_machine_draws_the_figures(capsys):
    status, said = run(capsys, "--paper", "irregular 9", "--machine", "today")
    assert status == 0
    assert "(model: today)" in said.out
