"""
Measurements of the papers, as data.

The values are in the ``.toml`` files of four papers in this folder, as printed. A value that was hard to
read, or that contradicts another table or the text, has a ``note``.

>>> from outcore.model.machines import tables
>>> one = tables.measurements(table=1)[0]
>>> one.section, one.ranks, one.method, one.seconds
('(1:100:1, 1:100:1)', 16, 'direct', 1.632)
>>> tables.sections("(1:100:1, 1+10p:100+10p:1)", ranks=2)
[(slice(0, 100, 1), slice(0, 100, 1)), (slice(0, 100, 1), slice(10, 110, 1))]
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

__all__ = [
    "SIEVED_COLUMNS",
    "Improvement",
    "Measurement",
    "ProgramTime",
    "Setting",
    "astro3d",
    "improvements",
    "irregular",
    "load_irregular_claims",
    "load_irregular_machines",
    "measurements",
    "passion",
    "programs",
    "sections",
]


# Number of columns of the slabs of tables 10 and 11 of the PASSION report.
SIEVED_COLUMNS = 16


@dataclass(frozen=True)
class Measurement:
    """
    Cell of tables 1 to 8 of the extended two-phase paper, or of the PASSION report.

    `case` is the Roman number of the row; `kind` is ``"common"``, ``"overlapping"``, ``"distinct"`` or
    ``"strided"``. `section` is as printed; `sections` parses it. Arrays are column-major (``"F"``),
    single precision. `method` is ``"direct"`` (without two phases), ``"static"`` (fixed file domains) or
    ``"dynamic"`` (file domains of the bounding section); for the report see `passion`. In table 11
    `seconds` is a number of requests or elements. `note` is the reason for doubt, or empty.
    """

    table: int
    case: str
    operation: str
    kind: str
    section: str
    shape: tuple[int, ...]
    itemsize: int
    order: str
    ranks: int
    method: str
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class ProgramTime:
    """Cell of tables 9 and 10: I/O seconds of a whole program."""

    table: int
    name: str
    shape: tuple[int, ...]
    ranks: int
    method: str
    seconds: float


@dataclass(frozen=True)
class Improvement:
    """Cell of tables 4 and 5 of the multi-collective paper: percent faster than one call per file."""

    table: int
    access: str
    files: int
    ranks: int
    percent: float


@dataclass(frozen=True)
class Setting:
    """
    Settings of one curve of figures 9 to 15 of the irregular paper, without its points.

    The text of the paper does not contain the points of its figures. A curve is drawn `against` chunk
    sizes, which are not in the text either, or against groups of processors.

    The machine is ``"paragon"`` (16 I/O nodes with a disk of 9 MB/s each) or ``"red"`` (3 I/O nodes with
    RAID). `quantity` is ``"bandwidth"``, or ``"breakdown"`` of the seconds. There are `ranks` compute
    nodes, each with `indirection` bytes of indices; `nbytes` are those of the global array. `groups` is
    0 if the curve is drawn against groups. `chunk`, the bytes of the buffer of each rank, is 0 if the
    curve is drawn against chunk sizes, or the text does not state it.
    """

    figure: int
    machine: str
    method: str
    operation: str
    quantity: str
    against: str
    ranks: int
    nbytes: int
    indirection: int
    itemsize: int
    stripe: int
    groups: int
    chunk: int


@functools.cache
def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def measurements(table: int | None = None) -> tuple[Measurement, ...]:
    """Return the cells of tables 1 to 8 of the extended two-phase paper, or of one of them."""
    return tuple(cell for cell in _iterate_measurements() if table in (None, cell.table))


def _iterate_measurements() -> Iterator[Measurement]:
    data = _load("extended-two-phase")
    for table in data["table"]:
        columns = [(ranks, method) for ranks in table["ranks"] for method in table["methods"]]
        doubts = {
            (doubt["case"], doubt["operation"], doubt["ranks"], doubt["method"]): doubt["note"]
            for doubt in table.get("doubts", ())
        }
        for row in table["rows"]:
            for (ranks, method), seconds in zip(columns, row["seconds"], strict=True):
                place = (row["case"], row["operation"], ranks, method)
                yield Measurement(
                    table=table["number"],
                    case=row["case"],
                    operation=row["operation"],
                    kind=row["kind"],
                    section=row["section"],
                    shape=tuple(table["shape"]),
                    itemsize=data["itemsize"],
                    order=data["order"],
                    ranks=ranks,
                    method=method,
                    seconds=float(seconds),
                    note=doubts.pop(place, row.get("note", "")),
                )
        if doubts:
            raise LookupError(f"doubts about cells that table {table['number']} lacks: {doubts}")


def passion(table: int) -> tuple[Measurement, ...]:
    """
    Return the cells of table 3, 4, 6 to 11 or 13 of the PASSION report.

    The methods are the columns: ``direct``, ``two-phase`` and ``reuse`` (3), slabs as a fraction of the
    local array, ``1/16`` (4), slab sizes, ``8K`` (6 to 9), ``direct`` and ``sieve`` (10, 11),
    ``waiting`` and ``prefetching`` (13). The operations of tables 6 to 9 are ``pre-processing`` and
    ``computation``; their case is the number of atoms, ``14K``, also in the shape. The operations of
    table 11 are ``requests`` and ``elements``.
    """
    return tuple(cell for cell in _load_passion() if cell.table == table)


@functools.cache
def _load_passion() -> tuple[Measurement, ...]:
    data = _load("passion-report")
    found = []

    def cell(
        table: int,
        operation: str,
        shape: list[int],
        ranks: int,
        method: str,
        value: float,
        **more: Any,
    ) -> None:
        words = {"case": "", "kind": "distinct", "section": "", "itemsize": 4, "order": "F", **more}
        found.append(
            Measurement(
                table=table,
                operation=operation,
                shape=tuple(shape),
                ranks=ranks,
                method=method,
                seconds=float(value),
                **words,
            )
        )

    for row in data["laplace"]["rows"]:
        for method, value in zip(data["laplace"]["methods"], row["seconds"], strict=True):
            cell(3, "laplace", row["shape"], row["ranks"], method, value)
    for row in data["fft"]["rows"]:
        for slabs, value in zip(data["fft"]["slabs"], row["seconds"], strict=True):
            cell(4, "fft", data["fft"]["shape"], row["ranks"], f"1/{slabs}", value, itemsize=8)
    for table in data["molecular"]:
        shape = [int(table["atoms"].removesuffix("K")) * 1000]
        for row in table["rows"]:
            for slab, value in zip(table["slabs"], row["seconds"], strict=True):
                words = {"case": table["atoms"], "note": row.get("note", "")}
                place = table["number"], table["phase"], shape, row["ranks"], f"{slab}K"
                cell(*place, value, **words)
    sieving = data["sieving"]
    for row in sieving["rows"]:
        for operation in ("read", "write", "requests", "elements"):
            table = 10 if operation in ("read", "write") else 11
            for method, value in zip(sieving["methods"], row[operation], strict=True):
                words = {"section": row["section"], "kind": "strided"}
                cell(table, operation, sieving["shape"], sieving["ranks"], method, value, **words)
    for row in data["prefetch"]["rows"]:
        for method, value in zip(("waiting", "prefetching"), row["seconds"], strict=True):
            cell(13, "matmul", data["prefetch"]["shape"], row["ranks"], method, value, itemsize=8)
    return tuple(found)


def irregular(figure: int | None = None) -> tuple[Setting, ...]:
    """
    Return the settings of figures 9 to 15 of the irregular paper, or of one of them.

    No, Choudhary, "Techniques to provide Run-Time Support for solving Irregular Problems", section 4.

    Examples
    --------
    >>> from outcore.model.machines import tables
    >>> one = tables.irregular(figure=10)[0]
    >>> one.ranks, one.nbytes // one.itemsize // one.ranks, one.groups, one.stripe
    (128, 524288, 4, 65536)
    """
    return tuple(one for one in _load_irregular() if figure in (None, one.figure))


def load_irregular_machines() -> dict[str, dict[str, Any]]:
    """Return the irregular paper's description of its two machines: ``paragon`` and ``red``."""
    return {
        name: dict(words) for name, words in _load("irregular-collective-io")["machine"].items()
    }


