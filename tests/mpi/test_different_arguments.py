"""Ranks that give different arguments where they must be equal: all raise, and nothing hangs."""

import time

import pytest

from mpi.different_arguments import CASES
from outcore.errors import OutcoreError
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
        elif "rank 1" not in found[0]:
            wrong.append((name, found[0]))
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong)
