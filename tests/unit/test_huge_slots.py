"""Shared memory in huge pages: the content stays, and slots ask for it when it is worth it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.ranks.transport import SerialTransport, sharing
from outcore.ranks.transport.sharing import GroupShared

HUGE = 2 << 20


def in_huge_pages(start: int) -> int:
    """Bytes of the mapping at an address that the kernel maps in huge pages."""
    text = Path("/proc/self/smaps").read_text()
    mine = text[text.index(f"{start:x}-") :]
    return int(re.search(r"ShmemPmdMapped: *(\d+) kB", mine).group(1)) << 10


def shared(nbytes: int) -> tuple[_core.Reservation, np.ndarray]:
    held = _core.Reservation("shared", nbytes)
    memory = np.frombuffer(_core.SharedMemory(nbytes).bytes(), np.uint8)
    held.of_pages(memory)
    return held, memory


def test_what_is_in_pages_stays_when_they_are_put_together() -> None:
    held, memory = shared(3 * HUGE + 4096)
    memory[:] = np.arange(memory.size) % 251
    before = _core.memory_state()[0]
    gathered = held.gather()
    assert gathered in range(0, 3 * HUGE + 1, HUGE)  # nothing on older kernels
    assert _core.memory_state()[0] == before
    assert np.array_equal(memory, np.arange(memory.size) % 251)
    if gathered and Path("/proc/self/smaps").exists():
        assert in_huge_pages(memory.ctypes.data) >= gathered
    held.release()
    assert held.gather() == 0


def test_pages_that_are_unpinned_are_left_alone() -> None:
    with outcore.memory(_core.memory_state()[0] + 8 * HUGE):
        held, memory = shared(3 * HUGE)
        memory[:] = 5
        held.unpin()
        assert held.gather() == 0
        other = _core.Reservation("a task", 6 * HUGE)  # takes the room
        assert memory[HUGE] == 0
        other.release()
        assert held.pin() is False
        memory[:] = 6
        held.gather()
        assert (memory == 6).all()
        held.unpin()
        assert held.pin() is True
        held.release()


def test_memory_is_of_the_length_that_was_asked_for() -> None:
    assert np.frombuffer(_core.SharedMemory(4097).bytes(), np.uint8).size == 4097
    with pytest.raises(OSError, match="Bad file descriptor"):
        _core.SharedMemory(4096, -1)


def test_slots_are_put_together_once_they_are_used_often(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    usual = GroupShared.gather

    def gather(self: GroupShared) -> None:
        calls.append(1)
        usual(self)

    monkeypatch.setattr(GroupShared, "gather", gather)
    transport = SerialTransport()
    # The slots' memory, and what takes its room.
    with outcore.memory(_core.memory_state()[0] + 12 * HUGE):
        seen = []
        for filled in (1, 3, 3, 1, 50):
            sharing.get_slots(transport, HUGE, 3, 3 * HUGE, filled * HUGE)
            sharing.unpin_slots(transport)
            seen.append(len(calls))
        assert seen == [0, 0, 0, 1, 1]
        # Other pages afterwards: counted anew.
        other = _core.Reservation("a task", 11 * HUGE)
        other.release()
        sharing.get_slots(transport, HUGE, 3, 3 * HUGE, 7 * HUGE)
        assert len(calls) == 1
        sharing.unpin_slots(transport)
        sharing.get_slots(transport, HUGE, 3, 3 * HUGE, HUGE)
        assert len(calls) == 2
    transport.close()
