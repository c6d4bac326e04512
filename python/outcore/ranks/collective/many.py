"""`read_all` and `write_all` of several arrays: one call for sections of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.base.hints import Hints
from outcore.errors import UsageError
from outcore.ranks.agreement import together
from outcore.ranks.collective import items as brought
from outcore.ranks.collective.call import early, has_arrays, run
from outcore.ranks.collective.items import Item
from outcore.ranks.collective.lists.irregular import CollectiveSchedule
from outcore.ranks.collective.planning import Method
from outcore.ranks.collective.virtual import Reading, is_virtual
from outcore.ranks.transport import Transport, transport

__all__ = ["MANNERS", "an_array", "group_of", "hints_of", "read_all", "write_all"]

#: What methods for sections mean for elements of lists.
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

    Every rank of `comm` must call this, with arrays and sections of its own, or none. Arrays may
    differ in file, shape and dtype. Each byte is read from disk once; an array is read by a rank that
    has it in its list: give an empty section of an array to help others to read it.

    Parameters
    ----------
    requests
        ``(array, key)`` or ``(array, key, out)`` for each section; see `CollectiveArray.read_all`. Keys
        may have arrays of indices: all ranks give such keys of the same arrays, in the same order among
        them, with an empty array of integers where a rank wants nothing.
    comm
        Communicator of mpi4py, or transport; by default that of the first array that was opened with
        one. A rank that wants nothing passes ``comm=``: an empty list does not say whom it is with.
    method
        ``"auto"``, ``"direct"``, ``"sieve"`` or ``"two-phase"``; on all ranks the same.

    Returns
    -------
    list of numpy.ndarray or scalar
        One for each request, of the dtype of its array and of the shape that NumPy gives
        ``array[key]``; `out` where it was given.

    Raises
    ------
    CollectiveError
        On all ranks, if any rank failed, or called something else. Arrays given as `out` are then
        undefined.
    BudgetError
        On all ranks, as for `CollectiveArray.read_all`.
    UsageError
        On this rank, if `requests` is empty and there is no `comm`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", data=np.arange(6).reshape(2, 3))
    >>> b = outcore.create("b.npy", data=np.arange(4.0))
    >>> outcore.read_all([(a, np.s_[1]), (b, np.s_[::2])])
    [array([3, 4, 5]), array([0., 2.])]

    Notes
    -----
    Memory as for `CollectiveArray.read_all`: the results, and slots for all arrays together. What keys
    with arrays choose is read after the sections, one array after another; as for `schedule_all`, it
    takes 24 bytes for each index, of all of them at once.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 3 and 4.
    """
    group = group_of(requests, comm)
    call = "outcore.read_all"

    def check() -> None:
        for request in requests:
            if len(request) not in (2, 3):
                raise UsageError(
                    "read_all takes (array, key) or (array, key, out)", code="bad-value"
                )

    lists = _with_arrays(requests)
    if lists:
        schedules = _schedules(group, f"{call} of lists", requests, lists, check)
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
    readings: list[Reading] = []

    def prepare() -> list[Item]:
        check()
        # Where other ranks have not all cached, what was read early is memory that is there.
        outs = [got if isinstance(got, np.ndarray) else None for got in attempt]
        outs += [None] * (len(requests) - len(outs))
        readings[:] = [
            Reading(an_array(r[0]), r[1], out if len(r) == 2 or r[2] is None else r[2])
            for r, out in zip(requests, outs, strict=True)
        ]
        return [item for one in readings for item in one.items]

    def if_cached() -> list[Any] | None:
        got = attempt_reads()
        attempt[:] = got or []
        return got

    def attempt_reads() -> list[Any] | None:
        check()
        if any(is_virtual(an_array(r[0])) for r in requests):
            return None
        three = [r if len(r) == 3 else (*r, None) for r in requests]
        return early(group, [(an_array(a).handle.core, key, out) for a, key, out in three], method)

    results: list[Any] = run(
        group, call, prepare, method, lambda: hints_of(requests), if_cached=if_cached
    )
    if any(one.virtual for one in readings):
        left = iter(results)
        return [one.result([next(left) for _ in one.items]) for one in readings]
    return results


