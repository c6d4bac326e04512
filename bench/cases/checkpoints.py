"""
Question: what does it cost to keep arrays and to go on from them; how long does that hold a program?

Rows of ``./x bench disk-arrays`` whose names have "checkpoint" or "restore". Four arrays of doubles that
are divided over the ranks, by rows or in blocks of a grid, together ``--size`` (quick: 64 MiB):
`outcore.mpi.checkpoint` into a file for each, which stands when it is durable, and the last one goes.
Expected: the disk decides, so a checkpoint costs what one plain stream of the same bytes with fsync does
(target: at most 1.1 times), in blocks too, because owners write long runs.

Held fair: all candidates write the same memory into new files; "one stream" is one write after the
other, rank after rank, into one file, and one fsync; "streams" is each rank at once into a file of its
own, with an fsync. What they wrote before is removed outside of their time. Both keep the parts as they
lie in memory, which no other number of ranks can go on from. Reading is the mirror. All elements are
compared.

The row of `icheckpoint`: how long the call holds the program ("held"), beside a copy of the arrays in
memory, and how long it takes until the checkpoint stands; meanwhile the program changes the arrays.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Row, files_of

__all__ = ["CASES", "SIZES", "State", "rank", "run"]

FORMS = {"rows": ["block", "*"], "blocks": ["block", "block"]}
MEANWHILE = "checkpoint meanwhile"
CASES = (*(f"{what}, {form}" for what in ("checkpoint", "restore") for form in FORMS), MEANWHILE)
SIZES = {"quick": 64 << 20, "256MiB": 256 << 20, "1GiB": 1 << 30, "4GiB": 4 << 30}
STREAM, STREAMS = "one stream", "streams"
_ARRAYS = 4
# One write or read of a plain stream; rows that are compared at once.
_PIECE, _SLAB = 8 << 20, 256
# Seconds after which one run is enough: one of 4 GiB takes some.
_PATIENCE = 60.0


class State:
    """
    What a program keeps: arrays that are divided over the ranks; and everybody who moves them.

    Parameters
    ----------
    ranks
        The ranks of `mpi_ranks.Ranks`.
    folder
        Where everything is.
    nbytes
        Of all arrays.
    form
        A key of `FORMS`.
    """

    def __init__(self, ranks: Any, folder: Path, nbytes: int, form: str) -> None:
        import outcore

        self.comm, self.form, self.folder = ranks.node_barrier, form, folder
        n = math.isqrt(nbytes // _ARRAYS // 8)
        self.nbytes = _ARRAYS * 8 * n * n
        size = self.comm.size
        down = max(d for d in range(1, math.isqrt(size) + 1) if size % d == 0)
        grid = (down, size // down) if form == "blocks" else size
        distribution = outcore.mpi.Distribution((n, n), FORMS[form], grid)
        self.arrays = {
            f"a{number}": outcore.mpi.DistArray.empty(distribution, "f8", transport=self.comm)
            for number in range(_ARRAYS)
        }
        (self.own,) = distribution.sections(self.comm.rank)
        self.turn = self._written = 0
        held = sum(array.local.nbytes for array in self.arrays.values())
        every = self.comm.allgather(np.array([held], np.int64))[:, 0]
        #: Bytes of this rank, and of those before it.
        self.held, self._before = held, int(every[: self.comm.rank].sum())

    # ------------------------------------------------------------------------------ elements

    def _right(self) -> Iterator[tuple[str, slice, np.ndarray]]:
        """Slabs of all arrays: the name, which rows of this rank, and what is in them."""
        rows, columns = self.own
        for number, name in enumerate(self.arrays):
            for low in range(0, rows.stop - rows.start, _SLAB):
                inside = slice(low, min(low + _SLAB, rows.stop - rows.start))
                row = np.arange(rows.start + inside.start, rows.start + inside.stop)
                right = np.add.outer(row * 65536.0, np.arange(columns.start, columns.stop))
                yield name, inside, right + (number + self.turn / 64)

    def fill(self) -> None:
        """Other values than before."""
        self.turn += 1
        for name, inside, right in self._right():
            self.arrays[name].local[inside] = right

    def spoil(self) -> None:
        """What was there must not count."""
        for array in self.arrays.values():
            array.local.fill(-1)

    def is_right(self) -> bool:
        """Whether the arrays have what `fill` gave them last."""
        return all(
            np.array_equal(right, self.arrays[name].local[inside])
            for name, inside, right in self._right()
        )

    def is_kept(self, name: str) -> bool:
        """Whether this rank's part is on disk."""
        if name != "outcore":
            self.spoil()
            self.read_plain(name)
            return self.is_right()
        path = self.path("outcore")
        newest = path / f"arrays-{json.loads((path / 'checkpoint.json').read_text())['generation']}"
        rows, columns = self.own
        files = {name: np.load(newest / f"{name}.npy", mmap_mode="r") for name in self.arrays}
        return all(
            np.array_equal(right, files[which][rows.start + r.start : rows.start + r.stop, columns])
            for which, r, right in self._right()
        )

    # ----------------------------------------------------------------------------- on disk

    def path(self, name: str) -> Path:
        """The folder, or the file, of a candidate."""
        slug = f"{name.replace(' ', '-')}-{self.form}"
        if name == "outcore":
            return self.folder / slug
        return (
            self.folder
            / f"{slug}-{self._written}"
            / (str(self.comm.rank) if name == STREAMS else "all")
        )

    def files(self, name: str) -> list[Path]:
        """All files of a candidate, of all ranks."""
        path = self.path(name)
        return files_of([path if name == "outcore" else path.parent])

    def checkpoint(self) -> None:
        """Ours."""
        import outcore

        outcore.mpi.checkpoint(self.path("outcore"), {**self.arrays, "turn": self.turn})

    def restore(self) -> None:
        """Ours, into the memory that is there."""
        import outcore

        outcore.mpi.restore(self.path("outcore"), into=self.arrays, comm=self.comm)

    def clear(self, name: str) -> None:
        """Remove what a plain candidate wrote, and make room for the next. Collective."""
        self.comm.barrier()
        if self.comm.rank == 0:
            for old in self.folder.glob(f"{name.replace(' ', '-')}-{self.form}-*"):
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()
        self.comm.barrier()

    def write_plain(self, name: str) -> None:
        """By one stream, or by one of each rank. Into new files."""
        self._written += 1
        path = self.path(name)
        if self.comm.rank == 0:
            path.parent.mkdir()
        self.comm.barrier()
        for turn in range(self.comm.size):
            if name == STREAMS or turn == self.comm.rank:
                last = name == STREAMS or turn == self.comm.size - 1
                with path.open("ab", buffering=0) as file:
                    for piece in self._memory():
                        _all_of(piece, file.write)
                    if last:
                        os.fsync(file.fileno())
            if name == STREAMS:
                break
            self.comm.barrier()

    def read_plain(self, name: str) -> None:
        """The mirror of `write_plain`."""
        for turn in range(self.comm.size):
            if name == STREAMS or turn == self.comm.rank:
                with self.path(name).open("rb", buffering=0) as file:
                    file.seek(0 if name == STREAMS else self._before)
                    for piece in self._memory():
                        _all_of(piece, file.readinto)
            if name == STREAMS:
                break
            self.comm.barrier()

    def _memory(self) -> Iterator[memoryview]:
        for array in self.arrays.values():
            whole = memoryview(array.local).cast("B")
            for low in range(0, len(whole), _PIECE):
                yield whole[low : low + _PIECE]


