"""A wall-clock cap far above what anything here takes: a hang fails instead of hanging the suite."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class TooLongError(BaseException):
    """Nothing of ours catches it."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `TooLongError` if the block, in the main thread, takes longer and can be interrupted."""
    assert threading.current_thread() is threading.main_thread()

    def stop(*_: object) -> None:
        raise TooLongError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
