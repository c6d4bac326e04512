"""
Which rank owns which index: `Align`, `Distribution`.

Problem. An array is divided over ranks in the ways of HPF: BLOCK, CYCLIC, block-cyclic, blocks of any
length, aligned with a template, with copies. Idea. The core answers by arithmetic, one axis at a
time (``crates/plan/src/distribution``); this file reads what people write, and gives sections as the
slices that arrays take. Nothing here talks to another rank: distributions are values, and a laptop
may ask for the part of rank 70 000.

Invariants. A distribution never changes. Equal ones are written the same and have the same hash, on
every rank.

Reference: the formats are those of High Performance Fortran (``PROCESSORS``, ``TEMPLATE``, ``ALIGN``,
``DISTRIBUTE``), with which the arrays of *PASSION: Parallel and Scalable Software for Input-Output* are
divided (figure 5 in section 4.3); a `Distribution` is what ``PASSION_array_map`` stores (section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Never

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.base.distribution.process_grid import ProcessGrid, integer, integers, is_number
from outcore.errors import DistributionError, SectionError

__all__ = [
    "Align",
    "Distribution",
    "Ghosts",
    "Key",
    "Periodic",
    "like",
    "part_of",
    "slices",
    "views",
    "widths",
    "wraps",
]

Key = tuple[slice, ...]
# One width for all axes, or per axis a width or a pair (before, behind).
Ghosts = int | Sequence[int | tuple[int, int]]
# Whether ghosts go round, of all axes or of each.
Periodic = bool | Sequence[bool]
Format = str | tuple[str, Any]
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Align:
    """
    On which cell of a template an index lies: index ``i`` on cell ``stride * i + offset``.

    HPF's ``ALIGN a(i) WITH t(stride*i + offset)``, counted from 0. The cells are distributed, the
    elements go with them: arrays aligned with one template have what belongs together on one rank.

    Parameters
    ----------
    stride
        Any but 0. A negative one runs through the template backwards.
    offset
        The cell of index 0.
    extent
        Number of cells; by default up to the last one that has an element.

    Raises
    ------
    DistributionError
        ``bad-distribution``, by the `Distribution` that it is given to: a stride of 0, elements outside
        the template, or numbers beyond 63 bits.

    Notes
    -----
    ``TEMPLATE`` and ``ALIGN`` as in the programs of PASSION (figure 5 in section 4.3).

    Examples
    --------
    The rows of a coarse grid lie where every second row of the fine one does.

    >>> from outcore import Align, Distribution
    >>> fine = Distribution(8, ["block"], 2)
    >>> coarse = Distribution(4, ["block"], 2, align=[Align(2, 0, 8)])
    >>> [(coarse.owner(i), fine.owner(2 * i)) for i in range(4)]
    [(0, 0), (0, 0), (1, 1), (1, 1)]
    """

    stride: int = 1
    offset: int = 0
    extent: int | None = None


class Arguments(NamedTuple):
    """Arguments of `Distribution`, all of them given."""

    shape: tuple[int, ...]
    formats: tuple[Format, ...]
    grid: ProcessGrid
    align: tuple[Align, ...]
    axes: tuple[int | None, ...]


class Distribution:
    """
    Which rank owns which index of an array.

    Parameters
    ----------
    shape
        Shape of the array; one integer is an array of one axis.
    formats
        How each axis is divided: ``"block"`` (blocks of ``ceil(n / ranks)``), ``("block", k)``,
        ``"cyclic"``, ``("cyclic", k)`` for blocks of ``k`` in turns, ``("general", lengths)`` for one
        block of its own length for each coordinate, or ``"*"`` for an axis that is not divided.
    grid
        The ranks: a `ProcessGrid`, its shape, or their number.
    align
        Per axis an `Align`, a tuple of its fields, or None.
    axes
        Per axis of the array the axis of the grid it is divided along (None for ``"*"``). By default
        divided axes take those of the grid in order, and must be as many. Along grid axes that are
        not used all ranks have the same elements, and the lowest one is the owner.

    Raises
    ------
    DistributionError
        If no array can be distributed like that: ``bad-distribution`` (a format that is not known,
        blocks that hold too little, another number of divided axes than the grid has), or ``bad-grid``.
    SectionError
        ``too-large``: a template that does not fit 63 bits.

    Notes
    -----
    A value: it can be compared, hashed and pickled; equal divisions are equal, however they were
    written. No method talks to other ranks, and every rank can be asked for; an answer takes arithmetic
    and its own size of memory, whatever the length of the array and the number of ranks.

    The distributions of HPF, for which PASSION reads and writes arrays (section 3.2; its
    ``PASSION_array_map``, table 1). A *conforming* one, whose parts lie in a row in the file (section
    3), is ``["block", "*", ...]`` for an array in C order, and ``["*", ..., "block"]`` in Fortran order.

    Examples
    --------
    >>> from outcore import Distribution
    >>> d = Distribution((8, 10, 3), ["block", ("cyclic", 2), "*"], (2, 3))
    >>> print(d)
    (BLOCK, CYCLIC(2), *) onto 2 x 3
    >>> d.owner((5, 4, 0)), d.local_index((5, 4, 0))
    (5, (1, 0, 0))
    >>> d.local_shape(3)
    (4, 4, 3)
    >>> for section in d.sections(3):
    ...     print(section)
    (slice(4, 8, None), slice(0, 2, None), slice(0, 3, None))
    (slice(4, 8, None), slice(6, 8, None), slice(0, 3, None))
    """

    __slots__ = ("_grid", "_shape", "arguments", "core")
    #: Arguments that make an equal distribution.
    arguments: Arguments
    #: The distribution of the compiled core, for the packages of outcore.
    core: _core.Distribution
    _grid: ProcessGrid
    _shape: tuple[int, ...]

    def __init__(
        self,
        shape: Sequence[int] | int,
        formats: Sequence[Format],
        grid: ProcessGrid | Sequence[int] | int,
        *,
        align: Sequence[Align | Sequence[int | None] | None] | None = None,
        axes: Sequence[int | None] | None = None,
    ) -> None:
        lengths = integers(shape, "shape")
        grid = grid if isinstance(grid, ProcessGrid) else ProcessGrid(grid)
        if isinstance(formats, str):
            formats = [formats]
        parsed = [_format(one) for one in formats]
        along = _along([kind for kind, _, _ in parsed], grid, axes)
        aligns = [None] * len(parsed) if align is None else list(align)
        if len(aligns) != len(parsed):
            raise _bad(f"{len(aligns)} alignments for {len(parsed)} formats; give one each")
        core_axes = []
        for (kind, size, blocks), axis, one in zip(parsed, along, aligns, strict=True):
            how = _align(one)
            core_axes.append((kind, size, blocks, axis, how.stride, how.offset, how.extent))
        core = _core.Distribution(lengths, grid.core, core_axes)
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "_shape", tuple(lengths))
        object.__setattr__(self, "_grid", grid)
        formats = tuple(map(_argument, parsed))
        arguments = Arguments(
            tuple(lengths), formats, grid, tuple(_align(a) for a in aligns), tuple(along)
        )
        object.__setattr__(self, "arguments", arguments)

    @classmethod
    def replicated(
        cls, shape: Sequence[int] | int, grid: ProcessGrid | Sequence[int] | int
    ) -> Distribution:
        """
        Every rank has the whole array.

        Parameters
        ----------
        shape
            Shape of the array.
        grid
            The ranks: a `ProcessGrid`, its shape, or their number.

        Returns
        -------
        Distribution
            Rank 0 is the owner of all, the others have copies.

        Raises
        ------
        DistributionError
            ``bad-distribution`` or ``bad-grid``: no such shape, or no such grid.

        Examples
        --------
        >>> from outcore import Distribution
        >>> everywhere = Distribution.replicated((3, 4), 5)
        >>> everywhere.local_shape(4), everywhere.owner((2, 3)), everywhere.is_owner(4)
        ((3, 4), 0, False)
        """
        lengths = integers(shape, "shape")
        return cls(lengths, ["*"] * len(lengths), grid, axes=[None] * len(lengths))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array: a tuple of int."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Number of axes of the array."""
        return len(self._shape)

    @property
    def grid(self) -> ProcessGrid:
        """The ranks: a `ProcessGrid`."""
        return self._grid

    @property
    def replicated_axes(self) -> tuple[int, ...]:
        """
        Axes of the grid along which all ranks have the same elements: a tuple of int.

        Examples
        --------
        >>> from outcore import Distribution
        >>> Distribution(6, ["block"], (2, 3), axes=[1]).replicated_axes
        (0,)
        """
        return tuple(self.core.replicated)

    def is_owner(self, rank: int) -> bool:
        """
        Whether a rank owns what it has, or has a copy of what a lower rank owns.

        Parameters
        ----------
        rank
            Number of the rank.

        Returns
        -------
        bool
            True unless it is a copy. Ranks that have no elements may be either.

        Raises
        ------
        DistributionError
            ``bad-grid``: there is no such rank.

        Examples
        --------
        >>> from outcore import Distribution
        >>> [Distribution(4, ["block"], (2, 2), axes=[1]).is_owner(rank) for rank in range(4)]
        [True, True, False, False]
        """
        return self.core.is_owner(integer(rank, "rank", "bad-grid"))

    def owner(self, index: Any) -> Any:
        """
        The rank that owns an element, or many.

        Parameters
        ----------
        index
            One integer per axis (a tuple), each from 0 to the length of its axis; or one array of
            integers per axis, which are broadcast. For an array of one axis also without the tuple.

        Returns
        -------
        int or numpy.ndarray
            The lowest rank that has the element; for arrays an array of int64.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: an index is outside the array (negative ones are); ``bad-section``:
            another number of axes; ``bad-index``: no integers, or arrays that cannot be broadcast.

        Notes
        -----
        For arrays it takes ``8 * ndim`` bytes for each index besides the answer, which are not counted
        in the memory budget.

        Examples
        --------
        >>> import numpy as np
        >>> from outcore import Distribution
        >>> Distribution(10, [("cyclic", 2)], 3).owner(np.arange(10))
        array([0, 0, 1, 1, 2, 2, 0, 0, 1, 1])
        """
        rows, shape = self._rows(index)
        owners = self.core.owners(rows)
        return int(owners[0]) if shape is None else owners.reshape(shape)

    def local_index(self, index: Any) -> tuple[Any, ...]:
        """
        Where ranks that have an element store it, without ghosts.

        Parameters
        ----------
        index
            As for `owner`.

        Returns
        -------
        tuple
            Per axis an integer, or an array of int64: the place in memory of `local_shape`.

        Raises
        ------
        SectionError
            As `owner`.

        Examples
        --------
        Elements keep their order, whatever is left out between them.

        >>> import numpy as np
        >>> from outcore import Distribution
        >>> Distribution(10, [("cyclic", 2)], 3).local_index(np.arange(10))
        (array([0, 1, 0, 1, 0, 1, 2, 3, 2, 3]),)
        """
        rows, shape = self._rows(index)
        return _columns(self.core.local_indices(rows), shape)

    def global_index(self, rank: int, local: Any) -> tuple[Any, ...]:
        """
        The index of what a rank stores at some place: the way back from `local_index`.

        Parameters
        ----------
        rank
            Number of the rank.
        local
            Place in the memory of the rank, without ghosts; integers or arrays as for `owner`.

        Returns
        -------
        tuple
            Per axis an integer, or an array of int64.

        Raises
        ------
        SectionError
            As `owner`; ``index-out-of-bounds`` for a place outside the memory of the rank.
        DistributionError
            ``bad-grid``: there is no such rank.

        Examples
        --------
        >>> import numpy as np
        >>> from outcore import Distribution
        >>> Distribution(10, [("cyclic", 2)], 3).global_index(1, np.arange(4))
        (array([2, 3, 8, 9]),)
        """
        rows, shape = self._rows(local)
        found = self.core.global_indices(integer(rank, "rank", "bad-grid"), rows)
        return _columns(found, shape)

    def local_shape(
        self, rank: int, ghosts: Ghosts = 0, *, periodic: Periodic = False
    ) -> tuple[int, ...]:
        """
        Shape of the memory in which a rank stores its part.

        Parameters
        ----------
        rank
            Number of the rank.
        ghosts
            Widths of the overlap with neighbours: one for all axes, or per axis a width or a pair
            (before, behind). Cut off at the ends of the array; 0 on CYCLIC axes.
        periodic
            Whether ghosts go round at the ends of the array instead: for all axes, or one word for each.

        Returns
        -------
        tuple of int
            The shape, ghosts included; with zeros for a rank that has nothing.

        Raises
        ------
        DistributionError
            ``bad-grid``: there is no such rank; ``bad-distribution``: ghosts on a CYCLIC axis, or
            widths or words that are none.

        Examples
        --------
        >>> from outcore import Distribution
        >>> blocks = Distribution((8, 8), ["block", "block"], (2, 2))
        >>> blocks.local_shape(0), blocks.local_shape(0, ghosts=1), blocks.local_shape(0, [(0, 2), 0])
        ((4, 4), (5, 5), (6, 4))
        >>> blocks.local_shape(0, ghosts=1, periodic=[True, False])
        (6, 5)
        """
        rank = integer(rank, "rank", "bad-grid")
        pairs, round_ = widths(ghosts, self.ndim), wraps(periodic, self.ndim)
        shape = self.core.local_shape(rank, pairs)
        owned = self.core.local_shape(rank, []) if pairs else shape
        return tuple(
            n + sum(pairs[d]) if pairs and n and round_[d] else shape[d]
            for d, n in enumerate(owned)
        )

    def sections(self, rank: int, ghosts: Ghosts = 0) -> tuple[Key, ...]:
        """
        What a rank has, as regular sections of the array.

        They are disjoint, and cover what the rank has. BLOCK and CYCLIC make one range of an axis,
        CYCLIC(k) one for each block or k strided ones, whichever are fewer.

        Parameters
        ----------
        rank
            Number of the rank.
        ghosts
            Widths of the overlap, as for `local_shape`: the ghosts belong to the sections.

        Returns
        -------
        tuple of tuple of slice
            Keys such as `DiskArray` takes; none if the rank has nothing.

        Raises
        ------
        DistributionError
            As `local_shape`.

        Examples
        --------
        >>> from outcore import Distribution
        >>> Distribution(10, ["cyclic"], 3).sections(1)
        ((slice(1, 8, 3),),)
        >>> Distribution(10, ["block"], 3).sections(1, ghosts=1)
        ((slice(3, 9, None),),)
        """
        rank = integer(rank, "rank", "bad-grid")
        found, _ = self.core.pieces(rank, widths(ghosts, self.ndim), True)
        return tuple(slices(found))

    def _rows(self, index: Any) -> tuple[NDArray[np.int64], tuple[int, ...] | None]:
        """Indices as rows of an array; the shape they are broadcast to, None for a single one."""
        items = index if isinstance(index, tuple) else (index,)
        arrays = [np.asarray(item) for item in items]
        if any(a.size and (a.dtype.kind not in "iu") for a in arrays):
            raise SectionError(
                f"index {index!r}: integers, or arrays of integers, are needed", code="bad-index"
            )
        if any(a.dtype == np.uint64 and a.size and a.max() >= _INT64 for a in arrays):
            raise SectionError("an index of more than 63 bits", code="index-out-of-bounds")
        try:
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
        except ValueError as error:
            raise SectionError(
                f"arrays of indices cannot be broadcast: {error}", code="bad-index"
            ) from None
        rows = np.empty((int(np.prod(shape)), len(arrays)), np.int64)
        for axis, array in enumerate(arrays):
            rows[:, axis] = np.broadcast_to(array, shape).ravel()
        single = all(a.ndim == 0 for a in arrays)
        return rows, None if single else shape

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a Distribution does not change; make another one")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Distribution):
            return NotImplemented
        return self.core == other.core

    def __hash__(self) -> int:
        return hash(self.core)

    def __str__(self) -> str:
        return str(self.core)

    def __repr__(self) -> str:
        return f"<Distribution of {self._shape}: {self.core}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, tuple(self.arguments))


