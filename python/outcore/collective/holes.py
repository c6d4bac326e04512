"""
Holes: what nobody gives of a tile that is written.

Problem. A tile is one section, but ranks may give only parts of it. Either its owner reads what is
missing and writes the tile in few large requests, or it writes piece by piece.

Idea. Both are priced, with the figures of the disk and the state of its cache: on a cold or slow disk a
large read and a large write are cheaper than many small ones, in the page cache pieces are.

Invariants. What is read and written back is what other programs wrote until it was read: what they write
after that is undone. So only tiles of which a quarter or more is given are read first, unless
``Hints(exclusive=True)`` says that nobody else writes. Encoded blocks are written whole in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore.disk import DiskArray

if TYPE_CHECKING:
    from outcore.collective.rounds import Work

__all__ = [
    "SPARSE",
    "Ranges",
    "elements_in",
    "has_holes",
    "is_dense",
    "key_of",
    "rewrites",
    "ways",
    "within",
]

Ranges = list[tuple[int, int, int]]
# Of a tile of which less than this part is given, holes are somebody else's as much as ours.
SPARSE = 4
# So many pieces are priced one by one; what has more is taken for dearer than a whole.
_PRICED = 64


def ways(
    work: Work, slot: NDArray[np.uint8], n: int
) -> tuple[list[Callable[[], None]], list[Callable[[], None]]]:
    """Give what is to be read of tile `n` before ranks copy into it, and what writes it."""
    number, ranges = work.tile(n)
    array = work.array(number)
    view = work.view(slot, n)
    wanted = work.plan.wanted(work.rank, n)
    if wanted is None:
        return [], []
    held, elements, useful, _ = wanted
    place = view[within(held, ranges)]

    def read() -> None:
        # Past the page cache, the write would read the same pages again.
        array._core.read_to_write(key_of(held), place)

    def write() -> None:
        array._core.write(key_of(held), place)

    # In the order of the ranks; what two of them give is in the slot once.
    pieces = [piece for _, _, piece in work.plan.table(work.rank, n)]
    whole = any(elements_in(piece) == elements for piece in pieces)
    if whole or (useful == elements and not work.plan.in_order):
        return [], [write]
    if work.plan.encoded(number) or rewrites(array, held, pieces, useful):
        return [read], [write]

    def write_pieces() -> None:
        for piece in pieces:
            array._core.write(key_of(piece), view[within(piece, ranges)])

    return [], [write_pieces]


def rewrites(array: DiskArray, held: Ranges, pieces: list[Ranges], given: int) -> bool:
    """Whether what is held of a tile is read, changed and written back, or its pieces are written."""
    if not is_dense(array, held, given):
        return False
    if len(pieces) > _PRICED:
        return True
    key = key_of(held)
    both = _price(array, key) + _price(array, key, write=True)
    return both < sum(_price(array, key_of(piece), write=True) for piece in pieces)


def _price(array: DiskArray, key: Any, *, write: bool = False) -> int:
    return array._core.price(key, write)[0]


def has_holes(held: Ranges, given: int) -> bool:
    """
    Tell whether fewer elements are given than a section has.

    Examples
    --------
    >>> has_holes([(0, 4, 1), (0, 5, 1)], 20)
    False
    """
    return given < elements_in(held)


def is_dense(array: DiskArray, held: Ranges, given: int) -> bool:
    """Tell whether so many elements are given of a section that it may be read and written back."""
    return given * SPARSE >= elements_in(held) or bool(array.hints.exclusive)


def key_of(ranges: Ranges) -> tuple[slice, ...]:
    """
    Give a section as a key for indexing.

    Examples
    --------
    >>> key_of([(1, 3, 2), (0, 0, 1)])
    (slice(1, 6, 2), slice(0, 0, None))
    """
    return tuple(slice(a, a + (n - 1) * s + 1, s) if n else slice(0, 0) for a, n, s in ranges)


def within(part: Ranges, tile: Ranges) -> tuple[Any, ...]:
    """Tell where a part of a tile lies in the array that the tile is."""
    places = []
    for (a, n, s), (low, _, step) in zip(part, tile, strict=True):
        first, stride = (a - low) // step, max(s // step, 1)
        places.append(slice(first, first + (n - 1) * stride + 1, stride))
    # The dots keep an array without axes a view.
    return (..., *places)


def elements_in(ranges: Ranges) -> int:
    """Tell how many elements a section has."""
    product = 1
    for _, n, _ in ranges:
        product *= n
    return product
