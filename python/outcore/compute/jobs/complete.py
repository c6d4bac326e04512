"""Entry point of all computations: run an operation, or return its plan."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from outcore.base.hints import memory as promise
from outcore.base.hints import parse_bytes
from outcore.base.report.progress import get_progress
from outcore.compute.jobs.inputs import reopen
from outcore.compute.jobs.job import Job
from outcore.compute.jobs.operation import Operation
from outcore.compute.jobs.outputs import make_outputs
from outcore.compute.jobs.report import ComputeReport
from outcore.compute.jobs.task import Task
from outcore.errors import StaysInProcess, UsageError
from outcore.formats.known_options import check_known
from outcore.ranks.ranks import Ranks

__all__ = ["Planned", "complete", "to_scalar"]


class Planned(StaysInProcess):
    """
    Computation that has not run yet: its plan, and after `run` the measured values.

    Attributes
    ----------
    report
        `ComputeReport` of the plan. After `run`, it also has the measured values.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("rows.npy", np.ones((300, 400)))
    >>> planned = outcore.transpose("rows.npy", out="columns.npy", explain=True)
    >>> planned.report.read_bytes, planned.report.lower_bound_bytes
    (960000, 1920000)
    >>> planned.run().shape
    (400, 300)
    >>> planned.report.measured.written_bytes
    960000
    """

    _elsewhere = "send its report, or make the same call there"

    def __init__(
        self,
        operation: Operation,
        out: Any,
        how: Mapping[str, Any],
        given: Callable[[Any], Any] | None = None,
    ) -> None:
        self._operation, self._out, self._how = operation, out, {**how, "explain": False}
        self._given = given
        self.report: ComputeReport = _make_job(operation, out, how)[0].explain()

    def run(self) -> Any:
        """
        Run the computation.

        Returns
        -------
        DiskArray, numpy.ndarray, scalar, tuple or dict
            Value that the same call returns without ``explain=True``.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> planned = outcore.transpose(np.arange(6).reshape(2, 3), explain=True)
        >>> planned.run()[0]
        array([0, 3])
        """
        inputs = tuple(reopen(array) for array in self._operation.inputs)
        operation = replace(self._operation, inputs=inputs)
        try:
            results, self.report = _run(operation, self._out, self._how)
        finally:
            for array in inputs:
                array.close()
        return _unpack(results, self._given)

    def __str__(self) -> str:
        return str(self.report)

    def __repr__(self) -> str:
        return repr(self.report).replace(type(self.report).__name__, type(self).__name__, 1)

    def _repr_html_(self) -> str:
        """Return the picture of the plan for notebooks."""
        return f"<div class='outcore'>{self.report.svg()}</div>"


def complete(
    operation: Operation,
    out: Any,
    how: Mapping[str, Any],
    given: Callable[[Any], Any] | None = None,
) -> Any:
    """
    Run an operation, or return its plan.

    Parameters
    ----------
    operation
        Operation to run.
    out
        Destination of the result: a path, an open array, a NumPy array, or None (a temporary array
        on disk; a NumPy array if the result is small). A tuple of these if there are several
        results.
    how
        Options of every computation:

        ``memory``: memory budget in bytes, as a number or as text (``"256 MiB"``). The default, and
        the maximum, is the budget of `outcore.memory`.

        ``progress``: function called as ``progress(done, total)`` with numbers of bytes read, in
        the calling thread. True shows a progress bar, on the first rank.

        ``resume``: continue the same call after an interruption; start at the beginning if there
        was none. If the call has already finished, its result exists, and ``already-exists`` is
        raised as for any existing array.

        ``overwrite``: replace an existing array at the path. The old array stays complete until the
        new one is.

        ``explain``: return a `Planned` instead of the result.

        ``comm``: a communicator of mpi4py, or a transport. All its ranks make the same call, share
        the steps and get the same result. ``memory`` is the budget of each rank. Collective.

        All other options are options of `outcore.create` for the new arrays: ``format``,
        ``chunks``, ``order``, ``compression``, ...
    given
        Function from the result, or the tuple of results, to the value that the user gets, here and
        from `Planned.run`. None: the results themselves.

    Returns
    -------
    DiskArray, numpy.ndarray, tuple or Planned
        The result. A tuple if there are several results; a `Planned` with ``explain=True``.

    Raises
    ------
    UsageError
        ``bad-axis``: an axis does not exist. ``bad-dtype``, ``bad-shape``: `where` is not boolean,
        or cannot be broadcast to the input; in linear algebra, ``bad-dtype`` also if NumPy does not
        compute with the dtype of an input. ``unknown-option``: there is no such option. ``bad-out``,
        ``bad-cast``, ``out-mismatch``, ``read-only``, ``same-file``: `out` cannot hold the result, or
        is an input.
    UnsupportedError
        ``bad-dtype``: the operation does not support the dtype of an input. ``needs-scipy``: SciPy
        is not installed.
    BudgetError
        The budget is too small for the smallest blocks of the operation, or a result in memory
        needs more than half of the budget (pass `out`). ``needed`` is a sufficient budget.
    StorageError
        ``already-exists``: the path exists, and ``overwrite`` is not set. Otherwise an operating system
        call failed; if `out` is a path, finished steps are kept, and ``resume=True`` continues.

    Notes
    -----
    All computations of outcore share these parameters and exceptions, and their docstrings refer to
    this one:

    ``a``, ``b``, ``x``, ...: an input is a path, an open array or a NumPy array, of any shape
    ``(n0, n1, ...)`` unless the function specifies one.

    ``axis``: one axis or several. None: all axes.

    ``out``: as above. The result of a reduction without `out` is a NumPy array (or a scalar) as
    from NumPy, which counts in the budget. A temporary array on disk is deleted with its handle.

    ``keepdims``: keep reduced axes, with length 1.

    ``where``: boolean array, on disk or in memory, that selects the elements; it is broadcast to
    the shape of the input.

    ``how``: the options above.

    Unless a function says otherwise, it uses as much memory as the budget allows.
    """
    if how.get("explain"):
        return Planned(operation, out, how, given)
    return _unpack(_run(operation, out, how)[0], given)


def _unpack(results: Sequence[Any], given: Callable[[Any], Any] | None) -> Any:
    found = results[0] if len(results) == 1 else tuple(results)
    return found if given is None else given(found)


def to_scalar(found: Any, out: Any) -> Any:
    """Return a result as NumPy does: a scalar if it has no axes and `out` is None."""
    return found[()] if out is None and isinstance(found, np.ndarray) else found


# Options that the operation determines, or that do not apply to its results.
_UNSAID = ("format", "order", "chunks", "shards", "compression")
_HOW = ("memory", "progress", "resume", "overwrite", "explain", "comm")
_NOT_OPTIONS = ("data", "exclusive", "hints", "path", "shape")


def _make_job(operation: Operation, out: Any, how: Mapping[str, Any]) -> tuple[Job, bool, Any]:
    words = dict(how)
    limit = int(promise())
    wanted = words.pop("memory", None)
    budget = limit if wanted is None else min(parse_bytes(wanted), limit)
    shown = words.pop("progress", None)
    resume, overwrite = bool(words.pop("resume", False)), bool(words.pop("overwrite", False))
    words.pop("explain", None)
    ranks = Ranks.of(words.pop("comm", None), operation.name)
    progress = get_progress(shown, operation.name, shows=ranks.is_first)
    if words.pop("dtype", None) is not None:
        # In NumPy, dtype is that of the computation; in `convert`, that of the stored array. Here
        # it would be ambiguous.
        kinds = ", ".join(dict.fromkeys(str(one.dtype) for one in operation.results))
        raise UsageError(
            f"{operation.name}() has no option 'dtype': its results are {kinds}. To store another "
            "dtype, create an array (outcore.create) and pass it as out=, or convert the result "
            "(outcore.convert)",
            code="unknown-option",
        )
    for name in _NOT_OPTIONS:
        if name in words:
            raise UsageError(
                f"{operation.name}() has no option {name!r}; in addition to its arguments and the "
                "options of new arrays, it takes out=, memory=, progress=, resume=, overwrite=, "
                "explain= and comm=",
                code="unknown-option",
            )
    if words:
        try:
            call = importlib.import_module("outcore.public").find_public(operation.name)
        except AttributeError:  # An operator of arrays, say.
            call = complete
        check_known(call, "create", words, ("out", *_HOW))
    # None selects the default of the format, except that compression=None means no compression.
    options = {k: v for k, v in words.items() if k not in _UNSAID or v is not None}
    if "compression" in words:
        options["compression"] = words["compression"] or "none"
    places = make_outputs(
        operation.name,
        operation.inputs,
        operation.results,
        out,
        options,
        overwrite=overwrite,
        alone=ranks.size == 1,
    )
    return Job(Task(operation, places, budget, options, ranks)), resume, progress


def _run(
    operation: Operation, out: Any, how: Mapping[str, Any]
) -> tuple[Sequence[Any], ComputeReport]:
    job, resume, progress = _make_job(operation, out, how)
    report = job.run(resume, progress)
    return job.open_results(), report
