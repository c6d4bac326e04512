"""A rank that raises, or exits, while the others go on: the job ends within seconds, as it should."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from mpi.ended_rank import CASES
from mpi.real import ROOT, mpiexec

pytestmark = pytest.mark.simulated  # starts mpiexec itself


def ends(library, folder, case, ranks=2, nodes=1):
    """How the job ended, what it said, and after how many seconds."""
    command, env = mpiexec(library, ROOT / "tests", ROOT / "python")
    if nodes > 1:
        env["OUTCORE_RANKS_PER_NODE"] = str(ranks // nodes)
    np.save(folder / "a.npy", np.zeros((40, 10)))
    words = [command, "-n", str(ranks), sys.executable, ROOT / "tests/mpi/ended_rank.py", case]
    began = time.monotonic()
    done = subprocess.run(
        list(map(os.fspath, words)), cwd=folder, env=env, capture_output=True, text=True, timeout=90
    )
    return done.returncode, done.stderr, time.monotonic() - began


def check(library, folder, case, **how):
    code, said, seconds = ends(library, folder, case, **how)
    told = case, how, code, seconds, said
    if "later" in case:
        assert code == 0, told
        assert "aborted" not in said, told
        return
    assert code != 0, told
    assert seconds < 30, told
    assert "the job is aborted" in said, told
    if "raise" in case:
        assert "ValueError: this rank failed" in said, told
    else:
        assert "waits for it in a collective call" in said, told


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_a_rank_that_ends_ends_the_job(tmp_path, library):
    for case in ("raise, others compute", "exit(0), others call", "exit(0), others end later"):
        check(library, tmp_path, case)


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_each_way_to_end_slow(tmp_path, library):
    for case in CASES:
        check(library, tmp_path, case)
        check(library, tmp_path, case, ranks=4, nodes=2)
        if "call" in case:
            check(library, tmp_path, case, ranks=2, nodes=2)
