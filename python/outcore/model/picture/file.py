"""
Draw the file as a strip: the independent accesses of each rank, and the owners in two-phase.

A strip is divided into bins. A partly filled bin is drawn lighter, in four steps, so that "a little
everywhere" and "all of this" look different for any number of pieces.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outcore.base.report import format_bytes
from outcore.base.report.svg import Svg, Value, format_boxes
from outcore.model.picture.geometry import FilePieces, PixelScale
from outcore.model.picture.scene import SHARED, Scene, choose_colour, choose_ink, format_count
from outcore.ranks.collective.dry_run import DiskTransfers, Ranges
from outcore.ranks.transport.checks import format_ranges

__all__ = ["draw_file"]

_PIECES = 400_000
_CLOSE = 24  # pieces in the close-up
_STEPS = (0.3, 0.5, 0.75, 1.0)


def draw_file(svg: Svg, scene: Scene, x: float, y: float, width: float) -> float:
    """Draw the panel; return its lower end."""
    wide = width - 165  # space for numbers at the right
    lanes = _group_ranks(scene)
    most = max(_PIECES // len(lanes), 100)
    wanted = [scene.file.pieces(scene.sections[ranks[0]], most) for ranks in lanes]
    low = min(p.starts[0] for p in wanted)
    high = max(p.starts[-1] + p.lengths[-1] for p in wanted)
    length = scene.file.length
    if high - low > 0.5 * length:
        low, high = 0.0, float(length)
    window = PixelScale(low, high, x, wide)
    total = scene.alone_all
    _draw_head(
        svg,
        x,
        y,
        "Each rank independently",
        f"{format_count(total.requests, 'request')}, {format_bytes(total.nbytes)}",
    )
    y = _draw_ends(svg, scene, window, y + 20)
    tall = 22 if len(lanes) <= 8 else 12 if len(lanes) <= 16 else 7 if len(lanes) <= 32 else 4
    if tall < 12:
        svg.text(x - 6, y + tall * len(lanes) / 2, "ranks", 11, text_anchor="end", fill="#333")
    for ranks, pieces in zip(lanes, wanted, strict=True):
        svg.rect(x, y, wide, tall - 2, fill="#f4f4f4")
        fill = choose_colour(ranks[0]) if len(ranks) == 1 else SHARED
        disk = sum((scene.alone[rank] for rank in ranks), DiskTransfers())
        words: dict[str, Value] = {
            "data_ranks": format_ranges(ranks),
            "data_requests": disk.requests,
            "data_bytes": disk.nbytes,
        }
        svg.begin(kind="alone", **words)
        _draw_strip(svg, pieces, window, y, tall - 2, fill)
        svg.end()
        if tall >= 12:
            foot = y + (tall - 2) / 2 + 4
            svg.text(
                x - 6, foot, format_ranges(ranks), min(12, tall - 2), text_anchor="end", fill="#333"
            )
            one = scene.alone[ranks[0]]
            times = f"{len(ranks)} times " if len(ranks) > 1 else ""
            said = f"{times}{format_count(one.requests, 'request')}, {format_bytes(one.nbytes)}"
            svg.text(x + wide + 8, foot, said, 11 if tall > 12 else 10, fill="#333")
        y += tall
    y = _draw_close_up(svg, scene, lanes, window, y + 2)
    return _draw_two_phase(svg, scene, window, y + 34)


def _group_ranks(scene: Scene) -> list[list[int]]:
    """Return the ranks with non-empty sections, grouped by equal sections."""
    same: dict[tuple[tuple[int, int, int], ...], list[int]] = {}
    for rank, section in enumerate(scene.sections):
        if scene.seen.count_wanted_bytes(rank):
            same.setdefault(tuple(section), []).append(rank)
    return list(same.values())


def _draw_head(svg: Svg, x: float, y: float, title: str, total: str) -> None:
    svg.text(x, y, title, 14, font_weight="bold")
    svg.text(x + 9.2 * len(title) + 8, y, total, 14, fill="#333")


def _draw_ends(svg: Svg, scene: Scene, window: PixelScale, y: float) -> float:
    """Label the range of the file that a strip shows."""
    item = scene.file.item
    low, high = round(window.low) * item, round(window.high) * item
    if low == 0 and high == scene.file.length * item:
        first, last = "start of the file", f"end, {format_bytes(high)}"
    else:
        first, last = (
            f"at {format_bytes(low)} of the file",
            f"at {format_bytes(high)} of {format_bytes(scene.file.length * item)}",
        )
    if scene.file.chunked:
        first = "first chunk" if low == 0 else first.replace("of the file", "of the chunks")
        last += " of chunks"
    svg.text(window.at, y, first, 11, fill="#777")
    svg.text(window.at + window.size, y, last, 11, fill="#777", text_anchor="end")
    return y + 6


def _draw_strip(
    svg: Svg, pieces: FilePieces, window: PixelScale, y: float, tall: float, fill: str
) -> None:
    """Draw pieces, with one path for each step of density."""
    bins = int(window.size)
    edges = np.linspace(window.low, window.high, bins + 1)
    _paint(svg, pieces.cover(edges), window.at, y, tall, fill)


def _paint(
    svg: Svg, cover: NDArray[np.float64], x: float, y: float, tall: float, fill: str
) -> None:
    # Any nonempty bin is visible, in the lightest step.
    steps = np.digitize(cover, (0.4, 0.625, 0.9)) + 1
    steps[cover <= 1e-12] = 0
    places = np.flatnonzero(np.diff(steps, prepend=-1))
    ends = np.append(places[1:], len(steps))
    for step, opacity in enumerate(_STEPS, start=1):
        runs = [(a, b) for a, b in zip(places, ends, strict=True) if steps[a] == step]
        if runs:
            d = format_boxes((x + float(a), y, float(b - a), tall) for a, b in runs)
            more: dict[str, Value] = {} if opacity == 1 else {"fill_opacity": opacity}
            svg.path(d, fill=fill, **more)


def _draw_close_up(
    svg: Svg, scene: Scene, lanes: list[list[int]], window: PixelScale, y: float
) -> float:
    """Draw the order of pieces of different ranks if they are too small to be visible above."""
    file = scene.file
    wanted = [
        file.pieces(file.first(scene.sections[ranks[0]], _CLOSE + 1), 10_000) for ranks in lanes
    ]
    size = max(float(p.lengths[0]) for p in wanted)
    if size * window.scale >= 4 or scene.pieces <= len(lanes):
        return y
    starts = np.unique(np.concatenate([p.starts for p in wanted]))
    first = float(starts[0])
    span = float(starts[min(_CLOSE, len(starts) - 1)]) - first
    if span <= 0:
        return y
    close = PixelScale(first, first + span, window.at, window.size)
    x0, x1 = window(first), window(first + span)
    d = f"M{x0:.1f} {y:.1f}L{close.at:.1f} {y + 18:.1f}H{close.at + close.size:.1f}L{x1:.1f} {y:.1f}z"
    svg.path(d, fill="#888", fill_opacity=0.15)
    y += 18
    pairs = [(ranks, p) for ranks, p in zip(lanes, wanted, strict=True) if p.starts[0] < close.high]
    flat = len(pairs) == 1 or scene.plan.overlap() is False
    tall = 20.0 if flat else max(60.0 / len(pairs), 3.0)
    svg.begin(kind="zoom")
    svg.rect(close.at, y, close.size, 20 if flat else tall * len(pairs), fill="#f4f4f4")
    for lane, (ranks, pieces) in enumerate(pairs):
        inside = (pieces.starts < close.high) & (pieces.starts + pieces.lengths > close.low)
        top = y if flat else y + lane * tall
        places = []
        for a, n in zip(pieces.starts[inside], pieces.lengths[inside], strict=True):
            left, right = max(close(a), close.at), min(close(a + n), close.at + close.size)
            places.append((left, top, right - left, tall))
        if not places:
            continue
        fill = choose_colour(ranks[0]) if len(ranks) == 1 else SHARED
        edge: dict[str, Value] = (
            {"stroke": "#fff", "stroke_width": 0.5} if places[0][2] >= 6 else {}
        )
        svg.path(format_boxes(places), fill=fill, **edge)
        for left, _, wide, _ in places:
            text = format_ranges(ranks)
            if wide >= 7 * len(text) + 4 and tall >= 12:
                more: dict[str, Value] = {"fill": choose_ink(ranks[0]), "text_anchor": "middle"}
                svg.text(left + wide / 2, top + tall / 2 + 4, text, 10, **more)
    svg.end()
    x = close.at + close.size + 8
    svg.text(x, y + 8, f"close-up: {format_bytes(int(span) * file.item)}", 11, fill="#333")
    svg.text(x, y + 21, f"pieces of {format_bytes(round(size) * file.item)}", 11, fill="#333")
    return y + (20 if flat else max(tall * len(pairs), 22))


def _draw_two_phase(svg: Svg, scene: Scene, window: PixelScale, y: float) -> float:
    x, wide = window.at, window.size
    disk, exact = scene.together
    about = "" if exact else "about "
    asked = format_count(disk.requests, "request")
    total = f"{about}{asked}, {format_bytes(disk.nbytes)}; each part has one owner"
    _draw_head(svg, x, y, "Together, in two phases", total)
    y = _draw_ends(svg, scene, window, y + 20)
    svg.rect(x, y, wide, 34, fill="#f4f4f4")
    bins = int(wide)
    edges = np.linspace(window.low, window.high, bins + 1)
    tiles: dict[int, list[Ranges]] = {owner: [] for owner in scene.owners}
    sums = {owner: [0, 0] for owner in scene.owners}
    owned = scene.owned
    for owner, section, cost in owned:
        tiles[owner].append(section)
        sums[owner][0] += cost.requests
        sums[owner][1] += cost.nbytes
    most = max(_PIECES // max(len(owned), 1), 50)
    marks: list[float] = []
    names: list[tuple[float, float, int, float]] = []
    for owner, sections in tiles.items():
        cover = np.zeros(bins)
        ends: list[tuple[float, float]] = []
        for section in sections:
            pieces = scene.file.pieces(section, most)
            cover += pieces.cover(edges)
            ends.append((window(pieces.starts[0]), window(pieces.starts[-1] + pieces.lengths[-1])))
        requests, nbytes = sums[owner]
        svg.begin(kind="domain", data_owner=owner, data_requests=requests, data_bytes=nbytes)
        _paint(svg, cover, x, y, 34, choose_colour(owner))
        svg.end()
        marks += [a for a, b in ends[1:] if b - a >= 4]
        left, right = min(a for a, _ in ends), max(b for _, b in ends)
        shade = float(cover[cover > 0].mean()) if (cover > 0).any() else 0.0
        names.append((left, right, owner, shade))
    for mark in marks:
        svg.line(mark, y + 24, mark, y + 34, stroke="#fff", stroke_width=1.5)
    for left, right, owner, shade in names:
        # Omit the number if parts of several owners alternate.
        apart = all(b <= left + 2 or a >= right - 2 for a, b, other, _ in names if other != owner)
        if apart and right - left >= 18:
            fill = choose_ink(owner) if shade > 0.6 else "#000"
            svg.text((left + right) / 2, y + 19, str(owner), 13, fill=fill, text_anchor="middle")
    y += 48
    said = "Numbers: owners. Blank: not accessed." + (" Ticks: ends of rounds." if marks else "")
    svg.text(x, y, said, 11, fill="#777")
    return y
