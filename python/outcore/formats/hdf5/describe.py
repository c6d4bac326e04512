"""
From an open HDF5 dataset to an `ArrayInfo`: type, shape, and where the bytes are.

Problem: HDF5 stores a dataset in one of five ways, some of them in other files, and may not have
stored it at all yet.
Approach: h5py's answers (offset, chunk shape, filters, space status) become a `Strided` or a
`Chunked`. A dataset without space becomes one chunk that was never written. The chunk table is not
read here.
Invariants: the result lies inside the file, otherwise an error is raised. Nothing in the file changes,
except in `allocate_space`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from outcore import _core
from outcore.errors import FormatError, StorageError, UnsupportedError
from outcore.formats import durable
from outcore.formats.hdf5 import access, filters, netcdf_names, origin, strings, virtual
from outcore.formats.hdf5.attrs import (
    LazyAttributes,
    Scales,
    describe_axes,
    is_bare_dimension,
    is_scale,
)
from outcore.formats.hdf5.chunks import ChunkTable
from outcore.formats.hdf5.create import to_final_name
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.elsewhere import check_sources
from outcore.formats.hdf5.guard import rehearse
from outcore.formats.hdf5.index import check_edges, find_compact_data, find_layout, make_reader
from outcore.formats.hdf5.library import check_library, h5py
from outcore.formats.hdf5.links import explain_broken, follow
from outcore.formats.hdf5.netcdf_lengths import DimensionLengths
from outcore.formats.hdf5.types import find_strings, get_dtype, read_codecs
from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    Origin,
    Part,
    Strided,
    Strings,
    identify_file,
    make_empty_source,
)
from outcore.formats.spec import byte_strides, check_shape
from outcore.formats.texts import Texts, raise_read_only

# Datasets that are checked for a message that offers some.
_OFFERED = 200
# By the library's number of a layout.
_STORAGE = {0: "compact", 2: "chunked", 3: "virtual"}


def choose(file: Any, path: str, inner: str | None) -> tuple[str, Any]:
    """
    Return the name of the requested dataset, and the dataset.

    Without a name, this is the only dataset of the file, not counting dimension scales.
    """
    top = file
    if inner is not None and inner != "/":
        dset = follow(file, inner)
        if isinstance(dset, h5py.Dataset):
            return inner, dset
        top = file if dset is None else dset
    found: list[str] = []  # not the datasets, which would stay open
    scales: set[str] = set()

    def visit(_: str, item: Any) -> None:
        # Coordinates are datasets like others; bare dimensions of NetCDF are not.
        if (
            not isinstance(item, h5py.Dataset)
            or to_final_name(item.name)
            or is_bare_dimension(item)
        ):
            return
        found.append(str(item.name))
        if is_scale(item):
            scales.add(found[-1])

    visit_objects(top, visit)
    arrays = [name for name in found if name not in scales] or found
    if len(arrays) == 1 and inner is None:
        return arrays[0], file[arrays[0]]
    if inner is None or inner == "/":
        what = f"contains {len(found) or 'no'} dataset{'' if len(found) == 1 else 's'}"
    elif top is file:
        why = explain_broken(file, inner)
        what = f"has no dataset {inner!r}" + (f": that is {why}" if why else "")
    else:
        what = f"has a group {inner!r}, which is not an array"
    raise FormatError(
        f"{path!r} {what}{_format_offer(file, path, found)}",
        code="no-such-array",
        path=path,
    )


def visit_objects(
    top: Any,
    visit: Callable[[str, Any], None],
    lost: Callable[[str, str], None] | None = None,
) -> None:
    """
    Call `visit` once for each object below a group, with its name and the object.

    Unlike h5py's `visititems`, this does not go through all chunks of each dataset to count the bytes
    of their index. `lost` is called with the name of each broken link and the reason.
    """
    names: list[bytes] = []
    links = top.id.links
    links.visit(names.append)
    known = {origin.get_address(top)}
    for name in names:
        link = links.get_info(name)
        text = os.fsdecode(name)
        if link.type == h5py.h5l.TYPE_HARD and link.u not in known:
            known.add(link.u)
            visit(text, top[text])
        elif lost is not None and not to_final_name(text) and (why := explain_broken(top, text)):
            lost(text, why)


class HeaderFile:
    """
    A file whose datasets are described, open for reading their object headers.

    `path` is absolute, and `dset` is any open dataset of the file.
    """

    def __init__(self, path: str, dset: Any) -> None:
        self.path = path
        self.scales = Scales(path)
        self.userblock = origin.get_userblock(dset)
        self.guard = access.make_guard(path)
        with durable.os_errors("opening", path), contextlib.ExitStack() as held:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, self._fd)
            self.size = os.fstat(self._fd).st_size
            self._read = make_reader(self._fd)
            self._id = _core.file_id(self._fd)
            held.callback(self.scales.close)
            self.close = held.pop_all().close

    def identify(self, dset: Any) -> origin.DatasetIdentity:
        """Return the identity of the file and the object header of a dataset, like `origin.identify`."""
        at = self.userblock + origin.get_address(dset)
        with durable.os_errors("reading", self.path):
            return self._id, origin.read_header(self._fd, at)

    def check_edges(self, dset: Any) -> None:
        """Raise `UnsupportedError` if chunks at the edges of a dataset do not have its filters."""
        with durable.os_errors("reading", self.path):
            check_edges(self.path, dset, find_layout(dset, self._read)[0])

    def find_compact(self, dset: Any, nbytes: int) -> tuple[Part, origin.DatasetIdentity]:
        """
        Return where the elements of a compact dataset are in its object header, and the result of
        `seen`.
        """
        with durable.os_errors("reading", self.path):
            start, first, stored = find_compact_data(dset, self._read) or (0, 0, -1)
            file, (at, header) = self.identify(dset)
            if not at <= first <= at + len(header):
                at, header = start, self._read(start, first - start)
        if stored < nbytes:
            raise make_damage_error(
                self.path,
                f"dataset {dset.name!r} needs {nbytes} bytes in its object header, which has "
                f"{max(stored, 0)}",
                "file-too-short",
            )
        return Part(self.path, first, nbytes), (file, (at, header))


class Visit:
    """Values that datasets of one file share, computed once while the file is open in the library."""

    def __init__(self, format: str, path: str) -> None:
        self.format = format
        self.path_given = path
        # The chunk table and the attributes are read later, perhaps after a chdir.
        self.path = os.path.abspath(path)
        #: Returns the shape of a dataset in this format.
        self.shape = DimensionLengths(path).shape if format == "netcdf4" else _get_stored_shape
        # Name in the library, and file, of the last dataset.
        self._home: tuple[str, HeaderFile] | None = None

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        if self._home is not None:
            self._home[1].close()

    def format_path(self, name: str) -> str:
        """Return the path that opens a dataset, from its name in the file."""
        shown = netcdf_names.to_variable_name(name) if self.format == "netcdf4" else name
        return f"{self.path_given}::{shown}"

    def open_home(self, dset: Any) -> HeaderFile:
        """Return the file of a dataset, which is another one if an external link led to it."""
        name = access.get_path(dset)
        if self._home is None or self._home[0] != name:
            own = os.path.abspath(name)
            here = own == self.path or identify_file(own) == identify_file(self.path)
            home = HeaderFile(self.path if here else os.path.realpath(own), dset)
            self.__exit__()
            self._home = name, home
        return self._home[1]


def _get_stored_shape(dset: Any) -> tuple[int, ...]:
    return tuple(dset.shape)


def _raise_virtual(path: str, name: str) -> None:
    raise UnsupportedError(
        f"{path!r}: dataset {name!r} is virtual and read-only: its elements are in other datasets "
        "(h5dump -p lists them); write to those, or make a copy with outcore.convert",
        code="hdf5-virtual",
        path=path,
    )


def _raise_compact(path: str, name: str) -> None:
    raise UnsupportedError(
        f"{path!r}: dataset {name!r} is compact and read-only: its elements are in its object "
        f"header, which has a checksum; write it with h5py, or repack it: h5repack -l {name}:CONTI",
        code="hdf5-layout",
        path=path,
    )


def _format_offer(file: Any, path: str, names: list[str]) -> str:
    """Return the end of a message: the datasets that can be opened."""
    if not names:
        return "; there is nothing to open"
    looked = names[:_OFFERED]
    with Visit("hdf5", path) as visit:  # its length does not affect whether it opens
        can = [name for name in looked if _can_open(visit, file, name)]
    closed = len(looked) - len(can)
    offered = can[:10]
    if more := len(names) - closed - len(offered):
        offered.append(f"and {more} more")
    if closed:
        what = f"{closed} that cannot be opened (`outcore ls` shows why)"
        offered.append(f"and {what}" if offered else what)
    return f"; name one as '{os.path.basename(path)}::/name': {', '.join(offered)}"


def _can_open(visit: Visit, file: Any, name: str) -> bool:
    try:
        with access.translate_errors(visit.path_given):
            return explain_refusal(visit, file[name]) is None
    except (FormatError, StorageError):
        return False


def explain_refusal(visit: Visit, dset: Any) -> FormatError | StorageError | None:
    """Return the reason why a dataset cannot be opened; None if it can."""
    name = str(dset.name)
    where = visit.format_path(name)
    try:
        with access.translate_errors(visit.path_given):
            check_sources(dset)
            plist = dset.id.get_create_plist()
            check_not_null(dset, where)
            dtype = get_stored_dtype(dset, where)
            find_storage(visit, name, dset, plist, dtype, False, visit.shape(dset))
    except (FormatError, StorageError) as error:  # `StorageError`: external files
        return error
    return None


def get_or_none(dset: Any, what: str) -> Any:
    """Return an attribute of a dataset, or None if the library raises, as for a damaged dataset."""
    with contextlib.suppress(Exception):
        return getattr(dset, what)
    return None


def check_not_null(dset: Any, where: str) -> None:
    """Raise `UnsupportedError` if a dataset has a type but no shape (`h5py.Empty`)."""
    if dset.shape is None:
        raise UnsupportedError(
            f"{where!r} has no elements (an HDF5 null dataspace); there is nothing to read",
            code="hdf5-null",
            path=where,
        )


def describe(visit: Visit, name: str, dset: Any, writable: bool) -> ArrayInfo:
    """Describe one dataset; raise an error if outcore cannot read it by its bytes."""
    path, netcdf = visit.path, visit.format == "netcdf4"
    where = visit.format_path(name)
    check_sources(dset)
    plist = dset.id.get_create_plist()
    check_not_null(dset, where)
    dtype = get_stored_dtype(dset, where)
    axes = visit.shape(dset)
    layout = find_storage(visit, name, dset, plist, dtype, writable, axes)
    base, below = dtype.subdtype or (dtype, ())
    most, home = dset.maxshape, visit.open_home(dset)
    dims = describe_axes(dset, home.scales)
    text = base is strings.REFERENCE
    if text and writable:
        raise_read_only(where)
    # A dataset behind an external link is found by its name in that file.
    attrs = LazyAttributes(home.path, name if home.path == path else dset.name, netcdf=netcdf)
    info = ArrayInfo(
        path=where,
        format=visit.format,
        shape=(*axes, *below),
        dtype=base,
        layout=layout,
        fill_value=None if text else _read_fill_value(dset, plist, base),
        attrs=attrs,
        declares=None if text else functools.partial(attrs.read_missing_value, base),
        dims=None if dims is None else (*dims, *(None for _ in below)),
        extra={
            "file": path,
            "dataset": name,
            "storage": _STORAGE.get(plist.get_layout(), "contiguous"),
            "maxshape": most,
            **({} if axes == dset.shape else {"stored_shape": dset.shape}),
            **_list_unlimited(most, dims if netcdf else None),
            "userblock": home.userblock,
        },
        strings=_find_strings(dset, where, writable),
    )
    return _to_texts(visit, name, dset, plist, info)


def describe_source(path: str, inner: str) -> ArrayInfo:
    """Describe a source of a virtual dataset."""
    check_library(path)
    rehearse(path, inner, "open")
    with access.open_session(path, "r") as file, Visit("hdf5", path) as visit:
        info = describe(visit, *choose(file, path, inner), False)
    return virtual.adopt_source_chunks(info)


def get_stored_dtype(dset: Any, where: str) -> np.dtype[Any]:
    """Return the dtype of stored elements: references for text of variable length."""
    is_virtual = dset.id.get_create_plist().get_layout() == h5py.h5d.VIRTUAL
    if not is_virtual and strings.get_encoding(dset) is not None:
        return strings.REFERENCE
    return get_dtype(dset, where)


def _find_strings(dset: Any, where: str, writable: bool) -> tuple[Strings, ...]:
    """Return the strings of an element that do not end as NumPy's; raise if some cannot be written."""
    kind = dset.id.get_type()
    while isinstance(kind, h5py.h5t.TypeArrayID):
        kind = kind.get_super()
    found = find_strings(kind)
    if writable and any(one.spaces for one in found):
        raise UnsupportedError(
            f"{where!r} has strings that are padded with spaces (Fortran), which are "
            "read-only; open it with mode 'r', or make a copy with outcore.convert",
            code="hdf5-type",
            path=where,
        )
    return found


