"""
What is removed as somebody's leftover is looked at again under its lock.

Each test lets another process finish, or begin, between the look and the lock.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import outcore
import outcore.ranks.restart.calls
from outcore import _core
from outcore.compute import jobs
from outcore.compute.jobs.journal import Journal
from outcore.errors import (
    CollectiveError,
    FormatError,
    OutcoreError,
    UnsupportedError,
    UsageError,
)
from outcore.formats import durable, locks, npy, unfinished
from outcore.formats.parts import files as part_files
from outcore.formats.zarr import store as zarr_store
from outcore.problems.placement import making
from outcore.ranks.restart.calls import checkpoint, restore
from outcore.ranks.restart.folder import CheckpointManifest, Folder

ROWS = outcore.mpi.Distribution((6, 4), ["block", "*"], 1)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def other(script):
    """Let another process do something to the end."""
    words = [sys.executable, "-c", "import numpy as np, outcore\n" + script]
    subprocess.run(words, check=True, timeout=60)


@pytest.mark.parametrize("step", ["begin", "publish"])
def test_generation_that_counts_by_then_stays(monkeypatch, step):
    """A lists the generation that B makes; B lets it count; A gets the lock."""
    outcore.mpi.checkpoint("state", {"u": np.zeros(3), "z.zarr": np.zeros(3)})
    mine = Folder("state")
    if step == "publish":
        number = mine.begin()
    theirs = Folder("state")
    fresh = theirs.begin()
    for name in ("u.npy", "z.zarr"):
        outcore.create(theirs.get_path(fresh, name), data=np.ones(3)).close()
    entries = {**theirs.read().arrays}
    hold = durable.hold

    def late(path, *, look=False):
        if look and path == mine.get_path(fresh):
            monkeypatch.setattr(durable, "hold", hold)
            theirs.publish(CheckpointManifest(fresh, entries, {}))
            theirs.end()
        return hold(path, look=look)

    monkeypatch.setattr(durable, "hold", late)
    if step == "begin":
        mine.begin()
        named = fresh
    else:
        outcore.create(mine.get_path(number, "u.npy"), data=np.full(3, 2.0)).close()
        outcore.create(mine.get_path(number, "z.zarr"), data=np.full(3, 2.0)).close()
        mine.publish(CheckpointManifest(number, entries, {}))
        named = fresh
    mine.end()
    assert Folder("state").read().generation == named
    assert all(array.tolist() == [1, 1, 1] for array in restore("state").values())


def test_reader_notices_a_number_that_is_used_again(monkeypatch):
    """The manifest names the same number before and after, but another checkpoint."""
    checkpoint("state", {"u": np.zeros(3), "v": np.zeros(3)})
    opened = outcore.ranks.restart.calls.open

    def late(path, *words, **more):
        if path.endswith("v.npy"):
            monkeypatch.setattr(outcore.ranks.restart.calls, "open", opened)
            checkpoint("state", {"u": np.ones(3), "v": np.ones(3)})
            folder = Folder("state")
            old = folder.read()
            os.rename("state/arrays-2", "state/arrays-1")
            part_files.rewrite("state/checkpoint.json", {**old.to_document(), "generation": 1})
        return opened(path, *words, **more)

    monkeypatch.setattr(outcore.ranks.restart.calls, "open", late)
    assert {name: array[0] for name, array in restore("state").items()} == {"u": 1, "v": 1}


def test_placement_that_another_process_makes_is_refused():
    """A has made its files; B wants the same name, before A has written the manifest."""
    name, write = making._write_manifest, []

    def late(group, made):
        made.write_section(..., np.ones((6, 4)))
        with pytest.raises(CollectiveError, match="another process is creating"):
            outcore.mpi.create_placed("a", ROWS, "i4", placement="local")
        write.append(1)
        name(group, made)

    making._write_manifest = late
    try:
        outcore.mpi.create_placed("a", ROWS, "f8", placement="local").close()
    finally:
        making._write_manifest = name
    assert write and outcore.mpi.open_placed("a").read_section(...).tolist() == [[1] * 4] * 6
    assert sorted(os.listdir("a")) == ["placement.json", "rank-0000.npy"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_placement_that_is_whole_by_then_is_looked_at_again(monkeypatch, overwrite):
    """B finds an unfinished folder; A finishes; B gets the lock."""
    os.mkdir("a")
    Path("a/placement.unfinished").touch()
    held = making._lock_note

    def late(note, name):
        monkeypatch.setattr(making, "_lock_note", held)
        outcore.mpi.create_placed("a", ROWS, "f8", placement="local").close()
        return held(note, name)

    monkeypatch.setattr(making, "_lock_note", late)
    if not overwrite:
        lexists = os.path.lexists
        monkeypatch.setattr(os.path, "lexists", lambda path: path != "a" and lexists(path))
        with pytest.raises(CollectiveError, match="already exists"):
            outcore.mpi.create_placed("a", ROWS, "i4", placement="local")
    else:
        outcore.mpi.create_placed("a", ROWS, "i4", placement="local", overwrite=True).close()
    assert outcore.mpi.open_placed("a").dtype == (np.int32 if overwrite else np.float64)
    assert sorted(os.listdir("a")) == ["placement.json", "rank-0000.npy"]


def test_copy_that_another_process_makes_is_refused(monkeypatch):
    """Both would fill the same unfinished file."""
    np.save("s.npy", np.ones((6, 4)))
    write = making.write_slabs

    def late(source, made):
        monkeypatch.setattr(making, "write_slabs", write)
        assert [(one.operation, one.state) for one in jobs.unfinished()] == [("in use", "running")]
        with pytest.raises(CollectiveError, match="locked by another process"):
            outcore.mpi.copy_placed(source, "t.npy", placement="global")
        write(source, made)

    monkeypatch.setattr(making, "write_slabs", late)
    with outcore.mpi.open_placed("s.npy", ROWS) as a:
        outcore.mpi.copy_placed(a, "t.npy", placement="global").close()
    assert np.load("t.npy").sum() == 24
    assert sorted(os.listdir()) == ["s.npy", "t.npy"]


def interrupted(target):
    """Leave a journal, and what it lists, of a job that was killed."""
    partial = f"{os.getcwd()}/{target.removesuffix('.npy')}.outcore-partial.npy"
    np.save(partial, np.zeros(3))
    with Journal(f"{target}.outcore-journal") as journal:
        job = {"operation": "transpose", "target": f"{os.getcwd()}/{target}"}
        journal.begin(job, {"partial": [[partial, None]]}, 3)
    return partial


def test_job_that_ended_or_changed_is_not_removed():
    partial = interrupted("b.npy")
    (one,) = jobs.unfinished()
    # It went on, and ended; then another one that makes the same array began.
    os.unlink(one.path)
    jobs.clean(one)
    assert os.path.exists(partial) and not os.path.exists(one.path)
    with Journal(one.path) as journal:
        journal.begin({"operation": "argsort", "target": one.targets[0]}, {}, 3)
    with pytest.raises(UsageError, match="now belongs to another job") as found:
        jobs.clean(one)
    assert found.value.code == "other-job"
    assert os.path.exists(partial) and os.path.exists(one.path)


@pytest.mark.parametrize("alive", [False, True])
def test_damaged_journal_that_makes_sense_by_then_stays(alive):
    Path("b.npy.outcore-journal").write_text("no journal\n")
    (one,) = jobs.unfinished()
    os.unlink(one.path)
    with Journal(one.path) as journal:
        journal.begin({"operation": "argsort", "target": "b.npy"}, {}, 3)
        if alive:
            with pytest.raises(UsageError, match="locked by another process"):
                jobs.clean(one)
    if not alive:
        with pytest.raises(UsageError, match="now belongs to another job"):
            jobs.clean(one)
    assert os.path.exists(one.path)


def test_parts_that_another_change_notes_stay(monkeypatch):
    """B wants to settle what A left, while A is about to make its parts; B waits for A."""
    note, threads = part_files.ManifestChange.note, []

    def late(change, array_id, parts):
        note(change, array_id, parts)
        if not threads:
            script = (
                "outcore.create('a.parts', data=np.full(4, 2.0), parts=2, overwrite=True).close()"
            )
            threads.append(threading.Thread(target=other, args=(script,)))
            threads[0].start()
            threads[0].join(1.0)
            assert threads[0].is_alive(), "the other one did not wait"

    monkeypatch.setattr(part_files.ManifestChange, "note", late)
    outcore.create("a.parts", data=np.ones(4), parts=2).close()
    threads[0].join()
    assert outcore.open("a.parts")[...].tolist() == [2] * 4
    assert len(os.listdir()) == 3


@pytest.mark.parametrize("kind", ["file", "zarr"])
def test_creation_under_way_stays(kind):
    """It is old, but its maker holds it."""
    if kind == "file":
        file = _core.TempFile("a.npy", False)
        outcore.create("a.npy", data=np.zeros(3)).close()
        os.pwrite(file.fileno(), b"mine", 0)
        file.publish()
        file.close()
        assert Path("a.npy").read_text() == "mine"
        return

    def build(fresh):
        (shelter,) = (name for name in os.listdir() if durable.is_temporary_name(name))
        os.utime(shelter, (0, 0))
        zarr_store._remove_stale_staging(os.getcwd())
        Path(f"{fresh}/x").write_text("mine")

    zarr_store.publish(f"{os.getcwd()}/z", build, exclusive=True)
    assert Path("z/x").read_text() == "mine"


def test_growth_that_ended_by_then_is_not_cut_off(monkeypatch):
    """B finds the note of A's append; A ends it, and appends once more; B gets the lock."""
    outcore.create("a.raw", data=np.arange(4.0)).close()
    unfinished.begin("a.raw", 32, 64)
    growing = locks.lock_length

    def late(path):
        monkeypatch.setattr(locks, "lock_length", growing)
        with open("a.raw", "r+b") as file:
            file.seek(32)
            file.write(np.full(4, 7.0).tobytes())
        unfinished.end("a.raw", 64)
        other("outcore.open('a.raw', 'r+', dtype='f8', shape=(-1,)).append(np.full(2, 9.0))")
        return growing(path)

    monkeypatch.setattr(locks, "lock_length", late)
    with outcore.open("a.raw", "r+", dtype="f8", shape=(-1,)) as a:
        assert a[...].tolist() == [0, 1, 2, 3, 7, 7, 7, 7, 9, 9]


