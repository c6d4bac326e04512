"""
Names of NetCDF4 variables, and of their datasets in HDF5.

Problem: a dimension is a dataset with the dimension's name, even if no variable has its values. A
variable with the name of a dimension of its group that is not its first one would have that name, too.
Approach: as in the NetCDF library, such a variable has a longer name in HDF5, which readers do not
see.

Reference: ``NON_COORD_PREPEND`` of netcdf-c.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

from outcore.formats.hdf5.attrs import is_bare_dimension

__all__ = ["choose_dataset_name", "find_dataset_name", "to_variable_name"]

_PREFIX = "_nc4_non_coord_"


def to_variable_name(name: str) -> str:
    """
    Return the name of a variable from that of its dataset.

    >>> to_variable_name("/g/_nc4_non_coord_x"), to_variable_name("/g/x")
    ('/g/x', '/g/x')
    """
    group, leaf = posixpath.split(name)
    return posixpath.join(group, leaf.removeprefix(_PREFIX))


def find_dataset_name(file: Any, name: str) -> str:
    """Return the name of the dataset of a variable in an open file; `name` itself if there is none."""
    hidden = _to_hidden_name(name)
    return hidden if hidden in file else name


def choose_dataset_name(file: Any, name: str, dims: Sequence[str | None]) -> str:
    """Return the name for the dataset of a new variable; `file` is None if it becomes a new one."""
    variable = posixpath.basename(name)
    if list(dims[:1]) == [variable]:
        return name  # it becomes the dimension itself
    taken = file is not None and (
        _to_hidden_name(name) in file or (name in file and is_bare_dimension(file[name]))
    )
    return _to_hidden_name(name) if taken or variable in dims else name


def _to_hidden_name(name: str) -> str:
    group, leaf = posixpath.split(name.rstrip("/"))
    return posixpath.join(group, _PREFIX + leaf)
