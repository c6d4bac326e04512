"""
Ranks that are killed at each step of a call: of writes, checkpoints, names of arrays that change.

Nobody hangs: those that live raise. There is the old state or the new one, never a mixture (of elements
that are written at their place each is old or new, and the file is whole), and whoever comes next goes
on and leaves nothing behind. One rank is killed, or all of them; by forked processes at every step,
under mpiexec at some of them (``_slow``: at all).
"""

import contextlib
import os
import signal
import traceback

import pytest

import killed
from mpi import forked
from mpi.call_steps import Steps, constructors
from mpi.killed_calls import CALLS, emptied, files
from mpi.real import ROOT, Job
from outcore.errors import CollectiveError
from outcore.ranks.transport import nodememory

pytestmark = pytest.mark.simulated  # starts its processes itself

DONE, RAISED, WRONG = 0, 7, 71
#: Of the first rank and of the last: how many of their steps are tried, of some calls.
USUAL = {
    "checkpoint": (1000, 6),
    "write to chunks": (4, 12),
    "temporary chunks": (12, 6),
    "rename elsewhere": (16, 4),
    "groups of hdf5": (6, 4),
    "convert a group": (10, 3),
}
TOGETHER = [name for name, call in CALLS.items() if not call.first]


@pytest.fixture
def quick(tmp_path, monkeypatch):
    with killed.quick_folder(tmp_path) as folder:
        # Where nobody else makes shared memory.
        (folder / "memory").mkdir()
        monkeypatch.setattr(nodememory, "_get_folder", lambda: folder / "memory")
        yield folder


def run(call, folder, size, victim, step, *, every):
    """
    Kill a rank at a step, or all when it comes there; exit codes, and what the ranks said.

    Step 0: nobody is killed, and the victim says how many steps it has.
    """
    said = folder / "said"
    said.write_text("")

    def body(t, pids):
        def die(name):
            for pid in pids if every else ():
                if pid != os.getpid():
                    with contextlib.suppress(ProcessLookupError):  # it has noticed, and ended
                        os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

        constructors()
        mine = t.rank == victim
        try:
            with Steps(step if mine else 0, die, together=True, started=True) as steps:
                call.act(folder / "place", t)
        except CollectiveError as error:
            if (error.code, error.ranks) == ("rank-died", (victim,)):
                return RAISED
            traceback.print_exc()
            return WRONG
        except BaseException:
            traceback.print_exc()
            return WRONG
        if mine and not step:
            said.write_text(str(len(steps.seen)))
        return DONE

    return forked.run(size, body, said), killed.last_words(said)


def at_steps(number, most):
    """At most so many of all steps, the first and the last one included."""
    if number <= most:
        return list(range(1, number + 1))
    return sorted({1 + round(k * (number - 1) / (most - 1)) for k in range(most)})


def each_step(name, folder, size, victim, every, most=10**6):
    """Kill at the first step, then at the next, to the last one; what was found each time."""
    call, place = CALLS[name], folder / "place"

    def after(step):
        call.prepare(emptied(place))
        all_of_them = every(step)
        codes, told = run(call, folder, size, victim, step, every=all_of_them)
        alive = [code for rank, code in enumerate(codes) if rank != victim]
        died = codes[victim] == -signal.SIGKILL
        told = f"step {step} of rank {victim}, {codes}: {told}"
        assert not died or all_of_them or set(alive) <= {DONE, RAISED}, told
        assert died or set(codes) == {DONE}, told
        try:
            state = call.check(place)
            call.again(place)
        except BaseException as error:
            error.add_note(told)
            raise
        assert died or state == call.new, told
        nodememory.sweep()
        assert files(folder / "memory") == [], told
        return died, state

    after(0)
    number = int((folder / "said").read_text())
    ends = [after(step) for step in at_steps(number, most)]
    # Which rank flushes a file for all is not always the same: there may be more steps this time.
    while ends[-1][0]:
        number += 1
        ends.append(after(number))
    # Who closes a temporary array last has up to twice as much to do, and that may be anybody: those who
    # do not come to a step have done all that they have to.
    assert sum(died for died, _ in ends) >= len(ends) // 3
    return [state for _, state in ends]


