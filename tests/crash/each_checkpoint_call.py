"""The child of `test_checkpoint_prefixes`: three ranks keep arrays; one call after the other fails."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

import numpy as np

import outcore
from outcore.testing.sim import SimWorld

HINTS = {"engine": "threads", "threads": 1, "method": "straight", "cache": "keep"}
RANKS = 3
# More calls than a checkpoint makes.
MOST = 2000


def act(path: Path, number: int) -> list[BaseException | None]:
    """Keep a state; how it ended on each rank."""

    def body(t):
        rows = outcore.mpi.Distribution((RANKS * 4, 5), ["block", "*"], t.size)
        turns = outcore.mpi.Distribution(7, ["cyclic"], t.size)
        u = outcore.mpi.DistArray.from_function(lambda i, j: number + 0 * i * j, rows, transport=t)
        v = outcore.mpi.DistArray.from_function(lambda i: number + 0 * i, turns, "i4", transport=t)
        arrays = {"u": u, "v": v, "w": np.full(9, number), "step": number}
        try:
            outcore.mpi.checkpoint(path, arrays, hints=HINTS)
        except outcore.OutcoreError as error:
            return error
        return None

    return SimWorld(RANKS, timeout=60).run(body)


def step_of(path: Path) -> int:
    """The state that is found, which has to be one."""
    found = outcore.mpi.restore(path)
    step = found["step"]
    assert all((found[name] == step).all() for name in "uvw"), found
    return step


def main(place: str, how: str) -> None:
    failing = ctypes.CDLL(os.environ["FAILING"])
    number = {"EIO": errno.EIO, "ENOSPC for good": errno.ENOSPC}[how]
    pristine = Path(place, "pristine")
    pristine.mkdir()
    assert act(pristine / "state", 1) == [None] * RANKS
    failures, calls, seen = 0, MOST, set()
    for turn in range(1, MOST):
        folder = Path(place, str(turn))
        shutil.copytree(pristine, folder)
        failing.failing_arm(
            str(folder).encode(), ctypes.c_long(turn), number, number == errno.ENOSPC
        )
        try:
            ends = act(folder / "state", 2)
        finally:
            calls = failing.failing_disarm()
        raised = [end for end in ends if end is not None]
        now = step_of(folder / "state")
        assert now == 2 if not raised else now in (1, 2), ends
        if raised:
            failures += 1
            seen.add(now)
            assert len(raised) == RANKS, ends
            assert all(isinstance(end, outcore.errors.CollectiveError) for end in raised), ends
            causes = [end.__cause__ for end in raised if end.__cause__ is not None]
            assert causes and all(getattr(one, "errno", None) == number for one in causes), causes
        assert act(folder / "state", 3) == [None] * RANKS
        assert step_of(folder / "state") == 3
        names = sorted(name.partition("-")[0] for name in os.listdir(folder / "state"))
        assert names == ["arrays", "checkpoint.json"], names
        shutil.rmtree(folder)
        if calls < turn:
            break
    else:
        raise AssertionError(f"more than {MOST} calls")
    assert 1 in seen
    print(calls, failures)


if __name__ == "__main__":
    main(*sys.argv[1:])
