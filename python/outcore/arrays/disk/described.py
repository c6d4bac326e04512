"""
Properties of arrays and groups on disk.

Problem: arrays of elements, arrays of text, disk resident arrays, and groups have properties in common.
Users of zarr expect ``a.shards``, users of h5py ``a.maxshape``, and notebooks a table.
Approach: all properties are derived from the description by the format (`ArrayInfo`, `GroupInfo`).
Invariants: nothing is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import outcore
from outcore import formats
from outcore.base.closable import Closable
from outcore.base.hints import Hints
from outcore.base.report import format_bytes, format_count
from outcore.errors import UsageError
from outcore.formats.layout import ArrayInfo, Chunked, ShardSource

if TYPE_CHECKING:
    from outcore.arrays.disk.array import DiskArray

__all__ = ["ArrayOnDisk", "DescribedArray", "OnDisk"]

_HEAD = "text-align:left;padding:1px 12px 1px 0"


class OnDisk(Closable):
    """
    Properties of a group or an array on disk: its path, its format, and how it was opened.

    Examples
    --------
    >>> import outcore
    >>> run = outcore.open_group("run.h5", "w")
    >>> run.path, run.format, run.writable
    ('run.h5', 'hdf5', True)
    """

    @property
    def info(self) -> Any:
        """Description by the format."""
        raise NotImplementedError

    @property
    def path(self) -> str:
        """Path for `open` (or `open_group`), including the path within a group."""
        path: str = self.info.path
        return path

    @property
    def format(self) -> str:
        """Name of the file format."""
        format: str = self.info.format
        return format

    @property
    def mode(self) -> str:
        """
        Mode of opening: ``"r"``, ``"r+"``, ``"w"``, ``"x"`` or ``"a"``.

        For an array opened with ``"a"`` it is ``"r+"``.
        """
        raise NotImplementedError

    @property
    def writable(self) -> bool:
        """True if the array or group can be changed."""
        return self.mode != "r"

    @property
    def hints(self) -> Hints:
        """Hints of this array, or of the arrays opened through this group."""
        raise NotImplementedError

    def _rows(self) -> Iterable[tuple[str, str]]:
        """Return names and texts of the properties that a notebook shows."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return a table for notebooks, without reading elements."""
        from html import escape

        rows = (
            f"<tr><th style='{_HEAD}'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self._rows()
        )
        return f"<table class='outcore'>{''.join(rows)}</table>"


