"""
User settings: `Hints` (never change results) and `memory` (a fixed budget).

A hint left at its default takes its value from the environment variable ``OUTCORE_HINTS``
(``"engine=threads,threads=1"``). Otherwise the core chooses it from the machine, the file and the
section; `DiskArray.explain` reports the choice and the reason. The memory budget is one number for the
process; ``OUTCORE_MEMORY`` sets it before the first use.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Never

from outcore import _core
from outcore.errors import UsageError, suggest_name

__all__ = ["Hints", "MemoryLimit", "memory", "parse_bytes"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "engine": ("auto", "threads", "uring"),
    "method": ("auto", "straight", "window", "mapped", "list"),
    "cache": ("auto", "keep", "bypass"),
    "missing": ("fill", "error"),
    "domains": ("requested", "bounding", "fixed", "cyclic"),
    "overlap": ("last", "error"),
    "assign": ("balanced", "greedy", "matching", "exact"),
}
_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[f"{_letter}b"] = 1000**_power
    _UNITS[f"{_letter}ib"] = _UNITS[_letter] = 1024**_power


@dataclass(frozen=True, slots=True, init=False)
class Hints:
    """
    Hints on how an array is read and written. They never change results.

    Hints left at their defaults are taken from ``OUTCORE_HINTS``.

    Parameters
    ----------
    engine
        ``"threads"`` (system calls), ``"uring"`` (io_uring, if the system supports it), or ``"auto"``.
    method
        ``"straight"`` (reads each run directly into the result), ``"window"`` (data sieving),
        ``"mapped"`` (copies from a file mapping), ``"list"`` (many small concurrent requests), or
        ``"auto"``.
    cache
        ``"keep"`` reads through the page cache, ``"bypass"`` bypasses it (direct I/O), ``"auto"``
        decides by the size of the access and by what is cached already. Writes go through the page
        cache, except large writes to an array that nothing else writes (`exclusive`) with ``"bypass"``,
        or with ``"auto"`` if the page cache cannot hold the array. ``"bypass"`` also decodes compressed
        chunks on each access instead of caching them.
    memory
        Limit in bytes of the buffers of one operation on this array, as a number or text
        (``"64 MiB"``). Never more than `outcore.memory` allows.
    threads
        Number of threads that copy and decode; by default all processors.
    exclusive
        True if nothing else writes this file, so that a window may be read, changed and written back.
        Threads may share the array; another array that is open on the same file counts as something
        else. For an array that ranks opened together: nothing but these ranks writes it. Not needed for
        ``.npy`` and raw files on a local disk, where outcore asks the operating system.
    missing
        Treatment of a chunk that was never written: ``"fill"`` (the fill value) or ``"error"``.
    sync
        If True, make every write durable before it returns. For a collective call: all writes of all
        ranks to the array, if any rank has opened it so, before the ranks agree on completion.
    io_ranks
        Number of ranks that access files in a collective call, evenly spread; by default all (None).
        With fewer than all, ``method="auto"`` means two-phase, also for cached data. As with
        ``cb_nodes`` in MPI-IO, ``"direct"`` and ``"sieve"`` override it: ranks then work independently.
    io_groups
        Number of groups in which the ranks that access files take turns in a collective call. While one
        group is at the disk, data that another has read (or will write) is exchanged. By default one
        group (None).
    domains
        Division of files into file domains in a collective call: by the cost of the ``"requested"``
        sections, by the ``"bounding"`` section (dynamic partitioning of Thakur and Choudhary, section
        4.2), in ``"fixed"`` parts of the whole array (static partitioning, section 4.1), or tile by
        tile (``"cyclic"``).
    overlap
        Treatment of ranks that write the same element: the highest rank wins (``"last"``), or an error
        is raised (``"error"``). If the sections are so numerous and entangled that detection takes too
        long, a warning replaces the error, and the highest rank wins.
    stripe
        Alignment of file domains in a collective call, in bytes, as a number or text. Domains begin at
        multiples of it, counted from the beginning of the file, or at the first row after one; by
        default 4 KiB. Chunks are never cut.
    assign
        Assignment of arrays to ranks in a collective call on many arrays, see `outcore.model.assign`.
        ``"balanced"`` minimises the largest load and cuts large arrays; ``"greedy"``, ``"matching"``
        and ``"exact"`` give each rank equally many whole arrays (shares of arrays, if there are fewer
        than ranks). If the method cannot solve the problem, ``"balanced"`` is used;
        `outcore.mpi.explain_all` reports it.

    Raises
    ------
    UsageError
        ``bad-hint``: a name or value is unknown; the message has the nearest known one.

    Notes
    -----
    Hints are immutable. The fields have the names of the parameters, with bytes as `int`, and None for
    an unspecified number.

    Ranks of a collective call should give the same hints. If they differ, the smallest `memory` and
    `io_ranks` and the largest `stripe` apply, and ``overlap="error"`` if any rank sets it; `io_groups`,
    `domains` and `assign` are those of the first rank that sets them. All other hints apply per rank.
    For a collective call on many arrays, the hints of each rank's first array apply.

    *Bounding* and *fixed*: Thakur, Choudhary, "An Extended Two-Phase Method for Accessing Sections of
    Out-of-Core Arrays", section 4. `assign`: Memik, Kandemir, Choudhary, "Exploiting Inter-File Access
    Patterns Using Multi-Collective I/O", section 5.

    Examples
    --------
    >>> import outcore
    >>> outcore.Hints(engine="threads", memory="64 MiB").memory
    67108864
    >>> outcore.create("field.npy", (4, 6), "f8", hints={"stripe": "1 MiB", "io_ranks": 2}).hints.stripe
    1048576
    >>> outcore.Hints(engine="treads")
    Traceback (most recent call last):
    outcore.errors.UsageError: [bad-hint] engine='treads' is not a hint; did you mean 'threads'? ...
    """

    engine: str
    method: str
    cache: str
    memory: int | None
    threads: int | None
    exclusive: bool
    missing: str
    sync: bool
    io_ranks: int | None
    io_groups: int | None
    domains: str
    overlap: str
    stripe: int | None
    assign: str

    def __init__(
        self,
        *,
        engine: str = "auto",
        method: str = "auto",
        cache: str = "auto",
        memory: int | str | None = None,
        threads: int | None = None,
        exclusive: bool = False,
        missing: str = "fill",
        sync: bool = False,
        io_ranks: int | None = None,
        io_groups: int | None = None,
        domains: str = "requested",
        overlap: str = "last",
        stripe: int | str | None = None,
        assign: str = "balanced",
        **unknown: Never,
    ) -> None:
        if unknown:
            raise _make_unknown_error(next(iter(unknown)), [f.name for f in fields(self)])
        given = {"engine": engine, "method": method, "cache": cache, "missing": missing}
        given |= {"domains": domains, "overlap": overlap, "assign": assign}
        for name, value in given.items():
            if value not in _CHOICES[name]:
                raise _make_unknown_error(value, _CHOICES[name], prefix=f"{name}=")
            object.__setattr__(self, name, value)
        for name, flag in {"exclusive": exclusive, "sync": sync}.items():
            if not isinstance(flag, bool):
                raise UsageError(
                    f"{name}={flag!r} is not a boolean; pass True or False", code="bad-hint"
                )
            object.__setattr__(self, name, flag)
        object.__setattr__(self, "threads", _check_number("threads", threads, 4096))
        object.__setattr__(self, "io_ranks", _check_number("io_ranks", io_ranks, 2**31 - 1))
        object.__setattr__(self, "io_groups", _check_number("io_groups", io_groups, 2**31 - 1))
        object.__setattr__(self, "stripe", None if stripe is None else parse_bytes(stripe))
        object.__setattr__(self, "memory", None if memory is None else parse_bytes(memory))

    @classmethod
    def parse(cls, text: str) -> Hints:
        """
        Create hints from text such as ``"engine=threads,threads=1"``, as in ``OUTCORE_HINTS``.

        Parameters
        ----------
        text
            Pairs ``name=value``, separated by commas; may be empty.

        Returns
        -------
        Hints
            Hints of the text; all others are at their defaults.

        Raises
        ------
        UsageError
            ``bad-hint``: the text is not a list of ``name=value``, or a name or value is unknown.

        Examples
        --------
        >>> from outcore import Hints
        >>> Hints.parse("engine=threads, memory=1MiB").memory
        1048576
        """
        words: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                message = f"{item!r} is not a hint; write name=value, separated by commas"
                raise UsageError(message, code="bad-hint")
            words[name] = _parse_value(name, value)
        return cls(**words)

    def over(self, other: Hints) -> Hints:
        """
        Return these hints, with those left at their defaults taken from `other`.

        Parameters
        ----------
        other
            Hints to use where these are at their defaults.

        Returns
        -------
        Hints
            Combined hints. A default that was given explicitly counts as not given.

        Examples
        --------
        >>> from outcore import Hints
        >>> both = Hints(threads=1).over(Hints(threads=4, engine="uring"))
        >>> both.threads, both.engine
        (1, 'uring')
        """
        default = _create_default()
        if other == default:
            return self
        if self == default:
            return other
        words = {
            f.name: getattr(
                self if getattr(self, f.name) != getattr(default, f.name) else other, f.name
            )
            for f in fields(self)
        }
        return Hints(**words)

    @classmethod
    def of(cls, hints: Hints | Mapping[str, Any] | None) -> Hints:
        """
        Return the hints that apply to an array: `hints` over ``OUTCORE_HINTS``.

        Parameters
        ----------
        hints
            Hints, a mapping such as ``{"threads": 1}``, or None.

        Returns
        -------
        Hints
            Given hints, with those left at their defaults taken from the environment.

        Raises
        ------
        UsageError
            ``bad-hint``: `hints` has another type, or a name or value is unknown; an error in the
            environment names the variable.

        Examples
        --------
        >>> from outcore import Hints
        >>> Hints.of({"threads": 1}).threads
        1
        """
        if not isinstance(hints, Hints | Mapping | None):
            raise UsageError(
                f"hints={hints!r} is not valid; pass outcore.Hints(...) or a mapping such as "
                f"{{'threads': 1}}",
                code="bad-hint",
            )
        if isinstance(hints, Mapping) and (
            odd := [name for name in hints if type(name) is not str]
        ):
            raise _make_unknown_error(odd[0], [f.name for f in fields(cls)])
        given = hints if isinstance(hints, Hints) else cls(**hints) if hints else _create_default()
        text = os.environ.get("OUTCORE_HINTS")
        if not text:
            return given
        with _add_variable("OUTCORE_HINTS"):
            return given.over(cls.parse(text))


@functools.cache
def _create_default() -> Hints:
    """Return default hints, created once because hundreds of arrays may be opened with them."""
    return Hints()


@contextlib.contextmanager
def _add_variable(variable: str) -> Iterator[None]:
    """Add the name of an environment variable to errors about its value."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{variable}: {error.message}", code=error.code) from None


