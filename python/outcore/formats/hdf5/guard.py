"""
Rehearsal: another process first visits files of unknown origin.

Problem: the HDF5 library trusts what it reads. Some damaged files make it loop forever, write outside
its memory, or free memory twice. Checks in front of it cannot find all of them, and this process
cannot recover from any.
Approach: on request, a child process makes exactly the visit that this process is about to make. If
the child completes it, so does this process: the same bytes give the same visit. If the child dies or
takes too long, an error is raised, and this process never touches the file.
Invariants: a file that did not change (time stamp, size, inode) is rehearsed once for each of its
datasets.

The environment variable ``OUTCORE_HDF5_GUARD`` requests it; its value is the number of seconds that a
visit may take. It is off by default, whoever owns the file: a download belongs to the user who
downloaded it, and all ranks of a program open shared files of colleagues, and each would start a
process. A rehearsal costs the start of a Python with h5py, about 0.3 s. It does not detect damage to
memory that does not end the process, and changes are not rehearsed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from outcore.errors import FormatError, OutcoreError, UsageError

_VARIABLE = "OUTCORE_HDF5_GUARD"

_safe_visits: set[tuple[object, ...]] = set()


def rehearse(path: str, inner: str | None, verb: str) -> None:
    """
    Raise `FormatError` if visiting a file would hang or end the process; do nothing by default.

    `verb` is the visit: ``"open"`` or ``"ls"``.
    """
    asked = os.environ.get(_VARIABLE)
    if not asked:
        return
    try:
        seconds = float(asked)
    except ValueError:
        raise UsageError(
            f"{_VARIABLE}={asked!r} is not a number of seconds; set it to 10, or unset it",
            code="bad-option",
        ) from None
    try:
        found = os.stat(path)
    except OSError:
        return  # the visit itself reports the error
    key = (os.path.realpath(path), inner, verb, found.st_mtime_ns, found.st_size, found.st_ino)
    if key in _safe_visits:
        return
    _visit_in_child(path, inner, verb, seconds)
    _safe_visits.add(key)


def _visit_in_child(path: str, inner: str | None, verb: str, seconds: float) -> None:
    environment = {k: v for k, v in os.environ.items() if k != _VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    words = [
        sys.executable,
        "-m",
        "outcore.formats.hdf5.guard",
        verb,
        path,
        *([inner] if inner else []),
    ]
    try:
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        how = f"did not finish within {seconds:g} s"
    else:
        if done.returncode == 0:
            return
        how = (
            f"was ended by signal {-done.returncode}"
            if done.returncode < 0
            else f"failed with status {done.returncode}"
        )
    raise FormatError(
        f"{path!r}: the HDF5 library {how} on this file, in a separate process; the file is damaged or "
        "malicious: copy it again, or check it with h5check",
        code="hdf5-refused",
        path=path,
    )


def _visit(verb: str, path: str, inner: str | None) -> None:
    """Make the complete visit of the parent process."""
    from outcore import formats
    from outcore.formats.layout import Chunked, TableSource

    where = path if inner is None else f"{path}::{inner}"
    if verb == "ls":
        formats.ls(where)
        return
    info = formats.open_info(where)
    for name in info.attrs:
        info.attrs[name]
    if isinstance(info.layout, Chunked) and isinstance(info.layout.source, TableSource):
        rank = len(info.shape)
        for count in (1, 64):  # one lookup, and the whole table
            info.layout.source.fetch((0,) * rank, (count,) + (1,) * (rank - 1))


if __name__ == "__main__":
    with contextlib.suppress(OutcoreError):  # the parent raises the same error
        _visit(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
