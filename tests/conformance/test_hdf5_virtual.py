"""Virtual datasets of HDF5: refused by name, whatever their sources are like; the others go on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import cli, errors

h5py = pytest.importorskip("h5py")

DATA = np.arange(40.0).reshape(10, 4)
STATES = ["whole", "inside", "missing", "cut", "noise", "of another type"]


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


@pytest.mark.parametrize("unlimited", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_refused_by_name_and_nothing_changed(
    tmp_path: Path, state: str, unlimited: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path, state, unlimited)
    where, before = f"{path}::/v", contents(tmp_path)
    source = "v.h5::s" if state == "inside" else "s.h5::s"
    for mode in ("r", "r+"):
        with pytest.raises(errors.UnsupportedError, match=f"virtual: .* in {source}; ") as caught:
            outcore.open(where, mode)
        assert caught.value.code == "hdf5-layout"
    with pytest.raises(errors.UnsupportedError, match="virtual"):
        outcore.convert(where, tmp_path / "new.npy")
    for words in (["info", where], ["explain", where, ":"]):
        assert cli.main(words) != 0
        assert "is virtual" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("unlimited", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_the_rest_of_the_file_is_listed_verified_and_written(
    tmp_path: Path, state: str, unlimited: bool
) -> None:
    path = make(tmp_path, state, unlimited)
    entries = {entry.path.rpartition("/")[2]: entry for entry in outcore.ls(path)}
    assert {"own", "grow", "v"} <= set(entries)
    assert "is virtual" in entries["v"].note
    assert entries["own"].note == entries["grow"].note == ""
    (damage,) = outcore.verify(path)
    assert (damage.code, damage.reason) == ("cannot-open", "hdf5-layout")
    assert damage.path.endswith("::/v")
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
    with h5py.File(path) as file:
        assert np.array_equal(file["v"][...], expected)


@pytest.mark.parametrize("state", STATES)
def test_a_dataset_takes_the_place_of_a_virtual_one(tmp_path: Path, state: str) -> None:
    path = make(tmp_path, state, True)
    outcore.create(f"{path}::/v", data=DATA[:3]).close()
    with outcore.open(f"{path}::/v") as array:
        assert np.array_equal(array[...], DATA[:3])
    with h5py.File(path) as file:
        assert file["own"][...].sum() == 10


def test_many_sources_are_counted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout(shape=(8,), dtype="f8")
        for k in range(8):
            layout[k : k + 1] = h5py.VirtualSource(f"{k}.h5", "x", shape=(1,))
        file.create_virtual_dataset("v", layout)
    with pytest.raises(
        errors.UnsupportedError, match=r"in 0\.h5::x, 1\.h5::x, 2\.h5::x and 5 more;"
    ):
        outcore.open(tmp_path / "v.h5")
