"""
A new array: where it grows, what it keeps of another one, how it takes its name.

Problem. A job may stop anywhere; whoever opens the name of its result then must not find half an array.
And formats differ in what they can say of an array besides its elements.
Idea. The array is made under a name of its own beside the final one and renamed at the end (decision
0006); inside a container that exists already the format does both (`formats.staged`). What it should
keep (attributes, fill value, axes) is tried together, then with as little left out as the format asks
for.

Invariants. Until `Place.publish` nothing is at the final name that was not there before. What cannot be
kept is told.
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
from outcore.arrays.likeness import fitted, kept_by, tell_lost
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
from outcore.formats.zarr.tree import check_replaceable

__all__ = ["PARTIAL", "WHOLE", "Place", "Target", "discard"]

#: In the names of arrays that grow.
PARTIAL = ".outcore-partial"
#: In the names of files and stores that grow array by array.
WHOLE = ".outcore-whole"
# A longer one tells no format.
_LONGEST_SUFFIX = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where the target grows and where it goes."""

    final: str
    outer: str
    partial: str
    partial_outer: str
    journal: str
    #: The array lies in a container that exists already.
    inside: bool
    overwrite: bool
    #: Of the target, as the user gave it; None if the suffix tells.
    format: str | None

    @classmethod
    def of(cls, dst: str, reads: Sequence[str], overwrite: bool, format: str | None) -> Place:
        """For a target `dst`; refuses what is not to be replaced, and what the job reads."""
        outer, inner = formats.split_path(dst.rstrip("/"))
        if os.path.islink(outer):
            outer = os.path.realpath(outer)  # the link stays, as with `create`
        with durable.os_errors(
            "looking at the folder of the target,", os.path.dirname(outer) or "."
        ):
            os.stat(os.path.dirname(outer) or ".")
        name = outer + (inner.replace("/", ".") if inner else "")
        there = os.path.lexists(outer)
        durable.refuse_special(outer)
        if there and any(
            os.path.realpath(outer) == _real(path) and not _other(path, inner) for path in reads
        ):
            raise UsageError(
                f"{dst!r} is the array that is read; choose another name",
                code="same-file",
                path=dst,
            )
        if inner is None and os.path.isdir(outer):
            check_replaceable(outer)
        tail = f"::{inner}" if inner is not None else ""
        journal = durable.neighbour(name, ".outcore-journal")
        partial = formats.staged(outer + tail, format) if inner is not None and there else None
        if partial is not None:
            begun = formats.split_path(partial)[0]
            return cls(outer + tail, outer, partial, begun, journal, True, overwrite, format)
        stem, suffix = os.path.splitext(outer)
        if len(suffix) > _LONGEST_SUFFIX:
            stem, suffix = outer, ""
        partial = durable.neighbour(stem, f"{PARTIAL}{suffix}")
        return cls(outer + tail, outer, partial + tail, partial, journal, False, overwrite, format)

    def refuse_existing(self, *, resume: bool = False) -> None:
        """Refuse to replace what is there, unless that was said; `resume` as for `existing`."""
        if self.inside:
            try:
                formats.check_place(self.final, format=self.format, exclusive=not self.overwrite)
                return
            except AlreadyExistsError:
                pass
        elif self.overwrite or not os.path.lexists(self.outer):
            return
        raise self.existing(resume=resume)

    def existing(self, *, resume: bool) -> AlreadyExistsError:
        """
        That something is there.

        With `resume` there is no journal of a job that would go on: it may have ended, but nothing tells
        whether the array that is there is its result.
        """
        if resume:
            what = (
                ", and there is no journal of an interrupted job to go on with. If it is the result of "
                "this call, which has ended then, open it; if not, pass overwrite=True to make it again"
            )
        else:
            what = "; pass overwrite=True to replace it"
        return AlreadyExistsError(
            f"{self.final!r} exists already{what}",
            code="already-exists",
            path=self.final,
            errno=errno.EEXIST,
        )

    @property
    def left(self) -> str:
        """What a journal says of it, for `discard`."""
        return self.final if self.inside else self.partial

    def discard(self) -> None:
        """Remove what an earlier attempt left."""
        discard(self.left, self.format)

    @property
    def hidden(self) -> bool:
        """Whether it grows in a file or folder of its own, which is nobody else's until the end."""
        return self.partial_outer != self.outer

    def prepare(self) -> None:
        """Before it is created."""
        self.discard()
        if self.inside:
            formats.prepare(self.final, format=self.format)

    def begun(self) -> int:
        """The inode of what gets a name at the end."""
        made = self._folder(self.partial, self.partial_outer)
        return os.stat(made if os.path.isdir(made) else self.partial_outer).st_ino

    def is_published(self, inode: int) -> bool:
        """Whether the folder that was made has its name already; what it replaced may be there still."""
        named = self._folder(self.final, self.outer)
        return os.path.isdir(named) and os.stat(named).st_ino == inode

    def _folder(self, path: str, outer: str) -> str:
        """Where the array is itself, inside a container that consists of folders; else `outer`."""
        inner = formats.split_path(path)[1] if self.inside else None
        return outer if inner is None else os.path.join(outer, inner.strip("/"))

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Errors of the block tell the name that the target will have."""
        try:
            yield
        except OutcoreError as error:
            if self.inside and self.hidden:
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
            check_replaceable(self.outer)  # hours have passed
        formats.take_place(
            self.partial_outer, self.outer, format=self.format, exclusive=not self.overwrite
        )


def discard(path: str, format: str | None) -> None:
    """
    Remove an unfinished array, and what was to become it, by `Place.left`.

    Raises
    ------
    OutcoreError
        It is there, and cannot be removed.
    """
    try:
        _discard(path, format)
    except FormatError:
        pass  # the container is not what it was: nothing of ours is in it
    except StorageError as error:
        if error.code != "not-found":
            raise


def _discard(path: str, format: str | None) -> None:
    outer, inner = formats.split_path(path)
    name = os.path.basename(outer)
    if PARTIAL in name or (inner is None and WHOLE in name):
        durable.remove_begun(outer)
        if os.path.lexists(outer):
            formats.remove(outer)
    elif inner is not None and os.path.lexists(outer):
        formats.discard(path, format=format)


def _real(path: str) -> str:
    return os.path.realpath(formats.split_path(path)[0])


def _other(path: str, inner: str | None) -> bool:
    """Whether `inner` names another array of the same container."""
    here = formats.split_path(path)[1]
    return inner is not None and here is not None and inner != here


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be made, and where."""

    result: Result
    place: Place
    #: As the user gave it; None if the suffix tells.
    format: str | None
    #: For `outcore.create`, beyond what the result should keep.
    options: Mapping[str, Any]

    def hints(self, memory: int) -> Hints:
        """How the new array is opened."""
        # The file is nobody else's until it gets its name. The job reads only what it has stored.
        return Hints.of(Hints(memory=memory, exclusive=self.place.hidden, missing="error"))

    def reopen(self, memory: int) -> DiskArray:
        """What an interrupted job left, to go on with."""
        words: dict[str, Any] = {} if self.format is None else {"format": self.format}
        if not os.path.lexists(self.place.partial_outer):
            raise self._gone()
        shape, dtype = self.result.shape, self.result.dtype
        if formats.format_of_new(self.place.final, self.format) == "raw":
            words = {**words, "dtype": dtype, "shape": shape, **self.options}
        try:
            target: DiskArray = open(self.place.partial, "r+", hints=self.hints(memory), **words)
        except FormatError as error:
            if error.code == "no-such-array":
                raise self._gone() from error
            raise
        if target.shape != shape or target.dtype != dtype:
            target.close()
            raise UsageError(
                f"the unfinished {self.place.final!r} is not what the interrupted job left; start again "
                "without resume",
                code="other-job",
                path=self.place.final,
            )
        return target

    def _gone(self) -> StorageError:
        return StorageError(
            f"the unfinished {self.place.final!r} is gone; start again without resume",
            code="not-found",
            path=self.place.final,
            errno=2,
        )

    def kept(self, format: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        """What it should keep as far as a format can express it, and what that cannot, in words."""
        kept = {
            k: v for k, v in self.result.kept.items() if v is not None and k not in self.options
        }
        if "shards" in self.options:
            kept.pop("chunks", None)
        elif "chunks" in self.options and not _divides(self.options["chunks"], kept.get("shards")):
            kept.pop("shards", None)
        return fitted(kept, format, self.result.dtype)

    def create(self, memory: int) -> DiskArray:
        """An empty array that has of what it should keep what its format can."""
        self.place.prepare()
        format = formats.format_of_new(self.place.final, self.format)
        kept, unfit = self.kept(format)

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

        target, lost = kept_by(make, kept)
        tell_lost(target, lost, kept, self.place.final, self.result.source, unfit)
        return target


def _divides(chunks: Any, shards: Sequence[int] | None) -> bool:
    """Whether shards hold whole chunks, as the user says these: one length, or one for each axis."""
    if shards is None or isinstance(chunks, str):
        return False
    each = chunks if isinstance(chunks, Sequence) else [chunks] * len(shards)
    return len(each) == len(shards) and all(
        isinstance(chunk, int) and chunk > 0 and shard % chunk == 0
        for chunk, shard in zip(each, shards, strict=True)
    )
