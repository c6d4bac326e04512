"""`create` keeps names of axes and coordinates, and attributes, of arrays of xarray."""

import numpy as np
import pytest

import outcore

xarray = pytest.importorskip("xarray")

ATTRS = {"units": "K", "levels": [1, 2]}
PATHS = ["a.nc::/t", "a.h5::/t", "a.zarr::/t", "a.zarr2::/t"]


def labelled():
    return xarray.DataArray(
        np.arange(6.0).reshape(2, 3),
        dims=("y", "x"),
        coords={"x": [1, 2, 3], "lat": ("y", [4.0, 5.0]), "run": 7},
        attrs=ATTRS,
    )


def told(a):
    attrs = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in a.attrs.items()}
    return a.shape, a.dtype, a.dims, attrs


WANTED = (2, 3), np.dtype("f8"), ("y", "x"), {**ATTRS, "coordinates": "lat run"}


def test_labels_are_kept_in_every_format(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for array in (labelled(), labelled().chunk()):
        for path in PATHS:
            with outcore.create(path, data=array, overwrite=True) as a:
                assert told(a) == WANTED, path
                assert (a[...] == array.values).all()
            with outcore.create(path, like=array, overwrite=True) as a:
                assert told(a) == WANTED and not a[...].any(), path
    for path in PATHS:
        group = outcore.open_group(path.partition("::")[0], "r+")
        with group, group.create("of_group", data=labelled()) as a:
            assert told(a) == WANTED, path
        with outcore.create(f"{path}2", data=labelled().variable) as a:
            assert told(a)[2:] == (("y", "x"), ATTRS), path


def test_options_take_precedence_over_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with outcore.create(
        "a.zarr", data=labelled(), dims=("r", "c"), attrs={"n": 1}, dtype="f4"
    ) as a:
        assert told(a) == ((2, 3), np.dtype("f4"), ("r", "c"), {"n": 1})
    with outcore.create("b.zarr", (4, 2, 3), data=labelled()) as a:  # broadcast: other axes
        assert a.dims is None and a.attrs["units"] == "K"
    own = labelled()
    own.attrs["coordinates"] = "lon"
    with outcore.create("c.zarr", data=own) as a:
        assert a.attrs["coordinates"] == "lon"
    with pytest.warns(UserWarning, match="npy cannot keep dims, attrs of 'DataArray'"):
        outcore.create("d.npy", data=labelled()).close()
    with outcore.create("e.zarr", data=xarray.DataArray(np.ones(2), dims=[("a", "b")])) as a:
        assert a.dims is None
