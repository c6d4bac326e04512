"""The commands `run`, `jobs` and `resume`."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import ndimage

import outcore
from outcore import jobs
from outcore.cli import main
from outcore.cli_operations import OPERATIONS, weights

DATA = np.random.default_rng(3).random((60, 40))
WHOLE = np.arange(50) % 7


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    np.save("square.npy", DATA.T @ DATA + np.eye(40))
    np.save("b.npy", DATA.T.copy())
    np.save("whole.npy", WHOLE)
    np.save("sorted.npy", np.sort(DATA[0]))


#: Arguments by name of the operation, if it does not take one array and no options.
WORDS = {
    "rechunk": ["a.npy", "out.zarr", "--chunks", "10,20"],
    "matmul": ["a.npy", "b.npy", "out.npy"],
    "tensordot": ["a.npy", "b.npy", "out.npy", "--axes", "1"],
    "solve": ["square.npy", "b.npy", "out.npy"],
    "cholesky": ["square.npy", "out.npy"],
    "lu": ["square.npy", "out.npy", "l.npy", "u.npy"],
    "bincount": ["whole.npy"],
    "inner": ["a.npy", "a.npy", "out.npy"],
    "outer": ["whole.npy", "whole.npy", "out.npy"],
    "searchsorted": ["sorted.npy", "a.npy", "out.npy"],
    "lstsq": ["a.npy", "a.npy"],
    "qr": ["a.npy", "out.npy", "r.npy"],
    "svd": ["a.npy", "out.npy", "s.npy", "vh.npy"],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_a_function_that_runs_on_files(name, capsys):
    run = OPERATIONS[name]
    words = WORDS.get(name, ["a.npy", *(["out.npy"] if run.results else [])])
    kept = ["--overwrite"] if run.results or run.out else []
    there = sorted(os.listdir("."))
    assert main(["run", name, *words, "--explain"]) == 0
    assert "must move" in capsys.readouterr().out
    assert there == sorted(os.listdir(".")), "--explain makes nothing"
    assert main(["run", name, *words]) == 0
    printed = capsys.readouterr().out
    assert main(["run", name, *words, "--json", *kept]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["operation"] == name
    if run.results:
        assert words[len(run.inputs)] in printed
        assert told["results"][0]["path"] == words[len(run.inputs)]
    else:
        given = {
            option: how.default for option, how in run.options.items() if how.default is not None
        }
        inputs = [np.load(path) for path in words[: len(run.inputs)]]
        expected = getattr(outcore, name)(*inputs, **given)
        if isinstance(expected, dict):
            assert [one["name"] for one in told["results"]] == list(expected)
            assert all(one in printed for one in expected)
            expected = tuple(expected.values())
        expected = expected if isinstance(expected, tuple) else (expected,)
        for one, value in zip(told["results"], expected, strict=True):
            np.testing.assert_allclose(one["value"], value)
    assert main(["run", name, *words, "--explain", *kept]) == 0
    assert "must move" in capsys.readouterr().out


def test_a_statistic_is_written_where_it_is_told(capsys):
    assert main(["run", "mean", "a.npy", "--axis", "0", "--out", "m.npy"]) == 0
    assert "m.npy" in capsys.readouterr().out
    np.testing.assert_allclose(DATA.mean(axis=0), np.load("m.npy"))


def test_tables_of_statistics(capsys):
    assert main(["run", "statistics", "a.npy", "--what", "nanmax,std", "--ddof", "1"]) == 0
    table = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(table["nanmax"]) == DATA.max()
    assert np.isclose(float(table["std"]), DATA.std(ddof=1))
    assert main(["run", "histogram", "a.npy", "--bins", "4", "--range", "0,1"]) == 0
    printed = capsys.readouterr().out
    assert str(np.histogram(DATA, 4, (0, 1))[0]) in printed
    assert main(["run", "histogram", "a.npy", "--range", "1"]) == 2
    assert "two numbers" in capsys.readouterr().err


def test_each_operation_has_a_help_of_its_own(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "stencil", "--help"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert "SOURCE TARGET" in printed and "--boundary" in printed and "--sigma" not in printed


def test_results_are_those_of_numpy(capsys):
    assert main(["run", "transpose", "a.npy", "t.npy", "--axes", "1,0", "--memory", "1MiB"]) == 0
    np.testing.assert_array_equal(DATA.T, np.load("t.npy"))
    main(
        [
            "run",
            "stencil",
            "a.npy",
            "s.npy",
            "--steps",
            "3",
            "--kernel",
            "box",
            "--boundary",
            "wrap",
        ]
    )
    expected = outcore.stencil(DATA, np.full((3, 3), 1 / 9), steps=3, boundary="wrap")[...]
    np.testing.assert_array_equal(expected, np.load("s.npy"))


def test_a_kernel_may_be_a_median(capsys):
    assert main(["run", "stencil", "a.npy", "out.npy", "--kernel", "median", "-q"]) == 0
    np.testing.assert_array_equal(ndimage.median_filter(DATA, 3), np.load("out.npy"))
    words = ["run", "stencil", "a.npy", "b2.npy", "--kernel", "median", "--steps", "2"]
    assert main(words) == 2
    assert "one step" in capsys.readouterr().err and not os.path.exists("b2.npy")


def test_what_has_to_be_given_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "rechunk", "a.npy", "out.zarr"])
    assert ended.value.code == 2
    assert "--chunks" in capsys.readouterr().err


def test_an_option_is_not_an_abbreviation_of_another(capsys):
    """--ord, the order of a norm, was read as the beginning of --order."""
    assert (
        main(["run", "norm", "a.npy", "--ord", "1", "--axis", "0", "--json", "--out", "n.npy"]) == 0
    )
    np.testing.assert_allclose(np.load("n.npy"), np.linalg.norm(DATA, 1, axis=0))
    with pytest.raises(SystemExit):
        main(["run", "norm", "a.npy", "--ove"])
    assert "--ove" in capsys.readouterr().err


def test_weights_by_name():
    np.testing.assert_array_equal(
        [[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]], weights("laplace", 2)
    )
    np.testing.assert_array_equal([0.25, 0.5, 0.25], weights("gauss", 1))
    for name in ("laplace", "box", "gauss"):
        for ndim in (1, 2, 3):
            assert weights(name, ndim).shape == (3,) * ndim
            np.testing.assert_allclose(weights(name, ndim).sum(), 1)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["transpose", "a.npy"], "required: TARGET"),
        (["transpose", "a.npy", "c.npy", "--steps", "3"], "unrecognized arguments: --steps 3"),
        (["nothing", "a.npy", "c.npy"], "invalid choice: 'nothing'"),
        (["transpose", "a.npy", "c.npy", "--axes", "x"], "whole numbers"),
        (["transpose", "a.npy", "c.npy", "--axes", "0,0"], "no permutation"),
        (["transpose", "a.npy", "c.npy", "--out", "d.npy"], "unrecognized arguments: --out"),
        (["stencil", "a.npy", "c.npy", "--kernel", "no"], "one of laplace, box, gauss"),
        (["stencil", "a.npy", "c.npy", "--until", "x"], "--until 'x'"),
        (["transpose", "a.npy", "b.npy"], "here: --overwrite"),
        (["transpose", "none.npy", "c.npy"], "none.npy"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_makes_no_sense_is_said(words, match, capsys):
    try:
        status = main(["run", *words])
    except SystemExit as ended:
        status = ended.code
    assert status in (2, 3)
    assert match in capsys.readouterr().err
    assert not os.path.exists("c.npy")


class Stop(Exception):
    pass


def test_jobs_are_listed_continued_and_removed(monkeypatch, capsys):
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    data = np.random.default_rng(4).random((700, 500))
    np.save("big.npy", data)
    calls = 0

    def progress(done, total):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Stop

    for name in ("c.npy", "d.npy"):
        calls = 0
        with pytest.raises(Stop):
            outcore.transpose("big.npy", out=name, memory="1 MiB", progress=progress)
        assert main(["jobs"]) == 0
        assert f"{name}, 3 of" in capsys.readouterr().out
        if name == "c.npy":
            assert main(["resume"]) == 0
            assert "c.npy: complete" in capsys.readouterr().out
    np.testing.assert_array_equal(data.T, np.load("c.npy"))
    assert main(["jobs", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["jobs"]
    assert told["state"] == "resumable"
    assert main(["jobs", "--clean"]) == 0
    assert "removed" in capsys.readouterr().out
    assert not [n for n in os.listdir() if "outcore" in n]
    assert main(["jobs"]) == 0
    assert "no unfinished jobs" in capsys.readouterr().out
    assert main(["resume"]) == 0
    assert "nothing to go on with" in capsys.readouterr().out


def interrupted(monkeypatch, call, *inputs, **words):
    """Stop a computation after three steps, which are durable."""
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    calls = 0

    def progress(done, total):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Stop

    with pytest.raises(Stop):
        call(*inputs, **words, memory="1 MiB", progress=progress)


def test_what_resume_cannot_go_on_with_it_says(monkeypatch, capsys):
    """And ends with a status of its own, after it has gone on with all else."""
    np.save("big.npy", np.random.default_rng(4).random((700, 500)))
    interrupted(monkeypatch, outcore.transpose, "big.npy", out="c.npy")
    interrupted(monkeypatch, outcore.map_blocks, np.negative, "big.npy", out="d.npy")
    assert main(["resume"]) == 3
    told = capsys.readouterr()
    assert "c.npy: complete" in told.out
    assert "d.npy.outcore-journal: map_blocks to " in told.err
    assert "[cannot-repeat]" in told.err
    assert "the same Python call with resume=True" in told.err
    assert main(["resume", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["complete"] == []
    assert [one["state"] for one in told["left"]] == ["repeat"]
    outcore.map_blocks(np.negative, "big.npy", out="d.npy", memory="1 MiB", resume=True).close()
    assert main(["resume"]) == 0
    assert "nothing to go on with" in capsys.readouterr().out


def test_resume_says_that_a_journal_is_damaged(capsys):
    with open("c.npy.outcore-journal", "wb") as file:
        file.write(b"nothing that makes sense" * 10)
    assert main(["resume"]) == 3
    assert "c.npy.outcore-journal is damaged" in capsys.readouterr().err


def test_a_transform_that_was_killed_goes_on(capsys):
    """Report: `outcore resume` ended with 0 and "nothing to go on with" after the kill of an `fft2`."""
    data = np.random.default_rng(4).random((700, 500))
    np.save("big.npy", data)
    killed = (
        "import os, signal, outcore\n"
        "outcore.jobs.checkpoints._CHECKPOINT = 0.0\n"
        "progress = lambda done, total: done >= 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "outcore.fft2('big.npy', out='c.npy', memory='6 MiB', progress=progress)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", killed], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not os.path.exists("c.npy")
    assert main(["resume"]) == 0
    assert "c.npy: complete" in capsys.readouterr().out
    np.testing.assert_allclose(np.load("c.npy"), np.fft.fft2(data), rtol=1e-9, atol=1e-7)
