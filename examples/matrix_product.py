"""
A product of matrices that do not fit in the memories of all ranks together: Figure 7 of the paper on
disk resident arrays.

A, B and C lie on disk. Some rows of A stay in memory while all of B passes, some columns at a time; the
product of both is a section of C. The next columns come while the ranks multiply, and the last section
of C is on its way to the disk. In memory all sections are divided in blocks over a grid of ranks, and
multiplied by SUMMA (`DistArray.matmul_all`), panel by panel in what is left of the memory.

    python examples/matrix_product.py                                800 x 800 within 1 MiB a rank
    python examples/matrix_product.py --size 8000 --memory 256MiB --picture product.png
    mpiexec -n 4 python examples/matrix_product.py --check           compares with NumPy, in memory

What was started on a communicator comes before whatever follows there: so all ranks agree on the order.
Here there are two, of the same ranks: one for the disks, and one for products, which need not wait.

Nieplocha, Foster, *Disk Resident Arrays*, section 5.2; van de Geijn, Watts, *SUMMA: Scalable Universal
Matrix Multiplication Algorithm*.
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
import math
import time
from typing import Any

import numpy as np

import outcore
from outcore.mpi import DistArray, Distribution, ProcessGrid, transport, world

#: Parts of the time, in the order of the picture.
PARTS: tuple[str, ...] = ("multiply", "wait for B", "read A", "wait for C")
ITEM = 8


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=800, help="rows and columns of each matrix")
    parser.add_argument("--memory", default="1MiB", help="of each rank, sections and buffers")
    parser.add_argument("--wide", type=int, help="rows and columns of sections (what fits)")
    parser.add_argument("--no-prefetch", dest="prefetch", action="store_false")
    parser.add_argument("--check", action="store_true", help="compare with NumPy, in memory")
    parser.add_argument("--picture", metavar="FILE", help="draw the time (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    disks = transport(world())  # all ranks under mpiexec, else this process
    cores = disks.split(0, disks.rank)  # the same ranks
    assert cores is not None

    n = words.size
    with outcore.memory(words.memory) as budget:
        # Half for sections; the other half is the budget of what moves and multiplies them. Both go on
        # at the same time: moving has a quarter of that.
        wide = words.wide or widest(n, int(budget) // 2, disks.size)
        rest = int(budget) - held(n, wide, disks.size)
        if rest < int(budget) // 4:
            parser.error(f"sections of {wide} leave no memory; give less --wide, or more --memory")
        outcore.memory(rest)
        hints = {"memory": max(rest // 4, 1)}
        with (
            made("a", left, n, (wide, None), disks, hints) as a,
            made("b", right, n, (None, wide), disks, hints) as b,
            outcore.mpi.disk_array(
                "product.npy",
                (n, n),
                "f8",
                typical_sections=(wide, wide),
                comm=disks,
                hints=hints,
                overwrite=True,
            ) as c,
        ):
            if disks.rank == 0:
                print(f"sections of {wide} of {n} rows and columns")
            start = time.perf_counter()
            spent = multiply(a, b, c, wide, cores, prefetch=words.prefetch)
            seconds = time.perf_counter() - start
    cores.close()
    if disks.rank == 0:
        rate = 2e-6 * n**3
        in_core = rate / max(spent["multiply"], 1e-9)
        print(f"{rate / seconds:.0f} Mflop/s, in memory {in_core:.0f} Mflop/s, {seconds:.2f} s")
        print(", ".join(f"{name} {spent[name]:.2f} s" for name in PARTS))
        if words.check:
            everything = np.arange(n)
            x, y = (make(everything[:, None], everything) for make in (left, right))
            difference = np.abs(np.load("product.npy") - x @ y).max()
            print(f"largest difference from NumPy: {difference:.1e}")
        if words.picture:
            draw(spent, words.picture)


def held(n: int, wide: int, ranks: int) -> int:
    """Bytes of a rank's sections: rows of A, twice columns of B, twice a section of C."""
    return ITEM * (3 * n * wide + 2 * wide**2) // ranks


