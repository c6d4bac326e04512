"""
Tables 9 and 10 of the extended two-phase paper on this machine: the accesses of the programs
(`outcore.model.simulate.programs`) as collectives of real ranks; run under mpiexec by `cases/papers.py`.

Each different access is timed for itself and counted as often as it comes, arithmetic is left out, as in
the paper. Files are cold, warm, or on the slow device.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))
    sys.path.insert(0, str(ROOT / "python"))

# ``runs``: each rank on its own, a request for each run, as the paper's direct method.
METHODS = ("runs", "direct", "two-phase", "auto")
TABLES = {9: "matmul", 10: "laplace"}


def accesses(table: int, n: int, ranks: int) -> list[Any]:
    """What the program of a table accesses."""
    from outcore.model.simulate import programs

    return list(
        {9: programs.list_product_accesses, 10: programs.list_laplace_accesses}[table](n, ranks)
    )


def make(folder: Path, n: int) -> Path:
    """The array: the paper's is column-major, so the first axis of the file is its second."""
    path = folder / f"program-{n}.npy"
    if not path.exists():
        np.save(path, np.arange(n * n, dtype="f4").reshape(n, n))
    return path


def rank(words: dict[str, Any]) -> None:
    """Time each access of a program; rank 0 prints a row for each."""
    import outcore
    from mpi_ranks import Ranks

    all_of_us = Ranks(words)
    me, comm, n = all_of_us.comm.rank, all_of_us.comm, words["n"]
    path = Path(words["files"][0])
    for number, access in enumerate(accesses(words["table"], n, comm.size)):
        (array,) = access.case.arrays
        wanted = dict(array.sections).get(me)
        key = (slice(0, 0),) * 2 if wanted is None else wanted[::-1]
        value = np.arange(n * n, dtype="f4").reshape(n, n)[key]
        out = np.empty_like(value)

        def candidate(
            method: str,
            write: bool = access.case.write,
            key: Any = key,
            value: Any = value,
            out: Any = out,
        ) -> Any:
            hints = {"method": "straight"} if method == "runs" else {}
            way: Any = "direct" if method == "runs" else method
            opened = outcore.open(path, "r+" if write else "r", comm=comm, hints=hints)
            if write:
                return (lambda: opened.write_all(key, value, method=way)), opened.close
            return (lambda: opened.read_all(key, out=out, method=way)), opened.close

        def check(
            _name: str,
            write: bool = access.case.write,
            key: Any = key,
            value: Any = value,
            out: Any = out,
        ) -> bool:
            there = np.load(path, mmap_mode="r")[key] if write else out
            return np.array_equal(there, value)

        found = all_of_us.measure(
            {
                method: (lambda method=method, candidate=candidate: candidate(method))
                for method in METHODS
            },
            paths=lambda _name: [path],
            spoil=lambda out=out: out.fill(-1),
            check=check,
            writes=access.case.write,
        )
        verb = "writes" if access.case.write else "reads"
        name = f"table {words['table']}, {n}, access {number} ({verb})"
        all_of_us.say(name, int(value.nbytes), found, times=access.times)


if __name__ == "__main__":
    from mpi_ranks import main

    main(rank)
