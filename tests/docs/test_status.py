"""The status tables say what the code does."""

import ast
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.formats.registry import OWN
from outcore.public import list_public

ROOT = Path(__file__).resolve().parents[2]
STATUS = ROOT / "docs" / "status"


def table(name):
    """The first table of a document: a list of rows, each a mapping from the heading."""
    lines = [line for line in (STATUS / name).read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


FORMATS = table("formats.md")
CODECS = table("codecs.md")
SUFFIX = {
    "raw": "bin",
    "npy": "npy",
    "hdf5": "h5",
    "netcdf4": "nc",
    "netcdf3_classic": "nc",
    "netcdf3_64bit_offset": "nc",
    "netcdf3_64bit_data": "nc",
    "zarr": "zarr",
    "zarr2": "zarr2",
    "parts": "parts",
    "zarrzip": "zip",
}
# Where a format stores a codec under another name.
STORED_AS = {
    "HDF5, NetCDF4": {"gzip": "deflate", "lz4": "lz4hdf5"},
    "Zarr": {"deflate": "gzip", "lz4": "blosc", "lz4hdf5": "blosc"},
}


def test_every_format_has_a_row_and_its_suffixes():
    here = {row["Format"].strip("`"): re.findall(r"`([^`]+)`", row["Suffixes"]) for row in FORMATS}
    assert here == {one.name: list(one.suffixes) for one in OWN}


def works(action):
    try:
        action()
    except outcore.errors.UnsupportedError:
        return "no"
    return "yes"


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row["Format"].strip("`"))
def test_formats_do_what_their_row_says(row, tmp_path):
    name = row["Format"].strip("`")

    def create(**words):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{SUFFIX[name]}"
        array = outcore.create(path, (6, 4), "f8", format=name, **words)
        array[...] = np.arange(24.0).reshape(6, 4)
        return array

    def reopen():
        if name == "zarrzip":
            reopen_zipped()
            return
        array = create()
        array.close()
        raw = {"dtype": "f8", "shape": (6, 4)} if name == "raw" else {}
        with outcore.open(array.path, format=name, **raw) as again:
            np.testing.assert_array_equal(again[...], np.arange(24.0).reshape(6, 4))

    def reopen_zipped():
        outcore.create(tmp_path / "a.zarr", data=np.arange(24.0).reshape(6, 4)).close()
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
            for one in (tmp_path / "a.zarr").rglob("*"):
                file.write(one, one.relative_to(tmp_path / "a.zarr"))
        with outcore.open(tmp_path / "a.zip") as again:
            np.testing.assert_array_equal(again[...], np.arange(24.0).reshape(6, 4))

    def attributes():
        array = create(attrs={"units": "K"})
        with outcore.open(array.path) as again:
            assert again.attrs["units"] == "K"

    def dims():
        assert create(dims=("y", "x")).dims == ("y", "x")

    def fill():
        path = tmp_path / f"fill.{SUFFIX[name]}"
        with outcore.create(path, (6, 4), "f8", format=name, fill_value=7.0) as array:
            assert (array[...] == 7).all()

    def grow():
        chunked = {"chunks": (3, 4)} if row["Chunks"] == "yes" else {}
        free = {
            "hdf5": {"maxshape": (None, 4)},
            "netcdf4": {"dims": ("y", "x"), "unlimited": ("y",)},
        }
        if name.startswith("netcdf3"):
            free[name] = free["netcdf4"]
        array = create(**chunked, **free.get(name, {}))
        array.append(np.ones((2, 4)))
        assert array.shape == (8, 4)
        assert array[7, 3] == 1
        assert array[5, 3] == 23

    measured = {
        "Read": works(reopen),
        "Create": works(create),
        "Chunks": works(lambda: create(chunks=(3, 2))),
        "Compression": works(lambda: create(chunks=(3, 2), compression="gzip")),
        "Resize, append": works(grow),
        "Attributes": works(attributes),
        "Names of axes": works(dims),
        "Fill value": works(fill),
    }
    assert {key: row[key] for key in measured} == measured


def test_every_codec_of_the_core_has_a_row():
    source = (ROOT / "crates/io/src/codec/registry.rs").read_text()
    known = set(re.findall(r'^        "(\w+)" => ', source, re.M))
    assert len(known) > 5
    assert {row["Codec"].strip("`") for row in CODECS} == known


@pytest.mark.parametrize("row", CODECS, ids=lambda row: row["Codec"].strip("`"))
@pytest.mark.parametrize("column", ["HDF5, NetCDF4", "Zarr"])
def test_codecs_do_what_their_row_says(row, column, tmp_path):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    pytest.importorskip("hdf5plugin")
    codec = row["Codec"].strip("`")
    data = np.arange(200 * 30, dtype="f4").reshape(200, 30)
    path = tmp_path / ("a.zarr" if column == "Zarr" else "a.h5")
    words = {"chunks": (64, 30), "compression": codec}
    if row[column] != "write":
        with pytest.raises((outcore.errors.UnsupportedError, outcore.errors.UsageError)):
            outcore.create(path, data=data, **words)
        return
    outcore.create(path, data=data, **words).close()
    with outcore.open(path) as again:
        names = [c.name for c in again.info.layout.codecs]
        assert STORED_AS[column].get(codec, codec) in names
        np.testing.assert_array_equal(again[...], data)
    if column == "Zarr":
        np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], data)
    else:
        with h5py.File(path) as file:
            np.testing.assert_array_equal(next(iter(file.values()))[...], data)


# Where Python code raises with a code it does not write as a literal: code=name of a table.
CODE_TABLES = {"durable.py": ("_CODES",)}


def codes_in_python():
    """Codes that stand in the sources as ``code="..."``, or in a table of codes."""
    found = set()
    for path in (ROOT / "python" / "outcore").rglob("*.py"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "code":
                found |= texts(node.value)
            if isinstance(node, ast.Assign) and path.name in CODE_TABLES:
                names = {t.id for t in node.targets if isinstance(t, ast.Name)}
                if names & set(CODE_TABLES[path.name]):
                    found |= {n.value for n in node.value.values}
    return found


def texts(node):
    """String constants that an expression can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    return set()


def test_every_error_code_has_a_row():
    here = {row["Code"].strip("`") for row in table("error-codes.md")}
    there = codes_in_python() | set(_core.error_codes())
    assert there - here == set(), "codes without a row in docs/status/error-codes.md"
    assert here - there == set(), "rows for codes that nothing raises"


def test_error_codes_name_classes_that_exist():
    public = {full.rpartition(".")[2]: found for full, found in list_public()}
    wrong = [
        row["Code"]
        for row in table("error-codes.md")
        for word in re.findall(r"\w+", row["Class"])
        if not issubclass(public.get(word, int), (outcore.OutcoreError, outcore.types.Damage))
    ]
    assert wrong == []


def test_codes_are_sorted_and_unique():
    codes = [row["Code"].strip("`") for row in table("error-codes.md")]
    assert codes == sorted(set(codes))
