"""
Define the operations of ``outcore run``, with the paths and options of each.

Approach: an operation is a function of `outcore` whose inputs and results are paths. One table holds its
other options; the options that all operations share are in `outcore.cli.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open as open_array
from outcore.cli.parsing import parse_lengths
from outcore.errors import UsageError

__all__ = ["OPERATIONS", "RunOperation", "RunOption", "make_weights"]


@dataclass(frozen=True)
class RunOption:
    """
    Option of an operation.

    `read` converts its text; None for a flag, which is true if given. `is_array`: the text is the path
    of an array, which is open while the operation runs.
    """

    read: Callable[[str], Any] | None
    help: str
    default: Any = None
    choices: Sequence[str] | None = None
    required: bool = False
    is_array: bool = False


@dataclass(frozen=True)
class RunOperation:
    """
    Operation of the command line; without `results` it prints numbers, unless the user gives a path for
    them.

    `inputs` and `results` name its paths, and `names` the printed values, if there are several. `out`:
    an operation without results accepts ``--out``. `required` lists the options of the new file that are
    required.

    `call` converts the options and the number of axes of the first input to keyword arguments.
    `function` returns the name of the function for the options, or None for the name of the operation.
    `positional` returns the positional arguments, and removes the options it uses. `is_array` returns
    whether an operation without results yields an array for these inputs, so that ``--out`` is required.
    """

    text: str
    inputs: tuple[str, ...] = ("source",)
    results: tuple[str, ...] = ("target",)
    options: Mapping[str, RunOption] = field(default_factory=dict)
    out: bool = True
    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    call: Callable[[dict[str, Any], int], dict[str, Any]] | None = None
    function: Callable[[dict[str, Any]], str | None] = lambda options: None
    positional: Callable[[Sequence[Any], dict[str, Any]], Sequence[Any]] = lambda inputs, options: (
        inputs
    )
    is_array: Callable[[Sequence[DiskArray]], bool] = lambda inputs: False


def _parse_integers(text: str) -> Any:
    return parse_lengths(text, "axes")


def _parse_numbers(text: str) -> Any:
    found = tuple(float(part) for part in text.split(","))
    return found[0] if len(found) == 1 else found


def _parse_three_axes(text: str) -> list[Any]:
    """Parse three groups of axes separated by colons: both operands and the result of a product."""
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError("write three groups of axes between colons, such as 0,1:1,0:0,1")
    return [_parse_integers(part) for part in parts]


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _pair_lu(inputs: Sequence[Any], options: dict[str, Any]) -> Sequence[Any]:
    lu, piv, sides = inputs
    return (lu, piv), sides


def _pair_cholesky(inputs: Sequence[Any], options: dict[str, Any]) -> Sequence[Any]:
    factor, sides = inputs
    return (factor, not options.pop("upper", False)), sides


def _parse_axis(text: str) -> int | None:
    """Parse an axis, or ``none`` for all elements in one line."""
    return None if text == "none" else int(text)


def _parse_order(text: str) -> float | str:
    """Parse the order of a norm: a number (``inf`` included) or a name."""
    try:
        return float(text)
    except ValueError:
        return text


def _parse_dtype(text: str) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except TypeError as error:
        raise ValueError(error) from None


def _read_array(path: str) -> Any:
    with open_array(path) as array:
        return array[...]


_AXIS = {"axis": RunOption(_parse_integers, "axis, or axes such as 0,1 (default: all)")}
_KEEPDIMS = {"keepdims": RunOption(None, "keep reduced axes with length 1")}
_DTYPE = {"dtype": RunOption(_parse_dtype, "dtype of the computation, such as f8")}
_ONE_AXIS = {"axis": RunOption(int, "axis (default: the last one)", -1)}
_SORTED = {
    "axis": RunOption(
        _parse_axis, "axis, or none for all elements in one line (default: the last axis)", -1
    )
}
_RUNNING = {"axis": _SORTED["axis"], **_DTYPE}
_DDOF = {"ddof": RunOption(float, "delta degrees of freedom")}
_NORM = {
    "norm": RunOption(str, "scaling", None, ("backward", "ortho", "forward")),
}
_LINE = {"n": RunOption(int, "length of the transformed axis"), **_ONE_AXIS, **_NORM}
_AXES = {
    "axes": RunOption(_parse_integers, "axes to transform, such as 0,1"),
    "s": RunOption(_parse_integers, "number of points along each axis, such as 512,512"),
    **_NORM,
}
_MODE = {
    "mode": RunOption(
        str,
        "elements beyond the edges",
        "reflect",
        ("reflect", "constant", "nearest", "mirror", "wrap"),
    ),
    "cval": RunOption(float, "value beyond the edges with --mode constant", 0.0),
    "axes": RunOption(_parse_integers, "axes to filter, such as 0,1 (all if not given)"),
    "output": RunOption(
        _parse_dtype, "dtype of the result, such as f4 (the dtype of the source if not given)"
    ),
}
_COUNTED = {
    "weights": RunOption(
        str, "file with the weight of each element (1 if not given)", is_array=True
    )
}
_SIZE = {"size": RunOption(_parse_integers, "size of the window, such as 3 or 3,5", 3), **_MODE}
_WEIGHTS = {
    "weights": RunOption(
        _read_array, "file with the weights of the window, such as w.npy", required=True
    ),
    **_MODE,
}


def _convert_stencil(options: dict[str, Any], ndim: int) -> dict[str, Any]:
    """Convert the options of a stencil: a kernel to its weights, or a median to a filter."""
    kernel, size = options.pop("kernel"), options.pop("size", None)
    if kernel == "median":
        return _convert_median(options, 3 if size is None else size)
    if size is not None:
        raise UsageError(
            f"--size {size}: the kernel {kernel} has three elements along each axis; omit --size, or "
            "use --kernel median",
            code="bad-option",
        )
    return {"weights": make_weights(kernel, ndim), **options}


def _convert_median(options: dict[str, Any], size: Any) -> dict[str, Any]:
    """Convert the options of a stencil to those of `outcore.ndimage.median_filter`."""
    if options["steps"] != 1 or "until" in options:
        raise UsageError("--kernel median runs once; omit --steps and --until", code="bad-option")
    if options["boundary"] == "untouched":
        raise UsageError(
            "--boundary untouched is not possible with --kernel median; use reflect, constant, nearest, "
            "mirror or wrap",
            code="bad-option",
        )
    return {"size": size, "mode": options["boundary"]}


def make_weights(kernel: str, ndim: int) -> Any:
    """
    Return the weights of a stencil with three elements along each axis.

    ``laplace``: the mean of the nearest neighbours (one step of Jacobi's method); ``box``: the mean of
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


def _make_statistic(text: str, **options: RunOption) -> RunOperation:
    return RunOperation(text, results=(), options={**_AXIS, **_KEEPDIMS, **options})


def _check_histogram(options: dict[str, Any], ndim: int) -> dict[str, Any]:
    """Check that the range of a histogram has two numbers."""
    found = options.get("range")
    if found is not None and (not isinstance(found, tuple) or len(found) != 2):
        raise UsageError(
            f"--range {found!r}: write two numbers with a comma, such as 0,1", code="bad-option"
        )
    return options


#: Operations by name.
OPERATIONS: dict[str, RunOperation] = {
    "transpose": RunOperation(
        "permute the axes", options={"axes": RunOption(_parse_integers, "axes, such as 1,0")}
    ),
    "rechunk": RunOperation("copy an array with other chunks (--chunks)", required=("chunks",)),
    "stencil": RunOperation(
        "replace elements by weighted sums of their neighbours, or by their median",
        options={
            "kernel": RunOption(
                str,
                "name of the weights, or the median",
                "laplace",
                ("laplace", "box", "gauss", "median"),
            ),
            "size": RunOption(
                _parse_integers,
                "size of the window of --kernel median, such as 3,5 (3 if not given)",
            ),
            "steps": RunOption(int, "number of steps", 1),
            "until": RunOption(float, "stop when no element changes by more than this"),
            "boundary": RunOption(
                str,
                "elements beyond the edges",
                "reflect",
                ("reflect", "constant", "nearest", "mirror", "wrap", "untouched"),
            ),
        },
        call=_convert_stencil,
        function=lambda options: "median_filter" if options["kernel"] == "median" else None,
    ),
    "correlate": RunOperation("weighted sums of a window (--weights)", options=_WEIGHTS),
    "convolve": RunOperation(
        "weighted sums of a window, with the weights reversed (--weights)", options=_WEIGHTS
    ),
    "median_filter": RunOperation("the median of a window", options=_SIZE),
    "percentile_filter": RunOperation(
        "a percentile of a window",
        options={"percentile": RunOption(float, "such as 90", 50.0), **_SIZE},
    ),
    "rank_filter": RunOperation(
        "the element of a given rank in a window",
        options={"rank": RunOption(int, "0: the smallest element; -1: the largest", 0), **_SIZE},
    ),
    "minimum_filter": RunOperation("the smallest element of a window", options=_SIZE),
    "maximum_filter": RunOperation("the largest element of a window", options=_SIZE),
    "uniform_filter": RunOperation("the mean of a window", options=_SIZE),
    "gaussian_filter": RunOperation(
        "a Gaussian filter",
        options={
            "sigma": RunOption(_parse_numbers, "standard deviation, or one for each axis", 1.0),
            "truncate": RunOption(
                float, "truncate the filter at this many standard deviations", 4.0
            ),
            **_MODE,
        },
    ),
    "matmul": RunOperation(
        "the matrix product",
        inputs=("a", "b"),
        options={
            "axes": RunOption(
                _parse_three_axes,
                "matrix axes of a, b and the result, such as 1,0:0,1:0,1 for the transpose of a "
                "times b (the last two axes if not given)",
            )
        },
    ),
    "tensordot": RunOperation(
        "a product over several axes",
        inputs=("a", "b"),
        options={"axes": RunOption(_parse_integers, "number of axes to sum over", 2)},
    ),
    "dot": RunOperation(
        "inner product of two vectors; for other arrays (--out), as NumPy's dot",
        inputs=("a", "b"),
        results=(),
        is_array=lambda inputs: any(one.ndim != 1 for one in inputs),
    ),
    "inner": RunOperation("sums of products along the last axes", inputs=("a", "b")),
    "outer": RunOperation("products of all pairs of elements", inputs=("a", "b")),
    "fft": RunOperation("Fourier transform along an axis", options=_LINE),
    "ifft": RunOperation("inverse of fft", options=_LINE),
    "rfft": RunOperation("Fourier transform of real elements", options=_LINE),
    "irfft": RunOperation("inverse of rfft", options=_LINE),
    "hfft": RunOperation(
        "Fourier transform of a Hermitian signal, given by half of its elements", options=_LINE
    ),
    "ihfft": RunOperation("inverse of hfft", options=_LINE),
    "fft2": RunOperation("Fourier transform along two axes", options=_AXES),
    "ifft2": RunOperation("inverse of fft2", options=_AXES),
    "fftn": RunOperation("Fourier transform along several axes", options=_AXES),
    "ifftn": RunOperation("inverse of fftn", options=_AXES),
    "rfft2": RunOperation("Fourier transform of real elements along two axes", options=_AXES),
    "irfft2": RunOperation("inverse of rfft2", options=_AXES),
    "rfftn": RunOperation("Fourier transform of real elements along several axes", options=_AXES),
    "irfftn": RunOperation("inverse of rfftn", options=_AXES),
    "cholesky": RunOperation("the Cholesky factor of a positive definite matrix"),
    "lu": RunOperation("LU factors and the permutation", results=("p", "l", "u")),
    "lu_factor": RunOperation("LU factors in one matrix, and the pivots", results=("lu", "piv")),
    "solve": RunOperation("solve linear equations", inputs=("a", "b"), results=("x",)),
    "lu_solve": RunOperation(
        "solve linear equations with the factors from lu_factor",
        inputs=("lu", "piv", "b"),
        results=("x",),
        options={
            "trans": RunOption(
                int, "0: a x = b; 1: transpose of a; 2: conjugate transpose of a", 0
            ),
        },
        positional=_pair_lu,
    ),
    "cho_solve": RunOperation(
        "solve linear equations with the factor from cholesky",
        inputs=("c", "b"),
        results=("x",),
        options={"upper": RunOption(None, "the factor is an upper triangle, not a lower one")},
        positional=_pair_cholesky,
    ),
    "qr": RunOperation("QR factors of a tall matrix", results=("q", "r")),
    "svd": RunOperation("singular values and vectors of a tall matrix", results=("u", "s", "vh")),
    "sort": RunOperation("sort along an axis", options=_SORTED),
    "argsort": RunOperation("indices that would sort", options=_SORTED),
    "unique": RunOperation(
        "the distinct elements, or sub-arrays, in ascending order",
        options={
            "axis": RunOption(
                int, "axis of sub-arrays, such as 0 for rows (single elements if not given)"
            )
        },
    ),
    "searchsorted": RunOperation(
        "indices at which values would be inserted into a sorted array",
        inputs=("a", "v"),
        results=("places",),
        options={
            "side": RunOption(str, "side of equal elements", "left", ("left", "right")),
            "sorter": RunOption(
                str, "file with the indices that sort the array, from argsort", is_array=True
            ),
        },
    ),
    "lstsq": RunOperation(
        "least squares: the x that minimizes |b - a x|",
        inputs=("a", "b"),
        results=(),
        names=("x", "residuals", "rank", "s"),
    ),
    "sum": _make_statistic("sum", **_DTYPE),
    "prod": _make_statistic("product", **_DTYPE),
    "mean": _make_statistic("mean", **_DTYPE),
    "var": _make_statistic("variance", **_DDOF, **_DTYPE),
    "std": _make_statistic("standard deviation", **_DDOF, **_DTYPE),
    "min": _make_statistic("smallest element"),
    "max": _make_statistic("largest element"),
    "ptp": _make_statistic("difference of the largest and the smallest element"),
    "any": _make_statistic("whether any element is not zero"),
    "all": _make_statistic("whether no element is zero"),
    "argmin": _make_statistic("index of the first smallest element"),
    "argmax": _make_statistic("index of the first largest element"),
    "nanvar": _make_statistic("variance, ignoring NaN", **_DDOF, **_DTYPE),
    "nansum": _make_statistic("sum, ignoring NaN", **_DTYPE),
    "nanprod": _make_statistic("product, ignoring NaN", **_DTYPE),
    "nanmean": _make_statistic("mean, ignoring NaN", **_DTYPE),
    "nanstd": _make_statistic("standard deviation, ignoring NaN", **_DDOF, **_DTYPE),
    "nanmin": _make_statistic("smallest element, ignoring NaN"),
    "nanmax": _make_statistic("largest element, ignoring NaN"),
    "median": _make_statistic("median"),
    "percentile": _make_statistic(
        "percentile", q=RunOption(_parse_numbers, "such as 50, or 10,90", 50.0)
    ),
    "quantile": _make_statistic(
        "quantile", q=RunOption(_parse_numbers, "such as 0.5, or 0.1,0.9", 0.5)
    ),
    "nanargmin": _make_statistic("index of the first smallest element, ignoring NaN"),
    "nanargmax": _make_statistic("index of the first largest element, ignoring NaN"),
    "nanmedian": _make_statistic("median, ignoring NaN"),
    "nanpercentile": _make_statistic(
        "percentile, ignoring NaN", q=RunOption(_parse_numbers, "such as 50, or 10,90", 50.0)
    ),
    "nanquantile": _make_statistic(
        "quantile, ignoring NaN", q=RunOption(_parse_numbers, "such as 0.5, or 0.1,0.9", 0.5)
    ),
    "cumsum": RunOperation("running sum", options=_RUNNING),
    "cumprod": RunOperation("running product", options=_RUNNING),
    "nancumsum": RunOperation("running sum, NaN as zero", options=_RUNNING),
    "nancumprod": RunOperation("running product, NaN as one", options=_RUNNING),
    "count_nonzero": _make_statistic("number of elements that are not zero"),
    "norm": RunOperation(
        "norm of a vector, or of a matrix",
        results=(),
        options={
            "ord": RunOption(
                _parse_order,
                "order: a number, inf, -inf, fro or nuc (2-norm of all elements if not given)",
            ),
            "axis": RunOption(_parse_integers, "axis of vectors, or two axes of matrices"),
            **_KEEPDIMS,
        },
    ),
    "statistics": RunOperation(
        "several statistics in one pass",
        results=(),
        options={
            "what": RunOption(
                _parse_names, "names, such as mean,std,min,max (the default), nanmean, argmax"
            ),
            **_AXIS,
            **_KEEPDIMS,
            **_DDOF,
        },
        out=False,
    ),
    "histogram": RunOperation(
        "number of elements in each interval",
        results=(),
        out=False,
        names=("counts", "edges"),
        options={
            "bins": RunOption(int, "number of intervals", 10),
            "range": RunOption(
                _parse_numbers, "start of the first and end of the last interval, such as 0,1"
            ),
            "density": RunOption(
                None, "divide by the number of elements and the width of the interval"
            ),
            **_COUNTED,
        },
        call=_check_histogram,
    ),
    "bincount": RunOperation(
        "number of occurrences of each integer",
        results=(),
        options={"minlength": RunOption(int, "minimum number of counts"), **_COUNTED},
    ),
}
