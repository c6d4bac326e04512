"""Groups that ranks open together: what is collective, what is each rank's own, and how all fail."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import outcore
from outcore.errors import CollectiveError, NoSuchMemberError
from outcore.formats import groups
from ranks import once, ranks

FILES = ("a.h5", "a.nc", "a.zarr", "a.zarr2")
SHAPE = (16, 5)


def whole():
    return np.arange(80.0).reshape(SHAPE)


@ranks(1, 2, 4)
@pytest.mark.parametrize("name", FILES)
def test_arrays_and_groups_are_made_and_opened_together(world, folder, name):
    def body(t):
        path = folder / name
        with outcore.open_group(path, "w", comm=t) as group:
            with group.create("g/u", SHAPE, "f8") as u:
                assert isinstance(u, outcore.mpi.CollectiveArray) and u.transport.size == t.size
                u.write_all(np.s_[t.rank :: t.size], whole()[t.rank :: t.size])
            made = group.create_group("e", attrs={"n": t.size})
            assert made.attrs["n"] == t.size and made.writable
            with pytest.raises((CollectiveError, FileExistsError), match="already-exists"):
                group.create_group("e")
        t.barrier()
        with outcore.open_group(path, comm=t) as group:
            assert list(group) == ["e", "g"] and "g/u" in group and len(group) == 2
            with group["g"]["u"] as u:
                np.testing.assert_array_equal(whole(), u.read_all())
            assert [n for n, _ in group.walk()] == ["e", "g", "g/u"]
            assert [n for n, _ in group["g"].arrays()] == ["u"]
            with pytest.raises(NoSuchMemberError):
                group["nix"]
            assert "u  float64 (16, 5)" in group.tree()

    world.run(body)


@ranks(2, 4)
def test_ranks_that_mean_different_things_are_told(world, folder):
    def body(t):
        once(
            t, lambda: outcore.open_group(folder / "a.h5", "w").create_group("g").create_group("h")
        )
        other = t.rank == t.size - 1
        for wrong in (
            lambda: outcore.open_group(folder / "a.h5", "r+" if other else "r", comm=t),
            lambda: outcore.open_group(folder / ("b.h5" if other else "c.h5"), "w", comm=t),
            lambda: outcore.open_group(folder / "a.h5", "rw" if other else "r", comm=t),
            lambda: outcore.open_group(folder / "missing.h5", comm=t),
        ):
            with pytest.raises(CollectiveError):
                wrong()
        assert not (folder / "b.h5").exists() and not (folder / "c.h5").exists()
        group = outcore.open_group(folder / "a.h5", "r+", comm=t)
        for wrong in (
            lambda: group["g" if other else "g/h"],
            lambda: group.create_group("x" if other else "y"),
            lambda: group.create("x" if other else "y", 3, "f4"),
        ):
            with pytest.raises(CollectiveError) as caught:
                wrong()
            assert caught.value.code == "mismatched-call"
        assert list(group) == ["g"]
        assert group["g"].name == "/g", "and goes on"

    world.run(body)


@ranks(2, 4)
@pytest.mark.parametrize(
    ("name", "victim", "call"),
    [
        ("describe_group", -1, lambda group: group["g"]),
        ("find_kind", 0, lambda group: group["g"]),
        ("list_members", 0, lambda group: list(group.groups())),
        ("create", 0, lambda group: group.create_group("x")),
    ],
)
def test_group_call_that_fails_on_one_rank_raises_on_all(
    world, folder, monkeypatch, name, victim, call
):
    here, plain = threading.local(), getattr(groups, name)

    def failing(*words, **more):
        if getattr(here, "fails", False):
            raise outcore.errors.StorageError("on purpose", code="disk-failure")
        return plain(*words, **more)

    monkeypatch.setattr(groups, name, failing)

    def body(t):
        once(t, lambda: outcore.open_group(folder / "a.zarr", "w").create_group("g"))
        group = outcore.open_group(folder / "a.zarr", "r+", comm=t)
        here.fails = t.rank == victim % t.size
        with pytest.raises(CollectiveError, match="on purpose"):
            call(group)
        here.fails = False
        assert group["g"].name == "/g", "and goes on"
        assert list(group) == ["g"]

    world.run(body)


@ranks(1, 2, 3)
@pytest.mark.parametrize(("old", "new"), [("a.h5", "b.zarr"), ("a.zarr", "b.nc")])
def test_whole_groups_are_converted_together(world, folder, old, new):
    def body(t):
        def make():
            with outcore.open_group(folder / old, "w") as group:
                group.attrs["title"] = "t"
                group.create("u", data=whole(), chunks=(4, 5)).close()
                group.create("g/v", data=2 * whole()).close()
                group.create("g/none", (0, 3), "f4").close()

        once(t, make)
        seen = []
        outcore.convert(
            folder / old,
            folder / new,
            chunks=(4, 5),
            comm=t,
            progress=lambda *both: seen.append(both),
        )
        with outcore.open_group(folder / new) as group:
            assert group.attrs["title"] == "t" and list(group) == ["g", "u"]
            np.testing.assert_array_equal(whole(), group["u"][...])
            np.testing.assert_array_equal(2 * whole(), group["g/v"][...])
        assert seen[-1][0] == seen[-1][1]
        with pytest.raises((CollectiveError, FileExistsError), match="already-exists"):
            outcore.convert(folder / old, folder / new, comm=t)
        with pytest.raises((CollectiveError, outcore.errors.UsageError)):
            outcore.convert(
                folder / old, folder / new, comm=t, overwrite=True, order="C" if t.rank else "Q"
            )
        t.barrier()
        assert [p.name for p in folder.iterdir() if "outcore" in p.name] == []
        with outcore.open_group(folder / new) as group:
            np.testing.assert_array_equal(whole(), group["u"][...])

    world.run(body)


@ranks(2, 3)
def test_a_conversion_goes_on_on_another_number_of_ranks(world, folder):
    class Stop(Exception):
        pass

    def body(t):
        data = np.arange(240_000.0).reshape(600, 400)

        def make():
            with outcore.open_group(folder / "a.h5", "w") as group:
                group.create("a", data=data, chunks=(20, 400)).close()
                group.create("b", data=-data, chunks=(20, 400)).close()

        once(t, make)

        def progress(done, total):
            if done > 0.7 * total:
                raise Stop

        words = {"memory": "600 KiB", "chunks": (20, 400)}
        with pytest.raises((Stop, CollectiveError)):
            outcore.convert(folder / "a.h5", folder / "b.zarr", comm=t, progress=progress, **words)
        t.barrier()
        assert not (folder / "b.zarr").exists()
        if t.rank == 0:
            first = []
            outcore.convert(
                folder / "a.h5",
                folder / "b.zarr",
                resume=True,
                progress=lambda n, _: first.append(n),
                **words,
            )
            assert first[0] > 0
        t.barrier()
        with outcore.open_group(folder / "b.zarr") as group:
            np.testing.assert_array_equal(-data, group["b"][...])

    world.run(body)
