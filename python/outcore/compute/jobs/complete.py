"""The door: from an operation and what the user said to results, or to what it would do."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from outcore.base.hints import memory as promise
from outcore.base.hints import nbytes
from outcore.base.report.progress import progress_of
from outcore.compute.jobs.inputs import again
from outcore.compute.jobs.job import Job
from outcore.compute.jobs.operation import Operation
from outcore.compute.jobs.outputs import make_outputs
from outcore.compute.jobs.report import ComputeReport
from outcore.compute.jobs.task import Task
from outcore.errors import StaysInProcess, UsageError
from outcore.formats.known_options import refuse_unknown
from outcore.ranks.ranks import Ranks

__all__ = ["Planned", "complete", "scalar"]


class Planned(StaysInProcess):
    """
    A computation that has not run: what it will do, and afterwards what it did.

    Attributes
    ----------
    report
        The `ComputeReport`; after `run` with what was measured beside it.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("rows.npy", np.ones((300, 400)))
    >>> planned = outcore.transpose("rows.npy", out="columns.npy", explain=True)
    >>> planned.report.read_bytes, planned.report.must_move
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
        self.report: ComputeReport = _job(operation, out, how)[0].explain()

    def run(self) -> Any:
        """
        Do it.

        Returns
        -------
        DiskArray, numpy.ndarray, scalar, tuple or dict
            What the call without ``explain=True`` returns.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> planned = outcore.transpose(np.arange(6).reshape(2, 3), explain=True)
        >>> planned.run()[0]
        array([0, 3])
        """
        inputs = tuple(again(array) for array in self._operation.inputs)
        operation = replace(self._operation, inputs=inputs)
        try:
            results, self.report = _run(operation, self._out, self._how)
        finally:
            for array in inputs:
                array.close()
        return _few(results, self._given)

    def __repr__(self) -> str:
        return str(self.report)


def complete(
    operation: Operation,
    out: Any,
    how: Mapping[str, Any],
    given: Callable[[Any], Any] | None = None,
) -> Any:
    """
    Run an operation, or tell what it would do.

    Parameters
    ----------
    operation
        What is to be computed.
    out
        Where the result goes: a path, an open array, a NumPy array, or None (a temporary array on
        disk; a NumPy array if the result is small). A tuple of these if there are several results.
    how
        What every algorithm takes:

        ``memory``: bytes that it may hold, as a number or as text (``"256 MiB"``). By default, and at
        most, what `outcore.memory` allows.

        ``progress``: called as ``progress(done, total)``, in bytes that are read, from this thread.
        True: a progress bar, on the first rank.

        ``resume``: go on where the same call was interrupted; if it was not, start at the beginning.
        After its end the result is there, and refused as any array that is there (``already-exists``).

        ``overwrite``: replace what is at the path; it is there, complete, until the new array is.

        ``explain``: return a `Planned` instead of the result.

        ``comm``: a communicator of mpi4py, or a transport: all its ranks make the same call, share the
        steps, and get the same result. ``memory`` is of each rank. Collective.

        Everything else are options of `outcore.create` for the new arrays: ``format``, ``chunks``,
        ``order``, ``compression``, ...
    given
        From the result, or the tuple of results, to what the user gets; None: as they are. That of a
        `Planned` is what its ``run`` returns.

    Returns
    -------
    DiskArray, numpy.ndarray, tuple or Planned
        A tuple if there are several results.
    """
    if how.get("explain"):
        return Planned(operation, out, how, given)
    return _few(_run(operation, out, how)[0], given)


def _few(results: Sequence[Any], given: Callable[[Any], Any] | None) -> Any:
    found = results[0] if len(results) == 1 else tuple(results)
    return found if given is None else given(found)


def scalar(found: Any, out: Any) -> Any:
    """A result, as NumPy gives it: without axes, and without an array that takes it, a scalar."""
    return found[()] if out is None and isinstance(found, np.ndarray) else found


# What is the operation's to say, or makes no sense for a result.
_UNSAID = ("format", "order", "chunks", "shards", "compression")
_HOW = ("memory", "progress", "resume", "overwrite", "explain", "comm")
_NOT_OPTIONS = ("data", "exclusive", "hints", "path", "shape")


def _job(operation: Operation, out: Any, how: Mapping[str, Any]) -> tuple[Job, bool, Any]:
    words = dict(how)
    limit = int(promise())
    wanted = words.pop("memory", None)
    budget = limit if wanted is None else min(nbytes(wanted), limit)
    shown = words.pop("progress", None)
    resume, overwrite = bool(words.pop("resume", False)), bool(words.pop("overwrite", False))
    words.pop("explain", None)
    ranks = Ranks.of(words.pop("comm", None), operation.name)
    progress = progress_of(shown, operation.name, shows=ranks.first)
    if words.pop("dtype", None) is not None:
        # NumPy means by it what is computed with, `convert` what is stored: here it would be a guess.
        kinds = ", ".join(dict.fromkeys(str(one.dtype) for one in operation.results))
        raise UsageError(
            f"{operation.name}() has no option 'dtype'; what it makes is {kinds}. To store another "
            "dtype, make an array of it (outcore.create) and pass that as out=, or convert the result "
            "(outcore.convert)",
            code="unknown-option",
        )
    for name in _NOT_OPTIONS:
        if name in words:
            raise UsageError(
                f"{operation.name}() has no option {name!r}; beside its arguments and options for the "
                "new array it takes out=, memory=, progress=, resume=, overwrite=, explain= and comm=",
                code="unknown-option",
            )
    if words:
        call = getattr(importlib.import_module("outcore"), operation.name, complete)
        refuse_unknown(call, "create", words, ("out", *_HOW))
    # None is no option: the format has its own. Of the compression it says that there is to be none.
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
    job, resume, progress = _job(operation, out, how)
    report = job.run(resume, progress)
    return job.open_results(), report
