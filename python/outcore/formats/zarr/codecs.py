"""
Codec pipelines between Zarr's JSON and `Codec`.

Problem: Zarr v3 describes the encoding of elements as a list of codecs of three kinds: array to array
(``transpose``), array to bytes (``bytes``, ``sharding_indexed``), bytes to bytes (``gzip``, ...). The
core knows strides, a byte order and a list of byte codecs.
Approach: ``transpose`` becomes strides, ``bytes`` becomes the byte order of the dtype,
``sharding_indexed`` becomes a source of chunks; the remaining byte codecs are translated one by one.
Zarr v2 (memory order, filters, compressor) ends in the same `Pipeline`.
Invariants: no pipeline is understood only in part: every codec, and every option that changes bytes, is
either translated or an `UnsupportedError`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outcore.errors import UsageError
from outcore.formats.documents import MAX_LENGTH, Document, Judge
from outcore.formats.layout import Codec
from outcore.formats.zarr.dtypes import DType, with_endian

_BLOSC = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_MAX_CODECS = 32


@dataclass(frozen=True, slots=True)
class Shard:
    """Shape and index of a shard."""

    shape: tuple[int, ...]
    index_at: str
    index_crc32c: bool


@dataclass(frozen=True, slots=True)
class Pipeline:
    """
    The encoding of elements as stored bytes.

    `chunks` is the shape of the smallest unit that is encoded (the inner chunk, if sharded); `strides`
    belong to it; `axes` lists its axes from the slowest to the fastest; `names` are for display.
    """

    dtype: DType
    chunks: tuple[int, ...]
    strides: tuple[int, ...]
    axes: tuple[int, ...]
    codecs: tuple[Codec, ...]
    names: tuple[str, ...]
    shard: Shard | None = None

    @property
    def order(self) -> str:
        """``"F"`` if the first axis is the fastest, else ``"C"``."""
        return "F" if len(self.axes) > 1 and self.axes == _list_axes(self.axes)[::-1] else "C"


def _list_axes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(range(len(shape)))


def _compute_strides(chunks: tuple[int, ...], axes: tuple[int, ...], item: int) -> tuple[int, ...]:
    strides, step = [0] * len(chunks), item
    for axis in reversed(axes):
        strides[axis] = step
        step *= chunks[axis]
    return tuple(strides)


def _check_bytes(chunks: tuple[int, ...], item: int, judge: Judge) -> None:
    if math.prod(chunks) * item > MAX_LENGTH:
        raise judge.bad(f"a chunk of shape {chunks} with items of {item} bytes exceeds 63 bits")


def from_v3(value: Any, chunks: tuple[int, ...], dtype: DType, judge: Judge) -> Pipeline:
    """Return the pipeline of a v3 ``codecs`` list, for chunks (or shards) of shape `chunks`."""
    _check_bytes(chunks, dtype.itemsize, judge)
    entries = [
        judge.parse_name(item, "codec") for item in judge.sequence(value, "codecs", _MAX_CODECS)
    ]
    axes, at = _list_axes(chunks), 0
    while at < len(entries) and entries[at][0] == "transpose":
        axes = _transpose(axes, entries[at][1].get("order"), judge)
        at += 1
    if at == len(entries):
        raise judge.bad("the codecs lack one that turns elements into bytes")
    name, options = entries[at]
    rest = entries[at + 1 :]
    if name == "sharding_indexed":
        if rest or axes != _list_axes(chunks):
            raise judge.make_unsupported_error("codecs around sharding_indexed")
        return _parse_sharded(options, chunks, dtype, judge)
    if name != "bytes":
        raise judge.make_unsupported_error(f"codec {reprlib.repr(name)}")
    stored = with_endian(dtype, _parse_endian(options, dtype, judge))
    return Pipeline(
        dtype=stored,
        chunks=chunks,
        strides=_compute_strides(chunks, axes, dtype.itemsize),
        axes=axes,
        codecs=tuple(_parse_step_v3(n, o, dtype.itemsize, judge) for n, o in rest),
        names=tuple(n for n, _ in entries),
    )


def _transpose(axes: tuple[int, ...], order: Any, judge: Judge) -> tuple[int, ...]:
    if order in ("C", "F"):  # drafts of the specification
        return axes if order == "C" else axes[::-1]
    order = judge.lengths(order, "transpose order", 0)
    if sorted(order) != list(range(len(axes))):
        raise judge.bad(f"transpose order {order} is not a permutation of {len(axes)} axes")
    return tuple(axes[k] for k in order)


def _parse_endian(options: Document, dtype: DType, judge: Judge) -> str | None:
    endian = options.get("endian")
    if endian is None:
        # Structures of zarr-python have no endian; they are little-endian on little-endian machines.
        if dtype.itemsize > 1 and dtype.kind not in "SV":
            raise judge.bad(f"codec bytes lacks the endian of {dtype}")
    elif endian not in ("little", "big"):
        raise judge.bad(f"endian {reprlib.repr(endian)} is neither 'little' nor 'big'")
    return endian


def _parse_sharded(
    options: Document, shard: tuple[int, ...], dtype: DType, judge: Judge
) -> Pipeline:
    inner = judge.lengths(options.get("chunk_shape"), "chunk_shape of sharding_indexed", 1)
    if len(inner) != len(shard) or any(s % n for s, n in zip(shard, inner, strict=False)):
        raise judge.bad(f"inner chunks of shape {inner} do not divide shards of shape {shard}")
    codecs = judge.sequence(options.get("codecs", []), "codecs", _MAX_CODECS)
    if any(judge.parse_name(item, "codec")[0] == "sharding_indexed" for item in codecs):
        raise judge.make_unsupported_error("shards inside shards")
    index = judge.sequence(options.get("index_codecs", []), "index_codecs", _MAX_CODECS)
    names = [judge.parse_name(item, "index codec") for item in index]
    if [n for n, _ in names] not in (["bytes"], ["bytes", "crc32c"]):
        raise judge.make_unsupported_error("a shard index that is not stored as bytes (and crc32c)")
    if names[0][1].get("endian") != "little":
        raise judge.make_unsupported_error("a shard index that is not little-endian")
    place = options.get("index_location", "end")
    if place not in ("start", "end"):
        raise judge.bad(f"index_location {reprlib.repr(place)} is neither 'start' nor 'end'")
    below = from_v3(codecs, inner, dtype, judge)
    return Pipeline(
        dtype=below.dtype,
        chunks=inner,
        strides=below.strides,
        axes=below.axes,
        codecs=below.codecs,
        names=("sharding_indexed", *below.names),
        shard=Shard(shard, place, len(names) == 2),
    )


def _parse_step_v3(name: str, options: Document, item: int, judge: Judge) -> Codec:
    """Return the `Codec` of a bytes-to-bytes codec of Zarr v3."""
    if name.startswith("numcodecs."):
        return _parse_step_numcodecs(name[10:], options, item, judge)
    if name == "gzip":
        return Codec("gzip", {"level": judge.integer(options.get("level", 6), "level", 0, 9)})
    if name == "zstd":
        return _zstd(options, judge)
    if name == "crc32c":
        return Codec("crc32c")
    if name == "blosc":
        shuffle = options.get("shuffle", "noshuffle")
        if shuffle not in _SHUFFLES:
            raise judge.bad(f"shuffle {reprlib.repr(shuffle)} is not one of {', '.join(_SHUFFLES)}")
        size = judge.integer(options.get("typesize", item), "typesize", 1)
        return _blosc(options, _SHUFFLES.index(shuffle), size, judge)
    raise judge.make_unsupported_error(f"codec {reprlib.repr(name)}")


def _zstd(options: Document, judge: Judge) -> Codec:
    checksum = options.get("checksum", False)
    if not isinstance(checksum, (bool, int)):
        raise judge.bad(f"checksum {reprlib.repr(checksum)} is not true or false")
    level = judge.integer(options.get("level", 0), "level", -131072, 22)
    return Codec("zstd", {"level": level, "checksum": int(bool(checksum))})


def _blosc(options: Document, shuffle: int, size: int, judge: Judge) -> Codec:
    cname = options.get("cname", "lz4")
    if cname == "snappy":
        raise judge.make_unsupported_error("blosc with snappy")
    if cname not in _BLOSC:
        raise judge.bad(f"cname {reprlib.repr(cname)} is not one of {', '.join(_BLOSC)}")
    return Codec(
        "blosc",
        {
            "cname": cname,
            "level": judge.integer(options.get("clevel", 5), "clevel", 0, 9),
            "shuffle": shuffle,
            "itemsize": _clip_item(size),
            "blocksize": judge.integer(options.get("blocksize", 0), "blocksize", 0, 2**31 - 1),
        },
    )


def _clip_item(size: int) -> int:
    """Return the item size for a blosc frame, whose header has one byte for it; 1 for larger sizes."""
    return size if size <= 255 else 1


def _parse_step_numcodecs(name: str, options: Document, item: int, judge: Judge) -> Codec:
    """Return the `Codec` of a bytes-to-bytes codec of numcodecs: Zarr v2, and ``numcodecs.*`` in v3."""
    step = _NUMCODECS.get(name)
    if step is None:
        raise judge.make_unsupported_error(f"codec numcodecs.{reprlib.repr(name)[1:-1]}")
    return step(options, item, judge)


def _numcodecs_zlib(options: Document, item: int, judge: Judge) -> Codec:
    level = judge.integer(options.get("level", 1), "level", -1, 9)
    return Codec("deflate", {"level": 6 if level < 0 else level})


def _numcodecs_gzip(options: Document, item: int, judge: Judge) -> Codec:
    return Codec("gzip", {"level": judge.integer(options.get("level", 1), "level", 0, 9)})


def _numcodecs_bz2(options: Document, item: int, judge: Judge) -> Codec:
    return Codec("bzip2", {"level": judge.integer(options.get("level", 1), "level", 1, 9)})


def _numcodecs_lz4(options: Document, item: int, judge: Judge) -> Codec:
    judge.integer(options.get("acceleration", 1), "acceleration", -(2**31), 2**31 - 1)
    return Codec("lz4")


def _numcodecs_blosc(options: Document, item: int, judge: Judge) -> Codec:
    shuffle = judge.integer(options.get("shuffle", 1), "shuffle", -1, 2)
    size = judge.integer(options.get("typesize", item), "typesize", 1)
    if shuffle < 0:  # numcodecs: bits of single bytes, else bytes
        shuffle = 2 if size == 1 else 1
    return _blosc(options, shuffle, size, judge)


def _numcodecs_shuffle(options: Document, item: int, judge: Judge) -> Codec:
    size = judge.integer(options.get("elementsize", 4), "elementsize", 0, 2**31 - 1)
    return Codec("shuffle", {"itemsize": max(size, 1)})


def _numcodecs_crc32c(options: Document, item: int, judge: Judge) -> Codec:
    place = options.get("location") or "end"
    if place != "end":
        raise judge.make_unsupported_error(f"crc32c at {reprlib.repr(place)}")
    return Codec("crc32c")


_NUMCODECS: dict[str, Callable[[Document, int, Judge], Codec]] = {
    "zlib": _numcodecs_zlib,
    "gzip": _numcodecs_gzip,
    "zstd": lambda options, item, judge: _zstd(options, judge),
    "bz2": _numcodecs_bz2,
    "lz4": _numcodecs_lz4,
    "blosc": _numcodecs_blosc,
    "shuffle": _numcodecs_shuffle,
    "crc32c": _numcodecs_crc32c,
    "fletcher32": lambda options, item, judge: Codec("fletcher32"),
}


def from_v2(
    filters: Any,
    compressor: Any,
    order: Any,
    chunks: tuple[int, ...],
    dtype: DType,
    judge: Judge,
) -> Pipeline:
    """Return the pipeline of v2 metadata: memory order, then filters, then the compressor."""
    _check_bytes(chunks, dtype.itemsize, judge)
    if order not in ("C", "F"):
        raise judge.bad(f"order {reprlib.repr(order)} is neither 'C' nor 'F'")
    entries = judge.sequence([] if filters is None else filters, "filters", _MAX_CODECS)
    entries = entries if compressor is None else [*entries, compressor]
    steps, names = [], []
    for entry in entries:
        options = judge.mapping(entry, "codec")
        name = judge.text(options.get("id"), "id of a codec")
        steps.append(_parse_step_numcodecs(name, options, dtype.itemsize, judge))
        names.append(name)
    axes = _list_axes(chunks) if order == "C" else _list_axes(chunks)[::-1]
    strides = _compute_strides(chunks, axes, dtype.itemsize)
    return Pipeline(dtype, chunks, strides, axes, tuple(steps), tuple(names))


def to_v3(
    codecs: Sequence[Codec],
    dtype: DType,
    order: str,
    ndim: int,
    inner: tuple[int, ...] | None,
    path: str,
) -> list[Document]:
    """
    Return the v3 ``codecs`` of a new array.

    `dtype` is as stored. `inner` is the shape of the chunks in a shard; None: no shards.
    """
    steps: list[Document] = []
    if order == "F" and ndim > 1:
        steps.append(_make_named("transpose", order=list(range(ndim))[::-1]))
    wide = dtype.itemsize > 1 and dtype.newbyteorder("S") != dtype
    big = wide and dtype == dtype.newbyteorder(">")
    steps.append(
        _make_named("bytes", endian="big" if big else "little") if wide else _make_named("bytes")
    )
    for codec in codecs:
        if codec.name != "none":
            steps.append(_to_step(codec, dtype.itemsize, path))
    if inner is None:
        return steps
    index = [_make_named("bytes", endian="little"), _make_named("crc32c")]
    return [
        _make_named(
            "sharding_indexed",
            chunk_shape=list(inner),
            codecs=steps,
            index_codecs=index,
            index_location="end",
        )
    ]


def _make_named(name: str, **options: Any) -> Document:
    return {"name": name, "configuration": options} if options else {"name": name}


# Options of a codec in addition to ``level`` and ``itemsize``, which all codecs have.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "zstd": ("checksum",),
    "blosc": ("cname", "shuffle", "blocksize"),
    "lz4": ("shuffle", "blocksize"),
}


def _check_options(codec: Codec, path: str) -> None:
    """Raise for unknown options, which would otherwise be ignored."""
    known = ("level", "itemsize", *_OPTIONS.get(codec.name, ()))
    for option in codec.options:
        if option not in known:
            raise _bad_codec_error(f"option {option!r} of {codec.name} ({', '.join(known)})", path)


def _to_step(codec: Codec, item: int, path: str) -> Document:
    _check_options(codec, path)
    options = codec.options
    name = codec.name
    if name in ("gzip", "deflate", "zlib"):
        return _make_named("gzip", level=_check_level(codec, 6, 0, 9, path))
    if name == "zstd":
        level = _check_level(codec, 3, -131072, 22, path)
        return _make_named("zstd", level=level, checksum=bool(options.get("checksum", 0)))
    if name in ("blosc", "lz4", "lz4hdf5"):
        cname = options.get("cname", "zstd") if name == "blosc" else "lz4"
        shuffle = options.get("shuffle", 1 if item > 1 else 2)
        shuffle = _SHUFFLES[shuffle] if shuffle in (0, 1, 2) else shuffle
        if cname not in _BLOSC or shuffle not in _SHUFFLES:
            raise _bad_codec_error(f"cname={cname!r}, shuffle={shuffle!r} of {name}", path)
        return _make_named(
            "blosc",
            cname=cname,
            clevel=_check_level(codec, 5, 0, 9, path),
            shuffle=shuffle,
            typesize=_clip_item(int(options.get("itemsize", item))),
            blocksize=int(options.get("blocksize", 0)),
        )
    if name == "bzip2":
        return _make_named("numcodecs.bz2", level=_check_level(codec, 9, 1, 9, path))
    if name == "crc32c":
        return _make_named("crc32c")
    if name == "shuffle":
        return _make_named("numcodecs.shuffle", elementsize=int(options.get("itemsize", item)))
    if name == "fletcher32":
        return {"name": "numcodecs.fletcher32", "configuration": {}}  # zarr-python requires the key
    raise _bad_codec_error(f"compression {name!r}", path)


def _check_level(codec: Codec, default: int, low: int, high: int, path: str) -> int:
    level = codec.options.get("level", default)
    if not isinstance(level, int) or not low <= level <= high:
        raise _bad_codec_error(f"level {level!r} of {codec.name} (not in {low}..{high})", path)
    return level


def _bad_codec_error(what: str, path: str) -> UsageError:
    return UsageError(
        f"{path!r}: Zarr cannot store {what}; use none, zstd, gzip, blosc, lz4 or bzip2, with shuffle, "
        "crc32c or fletcher32",
        code="bad-compression",
        path=path,
    )


def to_v2(codecs: Sequence[Codec], dtype: DType, path: str) -> tuple[list[Document] | None, Any]:
    """Return the v2 ``filters`` and ``compressor`` of a new array."""
    steps = [_to_numcodecs(c, dtype.itemsize, path) for c in codecs if c.name != "none"]
    return steps[:-1] or None, steps[-1] if steps else None


def _to_numcodecs(codec: Codec, item: int, path: str) -> Document:
    _check_options(codec, path)
    if codec.name in ("deflate", "zlib"):
        return {"id": "zlib", "level": _check_level(codec, 6, 0, 9, path)}
    if codec.name == "lz4":
        return {"id": "lz4", "acceleration": 1}
    step = _to_step(codec, item, path)
    options = {k: v for k, v in step.get("configuration", {}).items() if k != "typesize"}
    if "shuffle" in options:
        options["shuffle"] = _SHUFFLES.index(options["shuffle"])
    if not options.get("checksum", True):
        del options["checksum"]  # the default of numcodecs; tensorstore rejects the key
    return {"id": step["name"].removeprefix("numcodecs."), **options}


def takes(codec: Codec, dtype: DType, version: int) -> bool:
    """Return whether a new array can have a codec."""
    try:
        if version == 2:
            to_v2((codec,), dtype, "")
        else:
            to_v3((codec,), dtype, "C", 1, None, "")
    except UsageError:
        return False
    return True
