"""
Every public algorithm, interrupted at a random step: the same call goes on and ends in the same bytes.

`OUTCORE_EXAMPLES` sets the number of examples of each algorithm in the long lane.
"""

import importlib
import inspect
import os
import warnings

import numpy as np
import pytest

import outcore
from algorithm_runs import content, left
from outcore.compute import jobs
from outcore.public import find_public
from stopping import Stop
from sweep import CALLS, Chance

EXAMPLES = int(os.environ.get("OUTCORE_EXAMPLES", "60"))
#: Of some only the first result goes where `out` says.
ONE = {"histogram"}
checkpoints = importlib.import_module("outcore.compute.jobs.checkpoints")


#: Its call says itself where the result goes (`algorithms.CASES` has it).
ELSEWHERE = {"rechunk"}


def takes_a_path(name):
    return name not in ELSEWHERE and "out" in inspect.signature(find_public(name)).parameters


@pytest.mark.parametrize("name", list(filter(takes_a_path, CALLS)))
def test_interrupted_calls_resume_to_the_same_bytes_slow(tmp_path, monkeypatch, name):
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    tried = 0
    for seed in range(10 * EXAMPLES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.chdir(folder)
        tried += is_right(name, Chance(seed))
        if tried == EXAMPLES:
            return
    assert tried, "no example has several steps"


def is_right(name, chance):
    """Interrupt one example; False if it cannot be, since it has not enough steps, or is refused."""
    case = CALLS[name](chance)
    inputs = [f"in{n}.npy" for n in range(len(case.inputs))]
    for path, data in zip(inputs, case.inputs, strict=True):
        np.save(path, data)

    def call(**words):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return case.call(*inputs, **words)

    try:
        found = call()
    except (outcore.OutcoreError, ValueError, TypeError, IndexError):
        return False
    count = len(found) if isinstance(found, tuple) and name not in ONE else 1
    del found  # temporary arrays
    outs = [f"out{n}.npy" for n in range(count)]
    words: dict[str, object] = {"out": tuple(outs) if count > 1 else outs[0]}
    words["memory"] = smallest(lambda **more: call(**words, **more, overwrite=True))
    calls = []
    call(**words, overwrite=True, progress=lambda done, total: calls.append(done))
    if len(calls) < 2:
        return False
    whole = [content(path) for path in outs]
    point = chance.number(1, len(calls) - 1)

    def stop(done, total):
        if done >= calls[point]:
            raise Stop

    for path in outs:
        os.unlink(path)
    with pytest.raises(Stop):
        call(**words, progress=stop)
    assert not any(map(os.path.exists, outs))
    for job in jobs.unfinished():
        assert job.done
    call(**words, resume=True)
    assert [content(path) for path in outs] == whole
    assert left() == []
    return True


def smallest(call):
    """The smallest budget that it says it needs; some that read twice tell of each time."""
    memory = 1
    for _ in range(6):
        try:
            call(memory=memory)
        except outcore.BudgetError as error:
            memory = error.needed
        else:
            break
    return memory
