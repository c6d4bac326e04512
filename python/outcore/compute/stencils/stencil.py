"""
Stencils: new elements from old ones around them, any number of steps.

Problem. Each step of a relaxation, or of a wave, reads and writes the array once; a hundred steps
move it two hundred times, while the processor waits.
Idea. Many steps in one pass (time skewing): slabs of hyper-rows come in order, each level lags
behind the one before, and of each level only the rows that the next one still needs are kept
(`_core.StencilPass`, or `FunctionPass` for functions). If all steps do not fit, there are several
passes with arrays on disk between them. If not even a few hyper-rows fit, the second axis is cut
too: then borders of these panels are read again, and computed again.

Invariants. The result has the bits of one step after the other, whatever the budget. In a pass no
hyper-row is read twice, and no element of a level computed twice, unless there are panels.

References: Wonnacott, "Using time skewing to eliminate idle time due to memory bandwidth and
network limitations", IPDPS 2000; PASSION, section 4.2 (reuse of borders between slabs), and the
Laplace solver of its Table 3.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from outcore.arrays.disk import DiskArray
from outcore.compute.jobs import Operation, Result, Source, collective, complete, opened
from outcore.compute.stencils.plan import Taps, Task, planning
from outcore.errors import UsageError
from outcore.formats.spec import as_dtype

__all__ = ["stencil"]

#: SciPy's words, and ours for elements that have to stay.
_BOUNDARIES = ("constant", "mirror", "nearest", "reflect", "untouched", "wrap")
_ALIASES = {"grid-constant": "constant", "grid-mirror": "reflect", "grid-wrap": "wrap"}


@collective
def stencil(
    a: Source,
    weights: ArrayLike | Callable[[NDArray[Any]], ArrayLike],
    *,
    steps: SupportsIndex = 1,
    boundary: str | Sequence[str] = "reflect",
    cval: complex = 0.0,
    until: float | None = None,
    halo: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    callback: Callable[[int, float], object] | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by a function of it and its neighbours, `steps` times.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, with at least one axis, of numbers.
    weights
        Weights of the neighbours, with as many axes as `a`: new element `i` is the sum over `j` of
        ``weights[j] * a[i + j - shape // 2]``, as in `scipy.ndimage.correlate`. Or a function from
        a block with its halo to new elements, an array of the block's shape or of that without the
        halo; it may look no further than the halo, and has to make the same of an element in any
        block.
    steps
        How often; each step has the elements of the one before.
    boundary
        What is taken for elements beyond the ends of an axis, one for all axes or one for each:
        ``"reflect"``, ``"constant"`` (`cval`), ``"nearest"``, ``"mirror"``, ``"wrap"``, all as
        SciPy's modes; ``"untouched"``: elements whose neighbours would lie there keep their values.
    cval
        The number of ``"constant"``.
    until
        Stop after the first step in which no element changes by more than this.
    halo
        How far a function looks along each axis; one number for all.
    dtype
        Of the result and of all steps. Of weights by default that of `a` if it is float32, float64
        or complex, float32 of float16, float64 of integers, and complex if the weights are; of
        functions that of `a`.
    callback
        Called as ``callback(step, change)`` with the largest change of an element, for each step,
        if there is `until`; several steps at once, when a pass has made them.
    out
        Where the result goes: a path, an open array, or a NumPy array. By default a temporary array
        on disk, which goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of the new array;
        see `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Of the shape of `a`, open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-stencil``: weights, halo, steps or boundaries that do not fit `a`; ``bad-function``:
        what the function made does not fit; or `out` does not fit, or is `a`.
    BudgetError
        Not even one column of a few hyper-rows fits; ``needed`` says what would do.
    StorageError
        The system said no. What was done stays if `out` is a path: call again with ``resume=True``.

    Notes
    -----
    Products are added in the order of the weights, each rounded in the dtype of the
    result; weights of 0 are left out. The bits of the result depend neither on the budget nor on
    the number of processors.

    Memory: as much as there is; of each step of a pass ``2 * radius`` hyper-rows along the slowest
    axis of the file (twice as many where that axis wraps). All steps that fit are made in one pass,
    which reads the array once and writes it once. With `until`, the pass in which the change was
    small enough is repeated with fewer steps. What a function allocates is its own. Collective
    with ``comm=``: ranks share the panels, and compute what is around them again; `callback` is called
    on each of them.

    Wonnacott, "Using time skewing to eliminate idle time", IPDPS 2000.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = np.zeros((4, 5))
    >>> a[0] = 1.0
    >>> laplace = [[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]]
    >>> b = outcore.stencil(a, laplace, steps=2, boundary="untouched")
    >>> b[1]
    array([0.    , 0.3125, 0.375 , 0.3125, 0.    ])
    """
    with opened(a) as (source,):
        task = _task(source, weights, steps, boundary, cval, until, halo, dtype, callback)
        kept = {name: getattr(source, name, None) for name in ("chunks", "dims")}
        attrs = dict(getattr(source, "attrs", ())) or None
        order = "F" if source.order == "F" else None
        kept |= {"attrs": attrs, "order": order}
        result = Result(source.shape, task.dtype, kept, source.path)
        arguments = {
            "weights": task.told if callable(weights) else np.asarray(weights).tolist(),
            "steps": task.steps,
            "boundary": task.boundary,
            "cval": cval,
            "until": until,
            "dtype": task.dtype,
        }
        operation = Operation(
            "stencil",
            (source,),
            (result,),
            planning(task),
            arguments,
            repeatable=not callable(weights) and callback is None,
        )
        return complete(operation, out, how)  # type: ignore[no-any-return]


