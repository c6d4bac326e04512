"""
Translation of HDF5 types and filters to and from those of outcore.

Problem: HDF5 describes types far beyond NumPy's, and converts silently between the type in the file
and the type in memory. Reading the bytes without HDF5 requires that the two are the same.
Approach: h5py proposes the NumPy dtype; `get_dtype` accepts it only if the bytes in the file mean
exactly that dtype, member by member. Filters are found by their registered number.
Invariants: an accepted dtype has the file type's size, byte order, offsets and precision.

References: HDF5 File Format Specification 3.0, section IV.A.2.d; the registry of filter plugins.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from outcore.errors import UnsupportedError, UsageError
from outcore.formats.hdf5 import filters
from outcore.formats.hdf5.library import h5py
from outcore.formats.layout import Codec, Strings
from outcore.formats.spec import check_dtype

_BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
_BZIP2, _LZF, _BLOSC, _LZ4, _BITSHUFFLE, _ZSTD = 307, 32000, 32001, 32004, 32008, 32015
_NUMBERS = {
    "deflate": _DEFLATE,
    "gzip": _DEFLATE,
    "zlib": _DEFLATE,
    "shuffle": _SHUFFLE,
    "fletcher32": _FLETCHER32,
    "bzip2": _BZIP2,
    "lzf": _LZF,
    "blosc": _BLOSC,
    "lz4": _LZ4,
    "lz4hdf5": _LZ4,
    "bitshuffle": _BITSHUFFLE,
    "zstd": _ZSTD,
}
# Default levels that are not 4.
_LEVELS = {"zstd": 3, "bzip2": 9, "bitshuffle": 3, "blosc": 5}
# Compressors of the blocks of bitshuffle.
_BLOCKS = {0: "none", 2: "lz4", 3: "zstd"}
# Codecs whose output is as long as their input, or longer by a known number of bytes.
_KEEP_SIZE = ("shuffle", "fletcher32")


def get_dtype(dset: Any, path: str) -> np.dtype[Any]:
    """Return the dtype of a dataset's elements, subarray included; raise if its bytes mean another."""
    kind = dset.id.get_type()
    try:
        dtype = kind.dtype
    except Exception as error:  # h5py raises various exceptions for unknown types
        raise UnsupportedError(
            f"{path!r}: HDF5 type without a NumPy dtype ({error}); convert it with h5py",
            code="hdf5-type",
            path=path,
        ) from error
    if dtype.hasobject:
        raise UnsupportedError(
            f"{path!r}: elements of variable length or references ({_format_type(kind)}), whose values "
            "are stored elsewhere in the file; read it with h5py",
            code="hdf5-type",
            path=path,
        )
    if not _has_same_bytes(kind, dtype) and not filters.can_convert(
        dset.id.get_create_plist(), kind, dtype
    ):
        raise UnsupportedError(
            f"{path!r}: HDF5 type {_format_type(kind)} differs in its bytes from NumPy's {dtype}; "
            "convert it with h5py",
            code="hdf5-type",
            path=path,
        )
    return (
        check_dtype(_strip_metadata(dtype), path, stored=True)
        if dtype.subdtype is None
        else _strip_metadata(dtype)
    )


