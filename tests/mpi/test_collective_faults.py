"""A rank that fails, at every step: all ranks raise, nobody hangs, and the next collective works."""

import errno
import itertools

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.errors import BudgetError, CollectiveError
from ranks import once, ranks

ERRORS = {
    "EIO": lambda: OSError(errno.EIO, "input/output error"),
    "ENOSPC": lambda: OSError(errno.ENOSPC, "no space left"),
    "memory": MemoryError,
    "budget": lambda: BudgetError("too small", code="budget-too-small"),
    "interrupt": KeyboardInterrupt,
}


class Faulty:
    """The core of an array, of which call number `at` of a kind fails."""

    def __init__(self, core, kind, at, error):
        self.core, self.kind, self.left, self.error = core, kind, at, error
        self.struck = False

    def __getattr__(self, name):
        found = getattr(self.core, name)
        if name != self.kind:
            return found

        def call(*args, **kwargs):
            self.strike(name)
            return found(*args, **kwargs)

        return call

    def strike(self, kind):
        """Count a call; fail if its turn has come."""
        self.left -= kind == self.kind
        if self.left == 0 and not self.struck:
            self.struck = True
            raise self.error()


def read_many(wanted, plain=_core.read_many, **options):
    """As `_core.read_many`, which knows no cores but real ones."""
    if any(isinstance(core, Faulty) for core, *_ in wanted):
        return [core.read(*rest) for core, *rest in wanted]
    return plain(wanted, **options)


# Kind of call, how many of them are tried; reads of a write are those before a tile with holes.
STEPS = [
    ("read", "section_of", 1),
    ("read", "descriptor", 2),
    ("read", "read", 6),
    ("write", "section_of", 1),
    ("write", "read_to_write", 4),
    ("write", "write", 6),
    ("overlap", "write", 4),
]


@pytest.mark.parametrize("error", ERRORS)
@ranks(4, per_node=(None, 2))
def test_a_failure_at_any_step_is_raised_by_all(world, folder, error, agree_on, monkeypatch):
    from outcore.collective import holes

    monkeypatch.setattr(_core, "read_many", read_many)
    monkeypatch.setattr(holes, "rewrites", lambda *_: True)
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
            core = a._core
            for (what, kind, most), victim in itertools.product(STEPS, (0, t.size - 1)):
                for at in range(1, most + 1):
                    if t.rank == victim:
                        a._core = Faulty(core, kind, at, ERRORS[error])
                    raised = None
                    try:
                        collective(a, t, what)
                    except (CollectiveError, KeyboardInterrupt) as failure:
                        raised = failure
                    hit = t.agree(int(t.rank == victim and a._core.struck))
                    a._core = core
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
    from outcore.collective import rounds

    usual = rounds.slots_of

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
        patch.setattr(rounds, "slots_of", short)
        world.run(body)


@ranks(2, 4)
def test_what_cannot_be_priced_keeps_nobody_waiting(world, folder, monkeypatch):
    from outcore.collective import price

    def broken(*_args, **_kwargs):
        raise OSError(errno.EIO, "input/output error")

    data = np.arange(64 * 64, dtype="i4").reshape(64, 64)
    monkeypatch.setattr(price, "_priced", broken)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", comm=t, hints={"cache": "bypass"}) as a:
            np.testing.assert_array_equal(
                data[t.rank :: t.size], a.read_all(np.s_[t.rank :: t.size])
            )

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
