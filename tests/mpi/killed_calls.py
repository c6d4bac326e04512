"""
Calls of several ranks of which ranks are killed at a step, and what has to be true of the disk then.

Each is a `Call`: what is there before, what the ranks do, which state is found afterwards (an error if
it is a mixture), and how whoever comes next goes on, after which nothing is left that nobody names. The
same calls are made by forked ranks and under mpiexec.
"""

import os
import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np

import outcore
from outcore.cli import main as command
from outcore.formats import whole
from outcore.mpi import DistArray, Distribution
from outcore.testing.sim import SimWorld

SHAPE = (12, 6)
OLD = np.arange(72.0).reshape(SHAPE)
NEW = OLD + 1000


def part(t, data, ghosts=0):
    """What a rank has of an array, in blocks of rows."""
    rows = Distribution(data.shape, ["block", "*"], t.size)
    made = DistArray.zeros(rows, data.dtype, transport=t, ghosts=ghosts)
    for key, view in made.pieces():
        view[...] = data[key]
    return made


def files(folder):
    """All files below a folder, and in it, but for the marks of arrays that may have parts there."""
    return sorted(
        os.path.relpath(os.path.join(above, name), folder)
        for above, _, names in os.walk(folder)
        for name in names
        if not name.startswith(".outcore-home-")
    )


@dataclass(frozen=True)
class Call:
    """One call: what takes the folder where it happens, and the states before and after it."""

    prepare: Any
    act: Any
    state: Any
    again: Any
    old: Any
    new: Any
    #: Whether the first rank alone changes anything.
    first: bool = False

    def check(self, folder):
        """The state that is found, which is the old or the new one."""
        found = self.state(folder)
        assert found in (self.old, self.new), found
        return found


# Checkpoints


def kept(number):
    return {"u": number * OLD, "v": np.full(7, number, "i4"), "step": number}


def keep(t, place, number, *, started=False):
    u = part(t, number * OLD)
    arrays = {"u": u, "v": np.full(7, number, "i4"), "step": number}
    if not started:
        outcore.mpi.checkpoint(place, arrays, comm=t)
        return
    request = outcore.mpi.icheckpoint(place, arrays, comm=t)
    u.local[...] = -1
    request.wait()


def restored(folder):
    """Of one process, and of another number of ranks than wrote it."""
    found = outcore.mpi.restore(folder / "state")
    number = found["step"]

    def read(t):
        columns = Distribution(SHAPE, ["*", "cyclic"], t.size)
        got = outcore.mpi.restore(folder / "state", into={"u": columns}, comm=t)
        return got["step"], got["u"].gather_all(), got["v"]

    for step, u, v in [(number, found["u"], found["v"]), *SimWorld(3).run(read)]:
        assert step == number
        assert (u == number * OLD).all() and (v == number).all(), "a mixture"
    return number


def keep_another(folder):
    outcore.mpi.checkpoint(folder / "state", kept(3))
    assert outcore.mpi.restore(folder / "state")["step"] == 3
    names = sorted(name.partition("-")[0] for name in os.listdir(folder / "state"))
    assert names == ["arrays", "checkpoint.json"], names


def checkpoint(started=False):
    return Call(
        lambda folder: outcore.mpi.checkpoint(folder / "state", kept(1)),
        lambda folder, t: keep(t, folder / "state", 2, started=started),
        restored,
        keep_another,
        1,
        2,
    )


# Sections


def sections(name, *, transpose=False, **options):
    """A write at its place: each element is old or new; other elements, and the file, are whole."""
    there, here = (np.s_[1:11], np.s_[2:12]) if not transpose else (np.s_[:, 1:11], np.s_[2:12])
    old, new = (OLD.T, NEW) if transpose else (OLD, NEW)
    expected = old.copy()
    expected[there] = new[here].T if transpose else new[here]

    def prepare(folder):
        for one in options.get("folders", ()):
            (folder / one).mkdir()
        create(folder, old)

    def create(folder, data):
        words = dict(options)
        if "folders" in words:
            words["folders"] = [folder / one for one in words["folders"]]
        outcore.create(folder / name, data=data, **words, overwrite=True).close()

    def act(folder, t):
        with outcore.mpi.disk_array(folder / name, comm=t) as d:
            d.write_section(there, part(t, new), here, transpose=transpose, method="two-phase")
            d.flush()

    def state(folder):
        with outcore.open(folder / name, "r+") as a:  # settles what was begun
            found = a[...]
        assert outcore.verify(folder / name) == []
        is_old, is_new = found == old, found == expected
        assert (is_old | is_new).all(), "neither old nor new elements"
        # What one process left, others go on with.
        again = SimWorld(3).run(lambda t: act(folder, t) or outcore.open(folder / name)[...])
        assert all((one == expected).all() for one in again)
        return "new" if is_new.all() else "old or new"

    def again(folder):
        create(folder, old)
        known = {os.path.realpath(one) for one in whole.list_files(str(folder / name))}
        left = {os.path.realpath(folder / one) for one in files(folder)}
        assert left == known, left - known

    return Call(prepare, act, state, again, "old or new", "new")


