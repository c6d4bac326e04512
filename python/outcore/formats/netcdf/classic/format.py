"""
Classic NetCDF: the formats CDF-1, CDF-2 (64-bit offset) and CDF-5 (64-bit data).

Problem. Climate archives, SciPy and PnetCDF write these formats, which have nothing in common with
NetCDF4 but the name and the data model: a header, then elements in big-endian order, not compressed.
Idea. One class has the abilities, and one class for each version its name, which is also the version of
new files. The header is read and written here, without a library (`header`); elements are strided
arrays (`describing`), of which the core reads and writes any section.
Invariants. A file has one group, the root. New records are durable before the header counts them.

Reference: "The NetCDF Classic Format Specification"; for CDF-5 the format specification of PnetCDF.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from outcore.errors import FormatError, UnsupportedError, UsageError
from outcore.formats.format import (
    Format,
    HasGroups,
    KeepsAttributes,
    OpensMany,
    Resizable,
    ServesXarray,
    Stages,
)
from outcore.formats.layout import ArrayInfo
from outcore.formats.members import Kind, Members, no_group_error
from outcore.formats.netcdf.classic import attributes, changes, describing, expecting, files
from outcore.formats.netcdf.classic.describing import choose, describe, find, make_partial_name
from outcore.formats.netcdf.classic.files import ClassicFile
from outcore.formats.netcdf.classic.header import Header
from outcore.formats.netcdf.classic.magic import NAMES, read_version
from outcore.formats.spec import Entry, Spec

__all__ = ["Classic64BitData", "Classic64BitOffset", "ClassicNetCDF", "NetCDF3Classic"]

_DEFAULT_NAME = "/data"


class ClassicNetCDF(Format, OpensMany, Resizable, KeepsAttributes, Stages, HasGroups, ServesXarray):
    """Classic NetCDF files of any version; derived classes name the version of new files."""

    version: ClassVar[int]
    moves_files = True
    new_suffix = ".nc"

    def recognise(self, path: str) -> bool:
        """Return whether the file begins with the magic bytes of this version."""
        return read_version(path) == self.version

    def get_log_path(self, path: str) -> str:
        """Return the record of a change of the header."""
        return files.get_record_path(path)

    # As a dataset of xarray

    def is_default_engine(self) -> bool:
        """Return True: no library is needed."""
        return True

    def get_encoding(self, info: ArrayInfo) -> dict[str, Any]:
        """Return the stored dtype."""
        return {"dtype": info.dtype}

    # Arrays

    def describe(self, path: str, inner: str | None, writable: bool) -> ArrayInfo:
        """Describe a variable."""
        return self.describe_many(path, [inner], writable)[0]

    def describe_many(
        self, path: str, inners: Sequence[str | None], writable: bool
    ) -> list[ArrayInfo]:
        """Describe several variables of a file, whose header is read once."""
        if writable:
            files.complete_if_left(path)
        file = files.read(path, writable=writable)
        return [describe(file, choose(file, inner)) for inner in inners]

    def ls(self, path: str, inner: str | None) -> list[Entry]:
        """Return the variables of a file; the note of one that cannot be opened says why."""
        file = files.read(path)
        if inner is not None and inner != "/":
            variables = [choose(file, inner)]
        else:
            variables = describing.list_variables(file.header)
        entries = []
        for one in variables:
            found = describing.describe_member(file, one)
            note = "" if found.refused is None else found.refused.message
            entries.append(Entry(found.path, "array", found.shape, one.dtype, note))
        return entries

    def create(
        self,
        path: str,
        inner: str | None,
        spec: Spec,
        *,
        unlimited: bool | str | Sequence[str] = (),
    ) -> ArrayInfo:
        """
        Create a variable with its dimensions.

        Without `inner` a new file with the variable ``data`` replaces an existing one. With `inner` the
        variable is added to the file, whose version counts. Without dims, axes are called
        ``<name>_dim0``, ``<name>_dim1``, ... `unlimited` names the first axis, or is True.
        """
        name = (inner or _DEFAULT_NAME).strip("/")
        _refuse_groups(path, name)
        wanted = changes.NewVariable.of(path, name, spec, unlimited)
        if inner is not None and os.path.exists(path):
            with files.changing(path) as file:
                if not expecting.take(file, wanted):
                    changes.add(file, wanted)
        else:
            only_new = spec.exclusive or inner is not None
            changes.create_file(path, Header(self.version, 0), wanted, exclusive=only_new)
        return self.describe(path, f"/{name}", True)

    def set_attrs(
        self, info: ArrayInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
    ) -> ArrayInfo:
        """Set attributes of a variable and remove others (None: all); ``_FillValue`` stays."""
        path, name = info.extra["file"], info.extra["dataset"]
        with files.changing(path) as file:
            header, variable = file.header, choose(file, name)
            new = attributes.change(variable.attrs, attrs, drop, header.version, path)
            variables = tuple(
                replace(one, attrs=new) if one is variable else one for one in header.variables
            )
            _apply(file, replace(header, variables=variables))
        return self.describe(path, name, False)

    # Records

    @contextlib.contextmanager
    def lock_length(self, info: ArrayInfo) -> Iterator[ArrayInfo]:
        """Keep others from changing the file; the array as long as its header says by now."""
        path, name = info.extra["file"], info.extra["dataset"]
        with files.changing(path) as file:
            now = describe(file, choose(file, name))
            before, after = info.layout.parts[0], now.layout.parts[0]  # type: ignore[union-attr]
            is_same = now.shape[1:] == info.shape[1:] and now.dtype == info.dtype
            if not is_same or (before.origin and before.origin.file != file.id):
                raise describing.make_changed_error(path)
            if (after.offset, now.layout.strides[:1]) != (before.offset, info.layout.strides[:1]):
                raise describing.make_changed_error(path)
            yield now

    def reserve(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Make room for more records, which the header does not count yet.

        Records of other variables are filled; those of this one are for the caller to write.
        """
        file, records = self._records(info, shape)
        if records > file.records:
            changes.grow(file, records, (info.extra["dataset"].strip("/"),))
        size = os.stat(file.path).st_size
        longer = replace(file, records=max(records, file.records), size=size)
        return describe(longer, choose(file, info.extra["dataset"]))

    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Change the number of records, for all record variables of the file.

        Those that `reserve` made room for have their elements. Others are filled.
        """
        file, records = self._records(info, shape)
        if records > file.records and info.shape[0] < records:
            changes.grow(file, records, ())
        header = file.header
        others = [one.name for one in header.variables if header.is_record(one)]
        if records < file.records and len(others) > 1:
            raise UnsupportedError(
                f"{info.path!r}: {len(others)} variables share the {file.records} records of the file, "
                "and a shorter length would remove records of all; copy the records that you need to a "
                "new file",
                code="cannot-resize",
                path=info.path,
            )
        changes.set_length(file, records)
        return self.describe(file.path, info.extra["dataset"], True)

    def release(self, info: ArrayInfo) -> None:
        """Cut off records that were reserved and are not counted."""
        file = files.read(info.extra["file"], writable=True)
        changes.cut(file, file.records)

    def _records(self, info: ArrayInfo, shape: tuple[int, ...]) -> tuple[ClassicFile, int]:
        """Return the file as it is now and the number of records of a shape; refuse other changes."""
        file = files.read(info.extra["file"], writable=True)
        variable = choose(file, info.extra["dataset"])
        fits = len(shape) == len(info.shape) and shape[1:] == info.shape[1:]
        if not file.header.is_record(variable) or not fits:
            what = (
                "only its first axis, the unlimited one, can change"
                if file.header.is_record(variable)
                else "its dimensions are fixed"
            )
            raise UnsupportedError(
                f"{info.path!r} cannot change from {info.shape} to {shape}: {what}; create it with "
                "unlimited= and the name of its first axis, or copy it",
                code="cannot-resize",
                path=info.path,
            )
        return file, shape[0]

    # Arrays that are being filled

    def find_staging_path(self, path: str, inner: str) -> str:
        """Return the path under which a new variable of an existing file is filled."""
        group, name = posixpath.split(inner.strip("/"))
        return f"{path}::/{posixpath.join(group, make_partial_name(name))}"

    def publish(self, path: str, inner: str, exclusive: bool) -> None:
        """Give a variable that was created at `find_staging_path` its name, in place of an older one."""
        name = inner.strip("/")
        with files.changing(path) as file:
            if file.header.find(make_partial_name(name)) is None:
                return  # it has its name already
            self._check_free(file, name, exclusive)
            changes.rename(file, make_partial_name(name), name)

    def check_place(self, path: str, inner: str, exclusive: bool) -> None:
        """Raise what `publish` would raise."""
        self._check_free(files.read(path), inner.strip("/"), exclusive)

    def discard(self, path: str, inner: str) -> None:
        """Remove what was created at `find_staging_path`, if it is there."""
        name = make_partial_name(inner.strip("/"))
        found = files.read(path).header.find(name)
        if found is None or expecting.is_expected(found):
            return
        with files.changing(path) as file:
            changes.remove(file, name)

    def _check_free(self, file: ClassicFile, name: str, exclusive: bool) -> None:
        if exclusive and file.header.find(name) is not None:
            raise changes.make_exists_error(file.path, name)

    # The root group

    def find_kind(self, path: str, inner: str | None) -> Kind | None:
        """Return what a name leads to."""
        file = files.read(path)
        if inner is None or not inner.strip("/"):
            return "group"
        found = find(file.header, inner)
        return None if found is None or describing.is_partial(found.name) else "array"

    def list_members(self, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
        """Return the names of the variables."""
        file = self._root(path, inner)
        found: list[tuple[str, Kind]] = [
            (one.name, "array") for one in describing.list_variables(file.header)
        ]
        return sorted(found)

    def describe_group(self, path: str, inner: str, drop: Collection[str]) -> Members:
        """Describe the root group, or a variable as the only array of a group."""
        file = files.read(path)
        header, name = file.header, inner.strip("/")
        found = find(header, name)
        if name and found is None:
            raise no_group_error(path, inner, "classic NetCDF files have no groups but the root")
        variables = describing.list_variables(header) if found is None else [found]
        arrays = {
            one.name: describing.describe_member(file, one)
            for one in variables
            if one.name not in drop
        }
        endless = frozenset(dim.name for dim in header.dims if not dim.length)
        format, attrs = NAMES[header.version], attributes.read(header.attrs)
        return Members(path, inner, format, attrs, arrays, (), endless, (os.path.realpath(path), 0))

    def read_group_attrs(self, path: str, inner: str | None) -> Mapping[str, Any]:
        """Return the attributes of the file."""
        return attributes.read(self._root(path, inner).header.attrs)

    def check_group_writable(self, path: str, inner: str | None) -> None:
        """Raise `StorageError` if the file cannot be written."""
        files.complete_if_left(path)
        files.read(path, writable=True)

    def set_group_attrs(
        self,
        path: str,
        inner: str | None,
        attrs: Mapping[str, Any],
        drop: Collection[str] | None,
    ) -> Mapping[str, Any]:
        """Set attributes of the file and remove others (None: all)."""
        self._root(path, inner)
        with files.changing(path) as file:
            header = file.header
            new = attributes.change(header.attrs, attrs, drop, header.version, path)
            _apply(file, replace(header, attrs=new))
        return attributes.read(new)

    def create_group(
        self, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
    ) -> None:
        """Create a file without variables; there are no groups in it."""
        if inner is not None and inner.strip("/"):
            _refuse_groups(path, inner.strip("/") + "/")
        new = attributes.change((), attrs, None, self.version, path)
        changes.create_file(path, Header(self.version, 0, attrs=new), None, exclusive=not replace)

    def expect(self, path: str, arrays: Sequence[tuple[str, ArrayInfo]]) -> None:
        """Give record variables their places, before they are created one by one."""
        expecting.expect(path, arrays)

    def complete(self, path: str) -> None:
        """Remove places of variables that were not created."""
        expecting.remove_expected(path)

    def _root(self, path: str, inner: str | None) -> ClassicFile:
        file = files.read(path)
        if inner is not None and inner.strip("/"):
            raise FormatError(
                f"'{path}::{inner}' is not a group: classic NetCDF files have no groups but the root; "
                "`outcore ls` lists what there is",
                code="not-a-group",
                path=f"{path}::{inner}",
            )
        return file


def _apply(file: ClassicFile, header: Header) -> None:
    """Change attributes alone."""
    names = {one.name: one.name for one in header.variables}
    changes.apply(file, header.with_records(file.records), names, {})


def _refuse_groups(path: str, name: str) -> None:
    """Refuse names of arrays in groups, and none."""
    if "/" in name:
        raise UnsupportedError(
            f"{path!r}: classic NetCDF has no groups, which {name!r} asks for; use a name without '/', "
            "or format='netcdf4'",
            code="cannot-keep",
            path=path,
        )
    if not name:
        raise UsageError(
            f"{path!r}: '::' needs the name of a variable, as in 'file.nc::/name'",
            code="bad-name",
            path=path,
        )


class NetCDF3Classic(ClassicNetCDF):
    """CDF-1, ``NETCDF3_CLASSIC``: offsets of 31 bits."""

    name = "netcdf3_classic"
    version = 1


class Classic64BitOffset(ClassicNetCDF):
    """CDF-2, ``NETCDF3_64BIT_OFFSET``: offsets of 64 bits."""

    name = "netcdf3_64bit_offset"
    version = 2


class Classic64BitData(ClassicNetCDF):
    """CDF-5, ``NETCDF3_64BIT_DATA``: lengths of 64 bits too, and all types of integers."""

    name = "netcdf3_64bit_data"
    version = 5
