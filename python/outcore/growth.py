"""How an array becomes longer: what may be appended to it, and where that lands."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from outcore.errors import UsageError
from outcore.formats.layout import ArrayInfo

__all__ = ["Growth", "continued"]


@dataclass(frozen=True)
class Growth:
    """New elements, the section of the longer array that they fill, and its shape."""

    data: NDArray[Any]
    key: tuple[slice, ...]
    shape: tuple[int, ...]


def continued(info: ArrayInfo, data: Any, axis: SupportsIndex) -> Growth:
    """
    Tell what an array becomes with `data` behind its last entry along an axis.

    Raises
    ------
    UsageError
        There is no such axis, or the other axes of `data` are not those of the array.
    """
    along, axes = operator.index(axis), len(info.shape)
    if not -axes <= along < axes:
        raise UsageError(
            f"append: axis {along} of {axes} axes; an array without axes cannot grow, "
            "others along one of their own",
            code="bad-axis",
            path=info.path,
        )
    along %= axes
    if not isinstance(data, np.ndarray | np.generic):
        data = np.asarray(data, info.dtype)  # a list of tuples may be one of records
    data = np.asarray(data)
    if data.ndim == axes - 1:
        data = np.expand_dims(data, along)
    here, there = info.shape, data.shape
    if len(there) != axes or here[:along] + here[along + 1 :] != there[:along] + there[along + 1 :]:
        raise UsageError(
            f"append: data of shape {data.shape} does not continue {info.path!r} of shape "
            f"{here} along axis {along}; its other axes must be the same",
            code="broadcast",
            path=info.path,
        )
    key = (*[slice(None)] * along, slice(here[along], None), *[slice(None)] * (axes - along - 1))
    return Growth(data, key, (*here[:along], here[along] + there[along], *here[along + 1 :]))
