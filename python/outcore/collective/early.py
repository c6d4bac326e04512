"""
A collective read of one array of which everybody has his section at hand: the short way.

Problem. A few megabytes out of the page cache take half a millisecond. To prepare an item, wishes and a
whole record takes each rank a tenth of that, when the processor's caches are full of data instead of
code, and it is for others who want none of it.

Idea. The rank reads first, and says no more than that it did and of which array: a brief record, the
same words each time. If all say so, that was the call. If not, they go the long way (`call.run`), and
begin with what they have said.

Invariants. Whether it goes the short way is a rank's own affair; what it does when the records are there
follows from what all have said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective import items, planning
from outcore.collective.agreement import Since, Unsure, brief
from outcore.collective.alone import read_soon
from outcore.collective.call import Early, run
from outcore.collective.choose import METHODS
from outcore.disk import DiskArray
from outcore.formats.layout import ArrayInfo
from outcore.transport import Transport
from outcore.transport.watch import Held

__all__ = ["Reader"]

_CALL = "read_all"


class Reader:
    """
    What a rank says of an array of which it has read a section.

    Parameters
    ----------
    group
        The ranks that opened it.
    """

    def __init__(self, group: Transport) -> None:
        self._group = group
        self._since = Since.of(group)
        self._info: ArrayInfo | None = None
        self._heads: dict[str, NDArray[np.int64]] = {}

    def read(self, array: DiskArray, key: Any, out: Any, method: Any) -> Any:
        """Read a section together with the other ranks: `CollectiveArray.read_all`."""
        head, got, early = None, None, None
        # The other ranks wait for all of a collective.
        with Held():
            written = _core.writes()
            try:
                head = self._head(array, method) if self._since.quiet(written) else None
                if head is not None:
                    got = read_soon(self._group, array, key, out, method)
                    early = Early()
            except BaseException as error:
                early = Early(failure=error)
            if head is not None and got is not None:
                # Only now is it known whether there is another step, in which to say what failed.
                with Unsure(self._group, _CALL):
                    heads = _core.Records(self._group.allgather(head))
                    done = planning.settled(heads, one=True)
                if done:
                    self._since.met(written)
                    return got
                early = Early(heads)
            # What was read early is memory that is there.
            to = got if out is None and isinstance(got, np.ndarray) else out

            def bring() -> list[items.Item]:
                return [items.reading(array, key, to)]

            return run(
                self._group, _CALL, bring, method, lambda: array.hints, one=True, early=early
            )

    def _head(self, array: DiskArray, method: Any) -> NDArray[np.int64] | None:
        """Words for "I have read it"; None if not each rank is to read what it wants."""
        if self._info is not array.info:
            self._info, self._heads = array.info, {}
        if method not in METHODS or method == "two-phase":
            return None
        head = self._heads.get(method)
        if head is None:
            if method == "auto" and planning.few_touch_files(array.hints, self._group.size):
                return None
            head = brief(_CALL, [METHODS.index(method)], items.name_of(array))
            self._heads[method] = head
        return head
