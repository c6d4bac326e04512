"""
Windows that go over an array on disk: what the filters of SciPy have in common.

Idea. Arguments are read as SciPy reads them. Then there are three ways: ranks in windows are found by
the core (`ranked`), filters of one axis after the other go line by line (`by_lines`), and whatever else
gets whole blocks with what is around them (`by_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.disk import DiskArray
from outcore.errors import UsageError
from outcore.jobs import Operation, Result, Source, Terms, complete, opened
from outcore.ooc import needs
from outcore.ooc.blocks.blockwise import BOUNDARIES, Around, Scratch, blockwise, filled
from outcore.schedule import Section

__all__ = [
    "bad",
    "by_blocks",
    "by_lines",
    "each",
    "origins_of",
    "ranked",
    "sizes_of",
    "widths_of",
    "window_of",
]

#: SciPy's other names.
_ALIASES = {"grid-constant": "constant", "grid-mirror": "reflect", "grid-wrap": "wrap"}
# Elements of the largest window that the core's networks are for.
_LARGE_WINDOW = 128


Kernel = Callable[..., None]


def bad(name: str, why: str) -> UsageError:
    """What a caller is told of an argument that is not one."""
    return UsageError(f"{name}: {why}", code="bad-stencil")


def each(name: str, value: Any, ndim: int, what: str, kind: type) -> tuple[Any, ...]:
    """An argument that is given once or for each axis, for each axis."""
    given = tuple(value) if np.iterable(value) else (value,) * ndim
    try:
        found = tuple(kind(n) for n in given)
        if kind is int and any(n != m for n, m in zip(found, given, strict=True)):
            raise ValueError
    except (TypeError, ValueError):
        found = ()
    if len(found) != ndim:
        raise bad(name, f"{what}={value!r} for {ndim} axes; give one number, or one for each axis")
    return found


def sizes_of(name: str, size: Any, source: Any) -> tuple[int, ...]:
    """How many elements of each axis a window has."""
    sizes = each(name, size, source.ndim, "size", int)
    if min(sizes, default=1) < 1:
        raise bad(name, f"size={size!r}; a window has at least 1 element along each axis")
    return sizes


def window_of(name: str, size: Any, footprint: Any, source: Any) -> NDArray[np.bool_]:
    """Where a window has elements."""
    if footprint is None:
        if size is None:
            raise bad(name, "neither size= nor footprint= says how large a window is")
        return np.ones(sizes_of(name, size, source), bool)
    found = np.asarray(footprint, bool)
    if found.ndim != source.ndim or not found.any():
        raise bad(
            name,
            f"footprint= has {found.ndim} axes, or no element; the array has {source.ndim} axes",
        )
    return found


def origins_of(name: str, origin: Any, sizes: Sequence[int]) -> tuple[int, ...]:
    """How far a window is moved from its middle, checked against its sizes as SciPy does."""
    origins = each(name, origin, len(sizes), "origin", int)
    if any(not 0 <= n // 2 + o < n for n, o in zip(sizes, origins, strict=True)):
        raise bad(name, f"origin={origin!r} puts a window of {tuple(sizes)} beside its element")
    return origins


def widths_of(sizes: Sequence[int], origins: Sequence[int]) -> tuple[int, ...]:
    """Elements on either side that windows reach."""
    pairs = zip(sizes, origins, strict=True)
    return tuple(max(n // 2 + o, n - 1 - n // 2 - o) for n, o in pairs)


def _mode(name: str, mode: Any, source: Any, widths: Sequence[int]) -> str:
    word = _ALIASES.get(mode, mode) if isinstance(mode, str) else mode
    if word not in BOUNDARIES:
        raise bad(name, f"mode={mode!r}; give one of {', '.join(BOUNDARIES)}, for all axes")
    if (
        word == "wrap"
        and any(w > n for w, n in zip(widths, source.shape, strict=True))
        and source.size
    ):
        raise bad(name, f"a window that goes more than once around an axis of {source.shape}")
    return str(word)


def _cval(name: str, cval: Any, dtype: np.dtype[Any]) -> Any:
    """The element of ``"constant"``."""
    try:
        found = dtype.type(cval)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or (dtype.kind in "biu" and found != cval):
        raise bad(name, f"cval={cval!r} is no element of an array of {dtype}")
    return found


def _filter(
    name: str,
    source: Any,
    kernel: Kernel,
    around: Around,
    scratch: Callable[[Terms], Sequence[Scratch]],
    said: dict[str, Any],
    out: Any,
    how: dict[str, Any],
) -> DiskArray:
    dtype = source.dtype.newbyteorder("=")
    kept = {word: getattr(source, word, None) for word in ("chunks", "dims")}
    kept |= {"order": "F" if source.order == "F" else None}
    kept |= {"attrs": dict(getattr(source, "attrs", ())) or None}
    result = Result(source.shape, dtype, kept, source.path)
    if not source.size:
        around = Around((0,) * source.ndim, around.boundary, around.cval)
    plan = blockwise(
        name, source.shape, [(source.shape, source.dtype)], [dtype], kernel, around, scratch=scratch
    )
    arguments = {**said, "mode": around.boundary, "cval": around.cval}
    repeatable = name != "generic_filter"
    operation = Operation(name, (source,), (result,), plan, arguments, repeatable)
    return complete(operation, out, how)  # type: ignore[no-any-return]


def ranked(
    name: str,
    a: Source,
    chosen: Callable[[int], int],
    size: Any,
    footprint: Any,
    mode: str,
    cval: float,
    origin: Any,
    out: Any,
    how: dict[str, Any],
    more: Mapping[str, Any] | None = None,
) -> DiskArray:
    """The element of a rank in each window."""
    with opened(a) as (source,):
        if source.dtype.kind not in "biuf":
            raise bad(name, f"elements of dtype {source.dtype} have no order")
        window = window_of(name, size, footprint, source)
        origins = origins_of(name, origin, window.shape)
        rank = chosen(int(window.sum()))
        widths = widths_of(window.shape, origins)
        said = {"footprint": window.tolist(), "origin": origins, **(more or {})}
        fast = window.all() and window.size <= _LARGE_WINDOW and source.ndim > 0
        if not fast or source.dtype.itemsize > 8 or source.dtype.char == "e":
            ndimage = needs.scipy("ndimage", f"{name} with such a window")

            def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
                ndimage.rank_filter(
                    block, rank, footprint=window, output=work, mode=mode, cval=cval, origin=origins
                )

            return by_blocks(name, source, whole, widths, mode, cval, said, out, how)
        around = Around(widths, _mode(name, mode, source, widths), _cval(name, cval, source.dtype))
        first = [w - n // 2 - o for w, n, o in zip(widths, window.shape, origins, strict=True)]
        filters = {
            order: _core.RankFilter(window.shape[:: -1 if order == "F" else 1], rank)
            for order in ("C", "F")
        }
        dtype = source.dtype.newbyteorder("=")

        def scratch(terms: Terms) -> tuple[Scratch, ...]:
            lanes = Scratch(dtype, terms.cores * max(one.scratch for one in filters.values()))
            turns = terms.order(0) != terms.order(1)
            return (lanes, Scratch(dtype)) if turns else (lanes,)

        def kernel(blocks: Sequence[NDArray[Any]], key: Section, missing: Any) -> None:
            block, result, lanes, *turned = blocks
            filled(block, missing[0], str(around.boundary), around.cval)
            order = "C" if block.flags.c_contiguous else "F"
            begin, places = first, result
            if order == "F":
                block, begin, places = block.T, first[::-1], result.T
            if not places.flags.c_contiguous:
                flat = (turned[0] if order == "C" else turned[0].T).reshape(-1)[: places.size]
                places = flat.reshape(places.shape)
            parts = [_bits(one) for one in (block, places, lanes)]
            filters[order].run(parts[0], parts[1], begin, parts[2])
            if turned and not np.shares_memory(places, result):
                result[...] = places if order == "C" else places.T

        return _filter(name, source, kernel, around, scratch, said, out, how)


def _bits(block: NDArray[Any]) -> NDArray[Any]:
    """Booleans as the numbers that they are."""
    return block.view(np.uint8) if block.dtype == bool else block


def _inner(key: Section, widths: Sequence[int]) -> Section:
    """The place of a block in what it has around it."""
    pairs = zip(key, widths, strict=True)
    return tuple(slice(w, w + part.stop - part.start) for part, w in pairs)


def by_blocks(
    name: str,
    source: Any,
    function: Callable[[NDArray[Any], NDArray[Any], str], None],
    widths: tuple[int, ...],
    mode: str,
    cval: float,
    said: dict[str, Any],
    out: Any,
    how: dict[str, Any],
) -> DiskArray:
    """A filter of SciPy on a block with all that is around it."""
    word = _mode(name, mode, source, widths)
    around = Around(widths, word, _cval(name, cval, source.dtype))
    dtype = source.dtype.newbyteorder("=")

    def kernel(blocks: Sequence[NDArray[Any]], key: Section, missing: Any) -> None:
        block, result, work = blocks
        filled(block, missing[0], word, around.cval)
        function(block, work, "nearest")
        result[...] = work[_inner(key, widths)]

    return _filter(name, source, kernel, around, lambda terms: (Scratch(dtype),), said, out, how)


def by_lines(
    name: str,
    source: Any,
    lines: Sequence[Callable[..., Any] | None],
    widths: tuple[int, ...],
    mode: str,
    cval: float,
    said: dict[str, Any],
    out: Any,
    how: dict[str, Any],
) -> DiskArray:
    """Filters of SciPy along one axis after the other."""
    if source.dtype.kind not in "biufc":
        raise bad(name, f"elements of dtype {source.dtype} are no numbers")
    word = _mode(name, mode, source, widths)
    around = Around(widths, word, _cval(name, cval, source.dtype))
    dtype = source.dtype.newbyteorder("=")

    def scratch(terms: Terms) -> tuple[Scratch, ...]:
        kernel.cores = terms.cores
        return (Scratch(dtype),)

    kernel = _Lines(lines, around)
    return _filter(name, source, kernel, around, scratch, said, out, how)


class _Lines:
    """Applies filters along one axis after the other, on all cores."""

    def __init__(self, lines: Sequence[Callable[..., Any] | None], around: Around) -> None:
        self.lines, self.around, self.cores = lines, around, 1

    def __call__(self, blocks: Sequence[NDArray[Any]], key: Section, missing: Any) -> None:
        block, result, work = blocks
        boundary = str(self.around.boundary)
        filled(block, missing[0], boundary, self.around.cval)
        for axis, line in enumerate(self.lines):
            if line is None:
                continue
            self.along(axis, line, block, work)
            block = work
            if boundary == "constant":
                # What SciPy finds beyond an end is the constant for each axis anew.
                filled(work, missing[0], boundary, self.around.cval)
        result[...] = block[_inner(key, self.around.widths)]

    def along(
        self, axis: int, line: Callable[..., Any], block: NDArray[Any], work: NDArray[Any]
    ) -> None:
        others = [k for k in range(block.ndim) if k != axis]
        if not others or self.cores == 1:
            line(block, output=work, mode="nearest")
            return
        # Lines do not touch each other.
        cut = max(others, key=lambda k: (block.shape[k], block.strides[k]))
        n = block.shape[cut]
        ends = [n * k // self.cores for k in range(self.cores + 1)]
        with ThreadPoolExecutor(self.cores) as pool:
            begun = []
            for low, high in pairwise(ends):
                part = (slice(None),) * cut + (slice(low, high),)
                if high > low:
                    begun.append(pool.submit(line, block[part], output=work[part], mode="nearest"))
            for one in begun:
                one.result()
