"""
`checkpoint`, `icheckpoint` and `restore`: save arrays in memory to a folder and read them back.

Problem. A program needs one call that saves everything it needs to continue, on any number of ranks. The
call may fail on any rank at any moment, and the last checkpoint must then still exist.
Approach. Ranks agree on the contents. The first rank makes a generation with an empty file for each
array (`folder`). All ranks write their parts with collective writes and flush. Then the first rank makes
the generation current. `icheckpoint` does the same with copies, as a started collective call.

Invariants. All ranks return, or all raise. A failure on one rank before the ranks have synchronised,
including insufficient memory for a copy, is raised on all ranks at the first synchronisation. Copies
count in the memory budget as long as they exist.

References: the checkpoint library of *Disk Resident Arrays* (Foster, Nieplocha), section 2; PASSION,
section 3.2, for arrays in any distribution.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from outcore import _core, formats
from outcore.arrays.opening import create, open
from outcore.base.distribution import Distribution
from outcore.base.hints import Hints
from outcore.base.requests import StartedRequests
from outcore.errors import (
    BudgetError,
    CollectiveError,
    FormatError,
    OutcoreError,
    StorageError,
    UsageError,
)
from outcore.formats import homes
from outcore.formats.defaults import PLAIN_SUFFIX
from outcore.formats.paths import one_name
from outcore.ranks.collective.array import CollectiveArray
from outcore.ranks.collective.request import CollectiveRequest, start_call
from outcore.ranks.dist import DistArray
from outcore.ranks.ranks import Ranks, collective
from outcore.ranks.restart.folder import CheckpointEntry, CheckpointManifest, Folder
from outcore.ranks.transport import SerialTransport

__all__ = ["checkpoint", "icheckpoint", "restore"]

# Used by programs that name no ranks: their started checkpoints are also written in order.
_ALONE = SerialTransport()
_STARTED = StartedRequests()
# A name becomes a file name, to which a suffix may be added.
_LONGEST_NAME = 200
# Number of attempts to read a checkpoint that is replaced during the read.
_TRIES = 5


@dataclass(frozen=True)
class _SavedArray:
    """One array to save: its file, its kind, and this rank's part."""

    file: str
    kind: str
    part: DistArray


@collective
def checkpoint(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    *,
    comm: Any = None,
    hints: Hints | Mapping[str, Any] | None = None,
) -> None:
    """
    Save arrays to disk, so that a program can continue from them after a crash. Collective.

    The call is atomic: the previous checkpoint in `path` remains until the new one is complete and
    durable. After a crash or a kill at any moment, `restore` finds one of the two.

    Parameters
    ----------
    path
        Folder of the checkpoint, created if it does not exist. All ranks name the same folder, on a file
        system that they share.
    arrays
        Mapping of names to values: a `DistArray` (saved without its ghosts) in any distribution; a
        `numpy.ndarray` that all ranks have, of which that of rank 0 is saved; a NumPy scalar; or a value
        that JSON can represent (None, bool, int, float, str, lists and dicts of these), equal on all
        ranks. A name becomes a file name: its suffix determines the format (``"u.h5"``, ``"u.zarr"``),
        and ``.npy`` is added to names without one.
    comm
        Communicator of mpi4py, or transport. By default that of the first `DistArray`, or this process
        alone.
    hints
        Hints for writing; they never change the contents.

    Raises
    ------
    UsageError
        ``bad-checkpoint``: a name or value cannot be saved, or `path` is not the folder of a checkpoint.
    StorageError, FormatError
        An operating system call failed, or the folder holds a checkpoint of a later version.
    CollectiveError
        With several ranks, on all ranks if any rank failed (``__cause__`` is its error) or gave other
        arguments (``mismatched-call``).

    Notes
    -----
    ``path/checkpoint.json`` lists arrays, values, and the folder ``path/arrays-N`` of the files. Each is
    an ordinary file: ``numpy.load("state/arrays-1/u.npy")``. While a checkpoint is written, the disk
    holds two. The next checkpoint removes leftovers of killed processes.

    Memory as for `CollectiveArray.write_all`: slots, no copies of arrays.

    Checkpoints of distributed arrays as in Disk Resident Arrays (Foster and Nieplocha); written in any
    distribution by the extended two-phase method (Thakur and Choudhary, section 3.2).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.mpi.checkpoint("state", {"u": np.arange(6.0), "step": 17})
    >>> outcore.mpi.restore("state")["step"]
    17
    >>> np.load("state/arrays-1/u.npy")
    array([0., 1., 2., 3., 4., 5.])
    """
    ranks = _find_ranks("checkpoint", comm, arrays)
    with _watch_failures(ranks):
        ranks.finish_started()
        _write(ranks, path, lambda: _collect_items(ranks, arrays), hints)


