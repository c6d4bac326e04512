"""
Schedules: a computation over arrays on disk, as a value.

Problem. Out-of-core algorithms look alike: read blocks ahead, compute, write behind, stay within the
budget, go on after a kill. Written as loops, each would do all of that by itself, and nobody could tell
beforehand what it will move, or prove that it fits.
Idea. What a plan is to an access, a schedule is to a computation. It names arrays and buffers and says
what each of its steps loads, computes and stores. Step `k` is a pure function of `k`, so a schedule of
any length costs nothing to hold. Others check it (`check`) and run it (`run`); none of them knows which
algorithm made it.

Invariants. Equal shapes, layouts, budgets and figures give equal schedules. A step changes the blocks
that it names and nothing else.

References: PASSION, sections 4.1 to 4.3 (slabs, prefetch, reuse) and 5 (the node program that a compiler
makes of an out-of-core array program).
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
    "Kernel",
    "Load",
    "Reuse",
    "Schedule",
    "Section",
    "Step",
    "Store",
    "elements",
    "lengths",
]

Shape = tuple[int, ...]
#: First index, and one past the last, along each axis: slices of plain integers. What is loaded may have
#: steps, also downwards; places in blocks, and what is stored, have none.
Section = tuple[slice, ...]


class Kernel(Protocol):
    """What a step computes: it changes some blocks, and reads others."""

    def __call__(self, blocks: Sequence[NDArray[Any]], *arguments: Any) -> None:
        """`blocks` are those of the step, in its order; `arguments` are the step's."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """
    Memory that steps share out among them.

    Parameters
    ----------
    elements
        Of the largest block.
    dtype
        Of all blocks in it.
    order
        ``"C"`` or ``"F"``: of its blocks.
    copies
        How many steps have a block of their own in it at once: with two, one is loaded (or stored)
        while the kernel works on the other. A step has a block from its load, or else from its kernel
        on, until it is stored, or else until its kernel has ended.
    kept
        What is in it stays there for later steps: an accumulator, a panel that is used again. There is
        one copy, and steps that continue each other have blocks of one shape in it.
    """

    elements: int
    dtype: np.dtype[Any]
    order: str = "C"
    copies: int = 1
    kept: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return self.copies * max(self.elements, 1) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a buffer that one step has: the number of the buffer, and the shape."""

    buffer: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Load:
    """
    A section of an array that is read into a block, or into a part of it.

    Parameters
    ----------
    array
        Number of the array in the schedule.
    section
        Of the array.
    block
        Number of the block in the step.
    at
        Where in the block the section goes; None: it is all of it.
    axes
        The place in the block is the section with its axes permuted as by `numpy.transpose`; None: as
        they are.
    shape
        The part of the block is seen with this shape, which divides some of its axes into several: what
        lies together in memory may be apart in the array. None: as it is.
    """

    array: int
    section: Section
    block: int
    at: Section | None = None
    axes: tuple[int, ...] | None = None
    shape: Shape | None = None

    def place(self, block: NDArray[Any]) -> NDArray[Any]:
        """The section's place in a block, as an array of the section's shape."""
        part = block[self.at or ...]
        if self.shape is not None:
            part = part.reshape(self.shape)  # a view, since axes are only divided
        return part if self.axes is None else part.transpose(np.argsort(self.axes))


@dataclass(frozen=True, slots=True)
class Store(Load):
    """A section of an array that is written out of a block, or out of a part of it."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """
    A part of a block that the step before has loaded, and that is not read again.

    It is copied before that step's kernel runs.

    Parameters
    ----------
    block, at
        Where it goes.
    source, source_at
        Where it is: number of the block in the step before, and the part.
    """

    block: int
    at: Section
    source: int
    source_at: Section


@dataclass(frozen=True, slots=True)
class Step:
    """
    One step: loads, then the kernel, then stores.

    Parameters
    ----------
    blocks
        Its blocks.
    loads, stores
        What is read before the kernel, and written after it. Sections that it stores do not overlap.
    kernel
        Number of the kernel; None if what was loaded is stored as it is.
    arguments
        For the kernel.
    reuses
        What it takes of the blocks of the step before.
    after
        Steps below this number have to be stored before this one loads. It neither reads nor stores
        anything that a step from there on stores.
    continues
        It needs what earlier steps have kept: an interrupted run does not continue here, except by
        `Schedule.restart`.
    work
        Operations of the kernel, in the unit of the schedule's `rate`.
    """

    blocks: tuple[Block, ...]
    loads: tuple[Load, ...] = ()
    stores: tuple[Store, ...] = ()
    kernel: int | None = None
    arguments: tuple[Any, ...] = ()
    reuses: tuple[Reuse, ...] = ()
    after: int = 0
    continues: bool = False
    work: int = 0

    @property
    def is_chained(self) -> bool:
        """Whether it needs what the step before it has left in memory."""
        return self.continues or bool(self.reuses)

    @property
    def loaded(self) -> frozenset[int]:
        """Numbers of the blocks that hold something before the kernel runs."""
        loads, reuses = (one.block for one in self.loads), (one.block for one in self.reuses)
        return frozenset([*loads, *reuses])


@dataclass(frozen=True, slots=True)
class Schedule:
    """
    A computation over arrays on disk.

    Parameters
    ----------
    name
        Of the operation, such as ``"transpose"``.
    arrays
        Names of the arrays, for people; loads and stores count them.
    buffers
        All memory that blocks take.
    steps
        How many there are.
    make
        Step `k`; pure.
    kernels
        What steps compute.
    reading, writing
        How many steps load at the same time, beside the one whose kernel runs, and how many store.
    rate
        Operations (`Step.work`) that its kernels do in a second, for predictions; 0 if what they take is
        not worth counting.
    common
        Numbers of the arrays that ranks read together.
    restart
        For a step that needs what the step before it has left in memory: the steps that an interrupted
        run does to continue there. The last one is that step, and the ones before it store nothing.
        None: such a run begins at a step that needs nothing, and repeats those after it.
    """

    name: str
    arrays: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    steps: int
    make: Callable[[int], Step]
    kernels: tuple[Kernel, ...] = ()
    reading: int = 1
    writing: int = 1
    rate: float = 0.0
    common: frozenset[int] = frozenset()
    restart: Callable[[int], tuple[Step, ...]] | None = None

    @property
    def held(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)

    def step(self, number: int) -> Step:
        """Step `number`, from 0."""
        if not 0 <= number < self.steps:
            raise IndexError(f"step {number} of {self.steps}")
        return self.make(number)


def elements(section: Section) -> int:
    """Elements of a section."""
    return math.prod(lengths(section))


def lengths(section: Section) -> Shape:
    """
    The shape of a section.

    Examples
    --------
    >>> lengths((slice(2, 5), slice(0, 10, 4), slice(5, None, -2)))
    (3, 3, 3)
    """
    return tuple(
        part.stop - part.start
        if part.step is None
        # Downwards to the first index there is no stop that is an index.
        else len(range(part.start, -1 if part.stop is None else part.stop, part.step))
        for part in section
    )
