"""
Question: what do one-sided accesses of a distributed array cost, beside a copy in memory?

Expected: on a node one copy and a few microseconds; between nodes a message there and back. Held
fair: the same bytes, into memory that was touched before, by turns in one process; `memcpy` is
`numpy.copyto` between two arrays. Ranks are simulated (threads), and only one of them works: what
is measured is the way, not contention. Between nodes that are pretended the message goes through
memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, save

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20}


def run(options: Any) -> None:
    """Print microseconds per access; append raw figures to ``results/one_sided.jsonl``."""
    from outcore.testing.sim import SimWorld

    rows: list[Row] = []
    print(
        "\n| where | bytes | memcpy us | get us | put us | acc us | get / memcpy | put / memcpy |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for where, per_node in (("node", None), ("other node", 1)):
        SimWorld(2, per_node).run(lambda t, where=where: _of(t, where, options, rows))
    save(Path(__file__).parents[1] / "results" / "one_sided.jsonl", "one_sided", rows)


def _of(t: Any, where: str, options: Any, rows: list[Row]) -> None:
    from outcore.mpi import DistArray, Distribution

    a = DistArray.shared_all(Distribution(2 << 17, ["block"], 2), transport=t)
    if t.rank == 0:
        for name, nbytes in SIZES.items():
            rows.append(_row(a, where, name, nbytes, options))
    t.barrier()
    a.close_all()


def _row(a: Any, where: str, name: str, nbytes: int, options: Any) -> Row:
    n, first = nbytes // 8, 1 << 17  # the part of the other rank
    mine, other = np.zeros(n), np.ones(n)
    key = slice(first, first + n)
    calls: dict[str, Callable[[], Any]] = {
        "memcpy": lambda: np.copyto(mine, other),
        "get": lambda: a.get(key, mine),
        "put": lambda: a.put(key, other),
        "acc": lambda: a.acc(key, other),
    }
    row = Row(f"{where}, {name}", nbytes)
    near = where == "node"
    times = max(5, (4 << 20) // nbytes // (1 if near else 20))
    times = min(times, 2000)
    for _ in range(max(options.repeat, 5)):
        for call, work in calls.items():
            work()
            start = time.perf_counter()
            for _ in range(times):
                work()
            a.flush()
            row.seconds.setdefault(call, []).append((time.perf_counter() - start) / times)
    us = {call: row.median(call) * 1e6 for call in calls}
    words = " | ".join(f"{us[call]:.2f}" for call in calls)
    ratios = " | ".join(f"{us[call] / us['memcpy']:.2f}" for call in ("get", "put"))
    print(f"| {where} | {name} | {words} | {ratios} |", flush=True)
    return row
