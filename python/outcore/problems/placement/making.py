"""
Make, open and copy placed arrays, collectively.

Problem: one rank makes some files for all, and each rank makes others for itself. If a rank fails, the
others must not wait for it, and no incomplete array may have a name.
Approach: steps by one rank, or by each rank for itself, alternate with agreements of all ranks. A copy
is filled under another name, or without a manifest, and gets its name at the end.

Reference: PASSION report, section 4.2.1 (`PASSION_oc_file_map`, Table 2).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from numpy.typing import DTypeLike

import outcore
from outcore.arrays.disk import DiskArray
from outcore.base.distribution import Distribution, Ghosts, parse_widths
from outcore.base.report import format_count
from outcore.compute.jobs.journal import PATIENCE
from outcore.compute.jobs.journal import acquire_journal as journal_of
from outcore.compute.jobs.left import list_removable
from outcore.compute.jobs.target import TargetPlace, discard
from outcore.errors import (
    AlreadyExistsError,
    CollectiveError,
    DistributionError,
    FormatError,
    OutcoreError,
    UsageError,
)
from outcore.formats import durable, homes
from outcore.formats.defaults import PLAIN, PLAIN_SUFFIX
from outcore.formats.known_options import check_known
from outcore.formats.paths import one_name
from outcore.formats.side_files import open_side_file
from outcore.formats.spec import as_dtype
from outcore.problems.placement.array import PlacedArray
from outcore.problems.placement.files import (
    MANIFEST,
    PlacementManifest,
    is_local,
    make_file_name,
    make_id,
    make_outside_name,
)
from outcore.problems.placement.placed import Placement, PlacementState
from outcore.problems.placement.whole import write_slabs
from outcore.ranks.agreement import hash_text
from outcore.ranks.ranks import Ranks

__all__ = ["copy_placed", "create_placed", "open_placed"]

# Lock file in the folder of a local placement until the manifest exists; its files belong to no array
# until then.
UNFINISHED = "placement.unfinished"
_OURS = re.compile(r"rank-[0-9]{4,}" + re.escape(PLAIN_SUFFIX))
# Number of attempts to make a note that another process removes concurrently.
_TRIES = 5
_PLACEMENTS = ("global", "local", "partitioned")
Path = str | os.PathLike[str]


def create_placed(
    path: Path,
    distribution: Distribution,
    dtype: DTypeLike,
    *,
    placement: Placement = "global",
    ghosts: Ghosts = 0,
    comm: Any = None,
    folders: Sequence[Path] | None = None,
    order: str = "C",
    overwrite: bool = False,
    **options: Any,
) -> PlacedArray:
    """
    Create an array of zeros on disk that is divided over ranks. Collective.

    Parameters
    ----------
    path
        Path of the array. Global and partitioned placement: as for `outcore.create`, in any format.
        Local placement: path of a folder for the manifest.
    distribution
        Distribution of the elements over the ranks.
    dtype
        Type of the elements, of fixed size.
    placement
        ``"global"``: one file; each rank reads and writes its part. ``"local"``: one file for each rank,
        with its overlap area. ``"partitioned"``: one file; all ranks read partitions of it collectively.
    ghosts
        Widths of the overlap area, as for `DistArray`.
    comm
        Ranks: a communicator of mpi4py, or a transport. Default: this process alone.
    folders
        Folder of each rank's file, for local placement, as from `outcore.mpi.disk_map`. Default: the
        folder of the manifest.
    order
        Order of the elements in each file: ``"C"`` or ``"F"``.
    overwrite
        Whether to replace an existing array with this path.
    options
        Options of `outcore.create` (``chunks``, ``compression``, ...), for global and partitioned
        placement.

    Returns
    -------
    PlacedArray
        Array, open for reading and writing.

    Raises
    ------
    DistributionError
        On all ranks, ``bad-grid``: the distribution is for another number of ranks.
    CollectiveError
        On all ranks: a rank failed, or made a different call.

    Notes
    -----
    Uses no memory of the budget. The placements are the models of section 4.1.2 of the PASSION report.

    Examples
    --------
    >>> import os, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> rows = outcore.mpi.Distribution((6, 4), ["block", "*"], 2)
    >>> def work(comm):
    ...     with outcore.mpi.create_placed("field", rows, "f4", placement="local", ghosts=[1, 0],
    ...                                comm=comm) as a:
    ...         return a.local_shape
    >>> SimWorld(2).run(work), sorted(os.listdir("field"))
    ([(3, 4), (3, 4)], ['placement.json', 'rank-0000.npy', 'rank-0001.npy'])
    >>> outcore.open("field/rank-0001.npy").shape
    (4, 4)
    """
    ranks = Ranks.of_call(comm, "create_placed")
    with contextlib.ExitStack() as held:
        words = (path, distribution, dtype, placement, ghosts, folders, order, overwrite, options)
        made = _create_files(ranks, held, *words, create_placed)
        if placement == "local":
            _write_manifest(ranks, made)
        return made


def _create_files(
    ranks: Ranks,
    held: contextlib.ExitStack,
    path: Path,
    distribution: Distribution,
    dtype: DTypeLike,
    placement: Placement,
    ghosts: Ghosts,
    folders: Sequence[Path] | None,
    order: str,
    overwrite: bool,
    options: dict[str, Any],
    call: Callable[..., PlacedArray],
) -> PlacedArray:
    """Create an array whose local files have no manifest yet; `held` locks its folder until it ends."""
    name = one_name(path)
    pairs: list[tuple[int, int]] = []
    manifests: list[PlacementManifest] = []

    def check() -> list[int]:
        check_known(call, "create", options)
        pairs.extend(_check_widths(ranks, distribution, placement, ghosts))
        kind = as_dtype(dtype, name)
        meant = (name, distribution, kind, placement, pairs, order, overwrite, sorted(options))
        if placement != "local":
            if folders is not None:
                raise _make_folders_error(folders)
            return [hash_text(repr(meant))]
        if options.get("format", PLAIN) != PLAIN or set(options) - {"format"}:
            raise UsageError(
                f"local placement creates .npy files and does not accept {sorted(options)}; omit these "
                "options, or use placement='global'",
                code="unknown-option",
                path=name,
            )
        files = _choose_file_names(name, folders, distribution.grid.size)
        manifests.append(
            PlacementManifest(name, distribution, pairs, kind, order, files, make_id(name))
        )
        return [hash_text(repr((*meant, files)))]

    def begin() -> None:
        """Replace the existing array, after all ranks have agreed on the arguments."""
        if ranks.is_first and placement == "local":
            held.enter_context(_prepare_folder(name, overwrite, folders or ()))
        elif ranks.is_first:
            if os.path.isdir(name) and is_local(name):
                raise _make_foreign_error(name)
            outcore.create(
                path, distribution.shape, dtype, order=order, overwrite=overwrite, **options
            ).close()

    def describe() -> str:
        return (
            f"create_placed of {name!r} with {placement} placement, {dtype}, {distribution!r}, ghosts "
            f"{ghosts}, order {order!r}"
        )

    ranks.gather_numbers(check, describe, equal=1)
    ranks.gather_numbers(begin)
    disks: list[DiskArray] = []

    def make() -> None:
        if placement != "local":
            disks.append(_open_alone(path, "r+", options))
            return
        file = manifests[0].get_file(ranks.rank)
        with durable.os_errors("creating the folder of", file):
            os.makedirs(os.path.dirname(file), exist_ok=True)
            homes.admit([file], manifests[0].id, name)
        shape = distribution.local_shape(ranks.rank, pairs)
        disks.append(
            outcore.create(file, shape, dtype, order=order, format=PLAIN, overwrite=overwrite)
        )

    manifest = manifests[0] if manifests else None
    try:
        _run_all_or_none(ranks, make, disks)
    except BaseException:
        if manifest is not None and disks:
            _remove_file(manifest.get_file(ranks.rank))
        if manifest is not None:
            _await_removal(ranks)
        raise
    return PlacedArray(
        PlacementState(ranks.group, distribution, pairs, disks[0], placement, name, manifest)
    )


def _remove_file(file: str) -> None:
    """Remove this rank's file of an array that could not be made."""
    with contextlib.suppress(OSError):
        os.unlink(file)


