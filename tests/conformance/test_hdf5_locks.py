"""What HDF5 libraries do to a file while outcore reads it: the bytes of another chunk are never data."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core, errors, formats
from outcore.formats.hdf5 import access as hdf5_access
from outcore.formats.hdf5 import redo as hdf5_redo

h5py = pytest.importorskip("h5py")

CHUNKS, LENGTH = 12, 4096

# Chunk k holds numbers k * 1000 .. k * 1000 + 999 only. Each turn stores all chunks anew with bytes that
# compress differently, so that they move and take each other's places.
REWRITER = textwrap.dedent(
    """
    import random, sys, time
    import h5py
    import numpy as np

    path, chunks, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(0)
    sys.stdin.readline()
    turn = 0
    while True:
        try:
            file = h5py.File(path, "r+")
        except OSError:
            continue  # somebody reads
        with file:
            dset = file["x"]
            for _ in range(4 * chunks):
                k = chance.randrange(chunks)
                varied = chance.randrange(2, 1000)
                block = np.random.default_rng(turn).integers(0, varied, length)
                dset[k * length : (k + 1) * length] = 1000 * k + block
                file.flush()
        turn += 1
        print(turn, flush=True)
        time.sleep(0.005)  # readers get in between
    """
)

SWAPPER = textwrap.dedent(
    """
    import sys
    import h5py

    try:
        file = h5py.File(sys.argv[1], "r+")
    except OSError:
        print("refused")
    else:
        with file:
            data = file["x"][::-1]
            filters, chunks = file["x"].compression, file["x"].chunks
            del file["x"]
            file.create_dataset("x", data=data, chunks=chunks, compression=filters)
        print("stored")
    """
)

HOLDER = textwrap.dedent(
    """
    import sys
    import h5py

    with h5py.File(sys.argv[1], sys.argv[2]) as file:
        print("open", flush=True)
        sys.stdin.readline()
    """
)


def prepare(path: Path, **options: object) -> Path:
    with h5py.File(path, "w") as file:
        data = np.repeat(1000 * np.arange(CHUNKS), LENGTH)
        file.create_dataset("x", data=data, chunks=(LENGTH,), **options)
    return path


@contextlib.contextmanager
def child(script: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, *map(str, words)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            yield other
        finally:
            other.kill()


@contextlib.contextmanager
def held(path: Path, mode: str = "r+") -> Iterator[None]:
    with child(HOLDER, path, mode) as other:
        assert other.stdout.readline() == "open\n"
        yield
        other.stdin.close()
        other.wait()


def is_right(values: np.ndarray, first: int = 0) -> bool:
    chunk = np.arange(first, first + len(values)) // LENGTH
    return np.array_equal(values // 1000, chunk)


def test_chunks_that_others_rewrite_are_never_mixed_up(tmp_path: Path) -> None:
    path = prepare(tmp_path / "a.h5", compression="gzip", compression_opts=1)
    size = CHUNKS * LENGTH
    chance = np.random.default_rng(1)
    read = 0
    with outcore.open(path) as array, child(REWRITER, path, CHUNKS, LENGTH) as other:
        assert is_right(array[...])
        other.stdin.write("go\n")
        other.stdin.flush()
        assert other.stdout.readline()
        until = time.monotonic() + 2
        while time.monotonic() < until:
            first = int(chance.integers(0, size - 1))
            with contextlib.suppress(errors.StorageError):  # the writer stayed too long
                assert is_right(array[first : first + 3 * LENGTH], first)
                read += 1
        other.kill()
        other.wait()
    assert read > 10


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {}], ids=["encoded", "plain"])
def test_a_file_open_for_writing_elsewhere_is_refused_until_it_is_closed(
    tmp_path: Path, options: dict[str, object]
) -> None:
    path = prepare(tmp_path / "a.h5", **options)
    with outcore.open(path, "r+") as array:
        assert is_right(array[...])
        with held(path):
            started = time.monotonic()
            with pytest.raises(errors.StorageError, match="close it there") as read:
                array[:10]
            assert 1 < time.monotonic() - started < 8
            assert read.value.code == "locked"
            if not options:
                with pytest.raises(errors.StorageError, match="close it there"):
                    array[:10] = 7
        assert is_right(array[...])
        array[:10] = 7
        assert (array[:10] == 7).all()


def test_a_file_open_for_writing_in_this_process_is_refused(tmp_path: Path) -> None:
    path = prepare(tmp_path / "a.h5", compression="gzip")
    with outcore.open(path) as array:
        assert is_right(array[...])
        with h5py.File(path, "r+") as file:
            file["x"][:10] = 5
            with pytest.raises(errors.OutcoreError, match="close"):
                array[:20]
        assert (array[:10] == 5).all()


def test_readers_stand_beside_readers(tmp_path: Path) -> None:
    path = prepare(tmp_path / "a.h5", compression="gzip")
    with outcore.open(path) as array, held(path, "r"):
        assert is_right(array[...])


def test_without_locks_on_both_sides_reading_goes_on(tmp_path: Path) -> None:
    path = prepare(tmp_path / "a.h5", compression="gzip")
    script = "import outcore, sys; print(outcore.open(sys.argv[1])[5000])"
    environment = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
    with open(path, "rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        words = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.stdout == "1000\n", done.stderr


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {}], ids=["encoded", "plain"])
@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
def test_nobody_moves_chunks_between_look_up_and_access(
    tmp_path: Path, options: dict[str, object], write: bool
) -> None:
    """A program of HDF5's that comes right then has to wait."""
    path = prepare(tmp_path / "a.h5", **options)
    info = formats.open_info(path, writable=write)
    source, said = info.layout.source, []

    def fetch(lo, count, locked=False):
        rows = source.fetch(lo, count, locked)
        words = [sys.executable, "-c", SWAPPER, str(path)]
        said.append(subprocess.run(words, capture_output=True, text=True).stdout)
        return rows

    layout = dataclasses.replace(info.layout, source=dataclasses.replace(source, fetch=fetch))
    array = _core.Array(dataclasses.replace(info, layout=layout), write, outcore.Hints())
    if write:
        array.write((slice(LENGTH, LENGTH + 9),), np.full(9, 1007))
    else:
        assert is_right(array.read(()))
    assert said == ["refused\n"]
    with outcore.open(path) as after:
        values = after[...]
    assert is_right(values) and values.sum() % 1000 == (63 if write else 0)


