"""A rank that fails, or means something else, in each kind of call: all raise, and go on in step."""

import errno
import gc
import itertools
import os
import signal
import threading

import numpy as np
import pytest

import outcore
import outcore.ranks.transport
import watched
from mpi.test_collective import once
from outcore import _core
from outcore.errors import CollectiveError, DistributionError, StorageError, UsageError
from outcore.mpi import DistArray, Distribution
from outcore.ranks.collective import items, traffic
from outcore.ranks.dist import redistribution
from outcore.ranks.transport.place import TAG_STOP
from ranks import ranks

ERRORS = {
    "EIO": lambda: OSError(errno.EIO, "input/output error"),
    "ENOSPC": lambda: OSError(errno.ENOSPC, "no space left"),
    "short read": lambda: StorageError("the file ended", code="file-too-short"),
    "interrupt": KeyboardInterrupt,
}


class Bomb:
    """Goes off at a step; tells how it ended."""

    def __init__(self, at, error):
        self.left, self.error, self.lock = at, error, threading.Lock()

    def tick(self):
        with self.lock:
            self.left -= 1
            strikes = self.left == 0
        if strikes:
            raise self.error()

    @property
    def struck(self):
        return self.left <= 0


class Core:
    """The core of an array of which every call is a step."""

    def __init__(self, core, bomb):
        self.core, self.bomb = core, bomb

    def __getattr__(self, name):
        found = getattr(self.core, name)
        if not callable(found) or name.endswith("_concurrent_writers"):
            return found

        def call(*args, **kwargs):
            self.bomb.tick()
            return found(*args, **kwargs)

        return call


def bare(value, bombs):
    """The same with cores of the core, and the bombs of the others."""
    if isinstance(value, Core):
        bombs[id(value.bomb)] = value.bomb
        return value.core
    if isinstance(value, list | tuple):
        return type(value)(bare(one, bombs) for one in value)
    return value


@pytest.fixture
def steps_of_core(monkeypatch):
    """What the core does with several arrays, or as an owner, are steps, too."""

    def stepwise(plain):
        def call(*args, **words):
            bombs = {}
            args = bare(args, bombs)
            for bomb in bombs.values():
                bomb.tick()
            return plain(*args, **words)

        return call

    class Stepwise(watched.Watched):
        def __init__(self, plan, rank, arrays, *more):
            self.bombs = {}
            super().__init__(plan, rank, bare(arrays, self.bombs), *more)

        def tick(self):
            for bomb in self.bombs.values():
                bomb.tick()

        def read(self, *args):
            self.tick()
            return super().read(*args)

        def batch(self, *args):
            self.tick()
            return super().batch(*args)

        def write(self, *args):
            self.tick()
            return super().write(*args)

    for name in ("own_price", "read_early", "read_many", "settings"):
        monkeypatch.setattr(_core, name, stepwise(getattr(_core, name)))
    watched.use(monkeypatch, Stepwise)


