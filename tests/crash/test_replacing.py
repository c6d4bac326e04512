"""Arrays that replace others only on request; whatever happens, the old or the new one is there."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import killed
import outcore
from outcore.formats import replacing

RNG = np.random.default_rng(38)
OLD = RNG.integers(1, 1 << 62, (250, 200))
NEW = RNG.integers(1, 1 << 62, (250, 200))
#: Of each format: a path (or several), and options.
KINDS = {
    "npy": ("a.npy", {}),
    "npy of order F": ("f.npy", {"order": "F"}),
    "raw": ("a.raw", {"offset": 16}),
    "parts": ("a.parts", {"parts": 2}),
    "zarr": ("a.zarr", {"chunks": (50, 200)}),
    "zarr zstd": ("z.zarr", {"chunks": (50, 200), "compression": "zstd"}),
    "zarr shards": ("s.zarr", {"chunks": (50, 50), "shards": (50, 200), "compression": "gzip"}),
    "zarr2": ("a.zarr2", {"chunks": (50, 200), "compression": "zstd"}),
    "zarr in a store": ("g.zarr::/deep/a", {"chunks": (50, 200)}),
    "zarr2 in a store": ("g.zarr2::/deep/a", {"chunks": (50, 200)}),
    "hdf5": ("a.h5", {"chunks": (50, 200), "compression": "gzip"}),
    "hdf5 contiguous in a file": ("c.h5::/deep/a", {}),
    "hdf5 gzip in a file": ("g.h5::/deep/a", {"chunks": (50, 200), "compression": "gzip"}),
    "netcdf4": ("a.nc", {"dims": ("y", "x")}),
    "netcdf4 gzip in a file": (
        "g.nc::/a",
        {"chunks": (50, 200), "compression": "gzip", "dims": ("y", "x")},
    ),
    "netcdf3": ("c.nc", {"format": "netcdf3_64bit_data"}),
    "netcdf3 in a file": ("d.nc::/a", {"format": "netcdf3_64bit_data", "dims": ("y", "x")}),
    "raw in two files": (["one.raw", "two.raw"], {}),
}
SEVERAL = "raw in two files"


def content(kind):
    path, options = KINDS[kind]
    words = {}
    if kind.startswith("raw"):
        words = {"dtype": OLD.dtype, "shape": (250, -1), "offset": options.get("offset", 0)}
    with outcore.open(path, **words) as a:
        return a[...]


def names():
    return sorted(os.path.join(at, n) for at, dirs, files in os.walk(".") for n in dirs + files)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_existing_arrays_are_replaced_only_with_overwrite(here):
    """Every format, by every call that makes an array."""
    for kind, (path, options) in KINDS.items():
        outcore.create(path, data=OLD, **options).close()
        new = {"shape": OLD.shape, "dtype": OLD.dtype}
        calls = {
            "create": lambda **w: outcore.create(path, **new, **options, **w),  # noqa: B023
            "create data": lambda **w: outcore.create(path, data=NEW, **options, **w),  # noqa: B023
            "create like": lambda **w: outcore.create(path, like=NEW, **options, **w),  # noqa: B023
        }
        for call, make in calls.items():
            with pytest.raises(FileExistsError) as caught:
                make()
            assert caught.value.code == "already-exists", (kind, call)
            assert "overwrite=True" in str(caught.value), (kind, call)
            assert (content(kind) == OLD).all(), (kind, call)
        with pytest.raises(FileExistsError):
            outcore.open(path, "x", data=NEW, **options)
        with calls["create"](overwrite=True) as a:
            assert not a[...].any(), kind
        with calls["create data"](overwrite=True) as a:
            assert a.writable and (a[...] == NEW).all(), kind
        assert (content(kind) == NEW).all(), kind
        assert not [name for name in names() if "outcore" in name], kind
        with outcore.open(path, "w", data=OLD, **options) as a:
            assert (a[...] == OLD).all(), kind


@pytest.mark.parametrize("small_disk", ["3m"], indirect=True)
def test_a_full_disk_leaves_the_old_array_or_the_new_one(small_disk, monkeypatch):
    """Whatever room there is: nothing else is left, and the next attempt succeeds."""
    monkeypatch.chdir(small_disk)
    for kind, (path, options) in KINDS.items():
        outcore.create(path, data=OLD, **options).close()
        before, refused = names(), 0
        for left in (0, 40_000, 200_000, 300_000, 380_000, 410_000):
            disk = os.statvfs(".")
            with open("filler", "wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, max(disk.f_bavail * disk.f_frsize - left, 1))
            try:
                outcore.create(path, data=NEW, overwrite=True, **options).close()
            except outcore.errors.StorageError as error:
                said = (error.code, "outcore-" in str(error))
                assert said == ("disk-full", False), (kind, left, error)  # noqa: PT017
                refused += 1
                os.unlink("filler")
                assert (content(kind) == OLD).all(), (kind, left)
                if kind != "parts":
                    assert names() == before, (kind, left)
            else:
                os.unlink("filler")
                assert (content(kind) == NEW).all(), (kind, left)
                outcore.create(path, data=OLD, overwrite=True, **options).close()
        assert refused >= 3, kind
        outcore.create(path, data=NEW, overwrite=True, **options).close()
        assert (content(kind) == NEW).all(), kind
        for at, dirs, files in os.walk(".", topdown=False):
            for name in files:
                os.unlink(os.path.join(at, name))
            for name in dirs:
                os.rmdir(os.path.join(at, name))
    monkeypatch.undo()


STEPS = ("open", "write", "pwrite", "fsync", "rename", "unlink", "mkdir", "rmdir", "ftruncate")


KILLED = ("hdf5 gzip in a file", "npy", "raw", "parts", "zarr zstd", "zarr in a store")
KILLED += ("hdf5", "netcdf4 gzip in a file")


@pytest.mark.parametrize("kind", KILLED)
def test_a_kill_leaves_the_old_array_or_the_new_one(kind, tmp_path, monkeypatch):
    """Before each step of Python's; between the creation and the elements there are several."""
    path, options = KINDS[kind]
    with killed.quick_folder(tmp_path) as folder:
        seen = []
        for step in range(1, 300):
            place = folder / str(step)
            place.mkdir()
            monkeypatch.chdir(place)
            outcore.create(path, data=OLD[:, :8], **options).close()

            def replace():
                outcore.create(path, data=NEW[:, :8], overwrite=True, **options).close()

            died = killed.dies_at(step, replace, STEPS)
            found = content(kind)
            new = (found == NEW[:, :8]).all()
            assert new or (found == OLD[:, :8]).all(), (step, found)
            seen.append(bool(new))
            if not died:
                break
        monkeypatch.chdir(tmp_path)
    assert seen[0] is False and seen[-1] is True and step > 3
    assert seen == sorted(seen), "once the new one is there it stays"


