"""Two processes that write one HDF5 or NetCDF4 variable at the same time: no update is lost."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcore
from outcore import errors
from outcore.formats.hdf5.chunks import ChunkTable

h5py = pytest.importorskip("h5py")

SHAPE, TURNS = (60, 40), 12

STORAGES = {
    "contiguous": ("a.h5", {}),
    "chunks": ("a.h5", {"chunks": (16, 16)}),
    "late": ("a.h5", {}),
    "encoded": ("a.h5", {"chunks": (16, 16), "compression": "gzip"}),
    "nc-contiguous": ("a.nc", {}),
    "nc-chunks": ("a.nc", {"chunks": (16, 16)}),
    "nc-encoded": ("a.nc", {"chunks": (16, 16), "compression": "gzip"}),
}

WRITER = textwrap.dedent(
    """
    import sys
    import h5py
    import outcore

    who, me, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    # Chunks of their own; columns, which share chunks, pages and blocks; the same elements.
    where = {
        "disjoint": (slice(32 * me, 32 + 28 * me), slice(None)),
        "interleaved": (slice(None), slice(me, None, 2)),
        "same": (slice(8, 40), slice(8, 39)),
    }

    def through_h5py(path, key, value):
        while True:
            try:
                file = h5py.File(path, "r+")
            except OSError:
                continue  # somebody has it
            with file:
                file["x"][key] = value
            return

    def through_outcore(array, key, value):
        while True:
            try:
                array[key] = value
                return
            except outcore.OutcoreError as error:
                assert error.code == "locked", error

    for line in sys.stdin:
        path, pattern = line.split()
        key = where[pattern]
        if who == "h5py":
            for turn in range(1, turns + 1):
                through_h5py(path, key, 10 * turn + me)
        else:
            with outcore.open(path + "::/x", "r+") as array:
                for turn in range(1, turns + 1):
                    through_outcore(array, key, 10 * turn + me)
        print("done", flush=True)
    """
)


def make(folder: Path, storage: str) -> Path:
    name, options = STORAGES[storage]
    path = folder / f"{storage}-{name}"
    if storage == "late":  # chunks that the first write of their elements makes
        with h5py.File(path, "w") as file:
            file.create_dataset("x", SHAPE, "<i4", chunks=(16, 16), fillvalue=-1)
    else:
        outcore.create(f"{path}::/x", SHAPE, "<i4", fill_value=-1, **options).close()
    return path


@contextlib.contextmanager
def writers(*who: str) -> Iterator[list[subprocess.Popen[str]]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WRITER, word, str(me), str(TURNS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for me, word in enumerate(who)
        ]


@pytest.fixture(scope="module", params=["outcore", "h5py"])
def pair(request: pytest.FixtureRequest) -> Iterator[list[subprocess.Popen[str]]]:
    """A process that writes through outcore, and one beside it."""
    with writers("outcore", request.param) as both:
        yield both


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("pattern", ["disjoint", "interleaved", "same"])
def test_every_update_of_two_writers_is_there(
    tmp_path: Path, pair: list[subprocess.Popen[str]], pattern: str, storage: str
) -> None:
    path = make(tmp_path, storage)
    for child in pair:
        assert child.stdin is not None
        child.stdin.write(f"{path} {pattern}\n")
        child.stdin.flush()
    for child in pair:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
    with outcore.open(f"{path}::/x") as array:
        values = array[...]
    with h5py.File(path) as file:
        assert np.array_equal(file["x"][...], values)
    assert outcore.verify(path) == []
    last = 10 * TURNS
    if pattern == "disjoint":
        assert (values[:32] == last).all() and (values[32:] == last + 1).all()
    elif pattern == "interleaved":
        assert (values[:, ::2] == last).all() and (values[:, 1::2] == last + 1).all()
    else:
        inside = values[8:40, 8:39]
        assert np.isin(inside, [last, last + 1]).all()  # none of the earlier ones came back
        assert (values == -1).sum() == values.size - inside.size


HOLDER = textwrap.dedent(
    """
    import sys
    import h5py

    with h5py.File(sys.argv[1], "r+") as file:
        x = file["x"]
        x[0, 0] = 1
        print("open", flush=True)
        sys.stdin.readline()
        x[0, 2] = 3  # with a copy of what lies between
    """
)


@pytest.mark.parametrize("storage", ["contiguous", "nc-contiguous"])
def test_elements_of_which_the_library_keeps_a_copy_are_not_written(
    tmp_path: Path, storage: str
) -> None:
    """HDF5 writes back 64 KiB for each element: what others wrote into them would be undone."""
    path = make(tmp_path, storage)
    words = [sys.executable, "-c", HOLDER, str(path)]
    with outcore.open(f"{path}::/x", "r+") as array:
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            with pytest.raises(errors.StorageError, match="open for writing in a program") as told:
                array[0, 1] = 2
            assert told.value.code == "locked"
            other.communicate("\n")
        array[0, 1] = 2
        assert array[0, :4].tolist() == [1, 2, 3, -1]


def test_a_chunk_that_another_program_makes_meanwhile_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path, "late")
    program = "import h5py, sys\nwith h5py.File(sys.argv[1], 'r+') as f: f['x'][:, 1::2] = 7"
    plain, refused = ChunkTable.commit, []

    def commit(self: ChunkTable, chunks: Any) -> None:
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True)
        refused.append(done.returncode != 0)
        plain(self, chunks)

    monkeypatch.setattr(ChunkTable, "commit", commit)
    with outcore.open(f"{path}::/x", "r+") as array:
        array[:, ::2] = 5
        assert (array[:, ::2] == 5).all() and len(refused) == 1
        assert (array[:, 1::2] == (-1 if refused[0] else 7)).all()
