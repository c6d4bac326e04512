"""
Question: how near are computations on arrays on disk to the limits of the machine, and to peers?

Expected: a row takes its target's multiple of its limit. Limits are measured in the same run,
interleaved with the rows: *stream* reads the inputs and writes the result once by direct I/O, both at
once; *core* is the same kernel on data in memory. Held fair: sources are cold, results are durable
when the clock stops, everybody runs in a fresh process, in a memory group of the budget and 64 MiB,
with the same cores; a peer's imports do not count in its group, outcore's do. Results are compared by
slabs, samples and residuals (`compute/checks.py`). A peer that takes more than five times as long as
outcore is run once (*), one that takes 15 times as long, or longer than `--patience`, is stopped.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from compute import inputs
from compute.checks import check
from compute.contained import Ended
from compute.others import OURS, PEERS, can, clean, compute, in_core, result
from compute.rows import Row, chosen
from compute.stream import Stream
from harness import Row as Record
from harness import evict, files_of, machine, save, touch
from throttle import Unavailable

_ONCE, _STOP, _LEAST = 5.0, 15.0, 20.0


class Measured:
    """What came of one row: times of everybody, and why somebody has none."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.record = Record(row.name, sum(one.nbytes for one in row.inputs))
        self.failed: dict[str, Ended] = {}
        self.ended: dict[str, Ended] = {}

    def median(self, name: str) -> float:
        """Seconds; infinity where there are none."""
        return self.record.median(name)

    @property
    def limit(self) -> float:
        """Of the row, by what was measured in the same run."""
        core = self.median("core") if self.row.core else 0.0
        stream = self.median("stream") if self.row.streams else 0.0
        return self.row.limit(stream, core)

    def best(self) -> str:
        """The fastest peer, or nothing."""
        names = [peer.name for peer in PEERS if self.median(peer.name) < float("inf")]
        return min(names, key=self.median, default="")

    def note(self, name: str, ended: Ended, wrong: str = "") -> None:
        """Take down a run."""
        self.ended[name] = ended
        if ended.seconds is None:
            self.failed[name] = ended
        else:
            self.record.seconds.setdefault(name, []).append(ended.seconds)
        if wrong:
            self.record.wrong.add(name)
            self.failed[name] = Ended(None, f"wrong: {wrong}")


class Lane:
    """Runs rows in a folder."""

    def __init__(self, options: Any) -> None:
        self._folder = Path(options.folder)
        self._repeat, self._cores = options.repeat, min(options.cores, os.cpu_count() or 1)
        self._patience = options.patience
        self._only = options.peers
        self._others = options.others

    def measure(self, row: Row) -> Measured:
        """All of one row, interleaved in an order that changes; outcore first in the first turn."""
        found = Measured(row)
        paths = [inputs.make(one, self._folder) for one in row.inputs]
        names = self._names(row)
        rng = random.Random(0)
        for turn in range(self._repeat):
            rng.shuffle(names)
            if turn == 0:
                names.sort(key=lambda name: name != OURS)
            for name in list(names):
                self._settle(row, paths)
                ended = self._one(name, row, paths, found)
                wrong = ""
                if turn == 0 and ended.seconds is not None and name not in ("stream", "core"):
                    wrong = check(row, paths, result(name, row, self._folder))
                found.note(name, ended, wrong)
                clean(self._folder)
                slow = _ONCE * found.median(OURS)
                if name in found.failed or (name not in _OWN and found.median(name) > slow):
                    names.remove(name)
        return found

    def _names(self, row: Row) -> list[str]:
        peers = [peer.name for peer in PEERS if can(peer, row)] if self._others else []
        peers = [name for name in peers if not self._only or name in self._only]
        return [OURS, "stream", "core", *peers] if row.task in _CORES else [OURS, "stream", *peers]

    def _settle(self, row: Row, paths: list[Path]) -> None:
        clean(self._folder)
        os.sync()
        evict(paths)
        touch(min(4 * row.budget, 1 << 30))

    def _one(self, name: str, row: Row, paths: list[Path], found: Measured) -> Ended:
        if name == "stream":
            return self._stream(row, paths)
        if name == "core":
            return in_core(row, self._cores, self._patience)
        patience = self._patience
        ours = found.median(OURS)
        if name != OURS and ours < float("inf"):
            patience = min(max(_STOP * ours, _LEAST), patience)
        return compute(name, row, paths, self._folder, self._cores, patience)

    def _stream(self, row: Row, paths: list[Path]) -> Ended:
        stream = Stream(files_of(paths), self._folder / "result-stream", row.written)
        start = time.perf_counter()
        stream.run()
        return Ended(time.perf_counter() - start)


_OWN = (OURS, "stream", "core")
_CORES = ("matmul", "jacobi", "fft2", "cholesky", "lu", "median", "sum", "mean_var", "sort")


