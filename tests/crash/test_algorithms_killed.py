"""
Algorithms that are killed or interrupted at random moments, and what goes on, or is removed, afterwards.

A process that makes one call of `algorithms` is killed, and so is one that goes on with it by
``outcore resume``; or it is sent what Ctrl-C sends, and ends by itself. At last the job is completed, or
all that is left of it is removed, or it is to go on with another input; that depends on chance, too.
``OUTCORE_SEED`` repeats a run.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import outcore
from algorithm_runs import command, content, in_files, left, remove, run, work
from algorithms import CASES
from outcore.compute import jobs

#: Seconds after which who was interrupted hangs.
PATIENCE = 60
#: What comes after the last kill of a case, as often as it is here.
ENDS = ("call", "call", "resume", "resume", "clean", "changed")


class Killed:
    """One case in a folder, whose processes are killed."""

    def __init__(self, name: str, folder: Path, chance: random.Random) -> None:
        self.name, self.folder, self.chance = name, folder, chance
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["algorithm_runs", "outcore.cli"])
        folder.mkdir()
        os.chdir(folder)
        self.case = in_files(name)
        run(self.case)
        self.whole = self.results()
        self.forget()
        process = self.begun(work, name)
        self.wait_until_it_has_begun(process)
        before = time.monotonic()
        process.join()
        self.seconds = time.monotonic() - before
        assert process.exitcode == 0
        assert self.results() == self.whole
        self.forget()

    def results(self):
        return [content(name) for name in self.case.out]

    def forget(self) -> None:
        for name in self.case.out:
            if os.path.exists(name):
                remove(name)

    def begun(self, what, *words):
        process = self.context.Process(target=what, args=(str(self.folder), *words))
        process.start()
        return process

    def does(self, what, *words) -> int:
        process = self.begun(what, *words)
        process.join()
        return process.exitcode

    def wait_until_it_has_begun(self, process) -> None:
        while process.is_alive() and not jobs.unfinished():
            time.sleep(0.001)

    def is_complete(self) -> bool:
        return not jobs.unfinished() and all(map(os.path.exists, self.case.out))

    def kill(self, gently: bool = False) -> str:
        """Kill whoever works on it, at a moment when it may have begun, or ended; what was killed."""
        if self.is_complete():
            assert self.results() == self.whole
            self.forget()
        resumes = (
            any(one.state == "resumable" for one in jobs.unfinished())
            and self.chance.random() < 0.5
        )
        process = self.begun(command, "resume", ".") if resumes else self.begun(work, self.name)
        if self.chance.random() < 0.9:
            self.wait_until_it_has_begun(process)
        process.join(self.chance.random() * self.seconds)
        if gently:
            self.interrupt(process)
        else:
            process.kill()
        process.join()
        return ("resume" if resumes else "call") + ("" if process.exitcode else ", at its end")

    def interrupt(self, process) -> None:
        """As Ctrl-C does: nothing is left that would not be worth going on from."""
        if process.is_alive():
            os.kill(process.pid, signal.SIGINT)
        process.join(PATIENCE)
        assert not process.is_alive(), "it hangs"
        found = jobs.unfinished()
        if process.exitcode and process.exitcode > 0:
            assert all(one.done for one in found)
        if not found:
            assert left() == []

    def end(self, how: str) -> str:
        """Complete it, or remove it; what was done."""
        found = jobs.unfinished()
        assert len(found) <= 1
        state = found[0].state if found else "not there"
        if how == "clean":
            assert self.does(command, "jobs", "--clean", ".") == 0
            assert left() == [], "something is left"
            self.forget()
        if how == "changed" and found and found[0].done:
            data = self.case.inputs[0]
            np.save("in0.npy", data + data.dtype.type(1))
            with pytest.raises(outcore.errors.UsageError, match="source time"):
                run(self.case, resume=True)
            if state == "resumable":
                assert self.does(command, "resume", ".") != 0
                assert "source time" in Path("in-told.txt").read_text()
            assert self.does(command, "jobs", "--clean", ".") == 0
            assert left() == [], "something is left"
            self.forget()
            np.save("in0.npy", data)
        if how == "resume" and state == "resumable":
            assert self.does(command, "resume", ".") == 0
        elif not self.is_complete():
            assert self.does(work, self.name) == 0
        assert self.results() == self.whole
        assert left() == []
        return f"{how} of what was {state}"


@pytest.mark.parametrize("kills", [6, pytest.param(100, id="100_slow")])
@pytest.mark.parametrize("gently", [False, True], ids=["killed", "interrupted"])
def test_runs_killed_at_random_resume_to_the_same_bytes(tmp_path, monkeypatch, kills, gently):
    seed = int(os.environ.get("OUTCORE_SEED", random.randrange(1 << 30) if kills > 6 else 18))
    print(f"seed {seed}")
    monkeypatch.chdir(tmp_path)
    chance, seen = random.Random(seed), Counter()
    # Each case before any of them comes again.
    names = [name for _ in range(kills) for name in chance.sample(sorted(CASES), len(CASES))]
    while kills > 0:
        name = names.pop(0)
        killed = Killed(name, tmp_path / str(len(names)), chance)
        times = min(chance.randint(1, 4), kills)
        kills -= times
        told = [killed.kill(gently) for _ in range(times)]
        told.append(killed.end(chance.choice(ENDS)))
        print(f"{name}: {', then '.join(told)}")
        seen.update(told)
        monkeypatch.chdir(tmp_path)
        remove(killed.folder)
    print(seen)
