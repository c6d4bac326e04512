"""
Check sentences of a paper about a figure against simulated points.

Problem: the text does not contain the points of most figures, but it describes them: that a curve rises,
which of two is higher.
Approach: each such sentence is a `Claim`: the words, whether they are true of the simulation, and the
values that were checked. A printed figure ends with its claims (`format_claims`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["TIE", "Claim", "format_claims"]

#: Rates that differ by less than this factor are equal.
TIE = 1.01


@dataclass(frozen=True)
class Claim:
    """
    Sentence of the text about a figure, whether it is true of the simulation, and the values that were
    checked.
    """

    figure: int
    said: str
    holds: bool
    ours: str


def format_claims(claims: Iterable[Claim], left: str = "the points") -> list[str]:
    """
    Return the last lines of a figure: each sentence, and whether it is true of the simulation.

    `left` names the parts of the figure that are not in the text.
    """
    found = []
    for claim in claims:
        so = "so" if claim.holds else "NOT so"
        found += [f"theirs: “{claim.said}”", f"ours:   {so}; {claim.ours}"]
    return [*found, f"theirs: {left} of the figure are not in its text"]
