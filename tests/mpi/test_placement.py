"""Placed arrays: one program, three placements, against NumPy."""

import errno
import itertools
import json
import os
import re
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
import outcore.base.distribution
from outcore.arrays.pieces import intersect_pieces
from outcore.errors import (
    AlreadyExistsError,
    BudgetError,
    CollectiveError,
    DistributionError,
    FormatError,
    OutcoreError,
    UsageError,
)
from outcore.mpi import Distribution
from outcore.problems.placement.overlap import find_overlaps
from ranks import once, ranks

PLACEMENTS = ("global", "local", "partitioned")
SHAPE = (13, 11)


def cases(size):
    """Distributions of an array of two axes over so many ranks, and ghosts that they allow."""
    grid = outcore.mpi.ProcessGrid(size=size, ndim=2)
    lengths = [SHAPE[0] // size + (k < SHAPE[0] % size) for k in range(size)]
    return [
        (Distribution(SHAPE, ["block", "*"], size), [(1, 2), (0, 0)]),
        (Distribution(SHAPE, ["*", "block"], size), [0, 1]),
        (Distribution(SHAPE, ["block", "block"], grid), 1),
        (Distribution(SHAPE, ["cyclic", "*"], size), 0),
        (Distribution(SHAPE, [("cyclic", 2), "block"], grid), [0, (2, 0)]),
        (Distribution(SHAPE, [("general", lengths), "*"], size), [2, 0]),
        (Distribution(SHAPE, ["*", "*"], size, axes=[None, None]), 0),
    ]


def values():
    return np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)


def mine(whole, distribution, rank, ghosts=0):
    """The local array that a rank should have."""
    core = distribution.core
    pairs = outcore.base.distribution.parse_widths(ghosts, distribution.ndim)
    local = np.full(distribution.local_shape(rank, ghosts), np.nan)
    sections, places = core.pieces(rank, pairs, True)
    for key, view in zip(
        outcore.base.distribution.list_keys(sections),
        outcore.base.distribution.view_sections(local, places),
        strict=True,
    ):
        view[...] = whole[key]
    return local


def made(t, path, distribution, placement, ghosts=0, **options):
    """An array in some placement, with the values of `values`."""
    a = outcore.mpi.create_placed(
        path,
        distribution,
        "f8",
        placement=placement,
        ghosts=ghosts,
        comm=t,
        **options,
        overwrite=True,
    )
    a.write_section(..., mine(values(), distribution, t.rank))
    a.flush_all()
    return a


def name_of(folder, number, placement, suffix=".npy"):
    return os.path.join(folder, f"{number}-{placement}" + (suffix if placement != "local" else ""))


@ranks(1, 2, 6, per_node=(None, 3))
def test_local_arrays_are_those_of_the_distribution_in_every_placement(world, folder):
    keys = [
        ...,
        np.s_[1:],
        np.s_[::2],
        np.s_[::-1, 1:],
        np.s_[:, 0],
        np.s_[:, ::3],
        np.s_[None, :2],
        np.s_[None, :, 0],
        np.s_[0, None, ::-1],
    ]

    def body(t):
        for number, (distribution, ghosts) in enumerate(cases(t.size)):
            local = mine(values(), distribution, t.rank)
            for placement in PLACEMENTS:
                name = name_of(folder, number, placement)
                with made(t, name, distribution, placement, ghosts) as a:
                    assert local.shape == a.local_shape
                    for key in keys:
                        if 0 not in local.shape:
                            np.testing.assert_array_equal(local[key], a.read_section(key))
                            out = np.empty(local[key].shape)
                            assert a.read_section(key, out=out) is out
                            np.testing.assert_array_equal(local[key], out)
                            np.testing.assert_array_equal(local[key], a.iread_section(key).wait())

    world.run(body)


@ranks(1, 4)
def test_strided_writes_touch_what_they_name(world, folder):
    def body(t):
        for number, (distribution, ghosts) in enumerate(cases(t.size)[:5]):
            local = mine(values(), distribution, t.rank)
            for placement in ("global", "local"):
                with made(
                    t, name_of(folder, number, placement), distribution, placement, ghosts
                ) as a:
                    expected = local.copy()
                    for key in (np.s_[::2, ::-3], np.s_[-1:], np.s_[:, 1:2]):
                        if 0 in local.shape:
                            continue
                        expected[key] = -t.rank
                        a.write_section(key, -t.rank)
                    a.iwrite_section(np.s_[:0], 1.0).wait()
                    a.flush_all()
                    np.testing.assert_array_equal(expected, a.read_section())

    world.run(body)


