"""
Index lists larger than memory, in a control group that has the budget and little more.

The addresses of the list alone would take more than the group has: who held them would be ended by the
system. List, values and result are on disk.
"""

import numpy as np
import pytest
from groups import group_of, told_by

MIB = 2**20
BUDGET, ALLOWANCE = 8 * MIB, 64 * MIB
NUMBER, ELEMENTS = 3_200_000, MIB


def test_a_schedule_of_a_list_larger_than_the_memory_of_the_process(tmp_path):
    assert NUMBER * 24 > BUDGET + ALLOWANCE
    rng = np.random.default_rng(0)
    data, values = rng.standard_normal(ELEMENTS), rng.standard_normal(NUMBER)
    indices = rng.integers(-ELEMENTS, ELEMENTS, NUMBER)
    indices[NUMBER // 2 :: 3] = 77
    for name, array in {"a": data, "indices": indices, "values": values}.items():
        np.save(tmp_path / f"{name}.npy", array)
    with group_of(BUDGET + ALLOWANCE) as group:
        if group is None:
            pytest.skip("no control group can be made: the memory of long lists is NOT tested")
        told = told_by("lists_work.py", group, tmp_path, BUDGET)
    np.add.at(data, indices, values)
    assert data[indices].tobytes() == np.load(tmp_path / "out.npy").tobytes()
    np.maximum.at(data, indices, values)
    assert data.tobytes() == np.load(tmp_path / "a.npy").tobytes()
    assert told["peak"] <= BUDGET
