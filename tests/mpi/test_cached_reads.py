"""What every rank can read out of the page cache takes one gathering; nobody plans for anybody."""

import threading
import time
import tracemalloc

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.errors import CollectiveError
from outcore.ranks.collective import CollectiveArray, call, explain
from ranks import UNDER_MPI, once, ranks

FILES, SHAPE = 30, (24, 40)


def made(t, folder, mode="r", **hints):
    if t.rank == 0:
        for k in range(FILES):
            outcore.create(folder / f"{k}.npy", data=k + np.arange(960.0).reshape(SHAPE)).close()
    t.barrier()
    return [outcore.open(folder / f"{k}.npy", mode, comm=t, hints=hints) for k in range(FILES)]


def expected(k, key):
    return (k + np.arange(960.0).reshape(SHAPE))[key]


@ranks(1, 2, 4, per_node=(None, 1))
@pytest.mark.parametrize("method", ["auto", "direct", "sieve"])
def test_one_gathering_and_no_more(world, folder, steps, method):
    def body(t):
        arrays = made(t, folder)
        key = np.s_[t.rank :: t.size, ::-2]
        # Ranks that may have written since they synchronised do not read early.
        arrays[0].read_all(np.s_[:1], method=method)
        t.barrier()
        steps[t.rank] = []
        one = arrays[3].read_all(key, method=method)
        first, steps[t.rank] = steps[t.rank], []
        out = np.empty_like(one)
        given = [(a, key, out) if k == 5 else (a, key) for k, a in enumerate(arrays)]
        many = outcore.mpi.read_all([*given, (arrays[0], (1, 2))], method=method)
        second = list(steps[t.rank])
        t.barrier()
        np.testing.assert_array_equal(one, expected(3, key))
        for k, got in enumerate(many[:-1]):
            np.testing.assert_array_equal(got, expected(k, key))
        assert many[5] is out and many[-1] == expected(0, (1, 2)) and many[-1].shape == ()
        return first, second

    for told in world.run(body):
        assert told == (["allgather"], ["allgather"])


@ranks(1, 2, 4)
def test_a_cached_section_takes_one_call_into_the_core(
    world, folder, steps, core_calls, monkeypatch
):
    """Where a read takes half a millisecond, what is prepared for nobody counts."""
    whole = []
    plain = outcore._core.record
    monkeypatch.setattr(
        outcore._core, "record", lambda *words: whole.append(words) or plain(*words)
    )

    def body(t):
        array = made(t, folder)[0]
        array.read_all(np.s_[:1])
        t.barrier()
        core_calls[threading.get_ident()] = []
        whole.clear()
        t.barrier()
        steps[t.rank] = []
        out = np.empty((3, 40))
        for key in (np.s_[3:6], np.s_[:3]):
            assert array.read_all(key, out=out) is out
            np.testing.assert_array_equal(out, expected(0, key))
        told = list(steps[t.rank])
        t.barrier()
        assert told == ["allgather"] * 2 and core_calls[threading.get_ident()] == [1] * 2
        assert not whole

    world.run(body)


@ranks(2, 3, 4)
def test_early_reads_are_repeated_if_another_rank_needs_a_plan(world, folder, steps, slow_disk):
    """Into the same memory; all by one plan, which takes whole records."""

    def body(t):
        array = made(t, folder)[0]
        array.read_all(np.s_[:1])
        if t.rank == 0:
            array.close()
            array = outcore.open(folder / "0.npy", hints={"cache": "bypass"})
        out = np.full((24, 1), -1.0)
        t.barrier()
        late = CollectiveArray(array.info, "r", array.hints, {}, t) if t.rank == 0 else array
        steps[t.rank] = []
        assert late.read_all(np.s_[:, t.rank : t.rank + 1], out=out) is out
        told = list(steps[t.rank])
        t.barrier()
        np.testing.assert_array_equal(out, expected(0, np.s_[:, t.rank : t.rank + 1]))
        assert told[:2] == ["allgather"] * 2
        new = late.read_all(np.s_[t.rank])
        np.testing.assert_array_equal(new, expected(0, t.rank))
        # In step again.
        assert late.read_all((1, 2)) == expected(0, (1, 2))

    world.run(body)


@ranks(2, 3, 4, per_node=(None, 1))
def test_some_have_it_cached_and_some_have_not(world, folder):
    def body(t):
        # Past the page cache nothing is cached.
        arrays = made(t, folder, **({"cache": "bypass"} if t.rank % 2 else {}))
        key = np.s_[t.rank :: t.size]
        one = arrays[7].read_all(key)
        many = outcore.mpi.read_all([(a, key) for a in arrays[t.rank :]])
        np.testing.assert_array_equal(one, expected(7, key))
        for k, got in enumerate(many, start=t.rank):
            np.testing.assert_array_equal(got, expected(k, key))

    world.run(body)


