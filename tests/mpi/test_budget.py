"""Where memory is too short for two-phase: other methods go on; what would do is told to all ranks."""

import numpy as np
import pytest

import outcore
from outcore.errors import BudgetError
from outcore.ranks.collective import call
from ranks import once, ranks

# Of an encoded array of blocks of 512 KiB.
N, BLOCK = 512, 8 * 256 * 256
DATA = np.arange(N * N, dtype="f8").reshape(N, N)


def blocks(folder):
    outcore.create(folder / "a.zarr", data=DATA, chunks=(256, 256), compression="zstd").close()


def opened(t, folder, memory, mode="r", **hints):
    return outcore.open(folder / "a.zarr", mode, comm=t, hints={"memory": memory, **hints})


@ranks(1, 2, 4, per_node=(None, 1))
@pytest.mark.parametrize("method", ["auto", "direct", "sieve"])
def test_independent_reads_need_no_memory_for_a_plan(world, folder, method):
    def body(t):
        once(t, lambda: blocks(folder))
        key = np.s_[:, t.rank :: t.size]
        with opened(t, folder, 3 * BLOCK) as a:
            np.testing.assert_array_equal(DATA[key], a[key])
            np.testing.assert_array_equal(DATA[key], a.read_all(key, method=method))
            got = outcore.mpi.read_all([(a, key), (a, (3, 4))], method=method)
            np.testing.assert_array_equal(DATA[key], got[0])
            assert got[1] == DATA[3, 4]
            told = a.explain_all(key, method=method)
            assert told.method == ("sieve" if method == "sieve" else "direct")
            if method == "auto" and t.size > 1:
                assert "two-phase needs slots of 524 kB" in told.why
                of_many = outcore.mpi.explain_all([(a, key)], comm=t)
                assert (of_many.method, of_many.why) == (told.method, told.why)
                assert of_many.arrays[0].alone_method == "direct"

    world.run(body)


@ranks(2, 4, per_node=(1,))
@pytest.mark.parametrize("method", ["auto", "direct", "sieve"])
def test_the_highest_rank_wins_also_where_no_plan_fits(world, folder, method):
    """A write of a block takes four and a half of them, slots between nodes six."""

    def body(t):
        once(t, lambda: blocks(folder))
        with opened(t, folder, 5 * BLOCK, "r+") as a:
            a.write_all(np.s_[: N - t.rank], 1.0 + t.rank, method=method)
            expected = DATA.copy()
            for rank in range(t.size):
                expected[: N - rank] = 1.0 + rank
            np.testing.assert_array_equal(expected, a.read_all(method=method))

    world.run(body)


@ranks(2, 4, per_node=(None, 1))
@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
def test_two_phase_that_was_asked_for_tells_the_smallest_budget(world, folder, write):
    def body(t):
        once(t, lambda: blocks(folder))
        key = np.s_[:, t.rank :: t.size]

        def call(a):
            if write:
                a.write_all(key, DATA[key] + 1, method="two-phase")
            else:
                np.testing.assert_array_equal(DATA[key], a.read_all(key, method="two-phase"))

        with opened(t, folder, 3 * BLOCK, "r+") as a:
            for work in (call, lambda a: a.explain_all(key, write=write, method="two-phase")):
                with pytest.raises(BudgetError, match="two-phase needs slots") as caught:
                    work(a)
        needed = caught.value.needed
        assert t.agree(needed) == needed == BLOCK * (4 if len(set(t.nodes)) == 1 else 6)
        # One rank has less.
        less, told = needed - (t.rank == t.size - 1), f"needs {needed} bytes"
        with opened(t, folder, less, "r+") as a, pytest.raises(BudgetError, match=told):
            call(a)
        # What a write of a block takes itself is more than slots of one node.
        enough = needed if not write else max(needed, 5 * BLOCK)
        with opened(t, folder, enough, "r+") as a:
            call(a)

    world.run(body)


@ranks(2, per_node=(None, 1))
def test_writes_that_have_to_be_in_order_say_so(world, folder):
    def body(t):
        once(t, lambda: blocks(folder))
        with opened(t, folder, 3 * BLOCK, "r+") as a:
            # Too entangled to be cut.
            mine = np.s_[:, :] if t.rank == 0 else np.s_[:, 1::25]
            for method in ("auto", "direct"):
                with pytest.raises(BudgetError, match="highest rank must write last") as caught:
                    a.write_all(mine, 1.0, method=method)
                assert caught.value.needed >= 4 * BLOCK
            np.testing.assert_array_equal(DATA, a[...])

    world.run(body)


@ranks(2, 3)
@pytest.mark.parametrize("method", ["auto", "direct", "sieve"])
def test_nobody_plans_what_each_rank_reads_on_its_own(world, folder, method, monkeypatch):
    """Also where some ranks have their part cached and others have not."""
    plans, plain = [], call.make_plan

    def counted(*args, **words):
        plans.append(1)
        return plain(*args, **words)

    monkeypatch.setattr(call, "make_plan", counted)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        key = np.s_[:, t.rank :: t.size]
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            # Who wrote since the ranks synchronised does not read before they synchronise.
            a[t.rank] = DATA[t.rank]
            np.testing.assert_array_equal(DATA[key], a.read_all(key, method=method))

    world.run(body)
    assert not plans
