"""Ranks that give different arguments where they must be equal: all raise, and nothing hangs."""

import time

import numpy as np
import pytest

import outcore
from mpi.different_arguments import CASES
from outcore.errors import OutcoreError
from outcore.mpi import DistArray, Distribution
from outcore.testing.sim import SimWorld


def outcomes(make, folder, ranks=2):
    """What each rank got of a case; the last one gives the other argument."""
    found = [None] * ranks

    def body(t):
        call = make(t, folder, int(t.rank == t.size - 1))
        t.barrier()
        try:
            call()
            found[t.rank] = None
        except OutcoreError as error:
            found[t.rank] = f"{type(error).__name__} {error}"

    SimWorld(ranks, timeout=20).run(body)
    return found


@pytest.mark.simulated
def test_different_calls_are_named(tmp_path):
    """As their methods are called, and sections as they are written in a program."""

    def different(t, folder, x):
        form = Distribution((6, 4), ["block", "*"], t.size)
        part = DistArray.zeros(form, transport=t)
        array = outcore.mpi.disk_array(folder / "d.npy", (6, 4), "f8", comm=t)
        return (
            lambda: array.read_section(np.s_[1:5:2, ::-1], part, np.s_[:2]),
            array.flush,
        )[x]

    def sections(t, folder, x):
        form = Distribution((6, 4), ["block", "*"], t.size)
        part = DistArray.zeros(form, transport=t)
        array = outcore.mpi.disk_array(folder / "e.npy", (6, 4), "f8", comm=t)
        return lambda: array.write_section(np.s_[x, ::-2], part, np.s_[0, :2])

    first, _ = outcomes(different, tmp_path)
    assert "rank 0 called DiskResidentArray.read_section; rank 1 called flush_all;" in first
    first, _ = outcomes(sections, tmp_path)
    assert "e.npy', section [0, 3:0:-2], with section [0, 0:2] of an array of shape (6, 4)" in first
    assert "e.npy', section [1, 3:0:-2], with" in first


@pytest.mark.simulated
@pytest.mark.filterwarnings("ignore")
def test_each_argument_that_must_be_equal_is_compared(tmp_path):
    wrong = []
    for number, (name, make) in enumerate(CASES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        began = time.monotonic()
        try:
            found = outcomes(make, folder)
        except BaseException as error:
            wrong.append((name, repr(error)))
            continue
        if found[0] is None or found[0] != found[1] or time.monotonic() - began > 15:
            wrong.append((name, found))
        elif "rank 1" not in found[0] or "Selection(" in found[0]:
            wrong.append((name, found[0]))
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong)
