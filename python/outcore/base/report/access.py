"""
What an access will do: the answer of `DiskArray.explain`.

The numbers are counted from the plan that would run, so they are exact. Two things may change before
the access is made: the share that is in the page cache, a sample, and which decoded chunks are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outcore.base.report.bars import Bars, Drawn

__all__ = ["BlocksReport", "Report", "counted", "human", "human_time", "thousands"]


def human(count: int) -> str:
    """
    A number of bytes for people.

    Examples
    --------
    >>> human(2_400_000)
    '2.40 MB'
    >>> human(512)
    '512 B'
    """
    if abs(count) < 1000:
        return f"{count} B"
    units = ("kB", "MB", "GB", "TB", "PB", "EB")
    power = next((k for k in range(1, 6) if abs(count) < 999.5 * 1000**k), 6)
    value, unit = count / 1000**power, units[power - 1]
    return f"{value:.3g} {unit}" if value >= 100 else f"{value:.2f} {unit}"


def human_time(nanoseconds: int) -> str:
    """
    A time for people.

    Examples
    --------
    >>> human_time(278_400_000), human_time(8_570_000_000), human_time(4_540_000_000_000)
    ('278 ms', '8.57 s', '4,540 s')
    """
    if nanoseconds < 999_500_000:
        return f"{nanoseconds / 1e6:.3g} ms"
    seconds = nanoseconds / 1e9
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"


def counted(number: int, what: str) -> str:
    """
    So many of something.

    >>> counted(1, "tile"), counted(3, "tile"), counted(2, "pass")
    ('1 tile', '3 tiles', '2 passes')
    """
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("s") else "s")


def thousands(number: int) -> str:
    """
    A number for people.

    >>> thousands(1234567)
    '1,234,567'
    """
    return f"{number:,}"


@dataclass(frozen=True, slots=True)
class Report(Drawn):
    """
    The plan of one read or write, in numbers and in words (`str`).

    Parameters
    ----------
    path, section, direction
        What was asked: ``direction`` is ``"read"`` or ``"write"``.
    method, why
        How the bytes are reached and the reason in one sentence.
    engine, engine_why
        Who runs it, and why another one does not.
    reads, read_bytes, writes, written_bytes
        Requests to the system and the bytes they carry.
    mapped_bytes
        Bytes copied straight out of or into mapped files, without a request.
    useful_bytes
        Bytes of the section itself.
    decodes, encodes
        Chunks that go through a codec.
    kept
        Chunks that are kept decoded from an access before, and so are neither read nor decoded. They
        may have to give way before this access is made; then it reads them.
    rounds
        Steps of the plan.
    peak_bytes
        Memory held at once besides the result.
    budget
        Memory that the operation might hold.
    cached
        Share of the needed pages in the page cache, 0 to 1; None if not looked at.
    disk
        Where the figures of the disk come from: ``"measured"`` (by ``outcore bench``), ``"learned"``
        (from reads, in this process or an earlier one) or ``"assumed"``.
    disk_latency_ns, disk_rate
        These figures: nanoseconds for one more request at depth, bytes per second beyond that.
    """

    path: str
    section: str
    direction: str
    method: str
    why: str
    engine: str
    engine_why: str
    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    mapped_bytes: int
    useful_bytes: int
    decodes: int
    encodes: int
    kept: int
    rounds: int
    peak_bytes: int
    budget: int
    cached: float | None
    disk: str
    disk_latency_ns: int
    disk_rate: int

    @property
    def moved_bytes(self) -> int:
        """Bytes that are read, written or copied out of a mapping."""
        return self.read_bytes + self.written_bytes + self.mapped_bytes

    @property
    def mapped_written_bytes(self) -> int:
        """Of the bytes that are copied out of or into mapped files, those that are written."""
        return self.mapped_bytes if self.direction == "write" else 0

    @property
    def useful(self) -> float:
        """Share of the moved bytes that belongs to the section, 0 to 1."""
        return min(1.0, self.useful_bytes / self.moved_bytes) if self.moved_bytes else 1.0

    def __str__(self) -> str:
        lines = [
            (self.direction, f"{self.path} {self.section}, {human(self.useful_bytes)}"),
            (
                "method",
                self.why if self.why.startswith(self.method) else f"{self.method}: {self.why}",
            ),
            ("engine", f"{self.engine}: {self.engine_why}" if self.engine_why else self.engine),
        ]
        share = f" ({self.useful:.0%} useful)"
        for name, count, size in (
            ("reads", self.reads, self.read_bytes),
            ("writes", self.writes, self.written_bytes),
        ):
            if count:
                lines.append((name, f"{counted(count, 'request')}, {human(size)}{share}"))
        if self.mapped_bytes:
            lines.append(("mapping", f"{human(self.mapped_bytes)} copied, no requests{share}"))
        if self.decodes or self.encodes or self.kept:
            kept = f", {self.kept} kept" if self.kept else ""
            lines.append(("chunks", f"{self.decodes} decoded, {self.encodes} encoded{kept}"))
        peak = f"{human(self.peak_bytes)} besides the result, of {human(self.budget)}"
        lines.append(("memory", f"{peak}, in {counted(self.rounds, 'round')}"))
        if self.cached is not None:
            lines.append(("cached", f"about {self.cached:.0%} of the pages"))
        figures = f"{self.disk_latency_ns / 1000:.3g} us a request, {human(self.disk_rate)}/s"
        lines.append(("disk", f"{self.disk}: {figures}"))
        return "\n".join(f"{name:<8} {text}" for name, text in lines)

    def _bars(self) -> Sequence[Bars]:
        moved = [("read", self.read_bytes), ("written", self.written_bytes)]
        moved.append(("copied from mapping", self.mapped_bytes))
        numbers = [("reads", self.reads), ("writes", self.writes)]
        numbers += [("decoded", self.decodes), ("encoded", self.encodes), ("kept", self.kept)]
        return (
            Bars("bytes", [("wanted", self.useful_bytes), *_some(moved)], human),
            Bars("requests and chunks", _some(numbers), thousands),
            Bars(
                "memory", [("besides the result", self.peak_bytes), ("budget", self.budget)], human
            ),
        )


@dataclass(frozen=True, slots=True)
class BlocksReport(Drawn):
    """
    A loop over the blocks of an array, or a copy of one array into another, in numbers and in words.

    Parameters
    ----------
    path, target
        The array that is read, and the one that each block is copied to, or None.
    shape, blocks, bytes
        Shape of the largest block, number of blocks, bytes of all elements.
    held_bytes, least_bytes
        Memory of the blocks that exist at once, and what the least read (or write) takes besides.
    chunks, decodes
        Chunks of `path` that go through a codec, and how often they do: more often where blocks cut
        them. Chunks that are kept from one block to the next are not decoded again, so it may be less.
    written_chunks, encodes
        The same for `target`.
    shards, shard_writes
        Shards of `target`, and how often they are written.
    given
        The caller gave the shape of the blocks.
    needed
        A budget with which each chunk is handled once, beside what others hold now; None where it is,
        or where `given`.
    budget
        Memory that operations may hold beside the loop.
    """

    path: str
    target: str | None
    shape: tuple[int, ...]
    blocks: int
    bytes: int
    held_bytes: int
    least_bytes: int
    chunks: int
    decodes: int
    written_chunks: int
    encodes: int
    shards: int
    shard_writes: int
    given: bool
    needed: int | None
    budget: int

    @property
    def once(self) -> bool:
        """Whether each chunk is decoded or encoded, and each shard written, once."""
        done = (self.decodes, self.encodes, self.shard_writes)
        return done == (self.chunks, self.written_chunks, self.shards)

    def __str__(self) -> str:
        what = "loop" if self.target is None else "copy"
        to = "" if self.target is None else f" to {self.target}"
        lines = [
            (what, f"{self.path}{to}, {human(self.bytes)}"),
            ("blocks", f"{counted(self.blocks, 'block')} of at most {self.shape}"),
        ]
        for name, number, times in (
            ("decoded", self.chunks, self.decodes),
            ("encoded", self.written_chunks, self.encodes),
            ("shards", self.shards, self.shard_writes),
        ):
            if number:
                each = "each once" if times == number else f"{times / number:.3g} times each"
                lines.append((name, f"{times} for {number}, {each}"))
        held = (
            f"{human(self.held_bytes)} for blocks, at least {human(self.least_bytes)} beside them"
        )
        lines.append(("memory", held))
        if self.needed is not None:
            lines.append(("advice", f"a budget of {self.needed} bytes handles each chunk once"))
        elif not self.once:
            lines.append(("advice", "blocks of whole chunks handle each chunk once"))
        return "\n".join(f"{name:<8} {text}" for name, text in lines)

    def _bars(self) -> Sequence[Bars]:
        chunks = [("chunks read", self.chunks), ("decoded", self.decodes)]
        chunks += [("chunks written", self.written_chunks), ("encoded", self.encodes)]
        chunks += [("shards", self.shards), ("shard writes", self.shard_writes)]
        held = [("blocks", self.held_bytes), ("beside them", self.least_bytes)]
        return (
            Bars("chunks", _some(chunks), thousands),
            Bars("memory", [*held, ("budget", self.budget)], human),
        )


def _some(bars: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those that are not 0."""
    return [(name, value) for name, value in bars if value]
