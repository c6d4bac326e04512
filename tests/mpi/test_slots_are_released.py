"""What a group of ranks holds of the budget, it gives back when it is closed."""

import gc

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.errors import CollectiveError
from outcore.ranks.transport import sharing
from outcore.testing.sim import SimWorld

pytestmark = pytest.mark.simulated  # the group of all ranks is not closed before the end


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_failed_collective_keeps_no_slots(tmp_path, ranks):
    """Its traceback refers to the group, and lives as long as somebody looks at it."""
    outcore.create(tmp_path / "a.npy", data=np.zeros((256, 256))).close()
    gc.collect()
    before = _core.memory_state()[0]
    held = []

    def body(t):
        with outcore.open(tmp_path / "a.npy", comm=t) as a:
            a.read_all(np.s_[:, t.rank :: t.size], method="two-phase")
            slots = sharing._kept[t]
            slots.pin()
            held.append(_core.memory_state()[0])
            slots.unpin()
            a.read_all(np.s_[:, :, :], method="two-phase")

    with pytest.raises(CollectiveError) as caught:
        SimWorld(ranks).run(body)
    assert max(held) > before
    assert caught.value.__traceback__ is not None
    assert _core.memory_state()[0] <= before