@ranks(1, 2, 6, per_node=(None, 3))
def test_slabs_with_their_halos_tile_the_array_in_every_placement(world, folder):
    whole = values()

    def body(t):
        for number, (distribution, ghosts) in enumerate(cases(t.size)):
            for placement in PLACEMENTS:
                name = name_of(folder, number, placement)
                with made(t, name, distribution, placement, ghosts) as a:
                    a.shift_all()
                    pairs = a.ghosts
                    seen = np.zeros(SHAPE)
                    for rows, axis in ((2, 0), (3, 1), (None, None)):
                        seen[...] = 0
                        for slab in a.slabs(rows=rows, axis=axis):
                            if 0 in slab.own.shape:
                                continue
                            index = np.ix_(*(i.ravel() for i in slab.indices))
                            seen[index] += 1
                            np.testing.assert_array_equal(whole[index], slab.own)
                            around = []
                            for d, i in enumerate(slab.indices):
                                i = i.ravel()
                                if pairs[d] != (0, 0):
                                    low = max(i[0] - pairs[d][0], 0)
                                    i = np.arange(low, min(i[-1] + pairs[d][1] + 1, SHAPE[d]))
                                around.append(i)
                            np.testing.assert_array_equal(whole[np.ix_(*around)], slab.data)
                        total = np.sum(t.allgather(seen.astype(np.int64).ravel()), axis=0)
                        copies = 1
                        for n in distribution.replicated_axes:
                            copies *= distribution.grid.shape[n]
                        assert (total == copies).all(), (placement, str(distribution), rows, axis)

    world.run(body)


@ranks(1, 2, 6, per_node=(None, 3))
def test_a_shift_brings_what_the_owners_have_by_each_method(world, folder):
    whole = values()

    def body(t):
        for number, (distribution, ghosts) in enumerate(cases(t.size)):
            for method in ("auto", "direct", "out-of-core", "in-core"):
                with made(t, name_of(folder, number, "local"), distribution, "local", ghosts) as a:
                    told = a.shift_all(method)
                    assert told.method == method or method == "auto"
                    expected = mine(whole, distribution, t.rank, ghosts)
                    np.testing.assert_array_equal(expected, a.handle.disk[...])
                    np.testing.assert_array_equal(expected, a.in_core_all().local)
                    np.testing.assert_array_equal(
                        mine(whole, distribution, t.rank), a.in_core_all(ghosts=False).owned
                    )

    world.run(body)


@ranks(2, 5)
@pytest.mark.simulated
def test_a_shift_goes_in_rounds_where_memory_is_short(world, folder, monkeypatch):
    rows = Distribution((40, 3000), ["block", "*"], world.size)

    def body(t):
        with outcore.mpi.create_placed(
            os.path.join(folder, "a"), rows, "f8", placement="local", ghosts=[2, 0], comm=t
        ) as a:
            a.write_section(..., np.full(a.local_shape, t.rank))
            state = outcore._core.memory_state()
            monkeypatch.setattr(
                "outcore.problems.placement.shift._measure_room_bytes",
                lambda item: 10_000,
                raising=True,
            )
            for method in ("direct", "out-of-core"):
                told = a.shift_all(method)
                assert told.rounds > 4
                found = a.handle.disk[...]
                assert t.rank == 0 or (found[:2] == t.rank - 1).all()
                assert t.rank == t.size - 1 or (found[-2:] == t.rank + 1).all()
                assert "rounds" in str(told)
            assert state[0] <= outcore._core.memory_state()[1]

    world.run(body)


