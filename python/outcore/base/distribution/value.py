"""
Ownership of indices by ranks: `Align`, `Distribution`.

Problem: an array is divided over ranks in the ways of HPF: BLOCK, CYCLIC, block-cyclic, blocks of any
length, aligned with a template, with copies.
Approach: the core answers by arithmetic, one axis at a time (``crates/plan/src/distribution``). This
file parses the arguments of users and returns sections as the slices that arrays accept. Nothing here
communicates with another rank: distributions are values, and a laptop can compute the part of rank 70
000.

Invariants: a distribution never changes. Equal distributions have the same text and the same hash on
every rank.

Reference: the formats are those of High Performance Fortran (``PROCESSORS``, ``TEMPLATE``, ``ALIGN``,
``DISTRIBUTE``), which divide the arrays of *PASSION: Parallel and Scalable Software for Input-Output*
(figure 5 in section 4.3); a `Distribution` is the content of ``PASSION_array_map`` (section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Never

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.base.distribution.process_grid import ProcessGrid, is_number, to_integer, to_integers
from outcore.errors import DistributionError, SectionError

__all__ = [
    "Align",
    "Distribution",
    "Ghosts",
    "Key",
    "Periodic",
    "divide_like",
    "list_keys",
    "parse_periodic",
    "parse_widths",
    "take_range",
    "view_sections",
]

Key = tuple[slice, ...]
# One width for all axes, or per axis a width or a pair (before, after).
Ghosts = int | Sequence[int | tuple[int, int]]
# Whether ghosts wrap around, for all axes or for each.
Periodic = bool | Sequence[bool]
Format = str | tuple[str, Any]
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Align:
    """
    Alignment with a template: index ``i`` is on cell ``stride * i + offset``.

    This is HPF's ``ALIGN a(i) WITH t(stride*i + offset)``, counted from 0. The cells are distributed,
    and each element goes with its cell: arrays aligned with one template have corresponding elements on
    the same rank.

    Parameters
    ----------
    stride
        Any integer except 0; a negative stride traverses the template backwards.
    offset
        Cell of index 0.
    extent
        Number of cells; by default up to the last cell with an element.

    Raises
    ------
    DistributionError
        ``bad-distribution``, raised by `Distribution`: the stride is 0, elements are outside the
        template, or numbers exceed 63 bits.

    Notes
    -----
    ``TEMPLATE`` and ``ALIGN`` as in the programs of PASSION (figure 5 in section 4.3).

    Examples
    --------
    The rows of a coarse grid lie where every second row of the fine one does.

    >>> from outcore.mpi import Align, Distribution
    >>> fine = Distribution(8, ["block"], 2)
    >>> coarse = Distribution(4, ["block"], 2, align=[Align(2, 0, 8)])
    >>> [(coarse.owner(i), fine.owner(2 * i)) for i in range(4)]
    [(0, 0), (0, 0), (1, 1), (1, 1)]
    """

    stride: int = 1
    offset: int = 0
    extent: int | None = None


class Arguments(NamedTuple):
    """Complete arguments of `Distribution`."""

    shape: tuple[int, ...]
    formats: tuple[Format, ...]
    grid: ProcessGrid
    align: tuple[Align, ...]
    axes: tuple[int | None, ...]


class Distribution:
    """
    Division of an array over ranks: the owner of each index.

    Parameters
    ----------
    shape
        Shape of the array; one integer is an array of one axis.
    formats
        Division of each axis: ``"block"`` (blocks of ``ceil(n / ranks)``), ``("block", k)``,
        ``"cyclic"``, ``("cyclic", k)`` for round-robin blocks of ``k``, ``("general", lengths)`` for
        one block of a given length for each coordinate, or ``"*"`` for an axis that is not divided.
    grid
        Ranks: a `ProcessGrid`, its shape, or the number of ranks.
    align
        Per axis an `Align`, a tuple of its fields, or None.
    axes
        Per axis of the array, the axis of the grid along which it is divided (None for ``"*"``). By
        default divided axes use the axes of the grid in order, and their numbers must be equal. Along
        unused axes of the grid all ranks have the same elements, and the lowest rank is the owner.

    Raises
    ------
    DistributionError
        ``bad-distribution``: a format is unknown, blocks are too small, or the number of divided axes
        differs from that of the grid; or ``bad-grid``.
    SectionError
        ``too-large``: a template exceeds 63 bits.

    Notes
    -----
    A distribution is a value: it can be compared, hashed and pickled; equal divisions are equal,
    however they were written. No method communicates with other ranks, and every rank can be queried. A
    query needs arithmetic and memory for its result, independent of the length of the array and the
    number of ranks.

    These are the distributions of HPF for which PASSION reads and writes arrays (section 3.2; its
    ``PASSION_array_map``, table 1). A *conforming* distribution, whose parts are contiguous in the file
    (section 3), is ``["block", "*", ...]`` for an array in C order, and ``["*", ..., "block"]`` in
    Fortran order.

    Examples
    --------
    >>> from outcore.mpi import Distribution
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
    #: Arguments that create an equal distribution.
    arguments: Arguments
    #: Distribution of the compiled core, for the packages of outcore.
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
        lengths = to_integers(shape, "shape")
        grid = grid if isinstance(grid, ProcessGrid) else ProcessGrid(grid)
        if isinstance(formats, str):
            formats = [formats]
        parsed = [_parse_format(one) for one in formats]
        along = _assign_axes([kind for kind, _, _ in parsed], grid, axes)
        aligns = [None] * len(parsed) if align is None else list(align)
        if len(aligns) != len(parsed):
            raise _make_distribution_error(
                f"{len(aligns)} alignments for {len(parsed)} formats; give one each"
            )
        core_axes = []
        for (kind, size, blocks), axis, one in zip(parsed, along, aligns, strict=True):
            how = _parse_align(one)
            core_axes.append((kind, size, blocks, axis, how.stride, how.offset, how.extent))
        core = _core.Distribution(lengths, grid.core, core_axes)
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "_shape", tuple(lengths))
        object.__setattr__(self, "_grid", grid)
        formats = tuple(map(_create_argument, parsed))
        arguments = Arguments(
            tuple(lengths), formats, grid, tuple(_parse_align(a) for a in aligns), tuple(along)
        )
        object.__setattr__(self, "arguments", arguments)

    @classmethod
    def replicated(
        cls, shape: Sequence[int] | int, grid: ProcessGrid | Sequence[int] | int
    ) -> Distribution:
        """
        Return a distribution in which every rank has the whole array.

        Parameters
        ----------
        shape, grid
            As for `Distribution`.

        Returns
        -------
        Distribution
            Distribution in which rank 0 owns all elements and the others have copies.

        Raises
        ------
        DistributionError
            ``bad-distribution`` or ``bad-grid``: the shape or the grid is invalid.

        Examples
        --------
        >>> from outcore.mpi import Distribution
        >>> everywhere = Distribution.replicated((3, 4), 5)
        >>> everywhere.local_shape(4), everywhere.owner((2, 3)), everywhere.is_owner(4)
        ((3, 4), 0, False)
        """
        lengths = to_integers(shape, "shape")
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
        """Ranks as a `ProcessGrid`."""
        return self._grid

    @property
    def replicated_axes(self) -> tuple[int, ...]:
        """
        Axes of the grid along which all ranks have the same elements: a tuple of int.

        Examples
        --------
        >>> from outcore.mpi import Distribution
        >>> Distribution(6, ["block"], (2, 3), axes=[1]).replicated_axes
        (0,)
        """
        return tuple(self.core.replicated)

    def is_owner(self, rank: int) -> bool:
        """
        Return whether a rank owns its elements, or has copies of those of a lower rank.

        Parameters
        ----------
        rank
            Number of the rank.

        Returns
        -------
        bool
            True unless the elements are copies; unspecified for ranks without elements.

        Raises
        ------
        DistributionError
            ``bad-grid``: there is no such rank.

        Examples
        --------
        >>> from outcore.mpi import Distribution
        >>> [Distribution(4, ["block"], (2, 2), axes=[1]).is_owner(rank) for rank in range(4)]
        [True, True, False, False]
        """
        return self.core.is_owner(to_integer(rank, "rank", "bad-grid"))

    def owner(self, index: Any) -> Any:
        """
        Return the rank that owns an element, or many.

        Parameters
        ----------
        index
            One integer per axis (a tuple), each from 0 to the length of its axis; or one array of
            integers per axis, which are broadcast. For an array of one axis the tuple may be omitted.

        Returns
        -------
        int or numpy.ndarray
            Lowest rank that has the element; for arrays an array of int64.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: an index is outside the array (also a negative index);
            ``bad-section``: wrong number of axes; ``bad-index``: not integers, or arrays that cannot be
            broadcast.

        Notes
        -----
        Arrays need ``8 * ndim`` bytes per index in addition to the result, which are not counted in the
        memory budget.

        Examples
        --------
        >>> import numpy as np
        >>> from outcore.mpi import Distribution
        >>> Distribution(10, [("cyclic", 2)], 3).owner(np.arange(10))
        array([0, 0, 1, 1, 2, 2, 0, 0, 1, 1])
        """
        rows, shape = self._rows(index)
        owners = self.core.owners(rows)
        return int(owners[0]) if shape is None else owners.reshape(shape)

    def local_index(self, index: Any) -> tuple[Any, ...]:
        """
        Return the position at which ranks with an element store it, without ghosts.

        Parameters
        ----------
        index
            As for `owner`.

        Returns
        -------
        tuple
            Per axis an integer, or an array of int64: the position in memory of shape `local_shape`.

        Raises
        ------
        SectionError
            As for `owner`.

        Examples
        --------
        Elements keep their order, whatever is left out between them.

        >>> import numpy as np
        >>> from outcore.mpi import Distribution
        >>> Distribution(10, [("cyclic", 2)], 3).local_index(np.arange(10))
        (array([0, 1, 0, 1, 0, 1, 2, 3, 2, 3]),)
        """
        rows, shape = self._rows(index)
        return _split_columns(self.core.local_indices(rows), shape)

    def global_index(self, rank: int, local: Any) -> tuple[Any, ...]:
        """
        Return the index of the element at a position of a rank; the inverse of `local_index`.

        Parameters
        ----------
        rank
            Number of the rank.
        local
            Position in the memory of the rank, without ghosts; integers or arrays as for `owner`.

        Returns
        -------
        tuple
            Per axis an integer, or an array of int64.

        Raises
        ------
        SectionError
            As for `owner`; ``index-out-of-bounds``: the position is outside the memory of the rank.
        DistributionError
            ``bad-grid``: there is no such rank.

        Examples
        --------
        >>> import numpy as np
        >>> from outcore.mpi import Distribution
        >>> Distribution(10, [("cyclic", 2)], 3).global_index(1, np.arange(4))
        (array([2, 3, 8, 9]),)
        """
        rows, shape = self._rows(local)
        found = self.core.global_indices(to_integer(rank, "rank", "bad-grid"), rows)
        return _split_columns(found, shape)

    def local_shape(
        self, rank: int, ghosts: Ghosts = 0, *, periodic: Periodic = False
    ) -> tuple[int, ...]:
        """
        Return the shape of the memory in which a rank stores its part.

        Parameters
        ----------
        rank
            Number of the rank.
        ghosts
            Widths of the overlap with neighbours in elements: one for all axes, or per axis a width or
            a pair (before, after). Cut off at the ends of the array; must be 0 on CYCLIC axes.
        periodic
            Whether ghosts wrap around at the ends of the array instead: one boolean for all axes, or
            one for each.

        Returns
        -------
        tuple of int
            Shape, including ghosts; with zeros for a rank without elements.

        Raises
        ------
        DistributionError
            ``bad-grid``: there is no such rank; ``bad-distribution``: ghosts on a CYCLIC axis, or
            invalid values of `ghosts` or `periodic`.

        Examples
        --------
        >>> from outcore.mpi import Distribution
        >>> blocks = Distribution((8, 8), ["block", "block"], (2, 2))
        >>> blocks.local_shape(0), blocks.local_shape(0, ghosts=1), blocks.local_shape(0, [(0, 2), 0])
        ((4, 4), (5, 5), (6, 4))
        >>> blocks.local_shape(0, ghosts=1, periodic=[True, False])
        (6, 5)
        """
        rank = to_integer(rank, "rank", "bad-grid")
        pairs, round_ = parse_widths(ghosts, self.ndim), parse_periodic(periodic, self.ndim)
        shape = self.core.local_shape(rank, pairs)
        owned = self.core.local_shape(rank, []) if pairs else shape
        return tuple(
            n + sum(pairs[d]) if pairs and n and round_[d] else shape[d]
            for d, n in enumerate(owned)
        )

    def sections(self, rank: int, ghosts: Ghosts = 0) -> tuple[Key, ...]:
        """
        Return the elements of a rank as regular sections of the array.

        The sections are disjoint and cover the elements of the rank. BLOCK and CYCLIC give one range of
        an axis; CYCLIC(k) gives one for each block or k strided ones, whichever are fewer.

        Parameters
        ----------
        rank
            Number of the rank.
        ghosts
            Widths of the overlap, as for `local_shape`; the sections include the ghosts.

        Returns
        -------
        tuple of tuple of slice
            Keys for `DiskArray`; empty for a rank without elements.

        Raises
        ------
        DistributionError
            As for `local_shape`.

        Examples
        --------
        >>> from outcore.mpi import Distribution
        >>> Distribution(10, ["cyclic"], 3).sections(1)
        ((slice(1, 8, 3),),)
        >>> Distribution(10, ["block"], 3).sections(1, ghosts=1)
        ((slice(3, 9, None),),)
        """
        rank = to_integer(rank, "rank", "bad-grid")
        found, _ = self.core.pieces(rank, parse_widths(ghosts, self.ndim), True)
        return tuple(list_keys(found))

    def _rows(self, index: Any) -> tuple[NDArray[np.int64], tuple[int, ...] | None]:
        """Return indices as rows of an array, and their broadcast shape (None for one index)."""
        items = index if isinstance(index, tuple) else (index,)
        arrays = [np.asarray(item) for item in items]
        if any(a.size and (a.dtype.kind not in "iu") for a in arrays):
            raise SectionError(
                f"index {index!r} is not valid; pass integers, or arrays of integers",
                code="bad-index",
            )
        if any(a.dtype == np.uint64 and a.size and a.max() >= _INT64 for a in arrays):
            raise SectionError(
                "an index has more than 63 bits; pass an index of the array",
                code="index-out-of-bounds",
            )
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
        raise AttributeError("a Distribution cannot be changed; create another one")

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


