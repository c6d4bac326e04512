"""
Who owns how much of which array: the ranks that may, and what the assignment gives them.

Invariants. A pure function of the records of all ranks, so that all come to the same. A rank owns parts
only of arrays that it has in its own list. Of a file that one process at a time may write all arrays
have one owner, if any rank has them all; different files may have different ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.assignment import Assignment, assign

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


def assigned(records: _core.Records, size: int, owners: Owners) -> Assignment | None:
    """
    Give arrays to ranks: the largest load as small as can be, then little traffic.

    One array is everybody's: nothing is assigned then.
    """
    if len(owners.able) < 2 or all(len(ranks) < 2 for ranks in owners.able):
        return None
    # What several ranks want is read once.
    sizes = np.array(records.union(), np.int64)
    requests = np.minimum(requests_of(records, size), sizes)
    eligible = np.zeros(requests.shape, bool)
    for number, ranks in enumerate(owners.able):
        eligible[ranks, number] = True
    groups = [file if alone else -1 - n for n, (file, alone) in enumerate(_files(owners))]
    return assign(requests, sizes=sizes, groups=groups, eligible=eligible, whole=owners.whole)


def _files(owners: Owners) -> list[tuple[int, bool]]:
    """Of each array the number of its file, counted from 0, and whether that has one writer."""
    numbers: dict[int, int] = {}
    ordinals = [numbers.setdefault(file, len(numbers)) for file in owners.files]
    return list(zip(ordinals, owners.whole, strict=True))


def shares_of(given: Assignment | None, owners: Owners, number: int) -> list[tuple[int, int]]:
    """Tell which ranks own how much of an array."""
    able = owners.able[number]
    if given is None:
        return [(rank, 1) for rank in (able[:1] if owners.whole[number] else able)]
    # An array that nobody wants anything of is nobody's; it has no tiles either.
    some = [(rank, part) for rank, part in sorted(given.shares[number]) if part > 0]
    return some or [(able[0], 1)]
