"""
The two sides of a movement: a section of an array in memory, and one of an array on disk.

Problem. ``memory[3, ::-1, None]`` and ``disk[10:20, 4:8:2]`` may be anywhere in their arrays, have
steps, integers and new axes, and be transposed relative to each other. Each rank has parts of the
memory. Approach. Both keys become ascending ranges of indices (`outcore.base.sections`). Each axis of
the disk array corresponds to one axis of the memory, or to none. A part of a rank is a product of
ranges; it is therefore a section of the disk array, and a view of the rank's memory with the axes of
that section. A transposition permutes strides and copies nothing.

Invariants. The parts of all owners divide the section of the disk array: no element is written twice.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.base.distribution import Distribution, view_sections
from outcore.base.sections import Selection
from outcore.errors import UsageError
from outcore.ranks.collective.items import Ranges
from outcore.ranks.dist import DistArray
from outcore.ranks.transport import Transport

__all__ = ["Link", "Part", "as_partner", "link_axes", "list_parts", "parse_permutation"]

#: For an axis of the disk array: the corresponding axis of the memory, and whether its direction is
#: reversed.
Link = tuple[int | None, bool]
#: A section of the disk array, and the memory of this rank with the axes of that section.
Part = tuple[Ranges, NDArray[Any]]


def as_partner(given: Any, group: Transport) -> DistArray:
    """Return a NumPy array as a distributed array that is entirely in this process."""
    if isinstance(given, DistArray):
        if given.transport is not group and max(given.transport.size, group.size) > 1:
            raise UsageError(
                f"the array in memory belongs to another communicator, of {given.transport.size} "
                f"ranks, than the disk resident array, which {group.size} ranks opened; use one "
                "communicator for both",
                code="bad-partner",
            )
        return given
    if not isinstance(given, np.ndarray):
        raise UsageError(
            f"{type(given).__name__} is not an array in memory; pass a DistArray, or a "
            "numpy.ndarray in a single process",
            code="bad-partner",
        )
    if group.size > 1:
        raise UsageError(
            "a numpy.ndarray does not determine which rank has which elements; pass a DistArray, "
            "or access the section of each rank with read_all and write_all of `.array`",
            code="bad-partner",
        )
    return DistArray(Distribution(given.shape, ["*"] * given.ndim, 1), given)


def parse_permutation(transpose: bool | Sequence[int], ndim: int) -> tuple[int, ...]:
    """
    Return the axes of the source in the order in which the target has them.

    False leaves the order unchanged, True reverses it; otherwise as for `numpy.transpose`.

    Examples
    --------
    >>> parse_permutation(True, 3), parse_permutation((1, -1, 0), 3)
    ((2, 1, 0), (1, 2, 0))
    """
    if isinstance(transpose, bool | np.bool):
        return tuple(range(ndim))[:: -1 if transpose else 1]
    try:
        axes = [operator.index(axis) for axis in transpose]
    except TypeError:
        axes = []
    order = tuple(axis + ndim if axis < 0 else axis for axis in axes)
    if sorted(order) != list(range(ndim)):
        raise UsageError(
            f"transpose={transpose!r} does not fit a section of {ndim} axes; pass True, False, or "
            f"each axis from 0 to {ndim - 1} once",
            code="bad-axis",
        )
    return order


def link_axes(
    memory: Selection, disk: Selection, transpose: bool | Sequence[int], *, write: bool
) -> list[Link]:
    """
    Return the axis of the memory that corresponds to each axis of the disk array.

    Raises ``bad-axis`` if `transpose` is not a permutation of the axes, and ``shapes-differ`` if the
    shapes of the sections differ.
    """
    source, target = (memory, disk) if write else (disk, memory)
    order = parse_permutation(transpose, len(source.axes))
    seen = tuple(source.shape[axis] for axis in order)
    if seen != target.shape:
        turned = "" if order == tuple(range(len(order))) else ", transposed"
        names = ("in memory", "on disk") if write else ("on disk", "in memory")
        raise UsageError(
            f"the section {names[0]} has shape {seen}{turned}, but the section {names[1]} has "
            f"{target.shape}; pass sections of the same shape (None adds an axis of length 1, an "
            "integer removes one)",
            code="shapes-differ",
        )
    found: list[Link] = [(None, False)] * len(disk.ranges)
    for number, axis in enumerate(order):
        # Axis `number` of the target is axis `axis` of the source.
        at, on = (axis, number) if write else (number, axis)
        here, there = memory.axes[at], disk.axes[on]
        if here is not None and there is not None:
            found[there[0]] = (here[0], here[1] != there[1])
    return found


def list_parts(
    array: DistArray,
    memory: Selection,
    disk: Selection,
    linked: Sequence[Link],
    *,
    ghosts: bool = False,
) -> list[Part]:
    """Return this rank's parts of the section in memory, each with its section of the disk array."""
    part = array.part()
    core, sections = part.distribution.core, list(memory.ranges)
    members, places = core.patches(array.rank, part.widths, ghosts, sections)
    each = zip(members.tolist(), view_sections(part.memory, places), strict=True)
    return [
        (_map_ranges(numbers, disk, linked), _view_section(view, linked)) for numbers, view in each
    ]


def _map_ranges(numbers: list[list[int]], disk: Selection, linked: Sequence[Link]) -> Ranges:
    found: Ranges = []
    for (start, count, step), (axis, flipped) in zip(disk.ranges, linked, strict=True):
        if axis is None:
            found.append((start, count, step))
            continue
        first, number, every = numbers[axis]
        low = count - 1 - (first + (number - 1) * every) if flipped else first
        found.append((start + low * step, number, every * step))
    return found


def _view_section(view: NDArray[Any], linked: Sequence[Link]) -> NDArray[Any]:
    """Return a view of memory with the axes of the disk array, in their directions."""
    # Axes without a corresponding axis have one index.
    steps: list[Any] = [0] * view.ndim
    for axis, flipped in linked:
        if axis is not None:
            steps[axis] = slice(None, None, -1 if flipped else 1)
    kept = sorted(axis for axis, _ in linked if axis is not None)
    order = [kept.index(axis) for axis, _ in linked if axis is not None]
    new = [None if axis is None else slice(None) for axis, _ in linked]
    # With ``...`` the result is a view also for arrays without axes.
    seen: NDArray[Any] = view[(*steps, ...)].transpose(order)[(*new, ...)]
    return seen
