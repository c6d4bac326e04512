"""
Divide the elements of an unstructured problem into parts.

Problem: the nodes of a mesh, or the atoms of a molecule, do not fit in memory, and nearby numbers need
not belong to elements that are used together.
Approach: elements are divided into parts of equal weight whose elements lie near each other. Either a
part fits in the memory of a process (N-partitioning, the report's model for local placement), or parts
of a first level fit in the memory of all ranks together, and each contains one part for each rank
(hierarchical partitioning, its partitioned in-core model). A partition stores the part number of each
element.
Invariants: equal input gives equal partitions, with any budget, on any rank, from memory or from disk.
The parts of a first-level part have consecutive numbers.

Reference: Choudhary et al., "PASSION: Parallel And Scalable Software for Input-Output", section 4.4.1
and Table 5 (`oc_gen_partition`).
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.closable import Closable
from outcore.base.report import format_count
from outcore.compute.jobs import Source, collective, open_inputs
from outcore.errors import UsageError, suggest_name
from outcore.formats.defaults import PLAIN_SUFFIX
from outcore.formats.manifests import ManifestKind
from outcore.formats.paths import one_name
from outcore.problems.unstructured import bisection, curves, graphs
from outcore.problems.unstructured.points import WeightedPoints, Weights
from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import (
    Table,
    as_table,
    check_dtype,
    check_edges,
    check_indices,
    check_part,
    count_rows,
    describe,
    forget_manifest,
    get_room_bytes,
    get_value,
    make_path,
    make_table,
    open_table,
    read_manifest,
    read_slabs,
)
from outcore.ranks.ranks import Ranks

__all__ = ["Partition", "PartitionMethod", "partition"]

PartitionMethod = Literal["rcb", "hilbert", "metis"]

_METHODS = ("rcb", "hilbert", "metis")
_MANIFEST = "partition.json"
_KIND = ManifestKind("outcore partition", 1, "outcore.unstructured.partition()", "the partition")
#: Part numbers are int32.
_MOST = 2**31 - 1


class Partition(Closable):
    """
    Part number of each element; made by `outcore.unstructured.partition`, `Partition.blocks` or `open`.

    Parameters
    ----------
    part
        Part of each element: integers of shape (n,), as a NumPy array or a `DiskArray`.
    parts
        Number of parts; some may be empty.
    method
        Name of the method that made it, for display.
    levels
        ``(k, ranks)`` for a hierarchical partition: part ``i * ranks + r`` belongs to rank `r` in
        first-level part `i`.

    Raises
    ------
    SectionError
        ``index-out-of-bounds``: a number in `part` is not the number of a part.
    UsageError
        ``bad-dtype``, ``bad-shape``, ``bad-partition``: `part` is not a line of integers, or there are
        no parts.
    BudgetError
        The counts of all parts do not fit the memory budget.

    Notes
    -----
    Not collective. `part` is read once, to count, and not copied. This uses 16 bytes for each part, and
    at most half of the memory budget for slabs.

    Examples
    --------
    >>> import numpy as np
    >>> from outcore.unstructured import Partition
    >>> p = Partition(np.array([1, 0, 1, 1]), 3)
    >>> p.counts
    array([1, 3, 0])
    >>> p.members(1)
    array([0, 2, 3])
    """

    def __init__(
        self,
        part: NDArray[Any] | DiskArray,
        parts: int,
        *,
        method: str = "given",
        levels: tuple[int, int] | None = None,
    ) -> None:
        #: Part of each element, in memory or on disk.
        self.table: Table = as_table(part, "the parts of elements")
        self._parts = _check_count(parts, "parts")
        self._method, self._levels = method, _check_levels(levels, self._parts)
        if self.table.ndim != 1:
            raise UsageError(
                f"part has shape {self.table.shape}; pass one part number for each element",
                code="bad-shape",
            )
        check_dtype(self.table, "iu", "part", "use integers: the part number of each element")
        with _core.Reservation("partition", self._held + 2 * 8 * self._parts):
            self._counts = np.zeros(self._parts, np.int64)
            for low, _, slab in read_slabs(self.table, self._count_rows()):
                check_indices(slab, self._parts, low, "part")
                self._counts += np.bincount(slab.astype(np.intp), minlength=self._parts)

    @classmethod
    def blocks(cls, elements: int, parts: int) -> Self:
        """
        Return a partition into parts of consecutive indices.

        Parameters
        ----------
        elements
            Number of elements.
        parts
            Number of parts; their sizes differ by at most one.

        Returns
        -------
        Partition
            Partition whose `part` uses 4 bytes for each element, on disk if it does not fit an eighth of
            the budget.

        Raises
        ------
        UsageError
            ``bad-partition``: there are no parts.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.Partition.blocks(7, 3).part
        array([0, 0, 1, 1, 1, 2, 2], dtype=int32)
        """
        parts = _check_count(parts, "parts")
        table = make_table((elements,), np.int32)
        with _core.Reservation("partition", min(get_room_bytes(), 32 * max(elements, 1))):
            rows = count_rows(get_room_bytes(), 32, "parts")
            for low in range(0, elements, rows):
                high = min(low + rows, elements)
                # Use the middles of elements, as all other methods do; 2 n parts may exceed 2^63.
                middle = 2 * np.arange(low, high, dtype=np.int64) + 1
                if 2 * elements * parts < 2**63:
                    table[low:high] = middle * parts // (2 * elements)
                else:
                    table[low:high] = [int(m) * parts // (2 * elements) for m in middle]
        return cls(get_value(table), parts, method="blocks")

    # Properties

    @property
    def part(self) -> NDArray[Any] | DiskArray:
        """Part of each element: shape (n,)."""
        found: NDArray[Any] | DiskArray = get_value(self.table)
        return found

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self._parts

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(self.table.shape[0])

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of elements of each part: int64, shape (parts,)."""
        return self._counts.copy()

    @property
    def method(self) -> str:
        """Method that made it: ``"rcb"``, ``"hilbert"``, ``"metis"``, ``"blocks"``, ``"given"``."""
        return self._method

    @property
    def levels(self) -> tuple[int, int] | None:
        """``(k, ranks)`` of a hierarchical partition, otherwise None."""
        return self._levels

    @property
    def hierarchical(self) -> bool:
        """Whether the partition has two levels."""
        return self._levels is not None

    def members(self, part: SupportsIndex) -> NDArray[np.int64]:
        """
        Return the elements of a part.

        Parameters
        ----------
        part
            Number of the part.

        Returns
        -------
        numpy.ndarray
            New array of their indices, ascending: int64, shape (counts[part],).

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: the part does not exist.

        Notes
        -----
        Not collective. This reads all of `part`. To get the parts one after another, make a
        `TranslationTable`, which reads only the elements that it returns.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.Partition.blocks(7, 3).members(2)
        array([5, 6])
        """
        number = check_part(part, self._parts)
        found, filled = np.empty(int(self._counts[number]), np.int64), 0
        with _core.Reservation("partition", self._held):
            for low, _, slab in read_slabs(self.table, self._count_rows()):
                mine = np.flatnonzero(slab == number)
                found[filled : filled + mine.size] = mine + low
                filled += mine.size
        return found

    def first_level(self) -> Partition:
        """
        Return the first level of a hierarchical partition, whose parts fit in the memory of all ranks
        together.

        Returns
        -------
        Partition
            Partition into ``levels[0]`` parts. Its `part` uses 4 bytes for each element, as for
            `blocks`.

        Raises
        ------
        UsageError
            ``bad-partition``: the partition has one level.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> p = outcore.unstructured.partition(np.arange(8.0), 4, levels=(2, 2))
        >>> p.part, p.first_level().part
        (array([0, 0, 1, 1, 2, 2, 3, 3], dtype=int32), array([0, 0, 0, 0, 1, 1, 1, 1], dtype=int32))
        """
        if self._levels is None:
            raise UsageError(
                "the partition has one level; make it with levels=(parts, ranks)",
                code="bad-partition",
            )
        table = make_table((self.elements,), np.int32, self._list_near())
        with _core.Reservation("partition", self._held):
            for low, high, slab in read_slabs(self.table, self._count_rows()):
                table[low:high] = slab // self._levels[1]
        return Partition(get_value(table), self._levels[0], method=self._method)

    # Saving and opening

    def save(self, folder: str | os.PathLike[str]) -> None:
        """
        Save the partition in a folder: ``part.npy``, then ``partition.json``.

        Parameters
        ----------
        folder
            Folder, created if needed. A partition in it is replaced.

        Raises
        ------
        StorageError
            The folder cannot be written to.

        Notes
        -----
        Not collective: one rank saves it. The files are durable when the call returns.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.Partition.blocks(7, 3).save("parts")
        >>> outcore.unstructured.Partition.open("parts").counts
        array([2, 3, 2])
        """
        path = make_path(folder, "part")
        forget_manifest(folder, _MANIFEST)
        with (
            _core.Reservation("partition", self._held),
            contextlib.closing(make_table((self.elements,), np.int32, path=path)) as target,
        ):
            for low, high, slab in read_slabs(self.table, self._count_rows()):
                target[low:high] = slab.astype(np.int32, copy=False)
            target.flush()
        self.describe_in(folder)

    def describe_in(self, folder: str | os.PathLike[str]) -> None:
        """Write the manifest of a saved partition, after its parts."""
        _write_manifest(folder, self.elements, self._parts, self._method, self._levels)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """
        Open a partition saved by `save` or ``partition(..., out=folder)``.

        Parameters
        ----------
        folder
            Folder of the partition.

        Returns
        -------
        Partition
            Partition in memory if `part` fits an eighth of the memory budget, otherwise on disk.

        Raises
        ------
        NotFoundError
            The folder contains no complete partition.
        FormatError
            The saved partition is inconsistent, or from a later version.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.Partition.blocks(4, 2).save("halves")
        >>> outcore.unstructured.Partition.open("halves")
        <Partition: 4 elements in 2 parts, blocks>
        """
        document, judge = read_manifest(folder, _MANIFEST, _KIND)
        elements = judge.integer(document.get("elements"), "elements")
        parts = judge.integer(document.get("parts"), "parts", 1, _MOST)
        levels = document.get("levels", "missing")
        if levels is not None:
            levels = judge.pair(levels, "levels")
            if levels[0] * levels[1] != parts:
                raise judge.bad(f"levels {levels} do not make {parts} parts")
        method = judge.text(document.get("method"), "method")
        table = open_table(folder, "part", (elements,))
        return cls(get_value(table), parts, method=method, levels=levels)

    def close(self) -> None:
        """
        Close the file, if there is one, and delete it if it is temporary. Closing twice does nothing.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.Partition.blocks(4, 2).close()
        """
        self.table.close()

    def __repr__(self) -> str:
        levels = "" if self._levels is None else f", levels {self._levels}"
        elements, parts = format_count(self.elements, "element"), format_count(self._parts, "part")
        return f"<Partition: {elements} in {parts}, {self._method}{levels}>"

    @property
    def _each(self) -> int:
        """Bytes per element in a pass."""
        return 4 * int(self.table.dtype.itemsize) + 24

    def _count_rows(self) -> int:
        return count_rows(get_room_bytes(), self._each, "parts")

    @property
    def _held(self) -> int:
        """Bytes that a pass uses."""
        return min(get_room_bytes(), self._each * self.elements)

    def _list_near(self) -> list[str]:
        return [self.table.path] if isinstance(self.table, DiskArray) else []


