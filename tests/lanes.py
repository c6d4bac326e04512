"""
Choose the tests of a lane and of a part.

The fast lane (``./x test``) has the variants of a test that kills a mutant (`mutants`), every test of
the documents, and one variant of every other test. Ranks are two, unless an entry of `mutants` names a
variant with another number, or they are on several nodes. Tests with ``_slow`` in their name are not in
it. Everything else is in the long lane only (``./x test all``), which can be cut into parts
(``./x test all --part 2/8``): a test belongs to the part that follows from its name alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

from mutants import CARGO, every

#: Folders of which every variant is in the fast lane: a change shows here what it does to users.
WHOLE = ("tests/docs/",)
#: Examples of a property in the fast lane, unless it kills a mutant.
FAST_EXAMPLES = 6

Test = TypeVar("Test")


def killers() -> frozenset[str]:
    """Names of the Python tests that kill mutants, with a variant in brackets where an entry has one."""
    return frozenset(t for one in every() for t in one.tests if not t.startswith(CARGO))


def function_of(name: str) -> str:
    """Name of a test without its variant."""
    return name.partition("[")[0]


def choose_fast(
    tests: Sequence[Test],
    name_of: Callable[[Test], str],
    ranks_of: Callable[[Test], int],
    chosen: frozenset[str],
    keep_variants: Callable[[Test], bool] = lambda _: True,
) -> list[Test]:
    """
    Choose the tests of the fast lane.

    Parameters
    ----------
    tests
        All tests that were collected.
    name_of
        Name of a test, with its variant in brackets.
    ranks_of
        Number of simulated ranks of a test; 0 if it has none, or they are on several nodes.
    chosen
        Names of functions of which all variants are taken (with two ranks, or on several nodes), and of
        single variants (`killers`).
    keep_variants
        Whether variants of a test in `chosen` count; if not, one variant of it is taken, too.
    """
    tests = [test for test in tests if "_slow" not in name_of(test)]
    first: dict[str, Test] = {}
    for test in tests:
        function = function_of(name_of(test))
        best = first.setdefault(function, test)
        if ranks_of(best) != 2 and ranks_of(test) == 2:
            first[function] = test
    single = {name_of(test) for test in first.values()}

    def kills(test: Test) -> bool:
        name = name_of(test)
        return name in chosen or (function_of(name) in chosen and ranks_of(test) in (0, 2))

    return [
        test
        for test in tests
        if name_of(test) in single
        or name_of(test).startswith(WHOLE)
        or (keep_variants(test) and kills(test))
    ]


def read_part(text: str) -> tuple[int, int]:
    """Read ``K/N``: the number of a part, from 1, and how many there are."""
    found = re.fullmatch(r"([1-9][0-9]*)/([1-9][0-9]*)", text)
    if not found or int(found[1]) > int(found[2]):
        raise ValueError(f"cannot read {text!r} as a part; give K/N, as in 2/8")
    return int(found[1]), int(found[2])


def part_of(name: str, count: int) -> int:
    """Return the part, from 1 to `count`, of the test with this name."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") % count + 1


def choose_part(
    tests: Iterable[Test], name_of: Callable[[Test], str], number: int, count: int
) -> list[Test]:
    """Choose the tests of part `number` of `count`."""
    return [test for test in tests if part_of(name_of(test), count) == number]


# ------------------------------------------------------------------------------ hooks of pytest

_COLLECTED = pytest.StashKey[list[str]]()


def collected(config) -> list[str]:
    """Names of all tests there are, if this run of pytest was asked for no fewer; else none."""
    folders = [Path(one).name for one in config.args]
    whole = folders == ["tests"] and not config.getoption("keyword")
    return config.stash[_COLLECTED] if whole else []


def add_options(parser) -> None:
    """Add ``--lane`` and ``--part`` to pytest."""
    group = parser.getgroup("lanes")
    group.addoption("--lane", choices=("fast", "all"), default="all", help="tests/lanes.py")
    group.addoption("--part", type=read_part, metavar="K/N", help="one of N parts of the tests")


def apply(config, items: list, ranks_under_mpi: int = 0) -> None:
    """Deselect what is not in the lane and part; limit the examples of properties in the fast lane."""
    kept = list(items)
    config.stash[_COLLECTED] = [item.nodeid for item in items]
    if config.getoption("lane") == "fast":
        chosen = killers()
        kept = choose_fast(
            kept,
            lambda item: item.nodeid,
            _ranks_of,
            chosen,
            # Simulated ranks have all variants of these.
            lambda item: not ranks_under_mpi or item.get_closest_marker("real_mpi") is not None,
        )
        for item in kept:
            if not {item.nodeid, function_of(item.nodeid)} & chosen:
                _limit_examples(item.function)
    part = config.getoption("part")
    if part:
        kept = choose_part(kept, lambda item: f"{item.nodeid} {ranks_under_mpi or ''}", *part)
    if len(kept) < len(items):
        here = set(map(id, kept))
        config.hook.pytest_deselected(items=[one for one in items if id(one) not in here])
        items[:] = kept


def _ranks_of(item) -> int:
    world = getattr(item, "callspec", None) and item.callspec.params.get("world")
    return world[0] if isinstance(world, tuple) and world[1] is None else 0


def _limit_examples(function) -> None:
    # Where a decorated property keeps its settings: Hypothesis has no public way to change them later.
    name = "_hypothesis_internal_use_settings"
    current = getattr(function, name, None)
    if current is not None and current.max_examples > FAST_EXAMPLES:
        setattr(function, name, hypothesis.settings(current, max_examples=FAST_EXAMPLES))
