"""
Model of a machine with a few parameters: servers with disks, nodes with ranks, a network.

The named machines (`NAMES`) are in the ``.toml`` files in this folder, with the source of each
parameter. ``crates/plan/src/simulate`` describes the behaviour of the parts.

>>> from outcore.model.machines.machine import machine
>>> machine("delta").servers
64
>>> machine("delta", servers=16).servers
16
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from outcore.errors import UsageError

__all__ = ["NAMES", "Figures", "Machine", "machine"]

NAMES = ("delta", "ipsc", "paragon", "red", "sp", "sp2", "today")
_SECOND = 1_000_000_000


class Figures(NamedTuple):
    """
    Results of ``outcore bench`` for a disk, which plans use.

    Gaps below `gap` bytes are cheaper to read than to skip. `request_ns` is the cost of one more request
    while many are in progress. `device` and `stream` are bytes per second of a request, and of the
    fastest stream.
    """

    gap: int
    request_ns: int
    device: int
    stream: int


@dataclass(frozen=True)
class Machine:
    """
    Modelled machine. Times in nanoseconds, sizes in bytes, rates in bytes per second.

    Each file is striped over all `servers`, with one disk each: `stripe` consecutive bytes on one
    server, which reads and caches `block` bytes as a unit (a divisor of `stripe`). Any request costs a
    server `request_ns`, and data in its memory are sent at `memory_rate`. A block from the disk costs
    `block_ns`, and `seek_ns` more if it follows none of the last `streams` positions of the disk;
    `write_seek_ns` is the same for writes, and 0 if servers sort writes first.

    A request costs its rank `client_ns`; a rank has `depth` reads or `write_depth` writes in progress. A
    message costs both ranks `message_ns`; `message_rate` is the rate of a node's port in each direction,
    `copy_rate` the rate of copies in memory, `per_node` the number of ranks that share a node. `call_ns`
    is the cost of a call before any byte is transferred. `about` describes the machine, with the source
    of its parameters.
    """

    name: str
    servers: int
    stripe: int
    block: int
    request_ns: int
    memory_rate: int
    block_ns: int
    seek_ns: int
    streams: int
    disk_rate: int
    write_rate: int
    write_seek_ns: int
    client_ns: int
    depth: int
    write_depth: int
    message_ns: int
    message_rate: int
    copy_rate: int
    per_node: int
    call_ns: int
    about: str = ""

    def __str__(self) -> str:
        """Return name and parameters in one line."""
        figures = [
            f"{field.name} {getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if field.name not in ("name", "about")
        ]
        return f"{self.name}: {', '.join(figures)}"

    def figures(self, ranks: int) -> Figures:
        """
        Return the results of ``outcore bench`` for the disks if `ranks` ranks read concurrently.

        The cost of a request is divided by the number of busy servers; a long request pays again for
        each stripe.

        Examples
        --------
        >>> from outcore.model.machines.machine import machine
        >>> machine("delta").figures(16)
        Figures(gap=780, request_ns=375000, device=2080067, stream=2080067)
        """
        busy = max(1, min(self.servers, ranks * self.depth))
        request = self.request_ns + self.block_ns + self.seek_ns
        each = max(request // busy, self.client_ns // max(ranks, 1), 1)
        stripe = self.request_ns + self.block_ns * (self.stripe // self.block)
        stripe += self.stripe * _SECOND // self.disk_rate
        rate = max(busy * self.stripe * _SECOND // max(stripe, 1), 1)
        return Figures(each * rate // _SECOND, each, rate, rate)


_FIGURES = tuple(f.name for f in dataclasses.fields(Machine) if f.name not in ("name", "about"))


def machine(name: str | os.PathLike[str] = "today", **changes: int) -> Machine:
    """
    Return a machine by name, or from a TOML file, with optional changes.

    Parameters
    ----------
    name
        ``"delta"`` (Intel Touchstone Delta), ``"ipsc"`` (iPSC/860), ``"paragon"``, ``"red"`` (ASCI/Red),
        ``"sp"`` (IBM SP with local disks), ``"sp2"`` (IBM SP-2), ``"today"``, or the path of a TOML file
        with all parameters of `Machine`. A file may contain ``like = "today"`` and only the differences.
    **changes
        Parameters to change.

    Raises
    ------
    UsageError
        ``bad-machine``: the name or file does not exist, or a parameter is missing, unknown or not a
        positive integer.
    """
    found = dict(_read(str(name)))
    for figure, value in changes.items():
        found[figure] = value
    return _make_machine(found, str(name))


def _read(name: str) -> dict[str, Any]:
    if name in NAMES:
        text = resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8")
        return {"name": name, **tomllib.loads(text)}
    try:
        with open(name, "rb") as file:
            found = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"machine {name!r} is not known ({error}); use {', '.join(NAMES)}, or a TOML file",
            code="bad-machine",
        ) from error
    like = found.pop("like", None)
    base = {} if like is None else _read(str(like)) if like in NAMES else _reject_base(like)
    return {**base, "name": os.path.splitext(os.path.basename(name))[0], **found}


def _reject_base(like: Any) -> dict[str, Any]:
    raise UsageError(f"like = {like!r} is not known; use {', '.join(NAMES)}", code="bad-machine")


def _make_machine(found: dict[str, Any], name: str) -> Machine:
    known = {*_FIGURES, "name", "about"}
    wrong = sorted(set(found) - known)
    missing = [figure for figure in _FIGURES if figure not in found]
    if wrong or missing:
        what = f"add {', '.join(missing)}" if missing else f"remove {', '.join(wrong)}"
        kind = "missing" if missing else "unknown"
        raise UsageError(f"machine {name!r} has {kind} parameters; {what}", code="bad-machine")
    for figure in _FIGURES:
        value, least = found[figure], int(not figure.endswith("_ns"))
        if type(value) is not int or not least <= value < 1 << 40:
            raise UsageError(
                f"machine {name!r}: {figure} = {value!r} is not an integer from {least} to 2^40 - 1",
                code="bad-machine",
            )
    if found["stripe"] % found["block"]:
        raise UsageError(
            f"machine {name!r}: a stripe of {found['stripe']} bytes is not a multiple of the block of "
            f"{found['block']} bytes",
            code="bad-machine",
        )
    return Machine(**found)