@ranks(1, 3)
def test_copies_in_other_placements_and_distributions(world, folder):
    whole = values()

    def body(t):
        divided = cases(t.size)
        pairs = [(0, 2), (2, 3), (4, 0), (3, 4), (1, 6)]
        # Of one rank all distributions are alike.
        each = 3 if t.size > 1 else 1
        for number, (source, target) in enumerate(itertools.product(PLACEMENTS, PLACEMENTS)):
            for one, two in (pairs + pairs)[number % 5 :][:each]:
                path = os.path.join(folder, "copy" + (".zarr" if target != "local" else ""))
                name = os.path.join(folder, "s" + (".npy" if source != "local" else ""))
                options = {"chunks": (4, 3)} if target != "local" else {}
                distribution, ghosts = divided[two]
                with (
                    made(t, name, divided[one][0], source) as a,
                    outcore.mpi.copy_placed(
                        a,
                        path,
                        placement=target,
                        distribution=distribution,
                        ghosts=ghosts,
                        overwrite=True,
                        **options,
                    ) as b,
                ):
                    expected = mine(whole, distribution, t.rank)
                    np.testing.assert_array_equal(expected, b.read_section())
                    if target == "local":
                        with_ghosts = mine(whole, distribution, t.rank, ghosts)
                        np.testing.assert_array_equal(with_ghosts, b.handle.disk[...])
                    t.barrier()

    world.run(body)


@ranks(1, 4)
def test_sections_of_the_whole_array_and_multicast(world, folder):
    whole = values()
    keys = [
        ...,
        np.s_[2:9:3, ::-2],
        np.s_[5],
        np.s_[:, 4],
        np.s_[3:3],
        np.s_[6, 7],
        np.s_[None, 1:4],
    ]

    def body(t):
        for number, (distribution, ghosts) in enumerate(cases(t.size)):
            for placement in PLACEMENTS:
                name = name_of(folder, number, placement)
                with made(t, name, distribution, placement, ghosts) as a:
                    for key in keys:
                        np.testing.assert_array_equal(whole[key], a.read_global_all(key))
                        out = np.empty(whole[key].shape)
                        assert a.read_global_all(key, out=out) is out
                        np.testing.assert_array_equal(whole[key], out)
                        if whole[key].ndim:
                            file = os.path.join(folder, f"mine-{t.rank}.npy")
                            with outcore.create(
                                file, whole[key].shape, "f8", overwrite=True
                            ) as target:
                                a.multicast_all(key, target)
                                np.testing.assert_array_equal(whole[key], target[...])
                    own = np.s_[t.rank :: t.size]
                    out = np.empty(whole[own].shape)
                    a.read_global_all(own, out=out)
                    np.testing.assert_array_equal(whole[own], out)

    world.run(body)


@ranks(1, 3)
def test_one_program_gives_one_result_in_every_placement(world, folder):
    """Jacobi steps, as in the report's Figure 5."""
    whole = values()
    expected = whole.copy()
    for _ in range(3):
        before = expected.copy()
        expected[1:-1] = (before[:-2] + before[2:]) / 2

    def body(t):
        rows = Distribution(SHAPE, ["block", "*"], t.size)
        for placement in PLACEMENTS:
            names = [name_of(folder, number, placement) for number in (0, 1)]
            with (
                made(t, names[0], rows, placement, [1, 0]) as a,
                made(t, names[1], rows, placement, [1, 0]) as b,
            ):
                old, new = a, b
                for _ in range(3):
                    old.shift_all()
                    for slab in old.slabs(rows=2):
                        data, own = slab.data, slab.own.copy()
                        first = slab.inner[0].start
                        for k, row in enumerate(slab.indices[0].ravel()):
                            if 0 < row < SHAPE[0] - 1:
                                own[k] = (data[first + k - 1] + data[first + k + 1]) / 2
                        new.write_slab(slab, own)
                    new.flush_all()
                    old, new = new, old
                np.testing.assert_array_equal(expected, old.read_global_all())

    world.run(body)


