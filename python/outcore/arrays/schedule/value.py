"""
Schedules: a computation over arrays on disk, as a value.

Problem: out-of-core algorithms are alike: read blocks ahead, compute, write in the background, stay
within the budget, resume after a kill. Written as loops, each would implement all of that itself, and
no code could report in advance what it will move, or prove that it fits.
Approach: a schedule is to a computation what a plan is to an access. It names arrays and buffers, and
defines the loads, kernel and stores of each step. Step `k` is a pure function of `k`, so a schedule of
any length needs no memory. Other modules run it (`run`) and divide it over ranks (`divide`); none of
them depends on the algorithm that created it. Tests check its rules (`tests/schedule_check.py`).

Invariants: equal shapes, layouts, budgets and disk parameters give equal schedules. A step changes only
the blocks that it names.

References: PASSION, sections 4.1 to 4.3 (slabs, prefetch, reuse) and 5 (the node program that a
compiler generates from an out-of-core array program).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Block",
    "Buffer",
    "InvalidScheduleError",
    "Load",
    "Reuse",
    "Schedule",
    "ScheduleStep",
    "Section",
    "StepKernel",
    "Store",
    "count_elements",
    "get_shape",
]

Shape = tuple[int, ...]
#: First index, and one past the last, along each axis: slices of plain integers. Sections that are
#: loaded may have steps, also negative ones; positions in blocks, and sections that are stored, have
#: none.
Section = tuple[slice, ...]


class InvalidScheduleError(Exception):
    """Error for a schedule that must not be run: a bug in the code that created it."""


class StepKernel(Protocol):
    """Computation of a step: it changes some blocks, and reads others."""

    def __call__(self, blocks: Sequence[NDArray[Any]], *arguments: Any) -> None:
        """Compute with the `blocks` of the step, in its order, and the `arguments` of the step."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that steps share."""

    #: Number of elements of the largest block.
    elements: int
    dtype: np.dtype[Any]
    #: "C" or "F", the order of its blocks.
    order: str = "C"
    #: Number of steps that can have a block in it at once: with two, one block is loaded (or
    #: stored) while the kernel works on the other. A step has a block from its load (or from its
    #: kernel, if the block is not loaded) until it is stored (or until its kernel ends, if it is
    #: not stored).
    copies: int = 1
    #: True if its contents stay for later steps, as for an accumulator or a panel that is used
    #: repeatedly. Such a buffer has one copy, and steps that continue each other have blocks of one
    #: shape in it.
    kept: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return self.copies * max(self.elements, 1) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a buffer that belongs to one step: the number of the buffer, and the shape."""

    buffer: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Load:
    """A section of an array that is read into a block, or into a part of it."""

    #: Number of the array in the schedule.
    array: int
    section: Section
    #: Number of the block in the step.
    block: int
    #: Destination of the section in the block; None: the whole block.
    at: Section | None = None
    #: Permutation of the axes of the section, as for `numpy.transpose`, that gives the part of the
    #: block; None: no permutation.
    axes: tuple[int, ...] | None = None
    #: Shape as which the part of the block is viewed, which divides some of its axes into several,
    #: because elements that are contiguous in memory may be apart in the array. None: unchanged.
    shape: Shape | None = None

    def place(self, block: NDArray[Any]) -> NDArray[Any]:
        """Return the destination in a block as an array with the shape of the section."""
        part = block[self.at or ...]
        if self.shape is not None:
            part = part.reshape(self.shape)  # a view, because axes are only divided
        return part if self.axes is None else part.transpose(np.argsort(self.axes))


@dataclass(frozen=True, slots=True)
class Store(Load):
    """A section of an array that is written from a block, or from a part of it."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """
    A part of a block that the previous step has loaded, and that is not read again.

    It is copied from the part `source_at` of block `source` of the previous step before that step's
    kernel runs.
    """

    block: int
    at: Section
    source: int
    source_at: Section


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One step: loads, then the kernel, then stores."""

    blocks: tuple[Block, ...]
    loads: tuple[Load, ...] = ()
    #: Stored sections do not overlap.
    stores: tuple[Store, ...] = ()
    #: Number of the kernel; None if loaded elements are stored unchanged.
    kernel: int | None = None
    arguments: tuple[Any, ...] = ()
    #: Parts that are taken from blocks of the previous step.
    reuses: tuple[Reuse, ...] = ()
    #: All steps before this number must be stored before this one loads. This step neither reads
    #: nor stores anything that a step from that number on stores.
    after: int = 0
    #: True if the step needs what earlier steps have kept: an interrupted run does not resume here,
    #: except by `Schedule.restart`.
    continues: bool = False
    #: Operations of the kernel, in the unit of the schedule's `rate`.
    work: int = 0

    @property
    def is_chained(self) -> bool:
        """True if the step needs what the previous step has left in memory."""
        return self.continues or bool(self.reuses)

    @property
    def loaded(self) -> frozenset[int]:
        """Numbers of the blocks that have contents before the kernel runs."""
        loads, reuses = (one.block for one in self.loads), (one.block for one in self.reuses)
        return frozenset([*loads, *reuses])


@dataclass(frozen=True, slots=True)
class Schedule:
    """A computation over arrays on disk."""

    #: Name of the operation, such as "transpose".
    name: str
    #: Names of the arrays, for messages; loads and stores refer to their numbers.
    arrays: tuple[str, ...]
    #: All memory of blocks.
    buffers: tuple[Buffer, ...]
    #: Number of steps.
    steps: int
    #: Pure function that returns step `k`.
    make: Callable[[int], ScheduleStep]
    kernels: tuple[StepKernel, ...] = ()
    #: Number of steps that load at the same time, in addition to the one whose kernel runs.
    reading: int = 1
    #: Number of steps that store at the same time.
    writing: int = 1
    #: Operations (`ScheduleStep.work`) of its kernels per second, for predictions; 0 if their time is
    #: negligible.
    rate: float = 0.0
    #: Numbers of the arrays that ranks read together.
    common: frozenset[int] = frozenset()
    #: Function that returns, for a step that needs what the previous step has left in memory, the
    #: steps by which an interrupted run resumes there. The last one is that step; the ones before
    #: it store nothing. None: such a run starts at a step that needs nothing, and repeats the steps
    #: after it.
    restart: Callable[[int], tuple[ScheduleStep, ...]] | None = None

    @property
    def held(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)

    def step(self, number: int) -> ScheduleStep:
        """Return step `number`, counted from 0."""
        if not 0 <= number < self.steps:
            raise IndexError(f"step {number} of {self.steps}")
        return self.make(number)


def count_elements(section: Section) -> int:
    """Return the number of elements of a section."""
    return math.prod(get_shape(section))


def get_shape(section: Section) -> Shape:
    """
    Return the shape of a section.

    Examples
    --------
    >>> get_shape((slice(2, 5), slice(0, 10, 4), slice(5, None, -2)))
    (3, 3, 3)
    """
    return tuple(
        part.stop - part.start
        if part.step is None
        # A descending slice that includes index 0 has no valid stop index.
        else len(range(part.start, -1 if part.stop is None else part.stop, part.step))
        for part in section
    )
