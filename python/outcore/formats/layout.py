"""
Where the elements of an array live: plain data, handed from a format to the core.

A format reads its own metadata, with the library that owns the format, and returns an `ArrayInfo`.
It never touches the elements. The core reads the attributes of these classes by name
(``crates/py/src/layout.rs``): if you change one here, change it there.
"""

from __future__ import annotations

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
    Which file a part is of, as it was when the metadata were read.

    `file` is what `_core.file_id` said of it then. `header` tells where the bytes begin that say what
    the elements are, and these bytes. `check()` is called when others are there: it gives those, if
    they mean the same elements, and raises if they do not. Without it the file alone counts.
    """

    file: tuple[int, int, int]
    header: tuple[int, bytes] = (0, b"")
    check: Callable[[], tuple[int, bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """
    A contiguous piece of one file: `nbytes` bytes from byte `offset`; `path` becomes absolute.

    `origin` says which file that is; parts of one file have the same.
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
    How a file is kept from programs that change it through the format's own library.

    `log` is a file that exists while a change is under way, or after one that was interrupted, which
    `recover()` then completes or forgets. `hold()` takes the lock that the library takes for writing,
    also for accesses by the library in this process, and returns what gives it back.
    """

    log: str
    recover: Callable[[], None]
    hold: Callable[[], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Strided:
    """
    Element ``i`` lies at byte ``sum(i[d] * strides[d])`` of the concatenation of `parts`.

    One part unless the array is split over files. With a `guard` the core holds the lock of the format's
    library while it writes: that library may keep copies of elements, and write them back.
    """

    parts: tuple[Part, ...]
    strides: tuple[int, ...]
    guard: TableGuard | None = None


@dataclass(frozen=True, slots=True)
class Codec:
    """
    One step of a codec pipeline, for ``compression=`` where a name does not say enough.

    Parameters
    ----------
    name
        One of ``deflate`` (zlib framing), ``gzip``, ``zstd``, ``lz4`` (numcodecs framing: size as
        little-endian u32), ``lz4hdf5`` (HDF5 filter 32004 framing), ``blosc``, ``shuffle`` (byte
        shuffle, HDF5 and numcodecs), ``bitshuffle`` (HDF5), ``bzip2``, ``crc32c``, ``fletcher32``,
        ``lzf``; in files that are read ``hdf5``, a filter that only HDF5's library decodes, and ``zip``,
        a deflated member of a zip file.
    options
        Integers and strings: ``level``, ``itemsize`` (shuffle, blosc; by default that of the array),
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
    All chunks lie in one file, found through a table (HDF5).

    `fetch(lo, count, locked=False)` returns an int64 array of shape ``(prod(count), 3)``: file offset
    (-1 for a chunk never written), stored bytes, filter mask; cells of the box in C order.
    `locked`: nobody changes the file through the library until the answer has been used.
    `stored(lo, count, locked=False)` returns the places in the box of the chunks that are stored, in C
    order, as int64: in time that follows what is stored, whatever the box.
    `commit(chunks)` stores encoded chunks ``(grid coordinates, filter mask, bytes)``, each, through
    the format's own library; `None` if chunks are only ever patched in place.
    `load(new)` reads the table now, if it is one that is kept in memory, and returns the bytes that
    reading it again takes beside it, `new` chunks later: for who must know what will be needed.
    `forget()` releases it and its memory; it is read anew when it is asked for.
    `stretch()` is called once before the first write: it makes the stored shape that of the array, where
    it may be shorter (NetCDF4). `None` if it is not.
    `log` is where chunks lie besides while the file is being changed: offsets from 2**62 on are places
    in it.
    `check()` raises a `FormatError` for what is wrong with the table as a whole and does not keep
    chunks from being read.
    `nbytes()` returns the bytes of all stored chunks.
    `decode(options, stored, nbytes)` decodes a chunk, or what a later codec made of it, by a filter that
    only the library has (codec ``hdf5``), to `nbytes` bytes (uint8). The core calls it from any thread.
    Without a `guard` the core takes no lock: whoever made the source keeps others out.
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