def icheckpoint(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    *,
    comm: Any = None,
    hints: Hints | Mapping[str, Any] | None = None,
) -> CollectiveRequest[None]:
    """
    Start to save arrays to disk, and return immediately; see `checkpoint`. Collective.

    The arrays are copied first, so the program can continue and change them.

    Parameters
    ----------
    path, arrays, comm, hints
        As for `checkpoint`.

    Returns
    -------
    CollectiveRequest
        Request whose `wait` returns when the checkpoint is complete and durable, or raises the errors of
        `checkpoint`, on all ranks. Its `test` never waits.

    Raises
    ------
    UsageError
        ``bad-communicator``. `wait` raises all other errors on all ranks, including `BudgetError` for a
        copy; the previous checkpoint then remains.

    Notes
    -----
    The copies of this rank's parts count in the memory budget until the checkpoint is written. If they
    do not fit, the call first waits for checkpoints in flight. Any number of checkpoints may be in
    flight. They are written in the order in which they were started (`CollectiveArray.iread_all`), and
    the end of the process waits for them.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> u = np.zeros(6)
    >>> requests = []
    >>> for step in range(3):
    ...     u += 1
    ...     requests.append(outcore.mpi.icheckpoint("state", {"u": u, "step": step}))
    >>> for request in requests:
    ...     request.wait()
    >>> outcore.mpi.restore("state")
    {'u': array([3., 3., 3., 3., 3., 3.]), 'step': 2}
    """
    ranks = _find_ranks("checkpoint", comm, arrays)
    held = contextlib.ExitStack()
    found: dict[str, _SavedArray | Any] = {}
    failure: BaseException | None = None
    try:
        found = _copy_items(ranks, _collect_items(ranks, arrays), held)
    except Exception as error:
        failure = error

    def copy_values() -> dict[str, _SavedArray | Any]:
        if failure is not None:
            raise failure
        return found

    def write() -> None:
        try:
            with _watch_failures(ranks):
                _write(ranks, path, copy_values, hints)
        finally:
            found.clear()
            held.close()

    return start_call(ranks.group, _STARTED, f"checkpoint {path!r}", write, writes=True)


