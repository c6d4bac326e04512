"""
Runs the inputs of one target in this process, and watches. Settings: `README.md`.

An input that must not be there any more (a crash of a library, a hang) takes the process with it; the
driver starts another one behind it.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fuzz.chance import Chance
from outcore import errors

#: KiB of address space that inputs may make a process grow by.
GROWTH_KIB = 256 << 10
MOST_FAILURES = 20

Files = dict[str, bytes]


class Target(NamedTuple):
    """What is tried."""

    name: str
    #: Files below a folder, made with nothing but these random numbers.
    make: Callable[[Chance], Files]
    #: Reads them; errors of outcore are refusals.
    attempt: Callable[[Path], None]
    #: How many inputs the short lane takes.
    inputs: int
    #: A library of others that is known to die of some of them: `OUTCORE_HDF5_GUARD` is the answer.
    library: str = ""


def setting(name: str, default: int) -> int:
    return int(os.environ.get(f"OUTCORE_FUZZ_{name}", default))


def place(folder: Path, files: Files) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def run(target: Target, work: Path) -> int:
    """Try inputs; print a line for the driver and return the number of failures."""
    inputs, seed = setting("INPUTS", target.inputs), setting("SEED", 20_260_101)
    first, timeout = setting("FIRST", 0), setting("TIMEOUT", 20)
    where = os.environ.get("OUTCORE_FUZZ_FOLDER")
    progress = Path(where or work, f"{target.name}.at")
    at = os.open(progress, os.O_RDWR | os.O_CREAT, 0o666)
    faulthandler.enable(sys.__stderr__)
    warnings.simplefilter("ignore")
    for number in range(3):  # imports and caches
        attempt(target, Chance(0, number), work)
    accepted = refused = failures = 0
    before = peak_kib()
    started = armed = time.monotonic()
    faulthandler.dump_traceback_later(timeout, exit=True, file=sys.__stderr__)
    for number in range(first, first + inputs):
        os.pwrite(at, f"{number:20}{accepted:20}".encode(), 0)
        if time.monotonic() - armed > 1:
            armed = time.monotonic()
            faulthandler.dump_traceback_later(timeout, exit=True, file=sys.__stderr__)
        outcome = attempt(target, Chance(seed, number), work)
        if outcome == "accepted":
            accepted += 1
        elif outcome == "refused":
            refused += 1
        grown = peak_kib() - before
        if grown > GROWTH_KIB:
            before += grown
            if not target.library:
                outcome = f"the process grew by {grown} KiB"
        if outcome not in ("accepted", "refused"):
            failures += 1
            keep(target, seed, number, outcome)
            if failures == MOST_FAILURES:
                break
    faulthandler.cancel_dump_traceback_later()
    tried = number - first + 1 if inputs else 0
    print(
        f"FUZZ {target.name} inputs={tried} seconds={time.monotonic() - started:.3f} "
        f"accepted={accepted} refused={refused} seed={seed}"
    )
    return failures


def attempt(target: Target, chance: Chance, work: Path) -> str:
    """``accepted``, ``refused``, or what went wrong."""
    folder = work / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    place(folder, target.make(chance))
    try:
        target.attempt(folder)
    except errors.InternalError as error:
        return f"InternalError {error}"
    except errors.OutcoreError:
        return "refused"
    except Exception:
        return traceback.format_exc()
    return "accepted"


def keep(target: Target, seed: int, number: int, why: str) -> None:
    """Tell about a failure, and save its input."""
    print(f"FUZZ-FAILED {target.name} seed={seed} input={number} {why.strip().splitlines()[-1]}")
    print(why, file=sys.stderr, flush=True)
    if where := os.environ.get("OUTCORE_FUZZ_FOLDER"):
        folder = Path(where, f"{target.name}-{seed}-{number}")
        folder.mkdir(exist_ok=True)
        place(folder, target.make(Chance(seed, number)))
        (folder / "why.txt").write_text(why)


_status = os.open("/proc/self/status", os.O_RDONLY) if os.path.exists("/proc/self/status") else -1


def peak_kib() -> int:
    """The most address space this process ever had."""
    if _status < 0:
        return 0
    text = os.pread(_status, 2048, 0)
    return int(text[text.index(b"VmPeak:") + 7 :].split(None, 1)[0])


def main() -> None:
    from fuzz.targets import TARGETS

    with tempfile.TemporaryDirectory(prefix="outcore-fuzz-") as work:
        raise SystemExit(run(TARGETS[sys.argv[1]], Path(work)) > 0)


if __name__ == "__main__":
    main()
