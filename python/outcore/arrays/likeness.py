"""
Arrays that are to be made like another one: what that one says, as words for `outcore.create`.

Problem. ``like=`` may be an array of ours, of NumPy, h5py or zarr; each says otherwise what its chunks
and codecs are. And the format of the new array may have no word for some of it.
Idea. Of arrays on disk the metadata are read by the format that owns them, of others their attributes
are asked. What the new format cannot keep is found by trying: with as little left out as it asks for
(`kept_by`). An array exists completely or not at all, so a try that fails has changed nothing.

Invariants. No elements are read. What somebody says himself goes before what the other array says.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from outcore import formats
from outcore.errors import UnsupportedError, UsageError, callers_line
from outcore.formats.layout import ArrayInfo, Chunked, Codec, ShardSource, VirtualSource, is_text
from outcore.formats.missing_values import ATTRIBUTE, Fill, cast, of_attribute

__all__ = [
    "adapted",
    "description",
    "fitted",
    "kept_by",
    "labels",
    "of_any_size",
    "storage",
    "tell_lost",
    "words_of",
]

T = TypeVar("T")

#: Codes of attributes that a format cannot keep.
BAD_ATTRIBUTES = ("bad-attribute", "bad-attributes")
# What says how elements lie, not what they are: to lose it changes no result, and is not told.
_LAYOUT = ("order", "chunks", "shards", "compression", "maxshape")


def words_of(like: Any) -> dict[str, Any]:
    """
    What an array says of itself, as words for `outcore.create`, `shape` and `dtype` among them.

    Parameters
    ----------
    like
        An array on disk (of ours, or of h5py or zarr), or anything with a shape and a dtype.

    Raises
    ------
    UsageError
        ``bad-like``: it has neither.

    Examples
    --------
    >>> import numpy as np
    >>> words_of(np.zeros((2, 3), "i2", order="F"))
    {'shape': (2, 3), 'dtype': dtype('int16'), 'order': 'F'}
    """
    info = getattr(like, "info", None)
    if isinstance(info, ArrayInfo):
        return _of_info(info, dict(info.attrs))
    shape, dtype = getattr(like, "shape", None), getattr(like, "dtype", None)
    if shape is None or dtype is None:
        raise UsageError(
            f"like={like!r:.80} is no array; give one of outcore, NumPy, h5py or zarr, or shape= and "
            "dtype=",
            code="bad-like",
        )
    module = type(like).__module__.partition(".")[0]
    if module == "zarr" and (found := _of_zarr(like)) is not None:
        return found
    words = {"shape": tuple(shape), "dtype": np.dtype(dtype)}
    if module == "h5py":
        return words | _of_h5py(like)
    if isinstance(like, np.ndarray) and like.flags.fnc:
        words["order"] = "F"
    return words | labels(like)


def labels(array: Any) -> dict[str, Any]:
    """
    Return names of axes and attributes of an array in memory (xarray), as words for `outcore.create`.

    Names of coordinates other than those of its axes become the attribute ``coordinates``, as in the CF
    conventions.

    Examples
    --------
    >>> import numpy as np
    >>> labels(np.zeros(3))
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


def description(info: ArrayInfo, dtype: np.dtype[Any] | None = None) -> dict[str, Any]:
    """
    Return what an array on disk says of its elements, as words for `outcore.create`.

    These are ``dims``, ``attrs`` and ``fill_value``, a `Fill`: it also says which value means "missing".
    `dtype` is that to which elements are cast, if they are.
    """
    # The fill value of text is a reference, or text: no element of what stands for it.
    fill = Fill(None, None) if is_text(info) else info.fill
    attrs = dict(info.attrs)
    if fill.missing is not None:
        attrs.pop(ATTRIBUTE, None)  # in the form of this format
    return {
        "fill_value": fill if dtype is None else cast(fill, dtype),
        "dims": info.dims,
        "attrs": attrs or None,
    }


def _of_info(info: ArrayInfo, attrs: Mapping[str, Any]) -> dict[str, Any]:
    words: dict[str, Any] = {"shape": info.shape, "dtype": info.dtype}
    words |= storage(info)
    limits = info.extra.get("maxshape")
    if limits is not None and tuple(limits) != info.shape:
        words["maxshape"] = tuple(limits)
    words |= description(replace(info, attrs=attrs))
    return {name: word for name, word in words.items() if word is not None}


