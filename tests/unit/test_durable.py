"""Names on disk change at once or not at all."""

import fcntl
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.formats import durable, locks, whole
from outcore.formats.hdf5 import redo as hdf5_redo


def make(path, kind, text):
    if kind == "folder":
        path.mkdir()
        (path / "inside").write_text(text)
    else:
        path.write_text(text)
    return str(path)


def content(path):
    return (path / "inside").read_text() if path.is_dir() else path.read_text()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_move_into_place(tmp_path, kind):
    """Without what the system has for it: `crates/io/tests/crash/places.rs`."""
    target = tmp_path / "target"
    durable.move_into_place(make(tmp_path / "a", kind, "a"), str(target), exclusive=True)
    assert content(target) == "a"
    with pytest.raises(FileExistsError):
        durable.move_into_place(make(tmp_path / "b", kind, "b"), str(target), exclusive=True)
    assert content(target) == "a"
    durable.move_into_place(str(tmp_path / "b"), str(target), exclusive=False)
    assert content(target) == "b"
    assert os.listdir(tmp_path) == ["target"]


@pytest.mark.parametrize("old", ["file", "folder"])
def test_a_folder_and_a_file_change_places(tmp_path, old):
    new = "folder" if old == "file" else "file"
    target = tmp_path / "target"
    make(target, old, "old")
    durable.move_into_place(make(tmp_path / "new", new, "new"), str(target), exclusive=False)
    assert content(target) == "new"
    assert os.listdir(tmp_path) == ["target"]


def test_a_copy_of_a_file_that_becomes_shorter_is_none(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(100_000))
    plain, turn = os.copy_file_range, [1]

    def meanwhile(*words):
        if turn:
            turn.pop()
            copied = plain(*words[:2], 128)  # the head, which tells the old length
            os.truncate(path, 4096)
            return copied
        return plain(*words)

    monkeypatch.setattr(os, "copy_file_range", meanwhile)
    with pytest.raises(outcore.errors.StorageError, match="copy it again") as caught:
        whole.copy(str(path), str(tmp_path / "b.npy"))
    assert caught.value.code == "file-changed"
    assert os.listdir(tmp_path) == ["a.npy"]
    np.save(path, np.arange(9))
    whole.copy(str(path), str(tmp_path / "b.npy"))
    np.testing.assert_array_equal(np.arange(9), np.load(tmp_path / "b.npy"))


KILLED = """
import os, signal, sys
from outcore.formats import durable
def fill(fd):
    os.write(fd, b"half")
    os.kill(os.getpid(), signal.SIGKILL)
durable.create_file(sys.argv[1], fill, exclusive=False)
"""


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    target = tmp_path / "a.npy"
    words = [sys.executable, "-c", KILLED, str(target)]
    assert subprocess.run(words, timeout=60).returncode == -9
    (orphan,) = tmp_path.iterdir()
    os.utime(orphan, (0, 0))
    # Of others: another name, another machine, still held, just made.

    def name(mark, of="a.npy"):
        return _core.temporary_name(of, mark)

    others = [name("1", "b.npy"), ".a.npy.00000000-1.outcore-tmp", name("2"), name("3")]
    for other in others:
        (tmp_path / other).write_text("x")
        if other != others[3]:
            os.utime(tmp_path / other, (0, 0))
    os.mkfifo(tmp_path / name("4"))
    (tmp_path / name("5")).symlink_to(others[0])
    # What a killed writer of the core left under that name is no different.
    (tmp_path / name("")).write_text("x")
    os.utime(tmp_path / name(""), (0, 0))
    with open(tmp_path / others[2]) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        durable.create_file(str(target), lambda fd: None, exclusive=False)
    left = {"a.npy", *others, name("4"), name("5")}
    assert set(os.listdir(tmp_path)) == left


