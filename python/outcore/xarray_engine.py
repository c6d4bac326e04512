"""
xarray engine: ``xarray.open_dataset(path, engine="outcore")``.

Problem: xarray provides labels, coordinates and CF conventions; outcore only has to provide the elements
from disk.
Approach: an entry point (``xarray.backends``). One visit of the file lists the contents of a group
(`outcore.formats.groups`). Each array becomes a variable whose elements a `DiskArray` (for text, a
`StringArray`) reads on demand, with the keys that xarray passes (basic, outer, vectorised). xarray
decodes CF attributes (`mask_and_scale`, times, characters); outcore returns the stored values. The
library of the format, h5py or zarr, reads arrays that outcore cannot read, also lazily.

Text has the same types as in xarray's own engines: NumPy's variable-length strings for Zarr; for HDF5
and NetCDF4, strings as long as the longest element, which requires xarray to read all of them on
opening. Large arrays of text are an exception: their elements are objects and stay on disk.

Invariants: opening reads metadata and, as xarray does, the coordinates that become indexes and small
arrays of text; no other elements. Variables may be read from several threads. A copy in another process
opens the file again, and so does reading a variable of a closed dataset, as with xarray's own engines.

Reference: xarray's "How to add a new backend".
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from xarray import Dataset, DataTree, Variable
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.backends.common import datatree_from_dict_with_io_cleanup
from xarray.backends.store import StoreBackendEntrypoint
from xarray.coding import strings
from xarray.core import indexing

from outcore import _core, formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.strings import StringArray, Way
from outcore.base.hints import Hints
from outcore.base.requests import start
from outcore.errors import (
    FormatError,
    OutcoreError,
    PathTypeError,
    StorageError,
    UnsupportedError,
)
from outcore.formats import groups as of_formats
from outcore.formats.format import HasLibrary, ServesXarray
from outcore.formats.layout import ArrayInfo, Chunked
from outcore.formats.members import Member, Members
from outcore.formats.paths import is_remote, one_name
from outcore.formats.texts import OBJECT, Texts

__all__ = ["OutcoreBackendEntrypoint"]

# Contiguous arrays with more bytes than this are offered to dask in slabs of about this size.
_SLAB = 128 * 2**20
# Arrays of text with more elements than this do not become fixed-width strings.
_FIXED = 2**16
# Bytes that the HDF5 library may use in addition to a result: its chunk cache.
_LIBRARY = 2**20


class _LazyElements(BackendArray):
    """Elements of a variable, read by outcore."""

    def __init__(self, array: Any) -> None:
        # Not `array`: xarray takes an attribute of that name for a wrapped array.
        self._array = array
        self._told = array.shape, array.dtype
        self.shape = array.shape
        self.dtype = array.dtype

    def _open(self) -> Any:
        """Return the array; open it again if its dataset was closed."""
        array = self._array
        if array.closed:
            make, given = array.__reduce__()
            array = make(*given)
            if (array.shape, array.dtype) != self._told:
                array.close()
                raise FormatError(
                    f"{array.path!r} has changed since its dataset was opened: shape {array.shape}, "
                    f"{array.dtype}, not {self._told[0]}, {self._told[1]}; open the dataset again",
                    code="file-changed",
                    path=array.path,
                )
            self._array = array
        return array

    def close(self) -> None:
        self._array.close()

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        array = self._open()
        method = array.__getitem__
        if isinstance(key, indexing.VectorizedIndexer):
            method = array.vindex.__getitem__
        elif isinstance(key, indexing.OuterIndexer):
            method = array.oindex.__getitem__
        support = indexing.IndexingSupport.VECTORIZED
        return indexing.explicit_indexing_adapter(key, self.shape, support, method)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        return await start(lambda: self[key], f"read of {self._array.path!r}", reads=True)


class _LazyText(_LazyElements):
    """Elements of a variable of text, or bytes, of variable length."""

    def __init__(self, array: StringArray) -> None:
        super().__init__(array)
        #: References to elements support every index; text in chunks supports only sections.
        self._references = isinstance(array.info, Texts) and array.info.has_references
        self.fixed = False
        if self._references:
            self.dtype = strings.create_vlen_dtype(str)  # type: ignore[no-untyped-call]
            self.fixed = array.size <= _FIXED and OBJECT * array.size + array.text_bytes() <= (
                array.budget // 2
            )

    def missing(self) -> str | bytes | None:
        """Return the fill value in a Zarr document."""
        return self._array.fill_value if self._array.info.stated else None

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        array = self._open()
        way: Way | None = None
        support = indexing.IndexingSupport.BASIC
        if self._references:
            support = indexing.IndexingSupport.VECTORIZED
            if isinstance(key, indexing.VectorizedIndexer):
                way = "vindex"
            elif isinstance(key, indexing.OuterIndexer):
                way = "oindex"

        def read(chosen: tuple[Any, ...]) -> Any:
            kind = object if self.dtype.kind == "O" else self.dtype
            return np.asarray(array.read_as(chosen, np.dtype(kind), way), kind)

        return indexing.explicit_indexing_adapter(key, self.shape, support, read)


class _LibraryElements(BackendArray):
    """Elements of a variable that outcore cannot read, read by h5py or zarr."""

    def __init__(self, member: Member, format: HasLibrary) -> None:
        self.path, self.format = member.path, format
        with self._open() as array:
            self.shape = tuple(array.shape)
            self.dtype = array.dtype
            self.text = format.is_library_text(array)
            chunks = getattr(array, "chunks", None) or ()
            self.held = _LIBRARY + math.prod(chunks) * array.dtype.itemsize
        if self.text:
            self.dtype = strings.create_vlen_dtype(str)  # type: ignore[no-untyped-call]

    def _open(self) -> contextlib.AbstractContextManager[Any]:
        return self.format.open_by_library(*formats.split_path(self.path))

    def _read(self, key: tuple[Any, ...]) -> Any:
        with _core.Reservation("what a library reads", self.held), self._open() as array:
            if self.text and hasattr(array, "asstr"):
                array = array.asstr()
            found = array[key]
        return np.asarray(found, object) if self.text else found

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.BASIC
        if self.format.library_indexing == "outer":
            support = indexing.IndexingSupport.OUTER_1VECTOR
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)


class _UnreadableElements(BackendArray):
    """Elements of a variable that neither outcore nor the library of the format can read."""

    def __init__(self, name: str, member: Member, dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = member.shape, dtype
        self._name, self._path, self._refused = name, member.path, member.refused

    def error(self) -> OutcoreError:
        """Return the error that explains why they cannot be read."""
        refused = self._refused
        told = refused.message if refused is not None else "it has no elements"
        kinds = (UnsupportedError, FormatError, StorageError)
        kind = next((one for one in kinds if isinstance(refused, one)), UnsupportedError)
        return kind(
            f"variable {self._name!r} cannot be read: {told}. Omit it with "
            f"drop_variables=[{self._name!r}]",
            code=refused.code if refused is not None else "hdf5-null",
            path=self._path,
        )

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        raise self.error() from self._refused


class _Arrays(list[_LazyElements]):
    """Arrays that a dataset, and its copies in other processes, must close."""

    def close(self) -> None:
        for array in self:
            array.close()


class _Store(AbstractDataStore):
    """Group in the form that xarray's decoder expects."""

    def __init__(self, group: Members, hints: Hints, *, mask: bool | None) -> None:
        self._group, self._format = group, formats.get_format(group.format)
        self._serves = self._format if isinstance(self._format, ServesXarray) else None
        if mask is None:
            mask = self._serves is not None and self._serves.fill_means_missing
        self._mask = mask
        self._names = _PhonyNames(group)
        self.arrays = _Arrays()
        self._variables: dict[str, Variable] = {}
        try:
            for name, member in group.arrays.items():
                self._variables[name] = self._variable(name, member, hints)
        except BaseException:
            self.close()
            raise

    def _variable(self, name: str, member: Member, hints: Hints) -> Variable:
        data: _LazyElements | _LibraryElements | _UnreadableElements
        if member.info is not None:
            # From its name alone it could be taken for HDF5, where NetCDF's lengths do not apply.
            options = {"format": member.info.format}
            if isinstance(member.info, Texts):
                text = StringArray(member.info, hints, options)
                with contextlib.ExitStack() as undo:
                    undo.callback(text.close)
                    data = _LazyText(text)
                    undo.pop_all()
            else:
                data = _LazyElements(DiskArray(member.info, "r", hints, options))
            self.arrays.append(data)
        else:
            data = self._by_library(name, member)
        dims = self._names.of(member)
        attrs, encoding = dict(member.attrs), self._encoding(member, dims, data)
        self._note_fill(member, data, attrs, encoding)
        return Variable(dims, indexing.LazilyIndexedArray(data), attrs, encoding)

    def _by_library(self, name: str, member: Member) -> _LibraryElements | _UnreadableElements:
        if isinstance(member.refused, UnsupportedError) and isinstance(self._format, HasLibrary):
            with contextlib.suppress(Exception):  # outcore's error is more helpful
                return _LibraryElements(member, self._format)
        # As with the libraries, the file opens, and only reading this variable fails.
        data = _UnreadableElements(name, member, member.dtype or np.dtype("f4"))
        if member.dtype is None:
            raise data.error() from member.refused
        return data

    def _note_fill(
        self, member: Member, data: Any, attrs: dict[str, Any], encoding: dict[str, Any]
    ) -> None:
        """Set the attribute by which xarray masks missing values."""
        if member.fill is not None:
            attrs["_FillValue"] = member.fill
        serves = self._serves
        if member.info is None or serves is None or not serves.states_fill:
            return
        missing = data.missing() if isinstance(data, _LazyText) else member.info.fill_value
        if self._mask:
            if missing is not None:
                attrs["_FillValue"] = missing
            return
        if not serves.fill_means_missing:
            encoding["fill_value"] = missing
        if "_FillValue" in attrs:
            from xarray.backends.zarr import FillValueCoder

            attrs["_FillValue"] = FillValueCoder.decode(attrs["_FillValue"], data.dtype)

    def _encoding(
        self,
        member: Member,
        dims: tuple[str, ...],
        data: _LazyElements | _LibraryElements | _UnreadableElements,
    ) -> dict[str, Any]:
        """Return the storage of a variable, with the keys of xarray's own engine for the format."""
        encoding: dict[str, Any] = {"source": self._group.file, "original_shape": data.shape}
        info = member.info
        if isinstance(data, _LibraryElements | _UnreadableElements) or info is None:
            is_text = isinstance(data, _LibraryElements) and data.text
            encoding["dtype"] = str if is_text else data.dtype
            return encoding
        chunks = info.layout.chunks if isinstance(info.layout, Chunked) else None
        if isinstance(data, _LazyText):
            encoding["dtype"] = str if data.fixed else data.dtype
            if data.fixed:
                return encoding
        if self._serves is not None:
            encoding = {**self._serves.get_encoding(info), **encoding}
        preferred = chunks if chunks is not None else _slabs(info)
        if preferred is not None:
            encoding["preferred_chunks"] = dict(zip(dims, preferred, strict=True))
        return encoding

    def get_variables(self) -> Mapping[str, Variable]:
        return self._variables

    def get_attrs(self) -> Mapping[str, Any]:
        return dict(self._group.attrs)

    def get_encoding(self) -> dict[str, Any]:
        used = {dim for variable in self._variables.values() for dim in variable.dims}
        return {"unlimited_dims": set(self._group.unlimited & used)}

    def close(self) -> None:
        self.arrays.close()


