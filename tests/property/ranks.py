"""Ranks as threads of this process: what a distributed array needs of a transport, and nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from outcore.ranks.transport import InFlight


class World:
    """So many ranks; `run` calls a function once on each."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=30)
        self.slots = [None] * size
        self.messages = 0

    def gather(self, rank, value):
        self.slots[rank] = value
        self.barrier.wait()
        values = list(self.slots)
        self.barrier.wait()
        return values

    def run(self, function):
        """Results of all ranks; an exception stands for itself."""

        def call(rank):
            try:
                return function(Ranks(self, rank))
            except Exception as error:
                return error

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(call, range(self.size)))


class Ranks:
    def __init__(self, world, rank):
        self.world, self.rank, self.size = world, rank, world.size
        self.nodes = np.zeros(world.size, np.int64)
        self.in_flight = InFlight()

    def allgather(self, record):
        assert record.dtype == np.int64 and record.ndim == 1
        return np.array(self.world.gather(self.rank, record.copy()))

    def allgather_bytes(self, blob):
        return self.world.gather(self.rank, bytes(blob))

    def agree(self, code):
        return max(self.world.gather(self.rank, code))

    def start_exchange(self, send, send_counts, recv, recv_counts):
        for buffer, counts in ((send, send_counts), (recv, recv_counts)):
            assert buffer.dtype == np.uint8 and buffer.ndim == 1
            assert len(counts) == self.size and counts.sum() == len(buffer)
        self.world.messages += int((send_counts > 0).sum())
        return Started(self, send, send_counts, recv, recv_counts)


class Started:
    def __init__(self, ranks, send, send_counts, recv, recv_counts):
        self.ranks, self.sent = ranks, (send, send_counts)
        self.recv, self.recv_counts = recv, recv_counts

    def wait(self):
        me = self.ranks.rank
        parts = []
        for send, counts in self.ranks.world.gather(me, self.sent):
            begin = counts[:me].sum()
            parts.append(send[begin : begin + counts[me]].copy())
        assert [len(part) for part in parts] == list(self.recv_counts)
        self.recv[...] = np.concatenate(parts)
        self.ranks.world.barrier.wait()
