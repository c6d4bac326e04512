"""
Arrays larger than memory, at the speed of the disks.

>>> import numpy as np, outcore
>>> a = outcore.create("field.npy", (1000, 3000), "f8")
>>> a[100:200, ::3] = 1.5
>>> a[150, :4]
array([1.5, 0. , 0. , 1.5])

`open`, `open_many` and `create` return `DiskArray`s, `open_group` a `Group` of them; `memory` sets a
fixed memory budget; `Hints` never change results. NumPy's functions have NumPy's names here, and in
`outcore.fft` and `outcore.linalg`; filters are in `outcore.ndimage`, and `outcore.mpi` is for programs
with many ranks.
"""

import atexit as _atexit
import importlib
from typing import TYPE_CHECKING, Any

from outcore._core import __version__
from outcore.arrays import measured as _measured
from outcore.base import ranked as _ranked
from outcore.errors import BudgetError, OutcoreError

if TYPE_CHECKING:
    from outcore import (  # noqa: F401
        errors,
        fft,
        formats,
        jobs,
        linalg,
        model,
        mpi,
        ndimage,
        testing,
        types,
        unstructured,
    )
    from outcore.arrays.creating import create
    from outcore.arrays.disk import DiskArray
    from outcore.arrays.groups import Group, open_group
    from outcore.arrays.indices.schedule import IndexSchedule
    from outcore.arrays.opening import open, open_many
    from outcore.arrays.strings import StringArray
    from outcore.arrays.verification import verify
    from outcore.base.hints import Hints, memory
    from outcore.compute.blocks.map_blocks import apply_along_axis, map_blocks
    from outcore.compute.copies.convert import convert
    from outcore.compute.copies.transpose import rechunk, transpose
    from outcore.compute.products.matmul import matmul
    from outcore.compute.products.tensordot import inner, outer, tensordot
    from outcore.compute.reduce.extremes import argmax, argmin, max, min, ptp
    from outcore.compute.reduce.histogram import bincount, histogram
    from outcore.compute.reduce.nanquantiles import nanmedian, nanpercentile, nanquantile
    from outcore.compute.reduce.nanreductions import (
        nanargmax,
        nanargmin,
        nanmax,
        nanmean,
        nanmin,
        nanprod,
        nanstd,
        nansum,
        nanvar,
    )
    from outcore.compute.reduce.norms import dot, vdot, vecdot
    from outcore.compute.reduce.quantiles import median, percentile, quantile
    from outcore.compute.reduce.reductions import all, any, count_nonzero, mean, prod, std, sum, var
    from outcore.compute.reduce.scans import cumprod, cumsum, nancumprod, nancumsum
    from outcore.compute.reduce.statistics import statistics
    from outcore.compute.sort.calls import argsort, sort
    from outcore.compute.sort.searching import searchsorted
    from outcore.compute.sort.unique import unique
    from outcore.compute.stencils.stencil import stencil
    from outcore.formats import ls

__all__ = [
    "BudgetError",
    "DiskArray",
    "Group",
    "Hints",
    "IndexSchedule",
    "OutcoreError",
    "StringArray",
    "__version__",
    "all",
    "any",
    "apply_along_axis",
    "argmax",
    "argmin",
    "argsort",
    "bincount",
    "convert",
    "count_nonzero",
    "create",
    "cumprod",
    "cumsum",
    "dot",
    "histogram",
    "inner",
    "ls",
    "map_blocks",
    "matmul",
    "max",
    "mean",
    "median",
    "memory",
    "min",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
    "open",
    "open_group",
    "open_many",
    "outer",
    "percentile",
    "prod",
    "ptp",
    "quantile",
    "rechunk",
    "searchsorted",
    "sort",
    "statistics",
    "std",
    "stencil",
    "sum",
    "tensordot",
    "transpose",
    "unique",
    "var",
    "vdot",
    "vecdot",
    "verify",
]

#: What is imported when it is first used, by module; NumPy takes ten times as long as the rest.
_LATER = {
    "outcore.arrays.creating": "create",
    "outcore.arrays.disk": "DiskArray",
    "outcore.arrays.groups": "Group open_group",
    "outcore.arrays.indices.schedule": "IndexSchedule",
    "outcore.arrays.opening": "open open_many",
    "outcore.arrays.strings": "StringArray",
    "outcore.arrays.verification": "verify",
    "outcore.base.hints": "Hints memory",
    "outcore.compute.blocks.map_blocks": "apply_along_axis map_blocks",
    "outcore.compute.copies.convert": "convert",
    "outcore.compute.copies.transpose": "rechunk transpose",
    "outcore.compute.products.matmul": "matmul",
    "outcore.compute.products.tensordot": "inner outer tensordot",
    "outcore.compute.reduce.extremes": "argmax argmin max min ptp",
    "outcore.compute.reduce.histogram": "bincount histogram",
    "outcore.compute.reduce.nanquantiles": "nanmedian nanpercentile nanquantile",
    "outcore.compute.reduce.nanreductions": (
        "nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar"
    ),
    "outcore.compute.reduce.norms": "dot vdot vecdot",
    "outcore.compute.reduce.quantiles": "median percentile quantile",
    "outcore.compute.reduce.reductions": "all any count_nonzero mean prod std sum var",
    "outcore.compute.reduce.scans": "cumprod cumsum nancumprod nancumsum",
    "outcore.compute.reduce.statistics": "statistics",
    "outcore.compute.sort.calls": "argsort sort",
    "outcore.compute.sort.searching": "searchsorted",
    "outcore.compute.sort.unique": "unique",
    "outcore.compute.stencils.stencil": "stencil",
    "outcore.formats": "ls",
}
# Modules that are found as attributes without an import of their own.
_MODULES = (
    *("errors", "fft", "formats", "jobs", "linalg", "model", "mpi", "ndimage"),
    *("testing", "types", "unstructured"),
)
_HOMES = {name: module for module, names in _LATER.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import what is used for the first time (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(f"outcore.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'outcore' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_ranked.register("outcore.ranks.collective.opening")
# Figures of disks that `outcore bench` has measured, or processes have learned.
_measured.apply_parameters()
_atexit.register(_measured.store_learned)
