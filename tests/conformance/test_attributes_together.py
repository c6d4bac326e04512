"""Processes and threads that change attributes at once lose no change, and read nothing half written."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading

import pytest

import outcore
from outcore.formats.zarr import version2 as zarr2
from outcore.formats.zarr import version3 as zarr3

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

TURNS = 12
WRITER = textwrap.dedent(
    """
    import sys, threading
    import outcore

    def work(path, me, turns):
        opened = outcore.open if path.endswith("x") else outcore.open_group
        with opened(path, "r+") as one:
            for turn in range(turns):
                one.attrs[f"{me}-{turn}"] = "x" * 500 + str(turn)
                one.attrs["both"] = me
                if turn % 3 == 2:
                    del one.attrs[f"{me}-{turn}"]

    path, me, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
    threads = [threading.Thread(target=work, args=(path, me + name, turns)) for name in "ab"]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """
)
EXPECTED = {
    f"{me}{name}-{turn}": "x" * 500 + str(turn)
    for me in "01" for name in "ab" for turn in range(TURNS) if turn % 3 != 2
}  # fmt: skip


def race(path, look):
    """Two processes of two threads each; `look` is called until they have ended, and once more."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), me, str(TURNS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me in "01"
    ]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        while any(child.poll() is None for child in children):
            look()
        said = [child.communicate(timeout=60)[1] for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.communicate()
    assert [(child.returncode, text) for child, text in zip(children, said, strict=True)] == [
        (0, ""),
        (0, ""),
    ]
    look()


def is_whole(attrs):
    """All values are those that somebody set, and who set them is known."""
    assert all(value == EXPECTED.get(name, value) for name, value in attrs.items())
    return attrs


@pytest.mark.parametrize("inner", ["x", "g"])
@pytest.mark.parametrize("name", ["a.zarr", "a.zarr2"])
def test_no_change_of_a_store_is_lost(tmp_path, name, inner):
    path = tmp_path / name
    outcore.create(f"{path}::/x", (2,), "i4").close()
    outcore.open_group(f"{path}::/g", "a").close()
    version = 2 if name.endswith("2") else 3
    zarr.consolidate_metadata(path, zarr_format=version)
    documents = [p for p in path.rglob("*") if p.name in ("zarr.json", ".zattrs", ".zmetadata")]
    documents += [path / inner / ".zattrs"] if version == 2 else []
    opened = zarr.open_array if inner == "x" else zarr.open_group

    def look():
        for document in documents:
            if document.exists():
                assert isinstance(json.loads(document.read_bytes()), dict)
        with outcore.open_group(path) as group, group[inner] as one:
            is_whole(dict(one.attrs))

    race(f"{path}::/{inner}", look)
    found = dict(opened(path / inner, mode="r").attrs)
    assert found.pop("both") in ("0a", "0b", "1a", "1b")
    assert found == EXPECTED
    told = dict(zarr.open_consolidated(path)[inner].attrs)
    assert told.pop("both") == dict(opened(path / inner, mode="r").attrs)["both"]
    assert told == EXPECTED, "the groups above tell the same"


@pytest.mark.parametrize("inner", ["x", "g"])
def test_no_change_of_an_hdf5_file_is_lost(tmp_path, inner):
    path = tmp_path / "a.h5"
    outcore.create(f"{path}::/x", (2,), "i4").close()
    outcore.open_group(f"{path}::/g", "a").close()

    def look():
        with outcore.open_group(path) as group, group[inner] as one:
            is_whole(dict(one.attrs))

    race(f"{path}::/{inner}", look)
    with h5py.File(path) as file:
        found = dict(file[inner].attrs)
    assert found.pop("both") in ("0a", "0b", "1a", "1b")
    assert found == EXPECTED


@pytest.mark.parametrize("version", [zarr2, zarr3])
@pytest.mark.parametrize("inner", ["x", "g"])
def test_late_writer_does_not_publish_old_attributes(tmp_path, monkeypatch, version, inner):
    """One has changed an attribute, another changes it again and tells the groups above of it first."""
    path = tmp_path / ("a.zarr2" if version is zarr2 else "a.zarr")
    outcore.create(f"{path}::/x", (2,), "i4").close()
    outcore.open_group(f"{path}::/g", "a").close()
    zarr.consolidate_metadata(path, zarr_format=2 if version is zarr2 else 3)
    tell, waits, goes_on = version.tell_groups, threading.Event(), threading.Event()

    def late(*args, **words):
        if threading.current_thread() is slow:
            waits.set()
            assert goes_on.wait(30)
        tell(*args, **words)

    def change(name):
        opened = outcore.open if inner == "x" else outcore.open_group
        with opened(f"{path}::/{inner}", "r+") as one:
            one.attrs[name] = 1

    monkeypatch.setattr(version, "tell_groups", late)
    slow = threading.Thread(target=change, args=("first",))
    slow.start()
    assert waits.wait(30)
    change("second")
    goes_on.set()
    slow.join()
    assert dict(zarr.open_consolidated(path)[inner].attrs) == {"first": 1, "second": 1}
