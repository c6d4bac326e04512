"""
Where the variables of a classic NetCDF file are stored, and how many bytes they take.

Problem. The places follow from the header by rules with exceptions: variables are padded to 4 bytes,
the records of all record variables are interleaved, and a single record variable has no padding. The
sizes that a header states may be wrong (they do not fit 32 bits, for example), so no reader relies on
them.
Idea. Everything follows from types and dimensions here. `check` refuses headers whose variables lie in
the header or in each other; `arrange` gives the variables of a new file their places.
Invariants. After `check` no two variables have a byte in common, and no sum exceeds 63 bits.

Reference: "The NetCDF Classic Format Specification", notes on ``vsize`` and on padding.
"""

from __future__ import annotations

from dataclasses import replace

from outcore.errors import FormatError, UnsupportedError
from outcore.formats.netcdf.classic.header import Header, Variable, encode, round_up
from outcore.formats.spec import MAX_BYTES, byte_strides

__all__ = [
    "arrange",
    "check",
    "check_version",
    "compute_bytes",
    "compute_record_size",
    "compute_shape",
    "compute_sizes",
    "compute_strides",
    "count_records",
    "find_end_of_fixed",
    "find_record_begin",
    "place_after",
    "to_bytes",
]

# Variables of so many bytes begin at a page: rows of whole pages are whole pages of the file then.
_PAGE, _LARGE = 4096, 1 << 20
# Bytes that a new header may grow by before the data has to move.
_ROOM = 4096
# For each version the greatest length of a dimension, offset, and size of a variable but the last.
_LIMITS = {
    1: (2**31 - 1, 2**31 - 1, 2**31 - 4),
    2: (2**31 - 1, MAX_BYTES, 2**32 - 4),
    5: (MAX_BYTES, MAX_BYTES, MAX_BYTES),
}


def compute_shape(header: Header, variable: Variable, records: int) -> tuple[int, ...]:
    """Return the shape of a variable in a file with that number of records."""
    return tuple(header.dims[number].length or records for number in variable.dims)


def compute_bytes(header: Header, variable: Variable) -> int:
    """Return the bytes of the elements of a variable; of a record variable, those of one record."""
    return header.compute_bytes(variable)


def compute_record_size(header: Header) -> int:
    """Return the distance in bytes from one record of a variable to its next one."""
    return header.record_bytes


def compute_strides(header: Header, variable: Variable, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the byte strides of a variable of this shape."""
    strides = byte_strides(shape, variable.dtype.itemsize, "C")
    return (compute_record_size(header), *strides[1:]) if header.is_record(variable) else strides


def find_record_begin(header: Header) -> int | None:
    """Return the byte at which the first record begins; None if there are no record variables."""
    return min((one.begin for one in header.variables if header.is_record(one)), default=None)


def find_end_of_fixed(header: Header) -> int:
    """Return the first byte after all variables that have no records, and after the header."""
    fixed = (one for one in header.variables if not header.is_record(one))
    return max((one.begin + compute_bytes(header, one) for one in fixed), default=header.size)


def count_records(header: Header, size: int) -> int:
    """Return the number of records: that of the header, or as many as a file of this size has."""
    if header.records is not None:
        return header.records
    begin, step = find_record_begin(header), compute_record_size(header)
    return 0 if begin is None else max(size - begin, 0) // step


def compute_sizes(header: Header) -> tuple[int, ...]:
    """Return the padded size of each variable, as a header states it."""
    return tuple(round_up(compute_bytes(header, one)) for one in header.variables)


def to_bytes(header: Header) -> bytes:
    """Return the bytes of a header."""
    return encode(header, compute_sizes(header))


def check(header: Header, path: str) -> None:
    """Raise `FormatError` if variables lie in the header, in each other, or beyond 63 bits."""

    def make_error(what: str) -> FormatError:
        return FormatError(
            f"{path!r}: the NetCDF header is damaged: {what}; copy the file again",
            code="bad-header",
            path=path,
        )

    fixed = [(one.begin, compute_bytes(header, one), one) for one in header.variables]
    records = sorted((p for p in fixed if header.is_record(p[2])), key=lambda place: place[:2])
    fixed = sorted((p for p in fixed if not header.is_record(p[2])), key=lambda place: place[:2])
    end, above = header.size, "the header"
    for begin, nbytes, one in (*fixed, *records):
        if begin < end:
            raise make_error(
                f"{one.name!r} begins at byte {begin}, within {above}, which ends at {end}"
            )
        end, above = begin + nbytes, repr(one.name)
        if end > MAX_BYTES:
            raise make_error(f"{one.name!r} ends beyond 63 bits")
    if not records:
        return
    begin, step = records[0][0], compute_record_size(header)
    if end > begin + step:
        raise make_error(f"{above} ends {end - begin} bytes into a record of {step} bytes")
    if begin + (header.records or 0) * step > MAX_BYTES:
        raise make_error(f"{header.records} records of {step} bytes end beyond 63 bits")


def check_version(header: Header, path: str) -> None:
    """Raise `UnsupportedError` if sizes or offsets do not fit the version of a file to be written."""
    longest, farthest, largest = _LIMITS[header.version]
    lengths = [
        (dim.length, f"dimension {dim.name!r} has {dim.length} elements") for dim in header.dims
    ]
    lengths.append((header.records or 0, f"there are {header.records} records"))
    for length, what in lengths:
        if length > longest:
            raise _too_large(header, path, f"{what}, and {longest} is the limit")
    fixed = [one for one in header.variables if not header.is_record(one)]
    records = [one for one in header.variables if header.is_record(one)]
    # The last variable of a file may have any size.
    for one in (*(fixed if records else fixed[:-1]), *records[:-1]):
        nbytes = compute_bytes(header, one)
        if nbytes > largest:
            what = (
                f"{one.name!r} has {nbytes} bytes, and {largest} is the limit for all but the last"
            )
            raise _too_large(header, path, what)
    for one in header.variables:
        if one.begin > farthest:
            what = f"{one.name!r} would begin at byte {one.begin}, and {farthest} is the limit"
            raise _too_large(header, path, what)
    if find_end_of_fixed(header) > MAX_BYTES:
        raise _too_large(header, path, "the file does not fit 63 bits")


def _too_large(header: Header, path: str, what: str) -> UnsupportedError:
    other = "netcdf3_64bit_offset" if header.version == 1 else "netcdf3_64bit_data"
    return UnsupportedError(
        f"{path!r}: {what} in CDF-{header.version}; use format={other!r}, or 'netcdf4'",
        code="cannot-keep",
        path=path,
    )


def arrange(header: Header) -> Header:
    """Return a header of a new file: with places for all variables, after room for a longer header."""
    room = max(_ROOM, len(to_bytes(header)))
    at = first = round_up(len(to_bytes(header)) + room, _PAGE)
    begins: dict[str, int] = {}
    fixed = [one for one in header.variables if not header.is_record(one)]
    for one in fixed:
        nbytes = compute_bytes(header, one)
        at = begins[one.name] = place_after(at, nbytes) if at != first else at
        at += round_up(nbytes)
    records = [one for one in header.variables if header.is_record(one)]
    for number, one in enumerate(records):
        at = begins[one.name] = at if number else place_after(at)
        at += round_up(compute_bytes(header, one))
    return replace(
        header,
        variables=tuple(replace(one, begin=begins[one.name]) for one in header.variables),
    )


def place_after(end: int, nbytes: int | None = None) -> int:
    """Return where a variable of that many bytes begins, after byte `end`; None: where records begin."""
    return round_up(end, _PAGE if nbytes is None or nbytes >= _LARGE else 4)
