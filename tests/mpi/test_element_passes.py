"""Index lists larger than memory, of some ranks or all: the bits of NumPy, whatever the budgets."""

import contextlib
import gc
import threading

import numpy as np
import pytest

import outcore
from outcore.arrays.indices.schedule import COMBINES
from outcore.ranks.collective.lists.passes import ElementPasses
from ranks import UNDER_MPI, once, ranks

FORMATS = {
    "npy": ("a.npy", {}),
    "zstd": ("a.zarr", {"chunks": (50, 4), "compression": "zstd"}),
    "shards": ("b.zarr", {"chunks": (25, 4), "shards": (50, 8), "compression": "zstd"}),
    "gzip": ("a.h5::/x", {"chunks": (50, 4), "compression": "gzip"}),
}
SHAPE = (1000, 8)
DATA = np.random.default_rng(7).standard_normal(SHAPE)
MIB = 1 << 20
NUMBER = 60_000  # indices of all ranks: half of them do not fit 1 MiB
ALL = np.random.default_rng(8).integers(-SHAPE[0], SHAPE[0], NUMBER)
ALL[20_000:35_000] = 3  # one element with more values than fit
VALUES = np.random.default_rng(9).standard_normal(NUMBER) * 10.0 ** (ALL % 17 - 8)


@contextlib.contextmanager
def budgets(t, each):
    """
    Each rank has so many bytes: the hints for its arrays.

    Simulated ranks share the memory of a process: `run` gives that what they have together, twice,
    because accesses of threads at the same time do not know of each other.
    """
    if UNDER_MPI:
        with outcore.memory(each):
            yield {"memory": each}
    else:
        yield {"memory": each}


def run(world, body, most):
    gc.collect()  # schedules that failures refer to hold memory
    if UNDER_MPI:
        world.run(body)
        return
    with outcore.memory(most * world.size * (2 if world.size > 1 else 1)):
        world.run(body)


def made(t, folder, name, data=DATA):
    path, options = FORMATS[name]
    path = str(folder / path)
    if t.rank == 0:
        outcore.create(path, data=data, **options).close()
    t.barrier()
    return path