def _await_removal(ranks: Ranks) -> None:
    """Wait until all ranks have removed their files; then the first rank removes the folder."""
    with contextlib.suppress(CollectiveError):  # report only the first error
        ranks.gather_numbers(lambda: None)


def _write_manifest(ranks: Ranks, made: PlacedArray) -> None:
    """Write the manifest of local files."""

    def write() -> None:
        if ranks.is_first:
            made.handle.manifest.write()
            with durable.os_errors("finishing", made.path):
                os.unlink(os.path.join(made.path, UNFINISHED))

    try:
        _run_all_or_none(ranks, write, [made])
    except BaseException:
        if not is_local(made.path):
            _remove_file(made.handle.manifest.get_file(ranks.rank))
        _await_removal(ranks)
        raise


def open_placed(
    path: Path,
    distribution: Distribution | None = None,
    mode: str = "r",
    *,
    placement: Placement | None = None,
    ghosts: Ghosts | None = None,
    comm: Any = None,
    folders: Sequence[Path] = (),
    **options: Any,
) -> PlacedArray:
    """
    Open an array on disk that is divided over ranks. Collective.

    Parameters
    ----------
    path
        Path of an array in any format, or of the folder of an array with local placement.
    distribution
        Distribution of the elements over the ranks. Local placement: omit it, or pass the distribution
        in the manifest.
    mode
        ``"r"`` or ``"r+"``.
    placement
        ``"global"`` (the default) or ``"partitioned"``. Local placement: omit it, or pass ``"local"``.
    ghosts
        Widths of the overlap area. Local placement: given by the manifest.
    comm
        Ranks: a communicator of mpi4py, or a transport. Default: this process alone.
    folders
        Folders of the files of an array with local placement that was made with files in other folders,
        and moved or copied since.
    options
        Options of `outcore.open`.

    Returns
    -------
    PlacedArray
        Opened array.

    Raises
    ------
    DistributionError
        ``bad-grid``, ``bad-distribution``: the distribution is for another number of ranks or another
        shape.
    FormatError
        ``bad-metadata``: a manifest is invalid, or the file of a rank belongs to another array;
        ``names-outside``: a manifest names files in other folders than the one where the array was made.
    CollectiveError
        On all ranks: a rank failed, or made a different call.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("field.npy", np.arange(6.0))
    >>> with outcore.mpi.open_placed("field.npy", outcore.mpi.Distribution(6, ["block"], 1)) as a:
    ...     a.read_section(np.s_[4:])
    array([4., 5.])
    """
    ranks, name = Ranks.of_call(comm, "open_placed"), one_name(path)
    found: list[
        tuple[DiskArray, Distribution, list[tuple[int, int]], PlacementManifest | None]
    ] = []

    def look() -> list[int]:
        if mode not in ("r", "r+"):
            raise UsageError(
                f"mode {mode!r} is not known; use 'r' or 'r+'", code="bad-mode", path=name
            )
        check_known(open_placed, "open", options)
        if is_local(name):
            manifest = PlacementManifest.read(name, folders)
            found.append(_open_local(ranks, manifest, mode, distribution, placement, ghosts))
            return [hash_text(repr((name, mode, "local", found[0][1])))]
        if placement == "local":
            raise FormatError(
                f"{name!r} has no {MANIFEST}, so it is not an array with local placement; omit "
                "placement=, or pass the folder of such an array",
                code="bad-metadata",
                path=name,
            )
        if distribution is None:
            raise UsageError(
                "open_placed needs the distribution, because the file does not store it; pass "
                "distribution=",
                code="missing-argument",
                path=name,
            )
        pairs = _check_widths(ranks, distribution, placement or "global", ghosts or 0)
        disk = _open_alone(path, mode, options)
        found.append((disk, distribution, pairs, None))
        if disk.shape != distribution.shape:
            raise DistributionError(
                f"{name!r} has shape {disk.shape}, but the distribution has shape {distribution.shape}; "
                "pass a distribution of the same shape",
                code="bad-distribution",
                path=name,
            )
        return [hash_text(repr((name, mode, placement or "global", distribution, pairs)))]

    def describe() -> str:
        return (
            f"open_placed({name!r}, {distribution!r}, {mode!r}, placement={placement!r}, "
            f"ghosts={ghosts!r})"
        )

    try:
        ranks.gather_numbers(look, describe, equal=1)
    except BaseException:
        for disk, *_ in found:
            disk.close()
        raise
    disk, divided, pairs, manifest = found[0]
    held: Placement = "local" if manifest is not None else placement or "global"
    return PlacedArray(PlacementState(ranks.group, divided, pairs, disk, held, name, manifest))


