"""The command `./x fuzz`: all targets, each in processes that may die. See README.md."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUST = {
    "codec_streams": "streams",
    "shards": "tables",
    "chunk_tables": "tables",
    "plans_of_strided_arrays": "plans",
    "plans_of_large_arrays": "plans",
    "plans_of_chunks": "plans",
}
MOST_DEATHS = 50


@dataclass
class Tally:
    """What is known about one target."""

    name: str
    library: str = ""
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    #: How it died, and how often so.
    deaths: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def died(self) -> int:
        return self.deaths.total()

    def line(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0
        text = f"{self.name:26}{self.inputs:>10} inputs{rate:>10.0f}/s{self.accepted:>10} accepted"
        if self.died:
            text += f"  {self.library or 'the process'} died {self.died} times"
            text += f" ({', '.join(f'{count} {how}' for how, count in self.deaths.items())})"
        return text + (f"  {len(self.failures)} FAILED" if self.failures else "")


def rust_binary() -> Path:
    """Build the Rust half; where it is."""
    command = ["cargo", "test", "--locked", "--release", "-p", "outcore-io", "--no-run"]
    command += ["--features", "outcore-io/testing", "--test", "fuzz"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"\((\S*fuzz-[0-9a-f]+)\)", done.stderr)
    if done.returncode or not found:
        raise SystemExit(f"cargo could not build the fuzz lane:\n{done.stderr[-3000:]}")
    return ROOT / found[1]


def command(name: str, binary: Path | None) -> list[str]:
    if name in RUST:
        return [str(binary), f"{RUST[name]}::{name}", "--exact", "--nocapture"]
    return [sys.executable, "-m", "fuzz.lane", name]


def run(
    tally: Tally, words: list[str], seed: int, first: int, inputs: int | None, folder: Path
) -> None:
    """Try inputs in as many processes as it takes; `inputs` None: as many as the target likes."""
    at = folder / f"{tally.name}.at"
    while inputs is None or inputs > 0:
        environment = dict(os.environ, OUTCORE_FUZZ_SEED=str(seed), OUTCORE_FUZZ_FIRST=str(first))
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests")])
        environment["OUTCORE_FUZZ_FOLDER"] = str(folder)
        # glibc sets 64 MiB of address space aside for each new thread: no input asked for that.
        environment["MALLOC_ARENA_MAX"] = "1"
        environment.pop("OUTCORE_FUZZ_INPUTS", None)
        if inputs is not None:
            environment["OUTCORE_FUZZ_INPUTS"] = str(inputs)
        at.unlink(missing_ok=True)
        started = time.monotonic()
        done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True)
        found = re.search(r"^FUZZ \S+ inputs=(\d+) seconds=(\S+) accepted=(\d+)", done.stdout, re.M)
        told = [line[12:] for line in re.findall(r"^FUZZ-FAILED .*$", done.stdout, re.M)]
        tally.failures += told
        if found:
            tally.inputs += int(found[1])
            tally.seconds += float(found[2])
            tally.accepted += int(found[3])
            if done.returncode and not told:
                tally.failures.append(f"{tally.name}: {done.stdout[-300:]}")
            return
        # It died. What it was about to do is in a file.
        text = at.read_text().split() if at.exists() else []
        if not text:
            tally.failures.append(f"{tally.name} does not start: {done.stderr[-2000:]}")
            return
        last = int(text[0])
        tally.accepted += int(text[1]) if len(text) > 1 else 0
        tally.inputs += last - first + 1
        tally.seconds += time.monotonic() - started
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else "hang"
        tally.deaths[how] += 1
        if not tally.library:
            if not told:
                tally.failures.append(f"{tally.name} seed={seed} input={last} died: {how}")
                save(words, environment, last)
            return
        if inputs is None or tally.died == MOST_DEATHS:
            return
        inputs -= last - first + 1
        first = last + 1


def save(words: list[str], environment: dict[str, str], number: int) -> None:
    """Have an input written that ended its process (the Rust lane does so; Python's are on disk)."""
    environment |= {"OUTCORE_FUZZ_FIRST": str(number), "OUTCORE_FUZZ_INPUTS": "1"}
    subprocess.run(
        words, env=environment | {"OUTCORE_FUZZ_SAVE": "1"}, cwd=ROOT, capture_output=True
    )


def slices(tally: Tally, words: list[str], seed: int, seconds: float, folder: Path) -> None:
    """Inputs until the time is over, in slices of about ten seconds."""
    first, count, end = 0, 100, time.monotonic() + seconds
    while time.monotonic() < end and not tally.failures and tally.died < MOST_DEATHS:
        before = tally.seconds
        run(tally, words, seed, first, count, folder)
        first += count
        took = max(tally.seconds - before, 0.01)
        left = min(10.0, end - time.monotonic())
        count = max(100, min(int(count * left / took), 20 * count, 2_000_000))


def main(words: list[str] | None = None) -> int:
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
    from fuzz.targets import TARGETS

    names = [*RUST, *TARGETS]
    parser = argparse.ArgumentParser(
        prog="./x fuzz", description="Damaged input for all that reads."
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--inputs", type=int, help="for each target")
    amount.add_argument("--minutes", type=float, help="for all targets together")
    parser.add_argument("--target", action="append", choices=names, help="may be given again")
    parser.add_argument("--seed", type=int, default=20_260_101)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    chosen = parser.parse_args(words)
    wanted = chosen.target or names
    binary = rust_binary() if RUST.keys() & set(wanted) else None
    tallies = []
    with tempfile.TemporaryDirectory(prefix="outcore-fuzz-") as work:
        for name in wanted:
            tally = Tally(name, TARGETS[name].library if name in TARGETS else "")
            folder = Path(work, name)
            folder.mkdir()
            if chosen.minutes is not None:
                share = 60 * chosen.minutes / len(wanted)
                slices(tally, command(name, binary), chosen.seed, share, folder)
            else:
                where = (chosen.seed, chosen.first, chosen.inputs, folder)
                run(tally, command(name, binary), *where)
            print(tally.line(), flush=True)
            tallies.append(tally)
            for found in folder.iterdir():
                if found.suffix != ".at" and tally.failures:
                    place = ROOT / "fuzz-failures" / found.name
                    place.parent.mkdir(exist_ok=True)
                    copy = shutil.copytree if found.is_dir() else shutil.copy
                    copy(found, place, **({"dirs_exist_ok": True} if found.is_dir() else {}))
    total, seconds = sum(t.inputs for t in tallies), sum(t.seconds for t in tallies)
    print(f"{'in all':26}{total:>10} inputs in {seconds:.0f} s, seed {chosen.seed}")
    failures = [failure for tally in tallies for failure in tally.failures]
    for failure in failures:
        print(f"FAILED {failure}")
    if failures:
        print("inputs are in fuzz-failures/")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