def part(t, number=NUMBER):
    """Half of a list for the first rank, so that it does not fit whatever the number of ranks."""
    cuts = [0, *(number // 2 + number // 2 * k // max(t.size - 1, 1) for k in range(t.size))]
    cuts[-1] = number
    return slice(cuts[t.rank], cuts[t.rank + 1])


def combined(combine, key, values, data=DATA):
    expected = data.copy()
    if combine == "last":
        expected[key] = values
    else:
        COMBINES[combine].at(expected, key, values)
    return expected


def same(t, a, expected):
    t.barrier()
    assert expected.tobytes() == a[...].tobytes()
    t.barrier()


def moved_with_all_combines(t, folder, name, budget, combines):
    path = made(t, folder, name)
    expected, mine = DATA, part(t)
    with (
        budgets(t, budget * MIB) as hints,
        outcore.open(path, "r+", comm=t, hints=hints) as a,
    ):
        schedule = a.schedule_all(np.s_[ALL[mine], 2::3])
        if budget != 2:
            assert schedule.on_disk == (budget == 1)
        for combine in combines:
            values = VALUES[:, None] * [1.0, -1.0]
            if combine == "multiply":
                values = 1 + 1e-3 * np.sin(values)
            schedule.scatter_all(values[mine], combine)
            expected = combined(combine, np.s_[ALL, 2::3], values, expected)
            same(t, a, expected)
        got = schedule.gather_all(method="collective")
        assert np.array_equal(expected[ALL[mine], 2::3], got)
        t.barrier()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("budget", [1, 2, 64])
@ranks(3)
def test_bits_do_not_depend_on_budgets_and_formats(world, folder, name, budget):
    def body(t):
        moved_with_all_combines(t, folder, name, budget, ("last", *COMBINES))

    run(world, body, budget * MIB)


@pytest.mark.parametrize("name", ["npy", "zstd"])
@pytest.mark.simulated
@ranks(1, 2, 5, 8, per_node=(None, 4))
def test_bits_do_not_depend_on_the_number_of_ranks(world, folder, name):
    def body(t):
        moved_with_all_combines(t, folder, name, 1, ("last", "add"))

    run(world, body, MIB)


@ranks(3)
def test_byte_order_in_many_passes(world, folder):
    """Elements that stay while their values come, too (more values than fit name one of them)."""
    pair = np.dtype([("a", ">f8"), ("b", "<f4"), ("c", ">i4")], align=True)

    def body(t):
        mine = part(t)
        for dtype, combines in ((np.dtype(">f8"), ("last", "add")), (pair, ("last",))):
            old, new = np.zeros(SHAPE[0], dtype), np.zeros(NUMBER, dtype)
            for name in dtype.names or (...,):
                old[name], new[name] = DATA[:, 0] * 100, VALUES % 1000
            path = folder / f"{dtype.itemsize}.npy"
            once(t, lambda path=path, old=old: np.save(path, old))
            with (
                budgets(t, MIB) as hints,
                outcore.open(path, "r+", comm=t, hints=hints) as a,
            ):
                schedule = a.schedule_all(ALL[mine])
                assert schedule.on_disk
                for combine in combines:
                    schedule.scatter_all(new[mine], combine)
                    old = combined(combine, ALL, new, old)
                    t.barrier()
                    assert np.array_equal(old, a[...]), (dtype, combine)
                    t.barrier()
                assert np.array_equal(old[ALL[mine]], schedule.gather_all()), dtype

    run(world, body, MIB)


@ranks(2, 4, per_node=(None, 2))
def test_ranks_of_differing_budgets_and_lists(world, folder):
    """Some have more indices than memory, some none, all the same element, or another kind of key."""

    def body(t):
        path = made(t, folder, "zstd")
        lists = [ALL, np.full(40_000, 5), np.zeros(0, np.int64), ALL[:7]]
        mine = lists[t.rank % 4]
        columns = [(lists[r % 4] * 7) % 8 for r in range(t.size)]
        expected = DATA.copy()
        each = [np.arange(lists[r % 4].size) * 0.37 + r for r in range(t.size)]
        for r in range(t.size):
            np.add.at(expected, (lists[r % 4], columns[r]), each[r])
        with (
            budgets(t, (1 + 3 * (t.rank % 2)) * MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            schedule = a.schedule_all((mine, columns[t.rank]), io_ranks=2)
            assert schedule.on_disk
            schedule.scatter_all(each[t.rank], "add")
            same(t, a, expected)
            for method in ("collective", "pipelined", "direct", "auto"):
                got = schedule.gather_all(method=method)
                assert np.array_equal(expected[mine, columns[t.rank]], got)

    run(world, body, 4 * MIB)


@ranks(1, 3)
def test_lists_masks_values_and_results_on_disk(world, folder):
    def body(t):
        path, mine = made(t, folder, "gzip"), part(t)
        own = folder / f"own-{t.rank}"
        own.mkdir()
        listed = outcore.create(str(own / "list.zarr"), data=ALL[mine], chunks=(1000,))
        values = VALUES[mine, None] * np.arange(8)
        given = outcore.create(str(own / "values.npy"), data=values.astype("f4"))
        out = outcore.create(str(own / "out.npy"), values.shape, "f8")
        every = (VALUES[:, None] * np.arange(8)).astype("f4").astype("f8")
        expected = combined("add", ALL, every)
        with (
            budgets(t, MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            # One call each, as values and results on disk of `a[...]`.
            schedule = a.schedule_all(listed)
            schedule.scatter_all(given, "add")
            same(t, a, expected)
            assert schedule.gather_all(out, method="collective") is out
            assert np.array_equal(expected[ALL[mine]], out[...])
            a.write_all(listed, given)
            expected = combined("last", ALL, every, expected)
            same(t, a, expected)
            a.read_all(listed, out=out)
            assert np.array_equal(expected[ALL[mine]], out[...])
            t.barrier()
            # A list that fits, and results on disk on some ranks only.
            few = a.schedule_all(np.arange(t.rank, 1000, t.size))
            assert not few.on_disk
            into = None
            if t.rank == 0:
                into = outcore.create(str(own / "few.npy"), few.shape, "f8")
            got = few.gather_all(into, method="collective")
            assert np.array_equal(expected[t.rank :: t.size], got[...])
            few.scatter_all(0.0 if t.rank else into, "min")
            t.barrier()

    run(world, body, MIB)


@ranks(1, 2, 3)
def test_a_mask_larger_than_memory(world, folder):
    shape = (600, 1000)
    data = np.random.default_rng(1).standard_normal(shape)

    def body(t):
        path = made(t, folder, "npy", data)
        mask = np.zeros(shape, np.bool)
        mask[:: t.rank + 1] = data[:: t.rank + 1] > 0
        kept = outcore.create(str(folder / f"mask-{t.rank}.zarr"), data=mask, chunks=(60, 100))
        expected = data.copy()
        for rank in range(t.size):
            rows = expected[:: rank + 1]
            rows[data[:: rank + 1] > 0] += 1.0 + rank
        with (
            budgets(t, MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            schedule = a.schedule_all(kept)
            assert schedule.on_disk
            assert np.array_equal(data[mask], schedule.gather_all(method="collective"))
            t.barrier()
            schedule.scatter_all(1.0 + t.rank, "add")
            same(t, a, expected)

    run(world, body, MIB)


@pytest.mark.parametrize("name", ["npy", "zstd"])
@ranks(1, 3, most=5)
def test_elements_that_nobody_writes_are_filled(world, folder, name):
    def body(t):
        path = made(t, folder, name)
        mine = np.repeat(np.arange(t.rank, 500, 2 * t.size), 400)
        for fill, combine in ((-5.0, "last"), (2.0, "add"), (None, "last")):
            expected = DATA.copy()
            written = np.zeros(1000, np.bool)
            for rank in range(t.size):
                written[rank : 500 : 2 * t.size] = True
            if combine == "add":
                for _ in range(400):
                    expected[written] += 7.0
            else:
                expected[written] = 7.0
            if fill is not None:
                expected[~written] = fill
            with (
                budgets(t, MIB) as hints,
                outcore.open(path, "r+", comm=t, hints=hints) as a,
            ):
                a.schedule_all(np.arange(t.rank, 1000, t.size)).scatter_all(DATA[t.rank :: t.size])
                schedule = a.schedule_all(mine)
                assert schedule.on_disk
                schedule.scatter_all(7.0, combine, fill=fill)
                same(t, a, expected)

    run(world, body, MIB)


@ranks(2, 3)
def test_a_bad_index_is_told_on_all_ranks_and_nothing_is_written(world, folder):
    def body(t):
        path = made(t, folder, "zstd")
        mine = ALL.copy()
        if t.rank == 1:
            mine[31_234] = 1000
        with (
            budgets(t, MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            with pytest.raises(
                outcore.errors.CollectiveError, match=r"rank 1.*index 1000 at position 31234"
            ):
                a.schedule_all(mine)
            with pytest.raises(outcore.errors.CollectiveError, match=r"rank 1.*1000.*31234"):
                a.write_all(mine, 0.0)
            schedule = a.schedule_all(ALL)
            with pytest.raises(outcore.errors.CollectiveError, match="rank 1"):
                schedule.scatter_all(np.zeros((2, 3) if t.rank == 1 else ()))
            with pytest.raises(outcore.errors.CollectiveError, match="rank 1"):
                schedule.gather_all(np.empty(3) if t.rank == 1 else None)
            same(t, a, DATA)
            assert np.array_equal(DATA[ALL], schedule.gather_all(method="collective"))

    def with_one_of_that_shape(t):
        # An array that is written with its own elements.
        path = str(folder / "square.npy")
        if t.rank == 0:
            outcore.create(path, data=np.arange(9.0).reshape(3, 3)).close()
        t.barrier()
        with outcore.open(path, "r+", comm=t) as a:
            schedule = a.schedule_all(np.array([2, 0, 1]))
            for refused in (
                lambda: schedule.scatter_all(a),
                lambda: schedule.gather_all(a, method="collective"),
            ):
                with pytest.raises(outcore.errors.CollectiveError, match="same bytes"):
                    refused()
            same(t, a, np.arange(9.0).reshape(3, 3))

    run(world, with_one_of_that_shape, 64 * MIB)
    run(world, body, MIB)


@pytest.mark.simulated
@pytest.mark.parametrize("failing", ["_read", "_write", "_read_indices", "_receive_indices"])
@ranks(3)
def test_a_rank_that_fails_in_the_midst_fails_on_all_and_they_go_on(
    world, folder, failing, monkeypatch
):
    """What owners have been told may be incomplete then: they are told again."""
    whole = getattr(ElementPasses, failing)

    def body(t):
        path, mine = made(t, folder, "zstd"), part(t)
        with (
            budgets(t, MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            schedule = a.schedule_all(ALL[mine])
            calls = []
            if t.rank == 2:

                def broken(*args, **words):
                    calls.append(1)
                    if len(calls) == 3:
                        raise OSError("the disk is gone")
                    return whole(schedule._passes, *args, **words)

                if failing == "_receive_indices":
                    # The file of an owner is full.
                    from outcore.formats.scratch import ScratchFile

                    write = ScratchFile.write

                    def full(file, data, at):
                        plan = schedule._passes._plan
                        if plan is not None and file is plan.file:
                            calls.append(1)
                            if len(calls) == 2:
                                raise OSError("the disk is gone")
                        write(file, data, at)

                    monkeypatch.setattr(ScratchFile, "write", full)
                else:
                    setattr(schedule._passes, failing, broken)
            t.barrier()

            def attempt():
                if failing == "_write":
                    schedule.scatter_all(DATA[ALL[mine]])
                else:
                    schedule.gather_all(method="collective")

            with pytest.raises(outcore.errors.CollectiveError, match="the disk is gone"):
                attempt()
            assert np.array_equal(DATA[ALL[mine]], schedule.gather_all(method="collective"))
            same(t, a, DATA)

    run(world, body, MIB)


@pytest.mark.parametrize("budget", [1, 2, 64])
@ranks(1, 2, 4)
def test_each_chunk_is_decoded_and_encoded_once(world, folder, budget):
    """Also a chunk that has more values than fit memory: bytes are those of one write of the array."""

    def body(t):
        path, mine = made(t, folder, "zstd"), part(t)
        with (
            budgets(t, budget * MIB) as hints,
            outcore.open(path, "r+", comm=t, hints={**hints, "cache": "bypass"}) as a,
        ):
            schedule = a.schedule_all(ALL[mine])
            for combine, decodes in (("last", 0), ("add", 40)):
                before = a.stats()
                schedule.scatter_all(VALUES[mine, None], combine)
                t.barrier()
                after = a.stats()
                moved = t.allgather(
                    np.array([after[k] - before[k] for k in ("encodes", "decodes")], np.int64)
                ).sum(axis=0)
                # All 20 x 2 chunks have elements that are written; "last" replaces them whole.
                assert (40, decodes) == tuple(moved.tolist())
            before = a.stats()["decodes"]
            schedule.gather_all(method="collective")
            t.barrier()
            read = t.allgather(np.array([a.stats()["decodes"] - before], np.int64)).sum()
            assert int(read) == 40

    run(world, body, budget * MIB)


@pytest.mark.parametrize("budget", [1, 2])
@ranks(1, 2, 4)
def test_passes_over_elements_stay_within_the_budget(world, folder, budget):
    def body(t):
        path, mine = made(t, folder, "npy"), part(t, 200_000)
        listed = np.random.default_rng(t.rank).integers(0, 8000, 200_000)[mine]
        flat = np.stack([listed // 8, listed % 8])
        with (
            budgets(t, budget * MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            t.barrier()
            outcore._core.reset_memory_peak()
            t.barrier()
            schedule = a.schedule_all(tuple(flat))
            assert schedule.on_disk
            out = np.empty(schedule.shape)
            schedule.gather_all(out, method="collective")
            schedule.scatter_all(out, "max")
            t.barrier()
            peak = outcore._core.memory_state()[2]
            if UNDER_MPI or t.size == 1:
                assert budget * MIB // 4 < peak <= budget * MIB
            same(t, a, DATA)

    run(world, body, budget * MIB)


@ranks(2, 4)
def test_all_indices_of_all_ranks_are_of_one_element(world, folder):
    """One owner has it, and would get all lists at once; they are on disk, in passes."""

    def body(t):
        path = made(t, folder, "npy")
        mine = np.full(30_000, 123)
        values = np.arange(30_000)[:, None] * (0.1 + t.rank)
        expected = DATA.copy()
        for rank in range(t.size):
            for_all = np.arange(30_000)[:, None] * (0.1 + rank)
            np.add.at(expected, mine, np.broadcast_to(for_all, (30_000, 8)))
        with (
            budgets(t, 2 * MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            schedule = a.schedule_all(mine)
            schedule.scatter_all(values, "add")
            assert schedule.on_disk
            same(t, a, expected)

    run(world, body, 2 * MIB)


def told_passes(t, schedule, **how):
    """What `explain_all` says, equal on all ranks; and nothing was read or written for it."""
    before = schedule._array.stats()
    report = schedule.explain_all(**how)
    assert schedule._array.stats() == before
    assert len(set(t.allgather_bytes(f"{report!r} {report}".encode()))) == 1
    return report


def done_passes(t, schedule, access):
    """Indices of all ranks whose elements travel in each pass of an access."""
    done, one_pass = [], ElementPasses._get_pass

    def noted(passes, plan, number):
        now = one_pass(passes, plan, number)
        done.append(int(now.of.sum()))
        return now

    schedule._get_passes()._get_pass = lambda plan, number: noted(schedule._passes, plan, number)
    access()
    return t.allgather(np.array(done, np.int64)).sum(axis=0).tolist()


@pytest.mark.parametrize("name", ["npy", "zstd"])
@ranks(1, 2, 4, per_node=(None, 2))
def test_passes_are_told_before_and_then_they_are_made(world, folder, name):
    def body(t):
        path, mine = made(t, folder, name), part(t)
        with (
            budgets(t, MIB) as hints,
            outcore.open(path, "r+", comm=t, hints={**hints, "cache": "bypass"}) as a,
        ):
            schedule = a.schedule_all(ALL[mine])
            assert schedule.on_disk
            reports = [told_passes(t, schedule, method="collective"), told_passes(t, schedule)]
            for report in reports:
                assert report.prices is None
                if report.method == "direct":  # all of the array is cached
                    assert report.passes == ()
                    continue
                assert report.method == "collective"
                assert "do not fit in memory" in report.why
                assert report.rounds == len(report.passes) > 1
                assert sum(one.elements for one in report.passes) == NUMBER
                assert (
                    report.wanted_bytes == sum(one.nbytes for one in report.passes) == NUMBER * 64
                )
                assert all(1 <= one.owners <= t.size for one in report.passes)
                assert report.blocks == sum(one.blocks for one in report.passes)
                assert f"passes   {len(report.passes)}, of " in str(report)
            told = [one.elements for one in reports[0].passes]
            got = []
            done = done_passes(
                t, schedule, lambda: got.append(schedule.gather_all(method="collective"))
            )
            assert told == done
            assert np.array_equal(DATA[ALL[mine]], got[0])
            if name == "zstd":
                # All 20 x 2 chunks, each once; and so many were decoded.
                decodes = t.allgather(np.array([a.stats()["decodes"]], np.int64)).sum()
                assert reports[0].blocks == int(decodes) == 40
            write = told_passes(t, schedule, write=True)
            assert [one.elements for one in write.passes] == told
            done = done_passes(t, schedule, lambda: schedule.scatter_all(DATA[ALL[mine]]))
            assert told == done
            same(t, a, DATA)

    run(world, body, MIB)


@ranks(2, 4)
def test_passes_are_told_where_only_an_owner_would_get_too_much(world, folder):
    """And to ask for them does not say how elements are moved later."""

    def body(t):
        path, mine = made(t, folder, "npy"), np.full(20_000, 123)
        with (
            budgets(t, 2 * MIB) as hints,
            outcore.open(path, "r+", comm=t, hints=hints) as a,
        ):
            schedule = a.schedule_all(mine)
            alone = told_passes(t, schedule, method="direct")
            assert (alone.method, alone.passes) == ("direct", ())
            assert alone.prices is not None
            report = told_passes(t, schedule, method="pipelined")
            assert not schedule.on_disk
            assert np.array_equal(DATA[mine], schedule.gather_all(method="direct"))
            assert not schedule.on_disk
            # What lies around the element is read once, though its indices come in many steps.
            assert report.method == "collective"
            assert 1 <= report.blocks <= 16
            # Who owns that element moves; other ranges have nothing in them.
            assert all(one.owners == int(one.elements > 0) for one in report.passes)
            told, got = [one.elements for one in report.passes], []
            done = done_passes(
                t, schedule, lambda: got.append(schedule.gather_all(method="pipelined"))
            )
            assert told == done
            assert sum(told) == 20_000 * t.size
            assert np.array_equal(DATA[mine], got[0])

    run(world, body, 2 * MIB)


@pytest.mark.simulated
@pytest.mark.parametrize("failing", ["count", "stored", "cut"])
@ranks(3)
def test_a_rank_that_cannot_tell_passes_fails_on_all_and_they_go_on(
    world, folder, failing, monkeypatch
):
    from outcore.arrays.indices.lists.parts import StoredList
    from outcore.arrays.indices.prepared import PreparedIndices
    from outcore.ranks.collective.lists import passes

    victims = set()

    def tamper(where, name):
        whole = getattr(where, name)

        def broken(*args, **words):
            if threading.get_ident() in victims:
                raise OSError("the disk is gone")
            return whole(*args, **words)

        monkeypatch.setattr(where, name, broken)

    if failing == "count":
        tamper(StoredList, "count")
    elif failing == "stored":
        tamper(PreparedIndices, "spill")
    else:
        tamper(passes, "cut_ranges")

    def body(t):
        path, mine = made(t, folder, "npy"), part(t)
        with (
            budgets(t, MIB) as hints,
            outcore.open(path, comm=t, hints=hints) as a,
        ):
            schedule = a.schedule_all(ALL[mine])
            if t.rank == 2:
                victims.add(threading.get_ident())
            with pytest.raises(outcore.errors.CollectiveError, match=r"rank 2.*the disk is gone"):
                schedule.explain_all(method="collective")
            victims.discard(threading.get_ident())
            told = told_passes(t, schedule, method="collective").passes
            assert sum(one.elements for one in told) == NUMBER
            assert np.array_equal(DATA[ALL[mine]], schedule.gather_all(method="collective"))

    run(world, body, MIB)


@ranks(2, 3)
def test_another_array_another_budget_and_a_schedule_on_disk_serves_on(world, folder):
    """Rows of other types and chunks of other sizes need other ranges."""

    def body(t):
        path, mine = made(t, folder, "npy"), part(t)
        other = str(folder / "other.zarr")
        if t.rank == 0:
            outcore.create(other, data=DATA.astype("c16"), chunks=(30, 3)).close()
        t.barrier()
        with (
            budgets(t, MIB) as hints,
            outcore.open(path, comm=t, hints=hints) as a,
            outcore.open(other, "r+", comm=t, hints=hints) as b,
        ):
            schedule = a.schedule_all(ALL[mine])
            got = schedule.gather_all(method="collective")
            for _ in range(2):
                schedule.scatter_all(got + 1j, of=b)
                same(t, b, combined("last", ALL, DATA[ALL] + 1j, DATA.astype("c16")))
            assert np.array_equal(got, schedule.gather_all(method="collective"))

    run(world, body, MIB)
