"""What collectives tell of themselves: many arrays at once, and any number of ranks in one process."""

import numpy as np
import pytest

import outcore
import outcore.base.report
from outcore.errors import CollectiveError
from outcore.ranks.collective.dry_run import dry_run
from ranks import ranks

NODES = (None, 1)
NAMES = "abcde"


def make(t, folder, wide=60):
    """Five arrays, of 1 to 5 times 96 rows of 60."""
    if t.rank == 0:
        for number, name in enumerate(NAMES, start=1):
            data = np.arange(number * 96.0 * wide).reshape(number * 96, wide)
            outcore.create(folder / f"{name}.npy", data=data).close()
        data = np.arange(64 * 64, dtype="i4").reshape(64, 64)
        outcore.create(folder / "z.zarr", data=data, chunks=(16, 16), compression="zstd").close()
    t.barrier()


def opened(t, folder, names=NAMES, mode="r", **hints):
    return [outcore.open(folder / f"{name}.npy", mode, comm=t, hints=hints) for name in names]


def columns(t, arrays):
    return [(a, np.s_[:, t.rank :: t.size]) for a in arrays]


@ranks(1, 4, per_node=NODES)
def test_the_assignment_is_the_one_that_reads(world, folder):
    wide = 60 + -60 % world.size  # equally many columns for each

    def body(t):
        make(t, folder, wide)
        # By windows, so that what is read is counted.
        arrays = opened(t, folder, method="window")
        told = outcore.mpi.explain_all(columns(t, arrays), method="two-phase")
        before = [a.stats()["read_bytes"] + a.stats()["mapped_bytes"] for a in arrays]
        assert before == [0] * len(arrays), "nothing was read"
        outcore.mpi.read_all(columns(t, arrays), method="two-phase")
        after = [a.stats()["read_bytes"] + a.stats()["mapped_bytes"] for a in arrays]
        said = [dict(array.owners).get(t.rank, 0) for array in told.arrays]
        assert said == after, "each rank reads what was told, of each array"
        for a in arrays:
            a.close()
        return told

    answers = world.run(body)
    told = answers[0]
    assert all(answer == told for answer in answers)
    size, nbytes = told.ranks, [n * 96 * wide * 8 for n in range(1, 6)]
    assert [array.wanted_bytes for array in told.arrays] == nbytes
    assert [array.path[-5:] for array in told.arrays] == [f"{name}.npy" for name in NAMES]
    assert {array.ranks for array in told.arrays} == {size}
    assert told.wanted_bytes == sum(nbytes) == sum(owner.load for owner in told.owners)
    for owner in told.owners:
        parts = [dict(array.owners).get(owner.rank, 0) for array in told.arrays]
        assert (owner.load, owner.arrays) == (sum(parts), sum(part > 0 for part in parts))
    # Each owner keeps the columns that it wants itself, and gives all others away.
    assert told.traffic == sum(nbytes) * (size - 1) // size
    assert told.traffic == sum(o.sends for o in told.owners)
    if size > 1:
        assert told.assignment == "balanced" and told.assignment_why
        given = outcore.model.assign(np.array([nbytes] * size) // size)
        assert [tuple(r for r, _ in a.owners) for a in told.arrays] == [
            tuple(sorted(ranks)) for ranks in given.owner
        ]
        assert max(owner.load for owner in told.owners) <= sum(nbytes) / size + 96 * wide * 8
        assert told.traffic == sum(o.gets for o in told.owners)
        assert told.alone_rounds >= len(NAMES) and told.alone_traffic == told.traffic


@ranks(1, 4)
def test_it_is_told_for_people(world, folder):
    def body(t):
        make(t, folder)
        arrays = opened(t, folder, mode="r+")
        forced = outcore.mpi.explain_all(columns(t, arrays), method="two-phase", write=True)
        direct = outcore.mpi.explain_all(columns(t, arrays), method="direct")
        nothing = outcore.mpi.explain_all([], comm=t)
        alone = outcore.mpi.explain_all([(arrays[0], ..., "what follows is not looked at")])
        for a in arrays:
            a.close()
        return forced, direct, nothing, alone

    for forced, direct, nothing, alone in world.run(body):
        text = str(forced)
        assert text.startswith("write    5 arrays")
        assert "e.npy: 230 kB for" in text and "owned by rank" in text
        assert f"traffic  {outcore.base.report.format_bytes(forced.traffic)} between ranks" in text
        assert ("balanced: " in text) == (forced.ranks > 1)
        assert {array.alone_method for array in forced.arrays} == {"two-phase"}
        assert direct.method == "direct" and "owned by" not in str(direct)
        assert direct.alone_rounds == direct.alone_traffic == 0
        assert nothing.arrays == () and "0 arrays" in str(nothing)
        assert alone.assignment == "" and len(alone.arrays) == 1


@ranks(2, 4, per_node=NODES)
def test_arrays_that_some_ranks_have(world, folder):
    def body(t):
        make(t, folder)
        first, second = opened(t, folder, "ab")
        zarr = outcore.open(folder / "z.zarr", comm=t)
        mine = {0: [(first, np.s_[:10])], 1: [(second, ...), (zarr, np.s_[:, :20])]}
        told = outcore.mpi.explain_all(mine.get(t.rank, []), comm=t, method="two-phase")
        for a in (first, second, zarr):
            a.close()
        return told

    answers = world.run(body)
    assert all(answer == answers[0] for answer in answers)
    a, b, z = answers[0].arrays
    assert [array.path.rsplit("/", 1)[-1] for array in (a, b, z)] == ["a.npy", "b.npy", "z.zarr"]
    assert a.owners == ((0, 10 * 60 * 8),)
    assert b.owners == ((1, 192 * 60 * 8),)
    assert z.owners == ((1, 64 * 20 * 4),)
    assert answers[0].traffic == 0


@ranks(2, 4, per_node=NODES)
def test_failures_are_everybodys(world, folder):
    def body(t):
        make(t, folder)
        arrays = opened(t, folder)
        wrong = [(arrays[0], np.s_[10_000])] if t.rank == 1 else [(arrays[0], ...)]
        with pytest.raises(CollectiveError) as caught:
            outcore.mpi.explain_all(wrong, comm=t)
        assert (caught.value.code, caught.value.ranks) == ("rank-failed", (1,))
        with pytest.raises(CollectiveError) as caught:
            outcore.mpi.explain_all(columns(t, arrays), write=True)
        assert caught.value.code == "rank-failed"
        call = outcore.mpi.read_all if t.rank == 1 else outcore.mpi.explain_all
        with pytest.raises(CollectiveError) as caught:
            call(columns(t, arrays))
        assert caught.value.code == "mismatched-call"
        with pytest.raises(CollectiveError) as caught:
            outcore.mpi.explain_all(columns(t, arrays), method="direct" if t.rank else "sieve")
        assert caught.value.code == "mismatched-call"
        arrays[2].close()
        with pytest.raises(CollectiveError):
            outcore.mpi.explain_all([(arrays[2], ...)])
        outcore.mpi.explain_all(columns(t, arrays[:2]))
        for a in arrays:
            a.close()

    world.run(body)


@ranks(2, 4)
def test_a_rank_that_cannot_tell_fails_on_all(world, folder, monkeypatch):
    from outcore.ranks.collective import explain

    def failing(teller, plan, arrays):
        if teller.rank == 1:
            raise RuntimeError("no prices today")
        return 0

    monkeypatch.setattr(explain._ReportMaker, "_price_part", failing)

    def body(t):
        make(t, folder)
        arrays = opened(t, folder)
        with pytest.raises(CollectiveError, match="no prices today") as caught:
            outcore.mpi.explain_all(columns(t, arrays))
        assert caught.value.ranks == (1,)
        for a in arrays:
            a.close()

    world.run(body)


KEYS = {
    "columns": lambda r, p: np.s_[:, r::p],
    "rows": lambda r, p: np.s_[7 * r : 7 * r + 9],
    "backwards": lambda r, p: np.s_[::-2, r],
    "some nothing": lambda r, p: np.s_[0 : 5 * (r % 2)],
}


@pytest.mark.parametrize("method", ["two-phase", "direct", "sieve"])
@pytest.mark.parametrize("name", KEYS)
@ranks(1, 3, 4)
def test_one_process_tells_what_all_would(world, folder, name, method):
    def body(t):
        make(t, folder)
        key = KEYS[name]
        for path in ("c.npy", "z.zarr"):
            with outcore.open(folder / path, "r+", comm=t) as a:
                for write in (False, True):
                    told = a.explain_all(key(t.rank, t.size), method=method, write=write)
                    keys = [key(rank, t.size) for rank in range(t.size)]
                    assert dry_run(a, keys, method=method, write=write).report == told

    world.run(body)
