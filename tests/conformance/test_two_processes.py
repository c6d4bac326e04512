"""Two processes write one array at the same time: no element is lost, or the second is refused."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import outcore

STRIDED = textwrap.dedent(
    """
    import sys
    import outcore

    path, me, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    array = outcore.open(path, "r+")
    sys.stdin.readline()
    for turn in range(1, turns + 1):
        array[:, me::2] = 10 * turn + me
        array[me::2, ::2] = 10 * turn
        array[:, me::2] = 10 * turn + me
    array.close()
    """
)

ELEMENTS = textwrap.dedent(
    """
    import sys
    import outcore

    path, me, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    array = outcore.open(path, "r+")
    sys.stdin.readline()
    for turn in range(turns):
        try:
            array[2 * turn + me] = 1
            array.flush()
        except outcore.OutcoreError as error:
            print(turn, error.code)
    array.close()
    """
)


def _race(script: str, path: str, turns: int) -> list[str]:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, path, str(me), str(turns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in (0, 1)
    ]
    for child in children:  # both are open and waiting before either starts
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    return said


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.npy", {}),
        ("a.npy", {"order": "F"}),
        ("a.zarr", {"chunks": (33, 35), "compression": "none"}),
        ("a.h5::/a", {"chunks": (33, 35)}),
    ],
    ids=["npy", "npy-F", "zarr", "h5"],
)
def test_interleaved_strided_writes_lose_no_element(
    tmp_path: Path, name: str, options: dict[str, object]
) -> None:
    """Columns of different processes lie in the same pages and chunks; each keeps its own."""
    path = str(tmp_path / name)
    with outcore.create(path, (201, 203), "<i4", **options) as array:
        array[...] = -1
    turns = 20
    _race(STRIDED, path, turns)
    with outcore.open(path) as array:
        result = array[...]
    assert np.array_equal(np.unique(result[1::2, 1::2]), [10 * turns + 1])
    assert -1 not in result


def test_two_writers_of_one_compressed_zarr_chunk_lose_nothing(tmp_path: Path) -> None:
    """The second writer waits: both rows arrive, although the chunk is one."""
    path = str(tmp_path / "a.zarr")
    turns = 120
    shape = (2 * turns, 5000)  # so large that most of a turn is coding, beside the other's
    with outcore.create(path, shape, "<i4", chunks=shape, compression="zstd") as array:
        array[...] = 0
    said = _race(ELEMENTS, path, turns)
    assert said == ["", ""]
    with outcore.open(path) as array:
        assert (array[...] == 1).all()


def test_two_writers_of_one_compressed_hdf5_chunk_lose_nothing_silently(tmp_path: Path) -> None:
    """HDF5 admits one writer: an element is there, or its writer was told that it is not."""
    path = str(tmp_path / "a.h5::/a")
    turns = 20
    with outcore.create(
        path, (2 * turns,), "<i4", chunks=(2 * turns,), compression="gzip"
    ) as array:
        array[...] = 0
    said = _race(ELEMENTS, path, turns)
    refused = sum(len(text.splitlines()) for text in said)
    with outcore.open(path) as array:
        assert array[...].sum() == 2 * turns - refused
