"""
The engine of xarray: what it opens is what xarray's own engines open; nothing is read too early.

Files are written by netCDF4, h5netcdf, h5py and zarr.
"""

import asyncio
import importlib.util
import os
import pickle
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

import outcore
from outcore.arrays.disk import DiskArray

xr = pytest.importorskip("xarray")
netCDF4 = pytest.importorskip("netCDF4")
zarr = pytest.importorskip("zarr")
from xarray.backends.plugins import guess_engine  # noqa: E402

from outcore.xarray_engine import OutcoreBackendEntrypoint  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*Zarr V3 spec.*",
    "ignore:Consolidated metadata",
    "ignore:Failed to open Zarr store with",
)

# How each writes, and which of xarray's engines reads it.
WRITERS = {
    "netcdf4": (".nc", "netcdf4", {"unlimited_dims": ["time"]}),
    "h5netcdf": (".h5", "h5netcdf", {"unlimited_dims": ["time"]}),
    "zarr2": (".zarr", "zarr", {"zarr_format": 2, "consolidated": True}),
    "zarr2 alone": (".zarr", "zarr", {"zarr_format": 2, "consolidated": False}),
    "zarr3": (".zarr", "zarr", {"zarr_format": 3, "consolidated": False}),
    "zarr3 consolidated": (".zarr", "zarr", {"zarr_format": 3, "consolidated": True}),
}


def dataset():
    rng = np.random.default_rng(3)
    time = np.array(["2001-02-03", "2001-02-04T12", "2001-03-01"], "M8[ns]")
    packed = rng.uniform(-20, 40, (3, 20, 30)).round(1)
    packed[1, 4:7] = np.nan
    ds = xr.Dataset(
        {
            "t": (("time", "y", "x"), packed, {"units": "degC", "valid_range": [-50.0, 60.0]}),
            "count": (("y", "x"), rng.integers(0, 9, (20, 30), dtype="i2")),
            "sure": (("x",), rng.integers(0, 2, 30).astype(bool)),
            "crs": ((), np.int32(1), {"grid_mapping_name": "latitude_longitude"}),
            "height": (("y", "x"), rng.standard_normal((20, 30)).astype(">f4")),
        },
        {
            "time": time,
            "x": np.linspace(0.0, 1.0, 30),
            "lat": (("y", "x"), rng.standard_normal((20, 30))),
            "station": (("y",), np.array([f"station {k}" for k in range(20)])),
        },
        attrs={"title": "air", "numbers": [1, 2, 3], "version": 7},
    )
    ds.t.encoding = {"dtype": "i2", "scale_factor": 0.1, "add_offset": 5.0, "_FillValue": -9999}
    return ds


def write(path, name, ds, group=None, mode="w"):
    _, engine, options = WRITERS[name]
    if engine == "zarr":
        for (
            variable
        ) in ds.variables.values():  # the other formats' words, once it was written there
            variable.encoding.pop("unlimited_dims", None)
        ds.to_zarr(path, group=group, mode=mode, **options)
    else:
        ds.to_netcdf(path, engine=engine, group=group, mode=mode, **options)


@pytest.fixture(params=WRITERS, scope="module")
def written(request, tmp_path_factory):
    """Path of a dataset with a group, the engine of its writer, and what was written."""
    suffix, engine, _ = WRITERS[request.param]
    path, ds = tmp_path_factory.mktemp("air") / f"air{suffix}", dataset()
    write(path, request.param, ds)
    write(path, request.param, ds.drop_vars(["sure", "lat"]) + 1, group="deep/er", mode="a")
    return path, engine, ds


def under(variable):
    """The array on disk from which a variable is read."""
    data = variable._data
    while not isinstance(data, DiskArray):
        data = data._array if hasattr(data, "_array") else data.array
    return data


def moved(array):
    """Bytes that were read of an array, however."""
    stats = array.stats()
    return stats["read_bytes"] + stats["mapped_bytes"]


