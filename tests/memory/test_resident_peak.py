"""
The budget of what moves elements of distributed arrays: sections, one-sided accesses, checkpoints.

Two ranks in a control group that has the budget of each, the arrays that they have, and what Python
takes: who held more would be ended by the system. The files are larger than the budgets.
"""

import pytest
from groups import group_of, told_by

MIB = 2**20
#: Of a process: modules, threads, mapped files.
ALLOWANCE = 64 * MIB
#: The budget of a process, what its ranks have besides, and how many processes there are.
CASES = {
    "plain": (12, 9, 2),
    "chunks": (16, 9, 2),
    "one-sided": (32, 24, 1),
    "checkpoint": (24, 24, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_it_stays_in_the_budget(tmp_path, case):
    budget, arrays, number = CASES[case]
    budget, limit = budget * MIB, (budget + arrays) * MIB + ALLOWANCE
    with group_of(number * limit) as group:
        ranks = told_by("resident_work.py", case, group or "", tmp_path, budget)
    for told in ranks:
        most, held, resident = (told[name] / MIB for name in ("peak", "held", "resident"))
        print(f"{case}: {most:.1f} MiB counted, {held:.1f} at the end, {resident:.1f} resident")
        # A peak far below the budget would mean that something is not counted.
        assert budget // 16 <= told["peak"] <= budget
        assert told["held"] <= budget // 2
        assert told["resident"] <= limit
