"""``.npy``: files of numpy read by us, ours read by numpy, and files that lie."""

from __future__ import annotations

import ast
import math
import struct
from pathlib import Path

import elements
import numpy as np
import pytest

import outcore
from clock import within
from outcore import errors, formats

DTYPES = [
    "?", "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", ">i8", "<f2", ">f4", "<f8", ">f8", "<g",
    "<c8", ">c16", "S7", "<U5", ">U5", "V9", "<M8[ns]", ">M8[D]", "<m8[25s]",
    [("a", "<i4"), ("b", ">f8", (2, 3)), ("c", "S3")],
    np.dtype({"names": ["x", "y"], "formats": ["<f4", "<i8"], "offsets": [4, 16], "itemsize": 40}),
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    [("größe", "<f8"), ("長さ", "<i2")],
]  # fmt: skip
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 4), (4, 0), (1, 1, 1, 1, 2)]


def values(shape, dtype, seed=0):
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(seed).integers(0, 256, (math.prod(shape), dtype.itemsize), np.uint8)
    if dtype.kind in "U?":
        raw %= 2
    return raw.tobytes(), np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def same(a, b):
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if a.dtype.names:  # padding between fields is nobody's
        for name in a.dtype.names:
            same(a[name], b[name])
    else:
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.filterwarnings("ignore:Stored array in format:UserWarning")
def test_both_ways(tmp_path, dtype, order):
    for number, shape in enumerate(SHAPES):
        theirs = np.array(values(shape, dtype, number)[1], order=order)
        path = str(tmp_path / f"theirs{number}.npy")
        np.save(path, theirs)
        info = formats.open_info(path)
        same(theirs, elements.read(info))
        mine = str(tmp_path / f"mine{number}.npy")
        made = formats.create_info(mine, shape, dtype, order=order)
        assert Path(mine).read_bytes()[made.layout.parts[0].offset :] == bytes(theirs.nbytes)
        elements.write(made, theirs)
        loaded = np.load(mine)
        same(theirs, loaded)
        assert loaded.flags.c_contiguous if order == "C" else loaded.flags.f_contiguous
        again = formats.open_info(mine, writable=True)
        assert (again.shape, again.dtype, again.layout) == (
            made.shape,
            made.dtype,
            made.layout,
        )


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(tmp_path, version):
    data = np.arange(12.0).reshape(3, 4)
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, data, version=version)
    info = formats.open_info(path)
    assert info.extra["version"] == f"{version[0]}.{version[1]}"
    same(data, elements.read(info))
    grown = formats.resize(info, (5, 4))
    assert grown.shape == (5, 4)
    assert np.load(path)[3:].tolist() == [[0.0] * 4] * 2


def test_many_fields_need_version_2(tmp_path):
    dtype = np.dtype([(f"a rather long field name {k}", "<f8") for k in range(2000)])
    info = formats.create_info(tmp_path / "a.npy", 3, dtype)
    assert info.extra["version"] == "2.0"
    assert np.load(tmp_path / "a.npy", max_header_size=10**6).dtype == dtype
    assert formats.open_info(tmp_path / "a.npy").dtype == dtype


@pytest.mark.parametrize("order", "CF")
def test_append_grows_in_place(tmp_path, order):
    path = tmp_path / "a.npy"
    axis = 0 if order == "C" else 1
    data = np.arange(6.0).reshape(2, 3)
    elements.write(info := formats.create_info(path, (2, 3), "f8", order=order), data)
    for length in [4, 1000, 123_456]:
        shape = tuple(length if d == axis else n for d, n in enumerate((2, 3)))
        room = formats.reserve(info, shape)
        same(data, np.load(path))  # the header tells the old shape until resize
        longer = np.zeros(shape)
        longer[: data.shape[0], : data.shape[1]] = data
        longer[-1, -1] = length
        elements.write(room, longer)
        info = formats.resize(room, shape)
        same(longer, np.load(path))
        data = longer
        assert info.layout.parts[0].offset == 128
    info = formats.resize(info, (2, 3))
    assert np.load(path).shape == (2, 3)
    assert path.stat().st_size == 128 + 48
    with pytest.raises(errors.UnsupportedError, match="can only change its length along axis"):
        formats.resize(info, (3, 2) if order == "C" else (2, 3)[::-1])


@pytest.mark.parametrize(("length", "offset"), [(131_071, 128), (131_072, 4096)])
def test_elements_of_large_arrays_begin_at_a_page(tmp_path, length, offset):
    """NumPy reads such a header, and the array still grows in place."""
    path = tmp_path / "a.npy"
    info = formats.create_info(path, (length,), "f8")
    assert info.layout.parts[0].offset == offset
    elements.write(info, np.arange(float(length)))
    info = formats.resize(formats.reserve(info, (length + 1000,)), (length + 1000,))
    assert info.layout.parts[0].offset == offset
    same(np.append(np.arange(float(length)), np.zeros(1000)), np.load(path))
    assert path.stat().st_size == offset + 8 * (length + 1000)


def test_exclusive_and_replace(tmp_path):
    path = tmp_path / "a.npy"
    formats.create_info(path, 4, "i4", exclusive=True)
    with pytest.raises(errors.StorageError, match="overwrite=True") as caught:
        formats.create_info(path, 5, "i4", exclusive=True)
    assert caught.value.code == "already-exists"
    assert np.load(path).shape == (4,)
    held = np.load(path, mmap_mode="r")
    path.chmod(0o640)
    formats.create_info(path, 5, "i8")
    assert np.load(path).dtype == "i8" and held.shape == (4,) and held.sum() == 0
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]