def _slabs(info: ArrayInfo) -> tuple[int, ...] | None:
    """Return a shape for efficient reads of a large contiguous array; None if it is small."""
    if math.prod(info.shape) * info.dtype.itemsize <= _SLAB:
        return None
    slowest = list(range(len(info.shape)))
    fastest = slowest[::-1] if info.order == "C" else slowest
    return tuple(_core.slab_shape(info.shape, fastest, _SLAB // info.dtype.itemsize))


class _PhonyNames:
    """
    Names of dimensions for axes that have none: ``phony_dim_0``, ..., as in the NetCDF library.

    Axes of equal length share a name, except axes of the same array.
    """

    def __init__(self, group: Members) -> None:
        self._taken = {dim for member in group.arrays.values() for dim in member.dims or ()}
        self._lengths: dict[str, int] = {}

    def of(self, member: Member) -> tuple[str, ...]:
        """Return the dimensions of an array."""
        found: list[str] = []
        named = member.dims or (None,) * len(member.shape)
        for dim, length in zip(named, member.shape, strict=True):
            found.append(dim if dim is not None else self._name(length, found))
        return tuple(found)

    def _name(self, length: int, used: Collection[str]) -> str:
        for name, known in self._lengths.items():
            if known == length and name not in used:
                return name
        number = len(self._lengths)
        while (name := f"phony_dim_{number}") in self._taken or name in self._lengths:
            number += 1
        self._lengths[name] = length
        return name


class OutcoreBackendEntrypoint(BackendEntrypoint):
    """
    xarray backend for NetCDF, HDF5 and Zarr (version 2 and 3) on local disks, and ``.npy`` files.

    If outcore is installed, ``xarray.open_dataset(path, engine="outcore")`` uses it; the class itself is
    also a valid ``engine``. `open_mfdataset`, `open_dataarray` and `open_datatree` accept both.

    Notes
    -----
    Parameters in addition to those of `xarray.open_dataset`:

    group
        Path of a group in the file, such as ``"/forecast"``. Default: the root.
    format
        Name of the format, if neither the name nor the first bytes of the file identify it.
    hints
        `outcore.Hints`, or a mapping of them; they never change results.
    use_zarr_fill_value_as_mask
        Whether the fill value of a Zarr array means "missing". None: in version 2 only.

    Elements are read within the budget (`outcore.memory`); memory that xarray keeps is the caller's. Not
    collective: each process reads independently.

    References
    ----------
    xarray's "How to add a new backend"; CF conventions 1.11, chapters 2.5 and 8.

    Examples
    --------
    >>> import numpy as np, outcore, xarray
    >>> a = outcore.create("air.nc::/t", data=np.arange(6.0).reshape(2, 3), dims=("y", "x"))
    >>> a.attrs.update(units="K", scale_factor=0.5)
    >>> with xarray.open_dataset("air.nc", engine=OutcoreBackendEntrypoint) as ds:
    ...     ds.t.isel(y=1).values
    array([1.5, 2. , 2.5])
    """

    description = "Open netCDF, HDF5 and Zarr files on local disks using outcore"
    url = "https://docs.xarray.dev/en/stable/internals/how-to-add-new-backend.html"
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """
        Return whether to open a path if the user names no engine.

        xarray asks engines in the order of their names, NetCDF engines first. Files that another
        installed engine opens are left to it: Zarr stores if zarr is installed.

        Parameters
        ----------
        filename_or_obj
            Argument of `xarray.open_dataset`.

        Returns
        -------
        bool
            True for paths of files with the HDF5 signature or the marks of classic NetCDF, and of
            folders with Zarr metadata.
        """
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        path = os.fspath(filename_or_obj)
        if not isinstance(path, str) or is_remote(path):
            return False
        path = one_name(path)
        if not os.path.exists(path):
            return False
        found = formats.find_marked(path)
        return found is not None and isinstance(found, ServesXarray) and found.is_default_engine()

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: bool = True,
        decode_times: Any = True,
        concat_characters: bool = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        format: str | None = None,
        hints: Hints | Mapping[str, Any] | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
    ) -> Dataset:
        """
        Open a group; called by `xarray.open_dataset`.

        Parameters
        ----------
        filename_or_obj
            Path of a file or folder, optionally with the path of a group: ``file.h5::/group``.
        mask_and_scale, decode_times, concat_characters, decode_coords, use_cftime, decode_timedelta
            Options for xarray's decoding; see `xarray.open_dataset`.
        drop_variables
            Names of variables to omit; nothing of them is read.
        group, format, hints, use_zarr_fill_value_as_mask
            See the class.

        Returns
        -------
        xarray.Dataset
            Dataset whose variables are read on demand.

        Raises
        ------
        FormatError
            The group does not exist (``no-such-group``), or the file is damaged.
        UnsupportedError
            Neither outcore nor the library of the format can read a variable.
        StorageError
            The file cannot be opened.

        Examples
        --------
        >>> import outcore, xarray
        >>> outcore.create("run.zarr::/deep/p", (4, 6), "f4", dims=("y", "x")).close()
        >>> OutcoreBackendEntrypoint().open_dataset("run.zarr", group="deep").sizes["x"]
        6
        """
        drop = _names(drop_variables)
        found = of_formats.describe(_local(filename_or_obj), group, format=format, drop=drop)
        return _decode(
            _Store(found, Hints.of(hints), mask=use_zarr_fill_value_as_mask),
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: bool = True,
        decode_times: Any = True,
        concat_characters: bool = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        format: str | None = None,
        hints: Hints | Mapping[str, Any] | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
    ) -> dict[str, Dataset]:
        """
        Open a group and all groups below it; called by `xarray.open_groups`.

        Parameters
        ----------
        filename_or_obj, mask_and_scale, decode_times, concat_characters, decode_coords
            As for `open_dataset`.
        drop_variables, use_cftime, decode_timedelta, group, format, hints
            As for `open_dataset`.
        use_zarr_fill_value_as_mask
            As for `open_dataset`.

        Returns
        -------
        dict
            Dataset of each group, by its path relative to the first one (``"/"``).

        Raises
        ------
        FormatError, UnsupportedError, StorageError
            As for `open_dataset`.

        Examples
        --------
        >>> import outcore, xarray
        >>> outcore.create("run.zarr::/deep/p", (4, 6), "f4", dims=("y", "x")).close()
        >>> list(OutcoreBackendEntrypoint().open_groups_as_dict("run.zarr"))
        ['/', '/deep']
        """
        path, top, drop = _local(filename_or_obj), (group or "").strip("/"), _names(drop_variables)
        datasets: dict[str, Dataset] = {}
        # Each group with the groups above it: a link may point back to one of them.
        pending: list[tuple[str, frozenset[Any]]] = [("", frozenset())]
        try:
            while pending:
                below, above = pending.pop(0)
                found = of_formats.describe(path, f"{top}/{below}", format=format, drop=drop)
                if found.identity in above:
                    continue
                datasets[f"/{below}"] = _decode(
                    _Store(found, Hints.of(hints), mask=use_zarr_fill_value_as_mask),
                    mask_and_scale=mask_and_scale,
                    decode_times=decode_times,
                    concat_characters=concat_characters,
                    decode_coords=decode_coords,
                    drop_variables=drop_variables,
                    use_cftime=use_cftime,
                    decode_timedelta=decode_timedelta,
                )
                above |= {found.identity}
                pending += [(f"{below}/{name}".strip("/"), above) for name in found.groups]
        except BaseException:
            for dataset in datasets.values():
                dataset.close()
            raise
        return datasets

    def open_datatree(
        self, filename_or_obj: Any, *, group: str | None = None, **options: Any
    ) -> DataTree:
        """
        Open a group and all groups below it as a tree; called by `xarray.open_datatree`.

        Parameters
        ----------
        filename_or_obj, group, options
            As for `open_groups_as_dict`.

        Returns
        -------
        xarray.DataTree
            Tree with a node for each group.

        Raises
        ------
        FormatError, UnsupportedError, StorageError
            As for `open_dataset`.

        Examples
        --------
        >>> import outcore, xarray
        >>> outcore.create("run.zarr::/deep/p", (4, 6), "f4", dims=("y", "x")).close()
        >>> OutcoreBackendEntrypoint().open_datatree("run.zarr")["deep/p"].shape
        (4, 6)
        """
        datasets = self.open_groups_as_dict(filename_or_obj, group=group, **options)
        return datatree_from_dict_with_io_cleanup(datasets)


def _decode(store: _Store, **options: Any) -> Dataset:
    """Decode a group with xarray; close it if that fails."""
    try:
        dataset = StoreBackendEntrypoint().open_dataset(store, **options)
    except BaseException:
        store.close()
        raise
    dataset.set_close(store.arrays.close)
    return dataset


def _local(given: Any) -> str:
    """Return the absolute path of a file on a local disk."""
    if not isinstance(given, str | os.PathLike):
        raise PathTypeError(
            f"engine 'outcore' opens paths on local disks, not {type(given).__name__}; pass the path, "
            "or use another engine",
            code="bad-path",
        )
    path = str(os.fspath(given))
    if is_remote(path):
        raise PathTypeError(
            f"engine 'outcore' opens paths on local disks, not {path!r}; copy it first, or use another "
            "engine",
            code="bad-path",
        )
    return os.path.abspath(one_name(path))


def _names(given: str | Iterable[str] | None) -> frozenset[str]:
    if given is None:
        return frozenset()
    return frozenset([given] if isinstance(given, str) else given)
