"""
Histograms and counts of values.

Problem. NumPy counts what is in memory.
Idea. It counts parts, with the edges that it would find for the whole, and the counts are added
(`outcore.ooc.reduce.counting`). Where nobody says what the smallest and the largest element are, a pass
before finds them.

Invariants. The counts and the edges are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore.errors import BudgetError, UsageError
from outcore.jobs import Operation, Result, Source, collective, complete, opened
from outcore.ooc.reduce import chains
from outcore.ooc.reduce.counting import AT_ONCE, counting, parts
from outcore.ooc.reduce.quantities import extreme, reduced
from outcore.schedule import Section

__all__ = ["bincount", "histogram"]

_I8 = np.dtype("i8")
# Where the budget does not do for finding the largest element, nobody knows how many counts there will
# be: as many as elements, but no fewer and no more than this.
_FEW, _MANY = 256, 1 << 16


@collective
def histogram(
    a: Source,
    bins: int | ArrayLike = 10,
    range: tuple[float, float] | None = None,
    density: bool = False,
    **how: Any,
) -> Any:
    """
    Histogram of all elements.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer or floating dtype.
    bins
        Number of bins of equal width, or their edges, rising.
    range
        The outer edges, if `bins` is a number; by default the smallest and the largest element, which an
        earlier pass finds, also for ``explain=True``.
    density
        Divide by the number of elements and by the width of the bin.
    how
        ``memory``, ``progress`` and ``explain``; see `outcore.jobs.complete`.

    Returns
    -------
    hist : numpy.ndarray
        Of shape ``(bins,)``, int64 (float64 with `density`); with ``explain=True`` a `Planned`
        instead, which runs to the counts.
    edges : numpy.ndarray
        Of shape ``(bins + 1,)``.

    Raises
    ------
    UsageError
        ``bad-option``: bins or a range that NumPy refuses.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The budget does not hold the counts and a tile.

    Notes
    -----
    Memory: as much as there is, and at least 1 MiB, 40 bytes a bin, and a tile of `a`. Each
    element is read once, or twice without `range`. Collective with ``comm=``: ranks share the
    tiles of `a`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.arange(10.0))
    >>> outcore.histogram("row.npy", bins=3)
    (array([3, 3, 4]), array([0., 3., 6., 9.]))
    """
    if isinstance(bins, str):
        raise UsageError(
            f"histogram: bins={bins!r}: rules for their number look at all elements at once; give a "
            "number, or edges",
            code="bad-option",
        )
    many = isinstance(bins, int | np.integer)
    with opened(a) as (source,):
        dtype = chains.supported("histogram", source.dtype, "biuf")
        if dtype.kind == "b":
            dtype = np.dtype("u1")

        def between(ends: Any) -> NDArray[Any]:
            try:
                return np.histogram_bin_edges(
                    np.empty(0, dtype),
                    bins,
                    None if ends is None else ends,
                )
            except (ValueError, TypeError) as error:
                raise UsageError(
                    f"histogram: bins={bins!r} and range={ends!r} give no bins: {error}",
                    code="bad-option",
                ) from None

        def counted(ends: Any, edges: NDArray[Any]) -> Operation:
            given = {"bins": bins, "range": ends} if many else {"bins": edges}
            length = max(AT_ONCE, len(edges))

            def count(
                tile: NDArray[Any], section: Section, kept: NDArray[Any], part_of: int
            ) -> None:
                for part in parts(tile.view(dtype), length):
                    kept += np.histogram(part, **given)[0]

            size = len(edges) - 1
            beside = 80 * length + 24 * len(edges)
            plan = counting(
                "histogram", tuple(source.shape), source.dtype, (size, _I8), count, beside
            )
            result = Result((size,), _I8, source=source.path, small=True)
            return Operation("histogram", (source,), (result,), plan, given)

        ends: Any = range
        if many and range is None and source.size:
            # Whatever the ends are, there are as many bins between them.
            found = _ends("histogram", a, how, lambda: counted((0, 1), between((0, 1))))
            ends = tuple(one.astype(dtype) for one in found)
        edges = between(ends)

        def with_edges(counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            if not density:
                return counts, edges
            return counts / np.diff(edges).astype(np.float64) / counts.sum(), edges

        return complete(counted(ends, edges), None, how, with_edges)


def _ends(name: str, a: Source, how: dict[str, Any], then: Callable[[], Operation]) -> Any:
    """
    The smallest and the largest element: a pass before that of the operation that comes `then`.

    A budget that is refused here is told with what does for both. Of several ranks only the first one
    would know that the pass was refused for its budget, so there each pass tells of itself.
    """
    both = [extreme("min"), extreme("max")]
    try:
        return reduced(name, (a,), None, both, None, _quiet(how))
    except BudgetError as error:
        if how.get("comm") is None:
            try:
                complete(then(), None, {**_quiet(how), "explain": True})
            except BudgetError as other:
                if (other.needed or 0) > (error.needed or 0):
                    raise other from None
        raise


def _quiet(how: dict[str, Any]) -> dict[str, Any]:
    """What of a call's words is said to the pass before, which has no result of its own."""
    return {word: how[word] for word in ("memory", "comm") if word in how}


