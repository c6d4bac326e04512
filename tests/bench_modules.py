"""The modules of `bench`, importable for a while."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "bench"


@contextlib.contextmanager
def bench_modules(*more: Path) -> Iterator[None]:
    """Put `bench`, and further folders below it, on the path; then forget what was imported there."""
    places = [str(BENCH), *map(str, more)]
    # The tests of crashes have a module of this name, too.
    other = sys.modules.pop("cases", None)
    before = set(sys.modules)
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            sys.path.remove(place)
        for name in set(sys.modules) - before:
            where = getattr(sys.modules[name], "__file__", None) or ""
            if where.startswith(str(BENCH)):
                del sys.modules[name]
        if other is not None:
            sys.modules["cases"] = other
