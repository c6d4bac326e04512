"""
Where the elements of an array are stored: plain data, passed from a format to the core.

A format reads its own metadata, with the library that owns the format, and returns an `ArrayInfo`. It
never touches the elements. The core reads the attributes of these classes by name
(``crates/py/src/layout.rs``): if you change one here, change it there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.formats.missing_values import Fill


@dataclass(frozen=True, slots=True)
class Origin:
    """
    The file that a part belongs to, as it was when the metadata were read.

    Parameters
    ----------
    file
        Result of `_core.file_id` at that time.
    header
        Position and content of the bytes that determine what the elements mean.
    check
        Function that is called if these bytes have changed. It returns position and content of the new
        ones if they mean the same elements, and raises otherwise. None: only `file` is compared.
    """

    file: tuple[int, int, int]
    header: tuple[int, bytes] = (0, b"")
    check: Callable[[], tuple[int, bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """
    A contiguous piece of one file.

    Parameters
    ----------
    path
        The file; it becomes absolute.
    offset
        First byte.
    nbytes
        Number of bytes.
    origin
        Identity of the file; all parts of one file have the same origin.
    """

    path: str
    offset: int
    nbytes: int
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Files are opened when they are first used, perhaps after a chdir.
        object.__setattr__(self, "path", os.path.abspath(self.path))


@dataclass(frozen=True, slots=True)
class TableGuard:
    """
    Protection of a file against programs that change it through the format's own library.

    The file `log` exists during a change, and after a change that was interrupted; `recover()` then
    completes or discards the change. `hold()` takes the library's own lock for writing, also against
    accesses by the library in this process, and returns a function that releases it.
    """

    log: str
    recover: Callable[[], None]
    hold: Callable[[], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Strided:
    """
    Elements whose position follows from arithmetic.

    Element ``i`` starts at byte ``sum(i[d] * strides[d])`` of the concatenation of `parts`.

    Parameters
    ----------
    parts
        One part, unless the array is split over files.
    strides
        Bytes between neighbours along each axis.
    guard
        The core holds the lock of the format's library while it writes, because that library may cache
        elements and write them back. None: no lock is needed.
    """

    parts: tuple[Part, ...]
    strides: tuple[int, ...]
    guard: TableGuard | None = None


@dataclass(frozen=True, slots=True)
class Codec:
    """
    One step of a codec pipeline, for ``compression=`` if a name is not specific enough.

    Parameters
    ----------
    name
        One of ``deflate`` (zlib framing), ``gzip``, ``zstd``, ``lz4`` (numcodecs framing: size as
        little-endian u32), ``lz4hdf5`` (HDF5 filter 32004 framing), ``blosc``, ``shuffle`` (byte
        shuffle, HDF5 and numcodecs), ``bitshuffle`` (HDF5), ``bzip2``, ``crc32c``, ``fletcher32``,
        ``lzf``. In files that are read also ``hdf5``, a filter that only HDF5's library decodes, and
        ``zip``, a deflated member of a zip file.
    options
        Integers and strings: ``level``, ``itemsize`` (shuffle, blosc; default: that of the array),
        ``cname`` (blosc: ``lz4``, ``lz4hc``, ``blosclz``, ``zlib``, ``zstd``; bitshuffle: ``lz4``,
        ``zstd``, ``none``), ``shuffle`` (blosc: 0 none, 1 bytes, 2 bits), ``blocksize`` (bytes;
        bitshuffle: items, a multiple of 8), ``checksum`` (zstd, 0 or 1).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> bits = outcore.types.Codec("blosc", {"cname": "zstd", "level": 3, "shuffle": 2})
    >>> outcore.create("field.zarr", (100, 100), "f4", chunks=50, compression=bits).chunks
    (50, 50)
    """

    name: str
    options: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableSource:
    """
    Chunks that are all in one file, found through a table (HDF5).

    `fetch(lo, count, locked=False)` returns an int64 array of shape ``(prod(count), 3)`` for the cells
    of a box in C order: file offset (-1 for a chunk never written), stored bytes, filter mask.
    `locked`: no process changes the file through the library until the result has been used.
    `stored(lo, count, locked=False)` returns the positions in the box of the chunks that are stored, in
    C order, as int64. Its time depends on the number of stored chunks and not on the box.
    `commit(chunks)` stores encoded chunks ``(grid coordinates, filter mask, bytes)`` through the
    format's own library; `None` if chunks are only patched in place.
    `load(new)` reads the table now if it is cached in memory, and returns the additional bytes that
    reading it again needs after `new` more chunks: for callers that must know their memory in advance.
    `forget()` releases the table and its memory; the next use reads it again.
    `stretch()` is called once before the first write: it makes the stored shape that of the array,
    where it may be shorter (NetCDF4). `None` if it is not shorter.
    `log` is a file that holds chunks while the file is being changed: offsets from 2**62 are positions
    in it.
    `check()` raises a `FormatError` for errors of the table as a whole that do not prevent chunks from
    being read.
    `nbytes()` returns the bytes of all stored chunks.
    `decode(options, stored, nbytes)` decodes a chunk, or the result of a later codec, by a filter that
    only the library has (codec ``hdf5``), to `nbytes` bytes (uint8). The core calls it from any thread.
    Without a `guard` the core takes no lock: the creator of the source excludes other writers.
    """

    path: str
    fetch: Callable[..., NDArray[np.int64]]
    stored: Callable[..., NDArray[np.int64]]
    commit: Callable[[Iterable[tuple[tuple[int, ...], int, NDArray[np.uint8]]]], None] | None
    load: Callable[[int], int] | None = None
    forget: Callable[[], None] | None = None
    guard: TableGuard | None = None
    stretch: Callable[[], None] | None = None
    log: str | None = None
    check: Callable[[], None] | None = None
    nbytes: Callable[[], int] | None = None
    decode: Callable[[Mapping[str, int | str], bytes, int], NDArray[np.uint8]] | None = None
    kind: str = "table"


def make_empty_source(path: str) -> TableSource:
    """Return the source of an array without storage: every chunk is missing."""
    return TableSource(path, _fetch_nothing, _list_nothing, None)


def _fetch_nothing(
    lo: tuple[int, ...], count: tuple[int, ...], locked: bool = False
) -> NDArray[np.int64]:
    return np.full((math.prod(count), 3), (-1, 0, 0), np.int64)


def _list_nothing(
    lo: tuple[int, ...], count: tuple[int, ...], locked: bool = False
) -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Identity:
    """
    The array of chunk files that a description belongs to.

    `file` holds its metadata. `folder` is device and inode of its folder; `document` is device, inode,
    size, modification time and status change time (ns) of the metadata file; each is None if not known.
    `check()` reads the metadata again, raises if they belong to another array, and returns the current
    `document` and the remaining chunks per axis, where they are fewer than described.
    """

    file: str
    folder: tuple[int, int] | None
    document: tuple[int, int, int, int, int] | None
    check: Callable[[], tuple[tuple[int, int, int, int, int], tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class FileSource:
    """
    One file per chunk (Zarr): ``root/prefix + separator.join(coordinates)``.

    Default keys of Zarr v3: ``prefix="c/"``, ``separator="/"`` (a 0-d array: the file ``c``); of Zarr
    v2: ``prefix=""``, ``separator="."`` or ``"/"`` (0-d: ``0``). A file that does not exist is a chunk
    that was never written. `lock` is a metadata file of the array (``zarr.json``, ``.zarray``) whose
    byte ranges serve as locks, one per chunk, so that two writers of one encoded chunk wait for each
    other. `identity` determines whether the files still belong to the array.
    """

    root: str
    prefix: str
    separator: str
    lock: str
    kind: str = "files"
    identity: Identity | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ShardSource:
    """
    One file per shard; a shard contains chunks of the array and an index (Zarr v3
    ``sharding_indexed``).

    The files are named as in `FileSource`, by shard coordinates. `per_shard` is the number of chunks
    per axis in a shard. The index holds (offset, length) as little-endian u64 pairs in C order, all
    ones for a missing chunk, at the `index_at` (``"start"`` or ``"end"``), followed by its crc32c if
    `index_crc32c`.
    """

    root: str
    prefix: str
    separator: str
    lock: str
    per_shard: tuple[int, ...]
    index_at: str
    index_crc32c: bool
    kind: str = "shards"
    identity: Identity | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VirtualMapping:
    """
    Sections of other arrays that are sections of this one (HDF5: the mapping of a virtual dataset).

    `of` is the number of the source of each piece. `here` and `there` have shape (pieces, axes of this
    array, 3): start, count and step of each piece along each axis, in this array and in its source. An
    axis that the source lacks has one element. `axes` has an item per piece, with a pair for each axis
    of its source: the axis of this array and -1; or -1 and the only index of the piece along it. An
    item None: the piece is its whole source, in C order, and its position depends on the shape of the
    source; `here` is then a box around it.
    """

    of: NDArray[np.int64]
    here: NDArray[np.int64]
    there: NDArray[np.int64]
    axes: tuple[tuple[tuple[int, int], ...] | None, ...]


@dataclass(frozen=True, slots=True)
class VirtualSource:
    """
    Elements that are stored in other arrays, which have their own layouts (HDF5 virtual datasets).

    `pieces` maps sections of sources to sections of this array; other elements have the fill value.
    `cut(number, shape)` returns the pieces that replace a piece which is a whole source of that shape.
    `open(number)` describes a source; None while it is missing: its elements then have the fill value.
    `places()` returns file and inner path of each existing source. `path` is the file with the mapping.
    Codecs and chunks of the layout are those of the sources, where the mapping determines them.
    """

    path: str
    pieces: VirtualMapping = field(compare=False, repr=False)
    cut: Callable[[int, tuple[int, ...]], VirtualMapping] = field(compare=False, repr=False)
    open: Callable[[int], ArrayInfo | None] = field(compare=False, repr=False)
    places: Callable[[], list[tuple[str, str]]] = field(compare=False, repr=False)
    kind: str = "virtual"


@dataclass(frozen=True, slots=True)
class Strings:
    """
    Strings in an element whose end is marked in another way than NumPy's NUL padding.

    `offset` is the position of the first one in the element, and `nbytes` the length of one. If
    `spaces`, they are padded with spaces; otherwise the first NUL ends them, whatever follows. `loops`
    has (count, distance in bytes) for each loop over strings at regular distances.
    """

    offset: int
    nbytes: int
    spaces: bool
    loops: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunked:
    """
    A regular grid of chunks, each stored whole (edge chunks padded).

    Parameters
    ----------
    chunks
        Shape of a chunk (of an inner chunk, if sharded), each length at least 1.
    strides
        Byte strides of the elements inside a decoded chunk.
    codecs
        Applied in this order when a chunk is written. Empty: chunks are stored unencoded and can be
        read and written in parts.
    source
        Where the chunks are stored.
    """

    chunks: tuple[int, ...]
    strides: tuple[int, ...]
    codecs: tuple[Codec, ...]
    source: TableSource | FileSource | ShardSource | VirtualSource


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """
    The metadata of one array, as read by its format.

    Parameters
    ----------
    path
        Path for `outcore.open`, including the path inside the file.
    shape, dtype
        As in NumPy; `dtype` has the byte order of the file.
    layout
        Where the elements are stored.
    order
        ``"C"`` or ``"F"``: order of the elements in the file or in a chunk.
    fill_value
        Value of elements that were never written, or None.
    attrs
        User attributes.
    dims
        Names of the axes, or None.
    extra
        Further details for ``outcore info`` (filters, version, endianness, ...).
    declares
        Function that returns the value which the file declares to mean "missing" (``_FillValue``), or
        None. It is called only when `declared` is used, because HDF5 reads attributes then.
    strings
        Strings in an element whose end must be found when elements are read.
    """

    path: str
    format: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: Strided | Chunked
    order: str = "C"
    fill_value: Any = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dims: tuple[str | None, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    declares: Callable[[], Any] | None = field(default=None, compare=False, repr=False)
    strings: tuple[Strings, ...] = ()

    @property
    def declared(self) -> Any:
        """The value that the file declares to mean "missing" (``_FillValue``), or None."""
        return None if self.declares is None else self.declares()

    @property
    def fill(self) -> Fill:
        """Value of elements never written, and the value that means "missing"."""
        return Fill(self.fill_value, self.declared)

    def forget(self) -> None:
        """
        Discard cached metadata of the file, and release their memory.

        Examples
        --------
        >>> import outcore
        >>> a = outcore.create("field.h5", (10, 10), "f4", chunks=(5, 5), compression="gzip")
        >>> a.info.forget()  # the table of chunks, which is read again when it is needed
        """
        if isinstance(self.layout, Chunked) and isinstance(self.layout.source, TableSource):
            forget = self.layout.source.forget
            if forget is not None:
                forget()


def virtual_source(info: ArrayInfo) -> VirtualSource | None:
    """Return the source of an array whose elements are in other arrays; None for any other array."""
    source = info.layout.source if isinstance(info.layout, Chunked) else None
    return source if isinstance(source, VirtualSource) else None


def share_bytes(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Return whether two arrays share stored bytes, wholly or in part."""
    if virtual_source(a) is not None or virtual_source(b) is not None:
        return not _list_storage(a).isdisjoint(_list_storage(b))
    if isinstance(a.layout, Strided) and isinstance(b.layout, Strided):
        theirs = [(identify_file(q.path), q) for q in b.layout.parts]
        return any(
            name == other and p.offset < q.offset + q.nbytes and q.offset < p.offset + p.nbytes
            for name, p in ((identify_file(p.path), p) for p in a.layout.parts)
            for other, q in theirs
        ) and not _are_interleaved(a, b)
    if isinstance(a.layout, Chunked) and isinstance(b.layout, Chunked):
        return _locate_storage(a, a.layout.source) == _locate_storage(b, b.layout.source)
    return False


