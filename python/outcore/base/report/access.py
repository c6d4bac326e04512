"""
Plan of an access: the result of `DiskArray.explain`.

The numbers are counted from the plan that would be executed, so they are exact. Two things may change
before the access: the share of pages in the page cache, which is sampled, and the set of cached decoded
chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outcore.base.report.bars import Bars, DrawableReport

__all__ = ["BlocksReport", "Report", "format_bytes", "format_count", "format_number", "format_time"]


def format_bytes(count: int) -> str:
    """
    Format a number of bytes for people.

    Examples
    --------
    >>> format_bytes(2_400_000)
    '2.40 MB'
    >>> format_bytes(512)
    '512 B'
    """
    if abs(count) < 1000:
        return f"{count} B"
    units = ("kB", "MB", "GB", "TB", "PB", "EB")
    power = next((k for k in range(1, 6) if abs(count) < 999.5 * 1000**k), 6)
    value, unit = count / 1000**power, units[power - 1]
    return f"{value:.3g} {unit}" if value >= 100 else f"{value:.2f} {unit}"


def format_time(nanoseconds: int) -> str:
    """
    Format a time for people.

    Examples
    --------
    >>> format_time(278_400_000), format_time(8_570_000_000), format_time(4_540_000_000_000)
    ('278 ms', '8.57 s', '4,540 s')
    """
    if nanoseconds < 999_500_000:
        return f"{nanoseconds / 1e6:.3g} ms"
    seconds = nanoseconds / 1e9
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"


def format_count(number: int, what: str) -> str:
    """
    Format a count and its noun, in the plural unless the count is 1.

    >>> format_count(1, "tile"), format_count(3, "tile"), format_count(2, "pass")
    ('1 tile', '3 tiles', '2 passes')
    """
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("s") else "s")


def format_number(number: int) -> str:
    """
    Format a number with separators of thousands.

    >>> format_number(1234567)
    '1,234,567'
    """
    return f"{number:,}"


@dataclass(frozen=True, slots=True, repr=False)
class Report(DrawableReport):
    """
    The plan of one read or write, in numbers and as text (`str`).

    Parameters
    ----------
    path, section, direction
        Path of the array, section, and ``"read"`` or ``"write"``.
    method, why
        Access method, and the reason in one sentence.
    engine, engine_why
        I/O engine, and the reason why another one is not used.
    reads, read_bytes, writes, written_bytes
        Number of requests to the operating system, and their bytes.
    mapped_bytes
        Bytes copied directly from or to mapped files, without a request.
    useful_bytes
        Bytes of the section itself.
    decodes, encodes
        Number of chunks that are decoded or encoded.
    cached_chunks
        Number of decoded chunks cached by an earlier access, which are neither read nor decoded. If
        they are evicted before this access, it reads them.
    rounds
        Number of steps of the plan.
    peak_bytes
        Peak memory in bytes in addition to the result.
    budget
        Memory in bytes that the operation may use.
    page_cache_fraction
        Fraction of the needed pages in the page cache, 0 to 1; None if unknown.
    disk
        Source of the disk parameters: ``"measured"`` (by ``outcore bench``), ``"learned"`` (from reads,
        in this process or an earlier one) or ``"assumed"``.
    disk_latency_ns, disk_rate
        Disk parameters: nanoseconds for one additional concurrent request, and bytes per second for
        larger requests.
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
    cached_chunks: int
    rounds: int
    peak_bytes: int
    budget: int
    page_cache_fraction: float | None
    disk: str
    disk_latency_ns: int
    disk_rate: int

    @property
    def moved_bytes(self) -> int:
        """Bytes that are read, written or copied from or to a mapping."""
        return self.read_bytes + self.written_bytes + self.mapped_bytes

    @property
    def mapped_written_bytes(self) -> int:
        """Part of `mapped_bytes` that is copied into mapped files."""
        return self.mapped_bytes if self.direction == "write" else 0

    @property
    def useful(self) -> float:
        """Fraction of the moved bytes that belongs to the section, 0 to 1."""
        return min(1.0, self.useful_bytes / self.moved_bytes) if self.moved_bytes else 1.0

    def __str__(self) -> str:
        lines = [
            (self.direction, f"{self.path} {self.section}, {format_bytes(self.useful_bytes)}"),
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
                lines.append(
                    (name, f"{format_count(count, 'request')}, {format_bytes(size)}{share}")
                )
        if self.mapped_bytes:
            lines.append(
                ("mapping", f"{format_bytes(self.mapped_bytes)} copied, no requests{share}")
            )
        if self.decodes or self.encodes or self.cached_chunks:
            cached = f", {self.cached_chunks} cached" if self.cached_chunks else ""
            lines.append(("chunks", f"{self.decodes} decoded, {self.encodes} encoded{cached}"))
        peak = f"{format_bytes(self.peak_bytes)} besides the result, of {format_bytes(self.budget)}"
        lines.append(("memory", f"{peak}, in {format_count(self.rounds, 'round')}"))
        if self.page_cache_fraction is not None:
            lines.append(("cached", f"about {self.page_cache_fraction:.0%} of the pages"))
        figures = (
            f"{self.disk_latency_ns / 1000:.3g} us a request, {format_bytes(self.disk_rate)}/s"
        )
        lines.append(("disk", f"{self.disk}: {figures}"))
        return "\n".join(f"{name:<8} {text}" for name, text in lines)

    def _bars(self) -> Sequence[Bars]:
        moved = [("read", self.read_bytes), ("written", self.written_bytes)]
        moved.append(("copied from mapping", self.mapped_bytes))
        numbers = [("reads", self.reads), ("writes", self.writes)]
        numbers += [
            ("decoded", self.decodes),
            ("encoded", self.encodes),
            ("cached", self.cached_chunks),
        ]
        return (
            Bars("bytes", [("wanted", self.useful_bytes), *_drop_zeros(moved)], format_bytes),
            Bars("requests and chunks", _drop_zeros(numbers), format_number),
            Bars(
                "memory",
                [("besides the result", self.peak_bytes), ("budget", self.budget)],
                format_bytes,
            ),
        )


@dataclass(frozen=True, slots=True, repr=False)
class BlocksReport(DrawableReport):
    """
    A loop over the blocks of an array, or a block-wise copy, in numbers and as text (`str`).

    Parameters
    ----------
    path, target
        Path of the array that is read, and path of the array that is written, or None.
    shape, blocks, bytes
        Shape of the largest block, number of blocks, bytes of all elements.
    held_bytes, least_bytes
        Bytes of the blocks that exist at once, and the least additional bytes to read (or write) one.
    chunks, decodes
        Number of chunks of `path` with a codec, and number of decodings: more if blocks cut chunks,
        fewer if decoded chunks are cached between blocks.
    written_chunks, encodes
        Number of chunks of `target` with a codec, and number of encodings.
    shards, shard_writes
        Number of shards of `target`, and number of times they are written.
    has_given_shape
        True if the caller gave the shape of the blocks.
    needed
        Budget in bytes with which each chunk is coded once, in addition to the memory now used by
        others; None if that is so already, or if `has_given_shape`.
    budget
        Memory in bytes that operations may use in addition to the loop.
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
    has_given_shape: bool
    needed: int | None
    budget: int

    @property
    def is_single_pass(self) -> bool:
        """True if each chunk is decoded or encoded once, and each shard written once."""
        done = (self.decodes, self.encodes, self.shard_writes)
        return done == (self.chunks, self.written_chunks, self.shards)

    def __str__(self) -> str:
        what = "loop" if self.target is None else "copy"
        to = "" if self.target is None else f" to {self.target}"
        lines = [
            (what, f"{self.path}{to}, {format_bytes(self.bytes)}"),
            ("blocks", f"{format_count(self.blocks, 'block')} of at most {self.shape}"),
        ]
        for name, number, times in (
            ("decoded", self.chunks, self.decodes),
            ("encoded", self.written_chunks, self.encodes),
            ("shards", self.shards, self.shard_writes),
        ):
            if number:
                each = "each once" if times == number else f"{times / number:.3g} times each"
                lines.append((name, f"{times} for {number}, {each}"))
        held = f"{format_bytes(self.held_bytes)} for blocks, at least "
        held += f"{format_bytes(self.least_bytes)} beside them"
        lines.append(("memory", held))
        if self.needed is not None:
            lines.append(("advice", f"a budget of {self.needed} bytes handles each chunk once"))
        elif not self.is_single_pass:
            lines.append(("advice", "blocks of whole chunks handle each chunk once"))
        return "\n".join(f"{name:<8} {text}" for name, text in lines)

    def _bars(self) -> Sequence[Bars]:
        chunks = [("chunks read", self.chunks), ("decoded", self.decodes)]
        chunks += [("chunks written", self.written_chunks), ("encoded", self.encodes)]
        chunks += [("shards", self.shards), ("shard writes", self.shard_writes)]
        held = [("blocks", self.held_bytes), ("beside them", self.least_bytes)]
        return (
            Bars("chunks", _drop_zeros(chunks), format_number),
            Bars("memory", [*held, ("budget", self.budget)], format_bytes),
        )


def _drop_zeros(bars: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the bars that are not 0."""
    return [(name, value) for name, value in bars if value]
