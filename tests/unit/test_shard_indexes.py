"""Indexes of Zarr shards are kept for the next access: in memory that gives way, while they hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core, errors

SHAPE = (256, 256)
DATA = np.arange(1 << 16, dtype="<i4").reshape(SHAPE)
#: One shard of 4096 chunks.
INDEX = 4096 * 16 + 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Files are old enough at once, and nothing was kept before."""
    limit = _core.memory_limit()
    _core.set_memory_limit(1)
    _core.set_memory_limit(limit)
    _core.keep_chunks_after(0.0)
    yield
    _core.keep_chunks_after(2.0)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    options = {"chunks": (4, 4), "shards": SHAPE, "compression": "zstd"}
    outcore.create(tmp_path / "a.zarr", data=DATA, **options).close()
    return tmp_path / "a.zarr"


def read_by(array: outcore.DiskArray, key: tuple[int, int]) -> int:
    """Bytes that this process reads for an element."""

    def so_far() -> int:
        return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])

    empty = -so_far() + so_far()  # reading the figure is reading, too
    before = so_far()
    assert array[key] == DATA[key]
    return so_far() - before - empty


def test_an_index_is_read_once(shard: Path) -> None:
    with outcore.open(shard) as array:
        first = read_by(array, (7, 9))
        assert INDEX <= first < INDEX + 10_000
        assert _core.kept_chunks() == (1, 65536)
        for key in ((7, 9), (100, 200), (255, 0)):
            assert read_by(array, key) < 5_000
    with outcore.open(shard) as array:  # the file is what counts
        assert read_by(array, (50, 60)) < 10_000


def test_an_index_is_never_older_than_the_file(shard: Path) -> None:
    with outcore.open(shard, "r+") as array:
        assert read_by(array, (7, 9)) >= INDEX
        array[0:4, 0:4] = -1
        assert array[2, 2] == -1
        assert read_by(array, (100, 200)) < 5_000
    file = next(path for path in shard.rglob("*") if path.is_file() and path.stat().st_size > INDEX)
    with outcore.open(shard) as array:
        assert array[100, 200] == DATA[100, 200]
        data = bytearray(file.read_bytes())
        data[-20] ^= 1
        file.write_bytes(data)
        with pytest.raises(errors.FormatError, match="checksum of the shard's index"):
            array[100, 200]


def test_an_index_gives_way(shard: Path) -> None:
    with outcore.open(shard) as array:
        assert array[7, 9] == DATA[7, 9]
        assert _core.kept_chunks()[0] == 1
        with outcore.memory(_core.memory_state()[0] + 4096):
            assert _core.kept_chunks() == (0, 0)
        assert read_by(array, (7, 9)) >= INDEX


def test_an_index_of_which_most_is_used_is_not_kept(shard: Path) -> None:
    with outcore.open(shard) as array:
        assert np.array_equal(DATA, array[...])
        assert _core.kept_chunks() == (0, 0)
