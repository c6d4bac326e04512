"""
Writer of SVG: shapes in, one text out.

Numbers are rounded to a tenth and attributes are written in the given order, so equal pictures are
equal texts. A document refers to no external fonts, styles or scripts.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

__all__ = ["Box", "Svg", "Value", "format_boxes", "format_coordinate"]

Value = str | int | float
Box = tuple[float, float, float, float]


def format_coordinate(value: float) -> str:
    """
    Write a coordinate.

    Examples
    --------
    >>> format_coordinate(12.04), format_coordinate(3.25), format_coordinate(-0.01)
    ('12', '3.2', '0')
    """
    text = f"{value:.1f}"
    if text.endswith(".0"):
        text = text[:-2]
    return "0" if text == "-0" else text


def format_boxes(places: Iterable[Box]) -> str:
    """
    Write rectangles (x, y, width, height) as the data of one path.

    Examples
    --------
    >>> format_boxes([(0, 0, 4, 2), (8, 0, 4, 2)])
    'M0 0h4v2h-4zM8 0h4v2h-4z'
    """
    return "".join(
        f"M{format_coordinate(x)} "
        f"{format_coordinate(y)}h{format_coordinate(w)}v{format_coordinate(h)}h{format_coordinate(-w)}z"
        for x, y, w, h in places
    )


class Svg:
    """
    An SVG picture, built shape by shape.

    Attributes are keyword arguments: ``_`` stands for ``-``, and ``kind`` for ``class``.

    Examples
    --------
    >>> svg = Svg("a title", "what it shows")
    >>> svg.rect(1, 2, 30, 40, fill="#fff")
    >>> svg.text(5, 5, "a < b")
    >>> "<rect x='1' y='2' width='30' height='40' fill='#fff'/>" in svg.finish(100, 50)
    True
    """

    def __init__(self, title: str, description: str) -> None:
        self._lines: list[str] = []
        self._title, self._description = title, description

    def rect(self, x: float, y: float, w: float, h: float, **more: Value) -> None:
        """Draw a rectangle."""
        self._add("rect", {"x": x, "y": y, "width": w, "height": h, **more})

    def line(self, x1: float, y1: float, x2: float, y2: float, **more: Value) -> None:
        """Draw a line."""
        ends: dict[str, Value] = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        self._add("line", {**ends, "stroke": "#666", **more})

    def path(self, d: str, **more: Value) -> None:
        """Draw a path."""
        self._add("path", {"d": d, **more})

    def text(self, x: float, y: float, text: str, size: float = 12, **more: Value) -> None:
        """Write a line of text with its baseline at `y`."""
        self._add("text", {"x": x, "y": y, "font-size": size, **more}, escape(text))

    def begin(self, **more: Value) -> None:
        """Begin a group."""
        self._lines.append(f"<g{self._format_attributes(more)}>")

    def end(self) -> None:
        """End a group."""
        self._lines.append("</g>")

    def finish(self, width: float, height: float) -> str:
        """Return the document."""
        size = f"width='{format_coordinate(width)}' height='{format_coordinate(height)}'"
        view = f"viewBox='0 0 {format_coordinate(width)} {format_coordinate(height)}'"
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' {size} {view} role='img' fill='#222' "
            "font-family='DejaVu Sans, Verdana, Helvetica, sans-serif'>"
        )
        said = [
            f"<title>{escape(self._title)}</title>",
            f"<desc>{escape(self._description)}</desc>",
            "<rect width='100%' height='100%' fill='#fff'/>",
        ]
        return "\n".join([head, *said, *self._lines, "</svg>"]) + "\n"

    def _add(self, tag: str, attributes: dict[str, Value], text: str | None = None) -> None:
        start = f"<{tag}{self._format_attributes(attributes)}"
        self._lines.append(f"{start}/>" if text is None else f"{start}>{text}</{tag}>")

    @staticmethod
    def _format_attributes(attributes: dict[str, Value]) -> str:
        def one(name: str, value: Value) -> str:
            name = "class" if name == "kind" else name.replace("_", "-")
            if isinstance(value, float):
                value = format_coordinate(value) if "opacity" not in name else f"{value:.2f}"
            text = quoteattr(str(value))
            # Use single quotes unless the text has one.
            return f" {name}='{text[1:-1]}'" if "'" not in text else f" {name}={text}"

        return "".join(one(*pair) for pair in attributes.items())
