"""Results inside files and stores that exist: killed at any step, all that is left can be removed."""

import importlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import outcore
from killed import dies_at
from outcore.compute import jobs
from outcore.formats.zarr import staged as zarr_staged
from stopping import Stop, stop_at

pytest.importorskip("h5py")
pytest.importorskip("netCDF4")

#: Calls before which a process is killed.
STEPS = ("open", "link", "rename", "unlink", "mkdir", "rmdir", "fsync", "fdatasync", "write")
DATA = np.arange(70_000.0).reshape(250, 280)
OLD = np.ones((3, 3))
OTHER = np.arange(7.0)
RESULTS = ["g.zarr::/x", "g.zarr::/group/x", "g.zarr::/new/group/x", "g.h5::/x", "g.h5::/new/x"]
RESULTS += ["g.zarr2::/x", "g.zarr2::/new/group/x", "g.nc::/x", "g.nc::/group/x"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    monkeypatch.setattr(
        importlib.import_module("outcore.compute.jobs.checkpoints"), "_CHECKPOINT", 0.0
    )


def store(outer, *, old=None):
    """A store with things of the user's."""
    shutil.rmtree(outer) if os.path.isdir(outer) else os.path.exists(outer) and os.unlink(outer)
    outcore.create(f"{outer}::/other", data=OTHER).close()
    outcore.create(f"{outer}::/group/y", data=OTHER).close()
    dims = {"dims": ["p", "q"]} if outer == "g.nc" else {}
    if old:
        outcore.create(f"{outer}::{old}", data=OLD, **dims).close()
    if outer == "g.zarr":
        consolidate(f"{outer}/zarr.json", "consolidated_metadata")
    if outer == "g.zarr2":
        consolidate(f"{outer}/.zmetadata", None)
    if os.path.isdir(outer):
        os.mkdir(f"{outer}/.mine.outcore-partial")
        os.mkdir(f"{outer}/group/empty")


def consolidate(file, part):
    """Metadata of the group that say nothing of its members yet."""
    document = json.loads(Path(file).read_text()) if part else {"metadata": {}}
    if part:
        document[part] = {"kind": "inline", "must_understand": False, "metadata": {}}
    Path(file).write_text(json.dumps(document))


def told(outer):
    """Members that the consolidated metadata name; None if there are none."""
    for file, ending in (("zarr.json", ""), (".zmetadata", "/.zarray")):
        if os.path.exists(f"{outer}/{file}"):
            found = json.loads(Path(f"{outer}/{file}").read_text())
            members = found.get("consolidated_metadata", found)["metadata"]
            return {f"/{n.removesuffix(ending)}" for n in members if n.endswith(ending)}
    return None


def arrays(outer):
    """All arrays, their elements, and whatever else is there."""
    names = [one.path.split("::")[1] for one in outcore.ls(outer) if one.kind == "array"]
    found = {}
    for name in sorted(names):
        with outcore.open(f"{outer}::{name}") as array:
            found[name] = array[...].tolist()
    if os.path.isdir(outer):
        hidden = {d for _, folders, _ in os.walk(outer) for d in folders if "outcore" in d}
        assert hidden == {".mine.outcore-partial"}, "only what is the user's"
        assert os.path.isdir(f"{outer}/group/empty")
    else:
        h5py = importlib.import_module("h5py")
        with h5py.File(outer) as file:
            inside = []
            file.visit(inside.append)
        assert not [name for name in inside if "outcore" in name]
    return found


def compute(out, **words):
    outcore.transpose("a.npy", out=out, memory="512 KiB", chunks=(70, 125), **words).close()


@pytest.mark.parametrize("out", RESULTS)
def test_whenever_it_is_killed_all_that_is_left_can_be_removed(out):
    """Before the first record, in the midst, while the array takes its place; or it is gone on with."""
    outer, inner = out.split("::")
    overwrite = inner == "/x"
    store(outer, old=inner if overwrite else None)
    before = arrays(outer)
    after = {**before, inner: DATA.T.tolist()}
    step, died, seen = 1, True, {"removed": 0, "kept": 0, "gone on": 0}
    while died:
        died = dies_at(step, lambda: compute(out, overwrite=overwrite), STEPS)
        left = jobs.unfinished()
        if step % 3 and left:
            compute(out, overwrite=overwrite, resume=True)
            assert arrays(outer) == after, step
            assert inner in (told(outer) or {inner}), step
            seen["gone on"] += 1
        else:
            for one in left:
                jobs.clean(one)
            now = arrays(outer)
            assert now in (before, after), step
            seen["kept" if now == after else "removed"] += 1
        assert sorted(os.listdir()) == ["a.npy", outer], step
        if arrays(outer) == after:
            store(outer, old=inner if overwrite else None)
        step += 4 if step < 30 else 13
    assert min(seen.values()) > 0, seen


def stopped(out, **words):
    """A job that did some of its steps."""
    with pytest.raises(Stop):
        compute(out, progress=stop_at(0), **words)
    assert jobs.unfinished()


@pytest.mark.parametrize("out", ["g.zarr::/x", "g.zarr2::/x", "g.h5::/x", "g.nc::/x"])
def test_old_array_stays_until_the_new_one_is_complete(out):
    outer, inner = out.split("::")
    store(outer, old=inner)
    stopped(out, overwrite=True)
    assert outcore.ls(outer) and not [e for e in outcore.ls(outer) if "outcore" in e.path]
    with outcore.open(out) as array:
        np.testing.assert_array_equal(OLD, array[...])
    compute(out, overwrite=True, resume=True)
    with outcore.open(out) as array:
        np.testing.assert_array_equal(DATA.T, array[...])


@pytest.mark.parametrize("out", ["g.zarr::/x", "g.zarr2::/new/x", "g.h5::/x"])
def test_resume_does_not_replace_an_array_created_since(out):
    outer, inner = out.split("::")
    store(outer)
    stopped(out)
    outcore.create(out, data=OLD).close()
    with pytest.raises(outcore.errors.AlreadyExistsError):
        compute(out, resume=True)
    with outcore.open(out) as array:
        np.testing.assert_array_equal(OLD, array[...])
    (left,) = jobs.unfinished()
    jobs.clean(left)
    assert sorted(arrays(outer)) == sorted(["/other", "/group/y", inner])


def test_a_group_that_appeared_meanwhile_takes_the_array():
    store("g.zarr")
    stopped("g.zarr::/new/x")
    outcore.create("g.zarr::/new/mine", data=OLD).close()
    compute("g.zarr::/new/x", resume=True)
    assert sorted(arrays("g.zarr")) == ["/group/y", "/new/mine", "/new/x", "/other"]


@pytest.mark.parametrize("inner", ["/other/x", "/group", "/group/y"])
def test_a_place_where_no_array_can_be_is_refused_at_the_beginning(inner):
    store("g.zarr")
    before = arrays("g.zarr")
    with pytest.raises(outcore.OutcoreError):
        compute(f"g.zarr::{inner}", overwrite=inner == "/group")
    assert arrays("g.zarr") == before and sorted(os.listdir()) == ["a.npy", "g.zarr"]


def test_leftovers_in_an_open_file_stay_listed():
    h5py = importlib.import_module("h5py")
    store("g.h5")
    stopped("g.h5::/x")
    (left,) = jobs.unfinished()
    with h5py.File("g.h5"), pytest.raises(outcore.errors.UsageError, match="open in this process"):
        jobs.clean(left)
    assert jobs.unfinished() == [left]
    jobs.clean(left)
    assert sorted(arrays("g.h5")) == ["/group/y", "/other"] and jobs.unfinished() == []


def test_leftovers_that_cannot_be_removed_stay_listed(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    store("g.zarr")
    stopped("g.zarr::/x")
    (left,) = jobs.unfinished()
    with monkeypatch.context() as patch:
        patch.setattr(zarr_staged.shutil, "rmtree", refuse)
        with pytest.raises(outcore.errors.StorageError, match="ermission"):
            jobs.clean(left)
    assert jobs.unfinished() == [left]
    jobs.clean(left)
    assert jobs.unfinished() == []


def test_a_container_that_is_gone_or_another_one_keeps_no_journal_alive():
    for outer in ("g.zarr", "g.h5"):
        store(outer)
        stopped(f"{outer}::/x")
        shutil.rmtree(outer) if os.path.isdir(outer) else os.unlink(outer)
        jobs.clean(jobs.unfinished()[0])
        assert os.listdir() == ["a.npy"]
    store("g.h5")
    stopped("g.h5::/x")
    Path("g.h5").write_text("mine now")
    jobs.clean(jobs.unfinished()[0])
    assert sorted(os.listdir()) == ["a.npy", "g.h5"]
    assert Path("g.h5").read_text() == "mine now"


def test_no_array_of_a_store_is_replaced_in_a_race(monkeypatch):
    """Another process is faster, after the last look."""
    store("g.zarr")
    whole = []
    plain = zarr_staged.check_place

    def check_place(*words):
        plain(*words)
        if whole:
            outcore.create("g.zarr::/x", data=OLD).close()

    monkeypatch.setattr(zarr_staged, "check_place", check_place)
    with pytest.raises(outcore.errors.AlreadyExistsError):
        compute("g.zarr::/x", progress=lambda done, total: done == total and whole.append(1))
    with outcore.open("g.zarr::/x") as array:
        np.testing.assert_array_equal(OLD, array[...])
