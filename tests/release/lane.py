"""
The release: a wheel and an sdist in `dist`, and what they are worth.

    ./x wheel                      make both, try the wheel with each Python, install the sdist once
    ./x wheel --python 3.12        try it with these Pythons only (may be repeated)
    ./x wheel --keep               try what is in `dist` already, build nothing
    ./x wheel --no-sdist           leave the sdist out (it is compiled once more)
    ./x wheel --native             link to the C library of this machine instead of an old one: the wheel
                                   runs here, and where that library is as new

Problem. A wheel that was built on a machine of today refers to a C library of today, and what is only in
the working tree is missed by nobody who tests there. Idea. Zig, as a linker that knows the symbols of
older C libraries, links for the one of 2018 (manylinux_2_28); maturin checks which symbols are used, and
auditwheel once more. The wheel then goes into an empty environment of each Python of this machine:
nothing but NumPy first, for the smoke test and the README; then with h5py, for the tutorial and the
installation page. The module has Python's stable ABI, so there is one wheel for all of them.

Invariants. Everything from outside comes through pip. Nothing outside of `dist` and `target/wheel` is
written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DIST, FOLDER = ROOT / "dist", ROOT / "target" / "wheel"
#: The oldest C library that has what is called: `statx` and `renameat2` (of 2018: RHEL 8, Debian 10).
PLATFORM = "manylinux_2_28"
OLDEST = (3, 11)
RUN = ROOT / "tests" / "docs" / "blocks.py"
#: Documents that run with NumPy alone, and with the extra for HDF5.
BARE = ["README.md"]
WITH_HDF5 = ["docs/tutorial.md", "docs/install.md"]
LARGEST = 20 << 20  # bytes of a wheel

ASK = """
import json, platform, sys, sysconfig
free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
print(json.dumps([sys.version_info[:3], platform.python_implementation(), free, sys.executable]))
"""


class Bad(Exception):
    """What was made is not what it should be."""


def say(message: str) -> None:
    print(f"-- {message}", flush=True)


def run(*words: object, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a program; what it printed. Its failure is ours."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, env=env, text=True, stdin=subprocess.DEVNULL, capture_output=True
    )
    if done.returncode:
        told = f"{done.stdout}\n{done.stderr}"[-6000:]
        raise Bad(f"`{' '.join(command[:5])} ...` ended with {done.returncode}:\n{told}")
    return done.stdout


def version() -> str:
    """The version: it stands in Cargo.toml, and nowhere else."""
    with open(ROOT / "Cargo.toml", "rb") as stream:
        return str(tomllib.load(stream)["workspace"]["package"]["version"])


def environment() -> dict[str, str]:
    """That of builds and of tries: nothing of the caller's that means this folder."""
    ours = ("PYTHONPATH", "PYTHONHOME", "MATURIN_PEP517_ARGS")
    kept = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith("OUTCORE_")}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "CARGO_TERM_COLOR": "never"}


# ---------------------------------------------------------------------------------------- making


def make(*, native: bool, sdist: bool) -> None:
    """Build into an empty `dist`."""
    maturin = [sys.executable, "-m", "maturin"]
    shutil.rmtree(DIST, ignore_errors=True)
    words = ["--release", "--locked", "--out", DIST, "--interpreter", sys.executable]
    env = environment()
    if not native:
        import ziglang

        env["CARGO_ZIGBUILD_ZIG_PATH"] = str(Path(ziglang.__file__).parent / "zig")
        env["CARGO_ZIGBUILD_CACHE_DIR"] = str(FOLDER / "zig")
        # Clang 18 to 21 want to be told that what uses AVX-512 (libdeflate, where a processor has it)
        # may use its long vectors; nothing else is compiled differently.
        env["CFLAGS_x86_64_unknown_linux_gnu"] = "-mevex512"
        words += ["--zig", "--compatibility", PLATFORM]
    say(f"the wheel, for {'this machine' if native else PLATFORM} (minutes the first time)")
    run(*maturin, "build", *words, env=env)
    if sdist:
        say("the sdist")
        run(*maturin, "sdist", "--out", DIST, env=env)


def made(suffix: str) -> Path:
    """The one file of that kind in `dist`."""
    found = sorted(DIST.glob(f"outcore-*{suffix}"))
    if len(found) != 1:
        raise Bad(f"{DIST} has {len(found)} files outcore-*{suffix}; run ./x wheel without --keep")
    return found[0]


