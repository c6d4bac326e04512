"""
Question: how fast do sections move between arrays of ranks and an array on disk, and does it cost the
ranks time?

The synthetic program of Nieplocha and Foster (*Disk Resident Arrays*, section 5.1): a section of n/2 x
n/2 doubles of an array of n x n (``--size 1GiB``: 10000 x 10000, the paper's) and an array in memory
divided over the ranks by rows or by columns; the section begins at a corner of the layout (aligned) or
anywhere (non-aligned), transposed or not. Writes with fsync. Expected: what a rank wants in long rows is
one copy out of the page cache, as for a memmap; columns gain from owners that read rows, and from
chunks.

Held fair: all candidates of a row in random order in the same ranks, results compared with the formula;
peers move what each rank wants on its own (memmap, pread and pwrite of each run) or by MPI-IO, and
transpose in memory. "outcore" is a disk resident array in the peers' own file of plain order; "chunks"
is one whose layout follows from ``typical_sections=``, in Zarr.

The row of asynchrony: a matrix product for about as long as the section takes to read past the page
cache; the product alone, the read alone, and the product while the read is on its way.

Checkpoints of arrays that are divided over the ranks, and restores: `cases.checkpoints`.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))

SIDES = {"quick": 2000, "256MiB": 5792, "1GiB": 10000, "4GiB": 20000}
OFFSETS = {"aligned": (0, 0), "non-aligned": (1237, 721)}
MPI = "MPI-IO coll"
BOTH = "asynchrony"


def cases() -> list[str]:
    """All rows of the table."""
    ways = ("rows", "columns", "rows transposed", "columns transposed")
    return [f"{fit}, {way}" for fit in OFFSETS for way in ways]


def formula(rows: Any, columns: Any, n: int) -> Any:
    """Elements of the array."""
    return np.add.outer(np.asarray(rows) * float(n), np.asarray(columns))


def make(path: Path, n: int) -> None:
    """A file of plain order with the formula's elements."""
    if path.exists():
        return
    made = np.lib.format.open_memmap(path, "w+", "f8", (n, n))
    for low in range(0, n, 500):
        made[low : low + 500] = formula(np.arange(low, min(low + 500, n)), np.arange(n), n)
    made.flush()
    del made


def run(options: Any) -> None:
    """Print a table for each operation and state of the cache."""
    from cases import checkpoints
    from mpi_ranks import best, launch, libraries, show

    every = [*cases(), BOTH, *checkpoints.CASES]
    wanted = [c for c in every if not options.only or any(o in c for o in options.only)]
    kept = [case for case in wanted if case in checkpoints.CASES]
    wanted = [case for case in wanted if case not in kept]
    if "read" not in options.op:
        kept = [case for case in kept if not case.startswith("restore")]
    if "sync" not in options.op:
        kept = [case for case in kept if case.startswith("restore")]
    if kept:
        checkpoints.run(options, kept)
    if not wanted:
        return
    folder, n = Path(options.folder), SIDES[options.size]
    path = folder / f"disk-{n}.npy"
    make(path, n)
    operations = [o for o in options.op if o != "write"]
    plain = [case for case in wanted if case != BOTH]
    for ranks in options.ranks:
        runs = [("read", cache, plain) for cache in options.cache if "read" in operations]
        runs += [("sync", "warm", plain)] if "sync" in operations else []
        runs += [("read", "cold", [BOTH])] if BOTH in wanted else []
        for operation, cache, some in runs:
            words = {
                "cache": cache,
                "repeat": options.repeat,
                "op": operation,
                "cases": some,
                "n": n,
                "files": [str(path)],
                "without": options.without,
            }
            rows = []
            for library in libraries(options.library):
                rows += launch(__file__, f"disk-arrays {options.size}", library, ranks, words) or []
            if not rows:
                continue
            print(f"\n## disk arrays, {ranks} ranks, {operation}, {cache}, n = {n}, ms\n")
            if some == [BOTH]:
                against = {"/ larger": lambda row: max(row.median("read"), row.median("product"))}
                print(show(rows, ["both"], against))
            else:
                ours = ("outcore", "chunks")
                against = {
                    "/ memmap, pread": lambda row: best(row, ["memmap", "pread"]),
                    "/ best peer": lambda row, ours=ours: best(row, but=ours),
                }
                print(show(rows, ["outcore", "chunks"], against))
            sys.stdout.flush()


