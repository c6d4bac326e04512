"""Output of commands: JSON documents and the progress bar."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from outcore.base.report.progress import Bar

__all__ = ["Bar", "print_json"]

# Keys of JSON documents stay when an attribute of a report gets a better name.
_KEYS = {
    "cached_chunks": "kept",
    "has_given_shape": "given",
    "lower_bound_bytes": "must_move",
    "lower_bound_name": "bound",
    "page_cache_fraction": "cached",
}


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(_make_plain(document), indent=2, allow_nan=False))


def _make_plain(value: Any) -> Any:
    """Convert a value to JSON types; non-finite numbers and other types become text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(name): _make_plain(item) for name, item in value.items()}
    if isinstance(value, list | set | frozenset | tuple):
        return [_make_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return {_KEYS.get(name, name): _make_plain(item) for name, item in fields.items()}
    return str(value)
