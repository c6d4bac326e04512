"""The child of `test_each_call_of_a_collective_fails`: four ranks on two nodes, as threads."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from each_call import HINTS, OLD, check

import outcore
from outcore.ranks.collective import planning
from outcore.testing.sim import SimWorld

NEW = OLD + 100_000
RANKS = 4
# More calls than any of these collectives makes.
MOST = 2000


def main(place: str, name: str, words: str, method: str, how: str) -> None:
    options = eval(words)
    method, _, sync = method.partition(", ")
    assert sync in ("", "sync")
    failing = ctypes.CDLL(os.environ["FAILING"])
    number = {"EIO": errno.EIO, "ENOSPC for good": errno.ENOSPC, "half": 0}[how]
    # Several rounds, and holes that have to be read first.
    planning.AGREED = replace(planning.AGREED, slot=1500, least=1)
    keys = [np.s_[rank : 55 : RANKS + 1, 3:] for rank in range(RANKS)]
    expected = OLD.copy()
    for key in keys:
        expected[key] = NEW[key]
    # On their own, ranks replace a chunk one after the other.
    encoded = "compression" in options and method == "two-phase"
    whole = options["chunks"] if encoded else None
    pristine = Path(place, "pristine")
    pristine.mkdir()
    outcore.create(pristine / name, data=OLD, **options).close()

    def act(path: Path) -> list[BaseException | None]:
        """How it ended on each rank."""

        def body(t):
            try:
                with outcore.open(path, "r+", comm=t, hints={**HINTS, "sync": bool(sync)}) as a:
                    a.write_all(keys[t.rank], NEW[keys[t.rank]], method=method)
                    if not sync:
                        a.flush_all()
                    found = a.read_all(..., method=method)
            except outcore.OutcoreError as error:
                return error
            assert np.array_equal(expected, found)
            return None

        return SimWorld(RANKS, ranks_per_node=2, timeout=60).run(body)

    failures, calls = 0, MOST
    for turn in range(1, MOST):
        folder = Path(place, str(turn))
        shutil.copytree(pristine, folder)
        failing.failing_arm(
            str(folder).encode(), ctypes.c_long(turn), number, number == errno.ENOSPC
        )
        try:
            ends = act(folder / name)
        finally:
            calls = failing.failing_disarm()
        raised = [end for end in ends if end is not None]
        if raised:
            failures += 1
            assert len(raised) == RANKS, ends
            assert all(isinstance(end, outcore.errors.CollectiveError) for end in raised), ends
            causes = [end.__cause__ for end in raised if end.__cause__ is not None]
            assert causes, ends
            assert all(getattr(cause, "errno", None) == number for cause in causes), causes
        with outcore.open(folder / name, hints=HINTS) as b:
            check(b[...], expected, whole)
            assert raised or np.array_equal(expected, b[...]), f"call {turn} was ignored"
        assert act(folder / name) == [None] * RANKS
        shutil.rmtree(folder)
        if calls < turn:
            break
    else:
        raise AssertionError(f"more than {MOST} calls")
    print(calls, failures)


if __name__ == "__main__":
    main(*sys.argv[1:])