def _open_local(
    ranks: Ranks,
    manifest: PlacementManifest,
    mode: str,
    distribution: Distribution | None,
    placement: Placement | None,
    ghosts: Ghosts | None,
) -> tuple[DiskArray, Distribution, list[tuple[int, int]], PlacementManifest]:
    name = manifest.path
    if placement not in (None, "local"):
        raise UsageError(
            f"{name!r} has local placement, not {placement!r}; use copy_placed() to change it",
            code="bad-option",
            path=name,
        )
    if distribution is not None and distribution != manifest.distribution:
        raise DistributionError(
            f"{name!r} has the distribution {manifest.distribution}, not {distribution}; omit "
            "distribution=, or use copy_placed() to change it",
            code="bad-distribution",
            path=name,
        )
    if ghosts is not None and parse_widths(ghosts, manifest.distribution.ndim) != manifest.ghosts:
        raise DistributionError(
            f"{name!r} has overlap areas of {manifest.ghosts}, not {ghosts!r}; omit ghosts=",
            code="bad-distribution",
            path=name,
        )
    pairs = _check_widths(ranks, manifest.distribution, "local", manifest.ghosts)
    file = manifest.get_file(ranks.rank)
    disk = outcore.open(file, cast(Any, mode), format=PLAIN)
    shape = manifest.distribution.local_shape(ranks.rank, pairs)
    if (
        disk.shape != shape
        or disk.dtype != manifest.dtype
        or disk.order not in (manifest.order, "C")
    ):
        disk.close()
        raise FormatError(
            f"{file!r} has shape {disk.shape} and dtype {disk.dtype}, but the manifest of {name!r} "
            f"specifies {shape} and {manifest.dtype} for rank {ranks.rank}; the file belongs to another "
            "array, so restore the right one from a copy",
            code="bad-metadata",
            path=file,
        )
    return disk, manifest.distribution, pairs, manifest


