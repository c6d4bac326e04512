"""
Reports as pictures: bars of bytes moved and memory used, above the text of the report.

Problem: a text report is read line by line; a picture shows at a glance how much more is moved than
requested, and how close the memory is to its limit. The pictures of collective calls
(`outcore.model.picture`) need the whole plan and are in a layer above all modules with reports.
Approach: a report names the groups of related numbers (`Bars`); drawing and writing them is common to
all reports (`DrawableReport`). Only the writer of SVG is needed.

Invariants: equal reports give equal documents, and the bars of one group have one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outcore.base.report.svg import Svg, Value

__all__ = ["Bars", "DrawableReport"]

_WIDTH, _LEFT, _LABEL, _BAR = 900, 30, 150, 420
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#8C8C8C")
_LONGEST = 130


@dataclass(frozen=True)
class Bars:
    """Numbers of one kind, such as bytes, drawn with one scale; `say` formats a value as text."""

    name: str
    bars: Sequence[tuple[str, float]]
    say: Callable[[int], str]


class DrawableReport:
    """A report that can be drawn: it has text (`str`) and groups of numbers."""

    __slots__ = ()

    def _bars(self) -> Sequence[Bars]:
        """Return the groups of bars to draw."""
        raise NotImplementedError

    def _summary(self) -> str:
        """Return the report in one short line: by default the first line of its text."""
        return " ".join(str(self).partition("\n")[0].split())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._summary()}>"

    def _repr_html_(self) -> str:
        """Return the picture for notebooks."""
        return f"<div class='outcore'>{self.svg()}</div>"

    def svg(self) -> str:
        """
        Draw the report as bars of its counts, above its text.

        Returns
        -------
        str
            SVG document, for a notebook (``IPython.display.SVG``) or a browser. Equal reports give
            equal documents; nothing is read.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (1000, 300), "f8")
        >>> picture = a.explain(np.s_[:, 10]).svg()
        >>> picture.startswith("<svg"), "class='bar'" in picture
        (True, True)
        """
        from outcore.base.report.svg import Svg  # only needed for drawing

        head, *lines = str(self).splitlines() or [""]
        drawing = Svg(head, "\n".join(lines))
        y = 36.0
        for text in _wrap_line(head):
            drawing.text(_LEFT, y, text, 15, font_weight="bold")
            y += 20
        y += 12
        for group in self._bars():
            if group.bars:
                y = _draw(drawing, group, y)
        for line in lines:
            for text in _wrap_line(line):
                # Non-breaking spaces keep the columns of the text aligned.
                drawing.text(_LEFT, y, text.replace(" ", "\u00a0"), 11, font_family="monospace")
                y += 16
        return drawing.finish(_WIDTH, y + 14)


def _draw(drawing: Svg, group: Bars, y: float) -> float:
    """Draw a group; return the position of its lower edge."""
    drawing.text(_LEFT, y, group.name, 12, fill="#555")
    most = max((value for _, value in group.bars), default=0) or 1
    y += 8
    for number, (name, value) in enumerate(group.bars):
        drawing.text(_LEFT + _LABEL - 8, y + 11, name, 12, text_anchor="end")
        wide = max(_BAR * value / most, 1 if value else 0)
        more: dict[str, Value] = {
            "fill": _COLOURS[number % len(_COLOURS)],
            "kind": "bar",
            "data_value": int(value),
        }
        drawing.rect(_LEFT + _LABEL, y, wide, 14, **more)
        drawing.text(_LEFT + _LABEL + wide + 6, y + 11, group.say(int(value)), 11, fill="#333")
        y += 19
    return y + 16


def _wrap_line(text: str) -> list[str]:
    """Split a line into pieces that fit the page."""
    found = []
    while len(text) > _LONGEST:
        at = text.rfind(" ", 40, _LONGEST)
        at = _LONGEST if at < 0 else at
        found.append(text[:at])
        text = "    " + text[at:].lstrip()
    return [*found, text]
