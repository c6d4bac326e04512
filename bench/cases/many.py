"""
Question: how fast do ranks read parts of many files: in one collective call, or in one for each file?

Expected: warm, one call synchronises once, not once a file, which counts where files are small, and
columns are copied without a detour; cold and on a slow shared device, one call has all disks' requests
in flight at once, and reads each file in long pieces by one rank. Held fair: the same files, opened
before (but for the rows that say otherwise), the same ranks, all candidates of a row in random order,
results compared with the files' formula. MPI-IO is called once a file, collectively, with its section
as a datatype.
Files: 4 to 32 of one size or of skewed sizes (Zipf: the k-th has 1/k of the largest), each rank a block
of rows, or of columns, of every file, as in Tables 4 and 5 of Memik, Kandemir, Choudhary; 200 of 64 KiB.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))

Key = tuple[slice, ...]

COUNTS = (4, 8, 16, 32)
SMALL = 200
# Rows and columns of each of 32 equal files.
_SHAPES = {
    "quick": (512, 1024),
    "256MiB": (1024, 2048),
    "1GiB": (2048, 4096),
    "4GiB": (4096, 8192),
}


def shapes_of(case: str, size: str) -> list[tuple[int, int]]:
    """Shapes of the files of a case, such as ``8 skewed, columns``."""
    number = int(case.split()[0])
    rows, columns = _SHAPES[size]
    if "small" in case:
        return [(128, 128)] * number
    if "skewed" in case:
        # Together as large as as many equal files.
        parts = 1 / np.arange(1, number + 1)
        found = np.maximum((parts / parts.sum() * rows * number).astype(int) // 16 * 16, 16)
        return [(int(n), columns) for n in found]
    return [(rows, columns)] * number


def cases() -> list[str]:
    """All rows of the table."""
    names = [f"{n} {kind}, {way}" for kind in ("equal", "skewed") for n in COUNTS for way in WAYS]
    return [*names, *(f"{SMALL} small, {way}{o}" for way in WAYS for o in ("", ", opened too"))]


WAYS = ("rows", "columns")


def part(case: str, shape: tuple[int, int], rank: int, ranks: int) -> Key:
    """What a rank wants of one file."""
    axis = int("columns" in case)
    n = shape[axis]
    mine = slice(rank * n // ranks, (rank + 1) * n // ranks)
    return (slice(None), mine) if axis else (mine, slice(None))


def paths_of(case: str, size: str, folder: Path) -> list[Path]:
    """Files of a case, made if they are not there."""
    from cases.sections import make_npy

    kind = case.split(",")[0].split()[1]
    some = []
    for number, shape in enumerate(shapes_of(case, size)):
        home = folder / f"many-{kind}-{size}"
        home.mkdir(exist_ok=True)
        some.append(home / f"{number:03}-{shape[0]}x{shape[1]}.npy")
        make_npy(some[-1], shape)
    return some


def run(options: Any) -> None:
    """Print a table for each number of ranks and state of the cache."""
    from mpi_ranks import best, launch, libraries, show

    folder, size = Path(options.folder), options.size
    wanted = [c for c in cases() if not options.only or any(o in c for o in options.only)]
    for ranks in options.ranks:
        for cache in options.cache:
            files = {case: [str(p) for p in paths_of(case, size, folder)] for case in wanted}
            words = {
                "cache": cache,
                "repeat": options.repeat,
                "cases": files,
                "ours": options.methods,
                "without": options.without,
            }
            words["files"] = files[wanted[0]]
            rows = []
            for library in libraries(options.library):
                found = launch(__file__, f"many {size}", library, ranks, words)
                if found is None:
                    break
                rows += found
            if not rows:
                continue
            names = [name for name in rows[0].seconds if name.startswith("outcore")]
            against = {
                "/ best peer": lambda row, names=names: best(row, but=tuple(names)),
                "/ each file": lambda row: row.median(EACH),
                "/ MPI-IO": lambda row: row.median(MPI),
            }
            if cache == "slow":
                for row in rows:
                    row.seconds["least"] = [row.extra["least"]]
                against["/ least"] = lambda row: row.extra["least"]
            print(f"\n## many files, {ranks} ranks, {cache}, {size}, ms\n")
            print(show(rows, names, against))
            for row in rows:
                cells = [f"{n} {of[0]:.0f}, {of[1] / 1e6:.1f}" for n, of in row.extra["io"].items()]
                if cache != "warm" and cells:
                    print(f"requests, MB of the device: {row.case}: {'; '.join(cells)}")
            sys.stdout.flush()


EACH, MPI = "outcore, each file", "MPI-IO coll, each file"


class Files:
    """A rank's parts of the files of a case, and everybody who can read them."""

    def __init__(self, ranks: Any, case: str, paths: list[Path]) -> None:
        from cases.collective import formula

        self.ranks, self.paths = ranks, paths
        heads = [np.load(path, mmap_mode="r") for path in paths]
        self.shapes, self.base = [head.shape for head in heads], heads[0].offset
        rank, size = ranks.comm.rank, ranks.comm.size
        self.all = [[part(case, shape, r, size) for r in range(size)] for shape in self.shapes]
        self.keys = [keys[rank] for keys in self.all]
        self.right = [formula(key, s) for key, s in zip(self.keys, self.shapes, strict=True)]
        self.out = [np.empty_like(values) for values in self.right]
        self.opening = "opened too" in case

    def _when(self, opened: Any, read: Any, close: Any) -> Any:
        """Open before the time, or in it; closed after it in any case."""
        if not self.opening:
            files = opened()
            return (lambda: read(files)), (lambda: (close(files), files.clear()))
        kept: list[Any] = []

        def both() -> None:
            close(kept)  # of the run before
            kept[:] = opened()
            read(kept)

        return both, (lambda: (close(kept), kept.clear()))

    def ours(self, method: str, together: bool) -> Any:
        import outcore

        def read(arrays: list[Any]) -> None:
            three = zip(arrays, self.keys, self.out, strict=True)
            if together:
                outcore.mpi.read_all(list(three), method=method)
                return
            for array, key, out in three:
                array.read_all(key, out=out, method=method)

        def opened() -> list[Any]:
            group = self.ranks.node_barrier
            if together:
                return outcore.open_many(self.paths, comm=group)
            return [outcore.open(path, comm=group) for path in self.paths]

        return self._when(
            opened,
            read,
            lambda arrays: [array.close() for array in arrays],
        )

    def memmap(self) -> Any:
        def read(mapped: list[Any]) -> None:
            for one, key, out in zip(mapped, self.keys, self.out, strict=True):
                np.copyto(out, one[key])

        return self._when(
            lambda: [np.load(path, mmap_mode="r") for path in self.paths], read, lambda mapped: None
        )

    def pread(self) -> Any:
        from peers import pread_peer

        def read(peers: list[Any]) -> None:
            for peer, key, out in zip(peers, self.keys, self.out, strict=True):
                peer.read(key, out)

        return self._when(
            lambda: [pread_peer(path) for path in self.paths],
            read,
            lambda peers: [peer.close() for peer in peers],
        )

    def mpiio(self) -> Any:
        from peers.mpi import MpiFile

        def opened() -> list[Any]:
            three = zip(self.paths, self.keys, self.shapes, strict=True)
            return [MpiFile(self.ranks, path, key, shape, self.base) for path, key, shape in three]

        def read(files: list[Any]) -> None:
            for file, out in zip(files, self.out, strict=True):
                file.read(out, True)

        return self._when(opened, read, lambda files: [file.close() for file in files])

    def bounds(self, disk: Any, limits: Any) -> dict[str, Any]:
        """What the disk needs at least, by the model and under limits; files lie one after another."""
        from device import seconds, union
        from peers import file_runs
        from throttle import least

        runs, at = [], 0
        for shape, keys in zip(self.shapes, self.all, strict=True):
            for key in keys:
                count, stride, first, length = file_runs(shape, 4, key, self.base)
                runs.append((count, stride, first + at, length))
            at += (shape[0] * shape[1] * 4 // (1 << 20) + 2) << 20
        wanted = union(disk, runs)
        return {"model": seconds(disk, *wanted), "least": least(limits, disk, runs)[0]}


def rank(words: dict[str, Any]) -> None:
    """One rank: each case, all candidates."""
    from device import measured
    from mpi_ranks import Ranks
    from throttle import Limits

    ranks = Ranks(words)
    disk = measured(Path(words["files"][0]).parent)
    for case, names in words["cases"].items():
        of = Files(ranks, case, [Path(name) for name in names])
        makers: dict[str, Any] = {}
        for method in words["ours"]:
            name = "outcore" if method == "auto" else f"outcore {method}"
            makers[name] = lambda of=of, method=method: of.ours(method, True)
        makers[EACH] = lambda of=of: of.ours("auto", False)
        makers[MPI] = of.mpiio
        makers["memmap"] = of.memmap
        makers["pread"] = of.pread

        makers = {n: m for n, m in makers.items() if n.split(",")[0] not in words["without"]}

        def spoil(of: Files = of) -> None:
            for out in of.out:
                out.fill(-1)

        def check(name: str, of: Files = of) -> bool:
            return all(np.array_equal(a, b) for a, b in zip(of.out, of.right, strict=True))

        found = ranks.measure(makers, paths=lambda name, of=of: of.paths, spoil=spoil, check=check)
        extra = {} if ranks.cache == "warm" else of.bounds(disk, Limits())
        ranks.say(case, ranks.total(sum(out.nbytes for out in of.out)), found, **extra)


if __name__ == "__main__":
    from mpi_ranks import main

    main(rank)
