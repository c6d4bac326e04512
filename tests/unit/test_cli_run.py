"""The commands `run`, `jobs` and `resume`."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import linalg, ndimage

import outcore
from outcore.cli import main
from outcore.cli.operations import OPERATIONS, make_weights
from outcore.compute import jobs
from outcore.public import find_public
from stopping import Stop

DATA = np.random.default_rng(3).random((60, 40))
WHOLE = np.arange(50) % 7
WINDOW = np.array([[1.0, 2, 3], [0, -1, 0]])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    np.save("square.npy", DATA.T @ DATA + np.eye(40))
    np.save("b.npy", DATA.T.copy())
    np.save("whole.npy", WHOLE)
    np.save("sorted.npy", np.sort(DATA[0]))
    np.save("window.npy", WINDOW)
    lu, piv = linalg.lu_factor(np.load("square.npy"))
    np.save("lu.npy", lu)
    np.save("piv.npy", piv)
    np.save("lower.npy", np.linalg.cholesky(np.load("square.npy")))


#: Arguments by name of the operation, if it does not take one array and no options.
WORDS = {
    "rechunk": ["a.npy", "out.zarr", "--chunks", "10,20"],
    "matmul": ["a.npy", "b.npy", "out.npy"],
    "dot": ["whole.npy", "whole.npy"],
    "correlate": ["a.npy", "out.npy", "--weights", "window.npy"],
    "convolve": ["a.npy", "out.npy", "--weights", "window.npy"],
    "lu_factor": ["square.npy", "out.npy", "p.npy"],
    "lu_solve": ["lu.npy", "piv.npy", "b.npy", "out.npy"],
    "cho_solve": ["lower.npy", "b.npy", "out.npy"],
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
        expected = find_public(name)(*inputs, **given)
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


def test_weights_by_name():
    np.testing.assert_array_equal(
        [[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]], make_weights("laplace", 2)
    )
    np.testing.assert_array_equal([0.25, 0.5, 0.25], make_weights("gauss", 1))
    for name in ("laplace", "box", "gauss"):
        for ndim in (1, 2, 3):
            assert make_weights(name, ndim).shape == (3,) * ndim
            np.testing.assert_allclose(make_weights(name, ndim).sum(), 1)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["transpose", "a.npy"], "required: TARGET"),
        (["transpose", "a.npy", "c.npy", "--steps", "3"], "unrecognized arguments: --steps 3"),
        (["nothing", "a.npy", "c.npy"], "invalid choice: 'nothing'"),
        (["transpose", "a.npy", "c.npy", "--axes", "x"], "whole numbers"),
        (["transpose", "a.npy", "c.npy", "--axes", "0,0"], "repeated or do not exist"),
        (["transpose", "a.npy", "c.npy", "--out", "d.npy"], "unrecognized arguments: --out"),
        (["stencil", "a.npy", "c.npy", "--kernel", "no"], "one of laplace, box, gauss, median"),
        (["stencil", "a.npy", "c.npy", "--size", "5"], "use --kernel median"),
        (["stencil", "a.npy", "c.npy", "--kernel", "median", "--steps", "2"], "omit --steps"),
        (["stencil", "a.npy", "c.npy", "--kernel", "median", "--until", "2"], "omit --steps"),
        (
            ["stencil", "a.npy", "c.npy", "--kernel", "median", "--boundary", "untouched"],
            "--boundary untouched",
        ),
        (["rechunk", "a.npy", "c.npy"], "arguments are required: --chunks"),
        (["correlate", "a.npy", "c.npy"], "arguments are required: --weights"),
        (["correlate", "a.npy", "c.npy", "--weights", "none.npy"], "none.npy"),
        (["transpose", "a.npy", "c.npy", "--ax", "1,0"], "unrecognized arguments: --ax"),
        (["sum", "a.npy", "--out", "c.npy", "--dtype", "no"], "--dtype 'no'"),
        (["median_filter", "a.npy", "c.npy", "--output", "no"], "--output 'no'"),
        (["sort", "a.npy", "c.npy", "--axis", "x"], "--axis 'x'"),
        (["dot", "a.npy", "b.npy"], "--out PATH"),
        (["norm", "a.npy", "--ord", "no"], "ord='no'"),
        (["stencil", "a.npy", "c.npy", "--until", "x"], "--until 'x'"),
        (["matmul", "a.npy", "a.npy", "c.npy", "--axes", "1,0"], "0,1:1,0:0,1"),
        (["matmul", "a.npy", "a.npy", "c.npy", "--axes", "1,0:0,1:0"], "axes="),
        (["lu_solve", "lu.npy", "piv.npy", "b.npy", "c.npy", "--trans", "3"], "trans=3"),
        (["searchsorted", "a.npy", "b.npy", "c.npy", "--sorter", "none.npy"], "none.npy"),
        (["histogram", "a.npy", "--weights", "b.npy"], "weights= has shape (40, 60)"),
        (["bincount", "whole.npy", "--minlength", "-1"], "minlength=-1"),
        (["transpose", "a.npy", "b.npy"], "use --overwrite"),
        (["transpose", "none.npy", "c.npy"], "none.npy"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_invalid_operations_end_with_a_message(words, match, capsys):
    try:
        status = main(["run", *words])
    except SystemExit as ended:
        status = ended.code
    assert status in (2, 3)
    assert match in capsys.readouterr().err
    assert not os.path.exists("c.npy")


@pytest.mark.parametrize(
    "command", ["resume --qui", "jobs --cle", "info a.npy --js", "--mem 1MiB jobs"]
)
def test_options_are_not_abbreviated(command, capsys):
    """An option of today must not be taken for another one of tomorrow."""
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    capsys.readouterr()


def value(*words):
    """What an operation prints, as its JSON document has it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["run", *words, "--json"]) == 0
    return json.loads(printed.getvalue())["results"][0]["value"]


