"""Inner products and norms beside NumPy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reductions import DTYPES, FORMATS, content, stored

import outcore
import outcore.compute.jobs.checkpoints
from outcore.public import find_public
from outcore.testing.sim import SimWorld


@settings(max_examples=40)
@given(
    st.sampled_from([1, 7, 1031, 20_000]),
    st.sampled_from(DTYPES),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.integers(0, 2**32),
)
def test_inner_products_are_numpys(tmp_path_factory, length, left, right, source, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    a, b = (content((length,), one, rng) for one in (left, right))
    with np.errstate(over="ignore"), stored(folder, a, source, rng) as on_disk:
        for name in ("dot", "vdot"):
            native = [x.astype(x.dtype.newbyteorder("=")) for x in (a, b)]
            expected = getattr(np, name)(*native)
            found = find_public(name)(on_disk, b, memory="2 MiB")
            assert expected.dtype == found.dtype
            if expected.dtype.kind in "iub":
                assert expected == found
            else:
                loss = {"f2": 1e-2, "f4": 1e-4, "c8": 1e-4}.get(expected.dtype.str[1:], 1e-11)
                scale = float(np.abs(native[0].astype("c16")) @ np.abs(native[1].astype("c16")))
                assert abs(complex(expected) - complex(found)) <= loss * max(scale, 1)


@settings(max_examples=25)
@given(
    st.sampled_from([(7,), (1, 31), (31, 1), (13, 101), (3, 5, 200), (2, 0, 3), (3, 0)]),
    st.sampled_from(DTYPES),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.data(),
)
def test_inner_products_along_an_axis_are_numpys(
    tmp_path_factory, shape, left, right, source, data
):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    folder = tmp_path_factory.mktemp("t")
    a, b = (content(shape, one, rng) for one in (left, right))
    native = [x.astype(x.dtype.newbyteorder("=")) for x in (a, b)]
    with np.errstate(over="ignore"), stored(folder, a, source, rng) as on_disk:
        expected = np.asarray(np.vecdot(*native, axis=axis))
        found = np.asarray(outcore.vecdot(on_disk, b, axis=axis, memory="2 MiB"))
    assert expected.dtype == found.dtype and expected.shape == found.shape
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(expected, found)
    else:
        loss = {"f2": 1e-2, "f4": 1e-4, "c8": 1e-4}.get(expected.dtype.str[1:], 1e-11)
        scale = np.vecdot(*(np.abs(one.astype("c16")) for one in native), axis=axis)
        assert (np.abs(expected.astype("c16") - found) <= loss * np.maximum(scale, 1)).all()


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(
    ("large", "small", "axis"),
    [
        ((70, 900), (900,), -1),
        ((70, 900), (1, 900), 1),
        ((900, 70), (900, 1), 0),
        ((5, 40, 300), (40, 300), -2),
        ((5, 40, 300), (5, 1, 300), 2),
        ((0, 4), (4,), -1),
        ((3, 0), (0,), -1),
    ],
    ids=str,
)
def test_one_of_two_stacks_of_vectors_is_broadcast(tmp_path, large, small, axis, order):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((*n, 2)).view("c16")[..., 0] for n in (large, small))
    for left, right in (
        (a, b),
        (b.real.astype("f4"), a),
        (a, b.real.astype("i2")),
        (b.real > 0, a),
    ):
        expected = np.vecdot(left, right, axis=axis)
        with (
            outcore.create(tmp_path / "a.npy", data=left, order=order, overwrite=True) as one,
            outcore.create(tmp_path / "b.h5", data=right, overwrite=True) as other,
        ):
            for memory in ("300 KiB", "4 MiB"):
                found = outcore.vecdot(one, other, axis=axis, memory=memory)
                assert found.dtype == expected.dtype
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("is_turned", [False, True])
def test_products_with_what_is_broadcast_go_on_by_their_journals(tmp_path, monkeypatch, is_turned):
    """The first one is conjugated, whichever of them is broadcast."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outcore.compute.jobs.checkpoints, "_CHECKPOINT", 0.0)
    rng = np.random.default_rng(3)
    large, small = (rng.standard_normal((*n, 2)).view("c16")[..., 0] for n in ((4000, 40), (40,)))
    given = (small, large) if is_turned else (large, small)
    for name, one in zip(("a.npy", "b.npy"), given, strict=True):
        np.save(name, one)

    def progress(done, total):
        if done > total / 2:
            raise KeyError

    with pytest.raises(KeyError):
        outcore.vecdot("a.npy", "b.npy", out="c.npy", memory="512 KiB", progress=progress)
    assert outcore.jobs.resume() == [str(tmp_path / "c.npy")]
    np.testing.assert_allclose(np.load("c.npy"), np.vecdot(*given))


def test_bits_of_a_product_do_not_depend_on_how_it_is_cut(tmp_path):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 300, 301))
    expected = outcore.vdot(a, b)
    for order in "CF":
        with outcore.create(tmp_path / f"{order}.npy", data=a, order=order) as one:
            for memory in ("200 KiB", "1 MiB"):
                assert expected == outcore.vdot(one, b, memory=memory)
    assert abs(expected - np.vdot(a, b)) < 1e-9


