"""
Simulate the papers' tables for comparison.

Tables 1 to 8 of the extended two-phase paper (seconds on the Touchstone Delta) and 4 to 6 of the
multi-collective paper (percent, and seconds, on the SP-2), simulated on ``delta`` and ``sp2``.
`CALIBRATED` lists the cells that the parameters of a machine were fitted to; all others are predictions.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np

from outcore.model.assignment import assign
from outcore.model.machines import tables
from outcore.model.machines.machine import Machine, machine
from outcore.model.simulate.methods import Case, Method, Outcome, SimulatedArray, simulate

__all__ = [
    "CALIBRATED",
    "Cell",
    "Summary",
    "compare_measurement",
    "cut_part",
    "make_case_of",
    "simulate_extended",
    "simulate_multi",
    "summarize",
]

# Times of two methods that differ by less than this factor have no order.
_TIE = 1.05


@dataclass(frozen=True)
class Cell:
    """
    Value in a paper (`theirs`), and the simulated value (`ours`).

    The paper is ``"extended"``, ``"multi"`` or ``"passion"``; the unit is ``"s"`` or ``"%"`` (of the
    time saved), or the counted objects of PASSION's table 11. `fitted`: the machine was calibrated with
    it.
    """

    paper: str
    table: int
    row: str
    ranks: int
    column: str
    unit: str
    theirs: float
    ours: float
    fitted: bool

    @property
    def ratio(self) -> float:
        """Simulated value divided by the paper's; for percentages, ratio of the remaining times."""
        if self.unit == "%":
            return (100 - self.ours) / (100 - self.theirs)
        return self.ours / self.theirs


def compare_measurement(
    paper: str,
    row: str,
    cell: tables.Measurement | tables.ProgramTime,
    ours: float,
    *,
    unit: str = "s",
    fitted: bool = False,
) -> Cell:
    """Return a measured value of a table with the simulated one; its column is the method."""
    return Cell(paper, cell.table, row, cell.ranks, cell.method, unit, cell.seconds, ours, fitted)


@dataclass(frozen=True)
class Summary:
    """
    Accuracy of one table.

    `median` and `worst` are the median and the maximum of the factor between simulated value and paper,
    in either direction: 1 is exact. In `alike` of `rows` rows (for a number of ranks) the methods have
    the same order as in the paper; methods within 5 % in the paper may have any order.
    """

    paper: str
    table: int
    cells: int
    median: float
    worst: float
    alike: int
    rows: int


CALIBRATED = {
    "delta": "table 7, the columns of 16 and 64 ranks (48 of the 348 cells of tables 1 to 8)",
    "ipsc": "no cell (it has the parameters of delta); the kernel on 8 of the 80 cells of tables 6 to 9",
    "paragon": "one value in the irregular paper's text, of figure 10: almost 40 MB/s",
    "red": "one value in the irregular paper's text, of figure 15: up to 60 MB/s",
    "sp": "no value; its PIOFS on two of four rates that the text on disk resident arrays states",
    "sp2": "six of 28 cells: tables 4 and 5, 4 files with 4 ranks and 32 with 16; table 6, 4 ranks",
}


def _is_fitted(cell: tables.Measurement) -> bool:
    return cell.table == 7 and cell.ranks in (16, 64)


def make_case_of(cell: tables.Measurement) -> Case:
    """Return the accesses of a cell."""
    sections = tables.sections(cell.section, cell.ranks)
    array = SimulatedArray(cell.shape, cell.itemsize, cell.order, list(enumerate(sections)))
    return Case(cell.ranks, (array,), write=cell.operation == "write")


def simulate_extended(model: Machine | None = None, *, table: int | None = None) -> list[Cell]:
    """Return tables 1 to 8 of the extended two-phase paper, or one; default machine ``delta``."""
    model = model or machine("delta")
    return [
        compare_measurement(
            "extended",
            f"{cell.case} {cell.operation}",
            cell,
            simulate(
                make_case_of(cell), model, cast(Method, cell.method), leaves_out=False
            ).seconds,
            fitted=_is_fitted(cell),
        )
        for cell in tables.measurements(table)
    ]


# Files of 32 MB: "a two-dimensional matrix of 1024 x 2048" then has elements of 16 bytes.
_FILE = (1024, 2048)
_ITEM = 16