def divide_like(
    distribution: Distribution, axes: Sequence[int | None], shape: Sequence[int]
) -> Distribution:
    """
    Return a distribution whose axes are divided like those of another one.

    `axes` has for each axis the axis of the other distribution; None: not divided. An axis of
    `shape` has the length of the axis that it is divided like.

    Examples
    --------
    >>> from outcore.mpi import Distribution
    >>> print(divide_like(Distribution((4, 6), ["block", "cyclic"], (2, 3)), [1, None], (6, 9)))
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


def take_range(distribution: Distribution, axis: int, low: int, high: int) -> Distribution:
    """
    Return the distribution of indices `low` to `high` of an axis, aligned with the whole array.

    Each rank stores them contiguously and in the same order as in the whole array.

    Examples
    --------
    >>> from outcore.mpi import Distribution
    >>> whole = Distribution(10, ["block"], 2)
    >>> [take_range(whole, 0, 3, 7).local_shape(rank) for rank in range(2)]
    [(2,), (2,)]
    """
    shape, formats, grid, aligns, along = distribution.arguments
    lengths, how = list(shape), list(aligns)
    stride, offset, extent = how[axis].stride, how[axis].offset, how[axis].extent
    if extent is None:  # cells of the whole array: its template determines the block length
        extent = offset + max(stride * (lengths[axis] - 1), 0) + 1
    how[axis] = Align(stride, offset + stride * low, extent)
    lengths[axis] = high - low
    return Distribution(lengths, formats, grid, align=how, axes=along)


def list_keys(sections: NDArray[np.int64]) -> list[Key]:
    """
    Return the keys of sections of the core: an array (sections, axes, 3) of start, count and step.

    No count is 0.

    Examples
    --------
    >>> import numpy as np
    >>> list_keys(np.array([[[2, 3, 1], [0, 2, 5]]]))
    [(slice(2, 5, None), slice(0, 6, 5))]
    """
    return [
        tuple(
            slice(start, start + (count - 1) * step + 1, None if step == 1 else step)
            for start, count, step in section
        )
        for section in sections.tolist()
    ]


def view_sections(memory: NDArray[Any], sections: NDArray[np.int64]) -> list[NDArray[Any]]:
    """
    Return a view for each section (see `list_keys`) of an array, also of one without axes.

    Examples
    --------
    >>> import numpy as np
    >>> view_sections(np.arange(6), np.array([[[1, 2, 3]]]))
    [array([1, 4])]
    """
    keys: list[tuple[Any, ...]] = [
        (*key, ...) for key in list_keys(sections)
    ]  # ... makes it a view
    return [memory[key] for key in keys]


def parse_periodic(periodic: Periodic, ndim: int) -> tuple[bool, ...]:
    """
    Return one boolean per axis: True if it is periodic; raise `DistributionError` if invalid.

    Examples
    --------
    >>> parse_periodic(True, 2), parse_periodic([False, True], 2)
    ((True, True), (False, True))
    """
    words = [periodic] * ndim if isinstance(periodic, bool | np.bool) else periodic
    if (
        not isinstance(words, Sequence | np.ndarray)
        or len(words) != ndim
        or not all(isinstance(one, bool | np.bool) for one in words)
    ):
        raise _make_distribution_error(
            f"periodic={periodic!r} for {ndim} axes; give True or False, or one per axis"
        )
    return tuple(map(bool, words))


def parse_widths(ghosts: Ghosts, ndim: int) -> list[tuple[int, int]]:
    """
    Return ghost widths as one pair per axis, empty if there are no ghosts.

    Raise `DistributionError` if `ghosts` are not widths. Methods of `Distribution` check that they
    fit.

    Examples
    --------
    >>> parse_widths(1, 2), parse_widths([0, (0, 3)], 2), parse_widths(0, 2)
    ([(1, 1), (1, 1)], [(0, 0), (0, 3)], [])
    """
    if is_number(ghosts):
        width = to_integer(ghosts, "ghosts")
        pairs = [(width, width)] * ndim
    elif isinstance(ghosts, Iterable):
        pairs = [_parse_pair(one) for one in ghosts]
    else:
        raise _make_distribution_error(f"ghosts={ghosts!r}; give a width, or one per axis")
    if pairs and all(pair == (0, 0) for pair in pairs) and len(pairs) == ndim:
        return []
    return pairs


def _parse_pair(one: Any) -> tuple[int, int]:
    if is_number(one):
        width = to_integer(one, "ghosts")
        return (width, width)
    pair = to_integers(one, "ghosts")
    if len(pair) != 2:
        raise _make_distribution_error(
            f"ghost widths {one!r}; give one number, or a pair (before, behind)"
        )
    return (pair[0], pair[1])


def _make_distribution_error(why: str) -> DistributionError:
    return DistributionError(f"invalid distribution: {why}", code="bad-distribution")


def _parse_format(one: Any) -> tuple[str, int | None, list[int]]:
    """Parse the format of an axis: kind, size of blocks, lengths of blocks."""
    kind, *rest = (one,) if isinstance(one, str) else one if isinstance(one, tuple) else (None,)
    name = kind.lower() if isinstance(kind, str) else None
    if name == "gen_block":
        name = "general"
    if name == "*" and not rest:
        return "*", None, []
    if name in ("block", "cyclic") and len(rest) <= 1:
        size = to_integer(rest[0], f"size of a {name} block") if rest else None
        return name, size, []
    if name == "general" and len(rest) == 1:
        return name, None, to_integers(rest[0], "lengths of general blocks")
    raise _make_distribution_error(
        f"format {one!r}; give 'block', ('block', k), 'cyclic', ('cyclic', k), "
        "('general', lengths) or '*'"
    )


def _create_argument(parsed: tuple[str, int | None, list[int]]) -> Format:
    kind, size, lengths = parsed
    if kind == "general":
        return kind, lengths
    return kind if size is None else (kind, size)


def _assign_axes(
    kinds: list[str], grid: ProcessGrid, axes: Sequence[int | None] | None
) -> list[int | None]:
    """Return the axis of the grid for each axis of the array."""
    if axes is not None:
        given = [None if axis is None else to_integer(axis, "axes") for axis in axes]
        if len(given) != len(kinds):
            raise _make_distribution_error(
                f"{len(given)} axes of the grid for {len(kinds)} formats; give one each"
            )
        if any(axis is not None and axis < 0 for axis in given):
            raise _make_distribution_error(
                f"axes={list(axes)}; axes of the grid are counted from 0"
            )
        return given
    divided = sum(kind != "*" for kind in kinds)
    if divided != grid.ndim and not (grid.size == 1 and divided == 0):
        raise _make_distribution_error(
            f"{divided} divided axes on a grid of {grid.ndim} axes; give as many, or say with axes= "
            "which axes of the grid are used: along the others all ranks have the same elements"
        )
    numbers = iter(range(grid.ndim))
    return [None if kind == "*" else next(numbers) for kind in kinds]


def _parse_align(one: Any) -> Align:
    if one is None:
        return Align()
    if not isinstance(one, Align):
        if isinstance(one, str) or not isinstance(one, Sequence) or not 1 <= len(one) <= 3:
            raise _make_distribution_error(
                f"alignment {one!r}; give an Align, (stride, offset) or None"
            )
        one = Align(*one)
    stride, offset = to_integer(one.stride, "stride"), to_integer(one.offset, "offset")
    extent = None if one.extent is None else to_integer(one.extent, "extent")
    return Align(stride, offset, extent)


def _split_columns(rows: NDArray[np.int64], shape: tuple[int, ...] | None) -> tuple[Any, ...]:
    if shape is None:
        return tuple(int(n) for n in rows[0])
    return tuple(column.reshape(shape) for column in rows.T)
