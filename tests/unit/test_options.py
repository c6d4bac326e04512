"""Arguments of `blocks`, amounts of memory, hints: odd ones are taken or refused with advice."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

import outcore
from outcore.public import find_public

DATA = np.arange(6000.0).reshape(60, 100)


def test_arguments_of_blocks_may_be_numpys_and_errors_say_what_would_do(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=DATA)
    keys = [key for key, _ in a.blocks(shape=(40, 40), overlap=(1, 0))]
    assert keys == [k for k, _ in a.blocks(shape=np.array([40, 40]), overlap=np.array([1, 0]))]
    assert len(list(a.blocks(shape=np.int64(40)))) == 6
    for wrong, advice in (
        ({"shape": (2, -1)}, "at least 1"),
        ({"shape": 2, "overlap": -1}, "at least 0"),
        ({"axis": 2}, "-2..1"),
        ({"shape": 2, "overlap": (1, 1, 1)}, "one per axis"),
    ):
        with pytest.raises(outcore.errors.UsageError, match=advice):
            a.blocks(**wrong)


def test_amounts_and_hints_that_are_none_are_usage_errors(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    np.save(path, DATA)
    before = int(outcore.memory())
    for wrong in (float("nan"), 1.5, [1], True, 0, -1):
        with pytest.raises(outcore.errors.UsageError, match="512 MiB"):
            outcore.memory(wrong)
    assert before == outcore.memory()
    for wrong in ("x", 1.5, True, 0):
        with pytest.raises(outcore.errors.UsageError, match="threads"):
            outcore.Hints(threads=wrong)
    with pytest.raises(outcore.errors.UsageError, match="mapping"):
        outcore.open(path, hints="engine=threads")
    with pytest.raises(outcore.errors.UsageError, match="use a NumPy dtype"):
        outcore.create(tmp_path / "b.npy", 3, "foo")
    with pytest.raises(TypeError, match="a path must be"):
        outcore.open(b"a.npy")
    monkeypatch.setenv("OUTCORE_HINTS", "junk")
    with pytest.raises(outcore.errors.UsageError, match="OUTCORE_HINTS"):
        outcore.open(path)


def test_a_budget_for_a_while_can_be_entered_again():
    before = int(outcore.memory())
    limit = outcore.memory("7 MiB")
    for _ in range(2):
        with limit:
            assert outcore.memory() == 7 * 2**20
        assert before == outcore.memory()


SUFFIXES = ("npy", "h5", "nc", "zarr", "zarr2", "raw")


def test_what_is_no_path_is_said_with_the_name_to_pass(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    with open("a.npy", "rb") as file, open(os.devnull) as text:
        calls = {
            "open": outcore.open,
            "open for writing": lambda path: outcore.open(path, "r+"),
            "create": lambda path: outcore.create(path, 3, "f4"),
            "ls": outcore.ls,
            "verify": outcore.verify,
            "convert": lambda path: outcore.convert(path, "b.npy"),
            "convert to": lambda path: outcore.convert("a.npy", path),
        }
        for what, call in calls.items():
            odd = [b"a.npy", io.BytesIO(b"x"), 3, None, 2.5, [1], {"a": 1}, {"a"}, iter(["a"])]
            for path in (file, text, *odd):
                with pytest.raises(
                    outcore.errors.PathTypeError, match=r"\[bad-path\] a path must be"
                ) as caught:
                    call(path)
                assert isinstance(caught.value, TypeError) and isinstance(caught.value, ValueError)
                if path is file:
                    assert "pass the name of the file, 'a.npy'" in str(caught.value), what
    assert os.listdir() == ["a.npy"]
    # Of one file; only `open`, `create` and what is read take several.
    with pytest.raises(outcore.errors.PathTypeError, match="one file"):
        outcore.ls(["a.npy", "b.npy"])


ODD = {
    "dims": ["xy", True, 3, [1, 2], {"x": 1}],
    "attrs": ["x", True, 3, ["x"]],
    "files": [True, 3, [1], [None]],
    "offset": [2.5, "x", [1], 10**30, None],
    "maxshape": ["x", 2.5, ("a", None), (1, 1), [[1]]],
    "unlimited": [3, "x", ["z"], [["time"]], 2.5],
    "dtype": [{"a": []}],
    "hints": [{1: 2}],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_options_are_refused_in_words_of_ours(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    for value in ODD[name]:
        for suffix in SUFFIXES:
            words = {"shape": (60, 100), "dtype": "f4", name: value}
            with pytest.raises((outcore.errors.UsageError, outcore.errors.UnsupportedError)):
                outcore.create(f"b.{suffix}", **words)
            with pytest.raises((outcore.errors.UsageError, outcore.errors.UnsupportedError)):
                outcore.convert("a.npy", f"c.{suffix}", **{name: value})
    assert os.listdir() == ["a.npy"]
    for value in (["x"], {1: 2}, "x"):
        with pytest.raises(outcore.errors.UsageError, match="source="):
            outcore.convert("a.npy", "b.npy", source=value)
    with pytest.raises(outcore.errors.UsageError, match="512 MiB"):
        outcore.memory(np.array([1, 2]))


def test_unlimited_may_be_true_or_one_name(tmp_path):
    h5py = pytest.importorskip("h5py")
    for number, (unlimited, growing) in enumerate(
        [
            (True, {"y", "x"}),
            ("x", {"x"}),
            (["y"], {"y"}),
            (False, set()),
            ((), set()),
            (None, set()),
        ]
    ):
        path = tmp_path / f"{number}.nc"
        outcore.create(path, data=DATA, dims=("y", "x"), unlimited=unlimited).close()
        with h5py.File(path) as file:
            assert {name for name in "xy" if file[name].maxshape == (None,)} == growing
            np.testing.assert_array_equal(file["data"][...], DATA)
    with outcore.create(tmp_path / "b.h5", data=DATA, maxshape=True) as a:
        a.append(DATA)
        assert a.shape == (120, 100)


def test_an_option_that_is_not_known_lists_all_and_the_nearest(tmp_path):
    np.save(tmp_path / "a.npy", DATA)
    for suffix in SUFFIXES:
        for call in (
            lambda suffix=suffix: outcore.create(f"{tmp_path}/b.{suffix}", (2, 3), "f4", chunk=2),
            lambda suffix=suffix: outcore.open(
                f"{tmp_path}/b.{suffix}", "w", shape=3, dtype="f4", chunk=2
            ),
            lambda suffix=suffix: outcore.convert(
                tmp_path / "a.npy", f"{tmp_path}/b.{suffix}", chunk=2
            ),
        ):
            with pytest.raises(outcore.errors.UsageError, match="did you mean 'chunks'") as caught:
                call()
            options = {
                "chunks",
                "shards",
                "compression",
                "order",
                "fill_value",
                "dims",
                "attrs",
                "format",
            }
            assert all(name in caught.value.message for name in options)
            assert caught.value.code == "unknown-option"
    with pytest.raises(outcore.errors.UsageError, match="did you mean 'separator'"):
        outcore.create(f"{tmp_path}/b.zarr", (2, 3), "f4", separatr="/")
    with pytest.raises(outcore.errors.UsageError, match="did you mean 'offset'"):
        outcore.open(f"{tmp_path}/b.raw", dtype="f4", offst=3)
    for name in ("hints", "data"):
        with pytest.raises(outcore.errors.UsageError, match=f"no option {name!r}"):
            outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", **{name: {}})
    assert os.listdir(tmp_path) == ["a.npy"]


def test_a_target_whose_name_tells_no_format_is_refused_by_its_own_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    for name, said in (("xx", "without a suffix"), ("xx.foo", "suffix '.foo'")):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.convert("a.npy", name)
        assert said in caught.value.message and repr(name) in caught.value.message
        assert "partial" not in caught.value.message
        assert caught.value.code == "unknown-format"
    assert os.listdir() == ["a.npy"]
    outcore.convert("a.npy", "xx", format="raw")
    assert os.path.getsize("xx") == DATA.nbytes


def test_a_dtype_of_the_result_is_refused_with_what_would_give_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    square = np.eye(4) * 2
    for name, arguments in (
        ("transpose", (square,)),
        ("rechunk", (square, (2, 2))),
        ("matmul", (square, square)),
        ("sort", (square,)),
        ("unique", (square,)),
        ("fft", (square,)),
        ("median_filter", (square, 3)),
        ("cholesky", (square,)),
        ("svd", (square,)),
        ("quantile", (square, 0.5)),
    ):
        for words in ({"out": "r.npy"}, {}, {"out": "r.npy", "explain": True}):
            with pytest.raises(outcore.errors.UsageError, match=r"outcore\.convert") as refused:
                find_public(name)(*arguments, dtype="f4", **words)
            assert refused.value.code == "unknown-option"
            assert "out=" in str(refused.value)
    with pytest.raises(outcore.errors.UsageError, match="'path'"):
        outcore.transpose(square, out="r.npy", path="s.npy")
    assert list(tmp_path.iterdir()) == []
    with outcore.create("f4.npy", square.shape, "f4") as there:
        outcore.transpose(square, out=there)
        np.testing.assert_array_equal(square.astype("f4"), there[...])
    # NumPy's default says nothing.
    assert outcore.transpose(square, dtype=None).dtype == "f8"


def test_a_view_that_has_elements_twice_does_not_take_a_result():
    data = np.arange(12.0).reshape(3, 4)
    row, line = np.zeros(3), np.zeros(6)
    strided = np.lib.stride_tricks.as_strided
    for view in (
        strided(row, (4, 3), (0, 8)),
        np.lib.stride_tricks.sliding_window_view(line, 3, writeable=True),
        strided(line, (4, 3), (12, 4)),
    ):
        with pytest.raises(outcore.errors.UsageError, match="more than once") as refused:
            outcore.transpose(data, out=view)
        assert refused.value.code == "bad-out"
    assert not row.any() and not line.any()
    wide = np.zeros((8, 1, 9))
    for view in (wide[::-2, 0, ::3], wide[:4, 0, 2::-1], strided(wide, (4, 3), (8, 32))):
        outcore.transpose(data, out=view)
        np.testing.assert_array_equal(data.T, view)
    one = strided(row, (1, 3), (0, 8))
    np.testing.assert_array_equal(outcore.transpose(np.ones((3, 1)), out=one), [[1, 1, 1]])
