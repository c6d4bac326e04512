"""
Assumed costs of the machine: the rates and times by which algorithms compare plans.

Problem. An algorithm compares ways to cut its work by the time that each takes. Rates that are measured
change from run to run: the cut would change with them, and so the last bits of sums and the steps of a
run that is resumed. Idea. Costs of processors, memory and the executor are assumed, here and nowhere
else. Costs of disks are measured (`outcore.arrays.measured`, ``crates/io/src/disks.rs``); those of reads
and writes are in ``crates/plan/src/terms.rs`` (`Rates`), which only the core asks.

Invariants. Nothing here is measured when a program runs. Plans follow from these values, and the last
bits of sums from plans: equal calls have equal results.

Times are in seconds, rates per second; all rates of processors are those of one core.
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

#: Of arrays that are on no disk: bytes that are cheaper to read than to skip, nanoseconds of one more
#: request, and bytes per second. A disk that nobody measured begins with the values of the core instead
#: (`Rates`). Both are kept: tiles of arrays in memory follow from these, and tests count them.
DISK = (1 << 15, 15_000, 2 << 30)
#: A run that waits in the page cache for its neighbours: the processor's time, whatever the disk is. At
#: a budget of 256 MiB, conversions take 21 % less time than if such runs counted as reads
#: (bench/figures/convert.md).
CACHED_RUN_SECONDS = 7e-6

# --------------------------------------------------------------------------------------- steps

#: A step costs the executor this much, whatever the step does.
STEP_SECONDS = 2e-4
#: The same with a kernel that is a series of Python calls, such as transforms and functions of lines.
KERNEL_STEP_SECONDS = 1e-3
#: The same in factorisations, and in solving with triangles: each reads many columns in a step. The
#: values differ, and both are kept: widths of panels follow from them, and from these the last bits.
FACTOR_STEP_SECONDS, TRIANGLE_STEP_SECONDS = 5e-5, 1e-4
#: A pass over temporary arrays costs this much besides: they are flushed, and ranks synchronise.
SYNCHRONISATION_SECONDS = 5e-3

# -------------------------------------------------------------------------- memory and processor

#: Bytes that pass through memory once: BLAS packs them for a product, or they travel between ranks.
MEMORY_RATE = 4e9
#: Operations of a process that multiplies without BLAS.
LOOP_RATE = 1e9
#: An element in a step of a stencil.
STENCIL_ELEMENT_SECONDS = 1e-9
#: Transfers that run beside a kernel slow it down by this part of their time, or of the kernel's if that
#: is shorter; and each request by so many seconds: all cores wait for the one that has it.
SHARED_TIME, REQUEST_DELAY = 0.1, 1e-5

# Operations in float32 on large blocks.
_PRODUCT_RATE = 80e9
# Operations in float64 on panels so large that their edges count nothing. `_PRODUCT_RATE` comes to less,
# 4e10: tiles of products are compared without a loss at their edges.
_PANEL_RATE = 5e10
# A panel with this inner length, or this number of columns, comes to half of that.
_HALF_INNER, _HALF_COLUMNS = 16, 24
# What a request, and a byte, keep a core from products of panels: all cores wait for the slowest one.
# Less than `REQUEST_DELAY`, where bytes count nothing: cuts of factorisations follow from these two.
_PANEL_REQUEST_SECONDS, _PANEL_BYTE_SECONDS = 3e-6, 2.5e-10
# Operations on triangles that are applied in wide blocks, and the width that comes to half of that. Rows
# of a triangle depend on each other: that is less than `_PANEL_RATE`.
_TRIANGLE_RATE, _HALF_TRIANGLE = 2.0**33, 32


def estimate_product_rate(dtype: np.dtype[Any], cores: int) -> float:
    """
    Return operations per second of BLAS on large blocks.

    Parameters
    ----------
    dtype
        Computed in: a real or complex type of BLAS.
    cores
        Number of cores that compute.

    Examples
    --------
    >>> import numpy as np
    >>> from outcore.base.assumed_costs import estimate_product_rate
    >>> estimate_product_rate(np.dtype("c16"), 2)
    80000000000.0
    """
    return _PRODUCT_RATE * cores * 4 / _real_bytes(dtype)


def estimate_panel_rate(dtype: np.dtype[Any], cores: int, inner: int, columns: int) -> float:
    """
    Return operations per second of products of panels.

    Parameters
    ----------
    dtype, cores
        As for `estimate_product_rate`.
    inner, columns
        Inner length of the product, and columns of its result.
    """
    single = 2 if _real_bytes(dtype) < 8 else 1
    return cores * _PANEL_RATE * single / (1 + _HALF_INNER / inner + _HALF_COLUMNS / columns)


def estimate_panel_delay(requests: float, nbytes: float) -> float:
    """
    Return the seconds that transfers keep products of panels waiting.

    Parameters
    ----------
    requests, nbytes
        Number of requests, and bytes of all of them.
    """
    return requests * _PANEL_REQUEST_SECONDS + nbytes * _PANEL_BYTE_SECONDS


def estimate_triangle_rate(cores: int, width: int) -> float:
    """
    Return operations per second of solving with a triangle, some columns of it at a time.

    Parameters
    ----------
    cores
        Number of cores that compute.
    width
        Columns at a time.
    """
    return cores * _TRIANGLE_RATE * width / (width + _HALF_TRIANGLE)


def _real_bytes(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // (2 if dtype.kind == "c" else 1)
