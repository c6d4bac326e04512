"""Loops over blocks: who begins gets through, whatever the budget and whoever else loops."""

import _thread
import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as all_done

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.formats.hdf5 import chunks as hdf5_chunks

DATA = np.arange(60 * 50, dtype="f8").reshape(60, 50)
KINDS = {
    "npy": ("a.npy", {}),
    "npy F": ("f.npy", {"order": "F"}),
    "list": ("l.raw", {"hints": {"method": "list"}}),
    "plain": ("p.zarr", {"chunks": (16, 20)}),
    "past the cache": ("c.zarr", {"chunks": (16, 20), "hints": {"cache": "bypass"}}),
    "zstd": ("z.zarr", {"chunks": (16, 20), "compression": "zstd"}),
    "shards": ("s.zarr", {"chunks": (8, 10), "shards": (16, 20), "compression": "gzip"}),
    "h5": ("a.h5::/x", {"chunks": (8, 9)}),
    "h5 gzip": ("g.h5::/x", {"chunks": (16, 20), "compression": "gzip"}),
}
HOW = (
    {},
    {"axis": 1},
    {"overlap": 7},
    {"shape": (9, None)},
    {"shape": (13, 17), "overlap": (2, 3)},
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks")
    arrays = {}
    for kind, (name, options) in KINDS.items():
        arrays[kind] = outcore.create(f"{folder}/{name}", data=DATA, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hdf5_chunks, "QUIET", 0.03)
        time.sleep(0.05)  # a table of a file that changes is read again each time
        for a in arrays.values():
            list(a.blocks())  # HDF5's table of chunks is held from now on
    yield arrays
    for a in arrays.values():
        a.close()


def walk(blocks):
    """All blocks of a loop: each element seen, and right."""
    seen = np.zeros(DATA.shape, bool)
    for key, block in blocks:
        np.testing.assert_array_equal(DATA[key], block)
        block[...] = -1
        seen[key] = True
    assert seen.all()


def attempt(work):
    """What `work` returns, and its refusal."""
    try:
        return work(), None
    except outcore.BudgetError as error:
        refused = error
    return None, refused


def begins(limit, a, how):
    """The loop, walked through; or the budget that it names when it is refused at the start."""
    with outcore.memory(limit):
        before = _core.memory_state()[0]
        blocks, refused = attempt(lambda: a.blocks(**how))
        if refused:
            assert refused.code == "block-too-large"
            assert _core.memory_state()[0] == before
            return refused.needed
        _core.reset_memory_peak()
        walk(blocks)
        assert _core.memory_state()[0] == before
        assert _core.memory_state()[2] <= limit
        return None


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_names_the_least_that_does_and_all_above_does(made, kind, how):
    a = made[kind]
    named = begins(4096, a, how)
    assert named is not None
    for less in (5000, named // 2, named - 4096, named - 9, named - 1):
        assert begins(max(less, 4096), a, how) == named
    for more in (0, 1, 100, 4095, 4096, 5000, 10_000, 33_333, named, 9 * named):
        assert begins(named + more, a, how) is None


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_loop_that_begins_gets_through(made, data):
    a = made[data.draw(st.sampled_from(sorted(KINDS)))]
    shape = tuple(data.draw(st.integers(1, n + 3)) for n in DATA.shape)
    overlap = tuple(
        data.draw(st.integers(0, max(min(s, n) - 1, 0)))
        for s, n in zip(shape, DATA.shape, strict=True)
    )
    how = data.draw(
        st.sampled_from(
            [
                {"shape": shape, "overlap": overlap},
                {"axis": data.draw(st.integers(-2, 1)), "overlap": overlap[0]},
                {"axis": 0, "overlap": overlap},
            ]
        )
    )
    if np.prod([n / (s - o) for n, s, o in zip(DATA.shape, shape, overlap, strict=True)]) > 200:
        how.pop("shape", None)
    limit = data.draw(st.integers(1, 400_000))
    named = begins(limit, a, how)
    if named is not None:
        assert named > limit
        assert begins(named, a, how) is None


def test_one_hint_bounds_the_blocks_and_what_reads_them(made, tmp_path):
    with outcore.open(made["zstd"].path, hints={"memory": 10_000}) as a:
        with pytest.raises(outcore.BudgetError, match="Hints") as caught:
            a.blocks(shape=(20, 20))
        hint = caught.value.needed
    with outcore.open(made["zstd"].path, hints={"memory": hint}) as a:
        walk(a.blocks(shape=(20, 20)))


def test_elements_larger_than_a_page(tmp_path):
    data = np.arange(7 * 9000, dtype="u1").reshape(7, 9000).view("V9000")[:, 0]
    for name, options in (("a.npy", {}), ("a.zarr", {"chunks": (3,)})):
        with outcore.create(tmp_path / name, data=data, **options) as a:
            with outcore.memory(4096), pytest.raises(outcore.BudgetError) as caught:
                a.blocks()
            with outcore.memory(caught.value.needed):
                assert b"".join(b.tobytes() for _, b in a.blocks()) == data.tobytes()
    del a
    gc.collect()  # with a fill value that is large enough to count


def test_a_table_that_does_not_fit_is_a_refusal_that_names_what_does(made, tmp_path):
    outcore.create(f"{tmp_path}/a.h5::/x", data=DATA, chunks=(1, 2)).close()
    with outcore.open(f"{tmp_path}/a.h5") as a, outcore.memory(30_000):
        _, refused = attempt(a.blocks)
        assert 64 * 1500 < refused.needed < 64 * 1500 + 40_000
        with outcore.memory(refused.needed):
            walk(a.blocks())
        assert attempt(a.blocks)[1].needed <= refused.needed


# Several loops at once


@pytest.mark.parametrize("extra", [0, 20_000, 300_000])
def test_many_threads_loop_under_a_tight_budget(made, extra):
    """All of them end: some wait until others have ended, some take thinner slabs."""
    gc.collect()  # closed arrays of other tests
    kinds = [k for k in KINDS if k != "npy F"]
    jobs = [
        (made[kind], how) for kind in kinds for how in ({}, {"shape": (20, None)}) for _ in "ab"
    ]
    with outcore.memory(4096):
        needed = max(begins(4096, a, how) for a, how in jobs)

    with outcore.memory(needed + extra), ThreadPoolExecutor(len(jobs)) as pool:
        before = _core.memory_state()[0]
        _core.reset_memory_peak()
        loops = [pool.submit(lambda job: walk(job[0].blocks(**job[1])), job) for job in jobs]
        done, rest = all_done(loops, timeout=120)
        assert not rest
        for loop in done:
            loop.result()
        assert _core.memory_state()[0] == before
        assert _core.memory_state()[2] <= needed + extra


def test_a_loop_waits_its_turn_and_those_that_come_later_wait_behind_it(made):
    a, order = made["npy"], []
    with outcore.memory(45_000):
        first = a.blocks(shape=(40, None))
        next(first)

        def loop(name):
            for _ in a.blocks(shape=(40, None)):
                pass
            order.append(name)

        threads = []
        for name in ("second", "third"):
            threads.append(threading.Thread(target=loop, args=(name,)))
            threads[-1].start()
            time.sleep(0.3)
        assert not order
        first.close()
        for thread in threads:
            thread.join(30)
    assert order == ["second", "third"]


def test_a_smaller_loop_begins_beside_a_large_one(made):
    a = made["plain"]
    with outcore.memory(60_000):
        outer = a.blocks()
        key, _ = next(outer)
        walk(a.blocks())
        rest = [key, *(key for key, _ in outer)]
    assert rest[0][0].start == 0
    assert rest[-1][0].stop == 60


@pytest.mark.parametrize("kind", KINDS)
def test_nested_loops_are_refused_or_get_through_and_the_outer_one_goes_on(made, kind):
    a, b = made[kind], made["zstd"]
    with outcore.memory(4096):
        inner, outer = (
            begins(4096, b, {"shape": (30, None)}),
            begins(4096, a, {"shape": (20, None)}),
        )
    results = set()
    for limit in (max(inner, outer), max(inner, outer) + 9_000, inner + outer, 2 * (inner + outer)):
        with outcore.memory(limit):
            seen = 0
            for key, block in a.blocks(shape=(20, None)):
                blocks, refused = attempt(lambda: b.blocks(shape=(30, None)))
                if refused:
                    assert "this thread" in str(refused)
                    assert limit < refused.needed <= inner + outer
                else:
                    walk(blocks)
                results.add(bool(refused))
                np.testing.assert_array_equal(DATA[key], block)
                seen += block.size
            assert seen == DATA.size
    assert results == {True, False}


def test_memory_held_for_long_leaves_what_loops_were_promised(made):
    a = made["zstd"]
    with outcore.memory("1 MiB"):
        loop = a.blocks(shape=(10, None))
        free = _core.memory_state()[1]
        with pytest.raises(outcore.BudgetError):
            _core.Reservation("convert", free)
        held = None
        for taken in range(free, 0, -4096):
            try:
                held = _core.Reservation("convert", taken)
                break
            except outcore.BudgetError:
                pass
        walk(loop)
        held.release()


@pytest.mark.parametrize("end", ["dropped", "closed", "never begun", "thread"])
def test_a_loop_that_is_left_gives_its_memory_back(made, end):
    a = made["zstd"]
    before = _core.memory_state()[0]
    blocks = a.blocks(shape=(10, None))
    assert _core.memory_state()[0] > before
    if end == "never begun":
        del blocks
    else:
        next(blocks)
        if end == "closed":
            blocks.close()
        elif end == "thread":
            thread = threading.Thread(target=blocks.close)
            thread.start()
            thread.join()
        else:
            del blocks
    gc.collect()
    assert _core.memory_state()[0] == before


def test_a_loop_whose_body_fails_gives_its_memory_back(made):
    before = _core.memory_state()[0]

    def body():
        for _, block in made["plain"].blocks(shape=(10, None)):
            block.reshape(3, 3)

    with pytest.raises(ValueError, match="reshape"):
        body()
    gc.collect()
    assert _core.memory_state()[0] == before


def test_a_loop_that_another_thread_goes_on_with_is_that_threads(made):
    """Who works with the blocks must not wait for the end of the loop."""
    a, raised = made["npy"], []
    with outcore.memory(45_000):
        loop = a.blocks(shape=(30, None))

        def work():
            for _ in loop:
                try:
                    a.blocks(shape=(30, None))
                except outcore.BudgetError as error:
                    raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    assert len(raised) == 2


def test_a_wait_for_other_loops_ends_with_ctrl_c(made):
    a, ready, stop = made["npy"], threading.Event(), threading.Event()

    def hold():
        loop = a.blocks(shape=(40, None))
        next(loop)
        ready.set()
        while not stop.wait(0.01):
            pass
        loop.close()

    with outcore.memory(45_000):
        other = threading.Thread(target=hold)
        other.start()
        ready.wait()
        killer = threading.Timer(0.5, _thread.interrupt_main)
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            a.blocks(shape=(40, None))
        killer.join()
        stop.set()
        other.join()
        walk(a.blocks(shape=(40, None)))


@pytest.fixture
def impatient():
    """Who waits for loops that stand still gives up after half a second, not after a minute."""
    _core.wait_for_loops(0.5)
    yield
    _core.wait_for_loops(60)


@pytest.mark.parametrize("goes_on", [False, True], ids=["stands", "goes on"])
def test_a_wait_for_loops_that_stand_still_ends_with_a_refusal(made, impatient, goes_on):
    a, ready, stop = made["npy"], threading.Event(), threading.Event()

    def hold():
        loop = a.blocks(shape=(40, None))
        next(loop)
        ready.set()
        if goes_on:
            time.sleep(0.35)
            next(loop)
        stop.wait(30)
        loop.close()

    with outcore.memory(45_000):
        other = threading.Thread(target=hold)
        other.start()
        try:
            ready.wait()
            started = time.monotonic()
            with pytest.raises(outcore.BudgetError, match="make no progress") as refused:
                a.blocks(shape=(40, None))
            waited = time.monotonic() - started
        finally:
            stop.set()
            other.join()
        assert refused.value.code == "block-too-large"
        # From the last sign of life on.
        assert (0.8 if goes_on else 0.45) < waited < 20
        walk(a.blocks(shape=(40, None)))


def test_a_forked_child_has_its_own_loops(made):
    a = made["zstd"]
    with outcore.memory(200_000):
        loop = a.blocks(shape=(10, None))
        next(loop)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(20)
                outcore.memory(200_000)
                walk(a.blocks(shape=(10, None)))
                loop.close()  # the parent's memory is no business of ours
                walk(a.blocks(shape=(10, None)))
                code = 0 if _core.memory_state()[0] == 0 else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        held = _core.memory_state()[0]
        loop.close()
        assert _core.memory_state()[0] < held


# Copies are loops


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", ["npy", "zstd", "h5 gzip"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_copy_that_begins_gets_through(made, tmp_path, source, target, dtype):
    a = made[source]
    name, options = KINDS[target]
    limit, tries = 4096, 0
    with outcore.create(f"{tmp_path}/{name}", DATA.shape, dtype, **options) as b:
        while True:
            with outcore.memory(limit):
                _, refused = attempt(lambda: b.write(..., a))
            if not refused:
                break
            assert refused.needed > limit
            limit, tries = refused.needed, tries + 1
        assert tries <= 2
        np.testing.assert_array_equal(DATA.astype(dtype), b[...])
