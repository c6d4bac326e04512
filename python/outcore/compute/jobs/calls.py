"""
Calls as values of JSON, recorded in a journal so that a job can be resumed without its program.

Idea. An encoding of everything in a call that JSON can hold, and of dtypes and small arrays. The
arguments of an operation are the keywords that repeat it; its inputs come first, and its results
get the same names.

Invariants. A call is recorded as a whole, or not at all.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.compute.jobs.operation import Operation
from outcore.ranks.ranks import Ranks

__all__ = ["decode", "encode", "encode_call", "repeat_call"]

# Maximum number of elements of an array that is recorded.
_MOST = 10_000


def encode_call(
    operation: Operation,
    outs: Sequence[str | None],
    budget: int,
    options: Mapping[str, Any],
    *,
    overwrite: bool,
) -> dict[str, Any] | None:
    """
    Return a call as values that JSON can hold; None if some part of it cannot be recorded.

    `outs` has None for a result without a name: such a call cannot be repeated either.
    """
    if not operation.repeatable or None in outs:
        return None
    inputs = []
    for array in operation.inputs:
        if not isinstance(array, DiskArray):
            return None
        inputs.append({"path": array.handle.location, "options": dict(array.handle.options)})
    try:
        return {
            "function": operation.name,
            "inputs": [encode(one) for one in inputs],
            "out": list(outs),
            "out_name": operation.out_name,
            "in_names": list(operation.in_names),
            "arguments": {k: encode(v) for k, v in operation.arguments.items()},
            "how": {k: encode(v) for k, v in options.items()},
            "memory": budget,
            "overwrite": overwrite,
        }
    except TypeError:
        return None


def repeat_call(call: Mapping[str, Any], ranks: Ranks, **words: Any) -> Any:
    """Repeat a recorded call, with further keywords. Collective over the ranks."""
    outcore, public = map(importlib.import_module, ("outcore", "outcore.public"))
    inputs = [decode(one) for one in call["inputs"]]
    arrays: list[DiskArray] = []

    def open_inputs() -> None:
        arrays.extend(outcore.open(one["path"], **one["options"]) for one in inputs)

    try:
        # If one rank cannot open them, the others must not wait for it.
        ranks.run_on_all(open_inputs)
        outs, names = call["out"], call.get("in_names", [])
        first = len(arrays) - len(names)
        how = {
            **dict(zip(names, arrays[first:], strict=True)),
            **{k: decode(v) for k, v in call["arguments"].items()},
            **{k: decode(v) for k, v in call["how"].items()},
            call["out_name"]: outs[0] if len(outs) == 1 else tuple(outs),
            "memory": call["memory"],
            "overwrite": call.get("overwrite", False),
            "comm": ranks.comm,
        }
        return public.find_public(call["function"])(*arrays[:first], **{**how, **words})
    finally:
        for array in arrays:
            array.close()


def encode(value: Any) -> Any:
    """Convert a value to what JSON can hold; raise `TypeError` if that is impossible."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, slice):
        return {"slice": [encode(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, np.dtype):
        return {"dtype": encode(np.lib.format.dtype_to_descr(value))}
    if isinstance(value, np.generic | np.ndarray):
        if value.size > _MOST or value.dtype.hasobject:
            raise TypeError(f"{value.size} elements of {value.dtype}")
        return {"array": encode(value.tolist()), "of": value.dtype.str}
    if isinstance(value, Mapping):
        return {"mapping": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    raise TypeError(type(value).__qualname__)


def decode(value: Any) -> Any:
    """Convert a value back that `encode` has converted."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value), "mapping")
    inner = value[kind]
    if kind == "complex":
        return complex(*inner)
    if kind == "slice":
        return slice(*(decode(v) for v in inner))
    if kind == "dtype":
        return np.lib.format.descr_to_dtype(decode(inner))
    if kind == "array":
        return np.array(decode(inner), value["of"])[()]
    if kind == "tuple":
        return tuple(decode(v) for v in inner)
    return {decode(k): decode(v) for k, v in inner}
