"""Ranks that write the same elements: the highest one wins, in every way of writing."""

import random
import threading

import numpy as np
import pytest

import outcore
from mpi.test_collective import NODES
from ranks import UNDER_MPI, once, ranks

SHAPE = 60, 600


def blocks(rank, size):
    """Blocks with a margin that neighbours have too."""
    across = max(1, int(size**0.5))
    i, j = divmod(rank, across)
    return np.s_[10 * i : 10 * i + 14, 20 * j : 20 * j + 25]


# By name: what each rank gives, and whether what is left of it can be said.
KEYS = {
    "neighbours": (lambda r, p: np.s_[5:50, 6 * r : 6 * r + 9], True),
    "blocks": (blocks, True),
    "common": (lambda r, p: np.s_[3:40:3, ::2], True),
    "hidden": (lambda r, p: np.s_[20 - r : 30 + r, 10:50], True),
    "strides": (lambda r, p: np.s_[r :: r % 2 + 1, ::-1], True),
    "upside down": (lambda r, p: np.s_[40:10:-1, 50 : 3 * r : -3], True),
    "entangled": (lambda r, p: np.s_[:, r :: 1 + 24 * (r == p - 1)], False),
}


def mine(name, rank, size):
    return KEYS[name][0](rank, size)


def last(data, keys, values):
    expected = data.copy()
    for key, value in zip(keys, values, strict=True):
        expected[key] = value
    return expected


def value_of(data, key, rank):
    """No two ranks give an element the same value."""
    return np.arange(data[key].size).reshape(data[key].shape).astype(data.dtype) + 100_000 * (
        rank + 1
    )


@pytest.mark.parametrize("name", KEYS)
@ranks(2, 3, 5, 8, per_node=NODES)
def test_all_methods_leave_what_the_highest_rank_gave(world, folder, name, agree_on):
    agree_on(slot=16384, least=1)
    data = np.arange(60 * 600, dtype="i4").reshape(SHAPE)

    def body(t):
        keys = [mine(name, rank, t.size) for rank in range(t.size)]
        values = [value_of(data, key, rank) for rank, key in enumerate(keys)]
        expected = last(data, keys, values)
        for number, method in enumerate(("auto", "direct", "sieve", "two-phase")):
            file = folder / f"{number}.npy"
            once(t, lambda file=file: np.save(file, data))
            with outcore.open(file, "r+", comm=t) as a:
                told = a.explain_all(keys[t.rank], write=True, method=method)
                a.write_all(keys[t.rank], values[t.rank], method=method)
                np.testing.assert_array_equal(expected, a.read_all(), err_msg=method)
            entangled = not KEYS[name][1] and t.size > 1
            assert (told.left_out_bytes == 0) == entangled
            if method != "auto":
                assert told.method == ("two-phase" if entangled else method)

    world.run(body)


