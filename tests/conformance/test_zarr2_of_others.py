"""Zarr v2 as N5 and xarray have it: fill values that are text, scalars, levels of a pyramid."""

import json

import numpy as np
import pytest

import outcore

xarray = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")


@pytest.mark.parametrize(
    ("dtype", "text", "number"),
    [("<u2", "0", 0), ("<i4", "-1", -1), ("|u1", "255", 255), (">i8", "0", 0), ("|i1", "0", 0)]
    + [("<f4", "0", 0.0), ("<f8", "0.0", 0.0), ("<f4", "-1e3", -1000.0), ("<f8", "NaN", np.nan)]
    + [("|b1", "0", False), ("|b1", "1", True)],
)
def test_fill_values_of_text_are_numbers(tmp_path, dtype, text, number):
    document = {
        "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": dtype, "compressor": None,
        "filters": None, "order": "C", "fill_value": text, "dimension_separator": "/",
    }  # fmt: skip
    (tmp_path / ".zarray").write_text(json.dumps(document))
    with outcore.open(tmp_path, "r+") as a:
        np.testing.assert_equal(a.fill_value, np.dtype(dtype).type(number))
        a[:2] = 1
        np.testing.assert_array_equal(a[...], np.array([1, 1, number, number], dtype))
    assert [entry.note for entry in outcore.ls(tmp_path)] == [""]


def test_fill_values_that_do_not_fit_are_refused(tmp_path):
    for text in ("1.5", "300", "-1", "zero", "", "٣"):
        document = {
            "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|u1", "compressor": None,
            "filters": None, "order": "C", "fill_value": text,
        }  # fmt: skip
        (tmp_path / ".zarray").write_text(json.dumps(document))
        with pytest.raises(outcore.errors.FormatError):
            outcore.open(tmp_path)


def test_xarray_opens_scalars(tmp_path):
    with outcore.open_group(tmp_path / "a.zarr2", "w") as group:
        group.create("s", data=np.float64(3), attrs={"units": "m"}).close()
        group.create("v", data=np.arange(3), dims=("x",)).close()
    with outcore.open(f"{tmp_path}/a.zarr2::/s", "r+") as s:
        assert s.dims is None and dict(s.attrs) == {"units": "m"}
        s.attrs["long_name"] = "scalar"
        del s.attrs["units"]
        with pytest.raises(outcore.errors.UsageError, match="_ARRAY_DIMENSIONS"):
            s.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    np.save(tmp_path / "s.npy", np.float64(4))
    outcore.convert(tmp_path / "s.npy", f"{tmp_path}/a.zarr2::/t")
    with xarray.open_dataset(tmp_path / "a.zarr2", engine="zarr", consolidated=False) as found:
        assert found["s"].values == 3 and found["t"].values == 4 and found["s"].attrs == {
            "long_name": "scalar"
        }  # fmt: skip


@pytest.mark.parametrize("version", [2, 3])
def test_new_levels_have_the_version_of_their_group(tmp_path, version):
    store = tmp_path / "pyramid.zarr"
    group = zarr.create_group(store, zarr_format=version)
    group.create_array("0", data=np.arange(64).reshape(8, 8), chunks=(4, 4))
    group.create_group("deep")
    first = f"{store}::/0"
    outcore.convert(first, f"{store}::/1", section=np.s_[::2, ::2])
    outcore.create(f"{store}::/deep/2", (2, 2), "i4").close()
    outcore.create(f"{store}::/new/3", data=np.ones(2)).close()
    outcore.rechunk(first, 2, out=f"{store}::/4").close()
    outcore.create(f"{store}::/5", like=outcore.open(first)).close()
    outcore.create(store / "6", (2, 2), "i4").close()
    outcore.convert(first, store / "7")
    with outcore.open(f"{store}::/8", "w", shape=(2, 2), dtype="i4", chunks="auto") as a:
        a[...] = 1
    np.save(tmp_path / "a.npy", np.arange(3))
    with outcore.open_group(tmp_path / "many.h5", "w") as many:
        many.create("u", data=np.arange(3)).close()
    outcore.convert(tmp_path / "many.h5", f"{store}::/group", whole=True)
    found = zarr.open_group(store, mode="r", zarr_format=version)
    names = ["0", "1", "deep/2", "new/3", "4", "5", "6", "7", "8", "group/u"]
    for name in names:
        assert found[name].metadata.zarr_format == version, name
    assert (found["1"][...] == np.arange(64).reshape(8, 8)[::2, ::2]).all()
    # What says otherwise counts.
    outcore.convert(tmp_path / "a.npy", tmp_path / "pyramid.zarr" / "copy.npy")
    with pytest.raises(outcore.errors.UsageError, match="not a Zarr group of the same version"):
        outcore.create(f"{store}::/no", (2,), "i4", format={2: "zarr", 3: "zarr2"}[version])