def struck_at_every_step(t, arm, disarm, call, error, victim, check=lambda: None, sparse=False):
    """Let a call fail at its first step on one rank, then at the next; how many it has, about."""
    at, following = 0, 1
    while True:
        at, following = following, following + 1 + (following // 3 if sparse else 0)
        bomb = Bomb(at, ERRORS[error])
        if t.rank == victim:
            arm(bomb)
        raised = None
        try:
            call()
        except (CollectiveError, DistributionError, OSError, KeyboardInterrupt) as failure:
            raised = failure
        disarm()
        struck = t.agree(int(t.rank == victim and bomb.struck))
        assert bool(struck) == (raised is not None), (at, error, raised)
        if not struck:
            check()
            return at - 1
        if t.rank == victim:
            assert error != "interrupt" or isinstance(raised, KeyboardInterrupt)
        else:
            assert raised.code in ("rank-failed", "failed-elsewhere")
            assert f"rank {victim}" in str(raised), raised


def accesses(t, arrays, data):
    """Calls, and the fewest steps that each has."""
    a, key = arrays[0], np.s_[t.rank :: t.size]
    columns = np.s_[:, t.rank :: t.size]
    form = Distribution(data.shape, ["block", "cyclic"], (t.size, 1))
    part = DistArray.from_function(lambda i, j: data[i, j], form, data.dtype, transport=t)

    def after_a_write(call):
        # What may have been written since the ranks synchronised is not read before they synchronise.
        def both():
            _core.Array.write(getattr(a.handle.core, "core", a.handle.core), np.s_[:1], data[:1])
            return call()

        return both

    def all_of(kind, method):
        if kind == "read":
            return lambda: outcore.mpi.read_all([(b, columns) for b in arrays], method=method)
        wanted = [(b, columns, data[columns]) for b in arrays]
        return lambda: outcore.mpi.write_all(wanted, method=method)

    calls = {
        "read cached": (lambda: a.read_all(key, method="direct"), 1),
        "read": (after_a_write(lambda: a.read_all(key, method="direct")), 4),
        "write": (lambda: a.write_all(key, data[key], method="direct"), 3),
        "DistArray.read_all": (after_a_write(lambda: part.read_all(a, method="direct")), 4),
        "DistArray.write_all": (lambda: part.write_all(a, method="direct"), 3),
    }
    for method in ("direct", "two-phase"):
        calls[f"read many {method}"] = (after_a_write(all_of("read", method)), 6)
        calls[f"write many {method}"] = (all_of("write", method), 6)
        calls[f"DistArray {method}"] = (lambda m=method: part.write_all(a, method=m), 3)
    return calls


def strike_accesses(world, folder, errors, victims, some=None):
    # Equally many rows for each.
    shape = (24 + -24 % world.size, 16)
    data = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    names = "abc"

    def body(t):
        once(t, lambda: [np.save(folder / f"{name}.npy", data) for name in names])
        arrays = [outcore.open(folder / f"{name}.npy", "r+", comm=t) for name in names]
        cores = [a.handle.core for a in arrays]

        def arm(bomb):
            for a, core in zip(arrays, cores, strict=True):
                a.handle.core = Core(core, bomb)

        def disarm():
            for a, core in zip(arrays, cores, strict=True):
                a.handle.core = core

        def check():
            for a in arrays:
                np.testing.assert_array_equal(data, a.read_all(method="two-phase"))

        for name, (call, least) in accesses(t, arrays, data).items():
            if some is not None and name not in some:
                continue
            for error, victim in itertools.product(errors, victims):
                found = struck_at_every_step(t, arm, disarm, call, error, victim % t.size, check)
                assert t.agree(found) >= (least if t.size > 1 else 1), (name, found)
        check()

    world.run(body, timeout=120)


FAST = (
    "read cached",
    "read",
    "write",
    "DistArray.read_all",
    "read many direct",
    "DistArray direct",
)


@ranks(1, 4)
def test_accesses_fail_on_all_ranks(world, folder, steps_of_core):
    strike_accesses(world, folder, ["EIO", "interrupt"], [-1], FAST)


@pytest.mark.parametrize("error", ERRORS)
@ranks(1, 2, 4, per_node=(None, 2))
def test_accesses_fail_on_all_ranks_slow(world, folder, steps_of_core, error):
    strike_accesses(world, folder, [error], [0, -1])


@pytest.fixture
def steps_of_dist(monkeypatch):
    """What a `DistArray` does before it sends is steps, of ranks that have a bomb."""
    here = threading.local()

    def stepwise(plain):
        def call(*args, **kwargs):
            bomb = getattr(here, "bomb", None)
            if bomb is not None:
                bomb.tick()
            return plain(*args, **kwargs)

        return call

    class Kernel:
        accumulate_plan = staticmethod(stepwise(_core.accumulate_plan))
        exchange_plan = staticmethod(stepwise(_core.exchange_plan))
        Reservation = staticmethod(stepwise(_core.Reservation))

        def __getattr__(self, name):
            return getattr(_core, name)

    for module in (redistribution, traffic):
        monkeypatch.setattr(module, "_core", Kernel())
    monkeypatch.setattr(traffic, "view_sections", stepwise(traffic.view_sections))
    return here


def strike_redistributions(world, here, budget, errors, sparse):
    shape = (3 * world.size, 10)

    def body(t):
        def value(i, j):
            return 100.0 * i + j

        rows = Distribution(shape, ["block", "*"], t.size)
        a = DistArray.from_function(value, rows, transport=t, ghosts=((1, 1), (0, 0)))
        columns = Distribution(shape, ["*", "cyclic"], t.size)
        whole = value(*np.ogrid[: shape[0], : shape[1]])

        def redistributed():
            made = a.redistribute_all(columns)
            np.testing.assert_array_equal(whole[:, t.rank :: t.size], made.owned)

        def gathered():
            np.testing.assert_array_equal(whole, a.gather_all())

        def combined():
            made = DistArray.from_function(value, rows, transport=t, ghosts=((1, 1), (0, 0)))
            made.accumulate_ghosts_all("maximum")
            np.testing.assert_array_equal(whole[made.global_slices[0]], made.owned)

        found = []
        for call, error in itertools.product(
            (redistributed, a.update_ghosts_all, gathered, combined), errors
        ):
            steps = struck_at_every_step(
                t,
                lambda bomb: setattr(here, "bomb", bomb),
                lambda: setattr(here, "bomb", None),
                call,
                error,
                t.size - 1,
                sparse=sparse,
            )
            found.append(t.agree(steps))
        return found

    # What earlier tests left goes now, or not while this one runs.
    gc.collect()
    held = _core.memory_state()[0]
    with outcore.memory(held + budget):
        found = world.run(body)[0]
    assert _core.memory_state()[0] <= held
    assert min(found) >= (3 if world.size > 1 else 2)
    # Those that travel in rounds have steps in each of them.
    assert world.size == 1 or max(found) >= (6 if budget > 1000 else 9)


@pytest.mark.parametrize("budget", [1 << 20, 700])
@ranks(1, 4, per_node=(None, 2))
def test_redistributions_fail_on_all_ranks(world, budget, steps_of_dist):
    """Also in the midst of rounds, where messages do not fit the budget at once."""
    strike_redistributions(world, steps_of_dist, budget, ["EIO", "interrupt"], sparse=True)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("budget", [1 << 20, 700])
@ranks(2, 4, per_node=(None, 2))
def test_redistributions_fail_on_all_ranks_slow(world, budget, error, steps_of_dist):
    strike_redistributions(world, steps_of_dist, budget, [error], sparse=False)


def interrupted(t, monkeypatch):
    """Ctrl-C on rank 0 in the midst of a redistribution: it is whole on all ranks, then it is raised."""
    plain, seen = traffic.TrafficRun._send, []

    def send(self, *args):
        if t.rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
        plain(self, *args)
        seen.append("sent")

    monkeypatch.setattr(traffic.TrafficRun, "_send", send)
    shape = (3 * t.size, 2 * t.size)
    a = DistArray.from_function(
        lambda i, j: i - j, Distribution(shape, ["block", "*"], t.size), "i8", transport=t
    )
    made = None
    try:
        made = a.redistribute_all(Distribution(shape, ["*", "block"], t.size))
        assert t.rank
    except KeyboardInterrupt:
        assert t.rank == 0
    assert seen == ["sent"]
    whole = np.subtract.outer(np.arange(shape[0]), np.arange(shape[1]))
    assert made is None or (made.owned == whole[:, made.global_slices[0][1]]).all()
    t.barrier()


@pytest.mark.simulated
def test_ctrl_c_waits_for_a_redistribution(monkeypatch):
    interrupted(outcore.ranks.transport.transport(None), monkeypatch)


@pytest.mark.real_mpi
@ranks(2)
def test_ctrl_c_waits_for_a_redistribution_of_ranks(world, monkeypatch):
    world.run(lambda t: interrupted(t, monkeypatch))


@ranks(2, 4, per_node=(None, 1))
def test_invalid_array_on_one_rank_raises_on_all(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.zeros((8, 8))))
        odd = t.size - 1
        part = DistArray.zeros(Distribution((8, 8), ["block", "*"], t.size), transport=t)
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            given = None if t.rank == odd else a
            requests = None if t.rank == odd else [(a, 0)]
            writes = None if t.rank == odd else [(a, 0, 1.0)]
            single = [5] if t.rank == odd else [(a, 0)]
            calls = (
                lambda: part.read_all(given),
                lambda: part.write_all(given),
                lambda: outcore.mpi.read_all(requests, comm=t),
                lambda: outcore.mpi.read_all(requests, comm=t, method="two-phase"),
                lambda: outcore.mpi.write_all(writes, comm=t),
                lambda: outcore.mpi.explain_all(requests, comm=t),
                lambda: outcore.mpi.read_all(single, comm=t),
                lambda: outcore.mpi.read_all([(given, 0), (a, 1)]),
                lambda: outcore.mpi.read_all([None if t.rank == odd else (a, 0), (a, 1)]),
            )
            for call in calls:
                with pytest.raises(CollectiveError) as caught:
                    call()
                assert (caught.value.code, caught.value.ranks) == ("rank-failed", (odd,))
            assert a.read_all(0).sum() == 0

    world.run(body)


