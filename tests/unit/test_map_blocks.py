"""Functions on blocks and on lines, beside NumPy and SciPy."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

import outcore
from outcore.arrays.schedule import Schedule, ScheduleRun
from outcore.compute.blocks import blockwise, lines
from outcore.compute.blocks.blockwise import BOUNDARIES, fill_halo
from schedule_check import check_schedule

SHAPES = [(), (0, 4), (13,), (1, 9), (11, 13), (6, 5, 7), (3, 4, 2, 5)]


@settings(max_examples=60)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(["i4", "f4", "f8", "c16", ">f8"]),
    st.sampled_from(["a.npy", "a.zarr", "a.h5::/x"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_a_function_of_two_arrays(tmp_path_factory, shape, dtype, name, whole, seed):
    folder, rng = tmp_path_factory.mktemp("m"), np.random.default_rng(seed)
    x = (rng.random(shape) * 100).astype(dtype)
    y = (rng.random(shape[-1:]) * 100).astype("f4")
    a = outcore.create(f"{folder}/{name}", data=x)
    blocks = None if whole else [int(rng.integers(1, n + 2)) for n in shape]
    both = outcore.map_blocks(lambda p, q: (p + q, p * 2), a, y, blocks=blocks, memory="2 MiB")
    expected = (x.astype(x.dtype.newbyteorder("=")) + y, x * 2)
    for one, wanted in zip(both, expected, strict=True):
        assert one.dtype == wanted.dtype.newbyteorder("=")
        np.testing.assert_array_equal(wanted, one[...])


@settings(max_examples=60)
@given(
    st.sampled_from([(13,), (1, 9), (11, 13), (6, 5, 7)]),
    st.sampled_from(list(BOUNDARIES)),
    st.data(),
)
def test_what_lies_around_a_block(shape, boundary, data):
    """Sums over boxes, as SciPy does them: wherever blocks are cut."""
    widths = tuple(data.draw(st.integers(0, min(n, 3))) for n in shape)
    blocks = tuple(data.draw(st.integers(1, n + 1)) for n in shape)
    x = np.random.default_rng(1).integers(0, 1000, shape)
    weights = np.ones([2 * w + 1 for w in widths], int)

    def box(block):
        return ndimage.correlate(block, weights, mode="constant")

    found = outcore.map_blocks(box, x, halo=widths, boundary=boundary, cval=5, blocks=blocks)
    expected = ndimage.correlate(x, weights, mode=boundary, cval=5)
    np.testing.assert_array_equal(expected, found[...])


def test_blocks_end_where_the_array_does():
    x = np.arange(10.0)
    seen = []

    def look(block, key):
        seen.append((key[0].start, key[0].stop, block[0], block[-1]))
        return block

    found = outcore.map_blocks(look, x, halo=2, blocks=(4,), pass_key=True, dtype="f8")
    assert seen == [(0, 4, 0, 5), (4, 8, 2, 9), (8, 10, 6, 9)]
    np.testing.assert_array_equal(x, found[...])


def test_what_neighbours_share_is_read_once(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.random.default_rng(0).random((512, 256)))
    mean = lambda b: (b[:-2] + b[1:-1] + b[2:]) / 3  # noqa: E731
    planned = outcore.map_blocks(
        mean, a, halo=(1, 0), boundary="nearest", blocks=(32, None), explain=True
    )
    planned.run()
    assert planned.report.read_bytes == planned.report.measured.read_bytes == a.nbytes


@pytest.mark.parametrize(
    ("compression", "halo", "ahead"),
    [("none", 0, (2, 2)), ("none", 1, (1, 2)), ("zstd", 0, (1, 1))],
)
def test_so_many_are_on_their_way(tmp_path, monkeypatch, compression, halo, ahead):
    """What is shared with the block before keeps the next but one from loading; codecs hold much."""
    made = []

    def seen(*arguments, **words):
        made.append(Schedule(*arguments, **words))
        return made[-1]

    monkeypatch.setattr(blockwise, "Schedule", seen)
    a = np.arange(600 * 500.0).reshape(600, 500)
    outcore.create(tmp_path / "a.zarr", data=a, chunks=(100, 500), compression=compression).close()
    words = {"halo": halo, "boundary": "nearest"} if halo else {}
    found = outcore.map_blocks(
        np.negative, tmp_path / "a.zarr", memory="8 MiB", blocks=(100, 500), **words
    )
    np.testing.assert_array_equal(-a, found[...])
    assert ahead == (made[-1].reading, made[-1].writing)
    copies = {buffer.copies for buffer in made[-1].buffers}
    assert copies == {1 + n for n in ahead}


def test_filling_reaches_further_than_the_block(tmp_path):
    for boundary in ("nearest", "reflect", "mirror"):
        x = np.arange(3.0)
        block = np.zeros(11)
        block[4:7] = x
        fill_halo(block, [(4, 4)], boundary, 0)
        np.testing.assert_array_equal(np.pad(x, 4, mode=BOUNDARIES[boundary]), block)


BAD = {
    "no array": (lambda: outcore.map_blocks(np.sqrt), "at least one"),
    "shapes": (lambda: outcore.map_blocks(np.add, np.ones(3), np.ones(4)), "broadcast"),
    "boundary": (
        lambda: outcore.map_blocks(np.sqrt, np.ones(3), halo=1, boundary="no"),
        "unknown boundary",
    ),
    "halo": (lambda: outcore.map_blocks(np.sqrt, np.ones(3), halo=-1), "at least 0"),
    "too far": (lambda: outcore.map_blocks(np.sqrt, np.ones(3), halo=4, boundary="wrap"), "longer"),
    "blocks": (lambda: outcore.map_blocks(np.sqrt, np.ones(3), blocks=(0,)), "at least 1"),
    "shape": (lambda: outcore.map_blocks(lambda b: b[:1], np.ones(3)), "returned a block"),
    "cast": (
        lambda: outcore.map_blocks(lambda b: b * 0.5, np.ones(3, int), dtype=int),
        "cannot be cast",
    ),
    "several": (
        lambda: outcore.map_blocks(lambda b: b, np.ones(3), dtype=("f8", "f8")),
        "2 results",
    ),
    "option": (lambda: outcore.map_blocks(np.sqrt, np.ones(3), wrong=1), "wrong"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls_are_refused(case):
    call, match = BAD[case]
    with pytest.raises(outcore.errors.UsageError, match=match):
        call()


def test_an_error_of_the_function_is_the_callers(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.ones((100, 100)))

    def fail(block):
        raise ZeroDivisionError("of the function")

    with pytest.raises(ZeroDivisionError, match="of the function"):
        outcore.map_blocks(fail, a, out=tmp_path / "b.npy", dtype="f8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy"]


@settings(max_examples=40)
@given(
    st.sampled_from([(13,), (1, 9), (11, 13), (6, 5, 7)]),
    st.sampled_from(["i4", "f8", ">f4"]),
    st.data(),
)
def test_functions_of_lines(tmp_path_factory, shape, dtype, data):
    folder = tmp_path_factory.mktemp("l")
    x = np.random.default_rng(2).integers(0, 100, shape).astype(dtype)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    a = outcore.create(folder / "a.npy", data=x, order=data.draw(st.sampled_from("CF")))
    for function in (np.sort, np.ptp, lambda line: np.outer(line[:2], line[:3])):
        expected = np.apply_along_axis(function, axis, x.astype(x.dtype.newbyteorder("=")))
        found = outcore.apply_along_axis(function, axis, a, memory="1 MiB")
        np.testing.assert_array_equal(expected, found[...])


def test_lines_that_do_not_fit_are_refused_with_what_would_do(tmp_path):
    x = np.arange(600_000.0).reshape(3, 200_000)
    with pytest.raises(outcore.BudgetError) as refused:
        outcore.apply_along_axis(np.cumsum, 1, x, memory="2 MiB")
    found = outcore.apply_along_axis(np.cumsum, 1, x, memory=refused.value.needed)
    np.testing.assert_array_equal(np.cumsum(x, 1), found[...])
    with pytest.raises(outcore.errors.UsageError, match="axis"):
        outcore.apply_along_axis(np.sum, 2, x)


LINES = {
    "sort": np.sort,
    "ptp": np.ptp,
    "outer": lambda line: np.outer(line[:2], line[:3]),
    "wider": lambda line: np.concatenate([line, -line]),
}


@pytest.mark.parametrize("kind", ["C", "F", "zarr", "memory"])
@pytest.mark.parametrize("sides", lines._SIDES[1:])
def test_lines_come_in_panels_and_go_in_panels(tmp_path, monkeypatch, kind, sides):
    carry = importlib.import_module("outcore.compute.jobs.carry")

    def run(schedule, arrays, **more):
        check_schedule(schedule, [a.shape for a in arrays], again=True)
        return ScheduleRun(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    monkeypatch.setattr(lines, "_SIDES", (sides,))
    x = np.random.default_rng(3).random((7, 60, 130))
    x = x.transpose(2, 1, 0) if kind == "F" else x
    words = {"chunks": (3, 50, 60), "compression": "gzip"} if kind == "zarr" else {}
    name = "a.zarr" if kind == "zarr" else "a.npy"
    order = {} if kind == "zarr" else {"order": "F" if kind == "F" else "C"}
    a = x if kind == "memory" else outcore.create(tmp_path / name, data=x, **words, **order)
    for function in LINES.values():
        planned = outcore.apply_along_axis(
            function, 1, a, out=tmp_path / "b.npy", memory="400 KiB", explain=True, overwrite=True
        )
        expected = np.apply_along_axis(function, 1, x)
        assert "panels" in planned.report.method
        must = (0 if kind == "memory" else x.nbytes) + expected.nbytes
        # Of compressed chunks what is stored.
        assert (
            planned.report.lower_bound_bytes < must
            if kind == "zarr"
            else planned.report.lower_bound_bytes == must
        )
        with planned.run() as found:
            np.testing.assert_array_equal(expected, found[...])
        assert planned.report.measured.peak_bytes <= 400 * 2**10


def test_short_runs_are_moved_three_times_instead_of_page_by_page(tmp_path):
    x = np.random.default_rng(3).random((1000, 1500))
    a = outcore.create(tmp_path / "a.npy", data=x)
    planned = outcore.apply_along_axis(
        np.sort, 0, a, out=tmp_path / "b.npy", memory="4 MiB", explain=True
    )
    report = planned.report
    planned.run().close()
    done = planned.report.measured
    assert done.read_bytes + done.written_bytes <= 1.1 * (report.read_bytes + report.written_bytes)
    assert report.read_bytes + report.written_bytes <= 3.2 * report.lower_bound_bytes


@pytest.mark.parametrize("order", ["C", "F"])
def test_lines_that_are_long_runs_are_read_and_written_once(tmp_path, order):
    x = np.random.default_rng(3).random((300, 400))
    a = outcore.create(tmp_path / "a.npy", data=x, order=order)
    axis = 1 if order == "C" else 0
    made = outcore.create(tmp_path / "b.npy", x.shape, x.dtype, order=order)
    planned = outcore.apply_along_axis(np.cumsum, axis, a, out=made, memory="300 KiB", explain=True)
    assert planned.report.read_bytes + planned.report.written_bytes == 2 * x.nbytes
    with planned.run() as found:
        np.testing.assert_array_equal(np.cumsum(x, axis), found[...])


def test_chunks_are_not_cut_where_a_block_of_one_copy_holds_them(tmp_path):
    """With two copies of each block they were: 2.2 times as much was read, and 2.3 times written."""
    data = np.random.default_rng(3).integers(0, 50, (600, 600)).astype("f8")
    for number, chunks in enumerate(((100, 600), (600, 100), (300, 210))):
        options = {"chunks": chunks, "compression": "gzip"}
        a = outcore.create(tmp_path / f"a{number}.h5::/a", data=data, **options)
        out = tmp_path / f"b{number}.h5::/b"
        budget = 6_200_000
        for halo, more in ((0, lambda block: block + 1), (1, lambda block: block[1:-1] + 1)):
            words = {"halo": (halo, 0), "boundary": "nearest", "out": out, "overwrite": True}
            planned = outcore.map_blocks(
                more, a, dtype="f8", memory=budget, explain=True, **words, **options
            )
            with planned.run() as b:
                np.testing.assert_array_equal(data + 1, b[...])
                written = sum(one.stat().st_size for one in tmp_path.glob(f"b{number}.h5"))
            measured = planned.report.measured
            assert measured.peak_bytes <= budget, (chunks, halo)
            assert measured.written_bytes <= written, (chunks, halo)
            stored = (tmp_path / f"a{number}.h5").stat().st_size
            assert measured.read_bytes <= stored * (1 + 2 * halo), (chunks, halo)
