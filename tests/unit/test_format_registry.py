"""Formats that a program, or another package, brings."""

import importlib.metadata
import math

import numpy as np
import pytest

import outcore
from outcore.errors import FormatError
from outcore.formats import registry
from outcore.formats.format import Format, HasFiles, ReadOnlyFormat, Resizable
from outcore.formats.layout import ArrayInfo, Part, Strided
from outcore.formats.spec import byte_strides

MARK = b"TOY!"


class Toy(Format):
    """Eight-byte integers with one axis behind a mark."""

    name = "toy"
    suffixes = (".toy",)

    def recognise(self, path):
        with open(path, "rb") as file:
            return file.read(4) == MARK

    def describe(self, path, inner, writable, *, skip=0):
        with open(path, "rb") as file:
            if file.read(4) != MARK:
                raise FormatError(f"{path!r} has no mark", code="bad-magic", path=path)
            count = file.seek(0, 2) // 8 - 1 - skip
        part = Part(path, 8 + 8 * skip, 8 * count)
        layout = Strided((part,), byte_strides((count,), 8, "C"))
        return ArrayInfo(path, self.name, (count,), np.dtype("<i8"), layout)

    def create(self, path, inner, spec):
        with open(path, "xb") as file:
            file.write(MARK + bytes(4 + math.prod(spec.shape) * 8))
        return self.describe(path, inner, True)


class ToyReader(ReadOnlyFormat):
    name, suffixes = "toy", (".toy",)
    recognise, describe = Toy.recognise, Toy.describe


class EntryPoint:
    def __init__(self, kind):
        self.load = lambda: kind


@pytest.fixture(params=["registered", "entry point"])
def known(request, monkeypatch):
    """Make a format known to the end of the test, in one of the two ways."""
    monkeypatch.setattr(registry, "_registered", [])
    points = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    registry._load_packages.cache_clear()

    def make(kind):
        if request.param == "registered":
            outcore.formats.register(kind)
        else:
            points.append(EntryPoint(kind))
            registry._load_packages.cache_clear()

    yield make
    registry._load_packages.cache_clear()


def test_format_of_others_is_read_written_and_found(tmp_path, known):
    known(Toy)
    name = tmp_path / "a.toy"
    with outcore.create(name, (5,), "i8") as a:
        a[1:] = [4, 3, 2, 1]
    (tmp_path / "b.dat").write_bytes(name.read_bytes())
    for path in (name, tmp_path / "b.dat"):  # by its suffix, and by its mark
        with outcore.open(path, "r+") as a:
            assert (a.format, a[...].tolist()) == ("toy", [0, 4, 3, 2, 1])
    assert [one.shape for one in outcore.ls(name)] == [(5,)]
    assert outcore.open(name, skip=2)[...].tolist() == [3, 2, 1]
    with pytest.raises(outcore.errors.UsageError, match="skip"):
        outcore.open(name, skpi=2)
    assert outcore.sum(name) == 10
    outcore.convert(name, tmp_path / "c.npy")
    assert np.load(tmp_path / "c.npy").tolist() == [0, 4, 3, 2, 1]


def test_abilities_that_a_format_lacks_are_refused(tmp_path, known):
    known(Toy)
    with outcore.create(tmp_path / "a.toy", (5,), "i8") as a:
        for change in (lambda: a.append([1]), lambda: a.resize((7,)), lambda: a.attrs.update(b=1)):
            with pytest.raises(
                outcore.errors.UnsupportedError, match="to a format that can: "
            ) as refusal:
                change()
            assert refusal.value.code == "cannot-change"
        assert a.maxshape == (5,)
    with pytest.raises(outcore.errors.UnsupportedError, match="no groups"):
        outcore.open_group(tmp_path / "a.toy")


def test_framework_refuses_to_write_what_is_only_read(tmp_path, known):
    known(ToyReader)
    path = tmp_path / "a.toy"
    path.write_bytes(MARK + bytes(4) + np.arange(3).tobytes())
    assert outcore.open(path)[...].tolist() == [0, 1, 2]
    calls = (
        lambda: outcore.open(path, "r+"),
        lambda: outcore.open_many([path], "r+"),
        lambda: outcore.create(tmp_path / "b.toy", (3,), "i8"),
        lambda: outcore.convert(path, tmp_path / "b.toy"),
    )
    for call in calls:
        with pytest.raises(outcore.errors.UnsupportedError, match="only reads") as refusal:
            call()
        assert refusal.value.code == "cannot-change"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.toy"]


def test_name_of_another_format_is_refused(known):
    class Npy(Toy):
        name = "npy"

    with pytest.raises(outcore.errors.UsageError, match="already") as refusal:
        outcore.formats.register(Npy)
    assert refusal.value.code == "format-exists"


def test_every_format_says_by_its_class_what_it_can():
    found = {one.name: one.load() for one in registry.OWN}
    assert {n for n, f in found.items() if isinstance(f, ReadOnlyFormat)} == {"zarrzip"}
    assert {n for n, f in found.items() if isinstance(f, HasFiles)} == {"parts"}
    resizable = {n for n, f in found.items() if isinstance(f, Resizable)}
    classic = {name for name in found if name.startswith("netcdf3")}
    assert resizable == {"npy", "parts", "raw", "zarr", "zarr2", *classic}
