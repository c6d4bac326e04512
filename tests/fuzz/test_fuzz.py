"""The short lane: each Python target's usual number of inputs. (Cargo runs the Rust half.)"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import outcore
from fuzz import drive, lane
from fuzz.chance import Chance
from fuzz.targets import TARGETS
from outcore import errors, formats


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_accepted_or_refused(tmp_path, name):
    target = TARGETS[name]
    if target.library:
        pytest.importorskip("h5py")
    tally = drive.Tally(name, target.library)
    words = drive.command(name, None)
    drive.run(tally, words, 20_260_101, 0, target.inputs, tmp_path)
    assert not tally.failures, tally.failures
    assert tally.inputs == target.inputs
    assert tally.died <= target.inputs // 50
    # Neither all good nor all bad: such inputs would try nothing.
    assert tally.inputs // 50 < tally.accepted < 0.9 * tally.inputs


def stumble(folder: Path) -> None:
    raise KeyError(folder.name)


def test_a_failure_is_told_and_its_input_saved(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OUTCORE_FUZZ_FOLDER", str(tmp_path))
    monkeypatch.setenv("OUTCORE_FUZZ_INPUTS", "2")
    made = lane.Target("bad", lambda chance: {"a": bytes([chance.randrange(9)])}, stumble, 5)
    (tmp_path / "work").mkdir()
    assert lane.run(made, tmp_path / "work") == 2
    assert "FUZZ-FAILED bad seed=20260101 input=1 KeyError" in capsys.readouterr().out
    kept = tmp_path / "bad-20260101-1"
    assert "KeyError" in (kept / "why.txt").read_text()
    assert (kept / "a").read_bytes() == bytes([Chance(20_260_101, 1).randrange(9)])


def number_of(chance: Chance) -> lane.Files:
    return {"number": str(chance.randrange(1000)).encode()}


def die_of(deadly: set[int], folder: Path) -> None:
    if int((folder / "number").read_text()) in deadly:
        os.abort()


@pytest.mark.parametrize("library", ["", "of others"])
def test_a_process_that_dies_is_a_failure(tmp_path, library):
    """Unless it dies of a library that is known for it; then the next process goes on behind."""
    deadly = {int(number_of(Chance(7, n))["number"]) for n in (3, 5)}
    program = (
        "import sys; from functools import partial; from pathlib import Path\n"
        "from fuzz import lane, test_fuzz\n"
        f"attempt = partial(test_fuzz.die_of, {deadly})\n"
        "lane.run(lane.Target('bad', test_fuzz.number_of, attempt, 5), Path(sys.argv[1]))"
    )
    tally = drive.Tally("bad", library)
    drive.run(tally, [sys.executable, "-c", program, str(tmp_path)], 7, 0, 8, tmp_path)
    assert len(tally.failures) == (not library)
    assert (tally.died, tally.inputs) == ((2, 8) if library else (1, 4))


# Inputs of which the HDF5 library (2.0) hangs, crashes, or frees memory twice, were there no checks.
KNOWN = [("hdf5_files", "z", 6), ("netcdf4_files", "t", 326)]


@pytest.mark.parametrize(("target", "name", "number"), KNOWN)
def test_heaps_and_types_are_checked_before_the_library_reads_them(tmp_path, target, name, number):
    pytest.importorskip("h5py")
    files = TARGETS[target].make(Chance(20_260_101, number))
    lane.place(tmp_path, files)
    (path,) = (tmp_path / name for name in files)
    with pytest.raises(errors.FormatError, match=r"global heap|invalid type"):
        dict(formats.open_info(f"{path}::{name}").attrs)


def test_no_process_is_started_unless_asked(tmp_path, monkeypatch):
    """Whoever owns the file; the documents say when to ask."""
    h5py = pytest.importorskip("h5py")
    from outcore.formats.hdf5 import guard as hdf5_guard

    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = [1.0, 2.0]
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    visits = []
    monkeypatch.setattr(hdf5_guard, "_visit_in_child", lambda *words: visits.append(words[1:3]))
    monkeypatch.delenv("OUTCORE_HDF5_GUARD", raising=False)
    outcore.verify(path)
    assert visits == []
    monkeypatch.setenv("OUTCORE_HDF5_GUARD", "10")
    outcore.verify(path)
    assert visits == [(None, "ls"), ("/x", "open")]
    documents = Path(__file__).parents[2] / "docs"
    for text in (
        (documents / "howto" / "files-from-others.md").read_text(),
        (documents / "status" / "formats.md").read_text(),
        outcore.open.__doc__,
    ):
        assert "OUTCORE_HDF5_GUARD" in text and "hdf5-refused" in text


def test_a_rehearsal_takes_the_death(tmp_path, monkeypatch):
    """Whatever the library does to the child, the parent goes on and refuses the file."""
    h5py = pytest.importorskip("h5py")
    from outcore.formats.hdf5 import guard as hdf5_guard

    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = [1.0, 2.0]
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("OUTCORE_HDF5_GUARD", "20")
    assert formats.open_info(f"{path}::x").shape == (2,)
    visits = []
    real = hdf5_guard._visit_in_child
    monkeypatch.setattr(
        hdf5_guard, "_visit_in_child", lambda *words: (visits.append(words), real(*words))
    )
    assert formats.open_info(f"{path}::x").shape == (2,)
    assert visits == []  # known already
    for hurt, said in (
        ("os.abort()", "signal 6"),
        ("os.kill(os.getpid(), 11)", "signal 11"),
        ("time.sleep(60)", "did not finish"),
        ("os._exit(3)", "status 3"),
    ):
        # A library that dies: `h5py` of the child is ours.
        (site / "h5py.py").write_text(f"import os, time\n{hurt}\n")
        monkeypatch.syspath_prepend(site)
        os.utime(path, (len(visits), len(visits)))
        monkeypatch.setenv("OUTCORE_HDF5_GUARD", "0.5" if "sleep" in hurt else "20")
        with pytest.raises(errors.FormatError, match=said) as caught:
            formats.open_info(f"{path}::x")
        assert caught.value.code == "hdf5-refused"
        visits.append(None)
    monkeypatch.setenv("OUTCORE_HDF5_GUARD", "soon")
    with pytest.raises(errors.UsageError, match="not a number of seconds"):
        formats.open_info(f"{path}::x")
