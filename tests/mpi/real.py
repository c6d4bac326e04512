"""Programs under mpiexec, for tests that start it themselves."""

import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from killed import last_words

ROOT = Path(__file__).resolve().parents[2]
#: What lets ranks live whose neighbours are dead: by default mpiexec ends them all.
RECOVERY = {"openmpi": ["--enable-recovery"], "mpich": []}
#: Seconds after which a rank hangs whose neighbours are dead.
PATIENCE = 60


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


class Job:
    """
    Ranks under mpiexec that may be killed: a Python program with its arguments.

    What they tell is in files ``told-RANK`` of their working folder, each name with a prefix.
    """

    def __init__(self, library, folder, words, size, prefix=""):
        command, env = mpiexec(library, ROOT / "tests", ROOT / "python")
        self.recovers, self._folder, self._prefix = bool(RECOVERY[library]), folder, prefix
        words = [command, "-n", size, *RECOVERY[library], sys.executable, *words]
        with open(self._path("stderr"), "w") as errors:
            self.process = subprocess.Popen(
                list(map(str, words)),
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def _path(self, name):
        return os.path.join(self._folder, self._prefix + name)

    @property
    def code(self):
        """How mpiexec ended; None as long as it runs."""
        return self.process.poll()

    def told(self, name):
        """What a file says."""
        return Path(self._path(name)).read_text()

    def has_told(self, names):
        """Whether all these files are there."""
        return all(os.path.exists(self._path(name)) for name in names)

    def end(self, alive=()):
        """Nothing hangs: all end, or say so of those that are `alive` though others were killed."""
        give_up = time.monotonic() + PATIENCE
        told = [f"told-{rank}" for rank in alive]
        while self.code is None and time.monotonic() < give_up:
            time.sleep(0.01)
            if told and self.has_told(told):
                # How MPI ends without its dead ranks is not ours to say.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(1)
                break
        hangs = self.code is None and not (told and self.has_told(told))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for told in Path(self._folder).glob(f"{self._prefix}memory-*"):
            for name in told.read_text().split():
                Path(name).unlink(missing_ok=True)
        said = last_words(self._path("stderr"))
        assert not hangs, f"{sorted(os.listdir(self._folder))}\n{said}"
        return said
