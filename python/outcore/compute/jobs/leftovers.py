"""
Jobs that were interrupted: which there are, how to resume them, and their removal.

Problem. A killed job leaves a journal, an unfinished result and temporary arrays. The user who
finds them weeks later should neither guess what they are nor remove what a running job works on.
Idea. The journal records what the job is, how many steps are done, what it left and, if it can be
recorded, the call that resumes it. A process that has locked a journal is running its job.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from outcore.base.report.progress import ProgressArgument
from outcore.compute.jobs.calls import decode, repeat_call
from outcore.compute.jobs.journal import (
    SUFFIX,
    Journal,
    acquire_journal,
    find_rank_journals,
    gather_steps,
)
from outcore.compute.jobs.left import (
    check_folders,
    list_removable,
    list_temporaries,
    list_unfinished,
    make_temporary_path,
)
from outcore.compute.jobs.target import discard
from outcore.errors import FormatError, OutcoreError, StorageError, UsageError, find_stack_level
from outcore.formats import durable
from outcore.formats.paths import one_name
from outcore.formats.side_files import UNTRUSTED
from outcore.ranks.ranks import Ranks, collective
from outcore.ranks.resident.temporary import find_left_over, is_lock, remove_left

__all__ = ["SCRATCH", "Unfinished", "clean", "is_half_replaced", "resume", "unfinished"]

#: Stands for the operation of a temporary array that does not belong to a job.
SCRATCH = "a temporary array"
# Exceptions that Python raises for invalid arguments.
_RAW = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# Matches also the temporary name during creation.
_NAME = r"\.outcore-scratch-([0-9]+)-[0-9a-f]+\.\w+"
_SCRATCH = re.compile(rf"{_NAME}|(?=\.{_NAME}){durable.TEMPORARY}")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """
    Job that has not ended, or array that was left by a process that no longer runs.

    Parameters
    ----------
    path
        Path of the journal, or of the array.
    operation
        Name of the operation; ``"a temporary array"``; ``"unknown"`` if the journal is damaged.
    targets
        Names that the results will have.
    done, steps
        Number of completed steps, and of all steps.
    state
        ``"running"`` (another process has locked the journal), ``"resumable"`` (`resume` continues
        it), ``"repeat"`` (in Python, the same call with ``resume=True`` continues it), ``"left"`` (it
        cannot be continued) or ``"foreign"`` (another user made the journal, or may write it; it is
        not touched).
    call
        Call that `resume` makes.
    partial
        Unfinished arrays, and their formats.
    """

    path: str
    operation: str
    targets: tuple[str, ...]
    done: int
    steps: int
    state: str
    call: dict[str, Any] | None
    partial: tuple[tuple[str, str | None], ...]


def unfinished(folder: str | os.PathLike[str] = ".") -> list[Unfinished]:
    """
    List the jobs in a folder that have not ended.

    Parameters
    ----------
    folder
        Folder of the results, or of temporary arrays.

    Returns
    -------
    list of Unfinished
        Jobs and temporary arrays, sorted by path.

    Examples
    --------
    >>> from outcore import jobs
    >>> jobs.unfinished(".")
    []
    """
    return sorted(_find_jobs(one_name(folder)), key=lambda one: one.path)


def _find_jobs(folder: str) -> Iterator[Unfinished]:
    with durable.os_errors("listing", folder):
        names = os.listdir(folder)
    for lock in find_left_over(folder):
        yield Unfinished(lock, SCRATCH, (), 0, 0, "left", None, ((lock, None),))
    for name in names:
        path = os.path.join(folder, name)
        scratch = _SCRATCH.fullmatch(name)
        if scratch and not _is_alive(int(scratch[1] or scratch[2])):
            yield Unfinished(path, SCRATCH, (), 0, 0, "left", None, ((path, None),))
        elif name.endswith(SUFFIX) and os.path.isfile(path):
            entry = _read_entry(path)
            if entry is not None:
                yield entry


def _read_entry(path: str) -> Unfinished | None:
    try:
        with acquire_journal(path, make=False) as journal:
            gather_steps(journal)
            job = dict(journal.job or {})
            kept = journal.cut if isinstance(journal.cut, dict) else {}
            done, steps = len(journal.done), max(journal.steps - 1, 0)
            partial = tuple(list_unfinished(journal))
            operation, targets = _read_operation(journal), _read_targets(journal)
    except UsageError:
        return Unfinished(path, "in use", (), 0, 0, "running", None, ())
    except OutcoreError as error:
        if error.code == "not-found":
            return None  # the job has ended in the meantime
        if error.code == UNTRUSTED:
            return Unfinished(path, "unknown", (), 0, 0, "foreign", None, ())
        return Unfinished(path, "unknown", (), 0, 0, "left", None, ())  # not a journal
    call = kept.get("call")
    if call is not None and not isinstance(call, dict):
        return Unfinished(path, "unknown", (), 0, 0, "left", None, ())
    # A job without steps starts from scratch in any case.
    state = "resumable" if job and call else "repeat" if job and steps else "left"
    return Unfinished(path, operation, targets, done, steps, state, call, partial)


def _read_operation(journal: Journal) -> str:
    return str((journal.job or {}).get("operation", "unknown"))


def _read_targets(journal: Journal) -> tuple[str, ...]:
    job = journal.job or {}
    return tuple(str(job[k]) for k in sorted(job) if re.fullmatch(r"target( [0-9]+)?", k))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@collective
def resume(
    folder: str | os.PathLike[str] = ".",
    *,
    progress: ProgressArgument = None,
    comm: Any = None,
    folders: Sequence[str | os.PathLike[str]] = (),
) -> list[str]:
    """
    Resume all jobs in a folder whose calls were recorded.

    Parameters
    ----------
    folder
        Folder of the results.
    progress
        Function called as ``progress(done, total)`` for each job. True shows a progress bar.
    comm
        A communicator of mpi4py, or a transport. Its ranks share the remaining steps of each job,
        whatever number of ranks began it. Collective.
    folders
        Other folders in which jobs may create arrays. A journal that names any other folder raises
        an error.

    Returns
    -------
    list of str
        Names of the results that are now complete.

    Raises
    ------
    OutcoreError
        Error of a job; the jobs after it are not begun.
    FormatError
        ``bad-journal``: a journal is invalid. ``names-outside``: the job would write in a folder
        that is neither `folder` nor one of `folders`.

    Notes
    -----
    A job uses the memory that its call was given. One process, or the first rank, searches for jobs. A
    journal that another user made, or may write, is skipped with a warning.

    Examples
    --------
    >>> from outcore import jobs
    >>> jobs.resume(".")
    []
    """
    ranks = Ranks.of(comm, "resume")
    allowed = [os.fspath(one) for one in folders]
    meant = [os.path.realpath(one) for one in (folder, *allowed)]
    ranks.check_same_call(lambda: f"jobs.resume({meant!r})", 0)
    complete: list[str] = []
    for journal, call, targets in ranks.broadcast_from_first(lambda: _find_resumable(folder)):
        # The job of a group also completes the jobs of its arrays.
        if not ranks.broadcast_from_first(partial(os.path.lexists, journal)):
            continue
        ranks.run_on_first(partial(_check_call, journal, call, allowed))
        with _blame_journal(journal, progress) as shown:
            found = repeat_call(call, ranks, resume=True, progress=shown)
        for array in found if isinstance(found, tuple) else (found,):
            if array is not None and hasattr(array, "close"):
                array.close()
        complete += targets
    return complete


def _find_resumable(
    folder: str | os.PathLike[str],
) -> list[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Return the journals of jobs that can be resumed, their calls, and the names of their results."""
    found = unfinished(folder)
    for one in found:
        if one.state == "foreign":
            warnings.warn(
                f"{one.path!r} was made by another user, or others may write it; it is skipped",
                stacklevel=find_stack_level(),
            )
    return [
        (one.path, one.call, one.targets)
        for one in found
        if one.state == "resumable" and one.call is not None
    ]