def longest(letter, suffix, end=""):
    """A name of as many bytes as a folder allows."""
    room = 255 - len((suffix + end).encode())
    name = letter * (room // len(letter.encode()))
    name = name + "x" * (room - len(name.encode())) + end + suffix
    assert len(os.fsencode(name)) == 255
    return name


@pytest.mark.parametrize("letter", ["x", "ä", "\N{GRINNING FACE}"])
def test_names_are_cut_by_bytes_and_still_differ(tmp_path, letter):
    one, two = (str(tmp_path / longest(letter, ".h5", end)) for end in "12")
    found = set()
    for path in (one, two):
        for beside in (
            durable.make_sibling_path(path, ".outcore-journal"),
            durable.make_sibling_path(path, ".end", before="."),
            hdf5_redo.make_log_path(path),
        ):
            name = os.path.basename(beside)
            assert 200 < len(name.encode()) <= 255  # strictly encoded: no half characters
            assert os.path.dirname(beside) == str(tmp_path)
            found.add(name)
    assert len(found) == 6
    assert durable.make_sibling_path("/a/b.h5", ".end", before=".") == "/a/.b.h5.end"
    assert durable.shorten_name("x" * 200, 200) == "x" * 200
    assert durable.shorten_name("\udcff" * 300, 100).startswith("~")


@pytest.mark.parametrize("letter", ["x", "ä"])
@pytest.mark.parametrize("suffix", [".npy", ".raw", ".h5", ".nc", ".zarr", ".zarr2"])
def test_the_longest_names_that_a_folder_allows(tmp_path, letter, suffix):
    data = np.arange(24.0).reshape(6, 4)
    path = tmp_path / longest(letter, suffix)
    raw = {"dtype": "f8", "shape": (6, 4)} if suffix == ".raw" else {}
    for _ in range(2):  # new, then replaced
        outcore.create(path, data=data, overwrite=True).close()
        with outcore.open(path, **raw) as a:
            np.testing.assert_array_equal(data, a[...])
    if suffix in (".h5", ".nc"):
        # What HDF5 itself changes goes through a log beside the file.
        words = {"chunks": (2, 4), "compression": "gzip"}
        outcore.create(f"{path}::/more", data=data, **words).close()
        with outcore.open(f"{path}::/more", "r+") as a:
            a[1] = 7
            np.testing.assert_array_equal(7, a[1])
    np.save(tmp_path / "source.npy", data + 1)
    with pytest.raises(ZeroDivisionError):
        outcore.convert(tmp_path / "source.npy", path, overwrite=True, progress=lambda *_: 1 / 0)
    outcore.convert(tmp_path / "source.npy", path, overwrite=True)
    with outcore.open(path, **raw) as a:
        np.testing.assert_array_equal(data + 1, a[...])
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, "source.npy"])


@pytest.mark.parametrize(("kind", "chunk"), [("zarr2", "0.0"), ("zarr", "c/0/0")])
def test_resize_removes_what_killed_writers_of_chunks_left(tmp_path, kind, chunk):
    path = tmp_path / "a.zarr"
    with outcore.create(path, data=np.ones((9, 4)), chunks=(3, 2), format=kind) as a:
        assert (path / chunk).is_file()
        old, young, held = ((path / chunk).with_name(f".{n}.1-2.outcore-tmp") for n in "abc")
        for name in (old, young, held):
            name.write_bytes(b"cut off")
        os.utime(old, (0, 0))
        os.utime(held, (0, 0))
        with open(held, "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            a.resize((9, 2))
        assert (old.exists(), young.exists(), held.exists()) == (False, True, True)
        assert a[...].sum() == 18


def test_bytes_that_are_made_room_for_are_zeros(tmp_path):
    """On a system that cannot: `crates/io/tests/crash.rs`."""
    with open(tmp_path / "a", "w+b") as file:
        file.write(b"abc")
        file.flush()
        for start, end, length in ((3, 10, 10), (2, 5, 10), (8, 8, 10), (20, 21, 21)):
            _core.allocate(file.fileno(), start, end)
            assert os.fstat(file.fileno()).st_size == length
        file.seek(0)
        assert file.read() == b"abc" + bytes(18)


def test_create_file_does_not_replace_what_appears_meanwhile(tmp_path):
    path = tmp_path / "a.npy"

    def fill(fd):
        os.write(fd, b"ours")
        path.write_text("another's")

    with pytest.raises(outcore.errors.StorageError) as caught:
        durable.create_file(str(path), fill, exclusive=True)
    assert (caught.value.code, path.read_text()) == ("already-exists", "another's")
    assert os.listdir(tmp_path) == ["a.npy"]


def test_all_is_written_however_little_a_call_takes(tmp_path, monkeypatch):
    plain = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: plain(fd, bytes(data[:3]), at))
    with open(tmp_path / "a", "wb") as file:
        durable.write_all(file.fileno(), b"0123456789", 5)
    assert (tmp_path / "a").read_bytes() == bytes(5) + b"0123456789"


def test_a_document_that_was_replaced_is_locked_anew(tmp_path, monkeypatch):
    """Who waited for the lock may have that of a file that is gone."""
    path, fresh = tmp_path / "zarr.json", tmp_path / "fresh"
    path.write_text("old")
    fresh.write_text("new")
    plain = fcntl.fcntl

    def late(*words):
        if fresh.exists():
            os.replace(fresh, path)
        return plain(*words)

    monkeypatch.setattr(fcntl, "fcntl", late)
    fd = locks.lock_by_name(str(path), locks.CONTENT)
    try:
        assert os.pread(fd, 3, 0) == b"new"
    finally:
        os.close(fd)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("names", [1, 2])
def test_a_name_is_removed_now_and_what_it_named_in_the_background(
    tmp_path, monkeypatch, large, names
):
    path = tmp_path / "a"
    path.write_bytes(bytes(10_000))
    if names == 2:
        os.link(path, tmp_path / "b")
    threads = []

    class Thread(threading.Thread):
        def start(self):
            threads.append(self)

    monkeypatch.setattr(durable, "_LARGE", 1 if large else 1 << 30)
    monkeypatch.setattr(threading, "Thread", Thread)
    before = set(os.listdir("/proc/self/fd"))
    durable.unlink_in_background(str(path))
    assert not path.exists()
    assert len(threads) == (large and names == 1)
    for thread in threads:
        thread.run()
    assert before == set(os.listdir("/proc/self/fd"))
