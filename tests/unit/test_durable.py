"""Names on disk change at once or not at all."""

import fcntl
import os
import subprocess
import sys

import pytest

from outcore.formats import durable


def make(path, kind, text):
    if kind == "folder":
        path.mkdir()
        (path / "inside").write_text(text)
    else:
        path.write_text(text)
    return str(path)


def content(path):
    return (path / "inside").read_text() if path.is_dir() else path.read_text()


@pytest.mark.parametrize("with_renameat2", [True, False])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_move_into_place(tmp_path, monkeypatch, kind, with_renameat2):
    if not with_renameat2:
        monkeypatch.setattr(durable, "_renameat2_function", lambda: None)
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


KILLED = """
import os, signal, sys
from outcore.formats import durable
def fill(fd):
    os.write(fd, b"half")
    os.kill(os.getpid(), signal.SIGKILL)
durable.create_file(sys.argv[1], fill, exclusive=False)
"""


def test_what_a_killed_process_left_is_removed(tmp_path):
    target = tmp_path / "a.npy"
    words = [sys.executable, "-c", KILLED, str(target)]
    assert subprocess.run(words, timeout=60).returncode == -9
    (orphan,) = tmp_path.iterdir()
    os.utime(orphan, (0, 0))
    # Of others: another name, another machine, still held, just made.
    name = f".a.npy.{durable._host()}-"
    others = [
        f".b.npy.{durable._host()}-1.tmp",
        ".a.npy.00000000-1.tmp",
        f"{name}2.tmp",
        f"{name}3.tmp",
    ]
    for other in others:
        (tmp_path / other).write_text("x")
        if other != others[3]:
            os.utime(tmp_path / other, (0, 0))
    os.mkfifo(tmp_path / f"{name}4.tmp")
    (tmp_path / f"{name}5.tmp").symlink_to(others[0])
    with open(tmp_path / others[2]) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        durable.create_file(str(target), lambda fd: None, exclusive=False)
    left = {"a.npy", *others, f"{name}4.tmp", f"{name}5.tmp"}
    assert set(os.listdir(tmp_path)) == left
