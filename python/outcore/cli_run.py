"""
``outcore run OPERATION``, ``outcore jobs`` and ``outcore resume``: computations on files.

Idea. An operation of the command line is a function of `outcore` whose inputs and results are paths.
What it takes beside them is in one table; options that all have (memory, restart, what the new file
is like) are said once. Under mpiexec all ranks come here, and share the work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import outcore
from outcore import jobs
from outcore.cli_output import Bar, print_json
from outcore.cli_words import parse_lengths, parse_options
from outcore.errors import UsageError
from outcore.jobs.ranks import Ranks
from outcore.report import human
from outcore.transport import world

__all__ = ["OPERATIONS", "Run", "arguments"]


@dataclass(frozen=True)
class _Option:
    """What an operation takes: how it is read from text, and what it is."""

    read: Callable[[str], Any]
    help: str
    default: Any = None
    choices: Sequence[str] | None = None


@dataclass(frozen=True)
class Run:
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
    call
        From the options to the arguments of the function; None: they are its keywords.
    function
        Of `outcore`, if it is called otherwise.
    """

    text: str
    inputs: tuple[str, ...] = ("source",)
    results: tuple[str, ...] = ("target",)
    options: Mapping[str, _Option] = field(default_factory=dict)
    call: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    function: str | None = None


def _integers(text: str) -> Any:
    return parse_lengths(text, "axes")


def _numbers(text: str) -> Any:
    found = tuple(float(part) for part in text.split(","))
    return found[0] if len(found) == 1 else found


_AXIS = {"axis": _Option(_integers, "axis, or axes such as 0,1")}
_ONE_AXIS = {"axis": _Option(int, "axis, or axes such as 0,1", -1)}
_NORM = {
    "norm": _Option(str, "how it is scaled", None, ("backward", "ortho", "forward")),
}
_LINE = {"n": _Option(int, "length of the transformed axis"), **_ONE_AXIS, **_NORM}
_AXES = {"axes": _Option(_integers, "axes that are transformed, such as 0,1"), **_NORM}
_MODE = {
    "mode": _Option(
        str,
        "what lies beyond the ends",
        "reflect",
        ("reflect", "constant", "nearest", "mirror", "wrap"),
    )
}
_SIZE = {"size": _Option(_integers, "of the window: 3, or 3,5", 3), **_MODE}


def _stencil(words: dict[str, Any]) -> dict[str, Any]:
    """A stencil by the name of its weights."""
    kernel, ndim = words.pop("kernel"), words.pop("ndim")
    return {"weights": weights(kernel, ndim), **words}


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


def _statistic(text: str, **options: _Option) -> Run:
    return Run(text, results=(), options={**_AXIS, **options})


#: By name.
OPERATIONS: dict[str, Run] = {
    "transpose": Run("permute the axes", options={"axes": _Option(_integers, "axes, such as 1,0")}),
    "rechunk": Run("copy into other chunks (--chunks)"),
    "stencil": Run(
        "replace elements by weighted sums of their neighbours",
        options={
            "kernel": _Option(str, "weights by name", "laplace", ("laplace", "box", "gauss")),
            "steps": _Option(int, "how often", 1),
            "until": _Option(float, "stop when no element changes by more"),
            "boundary": _Option(
                str,
                "what lies beyond the ends",
                "reflect",
                ("reflect", "constant", "nearest", "mirror", "wrap", "untouched"),
            ),
        },
        call=_stencil,
    ),
    "median_filter": Run("the median of a window", options=_SIZE),
    "minimum_filter": Run("the least of a window", options=_SIZE),
    "maximum_filter": Run("the largest of a window", options=_SIZE),
    "uniform_filter": Run("the mean of a window", options=_SIZE),
    "gaussian_filter": Run(
        "a Gaussian filter",
        options={
            "sigma": _Option(_numbers, "standard deviation, or one for each axis", 1.0),
            **_MODE,
        },
    ),
    "matmul": Run("the matrix product", inputs=("a", "b")),
    "tensordot": Run(
        "a product over several axes",
        inputs=("a", "b"),
        options={"axes": _Option(_integers, "how many axes to sum over", 2)},
    ),
    "fft": Run("Fourier transform along an axis", options=_LINE),
    "ifft": Run("inverse of fft", options=_LINE),
    "rfft": Run("Fourier transform of real elements", options=_LINE),
    "irfft": Run("inverse of rfft", options=_LINE),
    "fft2": Run("Fourier transform along two axes", options=_AXES),
    "ifft2": Run("inverse of fft2", options=_AXES),
    "fftn": Run("Fourier transform along several axes", options=_AXES),
    "ifftn": Run("inverse of fftn", options=_AXES),
    "cholesky": Run("the Cholesky factor of a positive definite matrix"),
    "solve": Run("solve linear equations", inputs=("a", "b"), results=("x",)),
    "qr": Run("QR factors of a tall matrix", results=("q", "r")),
    "svd": Run("singular values and vectors of a tall matrix", results=("u", "s", "vh")),
    "sort": Run("sort along an axis", options=_ONE_AXIS),
    "argsort": Run("indices that would sort", options=_ONE_AXIS),
    "sum": _statistic("sum"),
    "prod": _statistic("product"),
    "mean": _statistic("mean"),
    "var": _statistic("variance", ddof=_Option(float, "delta degrees of freedom")),
    "std": _statistic("standard deviation", ddof=_Option(float, "delta degrees of freedom")),
    "min": _statistic("least element"),
    "max": _statistic("largest element"),
    "ptp": _statistic("largest less least"),
    "any": _statistic("whether any element is not zero"),
    "all": _statistic("whether no element is zero"),
    "argmin": _statistic("index of the first least element"),
    "argmax": _statistic("index of the first largest element"),
    "nansum": _statistic("sum, NaN left out"),
    "nanmean": _statistic("mean, NaN left out"),
    "nanstd": _statistic("standard deviation, NaN left out"),
    "nanvar": _statistic("variance, NaN left out"),
    "nanmin": _statistic("least element, NaN left out"),
    "nanmax": _statistic("largest element, NaN left out"),
    "median": _statistic("median"),
    "quantile": _statistic("quantile", q=_Option(_numbers, "such as 0.5, or 0.1,0.9", 0.5)),
    "cumsum": Run("running sum", options=_ONE_AXIS),
}


