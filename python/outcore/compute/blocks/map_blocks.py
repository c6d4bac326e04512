"""User functions on blocks and on lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore.arrays.schedule import Section
from outcore.compute.axes import find_axis
from outcore.compute.blocks.blockwise import (
    BOUNDARIES,
    Halo,
    expand_per_axis,
    fill_halo,
    plan_blocks,
)
from outcore.compute.blocks.lines import plan_lines
from outcore.compute.jobs import (
    Operation,
    Result,
    Source,
    collective,
    complete,
    open_inputs,
)
from outcore.errors import UsageError
from outcore.formats.spec import as_dtype

__all__ = ["apply_along_axis", "map_blocks"]

Shape = tuple[int, ...]


@collective
def map_blocks(
    function: Callable[..., Any],
    *arrays: Source,
    dtype: DTypeLike | Sequence[DTypeLike] | None = None,
    halo: int | Sequence[int] = 0,
    boundary: str | None = None,
    cval: Any = 0,
    blocks: Sequence[int | None] | None = None,
    pass_key: bool = False,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    Compute one or several arrays block by block with a function.

    Parameters
    ----------
    function
        Called as ``function(block, ...)`` with a block of each array, which it must not keep. It
        returns a block of the result, or a tuple with one block for each result. With a halo, the
        returned block may include the halo or not.
    arrays
        Inputs, whose shapes can be broadcast to one.
    dtype
        Dtype of the result; a sequence if there are several results. Default: what the function
        returns for the first elements.
    halo
        Number of elements around each block that the function needs: one number, or one for each
        axis.
    boundary
        Elements beyond the ends of the array: ``"constant"``, ``"nearest"``, ``"reflect"``,
        ``"mirror"`` or ``"wrap"``, as in `scipy.ndimage`. None: blocks end where the array does.
    cval
        Element of ``"constant"``.
    blocks
        Shape of the blocks without the halo (None: the whole axis). Default: whole chunks, as many
        as the memory allows.
    pass_key
        Call the function with ``key=``, the slices of the result that it computes.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray or tuple
        The result, open for reading and writing; a tuple if the function returns one.

    Raises
    ------
    UsageError
        ``missing-argument``: no array. ``broadcast``: shapes cannot be broadcast. ``bad-boundary``,
        ``bad-blocks``: invalid `boundary`, `halo` or `blocks`. ``bad-function``: the function
        returned another number of results, or another shape. ``bad-cast``: the dtype of a result
        cannot be cast. Otherwise see `outcore.compute.jobs.complete`.
    BudgetError
        The smallest blocks do not fit. ``needed`` is a sufficient budget.

    Notes
    -----
    Memory: two blocks of each array and of each result, within the budget. Memory that the function
    allocates is not counted.

    Each element is read once, except that halos are read again across axes along which blocks are
    cut, and that a resumed job repeats a few steps. Collective with ``comm=``: ranks share the
    blocks. The function runs in the caller's thread.

    Reference: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for
    Parallel I/O", sections 4.2 and 4.3.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.arange(12.0).reshape(3, 4))
    >>> outcore.map_blocks(np.sqrt, a, out="roots.npy")[1]
    array([2.        , 2.23606798, 2.44948974, 2.64575131])
    >>> slope = lambda x: (x[:, 2:] - x[:, :-2]) / 2
    >>> outcore.map_blocks(slope, a, halo=(0, 1), boundary="nearest")[0]
    array([0.5, 1. , 1. , 0.5])
    """
    with open_inputs(*arrays) as inputs:
        if not inputs:
            raise UsageError(
                "map_blocks: no array is given; pass at least one", code="missing-argument"
            )
        try:
            shape = np.broadcast_shapes(*(a.shape for a in inputs))
        except ValueError:
            shapes = ", ".join(str(a.shape) for a in inputs)
            raise UsageError(
                f"map_blocks: shapes {shapes} cannot be broadcast to one; insert axes of length 1",
                code="broadcast",
            ) from None
        around = _make_halo(shape, halo, boundary, cval)
        given = None if blocks is None else _find_block_shape(shape, blocks)
        several, dtypes = _find_dtypes(function, inputs, shape, around, dtype, pass_key=pass_key)
        kernel = _FunctionKernel(function, len(inputs), around, several, pass_key)
        kept = {}
        if len(inputs) == 1:
            (source,) = inputs
            kept = {"chunks": source.chunks, "dims": source.dims, "order": source.order}
        results = tuple(Result(shape, one, kept, inputs[0].path) for one in dtypes)
        plan = plan_blocks(
            "map_blocks",
            shape,
            [(a.shape, a.dtype) for a in inputs],
            dtypes,
            kernel,
            around,
            given=given,
        )
        arguments = {
            "function": getattr(function, "__qualname__", type(function).__qualname__),
            "halo": around.widths,
            "boundary": boundary,
            "cval": cval,
            "blocks": given,
        }
        operation = Operation("map_blocks", inputs, results, plan, arguments, repeatable=False)
        alone = several and len(dtypes) == 1
        return complete(operation, out, how, lambda found: (found,) if alone else found)


