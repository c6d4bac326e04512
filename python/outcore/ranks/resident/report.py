"""Reports of movements: `ResidentReport`, with the position of a section in the layout and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.arrays.layouts import ResidentLayout, count_touched
from outcore.base.report import format_bytes
from outcore.base.report.bars import Bars, DrawableReport
from outcore.base.sections import Selection
from outcore.ranks.collective.explain import explain_all
from outcore.ranks.collective.report import ManyReport
from outcore.ranks.resident.movement import Movement, MovementRequest
from outcore.ranks.transport import Transport

__all__ = ["ResidentReport", "make_resident_report"]


@dataclass(frozen=True, repr=False)
class ResidentReport(DrawableReport):
    """
    Plan for moving a section; `str` gives human-readable text.

    Parameters
    ----------
    layout
        Layout of the array on disk, and the reason for it.
    shape
        Shape of the section on disk.
    section_bytes
        Bytes of the section on disk.
    aligned_bytes
        Bytes of all chunks that the section touches. Encoded chunks are always moved whole, so this is
        the number of bytes moved. Equal to `section_bytes` without chunks.
    access
        Plan of the collective access: method, owners, costs.
    """

    layout: ResidentLayout
    shape: tuple[int, ...]
    section_bytes: int
    aligned_bytes: int
    access: ManyReport

    @property
    def aligned(self) -> bool:
        """True if the edges of the section are edges of chunks."""
        return self.aligned_bytes == self.section_bytes

    def __str__(self) -> str:
        times = self.aligned_bytes / max(self.section_bytes, 1)
        fits = (
            "aligned with the layout"
            if self.aligned
            else f"not aligned: the chunks that it touches have {format_bytes(self.aligned_bytes)}, "
            f"{times:.2f} times as much"
        )
        return (
            f"section of shape {self.shape}, {format_bytes(self.section_bytes)}, {fits}\n{self.layout}\n"
            f"{self.access}"
        )

    def _bars(self) -> Sequence[Bars]:
        sizes = [("section", self.section_bytes), ("whole chunks", self.aligned_bytes)]
        traffic = [("between ranks", self.access.traffic)]
        return (
            Bars("bytes on disk", sizes, format_bytes),
            Bars("bytes sent", traffic, format_bytes),
        )


def make_resident_report(
    group: Transport, array: DiskArray, layout: ResidentLayout, wanted: MovementRequest
) -> ResidentReport:
    """Return the report for `wanted`. Collective."""
    access = explain_all(
        [(array, section) for section in Movement(group, array, wanted).find_sections()],
        comm=group,
        method=wanted.method,
        write=wanted.write,
    )
    section = Selection.of_disk(array, wanted.key, write=wanted.write)
    item = array.dtype.itemsize
    number = int(np.prod([count for _, count, _ in section.ranges], dtype=object))
    around = (
        number if array.chunks is None else count_touched(section.ranges, array.shape, array.chunks)
    )
    return ResidentReport(layout, section.shape, number * item, around * item, access)
