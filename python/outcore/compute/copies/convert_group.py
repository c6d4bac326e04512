"""
Conversion of whole groups and files into another file, store or group.

Problem. A file holds hundreds of arrays in nested groups, each with attributes. Converting it takes
hours, and may stop anywhere.
Idea. Each array is a separate conversion (`outcore.compute.copies.convert`), which is resumable and
stays within the budget. A journal like that of every job (`outcore.compute.jobs.journal`) covers
all of them; its steps are the arrays. The new file grows under a temporary name and takes its place
at the end; in an existing file, arrays get their names one by one.

Invariants. The name of a new file refers to the old contents, or to the complete new ones.
Everything that can be rejected is rejected before anything is made. Resuming never mixes two jobs,
or two states of the source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from outcore import formats
from outcore.arrays.groups import Group
from outcore.base.hints import memory as promise
from outcore.base.hints import parse_bytes
from outcore.base.report import format_count
from outcore.base.report.progress import ProgressArgument, get_progress
from outcore.compute.jobs.calls import encode
from outcore.compute.jobs.changed import Files, fingerprint_input
from outcore.compute.jobs.journal import PATIENCE, SUFFIX, Journal, acquire_journal, gather_steps
from outcore.compute.jobs.left import list_removable
from outcore.compute.jobs.target import WHOLE, discard, existing_error, find_target, make_absolute
from outcore.errors import (
    CollectiveError,
    FormatError,
    OutcoreError,
    StorageError,
    UnsupportedError,
    UsageError,
    find_stack_level,
)
from outcore.formats import durable, groups
from outcore.formats.layout import ArrayInfo, identify_file
from outcore.formats.paths import one_name
from outcore.formats.texts import Texts
from outcore.ranks.ranks import Ranks

__all__ = ["convert_group", "is_group_source"]

Progress = Callable[[int, int], None]
# Options that only make sense for a single array.
_OF_ONE = (
    "attrs",
    "dims",
    "fill_value",
    "files",
    "maxshape",
    "parts",
    "stripe",
    "unlimited",
    "folders",
)
# Codes of attributes that a format cannot store, and of arrays that conflict with others.
_BAD_ATTRIBUTES, _NO_ROOM = ("bad-attribute", "bad-attributes"), ("bad-dims",)
# Largest number of arrays that a message names.
_NAMED = 5


def is_group_source(
    src: Any, dst: Any, format: str | None, source: Mapping[str, Any], whole: bool | None
) -> bool:
    """
    Return whether `src` is a group that is converted with all its members.

    Groups are: the path of a group inside a file, and a file or store that holds several arrays;
    with `whole`, also one with a single array, or without any.
    """
    if isinstance(src, Group):
        return True
    if whole is False or not isinstance(src, str | os.PathLike) or set(source) - {"format"}:
        return False
    target = formats.choose_format_name(one_name(dst), format)
    if not (whole or groups.can_hold(target)):
        return False
    path = one_name(src)
    known = formats.find_format_name(formats.split_path(path)[0], source.get("format"))
    kind = groups.find_kind(path, known) if groups.can_hold(known) else "array"
    if kind != "group":
        if whole:
            raise UsageError(
                f"{path!r} is not a group; omit whole=True",
                code="bad-option",
                path=path,
            )
        return False
    if whole or formats.split_path(path)[1] not in (None, "/"):
        return True
    below = groups.list_members(path, format=known, deep=True)
    return sum(kind == "array" for _, kind in below) > 1


@dataclass(frozen=True)
class _GroupTarget:
    """Target of the new group, and the file in which it grows."""

    outer: str
    inner: str
    #: The file, or store, that grows; `outer` if the group is added to an existing one.
    grows: str
    journal: str
    overwrite: bool
    format: str

    @classmethod
    def of(cls, dst: str, source: str, overwrite: bool, format: str | None) -> _GroupTarget:
        outer, inside = find_target(dst)
        inner = (inside or "").strip("/")
        name = formats.choose_format_name(f"{outer}::/{inner}" if inner else outer, format)
        if not groups.can_hold(name):
            raise UnsupportedError(
                f"{dst!r}: a file of the format {name} holds one array, not a group; convert to HDF5, "
                "NetCDF4 or Zarr, or name one array",
                code="cannot-keep",
                path=dst,
            )
        journal = durable.make_sibling_path(
            f"{outer}.{inner.replace('/', '.')}" if inner else outer, SUFFIX
        )
        grows = outer
        if not (inner and os.path.lexists(outer)):
            stem, suffix = os.path.splitext(outer)
            grows = durable.make_sibling_path(stem, f"{WHOLE}{suffix}")
        found = cls(outer, inner, grows, journal, overwrite, name)
        found._check_not_source(source, dst)
        return found

    def _check_not_source(self, source: str, dst: str) -> None:
        outer, inner = formats.split_path(source)
        if identify_file(outer) != identify_file(self.outer):
            return
        mine, theirs = f"/{self.inner}/", f"/{(inner or '').strip('/')}/".replace("//", "/")
        if not self.is_inside or mine.startswith(theirs) or theirs.startswith(mine):
            raise UsageError(
                f"{dst!r} is the source group, contains it, or is inside it; choose another name",
                code="same-file",
                path=dst,
            )

    @property
    def is_inside(self) -> bool:
        """Whether the group is added to an existing file."""
        return self.grows == self.outer

    @property
    def final_path(self) -> str:
        """Path of the finished group."""
        return f"{self.outer}::/{self.inner}" if self.inner else self.outer

    def make_path(self, name: str) -> str:
        """Return the path at which a member of the group grows."""
        parts = [part for part in (self.inner, name) if part]
        return f"{self.grows}::/{'/'.join(parts)}" if parts else self.grows

    def make_journal_path(self, name: str) -> str:
        """Return the path of the journal of one array's job."""
        inner = "/".join(part for part in (self.inner, name) if part)
        return durable.make_sibling_path(f"{self.grows}.{inner.replace('/', '.')}", SUFFIX)

    def check_existing(self, *, resume: bool) -> None:
        """Raise if the target exists and must not be replaced."""
        if self.is_inside:
            kind = groups.find_kind(self.final_path, self.format)
            there = kind is not None
            if kind == "array":
                raise UsageError(
                    f"{self.final_path!r} is an array, which a group cannot replace; choose "
                    "another name",
                    code="bad-name",
                    path=self.final_path,
                )
        else:
            there = os.path.lexists(self.outer)
            if there and self.overwrite and os.path.isdir(self.outer):
                formats.check_replaceable(self.outer, whole=True)
        if there and not self.overwrite:
            raise existing_error(self.final_path, resume=resume)

    def list_begun(self) -> list[str]:
        """Return the journals of unfinished arrays of this job."""
        folder, name = os.path.split(self.grows)
        stem = f"{name}.{self.inner.replace('/', '.')}.".replace("..", ".")
        own = os.path.basename(self.journal)
        with durable.os_errors("listing", folder or "."):
            names = os.listdir(folder or ".")
        return [
            os.path.join(folder, one)
            for one in names
            if one.startswith(stem) and SUFFIX in one and not one.startswith(own)
        ]

    def remove(self) -> None:
        """Remove what grew under a temporary name, and unfinished arrays."""
        if self.is_inside:
            return
        discard(self.grows, self.format)
        log = formats.get_format(self.format).get_log_path(self.grows)
        for path in (*self.list_begun(), *([log] if log else [])):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def publish(self) -> None:
        """Give the complete file its name."""
        if self.is_inside or not os.path.lexists(self.grows):
            return
        if os.path.isdir(self.outer):
            formats.check_replaceable(self.outer, whole=True)  # hours after the first check
        formats.take_place(self.grows, self.outer, format=self.format, exclusive=not self.overwrite)