def _to_texts(visit: Visit, name: str, dset: Any, plist: Any, info: ArrayInfo) -> ArrayInfo:
    """Return the description of text of variable length; return others unchanged."""
    encoding = strings.get_encoding(dset)
    if info.dtype is not strings.REFERENCE or encoding is None:
        return info
    home = visit.open_home(dset)
    never, missing = strings.get_fill(dset, plist)
    heap = strings.Heap(home.path, name, home.userblock, missing)
    return Texts.of(
        info,
        fill_value=never,
        encoding=encoding,
        missing=missing,
        elements=heap.read_elements,
        lengths=functools.partial(strings.count_bytes, missing=missing),
    )


def _list_unlimited(
    most: tuple[int | None, ...], dims: tuple[str | None, ...] | None
) -> dict[str, Any]:
    """Return names of dimensions that grow with this variable and with all others that use them."""
    axes = zip(dims or (), most, strict=False)
    names = tuple(name for name, length in axes if name is not None and length is None)
    return {"unlimited": names} if names else {}


def _read_fill_value(dset: Any, plist: Any, dtype: np.dtype[Any]) -> Any:
    defined = plist.fill_value_defined()
    if defined == h5py.h5d.FILL_VALUE_UNDEFINED:
        return None
    if defined == h5py.h5d.FILL_VALUE_DEFAULT:
        return np.zeros((), dtype)[()]
    value = np.asarray(dset.fillvalue)
    if value.dtype != dtype:
        value = value.astype(dtype)
    if value.ndim:
        if not (value == value.flat[0]).all():
            raise UnsupportedError(
                f"{dset.name!r}: the fill value differs within an element: {value.tolist()}; "
                "store the array again without one",
                code="hdf5-fill",
            )
        value = value.flat[0]
    return value[()] if isinstance(value, np.ndarray) else value


