"""HDF5 files, killed before each step of a change: the old file or the new one, and all else in it."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from test_formats_killed import dies_at, each_step

import outcore
from killed import check_switched_once
from outcore import _core, errors, formats
from outcore.formats import durable
from outcore.formats.hdf5 import access as hdf5_access
from outcore.formats.hdf5 import redo as hdf5_redo

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")

OLD = np.arange(4000, dtype="i4").reshape(100, 40)
OTHER = np.arange(500.0)


def prepare(path, libver="earliest"):
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("a", data=OLD, chunks=(10, 40), maxshape=(None, 40), compression=1)
        file["a"].attrs["units"] = "K"
        file["other"] = OTHER
    return path


def look(path):
    """By us first, who complete what was begun; then the library must agree."""
    with outcore.open(f"{path}::/a") as a:
        attrs = {name: np.asarray(value).tolist() for name, value in a.attrs.items()}
        found = a.shape, attrs, a[...].tobytes()
    with h5py.File(path) as file:
        assert np.array_equal(OTHER, file["other"][...])
        assert file["a"][...].tobytes() == found[2] and file["a"].shape == found[0]
        names = sorted(file)
    assert [n for n in os.listdir(path.parent) if n.endswith("outcore-redo")] == []
    return (*found, names)


def set_attrs(path):
    formats.set_attrs(formats.open_info(f"{path}::/a"), {"units": "m", "more": list(range(300))})


def add(path):
    formats.create_info(f"{path}::/in/new", (30, 20), "f8", attrs={"x": 1})


def resize(path):
    formats.resize(formats.open_info(f"{path}::/a", writable=True), (35, 40))


def store(path):
    with outcore.open(f"{path}::/a", "r+") as a:
        a[20:30] = np.random.default_rng(1).integers(0, 2**31, (10, 40))


def append(path):
    with outcore.open(f"{path}::/a", "r+") as a:
        a.append(OLD[:23] + 5000)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("action", [set_attrs, add, resize, store, append])
def test_killed_before_each_step(tmp_path, action, libver):
    def fresh(step):
        (tmp_path / str(step)).mkdir()
        return prepare(tmp_path / str(step) / "a.h5", libver)

    old = look(fresh("old"))
    action(fresh("new"))
    new = look(tmp_path / "new" / "a.h5")
    assert old != new
    seen = each_step(fresh, action, look, 6)
    check_switched_once(seen, old, new)


def test_killed_before_each_step_of_naming_what_is_whole(tmp_path):
    """The end of a conversion into a file: the older dataset goes when the new one has its name."""

    def fresh(step):
        (tmp_path / str(step)).mkdir()
        path = prepare(tmp_path / str(step) / "a.h5")
        with outcore.create(
            formats.find_staging_path(f"{path}::/a"), data=OLD[::-1], overwrite=True
        ) as staged:
            staged.flush()
        return path

    def name_it(path):
        formats.publish(f"{path}::/a")

    old = look(fresh("old"))
    name_it(fresh("new"))
    new = look(tmp_path / "new" / "a.h5")
    assert (old[2], new[2]) == (OLD.tobytes(), OLD[::-1].tobytes())
    assert (old[3], new[3]) == ([".a.outcore-partial", "a", "other"], ["a", "other"])
    check_switched_once(each_step(fresh, name_it, look, 6), old, new)


def test_killed_while_recovering(tmp_path):
    """A complete log is copied as often as it takes."""
    old, new = None, None
    for last in range(1, 60):
        path = prepare(tmp_path / f"{last}.h5")
        old = old or look(path)
        died = dies_at(last, lambda: set_attrs(path))  # noqa: B023
        for again in range(1, 12):
            if not dies_at(again, lambda: hdf5_redo.recover(str(path))):  # noqa: B023
                break
        new = look(path)
        assert new == old or new[1]["units"] == "m"
        if not died:
            break
    assert new != old and last > 6


def test_a_failing_change_is_forgotten(tmp_path):
    path = prepare(tmp_path / "a.h5")
    before = path.read_bytes()

    def change_and_fail():
        with hdf5_access.open_for_changes(str(path), "/a") as file:
            file["a"].attrs["units"] = "x" * 1000
            file["new"] = np.zeros(1000)
            file.flush()
            assert hdf5_access.get_path(file) == str(path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        change_and_fail()
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.h5"]


def test_elements_written_in_place_meanwhile_stay(tmp_path):
    """By another thread: its write waits until the change is complete."""
    path = prepare(tmp_path / "a.h5")
    with outcore.open(f"{path}::/other", "r+") as other:
        other[0] = -1
        with hdf5_access.open_for_changes(str(path), "/a") as file:
            file["a"].attrs["units"] = "m"
            file.flush()
            writer = threading.Thread(target=other.write, args=(..., OTHER[::-1]))
            writer.start()
            writer.join(0.05)
            assert writer.is_alive()
        writer.join()
        assert np.array_equal(OTHER[::-1], other[...])
    with h5py.File(path) as file:
        assert np.array_equal(OTHER[::-1], file["other"][...]) and file["a"].attrs["units"] == "m"


def is_complete(log, path):
    with open(log, "rb") as file:
        return hdf5_redo._read_log(file.fileno(), os.stat(path)) is not None


@pytest.mark.parametrize(
    "harm", ["cut", "flip", "place", "size", "other file", "empty", "noise", "link"]
)
def test_logs_that_are_not_to_be_trusted(tmp_path, harm):
    path = prepare(tmp_path / "a.h5")
    before = path.read_bytes()
    log = tmp_path / ".a.h5.outcore-redo"
    for step in range(1, 60):
        log.unlink(missing_ok=True)
        path.write_bytes(before)
        assert dies_at(step, lambda: set_attrs(path)), "no complete log was found"
        if log.exists() and is_complete(log, path) and path.read_bytes()[: len(before)] == before:
            break
    good = log.read_bytes()
    if harm == "other file":
        os.replace(prepare(tmp_path / "b.h5"), path)
        before = path.read_bytes()
    noise = random.Random(1).randbytes(len(good))
    middle = len(good) // 3
    # Where the first of the extents goes, in the table behind the bytes.
    end = len(good) - hdf5_redo._CHECK.size
    table = hdf5_redo._FOOTER.unpack(good[end - hdf5_redo._FOOTER.size : end])[6]
    log.write_bytes(
        {
            "cut": good[:-1],
            "flip": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
            "place": good[:table] + bytes([good[table] ^ 1]) + good[table + 1 :],
            # To which size the file is cut.
            "size": good[: end - 32] + struct.pack("<q", 8) + good[end - 24 :],
            "empty": b"",
            "noise": noise,
        }.get(harm, good)
    )
    if harm == "link":
        os.rename(log, tmp_path / "elsewhere")
        log.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(errors.StorageError):
            formats.open_info(f"{path}::/a")
        return
    assert formats.open_info(f"{path}::/a").attrs["units"] == "K"
    assert path.read_bytes()[: len(before)] == before and not log.exists()


def test_files_open_elsewhere_are_not_changed(tmp_path):
    path = prepare(tmp_path / "a.h5")
    for opened in (h5py.File, netCDF4.Dataset):
        with opened(path), pytest.raises(errors.UsageError) as caught:
            set_attrs(path)
        assert caught.value.code == "file-in-use"
    hold = "import h5py, sys; f = h5py.File(sys.argv[1]); print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", hold, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        patience, hdf5_access.WRITE_TIMEOUT = hdf5_access.WRITE_TIMEOUT, 0.1
        try:
            with pytest.raises(errors.StorageError) as locked:
                set_attrs(path)
        finally:
            hdf5_access.WRITE_TIMEOUT = patience
            other.stdin.close()
    assert locked.value.code == "locked"
    set_attrs(path)


def test_attributes_change_in_the_file_of_an_external_link(tmp_path):
    inner = prepare(tmp_path / "inner.h5")
    with h5py.File(tmp_path / "outer.h5", "w") as file:
        file["far"] = h5py.ExternalLink("inner.h5", "/a")
        file["soft"] = h5py.SoftLink("/far")
    for name in ("far", "soft"):
        formats.set_attrs(formats.open_info(f"{tmp_path}/outer.h5::/{name}"), {"by": name})
        assert formats.open_info(f"{inner}::/a").attrs == {"by": name}
    with h5py.File(tmp_path / "outer.h5") as file:
        assert file["soft"].file.filename == str(inner)


CHANGES = textwrap.dedent(
    """
    import sys, numpy as np, outcore
    from outcore import formats
    path, number = sys.argv[1], 0
    while True:
        if number == 1:
            print(flush=True)  # the first change has imported what the others need
        number += 1
        with outcore.open(path + "::/a", "r+") as a:
            a[...] = np.random.default_rng(number).integers(0, number % 9 + 1, (100, 40))
        formats.set_attrs(formats.open_info(path + "::/a"), {"n": number})
        formats.create_info(path + f"::/new{number % 5}", 50 * (number % 7 + 1), "f4")
    """
)


def test_kill_at_random_moments_slow(tmp_path):
    seed = int(os.environ.get("OUTCORE_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    chance = random.Random(seed)
    path = prepare(tmp_path / "a.h5")
    found = 0
    for _ in range(50):
        words = [sys.executable, "-c", CHANGES, str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            time.sleep(chance.uniform(0, 0.2))
            child.send_signal(signal.SIGKILL)
        shape, attrs, *_ = look(path)
        assert shape == (100, 40)
        found = max(found, attrs.get("n", 0))
    assert found > 3


def test_other_files_that_are_open_in_this_process_do_not_matter(tmp_path):
    """Files of other drivers have no descriptor; the library crashed when it was asked for one."""
    path = prepare(tmp_path / "a.h5")
    code = f"""
        import io, h5py, numpy as np
        from outcore import formats
        held = [h5py.File(io.BytesIO(), "w")]
        held += [h5py.File("memory", "w", driver="core", backing_store=False)]
        held += [h5py.File({str(tmp_path / "b.h5")!r}, "w", driver="stdio")]
        for file in held:
            file["x"] = np.arange(3)
        formats.set_attrs(formats.open_info({f"{path}::/a"!r}), {{"units": "m"}})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    with h5py.File(path) as file:
        assert file["a"].attrs["units"] == "m"


