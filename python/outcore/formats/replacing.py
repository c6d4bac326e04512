"""
A new array that replaces an old one only when it is complete.

Problem: `create` with data creates an array and then writes its elements. If the new array had the name
of the old one from the beginning, a full disk or a kill in between would destroy both.
Approach: the new array is created under a temporary name: next to the old file or folder, or, in a file
or store with other arrays, where the format stages arrays (`formats.find_staging_path`). When it
is durable it replaces the old one in one step.
Invariants: until `Replacement.publish` the old array is untouched, and an error leaves no new one. In a
container, only one array at a time is replaced in this way, by any process.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from outcore import _core, formats
from outcore.errors import OutcoreError
from outcore.formats import durable, locks
from outcore.formats.paths import path_names

__all__ = ["Replacement", "begin"]


class Replacement:
    """
    A new array under a temporary name. A context: if it was not published at the end, it is removed.

    `pairs` are temporary and final path of each file. `inside`: the array is in an existing container.
    """

    def __init__(self, pairs: list[tuple[str, str]], format: str, *, inside: bool) -> None:
        self._pairs, self._inside = pairs, inside
        #: Name of the format.
        self.format = format
        self._stack = contextlib.ExitStack()

    @property
    def paths(self) -> list[str]:
        """Paths under which the new array must be created."""
        return [fresh for fresh, _ in self._pairs]

    def __enter__(self) -> Replacement:
        with contextlib.ExitStack() as stack:
            final = self._pairs[0][1]
            if self._inside:
                stack.enter_context(_lock_container(formats.split_path(final)[0]))
                formats.prepare(final, format=self.format)
            stack.callback(self._discard)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OutcoreError):
            for fresh, final in self._pairs:
                error.speak_of(final, instead_of=fresh)
                grows, outer = formats.split_path(fresh)[0], formats.split_path(final)[0]
                if self._inside and grows != outer:  # in a hidden folder of the store
                    hidden = os.path.basename(os.path.dirname(grows))
                    error.speak_of("", instead_of=os.path.join(hidden, ""))
                else:
                    error.speak_of(os.path.basename(final), instead_of=os.path.basename(fresh))
        self._stack.close()

    def mark_created(self) -> None:
        """Mark the created array as one whose creator is alive."""
        if self._inside or self.format in _LOCKED:
            return
        for fresh, final in self._pairs:
            with durable.os_errors("creating", final):
                fd = durable.hold(fresh)
            if fd is not None:
                self._stack.callback(os.close, fd)

    def publish(self) -> None:
        """Give the complete array, which is durable and closed, its name."""
        if self._inside:
            formats.publish(self._pairs[0][1], format=self.format)
            return
        for fresh, final in self._pairs:
            if os.path.isfile(final):
                with durable.os_errors("setting permissions of", final):
                    os.chmod(fresh, stat.S_IMODE(os.stat(final).st_mode))
            formats.take_place(fresh, final, format=self.format, exclusive=False)

    def _discard(self) -> None:
        with contextlib.suppress(OutcoreError):  # report the first error
            if self._inside:
                formats.discard(self._pairs[0][1], format=self.format)
                return
            for fresh, _ in self._pairs:
                durable.remove_abandoned(fresh)
                if os.path.lexists(fresh):
                    formats.remove(fresh)


# Formats whose library locks the file; a file that it writes is too recent to be taken for abandoned.
_LOCKED = ("hdf5", "netcdf4")


def begin(path: Any, format: str | None, options: Mapping[str, Any]) -> Replacement | None:
    """
    Prepare to replace the array at `path`; None if there is nothing to replace.

    Also None if the name belongs to something else, which `formats.create_info` rejects.
    """
    names = path_names(options["files"] if options.get("files") is not None else path)
    single = isinstance(path, str | os.PathLike) and options.get("files") is None
    if not single:
        return _prepare_beside(names, "raw")
    outer, inner = formats.split_path(names[0])
    if not os.path.lexists(outer) or durable.check_not_special(outer) != formats.is_folder_format(
        outer, format
    ):
        return None
    name = formats.choose_format_name(names[0], format)
    if inner is None:
        return _prepare_beside([outer], name)
    where = formats.find_staging_path(names[0], name)
    return None if where is None else Replacement([(where, names[0])], name, inside=True)


def _prepare_beside(names: list[str], format: str) -> Replacement | None:
    finals = [os.path.realpath(name) for name in names]  # links stay
    if not any(map(os.path.exists, finals)) or any(map(os.path.isdir, finals)) != (
        formats.is_folder_format(names[0], format)
    ):
        return None
    for final in finals:
        if os.path.isdir(final):
            formats.check_replaceable(final)
        _remove_abandoned(final)
    return Replacement([(durable.make_temporary_name(f), f) for f in finals], format, inside=False)


def _remove_abandoned(final: str) -> None:
    """Remove replacements of this file or folder that killed processes left."""
    folder, name = os.path.split(final)
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            found = [e.path for e in entries if e.name.startswith(f".{name}.")]
        for path in found:
            if durable.is_temporary_name(os.path.basename(path)):
                _core.remove_orphan(path)
        # The temporary name of files of all formats: a process that creates one checks, once it has the
        # lock, that the file still has that name. So a recent file may be removed too.
        common = _core.temporary_name(final, "")
        fd = durable.hold(common, look=True)
        if fd is not None:
            try:
                os.unlink(common)
            finally:
                os.close(fd)


@contextlib.contextmanager
def _lock_container(outer: str) -> Iterator[None]:
    """
    Exclude other replacements of arrays in the same container, by other threads too.

    The lock is on a folder, because the HDF5 library needs its lock on the file while elements are
    written.
    """
    folder = os.path.realpath(outer)
    folder = folder if os.path.isdir(folder) else os.path.dirname(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.forbid_nesting(folder, outer, "an array in it is being replaced"))
        with contextlib.suppress(OSError):  # a folder that cannot be read, or locked
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            locks.lock_file(fd, wait=True)
        yield
