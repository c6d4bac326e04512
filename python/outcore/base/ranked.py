"""
Calls with ``comm=``, served by the package of the ranks.

Problem: `outcore.open`, `outcore.open_many` and `outcore.open_group` accept ``comm=`` and then need
collective calls, which are built on arrays and groups.
Approach: the package of the ranks registers the module that serves these calls (`register`). The module
is imported at the first call with ``comm=`` (`get_service`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    import outcore

__all__ = ["CollectiveService", "get_service", "register"]

T = TypeVar("T")
_registered: list[str] = []


class CollectiveService(Protocol):
    """Calls of many ranks that arrays and groups need. All are collective."""

    def open(
        self, comm: Any, path: Any, mode: Any, hints: Any, options: Mapping[str, Any]
    ) -> outcore.mpi.CollectiveArray:
        """Open or create an array on all ranks, as `outcore.open`."""

    def open_many(
        self, comm: Any, paths: Iterable[Any], mode: Any, hints: Any, options: Mapping[str, Any]
    ) -> list[outcore.mpi.CollectiveArray]:
        """Open several arrays on all ranks, as `outcore.open_many`."""

    def open_group(
        self, comm: Any, path: Any, mode: Any, hints: Any, format: str | None
    ) -> outcore.Group:
        """Open or create a group on all ranks, as `outcore.open_group`."""

    def run_on_first_rank(
        self, group: outcore.mpi.Transport, verb: str, where: str, work: Callable[[], T]
    ) -> T:
        """Run a short operation on the first rank, and return its result on all ranks."""


def register(module: str) -> None:
    """Register the module with the functions of `CollectiveService` that serves calls with ``comm=``."""
    _registered[:] = [module]


def get_service() -> CollectiveService:
    """Return the module that serves calls with ``comm=``."""
    return cast(CollectiveService, importlib.import_module(_registered[0]))