@pytest.mark.parametrize("seed", range(2 if UNDER_MPI else 6))
@ranks(4, 7, per_node=(None, 2))
def test_random_sections_of_many_arrays(world, folder, seed, agree_on):
    """A rank may also give an element twice itself: then its last request counts."""
    agree_on(slot=3000, least=1)
    rng = random.Random(seed)
    shape, names = (24, 18), "ab"

    def some(n):
        low, high = sorted(rng.sample(range(n + 1), 2))
        return slice(low, high, rng.choice([1, 1, 1, 2, 3]))

    wanted = [
        [(rng.choice(names), (some(24), some(18))) for _ in range(rng.randint(0, 3))]
        for _ in range(world.size)
    ]
    method = ("two-phase", "direct")[seed % 2]
    values = {}
    arrays = {name: np.arange(24 * 18.0).reshape(shape) for name in names}
    expected = {name: data.copy() for name, data in arrays.items()}
    for rank, requests in enumerate(wanted):
        for number, (name, key) in enumerate(requests):
            values[rank, number] = np.full(expected[name][key].shape, 1000.0 * rank + number)
            expected[name][key] = values[rank, number]

    def body(t):
        once(t, lambda: [np.save(folder / f"{name}.npy", arrays[name]) for name in names])
        opened = {name: outcore.open(folder / f"{name}.npy", "r+", comm=t) for name in names}
        requests = [(opened[n], k, values[t.rank, i]) for i, (n, k) in enumerate(wanted[t.rank])]
        outcore.mpi.write_all(requests, comm=t, method=method)
        for name, a in opened.items():
            np.testing.assert_array_equal(expected[name], a.read_all())
            a.close()

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
@pytest.mark.parametrize("method", ["auto", "direct", "two-phase"])
def test_one_array_is_cut_and_another_one_written_in_order(world, folder, method, agree_on):
    """A rank gives elements of both twice, too."""
    agree_on(slot=4096, least=1)
    arrays = [np.arange(60 * 600, dtype="i4").reshape(SHAPE), np.zeros(SHAPE, "i4")]
    wanted = [
        [(0, np.s_[:, 6 * r : 6 * r + 9]), (1, np.s_[:, r:]), (0, np.s_[:2]), (1, np.s_[:, r::25])]
        for r in range(world.size)
    ]
    expected = [data.copy() for data in arrays]
    for rank, requests in enumerate(wanted):
        for number, (which, key) in enumerate(requests):
            expected[which][key] = 10 * rank + number

    def body(t):
        once(t, lambda: [np.save(folder / f"{n}.npy", data) for n, data in enumerate(arrays)])
        opened = [outcore.open(folder / f"{n}.npy", "r+", comm=t) for n in range(2)]
        requests = [
            (opened[which], key, np.full(arrays[which][key].shape, 10 * t.rank + number, "i4"))
            for number, (which, key) in enumerate(wanted[t.rank])
        ]
        outcore.mpi.write_all(requests, comm=t, method=method)
        for a, data in zip(opened, expected, strict=True):
            np.testing.assert_array_equal(data, a.read_all())
            a.close()

    world.run(body)


@pytest.mark.parametrize("method", ["direct", "two-phase"])
@ranks(2, 4, per_node=NODES)
def test_nothing_is_sent_within_a_node_or_written_twice(
    world, folder, method, agree_on, on_packets
):
    agree_on(slot=8192, least=1)
    here = threading.local()

    def sends(_packets, part):
        here.sent += int(part.to.sum())

    on_packets(sends)
    n = 256
    data = np.zeros((n, 48 * world.size + 16), "i4")

    def body(t):
        here.sent = 0
        once(t, lambda: np.save(folder / "a.npy", data))
        keys = [np.s_[:, 48 * rank : 48 * rank + 64] for rank in range(t.size)]
        hints = {"method": "straight"}
        with outcore.open(folder / "a.npy", "r+", comm=t, hints=hints) as a:
            a.write_all(keys[t.rank], t.rank + 1, method=method)
            stats = a.stats()
            got = a.read_all()
        np.testing.assert_array_equal(last(data, keys, range(1, t.size + 1)), got)
        moved = stats["written_bytes"] + stats["mapped_bytes"], stats["read_bytes"], here.sent
        return t.allgather(np.array(moved)).sum(axis=0).tolist(), len(set(t.nodes))

    for (written, read, sent), nodes in world.run(body):
        # Each element that anybody gives once, though most are given by two ranks.
        assert written == 4 * n * (48 * (world.size - 1) + 64)
        assert read == 0
        assert (sent > 0) == (method == "two-phase" and nodes > 1)


@ranks(2, 4, per_node=(None, 2))
def test_an_array_of_one_element(world, folder):
    def body(t):
        for method in ("auto", "direct", "two-phase"):
            once(t, lambda: np.save(folder / "a.npy", np.array(-1.0)))
            with outcore.open(folder / "a.npy", "r+", comm=t) as a:
                a.write_all((), 10.0 + t.rank, method=method)
                assert a.read_all(method=method) == 10.0 + t.size - 1
            t.barrier()

    world.run(body)
