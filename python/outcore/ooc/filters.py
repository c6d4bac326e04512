"""
Filters of SciPy (`scipy.ndimage`) for arrays on disk.

Problem. An element of the result depends on a window around it, and SciPy wants the whole array.
Idea. Blocks with what is around them (`outcore.ooc.blockwise`), which is made of elements inside at
the ends of the array, just as SciPy does. Ranks in windows (medians, minima, maxima) are found by the
core, the rest by SciPy's own functions, line by line.

Invariants. Results are SciPy's, whatever the budget: bit for bit, but for `uniform_filter` of floats,
where SciPy's running sums depend on where a line begins.

Reference: PASSION, section 4.3 (reuse of borders), and its median filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore import _core
from outcore.disk import DiskArray
from outcore.errors import UsageError
from outcore.jobs import Operation, Result, Source, Terms, complete, opened
from outcore.ooc import needs
from outcore.ooc.blockwise import BOUNDARIES, Around, Scratch, blockwise, filled
from outcore.schedule import Section

__all__ = [
    "gaussian_filter",
    "generic_filter",
    "maximum_filter",
    "median_filter",
    "minimum_filter",
    "percentile_filter",
    "rank_filter",
    "uniform_filter",
]

#: SciPy's other names.
_ALIASES = {"grid-constant": "constant", "grid-mirror": "reflect", "grid-wrap": "wrap"}
# Elements of the largest window that the core's networks are for.
_LARGE_WINDOW = 128


Kernel = Callable[..., None]


def median_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the median of the window around it, as `scipy.ndimage.median_filter` does.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array of real numbers.
    size
        Of the window: one number for all axes, or one for each.
    footprint
        Instead of `size`: an array of booleans, true where the window has elements.
    mode
        What lies beyond the ends of all axes: ``"reflect"``, ``"constant"`` (`cval`), ``"nearest"``,
        ``"mirror"`` or ``"wrap"``.
    cval
        The element of ``"constant"``.
    origin
        How far the window lies before the element, along all axes or along each.
    out
        Where the result goes: a path, an open array, or a NumPy array. By default a temporary array
        on disk, which goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and wishes for the new array;
        see `outcore.jobs.complete`.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`, open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-stencil``: a window, mode or origin that does not fit `a`, or elements without an order.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed, and the window is no box, or has more than 128 elements.
    BudgetError
        Not even the smallest blocks fit; ``needed`` says what would do.

    Notes
    -----
    Of an even number of elements it is the upper one of the two in the middle. Where elements are not
    a number (NaN), which have no order, the result is one of the elements of the window; which one is
    not said, here as in SciPy.

    Memory: two blocks of `a` with what is around them and two of the result, within the budget.
    Elements around blocks are read again only across axes along which blocks are cut, and where the
    mode is ``"wrap"``. Serial; on all cores.

    PASSION, section 4.3; Batcher, "Sorting networks and their applications", 1968.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.median_filter(np.array([1.0, 9.0, 2.0, 3.0, 8.0]), 3)[...]
    array([1., 2., 3., 3., 8.])
    """
    return _ranked(
        "median_filter", a, lambda n: n // 2, size, footprint, mode, cval, origin, out, how
    )