@pytest.mark.parametrize(
    ("group", "options"),
    [(None, {}), ("deep/er", {}), (None, {"decode_cf": False}), (None, {"mask_and_scale": False})],
)
def test_a_dataset_is_that_of_xarrays_own_engine(written, group, options):
    path, engine, _ = written
    with (
        xr.open_dataset(path, engine=engine, group=group, **options) as theirs,
        xr.open_dataset(path, engine="outcore", group=group, **options) as ours,
    ):
        xr.testing.assert_identical(theirs.load(), ours.load())
        assert set(theirs.coords) == set(ours.coords)
        assert theirs.encoding.get("unlimited_dims", set()) == ours.encoding["unlimited_dims"]
        for name, variable in ours.variables.items():
            told = theirs[name].encoding
            for word in ("_FillValue", "scale_factor", "chunks", "chunksizes", "zlib", "units"):
                mine, other = (known.get(word) or None for known in (variable.encoding, told))
                np.testing.assert_equal(mine, other, f"{name} {word}")


def test_groups_are_those_of_xarrays_own_engine(written):
    path, engine, _ = written
    theirs, ours = xr.open_datatree(path, engine=engine), xr.open_datatree(path, engine="outcore")
    assert {node.path for node in ours.subtree} == {"/", "/deep", "/deep/er"}
    xr.testing.assert_identical(theirs.load(), ours.load())
    below = xr.open_groups(path, engine="outcore", group="deep")
    assert list(below) == ["/", "/er"]
    for one in (theirs, ours, *below.values()):
        one.close()


def test_nothing_is_read_before_it_is_asked_for(written):
    path, _, ds = written
    with xr.open_dataset(path, engine=OutcoreBackendEntrypoint) as ours:
        arrays = {name: under(ours[name].variable) for name in ("t", "count", "lat", "height")}
        repr(ours), ours.nbytes, ours.t.isel(time=0).transpose()
        part = ours["count"].isel(y=slice(3, 9, 2), x=-1)
        assert dict.fromkeys(arrays, 0) == {n: moved(a) for n, a in arrays.items()}
        assert (part.values == ds["count"].values[3:9:2, -1]).all()
        assert moved(arrays["count"]) > 0 == moved(arrays["t"])


def test_keys_read_only_what_they_mean(tmp_path):
    """Outer, pointwise and boolean keys are handed on as they are: no bounding box is read."""
    data = np.arange(4000 * 1000, dtype="i4").reshape(4000, 1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = data
    rng = np.random.default_rng(5)
    rows, columns = rng.integers(0, 4000, 40), rng.integers(-1000, 1000, 40)
    few = xr.DataArray(rows, dims="point"), xr.DataArray(columns, dims="point")
    mask = np.zeros(4000, bool)
    mask[rows] = True
    hints = {"method": "list", "cache": "bypass", "engine": "threads"}
    with xr.open_dataset(tmp_path / "a.h5", engine="outcore", hints=hints) as ds:
        a, plain = ds.a, xr.DataArray(data, dims=ds.a.dims)
        y, x = a.dims
        for key in (
            {y: few[0], x: few[1]},
            {y: rows, x: columns[:5]},
            {y: mask, x: 7},
            {y: few[0], x: slice(990, None, -330)},
            {y: slice(None, None, -100), x: [3, 3, 1]},
        ):
            before = moved(under(a.variable))
            found = a.isel(key)
            assert moved(under(a.variable)) == before
            expected = plain.isel(key)
            xr.testing.assert_equal(expected, found.load())
            # Not even a page for each element, where there is one of each row.
            assert 0 < moved(under(a.variable)) - before <= 8192 * max(expected.size, 40)


@pytest.mark.parametrize("seed", range(2))
def test_random_chains_of_keys(written, seed):
    path, _, ds = written
    rng = np.random.default_rng(seed)

    def key(length, points):
        start, stop = sorted(rng.integers(0, length + 1, 2))
        return [
            slice(start, stop),
            slice(None, None, -int(rng.integers(1, 4))),
            rng.integers(-length, length, 4) if length else slice(None),
            xr.DataArray(rng.integers(0, max(length, 1), 3) if length else [], dims=points),
            rng.random(length) < 0.5,
        ][rng.integers(0, 5)]

    with xr.open_dataset(path, engine="outcore", cache=False) as ours:
        for name in ("t", "count", "station", "height", "sure"):
            a, b = ours[name], ds[name]
            for step in range(3):
                chosen = {d: key(a.sizes[d], f"p{step}") for d in a.dims if rng.random() < 0.6}
                if any(isinstance(k, xr.DataArray) and not k.size for k in chosen.values()):
                    continue
                a, b = a.isel(chosen), b.isel(chosen)
                xr.testing.assert_allclose(a, b, rtol=1e-6)


def test_many_threads_read_one_dataset(written):
    path, _, ds = written
    with xr.open_dataset(path, engine="outcore", cache=False) as ours:

        def work(k):
            xr.testing.assert_allclose(ours.t.isel(x=k % 30), ds.t.isel(x=k % 30))
            assert (ours.station.isel(y=k % 20).values == ds.station.values[k % 20]).all()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(60)))


