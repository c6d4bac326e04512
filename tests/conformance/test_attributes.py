"""Attributes of existing arrays: what is set through `DiskArray.attrs`, the formats' libraries find."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import outcore

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
zarr = pytest.importorskip("zarr")

DATA = np.arange(24.0).reshape(6, 4)
KINDS = [
    "a.h5::/data",
    "a.h5::/g/x",
    "a.nc::/data",
    "a.zarr",
    "g.zarr::/in/x",
    "a.zarr2",
    "g.zarr2::/x",
]
FIRST = {"units": "K", "scale": 0.5}


def made(tmp_path, kind, **words):
    words = {"chunks": (2, 4), "dims": ("y", "x"), "attrs": FIRST, **words}
    return outcore.create(tmp_path / kind, data=DATA, **words)


class Owner:
    """The array as the library that owns its format sees it."""

    def __init__(self, tmp_path, kind):
        file, _, self._name = kind.partition("::")
        self._path = tmp_path / file

    def _use(self, mode, work):
        suffix = self._path.suffix
        if suffix == ".h5":
            with h5py.File(self._path, mode) as file:
                return work(file[self._name], file[self._name].attrs)
        if suffix == ".nc":
            with netCDF4.Dataset(self._path, mode) as file:
                file.set_auto_mask(False)
                return work(file[self._name], file[self._name].__dict__)
        place = str(self._path) + self._name
        array = zarr.open_array(place, mode=mode)
        return work(array, array.attrs)

    def attrs(self):
        return self._use(
            "r", lambda array, attrs: {k: plain(attrs[k]) for k in attrs if k not in OWN}
        )

    def set(self, name, value):
        def work(array, attrs):
            if isinstance(attrs, dict):
                array.setncattr(name, value)
            else:
                attrs[name] = value

        self._use("r+", work)

    def data(self):
        return self._use("r", lambda array, attrs: array[...])


OWN = {"DIMENSION_LIST", "DIMENSION_LABELS", "_ARRAY_DIMENSIONS", "_FillValue"}


def plain(value):
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return list(map(plain, value)) if isinstance(value, (list, tuple)) else value


def agree(tmp_path, kind, a, expected):
    """We, another handle of ours and the owner say the same, and the array is what it was."""
    assert expected == {name: plain(value) for name, value in a.attrs.items()}
    assert expected == Owner(tmp_path, kind).attrs()
    with outcore.open(tmp_path / kind) as again:
        assert expected == {name: plain(value) for name, value in again.attrs.items()}
        assert again.dims == a.dims == ("y", "x")
    np.testing.assert_array_equal(DATA, a[...])
    np.testing.assert_array_equal(DATA, Owner(tmp_path, kind).data())


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_set_changed_and_removed(tmp_path, kind):
    made(tmp_path, kind).close()
    with outcore.open(tmp_path / kind, "r+") as a:
        agree(tmp_path, kind, a, FIRST)
        a.attrs["long_name"] = "temperature in °"
        a.attrs["units"] = "degC"
        agree(tmp_path, kind, a, {**FIRST, "units": "degC", "long_name": "temperature in °"})
        a.attrs.update({"levels": [1, 2, 3], "words": ["a", "b"]}, offset=273.15, units="m")
        a.attrs.update(number=np.int32(7), real=np.float32(0.25), row=np.arange(3, dtype="f4"))
        expected = {
            "units": "m",
            "scale": 0.5,
            "long_name": "temperature in °",
            "levels": [1, 2, 3],
            "words": ["a", "b"],
            "offset": 273.15,
            "number": 7,
            "real": 0.25,
            "row": [0.0, 1.0, 2.0],
        }
        agree(tmp_path, kind, a, expected)
        del a.attrs["levels"]
        assert a.attrs.pop("words") == ["a", "b"]
        assert a.attrs.pop("words", None) is None
        assert a.attrs.setdefault("number", 8) == 7
        assert a.attrs.setdefault("new", "x") == "x"
        a.attrs.update()
        with pytest.raises(KeyError, match="levels"):
            del a.attrs["levels"]
        expected = {k: v for k, v in expected.items() if k not in ("levels", "words")}
        agree(tmp_path, kind, a, {**expected, "new": "x"})
        a[0] = DATA[0]
        a.attrs.clear()
        a.attrs.clear()
        agree(tmp_path, kind, a, {})
        assert repr(a.attrs) == "{}" and len(a.attrs) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["w", "x"])
def test_new_arrays_can_be_written_to(tmp_path, kind, mode):
    with outcore.open(tmp_path / kind, mode, shape=(6, 4), dtype="f8", dims=("y", "x")) as a:
        a[...] = DATA
        a.attrs["a"] = 1
        a.attrs["b"] = 2
        agree(tmp_path, kind, a, {"a": 1, "b": 2})


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_set_by_another_library_stay(tmp_path, kind):
    a = made(tmp_path, kind)
    assert dict(a.attrs) == FIRST
    Owner(tmp_path, kind).set("theirs", "x")
    Owner(tmp_path, kind).set("units", "by others")
    a.attrs["ours"] = 1
    agree(tmp_path, kind, a, {"units": "by others", "scale": 0.5, "theirs": "x", "ours": 1})
    a.close()


@pytest.mark.parametrize("kind", ["a.h5::/data", "a.zarr", "a.zarr2"])
def test_changes_of_several_threads_and_handles_all_count(tmp_path, kind):
    made(tmp_path, kind).close()
    handles = [outcore.open(tmp_path / kind, "r+") for _ in range(2)]
    failed = []

    def work(number):
        try:
            for k in range(4):
                handles[number % 2].attrs[f"{number}-{k}"] = k
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for a in handles:
        a.close()
    expected = {f"{number}-{k}": k for number in range(4) for k in range(4)}
    assert {**FIRST, **expected} == Owner(tmp_path, kind).attrs()


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_that_cannot_be_written_to(tmp_path, kind):
    made(tmp_path, kind).close()

    def all_refused(a, code):
        for change in (
            lambda: a.attrs.__setitem__("new", 1),
            lambda: a.attrs.update(new=1),
            lambda: a.attrs.__delitem__("units"),
            lambda: a.attrs.clear(),
        ):
            with pytest.raises(outcore.errors.UsageError) as caught:
                change()
            assert caught.value.code == code
        agree(tmp_path, kind, a, FIRST) if code == "read-only" else None

    with outcore.open(tmp_path / kind) as a:
        all_refused(a, "read-only")
    a = outcore.open(tmp_path / kind, "r+")
    a.close()
    all_refused(a, "closed")
    assert dict(a.attrs) == FIRST


@pytest.mark.parametrize("name", ["a.npy", "a.raw"])
def test_formats_without_attributes(tmp_path, name):
    with outcore.create(tmp_path / name, data=DATA) as a:
        assert dict(a.attrs) == {}
        with pytest.raises(
            outcore.errors.UnsupportedError, match="cannot store attributes"
        ) as caught:
            a.attrs["units"] = "K"
        assert caught.value.code == "cannot-change"
        assert caught.value.path == str(tmp_path / name)
        with pytest.raises(KeyError):
            del a.attrs["units"]
        a.attrs.clear()
    with outcore.open(tmp_path / name, **({"dtype": "f8"} if name == "a.raw" else {})) as a:
        with pytest.raises(outcore.errors.UsageError) as caught:
            a.attrs["units"] = "K"
        assert caught.value.code == "read-only"


HDF5 = [
    None,
    {"a": 1},
    object(),
    10**30,
    "a\0b",
    [1, "a"],
    [[1], [1, 2]],
    np.zeros(20_000),
    np.zeros(2, "M8[s]"),
]
REFUSED = {
    "a.h5::/data": HDF5,
    "a.nc::/data": [*HDF5, 1j, np.zeros((2, 2)), np.float16(1), np.zeros(2, [("a", "f4")])],
    "a.zarr": [object(), {1, 2}, {"deep": object()}, b"bytes"],
    "a.zarr2": [object()],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_values_that_cannot_be_kept_change_nothing(tmp_path, kind):
    a = made(tmp_path, kind)
    for value in REFUSED[kind]:
        with pytest.raises(outcore.errors.UsageError) as caught:
            a.attrs.update({"good": 1, "wrong": value})
        assert caught.value.code in ("bad-attribute", "bad-attributes"), value
    for name in (1, None, ("a", "b")):
        with pytest.raises(outcore.errors.UsageError) as caught:
            a.attrs[name] = 1
        assert caught.value.code == "bad-attribute"
    agree(tmp_path, kind, a, FIRST)
    a.close()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("a.h5::/data", "DIMENSION_LIST"),
        ("a.nc::/data", "_FillValue"),
        ("a.zarr2", "_ARRAY_DIMENSIONS"),
    ],
)
def test_attributes_of_the_format_cannot_be_changed(tmp_path, kind, name):
    with made(tmp_path, kind) as a:
        with pytest.raises(outcore.errors.UsageError, match=name) as caught:
            a.attrs[name] = ["q", "p"]
        assert caught.value.code == "bad-attribute"
        with pytest.raises(KeyError):
            del a.attrs[name]
        agree(tmp_path, kind, a, FIRST)


def test_hdf5_attributes_without_a_plain_value_stay(tmp_path):
    made(tmp_path, "a.h5::/data").close()
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["data"].attrs["reference"] = file["data"].ref
    with outcore.open(tmp_path / "a.h5", "r+") as a:
        a.attrs["new"] = 1
        a.attrs.clear()
        assert dict(a.attrs) == {}
    with h5py.File(tmp_path / "a.h5") as file:
        assert "reference" in file["data"].attrs


def test_values_in_memory_are_not_the_file(tmp_path):
    """Nor do they look like it: what reads as set is on the disk."""
    with made(tmp_path, "a.zarr") as a:
        a.attrs["list"] = wanted = [1, {"deep": 2}]
        wanted.append(3)
        a.attrs["list"][1]["deep"] = 4
        with pytest.warns(UserWarning, match="JSON cannot represent"):
            a.attrs["odd"] = (np.float32(0.5), float("nan"))
        agree(tmp_path, "a.zarr", a, {**FIRST, "list": [1, {"deep": 2}], "odd": [0.5, "NaN"]})


@pytest.mark.parametrize("version", [2, 3])
def test_numbers_that_zarr_wrote_stay_numbers(tmp_path, version):
    """Zarr writes NaN and infinity, though JSON cannot represent them."""
    zarr = pytest.importorskip("zarr")
    path, odd = tmp_path / "a.zarr", {"missing": float("nan"), "range": [0.5, float("-inf")]}
    zarr.create_group(path, zarr_format=version, attributes=odd)
    inner = zarr.create_array(
        path, name="x", shape=(4,), chunks=(2,), dtype="f4", zarr_format=version, attributes=odd
    )
    with outcore.open(path / "x", "r+") as array, outcore.open_group(path, "r+") as group:
        with pytest.warns(UserWarning, match="JSON cannot represent"):
            array.attrs["new"] = group.attrs["new"] = float(
                "nan"
            )  # of ours there is none in the file
        array.resize((6,))
        assert str(dict(array.attrs)) == str({**odd, "new": "NaN"})
    for store in (zarr.open_group(path), zarr.open_array(path / "x")):
        assert str(dict(store.attrs)) == str({**odd, "new": "NaN"})
    assert inner.attrs["missing"] != inner.attrs["missing"]


@pytest.mark.parametrize("kind", ["a.h5::/data", "a.zarr", "a.zarr2"])
def test_they_survive_what_changes_the_shape(tmp_path, kind):
    expected = {**FIRST, "n": 2, "m": 3}
    with made(tmp_path, kind, **({"resizable": True} if "h5" in kind else {})) as a:
        a.attrs["n"] = 1
        a.append(DATA)
        a.attrs["n"] = 2
        a.resize((3, 4))
        a.attrs["m"] = 3
        assert expected == dict(a.attrs) and a.shape == (3, 4)
    assert expected == Owner(tmp_path, kind).attrs()
