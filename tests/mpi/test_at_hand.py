"""What every rank can read out of the page cache takes one gathering; nobody plans for anybody."""

import time

import numpy as np
import pytest

import outcore
from outcore.errors import CollectiveError
from outcore.transport.group import Group
from outcore.transport.serial import SerialTransport
from ranks import ranks

FILES, SHAPE = 30, (24, 40)


def made(t, folder, mode="r", **hints):
    if t.rank == 0:
        for k in range(FILES):
            outcore.create(folder / f"{k}.npy", data=k + np.arange(960.0).reshape(SHAPE)).close()
    t.barrier()
    return [outcore.open(folder / f"{k}.npy", mode, comm=t, hints=hints) for k in range(FILES)]


def expected(k, key):
    return (k + np.arange(960.0).reshape(SHAPE))[key]


@pytest.fixture
def steps(monkeypatch):
    """The calls of transports, by rank."""
    seen = {}
    for kind in (Group, SerialTransport):
        for name in ("allgather", "allgather_bytes", "agree", "barrier", "shared"):
            plain = getattr(kind, name)

            def counted(self, *args, call=plain, name=name):
                seen.setdefault(self.rank, []).append(name)
                return call(self, *args)

            monkeypatch.setattr(kind, name, counted)
    return seen


@ranks(1, 2, 4, per_node=(None, 1))
@pytest.mark.parametrize("method", ["auto", "direct", "sieve"])
def test_one_gathering_and_no_more(world, folder, steps, method):
    def body(t):
        arrays = made(t, folder)
        key = np.s_[t.rank :: t.size, ::-2]
        # Ranks that may have written since they met do not read early.
        arrays[0].read_all(np.s_[:1], method=method)
        t.barrier()
        steps[t.rank] = []
        one = arrays[3].read_all(key, method=method)
        first, steps[t.rank] = steps[t.rank], []
        out = np.empty_like(one)
        given = [(a, key, out) if k == 5 else (a, key) for k, a in enumerate(arrays)]
        many = outcore.read_all([*given, (arrays[0], (1, 2))], method=method)
        second = list(steps[t.rank])
        t.barrier()
        np.testing.assert_array_equal(one, expected(3, key))
        for k, got in enumerate(many[:-1]):
            np.testing.assert_array_equal(got, expected(k, key))
        assert many[5] is out and many[-1] == expected(0, (1, 2)) and many[-1].shape == ()
        return first, second

    for told in world.run(body):
        assert told == (["allgather"], ["allgather"])


@ranks(2, 3, 4, per_node=(None, 1))
def test_some_have_it_at_hand_and_some_have_not(world, folder):
    def body(t):
        # Past the page cache nothing is at hand.
        arrays = made(t, folder, **({"cache": "bypass"} if t.rank % 2 else {}))
        key = np.s_[t.rank :: t.size]
        one = arrays[7].read_all(key)
        many = outcore.read_all([(a, key) for a in arrays[t.rank :]])
        np.testing.assert_array_equal(one, expected(7, key))
        for k, got in enumerate(many, start=t.rank):
            np.testing.assert_array_equal(got, expected(k, key))

    world.run(body)


@ranks(2, 4)
def test_what_is_at_hand_is_compared_all_the_same(world, folder):
    def body(t):
        arrays = made(t, folder)
        last = t.rank == t.size - 1
        with pytest.raises(CollectiveError, match="another array than rank 0") as caught:
            arrays[int(last)].read_all(np.s_[:2])
        assert caught.value.ranks == (t.size - 1,)
        for requests in ([(arrays[0], np.s_[:2])], [(a, ...) for a in arrays]):
            with pytest.raises(CollectiveError, match="asked for method='auto'"):
                outcore.read_all(requests, method="direct" if last else "auto")
        with pytest.raises(CollectiveError) as caught:
            outcore.read_all([(arrays[0], np.s_[:2]), (arrays[1], 99 if last else 1)])
        assert caught.value.ranks == (t.size - 1,)
        # In step again.
        np.testing.assert_array_equal(arrays[2].read_all(np.s_[1]), expected(2, 1))

    world.run(body)


@ranks(2, 4, per_node=(None, 1))
@pytest.mark.parametrize("method", ["auto", "direct", "two-phase"])
def test_what_a_rank_wrote_before_the_call_is_seen_by_all(world, folder, method):
    """Also if the others have long come, and have all they want at hand."""

    def body(t):
        arrays = made(t, folder, "r+")
        for turn in range(1, 4):
            arrays[0].read_all(method=method)
            outcore.read_all([(a, ...) for a in arrays], method=method)
            writer = turn % t.size
            if t.rank == writer:
                time.sleep(0.1)
                arrays[0][3] = -turn
                arrays[9][3] = -turn
            one = arrays[0].read_all(method=method)
            many = outcore.read_all([(a, ...) for a in arrays], method=method)
            assert (one[3] == -turn).all() and (many[9][3] == -turn).all()

    world.run(body)
