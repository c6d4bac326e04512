"""Fill values: what a dtype can hold is kept as it is, anything else is refused."""

import datetime
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import outcore
from outcore.cli import main
from outcore.formats.fill_values import check_fill_value

PAIR = [("a", "i8"), ("b", "f8", (2,))]
SMALL = [("a", "i1"), ("b", "i4", (2,))]
NOON = np.datetime64("2000-01-01T12")

REFUSED = [
    (300, "i1"), (np.int64(300), "i1"), (np.array(300), "i1"), (np.int8(-1), "u1"),
    (np.int64(-1), "u8"), (np.uint64(2**63), "i8"), (2.0**63, "i8"), (2**70, "i8"),
    (1.5, "i4"), (np.float32(1.5), "i4"), (np.longdouble(1.5), "i4"), (Decimal("1.5"), "i4"),
    (Fraction(1, 3), "u2"), (np.nan, "i4"), (np.float64("nan"), "u8"), (np.inf, "i8"),
    (2, "?"), (np.float64(0.5), "?"), (np.nan, "?"), ("false", "?"), ("300", "i1"), ("nan", "i4"),
    (1e300, "f4"), (np.float64(1e300), "f2"), (70000, "f2"), ("1e300", "f4"), (10**400, "f8"),
    (1 + 2j, "f8"), (np.complex64(2j), "i4"), (1j, "?"), (1e300 + 0j, "c8"),
    (b"abcdef", "S4"), (12345, "S4"), (np.str_("abcde"), "U4"), ("é", "S4"), (b"abcd", "V3"),
    (NOON, "M8[D]"), ("2000-01-01T12:00", "M8[D]"), (datetime.datetime(2000, 1, 1, 12), "M8[D]"),
    (1.5, "M8[s]"), (np.datetime64(10**15, "Y"), "M8[ns]"), (NOON, "i4"), (NOON, "m8[h]"),
    (np.void((300, [1, 2]), PAIR), SMALL), (np.void((3, [1.5, 2]), PAIR), SMALL), (500, SMALL),
    ([1, 2], "i4"), ({}, "i4"), (object(), "f4"),
]  # fmt: skip

KEPT = [
    (np.int64(-128), "i1"), (np.float64(7.0), "u1"), (-0.0, "i4"), (2**63, "u8"), (True, "i4"),
    (np.uint64(2**64 - 1), ">u8"), (Decimal(2), "i4"), (np.longdouble(3), "i4"), (1 + 0j, "f4"),
    (np.True_, "?"), (1, "?"), (np.float32(0), "?"), ("5", "i4"), ("nan", "f4"), ("-inf", "f2"),
    (np.nan, "f4"), (np.inf, ">f2"), (-0.0, "f4"), (0.1, "f4"), (np.float64(1e-50), "f4"),
    (2**53 + 1, "f8"), (Fraction(1, 3), "f4"), (1e300j, "c16"), (0.1 + 0.1j, "c8"),
    (b"ab", "S4"), (5, "U4"), ("é", "U1"), (b"ab", "V3"), (np.void(b"abc"), "V3"),
    (np.datetime64("NaT"), "M8[s]"), ("NaT", "m8[s]"), (5, "m8[s]"), (np.timedelta64(5), "m8[s]"),
    (np.datetime64("2000-01-01T00"), ">M8[D]"), (datetime.date(2000, 1, 1), "M8[s]"),
    (datetime.timedelta(days=1), "m8[h]"), (np.void((3, [1, 2]), PAIR), SMALL), (5, SMALL),
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(("value", "dtype"), REFUSED)
def test_what_does_not_fit_is_refused(value, dtype):
    dtype = np.dtype(dtype)
    with pytest.raises(outcore.errors.UsageError, match="fill_value") as raised:
        check_fill_value(value, dtype, "x.zarr")
    assert raised.value.code == "bad-fill-value"
    assert f"does not fit dtype {dtype}" in str(raised.value)
    assert "give a fill_value that this dtype can hold" in str(raised.value)


@pytest.mark.parametrize(("value", "dtype"), KEPT)
def test_what_fits_is_kept_as_numpy_casts_it(value, dtype):
    dtype = np.dtype(dtype)
    given = np.asarray(value)
    given = given.real if dtype.kind == "f" and given.dtype.kind == "c" else given
    expected, found = given.astype(dtype), check_fill_value(value, dtype, "x.zarr")
    assert dtype == np.asarray(found, dtype).dtype
    assert expected.tobytes() == np.asarray(found, dtype).tobytes()


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr", "a.zarr2", "a.raw", "a.npy"])
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.int64(256), "i1"),
        (np.float64(0.5), "i4"),
        (np.float32("nan"), "u2"),
        (np.int8(-1), "u1"),
    ],
    ids=repr,
)
def test_every_format_refuses_it(tmp_path, name, value, dtype):
    with pytest.raises(outcore.errors.UsageError, match="would be stored as"):
        outcore.create(name, (2,), dtype, fill_value=value)
    with (
        outcore.create("like.zarr", (2,), value.dtype, fill_value=value) as like,
        pytest.raises(outcore.errors.UsageError, match="would be stored as"),
    ):
        outcore.create(name, like=like, dtype=dtype)
    outcore.create("source.zarr", data=np.arange(4, dtype=dtype)).close()
    with pytest.raises(outcore.errors.UsageError, match="would be stored as"):
        outcore.convert("source.zarr", name, fill_value=value)
    assert {"like.zarr", "source.zarr"} == {one.name for one in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr", "a.zarr2"])
def test_scalars_of_numpy_that_fit_are_kept(name):
    with outcore.create(name, (2,), "i1", fill_value=np.float64(-7)) as a:
        assert np.int8(-7) == a.fill_value and a[:].tolist() == [-7, -7]


def test_like_another_array_a_fill_value_may_be_said():
    outcore.create("f.zarr", (2,), "f8", fill_value=np.nan).close()
    with (
        outcore.open("f.zarr") as like,
        outcore.create("i.zarr", like=like, dtype="i4", fill_value=-1) as made,
    ):
        assert made[:].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("text", "dtype"), [("300", "i1"), ("1.5", "i4"), ("nan", "i8"), ("no", "?")]
)
def test_the_command_line_refuses_it(tmp_path, capsys, text, dtype):
    outcore.create("source.zarr", data=np.zeros(2, dtype)).close()
    words = ("a.h5::/x", "--shape", "2", "--dtype", dtype, "--fill-value", text)
    for told in (["create", *words], ["convert", "source.zarr", "b.zarr", "--fill-value", text]):
        assert main(told) != 0
        assert f"does not fit dtype {np.dtype(dtype)}" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["source.zarr"]


def test_of_an_array_that_is_cast_it_is_cast_as_the_elements_are():
    outcore.create("f.zarr", (3,), "f8", chunks=2, fill_value=300.5).close()
    outcore.convert("f.zarr", "i.zarr", dtype="i1", casting="unsafe")
    with outcore.open("f.zarr") as source, outcore.open("i.zarr") as made:
        expected = source[:].astype("i1")
        np.testing.assert_array_equal(expected, made[:])
        assert expected[0] == made.fill_value
