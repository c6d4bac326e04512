"""
Public names: the top level and the modules whose names do not need the floor they come from.

A name occurs in one module only. So a journal, and ``outcore run``, can name a function without its
module.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

__all__ = ["MODULES", "find_public", "list_public"]

MODULES = (
    "outcore",
    *("outcore.fft", "outcore.linalg", "outcore.ndimage"),
    *("outcore.mpi", "outcore.unstructured", "outcore.jobs"),
    *("outcore.types", "outcore.errors", "outcore.model"),
)


def find_public(name: str) -> Any:
    """Return the public object of this name, without its module; `AttributeError` if there is none."""
    for module in map(importlib.import_module, MODULES):
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"outcore has no public object {name!r}")


def list_public() -> Iterator[tuple[str, Any]]:
    """Yield the full name and the object of everything public, sorted within each module."""
    seen: set[str] = set()
    for module in map(importlib.import_module, MODULES):
        for name in sorted(set(module.__all__) - seen):
            seen.add(name)
            yield f"{module.__name__}.{name}", getattr(module, name)