def find_storage(
    visit: Visit,
    name: str,
    dset: Any,
    plist: Any,
    dtype: np.dtype[Any],
    writable: bool,
    axes: tuple[int, ...],
) -> Strided | Chunked:
    """
    Return where the elements are, without reading a chunk table.

    `axes` is the shape, which may be longer than the dataset along axes that can grow.
    """
    h5d = h5py.h5d
    base, below = dtype.subdtype or (dtype, ())
    shape = (*axes, *below)
    check_shape(shape, base.itemsize, name, stored=True)
    strides = byte_strides(shape, base.itemsize, "C")
    if plist.get_layout() == h5d.VIRTUAL:
        if writable:
            _raise_virtual(visit.path_given, name)
        where = visit.open_home(dset).path
        return virtual.make_layout(
            *(where, str(dset.name), plist, axes, below, base.itemsize), describe_source
        )
    home = visit.open_home(dset)
    if plist.get_layout() == h5d.CHUNKED:
        return _find_chunked(home, dset, plist, dtype, writable, axes)
    if plist.get_external_count():
        return Strided(_find_external(plist, name, math.prod(shape) * base.itemsize), strides)
    nbytes = math.prod(shape) * base.itemsize
    if dset.id.get_space_status() == h5d.SPACE_STATUS_NOT_ALLOCATED:
        if nbytes == 0:
            return Strided((Part(home.path, 0, 0),), strides)
        # Not stored yet: one chunk that was never written reads as the fill value.
        chunk = tuple(max(n, 1) for n in shape)
        return Chunked(chunk, strides, (), make_empty_source(home.path))
    if plist.get_layout() == h5d.COMPACT:
        if writable:
            _raise_compact(visit.path_given, name)
        found, seen = home.find_compact(dset, nbytes)
    else:
        found, seen = _find_contiguous(home, name, dset, nbytes), home.identify(dset)

    def again() -> Part | None:
        # A write that calls this holds the lock for reading.
        with (
            access.open_session(visit.path, "r", locked=True) as file,
            Visit(visit.format, visit.path) as later,
        ):
            now = origin.find_dataset(file, name)
            if now is None or get_stored_dtype(now, name) != dtype:
                return None
            shape, plist = now.shape, now.id.get_create_plist()
            layout = find_storage(later, name, now, plist, dtype, False, shape)
        if not isinstance(layout, Strided) or shape != axes or layout.parts != (found,):
            return None
        return layout.parts[0]

    part = origin.attach_origin(found, str(dset.name), seen, again)
    return Strided((part,), strides, home.guard)