def test_copies_are_pickled_and_open_the_file_again(written):
    path, _, _ = written
    with xr.open_dataset(path, engine="outcore") as ours:
        copies = [pickle.loads(pickle.dumps(ours)), ours.copy(deep=True)]
        expected = ours.load()
    for copy in copies:
        xr.testing.assert_identical(expected, copy.load())
        copy.close()


def test_load_async_reads_the_selected_elements(written):
    path, _, ds = written
    with xr.open_dataset(path, engine="outcore") as ours:
        found = asyncio.run(ours[["t", "station"]].isel(y=[3, 1]).load_async())
        xr.testing.assert_allclose(found.t, ds.t.isel(y=[3, 1]))
        assert found.station.values.tolist() == ["station 3", "station 1"]


@pytest.mark.parametrize("version", [2, 3])
def test_the_fill_value_of_zarr_means_missing_if_it_is_to(tmp_path, version):
    outcore.create(
        tmp_path / "a.zarr::/a",
        data=np.array([1, -1, 2]),
        fill_value=-1,
        dims=["x"],
        format={2: "zarr2", 3: "zarr"}[version],
    ).close()
    for asked, masked in ((None, version == 2), (True, True), (False, False)):
        options = {"engine": "outcore", "use_zarr_fill_value_as_mask": asked}
        with xr.open_dataset(tmp_path / "a.zarr", **options) as ds:
            assert ds.a.isnull().values.tolist() == [False, masked, False]


def test_a_closed_dataset_is_opened_again_by_who_reads_it(written, tmp_path):
    """As with xarray's own engines: computations of dask may outlive the ``with`` block."""
    source, _, ds = written
    path = tmp_path / source.name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, path)
    with xr.open_dataset(path, engine="outcore", cache=False) as ours:
        arrays = [under(ours[name].variable) for name in ("t", "height")]
        ours.t.load()
    assert all(array.closed for array in arrays)
    xr.testing.assert_allclose(ours.height, ds.height)
    again = under(ours.height.variable)
    assert again is not arrays[1] and not again.closed
    again.close()
    # Unless another array has its name by then.
    words = {"dims": ("b", "a"), "format": again.format, "overwrite": True}
    outcore.create(f"{path}::/height", (2, 3), "i4", **words).close()
    with pytest.raises(
        outcore.errors.FormatError, match="has changed since its dataset was opened"
    ):
        ours.height.load()


