"""What becomes of requests at the end of a process, after Ctrl-C, and without threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore.base import requests

PRELUDE = """
import os, signal, sys, threading, time
import numpy as np, outcore
from outcore.base import requests
os.chdir(sys.argv[1])
signal.alarm(30)  # what hangs ends all the same
"""
# A call that goes on until it is stopped: many small reads, as of a large array.
ENDLESS = """
a = outcore.create("a.npy", data=np.arange(1000.0))
reading = threading.Event()
def endless(key=..., out=None):
    reading.set()
    while True:
        a.handle.core.read(key, out)
"""


def started(folder, program: str) -> subprocess.Popen[str]:
    root = str(Path(outcore.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, str(folder)],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 20) -> tuple[str, str]:
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()


@pytest.mark.parametrize("end", ["", "raise KeyboardInterrupt", "sys.exit(3)"])
def test_reads_that_nobody_waits_for_end_with_the_process(tmp_path, end):
    process = started(
        tmp_path,
        ENDLESS
        + f"""
a.read = endless
many = [a.iread() for _ in range(12)]
reading.wait()
{end}
""",
    )
    _, err = ended(process)
    assert process.returncode == {"": 0, "sys.exit(3)": 3}.get(end, -signal.SIGINT), err
    assert "outcore" not in err.replace("KeyboardInterrupt", "").split("Traceback")[0], err


def test_writes_are_finished_and_said(tmp_path):
    process = started(
        tmp_path,
        ENDLESS
        + """
a.read = endless
requests._SILENCE = 0.1
b = outcore.create("b.npy", (4, 4), "i8")
write = b.write
def late(key, value):
    time.sleep(0.4)
    write(key, value)
b.write = late
reads = [a.iread() for _ in range(12)]
b.iwrite(..., 7)
""",
    )
    _, err = ended(process)
    assert process.returncode == 0, err
    assert "outcore: waiting for what was started: write of 'b.npy'" in err.replace(
        str(tmp_path) + "/", ""
    )
    assert (outcore.open(tmp_path / "b.npy")[...] == 7).all()


def test_what_a_copy_reads_is_a_part_of_its_write(tmp_path):
    process = started(
        tmp_path,
        """
a = outcore.create("a.npy", data=np.arange(40_000.0).reshape(200, 200))
b = outcore.create("b.npy", a.shape, "f8")
read, reading = a.read, threading.Event()
def late(key, out=None):
    reading.set()
    time.sleep(0.05)
    return read(key, out=out)
a.read = late
outcore.memory("128 KiB")
b.iwrite(..., a)
reading.wait()
""",
    )
    _, err = ended(process)
    assert process.returncode == 0, err
    copied = outcore.open(tmp_path / "b.npy")[...]
    np.testing.assert_array_equal(np.arange(40_000.0).reshape(200, 200), copied)


def test_writes_of_a_process_of_multiprocessing_are_finished(tmp_path):
    process = started(
        tmp_path,
        """
import multiprocessing
b = outcore.create("b.npy", (4, 4), "i8")
def work():
    write = b.write
    def late(key, value):
        time.sleep(0.3)
        write(key, value)
    b.write = late
    b.iwrite(..., 7)
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
""",
    )
    _, err = ended(process)
    assert process.returncode == 0, err
    assert (outcore.open(tmp_path / "b.npy")[...] == 7).all()


def test_a_second_interrupt_leaves_writes_unfinished_and_says_so(tmp_path):
    process = started(
        tmp_path,
        """
requests._SILENCE = 0.1
b = outcore.create("b.npy", (4, 4), "i8")
write = b.write
def endless(key, value):
    while True:
        write(key, value)
b.write = endless
b.iwrite(..., 7)
raise KeyboardInterrupt
""",
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "waiting for what was started" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = ended(process)
    assert "outcore: left unfinished: write of" in err


def test_leaving_a_block_with_an_interrupt_stops_reads(tmp_path):
    data = np.arange(1000.0)
    outcore.create(tmp_path / "a.npy", data=data).close()
    reading = threading.Event()
    a = outcore.open(tmp_path / "a.npy")
    core = a.handle.core

    def endless(key=..., out=None):
        reading.set()
        end = time.monotonic() + 15
        while time.monotonic() < end:
            core.read(key, out)

    a.read = endless

    def interrupted():
        with a:
            request = a.iread()
            assert reading.wait(10)
            held.append(request)
            raise KeyboardInterrupt

    held = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    request = held.pop()
    with pytest.raises(CancelledError):
        request.wait(10)


def test_a_read_is_cancelled_and_a_write_goes_on(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.arange(8))
    began, go = threading.Event(), threading.Event()

    def hold():
        began.set()
        go.wait(20)
        return a.read()

    busy = requests.start(hold, "a read", reads=True)
    assert began.wait(20)
    assert busy.cancel()
    go.set()
    with pytest.raises(CancelledError):
        busy.wait(20)
    assert not busy.cancel()
    began.clear()
    go.clear()
    write = requests.start(lambda: (hold(), a.write(..., 3)), "a write")
    assert began.wait(20)
    assert not write.cancel()
    inner = requests.start(a.read, "a read", reads=True)
    inner.wait(20)
    go.set()
    write.wait(20)
    assert (a[...] == 3).all()


def test_what_waits_in_the_queue_is_cancelled_whatever_it_is(tmp_path):
    go = threading.Event()
    busy = [requests.start(lambda: go.wait(20), "a long wait") for _ in range(4)]
    a = outcore.create(tmp_path / "a.npy", data=np.arange(8))
    write = a.iwrite(..., 5)
    assert write.cancel()
    go.set()
    assert all(one.wait(20) for one in busy)
    with pytest.raises(CancelledError, match="before it started"):
        write.wait()
    a.flush()  # nothing is owed
    assert (a[...] == np.arange(8)).all()


def test_requests_work_where_no_thread_is_to_be_had(tmp_path, monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(requests, "_pool", requests._Pool())
    a = outcore.create(tmp_path / "a.npy", data=np.arange(800).reshape(8, 100))
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", refused)
        a.iwrite(3, 0).wait(1)
        assert a.iread(3).wait(1).sum() == 0
        assert [row.sum() for row in a] == [a[k].sum() for k in range(8)]
    assert a.iread(4).wait(10).sum() == a[4].sum()