def copy_placed(
    source: PlacedArray,
    path: Path,
    *,
    placement: Placement,
    distribution: Distribution | None = None,
    ghosts: Ghosts = 0,
    folders: Sequence[Path] | None = None,
    order: str = "C",
    overwrite: bool = False,
    **options: Any,
) -> PlacedArray:
    """
    Copy an array to another placement, another distribution or both. Collective.

    Parameters
    ----------
    source
        Array to copy; all its ranks make this call.
    path, placement, ghosts, folders, order, options
        Properties of the copy, as for `create_placed`.
    distribution
        Distribution of the copy over the same number of ranks. Default: the distribution of `source`.
    overwrite
        Whether to replace an existing file or array at `path`.

    Returns
    -------
    PlacedArray
        Copy, open for reading and writing, with filled overlap areas.

    Raises
    ------
    CollectiveError
        On all ranks: a rank failed, or made a different call; then nothing new exists at `path`. Its
        cause may be `AlreadyExistsError` (`path` exists, and `overwrite` is false), or
        `DistributionError` (``bad-distribution``: the distribution has another shape).

    Notes
    -----
    The array is copied in slabs within the memory budget. Each byte of `source` is read once for each
    slab that needs it; if slabs of other ranks need it at the same time, it is read once for all of
    them. The copy is durable before it gets its name. This is ``PASSION_oc_file_map`` (section 4.2.1,
    Table 2).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> np.save("field.npy", np.arange(12.0).reshape(4, 3))
    >>> rows = outcore.mpi.Distribution((4, 3), ["block", "*"], 2)
    >>> def work(comm):
    ...     with outcore.mpi.open_placed("field.npy", rows, comm=comm) as a:
    ...         with outcore.mpi.copy_placed(a, "parts", placement="local", overwrite=True) as b:
    ...             return b.read_section(np.s_[:, 1]).tolist()
    >>> SimWorld(2).run(work)
    [[1.0, 4.0], [7.0, 10.0]]
    """
    ranks, name = Ranks.of_call(source.transport, "copy_placed"), one_name(path)
    makers = Ranks.of_call(source.transport, "create_placed")
    divided = distribution or source.distribution
    places: list[TargetPlace] = []

    def begin() -> None:
        if divided.shape != source.shape:
            raise DistributionError(
                f"{source.path!r} has shape {source.shape}, but the distribution of its copy has shape "
                f"{divided.shape}; pass a distribution of the same shape",
                code="bad-distribution",
                path=name,
            )
        if placement != "local":
            place = TargetPlace.of(name, [source.path], overwrite, options.get("format"))
            place.check_existing()
            if ranks.is_first:
                held.enter_context(_hold_journal(place))
                place.prepare()
            places.append(place)
        elif is_local(name) or (os.path.lexists(name) and not os.path.isdir(name)):
            if os.path.realpath(name) == os.path.realpath(source.path):
                raise UsageError(
                    f"{name!r} is the source of the copy; choose another path",
                    code="same-file",
                    path=name,
                )
            if not overwrite:
                raise _make_exists_error(name)

    def describe() -> str:
        return (
            f"copy_placed({source.path!r}, {name!r}, placement={placement!r}, {divided!r}, "
            f"overwrite={overwrite})"
        )

    held = contextlib.ExitStack()
    with held:
        ranks.gather_numbers(begin, describe, meaning=describe)
        temporary = places[0].partial if places else name
        words = (divided, source.dtype, placement, ghosts, folders, order, True, options)
        made = _create_files(makers, held, temporary, *words, copy_placed)
        try:
            write_slabs(source, made)
            made.flush_all()
            if placement == "local":
                made.shift_all()
                made.flush_all()
                _write_manifest(makers, made)
                return made
        except BaseException:
            made.close()
            if placement == "local" and not is_local(name):
                _remove_file(made.handle.manifest.get_file(ranks.rank))
                _await_removal(makers)
            raise
        # All ranks close the copy before it gets its name.
        ranks.gather_numbers(made.close)
        ranks.gather_numbers(lambda: places[0].publish() if ranks.is_first else None)
    return open_placed(path, divided, "r+", placement=placement, ghosts=ghosts, comm=ranks.group)


