"""
Assumed costs of the machine: rates and times by which algorithms compare plans.

Problem: an algorithm compares partitions of its work by their time. Measured rates change from run to
run, and with them the partition, the last bits of sums, and the steps of a resumed run.
Approach: the costs of processors, memory and the executor are assumed, in this file only. The costs of
disks are measured (`outcore.arrays.measured`, ``crates/io/src/disks.rs``). The costs of reads and
writes are in ``crates/plan/src/terms.rs`` (`Rates`), which only the core uses.

Invariants: nothing here is measured when a program runs. Plans depend on these values, and the last
bits of sums on plans: equal calls have equal results.

Times are in seconds, rates per second; all rates of processors are per core.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    *("CACHED_RUN_SECONDS", "DISK", "FACTOR_STEP_SECONDS", "KERNEL_STEP_SECONDS"),
    *("LOOP_RATE", "MEMORY_RATE"),
    *("REQUEST_DELAY", "SHARED_TIME", "STENCIL_ELEMENT_SECONDS", "STEP_SECONDS"),
    *("SYNCHRONISATION_SECONDS", "TRIANGLE_STEP_SECONDS"),
    *("estimate_panel_delay", "estimate_panel_rate", "estimate_product_rate"),
    "estimate_triangle_rate",
]

# --------------------------------------------------------------------------------------- disks

#: Disk parameters for arrays in memory: largest gap in bytes that is cheaper to read than to skip,
#: nanoseconds of one additional request, bytes per second. A disk that was not measured starts with the
#: values of the core instead (`Rates`). Both stay as they are: tiles of arrays in memory depend on
#: these, and tests count them.
DISK = (1 << 15, 15_000, 2 << 30)
#: Processor time of a run that waits in the page cache for its neighbours, for any disk. With a budget
#: of 256 MiB, conversions take 21 % less time than if such runs counted as reads
#: (bench/figures/convert.md).
CACHED_RUN_SECONDS = 7e-6

# --------------------------------------------------------------------------------------- steps

#: Fixed cost of a step in the executor.
STEP_SECONDS = 2e-4
#: The same for a kernel that makes several Python calls, such as transforms and functions of lines.
KERNEL_STEP_SECONDS = 1e-3
#: The same for factorisations, and for triangular solves: each reads many columns in a step. The two
#: values stay different: the widths of panels depend on them, and the last bits on the widths.
FACTOR_STEP_SECONDS, TRIANGLE_STEP_SECONDS = 5e-5, 1e-4
#: Additional cost of a pass over temporary arrays: they are flushed, and ranks synchronise.
SYNCHRONISATION_SECONDS = 5e-3

# -------------------------------------------------------------------------- memory and processor

#: Bytes that pass through memory once: packed by BLAS for a product, or sent between ranks.
MEMORY_RATE = 4e9
#: Operations of a process that multiplies without BLAS.
LOOP_RATE = 1e9
#: Time of one element in a step of a stencil.
STENCIL_ELEMENT_SECONDS = 1e-9
#: Transfers that overlap a kernel slow it down by this fraction of their time, or of the kernel's time
#: if that is shorter. Each request adds a delay in seconds: all cores wait for the core that executes
#: it.
SHARED_TIME, REQUEST_DELAY = 0.1, 1e-5

# Operations of products in float32 on large blocks.
_PRODUCT_RATE = 80e9
# Operations in float64 on panels so large that their edges do not matter. `_PRODUCT_RATE` amounts to
# less, 4e10: tiles of products are compared without a loss at their edges.
_PANEL_RATE = 5e10
# A panel with this inner length, or this number of columns, reaches half of that rate.
_HALF_INNER, _HALF_COLUMNS = 16, 24
# Delay of products of panels by a request, and by a byte: all cores wait for the slowest one. Less than
# `REQUEST_DELAY`, which ignores bytes: the partitions of factorisations depend on these two.
_PANEL_REQUEST_SECONDS, _PANEL_BYTE_SECONDS = 3e-6, 2.5e-10
# Operations on triangles that are applied in wide blocks, and the width that reaches half of that rate.
# Rows of a triangle depend on each other, so the rate is less than `_PANEL_RATE`.
_TRIANGLE_RATE, _HALF_TRIANGLE = 2.0**33, 32


def estimate_product_rate(dtype: np.dtype[Any], cores: int) -> float:
    """
    Return operations per second of BLAS on large blocks of a real or complex dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from outcore.base.assumed_costs import estimate_product_rate
    >>> estimate_product_rate(np.dtype("c16"), 2)
    80000000000.0
    """
    return _PRODUCT_RATE * cores * 4 / _count_real_bytes(dtype)


def estimate_panel_rate(dtype: np.dtype[Any], cores: int, inner: int, columns: int) -> float:
    """Return operations per second of products of panels with an inner length and number of columns."""
    single = 2 if _count_real_bytes(dtype) < 8 else 1
    return cores * _PANEL_RATE * single / (1 + _HALF_INNER / inner + _HALF_COLUMNS / columns)


def estimate_panel_delay(requests: float, nbytes: float) -> float:
    """Return the seconds by which transfers of `nbytes` in total delay products of panels."""
    return requests * _PANEL_REQUEST_SECONDS + nbytes * _PANEL_BYTE_SECONDS


def estimate_triangle_rate(cores: int, width: int) -> float:
    """Return operations per second of a triangular solve with `width` columns at a time."""
    return cores * _TRIANGLE_RATE * width / (width + _HALF_TRIANGLE)


def _count_real_bytes(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // (2 if dtype.kind == "c" else 1)
