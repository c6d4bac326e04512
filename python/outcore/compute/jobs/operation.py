"""
Operations: computations as values, and the programs that algorithms make of them.

Problem. The code that runs a computation must know what it reads and makes, without knowing the
algorithm; and an algorithm should see only shapes, layouts, memory and the machine.
Idea. An operation names its inputs and results, and has a function that plans. This is called when
the results exist and their layouts are known, with the memory available for buffers, and returns a
program: a sequence of schedules, and temporary arrays between them. A program does not depend on
the algorithm that made it.

Invariants. Equal terms give equal programs, so that an interrupted job can be resumed.

Reference: PASSION, section 5: what a compiler would make of an array program is a program here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from outcore.arrays.schedule import AsyncArray, Schedule
from outcore.arrays.tiling import DiskSpeed, Side
from outcore.formats.layout import ArrayInfo

__all__ = [
    "SMALLEST",
    "Bound",
    "DeferredPhase",
    "DiskSpeed",
    "InsufficientBuffersError",
    "Operation",
    "Phase",
    "Program",
    "ProgramArray",
    "Result",
    "Terms",
    "View",
    "find_largest",
]

Shape = tuple[int, ...]
#: Bytes of the buffers of the smallest steps that are worth their time: with less, plans say
#: `InsufficientBuffersError`.
SMALLEST = 256 * 2**10


class ProgramArray(AsyncArray, Protocol):
    """An array of an operation: on disk, or in memory."""

    @property
    def shape(self) -> Shape:
        """Length of each axis."""

    @property
    def order(self) -> str:
        """Storage order: ``"C"`` or ``"F"``."""

    @property
    def path(self) -> str:
        """Path of the array, or its name in messages."""


class InsufficientBuffersError(Exception):
    """Too little memory for the buffers of an algorithm, which needs `needed` bytes."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"{needed} bytes of buffers are needed")
        self.needed = needed


def find_largest(most: int, fits: Callable[[int], bool], least: int = 0) -> int:
    """Return the largest number up to `most` that fits; `least` if no larger one does."""
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return least


@dataclass(frozen=True, slots=True)
class Result:
    """An array that will be made."""

    shape: Shape
    dtype: np.dtype[Any]
    #: Properties that it gets if its format can store them: options of `outcore.create`
    #: (``chunks``, ``order``, ``dims``, ``attrs``, ``fill_value``). Options of the user take
    #: precedence.
    kept: Mapping[str, Any] = field(default_factory=dict)
    #: Name, in messages, of the array that these properties come from.
    source: str = ""
    #: Without `out`, the user gets it as a NumPy array.
    small: bool = False
    #: `shape` is the maximum. The actual shape follows from the results of earlier phases
    #: (`Program.shapes`); the array is created when it is known. Plans see one of the maximum
    #: shape.
    at_most: bool = False

    @classmethod
    def like(cls, source: Any, dtype: np.dtype[Any], *, attrs: bool = False) -> Result:
        """Return a result with shape, chunks, dimensions and order of an input, maybe attributes."""
        kept: dict[str, Any] = {"chunks": source.chunks, "dims": source.dims}
        kept["order"] = "F" if source.order == "F" else None
        if attrs:
            kept["attrs"] = dict(source.attrs) or None
        return cls(tuple(source.shape), dtype, kept, source.path)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Terms:
    """Memory, layouts and machine with which an algorithm plans."""

    #: Bytes available for all buffers of a phase.
    room: int
    #: Layouts of inputs and results, in this order; None for arrays in memory.
    infos: tuple[ArrayInfo | None, ...]
    #: Parameters of the slowest disk among them.
    disk: DiskSpeed
    #: Processors for kernels.
    cores: int
    #: Bytes of a page if the page cache is too small for the results, which are then written
    #: bypassing it; otherwise 0.
    page: int = 0
    #: Number of ranks that share the steps; each has this memory and these processors.
    ranks: int = 1

    def require(self, nbytes: int) -> None:
        """Raise if buffers of that many bytes are not available."""
        if nbytes > self.room:
            raise InsufficientBuffersError(nbytes)

    def side(self, number: int) -> Side | None:
        """Return the storage of an array as the source of a copy; None if it is in memory."""
        info = self.infos[number]
        return None if info is None else Side.of(info)

    def target(self, number: int) -> Side | None:
        """Return the storage of a result as the target of a copy; None if it is in memory."""
        info = self.infos[number]
        return None if info is None else Side.of(info, self.page)

    def order(self, number: int) -> str:
        """Return the storage order of an array: ``"C"`` or ``"F"``."""
        info = self.infos[number]
        return "C" if info is None else info.order


