"""
Figures 5 and 6 of the paper on disk resident arrays: their settings, and the curves on this machine.

Nieplocha, Foster, "Disk Resident Arrays", section 5.1. The text has four points of figure 5, of figure 6
none; they and its sentences stand beside the model (`outcore.model.simulate.disk_arrays`). Here the
section and its layout are the paper's (`papers.transfers`), half of each axis of ``--size``. Figure 5:
one ``.npy`` file, buffers of 1 and 2 MB. Figure 6: as many ``.npy`` files in folders of their own
(format ``parts``, stripes in turns) as ranks do I/O; all are on the one disk of this machine, so what
more disks give is not to be seen. Writes are with fsync. ``--cache slow`` has a slower disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import Row
from outcore.model.machines import rates
from outcore.model.machines.rates import FIGURES
from outcore.model.simulate.disk_arrays import PAPER_FIGURES
from papers import transfers

__all__ = ["FIGURES", "here", "lines", "run", "theirs", "title"]

lines, title = PAPER_FIGURES.lines, PAPER_FIGURES.title

#: Edges of the array on disk, with whole stripes in each half; the paper's is 10000.
SIDES = {"quick": 4000, "256MiB": 6000, "1GiB": 10000, "4GiB": 20000}


def theirs(figure: int) -> list[str]:
    """The settings of a figure; what the paper says of it comes with the model."""
    one = rates.load_transfers(figure)
    buffers = ", ".join(f"{size / 1e6:g} MB" for size in one.buffers)
    return [
        f"theirs: {one.named}, {one.storage}; a section of {one.section} x {one.section} doubles of "
        f"{one.edge} x {one.edge}; buffers of {buffers}"
    ]


def here(figure: int, ranks: int, operation: str, cache: str, options: Any) -> list[Row]:
    """A row for each buffer and alignment, with the seconds of each number of ranks that do I/O."""
    from mpi_ranks import launch, libraries

    folder, n = Path(options.folder), SIDES[options.size]
    name = "dra" if operation == "read" else "dra-written"
    paths = transfers.paths_of(figure, folder, n, ranks, name)
    words = {
        **{"cache": cache, "op": operation, "repeat": options.repeat, "n": n},
        **{"files": [str(path) for path in paths.values()]},
        **{"paths": {which: str(path) for which, path in paths.items()}},
        **{"buffers": list(rates.load_transfers(figure).buffers)},
    }
    program, library = str(transfers.__file__), libraries(options.library)[0]
    rows = []
    for row in launch(program, f"papers dra {figure}", library, ranks, words) or []:
        row.case = f"{row.case}, {ranks} ranks, {cache}"
        rows.append(row)
    if operation == "write":
        for path in set(paths.values()):
            transfers.remove(path)
    return rows


def run(figure: int, options: Any, show: Any) -> None:
    """Print a figure here, as a table."""
    rows = []
    for ranks in options.ranks:
        for cache in options.cache:
            rows += here(figure, ranks, "read", cache, options)
        # With fsync, so the disk counts whatever is cached.
        writes = "slow" if options.cache == ["slow"] else "warm"
        rows += here(figure, ranks, "write", writes, options)
    show(["here, MB/s; ranks that do I/O", *_columns(rows)], _cells(rows))


def _columns(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row.seconds)
    last = [name for name in (transfers.OWN, transfers.CHOSEN) if name in names]
    return [*(name for name in names if name not in last), *last]


def _cells(rows: Sequence[Row]) -> list[list[Any]]:
    names = _columns(rows)
    return [[row.case, *map(row.rate, names)] for row in rows if row.seconds]
