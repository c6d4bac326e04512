"""`IORequest`: who waits, who stops waiting, and who never asked."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings

import numpy as np
import pytest

import outcore
from outcore.base import requests

DATA = np.arange(6000.0).reshape(60, 100)


def test_who_stops_waiting_does_not_stop_the_write(tmp_path):
    a = outcore.create(tmp_path / "a.npy", DATA.shape, "f8")
    go = threading.Event()
    busy = [requests.start(go.wait, "a long wait") for _ in range(8)]

    async def give_up():
        request = a.iwrite(..., DATA)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(request, 0.01)
        return request

    request = asyncio.run(give_up())
    assert not request.done
    go.set()
    request.wait()
    assert all(r.wait() for r in busy)
    np.testing.assert_array_equal(DATA, a[...])


def test_an_error_that_is_awaited_is_delivered_and_one_that_is_not_is_told(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=DATA)

    async def fail():
        with pytest.raises(outcore.errors.SectionError):
            await a.iread(60)
        return await asyncio.gather(a.iread(0), a.iread(np.s_[1:3]))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row, rows = asyncio.run(fail())
    np.testing.assert_array_equal(DATA[0], row)
    np.testing.assert_array_equal(DATA[1:3], rows)
    request = a.iread(60)
    request.finish()
    with pytest.warns(UserWarning, match="no call waited"):
        del request


def test_a_damaged_block_that_nobody_came_to_says_nothing(tmp_path):
    path = tmp_path / "a.zarr"
    outcore.create(path, data=DATA, chunks=(7, 30), compression="zstd").close()
    for chunk in (path / "c" / "1").iterdir():
        chunk.write_bytes(b"damaged")
    a = outcore.open(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also pytest's, for an exception in a generator's end
        for key, block in a.blocks(shape=(7, 100)):
            np.testing.assert_array_equal(DATA[key], block)
            break
        del block
        gc.collect()
    with pytest.raises(outcore.errors.FormatError):
        list(a.blocks(shape=(7, 100)))


def test_a_second_flush_waits_for_writes_that_a_first_one_waits_for(tmp_path, monkeypatch):
    go = threading.Event()
    with outcore.create(tmp_path / "a.npy", (4, 4), "f8") as a:
        write = a.write

        def late(key, value):
            go.wait(60)
            write(key, value)

        monkeypatch.setattr(a, "write", late)
        a.iwrite(..., 1)
        flushes = [threading.Thread(target=a.flush) for _ in range(3)]
        for flush in flushes:
            flush.start()
            time.sleep(0.05)
        running = [flush.is_alive() for flush in flushes]
        go.set()
        for flush in flushes:
            flush.join()
        assert running == [True, True, True]
        assert (a[...] == 1).all()


def test_each_failed_write_is_raised_by_a_flush(tmp_path, monkeypatch):
    with outcore.create(tmp_path / "a.npy", (4, 4), "f8") as a:

        def fail(key, value):
            raise ValueError(value)

        monkeypatch.setattr(a, "write", fail)
        for number in range(3):
            a.iwrite(..., number)
        for number in range(3):
            with pytest.raises(ValueError, match=str(number)):
                a.flush()
        a.flush()


def test_writes_that_are_started_by_many_threads_are_all_waited_for(tmp_path):
    with outcore.create(tmp_path / "a.npy", (400, 50), "i8") as a:

        def start(number):
            for row in range(number, 400, 8):
                a.iwrite(row, row)

        threads = [threading.Thread(target=start, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        a.flush()
        assert not a.handle.requests._writes
        assert (a[...] == np.arange(400)[:, None]).all()


def test_as_many_copies_as_threads_end(tmp_path):
    """Each occupies a thread of the pool, and reads blocks in the background."""
    data = np.arange(40_000.0).reshape(200, 200)
    source = outcore.create(tmp_path / "a.npy", data=data)
    copies = [outcore.create(tmp_path / f"{k}.npy", data.shape, "f4") for k in range(12)]
    with outcore.memory("1 MiB"):
        for request in [b.iwrite(..., source) for b in copies]:
            request.wait(60)
    for b in copies:
        np.testing.assert_array_equal(data, b[...])