def _make_text_error(path: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path!r} contains text of variable length, which cannot be converted; read it and store "
        "it as text of a fixed size ('U20')",
        code="text-elements",
        path=path,
    )


def _find_turn(leaf: str, dims: Any, used: Collection[str | None]) -> int:
    """
    Return the rank of an array in the order of creation: 0, 1 or 2.

    Arrays that define dimensions come first; arrays with the name of a dimension that they do not
    define come last.
    """
    if tuple(dims or ())[:1] == (leaf,):
        return 0
    return 2 if leaf in used else 1


@dataclass
class _GroupSource:
    """Group that is read, and its members, found by the first rank."""

    path: str
    format: str
    groups: list[str] = field(default_factory=list)
    arrays: list[tuple[str, ArrayInfo]] = field(default_factory=list)
    refused: list[tuple[str, OutcoreError]] = field(default_factory=list)

    @classmethod
    def of(cls, src: Any, options: Mapping[str, Any]) -> _GroupSource:
        if isinstance(src, Group):
            if src.closed:
                src.check_open("convert")
            return cls(src.location, src.format)
        path = one_name(src)
        format = formats.find_format_name(formats.split_path(path)[0], options.get("format"))
        return cls(path, format)

    def make_path(self, name: str) -> str:
        """Return the path of a member."""
        outer, inner = formats.split_path(self.path)
        return f"{outer}::/{'/'.join(part for part in ((inner or '').strip('/'), name) if part)}"

    def find_members(self) -> None:
        """Find the members; coordinates come first, so that dimensions are made from them."""
        names: list[str] = []
        for name, kind in groups.list_members(self.path, format=self.format, deep=True):
            (names if kind == "array" else self.groups).append(name)
        try:
            infos: list[Any] = formats.open_infos(map(self.make_path, names), format=self.format)
        except (FormatError, StorageError):
            infos = [self._try_open(name) for name in names]
        found = zip(names, infos, strict=True)
        self.arrays = []
        for name, info in found:
            if isinstance(info, Texts):
                self.refused.append((name, _make_text_error(self.make_path(name))))
            elif info is not None:
                self.arrays.append((name, info))
        self.refused += groups.list_broken_links(self.path, format=self.format)
        used = {dim for _, info in self.arrays for dim in info.dims or ()}
        self.arrays.sort(key=lambda one: _find_turn(one[0].rpartition("/")[2], one[1].dims, used))

    def _try_open(self, name: str) -> ArrayInfo | None:
        try:
            return formats.open_info(self.make_path(name), format=self.format)
        except (FormatError, StorageError) as error:
            self.refused.append((name, error))
            return None

    def check_readable(self) -> None:
        """Raise if there are arrays that cannot be opened."""
        if not self.refused:
            return
        listed = "; ".join(f"{name}: {error}" for name, error in self.refused[:_NAMED])
        more = len(self.refused) - _NAMED
        raise UnsupportedError(
            f"{format_count(len(self.refused), 'member')} of {self.path!r} cannot be read: {listed}"
            + (f"; and {more} more" if more > 0 else "")
            + ". Pass skip=True to omit them",
            code=self.refused[0][1].code,
            path=self.path,
        )

    def compute_state(self, written: Files) -> str:
        """Return a digest that changes if the source changes between interruption and resumption."""
        states = [
            (
                name,
                info.shape,
                info.dtype.str,
                fingerprint_input(SimpleNamespace(info=info), written),
            )
            for name, info in self.arrays
        ]
        text = json.dumps([self.groups, states], default=repr)
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


