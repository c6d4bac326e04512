"""
Stencils: new elements from old ones around them, for any number of steps.

Problem. Each step of a relaxation, or of a wave, reads and writes the array once. A hundred steps move
it two hundred times, while the processor waits.
Idea. One pass makes many steps (time skewing): slabs of hyper-rows are processed in order, each level
lags behind the one before, and each level keeps only the rows that the next one still needs
(`_core.StencilPass`, or `FunctionPass` for functions). If all steps do not fit, there are several
passes with arrays on disk between them. If not even a few hyper-rows fit, the second axis is cut too;
then borders of these panels are read and computed again.

Invariants. The result has the bits of one step after the other, for every budget. In a pass no
hyper-row is read twice, and no element of a level is computed twice, unless there are panels.

References: Wonnacott, "Using time skewing to eliminate idle time due to memory bandwidth and network
limitations", IPDPS 2000; PASSION, section 4.2 (reuse of borders between slabs), and the Laplace solver
of its Table 3.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from outcore.arrays.disk import DiskArray
from outcore.compute.jobs import Operation, Result, Source, collective, complete, open_inputs
from outcore.compute.stencils.plan import StencilTask, Taps, plan_stencil
from outcore.compute.stencils.windows import ALIASES
from outcore.errors import UsageError
from outcore.formats.spec import as_dtype

__all__ = ["stencil"]

#: Modes of SciPy, and "untouched" for elements that keep their values.
_BOUNDARIES = ("constant", "mirror", "nearest", "reflect", "untouched", "wrap")


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
        Array of numbers, with at least one axis.
    weights
        Weights of the neighbours, with as many axes as `a`: new element `i` is the sum over `j` of
        ``weights[j] * a[i + j - shape // 2]``, as in `scipy.ndimage.correlate`. Or a function from a
        block with its halo to new elements: an array of the block's shape, or of that without the halo.
        The function may depend only on elements within the halo, and must compute the same value for an
        element in any block.
    steps
        Number of steps; each step starts from the elements of the one before.
    boundary
        Elements beyond the ends of an axis, one mode for all axes or one for each: ``"reflect"``,
        ``"constant"`` (`cval`), ``"nearest"``, ``"mirror"``, ``"wrap"``, as in SciPy; ``"untouched"``:
        elements with neighbours beyond the ends keep their values.
    cval
        Number of ``"constant"``.
    until
        Stop after the first step in which no element changes by more than this.
    halo
        Number of neighbours that a function needs along each axis; one number for all axes.
    dtype
        Dtype of the result and of all steps. Default for weights: that of `a` if it is float32, float64
        or complex, float32 for float16, float64 for integers, and complex if the weights are. Default
        for functions: that of `a`.
    callback
        Function called as ``callback(step, change)`` with the largest change of an element, for each
        step, if `until` is given. It is called for several steps together after a pass has made them.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-stencil``: weights, halo, steps or boundaries do not fit `a`. ``bad-function``: the result
        of the function does not fit. Also if `out` does not fit, or is `a`.
    BudgetError
        One column of a few hyper-rows does not fit; ``needed`` is a sufficient budget.
    StorageError
        An operating system call failed. Completed steps are kept if `out` is a path: call again with
        ``resume=True``.

    Notes
    -----
    Products are added in the order of the weights, each rounded in the dtype of the result; weights of
    0 are skipped. The bits of the result depend neither on the budget nor on the number of processors.

    Memory: each step of a pass needs ``2 * radius`` hyper-rows along the slowest axis of the file
    (twice as many if that axis wraps). All steps that fit are made in one pass, which reads the array
    once and writes it once. With `until`, the pass in which the change became small enough is repeated
    with fewer steps. Memory that a function allocates is not counted. Collective with ``comm=``: ranks
    share the panels, and compute their surroundings again; `callback` is called on each of them.

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
    with open_inputs(a) as (source,):
        task = _task(source, weights, steps, boundary, cval, until, halo, dtype, callback)
        arguments = {
            "weights": task.record if callable(weights) else np.asarray(weights).tolist(),
            "steps": task.steps,
            "boundary": task.boundary,
            "cval": cval,
            "until": until,
            "dtype": task.dtype,
        }
        operation = Operation(
            "stencil",
            (source,),
            (Result.like(source, task.dtype, attrs=True),),
            plan_stencil(task),
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
) -> StencilTask:
    ndim = source.ndim
    if ndim == 0:
        raise _bad("the array has no axes; pass one with at least one axis")
    if source.dtype.kind not in "biufc":
        raise _bad(
            f"elements of dtype {source.dtype} are not numbers; convert the array (outcore.convert)"
        )
    count = _index(steps, "steps")
    if count < 0:
        raise _bad(f"steps={count} is negative; pass 0 or more")
    if until is not None and not until >= 0:
        raise _bad(f"until={until!r} is not a change; pass a number of at least 0")
    boundaries = _boundaries(boundary, ndim)
    if callable(weights):
        if halo is None:
            raise _bad("a function needs halo=; pass the number of neighbours that it uses")
        radius = _halo(halo, ndim)
        kind = source.dtype if dtype is None else as_dtype(dtype, "the result")
        kind, cval = kind.newbyteorder("="), kind.type(cval)
        name = f"{getattr(weights, '__module__', '')}.{getattr(weights, '__qualname__', weights)}"
        record = f"{name} with halo {radius}"
        more: dict[str, Any] = {"function": weights, "halo": radius, "record": record}
    elif halo is not None:
        raise _bad(
            "halo= is only for functions, since weights determine how far they reach; omit it"
        )
    else:
        taps = _taps(weights, ndim)
        kind, more = _dtype(source.dtype, taps, dtype), {"taps": taps}
    return StencilTask(
        source.shape, source.dtype, kind, boundaries, cval, count, until, callback, **more
    )


def _bad(why: str) -> UsageError:
    return UsageError(f"stencil: {why}", code="bad-stencil")


def _index(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise _bad(f"{what}={value!r} is not an integer; pass one") from None


def _boundaries(boundary: str | Sequence[str], ndim: int) -> tuple[str, ...]:
    each = (boundary,) * ndim if isinstance(boundary, str) else tuple(boundary)
    words = tuple(ALIASES.get(word, word) for word in each)
    if len(words) != ndim or not all(word in _BOUNDARIES for word in words):
        raise _bad(
            f"boundary={boundary!r} does not fit {ndim} axes; pass one of {', '.join(_BOUNDARIES)}, "
            "or one for each axis"
        )
    return words


def _halo(halo: Any, ndim: int) -> tuple[int, ...]:
    each = (halo,) * ndim if isinstance(halo, SupportsIndex) else tuple(halo)
    numbers = tuple(_index(n, "halo") for n in each)
    if len(numbers) != ndim or min(numbers) < 0:
        raise _bad(
            f"halo={halo!r} does not fit {ndim} axes; pass a number of at least 0, or one "
            "for each axis"
        )
    return numbers


def _taps(weights: Any, ndim: int) -> Taps:
    found = np.asarray(weights)
    if found.dtype.kind not in "biufc" or found.ndim != ndim or not found.size:
        raise _bad(
            f"weights of shape {found.shape} and dtype {found.dtype} do not fit an array with "
            f"{ndim} axes; pass numbers with as many axes"
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
    """Return the dtype of the result of a sum."""
    is_complex = any(weight.imag for _, weight in taps)
    if wanted is not None:
        kind = as_dtype(wanted, "the result").newbyteorder("=")
        if kind.char not in "fdFD" or (kind.kind != "c" and (is_complex or source.kind == "c")):
            raise _bad(
                f"dtype={kind} does not fit weighted sums of {source}; pass float32, float64, "
                "complex64 or complex128, complex if the elements or the weights are"
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
        raise _bad(f"weighted sums of {source} have no default dtype; pass dtype=, such as 'f8'")
    return np.result_type(kind, np.complex64) if is_complex else kind
