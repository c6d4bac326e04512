"""
Where results go: a new array under a name, an open array, one that goes away, or memory.

Problem. ``out=`` may say four things, and a job should not have to tell them apart.
Idea. Each is an output: it begins (and gives the array that steps store into), and it ends, well or not.

Invariants. A new array has its name only when it is complete. What was there before is untouched until
then. A temporary array goes away with its handle, also when the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outcore import _core, formats
from outcore.disk import DiskArray
from outcore.errors import BudgetError, StorageError, UsageError
from outcore.formats import durable, locks
from outcore.formats.layout import file_of
from outcore.formats.paths import one_name
from outcore.formats.scratch import at_termination, forget_termination, scratch_folder
from outcore.hints import Hints
from outcore.jobs.changed import Files, containers
from outcore.jobs.memory import InMemory
from outcore.jobs.operation import Result
from outcore.jobs.overlap import overlap
from outcore.jobs.ranks import Ranks
from outcore.jobs.target import Place, Target
from outcore.opening import create, open

__all__ = [
    "Named",
    "Output",
    "name_of_scratch",
    "outputs",
    "small",
    "temporary",
    "too_large",
]


# Of temporary arrays: all chunks are written, so one that is missing is damage.
_COMPLETE = Hints(missing="error")


class Output(Protocol):
    """Where one result goes."""

    @property
    def held(self) -> int:
        """Bytes of the budget that it takes while the job runs."""

    @property
    def stays(self) -> bool:
        """Whether what was stored is still there when an interrupted job goes on."""

    @property
    def containers(self) -> Files:
        """Files that it is in with other arrays, as `outcore.formats.layout.file_of` tells them."""

    def begin(self, budget: int, *, again: bool) -> Any:
        """The array that steps store into; `again` if an interrupted job left it."""

    def like(self, words: Mapping[str, Any]) -> Any:
        """
        An empty array as that will be, for plans: what is in memory takes none.

        `words` say how a file is made that has the layout of a new one. It goes away with its handle,
        but for what is the user's.
        """

    def join(self, budget: int, path: str) -> Any:
        """The same for another rank, when the first one has begun."""

    def sized(self, shape: tuple[int, ...]) -> None:
        """Of a result that is `Result.at_most`, before it begins: the shape that it has."""

    def publish(self) -> None:
        """It is complete."""

    def opened(self, ranks: Ranks) -> Any:
        """What the user gets, when it is complete. Collective over the ranks."""

    def leave(self) -> None:
        """The job failed: this rank releases it."""

    def discard(self) -> None:
        """The job failed, and nobody will go on with it."""


class Named:
    """A new array, which gets its name when it is complete."""

    held = 0
    stays = True

    def __init__(self, target: Target) -> None:
        self.target, self.place = target, target.place

    @property
    def containers(self) -> Files:
        """The file or store, if it is there already."""
        return frozenset([file_of(self.place.outer)] if self.place.inside else [])

    def begin(self, budget: int, *, again: bool) -> DiskArray:
        """Create it under another name, or open what is there."""
        return self.target.reopen(budget) if again else self.target.create(budget)

    def like(self, words: Mapping[str, Any]) -> DiskArray:
        """One in the folder of the new array."""
        return temporary(self.target.result, scratch_folder([self.place.final]), words)

    def join(self, budget: int, path: str) -> DiskArray:
        """Open what the first rank has created."""
        return self.target.reopen(budget)

    def sized(self, shape: tuple[int, ...]) -> None:
        """It will have this shape."""
        self.target = replace(self.target, result=replace(self.target.result, shape=shape))

    def publish(self) -> None:
        """Give it its name, unless a job that was killed then has done so."""
        if self.place.inside or os.path.lexists(self.place.partial_outer):
            self.place.publish()

    def opened(self, ranks: Ranks) -> DiskArray:
        """The complete array."""
        words: dict[str, Any] = {} if self.target.format is None else {"format": self.target.format}
        result = self.target.result
        if formats.format_of_new(self.place.final, self.target.format) == "raw":
            words |= {"dtype": result.dtype, "shape": result.shape, **self.target.options}
        return ranks.open(self.place.final, **words)

    def leave(self) -> None:
        """Who comes after this may go on with it."""

    def discard(self) -> None:
        """Remove what was begun."""
        with contextlib.suppress(StorageError):  # the first error is the one to tell
            self.place.discard()


class _Given:
    """An array that the user has opened."""

    held = 0

    def __init__(self, operation: str, array: Any) -> None:
        self.operation, self.array = operation, array

    @property
    def stays(self) -> bool:
        return isinstance(self.array, DiskArray)

    @property
    def containers(self) -> Files:
        return containers(self.array)

    def begin(self, budget: int, *, again: bool) -> Any:
        return self.array

    def like(self, words: Mapping[str, Any]) -> Any:
        return self.array

    def join(self, budget: int, path: str) -> Any:
        return self.array

    def sized(self, shape: tuple[int, ...]) -> None:
        _check_shape(self.operation, self.array, shape)

    def publish(self) -> None:
        """It has its place."""

    def opened(self, ranks: Ranks) -> Any:
        return self.array.data if isinstance(self.array, InMemory) else self.array

    def leave(self) -> None:
        """It is the user's."""

    discard = leave


