"""Opening together: one synchronisation, one look at the header, and the same outcome on all ranks."""

import os
import pickle

import numpy as np
import pytest

import outcore
from outcore.errors import (
    AlreadyExistsError,
    CollectiveError,
    FancyIndexError,
    NotFoundError,
    UsageError,
)
from outcore.formats import npy
from outcore.ranks.collective.items import get_array_ids, prepare_read
from ranks import once, ranks

FILES = 12


@ranks(1, 2, 4)
def test_one_synchronisation_for_each_array(world, folder, steps):
    def body(t):
        if t.rank == 0:
            for k in range(FILES):
                np.save(folder / f"{k}.npy", np.full((3, 4), k))
        t.barrier()
        steps[t.rank] = []
        arrays = [outcore.open(folder / f"{k}.npy", comm=t) for k in range(FILES)]
        told = list(steps[t.rank])
        t.barrier()
        assert [int(a[1, 1]) for a in arrays] == list(range(FILES))
        assert told == ["allgather"] * FILES

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 1))
def test_one_synchronisation_for_many_arrays(world, folder, steps):
    """Also if ranks have other names for them, which takes another one."""

    def body(t):
        once(t, lambda: [np.save(folder / f"{k}.npy", np.full((3, 4), k)) for k in range(FILES)])
        once(t, lambda: os.symlink(folder, folder / "other"))
        t.barrier()
        for beside, expected in ((False, 1), (True, 2)):
            place = folder / "other" if beside and t.rank else folder
            steps[t.rank] = []
            arrays = outcore.open_many((place / f"{k}.npy" for k in range(FILES)), comm=t)
            told = [step for step in steps[t.rank] if step == "allgather"]
            t.barrier()
            assert len(told) == (expected if t.size > 1 else 1)
            for k, read in enumerate(outcore.mpi.read_all([(a, np.s_[1, 1]) for a in arrays])):
                assert read == k
            for array in arrays:
                array.close()
        assert outcore.open_many([], comm=t) == []

    world.run(body)


@ranks(2, 4, per_node=(None, 2))
def test_many_arrays_are_the_same_on_all_ranks(world, folder):
    """The first one that is not is named, and none stays open."""

    def body(t):
        last = t.size - 1
        once(t, lambda: [np.save(folder / f"{k}.npy", np.zeros((3, 4 + k))) for k in range(4)])
        once(t, lambda: np.save(folder / "other.npy", np.zeros((3, 5))))
        usual = [folder / f"{k}.npy" for k in range(4)]

        def refused(mine, *words, usual=usual):
            with pytest.raises(CollectiveError) as caught:
                outcore.open_many(mine if t.rank == last else usual, comm=t)
            assert (caught.value.code, caught.value.ranks) == ("mismatched-call", (last,))
            assert all(word in str(caught.value) for word in words), caught.value

        refused([usual[0], usual[2], usual[1], usual[3]], "paths[1] is", "2.npy", "(3, 6)")
        refused([usual[0], folder / "other.npy", *usual[2:]], "paths[1] is", "other.npy", "1.npy")
        refused(usual[:3], "open_many of 3 arrays", "open_many of 4 arrays", "paths[3] is")
        refused([], "open_many of 0 arrays", "paths[0] is")
        for mine, code in (
            ([*usual[:2], folder / "missing.npy"], "not-found"),
            (str(usual[0]), "bad-path"),
        ):
            with pytest.raises(CollectiveError) as caught:
                outcore.open_many(mine if t.rank == last else usual, comm=t)
            assert caught.value.ranks == (last,) and f"[{code}]" in str(caught.value)
        with pytest.raises(CollectiveError) as caught:
            outcore.open_many(usual, "r+" if t.rank == last else "r", comm=t)
        assert "mode 'r+'" in str(caught.value) and "mode 'r'" in str(caught.value)
        call, mine = (outcore.open, usual[0]) if t.rank == last else (outcore.open_many, usual[:1])
        with pytest.raises(CollectiveError) as caught:
            call(mine, comm=t)
        assert caught.value.code == "mismatched-call"
        arrays = outcore.open_many(usual, comm=t)
        assert [a.shape for a in arrays] == [(3, 4 + k) for k in range(4)]

    world.run(body)


