"""
State of one rank of an array that is divided over ranks on disk.

Problem: local arrays, slabs, shifts, multicasts and copies need the file of the rank, its pieces and its
overlap area; users need none of these.
Approach: `PlacedArray` is the public interface of one object with this state, its ``handle``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.distribution import Distribution, Key
from outcore.base.requests import StartedRequests
from outcore.errors import UsageError
from outcore.problems.placement.files import PlacementManifest
from outcore.problems.placement.overlap import Overlap, find_overlaps
from outcore.problems.placement.part import LocalPart
from outcore.problems.placement.slabs import choose_rows
from outcore.ranks.dist import DistArray
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Transport

__all__ = ["Placement", "PlacementState", "get_step_bytes"]

#: Where the elements of an out-of-core array are stored.
Placement = Literal["global", "local", "partitioned"]


def get_step_bytes() -> int:
    """Return the number of bytes of the memory budget that one step of an operation may use."""
    held, budget, _ = _core.memory_state()
    return max((budget - held) // 4, 1)


class PlacementState:
    """
    State of one rank of an array that is divided over ranks on disk.

    `disk` is the file of the whole array, or under local placement the file of this rank. `own_shape`
    and `whole_shape` are the shapes of the local array without and with its overlap area, and `lead` is
    the first own element in the latter. `pieces` has the own elements as sections of the whole array and
    of the local array, and `part` is the local array with its overlap area, as a schedule reads it.
    """

    def __init__(
        self,
        group: Transport,
        distribution: Distribution,
        widths: list[tuple[int, int]],
        disk: DiskArray,
        placement: Placement,
        path: str,
        manifest: PlacementManifest | None = None,
    ) -> None:
        self.group, self.distribution, self.widths = group, distribution, widths
        self.disk, self.placement, self.path = disk, placement, path
        self._manifest = manifest
        self.requests = StartedRequests()
        core, rank = distribution.core, group.rank
        self.own_shape = tuple(core.local_shape(rank, []))
        self.whole_shape = tuple(core.local_shape(rank, widths))
        _, places = core.pieces(rank, widths, False)
        self.lead = (
            tuple(places[:, :, 0].min(axis=0).tolist()) if len(places) else (0,) * len(disk.shape)
        )
        self.pieces = core.pieces(rank, [], False)
        is_local = placement == "local"
        self.part = disk if is_local else LocalPart(disk, distribution, rank, widths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self.distribution.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.disk.dtype

    @property
    def order(self) -> Literal["C", "F"]:
        """Order of the elements in the file."""
        return "F" if self.disk.order == "F" else "C"

    @property
    def ghosts(self) -> tuple[tuple[int, int], ...]:
        """Widths of the overlap area: a pair (before, behind) per axis."""
        return tuple(self.widths) or ((0, 0),) * len(self.shape)

    @property
    def manifest(self) -> PlacementManifest:
        """Manifest of an array with local placement."""
        assert self._manifest is not None, "local placement has a manifest"
        return self._manifest

    def agree(
        self,
        name: str,
        work: Callable[[], list[int] | None],
        arguments: str = "",
        *,
        equal: int = 0,
        meaning: object = None,
    ) -> _core.Records:
        """
        Run a step on all ranks with the same array; all ranks return, or all raise. Collective.

        `name` and `arguments` describe the call in messages; `meaning` must be equal on all ranks.
        """
        array = (self.path, self.placement, self.shape, self.dtype, str(self.distribution))
        return Ranks.of_call(self.group, f"PlacedArray.{name}").gather_numbers(
            work,
            lambda: f"PlacedArray.{name}({arguments}) of {self.path!r}, {self.distribution}",
            equal=equal,
            meaning=lambda: (array, self.ghosts, meaning),
        )

    def read_local(self) -> DistArray:
        """Return the local array in memory, with its overlap area."""
        memory: NDArray[Any] = np.empty(self.whole_shape, self.dtype)
        self.part.read(tuple(slice(0, n) for n in self.whole_shape), out=memory)
        return DistArray(self.distribution, memory, transport=self.group, ghosts=list(self.ghosts))

    def choose_slab_axis(self, axis: int | None) -> int:
        """Return the axis along which slabs follow each other: by default the slowest in the file."""
        ndim = len(self.shape)
        slow = 0 if self.order == "C" else ndim - 1
        found = slow if axis is None else axis
        if ndim and not -ndim <= found < ndim:
            raise UsageError(
                f"slabs: axis {axis} is out of range for {ndim} axes; use {-ndim}..{ndim - 1}",
                code="bad-blocks",
            )
        return found % max(ndim, 1)

    def cut_boxes(self) -> list[Key]:
        """Return sections that cover the own elements; each section fits in memory."""
        shape = self.own_shape
        if 0 in shape:
            return []
        if not shape:
            return [()]
        axis = self.choose_slab_axis(None)
        row = math.prod(n for d, n in enumerate(shape) if d != axis) * self.dtype.itemsize
        step = choose_rows(get_step_bytes(), row, 0)
        whole = [slice(0, n) for n in shape]
        cuts = [slice(low, min(low + step, shape[axis])) for low in range(0, shape[axis], step)]
        return [(*whole[:axis], cut, *whole[axis + 1 :]) for cut in cuts]

    def list_overlaps(self) -> list[Overlap]:
        """Return the parts of the overlap area of this rank, by owner."""
        return find_overlaps(self.distribution, self.group.rank, list(self.ghosts))

    def find_boundary(self) -> list[Key]:
        """Return the sections of the local array that are ghosts of other ranks, each once."""
        rank, found = self.group.rank, {}
        for one in self.list_overlaps():
            for theirs in find_overlaps(self.distribution, one.owner, list(self.ghosts)):
                if theirs.owner == rank:
                    found[tuple((p.start, p.stop) for p in theirs.there)] = theirs.there
        return list(found.values())