@ranks(1, 2, 4)
def test_an_empty_list_needs_a_communicator(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.arange(8)))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            for call in (outcore.mpi.read_all, outcore.mpi.write_all, outcore.mpi.explain_all):
                with pytest.raises(UsageError, match="comm=") as caught:
                    call([])
                assert caught.value.code == "missing-argument"
            mine = [(a, np.s_[:4])] if t.rank == 0 else []
            got = outcore.mpi.read_all(mine, comm=t)
            assert [part.tolist() for part in got] == [[0, 1, 2, 3]] * len(mine)
            outcore.mpi.write_all([], comm=t)

    world.run(body)


@ranks(1, 4, per_node=(None, 2))
def test_others_are_expected_for_the_time_of_a_write(world, folder, monkeypatch):
    """Not by writes that follow it, nor because somebody asked what it would do."""
    here, plain = threading.local(), items.get_array_and_file_ids

    def names_and_files(brought):
        here.most = max([here.most, *(item.core.concurrent_writers for item in brought)])
        return plain(brought)

    monkeypatch.setattr(items, "get_array_and_file_ids", names_and_files)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.zeros((t.size, 8))))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            row = np.s_[t.rank]
            calls = [
                lambda: a.write_all(row, 1.0, method="direct"),
                lambda: a.write_all(row, 1.0, method="two-phase"),
                lambda: a.explain_all(row, write=True),
                lambda: outcore.mpi.write_all([(a, row, 2.0), (a, np.s_[:0], 0)], method="direct"),
                lambda: a.write_all(99 if t.rank == 0 else row, 1.0),
                lambda: a.write_all(row, 1.0, method="sieve" if t.rank == 0 else "direct"),
            ]
            found = []
            for call in calls:
                here.most = 0
                try:
                    call()
                except CollectiveError:
                    assert len(found) > 3
                assert a.handle.core.concurrent_writers == 0
                found.append(here.most)
            shared = t.nodes.count(t.nodes[t.rank]) > 1
            assert found[:4] == [1, 1, 1, 2] if shared else not any(found)

    world.run(body)


