"""
Tall matrices: QR by a tree of blocks of rows.

Problem. The matrix has many more rows than fit in memory, but few columns. Its R is small, but
Householder vectors column by column would read all rows once for each column.
Idea. Each block of rows has its own QR in memory. The small matrices R of all blocks, stacked, are
again a tall matrix, with far fewer rows. Finally one block remains, and its R is that of the whole
matrix. Back down the tree, the Q of a block is its own Q times the part of the upper Q that belongs
to its R. The own Q of each block is not stored, but computed again from rows that must be read
anyway.

Invariants. All rows are read once for R, and once more for Q, which is written once. The steps of a
phase are independent, so an interrupted job continues with the incomplete block.

Reference: Demmel, Grigori, Hoemmen, Langou, "Communication-optimal parallel and sequential QR and
LU factorizations" (2012).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Store
from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines
from outcore.compute.factors.panels import ProgramMatrix, Span, find_multiple, make_slice
from outcore.compute.jobs import InsufficientBuffersError, Result, Terms, find_largest
from outcore.compute.rates import count_operations, measure_product_rate

__all__ = ["Root", "Tall", "TallPart"]


@dataclass(frozen=True, slots=True)
class TallPart:
    """Columns of the tall matrix that one array holds."""

    face: ProgramMatrix
    #: Dtype of the array.
    given: np.dtype[Any]
    #: Columns of the tall matrix.
    columns: Span
    #: Whether the array has one axis.
    vector: bool = False


@dataclass(frozen=True, slots=True)
class Root:
    """Computation with the last block."""

    #: Function called as ``kernel(r, small, above)``: R (with as many rows as the block, or as
    #: many as it has columns), an array for each of the small results, and an array for the
    #: factor before R, or None.
    kernel: Callable[[NDArray[Any], list[NDArray[Any]], NDArray[Any] | None], None]
    #: Numbers and shapes of the small results.
    results: tuple[tuple[int, tuple[int, ...], np.dtype[Any]], ...]
    #: Elements that `kernel` allocates.
    scratch: int = 0


class Tall:
    """
    Phases of the tree.

    `parts` are the arrays that hold the tall matrix, of shape `shape`, `root` is the computation
    with R, and `q` the destination of Q (with as many columns as R has rows). If it is None, Q is
    not computed.
    """

    def __init__(
        self,
        name: str,
        arrays: tuple[str, ...],
        terms: Terms,
        shape: tuple[int, int],
        blas: Routines,
        parts: tuple[TallPart, ...],
        root: Root,
        q: ProgramMatrix | None,
    ) -> None:
        self.name, self.shape, self.blas, self.parts = name, shape, blas, parts
        self.root, self.q, self.n = root, q, shape[1]
        self.plain = all(
            matrices.is_same_dtype(one.given, blas.dtype) and not one.vector for one in parts
        )
        self.work = blas.qr_work(self.n)
        self.rows = self._rows(terms)
        # Number of rows of each level of the tree: all rows, then the rows of the R of its blocks.
        self.levels = [shape[0]]
        while self.levels[-1] > self.rows:
            self.levels.append(-(-self.levels[-1] // self.rows) * self.n)
        first = len(arrays)
        above = range(1, len(self.levels))
        self.stacks = {level: ProgramMatrix(first + level - 1) for level in above}
        more = first + len(self.stacks)
        self.factors = {level: ProgramMatrix(more + level - 1) for level in above} if q else {}
        self.arrays = (
            *arrays,
            *(f"R of level {level}" for level in self.stacks),
            *(f"Q of level {level}" for level in self.factors),
        )

    @property
    def temporaries(self) -> tuple[Result, ...]:
        """Arrays between the phases."""
        sizes = [*self.stacks, *self.factors]
        return tuple(Result((self.levels[level], self.n), self.blas.dtype) for level in sizes)

    def _buffers(self, rows: int, *, whole: bool) -> list[Buffer]:
        """Return the buffers: a block, its Q, R (or the factor above), and workspace of LAPACK."""
        dtype, n = self.blas.dtype, self.n
        buffers = [
            Buffer(rows * n, dtype, "F", copies=1 if whole else 2),
            Buffer(rows * min(n, rows) if self.q else 0, dtype, "F", copies=1 if whole else 2),
            Buffer(n * n, dtype, "F", copies=1 if whole else 2),
            Buffer(n + self.work, dtype),
        ]
        for part in self.parts if not self.plain else ():
            width = part.columns[1] - part.columns[0]
            buffers.append(Buffer(rows * width, part.given.newbyteorder("="), "F"))
        buffers += [Buffer(int(np.prod(shape)), dt) for _, shape, dt in self.root.results]
        buffers.append(Buffer(self.root.scratch, dtype))
        return buffers

    def _count_bytes(self, rows: int, *, whole: bool) -> int:
        return sum(buffer.nbytes for buffer in self._buffers(rows, whole=whole))

    def _rows(self, terms: Terms) -> int:
        """Return the rows of a block: all, or as many as fit: at least twice the number of columns."""
        (m, n), room = self.shape, terms.room
        faces = [one.face for one in self.parts if not one.vector] + ([self.q] if self.q else [])
        if self._count_bytes(m, whole=True) <= room:
            self.whole = True
            return m
        self.whole = False
        least = min(2 * n, m)
        if self._count_bytes(least, whole=False) > room:
            one = self._count_bytes(m, whole=True)
            raise InsufficientBuffersError(
                one if m <= n else min(one, self._count_bytes(least, whole=False))
            )
        if m <= 2 * n:
            raise InsufficientBuffersError(self._count_bytes(m, whole=True))
        most = find_largest(m, lambda rows: self._count_bytes(rows, whole=False) <= room, least)
        # Chunks are read and written whole, if possible.
        of = max((find_multiple(terms, face.across) for face in faces), default=1)
        return most // of * of if least <= most // of * of else most

    @property
    def method(self) -> str:
        """Human-readable method."""
        if self.whole:
            return "all rows at once"
        again = "; rows are read again for Q" if self.q else ""
        return f"a tree of {len(self.levels)} levels, of blocks of {self.rows} rows{again}"

    def phases(self) -> tuple[Schedule, ...]:
        """Return the phases: up the tree, and down again if Q is wanted."""
        top = len(self.levels) - 1
        up = [self._schedule(level, self._up) for level in range(top)]
        down = [self._schedule(level, self._down) for level in reversed(range(top))]
        root = self._schedule(top, self._root)
        return (*up, root, *(down if self.q else ()))

    def _schedule(self, level: int, make: Callable[[int, int], ScheduleStep]) -> Schedule:
        return Schedule(
            name=self.name,
            arrays=self.arrays,
            buffers=tuple(self._buffers(self.rows, whole=self.whole)),
            steps=-(-self.levels[level] // self.rows),
            make=lambda number: make(level, number),
            kernels=(self.compute_r, self.compute_q, self.compute_root),
            reading=2,
            rate=measure_product_rate(self.blas.dtype.char),
        )

    def _block(self, level: int, number: int) -> tuple[Span, list[Block], list[Load], int]:
        """Return rows, memory and loads of a block, and the number of blocks for the loads."""
        rows = number * self.rows, min((number + 1) * self.rows, self.levels[level])
        height = rows[1] - rows[0]
        blocks, loads = [Block(0, (height, self.n))], []
        if level:
            loads.append(self.stacks[level].load(rows, (0, self.n), 0))
            return rows, blocks, loads, 0
        for k, part in enumerate(self.parts):
            width = part.columns[1] - part.columns[0]
            if self.plain:
                at = (make_slice(0, height), make_slice(*part.columns))
                loads.append(part.face.load(rows, (0, width), 0, at))
                continue
            blocks.append(Block(4 + k, (height,) if part.vector else (height, width)))
            if part.vector:
                loads.append(Load(part.face.number, (make_slice(*rows),), 1 + k))
            else:
                loads.append(part.face.load(rows, (0, width), 1 + k))
        return rows, blocks, loads, len(blocks) - 1

    def _up(self, level: int, number: int) -> ScheduleStep:
        rows, blocks, loads, raw = self._block(level, number)
        blocks += [Block(2, (self.n, self.n)), Block(3, (self.n + self.work,))]
        at = number * self.n, (number + 1) * self.n
        store = self.stacks[level + 1].store(at, (0, self.n), 1 + raw)
        return ScheduleStep(
            tuple(blocks),
            tuple(loads),
            (store,),
            0,
            (raw,),
            work=self._operations(rows[1] - rows[0], 1),
        )

    def _down(self, level: int, number: int) -> ScheduleStep:
        rows, blocks, loads, raw = self._block(level, number)
        height = rows[1] - rows[0]
        blocks += [
            Block(2, (self.n, self.n)),
            Block(3, (self.n + self.work,)),
            Block(1, (height, self.n)),
        ]
        above = number * self.n, (number + 1) * self.n
        loads.append(self.factors[level + 1].load(above, (0, self.n), 1 + raw))
        target = self.factors[level] if level else self.q
        assert target is not None
        store = target.store(rows, (0, self.n), 3 + raw)
        return ScheduleStep(
            tuple(blocks),
            tuple(loads),
            (store,),
            1,
            (raw,),
            work=self._operations(height, 3),
        )

    def _root(self, level: int, number: int) -> ScheduleStep:
        rows, blocks, loads, raw = self._block(level, number)
        height, n = rows[1] - rows[0], self.n
        least = min(height, n)
        blocks += [Block(2, (least, n)), Block(3, (n + self.work,))]
        stores: list[Store] = []
        target = (self.factors[level] if level else self.q) if self.q else None
        if target is not None:
            blocks.append(Block(1, (height, least)))
            stores.append(target.store(rows, (0, least), len(blocks) - 1))
        first = 4 + (0 if self.plain else len(self.parts))
        for k, (array, shape, _) in enumerate(self.root.results):
            blocks.append(Block(first + k, shape))
            everything = tuple(make_slice(0, length) for length in shape)
            stores.append(Store(array, everything, len(blocks) - 1))
        return ScheduleStep(
            tuple(blocks),
            tuple(loads),
            tuple(stores),
            2,
            (raw, target is not None),
            work=self._operations(height, 3 if target else 1),
        )

    def _operations(self, rows: int, times: int) -> int:
        return times * count_operations(rows * self.n * min(rows, self.n), self.blas.dtype)

    # Kernels

    def _factor(
        self, blocks: Sequence[NDArray[Any]], raw: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Factor a block; return Householder vectors below R, their factors, and workspace of LAPACK."""
        block, room = blocks[0], blocks[2 + raw]
        for one, part in zip(blocks[1 : 1 + raw], self.parts, strict=False):
            rows = one[:, None] if part.vector else one
            np.copyto(block[:, slice(*part.columns)], rows, casting="unsafe")
        tau, work = room[: self.n], room[self.n :]
        self.blas.geqrf(block, tau, work)
        return block, tau, work

    def compute_r(self, blocks: Sequence[NDArray[Any]], raw: int) -> None:
        """Compute R of a block."""
        block, _, _ = self._factor(blocks, raw)
        _copy_upper(block, blocks[1 + raw])

    def compute_q(self, blocks: Sequence[NDArray[Any]], raw: int) -> None:
        """Compute Q of a block, times the part of the upper Q that belongs to it."""
        block, tau, work = self._factor(blocks, raw)
        above, q = blocks[1 + raw], blocks[3 + raw]
        least = min(block.shape)
        q[:least] = above[:least]
        q[least:] = 0
        self.blas.ormqr(block[:, :least], tau, q, work)

    def compute_root(self, blocks: Sequence[NDArray[Any]], raw: int, wanted: bool) -> None:
        """Compute R of the whole matrix; Q of the last block, times the factor of the root."""
        block, tau, work = self._factor(blocks, raw)
        r = blocks[1 + raw]
        _copy_upper(block, r)
        least = min(block.shape)
        results = list(blocks[3 + raw + wanted :])
        if not wanted:
            self.root.kernel(r, results, None)
            return
        q = blocks[3 + raw]
        q[...] = 0
        np.fill_diagonal(q[:least], 1)
        self.root.kernel(r, results, q[:least])
        self.blas.ormqr(block[:, :least], tau, q, work)


def _copy_upper(block: NDArray[Any], r: NDArray[Any]) -> None:
    """Copy the upper trapezoid of the first rows of a block, with zeros below."""
    r[...] = 0
    for column in range(r.shape[1]):
        stop = min(column + 1, block.shape[0])
        r[:stop, column] = block[:stop, column]