@collective
def restore(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    into: Mapping[str, Distribution | DistArray | NDArray[Any]] | None = None,
    comm: Any = None,
    hints: Hints | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Read a checkpoint, on any number of ranks. Collective.

    Parameters
    ----------
    path
        Folder of the checkpoint.
    names
        Names to read; by default all. The same on all ranks.
    into
        Mapping of names to targets: a `Distribution` (makes a new `DistArray`), or a `DistArray` (filled
        including ghosts) or `numpy.ndarray` of the same shape and dtype.
    comm
        Communicator or transport of the ranks, which may differ from those that made the checkpoint. By
        default that of the first `DistArray` in `into`, or this process alone.
    hints
        Hints for reading; they never change results.

    Returns
    -------
    dict
        Arrays and values by name, arrays first. A distributed array becomes a `DistArray`, in blocks
        along its first axis, or along its longest axis if the first has fewer indices than there are
        ranks; without `comm` and `into` it becomes a `numpy.ndarray`. All ranks get the NumPy arrays,
        NumPy scalars and values.

    Raises
    ------
    FormatError
        ``bad-checkpoint``: the folder has no checkpoint, or a file is not the saved one.
        ``bad-metadata``: the manifest is damaged. ``no-such-array``: the checkpoint does not have a
        name.
    StorageError
        ``missing-chunk``: a chunk of an array is missing. ``not-found`` and others: an operating system
        call failed.
    UsageError, DistributionError
        `into` does not match.
    CollectiveError
        With several ranks, on all ranks as for `checkpoint`.

    Notes
    -----
    If another checkpoint replaces this one during the call, everything is read again, so the result is
    never a mixture. The memory of the arrays belongs to the caller and does not count in the memory
    budget. Memory in addition as for `CollectiveArray.read_all`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> def keep(comm):
    ...     rows = outcore.mpi.Distribution((6, 4), ["block", "*"], comm.size)
    ...     u = outcore.mpi.DistArray.from_function(lambda i, j: 10 * i + j, rows, transport=comm)
    ...     outcore.mpi.checkpoint("state", {"u": u, "step": 17})
    >>> _ = SimWorld(3).run(keep)
    >>> def go_on(comm):
    ...     columns = outcore.mpi.Distribution((6, 4), ["*", "cyclic"], comm.size)
    ...     found = outcore.mpi.restore("state", into={"u": columns}, comm=comm)
    ...     return found["step"], found["u"].owned[5].tolist()
    >>> SimWorld(2).run(go_on)
    [(17, [50.0, 52.0]), (17, [51.0, 53.0])]
    >>> outcore.mpi.restore("state")["u"].shape
    (6, 4)
    """
    wanted = {} if into is None else dict(into)
    ranks = _find_ranks("restore", comm, wanted)
    alone = comm is None and not any(isinstance(one, DistArray) for one in wanted.values())
    with _watch_failures(ranks):
        ranks.finish_started()
        some = None if names is None else list(names)
        return _restore(ranks, path, some, wanted, hints, alone=alone)


def _restore(
    ranks: Ranks,
    path: str | os.PathLike[str],
    some: list[str] | None,
    wanted: Mapping[str, Any],
    hints: Hints | Mapping[str, Any] | None,
    *,
    alone: bool,
) -> dict[str, Any]:
    """Read the names from one checkpoint, even if another one replaces it during the call."""
    places: list[str] = []

    def say() -> str:
        places.append(one_name(path))
        for name, one in wanted.items():
            _check_wanted(ranks, name, one)
        told = {name: _describe(one) for name, one in wanted.items()}
        return f"restore({os.path.realpath(places[0])!r}, names={some}, into={told})"

    ranks.run_on_all(say, meaning=str)
    place = places[0]
    for turn in range(_TRIES):
        manifest = _read_manifest(ranks, place)
        failure: BaseException | None = None
        found: dict[str, Any] = {}
        try:
            with _watch_failures(ranks):
                found = _read(ranks, place, manifest, some, wanted, hints, alone=alone)
        except BaseException as error:
            failure = error

        def go_on(failure: BaseException | None = failure) -> None:
            if failure is not None and not isinstance(failure, OutcoreError):
                raise failure  # the other ranks only learn that an interrupted rank failed

        ranks.run_on_all(go_on)
        # A newer checkpoint removes the files of this one, perhaps while they were read.
        if _read_manifest(ranks, place).is_same(manifest) or turn == _TRIES - 1:
            if failure is not None:
                raise failure
            return found
    raise AssertionError  # unreachable: the last attempt returns or raises


def _find_ranks(name: str, comm: Any, arrays: Mapping[str, Any]) -> Ranks:
    """Return the ranks that take part in the call `name`."""
    if comm is None and isinstance(arrays, Mapping):
        found = [one.transport for one in arrays.values() if isinstance(one, DistArray)]
        comm = found[0] if found else None
    ranks = Ranks.of(comm, name)
    return Ranks(_ALONE, name) if isinstance(ranks.group, SerialTransport) else ranks


def _watch_failures(ranks: Ranks) -> contextlib.AbstractContextManager[None]:
    """Raise an error of one rank on all ranks, between two synchronisations."""
    return ranks.raise_on_all() if ranks.size > 1 else ranks.raise_cause_if_alone()


# Saving


def _collect_items(ranks: Ranks, arrays: Mapping[str, Any]) -> dict[str, _SavedArray | Any]:
    """Check the arrays and values to save; return values as they will be read from JSON."""
    if not isinstance(arrays, Mapping):
        raise UsageError(
            f"arrays is a {type(arrays).__name__}, not a mapping of names to arrays; pass "
            f"{{'name': array}}",
            code="bad-checkpoint",
        )
    found: dict[str, _SavedArray | Any] = {}
    files: dict[str, str] = {}
    for name, one in arrays.items():
        if not isinstance(one, DistArray | np.ndarray | np.generic):
            found[_check_name(name)] = _normalize_json(name, one)
            continue
        file = _choose_file(_check_name(name))
        if file in files:
            raise UsageError(
                f"the arrays {files[file]!r} and {name!r} would have the same file {file!r}; rename "
                "one",
                code="bad-checkpoint",
            )
        files[file] = name
        if isinstance(one, DistArray):
            _check_ranks(ranks, name, one)
            part = DistArray(one.distribution, one.owned, transport=ranks.group)
            found[name] = _SavedArray(file, "distributed", part)
        else:
            kind = "array" if isinstance(one, np.ndarray) else "scalar"
            every = Distribution.replicated(one.shape, ranks.size)
            part = DistArray(every, np.asarray(one), transport=ranks.group)
            found[name] = _SavedArray(file, kind, part)
    return found


def _check_name(name: Any) -> str:
    fits = isinstance(name, str) and name and not name.startswith(".") and _is_text(name)
    if not fits or set(name) & {"/", "\0"} or "::" in name or len(name.encode()) > _LONGEST_NAME:
        raise UsageError(
            f"{name!r:.300} cannot be a name in a checkpoint, because it names a file; pass text "
            f"of at most {_LONGEST_NAME} bytes without '/' and '::' that does not begin with a dot",
            code="bad-checkpoint",
        )
    return str(name)


def _is_text(value: str) -> bool:
    """Return whether a string can be encoded in UTF-8; single surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _choose_file(name: str) -> str:
    """Return the file of an array; add ``.npy`` unless its suffix is a format with metadata."""
    try:
        has_metadata = not formats.choose_format(name).unrecorded_options
    except UsageError:
        has_metadata = False
    return name if has_metadata else name + PLAIN_SUFFIX


def _normalize_json(name: str, value: Any) -> Any:
    """Return a value as it will be read from JSON."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict) and all(isinstance(key, str) for key in one):
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one
        elif one is not None and type(one) not in (bool, int, float, str):
            raise UsageError(
                f"{name!r} is or contains a {type(one).__name__}, which a checkpoint cannot store; "
                "pass a DistArray, a NumPy array or scalar, or JSON values",
                code="bad-checkpoint",
            )
    try:
        json.dumps(
            value, ensure_ascii=False
        ).encode()  # single surrogates cannot be encoded in UTF-8
        return json.loads(json.dumps(value))
    except (ValueError, RecursionError) as error:  # it contains itself; an integer has 5000 digits
        raise UsageError(
            f"{name!r} cannot be stored as JSON ({error!s:.200}); pass an array",
            code="bad-checkpoint",
        ) from error


def _check_ranks(ranks: Ranks, name: str, array: DistArray) -> None:
    if array.transport is not ranks.group and not array.transport.size == ranks.size == 1:
        raise UsageError(
            f"the DistArray {name!r} is divided over other ranks than those that make this call; "
            "pass its communicator or transport as comm=",
            code="bad-checkpoint",
        )


def _copy_items(
    ranks: Ranks, kept: dict[str, _SavedArray | Any], held: contextlib.ExitStack
) -> dict[str, _SavedArray | Any]:
    """Return the same with copies of the elements that this rank owns, which count in the budget."""
    owned = {
        name: one.part
        for name, one in kept.items()
        if isinstance(one, _SavedArray) and one.part.distribution.is_owner(ranks.rank)
    }
    nbytes = sum(part.local.nbytes for part in owned.values())
    try:
        held.enter_context(_core.Reservation("a checkpoint", nbytes))
    except BudgetError:
        if ranks.group.in_flight.last is None:
            raise
        ranks.finish_started()  # they release the memory of their copies
        held.enter_context(_core.Reservation("a checkpoint", nbytes))
    found: dict[str, _SavedArray | Any] = {}
    for name, one in kept.items():
        if isinstance(one, _SavedArray):
            local = one.part.local
            if name in owned:
                memory = local.copy(order="K")
            else:  # no element of it is written
                memory = np.broadcast_to(np.zeros((), local.dtype), local.shape)
            part = DistArray(one.part.distribution, memory, transport=ranks.group)
            found[name] = replace(one, part=part)
        else:
            found[name] = one
    return found


def _write(
    ranks: Ranks,
    path: Any,
    bring: Callable[[], dict[str, _SavedArray | Any]],
    hints: Hints | Mapping[str, Any] | None,
) -> None:
    kept: dict[str, _SavedArray] = {}
    values: dict[str, Any] = {}
    names: list[str] = []

    def say() -> str:
        names.append(one_name(path))
        found = bring()
        for name, one in found.items():
            (kept if isinstance(one, _SavedArray) else values)[name] = one
        arrays = {name: (one.kind, _describe(one.part)) for name, one in kept.items()}
        place = os.path.realpath(names[0])
        return f"checkpoint({place!r}, {arrays}, values {json.dumps(values)})"

    ranks.run_on_all(say, meaning=str)
    place = Folder(names[0])
    try:
        number = ranks.broadcast_from_first(lambda: place.begin())
        files = {name: place.get_path(number, one.file) for name, one in kept.items()}

        def make() -> None:
            for name, one in kept.items():
                shape, dtype = one.part.shape, one.part.dtype
                # Ranks write parts of chunks, so chunks are not compressed.
                create(files[name], shape, dtype, compression=None).close()

        ranks.run_on_first(make)
        arrays: dict[str, CheckpointEntry] = {}
        with contextlib.ExitStack() as stack:
            opened: list[CollectiveArray] = []
            for name, one in kept.items():
                array = open(files[name], "r+", comm=ranks.group, hints=hints)
                opened.append(stack.enter_context(array))
                array.handle.core.expect_flush()  # starts to write to the disk early
                one.part.write_all(array)
                dtype = _format_dtype(array.dtype)
                arrays[name] = CheckpointEntry(one.file, one.kind, array.shape, dtype)
            for array in opened:
                array.flush_all()
        manifest = CheckpointManifest(number, arrays, values)
        ranks.run_long_step(lambda: place.publish(manifest) if ranks.is_first else None)
    finally:
        place.end()


def _format_dtype(dtype: np.dtype[Any]) -> str:
    """Return a text that is equal for equal dtypes."""
    descr: Any = npy_format.dtype_to_descr(dtype)
    return descr if isinstance(descr, str) else json.dumps(descr)


# Reading


def _describe(one: Any) -> str:
    """Return a description that is equal on all ranks with the same argument."""
    if isinstance(one, Distribution):
        return str(one)
    if isinstance(one, DistArray):
        return f"DistArray {one.shape} {one.dtype}, {one.distribution}"
    return f"array {one.shape} {one.dtype}"


def _check_wanted(ranks: Ranks, name: str, one: Any) -> None:
    if isinstance(one, DistArray):
        _check_ranks(ranks, name, one)
    elif isinstance(one, Distribution):
        if one.grid.size != ranks.size:
            raise UsageError(
                f"the distribution for {name!r} is over {one.grid.size} ranks, but {ranks.size} make "
                "this call; pass comm=, or a distribution over as many ranks",
                code="bad-grid",
            )
    elif not isinstance(one, np.ndarray):
        raise UsageError(
            f"into[{name!r}] is a {type(one).__name__}; pass a Distribution, a DistArray or a "
            "numpy.ndarray",
            code="bad-checkpoint",
        )


def _read_manifest(ranks: Ranks, path: str) -> CheckpointManifest:
    place = Folder(path)
    document = ranks.broadcast_from_first(lambda: place.read().to_document())
    return CheckpointManifest.of(document, place.path)


def _read(
    ranks: Ranks,
    path: str,
    manifest: CheckpointManifest,
    names: list[str] | None,
    into: Mapping[str, Any],
    hints: Hints | Mapping[str, Any] | None,
    *,
    alone: bool,
) -> dict[str, Any]:
    there = {**manifest.arrays, **manifest.values}
    for name in [*(names or ()), *into]:
        if name not in (manifest.arrays if name in into else there):
            raise FormatError(
                f"the checkpoint {path!r} does not have an array {name!r}; pass one of "
                f"{', '.join(map(repr, there))}",
                code="no-such-array",
                path=path,
            )
    found: dict[str, Any] = {}
    for name in there if names is None else names:
        if name not in manifest.arrays:
            found[name] = manifest.values[name]
            continue
        entry = manifest.arrays[name]
        place = Folder(path)
        file = place.get_path(manifest.generation, entry.file)
        if homes.find_outside([file], "", place.path) is not None:
            raise FormatError(
                f"{file!r} is a link that points outside the folder of the checkpoint; replace it by "
                "the array itself",
                code="names-outside",
                path=file,
            )
        # All chunks were written, so a missing chunk was lost.
        with open(file, comm=ranks.group, hints=replace(Hints.of(hints), missing="error")) as array:
            if array.shape != entry.shape or _format_dtype(array.dtype) != entry.dtype:
                raise FormatError(
                    f"{file!r} has shape {array.shape} and dtype {array.dtype}, but the checkpoint "
                    f"specifies {entry.shape} and {entry.dtype}; restore the file from a copy",
                    code="bad-checkpoint",
                    path=file,
                )
            try:
                found[name] = _read_array(ranks, array, entry, into.get(name), alone=alone)
            except OutcoreError as error:
                cause = error.__cause__ if isinstance(error, CollectiveError) else error
                if isinstance(cause, StorageError) and cause.code == "missing-chunk":
                    cause.message = (
                        f"a chunk of {file!r} is missing, although checkpoint() wrote all of them; "
                        "restore the checkpoint from a copy"
                    )
                raise
    return found


def _read_array(
    ranks: Ranks, array: CollectiveArray, entry: CheckpointEntry, wanted: Any, *, alone: bool
) -> Any:
    """Read an array into its target."""
    if wanted is None and entry.kind == "distributed" and not alone:
        wanted = _choose_blocks(array.shape, ranks.size)
    if isinstance(wanted, Distribution):
        wanted = DistArray.empty(wanted, array.dtype, transport=ranks.group)
    if isinstance(wanted, DistArray):
        wanted.read_all(array, ghosts=True)
        return wanted
    result = array.read_all(..., out=wanted)
    return result[()] if entry.kind == "scalar" and wanted is None else result


def _choose_blocks(shape: tuple[int, ...], size: int) -> Distribution:
    """Return blocks along the first axis, or along the longest axis if the first has too few indices."""
    if not shape:
        return Distribution.replicated(shape, size)
    axis = 0 if shape[0] >= size else int(np.argmax(shape))
    return Distribution(shape, ["block" if d == axis else "*" for d in range(len(shape))], size)
