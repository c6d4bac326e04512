"""
Figures 9 to 15 of the irregular paper: their settings, and the same curves on this machine.

No, Choudhary, "Techniques to provide Run-Time Support for solving Irregular Problems", section 4. The
text of the paper has no points of the figures, so theirs is what the running text says. Here each
rank has as many elements as there (512 Ki of 8 bytes, uniform and random), ranks are those of
``--ranks``. Chunks and groups are those of `CollectiveArray.schedule_all`, collective and pipelined
are methods of `CollectiveSchedule.gather_all`; parts of the time are those of `irregular.parts`; a
stripe unit is a matter of the file system, of which there is one here. Groups that are more than the
ranks are left out. The disk of the paper comes back with ``--cache slow``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import Row
from irregular import many_ranks
from irregular.parts import NAMES
from outcore.model.machines import tables
from outcore.model.simulate.figures import CHUNKS, FIGURES, GROUPS, PAPER_FIGURES

__all__ = ["CHUNKS", "FIGURES", "GROUPS", "curves", "here", "lines", "run", "theirs", "title"]

lines, title = PAPER_FIGURES.lines, PAPER_FIGURES.title


def theirs(figure: int) -> list[str]:
    """The settings of a figure; what the paper says of it comes with the model."""
    some = tables.irregular(figure)
    machine = tables.load_irregular_machines()[some[0].machine]
    parts = {
        "processors": {one.ranks for one in some},
        "stripe unit, KB": {one.stripe >> 10 for one in some},
        "groups": {one.groups for one in some} - {0},
        "chunk, MB": {one.chunk >> 20 for one in some} - {0},
    }
    words = [f"{name} {', '.join(map(str, sorted(v)))}" for name, v in parts.items() if v]
    return [f"theirs: {machine['name']}, {machine['io_nodes']} I/O nodes; {'; '.join(words)}"]


def curves(figure: int, ranks: int) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """
    The curves of a figure that so many ranks can draw.

    Returns
    -------
    dict
        For each operation and name of a curve its points: a name, and words for `schedule_all`.
    """
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for one in tables.irregular(figure):
        if one.against == "groups":
            chunk = one.chunk or CHUNKS[-1]
            words = [{"groups": groups, "chunk": chunk} for groups in GROUPS if groups <= ranks]
            found[one.operation, f"chunks of {chunk >> 10} KiB"] = {
                _plural(each["groups"]): each for each in words
            }
        elif one.groups <= ranks:
            words = [{"groups": one.groups, "chunk": chunk} for chunk in CHUNKS]
            found[one.operation, _plural(one.groups)] = {
                f"{each['chunk'] >> 10} KiB": each for each in words
            }
    return found


def _plural(groups: int) -> str:
    return f"{groups} group{'s' * (groups > 1)}"


def here(figure: int, ranks: int, cache: str, options: Any) -> list[Row]:
    """A row for each curve, with the seconds of its points, which run by turns."""
    from mpi_ranks import launch, libraries

    one = tables.irregular(figure)[0]
    n = ranks * (one.nbytes // one.itemsize // one.ranks)
    paths = many_ranks.files(Path(options.folder), n)
    rows = []
    for (operation, name), points in curves(figure, ranks).items():
        words = {
            **{"cache": cache, "op": operation, "repeat": options.repeat, "n": n, "pio": ""},
            **{"others": False, "without": [], "files": paths, "once": False},
            **{"schedules": points, "method": one.method, "parts": one.quantity == "breakdown"},
        }
        program, library = str(many_ranks.__file__), libraries(options.library)[0]
        for row in launch(program, f"papers irregular {figure}", library, ranks, words) or []:
            row.case = f"{operation}, {name}, {ranks} ranks, {cache}"
            rows.append(row)
    return rows


def run(figure: int, options: Any, show: Any) -> None:
    """Print a figure here, as a table."""
    rows = []
    for ranks in options.ranks:
        for cache in options.cache:
            rows += here(figure, ranks, cache, options)
    columns = list(dict.fromkeys(point for row in rows for point in row.seconds))
    if tables.irregular(figure)[0].quantity == "breakdown":
        cells = [
            [f"{row.case}, {part}", *(_part(row, point, number) for point in columns)]
            for row in rows
            for number, part in enumerate(NAMES)
        ]
        show(["here, seconds", *columns], cells)
        return
    cells = [[row.case, *map(row.rate, columns)] for row in rows if row.seconds]
    show(["here, MB/s", *columns], cells)


def _part(row: Row, point: str, number: int) -> float | str:
    return "wrong" if point in row.wrong else row.extra["parts"][point][number]
