"""Threads that fail at the same time, appends beside readers, handlers in the midst of an append."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

import numpy as np
import pytest

import outcore
import outcore.arrays.disk.array
from outcore.formats.hdf5 import chunks as hdf5_chunks

h5py = pytest.importorskip("h5py")


def test_two_threads_that_fail_in_one_chunk_table_are_told_why_each(tmp_path, monkeypatch):
    """Both hold what the table raised before one of them returns: one got an `InternalError`."""
    me, both, first = threading.local(), threading.Barrier(2, timeout=20), threading.Semaphore(0)
    fetch = hdf5_chunks.ChunkTable.fetch

    class Refused(outcore.errors.FormatError):
        def __str__(self):  # asked for just before the exception is noted
            if threading.get_ident() in mine:
                mine.discard(threading.get_ident())
                if me.name == "one":
                    first.release()
                else:
                    # The first notes its own meanwhile, and waits for the interpreter.
                    first.acquire()
                    end = time.perf_counter() + 0.002
                    while time.perf_counter() < end:
                        pass
            return super().__str__()

    mine = set()

    def failing(self, *args):
        if not hasattr(me, "name"):
            return fetch(self, *args)
        both.wait()
        raise Refused(me.name, code="hdf5-refused")

    monkeypatch.setattr(hdf5_chunks.ChunkTable, "fetch", failing)
    a = outcore.create(
        tmp_path / "a.h5::/x", data=np.arange(64).reshape(8, 8), chunks=(4, 4), compression="gzip"
    )
    seen = {}

    def read(name):
        me.name = name
        told = []
        for _ in range(150):
            mine.add(threading.get_ident())
            try:
                a[1:3]
            except Exception as error:
                mine.discard(threading.get_ident())
                told.append((type(error), getattr(error, "message", str(error))))
        seen[name] = told

    threads = [threading.Thread(target=read, args=(name,)) for name in ("one", "other")]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for name in ("one", "other"):
        assert [(Refused, name)] * 150 == seen[name]
    np.testing.assert_array_equal(a[...], np.arange(64).reshape(8, 8))


def test_an_append_that_waits_for_memory_does_not_keep_its_lock(tmp_path, monkeypatch):
    """A reader holds memory and waits for the lock of the file; the append has it and wants memory."""
    path = tmp_path / "a.h5::/x"
    made = {"chunks": (4, 64), "compression": "gzip", "resizable": True}
    a = outcore.create(path, data=np.ones((4, 64)), **made)
    b = outcore.open(path, hints={"cache": "bypass"})
    row = np.full((1, 64), 5.0)
    b.explain(...)
    # What an append takes that nobody disturbs, with what these arrays hold.
    like = outcore.create(tmp_path / "like.h5::/x", data=np.ones((4, 64)), **made)
    like.explain(...)
    least = 4096
    while like.shape[0] == 4:
        least += 4096
        with contextlib.suppress(outcore.BudgetError), outcore.memory(least):
            like.append(row)
    like.close()
    continued, seen = outcore.arrays.disk.array.plan_append, []

    def slowly(*args):
        # The append has its lock; a reader comes, and waits for it with its table in memory.
        if not reader.is_alive() and not seen:
            reader.start()
            threading.Event().wait(0.3)
        return continued(*args)

    reader = threading.Thread(target=lambda: seen.append(b[:4]))
    monkeypatch.setattr(outcore.arrays.disk.array, "plan_append", slowly)
    append = threading.Thread(target=lambda: a.append(row), daemon=True)
    with outcore.memory(least):
        append.start()
        append.join(15)
        assert not append.is_alive()
        reader.join(15)
    np.testing.assert_array_equal(seen[0], np.ones((4, 64)))
    np.testing.assert_array_equal(b[:4], np.ones((4, 64)))
    assert a.shape == (5, 64) and (a[4] == 5).all()


@pytest.mark.parametrize("where", ["plan_append", "reserve", "finish"])
def test_a_handler_that_reads_the_file_in_the_midst_of_an_append_is_not_kept_waiting(
    tmp_path, monkeypatch, where
):
    from outcore.formats.hdf5 import growing as hdf5_growing

    path = tmp_path / "a.h5::/x"
    data = np.arange(32.0).reshape(4, 8)
    a = outcore.create(path, data=data, chunks=(2, 8), compression="gzip", resizable=True)
    b = outcore.open(path, hints={"cache": "bypass"})
    b.explain(...)
    told = []

    def handler():
        for call in (lambda: b[0], lambda: outcore.open(path)[0], lambda: b.attrs.get("units")):
            try:
                call()
                told.append("done")
            except outcore.OutcoreError as error:
                told.append(error.code)

    def between(work):
        def both(*args):
            result = work(*args)
            if not told:
                handler()
            return result

        return both

    if where == "plan_append":
        monkeypatch.setattr(
            outcore.arrays.disk.array, "plan_append", between(outcore.arrays.disk.array.plan_append)
        )
    else:
        kind = hdf5_growing._GrowingDataset
        monkeypatch.setattr(kind, where, between(getattr(kind, where)))
    worker = threading.Thread(target=lambda: a.append(data[:1]))
    worker.start()
    worker.join(8)
    assert not worker.is_alive()
    assert len(told) == 3 and set(told) <= {"done", "nested-call"}
    np.testing.assert_array_equal(a[4:], data[:1])
    np.testing.assert_array_equal(outcore.open(path)[:4], data)


def test_an_append_waits_for_started_writes_before_it_has_a_turn(tmp_path):
    """Started writes take turns of their own: who has one must not wait for them."""
    a = outcore.create(
        tmp_path / "a.zarr", data=np.zeros((4, 4096)), chunks=(1, 4096), compression="zstd"
    )
    for k in range(5):
        started = [a.iwrite(n, 1.0 + n) for n in range(4)]
        a.append(np.full((1, 4096), 7.0 + k))
        for request in started:
            request.wait()
    assert (a[:4] == np.arange(1, 5)[:, None]).all() and (a[4:] == np.arange(7, 12)[:, None]).all()


def test_an_append_in_parts_into_a_chunk_that_was_moved_to_the_log(tmp_path):
    """A chunk of constant length is stored in its place, which is in the log by then."""
    old = np.arange(40 * 64.0).reshape(40, 64)
    new = -np.arange(20 * 64, dtype="i4").reshape(20, 64)
    done = cut = 0
    for pages in range(2, 80):
        path = tmp_path / f"{pages}.h5"
        with h5py.File(path, "w") as file:
            settings = {"maxshape": (None, 64), "chunks": (64, 64), "fletcher32": True}
            file.create_dataset("x", data=old, **settings)
        with outcore.open(f"{path}::/x", "r+") as a:
            before = a.stats()["encodes"]
            try:
                with outcore.memory(pages * 4096):
                    a.append(new)
            except outcore.BudgetError:
                assert not done and a.shape == old.shape
                continue
            cut = max(cut, a.stats()["encodes"] - before)
            np.testing.assert_array_equal(a[...], np.concatenate([old, new]))
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["x"][...], np.concatenate([old, new]))
        done += 1
        if done == 3:
            break
    assert done == 3 and cut > 1


def test_changes_during_a_chunk_read_are_refused(tmp_path, monkeypatch):
    """The lock for reading is its own thread's: a handler that waited for it would wait for itself."""
    path = tmp_path / "a.h5::/x"
    a = outcore.create(path, data=np.ones((4, 8)), chunks=(2, 8), compression="gzip")
    fetch, told = hdf5_chunks.ChunkTable.fetch, []

    def with_handler(self, *args):
        try:
            a.attrs["units"] = "K"
            told.append("changed")
        except outcore.OutcoreError as error:
            told.append(error.code)
        return fetch(self, *args)

    monkeypatch.setattr(hdf5_chunks.ChunkTable, "fetch", with_handler)
    b = outcore.open(path, hints={"cache": "bypass"})
    reader = threading.Thread(target=lambda: told.append(b[...].sum()), daemon=True)
    reader.start()
    reader.join(8)
    assert told == ["nested-call", 32]
    a.attrs["units"] = "K"
