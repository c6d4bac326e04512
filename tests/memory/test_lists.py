"""
Index lists larger than memory, in a control group that has the budget and little more.

The addresses of the list alone would take more than the group has: who held them would be ended by the
system. List, values and result are on disk.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from groups import make_group

MIB = 2**20
BUDGET, ALLOWANCE = 8 * MIB, 64 * MIB
NUMBER, ELEMENTS = 3_200_000, MIB
WORK = Path(__file__).with_name("lists_work.py")


def test_a_schedule_of_a_list_larger_than_the_memory_of_the_process(tmp_path):
    group = make_group(BUDGET + ALLOWANCE)
    if group is None:
        pytest.skip("no control group can be made: the memory of long lists is NOT tested")
    assert NUMBER * 24 > BUDGET + ALLOWANCE
    rng = np.random.default_rng(0)
    data, values = rng.standard_normal(ELEMENTS), rng.standard_normal(NUMBER)
    indices = rng.integers(-ELEMENTS, ELEMENTS, NUMBER)
    indices[NUMBER // 2 :: 3] = 77
    for name, array in {"a": data, "indices": indices, "values": values}.items():
        np.save(tmp_path / f"{name}.npy", array)
    try:
        done = subprocess.run(
            [sys.executable, WORK, group, tmp_path, str(BUDGET)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        group.rmdir()
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    np.add.at(data, indices, values)
    assert data[indices].tobytes() == np.load(tmp_path / "out.npy").tobytes()
    np.maximum.at(data, indices, values)
    assert data.tobytes() == np.load(tmp_path / "a.npy").tobytes()
    assert json.loads(done.stdout)["peak"] <= BUDGET