@ranks(2, 3, most=5)
def test_invalid_calls_of_placed_arrays_raise_on_all_ranks(world, folder):
    def body(t):
        rows = Distribution(SHAPE, ["block", "*"], t.size)
        name = os.path.join(folder, "a")
        with made(t, name, rows, "local", [1, 0]) as a:
            for call, code in (
                (lambda: a.shift_all("fast"), "bad-option"),
                (lambda: outcore.mpi.copy_placed(a, name, placement="local"), "same-file"),
                (
                    lambda: outcore.mpi.copy_placed(
                        a,
                        name + "2",
                        placement="local",
                        distribution=Distribution((14, 11), ["block", "*"], t.size),
                    ),
                    "bad-distribution",
                ),
                (
                    lambda: outcore.mpi.copy_placed(
                        a, name + "2", placement=PLACEMENTS[t.rank == 0], overwrite=True
                    ),
                    "mismatched-call",
                ),
                (lambda: a.read_global_all(np.s_[99]), "index-out-of-bounds"),
                (lambda: a.read_global_all(out=np.empty(3)), "out-mismatch"),
            ):
                with pytest.raises((OutcoreError,)) as caught:
                    call()
                assert code in (caught.value.code, getattr(caught.value.__cause__, "code", None))
            with pytest.raises(UsageError, match="halo"):
                next(a.slabs(halo=2))
            with pytest.raises(UsageError, match="rows"):
                next(a.slabs(rows=0))
        t.barrier()
        with pytest.raises(
            (DistributionError, CollectiveError), match=r"called; pass a distribution|rank"
        ):
            outcore.mpi.open_placed(name, Distribution(SHAPE, ["*", "block"], t.size), comm=t)
        with pytest.raises((AlreadyExistsError, CollectiveError)):
            outcore.mpi.create_placed(name, rows, "f8", placement="local", comm=t)
        # One rank calls something else.
        with pytest.raises(CollectiveError), outcore.mpi.open_placed(name, comm=t) as a:
            a.flush_all() if t.rank else a.shift_all()

    world.run(body)


@ranks(2, 3)
def test_ranks_that_mean_different_arrays_all_raise_and_what_is_there_stays(world, folder):
    def body(t):
        odd = t.rank == t.size - 1
        rows = Distribution(SHAPE, ["block", "*"], t.size)
        columns = Distribution(SHAPE, ["*", "block"], t.size)
        for placement in ("global", "local"):
            name = name_of(folder, 0, placement)
            made(t, name, rows, placement).close()
            t.barrier()
            good = {"path": name, "distribution": rows, "dtype": "f8", "placement": placement}
            other = "global" if placement == "local" else "partitioned"
            for wrong in (
                {"distribution": columns},
                {"dtype": "f4"},
                {"ghosts": 1},
                {"path": name + "x"},
                {"placement": other},
            ):
                with pytest.raises(CollectiveError, match="create_placed") as caught:
                    outcore.mpi.create_placed(**{**good, **(wrong if odd else {})}, comm=t)
                assert caught.value.code == "mismatched-call"
            t.barrier()
            with outcore.mpi.open_placed(name, None if placement == "local" else rows, comm=t) as a:
                np.testing.assert_array_equal(values(), a.read_global_all())
            t.barrier()
        for wrong in ({"distribution": columns}, {"ghosts": 1}, {"placement": "partitioned"}):
            said = {"distribution": rows, **(wrong if odd else {})}
            with pytest.raises(CollectiveError, match="open_placed") as caught:
                outcore.mpi.open_placed(name_of(folder, 0, "global"), comm=t, **said)
            assert caught.value.code == "mismatched-call"

    world.run(body)


@ranks(2, 3)
def test_files_that_are_missing_short_or_foreign_are_named(world, folder):
    def body(t):
        rows = Distribution(SHAPE, ["block", "*"], t.size)
        name = os.path.join(folder, "a")
        made(t, name, rows, "local").close()
        t.barrier()
        file = os.path.join(name, "rank-0001.npy")
        for spoil in (
            lambda: os.unlink(file),
            lambda: np.save(file, np.zeros(3)),
            lambda: np.save(file, np.zeros(SHAPE, "i4")),
        ):
            once(t, spoil)
            with pytest.raises(OutcoreError) as caught:
                outcore.mpi.open_placed(name, comm=t)
            text = str(caught.value) + str(caught.value.__cause__)
            assert "rank-0001.npy" in text or t.rank != 1
            t.barrier()

    world.run(body)


@ranks(1, 3)
def test_where_files_are_is_the_disk_map(world, folder):
    def body(t):
        folders = [os.path.join(folder, f"disk{k}") for k in range(2)]
        where = outcore.mpi.disk_map(folders, t.size)
        rows = Distribution(SHAPE, ["block", "*"], t.size)
        name = os.path.join(folder, "a")
        made(t, name, rows, "local", folders=where).close()
        with outcore.mpi.open_placed(name, comm=t) as a:
            np.testing.assert_array_equal(mine(values(), rows, t.rank), a.read_section())
            names = os.listdir(folders[t.rank % 2])
            assert any(re.fullmatch(rf"a-[0-9a-f]{{16}}\.rank-{t.rank:04d}\.npy", n) for n in names)
        t.barrier()

    world.run(body)


