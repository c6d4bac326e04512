"""Tests that fail, for `test_harness.py`; not collected by themselves."""

import os
import time

import pytest

from ranks import UNDER_MPI, communicator, ranks

if not UNDER_MPI:
    pytest.skip("fails on purpose", allow_module_level=True)


@ranks(2)
def test_a_body_fails_on_one_rank(world):
    def body(t):
        if t.rank == 1:
            raise ValueError("only on rank 1")
        t.barrier()

    world.run(body)


def test_something_else_fails_on_one_rank():
    assert communicator().rank != 2, "only on rank 2"


@ranks(2)
def test_all_is_well_afterwards(world):
    world.run(lambda t: t.barrier())


@pytest.mark.skipif("OUTCORE_TESTS_HANG" not in os.environ, reason="hangs on purpose")
def test_hangs():
    if communicator().rank == 1:
        time.sleep(1000)
    communicator().Barrier()
