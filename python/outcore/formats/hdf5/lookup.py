"""
Find some chunks of an HDF5 dataset without reading the rest of its index.

Problem: the library returns the whole index of a dataset, at about a microsecond per chunk, or walks
through all of it for each single chunk. An access that needs ten chunks of a million should not wait
for the others.
Approach: the indices are trees and arrays, and each node has all that a search needs. Only nodes on
the way to the requested chunks are read with `pread`: in a tree the nodes whose range has a cell of
the box, in an array its pages. They remain in memory until the file changes, if there is enough
memory.
Invariants: everything that the library checks is checked: signatures, checksums, order of keys,
levels. Any difference from the format raises `UnreadableIndexError`. Then the caller asks the library,
which distinguishes damage from formats unknown to outcore. So an error is raised here only for
chunks that cannot be at their addresses, and in a valid dataset the results equal those of the library.

Reference: HDF5 File Format Specification 3.0, III.A (trees), IV.A.2.i (layout message), VII.C and
VII.D (fixed and extensible arrays).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import BudgetError
from outcore.formats.hdf5.index import Read

#: Numbers along the axes of a grid; rows of offset, stored bytes and filter mask, or single columns.
Cell = tuple[int, ...]
Rows = NDArray[np.int64]

_UNDEFINED = (1 << 64) - 1
_MAX_ADDRESS = 1 << 62
# Bytes of addresses and lengths, except in files of programs that set fewer.
_WIDTH = 8
_CHUNKED = 2
# Bytes of the longest structure that is read in one piece.
_MAX_STRUCTURE_BYTES = 1 << 22
# Bytes of a reservation of memory for nodes.
_RESERVATION_BYTES = 1 << 16
# Depth of the deepest tree; a larger number is damage.
_MAX_DEPTH = 32
# Default number of entries in a node of version 1; a larger node takes a second read.
_DEFAULT_ENTRIES = 64


class UnreadableIndexError(Exception):
    """The index is invalid, or of a kind that is not read here."""


class IndexNode(NamedTuple):
    """A node of a tree, or a page of an array."""

    #: Places of its keys in the grid; empty for a page.
    keys: Rows
    #: For each key, the number in C order of the first cell of the grid that is not before it.
    bounds: Rows
    #: For each key with a chunk, whether it is that cell.
    inside: NDArray[np.bool_]
    #: Offset (-1: not stored), stored bytes and filter mask of the chunks.
    rows: Rows
    #: Addresses of the nodes below.
    below: Rows
    #: Numbers of records in these nodes, in a tree of version 2.
    records: Rows

    def nbytes(self) -> int:
        """Return the bytes of memory that the node needs."""
        return 1024 + sum(part.nbytes for part in self)


#: First and end of the entries that are stored together, and the page with them.
Page = tuple[int, int, IndexNode | None]

_NONE = np.empty(0, np.int64)


@dataclass(eq=False)
class ChunkIndex:
    """
    The index of the chunks of a dataset.

    `address` is where it begins, relative to `base`, the end of a user block. `grid` and `most` are
    the current and the maximal (0: unlimited) number of chunks along each axis. `check` raises an
    error for invalid rows; it is called with the rows of each node that is read.
    """

    address: int
    base: int
    grid: Cell
    most: Cell
    chunks: Cell
    chunk_bytes: int
    encoded: bool
    check: Callable[[Rows], None]
    #: Level of the root, once it is known (trees of version 1).
    level: int | None = None

    def __post_init__(self) -> None:
        self._nodes: dict[int, IndexNode] = {}
        self._parts: dict[int, bytes] = {}
        self._nbytes = 0
        self._reservations: list[_core.Reservation] = []

    def find(self, read: Read, lo: Cell, count: Cell) -> Rows:
        """Return offset (-1: not stored), stored bytes and filter mask of a box of cells, in C order."""
        answer = np.full((math.prod(count), 3), (-1, 0, 0), np.int64)
        if len(answer) and self.address != _UNDEFINED:
            self._find(read, lo, count, answer)
        return answer

    def _find(self, read: Read, lo: Cell, count: Cell, answer: Rows) -> None:
        raise NotImplementedError

    def _get_node(self, address: int, make: Callable[..., IndexNode], *args: Any) -> IndexNode:
        found = self._nodes.get(address)
        if found is None:
            found = make(*args)
            rows = found.rows[found.inside[: len(found.rows)]]
            self.check(rows[rows[:, 0] >= 0])
            if self._can_keep(found.nbytes()):
                self._nodes[address] = found
        return found

    def _get_part(self, address: int, make: Callable[..., bytes], *args: Any) -> bytes:
        """Return a structure without rows of its own, which leads to nodes."""
        found = self._parts.get(address)
        if found is None:
            found = make(*args)
            if self._can_keep(len(found) + 128):
                self._parts[address] = found
        return found

    def _can_keep(self, nbytes: int) -> bool:
        """Return whether there is memory for more nodes; if not, release all nodes."""
        self._nbytes += nbytes
        short = self._nbytes - sum(held.nbytes for held in self._reservations)
        if short > 0:
            try:
                self._reservations.append(
                    _core.Reservation("chunk table", max(short, _RESERVATION_BYTES), False)
                )
            except BudgetError:
                self._nodes.clear()
                self._parts.clear()
                self._reservations.clear()
                self._nbytes = 0
                return False
        return True

    def _read_header(self, read: Read, length: int, signature: bytes) -> bytes:
        return self._get_part(
            self.address, self._read_checked, read, self.address, length, signature
        )

    def _read(self, read: Read, address: int, length: int, *, short: bool = False) -> bytes:
        """Read `length` bytes; at the end of the file maybe fewer, if `short`."""
        if not 0 < address < _MAX_ADDRESS:
            raise UnreadableIndexError("an address past the end of any file")
        data = read(self.base + address, length)
        if len(data) < (8 if short else length):
            raise UnreadableIndexError("a structure past the end of the file")
        return data

    def _read_checked(self, read: Read, address: int, length: int, signature: bytes) -> bytes:
        """Read a structure that ends with its checksum."""
        if length > _MAX_STRUCTURE_BYTES:
            raise UnreadableIndexError("a structure that is too long")
        data = self._read(read, address, length)
        version = data[4] if signature else 0
        sound = int.from_bytes(data[-4:], "little") == _core.lookup3(data[:-4])
        if not sound or not data.startswith(signature) or version:
            raise UnreadableIndexError(f"no valid structure {signature!r}")
        return data

    def _make_rows(self, raw: NDArray[Any]) -> Rows:
        """Return rows of entries: an address, and for encoded chunks the stored bytes and the mask."""
        rows = np.empty((len(raw), 3), np.int64)
        address = raw["address"]
        there = address != _UNDEFINED
        if (address[there] >= _MAX_ADDRESS).any():
            raise UnreadableIndexError("an address past the end of any file")
        rows[:, 0] = np.where(there, address, 0).astype(np.int64) + self.base
        if self.encoded:
            stored = np.where(there, _widen(raw["size"]), 0)
            if (stored >= _MAX_ADDRESS).any():
                raise UnreadableIndexError("a chunk of too many bytes")
            rows[:, 1], rows[:, 2] = stored.astype(np.int64), raw["mask"]
        else:
            rows[:, 1], rows[:, 2] = self.chunk_bytes, 0
        rows[~there] = (-1, 0, 0)
        return rows

    def _make_entry_dtype(self, length: int, *more: tuple[str, str, Cell]) -> np.dtype[Any]:
        """Return the dtype of an entry of `length` bytes; `more` is what follows the chunk in it."""
        behind = sum(np.dtype(kind).itemsize * math.prod(shape) for _, kind, shape in more)
        if not self.encoded:
            if length != _WIDTH + behind:
                raise UnreadableIndexError("entries of another length")
            return np.dtype([("address", "<u8"), *more])
        size = length - _WIDTH - 4 - behind
        if not 1 <= size <= 8:
            raise UnreadableIndexError("entries of another length")
        return np.dtype([("address", "<u8"), ("size", f"V{size}"), ("mask", "<u4"), *more])

    def _locate_cells(self, cells: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """Return for each place the number of the first cell not before it, and if they are equal."""
        bounds = np.zeros(len(cells), np.int64)
        inside = np.ones(len(cells), bool)
        for axis, length in enumerate(self.grid):
            bounds *= length
            bounds += np.where(inside, np.minimum(cells[:, axis], length), 0)
            inside &= cells[:, axis] < length
        return bounds, inside


def number_cells(lo: Cell, count: Cell, grid: Cell) -> Rows:
    """Return the numbers in C order of the cells of a box of a grid."""
    keys = np.zeros(1, np.int64)
    for a, n, length in zip(lo, count, grid, strict=True):
        keys = np.add.outer(keys * length, np.arange(a, a + n, dtype=np.int64)).ravel()
    return keys


def _is_ascending(cells: Rows) -> bool:
    """Return whether each place comes after the previous one, in C order."""
    steps = cells[1:] - cells[:-1]
    first = (steps != 0).argmax(axis=1)
    return bool((steps[np.arange(len(steps)), first] > 0).all())


class _TreeIndex1(ChunkIndex):
    """A tree of version 1, the library's default. Nodes have no checksum."""

    def _find(self, read: Read, lo: Cell, count: Cell, answer: Rows) -> None:
        wanted = number_cells(lo, count, self.grid)
        level = self._read(read, self.address, 6)[5] if self.level is None else self.level
        if level > _MAX_DEPTH:
            raise UnreadableIndexError("a tree that is too deep")
        self.level = level
        # A node, its level, and the keys that bound its own.
        pending: list[tuple[int, int, Cell, Cell]] = [(self.address, level, (), (_MAX_ADDRESS,))]
        while pending:
            address, level, low, high = pending.pop()
            node = self._get_node(address, self._read_node, read, address, level)
            if bool(len(node.below)) != bool(level):
                raise UnreadableIndexError("a node on two levels")
            if tuple(node.keys[0].tolist()) < low or tuple(node.keys[-1].tolist()) > high:
                raise UnreadableIndexError("keys outside those of the node above")
            at = np.searchsorted(wanted, node.bounds)
            if not level:
                here = np.flatnonzero(node.inside & (at[:-1] < at[1:]))
                here = here[wanted[at[here]] == node.bounds[here]]
                answer[at[here]] = node.rows[here]
            for k in np.flatnonzero(at[:-1] < at[1:]).tolist() if level else ():
                low, high = (tuple(key) for key in node.keys[k : k + 2].tolist())
                pending.append((int(node.below[k]), level - 1, low, high))

    def _read_node(self, read: Read, address: int, level: int) -> IndexNode:
        rank = len(self.grid)
        chunk: list[Any] = [("size", "<u4"), ("mask", "<u4"), ("at", "<u8", (rank + 1,))]
        key, entry = np.dtype(chunk), np.dtype([*chunk, ("below", "<u8")])
        head = 8 + 2 * _WIDTH
        usual = head + _DEFAULT_ENTRIES * entry.itemsize + key.itemsize
        data = self._read(read, address, usual, short=True)
        count = int.from_bytes(data[6:8], "little")
        if data[:6] != b"TREE\x01" + bytes([level]) or not count:
            raise UnreadableIndexError("an invalid node of a tree")
        length = head + count * entry.itemsize + key.itemsize
        if len(data) < length:
            data = self._read(read, address, length)
        raw = np.frombuffer(data, entry, count, head)
        last = np.frombuffer(data, key, 1, head + count * entry.itemsize)
        elements = np.concatenate([raw["at"], last["at"]])
        if (elements >= _MAX_ADDRESS).any() or (raw["below"] >= _MAX_ADDRESS).any():
            raise UnreadableIndexError("a place or an address past the end of any file")
        cells, rest = np.divmod(elements[:, :rank].astype(np.int64), np.array(self.chunks))
        if rest.any() or not _is_ascending(cells):
            raise UnreadableIndexError("keys that are not places of chunks, or not in order")
        bounds, inside = self._locate_cells(cells)
        below = raw["below"].astype(np.int64)
        if level:
            return IndexNode(cells, bounds, inside[:0], _NONE.reshape(0, 3), below, _NONE)
        rows = np.stack([below + self.base, raw["size"], raw["mask"]], axis=1, dtype=np.int64)
        return IndexNode(cells[[0, -1]], bounds, inside[:-1], rows, below[:0], _NONE)