def arguments(command: Callable[..., argparse.ArgumentParser], reads: Callable[..., None]) -> None:
    """Add the commands of this module."""
    run = command(
        "run",
        _run,
        "compute with arrays in files: transpose, matmul, fft2, sort, mean, ...",
        together=True,
    )
    run.add_argument("operation", choices=sorted(OPERATIONS), metavar="OPERATION")
    run.add_argument("paths", nargs="*", metavar="PATH", help="inputs, then results")
    run.add_argument("--out", metavar="PATH", help="of a statistic: write it there")
    seen: set[str] = set()
    for name, operation in OPERATIONS.items():
        for option, how in operation.options.items():
            if option in seen:
                continue
            seen.add(option)
            users = [n for n, other in OPERATIONS.items() if option in other.options]
            run.add_argument(f"--{option}", help=f"{how.help} ({', '.join(users)})")
        assert name
    for name, text in (
        ("format", "name of the new format"),
        ("order", "C or F"),
        ("chunks", "such as 100,200"),
        ("shards", "such as 1000,2000"),
        ("compression", "such as zstd, zstd:3, gzip, none"),
    ):
        run.add_argument(f"--{name}", help=f"of the result: {text}")
    run.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option to open inputs with, such as dtype=f4 or shape=100,200 for raw files",
    )
    run.add_argument("--resume", action="store_true", help="go on after an interruption")
    run.add_argument("--overwrite", action="store_true", help="replace results that are there")
    run.add_argument("--explain", action="store_true", help="tell what it would do, and stop")
    run.add_argument("--progress", action="store_true", help="a progress bar also if piped")
    run.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
    lines = [f"  {name:<18}{_usage(one):<28}{one.text}" for name, one in sorted(OPERATIONS.items())]
    run.epilog = "operations:\n" + "\n".join(lines)
    run.formatter_class = argparse.RawDescriptionHelpFormatter

    left = command("jobs", _jobs, "jobs in a folder that were interrupted, and what they left")
    left.add_argument("folder", nargs="?", default=".")
    left.add_argument("--clean", action="store_true", help="remove them with all that they left")
    going = command(
        "resume", _resume, "go on with all jobs in a folder that were interrupted", together=True
    )
    going.add_argument("folder", nargs="?", default=".")
    going.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def _usage(run: Run) -> str:
    return " ".join(name.upper() for name in (*run.inputs, *run.results))


