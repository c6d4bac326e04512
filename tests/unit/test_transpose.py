"""Transposition and new chunks, beside NumPy."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore

SHAPES = [(), (0,), (7,), (1, 9), (11, 13), (5, 0, 3), (64, 3, 17), (4, 5, 6, 7), (97, 101)]
DTYPES = ["i1", "u2", "f4", "f8", "c16", ">f8", ">i4", "?"]
FORMATS = ["a.npy", "a.zarr", "a.h5::/x", "a.raw"]


def stored(folder, data, name, rng):
    words = {}
    if "npy" in name or "raw" in name:
        words["order"] = rng.choice(["C", "F"])
    elif data.ndim and data.size:
        words["chunks"] = tuple(int(rng.integers(1, n + 1)) for n in data.shape)
        words["compression"] = "zstd"
    return outcore.create(f"{folder}/{name}", data=data, **words)


def content(shape, dtype):
    return (np.arange(math.prod(shape)) % 251).reshape(shape).astype(dtype)


@settings(max_examples=80)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(["b.npy", "b.zarr", "b.h5::/x"]),
    st.sampled_from(["smallest", "2 MiB"]),
    st.integers(0, 2**32),
)
def test_it_is_numpys(tmp_path_factory, shape, dtype, source, target, memory, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = content(shape, dtype)
    axes = tuple(int(n) for n in rng.permutation(len(shape)))
    with stored(folder, data, source, rng) as a:
        words = {"out": f"{folder}/{target}", "memory": memory}
        if memory == "smallest":
            with pytest.raises(outcore.BudgetError) as refused:
                outcore.transpose(a, axes, **{**words, "memory": 1})
            words["memory"] = refused.value.needed
        with outcore.transpose(a, axes, **words) as b:
            assert b.dtype == data.dtype
            np.testing.assert_array_equal(data.transpose(axes), b[...])


def test_axes_as_numpy_takes_them(tmp_path):
    data = content((3, 4, 5), "f8")
    for axes in (None, (0, 1, 2), (-1, 0, 1), [2, 0, 1], np.array([1, 2, 0])):
        np.testing.assert_array_equal(data.transpose(axes), outcore.transpose(data, axes)[...])
    for axes in ((0, 1), (0, 1, 1), (0, 1, 3), "abc", (0, 1, None), 5):
        with pytest.raises(outcore.errors.UsageError, match="transpose: ax"):
            outcore.transpose(data, axes)


def test_what_describes_an_array_moves_with_its_axes(tmp_path):
    a = outcore.create(
        tmp_path / "a.zarr",
        data=content((6, 8), "i4"),
        chunks=(2, 4),
        dims=("y", "x"),
        attrs={"units": "K"},
        fill_value=7,
    )
    b = outcore.transpose(a, out=tmp_path / "b.zarr")
    assert (b.chunks, b.dims, dict(b.attrs), b.fill_value) == (
        (4, 2),
        ("x", "y"),
        {"units": "K"},
        7,
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_each_byte_is_moved_once(tmp_path, order):
    """Exact counts: what is read and written of a transposition that the budget cuts into many tiles."""
    shape = (256, 8192)
    a = outcore.create(tmp_path / "a.npy", data=content(shape, "f8"), order=order)
    planned = outcore.transpose(a, out=tmp_path / "b.npy", memory="12 MiB", explain=True)
    told = planned.report
    assert told.steps > 1
    assert told.lower_bound_bytes == 2 * a.nbytes <= told.read_bytes + told.written_bytes
    with planned.run() as b:
        np.testing.assert_array_equal(content(shape, "f8").T, b[...])
    done = planned.report.measured
    assert told.read_bytes == a.nbytes == told.written_bytes
    assert done.read_bytes + done.written_bytes <= 1.1 * (told.read_bytes + told.written_bytes)
    assert done.peak_bytes <= 12 * 2**20


def test_chunks_go_through_codecs_once(tmp_path):
    a = outcore.create(
        tmp_path / "a.zarr", data=content((600, 600), "f8"), chunks=(20, 600), compression="zstd"
    )
    with outcore.rechunk(a, (600, 25), out=tmp_path / "b.zarr", memory="16 MiB") as b:
        assert b.chunks == (600, 25)
        np.testing.assert_array_equal(a[...], b[...])
    planned = outcore.rechunk(a, (-1, 25), out=tmp_path / "c.zarr", memory="16 MiB", explain=True)
    planned.run().close()
    assert planned.report.measured.requests <= 30 + 2 * 24


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_tiles_suit_both_files(tmp_path, axes):
    """A permutation of three axes reads and writes runs of more than a few elements."""
    a = outcore.create(tmp_path / "a.npy", data=content((96, 100, 104), "f4"))
    told = outcore.transpose(a, axes, out=tmp_path / "b.npy", memory="4 MiB", explain=True).report
    elements = 96 * 100 * 104
    assert told.requests <= elements // 8