def check_wheel(path: Path, *, native: bool) -> None:
    """Its name, what is in it, and what it asks of the system."""
    tags = "linux" if native else PLATFORM
    if not re.fullmatch(rf"outcore-{re.escape(version())}-cp311-abi3-\w*{tags}\w*\.whl", path.name):
        raise Bad(f"{path.name}: expected version {version()}, cp311-abi3 and {tags}")
    if path.stat().st_size > LARGEST:
        raise Bad(f"{path.name} has {path.stat().st_size} bytes, more than {LARGEST}")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        parts = {name: wheel.read(name) for name in names}
    info = f"outcore-{version()}.dist-info"
    odd = [n for n in names if not n.startswith(("outcore/", f"{info}/"))]
    odd += [n for n in names if n.endswith((".rs", ".npy", ".h5", ".pyc")) or "strategies" in n]
    missing = {
        "outcore/__init__.py",
        "outcore/py.typed",
        "outcore/_core.pyi",
        "outcore/model/machines/today.toml",
        f"{info}/licenses/LICENSE",
        f"{info}/licenses/LICENSES-THIRD-PARTY.txt",
        f"{info}/entry_points.txt",
    }.difference(names)
    if odd or missing:
        raise Bad(f"{path.name}: does not belong into it: {odd}; is missing: {sorted(missing)}")
    modules = [n for n in names if n.endswith(".so")]
    if modules != ["outcore/_core.abi3.so"]:
        raise Bad(f"{path.name}: compiled modules {modules}")
    for name in variables(parts) - documented():
        raise Bad(f"{path.name} knows {name}, which docs/status/settings.md does not have")
    if not native:
        told = " ".join(run(sys.executable, "-m", "auditwheel", "show", path).split())
        if f'"{PLATFORM}_' not in told:
            raise Bad(f"auditwheel does not find it fit for {PLATFORM}: {told}")
    say(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB, {len(names)} files")


def variables(parts: dict[str, bytes]) -> set[str]:
    """The environment variables of ours that these files name."""
    found = {name for body in parts.values() for name in re.findall(rb"OUTCORE_[A-Z0-9_]+", body)}
    return {name.decode() for name in found}


def documented() -> set[str]:
    """Those that users are told of."""
    return set(re.findall(r"OUTCORE_[A-Z0-9_]+", (ROOT / "docs/status/settings.md").read_text()))


def check_sdist(path: Path) -> None:
    """What is needed to build it is there, and nothing else."""
    with tarfile.open(path) as archive:
        names = [member.name for member in archive if member.isfile()]
    top = f"outcore-{version()}/"
    inside = {name.removeprefix(top) for name in names}
    needed = {"Cargo.toml", "Cargo.lock", "LICENSE", "LICENSES-THIRD-PARTY.txt"}
    needed |= {"README.md", "pyproject.toml", "PKG-INFO"}
    needed |= {"crates/plan/Cargo.toml", "crates/py/src/lib.rs", "python/outcore/py.typed"}
    odd = [n for n in inside if n.startswith(("tests/", "bench/", "docs/", "target/", ".venv"))]
    odd += [n for n in inside if n.endswith((".so", ".pyc", ".npy"))]
    odd += [n for n in names if not n.startswith(top)]
    if needed - inside or odd:
        raise Bad(f"{path.name}: is missing: {sorted(needed - inside)}; too much: {sorted(odd)}")
    say(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB, {len(names)} files")


# ---------------------------------------------------------------------------------------- trying


def pythons(wanted: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The Pythons of this machine, one of each version: name and program; and why not the others."""
    places = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    programs = [p / f"python3.{n}" for p in places for n in range(9, 30)]
    programs += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin/python"))
    found: dict[str, list[str]] = {}
    skipped = []
    for program in dict.fromkeys(p for p in programs if p.exists()):
        asked = subprocess.run(
            [program, "-I", "-c", ASK], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        try:
            release, kind, free, executable = json.loads(asked.stdout)
        except ValueError:
            continue  # Python 2, or a name of pyenv that leads to nothing
        name = f"{release[0]}.{release[1]}"
        if wanted and name not in wanted:
            continue
        if tuple(release[:2]) < OLDEST:
            skipped.append(f"{name}: outcore needs 3.11 or newer")
        elif kind != "CPython" or free:
            what = "free-threaded Python" if free else kind
            skipped.append(f"{name} ({program}): {what} has no stable ABI of CPython 3.11")
        else:
            found.setdefault(name, []).append(executable)
    chosen = []
    for name, candidates in sorted(found.items(), key=lambda item: int(item[0].split(".")[1])):
        usable = next((c for c in candidates if has_venv(c)), None)
        if usable is None:
            skipped.append(f"{name} ({candidates[0]}): has no venv, or no ensurepip")
        else:
            chosen.append((name, usable))
    skipped += [f"{name}: is not on this machine" for name in wanted if name not in found]
    return chosen, sorted(set(skipped))


def has_venv(program: str) -> bool:
    words = [program, "-I", "-c", "import venv, ensurepip"]
    return subprocess.run(words, capture_output=True).returncode == 0


def empty(name: str, program: str) -> Path:
    """The Python of a new, empty environment."""
    place = FOLDER / name
    shutil.rmtree(place, ignore_errors=True)
    run(program, "-m", "venv", place / "env", env=environment())
    return place / "env" / "bin" / "python"


def attempt(python: Path, script: Path, *words: object) -> None:
    """Run a script in a folder of its own; all that it imports is what is installed."""
    folder = python.parents[2] / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    env = environment() | {"XDG_CACHE_HOME": str(folder / "cache")}
    run(python, "-I", script, *words, cwd=folder, env=env)


def try_wheel(name: str, program: str, wheel: Path) -> None:
    """Install into an empty environment; the smoke test, the README, then the tutorial."""
    started = time.monotonic()
    python = empty(name, program)
    pip = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    run(*pip, wheel, env=environment())
    attempt(python, HERE / "smoke.py", version())
    for document in BARE:
        attempt(python, RUN, ROOT / document)
    run(*pip, f"{wheel}[hdf5]", env=environment())
    for document in WITH_HDF5:
        attempt(python, RUN, ROOT / document)
    say(f"Python {name}: installed, smoke test and documents passed, {spent(started)}")


def try_sdist(name: str, program: str, sdist: Path) -> None:
    """Compile and install; the smoke test."""
    started = time.monotonic()
    python = empty(f"sdist-{name}", program)
    # A folder for what is compiled that stays: the second time only our crates are.
    env = environment() | {"CARGO_TARGET_DIR": str(FOLDER / "build")}
    run(python, "-m", "pip", "install", "--quiet", sdist, env=env)
    attempt(python, HERE / "smoke.py", version())
    say(f"sdist with Python {name}: compiled, installed, smoke test passed, {spent(started)}")


def spent(started: float) -> str:
    return f"{time.monotonic() - started:.0f} s"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./x wheel", description=__doc__.split("\n\n")[0])
    parser.add_argument("--python", action="append", default=[], metavar="3.N")
    parser.add_argument("--keep", action="store_true", help="try what is in dist already")
    parser.add_argument("--no-sdist", dest="sdist", action="store_false")
    parser.add_argument("--native", action="store_true", help="for this machine alone")
    words = parser.parse_args(arguments)
    started = time.monotonic()
    failed = []
    try:
        if not words.keep:
            make(native=words.native, sdist=words.sdist)
        wheel = made(".whl")
        check_wheel(wheel, native=words.native)
        sdist = made(".tar.gz") if words.sdist else None
        if sdist is not None:
            check_sdist(sdist)
    except Bad as bad:
        print(f"FAILED {spent(started)}: {bad}")
        return 1
    chosen, skipped = pythons(words.python)
    if not chosen:
        failed.append("no Python to try it with")
    for name, program in chosen:
        try:
            try_wheel(name, program, wheel)
        except Bad as bad:
            failed.append(f"Python {name}: {bad}")
    if sdist is not None and chosen:
        try:
            try_sdist(*chosen[0], sdist)
        except Bad as bad:
            failed.append(f"sdist: {bad}")
    for line in skipped:
        print(f"NOT TRIED: {line}")
    if failed:
        print("\n".join([f"FAILED in {spent(started)}:", *failed]))
        return 1
    print(f"passed in {spent(started)}: {wheel.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
