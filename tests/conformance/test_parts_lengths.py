"""Arrays in parts that become longer and shorter: equality, kills, failures, and who else has them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import test_parts as one_array
from test_parts import by_numpy, known, left

import outcore
from outcore import formats
from outcore.cli import main as command
from outcore.formats import durable, npy, whole
from outcore.formats.parts import files as part_files
from outcore.formats.parts import format as parts
from outcore.formats.parts import manifest as part_manifest
from outcore.testing.sim import SimWorld

quick = one_array.quick
OLD = np.arange(1.0, 19.0).reshape(6, 3)
MORE = np.arange(101.0, 116.0).reshape(5, 3)


def make(folder):
    """Three parts of two rows, in three folders."""
    for name in ("one", "two"):
        (folder / name).mkdir(exist_ok=True)
    where = [folder / "one", folder / "two", folder]
    outcore.create(folder / "a.parts", data=OLD, folders=where).close()
    return folder / "a.parts"


def sized(path):
    """The bytes of each part."""
    return [os.path.getsize(name) for name in whole.list_files(str(path))[1:]]


def is_exact(path):
    """No part has more than its rows."""
    manifest = part_manifest.read_manifest(str(path))
    for number, name in enumerate(manifest.parts):
        part = np.load(name)
        assert part.shape == manifest.shape_of(number)
        assert (
            os.path.getsize(name)
            == npy.Npy().describe(name, None, False).layout.parts[0].offset + part.nbytes
        )
    return True


def of_length(data, count, axis):
    """What `resize` makes of it."""
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    found = np.zeros(shape, data.dtype)
    both = tuple(slice(min(a, b)) for a, b in zip(data.shape, shape, strict=True))
    found[both] = data[both]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_numpy_reads_what_has_another_length(tmp_path, seed):
    chance = random.Random(seed)
    data, options = one_array.random_case(seed, tmp_path)
    data = data if data.ndim else data.reshape(1)
    path = tmp_path / "a.parts"
    with outcore.create(path, data=data, **options) as a:
        axis = data.ndim - 1 if a.order == "F" else 0
        for _ in range(6):
            rows = data.shape[axis]
            if chance.random() < 0.6:
                more = of_length(data, chance.randint(0, 7), axis)
                a.append(more, axis)
                data = np.concatenate([data, more], axis)
            else:
                data = of_length(data, chance.randint(0, 2 * rows + 1), axis)
                a.resize(data.shape)
            assert a.shape == data.shape
            np.testing.assert_array_equal(data, a[...])
            np.testing.assert_array_equal(data, by_numpy(path))
            assert is_exact(path)
    with outcore.open(path, "r+") as a:
        np.testing.assert_array_equal(data, a[...])
        a[...] = data[::-1]
        np.testing.assert_array_equal(data[::-1], by_numpy(path))
    assert outcore.verify(path) == []
    assert left(tmp_path) == known(path)


def test_appended_parts_are_read_and_written_collectively(tmp_path, monkeypatch):
    path, data = make(tmp_path), np.concatenate([OLD, MORE])
    with outcore.open(path, "r+") as a:
        a.append(MORE)

    def work(t):
        with outcore.open(path, "r+", comm=t) as b:
            np.testing.assert_array_equal(data, b.read_all())
            mine = np.s_[t.rank :: t.size]
            b.write_all(mine, data[mine] + 1)
            b.flush_all()

    SimWorld(3).run(work)
    np.testing.assert_array_equal(data + 1, by_numpy(path))
    monkeypatch.chdir(tmp_path)
    os.mkdir("there")
    assert command(["cp", "a.parts", "b.parts"]) == 0
    assert command(["mv", "b.parts", "there"]) == 0
    assert command(["chmod", "600", "there/b.parts"]) == 0
    with outcore.open("there/b.parts", "r+") as a:
        a.append(MORE[:2])
    np.testing.assert_array_equal(
        np.concatenate([data + 1, MORE[:2]]), by_numpy(Path("there/b.parts"))
    )
    assert {os.stat(name).st_mode & 0o777 for name in known("there/b.parts")} == {0o600}
    for words in (["du"], ["ls"], ["verify"], ["gather"]):
        assert command([*words, "there/b.parts", *(["g.npy"] if words == ["gather"] else [])]) == 0
    assert np.load("g.npy").shape == (13, 3)
    assert command(["rm", "there/b.parts", "a.parts", "g.npy"]) == 0
    assert left(tmp_path) == []


def test_a_manifest_and_parts_from_elsewhere(tmp_path):
    """As the page about them tells it, of version 1, by NumPy alone."""
    array_id = "0123456789abcdef"
    names = [f"x-{array_id}-{k}.npy" for k in range(2)]
    np.save(tmp_path / names[0], OLD[[0, 1, 4, 5]])
    np.save(tmp_path / names[1], OLD[[2, 3]])
    said = {
        "format": "outcore parts",
        "version": 1,
        "id": array_id,
        "shape": [6, 3],
        "dtype": "<f8",
    }
    (tmp_path / "x.parts").write_text(
        json.dumps({**said, "order": "C", "stripe": 2, "parts": names})
    )
    with outcore.open(tmp_path / "x.parts", "r+") as a:
        np.testing.assert_array_equal(OLD, a[...])
        a.append(MORE)
    np.testing.assert_array_equal(np.concatenate([OLD, MORE]), by_numpy(tmp_path / "x.parts"))
    assert json.loads((tmp_path / "x.parts").read_text())["version"] == 1


def test_stripes_of_an_array_without_rows(tmp_path):
    """Each is some MiB long; with `stripe=1`, as of a part of nothing, few rows would be all."""
    with outcore.create(tmp_path / "a.parts", (0, 1 << 17), "f8", parts=2) as a:
        assert a.info.extra["stripe"] == 4
        a.append(np.ones((5, 1 << 17)))
    assert [len(np.load(name)) for name in a.info.extra["parts"]] == [4, 1]


def test_more_stripes_than_there_can_be(tmp_path):
    with outcore.create(tmp_path / "a.parts", data=OLD, parts=2, stripe=1) as a:
        before = sized(a.path)
        for change in (
            lambda: a.resize((part_manifest.MOST_STRIPES + 1, 3)),
            lambda: a.append(np.zeros((part_manifest.MOST_STRIPES, 3))),
        ):
            with pytest.raises(outcore.errors.UnsupportedError, match="larger stripe=") as caught:
                change()
            assert caught.value.code == "cannot-resize"
        with pytest.raises(
            outcore.errors.UnsupportedError, match="only change its length along axis 0"
        ):
            a.append(np.zeros((6, 1)), 1)
        assert sized(a.path) == before
        np.testing.assert_array_equal(OLD, a[...])


# Rows behind the end


def test_parts_may_have_more_rows_than_the_manifest_says(tmp_path):
    path = make(tmp_path)
    said = path.read_text()
    with outcore.open(path, "r+") as a:
        a.append(MORE)
    path.write_text(said)  # as after a kill right before the manifest was replaced
    with outcore.open(path, "r+") as a:
        np.testing.assert_array_equal(OLD, a[...])
        np.testing.assert_array_equal(OLD, by_numpy(path))
        a.resize((9, 3))
        np.testing.assert_array_equal(of_length(OLD, 9, 0), a[...])
    assert is_exact(path)


@pytest.mark.parametrize("shape", [(1, 3), (4, 2), (4,)])
def test_a_part_with_fewer_rows_or_other_ones_is_named(tmp_path, shape):
    path = make(tmp_path)
    np.save(whole.list_files(str(path))[2], np.zeros(shape))
    with pytest.raises(outcore.errors.FormatError, match="part 1 of 3") as caught:
        outcore.open(path)
    assert caught.value.code == "bad-part"


# Kills, failures

CHANGES = {
    "append": (lambda a: a.append(MORE), np.concatenate([OLD, MORE])),
    "longer": (lambda a: a.resize((11, 3)), of_length(OLD, 11, 0)),
    "shorter": (lambda a: a.resize((1, 3)), OLD[:1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_killed_at_each_step(quick, change):
    act, new = CHANGES[change]

    def action(folder):
        with outcore.open(folder / "a.parts", "r+") as a:
            act(a)

    def look(folder):
        with outcore.open(folder / "a.parts") as a:
            np.testing.assert_array_equal(by_numpy(folder / "a.parts"), a[...])
            return a[...].tolist()

    def settle(folder):
        before = by_numpy(folder / "a.parts")
        with outcore.open(folder / "a.parts", "r+") as a:
            a.append(MORE[:1])
            np.testing.assert_array_equal(np.concatenate([before, MORE[:1]]), a[...])
            a.resize((14, 3))
            np.testing.assert_array_equal(of_length(a[: len(before) + 1], 14, 0), a[...])
        assert is_exact(folder / "a.parts")

    seen = one_array.each_kill(quick, make, action, look, settle)
    one_array.switched(seen, OLD.tolist(), new.tolist())


@pytest.mark.parametrize("change", ["append", "longer"])
@pytest.mark.parametrize("name", ["reserve", "resize", "rewrite"])
def test_failed_append_to_parts_is_undone(tmp_path, monkeypatch, change, name):
    """In the second part, or when the manifest is to be replaced."""
    path = make(tmp_path)
    before, said = sized(path), path.read_text()
    module = part_files if name == "rewrite" else npy.Npy
    plain, count = getattr(module, name), [1 if name == "rewrite" else 2]

    def fail(*words):
        count[0] -= 1
        if count[0] == 0:
            raise OSError(28, "No space left on device")
        return plain(*words)

    with outcore.open(path, "r+") as a:
        monkeypatch.setattr(module, name, fail)
        with pytest.raises(OSError, match="No space"):
            CHANGES[change][0](a)
        monkeypatch.undo()
        assert (sized(path), path.read_text()) == (before, said)
        assert is_exact(path)
        np.testing.assert_array_equal(OLD, a[...])
        CHANGES[change][0](a)
        np.testing.assert_array_equal(CHANGES[change][1], a[...])
    assert left(tmp_path) == known(path)


def test_an_error_after_the_manifest_was_replaced_cuts_nothing_off(tmp_path, monkeypatch):
    path = make(tmp_path)
    plain = part_files.rewrite

    def fail(*words):
        plain(*words)
        raise OSError(5, "Input/output error")

    with outcore.open(path, "r+") as a:
        monkeypatch.setattr(part_files, "rewrite", fail)
        with pytest.raises(OSError, match="Input/output"):
            a.append(MORE)
        monkeypatch.undo()
    np.testing.assert_array_equal(np.concatenate([OLD, MORE]), by_numpy(path))
    with outcore.open(path, "r+") as a:
        np.testing.assert_array_equal(np.concatenate([OLD, MORE]), a[...])


# Who else has the array


def test_open_array_reads_on_after_its_length_changes(tmp_path):
    path = make(tmp_path)
    with outcore.open(path) as b, outcore.open(path, "r+") as a:
        np.testing.assert_array_equal(OLD, b[...])
        a.append(MORE)
        np.testing.assert_array_equal(OLD, b[...])
        a.resize((6, 3))
        np.testing.assert_array_equal(OLD, b[...])
        a.resize((4, 3))
        np.testing.assert_array_equal(OLD[:4], b[:4])
        with pytest.raises(outcore.OutcoreError):
            b[...]


@pytest.mark.parametrize("rows", [1, 20])
def test_a_length_that_changes_while_the_array_is_opened(tmp_path, monkeypatch, rows):
    """A reader has read the manifest, and finds parts of the next one."""
    path = make(tmp_path)
    plain, turn = parts._read_part, [1]

    def meanwhile(*words):
        if turn and turn.pop():
            monkeypatch.setattr(parts, "_read_part", plain)
            with outcore.open(path, "r+") as a:
                a.resize((rows, 3))
            monkeypatch.setattr(parts, "_read_part", meanwhile)
        return plain(*words)

    monkeypatch.setattr(parts, "_read_part", meanwhile)
    with outcore.open(path) as b:
        assert len(b) == min(rows, 6)
        np.testing.assert_array_equal(OLD[:rows], b[...])


def test_a_copy_of_what_becomes_shorter_is_none(tmp_path, monkeypatch):
    path = make(tmp_path)
    plain, turn = durable.copy_file, [1]

    def meanwhile(*words, **more):
        if turn and turn.pop():
            with outcore.open(path, "r+") as a:
                a.resize((1, 3))
        return plain(*words, **more)

    monkeypatch.setattr(durable, "copy_file", meanwhile)
    with pytest.raises(outcore.errors.StorageError, match="copy it again") as caught:
        whole.copy(str(path), str(tmp_path / "b.parts"))
    assert caught.value.code == "file-changed"
    assert left(tmp_path) == known(path)
    whole.copy(str(path), str(tmp_path / "b.parts"))
    np.testing.assert_array_equal(OLD[:1], by_numpy(tmp_path / "b.parts"))


@pytest.mark.parametrize("target", ["b.parts", "there/b.parts"])
def test_an_append_waits_for_a_move(tmp_path, monkeypatch, target):
    """Else its manifest would take the old name again, or name parts by paths from the old folder."""
    path = make(tmp_path)
    (tmp_path / "there").mkdir()
    plain, raised = part_files.ManifestChange.take, []

    def append():
        with pytest.raises(outcore.errors.StorageError) as caught:
            a.append(MORE)
        raised.append(caught.value.code)

    thread = threading.Thread(target=append)

    def meanwhile(*words, **more):
        thread.start()
        thread.join(0.3)
        return plain(*words, **more)

    with outcore.open(path, "r+") as a:
        monkeypatch.setattr(part_files.ManifestChange, "take", meanwhile)
        whole.move(str(path), str(tmp_path / target))
        thread.join()
    assert raised == ["not-found"]
    np.testing.assert_array_equal(OLD, by_numpy(tmp_path / target))
    assert left(tmp_path) == known(tmp_path / target)


def test_moves_to_each_others_name_do_not_wait_for_each_other(quick):
    for name in ("a.parts", "b.parts"):
        outcore.create(quick / name, data=OLD, parts=2).close()

    def work(one, other):
        for _ in range(200):
            with contextlib.suppress(outcore.errors.NotFoundError):  # it has the other name
                parts.PartsFormat().move(str(quick / one), str(quick / other), exclusive=False)

    threads = [
        threading.Thread(target=work, args=names, daemon=True)
        for names in (("a.parts", "b.parts"), ("b.parts", "a.parts"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_another_array_under_the_name_is_not_appended_to(tmp_path):
    path = make(tmp_path)
    with outcore.open(path, "r+") as a:
        outcore.create(path, data=OLD + 1, parts=2, overwrite=True).close()
        for change in (lambda: a.append(MORE), lambda: a.resize((2, 3))):
            with pytest.raises(outcore.errors.StorageError, match="open it again") as caught:
                change()
            assert caught.value.code == "file-changed"
    np.testing.assert_array_equal(OLD + 1, by_numpy(path))


def test_a_change_inside_an_append_does_not_wait_for_it(tmp_path):
    """In a handler of a signal, for instance."""
    path = make(tmp_path)
    with outcore.open(path, "r+") as a, formats.begin_growing(a.info):
        for change in (
            lambda: outcore.create(path, data=OLD, parts=2),
            lambda: whole.remove(str(path)),
            lambda: whole.move(str(path), str(tmp_path / "b.parts")),
        ):
            with pytest.raises(outcore.errors.UsageError) as caught:
                change()
            assert caught.value.code == "nested-call"
    np.testing.assert_array_equal(OLD, by_numpy(path))


def test_a_child_that_was_forked_meanwhile_keeps_nobody_waiting(tmp_path):
    path = make(tmp_path)
    done = threading.Thread(
        target=lambda: outcore.create(path, data=OLD + 1, parts=2, overwrite=True).close()
    )
    with part_files.ManifestChange(str(path), str(path)):
        done.start()
        time.sleep(0.2)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    done.join(20)
    waits = done.is_alive()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    done.join()
    assert not waits
    np.testing.assert_array_equal(OLD + 1, by_numpy(path))
