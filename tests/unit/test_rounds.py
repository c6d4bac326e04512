"""Slots of a collective: what is going on in one, and who may have it next."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import outcore
import watched
from outcore import _core
from outcore.errors import CollectiveError
from outcore.ranks.collective import planning, rounds
from outcore.ranks.collective.dry_run import dry_run
from outcore.ranks.transport.sharing import _kept, get_slots
from ranks import World

MANY = 1 << 30


def test_tiles_of_8_mib_fit_slots_wherever_they_begin_in_a_page(tmp_path):
    """Rows of 32 KiB behind the header of a `.npy` file: 4 rounds of 256, and no fifth for 4 rows."""
    columns = [np.s_[:, 1024 * rank : 1024 * rank + 1024] for rank in range(4)]
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", "f8", (4096, 4096))
    with outcore.memory("1 GiB"), outcore.open(tmp_path / "a.npy", "r+") as a:
        seen = dry_run(a, columns, cold=True, method="two-phase")
        plan = seen.plan
        assert (plan.rounds, [plan.tiles(owner) for owner in plan.owners()]) == (4, [4] * 4)
        for owner, n in itertools.product(range(4), range(4)):
            rows = 1024 * owner + 256 * n
            assert plan.tile(owner, n)[1] == [(rows, 256, 1), (0, 4096, 1)]
            # The page is for this.
            assert plan.place(owner, n) == 128
        assert plan.slot_bytes == (8 << 20) + 4096 == planning.AGREED.slot
        assert seen.report.slots == 3
    # Where there is not so much memory it is kept to.
    with outcore.memory("24 MiB"), outcore.open(tmp_path / "a.npy") as a:
        offered = _core.memory_state()[1] // 4
        seen = dry_run(a, columns, cold=True, method="two-phase")
        assert offered - (64 << 10) < seen.plan.slot_bytes <= offered


def test_slots_are_not_used_again_after_a_mishap():
    """A rank that failed may have lost its own: then all take new ones, which they all see."""

    def body(t):
        before = get_slots(t, 4096, 2, MANY)
        assert get_slots(t, 4096, 2, MANY) is before
        if t.rank == 0:
            _kept.pop(t).close()
            t.abort_call(b"no memory for larger ones")
        else:
            with pytest.raises(CollectiveError):
                t.barrier()
        after = get_slots(t, 4096, 2, MANY)
        assert after is not before
        after.mine(1)[:] = t.rank + 1
        t.barrier()
        assert [int(after.of(rank, 1)[7]) for rank in range(t.size)] == list(range(1, t.size + 1))
        t.barrier()
        return np.shares_memory(after.mine(0), after.of(t.rank, 0))

    assert World(3).run(body, timeout=5) == [True] * 3


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("per_node", [None, 2])
def test_what_goes_on_in_a_slot_is_waited_for(tmp_path, monkeypatch, per_node, groups):
    """Before ranks look at it, before it is used again, and before a collective ends."""
    agreed = replace(planning.AGREED, slot=4096, least=1)
    monkeypatch.setattr(planning, "AGREED", agreed)
    watched.use(monkeypatch, watched.Late)
    monkeypatch.setattr(rounds, "REWRITES", True)
    monkeypatch.setattr(watched.Late, "begun", 0)
    data = np.arange(256 * 96, dtype="i4").reshape(256, 96)
    np.save(tmp_path / "a.npy", data)

    def body(t):
        mine = np.s_[:, t.rank :: t.size + 1]
        with outcore.open(tmp_path / "a.npy", "r+", comm=t, hints={"io_groups": groups}) as a:
            assert a.explain_all(mine, write=True, method="two-phase").rounds > 5
            np.testing.assert_array_equal(data[mine], a.read_all(mine, method="two-phase"))
            t.barrier()
            a.write_all(mine, -data[mine], method="two-phase")

    World(4, per_node).run(body)
    assert watched.Late.begun > 3 * 10
    expected = np.where(np.arange(96) % 5 < 4, -data, data)
    np.testing.assert_array_equal(expected, np.load(tmp_path / "a.npy"))


def test_who_forgets_an_access_in_the_background_waits_for_it(tmp_path):
    """Its memory may be used for something else as soon as nobody refers to it."""
    data = np.arange(1 << 20, dtype="f8").reshape(1024, 1024)
    np.save(tmp_path / "a.npy", data)
    with outcore.open(tmp_path / "a.npy", hints={"cache": "bypass"}) as a:
        plan = dry_run(a, [np.s_[:512], np.s_[512:]], method="two-phase").plan
        owner = _core.Owner(plan, 0, [a.handle.core])
        (_, ((row, rows, _), _)), at = plan.tile(0, 0), plan.place(0, 0)
        for _ in range(5):
            slot = np.zeros(plan.slot_bytes, "u1")
            owner.read(0, slot)  # the handle goes at once
            found = slot[at:].view("f8")[: rows * 1024].reshape(rows, 1024)
            np.testing.assert_array_equal(data[row : row + rows], found)


def test_a_background_access_tells_once_what_went_wrong(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((1024, 1024)))
    with outcore.open(tmp_path / "a.npy", hints={"cache": "bypass"}) as a:
        plan = dry_run(a, [np.s_[:512], np.s_[512:]], method="two-phase").plan
        owner = _core.Owner(plan, 0, [a.handle.core])
        (tmp_path / "a.npy").write_bytes(b"short")
        reading = owner.read(0, np.zeros(plan.slot_bytes, "u1"))
        with pytest.raises(outcore.errors.StorageError):
            reading.wait()
        reading.wait()
        assert reading.done