def _check_number(name: str, value: int | None, most: int) -> int | None:
    if value is None:
        return None
    whole = hasattr(type(value), "__index__") and not isinstance(value, bool)
    if not whole or not 1 <= operator.index(value) <= most:
        raise UsageError(
            f"{name}={value!r} is out of range; pass an integer in 1..{most}", code="bad-hint"
        )
    return operator.index(value)


def _parse_value(name: str, value: str) -> Any:
    if name in ("threads", "io_ranks", "io_groups"):
        if not re.fullmatch(r"[0-9]+", value):
            raise UsageError(f"{name}={value!r} is not a number; pass an integer", code="bad-hint")
        return int(value)
    if name in ("exclusive", "sync"):
        truth = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        return truth.get(value.lower(), value)
    return value


def _make_unknown_error(word: object, known: Any, prefix: str = "") -> UsageError:
    text = f"{prefix}{word!r} is not a hint{suggest_name(word, known)} Known: {', '.join(known)}"
    return UsageError(text, code="bad-hint")


def parse_bytes(amount: float | str) -> int:
    """
    Return a number of bytes from a number or text such as ``"512 MiB"``, ``"1.5GB"``, ``"64k"``.

    ``kB`` is 1000 bytes, ``KiB`` and ``k`` are 1024. Raise `UsageError` (``bad-hint``) unless the
    result is a whole number from 1 to 2**63 - 1.

    Examples
    --------
    >>> parse_bytes("1.5 KiB")
    1536
    """
    if isinstance(amount, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-zA-Z]*)\s*", amount)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            message = f"{amount!r} is not a number of bytes; write for example '512 MiB'"
            raise UsageError(message, code="bad-hint")
        amount = int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    if isinstance(amount, float) and amount.is_integer():
        amount = int(amount)
    try:
        whole = 0 if isinstance(amount, bool) else operator.index(amount)  # type: ignore[arg-type]
    except TypeError:
        whole = 0
    if not 0 < whole < 2**63:
        raise UsageError(
            f"{amount!r} is not a number of bytes; pass an integer in 1..2**63-1, or text such as "
            "'512 MiB'",
            code="bad-hint",
        )
    return whole