@ranks(2, 4)
def test_different_calls_raise_even_if_all_is_cached(world, folder):
    def body(t):
        arrays = made(t, folder)
        last = t.rank == t.size - 1
        with pytest.raises(CollectiveError, match="another array than rank 0") as caught:
            arrays[int(last)].read_all(np.s_[:2])
        assert caught.value.ranks == (t.size - 1,)
        for requests in ([(arrays[0], np.s_[:2])], [(a, ...) for a in arrays]):
            with pytest.raises(CollectiveError, match="passed method='auto'"):
                outcore.mpi.read_all(requests, method="direct" if last else "auto")
        with pytest.raises(CollectiveError) as caught:
            outcore.mpi.read_all([(arrays[0], np.s_[:2]), (arrays[1], 99 if last else 1)])
        assert caught.value.ranks == (t.size - 1,)
        # In step again.
        np.testing.assert_array_equal(arrays[2].read_all(np.s_[1]), expected(2, 1))

    world.run(body)


@ranks(2, 4, per_node=(None, 1))
@pytest.mark.parametrize("method", ["auto", "direct", "two-phase"])
def test_reads_see_writes_made_before_the_call(world, folder, method):
    """Also if the others have long come, and have all they want cached."""

    def body(t):
        arrays = made(t, folder, "r+")
        for turn in range(1, 4):
            arrays[0].read_all(method=method)
            outcore.mpi.read_all([(a, ...) for a in arrays], method=method)
            writer = turn % t.size
            if t.rank == writer:
                time.sleep(0.1)
                arrays[0][3] = -turn
                arrays[9][3] = -turn
            one = arrays[0].read_all(method=method)
            many = outcore.mpi.read_all([(a, ...) for a in arrays], method=method)
            assert (one[3] == -turn).all() and (many[9][3] == -turn).all()

    world.run(body)


@pytest.fixture
def core_calls(monkeypatch):
    """Of how many arrays each call into the core read, by thread (simulated ranks are threads)."""
    seen = {}

    def counted(plain):
        def call(requests, *more, **words):
            seen.setdefault(threading.get_ident(), []).append(len(requests))
            return plain(requests, *more, **words)

        return call

    for name in ("read_early", "read_many"):
        monkeypatch.setattr(_core, name, counted(getattr(_core, name)))
    return seen


@ranks(1, 2, 4)
@pytest.mark.parametrize("method", ["auto", "direct"])
def test_one_call_into_the_core_for_all_arrays(world, folder, core_calls, method):
    def body(t):
        arrays = made(t, folder)
        arrays[0].read_all(np.s_[:1], method=method)
        t.barrier()
        core_calls[threading.get_ident()] = []
        many = outcore.mpi.read_all([(a, np.s_[t.rank :: t.size]) for a in arrays], method=method)
        t.barrier()
        for k, got in enumerate(many):
            np.testing.assert_array_equal(got, expected(k, np.s_[t.rank :: t.size]))
        assert core_calls[threading.get_ident()] == [FILES]

    world.run(body)


@ranks(1)
def test_arrays_without_ranks_take_one_call_too(world, folder, core_calls):
    def body(t):
        made(t, folder)
        arrays = [outcore.open(folder / f"{k}.npy") for k in range(FILES)]
        many = outcore.mpi.read_all([(a, ...) for a in arrays])
        for k, got in enumerate(many):
            np.testing.assert_array_equal(got, expected(k, ...))
        assert core_calls[threading.get_ident()] == [FILES]

    world.run(body)


