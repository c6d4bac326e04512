"""Schedules of indices on virtual datasets: those of the parts, as h5py reads the whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcore
from outcore import errors

h5py = pytest.importorskip("h5py")


def by_h5py(path: Path) -> Any:
    with h5py.File(path) as file:
        return file["v"][...]


def mixed(folder: Path) -> Path:
    """Frames in files, one missing, one of another type, blocks, a stride, and places without any."""
    layout = h5py.VirtualLayout(shape=(6, 12, 10), dtype="f8")
    for k in range(5):
        if k != 2:
            with h5py.File(folder / f"f{k}.h5", "w") as file:
                data = np.arange(120.0).reshape(12, 10) + 1000 * k
                kind = "i2" if k == 1 else "f8"
                file.create_dataset("d", data=data.astype(kind), chunks=(5, 4), compression="gzip")
        source = h5py.VirtualSource(str(folder / f"f{k}.h5"), "d", shape=(12, 10))
        if k == 3:
            layout[k, ::2, 1:7] = source[:6, 4:]
        else:
            layout[k] = source
    with h5py.File(folder / "run.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-1)
    return folder / "run.h5"


def test_schedules_of_indices(tmp_path: Path) -> None:
    """Those of the parts: equal to indices without one, again and again, whatever the axes."""
    path, random = mixed(tmp_path), np.random.default_rng(3)
    expected = by_h5py(path)
    keys = [
        [5, 0, -1, 2, 2],
        (random.integers(0, 6, 50), random.integers(0, 12, 50)),
        tuple(random.integers(0, n, 400) for n in expected.shape),
        (slice(None), [11, 3, 3]),
        (slice(1, 5), slice(None, None, 3), [9, 0, 4]),
        (slice(2, 4), [0, 6], slice(None), None)[:3],
        expected > 50,
        np.arange(6)[::-1],
        np.empty(0, int),
    ]
    with outcore.open(path) as array:
        for key in keys:
            schedule = array.schedule(key)
            for _ in range(2):
                assert np.array_equal(schedule.gather(), expected[key])
            assert schedule.in_memory and schedule.shape == expected[key].shape
            assert np.array_equal(array[key], expected[key])
        out = np.empty((3, 12, 10))
        assert array.schedule([1, 2, 4]).gather(out) is out
        assert np.array_equal(out, expected[[1, 2, 4]])
        disk = outcore.create(tmp_path / "o.npy", (2, 12, 10), "f8")
        array.schedule([3, 0]).gather(disk)
        assert np.array_equal(disk[...], expected[[3, 0]])
        with pytest.raises(errors.SectionError):
            array.schedule([6])
        # A schedule is for all arrays of the shape, virtual or not.
        copy = outcore.create(tmp_path / "c.npy", data=expected + 1)
        both = array.schedule([4, 2]), copy.schedule([4, 2])
        for one in both:
            assert np.array_equal(one.gather(of=copy), expected[[4, 2]] + 1)
            assert np.array_equal(one.gather(of=array), expected[[4, 2]])
        both[0].save(tmp_path / "s.npz")
    with outcore.open(path) as array:
        again = outcore.IndexSchedule.open(tmp_path / "s.npz", array)
        assert np.array_equal(again.gather(), expected[[4, 2]])


def test_a_schedule_follows_its_sources(tmp_path: Path) -> None:
    """A source that comes, that goes, and one in whose place there is another layout."""
    path = mixed(tmp_path)
    key = (np.array([2, 0, 2, 4]), np.array([1, 2, 3, 4]))

    def found() -> Any:
        return schedule.gather(), by_h5py(path)[key]

    with outcore.open(path) as array:
        schedule = array.schedule(key)
        first, expected = found()
        assert np.array_equal(first, expected) and (first[0] == -1).all()
        with h5py.File(tmp_path / "f2.h5", "w") as file:
            file["d"] = np.full((12, 10), 7.0)
        second, expected = found()
        assert np.array_equal(second, expected) and (second[0] == 7).all()
        held = schedule.nbytes
        assert len(schedule._prepared.schedules) == 1 and held > 0
    os.replace(tmp_path / "f0.h5", tmp_path / "f4.h5")
    with outcore.open(path) as array:
        schedule = array.schedule(key)
        third, expected = found()
        assert np.array_equal(third, expected) and (third[1] == -1).all()


def test_a_schedule_within_a_small_budget(tmp_path: Path) -> None:
    """Indices that do not fit go through the array in parts, of a virtual one, too."""
    path = mixed(tmp_path)
    expected = by_h5py(path)
    indices = np.random.default_rng(1).integers(0, expected.size, 40_000)
    key = np.unravel_index(indices, expected.shape)
    with outcore.open(path) as array, outcore.memory("512 KiB"):
        schedule = array.schedule(key)
        assert not schedule.in_memory
        assert np.array_equal(schedule.gather(), expected[key])
