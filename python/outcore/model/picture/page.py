"""
Lay out the page: head, panels, caption.

    array and sections     |  file: independent and collective access; the numbers as bars
    rounds                 |  bytes between ranks
    caption
"""

from __future__ import annotations

from collections.abc import Callable

from outcore.base.report import format_bytes
from outcore.base.report.svg import Svg
from outcore.model.picture.array import draw_array
from outcore.model.picture.file import draw_file
from outcore.model.picture.rounds import draw_matrix, draw_rounds
from outcore.model.picture.scene import Scene, format_count
from outcore.ranks.collective.dry_run import DryRun

__all__ = ["draw"]

_WIDTH = 1120
_LEFT, _MIDDLE = 30, 470


def draw(seen: DryRun, what: str = "") -> str:
    """
    Draw the plan of a collective call, as an SVG document: array and sections, file and owners, rounds.

    Requests are counted for the state of the array: with ``Hints(cache="bypass")``, as if nothing were
    in the page cache. `what` describes the sections, for the title. Raises `UsageError` if there are
    more than 64 ranks, or no rank requests any element.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.ranks.collective.dry_run import dry_run
    >>> a = outcore.create("a.npy", data=np.zeros((64, 64)))
    >>> picture = draw(dry_run(a, [np.s_[:, r::4] for r in range(4)]))
    >>> picture.count("class='section'")
    4
    """
    scene = Scene(seen, what)
    array = seen.array
    shape = " x ".join(map(str, scene.shape))
    name = array.path.rsplit("/", maxsplit=1)[-1]
    title = f"{format_count(scene.ranks, 'rank')} {scene.verb}{'s' * (scene.ranks == 1)} {name}"
    title += f" {what}" if what else ""
    svg = Svg(title, scene.verdict())
    stored = f", chunks of {' x '.join(map(str, array.chunks))}" if array.chunks else ""
    svg.text(_LEFT, 36, title, 20, font_weight="bold")
    svg.text(
        _LEFT,
        58,
        f"{shape} {array.dtype}, {format_bytes(array.nbytes)}, {array.format}{stored}",
        13,
        fill="#555",
    )
    svg.text(_LEFT, 86, scene.verdict(), 15, fill="#000")
    svg.text(_LEFT, 108, scene.reason(), 13, fill="#333")
    left = draw_array(svg, scene, _LEFT, 144, 390)
    right = draw_file(svg, scene, _MIDDLE, 144, _WIDTH - _MIDDLE - _LEFT)
    right = _draw_numbers(svg, scene, _MIDDLE, right + 36)
    low = max(left, right) + 36
    right = draw_matrix(svg, scene, 840, low, 250)
    low = max(right, draw_rounds(svg, scene, _LEFT, low, 770))
    low = _draw_caption(svg, scene, low + 34)
    return svg.finish(_WIDTH, low)


def _draw_numbers(svg: Svg, scene: Scene, x: float, y: float) -> float:
    """Compare independent and collective access, bar by bar."""
    alone, (both, exact) = scene.alone_all, scene.together
    svg.text(x, y, "The cost", 14, font_weight="bold")
    about = "" if exact else "about "
    rows: list[tuple[str, int, int, Callable[[int], str]]] = [
        ("requests", alone.requests, both.requests, lambda n: format_count(n, "request")),
        ("disk bytes", alone.nbytes, both.nbytes, format_bytes),
    ]
    if alone.chunks or both.chunks:
        label = "chunks coded" if scene.write else "chunks decoded"
        rows.append((label, alone.chunks, both.chunks, lambda n: format_count(n, "chunk")))
    rows.append(("between ranks", 0, scene.exchanged, format_bytes))
    y += 10
    for label, own, joint, say in rows:
        most = max(own, joint, 1)
        svg.text(x + 122, y + 22, label, 12, text_anchor="end")
        for k, (way, value) in enumerate((("alone", own), ("together", joint))):
            top, wide = y + 6 + 14 * k, 300 * value / most
            fill = "#9a9a9a" if way == "alone" else "#222"
            svg.rect(
                x + 130,
                top,
                max(wide, 1 if value else 0),
                11,
                fill=fill,
                kind=f"bar {way}",
                data_value=value,
            )
            name = "independent" if way == "alone" else "two-phase"
            said = f"{name}: {about if k else ''}{say(value)}"
            svg.text(x + 136 + wide, top + 9.5, said, 11, fill="#333")
        y += 38
    return y


def _draw_caption(svg: Svg, scene: Scene, y: float) -> float:
    report = scene.report
    method = f"outcore uses {report.method}: {report.why}."
    wants = f"{format_count(scene.ranks, 'rank')} request{'s' * (scene.ranks == 1)}"
    pieces = format_count(scene.pieces, "piece")
    asked = f"{format_bytes(report.wanted_bytes)} together, in {pieces} of the file"
    lines = [f"{wants} {asked}. {method}"]
    cold = scene.seen.array.hints.cache == "bypass"
    state = "of a file that is not in the page cache" if cold else "of the file as it is cached now"
    lines.append(
        f"Requests and bytes are counted from the plans, {state}; they can exceed the requested bytes "
        "where gaps are read, too."
    )
    for line in lines:
        svg.text(_LEFT, y, line, 12, fill="#555")
        y += 18
    return y
