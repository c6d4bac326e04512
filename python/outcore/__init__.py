"""
Arrays larger than memory, at the speed of the disks.

>>> import numpy as np, outcore
>>> a = outcore.create("field.npy", (1000, 3000), "f8")
>>> a[100:200, ::3] = 1.5
>>> a[150, :4]
array([1.5, 0. , 0. , 1.5])

`open`, `open_many` and `create` give `DiskArray`s, `open_group` a `Group` of them; `memory` is the
promise that holds; `Hints` never change results.
"""

import atexit as _atexit
import importlib
from typing import TYPE_CHECKING, Any

from outcore import measured as _measured
from outcore import ranked as _ranked
from outcore._core import __version__
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
    from outcore.assignment import Assignment, assign
    from outcore.blocks import Blocks
    from outcore.collective import (
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
    from outcore.creating import create
    from outcore.disk import DiskArray
    from outcore.disk.attributes import Attributes
    from outcore.disk.selecting import Indexer
    from outcore.dist import Align, DistArray, Distribution, PatchLock, ProcessGrid
    from outcore.formats import Entry, ls
    from outcore.formats.groups import GroupInfo
    from outcore.formats.layout import ArrayInfo, Chunked, Codec, Origin, Part, Strided
    from outcore.groups import Group, Tree, open_group
    from outcore.hints import Hints, MemoryLimit, memory
    from outcore.indices.schedule import IndexSchedule
    from outcore.jobs import ComputeReport, Measured, Planned
    from outcore.ooc.blocks.map_blocks import apply_along_axis, map_blocks
    from outcore.ooc.copies.convert import convert
    from outcore.ooc.copies.transpose import rechunk, transpose
    from outcore.ooc.factors.cholesky import cholesky
    from outcore.ooc.factors.lu import lu_factor
    from outcore.ooc.factors.qr import lstsq, qr, svd
    from outcore.ooc.factors.separate import lu
    from outcore.ooc.factors.solve import cho_solve, lu_solve, solve
    from outcore.ooc.fourier.fft import (
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
    from outcore.ooc.products.matmul import matmul
    from outcore.ooc.products.tensordot import inner, outer, tensordot
    from outcore.ooc.reduce.extremes import argmax, argmin, max, min, ptp
    from outcore.ooc.reduce.histogram import bincount, histogram
    from outcore.ooc.reduce.nanquantiles import nanmedian, nanpercentile, nanquantile
    from outcore.ooc.reduce.nanreductions import (
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
    from outcore.ooc.reduce.norms import dot, norm, vdot, vecdot
    from outcore.ooc.reduce.quantiles import median, percentile, quantile
    from outcore.ooc.reduce.reductions import all, any, count_nonzero, mean, prod, std, sum, var
    from outcore.ooc.reduce.scans import cumprod, cumsum, nancumprod, nancumsum
    from outcore.ooc.reduce.statistics import statistics
    from outcore.ooc.sort.calls import argsort, sort
    from outcore.ooc.sort.searching import searchsorted
    from outcore.ooc.sort.unique import unique
    from outcore.ooc.stencils.filters import (
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
    from outcore.ooc.stencils.lines import (
        convolve1d,
        correlate1d,
        gaussian_filter1d,
        maximum_filter1d,
        minimum_filter1d,
        uniform_filter1d,
    )
    from outcore.ooc.stencils.stencil import stencil
    from outcore.opening import open, open_many
    from outcore.placement import (
        PlacedArray,
        Shift,
        Slab,
        copy_placed,
        create_placed,
        disk_map,
        open_placed,
    )
    from outcore.report import BlocksReport, Report
    from outcore.requests import IORequest
    from outcore.resident import (
        DiskResidentArray,
        LayoutCandidate,
        ResidentLayout,
        ResidentReport,
        disk_array,
    )
    from outcore.restart.calls import checkpoint, icheckpoint, restore
    from outcore.strings import StringArray
    from outcore.transport import Communicator, Transport
    from outcore.unstructured.edge_loop import edge_loop
    from outcore.unstructured.edge_schedule import EdgeSchedule, edge_schedule
    from outcore.unstructured.localize import AllocationList, LocalEdges
    from outcore.unstructured.partition import Partition, partition
    from outcore.unstructured.translation import TranslationTable
    from outcore.verification import Damage, verify

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
    "outcore.assignment": "Assignment assign",
    "outcore.blocks": "Blocks",
    "outcore.collective": (
        "ArrayReport CollectiveArray CollectiveReport CollectiveRequest CollectiveSchedule ListPass "
        "ListPrices ListReport ManyReport OwnerReport explain_all read_all write_all"
    ),
    "outcore.creating": "create",
    "outcore.disk": "DiskArray",
    "outcore.disk.attributes": "Attributes",
    "outcore.disk.selecting": "Indexer",
    "outcore.dist": "Align DistArray Distribution PatchLock ProcessGrid",
    "outcore.formats.groups": "GroupInfo",
    "outcore.groups": "Group Tree open_group",
    "outcore.formats": "Entry ls",
    "outcore.formats.layout": "ArrayInfo Chunked Codec Origin Part Strided",
    "outcore.hints": "Hints MemoryLimit memory",
    "outcore.indices.schedule": "IndexSchedule",
    "outcore.jobs": "ComputeReport Measured Planned",
    "outcore.ooc.blocks.map_blocks": "apply_along_axis map_blocks",
    "outcore.ooc.copies.convert": "convert",
    "outcore.ooc.copies.transpose": "rechunk transpose",
    "outcore.ooc.factors.cholesky": "cholesky",
    "outcore.ooc.factors.lu": "lu_factor",
    "outcore.ooc.factors.qr": "lstsq qr svd",
    "outcore.ooc.factors.separate": "lu",
    "outcore.ooc.factors.solve": "cho_solve lu_solve solve",
    "outcore.ooc.fourier.fft": (
        "fft fft2 fftn hfft ifft ifft2 ifftn ihfft irfft irfft2 irfftn rfft rfft2 rfftn"
    ),
    "outcore.ooc.products.matmul": "matmul",
    "outcore.ooc.products.tensordot": "inner outer tensordot",
    "outcore.ooc.reduce.extremes": "argmax argmin max min ptp",
    "outcore.ooc.reduce.histogram": "bincount histogram",
    "outcore.ooc.reduce.nanquantiles": "nanmedian nanpercentile nanquantile",
    "outcore.ooc.reduce.nanreductions": (
        "nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar"
    ),
    "outcore.ooc.reduce.norms": "dot norm vdot vecdot",
    "outcore.ooc.reduce.quantiles": "median percentile quantile",
    "outcore.ooc.reduce.reductions": "all any count_nonzero mean prod std sum var",
    "outcore.ooc.reduce.scans": "cumprod cumsum nancumprod nancumsum",
    "outcore.ooc.reduce.statistics": "statistics",
    "outcore.ooc.sort.calls": "argsort sort",
    "outcore.ooc.sort.searching": "searchsorted",
    "outcore.ooc.sort.unique": "unique",
    "outcore.ooc.stencils.filters": (
        "convolve correlate gaussian_filter generic_filter maximum_filter median_filter "
        "minimum_filter percentile_filter rank_filter uniform_filter"
    ),
    "outcore.ooc.stencils.lines": (
        "convolve1d correlate1d gaussian_filter1d maximum_filter1d minimum_filter1d "
        "uniform_filter1d"
    ),
    "outcore.ooc.stencils.stencil": "stencil",
    "outcore.opening": "open open_many",
    "outcore.placement": ("PlacedArray Shift Slab copy_placed create_placed disk_map open_placed"),
    "outcore.restart.calls": "checkpoint icheckpoint restore",
    "outcore.report": "BlocksReport Report",
    "outcore.requests": "IORequest",
    "outcore.resident": "DiskResidentArray LayoutCandidate ResidentLayout ResidentReport disk_array",
    "outcore.strings": "StringArray",
    "outcore.transport": "Communicator Transport",
    "outcore.unstructured.edge_loop": "edge_loop",
    "outcore.unstructured.edge_schedule": "EdgeSchedule edge_schedule",
    "outcore.unstructured.localize": "AllocationList LocalEdges",
    "outcore.unstructured.partition": "Partition partition",
    "outcore.unstructured.translation": "TranslationTable",
    "outcore.verification": "Damage verify",
}
# Modules that are found as attributes without an import of their own.
_MODULES = (
    "assignment",
    "blocks",
    "collective",
    "disk",
    "dist",
    "formats",
    "hints",
    "jobs",
    "ooc",
    "opening",
    "placement",
    "report",
    "requests",
    "resident",
    "transport",
    "unstructured",
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


_ranked.register("outcore.collective.opening")
# Figures of disks that `outcore bench` has measured, or processes have learned.
_measured.use()
_atexit.register(_measured.keep_learned)