class _TreeIndex2(ChunkIndex):
    """A tree of version 2, where several axes have no limit."""

    def _find(self, read: Read, lo: Cell, count: Cell, answer: Rows) -> None:
        head = self._read_header(read, 30 + _WIDTH, b"BTHD")
        length, depth, number = (int.from_bytes(head[k : k + 2], "little") for k in (10, 12, 24))
        size, root = int.from_bytes(head[6:10], "little"), int.from_bytes(head[16:24], "little")
        known = head[5] == (11 if self.encoded else 10) and 0 < length <= size - 10
        if not known or depth > _MAX_DEPTH or size > _MAX_STRUCTURE_BYTES:
            raise UnreadableIndexError("a tree of another kind")
        if root == _UNDEFINED:
            return
        record = self._make_entry_dtype(length, ("at", "<u8", (len(self.grid),)))
        pointers = _make_pointer_dtypes(size, length, depth)
        wanted = number_cells(lo, count, self.grid)
        # A node, its records, its level, the cells below it, and the keys that bound its own.
        Step = tuple[int, int, int, int, int, Cell, Cell]
        pending: list[Step] = [(root, number, depth, 0, len(wanted), (-1,), (_MAX_ADDRESS,))]
        while pending:
            address, number, level, low, high, first, last = pending.pop()
            pointer = pointers[level - 1] if level else None
            place = read, address, number, record, pointer
            node = self._get_node(address, self._read_node, *place)
            if len(node.rows) != number or bool(len(node.below)) != bool(level):
                raise UnreadableIndexError("a node in two places")
            keys = [first, *map(tuple, node.keys.tolist()), last]
            if keys[1] <= first or keys[-2] >= last:
                raise UnreadableIndexError("records outside those of the node above")
            at = np.searchsorted(wanted, node.bounds)
            here = np.flatnonzero(node.inside & (at < len(wanted)))
            here = here[wanted[at[here]] == node.bounds[here]]
            answer[at[here]] = node.rows[here]
            if not level:
                continue
            behind = at.copy()
            behind[here] += 1
            starts = np.maximum(np.concatenate([[low], behind]), low)
            ends = np.minimum(np.concatenate([at, [high]]), high)
            for k in np.flatnonzero(starts < ends).tolist():
                numbers = (
                    int(node.below[k]),
                    int(node.records[k]),
                    level - 1,
                    int(starts[k]),
                    int(ends[k]),
                )
                pending.append((*numbers, keys[k], keys[k + 1]))

    def _read_node(
        self,
        read: Read,
        address: int,
        number: int,
        record: np.dtype[Any],
        pointer: np.dtype[Any] | None,
    ) -> IndexNode:
        behind = 6 + number * record.itemsize
        length = behind + ((number + 1) * pointer.itemsize if pointer else 0)
        if not number or length > _MAX_STRUCTURE_BYTES:
            raise UnreadableIndexError("a node with no records, or too many")
        data = self._read_checked(read, address, length + 4, b"BTIN" if pointer else b"BTLF")
        raw = np.frombuffer(data, record, number, 6)
        if (raw["at"] >= _MAX_ADDRESS).any():
            raise UnreadableIndexError("a place outside any grid")
        cells = raw["at"].astype(np.int64)
        if not _is_ascending(cells):
            raise UnreadableIndexError("records that are not in order")
        below = records = _NONE
        if pointer is not None:
            further = np.frombuffer(data, pointer, number + 1, behind)
            if (further["below"] >= _MAX_ADDRESS).any():
                raise UnreadableIndexError("an address past the end of any file")
            below = further["below"].astype(np.int64)
            records = _widen(further["records"]).astype(np.int64)
        return IndexNode(cells, *self._locate_cells(cells), self._make_rows(raw), below, records)


