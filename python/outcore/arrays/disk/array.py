"""
Arrays on disk: `DiskArray`.

Problem. An array larger than memory should read and write like a NumPy array, a section at a time.
Idea. A format says where the elements live (`outcore.formats`); everything after that is one call
into the compiled core, which plans the access, runs the plan within the memory budget and fills a new
NumPy array. This file only offers that call in the forms people need.

Invariants. ``a[key]`` equals what NumPy gives; ``a[key] = value`` changes exactly those elements, cast
and broadcast as NumPy does. The core is asked first: it knows all keys of basic indexing, and refuses
those with arrays before it moves anything (`outcore.arrays.disk.selecting` goes on with them). An array
may be used from several threads; it survives a fork and can be pickled (it is opened again).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import _core, formats
from outcore.arrays.disk.attributes import Attributes
from outcore.arrays.disk.described import Described
from outcore.arrays.disk.growth import as_elements, check_seen, continued, refill
from outcore.arrays.disk.operators import Operators
from outcore.arrays.disk.selecting import Selecting
from outcore.arrays.disk.walking import Walking
from outcore.arrays.handle import Handle
from outcore.base.hints import Hints, check_environment
from outcore.base.report import BlocksReport, Report, human
from outcore.base.requests import IORequest
from outcore.errors import BudgetError
from outcore.formats.layout import ArrayInfo

__all__ = ["DiskArray", "Mode"]

Mode = Literal["r", "r+", "w", "x", "a"]
# Integers, slices, ..., None, arrays of integers or booleans, or a tuple of them.
Key = Any


class DiskArray(Selecting, Walking, Described, Operators):
    """
    An array on disk. Made by `outcore.open` and `outcore.create`.

    Indexing reads: ``a[10:20, ::-3]`` is a new `numpy.ndarray`. Assignment writes. Keys are those of
    NumPy: integers, slices with any step, ``...``, ``None``, and arrays of integers or booleans.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", (1000, 300), "f8")
    >>> a[100:200, ::3] = np.arange(100)[:, None]
    >>> a[101, :7]
    array([1., 0., 0., 1., 0., 0., 1.])
    >>> a.close()
    """

    def __init__(
        self,
        info: ArrayInfo,
        mode: Mode,
        hints: Hints,
        options: Mapping[str, Any],
        *,
        own_hints: Hints | None = None,
    ) -> None:
        check_environment()
        #: What the other packages of outcore use of the array.
        self.handle = Handle(info, mode, hints, options, own_hints=own_hints)

    # What it is

    @property
    def attrs(self) -> Attributes:
        """
        User attributes stored with the array: a mapping.

        If the array was opened for writing it can be written to: ``a.attrs["units"] = "K"``,
        ``a.attrs.update(...)``, ``del a.attrs["units"]``. Each of these is on the disk when it
        returns, or did not happen. What is read is what the file said when it was first asked, and
        after each change.

        Raises
        ------
        UnsupportedError
            On a change: the format keeps no attributes (``.npy``, raw).
        UsageError
            On a change: the array was opened for reading, or the format cannot keep the value.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.zarr", (10, 10), "f4")
        >>> a.attrs["units"] = "K"
        >>> a.attrs
        {'units': 'K'}
        """
        return Attributes(self, self.handle.change_attrs)

    @property
    def mode(self) -> str:
        """Mode with which the array was opened; ``"r+"`` if that was ``"a"``."""
        return self.handle.mode

    @property
    def hints(self) -> Hints:
        """Hints of the array."""
        return self.handle.hints

    @property
    def fill_value(self) -> Any:
        """Value of elements that were never written, or None."""
        return self.handle.info.fill_value

    @property
    def info(self) -> ArrayInfo:
        """What the format knows about the array."""
        return self.handle.info

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.handle.core.closed

    @property
    def budget(self) -> int:
        """Bytes of buffer that one operation may hold now (`outcore.memory`, `Hints.memory`)."""
        return self.handle.core.budget()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return (
            f"<DiskArray {self.path!r}: shape {self.shape}, {self.dtype}, {self.format}, "
            f"mode {self.mode!r}{state}>"
        )

    # Reading and writing

    def __getitem__(self, key: Key) -> Any:
        return self._read_key(key, None)

    def __setitem__(self, key: Key, value: Any) -> None:
        self.write(key, value)

    def read(self, key: Key = ..., *, out: NDArray[Any] | None = None) -> Any:
        """
        Read a section.

        Parameters
        ----------
        key
            As in ``a[key]``. A negative step is read upwards into a reversed view, so it costs
            nothing extra. Arrays of indices may be of any integer type and on disk, masks too.
        out
            Array to fill, of the result's shape and the array's dtype. Any strides will do with which
            no two elements share memory.

        Returns
        -------
        numpy.ndarray or scalar
            `out`, or a new array in the order of the file; a scalar if each axis has an integer.

        Raises
        ------
        SectionError
            An index is out of range, something is no index, there are too many, a mask has other
            lengths than its axes. An `IndexError` as well; for field names it is a `FancyIndexError`.
        UsageError
            `out` does not match, or the array is closed.
        BudgetError
            The buffers do not fit the memory budget, whatever the method. A `MemoryError` as well.
        StorageError, FormatError
            The file could not be read, or a chunk is damaged. `out` is then undefined.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
        >>> a.read(np.s_[1, ::-1])
        array([7, 6, 5, 4])
        """
        return self._read_key(key, out)

    def write(self, key: Key, value: Any) -> None:
        """
        Write a section: ``a[key] = value``.

        Parameters
        ----------
        key
            As in ``a[key]``.
        value
            Broadcast and cast as NumPy does on assignment, a part at a time, and never changed. Another
            `DiskArray` of the section's shape is copied block by block (`explain_copy` tells how); one
            that is kept in the same bytes (``a[::-1] = a``) is read whole first and must fit the budget.

        Raises
        ------
        UsageError
            The array was opened for reading, or `value` cannot be broadcast to the section.
        SectionError, BudgetError, StorageError
            As for `read`.

        Notes
        -----
        Without `Hints.sync`, bytes may be in the page cache only until `flush`. Elements outside the
        section are never touched; chunks with a codec are read, changed and stored again. Of several
        values for one element (arrays of indices) the last one wins.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (2, 3), "i8")
        >>> a.write(np.s_[:, 1:], [5, 6])
        >>> a[...]
        array([[0, 5, 6],
               [0, 5, 6]])
        """
        self._write_key(key, value)
        if self.handle.hints.sync:
            self.handle.core.flush(True)

    def iread(self, key: Key = ..., *, out: NDArray[Any] | None = None) -> IORequest[Any]:
        """
        Start to read a section in the background; see `read`.

        A read that nobody waits for when the process ends is stopped; so is one whose ``with`` block
        is left by Ctrl-C.

        Parameters
        ----------
        key, out
            As for `read`. Leave `out` alone until the request is done.

        Returns
        -------
        IORequest
            ``wait()`` gives the array.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
        >>> request = a.iread(np.s_[1])
        >>> request.wait()
        array([4, 5, 6, 7])
        """
        return self.handle.requests.read(lambda: self.read(key, out=out), self.path)

    def iwrite(self, key: Key, value: Any) -> IORequest[None]:
        """
        Start to write a section in the background; see `write`.

        `flush` and `close` wait for it, and so does the end of the process: it says on stderr what it
        waits for if that takes a while. Another Ctrl-C leaves the section half written.

        Parameters
        ----------
        key, value
            As for `write`. Do not change `value` before the request is done.

        Returns
        -------
        IORequest
            ``wait()`` raises what the write raised.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (3, 4), "i8")
        >>> request = a.iwrite(np.s_[1], [4, 5, 6, 7])
        >>> request.wait()
        >>> a[1]
        array([4, 5, 6, 7])
        """
        return self.handle.requests.write(lambda: self.write(key, value), self.path)

    def prefetch(self, key: Key = ...) -> None:
        """
        Ask the system to bring a section into the page cache, without waiting.

        Reading it later is then fast, unless memory became scarce in between. Chunks found through
        the format's library are only looked up.

        Parameters
        ----------
        key
            As in ``a[key]``.

        Raises
        ------
        SectionError, UsageError
            As for `read`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
        >>> a.prefetch(np.s_[1:])
        >>> a[1:].sum()
        np.int64(60)
        """
        self.handle.core.prefetch(key)

    def explain(self, key: Key = ..., *, write: bool = False) -> Report:
        """
        Tell what reading (or writing) a section will do, without doing it.

        Parameters
        ----------
        key
            As in ``a[key]``.
        write
            Explain ``a[key] = value`` for a value of the array's dtype; needs an array that is open for
            writing.

        Returns
        -------
        Report
            Exact counts of the plan, and text for people (``print``).

        Raises
        ------
        SectionError, UsageError, BudgetError
            As the access itself would; `SectionError` (``too-many-chunks``) if it touches more than
            2^30 chunks.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (1000, 300), "f8")
        >>> report = a.explain(np.s_[100:200])
        >>> report.useful_bytes
        240000
        """
        return self._explain_key(key, write)

    def explain_copy(self, source: DiskArray, key: Key = ...) -> BlocksReport:
        """
        Tell what ``self[key] = source`` will do, without doing it.

        Blocks are made of whole chunks (or shards) of both arrays if that fits the budget, and of whole
        chunks of this one before those of `source`.

        Parameters
        ----------
        source
            An array of the section's shape.
        key
            As in ``a[key]``.

        Returns
        -------
        BlocksReport
            The blocks, how often chunks go through codecs, and a budget with which each does once.

        Raises
        ------
        UsageError, SectionError, BudgetError
            As the copy itself would.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("rows.zarr", data=np.ones((50, 40)), chunks=(1, 40), compression="zstd")
        >>> b = outcore.create("columns.zarr", (50, 40), "f8", chunks=(50, 4), compression="zstd")
        >>> report = b.explain_copy(a)
        >>> report.decodes, report.encodes
        (50, 10)
        """
        self.handle.check_writable("copy to")
        from outcore.arrays import blocks

        with contextlib.closing(blocks.copy_blocks(source, self, key)) as loop:
            return loop.report

    def stats(self) -> dict[str, Any]:
        """
        Count what was really done since the array was opened in this process, and how long it took.

        Returns
        -------
        dict
            ``reads``, ``read_bytes``, ``writes``, ``written_bytes``, ``mapped_bytes``, ``decodes``,
            ``encodes``, ``kept``, ``rounds``: as in `Report`, summed over all accesses. Of the bytes
            that were copied out of and into mapped files, ``mapped_written_bytes`` are the latter.

            ``read_seconds``, ``write_seconds``, ``flush_seconds``: spent in these calls by all threads,
            those of requests and loops in the background as well; with overlap their sum is more than
            the time that passed. Of a `CollectiveArray` these include collective calls, whose phases on
            this rank are: ``agree_seconds`` (all ranks tell what they want, waiting for those that come
            later included), ``plan_seconds``, ``disk_seconds`` (waiting for its own reads and writes),
            ``exchange_seconds`` (copying and messages) and ``wait_seconds`` (for other ranks between
            rounds). A collective call on several arrays counts for the first one.

            What the threads of this process did in them, in seconds of threads, added up:
            ``thread_io_seconds`` (calls of the system that read, write and open files, flushes, and
            waiting for requests in flight, which count once however many they are),
            ``thread_decode_seconds``, ``thread_encode_seconds``, ``thread_copy_seconds`` (between
            buffers, mapped files and memory of yours; of a mapped file the page faults, which read the
            disk, are part of the copy) and ``thread_plan_seconds``. Looking up chunks in tables, waiting
            for locks and what is made in Python count in none of them.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.zeros((100, 30)))
        >>> told, before = a.explain(np.s_[10:20]), a.stats()
        >>> _ = a[10:20]
        >>> after = a.stats()
        >>> after["read_bytes"] - before["read_bytes"] == told.read_bytes
        True
        >>> after["read_seconds"] > before["read_seconds"]
        True
        >>> after["thread_decode_seconds"]  # a .npy file has no codecs
        0.0
        """
        told = self.handle.seconds.told(*self.handle.phases)
        return {**self.handle.core.stats(), **told, **self.handle.core.seconds()}

    # As an array of NumPy

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(
                "an array on disk cannot become a NumPy array without a copy; leave copy= out"
            )
        if self.nbytes > self.budget:
            needed = self.handle.sufficient_budget(self.nbytes)
            raise BudgetError(
                f"{self.path!r} holds {human(self.nbytes)}, the memory budget is "
                f"{human(self.budget)}. Walk through it with blocks(), read a section, or raise "
                f"outcore.memory() to {needed} bytes",
                code="array-too-large",
                path=self.path,
                needed=needed,
            )
        whole = np.asarray(self.handle.core.read(...))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    # Changing its shape

    def resize(self, shape: int | Sequence[int]) -> None:
        """
        Change the shape on disk, where the format can.

        New elements read as the fill value; elements outside the new shape are gone.

        Parameters
        ----------
        shape
            The new lengths of all axes, in elements; their number stays.

        Raises
        ------
        UnsupportedError
            The format or this array cannot be resized.
        UsageError
            The array was opened for reading, or has another number of axes.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.ones((2, 3)))
        >>> a.resize((3, 3))
        >>> a[2]
        array([0., 0., 0.])
        """

        def resized() -> None:
            with self.handle.growing("resize") as array:
                check_seen(self.handle.info, array.info, shape)
                self.handle.adopt(
                    formats.resize(array.info, shape, partial(refill, self.handle.core))
                )

        self.handle.finish_writes("resize")
        _core.whole_in_turn(resized)

    def append(self, data: Any, axis: SupportsIndex = 0) -> None:
        """
        Make the array longer along `axis` and write `data` there.

        A reader, or a crash, sees the old array or the new one: the new elements are durable before
        the file says that they are there. An unlimited dimension of a NetCDF4 file becomes longer with
        it, for all variables that use it: there they read as their fill value.

        Parameters
        ----------
        data
            Array whose other axes match, or with one axis less: one entry along `axis`. It is cast as
            on assignment.
        axis
            The axis that becomes longer.

        Raises
        ------
        UnsupportedError
            The format or this array cannot grow along `axis`.
        UsageError
            `data` does not fit, there is no such axis, or the array was opened for reading.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.zeros((2, 3)))
        >>> a.append([1, 2, 3])
        >>> a.shape
        (3, 3)
        """
        data = as_elements(self.handle.info, data)  # perhaps read from this very file

        def appended() -> None:
            with self.handle.growing("append to") as array:
                growth = continued(array.info, data, axis)
                longer = self.handle.core.beside(array.reserve(growth.shape))
                try:
                    longer.write(growth.key, growth.data)
                    longer.flush(True)
                finally:
                    longer.close()
                self.handle.adopt(array.finish())

        self.handle.finish_writes("append to")
        _core.whole_in_turn(appended)

    # Its life

    def flush(self) -> None:
        """
        Wait for started writes, then make everything written durable.

        Raises what a started write raised, if nobody has seen it yet. Where requests to the disk are
        dear (``outcore bench`` measures that), pages between sparse writes are written along with the
        bytes they have: fewer and larger requests.

        Raises
        ------
        StorageError
            The disk did not take what was written since the last flush that succeeded: it may be
            lost. Later flushes raise it too. Open the array again and write it again. Or the file was
            shortened by somebody, and what was written is gone.
        UsageError
            The array was closed, perhaps by another thread, before a flush of what was written to it.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (3, 4), "f8")
        >>> a[1] = 1.0
        >>> a.flush()  # now it outlives a crash of the machine
        """
        self.handle.requests.finish_writes()
        if self.writable:
            began = perf_counter()
            self.handle.core.flush(True)
            self.handle.seconds["flush", threading.get_ident()] += perf_counter() - began

    def close(self) -> None:
        """
        Wait for started requests and release the files. Closing twice does nothing.

        Raises what a started write raised, if nobody has seen it yet. Does not wait for the disk;
        see `flush`. A temporary array (the result of a computation without ``out=``) is removed from
        the disk.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (3, 4), "f8")
        >>> a.close()
        >>> a.closed
        True
        """
        self.handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C: nobody comes for them
            self.handle.requests.abandon()
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        handle = self.handle
        mode = "r+" if handle.writable else "r"
        return (_reopen, (handle.location, mode, handle.hints, handle.reopen_options()))


def _reopen(path: str, mode: Mode, hints: Hints, options: dict[str, Any]) -> DiskArray:
    info = formats.open_info(path, writable=mode != "r", **options)
    return DiskArray(info, mode, hints, options)
