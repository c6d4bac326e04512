"""
A child process that dies before one of its steps: calls of ``os``, and of the core that change names.

What the core does within one of its calls is not cut: `crash/traced.py` sees to that, call by call.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from outcore import _core


@contextlib.contextmanager
def quick_folder(usual: Path) -> Iterator[Path]:
    """A folder in memory, where syncs take no time, for tests that kill and lose nothing else."""
    if not os.access("/dev/shm", os.W_OK):
        yield usual
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def last_words(path: str | Path, most: int = 5000) -> str:
    """What processes said last in a file: one that goes wrong may say more than memory holds."""
    with open(path, "rb") as said:
        said.seek(max(os.path.getsize(path) - most, 0))
        return said.read(most).decode(errors="replace")


def check_switched_once(seen: Sequence[Any], old: Any, new: Any) -> None:
    """Raise unless a state is old up to some step, and new from then on."""
    assert seen[0] == old and seen[-1] == new
    change = list(seen).index(new)
    assert list(seen) == [old] * change + [new] * (len(seen) - change)


#: Functions of the core that make, name and lengthen files.
CORE = ("move_into_place", "fsync_folder", "allocate")


def dies_at(step: int, action: Callable[[], object], names: Sequence[str]) -> bool:
    """
    Run `action` in a child that ends before its step number `step`; False if it comes to its end.

    Steps are the functions `names` of ``os``, those of `CORE`, and a file's beginning and end.
    """
    child = os.fork()
    if child == 0:
        try:
            _count_steps(step, [*((os, name) for name in names), *((_core, name) for name in CORE)])
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 77), "the action itself failed"
    return code == 77


def _count_steps(last: int, steps: Sequence[tuple[Any, str]]) -> None:
    count = 0

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == last:
                os._exit(77)
            return function(*args, **kwargs)

        return call

    for module, name in steps:
        setattr(module, name, counting(getattr(module, name)))

    def begin(*words: Any, **more: Any) -> Any:
        return _File(plain(*words, **more), counting)

    plain = _core.TempFile
    _core.TempFile = counting(begin)  # type: ignore[misc, assignment]


class _File:
    """A temporary file whose publishing is a step."""

    def __init__(self, file: _core.TempFile, counting: Callable[..., Any]) -> None:
        self._file = file
        self.publish = counting(file.publish)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
