"""
Ghosts that go round: who has which element beyond the ends of a periodic axis, and what travels for it.

Problem. On a torus the neighbour behind the last rank is the first one. A ghost may be wider than the
part of a neighbour, than all of the array, and its owner may be the rank itself; corners go round along
two axes.
Idea. Indices count on beyond the ends. An axis with ghosts is divided in blocks, so along it a rank has
an interval, and its ghosts lengthen it; cut where an owner or a turn round the axis ends, it is a list
of intervals (`Interval`). What travels are products of these, boxes in memory at both ends. Along an
axis without ghosts a rank and its owners have the same indices, in the same places.

Invariants. Equal on all ranks: both ends of a message list the same boxes in the same order, and cut
them alike in rounds. Every ghost is received once. Where ghosts are combined with what they are copies
of, a rank takes them in the order of ranks, element by element, whatever the limit of a round.

Reference: *PASSION: Parallel and Scalable Software for Input-Output*, section 4.3 (overlap areas, the
shift of boundary data); ``MPI_Cart_create`` with ``periods``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outcore.base.distribution import Distribution, Key

__all__ = ["BoxTraffic", "Torus"]

#: First place and number of places along each axis of the memory of a rank.
Box = tuple[tuple[int, ...], tuple[int, ...]]
#: By peer, boxes in the order in which they travel.
Boxes = dict[int, list[Box]]
_Messages = list[tuple[int, NDArray[np.int64]]]
_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class Interval:
    """
    Indices in a row along one axis, which one coordinate owns and another one, or the same, wants.

    Parameters
    ----------
    owner
        The coordinate along the axis.
    at, source
        First place in the memory of who wants them, and of the owner, ghosts included.
    start, count
        First index in the array, and how many.
    own
        Whether it is what a rank owns, and no ghost.
    """

    owner: int
    at: int
    source: int
    start: int
    count: int
    own: bool


class Torus:
    """
    The ghosts of all ranks of a distribution, some of whose axes are periodic.

    Parameters
    ----------
    distribution
        Which rank has which elements.
    widths
        Widths of the ghosts, a pair (before, behind) per axis.
    periodic
        Which axes go round.

    Examples
    --------
    >>> ring = Torus(Distribution(6, ["block"], 3), [(1, 1)], (True,))
    >>> [(one.owner, one.start) for one in ring.intervals(0, 0)]
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

    # Where things are in the memory of a rank.

    def inside(self, rank: int) -> tuple[slice, ...]:
        """The part of the memory of a rank that is not beyond the ends of the array."""
        shape = self._core.local_shape(rank, self.widths)
        if not math.prod(shape):
            return (slice(None),) * len(shape)
        first = self._first(rank)
        found = []
        for d, (low, _) in enumerate(self.widths):
            beyond = max(low - first[d], 0) if self.periodic[d] else 0
            found.append(slice(beyond, beyond + shape[d]))
        return tuple(found)

    def pieces(self, rank: int) -> tuple[list[Key], NDArray[np.int64]]:
        """The sections of the array that a rank has, ghosts included; and where: rows of places."""
        found, places = self._core.pieces(rank, [], False)
        if not len(found):
            return [], np.zeros((0, len(self.widths), 3), np.int64)
        at = self._coordinates(rank)
        axes: list[list[tuple[slice, tuple[int, int, int]]]] = []
        for d, widths in enumerate(self.widths):
            if widths == (0, 0):
                pairs = zip(places[:, d].tolist(), found[:, d].tolist(), strict=True)
                strips = sorted({(tuple(place), tuple(indices)) for place, indices in pairs})
                axes.append([(_slice(*indices), place) for place, indices in strips])
            else:
                axes.append(
                    [
                        (slice(one.start, one.start + one.count), (one.at, one.count, 1))
                        for one in self.intervals(d, at[d])
                    ]
                )
        keys, rows = [], []
        for each in product(*axes):
            keys.append(tuple(key for key, _ in each))
            rows.append([place for _, place in each])
        return keys, np.array(rows, np.int64).reshape(len(rows), len(axes), 3)

    # Who has what.

    @cached_property
    def _ends(self) -> list[list[tuple[int, int]]]:
        """Of each axis with ghosts: first index and one past the last of each coordinate."""
        shape = self._distribution.shape
        if not math.prod(shape):
            return [[(0, 0)]] * len(shape)
        base = int(self._core.owners(np.zeros((1, len(shape)), np.int64))[0])
        return [
            self._ends_of(d, base) if widths != (0, 0) else []
            for d, widths in enumerate(self.widths)
        ]

    def _ends_of(self, axis: int, base: int) -> list[tuple[int, int]]:
        """`base` is a rank that has something along all other axes."""
        along, grid = self._along[axis], self._distribution.grid
        if along is None:
            return [(0, self._distribution.shape[axis])]
        found = []
        for c in range(grid.shape[along]):
            at = list(grid.coordinates(base))
            at[along] = c
            rank = grid.rank_of(*at)
            count = self._core.local_shape(rank, [])[axis]
            first = self._first(rank)[axis] if count else 0
            found.append((first, first + count))
        return found

    def _first(self, rank: int) -> list[int]:
        """The lowest index along each axis of what a rank has, which is something."""
        place = np.zeros((1, len(self.widths)), np.int64)
        return self._core.global_indices(rank, place)[0].tolist()  # type: ignore[no-any-return]

    def intervals(self, axis: int, c: int) -> list[Interval]:
        """What a coordinate has along an axis with ghosts, in the order of places."""
        ends, n = self._ends[axis], self._distribution.shape[axis]
        low, high = ends[c]
        if low == high:
            return []
        before, behind = self._room(axis, low, high)
        order = sorted((first, owner) for owner, (first, end) in enumerate(ends) if first < end)
        firsts = [first for first, _ in order]
        found, at = [], low - before
        while at < high + behind:
            turn, index = divmod(at, n)
            first, owner = order[bisect_right(firsts, index) - 1]
            count = min(high + behind, turn * n + ends[owner][1]) - at
            source = index - first + self._room(axis, *ends[owner])[0]
            own = turn == 0 and owner == c
            found.append(Interval(owner, at - low + before, source, index, count, own))
            at += count
        return found

    def _room(self, axis: int, low: int, high: int) -> tuple[int, int]:
        """How many ghosts there are before and behind what a coordinate owns."""
        before, behind = self.widths[axis]
        if self.periodic[axis]:
            return before, behind
        return min(before, low), min(behind, self._distribution.shape[axis] - high)

    def _coordinates(self, rank: int) -> list[int]:
        """The coordinate of a rank along each axis of the array; 0 along those that are not divided."""
        at = self._distribution.grid.coordinates(rank)
        return [0 if along is None else at[along] for along in self._along]

    def _rank(self, like: int, at: Sequence[int]) -> int:
        """The rank at these coordinates, of the same copy as another one."""
        grid = self._distribution.grid
        found = list(grid.coordinates(like))
        for along, c in zip(self._along, at, strict=True):
            if along is not None:
                found[along] = c
        return grid.rank_of(*found)

    # What travels.

    def wanted(self, rank: int) -> Boxes:
        """By owner, the ghosts of a rank: where it has them."""
        at, shape = self._coordinates(rank), self._core.local_shape(rank, [])
        found: Boxes = {}
        if not math.prod(shape):
            return found
        axes = []
        for d, widths in enumerate(self.widths):
            # Along other axes an owner has the same indices in the same places.
            whole = [Interval(at[d], 0, 0, 0, shape[d], True)]
            axes.append(whole if widths == (0, 0) else self.intervals(d, at[d]))
        for each in product(*axes):
            if all(one.own for one in each):
                continue
            owner = self._rank(rank, [one.owner for one in each])
            box = tuple(one.at for one in each), tuple(one.count for one in each)
            found.setdefault(owner, []).append(box)
        return dict(sorted(found.items()))

    def given(self, rank: int) -> Boxes:
        """By rank, what it wants of this one as ghosts, and where this one has it."""
        at, shape = self._coordinates(rank), self._core.local_shape(rank, [])
        found: Boxes = {}
        if not math.prod(shape):
            return found
        axes: list[list[tuple[int, Interval]]] = []
        for d, widths in enumerate(self.widths):
            whole = [(at[d], Interval(at[d], 0, 0, 0, shape[d], True))]
            axes.append(whole if widths == (0, 0) else self._takers[d].get(at[d], []))
        for each in product(*axes):
            if all(one.own for _, one in each):
                continue
            taker = self._rank(rank, [c for c, _ in each])
            box = tuple(one.source for _, one in each), tuple(one.count for _, one in each)
            found.setdefault(taker, []).append(box)
        return dict(sorted(found.items()))

    @cached_property
    def _takers(self) -> list[dict[int, list[tuple[int, Interval]]]]:
        """Of each axis with ghosts, by owner: who wants which interval of it."""
        found: list[dict[int, list[tuple[int, Interval]]]] = []
        for d, widths in enumerate(self.widths):
            by_owner: dict[int, list[tuple[int, Interval]]] = {}
            for c in range(len(self._ends[d])) if widths != (0, 0) else ():
                for one in self.intervals(d, c):
                    by_owner.setdefault(one.owner, []).append((c, one))
            found.append(by_owner)
        return found

    def update(self, me: int, limit: int | None) -> BoxTraffic:
        """What rank `me` sends and receives so that all ghosts are what their owners have."""
        gets, sends = self.wanted(me), self.given(me)
        own = sends.pop(me, []), gets.pop(me, [])
        out = {peer: _cut(boxes, limit) for peer, boxes in sends.items()}
        back = {peer: _cut(boxes, limit) for peer, boxes in gets.items()}
        return BoxTraffic("copy", out, back, own, len(self.widths))

    def accumulate(self, operation: str, me: int, limit: int | None) -> BoxTraffic:
        """What it sends and receives so that all ghosts are combined with what they are copies of."""
        out = {}
        for owner, boxes in self.wanted(me).items():
            # Which of them goes in which round, the stream of all that the owner receives tells.
            out[owner] = _placed(_in_stream(self.given(owner), limit)[me], boxes)
        comes = self.given(me)
        rounds = _in_stream(comes, limit)
        back = {peer: _placed(rounds[peer], boxes) for peer, boxes in comes.items()}
        return BoxTraffic(operation, out, back, ([], []), len(self.widths))