@dataclass(frozen=True, slots=True)
class DeferredPhase:
    """A phase whose schedule depends on the results of the phases before."""

    name: str
    steps: int
    #: Bytes of the buffers.
    held: int
    #: Bytes that it will load, and store.
    loaded: int
    stored: int
    #: Maximum number of concurrent operations on each array.
    at_once: Mapping[int, int]
    #: Function from the arrays of the program to the schedule; equal arrays give equal
    #: schedules.
    make: Callable[[Sequence[Any]], Schedule]
    #: Operations of its kernels, and their number per second; 0: unknown.
    work: int = 0
    rate: float = 0.0
    #: Only unusual elements need the phase; otherwise it has no steps. Reports do not count it.
    seldom: bool = False


Phase = Schedule | DeferredPhase


@dataclass(frozen=True, slots=True)
class View:
    """An array in memory, or with elements that are found by arithmetic, seen with divided axes."""

    #: Number of the array in the program.
    array: int
    #: Lengths for each axis of the array. One: that many indices of the axis. Several: as many
    #: indices as their product, from the first on, divided as by `numpy.reshape`.
    lengths: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> Shape:
        """Length of each axis of the view."""
        return tuple(n for lengths in self.lengths for n in lengths)


@dataclass(frozen=True, slots=True)
class Bound:
    """Bytes that every algorithm must move with this memory, and the name of this lower bound."""

    #: Bytes loaded and stored, if no array is encoded.
    nbytes: int
    #: For example ``"inputs and results once"``.
    name: str
    #: Bytes of each input and result, by number, that must be moved once in any case. For arrays
    #: that are encoded or in memory they are fewer; the bound is then the sum of these, because
    #: other bounds count elements.
    once: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, once: Mapping[int, int], name: str) -> Bound:
        """Return the bound that all of these bytes are moved once."""
        return cls(sum(once.values()), name, once)


@dataclass(frozen=True, slots=True)
class Program:
    """The plan of an operation."""

    #: Run one after the other. They number the arrays: inputs, results, temporaries, views of
    #: these.
    phases: tuple[Phase, ...]
    #: Chosen method and the reason, in one sentence.
    method: str
    #: Lower bound of the bytes to move.
    bound: Bound
    temporaries: tuple[Result, ...] = ()
    #: Arrays that have other axes in some phases; not results whose shapes are known later.
    views: tuple[View, ...] = ()
    #: Number of phases after which the shapes of results that are `Result.at_most` are known.
    known: int = 0
    #: Function from the arrays of the program to these shapes, in the order of the results;
    #: equal on all ranks.
    shapes: Callable[[Sequence[Any]], Sequence[Shape]] | None = None

    @property
    def steps(self) -> int:
        """Number of steps in all phases."""
        return sum(phase.steps for phase in self.phases)

    @property
    def held(self) -> int:
        """Bytes of the buffers in the phase with the largest ones."""
        return max((phase.held for phase in self.phases), default=0)


@dataclass(frozen=True, slots=True)
class Operation:
    """A computation: inputs, results, and the function that plans."""

    #: Name of the public function, such as ``"transpose"``.
    name: str
    inputs: tuple[Any, ...]
    results: tuple[Result, ...]
    #: Function from terms to a program. Raises `InsufficientBuffersError`.
    plan: Callable[[Terms], Program]
    #: Everything else that two equal calls have in common: keywords that repeat the call, or
    #: values whose `repr` identifies them.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: Whether the function of `outcore` with this name, called with these inputs and with
    #: `arguments` as keywords, is this operation.
    repeatable: bool = True
    #: Keyword of the function for the destination of results.
    out_name: str = "out"
    #: Keywords for the last inputs; the others come first, by position.
    in_names: Sequence[str] = ()
