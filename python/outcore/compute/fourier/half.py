"""
Half of a Hermitian axis, where a pass reads all of it.

Idea. What is there is loaded as it is; the kernel (``mirror``) turns the rest round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outcore.arrays.schedule import Load
from outcore.compute.fourier.kernels import mirrored
from outcore.compute.passes.places import Ends, Plain

__all__ = ["Half"]


@dataclass
class Half(Plain):
    """
    An array with half of a Hermitian axis, read as all of it.

    Parameters
    ----------
    axis
        The axis.
    whole_length
        Of all of it.
    """

    axis: int = 0
    whole_length: int = 0

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """What is in the half, as it is there: the kernel turns the rest round."""
        low, there = origin[self.axis], self.lengths[self.axis]
        high = low + extents[self.axis]
        middle, first, last = mirrored(self.whole_length, low, high)
        # The section of the half, and where in the block it begins.
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
