"""
The section of the paper on disk resident arrays, moved by some of the ranks: the program of a rank.

The array on disk has the paper's layout: stripes of 500 rows, in which columns follow each other. That
is an array of three axes (stripes, columns, rows of a stripe), so a section that begins within a stripe
is three sections of it, which one collective call moves; each rank has as many columns of it. How many
ranks do I/O is the hint ``io_ranks`` of two-phase, their buffer a slot (hint ``memory``). Beside it:
each rank on its own, and what outcore chooses. A write has other values in each run; all elements are
compared.

Run under mpiexec by `papers.disk_arrays`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

__all__ = [
    "CHOSEN",
    "FITS",
    "OWN",
    "STRIPE",
    "Section",
    "counts",
    "make",
    "paths_of",
    "rank",
    "remove",
]

FITS = ("aligned", "nonaligned")
OWN, CHOSEN = "each its own", "chosen"
STRIPE = 500
# What a slot has besides its bytes, and what part of the memory of an access it is.
_PAGE, _SLOTS = 4096, 4


def stripe_rows(n: int) -> int:
    """Rows of a stripe: the paper's, and fewer of a tiny array."""
    return min(STRIPE, n // 4)


def _values(stripes: slice, columns: slice, rows: slice, n: int) -> np.ndarray:
    """Elements of the array of three axes."""
    edge = stripe_rows(n)
    row = np.arange(stripes.start, stripes.stop)[:, None, None] * edge
    return (row + np.arange(rows.start, rows.stop)) * float(n) + np.arange(
        columns.start, columns.stop
    )[:, None]


def make(folder: Path, n: int, parts: int = 0, name: str = "dra") -> Path:
    """
    The array, in one file or in so many parts.

    Each part has a folder of its own, which would be another disk where there are several.
    """
    import outcore

    edge = stripe_rows(n)
    path = folder / (f"{name}-{n}-{parts}.parts" if parts else f"{name}-{n}.npy")
    if path.exists():
        return path
    words: dict[str, Any] = {}
    if parts:
        where = [folder / f"{name}-{n}-{parts}-disk{number}" for number in range(parts)]
        for each in where:
            each.mkdir()
        words = {"folders": [str(each) for each in where], "parts": parts, "stripe": 1}
    with outcore.create(path, (n // edge, n, edge), "f8", overwrite=True, **words) as array:
        for stripe in range(n // edge):
            some = slice(stripe, stripe + 1)
            array[some] = _values(some, slice(0, n), slice(0, edge), n)
    return path


def remove(path: Path) -> None:
    """Take away what `make` made."""
    for each in path.parent.glob(f"{path.stem}-disk*"):
        shutil.rmtree(each)
    path.unlink(missing_ok=True)


def counts(ranks: int) -> list[int]:
    """Numbers of ranks that do I/O."""
    return [1 << k for k in range(ranks.bit_length()) if 1 << k <= ranks]


def paths_of(figure: int, folder: Path, n: int, ranks: int, name: str = "dra") -> dict[str, Path]:
    """The file of each number of ranks that do I/O, by its name; made where it is missing."""
    found = {
        _plural(count): make(folder, n, 0 if figure == 5 else count, name)
        for count in counts(ranks)
    }
    return {
        **found,
        OWN: found[_plural(counts(ranks)[-1])],
        CHOSEN: found[_plural(counts(ranks)[-1])],
    }


def _plural(count: int) -> str:
    return f"{count} rank{'s' * (count > 1)}"


# --------------------------------------------------------------------------------------- a rank


class Section:
    """A rank's columns of the section, as parts of the array of three axes."""

    def __init__(self, n: int, fit: str, rank: int, size: int) -> None:
        edge, m = stripe_rows(n), n // 2
        mine = slice(rank * m // size, (rank + 1) * m // size)
        self.n, self.nbytes = n, 8 * m * m
        self.local = np.empty((mine.stop - mine.start, m))  # columns follow each other
        low = edge // 2 if fit == "nonaligned" else 0
        self.keys: list[tuple[slice, slice, slice]] = []
        self.seen: list[np.ndarray] = []
        at = 0
        while at < m:
            stripe, first = divmod(low + at, edge)
            # Whole stripes are one section; a part of one is another.
            whole = (m - at) // edge if first == 0 else 0
            rows = whole * edge or min(edge - first, m - at)
            inside = slice(0, edge) if whole else slice(first, first + rows)
            stripes = max(whole, 1)
            self.keys.append((slice(stripe, stripe + stripes), mine, inside))
            view = self.local[:, at : at + rows].reshape(len(self.local), stripes, rows // stripes)
            self.seen.append(view.transpose(1, 0, 2))
            at += rows

    def fill(self, more: float) -> None:
        """Elements of the section, and something more."""
        for key, seen in zip(self.keys, self.seen, strict=True):
            seen[...] = _values(*key, self.n) + more

    def is_right(self) -> bool:
        """Whether the elements were read."""
        return all(
            np.array_equal(_values(*key, self.n), seen)
            for key, seen in zip(self.keys, self.seen, strict=True)
        )

    def is_written(self, path: Path) -> bool:
        """Whether the elements are on disk."""
        import outcore

        with outcore.open(path) as array:
            return all(
                np.array_equal(array[key], seen)
                for key, seen in zip(self.keys, self.seen, strict=True)
            )


def _files(path: Path) -> list[Path]:
    parts = [file for each in path.parent.glob(f"{path.stem}-disk*") for file in each.iterdir()]
    return parts or [path]


def rank(words: dict[str, Any]) -> None:
    """One rank: each fit and buffer, all numbers of ranks that do I/O by turns."""
    import outcore
    from mpi_ranks import Ranks

    ranks = Ranks(words)
    comm, write = ranks.node_barrier, words["op"] == "write"
    paths = {name: Path(path) for name, path in words["paths"].items()}
    turn = 0
    for fit in FITS:
        for buffer in words["buffers"]:
            of = Section(words["n"], fit, ranks.comm.rank, ranks.comm.size)

            def spoil(of: Section = of) -> None:
                nonlocal turn
                turn += 1
                if write:
                    of.fill(turn / 16)
                else:
                    of.local.fill(-1)

            def opened(name: str, buffer: int = buffer) -> tuple[Any, Any]:
                hints: dict[str, Any] = {"memory": _SLOTS * (buffer + _PAGE)}
                if name not in (OWN, CHOSEN):
                    hints["io_ranks"] = int(name.split()[0])
                mode: Any = "r+" if write else "r"
                d = outcore.mpi.disk_array(paths[name], mode=mode, comm=comm, hints=hints)
                return d, {OWN: "direct", CHOSEN: "auto"}.get(name, "two-phase")

            def candidate(name: str, of: Section = of, opened: Any = opened) -> Any:
                d, method = opened(name)
                requests = [(d.array, key, s) for key, s in zip(of.keys, of.seen, strict=True)]

                def call() -> None:
                    if write:
                        outcore.mpi.write_all(requests, comm=comm, method=method)
                        d.flush()
                    else:
                        outcore.mpi.read_all(requests, comm=comm, method=method)

                return call, d.close

            def check(name: str, of: Section = of) -> bool:
                return of.is_written(paths[name]) if write else of.is_right()

            found = ranks.measure(
                {name: (lambda name=name, make=candidate: make(name)) for name in paths},
                paths=lambda name: _files(paths[name]),
                spoil=spoil,
                check=check,
                writes=write,
            )
            last = [name for name in paths if name not in (OWN, CHOSEN)][-1]
            d, method = opened(last)
            with d:
                keys = [(d.array, key) for key in of.keys]
                report = outcore.mpi.explain_all(keys, comm=comm, method=method)
            case = f"{words['op']}, {fit}, buffer of {buffer / 1e6:g} MB"
            ranks.say(case, of.nbytes, found, slot_bytes=report.slot_bytes)


if __name__ == "__main__":
    from mpi_ranks import main

    main(rank)