def _make_pointer_dtypes(size: int, length: int, depth: int) -> list[np.dtype[Any]]:
    """Return dtypes of pointers to nodes below, in nodes one level above the lowest, two levels, ..."""
    most = total = (size - 10) // length
    for_records, for_total = _count_bytes(most), 0
    kinds = []
    for _ in range(depth):
        kind = [("below", "<u8"), ("records", f"V{for_records}")]
        kinds.append(np.dtype(kind + ([("all", f"V{for_total}")] if for_total else [])))
        most = (size - 10 - kinds[-1].itemsize) // (length + kinds[-1].itemsize)
        if most < 1 or total >= _MAX_ADDRESS:
            raise UnreadableIndexError("nodes that are too small")
        total = (most + 1) * total + most
        for_total = _count_bytes(total)
    return kinds


def _count_bytes(number: int) -> int:
    return (max(number, 1).bit_length() - 1) // 8 + 1


class _ArrayIndex(ChunkIndex):
    """An array of entries, in the order of the grid with the maximal number of chunks."""

    def _find(self, read: Read, lo: Cell, count: Cell, answer: Rows) -> None:
        axes, most = self._order_axes()
        place = np.zeros((1,) * len(axes), np.int64)
        step = 1
        for axis, length in zip(reversed(axes), reversed(most), strict=True):
            along = np.arange(lo[axis], lo[axis] + count[axis], dtype=np.int64) * step
            shape = [1] * len(axes)
            shape[axis] = count[axis]
            place = place + along.reshape(shape)
            step *= length
            if step >= _MAX_ADDRESS:
                raise UnreadableIndexError("more chunks than can be counted")
        numbers = place.ravel()
        order = None
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
        k = 0
        while k < len(numbers):
            start, end, page = self._read_page(read, int(numbers[k]))
            behind = int(np.searchsorted(numbers, end))
            if page is not None:
                here = slice(k, behind) if order is None else order[k:behind]
                answer[here] = page.rows[numbers[k:behind] - start]
            k = behind

    def _order_axes(self) -> tuple[list[int], list[int]]:
        """Return axes, the slowest first, and their lengths: the one without a limit comes first."""
        axes = sorted(range(len(self.most)), key=lambda axis: self.most[axis] > 0)
        return axes, [self.most[axis] or 1 for axis in axes]

    def iterate(self, read: Read) -> Iterator[tuple[Rows, Rows]]:
        """Yield places in the grid, and rows, of all chunks that are stored, a page at a time."""
        axes, most = self._order_axes()
        number, behind = 0, self._count_entries(read)
        while number < behind:
            start, number, page = self._read_page(read, number)
            if page is None:
                continue
            here = np.flatnonzero(page.rows[:, 0] >= 0)
            cells = np.empty((len(here), len(axes)), np.int64)
            rest = here + start
            for axis, length in zip(axes[:0:-1], most[:0:-1], strict=True):
                rest, cells[:, axis] = np.divmod(rest, length)
            cells[:, axes[0]] = rest
            yield cells, page.rows[here]

    def _count_entries(self, read: Read) -> int:
        """Return the number after the last entry that was ever set."""
        raise NotImplementedError

    def _read_page(self, read: Read, number: int) -> Page:
        """Return first and end of the entries that are stored with one, and their page or None."""
        raise NotImplementedError

    def _get_owned(self, read: Read, address: int, length: int, signature: bytes) -> bytes:
        return self._get_part(address, self._read_owned, read, address, length, signature)

    def _read_owned(self, read: Read, address: int, length: int, signature: bytes) -> bytes:
        """Read a structure that names the header of the array."""
        data = self._read_checked(read, address, length, signature)
        if data[5] != self.encoded or _read_address(data, 6) != self.address:
            raise UnreadableIndexError("a part of another array")
        return data

    def _read_block(
        self, read: Read, what: bytes, address: int, front: int, count: int, size: int
    ) -> IndexNode:
        """Read a block of `count` entries."""
        data = self._read_owned(read, address, front + count * size + 4, what)
        return self._make_page(np.frombuffer(data, self._make_entry_dtype(size), count, front))

    def _read_entries(self, read: Read, address: int, count: int, size: int) -> IndexNode:
        """Read a page of `count` entries."""
        data = self._read_checked(read, address, count * size + 4, b"")
        return self._make_page(np.frombuffer(data, self._make_entry_dtype(size), count))

    def _make_page(self, raw: NDArray[Any]) -> IndexNode:
        return IndexNode(_NONE, _NONE, np.ones(len(raw), bool), self._make_rows(raw), _NONE, _NONE)

    #: Bytes before the entries of a data block.
    front = 6 + _WIDTH


