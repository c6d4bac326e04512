"""
Every algorithm in a control group that has its budget and little more.

Each runs in a process of its own, whose group has the budget and 64 MiB, on files several times larger.
Who holds more is killed by the system. The group's page cache is what is left of it: who reads pages
again that it pushed out, or has them written in part and read again, moves more bytes than its report
says. The system counts them for the process (/proc/self/io).
"""

import numpy as np
import pytest
from groups import group_of, told_by

import outcore
from algorithm_runs import in_files, larger, must_be_right
from algorithms import CASES
from page_cache import forget

MIB = 2**20
ALLOWANCE = 64 * MIB
# Each kind of schedule once.
QUICK = ("transpose", "stencil", "sum", "fft", "matmul by blocks")


@pytest.mark.parametrize(
    ("name", "budget", "times"),
    [(name, 8 * MIB, 6) for name in QUICK]
    + [pytest.param(name, 16 * MIB, 8, id=f"{name}_slow") for name in CASES],
)
def test_it_holds_its_budget_and_moves_what_it_says(tmp_path, monkeypatch, name, budget, times):
    monkeypatch.chdir(tmp_path)
    case = in_files(name, made=False)
    case.inputs = larger(case, times * budget)
    for path, data in zip(case.paths, case.inputs, strict=True):
        cold(path, data)
    told = in_a_group(budget, name)
    found = [outcore.open(path) for path in case.out]
    if times < 8:
        must_be_right(case, [array[...] for array in found])
    for array in found:
        array.close()
    if told["outside"][0] == 0:
        pytest.skip("files of the temporary folder are on no disk: nothing is moved")
    said = sum(told["report"]["planned"])
    print(name, {**told, "said": said, "ratio": sum(told["outside"]) / said})
    assert sum(told["outside"]) <= 1.15 * said
    assert told["report"]["bound"] <= said
    assert sum(told["report"]["measured"]) <= 1.1 * said
    assert max(told["report"]["peak"]) <= budget


def cold(path, array):
    """A file with this array, of which nothing is in the page cache."""
    np.save(path, array)
    forget(path)


def in_a_group(budget, name):
    with group_of(budget + ALLOWANCE) as group:
        if group is None:
            pytest.skip("no control group can be made: the memory of algorithms is NOT tested")
        return told_by("algorithm_work.py", group, name, budget)
