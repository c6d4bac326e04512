"""
Elements of classic NetCDF files that a change of the header moves, or that nobody has written yet.

Problem. Where the header has no room for what is added, or a record variable is added to records that
exist, all elements get other places. And NetCDF fills new records of every variable with its fill
value.
Idea. `build` writes a complete file from a header and an older file; it replaces the older one in one
step, as a new array does (`durable.create_file`). Fixed variables are copied by the system, records in
blocks. `fill_records` writes the fill values of new records, before the number of records tells of
them.
Invariants. Memory is bounded and counted, however large the file is. Nothing is decoded: bytes move.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import FormatError
from outcore.formats import durable
from outcore.formats.netcdf.classic import places
from outcore.formats.netcdf.classic.attributes import find_fill
from outcore.formats.netcdf.classic.header import Header, Variable, round_up

__all__ = [
    "build",
    "encode_fill",
    "fill_records",
    "fill_variable",
    "find_data_end",
    "find_file_end",
    "refill_records",
]

# Bytes of a buffer of records, or of fill values.
_BLOCK = 1 << 22
# Slots of a record are filled one by one if the others are larger, and so large.
_APART = 1 << 16


def encode_fill(variable: Variable, value: object = None) -> bytes:
    """Return the bytes of an element that is filled; by default with the fill value of the variable."""
    filled = find_fill(variable) if value is None else value
    return np.asarray(filled, variable.dtype).tobytes()


def find_data_end(header: Header, records: int) -> int:
    """Return the first byte after all elements."""
    begin, end = places.find_record_begin(header), places.find_end_of_fixed(header)
    if begin is None or not records:
        return end
    last = max(
        one.begin + places.compute_bytes(header, one)
        for one in header.variables
        if header.is_record(one)
    )
    return max(end, last + (records - 1) * places.compute_record_size(header))


def find_file_end(header: Header, records: int) -> int:
    """Return the size of a file: the end of all elements and of their padding."""
    begin = places.find_record_begin(header)
    if begin is None or not records:
        return round_up(places.find_end_of_fixed(header))
    # Exact: SciPy divides the bytes from here to the end of the file into records.
    return begin + records * places.compute_record_size(header)


def fill_variable(fd: int, header: Header, variable: Variable, element: bytes) -> None:
    """Write the fill value into all of a variable without records, whose bytes are zero."""
    _fill(fd, variable.begin, places.compute_bytes(header, variable), element)


def _fill(fd: int, begin: int, nbytes: int, element: bytes) -> None:
    if not any(element):
        return
    size = min(_BLOCK, nbytes) // len(element) * len(element)
    with _core.Reservation("fill values", size):
        block = memoryview(element * (size // len(element)))
        for at in range(0, nbytes, size):
            durable.write_all(fd, block[: min(size, nbytes - at)], begin + at)


def fill_records(
    fd: int,
    header: Header,
    first: int,
    last: int,
    elements: Mapping[str, bytes],
    skip: Collection[str] = (),
) -> None:
    """
    Write the fill values of records `first` to `last`, whose bytes are zero.

    `elements` has the element for variables that are not filled with their own fill value. Variables in
    `skip` are written by the caller; where that costs less they are filled, too.
    """
    begin, step = places.find_record_begin(header), places.compute_record_size(header)
    assert begin is not None
    slots = _list_slots(header, elements, skip)
    if not slots or first >= last:
        return
    written = sum(nbytes for _, _, nbytes in slots)
    if step > _BLOCK or (written < step // 2 and step >= _APART):
        for record in range(first, last):
            for at, element, nbytes in slots:
                _fill(fd, begin + record * step + at, nbytes, element)
        return
    count = min(max(_BLOCK // step, 1), last - first)
    with _core.Reservation("fill values", count * step):
        block = _make_filled(slots, count, step)
        for record in range(first, last, count):
            part = block.reshape(-1).data[: min(count, last - record) * step]
            durable.write_all(fd, part, begin + record * step)


def _list_slots(
    header: Header, elements: Mapping[str, bytes], skip: Collection[str]
) -> list[tuple[int, bytes, int]]:
    """Return place, element and bytes of the parts of a record that are filled, with their padding."""
    begin, step, found = (
        places.find_record_begin(header) or 0,
        places.compute_record_size(header),
        [],
    )
    for one in header.variables:
        if not header.is_record(one) or one.name in skip:
            continue
        element = elements.get(one.name) or encode_fill(one)
        nbytes, at = places.compute_bytes(header, one), one.begin - begin
        if any(element):
            found.append((at, element, min(round_up(nbytes), step - at)))
    return found


def _make_filled(slots: list[tuple[int, bytes, int]], records: int, step: int) -> NDArray[np.uint8]:
    """Return records with fill values, and zeros between."""
    block = np.zeros((records, step), np.uint8)
    for at, element, nbytes in slots:
        block[:, at : at + nbytes] = np.frombuffer(element * (nbytes // len(element)), np.uint8)
    return block


def build(
    fd: int,
    header: Header,
    records: int,
    old: tuple[int, Header, int],
    sources: Mapping[str, str],
    elements: Mapping[str, bytes],
) -> None:
    """
    Write a complete file.

    Parameters
    ----------
    fd
        The new file, which is empty.
    header, records
        Its header, with places, and its number of records.
    old
        The older file, open, with its header and its number of records.
    sources
        For each variable that has elements in the older file, its name there.
    elements
        The element that others are filled with, by their names.
    """
    fd_old, header_old, _ = old
    raw = places.to_bytes(header.with_records(records))
    durable.write_all(fd, raw, 0)
    _core.allocate(fd, len(raw), max(find_file_end(header, records), len(raw)))
    for one in header.variables:
        if header.is_record(one):
            continue
        source = _find(header_old, sources.get(one.name))
        if source is None:
            fill_variable(fd, header, one, elements.get(one.name) or bytes(one.dtype.itemsize))
        else:
            _copy(fd_old, source.begin, fd, one.begin, places.compute_bytes(header, one))
    if places.find_record_begin(header) is not None and records:
        _move_records(fd, header, records, old, sources, elements)


def _find(header: Header, name: str | None) -> Variable | None:
    return None if name is None else header.find(name)


def _copy(source: int, there: int, target: int, here: int, nbytes: int) -> None:
    """Copy bytes of one file to another; the system does it, where it can."""
    done = 0
    with contextlib.suppress(OSError):  # another file system, or one that cannot
        while done < nbytes:
            count = os.copy_file_range(
                source, target, min(nbytes - done, 1 << 30), there + done, here + done
            )
            if not count:
                break
            done += count
    size = min(_BLOCK, nbytes)
    with _core.Reservation("bytes that are moved", size):
        while done < nbytes:
            block = durable.read_at(source, min(size, nbytes - done), there + done)
            if not block:
                raise _make_ended_error(there + done)
            durable.write_all(target, block, here + done)
            done += len(block)


def _move_records(
    fd: int,
    header: Header,
    records: int,
    old: tuple[int, Header, int],
    sources: Mapping[str, str],
    elements: Mapping[str, bytes],
) -> None:
    """Copy records to where they are now, and fill those of new variables."""
    fd_old, header_old, records_old = old
    begin, step = places.find_record_begin(header), places.compute_record_size(header)
    begin_old, step_old = (
        places.find_record_begin(header_old),
        places.compute_record_size(header_old),
    )
    assert begin is not None
    pairs, known = [], set()
    for one in header.variables:
        source = _find(header_old, sources.get(one.name))
        if header.is_record(one) and source is not None and begin_old is not None:
            nbytes = places.compute_bytes(header, one)
            pairs.append((source.begin - begin_old, one.begin - begin, nbytes))
            known.add(one.name)
    count = min(records, records_old) if pairs else 0
    slots = _list_slots(header, elements, known)
    all_known = len(pairs) == sum(map(header.is_record, header.variables))
    if begin_old is not None and count:
        if all_known and step == step_old and all(a == b for a, b, _ in pairs):
            nbytes = min(count * step, find_data_end(header_old, records_old) - begin_old)
            _copy(fd_old, begin_old, fd, begin, nbytes)
        else:
            _copy_slots(fd_old, begin_old, step_old, fd, begin, step, pairs, slots, count)
    fill_records(fd, header, count, records, elements)


def _copy_slots(
    source: int,
    there: int,
    step_old: int,
    target: int,
    here: int,
    step: int,
    pairs: list[tuple[int, int, int]],
    slots: list[tuple[int, bytes, int]],
    records: int,
) -> None:
    """Copy parts of records (place in the old record and in the new one, bytes), and fill others."""
    count = min(_BLOCK // max(step, step_old), records)
    if not count:
        for record in range(records):
            for old, new, nbytes in pairs:
                here_, there_ = here + record * step + new, there + record * step_old + old
                _copy(source, there_, target, here_, nbytes)
            for at, element, nbytes in slots:
                _fill(target, here + record * step + at, nbytes, element)
        return
    with _core.Reservation("records that are moved", count * (step + step_old)):
        first = np.zeros((count, step_old), np.uint8)
        second = _make_filled(slots, count, step)
        for record in range(0, records, count):
            part = min(count, records - record)
            view = first.reshape(-1).data[: part * step_old]
            durable.read_into(source, view, there + record * step_old)
            for old, new, nbytes in pairs:
                second[:part, new : new + nbytes] = first[:part, old : old + nbytes]
            whole = second.reshape(-1).data[: part * step]
            durable.write_all(target, whole, here + record * step)


def refill_records(fd: int, header: Header, records: int, name: str, element: bytes) -> None:
    """Write an element into all records of one variable; others stay as they are."""
    begin, step = places.find_record_begin(header), places.compute_record_size(header)
    assert begin is not None
    others = [one for one in header.variables if header.is_record(one) and one.name != name]
    pairs = [
        (one.begin - begin, one.begin - begin, places.compute_bytes(header, one)) for one in others
    ]
    slots = _list_slots(header, {name: element}, [one.name for one in others])
    if step > _BLOCK:
        pairs = []
    _copy_slots(fd, begin, step, fd, begin, step, pairs, slots, records)


def _make_ended_error(at: int) -> FormatError:
    return FormatError(
        f"the file ended at byte {at} while it was copied; it was cut off, copy it again",
        code="file-too-short",
    )
