"""
Lines that guard data, each with a change that breaks it and the tests that must notice.

The lists are the modules `LISTS`, one for each part of the code; `lane.py` makes the changes (in a copy)
and runs the tests, `test_mutants.py` looks whether the lists still fit the code. How to add an entry is in
CONTRIBUTING.md.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

LISTS = (
    "checkpoints",
    "classic_netcdf",
    "parts",
    "collectives",
    "computations",
    "conversions",
    "factors",
    "files_of_formats",
    "groups",
    "indexing",
    "lengths",
    "making",
    "metadata",
    "listed",
    "replaced",
    "accesses",
    "storage",
    "one_sided",
    "open_files",
    "fourier",
    "products",
    "ranks",
    "reductions",
    "resident",
    "side_files",
    "sorting",
    "unstructured",
    "placement",
    "xarray_and_dask",
    "virtual",
)
CARGO = "cargo "


@dataclass(frozen=True)
class Mutant:
    """
    One change of the code that loses or corrupts data.

    Parameters
    ----------
    file
        The file, from the root of the repository.
    before
        Text that is in it once: the line that guards data, and as much around it as it takes.
    after
        What the change makes of it.
    killed_by
        Tests that fail then: names as pytest has them (without what is in brackets: any of them), or
        ``cargo <package> <test>`` (``cargo outcore-io exec::tests::name``; of a program in
        ``crates/io/tests``: ``cargo outcore-io crash name``).
    why
        What is lost without the line.
    """

    file: str
    before: str
    after: str
    killed_by: tuple[str, ...] | str
    why: str

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests, also if it is only one."""
        return (self.killed_by,) if isinstance(self.killed_by, str) else self.killed_by

    @property
    def title(self) -> str:
        """The file and the line that is changed, for people."""
        old, new = self.before.strip().splitlines(), self.after.strip().splitlines()
        line = next((one for one in old if one not in new), old[0]).strip()
        return f"{self.file}: {line}"

    def applied(self, text: str) -> str | None:
        """The file with the change; None if it does not fit any more."""
        return text.replace(self.before, self.after) if text.count(self.before) == 1 else None

    def problems(self, root: Path) -> list[str]:
        """What is wrong with the entry, as the code is now."""
        found = []
        path = root / self.file
        text = path.read_text() if path.is_file() else ""
        times = text.count(self.before)
        if times != 1:
            found.append(f"{self.title}: the text before is there {times} times, not once")
        elif self.before == self.after:
            found.append(f"{self.title}: nothing is changed")
        found += [
            f"{self.title}: there is no test {t!r}" for t in self.tests if not exists(root, t)
        ]
        if not self.tests or len(self.why) < 20:
            found.append(f"{self.title}: no test, or no reason")
        return found


def exists(root: Path, test: str) -> bool:
    """Whether there is a test of this name."""
    if test.startswith(CARGO):
        package, *program, path = test.removeprefix(CARGO).split()
        crate = root / "crates" / package.removeprefix("outcore-")
        folder = crate / "tests" if program else crate / "src"
        *modules, name = path.split("::")
        if program:
            files = [folder / f"{program[0]}.rs", *(folder / program[0]).glob("*.rs")]
        else:
            files = [
                one for one in folder.rglob("*.rs") if _holds(one.relative_to(folder), modules)
            ]
        return any(re.search(rf"\bfn {name}\(", one.read_text()) for one in files if one.is_file())
    file, _, name = test.partition("[")[0].partition("::")
    path = root / file
    return path.is_file() and bool(re.search(rf"^def {name}\(", path.read_text(), re.M))


def _holds(file: Path, modules: list[str]) -> bool:
    """Whether a source file is that of a module, or of one around it."""
    own = [one for one in file.with_suffix("").parts if one not in ("mod", "lib")]
    return own == modules[: len(own)]


def every() -> list[Mutant]:
    """All entries of all lists."""
    lists = [importlib.import_module(f"mutants.{name}").MUTANTS for name in LISTS]
    return [one for some in lists for one in some]
