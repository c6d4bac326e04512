"""
Reports as pictures: bars of what is moved and held, above the words of the report.

Problem. A report in words is read line by line; how much more is moved than is wanted, and how near the
memory is to its limit, is seen at a glance. The pictures of collectives (`outcore.model.picture`) need
the whole plan and stand above all that has reports. Idea. A report says which numbers belong together
(`Bars`); how these are drawn, and written, is the same for all (`Drawn`). Only the writer of SVG is
needed for it.

Invariants. Equal reports give equal documents, and bars of one group have one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outcore.base.report.svg import Svg, Value

__all__ = ["Bars", "Drawn"]

_WIDTH, _LEFT, _LABEL, _BAR = 900, 30, 150, 420
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#8C8C8C")
_LONGEST = 130


@dataclass(frozen=True)
class Bars:
    """
    Numbers of one kind, drawn with one scale.

    Parameters
    ----------
    name
        What they are, such as ``"bytes"``.
    bars
        Of each its name and its value.
    say
        A value in words.
    """

    name: str
    bars: Sequence[tuple[str, float]]
    say: Callable[[int], str]


class Drawn:
    """A report that can be drawn: it has words (`str`) and groups of numbers."""

    __slots__ = ()

    def _bars(self) -> Sequence[Bars]:
        """What is drawn."""
        raise NotImplementedError

    def svg(self) -> str:
        """
        Draw the report: bars of what it counts, above its words.

        Returns
        -------
        str
            An SVG document, which a notebook shows (``IPython.display.SVG``) and a browser opens. Equal
            reports give equal documents; nothing is read for it.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (1000, 300), "f8")
        >>> picture = a.explain(np.s_[:, 10]).svg()
        >>> picture.startswith("<svg"), "class='bar'" in picture
        (True, True)
        """
        from outcore.base.report.svg import Svg  # who draws nothing needs none of it

        head, *lines = str(self).splitlines() or [""]
        drawing = Svg(head, "\n".join(lines))
        y = 36.0
        for text in _folded(head):
            drawing.text(_LEFT, y, text, 15, font_weight="bold")
            y += 20
        y += 12
        for group in self._bars():
            if group.bars:
                y = _draw(drawing, group, y)
        for line in lines:
            for text in _folded(line):
                # Spaces hold the columns of the words together.
                drawing.text(_LEFT, y, text.replace(" ", "\u00a0"), 11, font_family="monospace")
                y += 16
        return drawing.finish(_WIDTH, y + 14)


def _draw(drawing: Svg, group: Bars, y: float) -> float:
    """Draw a group; returns where it ends."""
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


def _folded(text: str) -> list[str]:
    """A line in pieces that fit the page."""
    found = []
    while len(text) > _LONGEST:
        at = text.rfind(" ", 40, _LONGEST)
        at = _LONGEST if at < 0 else at
        found.append(text[:at])
        text = "    " + text[at:].lstrip()
    return [*found, text]