class MemoryLimit(int):
    """The memory budget in bytes. As a context manager it restores the previous budget on exit."""

    #: Budget that the exit of the context manager restores, or None.
    before: int | None = None

    def __enter__(self) -> MemoryLimit:
        if self.before is not None:
            _core.set_memory_limit(self)  # already set, unless this is entered a second time
        return self

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            _core.set_memory_limit(self.before)

    def __str__(self) -> str:
        return f"{int(self) / 2**20:.1f} MiB"


def memory(limit: int | str | None = None) -> MemoryLimit:
    """
    Get or set the memory budget of this process; in a ``with`` statement, set it temporarily.

    All buffers of outcore count in the budget; results returned to the caller do not. The default is a
    quarter of the smaller of two amounts: the limit of the control group, and the memory that the
    machine has left at the first use. It is at least 64 MiB.

    Parameters
    ----------
    limit
        Budget in bytes, as a number or text (``"512 MiB"``). None leaves the budget unchanged.

    Returns
    -------
    MemoryLimit
        Current budget, an `int`. In a ``with`` statement, it restores the previous budget on exit.

    Raises
    ------
    UsageError
        `limit` is not an amount of memory.

    Notes
    -----
    Memory that is already reserved stays reserved; new work must fit. The budget applies to all
    threads.

    Examples
    --------
    >>> import outcore
    >>> with outcore.memory("64 MiB") as limit:
    ...     int(limit)
    67108864
    """
    global _complaint
    before = _core.memory_limit()
    if limit is None:
        check_environment()
        return MemoryLimit(before)
    wanted = MemoryLimit(parse_bytes(limit))
    _core.set_memory_limit(wanted)
    wanted.before = before
    _complaint = None
    return wanted


# Error in the environment, raised at the first use and not at import: the command line then reports it
# in one line.
_complaint: UsageError | None = None


def check_environment() -> None:
    """Raise the error in ``OUTCORE_MEMORY``, if any, unless a budget was set in the meantime."""
    if _complaint is not None:
        raise UsageError(_complaint.message, code=_complaint.code)


def _keep_limit_over_fork() -> None:
    # A forked child starts with its own empty arena and the budget of its parent.
    limits: list[int] = []
    os.register_at_fork(
        before=lambda: limits.append(_core.memory_limit()),
        after_in_parent=limits.clear,
        after_in_child=lambda: _core.set_memory_limit(limits.pop()),
    )


_keep_limit_over_fork()
if _text := os.environ.get("OUTCORE_MEMORY"):
    try:
        with _add_variable("OUTCORE_MEMORY"):
            memory(_text)
    except UsageError as _error:
        _complaint = _error
