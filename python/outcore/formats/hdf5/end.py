"""
The end of an HDF5 file according to its superblock, checked before the file is changed.

Problem: the library allocates new space from that end on, and cuts the file there when it closes it.
If the end was damaged, data past it is overwritten silently.
Approach: a file whose size equals that end is valid. A longer file was left by a program that was
killed (nothing refers to the rest), or it is damaged: then an object refers to the rest, and an error
is raised.
Invariants: files of the right size cost one check. For others every chunk is requested, once: a change
makes the size right.

Reference: HDF5 File Format Specification 3.0, II "Disk Format: Level 0".
"""

from __future__ import annotations

import os
from typing import Any

from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.library import h5py
from outcore.formats.hdf5.superblock import find_superblock, read_widths


def check_end(path: str, fd: int, file: Any) -> None:
    """Raise `FormatError` if the open `file` has data past the end in its superblock."""
    size, end = os.fstat(fd).st_size, _read_end(fd)
    if end is None or end >= size:
        return

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and (last := _find_dataset_end(item)) > end:
            raise make_damage_error(
                path,
                f"according to its superblock the file ends at byte {end}, but dataset {name!r} has "
                f"bytes up to {last}, which a change of the file would overwrite",
                offset=end,
            )

    file.visititems(visit)


def _read_end(fd: int) -> int | None:
    """Return the end of the file according to the superblock; None if there is none that is known."""
    found = find_superblock(fd)
    if found is None:
        return None
    block = found[1]
    first, width = {0: 24, 1: 28, 2: 12, 3: 12}.get(block[8]), read_widths(block)[0]
    if first is None or width not in (2, 4, 8):
        return None
    start = first + 2 * width  # after two other addresses
    return int.from_bytes(block[start : start + width], "little")


def _find_dataset_end(dset: Any) -> int:
    """Return the byte after the last of a dataset; 0 if its elements are not in this file."""
    ends = [0]
    plist = dset.id.get_create_plist()
    kind = plist.get_layout()
    if kind == h5py.h5d.CONTIGUOUS and not plist.get_external_count():
        offset = dset.id.get_offset()
        ends.append(0 if offset is None else offset + dset.id.get_storage_size())
    elif kind == h5py.h5d.CHUNKED:

        def visit(info: Any) -> None:
            if info.byte_offset is not None:
                ends[0] = max(ends[0], info.byte_offset + info.size)

        dset.id.chunk_iter(visit)
    return max(ends)