@dataclass
class BoxTraffic:
    """
    One rank's part of what goes between ranks, as boxes in memory; what `collective.traffic` runs.

    Parameters
    ----------
    operation
        What is done with what comes: ``"copy"``, ``"add"``, ...
    out, back
        By peer what is sent and what is received, in rounds.
    kept
        What the rank has itself: from where, to where.
    ndim
        Axes of the memory.
    """

    operation: str
    out: dict[int, list[list[Box]]]
    back: dict[int, list[list[Box]]]
    kept: tuple[list[Box], list[Box]]
    ndim: int

    @property
    def rounds(self) -> int:
        """How many this rank takes part in; at least 1."""
        each = (*self.out.values(), *self.back.values())
        return max((len(rounds) for rounds in each), default=1)

    @property
    def elements(self) -> tuple[int, int]:
        """Elements that it sends and that it receives, in all rounds."""
        out, back = (sum(map(_elements, way.values())) for way in (self.out, self.back))
        return out, back

    @property
    def own(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What is copied within the rank, from where and to where."""
        return self._rows(self.kept[0]), self._rows(self.kept[1])

    def bound(self, limit: int) -> int:
        """Elements of messages that are in buffers at once, at most, if rounds are cut with a limit."""
        held = sum(min(_elements(rounds), limit) for rounds in self.out.values())
        received = [_elements(rounds) for rounds in self.back.values()]
        if self.operation != "copy":
            return held + min(sum(received), limit)
        return held + sum(min(n, limit) for n in received)

    def limit(self, room: int) -> int:
        """A limit with which buffers take no more than `room` elements, or 1."""
        if self.bound(_NO_LIMIT) <= room:
            return _NO_LIMIT
        received = 1 if self.operation != "copy" else len(self.back)
        return max(room // (len(self.out) + received), 1)

    def sends(self, number: int) -> _Messages:
        """What goes to each peer in a round."""
        return self._of(self.out, number)

    def receives(self, number: int) -> _Messages:
        """What comes from each peer in a round, in the order of ranks."""
        return self._of(self.back, number)

    def _of(self, way: dict[int, list[list[Box]]], number: int) -> _Messages:
        return [
            (peer, self._rows(rounds[number]))
            for peer, rounds in sorted(way.items())
            if number < len(rounds) and rounds[number]
        ]

    def _rows(self, boxes: list[Box]) -> NDArray[np.int64]:
        rows = [[(a, n, 1) for a, n in zip(*box, strict=True)] for box in boxes]
        return np.array(rows, np.int64).reshape(len(boxes), self.ndim, 3)


#: Number of a box, and the part of it: first indices and lengths.
_Part = tuple[int, tuple[int, ...], tuple[int, ...]]


def _cut(boxes: list[Box], limit: int | None) -> list[list[Box]]:
    """Boxes in rounds of at most so many elements."""
    return _placed(_parts([count for _, count in boxes], limit), boxes)


def _placed(rounds: list[list[_Part]], boxes: list[Box]) -> list[list[Box]]:
    """Parts of boxes, where the boxes are."""

    def place(part: _Part) -> Box:
        number, start, count = part
        return tuple(a + b for a, b in zip(boxes[number][0], start, strict=True)), count

    return [list(map(place, parts)) for parts in rounds]


def _in_stream(comes: Boxes, limit: int | None) -> dict[int, list[list[_Part]]]:
    """All that a rank receives, message after message, in rounds of at most so many elements."""
    peers = [(peer, n) for peer, boxes in comes.items() for n in range(len(boxes))]
    rounds = _parts([comes[peer][n][1] for peer, n in peers], limit)
    found: dict[int, list[list[_Part]]] = {peer: [[] for _ in rounds] for peer in comes}
    for number, parts in enumerate(rounds):
        for one, start, count in parts:
            peer, n = peers[one]
            found[peer][number].append((n, start, count))
    return found


def _parts(counts: Sequence[tuple[int, ...]], limit: int | None) -> list[list[_Part]]:
    """
    Boxes of these lengths in rounds of at most `limit` elements, cut where a round is full.

    Examples
    --------
    >>> _parts([(2, 3), (1, 2)], 4)
    [[(0, (0, 0), (1, 3))], [(0, (1, 0), (1, 3))], [(1, (0, 0), (1, 2))]]
    """
    rounds: list[list[_Part]] = [[]]
    left = most = _NO_LIMIT if limit is None else limit
    for part in (part for n, count in enumerate(counts) for part in _fitting(n, count, most)):
        size = math.prod(part[2])
        if size > left:
            rounds.append([])
            left = most
        rounds[-1].append(part)
        left -= size
    return rounds


def _fitting(number: int, count: tuple[int, ...], most: int) -> Iterator[_Part]:
    """A box in parts of at most so many elements, each a slab of it, in C order."""
    lengths, inner = list(count), 1
    for d in reversed(range(len(count))):
        # What is faster is whole, what is slower is one index.
        lengths[d] = max(min(count[d], most // max(inner, 1)), 1)
        inner *= lengths[d]
    starts = [range(0, n, length) for n, length in zip(count, lengths, strict=True)]
    for start in product(*starts):
        part = zip(start, lengths, count, strict=True)
        yield number, start, tuple(min(length, n - a) for a, length, n in part)


def _elements(rounds: list[list[Box]]) -> int:
    return sum(math.prod(count) for boxes in rounds for _, count in boxes)


def _slice(start: int, count: int, step: int) -> slice:
    return slice(start, start + (count - 1) * step + 1, None if step == 1 else step)
