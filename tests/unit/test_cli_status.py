"""The command line as scripts and new users meet it: exit status, odd input, what it lists and says."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import formats
from outcore.cli import main
from stopping import stop_after

DATA = np.arange(600.0).reshape(20, 30)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save("a.npy", DATA)


def run(*words):
    return main(list(map(str, words)))


def apart(*words, **kwargs):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "outcore", *words]
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
    return subprocess.run(command, env=environment, check=False, **kwargs)


def damaged():
    outcore.convert("a.npy", "d.zarr", chunks=(5, 10), compression="gzip")
    path = Path("d.zarr/c/1/1")
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)


def test_damage_gives_exit_status_1(capsys):
    damaged()
    assert run("verify", "d.zarr") == 1
    assert run("convert", "d.zarr", "e.npy") == 1
    assert "[codec-failure]" in capsys.readouterr().err
    assert run("info", "d.zarr") == 0, "nobody has looked at its chunks"


@pytest.mark.parametrize(
    "words",
    [
        ("info", "a.npy", "-s", "dtype"),
        ("info", "a.npy", "-s", "=3"),
        ("info", "a.npy", "-s", "mode=w", "-s", "shape=3", "-s", "dtype=f4"),
        ("info", "a.npy", "-s", "path=b.npy"),
        ("info", "a.npy", "-s", "hints=3"),
        ("verify", "a.npy", "-s", "progress=3"),
        ("info", "r.bin", "-s", "dtype=i2", "-s", "offset=x"),
        ("info", "r.bin", "-s", "dtype=i2", "-s", "files=1"),
        ("info", "r.bin"),
        ("explain", "a.npy", "[99]"),
        ("explain", "a.npy", "[::0]"),
        ("explain", "a.npy", "--ranks", "2", "--distribution", "rows", "[0]"),
        ("convert", "a.npy", "r.bin"),
        ("convert", "a.npy", "a.npy"),
        ("convert", "a.npy", "b"),
        ("convert", "a.npy", "b.npy", "--compression", "zstd"),
        ("convert", "a.npy", "b.zarr", "--compression", "nothing"),
        ("convert", "a.npy", "b.npy", "--dtype", "i2"),
        ("bench", ".", "--slice", "-4"),
        ("bench", ".", "--slice", "1000000000"),
    ],
)
def test_wrong_use_ends_with_2_and_changes_nothing(capsys, words):
    Path("r.bin").write_bytes(bytes(24))
    assert run(*words) == 2
    told = capsys.readouterr()
    assert told.err.startswith("outcore: [") and told.out == ""
    assert sorted(os.listdir()) == ["a.npy", "r.bin"]
    np.testing.assert_array_equal(np.load("a.npy"), DATA)
    assert os.path.getsize("r.bin") == 24


def test_unreadable_paths_give_exit_status_3(capsys):
    Path("x.unknown").write_bytes(b"?" * 100)
    Path("empty").mkdir()
    for command in ("info", "ls", "explain", "verify", "convert"):
        for name, said in (
            ("missing.npy", "[not-found]"),
            ("missing.h5::/x", "[not-found]"),
            ("missing", "[not-found]"),
            ("a.npy/b.npy", "[not-found]"),
            ("x.unknown", "unknown-format"),
            (".", "is a folder but not a Zarr store"),
            ("empty", "folder"),
        ):
            if name == "." and command in ("info", "ls", "verify"):
                continue  # these go over what is in it
            target = ["b.npy"] if command == "convert" else []
            assert run(command, name, *target) == 3, (command, name)
            told = capsys.readouterr()
            assert said in told.out + told.err, (command, name)
    assert run("verify", "missing.npy", "--json") == 3
    assert capsys.readouterr().out == ""
    assert run("convert", "a.npy", "nowhere/b.npy") == 3
    assert "folder of the target, 'nowhere'" in capsys.readouterr().err
    assert run("convert", "a.npy", "b.npy", "--memory", "1KiB") == 3
    assert "[budget-too-small]" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["a.npy", "empty", "x.unknown"]


def test_a_file_that_is_cut_off_is_damaged(capsys):
    Path("cut.npy").write_bytes(Path("a.npy").read_bytes()[:3000])
    for command in ("info", "ls", "explain", "verify", "convert"):
        assert run(command, "cut.npy", *(["b.npy"] if command == "convert" else [])) == 1, command
        told = capsys.readouterr()
        assert "file-too-short" in told.out + told.err, command


def test_a_chunk_that_may_not_be_read_is_not_damaged(monkeypatch, capsys):
    damages = [
        outcore.types.Damage("a", "[0:5]", "permission-denied", "no"),
        outcore.types.Damage("a", "", "cannot-open", "no", "locked"),
    ]
    monkeypatch.setattr(outcore, "verify", lambda *_, **__: damages)
    assert run("verify", "a") == 3
    assert "no damage found, 2 could not be opened" in capsys.readouterr().out
    damages.append(outcore.types.Damage("a", "[0:5]", "disk-failure", "no"))
    assert run("verify", "a") == 1


def test_an_answer_that_cannot_be_written_is_an_error_in_one_line(monkeypatch, capsys):
    said = f"outcore: [disk-full] writing the output: {os.strerror(errno.ENOSPC)}\n"
    for words in (
        ("info", "a.npy"),
        ("info", "a.npy", "--json"),
        ("ls", "a.npy"),
        ("explain", "a.npy"),
        ("explain", "a.npy", "--ranks", "2"),
        ("verify", "a.npy"),
        ("convert", "a.npy", "b.npy"),
    ):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert run(*words) == 3
        assert capsys.readouterr().err == said, words
    # Nor is it tried again at exit.
    with open("/dev/full", "w") as full:
        done = apart("info", "a.npy", stdout=full)
    assert (done.returncode, done.stderr.decode()) == (3, said)


def test_a_reader_who_has_gone_is_told_from_damage():
    read, write = os.pipe()
    os.close(read)
    done = apart("info", "a.npy", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_closed_streams_are_no_reason_to_stop(monkeypatch):
    done = apart("convert", "a.npy", "b.npy", preexec_fn=lambda: (os.close(1), os.close(2)))
    assert done.returncode == 0
    np.testing.assert_array_equal(np.load("b.npy"), DATA)
    with open("/dev/full", "w") as full:
        for stream in (full, None):
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stderr", stream)
                assert run("info", "missing") == 3
                assert run("convert", "a.npy", "b.npy", "--overwrite") == 0
        # What is left in its buffer must go somewhere.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), full.fileno())


def test_a_bug_is_told_from_damage(monkeypatch, capsys):
    def broken(*_):
        raise ZeroDivisionError("no reason")

    monkeypatch.setattr(formats, "ls", broken)
    assert run("ls", "a.npy") == 3
    told = capsys.readouterr().err
    assert "outcore: [internal] ZeroDivisionError: no reason; please report" in told


def test_the_help_lists_the_exit_statuses(capsys):
    with pytest.raises(SystemExit) as caught:
        run("--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for line in (
        "0  done",
        "1  damage",
        "2  invalid call",
        "3  not possible to run",
        "130 interrupted",
    ):
        assert line in text


def test_names_that_are_no_text(capsys):
    name = os.fsdecode(b"a\xff.npy")
    os.rename("a.npy", name)
    for words in (("info", name), ("ls", name), ("explain", name, "[0]"), ("verify", name)):
        assert run(*words) == 0
        assert (
            "a\ufffd.npy" if words[0] == "explain" else "a\\udcff.npy"
        ) in capsys.readouterr().out
    assert run("convert", name, os.fsdecode(b"b\xff.zarr")) == 0
    with outcore.open(os.fsdecode(b"b\xff.zarr"), "r+") as a:
        a[0] = 1
        np.testing.assert_array_equal(a[1:], DATA[1:])


def test_a_section_may_stand_behind_the_options(capsys):
    for words in (("explain", "a.npy", "--write", "-3"), ("explain", "--write", "a.npy", "[17]")):
        assert run(*words) == 0
        assert capsys.readouterr().out.startswith("write    a.npy [17, 0:30]")
    for words in (("explain", "a.npy", "0", "--write", "1"), ("info", "a.npy", "--json", "x")):
        with pytest.raises(SystemExit) as caught:
            run(*words)
        assert caught.value.code == 2
        assert "unrecognized arguments" in capsys.readouterr().err


# What is listed


@pytest.fixture
def climate(tmp_path):
    """A file as climate models write it: coordinates, a scalar, text, a bare dimension."""
    h5py = pytest.importorskip("h5py")
    with h5py.File("c.nc", "w") as file:
        for name, length in (("time", 3), ("lat", 4)):
            file[name] = np.arange(float(length))
            file[name].make_scale(name)
        file["level"] = np.zeros(2, ">f4")
        file["level"].make_scale("This is a netCDF dimension but not a netCDF variable.         2")
        file.create_dataset("t2m", data=np.ones((3, 4)), chunks=(1, 4), compression="gzip")
        for axis, name in enumerate(("time", "lat")):
            file["t2m"].dims[axis].attach_scale(file[name])
        file.create_dataset("station", (2,), h5py.vlen_dtype("i4"))
        file["crs"] = np.int32(4326)
    with h5py.File("one.nc", "w") as file:
        file["data"] = DATA


def test_error_lists_datasets_that_can_be_opened(climate):
    with pytest.raises(outcore.errors.FormatError) as caught:
        outcore.open("c.nc")
    assert caught.value.message == (
        "'c.nc' contains 5 datasets; name one as 'c.nc::/name': /crs, /lat, /t2m, /time, and 1 that "
        "cannot be opened (`outcore ls` shows why)"
    )
    for name in ("/crs", "/lat", "/t2m", "/time"):
        outcore.open(f"c.nc::{name}").close()
    with pytest.raises(outcore.errors.FormatError, match=r"'one.nc' contains 1 dataset; name one"):
        outcore.open("one.nc::/")
    outcore.convert("a.npy", "g.zarr::/x")
    outcore.convert("a.npy", "g.zarr::/y")
    with pytest.raises(outcore.errors.FormatError, match=r"'x', 'y'; name one as 'g.zarr::/name'"):
        outcore.open("g.zarr")


def test_many_datasets_are_offered_in_part(climate):
    h5py = pytest.importorskip("h5py")
    with h5py.File("m.h5", "w") as file:
        for k in range(30):
            if k % 2:
                file[f"{k:02}"] = DATA[:2]
            else:
                file.create_dataset(f"{k:02}", (1,), h5py.vlen_dtype("i4"))
    with pytest.raises(outcore.errors.FormatError) as caught:
        outcore.open("m.h5")
    assert "contains 30 datasets" in caught.value.message
    assert "/01, /03, " in caught.value.message and "/02" not in caught.value.message
    assert "/19, and 5 more, and 15 that cannot be opened" in caught.value.message


def test_ls_says_what_cannot_be_opened(climate, capsys):
    assert run("ls", "c.nc") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        f"c.nc::/{name}" for name in ("crs", "lat", "station", "t2m", "time")
    ]
    assert "object" not in lines[2] and "array that cannot be opened: elements of" in lines[2]
    assert lines[2].count("c.nc::/station") == 1
    Path("r.bin").write_bytes(bytes(24))
    assert run("ls", "r.bin") == 0
    text = capsys.readouterr().out
    assert "None" not in text and "cannot be opened: raw: shape and dtype" in text


def test_info_tells_the_bytes_of_the_array_from_those_of_the_file(climate, capsys):
    h5py = pytest.importorskip("h5py")

    def sizes(path, *words):
        assert run("info", path, *words, "--json") == 0
        facts = json.loads(capsys.readouterr().out)
        return facts["stored_bytes"], facts["file_bytes"]

    stored, whole = sizes("c.nc::/t2m")
    with h5py.File("c.nc") as file:
        assert stored == file["t2m"].id.get_storage_size() < 3 * 4 * 8
    assert whole == os.path.getsize("c.nc") > stored
    assert run("info", "c.nc::/t2m") == 0
    assert f"96 B of elements, {stored} B on disk, in " in capsys.readouterr().out
    assert sizes("c.nc::/lat") == (32, whole)
    assert sizes("a.npy") == (os.path.getsize("a.npy"),) * 2
    outcore.convert("a.npy", "g.zarr::/x", compression="zstd")
    outcore.convert("a.npy", "g.zarr::/y")
    stored, whole = sizes("g.zarr::/y")
    assert DATA.nbytes < stored < DATA.nbytes + 2000 and whole > stored + 1000
    for part in ("r-1.bin", "r-2.bin"):
        Path(part).write_bytes(bytes(24))
    assert sizes("r-*.bin", "-s", "dtype=i2") == (48, 48)


def test_json_output_has_no_nan_literals(climate, capsys):
    h5py = pytest.importorskip("h5py")
    with h5py.File("q.h5", "w") as file:
        dset = file.create_dataset("x", data=np.arange(6.0), fillvalue=np.nan)
        dset.attrs["limits"] = np.array([-np.inf, np.inf])
        dset.attrs["raw"] = np.bytes_(b"\xff")

    def refuse(word):
        raise ValueError(word)

    assert run("info", "q.h5", "--json") == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert facts["fill_value"] == "NaN"
    assert facts["attrs"]["limits"] == ["-Infinity", "Infinity"]
    assert facts["shape"] == [6] and facts["accesses"]["whole"]["useful_bytes"] == 48
    with h5py.File("empty.h5", "w"):
        pass
    assert run("info", "empty.h5") == 3
    assert "'empty.h5' contains no datasets; there is nothing" in capsys.readouterr().err


# Conversions that stop in the middle


OPTIONS = {"order": "F", "memory": "1 MiB"}


def interrupt(target="b.npy", error=KeyboardInterrupt, **options):
    np.save("big.npy", np.arange(1_000_000.0).reshape(1000, 1000))
    with pytest.raises(error) as caught:
        outcore.convert(
            "big.npy", target, progress=stop_after(3, KeyboardInterrupt), **{**OPTIONS, **options}
        )
    return caught.value


def test_an_interrupted_conversion_says_how_to_go_on(capsys):
    (note,) = interrupt().__notes__
    assert "of 'b.npy' are complete and preserved; the same call with resume=True continues" in note
    done, of, steps = note.split()[:3]
    assert of == "of" and 0 < int(done) < int(steps)
    done = []
    with pytest.warns(UserWarning, match="discarded") as told:
        outcore.convert("big.npy", "b.npy", progress=lambda n, _: done.append(n), **OPTIONS)
    assert done[0] == 0
    assert "'b.npy': " in str(told[0].message) and "resume=True would have continued" in str(
        told[0].message
    )
    np.testing.assert_array_equal(np.load("b.npy"), np.load("big.npy"))


def test_a_warning_that_is_made_an_error_loses_nothing():
    interrupt()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="discarded"):
            outcore.convert("big.npy", "b.npy", **OPTIONS)
    done = []
    outcore.convert(
        "big.npy", "b.npy", resume=True, progress=lambda n, _: done.append(n), **OPTIONS
    )
    assert done[0] > 0
    np.testing.assert_array_equal(np.load("b.npy"), np.load("big.npy"))


def test_warning_names_differences_to_an_interrupted_job():
    interrupt()
    with pytest.warns(
        UserWarning, match=r"interrupted job \(different dtype, target dtype\)"
    ) as told:
        outcore.convert("big.npy", "b.npy", dtype="f4", **OPTIONS)
    assert "resume" not in str(told[0].message)


def test_a_conversion_that_begins_says_nothing(recwarn):
    with pytest.raises(KeyboardInterrupt) as caught:
        outcore.convert("a.npy", "b.npy", progress=stop_after(0, KeyboardInterrupt))
    assert not getattr(caught.value, "__notes__", [])
    outcore.convert("a.npy", "b.npy")
    assert not recwarn.list and sorted(os.listdir()) == ["a.npy", "b.npy"]


def test_an_error_in_the_middle_keeps_its_note_in_a_pickle(monkeypatch, capsys):
    import copy

    def progress(done, total):
        if done > total / 2:
            raise outcore.errors.StorageError("no room", code="disk-full")

    np.save("big.npy", np.arange(1_000_000.0).reshape(1000, 1000))
    with pytest.raises(outcore.errors.StorageError) as caught:
        outcore.convert("big.npy", "b.npy", progress=progress, **OPTIONS)
    assert "resume=True" in caught.value.__notes__[0]
    assert copy.copy(caught.value).__notes__ == caught.value.__notes__
    words = ("convert", "big.npy", "b.npy", "--order", "F", "--memory", "1MiB")
    # A warning is printed as a note, and the job starts at the beginning or goes on.
    assert run(*words, "--resume", "--json") == 0
    told = capsys.readouterr()
    assert "note: resuming: " in told.err
    assert 0 < json.loads(told.out)["resumed_nbytes"] < 8_000_000
    interrupt(overwrite=True)
    assert run(*words, "--overwrite") == 0
    told = capsys.readouterr()
    assert "outcore: note: 'b.npy': " in told.err and "; --resume would" in told.err
    assert "resuming" not in told.err
