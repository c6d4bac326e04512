"""Values of ``progress=``, and a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from outcore.base.report.access import format_bytes
from outcore.errors import UsageError

__all__ = ["Bar", "Progress", "ProgressArgument", "get_progress"]

#: Function called with the amount done and the total amount, in bytes or steps.
Progress = Callable[[int, int], None]
#: Value of the argument ``progress=``.
ProgressArgument = Progress | bool | None


def get_progress(value: ProgressArgument, title: str, *, shows: bool = True) -> Progress:
    """
    Return the function that is called with the progress of a call.

    `value` is a function; True for a bar on stderr; or None or False for no progress. Another value
    raises `UsageError` (``bad-progress``). Of several ranks, one has `shows`.
    """
    if value is True and shows:
        return _create_bar(title)
    if value is None or isinstance(value, bool):
        return lambda done, total: None
    if not callable(value):
        raise UsageError(
            f"progress={value!r} is not valid; pass a function of two numbers, done and total, or True "
            "for a bar",
            code="bad-progress",
        )
    return value


def _create_bar(title: str) -> Progress:
    """Return a bar that ends its line when all is done, even if it is never closed."""
    bars: list[Bar] = []

    def show(done: int, total: int) -> None:
        if not bars:
            bars.append(Bar(title, quiet=False, piped=True))
        bars[0](done, total)
        if done >= total:
            bars.pop().__exit__()

    return show


class Bar:
    """
    A progress bar on stderr (tqdm's if installed, else plain text); hidden outside a terminal.

    `quiet` always hides it. `piped` shows it even if the stream is not a terminal.
    """

    def __init__(
        self, title: str, quiet: bool, stream: TextIO | None = None, *, piped: bool = False
    ) -> None:
        self._stream: TextIO | None = stream or sys.stderr
        self._title = title
        self._quiet = quiet or self._stream is None or not (piped or self._stream.isatty())
        self._started = time.monotonic()
        self._first: int | None = None
        self._shown = 0.0
        self._bar: Any = None
        if not self._quiet:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(
                desc=title, unit="B", unit_scale=True, file=self._stream, dynamic_ncols=True
            )

    def __call__(self, done: int, total: int) -> None:
        """Show the amount done."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.total = total
            if self._first is None:
                self._first = self._bar.initial = done
            self._bar.update(done - self._bar.n)
            return
        if self._first is None:
            self._first = done
        now = time.monotonic()
        if now - self._shown < 0.2 and done < total:
            return
        self._shown = now
        rate = (done - self._first) / max(now - self._started, 1e-9)
        left = f"{(total - done) / rate:.0f} s left" if rate > 0 else "waiting"
        share = done / total if total else 1.0
        text = (
            f"{self._title} {share:4.0%}  {format_bytes(done)}  {format_bytes(int(rate))}/s  {left}"
        )
        print(f"\r{text:<70}", end="", file=self._stream, flush=True)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif not self._quiet and self._shown:
            print(file=self._stream)