def cut_part(length: int, ranks: int, rank: int) -> slice:
    """Return the indices of a rank if they are divided into consecutive, almost equal parts."""
    return slice(length * rank // ranks, length * (rank + 1) // ranks)


def _make_files(files: int, ranks: int, access: str) -> tuple[SimulatedArray, ...]:
    """Return files of which each rank accesses some consecutive rows, or columns."""

    def section(rank: int) -> tuple[slice, slice]:
        rows = cut_part(_FILE[0], ranks, rank) if access == "rows" else slice(0, _FILE[0])
        columns = cut_part(_FILE[1], ranks, rank) if access == "columns" else slice(0, _FILE[1])
        return rows, columns

    one = SimulatedArray(_FILE, _ITEM, "C", [(rank, section(rank)) for rank in range(ranks)])
    return (one,) * files


def _make_variables(count: int, nbytes: int, ranks: int) -> tuple[SimulatedArray, ...]:
    """Return the three-dimensional variables of a program; each rank has a block of planes."""
    side = round((nbytes / count / 4) ** (1 / 3))
    all_of_it = slice(0, side)
    planes = [(rank, (cut_part(side, ranks, rank), all_of_it, all_of_it)) for rank in range(ranks)]
    return (SimulatedArray((side,) * 3, 4, "C", planes),) * count


def _time_one_by_one(arrays: Iterable[SimulatedArray], ranks: int, model: Machine) -> float:
    """Return the seconds of one collective call per file. Equal files take equal times."""

    @functools.cache
    def each(key: int) -> float:
        return simulate(Case(ranks, (by_id[key],)), model, "dynamic").seconds

    by_id = {id(array): array for array in arrays}
    return sum(each(id(array)) for array in arrays)


def _simulate_one_call(arrays: tuple[SimulatedArray, ...], ranks: int, model: Machine) -> Outcome:
    """Simulate one collective call for all files, assigned to ranks as `outcore.mpi.read_all` does."""
    wanted = np.zeros((ranks, len(arrays)), np.int64)
    for column, array in enumerate(arrays):
        for rank, section in array.sections:
            counts = [
                len(range(*part.indices(n))) for part, n in zip(section, array.shape, strict=True)
            ]
            wanted[rank, column] = array.itemsize * int(np.prod(counts))
    shares = assign(wanted).shares
    owned = [[(rank, part) for rank, part in share if part] for share in shares]
    return simulate(Case(ranks, arrays), model, "dynamic", shares=owned)


def simulate_multi(model: Machine | None = None) -> list[Cell]:
    """Return tables 4 to 6 of the multi-collective paper; the default machine is ``sp2``."""
    model = model or machine("sp2")
    cells = []
    for cell in tables.improvements():
        arrays = _make_files(cell.files, cell.ranks, cell.access)
        one_by_one = _time_one_by_one(arrays, cell.ranks, model)
        ours = 100 * (1 - _simulate_one_call(arrays, cell.ranks, model).seconds / one_by_one)
        fitted = (cell.files, cell.ranks) in ((4, 4), (32, 16))
        row, column = f"{cell.files} files, {cell.access}", "saved"
        cells.append(
            Cell(
                "multi",
                cell.table,
                row,
                cell.ranks,
                column,
                "%",
                cell.percent,
                ours,
                fitted,
            )
        )
    for ranks, (apart, together) in tables.astro3d().items():
        arrays = _make_variables(6, 8 << 20, ranks)
        one_by_one, at_once = (
            _time_one_by_one(arrays, ranks, model),
            _simulate_one_call(arrays, ranks, model).seconds,
        )
        for column, theirs, ours in (
            ("six calls", apart, one_by_one),
            ("one call", together, at_once),
        ):
            fitted = ranks == 4
            cells.append(Cell("multi", 6, "astro3d", ranks, column, "s", theirs, ours, fitted))
    return cells


def _group(cells: Iterable[Cell], key: Callable[[Cell], object]) -> list[list[Cell]]:
    groups: dict[object, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return list(groups.values())


def _is_same_order(row: list[Cell]) -> bool:
    """Return whether the simulated values have the order of the paper's, where these differ enough."""
    return all(a.ours < b.ours for a in row for b in row if a.theirs * _TIE < b.theirs)


def summarize(cells: Iterable[Cell], *, fitted: bool | None = None) -> list[Summary]:
    """
    Return the accuracy of each table.

    `fitted` includes only cells that were used (True) or not used (False) for calibration. Orders always
    use all cells.
    """
    found = []
    for table in _group(cells, lambda cell: (cell.paper, cell.table)):
        counted = [cell for cell in table if fitted in (None, cell.fitted)]
        factors = [max(cell.ratio, 1 / cell.ratio) for cell in counted] or [float("nan")]
        rows = [row for row in _group(table, lambda cell: (cell.row, cell.ranks)) if len(row) > 1]
        found.append(
            Summary(
                table[0].paper,
                table[0].table,
                len(counted),
                statistics.median(factors),
                max(factors),
                sum(map(_is_same_order, rows)),
                len(rows),
            )
        )
    return found
