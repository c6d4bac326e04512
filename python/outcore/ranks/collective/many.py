"""`read_all` and `write_all` of several arrays in one collective call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.base.hints import Hints
from outcore.errors import UsageError
from outcore.ranks.collective import items as brought
from outcore.ranks.collective.call import CollectiveCall, has_arrays, read_early
from outcore.ranks.collective.items import Item
from outcore.ranks.collective.lists.irregular import CollectiveSchedule
from outcore.ranks.collective.planning import Method
from outcore.ranks.collective.virtual import SectionReading
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Transport, transport

__all__ = ["MANNERS", "check_array", "find_group", "find_hints", "read_all", "write_all"]

#: Method for lists of elements that corresponds to each method for sections.
MANNERS: dict[str, Any] = {
    "auto": "auto",
    "direct": "direct",
    "sieve": "direct",
    "two-phase": "pipelined",
}


def read_all(
    requests: Sequence[tuple[Any, ...]], *, comm: Any = None, method: Method = "auto"
) -> list[Any]:
    """
    Read sections of several arrays together with the other ranks. Collective.

    Every rank of `comm` must call this, with its own arrays and sections, or none. Arrays may differ in
    file, shape and dtype. Each byte is read from disk once. Only ranks that list an array can read it
    for others; a rank helps by listing the array with an empty section.

    Parameters
    ----------
    requests
        ``(array, key)`` or ``(array, key, out)`` for each section; see `CollectiveArray.read_all`. If
        keys have index arrays, all ranks list such keys for the same arrays in the same order. A rank
        that needs no elements passes an empty array of integers.
    comm
        Communicator of mpi4py, or transport; by default that of the first array that was opened with
        one. A rank with an empty list must pass ``comm=``.
    method
        ``"auto"``, ``"direct"``, ``"sieve"`` or ``"two-phase"``; the same on all ranks.

    Returns
    -------
    list of numpy.ndarray or scalar
        One result per request: `out` if given, otherwise with the dtype of its array and the shape of
        NumPy's ``array[key]``.

    Raises
    ------
    CollectiveError
        On all ranks if any rank failed or made a different call. Arrays given as `out` are then
        undefined.
    BudgetError
        On all ranks, as for `CollectiveArray.read_all`.
    UsageError
        On this rank if `requests` is empty and `comm` is not given.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", data=np.arange(6).reshape(2, 3))
    >>> b = outcore.create("b.npy", data=np.arange(4.0))
    >>> outcore.mpi.read_all([(a, np.s_[1]), (b, np.s_[::2])])
    [array([3, 4, 5]), array([0., 2.])]

    Notes
    -----
    Memory as for `CollectiveArray.read_all`: the results, and slots for all arrays together. Requests
    with index arrays are read after the sections, one array after another. As for `schedule_all`, they
    need 24 bytes per index, for all of them at the same time.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 3 and 4.
    """
    group = find_group(requests, comm)
    call = "outcore.mpi.read_all"

    def check() -> None:
        for request in requests:
            if len(request) not in (2, 3):
                raise UsageError(
                    "a request of read_all has the wrong length; pass (array, key) or (array, key, out)",
                    code="bad-value",
                )

    lists = _find_list_requests(requests)
    if lists:
        ranks = Ranks.of_call(group, f"{call} of lists")
        schedules = _make_schedules(ranks, requests, lists, check)
        sections = [r for k, r in enumerate(requests) if k not in lists]
        found = iter(read_all(sections, comm=group, method=method))
        elements = {
            k: schedule.gather_all(
                requests[k][2] if len(requests[k]) == 3 else None,
                method=MANNERS.get(method, method),
            )
            for k, schedule in zip(lists, schedules, strict=True)
        }
        return [elements[k] if k in elements else next(found) for k in range(len(requests))]

    attempt: list[Any] = []
    readings: list[SectionReading] = []

    def prepare() -> list[Item]:
        check()
        # If not all ranks have their data cached, reuse the arrays of the early reads.
        outs = [got if isinstance(got, np.ndarray) else None for got in attempt]
        outs += [None] * (len(requests) - len(outs))
        readings[:] = [
            SectionReading(check_array(r[0]), r[1], out if len(r) == 2 or r[2] is None else r[2])
            for r, out in zip(requests, outs, strict=True)
        ]
        return [item for one in readings for item in one.items]

    def if_cached() -> list[Any] | None:
        check()
        if any(check_array(r[0]).handle.is_virtual for r in requests):
            return None
        three = [r if len(r) == 3 else (*r, None) for r in requests]
        cores = [(check_array(a).handle.core, key, out) for a, key, out in three]
        got = read_early(group, cores, method)
        attempt[:] = got or []
        return got

    results: list[Any] = CollectiveCall(
        group, call, prepare, method, lambda: find_hints(requests), if_cached=if_cached
    ).run()
    if any(one.virtual for one in readings):
        left = iter(results)
        return [one.finish([next(left) for _ in one.items]) for one in readings]
    return results


def write_all(
    requests: Sequence[tuple[Any, ...]], *, comm: Any = None, method: Method = "auto"
) -> None:
    """
    Write sections of several arrays together with the other ranks. Collective.

    Every rank of `comm` must call this, with its own arrays and sections, or none. If an element is
    given several times, the highest rank wins, and within a rank its last request.

    Parameters
    ----------
    requests
        ``(array, key, value)`` for each section; values are broadcast to its shape and cast to the dtype
        of the array. See `CollectiveArray.write_all`. Keys may have index arrays as for `read_all`;
        these are written after the sections, in their order.
    comm, method
        As for `read_all`.

    Raises
    ------
    CollectiveError
        On all ranks if any rank failed or made a different call. Each block of the files is then old or
        new, as for `CollectiveArray.write_all`.
    BudgetError
        On all ranks, as for `CollectiveArray.write_all`.
    UsageError
        On this rank if `requests` is empty and `comm` is not given.

    Notes
    -----
    Memory as for `read_all`. In addition, values that must be cast are cast as a whole. Each array is
    durable as after `CollectiveArray.write_all`.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 3 and 4.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", (2, 3), "i8")
    >>> outcore.mpi.write_all([(a, np.s_[0], 7), (a, np.s_[1], [1, 2, 3])])
    >>> a[...]
    array([[7, 7, 7],
           [1, 2, 3]])
    """
    group = find_group(requests, comm)
    call = "outcore.mpi.write_all"

    def check() -> None:
        for request in requests:
            if len(request) != 3:
                raise UsageError(
                    "a request of write_all has the wrong length; pass (array, key, value)",
                    code="bad-value",
                )

    lists = _find_list_requests(requests)
    if lists:
        ranks = Ranks.of_call(group, f"{call} of lists")
        schedules = _make_schedules(ranks, requests, lists, check)
        wanted = [(schedule, requests[k][2]) for k, schedule in zip(lists, schedules, strict=True)]

        def check_values() -> None:
            for schedule, value in wanted:
                schedule.check_values(value)

        ranks.gather_numbers(check_values)
        sections = [r for k, r in enumerate(requests) if k not in lists]
        write_all(sections, comm=group, method=method)
        manner: Any = MANNERS.get(method, method)
        # Only owners know which value of an element is the last one.
        manner = "auto" if manner == "direct" else manner
        for schedule, value in wanted:
            schedule.scatter_all(value, method=manner)
        return

    def prepare() -> list[Item]:
        check()
        return [brought.prepare_write(check_array(r[0]), r[1], r[2]) for r in requests]

    CollectiveCall(group, call, prepare, method, lambda: find_hints(requests)).run()


def _find_list_requests(requests: Any) -> list[int]:
    """Return the positions of requests whose keys have index arrays; skip invalid requests."""
    if not isinstance(requests, Sequence):
        return []
    pairs = [(k, r) for k, r in enumerate(requests) if isinstance(r, Sequence) and len(r) > 1]
    return [k for k, request in pairs if has_arrays(request[1])]


def _make_schedules(
    ranks: Ranks,
    requests: Sequence[tuple[Any, ...]],
    lists: list[int],
    check: Callable[[], None],
) -> list[CollectiveSchedule]:
    """Make schedules for keys with index arrays before moving data; all ranks return, or all raise."""
    arrays: list[DiskArray] = []

    def check_arrays() -> None:
        check()
        arrays.extend(check_array(requests[k][0]) for k in lists)
        for array in arrays:
            brought.check_not_virtual(array)

    def tell() -> str:
        return (
            f"{ranks.call}, with arrays of indices for {', '.join(array.path for array in arrays)}"
        )

    ranks.gather_numbers(check_arrays, tell, meaning=lambda: [*map(brought.get_array_id, arrays)])
    return [
        CollectiveSchedule(array, requests[k][1], transport=ranks.group, once=True)
        for k, array in zip(lists, arrays, strict=True)
    ]


def check_array(given: Any) -> DiskArray:
    """Return `given` if it is an array on disk; raise otherwise."""
    if not isinstance(given, DiskArray):
        raise UsageError(f"{given!r} is not an array on disk; open it first", code="bad-value")
    return given


def find_group(requests: Sequence[tuple[Any, ...]], comm: Any) -> Transport:
    """Return the transport of the ranks that take part, without checking all of `requests`."""
    if comm is not None:
        return transport(comm)
    if not isinstance(requests, Sequence) or not requests:
        raise UsageError(
            f"{requests!r} does not specify which ranks make this call; on a rank without "
            "requests, pass an empty list and comm=, the communicator of the others",
            code="missing-argument",
        )
    for request in requests:
        if isinstance(request, Sequence) and request:
            group: Transport | None = getattr(request[0], "transport", None)
            if group is not None:
                return group
    return transport(None)


def find_hints(requests: Sequence[tuple[Any, ...]]) -> Hints:
    """Return the hints of the first array in this rank's list, which apply to the call."""
    for request in requests:
        if request and isinstance(request[0], DiskArray):
            return request[0].hints
    return Hints.of(None)
