"""
Figure 8 of the paper on disk resident arrays: what of its speed in memory an out-of-core product keeps.

Nieplocha, Foster, "Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core Computations",
section 5.2. The figure is a picture, and the text has none of its points, so theirs is what the running
text says, beside the model's (`outcore.model.simulate.disk_products`). Here the program is
`examples/matrix_product.py`, with matrices as large as ``--size`` says in five sections a side, as
there. "in memory" are its products alone, of sections that are there; "out of core" is all of it, until
the result is durable; "no prefetch" the same when every read and write is waited for. The efficiency is
the second by the first, as there. Beside it stands what part of the program's own time its products
take: where others use the processors meanwhile, only that can be relied on. Ranks compute with one
thread each.

Results are compared by a product with a vector of integers, exactly. The disk of the paper comes back
with ``--cache slow``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))
    sys.path.insert(0, str(ROOT / "python"))

FIGURES = (8,)
SIDES = {"quick": 2000, "256MiB": 4000, "1GiB": 6000, "4GiB": 10000}
CHUNKS = 5
WAYS = ("in memory", "out of core", "no prefetch")


def title(figure: int) -> str:
    """What the figure shows."""
    from outcore.model.simulate import disk_products

    return disk_products.PAPER_FIGURES.title(figure)


def theirs(_figure: int) -> list[str]:
    """The settings of the figure: they stand beside the model's."""
    return []


def lines(figure: int) -> list[str]:
    """The model's figure, beside what the text says of theirs."""
    from outcore.model.simulate import disk_products

    return disk_products.PAPER_FIGURES.lines(figure)


def run(figure: int, options: Any, show: Any) -> None:
    """Print the figure here, as a table."""
    from mpi_ranks import launch, libraries

    n = SIDES[options.size]
    files = [str(Path(options.folder) / f"product-{name}-{n}.npy") for name in "abc"]
    # Ranks are as many as cores, or more.
    alone = {"OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1")}
    cells = []
    for ranks in options.ranks:
        for cache in options.cache:
            words = {"cache": cache, "repeat": options.repeat, "n": n, "files": files}
            library, question = libraries(options.library)[0], f"papers dra {figure}"
            where = (str(Path(__file__)), question, library)
            for row in launch(*where, ranks, words, alone) or []:
                cells.append([f"{ranks} ranks, {cache}", *_cells(row, n)])
    heads = [f"{way}, Mflop/s" for way in WAYS]
    more = ["efficiency, %", "no prefetch, %", "in products, %", "no prefetch, %", "B needs, MB/s"]
    show([f"here, {n} x {n}, sections of {-(-n // CHUNKS)}", *heads, *more], cells)
    for name in files:
        Path(name).unlink(missing_ok=True)


def _cells(row: Any, n: int) -> list[Any]:
    """Rates, what of that in memory is left, the time in products, and equation (1)."""
    rates = [2e-6 * n**3 / row.median(way) for way in WAYS]
    left = [100 * rate / rates[0] if rates[0] else 0.0 for rate in rates[1:]]
    wrong = ["wrong" if way in row.wrong else rate for way, rate in zip(WAYS, rates, strict=True)]
    return [*wrong, *left, *row.extra["products"], 4 * rates[0] / -(-n // CHUNKS)]


def example() -> Any:
    """The program."""
    path = ROOT / "examples" / "matrix_product.py"
    spec = importlib.util.spec_from_file_location("matrix_product", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def rank(words: dict[str, Any]) -> None:
    """Time the three ways; rank 0 prints a row."""
    import outcore
    from mpi_ranks import Ranks

    ranks, program = Ranks(words), example()
    disks, n = ranks.node_barrier, words["n"]
    cores = disks.split(0, disks.rank)
    wide = -(-n // CHUNKS)
    a, b, c = (Path(name) for name in words["files"])
    # Less than a matrix, for what moves sections, and for what multiplies them at the same time.
    budget = outcore.memory(max(8 * n * n // 4, 4 << 20))
    hints = {"memory": budget // 4}
    for path, make, typical in (
        (a, program.left, (wide, None)),
        (b, program.right, (None, wide)),
        (c, None, (wide, wide)),
    ):
        prepared(path, make, n, typical, program, disks)
    vector = np.arange(n) % 7 - 3.0
    expected = applied(program.left, n, applied(program.right, n, vector))

    rows = program.Room(wide, n, disks, cores).section(wide, n)[1]
    columns = program.Room(n, wide, disks, cores).section(n, wide)[1]
    product = program.Room(wide, wide, disks, cores).section(wide, wide)[1]
    for made, make in ((rows, program.left), (columns, program.right)):
        for (down, across), view in made.pieces():
            i, j = np.ogrid[down, across]
            view[...] = make(i, j)

    def in_memory() -> Any:
        def call() -> None:
            for _ in range(CHUNKS * CHUNKS):
                rows.matmul_all(columns, out=product)

        return call, lambda: None

    products: dict[bool, list[float]] = {True: [], False: []}

    def out_of_core(prefetch: bool) -> Any:
        opened = [
            outcore.mpi.disk_array(path, mode="r+" if path == c else "r", comm=disks, hints=hints)
            for path in (a, b, c)
        ]

        def call() -> None:
            start = time.perf_counter()
            spent = program.multiply(*opened, wide, cores, prefetch=prefetch)
            opened[2].flush()
            products[prefetch].append(100 * spent["multiply"] / (time.perf_counter() - start))

        def close() -> None:
            for each in opened:
                each.close()

        return call, close

    def spoil() -> None:
        product.local.fill(-1)

        def clear() -> None:
            np.load(c, mmap_mode="r+")[...] = -1

        ranks.by_one(clear)

    def check(way: str) -> bool:
        if way != "in memory":
            return bool(np.array_equal(np.load(c, mmap_mode="r") @ vector, expected))
        whole = product.gather_all(0)
        if whole is None:
            return True
        some = vector[:wide]
        right = applied(program.left, wide, applied(program.right, n, some))
        return bool(np.array_equal(whole @ some, right))

    makers = {
        "in memory": in_memory,
        "out of core": lambda: out_of_core(True),
        "no prefetch": lambda: out_of_core(False),
    }
    found = ranks.measure(
        makers,
        paths=lambda way: [] if way == "in memory" else [a, b, c],
        spoil=spoil,
        check=check,
        writes=True,
    )
    part = [float(np.median(products[prefetch])) for prefetch in (True, False)]
    name = f"{n} x {n}, sections of {wide}"
    ranks.say(name, 8 * n * n * (CHUNKS + 2), found, products=part)


def applied(make: Any, rows: int, vector: Any) -> Any:
    """The first rows of a matrix by a vector; some rows at a time."""
    columns = np.arange(len(vector))
    parts = [
        make(np.arange(low, min(low + 256, rows))[:, None], columns) @ vector
        for low in range(0, rows, 256)
    ]
    return np.concatenate(parts)


def prepared(path: Path, make: Any, n: int, typical: Any, program: Any, comm: Any) -> None:
    """A matrix in the order that suits its sections; made once."""
    import outcore

    comm.barrier()
    if path.exists():
        return
    comm.barrier()  # all have looked
    with outcore.mpi.disk_array(path, (n, n), "f8", typical_sections=typical, comm=comm) as matrix:
        program.fill(matrix, make or (lambda i, j: 0.0 * (i + j)))
        matrix.flush()


if __name__ == "__main__":
    import mpi_ranks

    mpi_ranks.main(rank)
