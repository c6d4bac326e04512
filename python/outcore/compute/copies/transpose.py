"""Transposition and rechunking: copies whose target has other axes, or other chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

from outcore.arrays.disk import DiskArray
from outcore.arrays.likeness import get_description, get_storage
from outcore.compute.axes import find_axes
from outcore.compute.copies.copying import plan_copy
from outcore.compute.jobs import Operation, Result, Source, collective, complete, open_inputs
from outcore.errors import UsageError
from outcore.formats.spec import order_fields

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
        Array of any dtype.
    axes
        Axis `k` of the result is axis ``axes[k]`` of `a`. Default: the axes in reverse order, as in
        `numpy.transpose`.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Array of shape ``tuple(a.shape[k] for k in axes)``, open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-axis``: `axes` is not a permutation. Otherwise see `outcore.compute.jobs.complete`.
    BudgetError
        One chunk of each side does not fit. ``needed`` is a sufficient budget.
    StorageError
        See `outcore.compute.jobs.complete`.

    Notes
    -----
    Memory: any amount, at least one chunk of each side. Each element is read once and written once.
    Collective with ``comm=``: ranks share the tiles.

    Tiles: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel
    I/O", section 4.3.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("rows.npy", np.arange(12.0).reshape(3, 4))
    >>> b = outcore.transpose("rows.npy", out="columns.npy")
    >>> b.shape, b[1]
    ((4, 3), array([1., 5., 9.]))
    """
    with open_inputs(a) as (source,):
        permutation = _find_permutation(source.ndim, axes)
        kept = _list_kept_options(source)
        kind = order_fields(source.dtype)
        result = Result(
            tuple(source.shape[k] for k in permutation),
            kind,
            kept={
                name: tuple(word[k] for k in permutation) if name in _PER_AXIS and word else word
                for name, word in kept.items()
            },
            source=source.path,
        )
        plan = plan_copy("transpose", source.shape, (source.dtype, kind), permutation)
        operation = Operation("transpose", (source,), (result,), plan, {"axes": permutation})
        return complete(operation, out, how)  # type: ignore[no-any-return]


_PER_AXIS = ("chunks", "shards", "dims")


def _list_kept_options(source: Any) -> dict[str, Any]:
    """Return the options of a new array that it shares with the source: all except the order."""
    if not isinstance(source, DiskArray):
        return {}
    lies = {name: word for name, word in get_storage(source.info).items() if name != "order"}
    return {**lies, **get_description(source.info)}


def _find_permutation(ndim: int, axes: Sequence[SupportsIndex] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(reversed(range(ndim)))
    found = find_axes("transpose", axes, ndim)
    if len(found) < ndim:
        raise UsageError(
            f"transpose: axes={axes!r} is not a permutation of 0..{ndim - 1}; list each axis "
            "exactly once",
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
        Array of any shape and dtype.
    chunks
        Chunks of the result, as for `outcore.create`: an integer for each axis; -1 or None for the
        whole axis.
    out, how
        See `outcore.compute.jobs.complete`. The format must have chunks; without `out`, the result
        is a temporary Zarr array.

    Returns
    -------
    DiskArray
        Array with the shape and dtype of `a`, open for reading and writing.

    Raises
    ------
    UnsupportedError
        The format has no chunks.
    BudgetError
        One chunk of each side does not fit. ``needed`` is a sufficient budget.
    UsageError, StorageError
        See `outcore.compute.jobs.complete`.

    Notes
    -----
    Memory: any amount, at least one chunk of each side. If the budget allows it, each chunk is read
    once and written once; ``explain=True`` reports the bytes moved. Collective with ``comm=``:
    ranks share the tiles.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("slabs.zarr", data=np.ones((40, 60)), chunks=(4, -1))
    >>> outcore.rechunk(a, (-1, 6), out="columns.zarr").chunks
    (40, 6)
    """
    with open_inputs(a) as (source,):
        kept = {name: word for name, word in _list_kept_options(source).items() if name != "chunks"}
        kind = order_fields(source.dtype)
        result = Result(source.shape, kind, kept, source.path)
        plan = plan_copy("rechunk", source.shape, (source.dtype, kind))
        operation = Operation("rechunk", (source,), (result,), plan)
        return complete(operation, out, {**how, "chunks": chunks})  # type: ignore[no-any-return]
