"""
Periodic ghosts: owners of the elements beyond the ends of periodic axes, and the messages for them.

Problem. On a torus the neighbour after the last rank is the first one. A ghost may be wider than the
part of a neighbour or than the whole array, its owner may be the rank itself, and corners wrap around
along two axes.
Approach. Indices continue beyond the ends. An axis with ghosts is divided into blocks, so a rank has an
interval along it, which its ghosts extend. Cut where an owner or a period of the axis ends, it becomes a
list of intervals (`Interval`). Messages are products of intervals: boxes in memory on both sides. Along
an axis without ghosts, a rank and its owners have the same indices in the same places.

Invariants. The lists are equal on all ranks: both sides of a message list the same boxes in the same
order, and cut them into rounds in the same way. Every ghost is received once. When ghosts are combined
with the elements that they copy, a rank takes them in the order of ranks, element by element, whatever
the limit of a round.

Reference: *PASSION: Parallel and Scalable Software for Input-Output*, section 4.3 (overlap areas, the
shift of boundary data); ``MPI_Cart_create`` with ``periods``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outcore.base.distribution import Distribution, Key

__all__ = ["BoxTraffic", "Torus"]

#: First position and number of positions along each axis of the memory of a rank.
Box = tuple[tuple[int, ...], tuple[int, ...]]
#: Boxes by peer, in the order in which they are sent.
Boxes = dict[int, list[Box]]
_Messages = list[tuple[int, NDArray[np.int64]]]
_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class Interval:
    """
    Consecutive indices along one axis that one coordinate owns and the same or another one needs.

    `owner` is the coordinate of the owner along the axis. `at` and `source` are the first positions in
    the memory of the rank that needs them, and of the owner, including ghosts. `start` is the first
    index in the array. `own` is true for elements that the rank owns, false for ghosts.
    """

    owner: int
    at: int
    source: int
    start: int
    count: int
    own: bool


class Torus:
    """
    The ghosts of all ranks of a distribution that has periodic axes.

    Examples
    --------
    >>> ring = Torus(Distribution(6, ["block"], 3), [(1, 1)], (True,))
    >>> [(one.owner, one.start) for one in ring.list_intervals(0, 0)]
    [(2, 5), (0, 0), (1, 2)]
    """

    def __init__(
        self,
        distribution: Distribution,
        widths: Sequence[tuple[int, int]],
        periodic: tuple[bool, ...],
    ) -> None:
        self._distribution, self._core = distribution, distribution.core
        self.widths, self.periodic = list(widths), periodic
        self._along: tuple[int | None, ...] = distribution.arguments.axes

    # Positions in the memory of a rank.

    def locate_inside(self, rank: int) -> tuple[slice, ...]:
        """Return the part of the memory of a rank that is within the ends of the array."""
        shape = self._core.local_shape(rank, self.widths)
        if not math.prod(shape):
            return (slice(None),) * len(shape)
        first = self._find_first(rank)
        found = []
        for d, (low, _) in enumerate(self.widths):
            beyond = max(low - first[d], 0) if self.periodic[d] else 0
            found.append(slice(beyond, beyond + shape[d]))
        return tuple(found)

    def list_pieces(self, rank: int) -> tuple[list[Key], NDArray[np.int64]]:
        """Return the sections that a rank has, including ghosts, and rows of their positions."""
        found, places = self._core.pieces(rank, [], False)
        if not len(found):
            return [], np.zeros((0, len(self.widths), 3), np.int64)
        at = self._get_coordinates(rank)
        axes: list[list[tuple[slice, tuple[int, int, int]]]] = []
        for d, widths in enumerate(self.widths):
            if widths == (0, 0):
                pairs = zip(places[:, d].tolist(), found[:, d].tolist(), strict=True)
                strips = sorted({(tuple(place), tuple(indices)) for place, indices in pairs})
                axes.append([(_make_slice(*indices), place) for place, indices in strips])
            else:
                axes.append(
                    [
                        (slice(one.start, one.start + one.count), (one.at, one.count, 1))
                        for one in self.list_intervals(d, at[d])
                    ]
                )
        keys, rows = [], []
        for each in product(*axes):
            keys.append(tuple(key for key, _ in each))
            rows.append([place for _, place in each])
        return keys, np.array(rows, np.int64).reshape(len(rows), len(axes), 3)

    # Ownership.

    @cached_property
    def _ends(self) -> list[list[tuple[int, int]]]:
        """Ranges (first, one past the last) of all coordinates, for each axis with ghosts."""
        shape = self._distribution.shape
        if not math.prod(shape):
            return [[(0, 0)]] * len(shape)
        base = int(self._core.owners(np.zeros((1, len(shape)), np.int64))[0])
        return [
            self._find_ends(d, base) if widths != (0, 0) else []
            for d, widths in enumerate(self.widths)
        ]

    def _find_ends(self, axis: int, base: int) -> list[tuple[int, int]]:
        """Return the ends along one axis; `base` is a rank that has elements along all other axes."""
        along, grid = self._along[axis], self._distribution.grid
        if along is None:
            return [(0, self._distribution.shape[axis])]
        found = []
        for c in range(grid.shape[along]):
            at = list(grid.coordinates(base))
            at[along] = c
            rank = grid.rank_of(*at)
            count = self._core.local_shape(rank, [])[axis]
            first = self._find_first(rank)[axis] if count else 0
            found.append((first, first + count))
        return found

    def _find_first(self, rank: int) -> list[int]:
        """Return the lowest index along each axis of the elements of a rank, which must have some."""
        place = np.zeros((1, len(self.widths)), np.int64)
        return self._core.global_indices(rank, place)[0].tolist()  # type: ignore[no-any-return]

    def list_intervals(self, axis: int, c: int) -> list[Interval]:
        """Return the intervals of a coordinate along an axis with ghosts, in the order of positions."""
        ends, n = self._ends[axis], self._distribution.shape[axis]
        low, high = ends[c]
        if low == high:
            return []
        before, behind = self._count_ghosts(axis, low, high)
        order = sorted((first, owner) for owner, (first, end) in enumerate(ends) if first < end)
        firsts = [first for first, _ in order]
        found, at = [], low - before
        while at < high + behind:
            turn, index = divmod(at, n)
            first, owner = order[bisect_right(firsts, index) - 1]
            count = min(high + behind, turn * n + ends[owner][1]) - at
            source = index - first + self._count_ghosts(axis, *ends[owner])[0]
            own = turn == 0 and owner == c
            found.append(Interval(owner, at - low + before, source, index, count, own))
            at += count
        return found

    def _count_ghosts(self, axis: int, low: int, high: int) -> tuple[int, int]:
        """Return the number of ghosts before and after the elements that a coordinate owns."""
        before, behind = self.widths[axis]
        if self.periodic[axis]:
            return before, behind
        return min(before, low), min(behind, self._distribution.shape[axis] - high)

    def _get_coordinates(self, rank: int) -> list[int]:
        """Return the coordinate of a rank along each axis of the array; 0 along undivided axes."""
        at = self._distribution.grid.coordinates(rank)
        return [0 if along is None else at[along] for along in self._along]

    def _find_rank(self, like: int, at: Sequence[int]) -> int:
        """Return the rank at these coordinates in the same copy as rank `like`."""
        grid = self._distribution.grid
        found = list(grid.coordinates(like))
        for along, c in zip(self._along, at, strict=True):
            if along is not None:
                found[along] = c
        return grid.rank_of(*found)

    # Messages.

    def list_wanted(self, rank: int) -> Boxes:
        """Return the boxes of the ghosts of a rank in its memory, by owner."""
        return self._list_boxes(
            rank, lambda axis, c: [(one.owner, one.at, one) for one in self.list_intervals(axis, c)]
        )

    def list_given(self, rank: int) -> Boxes:
        """Return the boxes in the memory of this rank that are ghosts of other ranks, by rank."""
        return self._list_boxes(
            rank,
            lambda axis, c: [
                (taker, one.source, one) for taker, one in self._takers[axis].get(c, [])
            ],
        )

    def _list_boxes(
        self, rank: int, along: Callable[[int, int], list[tuple[int, int, Interval]]]
    ) -> Boxes:
        """
        Return boxes of ghosts in the memory of a rank, by peer.

        `along` returns for an axis and the coordinate of the rank: coordinate of the peer, first
        position in the memory of the rank, and interval.
        """
        at, shape = self._get_coordinates(rank), self._core.local_shape(rank, [])
        found: Boxes = {}
        if not math.prod(shape):
            return found
        axes = []
        for d, widths in enumerate(self.widths):
            # Along axes without ghosts, both ranks have the same indices in the same positions.
            whole = [(at[d], 0, Interval(at[d], 0, 0, 0, shape[d], True))]
            axes.append(whole if widths == (0, 0) else along(d, at[d]))
        for each in product(*axes):
            if all(one.own for _, _, one in each):
                continue
            peer = self._find_rank(rank, [c for c, _, _ in each])
            box = tuple(first for _, first, _ in each), tuple(one.count for _, _, one in each)
            found.setdefault(peer, []).append(box)
        return dict(sorted(found.items()))

    @cached_property
    def _takers(self) -> list[dict[int, list[tuple[int, Interval]]]]:
        """Return, for each axis with ghosts and by owner, the coordinates that need its intervals."""
        found: list[dict[int, list[tuple[int, Interval]]]] = []
        for d, widths in enumerate(self.widths):
            by_owner: dict[int, list[tuple[int, Interval]]] = {}
            for c in range(len(self._ends[d])) if widths != (0, 0) else ():
                for one in self.list_intervals(d, c):
                    by_owner.setdefault(one.owner, []).append((c, one))
            found.append(by_owner)
        return found

    def update(self, me: int, limit: int | None) -> BoxTraffic:
        """Return the messages of rank `me` that set all ghosts to the values of their owners."""
        gets, sends = self.list_wanted(me), self.list_given(me)
        own = sends.pop(me, []), gets.pop(me, [])
        out = {peer: _cut(boxes, limit) for peer, boxes in sends.items()}
        back = {peer: _cut(boxes, limit) for peer, boxes in gets.items()}
        return BoxTraffic("copy", out, back, own, len(self.widths))

    def accumulate(self, operation: str, me: int, limit: int | None) -> BoxTraffic:
        """Return the messages of rank `me` that combine all ghosts with the elements that they copy."""
        out = {}
        for owner, boxes in self.list_wanted(me).items():
            # The rounds follow from the stream of everything that the owner receives.
            out[owner] = _place_parts(_cut_stream(self.list_given(owner), limit)[me], boxes)
        comes = self.list_given(me)
        rounds = _cut_stream(comes, limit)
        back = {peer: _place_parts(rounds[peer], boxes) for peer, boxes in comes.items()}
        return BoxTraffic(operation, out, back, ([], []), len(self.widths))


@dataclass
class BoxTraffic:
    """
    One rank's messages, as boxes in memory; `collective.traffic` runs them.

    `operation` is applied to the received elements: ``"copy"``, ``"add"``, ... `out` and `back` are
    boxes sent and received, by peer, in rounds. `kept` are boxes that the rank copies itself: sources
    and targets.
    """

    operation: str
    out: dict[int, list[list[Box]]]
    back: dict[int, list[list[Box]]]
    kept: tuple[list[Box], list[Box]]
    ndim: int

    @property
    def rounds(self) -> int:
        """Number of rounds in which this rank takes part; at least 1."""
        each = (*self.out.values(), *self.back.values())
        return max((len(rounds) for rounds in each), default=1)

    @property
    def elements(self) -> tuple[int, int]:
        """Number of elements that the rank sends and that it receives, in all rounds."""
        out, back = (sum(map(_count_elements, way.values())) for way in (self.out, self.back))
        return out, back

    @property
    def own(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sources and targets of the elements that are copied within the rank."""
        return self._make_rows(self.kept[0]), self._make_rows(self.kept[1])

    def bound(self, limit: int) -> int:
        """Return the largest number of elements in buffers at one time, for rounds with this limit."""
        held = sum(min(_count_elements(rounds), limit) for rounds in self.out.values())
        received = [_count_elements(rounds) for rounds in self.back.values()]
        if self.operation != "copy":
            return held + min(sum(received), limit)
        return held + sum(min(n, limit) for n in received)

    def limit(self, room: int) -> int:
        """Return a limit with which buffers hold at most `room` elements, or 1."""
        if self.bound(_NO_LIMIT) <= room:
            return _NO_LIMIT
        received = 1 if self.operation != "copy" else len(self.back)
        return max(room // (len(self.out) + received), 1)

    def sends(self, number: int) -> _Messages:
        """Return the messages to each peer in a round."""
        return self._list_messages(self.out, number)

    def receives(self, number: int) -> _Messages:
        """Return the messages from each peer in a round, in the order of ranks."""
        return self._list_messages(self.back, number)

    def _list_messages(self, way: dict[int, list[list[Box]]], number: int) -> _Messages:
        return [
            (peer, self._make_rows(rounds[number]))
            for peer, rounds in sorted(way.items())
            if number < len(rounds) and rounds[number]
        ]

    def _make_rows(self, boxes: list[Box]) -> NDArray[np.int64]:
        rows = [[(a, n, 1) for a, n in zip(*box, strict=True)] for box in boxes]
        return np.array(rows, np.int64).reshape(len(boxes), self.ndim, 3)


#: Part of a box: number of the box, first indices and lengths.
_Part = tuple[int, tuple[int, ...], tuple[int, ...]]


def _cut(boxes: list[Box], limit: int | None) -> list[list[Box]]:
    """Cut boxes into rounds of at most `limit` elements."""
    return _place_parts(_cut_boxes([count for _, count in boxes], limit), boxes)


def _place_parts(rounds: list[list[_Part]], boxes: list[Box]) -> list[list[Box]]:
    """Return parts of boxes at the positions of the boxes."""

    def place(part: _Part) -> Box:
        number, start, count = part
        return tuple(a + b for a, b in zip(boxes[number][0], start, strict=True)), count

    return [list(map(place, parts)) for parts in rounds]


def _cut_stream(comes: Boxes, limit: int | None) -> dict[int, list[list[_Part]]]:
    """Cut all that a rank receives, message after message, into rounds of at most `limit` elements."""
    peers = [(peer, n) for peer, boxes in comes.items() for n in range(len(boxes))]
    rounds = _cut_boxes([comes[peer][n][1] for peer, n in peers], limit)
    found: dict[int, list[list[_Part]]] = {peer: [[] for _ in rounds] for peer in comes}
    for number, parts in enumerate(rounds):
        for one, start, count in parts:
            peer, n = peers[one]
            found[peer][number].append((n, start, count))
    return found


def _cut_boxes(counts: Sequence[tuple[int, ...]], limit: int | None) -> list[list[_Part]]:
    """
    Cut boxes of these lengths into rounds of at most `limit` elements, each round filled up.

    Examples
    --------
    >>> _cut_boxes([(2, 3), (1, 2)], 4)
    [[(0, (0, 0), (1, 3))], [(0, (1, 0), (1, 3))], [(1, (0, 0), (1, 2))]]
    """
    rounds: list[list[_Part]] = [[]]
    left = most = _NO_LIMIT if limit is None else limit
    for part in (part for n, count in enumerate(counts) for part in _iterate_slabs(n, count, most)):
        size = math.prod(part[2])
        if size > left:
            rounds.append([])
            left = most
        rounds[-1].append(part)
        left -= size
    return rounds


def _iterate_slabs(number: int, count: tuple[int, ...], most: int) -> Iterator[_Part]:
    """Yield the parts of a box with at most `most` elements, each a slab of it, in C order."""
    lengths, inner = list(count), 1
    for d in reversed(range(len(count))):
        # Faster axes are whole; along slower axes the slab has one index.
        lengths[d] = max(min(count[d], most // max(inner, 1)), 1)
        inner *= lengths[d]
    starts = [range(0, n, length) for n, length in zip(count, lengths, strict=True)]
    for start in product(*starts):
        part = zip(start, lengths, count, strict=True)
        yield number, start, tuple(min(length, n - a) for a, length, n in part)


def _count_elements(rounds: list[list[Box]]) -> int:
    return sum(math.prod(count) for boxes in rounds for _, count in boxes)


def _make_slice(start: int, count: int, step: int) -> slice:
    return slice(start, start + (count - 1) * step + 1, None if step == 1 else step)
