"""
Started I/O: what `DiskArray.iread` and `DiskArray.iwrite` return.

The work runs in background threads of this process; the core releases the GIL, so a few threads
keep a disk busy. The pool belongs to a process id: a forked child makes its own and refuses to wait
for requests that its parent started. An error is delivered by `wait`; one that nobody waited for is
reported as a warning when the request goes away. A thread of the pool that waits for a request that
none of them has begun does it itself: a copy between two arrays reads block after block this way, and
with as many copies as threads nobody else would be left. What is started where nobody could wait for
another thread (in a handler of a signal inside of an access, or where the system has no more threads)
is done at once.

At the end of the process nobody waits any longer: reads are stopped, writes are finished, and if that
takes a while a line on stderr says so. Ctrl-C then stops them, too.
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

__all__ = ["IORequest", "Started", "start"]

T = TypeVar("T")

# Enough to overlap reading, writing and computing; depth on the disk comes from the engines.
_THREADS = 4
# Seconds for which the end of the process waits without a word.
_SILENCE = 1.0
# Seconds for which it waits for what was told to stop, which a round or two takes.
_STOPPING = 10.0


class _Task(Generic[T]):
    """
    Work, for whoever takes it first; `reads` if nothing is lost when it stops.

    If it is `ordered` it has its turn among others, and is not done by who waits.
    """

    def __init__(
        self, work: Callable[[], T], what: str, reads: bool, *, ordered: bool = False
    ) -> None:
        self.future: Future[T] = Future()
        self.what = what
        self.reads = reads
        self.ordered = ordered
        self._stop = _core.Stop()
        # Taken by who does it. A request that is done keeps no buffers alive.
        self._todo = [work]

    def run(self) -> None:
        """Do it, unless it was taken already."""
        try:
            work = self._todo.pop()
        except IndexError:
            return
        self.future.set_running_or_notify_cancel()
        before, _thread.task = _current(), self
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
        """Do it in this thread of the pool, unless it was taken already, or has its turn elsewhere."""
        if _in_pool() and not self.ordered:
            self.run()

    def cancel(self, *, running: bool) -> bool:
        """Stop it: if it has not begun, or if `running` wherever it is. Tells whether that was done."""
        if self.future.done():
            return False
        try:
            self._todo.pop()
        except IndexError:
            if running:
                self._stop.set()
            return running
        self.future.set_running_or_notify_cancel()
        self.future.set_exception(CancelledError(f"{self.what} was stopped before it began"))
        _pool.live.pop(self, None)
        return True


class IORequest(StaysInProcess, Generic[T]):
    """
    A read or write that was started.

    Until it is done, its buffers belong to it: do not change a value that is being written, do not
    look at an array that is being read. It keeps them alive itself. Who stops waiting, by a timeout or
    by cancelling a task that awaits it, can wait again; only `cancel` stops it. At the end of the
    process reads are stopped, and writes are finished.

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
        #: The task that does the work.
        self.task = task
        self._future = task.future
        self._what = task.what
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
        concurrent.futures.CancelledError
            It was stopped by `cancel`.

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
                raise TimeoutError(f"{self._what} is not done after {timeout} s") from None
            self._delivered = True
            raise
        except BaseException:
            self._delivered = self._future.done()
            raise
        self._delivered = True
        return result

    def cancel(self) -> bool:
        """
        Stop it, if that does no harm: a read, or a write that has not begun.

        A read stops within a moment; what it was to fill is then undefined. `wait` raises
        `concurrent.futures.CancelledError`. A write that has begun goes on to its end.

        Returns
        -------
        bool
            Whether it was told to stop; False if it is done already, is a write that has begun, or
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
            self.task.help()
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
    """
    The background threads of this process.

    A handler of a signal may come in between any two steps here and start a request of its own, so
    there is no lock that it could wait for.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Task[Any]] = queue.SimpleQueue()
        # A place for each thread that is not there yet.
        self._places = [None] * _THREADS
        self._starting = False
        #: What has not ended.
        self.live: dict[_Task[Any], None] = {}

    def submit(self, task: _Task[Any]) -> None:
        self.live[task] = None
        if _core.is_inside():
            task.run()
            return
        self._queue.put(task)
        if self._starting:
            return  # `threading` has locks: whoever was interrupted there goes on with it
        try:
            self._places.pop()
        except IndexError:
            return
        self._starting = True
        try:
            thread = threading.Thread(target=self._serve, name="outcore", daemon=True)
            thread.start()
        except RuntimeError:  # the system has no more of them, or Python is about to end
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


