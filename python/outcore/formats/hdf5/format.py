"""
HDF5: addresses from h5py, elements through outcore's own reads and writes.

Problem: HDF5's own data path is single-threaded, copies through a chunk cache, and can neither be
planned nor bounded in memory; but only its library should interpret and change the file's metadata.
Approach: h5py opens the file, returns type, shape, filters, attributes and *where the bytes are*
(contiguous storage, chunk table), and closes it. Elements of contiguous and unencoded datasets are
read and written in place; encoded chunks are stored as they are (`chunks`). New unencoded datasets get
all their space at creation, so that writing them never needs HDF5 again.
Invariants: no handle stays open between calls. Addresses lie inside the file. Elements never written
read as the fill value: because HDF5 fills them, or because the space is new and therefore a hole of
zeros.

Limits: after a kill, a change that HDF5 makes (adding a dataset to a file, resizing, storing encoded
chunks) is complete or absent (`redo`); so are new files. Virtual datasets (`virtual`), text of
variable length (`strings`) and compact datasets are read. Other types of variable length raise an
error with the reason. A file that another file names is only opened if it is a regular file
(`elsewhere`).
The HDF5 library (2.0) trusts what it reads. Heaps of variable-length data, where NetCDF4 stores the
names of axes, are checked before it reads them (`heaps`). With ``OUTCORE_HDF5_GUARD``, a separate
process first meets any other damage that could crash the library (`guard`).

Reference: HDF5 File Format Specification 3.0.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from outcore.errors import UnsupportedError, UsageError
from outcore.formats import durable, texts
from outcore.formats.format import (
    Format,
    GrowsItself,
    HasCodecs,
    HasLibrary,
    KeepsAttributes,
    OpensMany,
    ServesXarray,
    Stages,
)
from outcore.formats.growing import Growing
from outcore.formats.hdf5 import access, create, describe, growing, netcdf_names, redo, virtual
from outcore.formats.hdf5.attrs import write_attrs
from outcore.formats.hdf5.create import Finish
from outcore.formats.hdf5.groups import GroupsOfFile
from outcore.formats.hdf5.guard import rehearse
from outcore.formats.hdf5.library import check_library, h5py
from outcore.formats.hdf5.likeness import read_options
from outcore.formats.hdf5.links import follow
from outcore.formats.hdf5.strings import REFERENCE
from outcore.formats.hdf5.types import add_filter
from outcore.formats.layout import ArrayInfo, Chunked, Codec
from outcore.formats.spec import Entry, Spec

_DEFAULT_NAME = "/data"


class Hdf5(
    GroupsOfFile,
    Format,
    OpensMany,
    GrowsItself,
    KeepsAttributes,
    HasCodecs,
    Stages,
    HasLibrary,
    ServesXarray,
):
    """HDF5 files; `NetCDF4` derives from it."""

    name = "hdf5"
    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".hdf5", ".he5", ".hdf")
    chunk_orders = ("C",)
    library = "h5py"
    library_indexing = "outer"

    def recognise(self, path: str) -> bool:
        """Return whether the file has HDF5's signature."""
        return access.has_signature(path)

    def describe(self, path: str, inner: str | None, writable: bool) -> ArrayInfo:
        """
        Describe one dataset; `inner` is None if the file has only one.

        If `writable`, a contiguous dataset without space in the file gets it now. `UnsupportedError`
        names the feature whose bytes outcore cannot interpret.
        """
        return self.describe_many(path, [inner], writable)[0]

    def describe_many(
        self, path: str, inners: Sequence[str | None], writable: bool
    ) -> list[ArrayInfo]:
        """Describe several datasets of a file, which is opened once."""
        self.check_library(path)
        for inner in inners:
            rehearse(path, inner, "open")
        found: list[tuple[str, ArrayInfo | None]] = []
        with access.open_session(path, "r") as file, describe.Visit(self.name, path) as visit:
            for inner in inners:
                if inner is not None and self.is_netcdf:
                    inner = netcdf_names.find_dataset_name(file, inner)
                name, dset = describe.choose(file, path, inner)
                bare = writable and describe.has_no_space(dset)
                found.append(
                    (name, None if bare else describe.describe(visit, name, dset, writable))
                )
                del dset
        if writable:
            with durable.os_errors("opening for writing", path):
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        return [
            virtual.adopt_source_chunks(info) if info else self._allocate_and_describe(path, name)
            for name, info in found
        ]

    def _allocate_and_describe(self, path: str, name: str) -> ArrayInfo:
        """Allocate space for a dataset that has none, and describe it."""
        with access.open_for_changes(path, name) as file:
            describe.allocate_space(file[name])
        return self.describe(path, name, False)

    def create(
        self,
        path: str,
        inner: str | None,
        spec: Spec,
        *,
        resizable: bool = False,
        maxshape: bool | int | Sequence[int | None] | None = None,
    ) -> ArrayInfo:
        """
        Create a dataset: contiguous without chunks and compression, chunked otherwise.

        Without `inner`, a new file with the dataset ``/data`` replaces an existing file. With `inner`
        the dataset is added to the file, and only a dataset with that name is replaced. `resizable`
        and `maxshape` (True or None: no limit, as in h5py) make it chunked.
        """

        def label(file: Any, dset: Any, name: str) -> None:
            for axis, dim in enumerate(spec.dims or ()):
                if dim is not None:
                    dset.dims[axis].label = dim

        limits = create.parse_limits(path, spec, resizable, maxshape)
        return self.create_dataset(path, inner, spec, limits, label)

    def create_dataset(
        self,
        path: str,
        inner: str | None,
        spec: Spec,
        limits: tuple[int | None, ...] | None,
        finish: Finish,
        stage: Finish | None = None,
        **settings: Any,
    ) -> ArrayInfo:
        """
        Create a dataset within the maximal shape `limits` (None: fixed).

        `finish` completes the dataset; `stage` (by default `finish`) does so for a dataset that gets
        its name later (`publish_dataset`). `settings` go to `h5py.File` if the file is new.
        """
        stage = stage or finish
        check_library(path)
        if spec.order != "C":
            raise UnsupportedError(
                f"{path!r}: HDF5 stores arrays in C order; create the transposed shape "
                f"{spec.shape[::-1]} instead, or use .npy or raw for order 'F'",
                code="cannot-keep",
                path=path,
            )
        if spec.shards is not None:
            raise UnsupportedError(
                f"{path!r}: HDF5 does not support shards; omit them, or use Zarr",
                code="cannot-keep",
                path=path,
            )
        name = inner or _DEFAULT_NAME
        if name.strip("/") == "":
            raise UsageError(
                f"{path!r}: '::' needs the name of a dataset, as in 'file.h5::/name'",
                code="bad-name",
                path=path,
            )
        create.check_name(path, name)
        if inner is not None and os.path.exists(path):
            with access.open_for_changes(path, name) as file:
                create.add_dataset(file, path, name, spec, limits, finish, stage)
        else:
            only_new = spec.exclusive or inner is not None
            with (
                durable.os_errors("creating", path),
                durable.replace_by_library(path, exclusive=only_new) as temporary,
                access.open_session(temporary, "w", **settings) as file,
            ):
                self.mark_root(file)
                create.add_dataset(file, path, name, spec, limits, finish, stage)
        return self.describe(path, name, True)

    def find_staging_path(self, path: str, inner: str) -> str:
        """Return the path of a dataset of an existing file until it gets its name."""
        return f"{path}::{create.to_partial_name(inner)}"

    def publish(self, path: str, inner: str, exclusive: bool) -> None:
        """Give the dataset at `find_staging_path` its name, in place of an older one, in one step."""
        self.publish_dataset(path, inner, exclusive, lambda file, dset, name: None)

    def publish_dataset(
        self,
        path: str,
        inner: str,
        exclusive: bool,
        finish: Finish,
        name_of: Callable[[Any, Any], str] | None = None,
    ) -> None:
        """
        Give a dataset its name after `finish` has completed it.

        `name_of` returns the name, from the open file and the dataset; by default it is `inner`.
        """
        check_library(path)
        with access.open_session(path, "r") as file:
            if create.to_partial_name(inner) not in file:
                return  # an interrupted call has already given it
        with access.open_for_changes(path, create.to_partial_name(inner)) as file:
            partial = create.to_partial_name(inner)
            name = inner if name_of is None else name_of(file, file[partial])
            create.name_dataset(file, path, (partial, name), exclusive, finish)

    def discard(self, path: str, inner: str) -> None:
        """Remove the dataset at `find_staging_path`, if there is one."""
        partial = create.to_partial_name(inner)
        with access.open_session(path, "r") as file:
            if partial not in file:
                return
        with access.open_for_changes(path, partial) as file:
            create.remove_partial(file, partial)

    def is_user_array(self, dset: Any) -> bool:
        """Return whether a dataset is an array of the user."""
        return True

    def ls(self, path: str, inner: str | None) -> list[Entry]:
        """Return groups, datasets and broken links, depth first, with a note if unreadable."""
        self.check_library(path)
        entries: list[Entry] = []
        rehearse(path, inner, "ls")
        with access.open_session(path, "r") as file, describe.Visit(self.name, path) as about:
            if inner is not None and self.is_netcdf:
                inner = netcdf_names.find_dataset_name(file, inner)
            top = file["/"] if inner is None else follow(file, inner)
            if top is None:
                describe.choose(file, path, inner)  # raises an error that lists the datasets

            def note_lost(name: str, why: str) -> None:
                where = f"{path}::{posixpath.join(str(top.name), name)}"
                entries.append(Entry(where, "link", note=f"it is {why}"))

            def visit(name: str, item: Any) -> None:
                where = about.format_path(item.name)
                if create.to_final_name(item.name):
                    return
                if isinstance(item, h5py.Group):
                    entries.append(Entry(where, "group"))
                elif isinstance(item, h5py.Dataset) and self.is_user_array(item):
                    entries.append(_make_entry(about, where, item))

            if isinstance(top, h5py.Group):
                describe.visit_objects(top, visit, note_lost)
            else:
                visit("", top)
        return entries

    def make_resizer(self, info: ArrayInfo, shape: tuple[int, ...]) -> Callable[[Any], None]:
        """Return a function that gives an open dataset another shape."""

        def change(dset: Any) -> None:
            dset.resize(shape)

        return change

    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """Change the shape of a chunked dataset within its maximal shape."""
        path, name = _get_location(info)
        with access.open_for_changes(path, name) as file:
            extend(info, file[name], shape, self.make_resizer(info, shape))
        return self.describe(path, name, True)

    def begin_growing(self, info: ArrayInfo) -> contextlib.AbstractContextManager[Growing]:
        """Prevent all other changes of the file; see `outcore.formats.begin_growing`."""

        def longer(now: ArrayInfo, dset: Any, shape: tuple[int, ...]) -> None:
            extend(now, dset, shape, self.make_resizer(now, shape))

        return growing.grow(info, *_get_location(info), self.describe, longer)

    def set_attrs(
        self, info: ArrayInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
    ) -> ArrayInfo:
        """Set user attributes and remove others (None: all); HDF5's and NetCDF4's own remain."""
        path, name = _get_location(info)
        with access.open_for_changes(path, name) as file:
            write_attrs(file[name], attrs, path, netcdf=self.is_netcdf, drop=drop)
        return self.describe(path, name, False)

    def can_encode(self, codec: Codec, dtype: np.dtype[Any]) -> bool:
        """Return whether a new dataset can have a codec: some need a plugin, maybe not installed."""
        try:
            add_filter(h5py.h5p.create(h5py.h5p.DATASET_CREATE), codec, dtype.itemsize, "")
        except (UnsupportedError, UsageError):
            return False
        return True

    def needs_plugin(self, codec: Codec) -> bool:
        """Return whether h5py alone cannot decode a codec."""
        return codec.name not in ("deflate", "gzip", "zlib", "shuffle", "fletcher32", "lzf")

    def get_log_path(self, path: str) -> str:
        """Return the log of a change by the library."""
        return redo.make_log_path(path)

    def adapt_options(
        self, info: ArrayInfo, options: Mapping[str, Any]
    ) -> tuple[list[str], dict[str, Any]]:
        """Omit chunks of arrays without axes or elements, which have one piece; add their limits."""
        misfits, _ = super().adapt_options(info, options)
        if 0 in (*info.shape, len(info.shape)):
            misfits = [name for name in ("chunks", "shards", "compression") if name in options]
        return misfits, self.adapt_limits(info)

    def adapt_limits(self, info: ArrayInfo) -> dict[str, Any]:
        """Return the options that give a copy the limits of an array."""
        most = info.extra.get("maxshape")
        if not isinstance(info.layout, Chunked) or most is None:
            return {}
        if len(most) != len(info.shape) or tuple(most) == info.shape:
            return {}
        return {"maxshape": list(most)}

    @contextlib.contextmanager
    def open_by_library(self, path: str, inner: str | None) -> Iterator[Any]:
        """Open a dataset with h5py."""
        with access.open_session(path, "r") as file:
            yield file[inner]

    def is_library_text(self, array: Any) -> bool:
        """Return whether the elements of a dataset of h5py are strings."""
        return h5py.check_string_dtype(array.dtype) is not None

    def describe_library_array(self, array: Any) -> dict[str, Any]:
        """Describe a dataset of h5py, whose file may be open for writing and is not opened again."""
        return read_options(array)

    def is_default_engine(self) -> bool:
        """Return whether outcore can read the file; xarray asks NetCDF's engines before."""
        return self.has_library()

    def get_encoding(self, info: ArrayInfo) -> dict[str, Any]:
        """Return dtype, chunks and filters with the names of the NetCDF library."""
        layout = info.layout
        chunked = isinstance(layout, Chunked) and info.extra.get("storage") == "chunked"
        codecs = {}
        if isinstance(layout, Chunked):
            codecs = {codec.name: codec.options for codec in layout.codecs}
        encoding: dict[str, Any] = {
            "dtype": info.dtype,
            "contiguous": not chunked,
            "chunksizes": layout.chunks if chunked and isinstance(layout, Chunked) else None,
        }
        encoding |= {name: name in codecs for name in ("shuffle", "fletcher32", "zstd")}
        encoding["zlib"] = "deflate" in codecs
        levels = [codecs[name].get("level") for name in ("deflate", "zstd") if name in codecs]
        return encoding | ({"complevel": levels[0]} if levels and levels[0] is not None else {})


