"""Virtual datasets of HDF5 are read as h5py reads them, section by section, whatever their mappings."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore import cli, errors
from outcore.formats.hdf5 import virtual as hdf5_virtual

h5py = pytest.importorskip("h5py")

DATA = np.arange(40.0).reshape(10, 4)
STATES = ["whole", "inside", "missing", "cut", "noise", "of another type"]
GOOD = ("whole", "inside", "missing")


def make(folder: Path, state: str, unlimited: bool) -> Path:
    """A virtual dataset over another file, or over the same, and two that are none."""
    path, beside = folder / "v.h5", folder / "s.h5"
    source = "." if state == "inside" else "s.h5"
    with h5py.File(path if state == "inside" else beside, "w") as file:
        file.create_dataset("s", data=DATA, chunks=(2, 4), maxshape=(None, 4))
    with h5py.File(path, "a" if state == "inside" else "w", libver="latest") as file:
        file["own"] = np.arange(5.0)
        file.create_dataset("grow", data=np.arange(6.0), maxshape=(None,), chunks=(2,))
        limits = (None, 4) if unlimited else None
        layout = h5py.VirtualLayout(shape=(10, 4), dtype="f8", maxshape=limits)
        rows = slice(0, h5py.h5s.UNLIMITED if unlimited else 10, 1)
        from_there = h5py.VirtualSource(source, "s", shape=(10, 4), maxshape=limits)
        layout[rows, :] = from_there[rows, :]
        file.create_virtual_dataset("v", layout, fillvalue=-1)
    if state == "missing":
        beside.unlink()
    elif state == "cut":
        os.truncate(beside, 300)
    elif state == "noise":
        beside.write_bytes(np.random.default_rng(0).bytes(5000))
    elif state == "of another type":
        with h5py.File(beside, "w") as file:
            file["s"] = np.array([b"a", b"b"])
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def by_h5py(path: Path, name: str = "v") -> Any:
    with h5py.File(path) as file:
        return file[name][...]


@pytest.mark.parametrize("unlimited", [False, True])
@pytest.mark.parametrize("state", GOOD)
def test_read_in_every_way(tmp_path: Path, state: str, unlimited: bool, capsys: Any) -> None:
    path = make(tmp_path, state, unlimited)
    where, before, expected = f"{path}::/v", contents(tmp_path), by_h5py(path)
    with outcore.open(where) as array:
        assert array.shape == expected.shape
        assert array.info.extra["storage"] == "virtual"
        for key in (..., np.s_[::-1, 1], np.s_[1:9:3], np.s_[2:2], (slice(None), None)):
            assert np.array_equal(array[key], expected[key])
        told = array.explain(np.s_[:])
        assert told.useful_bytes == expected.nbytes
        assert ("virtual" in told.why) and bool(told.moved_bytes) == bool(
            expected.size and state != "missing"
        )
        if state != "missing":
            assert array.chunks == (2, 4)
            assert array[3, 2] == expected[3, 2]
            out = np.empty((10, 2))[::-1]
            assert array.read(np.s_[:, ::2], out=out) is out
            assert np.array_equal(out, expected[:, ::2])
            rows = [data.copy() for _, data in array.blocks(shape=(3, 4))]
            assert np.array_equal(np.concatenate(rows), expected)
            assert np.array_equal(array[[7, 0, -1]], expected[[7, 0, -1]])
            assert np.array_equal(array.oindex[[7, 0], [1, 3]], expected[np.ix_([7, 0], [1, 3])])
            assert np.array_equal(array[expected > 17], expected[expected > 17])
            assert np.array_equal(array.iread(np.s_[4:6]).wait(), expected[4:6])
            array.prefetch(np.s_[:2])
            assert array.stats()["decodes"] == 0
            assert float(outcore.sum(where)) == expected.sum()
    if expected.size:
        outcore.convert(where, tmp_path / "copy.npy")
        assert np.array_equal(np.load(tmp_path / "copy.npy"), expected)
        (tmp_path / "copy.npy").unlink()
    assert outcore.verify(where) == []
    for words in (["info", where], ["explain", where, ":"]):
        assert cli.main(words) == 0
        assert capsys.readouterr().out
    assert contents(tmp_path) == before


@pytest.mark.parametrize("state", GOOD)
def test_only_read(tmp_path: Path, state: str) -> None:
    path = make(tmp_path, state, False)
    before = contents(tmp_path)
    with pytest.raises(
        errors.UnsupportedError, match=r"write to those, or .*outcore\.convert"
    ) as caught:
        outcore.open(f"{path}::/v", "r+")
    assert caught.value.code == "hdf5-virtual"
    with outcore.open(f"{path}::/v") as array:
        with pytest.raises(errors.UsageError, match="r\\+"):
            array[0] = 1
        with pytest.raises(errors.UsageError, match="r\\+"):
            array.schedule([1, 2]).scatter([1, 2])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("state", ["cut", "noise", "of another type"])
def test_a_source_that_cannot_be_read_is_an_error(tmp_path: Path, state: str) -> None:
    """Not the fill value, which stands for what is missing."""
    path = make(tmp_path, state, False)
    with (
        outcore.open(f"{path}::/v") as array,
        pytest.raises((errors.FormatError, errors.StorageError)),
    ):
        array[...]


@pytest.mark.parametrize("unlimited", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_the_rest_of_the_file_is_listed_verified_and_written(
    tmp_path: Path, state: str, unlimited: bool
) -> None:
    path = make(tmp_path, state, unlimited)
    entries = {entry.path.rpartition("/")[2]: entry for entry in outcore.ls(path)}
    assert {"own", "grow", "v"} <= set(entries)
    # How long an unlimited one is only its sources tell.
    noted = unlimited and state in ("cut", "noise")
    assert [name for name, entry in entries.items() if entry.note] == ["v"] * noted
    damages = outcore.verify(path)
    assert all(damage.path.endswith("::/v") for damage in damages)
    if not unlimited:
        assert bool(damages) == (state not in GOOD)
    sources = {n: data for n, data in contents(tmp_path).items() if n == "s.h5"}
    with outcore.open(f"{path}::/grow", "r+") as array:
        array.append(np.ones(3))
    with outcore.open(f"{path}::/own", "r+") as array:
        array[2] = 7
        array.attrs["units"] = "K"
    assert {n: data for n, data in contents(tmp_path).items() if n == "s.h5"} == sources
    with h5py.File(path) as file:
        assert file["grow"][...].tolist() == [0, 1, 2, 3, 4, 5, 1, 1, 1]
        assert file["own"][2] == 7
        assert file["v"].is_virtual and len(file["v"].virtual_sources()) == 1
        if state in ("whole", "inside"):
            assert np.array_equal(file["v"][...], DATA)


def test_sources_are_written_through_their_own_names(tmp_path: Path) -> None:
    """What is written, and appended, to a source is there in the virtual dataset."""
    path = make(tmp_path, "whole", True)
    with outcore.open(tmp_path / "s.h5", "r+") as array:
        array[3] = -5
        array.append(np.full((2, 4), 9.0))
    expected = np.concatenate([DATA, np.full((2, 4), 9.0)])
    expected[3] = -5
    assert np.array_equal(by_h5py(path), expected)
    with outcore.open(f"{path}::/v") as array:
        assert np.array_equal(array[...], expected)


@pytest.mark.parametrize("state", STATES)
def test_a_dataset_takes_the_place_of_a_virtual_one(tmp_path: Path, state: str) -> None:
    path = make(tmp_path, state, True)
    outcore.create(f"{path}::/v", data=DATA[:3], overwrite=True).close()
    with outcore.open(f"{path}::/v") as array:
        assert np.array_equal(array[...], DATA[:3])
    with h5py.File(path) as file:
        assert file["own"][...].sum() == 10


# How mappings are cut


def frames(folder: Path, **storage: Any) -> tuple[Path, Any]:
    """A frame in each of five files, one of which is missing, as detectors write them."""
    folder.mkdir(exist_ok=True)
    layout = h5py.VirtualLayout(shape=(5, 6, 8), dtype="i4")
    for k in range(5):
        layout[k] = h5py.VirtualSource(f"f{k}.h5", "frame", shape=(6, 8))
        if k != 3:
            with h5py.File(folder / f"f{k}.h5", "w") as file:
                data = 100 * k + np.arange(48, dtype="i4").reshape(6, 8)
                file.create_dataset("frame", data=data, **storage)
    with h5py.File(folder / "all.h5", "w") as file:
        file.create_virtual_dataset("frames", layout, fillvalue=-7)
    return folder / "all.h5", by_h5py(folder / "all.h5", "frames")


@pytest.mark.parametrize(
    "storage",
    [{}, {"chunks": (3, 4)}, {"chunks": (3, 4), "compression": "gzip", "shuffle": True}],
    ids=["contiguous", "chunked", "compressed"],
)
def test_frames_in_files(tmp_path: Path, storage: Any, monkeypatch: Any) -> None:
    path, expected = frames(tmp_path / "there", **storage)
    monkeypatch.chdir(tmp_path)
    with outcore.open(os.path.relpath(path)) as array:
        monkeypatch.chdir("/")
        assert array.chunks == ((1, 3, 4) if storage else (1, 6, 8))
        assert array.fill_value == -7
        for key in (..., np.s_[:, 2:5, ::-3], np.s_[3], np.s_[4, 5, 7], np.s_[::2, 1]):
            assert np.array_equal(array[key], expected[key])
        assert np.array_equal(array[[4, 3, 0], :, [1, 7, 2]], expected[[4, 3, 0], :, [1, 7, 2]])
        assert np.array_equal(
            array.vindex[[0, 4], [1, 5], [2, 7]], expected[[0, 4], [1, 5], [2, 7]]
        )
        told = array.explain(np.s_[:, :3])
        assert told.decodes == (8 if "compression" in storage else 0)
        array[1:3]
        assert array.stats()["decodes"] >= (8 if "compression" in storage else 0)
        # The file that was missing comes.
        with h5py.File(tmp_path / "there" / "f3.h5", "w") as file:
            file["frame"] = np.ones((6, 8), "i4")
        assert (array[3] == 1).all()
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda k=k: found.append((k, array[k]))) for k in range(5)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    after = by_h5py(path, "frames")
    assert all(np.array_equal(data, after[k]) for k, data in found) and len(found) == 5


def test_the_same_memory_budget(tmp_path: Path) -> None:
    """A walk through compressed frames stays in the budget, and a result that is larger is refused."""
    layout = h5py.VirtualLayout(shape=(8, 512, 512), dtype="f8")
    for k in range(8):
        layout[k] = h5py.VirtualSource(f"f{k}.h5", "x", shape=(512, 512))
        with h5py.File(tmp_path / f"f{k}.h5", "w") as file:
            file.create_dataset(
                "x", data=np.full((512, 512), k, "f8"), chunks=(64, 512), compression=1
            )
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    with outcore.memory("8 MiB"), outcore.open(tmp_path / "v.h5") as array:
        assert sum(float(data.sum()) for _, data in array.blocks()) == 28 * 512 * 512
        with pytest.raises(errors.BudgetError, match="blocks"):
            np.asarray(array)


def test_other_shapes_and_types(tmp_path: Path) -> None:
    """A row of a matrix from an array with one axis, a matrix from a row, and a type that holds it."""
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["flat"] = np.arange(24, dtype=">i2")
        file["cube"] = np.arange(24, dtype="i2").reshape(2, 3, 4)
        file["pairs"] = np.arange(12, dtype="i2").reshape(6, 2)
        layout = h5py.VirtualLayout(shape=(3, 24), dtype="f8")
        layout[0] = h5py.VirtualSource(file["flat"])
        layout[1] = h5py.VirtualSource(file["cube"])
        layout[2, 4:16] = h5py.VirtualSource(file["pairs"])
        file.create_virtual_dataset("v", layout, fillvalue=np.nan)
        more = h5py.VirtualLayout(shape=(2, 3, 4), dtype="i2")
        more[...] = h5py.VirtualSource(file["flat"])
        file.create_virtual_dataset("w", more)
    for name in "vw":
        expected = by_h5py(tmp_path / "v.h5", name)
        with outcore.open(f"{tmp_path}/v.h5::/{name}") as array:
            for key in (..., 1, np.s_[..., 3:9:2], np.s_[-1]):
                np.testing.assert_array_equal(array[key], expected[key])
            np.testing.assert_array_equal(array[[1, 0]], expected[[1, 0]])


def test_numbers_of_other_types_are_as_the_library_has_them(tmp_path: Path) -> None:
    kinds = [("i8", "i2"), ("u1", "i4"), (">i4", "u1"), ("f8", "f4"), ("i4", "f4"), ("f2", ">f8")]
    values = np.array([-70000, -1, 0, 1, 300, 70001, 16777217, 2])
    for number, (source, kind) in enumerate(kinds):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w") as file:
            file["s"] = (
                np.abs(values).astype("f8").clip(0, 250).astype(source)
                if source in ("u1", "f2")
                else values.astype(source)
            )
            layout = h5py.VirtualLayout(shape=(8,), dtype=kind)
            layout[...] = h5py.VirtualSource(file["s"])
            file.create_virtual_dataset("v", layout)
        expected = by_h5py(path)
        with outcore.open(f"{path}::/v") as array:
            if np.dtype(kind).kind == "u" and np.dtype(source).kind == "i":
                with pytest.raises(errors.UnsupportedError, match="source"):
                    array[...]
                continue
            assert array.dtype == expected.dtype
            assert array[...].tobytes() == expected.tobytes()
            assert np.array_equal(array[[5, 0]], expected[[5, 0]])


def test_a_type_that_cannot_hold_the_source_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["s"] = np.arange(4.0)
        layout = h5py.VirtualLayout(shape=(4,), dtype="i2")
        layout[...] = h5py.VirtualSource(file["s"])  # of f8
        file.create_virtual_dataset("v", layout)
    with (
        outcore.open(f"{tmp_path}/v.h5::/v") as array,
        pytest.raises(errors.UnsupportedError, match="source"),
    ):
        array[...]


def test_virtual_over_virtual_and_without_end(tmp_path: Path) -> None:
    _, expected = frames(tmp_path, chunks=(3, 4), compression="gzip")
    with h5py.File(tmp_path / "top.h5", "w") as file:
        layout = h5py.VirtualLayout(shape=(5, 3), dtype="i4")
        layout[...] = h5py.VirtualSource("all.h5", "frames", shape=(5, 6, 8))[:, 1, 2:5]
        file.create_virtual_dataset("v", layout)
        endless = h5py.VirtualLayout(shape=(4,), dtype="i4")
        endless[...] = h5py.VirtualSource(".", "loop", shape=(4,))
        file.create_virtual_dataset("loop", endless)
    with outcore.open(f"{tmp_path}/top.h5::/v") as array:
        assert np.array_equal(array[...], expected[:, 1, 2:5])
        assert np.array_equal(array[[4, 0], [1, 2]], expected[[4, 0], 1, [3, 4]])
        assert array.explain().decodes > 0
    with pytest.raises(errors.FormatError, match="without end"):
        outcore.open(f"{tmp_path}/top.h5::/loop")[...]


def test_files_by_number(tmp_path: Path) -> None:
    """``%b`` in a name is the number of a block; blocks go on as long as there are files."""
    for k in range(3):
        with h5py.File(tmp_path / f"part-{k}.h5", "w") as file:
            file["x"] = np.arange(10 * k, 10 * k + 8).reshape(2, 4)
    space = h5py.h5s.create_simple((2, 4), (h5py.h5s.UNLIMITED, 4))
    space.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (2, 4), (2, 4))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_virtual(space, b"part-%b.h5", b"x", h5py.h5s.create_simple((2, 4)))
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT64, space, plist)
    expected = by_h5py(tmp_path / "v.h5")
    with outcore.open(tmp_path / "v.h5") as array:
        assert array.shape == expected.shape == (6, 4)
        assert np.array_equal(array[...], expected)
        assert np.array_equal(array[1:5:2, ::-1], expected[1:5:2, ::-1])


def test_names_of_files(tmp_path: Path, monkeypatch: Any) -> None:
    """Beside the dataset's file, in the folders of HDF5_VDS_PREFIX, and by a name that leads nowhere."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder, value in (("a", 1), ("b", 2)):
        with h5py.File(tmp_path / folder / "s.h5", "w") as file:
            file["s"] = np.full(3, value)
    for name in ("s.h5", "/nowhere/at/all/s.h5"):
        with h5py.File(tmp_path / "a" / "v.h5", "w") as file:
            layout = h5py.VirtualLayout(shape=(3,), dtype="i8")
            layout[...] = h5py.VirtualSource(name, "s", shape=(3,))
            file.create_virtual_dataset("v", layout)
        assert outcore.open(tmp_path / "a" / "v.h5")[0] == by_h5py(tmp_path / "a" / "v.h5")[0] == 1
    monkeypatch.setenv("HDF5_VDS_PREFIX", str(tmp_path / "b"))
    assert hdf5_virtual.find_source_file(str(tmp_path / "a" / "v.h5"), "s.h5") == str(
        tmp_path / "b" / "s.h5"
    )