@ranks(1, 2)
def test_later_requests_overwrite_shared_memory(world, folder):
    """Into memory that several requests share, also where small cold sections go side by side."""

    def body(t):
        arrays = made(t, folder, cache="bypass")
        out = np.full(SHAPE, -1.0)
        outcore.mpi.read_all([(a, ..., out) for a in arrays], method="direct")
        np.testing.assert_array_equal(out, expected(FILES - 1, ...))
        # Rows of one array, the last of each pair over the first.
        pairs = [(a, k % 24, out[k // 2 % 24]) for k, a in enumerate(arrays)]
        outcore.mpi.read_all(pairs, method="direct")
        for k in range(1, FILES, 2):
            np.testing.assert_array_equal(out[k // 2], expected(k, k % 24))

    world.run(body)


@ranks(2, 4)
def test_the_first_failure_of_many_is_told_with_its_array(world, folder):
    def body(t):
        arrays = made(t, folder, cache="bypass")
        t.barrier()
        if t.rank == 0:
            with open(folder / "11.npy", "r+b") as file:
                file.truncate(1000)
        t.barrier()
        out = [np.empty(SHAPE) for _ in arrays]
        for method in ("direct", "auto"):
            with pytest.raises(CollectiveError) as caught:
                outcore.mpi.read_all(
                    list(zip(arrays, [...] * FILES, out, strict=True)), method=method
                )
            assert "11.npy" in str(caught.value)

    world.run(body)


@ranks(2, 4)
def test_a_result_that_was_read_early_is_made_once(world, folder):
    """Rank 0 has all cached, the others have not: its arrays are those it gets."""
    files, data = 4, np.arange(1 << 18, dtype="f8").reshape(512, 512)

    def body(t):
        once(t, lambda: [np.save(folder / f"{k}.npy", data) for k in range(files)])
        hints = {"cache": "bypass"} if t.rank else {}
        arrays = [outcore.open(folder / f"{k}.npy", comm=t, hints=hints) for k in range(files)]
        wanted = [(a, ...) for a in arrays] if t.rank == 0 else [(a, np.s_[:1]) for a in arrays]
        wanted.append((arrays[0], (1, 2)))
        outcore.mpi.read_all(wanted)  # what is made once in a process
        once(t, tracemalloc.start)
        got = outcore.mpi.read_all(wanted)
        t.barrier()
        peak = tracemalloc.get_traced_memory()[1]
        once(t, tracemalloc.stop)
        for one in got[:-1]:
            np.testing.assert_array_equal(data[: len(one)], one)
        assert got[-1] == data[1, 2]
        return peak

    peak = world.run(body)[0]
    if not UNDER_MPI or peak:
        assert files * data.nbytes <= peak < (files + 1) * data.nbytes


@ranks(2, 4, per_node=(None, 1))
def test_small_sections_are_read_before_a_plan_is_made(world, folder, steps, monkeypatch):
    """Also from the disk: two-phase could save less than to plan it and to exchange takes."""
    # However many ranks there are, and however few share a processor.
    plain = _core.read_early

    def dear(requests, *more, oversubscription, **words):
        times = 20 if len({id(request[0]) for request in requests}) > 1 else 1
        sharing = 1000 * max(words["ranks"] // 2, 1)
        return plain(requests, *more, oversubscription=times * sharing, **words)

    monkeypatch.setattr(_core, "read_early", dear)
    for module in (call, explain):
        monkeypatch.setattr(module, "compute_oversubscription", lambda _group: 20_000)

    def body(t):
        arrays = made(t, folder, cache="bypass")
        key = np.s_[t.rank :: t.size]
        wanted = [(a, key) for a in arrays]
        # Ranks that may have written since they synchronised do not read early.
        outcore.mpi.read_all(wanted)
        t.barrier()
        steps[t.rank] = []
        many = outcore.mpi.read_all(wanted)
        first, steps[t.rank] = steps[t.rank], []
        outcore.mpi.read_all(wanted[:1] * FILES)
        second, steps[t.rank] = steps[t.rank], []
        one = arrays[0].read_all(key)
        third, steps[t.rank] = steps[t.rank], []
        arrays[0].read_all((t.rank, 0))
        fourth = list(steps[t.rank])
        reports = outcore.mpi.explain_all(wanted), arrays[0].explain_all(key)
        t.barrier()
        for k, got in enumerate(many):
            np.testing.assert_array_equal(got, expected(k, key))
        np.testing.assert_array_equal(one, expected(0, key))
        return first, len(second), third, fourth, {(r.method, r.why) for r in reports}

    for first, second, third, fourth, told in world.run(body):
        assert first == third == fourth == ["allgather"]
        assert second > 1, "many sections of one array are planned"
        assert told == {("direct", "planning such a small access takes longer than reading it")}


@ranks(2, 4)
def test_many_small_sections_are_planned_where_requests_are_dear(world, folder, steps, slow_disk):
    def body(t):
        wanted = [(a, np.s_[t.rank :: t.size]) for a in made(t, folder, cache="bypass")]
        outcore.mpi.read_all(wanted)
        t.barrier()
        steps[t.rank] = []
        outcore.mpi.read_all(wanted)
        told = list(steps[t.rank])
        report = outcore.mpi.explain_all(wanted)
        return len(told), report.method

    for told, method in world.run(body):
        assert told > 1 and method == "two-phase"
