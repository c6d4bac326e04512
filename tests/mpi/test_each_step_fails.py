"""
Each step of each collective call fails on one rank: all ranks raise, name it, and go on in step.

Of distributed arrays in memory, disk resident arrays, checkpoints, placements and groups. Steps are what
a call asks of the system and of the core (`call_steps`), and memory that its own modules take; those of
the accesses below are struck in `test_faults_of_calls` and `test_collective_faults`, too.
"""

import errno
import os
import re

import numpy as np
import pytest

import outcore
from mpi.call_steps import Steps, constructors, words
from mpi.killed_calls import NEW, OLD, SHAPE, part
from outcore.errors import BudgetError
from outcore.mpi import DistArray, Distribution
from outcore.ranks.resident import naming
from ranks import once, ranks

#: Where what asks for memory is a step. Sums end with a few numbers, when all ranks have said theirs.
OWN = re.compile(r"outcore/(ranks/(dist/(?!sums)|resident/|restart/)|problems/placement/)")
MEMORY = words("copy empty empty_like zeros")
#: Steps that only tidy up, or try what can be done in another way: calls end well then.
SPARED = re.compile(
    r"(flock|listdir|own_price|remove_left|rmdir|unlink) in "
    r"|Reservation in .*/(traffic|movement|products)\.py"
    # The format that the suffix tells is tried first; what is removed is opened for the background;
    # a file that cannot be opened cannot be locked, which its writing says; what a manifest that cannot
    # be read again may name stays; a side file that cannot be opened is not believed.
    r"|open in .*/formats/(npy|durable|locks|documents|side_files)\.py|mkdir in <frozen os>"
)


def takes_memory(frame, function):
    """Whether a call in C is one of NumPy for memory, made by the modules that are tested."""
    if function.__name__ not in MEMORY or not OWN.search(frame.f_code.co_filename):
        return False
    owner = getattr(function, "__self__", None)
    return isinstance(owner, np.ndarray) or str(function.__module__).startswith("numpy")


def refuse(name):
    """What a step raises."""
    kind = name.partition(" ")[0]
    if kind == "Reservation":
        raise BudgetError("on purpose", code="budget-too-small")
    if kind in MEMORY:
        raise MemoryError("on purpose")
    raise OSError(errno.EIO, "on purpose")


@pytest.fixture
def made_by_functions(monkeypatch):
    constructors(monkeypatch.setattr)


def each_step_fails(t, call, check, victim):
    """Let a call fail at its first step on one rank, then at the next; the steps that it has."""
    met = []
    while True:
        steps = Steps(len(met) + 1 if t.rank == victim else 0, refuse, also=takes_memory)
        raised, result = None, None
        t.barrier()
        try:
            with steps:
                result = call()
        except (outcore.OutcoreError, OSError, MemoryError) as failure:
            raised = failure
        heard = t.allgather_bytes((steps.struck or "").encode())[victim].decode()
        ends = t.allgather(np.array([raised is not None]).astype("i8"))[:, 0].tolist()
        told = heard, ends, repr(raised)
        assert len(set(ends)) == 1, told
        if not heard:
            assert raised is None, told
            check(result)
            return met
        met.append(heard)
        if raised is None:
            assert SPARED.match(heard), told
        elif t.size > 1 and t.rank != victim:
            assert raised.code in ("rank-failed", "failed-elsewhere"), told
            assert f"rank {victim}" in str(raised) or f"rank={victim}" in str(raised), told


def strike(world, calls, victims=(0, -1)):
    """Of each call all steps, on these ranks; fewest steps by name of the call."""

    def body(t):
        for name, (call, check, least) in calls(t).items():
            struck = [
                each_step_fails(t, call, check, victim)
                for victim in sorted({victim % t.size for victim in victims})
            ]
            # Of more than four ranks some have no part, and fewer steps.
            enough = min if t.size <= 4 else max
            assert t.size == 1 or enough(map(len, struck)) >= least, (name, struck)
        t.barrier()

    world.run(body, timeout=60)


def same(expected):
    def check(found):
        whole = found.gather_all()
        np.testing.assert_array_equal(expected, whole)

    return check


def equals(data):
    return lambda found: np.testing.assert_array_equal(data, found)


def anything(found):
    """Nothing is told."""


