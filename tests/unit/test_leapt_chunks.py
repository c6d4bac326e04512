"""A section with long steps leaps over chunks: these are not opened, not read, and not made."""

import itertools
import os

import h5py
import numpy as np
import pytest

import outcore

SHAPE, CHUNKS, SHARDS = (40, 60), (2, 3), (4, 6)
# Every third or fourth chunk, and every second shard at most.
KEY = np.s_[1::13, 2::17]
KINDS = {
    "plain": {"compression": None},
    "coded": {"compression": "zstd"},
    "plain shards": {"compression": None, "shards": SHARDS},
    "coded shards": {"compression": "zstd", "shards": SHARDS},
}


def met(sizes):
    """Chunks, or shards, of these sizes that hold an element of the section."""
    rows, columns = (range(n)[part] for n, part in zip(SHAPE, KEY, strict=True))
    both = itertools.product(rows, columns)
    return {(i // sizes[0], j // sizes[1]) for i, j in both}


def files(path):
    """Of all chunks, or shards, that are there: place and name."""
    found = {}
    for folder, _, names in os.walk(path / "c"):
        for name in names:
            place = os.path.relpath(os.path.join(folder, name), path / "c").split(os.sep)
            found[tuple(map(int, place))] = os.path.join(folder, name)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_that_a_read_leaps_over_are_not_opened(tmp_path, kind):
    """Damage in them does not matter."""
    data = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)
    path = tmp_path / "a.zarr"
    outcore.create(path, data=data, chunks=CHUNKS, **KINDS[kind]).close()
    wanted = met(KINDS[kind].get("shards", CHUNKS))
    for place, name in files(path).items():
        if place not in wanted:
            os.unlink(name)
            os.mkdir(name)
    with outcore.open(path) as a:
        np.testing.assert_array_equal(a[KEY], data[KEY])
        np.testing.assert_array_equal(a[1, 2], data[1, 2])
        with pytest.raises(outcore.OutcoreError):
            a[...]


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_that_a_write_leaps_over_are_not_made(tmp_path, kind):
    path = tmp_path / "a.zarr"
    data = np.full(SHAPE, 7, "f4")
    with outcore.create(path, SHAPE, "f4", chunks=CHUNKS, fill_value=7, **KINDS[kind]) as a:
        a[KEY] = data[KEY] = np.arange(data[KEY].size).reshape(data[KEY].shape)
        a.flush()
        assert set(files(path)) == met(KINDS[kind].get("shards", CHUNKS))
        np.testing.assert_array_equal(a[...], data)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_chunks_of_one_file_that_a_write_leaps_over_are_not_made(tmp_path, compression):
    path = tmp_path / "a.h5"
    data = np.full(SHAPE, 7, "f4")
    with h5py.File(path, "w") as file:
        # Without any chunk yet: outcore makes those that are not encoded at once.
        file.create_dataset("v", SHAPE, "f4", chunks=CHUNKS, fillvalue=7, compression=compression)
    with outcore.open(f"{path}::/v", "r+") as a:
        a[KEY] = data[KEY] = np.arange(data[KEY].size).reshape(data[KEY].shape)
    with h5py.File(path) as file:
        dataset = file["v"]
        stored = {
            dataset.id.get_chunk_info(k).chunk_offset for k in range(dataset.id.get_num_chunks())
        }
        assert {(i // CHUNKS[0], j // CHUNKS[1]) for i, j in stored} == met(CHUNKS)
        np.testing.assert_array_equal(dataset[...], data)