def _rebuild(shape: Any, formats: Any, grid: ProcessGrid, align: Any, axes: Any) -> Distribution:
    return Distribution(shape, formats, grid, align=align, axes=axes)


def like(
    distribution: Distribution, axes: Sequence[int | None], shape: Sequence[int]
) -> Distribution:
    """
    A distribution whose axes are divided like some of another one.

    Parameters
    ----------
    distribution
        The other one.
    axes
        For each axis that of the other one; None: not divided.
    shape
        Its shape; an axis is as long as the one that it is divided like.

    Examples
    --------
    >>> from outcore import Distribution
    >>> print(like(Distribution((4, 6), ["block", "cyclic"], (2, 3)), [1, None], (6, 9)))
    (CYCLIC, *) onto 2 x 3, replicated along its axis 0
    """
    _, formats, grid, aligns, along = distribution.arguments
    return Distribution(
        shape,
        ["*" if axis is None else formats[axis] for axis in axes],
        grid,
        align=[None if axis is None else aligns[axis] for axis in axes],
        axes=[None if axis is None else along[axis] for axis in axes],
    )


def part_of(distribution: Distribution, axis: int, low: int, high: int) -> Distribution:
    """
    How some indices in a row along an axis are divided: as an array that is aligned with the whole one.

    Parameters
    ----------
    distribution
        Of the whole array.
    axis
        Number of the axis.
    low, high
        The first index, and the one behind the last.

    Returns
    -------
    Distribution
        Of an array of these indices. Each rank stores them as it does in the whole array: in a row, in
        the same order.

    Examples
    --------
    >>> from outcore import Distribution
    >>> whole = Distribution(10, ["block"], 2)
    >>> [part_of(whole, 0, 3, 7).local_shape(rank) for rank in range(2)]
    [(2,), (2,)]
    """
    shape, formats, grid, aligns, along = distribution.arguments
    lengths, how = list(shape), list(aligns)
    stride, offset, extent = how[axis].stride, how[axis].offset, how[axis].extent
    if extent is None:  # of the whole array: blocks are as long as its template says
        extent = offset + max(stride * (lengths[axis] - 1), 0) + 1
    how[axis] = Align(stride, offset + stride * low, extent)
    lengths[axis] = high - low
    return Distribution(lengths, formats, grid, align=how, axes=along)


