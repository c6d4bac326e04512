"""Damaged HDF5 files opened for writing: what was whole stays so. Random damage: `tests/fuzz`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import outcore
from fuzz.hdf5_checksums import lookup3
from outcore import errors

h5py = pytest.importorskip("h5py")


def make(path: Path, libver: str, userblock: int = 0) -> None:
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        file["small"] = np.arange(10.0)
        file["big"] = np.arange(5000.0)
        file.create_dataset("k", data=np.arange(3000.0), chunks=(500,), maxshape=(None,))


def with_end(good: bytes, part: float, userblock: int) -> bytes:
    """The file with another end in its superblock, and its checksum right."""
    data, start = bytearray(good), userblock
    new = data[start + 8] >= 2
    at = start + (28 if new else 40)
    assert int.from_bytes(data[at : at + 8], "little") == len(good)
    data[at : at + 8] = int(part * len(good)).to_bytes(8, "little")
    if new:
        data[start + 44 : start + 48] = lookup3(bytes(data[start : start + 44])).to_bytes(
            4, "little"
        )
    return bytes(data)


def create(path: Path) -> None:
    outcore.create(f"{path}::/new", data=np.zeros(3000)).close()


def attribute(path: Path) -> None:
    with outcore.open(f"{path}::/small", "r+") as array:
        array.attrs["units"] = "K"


def append(path: Path) -> None:
    with outcore.open(f"{path}::/k", "r+") as array:
        array.append(np.zeros(1000))


def resize(path: Path) -> None:
    with outcore.open(f"{path}::/k", "r+") as array:
        array.resize(100)


CHANGES = [create, attribute, append, resize]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("change", CHANGES)
def test_an_end_that_lies_before_the_data(
    tmp_path: Path, change: Callable[[Path], None], part: float, libver: str
) -> None:
    """The library would give the space of other datasets away, or cut them off."""
    path = tmp_path / "a.h5"
    make(path, libver)
    damaged = with_end(path.read_bytes(), part, 0)
    path.write_bytes(damaged)
    with pytest.raises(errors.FormatError) as caught:
        change(path)
    assert caught.value.code == "hdf5-refused"
    assert path.read_bytes() == damaged
    assert [item.name for item in tmp_path.iterdir()] == ["a.h5"]
    with outcore.open(f"{path}::/small", "r+") as array:  # in place: nobody else's
        array[3] = 7
        assert array[:5].tolist() == [0, 1, 2, 7, 4]


@pytest.mark.parametrize("userblock", [0, 1024])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("change", CHANGES)
def test_bytes_behind_the_end_that_are_nobodys(
    tmp_path: Path, change: Callable[[Path], None], libver: str, userblock: int
) -> None:
    """A killed program leaves such a file, which is not damaged."""
    path = tmp_path / "a.h5"
    make(path, libver, userblock)
    with path.open("ab") as file:
        file.write(b"x" * 5000)
    change(path)
    assert outcore.verify(path) == []
    with h5py.File(path) as file:
        assert np.array_equal(file["big"][...], np.arange(5000.0))
        assert np.array_equal(file["k"][:100], np.arange(100.0))


@pytest.mark.parametrize("userblock", [0, 1024])
@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("name", ["k", "big"])
def test_an_address_in_the_superblock(tmp_path: Path, name: str, mode: str, userblock: int) -> None:
    """A write there would destroy the whole file."""
    path = tmp_path / "a.h5"
    make(path, "earliest", userblock)
    with h5py.File(path) as file:
        dset = file[name]
        at = dset.id.get_offset() if name == "big" else dset.id.get_chunk_info(2).byte_offset
    good = path.read_bytes()
    # Of a contiguous dataset the size follows; in the file addresses begin behind the user block.
    tail = (40000).to_bytes(8, "little") if name == "big" else b""
    old = (at - userblock).to_bytes(8, "little") + tail
    assert good.count(old) == 1
    damaged = good.replace(old, (8).to_bytes(8, "little") + tail)
    path.write_bytes(damaged)

    def access() -> None:
        with outcore.open(f"{path}::/{name}", mode) as array:
            if mode == "r+":
                array[1000:1500] = 0
            array[1000:1500]

    with pytest.raises(errors.FormatError) as caught:
        access()
    assert caught.value.code in ("chunk-out-of-file", "file-too-short")
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("keep", [20, 700, -100, -1])
def test_a_file_that_was_cut_off_stays_as_it_is(
    tmp_path: Path, keep: int, change: Callable[[Path], None], libver: str
) -> None:
    path = tmp_path / "a.h5"
    make(path, libver)
    cut = path.read_bytes()[:keep]
    path.write_bytes(cut)
    with pytest.raises(errors.FormatError):
        change(path)
    assert path.read_bytes() == cut
    assert [item.name for item in tmp_path.iterdir()] == ["a.h5"]
