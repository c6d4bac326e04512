"""Temporary arrays go when they are closed, and when SIGTERM ends the process."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import outcore

DATA = np.arange(200.0 * 200).reshape(200, 200)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)


#: What gives a temporary array.
MAKERS = {
    "transpose": outcore.transpose,
    "chunks": lambda a: outcore.transpose(a, chunks=50, compression="zstd"),
    "hdf5": lambda a: outcore.transpose(a, format="hdf5"),
    "matmul": lambda a: outcore.matmul(a, a),
    "sort": lambda a: outcore.sort(a, axis=0),
    "cumsum": lambda a: outcore.cumsum(a, axis=0),
    "map_blocks": lambda a: outcore.map_blocks(np.negative, a),
    "disk_array": lambda a: outcore.mpi.disk_array("d", (3, 4), "f8", keep=False),
    "disk_array in chunks": lambda a: outcore.mpi.disk_array("d.zarr", (3, 4), "f8", keep=False),
}


def test_a_temporary_array_gives_its_disk_space_back_when_it_is_closed():
    """There are references to it still: to itself, and to what was read of it."""
    for name, make in MAKERS.items():
        with outcore.open("a.npy") as a:
            array = make(a)
            again = [array, array[...] if name == "transpose" else None]
            assert len(os.listdir()) > 1, name
            array.close()
            assert os.listdir() == ["a.npy"], name
            array.close()
            with make(a) as second:
                again.append(second)
                assert len(os.listdir()) > 1, name
            assert os.listdir() == ["a.npy"], name
            assert again[0].closed


def ended(program, *, before=""):
    """Run a program that prints what there is and sleeps; what it printed, and how SIGTERM ended it."""
    text = f"import os, signal, sys, time\nimport outcore\n{before}\n{textwrap.dedent(program)}"
    words = [sys.executable, "-c", text]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        said = child.stdout.readline()
        child.terminate()
        said += child.stdout.read()
    return said, child.returncode


IDLE = """
a = outcore.open("a.npy")
kept = [outcore.transpose(a), outcore.transpose(a, chunks=50), outcore.sort(a, axis=0)]
kept.append(outcore.mpi.disk_array("d", (3, 4), "f8", keep=False))
kept.append(outcore.mpi.disk_array("d.zarr", (3, 4), "f8", keep=False))
print(len(os.listdir()), flush=True)
time.sleep(60)
"""


def test_sigterm_removes_temporary_arrays():
    said, code = ended(IDLE)
    assert int(said) >= 7 and code == -signal.SIGTERM
    assert os.listdir() == ["a.npy"]


def test_sigterm_in_the_midst_of_a_computation_removes_them():
    program = """
    def slowly(block):
        if len(os.listdir()) > 1:  # it is tried before
            print(len(os.listdir()), flush=True)
            time.sleep(60)
        return block
    with outcore.open("a.npy") as a:
        outcore.map_blocks(slowly, a, chunks=50)
    """
    said, code = ended(program)
    assert int(said.split()[0]) > 1 and code == -signal.SIGTERM
    assert os.listdir() == ["a.npy"]


def test_a_handler_of_the_program_is_left_alone():
    """It ends the program in the usual way."""
    before = "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))"
    assert ended(IDLE, before=before)[1] == 7
    assert os.listdir() == ["a.npy"]


def test_a_forked_child_that_sigterm_ends_leaves_its_parents_arrays():
    program = """
    a = outcore.open("a.npy")
    t = outcore.transpose(a)
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(1)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    print(t[...].shape, flush=True)
    time.sleep(60)
    """
    said, code = ended(program)
    assert said == "(200, 200)\n" and code == -signal.SIGTERM
    assert os.listdir() == ["a.npy"]


def test_an_interrupted_job_with_a_name_stays_to_be_resumed():
    program = """
    def slowly(block):
        if any(name.endswith(".outcore-journal") for name in os.listdir()):
            print("begun", flush=True)
            time.sleep(60)
        return block
    with outcore.open("a.npy") as a:
        outcore.map_blocks(slowly, a, out="b.npy", memory=700_000)
    """
    said, code = ended(program)
    assert said.startswith("begun") and code == -signal.SIGTERM
    assert [outcore.jobs.clean(job) for job in outcore.jobs.unfinished(".")]
    assert os.listdir() == ["a.npy"]
