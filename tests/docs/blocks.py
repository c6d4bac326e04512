"""
The Python blocks of a document, and what it takes to run them.

A document imports what it uses, and has no names but its own. Blocks with ``>>>`` are doctests; the
others are programs. Needs only the standard library, so that it runs in an environment in which nothing
but a wheel is installed:

    python -I tests/docs/blocks.py docs/tutorial.md
"""

from __future__ import annotations

import doctest
import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

__all__ = ["FLAGS", "blocks_of", "commands_of", "run"]

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def blocks_of(text: str) -> list[str]:
    """Give the Python blocks, also those within lists."""
    found = re.findall(r"^( *)```(?:python|py|pycon)\b.*?\n(.*?)^ *```", text, re.S | re.M)
    return [textwrap.dedent(block) for _, block in found]


def commands_of(text: str) -> list[list[str]]:
    """Give the arguments of each command ``outcore ...`` in blocks that are not Python."""
    found = []
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.S | re.M):
        if language in ("python", "py", "pycon"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            start = re.match(
                r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:mpiexec -n \d+ )?outcore (?=\S)", line
            )
            if start:
                words = shlex.split(line[start.end() :], comments=True)
                ends = [n for n, word in enumerate(words) if re.fullmatch(r"\d?>>?|\||&&?|;", word)]
                found.append(words[: ends[0]] if ends else words)
    return found


def run(text: str, name: str) -> None:
    """Run the blocks of a document in the current folder; what goes wrong is raised."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(blocks_of(text)):
        if ">>>" not in block:
            exec(compile(block, f"{name} (block {number})", "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, name, name, number)
        test.globs = names
        told: list[str] = []
        runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
        runner.run(test, out=told.append, clear_globs=False)
        if runner.failures:
            raise AssertionError("".join(told))


if __name__ == "__main__":
    for path in sys.argv[1:]:
        run(Path(path).read_text("utf-8"), Path(path).name)