def write_all(
    requests: Sequence[tuple[Any, ...]], *, comm: Any = None, method: Method = "auto"
) -> None:
    """
    Write sections of several arrays together with the other ranks. Collective.

    Every rank of `comm` must call this, with arrays and sections of its own, or none. Where elements are
    given several times the highest rank wins, and of one rank its last request.

    Parameters
    ----------
    requests
        ``(array, key, value)`` for each section; values are broadcast to its shape and cast to the
        array's dtype. See `CollectiveArray.write_all`. Keys may have arrays of indices as for
        `read_all`: they are written after the sections, in their order.
    comm, method
        As for `read_all`.

    Raises
    ------
    CollectiveError
        On all ranks, if any rank failed, or called something else. Each block of the files then is old
        or new, as for `CollectiveArray.write_all`.
    BudgetError
        On all ranks, as for `CollectiveArray.write_all`.
    UsageError
        On this rank, if `requests` is empty and there is no `comm`.

    Notes
    -----
    Memory as for `read_all`; values that have to be cast are cast whole, besides. Durable as after
    `CollectiveArray.write_all`: each array for itself.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 3 and 4.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", (2, 3), "i8")
    >>> outcore.write_all([(a, np.s_[0], 7), (a, np.s_[1], [1, 2, 3])])
    >>> a[...]
    array([[7, 7, 7],
           [1, 2, 3]])
    """
    group = group_of(requests, comm)
    call = "outcore.write_all"

    def check() -> None:
        for request in requests:
            if len(request) != 3:
                raise UsageError("write_all takes (array, key, value)", code="bad-value")

    lists = _with_arrays(requests)
    if lists:
        schedules = _schedules(group, f"{call} of lists", requests, lists, check)
        wanted = [(schedule, requests[k][2]) for k, schedule in zip(lists, schedules, strict=True)]

        def fits() -> list[int]:
            for schedule, value in wanted:
                schedule.check_values(value)
            return []

        together(group, f"{call} of lists", fits, lambda: call, same=0)
        sections = [r for k, r in enumerate(requests) if k not in lists]
        write_all(sections, comm=group, method=method)
        manner: Any = MANNERS.get(method, method)
        # Who is last only owners know.
        manner = "auto" if manner == "direct" else manner
        for schedule, value in wanted:
            schedule.scatter_all(value, method=manner)
        return

    def prepare() -> list[Item]:
        check()
        return [brought.writing(an_array(r[0]), r[1], r[2]) for r in requests]

    run(group, call, prepare, method, lambda: hints_of(requests))


def _with_arrays(requests: Any) -> list[int]:
    """Which requests have keys with arrays; what is no request, the call says on all ranks."""
    if not isinstance(requests, Sequence):
        return []
    pairs = [(k, r) for k, r in enumerate(requests) if isinstance(r, Sequence) and len(r) > 1]
    return [k for k, request in pairs if has_arrays(request[1])]


def _schedules(
    group: Transport,
    call: str,
    requests: Sequence[tuple[Any, ...]],
    lists: list[int],
    check: Callable[[], None],
) -> list[CollectiveSchedule]:
    """Make the schedules of keys with arrays, before anything is moved: all ranks, or all raise."""
    arrays: list[DiskArray] = []

    def same() -> list[int]:
        check()
        arrays.extend(an_array(requests[k][0]) for k in lists)
        for array in filter(is_virtual, arrays):
            brought.refuse_virtual(array)
        return [len(lists), brought.number_of(repr([brought.name_of(array) for array in arrays]))]

    def tell() -> str:
        return f"{call}, with arrays of indices for {', '.join(array.path for array in arrays)}"

    together(group, call, same, tell)
    return [
        CollectiveSchedule(array, requests[k][1], transport=group, once=True)
        for k, array in zip(lists, arrays, strict=True)
    ]


def an_array(given: Any) -> DiskArray:
    """Give back what is an array on disk; raise for anything else."""
    if not isinstance(given, DiskArray):
        raise UsageError(f"{given!r} is no array on disk; open it first", code="bad-value")
    return given


def group_of(requests: Sequence[tuple[Any, ...]], comm: Any) -> Transport:
    """Find the ranks that take part. What else is wrong with `requests`, these ranks have to be told."""
    if comm is not None:
        return transport(comm)
    if not isinstance(requests, Sequence) or not requests:
        raise UsageError(
            f"{requests!r} does not say which ranks take part in this call. A rank that wants nothing "
            "passes an empty list and comm=, the communicator of the others",
            code="missing-argument",
        )
    for request in requests:
        if isinstance(request, Sequence) and request:
            group: Transport | None = getattr(request[0], "transport", None)
            if group is not None:
                return group
    return transport(None)


def hints_of(requests: Sequence[tuple[Any, ...]]) -> Hints:
    """Tell the hints that count on this rank: those of the first array that it has in its list."""
    for request in requests:
        if request and isinstance(request[0], DiskArray):
            return request[0].hints
    return Hints.of(None)
