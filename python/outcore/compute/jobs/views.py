"""
Views: the same elements with other axes.

Problem. A transform along an axis that is too long for memory treats it as a matrix, and a section
of whole rows of that matrix is not a section of the array.
Idea. If elements are found by arithmetic, a divided axis is two axes, each with its stride: the
same file with another description.

Invariants. Writes to an array and to its views wait for each other where necessary: one of them may
read, change and write back (in windows) elements that another is about to write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from outcore.arrays.disk import DiskArray, Mode
from outcore.compute.jobs.memory import InMemory
from outcore.formats.layout import ArrayInfo, Strided

__all__ = ["open_view"]

Lengths = Sequence[tuple[int, ...]]


def open_view(array: Any, lengths: Lengths, memory: int, *, write: bool) -> Any:
    """
    Open an array with its axes divided as in `View`; its own handle is not changed.

    An operation on it uses at most `memory` bytes.
    """
    shape = tuple(n for axis in lengths for n in axis)
    if isinstance(array, InMemory):
        part = array.data[tuple(slice(math.prod(axis)) for axis in lengths)]
        return InMemory(part.reshape(shape), array.path)
    info = _divide_axes(array.info, lengths, shape)
    mode: Mode = "r+" if write else "r"
    view = DiskArray(info, mode, replace(array.hints, memory=memory), array.handle.options)
    view.handle.core = array.handle.core.view(info, view.handle.own_hints)
    return view


def _divide_axes(info: ArrayInfo, lengths: Lengths, shape: tuple[int, ...]) -> ArrayInfo:
    assert isinstance(info.layout, Strided), "only strided arrays have views"
    strides: list[int] = []
    for stride, axis in zip(info.layout.strides, lengths, strict=True):
        strides += [stride * math.prod(axis[n + 1 :]) for n in range(len(axis))]
    return replace(
        info, shape=shape, dims=None, layout=replace(info.layout, strides=tuple(strides))
    )