def _find_contiguous(home: HeaderFile, name: str, dset: Any, nbytes: int) -> Part:
    path, size = home.path, home.size
    offset, stored = dset.id.get_offset(), dset.id.get_storage_size()
    low = home.userblock + access.SUPERBLOCK
    if offset is None or offset < low or stored < nbytes or offset + nbytes > size:
        raise make_damage_error(
            path,
            f"dataset {name!r} needs {nbytes} bytes at {offset} (stored: {stored}), but the file has "
            f"{size} bytes",
            "file-too-short",
            offset=offset,
        )
    return Part(path, offset, nbytes)


def _find_external(plist: Any, name: str, nbytes: int) -> tuple[Part, ...]:
    """Return the raw files with the elements; HDF5 searches for them from the working directory."""
    parts: list[Part] = []
    left = nbytes
    for number in range(plist.get_external_count()):
        raw, offset, size = plist.get_external(number)
        file = os.path.abspath(os.fsdecode(raw))
        take = min(left, size)
        with durable.os_errors(f"opening the external file of {name!r},", file):
            room = os.stat(file).st_size - offset
            if take > room or offset < 0:
                raise make_damage_error(
                    file,
                    f"external storage of {name!r} should have {take} bytes from byte {offset}, but has "
                    f"{max(room, 0)}",
                    "file-too-short",
                    offset=offset,
                )
            if take > 0:
                parts.append(Part(file, offset, take, Origin(_core.file_id(file))))
        left -= take
    if left > 0:
        raise FormatError(
            f"dataset {name!r}: its external files have {nbytes - left} of {nbytes} bytes; "
            "create it again with larger external files",
            code="file-too-short",
        )
    return tuple(parts)


