"""What a process on its own sees of ranks."""

import os
import pickle
import subprocess
import sys
import threading

import pytest

import outcore
import outcore.ranks.transport
from outcore.testing.sim import SimMemory, SimWorld


def test_importing_outcore_does_not_start_mpi():
    """A module of that name is there, and nobody imports it; a communicator would."""
    code = """
import sys, types
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mpi4py":
            sys.modules["touched"] = types.ModuleType("touched")
sys.meta_path.insert(0, Finder())
import outcore, outcore.cli, outcore.ranks.transport, outcore.testing.sim, outcore.testing.conformance
outcore.ranks.transport.transport(None).barrier()
assert "mpi4py" not in sys.modules and "touched" not in sys.modules
try:
    outcore.ranks.transport.transport(type("Comm", (), {"Get_size": 1})())
except Exception:
    pass  # no mpi4py, no MPI, or no communicator: it was asked for all the same
assert "touched" in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_errors_of_ranks_keep_their_ranks():
    error = outcore.errors.CollectiveError("rank 3 is lost", code="rank-died", ranks=(3,))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (
        outcore.errors.CollectiveError,
        "[rank-died] rank 3 is lost",
    )
    assert (again.ranks, again.code, again.rank) == ((3,), "rank-died", None)
    assert isinstance(again, outcore.OutcoreError)
    assert outcore.errors.CollectiveError("?", code="timeout").ranks == ()


def test_a_transport_is_not_for_children(tmp_path):
    code = """
import os, sys
from outcore.testing.sim import SimWorld
def body(t):
    if t.rank == 0:
        child = os.fork()
        if child == 0:
            try:
                t.barrier()
            except Exception as error:
                os._exit(0 if "child of the process" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    t.barrier()
SimWorld(2).run(body)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/shm")
def test_node_memory_leaves_nothing_behind(tmp_path, monkeypatch):
    from outcore.ranks.transport import nodememory

    monkeypatch.setattr(nodememory, "_get_folder", lambda: tmp_path)
    memory = nodememory.MappedMemory()
    name = memory.make(8192)
    first, second = memory.map(name, 8192, 0, 4096), memory.map(name, 8192, 4096, 4096)
    memory.unlink(name)
    memory.unlink(name)
    assert list(tmp_path.iterdir()) == []
    first[5000] = 7
    assert second[5000] == 7
    with pytest.raises(outcore.errors.StorageError, match="shared memory"):
        memory.map(name, 8192, 0, 0)
    with pytest.raises(outcore.errors.StorageError, match="shm-size"):
        memory.map(memory.make(1 << 50), 1 << 50, 0, 1 << 50)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/shm")
def test_node_memory_of_a_killed_maker_goes_with_the_next_one_made(tmp_path, monkeypatch):
    """And nothing else does: what somebody still has, and what has another name."""
    from outcore.ranks.transport import nodememory

    monkeypatch.setattr(nodememory, "_get_folder", lambda: tmp_path)
    monkeypatch.setattr(nodememory.MappedMemory, "_swept", True)
    child = os.fork()
    if child == 0:
        nodememory.MappedMemory().make(8192)
        os._exit(0)
    os.waitpid(child, 0)
    (left,) = os.listdir(tmp_path)
    memory = nodememory.MappedMemory()
    mine = memory.make(8192)
    (tmp_path / "outcore-mine").write_text("somebody else's")
    monkeypatch.setattr(nodememory.MappedMemory, "_swept", False)
    other = nodememory.MappedMemory()
    name = other.make(8192)
    assert {*os.listdir(tmp_path)} == {mine, name, "outcore-mine"} and left != mine
    memory.map(mine, 8192, 0, 4096)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/shm")
def test_node_memory_that_is_swept_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    from outcore.ranks.transport import nodememory

    monkeypatch.setattr(nodememory, "_get_folder", lambda: tmp_path)
    plain, seen = nodememory.fcntl.flock, []

    def slowly(fd, how):
        if not seen:
            seen.extend(os.listdir(tmp_path))
            nodememory.sweep()
            assert os.listdir(tmp_path) == []
        plain(fd, how)

    monkeypatch.setattr(nodememory.fcntl, "flock", slowly)
    memory = nodememory.MappedMemory()
    name = memory.make(8192)
    assert os.listdir(tmp_path) == [name] != seen
    memory.unlink(name)
    assert os.listdir(tmp_path) == []


def test_a_node_without_room_for_shared_memory_is_told_on_all_ranks(monkeypatch):
    """The first rank makes a node barrier that all attach to: without its memory there is none."""
    plain, full, told = SimMemory.map, threading.Event(), {}

    def allocate(self, name, nbytes, offset, length):
        if full.is_set() and length:
            raise outcore.errors.StorageError(
                "no room in /dev/shm", code="disk-full", path="/dev/shm"
            )
        return plain(self, name, nbytes, offset, length)

    def body(t):
        full.set()
        t.barrier()
        with pytest.raises(outcore.OutcoreError) as caught:
            t.split(0, t.rank)
        told[t.rank] = caught.value.code

    monkeypatch.setattr(SimMemory, "map", allocate)
    SimWorld(4).run(body)
    assert told == {0: "disk-full", 1: "rank-failed", 2: "rank-failed", 3: "rank-failed"}
