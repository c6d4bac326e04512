"""
Indexes of Zarr shards, for code that reads chunks of shards without the core.

Problem: the core finds chunks of shards itself; chunks of text, and those of shards in a zip file, must
be found here.
Approach: an index is read and checked as a whole, and becomes rows like those of a table of chunks.
Invariants: memory for an index is counted before it is read. An index with a wrong checksum, with
positions outside its shard, or with two chunks that share bytes, is an error.

Specification: Zarr v3, ``sharding_indexed``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import BudgetError, FormatError
from outcore.formats import durable
from outcore.formats.layout import ShardSource

__all__ = ["IndexCache", "crc32c", "describe_shared_bytes", "index"]

_ABSENT = (1 << 64) - 1


def index(
    fd: int,
    begin: int,
    nbytes: int,
    source: ShardSource,
    name: str,
    damaged: Callable[[str], FormatError],
) -> NDArray[np.int64]:
    """
    Return the positions of the chunks of a shard, which is a part of the open file `fd`.

    The result has shape ``(*source.per_shard, 3)``: file offset (-1: not stored), stored bytes, filter
    mask. `name` is that of the shard, for messages; `damaged` makes the `FormatError` of an invalid
    index. `BudgetError`: the index does not fit the memory budget.
    """
    rows, shared = _read(fd, begin, nbytes, source, name, damaged)
    if shared is not None:
        raise damaged(f"in the index of {name} {shared}")
    return rows


class IndexCache:
    """
    Cached indexes of shards, at most `most`, whose memory is counted in the budget.

    The oldest one is dropped first. An index that does not fit the budget is not cached.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._indexes: dict[Hashable, tuple[NDArray[np.int64], _core.Reservation]] = {}

    def read(self, key: Hashable, read: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the index of a key; call `read` if it is not cached."""
        cached = self._indexes.get(key)
        if cached is not None:
            return cached[0]
        rows = read()
        try:
            held = _core.Reservation("index of a shard", rows.nbytes, False)
        except BudgetError:
            return rows
        while len(self._indexes) >= self._most:
            self._indexes.pop(next(iter(self._indexes)), None)
        self._indexes[key] = rows, held
        return rows


def _find_shared_bytes(rows: NDArray[np.int64]) -> str | None:
    """Describe two chunks of an index that share bytes; None if no two do."""
    offset, length = rows[:, 0], rows[:, 1]
    there = np.flatnonzero((offset >= 0) & (length > 0))
    offset, length = offset[there], length[there]
    if (offset[1:] >= offset[:-1] + length[:-1]).all():
        return None  # in order, as most programs write them
    order = np.argsort(offset, kind="stable")
    offset, length = offset[order], length[order]
    wrong = offset[1:] < offset[:-1] + length[:-1]
    if not wrong.any():
        return None
    k = int(wrong.argmax())
    return (
        f"two chunks share bytes: {length[k]} from byte {offset[k]} on and {length[k + 1]} from "
        f"{offset[k + 1]} on"
    )


def describe_shared_bytes(path: str, source: ShardSource) -> str | None:
    """
    Describe two chunks of the shard in a file that share bytes.

    None if there are none, or if the index is damaged, which reading it reports.
    """
    with durable.open_if_exists(path) as fd:
        if fd is None:
            return None
        try:
            return _read(fd, 0, os.fstat(fd).st_size, source, path, _damaged_error)[1]
        except FormatError:
            return None


def _damaged_error(what: str) -> FormatError:
    return FormatError(what, code="chunk-table-damaged")


def _read(
    fd: int,
    begin: int,
    nbytes: int,
    source: ShardSource,
    name: str,
    damaged: Callable[[str], FormatError],
) -> tuple[NDArray[np.int64], str | None]:
    """Return the rows of an index, and a description of two chunks that share bytes."""
    cells = math.prod(source.per_shard)
    size = 16 * cells + (4 if source.index_crc32c else 0)
    if size > nbytes:
        raise damaged(f"{name} has {nbytes} bytes, its index takes {size}")
    at = begin if source.index_at == "start" else begin + nbytes - size
    with _core.Reservation("index of a shard", 5 * size):
        raw = durable.read_at(fd, size, at)
        if len(raw) != size:
            raise damaged(f"the index of {name} is cut off")
        if source.index_crc32c:
            told = int.from_bytes(raw[-4:], "little")
            if crc32c(raw[:-4]) != told:
                raise damaged(f"the index of {name} has a wrong checksum")
        pairs = np.frombuffer(raw[: 16 * cells], "<u8").reshape(cells, 2)
        rows = np.full((cells, 3), (-1, 0, 0), np.int64)
        there = pairs[:, 0] != _ABSENT
        offset, length = pairs[there, 0], pairs[there, 1]
        if ((offset > nbytes) | (length > nbytes) | (offset + length > nbytes)).any():
            raise damaged(f"the index of {name} points outside of it")
        rows[there, 0] = offset.astype(np.int64) + begin
        rows[there, 1] = length.astype(np.int64)
        return rows.reshape(*source.per_shard, 3), _find_shared_bytes(rows)


def crc32c(data: bytes) -> int:
    """
    Return the Castagnoli checksum of little data: the index of a shard.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    table, value = _make_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _make_table() -> list[int]:
    if not _TABLE:
        for byte in range(256):
            value = byte
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
            _TABLE.append(value)
    return _TABLE


_TABLE: list[int] = []
