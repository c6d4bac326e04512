"""Checks before the first message; a later error would leave the other ranks waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import CollectiveError, UsageError
from outcore.ranks.transport.protocol import Bytes

__all__ = ["check_counts", "check_flat", "check_length", "check_record", "format_ranks"]


def check_record(record: Any) -> NDArray[np.int64]:
    """Return a record; raise if it is not a flat array of int64."""
    array = np.asarray(record)
    if array.dtype != np.int64 or array.ndim != 1:
        raise UsageError(
            f"a record is {array.dtype} with {array.ndim} axes; pass a flat int64 array",
            code="bad-record",
        )
    return np.ascontiguousarray(array)


def check_flat(buffer: Any, name: str, writable: bool = False) -> Bytes:
    """Return the bytes of a buffer without a copy; raise if it is not packed."""
    array = (
        np.asarray(buffer) if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    )
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise UsageError(
            f"{name} of an exchange is {array.dtype} with {array.ndim} axes; pass flat, contiguous "
            "uint8",
            code="bad-exchange",
        )
    if writable and not array.flags.writeable:
        raise UsageError(
            f"{name} of an exchange is read-only; pass memory that can be written to",
            code="bad-exchange",
        )
    return array


def check_counts(
    counts: Sequence[int] | NDArray[np.integer[Any]], size: int, room: int
) -> NDArray[np.int64]:
    """Return the counts; raise unless there is one for each rank and they fit the buffer."""
    array = np.asarray(counts, dtype=np.int64)
    if array.shape != (size,) or (array < 0).any() or int(array.sum()) > room:
        raise UsageError(
            f"counts {array.tolist()[:8]} do not fit an exchange of {size} ranks and a buffer of "
            f"{room} bytes; pass one count for each rank, whose sum fits the buffer",
            code="bad-exchange",
        )
    return array


def check_length(sender: int, receiver: int, sent: int, expected: int) -> None:
    """Raise if a message has another length than was announced."""
    if sent != expected:
        raise CollectiveError(
            f"rank {sender} sent {sent} bytes to rank {receiver}, which expects {expected} bytes; "
            "make the same call on every rank, and report it if outcore made the call",
            code="mismatched-call",
            ranks=(sender, receiver) if sender != receiver else (sender,),
        )


def format_ranks(ranks: Sequence[int]) -> str:
    """
    Format ranks as a short text.

    Examples
    --------
    >>> format_ranks([0, 1, 2, 5])
    'ranks 0-2, 5'
    >>> format_ranks([3])
    'rank 3'
    """
    return f"rank{'s' if len(ranks) != 1 else ''} {format_ranges(sorted(ranks), 20)}"


def format_ranges(ranks: Sequence[int], most: int = 8) -> str:
    """
    Format ascending numbers of ranks, as at most `most` ranges.

    Examples
    --------
    >>> format_ranges([0, 1, 2, 5])
    '0-2, 5'
    """
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][-1] == rank - 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    words = ", ".join("-".join(map(str, span)) for span in spans[:most])
    return words + (", ..." if len(spans) > most else "")