class Section:
    """A rank's part of a case, and everybody who can move it."""

    def __init__(self, ranks: Any, case: str, words: dict[str, Any]) -> None:
        import outcore

        self.ranks, self.op, self.n = ranks, words["op"], words["n"]
        self.base = Path(words["files"][0])
        fit, way = case.split(", ")
        self.turned = "transposed" in way
        self.m = self.n // 2
        self.offset = tuple(min(o, self.n - self.m) for o in OFFSETS[fit])
        forms = ["block", "*"] if "rows" in way else ["*", "block"]
        form = outcore.mpi.Distribution((self.m, self.m), forms, ranks.comm.size)
        self.array = outcore.mpi.DistArray.empty(form, "f8", transport=ranks.node_barrier)
        (mine,) = self.array.global_slices
        low, high = self.offset
        self.section = np.s_[low : low + self.m, high : high + self.m]
        there = mine[::-1] if self.turned else mine
        #: What this rank moves of the array on disk.
        self.key = tuple(
            slice(o + s.start, o + s.stop) for o, s in zip(self.offset, there, strict=True)
        )
        right = formula(*(np.arange(k.start, k.stop) for k in self.key), self.n)
        self.right = right.T.copy() if self.turned else right
        self.header = np.load(self.base, mmap_mode="r").offset

    def seen(self) -> np.ndarray:
        """The memory of this rank with the axes of the disk."""
        return self.array.local.T if self.turned else self.array.local

    def path(self, name: str) -> Path:
        """The file that a candidate uses."""
        if name == "chunks":
            return self.base.with_suffix(".zarr")
        if self.op == "read":
            return self.base
        return self.base.with_name(f"{name.replace(' ', '-')}-{self.base.name}")

    def spoil(self) -> None:
        """The result of the run before must not count."""
        if self.op == "read":
            self.array.local.fill(-1)
        else:
            self.array.local[...] = self.right

    def check(self, name: str) -> bool:
        """Whether this rank's part is right."""
        if self.op == "read":
            return bool(np.array_equal(self.right, self.array.local))
        import outcore

        with outcore.open(self.path(name)) as written:
            return bool(
                np.array_equal(
                    self.right, written[self.key].T if self.turned else written[self.key]
                )
            )

    def prepare(self, name: str) -> None:
        """Make the file of a candidate, if it is not there."""
        import outcore

        path = self.path(name)
        if name == "chunks":
            if path.exists():
                return
            typical = (self.m, self.m)
            comm = self.ranks.node_barrier
            with outcore.mpi.disk_array(
                path, (self.n, self.n), "f8", typical_sections=typical, comm=comm
            ) as d:
                form = outcore.mpi.Distribution(d.shape, ["block", "*"], comm.size)
                ((rows, columns),) = form.sections(comm.rank)
                step = 500
                for low in range(rows.start, rows.stop, step):
                    high = min(low + step, rows.stop)
                    d.array[low:high] = formula(
                        np.arange(low, high), np.arange(columns.start, columns.stop), self.n
                    )
                d.flush()
        elif path != self.base:

            def copy() -> None:
                if not path.exists():
                    shutil.copyfile(self.base, path)

            self.ranks.by_one(copy)

    def ours(self, name: str) -> Any:
        """A disk resident array in the peers' file, or in chunks."""
        import outcore

        d = outcore.mpi.disk_array(
            self.path(name), mode="r" if self.op == "read" else "r+", comm=self.ranks.node_barrier
        )

        def call() -> None:
            if self.op == "read":
                d.read_section(self.section, self.array, transpose=self.turned)
            else:
                d.write_section(self.section, self.array, transpose=self.turned)
                d.flush()

        return call, d.close

    def memmap(self) -> Any:
        mapped = np.load(self.path("memmap"), mmap_mode="r" if self.op == "read" else "r+")

        def call() -> None:
            if self.op == "read":
                np.copyto(self.seen(), mapped[self.key])
            else:
                mapped[self.key] = self.seen()
                mapped.flush()

        return call, lambda: None

    def pread(self) -> Any:
        from peers import pread_peer

        peer = pread_peer(self.path("pread"))
        return self._through(peer.read if self.op == "read" else peer.write, peer.sync, peer.close)

    def mpiio(self) -> Any:
        from peers.mpi import MpiFile

        file = MpiFile(
            self.ranks,
            self.path(MPI),
            self.key,
            (self.n, self.n),
            self.header,
            write=self.op != "read",
            item=self.ranks.mpi.DOUBLE,
        )
        if self.op == "read":
            return self._through(lambda key, memory: file.read(memory, True), None, file.close)
        return self._through(
            lambda key, memory: file.write(memory, True, True), lambda: None, file.close
        )

    def _through(self, move: Any, sync: Any, close: Any) -> Any:
        """Who moves memory of plain order, and transposes it."""

        def call() -> None:
            seen = self.seen()
            if self.op == "read":
                memory = seen if seen.flags.c_contiguous else np.empty(seen.shape)
                move(self.key, memory)
                if memory is not seen:
                    np.copyto(seen, memory)
                return
            move(self.key, np.ascontiguousarray(seen))
            sync()

        return call, close


