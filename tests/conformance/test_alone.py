"""Sparse writes that are flushed: rewritten in windows while nobody else has the file, and only then."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import descriptors
import outcore
from page_cache import forget

KEY = np.s_[::7, ::5]
SHAPE = (512, 2048)
SAYS = "no other process has the file open"

# Each turn opens anew, so that the file is sometimes one's own and sometimes not.
COMING_AND_GOING = textwrap.dedent(
    """
    import sys
    import numpy as np
    import outcore

    path, me, turns, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    alone = 0
    sys.stdin.readline()
    turn = 0
    while turn < turns or (not me and not alone):  # the first is alone when the other is done
        turn = min(turn + 1, turns)
        if kind == "memmap" and me:
            array = np.load(path, mmap_mode="r+")
            for row in range(array.shape[0]):
                array[row, me::8] = turn
            del array
            continue
        with outcore.open(path, "r+", hints={"sync": True}) as array:
            for _ in range(2):
                alone += "no other process" in array.explain(np.s_[:, me::8], write=True).why
                array[:, me::8] = turn
    print(alone)
    """
)


def why(array: outcore.DiskArray) -> str:
    return str(array.explain(KEY, write=True).why)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(SHAPE[0] * SHAPE[1], dtype="f4").reshape(SHAPE))
    probe = outcore.open(tmp_path / "a.npy", "r+", hints={"sync": True})
    if SAYS not in why(probe):
        pytest.skip("this file system gives no leases")
    probe.close()
    return tmp_path / "a.npy"


def write(array: outcore.DiskArray) -> tuple[int, int]:
    """Write and check; bytes read and written."""
    expected = array[...]
    before = array.stats()
    expected[KEY] = value = np.random.default_rng(1).random(expected[KEY].shape, dtype="f4")
    array[KEY] = value
    after = array.stats()
    np.testing.assert_array_equal(expected, np.load(array.path))
    return (
        after["read_bytes"] - before["read_bytes"],
        after["written_bytes"] - before["written_bytes"],
    )


def test_windows_are_rewritten_as_explained(path: Path) -> None:
    with outcore.open(path, "r+", hints={"sync": True}) as array:
        report = array.explain(KEY, write=True)
        assert report.method == "window"
        assert report.read_bytes > 2 * array[KEY].nbytes
        # The rows that are written, from their first element to their last.
        assert report.read_bytes == report.written_bytes == 74 * (2046 * 4)
        assert write(array) == (report.read_bytes, report.written_bytes)


def test_after_a_cold_read_past_the_page_cache(path: Path) -> None:
    """Direct I/O has a descriptor of its own, which is given back for the lease, and made again."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no direct I/O")
    with outcore.open(path, "r+", hints={"sync": True, "cache": "bypass"}) as array:
        for _ in range(2):
            forget(path)
            assert (array[...] == np.load(path)).all()
            assert descriptors.settled(path, 2) == 2
            report = array.explain(KEY, write=True)
            assert SAYS in report.why
            assert write(array) == (report.read_bytes, report.written_bytes)
            assert report.read_bytes == 74 * (2046 * 4)


@pytest.mark.parametrize("how", ["open", "mapped", "array", "memmap"])
def test_not_beside_others(path: Path, how: str) -> None:
    with outcore.open(path, "r+", hints={"sync": True}) as array:
        other = {
            "open": lambda: path.open("rb"),
            "mapped": lambda: np.memmap(path, "u1", "r"),
            "array": lambda: outcore.open(path),
            "memmap": lambda: np.load(path, mmap_mode="r+"),
        }[how]()
        if how == "array":
            other[0, 0]
        assert SAYS not in why(array)
        assert write(array)[0] == 0
        if hasattr(other, "close"):
            other.close()
        del other
        assert SAYS in why(array)


def test_not_without_a_flush(path: Path) -> None:
    with outcore.open(path, "r+") as array:
        assert SAYS not in why(array)


