"""
A new array that replaces an old one only when it is complete.

Problem. `create` with data makes an array and then writes its elements. If the new array had the name
of the old one from the beginning, a full disk or a kill in between would leave neither of them.
Idea. The new array is made under a temporary name: beside the old file or folder, or, in a file or store
with other arrays, where the format stages arrays (`formats.staged`). When it is on the disk it takes the
place of the old one in one step.
Invariants. Until `Replacement.publish` the old array is untouched, and after an error nothing new is
left. Inside a container only one array at a time is replaced in this way, by whatever process.
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
from outcore.formats.zarr.tree import check_replaceable

__all__ = ["Replacement", "begin"]


class Replacement:
    """
    A new array under a temporary name. A context: what was not published by its end is removed.

    Parameters
    ----------
    pairs
        Temporary and final path of each file.
    format
        Name of the format.
    inside
        The array lies in a container that exists already.
    """

    def __init__(self, pairs: list[tuple[str, str]], format: str, *, inside: bool) -> None:
        self._pairs, self._inside = pairs, inside
        #: Name of the format.
        self.format = format
        self._stack = contextlib.ExitStack()

    @property
    def paths(self) -> list[str]:
        """Where the new array is to be created."""
        return [fresh for fresh, _ in self._pairs]

    def __enter__(self) -> Replacement:
        with contextlib.ExitStack() as stack:
            final = self._pairs[0][1]
            if self._inside:
                stack.enter_context(_alone(formats.split_path(final)[0]))
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

    def created(self) -> None:
        """The array is there: mark it as one whose maker lives."""
        if self._inside or self.format in _LOCKED:
            return
        for fresh, final in self._pairs:
            with durable.os_errors("creating", final):
                fd = durable.hold(fresh)
            if fd is not None:
                self._stack.callback(os.close, fd)

    def publish(self) -> None:
        """Give the complete array, which is on the disk and closed, its name."""
        if self._inside:
            formats.publish(self._pairs[0][1], format=self.format)
            return
        for fresh, final in self._pairs:
            if os.path.isfile(final):
                with durable.os_errors("setting permissions of", final):
                    os.chmod(fresh, stat.S_IMODE(os.stat(final).st_mode))
            formats.take_place(fresh, final, format=self.format, exclusive=False)

    def _discard(self) -> None:
        with contextlib.suppress(OutcoreError):  # the first error is the one to tell
            if self._inside:
                formats.discard(self._pairs[0][1], format=self.format)
                return
            for fresh, _ in self._pairs:
                durable.remove_begun(fresh)
                if os.path.lexists(fresh):
                    formats.remove(fresh)


# Whose library locks the file itself; what it writes is too young to be taken for abandoned.
_LOCKED = ("hdf5", "netcdf4")


def begin(path: Any, format: str | None, options: Mapping[str, Any]) -> Replacement | None:
    """
    Prepare to replace the array at `path`; None if there is nothing to be replaced.

    None, too, if the name is that of something else, which `formats.create_info` refuses to replace.
    """
    names = path_names(options["files"] if options.get("files") is not None else path)
    single = isinstance(path, str | os.PathLike) and options.get("files") is None
    if not single:
        return _beside(names, "raw")
    outer, inner = formats.split_path(names[0])
    if not os.path.lexists(outer) or durable.refuse_special(outer) != formats.is_folder_format(
        outer, format
    ):
        return None
    name = formats.format_of_new(outer, format)
    if inner is None:
        return _beside([outer], name)
    where = formats.staged(names[0], name)
    return None if where is None else Replacement([(where, names[0])], name, inside=True)


def _beside(names: list[str], format: str) -> Replacement | None:
    finals = [os.path.realpath(name) for name in names]  # links stay
    if not any(map(os.path.exists, finals)) or any(map(os.path.isdir, finals)) != (
        formats.is_folder_format(names[0], format)
    ):
        return None
    for final in finals:
        if os.path.isdir(final):
            check_replaceable(final)
        _remove_abandoned(final)
    return Replacement([(durable.begun_name(f), f) for f in finals], format, inside=False)


def _remove_abandoned(final: str) -> None:
    """Remove what killed processes left that were to replace this file or folder."""
    folder, name = os.path.split(final)
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            found = [e.path for e in entries if e.name.startswith(f".{name}.")]
        for path in found:
            if durable.is_begun(os.path.basename(path)):
                _core.remove_orphan(path)
        # The name that files of all formats are made under: whoever makes one now looks, once it has the
        # lock, whether the file still has that name. So it may be young.
        common = _core.temporary_name(final, "")
        fd = durable.hold(common, look=True)
        if fd is not None:
            try:
                os.unlink(common)
            finally:
                os.close(fd)


@contextlib.contextmanager
def _alone(outer: str) -> Iterator[None]:
    """
    Keep others, threads too, from replacing an array in the same container in this way.

    The lock is on a folder: that of the HDF5 library on the file is wanted while elements are written.
    """
    folder = os.path.realpath(outer)
    folder = folder if os.path.isdir(folder) else os.path.dirname(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.once(folder, outer, "an array in it is being replaced"))
        with contextlib.suppress(OSError):  # a folder that cannot be read, or locked
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            locks.lock_file(fd, wait=True)
        yield
