"""Arrays on disk in dask: chunks that fit the file, nothing read early, threads and processes."""

import numpy as np
import pytest

import outcore

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

DATA = np.arange(120 * 90.0).reshape(120, 90)
# Formats, and options of `create`; what chunks of dask have to be multiples of.
KINDS = {
    "chunked": ("a.zarr", {"chunks": (25, 20), "compression": "zstd"}, (25, 20)),
    "sharded": (
        "a.zarr",
        {"chunks": (10, 15), "shards": (40, 30), "compression": "zstd"},
        (10, 15),
    ),
    "zarr2": ("a.zarr2", {"chunks": (25, 45), "compression": "gzip"}, (25, 45)),
    "hdf5": ("a.h5", {"chunks": (30, 20), "compression": "gzip"}, (30, 20)),
    "whole": ("a.npy", {}, (1, 1)),
    "columns": ("a.npy", {"order": "F"}, (1, 1)),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def array(kind, tmp_path):
    name, options, _ = KINDS[kind]
    outcore.create(tmp_path / name, data=DATA, **options).close()
    with outcore.open(tmp_path / name) as a:
        yield a


def moved(a):
    stats = a.stats()
    return stats["read_bytes"] + stats["mapped_bytes"]


@pytest.mark.parametrize("limit", ["10 kB", "128 MiB"])
def test_chunks_are_made_of_whole_chunks_of_the_file(array, kind, limit):
    with dask.config.set({"array.chunk-size": limit}):
        d = da.from_array(array)
    assert moved(array) == 0
    for lengths, unit in zip(d.chunks, KINDS[kind][2], strict=True):
        assert all(n % unit == 0 for n in lengths[:-1]), d.chunks
    most = max(dask.utils.parse_bytes(limit), 8 * np.prod(KINDS[kind][2]))
    assert 8 * np.prod(d.chunksize) <= 2 * most
    assert d.dtype == array.dtype and type(d._meta) is np.ndarray
    before = array.stats()["decodes"]
    np.testing.assert_array_equal(DATA * 2, (d * 2).compute(scheduler="threads", num_workers=4))
    if array.chunks is not None:  # each chunk once, whatever thread has it
        grid = np.prod([-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True)])
        assert grid == array.stats()["decodes"] - before


def test_slabs_of_an_array_that_is_stored_whole(array, kind):
    """As the page says: the axis that runs slowest is cut."""
    cut = (-1, "auto") if kind == "columns" else ("auto", -1)
    with dask.config.set({"array.chunk-size": "20 kB"}):
        d = da.from_array(array, chunks=cut)
    assert 1 == d.numblocks[kind != "columns"] < d.numblocks[kind == "columns"]
    np.testing.assert_array_equal(DATA.sum(0), d.sum(0).compute())


def test_keys_with_arrays(array):
    d = da.from_array(array, chunks=(50, 40))
    rows, columns = [119, 3, 3, 60], [0, 89, 45, 45]
    for found, expected in (
        (d[rows], DATA[rows]),
        (d[:, columns][::-7], DATA[:, columns][::-7]),
        (d.vindex[rows, columns], DATA[rows, columns]),
        (d[DATA[:, 0] > 5000], DATA[DATA[:, 0] > 5000]),
        (d[d > 10000], DATA[DATA > 10000]),
        (da.take(d, rows, axis=0), DATA[rows]),
    ):
        np.testing.assert_array_equal(expected, found.compute(scheduler="threads"))


def test_operators_with_arrays_of_dask_stay_lazy(array):
    d = da.from_array(array)
    for found, expected in ((d + array, DATA * 2), (array - d, DATA * 0), (array > d, DATA > DATA)):
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(expected, found.compute())
    both = np.concatenate([d, array])
    assert isinstance(both, da.Array) and both.shape == (240, 90)


def test_names_tell_equal_arrays_from_others(array, kind, tmp_path):
    path = tmp_path / KINDS[kind][0]

    def name(mode="r"):
        with outcore.open(path, mode) as a:
            return da.from_array(a).name

    assert name() == da.from_array(array).name == name()
    assert name("r+") != name("r+")
    other = tmp_path / f"b{path.suffix}"
    outcore.create(other, data=DATA).close()
    with outcore.open(other) as b:
        assert da.from_array(b).name != name()
    before = name()
    outcore.create(path, data=DATA + 1, **KINDS[kind][1], overwrite=True).close()
    assert before != name()


def test_chunks_are_stored_by_threads(tmp_path):
    d = da.from_array(DATA, chunks=(30, 45)) + 1
    with outcore.create(tmp_path / "b.zarr", DATA.shape, "f8", chunks=(15, 45)) as b:
        da.store(d, b, lock=False, scheduler="threads", num_workers=4)
        np.testing.assert_array_equal(DATA + 1, b[...])


def test_processes_open_the_file_again(tmp_path):
    """Of arrays, and of datasets that xarray opened; each process has a budget of its own."""
    xr = pytest.importorskip("xarray")
    outcore.create(tmp_path / "a.zarr", data=DATA, chunks=(25, 20), compression="zstd").close()
    outcore.create(tmp_path / "run.nc::/t", data=DATA, dims=("y", "x"), chunks=(60, 45)).close()
    with (
        outcore.open(tmp_path / "a.zarr") as a,
        xr.open_dataset(tmp_path / "run.nc", engine="outcore", chunks={}) as ds,
        dask.config.set(scheduler="processes", num_workers=1),
    ):
        assert ds.t.chunks == ((60, 60), (45, 45))
        first, second = dask.compute(
            da.from_array(a, chunks=(50, 40))[::-1].sum(0), ds.t.isel(x=[3, 89]).variable._data
        )
    np.testing.assert_array_equal(DATA.sum(0), first)
    np.testing.assert_array_equal(DATA[:, [3, 89]], second)


@pytest.mark.parametrize("chunks", [{}, "auto", {"y": 60}])
def test_datasets_in_chunks(tmp_path, chunks):
    xr = pytest.importorskip("xarray")
    outcore.create(tmp_path / "run.h5::/t", data=DATA, dims=("y", "x"), chunks=(30, 45)).close()
    with xr.open_dataset(tmp_path / "run.h5", engine="outcore", chunks=chunks) as ds:
        assert all(n % c == 0 for ns, c in zip(ds.t.chunks, (30, 45), strict=True) for n in ns)
        found = (ds.t * 2).isel(x=xr.DataArray([1, 80], dims="p"), y=[7, 7, 0])
        np.testing.assert_array_equal(2 * DATA[[7, 7, 0]][:, [1, 80]], found.values)
