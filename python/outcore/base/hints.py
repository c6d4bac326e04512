"""
What the user may ask for: `Hints` (never changes results) and `memory` (the promise that holds).

A hint left at its default takes its value from the environment variable ``OUTCORE_HINTS``
(``"engine=threads,threads=1"``), and otherwise is chosen by the core from the machine, the file and
the section; `DiskArray.explain` says what was chosen and why. The memory budget is one number for
the process; ``OUTCORE_MEMORY`` sets it before the first use.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Never

from outcore import _core
from outcore.errors import UsageError, advice

__all__ = ["Hints", "MemoryLimit", "memory", "nbytes"]

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

    Those of ``OUTCORE_HINTS`` hold where a hint is at its default.

    Parameters
    ----------
    engine
        ``"threads"`` (system calls), ``"uring"`` (io_uring, where the system has it), or
        ``"auto"``.
    method
        ``"straight"`` (runs go straight into the result), ``"window"`` (data sieving), ``"mapped"``
        (copies out of a file mapping), ``"list"`` (many small requests at depth), or ``"auto"``.
    cache
        ``"keep"`` reads through the page cache, ``"bypass"`` past it (direct I/O), ``"auto"`` decides
        by the size of the access and by what is cached already. Writes go through it, but for large
        ones to an array that nobody else writes (`exclusive`) with ``"bypass"``, or with ``"auto"``
        where the page cache would not hold the array. ``"bypass"`` also decodes compressed chunks anew
        instead of keeping them.
    memory
        Bytes of buffer one operation on this array may hold, as a number or as text
        (``"64 MiB"``). Never more than `outcore.memory` allows.
    threads
        Threads that copy and decode; all processors by default.
    exclusive
        Nobody else writes this file, so that a window may be read, changed and written back. Threads
        may share the array; another array that is open on the same file is somebody else. Of an array
        that ranks opened together: nobody but these ranks. Not needed for ``.npy`` and raw files on a
        local disk: there, the system is asked.
    missing
        What a chunk that was never written means: ``"fill"`` (the fill value) or ``"error"``.
    sync
        Make every write durable before it returns. Of a collective: what all ranks write to the array,
        if any of them has opened it so, before they agree that it is done.
    io_ranks
        Of a collective: so many ranks touch files, evenly spread; all by default (None). With fewer than
        all of them ``method="auto"`` means two-phase, for cached data too. As in MPI-IO (``cb_nodes``)
        it says nothing of ranks that were told to work on their own: ``"direct"`` and ``"sieve"`` go
        before it.
    io_groups
        Of a collective: the ranks that touch files take turns, in so many groups; while one group is
        at the disk, what another has read (will write) is exchanged. One group by default (None).
    domains
        Of a collective: files are divided by what it costs to get what is ``"requested"``, by the
        ``"bounding"`` section (the dynamic partitioning of Thakur and Choudhary, section 4.2), in
        ``"fixed"`` parts of the whole array (their static one, section 4.1), or tile by tile
        (``"cyclic"``).
    overlap
        Ranks that write the same element: the highest rank wins (``"last"``), or it is refused
        (``"error"``). Of sections so many and so entangled that it takes too long to find out, it is not
        refused; there is a warning then, and the highest rank wins.
    stripe
        Bytes, as a number or text. Of a collective: domains begin at multiples of it, counted from the
        beginning of the file, or at the first row behind one; 4 KiB by default. Chunks are never cut.
    assign
        Of a collective of many arrays: how these are given to ranks, see `outcore.assign`.
        ``"balanced"`` makes the largest load small and cuts large arrays; ``"greedy"``,
        ``"matching"`` and ``"exact"`` give ranks equally many whole ones (shares of them, if there are
        fewer arrays than ranks). What cannot be solved is balanced; `outcore.explain_all` tells.

    Raises
    ------
    UsageError
        ``bad-hint``: a name or value that is not known; the message names the nearest.

    Notes
    -----
    A value: it does not change; its fields have the names above, with bytes as `int`, and None where
    nothing was said.

    Ranks of a collective should give the same hints. Where they do not, it goes by the smallest `memory`
    and `io_ranks`, the largest `stripe`, and ``overlap="error"`` of any of them; `io_groups`, `domains`
    and `assign` are those of the first rank that wants anything. The others are each rank's own. Of a
    collective of many arrays those of a rank's first array count.

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
            raise _unknown(next(iter(unknown)), "hint", [f.name for f in fields(self)])
        given = {"engine": engine, "method": method, "cache": cache, "missing": missing}
        given |= {"domains": domains, "overlap": overlap, "assign": assign}
        for name, value in given.items():
            if value not in _CHOICES[name]:
                raise _unknown(value, "hint", _CHOICES[name], prefix=f"{name}=")
            object.__setattr__(self, name, value)
        for name, flag in {"exclusive": exclusive, "sync": sync}.items():
            if not isinstance(flag, bool):
                raise UsageError(f"{name}={flag!r} must be True or False", code="bad-hint")
            object.__setattr__(self, name, flag)
        object.__setattr__(self, "threads", _number("threads", threads, 4096))
        object.__setattr__(self, "io_ranks", _number("io_ranks", io_ranks, 2**31 - 1))
        object.__setattr__(self, "io_groups", _number("io_groups", io_groups, 2**31 - 1))
        object.__setattr__(self, "stripe", None if stripe is None else nbytes(stripe))
        object.__setattr__(self, "memory", None if memory is None else nbytes(memory))

    @classmethod
    def parse(cls, text: str) -> Hints:
        """
        Hints from text such as ``"engine=threads,threads=1"``, as in ``OUTCORE_HINTS``.

        Parameters
        ----------
        text
            ``name=value``, separated by commas; may be empty.

        Returns
        -------
        Hints
            What the text says; the others are at their defaults.

        Raises
        ------
        UsageError
            ``bad-hint``: the text is not a list of ``name=value``, or a name or value is not known.

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
            words[name] = _word(name, value)
        return cls(**words)

    def over(self, other: Hints) -> Hints:
        """
        These hints; the ones left at their defaults are taken from `other`.

        Parameters
        ----------
        other
            Hints that hold where these say nothing.

        Returns
        -------
        Hints
            Both together. A default that was given explicitly cannot be told from one that was not.

        Examples
        --------
        >>> from outcore import Hints
        >>> both = Hints(threads=1).over(Hints(threads=4, engine="uring"))
        >>> both.threads, both.engine
        (1, 'uring')
        """
        default = _default()
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
        What holds for an array: `hints` over ``OUTCORE_HINTS``.

        Parameters
        ----------
        hints
            Hints, a mapping of them such as ``{"threads": 1}``, or None.

        Returns
        -------
        Hints
            Those given; the ones left at their defaults are those of the environment.

        Raises
        ------
        UsageError
            ``bad-hint``: something else, or a name or value that is not known; that of the environment
            is named.

        Examples
        --------
        >>> from outcore import Hints
        >>> Hints.of({"threads": 1}).threads
        1
        """
        if not isinstance(hints, Hints | Mapping | None):
            raise UsageError(
                f"hints={hints!r}: pass outcore.Hints(...) or a mapping such as {{'threads': 1}}",
                code="bad-hint",
            )
        if isinstance(hints, Mapping) and (
            odd := [name for name in hints if type(name) is not str]
        ):
            raise _unknown(odd[0], "hint", [f.name for f in fields(cls)])
        given = hints if isinstance(hints, Hints) else cls(**hints) if hints else _default()
        text = os.environ.get("OUTCORE_HINTS")
        if not text:
            return given
        with _named("OUTCORE_HINTS"):
            return given.over(cls.parse(text))


@functools.cache
def _default() -> Hints:
    """No hints. Made once: hundreds of arrays may be opened with it."""
    return Hints()


@contextlib.contextmanager
def _named(variable: str) -> Iterator[None]:
    """What is wrong with an environment variable is said with its name."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{variable}: {error.message}", code=error.code) from None