def test_norms_have_an_order_that_is_not_that_of_a_file():
    for power in ("1", "3", "inf", "-inf"):
        found = value("norm", "a.npy", "--ord", power, "--axis", "1")
        np.testing.assert_allclose(found, np.linalg.norm(DATA, float(power), 1))
    for name in ("fro", "nuc"):
        expected = np.linalg.norm(DATA, name)
        np.testing.assert_allclose(value("norm", "a.npy", "--ord", name), expected)
    for power in ("2", "-2"):
        expected = np.linalg.norm(DATA, float(power))
        np.testing.assert_allclose(value("norm", "a.npy", "--ord", power), expected)
    found = value("norm", "a.npy", "--axis", "0", "--keepdims")
    np.testing.assert_allclose(found, np.linalg.norm(DATA, axis=0, keepdims=True))


@pytest.mark.parametrize(
    "name", ["sum", "max", "argmin", "any", "median", "nanstd", "count_nonzero"]
)
def test_reduced_axes_stay_if_that_is_told(name):
    found = value(name, "a.npy", "--axis", "1", "--keepdims")
    np.testing.assert_allclose(found, getattr(np, name)(DATA, axis=1, keepdims=True))


def test_the_dtype_of_a_sum():
    np.save("small.npy", np.full(40, 200, "u1"))
    assert value("sum", "small.npy", "--dtype", "u1") == 40 * 200 % 256
    assert value("prod", "small.npy", "--dtype", "f8") == 200.0**40
    for name in ("mean", "var", "std", "nansum", "nanprod", "nanmean", "nanvar", "nanstd"):
        assert (
            main(["run", name, "a.npy", "--dtype", "f4", "--axis", "0", "--out", f"{name}.npy"])
            == 0
        )
        assert np.load(f"{name}.npy").dtype == "f4"
    assert main(["run", "cumsum", "a.npy", "c.npy", "--dtype", "c16"]) == 0
    assert np.load("c.npy").dtype == "c16"


@pytest.mark.parametrize("name", ["sort", "argsort", "cumsum", "cumprod"])
def test_all_elements_as_one_line(name):
    assert main(["run", name, "a.npy", "c.npy", "--axis", "none"]) == 0
    np.testing.assert_allclose(np.load("c.npy"), getattr(np, name)(DATA, axis=None))


@pytest.mark.parametrize(
    ("words", "size", "mode"),
    [
        ([], 3, "reflect"),
        (["--size", "5"], 5, "reflect"),
        (["--size", "3,5", "--boundary", "wrap"], (3, 5), "wrap"),
    ],
    ids=str,
)
def test_a_stencil_that_is_a_median(words, size, mode, capsys):
    assert main(["run", "stencil", "a.npy", "c.npy", "--kernel", "median", *words]) == 0
    expected = ndimage.median_filter(DATA, size, mode=mode)
    np.testing.assert_array_equal(expected, np.load("c.npy"))


@pytest.mark.parametrize("name", ["correlate", "convolve"])
def test_weights_are_in_a_file(name, capsys):
    words = ["--weights", "window.npy", "--mode", "wrap", "--output", "f4"]
    assert main(["run", name, "a.npy", "c.npy", *words]) == 0
    expected = getattr(ndimage, name)(DATA, WINDOW, output="f4", mode="wrap")
    np.testing.assert_array_equal(expected, np.load("c.npy"))


