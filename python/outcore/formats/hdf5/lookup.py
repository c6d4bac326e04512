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
levels. Any difference from the format raises `Odd`. Then the caller asks the library, which
distinguishes damage from formats unknown to outcore. So an error is raised here only for chunks that
cannot be at their addresses, and in a valid dataset the results equal those of the library.

Reference: HDF5 File Format Specification 3.0, III.A (trees), IV.A.2.i (layout message), VII.C and
VII.D (fixed and extensible arrays).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import BudgetError
from outcore.formats.hdf5.index import Read

_UNDEFINED = (1 << 64) - 1
_LARGEST = 1 << 62
# Bytes of addresses and lengths, except in files of programs that set fewer.
_WIDTH = 8
_CHUNKED = 2
# Bytes of the longest structure that is read in one piece.
_LONGEST = 1 << 22
# Bytes of a reservation of memory for nodes.
_PORTION = 1 << 16
# Depth of the deepest tree; a larger number is damage.
_DEEPEST = 32
# Default number of entries in a node of version 1; a larger node takes a second read.
_USUAL = 64


class Odd(Exception):
    """The index is invalid, or of a kind that is not read here."""


class Node(NamedTuple):
    """A node of a tree, or a page of an array."""

    #: Places of its keys in the grid; empty for a page.
    keys: NDArray[np.int64]
    #: For each key, the number in C order of the first cell of the grid that is not before it.
    bounds: NDArray[np.int64]
    #: For each key with a chunk, whether it is that cell.
    inside: NDArray[np.bool_]
    #: Offset (-1: not stored), stored bytes and filter mask of the chunks.
    rows: NDArray[np.int64]
    #: Addresses of the nodes below.
    below: NDArray[np.int64]
    #: Numbers of records in these nodes, in a tree of version 2.
    records: NDArray[np.int64]

    def nbytes(self) -> int:
        """Return the bytes of memory that the node needs."""
        return 1024 + sum(part.nbytes for part in self)


_NONE = np.empty(0, np.int64)


