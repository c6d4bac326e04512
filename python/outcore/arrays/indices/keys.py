"""
Keys with arrays, lists and boolean masks, as a normal form for the core.

Problem: NumPy's advanced indexing mixes index arrays that broadcast, masks of several axes, slices,
integers and new axes, and has a rule for the position of the axes of the index arrays. The core
supports one form: lists of int64 along some axes, and a regular section along the others
(`_core.Array.read_points`).

Approach: `parse` converts a key to `IndexPoints`: the axes with lists, the lists as given, the regular
rest, and the axes of the result. A result (or a value) in NumPy's shape becomes a view in *core order*:
first the axes of the points, then the other axes of the array in their order. Lists are cut and
converted to int64 one part at a time (`IndexPoints.get_lists`), so a list of any type, shape or size
(also a `DiskArray` of integers) needs memory for a part only.

Invariants: a key without arrays gives None: the core itself handles basic indexing. `IndexPoints` moves
no elements. Arrays that form an outer product (`numpy.ix_`, `oindex`) remain one list per axis, and a
mask remains one list of flat indices: neither is ever expanded to a list per axis of all points.

Source: the rules are those of the NumPy user guide, "Indexing on ndarrays", section "Combining advanced
and basic indexing"; the rules of `oindex` and `vindex` are those of NumPy's enhancement proposal 21, as
in zarr and xarray.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.handle import is_on_disk
from outcore.arrays.indices.masks import INDEX, IndexWorkspace, Mask
from outcore.errors import SectionError, UsageError

__all__ = ["Box", "IndexPoints", "Kind", "ResultAxis", "Span", "parse"]

#: Meaning of arrays in a key: as in ``a[...]``, ``a.oindex[...]`` or ``a.vindex[...]``.
Kind = Literal["numpy", "outer", "pointwise"]
#: Treatment of an index outside its axis, as in `numpy.take`.
Beyond = Literal["raise", "wrap", "clip"]
_Indices = Any  # numpy.ndarray or DiskArray, of integers

#: First element and number of elements, along one axis.
Span = tuple[int, int]
#: A span of each axis, in core order.
Box = tuple[Span, ...]


class ResultAxis(NamedTuple):
    """One axis of the result: of the points, of the array (perhaps reversed), or a new one."""

    kind: Literal["point", "array", "new"]
    number: int = 0
    reversed: bool = False


@dataclass(frozen=True, eq=False)
class IndexPoints:
    """Elements of an array, or blocks of them, selected by lists of indices."""

    path: str
    shape: tuple[int, ...]
    #: Axes that have indices, ascending.
    axes: tuple[int, ...]
    #: Modes "points" and "outer": an array of integers for each of these axes. Mode "flat": one
    #: array that counts the elements along `axes` in C order. Each broadcasts to `points`.
    lists: tuple[_Indices, ...]
    #: "points": point i has the i-th index of each list. "outer": all combinations.
    mode: str
    #: Shape of the points in the result.
    points: tuple[int, ...]
    #: First index, count and step of each axis; ignored for `axes`.
    rest: tuple[tuple[int, int, int], ...]
    #: Axes of the result.
    result: tuple[ResultAxis, ...]
    #: Treatment of an index outside its axis.
    beyond: Beyond = "raise"
    #: Origin of the one list of mode "flat", if `lists` is not known yet.
    mask: Mask | None = None

    # Shapes and orders

    @property
    def number(self) -> int:
        """Number of points."""
        return math.prod(self.points)

    @cached_property
    def others(self) -> tuple[int, ...]:
        """Axes of the array that have no list."""
        return tuple(d for d in range(len(self.shape)) if d not in self.axes)

    @cached_property
    def _kept(self) -> frozenset[int]:
        """Axes of the array that the result has because no integer drops them."""
        return frozenset(axis.number for axis in self.result if axis.kind == "array")

    @cached_property
    def core_shape(self) -> tuple[int, ...]:
        """Shape of the points, then the lengths of the other axes of the array: 1 for an integer."""
        return (*self.points, *(self.rest[d][1] for d in self.others))

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape that NumPy gives to the result."""
        return tuple(self._find_length(axis) for axis in self.result)

    def _find_length(self, axis: ResultAxis) -> int:
        if axis.kind == "new":
            return 1
        return self.points[axis.number] if axis.kind == "point" else self.rest[axis.number][1]

    @cached_property
    def _order(self) -> list[int]:
        """Position in core order of each axis of the result except new ones, without dropped axes."""
        place = {d: len(self.points) + k for k, d in enumerate(sorted(self._kept))}
        axes = [axis for axis in self.result if axis.kind != "new"]
        return [axis.number if axis.kind == "point" else place[axis.number] for axis in axes]

    @cached_property
    def _integers(self) -> tuple[Any, ...] | None:
        """For axes in core order: whole, or None for one dropped by an integer; None if none is."""
        if len(self._kept) == len(self.others):
            return None
        whole = (slice(None),) * len(self.points)
        return (*whole, *(slice(None) if d in self._kept else None for d in self.others), ...)

    @cached_property
    def _turned(self) -> tuple[Any, ...] | None:
        """For axes of the result: forwards, reversed, None for a new one; None if all are forwards."""
        if not any(axis.kind == "new" or axis.reversed for axis in self.result):
            return None
        turned = {True: slice(None, None, -1), False: slice(None)}
        return (*(None if a.kind == "new" else turned[a.reversed] for a in self.result), ...)

    def to_core(self, result: NDArray[Any]) -> NDArray[Any]:
        """Return an array with the axes of the result (or of a part of it) as a view in core order."""
        if self._turned is not None:
            result = result[tuple(0 if one is None else one for one in self._turned)]
        return self._add_integer_axes(result.transpose(_invert(self._order)))

    def to_result(self, core: NDArray[Any]) -> NDArray[Any]:
        """Return an array in core order as a view with the axes of the result."""
        if self._integers is not None:
            core = core[tuple(0 if one is None else one for one in self._integers)]
        result = core.transpose(self._order)
        return result if self._turned is None else result[self._turned]

    def empty(self, dtype: np.dtype[Any], order: str) -> NDArray[Any]:
        """
        Return new memory for a result, as a view in core order.

        The axes in memory have the order of the result or, for a file in Fortran order, the reverse
        order. The axes of the points stay together in C order, so that they can be viewed as one.
        """
        number, places = len(self.points), self._order
        points = [k for k, place in enumerate(places) if place < number]
        if points and points[-1] - points[0] >= number:
            places = sorted(places)  # other axes are between them: the points go first
        if order == "F":
            first = next((k for k, place in enumerate(places) if place < number), 0)
            behind = places[first + number :]
            places = [*behind[::-1], *places[first : first + number], *places[:first][::-1]]
        lengths = [*self.points, *(self.rest[d][1] for d in sorted(self._kept))]
        memory = np.empty([lengths[place] for place in places], dtype)
        return self._add_integer_axes(memory.transpose(_invert(places)))

    def _add_integer_axes(self, view: NDArray[Any]) -> NDArray[Any]:
        """Return the view with an axis of length 1 for each axis of the array that has an integer."""
        return view if self._integers is None else view[self._integers]

    def make_result_key(self, box: Box) -> tuple[slice, ...]:
        """Return the position of a box in the result."""
        place = {d: len(self.points) + k for k, d in enumerate(self.others)}

        def span(axis: ResultAxis) -> slice:
            if axis.kind == "new":
                return slice(0, 1)
            first, count = box[axis.number if axis.kind == "point" else place[axis.number]]
            if axis.reversed:
                first = self._find_length(axis) - first - count
            return slice(first, first + count)

        return tuple(span(axis) for axis in self.result)

    # Parts

    def whole(self) -> Box:
        """Return the box of all elements."""
        return tuple((0, n) for n in self.core_shape)

    def replace_mask(self, flat: NDArray[np.int64]) -> IndexPoints:
        """Return the same selection with these flat indices, all or some of those of the mask."""
        return replace(self, lists=(flat,), points=(flat.size,), mask=None)

    @property
    def per_point(self) -> int:
        """Bytes of new lists per point; 0 if the core can use the lists as they are."""
        if self.mode == "outer":
            return 0
        return sum(0 if self._is_ready(one, self.points) else INDEX for one in self.lists)

    @property
    def per_access(self) -> int:
        """Bytes of new lists independent of the number of points: those of an outer product."""
        if self.mode != "outer":
            return 0
        return sum(0 if self._is_ready(one, one.shape) else INDEX * one.size for one in self.lists)

    def _is_ready(self, indices: _Indices, shape: tuple[int, ...]) -> bool:
        return (
            isinstance(indices, np.ndarray)
            and indices.dtype == np.int64
            and indices.dtype.isnative
            and indices.flags.c_contiguous
            and indices.flags.aligned
            and indices.shape == shape
            and self.beyond == "raise"
        )

    def get_lists(self, box: Box) -> tuple[NDArray[np.int64], ...]:
        """Return the lists of the points in a box, as the core takes them."""
        return tuple(self._list_of(k, box) for k in range(len(self.lists)))

    def _list_of(self, k: int, box: Box) -> NDArray[np.int64]:
        indices, spans = self.lists[k], box[: len(self.points)]
        if all(count == n for (_, count), n in zip(spans, self.points, strict=True)) and (
            self._is_ready(indices, self.points)
        ):
            return indices.reshape(-1)  # type: ignore[no-any-return]
        own = indices.ndim
        key = tuple(
            slice(None) if n == 1 else slice(first, first + count)
            for n, (first, count) in zip(indices.shape, spans[len(spans) - own :], strict=True)
        )
        part = np.asarray(indices[key])
        if self.mode != "outer":
            part = np.broadcast_to(part, tuple(count for _, count in spans))
            if self._is_ready(part, part.shape):
                return part.reshape(-1)
        if self.beyond == "wrap":
            part = np.remainder(part, max(self.length(k), 1))
        elif self.beyond == "clip":
            part = np.clip(part, 0, max(self.length(k) - 1, 0))
        return np.require(part.reshape(-1), np.int64, ["C", "A"])

    def flat(self, lists: tuple[NDArray[np.int64], ...], *, own: bool = True) -> NDArray[np.int64]:
        """
        Return the numbers of the elements along `axes`, in C order; none is negative.

        `lists` are those of all points, as returned by `get_lists`, none out of range. Without
        `own`, the result may be the only list itself.
        """
        lengths = [self.length(k) for k in range(len(lists))]
        alone = self.mode == "flat" or len(lists) == 1
        wrapped = []
        for one, n in zip(lists, lengths, strict=True):
            negative = bool(one.size) and int(one.min()) < 0
            copy = one.copy() if negative or (own and alone) else one
            if negative:
                copy[copy < 0] += n
            wrapped.append(copy)
        if alone:
            return wrapped[0]
        found = np.zeros(1, np.int64)
        for one, n in zip(wrapped, lengths, strict=True):
            if self.mode == "outer":
                found = (found[:, None] * n + one).reshape(-1)
            else:
                found = found * n + one
        return np.ascontiguousarray(found)

    def get_rest(self, box: Box) -> list[int]:
        """Return the regular section of a box, as integers for the core."""
        rest = [list(words) for words in self.rest]
        for d, (first, count) in zip(self.others, box[len(self.points) :], strict=True):
            start, _, step = rest[d]
            rest[d] = [start + first * step, count, step]
        return [word for words in rest for word in words]

    def boxes(self, box: Box, most: int) -> Iterator[Box]:
        """Cut a box into boxes of at most `most` elements (at least one), in C order of core order."""
        inner, cut = 1, len(box)
        while cut and inner * box[cut - 1][1] <= most:
            cut -= 1
            inner *= box[cut][1]
        if not cut:
            yield box
            return
        thick = max(most // inner, 1)

        def from_axis(d: int) -> Iterator[Box]:
            first, count = box[d]
            if d == cut - 1:
                for k in range(0, count, thick):
                    yield ((first + k, min(thick, count - k)), *box[cut:])
                return
            for k in range(count):
                for inside in from_axis(d + 1):
                    yield ((first + k, 1), *inside)

        yield from from_axis(0)

    # Bounds

    def length(self, k: int) -> int:
        """Return the number of valid indices of list `k`."""
        if self.mode == "flat":
            return math.prod(self.shape[d] for d in self.axes)
        return self.shape[self.axes[k]]

    @property
    def unsigned(self) -> bool:
        """True if an index may be too large for the core's type."""
        return any(one.dtype.kind == "u" and one.dtype.itemsize == INDEX for one in self.lists)

    def check(self, most: int, first: int = 0) -> None:
        """
        Raise `SectionError` for the first index outside its axis, before any element is moved.

        `most` indices are checked in one step. `first` is the position of the first point, if these
        are a part of a list.
        """
        if self.beyond != "raise":
            if self.number and not all(self.length(k) for k in range(len(self.lists))):
                raise SectionError(
                    f"cannot take elements of '{self.path}' along an axis that is empty. Pass no "
                    "indices, or another axis",
                    code="index-out-of-bounds",
                    path=self.path,
                )
            return
        for k, indices in enumerate(self.lists):
            length, at = self.length(k), first
            for box in self.boxes(tuple((0, n) for n in indices.shape), most):
                part = np.asarray(indices[tuple(slice(low, low + n) for low, n in box)])
                if part.size and not -length <= int(part.min()) <= int(part.max()) < length:
                    flat = part.reshape(-1)
                    place = next(i for i, v in enumerate(flat) if not -length <= int(v) < length)
                    raise self._make_outside_error(k, at + place, int(flat[place]), length)
                at += part.size

    def _make_outside_error(self, k: int, position: int, value: int, length: int) -> SectionError:
        which = f"axes {self.axes}" if self.mode == "flat" else f"axis {self.axes[k]}"
        inside = f"outside {-length}..{length - 1}" if length else "outside an empty axis"
        return SectionError(
            f"index {value} at position {position} of the indices of {which} of '{self.path}' is "
            f"{inside}. Nothing was read or written; correct the index, or use take(..., mode='clip')",
            code="index-out-of-bounds",
            path=self.path,
        )


def _invert(places: Sequence[int]) -> list[int]:
    """Return the inverse permutation."""
    return sorted(range(len(places)), key=places.__getitem__)


# Parsing


class _Item(NamedTuple):
    """One item of a key: its kind, its value, and the number of axes of the array that it uses."""

    word: Literal["slice", "integer", "list", "mask", "flag", "new", "rest"]
    value: Any = None
    axes: int = 1


_ARRAYS = ("list", "mask", "flag")


def parse(
    key: Any, shape: tuple[int, ...], path: str, held: IndexWorkspace, kind: Kind = "numpy"
) -> IndexPoints | None:
    """
    Return the normal form of a key; None if it has no arrays.

    `held` counts lists created from masks; `kind` is the meaning of arrays in the key, which may be
    on disk.

    Raise `SectionError`: an item is not an index (``bad-index``), there are too many
    (``too-many-indices``), a mask does not match the lengths of its axes (``bad-mask``), index
    arrays cannot be broadcast (``broadcast``), or an integer is out of range
    (``index-out-of-bounds``). A field name raises `FancyIndexError`.
    """
    items = [_parse_item(one, path) for one in (key if isinstance(key, tuple) else (key,))]
    if not any(item.word in _ARRAYS for item in items):
        return None
    parser = _Parser(shape, path, held)
    items = parser.expand_items(items)
    return parser.outer(items) if kind == "outer" else parser.broadcast(items, kind)


def _parse_item(one: Any, path: str) -> _Item:
    if one is None:
        return _Item("new", axes=0)
    if one is Ellipsis:
        return _Item("rest", axes=0)
    if isinstance(one, slice):
        return _Item("slice", one)
    if isinstance(one, bool | np.bool):
        return _Item("flag", bool(one), 0)
    if isinstance(one, str | bytes):
        raise _make_field_error(path)
    if is_on_disk(one):
        return _parse_array(one, one, path)  # stays on disk
    if isinstance(one, np.ndarray) or hasattr(one, "__array__"):
        return _parse_array(np.asarray(one), one, path)
    if hasattr(one, "__index__"):
        return _Item("integer", operator.index(one))
    try:
        array = np.asarray(one)
    except ValueError as error:
        raise _make_bad_key_error(path, f"a list is no array of indices ({error})") from None
    # As in NumPy, an empty sequence has no type.
    return _parse_array(array if array.size else array.astype(np.int64), one, path)


def _parse_array(array: Any, one: Any, path: str) -> _Item:
    kind = array.dtype.kind
    if kind in "SU":
        raise _make_field_error(path)
    if kind not in "biu":
        what = f"'{type(one).__name__}'" if array.ndim == 0 else f"an array of {array.dtype}"
        raise _make_bad_key_error(path, f"{what} is not an index")
    if array.ndim == 0:
        value = array[()]
        return _Item("flag", bool(value), 0) if kind == "b" else _Item("integer", int(value))
    return _Item("mask", array, array.ndim) if kind == "b" else _Item("list", array)


def _make_bad_key_error(path: str, why: str) -> SectionError:
    return SectionError(
        f"key for '{path}': {why}. Use integers, slices, '...', None, and arrays of integers or "
        "booleans",
        code="bad-index",
        path=path,
    )


def _make_field_error(path: str) -> SectionError:
    return SectionError(
        f"'{path}' was indexed with a field name. Read whole elements, then take the field of the "
        "result",
        code="fancy-index",
        path=path,
    )


class _Parser:
    """Conversion of the items of one key to `IndexPoints`."""

    def __init__(self, shape: tuple[int, ...], path: str, held: IndexWorkspace) -> None:
        self.shape, self.path, self.held = shape, path, held
        self.rest = [(0, n, 1) for n in shape]
        self.lists: dict[int, _Indices] = {}

    def expand_items(self, items: list[_Item]) -> list[_Item]:
        """Return the items with a slice for each axis that has none."""
        used, ndim = sum(item.axes for item in items), len(self.shape)
        if used > ndim:
            raise SectionError(
                f"{used} indices for '{self.path}', which has {ndim} axes; omit some, or use None for a "
                "new axis",
                code="too-many-indices",
                path=self.path,
            )
        whole = [_Item("slice", slice(None))] * (ndim - used)
        dots = [k for k, item in enumerate(items) if item.word == "rest"]
        if len(dots) > 1:
            raise _make_bad_key_error(self.path, "it can hold '...' only once")
        at = dots[0] if dots else len(items)
        # A '...' of no axes stays, because it separates index arrays.
        middle = whole or items[at : at + 1]
        return [*items[:at], *middle, *items[at + 1 :]]

    def broadcast(self, items: list[_Item], kind: Kind) -> IndexPoints:
        """Convert index arrays that broadcast against each other, including integers and booleans."""
        arrays = [item for item in items if item.word in _ARRAYS]
        alone = len(arrays) == 1 and arrays[0].word == "mask"
        mask: Mask | None = None
        axes: tuple[int, ...] = ()
        shapes: list[tuple[int, ...]] = []
        result: list[ResultAxis] = []
        places: list[int] = []
        axis = first = 0
        for place, item in enumerate(items):
            if item.word in ("integer", *_ARRAYS):
                first = first if places else len(result)
                places.append(place)
            if item.word == "slice":
                result.append(self._add_slice(item.value, axis))
            elif item.word == "new":
                if kind == "pointwise":
                    raise _make_bad_key_error(
                        self.path, "vindex takes no None; add the axis to the result"
                    )
                result.append(ResultAxis("new"))
            elif item.word == "integer":
                self._add_integer(item.value, axis)
            elif item.word == "flag":
                shapes.append((int(item.value),))
            elif item.word == "list":
                self.lists[axis] = item.value
                shapes.append(item.value.shape)
            elif item.word == "mask":
                mask, axes = self._mask(item.value, axis), tuple(range(axis, axis + item.axes))
                if not alone:
                    flat = mask.all(len(axes))
                    self.lists.update(zip(axes, np.unravel_index(flat, mask.shape), strict=True))
                    shapes.append(flat.shape)
            axis += item.axes
        points = (mask.count,) if alone and mask is not None else self._find_common_shape(shapes)
        # NumPy: if the index arrays are adjacent, the axes of the points take their position.
        side_by_side = places[-1] - places[0] < len(places)
        at = first if side_by_side and kind == "numpy" else 0
        result[at:at] = [ResultAxis("point", k) for k in range(len(points))]
        if alone:
            return self._make_points("flat", points, result, axes, mask)
        return self._make_points(self._simplify(points), points, result, tuple(sorted(self.lists)))

    def outer(self, items: list[_Item]) -> IndexPoints:
        """Convert each list separately: each becomes an axis of the result."""
        arrays = [item for item in items if item.word in _ARRAYS]
        mask: Mask | None = None
        result: list[ResultAxis] = []
        points: list[int] = []
        axis = 0
        for item in items:
            if item.word == "slice":
                result.append(self._add_slice(item.value, axis))
            elif item.word == "new":
                result.append(ResultAxis("new"))
            elif item.word == "integer":
                self._add_integer(item.value, axis)
            elif item.word == "flag" or (item.word in _ARRAYS and item.value.ndim != 1):
                raise _make_bad_key_error(
                    self.path,
                    f"oindex takes lists of one axis; that of axis {axis} has another shape",
                )
            elif item.word in _ARRAYS:
                result.append(ResultAxis("point", len(points)))
                if item.word == "mask":
                    mask = self._mask(item.value, axis)
                    points.append(mask.count)
                    self.lists[axis] = mask if len(arrays) == 1 else mask.all(0)
                else:
                    points.append(item.value.shape[0])
                    self.lists[axis] = item.value
            axis += item.axes
        axes = tuple(sorted(self.lists))
        if len(axes) == 1:
            if mask is not None:
                return self._make_points("flat", (mask.count,), result, axes, mask)
            return self._make_points("points", tuple(points), result, axes)
        for k, d in enumerate(axes):
            indices = self.lists[d]
            if not isinstance(indices, np.ndarray):
                self.held.take(indices.nbytes)
                indices = np.asarray(indices)
            self.lists[d] = indices.reshape(tuple(-1 if k == i else 1 for i in range(len(axes))))
        return self._make_points("outer", tuple(points), result, axes)

    def _make_points(
        self,
        mode: str,
        points: tuple[int, ...],
        result: list[ResultAxis],
        axes: tuple[int, ...],
        mask: Mask | None = None,
    ) -> IndexPoints:
        lists = () if mask is not None else tuple(self.lists[d] for d in axes)
        rest = tuple(self.rest)
        return IndexPoints(
            self.path, self.shape, axes, lists, mode, points, rest, tuple(result), mask=mask
        )

    def _simplify(self, points: tuple[int, ...]) -> str:
        """Convert lists of one index to integers; return the mode of the other lists."""
        if 0 in points:
            return "points"
        if any(one.size > 1 for one in self.lists.values()):
            for axis, one in list(self.lists.items()):
                if one.size == 1 and isinstance(one, np.ndarray):
                    self._add_integer(int(one.reshape(-1)[0]), axis)
                    del self.lists[axis]
        last = -1
        for _, one in sorted(self.lists.items()):
            shape = (1,) * (len(points) - one.ndim) + one.shape
            own = [k for k, n in enumerate(shape) if n > 1]
            if not own or own[0] <= last:
                return "points"
            last = own[-1]
        return "outer" if len(self.lists) > 1 else "points"

    def _find_common_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            told = ", ".join(map(str, shapes))
            raise SectionError(
                f"index arrays for '{self.path}' have shapes {told}, which cannot be broadcast to one "
                "shape. Make their axes equal or 1; for all combinations use oindex or numpy.ix_",
                code="broadcast",
                path=self.path,
            ) from None

    def _mask(self, mask: Any, axis: int) -> Mask:
        for d, (n, length) in enumerate(zip(mask.shape, self.shape[axis:], strict=False), axis):
            if n != length:
                raise SectionError(
                    f"axis {d} of '{self.path}' has {length} elements, but axis {d - axis} of the "
                    f"mask that indexes it has {n}; pass a mask of the same length",
                    code="bad-mask",
                    path=self.path,
                )
        return Mask(mask, self.held)

    def _add_slice(self, one: slice, axis: int) -> ResultAxis:
        length = self.shape[axis]
        try:
            start, stop, step = one.indices(length)
        except ValueError:
            raise UsageError(
                f"the step of the slice on axis {axis} of '{self.path}' is zero; use 1 or omit it",
                code="zero-step",
                path=self.path,
            ) from None
        count = len(range(start, stop, step))
        if count < 2:
            self.rest[axis] = (start if count else 0, count, 1)
        else:
            self.rest[axis] = (min(start, start + (count - 1) * step), count, abs(step))
        return ResultAxis("array", axis, step < 0)

    def _add_integer(self, value: int, axis: int) -> None:
        length = self.shape[axis]
        if not -length <= value < length:
            inside = f"outside 0..{length - 1}" if length else "outside an empty axis"
            raise SectionError(
                f"index {value} on axis {axis} of '{self.path}' is {inside}. Slices are cut to the "
                "array as in NumPy, indices are not; to make the array longer, call resize() first.",
                code="index-out-of-bounds",
                path=self.path,
            )
        self.rest[axis] = (value % length, 1, 1)
