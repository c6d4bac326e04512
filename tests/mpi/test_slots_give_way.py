"""Slots that are kept from one collective to the next are in nobody's way."""

import gc

import numpy as np

import outcore
from outcore import _core
from outcore.ranks.transport import SerialTransport
from ranks import once, ranks

DATA = np.arange(1024 * 512, dtype="f8").reshape(1024, 512)


@ranks(1, 2, 4, per_node=(None, 1, 2))
def test_all_memory_is_free_between_collectives(world, folder):
    # What earlier tests left goes now, or stays.
    gc.collect()
    before = _core.memory_state()

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        key = np.s_[:, t.rank :: t.size]
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            for turn in range(3):
                expected = DATA[key] + turn
                np.testing.assert_array_equal(expected, a.read_all(key, method="two-phase"))
                t.barrier()
                if t.rank == t.size - 1:
                    # All that was free before there were slots.
                    assert _core.memory_state()[0] <= before[0]
                    with _core.Reservation("blocks", before[1]):
                        assert _core.memory_state()[0] >= before[1]
                t.barrier()
                a.write_all(key, expected + 1, method="two-phase")
        np.testing.assert_array_equal(DATA + 3, np.load(folder / "a.npy"))
        t.barrier()

    world.run(body)


def test_a_smaller_budget_takes_smaller_slots(tmp_path):
    np.save(tmp_path / "a.npy", DATA)
    gc.collect()
    before = _core.memory_state()[0]
    with outcore.open(tmp_path / "a.npy", comm=SerialTransport()) as a:
        slots = []
        for limit in ("64 MiB", "2 MiB", "64 MiB"):
            with outcore.memory(limit):
                slots.append(a.explain_all(..., method="two-phase").slot_bytes)
                np.testing.assert_array_equal(DATA, a.read_all(method="two-phase"))
                assert _core.memory_state()[0] <= before
        assert slots[1] < slots[0] == slots[2]