def test_a_change_reaches_the_disk_in_order(tmp_path, monkeypatch):
    """For a power cut: new bytes; then the whole log and its name; then the old bytes' places."""
    path = prepare(tmp_path / "a.h5")
    calls = []

    def logged(module, name, of):
        plain = getattr(module, name)

        def call(*words):
            calls.append(of(*words))
            return plain(*words)

        monkeypatch.setattr(module, name, call)

    def file_of(fd):
        return "log" if os.readlink(f"/proc/self/fd/{fd}").endswith("redo") else "file"

    logged(os, "fsync", lambda fd: f"sync {file_of(fd)}")
    logged(_core, "fsync_folder", lambda _: "sync folder")
    logged(durable, "write_all", lambda fd, *_: f"write {file_of(fd)}")
    logged(os, "unlink", lambda _: "forget")
    # What reads the log back comes before the first byte that it changes.
    logged(hdf5_redo, "_apply", lambda *_: "decided")
    set_attrs(path)
    decided = calls.index("decided")
    before, after = calls[:decided], calls[decided + 1 :]
    assert before[-4:] == ["sync file", "write log", "sync log", "sync folder"]
    assert set(after[:-2]) == {"write file"} and after[-2:] == ["sync file", "forget"]


def test_the_log_of_a_change_that_is_being_made_is_left_alone(tmp_path):
    path = prepare(tmp_path / "a.h5")
    before = path.read_bytes()
    log = tmp_path / ".a.h5.outcore-redo"
    with open(path, "r+b") as file:
        overlay = hdf5_redo.Overlay(str(path), file.fileno())
        overlay.write(b"changed")
        assert log.exists()
        hdf5_redo.recover(str(path))
        assert log.exists() and path.read_bytes() == before
        overlay.discard()
    assert not log.exists()


def test_a_file_is_not_cut_before_its_log_is_complete(tmp_path):
    path = prepare(tmp_path / "a.h5")
    size = path.stat().st_size
    with open(path, "r+b") as file:
        overlay = hdf5_redo.Overlay(str(path), file.fileno())
        assert overlay.truncate(100) == 100
        assert path.stat().st_size == size
        overlay.commit(sync=False)
    assert path.stat().st_size == 100
