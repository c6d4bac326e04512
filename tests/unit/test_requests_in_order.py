"""Requests that have their turn: at the end of a process, after a fork, and without threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

import outcore
from outcore.base.requests import IORequest, start, start_in_order
from outcore.ranks.transport import SerialTransport
from outcore.ranks.transport.in_flight import InFlight
from outcore.ranks.transport.timeouts import DeferredInterrupt
from unit.test_requests_at_exit import ended, started

DATA = np.arange(1000.0)
# One rank, whose calls begin late, or wait until the process is gone.
ALONE = """
from outcore.ranks.collective import array as made
from outcore.ranks.transport import SerialTransport
a = outcore.create("a.npy", data=np.zeros(1000))
a.close()
a = outcore.open("a.npy", "r+", comm=SerialTransport())
plain, begun = made.CollectiveCall.run, threading.Event()
def late(self):
    begun.set()
    time.sleep(0.3)
    return plain(self)
def never(self):
    begun.set()
    threading.Event().wait()
"""


@pytest.fixture
def array(tmp_path):
    np.save(tmp_path / "a.npy", DATA)
    with outcore.open(tmp_path / "a.npy", "r+", comm=SerialTransport()) as a:
        yield a


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_the_end_of_a_process_waits_for_what_is_in_flight(tmp_path, end):
    process = started(
        tmp_path,
        ALONE + f"made.CollectiveCall.run = late\nfor k in (1, 2): a.iwrite_all(..., k)\n{end}",
    )
    _, said = ended(process)
    np.testing.assert_array_equal(np.full(1000, 2.0), np.load(tmp_path / "a.npy"), err_msg=said)


def test_another_interrupt_leaves_what_is_in_flight(tmp_path):
    process = started(
        tmp_path,
        ALONE
        + "made.CollectiveCall.run = never\na.iwrite_all(..., 1.0)\n"
        + "begun.wait()\nprint('begun', flush=True)",
    )
    assert process.stdout.readline() == "begun\n"
    told = process.stderr.readline()
    assert "waiting for what was started: collective write of" in told
    process.send_signal(signal.SIGINT)
    _, said = ended(process)
    assert "left unfinished: collective write of" in said
    assert process.returncode == 0


def test_a_child_makes_calls_of_its_own(array):
    """What the parent has in flight, nobody in the child will ever end."""
    go_on = threading.Event()
    stuck = start_in_order(lambda: go_on.wait(60), "a call", array.transport.in_flight.start)
    child = os.fork()
    if not child:
        good = False
        try:
            signal.alarm(30)
            np.testing.assert_array_equal(DATA, array.iread_all().wait())
            np.testing.assert_array_equal(DATA, array.read_all())
            good = True
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not stuck.future.done()
    go_on.set()
    assert IORequest(stuck).wait(timeout=60)


def test_where_no_thread_can_be_started_a_call_is_made_at_once(array, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    requests = [array.iwrite_all(..., 1.0), array.iread_all()]
    assert all(request.done for request in requests)
    monkeypatch.undo()
    # And those that come after it have a thread again.
    requests.append(array.iread_all())
    for request in requests[1:]:
        np.testing.assert_array_equal(np.ones(1000), request.wait())


def test_calls_are_made_in_order_one_at_a_time():
    calls, made, now = InFlight(), [], []

    def call(k, ended):
        def work():
            now.append(k)
            time.sleep(1e-4)
            made.append(k if now == [k] else "two at once")
            now.remove(k)
            ended.set_result(None)

        return work

    # Often enough that the thread ends now and then between two of them.
    for k in range(300):
        ended = Future()
        calls.start(call(k, ended), ended)
        if k % 7 == 0:
            time.sleep(1e-3)
        if k % 50 == 0:
            calls.finish(None)
            assert ended.done()
    calls.finish(None)
    assert made == list(range(300))


def test_a_thread_of_the_pool_does_no_call_out_of_turn(array):
    """It would do requests of its own kind itself; these, only their thread may."""
    go_on = threading.Event()
    first = start_in_order(lambda: go_on.wait(60), "a call", array.transport.in_flight.start)
    second = array.iwrite_all(..., 7.0)
    waits = start(second.wait, "a wait")
    time.sleep(0.05)
    assert not waits.done
    np.testing.assert_array_equal(DATA, array[...])
    go_on.set()
    waits.wait(timeout=60)
    assert first.future.done()
    np.testing.assert_array_equal(np.full(1000, 7.0), array[...])


def test_a_request_that_is_done_keeps_no_memory(array):
    import weakref

    class Array(np.ndarray):
        """That can be referred to weakly."""

    value = np.ones(1000).view(Array)
    seen = weakref.ref(value)
    request = array.iwrite_all(..., value)
    request.wait()
    array.transport.barrier()
    del value
    end = time.monotonic() + 60
    while seen() is not None:  # the thread that made the call ends in a moment
        assert time.monotonic() < end
        time.sleep(1e-3)
    assert request.done


def test_who_is_interrupted_twice_gives_up_the_group():
    """Ctrl-C is held back while ranks agree; who waits for calls in flight must get out all the same."""

    class Group:
        """Whose calls end when it is given up."""

        rank, told = 3, []

        def abort_group(self, text):
            self.told.append(text)
            ended.set_result(None)

    group, ended, calls = Group(), Future(), InFlight()
    calls.start(lambda: ended.result(60), ended)
    with DeferredInterrupt() as held:
        held.count = 1
        threading.Timer(0.5, setattr, (held, "count", 2)).start()
        calls.finish(group)
        held.count = 0
    assert group.told == ["rank 3 was interrupted twice while it waited for calls in flight"]
