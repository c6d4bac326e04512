"""A rank fails between two synchronisations of a collective: all raise, name it, and go on in step."""

import gc
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest

import outcore
from mpi.test_collective import once
from outcore import _core
from outcore.errors import BudgetError, CollectiveError, DistributionError
from outcore.mpi import DistArray, Distribution
from outcore.ranks import agreement
from outcore.ranks.collective import (
    array,
    call,
    durable,
    explain,
    independent,
    items,
    opening,
    packets,
    planning,
    rounds,
    traffic,
)
from outcore.ranks.transport.nodememory import MappedMemory
from outcore.testing.sim import SimMemory
from ranks import ranks

# What runs on each rank between two synchronisations. The first step of a rank that ends a collective is
# its agreement, so nothing here comes after the last one.
BETWEEN = {
    planning: ("_format_reason", "describe_choice"),
    call: (
        "Prices",
        "SharedPlan",
        "CallState",
        "_run_chosen_method",
        "_share_plan",
        "choose_method",
        "compute_oversubscription",
        "flush_if_requested",
        "make_plan",
        "read_rounds",
        "write_rounds",
    ),
    items: ("exclude_overwritten", "get_array_ids"),
    independent: ("_cut_parts", "access_independently"),
    durable: ("PreparedFlush", "_decode_words", "flush_once"),
    array: ("PreparedFlush", "flush_once"),
    rounds: ("_SlotState", "_fill_first", "_read_rounds", "_write_rounds"),
    rounds.CallState: ("agree", "copy", "send_all_as_messages", "step"),
    packets.Packets: ("__enter__", "make"),
    explain: (
        "ArrayReport",
        "CollectiveReport",
        "ManyReport",
        "_count_given",
        "compute_oversubscription",
        "describe_choice",
        "make_plan",
        "make_report",
    ),
    explain._ReportMaker: (
        "__init__",
        "_choose_own_method",
        "_fill_words",
        "_gather_paths",
        "_make_report",
        "_price_part",
        "make",
    ),
}
ERRORS = {
    "memory": lambda: MemoryError("no room for a plan"),
    "interrupt": lambda: KeyboardInterrupt("no room for a plan"),
    "outcore": lambda: BudgetError("no room for a plan", code="budget-too-small"),
}
SHAPE = (24, 16)


class Faults:
    """Lets the n-th call of a patched function fail, on ranks that ask for it; ranks may be threads."""

    def __init__(self):
        self.here = threading.local()

    def arm(self, at, error):
        self.here.left, self.here.error, self.here.where = at, error, ""

    def disarm(self):
        """Tell which function failed, if one did."""
        where, self.here.where = getattr(self.here, "where", ""), ""
        self.here.left = 0
        return where

    def wrap(self, plain, name):
        def faulty(*args, **kwargs):
            left = getattr(self.here, "left", 0)
            if left:
                self.here.left = left - 1
                if left == 1:
                    self.here.where = name
                    raise self.here.error()
            return plain(*args, **kwargs)

        return faulty


@pytest.fixture
def faults(monkeypatch):
    made = Faults()
    for module, names in BETWEEN.items():
        for name in names:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, made.wrap(getattr(module, name), name))
    return made


def strike(t, faults, action, error, victim, at):
    """Let a call fail at a step of one rank; tells what each rank raised, and where it was."""
    if t.rank == victim:
        faults.arm(at, ERRORS[error])
    raised = None
    try:
        action()
    except (CollectiveError, DistributionError, BudgetError, KeyboardInterrupt) as failure:
        raised = failure
    return raised, faults.disarm()


def check_raised(t, raised, error, victim):
    if t.rank == victim:
        assert error == "interrupt" or isinstance(raised, CollectiveError), raised
        if t.size > 1:
            cause = raised if error == "interrupt" else raised.__cause__
            assert isinstance(cause, type(ERRORS[error]())), cause
    if t.rank != victim:
        assert (raised.code, raised.ranks) == ("rank-failed", (victim,)), raised
        assert "no room for a plan" in str(raised) and f"rank {victim}" in str(raised)


