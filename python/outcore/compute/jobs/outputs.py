"""
Where results are stored: a new array with a name, an open array, a temporary array, or memory.

Problem. ``out=`` may specify four things, and a job should not have to tell them apart.
Idea. Each is an output. It begins, and returns the array into which steps store; then the job publishes
it, or releases and discards it.

Invariants. A new array gets its name only when it is complete. Until then, what the name referred to
before is unchanged. A temporary array is removed with its handle, also when the process ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core, formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open
from outcore.base.hints import Hints
from outcore.compute.jobs.changed import Files, find_containers
from outcore.compute.jobs.memory import InMemory
from outcore.compute.jobs.operation import Result
from outcore.compute.jobs.overlap import can_overlap
from outcore.compute.jobs.target import Target, TargetPlace
from outcore.compute.jobs.temporaries import create_temporary, remove_after_last_rank
from outcore.errors import BudgetError, StorageError, UsageError, budget_error
from outcore.formats.format import HasFiles
from outcore.formats.layout import identify_file
from outcore.formats.paths import one_name
from outcore.formats.scratch import scratch_folder
from outcore.ranks.ranks import Ranks

__all__ = ["NamedOutput", "Output", "has_room_for", "make_outputs", "too_large_error"]


# Options that `outcore.create` takes for every format.
_CREATE = ("order", "chunks", "shards", "compression")
# All chunks of a temporary array are written, so a missing chunk is damage.
_COMPLETE = Hints(missing="error")


class Output:
    """Destination of one result; here one without a name, which is lost with the process."""

    #: Bytes of the budget that the output holds while the job runs.
    reserved_bytes: int = 0
    #: Whether the stored elements still exist when an interrupted job is resumed.
    is_resumable: bool = False
    #: Files that hold the result and other arrays (`outcore.formats.layout.identify_file`).
    containers: Files = frozenset()

    def begin(self, budget: int, *, resume: bool) -> Any:
        """Create the array into which steps store, or open the one that an interrupted job has left."""
        raise NotImplementedError

    def create_model(self, options: Mapping[str, Any]) -> Any:
        """
        Create an empty array with the layout of the result, for plans.

        It takes no memory. Closing it removes it, unless it belongs to the user. `options` are
        those of `outcore.create` for a file with the layout of a new array.
        """
        raise NotImplementedError

    def join(self, budget: int, path: str) -> Any:
        """Open, on another rank, the array at `path` that the first rank has begun."""
        raise NotImplementedError

    def set_shape(self, shape: tuple[int, ...]) -> None:
        """Set the shape of a result that is `Result.at_most`, before it begins."""
        raise NotImplementedError

    def publish(self) -> None:
        """Give the complete result its name."""

    def open_result(self, ranks: Ranks) -> Any:
        """Return the complete result for the user. Collective over the ranks."""
        raise NotImplementedError

    def release(self) -> None:
        """Release what this rank holds, after the job has failed."""

    def discard(self) -> None:
        """Remove what was begun, after a job has failed that will not be resumed."""
        self.release()


class NamedOutput(Output):
    """A new array, which gets its name when it is complete."""

    is_resumable = True

    def __init__(self, target: Target) -> None:
        self.target, self.place = target, target.place
        if self.place.inside:
            self.containers = frozenset([identify_file(self.place.outer)])

    def begin(self, budget: int, *, resume: bool) -> DiskArray:
        """Create the array under another name, or open the one that an interrupted job has left."""
        return self.target.reopen(budget) if resume else self.target.create(budget)

    def model_options(self) -> dict[str, Any]:
        """Return options of `outcore.create` for an array with the layout of the result."""
        target = self.target
        format = formats.choose_format_name(target.place.final, target.format)
        kept, _ = target.select_kept(format)
        kept = {k: v for k, v in kept.items() if k in _CREATE}
        # One file represents several.
        several, kind = {"files"}, formats.get_format(format)
        if isinstance(kind, HasFiles):
            several, format = {*several, *kind.file_options}, kind.part_format
        options = {k: v for k, v in target.options.items() if k not in several}
        return {"format": format, "compression": "auto", **kept, **options}

    def create_model(self, options: Mapping[str, Any]) -> DiskArray:
        """Create a temporary array in the folder of the new array."""
        return create_temporary(self.target.result, scratch_folder([self.place.final]), options)

    def join(self, budget: int, path: str) -> DiskArray:
        """Open the array that the first rank has created."""
        return self.target.reopen(budget)

    def set_shape(self, shape: tuple[int, ...]) -> None:
        """Set the shape of the array that will be created."""
        self.target = replace(self.target, result=replace(self.target.result, shape=shape))

    def publish(self) -> None:
        """Give the array its name, unless a job that was killed during this step has done so."""
        if self.place.inside or os.path.lexists(self.place.partial_outer):
            self.place.publish()

    def open_result(self, ranks: Ranks) -> DiskArray:
        """Open the complete array."""
        options: dict[str, Any] = (
            {} if self.target.format is None else {"format": self.target.format}
        )
        result = self.target.result
        if formats.choose_format(self.place.final, self.target.format).unrecorded_options:
            options |= {"dtype": result.dtype, "shape": result.shape, **self.target.options}
        return ranks.open(self.place.final, **options)

    def discard(self) -> None:
        """Remove the unfinished array; `release` keeps it, since a later job may resume with it."""
        with contextlib.suppress(StorageError):  # the first error is the one to report
            self.place.discard()


class _ExistingOutput(Output):
    """An array that the user has opened, and that has its name."""

    def __init__(self, operation: str, array: Any) -> None:
        self.operation, self.array = operation, array
        self.is_resumable = isinstance(array, DiskArray)
        self.containers = find_containers(array)

    def begin(self, budget: int, *, resume: bool) -> Any:
        return self.array

    def create_model(self, options: Mapping[str, Any]) -> Any:
        return self.array

    def join(self, budget: int, path: str) -> Any:
        return self.array

    def set_shape(self, shape: tuple[int, ...]) -> None:
        _check_shape(self.operation, self.array, shape)

    def open_result(self, ranks: Ranks) -> Any:
        return self.array.data if isinstance(self.array, InMemory) else self.array


class _MemoryOutput(Output):
    """A NumPy array of one process, which counts in the budget while the job runs."""

    def __init__(self, result: Result) -> None:
        self.result, self.reserved_bytes = result, result.nbytes
        self.reservation: _core.Reservation | None = None

    def begin(self, budget: int, *, resume: bool) -> InMemory:
        _check_size(self.reserved_bytes, budget)
        self.reservation = _core.Reservation("a result", self.reserved_bytes)
        self.array = InMemory(np.zeros(self.result.shape, self.result.dtype), "the result")
        return self.array

    def create_model(self, options: Mapping[str, Any]) -> InMemory:
        empty = np.broadcast_to(np.zeros((), self.result.dtype), self.result.shape)
        return InMemory(empty, "the result")

    def set_shape(self, shape: tuple[int, ...]) -> None:
        self.result = replace(self.result, shape=shape)
        self.reserved_bytes = self.result.nbytes

    def publish(self) -> None:
        self.release()

    def open_result(self, ranks: Ranks) -> NDArray[Any]:
        return self.array.data

    def release(self) -> None:
        if self.reservation is not None:
            self.reservation.release()


class _TemporaryOutput(Output):
    """An array on disk that is removed with its handle, or with the handle of the last rank."""

    def __init__(self, result: Result, folder: str, options: Mapping[str, Any]) -> None:
        self.result, self.folder, self.options = result, folder, options
        self.array: DiskArray | None = None

    def begin(self, budget: int, *, resume: bool) -> DiskArray:
        self.array = create_temporary(self.result, self.folder, self.options)
        return self.array

    def create_model(self, options: Mapping[str, Any]) -> DiskArray:
        return create_temporary(self.result, self.folder, self.options)

    def join(self, budget: int, path: str) -> DiskArray:
        self.array = open(path, "r+", hints=_COMPLETE)
        return self.array

    def set_shape(self, shape: tuple[int, ...]) -> None:
        self.result = replace(self.result, shape=shape)

    def open_result(self, ranks: Ranks) -> Any:
        assert self.array is not None
        if ranks.size > 1:
            own = self.array
            self.array = shared = ranks.open(
                ranks.broadcast_from_first(lambda: own.path), hints=_COMPLETE
            )
            # Before any rank may release it.
            ranks.run_on_all(lambda: remove_after_last_rank(shared))
            own.handle.keep()
            own.close()
        return self.array

    def release(self) -> None:
        if self.array is not None:
            self.array.close()  # which removes it


class _GatheredOutput(_TemporaryOutput):
    """A NumPy array of which ranks compute parts: on disk until the result is complete."""

    def __init__(self, operation: str, result: Result, folder: str, into: InMemory | None) -> None:
        super().__init__(result, folder, {})
        self.operation, self.into = operation, into
        self.reserved_bytes = 0 if into is not None else result.nbytes

    def begin(self, budget: int, *, resume: bool) -> DiskArray:
        _check_size(self.reserved_bytes, budget)
        return super().begin(budget, resume=resume)

    def join(self, budget: int, path: str) -> DiskArray:
        _check_size(self.reserved_bytes, budget)
        return super().join(budget, path)

    def set_shape(self, shape: tuple[int, ...]) -> None:
        if self.into is not None:
            _check_shape(self.operation, self.into, shape)
        super().set_shape(shape)
        self.reserved_bytes = 0 if self.into is not None else self.result.nbytes

    def open_result(self, ranks: Ranks) -> NDArray[Any]:
        array = super().open_result(ranks)
        into = np.empty(array.shape, array.dtype) if self.into is None else self.into.data

        def read() -> None:
            with _core.Reservation("a result", self.reserved_bytes):
                into[...] = array[...]

        try:
            ranks.run_on_all(read)
        finally:
            self.discard()
        return into


def has_room_for(outputs: Sequence[Output], budget: int) -> bool:
    """Return whether a budget can hold each result in memory twice, which leaves enough for the work."""
    return all(one.reserved_bytes <= budget // 2 for one in outputs)


def too_large_error(nbytes: int, budget: int, needed: int) -> BudgetError:
    """
    Return the error for a result of `nbytes` in memory; the whole job fits a budget of `needed`
    bytes.
    """
    return budget_error(
        "a result in memory",
        nbytes,
        f"at most half of the memory budget of {budget} bytes is available for it",
        needed,
        setting="memory= (and outcore.memory())",
        instead="pass out= to write the result to disk",
    )


def _check_size(nbytes: int, budget: int) -> None:
    """Raise `BudgetError` if a result in memory takes more than half of the budget."""
    if nbytes > budget // 2:
        raise too_large_error(nbytes, budget, 2 * nbytes)


def make_outputs(
    operation: str,
    inputs: Sequence[Any],
    results: Sequence[Result],
    out: Any,
    options: Mapping[str, Any],
    *,
    overwrite: bool,
    alone: bool,
) -> list[Output]:
    """
    Make one output for each result from ``out=``, which is a tuple if there are several results.

    With several ranks (not `alone`), each stores parts of a result that is returned in memory.
    """
    outs = out if isinstance(out, tuple) else (out,) * (1 if out is not None else len(results))
    if len(outs) != len(results):
        raise UsageError(
            f"{operation}: out= has {len(outs)} arrays for {len(results)} results; pass a tuple "
            "with one for each (None: a temporary array)",
            code="bad-out",
        )
    _check_options(operation, outs, results, options)
    folder = scratch_folder([a.path for a in inputs if isinstance(a, DiskArray)])
    made: list[Output] = []
    for one, result in zip(outs, results, strict=True):
        if one is None:
            in_memory = (
                _MemoryOutput(result) if alone else _GatheredOutput(operation, result, folder, None)
            )
            made.append(in_memory if result.small else _TemporaryOutput(result, folder, options))
        elif isinstance(one, str | os.PathLike):
            made.append(_make_named(one, inputs, result, options, overwrite=overwrite))
        else:
            given = _check_given(operation, one, inputs, result)
            if isinstance(given, InMemory) and not alone:
                made.append(_GatheredOutput(operation, result, folder, given))
            else:
                made.append(_ExistingOutput(operation, given))
    _check_distinct(operation, made)
    return made


def _check_options(
    operation: str, outs: Sequence[Any], results: Sequence[Result], options: Mapping[str, Any]
) -> None:
    """Raise `UsageError` for options of new arrays if no result is a new array."""
    named = sum(isinstance(one, str | os.PathLike) for one in outs)
    if options and not named and any(one is not None for one in outs):
        raise UsageError(
            f"{operation}: {', '.join(options)} apply only to new arrays, but out= is an existing "
            "one; omit them",
            code="unknown-option",
        )
    if options and not named and all(result.small for result in results):
        # Otherwise a misspelt argument, or an argument of NumPy that outcore lacks, would be ignored.
        raise UsageError(
            f"{operation}() has no option {next(iter(options))!r} for a result in memory; in "
            "addition to its arguments it takes out=, memory=, progress=, resume=, overwrite=, "
            "explain= and comm=, and options of the new array if out= is a path",
            code="unknown-option",
        )


def _check_distinct(operation: str, outputs: Sequence[Output]) -> None:
    """Raise `UsageError` if two results would be stored into the same elements."""
    places = [one.place.final for one in outputs if isinstance(one, NamedOutput)]
    if len(set(places)) < len(places):
        raise UsageError(
            f"{operation}: out= names one array twice; give each result its own array",
            code="bad-out",
        )
    given = [one.array for one in outputs if isinstance(one, _ExistingOutput)]
    if any(can_overlap(a, b) for a, b in combinations(given, 2)):
        raise UsageError(
            f"{operation}: arrays of out= share elements, so results would overwrite each other; "
            "give each result its own array",
            code="bad-out",
        )


def _make_named(
    path: str | os.PathLike[str],
    inputs: Sequence[Any],
    result: Result,
    options: Mapping[str, Any],
    *,
    overwrite: bool,
) -> NamedOutput:
    others = dict(options)
    format = others.pop("format", None)
    formats.check_new(path, format, {k: v for k, v in others.items() if k not in _CREATE})
    reads = [a.path for a in inputs if isinstance(a, DiskArray)]
    place = TargetPlace.of(one_name(path), reads, overwrite, format)
    return NamedOutput(Target(result, place, format, others))


def _check_given(operation: str, out: Any, inputs: Sequence[Any], result: Result) -> Any:
    """Return an existing array as one into which steps can store; raise if they cannot."""
    if isinstance(out, np.ndarray):
        out = InMemory(out, "out=")
        writable = out.data.flags.writeable
    elif isinstance(out, DiskArray):
        out.handle.check_open("write to")
        writable = out.writable
    else:
        raise UsageError(
            f"{operation}: out={out!r} is not a path, open array or NumPy array; pass one of these",
            code="bad-out",
        )
    if not writable:
        raise UsageError(
            f"{operation}: {out.path!r} cannot be written to; open it with mode 'r+'",
            code="read-only",
            path=out.path,
        )
    if isinstance(out, InMemory) and _has_repeats(out.data):
        raise UsageError(
            f"{operation}: out= is a view in which some elements occur more than once (shape "
            f"{out.shape}, strides {out.data.strides}), so results would overwrite each other; pass "
            "a separate array",
            code="bad-out",
        )
    if not result.at_most:
        _check_shape(operation, out, result.shape)
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise UsageError(
            f"{operation}: the result is {result.dtype} and cannot be cast to {out.dtype}, the "
            "dtype of out=, under casting='same_kind'; pass an array of another dtype",
            code="bad-cast",
            path=out.path,
        )
    if any(can_overlap(a, out) for a in inputs):
        raise UsageError(
            f"{operation}: out= shares elements with an input, which would be overwritten before "
            "they are read; choose another array",
            code="same-file",
            path=out.path,
        )
    return out


def _has_repeats(data: NDArray[Any]) -> bool:
    """
    Return whether a view may have an element twice, as `numpy.broadcast_to` and sliding windows do.

    Slices and permuted axes of arrays have steps along each axis that pass all of the axes before.
    """
    passed = data.itemsize
    for step, n in sorted(zip(map(abs, data.strides), data.shape, strict=True)):
        if n > 1 and step < passed:
            return data.size > 0
        passed += (n - 1) * step
    return False


def _check_shape(operation: str, out: Any, shape: tuple[int, ...]) -> None:
    """Raise `UsageError` if an array of the user has another shape than the result."""
    if tuple(out.shape) != shape:
        raise UsageError(
            f"{operation}: out= has shape {tuple(out.shape)}, but the result has shape {shape}; "
            "pass an array of that shape",
            code="out-mismatch",
            path=out.path,
        )
