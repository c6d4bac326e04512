"""Programs under mpiexec, for tests that start it themselves."""

import functools
import importlib.machinery
import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def _x():
    """The module that is ``./x``."""
    loader = importlib.machinery.SourceFileLoader("x", str(ROOT / "x"))
    x = importlib.util.module_from_spec(importlib.util.spec_from_loader("x", loader))
    loader.exec_module(x)
    return x


def mpiexec(library, *paths):
    """The command, and the environment for it; `paths` are where its ranks find modules, too."""
    x = _x()
    folder = x.VENV / "mpi" / library
    if not (folder / "bin" / "mpiexec").exists():
        pytest.skip(f"{library} is not installed: ./x test mpi")
    env = x.mpi_environment(library, folder)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], *map(str, paths)])
    return folder / "bin" / "mpiexec", env
