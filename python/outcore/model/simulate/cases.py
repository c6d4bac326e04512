"""
Access patterns of `outcore simulate --case`, and sections in the papers' notation.

Weak scaling: each rank accesses the same number of bytes, whatever the number of ranks. The array of
double precision numbers in C order grows with the ranks.

| case      | section of each rank                                                    |
|-----------|-------------------------------------------------------------------------|
| `rows`    | consecutive rows: one run                                               |
| `columns` | consecutive columns: a short run in each of 4096 rows                   |
| `blocks`  | a block of a grid of ranks as square as possible, 1024 rows high        |
| `cyclic`  | every n-th column, n the number of ranks: single elements of 4096 rows  |
| `common`  | the same square as all others                                           |
"""

from __future__ import annotations

import math
from collections.abc import Callable

from outcore.errors import UsageError
from outcore.model.machines import tables
from outcore.model.simulate.methods import Case, SimulatedArray

__all__ = ["CASES", "make_case", "parse_case"]

_ITEM = 8
_ROWS = 4096


def _count_columns(rows: int, nbytes: int) -> int:
    return max(nbytes // (rows * _ITEM), 1)


def _make_rows(ranks: int, nbytes: int) -> SimulatedArray:
    columns = _count_columns(_ROWS, nbytes)
    sections = [(r, (slice(_ROWS * r, _ROWS * (r + 1)), slice(0, columns))) for r in range(ranks)]
    return SimulatedArray((_ROWS * ranks, columns), _ITEM, "C", sections)


def _make_columns(ranks: int, nbytes: int) -> SimulatedArray:
    each = _count_columns(_ROWS, nbytes)
    sections = [(r, (slice(0, _ROWS), slice(each * r, each * (r + 1)))) for r in range(ranks)]
    return SimulatedArray((_ROWS, each * ranks), _ITEM, "C", sections)


def _make_blocks(ranks: int, nbytes: int) -> SimulatedArray:
    down = max(n for n in range(1, math.isqrt(ranks) + 1) if ranks % n == 0)
    across, high = ranks // down, 1024
    wide = _count_columns(high, nbytes)

    def section(rank: int) -> tuple[slice, slice]:
        i, j = divmod(rank, across)
        return slice(high * i, high * (i + 1)), slice(wide * j, wide * (j + 1))

    shape = (high * down, wide * across)
    return SimulatedArray(shape, _ITEM, "C", [(r, section(r)) for r in range(ranks)])


def _make_cyclic(ranks: int, nbytes: int) -> SimulatedArray:
    columns = _count_columns(_ROWS, nbytes) * ranks
    sections = [(r, (slice(0, _ROWS), slice(r, columns, ranks))) for r in range(ranks)]
    return SimulatedArray((_ROWS, columns), _ITEM, "C", sections)


def _make_common(ranks: int, nbytes: int) -> SimulatedArray:
    side = max(math.isqrt(nbytes // _ITEM), 1)
    square = (slice(side, 2 * side), slice(side, 2 * side))
    return SimulatedArray((4 * side, 4 * side), _ITEM, "C", [(r, square) for r in range(ranks)])


CASES: dict[str, Callable[[int, int], SimulatedArray]] = {
    "rows": _make_rows,
    "columns": _make_columns,
    "blocks": _make_blocks,
    "cyclic": _make_cyclic,
    "common": _make_common,
}


def make_case(name: str, ranks: int, nbytes: int = 16 << 20, *, write: bool = False) -> Case:
    """
    Make a case of the table above, in which each rank accesses about `nbytes` bytes.

    Examples
    --------
    >>> from outcore.model.simulate.cases import make_case
    >>> make_case("columns", 3, 65536).arrays[0].sections[2]
    (2, (slice(0, 4096, None), slice(4, 6, None)))
    """
    return Case(ranks, (CASES[name](ranks, nbytes),), write)


def parse_case(
    text: str, ranks: int, shape: tuple[int, ...], itemsize: int, order: str, *, write: bool = False
) -> Case:
    """
    Make a case from sections in the papers' notation, such as ``(1+8p:16+8p:1, 1:4096:1)``.

    Indices start at 1 and upper bounds are included; `p` is the number of the rank from 0, `nprocs` the
    number of ranks. Sections end at the end of the array.
    """
    try:
        sections = list(enumerate(tables.sections(text, ranks)))
    except ValueError as error:
        raise UsageError(
            f"--section {text!r}: {error}; write l:u:s for each axis, such as "
            "'(1+8p:16+8p:1, 1:4096:1)'",
            code="bad-option",
        ) from error
    if any(len(section) != len(shape) for _, section in sections):
        raise UsageError(
            f"--section {text!r} does not have the {len(shape)} axes of --shape; write l:u:s for each",
            code="bad-option",
        )
    if any(part.start < 0 or part.step < 1 for _, section in sections for part in section):
        raise UsageError(
            f"--section {text!r}: use lower bounds and strides of at least 1",
            code="bad-option",
        )
    return Case(ranks, (SimulatedArray(shape, itemsize, order, sections),), write)
