"""`CollectiveArray`: an array on disk that several ranks opened together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from outcore.collective import items, many
from outcore.collective.many import Method
from outcore.collective.report import CollectiveReport
from outcore.disk import DiskArray, Mode
from outcore.formats.layout import ArrayInfo
from outcore.hints import Hints
from outcore.transport import Transport

__all__ = ["CollectiveArray"]


class CollectiveArray(DiskArray):
    """
    An array on disk, opened by the ranks of a communicator. Made by ``outcore.open(..., comm=)``.

    What a `DiskArray` does, each rank does on its own. Methods that end in ``_all`` are collective:
    every rank calls them, in the same order.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> np.save("field.npy", np.arange(24).reshape(4, 6))
    >>> def columns(comm):
    ...     with outcore.open("field.npy", comm=comm) as a:
    ...         return a.read_all(np.s_[:, comm.rank :: comm.size]).sum()
    >>> [int(s) for s in SimWorld(3).run(columns)]
    [84, 92, 100]
    """

    def __init__(
        self,
        info: ArrayInfo,
        mode: Mode,
        hints: Hints,
        options: Mapping[str, Any],
        transport: Transport,
    ) -> None:
        self._transport = transport
        # Where it lies, as the ranks agreed when they opened it.
        self._place = 0
        super().__init__(info, mode, hints, options)

    def _own_hints(self) -> Hints:
        # That nobody else writes is said of all ranks together: each of them is somebody else.
        if self._hints.exclusive and self._transport.size > 1:
            return replace(self._hints, exclusive=False)
        return self._hints

    @property
    def transport(self) -> Transport:
        """The ranks that opened it."""
        return self._transport

    def read_all(
        self, key: Any = ..., *, out: NDArray[Any] | None = None, method: Method = "auto"
    ) -> Any:
        """
        Read a section together with the other ranks.

        Every rank must call this, each with its own key (or an empty one, such as ``[0:0]``).
        Requests are combined, so that each byte is read from disk once.

        Parameters
        ----------
        key
            What this rank wants: integers, slices, ``...``, None.
        out
            Array to fill, of the section's shape and the array's dtype. Strided arrays are fine.
        method
            ``"direct"`` (each rank on its own), ``"sieve"`` (the same, through windows),
            ``"two-phase"`` (owners read what the ranks want together, the ranks exchange), or
            ``"auto"``: the one that costs least; `explain_all` says why. All ranks the same.

        Returns
        -------
        numpy.ndarray or scalar
            `out`, or a new array in the order of the file.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed, or called something else; ``ranks`` names them, the
            cause of a rank's own failure follows as ``__cause__``. `out` is then undefined.

        Notes
        -----
        What any rank wrote through outcore before it made this call, all ranks see. What it wrote
        by other means they see if they met in between (``comm.barrier()``).

        Two-phase needs three slots besides the result, of at most 8 MiB each (a block of an encoded
        array, if that is larger); where a quarter of what is free of the memory budget is less, two
        of that size. They count in it, and are kept for the next call.

        Thakur, Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
        Arrays", section 3.1.
        """

        def bring() -> list[items.Item]:
            return [items.reading(self, key, out)]

        return many.run(self._transport, "read_all", bring, method, lambda: self._hints, one=True)

    def write_all(self, key: Any, value: Any, *, method: Method = "auto") -> None:
        """
        Write a section together with the other ranks.

        Where ranks write the same element the highest rank wins, or with `Hints(overlap="error")`
        all raise. Nothing outside the sections changes, also if other programs write there at the
        same time, except what lies between elements of different ranks in the same tile: two-phase may
        read that, and write it back a few rounds later.

        Parameters
        ----------
        key
            Where this rank's values go; may be empty.
        value
            Broadcast and cast as NumPy does on assignment.
        method
            As for `read_all`.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed, or called something else. Each block of the file is
            then old or new; where ranks write into the same block with ``method="direct"``, each
            rank's part of it is.

        Notes
        -----
        Thakur, Choudhary, section 3.2. A value that has to be cast is cast whole.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> outcore.create("field.npy", (4, 3), "i8").close()
        >>> def fill(comm):
        ...     with outcore.open("field.npy", "r+", comm=comm) as a:
        ...         a.write_all(np.s_[comm.rank :: comm.size], comm.rank)
        >>> _ = SimWorld(2).run(fill)
        >>> outcore.open("field.npy")[:, 0]
        array([0, 1, 0, 1])
        """

        def bring() -> list[items.Item]:
            return [items.writing(self, key, value)]

        many.run(self._transport, "write_all", bring, method, lambda: self._hints, one=True)

    def explain_all(
        self, key: Any = ..., *, write: bool = False, method: Method = "auto"
    ) -> CollectiveReport:
        """
        Tell what `read_all` (or `write_all`) would do, without doing it. Collective.

        Returns
        -------
        CollectiveReport
            Equal on all ranks.
        """

        def bring() -> list[items.Item]:
            if write:
                self._must_write("write to")
            return [items.looking(self, key)]

        return many.explain(self._transport, bring, method, self._hints, write=write)

    def flush_all(self) -> None:
        """
        Make durable what the ranks wrote. Collective: all return, or all raise.

        Raises
        ------
        CollectiveError
            On all ranks, if any rank failed, flushed another array, or called something else
            (``mismatched-call``).
        """

        def work() -> list[int]:
            self.flush()
            return [self._place]

        def tell() -> str:
            return f"flush_all of {self.path!r}"

        many.together(self._transport, "flush_all", work, tell, same=1)