class _Returned:
    """A NumPy array, counted in the budget while the job runs."""

    stays = False
    containers: Files = frozenset()

    def __init__(self, result: Result) -> None:
        self.result, self.held = result, result.nbytes

    def begin(self, budget: int, *, again: bool) -> InMemory:
        _check_small(self.held, budget)
        self.reserved = _core.Reservation("a result", self.held)
        self.array = InMemory(np.zeros(self.result.shape, self.result.dtype), "the result")
        return self.array

    def like(self, words: Mapping[str, Any]) -> InMemory:
        nothing = np.broadcast_to(np.zeros((), self.result.dtype), self.result.shape)
        return InMemory(nothing, "the result")

    def join(self, budget: int, path: str) -> InMemory:
        raise NotImplementedError("ranks gather it")

    def sized(self, shape: tuple[int, ...]) -> None:
        self.result = replace(self.result, shape=shape)
        self.held = self.result.nbytes

    def publish(self) -> None:
        self.reserved.release()

    def opened(self, ranks: Ranks) -> NDArray[Any]:
        return self.array.data

    def leave(self) -> None:
        if hasattr(self, "reserved"):
            self.reserved.release()

    discard = leave


class _Gathered:
    """What is in memory in the end, and on disk as long as ranks compute parts of it."""

    stays = False
    containers: Files = frozenset()

    def __init__(self, operation: str, result: Result, folder: str, into: InMemory | None) -> None:
        self.operation, self.scratch = operation, _Temporary(result, folder, {})
        self.into, self.held = into, 0 if into is not None else result.nbytes

    def begin(self, budget: int, *, again: bool) -> DiskArray:
        _check_small(self.held, budget)
        return self.scratch.begin(budget, again=again)

    def like(self, words: Mapping[str, Any]) -> DiskArray:
        return self.scratch.like(words)

    def join(self, budget: int, path: str) -> DiskArray:
        _check_small(self.held, budget)
        return self.scratch.join(budget, path)

    def sized(self, shape: tuple[int, ...]) -> None:
        if self.into is not None:
            _check_shape(self.operation, self.into, shape)
        self.scratch.sized(shape)
        self.held = 0 if self.into is not None else self.scratch.result.nbytes

    def publish(self) -> None:
        """It has no name."""

    def opened(self, ranks: Ranks) -> NDArray[Any]:
        array = self.scratch.opened(ranks)
        into = np.empty(array.shape, array.dtype) if self.into is None else self.into.data

        def read() -> None:
            with _core.Reservation("a result", self.held):
                into[...] = array[...]

        try:
            ranks.together(read)
        finally:
            self.discard()
        return into

    def leave(self) -> None:
        self.scratch.leave()

    def discard(self) -> None:
        self.scratch.discard()


class _Temporary:
    """An array on disk that goes away with its handle: with that of the last rank."""

    held = 0
    stays = False
    containers: Files = frozenset()

    def __init__(self, result: Result, folder: str, options: Mapping[str, Any]) -> None:
        self.result, self.folder, self.options = result, folder, options
        self.array: DiskArray | None = None

    def begin(self, budget: int, *, again: bool) -> DiskArray:
        self.array = temporary(self.result, self.folder, self.options)
        return self.array

    def like(self, words: Mapping[str, Any]) -> DiskArray:
        return temporary(self.result, self.folder, self.options)

    def join(self, budget: int, path: str) -> DiskArray:
        self.array = open(path, "r+", hints=_COMPLETE)
        return self.array

    def sized(self, shape: tuple[int, ...]) -> None:
        self.result = replace(self.result, shape=shape)

    def publish(self) -> None:
        """It has no name."""

    def opened(self, ranks: Ranks) -> DiskArray:
        assert self.array is not None
        if ranks.size > 1:
            mine = self.array
            self.array = found = ranks.open(ranks.told(lambda: mine.path), hints=_COMPLETE)
            # Before anybody may release it.
            ranks.together(lambda: _keep_together(found))
            if isinstance(mine.handle.remove_on_close, weakref.finalize):
                mine.handle.remove_on_close.detach()
                mine.handle.remove_on_close = None
            mine.close()
        return self.array

    def leave(self) -> None:
        if self.array is not None:
            self.array.close()

    def discard(self) -> None:
        self.leave()  # it goes when it is closed


