"""
The grid of chunks of a Zarr array: choosing chunks, and changing the shape.

Problem: Zarr stores the shape in one file and the chunks in others, so a crash can happen between them.
The parts of chunks outside the shape hold invisible values: elements from before the array was shrunk,
or padding of a library. A larger shape must show the fill value there.
Approach: growing: `reserve` removes chunk files outside the current grid (left by a crash or by another
library); the caller sets the sections of `find_stale_sections` to the fill value through the array that
`reserve` returned; then the metadata is replaced. Shrinking: the metadata is replaced, then the chunks
outside are removed.
Invariants: until the metadata is replaced, nothing visible changes; afterwards everything outside the
shape is invisible, and is cleared before it can become visible again. To append: `reserve`, write,
fsync, resize.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from outcore.errors import FormatError, InternalError, UsageError
from outcore.formats import locks
from outcore.formats.layout import ArrayInfo, Chunked, FileSource, ShardSource
from outcore.formats.zarr.chunks import remove_outside, stored_chunks
from outcore.formats.zarr.identity import confirm
from outcore.formats.zarr.store import lock_document

#: Maximum bytes of a chunk whose shape the caller does not choose.
CHUNK_BYTES = 4 << 20
#: Key of `ArrayInfo.extra` with the shape in the metadata, in the result of `reserve`.
_STORED = "stored_shape"


def choose_chunks(
    shape: Sequence[int], itemsize: int, shards: Sequence[int] | None = None
) -> tuple[int, ...]:
    """
    Return chunks of at most 4 MiB, as close to cubes as halving the longest axis leads.

    Along each axis they have even size, so that the last one is not a sliver. An axis of length 0 (to
    be appended to) gets chunks of about 1 MiB. Inside `shards`, chunks divide them.

    >>> choose_chunks((10000, 10000), 8)
    (625, 625)
    >>> choose_chunks((1 << 30,), 1)
    (4194304,)
    """
    lengths = [max(n, 1) for n in shape]
    chunks = list(lengths)
    pieces = [1] * len(chunks)
    while chunks and max(chunks) > 1 and math.prod(chunks) * itemsize > CHUNK_BYTES:
        axis = chunks.index(max(chunks))
        if shards is None:
            pieces[axis] *= 2
            chunks[axis] = -(-lengths[axis] // pieces[axis])
        else:
            chunks[axis] //= _smallest_factor(chunks[axis])
    if 0 in shape:
        chunks[list(shape).index(0)] = max(1, (1 << 20) // (math.prod(chunks) * itemsize))
    return tuple(chunks)


def _smallest_factor(number: int) -> int:
    """Return the smallest prime factor if it is below 4096, otherwise the number itself."""
    return next((k for k in range(2, min(number, 4096)) if number % k == 0), number)


def source_of(info: ArrayInfo) -> FileSource | ShardSource:
    """Return the source of the chunks of a Zarr array."""
    layout = info.layout
    source = layout.source if isinstance(layout, Chunked) else None
    if isinstance(source, FileSource | ShardSource):
        return source
    raise InternalError(f"{info.path!r} is not laid out as Zarr", code="internal", path=info.path)


def check_separator(separator: str) -> None:
    """Raise unless a separator can be in the names of chunk files."""
    if separator not in ("/", "."):
        raise UsageError(
            f"separator {separator!r} is neither '/' nor '.'; use one of them",
            code="bad-separator",
        )


def _find_unit(info: ArrayInfo) -> tuple[int, ...]:
    """Return the elements per file and axis: a chunk, or a shard."""
    source = source_of(info)
    chunks = info.layout.chunks if isinstance(info.layout, Chunked) else ()
    if isinstance(source, ShardSource):
        return tuple(c * n for c, n in zip(chunks, source.per_shard, strict=True))
    return tuple(chunks)


@contextlib.contextmanager
def lock_shape(info: ArrayInfo, describe: Callable[[str], ArrayInfo]) -> Iterator[ArrayInfo]:
    """
    Keep others from changing the shape; yield the array with its current shape.

    `describe` opens the array in a folder.
    """
    source = source_of(info)
    with locks.lock_length(source.lock):
        confirm(info)
        now = describe(source.root)
        _check_axes(info, now.shape)
        yield replace(info, shape=now.shape)


def release(info: ArrayInfo) -> None:
    """Remove the chunks that were reserved for an array that did not grow."""
    source = source_of(info)
    limits = [-(-n // u) for n, u in zip(info.shape, _find_unit(info), strict=True)]
    with lock_document(source.lock):
        remove_outside(source.root, source.prefix, source.separator, limits)


def reserve(info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
    """
    Return the array as it will be after `resize`, and remove chunk files that would become visible.

    Nothing visible changes. See the head of this file.
    """
    _check_axes(info, shape)
    source = source_of(info)
    limits = [
        -(-old // u) if -(-new // u) > -(-old // u) else None
        for old, new, u in zip(info.shape, shape, _find_unit(info), strict=True)
    ]
    with lock_document(source.lock):
        confirm(info)
        remove_outside(source.root, source.prefix, source.separator, limits)
    return replace(info, shape=shape, extra={**info.extra, _STORED: info.shape})


def find_stale_sections(info: ArrayInfo, shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """
    Yield the sections that a larger shape uncovers in existing chunks.

    The caller sets them to the fill value (through the result of `reserve`) before `resize`. They are
    disjoint, and each is within one chunk or shard.
    """
    _check_axes(info, shape)
    unit, source = _find_unit(info), source_of(info)
    axes = range(len(shape))
    kept = [min(a, b) for a, b in zip(info.shape, shape, strict=True)]
    reach = [min(b, -(-a // u) * u) for a, b, u in zip(info.shape, shape, unit, strict=True)]
    for axis in axes:
        low = [kept[axis] if d == axis else 0 for d in axes]
        high = [kept[d] if d < axis else reach[d] for d in axes]
        box = list(zip(low, high, unit, strict=True))
        if any(a >= b for a, b, _ in box):
            continue
        cells = [(a // u, -(-b // u)) for a, b, u in box]
        for cell in stored_chunks(source.root, source.prefix, source.separator, cells):
            yield tuple(
                slice(max(a, k * u), min(b, (k + 1) * u))
                for k, (a, b, u) in zip(cell, box, strict=True)
            )


def remove_shrunk(info: ArrayInfo, shape: Sequence[int], *, look: bool = False) -> None:
    """Remove the chunk files outside a smaller shape; with `look`, only raise if that is not allowed."""
    source = source_of(info)
    limits = [
        -(-new // u) if new < old else None
        for old, new, u in zip(
            info.extra.get(_STORED, info.shape), shape, _find_unit(info), strict=True
        )
    ]
    remove_outside(source.root, source.prefix, source.separator, limits, look=look)


def _check_axes(info: ArrayInfo, shape: Sequence[int]) -> None:
    if len(shape) != len(info.shape):
        raise UsageError(
            f"{info.path!r} has {len(info.shape)} axes, the new shape {tuple(shape)} has {len(shape)}; "
            "give a length for each axis",
            code="bad-shape",
            path=info.path,
        )


def check_resize(info: ArrayInfo, shape: Sequence[int], stored: Any) -> None:
    """Raise for a shape with other axes, and for an array that another handle has resized."""
    _check_axes(info, shape)
    if stored != list(info.extra.get(_STORED, info.shape)):
        raise FormatError(
            f"{info.path!r} now has shape {stored!r:.200}, because it was resized through another "
            "handle; open it again",
            code="file-changed",
            path=info.path,
        )
    remove_shrunk(info, shape, look=True)