@pytest.mark.simulated
@ranks(3)
def test_a_rank_that_fails_in_a_shift_fails_all(world, folder, monkeypatch):
    """At each step: reading, and writing the overlap area."""
    rows = Distribution(SHAPE, ["block", "*"], world.size)

    def body(t):
        with made(t, os.path.join(folder, "a"), rows, "local", [1, 0]) as a:
            for method in ("direct", "out-of-core", "in-core"):
                if t.rank == 1:
                    disk, a.handle.disk = a.handle.disk, _Refusing(a.handle.disk)
                with pytest.raises((OutcoreError, OSError)):
                    a.shift_all(method)
                if t.rank == 1:
                    a.handle.disk = disk
            a.shift_all()  # the ranks still work together

    world.run(body)


@pytest.mark.simulated
@pytest.mark.parametrize(
    "what", ["shift direct", "shift out-of-core", "shift in-core", "multicast", "copy", "slabs"]
)
@ranks(3)
def test_a_rank_without_memory_lets_no_other_wait(world, folder, monkeypatch, what):
    """What one rank reserves, or is asked for, alone, all ranks agree on."""
    rows = Distribution(SHAPE, ["block", "*"], world.size)
    poor, plain = set(), outcore._core.Reservation

    def reservation(said, *args):
        if threading.get_ident() in poor and said in ("a shift", "a multicast", "a copy"):
            raise BudgetError("no memory", code="budget-too-small")
        return plain(said, *args)

    monkeypatch.setattr(outcore._core, "Reservation", reservation)

    def body(t):
        target = outcore.create(os.path.join(folder, f"t{t.rank}.npy"), SHAPE, "f8")
        part = os.path.join(folder, "p.npy")
        with (
            made(t, os.path.join(folder, "a"), rows, "local", [1, 0]) as a,
            made(t, part, rows, "partitioned") as b,
        ):
            calls = {
                "multicast": lambda: a.multicast_all(..., target),
                "copy": lambda: outcore.mpi.copy_placed(
                    a, os.path.join(folder, "b"), placement="local", overwrite=True
                ).close(),
                "slabs": lambda: sum(1 for _ in b.slabs(axis=7 if t.rank == 1 else 0)),
            }
            call = calls.get(what, lambda: a.shift_all(what.partition(" ")[2]))
            if t.rank == 1:
                poor.add(threading.get_ident())
            with pytest.raises(CollectiveError, match=r"no memory|axis 7"):
                call()
            poor.discard(threading.get_ident())
            a.shift_all()  # the ranks still work together
        target.close()

    world.run(body)


def _refuse(*_):
    raise OSError("no space")


class _Refusing:
    """An array whose writes fail."""

    def __init__(self, disk):
        self._disk = disk

    def __getattr__(self, name):
        return _refuse if name == "write" else getattr(self._disk, name)


@ranks(2)
@pytest.mark.simulated
def test_a_shift_waits_for_writes_that_were_started(world, folder, monkeypatch):
    rows = Distribution(SHAPE, ["block", "*"], 2)

    def body(t):
        with outcore.mpi.create_placed(
            os.path.join(folder, "a"), rows, "f8", placement="local", ghosts=[1, 0], comm=t
        ) as a:
            write = a.write_section

            def slowly(key, value):
                time.sleep(0.2)
                write(key, value)

            monkeypatch.setattr(a, "write_section", slowly)
            a.iwrite_section(..., t.rank + 1.0)
            a.shift_all()
            ghost = a.handle.disk[-1] if t.rank == 0 else a.handle.disk[0]
            assert (ghost == 2 - t.rank).all()

    world.run(body)


