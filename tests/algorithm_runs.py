"""Calls of the cases in `algorithms`: in the working folder, of inputs that are files there."""

import importlib
import os
import shutil
import sys
from pathlib import Path

import numpy as np

import outcore
from algorithms import CASES, Case, positive
from disks import ORDINARY
from outcore import _core

#: In a process of its own: the case that is named, as often as it is killed.
KILLED = """
import sys, importlib
import algorithm_runs
algorithm_runs.fix_disk()
importlib.import_module("outcore.compute.jobs.checkpoints")._CHECKPOINT = 0.0
case = algorithm_runs.in_files(sys.argv[1], made=False)
tell = lambda done, total: print(done, flush=True)
algorithm_runs.call(case, resume=True, progress=tell)
"""


def fix_disk() -> None:
    """Plans of this process do not depend on what it learns of the disk: panels, and last bits, do."""
    _core.set_disks({os.stat(".").st_dev: ORDINARY})


def in_files(name: str, made: bool = True) -> Case:
    """A case whose inputs are files in the working folder; `made` there."""
    case = CASES[name]()
    case.paths = [f"in{n}.npy" for n in range(len(case.inputs))]
    if made:
        for path, data in zip(case.paths, case.inputs, strict=True):
            np.save(path, data)
    case.out = tuple(f"out{n}{suffix}" for n, suffix in enumerate(case.outs))
    return case


def larger(case: Case, nbytes: int) -> list[np.ndarray]:
    """Inputs like those of a case, of about so many bytes together: all axes longer by one factor."""
    ndim = max(one.ndim for one in case.inputs)
    factor = (nbytes / sum(one.nbytes for one in case.inputs)) ** (1 / ndim)
    return [_longer(one, factor, seed) for seed, one in enumerate(case.inputs)]


def _longer(data: np.ndarray, factor: float, seed: int) -> np.ndarray:
    shape = tuple(max(round(n * factor), 1) for n in data.shape)
    if data.ndim == 2 and shape[0] == shape[1] and np.array_equal(data, data.T):
        return positive(shape[0])
    made = np.random.default_rng(seed).random(shape, "f4" if data.dtype == "f4" else "f8")
    made *= 1000
    if data.ndim == 1 and (data[:-1] <= data[1:]).all():
        made.sort()
    return made.astype(data.dtype, copy=False)


def call(case: Case, *inputs, **words):
    """What the call returns; inputs and results are files, if nothing else is said."""
    if "out" not in words and case.outs:
        words["out"] = case.out if len(case.out) > 1 else case.out[0]
    return case.call(*(inputs or case.paths), **{"memory": case.memory, **case.words, **words})


def run(case: Case, *inputs, **words) -> list[np.ndarray]:
    """Its results, as NumPy arrays."""
    found = call(case, *inputs, **words)
    if found is None:  # convert
        found = outcore.open(case.out[0])
    return in_memory(found)


def in_memory(found) -> list[np.ndarray]:
    """The results of a call as NumPy arrays; those on disk are closed."""
    arrays = []
    for one in found if isinstance(found, tuple) else (found,):
        arrays.append(np.asarray(one[...]))
        if isinstance(one, outcore.DiskArray):
            one.close()
    return arrays


def expected(case: Case) -> tuple[np.ndarray, ...]:
    """What NumPy gives."""
    wanted = case.expected(*case.inputs)
    return wanted if isinstance(wanted, tuple) else (wanted,)


def must_be_right(case: Case, found) -> None:
    wanted = expected(case)
    assert len(found) == len(wanted)
    for one, right in zip(case.alike(*found), case.alike(*wanted), strict=True):
        if case.exact:
            np.testing.assert_array_equal(right, one)
        else:
            np.testing.assert_allclose(one, right, rtol=1e-6, atol=1e-6 * np.abs(right).max())


def content(path):
    """All bytes of a file or folder."""
    if os.path.isdir(path):
        names = sorted(os.path.join(a, b) for a, _, files in os.walk(path) for b in files)
        return [(os.path.relpath(name, path), Path(name).read_bytes()) for name in names]
    return Path(path).read_bytes()


def remove(path) -> None:
    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def left(folder: str = ".") -> list[str]:
    """What is in the folder beside inputs and results."""
    names = os.listdir(folder)
    return [n for n in names if not n.startswith(("in", "out")) or ".outcore" in n]


def work(folder: str, name: str) -> None:
    """The call of a case, in a process of its own: each step is durable, and gone on from."""
    _in(folder)
    call(in_files(name, made=False), resume=True)


def command(folder: str, *words: str) -> None:
    """A command of `outcore`, in a process of its own."""
    _in(folder)
    raise SystemExit(importlib.import_module("outcore.cli").main(list(words)))


def _in(folder: str) -> None:
    os.chdir(folder)
    importlib.import_module("outcore.compute.jobs.checkpoints")._CHECKPOINT = 0.0
    sys.stdout = sys.stderr = open(os.path.join(folder, "in-told.txt"), "a")  # noqa: SIM115
