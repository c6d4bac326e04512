"""
Creation options from another array: its properties as options of `outcore.create`.

Problem: ``like=`` may be an array of outcore, NumPy, h5py or zarr, and each describes its chunks and
codecs differently. The format of the new array may not support some of the properties.
Approach: for arrays on disk the format that owns them reads the metadata; other arrays are asked for
their attributes. Properties that the new format does not support are found by trying, with as few
omitted as possible (`create_with_most`). An array exists completely or not at all, so a failed attempt
changes nothing.

Invariants: no elements are read. Options given by the caller override the properties of the other
array.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from outcore import formats
from outcore.errors import UnsupportedError, UsageError, find_stack_level
from outcore.formats.format import HasLibrary, HasShards
from outcore.formats.layout import ArrayInfo, Chunked, Codec, ShardSource, VirtualSource
from outcore.formats.missing_values import ATTRIBUTE, Fill, cast
from outcore.formats.registry import find_by_library
from outcore.formats.texts import Texts

__all__ = [
    "adapt_options",
    "create_with_most",
    "fit_layout",
    "get_description",
    "get_labels",
    "get_options",
    "get_storage",
    "select_size_independent",
    "warn_lost",
]

T = TypeVar("T")

#: Error codes of attributes that a format cannot store.
BAD_ATTRIBUTES = ("bad-attribute", "bad-attributes")
# Properties of the layout: losing one changes no result, so there is no warning.
_LAYOUT = ("order", "chunks", "shards", "compression", "maxshape")


def get_options(like: Any) -> dict[str, Any]:
    """
    Return the properties of an array as options of `outcore.create`, including `shape` and `dtype`.

    Raise `UsageError` (``bad-like``) if `like` has no shape or no dtype.

    Examples
    --------
    >>> import numpy as np
    >>> get_options(np.zeros((2, 3), "i2", order="F"))
    {'shape': (2, 3), 'dtype': dtype('int16'), 'order': 'F'}
    """
    info = getattr(like, "info", None)
    if isinstance(info, ArrayInfo):
        return _read_info(info, dict(info.attrs))
    shape, dtype = getattr(like, "shape", None), getattr(like, "dtype", None)
    if shape is None or dtype is None:
        raise UsageError(
            f"like={like!r:.80} is not an array; pass one of outcore, NumPy, h5py or zarr, or "
            "shape= and dtype=",
            code="bad-like",
        )
    words = {"shape": tuple(shape), "dtype": np.dtype(dtype)}
    if isinstance(like, np.ndarray):
        return words | ({"order": "F"} if like.flags.fnc else {})
    found = _describe_by_library(like)
    if isinstance(found, ArrayInfo):
        return _read_info(found, found.attrs)
    return words | (get_labels(like) if found is None else found)


def _describe_by_library(like: Any) -> ArrayInfo | dict[str, Any] | None:
    """Ask the format whose library has made an array to describe it."""
    known = find_by_library(type(like).__module__.partition(".")[0])
    format = None if known is None else known.load()
    return format.describe_library_array(like) if isinstance(format, HasLibrary) else None


def get_labels(array: Any) -> dict[str, Any]:
    """
    Return names of axes and attributes of an array in memory (xarray) as options of `outcore.create`.

    Names of coordinates other than those of its axes become the attribute ``coordinates``, as in the CF
    conventions.

    Examples
    --------
    >>> import numpy as np
    >>> get_labels(np.zeros(3))
    {}
    """
    dims, attrs = getattr(array, "dims", None), getattr(array, "attrs", None)
    if not isinstance(dims, tuple) or not isinstance(attrs, Mapping):
        return {}
    names = tuple(name if isinstance(name, str) else None for name in dims)
    attrs = dict(attrs)
    others = sorted(str(name) for name in getattr(array, "coords", ()) if name not in dims)
    if others:
        attrs.setdefault("coordinates", " ".join(others))
    words = {"dims": names if any(names) else None, "attrs": attrs or None}
    return {name: word for name, word in words.items() if word is not None}


def get_description(info: ArrayInfo, dtype: np.dtype[Any] | None = None) -> dict[str, Any]:
    """
    Return properties of the elements of an array on disk as options of `outcore.create`.

    These are ``dims``, ``attrs`` and ``fill_value``, a `Fill`, which also has the value for missing
    data. `dtype` is the dtype to which elements are cast, if any.
    """
    # The fill value of text is a reference or text, not an element of the stored array.
    fill = Fill(None, None) if isinstance(info, Texts) else info.fill
    attrs = dict(info.attrs)
    if fill.missing is not None:
        attrs.pop(ATTRIBUTE, None)  # its form is specific to this format
    return {
        "fill_value": fill if dtype is None else cast(fill, dtype),
        "dims": info.dims,
        "attrs": attrs or None,
    }


def _read_info(info: ArrayInfo, attrs: Mapping[str, Any]) -> dict[str, Any]:
    words: dict[str, Any] = {"shape": info.shape, "dtype": info.dtype}
    words |= get_storage(info)
    limits = info.extra.get("maxshape")
    if limits is not None and tuple(limits) != info.shape:
        words["maxshape"] = tuple(limits)
    words |= get_description(replace(info, attrs=attrs))
    return {name: word for name, word in words.items() if word is not None}


def get_storage(info: ArrayInfo) -> dict[str, Any]:
    """
    Return the layout of an array as options of `outcore.create`.

    These are ``order``, and for a chunked array ``chunks``, ``compression`` and ``shards``; without
    codecs ``compression`` is an empty tuple. ``format`` is the format of these options.
    """
    words: dict[str, Any] = {"format": info.format, "order": info.order}
    layout = info.layout
    if not isinstance(layout, Chunked):
        return words
    words["chunks"] = layout.chunks
    if isinstance(layout.source, VirtualSource):
        return words  # the codecs belong to its sources
    words["compression"] = _get_codecs(layout.codecs)
    if isinstance(layout.source, ShardSource):
        pairs = zip(layout.chunks, layout.source.per_shard, strict=True)
        words["shards"] = tuple(chunk * count for chunk, count in pairs)
    return words


def _get_codecs(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Return the codecs of the array itself; a zip file may also deflate its members."""
    return tuple(codec for codec in codecs if codec.name != "zip")


