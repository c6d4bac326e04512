"""A call inside a call of the same thread: handlers of signals, and Python code of arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outcore
import outcore.arrays.disk.array
from outcore.formats.hdf5 import access as hdf5_access

# `during(call, handler)` repeats a call until a signal's handler came in the midst of it, and tells what
# came of the handler. A slow call takes longer than 50 ms, after which it looks for signals; its window
# has a quarter of the budget.
PRELUDE = """
import os, signal, sys, threading, time
import numpy as np, outcore
from outcore import _core

os.chdir(sys.argv[1])
inside = getattr(_core, "is_inside", lambda: True)
EVEN = np.s_[:, ::2]
ROWS = np.arange(1 << 14).reshape(16, 1024)

def during(call, handler, seconds=20):
    seen = []
    def on_alarm(number, frame):
        if seen or not inside():
            return
        seen.append("hangs")
        began = time.monotonic()
        try:
            seen[0] = handler()
        except outcore.OutcoreError as error:
            seen[0] = error.code
        seen.append(time.monotonic() - began)
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
    end = time.monotonic() + seconds
    while not seen and time.monotonic() < end:
        call()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen, "no handler came in the midst of a call"
    assert seen[1] < 5, seen
    return seen[0]

def refusal(call, handler):
    '''As `during`, until the handler came when the call had its turn at the file.'''
    while (told := during(call, handler)) in (None, "written"):
        pass
    return told

def slow(name):
    outcore.create(name, (12288, 16384), "i1").close()
    return outcore.open(name, "r+", hints={"threads": 1, "method": "window"})
"""


def runs(folder, program: str) -> None:
    """Run a program that must not hang."""
    root = str(Path(outcore.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(folder)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def test_a_handler_reads_while_a_read_holds_the_budget(tmp_path):
    runs(
        tmp_path,
        """
a, b = slow("a.npy"), outcore.create("b.npy", data=ROWS)
c = outcore.create("c.zarr", data=ROWS, chunks=(16, 1024), compression="zstd")
with outcore.memory(c.explain(7).peak_bytes + (32 << 10)):  # alone, not beside a window
    read = lambda: a[EVEN]
    assert during(read, lambda: b[3, 5]) == ROWS[3, 5]
    # Refused, unless the outer read has no window any more.
    assert during(read, lambda: c[7].sum()) in ("budget-too-small", ROWS[7].sum())
    assert during(read, lambda: b.iread(4).wait().sum()) == ROWS[4].sum()
    assert during(read, lambda: sum(x.sum() for _, x in c.blocks(0))) in (
        "block-too-large", "budget-too-small", ROWS.sum())
    assert (c[7] == ROWS[7]).all()
""",
    )


def test_a_handler_writes_into_windows_that_are_being_written(tmp_path):
    runs(
        tmp_path,
        """
slow("a.npy").close()
hints = {"exclusive": True, "method": "window", "threads": 1}
a, b = outcore.open("a.npy", "r+", hints=hints), outcore.create("b.npy", (64, 64), "i4")

def write():
    a[EVEN] = 1

def odd():
    a[5, 1::2] = 2
    return "written"

def other():
    b[...] = 3
    return "written"

assert a.explain(EVEN, write=True).reads > 0
assert refusal(write, odd) == "nested-call"
assert during(write, lambda: int(a[0, 1])) == 0
assert during(write, other) == "written"
assert refusal(write, lambda: a.iwrite(np.s_[6, 1::2], 2).wait()) == "nested-call"
assert (b[...] == 3).all() and not a[:, 1::2].any() and a[EVEN].all()
""",
    )


def test_a_handler_comes_while_its_thread_waits_to_be_alone(tmp_path):
    """The outer read holds nothing, so the inner one goes first."""
    runs(
        tmp_path,
        """