class Index:
    """
    The index of the chunks of a dataset.

    `address` is where it begins, relative to `base`, the end of a user block. `grid` and `most` are
    the current and the maximal (0: unlimited) number of chunks along each axis. `check` raises an
    error for invalid rows; it is called with the rows of each node that is read.
    """

    def __init__(
        self,
        address: int,
        base: int,
        grid: tuple[int, ...],
        most: tuple[int, ...],
        chunks: tuple[int, ...],
        chunk_bytes: int,
        encoded: bool,
        check: Callable[[NDArray[np.int64]], None],
    ) -> None:
        self.base = base
        self.grid = grid
        self.most = most
        self.chunks = chunks
        self.chunk_bytes = chunk_bytes
        self.encoded = encoded
        self.check = check
        self.address = address
        #: Level of the root, once it is known (trees of version 1).
        self.level: int | None = None
        self._nodes: dict[int, Node] = {}
        self._parts: dict[int, bytes] = {}
        self._nbytes = 0
        self._held: list[_core.Reservation] = []

    def find(self, read: Read, lo: tuple[int, ...], count: tuple[int, ...]) -> NDArray[np.int64]:
        """Return offset (-1: not stored), stored bytes and filter mask of a box of cells, in C order."""
        answer = np.full((math.prod(count), 3), (-1, 0, 0), np.int64)
        if len(answer) and self.address != _UNDEFINED:
            self._find(read, lo, count, answer)
        return answer

    def _find(
        self,
        read: Read,
        lo: tuple[int, ...],
        count: tuple[int, ...],
        answer: NDArray[np.int64],
    ) -> None:
        raise NotImplementedError

    def _kept(self, address: int, make: Callable[[], Node]) -> Node:
        found = self._nodes.get(address)
        if found is None:
            found = make()
            rows = found.rows[found.inside[: len(found.rows)]]
            self.check(rows[rows[:, 0] >= 0])
            if self._fits(found.nbytes()):
                self._nodes[address] = found
        return found

    def _part(self, address: int, make: Callable[[], bytes]) -> bytes:
        """Return a structure without rows of its own, which leads to nodes."""
        found = self._parts.get(address)
        if found is None:
            found = make()
            if self._fits(len(found) + 128):
                self._parts[address] = found
        return found

    def _fits(self, nbytes: int) -> bool:
        """Return whether there is memory for more nodes; if not, release all nodes."""
        self._nbytes += nbytes
        short = self._nbytes - sum(held.nbytes for held in self._held)
        if short > 0:
            try:
                self._held.append(_core.Reservation("chunk table", max(short, _PORTION), False))
            except BudgetError:
                self._nodes.clear()
                self._parts.clear()
                self._held.clear()
                self._nbytes = 0
                return False
        return True

    def _header(self, read: Read, length: int, signature: bytes) -> bytes:
        make = functools.partial(self._checked, read, self.address, length, signature)
        return self._part(self.address, make)

    def _read(self, read: Read, address: int, length: int, *, short: bool = False) -> bytes:
        """Read `length` bytes; at the end of the file maybe fewer, if `short`."""
        if not 0 < address < _LARGEST:
            raise Odd("an address past the end of any file")
        data = read(self.base + address, length)
        if len(data) < (8 if short else length):
            raise Odd("a structure past the end of the file")
        return data

    def _checked(self, read: Read, address: int, length: int, signature: bytes) -> bytes:
        """Read a structure that ends with its checksum."""
        if length > _LONGEST:
            raise Odd("a structure that is too long")
        data = self._read(read, address, length)
        version = data[4] if signature else 0
        sound = int.from_bytes(data[-4:], "little") == _core.lookup3(data[:-4])
        if not sound or not data.startswith(signature) or version:
            raise Odd(f"no valid structure {signature!r}")
        return data

    def _rows(self, raw: NDArray[Any]) -> NDArray[np.int64]:
        """Return rows of entries: an address, and for encoded chunks the stored bytes and the mask."""
        rows = np.empty((len(raw), 3), np.int64)
        address = raw["address"]
        there = address != _UNDEFINED
        if (address[there] >= _LARGEST).any():
            raise Odd("an address past the end of any file")
        rows[:, 0] = np.where(there, address, 0).astype(np.int64) + self.base
        if self.encoded:
            stored = np.where(there, _wide(raw["size"]), 0)
            if (stored >= _LARGEST).any():
                raise Odd("a chunk of too many bytes")
            rows[:, 1], rows[:, 2] = stored.astype(np.int64), raw["mask"]
        else:
            rows[:, 1], rows[:, 2] = self.chunk_bytes, 0
        rows[~there] = (-1, 0, 0)
        return rows

    def _entry(self, length: int, *more: tuple[str, str, tuple[int, ...]]) -> np.dtype[Any]:
        """Return the dtype of an entry of `length` bytes; `more` is what follows the chunk in it."""
        behind = sum(np.dtype(kind).itemsize * math.prod(shape) for _, kind, shape in more)
        if not self.encoded:
            if length != _WIDTH + behind:
                raise Odd("entries of another length")
            return np.dtype([("address", "<u8"), *more])
        size = length - _WIDTH - 4 - behind
        if not 1 <= size <= 8:
            raise Odd("entries of another length")
        return np.dtype([("address", "<u8"), ("size", f"V{size}"), ("mask", "<u4"), *more])

    def _places(self, cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return for each place the number of the first cell not before it, and if they are equal."""
        bounds = np.zeros(len(cells), np.int64)
        inside = np.ones(len(cells), bool)
        for axis, length in enumerate(self.grid):
            bounds *= length
            bounds += np.where(inside, np.minimum(cells[:, axis], length), 0)
            inside &= cells[:, axis] < length
        return bounds, inside


def linear(lo: tuple[int, ...], count: tuple[int, ...], grid: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the numbers in C order of the cells of a box of a grid."""
    keys = np.zeros(1, np.int64)
    for a, n, length in zip(lo, count, grid, strict=True):
        keys = np.add.outer(keys * length, np.arange(a, a + n, dtype=np.int64)).ravel()
    return keys


def _ascend(cells: NDArray[np.int64]) -> bool:
    """Return whether each place comes after the previous one, in C order."""
    steps = cells[1:] - cells[:-1]
    first = (steps != 0).argmax(axis=1)
    return bool((steps[np.arange(len(steps)), first] > 0).all())


class _Tree1(Index):
    """A tree of version 1, the library's default. Nodes have no checksum."""

    def _find(
        self,
        read: Read,
        lo: tuple[int, ...],
        count: tuple[int, ...],
        answer: NDArray[np.int64],
    ) -> None:
        wanted = linear(lo, count, self.grid)
        level = self._read(read, self.address, 6)[5] if self.level is None else self.level
        if level > _DEEPEST:
            raise Odd("a tree that is too deep")
        self.level = level
        # A node, its level, and the keys that bound its own.
        pending: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]
        pending = [(self.address, level, (), (_LARGEST,))]
        while pending:
            address, level, low, high = pending.pop()
            node = self._kept(address, functools.partial(self._node, read, address, level))
            if bool(len(node.below)) != bool(level):
                raise Odd("a node on two levels")
            if tuple(node.keys[0].tolist()) < low or tuple(node.keys[-1].tolist()) > high:
                raise Odd("keys outside those of the node above")
            at = np.searchsorted(wanted, node.bounds)
            if not level:
                here = np.flatnonzero(node.inside & (at[:-1] < at[1:]))
                here = here[wanted[at[here]] == node.bounds[here]]
                answer[at[here]] = node.rows[here]
            for k in np.flatnonzero(at[:-1] < at[1:]).tolist() if level else ():
                low, high = (tuple(key) for key in node.keys[k : k + 2].tolist())
                pending.append((int(node.below[k]), level - 1, low, high))

    def _node(self, read: Read, address: int, level: int) -> Node:
        rank = len(self.grid)
        chunk: list[Any] = [("size", "<u4"), ("mask", "<u4"), ("at", "<u8", (rank + 1,))]
        key, entry = np.dtype(chunk), np.dtype([*chunk, ("below", "<u8")])
        head = 8 + 2 * _WIDTH
        usual = head + _USUAL * entry.itemsize + key.itemsize
        data = self._read(read, address, usual, short=True)
        count = int.from_bytes(data[6:8], "little")
        if data[:6] != b"TREE\x01" + bytes([level]) or not count:
            raise Odd("an invalid node of a tree")
        length = head + count * entry.itemsize + key.itemsize
        if len(data) < length:
            data = self._read(read, address, length)
        raw = np.frombuffer(data, entry, count, head)
        last = np.frombuffer(data, key, 1, head + count * entry.itemsize)
        elements = np.concatenate([raw["at"], last["at"]])
        if (elements >= _LARGEST).any() or (raw["below"] >= _LARGEST).any():
            raise Odd("a place or an address past the end of any file")
        cells, rest = np.divmod(elements[:, :rank].astype(np.int64), np.array(self.chunks))
        if rest.any() or not _ascend(cells):
            raise Odd("keys that are not places of chunks, or not in order")
        bounds, inside = self._places(cells)
        below = raw["below"].astype(np.int64)
        if level:
            return Node(cells, bounds, inside[:0], _NONE.reshape(0, 3), below, _NONE)
        rows = np.stack([below + self.base, raw["size"], raw["mask"]], axis=1, dtype=np.int64)
        return Node(cells[[0, -1]], bounds, inside[:-1], rows, below[:0], _NONE)