def _find_chunked(
    home: HeaderFile,
    dset: Any,
    plist: Any,
    dtype: np.dtype[Any],
    writable: bool,
    axes: tuple[int, ...],
) -> Chunked:
    path, name = home.path, str(dset.name)
    base, below = dtype.subdtype or (dtype, ())
    chunks = tuple(int(n) for n in plist.get_chunk())
    full = (*chunks, *below)
    if any(n < 1 for n in full) or len(chunks) != len(dset.shape):
        problem = f"dataset {name!r} of shape {dset.shape} has chunks of shape {chunks}"
        raise make_damage_error(path, problem, "bad-chunks")
    chunk_bytes = math.prod(full) * base.itemsize
    grid = tuple(-(-n // c) for n, c in zip(axes, chunks, strict=True))
    codecs = read_codecs(dset.id.get_type(), dtype, plist, f"{path}::{name}")
    if codecs:
        home.check_edges(dset)
    if writable:
        filters.check_writable(codecs, f"{path}::{name}")
    fingerprint = origin.get_fingerprint(dset, plist)
    table = ChunkTable(path, name, grid, chunks, chunk_bytes, bool(codecs), fingerprint)
    stretch = axes if axes != dset.shape else None
    source = table.make_source(home.guard, writable=writable, axes=stretch)
    return Chunked(full, byte_strides(full, base.itemsize, "C"), codecs, source)


def has_no_space(dset: Any) -> bool:
    """Return whether a contiguous dataset has no space in the file yet."""
    h5d, plist = h5py.h5d, dset.id.get_create_plist()
    return bool(
        plist.get_layout() == h5d.CONTIGUOUS  # checked first: others have no offset
        and dset.shape is not None
        and not plist.get_external_count()
        and dset.id.get_space_status() == h5d.SPACE_STATUS_NOT_ALLOCATED
        and dset.size
    )


def allocate_space(dset: Any) -> None:
    """
    Let HDF5 allocate the space of a dataset, and fill it if it has a fill value.

    HDF5 does this at the first write.
    """
    before = os.stat(access.get_path(dset)).st_size
    dset[(0,) * len(dset.shape)] = dset.fillvalue
    dset.file.flush()
    if dset.id.get_offset() < before and not _is_filled(dset):
        # HDF5 does not clear reused space of a deleted object: write zeros, slab by slab.
        axes = range(len(dset.shape))
        slab = _core.slab_shape(dset.shape, axes[::-1], (8 << 20) // max(dset.dtype.itemsize, 1))
        for at in itertools.product(*(range(0, dset.shape[d], slab[d]) for d in axes)):
            dset[tuple(slice(at[d], at[d] + slab[d]) for d in axes)] = dset.fillvalue


def _is_filled(dset: Any) -> bool:
    plist = dset.id.get_create_plist()
    when = plist.get_fill_time()
    user = plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    return bool(when == h5py.h5d.FILL_TIME_ALLOC or (when == h5py.h5d.FILL_TIME_IFSET and user))
