"""
A new array: where it grows, what it keeps of another one, how it takes its name.

Problem. A job may stop anywhere; whoever opens the name of its result then must not find half an array.
And formats differ in what they can say of an array besides its elements.
Idea. The array is made under a name of its own beside the final one and renamed at the end (decision
0006); inside a container that exists already the format does both (`formats.staged`), or it is made in
place (Zarr). What it should keep (attributes, fill value, axes) is tried together, then with as little
left out as the format asks for.

Invariants. Until `Place.publish` nothing is at the final name that was not there before, unless it is
made in place. What cannot be kept is told.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from outcore import formats
from outcore.disk import DiskArray
from outcore.errors import (
    FormatError,
    OutcoreError,
    StorageError,
    UnsupportedError,
    UsageError,
    callers_line,
)
from outcore.formats import durable
from outcore.formats.zarr_tree import check_replaceable
from outcore.hints import Hints
from outcore.jobs.operation import Result
from outcore.opening import create, open

__all__ = ["Place", "Target", "discard"]

# Codes of attributes that a format cannot keep.
_BAD_ATTRIBUTES = ("bad-attribute", "bad-attributes")
# In the names of arrays that grow.
_PARTIAL = ".outcore-partial"
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
        if inner is not None and there:
            partial = formats.staged(outer + tail, format) or outer + tail
            return cls(outer + tail, outer, partial, outer, journal, overwrite, format)
        stem, suffix = os.path.splitext(outer)
        if len(suffix) > _LONGEST_SUFFIX:
            stem, suffix = outer, ""
        partial = durable.neighbour(stem, f"{_PARTIAL}{suffix}")
        return cls(outer + tail, outer, partial + tail, partial, journal, overwrite, format)

    def refuse_existing(self) -> None:
        """Refuse to replace what is there, unless that was said."""
        if self.inside or self.overwrite or not os.path.lexists(self.outer):
            return
        raise StorageError(
            f"{self.final!r} exists already; pass overwrite=True to replace it",
            code="already-exists",
            path=self.final,
            errno=17,
        )

    @property
    def inside(self) -> bool:
        """Whether the array lies in a container that exists already."""
        return self.partial_outer == self.outer

    @property
    def in_place(self) -> bool:
        """Whether it is made there under its final name."""
        return self.partial == self.final

    @property
    def left(self) -> str:
        """What a journal says of it, for `discard`."""
        return self.final if self.inside else self.partial

    def discard(self) -> None:
        """Remove what an earlier attempt left."""
        discard(self.left, self.format)

    def is_published(self, inode: int) -> bool:
        """Whether the folder that was made has its name already; what it replaced may be there still."""
        if self.inside or not os.path.isdir(self.outer):
            return False
        return os.stat(self.outer).st_ino == inode

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Errors of the block tell the name that the target will have."""
        try:
            yield
        except OutcoreError as error:
            if not self.in_place:
                ends = [self.final, self.partial]
                if not self.inside:
                    ends = [self.outer, self.partial_outer]
                error.speak_of(*map(os.path.basename, ends))
            raise

    def publish(self) -> None:
        """Give the complete array its name."""
        if self.inside:
            if not self.in_place:
                formats.publish(self.final, format=self.format, exclusive=not self.overwrite)
            return
        if os.path.isdir(self.outer):
            check_replaceable(self.outer)  # hours have passed
        with durable.os_errors("renaming to", self.outer):
            durable.move_into_place(self.partial_outer, self.outer, exclusive=not self.overwrite)


def discard(path: str, format: str | None) -> None:
    """Remove an unfinished array, and what was to become it, by `Place.left`."""
    outer, inner = formats.split_path(path)
    if _PARTIAL in os.path.basename(outer):
        durable.remove_begun(outer)
        with durable.os_errors("removing", outer):
            if os.path.isdir(outer):
                shutil.rmtree(outer)
            elif os.path.lexists(outer):
                os.unlink(outer)
    elif inner is not None:
        formats.discard(path, format=format)
        if os.path.isdir(outer):
            for folder in itertools.accumulate([outer, *inner.split("/")], os.path.join):
                durable.remove_begun(folder)


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
    wishes: Mapping[str, Any]

    def hints(self, memory: int) -> Hints:
        """How the new array is opened."""
        # The file is nobody else's until it gets its name.
        return Hints.of(Hints(memory=memory, exclusive=not self.place.inside))

    def reopen(self, memory: int) -> DiskArray:
        """What an interrupted job left, to go on with."""
        words: dict[str, Any] = {} if self.format is None else {"format": self.format}
        if not os.path.lexists(self.place.partial_outer):
            raise self._gone()
        shape, dtype = self.result.shape, self.result.dtype
        if formats.format_of_new(self.place.partial, self.format) == "raw":
            words = {**words, "dtype": dtype, "shape": shape, **self.wishes}
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

    def create(self, memory: int) -> DiskArray:
        """An empty array that has of what it should keep what its format can."""
        self.place.discard()
        kept = {k: v for k, v in self.result.kept.items() if v is not None and k not in self.wishes}
        if "shards" in self.wishes:
            kept.pop("chunks", None)
        refusal: UnsupportedError | UsageError | None = None
        for lost in _subsets(list(kept)):
            words = {k: v for k, v in kept.items() if k not in lost}
            try:
                target = create(
                    self.place.partial,
                    self.result.shape,
                    self.result.dtype,
                    exclusive=not (self.place.overwrite and self.place.inside),
                    hints=self.hints(memory),
                    format=self.format,
                    **words,
                    **self.wishes,
                )
            except (UnsupportedError, UsageError) as error:
                if isinstance(error, UsageError) and error.code not in _BAD_ATTRIBUTES:
                    raise
                refusal = refusal or error
                continue
            told = [name for name in lost if name in ("fill_value", "dims")]
            if "attrs" in lost:
                told += _attributes_lost(target, kept["attrs"])
            if told:
                warnings.warn(
                    f"{self.place.final!r}: {target.format} cannot keep {', '.join(told)} of "
                    f"{self.result.source!r}",
                    stacklevel=callers_line(),
                )
            return target
        raise refusal or UnsupportedError(
            "no way to create it; name another format=", code="cannot-keep"
        )


def _attributes_lost(target: DiskArray, attrs: Mapping[str, Any]) -> list[str]:
    """Set one by one what could not be set together; what `target` cannot keep."""
    lost = []
    try:
        for name, value in attrs.items():
            try:
                target.attrs[name] = value
            except UsageError:
                lost.append(f"attribute {name!r}")
    except UnsupportedError:
        return ["attrs"]
    except BaseException:
        target.close()
        raise
    return lost


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    """All subsets, the smallest first."""
    for count in range(len(names) + 1):
        yield from combinations(names, count)