def test_products_of_what_does_not_fit_are_refused():
    with pytest.raises(outcore.errors.UsageError, match="bad-shape"):
        outcore.dot(np.ones(3), np.ones(4))
    with pytest.raises(outcore.errors.UsageError, match="bad-shape"):
        outcore.vdot(np.ones((2, 3)), np.ones(6))
    assert outcore.dot(np.ones(0), np.ones(0)) == 0
    with pytest.raises(outcore.errors.UsageError, match="bad-shape"):
        outcore.vecdot(np.ones((2, 3)), np.ones(2))
    with pytest.raises(outcore.errors.UsageError, match=r"bad-shape.*of 1 and 3 elements"):
        outcore.vecdot(np.ones((2, 1)), np.ones(3))
    with pytest.raises(outcore.errors.UsageError, match=r"neither .* can be broadcast.*map_blocks"):
        outcore.vecdot(np.ones((2, 1, 3)), np.ones((4, 3)))
    with pytest.raises(outcore.errors.UsageError, match=r"bad-axis.*count it from the last one"):
        outcore.vecdot(np.ones((3, 2)), np.ones(3), axis=0)
    for axis in (None, (0, 1), 2):
        with pytest.raises(outcore.errors.UsageError, match="bad-axis"):
            outcore.vecdot(np.ones((2, 3)), np.ones((2, 3)), axis=axis)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i1", "i8", ">f8", "?"])
def test_norms_are_numpys(dtype):
    data = content((40, 31), dtype, np.random.default_rng(4))
    native = data.astype(data.dtype.newbyteorder("="))
    if dtype == "i1":
        data[0, 0] = native[0, 0] = -128
        native = native.astype("f8")
    if dtype == "?":
        native = native.astype("f8")
    for power, axis in [
        (None, None),
        (None, 0),
        (None, (0, 1)),
        ("fro", None),
        ("fro", (1, 0)),
        *((power, axis) for power in (0, 1, 2, 3, -1, 0.5, np.inf, -np.inf) for axis in (0, 1)),
    ]:
        with np.errstate(divide="ignore"):
            expected = np.linalg.norm(native, power, axis)
        found = outcore.linalg.norm(data, power, axis)
        kind = data.dtype.kind
        assert found.dtype.itemsize == (
            data.dtype.itemsize // (1 + (kind == "c")) if kind in "fc" else 8
        )
        np.testing.assert_allclose(found, expected, rtol=2e-5 if dtype in ("f4", "c8") else 1e-12)
    assert outcore.linalg.norm(data, keepdims=True).shape == (1, 1)


ORDS = [1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"]


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i4", ">f8", "?"])
@pytest.mark.parametrize("shape", [(40, 31), (31, 4000), (1, 5), (30_000, 2), (3, 0), (0, 3)])
def test_norms_of_matrices_are_numpys(tmp_path, shape, dtype):
    data = content(shape, dtype, np.random.default_rng(5))
    native = data.astype(data.dtype.newbyteorder("="))
    with outcore.create(tmp_path / "a.npy", data=data, order="F") as a:
        for power in ORDS:
            for words in ({}, {"axis": (1, 0), "keepdims": True}):
                try:
                    expected = np.linalg.norm(native, power, **words)
                except ValueError:
                    with pytest.raises(ValueError, match="no elements"):
                        outcore.linalg.norm(a, power, **words)
                    continue
                found = outcore.linalg.norm(a, power, memory="2 MiB", **words)
                assert (np.shape(expected), expected.dtype) == (np.shape(found), found.dtype)
                loss = 1e-4 if dtype in ("f4", "c8") else 1e-10
                np.testing.assert_allclose(found, expected, rtol=loss, atol=loss)


def test_norms_of_stacks_of_matrices_are_numpys(tmp_path):
    data = np.random.default_rng(5).standard_normal((3, 20_000, 4))
    for power in (1, -1, np.inf, -np.inf, "fro"):
        for axis in ((0, 1), (1, 0), (2, 0), (-1, -2)):
            for keepdims in (False, True):
                expected = np.linalg.norm(data, power, axis, keepdims)
                found = outcore.linalg.norm(data, power, axis, keepdims, memory="3 MiB")
                np.testing.assert_allclose(found, expected, rtol=1e-12)
                assert expected.shape == found.shape
    planned = outcore.linalg.norm(
        data, 1, (2, 1), explain=True
    )  # sums that are on disk until it runs
    with outcore.linalg.norm(data, 1, (2, 1), out=tmp_path / "n.npy", memory="3 MiB") as on_disk:
        np.testing.assert_allclose(on_disk[...], planned.run(), rtol=1e-12)
    with pytest.raises(outcore.errors.UsageError, match="one matrix"):
        outcore.linalg.norm(data, 2, (0, 1))
    with pytest.raises(outcore.errors.UsageError, match="not a norm of matrices"):
        outcore.linalg.norm(data, 3, (0, 1))
    with pytest.raises(outcore.BudgetError):
        outcore.linalg.norm(np.ones((400, 400)), "nuc", memory="300 KiB")


def test_norms_that_are_none():
    for power, axis in ((3, None), ("nuc", (0, 1)), ("fro", 0), (None, (0, 1, 2)), (None, 5)):
        with pytest.raises(outcore.errors.UsageError):
            outcore.linalg.norm(np.ones((2, 3, 4)) if axis else np.ones((2, 3)), power, axis)


@pytest.mark.parametrize("is_turned", [False, True])
def test_ranks_give_the_bits_of_one_process_where_vectors_are_broadcast(tmp_path, is_turned):
    """Few long vectors: ranks share parts of them."""
    rng = np.random.default_rng(0)
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path, shape in zip(paths, ((3, 200_000), (200_000,)), strict=True):
        np.save(path, rng.standard_normal(shape))
    given = paths[::-1] if is_turned else paths
    expected = outcore.vecdot(*given)
    found = SimWorld(3).run(lambda comm: outcore.vecdot(*given, comm=comm, memory="8 MiB"))
    assert [np.array_equal(one, expected) for one in found] == [True] * 3
