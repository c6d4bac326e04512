"""Who owns which array in a collective of many: files with one writer, bytes that ranks share, hints."""

import os
import warnings

import numpy as np
import pytest

import outcore
from outcore.ranks.collective import call, planning
from ranks import ranks

NODES = (None, 1)


def make(t, folder, names, rows=64, columns=32, **words):
    """Arrays of 64 rows; a name may be that of an array in a file."""
    if t.rank == 0:
        for number, name in enumerate(names):
            data = np.arange(rows * columns, dtype="f8").reshape(rows, columns) + number
            outcore.create(f"{folder}{os.sep}{name}", data=data, **words).close()
    t.barrier()
    return {name: outcore.open(f"{folder}{os.sep}{name}", "r+", comm=t) for name in names}


def told(t, folder, arrays, keys, **words):
    """What is told of each array: its owners."""
    report = outcore.mpi.explain_all(
        [(arrays[name], key) for name, key in keys], comm=t, method="two-phase", **words
    )
    here = f"{folder}{os.sep}"
    owners = {a.path.removeprefix(here): [rank for rank, _ in a.owners] for a in report.arrays}
    return owners, report


@ranks(2, 4, per_node=NODES)
def test_each_file_with_one_writer_has_its_own(world, folder):
    pytest.importorskip("h5py")
    chunked = [f"{letter}.h5::/{name}" for letter in "abcd" for name in "xy"]

    def body(t):
        many = make(t, folder, chunked, chunks=(8, 8))
        plain = make(t, folder, ["p.npy"], rows=1024)
        arrays = many | plain
        keys = [(name, np.s_[:, t.rank :: t.size]) for name in arrays]
        owners, _ = told(t, folder, arrays, keys, write=True)
        outcore.mpi.write_all(
            [(arrays[name], key, float(k)) for k, (name, key) in enumerate(keys)],
            comm=t,
            method="two-phase",
        )
        for k, (name, _) in enumerate(keys):
            assert (arrays[name][...] == k).all()
        t.barrier()
        for array in arrays.values():
            array.close()
        return owners

    for owners in world.run(body):
        files = {}
        for name in chunked:
            assert len(owners[name]) == 1, "one process at a time writes a file of HDF5"
            files.setdefault(name[0], set()).update(owners[name])
        assert all(len(writers) == 1 for writers in files.values()), "both arrays of a file"
        assert len(set.union(*files.values())) > 1, "another file may have another writer"
        assert len(owners["p.npy"]) > 1, "and .npy files may have many"


@ranks(3)
def test_one_rank_owns_all_arrays_of_an_hdf5_file(world, folder):
    """Rank 0 has one array of the file, rank 2 both: it is rank 2 that writes."""
    pytest.importorskip("h5py")

    def body(t):
        arrays = make(t, folder, ["a.h5::/x", "a.h5::/y"], chunks=(8, 8))
        keys = {
            0: [("a.h5::/x", np.s_[:10])],
            1: [],
            2: [("a.h5::/x", np.s_[10:12]), ("a.h5::/y", np.s_[:4])],
        }.get(t.rank, [])
        owners, _ = told(t, folder, arrays, keys, write=True)
        outcore.mpi.write_all(
            [(arrays[name], key, 5.0) for name, key in keys], comm=t, method="two-phase"
        )
        assert (arrays["a.h5::/x"][:12] == 5).all() and (arrays["a.h5::/y"][:4] == 5).all()
        t.barrier()
        for array in arrays.values():
            array.close()
        return owners

    for owners in world.run(body):
        assert list(owners.values()) == [[2], [2]]


@ranks(5, per_node=NODES)
def test_bytes_that_ranks_share_are_one_load(world, folder):
    """File a is wanted by four ranks, b by one; all may own either: both are one load."""

    def body(t):
        arrays = make(t, folder, ["a.npy", "b.npy"], rows=4096)
        keys = [("a.npy", np.s_[:]), ("b.npy", np.s_[0:0])]
        if t.rank == 4:
            keys = [("a.npy", np.s_[0:0]), ("b.npy", np.s_[:])]
        _, report = told(t, folder, arrays, keys)
        for array in arrays.values():
            array.close()
        return [owner.load for owner in report.owners]

    for loads in world.run(body):
        assert len(loads) == world.size
        assert sum(loads) == 2 * 4096 * 32 * 8
        assert max(loads) <= 1.1 * sum(loads) / len(loads), loads


