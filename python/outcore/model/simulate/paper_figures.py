"""
Simulated figures of a paper: points, checks of the text, and printed tables.

Problem: three modules simulate figures of papers. All of them have points, sentences that are checked
against the points, and a table, for the machine of the paper or another one.
Approach: `PaperFigures` contains the shared code. A module provides the rest: the accesses, the checks
of sentences, and the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from outcore.model.machines.machine import Machine, machine
from outcore.model.simulate.claims import Claim, format_claims
from outcore.model.simulate.methods import Case, Outcome, simulate

__all__ = ["Check", "Found", "PaperFigures", "compute_rate", "simulate_buffered"]

P = TypeVar("P")
#: Whether a sentence is true of the simulated points, and the values that were checked.
Found = tuple[bool, str]
#: Function that checks a sentence against the points of a figure.
Check = Callable[[Sequence[P]], Found]


@dataclass(frozen=True)
class PaperFigures(Generic[P]):
    """
    Figures of a paper that are simulated in the same way; its fields are functions of a figure's number.

    They return the heading, the name of the machine, the points on a machine, the sentences of the text,
    each with its check, and the lines of the table from the points. `note` follows the name of the
    machine in the heading. `named_points` returns the points that the text states.
    """

    title: Callable[[int], str]
    machine_of: Callable[[int], str]
    simulate: Callable[[int, Machine], list[P]]
    sentences: Callable[[int, Machine], Iterable[tuple[str, Check[P]]]]
    table: Callable[[int, Machine, Sequence[P]], list[str]]
    note: str = ""
    named_points: Callable[[int], Sequence[object]] = lambda _figure: ()

    def points(self, figure: int, model: Machine | None = None) -> list[P]:
        """Return the points of a figure, by default on the machine of the paper."""
        return self.simulate(figure, self._choose_machine(figure, model))

    def claims(self, figure: int, model: Machine | None = None) -> list[Claim]:
        """Check the sentences of the text about a figure against the simulation."""
        model = self._choose_machine(figure, model)
        some = self.simulate(figure, model)
        return [Claim(figure, said, *check(some)) for said, check in self.sentences(figure, model)]

    def lines(self, figure: int, model: Machine | None = None) -> list[str]:
        """Return a figure as lines of text: a table of simulated points, then the claims of the text."""
        model = self._choose_machine(figure, model)
        heading = f"{self.title(figure)} (model: {model.name}{self.note})"
        table = self.table(figure, model, self.simulate(figure, model))
        left = "the other points" if self.named_points(figure) else "the points"
        return [heading, *table, *format_claims(self.claims(figure, model), left)]

    def _choose_machine(self, figure: int, model: Machine | None) -> Machine:
        return model or machine(self.machine_of(figure))


def compute_rate(nbytes: int, seconds: float) -> float:
    """
    Return the rate of an access in MB/s.

    >>> compute_rate(8_000_000, 2.0)
    4.0
    """
    return nbytes / 1e6 / seconds


def simulate_buffered(case: Case, model: Machine, buffer: int) -> Outcome:
    """
    Simulate accesses of ranks that do I/O for all ranks, each through a buffer of `buffer` bytes.

    The bytes of a block are sent from the buffer to the memories of all ranks after a read, and received
    from there before a write; this time is added to the cost of a request for the rank.
    """
    put = buffer * 1_000_000_000 // model.message_rate
    model = replace(model, client_ns=model.client_ns + put)
    return simulate(case, model, "sieve", slot=buffer, leaves_out=False)
