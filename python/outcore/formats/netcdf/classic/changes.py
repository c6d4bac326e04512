"""
Changes of classic NetCDF files: new files, new variables, attributes, records.

Problem. Users add variables and attributes one by one, and everything in such a file depends on the
header that comes first. A kill must leave the old file or the new one.
Idea. A change makes a new `Header`. If it fits in front of the elements, and these can stay where they
are, it is written in place (`files.replace_header`); new files leave room for that. If not, a complete
new file takes the place of the old one (`moving.build`). Records come first, then the number of
records.
Invariants. Elements are durable before the header counts them. Invalid calls raise an error before
anything is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outcore import _core
from outcore.errors import AlreadyExistsError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.netcdf.classic import attributes, files, moving, places
from outcore.formats.netcdf.classic.describing import check_whole, make_final_name
from outcore.formats.netcdf.classic.files import ClassicFile
from outcore.formats.netcdf.classic.header import Dimension, Header, Variable, round_up
from outcore.formats.spec import MAX_BYTES, Spec

__all__ = [
    "NewVariable",
    "add",
    "add_to_header",
    "apply",
    "create_file",
    "cut",
    "grow",
    "make_exists_error",
    "rebuild",
    "refill",
    "remove",
    "rename",
    "set_length",
]


@dataclass(frozen=True)
class NewVariable:
    """A new variable as the caller wants it, checked as far as that needs no file."""

    name: str
    spec: Spec
    dims: tuple[str, ...]
    #: Whether the first dimension is to be unlimited.
    is_endless: bool

    @classmethod
    def of(
        cls, path: str, name: str, spec: Spec, unlimited: bool | str | Sequence[str]
    ) -> NewVariable:
        """Check name, dimensions and layout."""
        _refuse_layout(path, spec)
        attributes.check_name(name, path, "a variable", "bad-name")
        named = spec.dims or (None,) * len(spec.shape)
        dims = tuple(
            attributes.check_name(dim, path, "a dimension", "bad-dims")
            if dim is not None
            else f"{make_final_name(name)}_dim{axis}"
            for axis, dim in enumerate(named)
        )
        wanted = (
            set(dims) if unlimited is True else {unlimited} if isinstance(unlimited, str) else set()
        )
        if not isinstance(unlimited, bool | str | None):
            wanted = set(unlimited)
        if len(set(dims)) != len(dims) or wanted - set(dims[:1]):
            raise UsageError(
                f"{path!r}: dims {dims}, unlimited {unlimited!r}: names must differ, and classic "
                "NetCDF has one unlimited dimension, which must be the first axis; use "
                "format='netcdf4' for others",
                code="bad-dims",
                path=path,
            )
        if 0 in spec.shape[1:]:
            raise UnsupportedError(
                f"{path!r}: classic NetCDF has no dimension of length 0 but the unlimited one, and "
                f"shape {spec.shape} has one; use format='netcdf4'",
                code="cannot-keep",
                path=path,
            )
        # The record dimension is the only one that can have the length 0.
        return cls(name, spec, dims, bool(wanted) or spec.shape[:1] == (0,))

    def kind(self, path: str, version: int) -> int:
        """Return the number of the type of its elements."""
        found = attributes.find_kind(self.spec.dtype, version)
        if found is None:
            wide = attributes.find_kind(self.spec.dtype, 5) is not None
            way = "format='netcdf3_64bit_data'" if wide else "int32, float32, float64 or S1"
            raise UnsupportedError(
                f"{path!r}: CDF-{version} has no type for dtype {self.spec.dtype}; use {way}, or "
                "format='netcdf4' or 'hdf5'",
                code="bad-dtype",
                path=path,
            )
        return found

    def variable(self, path: str, header: Header) -> Variable:
        """Return the variable in a file that has its dimensions."""
        kind, numbers = (
            self.kind(path, header.version),
            {d.name: n for n, d in enumerate(header.dims)},
        )
        attrs = [
            attributes.store(name, value, header.version, path)
            for name, value in self.spec.attrs.items()
        ]
        missing = self.spec.find_missing_value(habit=True)
        if missing is not None:
            attrs.append(attributes.make_fill_attribute(missing, kind))
        return Variable(self.name, tuple(numbers[dim] for dim in self.dims), tuple(attrs), kind, 0)

    def element(self, variable: Variable) -> bytes:
        """Return the element that it is filled with at the beginning."""
        value = 0 if self.spec.fill_value is None else self.spec.fill_value
        if variable.dtype.kind == "S" and value == 0:
            return bytes(1)
        return np.asarray(value, variable.dtype).tobytes()


def _refuse_layout(path: str, spec: Spec) -> None:
    if spec.order != "C":
        raise UnsupportedError(
            f"{path!r}: NetCDF stores arrays in C order; create the transposed shape {spec.shape[::-1]} "
            "instead, or use .npy or raw for order 'F'",
            code="cannot-keep",
            path=path,
        )
    options = {
        "chunks": spec.chunks,
        "shards": spec.shards,
        "compression": spec.compression or None,
    }
    lost = [name for name, value in options.items() if value is not None]
    if lost:
        raise UnsupportedError(
            f"{path!r}: classic NetCDF cannot keep {', '.join(lost)}; omit it, or use format='netcdf4'",
            code="cannot-keep",
            path=path,
        )


def create_file(path: str, header: Header, wanted: NewVariable | None, *, exclusive: bool) -> None:
    """Make a file with one variable, or with none."""
    elements = {}
    if wanted is not None:
        header, variable = add_to_header(path, header, wanted)
        elements[variable.name] = wanted.element(variable)
    header = places.arrange(header)
    places.check_version(header, path)
    empty = Header(header.version, 0)

    def fill(fd: int) -> None:
        moving.build(fd, header, header.records or 0, (fd, empty, 0), {}, elements)

    durable.create_file(path, fill, exclusive=exclusive)


def add_to_header(path: str, header: Header, wanted: NewVariable) -> tuple[Header, Variable]:
    """Return a header with one more variable, without a place, and with the dimensions that it needs."""
    known = {dim.name: dim for dim in header.dims}
    endless = header.record_dim
    records, dims = header.records or 0, list(header.dims)
    for axis, (name, length) in enumerate(zip(wanted.dims, wanted.spec.shape, strict=True)):
        there = known.get(name)
        is_endless = not axis and wanted.is_endless
        if there is None:
            if is_endless and endless is not None:
                raise UsageError(
                    f"{path!r}: dimension {header.dims[endless].name!r} is unlimited, and classic "
                    "NetCDF has one such dimension; use it as the first of dims=, or a fixed length "
                    f"for {name!r}",
                    code="bad-dims",
                    path=path,
                )
            dims.append(Dimension(name, 0 if is_endless else length))
        elif not there.length and axis:
            raise UsageError(
                f"{path!r}: {name!r} is the unlimited dimension, which must be the first axis; "
                "transpose the array, or use another name",
                code="bad-dims",
                path=path,
            )
        elif there.length not in (0, length) or (not there.length and length < records):
            raise UsageError(
                f"{path!r}: dimension {name!r} has length {there.length or records} in the file, not "
                f"{length}; choose another name or shape",
                code="bad-dims",
                path=path,
            )
        if not axis and (is_endless or (there is not None and not there.length)):
            records = max(records, length)
    header = replace(header, dims=tuple(dims), records=records)
    variable = wanted.variable(path, header)
    return replace(header, variables=(*header.variables, variable)), variable


def add(file: ClassicFile, wanted: NewVariable) -> None:
    """Add a variable to a file, or replace one. The caller is alone (`files.changing`)."""
    path, old = file.path, file.header.with_records(file.records)
    there = old.find(wanted.name)
    if there is not None and wanted.spec.exclusive:
        raise make_exists_error(path, wanted.name)
    left = tuple(one for one in old.variables if one is not there)
    base = replace(old, variables=left)
    if not any(map(base.is_record, left)):
        base = base.with_records(0)
    header, variable = add_to_header(path, base, wanted)
    element = wanted.element(variable)
    apply(file, header, {one.name: one.name for one in left}, {variable.name: element})


def make_exists_error(path: str, name: str) -> AlreadyExistsError:
    """Return the error for a variable that is not to be replaced."""
    return AlreadyExistsError(
        f"{path!r} already holds {name!r}; pass overwrite=True to replace it, or open it with mode "
        "'r+' to change it",
        code="already-exists",
        path=path,
        errno=errno.EEXIST,
    )


def remove(file: ClassicFile, name: str) -> None:
    """Remove a variable; its dimensions stay."""
    _keep(file, {one.name: one for one in file.header.variables if one.name != name})


def rename(file: ClassicFile, old: str, new: str) -> None:
    """Rename a variable, which takes the place of one that has its new name."""
    kept = {
        new if one.name == old else one.name: one
        for one in file.header.variables
        if one.name != new
    }
    _keep(file, kept)


def _keep(file: ClassicFile, kept: Mapping[str, Variable]) -> None:
    """Keep some variables, under these names."""
    variables = tuple(replace(one, name=name) for name, one in kept.items())
    header = replace(file.header, variables=variables, records=file.records)
    sources = {name: one.name for name, one in kept.items()}
    apply(file, header, sources, {})


def apply(
    file: ClassicFile, header: Header, sources: Mapping[str, str], elements: Mapping[str, bytes]
) -> None:
    """
    Change a file to another header. The caller is alone (`files.changing`).

    `sources` has, for each variable that stays, its name in the file. All others are new: they get a
    place, and are filled with their element in `elements`.
    """
    is_less = any(one.name not in sources.values() for one in file.header.variables)
    needed = moving.find_file_end(places.arrange(header), header.records or 0)
    # A file that is mostly gaps is written again.
    placed = None if is_less and file.size > 2 * needed else _place_in_file(file, header, sources)
    if placed is None:
        rebuild(file, header, sources, elements)
        return
    places.check_version(placed, file.path)
    records = placed.records or 0
    fresh = [one for one in placed.variables if one.name not in sources]
    if fresh:
        with durable.os_errors("adding a variable to", file.path):
            fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                _prepare(fd, file, placed, records, fresh, elements)
            finally:
                os.close(fd)
    files.replace_header(file, placed)
    if file.header.records != records:
        files.write_records(file, records)


def _prepare(
    fd: int,
    file: ClassicFile,
    header: Header,
    records: int,
    fresh: Sequence[Variable],
    elements: Mapping[str, bytes],
) -> None:
    """Give new variables their bytes, after the end of all others."""
    end = max(places.find_end_of_fixed(file.header), file.header.size)
    if os.fstat(fd).st_size > end:
        os.ftruncate(fd, end)
    _core.allocate(
        fd, end, max(moving.find_file_end(header, records), len(places.to_bytes(header)))
    )
    for one in fresh:
        if not header.is_record(one):
            moving.fill_variable(fd, header, one, elements.get(one.name, b"\0"))
    if places.find_record_begin(header) is not None:
        moving.fill_records(fd, header, 0, records, elements)
    os.fsync(fd)


def _place_in_file(file: ClassicFile, header: Header, sources: Mapping[str, str]) -> Header | None:
    """Return the header with all places, if elements that are there can stay; None if not."""
    old, length = file.header, len(places.to_bytes(header))
    kept: dict[str, Variable] = {}
    for one in header.variables:
        source = old.find(sources.get(one.name, ""))
        if source is not None:
            kept[one.name] = source
    fresh = [one for one in header.variables if one.name not in sources]
    gone = [one for one in old.variables if one.name not in sources.values()]
    has_records = file.records > 0 and any(map(old.is_record, old.variables))
    if not fresh and not any(map(old.is_record, gone)):
        # Nothing has to move, unless the header does not fit.
        begins = {name: one.begin for name, one in kept.items()}
        if length <= min(begins.values(), default=length):
            return _set_begins(header, begins)
    if has_records and (fresh or any(map(old.is_record, gone))):
        return None
    fixed = [one for one in kept.values() if not old.is_record(one)]
    if has_records or length > min((one.begin for one in fixed), default=length):
        return None
    if all(map(old.is_record, old.variables)):
        return places.arrange(header)
    # After all elements of the old file, also those that nothing needs later.
    end, begins = max(places.find_end_of_fixed(old), length), {}
    for one in header.variables:
        if header.is_record(one):
            continue
        if one.name in kept:
            begins[one.name] = kept[one.name].begin
            continue
        nbytes = places.compute_bytes(header, one)
        begins[one.name] = places.place_after(end, nbytes)
        end = begins[one.name] + round_up(nbytes)
    end = places.place_after(end)
    for one in header.variables:
        if header.is_record(one):
            begins[one.name] = end
            end += round_up(places.compute_bytes(header, one))
    return _set_begins(header, begins)


def _set_begins(header: Header, begins: Mapping[str, int]) -> Header:
    variables = (replace(one, begin=begins[one.name]) for one in header.variables)
    return replace(header, variables=tuple(variables))


def rebuild(
    file: ClassicFile, header: Header, sources: Mapping[str, str], elements: Mapping[str, bytes]
) -> None:
    """Put a complete new file in the place of one."""
    check_whole(file)
    placed = places.arrange(header)
    places.check_version(placed, file.path)
    with durable.os_errors("opening", file.path):
        fd_old = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)

    def fill(fd: int) -> None:
        old = (fd_old, file.header, file.records)
        moving.build(fd, placed, placed.records or 0, old, sources, elements)

    try:
        durable.create_file(file.path, fill, exclusive=False)
    finally:
        os.close(fd_old)


def refill(file: ClassicFile, variable: Variable, element: bytes) -> None:
    """Write an element into all of a variable, whose bytes are zero; durable."""
    if not any(element):
        return
    with durable.os_errors("filling a variable of", file.path):
        fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if file.header.is_record(variable):
                moving.refill_records(fd, file.header, file.records, variable.name, element)
            else:
                moving.fill_variable(fd, file.header, variable, element)
            os.fsync(fd)
        finally:
            os.close(fd)


def grow(file: ClassicFile, records: int, skip: Sequence[str]) -> None:
    """
    Make room for more records, which the number of records does not tell of; they are filled.

    Variables in `skip` are written by the caller. The caller is alone (`files.changing`).
    """
    header = file.header
    places.check_version(header.with_records(records), file.path)
    begin, step = places.find_record_begin(header), places.compute_record_size(header)
    assert begin is not None
    _check_63_bits(file.path, begin + records * step)
    check_whole(file)
    end = begin + file.records * step
    durable.change_length(file.path, end, begin + records * step)
    with durable.os_errors("adding records to", file.path):
        fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            moving.fill_records(fd, header, file.records, records, {}, skip)
            os.fsync(fd)
        finally:
            os.close(fd)


def _check_63_bits(path: str, end: int) -> None:
    if end > MAX_BYTES:
        raise UsageError(
            f"{path!r}: the records would end at byte {end}, beyond 63 bits; split the array",
            code="too-large",
            path=path,
        )


def set_length(file: ClassicFile, records: int) -> None:
    """Set the number of records; bytes after the last one are cut off, after that."""
    files.write_records(file, records)
    if records < file.records:
        cut(file, records)


def cut(file: ClassicFile, records: int) -> None:
    """Cut off bytes after the last record."""
    begin, step = places.find_record_begin(file.header), places.compute_record_size(file.header)
    if begin is None:
        return
    end = begin + records * step
    durable.change_length(file.path, end, end)