def test_weights_are_read_from_a_file(capsys):
    heavy = np.random.default_rng(5).random(DATA.shape)
    np.save("heavy.npy", heavy)
    words = ["histogram", "a.npy", "--bins", "4", "--weights", "heavy.npy"]
    np.testing.assert_allclose(value(*words), np.histogram(DATA, 4, weights=heavy)[0])
    expected = np.histogram(DATA, 4, weights=heavy, density=True)[0]
    np.testing.assert_allclose(value(*words, "--density"), expected)
    np.save("heavy.npy", heavy.ravel()[: WHOLE.size])
    expected = np.bincount(WHOLE, heavy.ravel()[: WHOLE.size], 9)
    words = ["bincount", "whole.npy", "--weights", "heavy.npy", "--minlength", "9"]
    np.testing.assert_array_equal(value(*words), expected)
    assert main(["run", *words, "--out", "c.npy"]) == 0
    np.testing.assert_array_equal(np.load("c.npy"), expected)


def test_set_tells_of_inputs_and_not_of_what_options_name():
    """A raw file has no dtype of its own, its weights do."""
    DATA.tofile("a.raw")
    words = ["--set", "dtype=f8", "--set", "shape=60,40", "--bins", "4", "--weights", "a.npy"]
    np.testing.assert_allclose(
        value("histogram", "a.raw", *words), np.histogram(DATA, 4, weights=DATA)[0]
    )


def test_sorter_is_read_from_a_file(capsys):
    np.save("line.npy", DATA[0])
    assert main(["run", "argsort", "line.npy", "order.npy"]) == 0
    words = ["searchsorted", "line.npy", "a.npy", "c.npy", "--sorter", "order.npy"]
    assert main(["run", *words, "--side", "right"]) == 0
    expected = np.searchsorted(np.sort(DATA[0]), DATA, "right")
    np.testing.assert_array_equal(np.load("c.npy"), expected)


def test_a_product_along_other_axes(capsys):
    words = ["matmul", "a.npy", "a.npy", "c.npy", "--axes"]
    assert main(["run", *words, "1,0:0,1:0,1"]) == 0
    np.testing.assert_allclose(np.load("c.npy"), DATA.T @ DATA)
    assert main(["run", *words, "-2,-1:-1,-2:1,0", "--overwrite"]) == 0
    np.testing.assert_allclose(np.load("c.npy"), (DATA @ DATA.T).T)


def test_an_inner_product_is_a_number_and_a_product_of_matrices_a_file(capsys):
    assert main(["run", "dot", "whole.npy", "whole.npy"]) == 0
    assert capsys.readouterr().out == f"{WHOLE @ WHOLE}\n"
    assert main(["run", "dot", "a.npy", "b.npy", "--out", "c.npy"]) == 0
    np.testing.assert_allclose(np.load("c.npy"), DATA @ DATA.T)


def test_values_may_begin_with_a_minus(capsys):
    assert main(["run", "fft2", "a.npy", "c.npy", "--axes", "-2,-1"]) == 0
    np.testing.assert_allclose(np.load("c.npy"), np.fft.fft2(DATA), atol=1e-9)
    assert main(["run", "histogram", "a.npy", "--bins", "2", "--range", "-1,1"]) == 0
    assert f"[   0 {DATA.size}]" in capsys.readouterr().out


def test_factors_in_files(capsys):
    words = ["square.npy", "c.npy", "piv.npy", "--overwrite"]
    assert main(["run", "lu_factor", *words]) == 0
    lu, piv = linalg.lu_factor(np.load("square.npy"))
    np.testing.assert_allclose(np.load("c.npy"), lu)
    np.testing.assert_array_equal(np.load("piv.npy"), piv)
    for trans in ("0", "1"):
        words = ["c.npy", "piv.npy", "b.npy", "x.npy", "--trans", trans]
        assert main(["run", "lu_solve", *words, "--overwrite"]) == 0
        matrix = np.load("square.npy")
        expected = np.linalg.solve(matrix.T if trans == "1" else matrix, np.load("b.npy"))
        np.testing.assert_allclose(np.load("x.npy"), expected)
    np.save("upper.npy", np.load("lower.npy").T)
    for words in (["lower.npy"], ["upper.npy", "--upper"]):
        assert main(["run", "cho_solve", *words, "b.npy", "x.npy", "--overwrite"]) == 0
        np.testing.assert_allclose(np.load("x.npy"), np.linalg.solve(matrix, np.load("b.npy")))