def load_irregular_claims() -> dict[int, tuple[str, ...]]:
    """Return the sentences of the text about the curves of each of figures 9 to 15."""
    figures = _load("irregular-collective-io")["figure"]
    return {figure["number"]: tuple(figure.get("claims", ())) for figure in figures}


@functools.cache
def _load_irregular() -> tuple[Setting, ...]:
    data = _load("irregular-collective-io")
    found = []
    for figure in data["figure"]:
        # Figure 13 has one stripe unit for each operation.
        each = figure["quantity"] == "breakdown" and len(figure["stripes_kb"]) > 1
        for number, operation in enumerate(figure["operations"]):
            stripes = figure["stripes_kb"][number : number + 1] if each else figure["stripes_kb"]
            found += [
                Setting(
                    figure=figure["number"],
                    machine=figure["machine"],
                    method=figure["method"],
                    operation=operation,
                    quantity=figure["quantity"],
                    against=figure["against"],
                    ranks=panel["ranks"],
                    nbytes=panel["data_mb"] << 20,
                    indirection=data["indirection_mb"] << 20,
                    itemsize=data["itemsize"],
                    stripe=stripe << 10,
                    groups=groups,
                    chunk=figure.get("chunk_mb", 0) << 20,
                )
                for panel in figure["panels"]
                for stripe in stripes
                for groups in figure.get("groups", [0])
            ]
    return tuple(found)