def in_memory(t):
    """Calls of arrays in memory; those without memory of their own have no step."""
    turns = Distribution(SHAPE, ["*", "cyclic"], t.size)
    a = part(t, OLD)
    b = DistArray.from_function(lambda i, j: 6.0 * i + j, turns, transport=t)
    small = DistArray.zeros(turns, "f4", transport=t)

    def shared():
        made = DistArray.shared_all(a.distribution, transport=t)
        made.put(np.s_[:1], OLD[:1])
        made.fence_all()
        made.close_all()

    return {
        "copy_all": (a.copy_all, same(OLD), 1),
        "copy_all to another": (lambda: a.copy_all(small), same(OLD), 1),
        "add_all": (lambda: a.add_all(b), same(2 * OLD), 2),
        "add_all to another": (lambda: a.add_all(b, out=small), same(2 * OLD), 2),
        "map_all": (lambda: a.map_all(np.maximum, b), same(OLD), 2),
        "dot_all": (lambda: a.dot_all(b), equals((OLD * OLD).sum()), 1),
        "matmul_all": (lambda: a.matmul_all(b.transpose_all()), same(OLD @ OLD.T), 3),
        "transpose_all": (
            lambda: a.transpose_all(distribution=Distribution(SHAPE[::-1], ["block", "*"], t.size)),
            same(OLD.T),
            1,
        ),
        "redistribute_all": (lambda: a.redistribute_all(turns), same(OLD), 1),
        "shared_all": (shared, anything, 1),
    }


@ranks(1, 3, per_node=(None, 2))
def test_arrays_in_memory(world, made_by_functions):
    strike(world, in_memory, [-1])


def resident(t, folder):
    """Calls of disk resident arrays."""
    known = {"dtype": "f8", "typical_sections": (3, None), "comm": t}

    def temporary():
        outcore.mpi.disk_array(folder / "t", SHAPE, keep=False, **known).close()

    def made():
        outcore.mpi.disk_array(folder / "m.npy", SHAPE, **known, overwrite=True).close()

    def opened():
        outcore.mpi.disk_array(folder / "m.npy", comm=t).close()

    def nothing_stays(_):
        t.barrier()
        assert [name for name in os.listdir(folder) if name.startswith(".")] == []
        t.barrier()

    once(t, lambda: [np.save(folder / f"{name}.npy", OLD) for name in "de"])
    d = outcore.mpi.disk_array(folder / "d.npy", comm=t)
    a, small, cast = part(t, NEW), part(t, OLD), part(t, OLD.astype("f4"))
    written = NEW.copy()
    written[:6] = NEW[6:]

    def renamed():
        other = "e" if d.path.endswith("d.npy") else "d"
        d.rename(folder / other, overwrite=True)

    return {
        "temporary": (temporary, nothing_stays, 3),
        "made": (made, anything, 1),
        "opened": (opened, anything, 0),
        "write": (lambda: d.write(a), lambda _: same(NEW)(read(d, small)), 1),
        "write_section": (
            lambda: d.write_section(np.s_[:6], a, np.s_[6:], transpose=False, method="two-phase"),
            anything,
            3,
        ),
        "read_section with a cast": (
            lambda: d.read_section(np.s_[:6], cast, np.s_[6:], method="two-phase"),
            anything,
            3,
        ),
        "flush": (d.flush, anything, 1),
        "rename": (renamed, lambda _: same(written)(read(d, small)), 3),
    }


def read(d, into):
    """The array, in memory."""
    d.read(into)
    return into


@ranks(1, 2)
def test_disk_resident_arrays(world, folder, made_by_functions):
    strike(world, lambda t: resident(t, folder))


def restarted(t, folder):
    """Checkpoints, and reading them."""
    place = folder / "state"
    u = part(t, OLD)
    turns = Distribution(SHAPE, ["*", "cyclic"], t.size)

    def keep():
        outcore.mpi.checkpoint(place, {"u": u, "v": np.arange(5), "step": 7})

    def is_there(_):
        found = outcore.mpi.restore(place, comm=t)
        assert found["step"] == 7
        same(OLD)(found["u"])
        t.barrier()
        names = sorted(name.partition("-")[0] for name in os.listdir(place))
        assert names == ["arrays", "checkpoint.json"], names
        t.barrier()

    def into(target):
        return lambda: outcore.mpi.restore(place, into={"u": target}, comm=t)

    filled = part(t, NEW)
    outcore.mpi.checkpoint(place, {"u": u, "v": np.arange(5), "step": 7})
    return {
        "checkpoint": (keep, is_there, 2),
        "restore": (lambda: outcore.mpi.restore(place, comm=t), lambda got: same(OLD)(got["u"]), 1),
        "restore divided": (into(turns), lambda got: same(OLD)(got["u"]), 1),
        "restore into": (
            lambda: outcore.mpi.restore(place, into={"u": filled}),
            lambda got: same(OLD)(got["u"]),
            1,
        ),
    }


@ranks(1, 3)
def test_checkpoints(world, folder, made_by_functions):
    strike(world, lambda t: restarted(t, folder))