def test_the_new_array_is_on_the_disk_before_it_takes_the_place(here, monkeypatch):
    done = []
    flush, publish = outcore.DiskArray.flush, replacing.Replacement.publish

    def flushed(array):
        flush(array)
        done.append("on the disk")

    def published(new):
        done.append("named")
        publish(new)

    monkeypatch.setattr(outcore.DiskArray, "flush", flushed)
    monkeypatch.setattr(replacing.Replacement, "publish", published)
    for path, options in KINDS.values():
        outcore.create(path, (250, 200), "i8", **options).close()
        done.clear()
        outcore.create(path, data=NEW, overwrite=True, **options).close()
        assert done == ["on the disk", "named"], path


@pytest.mark.parametrize("kind", ["hdf5 gzip in a file", "zarr in a store"])
def test_two_that_replace_an_array_of_a_file_take_turns(kind, here, monkeypatch):
    """They would fill the same unfinished array, and one would name what the other has begun."""
    path, options = KINDS[kind]
    outcore.create(path, data=OLD, **options).close()
    created, second, ended = replacing.Replacement.mark_created, [], threading.Event()

    def replace(data):
        outcore.create(path, data=data, overwrite=True, **options).close()

    def other():
        replace(NEW + 1)
        ended.set()

    def late(new):
        if not second:
            second.append(threading.Thread(target=other))
            second[0].start()
            assert not ended.wait(0.5), "it did not wait"
        created(new)

    monkeypatch.setattr(replacing.Replacement, "mark_created", late)
    replace(NEW)
    second[0].join()
    assert (content(kind) == NEW + 1).all()
