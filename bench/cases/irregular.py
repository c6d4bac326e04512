"""
Question: how fast are elements at any indices gathered and scattered, by one process and by many ranks?

Expected: in the page cache a gather is bounded by memory, and what there is to win is the second core
and the order in which pages are visited; out of it, that each page is read once, at depth, or the
range as one stream, whichever is cheaper ("device" does that alone). Chunks are decoded once. Over
ranks each reads and writes the cached file for itself; MPI-IO and PIO exchange all elements. Held
fair: the same index list, the same file or format, results compared element by element, of scatters
the whole file; memory of the result is new in every run, for all. "memmap sorted" sorts, gathers in
ascending order, and puts back. Candidates that took longer than 3 s (ranks: 2 s) ran once, those of
more than 10 s (of files below 4 GiB: 3 s) were ended. Sizes: points of a `.npy` of ``--size``, chunks
of a quarter of it, ranks a permutation of a sixteenth. ``--only "gather random" ranks fields`` chooses
rows; ``--pio FILE`` names a library of PIO. Reference: No, Choudhary, "Techniques to provide Run-Time
Support for solving Irregular Problems".
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Row, evict, save
from irregular import fields, many_ranks
from irregular.candidates import candidates, device
from irregular.files import Stored
from irregular.patterns import KINDS, Pattern, pattern, points_of
from irregular.timed import LIMIT, PATIENCE, Timed
from mpi_ranks import best, launch, libraries, show

ELEMENTS = {"quick": 1 << 23, "256MiB": 1 << 25, "1GiB": 1 << 27, "4GiB": 1 << 29}
_CHUNKS, _CHUNKED_POINTS = 4, (1_000_000, 1 << 27)
_RANKS = 16
_FIELDS = 32
# OMPIO takes half a minute for what ROMIO needs 6 s: it reads once together, and to write it takes
# minutes, so it does not.
_ONCE = (4, "warm")
_BESIDE = ("device",)
# A schedule of ours tells the owners at the first use that needs them, which is not timed either.
_LATER = defaultdict(str, {"outcore schedule": " (owners are told later, in the first run)"})
_QUOTED = (
    "PIO is not measured here: no package has it, and --pio names no library. Measured before on such a "
    "machine, 32 Mi float64, 4 ranks, box rearranger: warm read 620 ms, warm write 4262 ms, cold read "
    "635 ms, and 1060 ms to make the decomposition."
)


@dataclass(frozen=True)
class Job:
    """A row of one process: a format, an index list, a direction, a state of the cache."""

    format: str
    kind: str
    write: bool
    cache: str

    def __str__(self) -> str:
        what = "scatter" if self.write else "gather"
        return f"{self.format}: {what} {self.kind}, {self.cache}"


def jobs(options: Any) -> list[Job]:
    """Rows of one process, format by format."""
    found = []
    for format in ("npy", "npy rows"):
        for kind in [k for k in KINDS if k.startswith("rows") == (format == "npy rows")]:
            for write in (False, True):
                for cache in ("warm", "cold"):
                    # Scattering to every page of a cold file is the stream both ways: once is enough.
                    if not write or cache == "warm" or kind in ("random", "rows of 4 kB"):
                        found.append(Job(format, kind, write, cache))
    for format in ("HDF5 contiguous", "HDF5 chunks", "Zarr", "Zarr zstd"):
        found += [Job(format, kind, False, "warm") for kind in KINDS[:3]]
        found.append(Job(format, "random", False, "cold"))
        found.append(Job(format, "random", True, "warm"))
    ops = {"read": False, "write": True}
    wanted = [ops[op] for op in options.op if op in ops]
    return [
        job
        for job in found
        if job.cache in options.cache and job.write in wanted and _wanted(str(job), options)
    ]


def _wanted(name: str, options: Any) -> bool:
    return not options.only or any(part in name for part in options.only)


def run(options: Any) -> None:
    """Print the tables; append raw figures to ``results/irregular.jsonl``."""
    started = time.monotonic()
    options.cache = [cache for cache in options.cache if cache != "slow"]
    n, folder = ELEMENTS[options.size], Path(options.folder)
    rows = _points(jobs(options), n, folder, options)
    for op, cache in itertools.product(options.op, options.cache):
        if (
            op != "sync"
            and (op, cache) != ("write", "cold")
            and _wanted(f"fields, {cache}", options)
        ):
            size = n // _FIELDS
            rows.append(fields.row(folder, size, max(size // 16, 1000), op, cache, options))
    for kind in [k for k in KINDS[:3] if _wanted(f"schedule made before: gather {k}", options)]:
        if "warm" in options.cache and "read" in options.op:
            stored = Stored("npy", folder / f"irregular-npy-{n}.npy", n).make()
            rows.append(fields.used(stored, kind, points_of(n), options))
    if _wanted("schedule made", options):
        stored = Stored("npy", folder / f"irregular-npy-{n}.npy", n).make()
        rows.append(fields.made(stored, points_of(n), options))
    _keep(options, rows)
    _tell(rows, options)
    if _wanted("ranks", options):
        _many(n // _RANKS, folder, options)
    print(f"\nin {time.monotonic() - started:.0f} s", flush=True)


def _keep(options: Any, rows: list[Row]) -> None:
    save(options.results / "irregular.jsonl", f"irregular {options.size}", rows)


# ------------------------------------------------------------------------------------ one process


def _points(wanted: list[Job], n: int, folder: Path, options: Any) -> list[Row]:
    """All rows of one process; a file that is done with leaves the page cache."""
    rows: list[Row] = []
    lists: dict[tuple[str, int], Pattern] = {}
    for format in dict.fromkeys(job.format for job in wanted):
        npy = format.startswith("npy")
        size = n if npy else n // _CHUNKS
        suffix = {"n": ".npy", "H": ".h5", "Z": ".zarr"}[format[0]]
        slug = format.replace(" ", "-").lower()
        path = folder / f"irregular-{slug}-{size}{suffix}"
        stored = Stored(format, path, size).make()
        points = points_of(size) if npy else points_of(size, *_CHUNKED_POINTS)
        for job in [job for job in wanted if job.format == format]:
            if (job.kind, size) not in lists:
                lists.clear()  # a mask and its indices are a gigabyte
                lists[job.kind, size] = pattern(job.kind, size, points)
            rows.append(_row(stored, job, lists[job.kind, size], options))
        evict([stored.path])
    return rows


def _row(stored: Stored, job: Job, wanted: Pattern, options: Any) -> Row:
    words = {"threads": options.threads, "others": options.others}
    cold = job.cache == "cold"
    some = candidates(stored, wanted, write=job.write, cold=cold, **words)
    if cold and not job.write and stored.format in ("npy", "npy rows", "HDF5 contiguous"):
        some.append(device(stored, wanted))
    some = [one for one in some if one.name not in options.without]
    limit = LIMIT if options.size == "4GiB" else PATIENCE
    timed = Timed(stored, wanted, write=job.write, cache=job.cache, limit=limit)
    row = timed.run(some, options.repeat)
    row.case = str(job)
    return row


def _tell(rows: list[Row], options: Any) -> None:
    """A table for `.npy` files, one for each other format's family, one for many fields."""
    ours = [f"outcore/{t}" for t in sorted(options.threads, reverse=True)]
    heads = {
        "npy": f"`.npy` of {options.size}: elements, and rows of 4 kB",
        "HDF5": "HDF5 of a quarter of that",
        "Zarr": "Zarr of a quarter of that",
    }
    for start, head in heads.items():
        some = [row for row in rows if row.case.startswith(start)]
        _print(f"One process, {head}, ms", some, ours)
    others = [row for row in rows if not row.case.startswith(tuple(heads))]
    _print("One index list, many uses, ms", others, ["outcore schedule"])
    for row in others:
        made = row.median("outcore schedule")
        if "points" in row.extra and made < float("inf"):
            print(f"{row.case}: {row.extra['points'] / made / 1e6:.0f} M indices/s")


