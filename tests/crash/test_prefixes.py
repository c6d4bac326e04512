"""Some crash cases for every day, and one that must fail; all of them: `test_prefixes_slow`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from traced import Trace

import outcore
from cases import CONVERT, GROWING, MADE, MORE, NEW, OLD, OPEN, START, look, old_or, run
from outcore.errors import FormatError
from outcore.formats import homes

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: crashes are NOT tested"
)


@pytest.mark.parametrize("kind", ["npy", "raw", "zarr zstd", "h5", "parts"])
def test_create(tmp_path, kind):
    script = "outcore.create(path, (60, 40), '<i4', **options).flush()"
    run(tmp_path, kind, script, False, old_or(np.zeros_like(OLD), absent=True), MADE)


def test_create_in_place_of_other_parts(tmp_path):
    script = "outcore.create(path, (60, 40), '<i4', overwrite=True, **options).flush()"
    run(tmp_path, "parts", script, True, old_or(np.zeros_like(OLD)), MADE)


@pytest.mark.parametrize("kind", ["npy", "zarr shards gzip"])
def test_write(tmp_path, kind):
    expected = OLD.copy()
    expected[5:33, 7:] = NEW[5:33, 7:]
    script = OPEN + "a[5:33, 7:] = NEW[5:33, 7:]\na.flush()"
    run(tmp_path, kind, script, True, old_or(expected, mixed=True))


@pytest.mark.parametrize("kind", ["zarr", "zarr zstd", "zarr shards gzip"])
def test_write_of_new_chunks(tmp_path, kind):
    """Chunks that were missing are so afterwards, or hold the new elements: none is torn."""
    script = "a = outcore.create(path, (60, 40), '<i4', **options)\na[...] = NEW\na.flush()"
    run(tmp_path, kind, script, False, old_or(NEW, absent=True, mixed=True))


@pytest.mark.parametrize("kind", ["npy", "raw", "zarr", "h5", "netcdf3", "parts"])
def test_append(tmp_path, kind):
    judge = old_or(np.concatenate([OLD, MORE]))
    run(tmp_path, kind, OPEN + "a.append(MORE)\na.flush()", True, judge, GROWING)


@pytest.mark.parametrize("rows", [35, 83])
def test_resize_of_parts(tmp_path, rows):
    new = np.zeros((rows, 40), "<i4")
    new[: min(rows, 60)] = OLD[:rows]
    run(tmp_path, "parts", OPEN + f"a.resize(({rows}, 40))", True, old_or(new), GROWING)


@pytest.mark.parametrize("kind", ["npy", "zarr zstd", "h5", "parts"])
@pytest.mark.parametrize("replaced", [False, True], ids=["new", "replaced"])
def test_convert(tmp_path, kind, replaced):
    """What is at the target's name is what was there, or the whole new array."""
    judge = old_or(NEW, absent=not replaced)
    run(tmp_path, kind, CONVERT, replaced, judge, MADE)


@pytest.mark.parametrize("call", ["whole.move(path, other)", "whole.copy(path, other)"])
def test_parts_under_another_name(tmp_path, call):
    """Under the one name, or the other, or both: always whole."""
    folder = tmp_path / "disk"
    (folder / "there").mkdir(parents=True)
    outcore.create(folder / "a.parts", data=OLD, parts=2).close()
    script = "from outcore.formats import whole\nother = sys.argv[1] + '/there/b.parts'\n" + call
    trace = Trace(folder, START + script, "a.parts", "{}")
    last = {}
    for when, copy in trace.crashes(tmp_path / "crashes"):
        adopt_parts(folder, copy)
        found = [look(copy / name) for name in ("a.parts", "there/b.parts")]
        there = [one for one in found if one is not None]
        assert there and all(np.array_equal(OLD, one) for one in there), when
        last[when.partition(" after ")[0]] = [one is not None for one in found]
        shutil.rmtree(copy)
    for loss, there in last.items():
        assert there == ["copy" in call, True], loss


def adopt_parts(folder, copy):
    """Absolute paths in the manifests of a copy lead into the copy, which their marks name as home."""
    for manifest in copy.rglob("*.parts"):
        manifest.write_text(manifest.read_text().replace(f"{folder}/", f"{copy}/"))
        before = folder / manifest.parent.relative_to(copy)
        for mark in list(copy.rglob(".outcore-home-*")):
            array_id = mark.name.split("-")[2]
            if mark.name == os.path.basename(homes._make_mark_path("", array_id, str(before))):
                mark.rename(homes._make_mark_path(str(mark.parent), array_id, str(manifest.parent)))


CARELESS = {
    "no sync before the rename": "np.save(path + '.npy', OLD); os.rename(path + '.npy', path)",
    "written in place": "np.save(path, OLD)",
}


@pytest.mark.parametrize("script", CARELESS.values(), ids=list(CARELESS))
def test_careless_programs_are_found_out(tmp_path, script):
    """The models of crashes have teeth."""
    with pytest.raises((FormatError, AssertionError)):
        run(tmp_path, "npy", "import os\n" + script, True, old_or(OLD))


def test_a_flush_that_is_forgotten_is_found_out(tmp_path):
    script = OPEN + "a[...] = NEW\na.close()"
    with pytest.raises(AssertionError, match="at the end"):
        run(tmp_path, "npy", script, True, old_or(NEW, mixed=True))


def test_numbers_of_files_that_change_hands_between_threads(tmp_path):
    """A call that begins first may get the number that another thread gives back only later."""
    folder = tmp_path / "disk"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_bytes(b"old")
    calls = [
        ("openat", "AT_FDCWD<{/}>, {a}, O_RDWR", 5),
        ("openat", "AT_FDCWD<{/}>, {b}, O_RDWR", 5),  # begins here, ends when `a` is closed
        ("pwrite64", "5<a>, {new}, 3, 0", 3),
        ("fsync", "5<a>", 0),
        ("pwrite64", "5<b>, {new}, 3, 0", 3),
    ]
    trace = Trace.of(folder, [(k, *call) for k, call in enumerate(coded(folder, calls))])
    for name in "ab":
        (folder / name).write_bytes(b"new")
    *_, lost, _, _ = [
        {name: (copy / name).read_bytes() for name in "ab"}
        for _, copy in trace.crashes(tmp_path / "crashes")
    ]
    assert lost == {"a": b"new", "b": b"old"}


def coded(folder: Path, calls: list) -> list:
    """As `strace` writes them."""

    def hexed(text: str) -> str:
        return "".join(f"\\x{byte:02x}" for byte in text.encode())

    paths = {name: hexed(str(folder / name)) for name in "ab"}
    found = []
    for call, words, result in calls:
        words = words.replace("{/}", hexed("/")).replace("{new}", f'"{hexed("new")}"')
        for name, path in paths.items():
            words = words.replace(f"<{name}>", f"<{path}>").replace(f"{{{name}}}", f'"{path}"')
        found.append((call, words, result))
    return found
