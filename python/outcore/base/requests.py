"""
Started I/O: the return value of `DiskArray.iread` and `DiskArray.iwrite`.

Background threads of this process do the work; the core releases the GIL, so a few threads keep a disk
busy. The pool belongs to a process id: a forked child creates its own pool and raises an error when
asked to wait for requests of its parent. `wait` raises the error of a request; an error that no code
waited for becomes a warning when the request is deleted. A thread of the pool that waits for a request
that has not begun executes it itself: a copy between two arrays reads block after block this way, and
with as many copies as threads no other thread would be left. A request is executed immediately where
waiting for another thread is impossible (in a signal handler inside an access, or if the system cannot
start a thread).

At the end of the process, reads are stopped and writes are finished; if that takes long, a line on
stderr reports it. Ctrl-C then stops writes, too.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Generic, TypeVar

from outcore import _core
from outcore.errors import StaysInProcess, UsageError

__all__ = ["IORequest", "StartedRequests", "start"]

T = TypeVar("T")

# Enough to overlap reading, writing and computing; the I/O engines provide the queue depth.
_THREADS = 4
# Seconds for which the end of the process waits without a message.
_SILENCE = 1.0
# Seconds for which it waits for stopped requests, which end after a round or two.
_STOPPING = 10.0


class _Task(Generic[T]):
    """
    Work that the first thread to take it executes; if `reads`, it can be stopped without loss.

    An `ordered` task is executed in its turn among others, not by a waiting thread.
    """

    def __init__(
        self, work: Callable[[], T], what: str, reads: bool, *, ordered: bool = False
    ) -> None:
        self.future: Future[T] = Future()
        self.what = what
        self.reads = reads
        self.ordered = ordered
        self._stop = _core.Stop()
        # The executing thread takes the work out, so that a finished request keeps no buffers alive.
        self._todo = [work]

    def run(self) -> None:
        """Execute the task, unless a thread has taken it already."""
        try:
            work = self._todo.pop()
        except IndexError:
            return
        self.future.set_running_or_notify_cancel()
        before, _thread.task = _get_current_task(), self
        try:
            with self._stop:
                result = work()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
        finally:
            _thread.task = before
            _pool.live.pop(self, None)

    def help(self) -> None:
        """Execute the task in this thread of the pool, unless it was taken or is ordered."""
        if _is_in_pool() and not self.ordered:
            self.run()

    def cancel(self, *, running: bool) -> bool:
        """Stop a task that has not begun, or with `running` any task; return True if it was told to."""
        if self.future.done():
            return False
        try:
            self._todo.pop()
        except IndexError:
            if running:
                self._stop.set()
            return running
        self.future.set_running_or_notify_cancel()
        self.future.set_exception(CancelledError(f"{self.what} was cancelled before it started"))
        _pool.live.pop(self, None)
        return True


class IORequest(StaysInProcess, Generic[T]):
    """
    A read or write that was started.

    Until a request is done, its buffers belong to it: do not change a value that is being written, and
    do not use an array that is being read. The request keeps them alive. After a timeout, or after
    cancelling an asyncio task that awaits the request, you can wait again; only `cancel` stops the
    request. At the end of the process, reads are stopped and writes are finished.

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

    _elsewhere = "wait for it here, and send its result"

    def __init__(self, task: _Task[T]) -> None:
        #: Task that does the work.
        self.task = task
        self._future = task.future
        self._what = task.what
        self._pid = os.getpid()
        self._delivered = False

    @property
    def done(self) -> bool:
        """True if the request has ended, successfully or not."""
        return self._pid == os.getpid() and self._future.done()

    @property
    def settled(self) -> bool:
        """True if the request has ended and has no error that no code has seen."""
        if self._pid != os.getpid() or self._delivered:
            return True
        return self._future.done() and self._future.exception() is None

    @property
    def result(self) -> T:
        """Array that was read (None for a write); waits if necessary."""
        return self.wait()

    def wait(self, timeout: float | None = None) -> T:
        """
        Wait for the end of the request.

        Parameters
        ----------
        timeout
            Seconds to wait; by default (None) without limit.

        Returns
        -------
        numpy.ndarray or None
            Array that was read; None for a write.

        Raises
        ------
        TimeoutError
            The request was not done in time. It continues; you can wait again.
        OutcoreError
            Error of the read or write.
        concurrent.futures.CancelledError
            `cancel` stopped the request.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> request = outcore.create("field.npy", data=np.arange(4)).iread()
        >>> request.wait(timeout=60)
        array([0, 1, 2, 3])
        """
        self._own()
        if timeout is None:
            self.task.help()
        try:
            result = self._future.result(timeout)
        except FutureTimeout:
            if not self._future.done():
                raise TimeoutError(
                    f"{self._what} has not finished after {timeout} s; wait again, or cancel it"
                ) from None
            self._delivered = True
            raise
        except BaseException:
            self._delivered = self._future.done()
            raise
        self._delivered = True
        return result

    def cancel(self) -> bool:
        """
        Stop the request if that is safe: a read, or a write that has not begun.

        A read stops soon; its array is then undefined. `wait` raises
        `concurrent.futures.CancelledError`. A write that has begun continues to its end.

        Returns
        -------
        bool
            True if the request was told to stop; False if it is done, is a write that has begun, or
            belongs to another process.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> request = outcore.create("field.npy", data=np.arange(4)).iread()
        >>> _ = request.wait()
        >>> request.cancel()
        False
        """
        if self._pid != os.getpid():
            return False
        stopped = self.task.cancel(running=self.task.reads)
        self._delivered = self._delivered or stopped
        return stopped

    def finish(self, *, unwanted: bool = False) -> None:
        """
        Wait for the end of the request without raising its error.

        Parameters
        ----------
        unwanted
            If True, discard the error. By default it is left for `wait`, and for `flush` or `close` of
            the array.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (3, 4), "i8")
        >>> request = a.iwrite(7, [0, 0, 0, 0])  # there is no row 7
        >>> request.finish(unwanted=True)
        >>> a.close()
        """
        if self._pid == os.getpid():
            self.task.help()
            wait([self._future])
            self._delivered = self._delivered or unwanted

    def __await__(self) -> Generator[Any, None, T]:
        self._own()
        import asyncio  # slow to import (a quarter of the import time of outcore), and rarely used

        # A caller that stops waiting (`asyncio.wait_for`) cancels the waiting, never the work.
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not ended.done():
                ended.set_result(None)

        def wake(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # no coroutine waits in a closed loop
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
            warnings.warn(f"{self._what} failed, and no call waited for it: {error}", stacklevel=2)

    def _own(self) -> None:
        if self._pid != os.getpid():
            message = f"{self._what} was started by process {self._pid}; wait for it there"
            raise UsageError(message, code="other-process")


class _Pool:
    """
    The background threads of this process.

    A signal handler may run between any two steps here and start its own request, so there is no lock
    for which it could wait.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Task[Any]] = queue.SimpleQueue()
        # One entry for each thread that has not been started.
        self._places = [None] * _THREADS
        self._starting = False
        #: Tasks that have not ended.
        self.live: dict[_Task[Any], None] = {}

    def submit(self, task: _Task[Any]) -> None:
        self.live[task] = None
        if _core.is_inside():
            task.run()
            return
        self._queue.put(task)
        if self._starting:
            return  # `threading` has locks: the interrupted caller continues with the task
        try:
            self._places.pop()
        except IndexError:
            return
        self._starting = True
        try:
            thread = threading.Thread(target=self._serve, name="outcore", daemon=True)
            thread.start()
        except RuntimeError:  # the system cannot start a thread, or Python is ending
            self._places.append(None)
        finally:
            self._starting = False
        if len(self._places) == _THREADS:
            self._serve_now()

    def _serve(self) -> None:
        _thread.of_pool = True
        while True:
            self._queue.get().run()

    def _serve_now(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait().run()

    def writes(self) -> list[_Task[Any]]:
        return [task for task in list(self.live) if not task.reads]


class _ThreadState(threading.local):
    """State of a thread: the task that it runs, and whether it belongs to the pool."""

    task: _Task[Any] | None = None
    of_pool = False


_thread = _ThreadState()
_pool = _Pool()


def _get_current_task() -> _Task[Any] | None:
    return _thread.task


def _is_in_pool() -> bool:
    return _thread.of_pool


def _reset_pool() -> None:
    # Threads do not survive a fork.
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_reset_pool)


def start(work: Callable[[], T], what: str, *, reads: bool = False) -> IORequest[T]:
    """
    Execute `work`, called `what` in messages, in the background.

    `reads` means that the work can be stopped without loss. A read inside a write is part of that
    write.
    """
    parent = _get_current_task()
    task = _Task(work, what, reads and (parent is None or parent.reads))
    del work
    _pool.submit(task)
    return IORequest(task)


def start_in_order(
    work: Callable[[], T], what: str, submit: Callable[[Callable[[], None], Future[T]], None]
) -> _Task[T]:
    """
    Execute `work` in its turn outside of the pool; the end of the process waits for it.

    `submit` receives the work to execute, and a future that ends with it.
    """
    task = _Task(work, what, False, ordered=True)
    del work
    _pool.live[task] = None
    submit(task.run, task.future)
    return task


class StartedRequests:
    """
    The requests of one array.

    If the caller releases a request, a write continues and its error is still raised, while a read is
    stopped. All changes are single atomic steps, so threads do not lose each other's requests.
    """

    def __init__(self) -> None:
        self._reads: weakref.WeakSet[IORequest[Any]] = weakref.WeakSet()
        self._writes: dict[IORequest[None], None] = {}
        # Other ranks depend on this one: these reads continue even if the caller releases the request.
        self._collective_reads: dict[IORequest[Any], None] = {}

    def read(self, work: Callable[[], T], path: str) -> IORequest[T]:
        """Start a read."""
        request = start(work, f"read of {path!r}", reads=True)
        self._reads.add(request)
        return request

    def write(self, work: Callable[[], None], path: str) -> IORequest[None]:
        """Start a write."""
        self._drop_settled()
        request = start(work, f"write of {path!r}")
        self._writes[request] = None
        return request

    def keep(self, request: IORequest[Any], *, writes: bool) -> None:
        """Register a request that was started together with other ranks."""
        self._drop_settled()
        if writes:
            self._writes[request] = None
        else:
            self._collective_reads[request] = None

    def finish_writes(self) -> None:
        """Wait for all writes; raise an error that no code has seen, and keep the others."""
        try:
            for request in list(self._writes):
                if not request.settled:
                    request.wait()
        finally:
            self._drop_settled()

    def _drop_settled(self) -> None:
        for request in list(self._writes):
            if request.settled:
                self._writes.pop(request, None)
        for read in list(self._collective_reads):
            if read.done:
                self._collective_reads.pop(read, None)

    def close(self) -> None:
        """Wait for all requests; raise the error of a write that no code has seen."""
        for read in [*self._reads, *self._collective_reads]:
            read.finish()
        self._collective_reads.clear()
        writes = list(self._writes)
        try:
            self.finish_writes()
        finally:
            for request in writes:
                request.finish()
                self._writes.pop(request, None)

    def abandon(self) -> None:
        """Stop reads and finish writes that no code waits for; report on stderr if that takes long."""
        for read in list(self._reads):
            read.cancel()
        _finish([request.task for request in self._writes])


def _finish(tasks: list[_Task[Any]]) -> None:
    _, left = wait([task.future for task in tasks], _SILENCE)
    if left:
        names = _format_names(task for task in tasks if task.future in left)
        _print(f"waiting for what was started: {names}. Ctrl-C leaves it unfinished")
        wait(left)


def _is_cut_off(future: Future[Any]) -> bool:
    return not future.done() or isinstance(future.exception(), CancelledError)


def _format_names(tasks: Iterable[_Task[Any]]) -> str:
    names = [task.what for task in tasks]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _print(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be closed
        print(f"outcore: {text}", file=sys.stderr, flush=True)


def _finish_writes() -> None:
    """Wait for the end of writes, unless Ctrl-C interrupts."""
    try:
        while writes := _pool.writes():
            _finish(writes)
    except KeyboardInterrupt:
        left = [task for task in _pool.writes() if task.ordered or task.cancel(running=True)]
        wait([task.future for task in left if not task.ordered], _STOPPING)
        for task in left:
            if task.ordered:
                # It cannot be stopped on one rank only: the other ranks will detect that this one has
                # ended.
                _pool.live.pop(task, None)
        cut = [task for task in left if _is_cut_off(task.future)]
        if cut:
            _print(
                f"left unfinished: {_format_names(cut)}. Their sections hold old and new elements"
            )


def _stop_reads() -> list[_Task[Any]]:
    return [task for task in list(_pool.live) if task.reads and task.cancel(running=True)]


def _has_other_threads() -> bool:
    """Return whether other threads of the program continue after its main thread."""
    me = threading.current_thread()
    return any(not one.daemon and one is not me for one in threading.enumerate())


def _finish_before_join() -> None:
    # Also runs in a process of `multiprocessing`, which ends without calling the functions of `atexit`.
    # Other threads may still need their reads.
    if not _has_other_threads():
        _stop_reads()
    _finish_writes()


def _finish_at_exit() -> None:
    stopped = _stop_reads()
    _finish_writes()
    # Their threads must not return from the core after Python has ended.
    wait([task.future for task in stopped], _STOPPING)


atexit.register(_finish_at_exit)
# RuntimeError: the module is imported by a handler at the end of the process, after threads were joined.
with contextlib.suppress(AttributeError, RuntimeError):
    threading._register_atexit(_finish_before_join)  # type: ignore[attr-defined]  # noqa: SLF001
