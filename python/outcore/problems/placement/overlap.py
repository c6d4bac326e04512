"""
Find the elements of other ranks in the overlap area of a rank.

Problem: before an iteration every rank needs the boundary elements of its neighbours, which are in the
neighbours' files. Their owners and positions must be known.
Approach: an axis with ghosts is divided into blocks, so a rank has one range along it. The overlap of a
rank is the intersection of its ranges with ghosts and the ranges of other ranks without ghosts. Along
the other axes two ranks have the same elements, or none in common.
Invariants: the overlap areas of a rank are disjoint, and their union is its range with ghosts minus its
range without. The functions are pure, so each rank can compute the overlap of any other.

Reference: PASSION report, section 4.3 and Figure 6.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from outcore.base.distribution import Distribution, Key

__all__ = ["Overlap", "find_overlaps"]

Widths = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Overlap:
    """
    Elements that are ghosts of one rank and belong to another, the `owner`.

    `there` and `here` are their sections in the local arrays of the owner and of the rank with the
    ghosts, both with overlap areas, as slices of plain integers without a step.
    """

    owner: int
    there: Key
    here: Key


def find_overlaps(distribution: Distribution, rank: int, widths: Widths) -> list[Overlap]:
    """
    Return the overlap area of a rank, as one part for each owner, in the order of owners.

    It is empty if `rank` has no elements. `widths` may be empty, too.

    Examples
    --------
    >>> from outcore.mpi import Distribution
    >>> find_overlaps(Distribution(9, ["block"], 3), 1, [(1, 2)])
    ... # doctest: +NORMALIZE_WHITESPACE
    [Overlap(owner=0, there=(slice(2, 3, None),), here=(slice(0, 1, None),)),
     Overlap(owner=2, there=(slice(1, 3, None),), here=(slice(4, 6, None),))]
    """
    core, grid = distribution.core, distribution.grid
    if not any(map(any, widths)) or 0 in core.local_shape(rank, []):
        return []
    along = _map_grid_axes(distribution)
    place = grid.coordinates(rank)
    mine = _find_bounds(distribution, rank, widths)
    choices = []
    for axis, where in enumerate(place):
        # Other coordinates have elements of the overlap only along divided axes with ghosts.
        divided = along.get(axis)
        moves = divided is not None and any(widths[divided])
        choices.append(range(grid.shape[axis]) if moves else (where,))
    found = []
    for coordinates in _find_near(distribution, choices, along, mine, widths, place):
        owner = grid.rank_of(*coordinates)
        if owner == rank or 0 in core.local_shape(owner, []):
            continue
        theirs = _find_bounds(distribution, owner, widths)
        there, here = [], []
        for d, shape in enumerate(core.local_shape(rank, widths)):
            if not any(widths[d]):
                there.append(slice(0, shape))
                here.append(slice(0, shape))
                continue
            (low, high), (begin, end) = mine[d][1], theirs[d][0]
            first, last = max(low, begin), min(high, end)
            if first >= last:
                break
            there.append(slice(first - theirs[d][1][0], last - theirs[d][1][0]))
            here.append(slice(first - low, last - low))
        else:
            found.append(Overlap(owner, tuple(there), tuple(here)))
    return sorted(found, key=lambda one: one.owner)


def _map_grid_axes(distribution: Distribution) -> dict[int, int]:
    """Map each axis of the grid to the axis of the array that it divides."""
    return {axis: d for d, axis in enumerate(distribution.arguments.axes) if axis is not None}


def _find_bounds(
    distribution: Distribution, rank: int, widths: Widths
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return begin and end along each axis with ghosts: of the owned range, and with ghosts."""
    bounds = []
    owned, _ = distribution.core.pieces(rank, widths, False)
    whole, _ = distribution.core.pieces(rank, widths, True)
    for d, pair in enumerate(widths):
        if not any(pair):
            bounds.append(((0, 0), (0, 0)))
            continue
        ranges = []
        for pieces in (owned, whole):
            ends = pieces[:, d, 0] + (pieces[:, d, 1] - 1) * pieces[:, d, 2] + 1
            ranges.append((int(pieces[:, d, 0].min()), int(ends.max())))
        bounds.append((ranges[0], ranges[1]))
    return bounds


def _find_near(
    distribution: Distribution,
    choices: Sequence[Sequence[int]],
    along: dict[int, int],
    mine: list[tuple[tuple[int, int], tuple[int, int]]],
    widths: Widths,
    place: tuple[int, ...],
) -> itertools.product[tuple[int, ...]]:
    """Return the coordinates of ranks that can own elements of the overlap, found axis by axis."""
    near: list[list[int]] = []
    for axis, coordinates in enumerate(choices):
        if len(coordinates) == 1:
            near.append(list(coordinates))
            continue
        d = along[axis]
        met = []
        for coordinate in coordinates:
            where = (*place[:axis], coordinate, *place[axis + 1 :])
            other = distribution.grid.rank_of(*where)
            if 0 in distribution.core.local_shape(other, []):
                continue
            (begin, end), (low, high) = _find_bounds(distribution, other, widths)[d][0], mine[d][1]
            if max(begin, low) < min(end, high):
                met.append(coordinate)
        near.append(met)
    return itertools.product(*near)
