"""Eight threads, and a forked child, read and write sections of every kind of file at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import foreign
import numpy as np
import pytest

import descriptors
import outcore
from outcore import _core
from outcore.testing import strategies

SHAPE = (61, 47)
CHUNKS = (13, 11)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    """An array of each kind, made by its own library, open for reading and writing."""
    made = []
    for kind in foreign.KINDS:
        folder = tmp_path_factory.mktemp("a")
        data = strategies.fill(SHAPE, np.dtype("<i4"), kind.order, len(made))
        kind.write(folder, data, CHUNKS)
        made.append((kind.open(folder, data, "r+"), data))
    yield made
    for a, _ in made:
        a.close()


def read_all(arrays, seed: int, rounds: int) -> int:
    random = np.random.default_rng(seed)
    for _ in range(rounds):
        a, data = arrays[random.integers(len(arrays))]
        ends = [sorted(random.integers(0, n + 1, 2)) for n in SHAPE]
        key = tuple(slice(int(low), int(high), int(random.integers(1, 4))) for low, high in ends)
        np.testing.assert_array_equal(data[key], a[key], err_msg=f"{a!r} {key}")
    return rounds


def test_eight_threads_read_every_kind(arrays):
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda seed: read_all(arrays, seed, 60), range(8))) == 480


@pytest.mark.parametrize("name", [kind.name for kind in foreign.KINDS])
def test_eight_threads_write_their_rows(tmp_path: Path, name: str):
    """Rows of neighbours share chunks; no element is lost."""
    kind = next(k for k in foreign.KINDS if k.name == name)
    data = np.zeros(SHAPE, "<i4", order=kind.order)
    kind.write(tmp_path, data, CHUNKS)
    expected = strategies.fill(SHAPE, np.dtype("<i4"), "C", 7)
    with kind.open(tmp_path, data, "r+") as a:

        def write(number: int) -> None:
            for row in range(number, SHAPE[0], 8):
                a[row] = expected[row]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        np.testing.assert_array_equal(expected, a[...])
    found = kind.read(tmp_path)
    if kind.path == "a.raw":
        found = found.view("<i4").reshape(SHAPE, order=kind.order)
    np.testing.assert_array_equal(expected, found)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_reads_every_kind(arrays):
    read_all(arrays, 99, 50)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            read_all(arrays, 100, 100)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    read_all(arrays, 101, 100)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_that_are_forked_while_threads_read_do_not_hang(arrays):
    """Whatever lock a thread of the parent holds at that moment, a child comes through."""
    stop = threading.Event()

    def reader(seed: int) -> None:
        while not stop.is_set():
            read_all(arrays, seed, 5)

    def child(seed: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.alarm(60)
            read_all(arrays, seed, 10)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(reader, seed) for seed in range(4)]
        try:
            for seed in range(12):
                children = [child(100 + 4 * seed + k) for k in range(4)]
                codes = [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]
                assert codes == [0] * 4
        finally:
            stop.set()
        for one in readers:
            one.result()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_pool_of_forked_workers_uses_an_array_of_the_parent(tmp_path: Path):
    data = np.arange(400 * 50).reshape(400, 50)
    stop = threading.Event()
    with outcore.create(tmp_path / "a.zarr", data=data, chunks=(10, 50), compression="lz4") as a:

        def busy() -> None:
            while not stop.is_set():
                a[...] = data
                a.flush()

        thread = threading.Thread(target=busy)
        thread.start()
        work = _RowSum(a)
        try:
            with multiprocessing.get_context("fork").Pool(4) as pool:
                sums = pool.map_async(work, range(400), chunksize=20).get(timeout=120)
        finally:
            stop.set()
            thread.join()
    np.testing.assert_array_equal(data.sum(axis=1), sums)


class _RowSum:
    """Finds the array of the parent in the child's memory: it is not pickled."""

    kept: ClassVar[dict[int, outcore.DiskArray]] = {}

    def __init__(self, a: outcore.DiskArray) -> None:
        self.key = id(a)
        self.kept[self.key] = a

    def __call__(self, row: int) -> int:
        return int(self.kept[self.key][row].sum())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_can_append_although_a_thread_of_the_parent_was_appending(tmp_path: Path):
    with outcore.create(tmp_path / "a.npy", data=np.zeros((1, 4))) as a:
        inside, go = threading.Event(), threading.Event()

        class Slow:
            dtype, shape, ndim = np.dtype("f8"), (1, 4), 2

            def __array__(self, dtype=None, copy=None):
                inside.set()
                go.wait(60)
                return np.ones((1, 4))

        thread = threading.Thread(target=lambda: a.append(Slow()))
        thread.start()
        inside.wait(60)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(20)
                a.append(np.full((1, 4), 2.0))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        go.set()
        thread.join()
        assert os.waitstatus_to_exitcode(status) == 0


