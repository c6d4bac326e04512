"""
Benchmarks of many ranks: start them, time them from one clock, show what they found.

A case's file runs under ``mpiexec`` with one JSON word: what to do. Each rank calls `measure`; rank 0
prints a JSON line a row. All candidates of a row run in rounds, each round in another order, opened
anew. Seconds are those from the first rank's start to the last one's end, because where ranks outnumber
cores some begin when others have ended.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, evict, save, warm
from throttle import Group, Limits, Unavailable, counts, device_of, enter

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
# Seconds after which one timed run of a candidate is enough.
PATIENCE = 4.0
# Seconds before each run on the slow device: what it gives at once is then the same for all.
IDLE = 0.3

Candidate = tuple[Callable[[], Any], Callable[[], Any]]  # what is timed, and how it is closed


def _x() -> Any:
    """The script ``./x`` as a module: it knows the MPI libraries."""
    loader = importlib.machinery.SourceFileLoader("x", str(ROOT / "x"))
    x = importlib.util.module_from_spec(importlib.util.spec_from_loader("x", loader))
    loader.exec_module(x)
    return x


@contextlib.contextmanager
def _group(file: Path, limits: Limits | None) -> Iterator[Path | None]:
    """A control group for ranks, or None, said in one sentence, where there can be none."""
    try:
        group = Group(file, limits)
    except Unavailable as error:
        print(f"no {'slow device' if limits else 'count of requests'} here: {error}", flush=True)
        yield None
        return
    with group:
        yield group.folder


def launch(
    file: str,
    question: str,
    library: str,
    ranks: int,
    words: dict[str, Any],
    settings: Mapping[str, str] | None = None,
) -> list[Row] | None:
    """
    Run a case under mpiexec.

    Parameters
    ----------
    file
        The case; run as a program, it gives its first argument, parsed, to its ``rank``.
    question
        Under which name rows are kept in ``results``, each when it is there.
    words
        What to do: ``cache`` and ``files`` are looked at here.
    settings
        Environment variables of the ranks, and of nobody else.

    Returns
    -------
    list of Row or None
        None where the slow device cannot be set up.
    """
    x = _x()
    folder = x.mpi_setup(library)
    slow, warm = words["cache"] == "slow", words["cache"] == "warm"
    some = Path(words["files"][0])
    stack = contextlib.ExitStack()
    with stack:
        group = None if warm else stack.enter_context(_group(some, Limits() if slow else None))
        if slow and group is None:
            return None
        if group is not None:
            words = {**words, "group": str(group), "device": device_of(some)}
        env = {**x.mpi_environment(library, folder), **(settings or {})}
        if slow and group is not None:
            env["XDG_CACHE_HOME"] = str(_figures(some.parent, group))
        command = [folder / "bin" / "mpiexec", "-n", str(ranks), sys.executable, file]
        rows: list[Row] = []
        with tempfile.TemporaryFile("w+") as complaints:
            started = subprocess.Popen(
                [*map(str, command), json.dumps(words)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
            with started as process:
                assert process.stdout is not None
                for line in process.stdout:  # kept as they come: a run may be ended by its limit
                    if line.startswith("{"):
                        rows.append(_read(line))
                        more = {"library": library, "ranks": ranks, "cache": words["cache"]}
                        rows[-1].extra.update(more, load=round(os.getloadavg()[0], 2))
                        save(RESULTS / f"{question.split()[0]}.jsonl", question, rows[-1:])
                    else:
                        print(line, end="")
            if process.returncode:
                complaints.seek(0)
                print(complaints.read()[-4000:])
                raise SystemExit(f"{library}, {ranks} ranks: ended with {process.returncode}")
    return rows


def _read(line: str) -> Row:
    found = json.loads(line)
    wrong = set(found["wrong"])
    return Row(found["case"], found["nbytes"], found["seconds"], wrong, found["extra"])


def _figures(folder: Path, group: Path) -> Path:
    """Have ``outcore bench`` measure the slow device, once; the cache folder with its figures."""
    cache = folder / "figures-of-the-slow-device"
    if not (cache / "outcore" / "disk.json").exists():
        words = ["-m", "outcore", "bench", folder, "--size", "64MiB", "--slice", "500"]
        inside = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        subprocess.run(
            ["sh", "-c", inside, "sh", sys.executable, *words],
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return cache


def libraries(wanted: list[str] | None) -> list[str]:
    """MPI libraries to run with."""
    return [name for name in _x().MPI_LIBRARIES if not wanted or name in wanted]


class Ranks:
    """What a rank of a case has: its communicator, its node barrier, and the clock of all."""

    def __init__(self, words: dict[str, Any]) -> None:
        from mpi4py import MPI

        from outcore.mpi import transport

        self.mpi = MPI
        self.comm = MPI.COMM_WORLD
        self.node_barrier = transport(self.comm)
        self.cache: str = words["cache"]
        # Files that are known to hold what they should.
        self.trusted: set[Path] = set()
        self._repeat: int = words["repeat"]
        self._patience: float = words.get("patience", PATIENCE)
        # Seconds after which even the first run counts: nothing of it is from being the first.
        self._long: float = words.get("long", float("inf"))
        self._random = random.Random(1)  # the same on all ranks
        self._group = Path(words["group"]) if "group" in words else None
        self._device: str = words.get("device", "")
        if self._group is not None:
            enter(self._group)
            self.node_barrier.barrier()

    def total(self, number: int) -> int:
        """Sum over the ranks."""
        return int(self.node_barrier.allgather(np.array([number], np.int64)).sum())

    def all_true(self, value: bool) -> bool:
        """Whether it is true on all ranks."""
        return not self.node_barrier.agree(int(not value))

    def by_one(self, work: Callable[[], Any]) -> None:
        """Rank 0 does something while the others wait."""
        self.node_barrier.barrier()
        if self.comm.rank == 0:
            work()
        self.node_barrier.barrier()

    def forget(self, files: list[Path]) -> None:
        """Take files out of the page cache."""
        self.by_one(lambda: _evict(files))

    def _timed(self, call: Callable[[], Any]) -> tuple[float, tuple[int, int]]:
        if self.cache == "slow":
            time.sleep(IDLE)
        before = counts(self._group, self._device) if self._group else (0, 0)
        self.node_barrier.barrier()
        start = time.monotonic_ns()
        call()
        times = self.node_barrier.allgather(np.array([start, time.monotonic_ns()]))
        after = counts(self._group, self._device) if self._group else (0, 0)
        spent = float(times[:, 1].max() - times[:, 0].min()) / 1e9
        return spent, (after[0] - before[0], after[1] - before[1])

    def measure(
        self,
        makers: dict[str, Callable[[], Candidate]],
        *,
        paths: Callable[[str], list[Path]],
        spoil: Callable[[], Any],
        check: Callable[[str], bool],
        writes: bool = False,
    ) -> dict[str, Any]:
        """
        Time all candidates; each is checked in a run before.

        Parameters
        ----------
        makers
            Opens a candidate.
        paths
            Files that a candidate uses.
        spoil
            Called before each run (the result of the one before must not count).
        check
            Whether this rank's part of the result is right. It may run the candidate again.
        writes
            Warm files are made clean, and are cached as a whole, before each run.

        Returns
        -------
        dict
            ``seconds``, ``wrong`` and ``io`` (median requests and bytes of the device).
        """
        # Each candidate once in a round, and not always behind the same other one.
        rounds = [self._random.sample(list(makers), len(makers)) for _ in range(self._repeat)]
        order = [name for each in rounds for name in each]
        seconds: dict[str, list[float]] = {name: [] for name in makers}
        device: dict[str, list[tuple[int, int]]] = {name: [] for name in makers}
        checked: set[str] = set()
        wrong: set[str] = set()
        enough: set[str] = set()

        def settle(name: str) -> None:
            files = paths(name)
            if self.cache != "warm":
                self.forget(files)
            elif writes:
                self.by_one(lambda: _clean(files))

        for name in [*makers, *order]:
            if name in enough or name in wrong:
                continue
            spoil()
            settle(name)
            call, close = makers[name]()
            spent, io = self._timed(call)
            if self.cache == "warm" and spent <= self._patience:
                # That faulted in mappings; this is how a second use finds them.
                if writes:
                    settle(name)
                spent, io = self._timed(call)
            close()
            del call, close
            if name in checked:
                seconds[name].append(spent)
                device[name].append(io)
                if spent > self._patience:
                    enough.add(name)
                continue
            checked.add(name)
            # It was as cold as a second run would be.
            if spent > (self._patience if self.cache != "warm" else self._long):
                seconds[name].append(spent)
                device[name].append(io)
                enough.add(name)
            if not self.all_true(check(name)):
                wrong.add(name)
        io = {
            n: [float(v) for v in np.median(found, axis=0)] for n, found in device.items() if found
        }
        return {"seconds": seconds, "wrong": sorted(wrong), "io": io}

    def say(self, case: str, nbytes: int, found: dict[str, Any], **extra: Any) -> None:
        """Print a row (rank 0)."""
        extra["io"] = found.pop("io")
        if self.comm.rank == 0:
            print(json.dumps({"case": case, "nbytes": nbytes, **found, "extra": extra}), flush=True)


def _evict(files: list[Path]) -> None:
    """`evict`, once what was read ahead of a mapping has come in: nobody waited for it."""
    for pause in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 0.0):
        try:
            evict(files)
            return
        except RuntimeError:
            if not pause:
                raise
            time.sleep(pause)


def main(rank: Callable[[dict[str, Any]], None]) -> None:
    """Run a rank; if it fails, all end."""
    os.environ.setdefault("OUTCORE_TIMEOUT", "120")
    try:
        rank(json.loads(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)


def _clean(files: list[Path]) -> None:
    """Write back what is dirty; and bring in what the files of other candidates pushed out."""
    for path in files:
        with path.open("r+b") as file:
            os.fsync(file.fileno())
    warm(files)


def show(rows: list[Row], ours: list[str], against: dict[str, Callable[[Row], float]]) -> str:
    """
    A markdown table in milliseconds; what a row's `extra` says ran ``over`` a limit is "> limit",
    columns come in its ``order``.

    Parameters
    ----------
    ours
        Candidates that are not peers; the first of them is compared.
    against
        For each column of ratios its heading and what the first of ours is divided by.
    """
    told = [[*row.extra.get("order", ()), *row.seconds, *row.wrong] for row in rows]
    names = list(dict.fromkeys(name for some in told for name in some))
    library = ["library"] if any("library" in row.extra for row in rows) else []
    heads = ["case", "MB", *library, *names, *against]
    lines = ["| " + " | ".join(heads) + " |", "|---|---:|" + "---|" * len(library)]
    lines[1] += "---:|" * (len(heads) - 2 - len(library))
    for row in rows:
        cells = [
            row.case,
            f"{row.nbytes / 1e6:.1f}",
            *(row.extra.get(head, "") for head in library),
        ]
        for name in names:
            value, over = row.median(name), row.extra.get("over", {}).get(name)
            text = "-" if value == float("inf") else f"{value * 1e3:.2f}"
            text = f"> {over * 1e3:.0f}" if over else text
            cells.append("wrong" if name in row.wrong else text)
        for base in against.values():
            ratio = row.median(ours[0]) / base(row)
            cells.append(f"{ratio:.2f}" if 0 < ratio < float("inf") else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def best(row: Row, names: list[str] | None = None, but: tuple[str, ...] = ()) -> float:
    """Median seconds of the best candidate among `names`, or of all except some."""
    chosen = row.seconds if names is None else names
    return min((row.median(name) for name in chosen if name not in but), default=float("inf"))
