"""
Internal interface of an open array: `Handle`.

Problem: blocks, lists of indices, collective calls and computations need more of an array than its
users do: the array of the compiled core, the metadata, the requests in progress, the paths of its
files.
Approach: all state of an open array is in one object, the handle. `DiskArray` and `CollectiveArray` are
interfaces to it. Other packages use ``array.handle`` and nothing private.

Invariants: `Handle.adopt` changes the metadata and the core's array together.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from outcore import _core, formats
from outcore.base.hints import Hints
from outcore.base.hints import memory as process_budget
from outcore.base.report.phases import Seconds
from outcore.base.requests import StartedRequests
from outcore.errors import UsageError
from outcore.formats.layout import ArrayInfo, locate_parts, virtual_source

if TYPE_CHECKING:
    from outcore.arrays.layouts import ResidentLayout

__all__ = ["Handle", "is_on_disk"]

_Turn = AbstractContextManager[bool]


class Handle:
    """
    State of an open array on disk, for the packages of outcore.

    `mode` is ``"r"`` or a mode for writing. `options` are those of `outcore.open` with which the
    array was opened. `own_hints` (default: `hints`) are for accesses that this process makes
    without other ranks.
    """

    def __init__(
        self,
        info: ArrayInfo,
        mode: str,
        hints: Hints,
        options: Mapping[str, Any],
        *,
        own_hints: Hints | None = None,
    ) -> None:
        self.info = info
        self.mode = mode
        self.hints = hints
        self.own_hints = hints if own_hints is None else own_hints
        self.options = dict(options)
        # Relative paths must mean the same file after a chdir, and in another process.
        #: Absolute path of the array, with its name in a container.
        self.location = _get_location(info.path)
        #: Absolute paths of the files of a raw array.
        self.files = [os.path.abspath(name) for name in info.extra.get("files", ())]
        self.requests = StartedRequests()
        self.seconds = Seconds()
        #: Phases of which `DiskArray.stats` reports the seconds.
        self.phases: tuple[str, ...] = ("read", "write", "flush")
        #: Layout that outcore chose when it created the array, with its reasons, or None.
        self.layout_choice: ResidentLayout | None = None
        self._remove: weakref.finalize[..., Any] | None = None
        self.is_virtual = virtual_source(info) is not None
        self._turns: dict[int, _Turn] = {}
        if not self.is_virtual:
            self.core: _core.Array = _core.Array(info, self.writable, self.own_hints)
        else:
            from outcore.arrays.virtual.core import open_core

            # A `VirtualCore` has the same methods.
            self.core = open_core(info, self.writable, self.own_hints)

    @property
    def writable(self) -> bool:
        """True if the array was opened for writing."""
        return self.mode != "r"

    def check_open(self, verb: str = "read") -> None:
        """Raise `UsageError` (``closed``) if the array is closed; `verb` is the caller's operation."""
        if self.core.closed:
            raise UsageError(
                f"cannot {verb} {self.info.path!r}: it is closed; open it again with outcore.open()",
                code="closed",
                path=self.info.path,
            )

    def check_writable(self, verb: str) -> None:
        """Raise `UsageError` if the array is closed or was opened for reading (``read-only``)."""
        if not self.writable:
            raise UsageError(
                f"cannot {verb} {self.info.path!r}: it was opened with mode 'r'; use 'r+'",
                code="read-only",
                path=self.info.path,
            )
        self.check_open(verb)

    def compute_sufficient_budget(self, nbytes: int) -> int:
        """Return a memory budget that allows an operation to use `nbytes` and to read any section."""
        held = _core.memory_state()[0]
        limited = (
            self.hints.memory is not None and self.hints.memory <= int(process_budget()) - held
        )
        return max(nbytes + (0 if limited else held), int(self.core.enough()))

    def finish_writes(self, verb: str) -> None:
        """
        Check that the array is writable, and wait for started writes.

        Do not call it while the metadata are locked: those writes may be waiting for the lock.
        """
        self.check_writable(verb)
        self.requests.finish_writes()

    @property
    def _turn(self) -> _Turn:
        """
        Lock for changes of the metadata.

        Each process has its own lock: a thread of the parent may have held the parent's lock at the
        fork. A signal handler that interrupts such a change raises instead of waiting for itself.
        """
        turn = self._turns.setdefault(os.getpid(), threading.RLock())
        if turn._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            _core.refuse_nested(self.info.path, "its shape or its attributes are being changed")
        return turn

    def change_attrs(self, changes: Mapping[str, Any], drop: Collection[str]) -> None:
        """Change attributes on disk: set `changes`, and remove the names in `drop`."""
        if moves := formats.get_format(self.info.format).moves_files:
            self.finish_writes("change the attributes of")
        with self._turn:
            self.check_writable("change the attributes of")
            found = formats.set_attrs(self.info, changes, drop)
            if moves and locate_parts(found) != locate_parts(self.info):
                self.adopt(found)
                return
            # Take only these: other changes of the file need the array to be opened again.
            self.info = replace(self.info, attrs=found.attrs, dims=found.dims)

    @contextlib.contextmanager
    def growing(self, verb: str) -> Iterator[formats.Growing]:
        """Lock the length of the array for all threads and processes while the caller changes it."""
        with self._turn:
            self.check_writable(verb)
            self.core.flush(True)
            with formats.begin_growing(self.info) as array:
                yield array

    def adopt(self, info: ArrayInfo) -> None:
        """Use a new description of the array, after its length has changed."""
        self.core.adopt(info)
        self.info = info

    def close(self) -> None:
        """Wait for started requests, release the files, and delete a temporary array."""
        try:
            self.requests.close()
        finally:
            self.core.close()
            self.info.forget()
            if self._remove is not None:
                self._remove()

    @property
    def is_temporary(self) -> bool:
        """True if the array is deleted when it is closed."""
        return self._remove is not None

    def remove_when_closed(self, remove: weakref.finalize[..., Any]) -> None:
        """
        Make the array temporary: `close` deletes it.

        `remove` is the finalizer of the user's array that deletes it. The array is therefore also
        deleted when it is garbage-collected without having been closed, or when the process ends.
        """
        self._remove = remove

    def keep(self) -> None:
        """Make a temporary array permanent: this handle no longer deletes it."""
        if self._remove is not None:
            self._remove.detach()
            self._remove = None

    def reopen_options(self) -> dict[str, Any]:
        """Return options of `outcore.open` that open this array again, in any process."""
        format = formats.get_format(self.info.format)
        if not format.unrecorded_options:
            return self.options
        return {**format.get_unrecorded_options(self.info), "format": format.name}


def is_on_disk(value: object) -> bool:
    """Return whether an argument is an array on disk, and not one in memory."""
    return isinstance(getattr(value, "handle", None), Handle)


def _get_location(path: str) -> str:
    outer, inner = formats.split_path(path)
    return os.path.abspath(outer) + (f"::{inner}" if inner is not None else "")