def test_npy_refuses_options_it_cannot_store(tmp_path):
    path = tmp_path / "a.npy"
    for option in [
        {"chunks": 2}, {"compression": "zstd"}, {"fill_value": 3}, {"attrs": {"a": 1}}, {"dims": ["x"]},
    ]:  # fmt: skip
        with pytest.raises(errors.UnsupportedError, match="cannot store"):
            formats.create_info(path, 4, "i4", **option)
    with pytest.raises(errors.UnsupportedError, match="Python objects"):
        formats.create_info(path, 4, object)
    with pytest.raises(errors.UsageError, match="63 bits"):
        formats.create_info(path, (2**40, 2**40), "f8")
    with pytest.raises(errors.UsageError, match="no option 'dypte'"):
        formats.create_info(path, 4, "i4", dypte=3)
    with pytest.raises(errors.StorageError, match="not-found"):
        formats.create_info(tmp_path / "no" / "a.npy", 4, "i4")
    assert not path.exists()


def test_full_disk_is_met_at_creation(tmp_path):
    with pytest.raises(errors.StorageError) as caught:
        formats.create_info(tmp_path / "a.npy", 2**50, "f8")
    assert caught.value.code == "disk-full"
    assert list(tmp_path.iterdir()) == []


def header(text: bytes, version=(1, 0)) -> bytes:
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "bad-magic"),
        (b"\x93NUM", "bad-magic"),
        (b"\x93NUMPY\x04\x00\x00\x00", "npy-version"),
        (b"\x93NUMPY\x01\x00\xff", "bad-header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "bad-header"),
        (header(b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n"), "object-dtype"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n"), "file-too-short"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }\n"), "bad-shape"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999, 9999999999), }\n"), "too-large"),  # noqa: E501
        (header(b"{'descr': '|S0', 'fortran_order': False, 'shape': (3,), }\n"), "bad-dtype"),
        (header(b"{'descr': '<f8', 'fortran_order': 1, 'shape': (3,), }\n"), "bad-header"),
        (header(b"__import__('os').getpid()\n"), "bad-header"),
        (header(b"(" * 60000), "bad-header"),
        (header(b"{" + b"-" * 60000 + b"1:1}"), "bad-header"),
        (header(b"\xff\xfe", (3, 0)), "bad-header"),
    ],
)  # fmt: skip
def test_headers_that_lie(tmp_path, data, code):
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises(errors.FormatError) as caught:
        formats.open_info(path)
    assert caught.value.code == code


NOTHING = b"{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }"


def test_a_header_that_was_cut_off_in_its_padding(tmp_path):
    """What is left of it can be parsed, and there are no elements that could be missing."""
    path = tmp_path / "a.npy"
    path.write_bytes(header(NOTHING + b" " * 100 + b"\n")[:-50])
    with pytest.raises(errors.FormatError) as caught:
        formats.open_info(path)
    assert caught.value.code == "bad-header"


@pytest.mark.parametrize("length", [5000, 65_000, 256 * 1024, 256 * 1024 + 1])
def test_headers_are_read_up_to_256_kib(tmp_path, length):
    path = tmp_path / "a.npy"
    path.write_bytes(header(NOTHING.ljust(length), (2, 0)))
    if length <= 256 * 1024:
        info = formats.open_info(path)
        assert info.shape == (0,) and info.layout.parts[0].offset == 12 + length
    else:
        with pytest.raises(errors.FormatError) as caught:
            formats.open_info(path)
        assert caught.value.code == "bad-header"


def test_there_is_nothing_inside(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    for name in ("a.npy::/x", "a.npy::"):
        with pytest.raises(errors.UsageError) as caught:
            formats.open_info(tmp_path / name)
        assert caught.value.code == "no-such-array"


@pytest.mark.parametrize(
    "text",
    [
        "x y" + " " * 20_000 + "$",  # NumPy's fallback tries each rest of the blanks in turn
        r"\'" * 60_000,
        "'" + r"\'" * 60_000,
        "1L " * 60_000,
        "{" + "1:1," * 60_000 + "}",
        "(" * 200_000,
        "1+" * 100_000 + "1",
        "1<" * 100_000 + "1",
        repr({"descr": "f4," * 60_000, "fortran_order": False, "shape": (10**9,)}),
        repr({"descr": "<f4", "fortran_order": False, "shape": (1,) * 60_000}),
    ],
    ids=lambda text: text[:6],
)
def test_a_header_is_read_in_time_that_follows_its_length(tmp_path, text):
    path = tmp_path / "a.npy"
    path.write_bytes(header(text.encode(), (2, 0)))
    with within(15), pytest.raises(errors.FormatError) as caught:
        formats.open_info(path)
    assert len(str(caught.value)) < 1000


def test_long_integers_of_python_2_are_read_and_strings_are_left_alone(tmp_path):
    path = tmp_path / "a.npy"
    dtype = [("3L", "<i4"), ("x\\'3L", "<i4"), ('"5L', "<f8")]
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': (2L, 1L), }}\n"
    path.write_bytes(header(text.encode()) + bytes(32))
    with pytest.warns(UserWarning, match="Python 2"):
        expected = np.load(path)
    with outcore.open(path) as a:
        assert (a.shape, a.dtype) == (expected.shape, expected.dtype) == ((2, 1), np.dtype(dtype))


def test_a_header_that_another_thread_disturbs_is_parsed_again(tmp_path, monkeypatch):
    """CPython 3.11 raises SystemError where threads parse literals at the same time."""
    # A header that no other test reads: what was read once is remembered.
    np.save(tmp_path / "a.npy", np.arange(2711))
    usual, left = ast.literal_eval, [3]

    def disturbed(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=51, after=48)")
        return usual(*args, **kwargs)

    monkeypatch.setattr(ast, "literal_eval", disturbed)
    with outcore.open(tmp_path / "a.npy") as a:
        np.testing.assert_array_equal(np.arange(2711), a[...])
    assert left == [0]
