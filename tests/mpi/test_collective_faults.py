"""A rank that fails, at every step: all ranks raise, nobody hangs, and the next collective works."""

import errno
import itertools
import threading

import numpy as np
import pytest

import outcore
import watched
from outcore import _core
from outcore.errors import BudgetError, CollectiveError
from outcore.ranks.collective import items, rounds
from ranks import once, ranks

ERRORS = {
    "EIO": lambda: OSError(errno.EIO, "input/output error"),
    "ENOSPC": lambda: OSError(errno.ENOSPC, "no space left"),
    "memory": MemoryError,
    "budget": lambda: BudgetError("too small", code="budget-too-small"),
    "interrupt": KeyboardInterrupt,
}


class Failed:
    """Work in the background that has failed."""

    done = True

    def __init__(self, error):
        self.error = error

    def wait(self):
        raise self.error()


class Faults:
    """Lets call number `at` of a kind fail, on ranks that ask for it; ranks may be threads."""

    def __init__(self, monkeypatch):
        here = self.here = threading.local()
        strike = self.strike

        class Faulty(watched.Watched):
            def read(self, k, slot, after=None):
                after = None if isinstance(after, Failed) else after
                return Failed(here.error) if strike("read") else super().read(k, slot, after)

            def batch(self, k, slot):
                if strike("batch"):
                    raise here.error()
                return super().batch(k, slot)

            def write(self, writes, holes):
                return Failed(here.error) if strike("write") else super().write(writes, holes)

        watched.use(monkeypatch, Faulty)
        for name in ("prepare_read", "prepare_write"):
            monkeypatch.setattr(items, name, self.wrap(getattr(items, name), "item"))
        monkeypatch.setattr(_core, "record", self.wrap(_core.record, "record"))

    def arm(self, kind, at, error):
        """Let a call of this rank fail."""
        self.here.kind, self.here.left, self.here.error = kind, at, error

    def disarm(self):
        """Tell whether one failed."""
        left = getattr(self.here, "left", None)
        self.here.left = None
        return left == 0

    def strike(self, kind):
        left = getattr(self.here, "left", None)
        if not left or kind != self.here.kind:
            return False
        self.here.left = left - 1
        return left == 1

    def wrap(self, plain, kind):
        def call(*args, **words):
            if self.strike(kind):
                raise self.here.error()
            return plain(*args, **words)

        return call


# What is done, kind of call, how many of them are tried.
STEPS = [
    ("read", "item", 1),
    ("read", "record", 1),
    ("read", "read", 6),
    ("write", "item", 1),
    ("write", "batch", 4),
    ("write", "write", 6),
    ("overlap", "write", 4),
]


@pytest.mark.parametrize("error", ERRORS)
@ranks(4, per_node=(None, 2))
def test_a_failure_at_any_step_is_raised_by_all(world, folder, error, agree_on, monkeypatch):
    monkeypatch.setattr(rounds, "REWRITES", True)
    faults = Faults(monkeypatch)
    agree_on(slot=1 << 12, least=1)
    # Several rounds, whoever owns how much.
    data = np.arange(32 * world.size * 64, dtype="i4").reshape(-1, 64)

    def collective(a, t, what):
        if what == "read":
            return a.read_all(np.s_[:, t.rank :: t.size], method="two-phase")
        step = 2 * t.size if what == "write" else 1
        return a.write_all(np.s_[:, t.rank :: step], data[:, t.rank :: step], method="two-phase")

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        struck = 0
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            for (what, kind, most), victim in itertools.product(STEPS, (0, t.size - 1)):
                for at in range(1, most + 1):
                    if t.rank == victim:
                        faults.arm(kind, at, ERRORS[error])
                    raised = None
                    try:
                        collective(a, t, what)
                    except (CollectiveError, KeyboardInterrupt) as failure:
                        raised = failure
                    hit = t.agree(int(faults.disarm()))
                    assert bool(hit) == (raised is not None), (what, kind, at, raised)
                    if hit:
                        struck += 1
                        interrupted = error == "interrupt" and t.rank == victim
                        assert isinstance(raised, KeyboardInterrupt) == interrupted
                        if not interrupted:
                            assert (
                                raised.code,
                                error == "interrupt" or (victim,) == raised.ranks,
                            ) == ("rank-failed", True)
                    # All that was written is what was there already.
                    np.testing.assert_array_equal(data, a.read_all(method="two-phase"))
        return struck

    for struck in world.run(body, timeout=120):
        assert struck >= 24


@ranks(2, 4, per_node=(None, 1, 2))
def test_slots_that_one_rank_cannot_have(world, folder, monkeypatch):
    usual = rounds.get_slots

    def short(transport, nbytes, number, room, rounds):
        # All ranks of a node raise, as `Transport.shared` does; those of the others have theirs.
        if transport.nodes[transport.rank] == transport.nodes[-1]:
            raise BudgetError("no room for slots", code="budget-too-small")
        return usual(transport, nbytes, number, room, rounds)

    data = np.arange(64 * 64, dtype="i4").reshape(64, 64)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            calls = (
                lambda: a.read_all(method="two-phase"),
                lambda: a.write_all(np.s_[t.rank :: t.size], 1, method="two-phase"),
            )
            for call in calls:
                with pytest.raises(CollectiveError, match="no room for slots") as caught:
                    call()
                assert caught.value.ranks[-1] == t.size - 1
            np.testing.assert_array_equal(data, a.read_all(method="direct"))

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "get_slots", short)
        world.run(body)


@ranks(2, 4)
def test_failed_cost_estimate_raises_on_all_ranks(world, folder):
    """The file is too short for the section of one rank: that is an error of the read, on all ranks."""
    data = np.arange(64 * 64, dtype="i4").reshape(64, 64)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", comm=t, hints={"cache": "bypass"}) as a:
            t.barrier()
            once(t, lambda: (folder / "a.npy").unlink())
            with pytest.raises(CollectiveError) as caught:
                a.read_all(np.s_[t.rank :: t.size])
            assert caught.value.code == "rank-failed"

    world.run(body)


@ranks(4, per_node=(None, 2))
def test_a_file_that_is_cut_off_while_ranks_read(world, folder):
    data = np.arange(64 * 64, dtype="i4").reshape(64, 64)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", comm=t) as a:
            t.barrier()

            def cut():
                with open(folder / "a.npy", "r+b") as file:
                    file.truncate(64 * 200)

            once(t, cut)
            for method in ("two-phase", "direct"):
                with pytest.raises(CollectiveError) as caught:
                    a.read_all(np.s_[:, t.rank :: t.size], method=method)
                assert caught.value.code == "rank-failed"

    world.run(body)
