"""Work of a transform in one pass: a list of stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from outcore.compute.fourier.kernels import FourierStage, count_scratch_bytes, transform
from outcore.compute.passes.work import PassWork, Shape

__all__ = ["Transforms"]


@dataclass(frozen=True)
class Transforms(PassWork):
    """Stages, in order, on blocks of whole lines; a ``product`` needs a block `beside`."""

    stages: tuple[FourierStage, ...] = field(kw_only=True)

    @property
    def kernels(self) -> tuple[Callable[..., None], ...]:
        """Kernel functions: one, or none if there are no stages."""
        return (transform,) if self.stages else ()

    def arguments(self, origin: Shape, cores: int) -> tuple[Any, ...]:
        """Return the arguments of the kernel for a block that begins at `origin`."""
        return (self.stages, origin, cores)

    def scratch(self, most: int, cores: int) -> int:
        """Return the additional bytes of all stages, for `most` elements of the axes that are cut."""
        itemsize = max((dtype.itemsize for dtype in self.dtypes if dtype.kind == "c"), default=16)
        return max(
            (
                count_scratch_bytes(s, max(self._lines(s, most), 1), itemsize, cores)
                for s in self.stages
            ),
            default=0,
        )

    def operations(self, cut: int) -> int:
        """Return the floating-point operations for `cut` elements of the axes that are cut."""
        total = 0.0
        for stage in self.stages:
            if stage.kind in ("c2c", "r2c", "c2r", "product"):
                half = 2 if stage.kind in ("r2c", "c2r") else 1
                levels = math.log2(max(stage.length, 2))
                total += 5 / half * self._lines(stage, cut) * stage.length * levels
        return int(total)

    def _lines(self, stage: FourierStage, cut: int) -> int:
        largest = max(math.prod(whole.values()) for whole in self.whole)
        return cut * largest // max(stage.length, 1)
