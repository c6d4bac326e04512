"""
The command ``outcore simulate``: prints a table or one JSON document, or draws a picture.

``--paper`` prints the papers' tables next to simulated ones, or one of them. Otherwise, methods are
simulated for numbers of ranks on a machine, which is a named machine, a TOML file, or changed by
options.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from outcore.base.hints import parse_bytes
from outcore.base.report import format_bytes
from outcore.errors import UsageError
from outcore.model.machines.chart import ChartLine, draw_chart
from outcore.model.machines.machine import NAMES, Machine, machine
from outcore.model.simulate import disk_arrays, disk_products, figures, irregular
from outcore.model.simulate.cases import CASES, make_case, parse_case
from outcore.model.simulate.methods import METHODS, Case, Outcome, simulate
from outcore.model.simulate.molecular import MOLECULAR
from outcore.model.simulate.paper import (
    CALIBRATED,
    Cell,
    Summary,
    simulate_extended,
    simulate_multi,
    summarize,
)
from outcore.model.simulate.paper_figures import PaperFigures
from outcore.model.simulate.programs import TABLES

if TYPE_CHECKING:
    from outcore.model.simulate.methods import Method

__all__ = ["TEXT", "arguments", "run"]

TEXT = "simulate collective accesses on a modelled machine, without moving data"
_MORE = """\
methods:
  direct     each rank makes one request for each run of its section
  sieve      each rank transfers everything from its first to its last byte
  static     extended two-phase method, file domains of the whole array
  dynamic    the same, file domains of the bounding section
  requested  two-phase as in outcore
  auto       the faster one of requested and independent access, with the reason

cases: each rank accesses --bytes of an array that grows with the ranks
  rows, columns, blocks, cyclic (columns round-robin), common (all the same)
  random, clustered: single elements, or 64 consecutive ones; with methods
    direct      each rank makes one request for each block of elements
    collective  owners read or write chunks, then elements are exchanged
    pipelined   the same, both at the same time; owners in --groups

Sizes are bytes, or 16MiB, 2GB; times are 50us, 1.5ms; rates are bytes per
second. Columns of the table: virtual time until the last rank is done,
requests to servers and the bytes they transfer, messages between nodes,
rounds, time waiting for disks, and time of exchanges. The command runs in one
process without MPI, reads only --machine and writes only --svg. Exit status:
0, or 2 for invalid options.

outcore simulate --case blocks --bytes 64MiB --write --svg time.svg
outcore simulate --machine delta --ranks 4,16,64 \\
    --section '(1+8p:16+8p:1, 1:4096:1)' --shape 4096,4096
outcore simulate --case random --chunk 4MiB --groups 4 --io-ranks 548
outcore simulate --paper 'passion 10'
outcore simulate --paper 'irregular 12'
outcore simulate --paper 'dra 5'