def mismatches(t, folder, a, b):
    """Pairs of calls: that of the last rank, and that of the others; and words of the messages."""
    form = Distribution((8, 8), ["block", "*"], t.size)
    part = DistArray.zeros(form, transport=t)
    rows = [(a, np.s_[t.rank % 8])]
    writes = [(a, np.s_[t.rank % 8], 0.0)]

    def opened(name, mode="r", **more):
        return lambda: outcore.open(folder / name, mode, comm=t, **more)

    new = {"shape": (3,), "dtype": "f8"}
    return [
        (lambda: a.read_all(0), lambda: a.write_all(0, 0.0), "write_all"),
        (lambda: a.read_all(0), lambda: b.read_all(0), "another array"),
        (lambda: a.read_all(0), lambda: a.read_all(0, method="direct"), "'direct'"),
        (lambda: a.read_all(0), lambda: a.explain_all(0), "explain_all"),
        (lambda: a.read_all(0), lambda: outcore.mpi.read_all(rows), r"outcore\.mpi\.read_all"),
        (lambda: a.read_all((0, 0)), lambda: a.read_all((0, 0, 0)), None),
        (lambda: a.write_all(0, 0.0), a.flush_all, "flush_all"),
        (a.flush_all, b.flush_all, "flush_all of .*b.npy"),
        (a.flush_all, opened("a.npy"), r"outcore\.open"),
        (opened("a.npy"), opened("b.npy"), "open of .*b.npy"),
        (opened("a.npy"), opened("a.npy", "r+"), r"with mode 'r\+'"),
        (opened("a.npy"), opened("a.npy", "w", **new), "with mode 'w'"),
        (opened("a.npy", "w", **new), opened("b.npy", "w", **new), "open of .*b.npy"),
        (opened("c.npy", "x", **new), opened("a.npy"), "with mode 'x'"),
        (
            lambda: outcore.mpi.read_all(rows),
            lambda: outcore.mpi.write_all(writes),
            r"outcore\.mpi\.write_all",
        ),
        (
            lambda: outcore.mpi.read_all(rows),
            lambda: outcore.mpi.write_all([], comm=t),
            "write_all",
        ),
        (lambda: part.read_all(a), lambda: part.write_all(a), r"DistArray\.write_all"),
        (lambda: part.read_all(a), lambda: a.read_all(0), "read_all"),
        (part.gather_all, lambda: a.read_all(0), "read_all"),
        (a.flush_all, part.gather_all, r"DistArray\.gather_all"),
        (part.update_ghosts_all, part.gather_all, "gather_all"),
        (part.update_ghosts_all, part.accumulate_ghosts_all, "accumulate_ghosts_all"),
        (
            part.accumulate_ghosts_all,
            lambda: part.accumulate_ghosts_all("maximum"),
            "different arrays or arguments",
        ),
        (lambda: part.redistribute_all(form), opened("a.npy"), r"outcore\.open"),
        (lambda: a.read_all(0), lambda: t.agree(0), "agree"),
        (a.flush_all, t.barrier, "barrier"),
    ]