@ranks(3, 4, per_node=NODES)
def test_hints_are_those_of_ranks_that_bring_something(world, folder, agree_on, monkeypatch):
    """Rank 0 has an empty list, and no hints: it does not say how the others' array is divided."""
    agree_on(slot=16384, least=1)
    seen, plain = [], call.SharedPlan

    def spy(plan, arrays, names, choice, groups, *rest):
        first = [plan.tile(1, n)[1][0] for n in (0, 1)]
        seen.append((groups, first[1][0] - first[0][0] > first[0][1]))
        return plain(plan, arrays, names, choice, groups, *rest)

    monkeypatch.setattr(call, "SharedPlan", spy)

    def body(t):
        make(t, folder, ["a.npy"], rows=4096)["a.npy"].close()
        with outcore.open(folder / "a.npy", hints={"domains": "cyclic", "io_groups": 2}) as a:
            got = outcore.mpi.read_all([(a, ...)] if t.rank else [], comm=t, method="two-phase")
            assert all((part == a[...]).all() for part in got)

    world.run(body)
    assert seen and set(seen) == {(2, True)}, "two groups, tiles in turn"


@pytest.mark.parametrize("method", ["auto", "direct", "sieve"])
@ranks(2, 4, per_node=NODES)
def test_so_many_ranks_touch_files(world, folder, method):
    """Also where all of it is cached; but who is told to work on his own does."""

    def body(t):
        make(t, folder, ["a.npy"])["a.npy"].close()
        hints = {"io_ranks": 1, "method": "window"}
        with outcore.open(folder / "a.npy", "r+", comm=t, hints=hints) as a:
            a[...]
            t.barrier()
            before = moved(a)
            for _ in range(2):
                got = a.read_all(np.s_[:, t.rank :: t.size], method=method)
            a.write_all(np.s_[:, t.rank :: t.size], got, method=method)
            outcore.mpi.read_all([(a, np.s_[t.rank])], comm=t, method=method)
            report = a.explain_all(np.s_[:, t.rank :: t.size], method=method)
            return t.rank, moved(a) - before > 0, report

    for rank, touched, report in world.run(body):
        # What sieves counts for itself.
        assert method == "sieve" or touched == (rank == 0 or method == "direct")
        assert report.method == ("two-phase" if method == "auto" else method)
        if method == "auto":
            assert report.why == f"a hint specifies that 1 of {world.size} ranks access files"


def moved(array):
    stats = array.stats()
    return sum(stats[name] for name in ("read_bytes", "written_bytes", "mapped_bytes"))


@ranks(2, 4, per_node=NODES)
def test_only_a_proven_overlap_is_refused(world, folder, undecided):
    """That there are too many pairs to look at is played: it takes thousands of ranks."""

    def body(t):
        make(t, folder, ["a.npy"])["a.npy"].close()
        with outcore.open(folder / "a.npy", "r+", comm=t, hints={"overlap": "error"}) as a:
            key = np.s_[:, t.rank :: t.size]
            a.write_all(key, float(t.rank), method="direct")
            told = a.explain_all(key, write=True)
            got = a.read_all(method="direct")
        assert (got == np.arange(32) % t.size).all()
        return t.rank, told

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        reports = world.run(body)
    warned = any("too many pairs" in str(warning.message) for warning in heard)
    assert warned == any(rank == 0 for rank, _ in reports)
    for _, told in reports:
        assert (told.method, told.why) == ("two-phase", planning.UNDECIDED)