@contextlib.contextmanager
def _hold_journal(place: TargetPlace) -> Iterator[None]:
    """Hold the journal of a copy: it lists the files that a kill leaves, and excludes other writers."""
    journal = journal_of(place.journal, patience=PATIENCE)
    try:
        if journal.job is not None and journal.done:
            raise UsageError(
                f"a job that creates {place.final!r} was interrupted; resume it, or remove it with "
                "outcore.jobs.clean",
                code="other-job",
                path=place.final,
            )
        left = [one for one in list_removable(journal) if one[0] != place.listed_path]
        partial = [[os.path.realpath(place.listed_path), place.format], *left]
        target = os.path.realpath(place.final)
        journal.begin(
            {"operation": "copy_placed", "target": target}, {"partial": partial, "call": None}, 0
        )
        for path, format in left:
            discard(path, format)
    except BaseException:
        journal.close()
        raise
    with journal:
        try:
            yield
        finally:
            # A failed copy is not resumed. Files that cannot be removed stay in the list of jobs,
            # without an error: only this rank runs this code, and the others no longer wait for it.
            with contextlib.suppress(OSError, OutcoreError):
                place.discard()
                journal.remove()


def _open_alone(path: Path, mode: str, options: dict[str, Any]) -> DiskArray:
    """Open the file of a global placement on this rank alone; collective calls accept plain arrays."""
    known = {name: value for name, value in options.items() if name == "format"}
    opened: DiskArray = outcore.open(path, cast(Any, mode), **known)
    return opened


def _check_widths(
    ranks: Ranks, distribution: Distribution, placement: str, ghosts: Ghosts
) -> list[tuple[int, int]]:
    if placement not in _PLACEMENTS:
        raise UsageError(
            f"placement {placement!r} is not known; use {', '.join(map(repr, _PLACEMENTS))}",
            code="bad-option",
        )
    if distribution.grid.size != ranks.size:
        raise DistributionError(
            f"the distribution is for {format_count(distribution.grid.size, 'rank')}, but "
            f"{format_count(ranks.size, 'rank')} called; pass a distribution for this number, or "
            "copy the array with as many ranks as it has",
            code="bad-grid",
        )
    pairs = parse_widths(ghosts, distribution.ndim)
    distribution.local_shape(ranks.rank, pairs)
    return pairs