@ranks(2, 4, per_node=(None, 1))
def test_ranks_that_call_different_things_all_raise(world, folder):
    """Before anything is done, and are in step afterwards."""

    def body(t):
        data = np.arange(64.0).reshape(8, 8)
        once(t, lambda: [np.save(folder / f"{name}.npy", data) for name in "ab"])
        odd = t.size - 1
        with (
            outcore.open(folder / "a.npy", "r+", comm=t) as a,
            outcore.open(folder / "b.npy", "r+", comm=t) as b,
        ):
            for number, (usual, other, text) in enumerate(mismatches(t, folder, a, b)):
                if number % 3 == 0:
                    a.flush_all()
                elif number % 3 == 1:
                    assert (a.read_all(method="two-phase") == data).all()
                kinds = CollectiveError, DistributionError
                with pytest.raises(kinds, match=text) as caught:
                    (other if t.rank == odd else usual)()
                codes = ("rank-failed",) if text is None else ("mismatched-call", "ranks-disagree")
                assert caught.value.code in codes, number
                named = getattr(caught.value, "ranks", None) or (caught.value.rank,)
                assert named == (odd,), (number, str(caught.value))
            assert (a.read_all() == data).all()
            assert (b.read_all() == data).all()
        assert not (folder / "c.npy").exists()
        for name in "ab":
            assert (np.load(folder / f"{name}.npy") == data).all()

    world.run(body)


