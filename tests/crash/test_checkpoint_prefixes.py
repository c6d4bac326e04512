"""
Checkpoints, cut after each system call: the old one or the new one is found, whole, and never a mixture.

`traced` says how: four kinds of loss after each call. Leftovers are gone after the next checkpoint.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from traced import Trace

import killed
import outcore

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: crashes are NOT tested"
)
# No mapped writes: they are no calls.
SCRIPT = textwrap.dedent(
    """
    import sys
    import numpy as np, outcore
    from outcore.testing.sim import SimWorld
    path, ranks, how = sys.argv[1] + "/state", int(sys.argv[2]), sys.argv[3]
    hints = {"engine": "threads", "threads": 1, "method": "straight", "cache": "keep"}

    def keep(t):
        rows = outcore.mpi.Distribution((16, 3), ["block", "*"], t.size)
        u = outcore.mpi.DistArray.from_function(lambda i, j: 20 + i + 0 * j, rows, "i4", transport=t)
        arrays = {"u": u, "v": np.full(40, 2.0), "step": 2}
        if how.endswith("zarr"):
            arrays["w.zarr"] = np.full(8, 2.0)
        if how == "started":
            request = outcore.mpi.icheckpoint(path, arrays, comm=t, hints=hints)
            u.owned[...] = -1
            request.wait()
        else:
            outcore.mpi.checkpoint(path, arrays, comm=t, hints=hints)

    SimWorld(ranks).run(keep)
    """
)


def state(number: int, *, zarr: bool = False) -> dict:
    found = {
        "u": (10 * number + np.arange(16)[:, None] + np.zeros((1, 3))).astype("i4"),
        "v": np.full(40, float(number)),
        "step": number,
    }
    if zarr:
        found["w.zarr"] = np.full(8, float(number))
    return found


def is_state(found: dict, number: int) -> bool:
    expected = state(number, zarr="w.zarr" in found)
    return list(expected) == [name for name in expected if name in found] and all(
        np.array_equal(expected[name], found[name]) for name in expected
    )


@needs_strace
@pytest.mark.parametrize(
    ("ranks", "how", "old"),
    [
        (1, "plain", False),
        (2, "plain", True),
        (1, "zarr", True),
        (2, "started", True),
    ],
)
def test_each_prefix(tmp_path, ranks, how, old):
    folder = tmp_path / "disk"
    folder.mkdir()
    if old:
        outcore.mpi.checkpoint(folder / "state", state(1, zarr=how == "zarr"))
    trace = Trace(folder, SCRIPT, str(ranks), how)
    with killed.quick_folder(tmp_path) as quick:
        seen = look_after_each_crash(trace, quick / "crashes", old=old)
    for loss, order in seen.items():
        before = 1 if old else 0
        change = order.index(2)
        assert len(order) > 20, "too little was recorded"
        assert order == [before] * change + [2] * (len(order) - change), loss


def look_after_each_crash(trace: Trace, crashes: Path, *, old: bool) -> dict[str, list[int]]:
    """What is found after each loss, in the order of the calls."""
    seen: dict[str, list[int]] = {}
    for count, (when, copy) in enumerate(trace.crashes(crashes)):
        place = copy / "state"
        loss = when.partition(" after ")[0]
        found, refusal = read(place)
        if refusal is not None:
            assert not old, f"{refusal}: {when}"
            assert refusal.code in ("not-found", "bad-checkpoint"), f"{refusal}: {when}"
        now = found.get("step", 0)
        assert refusal is not None or is_state(found, now), f"a mixture: {when}"
        seen.setdefault(loss, []).append(now)
        if count % 5 == 0:  # who comes next is not in the way of what is left
            outcore.mpi.checkpoint(place, state(3))
            assert is_state(outcore.mpi.restore(place), 3), when
            assert sorted(left(place)) == ["arrays", "checkpoint.json"], when
        shutil.rmtree(copy)
    return seen


def read(place: Path) -> tuple[dict, outcore.OutcoreError | None]:
    """What is there, or why nothing is."""
    try:
        return outcore.mpi.restore(place), None
    except outcore.OutcoreError as error:
        return {}, error


def left(place: Path) -> list[str]:
    """What is in the folder of a checkpoint: of generations without their numbers."""
    return [name.partition("-")[0] for name in os.listdir(place)]


STEPS = ("open", "mkdir", "pwrite", "fsync", "rename", "unlink", "rmdir")


def test_killed_at_each_step_and_then_again(tmp_path):
    """In real processes: locks of the dead are gone, and so are their leftovers, by the next one."""
    with killed.quick_folder(tmp_path) as folder:
        kill_at_each_step(folder / "state")


def kill_at_each_step(place):
    seen = []
    for step in range(1, 1000):
        outcore.mpi.checkpoint(place, state(1))
        died = killed.dies_at(step, lambda: outcore.mpi.checkpoint(place, state(2)), STEPS)
        found = outcore.mpi.restore(place)
        assert is_state(found, found["step"])
        seen.append(found["step"])
        outcore.mpi.checkpoint(place, state(3))
        assert sorted(left(place)) == ["arrays", "checkpoint.json"]
        if not died:
            break
    change = seen.index(2)
    assert seen == [1] * change + [2] * (len(seen) - change) and change > 10


def test_each_call_fails(tmp_path, failing_calls):
    """Of each rank, at each array: all ranks raise or none; old or new; the next one succeeds."""
    fail_each(tmp_path, failing_calls, "EIO")


def test_the_disk_is_full_from_each_call_on_slow(tmp_path, failing_calls):
    fail_each(tmp_path, failing_calls, "ENOSPC for good")


def fail_each(tmp_path, failing_calls, how):
    child = Path(__file__).with_name("each_checkpoint_call.py")
    environment = {**os.environ, "LD_PRELOAD": str(failing_calls), "FAILING": str(failing_calls)}
    with killed.quick_folder(tmp_path) as quick:
        done = subprocess.run(
            [sys.executable, str(child), str(quick), how],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    calls, failures = map(int, done.stdout.split())
    assert calls > 30 and failures > 20
