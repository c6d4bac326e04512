"""
Ranks under mpiexec that are killed at random moments: one of them, or all, and what goes on afterwards.

Those that live end by themselves, with an error that says what to do. The same call goes on, with other
numbers of ranks, and ends in the same bytes. ``OUTCORE_SEED`` repeats a run.
"""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import outcore
from algorithm_runs import content, in_files, left, must_be_right, remove, run
from algorithms import CASES
from mpi.real import ROOT, Job
from outcore.compute.jobs.journal import Journal, make_rank_path

pytestmark = pytest.mark.simulated  # starts mpiexec itself

NAMED = sorted(name for name in CASES if CASES[name]().outs)


class Killed:
    """One case in a folder, whose ranks are killed."""

    def __init__(self, name, folder, library, chance):
        self.name, self.folder, self.library, self.chance = name, folder, library, chance
        folder.mkdir()
        os.chdir(folder)
        self.case = in_files(name)
        run(self.case)
        self.whole = self.results()
        self.forget()
        self.journal = f"{self.case.out[0]}.outcore-journal"
        began = self.begin(2)
        self.wait_until_it_has_begun(began, 2)
        before = time.monotonic()
        assert not began.end()
        self.seconds = time.monotonic() - before
        self.is_right()

    def results(self):
        return [content(name) for name in self.case.out]

    def forget(self):
        for name in self.case.out:
            if os.path.exists(name):
                remove(name)

    def begin(self, size):
        """Ranks that make the call, or go on with it."""
        for one in Path().glob("in-*-*"):
            one.unlink()
        words = [ROOT / "tests" / "mpi" / "killed_rank.py", self.folder, self.name]
        self.began = time.time()
        return Job(self.library, self.folder, words, size, prefix="in-")

    def wait_until_it_has_begun(self, job, size):
        """All ranks have synchronised; or it has ended."""
        there = [f"pid-{rank}" for rank in range(size)]
        while job.code is None and not job.has_told(there):
            time.sleep(0.001)

    def kill(self):
        """Kill one rank of a run, or all, at a moment when it is at work; what was killed."""
        if not os.path.exists(self.journal):
            self.forget()
        size = self.chance.randint(2, 3)
        job = self.begin(size)
        self.wait_until_it_has_begun(job, size)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(self.chance.random() * self.seconds)
        victims = [self.chance.randrange(size)] if self.chance.random() < 0.7 else range(size)
        # In a session of their own: nobody else has these numbers while mpiexec is there.
        for rank in victims if job.code is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job.told(f"pid-{rank}")), signal.SIGKILL)
        at_end = job.code == 0
        alive = set(range(size)) - set(victims) if job.recovers else set()
        job.end(alive)
        for rank in alive:
            self.says_what_to_do(rank)
        return f"{len(victims)} of {size}" + (", at its end" if at_end else "")

    def says_what_to_do(self, rank):
        """Of a rank that lived while another was killed."""
        told = Path(f"in-told-{rank}").read_text()
        if told != "done":
            assert "CollectiveError: [rank-died]" in told, told
            assert "start the job again" in told
            # What is worth going on from stays, and is told.
            assert "resume=True" in told or not self.recorded(rank), told

    def recorded(self, rank):
        """Whether a rank has steps in its journal, and wrote there since it began."""
        path = make_rank_path(self.journal, rank) if rank else self.journal
        if not os.path.exists(path) or os.stat(path).st_mtime < self.began:
            return False
        with Journal(path, look=True) as journal:
            return len(journal.done) > 0

    def is_left(self):
        """Whether it is not complete."""
        return os.path.exists(self.journal) or not os.path.exists(self.case.out[0])

    def is_right(self):
        assert left() == []
        if self.case.bits:
            assert self.results() == self.whole
        else:
            found = []
            for name in self.case.out:
                with outcore.open(name) as array:
                    found.append(array[...])
            must_be_right(self.case, found)


@pytest.mark.parametrize(
    ("library", "kills"),
    [
        ("openmpi", 2),
        pytest.param("openmpi", 50, id="openmpi-50_slow"),
        pytest.param("mpich", 10, id="mpich-10_slow"),
    ],
)
def test_ranks_killed_at_random_resume_to_the_same_bytes(tmp_path, monkeypatch, library, kills):
    seed = int(os.environ.get("OUTCORE_SEED", random.randrange(1 << 30) if kills > 2 else 18))
    print(f"seed {seed}")
    monkeypatch.chdir(tmp_path)
    chance, seen = random.Random(seed), Counter()
    names = [name for _ in range(kills) for name in chance.sample(NAMED, len(NAMED))]
    while kills > 0:
        name = names.pop(0)
        killed = Killed(name, tmp_path / str(len(names)), library, chance)
        killed.forget()
        times = min(chance.randint(2, 4), kills)
        kills -= times
        told = [killed.kill() for _ in range(times)]
        if killed.is_left():
            size = chance.randint(1, 3)
            told.append(f"ended by {size}")
            said = killed.begin(size).end()
            assert not killed.is_left(), said
        killed.is_right()
        print(f"{name}: {', then '.join(told)}")
        seen.update(told)
        monkeypatch.chdir(tmp_path)
        remove(killed.folder)
    print(seen)
