"""The command line, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore.cli import main, parse_section
from outcore.cli.output import Bar


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save("a.npy", np.arange(600.0).reshape(20, 30))


def run(*words):
    return main(list(map(str, words)))


def run_json(capsys, *words):
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[100:200, ::3]", np.s_[100:200, ::3]),
        ("1, -2", (1, -2)),
        ("...", ...),
        ("[]", ()),
        ("[..., None, ::-1]", (..., None, slice(None, None, -1))),
        (" 5 ", 5),
    ],
)
def test_sections(text, key):
    assert parse_section(text) == key


def test_sections_of_ranks():
    text = "[size % 3 + 2 * (rank - 1) : -rank : rank // 2, ..., rank]"
    key = (slice(5, -3, 1), ..., 3)
    assert parse_section(text, rank=3, size=4) == key


@pytest.mark.parametrize(
    "text",
    [
        "[1",
        "a",
        "__import__('os')",
        "1.5",
        "[[1,2]]",
        "1]; [2",
        "'x'",
        "True",
        "(" * 5000,
        "1 if 1 else 2",
    ],
)
def test_invalid_sections_are_refused(text):
    with pytest.raises(outcore.errors.UsageError):
        parse_section(text)


def test_info(capsys):
    assert run("info", "a.npy") == 0
    text = capsys.readouterr().out
    assert "float64" in text or "<f8" in text
    assert "column" in text


def test_info_as_json(capsys):
    facts = run_json(capsys, "info", "a.npy")
    assert facts["shape"] == [20, 30]
    assert facts["dtype"] == "<f8"
    assert facts["file_bytes"] == os.path.getsize("a.npy")
    assert facts["accesses"]["whole"]["useful_bytes"] == 4800
    assert facts["accesses"]["column"]["useful_bytes"] == 160


def test_info_of_a_chunked_array(capsys):
    outcore.convert(
        "a.npy",
        "a.zarr",
        chunks=(5, 7),
        compression="zstd",
        attrs={"units": "K", "bad": float("nan")},
    )
    facts = run_json(capsys, "info", "a.zarr")
    assert facts["chunks"] == [5, 7]
    assert facts["attrs"]["units"] == "K"
    assert facts["accesses"]["chunk"]["useful_bytes"] == 5 * 7 * 8
    assert any("zstd" in codec for codec in facts["codecs"])
    assert run("info", "a.zarr") == 0
    assert "units = 'K'" in capsys.readouterr().out


def test_info_of_a_raw_file(capsys):
    np.arange(12, dtype="i2").tofile("a.bin")
    facts = run_json(capsys, "info", "a.bin", "-s", "dtype=i2", "-s", "shape=3,4")
    assert facts["shape"] == [3, 4]


def test_ls(capsys):
    outcore.convert("a.npy", "b.h5::/x/one")
    outcore.convert("a.npy", "b.h5::/two")
    entries = run_json(capsys, "ls", "b.h5")
    assert {"b.h5::/two", "b.h5::/x/one"} <= {e["path"] for e in entries}
    assert run("ls", "b.h5") == 0
    assert "float64 (20, 30)" in capsys.readouterr().out
    assert run("info", "b.h5") == 0, "several arrays: the list"
    assert "b.h5::/two" in capsys.readouterr().out


def test_explain(capsys):
    report = run_json(capsys, "explain", "a.npy", "[::2, 3]")
    assert report["useful_bytes"] == 80
    assert report["direction"] == "read"
    assert run("explain", "a.npy", "5", "--write") == 0
    assert "write" in capsys.readouterr().out


def test_explain_of_many_ranks(capsys):
    words = (
        "explain",
        "a.npy",
        "[:, rank::size]",
        "--ranks",
        "3",
        "--cold",
        "--method",
        "two-phase",
    )
    assert run(*words, "--svg", "a.svg") == 0
    text = capsys.readouterr().out
    assert "3 ranks want 4.80 kB together" in text and "picture  a.svg" in text
    root = xml.parse("a.svg").getroot()
    assert (
        "3 ranks read a.npy [:, rank::size]" in root.find("{http://www.w3.org/2000/svg}title").text
    )
    report = run_json(capsys, *words)
    assert report["wanted_bytes"] == 4800
    assert report["alone"]["nbytes"] >= 4800 and report["together"]["requests"] >= 1
    assert run("explain", "a.npy", "--ranks", "5000") == 0, "text has no limit that matters"
    assert "5000 ranks" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rows", "columns", "blocks", "cyclic"])
def test_explain_of_a_distribution(capsys, name):
    # Of 25 ranks some have no rows.
    for number in (1, 4, 25):
        words = ("--distribution", name, "--ranks", number)
        for more in ((), ("--write",)):
            assert run_json(capsys, "explain", "a.npy", *words, *more)["wanted_bytes"] == 4800


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("[rank ** 9, size]", "--ranks", "2"), "is not a section"),
        (("[rank // 0]", "--ranks", "2"), "is not a section"),
        (("[other]", "--ranks", "2"), "is not a section"),
        (("[rank.real]", "--ranks", "2"), "is not a section"),
        (("[rank]",), "with --ranks N"),
        (("[1 + 1]",), "with --ranks N"),
        (("[10 * rank]", "--ranks", "3"), "rank 2: index 20 on axis 0"),
        (("--ranks", "0"), "use 1 to"),
        (("--svg", "a.svg"), "add --ranks N"),
        (("--cold",), "add --ranks N"),
        (("[0]", "--distribution", "rows", "--ranks", "2"), "omit one of them"),
        (("--ranks", "65", "--svg", "a.svg"), "use --ranks 64"),
        (("--ranks", "2", "--svg", "nowhere/a.svg"), "a file in a writable folder"),
    ],
)
def test_explain_refuses_invalid_options_for_ranks(capsys, words, said):
    assert run("explain", "a.npy", *words) == 2
    assert said in capsys.readouterr().err
    assert not os.path.exists("a.svg")


def test_convert(capsys):
    words = ("--chunks", "5,7", "--compression", "zstd:3", "--dtype", "f4")
    answer = run_json(capsys, "convert", "a.npy", "b.zarr", *words)
    assert answer["nbytes"] == 4800
    with outcore.open("b.zarr") as made:
        assert made.chunks == (5, 7)
        assert made.dtype == "f4"
        np.testing.assert_array_equal(made[...], np.load("a.npy"))
    assert run("convert", "a.npy", "b.zarr") == 2
    assert "exists" in capsys.readouterr().err
    assert run("convert", "a.npy", "b.zarr", "--overwrite", "--compression", "none") == 0
    assert "4.80 kB" in capsys.readouterr().out


def test_verify(capsys):
    outcore.convert("a.npy", "b.zarr", chunks=(5, 10), compression="gzip")
    assert run("verify", "b.zarr") == 0
    for name in ("c/0/1", "c/3/2"):
        path = Path("b.zarr", name)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    capsys.readouterr()
    assert run("verify", "b.zarr") == 1
    text = capsys.readouterr().out
    assert "[0:5, 10:20]" in text
    assert "[15:20, 20:30]" in text
    assert "2 damaged" in text
    assert run("verify", "b.zarr", "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["damages"]) == 2


def test_verify_says_that_a_file_is_cut_off(capsys):
    os.truncate("a.npy", 4000)
    assert run("verify", "a.npy") == 1
    text = capsys.readouterr().out
    assert "[cannot-open: file-too-short]" in text
    assert "a.npy: 1 damaged\n" in text
    (only,) = json.loads(run_verify(capsys, "a.npy", 1))["damages"]
    assert (only["code"], only["reason"], only["section"]) == ("cannot-open", "file-too-short", "")
    assert run("verify", "missing.npy") == 3
    assert "[not-found]" in capsys.readouterr().err


def run_verify(capsys, path, status):
    capsys.readouterr()
    assert run("verify", path, "--json") == status
    return capsys.readouterr().out


def test_verify_tells_what_it_cannot_open_from_what_is_damaged(capsys):
    h5py = pytest.importorskip("h5py")
    data = np.arange(1000.0)
    with h5py.File("b.h5", "w") as file:
        file["good"] = data
        file.create_dataset("odd", (2,), h5py.vlen_dtype("i4"))
        file.create_dataset("sums", data=data, chunks=(100,), fletcher32=True)
        offset = file["sums"].id.get_chunk_info(3).byte_offset
    outcore.create("b.zarr::/good", data=data, chunks=100, compression="gzip").close()
    outcore.create("b.zarr::/odd", data=data).close()
    Path("b.zarr/odd/zarr.json").write_text("{")
    assert [d.code for d in outcore.verify("b.h5")] == ["cannot-open"]
    assert run("verify", "b.h5") == 3
    assert "b.h5::/odd: [cannot-open: hdf5-type]" in capsys.readouterr().out
    (only,) = json.loads(run_verify(capsys, "b.zarr", 1))["damages"]
    assert only["path"].endswith("b.zarr::/odd") and only["reason"] == "bad-metadata"
    # Damage counts for more.
    with open("b.h5", "r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 8)
    Path("b.zarr/good/c/5").write_bytes(b"x")
    for path, section in (("b.h5", "[300:400]"), ("b.zarr", "[500:600]")):
        found = json.loads(run_verify(capsys, path, 1))["damages"]
        damaged = [d for d in found if d["code"] != "cannot-open"]
        assert len(found) == 2
        assert [(section, "codec-failure", "")] == [
            (d["section"], d["code"], d["reason"]) for d in damaged
        ]
        assert run("verify", path) == 1
        counts = "1 damaged, 1 could not be opened" if path == "b.h5" else "2 damaged"
        assert f"{path}: {counts}\n" in capsys.readouterr().out
    # A file that nothing is known of; and a call that says too little.
    Path("c.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"x" * 500)
    assert run("verify", "c.h5") == 1
    Path("d.raw").write_bytes(bytes(80))
    assert run("verify", "d.raw") == 2
    assert "[raw-needs-dtype]" in capsys.readouterr().err
    assert run("verify", "d.raw", "--set", "dtype=f8") == 0
    assert run("verify", "d.raw", "--set", "dtype=f8", "--set", "shape=100") == 1


def test_bench_measures_and_keeps_the_figures(capsys, tmp_path):
    figures = run_json(capsys, "bench", tmp_path, "--size", "16MiB", "--slice", "2")
    assert figures["stream"] > 0
    assert figures["gap"] >= 0
    kept = json.loads((tmp_path / "cache/outcore/disk.json").read_text())
    assert [disk["gap"] for disk in kept["disks"]] == [figures["gap"]]
    assert run("bench", tmp_path, "--size", "16MiB", "--slice", "2") == 0
    assert "cheaper to read than to skip" in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "cache"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("info", "missing.npy"), 3, "[not-found]"),
        (("explain", "a.npy", "[99, 0]"), 2, "[index-out-of-bounds]"),
        (("explain", "a.npy", "[0, 0, 0]"), 2, "["),
        (("explain", "a.npy", "x"), 2, "[bad-section]"),
        (("convert", "a.npy", "b.zarr", "--chunks", "x"), 2, "[bad-option]"),
        (("convert", "a.npy", "b.npy", "--dtype", "nonsense"), 2, "["),
        (("info", "a.npy", "-s", "dtype"), 2, "[bad-option]"),
        (("info", "a.npy", "--memory", "lots"), 2, "[bad-hint]"),
        (("bench", "a.npy"), 2, "[bad-folder]"),
        (("bench", ".", "--size", "4KiB"), 2, "[bad-option]"),
    ],
)
def test_errors_have_a_status_and_a_code(words, status, text, capsys):
    assert run(*words) == status
    output = capsys.readouterr()
    assert text in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


def test_errors_name_the_options_of_the_command_line(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.arange(3.0))
    (tmp_path / "b.bin").write_bytes(bytes(8))
    source, target = f"{tmp_path}/a.npy", f"{tmp_path}/c.npy"
    for words, status, here in (
        (("convert", source, f"{tmp_path}/b.bin"), 2, "; use --overwrite to replace it"),
        (
            ("convert", source, target, "--dtype", "i4"),
            2,
            "(on the command line: --casting unsafe)",
        ),
        (
            ("convert", source, target, "--memory", "1KiB"),
            3,
            "(on the command line: --memory BYTES)",
        ),
        (("info", f"{tmp_path}/b.bin"), 2, "(on the command line: --set dtype=f4"),
    ):
        assert run(*words) == status
        assert here in capsys.readouterr().err


def test_no_command_shows_what_there_is(capsys):
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m outcore explain a.npy | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_ends_cleanly_and_resume_goes_on():
    data = np.arange(4_000_000.0).reshape(2000, 2000)
    np.save("big.npy", data)
    slow = """