# What is on the disk before something counts, or goes


def recorded(monkeypatch):
    """The syncs of files and folders from here on: kind, and names below the working folder."""
    calls, fsync, fsync_folder = [], os.fsync, _core.fsync_folder
    here = os.path.join(os.getcwd(), "")

    def file(fd):
        calls.append(("file", os.readlink(f"/proc/self/fd/{fd}").removeprefix(here)))
        fsync(fd)

    def folder(path):
        calls.append(("folder", os.path.dirname(os.path.realpath(path)).removeprefix(here[:-1])))
        fsync_folder(path)

    monkeypatch.setattr(os, "fsync", file)
    monkeypatch.setattr(_core, "fsync_folder", folder)
    return calls


def test_note_of_parts_is_durable_before_a_part_is_made(monkeypatch):
    calls, create = recorded(monkeypatch), npy.Npy.create

    def made(self, path, *words):
        calls.append(("part", path))
        return create(self, path, *words)

    monkeypatch.setattr(npy.Npy, "create", made)
    outcore.create("a.parts", data=np.ones(4), parts=2).close()
    (note, name), (folder, _), (part, _) = calls[:3]
    assert (note, folder, part) == ("file", "folder", "part")
    assert name.startswith(".a.parts.") and name.endswith(".outcore-parts"), calls