def rank(words: dict[str, Any]) -> None:
    """One rank: each case, all candidates."""
    from mpi_ranks import Ranks

    ranks = Ranks(words)
    for case in words["cases"]:
        if case == BOTH:
            both(ranks, words)
            continue
        of = Section(ranks, case, words)
        makers: dict[str, Any] = {
            "outcore": lambda of=of: of.ours("outcore"),
            "chunks": lambda of=of: of.ours("chunks"),
            "memmap": of.memmap,
            "pread": of.pread,
            MPI: of.mpiio,
        }
        makers = {name: m for name, m in makers.items() if name not in words["without"]}
        for name in makers:
            of.prepare(name)

        def files(name: str, of: Section = of) -> list[Path]:
            path = of.path(name)
            return [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]

        found = ranks.measure(
            makers, paths=files, spoil=of.spoil, check=of.check, writes=words["op"] != "read"
        )
        ranks.say(case, 8 * of.m * of.m, found)
    ranks.by_one(lambda: _remove(Path(words["files"][0])))


def _remove(base: Path) -> None:
    """Files of writes are large."""
    for path in base.parent.glob(f"*-{base.name}"):
        path.unlink()


def both(ranks: Any, words: dict[str, Any]) -> None:
    """A product while a section is read past the page cache, beside each alone."""
    import outcore

    of = Section(ranks, "aligned, rows", words)
    comm = ranks.node_barrier
    d = outcore.mpi.disk_array(of.base, mode="r", comm=comm, hints={"cache": "bypass"})
    matrix = np.random.default_rng(0).random((400, 400))
    seconds: dict[str, list[float]] = {"product": [], "read": [], "both": []}

    def product(times: int) -> None:
        for _ in range(times):
            np.dot(matrix, matrix)

    def timed(work: Any) -> float:
        of.spoil()
        ranks.forget([of.base])
        comm.barrier()
        start = time.monotonic()
        work()
        ends = comm.allgather(np.array([int((time.monotonic() - start) * 1e9)], np.int64))
        return float(ends.max()) / 1e9

    def read() -> None:
        d.read_section(of.section, of.array)

    # Medians, for what else goes on on the machine.
    one = float(np.median([timed(lambda: product(50)) / 50 for _ in range(3)]))
    alone = float(np.median([timed(read) for _ in range(3)]))
    times = max(int(alone / one), 1)

    def together() -> None:
        request = d.iread_section(of.section, of.array)
        product(times)
        request.wait()

    right = True
    for _ in range(max(words["repeat"], 3)):
        seconds["product"].append(timed(lambda: product(times)))
        seconds["read"].append(timed(read))
        seconds["both"].append(timed(together))
        right = right and ranks.all_true(of.check("outcore"))
    d.close()
    wrong = [] if right else ["both"]
    ranks.say(BOTH, 8 * of.m * of.m, {"seconds": seconds, "wrong": wrong, "io": {}})


if __name__ == "__main__":
    import mpi_ranks

    mpi_ranks.main(rank)
