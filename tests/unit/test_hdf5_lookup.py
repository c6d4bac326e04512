"""The part of an HDF5 chunk table that an access touches: what is read of it, what is found in it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import outcore
from fuzz.hdf5_checksums import lookup3
from outcore import _core, errors
from outcore.formats.hdf5 import lookup as hdf5_lookup
from outcore.formats.hdf5.chunks import ChunkTable

h5py = pytest.importorskip("h5py")

#: Name: newest format or not, limits of the axes, space at creation.
INDICES: dict[str, tuple[str, tuple[int | None, int | None], bool]] = {
    "tree 1": ("earliest", (60, 80), False),
    "implicit": ("latest", (60, 80), True),
    "fixed": ("latest", (60, 90), False),
    "extensible": ("latest", (None, 80), False),
    "extensible, second axis": ("latest", (70, None), False),
    "tree 2": ("latest", (None, None), False),
}
SHAPE = (60, 80)
DATA = np.arange(1, 4801, dtype="<i4").reshape(SHAPE)


def make(path: Path, index: str, compression: int | None = None, userblock: int = 0) -> None:
    """4800 chunks of one element."""
    libver, limits, early = INDICES[index]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((1, 1))
    if early:
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    if compression is not None:
        plist.set_deflate(compression)
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        unlimited = h5py.h5s.UNLIMITED
        space = h5py.h5s.create_simple(SHAPE, tuple(unlimited if n is None else n for n in limits))
        dset = h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, plist))
        dset[...] = DATA


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Offset and length of what is read of a table; reading it as a whole fails."""
    found: list[tuple[int, int]] = []
    plain = ChunkTable._open_reader

    @contextlib.contextmanager
    def reading(self: ChunkTable) -> Any:
        with plain(self) as read:

            def counted(offset: int, length: int) -> bytes:
                found.append((offset, length))
                return read(offset, length)

            yield counted

    def whole(*_: Any) -> None:
        raise AssertionError("the whole table is read")

    monkeypatch.setattr(ChunkTable, "_open_reader", reading)
    monkeypatch.setattr(ChunkTable, "_read", whole)
    monkeypatch.setattr(ChunkTable, "_look_up", whole)
    return found


@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("compression", [None, 1], ids=["plain", "encoded"])
@pytest.mark.parametrize("index", INDICES)
def test_sections_are_those_of_numpy(
    tmp_path: Path,
    reads: list[tuple[int, int]],
    index: str,
    compression: int | None,
    userblock: int,
) -> None:
    if index == "implicit" and compression is not None:
        pytest.skip("encoded chunks have an index")
    make(tmp_path / "a.h5", index, compression, userblock)
    with outcore.open(tmp_path / "a.h5") as array:
        for key in np.s_[7, 9], np.s_[3:40, 70:], np.s_[::7, 5], np.s_[...], np.s_[59:, :3]:
            assert np.array_equal(DATA[key], array[key])


@pytest.mark.parametrize(
    ("index", "number", "most"),
    [
        # The level of the root; the root, and one node on each of two more levels.
        ("tree 1", 4, 6 + 3 * (24 + 64 * 40 + 32)),
        ("implicit", 0, 0),
        # Header, which pages there are, one page of 1024 entries.
        ("fixed", 3, 1024 * 8 + 100),
        # Header, index block, super block, one block of 256 entries.
        ("extensible", 4, 256 * 8 + 600),
        # Header, and two nodes.
        ("tree 2", 3, 2 * 2048 + 38),
    ],
)
def test_one_chunk_takes_one_way_through_the_index(
    tmp_path: Path, reads: list[tuple[int, int]], index: str, number: int, most: int
) -> None:
    make(tmp_path / "a.h5", index)
    time.sleep(0.06)  # under the lock the table is good for more then
    with outcore.open(tmp_path / "a.h5") as array:
        assert array[40, 30] == DATA[40, 30]
        assert len(reads) == number
        assert sum(length for _, length in reads) <= most
        del reads[:]
        assert array[40, 31] == DATA[40, 31]
        assert reads == []


def test_what_is_kept_is_of_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    make(path, "fixed", 1)
    time.sleep(0.06)
    with outcore.open(path) as array:
        assert array[40, 30] == DATA[40, 30]
        with h5py.File(path, "r+") as file:
            del file["x"]
            file["y"] = np.zeros(SHAPE)
            options = {"chunks": (1, 1), "compression": 1, "data": -DATA}
            file.create_dataset("x", **options)
        assert array[40, 30] == -DATA[40, 30]