@collective
def partition(
    coordinates: Source | int,
    parts: int,
    *,
    method: PartitionMethod = "rcb",
    weights: Source | None = None,
    edges: Source | None = None,
    levels: tuple[int, int] | None = None,
    out: str | os.PathLike[str] | None = None,
    comm: outcore.mpi.Communicator | outcore.mpi.Transport | None = None,
) -> Partition:
    """
    Divide the elements of an unstructured problem into parts of equal weight.

    Collective if `comm` is given.

    Parameters
    ----------
    coordinates
        Coordinates of each element: real numbers of shape (n, d), or (n,) on a line, as a path, a
        `DiskArray` or an array in memory. They may be larger than memory. ``method="metis"`` uses only
        `n`, which may be given instead.
    parts
        Number of parts. If it exceeds the number of elements, some parts are empty.
    method
        ``"rcb"`` (recursive coordinate bisection) cuts a set across the longest side of its bounding
        box, in proportion to the number of parts of each half. ``"hilbert"`` cuts the curve through all
        points into `parts` pieces. ``"metis"`` cuts the graph of `edges` with METIS so that few of them
        are cut, in memory.
    weights
        Work of each element: shape (n,), finite, at least 0, not all 0. Default: 1 for all.
    edges
        Edges for METIS: integers of shape (m, k); the elements of a row are neighbours.
    levels
        ``(k, ranks)`` for a hierarchical partition: `k` parts that fit in the memory of all ranks
        together, each divided into one part for each rank. ``k * ranks`` must equal `parts`.
    out
        Folder in which the partition is saved, as by `Partition.save`. By default it is in memory if 4
        bytes for each element fit an eighth of the memory budget, otherwise a temporary array on disk.
    comm
        Communicator of mpi4py, or a transport, whose ranks share the work; each rank opens the result.
        With several ranks, `out` is required and must be a folder that all ranks see.

    Returns
    -------
    Partition
        Partition with one int32 for each element.

    Raises
    ------
    UsageError
        ``bad-partition``, ``bad-shape``, ``bad-dtype``, ``shape-mismatch``, ``missing-argument``;
        ``bad-coordinates`` and ``bad-weights`` name the element.
    SectionError
        ``index-out-of-bounds``: an edge names an element that does not exist; the message names the
        edge.
    UnsupportedError
        ``needs-pymetis``: the package is not installed.
    BudgetError
        A graph for METIS, or the counters of all parts, do not fit half of the memory budget.
    CollectiveError
        With `comm`, on all ranks: a rank failed, or made a different call.

    Notes
    -----
    Equal arguments give equal partitions, on any rank, on any number of ranks and within any budget.
    With `comm`, each rank reads its share of the coordinates, and counters are summed. As soon as there
    are as many sets as ranks, each rank gets whole sets through temporary files in ``OUTCORE_SCRATCH``
    or next to `out`, as large as coordinates and weights. METIS runs on one rank while the others wait.

    Without weights, sizes differ by at most one. With weights, each cut lies where the middle of an
    element's weight passes the target sum, so a cut is off by at most half an element. Ties go by index.
    Weights that are not integers are rounded to multiples of the largest weight divided by 2^60 / n.

    The call uses half of the memory budget. One pass checks that coordinates are finite, and measures
    the bounding box. Coordinates that fit in memory are then partitioned in one more pass; otherwise
    bisection needs about four passes for each level whose sets do not fit, and the curve three or four
    in total. Nothing is sorted on disk.

    References
    ----------
    PASSION report, section 4.4.1: recursive coordinate bisection, N-partitioning and hierarchical
    partitioning. Berger, Bokhari (1987). Skilling (2004). Karypis, Kumar (1998).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> corners = np.array([[0, 0], [5, 0], [0, 1], [5, 1]])
    >>> p = outcore.unstructured.partition(corners, 2)
    >>> p.part
    array([0, 1, 0, 1], dtype=int32)
    >>> p.members(1)
    array([1, 3])
    >>> outcore.unstructured.partition(np.arange(6.0), 2, weights=[5, 1, 1, 1, 1, 1]).counts
    array([1, 5])
    """
    out = None if out is None else one_name(out)
    if method not in _METHODS:
        raise UsageError(
            f"method={method!r} is not known{suggest_name(method, _METHODS)} Known: "
            f"{', '.join(_METHODS)}",
            code="bad-partition",
        )
    parts = _check_count(parts, "parts")
    two = _check_levels(levels, parts)
    if method != "metis" and isinstance(coordinates, int):
        raise UsageError(
            f"method={method!r} needs coordinates, not their number; pass an array of shape (n, d)",
            code="missing-argument",
        )
    ranks = Ranks.of(comm, "partition")
    given: dict[str, Source] = {}
    if not isinstance(coordinates, int):
        given["coordinates"] = coordinates
    if weights is not None:
        given["weights"] = weights
    if edges is not None:
        given["edges"] = edges
    with open_inputs(*given.values()) as tables:
        inputs = dict(zip(given, tables, strict=True))
        told = f"partition: {_describe_inputs(inputs)}, {parts} parts, {method}, {two}, {out}"
        near = [] if out is None else [out]
        near += [one.path for one in tables if isinstance(one, DiskArray)]
        with Share(
            ranks, ranks.check_same_call(lambda: told, int(outcore.memory())), near
        ) as share:
            share.needs(out, "a partition")
            if method == "metis":
                if isinstance(coordinates, int):
                    count = coordinates
                else:
                    count = inputs["coordinates"].shape[0] if inputs["coordinates"].ndim else 0
                table = _partition_by_metis(
                    count, inputs, parts, 1 if two is None else two[1], out, share
                )
            else:
                table = _partition_by_place(
                    method, inputs, parts, 1 if two is None else two[1], out, share
                )
            if ranks.size == 1:
                found = Partition(get_value(table), parts, method=method, levels=two)
                if out is not None:
                    table.flush()
                    found.describe_in(out)
                return found
            ranks.run_on_all(table.flush)
            count = int(table.shape[0])
            ranks.run_on_first(lambda: _write_manifest(str(out), count, parts, method, two))
    return ranks.run_on_all(lambda: Partition.open(str(out)))