class _Tree2(Index):
    """A tree of version 2, where several axes have no limit."""

    def _find(
        self,
        read: Read,
        lo: tuple[int, ...],
        count: tuple[int, ...],
        answer: NDArray[np.int64],
    ) -> None:
        head = self._header(read, 30 + _WIDTH, b"BTHD")
        length, depth, number = (int.from_bytes(head[k : k + 2], "little") for k in (10, 12, 24))
        size, root = int.from_bytes(head[6:10], "little"), int.from_bytes(head[16:24], "little")
        known = head[5] == (11 if self.encoded else 10) and 0 < length <= size - 10
        if not known or depth > _DEEPEST or size > _LONGEST:
            raise Odd("a tree of another kind")
        if root == _UNDEFINED:
            return
        record = self._entry(length, ("at", "<u8", (len(self.grid),)))
        pointers = _pointers(size, length, depth)
        wanted = linear(lo, count, self.grid)
        # A node, its records, its level, the cells below it, and the keys that bound its own.
        Step = tuple[int, int, int, int, int, tuple[int, ...], tuple[int, ...]]
        pending: list[Step] = [(root, number, depth, 0, len(wanted), (-1,), (_LARGEST,))]
        while pending:
            address, number, level, low, high, first, last = pending.pop()
            pointer = pointers[level - 1] if level else None
            make = functools.partial(self._node, read, address, number, record, pointer)
            node = self._kept(address, make)
            if len(node.rows) != number or bool(len(node.below)) != bool(level):
                raise Odd("a node in two places")
            keys = [first, *map(tuple, node.keys.tolist()), last]
            if keys[1] <= first or keys[-2] >= last:
                raise Odd("records outside those of the node above")
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
                cells = int(starts[k]), int(ends[k])
                place = int(node.below[k]), int(node.records[k]), level - 1
                pending.append((*place, *cells, keys[k], keys[k + 1]))

    def _node(
        self,
        read: Read,
        address: int,
        number: int,
        record: np.dtype[Any],
        pointer: np.dtype[Any] | None,
    ) -> Node:
        behind = 6 + number * record.itemsize
        length = behind + ((number + 1) * pointer.itemsize if pointer else 0)
        if not number or length > _LONGEST:
            raise Odd("a node with no records, or too many")
        data = self._checked(read, address, length + 4, b"BTIN" if pointer else b"BTLF")
        raw = np.frombuffer(data, record, number, 6)
        if (raw["at"] >= _LARGEST).any():
            raise Odd("a place outside any grid")
        cells = raw["at"].astype(np.int64)
        if not _ascend(cells):
            raise Odd("records that are not in order")
        below = records = _NONE
        if pointer is not None:
            further = np.frombuffer(data, pointer, number + 1, behind)
            if (further["below"] >= _LARGEST).any():
                raise Odd("an address past the end of any file")
            below = further["below"].astype(np.int64)
            records = _wide(further["records"]).astype(np.int64)
        return Node(cells, *self._places(cells), self._rows(raw), below, records)