import sys, time, outcore.cli
old = outcore.convert
seen = []
def convert(*a, progress, **k):
    def wait(done, total):
        progress(done, total); print(done, flush=True)
        seen.append(done); time.sleep(60 if len(seen) == 2 else 0)  # until the signal comes
    return old(*a, progress=wait, **k)
outcore.convert = convert
sys.exit(outcore.cli.main(sys.argv[1:]))
"""
    words = ["convert", "big.npy", "b.npy", "--order", "F", "--memory", "4MiB"]
    process = subprocess.Popen(
        [sys.executable, "-c", slow, *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert "outcore: interrupted\n" in error
    assert "steps of 'b.npy' are complete and preserved; the same call with --resume" in error
    assert not os.path.exists("b.npy")
    before = outcore.memory()
    assert run(*words, "--resume") == 0
    assert outcore.memory() == before
    np.testing.assert_array_equal(np.load("b.npy"), data)


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return True


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_the_bar_shows_share_rate_and_time_left(monkeypatch, with_tqdm):
    if not with_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    terminal = Terminal()
    with Bar("converting", quiet=False, stream=terminal) as bar:
        bar(0, 1000)
        time.sleep(0.25)
        bar(500, 1000)
        bar(1000, 1000)
    assert "converting" in terminal.text
    assert "100%" in terminal.text
    assert "B/s" in terminal.text


def test_the_bar_is_silent_in_a_pipe(capsys):
    with Bar("converting", quiet=False) as bar:
        bar(1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["info", "a.npy"], ["--memory", "1MiB", "ls", "."]])
def test_a_bad_environment_is_a_usage_error(monkeypatch, words):
    monkeypatch.setenv("OUTCORE_MEMORY", "lots")
    done = subprocess.run([sys.executable, "-m", "outcore", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("outcore: ") and "OUTCORE_MEMORY: " in done.stderr
    assert done.stderr.count("\n") == 1
