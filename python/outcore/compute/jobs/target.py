"""
New arrays: their temporary names, the properties that they take over, and their publication.

Problem. A job may stop anywhere, and a program that opens the name of its result then must not find
half an array. Formats also differ in the properties of an array that they can store.
Idea. The array is created under a temporary name next to the final one and renamed at the end
(decision 0006); inside an existing container the format does both (`formats.find_staging_path`). The
properties to keep (attributes, fill value, axes) are tried together, then without those that the
format rejects.

Invariants. Until `TargetPlace.publish`, the final name refers to what it referred to before. A warning
names what cannot be kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.likeness import create_with_most, fit_layout, warn_lost
from outcore.arrays.opening import create, open
from outcore.base.hints import Hints
from outcore.compute.jobs.operation import Result
from outcore.errors import (
    AlreadyExistsError,
    FormatError,
    OutcoreError,
    StorageError,
    UsageError,
)
from outcore.formats import durable

__all__ = [
    "PARTIAL",
    "WHOLE",
    "Target",
    "TargetPlace",
    "discard",
    "existing_error",
    "find_target",
    "make_absolute",
]

#: In the names of arrays that grow.
PARTIAL = ".outcore-partial"
#: In the names of files and stores that grow array by array.
WHOLE = ".outcore-whole"
# A longer suffix does not determine a format.
_LONGEST_SUFFIX = 16


def make_absolute(path: str) -> str:
    """Return the path of an array with that of its file in full, and links resolved."""
    outer, inner = formats.split_path(path)
    return os.path.realpath(outer) + (f"::{inner}" if inner is not None else "")


def find_target(dst: str) -> tuple[str, str | None]:
    """Return the file of a target, and the name in it; raise if the folder does not exist."""
    outer, inner = formats.split_path(dst.rstrip("/"))
    if os.path.islink(outer):
        outer = os.path.realpath(outer)  # the link stays, as with `create`
    folder = os.path.dirname(outer) or "."
    with durable.os_errors("checking the folder of the target,", folder):
        os.stat(folder)
    return outer, inner


def existing_error(path: str, *, resume: bool) -> AlreadyExistsError:
    """
    Return the error for an existing target.

    With `resume` there is no journal of a job to continue: it may have ended, but nothing shows
    whether what exists is its result.
    """
    what = "; pass overwrite=True to replace it"
    if resume:
        what = (
            ", and there is no journal of an interrupted job to resume; if it is the result of this "
            "call, which has then ended, open it, otherwise pass overwrite=True to make it again"
        )
    return AlreadyExistsError(
        f"{path!r} already exists{what}", code="already-exists", path=path, errno=errno.EEXIST
    )


@dataclass(frozen=True, slots=True)
class TargetPlace:
    """Temporary and final place of a target."""

    final: str
    outer: str
    partial: str
    partial_outer: str
    journal: str
    #: Whether the array is in an existing container.
    inside: bool
    overwrite: bool
    #: Format of the target as the user gave it; None if the suffix determines it.
    format: str | None

    @classmethod
    def of(cls, dst: str, reads: Sequence[str], overwrite: bool, format: str | None) -> TargetPlace:
        """Return the place for a target `dst`; raise if it must not be replaced, or the job reads it."""
        outer, inner = find_target(dst)
        name = outer + (inner.replace("/", ".") if inner else "")
        there = os.path.lexists(outer)
        durable.check_not_special(outer)
        if there and any(_is_same_array(path, outer, inner) for path in reads):
            raise UsageError(
                f"{dst!r} is an input of the call; choose another name",
                code="same-file",
                path=dst,
            )
        if inner is None and os.path.isdir(outer):
            formats.check_replaceable(outer)
        tail = f"::{inner}" if inner is not None else ""
        journal = durable.make_sibling_path(name, ".outcore-journal")
        partial = (
            formats.find_staging_path(outer + tail, format) if inner is not None and there else None
        )
        if partial is not None:
            begun = formats.split_path(partial)[0]
            return cls(outer + tail, outer, partial, begun, journal, True, overwrite, format)
        stem, suffix = os.path.splitext(outer)
        if len(suffix) > _LONGEST_SUFFIX:
            stem, suffix = outer, ""
        partial = durable.make_sibling_path(stem, f"{PARTIAL}{suffix}")
        return cls(outer + tail, outer, partial + tail, partial, journal, False, overwrite, format)

    def check_existing(self, *, resume: bool = False) -> None:
        """Raise if an array exists that must not be replaced; `resume` as for `existing_error`."""
        if self.inside:
            try:
                formats.check_place(self.final, format=self.format, exclusive=not self.overwrite)
                return
            except AlreadyExistsError:
                pass
        elif self.overwrite or not os.path.lexists(self.outer):
            return
        raise existing_error(self.final, resume=resume)

    @property
    def listed_path(self) -> str:
        """Path that a journal lists, for `discard`."""
        return self.final if self.inside else self.partial

    def discard(self) -> None:
        """Remove what an earlier attempt left."""
        discard(self.listed_path, self.format)

    @property
    def is_hidden(self) -> bool:
        """Whether the array grows in its own file or folder, which nothing else uses until the end."""
        return self.partial_outer != self.outer

    def prepare(self) -> None:
        """Prepare the place before the array is created."""
        self.discard()
        if self.inside:
            formats.prepare(self.final, format=self.format)

    def find_inode(self) -> int:
        """Return the inode of the file or folder that gets a name at the end."""
        made = self._folder(self.partial, self.partial_outer)
        return os.stat(made if os.path.isdir(made) else self.partial_outer).st_ino

    def is_published(self, inode: int) -> bool:
        """Return whether the new folder already has its name; what it replaced may still exist."""
        named = self._folder(self.final, self.outer)
        return os.path.isdir(named) and os.stat(named).st_ino == inode

    def _folder(self, path: str, outer: str) -> str:
        """Return the folder of the array, in a container that consists of folders; otherwise `outer`."""
        inner = formats.split_path(path)[1] if self.inside else None
        return outer if inner is None else os.path.join(outer, inner.strip("/"))

    @contextlib.contextmanager
    def rename_in_errors(self) -> Iterator[None]:
        """Replace the temporary name by the final one in errors of the block."""
        try:
            yield
        except OutcoreError as error:
            if self.inside and self.is_hidden:
                ends = ["", os.path.join(os.path.basename(os.path.dirname(self.partial_outer)), "")]
            elif self.inside:
                ends = [os.path.basename(self.final), os.path.basename(self.partial)]
            else:
                ends = [os.path.basename(self.outer), os.path.basename(self.partial_outer)]
            error.speak_of(*ends)
            raise

    def publish(self) -> None:
        """Give the complete array its name."""
        if self.inside:
            formats.publish(self.final, format=self.format, exclusive=not self.overwrite)
            return
        if os.path.isdir(self.outer):
            formats.check_replaceable(self.outer)  # hours have passed
        formats.take_place(
            self.partial_outer, self.outer, format=self.format, exclusive=not self.overwrite
        )


def discard(path: str, format: str | None) -> None:
    """Remove an unfinished array, by `TargetPlace.listed_path`, and staging files; raise if it stays."""
    try:
        _discard(path, format)
    except FormatError:
        pass  # the container was replaced, and holds nothing of this job
    except StorageError as error:
        if error.code != "not-found":
            raise


def _discard(path: str, format: str | None) -> None:
    outer, inner = formats.split_path(path)
    name = os.path.basename(outer)
    if PARTIAL in name or (inner is None and WHOLE in name):
        durable.remove_abandoned(outer)
        if os.path.lexists(outer):
            formats.remove(outer)
    elif inner is not None and os.path.lexists(outer):
        formats.discard(path, format=format)


def _is_same_array(path: str, outer: str, inner: str | None) -> bool:
    """Return whether a path names the array `inner` of a container, or the container itself."""
    file, here = formats.split_path(path)
    is_other = inner is not None and here is not None and inner != here
    return os.path.realpath(file) == os.path.realpath(outer) and not is_other


@dataclass(frozen=True, slots=True)
class Target:
    """Array to create, and its place."""

    result: Result
    place: TargetPlace
    #: Format as the user gave it; None if the suffix determines it.
    format: str | None
    #: Options of `outcore.create`, in addition to the properties that the result should keep.
    options: Mapping[str, Any]

    def hints(self, memory: int) -> Hints:
        """Return the hints with which the new array is opened."""
        # Nothing else uses the file until it gets its name. The job reads only what it has stored.
        return Hints.of(Hints(memory=memory, exclusive=self.place.is_hidden, missing="error"))

    def reopen(self, memory: int) -> DiskArray:
        """Open the array that an interrupted job left."""
        words: dict[str, Any] = {} if self.format is None else {"format": self.format}
        if not os.path.lexists(self.place.partial_outer):
            raise self._missing_error()
        shape, dtype = self.result.shape, self.result.dtype
        if formats.choose_format(self.place.final, self.format).unrecorded_options:
            words = {**words, "dtype": dtype, "shape": shape, **self.options}
        try:
            target: DiskArray = open(self.place.partial, "r+", hints=self.hints(memory), **words)
        except FormatError as error:
            if error.code == "no-such-array":
                raise self._missing_error() from error
            raise
        if target.shape != shape or target.dtype != dtype:
            target.close()
            raise UsageError(
                f"the unfinished {self.place.final!r} is not the array that the interrupted job "
                "left; start again without resume=True",
                code="other-job",
                path=self.place.final,
            )
        return target

    def _missing_error(self) -> StorageError:
        return StorageError(
            f"the unfinished {self.place.final!r} no longer exists; start again without resume=True",
            code="not-found",
            path=self.place.final,
            errno=2,
        )

    def select_kept(self, format: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the properties to keep that a format can store, and descriptions of the others."""
        kept = {
            k: v for k, v in self.result.kept.items() if v is not None and k not in self.options
        }
        if "shards" in self.options:
            kept.pop("chunks", None)
        elif "chunks" in self.options and not _is_divisible(
            self.options["chunks"], kept.get("shards")
        ):
            kept.pop("shards", None)
        return fit_layout(kept, format, self.result.dtype)

    def create(self, memory: int) -> DiskArray:
        """Create an empty array with the properties to keep that its format can store."""
        self.place.prepare()
        format = formats.choose_format_name(self.place.final, self.format)
        kept, unfit = self.select_kept(format)

        def make(words: Mapping[str, Any]) -> DiskArray:
            made: DiskArray = create(
                self.place.partial,
                self.result.shape,
                self.result.dtype,
                overwrite=self.place.overwrite and self.place.inside,
                hints=self.hints(memory),
                format=format,
                **words,
                **self.options,
            )
            return made

        target, lost = create_with_most(make, kept)
        warn_lost(target, lost, kept, self.place.final, self.result.source, unfit)
        return target


def _is_divisible(chunks: Any, shards: Sequence[int] | None) -> bool:
    """Return whether shards hold whole chunks; `chunks` is one length, or one for each axis."""
    if shards is None or isinstance(chunks, str):
        return False
    each = chunks if isinstance(chunks, Sequence) else [chunks] * len(shards)
    return len(each) == len(shards) and all(
        isinstance(chunk, int) and chunk > 0 and shard % chunk == 0
        for chunk, shard in zip(each, shards, strict=True)
    )