def _pointers(size: int, length: int, depth: int) -> list[np.dtype[Any]]:
    """Return dtypes of pointers to nodes below, in nodes one level above the lowest, two levels, ..."""
    most = total = (size - 10) // length
    for_records, for_total = _bytes_for(most), 0
    kinds = []
    for _ in range(depth):
        kind = [("below", "<u8"), ("records", f"V{for_records}")]
        kinds.append(np.dtype(kind + ([("all", f"V{for_total}")] if for_total else [])))
        most = (size - 10 - kinds[-1].itemsize) // (length + kinds[-1].itemsize)
        if most < 1 or total >= _LARGEST:
            raise Odd("nodes that are too small")
        total = (most + 1) * total + most
        for_total = _bytes_for(total)
    return kinds


def _bytes_for(number: int) -> int:
    return (max(number, 1).bit_length() - 1) // 8 + 1


class _Array(Index):
    """An array of entries, in the order of the grid with the maximal number of chunks."""

    def _find(
        self,
        read: Read,
        lo: tuple[int, ...],
        count: tuple[int, ...],
        answer: NDArray[np.int64],
    ) -> None:
        axes, most = self._order()
        place = np.zeros((1,) * len(axes), np.int64)
        step = 1
        for axis, length in zip(reversed(axes), reversed(most), strict=True):
            along = np.arange(lo[axis], lo[axis] + count[axis], dtype=np.int64) * step
            shape = [1] * len(axes)
            shape[axis] = count[axis]
            place = place + along.reshape(shape)
            step *= length
            if step >= _LARGEST:
                raise Odd("more chunks than can be counted")
        numbers = place.ravel()
        order = None
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
        k = 0
        while k < len(numbers):
            start, end, page = self._page(read, int(numbers[k]))
            behind = int(np.searchsorted(numbers, end))
            if page is not None:
                here = slice(k, behind) if order is None else order[k:behind]
                answer[here] = page.rows[numbers[k:behind] - start]
            k = behind

    def _order(self) -> tuple[list[int], list[int]]:
        """Return axes, the slowest first, and their lengths: the one without a limit comes first."""
        axes = sorted(range(len(self.most)), key=lambda axis: self.most[axis] > 0)
        return axes, [self.most[axis] or 1 for axis in axes]

    def every(self, read: Read) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield places in the grid, and rows, of all chunks that are stored, a page at a time."""
        axes, most = self._order()
        number, behind = 0, self._behind(read)
        while number < behind:
            start, number, page = self._page(read, number)
            if page is None:
                continue
            here = np.flatnonzero(page.rows[:, 0] >= 0)
            cells = np.empty((len(here), len(axes)), np.int64)
            rest = here + start
            for axis, length in zip(axes[:0:-1], most[:0:-1], strict=True):
                rest, cells[:, axis] = np.divmod(rest, length)
            cells[:, axes[0]] = rest
            yield cells, page.rows[here]

    def _behind(self, read: Read) -> int:
        """Return the number after the last entry that was ever set."""
        raise NotImplementedError

    def _page(self, read: Read, number: int) -> tuple[int, int, Node | None]:
        """Return first and end of the entries that are stored with one, and their page or None."""
        raise NotImplementedError

    def _owned(self, read: Read, address: int, length: int, signature: bytes) -> bytes:
        """Read a structure that names the header of the array."""
        data = self._checked(read, address, length, signature)
        if data[5] != self.encoded or _address(data, 6) != self.address:
            raise Odd("a part of another array")
        return data

    def _block(
        self, read: Read, what: bytes, address: int, front: int, count: int, size: int
    ) -> Node:
        """Read a block of `count` entries."""
        data = self._owned(read, address, front + count * size + 4, what)
        return self._as_page(np.frombuffer(data, self._entry(size), count, front))

    def _entries(self, read: Read, address: int, count: int, size: int) -> Node:
        """Read a page of `count` entries."""
        data = self._checked(read, address, count * size + 4, b"")
        return self._as_page(np.frombuffer(data, self._entry(size), count))

    def _as_page(self, raw: NDArray[Any]) -> Node:
        return Node(_NONE, _NONE, np.ones(len(raw), bool), self._rows(raw), _NONE, _NONE)

    #: Bytes before the entries of a data block.
    front = 6 + _WIDTH


class _Fixed(_Array):
    """A fixed array: every axis has a limit."""

    def _behind(self, read: Read) -> int:
        return _address(self._header(read, 12 + 2 * _WIDTH, b"FAHD"), 8)

    def _page(self, read: Read, number: int) -> tuple[int, int, Node | None]:
        head = self._header(read, 12 + 2 * _WIDTH, b"FAHD")
        kind, size, bits = head[5:8]
        length, block = (int.from_bytes(head[k : k + 8], "little") for k in (8, 16))
        if kind != self.encoded or number >= length or bits > 30:
            raise Odd("an array of another kind")
        if block == _UNDEFINED:
            return 0, length, None
        usual = 1 << bits
        if length <= usual:
            place = block, self.front, length, size
            make = functools.partial(self._block, read, b"FADB", *place)
            return 0, length, self._kept(block, make)
        pages = -(-length // usual)
        front = self.front + -(-pages // 8) + 4
        there = self._part(block, functools.partial(self._owned, read, block, front, b"FADB"))
        page = number // usual
        start, end = page * usual, min((page + 1) * usual, length)
        if not _bit(there, self.front, page):
            return start, end, None
        at = block + front + page * (usual * size + 4)
        make = functools.partial(self._entries, read, at, end - start, size)
        return start, end, self._kept(at, make)


class Extensible(_Array):
    """An extensible array: one axis is without a limit."""

    def _behind(self, read: Read) -> int:
        if self.address == _UNDEFINED:
            return 0
        return _address(self._header(read, 16 + 7 * _WIDTH, b"EAHD"), 44)

    def _page(self, read: Read, number: int) -> tuple[int, int, Node | None]:
        head = self._header(read, 16 + 7 * _WIDTH, b"EAHD")
        kind, size, bits, first, least, pointers, page_bits = head[5:12]
        claimed, block = (int.from_bytes(head[k : k + 8], "little") for k in (44, 60))
        known = kind == self.encoded and first and _power(least) and _power(pointers)
        if not known or not least.bit_length() <= bits <= 62 or page_bits > 30 or pointers < 2:
            raise Odd("an array of another kind")
        if number >= claimed or block == _UNDEFINED:
            return number, _LARGEST, None
        supers = bits - least.bit_length() + 2
        direct = 2 * (pointers.bit_length() - 1)  # super blocks whose blocks the index block names
        if direct > supers:
            raise Odd("an array of another kind")
        blocks = 2 * (pointers - 1)
        length = self.front + first * size + (blocks + supers - direct) * _WIDTH + 4
        index = self._part(block, functools.partial(self._owned, read, block, length, b"EAIB"))
        if number < first:
            raw = np.frombuffer(index, self._entry(size), first, self.front)
            return 0, first, self._kept(block, functools.partial(self._as_page, raw))
        super_ = ((number - first) // least + 1).bit_length() - 1
        if super_ >= supers:
            raise Odd("a number past the last entry")
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
            address = _address(index, at + (before + which) * _WIDTH)
            bitmap, bits_at = b"", 0
        else:
            upper = _address(index, at + (blocks + super_ - direct) * _WIDTH)
            if upper == _UNDEFINED:
                return begin, begin + (each << (super_ // 2)), None
            many = 1 << (super_ // 2)
            bits_at = self.front + offset
            flags = many * -(-(each // usual) // 8) if paged else 0
            length = bits_at + flags + many * _WIDTH + 4
            make = functools.partial(self._owned, read, upper, length, b"EASB")
            bitmap = self._part(upper, make)
            address = _address(bitmap, bits_at + flags + which * _WIDTH)
        if address == _UNDEFINED:
            return start, start + each, None
        front = self.front + offset
        if not paged:
            make_node = functools.partial(self._block, read, b"EADB", address, front, each, size)
            return start, start + each, self._kept(address, make_node)
        if not bitmap:
            raise Odd("pages without a bitmap")
        page = (number - start) // usual
        begin = start + page * usual
        if not _bit(bitmap, bits_at, which * (each // usual) + page):  # consecutive for all blocks
            return begin, begin + usual, None
        self._part(address, functools.partial(self._owned, read, address, front + 4, b"EADB"))
        there = address + front + 4 + page * (usual * size + 4)
        make_node = functools.partial(self._entries, read, there, usual, size)
        return begin, begin + usual, self._kept(there, make_node)


class _Implicit(Index):
    """No index: all chunks are stored one after another."""

    def _find(
        self,
        read: Read,
        lo: tuple[int, ...],
        count: tuple[int, ...],
        answer: NDArray[np.int64],
    ) -> None:
        if self.encoded or not 0 < self.address < _LARGEST or math.prod(self.most) >= 1 << 31:
            raise Odd("chunks without an index")
        answer[:, 0] = linear(lo, count, self.most) * self.chunk_bytes + self.address + self.base
        answer[:, 1], answer[:, 2] = self.chunk_bytes, 0


# Class and bytes of parameters, by the number of the index in a layout message.
_KINDS: dict[int, tuple[type[Index], int]] = {
    2: (_Implicit, 0),
    3: (_Fixed, 1),
    4: (Extensible, 5),
    5: (_Tree2, 6),
}


def index_of(message: bytes, widths: tuple[int, int], rank: int) -> tuple[type[Index], int] | None:
    """Return the class that reads the index in a layout message, and its address; None if unknown."""
    if widths != (_WIDTH, _WIDTH) or len(message) < 11 or message[1] != _CHUNKED:
        return None
    if message[0] == 3 and message[2] == rank + 1:
        return _Tree1, _address(message, 3)
    if message[0] < 4 or message[3] != rank + 1:
        return None
    at = 5 + message[3] * message[4]
    kind = _KINDS.get(message[at]) if at < len(message) else None
    if kind is None or len(message) < at + 1 + kind[1] + _WIDTH:
        return None
    return kind[0], _address(message, at + 1 + kind[1])


def _power(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _bit(data: bytes, at: int, number: int) -> bool:
    return bool(data[at + number // 8] & (0x80 >> number % 8))


def _address(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _WIDTH], "little")


def _wide(raw: NDArray[Any]) -> NDArray[np.uint64]:
    """Convert little-endian numbers of one to eight bytes."""
    wide = np.zeros((len(raw), 8), np.uint8)
    width = raw.dtype.itemsize
    wide[:, :width] = np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), width)
    return wide.view("<u8")[:, 0]