def is_switched(name, found):
    """What the first rank does, changes all at once."""
    call = CALLS[name]
    if call.old != call.new and call.new != "new":
        first, last = found.index(call.new), len(found) - 1 - found[::-1].index(call.old)
        # Which rank flushes a file for all is not always the same: some steps more or less.
        files = 4 if name == "convert a group" else 1
        assert first > 3, found
        assert -2 - files < last - first < 1 + files, found


@pytest.mark.parametrize("name", USUAL)
def test_killed_at_each_step(quick, name):
    """One rank, or all, by turns."""
    for victim, most in enumerate(USUAL[name]):
        found = each_step(name, quick, 2, victim, lambda step: step % 3 == 0, most)
        if victim == 0:
            is_switched(name, found)


@pytest.mark.parametrize("name", TOGETHER)
def test_killed_at_each_step_slow(quick, name):
    """One rank, or all, by turns; each step has both, with another victim."""
    for size in (2, 3):
        for victim in range(size):
            found = each_step(name, quick, size, victim, lambda step: (step + victim) % 2 == 0)  # noqa: B023
            assert len(found) > 10
            if victim == 0:
                is_switched(name, found)


# Under mpiexec


def under_mpiexec(library, folder, name, victim, most):
    """Kill a rank at some steps: the others raise, or mpiexec ends them."""
    call, size = CALLS[name], 2
    place, here = folder / "place", folder / "here"

    def job(step):
        call.prepare(emptied(place))
        words = [ROOT / "tests" / "mpi" / "step_rank.py", place, name, victim, step]
        return Job(library, emptied(here), words, size)

    def steps():
        """How many there are; forked ranks have the same, but know of no command of all ranks."""
        if not call.first:
            call.prepare(emptied(place))
            return int(run(call, folder, size, victim, 0, every=False)[1])
        began = job(0)
        said = began.end()
        assert began.code == 0 and call.check(place) == call.new, said
        return int(began.told(f"steps-{victim}"))

    number = steps()
    for step in at_steps(number, most):
        began = job(step)
        alive = {rank for rank in range(size) if rank != victim and began.recovers}
        said = began.end(alive)
        for rank in alive:
            told = began.told(f"told-{rank}")
            assert told == "done" or "CollectiveError: [rank-died]" in told, (step, told)
        nodememory.sweep()  # other tests look for what is left
        try:
            call.check(place)
            call.again(place)
        except BaseException as error:
            error.add_note(f"step {step} of {number} of rank {victim}, {name}: {said}")
            raise
    return number


REAL = [
    ("checkpoint", 0, 3),
    ("checkpoint", 1, 2),
    ("write to chunks", 1, 2),
    ("temporary chunks", 0, 2),
    ("rename elsewhere", 0, 2),
    ("mv", 0, 2),
    ("cp", 0, 2),
]


@pytest.mark.parametrize(
    ("library", "some"),
    [("mpich", REAL[:2]), ("mpich", REAL[2:]), ("openmpi", REAL)],
    ids=["mpich, checkpoint", "mpich", "openmpi"],
)
def test_killed_under_mpiexec(tmp_path, library, some):
    for name, victim, most in some:
        number = under_mpiexec(library, tmp_path, name, victim, most)
        assert number >= 5, name


@pytest.mark.parametrize("name", CALLS)
def test_killed_at_many_steps_under_mpiexec_slow(tmp_path, name):
    """Forked ranks are killed at each step; here it matters how a library ends ranks: one by turns."""
    for victim in (0,) if CALLS[name].first else (0, 1):
        library = ("openmpi", "mpich")[(list(CALLS).index(name) + victim) % 2]
        under_mpiexec(library, tmp_path, name, victim, 12)
