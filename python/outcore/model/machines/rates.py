"""
Data on figures 5 and 6 of the paper on disk resident arrays.

Nieplocha, Foster, "Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core Computations",
section 5.1. The text has six rates and some sentences, which are in ``disk-array-rates.toml``; the
figures themselves are pictures.

>>> from outcore.model.machines import rates
>>> [one.rate for one in rates.load_rates(5) if one.operation == "write"]
[42.7, 36.9]
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

__all__ = [
    "FIGURES",
    "Direction",
    "Fit",
    "PaperRate",
    "Transfers",
    "load_piofs",
    "load_rates",
    "load_transfers",
]

Direction = Literal["read", "write"]
Fit = Literal["aligned", "nonaligned"]

FIGURES = (5, 6)
_MB = 1_000_000


@dataclass(frozen=True)
class Transfers:
    """
    Settings of the measurements of a figure.

    `named` is the name of the machine in the paper, and `storage` describes where the array is stored.
    The array is a square of `edge` elements, the section one of `section`. Columns of `stripe_rows` rows
    follow each other in a file. `buffers` lists the bytes of the buffer of each processor that does I/O.
    `subsections` has, for each buffer for which the text counts them, its bytes, and the numbers of
    nonaligned and of aligned blocks of a nonaligned section. `claims` are sentences of the text about
    the curves.
    """

    figure: int
    machine: str
    named: str
    storage: str
    edge: int
    section: int
    itemsize: int
    stripe_rows: int
    buffers: tuple[int, ...]
    subsections: tuple[tuple[int, int, int], ...]
    claims: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the section."""
        return self.section * self.section * self.itemsize


@dataclass(frozen=True)
class PaperRate:
    """
    Rate that the text states, in MB/s, for `ranks` processors that do I/O through a `buffer` of these
    bytes.

    `fitted`: the machine was calibrated with it.
    """

    operation: Direction
    fit: Fit
    ranks: int
    buffer: int
    rate: float
    fitted: bool = False


@functools.cache
def _load() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("disk-array-rates.toml").read_text("utf-8")
    return tomllib.loads(text)


def _get_figure(number: int) -> dict[str, Any]:
    return next(one for one in _load()["figure"] if one["number"] == number)


def load_transfers(figure: int) -> Transfers:
    """
    Return the settings of figure 5 or 6.

    Examples
    --------
    >>> from outcore.model.machines import rates
    >>> rates.load_transfers(5).subsections
    ((1000000, 40, 180), (2000000, 20, 90))
    """
    data, one = _load(), _get_figure(figure)
    return Transfers(
        figure=figure,
        machine=one["machine"],
        named=data["machine"][one["machine"]]["name"],
        storage=one["storage"],
        edge=data["edge"],
        section=data["section"],
        itemsize=data["itemsize"],
        stripe_rows=data["stripe_rows"],
        buffers=tuple(size * _MB for size in one["buffers_mb"]),
        subsections=tuple(
            (each["buffer_mb"] * _MB, each["nonaligned"], each["aligned"])
            for each in one["subsections"]
        ),
        claims=tuple(one["claims"]),
    )


def load_rates(figure: int) -> tuple[PaperRate, ...]:
    """Return the points of figure 5 or 6 that the text states."""
    return tuple(
        PaperRate(
            each["operation"], each["fit"], each["ranks"], each["buffer_mb"] * _MB, each["rate"]
        )
        for each in _get_figure(figure)["measured"]
    )


def load_piofs() -> tuple[dict[str, int], tuple[PaperRate, ...]]:
    """Return the changes of the machine ``sp`` for PIOFS, and the rates of PIOFS in the text."""
    one = _load()["piofs"]
    found = tuple(
        PaperRate(
            each["operation"],
            each["fit"],
            one["ranks"],
            one["buffer_mb"] * _MB,
            each["rate"],
            each["fitted"],
        )
        for each in one["measured"]
    )
    return dict(one["changes"]), found