def widest(n: int, nbytes: int, ranks: int) -> int:
    """Rows and columns of the largest sections that take no more, all about as large."""
    cells = nbytes * ranks / ITEM
    most = int((math.sqrt(9.0 * n * n + 8 * cells) - 3 * n) / 4)
    return -(-n // -(-n // min(max(most, 1), n)))


def left(i: Any, j: Any) -> Any:
    """Elements of A: small integers, so that sums are exact in any order."""
    return (7 * i + 3 * j) % 11 - 5.0


def right(i: Any, j: Any) -> Any:
    """Elements of B."""
    return (5 * i + 2 * j) % 13 - 6.0


def blocks(shape: tuple[int, int], ranks: int) -> Distribution:
    """Blocks over a grid of ranks as square as can be."""
    return Distribution(shape, ["block", "block"], ProcessGrid(size=ranks, ndim=2))


def made(name: str, make: Any, n: int, typical: Any, comm: Any, hints: Any) -> Any:
    """A temporary matrix on disk."""
    matrix = outcore.mpi.disk_array(
        name, (n, n), "f8", typical_sections=typical, keep=False, comm=comm, hints=hints
    )
    fill(matrix, make)
    return matrix


def fill(matrix: Any, make: Any) -> None:
    """Write all elements, some rows at a time."""
    n, comm = matrix.shape[0], matrix.transport
    step = max(1 << 16, n) // n * comm.size
    for low in range(0, n, step):
        high = min(low + step, n)
        rows = Distribution((high - low, n), ["block", "*"], comm.size)
        part = DistArray.from_function(
            lambda i, j, low=low: make(low + i, j), rows, "f8", transport=comm
        )
        matrix.write_section(np.s_[low:high], part)


class Room:
    """Memory of this rank for one section at a time, which both communicators see."""

    def __init__(self, rows: int, columns: int, disks: Any, cores: Any) -> None:
        self.disks, self.cores = disks, cores
        shape = blocks((rows, columns), disks.size).local_shape(disks.rank)
        self.memory = np.empty(math.prod(shape))

    def section(self, rows: int, columns: int) -> tuple[DistArray, DistArray]:
        """One for the disks, and one for products, with the same elements."""
        how = blocks((rows, columns), self.disks.size)
        shape = how.local_shape(self.disks.rank)
        local = self.memory[: math.prod(shape)].reshape(shape)
        return (
            DistArray(how, local, transport=self.disks),
            DistArray(how, local, transport=self.cores),
        )


def multiply(
    a: Any, b: Any, c: Any, wide: int, cores: Any, *, prefetch: bool = True
) -> dict[str, float]:
    """``c = a @ b`` on disk, in sections; seconds of each of `PARTS`."""
    disks, n = a.transport, a.shape[0]
    cuts = [slice(low, min(low + wide, n)) for low in range(0, n, wide)]
    rows = Room(wide, n, disks, cores)
    columns = [Room(n, wide, disks, cores) for _ in range(2)]
    results = [Room(wide, wide, disks, cores) for _ in range(2)]
    written: list[Any] = [None, None]
    spent: dict[str, float] = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, work: Any) -> None:
        start = time.perf_counter()
        work()
        spent[part] += time.perf_counter() - start

    def start(step: int) -> tuple[DistArray, Any]:
        """The columns of a step, on their way."""
        cut = cuts[step % len(cuts)]
        on_disks, of_cores = columns[step % 2].section(n, cut.stop - cut.start)
        return of_cores, b.iread_section(np.s_[:, cut], on_disks)

    following = start(0)
    for step in range(len(cuts) ** 2):
        row, column = cuts[step // len(cuts)], cuts[step % len(cuts)]
        if column == cuts[0]:
            on_disks, some_rows = rows.section(row.stop - row.start, n)
            timed("read A", lambda to=on_disks, row=row: a.read_section(np.s_[row], to))
        some_columns, request = following
        timed("wait for B", request.wait)
        if step + 1 < len(cuts) ** 2 and prefetch:
            following = start(step + 1)
        if written[step % 2] is not None:
            timed("wait for C", written[step % 2].wait)
        on_disks, product = results[step % 2].section(
            row.stop - row.start, column.stop - column.start
        )
        timed(
            "multiply",
            lambda x=some_rows, y=some_columns, to=product: x.matmul_all(y, out=to),
        )
        written[step % 2] = c.iwrite_section(np.s_[row, column], on_disks)
        if not prefetch:
            timed("wait for C", written[step % 2].wait)
            if step + 1 < len(cuts) ** 2:
                following = start(step + 1)
    for request in written:
        if request is not None:
            timed("wait for C", request.wait)
    return spent


def draw(spent: dict[str, float], picture: str) -> None:
    """Where the time went."""
    import matplotlib.pyplot as plt

    plt.barh(PARTS[::-1], [spent[name] for name in PARTS[::-1]])
    plt.xlabel("seconds")
    plt.tight_layout()
    plt.savefig(picture)


if __name__ == "__main__":
    main()
