"""
The end of a rank's program while other ranks may still wait for it.

Problem. A rank that raises, or calls `sys.exit`, between two collective calls reaches the end of MPI,
which waits for the other ranks. They in turn wait for it in the next call. Approach. A rank that reaches
its end waits until all others have reached theirs. If another rank waits for it in a call in the
meantime, or an exception ended the program, the job is aborted, as ``python -m mpi4py`` does.

Invariants. Programs that catch their exceptions, interactive programs, and forked processes are not
affected. If all ranks reach their ends, each ends as it would without outcore.
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

from outcore.ranks.transport.checks import format_ranks

__all__ = ["Ending", "watch_end"]

# Seconds for which a failed rank waits for others that fail as well, and for which any other rank waits
# for others to end. Ranks that take longer may have left in another way.
_FAILED, _ENDED = 0.5, 60.0
_NAP, _LONGEST_NAP = 1e-3, 0.05


class Ending(Protocol):
    """Interface: state of the ranks of a communicator at the end of the program."""

    def begin_end(self) -> bool:
        """Announce that this rank has reached its end; return False if no rank needs to know."""

    def have_all_ended(self) -> bool:
        """Return whether all ranks have announced their end."""

    def list_waiting_ranks(self) -> tuple[int, ...]:
        """Return ranks that wait for this one in a call that it has not made; at most one is remote."""

    def abort(self) -> None:
        """End all ranks of the job."""


class _State:
    """State of the end of this process."""

    def __init__(self) -> None:
        self.watched: list[Ending] = []
        self.process = 0
        self.failed = False


_STATE = _State()


def watch_end(one: Ending) -> None:
    """Handle the ranks of a communicator when this program ends."""
    state = _STATE
    state.watched.append(one)
    if state.process == os.getpid():
        return
    state.process = os.getpid()
    _note_uncaught()
    # Run before threads are joined, because one may wait for other ranks; if that is impossible, later.
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(_at_end)
    except RuntimeError:  # the interpreter is already ending
        atexit.register(_at_end)


def _note_uncaught() -> None:
    """Make `sys.excepthook` record exceptions that end the program."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        # Python sets this for uncaught exceptions; programs that show exceptions themselves do not.
        if error is getattr(sys, "last_value", None) and not _is_interactive():
            _STATE.failed = True

    sys.excepthook = hook


def _is_interactive() -> bool:
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")


def _at_end() -> None:
    state = _STATE
    if state.process != os.getpid() or _is_interactive():
        return
    with contextlib.suppress(Exception):  # errors of MPI, which may have ended
        _end([one for one in state.watched if one.begin_end()], failed=state.failed)


def _end(watched: list[Ending], *, failed: bool) -> None:
    began, nap = time.monotonic(), _NAP
    while watched := [one for one in watched if not one.have_all_ended()]:
        waited = time.monotonic() - began
        for one in watched:
            waiting = one.list_waiting_ranks()
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
        why = f"this rank has ended, and {format_ranks(waiting)} {does} for it in a collective call"
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        sys.stderr.write(f"outcore: {why}; the job is aborted\n")
        sys.stderr.flush()
    one.abort()
