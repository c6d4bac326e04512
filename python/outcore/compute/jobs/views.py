"""
The same elements with other axes.

Problem. A transform along an axis that is too long for memory works on it as on a matrix, and a section
of whole rows of that matrix is not a section of the array.
Idea. Where elements are found by arithmetic, an axis that is divided is two axes with strides of their
own: the same file, described otherwise.

Invariants. Writes of an array and of its views wait for each other where they must: what one reads,
changes and writes back (windows), another one may be about to write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from outcore.arrays.disk import DiskArray, Mode
from outcore.compute.jobs.memory import InMemory
from outcore.formats.layout import ArrayInfo, Strided

__all__ = ["seen"]

Lengths = Sequence[tuple[int, ...]]


def seen(array: Any, lengths: Lengths, memory: int, *, write: bool) -> Any:
    """
    An array with its axes divided.

    Parameters
    ----------
    array
        The array; its handle stays as it is.
    lengths
        As in `outcore.compute.jobs.View`.
    memory
        Bytes that an operation on it may hold.
    write
        Whether it is written to.
    """
    shape = tuple(n for axis in lengths for n in axis)
    if isinstance(array, InMemory):
        part = array.data[tuple(slice(math.prod(axis)) for axis in lengths)]
        return InMemory(part.reshape(shape), array.path)
    info = _divided(array.info, lengths, shape)
    mode: Mode = "r+" if write else "r"
    view = DiskArray(info, mode, replace(array.hints, memory=memory), array.handle.options)
    view.handle.core = array.handle.core.view(info, view.handle.own_hints)
    return view


def _divided(info: ArrayInfo, lengths: Lengths, shape: tuple[int, ...]) -> ArrayInfo:
    assert isinstance(info.layout, Strided), "only strided arrays have views"
    strides: list[int] = []
    for stride, axis in zip(info.layout.strides, lengths, strict=True):
        strides += [stride * math.prod(axis[n + 1 :]) for n in range(len(axis))]
    return replace(
        info, shape=shape, dims=None, layout=replace(info.layout, strides=tuple(strides))
    )
