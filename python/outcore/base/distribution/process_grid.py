"""
Ranks arranged in a grid: `ProcessGrid`; and parsing of integers.

This is ``PROCESSORS`` of High Performance Fortran. The core answers by arithmetic
(``crates/plan/src/distribution/grid.rs``); nothing here communicates with another rank.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Never, SupportsIndex

import numpy as np

from outcore import _core
from outcore.errors import DistributionError

__all__ = ["ProcessGrid", "is_number", "to_integer", "to_integers"]

_INT64 = 2**63


class ProcessGrid:
    """
    Ranks arranged in a grid, in row-major order: the last coordinate varies fastest.

    Parameters
    ----------
    shape
        Number of ranks along each axis: integers of at least 1; one integer is a grid of one axis.
    size, ndim
        Instead of `shape`: total number of ranks, and number of axes (by default 1). The lengths are as
        equal as possible (as by ``MPI_Dims_create``).

    Raises
    ------
    DistributionError
        ``bad-grid``: neither or both of `shape` and `size` are given, an axis has no ranks, or there
        are more than 2**31 - 1 ranks.

    Notes
    -----
    A grid is a value: it can be compared, hashed and pickled, and never communicates with other ranks.
    It is ``PROCESSORS`` of HPF, and ``PASSION_proc_map`` of PASSION (section 3.2, table 1).

    Examples
    --------
    >>> from outcore.mpi import ProcessGrid
    >>> grid = ProcessGrid((2, 3))
    >>> grid.coordinates(4), grid.rank_of(1, 1)
    ((1, 1), 4)
    >>> ProcessGrid(size=24, ndim=3).shape
    (4, 3, 2)
    """

    __slots__ = ("_shape", "core")
    #: Grid of the compiled core, for the packages of outcore.
    core: _core.Grid
    _shape: tuple[int, ...]

    def __init__(
        self,
        shape: Sequence[int] | int | None = None,
        *,
        size: int | None = None,
        ndim: int | None = None,
    ) -> None:
        if (shape is None) == (size is None) or (shape is not None and ndim is not None):
            raise DistributionError(
                "cannot create a grid of ranks; pass either its shape, or size= and ndim=",
                code="bad-grid",
            )
        if size is not None:
            axes = 1 if ndim is None else to_integer(ndim, "ndim", "bad-grid")
            if axes < 0:
                raise DistributionError(
                    f"cannot create a grid of ranks with {axes} axes; pass 1 or more",
                    code="bad-grid",
                )
            core = _core.Grid.balanced(to_integer(size, "size", "bad-grid"), axes)
        else:
            core = _core.Grid(to_integers(shape, "shape", "bad-grid"))
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "_shape", tuple(core.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of ranks along each axis: a tuple of int."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Number of axes of the grid."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of ranks: the product of `shape`."""
        return self.core.size

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """
        Return the coordinates of a rank.

        Parameters
        ----------
        rank
            Number of the rank, counted from 0.

        Returns
        -------
        tuple of int
            One coordinate per axis, counted from 0.

        Raises
        ------
        DistributionError
            ``bad-grid``: there is no such rank.

        Examples
        --------
        >>> from outcore.mpi import ProcessGrid
        >>> [ProcessGrid((2, 2)).coordinates(rank) for rank in range(4)]
        [(0, 0), (0, 1), (1, 0), (1, 1)]
        """
        return tuple(self.core.coordinates(to_integer(rank, "rank", "bad-grid")))

    def rank_of(self, *coordinates: int) -> int:
        """
        Return the rank at the given coordinates; the inverse of `coordinates`.

        Parameters
        ----------
        *coordinates
            One coordinate per axis, counted from 0.

        Returns
        -------
        int
            Number of the rank.

        Raises
        ------
        DistributionError
            ``bad-grid``: the number of coordinates is wrong, or one is outside the grid.

        Examples
        --------
        >>> from outcore.mpi import ProcessGrid
        >>> ProcessGrid((2, 3)).rank_of(1, 2)
        5
        """
        return self.core.rank(to_integers(coordinates, "coordinates", "bad-grid"))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a ProcessGrid cannot be changed; create another one")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessGrid):
            return NotImplemented
        return self._shape == other._shape

    def __hash__(self) -> int:
        return hash(self._shape)

    def __repr__(self) -> str:
        return f"ProcessGrid({self._shape})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (ProcessGrid, (self._shape,))


def is_number(value: object) -> bool:
    """Return whether a value is a single integer (arrays of one integer also support ``__index__``)."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0
    return isinstance(value, SupportsIndex)


def to_integer(value: Any, name: str, code: str = "bad-distribution") -> int:
    """
    Convert the argument `name` to an integer of at most 63 bits, or raise `DistributionError`.

    Examples
    --------
    >>> import numpy as np
    >>> to_integer(np.int8(3), "width")
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not -_INT64 <= number < _INT64:
        text = f"{name}={value!r} is not valid; pass an integer of at most 63 bits"
        raise DistributionError(text, code=code)
    return number


def to_integers(values: Any, name: str, code: str = "bad-distribution") -> list[int]:
    """
    Convert a value to a list of integers; one integer becomes a list of one.

    Examples
    --------
    >>> to_integers((4, 5), "shape"), to_integers(4, "shape")
    ([4, 5], [4])
    """
    if is_number(values):
        return [to_integer(values, name, code)]
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DistributionError(f"{name}={values!r} is not valid; pass integers", code=code)
    return [to_integer(value, name, code) for value in values]
