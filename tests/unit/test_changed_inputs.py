"""An input that changes between a kill and the next call: noticed, wherever it lies."""

import importlib
import os
import time

import numpy as np
import pytest

import outcore
import outcore.compute.jobs
from outcore.compute.jobs import changed
from stopping import Stop, stop_after

h5py = pytest.importorskip("h5py")
pytest.importorskip("netCDF4")

DATA = np.arange(70_000.0).reshape(250, 280)
CHANGED = r"different source (time|bytes)"
CODED = {"chunks": (50, 70), "compression": "gzip"}
#: An input, a result, and how the input is made.
PLACES = {
    "npy": ("a.npy", "b.npy", {}),
    "raw": ("a.raw", "b.npy", {}),
    "zarr": ("a.zarr", "b.zarr", CODED),
    "one store": ("g.zarr::/a", "g.zarr::/b", {"chunks": (50, 70)}),
    "one store of shards": ("g.zarr::/a", "g.zarr::/b", {**CODED, "shards": (100, 140)}),
    "one store, version 2": ("g.zarr2::/a", "g.zarr2::/b", CODED),
    "hdf5": ("a.h5::/a", "b.h5::/b", {}),
    "one file": ("g.h5::/a", "g.h5::/b", {}),
    "one file, chunks": ("g.h5::/a", "g.h5::/b", {"chunks": (50, 70)}),
    "one file, gzip": ("g.h5::/a", "g.h5::/b", CODED),
    "one netcdf file": ("g.nc::/a", "g.nc::/b", {}),
    "one netcdf file, gzip": ("g.nc::/a", "g.nc::/b", CODED),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        importlib.import_module("outcore.compute.jobs.checkpoints"), "_CHECKPOINT", 0.0
    )


def compute(source, out, **how):
    if isinstance(source, str) and source.endswith("raw"):
        source = outcore.open(source, shape=DATA.shape, dtype="f8")
    words = {"chunks": (70, 50), "compression": None}
    words = words if isinstance(out, str) and not out.endswith("npy") else {}
    outcore.transpose(source, out=out, memory="600 KiB", **words, **how).close()


def begun(place):
    """A job that was interrupted, after its first steps."""
    source, out, words = PLACES[place]
    outcore.create(source, data=DATA, **words).close()
    with pytest.raises(Stop):
        compute(source, out, progress=stop_after(3))
    return source, out


def goes_on(source, out):
    done = []
    compute(source, out, resume=True, progress=lambda n, total: done.append(n))
    assert done[0] > 0, "it went on"
    np.testing.assert_array_equal(DATA.T, outcore.open(out)[...])


def refused(source, out, data):
    with pytest.raises(outcore.errors.UsageError, match=CHANGED):
        compute(source, out, resume=True)
    with pytest.warns(UserWarning, match=CHANGED):
        compute(source, out, overwrite=True)
    np.testing.assert_array_equal(data.T, outcore.open(out)[...])


@pytest.mark.parametrize("place", PLACES)
def test_unchanged_inputs_are_resumed(place):
    goes_on(*begun(place))


@pytest.mark.parametrize("place", PLACES)
def test_one_element_that_changed_is_noticed(place):
    source, out = begun(place)
    time.sleep(0.01)
    changed = DATA.copy()
    changed[133, 77] = -1
    options = {"shape": DATA.shape, "dtype": "f8"} if place == "raw" else {}
    with outcore.open(source, "r+", **options) as a:
        a[133, 77] = -1
    refused(source, out, changed)


@pytest.mark.parametrize("place", ["one file", "one file, chunks", "one file, gzip"])
def test_change_made_by_h5py_is_noticed(place):
    """The same place in the file, and the time of the file says nothing."""
    source, out = begun(place)
    time.sleep(0.1)
    with h5py.File("g.h5", "r+") as file:
        file["a"][...] = DATA + 1
    refused(source, out, DATA + 1)


@pytest.mark.parametrize("place", ["one file", "one file, gzip", "one netcdf file", "one store"])
def test_an_input_that_was_made_anew_is_noticed(place):
    source, out = begun(place)
    time.sleep(0.1)
    outcore.create(source, data=DATA[::-1], **PLACES[place][2], overwrite=True).close()
    refused(source, out, DATA[::-1])


