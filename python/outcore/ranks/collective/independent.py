"""Independent accesses: each rank reads or writes its own section, without messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.ranks.agreement import OtherRankError
from outcore.ranks.collective.items import Item
from outcore.ranks.transport import Transport

__all__ = ["LANES", "access_independently"]

# Number of small sections that a rank reads from the disk at the same time.
LANES = 4
# Minimum number of bytes of a file that are sent to the disk in one part, while others are still read;
# and minimum multiple of the largest gap that is cheaper to write than to skip, because no gap between
# two parts is written.
_SENT, _GAPS = 2 << 20, 2


def access_independently(
    group: Transport,
    mine: list[Item],
    method: str,
    *,
    write: bool,
    send: Sequence[DiskArray] = (),
) -> BaseException | None:
    """
    Let each rank access its own sections.

    Returns this rank's failure (`OtherRankError` if it has none) if any rank failed. `send` are arrays
    that will be flushed after all ranks have written, and in which no other process writes between the
    sections of this rank. Each part that it writes starts to go to the disk while the next part, and
    data that others change, are still being read.
    """
    failure: BaseException | None = None
    some = [item for item in mine if item.nbytes]
    try:
        if write or method == "sieve":
            for item in some:
                core = item.core.sieving() if method == "sieve" else item.core
                if not write:
                    core.read(item.key, item.given)
                elif any(item.array is array for array in send) and core.leaves_gaps(item.key):
                    for part in _cut_parts(item):
                        here: tuple[Any, ...] = (..., *part)
                        core.write_part(item.key, part, item.given[here])
                        core.before_flush(send=True)
                else:  # sections without gaps are sent to the disk by the write itself
                    core.write(item.key, item.given)
        else:
            wanted = [(item.core, item.key, item.given) for item in some]
            _core.read_many(wanted, lanes=LANES, turn=(group.rank, group.size))
    except BaseException as error:
        failure = error
    if group.agree(int(failure is not None)):
        return failure or OtherRankError()
    return None


def _cut_parts(item: Item) -> Iterator[tuple[slice, ...]]:
    """Yield the parts of an item to send to the disk, cut along the slowest axis in the file."""
    _, _, ndim, *words = item.core.descriptor()
    place = {axis[0]: k for k, axis in enumerate(item.axes) if axis is not None}
    whole = [slice(0, n) for n in item.given.shape]
    sent, stride = max(_SENT, _GAPS * item.core.disk()[0]), item.array.nbytes
    for axis in words[:ndim]:
        stride //= item.array.shape[axis]
        _, count, step = item.section[3 * axis : 3 * axis + 3]
        if axis in place and count > 1:
            each = max(sent // (step * stride), 1)
            for first in range(0, count, each):
                whole[place[axis]] = slice(first, min(first + each, count))
                yield tuple(whole)
            return
    yield tuple(whole)