def slices(sections: NDArray[np.int64]) -> list[Key]:
    """
    Keys of sections that came from the core.

    Parameters
    ----------
    sections
        Of int64 and shape (sections, axes, 3): start, count and step; no count is 0.

    Returns
    -------
    list of tuple of slice
        One key for each section.

    Examples
    --------
    >>> import numpy as np
    >>> slices(np.array([[[2, 3, 1], [0, 2, 5]]]))
    [(slice(2, 5, None), slice(0, 6, 5))]
    """
    return [
        tuple(
            slice(start, start + (count - 1) * step + 1, None if step == 1 else step)
            for start, count, step in section
        )
        for section in sections.tolist()
    ]


def views(memory: NDArray[Any], sections: NDArray[np.int64]) -> list[NDArray[Any]]:
    """
    The parts of an array that sections are, as views of it.

    Parameters
    ----------
    memory
        An array with as many axes as the sections have.
    sections
        As for `slices`.

    Returns
    -------
    list of numpy.ndarray
        One view for each section, also of an array without axes.

    Examples
    --------
    >>> import numpy as np
    >>> views(np.arange(6), np.array([[[1, 2, 3]]]))
    [array([1, 4])]
    """
    keys: list[tuple[Any, ...]] = [(*key, ...) for key in slices(sections)]  # ...: a view, always
    return [memory[key] for key in keys]


