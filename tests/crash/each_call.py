"""The child of `test_each_call_fails`: one kind of file, one change of it, one way to fail."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import outcore

OLD = np.arange(1, 2401, dtype="<i4").reshape(60, 40)
NEW = OLD + 100_000
MORE = np.arange(1, 401, dtype="<i4").reshape(10, 40) + 500_000
KEY = np.s_[5:33, 7:]
HINTS = {"engine": "threads", "threads": 1, "method": "straight", "cache": "keep"}
CODES = {errno.EIO: "disk-failure", errno.ENOSPC: "disk-full"}
# More calls than any of these changes makes.
MOST = 1000


def check(found: np.ndarray, expected: np.ndarray, chunks: tuple[int, ...] | None) -> None:
    """Old or new: the whole if it grows, else each element, or each encoded chunk."""
    if expected.shape != OLD.shape:
        assert np.array_equal(found, OLD) or np.array_equal(found, expected)
        return
    assert ((found == OLD) | (found == expected)).all()
    if chunks is None:
        return
    height, width = chunks
    for row in range(0, 60, height):
        for column in range(0, 40, width):
            part = np.s_[row : row + height, column : column + width]
            old, new = (np.array_equal(found[part], known[part]) for known in (OLD, expected))
            assert old or new, f"the chunk at {row}, {column} is a mixture"


def main(place: str, name: str, words: str, change: str, how: str) -> None:
    options = eval(words)
    failing = ctypes.CDLL(os.environ["FAILING"])
    number = {"EIO": errno.EIO, "ENOSPC for good": errno.ENOSPC, "half": 0}[how]
    known = {"dtype": "<i4", "shape": (-1, 40)} if name.endswith("raw") else {}
    encoded = options["chunks"] if "compression" in options else None
    if change == "write":
        expected = OLD.copy()
        expected[KEY] = NEW[KEY]
    else:
        expected = np.concatenate([OLD, MORE])

    def act(a: outcore.DiskArray) -> None:
        if change == "write":
            a[KEY] = NEW[KEY]
        elif a.shape == OLD.shape:
            a.append(MORE)
        a.flush()

    pristine = Path(place, "pristine")
    pristine.mkdir()
    outcore.create(pristine / name, data=OLD, **options).close()
    failures, calls = 0, MOST
    for turn in range(1, MOST):
        folder = Path(place, str(turn))
        shutil.copytree(pristine, folder)
        path = folder / name
        failed = attempt(path, known, act, failing, (str(folder).encode(), turn, number))
        calls, error = failed
        if error is not None:
            failures += 1
            if isinstance(error, outcore.errors.FormatError) and path.suffix in (".h5", ".nc"):
                # Of some reads that fail the library says that they did, and not why.
                assert error.code == "hdf5-refused" and "nspecified error" in str(error), repr(
                    error
                )
                error.errno, error.code = number, CODES[number]
            else:
                assert isinstance(error, outcore.errors.StorageError), repr(error)
            assert (error.errno, error.code) == (number, CODES[number]), repr(error)
            # Or the log beside it, or a part.
            assert path.name in error.path or f"{path.stem}-" in error.path, error.path
        with outcore.open(path, hints=HINTS, **known) as b:
            found = b[...]
            check(found, expected, encoded)
            assert error is not None or np.array_equal(expected, found), f"call {turn} was ignored"
        with outcore.open(path, "r+", hints=HINTS, **known) as b:
            act(b)
            assert np.array_equal(expected, b[...])
        shutil.rmtree(folder)
        if calls < turn:
            break
    else:
        raise AssertionError(f"more than {MOST} calls")
    print(calls, failures)


def attempt(
    path: Path,
    known: dict,
    act: Callable[[outcore.DiskArray], None],
    failing: ctypes.CDLL,
    orders: tuple[bytes, int, int],
) -> tuple[int, Exception | None]:
    """Act while a call fails; the number of calls, and what was raised."""
    folder, turn, number = orders
    a = outcore.open(path, "r+", hints=HINTS, **known)
    failing.failing_arm(folder, ctypes.c_long(turn), number, int(number == errno.ENOSPC))
    try:
        act(a)
        error = None
    except Exception as raised:
        error = raised
    finally:
        calls = failing.failing_disarm()
    if error is not None:
        # Of the same opening; what HDF5's library left half-changed is completed by the next one.
        half = (outcore.errors.FormatError,) if path.suffix in (".h5", ".nc") else ()
        with contextlib.suppress(*half):
            a[...]
    a.close()
    return calls, error


if __name__ == "__main__":
    main(*sys.argv[1:])
