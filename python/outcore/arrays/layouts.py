"""
Layouts of new arrays: the query to the planner, and its answer.

Problem: a user who creates an array knows the typical sections, but not which order or chunks suit them
on this disk.
Approach: the format states the supported layouts, and the core the parameters of the disk. The planner
computes the cost of every layout for the typical sections (``crates/plan/src/resident.rs``). The answer
is stored with the alternatives, so that it can be explained. Disk resident arrays are created this way,
and all others with ``chunks="auto"``.

Reference: Nieplocha, Foster, *Disk Resident Arrays*, section 4 (hints of ``DRA_Create``: a typical
request).
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outcore import _core, formats
from outcore.base.report import format_bytes, format_time
from outcore.errors import UsageError
from outcore.formats.defaults import CHUNKED, PLAIN
from outcore.formats.spec import as_dtype, check_order, check_shape, choose_default_chunks

__all__ = [
    "LayoutCandidate",
    "ResidentLayout",
    "Typical",
    "choose",
    "choose_automatic",
    "count_touched",
    "parse_typical",
    "restore_layout",
]

Shape = tuple[int, ...]
#: Typical sections, as a user specifies them.
Typical = Sequence[int | None] | Sequence[Sequence[int | None]] | Mapping[Any, int]

# Layouts to choose among, as the planner takes them: contiguous in C order, in Fortran order, chunks in
# C order, in Fortran order, a file for each chunk. Without a suffix the layout determines the format.
Offer = tuple[bool, bool, bool, bool, bool]
_ALL: Offer = (True, True, True, True, True)


@dataclass(frozen=True)
class LayoutCandidate:
    """
    A layout, and its cost for the typical sections.

    Parameters
    ----------
    order
        ``"C"`` or ``"F"``.
    chunks
        Shape of a chunk; None for a contiguous layout.
    taken
        Requests, bytes and nanoseconds for each typical section, averaged over its positions.
    ns
        Total nanoseconds of all typical sections, weighted by their frequency.
    """

    order: str
    chunks: Shape | None
    taken: tuple[tuple[float, int, int], ...]
    ns: int

    @property
    def name(self) -> str:
        """Layout as text."""
        if self.chunks is None:
            return f"plain {self.order} order"
        return f"chunks {'x'.join(map(str, self.chunks)) or '()'} in {self.order} order"


@dataclass(frozen=True)
class ResidentLayout:
    """
    Layout of an array on disk and the reason for it; `str` is human-readable.

    Parameters
    ----------
    format
        Name of the format.
    order
        ``"C"`` or ``"F"``, of the array or of the elements of a chunk.
    chunks
        Shape of a chunk, or None.
    why
        Reason, in one sentence.
    typical_sections
        Shapes of the typical sections, and the frequency of each.
    candidates
        Compared layouts, the best of each kind; the first one was chosen. Empty if there was no choice.
    latency_ns, rate, figures
        Cost of a request in nanoseconds, bytes per second of the disk, and the source of these
        parameters.
    largest_chunk
        Maximum size of a chunk in bytes: one efficient request, within the memory budget.
    """

    format: str
    order: str
    chunks: Shape | None
    why: str
    typical_sections: tuple[tuple[Shape, int], ...] = ()
    candidates: tuple[LayoutCandidate, ...] = ()
    latency_ns: int = 0
    rate: int = 0
    figures: str = ""
    largest_chunk: int = 0

    def __str__(self) -> str:
        lies = LayoutCandidate(self.order, self.chunks, (), 0).name
        lines = [f"{self.format}, {lies}: {self.why}"]
        for number, (shape, times) in enumerate(self.typical_sections):
            often = f", {times} times" if times > 1 else ""
            lines.append(f"  typical section {'x'.join(map(str, shape)) or '()'}{often}:")
            for one in self.candidates:
                requests, nbytes, ns = one.taken[number]
                lines.append(
                    f"    {one.name}: {requests:,.1f} requests, {format_bytes(nbytes)}, "
                    f"{format_time(ns)}"
                )
        if self.candidates:
            lines.append(
                f"  disk ({self.figures}): {self.latency_ns / 1e3:.3g} us for a request, "
                f"{format_bytes(self.rate)}/s; chunks of at most {format_bytes(self.largest_chunk)}"
            )
        return "\n".join(lines)


def parse_typical(typical: Typical | None, shape: Shape) -> tuple[tuple[Shape, int], ...]:
    """
    Return the typical sections as shapes with frequencies.

    `typical` is one shape; a sequence of shapes; or a mapping of shapes to frequencies. None or -1
    for an axis means the whole axis.

    Examples
    --------
    >>> parse_typical((64, None), (1000, 2000))
    (((64, 2000), 1),)
    >>> parse_typical({(64, -1): 1, (-1, 64): 20}, (1000, 2000))
    (((64, 2000), 1), ((1000, 64), 20))
    """
    if typical is None:
        return ()
    if isinstance(typical, Mapping):
        found = [
            (_parse_shape(one, shape), _parse_frequency(times)) for one, times in typical.items()
        ]
    elif typical and all(isinstance(one, Sequence) for one in typical):
        found = [(_parse_shape(one, shape), 1) for one in typical]
    else:
        found = [(_parse_shape(typical, shape), 1)]
    return tuple(found) if all(shape) else ()


def _parse_shape(one: Any, shape: Shape) -> Shape:
    try:
        lengths = [-1 if n is None else operator.index(n) for n in one]
    except TypeError:
        lengths = []
    if len(lengths) != len(shape) or any(n == 0 or n < -1 for n in lengths):
        raise UsageError(
            f"typical_sections={one!r} does not match an array of shape {shape}; pass a length of at "
            f"least 1 for each of its {len(shape)} axes (None or -1: all of it), a sequence of such "
            "shapes, or a mapping of them to frequencies",
            code="bad-typical",
        )
    return tuple(n if m == -1 else min(m, n) for m, n in zip(lengths, shape, strict=True))


def _parse_frequency(times: Any) -> int:
    try:
        found = operator.index(times)
    except TypeError:
        found = 0
    if found < 1:
        raise UsageError(
            f"typical_sections= has the frequency {times!r}; pass an integer of at least 1",
            code="bad-typical",
        )
    return min(found, 2**31)


def choose(
    path: str,
    folder: str,
    shape: Shape,
    itemsize: int,
    typical: tuple[tuple[Shape, int], ...],
    options: Mapping[str, Any],
    budget: int,
) -> dict[str, Any]:
    """
    Choose a layout for a `path` on the disk of `folder`; return JSON values for `restore_layout`.

    Properties given in `options` (of ``outcore.create``) are not chosen.
    """
    format = options.get("format") or _guess_format(path)
    said: dict[str, Any] = {"format": format, "order": options.get("order", "C"), "chunks": None}
    offer = _ALL if format is None else _get_offer(format)
    need = {"shards", "maxshape", "unlimited"} & set(options)
    if need or options.get("compression") not in (None, "none", "auto"):
        if format is None:
            said["format"], offer = CHUNKED, _get_offer(CHUNKED)
        offer = (False, False, *offer[2:])
    asked = options.get("chunks") is not None or options.get("order") is not None
    if asked or not typical or not (any(offer)):
        why = "asked for" if asked else "no section was said to be typical (typical_sections=)"
        if format is None:
            said["format"] = (
                CHUNKED if options.get("chunks") is not None else said["format"] or PLAIN
            )
        return {**said, "why": why}
    return _evaluate(said, offer, folder, shape, itemsize, typical, budget)


def _get_offer(format: str) -> Offer:
    """Return the layouts that new arrays of a format can have."""
    found = formats.get_format(format)
    plain, chunks = found.plain_orders, found.chunk_orders
    return "C" in plain, "F" in plain, "C" in chunks, "F" in chunks, found.has_chunk_files


def _evaluate(
    said: dict[str, Any],
    offer: Offer,
    folder: str,
    shape: Shape,
    itemsize: int,
    typical: tuple[tuple[Shape, int], ...],
    budget: int,
) -> dict[str, Any]:
    layouts, (latency, rate, figures, largest) = _core.resident_layouts(
        folder or ".",
        list(shape),
        max(itemsize, 1),
        [(list(one), times) for one, times in typical],
        offer,
        budget,
    )
    order, chunks, _, ns = layouts[0]
    format = said["format"] or (PLAIN if chunks is None else CHUNKED)
    others = [f"{_format_name(one)} {one[3] / max(ns, 1):.2f}" for one in layouts[1:]]
    why = "costs least for the typical sections" if others else "all that the format offers"
    if others and any(one[3] < ns for one in layouts[1:]):
        why = "a plain file costs about as little as what costs least"
    why += f" (times as much: {', '.join(others)})" if others else ""
    return {
        **said,
        "format": format,
        "order": order,
        "chunks": chunks,
        "why": why,
        "typical": [[list(one), times] for one, times in typical],
        "candidates": [
            [o, c, [[r / 1000, b, t] for r, b, t in taken], price] for o, c, taken, price in layouts
        ],
        "latency_ns": latency,
        "rate": rate,
        "figures": figures,
        "largest_chunk": largest,
    }


def _format_name(one: Any) -> str:
    return LayoutCandidate(one[0], None if one[1] is None else tuple(one[1]), (), 0).name


def restore_layout(words: Mapping[str, Any]) -> ResidentLayout:
    """Return the layout that `choose` returned as values."""
    return ResidentLayout(
        words["format"],
        words["order"],
        None if words["chunks"] is None else tuple(words["chunks"]),
        words["why"],
        tuple((tuple(one), times) for one, times in words.get("typical", ())),
        tuple(
            LayoutCandidate(o, None if c is None else tuple(c), tuple(map(tuple, taken)), ns)
            for o, c, taken, ns in words.get("candidates", ())
        ),
        words.get("latency_ns", 0),
        words.get("rate", 0),
        words.get("figures", ""),
        words.get("largest_chunk", 0),
    )


def choose_automatic(
    path: str,
    shape: Any,
    dtype: Any,
    options: Mapping[str, Any],
    typical: Typical | None = None,
) -> ResidentLayout | None:
    """
    Return the layout of lowest cost for ``chunks="auto"``; None for other values.

    The folder of `path` determines the disk, `options` of `outcore.create` the order (by default
    C). Without `typical`, sections are planes across each axis. The cost of decoding is not
    included: without `typical`, an array with codecs gets the default chunks of the formats
    (`choose_default_chunks`).

    Raise `UsageError`: ``bad-typical`` if the sections do not fit the array, or are given without
    ``chunks="auto"``; ``bad-chunks`` if shards are given, which would have to be chosen as well.
    """
    chunks = options.get("chunks")
    if not (isinstance(chunks, str) and chunks == "auto"):
        if typical is not None:
            raise UsageError(
                "typical_sections= is used only with chunks='auto'; pass that as well, or omit it",
                code="bad-typical",
            )
        return None
    if options.get("shards") is not None:
        raise UsageError(
            f"chunks='auto' cannot be combined with shards={options['shards']!r}, which are "
            "multiples of chunks; pass both, or omit shards=",
            code="bad-chunks",
        )
    kind = as_dtype(dtype, path)
    full, item = check_shape(shape, kind.base.itemsize, path, stored=False), kind.base.itemsize
    full += kind.shape
    outer = formats.split_path(path)[0]
    format = formats.choose_format_name(path, options.get("format"))
    order = check_order(options.get("order") or "C")
    offer = _get_offer(format)
    turned = order == "F"
    plain, chunked = offer[turned], offer[2 + turned]
    compressed = options.get("compression") not in (None, (), "none", "auto")
    need = compressed or any(options.get(name) for name in _NEED_CHUNKS)
    plain = plain and not (chunked and need)
    sections = parse_typical(typical, full)
    if not chunked or not all(full):
        why = "it has no elements" if chunked else f"{format} files have no chunks in this order"
        return ResidentLayout(format, order, None, why)
    if not sections and compressed:
        why = "a chunk that passes a codec is read whole, so that about a cube suits all directions"
        return ResidentLayout(format, order, choose_default_chunks(full, item), why)
    sections = sections or parse_typical(_list_planes(full), full)
    # Fortran order is C order of the array with its axes reversed.
    turn = -1 if turned else 1
    found = _evaluate(
        {"format": format, "order": order, "chunks": None},
        (plain, False, True, False, offer[4]),
        os.path.dirname(os.path.abspath(outer)),
        full[::turn],
        item,
        tuple((one[::turn], times) for one, times in sections),
        _core.memory_limit(),
    )
    made = restore_layout(found)
    return replace(
        made,
        order=order,
        chunks=made.chunks and made.chunks[::turn],
        typical_sections=sections,
        candidates=tuple(
            replace(one, order=order, chunks=one.chunks and one.chunks[::turn])
            for one in made.candidates
        ),
    )


# Options that require chunks, whatever their cost.
_NEED_CHUNKS = ("maxshape", "resizable", "unlimited")


def _list_planes(shape: Shape) -> Sequence[Sequence[int]]:
    """Return the whole of a vector; for other arrays, sections with one index along each axis."""
    if len(shape) < 2:
        return [shape]
    return [tuple(1 if d == axis else n for d, n in enumerate(shape)) for axis in range(len(shape))]


def _guess_format(path: str) -> str | None:
    """Return the format of a name by its suffix; None without a suffix."""
    outer, _ = formats.split_path(path)
    if "." not in outer.rstrip("/").rpartition("/")[2].lstrip("."):
        return None
    return formats.choose_format_name(path)


def count_touched(section: Sequence[tuple[int, int, int]], shape: Shape, chunks: Shape) -> int:
    """
    Return the number of elements in all chunks that a section touches, within the array.

    Examples
    --------
    >>> count_touched([(0, 4, 1), (2, 1, 1)], (6, 6), (4, 4)), count_touched([(0, 2, 3)], (6,), (2,))
    (16, 4)
    """
    return math.prod(
        _count_along(one, length, edge)
        for one, length, edge in zip(section, shape, chunks, strict=True)
    )


def _count_along(one: tuple[int, int, int], length: int, edge: int) -> int:
    start, count, step = one
    if count == 0:
        return 0
    first, last = start // edge, (start + (count - 1) * step) // edge
    # With longer steps each index is in a separate chunk.
    number = last - first + 1 if step <= edge else count
    return number * edge - max((last + 1) * edge - length, 0)