def fit_layout(
    words: Mapping[str, Any], format: str, dtype: np.dtype[Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """
    Return the part of a layout (`get_storage`) that a format supports, and the unsupported part as text.

    A codec that the format lacks is replaced by an equal one; a compression without an equal one, by
    the format's own compression. The same applies to a codec for which readers of the format need a
    plug-in, unless the array comes from such a file. A format without chunks supports none of the
    layout, which is not reported.

    Examples
    --------
    >>> gzip = {"compression": (Codec("shuffle"), Codec("deflate", {"level": 4}))}
    >>> fit_layout({**gzip, "shards": (4, 4)}, "zarr2", np.dtype("f4")) == (gzip, ("shards",))
    True
    """
    words, lost = dict(words), []
    of = words.pop("format", None)
    codecs = words.get("compression", ())
    if formats.can_encode(format, formats.choose_codec(format), dtype) is None:
        return {k: v for k, v in words.items() if k not in ("chunks", "shards", "compression")}, ()
    has_shards = isinstance(formats.get_format(format), HasShards)
    if not has_shards and words.pop("shards", None) is not None:
        lost.append("shards")
    found: list[Codec] = []
    for codec in codecs:
        ways = (codec, *_find_equal_codecs(codec))
        one = next((way for way in ways if formats.can_encode(format, way, dtype)), None)
        plugin = one is not None and formats.needs_plugin(format, one)
        if one is not None and (not plugin or (of and formats.needs_plugin(of, codec))):
            found.append(one)
            continue
        lost.append(f"the codec {codec.options.get('name', codec.name)}")
        if plugin:
            lost[-1] += ", for which readers need a plug-in"
        if codec.name not in _NO_COMPRESSION:
            other = formats.choose_codec(format)
            lost[-1] += f" (it has {other.name} instead)"
            found.append(other)
    if codecs:
        words["compression"] = tuple(found)
    return words, tuple(lost)


# Codecs that do not compress.
_NO_COMPRESSION = ("shuffle", "crc32c", "fletcher32")


def _find_equal_codecs(codec: Codec) -> tuple[Codec, ...]:
    """Return the equivalent codecs of other formats."""
    if codec.name == "bitshuffle" and codec.options.get("cname") in ("lz4", "zstd"):
        options = {k: v for k, v in codec.options.items() if k in ("cname", "itemsize")}
        level = {"level": min(int(codec.options.get("level", 5)), 9)}
        return (Codec("blosc", {**options, **level, "shuffle": 2}),)
    if codec.name in ("lz4", "lz4hdf5"):
        return (Codec("lz4"),)
    return (Codec("fletcher32"),) if codec.name == "crc32c" else ()


def adapt_options(words: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the properties of an array that options given by the caller do not override.

    `words` has no shape and dtype if these are given; `said` includes both.

    Examples
    --------
    >>> words = {"shape": (100, 80), "dtype": "f8", "chunks": (50, 40), "dims": ("y", "x")}
    >>> adapt_options(words, {"shape": (20, 80), "dtype": "f8"})
    {'chunks': (20, 40), 'dims': ('y', 'x')}
    >>> adapt_options(words, {"shape": 7, "dtype": "f8"})
    {}
    """
    left = {k: v for k, v in words.items() if k not in ("shape", "dtype") and said.get(k) is None}
    if "compression" in said:  # None is a value: no compression
        left.pop("compression", None)
    shape = said["shape"]
    shape = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if len(shape) != len(words["shape"]):
        for name in ("chunks", "shards", "dims", "maxshape"):
            left.pop(name, None)
    elif shape != tuple(words["shape"]):
        left.pop("maxshape", None)
        if "shards" in left:
            # Shards consist of whole chunks; another chunk length needs another shard.
            left.pop("shards")
        if "chunks" in left:
            pairs = zip(left["chunks"], shape, strict=True)
            left["chunks"] = tuple(min(chunk, max(n, 1)) for chunk, n in pairs)
    if said.get("chunks") is not None or said.get("shards") is not None:
        # If one of the two is given, the other's old value does not match it.
        left.pop("shards", None)
        left.pop("chunks", None)
    if "compression" in left and np.dtype(said["dtype"]) != np.dtype(words["dtype"]):
        left["compression"] = select_size_independent(left["compression"])
    return left


def select_size_independent(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Return codecs that do not depend on the element size of the old array."""
    return tuple(
        replace(codec, options={k: v for k, v in codec.options.items() if k != "itemsize"})
        for codec in codecs
    )


def create_with_most(
    make: Callable[[Mapping[str, Any]], T], wanted: Mapping[str, Any]
) -> tuple[T, tuple[str, ...]]:
    """
    Create an object with as many options as its format supports; return it and the omitted options.

    `make` changes nothing if it raises. If no subset of the options succeeds, the first
    `UnsupportedError` or `UsageError` is raised; any other error of `make` is raised at once.
    """
    refusal: UnsupportedError | UsageError | None = None
    for lost in _iterate_subsets(list(wanted)):
        try:
            return make({k: v for k, v in wanted.items() if k not in lost}), lost
        except UnsupportedError as error:
            refusal = refusal or error
        except UsageError as error:
            if error.code not in BAD_ATTRIBUTES:
                raise
            refusal = refusal or error
    raise refusal or UnsupportedError(
        "the format does not support the options; pass another format=", code="cannot-keep"
    )


def warn_lost(
    array: Any,
    lost: Sequence[str],
    wanted: Mapping[str, Any],
    where: str,
    of: str,
    more: Sequence[str] = (),
) -> None:
    """
    Set attributes one by one that could not be set together, and warn about all lost properties.

    `lost` are the options among `wanted` that were omitted, `more` other lost properties
    (`fit_layout`); `where` and `of` name the new array and the array with all properties.
    """
    told = [name for name in lost if name not in ("attrs", *_LAYOUT)]
    if "attrs" in lost:
        told += _set_attributes(array, wanted["attrs"])
    told += more
    if told:
        warnings.warn(
            f"{where!r}: {array.format} cannot keep {', '.join(told)} of {of!r}",
            stacklevel=find_stack_level(),
        )


def _set_attributes(array: Any, attrs: Mapping[str, Any]) -> list[str]:
    lost = []
    try:
        for name, value in attrs.items():
            try:
                array.attrs[name] = value
            except UsageError:
                lost.append(f"attribute {name!r}")
    except UnsupportedError:
        return ["attrs"]
    except BaseException:
        array.close()
        raise
    return lost


def _iterate_subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield all subsets, the smallest first."""
    for count in range(len(names) + 1):
        yield from combinations(names, count)