def rank_filter(
    a: Source,
    rank: int,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by that of a given rank in its window, as `scipy.ndimage.rank_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    rank
        0 is the smallest element of the window, -1 the largest.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        ``bad-stencil``: no such rank; and as for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.rank_filter(np.array([1, 9, 2, 3, 8]), -1, size=3)[...]
    array([9, 9, 9, 8, 8])
    """

    def chosen(n: int) -> int:
        found = rank + n if rank < 0 else rank
        if not 0 <= found < n:
            raise _bad("rank_filter", f"rank={rank} in a window of {n} elements")
        return found

    said = {"rank": rank}
    return _ranked("rank_filter", a, chosen, size, footprint, mode, cval, origin, out, how, said)


def percentile_filter(
    a: Source,
    percentile: float,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by a percentile of its window, as `scipy.ndimage.percentile_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    percentile
        From -100 to 100; -20 is 80.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        ``bad-stencil``: no such percentile; and as for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.percentile_filter(np.array([1, 9, 2, 3, 8]), 100, size=3)[...]
    array([9, 9, 9, 8, 8])
    """
    wanted = percentile + 100.0 if percentile < 0 else percentile
    if not 0 <= wanted <= 100:
        raise _bad("percentile_filter", f"percentile={percentile}; give a number from -100 to 100")

    def chosen(n: int) -> int:
        return n - 1 if wanted == 100.0 else int(float(n) * wanted / 100.0)

    said = {"percentile": percentile}
    return _ranked(
        "percentile_filter", a, chosen, size, footprint, mode, cval, origin, out, how, said
    )


def minimum_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the smallest of its window, as `scipy.ndimage.minimum_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.minimum_filter(np.array([4, 9, 2, 3, 8]), 3)[...]
    array([4, 2, 2, 2, 3])
    """
    return _ranked("minimum_filter", a, lambda n: 0, size, footprint, mode, cval, origin, out, how)


def maximum_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the largest of its window, as `scipy.ndimage.maximum_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.maximum_filter(np.array([4, 9, 2, 3, 8]), 3)[...]
    array([9, 9, 9, 8, 8])
    """
    return _ranked(
        "maximum_filter", a, lambda n: n - 1, size, footprint, mode, cval, origin, out, how
    )


def uniform_filter(
    a: Source,
    size: int | Sequence[int] = 3,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the mean of its window, as `scipy.ndimage.uniform_filter` does.

    Parameters
    ----------
    a, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    size
        Of the window: one number for all axes, or one for each.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`; means of integers are cut off after each axis, as in SciPy.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    Notes
    -----
    Means of floats are sums of as many products, the same wherever blocks are cut; SciPy adds and
    subtracts along each line, so its last digits differ. Memory and reads: as for
    `outcore.median_filter`, and one block more.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.uniform_filter(np.array([0.0, 3.0, 6.0, 9.0]), 3)[...]
    array([1., 3., 6., 8.])
    """
    ndimage = needs.scipy("ndimage", "uniform_filter")
    with opened(a) as (source,):
        sizes = _sizes("uniform_filter", size, source)
        origins = _origins("uniform_filter", origin, sizes)
        floats = source.dtype.kind in "fc"

        def line(axis: int) -> Callable[..., Any] | None:
            n, begin = sizes[axis], origins[axis]
            if n == 1:
                return None
            if floats:
                weights = np.full(n, 1.0 / n)
                return lambda x, **w: ndimage.correlate1d(x, weights, axis, origin=begin, **w)
            return lambda x, **w: ndimage.uniform_filter1d(x, n, axis, origin=begin, **w)

        widths = tuple(
            max(n // 2 + o, n - 1 - n // 2 - o) for n, o in zip(sizes, origins, strict=True)
        )
        said = {"size": sizes, "origin": origins}
        lines = [line(axis) for axis in range(source.ndim)]
        return _by_lines("uniform_filter", source, lines, widths, mode, cval, said, out, how)


def gaussian_filter(
    a: Source,
    sigma: float | Sequence[float],
    order: int | Sequence[int] = 0,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | Sequence[int] | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Smooth an array, or differentiate it smoothly, as `scipy.ndimage.gaussian_filter` does.

    Parameters
    ----------
    a, mode, cval, out, how
        As for `outcore.median_filter`; complex numbers too.
    sigma
        Standard deviation, for all axes or for each; along axes where it is 0 nothing is done.
    order
        Of the derivative, for all axes or for each.
    truncate
        The filter ends after so many standard deviations.
    radius
        Instead of `truncate`: elements on either side, for all axes or for each.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        ``bad-stencil``: what does not fit `a`.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    Notes
    -----
    The bits are those of SciPy. Memory and reads: as for `outcore.median_filter`, and one block more.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.gaussian_filter(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 0.5, radius=1)[...]
    array([0.        , 0.10650698, 0.78698604, 0.10650698, 0.        ])
    """
    ndimage = needs.scipy("ndimage", "gaussian_filter")
    with opened(a) as (source,):
        ndim = source.ndim
        sigmas = _each("gaussian_filter", sigma, ndim, "sigma", float)
        orders = _each("gaussian_filter", order, ndim, "order", int)
        radii = (
            _each("gaussian_filter", radius, ndim, "radius", int) if radius is not None else None
        )
        if min(sigmas, default=0) < 0 or min(orders, default=0) < 0 or min(radii or (0,)) < 0:
            raise _bad("gaussian_filter", "a sigma, order or radius that is negative")
        widths = tuple(
            0 if one <= 1e-15 else radii[k] if radii else int(truncate * one + 0.5)
            for k, one in enumerate(sigmas)
        )

        def line(axis: int) -> Callable[..., Any] | None:
            if sigmas[axis] <= 1e-15:
                return None
            return lambda x, **w: ndimage.gaussian_filter1d(
                x, sigmas[axis], axis, orders[axis], radius=widths[axis], **w
            )

        said = {"sigma": sigmas, "order": orders, "radius": widths}
        lines = [line(axis) for axis in range(ndim)]
        return _by_lines("gaussian_filter", source, lines, widths, mode, cval, said, out, how)


def generic_filter(
    a: Source,
    function: Callable[..., Any],
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    extra_arguments: Sequence[Any] = (),
    extra_keywords: dict[str, Any] | None = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by a function of its window, as `scipy.ndimage.generic_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    function
        From the elements of a window, as a 1-d array of float64, to a number; or a
        `scipy.LowLevelCallable`.
    extra_arguments, extra_keywords
        For the function.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    Notes
    -----
    The function is called for elements around blocks too, more than once, and on one core; a function
    of whole blocks (`outcore.map_blocks` with ``halo=``) is much faster. Memory and reads: as for
    `outcore.median_filter`, and one block more.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.generic_filter(np.array([1.0, 5.0, 2.0, 8.0]), np.ptp, 3)[...]
    array([4., 4., 6., 6.])
    """
    ndimage = needs.scipy("ndimage", "generic_filter")
    with opened(a) as (source,):
        shape = _window("generic_filter", size, footprint, source)
        origins = _origins("generic_filter", origin, shape.shape)

        def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
            ndimage.generic_filter(
                block,
                function,
                footprint=shape,
                output=work,
                mode=mode,
                cval=cval,
                origin=origins,
                extra_arguments=tuple(extra_arguments),
                extra_keywords=extra_keywords,
            )

        said = {
            "function": getattr(function, "__qualname__", repr(type(function))),
            "footprint": shape.tolist(),
            "origin": origins,
            "extra": (tuple(extra_arguments), extra_keywords),
        }
        widths = _widths(shape.shape, origins)
        return _whole("generic_filter", source, whole, widths, mode, cval, said, out, how)


def _bad(name: str, why: str) -> UsageError:
    return UsageError(f"{name}: {why}", code="bad-stencil")


def _each(name: str, value: Any, ndim: int, what: str, kind: type) -> tuple[Any, ...]:
    given = tuple(value) if np.iterable(value) else (value,) * ndim
    try:
        found = tuple(kind(n) for n in given)
        if kind is int and any(n != m for n, m in zip(found, given, strict=True)):
            raise ValueError
    except (TypeError, ValueError):
        found = ()
    if len(found) != ndim:
        raise _bad(name, f"{what}={value!r} for {ndim} axes; give one number, or one for each axis")
    return found


def _sizes(name: str, size: Any, source: Any) -> tuple[int, ...]:
    sizes = _each(name, size, source.ndim, "size", int)
    if min(sizes, default=1) < 1:
        raise _bad(name, f"size={size!r}; a window has at least 1 element along each axis")
    return sizes


def _window(name: str, size: Any, footprint: Any, source: Any) -> NDArray[np.bool_]:
    """Where a window has elements."""
    if footprint is None:
        if size is None:
            raise _bad(name, "neither size= nor footprint= says how large a window is")
        return np.ones(_sizes(name, size, source), bool)
    found = np.asarray(footprint, bool)
    if found.ndim != source.ndim or not found.any():
        raise _bad(
            name,
            f"footprint= has {found.ndim} axes, or no element; the array has {source.ndim} axes",
        )
    return found


def _origins(name: str, origin: Any, sizes: Sequence[int]) -> tuple[int, ...]:
    origins = _each(name, origin, len(sizes), "origin", int)
    if any(not 0 <= n // 2 + o < n for n, o in zip(sizes, origins, strict=True)):
        raise _bad(name, f"origin={origin!r} puts a window of {tuple(sizes)} beside its element")
    return origins


def _widths(sizes: Sequence[int], origins: Sequence[int]) -> tuple[int, ...]:
    """Elements on either side that windows reach."""
    pairs = zip(sizes, origins, strict=True)
    return tuple(max(n // 2 + o, n - 1 - n // 2 - o) for n, o in pairs)


def _mode(name: str, mode: Any, source: Any, widths: Sequence[int]) -> str:
    word = _ALIASES.get(mode, mode) if isinstance(mode, str) else mode
    if word not in BOUNDARIES:
        raise _bad(name, f"mode={mode!r}; give one of {', '.join(BOUNDARIES)}, for all axes")
    if (
        word == "wrap"
        and any(w > n for w, n in zip(widths, source.shape, strict=True))
        and source.size
    ):
        raise _bad(name, f"a window that goes more than once around an axis of {source.shape}")
    return str(word)


def _cval(name: str, cval: Any, dtype: np.dtype[Any]) -> Any:
    """The element of ``"constant"``."""
    try:
        found = dtype.type(cval)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or (dtype.kind in "biu" and found != cval):
        raise _bad(name, f"cval={cval!r} is no element of an array of {dtype}")
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


def _ranked(
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
            raise _bad(name, f"elements of dtype {source.dtype} have no order")
        window = _window(name, size, footprint, source)
        origins = _origins(name, origin, window.shape)
        rank = chosen(int(window.sum()))
        widths = _widths(window.shape, origins)
        said = {"footprint": window.tolist(), "origin": origins, **(more or {})}
        fast = window.all() and window.size <= _LARGE_WINDOW and source.ndim > 0
        if not fast or source.dtype.itemsize > 8 or source.dtype.char == "e":
            ndimage = needs.scipy("ndimage", f"{name} with such a window")

            def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
                ndimage.rank_filter(
                    block, rank, footprint=window, output=work, mode=mode, cval=cval, origin=origins
                )

            return _whole(name, source, whole, widths, mode, cval, said, out, how)
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


def _whole(
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


def _by_lines(
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
        raise _bad(name, f"elements of dtype {source.dtype} are no numbers")
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
