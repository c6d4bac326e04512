"""
Filters that only the HDF5 library and its plugins have: one chunk at a time, in memory.

Problem: szip, n-bit, scale-offset and most plugins exist only in HDF5's filter pipeline, which runs
only when a dataset of a file is read.
Approach: a filter depends only on its parameters, which the library computed from type and chunk when
the dataset was created. So a file in memory is sufficient, with one chunk of bytes and this filter
alone: the chunk is stored as it is, and the library returns it decoded. The library would not create
such a dataset (it would compute the parameters again, and needs an encoder for szip), but it opens it.
Therefore the file is created with deflate, and the number of the filter is then replaced in its bytes.
N-bit stores types that NumPy does not have (integers of 12 bits, for example). The library converts
its output from the type of the dataset to NumPy's, and extends signs.
Invariants: no file on disk is touched. The library (2.0) trusts parameters and streams of szip, n-bit
and scale-offset: values with which it would access other memory are rejected first. For a damaged
stream of a plugin outcore is as safe as h5py is.

References: HDF5 2.0, ``H5Znbit.c``, ``H5Zscaleoffset.c``, ``H5Zszip.c``; the registry of filter
plugins.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import UnsupportedError
from outcore.formats.hdf5.library import h5py
from outcore.formats.layout import Codec

SZIP, NBIT, SCALEOFFSET = 4, 5, 6
_BUILT_IN = (SZIP, NBIT, SCALEOFFSET)
NAMES = {
    SZIP: "szip",
    NBIT: "nbit",
    SCALEOFFSET: "scaleoffset",
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32019: "jpeg",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
    32033: "htj2k",
}
# Maximal bytes of a chunk in the format of the file in memory.
_MAX_CHUNK_BYTES = 2**32 - 1
# Smaller numbers are built into the library. The set has the others that were replaced by
# hdf5plugin's, if that has them.
_PLUGINS = 256
_registered: set[int] = set()


def register(number: int) -> bool:
    """Return whether the library has a filter; first register hdf5plugin's, if there is one."""
    if number >= _PLUGINS and number not in _registered:
        # Once netCDF4 is imported, HDF5 searches for plugins in its folder. They call the HDF5 of
        # netCDF4, and fail. So an existing plugin is replaced. That fails while a dataset with the
        # filter is open; `decode` then tries again when outcore has none open.
        with contextlib.suppress(ImportError, RuntimeError):
            import hdf5plugin

            if number in hdf5plugin.FILTERS.values():
                hdf5plugin.register(number, force=True)
            _registered.add(number)
    return bool(h5py.h5z.filter_avail(number))


def make_codec(number: int, values: Sequence[int], name: bytes, path: str) -> Codec:
    """Return the codec of a filter that the library decodes; raise `UnsupportedError` if it cannot."""
    h5z = h5py.h5z
    word = NAMES.get(number) or name.decode("utf-8", "replace").strip("\0") or "unknown"
    if register(number) and h5z.get_filter_info(number) & h5z.FILTER_CONFIG_DECODE_ENABLED:
        text = " ".join(str(value) for value in values)
        return Codec("hdf5", {"filter": number, "name": word, "values": text})
    if number in _BUILT_IN:
        how = "which this build of h5py lacks: pip install --force-reinstall h5py (its wheels have it)"
    elif number in NAMES:
        how = "for which HDF5 needs its plugin: pip install hdf5plugin"
    else:
        how = "for which HDF5 has no plugin: install it (HDF5_PLUGIN_PATH)"
    raise UnsupportedError(
        f"{path!r}: its chunks are encoded with HDF5 filter {number} ({word}), {how}; or repack the "
        "file where it can be read: h5repack -f GZIP=4",
        code="hdf5-filter",
        path=path,
    )


def check_writable(codecs: Sequence[Codec], path: str) -> None:
    """Raise `UnsupportedError` if a codec is a filter of the library, which can only be read."""
    for codec in codecs:
        if codec.name == "hdf5":
            raise UnsupportedError(
                f"{path!r}: HDF5 filter {codec.options['filter']} ({codec.options['name']}) is "
                "read-only; open the array with mode 'r', or convert it to another compression",
                code="cannot-encode",
                path=path,
            )