def test_a_change_inside_a_look_up_of_its_own_thread_is_refused_at_once(tmp_path: Path) -> None:
    """It would wait for the lock that the look-up holds, which cannot end before it."""
    path = prepare(tmp_path / "a.h5", compression="gzip")
    info = formats.open_info(path)
    source, said = info.layout.source, []

    def fetch(lo, count, locked=False):
        with outcore.open(path, "r+") as other:
            try:
                other.attrs["units"] = "K"
            except errors.UsageError as error:
                said.append(error.code)
        return source.fetch(lo, count, locked)

    layout = dataclasses.replace(info.layout, source=dataclasses.replace(source, fetch=fetch))
    array = _core.Array(dataclasses.replace(info, layout=layout), False, outcore.Hints())
    assert is_right(array.read(()))
    assert set(said) == {"nested-call"}
    with outcore.open(path, "r+") as other:
        assert "units" not in other.attrs
        other.attrs["units"] = "K"


def test_a_chunk_written_in_part_is_ours_from_look_up_to_storing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between finding the old chunk and storing the new one nobody else opens the file for writing."""
    path = prepare(tmp_path / "a.h5", compression="gzip")
    seen = []
    look_up = hdf5_access.open_session

    def session(*words, **settings):
        with open(path, "rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                seen.append("held")
            else:
                seen.append("free")
        return look_up(*words, **settings)

    with outcore.open(path, "r+") as array:
        monkeypatch.setattr(hdf5_access, "open_session", session)
        array[10:20] = 3
        monkeypatch.undo()
        assert (array[10:20] == 3).all() and (array[:10] == 0).all()
    assert seen == ["held"]
    assert not hdf5_access._write_locks


def test_attributes_change_beside_many_readers(tmp_path: Path) -> None:
    """Readers follow each other without a gap: who changes the file is let in nevertheless."""
    path = prepare(tmp_path / "a.h5", compression="gzip")
    ended, failed = threading.Event(), []

    def read(array: outcore.DiskArray) -> None:
        try:
            while not ended.is_set():
                assert is_right(array[...])
        except BaseException as error:
            failed.append(error)

    with outcore.open(path, "r+") as array:
        threads = [threading.Thread(target=read, args=(array,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(10):
                array.attrs["turn"] = turn
                array[turn] = 0
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert array.attrs["turn"] == 9
    assert not failed


def test_a_change_that_was_interrupted_is_completed_by_the_next_read(tmp_path: Path) -> None:
    """The array stays open; the log of a killed process lies beside its file."""
    path = prepare(tmp_path / "a.h5", compression="gzip")
    with outcore.open(path) as array:
        assert is_right(array[...])
        _leave_half_a_change(path)
        assert Path(hdf5_redo.make_log_path(str(path))).exists()
        values = array[...]
        assert (values[:LENGTH] == 77).all() and is_right(values[LENGTH:], LENGTH)
        assert not Path(hdf5_redo.make_log_path(str(path))).exists()


def _leave_half_a_change(path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys
        import outcore
        from outcore.formats.hdf5 import redo as hdf5_redo

        apply = hdf5_redo._apply

        def half(log, fd, index, final, sync):
            apply(log, fd, index[: len(index) // 6 * 3], -1, sync)
            os._exit(0)

        hdf5_redo._apply = half
        with outcore.open(sys.argv[1], "r+") as array:
            array[:4096] = 77
        """
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
