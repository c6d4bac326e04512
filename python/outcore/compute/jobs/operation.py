"""
Operations: what is to be computed, and how an algorithm answers.

Problem. Whoever runs a computation has to know what it reads and makes, without knowing the
algorithm; and an algorithm should see shapes, layouts, memory and the machine, and nothing else.
Idea. An operation names its inputs and results and brings a function that plans. It is asked once the
results exist and their layouts are known, with the memory that there is for buffers, and answers with a
program: schedules that follow each other, and temporary arrays between them. Nothing in a program
knows who made it.

Invariants. Equal terms give equal programs: that is what lets an interrupted job go on.

Reference: PASSION, section 5: what a compiler would make of an array program is a program here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from outcore.arrays.schedule import OnDisk, Schedule
from outcore.arrays.tiling import Disk, Side
from outcore.formats.layout import ArrayInfo

__all__ = [
    "SMALLEST",
    "Array",
    "Bound",
    "Disk",
    "Later",
    "Operation",
    "Phase",
    "Program",
    "Result",
    "Terms",
    "TooLittle",
    "View",
]

Shape = tuple[int, ...]
#: Bytes of the buffers of the smallest steps that are worth their time: with less, plans say
#: `TooLittle`.
SMALLEST = 256 * 2**10


class Array(OnDisk, Protocol):
    """An array of an operation: on disk, or in memory."""

    @property
    def shape(self) -> Shape:
        """Length of each axis."""

    @property
    def order(self) -> str:
        """``"C"`` or ``"F"``: which axis runs fastest where it is stored."""

    @property
    def path(self) -> str:
        """For people."""


class TooLittle(Exception):
    """
    An algorithm that cannot work with the memory there is for buffers.

    Parameters
    ----------
    needed
        Bytes with which it can.
    """

    def __init__(self, needed: int) -> None:
        super().__init__(f"{needed} bytes of buffers are needed")
        self.needed = needed


@dataclass(frozen=True, slots=True)
class Result:
    """
    An array that is to be made.

    Parameters
    ----------
    shape, dtype
        Of it.
    kept
        What it should have if its format can: words for `outcore.create` (``chunks``, ``order``,
        ``dims``, ``attrs``, ``fill_value``). What the user asks for goes before it.
    source
        The array of which it keeps that, for messages.
    small
        The user gets it as a NumPy array, unless he says where it is to go.
    at_most
        Nothing is longer along any axis than `shape` says; what it has follows from what phases store
        (`Program.shapes`), and it is made when that is known. Plans see one of the largest shape.
    """

    shape: Shape
    dtype: np.dtype[Any]
    kept: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    small: bool = False
    at_most: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Terms:
    """
    What an algorithm plans with.

    Parameters
    ----------
    room
        Bytes that the buffers of a phase may take together.
    infos
        Of inputs and results, in this order; None for what is in memory.
    disk
        Figures of the slowest disk among them.
    cores
        Processors that kernels have.
    page
        Bytes of a page where the page cache is too small for the results, which are written past it
        then; else 0.
    ranks
        How many share the steps; each has so much room, and so many cores.
    """

    room: int
    infos: tuple[ArrayInfo | None, ...]
    disk: Disk
    cores: int
    page: int = 0
    ranks: int = 1

    def side(self, number: int) -> Side | None:
        """What an array presents to a copy; None if it is in memory."""
        info = self.infos[number]
        return None if info is None else Side.of(info)

    def target(self, number: int) -> Side | None:
        """What a result presents to a copy into it; None if it is in memory."""
        info = self.infos[number]
        return None if info is None else Side.of(info, self.page)

    def order(self, number: int) -> str:
        """In which order its elements are stored: ``"C"`` or ``"F"``."""
        info = self.infos[number]
        return "C" if info is None else info.order


@dataclass(frozen=True, slots=True)
class Later:
    """
    A phase whose schedule follows from what the phases before have stored.

    Parameters
    ----------
    name, steps, held
        As the schedule will say.
    loaded, stored
        Bytes that it will load and store.
    at_once
        How many operations on each array will be under way at once, at most.
    make
        The schedule, from the arrays of the program; equal arrays give equal schedules.
    work, rate
        Operations of its kernels, and how many are done in a second; 0: not known.
    seldom
        Only unusual elements need it; else it has no steps, and reports do not count it.
    """

    name: str
    steps: int
    held: int
    loaded: int
    stored: int
    at_once: Mapping[int, int]
    make: Callable[[Sequence[Any]], Schedule]
    work: int = 0
    rate: float = 0.0
    seldom: bool = False


Phase = Schedule | Later


@dataclass(frozen=True, slots=True)
class View:
    """
    An array whose elements are found by arithmetic (or that is in memory), with axes divided.

    Parameters
    ----------
    array
        Number of the array in the program.
    lengths
        Of each of its axes: one length, its own or less; or several, in which as many indices of it
        as their product, from the first on, are counted as by `numpy.reshape`.
    """

    array: int
    lengths: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> Shape:
        """Length of each axis of the view."""
        return tuple(n for lengths in self.lengths for n in lengths)


@dataclass(frozen=True, slots=True)
class Bound:
    """
    Bytes that any way to compute it has to move with this memory, and the name of that bound.

    Parameters
    ----------
    nbytes
        Loaded and stored together, if all arrays are stored as they are.
    name
        Such as ``"inputs and results once"``.
    once
        Of inputs and results by number, bytes that have to be moved once in any case. Of what is encoded
        or in memory it is less; then the sum of these is the bound, for others count elements.
    """

    nbytes: int
    name: str
    once: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, once: Mapping[int, int], name: str) -> Bound:
        """All of these once."""
        return cls(sum(once.values()), name, once)


@dataclass(frozen=True, slots=True)
class Program:
    """
    How it is computed.

    Parameters
    ----------
    phases
        One after the other. They count the arrays of the operation: inputs, results, temporaries, and
        views of these.
    method
        The way that was chosen and why, in one sentence.
    bound
        What has to be moved in any case.
    temporaries
        Arrays between phases.
    views
        Arrays that have other axes in some phases; not results whose shapes are known later.
    known
        After so many phases the shapes of results that are `Result.at_most` are known.
    shapes
        These, in the order of the results, from the arrays of the program; equal on all ranks.
    """

    phases: tuple[Phase, ...]
    method: str
    bound: Bound
    temporaries: tuple[Result, ...] = ()
    views: tuple[View, ...] = ()
    known: int = 0
    shapes: Callable[[Sequence[Any]], Sequence[Shape]] | None = None

    @property
    def steps(self) -> int:
        """Of all phases."""
        return sum(phase.steps for phase in self.phases)

    @property
    def held(self) -> int:
        """Bytes of the buffers of the phase that has most."""
        return max((phase.held for phase in self.phases), default=0)


@dataclass(frozen=True, slots=True)
class Operation:
    """
    What is to be computed.

    Parameters
    ----------
    name
        As the user calls it, such as ``"transpose"``.
    inputs
        Arrays that are read.
    results
        Arrays that are made.
    plan
        From terms to a program. Raises `TooLittle`.
    arguments
        What else makes two calls the same: keywords that would repeat this one, or whose `repr` says
        what they are.
    repeatable
        The function of `outcore` that has this name, called with these inputs and with `arguments` as
        keywords, is this operation.
    out_name
        Its keyword that says where results go.
    in_names
        Its keywords for the last inputs; the others come first, without one.
    """

    name: str
    inputs: tuple[Any, ...]
    results: tuple[Result, ...]
    plan: Callable[[Terms], Program]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    repeatable: bool = True
    out_name: str = "out"
    in_names: Sequence[str] = ()