def wraps(periodic: Periodic, ndim: int) -> tuple[bool, ...]:
    """
    Which axes are periodic, one word for each.

    Parameters
    ----------
    periodic
        One word for all axes, or one per axis.
    ndim
        Number of axes.

    Returns
    -------
    tuple of bool
        One per axis.

    Raises
    ------
    DistributionError
        ``bad-distribution``: no such words, or another number of them.

    Examples
    --------
    >>> wraps(True, 2), wraps([False, True], 2)
    ((True, True), (False, True))
    """
    words = [periodic] * ndim if isinstance(periodic, bool | np.bool) else periodic
    if (
        not isinstance(words, Sequence | np.ndarray)
        or len(words) != ndim
        or not all(isinstance(one, bool | np.bool) for one in words)
    ):
        raise _bad(f"periodic={periodic!r} for {ndim} axes; give True or False, or one per axis")
    return tuple(map(bool, words))


def widths(ghosts: Ghosts, ndim: int) -> list[tuple[int, int]]:
    """
    Ghost widths as one pair per axis.

    Parameters
    ----------
    ghosts
        One width for all axes, or per axis a width or a pair (before, behind): numbers of elements.
    ndim
        Number of axes.

    Returns
    -------
    list of (int, int)
        One pair per axis; empty if there are no ghosts.

    Raises
    ------
    DistributionError
        ``bad-distribution``: no widths. Whether they fit a distribution, that tells.

    Examples
    --------
    >>> widths(1, 2), widths([0, (0, 3)], 2), widths(0, 2)
    ([(1, 1), (1, 1)], [(0, 0), (0, 3)], [])
    """
    if is_number(ghosts):
        width = integer(ghosts, "ghosts")
        pairs = [(width, width)] * ndim
    elif isinstance(ghosts, Iterable):
        pairs = [_pair(one) for one in ghosts]
    else:
        raise _bad(f"ghosts={ghosts!r}; give a width, or one per axis")
    if pairs and all(pair == (0, 0) for pair in pairs) and len(pairs) == ndim:
        return []
    return pairs