def placed(t, folder):
    """Calls of placed arrays, in each placement."""
    rows = Distribution(SHAPE, ["block", "*"], t.size)
    turns = Distribution(SHAPE, ["cyclic", "*"], t.size)
    calls = {}

    def filled(name, placement):
        a = outcore.mpi.create_placed(
            folder / name, rows, "f8", placement=placement, ghosts=[1, 0], comm=t
        )
        a.write_section(..., part(t, OLD).owned)
        a.flush_all()
        return a

    def create(name, **words):
        def call():
            outcore.mpi.create_placed(
                folder / name, rows, "f8", comm=t, **words, overwrite=True
            ).close()

        return call

    def reopen(name, *words, **more):
        def call():
            outcore.mpi.open_placed(folder / name, *words, comm=t, **more).close()

        return call

    def copy(source, name, placement):
        def call():
            made = outcore.mpi.copy_placed(
                source, folder / name, placement=placement, distribution=turns, overwrite=True
            )
            try:
                return made.read_global_all()
            finally:
                made.close()

        return call

    def walk(a, b):
        def call():
            for slab in a.slabs(rows=4):
                b.write_slab(slab, slab.own + 1)
            b.flush_all()

        return call

    one, other = filled("g.npy", "global"), filled("l", "local")
    together, target = filled("p.npy", "partitioned"), filled("q.npy", "partitioned")
    mine = outcore.create(folder / f"mine-{t.rank}.npy", (3, 6), "f8")
    for name, a in (("global", one), ("local", other)):
        calls |= {
            f"{name} flush_all": (a.flush_all, anything, 1),
            f"{name} in_core_all": (a.in_core_all, same(OLD), 1),
            f"{name} read_global_all": (a.read_global_all, equals(OLD), 1),
            f"{name} multicast_all": (lambda a=a: a.multicast_all(np.s_[2:5], mine), anything, 2),
        }
    for method in ("direct", "out-of-core", "in-core"):
        calls[f"shift_all {method}"] = (lambda m=method: other.shift_all(m), anything, 1)
    return calls | {
        "create global": (create("c.npy"), anything, 0),
        "create local": (create("c", placement="local", ghosts=[1, 0]), anything, 3),
        "open global": (reopen("g.npy", rows), anything, 0),
        "open local": (reopen("l"), anything, 1),
        "copy to local": (copy(one, "k", "local"), equals(OLD), 4),
        "copy to global": (copy(other, "k.npy", "global"), equals(OLD), 4),
        "slabs together": (
            walk(together, target),
            lambda _: equals(OLD + 1)(target.read_global_all()),
            3,
        ),
    }


@ranks(1, 3)
def test_placed_arrays(world, folder, made_by_functions):
    strike(world, lambda t: placed(t, folder), [-1])


@ranks(2)
def test_placed_arrays_on_the_first_rank_slow(world, folder, made_by_functions):
    strike(world, lambda t: placed(t, folder), [0])


def grouped(t, folder):
    """Groups of a Zarr store, whose documents are read step by step."""
    place = folder / "g.zarr"
    once(t, lambda: outcore.open_group(place, "w").create_group("below", attrs={"n": 1}))
    group = outcore.open_group(place, "r+", comm=t)

    def is_there(made):
        assert made.name == "/below" and dict(made.attrs) == {"n": 1}

    def walked():
        return [name for name, _ in group.walk() if name == "below"]

    return {
        "open_group": (lambda: outcore.open_group(place, comm=t), anything, 1),
        "open_group a": (lambda: outcore.open_group(place, "a", comm=t), anything, 1),
        "member": (lambda: group["below"], is_there, 1),
        "create_group": (
            lambda: group.create_group("new", attrs={"n": 1}, exist_ok=True),
            anything,
            1,
        ),
        "walk": (walked, lambda found: equals(np.array(["below"]))(np.array(found)), 1),
    }


@ranks(1, 3)
def test_groups(world, folder, made_by_functions):
    strike(world, lambda t: grouped(t, folder))


def opened_together(t, folder):
    """Arrays of files of their own, and of one file."""
    once(t, lambda: [np.save(folder / f"{name}.npy", OLD) for name in "de"])
    once(t, lambda: outcore.create(folder / "z.zarr", data=OLD, chunks=(3, -1)).close())
    paths = [folder / name for name in ("d.npy", "z.zarr", "e.npy")]

    def read():
        arrays = outcore.open_many(paths, comm=t)
        try:
            return np.array(outcore.mpi.read_all([(a, ...) for a in arrays], method="two-phase"))
        finally:
            for array in arrays:
                array.close()

    return {"open_many": (read, equals(np.array([OLD] * 3)), 3)}


@ranks(1, 3)
def test_arrays_that_are_opened_together(world, folder, made_by_functions):
    strike(world, lambda t: opened_together(t, folder))


@ranks(1, 2)
def test_an_array_whose_name_changed_before_a_sync_failed_has_the_new_one(
    world, folder, monkeypatch
):
    moved = naming.durable.move_into_place

    def moves(*args, **more):
        moved(*args, **more)
        raise OSError(errno.EIO, "on purpose")

    def body(t):
        d = outcore.mpi.disk_array(folder / "d.npy", SHAPE, "f8", comm=t)
        d.write(part(t, OLD))
        with pytest.raises(outcore.OutcoreError, match="on purpose"):
            d.rename(folder / "e.npy")
        assert d.path == str(folder / "e.npy")
        same(OLD)(read(d, part(t, NEW)))
        d.close()

    monkeypatch.setattr(naming.durable, "move_into_place", moves)
    world.run(body)
