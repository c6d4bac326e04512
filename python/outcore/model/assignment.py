"""
Assign files to the ranks that read them, when one call reads many files.

Ranks need parts of several files. The rank that reads a file sends the other ranks their parts. The
assignment determines how evenly the reads are distributed, and how many bytes are sent. The model and
two of the methods are from Memik, Kandemir and Choudhary, *Exploiting Inter-File Access Patterns Using
Multi-Collective I/O* (FAST 2002); ``crates/plan/src/assign`` contains the solvers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore import _core
from outcore.errors import UsageError

__all__ = ["Assignment", "assign"]

AssignMethod = Literal["auto", "balanced", "greedy", "matching", "exact"]


@dataclass(frozen=True)
class Assignment:
    """
    Result of `assign`: the readers of each file, and the cost. `str` returns a human-readable table.

    Attributes
    ----------
    owner
        Ranks that read each file: one rank, unless the file is cut.
    shares
        Pairs (rank, bytes) of each file, in the order of the file. The bytes add up to the bytes of the
        file.
    load
        Bytes that each rank reads.
    comm
        Bytes that each rank sends and receives.
    traffic
        Bytes needed by ranks that do not read them themselves.
    cost
        Largest ``alpha * load + beta * comm`` of a rank.
    method
        Method that found the assignment.
    why
        What the method minimized, and what it proved.

    Notes
    -----
    A value; equal on ranks that pass equal arguments to `assign`.

    Examples
    --------
    Files of 6 and 2 bytes for two ranks: 4 bytes each, so the first file is cut.

    >>> import outcore
    >>> found = outcore.model.assign([[6, 0], [0, 2]])
    >>> found.shares
    (((0, 4), (1, 2)), ((1, 2),))
    >>> found.load, found.traffic
    ((4, 4), 2)
    """

    owner: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[tuple[int, int], ...], ...]
    load: tuple[int, ...]
    comm: tuple[int, ...]
    traffic: int
    cost: int
    method: str
    why: str

    def __str__(self) -> str:
        """Return a table with a row for each rank; files that are cut have a mark."""
        files: list[list[str]] = [[] for _ in self.load]
        for file, ranks in enumerate(self.owner):
            for rank in ranks:
                files[rank].append(f"{file}{'*' if len(ranks) > 1 else ''}")
        rows = [("rank", "load", "comm", "files")]
        columns = zip(self.load, self.comm, files, strict=True)
        rows += [
            (str(rank), f"{load}", f"{comm}", " ".join(names) or "-")
            for rank, (load, comm, names) in enumerate(columns)
        ]
        wide = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{self.method}: {self.why}"]
        lines += [
            f"{rank:>{wide[0]}}  {load:>{wide[1]}}  {comm:>{wide[2]}}  {names}"
            for rank, load, comm, names in rows
        ]
        cut = "; * is cut" if any(len(ranks) > 1 for ranks in self.owner) else ""
        lines.append(f"traffic {self.traffic}, cost {self.cost}{cut}")
        return "\n".join(lines)


def assign(
    requests: ArrayLike,
    method: AssignMethod = "auto",
    *,
    alpha: int = 1,
    beta: int = 1,
    objective: Literal["traffic", "cost"] = "traffic",
    max_load: int | None = None,
    sizes: Sequence[int] | NDArray[Any] | None = None,
    groups: Sequence[int] | NDArray[Any] | None = None,
    eligible: ArrayLike | None = None,
    whole: Sequence[bool] | NDArray[np.bool_] | None = None,
) -> Assignment:
    """
    Assign files to the ranks that will read them. Not collective: a pure function of its arguments.

    Parameters
    ----------
    requests
        ``requests[i, j]``: bytes of file *j* that rank *i* needs. Whole numbers of any numeric dtype, of
        shape (ranks, files), with at least one rank.
    method
        ``"balanced"``, which is ``"auto"``, minimizes the largest load, then keeps traffic low; a file
        larger than a fair share (all bytes divided by the ranks) is cut. ``"greedy"`` and ``"matching"``
        are the paper's heuristics (sections 5.1 and 5.2), with the same number of whole files for each
        rank; the matching has the least traffic possible under that rule. ``"exact"`` is branch and
        bound for the paper's 0-1 program (section 4.3), up to 32 files and ranks. If there are more
        ranks than files, the last three give each rank a share of one file, with readers in proportion
        to bytes.
    alpha, beta
        Cost of a byte read, and of a byte sent or received, in ``cost``; only their ratio matters.
    objective
        Quantity that ``"exact"`` minimizes: ``"traffic"`` with the same number of files for each rank,
        or ``"cost"`` with any number of whole files.
    max_load
        Maximum bytes of any rank, for ``"exact"`` with ``"traffic"``, instead of the same number of
        files.
    sizes
        Bytes to read of each file. Smaller than the sum of the requests if several ranks need the same
        bytes, larger if gaps between requests are read too. Default: the sum of the requests.
    groups
        Number for each column; columns with the same number are arrays of one file. They get the same
        owner if together they are at most a fair share, so that one rank reads the file in order.
    eligible
        ``eligible[i, j]``: whether rank *i* may read file *j*. Default: all may.
    whole
        For each column, whether one rank must have all of it, however large it is. Such columns of the
        same group get the same owner if the same ranks are eligible. Default: any file may be cut.

    Returns
    -------
    Assignment
        Equal requests give an equal result on every rank. Ties go to the lower rank, then the lower
        file.

    Raises
    ------
    UsageError
        ``bad-requests``: arguments have the wrong shape, or are not counts; ``assignment-impossible``:
        no rank may read a file, or `max_load` is too small; ``assignment-too-large``: the problem is too
        large for ``"exact"``.
    SectionError
        ``too-large``: bytes or costs beyond 63 bits.

    Notes
    -----
    The position of a share in its file is not known here, so for files that are cut, ``comm`` and
    ``traffic`` assume the best position: a rank keeps ``min(wanted, share)`` bytes for itself, as in the
    paper.

    No file is opened, and no memory of the budget is used: the few matrices as large as `requests` are
    not counted in it.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 4.1 (the problem), 4.2 (more ranks than files), 4.3 and 5; tables 1 and appendix A.

    Examples
    --------
    The example of the paper, its table 1 rounded as in its appendix A. There the least traffic is 82.

    >>> import outcore
    >>> requests = [
    ...     [10, 12, 12, 5, 0, 0, 0, 0],
    ...     [10, 12, 12, 5, 0, 0, 0, 0],
    ...     [2, 3, 3, 2, 7, 9, 9, 3],
    ...     [0, 0, 0, 0, 10, 12, 12, 5],
    ... ]
    >>> print(outcore.model.assign(requests, "greedy"))
    greedy: largest requests first, 2 whole files for each rank
    rank  load  comm  files
       0    54    45  1 2
       1    34    43  0 3
       2    25    43  4 7
       3    42    33  5 6
    traffic 82, cost 99
    >>> print(outcore.model.assign(requests).load)
    (39, 35, 39, 42)
    """
    matrix = _convert_counts(requests, "requests")
    if matrix.ndim != 2 or matrix.shape[0] == 0:
        raise UsageError(
            f"requests have shape {matrix.shape}; pass a row for each rank and a column for each file",
            code="bad-requests",
        )
    may = None if eligible is None else np.asarray(eligible)
    if may is not None and (may.dtype != np.bool_ or may.ndim != 2):
        raise UsageError(
            f"eligible is an array of {may.dtype} with {may.ndim} axes; pass booleans, a row for each "
            "rank and a column for each file",
            code="bad-requests",
        )
    answer = _core.assign(
        matrix,
        method,
        _convert_integer(alpha, "alpha"),
        _convert_integer(beta, "beta"),
        objective,
        None if max_load is None else _convert_integer(max_load, "max_load"),
        _convert_list(sizes, "sizes"),
        _convert_list(groups, "groups"),
        may,
        None if whole is None else _convert_flags(whole),
    )
    shares, load, comm, traffic, cost, name, why = answer
    return Assignment(
        owner=tuple(tuple(rank for rank, _ in of_file) for of_file in shares),
        shares=tuple(tuple(of_file) for of_file in shares),
        load=tuple(load),
        comm=tuple(comm),
        traffic=traffic,
        cost=cost,
        method=name,
        why=why,
    )


def _convert_counts(values: Any, name: str) -> NDArray[np.int64]:
    """Return the values as int64, if that changes none of them."""
    try:
        found = np.asarray(values)
        if found.size == 0:
            return np.zeros(found.shape, np.int64)
        if found.dtype.kind in "iufb":
            whole = found.astype(np.int64) if found.dtype.kind in "ib" else None
            if whole is None:
                # Unsigned integers and floats are allowed if int64 can represent them.
                inside = bool((found >= 0).all() and (found < 2**63).all())
                whole = found.astype(np.int64) if inside else None
            if whole is not None and (whole == found).all():
                return whole
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError(
        f"{name} must be counts of bytes, whole numbers below 2**63; multiply fractions first (12.8 MB "
        "is 12800000 bytes)",
        code="bad-requests",
    )


def _convert_list(values: Any, name: str) -> list[int] | None:
    if values is None:
        return None
    whole = _convert_counts(values, name)
    if whole.ndim != 1:
        raise UsageError(
            f"{name} have {whole.ndim} axes; pass one number for each file",
            code="bad-requests",
        )
    return [int(value) for value in whole]


def _convert_flags(values: Any) -> list[bool]:
    found = np.asarray(values)
    if found.size == 0:
        return []
    if found.dtype != np.bool_ or found.ndim != 1:
        raise UsageError(
            f"whole is an array of {found.dtype} with {found.ndim} axes; pass one boolean for each file",
            code="bad-requests",
        )
    return [bool(flag) for flag in found]


def _convert_integer(value: Any, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if 0 <= number < 2**63:
        return number
    raise UsageError(
        f"{name}={value!r} is not an integer of at least 0; only the ratio of costs counts, so use "
        "integers such as alpha=10, beta=1",
        code="bad-requests",
    )