def _strip_metadata(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """
    Return the dtype without h5py's metadata for enums and strings, which does not affect the bytes.

    An array of arrays becomes one array with all axes, as NumPy has them in memory.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        base = _strip_metadata(base)
        inner, below = base.subdtype or (base, ())
        return np.dtype((inner, (*shape, *below)))
    fields: Any = dtype.fields
    if fields is None:
        return np.dtype(dtype.str)
    names = dtype.names or ()
    return np.dtype(
        {
            "names": names,
            "formats": [_strip_metadata(fields[name][0]) for name in names],
            "offsets": [fields[name][1] for name in names],
            "itemsize": dtype.itemsize,
        }
    )


def _format_type(kind: Any) -> str:
    word = type(kind).__name__.removeprefix("Type").removesuffix("ID").lower()
    return f"{word} of {kind.get_size()} bytes"


def _has_same_bytes(kind: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether the bytes of HDF5 type `kind` are the bytes of `dtype`."""
    h5t = h5py.h5t
    if kind.get_size() != dtype.itemsize:
        return False
    if isinstance(kind, h5t.TypeArrayID):
        if dtype.subdtype is None:
            return False
        base, shape = dtype.subdtype
        return tuple(kind.get_array_dims()) == shape and _has_same_bytes(kind.get_super(), base)
    if isinstance(kind, h5t.TypeStringID):
        # Bytes after their ends are replaced when they are read (`find_strings`).
        return dtype.kind == "S"
    if isinstance(kind, h5t.TypeOpaqueID):
        return dtype.kind in "VMmSU"
    if isinstance(kind, h5t.TypeEnumID):
        base = kind.get_super()
        return _is_same_number(base, base.dtype if dtype.kind == "b" else dtype)
    if dtype.kind == "c" and not isinstance(kind, h5t.TypeCompoundID):
        # HDF5 has such a type since 2.0.
        word = f"COMPLEX_IEEE_F{4 * dtype.itemsize}{'BE' if dtype.str[0] == '>' else 'LE'}"
        return hasattr(h5t, word) and bool(kind.equal(getattr(h5t, word)))
    if isinstance(kind, h5t.TypeCompoundID):
        members = [
            (kind.get_member_name(i), kind.get_member_offset(i), kind.get_member_type(i))
            for i in range(kind.get_nmembers())
        ]
        if dtype.kind == "c":
            half = np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")
            parts = sorted((offset, member) for _, offset, member in members)
            return [o for o, _ in parts] == [0, half.itemsize] and all(
                _is_same_number(member, half) for _, member in parts
            )
        if dtype.names is None or len(members) != len(dtype.names):
            return False
        return all(
            _get_field(dtype, name, number)[1] == offset
            and _has_same_bytes(member, _get_field(dtype, name, number)[0])
            for number, (name, offset, member) in enumerate(members)
        )
    return _is_same_number(kind, dtype)


def find_strings(kind: Any) -> tuple[Strings, ...]:
    """Return the strings of an element of type `kind` that end in another way than NumPy's."""
    h5t = h5py.h5t
    if isinstance(kind, h5t.TypeStringID) and not kind.is_variable_str():
        nbytes, padding = kind.get_size(), kind.get_strpad()
        if padding == h5t.STR_NULLPAD or (padding == h5t.STR_NULLTERM and nbytes == 1):
            return ()
        return (Strings(0, nbytes, padding == h5t.STR_SPACEPAD),)
    if isinstance(kind, h5t.TypeArrayID):
        base, number = kind.get_super(), math.prod(kind.get_array_dims())
        loop = (number, base.get_size())
        return tuple(replace(one, loops=(loop, *one.loops)) for one in find_strings(base))
    if isinstance(kind, h5t.TypeCompoundID):
        return tuple(
            replace(one, offset=kind.get_member_offset(number) + one.offset)
            for number in range(kind.get_nmembers())
            for one in find_strings(kind.get_member_type(number))
        )
    return ()


def _get_field(dtype: np.dtype[Any], name: bytes, number: int) -> tuple[np.dtype[Any], int]:
    names = dtype.names or ()
    text = name.decode("utf-8", "replace")
    fields: Any = dtype.fields
    found = fields[text if text in names else names[number]]
    return found[0], found[1]


def _is_same_number(kind: Any, dtype: np.dtype[Any]) -> bool:
    """
    Return whether a number has the type that h5py would make for the dtype.

    A byte has no order, whatever the file specifies. A bit field is an unsigned integer.
    """
    h5t = h5py.h5t
    word, bits = "", 8 * dtype.itemsize
    if isinstance(kind, h5t.TypeBitfieldID) and dtype.kind == "u":
        word = "B"
    elif isinstance(kind, h5t.TypeIntegerID) and dtype.kind in "iu":
        word = dtype.kind.upper()
    if not word:
        return bool(kind.equal(h5t.py_create(np.dtype(dtype.str))))
    orders = ("LE", "BE") if bits == 8 else ("BE",) if dtype.str[0] == ">" else ("LE",)
    return any(kind.equal(getattr(h5t, f"STD_{word}{bits}{order}")) for order in orders)


def make_file_type(dtype: np.dtype[Any], path: str) -> Any:
    """Return the HDF5 type in which elements of `dtype` are stored as they are."""
    wanted = h5py.opaque_dtype(dtype) if dtype.kind in "Mm" else dtype
    try:
        kind = h5py.h5t.py_create(wanted, logical=True)
    except TypeError as error:
        raise UnsupportedError(
            f"{path!r}: HDF5 has no type for dtype {dtype} ({error}); use 'S' for text, integers for "
            "times inside structures, or store a .npy or Zarr file",
            code="bad-dtype",
            path=path,
        ) from error
    if not _has_same_bytes(kind, dtype):
        raise UnsupportedError(
            f"{path!r}: h5py would store dtype {dtype} with other bytes; use a plain dtype",
            code="bad-dtype",
            path=path,
        )
    return kind


def set_fill_value(plist: Any, value: Any, dtype: np.dtype[Any], path: str) -> None:
    """Set the fill value of a new dataset whose elements have `dtype`."""
    one = np.asarray(value, dtype)
    if dtype.kind in "Mm":
        one = one.astype(h5py.opaque_dtype(dtype))
    elif dtype.kind == "S":
        # h5py passes the value of a string as a pointer to characters that end with a NUL, even if the
        # string has a fixed length: only a type of variable length fits that. HDF5 converts it.
        text = one.item()
        if b"\0" in text:
            raise UnsupportedError(
                f"{path!r}: h5py cannot set a fill value with a NUL inside ({text!r}); choose a "
                "fill_value without one, or use Zarr",
                code="cannot-keep",
                path=path,
            )
        encoding = h5py.check_string_dtype(dtype).encoding
        one = np.array(text, h5py.string_dtype(encoding))
    plist.set_fill_value(one)


def read_codecs(kind: Any, dtype: np.dtype[Any], plist: Any, path: str) -> tuple[Codec, ...]:
    """Return the filters of a dataset, in the order in which they are applied when writing."""
    codecs: list[Codec] = []
    for k in range(plist.get_nfilters()):
        number, *rest = plist.get_filter(k)
        codec = _make_codec(number, *rest, path=path)
        if codec.name == "hdf5" and any(c.name not in _KEEP_SIZE for c in codecs):
            raise UnsupportedError(
                f"{path!r}: HDF5 filter {number} ({codec.options['name']}) follows another one that "
                "changes sizes; repack the file: h5repack -f GZIP=4",
                code="hdf5-filter",
                path=path,
            )
        if k == 0 and codec.name == "hdf5" and not _has_same_bytes(kind, dtype):
            codec = filters.add_type(codec, kind)
        codecs.append(codec)
    return tuple(codecs)


def _make_codec(
    number: int, flags: int, values: tuple[int, ...], name: bytes, *, path: str
) -> Codec:
    padded: list[int] = [*values, *[0] * 7]
    if number == _DEFLATE:
        return Codec("deflate", {"level": min(padded[0], 9)})
    if number == _SHUFFLE:
        return Codec("shuffle", {"itemsize": max(padded[0], 1)})
    if number == _FLETCHER32:
        return Codec("fletcher32")
    if number == _LZF:
        return Codec("lzf")
    if number == _LZ4:
        return Codec("lz4hdf5", {"blocksize": padded[0]} if padded[0] else {})
    if number == _ZSTD:
        level = padded[0] - 2**32 if padded[0] >= 2**31 else padded[0]
        return Codec("zstd", {"level": level} if level else {})
    if number == _BLOSC and padded[6] < len(_BLOSC_NAMES):
        return Codec(
            "blosc",
            {
                "cname": _BLOSC_NAMES[padded[6]],
                "itemsize": max(padded[2], 1),
                "level": min(padded[4], 9),
                "shuffle": min(padded[5], 2),
            },
        )
    if number == _BZIP2:
        return Codec("bzip2", {"level": padded[0]} if 1 <= padded[0] <= 9 else {})
    if number == _BITSHUFFLE and padded[4] in _BLOCKS:
        return _make_bitshuffle(padded)
    return filters.make_codec(number, values, name, path)


def _make_bitshuffle(values: list[int]) -> Codec:
    """
    Return the codec of bitshuffle.

    Parameters are versions, size of an item, items of a block, compressor of blocks, its level.
    """
    options: dict[str, int | str] = {"cname": _BLOCKS[values[4]], "itemsize": max(values[2], 1)}
    if values[3]:
        options["blocksize"] = values[3]
    if options["cname"] == "zstd" and 1 <= values[5] <= 22:
        options["level"] = values[5]
    return Codec("bitshuffle", options)


def add_filter(plist: Any, codec: Codec, itemsize: int, path: str) -> None:
    """Append one codec to the filters of a new dataset."""
    options = dict(codec.options)
    options.pop("itemsize", None)
    number = _NUMBERS.get(codec.name)
    level = int(options.pop("level", _LEVELS.get(codec.name, 4)))
    values: list[int] = []
    if number is None:
        raise UnsupportedError(
            f"{path!r}: HDF5 has no filter for codec {codec.name!r}; use gzip, zstd, lz4, blosc, lzf, "
            "bitshuffle, bzip2, shuffle or fletcher32",
            code="bad-compression",
            path=path,
        )
    if number in (_DEFLATE, _BZIP2):
        values = [level]
    elif number == _ZSTD:
        values = [level % 2**32]
        options.pop("checksum", None)
    elif number == _LZ4:
        values = [int(options.pop("blocksize", 0))]
    elif number == _BITSHUFFLE:
        compressors = {name: code for code, name in _BLOCKS.items()}
        cname = str(options.pop("cname", "lz4"))
        items = int(options.pop("blocksize", 0))
        if cname not in compressors or items % 8 or items < 0:
            raise UsageError(
                f"{path!r}: bitshuffle with cname={cname!r}, blocksize={items}; cname must be one of "
                f"{', '.join(compressors)}, and blocksize a multiple of 8 items (0: automatic)",
                code="bad-compression",
                path=path,
            )
        values = [items, compressors[cname], *([level] if cname == "zstd" else [])]
    elif number == _BLOSC:
        cname = str(options.pop("cname", "lz4"))
        shuffle = int(options.pop("shuffle", 1))
        options.pop("blocksize", None)
        if cname not in _BLOSC_NAMES or not 0 <= shuffle <= 2:
            raise UsageError(
                f"{path!r}: blosc with cname={cname!r}, shuffle={shuffle}; cname must be one of "
                f"{', '.join(_BLOSC_NAMES)}, and shuffle 0, 1 or 2",
                code="bad-compression",
                path=path,
            )
        values = [0, 0, itemsize, 0, level, shuffle, _BLOSC_NAMES.index(cname)]
    if options or not _is_level_valid(number, values):
        raise UsageError(
            f"{path!r}: {codec.name} does not support {dict(codec.options)}; deflate has levels 0 to 9, "
            "bzip2 1 to 9, Zstandard in bitshuffle 1 to 22",
            code="bad-compression",
            path=path,
        )
    # HDF5 creates datasets only with filters that are registered in this process.
    if not filters.register(number):
        raise UnsupportedError(
            f"{path!r}: to create datasets with {codec.name}, HDF5 needs its plugin: pip install "
            "hdf5plugin",
            code="missing-library",
            path=path,
        )
    if number == _DEFLATE:
        plist.set_deflate(values[0])
    elif number == _SHUFFLE:
        plist.set_shuffle()
    elif number == _FLETCHER32:
        plist.set_fletcher32()
    else:
        plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, tuple(values))


def _is_level_valid(number: int, values: list[int]) -> bool:
    if number == _DEFLATE:
        return 0 <= values[0] <= 9
    if number == _BZIP2:
        return 1 <= values[0] <= 9
    return number != _BITSHUFFLE or all(1 <= level <= 22 for level in values[2:])
