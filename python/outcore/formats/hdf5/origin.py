"""
The identity of the HDF5 dataset of a handle: the file, and the content of its object header.

Problem: elements are read without the library, at their addresses when the dataset was opened. Since
then another program may have created the file again (h5py's mode ``"w"`` does so in place), or
replaced the dataset in it: its elements would be read with the type and shape of the old one.
Approach: type, shape and place of a dataset are the first messages of its object header. Their bytes
are stored, and compared at each access before which another program wrote to the file
(`outcore_io::original`). If they differ, the library is asked: the cause may be an attribute. A
deletion alone changes nothing in the file, so outcore marks a dataset that it replaces.
Invariants: bytes of the header decide only if they are equal.

Reference: HDF5 File Format Specification, IV.A (data object headers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from outcore import _core
from outcore.errors import StorageError
from outcore.formats import durable
from outcore.formats.hdf5.library import h5py
from outcore.formats.layout import Origin, Part

# The message with the place of the elements: the last important one in headers of version 1.
_LAYOUT = 8
# Sufficient for the first messages of most datasets; and of all, except with very many fields.
_USUAL, _READ = 1 << 10, 64 << 10


#: Identity of the file (`_core.file_id`), and of an object header the important part: offset and
#: bytes.
DatasetIdentity = tuple[tuple[int, int, int], tuple[int, bytes]]


def attach_origin(
    part: Part, name: str, seen: DatasetIdentity, again: Callable[[], Part | None]
) -> Part:
    """
    Return the only part of a contiguous dataset with its origin, which has `seen`.

    `again` returns the current place of the elements; None if there is another dataset, or none.
    """

    def check() -> tuple[int, bytes]:
        now = again()
        if now is None or now.origin is None or now.origin.file != file:
            raise StorageError(
                f"{part.path!r}: dataset {name!r} was replaced since it was opened; open it again",
                code="file-changed",
                path=part.path,
            )
        return now.origin.header

    file, header = seen
    return replace(part, origin=Origin(file, header, check))


def get_address(dset: Any) -> int:
    """
    Return the address of the object header of a dataset, as the file counts.

    `h5o.get_info` returns it too, but counts the bytes of the whole index of chunks for it.
    """
    low, high = h5py.h5g.get_objinfo(dset.id, b".").objno
    return int(low) | int(high) << 32 if high else int(low)


def get_userblock(dset: Any) -> int:
    """Return the byte of a dataset's file at which its addresses start."""
    return int(h5py.h5i.get_file_id(dset.id).get_create_plist().get_userblock())


def identify(path: str, dset: Any) -> DatasetIdentity:
    """Return the identity of file `path`, and the important part of an object header."""
    with durable.os_errors("opening", path), durable.open_fd(path) as fd:
        at = get_userblock(dset) + get_address(dset)
        return _core.file_id(fd), read_header(fd, at)


def read_header(fd: int, at: int) -> tuple[int, bytes]:
    """Return the important part of the object header at byte `at` of an open file: offset and bytes."""
    for length in (_USUAL, _READ):
        raw = durable.read_at(fd, length, at)
        first, end = find_messages(raw)
        if end < len(raw):
            break
    return at + first, raw[first:end]


def is_unchanged(path: str, file: tuple[int, int, int], header: tuple[int, bytes]) -> bool:
    """Return whether file and header are unchanged."""
    at, raw = header
    with durable.os_errors("opening", path), durable.open_fd(path) as fd:
        return _core.file_id(fd) == file and durable.read_at(fd, len(raw), at) == raw


def find_dataset(file: Any, name: str) -> Any:
    """Return the dataset with a name in an open file; None if there is none."""
    try:
        found = file[name]
    except KeyError as error:
        if "errno = " in str(error):  # a failing disk, too, is reported as a missing name
            raise
        return None
    return found if isinstance(found, h5py.Dataset) else None


def mark_replaced(file: Any, name: str) -> None:
    """
    Change the object header of a dataset before it is deleted, so that open handles detect it.

    The deletion alone does not change the header in the file. A second name changes its count of
    names.
    """
    second = f"{name.rstrip('/')}.outcore-old"
    if second not in file:
        file[second] = file[name]
        file.flush()
        del file[second]


def get_fingerprint(dset: Any, plist: Any = None) -> tuple[object, ...]:
    """Return all that defines how the chunks of a dataset, created with `plist`, become elements."""
    plist = dset.id.get_create_plist() if plist is None else plist
    filters = tuple(plist.get_filter(k) for k in range(plist.get_nfilters()))
    return bytes(dset.id.get_type().encode()), dset.chunks, len(dset.shape), filters


def find_messages(raw: bytes) -> tuple[int, int]:
    """
    Find the messages of an object header up to the one with the place of the elements.

    `raw` may be longer than the header. Return the first byte, and the one after the last; the whole
    header if its kind is unknown.
    """
    if raw[:4] == b"OHDR" and len(raw) > 16:
        # With its checksum, which shows changes elsewhere in it.
        flags = raw[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        size = int.from_bytes(raw[at : at + width], "little")
        return at + width, min(at + width + size + 4, len(raw))
    if raw[:1] != b"\x01" or len(raw) <= 16:
        return 0, min(len(raw), 16)
    at, end = 16, 16 + int.from_bytes(raw[8:12], "little")
    end = min(end, len(raw))
    while at + 8 <= end:
        kind, size = (int.from_bytes(raw[k : k + 2], "little") for k in (at, at + 2))
        at += 8 + size
        if kind == _LAYOUT:
            end = min(at, end)
            break
    return 4, end  # starting with the count of its names
