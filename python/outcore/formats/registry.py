"""
The known formats: those of outcore, those that a program registers, and those of other packages.

Problem: the libraries of formats, and the modules that use them, take longer to import than all else.
Approach: an entry (`KnownFormat`) has the properties that distinguish formats by name, suffix and kind
of file; the object of the format is created when a path of the format is opened or created. Formats of
other packages are entry points of the group ``outcore.formats``, which is searched if no other format
fits.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from outcore.errors import UsageError

if TYPE_CHECKING:
    from outcore.formats.format import Format

__all__ = [
    "OWN",
    "KnownFormat",
    "find_by_library",
    "find_by_name",
    "find_by_suffix",
    "get_suffix",
    "list_formats",
    "register",
]

#: Group of entry points with formats of other packages.
GROUP = "outcore.formats"


class KnownFormat:
    """
    A known format, which may not be imported yet.

    Arguments are those of `Format`; `where` is the module and class, ``"package.module:Class"``.
    """

    def __init__(
        self,
        name: str,
        suffixes: tuple[str, ...],
        where: str,
        *,
        is_folder: bool = False,
        checks_marks: bool = False,
        library: str | None = None,
    ) -> None:
        self.name, self.suffixes, self.where = name, suffixes, where
        self.is_folder, self.checks_marks, self.library = is_folder, checks_marks, library
        self._loaded: Format | None = None

    @classmethod
    def of(cls, format: Format) -> KnownFormat:
        """Return the entry of a format that is already imported."""
        kind = type(format)
        found = cls(
            format.name,
            format.suffixes,
            f"{kind.__module__}:{kind.__qualname__}",
            is_folder=format.is_folder,
            checks_marks=format.checks_marks,
            library=format.library,
        )
        found._loaded = format
        return found

    def load(self) -> Format:
        """Return the format; import its module first if needed."""
        if self._loaded is None:
            module, _, name = self.where.partition(":")
            self._loaded = getattr(importlib.import_module(module), name)()
        return self._loaded


_HERE = "outcore.formats"
_CLASSIC = f"{_HERE}.netcdf.classic.format"
#: The formats of outcore, in the order in which they inspect a file.
OWN = (
    KnownFormat("npy", (".npy",), f"{_HERE}.npy:Npy", checks_marks=True),
    KnownFormat(
        "netcdf4", (".nc", ".nc4", ".cdf"), f"{_HERE}.netcdf.netcdf4:NetCDF4", library="h5py"
    ),
    KnownFormat("netcdf3_classic", (), f"{_CLASSIC}:NetCDF3Classic"),
    KnownFormat("netcdf3_64bit_offset", (), f"{_CLASSIC}:Classic64BitOffset"),
    KnownFormat("netcdf3_64bit_data", (), f"{_CLASSIC}:Classic64BitData"),
    KnownFormat(
        "hdf5", (".h5", ".hdf5", ".he5", ".hdf"), f"{_HERE}.hdf5.format:Hdf5", library="h5py"
    ),
    KnownFormat(
        "zarr", (".zarr", ".zarr3"), f"{_HERE}.zarr.version3:Zarr3", is_folder=True, library="zarr"
    ),
    KnownFormat(
        "zarr2", (".zarr2",), f"{_HERE}.zarr.version2:Zarr2", is_folder=True, library="zarr"
    ),
    KnownFormat("parts", (".parts",), f"{_HERE}.parts.format:PartsFormat"),
    KnownFormat("zarrzip", (".zip",), f"{_HERE}.zarr.zip:ZarrZip"),
    KnownFormat("raw", (".bin", ".raw", ".dat"), f"{_HERE}.raw:Raw"),
)
#: Names of formats in netCDF4-python and xarray.
_ALIASES = {
    "NETCDF4": "netcdf4",
    "NETCDF3_CLASSIC": "netcdf3_classic",
    "NETCDF3_64BIT": "netcdf3_64bit_offset",
    "NETCDF3_64BIT_OFFSET": "netcdf3_64bit_offset",
    "NETCDF3_64BIT_DATA": "netcdf3_64bit_data",
}
_OF_SUFFIX = {suffix: one for one in OWN for suffix in one.suffixes}
_registered: list[KnownFormat] = []


def register(format: type[Format]) -> type[Format]:
    """
    Let this process open files of a further format. Usable as a class decorator.

    A package registers its format for all programs by an entry point of the group ``outcore.formats``.

    Parameters
    ----------
    format
        Class of the format.

    Raises
    ------
    UsageError
        ``format-exists``: another format has the name.
    """
    if any(one.name == format.name for one in (*OWN, *_registered)):
        raise UsageError(
            f"a format named {format.name!r} already exists; use another name",
            code="format-exists",
        )
    _registered.append(KnownFormat.of(format()))
    return format


@functools.cache
def _load_packages() -> tuple[KnownFormat, ...]:
    from importlib.metadata import entry_points

    return tuple(KnownFormat.of(one.load()()) for one in entry_points(group=GROUP))


def list_formats(*, of_packages: bool = True) -> Iterator[KnownFormat]:
    """
    Iterate over the known formats.

    Searching for formats of other packages (`of_packages`) takes some milliseconds once.
    """
    yield from OWN
    yield from _registered
    if of_packages:
        yield from _load_packages()


def get_suffix(path: str) -> str:
    """
    Return the suffix of a path in lower case, with the dot.

    >>> get_suffix("a/B.NPY"), get_suffix("store.zarr/")
    ('.npy', '.zarr')
    """
    return os.path.splitext(path.rstrip("/"))[1].lower()


def find_by_suffix(path: str, *, of_packages: bool = True) -> KnownFormat | None:
    """Return the format of the suffix of a path, or None."""
    suffix = get_suffix(path)
    found = _OF_SUFFIX.get(suffix)
    if found is not None or not suffix:
        return found
    others = list_formats(of_packages=of_packages)
    return next((one for one in others if suffix in one.suffixes), None)


def find_by_name(name: str) -> KnownFormat:
    """
    Return the format with a name; raise `UsageError` ``unknown-format`` if there is none.

    Names of netCDF4-python and xarray are accepted, too (``NETCDF3_CLASSIC``).
    """
    name = _ALIASES.get(name, name) if isinstance(name, str) else name
    for one in list_formats():
        if name == one.name:
            return one
    known = ", ".join(one.name for one in list_formats())
    raise UsageError(f"unknown format {name!r}; use one of {known}", code="unknown-format")


def find_by_library(module: str) -> KnownFormat | None:
    """Return the format whose library is a Python module, or None."""
    return next((one for one in list_formats() if one.library == module), None)
