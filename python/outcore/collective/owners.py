"""
Who owns how much of which array: the ranks that may, and what the assignment gives them.

Invariants. A pure function of the records of all ranks, so that all come to the same. A rank owns parts
only of arrays that it has in its own list. Of a file that one process at a time may write all arrays
have one owner, if any rank has them all; different files may have different ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.assignment import Assignment, Method, assign
from outcore.errors import OutcoreError

__all__ = ["Owners", "assigned", "owners_of", "requests_of", "shares_of"]


@dataclass(frozen=True)
class Owners:
    """
    Which ranks may own a part of each array.

    Parameters
    ----------
    able
        Of each array: ranks, ascending.
    whole
        Of each array: whether one rank has to own all of it.
    files
        Of each array: a number, equal where arrays are in one file.
    """

    able: list[list[int]]
    whole: list[bool]
    files: list[int]


def owners_of(records: _core.Records, size: int, io_ranks: int, *, write: bool) -> Owners:
    """Tell who may own what: I/O ranks that have it, if any does."""
    chosen = {rank * size // io_ranks for rank in range(io_ranks)}
    files = records.files
    whole = [write and bool(file % 2) for file in files]
    have = [records.have(number) for number in range(len(files))]
    # Of files with one writer those who have all arrays of it, if there are any.
    everything: dict[int, set[int]] = {}
    for file, alone, ranks in zip(files, whole, have, strict=True):
        if alone:
            everything[file] = everything.get(file, set(ranks)) & set(ranks)
    able = []
    for file, ranks in zip(files, have, strict=True):
        some = [rank for rank in ranks if rank in everything.get(file, ())] or ranks
        able.append([rank for rank in some if rank in chosen] or some)
    return Owners(able, whole, [file >> 1 for file in files])


def requests_of(records: _core.Records, size: int) -> NDArray[np.int64]:
    """Bytes that each rank wants of each array, ``(ranks, arrays)``."""
    return records.requests().reshape(len(records.names), size).T


def most_arrays(records: _core.Records, size: int) -> int:
    """Tell of how many arrays a rank wants anything, at most."""
    if len(records.names) < 2:
        return 1
    return int((requests_of(records, size) > 0).sum(axis=1).max(initial=1))


def assigned(
    records: _core.Records, size: int, owners: Owners, method: Method = "balanced"
) -> Assignment | None:
    """
    Give arrays to ranks: the largest load as small as can be, then little traffic; or as a hint says.

    One array is everybody's: nothing is assigned then. A method that cannot do it (``"exact"`` of many
    arrays, or ranks that have few of them) leaves it to ``"balanced"``: hints raise nothing.
    """
    if len(owners.able) < 2 or all(len(ranks) < 2 for ranks in owners.able):
        return None
    # What several ranks want is read once.
    sizes = np.array(records.union(), np.int64)
    requests = np.minimum(requests_of(records, size), sizes)
    eligible = np.zeros(requests.shape, bool)
    for number, ranks in enumerate(owners.able):
        eligible[ranks, number] = True
    groups = np.unique(owners.files, return_inverse=True)[1]

    def solve(method: Method) -> Assignment:
        return assign(
            requests, method, sizes=sizes, groups=groups, eligible=eligible, whole=owners.whole
        )

    try:
        given = solve(method)
    except OutcoreError as error:
        if error.code not in ("assignment-impossible", "assignment-too-large"):
            raise
        given = solve("balanced")
        given = replace(given, why=f"{given.why}; {method} was asked for, but cannot do this")
    return replace(given, why=given.why + _of_files(owners))


def _of_files(owners: Owners) -> str:
    """What to say of arrays that share files."""
    files = len(set(owners.files))
    if files == len(owners.files):
        return ""
    alone = len({f for f, whole in zip(owners.files, owners.whole, strict=True) if whole})
    one = f", {alone} of them with one writer each" if alone else ""
    return f"; the {len(owners.files)} arrays are in {files} file{'s' * (files != 1)}{one}"


def shares_of(given: Assignment | None, owners: Owners, number: int) -> list[tuple[int, int]]:
    """Tell which ranks own how much of an array."""
    able = owners.able[number]
    if given is None:
        return [(rank, 1) for rank in (able[:1] if owners.whole[number] else able)]
    # An array that nobody wants anything of is nobody's; it has no tiles either.
    some = [(rank, part) for rank, part in sorted(given.shares[number]) if part > 0]
    return some or [(able[0], 1)]