@collective
def bincount(x: Source, minlength: int = 0, *, out: Any = None, **how: Any) -> Any:
    """
    How often each value occurs in a vector of integers that are not negative.

    Parameters
    ----------
    x
        A path, an open array, or a NumPy array, of shape ``(n,)`` and integer or boolean dtype.
    minlength
        The least length of the result.
    out
        A path, an open array or a NumPy array that takes the result; by default it is a NumPy array.
    how
        ``memory``, ``progress``, ``explain`` and options of a new array; see `outcore.jobs.complete`.

    Returns
    -------
    numpy.ndarray, DiskArray or Planned
        Of shape ``(max(x) + 1,)`` or longer, int64.

    Raises
    ------
    UsageError
        ``bad-shape``: more than one axis. ``bad-option``: negative elements, or a negative `minlength`.
    UnsupportedError
        ``bad-dtype``: elements that are no integers.
    BudgetError
        The budget does not hold the counts and a tile. If it does not even do for finding the largest
        element, ``needed`` goes by the number of elements, up to 65536 counts.

    Notes
    -----
    Memory: as much as there is, and at least 1 MiB, 32 bytes for each element of the result, and a
    tile of `x`. Each element is read twice: a pass before finds the largest one, also for
    ``explain=True``. Collective with ``comm=``: ranks share the tiles of `x`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.array([0, 3, 3, 1]))
    >>> outcore.bincount("row.npy")
    array([1, 1, 0, 2])
    """
    if minlength < 0:
        raise UsageError(
            f"bincount: minlength={minlength} is negative; give 0 or more", code="bad-option"
        )
    with opened(x) as (source,):
        dtype = chains.supported("bincount", source.dtype, "biu")
        if source.ndim != 1:
            raise UsageError(
                f"bincount: an array of {source.ndim} axes; give a vector",
                code="bad-shape",
                path=source.path,
            )

        def counted(size: int) -> Operation:
            def count(
                tile: NDArray[Any], section: Section, kept: NDArray[Any], part_of: int
            ) -> None:
                for part in parts(tile):
                    if size <= AT_ONCE:
                        kept += np.bincount(part.astype(_I8), minlength=size)
                    else:
                        np.add.at(kept, part.astype(_I8), 1)

            plan = counting(
                "bincount", tuple(source.shape), dtype, (size, _I8), count, 16 * AT_ONCE
            )
            result = Result((size,), _I8, source=source.path, small=True)
            arguments = {"minlength": minlength}
            return Operation("bincount", (source,), (result,), plan, arguments)

        size = int(minlength)
        if source.size:
            values = 2 ** min(8 * dtype.itemsize, 63)
            likely = max(size, min(values, max(source.size, _FEW), _MANY))
            low, high = _ends("bincount", x, how, lambda: counted(likely))
            if low < 0:
                raise UsageError(
                    f"bincount: the smallest element is {low}; there is no place for what is negative",
                    code="bad-option",
                    path=source.path,
                )
            size = max(size, int(high) + 1)
        return complete(counted(size), out, how)