a = slow("a.npy")
c = outcore.create("c.zarr", data=ROWS, chunks=(16, 1024), compression="zstd")
with outcore.memory(c.explain(7).peak_bytes + (32 << 10)):  # alone, not beside a window
    go = True
    def others():
        while go:
            a[EVEN]
    threads = [threading.Thread(target=others) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        # Mostly the outer read waits: it is refused beside the others.
        for _ in range(3):
            assert during(lambda: c[5], lambda: c[7].sum()) in (ROWS[7].sum(), "budget-too-small")
    finally:
        go = False
        for thread in threads:
            thread.join()
""",
    )


def test_a_handler_waits_for_a_thread_that_waits_for_its_turn(tmp_path):
    runs(
        tmp_path,
        """
from concurrent.futures import ThreadPoolExecutor
hints = {"exclusive": True, "method": "window", "threads": 1}
a, pool = slow("a.npy"), ThreadPoolExecutor(1)
b = outcore.open("a.npy", "r+", hints=hints)
c = outcore.create("c.zarr", data=ROWS, chunks=(16, 1024), compression="zstd")

def write():
    b[EVEN] = 1

with outcore.memory(c.explain(7).peak_bytes + (32 << 10)):  # alone, not beside a window
    def elsewhere():
        return pool.submit(lambda: c[7].sum()).result()
    assert during(lambda: a[EVEN], elsewhere) in ("budget-too-small", ROWS[7].sum())
    assert refusal(write, lambda: pool.submit(b.write, np.s_[5, 1::2], 2).result()) == "nested-call"
""",
    )


def test_a_handler_changes_the_file_whose_chunks_are_read(tmp_path):
    pytest.importorskip("h5py")
    runs(
        tmp_path,
        """
made = dict(chunks=(1, 64), compression="gzip")
outcore.create("a.h5::/x", (256, 4096), "i8", **made)[...] = 7
a = outcore.open("a.h5::/x", "r+", hints={"threads": 1, "cache": "bypass"})
b = outcore.create("b.h5::/y", (4, 64), "i8", **made)

def row():
    a[3] = 1
    return "written"

def attribute():
    a.attrs["units"] = "K"
    return "written"

def elsewhere():
    b[1] = 2
    b.attrs["units"] = "m"
    return "written"

def all_of_it():
    a[...] = 7

assert during(lambda: a[...], row) == "nested-call"
# What reads the table has the library's turn, and what reads the chunks their lock.
assert during(lambda: a[...], attribute) in ("nested-call", "file-in-use")
assert during(lambda: a[...], elsewhere) == "written"
assert during(lambda: a[...], lambda: int(a[4].sum())) == 7 * 4096
assert during(all_of_it, row) == "nested-call"
assert during(all_of_it, attribute) in ("nested-call", "file-in-use", "written")
a[3] = 1
a.attrs["units"] = "K"
assert (a[3] == 1).all() and (a[4] == 7).all() and (b[1] == 2).all()
""",
    )


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.h5::/x"])
def test_an_array_that_is_appended_to_while_it_is_appended_to_refuses(tmp_path, name):
    """So does a handler of a signal that comes while the length is being changed."""
    if ".h5" in name:
        pytest.importorskip("h5py")
    runs(
        tmp_path,
        f"""
more = dict(resizable=True, chunks=(2, 4)) if ".h5" in {name!r} else {{}}
a = outcore.create({name!r}, (2, 4), "i8", **more)
b = outcore.open({name!r}, "r+")

continued = outcore.arrays.disk.array.plan_append

def interrupted(*args):
    outcore.arrays.disk.array.plan_append = continued
    for one in (a, b):
        try:
            one.append([7, 7, 7, 7])
        except outcore.errors.UsageError as error:
            assert error.code == "nested-call", error
        else:
            raise AssertionError("appended")
    if {name!r} != "a.npy":
        try:
            a.attrs["units"] = "K"
        except outcore.errors.UsageError as error:
            assert error.code == "nested-call", error
        else:
            raise AssertionError("changed")
    return continued(*args)

outcore.arrays.disk.array.plan_append = interrupted
a.append([5, 5, 5, 5])
assert a.shape == (3, 4) and (a[2] == 5).all()
a.append([6, 6, 6, 6])
assert a.shape == (4, 4) and (a[3] == 6).all()
""",
    )


def test_an_hdf5_file_is_not_changed_while_its_thread_changes_it(tmp_path):
    """Nor opened: a handler has the turn at the library, and the lock, of what it interrupts."""
    pytest.importorskip("h5py")
    path = str(tmp_path / "a.h5")
    outcore.create(f"{path}::/a", (4,), "i4").close()
    b = outcore.create(f"{path}::/b", (4,), "i4", resizable=True)
    with hdf5_access.open_for_changes(path, "/a") as file:
        for call in (
            lambda: b.attrs.update(units="K"),
            lambda: b.append([1]),
            lambda: outcore.create(f"{path}::/c", (3,), "f4"),
            lambda: outcore.open(f"{path}::/a"),
        ):
            with pytest.raises(outcore.errors.UsageError) as caught:
                call()
            assert caught.value.code == "nested-call"
        file["a"].attrs["units"] = "m"
    b.append([1])
    with outcore.open(f"{path}::/a") as a:
        assert dict(a.attrs) == {"units": "m"}
    assert b.shape == (5,) and dict(b.attrs) == {}


def test_a_write_of_a_value_that_reads_and_writes_runs(tmp_path):
    a = outcore.create(tmp_path / "a.npy", (8, 8), "i8")
    b = outcore.create(tmp_path / "b.npy", data=np.arange(64).reshape(8, 8))

    class Value:
        def __array__(self, dtype=None, copy=None):
            a[0] = 9
            return b[1:3]

    class Row:
        def __index__(self):
            return int(b[0, 3])

    a[1:3] = Value()
    assert (a[0] == 9).all()
    np.testing.assert_array_equal(b[1:3], a[1:3])
    np.testing.assert_array_equal(b[3], b[Row()])
