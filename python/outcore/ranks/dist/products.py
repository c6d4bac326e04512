"""
Product of two distributed matrices with SUMMA: panels of the inner axis one after another.

Problem. For its part of a product, a rank needs whole rows of one factor and whole columns of the other,
and other ranks have most of them. On ``p x q`` ranks the first factor would be in memory ``q`` times and
the second ``p`` times. Approach. A product is a sum over the inner axis. Some of its indices, a panel,
are brought from the ranks that have them, multiplied where the part of the product is stored, and added
to it. A panel of a distributed matrix is itself a distributed matrix, aligned with the template of the
whole one (`take_range`), so bringing it is an ordinary redistribution.

Invariants. All ranks cut the inner axis in the same way, into as few panels as the rank with the least
free memory can hold. Sums are computed in ascending order of the inner axis in the type of the product
(``float32`` for ``float16``), and rounded once to that of the result. Panels, casts, the tile, and sums
in another type count in the budget.

Reference: van de Geijn, Watts, *SUMMA: Scalable Universal Matrix Multiplication Algorithm*; Nieplocha,
Foster, *Disk Resident Arrays*, section 5.2 (the in-core part of the out-of-core product).
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.base.distribution import Distribution, divide_like, take_range
from outcore.errors import BudgetError
from outcore.ranks.dist.base import DistArrayBase
from outcore.ranks.dist.redistribution import RankPart, bring_all
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import DeferredInterrupt

__all__ = ["multiply_all"]

# Wider panels do not make products faster, but leave less memory for everything else.
_LARGEST = 256 * 2**20
# A tile stays in the processor cache while it is added, and is large enough for the BLAS.
_TILE = 16 * 2**20
_CALL = "matmul_all"


def multiply_all(
    x: DistArrayBase, y: DistArrayBase, result: DistArrayBase, dtype: np.dtype[Any]
) -> None:
    """
    Store ``x @ y`` in `result`, with NumPy's `dtype` of the product. Collective.

    All three may have any distribution. The memory of `result` is not that of `x` or `y`. Errors are
    those of `DistArray.matmul_all`.
    """
    product = _Product(x, y, result, dtype)

    def tell() -> str:
        return f"DistArray.{_CALL} of {x.shape} and {y.shape}"

    ranks = Ranks.of_call(x.transport, f"DistArray.{_CALL}")
    # The other ranks wait for all panels, so Ctrl-C is deferred until the end.
    with DeferredInterrupt():
        try:
            # The number of indices for which every rank has memory.
            wide = min(ranks.gather_numbers(product.estimate_room, tell).setting(0))
            while True:
                step = partial(product.reserve, wide)
                if all(ranks.gather_numbers(step, tell).setting(0)):
                    break
                wide //= 2
            ranks.gather_numbers(partial(product.allocate, wide), tell)
            for low, high in product.cuts:
                product.bring_all(low, high)
                ranks.gather_numbers(product.add, tell)
        finally:
            product.release()


class _Factor:
    """One of the factors: the elements that this rank needs, and memory for a panel of them."""

    def __init__(self, array: DistArrayBase, inner: int, product: Distribution, work: Any) -> None:
        self._array, self._inner, self._product = array, inner, product
        self._work = np.dtype(work)
        # Whether each rank has the elements that it needs: the same on all ranks.
        self._here = self._get_distribution(array.shape[inner]) == array.distribution
        self.length = product.local_shape(array.rank)[1 - inner]
        #: Position of the next panel in the part of this rank.
        self._at = 0
        self._brought: NDArray[Any] = np.empty(0, np.uint8)
        self._cast = self._brought
        self.panel: NDArray[Any] = np.empty((0, 0))

    def _get_distribution(self, wide: int) -> Distribution:
        """Return the distribution in which a rank has all of its rows, or columns, of a panel."""
        outer = 1 - self._inner
        axes: list[int | None] = [None, None]
        axes[outer] = outer
        shape = list(self._array.shape)
        shape[self._inner] = wide
        return divide_like(self._product, axes, shape)

    @property
    def per_index(self) -> int:
        """Bytes for one index of the inner axis."""
        return self.length * sum(self._items)

    @property
    def _items(self) -> tuple[int, int]:
        """Bytes of an element that is brought, and of one that is cast; 0 if not needed."""
        dtype = self._array.dtype
        return (
            0 if self._here else dtype.itemsize,
            0 if dtype == self._work else self._work.itemsize,
        )

    def allocate(self, wide: int) -> None:
        """Allocate the memory for panels of `wide` indices."""
        brought, cast = (np.empty(self.length * wide * item, np.uint8) for item in self._items)
        self._brought, self._cast = brought, cast

    def bring_all(self, low: int, high: int) -> None:
        """Bring a panel. Collective, unless all ranks have their elements."""
        array, wide = self._array, high - low
        if self._here:
            self.panel = self._view(array.owned, low, wide)
            return
        whole = wide == array.shape[self._inner]
        how = (
            array.distribution if whole else take_range(array.distribution, self._inner, low, high)
        )
        mine = how.local_shape(array.rank)[self._inner]
        source = RankPart(how, [], self._view(array.owned, self._at, mine))
        self._at += mine

        def make() -> RankPart:
            needed = self._get_distribution(wide)
            shape = needed.local_shape(array.rank)
            self.panel = _view_shaped(self._brought, array.dtype, shape)
            return RankPart(needed, [], self.panel)

        bring_all(array.transport, _CALL, source, make)

    def _view(self, memory: NDArray[Any], at: int, count: int) -> NDArray[Any]:
        keys = [slice(None), slice(None)]
        keys[self._inner] = slice(at, at + count)
        return memory[keys[0], keys[1]]

    def cast(self) -> NDArray[Any]:
        """Return the panel in the type of the product."""
        if self.panel.dtype == self._work:
            return self.panel
        cast = _view_shaped(self._cast, self._work, self.panel.shape)
        np.copyto(cast, self.panel)
        return cast


class _Product:
    """One rank's part of a product: its memory, and the panels that it adds."""

    def __init__(
        self, x: DistArrayBase, y: DistArrayBase, result: DistArrayBase, dtype: np.dtype[Any]
    ) -> None:
        self._work = np.dtype(np.float32 if dtype == np.float16 else dtype)
        how = result.distribution
        self._factors = (_Factor(x, 1, how, self._work), _Factor(y, 0, how, self._work))
        self._inner, self._result = x.shape[1], result
        self._shape = how.local_shape(result.rank)
        self._per_index = sum(factor.per_index for factor in self._factors)
        self._held: _core.Reservation | None = None
        self._spare: _core.Reservation | None = None
        self._sum = self._tile = np.empty((0, 0), self._work)
        #: First index of each panel along the inner axis, and one past its last index.
        self.cuts: list[tuple[int, int]] = []
        self._added = 0

    def estimate_room(self) -> list[int]:
        """Return the number of indices of the inner axis for which this rank has memory at one time."""
        # A quarter of the free memory; messages and other work need memory as well.
        room = min(_LARGEST, _core.memory_state()[1] // 4)
        return [max(min(room // max(self._per_index, 1), self._inner), 1)]

    def reserve(self, wide: int) -> list[int]:
        """Reserve memory for panels of `wide` indices; return whether this rank has enough."""
        self.release()
        panels = wide * self._per_index
        tile = math.prod(self._choose_tile_shape(wide)) * self._work.itemsize
        same = self._result.dtype == self._work
        summed = 0 if same else math.prod(self._shape) * self._work.itemsize
        try:
            self._held = _core.Reservation("a product", panels + tile + summed)
            if wide > 1:
                # Released when all ranks (possibly threads with one budget) have reserved theirs, so
                # that there is memory for messages.
                self._spare = _core.Reservation("a product", panels)
        except BudgetError:
            if wide == 1:
                raise
            return [0]
        return [1]

    def allocate(self, wide: int) -> None:
        """Allocate the memory, and cut the inner axis into panels of about `wide` indices."""
        if self._spare is not None:
            self._spare.release()
        panels = max(-(-self._inner // wide), 1)
        self._tile = np.empty(self._choose_tile_shape(wide), self._work)
        wide = -(-self._inner // panels)
        ends = [min(wide * n, self._inner) for n in range(panels + 1)]
        self.cuts = list(itertools.pairwise(ends))
        for factor in self._factors:
            factor.allocate(wide)
        same = self._result.dtype == self._work
        self._sum = self._result.owned if same else np.empty(self._shape, self._work)

    def _choose_tile_shape(self, wide: int) -> tuple[int, int]:
        """
        Return the shape of a tile: as square as possible, so that panels are read less often.

        A tile is at most half as large as the panels, and empty if there is only one panel.
        """
        rows, columns = self._shape
        if wide >= self._inner:
            return 0, 0
        cells = max(min(_TILE, wide * self._per_index // 2) // self._work.itemsize, 1)
        columns = min(columns, max(cells // max(min(rows, math.isqrt(cells)), 1), 1))
        return min(rows, max(cells // max(columns, 1), 1)), columns

    def bring_all(self, low: int, high: int) -> None:
        """Bring a panel of both factors."""
        for factor in self._factors:
            factor.bring_all(low, high)

    def add(self) -> None:
        """Add the product of the panels to the sum; round the sum after the last panels."""
        x, y = (factor.cast() for factor in self._factors)
        if self._added == 0:
            np.matmul(x, y, out=self._sum)
        else:
            _add_product(x, y, self._sum, self._tile)
        self._added += 1
        if self._added == len(self.cuts) and self._result.dtype != self._work:
            np.copyto(self._result.owned, self._sum, casting="same_kind")

    def release(self) -> None:
        """Release the memory."""
        for held in (self._held, self._spare):
            if held is not None:
                held.release()


def _view_shaped(memory: NDArray[Any], dtype: Any, shape: Any) -> NDArray[Any]:
    """Return the first bytes of `memory` as an array."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    shaped: NDArray[Any] = memory[:nbytes].view(dtype).reshape(shape)
    return shaped


def _add_product(x: Any, y: Any, total: NDArray[Any], tile: NDArray[Any]) -> None:
    """Compute ``total += x @ y`` one tile at a time."""
    rows, columns = (max(n, 1) for n in tile.shape)
    for row in range(0, total.shape[0], rows):
        for column in range(0, total.shape[1], columns):
            part = total[row : row + rows, column : column + columns]
            some = tile[: part.shape[0], : part.shape[1]]
            np.matmul(x[row : row + rows], y[:, column : column + columns], out=some)
            np.add(part, some, out=part)
