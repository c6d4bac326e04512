"""
Simulate figures 5 and 6 of the paper on disk resident arrays: rates by number of I/O ranks.

Problem: the figures are pictures; the text contains four of their points, and sentences.
Approach: the accesses are the paper's own. Columns of some rows (a stripe) follow each other in the
file, a block is as many of them as the buffer holds, and the ranks that do I/O take blocks round-robin.
A nonaligned section begins within a stripe, so it has blocks of which only a part is needed: these are
read completely, also before they are written. In one file (figure 5) all blocks of a stripe follow each
other; with one file per rank on its local disk (figure 6) each block is a chunk in one of the files.
After the read (before the write) of a block, its bytes are sent to (received from) the memories of all
ranks; this time is added to the cost of a request for the rank.

Each point and each sentence of the text is compared with the simulation. The machine ``paragon`` was
calibrated on another paper, and ``sp`` on nothing, so all points are predictions, except two rates of
PIOFS printed with figure 6. The text does not specify the following, which were chosen: the numbers of
ranks (`RANKS`), a nonaligned section begins in the middle of a stripe (a chunk), the buffer of figure 6,
and the file of each chunk.

Source: Nieplocha, Foster, "Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
Computations", sections 4 and 5.1.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from outcore.model.machines import rates
from outcore.model.machines.machine import Machine, machine
from outcore.model.machines.rates import FIGURES, Direction, Fit
from outcore.model.simulate.claims import TIE
from outcore.model.simulate.methods import Case, SimulatedArray
from outcore.model.simulate.paper_figures import (
    Check,
    Found,
    PaperFigures,
    compute_rate,
    simulate_buffered,
)

__all__ = [
    "FIGURES",
    "PAPER_FIGURES",
    "RANKS",
    "RateComparison",
    "TransferPoint",
    "compare_rates",
    "make_accesses",
]

#: Numbers of ranks that do I/O, by figure. The text names more than one, 24 and more and 32 (5), and 16
#: of the SP.
RANKS = {5: (1, 2, 4, 8, 16, 24, 32), 6: (1, 2, 4, 8, 16)}
_OPERATIONS: tuple[Direction, ...] = get_args(Direction)
_FITS: tuple[Fit, ...] = get_args(Fit)
# Fraction of perfect scaling that counts as "almost linear".
_ALMOST = 0.8


@dataclass(frozen=True)
class TransferPoint:
    """
    One simulated point of a curve.

    `buffer` and `ranks` are the bytes of the buffer of a rank that does I/O, and the number of such
    ranks; `nbytes` are the bytes of the section, and `moved` those that disks transferred for the
    requests.
    """

    figure: int
    operation: Direction
    fit: Fit
    buffer: int
    ranks: int
    nbytes: int
    seconds: float
    requests: int
    moved: int

    @property
    def rate(self) -> float:
        """Rate in MB/s."""
        return compute_rate(self.nbytes, self.seconds)


@dataclass(frozen=True)
class RateComparison:
    """
    Rate stated in the text, and the simulated rate, in MB/s.

    `where` names operation, alignment and ranks. `fitted`: the machine was calibrated with it.
    """

    where: str
    theirs: float
    ours: float
    fitted: bool

    @property
    def ratio(self) -> float:
        """Simulated rate divided by the rate in the text."""
        return self.ours / self.theirs


# ------------------------------------------------------------------------------------ accesses


def _split_stripes(length: int, edge: int, low: int) -> Iterator[tuple[int, slice]]:
    """Yield the stripes that `length` indices from `low` intersect, and the part in each."""
    for number in range(low // edge, (low + length - 1) // edge + 1):
        first, last = max(low - number * edge, 0), min(low + length - number * edge, edge) - 1
        yield number, slice(first, last + 1, 1)


def _widen(wanted: slice, edge: int) -> slice:
    """Return all of an edge; a part of it as first and last index, which sieving completes."""
    return wanted if wanted.stop - wanted.start == edge else slice(0, edge, edge - 1)


def make_accesses(
    figure: int,
    operation: Direction,
    fit: Fit,
    buffer: int,
    ranks: int,
    *,
    local: bool | None = None,
) -> Case:
    """
    Return the blocks of a section, each assigned to the rank that reads or writes it.

    The arrays of the case are files: by default as in the figure, or one for each rank if `local`.
    Simulate it with ``sieve``; other methods would not transfer whole blocks.

    Examples
    --------
    >>> from outcore.model.simulate import disk_arrays
    >>> case = disk_arrays.make_accesses(5, "read", "nonaligned", 2_000_000, ranks=4)
    >>> len(case.arrays), len(case.arrays[0].sections)
    (1, 110)
    """
    one = rates.load_transfers(figure)
    rows, columns = one.stripe_rows, buffer // (one.stripe_rows * one.itemsize)
    low = rows // 2 if fit == "nonaligned" else 0
    down = [(number, _widen(part, rows)) for number, part in _split_stripes(one.section, rows, low)]
    if figure == 6 if local is None else local:
        across = [
            (number, _widen(part, columns))
            for number, part in _split_stripes(one.section, columns, low)
        ]
        # One more than the blocks of a section in a stripe, so neighbours and edges are spread evenly.
        turn = one.section // columns + 1
        files: list[list[tuple[int, tuple[slice, ...]]]] = [[] for _ in range(ranks)]
        for (stripe, inside), (chunk, wanted) in itertools.product(down, across):
            owner, place = (stripe * turn + chunk) % ranks, stripe * (one.edge // columns) + chunk
            files[owner].append((owner, (slice(place, place + 1, 1), wanted, inside)))
        # Chunks of other files are holes here: the distance on the disk is unknown.
        shape = (one.edge // rows * (one.edge // columns), columns, rows)
        arrays = tuple(SimulatedArray(shape, one.itemsize, "C", sections) for sections in files)
    else:
        blocks = [
            (slice(stripe, stripe + 1, 1), slice(at, min(at + columns, one.section), 1), inside)
            for stripe, inside in down
            for at in range(0, one.section, columns)
        ]
        shape = (one.edge // rows, one.edge, rows)
        sections = [(number % ranks, block) for number, block in enumerate(blocks)]
        arrays = (SimulatedArray(shape, one.itemsize, "C", sections),)
    return Case(ranks, arrays, write=operation == "write")


@functools.cache
def _simulate_point(
    figure: int, operation: Direction, fit: Fit, buffer: int, ranks: int, model: Machine
) -> TransferPoint:
    found = simulate_buffered(make_accesses(figure, operation, fit, buffer, ranks), model, buffer)
    nbytes = rates.load_transfers(figure).nbytes
    seconds, requests, moved = found.seconds, found.requests, found.bytes
    return TransferPoint(figure, operation, fit, buffer, ranks, nbytes, seconds, requests, moved)


def _simulate(figure: int, model: Machine) -> list[TransferPoint]:
    return [
        _simulate_point(figure, operation, fit, buffer, ranks, model)
        for buffer in rates.load_transfers(figure).buffers
        for operation in _OPERATIONS
        for fit in _FITS
        for ranks in RANKS[figure]
    ]


def compare_rates(figure: int, model: Machine | None = None) -> list[RateComparison]:
    """
    Return the rates in the text and the simulated ones: four of figure 5, and PIOFS for figure 6.

    The machine of PIOFS is always the paper's.
    """
    model = model or machine(_get_machine_name(figure))
    found = [
        RateComparison(
            f"{one.operation}, {one.fit}, {one.ranks} ranks, {_format_mb(one.buffer)}",
            one.rate,
            _simulate_point(figure, one.operation, one.fit, one.buffer, one.ranks, model).rate,
            one.fitted,
        )
        for one in rates.load_rates(figure)
    ]
    if figure == 6:
        changes, told = rates.load_piofs()
        of_piofs = machine("sp", **changes)
        for one in told:
            case = make_accesses(6, one.operation, one.fit, one.buffer, one.ranks, local=False)
            seconds = simulate_buffered(case, of_piofs, one.buffer).seconds
            where = f"PIOFS: {one.operation}, {one.fit}, {one.ranks} ranks"
            ours = compute_rate(rates.load_transfers(6).nbytes, seconds)
            found.append(RateComparison(where, one.rate, ours, one.fitted))
    return found


# -------------------------------------------------------------------------------------- claims


def _pair_points(
    some: Sequence[TransferPoint], first: dict[str, object], second: dict[str, object]
) -> list[tuple[TransferPoint, TransferPoint]]:
    """Return points with the values of `first`, each with its partner with those of `second`."""

    def key(point: TransferPoint, **words: object) -> tuple[object, ...]:
        found = {**vars(point), **words}
        return tuple(found[name] for name in ("operation", "fit", "buffer", "ranks"))

    by_key = {key(point): point for point in some}
    return [
        (point, by_key[key(point, **second)]) for point in some if key(point, **first) == key(point)
    ]


def _check_faster(
    pairs: Sequence[tuple[TransferPoint, TransferPoint]], unit: str, *, strictly: bool = True
) -> Found:
    """Return whether the first of each pair is faster; if not strictly: never slower, once faster."""
    gains = [a.rate / b.rate for a, b in pairs]
    faster = sum(gain > TIE for gain in gains)
    slower = sum(gain * TIE < 1 for gain in gains)
    ours = (
        f"faster in {faster} of {len(gains)} {unit}, slower in {slower}; "
        f"x{min(gains):.2f} to x{max(gains):.2f}"
    )
    return (faster == len(gains) if strictly else slower == 0 and faster > 0), ours


def _check_writes(some: Sequence[TransferPoint]) -> Found:
    pairs = _pair_points(some, {"operation": "write", "fit": "aligned"}, {"operation": "read"})
    return _check_faster(
        [pair for pair in pairs if pair[0].ranks > 1], "points of more than one rank"
    )


def _check_nonaligned_writes(some: Sequence[TransferPoint]) -> Found:
    first: dict[str, object] = {"operation": "write", "fit": "nonaligned"}
    pairs = _pair_points(
        some, {**first, "buffer": max(p.buffer for p in some)}, {"operation": "read"}
    )
    return _check_faster([pair for pair in pairs if pair[0].ranks >= 24], "points")


def _check_larger_buffers(some: Sequence[TransferPoint]) -> Found:
    small, large = min(p.buffer for p in some), max(p.buffer for p in some)
    return _check_faster(
        _pair_points(some, {"buffer": large}, {"buffer": small}), "points", strictly=False
    )


def _check_aligned(some: Sequence[TransferPoint]) -> Found:
    return _check_faster(_pair_points(some, {"fit": "aligned"}, {"fit": "nonaligned"}), "points")


def _check_scaling(some: Sequence[TransferPoint]) -> Found:
    """Check that the rate is almost proportional to the number of ranks."""
    ones = {(p.operation, p.fit): p.rate for p in some if p.ranks == 1}
    parts = {p: p.rate / (p.ranks * ones[p.operation, p.fit]) for p in some}
    last = max(p.ranks for p in some)
    told = [f"{p.operation} {p.fit} {part:.2f}" for p, part in parts.items() if p.ranks == last]
    ours = f"of {last} times the rate of one rank, with {last}: {', '.join(told)}"
    return all(part >= _ALMOST for part in parts.values()), ours


def _check_single_disk(some: Sequence[TransferPoint]) -> Found:
    best = max(p.rate for p in some if p.ranks == 1)
    return best < 2, f"one rank, one disk: {best:.2f} MB/s at most"


_CHECKS: dict[int, tuple[Check[TransferPoint], ...]] = {
    5: (_check_writes, _check_nonaligned_writes, _check_larger_buffers, _check_aligned),
    6: (_check_scaling, _check_single_disk, _check_aligned),
}


def _pair_sentences(figure: int, _model: Machine) -> Iterator[tuple[str, Check[TransferPoint]]]:
    return zip(rates.load_transfers(figure).claims, _CHECKS[figure], strict=True)


# ------------------------------------------------------------------------------------- printed


def _format_mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:g} MB"


def _make_title(figure: int) -> str:
    one = rates.load_transfers(figure)
    return f"Disk Resident Arrays, figure {figure}: MB/s against ranks that do I/O; {one.storage}"


def _get_machine_name(figure: int) -> str:
    return rates.load_transfers(figure).machine


def _make_table(figure: int, model: Machine, some: Sequence[TransferPoint]) -> list[str]:
    rows: dict[str, list[TransferPoint]] = {}
    for point in some:
        name = f"{point.operation}, {point.fit}, buffer of {_format_mb(point.buffer)}"
        rows.setdefault(name, []).append(point)
    wide = max(map(len, rows)) + 2
    found = [f"{'ranks':<{wide}}" + "".join(f"{ranks:>8}" for ranks in RANKS[figure])]
    for name, curve in rows.items():
        found.append(f"{name:<{wide}}" + "".join(f"{point.rate:>8.1f}" for point in curve))
    for one in compare_rates(figure, model):
        fitted = ", calibrated" if one.fitted else ""
        told = f"theirs {one.theirs:.1f} MB/s, ours {one.ours:.1f} (x{one.ratio:.2f}{fitted})"
        found.append(f"{one.where}: {told}")
    return found


#: Figures 5 and 6.
PAPER_FIGURES = PaperFigures[TransferPoint](
    title=_make_title,
    machine_of=_get_machine_name,
    simulate=_simulate,
    sentences=_pair_sentences,
    table=_make_table,
    named_points=rates.load_rates,
)
