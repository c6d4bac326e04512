"""
Arrays of text of variable length on disk: `StringArray`.

Problem: names of stations, labels of samples and text coordinates accompany large arrays, and their
elements have no fixed size.
Approach: the stored units of fixed size, references (HDF5, NetCDF4) or encoded chunks (Zarr), are read
like any array. Elements are created from them for the requested section, and their memory is counted
before they are created.

Invariants: ``a[key]`` has the shape that NumPy gives and the elements of the file. It is read within
the memory budget, or `BudgetError` reports a sufficient budget. Nothing is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.disk.described import ArrayOnDisk
from outcore.arrays.pieces import view_upwards
from outcore.base.hints import Hints
from outcore.base.report import Report
from outcore.errors import BudgetError, FormatError, SectionError, StorageError, UsageError
from outcore.formats.layout import ArrayInfo, Chunked, TableSource, make_empty_source
from outcore.formats.texts import (
    EACH,
    OBJECT,
    Texts,
    choose_text_dtype,
    decode_text,
    reserve_text,
    too_large_error,
)

__all__ = ["StringArray", "Way"]

#: Meaning of a key with arrays: as in `DiskArray.oindex` or `DiskArray.vindex`.
Way = Literal["oindex", "vindex"]

# Smallest number of bytes by which the memory counted for text grows.
_PORTION = 1 << 16
# Elements, and bytes of text, that are created at a time.
_AT_ONCE, _TEXT_AT_ONCE = 1 << 14, 4 << 20
# Default number of elements of a block of `StringArray.blocks`.
_BLOCK = 1 << 16


class StringArray(ArrayOnDisk):
    """
    A read-only array of text or bytes of variable length on disk, created by `outcore.open`.

    Indexing reads: ``a[10:20]`` is a new `numpy.ndarray` of dtype `numpy.dtypes.StringDType`, or a
    ``str`` if the key has an integer for every axis. Each rank reads independently; collective calls,
    computations and conversion need arrays with elements of fixed size.

    Notes
    -----
    Memory: a result takes 16 bytes per element and its text, in addition to the buffers for reading
    references or a chunk. All of it counts in the memory budget while the result is created.

    Examples
    --------
    >>> import h5py, outcore
    >>> with h5py.File("stations.h5", "w") as file:
    ...     file["name"] = ["Zürich", "Bern", "Genève"]
    >>> a = outcore.open("stations.h5")
    >>> a.shape, a[1], [str(one) for one in a[::2]]
    ((3,), 'Bern', ['Zürich', 'Genève'])
    """

    def __init__(self, info: Texts, hints: Hints, options: Mapping[str, Any]) -> None:
        self._info, self._hints, self._options = info, hints, dict(options)
        told = info
        if info.chunk is not None:
            # An empty array of the same shape interprets the keys.
            assert isinstance(info.layout, Chunked)
            source: Any = info.layout.source
            file = source.path if isinstance(source, TableSource) else source.lock
            empty = make_empty_source(file)
            told = replace(info, layout=replace(info.layout, codecs=(), source=empty))
        self._stored = DiskArray(told, "r", hints, options)

    # Properties

    @property
    def mode(self) -> str:
        """``"r"``: arrays of text are read-only."""
        return "r"

    @property
    def hints(self) -> Hints:
        """Hints of the array."""
        return self._hints

    @property
    def dtype(self) -> np.dtype[Any]:
        """`numpy.dtypes.StringDType`; object if the elements are bytes."""
        return choose_text_dtype(self._info.encoding)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """User attributes stored with the array, read-only."""
        return self._stored.attrs

    @property
    def fill_value(self) -> str | bytes:
        """Value of elements that were never written."""
        return self._decode(self._info.missing)

    @property
    def info(self) -> ArrayInfo:
        """Description of the array by its format, as an array of references or of encoded chunks."""
        return self._info

    @property
    def closed(self) -> bool:
        """True after `close` was called."""
        return self._stored.closed

    @property
    def budget(self) -> int:
        """Bytes of buffers that one operation may use now (`outcore.memory`, `Hints.memory`)."""
        return self._stored.budget

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return (
            f"<StringArray {self.path!r}: shape {self.shape}, {self.dtype}, {self.format}, "
            f"mode 'r'{state}>"
        )

    # Reading

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise UsageError(
            f"cannot write to {self.path!r}: outcore only reads text of variable length; write it "
            "with h5py, netCDF4 or zarr",
            code="read-only",
            path=self.path,
        )

    def read(self, key: Any = ..., *, dtype: DTypeLike | None = None) -> Any:
        """
        Read a section into memory.

        Parameters
        ----------
        key
            Section to read, as for `DiskArray.read`. For a Zarr array, keys with arrays read the whole
            array.
        dtype
            Dtype of the result: ``object`` for an array of ``str``; by default
            `numpy.dtypes.StringDType`.

        Returns
        -------
        numpy.ndarray or str
            New array in C order; a ``str`` (``bytes`` for an array of bytes) if the key has an integer
            for every axis.

        Raises
        ------
        SectionError
            As for `DiskArray.read`.
        UsageError
            `dtype` is another dtype, or the array is closed.
        BudgetError
            ``array-too-large``: the text does not fit the memory budget; ``needed`` is a sufficient
            budget.
        FormatError
            A chunk or reference is damaged; ``bad-text``: an element is not valid UTF-8.
        StorageError
            The file could not be read.

        Examples
        --------
        >>> import h5py, outcore
        >>> with h5py.File("stations.h5", "w") as file:
        ...     file["name"] = ["Bern", "Basel"]
        >>> outcore.open("stations.h5").read(slice(1, None), dtype=object)
        array(['Basel'], dtype=object)
        """
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        if wanted != self.dtype and wanted != np.dtype(object):
            raise UsageError(
                f"{self.path!r}: read() returns {self.dtype} or object, not {wanted}; convert the "
                "result",
                code="bad-dtype",
                path=self.path,
            )
        return self._read(key, wanted, self._decode)

    def read_bytes(self, key: Any = ...) -> Any:
        r"""
        Read a section as stored bytes, whatever the encoding.

        Parameters
        ----------
        key
            As for `read`.

        Returns
        -------
        numpy.ndarray or bytes
            Array of dtype object whose elements are ``bytes``.

        Raises
        ------
        SectionError, UsageError, BudgetError, FormatError, StorageError
            As for `read`, except ``bad-text``.

        Examples
        --------
        >>> import h5py, outcore
        >>> with h5py.File("stations.h5", "w") as file:
        ...     file["name"] = ["Zürich"]
        >>> outcore.open("stations.h5").read_bytes(0)
        b'Z\xc3\xbcrich'
        """
        return self._read(key, np.dtype(object), bytes)

    def explain(self, key: Any = ...) -> Report:
        """
        Report what reading the references of a section would do, without doing it.

        Parameters
        ----------
        key
            As for `read`.

        Returns
        -------
        Report
            Counts for the references (HDF5, NetCDF4); the size of their text is known only after
            reading them. For a Zarr array the counts are zero: whole chunks are read and decoded.

        Examples
        --------
        >>> import h5py, outcore
        >>> with h5py.File("stations.h5", "w") as file:
        ...     file["name"] = ["Bern", "Basel"]
        >>> outcore.open("stations.h5").explain().useful_bytes
        32
        """
        return self._stored.explain(key)

    def blocks(self, rows: int | None = None) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
        """
        Iterate over the array in slabs across its first axis.

        Parameters
        ----------
        rows
            Number of indices of the first axis in a slab; by default whole chunks of about 65536
            elements.

        Returns
        -------
        iterator of (tuple of slice, numpy.ndarray)
            Position of each slab, and its elements.

        Raises
        ------
        BudgetError
            A slab does not fit the memory budget; pass fewer rows.

        Examples
        --------
        >>> import h5py, outcore
        >>> with h5py.File("stations.h5", "w") as file:
        ...     file["name"] = ["Bern", "Basel", "Chur"]
        >>> [data.tolist() for _, data in outcore.open("stations.h5").blocks(rows=2)]
        [['Bern', 'Basel'], ['Chur']]
        """
        if not self.shape:
            yield (), np.asarray(self.read(...), self.dtype)
            return
        yield from ((key, self.read(key)) for key in self._iterate_slabs(rows))

    def _iterate_slabs(self, rows: int | None = None) -> Iterator[tuple[slice, ...]]:
        others = max(self.size // max(self.shape[0], 1), 1)
        if rows is None:
            unit = self.chunks[0] if self.chunks else 1
            rows = max(_BLOCK // others // unit, 1) * unit
        if rows < 1:
            raise UsageError(
                f"blocks: rows={rows} is not valid; pass at least 1", code="bad-blocks"
            )
        for low in range(0, self.shape[0], rows):
            behind = (slice(0, n) for n in self.shape[1:])
            yield slice(low, min(low + rows, self.shape[0])), *behind

    def __iter__(self) -> Iterator[Any]:
        """Iterate over rows, read in slabs."""
        if not self.shape:
            raise TypeError("iteration over an array without axes")
        return (row for _, data in self.blocks() for row in data)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(
                "cannot convert an array on disk to a NumPy array without a copy; omit copy="
            )
        whole = np.asarray(self.read(...), self.dtype)
        return whole if dtype is None else whole.astype(dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(DiskArray, name):
            raise AttributeError(f"a StringArray has no attribute {name!r}")
        raise AttributeError(
            f"{self.path!r} is text of variable length, which has no {name}; read a section and use "
            "NumPy"
        )

    # Internal methods

    def damages(self) -> Iterator[tuple[tuple[slice, ...], FormatError | StorageError]]:
        """Iterate over the slabs that cannot be read and their errors, for `outcore.verify`."""
        for key in self._iterate_slabs() if self.shape else [()]:
            try:
                self.read(key)
            except (FormatError, StorageError) as error:
                yield key, error

    def read_as(self, key: Any, dtype: np.dtype[Any], way: Way | None) -> Any:
        """
        Read elements of another type with another kind of key, for the engine of xarray.

        Parameters
        ----------
        key
            Section to read.
        dtype
            Dtype of the result: object, or `numpy.dtypes.StringDType`.
        way
            Attribute that interprets the key, ``"oindex"`` or ``"vindex"``; None: as ``a[key]``.
        """
        return self._read(key, dtype, self._decode, way)

    def text_bytes(self) -> int:
        """Return the size of the text of all elements in bytes; reads all references."""
        assert self._info.lengths is not None
        return self._info.lengths(np.asarray(self._stored[...]).reshape(-1))

    def _decode(self, raw: bytes) -> str | bytes:
        return raw if self._info.encoding is None else decode_text(self._info, raw)

    def _read(self, key: Any, dtype: np.dtype[Any], one: Any, way: Way | None = None) -> Any:
        if self._info.elements is not None:
            ways: dict[Way | None, Any] = {
                None: self._stored,
                "oindex": self._stored.oindex,
                "vindex": self._stored.vindex,
            }
            found = ways[way][key]
            if isinstance(found, np.ndarray):
                return self._make_elements(found, dtype, one)
            return self._make_elements(np.asarray(found), dtype, one)[()]
        try:
            section, axes, scalar = self._stored.handle.core.section_of(key)
        except SectionError as error:
            if error.code not in ("fancy-index", "bad-index") or key is ...:
                raise
            # NumPy itself raises the error for an invalid key.
            return self._read_whole(key, dtype, one, error)
        self._stored.handle.check_open()
        shape = tuple(section[3 * axis[0] + 1] if axis else 1 for axis in axes)
        result = _create_empty(shape, dtype)
        self._fill_from_chunks(section, view_upwards(result, axes, self.ndim), one)
        return result[()] if scalar else result

    def _read_whole(self, key: Any, dtype: np.dtype[Any], one: Any, refused: SectionError) -> Any:
        whole = self._read(..., dtype, one)
        try:
            return whole[key]
        except IndexError as error:
            raise SectionError(
                f"{self.path!r}: {error}", code=refused.code, path=self.path
            ) from error

    def _make_elements(
        self, references: NDArray[Any], dtype: np.dtype[Any], one: Any
    ) -> NDArray[Any]:
        """Create elements from references, in portions."""
        info = self._info
        assert info.elements is not None and info.lengths is not None
        flat = references.reshape(-1)
        text = info.lengths(flat)
        each = OBJECT if dtype == np.dtype(object) else EACH
        size = len(flat)
        # In addition to the result: one portion of elements as objects, and their text.
        beside = OBJECT * min(size, _AT_ONCE) + min(text, _TEXT_AT_ONCE)
        with reserve_text(self.path, text + each * size + beside + 1, size, size):
            result = _create_empty(flat.shape, dtype)
            low = 0
            while low < size:
                part = flat[low : low + _AT_ONCE]
                while len(part) > 1 and info.lengths(part) > _TEXT_AT_ONCE:
                    part = part[: len(part) // 2]
                result[low : low + len(part)] = _create_objects(
                    map(one, info.elements(part)), len(part)
                )
                low += len(part)
        return result.reshape(references.shape)

    def _fill_from_chunks(self, section: list[int], memory: NDArray[Any], one: Any) -> None:
        """Fill memory with a section from the chunks that overlap it."""
        info, layout = self._info, self._info.layout
        assert isinstance(layout, Chunked) and info.chunk is not None
        ranges = list(zip(section[::3], section[1::3], section[2::3], strict=True))
        if not all(n for _, n, _ in ranges):
            return
        missing = one(info.missing)
        each = OBJECT if memory.dtype == np.dtype(object) else EACH
        # Bytes of the result without text, bytes of text so far, elements so far.
        total, text, done = memory.size, 0, 0
        held = [reserve_text(self.path, each * total + 1, total, total)]
        try:
            cells = (
                range(a // c, (a + (n - 1) * s) // c + 1)
                for (a, n, s), c in zip(ranges, layout.chunks, strict=True)
            )
            for at in itertools.product(*cells):
                both = [
                    _intersect(*words, k * c, c)
                    for words, k, c in zip(ranges, at, layout.chunks, strict=True)
                ]
                if None in both:
                    continue
                there: Any = (*(pair[0] for pair in both if pair), ...)
                place: Any = (*(pair[1] for pair in both if pair), ...)
                taken = sum(some.nbytes for some in held)
                try:
                    found = info.chunk(info, at)
                except BudgetError as error:
                    raise too_large_error(self.path, taken, done, total, error) from None
                if found is None:
                    memory[place] = missing
                    continue
                axes = sorted(range(len(at)), key=lambda d: -layout.strides[d])
                beside = OBJECT * len(found) + sum(map(len, found))
                with reserve_text(self.path, beside + 1, total, total):
                    whole = _create_objects(iter(found), len(found))
                    del found
                    whole = whole.reshape([layout.chunks[d] for d in axes])
                    part = whole.transpose(np.argsort(axes))[there]
                    text += sum(map(len, part.reshape(-1)))
                    done += part.size
                    short = each * total + text - taken
                    if short > 0:
                        held.append(reserve_text(self.path, max(short, _PORTION), done, total))
                    made = _create_objects(map(one, part.reshape(-1)), part.size)
                    memory[place] = made.reshape(part.shape)
        finally:
            for some in held:
                some.release()

    # Flushing and closing

    def flush(self) -> None:
        """
        Do nothing: arrays of text are never written.

        Examples
        --------
        >>> import h5py, outcore
        >>> with h5py.File("stations.h5", "w") as file:
        ...     file["name"] = ["Bern"]
        >>> outcore.open("stations.h5").flush()
        """

    def close(self) -> None:
        """
        Release the files. Closing twice does nothing.

        Examples
        --------
        >>> import h5py, outcore
        >>> with h5py.File("stations.h5", "w") as file:
        ...     file["name"] = ["Bern"]
        >>> a = outcore.open("stations.h5")
        >>> a.close()
        >>> a.closed
        True
        """
        self._stored.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._stored.handle.location, self._hints, self._options)


def _reopen(path: str, hints: Hints, options: dict[str, Any]) -> StringArray:
    info = formats.open_info(path, **options)
    if not isinstance(info, Texts):
        raise StorageError(
            f"{path!r} no longer is text; open it again with outcore.open()",
            code="file-changed",
            path=path,
        )
    return StringArray(info, hints, options)


def _create_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.empty(shape, dtype)


def _create_objects(elements: Iterator[Any], count: int) -> NDArray[Any]:
    """Return an array of objects with one axis."""
    found = np.empty(count, object)
    for k, element in enumerate(elements):
        found[k] = element
    return found


def _intersect(
    start: int, count: int, step: int, low: int, length: int
) -> tuple[slice, slice] | None:
    """Return the intersection of a range and a chunk: its slice in the chunk, and in the range."""
    first = max(-((start - low) // step), 0)
    last = min((low + length - 1 - start) // step, count - 1)
    if last < first:
        return None
    begin = start + first * step - low
    return slice(begin, begin + (last - first) * step + 1, step), slice(first, last + 1)
