"""
Common parts of SciPy's filters: windows that move over an array on disk.

Idea. Arguments are interpreted as in SciPy (`Filter`). Then there are three methods: the core computes
ranks in windows (`compute_rank_filter`); filters of one axis after the other go line by line
(`filter_lines`); all others get whole blocks with the elements around them (`filter_blocks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import Section
from outcore.base.background import Background
from outcore.compute import needs
from outcore.compute.blocks.blockwise import BOUNDARIES, Halo, Scratch, fill_halo, plan_blocks
from outcore.compute.jobs import Operation, Program, Result, Source, Terms, complete, open_inputs
from outcore.compute.rates import measure_seconds
from outcore.errors import UsageError
from outcore.formats.spec import as_dtype

__all__ = [
    "ALIASES",
    "Filter",
    "FilterArguments",
    "Lines",
    "compute_rank_filter",
    "filter_blocks",
    "filter_error",
    "filter_lines",
    "find_widths",
    "reverse_origin",
]

Shape = tuple[int, ...]
#: SciPy's aliases of modes.
ALIASES = {"grid-constant": "constant", "grid-mirror": "reflect", "grid-wrap": "wrap"}
# Number of elements of the largest window that the core's networks support.
_LARGE_WINDOW = 128

# Sizes, in elements, of the blocks on which a kernel is timed, until one takes that many seconds; and
# measured elements per second of each kernel.
_TRIED = (2**13, 2**16)
_SOON = 2e-2
_RATES: dict[Any, float] = {}

Kernel = Callable[..., None]
#: Axes, in the order of filtering, and the filter of lines along each.
Lines = Sequence[tuple[int, Callable[..., Any]]]


def filter_error(name: str, why: str) -> UsageError:
    """Return the error for an invalid argument."""
    return UsageError(f"{name}: {why}", code="bad-stencil")


@dataclass(frozen=True, slots=True)
class FilterArguments:
    """Arguments that all filters take in addition to their windows, as the caller gave them."""

    output: Any
    mode: Any
    cval: Any
    axes: Any
    out: Any
    how: dict[str, Any]
    #: Axis of a filter of lines, instead of `axes`.
    axis: int | None = None


class Filter:
    """
    One call of a filter: its source, and the arguments that all filters take.

    `words` are arguments of the caller, and `kinds` the kinds of dtypes that the filter supports.
    `axes` are the filtered axes, in this order; `dtype` is that of the result, in native byte
    order; `modes` and `cval` extend each axis of the array beyond its ends.
    """

    def __init__(
        self, name: str, source: Any, words: FilterArguments, kinds: str = "biufc"
    ) -> None:
        self.name, self.source, self.how = name, source, words.how
        if source.dtype.kind not in kinds or source.dtype.char in "egG":
            raise self.bad(
                f"elements of dtype {source.dtype} are not supported; convert them "
                "(outcore.convert) to booleans, integers, float32, "
                f"float64{(', complex64 or complex128' if 'c' in kinds else '')}"
            )
        self.one = words.axis is not None
        self.axes = self._axes(words.axis if self.one else words.axes)
        self.dtype, self.out = self._output(words.output, words.out)
        self.modes = self._modes(words.mode)
        self.cval = self._cval(words.cval)

    def bad(self, why: str) -> UsageError:
        """Return the error for an invalid argument."""
        return filter_error(self.name, why)

    def expand(self, value: Any, what: str, kind: type) -> tuple[Any, ...]:
        """Expand an argument, given once or for each of the axes, to all of the axes."""
        given = tuple(value) if np.iterable(value) else (value,) * len(self.axes)
        try:
            found = tuple(kind(n) for n in given)
            if kind is int and any(n != m for n, m in zip(found, given, strict=True)):
                raise ValueError
        except (TypeError, ValueError):
            found = ()
        if len(found) != len(self.axes):
            raise self.bad(
                f"{what}={value!r} does not fit {len(self.axes)} axes; pass one number, or one for "
                "each axis"
            )
        return found

    def all_axes(self, values: Sequence[Any], other: Any) -> tuple[Any, ...]:
        """Combine the values of the filtered axes with that of all other axes."""
        found = dict(zip(self.axes, values, strict=True))
        return tuple(found.get(axis, other) for axis in range(self.source.ndim))

    def sizes(self, size: Any) -> Shape:
        """Return the size of a window along each of the axes."""
        sizes = self.expand(size, "size", int)
        if min(sizes, default=1) < 1:
            raise self.bad(f"size={size!r} is too small; pass at least 1 for each axis")
        return sizes

    def origins(self, origin: Any, sizes: Sequence[int]) -> Shape:
        """Return the shift of a window from its middle, checked against its sizes as in SciPy."""
        origins = self.expand(origin, "origin", int)
        self.check_shifts(origin, sizes, origins)
        return origins

    def check_shifts(self, origin: Any, window: Sequence[int], places: Sequence[int]) -> None:
        """Raise if the element is outside of its window, which is shifted from its middle."""
        if any(not 0 <= n // 2 + o < n for n, o in zip(window, places, strict=True)):
            raise self.bad(
                f"origin={origin!r} shifts a window of {tuple(window)} away from its "
                "element; pass a smaller shift"
            )

    def shifts(
        self, origin: Any, window: Sequence[int], *, listed: bool = False, flip: bool = False
    ) -> tuple[Shape, Shape]:
        """
        Return the shift of a window along each axis, as given and relative to its elements.

        As in SciPy, the numbers belong to the axes in ascending order if all axes are filtered,
        unless they are `listed`. `flip` is for weights in reverse order.
        """
        several = listed or len(self.axes) < self.source.ndim
        order = self.axes if several else range(self.source.ndim)
        found = dict(zip(order, self.expand(origin, "origin", int), strict=True))
        given = tuple(found.get(axis, 0) for axis in range(self.source.ndim))
        places = reverse_origin(given, window) if flip else given
        self.check_shifts(origin, window, places)
        return given, places

    def spread(self, window: NDArray[Any], what: str, *, listed: bool = False) -> NDArray[Any]:
        """
        Expand a window over the filtered axes to one over all axes.

        As in SciPy, its axes are the filtered ones in ascending order, unless they are as `listed`.
        """
        if window.ndim != len(self.axes) or not window.size:
            raise self.bad(
                f"{what} of shape {window.shape} does not fit {len(self.axes)} axes; pass an array "
                "with as many axes"
            )
        shape = dict(zip(self.axes if listed else sorted(self.axes), window.shape, strict=True))
        return window.reshape([shape.get(axis, 1) for axis in range(self.source.ndim)])

    def window(self, size: Any, footprint: Any, *, listed: bool = False) -> NDArray[np.bool_]:
        """Return a window as a mask; a window without gaps may have its axes as `listed`."""
        what = "footprint=" if footprint is not None else "size="
        if footprint is None:
            if size is None:
                raise self.bad("the size of the window is missing; pass size= or footprint=")
            footprint = np.ones(self.sizes(size), bool)
        own = np.asarray(footprint, bool)
        found = self.spread(own, what, listed=listed and bool(own.all()))
        if not found.any():
            raise self.bad("footprint= selects no elements; select at least one")
        return found

    def check_real(self, weights: Any) -> NDArray[Any]:
        """Return the weights; raise unless they are real numbers."""
        found = np.asarray(weights)
        if found.dtype.kind not in "biuf":
            raise self.bad(
                f"weights have dtype {found.dtype}; pass real numbers (outcore.stencil accepts "
                "complex ones)"
            )
        return found.astype(np.float64)

    def around(self, widths: Shape) -> Halo:
        """Return the specification of the elements around a block."""
        if not self.source.size:
            widths = (0,) * self.source.ndim
        return Halo(widths, self.modes, self.cval)

    def rate(
        self, kernel: Kernel, widths: Shape, scratch: Sequence[Scratch], terms: Terms, keywords: str
    ) -> float:
        """
        Return elements per second, measured once per process on a block that fits the cache.

        The value is used only for predictions: no plan depends on it.
        """
        ndim = self.source.ndim
        if self.name == "generic_filter" or not ndim or not self.source.size:
            return 0.0  # a user's function is called only for the result
        known = (self.name, self.source.dtype.char, self.dtype.char, ndim, keywords, terms.cores)
        for tried in _TRIED if known not in _RATES else ():
            size = tuple(min(n, int(tried ** (1 / ndim)) + 1) for n in self.source.shape)
            wide = tuple(n + 2 * w for n, w in zip(size, widths, strict=True))
            if math.prod(wide) > 2 * _TRIED[-1]:
                break
            # Starting threads takes longer than filtering the lines of a small block.
            alone = kernel.use_one_core() if isinstance(kernel, _LineFilters) else kernel
            seconds = self._time_kernel(alone, size, wide, scratch)
            cores = 1 if alone is kernel else terms.cores
            _RATES[known] = cores * math.prod(size) / seconds
            if seconds > _SOON:
                break
        return _RATES.get(known, 0.0)

    def _time_kernel(
        self, kernel: Kernel, size: Shape, wide: Shape, scratch: Sequence[Scratch]
    ) -> float:
        """Return the seconds of a kernel for a block with that many elements around it."""
        block = (np.arange(math.prod(wide)) * 7919 % 101).astype(
            self.source.dtype.newbyteorder("=")
        )
        more = [
            np.empty(wide if one.elements is None else one.elements, one.dtype) for one in scratch
        ]
        blocks = [block.reshape(wide), np.empty(size, self.dtype), *more]
        key, missing = tuple(slice(0, n) for n in size), (((0, 0),) * len(size),)
        return measure_seconds(lambda: kernel(blocks, key, missing), 2)

    def _axes(self, axes: Any) -> Shape:
        ndim = self.source.ndim
        if axes is None:
            return tuple(range(ndim))
        given = tuple(axes) if np.iterable(axes) else (axes,)
        try:
            found = tuple(range(ndim)[axis] for axis in given)
        except (TypeError, IndexError):
            found = ()
        if len(found) != len(given) or len(set(found)) != len(found):
            raise self.bad(
                f"axes={axes!r} does not fit an array with {ndim} axes; name different axes of it"
            )
        return found

    def _output(self, output: Any, out: Any) -> tuple[np.dtype[Any], Any]:
        if isinstance(output, np.ndarray | DiskArray):
            if out is not None:
                raise self.bad("output= and out= are both arrays; pass one of them")
            output, out = output.dtype, output
        kind = self.source.dtype if output is None else as_dtype(output, "the result")
        if kind.kind not in "biufc" or kind.char in "egG":
            raise self.bad(f"output={kind} is not supported; use float32 or float64")
        if (kind.kind == "c") != (self.source.dtype.kind == "c"):
            raise self.bad(
                f"output={kind} does not fit elements of dtype {self.source.dtype}; use a complex "
                "dtype for complex elements and a real one for real ones"
            )
        return kind.newbyteorder("="), out

    def _modes(self, mode: Any) -> tuple[str, ...]:
        given = (mode,) * len(self.axes) if isinstance(mode, str) else mode
        given = tuple(given) if np.iterable(given) else (given,)
        words = tuple(ALIASES.get(one, one) if isinstance(one, str) else one for one in given)
        if len(words) != len(self.axes) or not all(word in BOUNDARIES for word in words):
            raise self.bad(
                f"mode={mode!r} does not fit {len(self.axes)} axes; pass one of "
                f"{', '.join(BOUNDARIES)}, or one for each axis"
            )
        return self.all_axes(words, "nearest")

    def _cval(self, cval: Any) -> Any:
        """Return the element of ``"constant"``."""
        dtype = self.source.dtype
        if "constant" not in self.modes:
            return dtype.type(0)  # its value is never used
        try:
            found = dtype.type(cval)
        except (TypeError, ValueError, OverflowError):
            found = None
        if found is None or (dtype.kind in "biu" and found != cval):
            raise self.bad(f"cval={cval!r} is not an element of dtype {dtype}; pass one")
        return found

    def complete(
        self,
        kernel: Kernel,
        widths: Shape,
        scratch: Callable[[Terms], Sequence[Scratch]],
        keywords: dict[str, Any],
    ) -> DiskArray:
        """
        Compute the result with a kernel that is called for each block.

        In `keywords`, tuples have a value for each of the axes.
        """
        source = self.source
        if self.one:
            keywords = {k: v[0] if isinstance(v, tuple) else v for k, v in keywords.items()}
        result = Result.like(source, self.dtype, attrs=True)

        def plan(terms: Terms) -> Program:
            rate = self.rate(kernel, widths, scratch(terms), terms, repr(keywords))
            return plan_blocks(
                self.name,
                source.shape,
                [(source.shape, source.dtype)],
                [self.dtype],
                kernel,
                self.around(widths),
                scratch=scratch,
                work=1,
                rate=rate,
            )(terms)

        modes = tuple(self.modes[axis] for axis in self.axes)
        same = len(set(modes)) == 1
        arguments = {**keywords, "mode": modes[0] if same else modes, "cval": self.cval}
        if self.one:
            arguments["axis"] = self.axes[0]
        elif self.axes != tuple(range(source.ndim)):
            arguments["axes"] = self.axes
        if self.dtype != source.dtype:
            arguments["output"] = self.dtype
        repeatable = self.name != "generic_filter"
        operation = Operation(self.name, (source,), (result,), plan, arguments, repeatable)
        return complete(operation, self.out, self.how)  # type: ignore[no-any-return]


#: For a window without gaps, SciPy filters one axis after the other, in the listed order.
_BY_LINES = ("minimum_filter", "maximum_filter")


def reverse_origin(origin: Sequence[int], shape: Sequence[int]) -> Shape:
    """Return the origin for weights in reverse order."""
    return tuple(-o - (n + 1) % 2 for o, n in zip(origin, shape, strict=True))


def find_widths(sizes: Sequence[int], origins: Sequence[int]) -> Shape:
    """Return the number of elements that windows reach on either side."""
    pairs = zip(sizes, origins, strict=True)
    return tuple(max(n // 2 + o, n - 1 - n // 2 - o) for n, o in pairs)


def compute_rank_filter(
    name: str,
    a: Source,
    chosen: Callable[[int], int],
    size: Any,
    footprint: Any,
    origin: Any,
    words: FilterArguments,
    more: Mapping[str, Any] | None = None,
) -> DiskArray:
    """Compute the element of a rank in each window."""
    with open_inputs(a) as (source,):
        call = Filter(name, source, words, "biuf")
        listed = name in _BY_LINES
        window = call.window(size, footprint, listed=listed)
        listed = listed and bool(window.all())
        shape = tuple(window.shape[axis] for axis in (call.axes if listed else sorted(call.axes)))
        origins, _ = call.shifts(origin, window.shape, listed=listed)
        rank = chosen(int(window.sum()))
        widths = find_widths(window.shape, origins)
        own, begin = window.reshape(shape), call.expand(origin, "origin", int)
        window_words = {"size": shape} if own.all() else {"footprint": own.tolist()}
        keywords = {**window_words, "origin": begin, **(more or {})}
        dtype = source.dtype.newbyteorder("=")
        if not (window.all() and window.size <= _LARGE_WINDOW and source.ndim > 0):
            ndimage = needs.scipy("ndimage", f"{name} with such a window")

            def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
                ndimage.rank_filter(
                    block, rank, footprint=window, output=work, mode=mode, origin=origins
                )

            return filter_blocks(call, whole, widths, keywords)
        first = [w - n // 2 - o for w, n, o in zip(widths, window.shape, origins, strict=True)]
        filters = {
            order: _core.RankFilter(window.shape[:: -1 if order == "F" else 1], rank)
            for order in ("C", "F")
        }

        def scratch(terms: Terms) -> tuple[Scratch, ...]:
            lanes = Scratch(dtype, terms.cores * max(one.scratch for one in filters.values()))
            turns = terms.order(0) != terms.order(1) or call.dtype != dtype
            return (lanes, Scratch(dtype)) if turns else (lanes,)

        def kernel(blocks: Sequence[NDArray[Any]], key: Section, missing: Any) -> None:
            block, result, lanes, *turned = blocks
            fill_halo(block, missing[0], call.modes, call.cval)
            order = "C" if block.flags.c_contiguous else "F"
            begin, places = first, result
            if order == "F":
                block, begin, places = block.T, first[::-1], result.T
            if not places.flags.c_contiguous or places.dtype != dtype:
                flat = (turned[0] if order == "C" else turned[0].T).reshape(-1)[: places.size]
                places = flat.reshape(places.shape)
            parts = [_view_as_numbers(one) for one in (block, places, lanes)]
            filters[order].run(parts[0], parts[1], begin, parts[2])
            if turned and not np.shares_memory(places, result):
                np.copyto(result, places if order == "C" else places.T, casting="unsafe")

        return call.complete(kernel, widths, scratch, keywords)


def _view_as_numbers(block: NDArray[Any]) -> NDArray[Any]:
    """Return booleans as numbers, without a copy."""
    return block.view(np.uint8) if block.dtype == bool else block


def _find_inner(key: Section, widths: Sequence[int]) -> Section:
    """Return the position of a block within the block with the elements around it."""
    pairs = zip(key, widths, strict=True)
    return tuple(slice(w, w + part.stop - part.start) for part, w in pairs)


def filter_blocks(
    call: Filter,
    function: Callable[[NDArray[Any], NDArray[Any], str], None],
    widths: Shape,
    keywords: dict[str, Any],
) -> DiskArray:
    """Compute a filter of SciPy on a block with all elements around it."""
    around = call.around(widths)

    def kernel(blocks: Sequence[NDArray[Any]], key: Section, missing: Any) -> None:
        block, result, work = blocks
        fill_halo(block, missing[0], call.modes, call.cval)
        function(block, work, "nearest")
        result[...] = work[_find_inner(key, around.widths)]

    return call.complete(kernel, widths, lambda terms: (Scratch(call.dtype),), keywords)


def filter_lines(call: Filter, lines: Lines, widths: Shape, keywords: dict[str, Any]) -> DiskArray:
    """Compute filters of SciPy along one axis after the other."""

    def scratch(terms: Terms) -> tuple[Scratch, ...]:
        kernel.cores = terms.cores
        return (Scratch(call.dtype),)

    kernel = _LineFilters(lines, call.around(widths))
    return call.complete(kernel, widths, scratch, keywords)


class _LineFilters:
    """Kernel that applies filters along one axis after the other, on all cores."""

    def __init__(self, lines: Lines, around: Halo) -> None:
        self.lines, self.around, self.cores = lines, around, 1

    def use_one_core(self) -> _LineFilters:
        """Return the same kernel on one core."""
        return _LineFilters(self.lines, self.around)

    def __call__(self, blocks: Sequence[NDArray[Any]], key: Section, missing: Any) -> None:
        block, result, work = blocks
        modes, cval = self.around.boundary, self.around.cval
        assert isinstance(modes, tuple)
        fill_halo(block, missing[0], modes, cval)
        constant = [
            ends if word == "constant" else (0, 0)
            for word, ends in zip(modes, missing[0], strict=True)
        ]
        for axis, line in self.lines:
            self.filter_along(axis, line, block, work)
            block = work
            # Beyond an end, SciPy uses the constant again for each axis.
            fill_halo(work, constant, modes, cval)
        np.copyto(result, block[_find_inner(key, self.around.widths)], casting="unsafe")

    def filter_along(
        self, axis: int, line: Callable[..., Any], block: NDArray[Any], work: NDArray[Any]
    ) -> None:
        others = [k for k in range(block.ndim) if k != axis]
        if not others or self.cores == 1:
            line(block, output=work, mode="nearest")
            return
        # Lines are independent.
        cut = max(others, key=lambda k: (block.shape[k], block.strides[k]))
        n = block.shape[cut]
        ends = [n * k // self.cores for k in range(self.cores + 1)]
        with Background("outcore-filter") as background:
            for low, high in pairwise(ends):
                part = (slice(None),) * cut + (slice(low, high),)
                if high > low:
                    background.start(line, block[part], output=work[part], mode="nearest")
