"""What threads do in accesses, in seconds: I/O, codecs, copies, planning."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

import outcore

PARTS = ("io", "decode", "encode", "copy", "plan")
ALONE = {"threads": 1}


def spent(a):
    stats = a.stats()
    return {part: stats[f"thread_{part}_seconds"] for part in PARTS}


def taken(a, work):
    """What `work` added to the seconds of `a`, and how long it took."""
    before, began = spent(a), perf_counter()
    work()
    passed = perf_counter() - began
    return {part: seconds - before[part] for part, seconds in spent(a).items()}, passed


@pytest.fixture
def noise():
    return np.random.default_rng(5).integers(0, 99, (600, 500))


@pytest.mark.parametrize("name", ["a.zarr", "a.h5::x"])
def test_chunks_through_a_codec_take_time_of_io_codecs_and_copies(tmp_path, noise, name):
    path = f"{tmp_path}/{name}"
    with outcore.create(
        path, noise.shape, "i8", chunks=(100, 100), compression="gzip", hints=ALONE
    ) as a:

        def write():
            a[...] = noise
            a.flush()

        told, passed = taken(a, write)
        assert told["decode"] == 0 < min(told[part] for part in ("io", "encode", "copy", "plan"))
        assert told["encode"] > told["plan"]
        assert sum(told.values()) <= passed
    with outcore.open(path, hints=ALONE) as a:
        told, passed = taken(a, lambda: np.testing.assert_array_equal(noise[7:], a[7:]))
        assert told["encode"] == 0 < min(told[part] for part in ("io", "decode", "copy", "plan"))
        assert sum(told.values()) <= passed
        assert a.stats()["read_seconds"] >= sum(told.values())


@pytest.mark.parametrize("method", ["straight", "window", "mapped", "list"])
def test_a_file_without_codecs_takes_none_of_their_time(tmp_path, noise, method):
    np.save(tmp_path / "a.npy", noise)
    with outcore.open(tmp_path / "a.npy", hints={"method": method, **ALONE}) as a:
        told, passed = taken(a, lambda: np.testing.assert_array_equal(noise[:, ::7], a[:, ::7]))
        assert told["decode"] == told["encode"] == 0 < told["plan"]
        # Pages that a mapping brings are inside the copy; straight reads need no copy of ours.
        assert (told["io"] > 0) == (method != "mapped")
        assert (told["copy"] > 0) == (method != "straight")
        if method != "list":  # a thread of its own waits for these requests
            assert sum(told.values()) <= passed


def test_a_flush_is_io(tmp_path, noise):
    with outcore.create(tmp_path / "a.npy", data=noise) as a:
        a[...] = 1
        told, passed = taken(a, a.flush)
        assert 0 < told.pop("io") <= passed and not any(told.values())


def test_sources_of_a_virtual_array_are_added_up(tmp_path, noise):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "part.h5", "w") as f:
        f.create_dataset("x", data=noise, chunks=(100, 100), compression="gzip")
    layout = h5py.VirtualLayout(noise.shape, noise.dtype)
    layout[...] = h5py.VirtualSource(str(tmp_path / "part.h5"), "x", noise.shape)
    with h5py.File(tmp_path / "whole.h5", "w") as f:
        f.create_virtual_dataset("x", layout)
    with outcore.open(f"{tmp_path}/whole.h5::x") as a:
        told, _ = taken(a, lambda: a[...])
        assert told["encode"] == 0 < min(told["decode"], told["io"])
