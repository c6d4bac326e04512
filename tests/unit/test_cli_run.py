"""The commands `run`, `jobs` and `resume`."""

import json
import os

import numpy as np
import pytest

import outcore
from outcore import jobs
from outcore.cli import main
from outcore.cli_run import OPERATIONS, weights

DATA = np.random.default_rng(3).random((60, 40))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    np.save("square.npy", DATA.T @ DATA + np.eye(40))
    np.save("b.npy", DATA.T.copy())


#: Arguments by name of the operation, if it does not take one array and no options.
WORDS = {
    "rechunk": ["a.npy", "out.zarr", "--chunks", "10,20"],
    "matmul": ["a.npy", "b.npy", "out.npy"],
    "tensordot": ["a.npy", "b.npy", "out.npy", "--axes", "1"],
    "solve": ["square.npy", "b.npy", "out.npy"],
    "cholesky": ["square.npy", "out.npy"],
    "qr": ["a.npy", "out.npy", "r.npy"],
    "svd": ["a.npy", "out.npy", "s.npy", "vh.npy"],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_a_function_that_runs_on_files(name, capsys):
    run = OPERATIONS[name]
    words = WORDS.get(name, ["a.npy", *(["out.npy"] if run.results else [])])
    assert main(["run", name, *words]) == 0
    printed = capsys.readouterr().out
    assert main(["run", name, *words, "--json", "--overwrite"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["operation"] == name
    if run.results:
        assert words[len(run.inputs)] in printed
        assert told["results"][0]["path"] == words[len(run.inputs)]
    else:
        expected = getattr(outcore, name)(DATA, **({"q": 0.5} if name == "quantile" else {}))
        np.testing.assert_allclose(told["results"][0]["value"], expected)
    assert main(["run", name, *words, "--explain", "--overwrite"]) == 0
    assert "must move" in capsys.readouterr().out


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
        (["transpose", "a.npy"], "takes 2 paths: SOURCE TARGET"),
        (["transpose", "a.npy", "c.npy", "--steps", "3"], "takes no --steps"),
        (["transpose", "a.npy", "c.npy", "--axes", "x"], "whole numbers"),
        (["transpose", "a.npy", "c.npy", "--axes", "0,0"], "no permutation"),
        (["transpose", "a.npy", "c.npy", "--out", "d.npy"], "--out is for statistics"),
        (["stencil", "a.npy", "c.npy", "--kernel", "no"], "one of laplace, box, gauss"),
        (["stencil", "a.npy", "c.npy", "--until", "x"], "--until 'x'"),
        (["transpose", "a.npy", "b.npy"], "here: --overwrite"),
        (["transpose", "none.npy", "c.npy"], "none.npy"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_makes_no_sense_is_said(words, match, capsys):
    assert main(["run", *words]) in (2, 3)
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
