"""
Arrays on disk: `DiskArray`.

Problem: reading and writing sections of an array larger than memory should work as with a NumPy array.
Approach: a format (`outcore.formats`) determines where the elements are stored. The compiled core plans
an access, executes the plan within the memory budget and fills a new NumPy array. This file wraps that
one call in the methods that users need.

Invariants: ``a[key]`` equals the result of NumPy; ``a[key] = value`` changes exactly those elements,
cast and broadcast as by NumPy. Every key goes to the core first: it handles all keys of basic indexing
and rejects keys with arrays before it moves any data (`outcore.arrays.disk.selecting` handles those).
An array may be used from several threads; it survives a fork and can be pickled (unpickling opens it
again).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import _core, formats
from outcore.arrays.disk.attributes import Attributes
from outcore.arrays.disk.described import DescribedArray
from outcore.arrays.disk.growth import check_seen, convert_elements, plan_append, refill
from outcore.arrays.disk.operators import Operators
from outcore.arrays.disk.selecting import SelectionMethods
from outcore.arrays.disk.walking import BlockMethods
from outcore.arrays.handle import Handle
from outcore.base.hints import Hints, check_environment
from outcore.base.report import BlocksReport, Report
from outcore.base.requests import IORequest
from outcore.errors import budget_error
from outcore.formats.layout import ArrayInfo

__all__ = ["DiskArray", "Mode"]

Mode = Literal["r", "r+", "w", "x", "a"]
# Integers, slices, ..., None, arrays of integers or booleans, or a tuple of them.
Key = Any


class DiskArray(SelectionMethods, BlockMethods, DescribedArray, Operators):
    """
    An array on disk, created by `outcore.open` and `outcore.create`.

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
        #: The interface of the array for other packages of outcore.
        self.handle = Handle(info, mode, hints, options, own_hints=own_hints)

    # Properties

    @property
    def attrs(self) -> Attributes:
        """
        User attributes stored with the array, as a mapping.

        An array opened for writing accepts changes: ``a.attrs["units"] = "K"``,
        ``a.attrs.update(...)``, ``del a.attrs["units"]``. Each change is atomic, and durable when the
        call returns. Values are read from the file on first use, and again after each change through
        this handle.

        Raises
        ------
        UnsupportedError
            On a change: the format stores no attributes (``.npy``, raw).
        UsageError
            On a change: the array was opened for reading, or the format cannot store the value.

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
        """Mode in which the array was opened; ``"r+"`` for ``"a"``."""
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
        """Description of the array by its format."""
        return self.handle.info

    @property
    def closed(self) -> bool:
        """True after `close` was called."""
        return self.handle.core.closed

    @property
    def budget(self) -> int:
        """Bytes of buffers that one operation may use now (`outcore.memory`, `Hints.memory`)."""
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
        Read a section into memory.

        Parameters
        ----------
        key
            Section to read, as in ``a[key]``. A negative step costs nothing extra: the section is read
            forwards into a reversed view. Index arrays may have any integer type; index arrays and
            masks may also be on disk.
        out
            Array to fill, with the shape of the result and the dtype of the array. Any strides are
            allowed as long as no two elements share memory.

        Returns
        -------
        numpy.ndarray or scalar
            `out` if given, otherwise a new array in the order of the file; a scalar if the key has an
            integer for every axis.

        Raises
        ------
        SectionError
            An index is out of range or not a valid index, there are too many indices, or a mask does
            not match the lengths of its axes. Also an `IndexError`. A field name raises
            `FancyIndexError`.
        UsageError
            `out` does not match, or the array is closed.
        BudgetError
            The buffers do not fit the memory budget with any method. Also a `MemoryError`.
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
            Section to write, as for `read`.
        value
            Values, broadcast and cast as NumPy does on assignment, one part at a time; never changed. A
            `DiskArray` with the shape of the section is copied block by block (see `explain_copy`). If
            it is stored in the same bytes (``a[::-1] = a``), it is read whole first and must fit the
            budget.

        Raises
        ------
        UsageError
            The array was opened for reading, or `value` cannot be broadcast to the section.
        SectionError, BudgetError, StorageError
            As for `read`.

        Notes
        -----
        Without `Hints.sync`, written bytes may exist only in the page cache until `flush`. Elements
        outside the section are never changed; chunks with a codec are read, changed and stored again.
        If index arrays select an element several times, the last value wins.

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
        Start reading a section in the background; see `read`.

        The read is stopped if the process ends before any code waits for it, or if Ctrl-C leaves the
        ``with`` block of the array.

        Parameters
        ----------
        key, out
            As for `read`. Do not use `out` until the request is done.

        Returns
        -------
        IORequest
            Request whose ``wait()`` returns the array.

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
        Start writing a section in the background; see `write`.

        `flush`, `close` and the end of the process wait for the write. If the end of the process waits
        for long, it reports on stderr what it waits for. Another Ctrl-C then leaves the section partly
        written.

        Parameters
        ----------
        key, value
            As for `write`. Do not change `value` until the request is done.

        Returns
        -------
        IORequest
            Request whose ``wait()`` raises the error of the write, if any.

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
        Ask the operating system to load a section into the page cache, without waiting.

        A later read is then fast, unless memory became scarce in between. For chunks that are found
        through the library of the format, only their positions are looked up.

        Parameters
        ----------
        key
            Section to load, as for `read`.

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
        Report what reading (or writing) a section would do, without doing it.

        Parameters
        ----------
        key
            Section, as for `read`.
        write
            If True, explain ``a[key] = value`` for a value of the array's dtype; the array must be open
            for writing.

        Returns
        -------
        Report
            Exact counts of the plan; ``print`` shows it as text.

        Raises
        ------
        SectionError, UsageError, BudgetError
            As for the access itself. `SectionError` (``too-many-chunks``) if it touches more than 2^30
            chunks.

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
        Report what ``self[key] = source`` would do, without doing it.

        Blocks consist of whole chunks (or shards) of both arrays if those fit the budget. Otherwise
        whole chunks of this array take precedence over whole chunks of `source`.

        Parameters
        ----------
        source
            Array with the shape of the section.
        key
            Section, as for `read`.

        Returns
        -------
        BlocksReport
            The blocks, how often chunks are decoded and encoded, and a budget with which each chunk is
            coded once.

        Raises
        ------
        UsageError, SectionError, BudgetError
            As for the copy itself.

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
        Return counts and durations of the accesses since the array was opened in this process.

        Returns
        -------
        dict
            ``reads``, ``read_bytes``, ``writes``, ``written_bytes``, ``mapped_bytes``, ``decodes``,
            ``encodes``, ``kept``, ``rounds``: as in `Report`, summed over all accesses.
            ``mapped_written_bytes`` is the part of ``mapped_bytes`` that was copied into mapped files.

            ``read_seconds``, ``write_seconds``, ``flush_seconds``: time spent in these calls by all
            threads, including background requests and loops. If calls overlap, the sum exceeds the
            elapsed time. For a `CollectiveArray` these include collective calls, whose phases on this
            rank are ``agree_seconds`` (exchanging the sections of all ranks, including waiting for late
            ranks), ``plan_seconds``, ``disk_seconds`` (waiting for its own reads and writes),
            ``exchange_seconds`` (copying and messages) and ``wait_seconds`` (waiting for other ranks
            between rounds). A collective call on several arrays counts for the first one.

            Thread time of this process in these accesses, in seconds, summed over threads:
            ``thread_io_seconds`` (system calls that read, write and open files, flushes, and waiting
            for requests in flight; several concurrent requests count once), ``thread_decode_seconds``,
            ``thread_encode_seconds``, ``thread_copy_seconds`` (between buffers, mapped files and your
            memory; for a mapped file this includes page faults, which read the disk) and
            ``thread_plan_seconds``. None of them includes looking up chunks in tables, waiting for
            locks, or work in Python.

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
        told = self.handle.seconds.sum_by_phase(*self.handle.phases)
        return {**self.handle.core.stats(), **told, **self.handle.core.seconds()}

    # Conversion to a NumPy array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(
                "cannot convert an array on disk to a NumPy array without a copy; omit copy="
            )
        if self.nbytes > self.budget:
            needed = self.handle.compute_sufficient_budget(self.nbytes)
            raise budget_error(
                f"{self.path!r} as a NumPy array",
                self.nbytes,
                self.budget,
                needed,
                instead="read a section or iterate with blocks()",
                code="array-too-large",
                path=self.path,
            )
        whole = np.asarray(self.handle.core.read(...))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    # Changing the shape

    def resize(self, shape: int | Sequence[int]) -> None:
        """
        Change the shape on disk, if the format can.

        New elements read as the fill value; elements outside the new shape are lost.

        Parameters
        ----------
        shape
            New length of each axis, in elements. The number of axes cannot change.

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

        def resize() -> None:
            with self.handle.growing("resize") as array:
                check_seen(self.handle.info, array.info, shape)
                self.handle.adopt(
                    formats.resize(array.info, shape, partial(refill, self.handle.core))
                )

        self.handle.finish_writes("resize")
        _core.whole_in_turn(resize)

    def append(self, data: Any, axis: SupportsIndex = 0) -> None:
        """
        Extend the array along `axis` and write `data` there.

        The append is atomic for readers and crashes: the new elements are durable before the file
        records the new length. In a NetCDF4 file an unlimited dimension grows for all variables that
        use it; the other variables read as their fill value there.

        Parameters
        ----------
        data
            Elements to append, cast as on assignment: an array whose other axes match, or with one axis
            less, which is one entry along `axis`.
        axis
            Axis to extend.

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
        data = convert_elements(self.handle.info, data)  # may read from this file

        def append() -> None:
            with self.handle.growing("append to") as array:
                growth = plan_append(array.info, data, axis)
                longer = self.handle.core.beside(array.reserve(growth.shape))
                try:
                    longer.write(growth.key, growth.data)
                    longer.flush(True)
                finally:
                    longer.close()
                self.handle.adopt(array.finish())

        self.handle.finish_writes("append to")
        _core.whole_in_turn(append)

    # Flushing and closing

    def flush(self) -> None:
        """
        Wait for started writes, then make everything written durable.

        Raises the error of a started write that no code has seen yet. On disks where requests are
        expensive (``outcore bench`` measures it), pages between sparse writes are rewritten with their
        existing bytes, which makes fewer and larger requests.

        Raises
        ------
        StorageError
            The disk did not accept what was written since the last successful flush, which may be lost.
            Later flushes raise it too; open the array again and repeat the writes. Also if another
            process shortened the file, so that written elements are lost.
        UsageError
            The array was closed, perhaps by another thread, before its writes were flushed.

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

        Raises the error of a started write that no code has seen yet. Does not wait for the disk; see
        `flush`. A temporary array (the result of a computation without ``out=``) is deleted.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (3, 4), "f8")
        >>> a.close()
        >>> a.closed
        True
        """
        self.handle.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C: no code waits for them
            self.handle.requests.abandon()
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        handle = self.handle
        mode = "r+" if handle.writable else "r"
        return (_reopen, (handle.location, mode, handle.hints, handle.reopen_options()))


def _reopen(path: str, mode: Mode, hints: Hints, options: dict[str, Any]) -> DiskArray:
    info = formats.open_info(path, writable=mode != "r", **options)
    return DiskArray(info, mode, hints, options)
