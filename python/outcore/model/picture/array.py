"""
Draw the array, and the section of each rank.

Two axes are drawn. If all sections are in a corner, only the corner is drawn, with a small picture of
its position. Steps too fine to be visible are thinned out, and a close-up shows single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from outcore.base.report.svg import Svg, Value, format_boxes
from outcore.model.picture.geometry import (
    IndexRange,
    PixelScale,
    find_hull,
    find_period,
    make_intervals,
)
from outcore.model.picture.scene import SHARED, Scene, choose_colour, choose_ink
from outcore.ranks.transport.checks import format_ranges

__all__ = ["choose_axes", "draw_array"]

_CELLS = 12  # of the close-up, along an axis


def choose_axes(sections: Sequence[Sequence[IndexRange]], order: list[int]) -> list[int]:
    """
    Return the axes to draw, ascending: those along which the ranks differ most, then the slowest.

    Examples
    --------
    >>> parts = [(0, 9, 1), (0, 1, 1), (0, 4, 1)], [(0, 9, 1), (1, 1, 1), (4, 4, 1)]
    >>> choose_axes(parts, [0, 1, 2])
    [1, 2]
    """
    ndim = len(order)

    def rank(axis: int) -> tuple[int, int, int]:
        ranges = [section[axis] for section in sections]
        return -len(set(ranges)), -int(find_period(ranges) > 1), order.index(axis)

    return sorted(sorted(range(ndim), key=rank)[:2])


@dataclass
class _View:
    """Both axes on the page; for a 1-d array the vertical one is a dummy with one index."""

    vertical: PixelScale
    horizontal: PixelScale
    axes: list[int]

    def ranges(self, section: list[IndexRange]) -> tuple[IndexRange, IndexRange]:
        pair = [section[axis] for axis in self.axes]
        return (pair[0], pair[1]) if len(pair) == 2 else ((0, 1, 1), pair[0])


def draw_array(svg: Svg, scene: Scene, x: float, y: float, width: float) -> float:
    """Draw the panel; return its lower end."""
    axes = choose_axes(scene.sections, scene.file.order)
    svg.text(x, y, "The array: the section of each rank", 14, font_weight="bold")
    y += 18
    y = _draw_remark(svg, scene, axes, x, y)
    shape = [scene.shape[axis] for axis in axes]
    spans = [_choose_span(scene, axis) for axis in axes]
    if len(axes) == 1:
        shape, spans = [1, *shape], [(0, 1), *spans]
    part = any(b - a < n for (a, b), n in zip(spans, shape, strict=True))
    margin = 46
    wide = width - margin - 10
    ratio = (spans[0][1] - spans[0][0]) / max(spans[1][1] - spans[1][0], 1)
    tall = 40.0 if len(axes) == 1 else wide * min(max(ratio, 0.35), 0.85)
    view = _View(PixelScale(*spans[0], y + 16, tall), PixelScale(*spans[1], x + margin, wide), axes)
    _draw_frame(svg, scene, view)
    merged = _draw_sections(svg, scene, view)
    _draw_owners(svg, scene, view)
    low = y + 16 + tall + 24
    low = _draw_legend(svg, scene, x + margin, low, wide)
    beside = x + margin
    bottom = low
    if part:
        bottom = max(bottom, _draw_locator(svg, view, shape, spans, beside, low + 14))
        beside += 150
    if merged:
        bottom = max(bottom, _draw_close_up(svg, scene, view, beside, low + 14, x + width - beside))
    return bottom


def _draw_remark(svg: Svg, scene: Scene, axes: list[int], x: float, y: float) -> float:
    order = scene.file.order
    lines = []
    if len(scene.shape) == 1:
        said = "chunk after chunk" if scene.file.chunked else "element after element"
    elif scene.file.chunked:
        said = "chunk after chunk (thin lines)"
    else:
        said = (
            "row by row"
            if order[-1] == axes[-1]
            else "column by column"
            if order[-1] == axes[0]
            else f"along axis {order[-1]} first"
        )
    lines.append(f"In the file: {said}.")
    if len(scene.shape) > 2:
        lines[0] += f" Axes {axes[0]} and {axes[1]} of {len(scene.shape)} are drawn."
    for line in lines:
        svg.text(x, y, line, 11, fill="#777")
        y += 15
    return y - 8


def _choose_span(scene: Scene, axis: int) -> tuple[int, int]:
    """Return the range of indices to draw: all, or those around the sections."""
    length = scene.shape[axis]
    low, high = find_hull(
        [section[axis] for section in scene.sections if _is_not_empty(section)]
    ) or (0, length)
    if high - low > 0.5 * length:
        return 0, length
    margin = max((high - low) // 16, 1)
    return max(low - margin, 0), min(high + margin, length)


def _is_not_empty(section: list[IndexRange]) -> bool:
    return all(n for _, n, _ in section)


def _draw_frame(svg: Svg, scene: Scene, view: _View) -> None:
    vertical, horizontal = view.vertical, view.horizontal
    x, y, w, h = horizontal.at, vertical.at, horizontal.size, vertical.size
    svg.rect(x, y, w, h, fill="#f4f4f4")
    for axis, window in zip(view.axes[::-1], (horizontal, vertical), strict=False):
        grain = scene.file.grain[axis]
        if grain > 1 and grain * window.scale >= 4:
            first = -(-int(window.low) // grain) * grain
            for index in range(first, int(window.high) + 1, grain):
                at = window(index)
                ends = (at, y, at, y + h) if window is horizontal else (x, at, x + w, at)
                svg.line(*ends, stroke="#ccc", stroke_width=0.5, kind="chunk")
    svg.rect(x, y, w, h, fill="none", stroke="#444")
    svg.text(x, y - 4, str(int(horizontal.low)), 10, fill="#777")
    svg.text(x + w, y - 4, str(int(horizontal.high)), 10, fill="#777", text_anchor="end")
    axis = view.axes[-1]
    svg.text(x + w / 2, y - 4, f"axis {axis}", 10, fill="#777", text_anchor="middle")
    if len(view.axes) == 2:
        svg.text(x - 5, y + 9, str(int(vertical.low)), 10, fill="#777", text_anchor="end")
        svg.text(x - 5, y + h, str(int(vertical.high)), 10, fill="#777", text_anchor="end")
        svg.text(x - 5, y + h / 2, f"axis {view.axes[0]}", 10, fill="#777", text_anchor="end")


def _count_merged(ranges: list[IndexRange], window: PixelScale, most: int) -> int:
    """Return the number of periods to draw as one, so that single elements are visible."""
    step = find_period(ranges)
    if step == 1:
        return 1
    span = window.high - window.low
    merged = 1
    while merged * window.scale < 2.5 or span / (merged * step) > most:
        merged *= 2
    return merged


def _draw_sections(svg: Svg, scene: Scene, view: _View) -> bool:
    """Draw the sections of the ranks; return whether a close-up is needed."""
    same: dict[tuple[IndexRange, IndexRange], list[int]] = {}
    for rank, section in enumerate(scene.sections):
        if _is_not_empty(section):
            same.setdefault(view.ranges(section), []).append(rank)
    down, across = [[pair[k] for pair in same] for k in (0, 1)]
    both = find_period(down) > 1 and find_period(across) > 1
    merged = (
        _count_merged(down, view.vertical, 10 if both else 24),
        _count_merged(across, view.horizontal, 10 if both else 24),
    )
    lows = [(find_hull(ranges) or (0, 0))[0] for ranges in (down, across)]
    overlap = len(same) > 1 and scene.plan.overlap() is not False
    labels: list[tuple[float, float]] = []
    names = []
    for pair, ranks in same.items():
        places = []
        rows = make_intervals(pair[0], lows[0] // find_period(down) * find_period(down), merged[0])
        columns = make_intervals(
            pair[1], lows[1] // find_period(across) * find_period(across), merged[1]
        )
        for top, bottom in rows:
            for left, right in columns:
                a, b = view.horizontal(left), view.vertical(top)
                w, h = view.horizontal(right) - a, view.vertical(bottom) - b
                places.append((a, b, max(w, 0.6), max(h, 0.6)))
        fill = choose_colour(ranks[0]) if len(ranks) == 1 else SHARED
        edge: dict[str, Value] = {"fill_opacity": 0.3, "stroke": fill, "stroke_width": 1.2}
        more = edge if overlap else {}
        svg.path(
            format_boxes(places), fill=fill, kind="section", data_ranks=format_ranges(ranks), **more
        )
        wide, tall = places[0][2], places[0][3]
        if len(places) == 1 and (len(same) > 1 or len(ranks) > 1):
            at = _place(places[0], overlap, labels)
            text = format_ranges(ranks) if len(ranks) > 1 else str(ranks[0])
            if at is not None and wide >= 7 * len(text) + 2 and tall >= 12:
                labels.append(at)
                names.append(
                    (at, text, "#000" if overlap or len(ranks) > 1 else choose_ink(ranks[0]))
                )
    for (a, b), text, fill in names:
        svg.text(a, b, text, 12, fill=fill, text_anchor="middle")
    return max(merged) > 1 or any(
        find_period(ranges) > 1 and window.scale < 3
        for ranges, window in ((down, view.vertical), (across, view.horizontal))
    )


def _place(
    box: tuple[float, float, float, float], overlap: bool, taken: list[tuple[float, float]]
) -> tuple[float, float] | None:
    """Return a position for a number; for overlapping sections, a corner that others leave free."""
    x, y, w, h = box
    at = (x + 10, y + 13) if overlap else (x + w / 2, y + h / 2 + 4)
    free = all(abs(at[0] - a) > 14 or abs(at[1] - b) > 11 for a, b in taken)
    return at if free else None


def _draw_owners(svg: Svg, scene: Scene, view: _View) -> None:
    """Draw the owners of rows next to the array (of columns, if these vary slowest)."""
    slow = next((axis for axis in scene.file.order if axis in view.axes), None)
    if slow is None or len(view.axes) < 2 or scene.file.order[0] != slow:
        return
    upright = slow == view.axes[0]
    window = view.vertical if upright else view.horizontal
    spans = []
    for owner in scene.owners:
        found = find_hull([box[slow] for _, box in scene.plan.parts(owner)])
        if found is not None:
            spans.append((owner, *found))
    if any(a[2] > b[1] for a, b in pairwise(spans)):
        return
    other = view.horizontal if upright else view.vertical
    edge = other.at + other.size + 4
    for owner, low, high in spans:
        a, b = window(low), window(high)
        more: dict[str, Value] = {
            "fill": choose_colour(owner),
            "kind": "owner",
            "data_owner": owner,
        }
        if upright:
            svg.rect(edge, a, 8, b - a, **more)
        else:
            svg.rect(a, edge, b - a, 8, **more)
    if upright:
        foot = view.vertical.at + view.vertical.size + 12
        svg.text(edge + 8, foot, "owners in two-phase", 10, fill="#777", text_anchor="end")
    else:
        svg.text(view.horizontal.at - 4, edge + 8, "owners", 10, fill="#777", text_anchor="end")


def _draw_legend(svg: Svg, scene: Scene, x: float, y: float, width: float) -> float:
    """Draw the legend of the colours."""
    cell = 22.0
    each = max(int((width - 40) // cell), 1)
    svg.text(x - 6, y + 9, "ranks", 10, fill="#777", text_anchor="end")
    for rank in range(scene.ranks):
        row, place = divmod(rank, each)
        a, b = x + place * cell, y + row * 15
        svg.rect(a, b, cell - 2, 13, fill=choose_colour(rank), kind="legend")
        svg.text(
            a + cell / 2 - 1, b + 10, str(rank), 10, fill=choose_ink(rank), text_anchor="middle"
        )
    return y + 15 * (-(-scene.ranks // each))


def _draw_locator(
    svg: Svg, view: _View, shape: list[int], spans: list[tuple[int, int]], x: float, y: float
) -> float:
    """Draw the position of the large picture within the array."""
    side = 70.0
    high = side if len(view.axes) == 2 else 14.0
    svg.text(x, y + 8, "the whole array", 10, fill="#777")
    y += 14
    svg.rect(x, y, side, high, fill="#f4f4f4", stroke="#444")
    down, across = PixelScale(0, shape[0], y, high), PixelScale(0, shape[1], x, side)
    a, b = across(spans[1][0]), down(spans[0][0])
    w, h = across(spans[1][1]) - a, down(spans[0][1]) - b
    svg.rect(a, b, max(w, 5), max(h, 5), fill="#D55E00", kind="where")
    return y + high


def _draw_close_up(svg: Svg, scene: Scene, view: _View, x: float, y: float, width: float) -> float:
    """Draw single elements of one corner, each with the ranks that need it."""
    pairs = [view.ranges(section) for section in scene.sections]
    rows = _select_indices([pair[0] for pair in pairs], 6 if len(view.axes) == 2 else 1)
    columns = _select_indices([pair[1] for pair in pairs], int(min(_CELLS, width // 18)))
    svg.text(x, y + 8, "close-up: single elements", 10, fill="#777")
    y += 14
    cell = 18.0
    svg.begin(kind="close")
    for down, row in enumerate(rows):
        for along, column in enumerate(columns):
            wanting = [r for r, (a, b) in enumerate(pairs) if _is_in(row, a) and _is_in(column, b)]
            a, b = x + along * cell, y + down * cell
            fill = "#f4f4f4" if not wanting else choose_colour(wanting[0])
            svg.rect(a, b, cell - 1, cell - 1, fill=fill)
            if wanting:
                text = str(wanting[0]) + ("+" if len(wanting) > 1 else "")
                svg.text(
                    a + cell / 2 - 0.5,
                    b + 12,
                    text,
                    9,
                    fill=choose_ink(wanting[0]),
                    text_anchor="middle",
                )
    svg.end()
    return y + cell * len(rows)


def _select_indices(ranges: list[IndexRange], most: int) -> range:
    low, high = find_hull(ranges) or (0, 1)
    return range(low, min(high, low + most))


def _is_in(index: int, axis_range: IndexRange) -> bool:
    start, n, step = axis_range
    return 0 <= index - start < n * step and (index - start) % step == 0
