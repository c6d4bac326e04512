"""Partitions and edge loops keep to the budget, measured from outside: the system's high-water mark."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

WORK = Path(__file__).with_name("unstructured_work.py")
MIB = 2**20
BUDGET, ALLOWANCE = 16 * MIB, 64 * MIB  # modules, threads, mapped files


def call(*words):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "2"}
    command = [sys.executable, str(WORK), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_edge_loop_eight_times_larger_than_its_budget_slow(tmp_path):
    call(tmp_path, "make")
    arrays = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert arrays > 8 * BUDGET
    grown = int(call(tmp_path, BUDGET))
    y, edges = np.load(tmp_path / "y.npy"), np.load(tmp_path / "edges.npy")
    expected = np.zeros_like(y)
    np.add.at(expected, edges[:, 0], y[edges[:, 1]])
    np.add.at(expected, edges[:, 1], y[edges[:, 0]])
    assert expected.tobytes() == np.load(tmp_path / "x.npy").tobytes()
    assert grown < BUDGET + ALLOWANCE, f"{grown / MIB:.0f} MiB"