def _check_call(journal: str, call: Mapping[str, Any], folders: Sequence[str]) -> None:
    """Raise ``bad-journal`` for an invalid call, and ``names-outside`` if it would write elsewhere."""
    try:
        function, outs = call["function"], call["out"]
        words = {name: decode(one) for name, one in {**call["arguments"], **call["how"]}.items()}
        parameters = inspect.signature(
            importlib.import_module("outcore.public").find_public(function)
        ).parameters
        target = "dst" if "dst" in parameters else "out"
        makes = [*outs, *_list_paths(words.get("folders")), *_list_paths(words.get("files"))]
        sound = (
            {"resume", "memory", "overwrite", "progress", "how"} & {*parameters} != set()
            and call["out_name"] == target
            and len(outs) > 0
            # `realpath` raises for text that cannot be the name of a file.
            and all(isinstance(path, str) and os.path.realpath(path) for path in makes)
            and all(isinstance(decode(one)["path"], str) for one in call["inputs"])
        )
    except _RAW:
        sound = False
    if not sound:
        raise _bad_journal_error(journal)
    parts = [path for path in _list_paths(words.get("folders")) if os.path.isdir(path)]
    check_folders(journal, [*outs, *(os.path.join(one, "part") for one in parts)], folders)
    check_folders(journal, _list_paths(words.get("files")), folders)