def _print(
    title: str, rows: list[Row], ours: list[str], more: dict[str, list[str]] | None = None
) -> None:
    """A table; `more` are columns of ratios to the best of some candidates."""
    if not rows:
        return
    against: dict[str, Any] = {
        "/ best peer": lambda row: best(row, but=(*_ours(row), *_BESIDE)),
    }
    for head, names in (more or {}).items():
        if any(name in row.seconds for row in rows for name in names):
            against[head] = lambda row, names=names: best(row, names)
    if any("device" in row.seconds for row in rows):
        against["/ device"] = lambda row: row.median("device")
    print(f"\n## {title}\n")
    print(show(rows, ours, against))
    sys.stdout.flush()


def _ours(row: Row) -> list[str]:
    return [name for name in row.seconds if name.startswith("outcore")]


# ------------------------------------------------------------------------------------- many ranks


def _many(n: int, folder: Path, options: Any) -> None:
    """Rows for each number of ranks, MPI library, direction and state of the cache."""
    paths = many_ranks.files(folder, n)
    rows: list[Row] = []
    for ranks in options.ranks:
        for library in libraries(options.library):
            for op in [op for op in options.op if op != "sync"]:
                for cache in options.cache:
                    rows += _launched(n, paths, ranks, library, op, cache, options)
    if not rows:
        return
    # PIO and MPI-IO have their decompositions and types before, so what is compared has a schedule.
    more = {"/ MPI-IO": [many_ranks.INDEPENDENT, many_ranks.COLLECTIVE], "/ PIO": ["PIO"]}
    _print(
        "Ranks: a permuted array, read and written by all, ms",
        rows,
        ["outcore schedule", "outcore"],
        more,
    )
    for name in dict.fromkeys(name for row in rows for name in row.extra["made"]):
        some = sorted(1e3 * row.extra["made"][name] for row in rows if name in row.extra["made"])
        print(
            f"{name}: {some[0]:.0f} to {some[-1]:.0f} ms before, for what it makes once{_LATER[name]}"
        )
    if not options.pio:
        print(_QUOTED)


def _launched(
    n: int, paths: list[str], ranks: int, library: str, op: str, cache: str, options: Any
) -> list[Row]:
    without = list(options.without)
    if library == "openmpi" and (op == "write" or (ranks, cache) != _ONCE):
        without.append(many_ranks.COLLECTIVE)
    if library == "openmpi" and op == "write":
        without.append(many_ranks.INDEPENDENT)
    words = {
        **{"cache": cache, "op": op, "repeat": options.repeat, "n": n},
        **{"others": options.others, "without": without, "files": paths},
        **{"once": True, "schedules": {"outcore schedule": {}}, "method": "auto"},
        **{"patience": many_ranks.PATIENCE, "long": many_ranks.LONG},
        "pio": str(options.pio) if options.pio and library == "openmpi" else "",
    }
    program = str(many_ranks.__file__)
    rows = launch(program, f"irregular {options.size}", library, ranks, words) or []
    for row in rows:
        row.case += f", {cache}"
    return rows