def test_a_source_that_became_smaller(tmp_path: Path) -> None:
    """What a hyperslab names outside is the fill value; all of it is another number of elements."""
    path = make(tmp_path, "whole", False)
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        file["s"].resize((6, 4))
    with outcore.open(f"{path}::/v") as array:
        found = array[...]
    assert np.array_equal(found[:6], DATA[:6])
    assert (found[6:] == -1).all()
    with h5py.File(path, "r+", libver="latest") as file:
        del file["v"]
        layout = h5py.VirtualLayout(shape=(10, 4), dtype="f8")
        layout[...] = h5py.VirtualSource("s.h5", "s", shape=(10, 4))
        file.create_virtual_dataset("v", layout)
    with pytest.raises(OSError, match="different number of elements"):
        by_h5py(path)
    with (
        outcore.open(f"{path}::/v") as array,
        pytest.raises(errors.FormatError, match="40 elements to 24"),
    ):
        array[...]


def test_too_many_pieces_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    path, _ = frames(tmp_path)
    monkeypatch.setattr(hdf5_virtual, "MAX_PIECES", 4)
    with pytest.raises(errors.UnsupportedError, match="pieces") as caught:
        outcore.open(path)
    assert caught.value.code == "hdf5-virtual"


def make_overlapping(path: Path) -> Any:
    """Mappings that have elements in common, of several types; what h5py reads."""
    rng = np.random.default_rng(3)
    layout = h5py.VirtualLayout((40, 6), "f8")
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(9):
            low, step = (
                (0, 1) if number == 0 else (int(rng.integers(0, 30)), int(rng.integers(1, 4)))
            )
            rows = slice(low, 40, step)
            count = len(range(40)[rows])
            data = (1000 * number + np.arange(count * 6).reshape(count, 6)).astype(
                ("f8", "i4", "f4")[number % 3]
            )
            file.create_dataset(f"d{number}", data=data, chunks=(2, 3), compression="gzip")
            layout[rows, number % 3 :] = h5py.VirtualSource(file[f"d{number}"])[:, number % 3 :]
        file.create_virtual_dataset("v", layout, fillvalue=-1)
    return by_h5py(path)


