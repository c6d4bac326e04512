"""Transposition and new chunks: copies whose target has other axes, or other chunks."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

from outcore.arrays.disk import DiskArray
from outcore.arrays.likeness import description, storage
from outcore.compute.copies.copying import copying
from outcore.compute.jobs import Operation, Result, Source, collective, complete, opened
from outcore.errors import UsageError
from outcore.formats.spec import in_order

__all__ = ["rechunk", "transpose"]


@collective
def transpose(
    a: Source, axes: Sequence[SupportsIndex] | None = None, *, out: Any = None, **how: Any
) -> DiskArray:
    """
    Permute the axes of an array.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and any dtype.
    axes
        Axis `k` of the result is axis ``axes[k]`` of `a`; by default the axes are reversed, as
        `numpy.transpose` does.
    out
        Where the result goes: a path, or an open array. By default a temporary array on disk, which
        goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of the new array;
        see `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-axis``: `axes` is no permutation; or `out` does not fit, or is `a`.
    BudgetError
        Not even one chunk of each side fits; ``needed`` says what would do.
    StorageError
        The system said no. What was done stays if `out` is a path: call again with ``resume=True``.

    Notes
    -----
    Memory: as much as there is, and at least a chunk of each side. Each element is read once and
    written once. Collective with ``comm=``: ranks share the tiles.

    Tiles: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel I/O",
    section 4.3.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("rows.npy", np.arange(12.0).reshape(3, 4))
    >>> b = outcore.transpose("rows.npy", out="columns.npy")
    >>> b.shape, b[1]
    ((4, 3), array([1., 5., 9.]))
    """
    with opened(a) as (source,):
        permutation = _permutation(source.ndim, axes)
        kept = _kept(source)
        kind = in_order(source.dtype)
        result = Result(
            tuple(source.shape[k] for k in permutation),
            kind,
            kept={
                name: tuple(word[k] for k in permutation) if name in _PER_AXIS and word else word
                for name, word in kept.items()
            },
            source=source.path,
        )
        plan = copying("transpose", source.shape, (source.dtype, kind), permutation)
        operation = Operation("transpose", (source,), (result,), plan, {"axes": permutation})
        return complete(operation, out, how)  # type: ignore[no-any-return]


_PER_AXIS = ("chunks", "shards", "dims")


def _kept(source: Any) -> dict[str, Any]:
    """What the result should have of the source: all but the order."""
    if not isinstance(source, DiskArray):
        return {}
    lies = {name: word for name, word in storage(source.info).items() if name != "order"}
    return {**lies, **description(source.info)}


def _permutation(ndim: int, axes: Sequence[SupportsIndex] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(reversed(range(ndim)))
    try:
        given = tuple(operator.index(axis) for axis in axes)
    except TypeError:
        given = ()
    found = tuple(axis % ndim if -ndim <= axis < ndim else ndim for axis in given)
    if sorted(found) != list(range(ndim)):
        raise UsageError(
            f"transpose: axes={axes!r} is no permutation of 0 to {ndim - 1}; give each of these once",
            code="bad-axis",
        )
    return found


@collective
def rechunk(
    a: Source, chunks: int | Sequence[int | None], *, out: Any = None, **how: Any
) -> DiskArray:
    """
    Copy an array into other chunks.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array.
    chunks
        Of the result, as for `outcore.create`: an integer for each axis, -1 or None for the whole axis.
    out
        Where the result goes: a path of a format that has chunks. By default a temporary Zarr array,
        which goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of the new array;
        see `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Open for reading and writing.

    Raises
    ------
    UsageError
        `out` does not fit, or is `a`.
    UnsupportedError
        The format has no chunks.
    BudgetError
        Not even one chunk of each side fits; ``needed`` says what would do.

    Notes
    -----
    Memory: as much as there is, and at least a chunk of each side. Where the budget allows it, each
    chunk is read once and written once; the report (``explain=True``) tells. Collective with ``comm=``:
    ranks share the tiles.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("slabs.zarr", data=np.ones((40, 60)), chunks=(4, -1))
    >>> outcore.rechunk(a, (-1, 6), out="columns.zarr").chunks
    (40, 6)
    """
    with opened(a) as (source,):
        kept = {name: word for name, word in _kept(source).items() if name != "chunks"}
        kind = in_order(source.dtype)
        result = Result(source.shape, kind, kept, source.path)
        plan = copying("rechunk", source.shape, (source.dtype, kind))
        operation = Operation("rechunk", (source,), (result,), plan)
        return complete(operation, out, {**how, "chunks": chunks})  # type: ignore[no-any-return]
