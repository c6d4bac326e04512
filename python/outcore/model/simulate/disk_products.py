"""
Simulate figure 8 of the paper on disk resident arrays: the efficiency of an out-of-core product.

Problem: the figure is a picture, and the text has none of its points.
Approach: the text contains the settings: sizes of matrices and sections, numbers of processors, and the
program, loop by loop. Reads and writes of sections are simulated as accesses; the product of two
sections is its arithmetic plus the messages of SUMMA. The program is a timeline of two resources,
processors and disks, each of which does one thing at a time ("asynchronous I/O for only one request at a
time"). Then each sentence of the text about the figure is checked against the simulation.

Two programs are simulated: the paper's, which waits for sections of A and C; and
``examples/matrix_product.py``, which also writes C in the background, with two sections of it.

The text does not specify the following, which were chosen: the rate of a processor in its own product
(`PROCESSOR`: three fifths of the 75 Mflop/s maximum of an i860 XP); 32 processors that do I/O with
buffers of 2 MB, the best of figure 5; aligned sections, which are consecutive blocks in the file; panels
of 100 columns. The machine ``paragon`` was calibrated on another paper.

Source: Nieplocha, Foster, "Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
Computations", section 5.2.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from outcore.base.distribution import ProcessGrid
from outcore.model.machines.machine import Machine
from outcore.model.simulate.methods import Case, SimulatedArray
from outcore.model.simulate.paper_figures import (
    Check,
    Found,
    PaperFigures,
    compute_rate,
    simulate_buffered,
)

__all__ = [
    *(
        "EDGE",
        "FIGURES",
        "PAPER_FIGURES",
        "PROCESSOR",
        "SECTIONS",
        "ProductPoint",
        "Times",
        "compute_seconds",
    ),
]

FIGURES = (8,)
#: Rows and columns of each matrix, and of a section by number of processors.
EDGE, SECTIONS = 10_000, {64: 2000, 128: 2000, 256: 2500}
#: Mflop/s of a processor for data in memory.
PROCESSOR = 45.0
_ITEM = 8
_IO_RANKS, _BUFFER, _PANEL = 32, 2_000_000, 100
# Thresholds for "approximately constant" (ratio of rates), "good", "significant" and "around 50
# percent".
_CONSTANT, _GOOD, _SIGNIFICANT, _AROUND = 1.1, 0.8, 0.1, 0.1
_PROGRAMS = {"as in the paper": False, "C behind": True}


@dataclass(frozen=True)
class Times:
    """
    Seconds of the repeated steps of a program.

    `multiply` is the product of a section of A and a section of B, in memory; the others are transfers
    of a section from or to the disks, without other requests.
    """

    multiply: float
    read_a: float
    read_b: float
    write_c: float


@dataclass(frozen=True)
class ProductPoint:
    """
    One simulated bar of the figure.

    `section` is the number of rows of a section of A, equal to the columns of a section of B. `in_core`
    and `seconds` are those of all products in memory, and of the whole program.
    """

    figure: int
    program: str
    ranks: int
    section: int
    times: Times
    in_core: float
    seconds: float

    @property
    def rate(self) -> float:
        """Mflop/s of the whole program."""
        return 2e-6 * EDGE**3 / self.seconds

    @property
    def in_core_rate(self) -> float:
        """Mflop/s of its products in memory."""
        return 2e-6 * EDGE**3 / self.in_core

    @property
    def efficiency(self) -> float:
        """Time in memory divided by the time of the whole program."""
        return self.in_core / self.seconds

    @property
    def needed(self) -> float:
        """Rate in MB/s at which all of B must be read while processors multiply: equation (1)."""
        return 4 * self.in_core_rate / self.section

    @property
    def had(self) -> float:
        """Rate in MB/s at which B is read."""
        return compute_rate(_ITEM * EDGE * self.section, self.times.read_b)


def compute_seconds(times: Times, chunks: int, *, behind: bool) -> float:
    """
    Return the seconds of a program with this many sections of A, and of B.

    `behind`: a section of C is written while the next one is computed; then there are two sections of C.

    Examples
    --------
    With one section, it is read, multiplied and written. With two, B is read while processors multiply.

    >>> compute_seconds(Times(10.0, 1.0, 2.0, 0.5), 1, behind=False)
    13.5
    >>> compute_seconds(Times(10.0, 1.0, 2.0, 0.5), 2, behind=False)
    46.0
    """
    now = 0.0  # time of the processors
    disks = ready = times.read_b  # when the disks are free; when the section of B is in memory
    written = [0.0, 0.0]  # when the memory of a section of C is free
    for step in range(chunks * chunks):
        if step % chunks == 0:
            now = disks = max(now, disks) + times.read_a
        now = max(now, ready)
        if step + 1 < chunks * chunks:
            ready = disks = max(now, disks) + times.read_b
        now = max(now, written[step % 2]) + times.multiply
        disks = max(now, disks) + times.write_c
        written[step % 2] = disks
        if not behind:
            now = disks
    return max(now, disks)


def _time_transfer(nbytes: int, model: Machine, *, write: bool) -> float:
    """Return the seconds of a section: consecutive blocks, distributed over the I/O processors."""
    whole = EDGE * EDGE * _ITEM // _BUFFER
    blocks = [
        (number % _IO_RANKS, (slice(number, number + 1, 1), slice(0, _BUFFER, 1)))
        for number in range(-(-nbytes // _BUFFER))
    ]
    case = Case(_IO_RANKS, (SimulatedArray((whole, _BUFFER), 1, "C", blocks),), write)
    return simulate_buffered(case, model, _BUFFER).seconds


def _time_product(ranks: int, section: int, model: Machine) -> float:
    """Return the seconds of a product of two sections by SUMMA."""
    down, across = ProcessGrid(size=ranks, ndim=2).shape
    own = 2e-6 * section * section * EDGE / ranks / PROCESSOR
    # Each panel is received from one neighbour while the previous one is sent to the next.
    come = _ITEM * EDGE * (section / down * (across > 1) + section / across * (down > 1))
    messages = 2 * 2 * -(-EDGE // _PANEL) * model.message_ns / 1e9
    return own + come / model.message_rate + messages


@functools.cache
def _simulate_point(program: str, ranks: int, model: Machine) -> ProductPoint:
    section = SECTIONS[ranks]
    chunks, panel = EDGE // section, _ITEM * EDGE * section
    times = Times(
        _time_product(ranks, section, model),
        _time_transfer(panel, model, write=False),
        _time_transfer(panel, model, write=False),
        _time_transfer(_ITEM * section * section, model, write=True),
    )
    seconds = compute_seconds(times, chunks, behind=_PROGRAMS[program])
    return ProductPoint(
        8, program, ranks, section, times, chunks * chunks * times.multiply, seconds
    )


def _simulate(_figure: int, model: Machine) -> list[ProductPoint]:
    """Return the points of the figure, for both programs."""
    return [_simulate_point(program, ranks, model) for program in _PROGRAMS for ranks in SECTIONS]


# ---------------------------------------------------------------------------------------- claims


def _format_each(some: Sequence[ProductPoint], values: Sequence[str]) -> str:
    return ", ".join(f"{value} with {one.ranks}" for one, value in zip(some, values, strict=True))


def _check_efficiency(some: Sequence[ProductPoint]) -> Found:
    found = [one.efficiency for one in some]
    return found == sorted(found, reverse=True), _format_each(
        some, [f"{100 * e:.0f} %" for e in found]
    )


def _check_constant_rate(some: Sequence[ProductPoint]) -> Found:
    rates, flops = [one.had for one in some], [one.in_core_rate for one in some]
    holds = max(rates) <= _CONSTANT * min(rates) and flops == sorted(flops)
    return holds, (
        f"B comes with {min(rates):.1f} to {max(rates):.1f} MB/s, products go from {min(flops):.0f} to "
        f"{max(flops):.0f} Mflop/s"
    )


def _check_good_efficiency(some: Sequence[ProductPoint]) -> Found:
    few = [one for one in some if one.ranks in (64, 128)]
    told = _format_each(few, [f"{100 * one.efficiency:.0f} %" for one in few])
    return all(one.efficiency >= _GOOD for one in few), f"{told} (taken for {_GOOD:.0%} or more)"


def _check_significant_io(some: Sequence[ProductPoint]) -> Found:
    (last,) = (one for one in some if one.ranks == 256)
    part = 1 - last.efficiency
    return part >= _SIGNIFICANT, f"{part:.0%} of the time (taken for {_SIGNIFICANT:.0%} or more)"


def _check_overlap(some: Sequence[ProductPoint]) -> Found:
    told = _format_each(some, [f"{one.needed:.1f} of {one.had:.1f} MB/s needed" for one in some])
    # Waiting time without the reads of the first section of B and of A, and the writes of C.
    waited = 0.0
    for one in some:
        chunks, times = EDGE // one.section, one.times
        rest = times.read_b + chunks * times.read_a + chunks * chunks * times.write_c
        waited = max(waited, one.seconds - one.in_core - rest)
    enough = all(one.had >= one.needed for one in some)
    return enough and waited < 1e-6, f"{told}; waited for B, after the first: {waited:.1f} s"


def _check_memory(some: Sequence[ProductPoint]) -> Found:
    more = [EDGE / (2 * EDGE + one.section) for one in some]
    holds = all(abs(one - 0.5) <= _AROUND for one in more)
    return holds, f"{min(more):.0%} to {max(more):.0%}, one section more of B"


def _pair_sentences(_figure: int, _model: Machine) -> list[tuple[str, Check[ProductPoint]]]:
    """Return the sentences of the text, which are about the program of the paper."""
    return [(said, functools.partial(_check_paper_program, check)) for said, check in _CHECKS]


def _check_paper_program(check: Check[ProductPoint], some: Sequence[ProductPoint]) -> Found:
    return check([one for one in some if one.program == next(iter(_PROGRAMS))])


_CHECKS: tuple[tuple[str, Check[ProductPoint]], ...] = (
    ("efficiency degrades as the number of processors increases", _check_efficiency),
    (
        "the I/O transfer rate remains approximately constant while the floating-point "
        "performance increases with processor count",
        _check_constant_rate,
    ),
    ("We observe good overall performance on 64 and 128 processors", _check_good_efficiency),
    (
        "For 256 processors, the matrix becomes too small, and I/O costs become significant",
        _check_significant_io,
    ),
    (
        "prefetching of blocks of matrix B can be fully overlapped with computation if "
        "sufficient I/O bandwidth [...] is available",
        _check_overlap,
    ),
    ("Prefetching increases memory requirements by around 50 percent", _check_memory),
)


# ------------------------------------------------------------------------------------- printed


def _make_title(figure: int) -> str:
    return (
        f"Disk Resident Arrays, figure {figure}: Mflop/s of a product of {EDGE} x {EDGE}, and what part "
        "of those in memory"
    )


def _make_table(_figure: int, _model: Machine, some: Sequence[ProductPoint]) -> list[str]:
    head = (
        f"{'program':<18}{'processors':>11}{'section':>9}{'in memory':>11}{'out of core':>13}"
        f"{'efficiency':>12}{'seconds':>9}"
    )
    rows = [
        f"{one.program:<18}{one.ranks:>11}{one.section:>9}{one.in_core_rate:>11.0f}{one.rate:>13.0f}"
        f"{one.efficiency:>12.1%}{one.seconds:>9.0f}"
        for one in some
    ]
    return [head, *rows]


#: Figure 8.
PAPER_FIGURES = PaperFigures[ProductPoint](
    title=_make_title,
    machine_of=lambda _figure: "paragon",
    simulate=_simulate,
    sentences=_pair_sentences,
    table=_make_table,
    note=f", {PROCESSOR:g} Mflop/s a processor: chosen",
)