def _run_all_or_none(ranks: Ranks, work: Callable[[], None], opened: list[Any]) -> None:
    """Run one step on each rank; if any rank fails, close what the ranks have opened."""
    try:
        ranks.gather_numbers(work)
    except BaseException:
        for one in opened:
            one.close()
        raise


def _choose_file_names(name: str, folders: Sequence[Path] | None, ranks: int) -> tuple[str, ...]:
    """Return the names of the files of all ranks, as stored in the manifest."""
    if folders is None:
        return tuple(map(make_file_name, range(ranks)))
    if len(folders) != ranks:
        raise UsageError(
            f"folders= has {len(folders)} folders, but there are {ranks} ranks; pass one folder for "
            f"each rank, as from disk_map(folders, {ranks})",
            code="bad-files",
            path=name,
        )
    base = os.path.basename(os.path.normpath(name))
    array_id = make_id(name)
    each = [
        os.path.join(folder, make_outside_name(base, array_id, rank))
        for rank, folder in enumerate(map(one_name, folders))
    ]
    return tuple(map(os.path.abspath, each))


@contextlib.contextmanager
def _prepare_folder(name: str, overwrite: bool, folders: Sequence[Path]) -> Iterator[None]:
    """Prepare and lock the folder of a manifest; an existing array there is removed."""
    note = os.path.join(name, UNFINISHED)
    with durable.os_errors("creating", name), contextlib.ExitStack() as stack:
        there = os.path.lexists(name)
        if there:
            if not overwrite and (is_local(name) or not os.path.isdir(name)):
                raise _make_exists_error(name)
            if not os.path.isdir(name) or not is_local(name):
                _check_own(name)
        os.makedirs(name, exist_ok=True)
        new, fd = _lock_note(note, name)
        stack.callback(os.close, fd)
        # Check again: the process that held the lock before may have finished an array.
        if is_local(name):
            try:
                if not overwrite:
                    raise _make_exists_error(name)
                old = PlacementManifest.read(name, folders)
            except BaseException:
                if new:
                    os.unlink(note)
                raise
            # Files left by a failure here have no manifest, but are still recognised as ours.
            old.remove()
        for file in os.listdir(name):
            if _OURS.fullmatch(file):  # left by an interrupted process
                os.unlink(os.path.join(name, file))
        kept = stack.pop_all()
    with kept:
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                if os.listdir(name) == [UNFINISHED]:
                    os.unlink(note)
                    if not there:
                        os.rmdir(name)
            raise


def _check_own(name: str) -> None:
    """Raise `UsageError` if a folder contains files that do not belong to an array."""
    there = os.listdir(name) if os.path.isdir(name) else [name]
    if there and UNFINISHED not in there:
        raise _make_foreign_error(name)


def _lock_note(note: str, name: str) -> tuple[bool, int]:
    """Lock the note that an array is being made; return whether it is new, and its file descriptor."""
    for _ in range(_TRIES):
        new = not os.path.lexists(note)
        made = open_side_file(note, make=True)
        if made is not None:
            os.close(made)
        fd = durable.hold(note)
        if fd is not None:
            return new, fd
        if os.path.lexists(note):
            break  # locked by another process
    raise UsageError(
        f"another process is creating {name!r}; wait until it is done, or choose another path",
        code="in-use",
        path=name,
    )


def _make_exists_error(name: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{name!r} already exists; pass overwrite=True to replace it, or choose another path",
        code="already-exists",
        path=name,
    )


def _make_foreign_error(name: str) -> UsageError:
    return UsageError(
        f"{name!r} exists and is not an array that this call replaces; remove it, or choose another "
        "path",
        code="not-an-array",
        path=name,
    )


def _make_folders_error(folders: Any) -> UsageError:
    return UsageError(
        f"folders={folders!r} is valid for local placement only; omit it, or pass placement='local'",
        code="unknown-option",
    )
