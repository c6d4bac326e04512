"""
Simulate the I/O of the papers' programs: products, Laplace's equation, FFT, sieving.

Problem: tables 9 and 10 of the extended two-phase paper, and 3, 4 and 10 of the PASSION report, time
whole programs on the Delta.
Approach: a program is a list of accesses (`Case`), each with a number of repetitions; its time is the
sum of their times on the machine, which was calibrated on table 7 of the extended two-phase paper and on
nothing here. Arithmetic is omitted: the report calls the time "dominated by I/O".

The papers do not specify the following, which were chosen, equal for all cells of a table:

- products: the memory of a processor holds parts of 256 rows of A and of 128 columns of B (`_ROWS`,
  `_COLUMNS`: the powers of two that fit table 9 best);
- Laplace's equation: 10 iterations, as in the report, and two blocks for each processor;
- local array files begin on one disk after another, and have overlap columns; slabs are a quarter;
- elements of the FFT are 16 bytes; a processor writes the elements of a slab that it gets from a
  transposition by sieving, as "all PASSION routines involving array sections" do.

Reference: Thakur, Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
Arrays", sections 2 and 5.2; Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library
for Parallel I/O", sections 4.3 and 4.5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from outcore.model.machines import tables
from outcore.model.machines.machine import Machine, machine
from outcore.model.simulate.methods import Case, Method, Outcome, SimulatedArray, simulate
from outcore.model.simulate.paper import Cell, compare_measurement, cut_part

__all__ = [
    "TABLES",
    "Access",
    "list_laplace_accesses",
    "list_product_accesses",
    "simulate_fft",
    "simulate_laplace",
    "simulate_programs",
    "simulate_sieving",
]

_REAL, _COMPLEX = 4, 16
_ROWS, _COLUMNS = 256, 128
_ITERATIONS, _BLOCKS_EACH = 10, 2
_SLABS = 4

Section = tuple[slice, ...]


@dataclass(frozen=True)
class Access:
    """Collective access, or independent accesses of ranks, with a number of repetitions."""

    case: Case
    times: int = 1


def _make_global_case(
    n: int, sections: Sequence[tuple[int, Section]], write: bool, ranks: int
) -> Case:
    """Return sections of one array of the paper: column-major, single precision."""
    some = [s for s in sections if all(len(range(*part.indices(n))) for part in s[1])]
    return Case(ranks, (SimulatedArray((n, n), _REAL, "F", some),), write)


# ---------------------------------------------------- tables 9 and 10 of the extended two-phase paper


def list_product_accesses(n: int, ranks: int) -> Iterator[Access]:
    """Yield the accesses of GAXPY: all of B is read for some rows of A, then blocks of C are written."""
    rows, columns = min(_ROWS, n), min(_COLUMNS, n)
    high, wide = n // rows, n // columns
    a = [(p, (slice(0, rows), cut_part(n, ranks, p))) for p in range(ranks)]
    b = [(p, (cut_part(n, ranks, p), slice(0, columns))) for p in range(ranks)]
    c = [(p, (slice(0, rows), cut_part(columns, ranks, p))) for p in range(ranks)]
    yield Access(_make_global_case(n, a, False, ranks), high)
    yield Access(_make_global_case(n, b, False, ranks), high * wide)
    yield Access(_make_global_case(n, c, True, ranks), high * wide)


def list_laplace_accesses(n: int, ranks: int) -> Iterator[Access]:
    """Yield blocks assigned to processors round-robin: read with their border, written without."""
    blocks = ranks * _BLOCKS_EACH
    down = 1 << (blocks.bit_length() - 1) // 2
    across = blocks // down
    places = [(i, j) for j in range(across) for i in range(down)]
    for first in range(0, len(places), ranks):
        wanted, given = [], []
        for p, (i, j) in enumerate(places[first : first + ranks]):
            block = cut_part(n, down, i), cut_part(n, across, j)
            around = tuple(slice(max(s.start - 1, 0), min(s.stop + 1, n)) for s in block)
            wanted.append((p, around))
            given.append((p, block))
        yield Access(_make_global_case(n, wanted, False, ranks), _ITERATIONS)
        yield Access(_make_global_case(n, given, True, ranks), _ITERATIONS)


def simulate_programs(model: Machine | None = None) -> list[Cell]:
    """Return tables 9 and 10 of the extended two-phase paper: I/O seconds of whole programs."""
    model = model or machine("delta")
    kinds: dict[str, Callable[[int, int], Iterator[Access]]] = {
        "matmul": list_product_accesses,
        "laplace": list_laplace_accesses,
    }
    found = []
    for cell in tables.programs():
        n = cell.shape[0]
        ours = _time_accesses(kinds[cell.name](n, cell.ranks), model, cast(Method, cell.method))
        found.append(compare_measurement("extended", f"{n} x {n}", cell, ours))
    return found


def _time_accesses(accesses: Iterable[Access], model: Machine, method: Method) -> float:
    return sum(
        each.times * simulate(each.case, model, method, leaves_out=False).seconds
        for each in accesses
    )


# ------------------------------------------------------------------- local array files (PASSION)


def _make_files(
    ranks: int,
    shape: tuple[int, ...],
    itemsize: int,
    sections: Callable[[int], list[tuple[int, Section]]],
    model: Machine,
    *,
    write: bool = False,
) -> Case:
    """Return one file per rank, with sections of some ranks; each file begins on another disk."""
    filler = SimulatedArray((model.stripe,), 1, "C", [])
    arrays: list[SimulatedArray] = []
    for owner in range(ranks):
        arrays += [SimulatedArray(shape, itemsize, "F", sections(owner)), filler]
    return Case(ranks, tuple(arrays), write)


def _make_own_sections(section: Section) -> Callable[[int], list[tuple[int, Section]]]:
    return lambda owner: [(owner, section)]


def _time_message(model: Machine, nbytes: int) -> float:
    """Return the seconds of a message to another node."""
    return (2 * model.message_ns + nbytes * 1_000_000_000 // model.message_rate) / 1e9


def simulate_laplace(model: Machine | None = None) -> list[Cell]:
    """
    Return table 3 of the PASSION report: Jacobi by slabs of local array files.

    ``direct`` reads the neighbours' boundary columns from their files; ``two-phase`` reads the rank's
    own and sends them; ``reuse`` keeps the columns that the next slab needs again.
    """
    model = model or machine("delta")
    return [
        compare_measurement(
            "passion",
            f"{cell.shape[0]} x {cell.shape[1]}",
            cell,
            _time_jacobi(cell.shape[0], cell.ranks, cell.method, model),
        )
        for cell in tables.passion(3)
    ]


@functools.cache
def _time_jacobi(n: int, ranks: int, method: str, model: Machine) -> float:
    mine = n // ranks
    shape, rows = (n, mine + 2), slice(0, n)  # with a column from each neighbour

    def neighbours(owner: int) -> list[tuple[int, Section]]:
        first, last = (rows, slice(1, 2)), (rows, slice(mine, mine + 1))
        wanted = [(owner - 1, first), (owner + 1, last)]
        return [(rank, section) for rank, section in wanted if 0 <= rank < ranks]

    def seconds(case: Case) -> float:
        return simulate(case, model, "sieve", leaves_out=False).seconds

    border = (rows, slice(0, mine + 2, mine + 1))
    if method == "direct":
        shift = simulate(
            _make_files(ranks, shape, _REAL, neighbours, model), model, "direct"
        ).seconds
    else:
        own = (rows, slice(1, mine + 1, max(mine - 1, 1)))
        reads = _make_files(ranks, shape, _REAL, _make_own_sections(own), model)
        shift = simulate(reads, model, "direct").seconds + 2 * _time_message(model, n * _REAL)
    writes = _make_files(ranks, shape, _REAL, _make_own_sections(border), model, write=True)
    shift += simulate(writes, model, "direct", leaves_out=False).seconds
    sweep = 0.0
    for number in range(_SLABS):
        part = cut_part(mine, _SLABS, number)
        begin = part.start if method != "reuse" or number == 0 else part.start + 2
        wanted = (rows, slice(begin, part.stop + 2))
        sweep += seconds(_make_files(ranks, shape, _REAL, _make_own_sections(wanted), model))
        given = (rows, slice(part.start + 1, part.stop + 1))
        sweep += seconds(
            _make_files(ranks, shape, _REAL, _make_own_sections(given), model, write=True)
        )
    return _ITERATIONS * (shift + sweep)


def simulate_fft(model: Machine | None = None) -> list[Cell]:
    """
    Return table 4 of the PASSION report: FFT, transposition, FFT, by slabs of local array files.

    For a slab of `w` columns, each processor gets from each other processor `w` elements of each of its
    own columns: for each slab, as many short runs as the array has columns, scattered over its file.
    They are sieved through memory as large as a slab.
    """
    model = model or machine("delta")
    return [
        compare_measurement(
            "passion",
            f"{cell.shape[0]} x {cell.shape[1]}",
            cell,
            _time_transform(cell.shape[0], cell.ranks, int(cell.method.removeprefix("1/")), model),
        )
        for cell in tables.passion(4)
    ]


def _time_transform(n: int, ranks: int, slabs: int, model: Machine) -> float:
    mine = n // ranks
    wide = max(mine // slabs, 1)
    whole = (slice(0, n), slice(0, wide))

    def seconds(section: Section, shape: tuple[int, ...], write: bool) -> float:
        case = _make_files(ranks, shape, _COMPLEX, _make_own_sections(section), model, write=write)
        slot = wide * n * _COMPLEX
        return simulate(case, model, "sieve", slot=slot, leaves_out=False).seconds

    read, written = seconds(whole, (n, mine), False), seconds(whole, (n, mine), True)
    # The same file, with its first axis split into the axis of the rank and of the column.
    pieces = (slice(0, wide), slice(0, ranks), slice(0, mine))
    scattered = seconds(pieces, (mine, ranks, mine), True)
    sent = (ranks - 1) * _time_message(model, wide * mine * _COMPLEX)
    return slabs * (2 * (read + written) + read + sent + scattered)


def simulate_sieving(model: Machine | None = None) -> list[Cell]:
    """
    Return tables 10 and 11 of the PASSION report: sections of local arrays, direct and sieved.

    Table 11 counts requests, and elements that are read, of one processor. The report sieves whole
    columns; here a window begins and ends with an element of the section.
    """
    model = model or machine("delta")
    found = []
    for cell in tables.passion(10):
        outcome = _simulate_sieving(cell, model)
        row = f"{cell.section} {cell.operation}"
        found.append(compare_measurement("passion", row, cell, outcome.seconds))
    for cell in tables.passion(11):
        outcome = _simulate_sieving(cell, model)
        requests = cell.operation == "requests"
        each = outcome.requests if requests else outcome.bytes // cell.itemsize
        row, unit = f"{cell.section} {cell.operation}", cell.operation
        ours = each // cell.ranks
        found.append(compare_measurement("passion", row, cell, ours, unit=unit))
    return found


def _simulate_sieving(cell: tables.Measurement, model: Machine) -> Outcome:
    (section,) = tables.sections(cell.section, 1)
    case = _make_files(
        cell.ranks,
        cell.shape,
        cell.itemsize,
        _make_own_sections(section),
        model,
        write=cell.operation == "write",
    )
    slot = tables.SIEVED_COLUMNS * cell.shape[0] * cell.itemsize
    return simulate(case, model, cast(Method, cell.method), slot=slot, leaves_out=False)


_Table = Callable[[Machine | None], list[Cell]]


def _select_table(of: _Table, number: int) -> _Table:
    return lambda model: [cell for cell in of(model) if cell.table == number]


TABLES: dict[str, _Table] = {
    "passion 3": simulate_laplace,
    "passion 4": simulate_fft,
    "passion 10": _select_table(simulate_sieving, 10),
    "passion 11": _select_table(simulate_sieving, 11),
    "extended 9": _select_table(simulate_programs, 9),
    "extended 10": _select_table(simulate_programs, 10),
}