def test_not_where_a_fork_may_share_the_file(path: Path) -> None:
    code = f"""
        import os, numpy as np, outcore
        array = outcore.open({str(path)!r}, "r+", hints={{"sync": True}})
        print({SAYS!r} in array.explain(np.s_[::7, ::5], write=True).why)
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        print({SAYS!r} in array.explain(np.s_[::7, ::5], write=True).why)
    """
    words = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_opening_a_file_during_a_write_does_not_wait(tmp_path: Path) -> None:
    """The write goes on beside him; neither loses anything."""
    path = tmp_path / "a.npy"
    outcore.create(path, (1000, 8192), "f4").close()
    expected = np.zeros((1000, 8192), "f4")
    waited, stop = [], threading.Event()

    def visit() -> None:
        while not stop.is_set():
            begun = time.monotonic()
            mapped = np.load(path, mmap_mode="r+")
            waited.append(time.monotonic() - begun)
            mapped[:, 1] = expected[:, 1] = len(waited)
            del mapped

    array = outcore.open(path, "r+", hints={"sync": True})
    visitor = threading.Thread(target=visit)
    visitor.start()
    try:
        for turn in range(1, 9):
            array[::2, ::5] = expected[::2, ::5] = turn
    finally:
        stop.set()
        visitor.join()
    array.close()
    assert max(waited) < 20  # the kernel would make him wait for 45
    np.testing.assert_array_equal(expected, np.load(path))


def test_threads_that_share_the_array(path: Path) -> None:
    with outcore.open(path, "r+", hints={"sync": True}) as array:
        start = threading.Barrier(4)

        def run(me: int) -> None:
            start.wait()
            for turn in range(10):
                array[:, me::8] = 100 * turn + me

        threads = [threading.Thread(target=run, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for me in range(4):
            assert (array[:, me::8] == 900 + me).all()


@pytest.mark.parametrize("kind", ["outcore", "memmap"])
def test_processes_that_come_and_go(path: Path, kind: str) -> None:
    turns = 30
    children = [
        subprocess.Popen(
            [sys.executable, "-c", COMING_AND_GOING, str(path), str(me), str(turns), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(2)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    found = np.load(path)
    assert (found[:, 0::8] == turns).all()
    assert (found[:, 1::8] == turns).all()
    untouched = np.arange(SHAPE[0] * SHAPE[1], dtype="f4").reshape(SHAPE)
    for column in range(2, 8):
        np.testing.assert_array_equal(untouched[:, column::8], found[:, column::8])
    assert int(said[0]) > 0


def descriptor_of(path: Path) -> int:
    """A descriptor by which this process has a file open."""
    own = Path("/proc/self/fd")
    return next(int(n) for n in os.listdir(own) if (own / n).exists() and path.samefile(own / n))


def test_a_write_gives_the_file_to_who_asks_for_it(tmp_path: Path) -> None:
    """While it runs: it begins again beside him, and rewrites no windows any more."""
    path = tmp_path / "a.npy"
    # One that is over before anybody asks is followed by a larger one.
    for rows in (256 << k for k in range(5)):
        outcore.create(path, (rows, 2048), "f4", overwrite=True).close()
        over = threading.Event()
        with outcore.open(path, "r+") as array:
            array.handle.core.expect_flush()
            if SAYS not in why(array):
                pytest.skip("this file system gives no leases")
            fd = descriptor_of(path)

            def visit(over: threading.Event = over, fd: int = fd) -> None:
                while not over.is_set():
                    if fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
                        path.open("rb").close()
                        return

            visitor = threading.Thread(target=visit)
            visitor.start()
            array[KEY] = rows
            over.set()
            visitor.join()
            read = array.stats()["read_bytes"]
        expected = np.zeros((rows, 2048), "f4")
        expected[KEY] = rows
        np.testing.assert_array_equal(expected, np.load(path))
        if read == 0:
            break
    assert read == 0, "nobody was let in before the write was over"
