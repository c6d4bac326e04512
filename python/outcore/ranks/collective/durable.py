"""
Flushes of many ranks: each file once on a node.

Problem. A flush hands to the disk what all programs of a node have written to a file, and ends with a
request of its own that empties the disk's cache. If every rank flushes, there are as many of these as
ranks: on a disk of 200 requests a second, 16 of them take longer than what was written. And flushes that
run at once cut a range into small requests.

Idea. All ranks prepare (pages between sparse writes become dirty), and tell which file they have. Of the
ranks of a node that have the same one, one flushes; of many files each another rank.

Invariants. Left out is only a flush of a file (device and inode) that another process of the same kernel
flushes after all have prepared, and that no other kernel has in its cache. Who has files of his own
(chunks), or has them on a file system of several machines, flushes himself, the first of a node before
the others. All ranks agree on how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.ranks.agreement import Elsewhere
from outcore.ranks.collective.items import Item
from outcore.ranks.transport import Transport

__all__ = ["WORDS", "Ready", "flush_once", "flush_what_asks"]

# What a rank tells of an array: whether it asks for a flush, what it has to flush, device and inode.
WORDS = 4
_NOTHING, _OWN, _SHARED = range(3)
# When a rank flushes (`_core.flush_turns`): with the first, after them, or not.
_FIRST, _THEN, _SPARED = range(3)


class Ready:
    """A flush of one array that is prepared: `words` for the others, and the writes that had ended."""

    def __init__(self, array: DiskArray | None, *, asked: bool) -> None:
        self.words = [int(asked), _NOTHING, 0, 0]
        self.written = 0
        if array is not None and array.writable:
            self.written, file = array.handle.core.before_flush()
            self.words[1:] = [_OWN, 0, 0] if file is None else [_SHARED, *file]


def flush_what_asks(
    group: Transport, arrays: Sequence[DiskArray | None], items: Sequence[Item]
) -> BaseException | None:
    """
    Make arrays durable after a write, if a hint of any rank asks for that.

    Parameters
    ----------
    arrays
        In the same order on all ranks; None where this rank does not have one.
    items
        What this rank wrote on its own: of one array, perhaps, through several handles.

    Returns
    -------
    BaseException or None
        This rank's failure (`Elsewhere`: it has none), if any rank failed.
    """
    failure: BaseException | None = None
    mine: list[Ready] = []
    words = np.zeros(1 + WORDS * len(arrays), np.int64)
    try:
        mine = [Ready(a, asked=a is not None and a.hints.sync) for a in arrays]
        known = {id(array) for array in arrays}
        for array in {id(i.array): i.array for i in items if id(i.array) not in known}.values():
            array.handle.core.flush(array.hints.sync)
        words[1:] = [word for one in mine for word in one.words]
    except BaseException as error:
        failure = error
        words[0] = 1
    said = group.allgather(words)
    if said[:, 0].any():
        return failure or Elsewhere()
    return flush_once(group, arrays, mine, said[:, 1:])


def flush_once(
    group: Transport,
    arrays: Sequence[DiskArray | None],
    mine: Sequence[Ready],
    said: NDArray[np.int64],
) -> BaseException | None:
    """
    Flush the arrays of which any rank asks for it.

    Parameters
    ----------
    arrays
        As for `flush_what_asks`.
    mine
        What this rank told of each.
    said
        What all ranks told, ``(ranks, arrays * WORDS)``.

    Returns
    -------
    BaseException or None
        As of `flush_what_asks`.
    """
    each = said.reshape(group.size, len(arrays), WORDS).transpose(1, 0, 2).tolist()
    told = [[_told(*words) for words in ranks] for ranks in each]
    turns = _core.flush_turns(list(group.nodes), told)
    late = any(_THEN in turn for turn in turns)
    for now in (_FIRST, _THEN) if late else (_FIRST,):
        failure: BaseException | None = None
        for array, turn in zip(arrays, turns, strict=True):
            if array is not None and turn[group.rank] == now:
                try:
                    array.handle.core.flush(True)
                except BaseException as error:  # the other files are flushed all the same
                    failure = failure or error
        if group.agree(int(failure is not None)):
            return failure or Elsewhere()
    for array, one, turn in zip(arrays, mine, turns, strict=True):
        shared = one.words[1] == _SHARED and _FIRST in turn
        if array is not None and shared and turn[group.rank] == _SPARED:
            array.handle.core.flushed_by_another(one.written)
    return None


def _told(
    asked: int, owes: int, device: int, inode: int
) -> tuple[bool, bool, tuple[int, int] | None]:
    """Read the words of a rank about an array: whether it asks for a flush, and what it owes."""
    return bool(asked), owes != _NOTHING, (device, inode) if owes == _SHARED else None