def test_failed_open_dataset_closes_its_arrays(tmp_path, monkeypatch):
    path = tmp_path / "a.nc"
    ds = xr.Dataset(
        {"a": ("x", np.arange(3.0))}, {"time": ("x", [1, 2, 3], {"units": "days since x"})}
    )
    ds.to_netcdf(path, engine="netcdf4")
    made = []
    init = DiskArray.__init__
    monkeypatch.setattr(
        DiskArray, "__init__", lambda self, *a: (init(self, *a), made.append(self))[0]
    )
    with pytest.raises(ValueError, match="time"):
        xr.open_dataset(path, engine="outcore")
    assert len(made) == 2 and all(array.closed for array in made)


# What outcore does not read itself


def odd_file(path):
    with h5py.File(path, "w") as file:
        file["plain"] = np.arange(6.0)
        file.create_dataset("text", data=["a", "bcd", "", "é"], dtype=h5py.string_dtype())
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((5,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, compact)
        file["compact"][:] = np.arange(5)
        file.create_dataset("scaled", data=np.arange(40), scaleoffset=0, chunks=(10,))
        file["ragged"] = h5py.Empty("f4")
        file["missing"] = h5py.SoftLink("/nowhere")


def test_the_library_of_the_format_reads_what_outcore_cannot(tmp_path):
    odd_file(tmp_path / "a.h5")
    with xr.open_dataset(tmp_path / "a.h5", engine="outcore") as ds:
        with pytest.raises(
            outcore.errors.UnsupportedError, match=r"'ragged'.*drop_variables=\['ragged'\]"
        ):
            ds.ragged.load()
        assert ds.plain.values.tolist() == [0, 1, 2, 3, 4, 5]
    with xr.open_dataset(tmp_path / "a.h5", engine="outcore", drop_variables="ragged") as ds:
        assert sorted(ds.variables) == ["compact", "plain", "scaled", "text"]
        again = pickle.loads(pickle.dumps(ds))
        assert ds.text[[2, 3, 0]].values.tolist() == ["", "é", "a"]
        assert ds.text[1].item() == "bcd" and again.text.values.tolist()[1] == "bcd"
        assert [4, 2, 0] == ds.compact[::-2].values.tolist() == again.compact.values[::-2].tolist()
        (dim,) = ds.scaled.dims
        points = xr.DataArray([[39, 0], [7, 7]], dims=("a", "b"))
        assert ds.scaled.isel({dim: points}).values.tolist() == [[39, 0], [7, 7]]


def test_one_variable_that_cannot_be_read_hides_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with h5py.File("a.h5", "w") as file:
        file["plain"] = np.arange(6.0)
        file["null"] = h5py.Empty("f4")
        file.create_dataset("gone", (6,), "f4", external=[("gone.bin", 0, 24)])
        file.create_dataset("pipe", (6,), "i2", external=[("pipe", 0, 12)])
        file.create_dataset("short", (6,), "f8", external=[("a.h5", 1 << 20, 48)])
    told = {
        "null": (outcore.errors.UnsupportedError, "hdf5-null"),
        "gone": (outcore.errors.StorageError, "not-found"),
        "pipe": (outcore.errors.FormatError, "not-regular"),
        "short": (outcore.errors.FormatError, "file-too-short"),
    }
    with xr.open_dataset("a.h5", engine="outcore") as ds:
        assert sorted(ds.variables) == sorted([*told, "plain"])
        assert ds.plain.values.tolist() == [0, 1, 2, 3, 4, 5]
        assert ds.gone.shape == (6,) and ds.short.dtype == "f8" and "gone" in repr(ds)
        for copy in (ds, pickle.loads(pickle.dumps(ds))):
            for name, (kind, code) in told.items():
                with pytest.raises(kind, match=f"variable '{name}' cannot be read") as raised:
                    copy[name].load()
                assert raised.value.code == code
    with outcore.open_group("a.h5") as group:
        assert group["plain"][...].tolist() == [0, 1, 2, 3, 4, 5]


def test_variables_that_are_dropped_are_not_looked_at(tmp_path):
    write(tmp_path / "a.zarr", "zarr3", dataset())
    (tmp_path / "a.zarr" / "t" / "zarr.json").write_text("{")
    with pytest.raises(outcore.errors.FormatError, match="drop_variables") as caught:
        xr.open_dataset(tmp_path / "a.zarr", engine="outcore")
    assert not isinstance(
        caught.value, outcore.errors.UnsupportedError
    )  # damaged: h5py or zarr are not asked
    with xr.open_dataset(tmp_path / "a.zarr", engine="outcore", drop_variables=["t"]) as ds:
        assert "t" not in ds and ds["count"].shape == (20, 30)


# Text of variable length

WORDS = np.array(["", "a", "Zürich", "日本語", "x" * 100_000, "tab\tand"] * 10, object).reshape(
    12, 5
)


def text_file(folder, name):
    """A file with text in it, as its own libraries write it; and xarray's engine for it."""
    if name == "a.nc":
        with netCDF4.Dataset(folder / name, "w") as file:
            for dim, length in (("y", 12), ("x", 5), ("u", None)):
                file.createDimension(dim, length)
            file.createVariable("t", str, ("y", "x"))[...] = WORDS
            chunks = {"chunksizes": (5, 2), "zlib": True}
            file.createVariable("c", str, ("y", "x"), **chunks)[...] = WORDS
            file.createVariable("one", str, ())[...] = "one"
            file.createVariable("short", str, ("u",))[:2] = WORDS[0, 1:3]
            file.createVariable("long", "f8", ("u",))[:4] = 1
            file.createVariable("m", str, ("y",), fill_value="none")[:2] = WORDS[0, 1:3]
        return folder / name, "netcdf4"
    if name == "a.h5":
        ds = xr.Dataset({"t": (("y", "x"), WORDS), "one": ((), "one")}, {"y": WORDS[:, 2]})
        ds.to_netcdf(folder / name, engine="h5netcdf")
        return folder / name, "h5netcdf"
    version = 2 if name == "a.zarr2" else 3
    group = zarr.open_group(folder / name, mode="w", zarr_format=version)
    kinds = {"t": (str, ""), "m": (str, "a"), "b": ("variable_length_bytes", b"")}
    for one, (kind, fill) in list(kinds.items())[: 4 - (version == 2) * 2]:
        dims = {"dimension_names": ["y", "x"]} if version == 3 else {}
        how = {"shape": WORDS.shape, "dtype": kind, "chunks": (5, 2), "fill_value": fill}
        array = group.create_array(one, **how, **dims)
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
        elements = np.array([w.encode() for w in WORDS.flat], object).reshape(WORDS.shape)
        array[:7] = (elements if one == "b" else WORDS)[:7]
    return folder / name, "zarr"


@pytest.mark.parametrize("name", ["a.nc", "a.h5", "a.zarr2", "a.zarr"])
def test_text_is_that_of_xarrays_own_engine(tmp_path, name):
    path, engine = text_file(tmp_path, name)
    for options in ({}, {"decode_cf": False}, {"mask_and_scale": False}):
        with (
            xr.open_dataset(path, engine=engine, **options) as theirs,
            xr.open_dataset(path, engine="outcore", **options) as ours,
        ):
            assert set(theirs.variables) == set(ours.variables)
            for each, variable in theirs.variables.items():
                mine = ours.variables[each]
                assert (variable.dtype, variable.attrs) == (mine.dtype, mine.attrs), each
                for word in ("dtype", "_FillValue", "fill_value"):
                    assert variable.encoding.get(word) == mine.encoding.get(word), (each, word)
            keys = (
                {"y": [3, 1, 1], "x": [0, 4]},
                {"y": slice(None, None, -3), "x": -1},
                {"y": xr.DataArray([11, 0], dims="p"), "x": xr.DataArray([1, 2], dims="p")},
                {},
            )
            for key in keys:
                expected = theirs.isel(key, missing_dims="ignore")
                found = ours.isel(key, missing_dims="ignore")
                xr.testing.assert_identical(expected.load(), found.load())
                assert {n: v.dtype for n, v in expected.items()} == {
                    n: v.dtype for n, v in found.items()
                }


@pytest.mark.parametrize("name", ["a.nc", "a.h5", "a.zarr2", "a.zarr"])
def test_much_text_is_read_when_it_is_asked_for(tmp_path, name, monkeypatch):
    """By outcore, not by the library of the format; within the budget."""
    path, _ = text_file(tmp_path, name)
    monkeypatch.setattr("outcore.xarray_engine._FIXED", 10)
    monkeypatch.setattr("outcore.xarray_engine._LibraryElements.__init__", None)
    asked = []
    read = outcore.StringArray._read
    monkeypatch.setattr(
        outcore.StringArray, "_read", lambda a, key, *k: (asked.append(key), read(a, key, *k))[1]
    )
    with xr.open_dataset(path, engine="outcore", cache=False, mask_and_scale=False) as ours:
        asked.clear()
        repr(ours.t), ours.t.isel(y=0).nbytes
        assert not asked
        assert ours.t.isel(y=slice(0, 4), x=[3, 2]).values.tolist() == WORDS[:4, [3, 2]].tolist()
        points = {"y": xr.DataArray([6, 0], dims="p"), "x": xr.DataArray([1, 2], dims="p")}
        assert ours.t.isel(points).values.tolist() == [WORDS[6, 1], WORDS[0, 2]]
        assert len(asked) == 2
        again = pickle.loads(pickle.dumps(ours))
        with outcore.memory(600_000):
            assert again.t[1, 2].item() == WORDS[1, 2]
            if name in ("a.nc", "a.h5"):  # of 1 MB together
                with pytest.raises(outcore.BudgetError, match="smaller section"):
                    ours.t.load()
        again.close()
    closed = ours.t.variable._data
    assert ours.t[1, 1].item() == WORDS[1, 1] and closed is ours.t.variable._data


def test_text_that_does_not_fit_the_budget_stays_on_the_disk(tmp_path):
    path, _ = text_file(tmp_path, "a.h5")
    with outcore.memory(600_000), xr.open_dataset(path, engine="outcore") as ours:
        assert ours.t.dtype == object and ours.t[1, 1].item() == WORDS[1, 1]
    with xr.open_dataset(path, engine="outcore") as ours:
        assert ours.t.dtype == np.dtype("U100000")


# Dimensions


def test_axes_without_names_get_those_of_the_netcdf_library(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.zeros((3, 4))
        file["b"] = np.zeros((4, 4, 3))
        file["c"] = np.zeros(5)
    with (
        xr.open_dataset(tmp_path / "a.h5", engine="outcore") as ours,
        xr.open_dataset(tmp_path / "a.h5", engine="netcdf4") as theirs,
    ):
        assert {n: v.dims for n, v in theirs.items()} == {n: v.dims for n, v in ours.items()}
    array = outcore.create(tmp_path / "b.npy", data=np.arange(6.0).reshape(2, 3))
    with xr.open_dataarray(tmp_path / "b.npy", engine="outcore") as one:
        assert (one.name, one.dims) == ("b", ("phony_dim_0", "phony_dim_1"))
        assert (one.values == array[...]).all()


def test_variables_are_as_long_as_their_unlimited_dimension(tmp_path):
    """HDF5 stores what each variable has; the suffix does not say that NetCDF wrote it."""
    netcdf = pytest.importorskip("netCDF4")
    with netcdf.Dataset(tmp_path / "a.h5", "w") as file:
        file.createDimension("time", None)
        file.createVariable("long", "f8", ("time",))[:] = np.arange(5)
        file.createVariable("short", "f8", ("time",), fill_value=-1.0)[:2] = [7, 8]
    with xr.open_dataset(tmp_path / "a.h5", engine="outcore") as ours:
        assert dict(ours.sizes) == {"time": 5} and {"time"} == ours.encoding["unlimited_dims"]
        copy = pickle.loads(pickle.dumps(ours))
        for one in (ours, copy):
            np.testing.assert_array_equal(one.short, [7, 8, np.nan, np.nan, np.nan])
        copy.close()


def test_pieces_of_large_arrays_that_are_stored_whole_are_slabs(tmp_path, monkeypatch):
    monkeypatch.setattr("outcore.xarray_engine._SLAB", 8000)
    outcore.create(tmp_path / "a.nc::/a", (20, 10, 50), "f8", dims=("z", "y", "x")).close()
    outcore.create(tmp_path / "a.nc::/b", (20, 50), "f8", dims=("z", "x")).close()
    with xr.open_dataset(tmp_path / "a.nc", engine="outcore") as ds:
        assert ds.a.encoding["preferred_chunks"] == {"z": 2, "y": 10, "x": 50}
        assert "preferred_chunks" not in ds.b.encoding


# Who opens what


def test_files_are_left_to_the_engines_that_open_them(tmp_path, monkeypatch):
    ours = OutcoreBackendEntrypoint()
    ds = xr.Dataset({"a": ("x", np.arange(3.0))})
    ds.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    ds.to_netcdf(tmp_path / "a.h5", engine="h5netcdf")
    ds.to_netcdf(tmp_path / "classic.nc", engine="scipy")
    ds.to_zarr(tmp_path / "a.zarr")
    ds.to_zarr(tmp_path / "b.zarr", zarr_format=2)
    (tmp_path / "a.csv").write_text("a,b")
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "a.npy", np.zeros(3))
    names = ("a.nc", "a.h5", "classic.nc", "a.zarr", "b.zarr")
    found = {name: guess_engine(tmp_path / name) for name in names}
    assert dict(zip(names, ("netcdf4", "netcdf4", "netcdf4", "zarr", "zarr"), strict=True)) == found
    assert ours.guess_can_open(str(tmp_path / "a.nc")) and ours.guess_can_open(tmp_path / "a.h5")
    assert ours.guess_can_open(tmp_path / "classic.nc")
    others = ("a.zarr", "b.zarr", "a.csv", "folder", "a.npy", "nothing.nc")
    assert not [name for name in others if ours.guess_can_open(tmp_path / name)]
    assert not ours.guess_can_open(b"\x89HDF\r\n\x1a\n") and not ours.guess_can_open("s3://a/b.nc")
    # Where nobody else opens Zarr, we do.
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "zarr" else find(n, *a)
    )
    monkeypatch.delitem(sys.modules, "zarr", raising=False)
    assert ours.guess_can_open(tmp_path / "a.zarr") and ours.guess_can_open(tmp_path / "b.zarr")


