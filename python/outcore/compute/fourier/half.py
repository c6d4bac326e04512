"""
Half of a Hermitian axis, for a pass that reads the whole axis.

Idea. The half is loaded as it is stored; the kernel (``mirror``) makes the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outcore.arrays.schedule import Load
from outcore.compute.fourier.kernels import find_mirrored
from outcore.compute.passes.places import Ends, PlainArray

__all__ = ["HalfAxis"]


@dataclass
class HalfAxis(PlainArray):
    """Array that stores half of a Hermitian axis, read as the whole axis of `whole_length` elements."""

    axis: int = 0
    whole_length: int = 0

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Return loads of the stored half; the kernel mirrors it."""
        low, there = origin[self.axis], self.lengths[self.axis]
        high = low + extents[self.axis]
        middle, first, last = find_mirrored(self.whole_length, low, high)
        # Sections of the half, each with its first index in the block.
        parts = (
            ((low, min(middle, there)), low),
            ((first, min(last, there)), first - middle + low),
        )
        loads = []
        for part, begin in parts:
            place = list(ends)
            place[self.axis] = part
            shifted = list(origin)
            shifted[self.axis] = begin
            loads += super().load(tuple(place), shifted, extents)
        return loads
