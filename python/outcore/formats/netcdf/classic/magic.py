"""
The magic bytes of classic NetCDF files, and the formats that they stand for.

Separate from the formats, so that files of other formats are told apart without importing these.
"""

from __future__ import annotations

from outcore.errors import UnsupportedError
from outcore.formats import durable

__all__ = ["NAMES", "read_version", "refuse_classic"]

#: Name of the format of each version.
NAMES = {1: "netcdf3_classic", 2: "netcdf3_64bit_offset", 5: "netcdf3_64bit_data"}


def read_version(path: str) -> int | None:
    """Return the version of a classic NetCDF file: 1, 2 or 5; None for another file."""
    found = durable.read_beginning(path, 4)
    version = found[3] if len(found) == 4 and found[:3] == b"CDF" else None
    return version if version in NAMES else None


def refuse_classic(path: str) -> None:
    """Raise `UnsupportedError` if a file that was to be NetCDF4 is a classic one."""
    version = read_version(path)
    if version is not None:
        raise UnsupportedError(
            f"{path!r} is a classic NetCDF file (CDF-{version}), not NetCDF4; omit format=, or pass "
            f"format={NAMES[version]!r}",
            code="netcdf-classic",
            path=path,
        )