@dataclass(frozen=True, slots=True)
class Identity:
    """
    Which array of chunk files a description is of.

    `file` holds its metadata. `folder` is device and inode of its folder, `document` those of the file
    with its size, the time of its bytes and its own, in nanoseconds; each None if not known. `check()`
    reads the metadata again, raises if they are not those of this array, and returns `document` as it is
    now and the chunks per axis that are left, where they are fewer than described.
    """

    file: str
    folder: tuple[int, int] | None
    document: tuple[int, int, int, int, int] | None
    check: Callable[[], tuple[tuple[int, int, int, int, int], tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class FileSource:
    """
    One file per chunk (Zarr): ``root/prefix + separator.join(coordinates)``.

    Zarr v3 default keys: ``prefix="c/"``, ``separator="/"`` (a 0-d array: the file ``c``);
    Zarr v2: ``prefix=""``, ``separator="."`` or ``"/"`` (0-d: ``0``).
    A file that does not exist is a chunk never written.
    `lock` is a file of the array's own (``zarr.json``, ``.zarray``) whose byte ranges serve as
    locks, one per chunk, so that two writers of one encoded chunk wait for each other.
    `identity` tells whether the files are still those of the array.
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
    One file per shard; inside, the chunks of the array and an index (Zarr v3 ``sharding_indexed``).

    The files are named as in `FileSource`, by shard coordinates. `per_shard` is the number of
    chunks per axis in a shard. The index holds (offset, length) as little-endian u64 pairs in C
    order, all ones for a missing chunk, at the `index_at` (``"start"`` or ``"end"``), followed by
    its crc32c if `index_crc32c`.
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
class Pieces:
    """
    Sections of other arrays that are sections of this one (HDF5: the mapping of a virtual dataset).

    Parameters
    ----------
    of
        Of each piece the number of its source.
    here, there
        Of shape (pieces, axes of this array, 3): start, count and step of each piece along each axis, in
        this array and in its source. Along an axis that the source does not have there is one element.
    axes
        Of each piece, for each axis of its source: the axis of this array along which it goes, and -1;
        or -1, and the one index that the piece has of it. None: the piece is all of its source, in C
        order, and how it lies depends on the shape of that; `here` is then a box around it.
    """

    of: NDArray[np.int64]
    here: NDArray[np.int64]
    there: NDArray[np.int64]
    axes: tuple[tuple[tuple[int, int], ...] | None, ...]


@dataclass(frozen=True, slots=True)
class VirtualSource:
    """
    Elements are in other arrays, which are arrays with a layout of their own (HDF5 virtual datasets).

    `pieces` tells which section of which array is where; elements of no piece have the fill value.
    `cut(number, shape)` gives the pieces of which a piece consists that is all of a source of that
    shape.
    `open(number)` describes a source, None while it is missing: then its elements have the fill value.
    `places()` names the sources that are there: a file, and the array in it. `path` is the file that
    tells all this. Codecs and chunks of the layout are those of the sources, as far as they tell.
    """

    path: str
    pieces: Pieces = field(compare=False, repr=False)
    cut: Callable[[int, tuple[int, ...]], Pieces] = field(compare=False, repr=False)
    open: Callable[[int], ArrayInfo | None] = field(compare=False, repr=False)
    places: Callable[[], list[tuple[str, str]]] = field(compare=False, repr=False)
    kind: str = "virtual"


@dataclass(frozen=True, slots=True)
class Strings:
    """
    Strings of an element that the file ends in another way than NumPy, for which NULs fill them up.

    Parameters
    ----------
    offset, nbytes
        Where in an element the first of them is, and the bytes of one.
    spaces
        Spaces fill them up; else the first NUL ends them, whatever follows.
    loops
        Number and distance in bytes of strings that lie at regular distances, for each loop over them.
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
        Shape of a chunk (of an inner chunk, if sharded), each at least 1.
    strides
        Byte strides of the elements inside a decoded chunk.
    codecs
        Applied in this order when a chunk is written; empty: chunks are stored as they are and can
        be read and written in parts.
    source
        Where the chunks are.
    """

    chunks: tuple[int, ...]
    strides: tuple[int, ...]
    codecs: tuple[Codec, ...]
    source: TableSource | FileSource | ShardSource | VirtualSource


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """
    What a format knows about one array.

    Parameters
    ----------
    path
        What the user would pass to `outcore.open` to get this array, group path included.
    shape, dtype
        As NumPy's; `dtype` keeps the file's byte order.
    layout
        Where the elements are.
    order
        ``"C"`` or ``"F"``: the order in which elements follow each other in the file or in a chunk.
    fill_value
        Value of elements never written, or None.
    attrs
        User attributes.
    dims
        Names of the axes, or None.
    extra
        What the format wants to show in ``outcore info`` (filters, version, endianness, ...).
    declares
        Returns the value that the file declares to mean "missing" (``_FillValue``), or None. It is
        called when `declared` is asked for: HDF5 reads attributes only then.
    strings
        Strings of an element whose ends are to be found when elements are read.
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
        """Value of elements never written, and the one that means "missing"."""
        return Fill(self.fill_value, self.declared)

    def forget(self) -> None:
        """
        Forget what is remembered of the file, and release its memory.

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


def is_text(info: ArrayInfo) -> bool:
    """Whether elements are text, or bytes, of variable length (`outcore.formats.texts.Texts`)."""
    return hasattr(info, "encoding")


def virtual_source(info: ArrayInfo) -> VirtualSource | None:
    """Where the elements of an array are that are in other arrays; None of any other."""
    source = info.layout.source if isinstance(info.layout, Chunked) else None
    return source if isinstance(source, VirtualSource) else None


def share_bytes(a: ArrayInfo, b: ArrayInfo) -> bool:
    """Whether two arrays are kept, wholly or in part, in the same stored bytes."""
    if virtual_source(a) is not None or virtual_source(b) is not None:
        return not _kept_in(a).isdisjoint(_kept_in(b))
    if isinstance(a.layout, Strided) and isinstance(b.layout, Strided):
        theirs = [(file_of(q.path), q) for q in b.layout.parts]
        return any(
            name == other and p.offset < q.offset + q.nbytes and q.offset < p.offset + p.nbytes
            for name, p in ((file_of(p.path), p) for p in a.layout.parts)
            for other, q in theirs
        )
    if isinstance(a.layout, Chunked) and isinstance(b.layout, Chunked):
        return _stored_at(a, a.layout.source) == _stored_at(b, b.layout.source)
    return False


def file_of(path: str) -> tuple[int, int] | str:
    """Tell files apart, whatever names they have; the path where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def _kept_in(info: ArrayInfo, depth: int = 0) -> set[tuple[tuple[int, int] | str, str]]:
    """The files of an array, and its name in each; of a virtual one those of its sources."""
    source = virtual_source(info)
    if source is None:
        name = str(info.extra.get("dataset", "")).strip("/")
        return {(file_of(str(info.extra.get("file", info.path))), name)}
    kept = {(file_of(path), name.strip("/")) for path, name in source.places()}
    for number in range(int(source.pieces.of.max(initial=-1)) + 1):
        below = source.open(number) if depth < _DEEPEST else None
        if below is not None and virtual_source(below) is not None:
            kept |= _kept_in(below, depth + 1)
    return kept


# Virtual datasets over virtual datasets are followed so far.
_DEEPEST = 16


def _stored_at(
    info: ArrayInfo, source: TableSource | FileSource | ShardSource | VirtualSource
) -> tuple[tuple[int, int] | str, str]:
    if isinstance(source, TableSource | VirtualSource):
        return file_of(source.path), str(info.extra.get("dataset"))
    return file_of(source.root), source.prefix