def test_names_of_a_checkpoint_are_durable_before_its_manifest(monkeypatch):
    calls, create = recorded(monkeypatch), durable.create_file

    def made(path, *words, **more):
        if path.endswith("checkpoint.json"):
            calls.append(("manifest", ""))
        return create(path, *words, **more)

    monkeypatch.setattr(durable, "create_file", made)
    outcore.mpi.checkpoint("state", {"u": np.ones(3), "z.zarr": np.ones(3)})
    before = calls[: calls.index(("manifest", ""))]
    assert before[-1] == ("folder", "/state/arrays-1"), before


def test_damaged_manifest_of_parts_is_not_taken_for_none():
    """It may name parts of which there is a note."""
    outcore.create("a.parts", data=np.ones(4), parts=2).close()
    said = json.loads(Path("a.parts").read_text())
    place = os.path.realpath("a.parts")
    with part_files.ManifestChange(place, place) as change:
        change.note(said["id"], [os.path.realpath(part) for part in said["parts"]])
        Path("a.parts").write_text('{"format": "outcore parts", "ver')
    with part_files.ManifestChange(place, place):
        pass
    assert all(os.path.exists(part) for part in said["parts"])
    Path("a.parts").write_text(json.dumps(said))
    with part_files.ManifestChange(place, place):
        pass
    assert outcore.open("a.parts")[...].tolist() == [1] * 4
    assert sorted(os.listdir()) == sorted(["a.parts", *said["parts"]])


