"""
Verification: read everything once and list all damage.

Problem: a reader stops at the first bad chunk; after a disk error or a bad copy users need the full
list.
Approach: iterate over the array in tiles of whole chunks, and skip tiles in which nothing is stored: an
array may declare 10^15 chunks and store three. A tile that fails is read again chunk by chunk, and each
chunk that fails is one entry of the result. Checksums and codecs detect the damage; elements without
either have only the errors of the disk. An array that cannot be opened is not damaged (it may use
features that outcore does not support, or be locked). It gets an entry of another kind, because nothing
is known about its chunks.

Invariants: every stored chunk is visited, whatever was found before. Memory stays within the budget.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core, formats
from outcore.arrays import tiling
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open, open_many
from outcore.arrays.tiling import Side, Tiling
from outcore.base.hints import Hints
from outcore.base.report.progress import Progress, ProgressArgument, get_progress
from outcore.errors import FormatError, OutcoreError, StorageError, budget_error
from outcore.formats.format import HasShards
from outcore.formats.known_options import check_known
from outcore.formats.layout import Chunked, ShardSource, TableSource
from outcore.formats.paths import one_name
from outcore.formats.texts import Texts

__all__ = ["Damage", "verify"]

Key = tuple[slice, ...]
# A section read in one call, and the chunks to read separately if it fails.
_Piece = tuple[Key, Iterable[Key]]
# A chunk that is read in pieces, or None, and the pieces.
_Run = tuple[Key | None, Iterator[_Piece]]
# A tile of which less than 1/_SPARSE is stored is read chunk by chunk.
_SPARSE = 16
# Number of arrays of a file that are opened in one visit.
_AT_ONCE = 256
# Error code of chunks that share bytes, as raised by a read of both.
_SHARED = "chunk-table-damaged"


@dataclass(frozen=True, slots=True)
class Damage:
    """
    One damaged section, or one array that cannot be opened.

    Parameters
    ----------
    path
        Path of the array.
    section
        Section that cannot be read, in the notation of indexing; empty if the array cannot be opened.
    code
        Code of the error; ``cannot-open`` if the array cannot be opened.
    message
        Message of the error.
    reason
        Code of the error that prevents opening; otherwise empty.
    """

    path: str
    section: str
    code: str
    message: str
    reason: str = ""

    def __str__(self) -> str:
        code = f"{self.code}: {self.reason}" if self.reason else self.code
        return f"{self.path}{self.section}: [{code}] {self.message}"


def verify(
    path: str | os.PathLike[str],
    *,
    progress: ProgressArgument = None,
    hints: Hints | Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Damage]:
    """
    Read an array, or all arrays of a container, and list all damage.

    Parameters
    ----------
    path
        As for `outcore.open`; a file or group with several arrays stands for all of them.
    progress
        Function called as ``progress(done, total)`` for each array, in bytes of the stored sections;
        True shows a progress bar.
    hints
        As for `outcore.open`.
    options
        As for `outcore.open`.

    Returns
    -------
    list of Damage
        Empty if everything could be read and decoded and all checksums were correct. Entries with the
        code ``cannot-open`` are arrays (or the file) that could not be opened.

    Raises
    ------
    StorageError
        The file does not exist or cannot be accessed.
    BudgetError
        A single chunk does not fit the memory budget; ``needed`` is a sufficient budget.

    Notes
    -----
    Damage is found by the disk, a codec, a checksum or the table of chunks. Elements stored without
    encoding, and with most codecs without a checksum, can be damaged without detection: add ``crc32c``
    (Zarr) or ``fletcher32`` to ``compression=``.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("field.npy", np.zeros(10))
    >>> outcore.verify("field.npy")
    []
    """
    text = one_name(path)
    check_known(verify, "open", options)
    shown = get_progress(progress, "verifying")
    found: list[Damage] = []
    for array in _open_arrays(text, hints, options, found):
        if isinstance(array.info, Texts):
            with array:
                words: Any = array
                found.extend(_create_damage(array, *one) for one in words.damages())
            continue
        with array:
            found.extend(_find_damages(array, shown))
    return found


def _open_arrays(
    path: str,
    hints: Hints | Mapping[str, Any] | None,
    options: Mapping[str, Any],
    found: list[Damage],
) -> Iterator[DiskArray]:
    """Yield the open arrays of a container; append those that cannot be opened to `found`."""

    def alone(name: str) -> Iterator[DiskArray]:
        try:
            array = open(name, hints=hints, **options)
        except (FormatError, StorageError) as error:
            found.append(_make_opening_damage(name, error))
        else:
            yield array

    if options:
        yield from alone(path)
        return
    try:
        entries = formats.ls(path)
    except FormatError as error:
        found.append(_make_opening_damage(path, error))
        return
    arrays = [entry for entry in entries if entry.kind == "array"]
    for first in range(0, len(arrays), _AT_ONCE):
        some = arrays[first : first + _AT_ONCE]
        names = [entry.path for entry in some if not entry.note]
        opened: dict[str, DiskArray] = {}
        with contextlib.suppress(FormatError, StorageError):  # then open each separately
            opened = dict(zip(names, open_many(names, hints=hints), strict=True))
        for entry in some:
            array = opened.get(entry.path)
            yield from alone(entry.path) if array is None else (array,)


def _make_opening_damage(path: str, error: FormatError | StorageError) -> Damage:
    return Damage(path, "", code="cannot-open", message=error.message, reason=error.code)


def _find_damages(array: DiskArray, progress: Progress) -> Iterator[Damage]:
    side = Side.of(array.info)
    item = array.dtype.itemsize
    most = max(array.budget // 4 // item, 1)
    tiles = tiling.choose(array.shape, side, side, most)
    if isinstance(tiles, int):
        raise budget_error(
            f"verifying {array.path!r}",
            4 * tiles * item,
            array.budget,
            4 * tiles * item,
            reason=f"a chunk has {tiles * item} bytes",
            path=array.path,
        )
    try:
        stored = array.handle.core.stored()
    except (FormatError, StorageError) as error:
        yield Damage(array.path, "", error.code, error.message)
        return
    source = array.info.layout.source if isinstance(array.info.layout, Chunked) else None
    try:
        if isinstance(source, TableSource) and source.check is not None:
            source.check()
    except FormatError as error:
        yield Damage(array.path, "", error.code, error.message)
    shared = False
    format = formats.get_format(array.format)
    if isinstance(format, HasShards) and isinstance(source, ShardSource) and stored is not None:
        for damage in _find_shared(array, format, tuple(stored[0]), stored[1]):
            shared = True
            yield damage
    # For each stored unit its position and tile number, and temporary copies of these.
    listed = 0 if stored is None else stored[1].nbytes * (4 + array.ndim)
    size = math.prod(tiles.tile) * item
    done = 0
    with _core.Reservation("verify", size + listed):
        memory = np.empty(max(size, item), np.uint8)
        total, runs = _plan_runs(array, tiles, stored)
        for whole, pieces in runs:
            for key, chunks in pieces:
                failure = _find_failure(array, key, memory)
                done += math.prod(part.stop - part.start for part in key) * item
                progress(done, total)
                if failure is None:
                    continue
                if whole is not None:
                    yield _create_damage(array, whole, failure)
                    break
                each = ((part, _find_failure(array, part, memory)) for part in chunks)
                damages = [
                    _create_damage(array, part, why) for part, why in each if why is not None
                ]
                if not damages and not (shared and failure.code == _SHARED):
                    damages = [_create_damage(array, key, failure)]  # only the joint read fails
                yield from damages


def _find_shared(
    array: DiskArray, format: HasShards, shard: tuple[int, ...], places: NDArray[np.int64]
) -> Iterator[Damage]:
    """Yield shards in which two chunks share bytes; reading a single chunk does not detect that."""
    shards = Tiling(array.shape, shard, "C")
    for place in places:
        key = shards.key(int(place))
        at = [part.start // length for part, length in zip(key, shard, strict=True)]
        found = format.find_shared_bytes(array.info, at)
        if found is not None:
            path, why = found
            message = f"{path}: {why}; the file is damaged or was cut off; restore it from a copy"
            yield _create_damage(array, key, FormatError(message, code=_SHARED, path=array.path))


def _plan_runs(
    array: DiskArray, tiles: Tiling, stored: tuple[list[int], NDArray[np.int64]] | None
) -> tuple[int, Iterator[_Run]]:
    """Return the number of bytes to read, and the runs."""
    item, chunk = array.dtype.itemsize, array.chunks or array.shape
    if stored is None:
        keys = map(tiles.key, range(math.prod(tiles.grid)))
        return array.nbytes, iter([(None, ((key, _cut_parts(key, chunk)) for key in keys))])
    unit, places = tuple(stored[0]), stored[1]
    units = Tiling(array.shape, unit, "C")
    sides = zip(tiles.tile, unit, array.shape, strict=True)
    if not all(n % u == 0 or n >= length for n, u, length in sides):
        total = min(len(places) * math.prod(unit) * item, array.nbytes)
        return total, _cut(units, places, tiles.tile, chunk)
    of = tiles.holding(unit, places)
    places = places[np.argsort(of, kind="stable")]
    numbers, counts = np.unique(of, return_counts=True)
    ends = np.cumsum(counts)
    in_tile, in_unit = math.prod(tiles.tile), math.prod(unit)
    # In a sparse tile, read only the stored units.
    full = counts * _SPARSE >= max(in_tile // in_unit, 1)
    total = (int(full.sum()) * in_tile + int(counts[~full].sum()) * in_unit) * item

    def pieces() -> Iterator[_Piece]:
        for number, count, end, whole in zip(numbers, counts, ends, full, strict=True):
            keys = [units.key(int(place)) for place in places[end - count : end]]
            if whole:
                yield (
                    tiles.key(int(number)),
                    (part for key in keys for part in _cut_parts(key, chunk)),
                )
            else:
                yield from ((key, _cut_parts(key, chunk)) for key in keys)

    return min(total, array.nbytes), iter([(None, pieces())])


def _cut(
    units: Tiling, places: NDArray[np.int64], tile: tuple[int, ...], chunk: tuple[int, ...]
) -> Iterator[_Run]:
    """Cut chunks or shards that are larger than a tile."""
    for place in places:
        whole = units.key(int(place))
        if units.tile == chunk:
            yield whole, ((key, ()) for key in _cut_parts(whole, tile))
        else:
            yield None, ((key, _cut_parts(key, chunk)) for key in _cut_parts(whole, tile))


def _cut_parts(whole: Key, size: tuple[int, ...]) -> Iterator[Key]:
    """Yield a section in pieces of at most the given size."""
    sizes = tuple(part.stop - part.start for part in whole)
    inner = Tiling(sizes, tuple(map(min, size, sizes)), "C")
    for key in map(inner.key, range(math.prod(inner.grid))):
        yield tuple(
            slice(outer.start + part.start, outer.start + part.stop)
            for outer, part in zip(whole, key, strict=True)
        )


def _create_damage(array: DiskArray, key: Key, error: OutcoreError) -> Damage:
    text = ", ".join(f"{part.start}:{part.stop}" for part in key)
    return Damage(array.path, f"[{text}]", error.code, error.message)


def _find_failure(array: DiskArray, key: Key, memory: Any) -> OutcoreError | None:
    shape = tuple(part.stop - part.start for part in key)
    order: Any = "F" if array.order == "F" else "C"
    try:
        array.read(key, out=np.ndarray(shape, array.dtype, memory, order=order))
    except (FormatError, StorageError) as error:
        return error
    return None
