"""
Values passed between `outcore.formats` and a format: `Spec` of a new array, `Entry` of a list.

Problem: formats take the same options (shape, dtype, order, chunks, compression, ...) and must reject
the same invalid values with the same messages.
Approach: `make_spec` checks and normalises the options once; a format sees only a `Spec`.
Invariants: in a `Spec`, shape and dtype are NumPy's own (no subarray dtype, no object, no zero-size
items), the number of bytes fits 63 bits, and chunks and shards have one entry per axis, each at least
1.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from outcore.errors import FormatError, UnsupportedError, UsageError
from outcore.formats.layout import Codec
from outcore.formats.missing_values import Fill

MAX_BYTES = 2**63 - 1
MAX_AXES = 64
_KINDS = "biufcmMSUV"


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One line of `outcore.ls`.

    Parameters
    ----------
    path
        Path for `outcore.open`.
    kind
        ``"array"``, ``"group"``, or ``"link"`` for a broken link.
    shape, dtype
        Those of an array; None for others.
    note
        Reason why it cannot be opened, or empty.
    """

    path: str
    kind: str
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A new array as requested by the caller, checked. See `make_spec`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str
    chunks: tuple[int, ...] | None
    shards: tuple[int, ...] | None
    compression: tuple[Codec, ...]
    fill_value: Any
    dims: tuple[str | None, ...] | None
    attrs: Mapping[str, Any]
    exclusive: bool
    #: The value that means "missing", if one must be declared; see `declared`.
    missing: Any = None
    #: Whether the caller gave only `fill_value`, and not what to declare (`Fill`).
    by_habit: bool = True

    def find_missing_value(self, *, habit: bool) -> Any:
        """
        Return the value that the new array must declare as "missing", or None.

        `habit`: libraries of the format declare every fill value that a user sets.
        """
        return self.fill_value if habit and self.by_habit else self.missing

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def fill_is_zero(self) -> bool:
        """Return whether zero bytes represent the fill value."""
        if self.fill_value is None:
            return True
        return not any(np.asarray(self.fill_value, self.dtype).tobytes())


def byte_strides(shape: Sequence[int], itemsize: int, order: str) -> tuple[int, ...]:
    """
    Return the byte strides of a dense array.

    >>> byte_strides((2, 3, 4), 8, "C")
    (96, 32, 8)
    >>> byte_strides((2, 3, 4), 8, "F")
    (8, 16, 48)
    """
    strides = [0] * len(shape)
    step = itemsize
    axes = range(len(shape)) if order == "F" else reversed(range(len(shape)))
    for axis in axes:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def choose_default_chunks(
    shape: Sequence[int], itemsize: int, target: int = 1 << 20
) -> tuple[int, ...]:
    """
    Return a chunk of at most `target` bytes, as close to a cube as the shape allows.

    >>> choose_default_chunks((16384, 16384), 8)
    (256, 512)
    >>> choose_default_chunks((3, 10_000_000), 8)
    (3, 39063)
    """
    chunks = [max(n, 1) for n in shape]
    while math.prod(chunks) * itemsize > target and max(chunks, default=1) > 1:
        longest = max(range(len(chunks)), key=chunks.__getitem__)
        chunks[longest] = -(-chunks[longest] // 2)
    return tuple(chunks)


def check_order(order: Any) -> str:
    """Return the order, ``"C"`` or ``"F"``; raise `UsageError` for anything else."""
    if order not in ("C", "F"):
        raise UsageError(f"order must be 'C' or 'F', not {order!r}", code="bad-order")
    return str(order)


def as_dtype(dtype: DTypeLike, path: str) -> np.dtype[Any]:
    """Return the NumPy dtype for `dtype`; raise `UsageError` if there is none."""
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{path!r}: invalid dtype {dtype!r} ({error}); use a NumPy dtype, such as 'f4' or '>i2'",
            code="bad-dtype",
            path=path,
        ) from None


