"""
Arrays larger than memory, at the speed of the disks.

>>> import numpy as np, outcore
>>> a = outcore.create("field.npy", (1000, 3000), "f8")
>>> a[100:200, ::3] = 1.5
>>> a[150, :4]
array([1.5, 0. , 0. , 1.5])

`open`, `open_many` and `create` return `DiskArray`s, `open_group` a `Group` of them; `memory` sets a
fixed memory budget; `Hints` never change results.
"""

import atexit as _atexit
import importlib
from typing import TYPE_CHECKING, Any

from outcore._core import __version__
from outcore.arrays import measured as _measured
from outcore.base import ranked as _ranked
from outcore.errors import (
    AlreadyExistsError,
    AxisError,
    BudgetError,
    CollectiveError,
    DistributionError,
    FancyIndexError,
    FormatError,
    InternalError,
    LinAlgError,
    NoSuchMemberError,
    NotFoundError,
    OutcoreError,
    PathTypeError,
    PermissionDeniedError,
    SectionError,
    StorageError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from outcore.arrays.blocks import Blocks
    from outcore.arrays.creating import create
    from outcore.arrays.disk import DiskArray
    from outcore.arrays.disk.attributes import Attributes
    from outcore.arrays.disk.selecting import Indexer
    from outcore.arrays.groups import Group, Tree, open_group
    from outcore.arrays.indices.schedule import IndexSchedule
    from outcore.arrays.opening import open, open_many
    from outcore.arrays.strings import StringArray
    from outcore.arrays.verification import Damage, verify
    from outcore.base.hints import Hints, MemoryLimit, memory
    from outcore.base.report import BlocksReport, Report
    from outcore.base.requests import IORequest
    from outcore.compute.blocks.map_blocks import apply_along_axis, map_blocks
    from outcore.compute.copies.convert import convert
    from outcore.compute.copies.transpose import rechunk, transpose
    from outcore.compute.factors.cholesky import cholesky
    from outcore.compute.factors.lu import lu_factor
    from outcore.compute.factors.qr import lstsq, qr, svd
    from outcore.compute.factors.separate import lu
    from outcore.compute.factors.solve import cho_solve, lu_solve, solve
    from outcore.compute.fourier.fft import (
        fft,
        fft2,
        fftn,
        hfft,
        ifft,
        ifft2,
        ifftn,
        ihfft,
        irfft,
        irfft2,
        irfftn,
        rfft,
        rfft2,
        rfftn,
    )
    from outcore.compute.jobs import ComputeReport, Measured, Planned
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
    from outcore.compute.reduce.norms import dot, norm, vdot, vecdot
    from outcore.compute.reduce.quantiles import median, percentile, quantile
    from outcore.compute.reduce.reductions import all, any, count_nonzero, mean, prod, std, sum, var
    from outcore.compute.reduce.scans import cumprod, cumsum, nancumprod, nancumsum
    from outcore.compute.reduce.statistics import statistics
    from outcore.compute.sort.calls import argsort, sort
    from outcore.compute.sort.searching import searchsorted
    from outcore.compute.sort.unique import unique
    from outcore.compute.stencils.filters import (
        convolve,
        correlate,
        gaussian_filter,
        generic_filter,
        maximum_filter,
        median_filter,
        minimum_filter,
        percentile_filter,
        rank_filter,
        uniform_filter,
    )
    from outcore.compute.stencils.lines import (
        convolve1d,
        correlate1d,
        gaussian_filter1d,
        maximum_filter1d,
        minimum_filter1d,
        uniform_filter1d,
    )
    from outcore.compute.stencils.stencil import stencil
    from outcore.formats import Entry, ls
    from outcore.formats.groups import GroupInfo
    from outcore.formats.layout import ArrayInfo, Chunked, Codec, Origin, Part, Strided
    from outcore.model.assignment import Assignment, assign
    from outcore.problems.placement import (
        PlacedArray,
        Shift,
        Slab,
        copy_placed,
        create_placed,
        disk_map,
        open_placed,
    )
    from outcore.problems.unstructured.edge_loop import edge_loop
    from outcore.problems.unstructured.edge_schedule import EdgeSchedule, edge_schedule
    from outcore.problems.unstructured.localize import AllocationList, LocalEdges
    from outcore.problems.unstructured.partition import Partition, partition
    from outcore.problems.unstructured.translation import TranslationTable
    from outcore.ranks.collective import (
        ArrayReport,
        CollectiveArray,
        CollectiveReport,
        CollectiveRequest,
        CollectiveSchedule,
        ListPass,
        ListPrices,
        ListReport,
        ManyReport,
        OwnerReport,
        explain_all,
        read_all,
        write_all,
    )
    from outcore.ranks.dist import Align, DistArray, Distribution, PatchLock, ProcessGrid
    from outcore.ranks.resident import (
        DiskResidentArray,
        LayoutCandidate,
        ResidentLayout,
        ResidentReport,
        disk_array,
    )
    from outcore.ranks.restart.calls import checkpoint, icheckpoint, restore
    from outcore.ranks.transport import Communicator, Transport

__all__ = [
    "Align",
    "AllocationList",
    "AlreadyExistsError",
    "ArrayInfo",
    "ArrayReport",
    "Assignment",
    "Attributes",
    "AxisError",
    "Blocks",
    "BlocksReport",
    "BudgetError",
    "Chunked",
    "Codec",
    "CollectiveArray",
    "CollectiveError",
    "CollectiveReport",
    "CollectiveRequest",
    "CollectiveSchedule",
    "Communicator",
    "ComputeReport",
    "Damage",
    "DiskArray",
    "DiskResidentArray",
    "DistArray",
    "Distribution",
    "DistributionError",
    "EdgeSchedule",
    "Entry",
    "FancyIndexError",
    "FormatError",
    "Group",
    "GroupInfo",
    "Hints",
    "IORequest",
    "IndexSchedule",
    "Indexer",
    "InternalError",
    "LayoutCandidate",
    "LinAlgError",
    "ListPass",
    "ListPrices",
    "ListReport",
    "LocalEdges",
    "ManyReport",
    "Measured",
    "MemoryLimit",
    "NoSuchMemberError",
    "NotFoundError",
    "Origin",
    "OutcoreError",
    "OwnerReport",
    "Part",
    "Partition",
    "PatchLock",
    "PathTypeError",
    "PermissionDeniedError",
    "PlacedArray",
    "Planned",
    "ProcessGrid",
    "Report",
    "ResidentLayout",
    "ResidentReport",
    "SectionError",
    "Shift",
    "Slab",
    "StorageError",
    "Strided",
    "StringArray",
    "TranslationTable",
    "Transport",
    "Tree",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "all",
    "any",
    "apply_along_axis",
    "argmax",
    "argmin",
    "argsort",
    "assign",
    "bincount",
    "checkpoint",
    "cho_solve",
    "cholesky",
    "convert",
    "convolve",
    "convolve1d",
    "copy_placed",
    "correlate",
    "correlate1d",
    "count_nonzero",
    "create",
    "create_placed",
    "cumprod",
    "cumsum",
    "disk_array",
    "disk_map",
    "dot",
    "edge_loop",
    "edge_schedule",
    "explain_all",
    "fft",
    "fft2",
    "fftn",
    "gaussian_filter",
    "gaussian_filter1d",
    "generic_filter",
    "hfft",
    "histogram",
    "icheckpoint",
    "ifft",
    "ifft2",
    "ifftn",
    "ihfft",
    "inner",
    "irfft",
    "irfft2",
    "irfftn",
    "ls",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "map_blocks",
    "matmul",
    "max",
    "maximum_filter",
    "maximum_filter1d",
    "mean",
    "median",
    "median_filter",
    "memory",
    "min",
    "minimum_filter",
    "minimum_filter1d",
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
    "norm",
    "open",
    "open_group",
    "open_many",
    "open_placed",
    "outer",
    "partition",
    "percentile",
    "percentile_filter",
    "prod",
    "ptp",
    "qr",
    "quantile",
    "rank_filter",
    "read_all",
    "rechunk",
    "restore",
    "rfft",
    "rfft2",
    "rfftn",
    "searchsorted",
    "solve",
    "sort",
    "statistics",
    "std",
    "stencil",
    "sum",
    "svd",
    "tensordot",
    "transpose",
    "uniform_filter",
    "uniform_filter1d",
    "unique",
    "var",
    "vdot",
    "vecdot",
    "verify",
    "write_all",
]

#: What is imported when it is first used, by module; NumPy takes ten times as long as the rest.
_LATER = {
    "outcore.model.assignment": "Assignment assign",
    "outcore.arrays.blocks": "Blocks",
    "outcore.ranks.collective": (
        "ArrayReport CollectiveArray CollectiveReport CollectiveRequest CollectiveSchedule ListPass "
        "ListPrices ListReport ManyReport OwnerReport explain_all read_all write_all"
    ),
    "outcore.arrays.creating": "create",
    "outcore.arrays.disk": "DiskArray",
    "outcore.arrays.disk.attributes": "Attributes",
    "outcore.arrays.disk.selecting": "Indexer",
    "outcore.ranks.dist": "Align DistArray Distribution PatchLock ProcessGrid",
    "outcore.formats.groups": "GroupInfo",
    "outcore.arrays.groups": "Group Tree open_group",
    "outcore.formats": "Entry ls",
    "outcore.formats.layout": "ArrayInfo Chunked Codec Origin Part Strided",
    "outcore.base.hints": "Hints MemoryLimit memory",
    "outcore.arrays.indices.schedule": "IndexSchedule",
    "outcore.compute.jobs": "ComputeReport Measured Planned",
    "outcore.compute.blocks.map_blocks": "apply_along_axis map_blocks",
    "outcore.compute.copies.convert": "convert",
    "outcore.compute.copies.transpose": "rechunk transpose",
    "outcore.compute.factors.cholesky": "cholesky",
    "outcore.compute.factors.lu": "lu_factor",
    "outcore.compute.factors.qr": "lstsq qr svd",
    "outcore.compute.factors.separate": "lu",
    "outcore.compute.factors.solve": "cho_solve lu_solve solve",
    "outcore.compute.fourier.fft": (
        "fft fft2 fftn hfft ifft ifft2 ifftn ihfft irfft irfft2 irfftn rfft rfft2 rfftn"
    ),
    "outcore.compute.products.matmul": "matmul",
    "outcore.compute.products.tensordot": "inner outer tensordot",
    "outcore.compute.reduce.extremes": "argmax argmin max min ptp",
    "outcore.compute.reduce.histogram": "bincount histogram",
    "outcore.compute.reduce.nanquantiles": "nanmedian nanpercentile nanquantile",
    "outcore.compute.reduce.nanreductions": (
        "nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar"
    ),
    "outcore.compute.reduce.norms": "dot norm vdot vecdot",
    "outcore.compute.reduce.quantiles": "median percentile quantile",
    "outcore.compute.reduce.reductions": "all any count_nonzero mean prod std sum var",
    "outcore.compute.reduce.scans": "cumprod cumsum nancumprod nancumsum",
    "outcore.compute.reduce.statistics": "statistics",
    "outcore.compute.sort.calls": "argsort sort",
    "outcore.compute.sort.searching": "searchsorted",
    "outcore.compute.sort.unique": "unique",
    "outcore.compute.stencils.filters": (
        "convolve correlate gaussian_filter generic_filter maximum_filter median_filter "
        "minimum_filter percentile_filter rank_filter uniform_filter"
    ),
    "outcore.compute.stencils.lines": (
        "convolve1d correlate1d gaussian_filter1d maximum_filter1d minimum_filter1d "
        "uniform_filter1d"
    ),
    "outcore.compute.stencils.stencil": "stencil",
    "outcore.arrays.opening": "open open_many",
    "outcore.problems.placement": (
        "PlacedArray Shift Slab copy_placed create_placed disk_map open_placed"
    ),
    "outcore.ranks.restart.calls": "checkpoint icheckpoint restore",
    "outcore.base.report": "BlocksReport Report",
    "outcore.base.requests": "IORequest",
    "outcore.ranks.resident": (
        "DiskResidentArray LayoutCandidate ResidentLayout ResidentReport disk_array"
    ),
    "outcore.arrays.strings": "StringArray",
    "outcore.ranks.transport": "Communicator Transport",
    "outcore.problems.unstructured.edge_loop": "edge_loop",
    "outcore.problems.unstructured.edge_schedule": "EdgeSchedule edge_schedule",
    "outcore.problems.unstructured.localize": "AllocationList LocalEdges",
    "outcore.problems.unstructured.partition": "Partition partition",
    "outcore.problems.unstructured.translation": "TranslationTable",
    "outcore.arrays.verification": "Damage verify",
}
# Modules that are found as attributes without an import of their own.
_MODULES = ("errors", "formats", "jobs", "mpi")
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
_measured.use()
_atexit.register(_measured.keep_learned)