@ranks(2, 4)
def test_a_file_that_is_missing_on_one_rank(world, folder):
    """Also if what the header says is known from another file."""

    def body(t):
        own = folder / f"{t.rank}.npy"
        if t.rank != 1:
            np.save(own, np.zeros((3, 4)))
        t.barrier()
        with pytest.raises(CollectiveError) as caught:
            outcore.open(own, comm=t)
        assert caught.value.ranks == (1,) and "[not-found]" in str(caught.value)
        with pytest.raises(CollectiveError) as caught:
            outcore.open(folder / "0.npy", "rw" if t.rank else "r", comm=t)
        assert caught.value.ranks == tuple(range(1, t.size)) and "[bad-mode]" in str(caught.value)
        with outcore.open(folder / "0.npy", comm=t) as array:
            assert array.shape == (3, 4)

    world.run(body)


def test_headers_that_are_alike_are_read_once(tmp_path, monkeypatch):
    plain, seen = npy._read_fields, []
    monkeypatch.setattr(npy, "_read_fields", lambda *words: seen.append(words) or plain(*words))
    npy._read_plain_fields.cache_clear()
    fields = np.dtype([("a", "i4"), ("b", "f8")])
    for k in range(4):
        np.save(tmp_path / f"{k}.npy", np.full((5, 6 + k // 2), k, "i2"))
        np.save(tmp_path / f"fields-{k}.npy", np.zeros(3, fields))
    assert [outcore.open(tmp_path / f"{k}.npy").shape for k in range(4)] == [(5, 6)] * 2 + [
        (5, 7)
    ] * 2
    assert len(seen) == 2
    # A dtype whose fields can be given other names belongs to one array.
    two = [outcore.open(tmp_path / f"fields-{k}.npy") for k in range(2)]
    assert len(seen) == 4 and two[0].dtype is not two[1].dtype
    # Of each file its own length counts.
    os.truncate(tmp_path / "1.npy", 150)
    with pytest.raises(outcore.errors.FormatError) as caught:
        outcore.open(tmp_path / "1.npy")
    assert caught.value.code == "file-too-short" and len(seen) == 4
    with pytest.raises(UsageError):
        outcore.open(tmp_path / "0.npy", "rw")


def test_names_of_arrays_look_at_each_folder_once(tmp_path, monkeypatch):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        for k in range(5):
            np.save(folder / f"{k}.npy", np.zeros(3))
    os.symlink("one", tmp_path / "same")
    os.symlink(folders[0] / "3.npy", folders[1] / "link.npy")
    paths = [folder / f"{k}.npy" for folder in (*folders, tmp_path / "same") for k in range(5)]
    mine = [prepare_read(outcore.open(path), ...) for path in (*paths, folders[1] / "link.npy")]
    looks, plain = [], os.path.realpath
    monkeypatch.setattr(os.path, "realpath", lambda path: looks.append(path) or plain(path))
    found = get_array_ids(mine)
    # Three folders, and what is a link itself.
    assert len(looks) == 4
    assert found[10:15] == found[:5] and found[15] == found[3] and len(set(found)) == 10
    assert get_array_ids(mine) == found and len(looks) == 4


@ranks(1, 2, 4, per_node=(None, 2))
def test_the_cause_of_a_failure_is_the_same_on_all_ranks(world, folder):
    """Who looks at the cause takes the same branch on every rank, and none waits for the others."""

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.zeros(3)))
        last = t.size - 1
        calls = {
            NotFoundError: lambda: outcore.open(
                folder / ("missing.npy" if t.rank == last else "a.npy"), comm=t
            ),
            AlreadyExistsError: lambda: outcore.open(
                folder / "a.npy", "x", shape=3, dtype="f8", comm=t
            ),
        }
        for kind, call in calls.items():
            with pytest.raises(CollectiveError) as caught:
                call()
            cause = caught.value.__cause__
            assert type(cause) is kind
            builtin = FileNotFoundError if kind is NotFoundError else FileExistsError
            assert isinstance(cause, builtin)
            assert cause.code in str(caught.value) and cause.message in str(caught.value)
            assert cause.errno and cause.filename.startswith(str(folder))
            failed = last if kind is NotFoundError else 0
            assert cause.rank == (None if t.rank == failed else failed)
            again = pickle.loads(pickle.dumps(caught.value))
            assert (type(again.__cause__), again.ranks) == (kind, (failed,))
        with outcore.open(folder / "a.npy", comm=t) as a:
            with pytest.raises(CollectiveError) as caught:
                a.read_all("name" if t.rank == last else 0)
            assert type(caught.value.__cause__) is FancyIndexError
            assert t.agree(t.rank) == last

    world.run(body)


@ranks(2, 3, 5, per_node=(None, 2))
def test_ranks_that_mean_other_elements(world, folder):
    """What differs is said, by each rank of all, before anything is created or moved."""
    raw = {"dtype": "f4", "shape": (4, 6), "offset": 16}

    def body(t):
        once(t, lambda: np.arange(28, dtype="f4").tofile(folder / "a.raw"))
        last = t.size - 1
        others = [
            ("shape", (6, 4), "(6, 4)", "(4, 6)"),
            ("shape", (2, 6), "(2, 6)", "(4, 6)"),
            ("dtype", "i4", "int32", "float32"),
            ("order", "F", "order F", "order C"),
            ("offset", 8, "from byte 8", "from byte 16"),
        ]
        for mode in ("r", "r+"):
            for name, value, odd, usual in others:
                mine = {**raw, name: value} if t.rank == last else raw
                with pytest.raises(CollectiveError) as caught:
                    outcore.open(folder / "a.raw", mode, comm=t, **mine)
                said = str(caught.value)
                assert (caught.value.code, caught.value.ranks) == ("mismatched-call", (last,))
                assert usual in said and odd in said and f"rank {last} called" in said
        for name, value in [("shape", (6, 4)), ("dtype", "f8"), ("chunks", 3), ("fill_value", 2.0)]:
            usual = {"dtype": "f4", "shape": (4, 6), "chunks": 2, "fill_value": 1.0}
            mine = {**usual, name: value} if t.rank == last else usual
            with pytest.raises(CollectiveError) as caught:
                outcore.open(folder / "new.zarr", "w", comm=t, **mine)
            said = str(caught.value)
            assert (caught.value.code, caught.value.ranks) == ("mismatched-call", (last,))
            assert f"{name}={value!r}" in said and f"{name}={usual[name]!r}" in said
            assert not (folder / "new.zarr").exists()
        # The same in other words.
        mine = {"dtype": np.dtype("<f4"), "shape": [np.int64(4), -1], "offset": 16, "order": "C"}
        with outcore.open(folder / "a.raw", comm=t, **(mine if t.rank else raw)) as a:
            assert a.shape == (4, 6)
        mine = {"dtype": np.float32, "shape": [4, 6], "chunks": [2, 2], "order": "C"}
        usual = {"dtype": "f4", "shape": (4, 6), "chunks": (np.int64(2), 2)}
        with outcore.open(folder / "b.zarr", "w", comm=t, **(mine if t.rank else usual)) as a:
            assert a.chunks == (2, 2)

    world.run(body)


@ranks(1, 2, 3)
def test_create_with_ranks(world, folder):
    """As `create` without: in each format, with data, like another one, and nothing is replaced."""
    data = np.arange(12.0).reshape(3, 4)

    def body(t):
        for name in ("a.npy", "a.h5::/x", "a.nc::/x", "a.zarr", "a.zarr2", "a.raw", "a.parts"):
            with outcore.create(folder / name, (3, 4), "f8", comm=t) as a:
                assert isinstance(a, outcore.mpi.CollectiveArray), name
                assert (a.shape, a.dtype, a.writable) == ((3, 4), np.dtype("f8"), True), name
                a.write_all(np.s_[t.rank :: t.size], data[t.rank :: t.size])
                assert np.array_equal(a.read_all(), data), name
            with pytest.raises(CollectiveError) as caught:
                outcore.create(folder / name, data=data, comm=t)
            assert isinstance(caught.value.__cause__, AlreadyExistsError), name
            with outcore.create(folder / name, data=data + 1, overwrite=True, comm=t) as a:
                assert np.array_equal(a.read_all(), data + 1), name
        with outcore.create(folder / "b.zarr", like=a, chunks=2, comm=t) as b:
            assert (b.shape, b.chunks) == ((3, 4), (2, 2))
        with pytest.raises(CollectiveError, match="missing-argument"):
            outcore.create(folder / "c.npy", comm=t)
        with pytest.raises(UsageError, match="exclusive"):
            outcore.create(folder / "c.npy", (3,), "f8", exclusive=True, comm=t)

    world.run(body)
