"""
An SCF calculation whose integrals lie on disk: the loop of RI-SCF in chemistry, on a model in one
dimension.

Three-index integrals (ij|P) are written once, all expansion functions P of some pairs ij at a time:
by rows. In each iteration all pairs of some expansion functions are read: by columns, many times.
While the ranks compute with one batch the next one is on its way, also from one iteration to the
next. The layout of the array on disk follows from both kinds of sections.

    python examples/integrals.py                               24 functions, 300 pairs, 96 expansion
    functions python examples/integrals.py --functions 90 --expansion 2000 --picture energy.png
    mpiexec -n 4 python examples/integrals.py                  ranks share pairs, then expansion
    functions

Nieplocha, Foster, *Disk Resident Arrays*, section 5.3.
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
import time
from typing import Any

import numpy as np

import outcore
from outcore.mpi import DistArray, Distribution, transport, world


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--functions", type=int, default=24, help="basis functions")
    parser.add_argument("--expansion", type=int, default=96, help="expansion functions")
    parser.add_argument("--rows", type=int, default=64, help="pairs that are written at a time")
    parser.add_argument("--columns", type=int, default=16, help="of them read at a time")
    parser.add_argument("--picture", metavar="FILE", help="draw the energy (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process
    model = Model(words.functions, words.expansion)
    pairs = len(model.first)

    start = time.perf_counter()
    shape = pairs, words.expansion
    rows, columns = min(words.rows, pairs), min(words.columns, words.expansion)
    with outcore.mpi.disk_array(
        "integrals",
        shape,
        "f8",
        typical_sections={(rows, None): 1, (None, columns): 20},
        keep=False,
        comm=comm,
    ) as disk:
        if comm.rank == 0:
            print(disk.layout)
        write(disk, model, rows, comm)
        energies = iterate(disk, model, columns, comm)
    seconds = time.perf_counter() - start
    if comm.rank == 0:
        print(f"energy {energies[-1]:.8f} after {len(energies)} iterations, {seconds:.2f} s")
        whole = model.integrals(np.arange(pairs))
        error = abs(energies[-1] - model.in_memory(whole, len(energies)))
        print(f"beside integrals in memory: {error / abs(energies[-1]):.1e}")
        if words.picture:
            draw(energies, words.picture)


class Model:
    """Electrons in a row of wells: basis functions in them, expansion functions between."""

    def __init__(self, functions: int, expansion: int) -> None:
        self.centres = np.linspace(0.0, 0.5 * functions, functions)
        self.others = np.linspace(-0.5, 0.5 * functions + 0.5, expansion)
        # Of ij and ji one is stored.
        self.first, self.second = np.tril_indices(functions)
        self.occupied = functions // 4
        apart = np.subtract.outer(self.centres, self.centres)
        self.core = -2.0 * np.exp(-(apart**2)) - 0.1 * np.diag(np.cos(self.centres))

    def integrals(self, pairs: Any) -> Any:
        """All expansion functions of some pairs."""
        one, two = self.centres[self.first[pairs]], self.centres[self.second[pairs]]
        middle = (one + two) / 2
        near = np.exp(-((one - two) ** 2))[:, None]
        apart = np.subtract.outer(middle, self.others)
        return near * np.exp(-(apart**2) / 2) / np.sqrt(len(self.others))

    def density(self, fock: Any) -> Any:
        """Of the orbitals of lowest energy."""
        orbitals = np.linalg.eigh(fock)[1][:, : self.occupied]
        return 2.0 * orbitals @ orbitals.T

    def contribution(self, integrals: Any, density: Any) -> Any:
        """What some expansion functions add to the Fock matrix: Coulomb, and half of the exchange."""
        added = np.zeros_like(density)
        for column in integrals.T:
            matrix = np.zeros_like(density)
            matrix[self.first, self.second] = matrix[self.second, self.first] = column
            added += np.sum(matrix * density) * matrix - 0.5 * matrix @ density @ matrix
        return added

    def energy(self, fock: Any, density: Any) -> float:
        """Of electrons with this density."""
        return 0.5 * float(np.sum(density * (self.core + fock)))

    def in_memory(self, whole: Any, iterations: int) -> float:
        """The energy after so many iterations, from all integrals at once."""
        density = self.density(self.core)
        energy = 0.0
        for _ in range(iterations):
            fock = self.core + self.contribution(whole, density)
            energy = self.energy(fock, density)
            density = 0.7 * density + 0.3 * self.density(fock)
        return energy


def write(disk: Any, model: Model, rows: int, comm: Any) -> None:
    """Compute all integrals and write them, some rows at a time, while the next ones are computed."""
    pairs, expansion = disk.shape
    request = None
    for low in range(0, pairs, rows):
        high = min(low + rows, pairs)
        form = Distribution((high - low, expansion), ["block", "*"], comm.size)
        batch = DistArray.empty(form, "f8", transport=comm)
        for section, view in batch.pieces():
            view[...] = model.integrals(low + np.arange(section[0].start, section[0].stop))
        if request is not None:
            request.wait()
        request = disk.iwrite_section(np.s_[low:high], batch)
    if request is not None:
        request.wait()


def iterate(disk: Any, model: Model, columns: int, comm: Any) -> list[float]:
    """Iterate until the energy stays; the energies."""
    pairs, expansion = disk.shape
    lows = range(0, expansion, columns)

    def start(number: int) -> tuple[Any, Any]:
        low = lows[number % len(lows)]
        high = min(low + columns, expansion)
        batch = DistArray.empty(
            Distribution((pairs, high - low), ["*", "block"], comm.size), "f8", transport=comm
        )
        return batch, disk.iread_section(np.s_[:, low:high], batch)

    density, energies, following = model.density(model.core), [], start(0)
    for _ in range(60):
        added = np.zeros_like(density)
        for number in range(len(lows)):
            batch, request = following
            request.wait()
            # The next batch comes while this one is used; after the last one the first, for the
            # next iteration.
            following = start(number + 1)
            added += model.contribution(batch.owned, density)
        # The same sums, in the same order, on all ranks.
        said = comm.allgather_bytes(added.tobytes()) if comm.size > 1 else [added.tobytes()]
        fock = model.core + sum(np.frombuffer(one).reshape(added.shape) for one in said)
        energies.append(model.energy(fock, density))
        if len(energies) > 1 and abs(energies[-1] - energies[-2]) < 1e-9 * abs(energies[-1]):
            break
        density = 0.7 * density + 0.3 * model.density(fock)
    return energies


def draw(energies: list[float], picture: str) -> None:
    """How the energy settles."""
    import matplotlib.pyplot as plt

    plt.semilogy(np.abs(np.diff(energies)) + 1e-16, "o-")
    plt.xlabel("iteration")
    plt.ylabel("change of the energy")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
