"""
Tables 6 to 9 of the PASSION report on this machine: the kernel of `examples/molecules.py`.

Pre-processing is partitioning the atoms and making the schedule of the loop over their pairs
(`outcore.unstructured.partition`, `outcore.unstructured.edge_schedule`), computation is one iteration
(`outcore.unstructured.edge_loop`); the list of pairs is on disk, and cold. The
report has a slab of n K of the indirection array in memory; here a slab is a memory budget of 128 n KiB,
which is about what a pair takes on its way. One process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np

import outcore
from harness import Row, evict
from outcore.model.machines import tables

ROOT = Path(__file__).resolve().parents[2]
PHASES = ("pre-processing", "computation")
_PAIR = 128


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("molecules", ROOT / "examples" / "molecules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Kernel:
    """
    The atoms, their pairs and the loop over them, in a folder.

    Parameters
    ----------
    folder
        Where files are made; a folder of its own for each number of atoms.
    atoms
        How many.
    """

    def __init__(self, folder: Path, atoms: int) -> None:
        self._example, self._atoms = _example(), atoms
        self._side = (atoms / self._example.DENSITY) ** (1 / 3)
        self.folder = folder / f"papers-molecular-{atoms}"
        self.folder.mkdir(exist_ok=True)
        with contextlib.chdir(self.folder):
            places = self._example.liquid(atoms, self._side)
            outcore.create("atoms.npy", data=places, overwrite=True).close()
            self.pairs = self._example.list_pairs(self._side, 16384)
            self._right = np.zeros((atoms, 3))
            self._push(np.load("atoms-pairs.npy"), places, self._right)

    def _push(self, edges: Any, atoms: Any, forces: Any) -> None:
        apart = atoms[edges[:, 0]] - atoms[edges[:, 1]]
        force = self._example.between(apart, self._side)
        np.add.at(forces, edges[:, 0], force)
        np.subtract.at(forces, edges[:, 1], force)

    def run(self, slab: int) -> tuple[float, float, bool]:
        """Seconds of both phases with a slab of so many pairs, and whether the forces are right."""
        with contextlib.chdir(self.folder), contextlib.ExitStack() as stack:
            outcore.create("forces.npy", (self._atoms, 3), "f8", overwrite=True).close()
            evict([Path("atoms.npy"), Path("atoms-pairs.npy")])
            stack.enter_context(outcore.memory(_PAIR * slab))
            start = time.perf_counter()
            parts = max(self._atoms // 2000, 1)
            partition = stack.enter_context(
                outcore.unstructured.partition("atoms.npy", parts, method="hilbert")
            )
            words = {"partition": partition, "bytes_per_node": 48}
            schedule = stack.enter_context(
                outcore.unstructured.edge_schedule("atoms-pairs.npy", self._atoms, **words)
            )
            made = time.perf_counter()
            reads, updates = {"atoms": "atoms.npy"}, {"forces": "forces.npy"}
            outcore.unstructured.edge_loop(
                schedule, reads=reads, updates=updates, kernel=self._push
            )
            end = time.perf_counter()
            right = np.array_equal(np.load("forces.npy"), self._right)
        return made - start, end - made, right


def here(folder: Path, atoms: int, slabs: list[str], repeat: int) -> dict[str, Row]:
    """A row for each phase, with seconds for each size of a slab, by turns."""
    kernel = Kernel(folder, atoms)
    rows = {phase: Row(f"{phase}, {atoms} atoms", 8 * kernel.pairs) for phase in PHASES}
    for _ in range(repeat):
        for slab in slabs:
            *seconds, right = kernel.run(int(slab.removesuffix("K")) << 10)
            for phase, spent in zip(PHASES, seconds, strict=True):
                rows[phase].seconds.setdefault(slab, []).append(spent)
                if not right:
                    rows[phase].wrong.add(slab)
    return rows


def atoms_of(table: int) -> int:
    """Atoms of a table."""
    return tables.passion(table)[0].shape[0]