def _all_of(piece: memoryview, move: Callable[[memoryview], int | None]) -> None:
    done = 0
    while done < len(piece):
        moved = move(piece[done:])
        if not moved:
            raise OSError("the file ended, or took nothing")
        done += moved


# ------------------------------------------------------------------------------------- a rank


def rank(words: dict[str, Any]) -> None:
    """One rank: each case, all candidates."""
    from mpi_ranks import Ranks

    ranks = Ranks(words)
    folder = Path(words["files"][0])
    for case in words["cases"]:
        if case == MEANWHILE:
            _meanwhile(ranks, folder, words)
            continue
        what, form = case.split(", ")
        of = State(ranks, folder, words["nbytes"], form)
        plain = [name for name in (STREAM, STREAMS) if name not in words["without"]]
        (_kept if what == "checkpoint" else _restored)(ranks, of, case, plain)


def _kept(ranks: Any, of: State, case: str, plain: list[str]) -> None:
    makers: dict[str, Any] = {"outcore": lambda: (of.checkpoint, lambda: None)}
    for name in plain:
        makers[name] = lambda name=name: (lambda: of.write_plain(name), lambda: None)

    def spoil() -> None:
        of.fill()
        for name in plain:
            of.clear(name)

    found = ranks.measure(
        makers, paths=lambda _name: [], spoil=spoil, check=of.is_kept, writes=True
    )
    ranks.say(case, of.nbytes, found)