@pytest.mark.parametrize("method", ["balanced", "greedy", "matching", "exact"])
@ranks(2, 3, per_node=NODES)
def test_arrays_are_given_to_ranks_as_the_hint_says(world, folder, method):
    names = [f"{letter}.npy" for letter in "abcd"]

    def body(t):
        for array in make(t, folder, names[:3]).values():
            array.close()
        for array in make(t, folder, names[3:], rows=1024).values():
            array.close()
        arrays = {
            name: outcore.open(folder / name, "r+", comm=t, hints={"assign": method})
            for name in names
        }
        keys = [(name, np.s_[:, t.rank :: t.size]) for name in names]
        owners, report = told(t, folder, arrays, keys)
        wanted = [(arrays[name], key) for name, key in keys]
        got = outcore.mpi.read_all(wanted, comm=t, method="two-phase")
        outcore.mpi.write_all(
            [(*one, -part) for one, part in zip(wanted, got, strict=True)],
            comm=t,
            method="two-phase",
        )
        for k, name in enumerate(names):
            rows = 1024 if k == 3 else 64
            data = np.arange(rows * 32.0).reshape(rows, 32) + (0 if k == 3 else k)
            np.testing.assert_array_equal(data[keys[k][1]], got[k])
            np.testing.assert_array_equal(-data, arrays[name][...])
        t.barrier()
        for array in arrays.values():
            array.close()
        return owners, report

    for owners, report in world.run(body):
        assert report.assignment == method
        assert f"assigned {method}: " in str(report)
        most = max(len(some) for some in owners.values())
        if world.size <= len(names):
            assert (most > 1) == (method == "balanced"), "others give whole files"


@ranks(2, per_node=NODES)
def test_too_many_arrays_for_exact_are_balanced(world, folder):
    """Forty arrays are too many for "exact"; a hint raises nothing."""
    names = [f"{k}.npy" for k in range(40)]

    def body(t):
        arrays = make(t, folder, names, rows=4)
        hints = {"assign": "exact"}
        first = outcore.open(folder / names[0], comm=t, hints=hints)
        keys = [(name, np.s_[:, t.rank :: t.size]) for name in names[1:]]
        requests = [(first, np.s_[:, t.rank]), *((arrays[name], key) for name, key in keys)]
        report = outcore.mpi.explain_all(requests, comm=t, method="two-phase")
        for array in (first, *arrays.values()):
            array.close()
        return report

    for report in world.run(body):
        assert report.assignment == "balanced"
        assert report.assignment_why.endswith("exact was requested, but cannot do this")


@pytest.mark.simulated
@ranks(3, per_node=NODES)
def test_arrays_of_one_file_have_one_owner(world, folder):
    """Three files of HDF5 with three arrays each: each rank reads a file, whoever wants what of it."""
    pytest.importorskip("h5py")
    names = [f"{letter}.h5::/{name}" for name in "xyz" for letter in "abc"]

    def body(t):
        arrays = make(t, folder, names)
        # Alone, each array would go to the rank that wants all of it: x, y and z to a rank each.
        keys = [(name, np.s_[: 64 if k // 3 == t.rank else 1]) for k, name in enumerate(names)]
        owners, report = told(t, folder, arrays, keys)
        for array in arrays.values():
            array.close()
        return owners, report

    for owners, report in world.run(body):
        files = {}
        for name, some in owners.items():
            files.setdefault(name[0], set()).update(some)
        assert sorted(map(sorted, files.values())) == [[0], [1], [2]], owners
        assert "the 9 arrays are in 3 files" in report.assignment_why


@ranks(3, per_node=NODES)
def test_domains_begin_at_stripes_of_the_file(world, folder):
    """Rows of 8 KiB behind a header of 128 bytes; a third of them is no whole number of stripes."""

    def body(t):
        if t.rank == 0:
            # More than two stripes for each rank.
            outcore.create(folder / "a.npy", (533 * t.size + 1, 1024), "f8").close()
        t.barrier()
        begins = []
        for hints in ({}, {"stripe": "1 MiB"}):
            with outcore.open(folder / "a.npy", comm=t, hints=hints) as a:
                report = a.explain_all(np.s_[:, t.rank :: t.size], method="two-phase")
            rows = [int(box[1:].split(":")[0]) for _, _, box in report.domains]
            begins.append([128 + 8192 * row for row in rows])
        return begins

    for plain, striped in world.run(body):
        assert len(plain) == len(striped) == world.size
        assert all(byte % 2**20 < 8192 for byte in striped)
        assert any(byte % 2**20 >= 8192 for byte in plain)
