"""
Flush the files of many ranks, each file once per node.

Problem. A flush writes out what all processes of a node have written to a file, and ends with a request
that empties the disk's cache. If every rank flushes, there are as many of these requests as ranks: on a
disk that serves 200 requests per second, 16 of them take longer than the writes. Concurrent flushes also
cut a range into small requests.

Approach. All ranks prepare (pages between sparse writes become dirty) and announce their file. Of the
ranks of a node with the same file, one flushes it; different files are flushed by different ranks.

Invariants. A flush of a file (device and inode) is skipped only if another process of the same kernel
flushes it after all ranks have prepared, and no other kernel has it in its cache. A rank with files of
its own (chunks), or whose files are on a file system of several machines, flushes them itself; the first
rank of a node does so before the others. All ranks agree on the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.ranks.agreement import OtherRankError
from outcore.ranks.collective.items import Item
from outcore.ranks.transport import Transport

__all__ = ["WORDS", "PreparedFlush", "flush_if_requested", "flush_once"]

# Number of words of a rank about an array: whether it requests a flush, what it must flush, device and
# inode.
WORDS = 4
_NOTHING, _OWN, _SHARED = range(3)
# Turn in which a rank flushes (`_core.flush_turns`): first, afterwards, or not at all.
_FIRST, _THEN, _SPARED = range(3)


class PreparedFlush:
    """A prepared flush of one array: `words` for the other ranks, and the writes ended before it."""

    def __init__(self, array: DiskArray | None, *, asked: bool) -> None:
        self.words = [int(asked), _NOTHING, 0, 0]
        self.written = 0
        if array is not None and array.writable:
            self.written, file = array.handle.core.before_flush()
            self.words[1:] = [_OWN, 0, 0] if file is None else [_SHARED, *file]


def flush_if_requested(
    group: Transport, arrays: Sequence[DiskArray | None], items: Sequence[Item]
) -> BaseException | None:
    """
    Make arrays durable after a write, if a hint of any rank requests it.

    `arrays` have the same order on all ranks, with None where this rank does not have one. `items` are
    those that this rank wrote independently, possibly of one array through several handles. Returns
    this rank's failure (`OtherRankError` if it has none) if any rank failed.
    """
    failure: BaseException | None = None
    mine: list[PreparedFlush] = []
    words = np.zeros(1 + WORDS * len(arrays), np.int64)
    try:
        mine = [PreparedFlush(a, asked=a is not None and a.hints.sync) for a in arrays]
        known = {id(array) for array in arrays}
        for array in {id(i.array): i.array for i in items if id(i.array) not in known}.values():
            array.handle.core.flush(array.hints.sync)
        words[1:] = [word for one in mine for word in one.words]
    except BaseException as error:
        failure = error
        words[0] = 1
    said = group.allgather(words)
    if said[:, 0].any():
        return failure or OtherRankError()
    return flush_once(group, arrays, mine, said[:, 1:])


def flush_once(
    group: Transport,
    arrays: Sequence[DiskArray | None],
    mine: Sequence[PreparedFlush],
    said: NDArray[np.int64],
) -> BaseException | None:
    """
    Flush the arrays for which any rank requests it; return as `flush_if_requested`.

    `mine` has this rank's prepared flush of each array, `said` the words of all ranks, of shape
    ``(ranks, arrays * WORDS)``.
    """
    each = said.reshape(group.size, len(arrays), WORDS).transpose(1, 0, 2).tolist()
    told = [[_decode_words(*words) for words in ranks] for ranks in each]
    turns = _core.flush_turns(list(group.nodes), told)
    late = any(_THEN in turn for turn in turns)
    for now in (_FIRST, _THEN) if late else (_FIRST,):
        failure: BaseException | None = None
        for array, turn in zip(arrays, turns, strict=True):
            if array is not None and turn[group.rank] == now:
                try:
                    array.handle.core.flush(True)
                except BaseException as error:  # the other files are flushed nevertheless
                    failure = failure or error
        if group.agree(int(failure is not None)):
            return failure or OtherRankError()
    for array, one, turn in zip(arrays, mine, turns, strict=True):
        shared = one.words[1] == _SHARED and _FIRST in turn
        if array is not None and shared and turn[group.rank] == _SPARED:
            array.handle.core.flushed_by_another(one.written)
    return None


def _decode_words(
    asked: int, owes: int, device: int, inode: int
) -> tuple[bool, bool, tuple[int, int] | None]:
    """Decode the words of a rank about an array: whether it requests a flush, and what it must flush."""
    return bool(asked), owes != _NOTHING, (device, inode) if owes == _SHARED else None