def locate_parts(info: ArrayInfo) -> list[tuple[int, int, tuple[int, int, int] | None]]:
    """Return offset, bytes and file of each part of an array; no parts of one in chunks."""
    parts = info.layout.parts if isinstance(info.layout, Strided) else ()
    return [
        (part.offset, part.nbytes, None if part.origin is None else part.origin.file)
        for part in parts
    ]


def _are_interleaved(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Return whether rows of two arrays lie between each other, as records of NetCDF variables do."""
    places = []
    for info in (a, b):
        assert isinstance(info.layout, Strided)
        strides = info.layout.strides
        if not strides or len(info.layout.parts) != 1 or strides[0] != max(strides):
            return False
        rest = zip(info.shape[1:], strides[1:], strict=True)
        row = info.dtype.itemsize + sum((n - 1) * stride for n, stride in rest)
        places.append((info.layout.parts[0].offset, strides[0], row))
    (here, step, row), (there, other, its_row) = places
    after = (there - here) % step if step else 0
    return step == other and row <= after and after + its_row <= step


def identify_file(path: str) -> tuple[int, int] | str:
    """Return device and inode, the same for all names of a file; its real path if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def _list_storage(info: ArrayInfo, depth: int = 0) -> set[tuple[tuple[int, int] | str, str]]:
    """Return the files of an array, with its name in each; for a virtual array those of its sources."""
    source = virtual_source(info)
    if source is None:
        name = str(info.extra.get("dataset", "")).strip("/")
        return {(identify_file(str(info.extra.get("file", info.path))), name)}
    kept = {(identify_file(path), name.strip("/")) for path, name in source.places()}
    for number in range(int(source.pieces.of.max(initial=-1)) + 1):
        below = source.open(number) if depth < _DEEPEST else None
        if below is not None and virtual_source(below) is not None:
            kept |= _list_storage(below, depth + 1)
    return kept


# Number of levels of virtual datasets over virtual datasets that are followed.
_DEEPEST = 16


def _locate_storage(
    info: ArrayInfo, source: TableSource | FileSource | ShardSource | VirtualSource
) -> tuple[tuple[int, int] | str, str]:
    if isinstance(source, TableSource | VirtualSource):
        return identify_file(source.path), str(info.extra.get("dataset"))
    return identify_file(source.root), source.prefix
