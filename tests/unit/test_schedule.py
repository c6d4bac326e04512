"""Schedules: what `check_schedule` refuses, and that `ScheduleRun` equals one step after the other."""

import importlib
import math
import random
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.arrays.schedule import (
    Block,
    Buffer,
    InvalidScheduleError,
    Load,
    Reuse,
    Schedule,
    ScheduleRun,
    ScheduleStep,
    Store,
)
from outcore.base import assumed_costs
from outcore.compute.jobs.memory import InMemory
from schedule_check import check_schedule

F8 = np.dtype("f8")
SIZE = 5
WHOLE = 40


class Late:
    """An array in memory whose requests are done some time between their start and the end of a wait."""

    info = None

    def __init__(self, data, chance, log):
        self.data, self.chance, self.log = data, chance, log
        self.dtype = data.dtype

    def iread(self, key, *, out):
        def work():
            out[...] = self.data[key]

        return Request(work, self.chance, self.log)

    def iwrite(self, key, value):
        def work():
            self.data[key] = value

        return Request(work, self.chance, self.log)


class Request:
    def __init__(self, work, chance, log):
        self.work, self.log = work, log
        log.append(self)
        # What else is under way may be done now, in any order.
        for other in chance.sample(log, len(log)):
            if chance.random() < 0.3:
                other.wait()

    @property
    def done(self):
        return self.work is None

    def wait(self):
        if self.work is not None:
            work, self.work = self.work, None
            self.log.remove(self)
            work()

    def cancel(self):
        return False

    def finish(self, *, unwanted=False):
        self.wait()


def section(n):
    return (slice(n * SIZE, (n + 1) * SIZE),)


def add(blocks, factor):
    """The sum of all blocks that were loaded goes into the last one."""
    *loaded, out = blocks
    out[...] = factor * sum(loaded)


def gather(blocks):
    kept, loaded, out = blocks
    kept += loaded
    out[...] = kept


def start(blocks):
    kept, loaded, out = blocks
    kept[...] = loaded
    out[...] = -loaded


KERNELS = (add, gather, start)
#: Buffers: loads, another kind of loads, results, an accumulator.
X, Y, OUT, KEPT = range(4)


def buffers(copies):
    return (
        Buffer(SIZE, F8, copies=copies[0]),
        Buffer(SIZE, F8, copies=copies[1]),
        Buffer(SIZE, F8, copies=copies[2]),
        Buffer(SIZE, F8, kept=True),
    )


