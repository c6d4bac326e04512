"""The memory of HDF5's chunk table: counted, bounded, given back."""

from __future__ import annotations

import dataclasses
import gc
import time

import numpy as np
import pytest

import outcore
from outcore import _core, errors, formats
from outcore.formats.hdf5.chunks import ChunkTable

h5py = pytest.importorskip("h5py")


@pytest.fixture
def many(tmp_path):
    """100 000 chunks of one byte."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=np.arange(100_000, dtype="u1"), chunks=(1,))
    return path


def test_table_is_counted_and_given_back(many):
    info = formats.open_info(many)
    gc.collect()
    before, _, _ = _core.memory_state()
    info.layout.source.load(0)
    assert before + 3_200_000 == _core.memory_state()[0]
    del info
    gc.collect()
    assert before == _core.memory_state()[0]


def test_a_section_needs_no_memory_for_the_whole_table(many):
    """The table as a whole takes 6 400 000 bytes while it is read."""
    with outcore.memory("1 MiB"), outcore.open(many) as array:
        _core.reset_memory_peak()
        assert array[77] == 77
        assert np.array_equal(np.arange(50_000, dtype="u1"), array[:50_000])
        assert _core.memory_state()[2] <= 1 << 20
        with pytest.raises(errors.BudgetError, match="needs 6400000 bytes"):
            array.info.layout.source.nbytes()


def test_chunks_that_could_not_be_stored_hold_no_memory(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (64, 64), "f8", chunks=(16, 64), compression="gzip")

    def refuse(chunks):
        raise RuntimeError("refused")

    info = formats.open_info(path)
    source = dataclasses.replace(info.layout.source, commit=refuse)
    info = dataclasses.replace(info, layout=dataclasses.replace(info.layout, source=source))
    array = _core.Array(info, True, outcore.Hints())
    before, _, _ = _core.memory_state()
    with pytest.raises(RuntimeError, match="refused") as caught:
        array.write((), np.arange(4096.0).reshape(64, 64))
    # The exception is still here, and with it the frame that was given the chunks.
    assert caught.value.__traceback__ is not None
    assert before == _core.memory_state()[0]


@pytest.mark.parametrize("age", [0, 10], ids=["young", "old"])
def test_table_is_remembered_only_under_a_stamp_that_a_change_would_alter(
    tmp_path, monkeypatch, age
):
    """Two changes within one tick of the clock of file times bear the same time (decision 0011)."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(64), chunks=(1,), compression="gzip")
    stamp = (time.time_ns() - age * 10**9,) * 2 + (1, 1)
    monkeypatch.setattr(ChunkTable, "_read_stamp", lambda self: stamp)
    table = formats.open_info(path).layout.source
    before = table.fetch((0,), (64,))
    with h5py.File(path, "r+") as file:
        data = file["x"][...]
        del file["x"]
        file.create_dataset("other", data=data)
        file.create_dataset("x", data=data, chunks=(1,), compression="gzip")
    after = formats.open_info(f"{path}::/x").layout.source.fetch((0,), (64,))
    assert not np.array_equal(before, after)
    assert np.array_equal(before if age else after, table.fetch((0,), (64,)))


def test_a_lock_makes_young_stamps_good_for_more(tmp_path):
    """A loaded table of a file that was just written is read once, not at each access."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(64), chunks=(1,), compression="gzip")
    time.sleep(0.1)
    table = formats.open_info(path).layout.source
    held = table.fetch.__self__
    table.fetch((0,), (64,), True)
    kept = held._loaded
    table.fetch((0,), (64,), True)
    assert kept is not None and held._loaded is kept
    held.forget()
    table.fetch((0,), (64,))
    kept = held._loaded
    table.fetch((0,), (64,))
    assert kept is not None and held._loaded is not kept