@pytest.mark.parametrize(
    ("given", "options", "error", "text"),
    [
        (
            "a.nc",
            {"group": "nothing"},
            outcore.errors.FormatError,
            "no group '/nothing'.*outcore ls",
        ),
        ("a.nc", {"group": ("a", "b")}, outcore.errors.UsageError, "group=.*text"),
        ("a.nc", {"hints": {"engine": "steam"}}, outcore.errors.UsageError, "steam"),
        ("nothing.nc", {}, FileNotFoundError, "nothing.nc"),
        ("https://a.example/b.nc", {}, outcore.errors.UsageError, "local disks"),
        (b"bytes", {}, outcore.errors.UsageError, "local disks"),
    ],
)
def test_errors_name_the_next_step(given, options, error, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xr.Dataset({"a": ("x", np.arange(3.0))}).to_netcdf("a.nc")
    with pytest.raises(error, match=text):
        OutcoreBackendEntrypoint().open_dataset(given, **options)


# Arrays of outcore in xarray


@pytest.fixture
def held(tmp_path):
    data = np.random.default_rng(0).standard_normal((60, 40))
    outcore.create(
        tmp_path / "a.zarr", data=data, chunks=10, dims=("y", "x"), compression="zstd"
    ).close()
    with outcore.open(tmp_path / "a.zarr") as a:
        yield a, xr.DataArray(a, dims=a.dims), xr.DataArray(data, dims=("y", "x"))


def test_a_data_array_holds_the_array_on_disk(held):
    a, lazy, plain = held
    repr(lazy), lazy.rename("b").assign_attrs(u=1).nbytes, xr.Dataset({"a": lazy})._repr_html_()
    assert moved(a) == 0 and lazy.variable._data is a
    part = lazy.isel(y=[3, 50], x=slice(0, 10))
    assert a.stats()["decodes"] == 2
    xr.testing.assert_identical(plain.isel(y=[3, 50], x=slice(0, 10)), part)
    points = {"y": xr.DataArray([59, 0], dims="p"), "x": xr.DataArray([1, 2], dims="p")}
    xr.testing.assert_identical(plain.isel(points), lazy.isel(points))
    assert lazy.variable._data is a


def test_operators_of_data_arrays_match_numpy(held):
    a, lazy, plain = held
    for work in (
        lambda d: d + 1,
        lambda d: 2 - d,
        lambda d: -d,
        lambda d: abs(d) ** 2 / 3,
        lambda d: d == plain.values[3, 5],
        lambda d: d != 0,
        lambda d: (d > 0) & (d <= 1),
        lambda d: d.mean("y"),
        lambda d: d.sum(),
        lambda d: d.T,
        lambda d: d.astype("f4"),
        lambda d: d.where(d > 0, -1),
        lambda d: xr.concat([d, d], "y"),
        lambda d: d.isnull().any(),
        lambda d: d.stack(z=("y", "x")).reset_index("z", drop=True),
        lambda d: np.sin(d),
        lambda d: d.copy(deep=True),
    ):
        xr.testing.assert_allclose(work(plain), work(lazy))
    assert (a == a).all() and hash(a) == hash(a) and {a: 1}[a] == 1
    with pytest.raises(TypeError, match=r"cannot write to .*a\.zarr.*map_blocks"):
        a += 1


def test_data_arrays_larger_than_the_budget_are_refused(held):
    _, lazy, _ = held
    with outcore.memory(8000):
        for work in (lambda: lazy + 1, lambda: lazy.mean(), lambda: lazy.values, lambda: lazy.T):
            with pytest.raises(outcore.BudgetError):
                work()


def test_functions_of_numpy_stay_what_they_were(held):
    """`__array_function__` hands on to NumPy, which calls the methods that an array on disk has."""
    a, _, plain = held
    before = a.stats()["decodes"]
    np.testing.assert_array_equal(np.take(a, [0, 59], axis=0), plain.values[[0, 59]])
    assert a.stats()["decodes"] - before == 8  # two rows of chunks, of six
    assert np.shape(a) == (60, 40) and np.ndim(a) == 2
    np.testing.assert_array_equal(np.concatenate([a, plain.values]), np.concatenate([plain] * 2))
    assert np.array_equal(a, plain) and np.allclose(np.mean(a, 0), plain.mean("y"))
    assert np.asarray([1, 2], like=a).tolist() == [1, 2]


def test_arrays_of_other_libraries_decide(held):
    a, _, _ = held
    seen = threading.local()

    class Other:
        __array_ufunc__ = None

        def __array_function__(self, function, types, inputs, options):
            if DiskArray in types:
                return NotImplemented
            seen.types = [type(one) for one in inputs[0]]
            return "theirs"

    assert np.concatenate([a, Other()]) == "theirs"
    assert [np.ndarray, Other] == seen.types