def test_size_that_was_taken_within_an_append_is_taken_again(monkeypatch):
    """The append ends between the look at the size and the look for its record."""
    outcore.create("a.raw", data=np.arange(4.0)).close()
    unfinished.begin("a.raw", 32, 64)
    read = unfinished._read_record

    def late(path, **words):
        monkeypatch.setattr(unfinished, "_read_record", read)
        unfinished.end("a.raw", 64)
        return read(path, **words)

    monkeypatch.setattr(unfinished, "_read_record", late)
    assert unfinished.read_size("a.raw") == 64


# Manifests that are damaged


def test_checkpoint_over_a_damaged_manifest_is_written():
    """As the message says; not over what may be somebody else's."""
    for text in ("", "{", "[]", '{"format": "outcore checkpoint"}', "[" * 10_000):
        checkpoint("state", {"u": np.zeros(3)})
        (old,) = (name for name in os.listdir("state") if name.startswith("arrays-"))
        Path("state/checkpoint.json").write_text(text)
        with pytest.raises(FormatError, match="create the checkpoint again"):
            restore("state")
        mine = Folder("state")
        number = mine.begin()
        assert os.path.exists(f"state/{old}/u.npy"), "it may be the one that counts"
        mine.end()
        checkpoint("state", {"u": np.ones(3)})
        assert restore("state")["u"].sum() == 3, text
        assert not os.path.exists(f"state/{old}") and number != int(old[7:]), text
    for text in ('{"format": "mine"}', "{}", "{"):
        shutil.rmtree("state")
        os.mkdir("state")
        Path("state/checkpoint.json").write_text(text)
        with pytest.raises(FormatError, match="metadata"):
            checkpoint("state", {"u": np.ones(3)})
        assert Path("state/checkpoint.json").read_text() == text
    Path("state/checkpoint.json").write_text('{"format": "outcore checkpoint", "version": 2}')
    with pytest.raises(UnsupportedError):
        checkpoint("state", {"u": np.ones(3)})
    Path("state/checkpoint.json").write_text("")
    Path("state/thesis.tex").touch()
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        checkpoint("state", {"u": np.ones(3)})


def test_halves_of_characters_are_refused_in_checkpoints():
    """They have no form in UTF-8, in which the manifest is."""
    checkpoint("state", {"u": np.zeros(3)})
    for arrays in (
        {"\ud800": np.ones(3)},
        {"u\udcff.zarr": np.ones(3)},
        {"\ud800": 5},
        {"step": "\ud800"},
        {"step": {"\udfff": [1]}},
        {"step": ["a", ("\ud800",)]},
    ):
        with pytest.raises(UsageError) as caught:
            checkpoint("state", arrays)
        assert caught.value.code == "bad-checkpoint", ascii(arrays)
        with pytest.raises(OutcoreError):
            restore("state", names=list(arrays)[:1] + ["\ud800"])
    assert restore("state")["u"].tolist() == [0] * 3