@ranks(2, 4)
def test_one_file_by_many_names(world, folder):
    """Links and relative paths lead to the same array; so do folders that changed their names."""

    def body(t):
        def make():
            (folder / "one").mkdir()
            np.save(folder / "one" / "a.npy", np.arange(5))
            os.symlink("one", folder / "same")
            os.symlink(folder / "one" / "a.npy", folder / "link.npy")

        once(t, make)
        names = ["one/a.npy", "same/a.npy", "link.npy", "same/../one/a.npy"]
        for turn in range(t.size):
            with outcore.open(folder / names[(t.rank + turn) % len(names)], "r+", comm=t) as a:
                assert a.read_all(2) == 2
                a.flush_all()

        def move():
            os.rename(folder / "one", folder / "two")
            os.rename(folder / "same", folder / "gone")
            os.symlink("two", folder / "same")

        once(t, move)
        name = "two/a.npy" if t.rank else "same/a.npy"
        for _ in range(2):
            with outcore.open(folder / name, comm=t) as a:
                assert a.read_all(3) == 3

    world.run(body)


@pytest.mark.parametrize("part", ["receive", "done", "send"])
@pytest.mark.parametrize("call", ["agree", "read_all", "start_exchange"])
@ranks(4, per_node=(2,))
def test_messages_that_fail_stop_all_ranks(world, folder, part, call):
    """An error of the leader of a node is not his alone: others of his node wait for what he heard."""

    class Broken:
        def __init__(self, request):
            self.request = request

        def __getattr__(self, name):
            return getattr(self.request, name)

        def done(self):
            raise OSError(errno.EIO, "the network is down")

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.arange(8)))
        a = outcore.open(folder / "a.npy", comm=t)
        leader = t.nodes.index(1)
        receive, send = t.wire.receive, t.wire.send

        def broken(*args):
            raise OSError(errno.EIO, "the network is down")

        def broken_but_for_the_end(peer, tag, data):
            return (send if tag == t.place.get_tag(TAG_STOP) else broken)(peer, tag, data)

        def cut():
            if part == "done":
                t.wire.receive = lambda *args: Broken(receive(*args))
            elif part == "receive":
                t.wire.receive = broken
            else:
                t.wire.send = broken_but_for_the_end

        counts = np.full(t.size, 3)
        room = np.zeros((2, counts.sum()), np.uint8)
        calls = {
            "agree": lambda: t.agree(1),
            "read_all": lambda: a.read_all(...),
            "start_exchange": lambda: t.start_exchange(room[0], counts, room[1], counts).wait(),
        }
        try:
            # Ranks that are not through with it when the leader fails hear of that here.
            t.barrier()
            if t.rank == leader:
                cut()
            calls[call]()
            t.barrier()
            raised = None
        except (CollectiveError, OSError) as error:
            raised = error
        with pytest.raises(CollectiveError) as again:
            t.barrier()
        if t.rank == leader:
            cause = raised.__cause__ if call == "read_all" else raised
            assert isinstance(cause, OSError) and "network is down" in str(raised)
        assert (again.value.code, again.value.ranks) == ("rank-failed", (leader,))
        assert "network is down" in str(again.value)
        assert t.rank == leader or isinstance(raised, CollectiveError)
        t.wire.__dict__.pop("receive", None)
        t.wire.__dict__.pop("send", None)

    world.run(body, timeout=30)