def temporary(name, **options):
    """Temporary arrays: nothing of them stays, at the latest when the next one is made."""

    def act(folder, t):
        d = outcore.mpi.disk_array(
            folder / name, SHAPE, "f8", keep=False, typical_sections=(3, None), comm=t, **options
        )
        try:
            d.write(part(t, NEW))
            back = part(t, OLD)
            d.read(back)
            assert (back.owned == part(t, NEW).owned).all()
        finally:
            d.close()

    def again(folder):
        with outcore.mpi.disk_array(folder / "next", SHAPE, "f8", keep=False):
            assert len({one.split(".")[1] for one in os.listdir(folder)}) == 1
        assert files(folder) == []

    return Call(lambda folder: None, act, lambda folder: None, again, None, None)


# Arrays in parts


def make(folder, name, value):
    for one in ("one", "two", "there"):
        (folder / one).mkdir(exist_ok=True)
    where = [folder / "one", folder / "two", folder]
    data = np.full((6, 3), float(value))
    outcore.create(folder / name, data=data, folders=where, overwrite=True).close()


def value_of(path):
    """The only value of an array, or None."""
    if not os.path.lexists(path):
        return None
    with outcore.open(path) as a:
        (found,) = set(a[...].ravel().tolist())
    return found


def parts(act, before, after, *, first=False):
    """Arrays by name with their only value, and what `act` makes of them."""
    names = sorted({*before, *after})

    def prepare(folder):
        for one in ("one", "two", "there"):
            (folder / one).mkdir()
        for name, value in before.items():
            make(folder, name, value)

    def state(folder):
        return tuple(value_of(folder / name) for name in names)

    def again(folder):
        for name in names:
            make(folder, name, 9)
        known = {
            os.path.relpath(one, folder) for n in names for one in whole.list_files(str(folder / n))
        }
        assert {*files(folder)} == known, {*files(folder)} - known

    old, new = (tuple(one.get(name) for name in names) for one in (before, after))
    return Call(prepare, act, state, again, old, new, first)


def renamed(new):
    def act(folder, t):
        with outcore.mpi.disk_array(folder / "a.parts", comm=t) as d:
            d.rename(folder / new, overwrite=True)

    return act


def deleted(folder, t):
    outcore.mpi.disk_array(folder / "a.parts", comm=t).delete()


def another_length(change, new):
    """What the first rank does with the length of an array in parts."""

    def act(folder, t):
        if t.rank == 0:
            with outcore.open(folder / "a.parts", "r+") as a:
                change(a)

    def state(folder):
        with outcore.open(folder / "a.parts") as a:
            return a[:, 0].tolist()

    def again(folder):
        before = state(folder)
        with outcore.open(folder / "a.parts", "r+") as a:
            a.append(np.full((2, 3), 7.0))
        assert state(folder) == [*before, 7.0, 7.0]
        known = whole.list_files(str(folder / "a.parts"))
        assert {*files(folder)} == {os.path.relpath(one, folder) for one in known}

    one = parts(act, {"a.parts": 1}, {})
    return Call(one.prepare, act, state, again, [1.0] * 6, new, first=True)


# Groups