def _make_halo(shape: Shape, halo: int | Sequence[int], boundary: str | None, cval: Any) -> Halo:
    widths = expand_per_axis(halo, len(shape), "halo")
    if boundary is not None and boundary not in BOUNDARIES:
        raise UsageError(
            f"unknown boundary {boundary!r}; use one of {', '.join(BOUNDARIES)}, or None",
            code="bad-boundary",
        )
    if boundary is not None and any(w and not n for w, n in zip(widths, shape, strict=True)):
        widths = (0,) * len(shape)  # there is nothing to compute
    if boundary == "wrap" and any(w > n for w, n in zip(widths, shape, strict=True)):
        raise UsageError(
            f"halo={halo!r} is longer than an axis of shape {shape}; with boundary='wrap', pass "
            "at most the length of the axis",
            code="bad-blocks",
        )
    return Halo(widths, boundary, cval)


def _find_block_shape(shape: Shape, blocks: Sequence[int | None]) -> Shape:
    whole = tuple(max(n, 1) for n in shape)
    if len(blocks) != len(shape):
        raise UsageError(
            f"blocks={blocks!r} does not fit {len(shape)} axes; pass an integer of at least 1 "
            "(None: the whole axis) for each",
            code="bad-blocks",
        )
    wanted = [n if m is None else m for n, m in zip(whole, blocks, strict=True)]
    given = expand_per_axis(wanted, len(shape), "blocks")
    if any(n < 1 for n in given):
        raise UsageError(
            f"blocks={blocks!r} has a length below 1; pass lengths of at least 1", code="bad-blocks"
        )
    return tuple(min(n, m) for n, m in zip(given, whole, strict=True))


def _find_dtypes(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    shape: Shape,
    around: Halo,
    dtype: Any,
    *,
    pass_key: bool,
) -> tuple[bool, tuple[np.dtype[Any], ...]]:
    """Return whether there are several results, and their dtypes."""
    if dtype is not None:
        several = isinstance(dtype, tuple | list) and not _is_fields(dtype)
        many = dtype if several else [dtype]
        return several, tuple(as_dtype(one, "the result") for one in many)
    # Call the function with the first elements and their halo.
    size = [min(n, 1 + 2 * w) for n, w in zip(shape, around.widths, strict=True)]
    first = []
    for a in inputs:
        tail = size[len(size) - a.ndim :]
        key = tuple(slice(0, min(n, m)) for n, m in zip(a.shape, tail, strict=True))
        block = np.asarray(a[key]) if a.size else np.zeros([one.stop for one in key], a.dtype)
        first.append(block.astype(a.dtype.newbyteorder("="), copy=False))
    words = {"key": tuple(slice(0, n) for n in size)} if pass_key else {}
    found = function(*first, **words)
    several = isinstance(found, tuple)
    return several, tuple(np.asarray(one).dtype for one in (found if several else (found,)))


def _is_fields(dtype: Any) -> bool:
    return isinstance(dtype, list) and all(isinstance(one, tuple) for one in dtype)


@dataclass(frozen=True)
class _FunctionKernel:
    """Call of the user's function, and copy of the blocks that it returns."""

    function: Callable[..., Any]
    sources: int
    around: Halo
    several: bool
    pass_key: bool

    def __call__(self, blocks: Sequence[NDArray[Any]], key: Section, missing: Any) -> None:
        inputs, outputs = blocks[: self.sources], blocks[self.sources :]
        if self.around.boundary is not None:
            for block, ends in zip(inputs, missing, strict=True):
                fill_halo(block, ends, self.around.boundary, self.around.cval)
        found = self.function(*inputs, **({"key": key} if self.pass_key else {}))
        many = found if self.several else (found,)
        if not isinstance(many, tuple) or len(many) != len(outputs):
            raise UsageError(
                f"map_blocks: the function returned {type(found).__name__}, but {len(outputs)} "
                "results are expected from dtype= or its first call; return a tuple of them",
                code="bad-function",
            )
        for output, one in zip(outputs, many, strict=True):
            self.put(output, np.asarray(one), key)

    def put(self, output: NDArray[Any], found: NDArray[Any], key: Section) -> None:
        if found.shape != output.shape:
            inner = []
            for part, width in zip(key, self.around.widths, strict=True):
                before = width if self.around.boundary is not None else min(width, part.start)
                inner.append(slice(before, before + part.stop - part.start))
            if found.ndim == output.ndim:
                found = found[tuple(inner)]
        if found.shape != output.shape:
            raise UsageError(
                f"map_blocks: the function returned a block of shape {found.shape}, but "
                f"{output.shape} is expected; return the shape of the blocks that it gets, with "
                "or without the halo",
                code="bad-function",
            )
        if not np.can_cast(found.dtype, output.dtype, "same_kind"):
            raise UsageError(
                f"map_blocks: the function returned {found.dtype}, which cannot be cast to "
                f"{output.dtype}; pass another dtype=",
                code="bad-cast",
            )
        np.copyto(output, found, casting="same_kind")