GROWING = {
    "npy": ("a.npy", {}),
    "npy, exclusive": ("a.npy", {"hints": {"exclusive": True, "method": "window"}}),
    "zarr, exclusive": (
        "a.zarr",
        {"chunks": (8, 64), "hints": {"exclusive": True, "method": "window"}},
    ),
    "zarr lz4": ("a.zarr", {"chunks": (8, 64), "compression": "lz4"}),
}


@pytest.mark.parametrize("kind", GROWING)
def test_threads_write_and_flush_while_the_array_grows(tmp_path: Path, kind: str):
    """No element is lost, nobody finds the array closed, and nothing of old shapes stays open."""
    name, options = GROWING[kind]
    threads, rows, more = 4, 8, 24
    a = outcore.create(tmp_path / name, data=np.zeros((rows, 300), "i4"), **options)
    start, stop = threading.Barrier(threads + 1), threading.Event()

    def write(number: int) -> int:
        start.wait()
        turn = 0
        while not stop.is_set() or turn == 0:
            turn += 1
            a[:rows, number::threads] = 1000 * turn + number
            if number % 2:
                a.flush()
        return turn

    with ThreadPoolExecutor(threads) as pool:
        writers = [pool.submit(write, number) for number in range(threads)]
        start.wait()
        try:
            for row in range(more):
                a.append(np.full((1, 300), row, "i4"))
        finally:
            stop.set()
        turns = [writer.result() for writer in writers]
    for number, turn in enumerate(turns):
        assert (a[:rows, number::threads] == 1000 * turn + number).all()
    expected = np.broadcast_to(np.arange(more)[:, None], (more, 300))
    np.testing.assert_array_equal(expected, a[rows:])
    a.flush()
    assert a.shape == (rows + more, 300)
    if name == "a.npy":
        assert descriptors.settled(tmp_path / name, 1) == 1
    a.close()


CAST = {
    "npy": ("a.npy", {}),
    "npy, window": ("a.npy", {"hints": {"method": "window", "exclusive": True}}),
    "npy, mapped": ("a.npy", {"hints": {"method": "mapped"}}),
    "zarr": ("a.zarr", {"chunks": (64, 256)}),
    "zarr lz4": ("a.zarr", {"chunks": (64, 256), "compression": "lz4"}),
    "h5 lzf": ("a.h5", {"chunks": (64, 256), "compression": "lzf"}),
}


@pytest.mark.parametrize("kind", CAST)
def test_many_threads_cast_within_a_small_budget(tmp_path: Path, kind: str):
    """The buffers of all casts together are four times the budget: threads wait, none is refused."""
    name, options = CAST[kind]
    rows, threads = 128, 16
    shape = (rows * threads, 512)
    value = np.arange(shape[0] * shape[1], dtype="i4").reshape(shape)
    with outcore.memory("1 MiB"):
        a = outcore.create(tmp_path / name, shape, "f8", **options)
        start = threading.Barrier(threads)

        def write(number: int) -> None:
            start.wait()
            mine = slice(number * rows, (number + 1) * rows)
            for columns in (slice(0, None, 2), slice(1, None, 2)):
                a[mine, columns] = value[mine, columns]

        before = _core.memory_state()[0]
        _core.reset_memory_peak()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, range(threads)))
        used, _, peak = _core.memory_state()
        assert used == before
        assert peak <= 2**20
        for row in range(0, shape[0], rows):
            np.testing.assert_array_equal(value[row : row + rows], a[row : row + rows])
        a.close()