@pytest.mark.parametrize("place", ["one file", "one file, gzip", "one netcdf file", "one store"])
def test_changes_of_other_datasets_do_not_matter(place):
    source, out = begun(place)
    outer = source.split("::")[0]
    outcore.create(f"{outer}::/c", data=np.ones(5)).close()
    with outcore.open(f"{outer}::/c", "r+") as c:
        c.attrs["units"] = "K"
        c[...] = 3
    goes_on(source, out)


def test_two_names_of_one_file_are_one_file():
    outcore.create("g.h5::/a", data=DATA).close()
    os.link("g.h5", "h.h5")
    with pytest.raises(Stop):
        compute("h.h5::/a", "g.h5::/b", progress=stop_after(3))
    goes_on("h.h5::/a", "g.h5::/b")


def test_an_input_behind_a_link_to_another_file_is_noticed():
    outcore.create("inner.h5::/a", data=DATA).close()
    with h5py.File("outer.h5", "w") as file:
        file["far"] = h5py.ExternalLink("inner.h5", "/a")
    with pytest.raises(Stop):
        compute("outer.h5::/far", "b.npy", progress=stop_after(3))
    time.sleep(0.01)
    with outcore.open("inner.h5::/a", "r+") as a:
        a[...] = DATA + 1
    refused("outer.h5::/far", "b.npy", DATA + 1)


def test_a_file_with_the_time_of_the_older_one_is_noticed_by_its_length():
    source, out = begun("zarr")
    chunk = "a.zarr/c/1/1"
    before = os.stat(chunk)
    with outcore.open(source, "r+") as a:
        a[50:100, 70:140] = np.random.default_rng(0).random((50, 70))
        found = a[...]
    os.utime(chunk, ns=(before.st_atime_ns, before.st_mtime_ns))
    refused(source, out, found)


def test_results_that_the_user_has_opened_change_their_file_too():
    """Only one of the two has a name; the other one lies in the file of the input."""
    outcore.create("g.h5::/a", data=DATA).close()
    outcore.create("g.h5::/c", DATA.shape, "f8").close()

    def both(**how):
        with outcore.open("g.h5::/c", "r+") as c:
            outcore.map_blocks(
                lambda b: (b + 1, b * 2),
                "g.h5::/a",
                dtype=("f8", "f8"),
                out=("b.npy", c),
                memory="600 KiB",
                **how,
            )[0].close()
            return c[...]

    with pytest.raises(Stop):
        both(progress=stop_after(2))
    np.testing.assert_array_equal(DATA * 2, both(resume=True))
    np.testing.assert_array_equal(DATA + 1, np.load("b.npy"))


@pytest.mark.parametrize("place", ["one file", "one file, chunks"])
def test_of_a_long_array_inside_the_file_places_evenly_spread_are_looked_at(place, monkeypatch):
    """So much is said: a change that touches none of them is not noticed."""
    monkeypatch.setattr(changed, "PIECE", 4096)
    monkeypatch.setattr(changed, "PIECES", 8)
    source, _ = begun(place)
    with outcore.open(source) as a, outcore.open("g.h5::/a") as same:
        written = changed.find_containers(same)
        kind, before = changed.fingerprint_input(a, written)
        assert kind == "bytes"
        reads = []
        plain = changed.durable.read_at
        monkeypatch.setattr(
            changed.durable, "read_at", lambda *w: (reads.append(w[1]), plain(*w))[1]
        )
        assert changed.fingerprint_input(a, written) == ("bytes", before)
    reads = [nbytes for nbytes in reads if nbytes > 1000]  # not those of headers
    assert 8 <= len(reads) <= 17 and max(reads) <= 4096
    with outcore.open(source, "r+") as a:
        a[:, ::40] = -1  # in every 320 bytes
    with outcore.open(source) as a:
        assert changed.fingerprint_input(a, written) != ("bytes", before)


def test_arrays_in_memory_are_told_apart_by_their_elements():
    for data in (DATA, DATA.T, DATA[::2, ::-1], DATA.astype(">f4"), np.zeros((0, 3)), np.array(5)):
        other = np.array(data, order="C", copy=True)
        said = changed.fingerprint_input(outcore.compute.jobs.InMemory(data, ""), frozenset())
        assert said == changed.fingerprint_input(
            outcore.compute.jobs.InMemory(other, ""), frozenset()
        )
        if other.size:
            other.flat[-1] += 1
            assert said != changed.fingerprint_input(
                outcore.compute.jobs.InMemory(other, ""), frozenset()
            )