class _FixedArray(_ArrayIndex):
    """A fixed array: every axis has a limit."""

    def _count_entries(self, read: Read) -> int:
        return _read_address(self._read_header(read, 12 + 2 * _WIDTH, b"FAHD"), 8)

    def _read_page(self, read: Read, number: int) -> Page:
        head = self._read_header(read, 12 + 2 * _WIDTH, b"FAHD")
        kind, size, bits = head[5:8]
        length, block = (int.from_bytes(head[k : k + 8], "little") for k in (8, 16))
        if kind != self.encoded or number >= length or bits > 30:
            raise UnreadableIndexError("an array of another kind")
        if block == _UNDEFINED:
            return 0, length, None
        usual = 1 << bits
        if length <= usual:
            place = read, b"FADB", block, self.front, length, size
            return 0, length, self._get_node(block, self._read_block, *place)
        pages = -(-length // usual)
        front = self.front + -(-pages // 8) + 4
        there = self._get_owned(read, block, front, b"FADB")
        page = number // usual
        start, end = page * usual, min((page + 1) * usual, length)
        if not _test_bit(there, self.front, page):
            return start, end, None
        at = block + front + page * (usual * size + 4)
        return start, end, self._get_node(at, self._read_entries, read, at, end - start, size)


class ExtensibleArray(_ArrayIndex):
    """An extensible array: one axis is without a limit."""

    def _count_entries(self, read: Read) -> int:
        if self.address == _UNDEFINED:
            return 0
        return _read_address(self._read_header(read, 16 + 7 * _WIDTH, b"EAHD"), 44)

    def _read_page(self, read: Read, number: int) -> Page:
        head = self._read_header(read, 16 + 7 * _WIDTH, b"EAHD")
        kind, size, bits, first, least, pointers, page_bits = head[5:12]
        claimed, block = (int.from_bytes(head[k : k + 8], "little") for k in (44, 60))
        known = kind == self.encoded and first and all(map(_is_power_of_two, (least, pointers)))
        if not known or not least.bit_length() <= bits <= 62 or page_bits > 30 or pointers < 2:
            raise UnreadableIndexError("an array of another kind")
        if number >= claimed or block == _UNDEFINED:
            return number, _MAX_ADDRESS, None
        supers = bits - least.bit_length() + 2
        direct = 2 * (pointers.bit_length() - 1)  # super blocks whose blocks the index block names
        if direct > supers:
            raise UnreadableIndexError("an array of another kind")
        blocks = 2 * (pointers - 1)
        length = self.front + first * size + (blocks + supers - direct) * _WIDTH + 4
        index = self._get_owned(read, block, length, b"EAIB")
        if number < first:
            raw = np.frombuffer(index, self._make_entry_dtype(size), first, self.front)
            return 0, first, self._get_node(block, self._make_page, raw)
        super_ = ((number - first) // least + 1).bit_length() - 1
        if super_ >= supers:
            raise UnreadableIndexError("a number past the last entry")
        # Super block k has `2**(k // 2)` blocks of `least * 2**((k + 1) // 2)` entries; all super
        # blocks before it have `least * (2**k - 1)` entries.
        each = least << ((super_ + 1) // 2)
        begin = first + least * ((1 << super_) - 1)
        which = (number - begin) // each
        start = begin + which * each
        at = self.front + first * size
        offset = -(-bits // 8)
        usual = 1 << page_bits
        paged = each > usual
        if super_ < direct:
            before = sum(1 << (k // 2) for k in range(super_))
            address = _read_address(index, at + (before + which) * _WIDTH)
            bitmap, bits_at = b"", 0
        else:
            upper = _read_address(index, at + (blocks + super_ - direct) * _WIDTH)
            if upper == _UNDEFINED:
                return begin, begin + (each << (super_ // 2)), None
            many = 1 << (super_ // 2)
            bits_at = self.front + offset
            flags = many * -(-(each // usual) // 8) if paged else 0
            length = bits_at + flags + many * _WIDTH + 4
            bitmap = self._get_owned(read, upper, length, b"EASB")
            address = _read_address(bitmap, bits_at + flags + which * _WIDTH)
        if address == _UNDEFINED:
            return start, start + each, None
        front = self.front + offset
        if not paged:
            place = read, b"EADB", address, front, each, size
            return start, start + each, self._get_node(address, self._read_block, *place)
        if not bitmap:
            raise UnreadableIndexError("pages without a bitmap")
        page = (number - start) // usual
        begin = start + page * usual
        # The bits of all blocks are consecutive.
        if not _test_bit(bitmap, bits_at, which * (each // usual) + page):
            return begin, begin + usual, None
        self._get_owned(read, address, front + 4, b"EADB")
        there = address + front + 4 + page * (usual * size + 4)
        return (
            begin,
            begin + usual,
            self._get_node(there, self._read_entries, read, there, usual, size),
        )


class _ImplicitIndex(ChunkIndex):
    """No index: all chunks are stored one after another."""

    def _find(self, read: Read, lo: Cell, count: Cell, answer: Rows) -> None:
        if self.encoded or not 0 < self.address < _MAX_ADDRESS or math.prod(self.most) >= 1 << 31:
            raise UnreadableIndexError("chunks without an index")
        numbers = number_cells(lo, count, self.most)
        answer[:, 0] = numbers * self.chunk_bytes + self.address + self.base
        answer[:, 1], answer[:, 2] = self.chunk_bytes, 0


FoundIndex = tuple[type[ChunkIndex], int]

# Class and bytes of parameters, by the number of the index in a layout message.
_KINDS: dict[int, FoundIndex] = {
    2: (_ImplicitIndex, 0),
    3: (_FixedArray, 1),
    4: (ExtensibleArray, 5),
    5: (_TreeIndex2, 6),
}


def find_index(message: bytes, widths: tuple[int, int], rank: int) -> FoundIndex | None:
    """Return the class that reads the index in a layout message, and its address; None if unknown."""
    if widths != (_WIDTH, _WIDTH) or len(message) < 11 or message[1] != _CHUNKED:
        return None
    if message[0] == 3 and message[2] == rank + 1:
        return _TreeIndex1, _read_address(message, 3)
    if message[0] < 4 or message[3] != rank + 1:
        return None
    at = 5 + message[3] * message[4]
    kind = _KINDS.get(message[at]) if at < len(message) else None
    if kind is None or len(message) < at + 1 + kind[1] + _WIDTH:
        return None
    return kind[0], _read_address(message, at + 1 + kind[1])


def _is_power_of_two(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _test_bit(data: bytes, at: int, number: int) -> bool:
    return bool(data[at + number // 8] & (0x80 >> number % 8))


def _read_address(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _WIDTH], "little")


def _widen(raw: NDArray[Any]) -> NDArray[np.uint64]:
    """Convert little-endian numbers of one to eight bytes."""
    wide = np.zeros((len(raw), 8), np.uint8)
    width = raw.dtype.itemsize
    wide[:, :width] = np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), width)
    return wide.view("<u8")[:, 0]
