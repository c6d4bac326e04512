"""
Side files: what outcore keeps beside data, and believes of it.

Problem. A redo log, the note of an append, a note of parts, or a journal says what is to be written, cut
off or removed. In a folder that others may write to, anybody can put such a file there.
Idea. All of them are opened here, and nowhere else. A side file is used if it is a regular file (no
link), belongs to this user or to the owner of the data, and nobody else may write it. outcore makes them
with a mode of their own, so a umask that lets groups write does not matter.

Invariants. A file that fails is reported, and neither changed nor removed. What is looked at is the open
file, not its name.
"""

from __future__ import annotations

import contextlib
import os
import stat

from outcore.errors import StorageError

__all__ = ["create_side_file", "distrusted", "open_side_file"]

#: Code of the error for a file that is not believed.
UNTRUSTED = "untrusted-file"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Who else may write it.
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
    Open a side file that may be believed.

    Parameters
    ----------
    path
        The side file.
    data
        The file that it speaks of: its owner may have made the side file, too.
    flags
        How it is opened.
    make
        Make it if it does not exist.
    anybody
        It does not matter who made it: somebody who may write the data is at work on it now.

    Returns
    -------
    int or None
        A descriptor; None if there is no such file.

    Raises
    ------
    StorageError
        ``untrusted-file``: it is not to be believed.
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
        found = _seen(path)
        if found is None:
            return None
        problem = _problem(found, data)
        if problem is None:
            raise
        raise distrusted(path, problem) from error
    try:
        found = os.fstat(fd)
        problem = "it is no regular file" if not stat.S_ISREG(found.st_mode) else None
        if not anybody:
            problem = _problem(found, data)
        if problem is not None:
            raise distrusted(path, problem)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_side_file(path: str, data: os.stat_result | None = None, mode: int = 0o644) -> int:
    """
    Make a side file, empty, in place of one that may be believed. The caller is alone.

    Returns a descriptor for reading and writing.
    """
    old = open_side_file(path, data)
    if old is not None:
        os.close(old)
        os.unlink(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, mode & ~_OTHERS)


def distrusted(path: str, problem: str) -> StorageError:
    """The error for a side file that is not believed."""
    return StorageError(
        f"{path!r} says what is to be changed in other files, and is not used: {problem}. Let the user "
        "who made it finish the change; if nobody of yours made it, remove it",
        code="untrusted-file",
        path=path,
    )


def _seen(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _problem(found: os.stat_result, data: os.stat_result | None) -> str | None:
    """Why a side file is not believed."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    owners = {os.geteuid()} if data is None else {os.geteuid(), data.st_uid}
    if found.st_uid not in owners:
        return f"it belongs to user {found.st_uid}, not to user {' or '.join(map(str, sorted(owners)))}"
    if found.st_mode & _OTHERS:
        return f"others may write it (its mode is {stat.S_IMODE(found.st_mode):o})"
    return None