def small(outputs: Sequence[Output], budget: int) -> bool:
    """Whether a budget holds each result in memory twice, which leaves something to work with."""
    return all(one.held <= budget // 2 for one in outputs)


def too_large(nbytes: int, budget: int, needed: int) -> BudgetError:
    """A result in memory takes too much of the budget; `needed` bytes do for everything."""
    return BudgetError(
        f"the result of {nbytes} bytes is more than half of the budget of {budget}; {needed} do for "
        "all. Say where it is to go (out=), or raise memory= (and outcore.memory)",
        code="budget-too-small",
        needed=needed,
    )


def _check_small(nbytes: int, budget: int) -> None:
    if nbytes > budget // 2:
        raise too_large(nbytes, budget, 2 * nbytes)


def outputs(
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
    What ``out=`` says: one output for each result.

    Parameters
    ----------
    operation
        Name of it, for messages.
    inputs
        The arrays that are read.
    results
        What is to be made.
    out
        None, a path, an open array or a NumPy array; a tuple of these if there are several results.
    options
        For `outcore.create`, and ``format``.
    overwrite
        Replace what is there.
    alone
        There is one rank; of several each stores parts of what is in memory in the end.
    """
    outs = out if isinstance(out, tuple) else (out,) * (1 if out is not None else len(results))
    if len(outs) != len(results):
        raise UsageError(
            f"{operation}: out= names {len(outs)} arrays for {len(results)} results; give a tuple "
            "with one for each (None: a temporary one)",
            code="bad-out",
        )
    named = sum(isinstance(one, str | os.PathLike) for one in outs)
    if options and not named and any(one is not None for one in outs):
        raise UsageError(
            f"{operation}: {', '.join(options)} say how a new array is made; out= is one that exists",
            code="unknown-option",
        )
    if options and not named and all(result.small for result in results):
        # Left alone, a misspelt argument, or one of NumPy's that is missing here, would change nothing.
        raise UsageError(
            f"{operation}() has no option {next(iter(options))!r} for a result in memory; beside its "
            "arguments it takes out=, memory=, progress=, resume=, overwrite=, explain= and comm=, and "
            "with a path in out= options of the new array",
            code="unknown-option",
        )
    folder = scratch_folder([a.path for a in inputs if isinstance(a, DiskArray)])
    made: list[Output] = []
    for one, result in zip(outs, results, strict=True):
        if one is None:
            in_memory = _Returned(result) if alone else _Gathered(operation, result, folder, None)
            made.append(in_memory if result.small else _Temporary(result, folder, options))
        elif isinstance(one, str | os.PathLike):
            made.append(_named(one, inputs, result, options, overwrite=overwrite))
        else:
            given = _checked(operation, one, inputs, result)
            if isinstance(given, InMemory) and not alone:
                made.append(_Gathered(operation, result, folder, given))
            else:
                made.append(_Given(operation, given))
    places = [one.place.final for one in made if isinstance(one, Named)]
    if len(set(places)) < len(places):
        raise UsageError(f"{operation}: out= names one array twice", code="bad-out")
    given = [one.array for one in made if isinstance(one, _Given)]
    if any(overlap(a, b) for a, b in combinations(given, 2)):
        raise UsageError(
            f"{operation}: arrays of out= share elements, and each result would be stored over another; "
            "give each result an array of its own",
            code="bad-out",
        )
    return made


def _named(
    path: str | os.PathLike[str],
    inputs: Sequence[Any],
    result: Result,
    options: Mapping[str, Any],
    *,
    overwrite: bool,
) -> Named:
    words = dict(options)
    format = words.pop("format", None)
    formats.check_new(path, format, {k: v for k, v in words.items() if k not in _CREATE})
    reads = [a.path for a in inputs if isinstance(a, DiskArray)]
    place = Place.of(one_name(path), reads, overwrite, format)
    return Named(Target(result, place, format, words))


# What `outcore.create` takes for every format.
_CREATE = ("order", "chunks", "shards", "compression")


def _checked(operation: str, out: Any, inputs: Sequence[Any], result: Result) -> Any:
    """An array that exists, as one that the result can be stored into."""
    if isinstance(out, np.ndarray):
        out = InMemory(out, "out=")
        writable = out.data.flags.writeable
    elif isinstance(out, DiskArray):
        out.handle.check_open("write to")
        writable = out.writable
    else:
        raise UsageError(
            f"{operation}: out={out!r} is no path, open array or NumPy array", code="bad-out"
        )
    if not writable:
        raise UsageError(
            f"{operation}: {out.path!r} cannot be written to; open it with mode 'r+'",
            code="read-only",
            path=out.path,
        )
    if isinstance(out, InMemory) and _repeats(out.data):
        raise UsageError(
            f"{operation}: out= is a view that has some elements more than once (shape {out.shape}, "
            f"strides {out.data.strides}), which would be stored over each other; give an array of "
            "its own",
            code="bad-out",
        )
    if not result.at_most:
        _check_shape(operation, out, result.shape)
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise UsageError(
            f"{operation}: the result is {result.dtype} and cannot be cast to {out.dtype}, the dtype of "
            "out=, under casting='same_kind'",
            code="bad-cast",
            path=out.path,
        )
    if any(overlap(a, out) for a in inputs):
        raise UsageError(
            f"{operation}: out= shares elements with an input, which are still read when the first ones "
            "are written; choose another array",
            code="same-file",
            path=out.path,
        )
    return out


def _repeats(data: NDArray[Any]) -> bool:
    """
    Whether a view may have an element twice, as `numpy.broadcast_to` and sliding windows make them.

    Slices and permuted axes of arrays have steps along each axis that pass all of the axes before.
    """
    passed = data.itemsize
    for step, n in sorted(zip(map(abs, data.strides), data.shape, strict=True)):
        if n > 1 and step < passed:
            return data.size > 0
        passed += (n - 1) * step
    return False


def _check_shape(operation: str, out: Any, shape: tuple[int, ...]) -> None:
    if tuple(out.shape) != shape:
        raise UsageError(
            f"{operation}: out= has shape {tuple(out.shape)}, the result {shape}",
            code="out-mismatch",
            path=out.path,
        )


def temporary(result: Result, folder: str, options: Mapping[str, Any] | None = None) -> DiskArray:
    """
    An array on disk that goes away with its handle, or with the process.

    Its name says which process made it, so that those of a process that was killed can be found.
    """
    words = dict(options or {})
    kept = {k: v for k, v in result.kept.items() if k == "order" and v is not None}
    suffix, inner = name_of_scratch(words)
    name = f".outcore-scratch-{os.getpid()}-{os.urandom(6).hex()}{suffix}"
    path = os.path.join(folder, name)
    hints = Hints.of(Hints(exclusive=True, missing="error"))  # it is read when it is complete
    # It goes away soon: what is not asked for, encoding, would take time for nothing.
    words = {"compression": None, **kept, **words}
    array: DiskArray = create(path + inner, result.shape, result.dtype, hints=hints, **words)
    array.handle.remove_on_close = at_termination(
        weakref.finalize(array, _remove, path, os.getpid()), path
    )
    return array


def name_of_scratch(words: Mapping[str, Any]) -> tuple[str, str]:
    """How the name of an array with these options ends, and its name inside."""
    suffix = {"zarr2": ".zarr", "zarr": ".zarr", "hdf5": ".h5", "netcdf4": ".nc"}.get(
        words.get("format", ""),
        ".zarr" if {"chunks", "shards"} & set(words) or _encodes(words) else ".npy",
    )
    return suffix, "::/data" if suffix in (".h5", ".nc") else ""


def _encodes(words: Mapping[str, Any]) -> bool:
    """Whether options ask for codecs."""
    return words.get("compression") not in (None, (), "none")


def _keep_together(array: DiskArray) -> None:
    """A temporary array stays as long as any rank has a handle: each has a lock on it."""
    path = formats.split_path(array.path)[0]
    access = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR
    lock = os.open(path, access | os.O_CLOEXEC)
    locks.lock_file(lock, fcntl.LOCK_SH, wait=True)
    array.handle.remove_on_close = at_termination(
        weakref.finalize(array, _remove_as_last, path, lock, os.getpid()), path
    )


def _remove_as_last(path: str, lock: int, owner: int) -> None:
    if os.getpid() != owner:
        return
    try:
        # Another rank may have it still; without locks nobody knows, and it stays for `jobs.clean`.
        if locks.lock_file(lock):
            _remove(path, owner)
    finally:
        os.close(lock)


def _remove(path: str, owner: int) -> None:
    if os.getpid() != owner:
        return  # a child after a fork
    forget_termination(path)
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            durable.unlink_in_background(path)
