"""The command line: several paths, new arrays and groups, whole files, quiet, completion."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore.cli import completion, main
from outcore.cli.commands import _make_parser

h5py = pytest.importorskip("h5py")

DATA = np.arange(600.0).reshape(20, 30)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save("a.npy", DATA)


def run(*words):
    return main(list(map(str, words)))


def told(capsys, *words):
    status = run(*words)
    found = capsys.readouterr()
    return status, found.out, found.err


def damaged(name="d.zarr"):
    outcore.convert("a.npy", name, chunks=(5, 10), compression="gzip")
    path = Path(name, "c/1/1")
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)


def store(name):
    with outcore.open_group(name, "w") as group:
        group.attrs["title"] = "t"
        group.create("g/u", data=DATA).close()
        group.create("v", data=DATA[0]).close()


# Several paths


def test_a_path_that_fails_does_not_hide_the_others(capsys):
    np.save("b.npy", DATA[:3])
    for command, sign in (("info", "float64"), ("ls", "float64"), ("verify", "no damage found")):
        status, out, err = told(capsys, command, "a.npy", "missing.npy", "b.npy")
        assert (status, out.count(sign)) == (3, 2) or (command == "info" and "b.npy" in out), out
        assert "a.npy" in out and "b.npy" in out and "[not-found]" in err and err.count("\n") == 1
        assert told(capsys, command, "a.npy", "b.npy")[0] == 0


@pytest.mark.parametrize(
    ("paths", "status"),
    [
        (["a.npy", "b.npy"], 0),
        (["a.npy", "missing", "b.npy"], 3),
        (["d.zarr", "missing"], 1),
        (["missing", "d.zarr", "r.bin"], 1),
        (["missing", "r.bin"], 2),
        (["a.npy", "d.zarr"], 1),
    ],
)
def test_the_status_is_that_of_the_worst(capsys, paths, status):
    np.save("b.npy", DATA)
    damaged()
    Path("r.bin").write_bytes(bytes(24))
    assert run("verify", *paths) == status
    assert run("verify", *paths, "--json") == status


def test_several_paths_as_json(capsys):
    store("s.h5")
    for command in ("info", "ls", "verify"):
        status, out, _ = told(capsys, command, "--json", "a.npy", "missing.npy", "s.h5")
        first, second, third = json.loads(out)
        assert status == 3 and second["path"] == "missing.npy"
        assert (
            second["error"]["code"] == "not-found" and "No such file" in second["error"]["message"]
        )
        if command == "info":
            assert first["shape"] == [20, 30] and len(third["entries"]) == 3
        elif command == "ls":
            assert [e["path"] for e in third["entries"]] == ["s.h5::/g", "s.h5::/g/u", "s.h5::/v"]
        else:
            assert first == {"path": "a.npy", "damages": []} and third["damages"] == []
    # Of one path the answer is the document itself.
    assert json.loads(told(capsys, "ls", "--json", "a.npy")[1])[0]["path"] == "a.npy"


def test_ls_draws_trees(capsys):
    store("s.h5")
    store("s.zarr")
    status, out, _ = told(capsys, "ls", "--tree", "s.h5")
    assert status == 0
    assert out == "/\n├── g\n│   └── u  float64 (20, 30)\n└── v  float64 (30,)\n"
    status, out, err = told(capsys, "ls", "--tree", "s.h5", "a.npy", "s.zarr")
    assert status == 3 and out.count("└── v") == 2 and "[not-a-group]" in err


def test_ls_of_a_folder_lists_what_its_files_and_stores_hold(capsys):
    folder = Path("f")
    (folder / "below.zarr-notes").mkdir(parents=True)
    assert run("ls", folder) == 3 and "[unknown-format]" in capsys.readouterr().err
    for suffix in ("npy", "zarr", "zarr2", "h5", "nc", "parts"):
        inner = "::/g/x" if suffix in ("h5", "nc") else ""
        outcore.create(f"f/{suffix}.{suffix}{inner}", (3,), "f8").close()
    store("f/s.zarr")
    os.mkfifo("f/pipe.npy")
    np.save("f/.hidden.npy", np.zeros(3))
    np.save("f/below.zarr-notes/deeper.npy", np.zeros(3))
    for name, text in (("notes.txt", "text"), ("values.raw", "12345678"), ("bad.h5", "no HDF5")):
        (folder / name).write_text(text)
    found = {entry.path: entry for entry in outcore.ls("f")}
    parts = {path for path in found if path.startswith("f/parts-")}
    groups = {"f/h5.h5::/g", "f/nc.nc::/g", "f/s.zarr::/g"}
    arrays = {f"f/{name}.{name}" for name in ("npy", "zarr", "zarr2", "parts")}
    arrays |= {"f/h5.h5::/g/x", "f/nc.nc::/g/x", "f/s.zarr::/g/u", "f/s.zarr::/v"}
    assert set(found) == groups | arrays | parts | {"f/bad.h5"} and len(parts) == 1
    assert {path for path, entry in found.items() if entry.kind == "group"} == groups
    assert [path for path, entry in found.items() if entry.note] == ["f/bad.h5"]
    for path in arrays | parts:
        outcore.open(path).close()
    assert run("ls", "f") == 0 and "f/h5.h5::/g/x " in capsys.readouterr().out
    assert run("ls", "f/") == 0 and "f/h5.h5::/g/x " in capsys.readouterr().out
    assert run("verify", "f") == 1 and "f/bad.h5" in capsys.readouterr().out


# Targets


def test_create(capsys):
    words = ("--shape", "4,6", "--dtype", "f4", "--dims", "t,", "--fill-value", "nan")
    attrs = ("--attr", "units=K", "--attr", "scale=0.5", "--attr", "levels=[1, 2]")
    status, out, err = told(capsys, "create", "b.zarr::/g/u", *words, *attrs, "--chunks", "2,3")
    assert (status, out, err) == (0, "b.zarr::/g/u: float32 (4, 6)\n", "")
    with outcore.open("b.zarr::/g/u") as u:
        assert (u.shape, u.chunks, u.dims) == ((4, 6), (2, 3), ("t", None))
        assert np.isnan(u[...]).all()
        assert dict(u.attrs) == {"units": "K", "scale": 0.5, "levels": [1, 2]}
    status, _, err = told(capsys, "create", "b.zarr::/g/u", *words)
    assert status == 2 and "use --overwrite to replace it" in err
    assert run("create", "b.zarr::/g/u", *words, "--overwrite", "--quiet") == 0
    assert capsys.readouterr().out == ""
    assert json.loads(told(capsys, "create", "n.npy", "--shape", "none", "--dtype", "f8", "--json")[1])[
        "shape"
    ] == []  # fmt: skip


def test_create_with_limits(capsys):
    assert run("create", "a.nc::/u", "--shape", "0,3", "--dtype", "f4", "--dims", "t,x",
               "--unlimited", "t") == 0  # fmt: skip
    assert run("create", "b.h5", "--shape", "2,3", "--dtype", "i2", "--maxshape", "none,3") == 0
    with outcore.open("a.nc::/u") as u, outcore.open("b.h5") as b:
        assert u.info.extra["unlimited"] == ("t",) and b.info.extra["maxshape"] == (None, 3)
    assert run("create", "c.nc", "--shape", "2,3", "--dtype", "f4", "--unlimited", "all") == 0
    with outcore.open("c.nc") as c:
        assert c.info.extra["maxshape"] == (None, None)
    assert run("create", "d.zarr", "--shape", "4", "--dtype", "f4", "--separator", ".") == 0


def test_create_a_group(capsys):
    assert run("create", "a.h5::/g/h", "--group", "--attr", "by=me") == 0
    assert capsys.readouterr().out == "a.h5::/g/h: group\n"
    assert dict(outcore.open_group("a.h5::/g/h").attrs) == {"by": "me"}
    status, _, err = told(capsys, "create", "a.h5::/g", "--group")
    assert status == 2 and "[already-exists]" in err


@pytest.mark.parametrize(
    "words",
    [
        ("b.npy",),
        ("b.npy", "--shape", "3"),
        ("b.npy", "--shape", "x", "--dtype", "f4"),
        ("b.h5", "--shape", "3", "--dtype", "f4", "--maxshape", "x"),
        ("b.npy", "--shape", "3", "--dtype", "f4", "--attr", "units"),
        ("b.h5", "--shape", "3", "--dtype", "f4", "--dims", "a,b"),
        ("b.h5", "--group", "--shape", "3"),
        ("b.npy", "--shape", "3", "--dtype", "f4", "--dims", "x"),
    ],
)
def test_create_refuses_what_makes_no_sense(capsys, words):
    status, out, err = told(capsys, "create", *words)
    assert (status, out) == (2, "") and err.startswith("outcore: [")
    assert os.listdir() == ["a.npy"]


def test_convert_says_what_the_target_is_like(capsys):
    outcore.create("s.zarr", data=DATA, attrs={"units": "K", "old": 1}, chunks=(5, 5)).close()
    words = ("--dims", "t,x", "--fill-value", "-1", "--attr", "units=degC", "--attr", "new=[1, 2]")
    assert run("convert", "s.zarr", "b.nc::/u", *words, "--unlimited", "t") == 0
    with outcore.open("b.nc::/u") as u:
        assert (u.dims, u.fill_value, u.info.extra["unlimited"]) == (("t", "x"), -1, ("t",))
        found = {k: np.asarray(v).tolist() for k, v in u.attrs.items()}
        assert found == {"units": "degC", "old": 1, "new": [1, 2]}
        np.testing.assert_array_equal(DATA, u[...])


def test_convert_of_whole_files(capsys):
    store("s.h5")
    status, out, _ = told(capsys, "convert", "s.h5", "b.zarr", "--compression", "zstd")
    assert status == 0 and "b.zarr: 5.04 kB in" in out
    assert outcore.open_group("b.zarr").attrs["title"] == "t"
    assert run("convert", "s.h5::/g", "c.zarr") == 0
    assert list(outcore.open_group("c.zarr")) == ["u"]
    with h5py.File("s.h5", "r+") as file:
        file["text"] = "of variable length"
    status, _, err = told(capsys, "convert", "s.h5", "d.zarr")
    assert status == 3 and "--skip" in err and not Path("d.zarr").exists()
    status, _, err = told(capsys, "convert", "s.h5", "d.zarr", "--skip")
    assert status == 0 and "note: 's.h5::/text' is skipped" in err


# Quiet


def test_quiet_is_quiet(capsys):
    """Each command: nothing but errors, and what was asked for."""
    store("s.h5")
    damaged()
    outcore.open_group("j.zarr", "w").attrs["deep"] = {"a": 1}
    outcore.create("j.zarr::/x", data=DATA).close()
    silent = [
        ("convert", "a.npy", "b.zarr"),
        ("convert", "j.zarr", "j.h5", "--whole"),  # an attribute is lost, which is a note
        ("create", "c.npy", "--shape", "3", "--dtype", "f4"),
        ("verify", "a.npy", "s.h5"),
        ("run", "transpose", "a.npy", "t.npy"),
        ("run", "sum", "a.npy", "--out", "s.npy"),
        ("cp", "a.npy", "e.npy"),
        ("mv", "e.npy", "f.npy"),
        ("gather", "a.npy", "g.npy"),
        ("chmod", "640", "f.npy"),
        ("rm", "f.npy"),
        ("resume", "."),
    ]
    for words in silent:
        assert told(capsys, *words, "--quiet") == (0, "", ""), words
    status, out, err = told(capsys, "run", "-q", "sum", "a.npy")
    assert (status, float(out), err) == (0, DATA.sum(), "")
    status, out, err = told(capsys, "verify", "-q", "d.zarr", "a.npy")
    assert (status, err) == (1, "") and out.count("\n") == 1 and "[codec-failure]" in out
    status, out, err = told(capsys, "convert", "-q", "missing.npy", "b.npy")
    assert (status, out) == (3, "") and err.count("\n") == 1
    for asked in (("ls", "a.npy"), ("info", "a.npy"), ("du", "a.npy"), ("explain", "a.npy")):
        status, out, err = told(capsys, *asked, "-q")
        assert status == 0 and out and not err


def test_a_conversion_that_goes_on_says_so_unless_it_is_quiet(capsys):
    def stop(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    np.save("a.npy", np.ones((300, 400)))
    words = {"chunks": (20, 400), "memory": "512 KiB"}
    for quiet in ([], ["-q"]):
        with pytest.raises(KeyboardInterrupt):
            outcore.convert("a.npy", "b.zarr", overwrite=True, progress=stop, **words)
        again = ("convert", "a.npy", "b.zarr", "--chunks", "20,400", "--resume", "--overwrite")
        status, out, err = told(capsys, *again, *quiet)
        assert status == 0 and (bool(out), "resuming" in err) == (not quiet, not quiet)


# Completion


def script(tmp_path, shell="bash"):
    text = completion.make_script(shell, completion.list_commands(_make_parser()))
    path = tmp_path / f"outcore.{shell}"
    path.write_text(text)
    return path


def complete(path, *words):
    """What bash offers for the last word."""
    line = " ".join(map(shlex.quote, words))
    asked = (
        f". {shlex.quote(str(path))}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
        'f=$(complete -p outcore | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); $f; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash: its completion is NOT tested")
def test_bash_completes(tmp_path):
    path = script(tmp_path)
    assert {"info", "ls", "run", "convert", "create", "completion"} <= set(
        complete(path, "outcore", "")
    )
    assert complete(path, "outcore", "ver") == ["verify"]
    assert complete(path, "outcore", "run", "sta") == ["statistics"]
    assert complete(path, "outcore", "-q", "run", "sum", "--keep") == ["--keepdims"]
    assert complete(path, "outcore", "convert", "a.npy", "--cast") == ["--casting"]
    assert complete(path, "outcore", "convert", "--casting", "") == ["safe", "same_kind", "unsafe"]
    assert complete(path, "outcore", "convert", "--format", "=", "z") == [
        "zarr",
        "zarr2",
        "zarrzip",
    ]
    assert complete(path, "outcore", "run", "sort", "--order", "") == ["C", "F"]
    assert complete(path, "outcore", "completion", "") == ["bash", "zsh", "fish"]
    # Paths, and values that are free: where nothing is offered the shell completes names of files.
    assert complete(path, "outcore", "info", "a") == []
    assert complete(path, "outcore", "explain", "a.npy", "--svg", "") == []
    done = subprocess.run(
        ["bash", "-c", f". {shlex.quote(str(path))}; complete -p outcore"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "-o default" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash: its completion is NOT tested")
def test_all_that_the_parsers_take_is_offered(tmp_path):
    """Each command and each operation, with all its options."""
    path = script(tmp_path)
    found = {one.path: one for one in completion.list_commands(_make_parser())}
    assert len(found) > 60
    for name in ("", "info", "convert", "create", "run", "run matmul", "run histogram", "simulate"):
        one = found[name]
        options = {name for option in one.options for name in option.names}
        offered = complete(path, "outcore", *name.split(), "-")
        assert set(offered) == options and "--help" in options
        if one.has_subcommands:
            assert set(complete(path, "outcore", *name.split(), "")) == set(one.words)
    assert {"--attr", "--dims", "--unlimited", "--quiet", "--skip"} <= {
        name for option in found["convert"].options for name in option.names
    }


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_scripts(tmp_path, shell):
    """Where they are installed; else what is in them is looked at."""
    path = script(tmp_path, shell)
    text = path.read_text()
    for word in ("histogram", "keepdims", "unlimited", "same_kind"):
        assert word in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completion is NOT run")
    subprocess.run([shell, "-n", str(path)], check=True)
    if shell == "fish":
        asked = f"source {path}; complete -C 'outcore run sta'"
        done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("statistics")
    else:
        asked = "autoload -U compinit; compinit -u -D; source $1; whence -w _outcore"
        done = subprocess.run(
            ["zsh", "-f", "-c", asked, "-", str(path)], capture_output=True, text=True, check=True
        )
        assert done.stdout == "_outcore: function\n"


def test_the_command_prints_the_script(capsys, tmp_path):
    for shell in completion.SHELLS:
        status, out, err = told(capsys, "completion", shell)
        assert (status, err) == (0, "") and out == script(tmp_path, shell).read_text()
    assert json.loads(told(capsys, "completion", "bash", "--json")[1])["shell"] == "bash"
    with pytest.raises(SystemExit) as caught:
        run("completion", "tcsh")
    assert caught.value.code == 2


# Singular and plural


def test_one_is_singular(capsys):
    store("s.h5")
    assert "1 rank wants" in told(capsys, "explain", "a.npy", "--ranks", "1")[1]
    assert "1 request," in told(capsys, "explain", "a.npy", "--ranks", "1", "--cold")[1]
    text = repr(outcore.open_group("s.h5::/g"))
    assert ": 1 member, " in text
    planned = outcore.sum("a.npy", explain=True)
    assert " 1 tile of " in str(planned.report)