def test_what_is_read_of_a_file_that_changes_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk was looked for without the lock of the library, which another program had just then."""
    path = tmp_path / "a.h5"
    make(path, "tree 1", 1)
    time.sleep(0.06)
    table = outcore.open(path).info.layout.source.fetch.__self__
    table.fetch((40, 30), (1, 1), True)
    old = table.fetch((2, 3), (1, 1), True)
    table.forget()
    table.fetch((40, 30), (1, 1), True)
    plain = ChunkTable._search

    def late(self: ChunkTable, *words: Any) -> Any:
        found = plain(self, *words)
        monkeypatch.setattr(ChunkTable, "_search", plain)
        with h5py.File(path, "r+") as file:
            del file["x"]
            file["y"] = np.zeros(SHAPE)
            file.create_dataset("x", data=DATA, chunks=(1, 1), compression=1)
        return found

    monkeypatch.setattr(ChunkTable, "_search", late)
    found = table.fetch((2, 3), (1, 1), True)
    table.forget()
    new = table.fetch((2, 3), (1, 1), True)
    assert np.array_equal(new, found)
    assert not np.array_equal(new, old)


def test_what_is_kept_gives_way_to_a_small_budget(
    tmp_path: Path, reads: list[tuple[int, int]]
) -> None:
    make(tmp_path / "a.h5", "tree 1")
    with outcore.open(tmp_path / "a.h5") as array, outcore.memory(100_000):
        _core.reset_memory_peak()
        for row in range(0, 60, 5):
            assert np.array_equal(DATA[row], array[row])
        assert _core.memory_state()[2] <= 100_000


def entry(path: Path, place: tuple[int, int]) -> int:
    """Where the entry of a chunk stands in a tree of version 1."""
    words = b"".join(n.to_bytes(8, "little") for n in (*place, 0))
    data = path.read_bytes()
    found, at = [], data.find(words)
    while at >= 0:
        with h5py.File(path) as file:
            address = file["x"].id.get_chunk_info_by_coord(place).byte_offset
        if data[at + 24 : at + 32] == address.to_bytes(8, "little"):
            found.append(at)
        at = data.find(words, at + 1)
    assert len(found) == 1
    return found[0]


def patch(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


def test_two_chunks_of_one_place_are_found_where_one_looks(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    make(path, "tree 1")
    at = entry(path, (20, 31))
    patch(path, at + 8, (30).to_bytes(8, "little"))
    with outcore.open(path, "r+") as array:
        for key in np.s_[20, 30], np.s_[20, 28:34]:
            with pytest.raises(errors.FormatError, match="two chunks for"):
                array[key]
            with pytest.raises(errors.FormatError, match="two chunks for"):
                array[key] = 5


@pytest.mark.parametrize(
    ("address", "code"),
    [(None, "chunk-overlap"), (1 << 40, "chunk-out-of-file"), (8, "chunk-out-of-file")],
)
def test_addresses_that_cannot_be_are_refused(
    tmp_path: Path, address: int | None, code: str
) -> None:
    path = tmp_path / "a.h5"
    make(path, "tree 1")
    if address is None:
        with h5py.File(path) as file:
            address = file["x"].id.get_chunk_info_by_coord((20, 31)).byte_offset
    patch(path, entry(path, (20, 30)) + 24, address.to_bytes(8, "little"))
    with outcore.open(path, "r+") as array:
        for key in np.s_[20, 30:32], np.s_[20, 30]:
            with pytest.raises(errors.FormatError) as caught:
                array[key]
            assert caught.value.code == code
            with pytest.raises(errors.FormatError):
                array[key] = 5


def test_a_node_between_other_keys_is_left_to_the_library(tmp_path: Path) -> None:
    """Its chunks are not where a search looks for them."""
    path = tmp_path / "a.h5"
    make(path, "tree 1")
    data = path.read_bytes()
    nodes = [at for at in range(len(data) - 6) if data[at : at + 6] == b"TREE\x01\0"]
    first = nodes[len(nodes) // 2]
    row = int.from_bytes(data[first + 24 + 8 : first + 24 + 16], "little")
    patch(path, first + 24 + 8, (row - 3).to_bytes(8, "little"))
    with outcore.open(path) as array, pytest.raises(errors.FormatError, match="two chunks for"):
        array[row - 3 : row + 2]


@pytest.mark.parametrize("index", ["fixed", "extensible", "tree 2"])
def test_a_wrong_checksum_is_not_believed(tmp_path: Path, index: str) -> None:
    path = tmp_path / "a.h5"
    make(path, index)
    with h5py.File(path) as file:
        info: list[Any] = []
        file["x"].id.chunk_iter(info.append)
    address = {tuple(each.chunk_offset): each.byte_offset for each in info}[40, 30]
    word = address.to_bytes(8, "little")
    data = path.read_bytes()
    assert data.count(word) == 1
    patch(path, data.index(word), (address + 4).to_bytes(8, "little"))
    with outcore.open(path) as array, pytest.raises(errors.FormatError) as caught:
        array[40, 30]
    assert caught.value.code == "hdf5-refused"


@pytest.mark.parametrize("compression", [None, 1], ids=["plain", "encoded"])
@pytest.mark.parametrize("shape", [(5, 30), (30, 40)], ids=["few", "many"])
def test_an_array_without_a_limit_on_its_second_axis(
    tmp_path: Path, shape: tuple[int, int], compression: int | None
) -> None:
    """The library lists its chunks in wrong places (2.0)."""
    path = tmp_path / "a.h5"
    data = np.arange(1, shape[0] * shape[1] + 1).reshape(shape)
    options = {"chunks": (2, 3), "maxshape": (shape[0], None), "compression": compression}
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=data, **options)
    assert outcore.verify(path) == []
    with outcore.open(path, "r+") as array:
        assert np.array_equal(data, array[...])
        assert array[4, 7] == data[4, 7]
        array[3, 8] = data[3, 8] = -1
        array.append(data[:, :10], axis=1)
        assert np.array_equal(np.hstack([data, data[:, :10]]), array[...])
    with h5py.File(path) as file:
        assert np.array_equal(np.hstack([data, data[:, :10]]), file["x"][...])


@pytest.mark.parametrize("stored", [1, 40, 3000])
def test_extensible_arrays_with_pages(tmp_path: Path, stored: int) -> None:
    """From 131 000 entries on, blocks are pages, some of which may be missing."""
    path = tmp_path / "a.h5"
    places = np.sort(np.random.default_rng(stored).choice(600_000, stored, replace=False))
    with h5py.File(path, "w", libver="latest") as file:
        dset = file.create_dataset("x", (600_000,), "u1", chunks=(1,), maxshape=(None,))
        for place in places.tolist():
            dset.id.write_direct_chunk((place,), b"\7")
    expected = np.zeros(600_000, "u1")
    expected[places] = 7
    with outcore.open(path) as array:
        for start in (3, 131_000, 590_000):
            assert np.array_equal(expected[start : start + 9000], array[start : start + 9000])
        table = array.info.layout.source.fetch.__self__
        rows = table.fetch((0,), (600_000,))
        assert np.array_equal(places, np.flatnonzero(rows[:, 0] >= 0))
        assert table._parts is not None  # the library was not asked


def test_the_checksum_is_that_of_the_library() -> None:
    for length in (*range(40), 1000):
        data = bytes(k * 7 % 251 for k in range(length))
        assert _core.lookup3(data) == lookup3(data)


def test_opening_reads_no_index(tmp_path: Path) -> None:
    """With a name or without: `visititems` of h5py has the library walk through all indices."""
    make(tmp_path / "a.h5", "tree 1")
    sums = {}
    for name in ("a.h5", "a.h5::/x"):
        before = int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])
        with outcore.open(tmp_path / name):
            pass
        after = int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])
        sums[name] = after - before
    assert sums["a.h5"] < 40_000 and sums["a.h5::/x"] < 40_000


class Equal:
    """Equal to everything: a checksum that is right."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


