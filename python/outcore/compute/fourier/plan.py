"""
Fourier transforms of arrays larger than memory: from transforms along axes to passes over disk.

Problem. A transform needs whole lines. Lines of one axis are scattered over the lines of another
one, and one line alone may be larger than memory.
Idea. Each pass transforms the axes that fit together and reads and writes everything once. Between
two passes is a temporary array with the panels of the next one (`places`). A line of N = N1 N2
elements that does not fit is treated as a matrix of N1 rows: its columns are transformed and
multiplied with twiddle factors, then its rows are transformed, and the result is the transposed
matrix (the four-step transform). Input and result are viewed with that axis divided, so neither is
copied. Exceptions: an input that is longer or shorter than the line, or has half of it, or is in
chunks; then one more pass copies it to where it can be viewed so. If N has no such divisors, the
line is transformed as a convolution of another length (`padded`).

A line that fits is divided too if that is cheaper. The columns of a matrix stored by rows reach
across the whole file: whole columns, a few at a time, are short runs of every row, or are copied
once more. With the axis divided, the first pass reads every N2-th row, the second one writes every
N1-th row of the result, and both move whole rows.

Invariants. Memory does not change the computation of a line that is not divided. How lines are
divided depends on memory and on the measured speed of the disk, and so do the last bits of the
result.

References: Bailey, "FFTs in external or hierarchical memory", J. Supercomputing 4 (1990); Hong and
Kung, "I/O complexity: the red-blue pebble game" (1981), for the bound; PASSION, section 4.3.1,
whose 2-D transform moves everything three times (transform, transpose, transform), this one twice.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from outcore.arrays.tiling import Side
from outcore.base.report import format_bytes, format_count
from outcore.compute.fourier.half import HalfAxis
from outcore.compute.fourier.kernels import FourierStage
from outcore.compute.fourier.padded import choose_sizes, make_padded_work
from outcore.compute.fourier.transforms import Transforms
from outcore.compute.jobs import Bound, InsufficientBuffersError, Program, Result, Terms, View
from outcore.compute.passes.places import (
    DividedRows,
    GeneratedSource,
    Panels,
    PlainArray,
    TileSource,
    TileTarget,
)
from outcore.compute.passes.work import Pass
from outcore.formats.layout import ArrayInfo, Strided

__all__ = ["Transform", "plan_transforms"]

Shape = tuple[int, ...]
# Bytes left for operations on arrays, at most a quarter of the memory.
_LEFT = 1 << 18
# A line that fits is divided if that takes less than this part of the time; divisions that are tried.
_WORTH, _WAYS = 0.8, 3


@dataclass(frozen=True)
class Transform:
    """
    Transform along one axis.

    `kind` is ``c2c``, ``r2c`` (real input, half of the result) or ``c2r`` (back). `length` is the
    length of the complex, or whole real, line; the input is cropped or padded with zeros. With
    `conj`, the complex side is conjugated: before a ``c2r``, after an ``r2c``.
    """

    kind: str
    axis: int
    length: int
    forward: bool = True
    norm: str = "backward"
    conj: bool = False

    @property
    def input_length(self) -> int:
        """Number of input elements along the axis that the transform uses."""
        return self.length // 2 + 1 if self.kind == "c2r" else self.length

    @property
    def output_length(self) -> int:
        """Number of elements of the result along the axis."""
        return self.length // 2 + 1 if self.kind == "r2c" else self.length

    @property
    def stage(self) -> FourierStage:
        """Stage with all elements complex."""
        return FourierStage("c2c", self.axis, self.length, self.forward, self.norm)


def plan_transforms(
    name: str,
    shape: Shape,
    dtypes: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]],
    transforms: Sequence[Transform],
    rate: float,
) -> Callable[[Terms], Program]:
    """
    Return the planner of one or more transforms that follow each other.

    `dtypes` are those of the input, of complex elements in between, and of the result. `rate` is
    the number of floating-point operations that the kernels do per second.
    """

    def plan(terms: Terms) -> Program:
        # Operations on arrays make tiny requests if they have little memory. Some is left for them,
        # unless nothing fits then.
        less = replace(terms, room=terms.room - min(terms.room // 4, _LEFT))
        try:
            best = _FourierPlan(name, shape, dtypes, tuple(transforms), rate, less)
            program = best.make_program()
        except InsufficientBuffersError:
            return _FourierPlan(name, shape, dtypes, tuple(transforms), rate, terms).make_program()
        if len(best.passes) < 2:
            return program
        # Dividing lines that fit may lead to longer runs.
        limit = best.seconds * _WORTH
        for divided in best.list_divisions():
            other = _FourierPlan(name, shape, dtypes, tuple(transforms), rate, less, divided)
            with contextlib.suppress(InsufficientBuffersError):
                changed = other.make_program()
                if other.seconds < limit:
                    limit, program = other.seconds, changed
        return program

    return plan


@dataclass
class _DividedAxes:
    """Axes of the arrays as axes of the transforms: a long axis becomes two."""

    ndim: int
    long: dict[int, Shape]

    @property
    def parts(self) -> list[Shape]:
        """For each axis of the arrays, the axes that it becomes."""
        found, n = [], 0
        for axis in range(self.ndim):
            count = 2 if axis in self.long else 1
            found.append(tuple(range(n, n + count)))
            n += count
        return found

    @property
    def count(self) -> int:
        """Number of axes of the transforms."""
        return self.ndim + len(self.long)


@dataclass
class _TransformArray:
    """Array between transforms, with their axes: input, result, or a temporary one."""

    number: int
    lengths: Shape
    dtype: np.dtype[Any]
    order: str = "C"
    info: ArrayInfo | None = None

    @property
    def is_strided(self) -> bool:
        """Whether its axes can be divided by a view."""
        return self.info is None or isinstance(self.info.layout, Strided)

    def make_place(self, *, written: bool = False) -> PlainArray:
        """Return the array as it is stored."""
        side = None if self.info is None else Side.of(self.info)
        return PlainArray.of(self.number, self.lengths, self.dtype.itemsize, side, written=written)


@dataclass
class _PassChain:
    """Passes from one array to another, the views that they need, and their cost."""

    passes: list[Pass]
    views: list[tuple[PlainArray, View]]
    seconds: float


@dataclass
class _FourierPlan:
    name: str
    shape: Shape
    dtypes: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]
    transforms: tuple[Transform, ...]
    rate: float
    terms: Terms
    #: Axes that are divided although their lines fit.
    divided: Mapping[int, Shape] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    temporaries: list[Result] = field(default_factory=list)
    views: list[tuple[PlainArray, View]] = field(default_factory=list)
    #: Divisions of lines that are transformed as longer ones.
    longer: list[Shape] = field(default_factory=list)

    @property
    def complex_dtype(self) -> np.dtype[Any]:
        return self.dtypes[1]

    @property
    def real_dtype(self) -> np.dtype[Any]:
        return np.dtype("f4" if self.complex_dtype.itemsize == 8 else "f8")

    def make_program(self) -> Program:
        lengths = list(self.shape)
        for one in self.transforms:
            lengths[one.axis] = one.output_length
        terms = self.terms
        if not math.prod(lengths):
            return Program((), "there is nothing to do", self.compute_bound(tuple(lengths)))
        native = self.dtypes[0].newbyteorder("=")
        source = _TransformArray(0, self.shape, native, terms.order(0), terms.infos[0])
        target = _TransformArray(1, tuple(lengths), self.dtypes[2], terms.order(1), terms.infos[1])
        segments = self.cut_segments()
        for n, (segment, long) in enumerate(segments):
            source = self.add_segment(
                segment, long, source, target if n == len(segments) - 1 else None
            )
        first = 2 + len(self.temporaries)
        for n, (place, _) in enumerate(self.views):
            place.number = first + n
        names = ("source", "target", *(f"temporary {n + 1}" for n in range(len(self.temporaries))))
        names += tuple(f"{names[view.array]} in {_describe_rows(view)}" for _, view in self.views)
        schedules = tuple(p.schedule(self.name, names, terms.cores, self.rate) for p in self.passes)
        return Program(
            schedules,
            self.describe_method(),
            self.compute_bound(tuple(lengths)),
            tuple(self.temporaries),
            tuple(view for _, view in self.views),
        )

    @property
    def seconds(self) -> float:
        """Predicted time of all passes."""
        return sum(one.cost(self.terms) for one in self.passes)

    def list_divisions(self) -> list[dict[int, Shape]]:
        """Return axes that fit but might be divided, those with the most even parts first."""
        given = [one.axis for one in self.transforms]
        fast = 0 if self.terms.order(0) == "F" else len(self.shape) - 1
        found: list[dict[int, Shape]] = []
        for one in self.transforms:
            if one.kind == "c2c" and one.axis != fast and given.count(one.axis) == 1:
                ways = sorted(
                    _list_divisors(one.length), key=lambda n: abs(math.log(n * n / one.length))
                )
                found += [{one.axis: (n, one.length // n)} for n in ways[:_WAYS]]
        return found

    def cut_segments(self) -> list[tuple[tuple[Transform, ...], dict[int, Shape]]]:
        """Return the groups of transforms without a copy in between, each with its long axes."""
        segments: list[tuple[tuple[Transform, ...], dict[int, Shape]]] = []
        now: list[Transform] = []
        long: dict[int, Shape] = {}

        def end() -> None:
            if now:
                segments.append((tuple(now), dict(long)))
            now.clear()
            long.clear()

        for one in self.order_transforms():
            split = self.find_parts(one)
            if split and (one.kind == "c2r" or _is_padded(one, split)):
                end()
            if any(t.axis == one.axis for t in now) and (split or one.axis in long):
                end()
            now.append(one)
            if split:
                long[one.axis] = split
                if one.kind != "c2c" or _is_padded(one, split):
                    end()
        end()
        return segments

    def order_transforms(self) -> Sequence[Transform]:
        """Return complex transforms of different axes in the order of the input: fastest axis first."""
        given = self.transforms
        axes = [one.axis for one in given]
        if len(set(axes)) < len(axes):
            return given
        kinds, sign = ("r2c", "c2c", "c2r"), 1 if self.terms.order(0) == "F" else -1
        return sorted(given, key=lambda t: (kinds.index(t.kind), sign * t.axis))

    def find_parts(self, one: Transform) -> Shape | None:
        """
        Return the two parts of an axis that is to be divided; None if it is not.

        If no divisors of its length fit, the parts are those of a longer line.
        """
        if one.axis in self.divided:
            return self.divided[one.axis]
        room, cores = self.terms.room, self.terms.cores
        dtypes = self.find_input_dtype(one), self.find_output_dtype(one)
        alone = self.make_work(((one, 0),), dtypes, _DividedAxes(len(self.shape), {}))
        if alone.least(cores) <= room:
            return None
        # Its real input may be loaded into another block.
        kind = self.dtypes[0].newbyteorder("=")
        fits: list[tuple[bool, float, int]] = []
        least = alone.least(cores)
        for n1 in _list_divisors(one.length):
            n2 = one.length // n1
            parts = [
                self.make_column_work(n1, (kind, self.complex_dtype)),
                self.make_column_work(n2, (self.complex_dtype, self.dtypes[2])),
            ]
            needed = max(p.least(cores) for p in parts)
            least = min(least, needed)
            if needed <= room:
                busy = min(p.most(room, cores, busy=True) for p in parts) > 0
                w, r = (p.most(room, cores, busy=busy) for p in parts)
                # Runs read and written, for each element.
                requests = 1 / min(w, n2) + 1 / min(r, n1)
                fits.append((not busy, requests, n1))
        if not fits:
            read = self.complex_dtype if one.kind == "c2r" else dtypes[0]
            used = read, self.complex_dtype, dtypes[1]
            try:
                return choose_sizes(one.stage, one.conj, used, one.output_length, self.terms)
            except InsufficientBuffersError as error:
                raise InsufficientBuffersError(min(least, error.needed)) from None
        n1 = min(fits)[2]
        return n1, one.length // n1

    def make_column_work(self, n: int, dtypes: Sequence[np.dtype[Any]]) -> Transforms:
        """Return the work of a pass over the columns, or the rows, of a divided line."""
        kinds = [d for d in dtypes if d != self.complex_dtype]
        blocks = (self.complex_dtype, *kinds[:1])
        stages = (FourierStage("c2c", 0, n), FourierStage("twiddle", 0, n, other=1))
        return Transforms(blocks, ({0: n},) * len(blocks), stages=stages)

    def find_input_dtype(self, one: Transform) -> np.dtype[Any]:
        """Return the dtype that a transform reads: the input's for the first one."""
        if one == self.order_transforms()[0]:
            return self.dtypes[0].newbyteorder("=")
        return self.complex_dtype

    def find_output_dtype(self, one: Transform) -> np.dtype[Any]:
        return self.real_dtype if one.kind == "c2r" else self.complex_dtype

    def add_segment(
        self,
        segment: tuple[Transform, ...],
        long: dict[int, Shape],
        source: _TransformArray,
        target: _TransformArray | None,
    ) -> _TransformArray:
        """Add the passes of a segment; return the array of its result (`target` for the last one)."""
        if any(_is_padded(one, long.get(one.axis)) for one in segment):
            return self.add_padded_line(segment[0], long, source, target)
        lengths = list(source.lengths)
        for one in segment:
            lengths[one.axis] = one.output_length
        if long:
            source = self.make_divisible(segment, long, source)
        whole = list(lengths)
        for one in segment:
            if one.axis in long:
                whole[one.axis] = one.length
        copied = bool(long) and target is not None and (not target.is_strided or whole != lengths)
        dtype = self.find_output_dtype(segment[-1])
        while True:
            count = len(self.temporaries)
            end = self.add_temporary(tuple(whole), dtype) if copied or target is None else target
            chain = self.make_chain(segment, long, source, end)
            if not isinstance(chain, str):
                break
            del self.temporaries[count:]
            if chain == "source":
                source = self.add_copy(source, source.lengths, source.dtype)
            copied = copied or chain == "target"
        self.adopt(chain)
        if copied and target is not None:
            end = self.add_copy(end, target.lengths, dtype, target)
        return replace(end, lengths=tuple(lengths))

    def add_padded_line(
        self,
        one: Transform,
        long: dict[int, Shape],
        source: _TransformArray,
        target: _TransformArray | None,
    ) -> _TransformArray:
        """Add the passes of a line that is transformed as a longer one."""
        axis, parts = one.axis, long[one.axis]
        lengths = list(source.lengths)
        lengths[axis] = one.output_length
        if one.kind == "c2r":
            source = self.make_divisible((one,), long, source)
        elif not source.is_strided:
            there = [*source.lengths]
            there[axis] = min(there[axis], one.length)
            source = self.add_copy(source, tuple(there), source.dtype)
        dtype = self.find_output_dtype(one)
        end = target if target and target.is_strided else self.add_temporary(tuple(lengths), dtype)
        axes = _DividedAxes(len(lengths), long)
        count = min(source.lengths[axis], one.length)
        conj = one.conj and one.kind == "r2c"
        dtypes = source.dtype, self.complex_dtype, dtype
        done = make_padded_work(
            one.stage, conj, dtypes, parts, axes.parts[axis], one.output_length, count
        )
        self.terms.require(max(work.least(self.terms.cores) for work in done))
        here, read = self.view_rows(source, axes, axis, count)
        there_, written = self.view_rows(end, axes, axis, one.output_length)
        chain = self.link_passes(
            [done.columns, done.rows, done.back], here, there_, [*read, *written]
        )
        assert not isinstance(chain, str)  # no side has chunks
        columns, rows, back = chain.passes
        # The chirp is one line, however many lines the array has.
        only = tuple(n if v in axes.parts[axis] else 1 for v, n in enumerate(here.lengths))
        panels = Panels(-1, only, rows.reader, only, here.fast, self.complex_dtype.itemsize)
        chirp = Pass.fit(done.chirp, GeneratedSource(only, here.fast), panels, self.terms)
        assert chirp is not None
        panels = replace(panels, writer=chirp.writer)
        chain.passes = [replace(chirp, target=panels), columns, replace(rows, beside=panels), back]
        self.adopt(chain)
        self.longer.append(parts)
        if target is not None and end is not target:
            end = self.add_copy(end, target.lengths, dtype, target)
        return end

    def view_rows(
        self, state: _TransformArray, axes: _DividedAxes, axis: int, count: int
    ) -> tuple[DividedRows, list[tuple[PlainArray, View]]]:
        """Return the first `count` elements of an axis in rows, and the views that this needs."""
        _, row = axes.long[axis]
        views = []
        for rows, columns in ((count // row, row), (1, count)):
            _, view = self.view_divided(
                state, _DividedAxes(axes.ndim, {axis: (rows, columns)}), (), back=False
            )
            assert view is not None
            views.append(view)
        (body, _), (line, _) = views
        lengths = list(line.lengths)
        for part, n in zip(axes.parts[axis], axes.long[axis], strict=True):
            lengths[part] = n
        first = axes.parts[axis][0]
        whole = body if body.lengths[first] else None
        return DividedRows(whole, line, tuple(lengths), first), views if whole else views[1:]

    def make_divisible(
        self, segment: tuple[Transform, ...], long: dict[int, Shape], source: _TransformArray
    ) -> _TransformArray:
        """Return the input of a segment with its long axes complete and divisible, maybe copied."""
        lengths = list(source.lengths)
        stages: list[FourierStage] = []
        place: PlainArray | None = None
        for one in segment:
            if one.axis not in long:
                continue
            there = lengths[one.axis]
            lengths[one.axis] = one.length
            if one.kind == "c2r":
                if one.conj:
                    stages.append(FourierStage("conj"))
                there = min(there, one.input_length)
                held = [*source.lengths]
                held[one.axis] = there
                plain = replace(source.make_place(), lengths=tuple(held))
                place = HalfAxis(**vars(plain), axis=one.axis, whole_length=one.length)
                stages.append(FourierStage("mirror", one.axis, one.length, other=there))
            elif there < one.length:
                stages.append(FourierStage("zero", one.axis, there))
        if not stages and source.is_strided:
            return source
        dtype = self.complex_dtype if place is not None else source.dtype
        return self.add_copy(source, tuple(lengths), dtype, None, stages, place)

    def add_copy(
        self,
        source: _TransformArray,
        lengths: Shape,
        dtype: np.dtype[Any],
        target: _TransformArray | None = None,
        stages: Sequence[FourierStage] = (),
        place: PlainArray | None = None,
    ) -> _TransformArray:
        """Add a pass that copies an array to one whose axes can be viewed as needed."""
        target = self.add_temporary(lengths, dtype) if target is None else target
        dtypes: tuple[np.dtype[Any], ...] = (source.dtype,)
        if source.dtype != dtype:
            dtypes, stages = (source.dtype, dtype), (FourierStage("cast"), *stages)
        work = Transforms(dtypes, ({},) * len(dtypes), stages=tuple(stages))
        here = source.make_place() if place is None else place
        if place is None:
            ends = zip(here.lengths, lengths, strict=True)
            here = replace(here, lengths=tuple(min(n, m) for n, m in ends))
        there = target.make_place(written=True)
        fitted = Pass.fit(work, here, there, self.terms)
        if fitted is None:
            raise InsufficientBuffersError(self.count_chunk_bytes(work, here, there))
        self.passes.append(fitted)
        return target

    def count_chunk_bytes(self, work: Transforms, source: TileTarget, target: TileTarget) -> int:
        """Return the bytes with which a chunk fits."""
        count = math.prod(target.chunks or source.chunks or ())
        return count * work.count_bytes((1,) * len(work.dtypes)) + work.scratch(
            count, self.terms.cores
        )

    def add_temporary(self, lengths: Shape, dtype: np.dtype[Any]) -> _TransformArray:
        self.temporaries.append(Result(lengths, dtype))
        return _TransformArray(1 + len(self.temporaries), lengths, dtype)

    def make_chain(
        self,
        segment: tuple[Transform, ...],
        long: dict[int, Shape],
        source: _TransformArray,
        target: _TransformArray,
    ) -> _PassChain | str:
        """Return passes, each with panels for the next one; or the side whose chunks do not fit."""
        axes = _DividedAxes(len(source.lengths), long)
        groups = self.group_transforms(segment, axes, source.dtype)
        works = []
        dtype = source.dtype
        for n, group in enumerate(groups):
            after = target.dtype if n == len(groups) - 1 else self.complex_dtype
            works.append(self.make_work(group, (dtype, after), axes))
            dtype = after
        for work in works:
            self.terms.require(work.least(self.terms.cores))
        # Instead of moving short runs, an additional pass that copies may be cheaper.
        ends = (source.dtype, works[-1].dtypes[-1])
        before, after_ = (Transforms((dtype,), ({},), stages=()) for dtype in ends)
        tried: list[_PassChain | str] = []
        for first in ((), (before,)):
            for last in ((), (after_,)):
                here, read = self.view_divided(source, axes, segment, back=False)
                there, written = self.view_divided(target, axes, segment, back=True)
                views = [one for one in (read, written) if one is not None]
                tried.append(self.link_passes([*first, *works, *last], here, there, views))
        chains = [one for one in tried if not isinstance(one, str)]
        return min(chains, key=lambda one: one.seconds) if chains else tried[0]

    def link_passes(
        self,
        works: Sequence[Transforms],
        here: TileSource,
        there: TileTarget,
        views: list[tuple[PlainArray, View]],
    ) -> _PassChain | str:
        """Return passes with these tasks, one after the other; or the side whose chunks do not fit."""
        lengths = [here.lengths]
        for work in works:
            lengths.append(tuple(work.whole[-1].get(v, n) for v, n in enumerate(lengths[-1])))
        passes: list[Pass] = []
        end: TileTarget = there
        for n in range(len(works) - 1, -1, -1):
            known, work = lengths[n], works[n]
            padded = [
                FourierStage("zero", axis, known[axis])
                for axis, length in work.whole[0].items()
                if known[axis] < length
            ]
            work = replace(work, stages=(*padded, *work.stages))
            # Each panel is one request.
            panels = Panels(-1, known, known, known, here.fast, work.dtypes[0].itemsize)
            fitted = Pass.fit(work, panels if n else here, end, self.terms)
            if fitted is None:
                return "target" if end.whole else "source"
            if isinstance(end, Panels):
                # The tiles of both sides are known here.
                joint = replace(end, writer=fitted.writer)
                fitted = replace(fitted, target=joint)
                passes[0] = replace(passes[0], source=joint)
            passes.insert(0, fitted)
            if n:
                end = replace(panels, reader=fitted.reader)
        return _PassChain(passes, views, sum(one.cost(self.terms) for one in passes))

    def adopt(self, chain: _PassChain) -> None:
        for one in chain.passes[:-1]:
            assert isinstance(one.target, Panels)
            self.temporaries.append(Result(one.target.shape, one.work.dtypes[-1]))
            one.target.number = 1 + len(self.temporaries)
        self.views += chain.views
        self.passes += chain.passes

    def view_divided(
        self,
        state: _TransformArray,
        axes: _DividedAxes,
        segment: tuple[Transform, ...],
        *,
        back: bool,
    ) -> tuple[PlainArray, tuple[PlainArray, View] | None]:
        """Return an array with its long axes divided, without what the transforms crop."""
        place = state.make_place(written=back)
        if not axes.long:
            return (place if back else replace(place, lengths=_crop(place, segment))), None
        dims: list[Shape] = []
        lengths: list[Shape] = []
        shape = [0] * axes.count
        for axis, n in enumerate(state.lengths):
            parts, sizes = axes.parts[axis], axes.long.get(axis, (n,))
            # The result is transposed: its rows are the columns.
            along, sizes = (parts[::-1], sizes[::-1]) if back else (parts, sizes)
            dims.append(along)
            lengths.append(sizes)
            for part, size in zip(along, sizes, strict=True):
                shape[part] = size
        # Within a divided axis the second part runs faster, in both orders.
        fast = sum((d[::-1] for d in (dims if state.order == "F" else dims[::-1])), ())
        seen = PlainArray(-1, tuple(shape), sum(dims, ()), fast, state.dtype.itemsize)
        if not back:
            short = [t for t in segment if t.axis not in axes.long]
            moved = [replace(t, axis=axes.parts[t.axis][0]) for t in short]
            seen.lengths = _crop(seen, moved)
        return seen, (seen, View(state.number, tuple(lengths)))

    def group_transforms(
        self, segment: tuple[Transform, ...], axes: _DividedAxes, dtype: np.dtype[Any]
    ) -> list[tuple[tuple[Transform, int], ...]]:
        """Group transforms of different axes into passes, as many as fit in each."""
        parts = [(t, part) for t in segment for part in range(len(axes.parts[t.axis]))]
        groups: list[tuple[tuple[Transform, int], ...]] = []
        for one in parts:
            if groups:
                more = (*groups[-1], one)
                first = dtype if len(groups) == 1 else self.complex_dtype
                different = len({axes.parts[t.axis][k] for t, k in more}) == len(more)
                both = any(t is one[0] for t, _ in groups[-1])
                if different and not both:
                    work = self.make_work(more, (first, self.find_output_dtype(one[0])), axes)
                    if work.least(self.terms.cores) <= self.terms.room:
                        groups[-1] = more
                        continue
            groups.append((one,))
        return groups

    def make_work(
        self,
        group: Sequence[tuple[Transform, int]],
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
        axes: _DividedAxes,
    ) -> Transforms:
        stages: list[FourierStage] = []
        blocks = [dtypes[0]]
        where = [(t, k, axes.parts[t.axis]) for t, k in group]
        lengths: dict[int, int] = {}
        for t, k, parts in where:
            lengths[parts[k]] = axes.long[t.axis][k] if len(parts) > 1 else t.input_length
        whole = [dict(lengths)]

        def into(stage: FourierStage, dtype: np.dtype[Any]) -> None:
            stages.append(stage)
            blocks.append(dtype)
            whole.append(dict(lengths))

        for t, k, parts in where:
            axis, divided = parts[k], len(parts) > 1
            if t.kind == "r2c" and not divided:
                if blocks[-1] != self.real_dtype:
                    into(FourierStage("cast"), self.real_dtype)
                lengths[axis] = t.output_length
                into(FourierStage("r2c", axis, t.length, t.forward, t.norm), self.complex_dtype)
                if t.conj:
                    stages.append(FourierStage("conj"))
                continue
            if blocks[-1] != self.complex_dtype:
                into(FourierStage("cast"), self.complex_dtype)
            if divided:
                n = axes.long[t.axis][k]
                stages.append(FourierStage("c2c", axis, n, t.forward, t.norm))
                if k == 0:
                    stages.append(
                        FourierStage("twiddle", axis, t.length, t.forward, other=parts[-1])
                    )
                elif t.kind == "r2c" and t.conj:
                    stages.append(FourierStage("conj"))
            elif t.kind == "c2c":
                stages.append(FourierStage("c2c", axis, t.length, t.forward, t.norm))
            else:
                if t.conj:
                    stages.append(FourierStage("conj"))
                lengths[axis] = t.output_length
                into(FourierStage("c2r", axis, t.length, t.forward, t.norm), self.real_dtype)
        if dtypes[1].kind != "c" and blocks[-1].kind == "c":
            into(FourierStage("real"), self.real_dtype)
        return Transforms(tuple(blocks), tuple(whole), stages=tuple(stages))

    def describe_method(self) -> str:
        parts = []
        for one in self.passes:
            tile = " x ".join(str(one.work.whole[0].get(v, n)) for v, n in enumerate(one.tile))
            what = "copies" if not one.work.whole[0] else "transforms"
            parts.append(f"{what} tiles of {tile}")
        divided = " of a line that is divided into columns and rows" if self.views else ""
        if self.longer:
            lengths = ", ".join(f"{a * b} = {a} x {b}" for a, b in self.longer)
            divided = f" of a line that is transformed as one of length {lengths} (Bluestein)"
        return f"{format_count(len(parts), 'pass')}{divided}: " + ", then ".join(parts)

    def compute_bound(self, made: Shape) -> Bound:
        """Return the lower bound: input and result once, and the order of Hong and Kung."""
        wanted = list(self.shape)
        seen: set[int] = set()
        for one in self.transforms:
            if one.axis not in seen:
                wanted[one.axis] = min(wanted[one.axis], one.input_length)
            seen.add(one.axis)
        infos = self.terms.infos
        sizes = [
            math.prod(wanted) * self.dtypes[0].itemsize,
            math.prod(made) * self.dtypes[2].itemsize,
        ]
        certain = sum(size for size, info in zip(sizes, infos, strict=True) if info is not None)
        points = math.prod(one.length for one in self.transforms)
        room = max(self.terms.room // self.complex_dtype.itemsize, 2)
        passes = math.log(max(points, 2)) / math.log(room)
        order = f"order N log N / log M: {format_bytes(int(certain * max(passes, 1)))}"
        once = dict(enumerate(sizes))
        return Bound(certain, f"input and result once; {order}, Hong and Kung", once)


def _describe_rows(view: View) -> str:
    """Return the word for a divided axis in the name of a view."""
    single = any(len(parts) > 1 and parts[0] == 1 for parts in view.lengths)
    return "one row" if single else "rows"


def _is_padded(one: Transform, parts: Shape | None) -> bool:
    """Return whether a line is transformed as a longer one."""
    return parts is not None and math.prod(parts) != one.length


def _crop(place: PlainArray, transforms: Sequence[Transform]) -> Shape:
    """Return the lengths of the axes without what the first transform along each axis drops."""
    lengths = list(place.lengths)
    for one in reversed(transforms):
        lengths[one.axis] = min(place.lengths[one.axis], one.input_length)
    return tuple(lengths)


def _list_divisors(n: int) -> list[int]:
    """Return the divisors of `n` except 1 and `n`, in ascending order."""
    small = [d for d in range(2, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})