def test_the_last_of_mappings_that_overlap_counts(tmp_path: Path) -> None:
    expected = make_overlapping(tmp_path / "v.h5")
    with outcore.open(f"{tmp_path / 'v.h5'}::/v") as array:
        for key in (..., np.s_[::-1, 2:], np.s_[3::4], np.s_[:, [5, 0]], np.arange(39, -1, -1)):
            assert np.array_equal(array[key], expected[key])
            assert np.array_equal(array.read(key), expected[key])


# Any mapping


@st.composite
def selections(draw: Any, length: int, count: int) -> tuple[int, int, int, int]:
    """Start, stride, count and block of a hyperslab of so many elements on an axis."""
    block = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    blocks = count // block
    room = length - count
    gap = draw(st.integers(0, room // max(blocks - 1, 1))) if blocks > 1 else 0
    start = draw(st.integers(0, length - (blocks - 1) * (block + gap) - block))
    return start, block + gap, blocks, block


@st.composite
def mappings(draw: Any) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        counts = [draw(st.integers(1, n)) for n in shape]
        whole = draw(st.booleans())  # as h5py writes it: all of the source
        source = tuple(counts if whole else (n + draw(st.integers(0, 4)) for n in shape))
        here = [draw(selections(n, c)) for n, c in zip(shape, counts, strict=True)]
        there = [draw(selections(n, c)) for n, c in zip(source, counts, strict=True)]
        found.append(
            (source, here, there, draw(st.sampled_from(["plain", "chunks", "gzip", "none"])))
        )
    keys = []
    for _ in range(3):
        steps = st.one_of(st.none(), st.integers(-3, 3).filter(bool))
        ends = st.one_of(st.none(), st.integers(-9, 9))
        keys.append(tuple(slice(draw(ends), draw(ends), draw(steps)) for _ in shape))
    lists = tuple(draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2)) for n in shape)
    return shape, found, keys, lists


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(mappings())
def test_any_mapping_reads_as_h5py_reads_it(tmp_path_factory: Any, case: Any) -> None:
    """Blocked and strided hyperslabs on both sides, several sources, some that are missing."""
    shape, found, keys, lists = case
    folder = tmp_path_factory.mktemp("vds")
    space = h5py.h5s.create_simple(shape)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_fill_value(np.array(-1, "i8"))
    taken = np.zeros(shape, bool)
    for number, (source, here, there, storage) in enumerate(found):
        sides = []
        for extent, axes in ((shape, here), (source, there)):
            side = h5py.h5s.create_simple(extent)
            start, stride, count, block = (tuple(words) for words in zip(*axes, strict=True))
            side.select_hyperslab(start, count, stride, block)
            if extent == source and side.get_select_npoints() == np.prod(source):
                side.select_all()
            sides.append(side)
        places = [[s + k * t + j for k in range(c) for j in range(b)] for s, t, c, b in here]
        if taken[np.ix_(*places)].any():
            continue  # mappings of HDF5 do not overlap
        taken[np.ix_(*places)] = True
        plist.set_virtual(sides[0], f"{number}.h5".encode(), b"x", sides[1])
        if storage != "none":
            how = {"plain": {}, "chunks": {"chunks": tuple(max(n // 2, 1) for n in source)}}
            how["gzip"] = {**how["chunks"], "compression": "gzip"}
            with h5py.File(folder / f"{number}.h5", "w") as file:
                data = 1000 * number + np.arange(np.prod(source)).reshape(source)
                file.create_dataset("x", data=data, **how[storage])
    with h5py.File(folder / "v.h5", "w", libver="latest") as file:
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT64, space, plist)
    expected = by_h5py(folder / "v.h5")
    with outcore.open(folder / "v.h5") as array:
        assert np.array_equal(array[...], expected)
        for key in keys:
            assert np.array_equal(array[key], expected[key])
        assert np.array_equal(array[lists], expected[lists])
        assert np.array_equal(array.schedule(lists).gather(), expected[lists])
        for d in range(len(shape)):
            rows = (*(slice(None, None, 2),) * d, lists[d])
            assert np.array_equal(array.schedule(rows).gather(), expected[rows])
        assert np.array_equal(array.oindex[lists], expected[np.ix_(*lists)])
