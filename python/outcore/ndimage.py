"""
Filters of arrays larger than memory, as in `scipy.ndimage`.

`outcore.stencil` applies any function of the neighbourhood of each element.
"""

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

__all__ = [
    "convolve",
    "convolve1d",
    "correlate",
    "correlate1d",
    "gaussian_filter",
    "gaussian_filter1d",
    "generic_filter",
    "maximum_filter",
    "maximum_filter1d",
    "median_filter",
    "minimum_filter",
    "minimum_filter1d",
    "percentile_filter",
    "rank_filter",
    "uniform_filter",
    "uniform_filter1d",
]
