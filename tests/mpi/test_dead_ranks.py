"""A rank that dies, or leaves, while others wait: ranks of other nodes learn it from its own node."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import outcore
from mpi import forked
from outcore.errors import CollectiveError
from outcore.ranks.transport.watchdog import Watchdog
from ranks import ranks

# Nobody waits that long: who has to learn it by time has learned it wrongly.
TIMEOUT = 12


def died(call, gone):
    with pytest.raises(CollectiveError) as caught:
        call()
    assert (caught.value.code, caught.value.ranks) == ("rank-died", gone)


@pytest.mark.parametrize("victim", [0, 1, 2, 3])
@ranks(4, per_node=(None, 2))
@pytest.mark.simulated
def test_rank_that_left_is_named_on_all_nodes(world, folder, victim):
    """Also the rank that speaks for its node."""
    np.save(folder / "a.npy", np.zeros((8, 8)))

    def body(t):
        a = outcore.open(folder / "a.npy", comm=t)
        t.barrier()
        if t.rank == victim:
            t.close()
            return
        died(lambda: a.read_all(np.s_[t.rank :: t.size], method="two-phase"), (victim,))
        died(t.barrier, (victim,))

    world.run(body, timeout=TIMEOUT, warn=0.4)


@pytest.mark.simulated
@ranks(4, per_node=(2,))
def test_a_leader_that_waits_for_its_own_node_hears_of_it(world):
    """Rank 3 waits for a message of rank 1, which left; rank 2 only for rank 3."""

    def body(t):
        t.barrier()
        if t.rank == 1:
            t.close()
            return
        of = np.array([0, 8 if t.rank == 3 else 0, 0, 0])

        def wait():
            t.start_exchange(np.zeros(0, np.uint8), of * 0, np.zeros(8, np.uint8), of).wait()
            t.agree(0)

        died(wait, (1,))

    world.run(body, timeout=TIMEOUT, warn=0.4)


@pytest.mark.simulated
@ranks(3, per_node=(2,))
def test_a_node_that_is_gone_as_a_whole_is_named_when_time_is_up(world):
    """Nobody is left there to tell: waits that end by themselves say who did not come."""

    def body(t):
        t.barrier()
        if t.rank == 2:
            t.close()
            return
        with pytest.raises(CollectiveError) as caught:
            t.agree(0)
        assert (caught.value.code, caught.value.ranks) == ("timeout", (2,))

    world.run(body, timeout=0.5)


@pytest.mark.simulated
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_death_right_after_a_split_is_noticed(tmp_path, monkeypatch):
    """Also by a rank that was slow to look which processes there are."""
    made = Watchdog.__init__

    def slowly(self, place, *more):
        if place.rank == 0 and place.size == 2:
            time.sleep(0.2)
        made(self, place, *more)

    def body(t, pids):
        monkeypatch.setattr(Watchdog, "__init__", slowly)
        both = t.split(0, t.rank)
        if t.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        died(both.barrier, (1,))
        return 7

    assert forked.run(2, body, tmp_path / "said") == [7, -signal.SIGKILL]


PROGRAM = """
import mmap, os, signal, socket, struct, sys, time
import numpy as np
from outcore import _core
from outcore.errors import CollectiveError
from outcore.testing.sim import SimMemory
from outcore.ranks.transport.group import GroupTransport
from outcore.ranks.transport.place import make_place
from outcore.ranks.transport.timeouts import Patience

# Four processes on two barriers that were mapped before they forked; messages by datagrams.
victim, folder = int(sys.argv[1]), sys.argv[2]
nodes = [0, 0, 1, 1]
places = [make_place(rank, range(4), nodes, 0) for rank in range(4)]
papers = [
    np.frombuffer(mmap.mmap(-1, _core.NodeBarrier.nbytes(*places[2 * n].node_barrier)), np.uint8)
    for n in (0, 1)
]
doors = []
for rank in range(4):
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.bind(f"{folder}/{rank}")
    doors.append(door)


class Sent:
    def done(self):
        return True

    def count(self):
        return 0

    def abandon(self):
        pass


class Awaited(Sent):
    def __init__(self, wire, key, room):
        self.wire, self.key, self.room, self.length = wire, key, room, None

    def done(self):
        self.wire.look()
        if self.length is None and self.wire.heard.get(self.key):
            data = self.wire.heard[self.key].pop(0)
            self.length = len(data)
            self.room[: len(data)] = np.frombuffer(data, np.uint8)
        return self.length is not None

    def count(self):
        return self.length


class Datagrams:
    threads = False

    def __init__(self, rank):
        self.rank, self.door, self.context, self.groups, self.heard = rank, doors[rank], 0, [], {}
        self.door.setblocking(False)

    def look(self):
        while True:
            try:
                data = self.door.recv(1 << 16)
            except BlockingIOError:
                return
            self.heard.setdefault(struct.unpack("qq", data[:16]), []).append(data[16:])

    def send(self, peer, tag, data):
        words = struct.pack("qq", self.rank, tag) + bytes(data)
        try:
            self.door.sendto(words, f"{folder}/{peer}")
        except OSError:
            pass  # to a process that is gone
        return Sent()

    def receive(self, peer, tag, room):
        return Awaited(self, (peer, tag), room)

    def take(self, tag):
        self.look()
        for (_, other), data in self.heard.items():
            if other == tag and data:
                return data.pop(0)
        return None

    def close(self):
        pass


def node_barrier(rank, first):
    return _core.NodeBarrier(papers[nodes[rank]], rank % 2, *places[rank].node_barrier, first)


for rank in (0, 2):
    node_barrier(rank, True)
children = []
for rank in range(4):
    child = os.fork()
    if child:
        children.append(child)
        continue
    mine = node_barrier(rank, False)
    while not all(pid and pid != os.getppid() for _, _, pid, _ in mine.seen()):
        time.sleep(0.001)
    t = GroupTransport(places[rank], mine, Datagrams(rank), SimMemory(), Patience(0.4, 60.0))
    t.barrier()
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        t.agree(rank)
    except CollectiveError as error:
        os._exit(7 if (error.code, error.ranks) == ("rank-died", (victim,)) else 8)
    os._exit(9)
# A process that nobody has fetched is dead all the same.
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.mark.simulated
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("victim", [2])
def test_a_killed_process_is_named_on_all_nodes(tmp_path, victim):
    words = [sys.executable, "-c", PROGRAM, str(victim), str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=150)
    codes = [-9 if rank == victim else 7 for rank in range(4)]
    assert ended.stdout.strip() == str(codes), ended
