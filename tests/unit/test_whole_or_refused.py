"""A write that the budget refuses has changed nothing; one that begins is not refused on its way."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import outcore

SHAPE = (9, 10)
OLD = np.arange(90, dtype="f8").reshape(SHAPE)
KINDS = {
    "zstd": ("a.zarr", {"compression": "zstd"}),
    "gzip": ("a.zarr", {"compression": "gzip"}),
    "blosc": ("a.zarr", {"compression": "blosc"}),
    "plain": ("a.zarr", {}),
    "shards": ("a.zarr", {"shards": (8, 8), "compression": "zstd"}),
    "plain shards": ("a.zarr", {"shards": (8, 8)}),
    "h5 gzip": ("a.h5::/x", {"compression": "gzip"}),
    "h5": ("a.h5::/x", {}),
    "nc": ("a.nc::/x", {"compression": "gzip"}),
    "npy": ("a.npy", None),
    "raw": ("a.raw", None),
}
# Chunks of 4 x 4: at the edges some are covered whole, others in part.
KEYS = (np.s_[:], np.s_[:, :9], np.s_[1:, :], np.s_[::2, 1:], np.s_[:, 3:9:2])
PAGE = 4096


def budgets():
    """Pages, one by one; then more at a time."""
    limit = PAGE
    while True:
        yield limit
        limit += PAGE * (1 if limit < 2**16 else 4 if limit < 2**18 else 16)


@pytest.mark.parametrize(
    ("kind", "filled"),
    [(kind, filled) for kind in KINDS for filled in (True, False) if filled or kind != "nc"],
)
def test_a_write_is_refused_before_it_changes_anything(tmp_path, kind, filled):
    name, options = KINDS[kind]
    if "::" in name:
        pytest.importorskip("h5py")

    def fresh(k):
        (tmp_path / str(k)).mkdir()
        chunked = {} if options is None else {"chunks": (4, 4), "fill_value": 7, **options}
        a = outcore.create(f"{tmp_path}/{k}/{name}", SHAPE, "f8", **chunked)
        if filled:
            a[...] = OLD
        return a

    k, refused = 0, 0
    a = fresh(k)
    before = a[...]
    for dtype in ("f8", "i4"):
        for key in KEYS if filled else KEYS[1::2]:
            a.explain(key)  # HDF5's table of chunks is held from now on
            new = np.full(before[key].shape, -1, dtype)
            after = before.copy()
            after[key] = new
            done = 0
            for limit in budgets():
                try:
                    with outcore.memory(limit):
                        a[key] = new
                except outcore.BudgetError:
                    refused += 1
                    assert done == 0
                    np.testing.assert_array_equal(before, a[...], f"{key} {dtype} {limit}")
                    continue
                np.testing.assert_array_equal(after, a[...])
                done += 1
                if done == 2:
                    break
                if filled:
                    a[...] = before
                else:
                    a.close()
                    k += 1
                    a = fresh(k)
                    a.explain(key)
            if filled:
                a[...] = before
            else:
                a.close()
                k += 1
                a = fresh(k)
    assert refused > 0 or kind in ("npy", "raw")
    a.close()


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"shards": (128, 64)}, {}])
def test_a_cast_that_cuts_chunks_is_refused_before_it_changes_anything(tmp_path, options):
    """A chunk that is missing is there when its second piece is written."""
    new = np.arange(140 * 100, dtype="i4").reshape(140, 100) + 1
    done = 0
    for pages in range(1, 700, 3):
        a = outcore.create(tmp_path / f"{pages}.zarr", new.shape, "f8", chunks=(64, 64), **options)
        try:
            with outcore.memory(pages * PAGE):
                a[...] = new
        except outcore.BudgetError:
            assert not a[...].any() and not done, pages
        else:
            np.testing.assert_array_equal(new, a[...])
            done += 1
            if done == 3:
                break
    assert done == 3


@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_loops_that_begin_meanwhile_leave_a_write_what_it_needs(tmp_path, dtype):
    """Some chunks are covered whole; those at the edge are decoded too, which takes more."""
    shape = (32, 32)
    a = outcore.create(tmp_path / "a.zarr", shape, "f8", chunks=(4, 4), compression="zstd")
    other = outcore.create(tmp_path / "b.npy", data=np.zeros((256, 64)))
    a[...] = 1
    new = np.full((32, 31), 2, dtype)
    with outcore.memory(PAGE):
        try:
            a[:, :31] = new
        except outcore.BudgetError as error:
            least = error.needed
    stop = threading.Event()

    def loops():
        while not stop.is_set():
            try:
                held = other.blocks(0)
                next(held)
                stop.wait(0.002)
                held.close()
            except outcore.BudgetError:
                stop.wait(0.0001)

    with outcore.memory(least + 24 * PAGE):
        thread = threading.Thread(target=loops)
        thread.start()
        try:
            for value in range(3, 13):
                new[...] = value
                before = a[0, 0]
                try:
                    a[:, :31] = new
                except outcore.BudgetError:
                    value = before
                assert (a[:, :31] == value).all()
        finally:
            stop.set()
            thread.join()