@ranks(3)
@pytest.mark.simulated
@pytest.mark.parametrize("placement", ["global", "local"])
def test_a_copy_has_its_name_when_all_ranks_have_written(world, folder, monkeypatch, placement):
    """A rank whose flush fails, or that is slow to close, comes before the name."""
    rows = Distribution(SHAPE, ["block", "*"], world.size)
    path = os.path.join(folder, "copy" + (".npy" if placement == "global" else ""))
    flush, close = outcore.DiskArray.flush, outcore.mpi.PlacedArray.close
    failing = [True]

    def refuse(disk):
        if failing[0] and "copy" in disk.path.removeprefix(str(folder)):
            raise OSError("no space")
        flush(disk)

    def slowly(a):
        if "copy" in a.path.removeprefix(str(folder)):
            time.sleep(0.1 * a.transport.rank)
            assert placement == "local" or not os.path.exists(path)
        close(a)

    monkeypatch.setattr(outcore.DiskArray, "flush", refuse)

    def body(t):
        with made_quietly(t, os.path.join(folder, "s.npy"), rows) as a:
            with pytest.raises((OutcoreError, OSError)):
                outcore.mpi.copy_placed(a, path, placement=placement)
            t.barrier()
            assert not os.path.exists(path if placement == "global" else f"{path}/placement.json")
            once(t, failing.clear)
            if t.rank == 0:
                failing.append(False)
            t.barrier()
            once(t, lambda: monkeypatch.setattr(outcore.mpi.PlacedArray, "close", slowly))
            b = outcore.mpi.copy_placed(a, path, placement=placement, overwrite=True)
            t.barrier()
            close(b)

    world.run(body)
    with outcore.open(path if placement == "global" else f"{path}/rank-0000.npy") as a:
        assert a[0, 5] == 5


def made_quietly(t, path, distribution):
    """As `made`, without a flush."""
    a = outcore.mpi.create_placed(path, distribution, "f8", comm=t)
    a.write_section(..., mine(values(), distribution, t.rank))
    t.barrier()
    return a


def test_a_folder_without_manifest_holds_no_array(tmp_path, monkeypatch):
    """Whatever is interrupted while one array replaces another."""
    name = tmp_path / "a"
    rows = Distribution(SHAPE, ["block", "*"], 1)
    outcore.mpi.create_placed(name, rows, "f8", placement="local").close()
    create = outcore.create

    def killed(*arguments, **options):
        create(*arguments, **options).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(outcore, "create", killed)
    with pytest.raises(KeyboardInterrupt):
        outcore.mpi.create_placed(name, rows, "i4", placement="local", overwrite=True)
    assert not (name / "placement.json").exists()
    with pytest.raises(CollectiveError):
        outcore.mpi.open_placed(name)
    monkeypatch.undo()
    outcore.mpi.create_placed(name, rows, "i4", placement="local").close()
    assert outcore.mpi.open_placed(name).dtype == np.int32
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rank-0000.npy").write_text("mine")
    with pytest.raises(CollectiveError, match="exists and is not an array"):
        outcore.mpi.create_placed(tmp_path / "other", rows, "i4", placement="local")
    assert (tmp_path / "other" / "rank-0000.npy").read_text() == "mine"


@pytest.mark.parametrize("lost", ["placement.json", "rank-0000.npy"])
def test_an_array_that_was_removed_in_part_can_be_replaced(tmp_path, monkeypatch, lost):
    """As long as its manifest is there, all of it is."""
    name = tmp_path / "a"
    rows = Distribution(SHAPE, ["block", "*"], 1)
    outcore.mpi.create_placed(name, rows, "f8", placement="local").close()
    unlink = os.unlink

    def fails(path, *words, **more):
        if os.path.basename(path) == lost:
            raise OSError(errno.EIO, "on purpose")
        unlink(path, *words, **more)

    monkeypatch.setattr(os, "unlink", fails)
    with pytest.raises(CollectiveError, match="on purpose"):
        outcore.mpi.create_placed(name, rows, "i4", placement="local", overwrite=True)
    monkeypatch.undo()
    assert (name / "placement.json").exists() == (lost == "placement.json")
    if lost == "placement.json":
        assert outcore.mpi.open_placed(name).dtype == np.float64
    outcore.mpi.create_placed(name, rows, "i4", placement="local", overwrite=True).close()
    assert outcore.mpi.open_placed(name).dtype == np.int32
    assert sorted(os.listdir(name)) == ["placement.json", "rank-0000.npy"]


