"""
Started I/O: what `DiskArray.iread` and `DiskArray.iwrite` return.

The work runs in background threads of this process; the core releases the GIL, so a few threads
keep a disk busy. The pool belongs to a process id: a forked child makes its own and refuses to wait
for requests that its parent started. An error is delivered by `wait`; one that nobody waited for is
reported as a warning when the request goes away. A thread of the pool that waits for a request that
none of them has begun does it itself: a copy between two arrays reads block after block this way, and
with as many copies as threads nobody else would be left.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Generic, TypeVar

from outcore.errors import UsageError

__all__ = ["IORequest", "start"]

T = TypeVar("T")

# Enough to overlap reading, writing and computing; depth on the disk comes from the engines.
_THREADS = 4


class IORequest(Generic[T]):
    """
    A read or write that was started.

    Until it is done, its buffers belong to it: do not change a value that is being written, do not
    look at an array that is being read. It keeps them alive itself. It cannot be cancelled: who
    stops waiting, by a timeout or by cancelling a task that awaits it, can wait again.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", (100, 50), "f8")
    >>> request = a.iwrite(np.s_[:], np.ones((100, 50)))
    >>> request.wait()
    >>> rows = a.iread(np.s_[10:12])
    >>> rows.wait(timeout=10).sum()
    np.float64(100.0)
    """

    def __init__(self, future: Future[T], what: str, run: Callable[[], None]) -> None:
        self._future = future
        self._run = run
        self._what = what
        self._pid = os.getpid()
        self._delivered = False

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._pid == os.getpid() and self._future.done()

    @property
    def settled(self) -> bool:
        """Whether it has ended, and there is no error that nobody has seen."""
        if self._pid != os.getpid() or self._delivered:
            return True
        return self._future.done() and self._future.exception() is None

    @property
    def result(self) -> T:
        """The array read (None for a write); waits if need be."""
        return self.wait()

    def wait(self, timeout: float | None = None) -> T:
        """
        Wait for the end.

        Parameters
        ----------
        timeout
            Seconds; None waits as long as it takes.

        Returns
        -------
        numpy.ndarray or None
            The array read; None for a write.

        Raises
        ------
        TimeoutError
            If it was not done in time. It goes on; wait again.
        OutcoreError
            Whatever the read or write itself raised.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> request = outcore.create("field.npy", data=np.arange(4)).iread()
        >>> request.wait(timeout=60)
        array([0, 1, 2, 3])
        """
        self._own()
        if timeout is None and _in_pool():
            self._run()
        try:
            result = self._future.result(timeout)
        except FutureTimeout:
            if not self._future.done():
                raise TimeoutError(f"{self._what} is not done after {timeout} s") from None
            self._delivered = True
            raise
        except BaseException:
            self._delivered = self._future.done()
            raise
        self._delivered = True
        return result

    def finish(self, *, unwanted: bool = False) -> None:
        """
        Wait for the end, well or not, and raise nothing.

        Parameters
        ----------
        unwanted
            Nobody will ask for the error, if there is one. By default it is left for `wait`, and for
            the array's `flush` or `close`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (3, 4), "i8")
        >>> request = a.iwrite(7, [0, 0, 0, 0])  # there is no row 7
        >>> request.finish(unwanted=True)
        >>> a.close()
        """
        if self._pid == os.getpid():
            if _in_pool():
                self._run()
            wait([self._future])
            self._delivered = self._delivered or unwanted

    def __await__(self) -> Generator[Any, None, T]:
        self._own()
        import asyncio  # a quarter of the time of importing outcore, for a few

        # Who stops waiting (`asyncio.wait_for`) cancels the waiting and never the work.
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not ended.done():
                ended.set_result(None)

        def wake(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # nobody waits in a loop that was closed
                loop.call_soon_threadsafe(tell)

        self._future.add_done_callback(wake)
        yield from ended
        return self.wait()

    def __repr__(self) -> str:
        return f"<IORequest: {self._what}, {'done' if self.done else 'running'}>"

    def __del__(self) -> None:
        future = getattr(self, "_future", None)
        if future is None or self._delivered or self._pid != os.getpid() or not future.done():
            return
        error = future.exception()
        if error is not None:
            warnings.warn(f"{self._what} failed and nobody waited: {error}", stacklevel=2)

    def _own(self) -> None:
        if self._pid != os.getpid():
            message = f"{self._what} was started by process {self._pid}; wait for it there"
            raise UsageError(message, code="other-process")


class _Pool:
    """The background threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, run: Callable[[], None]) -> None:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    _THREADS, thread_name_prefix="outcore", initializer=_mark
                )
            self._executor.submit(run)


_pool = _Pool()
_thread = threading.local()


def _mark() -> None:
    _thread.of_pool = True


def _in_pool() -> bool:
    return getattr(_thread, "of_pool", False)


def _fresh_pool() -> None:
    # Neither threads nor the state of a lock survive a fork.
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_fresh_pool)


def start(work: Callable[[], T], what: str) -> IORequest[T]:
    """Run `work` in the background; `what` names it in messages."""
    future: Future[T] = Future()
    # Taken by who does it. A request that is done keeps no buffers alive.
    todo = [work]
    del work

    def run() -> None:
        try:
            mine = todo.pop()
        except IndexError:
            return
        future.set_running_or_notify_cancel()
        try:
            future.set_result(mine())
        except BaseException as error:
            future.set_exception(error)

    _pool.submit(run)
    return IORequest(future, what, run)
