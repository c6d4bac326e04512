"""
Several reductions of one array in one pass.

Problem. Separate calls for a mean, a deviation and extremes read the array once per call.
Idea. A pass (`outcore.compute.reduce.reducing`) takes any number of reductions over the same axes.

Invariants. The results have the same bits as those of separate calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outcore.compute.jobs import Planned, Source, collective
from outcore.compute.reduce.quantities import (
    Make,
    check_one_axis,
    make_extreme_quantity,
    make_mean_quantity,
    make_place_quantity,
    make_spread_quantity,
    make_sum_quantity,
    make_truth_quantity,
    reduce_arrays,
)
from outcore.errors import UsageError

__all__ = ["statistics"]

Axis = int | tuple[int, ...] | None
_STATISTICS = ("mean", "std", "min", "max")


@collective
def statistics(
    a: Source,
    axis: Axis = None,
    what: Sequence[str] = _STATISTICS,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    **how: Any,
) -> dict[str, Any] | Planned:
    """
    Compute several reductions over the same axes in one pass.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    what
        Names of reductions, such as ``"mean"``, ``"nanstd"`` or ``"argmax"``.
    ddof
        `ddof` of variances and standard deviations, as for `outcore.var`.
    axis, keepdims, how
        See `outcore.compute.jobs.complete`. Of the options only ``memory``, ``progress``,
        ``explain`` and ``comm``.

    Returns
    -------
    dict or Planned
        Results by name, as the separate calls return them.

    Raises
    ------
    UsageError
        ``empty-reduction``, ``all-nan``: as for the separate calls. ``bad-option``: there is no
        such reduction.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`. The memory between tiles is the
    sum of what the reductions need.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> found = outcore.statistics("grid.npy", axis=1, what=("mean", "max"))
    >>> found["mean"], found["max"]
    (array([1.5, 5.5, 9.5]), array([ 3.,  7., 11.]))
    """
    makes = _makes(ddof)
    for name in what:
        if name not in makes or isinstance(what, str):
            raise UsageError(
                f"statistics: what={what!r} is not a list of reductions; choose among "
                f"{', '.join(makes)}",
                code="bad-option",
            )
        if "arg" in name and isinstance(axis, tuple):
            check_one_axis(axis, name)
    if not what:
        return {}
    wanted = [makes[name] for name in what]
    names = list(what)

    def name_results(found: Any) -> dict[str, Any]:
        several = found if isinstance(found, tuple) else (found,)
        return dict(zip(names, several, strict=True))

    found: dict[str, Any] | Planned = reduce_arrays(
        "statistics", (a,), axis, wanted, None, how, keepdims=keepdims, given=name_results
    )
    return found


def _makes(ddof: float) -> dict[str, Make]:
    return {
        **{name: make_sum_quantity(name) for name in ("sum", "prod", "nansum", "nanprod")},
        "mean": make_mean_quantity(),
        "nanmean": make_mean_quantity(nan=True),
        **{name: make_spread_quantity(name, ddof) for name in ("var", "std", "nanvar", "nanstd")},
        **{name: make_extreme_quantity(name) for name in ("min", "max", "ptp", "nanmin", "nanmax")},
        **{
            name: make_place_quantity(name)
            for name in ("argmin", "argmax", "nanargmin", "nanargmax")
        },
        **{name: make_truth_quantity(name) for name in ("any", "all", "count_nonzero")},
    }