def _number(name: str, value: int | None, most: int) -> int | None:
    if value is None:
        return None
    whole = hasattr(type(value), "__index__") and not isinstance(value, bool)
    if not whole or not 1 <= operator.index(value) <= most:
        raise UsageError(f"{name}={value!r} must lie in 1..{most}", code="bad-hint")
    return operator.index(value)


def _word(name: str, value: str) -> Any:
    if name in ("threads", "io_ranks", "io_groups"):
        if not re.fullmatch(r"[0-9]+", value):
            raise UsageError(f"{name}={value!r} must be a number", code="bad-hint")
        return int(value)
    if name in ("exclusive", "sync"):
        truth = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        return truth.get(value.lower(), value)
    return value


def _unknown(word: object, kind: str, known: Any, prefix: str = "") -> UsageError:
    text = f"{prefix}{word!r} is not a {kind}{advice(word, known)} Known: {', '.join(known)}"
    return UsageError(text, code="bad-hint")


def nbytes(amount: float | str) -> int:
    """
    A number of bytes, from a number or from text such as ``"512 MiB"``, ``"1.5GB"``, ``"64k"``.

    Parameters
    ----------
    amount
        A whole number of bytes, or a number and a unit: ``kB`` is 1000, ``KiB`` and ``k`` are 1024.

    Returns
    -------
    int
        The bytes, from 1 to 2**63 - 1.

    Raises
    ------
    UsageError
        ``bad-hint``: something else.

    Examples
    --------
    >>> nbytes("1.5 KiB")
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
            f"{amount!r} bytes: must be a whole number in 1..2**63-1, or text such as '512 MiB'",
            code="bad-hint",
        )
    return whole


class MemoryLimit(int):
    """The memory budget in bytes. As a context manager it restores the one before on leaving."""

    #: Budget that leaving the context manager restores, or None.
    before: int | None = None

    def __enter__(self) -> MemoryLimit:
        if self.before is not None:
            _core.set_memory_limit(self)  # it holds already, unless this is entered again
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.before is not None:
            _core.set_memory_limit(self.before)

    def __str__(self) -> str:
        return f"{int(self) / 2**20:.1f} MiB"


def memory(limit: int | str | None = None) -> MemoryLimit:
    """
    The memory budget of this process: get it, set it, or set it for a while.

    All buffers of outcore are counted against it; results handed to the caller are not. The default
    is a quarter of the limit of the control group or of what the machine has left at the first use,
    whichever is less, and at least 64 MiB.

    Parameters
    ----------
    limit
        Bytes, as a number or as text (``"512 MiB"``). None leaves the budget as it is.

    Returns
    -------
    MemoryLimit
        The budget that now holds, an `int`. Used in a ``with`` statement, it restores the budget
        that held before.

    Raises
    ------
    UsageError
        If `limit` is not an amount of memory.

    Notes
    -----
    What is held already stays; new work must fit. One number for all threads.

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
    wanted = MemoryLimit(nbytes(limit))
    _core.set_memory_limit(wanted)
    wanted.before = before
    _complaint = None
    return wanted


# What is wrong with the environment. Said at the first use, not here: the command line, which is
# imported like everything else, answers with one line.
_complaint: UsageError | None = None


def check_environment() -> None:
    """Raise what is wrong with ``OUTCORE_MEMORY``, unless a budget was set since."""
    if _complaint is not None:
        raise UsageError(_complaint.message, code=_complaint.code)


def _keep_limit_over_fork() -> None:
    # A forked child starts with an empty arena of its own; the budget is its parent's.
    limits: list[int] = []
    os.register_at_fork(
        before=lambda: limits.append(_core.memory_limit()),
        after_in_parent=limits.clear,
        after_in_child=lambda: _core.set_memory_limit(limits.pop()),
    )


_keep_limit_over_fork()
if _text := os.environ.get("OUTCORE_MEMORY"):
    try:
        with _named("OUTCORE_MEMORY"):
            memory(_text)
    except UsageError as _error:
        _complaint = _error