def _describe_inputs(inputs: Mapping[str, Table]) -> str:
    """Describe the arrays for a comparison between ranks."""
    return ", ".join(f"{name} {describe(one)}" for name, one in inputs.items())


def _partition_by_place(
    method: str,
    inputs: Mapping[str, Table],
    parts: int,
    within: int,
    out: str | os.PathLike[str] | None,
    share: Share,
) -> Table:
    """Partition by coordinates."""
    memory = share.room
    with _core.Reservation("partition", memory):
        points = WeightedPoints(inputs["coordinates"], inputs.get("weights"), memory // 3, share)
        table = _make_table(points.count, out, share)
        if points.count:
            memory -= memory // 3
            if method == "rcb":
                bisection.bisect(points, parts, within, table, memory)
            else:
                curves.cut_along_curve(points, parts, table, memory)
    return table


def _partition_by_metis(
    count: int,
    inputs: Mapping[str, Table],
    parts: int,
    within: int,
    out: str | os.PathLike[str] | None,
    share: Share,
) -> Table:
    """Partition by edges, on the first rank only."""
    graphs.import_pymetis()  # before anything is read
    edges = inputs.get("edges")
    if edges is None:
        raise UsageError(
            "method='metis' needs a graph; pass its edges=, integers of shape (m, k)",
            code="missing-argument",
        )
    check_edges(edges)
    table = _make_table(count, out, share)

    def work() -> None:
        heavy = None
        if "weights" in inputs:
            rows = count_rows(get_room_bytes(), 64, "weights")
            heavy = Weights(inputs["weights"], count, rows, Share.alone())
        table[:] = graphs.partition_by_metis(edges, count, heavy, parts, within)

    share.ranks.run_long_step(lambda: work() if share.ranks.is_first else None)
    return table


def _make_table(elements: int, out: str | os.PathLike[str] | None, share: Share) -> Table:
    if out is None:
        return share.table((elements,), np.int32)
    path = os.path.join(one_name(out), f"part{PLAIN_SUFFIX}")

    def begin() -> None:
        make_path(out, "part")
        forget_manifest(out, _MANIFEST)

    share.ranks.run_on_first(begin)
    return share.table((elements,), np.int32, path)


def _write_manifest(
    folder: str | os.PathLike[str],
    elements: int,
    parts: int,
    method: str,
    levels: tuple[int, int] | None,
) -> None:
    fields = {"elements": elements, "parts": parts, "method": method, "levels": levels}
    _KIND.write(os.path.join(one_name(folder), _MANIFEST), fields)


def _check_count(parts: Any, name: str) -> int:
    whole = hasattr(type(parts), "__index__") and not isinstance(parts, bool)
    if not whole or not 1 <= operator.index(parts) <= _MOST:
        raise UsageError(
            f"{name}={parts!r} is not possible; pass an integer in 1..{_MOST}", code="bad-partition"
        )
    return operator.index(parts)


def _check_levels(levels: Any, parts: int) -> tuple[int, int] | None:
    if levels is None:
        return None
    if not isinstance(levels, Sequence) or len(levels) != 2:
        raise UsageError(
            f"levels={levels!r} is not a pair; pass the number of parts of the first level and of ranks",
            code="bad-partition",
        )
    upper, ranks = _check_count(levels[0], "levels[0]"), _check_count(levels[1], "levels[1]")
    if upper * ranks != parts:
        raise UsageError(
            f"levels={(upper, ranks)} make {upper * ranks} parts, but parts={parts}; both must be equal",
            code="bad-partition",
        )
    return upper, ranks
