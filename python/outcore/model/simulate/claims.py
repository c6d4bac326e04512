"""
Sentences of a paper about a figure of which it has only a picture, looked up in ours.

Problem. Of most figures the text has no points, but it says what is to be seen in them: that a curve
rises, which of two is higher. Idea. Each such sentence is a `Claim`: the words, whether ours are so, and
what was looked at. A figure that is printed ends with them (`looked_up`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["TIE", "Claim", "looked_up"]

#: Rates that differ less than this are equal.
TIE = 1.01


@dataclass(frozen=True)
class Claim:
    """
    What the text says of a figure.

    Attributes
    ----------
    figure, said
        Number of the figure; the words.
    holds
        Whether ours are so, too.
    ours
        What was looked at.
    """

    figure: int
    said: str
    holds: bool
    ours: str


def looked_up(claims: Iterable[Claim], left: str = "the points") -> list[str]:
    """
    Give the last lines of a figure: each sentence, and whether it is so in ours.

    Parameters
    ----------
    claims
        What the text says.
    left
        What of the figure the text does not have.
    """
    found = []
    for claim in claims:
        so = "so" if claim.holds else "NOT so"
        found += [f"theirs: “{claim.said}”", f"ours:   {so}; {claim.ours}"]
    return [*found, f"theirs: {left} of the figure are not in its text"]
