"""
The mutation lane: what guards data is broken, one line after the other, and the tests must notice.

    ./x mutants                    both parts
    ./x mutants own [word ...]     the changes of the lists here whose file or reason has these words
    ./x mutants cargo [file ...]   cargo-mutants on the files of `survivors.toml` whose name has such a word

Problem. Lines that guard data run in every test and fail in none: what they prevent needs a crash, a full
disk or another process. Whether a test would notice if they were gone, only breaking them tells.
Idea. Changes that somebody thought of are in lists (`mutants`), each with the tests that must fail. Of the
Rust files that guard data cargo-mutants makes all simple changes there are; those that no test notices
must be in `survivors.toml`, with a reason.
Invariants. The user's tree is never touched: all happens in a copy below `target/mutants`, with a build
of its own.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from mutants import CARGO, Mutant, every  # noqa: E402

FOLDER = ROOT / "target" / "mutants"
TREE, BUILD = FOLDER / "tree", FOLDER / "build"
TOOLS = ROOT / ".venv" / "cargo"
VERSION = "27.1.0"  # of cargo-mutants
SURVIVORS = HERE / "survivors.toml"
MODULE = Path("python/outcore/_core.abi3.so")
# Seconds: tests of one change, all of them together, and one build. A test that waits for ever has
# noticed it too.
PATIENCE, PATIENCE_WITH_ALL, BUILD_PATIENCE = 180, 1800, 1200
# Unoptimised code is too slow for some tests; optimised, it takes most of the time to build.
ENVIRONMENT = {
    "CARGO_TARGET_DIR": str(BUILD),
    "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "CARGO_INCREMENTAL": "1",
    "CARGO_TERM_COLOR": "never",
    "PYTHONPATH": str(TREE / "python"),
    # Changes follow each other within the second by which Python tells old bytecode from new.
    "PYTHONDONTWRITEBYTECODE": "1",
    "HYPOTHESIS_STORAGE_DIRECTORY": str(FOLDER / "hypothesis"),
}
FEATURES = ["--features", "outcore-io/testing"]
BELOW = "outcore-plan"  # which outcore-io is built on, so that it has no features of it


def say(text: str) -> None:
    print(text, flush=True)


# ------------------------------------------------------------------------------------- the copy


def copy_tree() -> None:
    """The repository as it is now, with what is not committed; files that are equal stay untouched."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    wanted = {name for name in names if name and (ROOT / name).is_file()}
    for old in [path for path in TREE.rglob("*") if path.is_file() or path.is_symlink()]:
        if str(old.relative_to(TREE)) not in {*wanted, str(MODULE)}:
            old.unlink()
    for name in wanted:
        here, there = ROOT / name, TREE / name
        if not there.exists() or here.read_bytes() != there.read_bytes():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)
    place(ROOT / MODULE)


def place(module: Path) -> None:
    """Make this the compiled module of the copy; who has the old one mapped keeps it."""
    fresh = (TREE / MODULE).with_suffix(".new")
    shutil.copyfile(module, fresh)
    os.replace(fresh, TREE / MODULE)


@contextlib.contextmanager
def changed(mutant: Mutant) -> Iterator[bool]:
    """The copy with one change, or False."""
    path = TREE / mutant.file
    text = path.read_text() if path.is_file() else ""
    broken = mutant.applied(text)
    if broken is None:
        yield False
        return
    path.write_text(broken)
    try:
        yield True
    finally:
        path.write_text(text)


# ------------------------------------------------------------------------------------ the tests