def test_damaged_manifests_are_refused(tmp_path):
    rows = Distribution((4, 3), ["block", "*"], 1)
    name = tmp_path / "a"
    outcore.mpi.create_placed(name, rows, "f8", placement="local").close()
    path = name / "placement.json"
    good = json.loads(path.read_text())
    outcore.mpi.open_placed(name).close()
    for change in (
        {"outcore-placement": 2},
        {"shape": [4]},
        {"shape": [-4, 3]},
        {"files": []},
        {"files": [3]},
        {"files": ["a\0b"]},
        {"grid": [0]},
        {"formats": ["round", "*"]},
        {"dtype": "O"},
        {"dtype": "nonsense"},
        {"dtype": "f4,("},
        {"order": "D"},
        {"ghosts": [[1]]},
        {"ghosts": [[-1, 0], [0, 0]]},
        {"align": [[0, 0, None], [1, 0, None]]},
        {"axes": [0]},
    ):
        path.write_text(json.dumps(good | change))
        with pytest.raises(CollectiveError, match=r"placement\.json") as caught:
            outcore.mpi.open_placed(name)
        assert isinstance(caught.value.__cause__, FormatError)
    for key in good:
        path.write_text(json.dumps({k: v for k, v in good.items() if k != key}))
        with pytest.raises(CollectiveError, match=r"placement\.json"):
            outcore.mpi.open_placed(name)
    for text in ("", "[]", "3", "{", '"a"', "[" * 5000):
        path.write_text(text)
        with pytest.raises(CollectiveError, match=r"placement\.json"):
            outcore.mpi.open_placed(name)


@st.composite
def pieces(draw):
    """A piece, and a key with a step, along one axis."""
    start, count, step = draw(
        st.tuples(*[st.integers(0, 20), st.integers(1, 9), st.integers(1, 5)])
    )
    place, leap = draw(st.tuples(st.integers(0, 9), st.integers(1, 3)))
    low, length, stride = draw(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 6)))
    return (start, count, step), (place, count, leap), slice(low, low + length, stride)


@settings(max_examples=300, deadline=None)
@given(pieces())
def test_intersect_pieces_matches_element_lookup(case):
    section, place, key = case
    where = {place[0] + n * place[2]: section[0] + n * section[2] for n in range(section[1])}
    named = range(key.start, key.stop, key.step)
    expected = {number: where[i] for number, i in enumerate(named) if i in where}
    found = {}
    for one, at in intersect_pieces(np.array([[section]]), np.array([[place]]), (key,)):
        for value, number in zip(
            range(one[0].start, one[0].stop, one[0].step or 1),
            range(at[0].start, at[0].stop, at[0].step or 1),
            strict=True,
        ):
            assert number not in found
            found[number] = value
    assert expected == found


@pytest.mark.parametrize("size", [1, 2, 3, 6, 8, 16])
def test_overlaps_are_what_ghosts_cover(size):
    for distribution, ghosts in cases(size):
        pairs = outcore.base.distribution.parse_widths(ghosts, 2)
        for rank in range(size):
            shape = distribution.local_shape(rank, ghosts)
            covered = np.zeros(shape, int)
            _, places = distribution.core.pieces(rank, pairs, False)
            for view in outcore.base.distribution.view_sections(covered, places):
                view[...] += 1
            local = mine(values(), distribution, rank, ghosts)
            for one in find_overlaps(distribution, rank, pairs):
                covered[one.here] += 1
                theirs = mine(values(), distribution, one.owner, ghosts)
                np.testing.assert_array_equal(local[one.here], theirs[one.there])
                assert one.owner != rank
            assert (covered == 1).all()


def test_neighbours_of_many_ranks_are_found_without_asking_all():
    many = Distribution((10**6, 10**6), ["block", "block"], (320, 320))
    found = find_overlaps(many, 320 * 160 + 160, [(1, 1), (1, 1)])
    assert [one.owner - (320 * 160 + 160) for one in found] == [
        -321,
        -320,
        -319,
        -1,
        1,
        319,
        320,
        321,
    ]


def test_values_and_keys_that_do_not_fit_are_refused_in_each_placement(tmp_path):
    rows = Distribution(SHAPE, ["block", "*"], 1)
    for placement, name in (("global", "g.npy"), ("local", "l"), ("partitioned", "p.npy")):
        a = outcore.mpi.create_placed(tmp_path / name, rows, "f8", placement=placement)
        wrong = np.zeros((SHAPE[0] + 1, SHAPE[1]))
        for call in (
            lambda a=a, wrong=wrong: a.write_section(..., wrong),
            lambda a=a, wrong=wrong: a.iwrite_section(..., wrong).wait(),
            lambda a=a, wrong=wrong: a.write_slab(next(a.slabs()), wrong),
        ):
            with pytest.raises(OutcoreError, match="broadcast") as raised:
                call()
            cause = raised.value.__cause__ if placement == "partitioned" else None
            assert isinstance(cause or raised.value, UsageError), placement
        for key in (np.array([1]), "x", True, 1.5):
            with pytest.raises(OutcoreError, match="use integers, slices"):
                a.read_section(key)