# Keywords of `apply_along_axis` that are not passed to the function.
_OURS = (
    *("memory", "progress", "resume", "overwrite", "explain", "comm"),
    *("format", "chunks", "shards", "compression"),
)


@collective
def apply_along_axis(
    func1d: Callable[..., Any],
    axis: SupportsIndex,
    arr: Source,
    *args: Any,
    out: Any = None,
    **kwargs: Any,
) -> Any:
    """
    Apply a function to all 1-d lines along an axis, as `numpy.apply_along_axis` does.

    Parameters
    ----------
    func1d
        Called as ``func1d(line, *args, **kwargs)``; returns a scalar or an array, of the same shape
        and dtype for all lines.
    axis
        Axis of the lines.
    arr
        Array with at least one axis.
    args, kwargs
        Arguments of the function. The keywords ``memory``, ``progress``, ``resume``, ``overwrite``,
        ``explain``, ``comm``, ``format``, ``chunks``, ``shards`` and ``compression`` are options of
        the computation instead; see `outcore.compute.jobs.complete`.
    out
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        The shape is that of `arr`, with the shape that the function returns in place of `axis`.

    Raises
    ------
    UsageError
        ``bad-function``: results of lines differ in shape, or there is no line. Otherwise see
        `outcore.compute.jobs.complete`.
    BudgetError
        Not even one line fits. ``needed`` is a sufficient budget.

    Notes
    -----
    Memory: two blocks of whole lines and two of their results, within the budget. The array is read
    once and the result written once; if lines along `axis` would be short runs on disk, each of the
    two may be copied once more, in long runs. Collective with ``comm=``: ranks share the blocks of
    lines.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.array([[3, 1, 2], [6, 5, 4]]))
    >>> outcore.apply_along_axis(np.sort, 1, a)[...]
    array([[1, 2, 3],
           [4, 5, 6]])
    >>> outcore.apply_along_axis(np.ptp, 0, a)[...]
    array([3, 4, 2])
    """
    how = {name: kwargs.pop(name) for name in _OURS if name in kwargs}
    with open_inputs(arr) as (a,):
        number = find_axis("apply_along_axis", axis, a.ndim)
        if 0 in (*a.shape[:number], *a.shape[number + 1 :]):
            raise UsageError(
                f"apply_along_axis: an array of shape {a.shape} has no line along axis {number}; "
                "pass an array with at least one",
                code="bad-function",
            )
        begin = tuple(slice(None) if d == number else 0 for d in range(a.ndim))
        line = np.asarray(a[begin]).astype(a.dtype.newbyteorder("="), copy=False)
        first = np.asanyarray(func1d(line, *args, **kwargs))
        shape = (*a.shape[:number], *first.shape, *a.shape[number + 1 :])

        def kernel(blocks: Sequence[NDArray[Any]]) -> None:
            source, output = blocks
            lines, places = np.moveaxis(source, number, -1), output
            for _ in range(first.ndim):
                places = np.moveaxis(places, number, -1)
            for place in np.ndindex(lines.shape[:-1]):
                found = np.asanyarray(func1d(lines[place], *args, **kwargs))
                if found.shape != first.shape:
                    raise UsageError(
                        f"apply_along_axis: the function returned shape {found.shape} for one "
                        f"line and {first.shape} for the first; return the same shape for all "
                        "lines",
                        code="bad-function",
                    )
                places[place] = found

        name = getattr(func1d, "__qualname__", type(func1d).__qualname__)
        said = {"function": name, "axis": number, "args": args, "kwargs": kwargs}
        plan = plan_lines(
            "apply_along_axis", a.shape, number, (a.dtype, first.dtype), first.shape, kernel
        )
        result = Result(shape, first.dtype, {}, a.path)
        operation = Operation("apply_along_axis", (a,), (result,), plan, said, repeatable=False)
        return complete(operation, out, how)
