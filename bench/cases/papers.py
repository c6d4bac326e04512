"""
Question: what are the papers' own tables today, on this machine and on a model of theirs?

Expected: what made direct access slow in 1994, requests of some bytes to few slow disks, is hidden by
page cache and disk today; the model (`outcore simulate --paper`) and a throttled device (``--cache
slow``) bring it back. Tables: PASSION 3 (Laplace), 4 (2-D FFT), 6 to 9 (molecular dynamics), 10 and 11
(sieving), 13 (prefetching); extended two-phase 9 (product) and 10 (Laplace); figures 9 to 15 of the
irregular paper; 5, 6 and 8 of the one on disk resident arrays. Choose with ``--tables "passion 10"
"extended 9" "irregular 12" "dra 5"``; each prints theirs, here, and the model where there is one.
Results are compared element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import Row, save
from outcore.model.machines import tables
from outcore.model.simulate.molecular import MOLECULAR
from outcore.model.simulate.programs import TABLES
from papers import disk_arrays, disk_product, irregular_figures

NAMES = (
    *(f"passion {n}" for n in (3, 4, 6, 7, 8, 9, 10, 11, 13)),
    *("extended 9", "extended 10"),
    *(f"irregular {n}" for n in irregular_figures.FIGURES),
    *(f"dra {n}" for n in (*disk_arrays.FIGURES, *disk_product.FIGURES)),
)


def run(options: Any) -> None:
    """Print the tables that are asked for; append raw figures to ``papers.jsonl``."""
    wanted = [" ".join(name.lower().split()) for name in options.tables] or list(NAMES)
    for name in wanted:
        if name not in NAMES:
            raise SystemExit(f"no table is called {name!r}; tables: {', '.join(NAMES)}")
    for name in wanted:
        print(f"\n## {_TITLES[name]}\n", flush=True)
        paper, number = name.split()
        if paper == "extended":
            _ranks(options, int(number))
        elif paper == "irregular":
            _figure(irregular_figures, int(number), options)
        elif paper == "dra":
            module = disk_product if int(number) in disk_product.FIGURES else disk_arrays
            _figure(module, int(number), options)
        else:
            _ONE_PROCESS[int(number)](options)


_TITLES = {
    "passion 3": "PASSION report, table 3: Laplace's equation, 10 iterations, seconds",
    "passion 4": "PASSION report, table 4: 2-D FFT, seconds by slab size",
    **{
        f"passion {n}": f"PASSION report, table {n}: molecular dynamics, {what} atoms, seconds"
        for n, what in zip(
            (6, 7, 8, 9),
            (
                "pre-processing, 14K",
                "pre-processing, 6K",
                "one iteration, 14K",
                "one iteration, 6K",
            ),
            strict=True,
        )
    },
    "passion 10": "PASSION report, table 10: direct access and data sieving, 64 local arrays",
    "passion 11": "PASSION report, table 11: requests, and elements read, of one local array",
    "passion 13": "PASSION report, table 13: product without and with prefetching",
    "extended 9": "Extended two-phase method, table 9: I/O of a product, seconds",
    "extended 10": "Extended two-phase method, table 10: I/O of Laplace's equation, seconds",
    **{f"irregular {n}": irregular_figures.title(n) for n in irregular_figures.FIGURES},
    **{f"dra {n}": disk_arrays.title(n) for n in disk_arrays.FIGURES},
    **{f"dra {n}": disk_product.title(n) for n in disk_product.FIGURES},
}


def _figure(module: Any, number: int, options: Any) -> None:
    """A figure: theirs in words, the model's curves and what the text says of them, and here."""
    for line in module.theirs(number):
        print(line)
    print("\n```text\n" + "\n".join(module.lines(number)) + "\n```\n")
    module.run(number, options, _print)


