"""
A permuted array, read and written by all ranks: the program of a rank.

Every rank has as many consecutive places of a random permutation of the whole array: a partitioned
mesh that is read from, or written to, its global order (No, Choudhary, section 4: uniform, random, no
locality). All candidates of a row run by turns in the same ranks. Writing, each has a file of its
own, and every run writes other values; all elements of the file are compared.

What is made once for an index list (outcore's schedule, the type of MPI-IO, the decomposition of PIO) is
made before the time and told apart (``made``). The column "outcore" is `read_all` and `write_all` of the
bare index list, so all that they do with it is in their time.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from irregular.files import Stored
from irregular.parts import Parts
from irregular.patterns import SLAB, slabs, values

COLLECTIVE, INDEPENDENT = "MPI-IO coll", "MPI-IO indep"
PATIENCE, LONG = 2.0, 4.0
"""Seconds after which one timed run is enough, and after which that may be the first."""


class Permuted:
    """A rank's places of the permuted array, and everybody who can move them."""

    def __init__(self, ranks: Any, words: dict[str, Any]) -> None:
        self.ranks, self._op = ranks, words["op"]
        self._base, self._n = Path(words["files"][0]), words["n"]
        rank, size = ranks.comm.rank, ranks.comm.size
        self._own = slice(rank * self._n // size, (rank + 1) * self._n // size)
        self._index = np.array(np.load(words["files"][1], mmap_mode="r")[self._own])
        self._right = values(self._index)
        self.out = np.empty_like(self._right)
        self._turn, self._value = 0, self._right
        self._header = np.load(self._base, mmap_mode="r").offset
        self._last: dict[str, int] = {}
        self._schedules: dict[str, Any] = {}
        self._type: Any = None
        self._decomposition: Any = None
        self.made: dict[str, float] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all ranks."""
        return 8 * self._n

    def path(self, name: str) -> Path:
        """The file that a candidate uses."""
        base = self._base.with_suffix(".nc") if name == "PIO" else self._base
        if self._op == "read":
            return base
        slug = "".join(c if c.isalnum() else "-" for c in name)
        return base.with_name(f"written-{slug}-{base.name}")

    def spoil(self) -> None:
        """See to it that the result of the run before does not count."""
        if self._op == "read":
            self.out.fill(-1)
            return
        self._turn = self._turn % 15 + 1
        self._value = self._right + self._turn / 16

    def begin(self, names: list[str]) -> None:
        """Make the files that are missing; those to be written have their full size before."""
        if "PIO" in names:
            self._create_netcdf()
        if self._op == "read":
            return
        for name in names:
            source = self._base.with_suffix(".nc") if name == "PIO" else self._base
            self.ranks.by_one(lambda name=name, source=source: _copy(source, self.path(name)))

    def _create_netcdf(self) -> None:
        from peers import pio

        path = self._base.with_suffix(".nc")
        part = path.with_suffix(".part")

        def make() -> None:
            if not path.exists():
                pio.create(part, self._n, slabs(self._n))
                part.replace(path)

        self.ranks.by_one(make)

    def check(self, name: str) -> bool:
        """Whether this rank's part of a candidate's result is right."""
        if self._op == "read":
            return np.array_equal(self.out, self._right)
        self.ranks.node_barrier.barrier()
        return self.holds(name)

    def holds(self, name: str) -> bool:
        """Whether this rank's share of a candidate's file has what the last run wrote."""
        path, more = self.path(name), self._last[name] / 16
        kind = ">f8" if path.suffix == ".nc" else "<f8"
        have = np.memmap(path, kind, "r", path.stat().st_size - 8 * self._n, (self._n,))
        for at in range(self._own.start, self._own.stop, SLAB):
            some = np.arange(at, min(at + SLAB, self._own.stop))
            if not np.array_equal(have[some[0] : some[-1] + 1], values(some) + more):
                return False
        return True

    # ------------------------------------------------------------------------------ candidates

    def ours(self, name: str) -> Any:
        """`read_all` and `write_all`."""
        array = self._opened(name)
        if self._op == "read":
            return (lambda: array.read_all(self._index, out=self.out)), array.close
        self._last[name] = self._turn
        return (lambda: array.write_all(self._index, self._value)), array.close

    def scheduled(self, name: str, words: dict[str, Any], method: str) -> Any:
        """A schedule that is made once, for all runs; `words` are those of `schedule_all`."""
        import outcore

        if name not in self._schedules:
            # Of the file that nobody writes: one that is open twice may not be locked by its writer.
            base: Any = outcore.open(self._base, comm=self.ranks.node_barrier)
            start = time.perf_counter()
            self._schedules[name] = base.schedule_all(self._index, **words)
            self.made[name] = time.perf_counter() - start
        array = self._opened(name)
        schedule = self._schedules[name]
        if self._op == "read":
            return (lambda: schedule.gather_all(self.out, of=array, method=method)), array.close
        self._last[name] = self._turn
        put = lambda: schedule.scatter_all(self._value, of=array, method=method)  # noqa: E731
        return put, array.close

    def parts(self, name: str, words: dict[str, Any], method: str, repeat: int) -> list[float]:
        """Median seconds of files, messages, the rest and all of a schedule: the mean of the ranks."""
        call, close = self.scheduled(name, words, method)
        parts, found = Parts(self._schedules[name]), []
        for _ in range(repeat):
            self.spoil()
            self.ranks.node_barrier.barrier()
            found.append(parts.seconds(call))
        close()
        each = (np.median(found, axis=0) * 1e9).astype(np.int64)
        mean = self.ranks.node_barrier.allgather(each).mean(axis=0) / 1e9
        return [float(seconds) for seconds in mean]

    def _opened(self, name: str) -> Any:
        import outcore

        return outcore.open(self.path(name), self._mode(), comm=self.ranks.node_barrier)

    def _mode(self) -> Any:
        return "r" if self._op == "read" else "r+"

    def memmap(self, name: str) -> Any:
        mapped = [np.load(self.path(name), mmap_mode=self._mode())]
        if self._op == "read":
            take = lambda: np.take(mapped[0], self._index, out=self.out, mode="clip")  # noqa: E731
            return take, mapped.clear
        self._last[name] = self._turn
        return (lambda: mapped[0].__setitem__(self._index, self._value)), mapped.clear

    def mpiio(self, name: str, collective: bool) -> Any:
        from peers.mpi import IndexedType, MpiPoints

        if self._type is None:
            self._type = IndexedType(self.ranks.mpi, self._index)
            self.made["MPI-IO"] = self._type.made
        write = self._op != "read"
        file = MpiPoints(self.ranks, self.path(name), self._type, self._header, write)
        if not write:
            return (lambda: file.read(self.out, collective)), file.close
        self._last[name] = self._turn
        return (lambda: file.write(self._value, collective)), file.close

    def pio(self, name: str, library: Any) -> Any:
        from peers.pio import Decomposition, PioPoints

        if self._decomposition is None:
            self._decomposition = Decomposition(library, self._n, self._index)
            self.made["PIO"] = self._decomposition.made
        write = self._op != "read"
        file = PioPoints(library, self.path(name), self._decomposition, write)
        if not write:
            return (lambda: file.read(self.out)), file.close
        self._last[name] = self._turn
        return (lambda: file.write(self._value)), file.close


def _copy(source: Path, target: Path) -> None:
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        shutil.copyfile(source, target)


def rank(words: dict[str, Any]) -> None:
    """
    One rank: one row, all candidates.

    ``schedules`` are names and words of schedules of ours; ``method`` is that of all of them.
    ``once``: also what needs no schedule. ``parts``: also where the seconds of schedules go.
    """
    from mpi_ranks import Ranks
    from peers.pio import Library

    ranks = Ranks(words)
    of = Permuted(ranks, words)
    makers: dict[str, Any] = {"outcore": lambda: of.ours("outcore")} if words["once"] else {}
    for name, some in words["schedules"].items():
        makers[name] = lambda name=name, some=some: of.scheduled(name, some, words["method"])
    if words["others"]:
        makers["memmap"] = lambda: of.memmap("memmap")
        makers[INDEPENDENT] = lambda: of.mpiio(INDEPENDENT, False)
        makers[COLLECTIVE] = lambda: of.mpiio(COLLECTIVE, True)
        if words["pio"]:
            library = Library(Path(words["pio"]), ranks.mpi)
            makers["PIO"] = lambda: of.pio("PIO", library)
    makers = {name: make for name, make in makers.items() if name not in words["without"]}
    of.begin(list(makers))
    found = ranks.measure(
        makers,
        paths=lambda name: [of.path(name)],
        spoil=of.spoil,
        check=of.check,
        writes=words["op"] != "read",
    )
    if words["op"] != "read":  # what was timed, too
        wrong = {name for name in makers if not ranks.all_true(of.holds(name))}
        found["wrong"] = sorted({*found["wrong"], *wrong})
    each = np.array([int(s * 1e9) for s in of.made.values()], dtype=np.int64)
    most = ranks.node_barrier.allgather(each).max(axis=0)
    made = {name: float(ns) / 1e9 for name, ns in zip(of.made, most, strict=True)}
    case = f"{words['op']} {words['n'] / 2**20:g} Mi permuted, {ranks.comm.size} ranks"
    extra: dict[str, Any] = {"made": made}
    if words.get("parts"):
        extra["parts"] = {
            name: of.parts(name, some, words["method"], words["repeat"])
            for name, some in words["schedules"].items()
        }
    ranks.say(case, of.nbytes, found, **extra)


def files(folder: Path, n: int) -> list[str]:
    """The array of all ranks, and the permutation, of which each has a part."""
    stored = Stored("npy", folder / f"irregular-permuted-{n}.npy", n).make()
    order = folder / f"irregular-permutation-{n}.npy"
    if not order.exists():
        part = order.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, np.random.default_rng(20).permutation(n))
        part.replace(order)
    return [str(stored.path), str(order)]


if __name__ == "__main__":
    from mpi_ranks import main

    main(rank)