@st.composite
def schedules(draw):
    """Steps that read blocks of two arrays, some of them written before, with and without a sum."""
    blocks = WHOLE // SIZE
    last = [dict.fromkeys(range(blocks), 0), dict.fromkeys(range(blocks), 0)]
    steps = []
    for _ in range(draw(st.integers(1, 14))):
        number = len(steps)
        kind = draw(
            st.sampled_from(["sum", "copy", "in place", "gather", "start", "load kept", "reuse"])
        )
        a, b, to = (draw(st.integers(0, 1)) for _ in range(3))
        i, j, k = (draw(st.integers(0, blocks - 1)) for _ in range(3))
        shape = (SIZE,)
        if kind == "sum":
            named = (Block(X, shape), Block(Y, shape), Block(OUT, shape))
            loads = (Load(a, section(i), 0), Load(b, section(j), 1))
            more = {"kernel": 0, "arguments": (draw(st.integers(-2, 2)),)}
            step = ScheduleStep(named, loads, (Store(to, section(k), 2),), **more)
        elif kind == "copy":
            at = (slice(0, SIZE - 2),)
            part = (slice(k * SIZE, k * SIZE + SIZE - 2),)
            step = ScheduleStep(
                (Block(X, shape),), (Load(a, section(i), 0),), (Store(to, part, 0, at),)
            )
        elif kind == "in place":
            named = (Block(X, shape), Block(Y, shape))
            loads = (Load(to, section(k), 0),)
            step = ScheduleStep(named, loads, (Store(to, section(k), 1),), kernel=0, arguments=(2,))
        elif kind == "reuse" and steps and 0 in {load.block for load in steps[-1].loads}:
            # Its middle comes from the step before, its ends from the disk.
            middle = (slice(1, SIZE - 1),)
            ends = [(slice(n, n + 1),) for n in (0, SIZE - 1)]
            loads = tuple(
                Load(a, (slice(i * SIZE + e[0].start, i * SIZE + e[0].stop),), 0, e) for e in ends
            )
            named = (Block(X, shape), Block(OUT, shape))
            reuses = (Reuse(0, middle, 0, middle),)
            step = ScheduleStep(named, loads, (Store(to, section(k), 1),), 0, (3,), reuses=reuses)
        elif kind == "load kept":
            step = ScheduleStep((Block(KEPT, shape),), (Load(a, section(i), 0),))
        else:
            named = (Block(KEPT, shape), Block(X, shape), Block(OUT, shape))
            loads = (Load(a, section(i), 1),)
            from_kept = draw(st.booleans())
            store = Store(to, section(k), 0 if from_kept else 2)
            step = ScheduleStep(named, loads, (store,), kernel=1 if kind == "gather" else 2)
        wait = 0
        for load in (*step.loads, *step.stores):
            wait = max(wait, last[load.array][load.section[0].start // SIZE])
        if step.reuses and wait == number:
            continue
        step = replace(step, after=wait)
        for store in step.stores:
            last[store.array][store.section[0].start // SIZE] = number + 1
        steps.append(step)
    copies = [draw(st.integers(1, 3)) for _ in range(3)]
    if any(step.reuses for step in steps):
        copies[X] = max(copies[X], 2)
    reading, writing = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return Schedule(
        "test",
        ("a", "b"),
        buffers(copies),
        len(steps),
        steps.__getitem__,
        KERNELS,
        reading=reading,
        writing=writing,
    )


def one_by_one(schedule, arrays):
    """The oracle: each step is over before the next one begins."""
    kept, last = {}, []
    for step in map(schedule.step, range(schedule.steps)):
        blocks = []
        for block in step.blocks:
            memory = np.full(block.shape, np.nan)
            if schedule.buffers[block.buffer].kept:
                memory = kept.setdefault(block.buffer, np.zeros(block.shape))
            blocks.append(memory)
        for load in step.loads:
            blocks[load.block][load.at or ...] = arrays[load.array][load.section]
        for reuse in step.reuses:
            blocks[reuse.block][reuse.at] = last[reuse.source][reuse.source_at]
        last = [block.copy() for block in blocks]
        if step.kernel is not None:
            schedule.kernels[step.kernel](blocks, *step.arguments)
        for store in step.stores:
            arrays[store.array][store.section] = blocks[store.block][store.at or ...]


@settings(max_examples=300)
@given(schedules(), st.integers(0, 2**32))
def test_a_run_does_what_one_step_after_the_other_does(schedule, seed):
    check_schedule(schedule, [(WHOLE,), (WHOLE,)])
    expected = [np.arange(WHOLE) + 1.0, np.arange(WHOLE) * -3.0]
    found = [one.copy() for one in expected]
    one_by_one(schedule, expected)
    chance, log, stored = random.Random(seed), [], []
    arrays = [Late(data, chance, log) for data in found]
    with ScheduleRun(schedule, arrays, stored=stored.append) as run:
        run.finish()
        assert not log, "something is still under way"
    assert stored == list(range(schedule.steps))
    np.testing.assert_array_equal(expected, found)


def doubled(name, a, b, copies=2, reading=1, done=(), **words):
    """B = 2 * a, on disk."""
    cut = 1000

    def twice(blocks):
        np.multiply(blocks[0], 2, out=blocks[1])

    def make(k):
        part = (slice(k * cut, min((k + 1) * cut, a.shape[0])),)
        shape = (part[0].stop - part[0].start,)
        blocks = (Block(0, shape), Block(1, shape))
        return ScheduleStep(blocks, (Load(0, part, 0),), (Store(1, part, 1),), kernel=0)

    schedule = Schedule(
        name,
        (a.path, b.path),
        (Buffer(cut, a.dtype, copies=copies), Buffer(cut, b.dtype, copies=2)),
        -(-a.shape[0] // cut),
        make,
        (twice,),
        reading=reading,
    )
    check_schedule(schedule, [a.shape, b.shape], [1])
    return schedule, ScheduleRun(schedule, (a, b), done=done, **words)


@pytest.mark.parametrize("target", ["b.npy", "b.zarr", "b.h5::/x"])
def test_a_run_on_disk(tmp_path, target):
    data = np.arange(10_500.0)
    a = outcore.create(tmp_path / "a.npy", data=data)
    b = outcore.create(f"{tmp_path}/{target}", data.shape, "f8")
    before = _core.memory_state()[0]
    schedule, run = doubled("double", a, b, copies=3, reading=2)
    with run:
        assert _core.memory_state()[0] - before == schedule.held == 5 * 8000
        run.finish()
    assert _core.memory_state()[0] == before
    np.testing.assert_array_equal(2 * data, b[...])


@pytest.mark.parametrize(
    "words", [{}, {"order": "F"}, {"dtype": "f4"}, {"chunks": (70, 90)}], ids=str
)
def test_conversions_and_loops_pass_the_check(tmp_path, monkeypatch, words):
    carry, blocks = (
        importlib.import_module(f"outcore.{n}") for n in ("compute.jobs.carry", "arrays.blocks")
    )
    checked = []

    def run(schedule, arrays, plain=ScheduleRun, **more):
        check_schedule(schedule, [a.shape for a in arrays], range(1, len(arrays)))
        checked.append(schedule)
        return plain(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    monkeypatch.setattr(blocks, "ScheduleRun", run)
    monkeypatch.setattr(assumed_costs, "STEP_SECONDS", 0.0)
    data = np.arange(900 * 1100.0).reshape(900, 1100)
    a = outcore.create(tmp_path / "a.zarr", data=data, chunks=(200, 300))
    target = tmp_path / ("b.zarr" if "chunks" in words else "b.npy")
    outcore.convert(a, target, memory="8 MiB", **words)
    for shape, overlap in (((200, 300), 0), ((200, 300), (30, 2)), ((17, 1100), (5, 0)), (None, 2)):
        for key, block in a.blocks(shape, overlap=overlap):
            np.testing.assert_array_equal(data[key], block)
    assert len(checked) == 5
    assert checked[0].steps > 1


def test_steps_that_are_done_are_left_out(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.ones(5000))
    b = outcore.create(tmp_path / "b.npy", (5000,), "f8")
    stored = []
    with doubled("double", a, b, done={1, 3}, stored=stored.append)[1] as run:
        assert [run.advance() for _ in range(4)] == [0, 2, 4, None]
        run.finish()
    assert stored == [0, 2, 4]
    np.testing.assert_array_equal(np.repeat([2.0, 0, 2, 0, 2], 1000), b[...])


@pytest.mark.parametrize("done", [(), {0}, {0, 1, 2}, {0, 1, 3}, {0, 1, 2, 3, 4}, {4}])
def test_what_was_kept_is_made_again(done):
    """Sums of three steps each: who goes on in their midst begins where they begin."""

    def add(blocks, first):
        kept, loaded = blocks
        kept[...] = loaded if first else kept + loaded

    def make(k):
        stores = (Store(1, section(k // 3), 0),) if k % 3 == 2 else ()
        named = (Block(1, (SIZE,)), Block(0, (SIZE,)))
        first = k % 3 == 0
        return ScheduleStep(
            named, (Load(0, section(k), 1),), stores, 0, (first,), continues=not first
        )

    memory = (Buffer(SIZE, F8, copies=2), Buffer(SIZE, F8, kept=True))
    schedule = Schedule("sums", ("a", "b"), memory, 6, make, (add,))
    check_schedule(schedule, [(WHOLE,), (2 * SIZE,)], [1], again=True)
    data, chance, log = np.arange(WHOLE) + 1.0, random.Random(1), []
    result = data[: 6 * SIZE].reshape(2, 3, SIZE).sum(axis=1).ravel()
    # What was done whole is there; the rest is not.
    found = np.where(np.repeat([{0, 1, 2} <= set(done), False], SIZE), result, -1)
    stored = []
    arrays = [Late(data, chance, log), Late(found, chance, log)]
    with ScheduleRun(schedule, arrays, done=done, stored=stored.append) as run:
        run.finish()
    np.testing.assert_array_equal(result, found)
    assert stored == [k for k in range(6) if k >= 3 or not {0, 1, 2} <= set(done)]


def test_what_is_stored_by_now_gives_its_memory_to_the_next_load():
    """Nobody has to wait for the store before: the load begins beside the kernel in between."""
    begun = []

    class Watched(InMemory):
        def iread(self, key, *, out):
            begun.append(key)
            return super().iread(key, out=out)

    def make(k):
        if k == 1:
            return ScheduleStep((Block(1, (SIZE,)),), (), (), 0)
        return ScheduleStep(
            (Block(0, (SIZE,)),), (Load(0, section(k), 0),), (Store(1, section(k), 0),), 0
        )

    memory = (Buffer(SIZE, F8, kept=True), Buffer(SIZE, F8))
    schedule = Schedule("late", ("a", "b"), memory, 3, make, (lambda blocks: None,), 2, 2)
    arrays = [Watched(np.arange(3.0 * SIZE), "a"), InMemory(np.zeros(3 * SIZE), "b")]
    with ScheduleRun(schedule, arrays) as run:
        run.load()
        assert begun == [section(0)]
        run.store()
        assert begun == [section(0), section(2)]
        run.finish()


def test_axes_are_permuted_and_bytes_swapped_on_the_way(tmp_path):
    data = np.arange(60.0).reshape(3, 4, 5).astype(">f8")
    a = outcore.create(tmp_path / "a.npy", data=data)
    b = outcore.create(tmp_path / "b.npy", (5, 3, 4), "f8")
    here, there = (tuple(slice(0, n) for n in one.shape) for one in (a, b))

    def look(blocks):
        np.testing.assert_array_equal(data.transpose(1, 2, 0), blocks[0])

    step = ScheduleStep(
        (Block(0, (4, 5, 3)),),
        (Load(0, here, 0, axes=(1, 2, 0)),),
        (Store(1, there, 0, axes=(2, 0, 1)),),
        kernel=0,
    )
    schedule = Schedule("permute", ("a", "b"), (Buffer(60, F8),), 1, lambda k: step, (look,))
    check_schedule(schedule, [a.shape, b.shape], [1])
    with ScheduleRun(schedule, (a, b)) as run:
        run.finish()
    np.testing.assert_array_equal(data.transpose(2, 0, 1), b[...])
    for axes, rule in (((0, 1, 2), "does not fit"), ((0, 0, 1), "permutes no")):
        wrong = replace(step, loads=(Load(0, here, 0, axes=axes),))
        with pytest.raises(InvalidScheduleError, match=rule):
            check_schedule(replace(schedule, make=lambda k, wrong=wrong: wrong), [a.shape, b.shape])


def test_a_run_that_is_left_halfway_stops(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.ones(50_000))
    b = outcore.create(tmp_path / "b.npy", (50_000,), "f8")
    before = _core.memory_state()[0]
    with doubled("double", a, b)[1] as run:
        run.advance()
    assert _core.memory_state()[0] == before
    assert b[...].sum() in (0, 2000)


def test_blocks_are_there_as_long_as_somebody_looks_at_them(tmp_path):
    """As a debugger does with those of a run that failed."""
    a = outcore.create(tmp_path / "a.npy", data=np.ones(5000))
    b = outcore.create(tmp_path / "b.npy", (5000,), "f8")
    with doubled("double", a, b)[1] as run:
        blocks = run.load()
    assert blocks[0].sum() == 1000
    blocks[1][...] = 7


def test_a_failed_load_or_store_is_the_callers(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.ones(5000))
    b = outcore.create(tmp_path / "b.npy", (5000,), "f8")
    read_only = outcore.open(tmp_path / "b.npy")
    with (
        doubled("d", a, read_only)[1] as run,
        pytest.raises(outcore.errors.UsageError, match="mode 'r'"),
    ):
        run.finish()
    os_size = (tmp_path / "a.npy").stat().st_size
    with doubled("d", a, b)[1] as run, pytest.raises(outcore.OutcoreError):  # noqa: PT012
        run.advance()
        with open(tmp_path / "a.npy", "r+b") as file:
            file.truncate(os_size // 2)
        run.finish()


def test_memory_that_is_not_there_is_refused_at_the_beginning(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.ones(5000))
    b = outcore.create(tmp_path / "b.npy", (5000,), "f8")
    with outcore.memory(16_000), pytest.raises(outcore.BudgetError, match="of a budget of 16000"):
        doubled("double", a, b)


BLOCK = (Block(0, (SIZE,)),)
LOAD, STORE = Load(0, section(0), 0), Store(1, section(0), 0)
RULES = {
    "waits for steps below 1": [ScheduleStep(BLOCK, after=1)],
    "too large": [ScheduleStep((Block(0, (SIZE + 1,)),))],
    "two blocks in one": [ScheduleStep(BLOCK * 2)],
    "changes its shape": [
        ScheduleStep((Block(1, (2,)),)),
        ScheduleStep((Block(1, (3,)),), continues=True),
    ],
    "no kernel 1": [ScheduleStep(BLOCK, kernel=1)],
    "no section": [ScheduleStep(BLOCK, (Load(0, (slice(38, 43),), 0),))],
    "no section of b": [ScheduleStep(BLOCK, (), (Store(1, (slice(0, 5), slice(0, 5)), 0),))],
    "does not fit": [ScheduleStep(BLOCK, (Load(0, (slice(0, 4),), 0),))],
    "its place": [ScheduleStep(BLOCK, (Load(0, (slice(0, 4),), 0, (slice(2, 6),)),))],
    "overlap": [ScheduleStep(BLOCK, (), (STORE, Store(1, (slice(3, 8),), 0)))],
    "does not wait": [
        ScheduleStep(BLOCK, (LOAD,), (STORE,)),
        ScheduleStep(BLOCK, (Load(1, section(0), 0),)),
    ],
    "stores over": [ScheduleStep(BLOCK, (LOAD,), (STORE,))] * 2,
    "what is not stored": [
        ScheduleStep(BLOCK, (LOAD,), (STORE,)),
        ScheduleStep(BLOCK, (Load(1, (slice(3, 8),), 0),), after=1),
    ],
    "takes of the step before": [
        ScheduleStep(BLOCK, (LOAD,)),
        ScheduleStep(BLOCK, reuses=(Reuse(0, (slice(0, 2),), 0, (slice(0, 3),)),)),
    ],
    "one copy": [
        ScheduleStep(BLOCK, (LOAD,)),
        ScheduleStep(BLOCK, reuses=(Reuse(0, (slice(0, 2),), 0, (slice(0, 2),)),)),
    ],
    "takes from it": [
        ScheduleStep(BLOCK, (LOAD,)),
        ScheduleStep(BLOCK, reuses=(Reuse(0, (slice(0, 2),), 0, (slice(0, 2),)),), after=1),
    ],
    "does not divide": [ScheduleStep(BLOCK, (Load(0, section(0), 0, shape=(2, 4)),))],
    "never stored": [ScheduleStep(BLOCK, (LOAD,), (STORE,))],
}


def test_what_was_found_is_not_stored_over_if_steps_may_be_done_again():
    steps = [
        ScheduleStep(BLOCK, (LOAD,)),
        ScheduleStep(BLOCK, (), (Store(0, (slice(3, 8),), 0),), after=1),
    ]
    schedule = Schedule("again", ("a", "b"), (Buffer(SIZE, F8),), 2, steps.__getitem__)
    check_schedule(schedule, [(WHOLE,), (8,)])
    with pytest.raises(InvalidScheduleError, match="done again"):
        check_schedule(schedule, [(WHOLE,), (8,)], again=True)


@pytest.mark.parametrize("rule", RULES)
def test_what_breaks_a_rule_is_refused(rule):
    steps = RULES[rule]
    memory = (Buffer(SIZE, F8), Buffer(SIZE, F8, kept=True))
    schedule = Schedule("bad", ("a", "b"), memory, len(steps), steps.__getitem__, (add,))
    with pytest.raises(InvalidScheduleError, match=rule):
        check_schedule(schedule, [(WHOLE,), (WHOLE,)], [1])


def test_what_is_stored_again_is_known_by_its_last_step():
    steps = [
        ScheduleStep(BLOCK, (LOAD,), (Store(1, (slice(0, 5),), 0),)),
        ScheduleStep(BLOCK, (LOAD,), (Store(1, (slice(3, 8),), 0),), after=1),
        ScheduleStep(BLOCK, (Load(1, (slice(0, 5),), 0),), after=2),
        ScheduleStep(BLOCK, (Load(1, (slice(0, 3),), 0, (slice(0, 3),)),), after=1),
    ]
    schedule = Schedule("again", ("a", "b"), (Buffer(SIZE, F8),), 4, steps.__getitem__)
    check_schedule(schedule, [(WHOLE,), (8,)], [1])
    assert math.prod(steps[0].blocks[0].shape) == SIZE


def test_a_step_that_never_gets_memory_says_so():
    step = ScheduleStep((Block(0, (SIZE,)), Block(1, (SIZE,))), (Load(0, section(0), 0),))
    schedule = Schedule(
        "none", ("a",), (Buffer(SIZE, F8), Buffer(SIZE, F8, copies=0)), 1, lambda k: step
    )
    data = Late(np.zeros(WHOLE), random.Random(0), [])
    with pytest.raises(InvalidScheduleError, match="memory"), ScheduleRun(schedule, [data]) as run:
        run.finish()


def test_ranks_read_together_for_the_next_step_while_a_kernel_runs(tmp_path):
    """Each kernel waits for the read of the step after it, which is the caller's thread's alone."""
    data = np.arange(60.0).reshape(6, 10)
    np.save(tmp_path / "a.npy", data)
    log, begun, here = [], [threading.Event() for _ in range(7)], threading.get_ident()

    def kernel(blocks, number):
        log.append(f"kernel {number}")
        assert threading.get_ident() != here
        assert begun[min(number + 1, 5)].wait(20), "nobody reads for the next step meanwhile"
        blocks[0] *= 2
        if number == 3:
            raise ZeroDivisionError

    def make(k):
        section = (slice(k, k + 1), slice(0, 10))
        return ScheduleStep(
            (Block(0, (1, 10)),), (Load(0, section, 0),), (Store(1, section, 0),), 0, (k,)
        )

    buffer = Buffer(10, np.dtype("f8"), copies=3)
    schedule = Schedule("twice", ("a", "b"), (buffer,), 6, make, (kernel,), common=frozenset({0}))

    def together(wanted):
        ((_, section, place),) = wanted
        assert threading.get_ident() == here
        log.append(f"read {section[0].start}")
        place[...] = data[section]
        begun[section[0].start].set()

    with (
        outcore.open(tmp_path / "a.npy") as a,
        outcore.create(tmp_path / "b.npy", (6, 10), "f8") as b,
        ScheduleRun(schedule, (a, b), together=together) as run,
    ):
        for _ in range(3):
            run.advance()
        with pytest.raises(ZeroDivisionError):
            run.advance()
    found = np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(2 * data[:3], found[:3])
    assert [one for one in log if "read" in one] == [f"read {k}" for k in range(5)]
    assert [one for one in log if "kernel" in one] == [f"kernel {k}" for k in range(4)]
    for k in range(1, 4):
        assert log.index(f"kernel {k - 1}") < log.index(f"kernel {k}")
        assert log.index(f"read {k}") < log.index(f"kernel {k}")
