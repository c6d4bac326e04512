"""
A collective read of one array, where every rank has its section in the page cache: the fast path.

Problem. A rank reads a few megabytes out of the page cache in half a millisecond. Preparing an item,
hints and a whole record takes it a tenth of that, for other ranks that need none of it.

Idea. The rank reads first, and sends a brief record: that it has read, and of which array, the same
words each time. If all ranks send that, the call is complete. If not, they take the general path
(`call.run`), which begins with the records they have exchanged.

Invariants. Each rank decides by itself whether it tries the fast path. What it does after the exchange
follows from the records of all ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective import items, planning
from outcore.collective.agreement import Since, Unsure, brief
from outcore.collective.call import Attempt, run
from outcore.collective.independent import read_if_cheap
from outcore.collective.planning import METHODS
from outcore.disk import DiskArray
from outcore.formats.layout import ArrayInfo
from outcore.transport import Transport
from outcore.transport.timeouts import DeferredInterrupt

__all__ = ["Reader"]

_CALL = "read_all"


class Reader:
    """
    The fast path of one array: what a rank says after it has read its section.

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
        # What a write that was started before will change must not be read early.
        self._group.in_flight.finish(self._group)
        head, got, attempt = None, None, None
        # The other ranks wait for all of a collective.
        with DeferredInterrupt():
            written = _core.writes()
            try:
                head = self._head(array, method) if self._since.quiet(written) else None
                if head is not None:
                    got = read_if_cheap(self._group, array, key, out, method)
                    attempt = Attempt()
            except BaseException as error:
                attempt = Attempt(failure=error)
            if head is not None and got is not None:
                # Only now is it known whether there is another step, in which to say what failed.
                with Unsure(self._group, _CALL):
                    heads = _core.Records(self._group.allgather(head))
                    done = heads.settled(True)
                if done:
                    self._since.synchronised(written)
                    return got
                attempt = Attempt(heads)
            # What was read early is memory that is there.
            to = got if out is None and isinstance(got, np.ndarray) else out

            def bring() -> list[items.Item]:
                return [items.reading(array, key, to)]

            return run(
                self._group, _CALL, bring, method, lambda: array.hints, one=True, attempt=attempt
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