def _pair(one: Any) -> tuple[int, int]:
    if is_number(one):
        width = integer(one, "ghosts")
        return (width, width)
    pair = integers(one, "ghosts")
    if len(pair) != 2:
        raise _bad(f"ghost widths {one!r}; give one number, or a pair (before, behind)")
    return (pair[0], pair[1])


def _bad(why: str) -> DistributionError:
    return DistributionError(f"no such distribution: {why}", code="bad-distribution")


def _format(one: Any) -> tuple[str, int | None, list[int]]:
    """What somebody wrote for an axis: kind, size of blocks, lengths of blocks."""
    kind, *rest = (one,) if isinstance(one, str) else one if isinstance(one, tuple) else (None,)
    name = kind.lower() if isinstance(kind, str) else None
    if name == "gen_block":
        name = "general"
    if name == "*" and not rest:
        return "*", None, []
    if name in ("block", "cyclic") and len(rest) <= 1:
        size = integer(rest[0], f"size of a {name} block") if rest else None
        return name, size, []
    if name == "general" and len(rest) == 1:
        return name, None, integers(rest[0], "lengths of general blocks")
    raise _bad(
        f"format {one!r}; give 'block', ('block', k), 'cyclic', ('cyclic', k), "
        "('general', lengths) or '*'"
    )


