"""
What arrays and groups on disk say of themselves.

Problem. Arrays of elements, of text and disk resident ones, and groups, have properties in common. Who
comes from zarr asks for ``a.shards``, from h5py for ``a.maxshape``, and a notebook for a table.
Idea. All of it follows from what the format has told (`ArrayInfo`, `GroupInfo`). Invariants. Nothing is
read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import outcore
from outcore import formats
from outcore.base.hints import Hints
from outcore.base.report import counted, human
from outcore.errors import UsageError
from outcore.formats.layout import ArrayInfo, Chunked, ShardSource

if TYPE_CHECKING:
    from outcore.arrays.disk.array import DiskArray

__all__ = ["ArrayOnDisk", "Described", "OnDisk"]

_HEAD = "text-align:left;padding:1px 12px 1px 0"


class OnDisk:
    """
    What a group or an array on disk says of where it is and how it was opened.

    Examples
    --------
    >>> import outcore
    >>> run = outcore.open_group("run.h5", "w")
    >>> run.path, run.format, run.writable
    ('run.h5', 'hdf5', True)
    """

    @property
    def info(self) -> Any:
        """What the format knows about it."""
        raise NotImplementedError

    @property
    def path(self) -> str:
        """What `open` needs to get this array (`open_group` this group), group path included."""
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
        ``"r"``, ``"r+"``, ``"w"``, ``"x"`` or ``"a"``: as it was opened.

        Of an array opened with ``"a"`` it is ``"r+"``.
        """
        raise NotImplementedError

    @property
    def writable(self) -> bool:
        """Whether anything in it can be changed."""
        return self.mode != "r"

    @property
    def hints(self) -> Hints:
        """The hints that hold for this array, or for those that are opened through this group."""
        raise NotImplementedError


class ArrayOnDisk(OnDisk):
    """
    What any array on disk says of itself.

    Examples
    --------
    >>> import outcore
    >>> a = outcore.create("field.zarr", (100, 60), "f4", chunks=(10, 10))
    >>> a.shape, a.size, a.nbytes, a.chunks
    ((100, 60), 6000, 24000, (10, 10))
    """

    @property
    def info(self) -> ArrayInfo:
        """What the format knows about the array."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.info.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements, in the byte order of the file: a `numpy.dtype`."""
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
        """Bytes of all elements, decoded; of text of variable length without the text."""
        return self.size * self.dtype.itemsize

    @property
    def order(self) -> str:
        """``"C"`` if the last axis runs fastest in the file (in a chunk), ``"F"`` if the first."""
        return self.info.order

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Shape of a chunk; None if the array is stored whole."""
        layout = self.info.layout
        return layout.chunks if isinstance(layout, Chunked) else None

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """Names of the axes, if the file has them."""
        return self.info.dims

    def __bool__(self) -> bool:
        """Return whether its one element is true; several elements are refused, as by NumPy."""
        if self.size != 1:
            held = f"{self.size} elements" if self.size else "no elements"
            raise UsageError(
                f"the truth value of {self.path!r} with {held} is ambiguous; use outcore.any(a) or "
                "outcore.all(a)",
                code="ambiguous-truth",
            )
        return bool(cast("DiskArray", self)[(0,) * self.ndim])


class Described(ArrayOnDisk):
    """
    What an array on disk says of itself.

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
        Shape of a shard, a file of several chunks, in elements; None if there are none. As in zarr.

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
        How long each axis may become by `resize` and `append`; None: without a limit. As in h5py.

        An axis whose length cannot change has the length that it has. Zarr arrays grow along all axes;
        dense files (``.npy``, raw, parts) along the one that runs slowest; HDF5 and NetCDF4 as they
        were created.

        Examples
        --------
        >>> import outcore
        >>> outcore.create("field.npy", (3, 4), "f4").maxshape
        (None, 4)
        >>> outcore.create("field.h5", (3, 4), "f4", chunks=2, maxshape=(9, None)).maxshape
        (9, None)
        """
        return _limits(cast("DiskArray", self).info)

    @property
    def codecs(self) -> tuple[str, ...]:
        """
        Names of the codecs that a chunk passes when it is written, in this order; empty: none.

        Examples
        --------
        >>> import outcore
        >>> outcore.create("field.zarr", (9, 9), "f4", chunks=3, compression="zstd").codecs
        ('zstd',)
        """
        layout = cast("DiskArray", self).info.layout
        return tuple(codec.name for codec in layout.codecs) if isinstance(layout, Chunked) else ()

    @property
    def layout(self) -> outcore.ResidentLayout:
        """
        How it lies on disk, and why: `str` tells what ``create(..., chunks="auto")`` compared.

        Examples
        --------
        >>> import outcore
        >>> a = outcore.create("field.zarr", (4000, 6000), "f4", chunks="auto", typical=(500, 500))
        >>> a.layout.chunks == a.chunks, a.layout.typical
        (True, (((500, 500), 1),))
        """
        from outcore.arrays.layouts import ResidentLayout  # it is seldom asked for

        array = cast("DiskArray", self)
        if array.handle.layout_choice is not None:
            return replace(array.handle.layout_choice, format=array.format, chunks=array.chunks)
        return ResidentLayout(array.format, array.order, array.chunks, "as it was made")

    def _repr_html_(self) -> str:
        """A table for notebooks. Nothing is read for it."""
        from html import escape

        rows = (
            f"<tr><th style='{_HEAD}'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self._rows()
        )
        return f"<table class='outcore-array'>{''.join(rows)}</table>"

    def _rows(self) -> Iterator[tuple[str, str]]:
        array = cast("DiskArray", self)
        yield "path", array.path
        yield "shape", _by(array.shape)
        yield "dtype", str(array.dtype)
        yield "bytes", human(array.nbytes)
        yield "format", f"{array.format}, order {array.order}"
        if array.chunks is not None:
            pairs = zip(array.shape, array.chunks, strict=True)
            number = math.prod(-(-n // chunk) for n, chunk in pairs)
            each = human(math.prod(array.chunks) * array.dtype.itemsize)
            yield "chunks", f"{_by(array.chunks)}: {counted(number, 'chunk')} of {each}"
        if self.shards is not None:
            yield "shards", _by(self.shards)
        if self.codecs:
            yield "codecs", ", ".join(self.codecs)
        if array.dims is not None:
            yield "dims", ", ".join("-" if name is None else name for name in array.dims)
        if array.fill_value is not None:
            yield "fill value", f"{array.fill_value}"
        yield "mode", f"{array.mode}, closed" if array.closed else array.mode


def _by(lengths: tuple[int, ...]) -> str:
    return " x ".join(map(str, lengths)) or "()"


def _limits(info: ArrayInfo) -> tuple[int | None, ...]:
    told: Any = info.extra.get("maxshape")
    if told is not None:
        # A dtype with axes of its own has them behind those of the dataset.
        return (*told, *info.shape[len(told) :])
    if not formats.is_resizable(info):
        return info.shape
    if isinstance(info.layout, Chunked):
        return (None,) * len(info.shape)
    # A dense file grows at its end.
    slow = 0 if info.order == "C" else len(info.shape) - 1
    return tuple(None if axis == slow else n for axis, n in enumerate(info.shape))