def _print(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print("| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(_cell(value) for value in row) + " |")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if value == float("inf") else f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)


def _modelled(name: str) -> dict[tuple[str, int, str], float]:
    made = {**TABLES, **MOLECULAR}[name](None)
    return {(cell.row, cell.ranks, cell.column): cell.ours for cell in made}


def _keep(options: Any, question: str, rows: Sequence[Row]) -> None:
    save(options.results / "papers.jsonl", question, list(rows))


# ------------------------------------------------------------------------------------ one process


def _laplace(options: Any) -> None:
    from papers import whole

    model = _modelled("passion 3")
    here = whole.laplace(Path(options.folder), options.repeat)
    _keep(options, "passion 3", list(here.values()))
    ways = [*dict.fromkeys(cell.method for cell in tables.passion(3))]
    mine = [*dict.fromkeys(way for row in here.values() for way in row.seconds)]
    rows = []
    for shape, ranks in dict.fromkeys((c.shape, c.ranks) for c in tables.passion(3)):
        name = f"{shape[0]} x {shape[1]}"
        theirs = [c.seconds for c in tables.passion(3) if (c.shape, c.ranks) == (shape, ranks)]
        modelled = [model[name, ranks, way] for way in ways]
        rows.append(
            [
                f"{name}, {ranks} processors",
                *theirs,
                *modelled,
                *(here[name].median(w) for w in mine),
            ]
        )
    heads = [f"theirs, {way}" for way in ways] + [f"model, {way}" for way in ways]
    _print(["", *heads, *(f"here, {way}" for way in mine)], rows)


def _fft(options: Any) -> None:
    from papers import whole

    model = _modelled("passion 4")
    cells = tables.passion(4)
    ways = [*dict.fromkeys(cell.method for cell in cells)]
    rows: list[list[Any]] = []
    for ranks in dict.fromkeys(cell.ranks for cell in cells):
        rows.append([f"theirs, {ranks}", *(c.seconds for c in cells if c.ranks == ranks)])
        name = f"{cells[0].shape[0]} x {cells[0].shape[1]}"
        rows.append([f"model, {ranks}", *(model[name, ranks, way] for way in ways)])
    for row in whole.fft(Path(options.folder), options.repeat).values():
        rows.append(["here, 1 process", *(row.median(way) for way in ways)])
        _keep(options, "passion 4", [row])
    _print(["4096 x 4096", *ways], rows)


def _sieving(options: Any) -> None:
    from papers import local_files

    model = _modelled("passion 10")
    for cache in [c for c in options.cache if c != "slow"]:
        found = local_files.sieving(Path(options.folder), cache, options.repeat, files=64)
        _keep(options, f"passion 10, {cache}", list(found.values()))
        rows = []
        for (section, operation), row in found.items():
            theirs = [
                c.seconds
                for c in tables.passion(10)
                if (c.section, c.operation) == (section, operation)
            ]
            modelled = [model[f"{section} {operation}", 64, way] for way in ("direct", "sieve")]
            here = [row.median(way) for way in local_files.WAYS]
            gains = [two[0] / two[1] for two in (theirs, modelled, here)]
            rows.append([f"{section} {operation}", *theirs, *modelled, *here, *gains])
        print(f"here: {cache} files, one process for all 64; last: direct by sieve\n")
        who = ["theirs, direct", "sieve", "model, direct", "sieve", "here, direct", "sieve"]
        _print(["section", *who, "auto", "theirs", "model", "here"], rows)
        print()


def _counts(options: Any) -> None:
    from papers import local_files

    found = local_files.counts(Path(options.folder))
    rows = []
    for (section, operation), here in found.items():
        theirs = [
            int(c.seconds)
            for c in tables.passion(11)
            if (c.section, c.operation) == (section, operation)
        ]
        rows.append([f"{section} {operation}", *theirs, *here.values()])
    _print(["section", "theirs, direct", "sieve", "here, direct", "sieve", "auto"], rows)


def _molecular(table: int) -> Callable[[Any], None]:
    def show(options: Any) -> None:
        from papers import molecular

        cells, model = tables.passion(table), _modelled(f"passion {table}")
        row_name = next(row for row, _, _ in model)
        slabs = [*dict.fromkeys(cell.method for cell in cells)]
        rows: list[list[Any]] = []
        for ranks in dict.fromkeys(cell.ranks for cell in cells):
            of = {cell.method: cell.seconds for cell in cells if cell.ranks == ranks}
            rows.append([f"theirs, {ranks} processors", *(of[slab] for slab in slabs)])
            modelled = (model[row_name, ranks, slab] for slab in slabs)
            rows.append([f"model, {ranks} processors", *modelled])
        atoms = molecular.atoms_of(table)
        row = molecular.here(Path(options.folder), atoms, slabs, options.repeat)[cells[0].operation]
        rows.append(["here, 1 process", *(row.median(slab) for slab in slabs)])
        _keep(options, f"passion {table}", [row])
        _print(["slabs of", *slabs], rows)
        for note in sorted({cell.note for cell in cells if cell.note}):
            print(f"theirs, 4 processors: {note}")

    return show


def _prefetch(options: Any) -> None:
    from papers import whole

    cells = tables.passion(13)
    rows: list[list[Any]] = []
    for ranks in dict.fromkeys(cell.ranks for cell in cells):
        waiting, ahead = (c.seconds for c in cells if c.ranks == ranks)
        rows.append(
            [f"theirs, 512, {ranks} processors", waiting, ahead, 100 * (1 - ahead / waiting)]
        )
    for name, row in whole.product(Path(options.folder), options.repeat).items():
        waiting, ahead = row.median("waiting"), row.median("prefetching")
        rows.append([f"here, {name}", waiting, ahead, 100 * (1 - ahead / waiting)])
        _keep(options, "passion 13", [row])
    _print(["", "without", "with", "saved, %"], rows)


_ONE_PROCESS: dict[int, Callable[[Any], None]] = {
    3: _laplace,
    4: _fft,
    **{table: _molecular(table) for table in (6, 7, 8, 9)},
    10: _sieving,
    11: _counts,
    13: _prefetch,
}


# ------------------------------------------------------------------------------------- many ranks


def _ranks(options: Any, table: int) -> None:
    """Theirs and the model's with their ranks, then here with ours."""
    from papers import ranks_of

    cells = [cell for cell in tables.programs() if cell.table == table]
    model = _modelled(f"extended {table}")
    edges = [*dict.fromkeys(cell.shape[0] for cell in cells)]
    columns = [(n, method) for n in edges for method in ("direct", "dynamic")]
    rows: list[list[Any]] = []
    for ranks in dict.fromkeys(cell.ranks for cell in cells):
        of = {(c.shape[0], c.method): c.seconds for c in cells if c.ranks == ranks}
        rows.append([f"theirs, {ranks}", *(of[column] for column in columns)])
        rows.append(
            [f"model, {ranks}", *(model[f"{n} x {n}", ranks, method] for n, method in columns)]
        )
    heads = [f"{n} {'direct' if method == 'direct' else 'two-phase'}" for n, method in columns]
    _print(["processors", *heads], rows)
    rows = []
    chosen = [n for n in edges if options.size != "quick" or n == edges[0]]
    for ranks in options.ranks:
        for cache in options.cache:
            row: list[Any] = [f"{ranks} ranks, {cache}"]
            for n in chosen:
                seconds = _program(options, table, n, ranks, cache)
                row += [seconds.get(m, float("inf")) for m in ranks_of.METHODS]
            rows.append(row)
    print()
    _print(["here", *(f"{n} {m}" for n in chosen for m in ranks_of.METHODS)], rows)


def _program(options: Any, table: int, n: int, ranks: int, cache: str) -> dict[str, float]:
    """Seconds of a program by each method: of its accesses, as often as they come."""
    from mpi_ranks import launch, libraries
    from papers import ranks_of

    path = ranks_of.make(Path(options.folder), n)
    words = {"cache": cache, "repeat": options.repeat, "files": [str(path)], "table": table, "n": n}
    question = f"papers extended {table}"
    library = libraries(options.library)[0]
    found = launch(str(ranks_of.__file__), question, library, ranks, words)
    if not found or any(row.wrong for row in found):
        return {}
    return {
        method: sum(row.extra["times"] * row.median(method) for row in found)
        for method in ranks_of.METHODS
    }
