"""
Draw line charts on logarithmic axes as SVG, without a library, for light and dark backgrounds.

>>> from outcore.model.machines.chart import ChartLine, draw_chart
>>> line = ChartLine("direct", [(10, 1.0), (100, 20.0)])
>>> text = draw_chart([line], title="Time", x="ranks", y="seconds")
>>> text.startswith("<svg")
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["ChartLine", "draw_chart"]

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 178, 64, 62
# Distinguishable by colour-blind readers (Okabe and Ito), and by marks and dashes.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#7f7f7f")
_ON_DARK = ("#56b4e9", "#ff8c42", "#2fd6a3", "#e79fc8", "#f0e442", "#9bd3f5", "#b5b5b5")
_DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 4", "4 2", "1 3")

_STYLE = """
text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; }
.note { font-size: 12px; fill: #57606a; }
.background { fill: #ffffff; }
.grid { stroke: #d8dee4; stroke-width: 1; }
.fine { stroke: #eef1f4; stroke-width: 1; }
.frame { stroke: #57606a; stroke-width: 1; fill: none; }
.line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
"""
_DARK = """
text { fill: #e6edf3; } .note { fill: #9da7b3; } .background { fill: #0d1117; }
.grid { stroke: #30363d; } .fine { stroke: #1b2129; } .frame { stroke: #9da7b3; }
"""


@dataclass(frozen=True)
class ChartLine:
    """Line with its name, and points (x, y), both above 0."""

    name: str
    points: Sequence[tuple[float, float]]


class _LogAxis:
    """Logarithmic axis from one pixel to another."""

    def __init__(self, values: Sequence[float], low: int, high: int) -> None:
        bottom, top = math.log10(min(values)), math.log10(max(values))
        spare = max(0.06 * (top - bottom), 0.1)
        self._bottom, self._top = bottom - spare, top + spare
        self._low, self._high = low, high

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._bottom) / (self._top - self._bottom)
        return self._low + share * (self._high - self._low)

    def ticks(self) -> list[tuple[float, bool]]:
        """
        Return the values of grid lines, and whether each has a label.

        Powers of ten have labels; if there are few of them, their multiples by 2 and 5 too.
        """
        first, last = math.floor(self._bottom), math.ceil(self._top)
        inside = [
            (m * 10.0**power, m)
            for power in range(first, last + 1)
            for m in range(1, 10)
            if self._bottom <= math.log10(m * 10.0**power) <= self._top
        ]
        tens = sum(m == 1 for _, m in inside)
        named = (1,) if tens >= 3 else (1, 2, 5)
        return [(value, m in named) for value, m in inside]


def _format_number(value: float) -> str:
    """Format a value with a unit prefix: ``10k``, ``0.02``, ``1M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _mark(kind: int, x: float, y: float, name: str) -> str:
    """Return a mark at a point: circle, square, triangle, diamond, ..."""
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"',
        f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2"',
        f'<path d="M{x:.1f} {y - 4.8:.1f}l4.6 8h-9.2z"',
        f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"',
        f'<path d="M{x:.1f} {y + 4.8:.1f}l4.6 -8h-9.2z"',
    )
    return f'{shapes[kind % len(shapes)]} class="m{kind}"><title>{escape(name)}</title>'


def _close(mark: str) -> str:
    tag = mark[1 : mark.index(" ")]
    return f"{mark}</{tag}>"


def _space_out(places: list[float], apart: float) -> list[float]:
    """Move sorted positions down until neighbours have at least this distance."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + apart) if moved else place)
    over = moved[-1] - (_HEIGHT - _BOTTOM) if moved else 0
    return [place - max(over, 0) for place in moved]


def draw_chart(lines: Sequence[ChartLine], *, title: str, x: str, y: str, note: str = "") -> str:
    """
    Draw lines on logarithmic axes, as an SVG document; each line has at least one point.

    Colours follow the reader's preference for light or dark. `note` is small text below the title.
    """
    points = [point for line in lines for point in line.points]
    across = _LogAxis([p[0] for p in points], _LEFT, _WIDTH - _RIGHT)
    up = _LogAxis([p[1] for p in points], _HEIGHT - _BOTTOM, _TOP)
    count = len(_COLOURS)

    def colours(table: Sequence[str]) -> str:
        return "\n".join(
            f".l{k} {{ stroke: {table[k % count]}; }} .m{k} {{ fill: {table[k % count]}; }}"
            for k in range(len(lines))
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}{colours(_COLOURS)}\n@media (prefers-color-scheme: dark) {{"
        f"{_DARK}{colours(_ON_DARK)}\n}}</style>",
        f'<rect class="background" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text class="title" x="{_LEFT}" y="28">{escape(title)}</text>',
        f'<text class="note" x="{_LEFT}" y="48">{escape(note)}</text>',
    ]
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value, named in across.ticks():
        at = across.at(value)
        weight = "grid" if named else "fine"
        out.append(f'<path class="{weight}" d="M{at:.1f} {_TOP}V{bottom}"/>')
        if named:
            label = f'<text x="{at:.1f}" y="{bottom + 20}" text-anchor="middle">'
            out.append(f"{label}{_format_number(value)}</text>")
    for value, named in up.ticks():
        at = up.at(value)
        weight = "grid" if named else "fine"
        out.append(f'<path class="{weight}" d="M{_LEFT} {at:.1f}H{right}"/>')
        if named:
            label = f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">'
            out.append(f"{label}{_format_number(value)}</text>")
    out += [
        f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" '
        f'height="{bottom - _TOP}"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 18}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate(22 {(_TOP + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y)}</text>',
    ]
    ends = []
    for kind, line in enumerate(lines):
        places = [(across.at(a), up.at(b)) for a, b in line.points]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        dash = _DASHES[kind % len(_DASHES)]
        out.append(f'<path class="line l{kind}" stroke-dasharray="{dash or "none"}" d="M{path}"/>')
        for (a, b), (ranks, time) in zip(places, line.points, strict=True):
            said = f"{line.name}: {_format_number(ranks)}, {time:.4g}"
            out.append(_close(_mark(kind, a, b, said)))
        ends.append((places[-1][1], kind, places[-1][0]))
    # Names are at the ends of their lines, so that no legend is needed.
    ends.sort()
    for (end, kind, from_x), place in zip(ends, _space_out([e[0] for e in ends], 18), strict=True):
        name = escape(lines[kind].name)
        out.append(
            f'<path class="line l{kind}" style="stroke-width:1" opacity="0.6" '
            f'd="M{from_x + 7:.1f} {end:.1f}L{right + 10} {place:.1f}H{right + 18}"/>'
        )
        out.append(_close(_mark(kind, right + 26, place, lines[kind].name)))
        out.append(f'<text x="{right + 36}" y="{place + 4:.1f}">{name}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