def struck_everywhere(t, faults, action, error, victim, check):
    """Let a call fail at its first step on one rank, then at the next, until none is left."""
    met = []
    while True:
        raised, where = strike(t, faults, action, error, victim, len(met) + 1)
        if not t.agree(int(bool(where))):
            assert raised is None
            return met
        if t.size == 1:
            assert raised is not None
        else:
            check_raised(t, raised, error, victim)
        met.append(where)
        check()


def calls_of(t, arrays, data):
    """Calls that are planned, and the fewest steps that each has."""
    a, _, synced = arrays
    columns, rows = np.s_[:, t.rank :: t.size], np.s_[t.rank :: t.size]
    # Where ranks write the same elements, and what is left for a rank cannot be said.
    tangled = np.s_[:: 2 if t.rank == t.size - 1 else 1]

    def read(method):
        got = a.read_all(columns, method=method)
        np.testing.assert_array_equal(data[columns], got)

    def fresh(method):
        # What may have been written since the ranks synchronised is not read before they synchronise.
        def both():
            _core.Array.write(a.handle.core, np.s_[:1], data[:1])
            read(method)

        return both

    def many(kind):
        wanted = [(b, columns) for b in arrays[:2]]
        if kind == "explain":
            outcore.mpi.explain_all(wanted, write=False)
        else:
            outcore.mpi.write_all([(b, key, data[key]) for b, key in wanted], method=kind)

    return {
        "read direct": (fresh("direct"), 1),
        "read two-phase": (fresh("two-phase"), 15),
        "read auto": (fresh("auto"), 9),
        "write direct": (lambda: a.write_all(rows, data[rows], method="direct"), 8),
        "write auto": (lambda: a.write_all(rows, data[rows]), 10),
        "write two-phase": (lambda: a.write_all(rows, data[rows], method="two-phase"), 15),
        "write tangled": (lambda: a.write_all(tangled, data[tangled]), 8),
        "write many": (lambda: many("two-phase"), 15),
        "write durable": (lambda: synced.write_all(rows, data[rows], method="direct"), 13),
        "flush": (a.flush_all, 3),
        "explain": (lambda: a.explain_all(columns), 10),
        "explain many": (lambda: many("explain"), 15),
    }


def strike_calls(world, folder, faults, errors, victims, some=None):
    data = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)

    def body(t):
        once(t, lambda: [np.save(folder / f"{name}.npy", data) for name in "ab"])
        arrays = [
            outcore.open(
                folder / f"{name}.npy", "r+", comm=t, hints={"sync": sync, "cache": "bypass"}
            )
            for name, sync in (("a", False), ("b", False), ("a", True))
        ]

        def check():
            # In step, and nothing else was written.
            for b in arrays:
                np.testing.assert_array_equal(data, b.read_all(method="direct"))

        for name, (action, least) in calls_of(t, arrays, data).items():
            if some is not None and name not in some:
                continue
            for error in errors:
                for victim in {victim % t.size for victim in victims}:
                    found = struck_everywhere(t, faults, action, error, victim, check)
                    assert t.size == 1 or t.rank != victim or len(found) >= least, (name, found)

    world.run(body, timeout=20)


@pytest.fixture
def small_slots(monkeypatch):
    """Slots are small, so that there are rounds."""
    monkeypatch.setattr(planning, "AGREED", replace(planning.AGREED, slot=1000, least=1))


@ranks(1, 3, 4, per_node=(None, 2))
def test_what_fails_between_synchronisations_fails_on_all_ranks(world, folder, faults, small_slots):
    names = ("read two-phase", "write auto", "write durable", "flush")
    strike_calls(world, folder, faults, ["memory"], [-1], names)


@ranks(2, per_node=(None, 1))
def test_explaining_and_reading_directly_fail_on_all_ranks(world, folder, faults, small_slots):
    names = ("read direct", "explain", "explain many")
    strike_calls(world, folder, faults, ["interrupt", "outcore"], [0], names)