_thread = threading.local()
_pool = _Pool()


def _current() -> _Task[Any] | None:
    return getattr(_thread, "task", None)


def _in_pool() -> bool:
    return getattr(_thread, "of_pool", False)


def _fresh_pool() -> None:
    # Threads do not survive a fork.
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_fresh_pool)


def start(work: Callable[[], T], what: str, *, reads: bool = False) -> IORequest[T]:
    """
    Run `work` in the background.

    Parameters
    ----------
    work
        What to do.
    what
        Its name in messages.
    reads
        Nothing is lost if it is stopped. What a write reads on its way is a part of that write.
    """
    parent = _current()
    task = _Task(work, what, reads and (parent is None or parent.reads))
    del work
    _pool.submit(task)
    return IORequest(task)


def start_in_order(
    work: Callable[[], T], what: str, submit: Callable[[Callable[[], None], Future[T]], None]
) -> _Task[T]:
    """
    Have `work` done where its turn is kept, outside of the pool; the end of the process waits for it.

    Parameters
    ----------
    work, what
        As for `start`.
    submit
        Takes what does the work, and the future that tells that it has ended.
    """
    task = _Task(work, what, False, ordered=True)
    del work
    _pool.live[task] = None
    submit(task.run, task.future)
    return task


class Started:
    """
    The requests of one array.

    A write goes on, and its failure counts, also if the caller releases the request; a read is over
    then. Changed by single steps only, so that threads lose none of each other's.
    """

    def __init__(self) -> None:
        self._reads: weakref.WeakSet[IORequest[Any]] = weakref.WeakSet()
        self._writes: dict[IORequest[None], None] = {}
        # Other ranks count on this one: these reads go on, too, if the caller releases the request.
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
        """Keep a request that was started together with other ranks."""
        self._drop_settled()
        if writes:
            self._writes[request] = None
        else:
            self._collective_reads[request] = None

    def finish_writes(self) -> None:
        """Wait for all writes; raise a failure that nobody has seen, and keep the others."""
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
        """Wait for all; raise a failure of a write that nobody has seen."""
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
        """Nobody comes for them: stop reads, and finish writes, saying so if that takes a while."""
        for read in list(self._reads):
            read.cancel()
        _finish([request.task for request in self._writes])


def _finish(tasks: list[_Task[Any]]) -> None:
    _, left = wait([task.future for task in tasks], _SILENCE)
    if left:
        names = _names(task for task in tasks if task.future in left)
        _say(f"waiting for what was started: {names}. Ctrl-C leaves it unfinished")
        wait(left)


def _was_cut(future: Future[Any]) -> bool:
    return not future.done() or isinstance(future.exception(), CancelledError)


def _names(tasks: Iterable[_Task[Any]]) -> str:
    names = [task.what for task in tasks]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be gone by now
        print(f"outcore: {text}", file=sys.stderr, flush=True)


def _finish_writes() -> None:
    """Let writes end, unless Ctrl-C says not to."""
    try:
        while writes := _pool.writes():
            _finish(writes)
    except KeyboardInterrupt:
        left = [task for task in _pool.writes() if task.ordered or task.cancel(running=True)]
        wait([task.future for task in left if not task.ordered], _STOPPING)
        for task in left:
            if task.ordered:
                # It cannot be stopped on one rank: the others will learn that this one is gone.
                _pool.live.pop(task, None)
        cut = [task for task in left if _was_cut(task.future)]
        if cut:
            _say(f"left unfinished: {_names(cut)}. Their sections hold old and new elements")


def _stop_reads() -> list[_Task[Any]]:
    return [task for task in list(_pool.live) if task.reads and task.cancel(running=True)]


def _others() -> bool:
    """Whether other threads of the program go on after its main thread."""
    me = threading.current_thread()
    return any(not one.daemon and one is not me for one in threading.enumerate())


def _before_threads_are_joined() -> None:
    # Also in a process of `multiprocessing`, which ends without what `atexit` knows. Other threads may
    # still want what they read.
    if not _others():
        _stop_reads()
    _finish_writes()


def _at_the_end() -> None:
    stopped = _stop_reads()
    _finish_writes()
    # Their threads must not come back from the core when Python is gone.
    wait([task.future for task in stopped], _STOPPING)


atexit.register(_at_the_end)
# RuntimeError: it is imported by a handler at the end of the process, when threads are joined already.
with contextlib.suppress(AttributeError, RuntimeError):
    threading._register_atexit(_before_threads_are_joined)  # type: ignore[attr-defined]  # noqa: SLF001
