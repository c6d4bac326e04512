"""
How the program of a rank ends, while other ranks may still wait for it.

Problem. A rank that raises, or calls `sys.exit`, between two collective calls goes on to the end of MPI,
which waits for the other ranks; these wait for it in the next call. Idea. A rank that comes to its end
stays there until all others have come to theirs. If meanwhile another rank waits for it in a call, or an
exception ended the program, the job is aborted, as ``python -m mpi4py`` does.

Invariants. Programs that catch their exceptions, interactive ones, and processes that were forked are
left alone. If all ranks come to their ends, each ends as it would without outcore.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from types import TracebackType
from typing import Protocol

from outcore.ranks.transport.checks import ranges

__all__ = ["Ending", "watch_end"]

# Seconds for which a rank that failed waits for others that fail as well, and for which one that did not
# waits for others to end: longer ones may have left by a way of their own.
_FAILED, _ENDED = 0.5, 60.0
_NAP, _LONGEST_NAP = 1e-3, 0.05


class Ending(Protocol):
    """What has to be known of the ranks of a communicator."""

    def begin_end(self) -> bool:
        """Say that this rank has come to its end; False if nobody has to be told."""
        ...

    def all_ended(self) -> bool:
        """Whether all ranks have said so."""
        ...

    def waiting_ranks(self) -> tuple[int, ...]:
        """Ranks that wait for this one in a call that it has not made; of other nodes one, perhaps."""
        ...

    def abort(self) -> None:
        """End all ranks of the job."""
        ...


class _State:
    """What this process knows of its end."""

    def __init__(self) -> None:
        self.watched: list[Ending] = []
        self.process = 0
        self.failed = False


_STATE = _State()


def watch_end(one: Ending) -> None:
    """Look after the ranks of a communicator when this program ends."""
    state = _STATE
    state.watched.append(one)
    if state.process == os.getpid():
        return
    state.process = os.getpid()
    _note_uncaught()
    # Before threads are joined, one of which may wait for other ranks; if that cannot be, later.
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(_at_end)
    except RuntimeError:  # this is the end already
        atexit.register(_at_end)


def _note_uncaught() -> None:
    """Have `sys.excepthook` note exceptions that end the program."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        # Python sets it for exceptions that nobody caught, and no program does that shows one itself.
        if error is getattr(sys, "last_value", None) and not _is_interactive():
            _STATE.failed = True

    sys.excepthook = hook


def _is_interactive() -> bool:
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")


def _at_end() -> None:
    state = _STATE
    if state.process != os.getpid() or _is_interactive():
        return
    with contextlib.suppress(Exception):  # of MPI, which may have ended
        _end([one for one in state.watched if one.begin_end()], failed=state.failed)


def _end(watched: list[Ending], *, failed: bool) -> None:
    began, nap = time.monotonic(), _NAP
    while watched := [one for one in watched if not one.all_ended()]:
        waited = time.monotonic() - began
        for one in watched:
            waiting = one.waiting_ranks()
            if waiting or (failed and waited > _FAILED):
                _abort(one, waiting)
        if waited > _ENDED:
            return
        time.sleep(nap)
        nap = min(nap * 1.5, _LONGEST_NAP)


def _abort(one: Ending, waiting: tuple[int, ...]) -> None:
    why = "this rank failed"
    if waiting:
        does = "waits" if len(waiting) == 1 else "wait"
        why = f"this rank has ended, and {ranges(waiting)} {does} for it in a collective call"
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        sys.stderr.write(f"outcore: {why}; the job is aborted\n")
        sys.stderr.flush()
    one.abort()