def can_convert(plist: Any, kind: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether n-bit decodes chunks to `dtype` although HDF5 type `kind` has other bytes."""
    if plist.get_layout() != h5py.h5d.CHUNKED or not plist.get_nfilters():
        return False
    return bool(plist.get_filter(0)[0] == NBIT and kind.get_size() == dtype.itemsize)


def add_type(codec: Codec, kind: Any) -> Codec:
    """Return the codec with a conversion from an HDF5 type to the NumPy type of h5py."""
    return Codec(codec.name, {**codec.options, "type": kind.encode().hex()})


def decode(options: Mapping[str, int | str], stored: bytes, nbytes: int) -> NDArray[np.uint8]:
    """
    Decode the output of one filter, to `nbytes` bytes.

    `options` are those of the codec: ``filter``, ``name``, its parameters (``values``), and optionally
    ``type``. `ValueError` or `OSError` means that `stored` is not valid output of this filter for that
    number of bytes.
    """
    number, word = int(options["filter"]), options["name"]
    values = tuple(int(text) for text in str(options["values"]).split())
    kind = str(options.get("type", ""))
    try:
        _check(number, values, stored, nbytes)
        image = _make_file_image(number, values, nbytes)
        if number == SZIP:
            return _decode_szip(image, stored, nbytes)
        out = _read(image, stored, nbytes)
        if kind:
            _convert(out, bytes.fromhex(kind))
        return out
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"filter {number} ({word}): {error}") from error


def _read(image: bytes, stored: bytes, nbytes: int) -> NDArray[np.uint8]:
    """Return what the library reads if `stored` is the only chunk of the file."""
    out = np.empty(nbytes, np.uint8)
    file = h5py.h5f.open_file_image(image, h5py.h5f.FILE_IMAGE_OPEN_RW)
    dset = h5py.h5d.open(file, _NAME)
    try:
        dset.write_direct_chunk((0,), stored)
        dset.read(h5py.h5s.ALL, h5py.h5s.ALL, out)
    finally:
        del dset
        file.close()
    return out


# Bytes after a stream of szip, more than its decoder reads ahead; the first three if it accepts all.
_TAILS = tuple(
    64 * byte for byte in (b"\0", b"\xff", b"\x55", b"\x7f", b"\xaa", b"\xcc", b"\x20", b"\x01")
)
_FEW_TAILS = 3


def _decode_szip(image: bytes, stored: bytes, nbytes: int) -> NDArray[np.uint8]:
    """
    Decode szip; raise `ValueError` if `stored` is not complete.

    If its input ends too soon, the decoder succeeds and does not change the rest of its output.
    Therefore it is called with different bytes after the input, which make no difference to a complete
    stream. The decoder also checks what follows the last block, and rejects some of these bytes: then
    the results for all accepted ones must be equal.
    """
    out, agreeing, refusal = None, 0, None
    for number, end in enumerate(_TAILS):
        if number == _FEW_TAILS and refusal is None:
            break
        try:
            found = _read(image, stored + end, nbytes)
        except OSError as error:
            refusal = error
            continue
        if out is not None and not np.array_equal(out, found):
            raise ValueError(f"{len(stored)} bytes are not all of the chunk; it was cut off")
        out, agreeing = found, agreeing + 1
    if out is None or agreeing < 2:
        assert refusal is not None
        raise refusal
    return out


def _convert(elements: NDArray[np.uint8], encoded: bytes) -> None:
    """Convert elements of an HDF5 type, in place, to the NumPy type of h5py."""
    h5t = h5py.h5t
    kind = h5t.decode(encoded)
    numpys = h5t.py_create(kind.dtype, logical=True)
    h5t.convert(kind, numpys, elements.nbytes // kind.get_size(), elements)


_NAME = b"chunk"
_numbers = itertools.count()
_DEFLATE, _DEFLATES_NAME = 1, b"deflate\0"


@functools.lru_cache(maxsize=64)
def _make_file_image(number: int, values: tuple[int, ...], nbytes: int) -> bytes:
    """Return the bytes of a file with a dataset of one filter and one chunk, which is not stored yet."""
    h5f, h5p = h5py.h5f, h5py.h5p
    if not 0 < nbytes <= _MAX_CHUNK_BYTES:
        raise ValueError(f"a chunk of HDF5 cannot have {nbytes} bytes")
    if not register(number):  # the rank that opened the file had it
        raise ValueError("this process has no plugin for this filter: pip install hdf5plugin")
    fapl = h5p.create(h5p.FILE_ACCESS)
    fapl.set_fapl_core(backing_store=False)
    # The oldest format has no checksums, and one place for a filter's number.
    fapl.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    # No file on disk has this name; two open files must not share it.
    file = h5f.create(b"outcore-filter-%d" % next(_numbers), h5f.ACC_TRUNC, fapl=fapl)
    try:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((nbytes,))
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        plist.set_filter(_DEFLATE, 0, values)
        h5py.h5d.create(
            file, _NAME, h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple((nbytes,)), plist
        )
        h5f.flush(file)
        image = bytearray(file.get_file_image())
    finally:
        file.close()
    # The filter message: number, length of the name, flags, number of parameters; name; parameters.
    words = struct.pack(f"<{len(values)}I", *values)
    message = struct.pack("<4H", _DEFLATE, len(_DEFLATES_NAME), 0, len(values)) + _DEFLATES_NAME
    if image.count(message + words) != 1:
        raise ValueError(
            "the HDF5 library writes files in memory in an unknown way; please report this"
        )
    at = image.find(message + words)
    image[at : at + 2] = struct.pack("<H", number)
    return bytes(image)


def _check(number: int, values: tuple[int, ...], stored: bytes, nbytes: int) -> None:
    """Raise `ValueError` for parameters or bytes with which the library would access other memory."""
    if number not in _CHECKS:
        return
    try:
        _CHECKS[number](values, stored, nbytes)
    except (IndexError, RecursionError):
        raise ValueError(f"{len(values)} parameters do not describe the type") from None


def _check_bytes(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"{what} {found} bytes, {wanted} expected")


def _check_least(stored: bytes, wanted: int) -> None:
    if len(stored) < wanted:
        raise ValueError(f"{len(stored)} bytes are stored, {wanted} needed; the chunk was cut off")


def _check_szip(values: tuple[int, ...], stored: bytes, nbytes: int) -> None:
    if len(values) != 4:
        raise ValueError(f"{len(values)} parameters instead of 4")
    _, per_block, bits, per_line = values
    usual = 1 <= bits <= 24 or bits in (32, 64)
    if not usual or per_block % 2 or not 2 <= per_block <= 32 or not per_block <= per_line <= 4096:
        raise ValueError(
            f"{bits} bits in blocks of {per_block} and lines of {per_line} are impossible"
        )
    _check_least(stored, 4)
    # The library allocates the bytes promised here, and reads the expected ones.
    _check_bytes("the header promises", int.from_bytes(stored[:4], "little"), nbytes)


# Scale-offset: number of parameters, bytes before the packed integers, and the scaling of integers.
_SO_VALUES, _SO_HEADER, _SO_INT = 20, 21, 2


def _check_scaleoffset(values: tuple[int, ...], stored: bytes, nbytes: int) -> None:
    if len(values) != _SO_VALUES:
        raise ValueError(f"{len(values)} parameters instead of {_SO_VALUES}")
    scaling, factor, count, _, size = values[:5]
    if size not in (1, 2, 4, 8):
        raise ValueError(f"items of {size} bytes are impossible")
    _check_bytes("the parameters promise", count * size, nbytes)
    if scaling == _SO_INT and factor == 8 * size:  # stored as they are
        _check_bytes("there are", len(stored), nbytes)
        return
    _check_least(stored, _SO_HEADER)
    bits = int.from_bytes(stored[:4], "little")
    if bits > 8 * size:
        raise ValueError(f"{bits} bits for items of {size} bytes; the chunk is damaged")
    _check_least(stored, _SO_HEADER + (count * bits + 7) // 8)


# N-bit: kinds of types.
_ATOMIC, _ARRAY, _COMPOUND, _AS_IS = 1, 2, 3, 4


def _check_nbit(values: tuple[int, ...], stored: bytes, nbytes: int) -> None:
    if values[0] != len(values):
        raise IndexError
    if values[1]:  # stored as they are
        _check_bytes("there are", len(stored), nbytes)
        return
    bits, size, end = _measure_packed(values, 3)
    if end != len(values):
        raise IndexError
    _check_bytes("the parameters promise", values[2] * size, nbytes)
    _check_least(stored, (values[2] * bits + 7) // 8)


def _measure_packed(values: tuple[int, ...], at: int) -> tuple[int, int, int]:
    """Return stored bits, bytes and the position of the next type, for the type described at `at`."""
    kind, size = values[at], values[at + 1]
    if kind == _AS_IS:
        return 8 * size, size, at + 2
    if kind == _ATOMIC:
        order, precision, offset = values[at + 2], values[at + 3], values[at + 4]
        if order > 1 or not 0 < precision <= 8 * size - offset:
            raise ValueError(f"{precision} bits from bit {offset} of {size} bytes are impossible")
        return precision, size, at + 5
    if kind == _ARRAY:
        bits, base, end = _measure_packed(values, at + 2)
        if base < 1 or size % base:
            raise ValueError(f"an array of {size} bytes of items of {base} is impossible")
        return size // base * bits, size, end
    if kind != _COMPOUND:
        raise ValueError(f"types of kind {kind} do not exist")
    total, end = 0, at + 3
    for _ in range(values[at + 2]):
        offset = values[end]
        bits, member, end = _measure_packed(values, end + 1)
        if offset + member > size:
            raise ValueError(f"a member ends at byte {offset + member} of {size}")
        total += bits
    return total, size, end


_CHECKS = {SZIP: _check_szip, NBIT: _check_nbit, SCALEOFFSET: _check_scaleoffset}