@dataclass
class _GroupConversion:
    """Arguments of the call."""

    source: _GroupSource
    place: _GroupTarget
    ranks: Ranks
    memory: int
    resume: bool
    skip: bool
    #: Options for all new arrays.
    options: Mapping[str, Any]
    #: The journal, open on the first rank only.
    journal: Journal | None = None
    going_on: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what identifies the job, except for the state of the source."""
        source, target = map(make_absolute, (self.source.path, self.place.final_path))
        options = {name: repr(value) for name, value in sorted(self.options.items())}
        return {
            "operation": "convert",
            "source": source,
            "target": target,
            "of a whole group": True,
            "skip": self.skip,
            **options,
        }

    def describe_for_journal(self) -> dict[str, Any]:
        """Return the data of the journal: files that may remain, and the call that resumes."""
        partial = (
            [] if self.place.is_inside else [[make_absolute(self.place.grows), self.place.format]]
        )
        try:
            how = {name: encode(value) for name, value in self.options.items()}
        except TypeError:
            return {"partial": partial, "call": None}
        arguments = {
            "src": make_absolute(self.source.path),
            "source": encode({"format": self.source.format}),
            "format": self.place.format,
            "whole": True,
            "skip": self.skip,
        }
        call = {
            "function": "convert",
            "inputs": [],
            "in_names": [],
            "out": [make_absolute(self.place.final_path)],
            "out_name": "dst",
            "arguments": arguments,
            "how": how,
            "memory": self.memory,
            "overwrite": self.place.overwrite,
        }
        return {"partial": partial, "call": call}

    # Called on the first rank only.

    def begin(self) -> dict[str, Any] | None:
        """Do everything before the first array; return the task, or None if nothing remains to do."""
        source, place = self.source, self.place
        ended = self.resume and not os.path.exists(place.journal)
        if ended or not self.resume:
            place.check_existing(resume=ended)
        source.find_members()
        if not self.skip:
            source.check_readable()
        self.journal = journal = acquire_journal(place.journal, patience=PATIENCE)
        gather_steps(journal)
        written = Files({identify_file(place.outer)}) if place.is_inside else Files()
        job = {**self.describe(), "source state": source.compute_state(written)}
        self.going_on = self.resume and journal.job is not None
        last = len(source.arrays)
        if self.going_on:
            journal.check_same(job)
            if last in journal.done and not place.is_inside and not os.path.lexists(place.grows):
                journal.remove()  # the process was killed after the file got its name
                return None
            if not place.is_inside:
                durable.remove_abandoned(
                    place.grows
                )  # the journal is locked: no other process makes it
        else:
            place.check_existing(resume=False)
            self._start_anew(journal, job, last + 1)
        for name, error in source.refused:
            _warn(f"{source.make_path(name)!r} is skipped: {error}")
        self._warn_about_aliases()
        self._make_groups()
        if not (place.is_inside or place.inner or self.going_on or "dtype" in self.options):
            groups.expect(place.grows, place.format, source.arrays)
        target = formats.get_format(place.format)
        return {
            "arrays": [
                [
                    name,
                    math.prod(info.shape) * info.dtype.itemsize,
                    *target.adapt_options(info, self.options),
                ]
                for name, info in source.arrays
            ],
            "done": sorted(self._find_done(journal)),
            "going on": self.going_on,
        }

    def _warn_about_aliases(self) -> None:
        """Warn about names that the copy will not have, and about external links."""
        found = groups.list_aliases(self.source.path, format=self.source.format)
        if found:
            listed = ", ".join(f"{name!r} is {how}" for name, how in found[:_NAMED])
            more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            _warn(
                f"{self.source.path!r}: each array is converted once and links are not followed: "
                f"{listed}{more}. Convert the target of an external link separately"
            )

    def _start_anew(self, journal: Journal, job: Mapping[str, Any], steps: int) -> None:
        if journal.done:
            given_up = format_count(len(journal.done), "step")
            _warn(
                f"{self.place.final_path!r}: {given_up} of an interrupted job are discarded, "
                "because this call starts at the beginning; pass resume=True to continue an "
                "interrupted call"
            )
        left = list_removable(journal)
        journal.begin(job, self.describe_for_journal(), steps)
        for path, format in left:
            discard(path, format)
        self.place.remove()

    def _find_done(self, journal: Journal) -> set[int]:
        """Return arrays that have their names; a killed process may have failed to record some."""
        found = set(journal.done)
        if self.going_on and not (self.place.is_inside and self.place.overwrite):
            for number, (name, _) in enumerate(self.source.arrays):
                # If the array's journal still exists, its job is finished first.
                if number not in found and not os.path.lexists(self.place.make_journal_path(name)):
                    kind = groups.find_kind(self.place.make_path(name), self.place.format)
                    found |= {number} if kind == "array" else set()
        return found

    def _make_groups(self) -> None:
        for name in ("", *self.source.groups):
            read = groups.describe_group(
                self.source.make_path(name) if name else self.source.path, format=self.source.format
            )
            self._make_group(self.place.make_path(name), dict(read.attrs), name)

    def _make_group(self, path: str, attrs: Mapping[str, Any], name: str) -> None:
        there = None
        if os.path.lexists(self.place.grows):
            there = groups.find_kind(path, self.place.format)
        if there is None:
            with contextlib.suppress(UsageError):
                groups.create(path, format=self.place.format, attrs=attrs)
                return
            groups.create(path, format=self.place.format)
        found = groups.describe_group(path, format=self.place.format)
        lost = []
        for key, value in attrs.items():
            try:
                groups.set_attrs(found, {key: value}, ())
            except UsageError as error:
                if error.code not in _BAD_ATTRIBUTES:
                    raise
                lost.append(f"attribute {key!r}")
        if lost:
            source = self.source.make_path(name) if name else self.source.path
            _warn(
                f"{self.place.final_path!r}: {found.format} cannot store {', '.join(lost)} of {source!r}"
            )

    def commit(self, number: int) -> None:
        """Record that an array is finished."""
        if self.journal is not None:
            self.journal.commit([number])

    def finish(self, arrays: int) -> None:
        """Give the file its name, and remove the journal."""
        assert self.journal is not None
        if not self.place.is_inside and os.path.lexists(self.place.grows):
            groups.complete(self.place.grows, self.place.format)
        self.journal.commit([arrays])
        self.place.publish()
        self.journal.remove()

    def handle_failure(self, error: BaseException, arrays: int | None) -> None:
        """Add a note about what is kept to the exception, or remove what was begun."""
        journal = self.journal
        if journal is None or journal.job is None:
            if journal is not None:
                journal.remove()  # an empty one belongs to no job
            return
        if arrays is None and self.going_on:
            return  # another job, or it cannot begin: finished steps are kept
        done = len(journal.done)
        if done or self.going_on or self.place.list_begun():
            of = "" if arrays is None else f" of {arrays}"
            error.add_note(
                f"{done}{of} arrays of {self.place.final_path!r} are finished and kept; repeat "
                "the call with resume=True to continue with the others"
            )
            return
        with contextlib.suppress(OutcoreError):  # the first error is reported
            self.place.remove()
        journal.remove()


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=find_stack_level())


def convert_group(
    src: Any,
    dst: str,
    source: Mapping[str, Any],
    ranks: Ranks,
    one: Callable[..., object],
    *,
    format: str | None,
    memory: int | str | None,
    progress: ProgressArgument,
    resume: bool,
    overwrite: bool,
    skip: bool,
    options: Mapping[str, Any],
) -> None:
    """
    Convert a group with all its members. Collective over the ranks.

    `src` is a group, or the path of one. `one` is `convert`, which converts each array. `skip`
    omits what cannot be read, or stored. `options` are for all new arrays.
    """
    for name in _OF_ONE:
        if options.get(name) is not None:
            raise UsageError(
                f"{name}= applies to one array, but {dst!r} becomes a group; convert that array "
                "separately, or set it afterwards",
                code="unknown-option",
            )
    given = {name: value for name, value in options.items() if value is not None}
    limit = int(promise())
    budget = limit if memory is None else min(parse_bytes(memory), limit)
    reading = _GroupSource.of(src, source)
    place = _GroupTarget.of(dst, reading.path, overwrite, format)
    call = _GroupConversion(reading, place, ranks, budget, resume, skip, given)
    call.memory = ranks.check_same_call(lambda: json.dumps(call.describe()), budget)
    arrays: int | None = None
    try:
        found = ranks.broadcast_from_first(call.begin)
        if found is None:
            return
        arrays = len(found["arrays"])
        _convert_members(call, found, one, get_progress(progress, "convert", shows=ranks.is_first))
        ranks.run_on_first(lambda: call.finish(len(found["arrays"])))
    except BaseException as error:
        if ranks.is_first:
            call.handle_failure(error, arrays)
        raise
    finally:
        if call.journal is not None:
            call.journal.close()


def _convert_members(
    call: _GroupConversion, found: Mapping[str, Any], one: Callable[..., object], progress: Progress
) -> None:
    """Convert all arrays that have no names yet. Collective over the ranks."""
    ranks, done = call.ranks, set(found["done"])
    total = sum(size for _, size, *_ in found["arrays"]) // ranks.size
    before = 0
    for number, (name, size, unfit, limits) in enumerate(found["arrays"]):
        options = {key: value for key, value in call.options.items() if key not in unfit}
        share = size // ranks.size
        if number in done:
            before += share
            progress(before, total)
            continue

        def step(part: int, whole: int, before: int = before, share: int = share) -> None:
            progress(before + (share * part // whole if whole else share), total)

        try:
            one(
                call.source.make_path(name),
                call.place.make_path(name),
                source={"format": call.source.format},
                format=call.place.format,
                memory=call.memory,
                progress=step,
                resume=found["going on"],
                overwrite=call.place.overwrite and call.place.is_inside,
                comm=ranks.comm,
                whole=False,
                **{**options, **limits},
            )
        except (CollectiveError, UnsupportedError, UsageError) as error:
            if not (call.skip and _cannot_be_kept(error)):
                raise
            if ranks.is_first:
                _warn(f"{call.source.make_path(name)!r} is skipped: {error}")
        before += share
        ranks.run_on_first(partial(call.commit, number))


def _cannot_be_kept(error: OutcoreError) -> bool:
    """Return whether the target's format cannot store the array; the error is the same on all ranks."""
    reason = error.__cause__ if isinstance(error, CollectiveError) else error
    return isinstance(reason, UnsupportedError) or (
        isinstance(reason, OutcoreError) and reason.code in _NO_ROOM
    )
