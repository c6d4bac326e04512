"""
The product of two distributed matrices: SUMMA, panels of the inner axis one after the other.

Problem. For its part of a product a rank needs whole rows of one factor and whole columns of the other,
most of which other ranks have; on ``p x q`` ranks the first factor would be in memory ``q`` times and
the second ``p`` times. Idea. A product is a sum over the inner axis: some indices of it, a panel, are
brought from the ranks that have them, multiplied where the part of the product lies, and added to it. A
panel of a distributed matrix is a distributed matrix too, aligned with the template of the whole one
(`part_of`), so bringing it is a redistribution like any other.

Invariants. All ranks cut the inner axis alike, into as few panels as the rank with the least room can
hold. Sums are made in ascending order of the inner axis in the type of the product (``float32`` for
``float16``), and rounded once to that of the result. Panels, casts, the tile and sums in another type
are counted in the budget.

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
from outcore.ranks.agreement import together
from outcore.ranks.dist.base import Divided
from outcore.ranks.dist.redistribution import Part, bring_all
from outcore.base.distribution import Distribution, like, part_of
from outcore.errors import BudgetError
from outcore.ranks.transport import DeferredInterrupt

__all__ = ["multiply_all"]

# Wider panels make no product faster, but everything else has less.
_LARGEST = 256 * 2**20
# A tile stays in the cache while it is added, and is large enough for the BLAS.
_TILE = 16 * 2**20
_CALL = "matmul_all"


def multiply_all(x: Divided, y: Divided, result: Divided, dtype: np.dtype[Any]) -> None:
    """
    Put ``x @ y`` into `result`. Collective.

    Parameters
    ----------
    x, y
        Matrices that can be multiplied, in any distributions.
    result
        Takes the product, in any distribution; other memory than theirs.
    dtype
        The type of the product, as NumPy has it.

    Raises
    ------
    DistributionError, CollectiveError
        On all ranks; see `DistArray.matmul_all`.
    """
    product = _Product(x, y, result, dtype)

    def tell() -> str:
        return f"DistArray.{_CALL} of {x.shape} and {y.shape}"

    group, call = x.transport, f"DistArray.{_CALL}"
    # The other ranks wait for all panels.
    with DeferredInterrupt():
        try:
            # As many indices as the rank with the least room has memory for, on all ranks.
            wide = min(together(group, call, product.room, tell, same=0).setting(0))
            while True:
                step = partial(product.reserve, wide)
                if all(together(group, call, step, tell, same=0).setting(0)):
                    break
                wide //= 2
            together(group, call, partial(product.allocate, wide), tell, same=0)
            for low, high in product.cuts:
                product.bring_all(low, high)
                together(group, call, product.add, tell, same=0)
        finally:
            product.release()


class _Factor:
    """One of the factors: what this rank needs of it, and memory for a panel of that."""

    def __init__(self, array: Divided, inner: int, product: Distribution, work: Any) -> None:
        self._array, self._inner, self._product = array, inner, product
        self._work = np.dtype(work)
        # Whether each rank has what it needs: the same on all ranks.
        self._here = self._needed(array.shape[inner]) == array.distribution
        self.length = product.local_shape(array.rank)[1 - inner]
        #: Where the elements of the next panel begin in the part of this rank.
        self._at = 0
        self._brought: NDArray[Any] = np.empty(0, np.uint8)
        self._cast = self._brought
        self.panel: NDArray[Any] = np.empty((0, 0))

    def _needed(self, wide: int) -> Distribution:
        """The distribution in which a rank has all of its rows, or columns, of a panel."""
        outer = 1 - self._inner
        axes: list[int | None] = [None, None]
        axes[outer] = outer
        shape = list(self._array.shape)
        shape[self._inner] = wide
        return like(self._product, axes, shape)

    @property
    def per_index(self) -> int:
        """Bytes for one index of the inner axis."""
        return self.length * sum(self._items)

    @property
    def _items(self) -> tuple[int, int]:
        """Bytes of an element that is brought, and of one that is cast; 0 for those that are not."""
        dtype = self._array.dtype
        return (
            0 if self._here else dtype.itemsize,
            0 if dtype == self._work else self._work.itemsize,
        )

    def allocate(self, wide: int) -> None:
        """Take the memory for panels of so many indices."""
        brought, cast = (np.empty(self.length * wide * item, np.uint8) for item in self._items)
        self._brought, self._cast = brought, cast

    def bring_all(self, low: int, high: int) -> None:
        """Bring a panel. Collective, unless all ranks have theirs."""
        array, wide = self._array, high - low
        if self._here:
            self.panel = self._view(array.owned, low, wide)
            return
        whole = wide == array.shape[self._inner]
        how = array.distribution if whole else part_of(array.distribution, self._inner, low, high)
        mine = how.local_shape(array.rank)[self._inner]
        source = Part(how, [], self._view(array.owned, self._at, mine))
        self._at += mine

        def make() -> Part:
            needed = self._needed(wide)
            shape = needed.local_shape(array.rank)
            self.panel = _shaped(self._brought, array.dtype, shape)
            return Part(needed, [], self.panel)

        bring_all(array.transport, _CALL, source, make)

    def _view(self, memory: NDArray[Any], at: int, count: int) -> NDArray[Any]:
        keys = [slice(None), slice(None)]
        keys[self._inner] = slice(at, at + count)
        return memory[keys[0], keys[1]]

    def cast(self) -> NDArray[Any]:
        """The panel in the type of the product."""
        if self.panel.dtype == self._work:
            return self.panel
        cast = _shaped(self._cast, self._work, self.panel.shape)
        np.copyto(cast, self.panel)
        return cast


class _Product:
    """What one rank does for a product: its memory, and the panels that it adds."""

    def __init__(self, x: Divided, y: Divided, result: Divided, dtype: np.dtype[Any]) -> None:
        self._work = np.dtype(np.float32 if dtype == np.float16 else dtype)
        how = result.distribution
        self._factors = (_Factor(x, 1, how, self._work), _Factor(y, 0, how, self._work))
        self._inner, self._result = x.shape[1], result
        self._shape = how.local_shape(result.rank)
        self._per_index = sum(factor.per_index for factor in self._factors)
        self._held: _core.Reservation | None = None
        self._spare: _core.Reservation | None = None
        self._sum = self._tile = np.empty((0, 0), self._work)
        #: Panels: the first index of the inner axis, and the one behind the last.
        self.cuts: list[tuple[int, int]] = []
        self._added = 0

    def room(self) -> list[int]:
        """Tell how many indices of the inner axis this rank has room for at a time."""
        # A quarter of what is free: there are messages too, and what else goes on.
        room = min(_LARGEST, _core.memory_state()[1] // 4)
        return [max(min(room // max(self._per_index, 1), self._inner), 1)]

    def reserve(self, wide: int) -> list[int]:
        """Count memory for panels of so many indices; tells whether there is room on this rank."""
        self.release()
        panels = wide * self._per_index
        tile = math.prod(self._tile_shape(wide)) * self._work.itemsize
        same = self._result.dtype == self._work
        summed = 0 if same else math.prod(self._shape) * self._work.itemsize
        try:
            self._held = _core.Reservation("a product", panels + tile + summed)
            if wide > 1:
                # Given back when all ranks have theirs, which may be threads with one budget: so there
                # is room for messages.
                self._spare = _core.Reservation("a product", panels)
        except BudgetError:
            if wide == 1:
                raise
            return [0]
        return [1]

    def allocate(self, wide: int) -> list[int]:
        """Take the memory, and cut the inner axis into panels of about as many indices."""
        if self._spare is not None:
            self._spare.release()
        panels = max(-(-self._inner // wide), 1)
        self._tile = np.empty(self._tile_shape(wide), self._work)
        wide = -(-self._inner // panels)
        ends = [min(wide * n, self._inner) for n in range(panels + 1)]
        self.cuts = list(itertools.pairwise(ends))
        for factor in self._factors:
            factor.allocate(wide)
        same = self._result.dtype == self._work
        self._sum = self._result.owned if same else np.empty(self._shape, self._work)
        return []

    def _tile_shape(self, wide: int) -> tuple[int, int]:
        """
        Of what is multiplied and then added: as square as can be, so that panels are read less often.

        No larger than half of the panels. None if there is one panel.
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

    def add(self) -> list[int]:
        """Add the product of the panels to the sum; round it after the last ones."""
        x, y = (factor.cast() for factor in self._factors)
        if self._added == 0:
            np.matmul(x, y, out=self._sum)
        else:
            _add_product(x, y, self._sum, self._tile)
        self._added += 1
        if self._added == len(self.cuts) and self._result.dtype != self._work:
            np.copyto(self._result.owned, self._sum, casting="same_kind")
        return []

    def release(self) -> None:
        """Give the memory back."""
        for held in (self._held, self._spare):
            if held is not None:
                held.release()


def _shaped(memory: NDArray[Any], dtype: Any, shape: Any) -> NDArray[Any]:
    """The first bytes of some memory as an array."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    shaped: NDArray[Any] = memory[:nbytes].view(dtype).reshape(shape)
    return shaped


def _add_product(x: Any, y: Any, total: NDArray[Any], tile: NDArray[Any]) -> None:
    """``total += x @ y``, a tile at a time."""
    rows, columns = (max(n, 1) for n in tile.shape)
    for row in range(0, total.shape[0], rows):
        for column in range(0, total.shape[1], columns):
            part = total[row : row + rows, column : column + columns]
            some = tile[: part.shape[0], : part.shape[1]]
            np.matmul(x[row : row + rows], y[:, column : column + columns], out=some)
            np.add(part, some, out=part)
