"""Waits end: by warnings, time, dead ranks, Ctrl-C; and all ranks raise the same."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import outcore
from clock import until
from outcore.ranks.transport import watchdog
from outcore.ranks.transport.place import SECOND
from outcore.ranks.transport.timeouts import DeferredInterrupt, Patience, decode, encode
from outcore.testing.sim import SimWorld
from ranks import ranks


def together(t):
    counts = np.full(t.size, 3)
    t.start_exchange(
        np.zeros(counts.sum(), np.uint8), counts, bytearray(counts.sum()), counts
    ).wait()


def impatient(t, **seconds):
    """From now on; what was before took as long as it took."""
    t.watchdog.patience = Patience(**seconds)
    t._node_barrier.set_tick(t.watchdog.patience.tick)


def was_stopped(t):
    try:
        t.watchdog.check_far()
    except outcore.errors.CollectiveError:
        return True
    return False


CALLS = {
    "barrier": lambda t: t.barrier(),
    "agree": lambda t: t.agree(1),
    "allgather": lambda t: t.allgather(np.zeros(64, np.int64)),
    "allgather_bytes": lambda t: t.allgather_bytes(b"abc"),
    "split": lambda t: t.split(0, 0),
    "start_exchange": together,
}


@ranks(4, per_node=(None, 2))
@pytest.mark.parametrize("name", CALLS)
def test_a_late_rank_is_named_and_all_raise(world, name):
    """The late rank too, at once, when it comes."""
    call = CALLS[name]

    def call_and_meet(t):
        call(t)
        t.barrier()

    def body(t):
        late = t.size - 1
        t.barrier()
        if t.rank == late:
            until(lambda: was_stopped(t))
        else:
            impatient(t, timeout=0.2)
        with pytest.raises(outcore.errors.CollectiveError) as caught:
            call_and_meet(t)
        with pytest.raises(outcore.errors.CollectiveError) as again:
            t.agree(0)
        assert str(again.value) == str(caught.value)
        return str(caught.value), caught.value.code, caught.value.ranks

    results = world.run(body)
    late = world.size - 1
    for text, code, missing in results:
        assert code == "timeout"
        assert late in missing
        assert name in text
        assert "OUTCORE_TIMEOUT" in text


@pytest.fixture
def warnings(monkeypatch):
    """What ranks have said; they say it all the same."""
    said, plain = [], watchdog._print

    def say(text):
        plain(text)
        said.append(text)

    monkeypatch.setattr(watchdog, "_print", say)
    return said


@pytest.mark.simulated
def test_the_first_who_waits_warns_once(capfd, warnings):
    def body(t):
        t.barrier()
        steps = t._node_barrier.steps
        if t.rank == 1:
            until(lambda: warnings)
            time.sleep(0.2)  # for others to say something, too
        elif t.rank:
            until(lambda: t._node_barrier.seen()[0][0] > steps)  # rank 0 is the first who waits
        if t.rank != 1:
            impatient(t, warn=0.05)
        t.agree(3)

    SimWorld(4).run(lambda t: t.agree(3))
    assert capfd.readouterr().err == ""
    SimWorld(4).run(body)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert "rank 0 waited" in lines[0]
    assert "in agree for rank 1 of 4" in lines[0]


@pytest.mark.simulated
def test_a_leader_warns_of_other_nodes(capfd, warnings):
    groups = {}

    def body(t):
        groups[t.rank] = t
        t.barrier()
        steps = t._node_barrier.steps
        if t.rank == 5:
            # All others have come, and the leaders know that they wait for the last node alone.
            until(lambda: t._node_barrier.seen()[0][0] > steps)
            for leader in (0, 2):
                node_barrier = groups[leader]._node_barrier
                until(lambda n=node_barrier: n.seen()[1][0] > steps and n.seen()[1][1] == SECOND)
                until(lambda n=node_barrier: n.noted() == [2])
            for rank in range(5):
                impatient(groups[rank], warn=0.0)
            until(lambda: len(warnings) >= 3)
        t.barrier()

    SimWorld(6, 2).run(body)
    lines = sorted(capfd.readouterr().err.splitlines())
    assert [line.split(" waited")[0] for line in lines] == [
        f"outcore: rank {rank}" for rank in (0, 2, 4)
    ]
    assert all("for ranks 4-5 of 6" in line for line in lines[:2])
    assert "for rank 5 of 6" in lines[2]


@pytest.mark.simulated
@pytest.mark.parametrize("fails", [False, True])
def test_notes_of_a_leader_end_with_its_wait(fails):
    groups, noted = {}, []

    def body(t):
        groups[t.rank] = t
        t.barrier()
        if t.rank == 3:
            until(lambda: groups[0]._node_barrier.noted() == [1])
            noted.append(True)
            if fails:
                impatient(groups[0], timeout=0.0)
                until(lambda: was_stopped(t))
        try:
            t.barrier()
        except outcore.errors.CollectiveError:
            assert fails
        else:
            assert not fails
        return t._node_barrier.noted()

    assert SimWorld(4, 2).run(body)[0] == []
    assert noted == [True]


PROGRAM = """
import mmap, os, signal, sys, time
import numpy as np
from outcore import _core
from outcore.testing.sim import SimMemory, Mail, SimWire
from outcore.ranks.transport import watchdog
from outcore.ranks.transport.group import GroupTransport
from outcore.ranks.transport.place import make_place
from outcore.ranks.transport.timeouts import Patience

