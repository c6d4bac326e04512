"""
Simulate figures 9 to 15 of the irregular paper, and check its sentences about them.

Problem: the figures are pictures; the text contains two of their points ("almost 40 MB/sec", "up to
60MBytes/sec").
Approach: the settings are the paper's (`tables.irregular`), and so are the domains and the groups
(``in_turn``). Each sentence of the text about a curve is a `Claim`, which is checked against the
simulation. The machines ``paragon`` and ``red`` are calibrated on the two points only.

The text does not specify the following, which were chosen: sizes of chunks (`CHUNKS`; the axis of
figures 9 to 11, 13 and 14), chunks of 4 MB in figure 15, and powers of two below the number of ranks as
numbers of groups (`GROUPS`).

Source: No, Choudhary, "Techniques to provide Run-Time Support for solving Irregular Problems", section
4.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from outcore.model.machines import tables
from outcore.model.machines.machine import Machine
from outcore.model.simulate.claims import TIE
from outcore.model.simulate.irregular import Scattered, ScatteredMethod, simulate_scattered
from outcore.model.simulate.paper_figures import Check, Found, PaperFigures, compute_rate

__all__ = ["CHUNKS", "FIGURES", "GROUPS", "PAPER_FIGURES", "IrregularPoint"]

FIGURES = tuple(range(9, 16))
#: Bytes of a chunk; the example of section 3.1.1 has 2 MB of 8.
CHUNKS = tuple(1 << power for power in (18, 19, 20, 21, 22))
GROUPS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class IrregularPoint:
    """
    One simulated point of a curve.

    `io`, `communication` and `computation` are the seconds in which all wait for the disks, of messages,
    and of reordering elements. The rest of `seconds` is agreements. `stripe`, `chunk` and `nbytes` (of
    the array) are bytes.
    """

    figure: int
    method: str
    operation: str
    ranks: int
    stripe: int
    groups: int
    chunk: int
    nbytes: int
    seconds: float
    io: float
    communication: float
    computation: float

    @property
    def rate(self) -> float:
        """Application bandwidth in MB/s."""
        return compute_rate(self.nbytes, self.seconds)


def _get_machine_name(figure: int) -> str:
    return tables.irregular(figure)[0].machine


def _simulate(figure: int, model: Machine) -> list[IrregularPoint]:
    """Return the points of a figure; the machine gets the stripe units of the figure."""
    found = []
    for one in tables.irregular(figure):
        with_groups = (one.groups,) if one.groups else GROUPS
        chunks = CHUNKS if one.against == "chunk size" else (one.chunk or CHUNKS[-1],)
        found += [
            _simulate_point(one, model, groups, chunk)
            for groups in with_groups
            for chunk in chunks
            if groups < one.ranks
        ]
    return found


@functools.cache
def _simulate_point(one: tables.Setting, base: Machine, groups: int, chunk: int) -> IrregularPoint:
    each = one.nbytes // one.ranks // one.itemsize
    case = Scattered(one.ranks, each, itemsize=one.itemsize, write=one.operation == "write")
    # A server caches blocks, which are at most as long as a stripe.
    model = replace(base, stripe=one.stripe, block=min(base.block, one.stripe))
    method = cast(ScatteredMethod, one.method)
    outcome = simulate_scattered(case, model, method, chunk=chunk, groups=groups, in_turn=True)
    return IrregularPoint(
        figure=one.figure,
        method=one.method,
        operation=one.operation,
        ranks=one.ranks,
        stripe=one.stripe,
        groups=groups,
        chunk=chunk,
        nbytes=one.nbytes,
        seconds=outcome.seconds,
        io=outcome.io_ns / 1e9,
        communication=(outcome.exchange_ns - outcome.copy_ns) / 1e9,
        computation=outcome.copy_ns / 1e9,
    )


# --------------------------------------------------------------------------------------- claims


def _group_curves(
    some: Sequence[IrregularPoint], key: Callable[[IrregularPoint], object]
) -> list[tuple[object, list[IrregularPoint]]]:
    ordered = sorted(some, key=lambda point: str(key(point)))
    return [(name, list(group)) for name, group in itertools.groupby(ordered, key=key)]


def _name_curve(point: IrregularPoint) -> str:
    return f"{point.operation}, {point.ranks} ranks, {point.stripe >> 10} KB"


def _check_rising(some: Sequence[IrregularPoint]) -> Found:
    """Check that each curve against chunk sizes rises."""
    curves = _group_curves(some, _name_curve)
    wrong = [
        name
        for name, curve in curves
        if any(b.rate * TIE < a.rate for a, b in itertools.pairwise(curve))
    ]
    more = f": not {'; '.join(map(str, wrong))}" if wrong else ""
    ours = f"{len(curves) - len(wrong)} of {len(curves)} curves never fall{more}"
    return not wrong, ours


def _check_longer_stripes(some: Sequence[IrregularPoint], write: bool) -> Found:
    """Check that the longer stripe unit is better; for reads only with large chunks."""
    operation = "write" if write else "read"
    pairs = _group_curves(
        [p for p in some if p.operation == operation],
        lambda p: (p.ranks, p.chunk),
    )

    def is_no_worse(pair: list[IrregularPoint]) -> bool:
        short, long = min(pair, key=lambda p: p.stripe), max(pair, key=lambda p: p.stripe)
        return long.rate * TIE >= short.rate

    better = sum(is_no_worse(pair) for _, pair in pairs)
    holds = all(is_no_worse(pair) for _, pair in pairs if write or pair[0].chunk == CHUNKS[-1])
    return holds, f"256 KB is no worse in {better} of {len(pairs)} pairs of points"


def _check_best_groups(
    one_group: Sequence[IrregularPoint], more: Sequence[IrregularPoint]
) -> Found:
    """Check that 4 groups with 256 KB are best for writes with 128 nodes, at almost 40 MB/s."""
    some = [p for p in (*one_group, *more) if (p.operation, p.ranks) == ("write", 128)]
    best = max(some, key=lambda p: p.rate)
    named = max((p for p in some if (p.groups, p.stripe) == (4, 256 << 10)), key=lambda p: p.rate)
    ours = (
        f"4 groups with 256 KB: up to {named.rate:.1f} MB/s (calibrated); best: "
        f"{_format_groups(best.groups)} with {best.stripe >> 10} KB, {best.rate:.1f} MB/s"
    )
    return best == named and 38 <= best.rate < 40, ours


def _check_optimum(some: Sequence[IrregularPoint]) -> Found:
    """Check that the best number of groups is within the range."""
    parts, inside = [], 0
    curves = _group_curves(some, _name_curve)
    for name, curve in curves:
        best, first, last = max(curve, key=lambda p: p.rate), curve[0], curve[-1]
        gain = max(first.rate, last.rate) * TIE < best.rate
        inside += gain
        parts.append(f"{name}: {best.groups} ({best.rate / first.rate:.2f} x 1 group)")
    ours = f"{inside} of {len(curves)} curves have one; best: {'; '.join(parts)}"
    return inside == len(curves), ours


def _check_large_chunks(some: Sequence[IrregularPoint], write: bool) -> Found:
    """Check that I/O and communication take less (writes) or more (reads) time with large chunks."""
    operation = "write" if write else "read"
    curve = [p for p in some if p.operation == operation]
    first, last = curve[0], curve[-1]
    if write:
        holds = all(
            b.io <= a.io * TIE and b.communication <= a.communication * TIE
            for a, b in itertools.pairwise(curve)
        )
    else:
        holds = any(b.communication > a.communication * TIE for a, b in itertools.pairwise(curve))
    ours = (
        f"from {first.chunk >> 10} to {last.chunk >> 10} KB: I/O {first.io:.1f} to {last.io:.1f} s, "
        f"communication {first.communication:.2f} to {last.communication:.2f} s"
    )
    return holds, ours


def _check_highest(some: Sequence[IrregularPoint]) -> Found:
    best = max(some, key=lambda p: p.rate)
    ours = f"best: {best.operation}, {best.ranks} ranks, {best.rate:.1f} MB/s (calibrated)"
    return 57 <= best.rate < 63, ours


_CHECKS: dict[int, tuple[Check[IrregularPoint], ...]] = {
    9: (
        _check_rising,
        functools.partial(_check_longer_stripes, write=True),
        functools.partial(_check_longer_stripes, write=False),
    ),
    12: (_check_optimum,),
    13: (
        functools.partial(_check_large_chunks, write=True),
        functools.partial(_check_large_chunks, write=False),
    ),
    15: (_check_highest, _check_optimum),
}


def _pair_sentences(figure: int, model: Machine) -> Iterator[tuple[str, Check[IrregularPoint]]]:
    checks = _CHECKS.get(figure, ())
    if figure == 10:  # the sentence is about the points of figure 9, too
        checks = (functools.partial(_check_best_groups, _simulate(9, model)),)
    return zip(tables.load_irregular_claims()[figure], checks, strict=True)


# ------------------------------------------------------------------------------------- printed


def _format_groups(groups: int) -> str:
    return f"{groups} group{'s' * (groups > 1)}"


def _make_title(figure: int) -> str:
    one = tables.irregular(figure)[0]
    what = "MB/s" if one.quantity == "bandwidth" else "seconds by part"
    return f"Irregular paper, figure {figure}: {one.method} I/O, {what} against {one.against}"


def _make_table(figure: int, _model: Machine, some: Sequence[IrregularPoint]) -> list[str]:
    against = tables.irregular(figure)[0].against
    breakdown = tables.irregular(figure)[0].quantity == "breakdown"

    def place(point: IrregularPoint) -> str:
        return (
            f"{point.chunk >> 10} KB" if against == "chunk size" else _format_groups(point.groups)
        )

    def row(point: IrregularPoint) -> str:
        other = (
            _format_groups(point.groups)
            if against == "chunk size"
            else f"chunks {point.chunk >> 20} MB"
        )
        return f"{_name_curve(point)}, {other}"

    columns = list(dict.fromkeys(map(place, some)))
    rows: dict[str, dict[str, IrregularPoint]] = {}
    for point in some:
        rows.setdefault(row(point), {})[place(point)] = point
    wide = max(map(len, rows)) + (15 if breakdown else 0) + 2
    found = [" " * wide + "".join(f"{column:>11}" for column in columns)]
    parts: dict[str, Callable[[IrregularPoint], float]] = {"": lambda p: p.rate}
    if breakdown:
        parts = {
            "I/O": lambda p: p.io,
            "communication": lambda p: p.communication,
            "computation": lambda p: p.computation,
            "all": lambda p: p.seconds,
        }
    for name, curve in rows.items():
        for part, value in parts.items():
            head = f"{name}  {part}" if part else name
            cells = "".join(
                f"{value(curve[column]):>11.4g}" if column in curve else f"{'':>11}"
                for column in columns
            )
            found.append(f"{head:<{wide}}{cells}")
    return found


#: Figures 9 to 15.
PAPER_FIGURES = PaperFigures[IrregularPoint](
    title=_make_title,
    machine_of=_get_machine_name,
    simulate=_simulate,
    sentences=_pair_sentences,
    table=_make_table,
)