def storage(info: ArrayInfo) -> dict[str, Any]:
    """
    Return how the elements of an array lie, as words for `outcore.create`.

    These are ``order``, and of an array in chunks ``chunks``, ``compression`` and ``shards``; without
    codecs ``compression`` is an empty tuple. ``format`` says whose words these are.
    """
    words: dict[str, Any] = {"format": info.format, "order": info.order}
    layout = info.layout
    if not isinstance(layout, Chunked):
        return words
    words["chunks"] = layout.chunks
    if isinstance(layout.source, VirtualSource):
        return words  # the codecs are those of its sources
    words["compression"] = _stored(layout.codecs)
    if isinstance(layout.source, ShardSource):
        pairs = zip(layout.chunks, layout.source.per_shard, strict=True)
        words["shards"] = tuple(chunk * count for chunk, count in pairs)
    return words


def _stored(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Those of the array itself: a zip file may deflate its members besides."""
    return tuple(codec for codec in codecs if codec.name != "zip")


def fitted(
    words: Mapping[str, Any], format: str, dtype: np.dtype[Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """
    What a format can express of how an array lies (`storage`), and what it cannot, in words.

    Of a codec that the format lacks an equal one is taken; of a compression that has none, the format's
    own. So it is with a codec for which readers of the format need a plug-in, unless the array comes
    from such a file. A format without chunks expresses none of it, which is not told.

    Examples
    --------
    >>> gzip = {"compression": (Codec("shuffle"), Codec("deflate", {"level": 4}))}
    >>> fitted({**gzip, "shards": (4, 4)}, "zarr2", np.dtype("f4")) == (gzip, ("shards",))
    True
    """
    words, lost = dict(words), []
    of = words.pop("format", None)
    codecs = words.get("compression", ())
    if formats.can_encode(format, formats.substitute(format), dtype) is None:
        return {k: v for k, v in words.items() if k not in ("chunks", "shards", "compression")}, ()
    if format != "zarr" and words.pop("shards", None) is not None:
        lost.append("shards")
    found: list[Codec] = []
    for codec in codecs:
        ways = (codec, *_equal_codecs(codec))
        one = next((way for way in ways if formats.can_encode(format, way, dtype)), None)
        plugin = one is not None and formats.needs_plugin(format, one)
        if one is not None and (not plugin or (of and formats.needs_plugin(of, codec))):
            found.append(one)
            continue
        lost.append(f"the codec {codec.options.get('name', codec.name)}")
        if plugin:
            lost[-1] += ", for which readers need a plug-in"
        if codec.name not in _NO_COMPRESSION:
            other = formats.substitute(format)
            lost[-1] += f" (it has {other.name} instead)"
            found.append(other)
    if codecs:
        words["compression"] = tuple(found)
    return words, tuple(lost)


# Codecs that make nothing smaller.
_NO_COMPRESSION = ("shuffle", "crc32c", "fletcher32")


def _equal_codecs(codec: Codec) -> tuple[Codec, ...]:
    """What does the same in other formats."""
    if codec.name == "bitshuffle" and codec.options.get("cname") in ("lz4", "zstd"):
        options = {k: v for k, v in codec.options.items() if k in ("cname", "itemsize")}
        level = {"level": min(int(codec.options.get("level", 5)), 9)}
        return (Codec("blosc", {**options, **level, "shuffle": 2}),)
    if codec.name in ("lz4", "lz4hdf5"):
        return (Codec("lz4"),)
    return (Codec("fletcher32"),) if codec.name == "crc32c" else ()


def _of_zarr(like: Any) -> dict[str, Any] | None:
    """An array of zarr in a folder, as our own reader sees it; None if it is elsewhere."""
    root = getattr(getattr(like, "store", None), "root", None)
    path = getattr(like, "path", None)
    if root is None or path is None:
        return None
    try:
        info = formats.open_info(f"{os.fspath(root)}::/{path}" if path else os.fspath(root))
    except (OSError, UnsupportedError, UsageError):
        return None
    return _of_info(info, dict(like.attrs))


def _of_h5py(like: Any) -> dict[str, Any]:
    """A dataset of h5py; its file may be open for writing, so that it is not opened again."""
    from outcore.formats import hdf5_access
    from outcore.formats.hdf5_attrs import describe_axes, read_attrs
    from outcore.formats.hdf5_types import codecs_of

    name = f"{like.file.filename}::{like.name}"
    h5py = hdf5_access.library(like.file.filename)
    if like.file.mode != "r":
        like.file.flush()  # attributes are also looked at in the file
    plist = like.id.get_create_plist()
    words: dict[str, Any] = {}
    if like.chunks is not None:
        codecs = codecs_of(h5py, like.id.get_type(), like.dtype, plist, name)
        words = {"chunks": tuple(like.chunks), "compression": codecs}
    if like.maxshape != like.shape:
        words["maxshape"] = tuple(like.maxshape)
    stored = plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    missing = of_attribute(like.attrs[ATTRIBUTE], like.dtype) if ATTRIBUTE in like.attrs else None
    if stored or missing is not None:
        words["fill_value"] = Fill(like.fillvalue if stored else None, missing)
    words["dims"] = describe_axes(like)
    words["attrs"] = read_attrs(h5py, like, netcdf=False) or None
    return {key: word for key, word in words.items() if word is not None}


def adapted(words: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """
    What is left of the words of an array beside those that somebody says himself.

    Parameters
    ----------
    words
        Of the other array (`words_of`), without shape and dtype where these were said.
    said
        What goes before them; all of it, `shape` and `dtype` as well.

    Examples
    --------
    >>> words = {"shape": (100, 80), "dtype": "f8", "chunks": (50, 40), "dims": ("y", "x")}
    >>> adapted(words, {"shape": (20, 80), "dtype": "f8"})
    {'chunks': (20, 40), 'dims': ('y', 'x')}
    >>> adapted(words, {"shape": 7, "dtype": "f8"})
    {}
    """
    left = {k: v for k, v in words.items() if k not in ("shape", "dtype") and said.get(k) is None}
    if "compression" in said:  # None says something: there is to be none
        left.pop("compression", None)
    shape = said["shape"]
    shape = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if len(shape) != len(words["shape"]):
        for name in ("chunks", "shards", "dims", "maxshape"):
            left.pop(name, None)
    elif shape != tuple(words["shape"]):
        left.pop("maxshape", None)
        if "shards" in left:
            # They hold whole chunks; another length asks for another shard.
            left.pop("shards")
        if "chunks" in left:
            pairs = zip(left["chunks"], shape, strict=True)
            left["chunks"] = tuple(min(chunk, max(n, 1)) for chunk, n in pairs)
    if said.get("chunks") is not None or said.get("shards") is not None:
        # One of both that was said does not go with the other one that was not.
        left.pop("shards", None)
        left.pop("chunks", None)
    if "compression" in left and np.dtype(said["dtype"]) != np.dtype(words["dtype"]):
        left["compression"] = of_any_size(left["compression"])
    return left


def of_any_size(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Codecs that take elements as long as those of the new array are."""
    return tuple(
        replace(codec, options={k: v for k, v in codec.options.items() if k != "itemsize"})
        for codec in codecs
    )


def kept_by(
    make: Callable[[Mapping[str, Any]], T], wanted: Mapping[str, Any]
) -> tuple[T, tuple[str, ...]]:
    """
    Make something with as many words as its format has a place for; and which were left out.

    Parameters
    ----------
    make
        Makes it with these words, or refuses and has changed nothing.
    wanted
        The words.

    Raises
    ------
    UnsupportedError, UsageError
        The first refusal, if nothing helps; and whatever else `make` raises.
    """
    refusal: UnsupportedError | UsageError | None = None
    for lost in _subsets(list(wanted)):
        try:
            return make({k: v for k, v in wanted.items() if k not in lost}), lost
        except UnsupportedError as error:
            refusal = refusal or error
        except UsageError as error:
            if error.code not in BAD_ATTRIBUTES:
                raise
            refusal = refusal or error
    raise refusal or UnsupportedError(
        "no way to create it; name another format=", code="cannot-keep"
    )


def tell_lost(
    array: Any,
    lost: Sequence[str],
    wanted: Mapping[str, Any],
    where: str,
    of: str,
    more: Sequence[str] = (),
) -> None:
    """
    Set attributes one by one that could not be set together, and warn of all that is not kept.

    Parameters
    ----------
    array
        What was made.
    lost, wanted
        Words that were left out, of these.
    where, of
        The name of the array, and of the one that has all of it.
    more
        What else is not kept (`fitted`).
    """
    told = [name for name in lost if name not in ("attrs", *_LAYOUT)]
    if "attrs" in lost:
        told += _attributes_lost(array, wanted["attrs"])
    told += more
    if told:
        warnings.warn(
            f"{where!r}: {array.format} cannot keep {', '.join(told)} of {of!r}",
            stacklevel=callers_line(),
        )


def _attributes_lost(array: Any, attrs: Mapping[str, Any]) -> list[str]:
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


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    """All subsets, the smallest first."""
    for count in range(len(names) + 1):
        yield from combinations(names, count)
