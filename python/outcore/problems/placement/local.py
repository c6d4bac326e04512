"""
Local array of one rank: its properties, and reads and writes of its sections.

Problem: a rank reads and writes sections of its part of a distribution; the elements are stored in its
own file, or scattered over the file of the whole array.
Approach: a key of the local array becomes a section with positive steps. Under local placement the
section is shifted by the width of the overlap area; otherwise each piece of the distribution that
intersects it is a section of the file.
Invariants: elements of other ranks are not written.

Reference: PASSION report, sections 4.1.2 and 4.2.1 (`PASSION_read_section` and similar routines).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.indices.points import check_out
from outcore.arrays.pieces import intersect_pieces
from outcore.base.casting import broadcast_values
from outcore.base.distribution import Distribution, Key
from outcore.base.requests import IORequest
from outcore.base.requests import start as start_io
from outcore.errors import StaysInProcess
from outcore.problems.placement.keys import (
    SectionRows,
    measure_section,
    shift_key,
    straighten,
    view_as_section,
)
from outcore.problems.placement.placed import Placement, PlacementState
from outcore.ranks.transport import Transport

__all__ = ["LocalArray"]


class LocalArray(StaysInProcess):
    """One rank's part of an array on disk; base class of `PlacedArray`."""

    _elsewhere = "send its path, and open it there with outcore.mpi.open_placed"

    def __init__(self, handle: PlacementState) -> None:
        #: State of the rank, for other packages of outcore.
        self.handle = handle

    # Properties

    @property
    def path(self) -> str:
        """Path of the file, or of the folder with the manifest."""
        return self.handle.path

    @property
    def placement(self) -> Placement:
        """``"global"``, ``"local"`` or ``"partitioned"``."""
        return self.handle.placement

    @property
    def distribution(self) -> Distribution:
        """Distribution of the elements over the ranks."""
        return self.handle.distribution

    @property
    def transport(self) -> Transport:
        """Transport that connects the ranks."""
        return self.handle.group

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self.handle.distribution.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.handle.disk.dtype

    @property
    def ghosts(self) -> tuple[tuple[int, int], ...]:
        """Widths of the overlap area: a pair (before, behind) per axis."""
        return self.handle.ghosts

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of the local array of this rank, without its overlap area."""
        return self.handle.own_shape

    def __repr__(self) -> str:
        return (
            f"<PlacedArray {self.path!r}: {self.shape} {self.dtype}, {self.placement}, "
            f"{self.distribution}, rank {self.handle.group.rank}>"
        )

    # Sections of the local array

    def read_section(self, key: Any = ..., *, out: NDArray[Any] | None = None) -> Any:
        """
        Read a section of the local array from disk. Not collective.

        Parameters
        ----------
        key
            Integers, slices and ``...`` that index the local array of this rank, without its overlap
            area.
        out
            Array to fill, with the shape of the result and `dtype`. Default: a new array.

        Returns
        -------
        numpy.ndarray or scalar
            Same result as NumPy indexing of an array in memory.

        Raises
        ------
        SectionError
            The key is not valid for the local array.
        BudgetError
            The memory budget does not hold even one request.

        Notes
        -----
        Memory: the result, which belongs to the caller. With `out` and a key that removes or adds axes,
        a second copy of the section is held and counted. Strided sections are read by data sieving, as
        everywhere. ``PASSION_read_section`` (section 4.2.1).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("field.npy", np.arange(12.0).reshape(3, 4))
        >>> a = outcore.mpi.open_placed("field.npy", outcore.mpi.Distribution((3, 4), ["block", "*"], 1))
        >>> a.read_section(np.s_[1:, 2])
        array([ 6., 10.])
        """
        if self.handle.placement == "local":
            return self.handle.disk.read(
                shift_key(key, self.handle.own_shape, self.handle.lead), out=out
            )
        box, within = straighten(key, self.handle.own_shape)
        if out is None:
            memory = np.empty(measure_section(box), self.dtype, self.handle.order)
            self._read_box(box, memory)
            return memory[within]
        check_out(self, out, SectionRows.of(key, self.handle.own_shape).shape)
        view = view_as_section(out, within)
        if view is not None:
            self._read_box(box, view)
            return out
        nbytes = math.prod(measure_section(box)) * self.dtype.itemsize
        with _core.Reservation("a section of a placed array", nbytes):
            memory = np.empty(measure_section(box), self.dtype, self.handle.order)
            self._read_box(box, memory)
            out[...] = memory[within]
        return out

    def iread_section(self, key: Any = ..., *, out: NDArray[Any] | None = None) -> IORequest[Any]:
        """
        Start to read a section of the local array. Not collective.

        Parameters
        ----------
        key, out
            As for `read_section`.

        Returns
        -------
        IORequest
            Request whose `wait` returns the result of `read_section`.

        Notes
        -----
        ``PASSION_prefetch_read`` and, as `wait`, ``PASSION_prefetch_wait`` (section 4.5.2).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("field.npy", np.arange(12.0).reshape(3, 4))
        >>> a = outcore.mpi.open_placed("field.npy", outcore.mpi.Distribution((3, 4), ["block", "*"], 1))
        >>> request = a.iread_section(2)
        >>> request.wait()
        array([ 8.,  9., 10., 11.])
        """
        what = f"read from {self.path!r}"
        return self._begin(start_io(lambda: self.read_section(key, out=out), what, reads=True))

    def write_section(self, key: Any, value: Any) -> None:
        """
        Write a section of the local array. Not collective.

        Parameters
        ----------
        key
            Section to write, as for `read_section`.
        value
            Value, broadcast to the section and cast to `dtype` as NumPy does.

        Raises
        ------
        SectionError, UsageError
            The key is not valid for the local array, or the value does not fit.

        Notes
        -----
        ``PASSION_write_section`` (section 4.2.1). Under global placement in a chunked format, ranks
        write shared chunks one after another; `write_slab` under partitioned placement does not have
        this cost.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> rows = outcore.mpi.Distribution((3, 4), ["block", "*"], 1)
        >>> a = outcore.mpi.create_placed("field.npy", rows, "f8", placement="global")
        >>> a.write_section(np.s_[1], [1, 2, 3, 4])
        >>> a.read_section(np.s_[:, 3])
        array([0., 4., 0.])
        """
        if self.handle.placement == "local":
            self.handle.disk.write(shift_key(key, self.handle.own_shape, self.handle.lead), value)
            return
        box, within = straighten(key, self.handle.own_shape)
        nbytes = math.prod(measure_section(box)) * self.dtype.itemsize
        with _core.Reservation("a value for a placed array", nbytes):
            memory = np.empty(measure_section(box), self.dtype, self.handle.order)
            section = memory[(*within, ...)]
            section[...] = broadcast_values(value, self.dtype, section.shape, self.path)
            self._write_box(box, memory)

    def iwrite_section(self, key: Any, value: Any) -> IORequest[None]:
        """
        Start to write a section of the local array. Not collective.

        Parameters
        ----------
        key, value
            As for `write_section`. Do not change `value` before the request is done.

        Returns
        -------
        IORequest
            Request whose `wait` returns when the elements are in the file; `flush_all` and `close` also
            wait for it.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> rows = outcore.mpi.Distribution((3, 4), ["block", "*"], 1)
        >>> a = outcore.mpi.create_placed("field.npy", rows, "f8", placement="global")
        >>> a.iwrite_section(np.s_[1], np.arange(4.0)).wait()
        >>> a.read_section(np.s_[1, 3])
        np.float64(3.0)
        """
        request = start_io(lambda: self.write_section(key, value), f"write to {self.path!r}")
        return self._begin(request, writes=True)

    def _begin(self, request: IORequest[Any], *, writes: bool = False) -> IORequest[Any]:
        self.handle.requests.keep(request, writes=writes)
        return request

    def _read_box(self, box: Key, memory: NDArray[Any]) -> None:
        for section, place in intersect_pieces(*self.handle.pieces, box):
            self.handle.disk.read(section, out=memory[place])

    def _write_box(self, box: Key, memory: NDArray[Any]) -> None:
        for section, place in intersect_pieces(*self.handle.pieces, box):
            self.handle.disk.write(section, memory[place])
