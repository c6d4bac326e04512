"""Opening many arrays of a file at once: the same arrays, for one visit of the file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import formats

h5py = pytest.importorskip("h5py")


class Opened:
    """Names of the files that Python opened, while it is listening."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.listens = False
        sys.addaudithook(self._hear)

    def of(self, path: Path) -> int:
        """How often it was opened."""
        return self.names.count(str(path))

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if self.listens and event == "open":
            self.names.append(str(args[0]))


_opened = Opened()  # a hook stays for the life of the process


@pytest.fixture
def opened() -> Iterator[Opened]:
    _opened.names.clear()
    _opened.listens = True
    yield _opened
    _opened.listens = False


@pytest.fixture
def by_library(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Names of the files that the HDF5 library opened."""
    names: list[bytes] = []
    real = h5py.h5f.open

    def noted(name: bytes, *args: object, **words: object) -> object:
        names.append(name)
        return real(name, *args, **words)

    monkeypatch.setattr(h5py.h5f, "open", noted)
    return names


def make(path: Path, count: int) -> list[str]:
    with h5py.File(path, "w") as file:
        for k in range(count):
            kind = {} if k % 3 else {"chunks": (4,), "compression": "gzip"}
            file.create_dataset(f"d{k}", data=np.arange(10.0) + k, **kind)
    return [f"{path}::/d{k}" for k in range(count)]


def test_the_datasets_of_a_file_are_described_in_one_visit(
    tmp_path: Path, opened: Opened, by_library: list[bytes]
) -> None:
    names = make(tmp_path / "a.h5", 40)
    opened.names.clear()
    arrays = outcore.open_many(names)
    assert [b"%b" % str(tmp_path / "a.h5").encode()] == by_library
    # Its signature, whether somebody writes it, and its object headers: whatever their number.
    assert opened.of(tmp_path / "a.h5") == 3
    for k, array in enumerate(arrays):
        np.testing.assert_array_equal(np.arange(10.0) + k, array[:])
        array.close()


def test_one_dataset_costs_one_visit(
    tmp_path: Path, opened: Opened, by_library: list[bytes]
) -> None:
    [name] = make(tmp_path / "a.h5", 1)
    opened.names.clear()
    outcore.open(name).close()
    assert (len(by_library), opened.of(tmp_path / "a.h5")) == (1, 3)


@pytest.mark.parametrize("format", ["hdf5", "netcdf4"])
@pytest.mark.parametrize("writable", [False, True])
def test_they_are_described_as_one_by_one(tmp_path: Path, format: str, writable: bool) -> None:
    path = tmp_path / ("a.h5" if format == "hdf5" else "a.nc")
    for name, chunks in (("x", None), ("y", (2, 3)), ("z", None)):
        outcore.create(
            f"{path}::/{name}", (4, 6), "f4", chunks=chunks, dims=("t", "u"), fill_value=7
        ).close()
    names = [f"{path}::/{name}" for name in ("y", "x", "z", "x")]
    expected = [formats.open_info(name, writable=writable) for name in names]
    for one, other in zip(expected, formats.open_infos(names, writable=writable), strict=True):
        assert (one.path, one.format, one.shape, one.dtype, one.dims, one.extra) == (
            other.path,
            other.format,
            other.shape,
            other.dtype,
            other.dims,
            other.extra,
        )
        assert one.fill_value == other.fill_value and dict(one.attrs) == dict(other.attrs)


def test_files_of_several_formats_in_the_order_asked_for(tmp_path: Path) -> None:
    names = make(tmp_path / "a.h5", 2)
    np.save(tmp_path / "b.npy", np.full(10, 5.0))
    outcore.create(tmp_path / "c.zarr", data=np.full(10, 6.0), chunks=(5,)).close()
    asked = [names[1], tmp_path / "b.npy", tmp_path / "c.zarr", names[0]]
    arrays = outcore.open_many(asked, "r+")
    assert [float(a[0]) for a in arrays] == [1.0, 5.0, 6.0, 0.0]
    arrays[0][0] = 9.0
    arrays[0].close()
    assert outcore.open(names[1])[0] == 9.0


def test_a_dataset_without_space_gets_it(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in "ab":
            file.create_dataset(name, (5,), "f8", fillvalue=3.0)
        file.create_dataset("c", data=np.arange(5.0))
    names = [f"{tmp_path}/a.h5::/{name}" for name in "acb"]
    arrays = outcore.open_many(names, "r+")
    for array in (arrays[0], arrays[2]):
        array[1] = 8.0
        array.flush()
    with h5py.File(tmp_path / "a.h5") as file:
        assert [3.0, 8.0, 3.0, 3.0, 3.0] == file["a"][:].tolist() == file["b"][:].tolist()


def test_external_links_lead_to_other_files_one_after_another(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for k in range(3):
            make(tmp_path / f"part{k}.h5", 4)
            file[f"p{k}"] = h5py.ExternalLink(f"part{k}.h5", f"/d{k + 1}")
    arrays = outcore.open_many([f"{tmp_path}/all.h5::/p{k}" for k in (2, 0, 1)])
    assert [float(a[0]) for a in arrays] == [3.0, 1.0, 2.0]


def test_what_cannot_be_opened_is_refused_as_by_open(tmp_path: Path) -> None:
    names = make(tmp_path / "a.h5", 2)
    for bad in (f"{tmp_path}/a.h5::/none", f"{tmp_path}/none.h5::/d0", f"{tmp_path}/none.npy"):
        with pytest.raises(outcore.OutcoreError) as alone:
            outcore.open(bad)
        with pytest.raises(type(alone.value)) as among:
            outcore.open_many([names[0], bad])
        assert (alone.value.code, alone.value.message) == (among.value.code, among.value.message)
    assert outcore.open_many([]) == []
    for wrong, code in ((names[0], "bad-path"), ([3], "bad-path")):
        with pytest.raises(outcore.errors.PathTypeError) as error:
            outcore.open_many(wrong)  # type: ignore[arg-type]
        assert code == error.value.code
    with pytest.raises(outcore.errors.UsageError) as error:
        outcore.open_many(names, "w")  # type: ignore[arg-type]
    assert error.value.code == "bad-mode"
