"""What commands print: documents, numbers, a progress bar."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np

from outcore.report import human

__all__ = ["Bar", "print_json"]


def print_json(document: Any) -> None:
    """One JSON document."""
    print(json.dumps(_plain(document), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    """As JSON has it: numbers that it lacks, and all else, are text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | set | frozenset | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    return str(value)


class Bar:
    """
    A progress bar on stderr: tqdm's if it is installed, else plain text; none if piped.

    Parameters
    ----------
    title
        What is under way.
    quiet
        None at all.
    stream
        Instead of stderr.
    piped
        Also if nobody looks at it on a terminal.
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
        """So much is done."""
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
        text = f"{self._title} {share:4.0%}  {human(done)}  {human(int(rate))}/s  {left}"
        print(f"\r{text:<70}", end="", file=self._stream, flush=True)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif not self._quiet and self._shown:
            print(file=self._stream)