def test_a_solution_of_least_squares_in_a_file(capsys):
    np.save("sides.npy", DATA[:, :2])
    assert main(["run", "lstsq", "a.npy", "sides.npy", "--out", "c.npy"]) == 0
    printed = capsys.readouterr().out
    assert "c.npy: shape (40, 2)" in printed and "rank" in printed
    expected = np.linalg.lstsq(DATA, DATA[:, :2])[0]
    np.testing.assert_allclose(np.load("c.npy"), expected, atol=1e-12)


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
    assert "nothing to resume" in capsys.readouterr().out


def interrupted(monkeypatch, call, *inputs, calls_before=3, share=0.0, **words):
    """Stop a computation that has a journal, after so many calls of `progress` and a share of it."""
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    calls = 0

    def progress(done, total):
        nonlocal calls
        calls += 1
        begun = os.path.exists(f"{words['out']}.outcore-journal")
        if calls > calls_before and done >= share * total and begun:
            raise Stop

    with pytest.raises(Stop):
        call(*inputs, **words, memory="1 MiB", progress=progress)


def test_resume_lists_jobs_that_it_cannot_resume(monkeypatch, capsys):
    """And ends with a status of its own, after it has gone on with all else."""
    np.save("big.npy", np.random.default_rng(4).random((700, 500)))
    interrupted(monkeypatch, outcore.transpose, "big.npy", out="c.npy")
    interrupted(monkeypatch, outcore.map_blocks, np.negative, "big.npy", out="d.npy")
    assert main(["resume"]) == 3
    told = capsys.readouterr()
    assert "c.npy: complete" in told.out
    assert "d.npy.outcore-journal: map_blocks to " in told.err
    assert "[cannot-repeat]" in told.err
    assert "repeat the Python call with resume=True" in told.err
    assert main(["resume", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["complete"] == []
    assert [one["state"] for one in told["left"]] == ["repeat"]
    outcore.map_blocks(np.negative, "big.npy", out="d.npy", memory="1 MiB", resume=True).close()
    assert main(["resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


def test_a_search_goes_on_with_what_sorts(monkeypatch, capsys):
    """Its journal says what `sorter` was."""
    rng = np.random.default_rng(4)
    line, places = rng.random(3000), rng.random((700, 500))
    np.save("line.npy", line)
    np.save("order.npy", np.argsort(line))
    np.save("big.npy", places)
    words = {"sorter": "order.npy", "out": "c.npy"}
    interrupted(monkeypatch, outcore.searchsorted, "line.npy", "big.npy", **words)
    assert main(["resume"]) == 0
    assert "c.npy: complete" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load("c.npy"), np.searchsorted(np.sort(line), places))


def test_a_solution_goes_on_by_the_same_command_only(monkeypatch, capsys):
    """Factors are one argument of two things, which a journal does not hold."""
    rng = np.random.default_rng(4)
    lu, piv = linalg.lu_factor(rng.random((300, 300)))
    for name, one in (("f.npy", lu), ("p.npy", piv), ("s.npy", rng.random((300, 700)))):
        np.save(name, one)
    # Columns are solved in groups: when the last one is, the first one has been stored.
    factors, words = ("f.npy", "p.npy"), {"out": "c.npy", "share": 0.9}
    interrupted(monkeypatch, outcore.linalg.lu_solve, factors, "s.npy", **words)
    assert main(["resume"]) == 3
    assert "or `outcore run` with --resume" in capsys.readouterr().err
    words = ["lu_solve", "f.npy", "p.npy", "s.npy", "c.npy", "--memory", "1MiB"]
    assert main(["run", *words, "--resume"]) == 0
    assert not jobs.unfinished()
    expected = linalg.lu_solve((lu, piv), np.load("s.npy"))
    np.testing.assert_allclose(np.load("c.npy"), expected)


def test_resume_says_that_a_journal_is_damaged(capsys):
    with open("c.npy.outcore-journal", "wb") as file:
        file.write(b"nothing that makes sense" * 10)
    assert main(["resume"]) == 3
    assert "c.npy.outcore-journal is damaged" in capsys.readouterr().err


def test_a_transform_that_was_killed_goes_on(capsys):
    """Report: `outcore resume` ended with 0 and "nothing to resume" after the kill of an `fft2`."""
    data = np.random.default_rng(4).random((700, 500))
    np.save("big.npy", data)
    killed = (
        "import os, signal, outcore, outcore.compute.jobs.checkpoints as checkpoints\n"
        "checkpoints._CHECKPOINT = 0.0\n"
        "progress = lambda done, total: done >= 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "outcore.fft.fft2('big.npy', out='c.npy', memory='6 MiB', progress=progress)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", killed], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not os.path.exists("c.npy")
    assert main(["resume"]) == 0
    assert "c.npy: complete" in capsys.readouterr().out
    np.testing.assert_allclose(np.load("c.npy"), np.fft.fft2(data), rtol=1e-9, atol=1e-7)
