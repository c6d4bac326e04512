"""
Side files: files that outcore stores next to data, and when to trust them.

Problem: a redo log, the note of an append, a note of parts, or a journal specifies what to write, cut
off or remove. In a folder that other users may write to, anyone can put such a file there.
Approach: all of them are opened only here. A side file is used if it is a regular file (not a link),
belongs to this user or to the owner of the data, and no other user may write it. outcore sets their
mode explicitly, so a umask that lets groups write does not matter.
Invariants: a file that fails these checks is reported, and neither changed nor removed. The open file
is checked, not its name.
"""

from __future__ import annotations

import contextlib
import os
import stat

from outcore.errors import StorageError

__all__ = ["create_side_file", "open_side_file", "untrusted_error"]

#: Code of the error for a file that cannot be trusted.
UNTRUSTED = "untrusted-file"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Permissions of other users to write.
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_side_file(
    path: str,
    data: os.stat_result | None = None,
    *,
    flags: int = os.O_RDONLY,
    anybody: bool = False,
    make: bool = False,
) -> int | None:
    """
    Open a trusted side file and return the descriptor; None if there is no such file.

    `data` is the status of the file that it describes, whose owner may have made the side file. `make`:
    create it if it does not exist. `anybody`: any owner is accepted, because a process that may write
    the data is using it now. `StorageError` ``untrusted-file``: it cannot be trusted.
    """
    try:
        fd = os.open(path, flags | _FLAGS)
    except FileNotFoundError:
        if not make:
            return None
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644)
        return open_side_file(path, data, flags=flags, anybody=anybody, make=make)
    except OSError as error:
        found = _read_status(path)
        if found is None:
            return None
        problem = _find_problem(found, data)
        if problem is None:
            raise
        raise untrusted_error(path, problem) from error
    try:
        found = os.fstat(fd)
        problem = "it is not a regular file" if not stat.S_ISREG(found.st_mode) else None
        if not anybody:
            problem = _find_problem(found, data)
        if problem is not None:
            raise untrusted_error(path, problem)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_side_file(path: str, data: os.stat_result | None = None, mode: int = 0o644) -> int:
    """
    Create an empty side file, replacing a trusted one; return a descriptor for reading and writing.

    No other process may do so concurrently.
    """
    old = open_side_file(path, data)
    if old is not None:
        os.close(old)
        os.unlink(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, mode & ~_OTHERS)


def untrusted_error(path: str, problem: str) -> StorageError:
    """Return the error for a side file that cannot be trusted."""
    return StorageError(
        f"{path!r} specifies changes of other files and is not trusted: {problem}; let the user who "
        "created it finish the change, or remove it if no user of the data did",
        code="untrusted-file",
        path=path,
    )


def _read_status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _find_problem(found: os.stat_result, data: os.stat_result | None) -> str | None:
    """Return the reason why a side file cannot be trusted, or None."""
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    owners = {os.geteuid()} if data is None else {os.geteuid(), data.st_uid}
    if found.st_uid not in owners:
        return f"it belongs to user {found.st_uid}, not to user {' or '.join(map(str, sorted(owners)))}"
    if found.st_mode & _OTHERS:
        return f"other users may write it (its mode is {stat.S_IMODE(found.st_mode):o})"
    return None