def programs() -> tuple[ProgramTime, ...]:
    """Return the cells of tables 9 and 10 of the extended two-phase paper."""
    return tuple(
        ProgramTime(table["number"], table["name"], tuple(shape), row["ranks"], method, float(time))
        for table in _load("extended-two-phase")["program"]
        for row in table["rows"]
        for (shape, method), time in zip(
            [(shape, method) for shape in table["shapes"] for method in table["methods"]],
            row["seconds"],
            strict=True,
        )
    )


def improvements() -> tuple[Improvement, ...]:
    """Return the cells of tables 4 and 5 of the multi-collective paper."""
    return tuple(
        Improvement(table["number"], table["access"], row["files"], ranks, percent)
        for table in _load("multi-collective-io")["table"]
        for row in table["rows"]
        for ranks, percent in zip(table["ranks"], row["percent"], strict=True)
    )


def astro3d() -> dict[int, tuple[float, float]]:
    """Return table 6 of the multi-collective paper: seconds of six calls, and of one, by ranks."""
    table = _load("multi-collective-io")["astro3d"]
    pairs = zip(table["collective"], table["multi"], strict=True)
    return dict(zip(table["ranks"], pairs, strict=True))


_TERM = re.compile(r"([0-9]*)(nprocs|p|)")


def _evaluate_sum(text: str, p: int, nprocs: int) -> int:
    """Return the value of a sum such as ``1+100p``."""
    total = 0
    for term in text.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None or not term.strip():
            raise ValueError(f"{term!r} in {text!r} is not a number, 'p' or 'nprocs'")
        factor = int(match[1]) if match[1] else 1
        total += factor * {"p": p, "nprocs": nprocs, "": 1}[match[2]]
    return total


def sections(text: str, ranks: int) -> list[tuple[slice, ...]]:
    """
    Return the section of each rank as Python slices: from 0, without the upper bound.

    The text is in the papers' notation, ``(l1:u1:s1, l2:u2:s2)``, with ``p`` for the number of the
    processor (from 0) and ``nprocs`` for the number of processors.

    Examples
    --------
    >>> from outcore.model.machines.tables import sections
    >>> sections("(p+1:4096:nprocs, 500:2500:3)", ranks=4)[3]
    (slice(3, 4096, 4), slice(499, 2500, 3))
    """
    found = []
    for p in range(ranks):
        axes = []
        for axis in text.strip("() ").split(","):
            low, high, step = (_evaluate_sum(part, p, ranks) for part in axis.split(":"))
            axes.append(slice(low - 1, high, step))
        found.append(tuple(axes))
    return found
