"""
Wall-clock caps far above what anything here takes: a hang fails instead of hanging the suite.

A test that needs something to have happened elsewhere waits `until` it has, and not for a while.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator


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


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait, without a call of outcore, for something that comes for certain, sooner or later."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(1e-3)