def run(options: Any) -> None:
    """Print the tables; append raw figures to ``compute.jsonl``."""
    lane = Lane(options)
    done: list[Measured] = []
    keep = {row.name: row for row in chosen(options.rows, options.scale)}
    for row in keep.values():
        try:
            one = lane.measure(row)
        except Unavailable as error:
            raise SystemExit(
                f"compute: {error}; rows are measured in memory groups only"
            ) from error
        done.append(one)
        one.record.extra.update(
            scale=options.scale,
            budget=row.budget,
            target=row.target,
            limit=one.limit,
            failed={name: ended.why for name, ended in one.failed.items()},
            bytes={n: [e.read, e.written, e.peak] for n, e in one.ended.items() if e.peak},
        )
        save(options.results / "compute.jsonl", "compute", [one.record])
        print(told(one), flush=True)
        _forget(row, keep, options)
    print(tables(done, options.scale))


def _forget(row: Row, keep: dict[str, Row], options: Any) -> None:
    """Remove inputs that no later row reads, unless the folder is the caller's."""
    if not options.temporary:
        return
    names = list(keep)
    later = [keep[name] for name in names[names.index(row.name) + 1 :]]
    wanted = {one.name for other in later for one in other.inputs}
    for one in row.inputs:
        if one.name not in wanted:
            path = options.folder / one.name
            path.rename(path.with_name("result-of-nobody"))
            clean(options.folder)


# ---------------------------------------------------------------------------------------- words


def _seconds(value: float) -> str:
    return "-" if value == float("inf") else f"{value:.3g}"


def _cell(one: Measured, name: str) -> str:
    if name in one.failed:
        return _short(one.failed[name].why)
    value = one.median(name)
    once = name not in _OWN and len(one.record.seconds.get(name, [])) == 1 and value > 0
    slow = once and value > _ONCE * one.median(OURS)
    return _seconds(value) + ("*" if slow else "")


def _short(why: str) -> str:
    """A reason in a cell; the whole of it stands below the table."""
    if why.startswith(("killed", ">", "not there", "not installed", "wrong")):
        return why.split(":")[0] if why.startswith(("not installed", "wrong")) else why
    name = why.split(":")[0].rsplit(".", 1)[-1]
    return name if name.isidentifier() else "failed"


def _ratio(one: Measured, name: str) -> str:
    value = one.median(name) / one.limit if one.limit not in (0.0, float("inf")) else float("inf")
    return "-" if value == float("inf") else f"{value:.2f}"


def told(one: Measured) -> str:
    """A row in a line, while others are still to come."""
    parts = [f"{name} {_cell(one, name)}" for name in (*one.record.seconds, *one.failed)]
    return f"{one.row.name}: {', '.join(dict.fromkeys(parts))}"


def tables(done: list[Measured], scale: int) -> str:
    """Rows beside their limits and targets; then everybody's seconds, and why some have none."""
    about = machine()
    head = f"kernel {about['kernel']}, {about['cpus']} cores, on {about['commit']}"
    lines = [
        f"\n## Computing, edges 1/{scale}, {head}" if scale > 1 else f"\n## Computing, {head}",
        "",
        "Seconds; cold sources, durable results, memory groups of budget + 64 MiB.",
        "",
        "| row | what | MiB | stream | core | limit | outcore | x limit | target | best peer "
        "| x limit |",
        "|---|---|---:|---:|---:|---|---:|---:|---:|---|---:|",
    ]
    for one in done:
        row, best = one.row, one.best()
        ratio = _ratio(one, OURS)
        met = ratio != "-" and float(ratio) <= row.target
        peer = f"{best} {_seconds(one.median(best))}" if best else "-"
        lines.append(
            f"| {row.name} | {row.what} | {row.budget >> 20} | {_cell(one, 'stream')} "
            f"| {_cell(one, 'core')} | {row.limit_name} | {_cell(one, OURS)} "
            f"| {'**' + ratio + '**' if ratio != '-' and not met else ratio} | {row.target:.2f} "
            f"| {peer} | {_ratio(one, best) if best else '-'} |"
        )
    names = [p.name for p in PEERS if any(p.name in (*o.record.seconds, *o.failed) for o in done)]
    if names:
        lines += [
            "",
            "| row | outcore | " + " | ".join(names) + " |",
            "|---|" + "---:|" * (1 + len(names)),
        ]
        for one in done:
            cells = [
                _cell(one, name) if name in one.failed or name in one.record.seconds else ""
                for name in (OURS, *names)
            ]
            lines.append(f"| {one.row.name} | " + " | ".join(cells) + " |")
    lines.append("")
    for one in done:
        ours = one.ended.get(OURS)
        if ours and ours.peak:
            lines.append(
                f"{one.row.name}: outcore read {ours.read / 1e6:.0f} MB, "
                f"wrote {ours.written / 1e6:.0f} MB, peak {ours.peak >> 20} MiB; core: {_core(one)}"
            )
        lines += [
            f"{one.row.name}: {name}: {ended.why}"
            for name, ended in one.failed.items()
            if ended.why != _short(ended.why)
        ]
    return "\n".join(lines)


def _core(one: Measured) -> str:
    ended = one.ended.get("core")
    return ended.more.get("measured", "-") if ended else "-"