@pytest.mark.parametrize("compression", [None, 1], ids=["plain", "encoded"])
@pytest.mark.parametrize("index", INDICES)
def test_a_damaged_index_is_odd_or_finds_rows(
    tmp_path: Path,
    reads: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    index: str,
    compression: int | None,
) -> None:
    """Whatever stands in it, and checksums that are right."""
    if index == "implicit":
        pytest.skip("there is nothing to damage")
    path = tmp_path / "a.h5"
    make(path, index, compression)
    with outcore.open(path) as array:
        table = array.info.layout.source.fetch.__self__
        table.fetch((20, 20), (30, 40))
        good = table._parts.found
    data = path.read_bytes()
    core = SimpleNamespace(lookup3=lambda data: Equal(), Reservation=_core.Reservation)
    monkeypatch.setattr(hdf5_lookup, "_core", core)
    random = np.random.default_rng(7)
    places = sorted({at for at, _ in reads})
    odd = 0
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(int(random.integers(1, 4))):
            at = int(random.choice(places)) + int(random.integers(0, random.choice([16, 80, 2600])))
            width = int(random.choice([1, 2, 8]))
            value = int(random.choice([0, 1, 0x7F, 0xFF, int(random.integers(256))]))
            damaged[at : at + width] = bytes([value] * width)
        raw = bytes(damaged)
        words = (good.address, good.base, good.grid, good.most, good.chunks, good.chunk_bytes)
        found = type(good)(*words, good.encoded, lambda rows: None)
        try:
            rows = found.find(lambda at, length, raw=raw: raw[at : at + length], (20, 20), (30, 40))
        except hdf5_lookup.UnreadableIndexError:
            odd += 1
        else:
            assert rows.shape == (1200, 3)
    assert 0 < odd < 150