def _list_paths(value: Any) -> list[Any]:
    """Return an option that is a path, or several, as a list."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


@contextlib.contextmanager
def _blame_journal(journal: str, progress: ProgressArgument) -> Iterator[ProgressArgument]:
    """Raise ``bad-journal`` for errors of a recorded call, except those of outcore and of `progress`."""
    failed: list[BaseException] = []

    def show(done: int, total: int) -> None:
        assert callable(progress)
        try:
            progress(done, total)
        except BaseException as error:
            failed.append(error)
            raise

    try:
        yield show if callable(progress) else progress
    except _RAW as error:
        if failed or isinstance(error, OutcoreError):
            raise
        raise _bad_journal_error(journal) from error


def _bad_journal_error(journal: str) -> FormatError:
    return FormatError(
        f"the call in {journal!r} is invalid: the journal is damaged; remove it with "
        "outcore.jobs.clean, then repeat the call",
        code="bad-journal",
        path=journal,
    )


def clean(one: Unfinished, *, folders: Sequence[str | os.PathLike[str]] = ()) -> None:
    """
    Remove a job and everything that it left.

    Parameters
    ----------
    one
        Item of the list that `unfinished` returns.
    folders
        Other folders in which the job may have left arrays.

    Raises
    ------
    UsageError
        ``in-use``: the job is running. ``file-in-use``: a file that holds an unfinished array is open.
        ``half-replaced``: an array that it updates in place has some of its new rows, and the other rows
        exist only in the job.
    FormatError
        ``names-outside``: the journal lists an array in a folder that is neither its own nor one of
        `folders`. Nothing is removed.
    StorageError
        Something cannot be removed. The job stays in the list. ``untrusted-file``: another user made the
        journal, or may write it.

    Examples
    --------
    >>> from outcore import jobs
    >>> for one in jobs.unfinished("."):
    ...     jobs.clean(one)
    """
    if is_lock(one.path):
        with durable.os_errors("removing", one.path), contextlib.suppress(FileNotFoundError):
            remove_left(one.path)
        return
    if not one.path.endswith(SUFFIX):
        _remove(one.path)
        return
    if one.operation == "unknown":
        _remove_damaged(one)
        return
    # Locked, so that no process resumes it meanwhile. It may have ended since it was listed.
    try:
        journal = acquire_journal(one.path, make=False)
    except StorageError as error:
        if error.code == "not-found":
            return
        raise
    with journal:
        if (_read_operation(journal), _read_targets(journal)) != (one.operation, one.targets):
            raise _other_job_error(one)
        if is_half_replaced(journal):
            raise UsageError(
                f"the array that {one.path!r} updates in place has only some of its new rows; "
                "repeat the call with resume=True to write the others. If the array is no longer "
                f"needed, remove {', '.join((path for path, _ in one.partial))} and then the journal",
                code="half-replaced",
                path=one.path,
            )
        for path, format in list_removable(journal, [os.fspath(one) for one in folders]):
            discard(path, format)
        found = list_temporaries(one.path)
        durable.remove_abandoned(make_temporary_path(one.path, len(found)))
        for path in found:
            _remove(path)
        for path in find_rank_journals(one.path):
            _remove(path)
        journal.remove()


def _remove_damaged(one: Unfinished) -> None:
    """Remove a damaged journal, unless it has become valid in the meantime."""
    fd = durable.hold(one.path, look=True)
    if fd is None:
        if os.path.lexists(one.path):
            raise UsageError(
                f"{one.path!r} is locked by another process; wait until it ends",
                code="in-use",
                path=one.path,
            )
        return
    try:
        with contextlib.suppress(FormatError), Journal(one.path, look=True) as now:
            if _read_operation(now) != "unknown":
                raise _other_job_error(one)
        _remove(one.path)
    finally:
        os.close(fd)


def _other_job_error(one: Unfinished) -> UsageError:
    return UsageError(
        f"{one.path!r} now belongs to another job; list the jobs again (outcore.jobs.unfinished)",
        code="other-job",
        path=one.path,
    )


def is_half_replaced(journal: Journal) -> bool:
    """Return whether an array that a job updates in place may have only some of its new elements."""
    gather_steps(journal)
    computed = journal.cut.get("computed") if isinstance(journal.cut, dict) else None
    return (
        isinstance(computed, int) and computed in journal.done and computed + 1 not in journal.done
    )


def _remove(path: str) -> None:
    with durable.os_errors("removing", path), contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
