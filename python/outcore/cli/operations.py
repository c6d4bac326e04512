"""
The operations of ``outcore run``: which paths and options each takes.

Idea. An operation of the command line is a function of `outcore` whose inputs and results are paths.
What it takes beside them is in one table; what all of them take is said once, in `outcore.cli.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open as open_array
from outcore.cli.words import parse_lengths
from outcore.errors import UsageError

__all__ = ["OPERATIONS", "Operation", "Option", "weights"]


@dataclass(frozen=True)
class Option:
    """
    An option of an operation.

    Parameters
    ----------
    read
        Its value, from text. None: it takes no text, and is true where it is given.
    help
        What it is.
    default
        If it is not given.
    choices
        What it may be.
    required
        There is no call without it.
    is_array
        Its text is the path of an array, which is open while the operation runs.
    """

    read: Callable[[str], Any] | None
    help: str
    default: Any = None
    choices: Sequence[str] | None = None
    required: bool = False
    is_array: bool = False


@dataclass(frozen=True)
class Operation:
    """
    An operation.

    Parameters
    ----------
    text
        What it does.
    inputs, results
        Names of the paths that it reads and makes. Where there are no results, it prints numbers, unless
        it is told where they are to go.
    options
        Beside them.
    out
        Where there are no results: whether what it prints can be written to a file instead.
    names
        Of what it prints, if that is more than one thing.
    required
        Options of the new file that there is no call without.
    call
        From the options, and the axes of the first input, to the arguments of the function; None:
        they are its keywords.
    function
        From the options to the name of the function; None: it is that of the operation.
    positional
        From the inputs and the options to the arguments without a keyword. Options that are in them are
        taken out of the others.
    is_array
        Where there are no results: whether, of these inputs, there is an array to write, so that it has
        to be told where it goes.
    """

    text: str
    inputs: tuple[str, ...] = ("source",)
    results: tuple[str, ...] = ("target",)
    options: Mapping[str, Option] = field(default_factory=dict)
    out: bool = True
    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    call: Callable[[dict[str, Any], int], dict[str, Any]] | None = None
    function: Callable[[dict[str, Any]], str | None] = lambda words: None
    positional: Callable[[Sequence[Any], dict[str, Any]], Sequence[Any]] = lambda inputs, words: (
        inputs
    )
    is_array: Callable[[Sequence[DiskArray]], bool] = lambda inputs: False


def _integers(text: str) -> Any:
    return parse_lengths(text, "axes")


def _numbers(text: str) -> Any:
    found = tuple(float(part) for part in text.split(","))
    return found[0] if len(found) == 1 else found


def _three_axes(text: str) -> list[Any]:
    """Axes of both operands and of the result of a product, between colons."""
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError("three times axes between colons, such as 0,1:1,0:0,1")
    return [_integers(part) for part in parts]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _lu_solve(inputs: Sequence[Any], words: dict[str, Any]) -> Sequence[Any]:
    lu, piv, sides = inputs
    return (lu, piv), sides


def _cho_solve(inputs: Sequence[Any], words: dict[str, Any]) -> Sequence[Any]:
    factor, sides = inputs
    return (factor, not words.pop("upper", False)), sides


def _whole(text: str) -> int | None:
    """An axis, or none: all elements as one line."""
    return None if text == "none" else int(text)


def _order(text: str) -> float | str:
    """Of a norm: a number (``inf`` is one), or its name."""
    try:
        return float(text)
    except ValueError:
        return text


def _dtype(text: str) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except TypeError as error:
        raise ValueError(error) from None


def _array(path: str) -> Any:
    with open_array(path) as array:
        return array[...]


_AXIS = {"axis": Option(_integers, "axis, or axes such as 0,1; all of them if not given")}
_KEEPDIMS = {"keepdims": Option(None, "reduced axes stay, with length 1")}
_DTYPE = {"dtype": Option(_dtype, "in which it is computed, such as f8")}
_ONE_AXIS = {"axis": Option(int, "axis (default: the last one)", -1)}
_SORTED = {
    "axis": Option(_whole, "axis, or none: all elements as one line (default: the last axis)", -1)
}
_RUNNING = {"axis": _SORTED["axis"], **_DTYPE}
_DDOF = {"ddof": Option(float, "delta degrees of freedom")}
_NORM = {
    "norm": Option(str, "how it is scaled", None, ("backward", "ortho", "forward")),
}
_LINE = {"n": Option(int, "length of the transformed axis"), **_ONE_AXIS, **_NORM}
_AXES = {
    "axes": Option(_integers, "axes that are transformed, such as 0,1"),
    "s": Option(_integers, "points along each of them, such as 512,512"),
    **_NORM,
}
_MODE = {
    "mode": Option(
        str,
        "what lies beyond the ends",
        "reflect",
        ("reflect", "constant", "nearest", "mirror", "wrap"),
    ),
    "cval": Option(float, "the element beyond the ends with --mode constant", 0.0),
    "axes": Option(_integers, "axes that are filtered, such as 0,1; all of them if not given"),
    "output": Option(_dtype, "dtype of the result, such as f4; that of the source if not given"),
}
_COUNTED = {
    "weights": Option(str, "file with what each element counts; 1 if not given", is_array=True)
}
_SIZE = {"size": Option(_integers, "of the window: 3, or 3,5", 3), **_MODE}
_WEIGHTS = {
    "weights": Option(_array, "file with the weights of the window, such as w.npy", required=True),
    **_MODE,
}


def _stencil(words: dict[str, Any], ndim: int) -> dict[str, Any]:
    """A stencil by the name of its weights; a median has none, and is a filter."""
    kernel, size = words.pop("kernel"), words.pop("size", None)
    if kernel == "median":
        return _median(words, 3 if size is None else size)
    if size is not None:
        raise UsageError(
            f"--size {size}: the kernel {kernel} has three elements along each axis; --size is for "
            "--kernel median",
            code="bad-option",
        )
    return {"weights": weights(kernel, ndim), **words}


def _median(words: dict[str, Any], size: Any) -> dict[str, Any]:
    """Of the words of a stencil those of `outcore.median_filter`."""
    if words["steps"] != 1 or "until" in words:
        raise UsageError(
            "--kernel median is made once: leave out --steps and --until", code="bad-option"
        )
    if words["boundary"] == "untouched":
        raise UsageError(
            "--boundary untouched: not with --kernel median; reflect, constant, nearest, mirror or wrap",
            code="bad-option",
        )
    return {"size": size, "mode": words["boundary"]}


def weights(kernel: str, ndim: int) -> Any:
    """
    Weights of a stencil of three elements along each axis.

    ``laplace``: the mean of the nearest neighbours (a step of Jacobi's method); ``box``: the mean of
    all; ``gauss``: binomial weights.
    """
    if kernel == "laplace":
        found = np.zeros((3,) * ndim)
        for axis in range(ndim):
            for end in (0, 2):
                at = [1] * ndim
                at[axis] = end
                found[tuple(at)] = 1 / (2 * ndim)
        return found
    line = np.array([1.0, 1, 1] if kernel == "box" else [1.0, 2, 1])
    found = np.ones((1,) * ndim)
    for axis in range(ndim):
        found = found * line.reshape([3 if d == axis else 1 for d in range(ndim)])
    return found / found.sum()


def _statistic(text: str, **options: Option) -> Operation:
    return Operation(text, results=(), options={**_AXIS, **_KEEPDIMS, **options})


def _histogram(words: dict[str, Any], ndim: int) -> dict[str, Any]:
    """Two numbers are a range."""
    found = words.get("range")
    if found is not None and (not isinstance(found, tuple) or len(found) != 2):
        raise UsageError(f"--range {found!r}: two numbers with a comma", code="bad-option")
    return words


#: By name.
OPERATIONS: dict[str, Operation] = {
    "transpose": Operation(
        "permute the axes", options={"axes": Option(_integers, "axes, such as 1,0")}
    ),
    "rechunk": Operation("copy into other chunks (--chunks)", required=("chunks",)),
    "stencil": Operation(
        "replace elements by weighted sums of their neighbours, or by their median",
        options={
            "kernel": Option(
                str,
                "weights by name, or the median",
                "laplace",
                ("laplace", "box", "gauss", "median"),
            ),
            "size": Option(_integers, "of the window of --kernel median: 3 if not given, or 3,5"),
            "steps": Option(int, "how often", 1),
            "until": Option(float, "stop when no element changes by more"),
            "boundary": Option(
                str,
                "what lies beyond the ends",
                "reflect",
                ("reflect", "constant", "nearest", "mirror", "wrap", "untouched"),
            ),
        },
        call=_stencil,
        function=lambda words: "median_filter" if words["kernel"] == "median" else None,
    ),
    "correlate": Operation("weighted sums of a window (--weights)", options=_WEIGHTS),
    "convolve": Operation(
        "weighted sums of a window, with the weights turned round (--weights)", options=_WEIGHTS
    ),
    "median_filter": Operation("the median of a window", options=_SIZE),
    "percentile_filter": Operation(
        "a percentile of a window",
        options={"percentile": Option(float, "such as 90", 50.0), **_SIZE},
    ),
    "rank_filter": Operation(
        "the element of a rank in a window",
        options={"rank": Option(int, "0: the least; -1: the largest", 0), **_SIZE},
    ),
    "minimum_filter": Operation("the least of a window", options=_SIZE),
    "maximum_filter": Operation("the largest of a window", options=_SIZE),
    "uniform_filter": Operation("the mean of a window", options=_SIZE),
    "gaussian_filter": Operation(
        "a Gaussian filter",
        options={
            "sigma": Option(_numbers, "standard deviation, or one for each axis", 1.0),
            "truncate": Option(float, "the filter ends after so many standard deviations", 4.0),
            **_MODE,
        },
    ),
    "matmul": Operation(
        "the matrix product",
        inputs=("a", "b"),
        options={
            "axes": Option(
                _three_axes,
                "axes of the matrices of a, of b and of the result, such as 1,0:0,1:0,1 for the "
                "transpose of a times b; the last ones if not given",
            )
        },
    ),
    "tensordot": Operation(
        "a product over several axes",
        inputs=("a", "b"),
        options={"axes": Option(_integers, "how many axes to sum over", 2)},
    ),
    "dot": Operation(
        "inner product of two vectors; of other arrays (--out), as NumPy's dot has it",
        inputs=("a", "b"),
        results=(),
        is_array=lambda inputs: any(one.ndim != 1 for one in inputs),
    ),
    "inner": Operation("sums of products along the last axes", inputs=("a", "b")),
    "outer": Operation("products of all pairs of elements", inputs=("a", "b")),
    "fft": Operation("Fourier transform along an axis", options=_LINE),
    "ifft": Operation("inverse of fft", options=_LINE),
    "rfft": Operation("Fourier transform of real elements", options=_LINE),
    "irfft": Operation("inverse of rfft", options=_LINE),
    "hfft": Operation(
        "Fourier transform of a Hermitian signal, of which half is there", options=_LINE
    ),
    "ihfft": Operation("inverse of hfft", options=_LINE),
    "fft2": Operation("Fourier transform along two axes", options=_AXES),
    "ifft2": Operation("inverse of fft2", options=_AXES),
    "fftn": Operation("Fourier transform along several axes", options=_AXES),
    "ifftn": Operation("inverse of fftn", options=_AXES),
    "rfft2": Operation("Fourier transform of real elements along two axes", options=_AXES),
    "irfft2": Operation("inverse of rfft2", options=_AXES),
    "rfftn": Operation("Fourier transform of real elements along several axes", options=_AXES),
    "irfftn": Operation("inverse of rfftn", options=_AXES),
    "cholesky": Operation("the Cholesky factor of a positive definite matrix"),
    "lu": Operation("LU factors, and the permutation", results=("p", "l", "u")),
    "lu_factor": Operation("LU factors in one matrix, and the pivots", results=("lu", "piv")),
    "solve": Operation("solve linear equations", inputs=("a", "b"), results=("x",)),
    "lu_solve": Operation(
        "solve linear equations with what lu_factor has made",
        inputs=("lu", "piv", "b"),
        results=("x",),
        options={
            "trans": Option(int, "0: a x = b; 1: with a transposed; 2: and conjugate", 0),
        },
        positional=_lu_solve,
    ),
    "cho_solve": Operation(
        "solve linear equations with what cholesky has made",
        inputs=("c", "b"),
        results=("x",),
        options={"upper": Option(None, "the factor is the upper triangle, not the lower one")},
        positional=_cho_solve,
    ),
    "qr": Operation("QR factors of a tall matrix", results=("q", "r")),
    "svd": Operation("singular values and vectors of a tall matrix", results=("u", "s", "vh")),
    "sort": Operation("sort along an axis", options=_SORTED),
    "argsort": Operation("indices that would sort", options=_SORTED),
    "unique": Operation(
        "the different elements, or sub-arrays, in ascending order",
        options={
            "axis": Option(int, "axis of sub-arrays, such as 0 for rows; elements if not given")
        },
    ),
    "searchsorted": Operation(
        "where values would have to be put into a sorted array",
        inputs=("a", "v"),
        results=("places",),
        options={
            "side": Option(str, "of equal elements", "left", ("left", "right")),
            "sorter": Option(
                str, "file with indices that sort the array, which argsort makes", is_array=True
            ),
        },
    ),
    "lstsq": Operation(
        "the x for which |b - a x| is least",
        inputs=("a", "b"),
        results=(),
        names=("x", "residuals", "rank", "s"),
    ),
    "sum": _statistic("sum", **_DTYPE),
    "prod": _statistic("product", **_DTYPE),
    "mean": _statistic("mean", **_DTYPE),
    "var": _statistic("variance", **_DDOF, **_DTYPE),
    "std": _statistic("standard deviation", **_DDOF, **_DTYPE),
    "min": _statistic("least element"),
    "max": _statistic("largest element"),
    "ptp": _statistic("largest less least"),
    "any": _statistic("whether any element is not zero"),
    "all": _statistic("whether no element is zero"),
    "argmin": _statistic("index of the first least element"),
    "argmax": _statistic("index of the first largest element"),
    "nanvar": _statistic("variance, NaN left out", **_DDOF, **_DTYPE),
    "nansum": _statistic("sum, NaN left out", **_DTYPE),
    "nanprod": _statistic("product, NaN left out", **_DTYPE),
    "nanmean": _statistic("mean, NaN left out", **_DTYPE),
    "nanstd": _statistic("standard deviation, NaN left out", **_DDOF, **_DTYPE),
    "nanmin": _statistic("least element, NaN left out"),
    "nanmax": _statistic("largest element, NaN left out"),
    "median": _statistic("median"),
    "percentile": _statistic("percentile", q=Option(_numbers, "such as 50, or 10,90", 50.0)),
    "quantile": _statistic("quantile", q=Option(_numbers, "such as 0.5, or 0.1,0.9", 0.5)),
    "nanargmin": _statistic("index of the first least element, NaN left out"),
    "nanargmax": _statistic("index of the first largest element, NaN left out"),
    "nanmedian": _statistic("median, NaN left out"),
    "nanpercentile": _statistic(
        "percentile, NaN left out", q=Option(_numbers, "such as 50, or 10,90", 50.0)
    ),
    "nanquantile": _statistic(
        "quantile, NaN left out", q=Option(_numbers, "such as 0.5, or 0.1,0.9", 0.5)
    ),
    "cumsum": Operation("running sum", options=_RUNNING),
    "cumprod": Operation("running product", options=_RUNNING),
    "nancumsum": Operation("running sum, NaN as zero", options=_RUNNING),
    "nancumprod": Operation("running product, NaN as one", options=_RUNNING),
    "count_nonzero": _statistic("how many elements are not zero"),
    "norm": Operation(
        "norm of a vector, or of a matrix",
        results=(),
        options={
            "ord": Option(
                _order,
                "which: a number, inf, -inf, fro or nuc; if not given the 2-norm of all elements",
            ),
            "axis": Option(_integers, "axis of vectors, or two of matrices"),
            **_KEEPDIMS,
        },
    ),
    "statistics": Operation(
        "several statistics in one pass",
        results=(),
        options={
            "what": Option(
                _names, "which, such as mean,std,min,max (the default), nanmean, argmax"
            ),
            **_AXIS,
            **_KEEPDIMS,
            **_DDOF,
        },
        out=False,
    ),
    "histogram": Operation(
        "how many elements lie in each interval",
        results=(),
        out=False,
        names=("counts", "edges"),
        options={
            "bins": Option(int, "how many intervals", 10),
            "range": Option(_numbers, "where the first begins and the last ends, such as 0,1"),
            "density": Option(
                None, "divide by the number of elements and the width of the interval"
            ),
            **_COUNTED,
        },
        call=_histogram,
    ),
    "bincount": Operation(
        "how often each whole number occurs",
        results=(),
        options={"minlength": Option(int, "the least number of counts"), **_COUNTED},
    ),
}