def _run(words: Any) -> int:
    run = OPERATIONS[words.operation]
    paths, wanted = words.paths, len(run.inputs) + len(run.results)
    if len(paths) != wanted:
        raise UsageError(
            f"outcore run {words.operation} takes {wanted} paths: {_usage(run)}", code="bad-option"
        )
    if words.out is not None and run.results:
        raise UsageError(
            f"outcore run {words.operation}: the result is the last path; --out is for statistics",
            code="bad-option",
        )
    inputs, outs = paths[: len(run.inputs)], tuple(paths[len(run.inputs) :])
    how = _how(words, run)
    if outs or words.out:
        how["out"] = outs[0] if len(outs) == 1 else outs or words.out
    ranks = Ranks.of(world(), f"outcore run {words.operation}")
    # A rank that cannot open them must not leave the others waiting.
    opened = ranks.together(
        lambda: [outcore.open(path, **parse_options(words.set)) for path in inputs]
    )
    started = time.monotonic()
    try:
        given = _given(words, run, opened[0].ndim)
        how["comm"] = ranks.comm
        function = getattr(outcore, run.function or words.operation)
        with Bar(words.operation, quiet=words.quiet or words.json, piped=words.progress) as bar:
            found = function(
                *opened, **given, **how, **({} if words.explain else {"progress": bar})
            )
    finally:
        for array in opened:
            array.close()
    if words.explain:
        return _tell(words, found.report)
    results = found if isinstance(found, tuple) else (found,)
    _print(words, results, time.monotonic() - started)
    return 0


def _how(words: Any, run: Run) -> dict[str, Any]:
    """What all operations take."""
    how: dict[str, Any] = {"memory": words.memory}
    for name in ("format", "order", "compression"):
        if getattr(words, name) is not None and name not in run.options:
            how[name] = getattr(words, name)
    for name in ("chunks", "shards"):
        lengths = parse_lengths(getattr(words, name), name)
        if lengths is not None:
            how[name] = lengths
    for name in ("resume", "overwrite", "explain"):
        if getattr(words, name):
            how[name] = True
    return how


def _given(words: Any, run: Run, ndim: int) -> dict[str, Any]:
    """What this operation takes."""
    given: dict[str, Any] = {}
    for name in {name for other in OPERATIONS.values() for name in other.options}:
        if getattr(words, name) is not None and name not in run.options:
            raise UsageError(f"outcore run {words.operation} takes no --{name}", code="bad-option")
    for name, option in run.options.items():
        text = getattr(words, name)
        if text is None:
            if option.default is not None:
                given[name] = option.default
            continue
        try:
            given[name] = option.read(text)
        except ValueError as error:
            raise UsageError(f"--{name} {text!r}: {error}", code="bad-option") from None
        if option.choices and given[name] not in option.choices:
            raise UsageError(
                f"--{name} {text!r}: one of {', '.join(option.choices)}", code="bad-option"
            )
    if run.call is not None:
        given = run.call({**given, "ndim": ndim})
    return given


def _tell(words: Any, report: outcore.ComputeReport) -> int:
    if words.json:
        print_json(report)
    else:
        print(report)
    return 0


def _print(words: Any, results: Sequence[Any], seconds: float) -> None:
    told: list[dict[str, Any]] = []
    for one in results:
        if isinstance(one, outcore.DiskArray):
            entry: dict[str, Any] = {
                "path": one.path,
                "shape": one.shape,
                "dtype": one.dtype.str,
                "nbytes": one.nbytes,
            }
            told.append(entry)
            one.close()
        else:
            told.append({"value": np.asarray(one)})
    if words.json:
        print_json({"operation": words.operation, "results": told, "seconds": seconds})
        return
    for entry in told:
        if "path" in entry:
            size, rate = human(entry["nbytes"]), human(int(entry["nbytes"] / max(seconds, 1e-9)))
            print(f"{entry['path']}: shape {entry['shape']}, {size} in {seconds:.1f} s, {rate}/s")
        else:
            print(np.array2string(entry["value"], threshold=1000, precision=15))


def _jobs(words: Any) -> int:
    found = jobs.unfinished(words.folder)
    if words.clean:
        for one in found:
            if one.state != "running":
                jobs.clean(one)
    if words.json:
        print_json({"folder": words.folder, "jobs": found, "removed": bool(words.clean)})
        return 0
    if not found:
        print(f"{words.folder}: no unfinished jobs")
    for one in found:
        what = f"{one.operation} to {', '.join(one.targets)}" if one.targets else one.operation
        share = f", {one.done} of {one.steps} steps done" if one.steps else ""
        print(
            f"{one.path}: {what}{share}: {_STATES[one.state]}"
            + ("; removed" if words.clean and one.state != "running" else "")
        )
    return 0


_STATES = {
    "running": "another process is at work on it",
    "resumable": "`outcore resume` goes on with it",
    "repeat": "the same call with resume=True goes on with it",
    "left": "nobody can go on with it; `outcore jobs --clean` removes it",
}


def _resume(words: Any) -> int:
    with Bar("resuming", quiet=words.quiet or words.json) as bar:
        complete = jobs.resume(words.folder, progress=bar, comm=world())
    if words.json:
        print_json({"folder": words.folder, "complete": complete})
        return 0
    for path in complete:
        print(f"{path}: complete")
    if not complete:
        print(f"{words.folder}: nothing to go on with")
    return 0