# Two processes on one node barrier, made before a fork; no messages.
place = [make_place(r, range(2), [0, 0], 0) for r in range(2)]
shape = place[0].node_barrier
paper = np.frombuffer(mmap.mmap(-1, _core.NodeBarrier.nbytes(*shape)), np.uint8)
def finish(rank, node_barrier):
    wire = SimWire(Mail(), rank)
    return GroupTransport(place[rank], node_barrier, wire, SimMemory(), Patience(30.0, 20.0))
first = _core.NodeBarrier(paper, 0, *shape, True)
hears, says = os.pipe()  # parent to child
answers, answer = os.pipe()  # child to parent
boss = os.getpid()
def interrupt_when(come):
    # The parent, when it waits in its next step; until it has noted that.
    while node_barrier.seen()[0][0] < come:
        time.sleep(0.001)
    os.kill(boss, signal.SIGINT)
    assert os.read(hears, 1)
child = os.fork()
if child == 0:
    node_barrier = _core.NodeBarrier(paper, 1, *shape, False)
    while not node_barrier.seen()[0][2]:
        pass
    t = finish(1, node_barrier)
    t.barrier()
    {child}
    os._exit(0)
first = _core.NodeBarrier(paper, 0, *shape, False)
while not first.seen()[1][2]:
    time.sleep(0.01)
t = finish(0, first)
said = watchdog._print
watchdog._print = lambda text: said(text) or os.write(says, b"!")
t.barrier()
{parent}
"""


def run(child, parent):
    code = PROGRAM.replace("{child}", child).replace("{parent}", parent)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.simulated
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_killed_rank_is_noticed():
    result = run("os.kill(os.getpid(), signal.SIGKILL)", "t.barrier()")
    assert "CollectiveError: [rank-died] rank 1 of 2 ended" in result.stderr


@pytest.mark.simulated
def test_ctrl_c_is_raised_when_the_step_is_complete():
    """The other rank gets its answer; a step later all is well."""
    child = """
    interrupt_when(node_barrier.steps + 1)
    time.sleep(0.1)  # for a parent that does not wait
    os.write(answer, b"!")
    t.agree(5)
    assert t.agree(6) == 7
"""
    parent = """
os.set_blocking(answers, False)
try:
    t.agree(1)
except KeyboardInterrupt:
    print("raised after", os.read(answers, 1))
print("then", t.agree(7))
print("child", os.waitpid(child, 0)[1])
"""
    result = run(child.strip(), parent)
    lines = result.stdout.split("\n")
    assert result.stderr.startswith("outcore: rank 0: Ctrl-C is deferred"), result.stderr
    assert lines[:3] == ["raised after b'!'", "then 7", "child 0"], result


@pytest.mark.simulated
def test_ctrl_c_twice_gives_up_for_all():
    parent = """
try:
    t.agree(1)
except KeyboardInterrupt:
    print("raised")
print("child", os.waitpid(child, 0)[1])
"""
    child = """
    interrupt_when(node_barrier.steps + 1)
    os.kill(boss, signal.SIGINT)
    while node_barrier.stopped() is None:
        time.sleep(0.001)
    try:
        t.agree(5)
    except Exception as error:
        os._exit(0 if "interrupted twice" in str(error) else 2)
    os._exit(3)
"""
    result = run(child.strip(), parent)
    assert result.stdout.split("\n")[:2] == ["raised", "child 0"], result


@pytest.mark.simulated
def test_held_interrupts_come_at_the_end():
    counts = []

    def interrupted():
        with DeferredInterrupt() as held:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            counts.append(held.count)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert counts == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.simulated
def test_patience_of_the_environment(monkeypatch):
    monkeypatch.delenv("OUTCORE_TIMEOUT", raising=False)
    assert Patience.from_environment() == Patience(30.0, None)
    monkeypatch.setenv("OUTCORE_TIMEOUT", "2.5")
    assert Patience.from_environment() == Patience(30.0, 2.5)
    for bad in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("OUTCORE_TIMEOUT", bad)
        with pytest.raises(outcore.errors.UsageError, match="OUTCORE_TIMEOUT"):
            Patience.from_environment()


@pytest.mark.simulated
def test_a_stop_of_any_length_fits_the_barrier():
    error = outcore.errors.CollectiveError(
        "é" * 5000, code="timeout", ranks=tuple(range(10**6, 10**6 + 500))
    )
    text = encode(error)
    assert len(text) <= 2048
    assert decode(text).ranks[:2] == (10**6, 10**6 + 1)
    assert decode(text).message.startswith("ééé")
    assert decode(b"\xff{").code == "rank-failed"