def extend(
    info: ArrayInfo, dset: Any, shape: tuple[int, ...], change: Callable[[Any], None]
) -> None:
    """Call `change` on an open dataset if its limits admit the shape, else raise."""
    limits = dset.maxshape
    fits = len(limits) == len(shape) and all(
        m is None or n <= m for n, m in zip(shape, limits, strict=True)
    )
    if dset.chunks is None or not fits:
        raise UnsupportedError(
            f"{info.path!r} cannot change from {dset.shape} to {shape}: "
            + ("it is contiguous" if dset.chunks is None else f"its maximal shape is {limits}")
            + "; create it with resizable=True, or copy it",
            code="cannot-resize",
            path=info.path,
        )
    change(dset)


def _get_location(info: ArrayInfo) -> tuple[str, str]:
    return info.extra["file"], info.extra["dataset"]


def _make_entry(visit: describe.Visit, where: str, dset: Any) -> Entry:
    error = describe.explain_refusal(visit, dset)
    if error is None:
        dtype = describe.get_stored_dtype(dset, where)
        if dtype is REFERENCE:
            dtype = texts.choose_text_dtype("utf-8")
        return Entry(where, "array", visit.shape(dset), dtype)
    # Ask nothing about a dataset that names a pipe: the library might open it.
    words = ("shape", "dtype") if error.code != "not-regular" else ()
    known = {word: describe.get_or_none(dset, word) for word in words}
    return Entry(where, "array", **known, note=error.message)