def members(name):
    """A group and an array in it that ranks make together: each is there whole, or not at all."""

    def create(folder):
        with outcore.open_group(folder / name, "w") as group:
            group.create("u", data=OLD, chunks=(5, 4)).close()

    def act(folder, t):
        with outcore.open_group(folder / name, "r+", comm=t) as group:
            group.create_group("g", attrs={"n": 2})
            with group.create("g/v", SHAPE, "f8", chunks=(5, 4)) as v:
                v.write_all(np.s_[t.rank :: t.size], NEW[t.rank :: t.size])
                v.flush()
            with group["u"] as u:
                assert (u.read_all() == OLD).all()

    def state(folder):
        with outcore.open_group(folder / name, "r+") as group:  # settles what was begun
            found = list(group)
            assert (group["u"][...] == OLD).all()
            if found == ["u"]:
                return "old or new"
            assert found == ["g", "u"] and dict(group["g"].attrs) == {"n": 2}, found
            if list(group["g"]) == []:
                return "old or new"
            v = group["g/v"][...]
        is_new = v == NEW
        assert (is_new | (v == 0)).all(), "neither old nor new elements"
        return "new" if is_new.all() else "old or new"

    def again(folder):
        shutil.rmtree(folder / name) if name.endswith(".zarr") else os.remove(folder / name)
        create(folder)
        SimWorld(3).run(lambda t: act(folder, t))
        assert state(folder) == "new"
        assert os.listdir(folder) == [name]

    return Call(create, act, state, again, "old or new", "new")


def whole_group():
    """A file that ranks convert: its name is there when all of it is."""

    def create(folder):
        with outcore.open_group(folder / "a.zarr", "w") as group:
            group.attrs["title"] = "t"
            group.create("u", data=OLD, chunks=(5, 4)).close()
            group.create("g/v", data=NEW).close()

    def act(folder, t):
        outcore.convert(folder / "a.zarr", folder / "b.h5", comm=t)

    def state(folder):
        if not os.path.exists(folder / "b.h5"):
            return "nothing"
        with outcore.open_group(folder / "b.h5") as group:
            assert dict(group.attrs) == {"title": "t"}
            assert (group["u"][...] == OLD).all() and (group["g/v"][...] == NEW).all()
        return "whole"

    def again(folder):
        if state(folder) == "nothing" or os.path.exists(folder / "b.h5.outcore-journal"):
            outcore.convert(folder / "a.zarr", folder / "b.h5", resume=True)
        assert state(folder) == "whole"
        left = sorted(os.listdir(folder))
        assert left == ["a.zarr", "b.h5"], left

    return Call(create, act, state, again, "nothing", "whole")


def said(*words):
    """A command, by the ranks of mpiexec."""

    def act(folder, t):
        os.chdir(folder)
        assert command(list(words)) == 0

    return act


#: By name; those of one rank are made by the command under mpiexec.
CALLS = {
    "checkpoint": checkpoint(),
    "started checkpoint": checkpoint(started=True),
    "write to plain": sections("d.npy"),
    "write to chunks": sections("d.zarr", transpose=True, chunks=(4, 5), compression="zstd"),
    "write to hdf5": sections("d.h5", chunks=(5, 4), compression="gzip"),
    "write to parts": sections("d.parts", folders=("one", "two"), stripe=2),
    "temporary plain": temporary("t"),
    "temporary chunks": temporary("t.zarr", chunks=(4, 4)),
    "groups of zarr": members("g.zarr"),
    "groups of hdf5": members("g.h5"),
    "convert a group": whole_group(),
    "rename": parts(renamed("b.parts"), {"a.parts": 1, "b.parts": 2}, {"b.parts": 1}),
    "rename elsewhere": parts(renamed("there/b.parts"), {"a.parts": 1}, {"there/b.parts": 1}),
    "delete": parts(deleted, {"a.parts": 1}, {}),
    "mv": parts(
        said("mv", "a.parts", "there/b.parts"), {"a.parts": 1}, {"there/b.parts": 1}, first=True
    ),
    "cp": parts(
        said("cp", "--overwrite", "a.parts", "b.parts"),
        {"a.parts": 1, "b.parts": 2},
        {"a.parts": 1, "b.parts": 1},
        first=True,
    ),
    "rm": parts(said("rm", "a.parts"), {"a.parts": 1}, {}, first=True),
    "append": another_length(lambda a: a.append(np.full((5, 3), 2.0)), [1.0] * 6 + [2.0] * 5),
    "shorten": another_length(lambda a: a.resize((1, 3)), [1.0]),
}


def emptied(folder):
    """The folder, with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
