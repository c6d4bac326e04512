"""
From any format, chunking, order and dtype to any other, within the budget.

Problem. Source and target rarely like the same pieces, the array does not fit in memory, the job takes
hours, and the machine may go down in the middle.
Idea. `outcore.tiling` cuts the array into tiles that suit both sides. While one tile is written the
next is read, and the one after it too if there is memory, so that the disk is not idle where one read
ends and the next begins; the buffers are counted in the budget. The target grows under a name of its own
and takes its place when it is complete and durable; a journal beside it says which tiles are durable.

Invariants. What is at the target's name is the old array or the complete new one (except inside an
existing container, which cannot be exchanged as a whole). A buffer is touched by one of read, cast and
write at a time. Resuming never mixes two jobs.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import shutil
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import _core, formats, tiling
from outcore.disk import DiskArray, Mode
from outcore.errors import BudgetError, OutcoreError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.spec import as_dtype
from outcore.formats.zarr_tree import check_replaceable
from outcore.hints import Hints, memory, nbytes
from outcore.journal import Journal
from outcore.opening import create, open
from outcore.requests import IORequest
from outcore.tiling import Side, Tiling

__all__ = ["convert"]

Path = str | os.PathLike[str]
Progress = Callable[[int, int], None]

# Seconds between two points from which the job can go on.
_CHECKPOINT = 2.0
# What an operation on uncompressed data is given at least.
_LITTLE = 256 * 2**10
# Codes of attributes that a format cannot keep.
_BAD_ATTRIBUTES = ("bad-attribute", "bad-attributes")
_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
# A longer one tells no format.
_LONGEST_SUFFIX = 16
# One part in so many is for what codecs hold besides, and for tables of chunks.
_SLACK = 8
# Tiles that are read at the same time, from files that need no decoding.
_READS = 2


def convert(
    src: Path | Sequence[Path] | DiskArray,
    dst: Path,
    *,
    format: str | None = None,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    chunks: int | Sequence[int | None] | None = None,
    shards: int | Sequence[int | None] | None = None,
    compression: Any = None,
    memory: int | str | None = None,
    progress: Progress | None = None,
    resume: bool = False,
    overwrite: bool = False,
    casting: Literal["no", "equiv", "safe", "same_kind", "unsafe"] = "same_kind",
    source: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """
    Copy an array of any size into another format, chunking, order or dtype.

    Parameters
    ----------
    src
        What to read: a path (a list of paths for a raw array in pieces), or an open array.
    dst
        Where to write; the suffix tells the format, or `format` does.
    dtype, order
        Of the new array; by default those of the source. Casting follows NumPy's rule `casting`.
    chunks, shards, compression
        As for `outcore.create`. By default the new array has no compression, and the chunks of the
        source if both formats have chunks.
    memory
        Bytes that the copy may hold, as a number or as text (``"256 MiB"``). By default, and at
        most, what `outcore.memory` allows.
    progress
        Called as ``progress(done, total)`` in bytes of the source, from this thread.
    resume
        Go on where an interrupted conversion stopped. Without one, it starts at the beginning.
    overwrite
        Replace `dst` if it exists; it is there, complete, until the new one is.
    casting
        ``"same_kind"`` allows float64 to float32, ``"unsafe"`` anything, ``"safe"`` no loss.
    source
        Options to open `src` with, such as ``{"dtype": "f4", "shape": (100, 100)}`` for raw files.
    options
        Further options for creating `dst`.

    Raises
    ------
    BudgetError
        Not even one chunk of each side fits; ``needed`` says what would do.
    UsageError
        The dtype cannot be cast, `dst` is `src`, or the journal belongs to another job.
    StorageError
        ``already-exists``: `dst` is there and `overwrite` is not set; or the system said no. Nothing is
        lost: call again with ``resume=True``.

    Notes
    -----
    Attributes, names of axes and fill value are carried over; what the new format cannot keep is
    left out with a warning. Until the end the data lies in ``<name>.outcore-partial<suffix>`` and
    the journal in ``<dst>.outcore-journal``, next to `dst`. An array inside an existing HDF5 file or
    Zarr group is written in place, and resumed there.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("rows.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.convert("rows.npy", "columns.npy", order="F")
    >>> np.load("columns.npy").flags.f_contiguous
    True
    """
    wishes = {"order": order, "chunks": chunks, "shards": shards, "compression": compression}
    wishes = {k: v for k, v in wishes.items() if v is not None and v != "none"}
    if casting not in _CASTINGS:
        raise UsageError(
            f"casting={casting!r} is no rule for casts; rules: {', '.join(_CASTINGS)}",
            code="bad-casting",
        )
    budget = _budget(memory)
    with _opened(src, source or {}) as array:
        kind = array.dtype if dtype is None else _dtype(dtype)
        if not np.can_cast(array.dtype, kind, casting):
            raise UsageError(
                f"{array.path!r}: {array.dtype} cannot be cast to {kind} under casting={casting!r}; "
                "casting='unsafe' does it all the same",
                code="bad-cast",
                path=array.path,
            )
        place = _Place.of(os.fspath(dst), array, overwrite)
        job = _Job(array, place, kind, budget, format, {**wishes, **options})
        with place.named(), Journal(place.journal) as journal:
            job.run(journal, resume, progress or (lambda done, total: None))


def _opened(src: Any, options: Mapping[str, Any]) -> DiskArray:
    if isinstance(src, DiskArray):
        # A handle of our own, which the caller's close does not touch.
        return DiskArray(src.info, "r", src.hints, src._options)
    return open(src, **options)


def _dtype(wanted: DTypeLike) -> np.dtype[Any]:
    kind = as_dtype(wanted, "the new array")
    if kind.subdtype is not None:
        raise UsageError(
            f"dtype {kind} would add axes to the array; convert to {kind.base}", code="bad-dtype"
        )
    return kind


def _budget(wanted: int | str | None) -> int:
    limit = int(memory())
    return limit if wanted is None else min(nbytes(wanted), limit)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the target grows and where it goes."""

    final: str
    outer: str
    #: Equal to `final` if the array lies in a container that exists already.
    partial: str
    partial_outer: str
    journal: str
    overwrite: bool

    @classmethod
    def of(cls, dst: str, array: DiskArray, overwrite: bool) -> _Place:
        outer, inner = formats.split_path(dst.rstrip("/"))
        if os.path.islink(outer):
            outer = os.path.realpath(outer)  # the link stays, as with `create`
        name = outer + (inner.replace("/", ".") if inner else "")
        there = os.path.lexists(outer)
        durable.refuse_special(outer)
        if there and os.path.realpath(outer) == _real(array.path) and not _other(array, inner):
            raise UsageError(
                f"{dst!r} is the array that is read; choose another name",
                code="same-file",
                path=dst,
            )
        if there and inner is None and not overwrite:
            raise StorageError(
                f"{dst!r} exists already; pass overwrite=True to replace it",
                code="already-exists",
                path=dst,
                errno=17,
            )
        if inner is None and os.path.isdir(outer):
            check_replaceable(outer)
        partial = outer
        if inner is None or not there:
            stem, suffix = os.path.splitext(outer)
            if len(suffix) > _LONGEST_SUFFIX:
                stem, suffix = outer, ""
            partial = durable.neighbour(stem, f".outcore-partial{suffix}")
        tail = f"::{inner}" if inner is not None else ""
        journal = durable.neighbour(name, ".outcore-journal")
        return cls(outer + tail, outer, partial + tail, partial, journal, overwrite)

    @property
    def in_place(self) -> bool:
        return self.partial == self.final

    def discard(self) -> None:
        """Remove what an earlier attempt left."""
        if self.in_place:
            return
        with durable.os_errors("removing", self.partial_outer):
            if os.path.isdir(self.partial_outer):
                shutil.rmtree(self.partial_outer)
            elif os.path.lexists(self.partial_outer):
                os.unlink(self.partial_outer)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Errors of the block tell the name that the target will have."""
        try:
            yield
        except OutcoreError as error:
            if not self.in_place:
                names = map(os.path.basename, (self.outer, self.partial_outer))
                error.speak_of(*names)
            raise

    def publish(self) -> None:
        """Give the complete array its name."""
        if self.in_place:
            return
        if os.path.isdir(self.outer):
            check_replaceable(self.outer)  # hours have passed
        with durable.os_errors("renaming to", self.outer):
            durable.move_into_place(self.partial_outer, self.outer, exclusive=not self.overwrite)


def _real(path: str) -> str:
    return os.path.realpath(formats.split_path(path)[0])


def _other(array: DiskArray, inner: str | None) -> bool:
    """Whether `inner` names another array of the same container."""
    here = formats.split_path(array.path)[1]
    return inner is not None and here is not None and inner != here


class _Job:
    """One conversion, from the choice of tiles to the last rename."""

    def __init__(
        self,
        array: DiskArray,
        place: _Place,
        dtype: np.dtype[Any],
        budget: int,
        format: str | None,
        wishes: dict[str, Any],
    ) -> None:
        self.array, self.place, self.dtype, self.budget = array, place, dtype, budget
        self.format, self.wishes = format, wishes
        #: Tiles that are read at the same time; chosen with the tiles.
        self.reads = 1

    def description(self) -> dict[str, Any]:
        """What makes two jobs the same."""
        stat = os.stat(formats.split_path(self.array.path)[0])
        return {
            "source": _absolute(self.array.path),
            "source time": stat.st_mtime_ns,
            "target": _absolute(self.place.final),
            "shape": self.array.shape,
            "source dtype": repr(self.array.dtype),
            "dtype": repr(self.dtype),
            "format": self.format,
            **{name: repr(value) for name, value in self.wishes.items()},
        }

    def run(self, journal: Journal, resume: bool, progress: Progress) -> None:
        job = self.description()
        going_on = resume and journal.job is not None
        if going_on and (different := journal.differs(job)):
            raise UsageError(
                f"{journal.path!r} belongs to another conversion: different {', '.join(different)}. "
                "Repeat the call that was interrupted, or start again without resume",
                code="other-job",
                path=journal.path,
            )
        try:
            with self._reopen() if going_on else self._create() as target:
                tiles, reader, writer = self._arrange(target, journal if going_on else None)
            with reader, writer:
                writer._core.expect_flush()
                if not going_on:
                    journal.begin(job, list(tiles.tile), len(tiles))
                self._copy(tiles, reader, writer, journal, progress)
                writer.flush()
        except BaseException:
            if not going_on and not journal.done:
                # Nothing that would be worth going on from.
                journal.remove()
                self.place.discard()
            raise
        self.place.publish()
        journal.remove()

    def _reopen(self) -> DiskArray:
        words: dict[str, Any] = {} if self.format is None else {"format": self.format}
        if not os.path.lexists(self.place.partial_outer):
            raise StorageError(
                f"the unfinished copy of {self.place.final!r} is gone; start again without resume",
                code="not-found",
                path=self.place.final,
                errno=2,
            )
        if self.array.format == "raw" or self.format == "raw":
            words = {**words, "dtype": self.dtype, "shape": self.array.shape, **self.wishes}
        target = open(self.place.partial, "r+", hints=self._target_hints(self.budget), **words)
        if target.shape != self.array.shape or target.dtype != self.dtype:
            target.close()
            raise UsageError(
                f"the unfinished copy of {self.place.final!r} is not what the interrupted conversion "
                "left; start again without resume",
                code="other-job",
                path=self.place.final,
            )
        return target

    def _create(self) -> DiskArray:
        self.place.discard()
        kept = {
            "fill_value": self.array.fill_value,
            "dims": self.array.dims,
            "attrs": dict(self.array.attrs) or None,
            "chunks": self.array.chunks,
            "order": "F" if self.array.order == "F" else None,
        }
        kept = {k: v for k, v in kept.items() if v is not None and k not in self.wishes}
        if "shards" in self.wishes:
            kept.pop("chunks", None)
        refusal: UnsupportedError | UsageError | None = None
        for lost in _subsets(list(kept)):
            words = {k: v for k, v in kept.items() if k not in lost}
            try:
                target = create(
                    self.place.partial,
                    self.array.shape,
                    self.dtype,
                    exclusive=not (self.place.overwrite and self.place.in_place),
                    hints=self._target_hints(self.budget),
                    format=self.format,
                    **words,
                    **self.wishes,
                )
            except (UnsupportedError, UsageError) as error:
                if isinstance(error, UsageError) and error.code not in _BAD_ATTRIBUTES:
                    raise
                refusal = refusal or error
                continue
            told = [name for name in lost if name in ("fill_value", "dims")]
            if "attrs" in lost:
                told += _attributes_lost(target, kept["attrs"])
            if told:
                warnings.warn(
                    f"{self.place.final!r}: {target.format} cannot keep {', '.join(told)} of "
                    f"{self.array.path!r}",
                    stacklevel=4,
                )
            return target
        raise refusal or UnsupportedError(
            "no way to create it; name another format=", code="cannot-keep"
        )

    # Memory

    def _arrange(
        self, target: DiskArray, journal: Journal | None
    ) -> tuple[Tiling, DiskArray, DiskArray]:
        """
        Choose the tiles, and share what they leave of the budget between reading and writing.

        The core knows best what an operation needs (codecs hold memory as well): it is asked.
        """
        needs = [self._least(self.array, write=False), self._least(target, write=True)]
        while True:
            tiles = self._same_tiles(journal, target) if journal else self._tiles(target, needs)
            self.reads, spare = self._share(tiles, target, needs)
            if spare < 0:
                raise self._too_small(_with_slack(self._held(tiles, target) + sum(needs)))
            arrays = [
                DiskArray(
                    a.info,
                    "r" if a is self.array else "r+",
                    self._hints(a, n + spare),
                    a._options,
                )
                for a, n in zip((self.array, target), needs, strict=True)
            ]
            if not len(tiles):
                return tiles, arrays[0], arrays[1]
            for number, array in enumerate(arrays):
                try:
                    array.explain(tiles.key(0), write=number == 1)
                except BudgetError as error:
                    for other in arrays:
                        other.close()
                    if error.needed is None or error.needed <= needs[number]:
                        raise
                    needs[number] = error.needed
                    break
            else:
                return tiles, arrays[0], arrays[1]

    def _least(self, array: DiskArray, *, write: bool) -> int:
        """Bytes without which not even one chunk can be read or written."""
        chunk = tuple(slice(0, n) for n in array.chunks or (1,) * array.ndim)
        mode: Mode = "r+" if write else "r"
        with DiskArray(array.info, mode, self._hints(array, 1), array._options) as poor:
            try:
                poor.explain(chunk, write=write)
            except BudgetError as error:
                return max(error.needed or 0, _LITTLE)
        return _LITTLE

    def _hints(self, array: DiskArray, memory: int) -> Hints:
        """What holds for this side of the copy: the source keeps its wishes, such as ``missing``."""
        if array is self.array:
            return replace(array.hints, memory=memory)
        return self._target_hints(memory)

    def _target_hints(self, memory: int) -> Hints:
        # The file is nobody else's until it gets its name.
        return Hints.of(Hints(memory=memory, exclusive=not self.place.in_place))

    def _sides(self, target: DiskArray) -> tuple[Side, Side]:
        return Side.of(self.array.info), Side.of(target.info)

    def _held(self, tiles: Tiling, target: DiskArray, reads: int = 1) -> int:
        """Bytes of the buffers: one for each read, and one for the write."""
        here, there = self.array.dtype.itemsize, target.dtype.itemsize
        return math.prod(tiles.tile) * (reads * here + there)

    def _share(self, tiles: Tiling, target: DiskArray, needs: Sequence[int]) -> tuple[int, int]:
        """
        How many tiles are read at the same time, and what each operation has beyond its need.

        Reads that decode share the processor, not an idle disk: one is enough for them.
        """
        most = 1 if Side.of(self.array.info).whole else min(_READS, len(tiles))
        for reads in range(max(most, 1), 0, -1):
            held = self._held(tiles, target, reads)
            spare = self.budget - self.budget // _SLACK - held - reads * needs[0] - needs[1]
            if reads == 1 or (spare >= 0 and held <= self.budget // 2):
                break
        return reads, spare // (reads + 1)

    def _tiles(self, target: DiskArray, needs: Sequence[int]) -> Tiling:
        per_element = self.array.dtype.itemsize + target.dtype.itemsize
        most = max(self.budget - self.budget // _SLACK - sum(needs), 0) // per_element
        # Half of the budget is for the operations, unless nothing would fit then.
        sides = self._sides(target)
        tiles = tiling.choose(self.array.shape, *sides, min(most, self.budget // 2 // per_element))
        if not isinstance(tiles, Tiling):
            tiles = tiling.choose(self.array.shape, *sides, most)
        if not isinstance(tiles, Tiling):
            raise self._too_small(_with_slack(sum(needs) + tiles * per_element))
        return tiles

    def _same_tiles(self, journal: Journal, target: DiskArray) -> Tiling:
        """The tiles of the run that was interrupted."""
        cut, shape = journal.cut, self.array.shape
        fits = isinstance(cut, list) and len(cut) == len(shape)
        if not fits or not all(
            type(n) is int and 1 <= n <= max(m, 1) for n, m in zip(cut, shape, strict=True)
        ):
            raise journal.bad()
        tiles = Tiling(shape, tuple(cut), target.order)
        if len(tiles) != journal.steps:
            raise journal.bad()
        return tiles

    def _too_small(self, needed: int) -> BudgetError:
        return BudgetError(
            f"converting {self.array.path!r} to {self.place.final!r} needs {needed} bytes (two "
            f"pieces that hold a whole chunk, and buffers), the budget is {self.budget}. Raise "
            "memory= (and outcore.memory), or choose smaller chunks",
            code="budget-too-small",
            path=self.array.path,
            needed=needed,
        )

    # The copy

    def _copy(
        self,
        tiles: Tiling,
        reader: DiskArray,
        target: DiskArray,
        journal: Journal,
        progress: Progress,
    ) -> None:
        todo = [k for k in range(len(tiles)) if k not in journal.done]
        item, total = self.array.dtype.itemsize, self.array.nbytes
        done = total - sum(_elements(tiles.key(k)) for k in todo) * item
        progress(done, total)
        if not todo:
            return
        checkpoints = _Checkpoints(target, journal)

        def read(k: int) -> IORequest[Any]:
            return reader.iread(tiles.key(k), out=buffers.input(tiles.key(k)))

        def finish(k: int) -> None:
            nonlocal done
            if writing is not None:
                writing.wait()
            checkpoints.written(k)
            done += _elements(tiles.key(k)) * item
            progress(done, total)

        reads, held = self.reads, self._held(tiles, target, self.reads)
        reading: deque[IORequest[Any]] = deque()
        writing: IORequest[Any] | None = None
        with _core.Reservation("convert", held), _Buffers(tiles, reader, target, reads) as buffers:
            try:
                reading.extend(read(k) for k in todo[:reads])
                for number, k in enumerate(todo):
                    data = reading[0].wait()
                    if number:
                        finish(todo[number - 1])
                    reading.popleft()
                    writing = target.iwrite(tiles.key(k), buffers.output(data))
                    if number + reads < len(todo):
                        reading.append(read(todo[number + reads]))
                finish(todo[-1])
            finally:
                # The buffers belong to the requests until these are over.
                for request in (*reading, *([writing] if writing else ())):
                    with contextlib.suppress(Exception):
                        request.wait()
                checkpoints.finish()


def _attributes_lost(target: DiskArray, attrs: Mapping[str, Any]) -> list[str]:
    """Set one by one what could not be set together; what `target` cannot keep."""
    lost = []
    try:
        for name, value in attrs.items():
            try:
                target.attrs[name] = value
            except UsageError:
                lost.append(f"attribute {name!r}")
    except UnsupportedError:
        return ["attrs"]
    except BaseException:
        target.close()
        raise
    return lost


def _absolute(path: str) -> str:
    outer, inner = formats.split_path(path)
    return os.path.realpath(outer) + (f"::{inner}" if inner is not None else "")


def _with_slack(needed: int) -> int:
    return -(-needed * _SLACK // (_SLACK - 1)) + _SLACK


def _elements(key: tuple[slice, ...]) -> int:
    return math.prod(part.stop - part.start for part in key)


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    """All subsets, the smallest first."""
    for count in range(len(names) + 1):
        yield from combinations(names, count)


class _Buffers:
    """
    Memory of the tiles: a buffer for each read, and one for the write. They take turns, unless what
    is written is another dtype; then that one has its own.

    Page-aligned and outside the heap, so that it goes back to the system at once.
    """

    def __init__(self, tiles: Tiling, array: DiskArray, target: DiskArray, reads: int) -> None:
        elements = max(math.prod(tiles.tile), 1)
        self._order: Literal["C", "F"] = "F" if target.order == "F" else "C"
        self._read_as, self._write_as = array.dtype, target.dtype
        self._same = array.dtype == target.dtype
        arrays = (target, *[array] * reads)
        self._maps = [mmap.mmap(-1, elements * a.dtype.itemsize) for a in arrays]
        # Those that are read into, the next one first.
        self._inputs = deque(range(0 if self._same else 1, len(arrays)))
        for block in self._maps:
            with contextlib.suppress(AttributeError, OSError):
                block.madvise(mmap.MADV_HUGEPAGE)

    def __enter__(self) -> _Buffers:
        return self

    def __exit__(self, *_: object) -> None:
        # A view may still be alive in a traceback; then the memory goes with it.
        for block in self._maps:
            with contextlib.suppress(BufferError):
                block.close()

    def _view(self, number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, self._maps[number], order=self._order)

    def input(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """Where to read the tile at `key`."""
        shape = tuple(part.stop - part.start for part in key)
        self._inputs.rotate(-1)
        return self._view(self._inputs[-1], self._read_as, shape)

    def output(self, data: NDArray[Any]) -> NDArray[Any]:
        """What to write: `data` itself, or cast."""
        if self._same:
            return data
        cast = self._view(0, self._write_as, data.shape)
        np.copyto(cast, data, casting="unsafe")
        return cast


class _Checkpoints:
    """Makes written tiles durable in the background, then records them."""

    def __init__(self, target: DiskArray, journal: Journal) -> None:
        self._target, self._journal = target, journal
        self._written: list[int] = []
        self._last = time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def written(self, step: int) -> None:
        """Tile `step` has been handed to the system."""
        self._written.append(step)
        running = self._thread is not None and self._thread.is_alive()
        if running or time.monotonic() - self._last < _CHECKPOINT:
            return
        self._join()
        steps, self._written = self._written, []
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._save, args=(steps,), name="outcore-flush")
        self._thread.start()

    def _save(self, steps: list[int]) -> None:
        try:
            self._target.flush()
            self._journal.commit(steps)
        except BaseException as error:
            self._error = error

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Save what is left, also when the job was interrupted."""
        self._join()
        if self._written:
            self._save(self._written)
            self._written = []
            self._join()