class ArrayOnDisk(OnDisk):
    """
    Properties of any array on disk.

    Examples
    --------
    >>> import outcore
    >>> a = outcore.create("field.zarr", (100, 60), "f4", chunks=(10, 10))
    >>> a.shape, a.size, a.nbytes, a.chunks
    ((100, 60), 6000, 24000, (10, 10))
    """

    @property
    def info(self) -> ArrayInfo:
        """Description of the array by its format."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.info.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements, in the byte order of the file, as a `numpy.dtype`."""
        return self.info.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.info.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.info.shape)

    @property
    def nbytes(self) -> int:
        """Size of all decoded elements in bytes; for text of variable length, excluding the text."""
        return self.size * self.dtype.itemsize

    @property
    def order(self) -> str:
        """``"C"`` if the last axis varies fastest in the file (in a chunk), ``"F"`` for the first."""
        return self.info.order

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Shape of a chunk; None if the array is not chunked."""
        layout = self.info.layout
        return layout.chunks if isinstance(layout, Chunked) else None

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """Names of the axes, or None if the file has none."""
        return self.info.dims

    def __bool__(self) -> bool:
        """Return whether the single element is true; several elements raise, as in NumPy."""
        if self.size != 1:
            held = f"{self.size} elements" if self.size else "no elements"
            raise UsageError(
                f"the truth value of {self.path!r} with {held} is ambiguous; use outcore.any(a) or "
                "outcore.all(a)",
                code="ambiguous-truth",
            )
        return bool(cast("DiskArray", self)[(0,) * self.ndim])


class DescribedArray(ArrayOnDisk):
    """
    Properties of an array of elements on disk.

    Examples
    --------
    >>> import outcore
    >>> a = outcore.create("field.zarr", (100, 100), "f4", chunks=(10, 10), shards=(50, 50))
    >>> a.shards, a.maxshape
    ((50, 50), (None, None))
    """

    @property
    def shards(self) -> tuple[int, ...] | None:
        """
        Shape of a shard (a file of several chunks) in elements, as in zarr; None without shards.

        Examples
        --------
        >>> import outcore
        >>> a = outcore.create("field.zarr", (100, 100), "f4", chunks=(10, 10), shards=(50, 50))
        >>> a.chunks, a.shards
        ((10, 10), (50, 50))
        """
        layout = cast("DiskArray", self).info.layout
        if not (isinstance(layout, Chunked) and isinstance(layout.source, ShardSource)):
            return None
        pairs = zip(layout.chunks, layout.source.per_shard, strict=True)
        return tuple(chunk * count for chunk, count in pairs)

    @property
    def maxshape(self) -> tuple[int | None, ...]:
        """
        Maximum length of each axis for `resize` and `append`, None if unlimited, as in h5py.

        An axis of fixed length has its current length. Zarr arrays can grow along all axes; dense files
        (``.npy``, raw, parts) along the axis that varies slowest; HDF5 and NetCDF4 as specified at
        creation.

        Examples
        --------
        >>> import outcore
        >>> outcore.create("field.npy", (3, 4), "f4").maxshape
        (None, 4)
        >>> outcore.create("field.h5", (3, 4), "f4", chunks=2, maxshape=(9, None)).maxshape
        (9, None)
        """
        return _get_limits(cast("DiskArray", self).info)

    @property
    def codecs(self) -> tuple[str, ...]:
        """
        Names of the codecs that encode a chunk, in order of application; empty without codecs.

        Examples
        --------
        >>> import outcore
        >>> outcore.create("field.zarr", (9, 9), "f4", chunks=3, compression="zstd").codecs
        ('zstd',)
        """
        layout = cast("DiskArray", self).info.layout
        return tuple(codec.name for codec in layout.codecs) if isinstance(layout, Chunked) else ()

    @property
    def layout(self) -> outcore.mpi.ResidentLayout:
        """
        Layout on disk and the reason for it.

        `str` shows the comparison made by ``create(..., chunks="auto")``.

        Examples
        --------
        >>> import outcore
        >>> options = {"chunks": "auto", "typical_sections": (500, 500)}
        >>> a = outcore.create("field.zarr", (4000, 6000), "f4", **options)
        >>> a.layout.chunks == a.chunks, a.layout.typical_sections
        (True, (((500, 500), 1),))
        """
        from outcore.arrays.layouts import ResidentLayout  # rarely needed

        array = cast("DiskArray", self)
        if array.handle.layout_choice is not None:
            return replace(array.handle.layout_choice, format=array.format, chunks=array.chunks)
        return ResidentLayout(array.format, array.order, array.chunks, "as it was made")

    def _rows(self) -> Iterable[tuple[str, str]]:
        array = cast("DiskArray", self)
        yield "path", array.path
        yield "shape", _format_shape(array.shape)
        yield "dtype", str(array.dtype)
        yield "bytes", format_bytes(array.nbytes)
        yield "format", f"{array.format}, order {array.order}"
        if array.chunks is not None:
            pairs = zip(array.shape, array.chunks, strict=True)
            number = math.prod(-(-n // chunk) for n, chunk in pairs)
            each = format_bytes(math.prod(array.chunks) * array.dtype.itemsize)
            yield (
                "chunks",
                f"{_format_shape(array.chunks)}: {format_count(number, 'chunk')} of {each}",
            )
        if self.shards is not None:
            yield "shards", _format_shape(self.shards)
        if self.codecs:
            yield "codecs", ", ".join(self.codecs)
        if array.dims is not None:
            yield "dims", ", ".join("-" if name is None else name for name in array.dims)
        if array.fill_value is not None:
            yield "fill value", f"{array.fill_value}"
        yield "mode", f"{array.mode}, closed" if array.closed else array.mode


def _format_shape(lengths: tuple[int, ...]) -> str:
    return " x ".join(map(str, lengths)) or "()"


def _get_limits(info: ArrayInfo) -> tuple[int | None, ...]:
    told: Any = info.extra.get("maxshape")
    if told is not None:
        # The axes of a subarray dtype follow those of the dataset.
        return (*told, *info.shape[len(told) :])
    if not formats.is_resizable(info):
        return info.shape
    if isinstance(info.layout, Chunked):
        return (None,) * len(info.shape)
    # A dense file grows at its end.
    slow = 0 if info.order == "C" else len(info.shape) - 1
    return tuple(None if axis == slow else n for axis, n in enumerate(info.shape))
