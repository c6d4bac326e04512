"""
Arrays on disk by the libraries that own the formats, for tests of equality.

Problem. A writer and a reader of our own may share a mistake.
Idea. Each `Kind` writes a NumPy array with the format's own library, reads it back with that library,
and says how `outcore.create` makes such a file. Tests pair them as they like.
Invariants. `write` and `read` never call outcore. What a library cannot hold, `takes` refuses.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numcodecs
import numpy as np
import zarr

import outcore
from outcore.formats.layout import Codec

NETCDF_TYPES = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"}


@dataclass(frozen=True)
class Kind:
    """One way to store an array."""

    name: str
    path: str
    write: Callable[[Path, np.ndarray, tuple[int, ...] | None], None]
    read: Callable[[Path], np.ndarray]
    chunked: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    inner: str = ""
    order: str = "C"

    def takes(self, shape: tuple[int, ...], dtype: np.dtype) -> bool:
        """Whether the format can hold such an array, made by its own library or by us."""
        kind = self.path.rpartition(".")[2]
        chunks = not self.chunked or (len(shape) > 0 and 0 not in shape)
        if kind == "nc":
            return chunks and dtype.str[1:] in NETCDF_TYPES and 0 not in shape
        if kind == "h5":
            return chunks and dtype.kind not in "mMUV" and dtype.names is None
        if kind in ("zarr", "zarr2"):
            plain = dtype.kind not in "mMV" and dtype.names is None
            return chunks and plain and len(shape) > 0 and 0 not in shape
        return True

    def create(self, folder: Path, array: np.ndarray, chunks: tuple[int, ...] | None, **more: Any):
        """Make it with `outcore.create`."""
        options = dict(self.options)
        if self.chunked:
            options["chunks"] = chunks
        if self.order == "F":
            options["order"] = "F"
        if "shards" in options:
            options["shards"] = tuple(2 * c for c in chunks or ())
        path: Any = f"{folder / self.path}{self.inner}"
        if "files" in options:
            path = [str(folder / name) for name in options.pop("files")]
        return outcore.create(path, array.shape, array.dtype, **options, **more)

    def open(self, folder: Path, array: np.ndarray, mode: str = "r", **more: Any):
        """Open it with `outcore.open`; raw files are told what they hold."""
        path: Any = f"{folder / self.path}{self.inner}"
        if self.path.endswith(".raw"):
            offset = self.options.get("offset", 0)
            more |= {"shape": array.shape, "dtype": array.dtype, "offset": offset}
            more |= {"order": self.order, "format": "raw"}
            path = [str(folder / n) for n in self.options.get("files", [self.path])]
        return outcore.open(path, mode, **more)


# NumPy


def _npy(order: str) -> Kind:
    def write(folder: Path, array: np.ndarray, _: Any) -> None:
        np.save(folder / "a.npy", np.asarray(array, order=order))

    return Kind(f"npy {order}", "a.npy", write, lambda f: np.load(f / "a.npy"), order=order)


def _raw(order: str) -> Kind:
    """Bytes after a header of five; their shape is known to the test alone."""

    def write(folder: Path, array: np.ndarray, _: Any) -> None:
        (folder / "a.raw").write_bytes(b"head!" + array.tobytes(order))

    def read(folder: Path) -> np.ndarray:
        return np.frombuffer((folder / "a.raw").read_bytes()[5:], np.uint8)

    return Kind(f"raw {order}", "a.raw", write, read, options={"offset": 5}, order=order)


def _split(count: int) -> Kind:
    names = [f"part{i}.raw" for i in range(count)]

    def write(folder: Path, array: np.ndarray, _: Any) -> None:
        content, item = array.tobytes(), max(array.dtype.itemsize, 1)
        share = -(-array.size // count) * item
        for i, name in enumerate(names):
            (folder / name).write_bytes(content[i * share : (i + 1) * share])

    def read(folder: Path) -> np.ndarray:
        return np.frombuffer(b"".join((folder / n).read_bytes() for n in names), np.uint8)

    return Kind(f"raw in {count} files", "a.raw", write, read, options={"files": names})


# HDF5 and NetCDF4


def _hdf5(name: str, ours: dict[str, Any], **theirs: Any) -> Kind:
    chunked = bool(ours) or bool(theirs)

    def write(folder: Path, array: np.ndarray, chunks: Any) -> None:
        more = {"chunks": chunks, **theirs} if chunked else {}
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("group/x", data=array, **more)

    def read(folder: Path) -> np.ndarray:
        with h5py.File(folder / "a.h5", "r") as file:
            return np.asarray(file["group/x"][()])

    options = {k: v for k, v in ours.items() if v is not True}
    return Kind(f"hdf5 {name}", "a.h5", write, read, chunked, options, "::/group/x")


def _netcdf(name: str, chunked: bool, **theirs: Any) -> Kind:
    def write(folder: Path, array: np.ndarray, chunks: Any) -> None:
        more: dict[str, Any] = dict(theirs, contiguous=not chunked)
        if chunked:
            more["chunksizes"] = chunks
        with netCDF4.Dataset(folder / "a.nc", "w") as file:
            dims = [f"d{i}" for i in range(array.ndim)]
            for dim, length in zip(dims, array.shape, strict=True):
                file.createDimension(dim, length)
            endian = {"<": "little", ">": "big"}.get(array.dtype.byteorder, "native")
            plain = array.dtype.newbyteorder("=")
            if array.ndim == 0:
                more = {}
            v = file.createVariable("x", plain, dims, endian=endian, fill_value=False, **more)
            v[...] = array.astype(plain)

    def read(folder: Path) -> np.ndarray:
        with netCDF4.Dataset(folder / "a.nc") as file:
            file.set_auto_maskandscale(False)
            return np.asarray(file["x"][...])

    options = {"compression": ["shuffle", "gzip"]} if theirs else {}
    return Kind(f"netcdf4 {name}", "a.nc", write, read, chunked, options, "::/x")


# Zarr


def _zarr(name: str, ours: dict[str, Any], shards: bool = False, **theirs: Any) -> Kind:
    def write(folder: Path, array: np.ndarray, chunks: Any) -> None:
        more = dict(theirs)
        if shards:
            more["shards"] = tuple(2 * c for c in chunks)
        with _quiet():
            made = zarr.create_array(
                folder / "a.zarr", shape=array.shape, chunks=chunks, dtype=array.dtype, **more
            )
            made[...] = array

    def read(folder: Path) -> np.ndarray:
        with _quiet():
            return np.asarray(zarr.open_array(folder / "a.zarr", mode="r")[...])

    options = ours | ({"shards": True} if shards else {})
    order = options.pop("order", "C")
    return Kind(f"zarr {name}", "a.zarr", write, read, True, options, order=order)


def _zarr2(name: str, order: str, **theirs: Any) -> Kind:
    def write(folder: Path, array: np.ndarray, chunks: Any) -> None:
        with _quiet():
            made = zarr.create_array(
                folder / "a.zarr2",
                shape=array.shape,
                chunks=chunks,
                dtype=array.dtype,
                zarr_format=2,
                order=order,
                **theirs,
            )
            made[...] = array

    def read(folder: Path) -> np.ndarray:
        with _quiet():
            return np.asarray(zarr.open_array(folder / "a.zarr2", mode="r")[...])

    options = {"format": "zarr2"}
    return Kind(f"zarr2 {name}", "a.zarr2", write, read, True, options, order=order)


@contextlib.contextmanager
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_C = zarr.codecs
KINDS = [
    _npy("C"),
    _npy("F"),
    _raw("C"),
    _raw("F"),
    _split(2),
    _split(3),
    _hdf5("contiguous", {}),
    _hdf5("chunked", {"plain": True}),
    _hdf5("gzip", {"compression": "gzip"}, compression="gzip"),
    _hdf5("shuffle gzip", {"compression": ["shuffle", "gzip"]}, compression=9, shuffle=True),
    _hdf5("fletcher32", {"compression": "fletcher32"}, fletcher32=True),
    _hdf5("lzf", {"compression": "lzf"}, compression="lzf", shuffle=True),
    _netcdf("contiguous", False),
    _netcdf("chunked", True),
    _netcdf("deflate", True, zlib=True, shuffle=True),
    _zarr("plain", {}, compressors=None),
    _zarr("zstd", {"compression": "zstd"}, compressors=_C.ZstdCodec()),
    _zarr("gzip", {"compression": "gzip"}, compressors=_C.GzipCodec()),
    _zarr("blosc", {"compression": "blosc"}, compressors=_C.BloscCodec(cname="lz4")),
    _zarr("crc32c", {"compression": "crc32c"}, compressors=_C.Crc32cCodec()),
    _zarr(
        "zstd crc32c",
        {"compression": [Codec("zstd", {"level": 1}), "crc32c"]},
        compressors=[_C.ZstdCodec(), _C.Crc32cCodec()],
    ),
    _zarr("shards", {}, shards=True, compressors=None),
    _zarr("shards zstd", {"compression": "zstd"}, shards=True, compressors=_C.ZstdCodec()),
    _zarr("F", {"order": "F"}, compressors=None, filters=None),
    _zarr2("plain", "C", compressors=None),
    _zarr2("zlib F", "F", compressors=numcodecs.Zlib()),
    _zarr2("blosc", "C", compressors=numcodecs.Blosc()),
]