def _argument(parsed: tuple[str, int | None, list[int]]) -> Format:
    kind, size, lengths = parsed
    if kind == "general":
        return kind, lengths
    return kind if size is None else (kind, size)


def _along(
    kinds: list[str], grid: ProcessGrid, axes: Sequence[int | None] | None
) -> list[int | None]:
    """The axis of the grid for each axis of the array."""
    if axes is not None:
        given = [None if axis is None else integer(axis, "axes") for axis in axes]
        if len(given) != len(kinds):
            raise _bad(f"{len(given)} axes of the grid for {len(kinds)} formats; give one each")
        if any(axis is not None and axis < 0 for axis in given):
            raise _bad(f"axes={list(axes)}; axes of the grid are counted from 0")
        return given
    divided = sum(kind != "*" for kind in kinds)
    if divided != grid.ndim and not (grid.size == 1 and divided == 0):
        raise _bad(
            f"{divided} divided axes on a grid of {grid.ndim} axes; give as many, or say with axes= "
            "which axes of the grid are used: along the others all ranks have the same elements"
        )
    numbers = iter(range(grid.ndim))
    return [None if kind == "*" else next(numbers) for kind in kinds]


def _align(one: Any) -> Align:
    if one is None:
        return Align()
    if not isinstance(one, Align):
        if isinstance(one, str) or not isinstance(one, Sequence) or not 1 <= len(one) <= 3:
            raise _bad(f"alignment {one!r}; give an Align, (stride, offset) or None")
        one = Align(*one)
    stride, offset = integer(one.stride, "stride"), integer(one.offset, "offset")
    extent = None if one.extent is None else integer(one.extent, "extent")
    return Align(stride, offset, extent)


def _columns(rows: NDArray[np.int64], shape: tuple[int, ...] | None) -> tuple[Any, ...]:
    if shape is None:
        return tuple(int(n) for n in rows[0])
    return tuple(column.reshape(shape) for column in rows.T)
