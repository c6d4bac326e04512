"""
Timeouts of waiting ranks, their warnings, and deferred interrupts.

A rank that never makes a call cannot be distinguished from a late one. Waits therefore warn after some
time, abort only if ``OUTCORE_TIMEOUT`` is set, and check every second whether the ranks that they wait
for still exist. Ctrl-C during a call with several messages is deferred until the call is over, because
the other ranks wait for the rest of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, ClassVar

from outcore.errors import CollectiveError, UsageError

try:
    # `signal.signal` converts its arguments to enums, which took a tenth of the time of a collective
    # call.
    from _signal import getsignal as _handler_of  # type: ignore[import-not-found]
    from _signal import signal as _set_handler
except ImportError:
    _handler_of, _set_handler = signal.getsignal, signal.signal

__all__ = ["DeferredInterrupt", "Patience", "decode", "encode", "is_alive"]


_SIGINT = int(signal.SIGINT)


@dataclass(frozen=True)
class Patience:
    """Seconds until a waiting rank warns, and until it aborts (None: never)."""

    warn: float = 30.0
    timeout: float | None = None

    @staticmethod
    def from_environment() -> Patience:
        """Return the timeouts with the value of ``OUTCORE_TIMEOUT``."""
        text = os.environ.get("OUTCORE_TIMEOUT", "")
        if not text:
            return Patience()
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not seconds > 0:
            raise UsageError(
                f"OUTCORE_TIMEOUT={text!r} is not a positive number of seconds; set it to one, or "
                "unset it",
                code="bad-hint",
            )
        return Patience(timeout=seconds)

    @property
    def tick(self) -> float:
        """Seconds between two checks."""
        return max(0.02, min(1.0, self.warn / 4, (self.timeout or 4.0) / 4))


def encode(error: CollectiveError) -> bytes:
    """Encode an error so that it fits the node barrier."""
    ranks = list(error.ranks[:48])
    text = error.message.encode()[:1400].decode(errors="ignore")
    return json.dumps([error.code, ranks, text], ensure_ascii=False).encode()


def decode(text: bytes) -> CollectiveError:
    """Decode an error that `encode` wrote."""
    try:
        code, ranks, message = json.loads(text)
    except ValueError:
        return CollectiveError(
            "a rank stopped the group for an unknown reason; see the messages of the other ranks",
            code="rank-failed",
        )
    return CollectiveError(message, code=code, ranks=tuple(ranks))


def is_alive(pid: int) -> bool:
    """Return whether a process of this machine is still running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat") as stat:
        # A zombie: dead, but its parent has not collected its status.
        return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    return True


class DeferredInterrupt:
    """
    Context manager that defers Ctrl-C to its end. ``count`` is the number of interrupts so far.

    For calls that belong together, because the other ranks wait for all of them. Waits inside check
    `count_interrupts`, and abort after a second Ctrl-C.

    Examples
    --------
    >>> with DeferredInterrupt() as deferred:
    ...     deferred.count
    0
    """

    _open: ClassVar[list[DeferredInterrupt]] = []

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None
        self._replaced = False

    def __enter__(self) -> DeferredInterrupt:
        if threading.current_thread() is threading.main_thread():
            before = _handler_of(_SIGINT)
            if callable(before):
                self._before, self._replaced = before, True
                _set_handler(_SIGINT, self._note)
                self._open.append(self)
        return self

    @classmethod
    def count_interrupts(cls) -> int:
        """Return the number of interrupts that this thread defers."""
        if not cls._open or threading.current_thread() is not threading.main_thread():
            return 0
        return sum(held.count for held in cls._open)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._replaced:
            _set_handler(_SIGINT, self._before)
            self._replaced = False
            self._open.remove(self)
            if self.count and kind is None:
                self._before(signal.SIGINT, None)
