"""
Forces between atoms whose list of pairs does not fit in memory: a molecular dynamics kernel.

Atoms that are nearer to each other than the cutoff are a pair; cells of the size of the cutoff find
them, a slab of atoms at a time, and the list goes to disk. Forces are a loop over it: each pair pushes
one atom and pulls the other (PASSION, section 4.4.4, Tables 6 to 9: 14K and 6K atoms, where the list of
pairs is out of core and the atoms are not). Look at the sum of all forces, which is zero, and at the
difference from the same loop in memory, which is none.

    python examples/molecules.py                          6 000 atoms, 2 MiB
    python examples/molecules.py --atoms 14000 --slab 65536
    python examples/molecules.py --atoms 1000000 --memory 128MiB --picture forces.png
    mpiexec -n 4 python examples/molecules.py             ranks share the atoms
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import outcore
from outcore.mpi import transport, world

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[Any]]

#: In units of the Lennard-Jones potential: density of a liquid, and the usual cutoff.
DENSITY, CUTOFF = 0.8, 2.5
#: With so many atoms all is done in memory, too, and compared.
IN_MEMORY = 20_000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--atoms", type=int, default=6000)
    parser.add_argument("--slab", type=int, default=16_384, help="pairs that are found at a time")
    parser.add_argument("--memory", default="2MiB")
    parser.add_argument("--picture", metavar="FILE", help="draw the forces (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    side = (words.atoms / DENSITY) ** (1 / 3)
    if side < 3 * CUTOFF:
        parser.error(
            f"--atoms: at least {int(DENSITY * (3 * CUTOFF) ** 3) + 1}, or an atom meets itself"
        )
    if comm.rank == 0:
        began = time.monotonic()
        outcore.create("atoms.npy", data=liquid(words.atoms, side), overwrite=True).close()
        pairs = list_pairs(side, words.slab)
        found = time.monotonic()
        print(f"{pairs} pairs of {words.atoms} atoms, {found - began:.1f} s")
        outcore.create("atoms-forces.npy", (words.atoms, 3), "f8", overwrite=True).close()
    comm.barrier()
    began = time.monotonic()
    with (
        outcore.memory(words.memory),
        outcore.unstructured.partition(
            "atoms.npy",
            max(words.atoms // 2000, 1),
            method="hilbert",
            out="atoms-parts",
            comm=comm,
        ) as partition,
    ):
        outcore.unstructured.edge_schedule(
            "atoms-pairs.npy",
            words.atoms,
            partition=partition,
            bytes_per_node=48,
            out="atoms-loop",
            comm=comm,
        ).close()
    if comm.rank == 0:
        print(f"pre-processing, {time.monotonic() - began:.1f} s")

    def push(edges: Integers, atoms: Floats, forces: Floats) -> None:
        force = between(atoms[edges[:, 0]] - atoms[edges[:, 1]], side)
        np.add.at(forces, edges[:, 0], force)
        np.subtract.at(forces, edges[:, 1], force)

    began = time.monotonic()
    with (
        outcore.memory(words.memory),
        outcore.unstructured.EdgeSchedule.open("atoms-loop") as schedule,
    ):
        outcore.unstructured.edge_loop(
            schedule,
            reads={"atoms": "atoms.npy"},
            updates={"forces": "atoms-forces.npy"},
            kernel=push,
            comm=comm,
        )
    if comm.rank == 0:
        print(f"computation in {schedule.blocks} blocks, {time.monotonic() - began:.1f} s")
        atoms, forces = np.load("atoms.npy"), np.load("atoms-forces.npy")
        rest = float(np.abs(forces.sum(axis=0)).max() / np.abs(forces).sum())
        print(f"sum of all forces, over the sum of their sizes: {rest:.1e}")
        if words.atoms <= IN_MEMORY:
            expected = np.zeros_like(forces)
            push(np.load("atoms-pairs.npy"), atoms, expected)
            difference = float(np.abs(forces - expected).max())
            print(f"largest difference from the loop in memory: {difference:.1e}")
            print(f"pairs of a search through all atoms: {count_all(atoms, side)}")
        if words.picture:
            draw(atoms, forces, words.picture)


def liquid(count: int, side: float) -> Floats:
    """Atoms near the points of a lattice, in no order, in a cube that repeats."""
    along = int(np.ceil(count ** (1 / 3)))
    rng = np.random.default_rng(0)
    places = np.indices((along,) * 3).reshape(3, -1).T[rng.permutation(along**3)[:count]]
    moved = places + 0.5 + rng.uniform(-0.15, 0.15, (count, 3))
    found: Floats = moved * (side / along)
    return found


def nearest(apart: Floats, side: float) -> Floats:
    """The way to the nearest image of an atom."""
    found: Floats = apart - side * np.rint(apart / side)
    return found


def between(apart: Floats, side: float) -> Floats:
    """Lennard-Jones forces of pairs of atoms that are so far apart."""
    way = nearest(apart, side)
    inverse = 1 / (way**2).sum(axis=1, keepdims=True)
    six = inverse**3
    found: Floats = 24 * six * (2 * six - 1) * inverse * way
    return found


# The list of pairs


def list_pairs(side: float, slab: int) -> int:
    """Write the pairs to disk, a slab at a time, in two passes: one counts. How many they are."""
    atoms = np.load("atoms.npy")
    cells = Cells(atoms, side, slab)
    total = sum(len(pairs) for pairs in cells.pairs())
    with outcore.create("atoms-pairs.npy", (total, 2), "i4", overwrite=True) as listed:
        filled = 0
        for pairs in cells.pairs():
            listed[filled : filled + len(pairs)] = pairs
            filled += len(pairs)
    return total


class Cells:
    """
    A grid of cells, none smaller than the cutoff: an atom's partners are in its own cell or one beside
    it.

    Half of the cells beside it are looked at, so that each pair is found once.
    """

    def __init__(self, atoms: Floats, side: float, slab: int) -> None:
        self.atoms, self.side = atoms, side
        self.across = int(side / CUTOFF)
        self.place = np.minimum((atoms / side * self.across).astype(np.int64), self.across - 1)
        cell = self.number(self.place)
        self.order = np.argsort(cell, kind="stable")
        self.begins = np.searchsorted(cell[self.order], np.arange(self.across**3 + 1))
        steps = list(itertools.product((-1, 0, 1), repeat=3))
        self.steps = steps[len(steps) // 2 :]  # the first of these is the atom's own cell
        # An atom meets about 28 others in 14 cells; candidates are many times the pairs.
        self.rows = max(slab // 64, 1)

    def number(self, place: Integers) -> Integers:
        """The number of a cell, in a cube that repeats."""
        x, y, z = (place % self.across).T
        found: Integers = (x * self.across + y) * self.across + z
        return found

    def pairs(self) -> Iterator[Integers]:
        """Pairs of atoms nearer than the cutoff, for a slab of atoms after the other."""
        for low in range(0, len(self.order), self.rows):
            ranks = np.arange(low, min(low + self.rows, len(self.order)))
            found = [self.beside(ranks, step) for step in self.steps]
            yield np.concatenate(found)

    def beside(self, ranks: Integers, step: tuple[int, ...]) -> Integers:
        """Pairs of some atoms, by their ranks in the order of cells, with those of a cell beside."""
        own = self.order[ranks]
        cell = self.number(self.place[own] + np.array(step))
        first, last = self.begins[cell], self.begins[cell + 1]
        if step == (0, 0, 0):
            first = ranks + 1  # those behind it in its own cell
        counts = np.maximum(last - first, 0)
        ends = counts.cumsum()
        others = np.arange(int(counts.sum())) + np.repeat(first - (ends - counts), counts)
        a, b = np.repeat(own, counts), self.order[others]
        apart = nearest(self.atoms[a] - self.atoms[b], self.side)
        near = (apart**2).sum(axis=1) < CUTOFF**2
        return np.stack([a[near], b[near]], axis=1).astype(np.int32)


def count_all(atoms: Floats, side: float) -> int:
    """How many pairs there are, without cells: every atom against every other."""
    found = 0
    for n in range(len(atoms) - 1):
        apart = nearest(atoms[n] - atoms[n + 1 :], side)
        found += int(np.count_nonzero((apart**2).sum(axis=1) < CUTOFF**2))
    return found


def draw(atoms: Floats, forces: Floats, picture: str) -> None:
    """A slice of the liquid, with the forces on its atoms."""
    import matplotlib.pyplot as plt

    some = atoms[:, 2] < 2
    plt.quiver(*atoms[some, :2].T, *forces[some, :2].T)
    plt.gca().set_aspect("equal")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
