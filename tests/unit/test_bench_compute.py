"""The lane `compute` of `bench`: its rows, its checks of results, and one run of it, all tiny."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bench_modules import BENCH, bench_modules

EDGE = 96
BUDGET = 96 * 96 * 8 // 4


@pytest.fixture(scope="module", autouse=True)
def bench():
    """The modules of `bench` and of its peers, for these tests only."""
    with bench_modules(BENCH / "peers" / "compute"):
        yield


def small_rows():
    """The rows of the lane with the smallest arrays that have several slabs."""
    from compute.rows import rows

    found = []
    for row in rows(16):
        shapes = [
            (EDGE,) * len(one.shape) if len(one.shape) > 1 else (EDGE**2,) for one in row.inputs
        ]
        inputs = tuple(
            dataclasses.replace(one, shape=shape, chunks=(8, EDGE) if one.chunks else ())
            for one, shape in zip(row.inputs, shapes, strict=True)
        )
        words = {**row.words, **({"chunks": (EDGE, 8)} if "chunks" in row.words else {})}
        words.update({"steps": 7} if words.get("steps", 0) > 7 else {})
        found.append(dataclasses.replace(row, inputs=inputs, budget=BUDGET, words=words))
    return {row.name: row for row in found}


NAMES = (
    *("transpose", "rechunk", "matmul", "jacobi-1", "jacobi-10", "jacobi-100", "fft2", "cholesky"),
    *("lu", "median-3", "median-5", "sum-0", "sum-1", "mean-var", "sort"),
)


def test_rows_are_those_of_the_issue():
    from compute.rows import rows

    assert [row.name for row in rows()] == list(NAMES)
    by_name = {row.name: row for row in rows()}
    assert by_name["transpose"].inputs[0].nbytes == by_name["sort"].inputs[0].nbytes == 1 << 32
    assert [row.budget >> 20 for row in rows()] == [1024, 1024, *[512] * 12, 1024]
    assert by_name["matmul"].limit(stream=9.0, core=4.0) == 4.0
    assert by_name["fft2"].limit(stream=9.0, core=40.0) == 18.0
    assert by_name["median-3"].limit(stream=9.0, core=4.0) == 9.0
    assert by_name["sort"].limit(stream=2.0, core=5.0) == 5.0
    quarter = {row.name: row for row in rows(4)}
    assert quarter["matmul"].inputs[0].shape == (3072, 3072)
    assert quarter["matmul"].budget == by_name["matmul"].budget // 16


def by_hand(row, tmp_path):
    """A row done by hand: its inputs, and its result."""
    import by_hand

    from compute import inputs
    from compute.others import result

    paths = [inputs.make(one, tmp_path) for one in row.inputs]
    out = result("by hand", row, tmp_path)
    task = getattr(by_hand, row.task)
    more = task([str(p) for p in paths], str(out), memory=row.budget, cores=2, **row.words) or {}
    more.get("save", lambda: None)()
    return paths, out


@pytest.mark.parametrize("name", NAMES)
def test_checks_take_what_is_right_and_refuse_one_wrong_element(name, tmp_path):
    from compute.checks import check

    row = small_rows()[name]
    paths, out = by_hand(row, tmp_path)
    assert check(row, paths, out) == ""
    if out.suffix == ".npy":
        found = np.load(out, mmap_mode="r+")
        place = tuple(n // 2 for n in found.shape)
        found[place] += found.real.dtype.type(3.0)
        found.flush()
    else:
        chunk = np.fromfile(out / "0.5", "f4")
        chunk[-1] += 1
        chunk.tofile(out / "0.5")
    assert check(row, paths, out)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("transpose", "rechunk")])
def test_kernels_run_in_memory(name, monkeypatch):
    monkeypatch.syspath_prepend(BENCH / "compute")  # where `worker.py` finds what they share
    import incore

    row = small_rows()[name]
    n = row.inputs[0].shape[0]
    found = getattr(incore, row.task)(n=n, cores=2, **row.words)
    assert found["seconds"] > 0
    assert found["measured"]


def test_the_step_in_memory_is_the_step_of_the_row(monkeypatch):
    monkeypatch.syspath_prepend(BENCH / "compute")
    import incore

    old = np.random.default_rng(2).random((40, 40))
    new = np.ones_like(old)
    incore._one_step(40, 2)(old, new)
    wanted = old.copy()
    wanted[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
    assert np.allclose(wanted, new, rtol=1e-14)


def test_a_result_of_another_shape_or_none_is_wrong(tmp_path):
    from compute.checks import check

    row = small_rows()["transpose"]
    paths, out = by_hand(row, tmp_path)
    np.save(out, np.zeros((EDGE, EDGE + 1), "f4"))
    assert "shape" in check(row, paths, out)
    out.unlink()
    assert "no result" in check(row, paths, out)


def test_sorted_numbers_that_are_others_are_wrong(tmp_path):
    from compute.checks import check

    row = small_rows()["sort"]
    paths, out = by_hand(row, tmp_path)
    np.save(out, np.sort(np.random.default_rng(1).random(EDGE**2)))
    assert check(row, paths, out) == "other numbers than were there"


def test_inputs_do_not_depend_on_slabs(tmp_path, monkeypatch):
    from compute import inputs
    from compute.rows import Input

    matrix = np.load(inputs.make(Input("definite", (50, 50), "f8"), tmp_path))
    assert np.array_equal(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > 0
    monkeypatch.setattr(inputs, "_SLAB", 1000)
    (tmp_path / "again").mkdir()
    again = np.load(inputs.make(Input("definite", (50, 50), "f8"), tmp_path / "again"))
    assert np.array_equal(matrix, again)


def test_the_stream_reads_and_writes_all(tmp_path):
    from compute.stream import Stream

    source = tmp_path / "source"
    source.write_bytes(bytes(3 << 20) + b"end")
    stream = Stream([source], tmp_path / "target", (2 << 20) + 5)
    try:
        stream.run()
    except OSError as error:
        pytest.skip(f"no direct I/O here ({error}): the stream limit is NOT tested")
    assert (tmp_path / "target").stat().st_size == (2 << 20) + 4096
    # Its memory holds ones, or what was read: written at all, then.
    assert (tmp_path / "target").read_bytes()[-1] == 1
    stream.clean()
    assert not (tmp_path / "target").exists()


def test_tables_show_what_is_missing_lost_and_stopped():
    from cases.compute import Measured, tables
    from compute.contained import Ended

    rows = small_rows()
    one, two = Measured(rows["transpose"]), Measured(rows["matmul"])
    for seconds in (3.0, 2.0, 9.0):
        one.note("outcore", Ended(seconds, peak=1 << 20))
    one.note("stream", Ended(2.0))
    one.note("by hand", Ended(20.0))
    one.note("dask", Ended(1.0), wrong="shape (1,), not (2,)")
    one.note("cubed", Ended(None, "> 45 s"))
    two.note("outcore", Ended(None, "not there", missing=True))
    two.note("core", Ended(4.0))
    text = tables([one, two], 1)
    assert "| stream | 3 | **1.50** | 1.40 | by hand 20 | 10.00 |" in text
    assert "| transpose | 3 | 20* | wrong | > 45 s |" in text
    assert "transpose: dask: wrong: shape (1,), not (2,)" in text
    assert "| core | not there | - | 1.05 | - | - |" in text


def test_one_run(tmp_path):
    words = ["compute", "--scale", "16", "--rows", "transpose", "--repeat", "1", "--no-others"]
    words += ["--folder", tmp_path / "arrays", "--results", tmp_path]
    done = subprocess.run(
        [sys.executable, BENCH / "run.py", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(BENCH.parent / "python")},
    )
    if "memory group" in done.stderr or "Invalid argument" in done.stderr:
        pytest.skip(f"{done.stderr.splitlines()[-1]}: the lane is NOT run")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| transpose | 2048^2 float32 .npy |" in done.stdout
    assert "wrong" not in done.stdout
    left = [path.name for path in (tmp_path / "arrays").iterdir()]
    assert left == ["noise-f4-2048x2048.npy"]
    told = json.loads((tmp_path / "compute.jsonl").read_text())
    assert told["case"] == "transpose"
    assert sorted(told["seconds"]) == ["outcore", "stream"]