def _task(
    source: Any,
    weights: Any,
    steps: SupportsIndex,
    boundary: str | Sequence[str],
    cval: complex,
    until: float | None,
    halo: int | Sequence[int] | None,
    dtype: DTypeLike | None,
    callback: Callable[[int, float], object] | None,
) -> Task:
    ndim = source.ndim
    if ndim == 0:
        raise _bad("an array without axes has no neighbours")
    if source.dtype.kind not in "biufc":
        raise _bad(f"elements of dtype {source.dtype} are no numbers")
    count = _index(steps, "steps")
    if count < 0:
        raise _bad(f"steps={count} is negative")
    if until is not None and not until >= 0:
        raise _bad(f"until={until!r} is no change that is small enough; give a number from 0 on")
    boundaries = _boundaries(boundary, ndim)
    if callable(weights):
        if halo is None:
            raise _bad("a function needs halo=, the number of neighbours that it looks at")
        radius = _halo(halo, ndim)
        kind = source.dtype if dtype is None else as_dtype(dtype, "the result")
        name = f"{getattr(weights, '__module__', '')}.{getattr(weights, '__qualname__', weights)}"
        return Task(
            source.shape,
            source.dtype,
            kind.newbyteorder("="),
            boundaries,
            kind.type(cval),
            count,
            until,
            callback,
            function=weights,
            halo=radius,
            told=f"{name} with halo {radius}",
        )
    if halo is not None:
        raise _bad("halo= is for functions; weights say themselves how far they reach")
    taps = _taps(weights, ndim)
    kind = _dtype(source.dtype, taps, dtype)
    return Task(
        source.shape,
        source.dtype,
        kind,
        boundaries,
        cval,
        count,
        until,
        callback,
        taps=taps,
    )


def _bad(why: str) -> UsageError:
    return UsageError(f"stencil: {why}", code="bad-stencil")


def _index(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise _bad(f"{what}={value!r} is no integer") from None


def _boundaries(boundary: str | Sequence[str], ndim: int) -> tuple[str, ...]:
    each = (boundary,) * ndim if isinstance(boundary, str) else tuple(boundary)
    words = tuple(_ALIASES.get(word, word) for word in each)
    if len(words) != ndim or not all(word in _BOUNDARIES for word in words):
        raise _bad(
            f"boundary={boundary!r} for {ndim} axes; give one of {', '.join(_BOUNDARIES)}, or one for "
            "each axis"
        )
    return words


def _halo(halo: Any, ndim: int) -> tuple[int, ...]:
    each = (halo,) * ndim if isinstance(halo, SupportsIndex) else tuple(halo)
    numbers = tuple(_index(n, "halo") for n in each)
    if len(numbers) != ndim or min(numbers) < 0:
        raise _bad(f"halo={halo!r} for {ndim} axes; give a number from 0 on, or one for each axis")
    return numbers


def _taps(weights: Any, ndim: int) -> Taps:
    found = np.asarray(weights)
    if found.dtype.kind not in "biufc" or found.ndim != ndim or not found.size:
        raise _bad(
            f"weights of shape {found.shape} and dtype {found.dtype} for an array with {ndim} axes; "
            "give numbers, with as many axes"
        )
    centre = [n // 2 for n in found.shape]
    return tuple(
        (
            tuple(int(n - c) for n, c in zip(index, centre, strict=True)),
            complex(found[tuple(index)]),
        )
        for index in np.argwhere(found)
    )


def _dtype(source: np.dtype[Any], taps: Taps, wanted: DTypeLike | None) -> np.dtype[Any]:
    """Of the result of a sum."""
    is_complex = any(weight.imag for _, weight in taps)
    if wanted is not None:
        kind = as_dtype(wanted, "the result").newbyteorder("=")
        if kind.char not in "fdFD" or (kind.kind != "c" and (is_complex or source.kind == "c")):
            raise _bad(
                f"dtype={kind} for weighted sums of {source}; give float32, float64, complex64 or "
                "complex128, complex if the elements or the weights are"
            )
        return kind
    kinds = {
        "e": np.float32,
        "f": np.float32,
        "d": np.float64,
        "F": np.complex64,
        "D": np.complex128,
    }
    if source.kind in "biu":
        kind = np.dtype(np.float64)
    elif source.char in kinds:
        kind = np.dtype(kinds[source.char])
    else:
        raise _bad(f"no sums of {source}; say dtype=, such as 'f8'")
    return np.result_type(kind, np.complex64) if is_complex else kind
