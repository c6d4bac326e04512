"""Seconds of phases on ranks; arrays that ranks open or make together."""

import numpy as np
import pytest

import outcore
from outcore.errors import CollectiveError
from ranks import ranks

PHASES = ("agree", "plan", "disk", "exchange", "wait")


@ranks(1, 2, 3, per_node=(None, 2))
def test_phases_are_within_their_calls(world, folder):
    """Each call takes as long as its phases at least; who never read together has none."""
    path = f"{folder}/field.npy"

    def body(t):
        if t.rank == 0:
            np.save(path, np.zeros((300, 200)))
        t.barrier()
        with outcore.open(path, "r+", comm=t) as a:
            assert all(a.stats()[f"{phase}_seconds"] == 0 for phase in (*PHASES, "read", "write"))
            a.read_all(np.s_[:, t.rank :: t.size], method="two-phase")
            read = a.stats()
            assert (
                read["exchange_seconds"] > 0
                and read["agree_seconds"] > 0
                and read["plan_seconds"] > 0
            )
            assert sum(read[f"{phase}_seconds"] for phase in PHASES) <= read["read_seconds"] * 1.01
            assert read["write_seconds"] == 0
            a.write_all(np.s_[:, t.rank :: t.size], 1.0, method="two-phase")
            written = a.stats()
            assert written["write_seconds"] > 0 and written["read_seconds"] == read["read_seconds"]
            a.flush_all()
            assert a.stats()["flush_seconds"] > 0
        t.barrier()

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
@pytest.mark.parametrize("name", ["log.zarr", "log.npy", "log.h5"])
def test_ranks_open_or_make_it_together(world, folder, name):
    path = f"{folder}/{name}"

    def body(t):
        for round in range(2):
            with outcore.open(path, "a", shape=(t.size, 3), dtype="i4", comm=t) as a:
                assert a.mode == "r+" and a.shape == (t.size, 3)
                assert (a[...] == round).all()
                t.barrier()
                a.write_all(t.rank, round + 1)
        with pytest.raises(CollectiveError) as caught:
            outcore.open(path, "a", shape=(t.size, 4), dtype="i4", comm=t)
        assert caught.value.__cause__.code == "other-array"
        with pytest.raises(CollectiveError) as caught:
            outcore.open(f"{folder}/none.npy", "a", comm=t)
        assert caught.value.__cause__.code == "not-found"
        t.barrier()

    world.run(body)


@ranks(1, 3)
def test_ranks_make_one_like_another(world, folder):
    def body(t):
        like = np.zeros((6, 4), "i2", order="F")
        with outcore.open(f"{folder}/like.npy", "w", like=like, comm=t) as a:
            assert (a.shape, a.dtype, a.order) == ((6, 4), np.int16, "F")
        if t.size > 1:
            other = np.zeros((6, 5 if t.rank else 4), "i2")
            with pytest.raises(CollectiveError):
                outcore.open(f"{folder}/other.npy", "w", like=other, comm=t)
        t.barrier()

    world.run(body)


@ranks(1, 2, 3)
def test_ranks_convert_a_section_with_chunks_by_price(world, folder):
    data = np.arange(120.0 * 90).reshape(120, 90)

    def body(t):
        if t.rank == 0:
            np.save(f"{folder}/a.npy", data)
        t.barrier()
        key = np.s_[::-2, 5:]
        outcore.convert(
            f"{folder}/a.npy",
            f"{folder}/b.zarr",
            section=key,
            chunks="auto",
            typical_sections=(20, 17),
            comm=t,
        )
        with outcore.open(f"{folder}/b.zarr") as b:
            assert b.chunks == (20, 17) and np.array_equal(data[key], b[...])
        t.barrier()

    world.run(body)