def run(*command: object, patience: float = PATIENCE) -> tuple[int | None, str]:
    """Run something in the copy: how it ended (None: it did not), and what it said."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=TREE,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=patience)[0]
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, "it did not end"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Broken(Exception):
    """The lane itself cannot say anything."""


def compile_with(*words: object) -> None:
    """
    Let cargo build something.

    Once more from the start if it fails: what many small changes leave for the next build of rustc
    sometimes does not link.
    """
    for again in (True, False):
        code, said = run("cargo", *words, patience=BUILD_PATIENCE)
        if code == 0:
            return
        if again:
            shutil.rmtree(BUILD / "debug" / "incremental", ignore_errors=True)
    raise Broken(f"does not build:\n{said[-3000:]}")


def build() -> None:
    """Build the compiled module of the copy."""
    compile_with("build", "--locked", "-p", "outcore-py", "--features", "testing")
    place(BUILD / "debug" / "lib_core.so")


def pytest(tests: list[str], patience: float = PATIENCE) -> tuple[bool, str]:
    """Whether all these tests pass."""
    words = ["-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=line"]
    words += ["--lane", "fast"]  # what every change must pass is to notice, not only the long lane
    command = [ROOT / ".venv/bin/python", "-m", "pytest", *words, *tests]
    code, said = run(*command, patience=patience)
    # What a failed test leaves behind may end the process in another way, and so may the change itself:
    # less than 0 is a signal.
    if code is not None and code > 1 and " failed in " not in said:
        raise Broken(f"pytest ended with {code}:\n{said[-3000:]}")
    if code == 0 and " passed" not in said:
        raise Broken(f"no test ran, all were skipped:\n{said[-3000:]}")
    return code == 0, said


def cargo(tests: list[str]) -> tuple[bool, str]:
    """The same for tests of crates."""
    for test in tests:
        package, *program, name = test.removeprefix(CARGO).split()
        where = ["--test", program[0]] if program else ["--lib"]
        features = [] if package == BELOW else FEATURES
        words = ["test", "--locked", "-p", package, *features, *where]
        compile_with(*words, "--no-run")
        code, said = run("cargo", *words, "--", "--exact", name)
        if code == 0 and "1 passed" not in said:
            raise Broken(f"there is no test {name!r}:\n{said[-3000:]}")
        if code != 0:
            return False, said
    return True, ""


def passes(tests: tuple[str, ...], *, built: bool) -> bool:
    """Whether all tests pass; those of crates first, if nothing else needs a build."""
    of_cargo = [test for test in tests if test.startswith(CARGO)]
    of_python = [test for test in tests if not test.startswith(CARGO)]
    if not cargo(of_cargo)[0]:
        return False
    if of_python and built:
        build()
    return not of_python or pytest(of_python)[0]


def own(words: list[str]) -> list[str]:
    """Try the changes of the lists; what is wrong."""
    chosen = [one for one in every() if all(w in f"{one.file} {one.why}" for w in words)]
    if not chosen:
        return [f"no entry has {' '.join(words)!r} in its file or reason"]
    bad = [text for one in chosen for text in one.problems(TREE)]
    if bad:
        return bad
    rust = any(one.file.endswith(".rs") for one in chosen)
    if rust:
        say("-- building the copy")
        build()
    say("-- the tests, on the code as it is")
    tests = {test: None for one in chosen for test in one.tests}
    of_python = [test for test in tests if not test.startswith(CARGO)]
    # Of no tests, pytest would make all.
    everything, said = pytest(of_python, PATIENCE_WITH_ALL) if of_python else (True, "")
    if not everything:
        return [f"tests fail without any change:\n{said[-3000:]}"]
    everything, said = cargo([test for test in tests if test.startswith(CARGO)])
    if not everything:
        return [f"tests fail without any change:\n{said[-3000:]}"]
    # Those of Rust at the end: the compiled module changes with each of them.
    for mutant in sorted(chosen, key=lambda one: one.file.endswith(".rs")):
        begun = time.monotonic()
        try:
            with changed(mutant):
                survived = [
                    test
                    for test in mutant.tests
                    if passes((test,), built=mutant.file.endswith(".rs"))
                ]
            outcome = "SURVIVED" if survived else "killed"
        except Broken as error:
            survived, outcome = [str(error)], "BROKEN"
        say(f"{outcome:9} {mutant.title}  ({time.monotonic() - begun:.0f} s)")
        if survived:
            bad.append(f"{outcome}: {mutant.title}\n    {'; '.join(survived)}")
    return bad


# -------------------------------------------------------------------------------- cargo-mutants


def tool() -> Path | None:
    """cargo-mutants, installed if need be; None if it cannot be had."""
    found = TOOLS / "bin" / "cargo-mutants"
    said = ""
    if found.exists():
        said = subprocess.run(
            [found, "mutants", "--version"], capture_output=True, text=True
        ).stdout
    if said.split()[-1:] != [VERSION]:
        say(f"-- installing cargo-mutants {VERSION}")
        words = ["cargo", "install", "cargo-mutants", "--version", VERSION, "--locked"]
        if subprocess.run([*words, "--quiet", "--root", TOOLS], cwd=ROOT).returncode:
            return None
    return found


def without_place(name: str) -> str:
    """A change as cargo-mutants names it, without line and column: those move."""
    return re.sub(r"^([^:]+):\d+:\d+: ", r"\1: ", name.strip())


def by_cargo(words: list[str]) -> list[str]:
    """Let cargo-mutants change the files that guard data; what survives without a reason, and why not."""
    known = tomllib.loads(SURVIVORS.read_text())
    parts = [p for p in known["part"] if not words or any(w in p["file"] for w in words)]
    program = tool()
    if program is None:
        return [f"cargo-mutants {VERSION} cannot be had from crates.io: that part was NOT run"]
    bad = []
    for part in parts:
        say(f"-- cargo-mutants: {part['file']}")
        out = FOLDER / "cargo"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        options = ["--in-place", "-p", "outcore-io", *FEATURES, "--no-shuffle", "--colors", "never"]
        options += ["--timeout", part.get("timeout", 15), "-o", out, "-f", part["file"]]
        options += [word for name in part.get("functions", ()) for word in ("-F", name)]
        command = [program, "mutants", *options, "--", *part["tests"]]
        code, said = run(*command, patience=6 * 3600)
        copy_tree()  # whatever it left
        if code not in (0, 2, 3):
            bad.append(f"{part['file']}: cargo-mutants ended with {code}:\n{said[-3000:]}")
            continue
        told = [line for line in said.splitlines() if " mutants tested" in line]
        say(f"   {told[-1] if told else said[-500:]}")
        missed = (out / "mutants.out" / "missed.txt").read_text().splitlines()
        found = sorted({without_place(line) for line in missed})
        reasons = [one for one in known.get("survivor", ()) if one["file"] == part["file"]]
        used = set()
        for name in found:
            fits = [one for one in reasons if fnmatch.fnmatchcase(change_of(name), one["change"])]
            used.update(one["change"] for one in fits)
            if not fits:
                bad.append(f"SURVIVED: {name}")
        stale = [one["change"] for one in reasons if one["change"] not in used]
        bad += [f"{part['file']}: {change!r} does not survive any more" for change in stale]
    return bad


def change_of(name: str) -> str:
    """What is changed, without the file."""
    return name.partition(": ")[2]


def main(words: list[str]) -> int:
    parts = {"own": own, "cargo": by_cargo}
    chosen = [words[0]] if words and words[0] in parts else list(parts)
    words = words[1:] if words and words[0] in parts else words
    started = time.monotonic()
    copy_tree()
    bad = [text for part in chosen for text in parts[part](words)]
    took = f"in {time.monotonic() - started:.0f} s"
    if bad:
        say(f"\nFAILED {took}:\n" + "\n".join(bad))
        return 1
    say(f"\nall were noticed {took}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