def _restored(ranks: Any, of: State, case: str, plain: list[str]) -> None:
    of.fill()
    of.checkpoint()
    for name in plain:
        of.clear(name)
    written = {}
    for name in plain:
        of.write_plain(name)
        written[name] = of._written

    def at(name: str) -> None:
        of._written = written.get(name, of._written)

    def maker(name: str) -> Any:
        def make() -> Any:
            at(name)
            call = of.restore if name == "outcore" else lambda: of.read_plain(name)
            return call, lambda: None

        return make

    def paths(name: str) -> list[Path]:
        at(name)
        return of.files(name)

    found = ranks.measure(
        {name: maker(name) for name in ("outcore", *plain)},
        paths=paths,
        spoil=of.spoil,
        check=lambda _name: of.is_right(),
    )
    ranks.say(case, of.nbytes, found)


def _meanwhile(ranks: Any, folder: Path, words: dict[str, Any]) -> None:
    """A checkpoint that is waited for, and one while the program goes on; by turns."""
    import outcore

    of = State(ranks, folder, words["nbytes"], "rows")
    comm = of.comm
    seconds: dict[str, list[float]] = {
        "checkpoint": [],
        "copy": [],
        "held": [],
        "until it stands": [],
    }
    copies: list[np.ndarray] = []
    right = True

    def longest(begun: float) -> float:
        spent = int((time.monotonic() - begun) * 1e9)
        return float(comm.allgather(np.array([spent], np.int64)).max()) / 1e9

    def begin() -> float:
        comm.barrier()
        return time.monotonic()

    with outcore.memory(max(int(outcore.memory()), of.held + (256 << 20))):
        for turn in range(
            words["repeat"] + 1
        ):  # the first one makes the folder, and does not count
            of.fill()
            now = begin()
            of.checkpoint()
            alone = longest(now)
            now = begin()
            copies[:] = [array.local.copy() for array in of.arrays.values()]
            copied = longest(now)
            copies.clear()
            of.fill()
            now = begin()
            request = outcore.mpi.icheckpoint(of.path("outcore"), {**of.arrays, "turn": of.turn})
            held = longest(now)
            of.spoil()
            request.wait()
            whole = longest(now)
            right = right and ranks.all_true(of.is_kept("outcore"))
            if turn:
                for name, spent in zip(seconds, (alone, copied, held, whole), strict=True):
                    seconds[name].append(spent)
    wrong = [] if right else ["held", "until it stands"]
    ranks.say(MEANWHILE, of.nbytes, {"seconds": seconds, "wrong": wrong, "io": {}})


# --------------------------------------------------------------------------------- the tables


def run(options: Any, cases: list[str]) -> list[Row]:
    """Print a table for checkpoints, and one for each state of the cache for restores."""
    from mpi_ranks import launch, libraries

    folder = Path(options.folder) / "checkpoints"
    folder.mkdir(exist_ok=True)
    restored = [case for case in cases if case.startswith("restore")]
    # Nothing of a write is in the page cache before: it makes its files anew.
    of_cache = {"warm": [case for case in cases if case not in restored]}
    for cache in options.cache:
        of_cache[cache] = of_cache.get(cache, []) + restored
    every: list[Row] = []
    for ranks in options.ranks:
        for cache, some in of_cache.items():
            words = {
                **{"cache": cache, "repeat": options.repeat, "cases": some, "files": [str(folder)]},
                **{"nbytes": SIZES[options.size], "without": options.without},
                **{"patience": _PATIENCE},
            }
            rows: list[Row] = []
            for library in libraries(options.library) if some else []:
                rows += launch(__file__, f"disk-arrays {options.size}", library, ranks, words) or []
            every += rows
            _print(rows, f"{ranks} ranks, {cache}")
    return every


def _print(rows: list[Row], where: str) -> None:
    from mpi_ranks import best, show

    waited = [row for row in rows if row.case != MEANWHILE]
    if waited:
        print(f"\n## checkpoints, {where}, ms\n")
        against = {
            "/ one stream": lambda row: row.median(STREAM),
            "/ best": lambda row: best(row, but=("outcore",)),
        }
        print(show(waited, ["outcore"], against))
    meanwhile = [row for row in rows if row.case == MEANWHILE]
    if meanwhile:
        print(f"\n## checkpoints while the program goes on, {where}, ms\n")
        print(show(meanwhile, ["until it stands"], {"/ checkpoint": _waited}))
        for row in meanwhile:
            print(f"\nheld / copy: {row.median('held') / row.median('copy'):.2f}")
    sys.stdout.flush()


def _waited(row: Row) -> float:
    return row.median("checkpoint")


if __name__ == "__main__":
    from mpi_ranks import main

    main(rank)
