"""
Verify: read everything once and say what is damaged, all of it.

Problem. A reader stops at the first bad chunk; after a disk error or a bad copy one wants the list.
Idea. Walk through the array in tiles of whole chunks. A tile that fails is read again chunk by chunk,
and each chunk that fails is one line of the answer. Checksums and codecs do the judging; bare elements
have none, there only the disk can object. An array that cannot be opened is no damage (it may use what
outcore lacks, or be locked), and is a line of its own kind: of its chunks nothing is known.

Invariants. Every chunk is visited, whatever was found before. Memory stays within the budget.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcore import _core, formats, tiling
from outcore.disk import DiskArray
from outcore.errors import BudgetError, FormatError, OutcoreError, StorageError
from outcore.hints import Hints
from outcore.opening import open
from outcore.tiling import Side, Tiling

__all__ = ["Damage", "verify"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Damage:
    """
    One thing that is wrong.

    Parameters
    ----------
    path
        The array.
    section
        The part of it that cannot be read, as one would index it; empty if it cannot be opened.
    code
        Of the error; ``cannot-open`` if the array cannot be opened.
    message
        Of the error.
    reason
        Code of the error for which it cannot be opened; else empty.
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
    progress: Progress | None = None,
    hints: Hints | Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Damage]:
    """
    Read an array, or all arrays of a container, and list what is damaged.

    Parameters
    ----------
    path
        As for `outcore.open`; a file or group that holds several arrays stands for all of them.
    progress
        Called as ``progress(done, total)`` in bytes, for each array.
    hints
        As for `outcore.open`.
    options
        As for `outcore.open`.

    Returns
    -------
    list of Damage
        Empty if everything could be read and decoded and all checksums were right. Entries with the
        code ``cannot-open`` are arrays (or the file) of which nothing could be read.

    Raises
    ------
    StorageError
        There is no such file, or it is out of reach.
    BudgetError
        Not even one chunk fits the memory budget; ``needed`` says what would do.

    Notes
    -----
    Found is what the disk, a codec or a checksum objects to. Elements that are stored as they are, and
    most codecs without a checksum, can be damaged without notice: add ``crc32c`` (Zarr) or
    ``fletcher32`` to ``compression=``.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("field.npy", np.zeros(10))
    >>> outcore.verify("field.npy")
    []
    """
    text = os.fspath(path)
    found: list[Damage] = []
    for name in _arrays(text, options, found):
        try:
            array = open(name, hints=hints, **options)
        except (FormatError, StorageError) as error:
            found.append(_cannot_open(name, error))
            continue
        with array:
            found.extend(_damages(array, progress or (lambda done, total: None)))
    return found


def _arrays(path: str, options: Mapping[str, Any], found: list[Damage]) -> Iterator[str]:
    if options:
        yield path
        return
    try:
        entries = formats.ls(path)
    except FormatError as error:
        found.append(_cannot_open(path, error))
        return
    yield from (entry.path for entry in entries if entry.kind == "array")


def _cannot_open(path: str, error: FormatError | StorageError) -> Damage:
    return Damage(path, "", code="cannot-open", message=error.message, reason=error.code)


def _damages(array: DiskArray, progress: Progress) -> Iterator[Damage]:
    side = Side.of(array.info)
    item = array.dtype.itemsize
    most = max(array.budget // 4 // item, 1)
    tiles = tiling.choose(array.shape, side, side, most)
    if isinstance(tiles, int):
        raise BudgetError(
            f"a chunk of {array.path!r} holds {tiles * item} bytes, the budget is {array.budget}; raise "
            f"outcore.memory() to {4 * tiles * item} bytes or more",
            code="budget-too-small",
            path=array.path,
            needed=4 * tiles * item,
        )
    size = math.prod(tiles.tile) * item
    done = 0
    with _core.Reservation("verify", size):
        memory = np.empty(max(size, item), np.uint8)
        for k in range(len(tiles)):
            key = tiles.key(k)
            if _failure(array, key, memory) is not None:
                yield from _single(array, key, memory)
            done += math.prod(part.stop - part.start for part in key) * item
            progress(done, array.nbytes)


def _single(array: DiskArray, key: tuple[slice, ...], memory: Any) -> Iterator[Damage]:
    """The chunks of a tile, one by one."""
    sizes = tuple(part.stop - part.start for part in key)
    unit = tuple(min(n, c) for n, c in zip(sizes, array.chunks or sizes, strict=True))
    inner = Tiling(sizes, unit, array.order)
    for k in range(len(inner)):
        part = tuple(
            slice(outer.start + sub.start, outer.start + sub.stop)
            for outer, sub in zip(key, inner.key(k), strict=True)
        )
        error = _failure(array, part, memory)
        if error is not None:
            text = ", ".join(f"{p.start}:{p.stop}" for p in part)
            yield Damage(array.path, f"[{text}]", error.code, error.message)


def _failure(array: DiskArray, key: tuple[slice, ...], memory: Any) -> OutcoreError | None:
    shape = tuple(part.stop - part.start for part in key)
    order: Any = "F" if array.order == "F" else "C"
    try:
        array.read(key, out=np.ndarray(shape, array.dtype, memory, order=order))
    except (FormatError, StorageError) as error:
        return error
    return None
