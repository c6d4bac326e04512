"""Draw the rounds in time, and the bytes between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from outcore.base.report import format_bytes
from outcore.base.report.svg import Box, Svg, format_boxes
from outcore.model.picture.scene import SHARED, Scene, choose_colour, choose_ink, format_count

__all__ = ["draw_matrix", "draw_rounds"]

# Columns of the timeline; if there are more rounds, the first ones and the last one are drawn.
_COLUMNS = 8
# An exchange with more ranks than this is drawn in one colour.
_COLOURED = 16


@dataclass(frozen=True)
class _Scale:
    """Bytes of the longest bars."""

    exchange: int
    disk: int


def draw_rounds(svg: Svg, scene: Scene, x: float, y: float, width: float) -> float:
    """Draw the timeline: a row for each owner, a column for each step; return its lower end."""
    rounds, owners = scene.rounds, scene.owners
    svg.text(x, y, f"Two-phase in {format_count(rounds, 'round')}", 14, font_weight="bold")
    how = (
        "Above: ranks send data to the owner, in their colours. Below, at the same time: the owner "
        "writes the data of the round before."
        if scene.write
        else "Below: the owner reads. Above, at the same time: the data of the round before go to the "
        "ranks, in their colours."
    )
    y += 18
    svg.text(x, y, how, 11, fill="#777")
    shown = list(range(rounds)) if rounds < _COLUMNS else [*range(_COLUMNS - 3), rounds - 1]
    left = x + 52
    # Steps: the first has only the first half of a round, the last only the second half.
    columns: list[tuple[int | None, int | None]] = [(shown[0], None)]
    for before, k in pairwise(shown):
        columns.append((k, before) if k == before + 1 else (None, None))
        if k != before + 1:
            columns.append((k, k - 1))
    columns.append((None, shown[-1]))
    column = (width - 52) / len(columns)
    tall = max(8.0, min(46.0, 300 / len(owners)))
    y += 12
    for place, (first, second) in enumerate(columns):
        at = left + place * column
        if first is None and second is None:
            hidden = rounds - len(shown)
            svg.text(
                at + column / 2,
                y + 12,
                f"... {hidden} more ...",
                11,
                text_anchor="middle",
                fill="#777",
            )
            continue
        svg.text(at + 2, y + 12, _format_label(scene, first, second), 11, fill="#333")
    y += 18
    drawn = [(owner, k) for owner in owners for k in shown]
    scale = _Scale(
        max(sum(scene.count_given_bytes(*turn)) for turn in drawn) or 1,
        max(scene.seen.count_round(*turn).nbytes for turn in drawn) or 1,
    )
    for row, owner in enumerate(owners):
        top = y + row * tall
        if tall >= 10 or row % 4 == 0:
            svg.text(
                left - 8,
                top + tall / 2 + 4,
                f"rank {owner}",
                min(11.0, max(tall, 8)),
                text_anchor="end",
                fill="#333",
            )
        for place, (first, second) in enumerate(columns):
            at = left + place * column
            disk, exchange = (second, first) if scene.write else (first, second)
            if exchange is not None:
                _draw_exchange(svg, scene, owner, exchange, at, top, column - 6, tall, scale)
            if disk is not None:
                _draw_disk(svg, scene, owner, disk, at, top, column - 6, tall, scale)
    low = y + len(owners) * tall
    svg.line(left, low + 3, left + width - 58, low + 3, stroke="#999")
    svg.text(left + width - 56, low + 7, ">", 12, fill="#999")
    svg.text(left, low + 18, "time (steps, not to scale)", 11, fill="#777")
    return low + 18


def _format_label(scene: Scene, first: int | None, second: int | None) -> str:
    before, after = ("exchange", "write") if scene.write else ("read", "exchange")
    said = []
    if first is not None:
        said.append(f"{before} {first + 1}")
    if second is not None:
        said.append(f"{after} {second + 1}")
    return ", ".join(said)


def _draw_exchange(
    svg: Svg,
    scene: Scene,
    owner: int,
    k: int,
    x: float,
    y: float,
    width: float,
    tall: float,
    scale: _Scale,
) -> None:
    """Draw the bytes between an owner and each rank in a round, side by side."""
    counts = scene.count_given_bytes(owner, k)
    total = sum(counts)
    if not total:
        return
    high = tall * 0.36
    svg.begin(kind="exchange", data_owner=owner, data_round=k, data_bytes=total)
    at = x
    several = sum(count > 0 for count in counts) > _COLOURED
    if several:
        svg.rect(x, y + 1, width * total / scale.exchange, high, fill=SHARED)
    for rank, count in enumerate(counts):
        if count and not several:
            wide = width * count / scale.exchange
            svg.rect(at, y + 1, wide, high, fill=choose_colour(rank))
            if wide >= 14 and high >= 11:
                svg.text(
                    at + wide / 2,
                    y + high - 2,
                    str(rank),
                    10,
                    fill=choose_ink(rank),
                    text_anchor="middle",
                )
            at += wide
    svg.end()


def _draw_disk(
    svg: Svg,
    scene: Scene,
    owner: int,
    k: int,
    x: float,
    y: float,
    width: float,
    tall: float,
    scale: _Scale,
) -> None:
    """Draw the bytes that an owner reads or writes in a round, as a fraction of its slot."""
    disk = scene.seen.count_round(owner, k)
    if not disk.nbytes:
        return
    top, high = y + tall * 0.4 + 1, tall * 0.48
    part = disk.nbytes / scale.disk
    svg.rect(
        x, top, width * part, high, fill="#555", kind="disk",
        data_owner=owner, data_round=k, data_bytes=disk.nbytes, data_requests=disk.requests,
    )  # fmt: skip
    if high >= 12:
        said = f"{format_bytes(disk.nbytes)}, {disk.requests} req."
        inside = width * part >= 6.2 * len(said)
        at = x + 4 if inside else x + width * part + 4
        svg.text(at, top + high / 2 + 4, said, 10, fill="#fff" if inside else "#333")


def draw_matrix(svg: Svg, scene: Scene, x: float, y: float, width: float) -> float:
    """Draw the bytes between each rank and each owner, in all rounds; return the lower end."""
    n = scene.ranks
    words: list[tuple[float, float, list[str], str]] = []
    svg.text(
        x,
        y,
        "Bytes from rank to owner" if scene.write else "Bytes from owner to rank",
        14,
        font_weight="bold",
    )
    cell = min(40.0, (width - 40) / n)
    most = max(int(scene.matrix.max()), 1)
    left, top = x + 40, y + 40
    every = 1 if cell >= 15 else 4 if cell >= 6 else 8
    svg.text(left, y + 18, "from rank" if scene.write else "to rank", 11, fill="#777")
    size = min(11.0, max(cell * 0.7, 9.0))
    for rank in range(0, n, every):
        middle = (rank + 0.5) * cell
        svg.text(left + middle, top - 5, str(rank), size, text_anchor="middle", fill="#333")
        svg.text(left - 6, top + middle + 4, str(rank), size, text_anchor="end", fill="#333")
    for row in range(n):
        # One path for each shade.
        shades: dict[int, list[Box]] = {}
        for rank in range(n):
            nbytes = int(scene.matrix[row, rank])
            if not nbytes:
                continue
            shade = 1 + 9 * nbytes // most
            place = (left + rank * cell, top + row * cell, cell - 0.5, cell - 0.5)
            shades.setdefault(shade, []).append(place)
            if cell >= 34:
                said = format_bytes(nbytes).split()
                fill = "#fff" if shade > 4 else "#000"
                words.append((place[0] + cell / 2, place[1] + cell / 2, said, fill))
        total = int(scene.matrix[row].sum())
        svg.begin(kind="row", data_owner=row, data_bytes=total)
        for shade, places in sorted(shades.items()):
            svg.path(format_boxes(places), fill="#08306B", fill_opacity=0.08 + 0.092 * shade)
        svg.end()
    for a, b, said, fill in words:
        for line, text in enumerate(said):
            svg.text(a, b + 12 * line, text, 10, text_anchor="middle", fill=fill)
    side = n * cell
    svg.rect(left, top, side, side, fill="none", stroke="#999", stroke_width=0.8)
    diagonal = [(left + k * cell, top + k * cell, cell - 0.5, cell - 0.5) for k in range(n)]
    svg.path(
        format_boxes(diagonal), fill="none", stroke="#E69F00", stroke_width=1.5 if cell > 8 else 0.7
    )
    low = top + side + 16
    svg.text(left, low, f"{format_bytes(scene.exchanged)} between ranks;", 11, fill="#777")
    svg.text(left, low + 14, "framed bytes stay on their rank", 11, fill="#777")
    return low + 14