@ranks(1, 2, 3, 4, per_node=(None, 2))
def test_what_fails_between_synchronisations_of_all_calls_slow(world, folder, faults, small_slots):
    errors = [list(ERRORS)[world.size % len(ERRORS)]]
    strike_calls(world, folder, faults, errors, [0, -1])


@ranks(*range(5, 17), per_node=(None, 3))
def test_what_fails_between_synchronisations_of_more_ranks_slow(world, folder, faults, small_slots):
    names = ("read two-phase", "write auto", "explain", "write tangled", "read auto")
    errors = [list(ERRORS)[world.size % len(ERRORS)]]
    some = (names[world.size % len(names)],)
    strike_calls(world, folder, faults, errors, [world.size // 2], some)


def faults_at(monkeypatch, kind, name):
    """Let one function fail, or class of the core."""
    made = Faults()
    if kind is _core:
        plain = getattr(_core, name)

        class Kernel:
            def __getattr__(self, other):
                return made.wrap(plain, name) if other == name else getattr(_core, other)

        for module in (agreement, traffic):
            monkeypatch.setattr(module, "_core", Kernel())
    else:
        monkeypatch.setattr(kind, name, made.wrap(getattr(kind, name), name))
    return made


@ranks(2, 4, per_node=(None, 2))
def test_shared_memory_that_one_rank_cannot_map(world, folder, monkeypatch):
    """All ranks of its node fail then, each after the synchronisations of these ranks alone."""
    faults = Faults()
    for kind in (MappedMemory, SimMemory):
        monkeypatch.setattr(kind, "map", faults.wrap(kind.map, "map"))

    def body(t):
        data = np.arange(64.0 * 16).reshape(64, 16)
        once(t, lambda: np.save(folder / "a.npy", data))
        victim = t.size - 1
        with outcore.open(folder / "a.npy", comm=t) as a:

            def action():
                a.read_all(np.s_[:, t.rank :: t.size], method="two-phase")

            raised, where = strike(t, faults, action, "memory", victim, 1)
            assert (where != "") == (t.rank == victim)
            check_raised(t, raised, "memory", victim)
            action()

    world.run(body, timeout=20)


def gives_up(world, folder, faults, action, at=1):
    """The rank says what happened to it; the others raise at once, or at their next call."""
    data = np.arange(64.0 * 16).reshape(64, 16)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        victim = t.size - 1
        rows = Distribution(SHAPE, ["block", "*"], t.size)
        part = DistArray.from_function(lambda i, j: i - j, rows, transport=t)
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            t.barrier()
            raised, met = strike(t, faults, lambda: action(t, a, part, data), "outcore", victim, at)
            assert (met != "") == (t.rank == victim)
            if t.rank == victim:
                assert isinstance(raised.__cause__, BudgetError), raised
            with pytest.raises(CollectiveError) as caught:
                t.barrier()
            for error in (caught.value, raised or caught.value):
                assert (error.code, error.ranks) == ("rank-failed", (victim,))
                assert "no room for a plan" in str(error)

    world.run(body, timeout=20)


@ranks(2, 4, per_node=(None, 1, 2))
def test_failed_reading_of_records_aborts_the_group(world, folder, monkeypatch):
    """They read what was cached, and return; or go on to the plan."""
    faults = faults_at(monkeypatch, _core, "Records")
    for method in ("direct", "two-phase"):

        def reads(t, a, part, data, method=method):
            a.read_all(np.s_[:, t.rank :: t.size], method=method)

        gives_up(world, folder, faults, reads)


@ranks(2, 4, per_node=(None, 1, 2))
def test_failed_reading_of_long_records_aborts_the_call(world, folder, monkeypatch):
    """Sections that do not fit the heads: the others go on to the plan, so the group is not lost."""
    faults = faults_at(monkeypatch, _core, "Records")
    data = np.arange(64.0 * 16).reshape(64, 16)

    def body(t):
        names = [folder / f"{k}.npy" for k in range(12)]
        once(t, lambda: [np.save(name, data) for name in names])
        victim = t.size - 1
        arrays = [outcore.open(name, comm=t) for name in names]

        def action():
            got = outcore.mpi.read_all(
                [(a, np.s_[t.rank :: t.size]) for a in arrays], method="two-phase"
            )
            for one in got:
                np.testing.assert_array_equal(data[t.rank :: t.size], one)

        raised, where = strike(t, faults, action, "memory", victim, 2)
        assert (where != "") == (t.rank == victim)
        check_raised(t, raised, "memory", victim)
        action()

    world.run(body, timeout=20)


@ranks(2, 4, per_node=(None, 1, 2))
def test_failed_comparison_of_opened_files_aborts_the_group(world, folder, monkeypatch):
    def opens(t, a, part, data):
        outcore.open(folder / "a.npy", comm=t).close()

    gives_up(world, folder, faults_at(monkeypatch, outcore.ranks.ranks, "_are_equal"), opens)


@pytest.mark.parametrize(
    ("kind", "where"), [(packets, "PackedExchange"), (traffic.PackedExchange, "start")]
)
@ranks(2, 4, per_node=(1, 2))
def test_failed_packets_abort_the_group(world, folder, monkeypatch, kind, where):
    faults = faults_at(monkeypatch, kind, where)

    def reads(t, a, part, data):
        a.read_all(np.s_[:, t.rank :: t.size], method="two-phase")

    def writes(t, a, part, data):
        columns = np.s_[:, t.rank :: t.size]
        a.write_all(columns, data[columns], method="two-phase")

    gives_up(world, folder, faults, reads)
    gives_up(world, folder, faults, writes)


@pytest.mark.parametrize(("kind", "where"), [(_core, "Records"), (traffic.PackedExchange, "start")])
@ranks(2, 4, per_node=(None, 1))
def test_failed_redistribution_aborts_the_group(world, folder, monkeypatch, kind, where):
    def redistributes(t, a, part, data):
        part.redistribute_all(Distribution(SHAPE, ["*", "block"], t.size))

    gives_up(world, folder, faults_at(monkeypatch, kind, where), redistributes)


class Refuses:
    """Memory that cannot be written to."""

    nbytes, dtype, shape = 0, np.dtype("u1"), (0,)

    def __init__(self, error):
        self.error, self.struck = error, False

    def __setitem__(self, key, value):
        self.struck = True
        raise self.error()


def strike_copies(world, monkeypatch, error):
    here, plain = threading.local(), traffic.TrafficRun._pack

    def pack(self, number):
        ready = plain(self, number)
        memory = getattr(here, "memory", None)
        if memory is not None:
            ready.own.extend([(0, memory)] if here.own else [])
            ready.coming.extend([] if here.own else [memory])
        return ready

    monkeypatch.setattr(traffic.TrafficRun, "_pack", pack)
    shape = (3 * world.size, 2 * world.size)

    def body(t):
        rows = Distribution(shape, ["block", "*"], t.size)
        columns = Distribution(shape, ["*", "block"], t.size)
        ghosts = ((1, 1), 0)
        a = DistArray.from_function(
            lambda i, j: 100 * i + j, rows, "i8", transport=t, ghosts=ghosts
        )
        whole = np.add.outer(100 * np.arange(shape[0]), np.arange(shape[1]))
        actions = (
            lambda: a.redistribute_all(columns),
            a.update_ghosts_all,
            a.gather_all,
            lambda: a.gather_all(0),
        )
        for action in actions:
            for victim in sorted({0, t.size - 1}):
                for own in (True, False):
                    memory = Refuses(ERRORS[error])
                    if t.rank == victim:
                        here.memory, here.own = memory, own
                    raised = None
                    try:
                        action()
                    except (
                        DistributionError,
                        MemoryError,
                        BudgetError,
                        KeyboardInterrupt,
                    ) as failure:
                        raised = failure
                    here.memory = None
                    assert memory.struck == (t.rank == victim)
                    if t.rank == victim:
                        assert isinstance(raised, type(ERRORS[error]())), raised
                    else:
                        assert (raised.code, raised.rank) == ("failed-elsewhere", victim)
                        assert "no room for a plan" in str(raised)
        np.testing.assert_array_equal(whole, a.gather_all())

    world.run(body, timeout=20)


@pytest.mark.parametrize("error", ["outcore", "interrupt"])
@ranks(1, 3, 4, per_node=(None, 2))
def test_copies_of_a_redistribution_fail_on_all_ranks(world, monkeypatch, error):
    """Also those of the only round, after which nothing would have been said."""
    strike_copies(world, monkeypatch, error)


@ranks(2, *range(5, 17), per_node=(None, 3))
def test_copies_of_a_redistribution_fail_on_all_ranks_slow(world, monkeypatch):
    strike_copies(world, monkeypatch, "memory")


@ranks(2, 4, per_node=(None, 2))
def test_synchronisations_of_a_redistribution(world, steps):
    """One before it and one behind it; where there are several rounds, one between them."""

    def body(t):
        shape = (8 * t.size, 8 * t.size)
        a = DistArray.zeros(Distribution(shape, ["block", "*"], t.size), transport=t)
        columns = Distribution(shape, ["*", "block"], t.size)
        t.barrier()
        steps[t.rank] = []
        a.redistribute_all(columns)
        return list(steps[t.rank])

    with outcore.memory(_core.memory_state()[0] + (8 << 20)):
        assert {("allgather", "agree")} == set(map(tuple, world.run(body)))
    gc.collect()
    # A message has 64 elements, and room for a dozen at most.
    with outcore.memory(_core.memory_state()[0] + 96 * 2 * world.size):
        several = world.run(body)[0]
    assert several[0] == "allgather" and several[1:] == ["agree"] * len(several[1:])
    assert len(several) > 3


@ranks(2, 4, per_node=(None, 1))
def test_ranks_that_fail_for_different_reasons(world, folder, faults):
    """One has no memory for the plan; all others find that the slots do not fit the budget."""

    def body(t):
        def create():
            data = np.zeros((256, 256))
            outcore.create(folder / "a.zarr", data=data, chunks=(256, 256), compression="zstd")

        once(t, create)
        victim = t.size - 1
        with outcore.open(folder / "a.zarr", comm=t, hints={"memory": 100_000}) as a:

            def action():
                a.read_all(np.s_[t.rank :: t.size], method="two-phase")

            # All for the same reason: that is what they raise.
            with pytest.raises(BudgetError):
                action()
            raised, where = strike(t, faults, action, "memory", victim, 1)
            assert (where != "") == (t.rank == victim)
            assert (raised.code, raised.ranks) == ("rank-failed", tuple(range(t.size)))
            assert isinstance(raised.__cause__, MemoryError if t.rank == victim else BudgetError)
            assert t.agree(t.rank) == t.size - 1

    world.run(body, timeout=20)


@ranks(2, 4, per_node=(None, 1))
def test_a_warning_that_is_an_error_on_the_only_rank_that_warns(world, folder, undecided):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.zeros((16, 4))))
        with outcore.open(folder / "a.npy", "r+", comm=t, hints={"overlap": "error"}) as a:
            for _ in range(2):
                with pytest.raises(CollectiveError, match="too many pairs") as caught:
                    a.write_all(np.s_[t.rank :: t.size], 1.0)
                assert (caught.value.code, caught.value.ranks) == ("rank-failed", (0,))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world.run(body, timeout=20)


@ranks(2, 4, per_node=(None, 1))
def test_failed_opening_of_a_new_file_raises_on_all_ranks(world, folder, monkeypatch):
    faults = Faults()
    monkeypatch.setattr(opening, "_limit_threads", faults.wrap(opening._limit_threads, "threads"))

    def body(t):
        victim = t.size - 1

        def action():
            outcore.open(folder / "a.npy", "w", shape=(4, 4), dtype="i4", comm=t).close()

        raised, where = strike(t, faults, action, "memory", victim, 1)
        assert (where == "threads") == (t.rank == victim)
        check_raised(t, raised, "memory", victim)
        action()

    world.run(body, timeout=20)
