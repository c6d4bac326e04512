"""Manifests that were copied or made elsewhere: they name files of their own array, and no others."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore.errors import CollectiveError, FormatError
from outcore.formats import whole

ROWS = outcore.mpi.Distribution((4, 3), ["block", "*"], 1)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def code_of(work):
    with pytest.raises((FormatError, CollectiveError)) as caught:
        work()
    error = caught.value
    return (error.__cause__ if isinstance(error, CollectiveError) else error).code


def contents(folder):
    return {str(p): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


PLACED = {
    "opened for reading": lambda: outcore.mpi.open_placed("got", mode="r"),
    "opened for writing": lambda: outcore.mpi.open_placed("got", mode="r+"),
    "replaced": lambda: outcore.mpi.create_placed(
        "got", ROWS, "f8", placement="local", overwrite=True
    ),
    "replaced by a copy": lambda: outcore.mpi.copy_placed(
        outcore.mpi.open_placed("s.npy", ROWS), "got", placement="local", overwrite=True
    ),
}


@pytest.mark.parametrize("what", list(PLACED))
def test_placements_name_files_of_their_own(tmp_path, what):
    """By any path, and through links."""
    np.save("s.npy", np.ones((4, 3)))
    outcore.mpi.create_placed("v", ROWS, "f8", placement="local", folders=["disk"]).close()
    victim = next(path for path in Path("disk").iterdir() if path.suffix == ".npy")
    plain = tmp_path / "plain.npy"
    np.save(plain, np.ones((4, 3)))
    outcore.mpi.create_placed("got", ROWS, "f8", placement="local").close()
    good = json.loads(Path("got/placement.json").read_text())
    its_id = json.loads(Path("v/placement.json").read_text())["id"]
    before = contents("disk")
    cases = {
        "an absolute path": ("bad-metadata", {"files": [str(plain)]}),
        "a relative path": ("bad-metadata", {"files": ["../plain.npy"]}),
        "another name in the folder": ("bad-metadata", {"files": ["placement.json"]}),
        "another rank": ("bad-metadata", {"files": ["rank-0001.npy"]}),
        "a path below": ("bad-metadata", {"files": ["x/rank-0000.npy"]}),
        "no id": ("bad-metadata", {"files": [str(tmp_path / "disk/-.rank-0000.npy")], "id": ""}),
        "the id of another array": (
            "names-outside",
            {"files": [str(tmp_path / victim)], "id": its_id},
        ),
        "the same, relative": ("names-outside", {"files": [f"../{victim}"], "id": its_id}),
        "a link": ("names-outside", {}),
    }
    for name, (code, change) in cases.items():
        if name == "a link":
            os.unlink("got/rank-0000.npy")
            os.symlink(plain, "got/rank-0000.npy")
        Path("got/placement.json").write_text(json.dumps({**good, **change}))
        assert code_of(PLACED[what]) == code, name
        assert contents("disk") == before and np.load(plain).sum() == 12, name
        assert sorted(os.listdir("got")) == ["placement.json", "rank-0000.npy"], name


def test_placements_with_files_elsewhere_are_used_where_they_were_made():
    made = outcore.mpi.create_placed("v", ROWS, "f8", placement="local", folders=["disk"])
    made.write_section(..., np.ones((4, 3)))
    made.close()
    assert outcore.mpi.open_placed("v").read_section(...).sum() == 12
    shutil.copytree("v", "copy")
    assert code_of(lambda: outcore.mpi.open_placed("copy")) == "names-outside"
    assert outcore.mpi.open_placed("copy", folders=["disk"]).read_section(...).sum() == 12
    again = outcore.mpi.create_placed(
        "v", ROWS, "i4", placement="local", folders=["two"], overwrite=True
    )
    again.close()
    assert os.listdir("disk") == [], "the files, and the mark, of the old array are gone"
    assert outcore.mpi.open_placed("v").dtype == np.int32


PARTS = {
    "opened": lambda: outcore.open("got/v.parts"),
    "written": lambda: outcore.open("got/v.parts", "r+"),
    "copied": lambda: whole.copy("got/v.parts", "x.parts"),
    "moved": lambda: whole.move("got/v.parts", "x.parts"),
    "removed": lambda: whole.remove("got/v.parts"),
}


def test_parts_name_parts_of_their_own(tmp_path):
    """A manifest that was copied to another folder, and one whose parts are links."""
    os.mkdir("home")
    os.mkdir("disk")
    outcore.create("home/v.parts", data=np.ones((4, 3)), parts=2, folders=["disk"]).close()
    with outcore.open("home/v.parts", "r+") as a:
        a.append(np.ones((1, 3)))
        assert a[...].sum() == 15
    said = json.loads(Path("home/v.parts").read_text())
    before = contents("disk")
    for kind in ("absolute", "relative", "link"):
        os.mkdir("got")
        parts = {
            "absolute": said["parts"],
            "relative": [os.path.relpath(part, tmp_path / "got") for part in said["parts"]],
            "link": [os.path.basename(part) for part in said["parts"]],
        }[kind]
        for part in said["parts"] if kind == "link" else ():
            os.symlink(part, f"got/{os.path.basename(part)}")
        Path("got/v.parts").write_text(json.dumps({**said, "parts": parts}))
        for name, use in PARTS.items():
            assert code_of(use) == "names-outside", (kind, name)
            assert contents("disk") == before, (kind, name)
        outcore.create("got/v.parts", data=np.zeros(3), overwrite=True).close()
        assert contents("disk") == before, kind
        shutil.rmtree("got")
    # Moved, or copied, by the user.
    shutil.copytree("home", "got")
    with outcore.open("got/v.parts", "r+", folders=["disk"]) as a:
        a.append(np.ones((2, 3)))
        assert a[...].sum() == 21
    whole.remove("home/v.parts")
    assert os.listdir("disk") == [], "the parts, and the mark"


def test_moved_parts_are_at_home_where_they_are(tmp_path):
    for folder in ("one", "two", "disk"):
        os.mkdir(folder)
    outcore.create("one/v.parts", data=np.ones(4), parts=2, folders=["one", "disk"]).close()
    whole.move("one/v.parts", "two/w.parts")
    assert outcore.open("two/w.parts")[...].sum() == 4
    assert os.listdir("one") == [] and len(os.listdir("disk")) == 2
    whole.copy("two/w.parts", "one/c.parts")
    whole.remove("two/w.parts")
    assert outcore.open("one/c.parts")[...].sum() == 4
    whole.remove("one/c.parts")
    assert os.listdir("disk") == os.listdir("one") == os.listdir("two") == []


def test_checkpoints_name_files_of_their_own():
    np.save("plain.npy", np.arange(3.0))
    outcore.mpi.checkpoint("state", {"u": np.ones(3)})
    os.unlink("state/arrays-1/u.npy")
    os.symlink("../../plain.npy", "state/arrays-1/u.npy")
    assert code_of(lambda: outcore.mpi.restore("state")) == "names-outside"
    outcore.mpi.checkpoint("state", {"u": np.ones(3)})
    assert np.load("plain.npy").sum() == 3 and not os.path.lexists("state/arrays-1")
