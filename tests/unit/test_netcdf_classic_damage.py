"""Damaged headers of classic NetCDF files are refused, whatever they claim, with little memory."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest

import outcore
from outcore import errors, formats
from outcore.formats.netcdf.classic import places
from outcore.formats.netcdf.classic.header import (
    CHAR,
    Attribute,
    Dimension,
    Header,
    Variable,
    encode,
    parse,
)

DIMS = (Dimension("t", 0), Dimension("x", 3), Dimension("y", 4))
ATTRS = (Attribute("title", CHAR, b"text"), Attribute("n", 4, struct.pack(">3i", 1, 2, 3)))


def header(version=2, *, records=2, dims=DIMS, variables=None):
    if variables is None:
        variables = (
            Variable("a", (1, 2), ATTRS, 6, 0),
            Variable("b", (0, 1), (), 3, 0),
            Variable("c", (0,), (), 4, 0),
        )
    return places.arrange(Header(version, records, dims, ATTRS, variables))


def write(path, made, *, raw=None, size=20_000):
    raw = places.to_bytes(made) if raw is None else raw
    path.write_bytes(bytes(raw).ljust(size, b"\0"))
    return path


def refuse(path, code, match=""):
    with pytest.raises(errors.FormatError, match=match) as caught:
        formats.ls(str(path), format=formats.find_format_name(str(path)))
    assert caught.value.code == code and str(path) in str(caught.value)


@pytest.mark.parametrize("version", [1, 2, 5])
def test_a_header_is_the_same_after_reading_and_writing(version):
    made = header(version)
    raw = places.to_bytes(made)
    found = parse("a.nc", lambda count: raw[:count], len(raw))
    assert places.to_bytes(found) == raw and found.size == len(raw)
    assert (found.dims, found.attrs, found.variables) == (made.dims, made.attrs, made.variables)


@pytest.mark.parametrize("version", [1, 2, 5])
def test_a_header_that_is_cut_off_is_refused(tmp_path, version):
    raw = places.to_bytes(header(version))
    for length in range(4, len(raw)):
        path = tmp_path / "a.nc"
        path.write_bytes(raw[:length])
        with pytest.raises(errors.FormatError) as caught:
            formats.ls(str(path))
        assert caught.value.code in ("file-too-short", "bad-header"), length


@pytest.mark.parametrize("version", [1, 2, 5])
@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 2**32 - 2, 2**62, 2**63, 2**64 - 1])
def test_any_number_may_be_anything(tmp_path, version, number):
    """Each word of the header in turn; nothing is allocated for what is not there."""
    made = header(version)
    raw, width = places.to_bytes(made), 8 if version == 5 else 4
    lie = (number % 256**width).to_bytes(width, "big")
    tracemalloc.start()
    try:
        for at in range(4, len(raw) - width, 4):
            path = write(tmp_path / "a.nc", made, raw=raw[:at] + lie + raw[at + width :])
            try:
                for entry in outcore.ls(path):
                    if not entry.note:
                        outcore.open(entry.path).close()
            except errors.FormatError:
                pass
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_claims_that_cannot_be_are_named(tmp_path):
    path = tmp_path / "a.nc"
    made = header()
    raw = places.to_bytes(made)

    def patched(old, new, count=1):
        assert raw.count(old) >= count
        return write(path, made, raw=raw.replace(old, new, count))

    refuse(
        patched(struct.pack(">2i", 10, 3), struct.pack(">2i", 10, -3)),
        "bad-header",
        "-3 dimensions",
    )
    refuse(patched(struct.pack(">2i", 10, 3), struct.pack(">2i", 11, 3)), "bad-header", "tag 11")
    many = struct.pack(">2i", 10, 2**31 - 1)
    text = "2147483647 dimensions with"
    refuse(patched(struct.pack(">2i", 10, 3), many), "bad-header", text)
    several = header(dims=(*DIMS, Dimension("u", 0)))
    refuse(write(path, several), "bad-header", "several record dimensions")
    twice = header(dims=(*DIMS, Dimension("x", 5)))
    refuse(write(path, twice), "bad-header", "two dimensions have the same name")
    for variables, text in [
        ((Variable("a", (1,), (), 6, 0), Variable("a", (1,), (), 6, 0)), "two variables"),
        ((Variable("a", (1, 0), (), 6, 0),), "another place than the first"),
        ((Variable("a", (1, 9), (), 6, 0),), "dimension 9 of 3"),
    ]:
        lying = Header(2, 0, DIMS, (), variables)
        refuse(write(path, None, raw=encode(lying, (0,) * len(variables))), "bad-header", text)
    for kind, version in ((12, 5), (7, 2), (0, 1)):
        lying = Header(version, 0, DIMS, (), (Variable("a", (1,), (), 1, 4096),))
        raw = encode(lying, (0,)).replace(
            (1).to_bytes(4, "big") + bytes(8 if version == 5 else 4),
            kind.to_bytes(4, "big") + bytes(8 if version == 5 else 4),
        )
        with pytest.raises(errors.FormatError):
            formats.ls(str(write(path, None, raw=raw)))


def test_variables_that_overlap_are_refused(tmp_path):
    path = tmp_path / "a.nc"
    made = header()
    a, b, c = made.variables
    size, step = len(places.to_bytes(made)), places.compute_record_size(made)
    for moved, text in [
        ({"a": size - 4}, "within the header"),
        ({"a": 0}, "within the header"),
        ({"a": b.begin}, "'[ab]' begins at byte"),
        ({"b": a.begin + 8}, "within 'a'"),
        ({"c": b.begin + 4}, "within 'b'"),
        ({"c": b.begin + step}, "into a record"),
        ({"a": 2**63 - 8}, "beyond 63 bits|begins at byte"),
    ]:
        variables = tuple(
            Variable(one.name, one.dims, one.attrs, one.kind, moved.get(one.name, one.begin))
            for one in (a, b, c)
        )
        lying = Header(made.version, 2, made.dims, made.attrs, variables)
        refuse(write(path, lying), "bad-header", text)


def test_what_is_cut_off_is_found_by_verify(tmp_path):
    path = tmp_path / "a.nc"
    group = outcore.open_group(path, "w", format="netcdf3_classic")
    group.create("a", data=np.arange(5.0)).close()
    group.create(
        "b", data=np.arange(6, dtype="i2").reshape(3, 2), dims=("t", "x"), unlimited="t"
    ).close()
    group.create("c", data=np.arange(3, dtype="i4"), dims=("t",)).close()
    assert outcore.verify(path) == []
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 4)
    assert {
        (one.path.rpartition("/")[2], one.code, one.reason) for one in outcore.verify(path)
    } == {("c", "cannot-open", "file-too-short")}
    with pytest.raises(errors.FormatError, match="cut off"):
        outcore.open(f"{path}::/c")
    assert outcore.open(f"{path}::/b")[...].tolist() == [[0, 1], [2, 3], [4, 5]]
    notes = {entry.path.rpartition("/")[2]: bool(entry.note) for entry in outcore.ls(path)}
    assert notes == {"a": False, "b": False, "c": True}
    # A change would move what is not there.
    with outcore.open(f"{path}::/b", "r+") as b, pytest.raises(errors.FormatError, match="cut off"):
        b.append([[1, 2]])
    with outcore.open(f"{path}::/b", "r+") as b, pytest.raises(errors.FormatError, match="cut off"):
        b.attrs["a"] = "x" * 100_000
    with path.open("r+b") as file:
        file.truncate(size - 20)
    assert len(outcore.verify(path)) == 2


def test_more_records_than_there_are(tmp_path):
    for version, width in ((1, 4), (2, 4), (5, 8)):
        made = header(version)
        raw = bytearray(places.to_bytes(made))
        raw[4 : 4 + width] = (2 ** (8 * width - 1) - 1).to_bytes(width, "big")
        path = write(tmp_path / "a.nc", made, raw=raw)
        with pytest.raises(errors.FormatError) as caught:
            outcore.open(f"{path}::/b")
        assert caught.value.code in ("file-too-short", "bad-header", "bad-shape", "too-large")


def test_a_large_header_is_counted_in_the_budget(tmp_path):
    dims = (Dimension("x", 3),)
    attrs = (Attribute("a", CHAR, b"x" * (3 << 20)),)
    made = places.arrange(Header(5, 0, dims, attrs, (Variable("v", (0,), (), 5, 0),)))
    path = write(tmp_path / "a.nc", made, size=12 << 20)
    assert outcore.open(f"{path}::/v").shape == (3,)
    with outcore.memory("8 MiB"), pytest.raises(errors.BudgetError):
        outcore.open(f"{path}::/v")


def test_other_versions_and_other_files_are_named(tmp_path):
    path = tmp_path / "a.nc"
    path.write_bytes(b"CDF\x03" + bytes(100))
    with pytest.raises(errors.UnsupportedError, match="CDF-3") as caught:
        outcore.open(path, format="netcdf3_classic")
    assert caught.value.code == "netcdf-version"
    path.write_bytes(b"nothing of that kind")
    with pytest.raises(errors.FormatError) as caught:
        outcore.open(path, format="netcdf3_classic")
    assert caught.value.code == "bad-magic"
    path.write_bytes(b"CDF")
    with pytest.raises(errors.FormatError):
        outcore.open(path, format="netcdf3_classic")


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_never_does_more_than_raise(tmp_path, seed):
    rng = np.random.default_rng(seed)
    made = header((1, 2, 5)[seed])
    good = places.to_bytes(made)
    for _ in range(200):
        raw = bytearray(good)
        for _ in range(rng.integers(1, 5)):
            raw[rng.integers(4, len(raw))] = rng.choice([0, 1, 4, 10, 127, 128, 255])
        path = write(tmp_path / "a.nc", made, raw=raw)
        try:
            for entry in outcore.ls(path):
                if not entry.note and np.prod(entry.shape) < 10_000:
                    outcore.open(entry.path)[...]
        except errors.OutcoreError:
            pass
