"""Side files that others made, or may write, and those that name other folders: told, left alone."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore.compute import jobs
from outcore.compute.jobs.calls import encode
from outcore.compute.jobs.journal import Journal
from outcore.errors import OutcoreError
from outcore.formats import durable, side_files, unfinished
from outcore.formats.hdf5 import redo as hdf5_redo
from outcore.formats.parts import files as part_files

OTHER = 54321
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def dying(module, name, work):
    """Do something in a process that dies where it would call a function."""
    child = os.fork()
    if child == 0:
        setattr(module, name, lambda *words, **more: os._exit(0))
        work()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def growth():
    outcore.create("a.raw", data=np.arange(4.0)).close()
    dying(unfinished, "end", lambda: outcore.open(*RAW, dtype="f8", shape=(-1,)).append([7.0]))
    return unfinished.make_record_path("a.raw"), "a.raw"


def redo():
    outcore.create("a.h5::/x", data=np.arange(4.0)).close()
    words = {"attrs": {"units": "K"}}
    dying(hdf5_redo, "_apply", lambda: outcore.open("a.h5::/x", "r+").attrs.update(words["attrs"]))
    return hdf5_redo.make_log_path("a.h5"), "a.h5"


def note():
    outcore.create("a.parts", data=np.arange(4.0), parts=2).close()
    dying(os, "unlink", lambda: part_files.remove("a.parts"))
    (found,) = (n for n in os.listdir() if n.endswith("outcore-parts") and "lock" not in n)
    return found, "a.parts"


def journal():
    np.save("a.npy", np.arange(4.0))

    def stop(done, total):
        raise KeyboardInterrupt

    with Journal(f"{os.getcwd()}/b.npy.outcore-journal") as made:
        partial = f"{os.getcwd()}/b.outcore-partial.npy"
        np.save(partial, np.zeros(4))
        made.begin({"operation": "transpose", "target": "b.npy"}, {"partial": [[partial, None]]}, 3)
    return "b.npy.outcore-journal", "a.npy"


RAW = ("a.raw", "r+")
USES = {
    growth: [
        lambda: outcore.open(*RAW, dtype="f8", shape=(-1,)),
        lambda: outcore.open("a.raw", dtype="f8", shape=(-1,)),
    ],
    redo: [
        lambda: outcore.open("a.h5::/x"),
        lambda: outcore.open("a.h5::/x", "r+"),
    ],
    note: [lambda: outcore.open("a.parts", "r+").append([1.0])],
    journal: [
        lambda: jobs.clean(jobs.unfinished()[0]),
        jobs.resume,
        lambda: outcore.transpose(outcore.open("a.npy"), out="b.npy"),
        lambda: outcore.transpose(outcore.open("a.npy"), out="b.npy", resume=True),
    ],
}


def link(path):
    os.rename(path, f"{path}.elsewhere")
    os.symlink(f"{path}.elsewhere", path)


def pipe(path):
    os.unlink(path)
    os.mkfifo(path)


SPOILED = {
    "another user's": lambda path: os.chown(path, OTHER, -1),
    "a group may write it": lambda path: os.chmod(path, 0o664),
    "all may write it": lambda path: os.chmod(path, 0o606),
    "a link": link,
    "a pipe": pipe,
}


def state(folder="."):
    """Names, kinds and contents of all files."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_uid, content)
    return found


@pytest.mark.parametrize("left", list(USES))
def test_untrusted_side_files_are_reported_and_not_changed(tmp_path, monkeypatch, left):
    for name, spoil in SPOILED.items():
        for number, use in enumerate(USES[left]):
            folder = tmp_path / f"{name} {number}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            side, _ = left()
            spoil(side)
            before = state()
            if left is note:
                with pytest.warns(UserWarning, match="is not trusted"):
                    use()
                assert state()[side] == before[side], name
                assert {k for k in before if k.endswith(".npy")} <= set(state()), name
                continue
            if use is jobs.resume:
                if name not in ("a link", "a pipe"):
                    with pytest.warns(UserWarning, match="it is skipped"):
                        assert use() == []
            elif left is journal and use is USES[journal][0] and name in ("a link", "a pipe"):
                pass  # not listed, or told as a link
            else:
                with pytest.raises(OutcoreError) as caught:
                    use()
                assert caught.value.code == side_files.UNTRUSTED, (name, str(caught.value))
                assert "is not trusted" in str(caught.value), name
            assert state() == before, name


