"""
Lengths of NetCDF4 dimensions, which extend the shape of a variable beyond that of its dataset.

Problem: variables share an unlimited dimension, which is unknown to HDF5: each dataset is as long as
its own last write made it. NetCDF gives all of them the dimension's length.
Approach: as in the NetCDF library, a dimension is as long as the longest dataset that uses it. The
scale of a dimension lists its users (``REFERENCE_LIST``). Elements of a dataset past its own length
were never written: to the layout these are missing chunks, to readers fill values.
Invariants: nothing in the file changes, except in `fit_scales`. Work is proportional to the number of
variables that use the dimensions.

Reference: `nc4_find_dim_len` of netcdf-c; HDF5 dimension scales specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outcore.formats.hdf5 import origin
from outcore.formats.hdf5.attrs import is_bare_dimension, is_scale
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.elsewhere import check_sources
from outcore.formats.hdf5.heaps import check_attributes, check_size
from outcore.formats.hdf5.library import h5py

__all__ = ["DimensionLengths", "fit_scales"]

# Scales of the axes of a variable; variables and axes that use a scale.
_SCALES, _USERS = "DIMENSION_LIST", "REFERENCE_LIST"


class DimensionLengths:
    """Lengths of the dimensions of one open file, each computed once; `path` is for errors."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[int, int] = {}

    def shape(self, dset: Any) -> tuple[int, ...]:
        """Return the shape of a variable; unlimited axes have the dimension's length."""
        lengths = list(dset.shape)
        for axis, scale in self.find_unlimited(dset):
            lengths[axis] = max(lengths[axis], self.measure(scale))
        return tuple(lengths)

    def find_unlimited(self, dset: Any, *, check: bool = True) -> Iterator[tuple[int, Any]]:
        """
        Yield axes that can grow, with the scales of their dimensions.

        Without `check` the references to the scales are trusted: while the file is being changed the
        disk does not have what the library sees, and they were checked when it was opened.
        """
        for axis, most in enumerate(dset.maxshape or ()):
            if most is not None:
                continue
            if axis == 0 and is_scale(dset):
                yield axis, dset
            elif _SCALES in dset.attrs:
                if check:
                    check_attributes(self._path, dset.name, [_SCALES])
                    check = False
                if len(dset.dims[axis]):
                    yield axis, dset.dims[axis][0]

    def measure(self, scale: Any, without: str | None = None) -> int:
        """Return the length of a dimension: of the longest variable that uses it, except `without`."""
        if without is not None:
            return max(
                (n for user, n in self._find_users(scale) if user.name != without), default=0
            )
        address = origin.get_address(scale)
        if address not in self._known:
            self._known[address] = max((n for _, n in self._find_users(scale)), default=0)
        return self._known[address]

    def _find_users(self, scale: Any) -> Iterator[tuple[Any, int]]:
        """Yield variables that use a dimension, each with its own length along it."""
        if not is_bare_dimension(scale) and scale.shape:
            yield scale, int(scale.shape[0])
        for reference, axis in self._read_references(scale):
            user = scale.file[reference]
            if not isinstance(user, h5py.Dataset):
                continue
            check_sources(user)
            if user.shape is None or axis >= len(user.shape):
                raise make_damage_error(
                    self._path,
                    f"{scale.name!r} should be the scale of axis {axis} of {user.name!r}, whose shape "
                    f"is {user.shape}",
                )
            yield user, int(user.shape[axis])

    def _read_references(self, scale: Any) -> Iterator[tuple[Any, int]]:
        if _USERS not in scale.attrs:
            return
        check_size(self._path, scale, _USERS)
        kind = scale.attrs.get_id(_USERS).dtype
        fields = [kind[name] for name in kind.names or ()]
        plain = len(fields) == 2 and h5py.check_ref_dtype(fields[0]) is h5py.Reference
        if not plain or fields[1].kind not in "iu":
            problem = f"{_USERS} of {scale.name!r} is {kind}, not references and axes"
            raise make_damage_error(self._path, problem)
        yield from ((row[0], int(row[1])) for row in scale.attrs[_USERS].flat if row[0])


def fit_scales(path: str, dset: Any) -> None:
    """
    Extend the scales of unlimited axes to the length of their dimensions.

    A scale that is a variable never becomes shorter: it has its own elements.
    """
    lengths = DimensionLengths(path)
    for _, scale in lengths.find_unlimited(dset, check=False):
        length = lengths.measure(scale)
        bare = is_bare_dimension(scale)
        if scale != dset and scale.maxshape[0] is None and (bare or scale.shape[0] < length):
            scale.resize(length, 0)
