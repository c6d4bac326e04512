"""Helpers of `resize` and `append`: checks, the position of new elements, fill values."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import FormatError, UsageError
from outcore.formats.layout import ArrayInfo
from outcore.formats.spec import check_shape

__all__ = ["Growth", "check_seen", "convert_elements", "plan_append", "refill"]


@dataclass(frozen=True)
class Growth:
    """New elements, the section of the longer array that they fill, and its shape."""

    data: NDArray[Any]
    key: tuple[slice, ...]
    shape: tuple[int, ...]


def convert_elements(info: ArrayInfo, data: Any) -> NDArray[Any]:
    """Return the elements to append as an array in memory."""
    if not isinstance(data, np.ndarray | np.generic):
        data = np.asarray(data, info.dtype)  # a list of tuples may be a list of records
    return np.asarray(data)


def check_seen(known: ArrayInfo, now: ArrayInfo, shape: int | Sequence[int]) -> None:
    """
    Raise `FormatError` (``file-changed``) if a shape would remove elements this handle never saw.

    That is so if another handle made the array longer than both `known` and `shape`.
    """
    full = check_shape(shape, known.dtype.itemsize, known.path, stored=False)
    if len(full) == len(now.shape) == len(known.shape) and any(
        max(mine, wanted) < length
        for mine, wanted, length in zip(known.shape, full, now.shape, strict=True)
    ):
        raise FormatError(
            f"resize: another handle has changed {known.path!r} from shape {known.shape} to "
            f"{now.shape}, and {full} would remove elements that it has appended; open it again",
            code="file-changed",
            path=known.path,
        )


def plan_append(info: ArrayInfo, data: NDArray[Any], axis: SupportsIndex) -> Growth:
    """
    Return the array that results from appending `data` along an axis.

    Raise `UsageError` if there is no such axis, or if the other axes of `data` differ from those of
    the array.
    """
    along, axes = operator.index(axis), len(info.shape)
    if not -axes <= along < axes:
        raise UsageError(
            f"append: axis {along} is out of range for {axes} axes; pass an axis of the array (an array "
            "without axes cannot grow)",
            code="bad-axis",
            path=info.path,
        )
    along %= axes
    if data.ndim == axes - 1:
        data = np.expand_dims(data, along)
    here, there = info.shape, data.shape
    if len(there) != axes or here[:along] + here[along + 1 :] != there[:along] + there[along + 1 :]:
        raise UsageError(
            f"append: data of shape {data.shape} does not fit {info.path!r} of shape "
            f"{here} along axis {along}; make the other axes equal",
            code="broadcast",
            path=info.path,
        )
    key = (*[slice(None)] * along, slice(here[along], None), *[slice(None)] * (axes - along - 1))
    return Growth(data, key, (*here[:along], here[along] + there[along], *here[along + 1 :]))


def refill(core: _core.Array, longer: ArrayInfo, sections: Iterator[tuple[slice, ...]]) -> None:
    """Set the sections that the longer array exposes to its fill value, durably."""
    beside = core.beside(longer)
    try:
        fill = np.zeros((), longer.dtype)
        if longer.fill_value is not None:
            fill[...] = longer.fill_value
        for section in sections:
            beside.write(section, fill)
        beside.flush(True)
    finally:
        beside.close()
