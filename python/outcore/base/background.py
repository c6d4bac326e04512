"""
Background work: calls on threads that end with them.

Idea. Each call gets its own thread, so no idle thread stays behind, and a fork finds none.

Invariants. `Background.wait`, and the end of the ``with`` block, return only after all calls have ended,
even after Ctrl-C: calls use memory of the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Self

__all__ = ["Background"]


class Background:
    """Calls that run on their own threads, in the context of the caller (as for `numpy.errstate`)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, function: Callable[..., object], *args: Any, **options: Any) -> None:
        """Start a call."""
        call = partial(copy_context().run, function, *args, **options)
        thread = threading.Thread(target=self._run, args=(call,), name=self._name)
        thread.start()
        self._threads.append(thread)

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            self._errors.append(error)
            del self, call  # the error refers to this frame, and would keep their memory

    @property
    def is_busy(self) -> bool:
        """Whether a call is running."""
        return any(thread.is_alive() for thread in self._threads)

    def wait(self) -> None:
        """Wait until all calls have ended; raise the error of the first one that failed."""
        try:
            self._join()
        finally:
            self._join()
        self._threads.clear()
        errors, self._errors = self._errors, []
        if errors:
            raise errors.pop(0)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.wait()
        else:
            self._join()