def check_dtype(dtype: np.dtype[Any], path: str, stored: bool) -> np.dtype[Any]:
    """Return a dtype if outcore can store it; `stored`: it comes from a file, not from the caller."""
    if dtype.hasobject:
        raise UnsupportedError(
            f"{path!r}: dtype {dtype} holds Python objects, which have no fixed size on disk; "
            "convert to a fixed-size dtype such as 'U20' or float64 first",
            code="object-dtype",
            path=path,
        )
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        kind: type[FormatError | UsageError] = UnsupportedError if stored else UsageError
        raise kind(
            f"{path!r}: dtype {dtype!r} has no fixed size of at least one byte; "
            "use a fixed-size NumPy dtype (numbers, bool, S, U, V, datetime64, structured)",
            code="bad-dtype",
            path=path,
        )
    return dtype


def order_fields(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """
    Return a dtype whose fields are stored in the order of their names, packed where they were not.

    Few formats can store another order, and NumPy's description of a dtype cannot express it.

    >>> import numpy as np
    >>> kind = np.dtype({"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [8, 0]})
    >>> order_fields(kind)
    dtype([('a', '<i4'), ('b', '<f8')])
    """
    return dtype if _is_ordered(dtype) else _pack(dtype)


def _is_ordered(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return _is_ordered(dtype.subdtype[0])
    fields: Any = dtype.fields or {}
    end = 0
    for name in dtype.names or ():
        kind, offset = fields[name][:2]
        if offset < end or not _is_ordered(kind):
            return False
        end = offset + kind.itemsize
    return True


def _pack(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_pack(base), shape))
    fields: Any = dtype.fields
    if fields is None:
        return dtype
    return np.dtype([(name, _pack(fields[name][0])) for name in dtype.names or ()])


def make_descr(dtype: np.dtype[Any], path: str) -> Any:
    """Return the result of `numpy.lib.format.dtype_to_descr`; raise for fields that are not in order."""
    if not _is_ordered(dtype):
        raise UsageError(
            f"{path!r}: the fields of dtype {dtype} are not in the order of their names, which this "
            f"format cannot store; use dtype={order_fields(dtype)}",
            code="bad-dtype",
            path=path,
        )
    return np.lib.format.dtype_to_descr(dtype)


def check_shape(shape: Any, itemsize: int, path: str, stored: bool) -> tuple[int, ...]:
    """Return a shape whose bytes fit 63 bits; `stored`: it comes from a file, not from the caller."""
    kind: type[FormatError | UsageError] = FormatError if stored else UsageError
    try:
        axes = tuple(map(operator.index, _make_sequence(shape)))
    except TypeError:
        raise kind(
            f"{path!r}: shape {shape!r} is not a sequence of integers",
            code="bad-shape",
            path=path,
        ) from None
    if len(axes) > MAX_AXES or min(axes, default=0) < 0:
        raise kind(
            f"{path!r}: shape {reprlib.repr(axes)} is not possible; use at most {MAX_AXES} axes, and no "
            "negative length",
            code="bad-shape",
            path=path,
        )
    # Lengths of 0 count as 1: the strides of an empty array must fit as well.
    if math.prod([n or 1 for n in axes]) * itemsize > MAX_BYTES:
        raise kind(
            f"{path!r}: shape {axes} with {itemsize} bytes per element does not fit 63 bits; "
            "split the array",
            code="too-large",
            path=path,
        )
    return axes


def make_spec(
    path: str,
    shape: Any,
    dtype: DTypeLike,
    *,
    exclusive: bool = False,
    order: str = "C",
    chunks: Any = None,
    shards: Any = None,
    compression: str | Codec | Sequence[str | Codec] | None = None,
    fill_value: Any = None,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Spec:
    """
    Check and normalise the arguments of `outcore.create`.

    `path` is only for messages. A subarray dtype adds its axes to the shape, as in `numpy.empty`.
    `exclusive`: raise if the array exists (mode ``x``). `chunks` and `shards` have an integer per axis,
    -1 or None for the whole axis; a single integer applies to all axes. `compression` is a name
    (``"zstd"``, with level ``"zstd:3"``), a `Codec`, or a sequence of these. `fill_value` None means
    zero bytes; a value that `dtype` cannot hold raises. A `Fill` also specifies which value means
    "missing", or that none does.
    """
    kind = as_dtype(dtype, path)
    axes = _make_sequence(shape)
    if kind.subdtype is not None:
        kind, below = kind.subdtype
        axes = (*axes, *below)
    kind = check_dtype(kind, path, stored=False)
    full = check_shape(axes, kind.itemsize, path, stored=False)
    names = _check_names(dims, len(full), path)
    if attrs is not None and not isinstance(attrs, Mapping):
        raise UsageError(
            f"{path!r}: attrs={attrs!r} is not a mapping; pass names and values, such as "
            "{'units': 'K'}",
            code="bad-attributes",
            path=path,
        )
    fill = fill_value if isinstance(fill_value, Fill) else Fill(fill_value)
    return Spec(
        shape=full,
        dtype=kind,
        order=check_order(order),
        chunks=_check_per_axis("chunks", chunks, full, path),
        shards=_check_per_axis("shards", shards, full, path),
        compression=_parse_codecs(compression),
        fill_value=_check_fill(fill.stored, kind, path),
        dims=names,
        attrs=dict(attrs or {}),
        exclusive=exclusive,
        missing=_check_fill(fill.missing, kind, path),
        by_habit=fill is not fill_value,
    )


def _check_fill(value: Any, dtype: np.dtype[Any], path: str) -> Any:
    if value is None:
        return None
    from outcore.formats.fill_values import check_fill_value  # most arrays have none

    return check_fill_value(value, dtype, path)


def _make_sequence(shape: Any) -> tuple[Any, ...]:
    if isinstance(shape, (str, bytes)):
        raise UsageError(f"shape must be integers, not {shape!r}", code="bad-shape")
    try:
        return tuple(shape)
    except TypeError:
        return (shape,)


def _check_names(dims: Any, axes: int, path: str) -> tuple[str | None, ...] | None:
    if dims is None:
        return None
    names = tuple(dims) if isinstance(dims, Sequence) and not isinstance(dims, str) else None
    if names is None or not all(name is None or isinstance(name, str) for name in names):
        raise UsageError(
            f"{path!r}: dims={dims!r} is not a list of names; give one name (or None) per axis",
            code="bad-dims",
            path=path,
        )
    if len(names) != axes:
        raise UsageError(
            f"{path!r}: {len(names)} dims for {axes} axes; give one name (or None) per axis",
            code="bad-dims",
            path=path,
        )
    return names


def _check_per_axis(
    what: str, value: Any, shape: tuple[int, ...], path: str
) -> tuple[int, ...] | None:
    if value is None:
        return None
    axes = (value,) * len(shape) if np.ndim(value) == 0 else tuple(value)
    wrong = len(axes) != len(shape)
    result = []
    for given, length in zip(axes, shape, strict=False):
        try:
            size = max(length, 1) if given is None else operator.index(given)
        except TypeError:
            size = 0
        size = 0 if isinstance(given, bool) else size
        size = max(length, 1) if size == -1 else size
        wrong = wrong or size < 1
        result.append(size)
    if wrong:
        raise UsageError(
            f"{path!r}: {what}={value!r} does not fit shape {shape}; give an integer of at least 1 "
            "per axis (-1: the whole axis)",
            code="bad-chunks",
            path=path,
        )
    return tuple(result)


def _parse_codecs(value: str | Codec | Sequence[str | Codec] | None) -> tuple[Codec, ...]:
    if value is None:
        return ()
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    found = (item if isinstance(item, Codec) else _parse_codec(item) for item in items)
    return tuple(codec for codec in found if codec.name != "none")


def _parse_codec(text: Any) -> Codec:
    if not isinstance(text, str):
        raise UsageError(
            f"compression={text!r} is not the name of a codec; use 'zstd', 'zstd:3' (with a level), a "
            "list of such names, or outcore.types.Codec values",
            code="bad-compression",
        )
    name, colon, level = text.partition(":")
    if not colon:
        return Codec(name)
    try:
        return Codec(name, {"level": int(level)})
    except ValueError:
        raise UsageError(
            f"compression {text!r} has an invalid level; use an integer, as in 'zstd:3'",
            code="bad-compression",
        ) from None
