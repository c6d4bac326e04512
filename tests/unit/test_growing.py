"""Arrays that become longer: beside others who append or read, and when it fails halfway."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import killed
import outcore
from outcore import _core, formats
from outcore.formats import npy, unfinished
from outcore.formats.hdf5 import growing as hdf5_growing

OLD = np.arange(24, dtype="<i4").reshape(6, 4)
KINDS = {
    "npy": ("a.npy", {}),
    "npy F": ("a.npy", {"order": "F"}),
    "parts": ("a.parts", {"parts": 3, "stripe": 2}),
    "parts F": ("a.parts", {"parts": 3, "stripe": 4, "order": "F"}),
    "raw": ("a.raw", {}),
    "raw F": ("a.raw", {"order": "F"}),
    "zarr": ("a.zarr", {"chunks": (4, 4)}),
    "zarr shards": ("a.zarr", {"chunks": (2, 4), "shards": (4, 4), "compression": "gzip"}),
    "zarr2": ("a.zarr2", {"chunks": (4, 4), "compression": "zstd"}),
    "h5": ("a.h5", {"chunks": (4, 4), "resizable": True}),
    "h5 gzip": ("a.h5", {"chunks": (4, 3), "resizable": True, "compression": "gzip"}),
    "nc": ("a.nc", {"chunks": (4, 4), "dims": ("t", "x"), "unlimited": ("t",)}),
}


@pytest.fixture(params=KINDS)
def made(request, tmp_path):
    """Path of an array, the options to open it, and the axis along which it grows."""
    name, options = KINDS[request.param]
    fortran = options.get("order") == "F"
    outcore.create(tmp_path / name, data=OLD.T if fortran else OLD, **options).close()
    known = {"order": "F", "shape": (4, -1)} if fortran else {"shape": (-1, 4)}
    return tmp_path / name, {**known, "dtype": "<i4"} if name == "a.raw" else {}, int(fortran)


def rows(value, count, axis):
    return np.full((count, 4) if axis == 0 else (4, count), value, "<i4")


def appended(array, axis):
    """The first element of each entry behind the old ones."""
    found = array[...] if axis == 0 else array[...].T
    assert np.array_equal(OLD, found[:6])
    assert (found[6:] == found[6:, :1]).all(), "a mixture"
    return found[6:, 0].tolist()


def test_two_handles_append_one_behind_the_other(made):
    path, known, axis = made
    with outcore.open(path, "r+", **known) as a, outcore.open(path, "r+", **known) as b:
        a.append(rows(100, 3, axis), axis)
        b.append(rows(200, 2, axis), axis)
        assert appended(b, axis) == [100] * 3 + [200] * 2
        a.append(rows(300, 1, axis), axis)
        assert appended(a, axis) == [100] * 3 + [200] * 2 + [300]
    with outcore.open(path, **known) as c:
        assert appended(c, axis) == [100] * 3 + [200] * 2 + [300]


def test_threads_and_processes_append_each_row_once(made):
    path, known, axis = made

    def work(number):
        with outcore.open(path, "r+", **known) as a:
            for turn in range(4):
                a.append(rows(100 * number + turn, 1, axis), axis)

    child = os.fork()
    if child == 0:
        try:
            work(3)
        except BaseException:
            os._exit(1)
        os._exit(0)
    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with outcore.open(path, **known) as a:
        found = appended(a, axis)
    assert sorted(found) == [100 * number + turn for number in (1, 2, 3) for turn in range(4)]


def test_a_resize_does_not_cut_off_what_another_handle_appended(made):
    path, known, axis = made
    shape = (8, 4) if axis == 0 else (4, 8)
    with outcore.open(path, "r+", **known) as a, outcore.open(path, "r+", **known) as b:
        b.append(rows(100, 3, axis), axis)
        with pytest.raises(outcore.errors.FormatError, match="open it again") as caught:
            a.resize(shape)
        assert caught.value.code == "file-changed"
        b.resize(shape)
        assert appended(b, axis) == [100, 100]


def test_an_append_inside_another_one_is_refused(made):
    """A handler of a signal runs in the middle of what it interrupts: it would wait for itself."""
    path, known, axis = made
    refused = []

    class Data:
        def __init__(self, array):
            self.array = array

        def __array__(self, *_, **__):
            return rows(100, 2, axis)

    with outcore.open(path, "r+", **known) as a, outcore.open(path, "r+", **known) as b:
        with formats.begin_growing(a.info):
            for array in (a, b):
                with pytest.raises(outcore.errors.UsageError) as caught:
                    array.append(Data(array), axis)
                refused.append(caught.value.code)
        a.append(Data(a), axis)
        assert appended(a, axis) == [100, 100]
    assert refused == ["nested-call"] * 2


def kill_in_an_append(path, known, shape=(11, 4)):
    """Leave what an append has reserved when it is killed: of a raw file the record, too."""
    info = formats.open_info(path, **known)
    child = os.fork()
    if child == 0:
        with formats.begin_growing(info) as array:
            array.reserve(shape)
            os._exit(0)
    os.waitpid(child, 0)
    if path.suffix == ".raw":
        assert (
            Path(unfinished.make_record_path(str(path))).exists()
            and path.stat().st_size == 11 * 16 + 16
        )


def test_an_append_after_one_that_was_killed(made):
    """Also through a handle that was open meanwhile."""
    path, known, axis = made
    with outcore.open(path, "r+", **known) as a:
        kill_in_an_append(path, known, (11, 4) if axis == 0 else (4, 11))
        a.append(rows(7, 2, axis), axis)
        assert appended(a, axis) == [7, 7]
    with outcore.open(path, **known) as a:
        assert appended(a, axis) == [7, 7]


def files_below(folder):
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


def test_what_a_failed_append_reserved_is_given_back(made, monkeypatch):
    path, known, axis = made
    with outcore.open(path, "r+", **known) as a:
        a.append(rows(100, 1, axis), axis)
        before = files_below(path.parent)
        content = path.read_bytes() if path.is_file() else b""

        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(formats.find_by_name(a.format).load(), "resize", fail)
        monkeypatch.setattr(hdf5_growing._GrowingDataset, "finish", fail)
        with pytest.raises(OSError, match="No space"):
            a.append(rows(200, 50, axis), axis)
        monkeypatch.undo()
        # Also in chunks that were begun: other libraries show that part when they extend a dataset.
        assert not path.is_file() or path.read_bytes() == content
        after = files_below(path.parent)
        assert set(after) == set(before)
        # Rows that nobody sees may have made a chunk that was there some bytes longer.
        assert sum(after.values()) < sum(before.values()) + (10 if a.chunks else 1)
        assert appended(a, axis) == [100]
        a.append(rows(300, 2, axis), axis)
        assert appended(a, axis) == [100, 300, 300]


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr"])
def test_an_append_that_the_budget_refuses_changes_nothing(tmp_path, name):
    more = {"dims": ("t", "x"), "unlimited": ("t",)} if name == "a.nc" else {}
    more = {"resizable": True} if name == "a.h5" else more
    data = np.random.default_rng(1).integers(0, 1 << 30, (6, 1 << 18), "<i4")
    path = tmp_path / name
    outcore.create(path, data=data, chunks=(4, 1 << 18), compression="gzip", **more).close()
    before = files_below(tmp_path)
    with outcore.open(path, "r+", hints={"memory": 1 << 20}) as a:
        with pytest.raises(outcore.BudgetError):
            a.append(data[:3])
        assert a.shape == data.shape
    assert files_below(tmp_path) == before
    with outcore.open(path) as b:
        assert np.array_equal(data, b[...])


# Bytes behind the end


@pytest.mark.parametrize("order", "CF")
def test_a_resize_shows_zeros_where_old_bytes_lay_behind_the_end(tmp_path, order):
    path, shape = tmp_path / "a.npy", (50, 4) if order == "C" else (6, 40)
    outcore.create(path, data=OLD, order=order).close()
    with open(path, "ab") as file:
        file.write(b"\xff" * 10_000)
    with outcore.open(path, "r+") as a:
        a.resize(shape)
        expected = np.zeros(shape, "<i4")
        expected[:6, :4] = OLD
        assert np.array_equal(expected, a[...])
    assert np.array_equal(expected, np.load(path))


def test_raw_files_that_go_on_behind_the_array_are_not_overwritten(tmp_path):
    path = tmp_path / "a.raw"
    path.write_bytes(OLD.tobytes() + b"footer")
    with outcore.open(path, "r+", dtype="<i4", shape=(6, 4)) as a:
        for change in (lambda: a.append(OLD[0]), lambda: a.resize((7, 4))):
            with pytest.raises(outcore.errors.UsageError, match="6 bytes would be overwritten"):
                change()
        assert path.read_bytes() == OLD.tobytes() + b"footer"


# Raw files: a record says how long they are


STEPS = ("open", "write", "pwrite", "fsync", "unlink", "ftruncate")


@pytest.mark.parametrize("change", ["append", "resize"])
def test_a_raw_file_killed_while_it_grows(tmp_path, change):
    new = np.concatenate([OLD, rows(7 if change == "append" else 0, 5, 0)])
    known = {"dtype": "<i4", "shape": (-1, 4)}
    path = tmp_path / "a.raw"

    def act():
        with outcore.open(path, "r+", **known) as a:
            a.append(rows(7, 5, 0)) if change == "append" else a.resize((11, 4))

    seen = []
    for step in range(1, 100):
        path.write_bytes(OLD.tobytes())
        died = killed.dies_at(step, act, STEPS)
        with outcore.open(path, **known) as a:
            seen.append(a[...].tolist())
        size = path.stat().st_size
        with outcore.open(path, "r+", **known) as a:
            assert path.stat().st_size in (OLD.nbytes, size), "what was left is cut off"
            assert a.shape == (len(seen[-1]), 4) and path.stat().st_size == a.nbytes
        assert os.listdir(tmp_path) == ["a.raw"]
        if not died:
            break
    assert step > 8 and seen[-1] == new.tolist()
    turn = seen.index(new.tolist())
    assert seen == [OLD.tolist()] * turn + [new.tolist()] * (len(seen) - turn)


def test_the_record_of_a_raw_file_that_was_made_anew_counts_for_nothing(tmp_path):
    path, known = tmp_path / "a.raw", {"dtype": "<i4", "shape": (-1, 4)}
    new = np.arange(40, dtype="<i4").reshape(10, 4) + 1000
    for make in (
        lambda: path.write_bytes(new.tobytes()),  # the same inode, of a size in between
        lambda: outcore.create(path, data=new, overwrite=True).close(),
        lambda: path.write_bytes(bytes(100 * 16)),
        lambda: path.write_bytes(OLD[:2].tobytes()),
    ):
        path.write_bytes(OLD.tobytes())
        kill_in_an_append(path, known)
        assert formats.open_info(path, **known).shape == (6, 4)
        make()
        size = path.stat().st_size
        assert formats.open_info(path, **known).shape == (size // 16, 4)
        with outcore.open(path, "r+", **known) as a:
            a.append(OLD[0])
        assert path.stat().st_size == size + 16
        path.unlink()


def test_the_record_of_an_empty_raw_file_that_was_made_anew_counts_for_nothing(tmp_path):
    """Nothing was there that could tell the files apart."""
    path, known = tmp_path / "a.raw", {"dtype": "<i4", "shape": (-1, 4)}
    for count in (5, 11, 12):
        path.write_bytes(b"")
        kill_in_an_append(path, known)
        assert formats.open_info(path, **known).shape == (0, 4)
        new = np.arange(4 * count, dtype="<i4") + 1
        path.write_bytes(new.tobytes())
        with outcore.open(path, "r+", **known) as a:
            assert a[...].ravel().tolist() == new.tolist()
        path.unlink()


def test_the_record_of_a_raw_file_counts_for_no_other_file_and_size(tmp_path):
    """Also where the bytes before the old end are the same."""
    path, known = tmp_path / "a.raw", {"dtype": "<i4", "shape": (-1, 4)}
    for make in (
        lambda: outcore.create(path, data=np.zeros((10, 4), "<i4"), overwrite=True).close(),
        lambda: path.write_bytes(bytes(100 * 16)),
        lambda: path.write_bytes(bytes(range(12)) * 16),  # as long as with the rows, and the mark
        lambda: (shutil.copy(path, f"{path}.copy"), os.replace(f"{path}.copy", path)),
    ):
        path.write_bytes(bytes(6 * 16))
        kill_in_an_append(path, known)
        assert formats.open_info(path, **known).shape == (6, 4)
        make()
        size = path.stat().st_size
        with outcore.open(path, "r+", **known) as a:
            assert a.shape == (size // 16, 4)
        assert path.stat().st_size == size
        path.unlink()


# Readers beside a writer


def test_a_header_that_is_written_while_it_is_read(tmp_path, monkeypatch):
    """A reader asked for the size, then for the header; in between somebody appended."""
    path = tmp_path / "a.npy"
    longer = np.concatenate([OLD, OLD])
    shorter = OLD[:2]
    read = npy._read_header
    for new in (longer, shorter):
        np.save(path, OLD)
        os.utime(path, (1, 1))
        left = [1]

        def meanwhile(path, fd, left=left, new=new):
            if left and left.pop():
                with open(path, "r+b") as other:
                    np.save(other, new)
                    other.truncate()
            return read(path, fd)

        monkeypatch.setattr(npy, "_read_header", meanwhile)
        assert formats.open_info(path).shape == new.shape
        monkeypatch.undo()


def test_a_file_that_becomes_shorter_after_its_header_was_read(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    np.save(path, OLD)
    os.utime(path, (1, 1))
    read = npy._read_header
    left = [1]

    def before(path, fd):
        found = read(path, fd)
        if left and left.pop():
            np.save(path, OLD[:2])
            os.utime(path, (1, 1))
        return found

    monkeypatch.setattr(npy, "_read_header", before)
    assert formats.open_info(path).shape == (2, 4)
    os.truncate(path, 140)
    with pytest.raises(outcore.errors.FormatError) as caught:
        formats.open_info(path)
    assert caught.value.code == "file-too-short"


# Until it is told to stop.
APPEND = textwrap.dedent(
    """
    import select, sys, numpy as np, outcore
    path, known, axis = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3])
    with outcore.open(path, "r+", **known) as a:
        number = 1
        while not select.select([sys.stdin], [], [], 0.005)[0]:
            a.append(np.full((3, 4) if axis == 0 else (4, 3), number, "<i4"), axis)
            number += 1
    """
)


def test_readers_beside_a_writer_see_rows_that_are_written(made):
    path, known, axis = made
    words = [sys.executable, "-c", APPEND, str(path), repr(known), str(axis)]
    seen, looks, end = set(), 0, time.monotonic() + 30
    with subprocess.Popen(words, stdin=subprocess.PIPE) as writer:
        while (len(seen) < 8 or looks < 30) and time.monotonic() < end:
            with outcore.open(path, **known) as a:
                found = appended(a, axis)
            assert found == [1 + k // 3 for k in range(len(found))], "rows that nobody wrote"
            seen.add(len(found))
            looks += len(seen) > 1  # it has begun
        writer.communicate(b"stop")
        assert writer.returncode == 0
    assert len(seen) >= 8


# What killed creations leave


def test_folders_of_killed_creations_are_swept(tmp_path):
    def create():
        outcore.create(tmp_path / "a.zarr", data=OLD).close()

    for step in range(1, 100):
        if not killed.dies_at(step, create, ("mkdir", "write", "fsync", "rename")):
            break
        shutil.rmtree(tmp_path / "a.zarr", ignore_errors=True)
    left = [name for name in os.listdir(tmp_path) if name.startswith(".a.zarr.")]
    assert len(left) >= 3
    old, only_copy = tmp_path / left[0], tmp_path / left[1]
    for name in ("old", "new"):
        (only_copy / name).mkdir(exist_ok=True)
    held = os.open(tmp_path / left[2], os.O_RDONLY)
    _core.hold_temporary(held)
    fresh = [tmp_path / name for name in left[3:]]
    for place in (old, only_copy, tmp_path / left[2]):
        os.utime(place, (time.time() - 7200,) * 2)
    outcore.create(tmp_path / "b.zarr", data=OLD).close()
    os.close(held)
    kept = {only_copy, tmp_path / left[2], *fresh}
    assert {tmp_path / name for name in os.listdir(tmp_path) if name.startswith(".a.zarr.")} == kept