Methods and tables: Thakur, Choudhary, "An Extended Two-Phase Method for
Accessing Sections of Out-of-Core Arrays", sections 3 to 5; Memik, Kandemir,
Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
section 6; Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime
Library for Parallel I/O", sections 4.3 to 4.5; No, Choudhary, "Techniques to
provide Run-Time Support for solving Irregular Problems", sections 3 and 4;
Nieplocha, Foster, "Disk Resident Arrays: An Array-Oriented I/O Library for
Out-of-Core Computations", section 5.
Accuracy of the models: docs/design/0015-simulated-machines.md and
0044-scattered-elements-are-simulated.md.
"""
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.epilog, parser.formatter_class = _MORE, argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--paper",
        nargs="?",
        const="all",
        metavar="TABLE",
        help="print the papers' tables next to simulated ones, or only TABLE: 'extended 1' to 'extended "
        "10', 'multi 4' to 'multi 6', 'passion 3', 4, 6 to 11; or a figure: 'irregular 9' to "
        "'irregular 15', 'dra 5', 'dra 6', 'dra 8'",
    )
    add("--machine", metavar="NAME", help=f"{', '.join(NAMES)}, or a TOML file (default: today)")
    add(
        "--ranks", default="1000,10000,100000", help="numbers of ranks (default: 1000,10000,100000)"
    )
    kinds = (*CASES, *irregular.CASES)
    add("--case", default="columns", choices=kinds, help="section of each rank (default: columns)")
    add(
        "--bytes",
        default="16MiB",
        metavar="SIZE",
        help="bytes that each rank accesses (default: 16MiB)",
    )
    add("--section", help="instead of --case: l:u:s for each axis, from 1, p is the rank")
    add("--shape", default="4096,4096", help="shape for --section (default: 4096,4096)")
    add("--itemsize", type=int, default=4, help="bytes of an element for --section (default: 4)")
    add("--order", choices=("C", "F"), default="F", help="order for --section (default: F)")
    add("--write", action="store_true", help="simulate writes instead of reads")
    add("--methods", help="comma-separated methods (default: all)")
    add("--chunk", metavar="SIZE", help="random, clustered: buffer of an owner (default: 64MiB)")
    add("--groups", type=int, metavar="N", help="random, clustered: groups of owners (default: 1)")
    add("--io-ranks", type=int, metavar="N", help="number of ranks that own parts of the file")
    add("--disks", type=int, metavar="N", help="machine: number of servers with a disk each")
    add("--latency", metavar="TIME", help="machine: cost of a request for a server, such as 50us")
    add(
        "--rate",
        metavar="SIZE",
        help="machine: read rate of a disk in bytes per second, such as 2GiB",
    )
    add(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any parameter of the machine, such as per_node=64",
    )
    add("--svg", metavar="FILE", help="plot time against ranks, with a line for each method")


def run(
    args: Any, print_json: Callable[[Any], None], write_picture: Callable[[str, str], None]
) -> int:
    """
    Run the command; return its exit status, 0.

    `write_picture` writes a picture to a path, for ``--svg``.
    """
    return (
        _run_paper(args, print_json)
        if args.paper
        else _run_scaling(args, print_json, write_picture)
    )


def _collect_changes(args: Any) -> dict[str, int]:
    """Return the parameters of the machine that options change."""
    changes: dict[str, int] = {}
    if args.disks is not None:
        changes["servers"] = args.disks
    if args.latency is not None:
        changes["request_ns"] = _parse_time(args.latency)
    if args.rate is not None:
        changes["disk_rate"] = parse_bytes(args.rate)
    for item in args.set:
        name, _, value = item.partition("=")
        if not re.fullmatch(r"[0-9][0-9_]*", value):
            raise UsageError(
                f"--set {item!r}: write NAME=VALUE with a whole number", code="bad-option"
            )
        changes[name] = int(value)
    return changes


def _parse_time(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ns|us|ms|s)", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a time; write 20us, 1.5ms or 800ns", code="bad-option")
    return round(float(match[1]) * _UNITS[match[2]])


# ------------------------------------------------------------------------------------- at scale


def _parse_numbers(text: str, name: str) -> list[int]:
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text) or 0 in map(int, text.split(",")):
        raise UsageError(
            f"--{name} {text!r}: write numbers of at least 1, such as 1000,10000", code="bad-option"
        )
    return [int(part) for part in text.split(",")]


def _make_simulator(args: Any, model: Machine) -> Callable[[int, str], Outcome]:
    """Return a function that simulates a method for a number of ranks."""
    if args.section is None and args.case in irregular.CASES:
        return _make_scattered_simulator(args, model)
    if args.chunk is not None or args.groups is not None:
        raise UsageError(
            f"--chunk and --groups are for irregular cases; use --case {' or '.join(irregular.CASES)}",
            code="bad-option",
        )

    @functools.cache
    def make_case(ranks: int) -> Case:
        return _make_case(args, ranks)

    return lambda ranks, method: simulate(
        make_case(ranks),
        model,
        cast("Method", method),
        io_ranks=_limit_io_ranks(args.io_ranks, ranks),
    )


def _limit_io_ranks(io_ranks: int | None, ranks: int) -> int | None:
    """Return the number of I/O ranks, for a case that may have fewer ranks than requested."""
    return None if io_ranks is None else min(io_ranks, ranks)


def _make_scattered_simulator(args: Any, model: Machine) -> Callable[[int, str], Outcome]:
    chunk = irregular.CHUNK if args.chunk is None else parse_bytes(args.chunk)
    groups = 1 if args.groups is None else args.groups

    def one(ranks: int, method: str) -> Outcome:
        return irregular.simulate_scattered(
            irregular.make_case(args.case, ranks, parse_bytes(args.bytes), write=args.write),
            model,
            cast("irregular.ScatteredMethod", method),
            chunk=chunk,
            groups=groups,
            io_ranks=_limit_io_ranks(args.io_ranks, ranks),
        )

    return one


def _choose_methods(args: Any) -> list[str]:
    scattered = args.section is None and args.case in irregular.CASES
    known: Sequence[str] = irregular.METHODS if scattered else METHODS
    asked = known if args.methods is None else args.methods.split(",")
    for name in asked:
        if name not in known:
            raise UsageError(
                f"--methods: {name!r} is not known; use {', '.join(known)}", code="bad-option"
            )
    return list(asked)


def _make_case(args: Any, ranks: int) -> Case:
    if args.section is None:
        return make_case(args.case, ranks, parse_bytes(args.bytes), write=args.write)
    shape = tuple(_parse_numbers(args.shape, "shape"))
    return parse_case(args.section, ranks, shape, args.itemsize, args.order, write=args.write)


def _run_scaling(
    args: Any, print_json: Callable[[Any], None], write_picture: Callable[[str, str], None]
) -> int:
    model = machine(args.machine or "today", **_collect_changes(args))
    ranks = _parse_numbers(args.ranks, "ranks")
    methods, simulator = _choose_methods(args), _make_simulator(args, model)
    found = {count: {method: simulator(count, method) for method in methods} for count in ranks}
    if args.svg is not None:
        write_picture(args.svg, _draw_picture(args, model, found))
    if args.json:
        rows = [
            {"ranks": count, "asked": method, "seconds": outcome.seconds, **vars(outcome)}
            for count, row in found.items()
            for method, outcome in row.items()
        ]
        print_json({"machine": dataclasses.asdict(model), "outcomes": rows})
        return 0
    print(model.about or model.name)
    print(_describe_access(args) + "\n")
    print(f"{'ranks':>8} {'method':<11} {'time':>9}  {'requests':>8} {'moved':>9}  ", end="")
    print(f"{'messages':>8} {'rounds':>6}  {'disks wait':>10} {'exchange':>9}")
    for count, row in found.items():
        for method, o in row.items():
            chosen = f"  {o.method.removeprefix('auto: ')}: {o.why}" if o.why else ""
            print(
                f"{count:>8} {method:<11} {_format_seconds(o.ns):>9}  {_format_count(o.requests):>8} "
                f"{format_bytes(o.bytes):>9}  {_format_count(o.messages):>8} {o.rounds:>6}  "
                f"{_format_seconds(o.io_ns):>10} {_format_seconds(o.exchange_ns):>9}{chosen}"
            )
    if args.svg is not None:
        print(f"\ndrawn: {args.svg}")
    return 0


def _describe_access(args: Any) -> str:
    """Describe the access of each rank."""
    verb = "writes" if args.write else "reads"
    if args.section is not None:
        return f"each rank p {verb} {args.section} of {args.shape}"
    return f"each rank {verb} {args.bytes} ({args.case})"


def _draw_picture(args: Any, model: Machine, found: dict[int, dict[str, Outcome]]) -> str:
    lines = [
        ChartLine(method, [(count, row[method].ns / 1e9) for count, row in sorted(found.items())])
        for method in next(iter(found.values()))
    ]
    return draw_chart(
        lines,
        title=f"Time against ranks: {_describe_access(args)}",
        x="ranks",
        y="seconds",
        note=model.about or model.name,
    )


def _format_seconds(ns: int) -> str:
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns} ns"


def _format_count(n: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**4)):
        if n >= size:
            return f"{n / (1000 if unit == 'k' else size):.3g}{unit}"
    return str(n)


# -------------------------------------------------------------------------------------- papers


def _run_paper(args: Any, print_json: Callable[[Any], None]) -> int:
    changes, name = _collect_changes(args), " ".join(args.paper.lower().split())
    # Use the machine of each paper, unless the user requests one.
    asked = None if args.machine is None else machine(args.machine, **changes)

    def model(usual: str) -> Machine:
        return asked or machine(usual, **changes)

    drawn = _choose_figures(name)
    cells = [] if drawn and name != "all" else _simulate_cells(name, model)
    facts = summarize(cells)
    if args.json:
        used = [model(usual) for usual in _list_machines(cells, drawn)]
        print_json(
            {
                "machines": [dataclasses.asdict(one) for one in used],
                "calibrated": CALIBRATED,
                "cells": [{**vars(cell), "ratio": cell.ratio} for cell in cells],
                "summaries": facts,
                "points": [
                    {**vars(point), "rate": point.rate}
                    for of, figure in drawn
                    for point in of.points(figure, model(of.machine_of(figure)))
                ],
                "claims": [
                    vars(claim)
                    for of, figure in drawn
                    for claim in of.claims(figure, model(of.machine_of(figure)))
                ],
                "rates": [
                    {**vars(one), "ratio": one.ratio}
                    for of, figure in drawn
                    if of is disk_arrays.PAPER_FIGURES
                    for one in disk_arrays.compare_rates(figure, model(of.machine_of(figure)))
                ],
            }
        )
        return 0
    for facts_of in facts:
        table = [c for c in cells if (c.paper, c.table) == (facts_of.paper, facts_of.table)]
        _print_table(facts_of, table)
    for of, figure in drawn:
        print("\n".join(of.lines(figure, model(of.machine_of(figure)))) + "\n")
    if facts:
        _print_summary(facts, summarize(cells, fitted=False))
    if asked is None and not changes:
        for usual in _list_machines(cells, drawn):
            print(f"{usual} was calibrated on {CALIBRATED[usual]}.")
    return 0


# By name: figures of a paper that are simulated in the same way, and the number of one.
_Drawn = tuple[PaperFigures[Any], int]
_DRAWN: dict[str, _Drawn] = {
    **{f"irregular {figure}": (figures.PAPER_FIGURES, figure) for figure in figures.FIGURES},
    **{f"dra {figure}": (disk_arrays.PAPER_FIGURES, figure) for figure in disk_arrays.FIGURES},
    **{f"dra {figure}": (disk_products.PAPER_FIGURES, figure) for figure in disk_products.FIGURES},
}


def _choose_figures(name: str) -> list[_Drawn]:
    """Return the requested figures."""
    return [drawn for known, drawn in _DRAWN.items() if name in ("all", known)]


def _list_machines(cells: Sequence[Cell], drawn: Sequence[_Drawn]) -> list[str]:
    """Return the machines of cells and figures."""
    of_cells = {
        "ipsc" if f"{cell.paper} {cell.table}" in MOLECULAR else _MACHINES[cell.paper]
        for cell in cells
    }
    return sorted(of_cells | {of.machine_of(figure) for of, figure in drawn})


_MACHINES = {"extended": "delta", "passion": "delta", "multi": "sp2"}


def _simulate_cells(name: str, model: Callable[[str], Machine]) -> list[Cell]:
    """Return the cells of all tables, or of the requested one."""
    delta, sp2 = model("delta"), model("sp2")
    if name == "all":
        programs = [cell for table in TABLES.values() for cell in table(delta)]
        programs += [cell for table in MOLECULAR.values() for cell in table(model("ipsc"))]
        return simulate_extended(delta) + simulate_multi(sp2) + programs
    if name in TABLES:
        return TABLES[name](delta)
    if name in MOLECULAR:
        return MOLECULAR[name](model("ipsc"))
    paper, _, number = name.partition(" ")
    if paper == "extended" and number in map(str, range(1, 9)):
        return simulate_extended(delta, table=int(number))
    if paper == "multi" and number in ("4", "5", "6"):
        return [cell for cell in simulate_multi(sp2) if cell.table == int(number)]
    raise UsageError(
        f"--paper {name!r} is not known; use 'extended 1' to 'extended 10', 'irregular 9' to "
        "'irregular 15', 'multi 4' to 'multi 6', 'passion 3', 'passion 4', 'passion 6' to 'passion 11', "
        "'dra 5', 'dra 6', 'dra 8'",
        code="bad-option",
    )


_TITLES = {
    "extended": "Extended two-phase method",
    "multi": "Multi-collective I/O",
    "passion": "PASSION report",
}
_UNIT_NAMES = {"s": "seconds", "%": "percent saved"}


def _print_table(facts: Summary, cells: Sequence[Cell]) -> None:
    columns = list(dict.fromkeys((cell.ranks, cell.column) for cell in cells))
    rows = list(dict.fromkeys(cell.row for cell in cells))
    places = {(cell.row, cell.ranks, cell.column): cell for cell in cells}
    wide = max(len(row) for row in rows) + 2
    unit = _UNIT_NAMES.get(cells[0].unit, "of one processor")
    print(f"{_TITLES[facts.paper]}, table {facts.table} ({unit})")
    names = {"static": "stat", "dynamic": "dyn", "saved": "", "six calls": "six", "one call": "one"}
    names["two-phase"] = "2-phase"
    heads = [f"{ranks} {names.get(name, name)}".strip() for ranks, name in columns]
    print(" " * (wide + 6) + "".join(f"{head:>10}" for head in heads))
    for row in rows:
        line = [places.get((row, *column)) for column in columns]
        for label in ("theirs", "ours", "ratio"):
            values = "".join(f"{_format_cell(cell, label) if cell else '':>10}" for cell in line)
            print(f"{row if label == 'theirs' else '':<{wide}}{label:<6}{values}")
    print()


def _format_cell(cell: Cell, label: str) -> str:
    if label == "ratio":
        return f"x{cell.ratio:.2f}" + ("*" if cell.fitted else " ")
    value = cell.theirs if label == "theirs" else cell.ours
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _print_summary(facts: Sequence[Summary], predicted: Sequence[Summary]) -> None:
    print("Factor between ours and theirs (1 is exact), and rows with the methods in their order")
    print(f"{'table':<14}{'cells':>6}{'median':>8}{'worst':>7}", end="")
    print(f"{'not fitted':>12}{'median':>8}{'worst':>7}{'order':>10}")
    for fact, other in zip(facts, predicted, strict=True):
        order = f"{fact.alike}/{fact.rows}" if fact.rows else "-"
        print(f"{fact.paper + ' ' + str(fact.table):<14}{fact.cells:>6}", end="")
        print(f"{fact.median:>8.2f}{fact.worst:>7.1f}{other.cells:>12}", end="")
        print(f"{other.median:>8.2f}{other.worst:>7.1f}{order:>10}")
    print("* fitted; for percentages, the ratio of the remaining times\n")
