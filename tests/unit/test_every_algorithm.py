"""What holds for every algorithm: its schedule, its bytes, its memory, restart, and what is refused."""

import importlib
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import outcore
from algorithm_runs import (
    KILLED,
    call,
    content,
    fix_disk,
    in_files,
    left,
    must_be_right,
    remove,
    run,
)
from algorithms import CASES
from outcore import _core
from outcore.arrays import measured
from outcore.arrays.schedule import ScheduleRun
from outcore.compute import jobs
from schedule_check import check_schedule
from stopping import Stop, stop_after

carry = importlib.import_module("outcore.compute.jobs.carry")
checkpoints = importlib.import_module("outcore.compute.jobs.checkpoints")


@pytest.fixture(params=CASES)
def case(request, tmp_path, monkeypatch):
    """A case in a folder, with its inputs in files."""
    monkeypatch.chdir(tmp_path)
    fix_disk()
    yield in_files(request.param)
    measured.apply_parameters()


def test_schedules_pass_the_check_and_can_be_done_again(case, monkeypatch):
    checked = []

    def checking(schedule, arrays, **more):
        shapes = [a.shape for a in arrays][: len(schedule.arrays)]  # later phases add arrays
        check_schedule(schedule, shapes, again=True)
        checked.append(schedule)
        return ScheduleRun(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", checking)
    must_be_right(case, run(case))
    assert sum(schedule.steps for schedule in checked) > 1


def test_it_stays_within_the_budget(case):
    limit = outcore.memory()
    _core.reset_memory_peak()
    before = _core.memory_state()[0]
    run(case)
    assert _core.memory_state()[2] - before <= case.memory
    assert _core.memory_state()[0] == before
    assert outcore.memory() == limit


def test_reports_are_at_least_the_lower_bound(case):
    planned = call(case, explain=True)
    told = planned.report
    assert told.steps > 1
    assert told.read_bytes + told.written_bytes >= told.lower_bound_bytes > 0
    assert told.peak_bytes <= case.memory
    assert told.lower_bound_name in str(planned)
    planned.run()
    assert "measured" in str(planned)


def test_interrupted_runs_resume_to_the_same_bytes(case, monkeypatch):
    """At every point of the work; the bytes are those of a run that nobody interrupted."""
    if not case.outs:
        pytest.skip("what is returned in memory begins anew")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    must_be_right(case, run(case))
    whole = [content(name) for name in case.out]
    calls = []
    run(case, overwrite=True, progress=lambda done, total: calls.append(done))
    points = sorted({1, 2, len(calls) // 2, len(calls) - 1})
    for point in points:
        for name in case.out:
            remove(name)
        interrupt(case, point)
        assert not any(os.path.exists(name) for name in case.out)
        seen = []
        run(case, resume=True, progress=lambda done, total: seen.append(done))  # noqa: B023
        assert [content(name) for name in case.out] == whole
        assert left() == []


@pytest.mark.parametrize("kills", [1, pytest.param(5, id="5_slow")])
def test_killed_runs_resume_to_the_same_bytes(case, request, kills):
    """At a random moment; the bytes are those of a run that nobody killed."""
    if not case.outs:
        pytest.skip("what is returned in memory begins anew")
    run(case)
    whole = [content(name) for name in case.out]
    for name in case.out:
        remove(name)
    name = request.node.callspec.params["case"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    chance = random.Random(kills)
    command = [sys.executable, "-c", KILLED, name]
    for _ in range(kills):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            for _ in range(chance.randint(1, 4)):
                process.stdout.readline()
            time.sleep(chance.random() * 0.02)
            process.send_signal(signal.SIGKILL)
        if all(os.path.exists(name) for name in case.out) and not jobs.unfinished():
            break
    else:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    assert [content(name) for name in case.out] == whole
    assert left() == []


def interrupt(case, calls):
    with pytest.raises(Stop):
        run(case, progress=stop_after(calls))


def test_a_journal_says_how_to_go_on(case, monkeypatch):
    if not case.outs:
        pytest.skip("what is returned in memory has no journal")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    interrupt(case, case.begun)
    (entry,) = jobs.unfinished()
    assert entry.state == ("resumable" if case.repeatable else "repeat")
    assert 0 < entry.done < entry.steps
    if case.repeatable:
        assert jobs.resume() == [os.path.abspath(name) for name in case.out]
        must_be_right(case, [outcore.open(name)[...] for name in case.out])
    else:
        assert jobs.resume() == []
        jobs.clean(entry)
        assert not any(os.path.exists(name) for name in case.out)
    assert left() == []


def test_another_input_is_noticed(case, monkeypatch):
    if not case.outs:
        pytest.skip("what is returned in memory has no journal")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    interrupt(case, case.begun)
    time.sleep(0.01)
    np.save("in0.npy", np.array(case.inputs[0]) + case.inputs[0].dtype.type(1))
    with pytest.raises(outcore.errors.UsageError, match="source time"):
        run(case, resume=True)


def test_a_budget_that_is_too_small_is_told_with_one_that_does(case):
    with pytest.raises(outcore.BudgetError) as refused:
        run(case, memory=1000)
    assert left() == []
    must_be_right(case, run(case, memory=refused.value.needed))


def test_a_failure_leaves_no_trace_and_inputs_are_as_they_were(case, monkeypatch):
    before = [content(path) for path in case.paths]

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outcore.DiskArray, "iwrite", fail)
    monkeypatch.setattr("outcore.compute.jobs.memory.InMemory.iwrite", fail)
    with pytest.raises(OSError, match="space"):
        run(case)
    assert left() == []
    assert [content(path) for path in case.paths] == before


@pytest.mark.parametrize("start", [1, 20_000, 200_000])
def test_the_budget_that_is_named_does_at_once_and_not_much_less(case, start):
    try:
        call(case, memory=start, explain=True)
    except outcore.BudgetError as error:
        needed = error.needed
    else:
        return
    assert call(case, memory=needed, explain=True).report.peak_bytes <= needed
    if needed * 15 // 16 > start:
        with pytest.raises(outcore.BudgetError):
            call(case, memory=needed * 15 // 16, explain=True)