@pytest.mark.parametrize("left", [growth, redo, note])
def test_side_files_of_the_user_or_of_the_owner_of_the_data_are_used(tmp_path, monkeypatch, left):
    for name in ("mine", "the owner's"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        side, data = left()
        assert os.stat(side).st_mode & 0o022 == 0, "whatever the umask"
        if name == "the owner's":
            os.chown(side, OTHER, -1)
            os.chown(data, OTHER, -1)
        USES[left][-1 if left is not growth else 0]()
        assert not os.path.lexists(side), name


def test_side_files_are_never_writable_by_groups(monkeypatch):
    old = os.umask(0o002)
    try:
        for left in USES:
            side, _ = left()
            assert os.stat(side).st_mode & 0o022 == 0, side
            assert left is journal or os.stat(side).st_mode & 0o044 == 0o044, side
    finally:
        os.umask(old)


def as_another_user(work):
    """Do something in a child that is another user, who may use no rights of this one."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_another_user_completes_what_the_owner_left_and_nobody_elses(monkeypatch):
    """A user who may write the data, but does not own it."""
    with tempfile.TemporaryDirectory() as folder:  # that of the tests is closed to others
        os.chmod(folder, 0o777)
        monkeypatch.chdir(folder)
        side, data = growth()
        os.chmod(data, 0o666)
        whole = Path(data).read_bytes()

        def opened(mode):
            with outcore.open("a.raw", mode, dtype="f8", shape=(-1,)) as a:
                return a.shape

        def refused():
            for mode in ("r", "r+"):
                with pytest.raises(OutcoreError) as caught:
                    opened(mode)
                assert caught.value.code == side_files.UNTRUSTED

        os.chown(side, OTHER + 1, -1)
        as_another_user(refused)
        assert os.path.exists(side) and Path(data).read_bytes() == whole
        os.chown(side, 0, -1)
        as_another_user(lambda: opened("r+") == (4,) or os._exit(2))
        assert not os.path.exists(side) and os.path.getsize(data) == 32


def test_notes_of_parts_name_parts_of_their_array_alone(tmp_path, monkeypatch):
    """A note of another array's parts, in another folder or in this one."""
    (tmp_path / "other").mkdir()
    (tmp_path / "here").mkdir()
    outcore.create("other/v.parts", data=np.ones(4), parts=2).close()
    said = json.loads(Path("other/v.parts").read_text())
    monkeypatch.chdir("here")
    outcore.create("a.parts", data=np.arange(4.0)).close()
    victims = [str(tmp_path / "other" / name) for name in said["parts"]]
    (tmp_path / "x.npy").touch()
    for parts in (victims, [str(tmp_path / "x.npy")], [f"../other/{said['parts'][0]}"]):
        note = {"id": said["id"], "parts": parts}
        path = Path(f".a.parts.{said['id']}.outcore-parts")
        path.write_text(json.dumps({**note, "check": part_files._compute_checksum(note)}))
        os.chmod(path, 0o644)
        with (
            outcore.open("a.parts", "r+") as a,
            pytest.warns(UserWarning, match="not belong to this array"),
        ):
            a.append([1.0])
        assert path.exists() and all(os.path.exists(one) for one in victims)
        path.write_text(json.dumps({**note, "check": 1}))  # damaged: nothing is made of it
        with outcore.open("a.parts", "r+") as a:
            a.append([1.0])
        assert not path.exists() and all(os.path.exists(one) for one in victims)
    assert (tmp_path / "x.npy").exists()


def forged_journal(folder, partial=(), call=None):
    path = f"{folder}/x.outcore-journal"
    with Journal(path) as made:
        cut = {"partial": [[str(one), None] for one in partial], "call": call}
        made.begin({"operation": "transpose", "target": "x"}, cut, 0)
    return path


def test_journals_remove_nothing_outside_of_their_folder(tmp_path):
    (tmp_path / "here").mkdir()
    victims = [
        tmp_path / "elsewhere" / "v.outcore-partial.zarr",
        tmp_path / "v.outcore-partial.npy",
    ]
    outcore.create(tmp_path / "s.zarr", data=np.ones(4)).close()
    victims[0].parent.mkdir()
    shutil.copytree(tmp_path / "s.zarr", victims[0])
    np.save(victims[1], np.ones(4))
    os.symlink(victims[0].parent, tmp_path / "here" / "link")
    for victim in (
        *victims,
        f"{tmp_path}/here/../{victims[1].name}",
        "here/link/" + victims[0].name,
    ):
        journal = forged_journal("here", [victim])
        before = state(tmp_path)
        (one,) = jobs.unfinished("here")
        with pytest.raises(OutcoreError) as caught:
            jobs.clean(one)
        assert caught.value.code == "names-outside", victim
        assert state(tmp_path) == before, victim
        os.unlink(journal)
    forged_journal("here", victims)
    (one,) = jobs.unfinished("here")
    jobs.clean(one, folders=[tmp_path, tmp_path / "elsewhere"])
    assert not any(victim.exists() for victim in victims)


def test_journals_make_nothing_outside_of_their_folder(tmp_path):
    """Whatever words a call has."""
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "victim.npy", np.ones(3))
    for name in ("here", "disk"):
        (tmp_path / name).mkdir()
    good = {
        "function": "transpose",
        "inputs": [encode({"path": str(tmp_path / "a.npy"), "options": {}})],
        "out": [str(tmp_path / "here" / "b.npy")],
        "out_name": "out",
        "in_names": [],
        "arguments": {},
        "how": {},
        "memory": 1 << 20,
        "overwrite": True,
    }
    victim = str(tmp_path / "victim.npy")
    for code, change in (
        ("names-outside", {"out": [victim]}),
        ("names-outside", {"how": {"format": "parts", "folders": [str(tmp_path / "disk")]}}),
        ("names-outside", {"how": {"format": "raw", "files": [victim]}}),
        ("bad-journal", {"out_name": "dtype", "arguments": {"out": victim}}),
        ("bad-journal", {"function": "convert", "out_name": "format", "how": {"dst": victim}}),
        ("bad-journal", {"function": "checkpoint", "out_name": "path"}),
        ("bad-journal", {"function": "memory"}),
        ("bad-journal", {"function": "os"}),
        ("bad-journal", {"function": 7}),
        ("bad-journal", {"inputs": 5}),
        ("bad-journal", {"inputs": [encode({"path": 5})]}),
        ("bad-journal", {"arguments": {"axes": {"slice": 3}}}),
        ("bad-journal", {"arguments": {"axes": {"dtype": "no"}}}),
        ("bad-journal", {"arguments": {"axes": {}}}),
        ("bad-journal", {"arguments": None}),
        ("bad-journal", {"out": None}),
        ("bad-journal", {"out": []}),
        ("bad-journal", {"out_name": None}),
    ):
        call = {**good, **change}
        journal = forged_journal(tmp_path / "here", [], call)
        before = state(tmp_path)
        with pytest.raises(OutcoreError) as caught:
            jobs.resume(tmp_path / "here")
        assert caught.value.code == code, (change, str(caught.value))
        assert state(tmp_path) == before, change
        os.unlink(journal)
    # Where the user says so.
    call = {**good, "out": [str(tmp_path / "disk" / "b.npy")]}
    forged_journal(tmp_path / "here", [], call)
    jobs.resume(tmp_path / "here", folders=[tmp_path / "disk"])
    assert np.load(tmp_path / "disk" / "b.npy").shape == (3, 2)


def test_a_side_file_that_is_made_is_not_somebody_elses():
    """Somebody put a file there beforehand, to write into it later."""
    outcore.create("a.raw", data=np.arange(4.0)).close()
    name = unfinished.make_record_path("a.raw")
    Path(name).touch()
    os.chown(name, OTHER, -1)
    with pytest.raises(OutcoreError, match="is not trusted"):
        unfinished.begin("a.raw", 32, 40)
    assert os.path.getsize(name) == 0 and durable.read_at(os.open("a.raw", os.O_RDONLY), 99, 0)
