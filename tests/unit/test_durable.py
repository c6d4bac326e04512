"""Names on disk change at once or not at all."""

import os

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
