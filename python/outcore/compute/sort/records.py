"""
Sub-arrays as records whose order as bytes is NumPy's order.

Problem. `numpy.unique` with an axis compares sub-arrays element by element, of any number of elements;
the kernels that sort words know a few widths.
Idea. Each element becomes a word as in the sort of elements (`crates/compute/src/order.rs`), stored with
its highest byte first. The words of a sub-array, one after the other, are its key: a string of bytes of
fixed length, and NumPy sorts and merges such strings, whatever they stand for. Behind the key comes
the place of the sub-array, so that of equal ones the first comes first.

A key has one word for both zeros and one for all NaNs, else (-0.0, 1) would come before (0.0, 0). What
it does not tell follows behind the place: a bit for the sign of each zero or NaN, and a byte that says
whether there is a NaN (or NaT), since such a sub-array differs from all others.

Left out, on paper: the sub-arrays themselves behind the key, which moves twice as much to keep the bits
of NaNs; a record with a field for each element, which NumPy compares field by field.

Invariants. What is equal as bytes up to the place is equal for NumPy, but for NaNs. Conversion goes by
pieces of bounded size, however long a sub-array is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LONGEST", "PIECE", "SCRATCH", "Records", "cut_records", "merge_records", "sort_records"]

#: Bytes of a record that NumPy can sort.
LONGEST = 2**31 - 1
#: Elements that are converted at once, a multiple of 8, and the bytes that this takes beside the blocks.
PIECE = 2048
SCRATCH = PIECE * 64


class Records:
    """
    How sub-arrays of a dtype are stored.

    Parameters
    ----------
    dtype
        Of their elements, in native byte order.
    elements
        Of a sub-array.
    length
        How many there are; None: records have no places.
    nans
        Records say whether there is a NaN, whatever the dtype.
    """

    def __init__(
        self, dtype: np.dtype[Any], elements: int, length: int | None, *, nans: bool = False
    ) -> None:
        self.dtype, self.elements = dtype, elements
        self.places = length is not None
        kind, size, each = dtype.kind, dtype.itemsize, 1
        if kind == "c":
            size, each = size // 2, 2
        elif kind == "S":
            size, each = 1, size
        elif kind == "U":
            size, each = 4, size // 4
        #: Unsigned integers that stand for a part of an element, and how many parts it has.
        self.word, self.each = np.dtype(f"u{size}"), each
        self.parts = elements * each
        self.key = max(self.parts * size, 1)
        self.signs = -(-self.parts // 8) if kind in "fc" else 0
        self.nans = nans or kind in "fcmM"
        fields: list[tuple[str, Any, int]] = [("key", f"S{self.key}", 0)]
        end = self.key
        if self.parts:
            fields.append(("words", (self.word.newbyteorder(">"), (self.parts,)), 0))
        if length is not None:
            fields.append(("place", ">u4" if length <= 1 << 32 else ">u8", end))
            end += np.dtype(fields[-1][1]).itemsize
        if self.signs:
            fields.append(("signs", ("u1", (self.signs,)), end))
            end += self.signs
        if self.nans:
            fields.append(("nan", "u1", end))
            end += 1
        #: Bytes of a record.
        self.nbytes = end
        self._fields = fields

    @classmethod
    def fits(cls, dtype: np.dtype[Any]) -> bool:
        """Whether elements of a dtype have an order of words."""
        sizes = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
        sizes |= {"m": (8,), "M": (8,)}
        return dtype.kind in "SU" or dtype.itemsize in sizes.get(dtype.kind, ())

    def of(self, block: NDArray[Any]) -> NDArray[Any]:
        """A block of bytes as records, one axis."""
        names, formats, offsets = zip(*self._fields, strict=True)
        record = np.dtype(
            {
                "names": list(names),
                "formats": list(formats),
                "offsets": list(offsets),
                "itemsize": self.nbytes,
            }
        )
        return block.reshape(-1).view(record)

    def pieces(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """Of so many sub-arrays: some of them, and some of their parts."""
        many = max(PIECE // max(self.parts, 1), 1)
        for row in range(0, rows, many):
            for part in range(0, self.parts, PIECE):
                end = min(part + PIECE, self.parts)
                yield slice(row, min(row + many, rows)), slice(part, end)

    def encode(self, block: NDArray[Any], first: int, out: NDArray[Any]) -> None:
        """Sub-arrays, the first axis counts them, of which the first has this place, become records."""
        records = self.of(out)
        rows = len(records)
        if self.places:
            for begin in range(0, rows, PIECE):
                end = min(begin + PIECE, rows)
                records["place"][begin:end] = np.arange(first + begin, first + end)
        if self.nans:
            records["nan"] = 0
        if not self.parts:
            records["key"] = b""
            return
        words = self.flat(block, rows)
        for row, part in self.pieces(rows):
            found, nan, odd = self.keys(words[row, part])
            records["words"][row, part] = found
            if nan.size:
                records["nan"][row] |= nan.any(axis=1)
            if self.signs:
                bits = np.packbits(odd, axis=1)
                records["signs"][row, part.start // 8 : part.start // 8 + bits.shape[1]] = bits

    def flat(self, block: NDArray[Any], rows: int) -> NDArray[Any]:
        """Words as they are in memory: the bits of the elements."""
        return block.reshape(-1).view(self.word).reshape(rows, self.parts)

    def keys(self, bits: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Words in the order of the elements; where a NaN is; where a sign is that words do not tell."""
        kind, none = self.dtype.kind, np.zeros((0, 0), bool)
        if kind in "buSU":
            return bits, none, none
        sign = self._sign
        if kind == "i":
            return bits ^ sign, none, none
        if kind in "mM":
            return (bits ^ sign) - self.word.type(1), bits == sign, none
        numbers = bits.view(f"f{self.word.itemsize}")
        negative, nan, zero = bits >= sign, np.isnan(numbers), numbers == 0
        found = np.where(negative, ~bits, bits | sign)
        found[zero], found[nan] = sign, self._nan
        if kind == "c":
            # Those without a NaN first; then those whose real part is a number; then the imaginary part.
            real, imag = found[:, 0::2], found[:, 1::2]
            first, second = nan[:, 0::2] & ~nan[:, 1::2], nan[:, 1::2] & ~nan[:, 0::2]
            np.copyto(imag, real, where=second)
            last = self._nan
            real[second], real[first] = last - self.word.type(2), last - self.word.type(1)
        return found, nan, negative & (nan | zero)

    def decode(self, block: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """The sub-arrays of some records."""
        if not self.parts or not len(rows):
            return
        records = self.of(block)
        to = self.flat(out, len(rows))
        for row, part in self.pieces(len(rows)):
            found = records["words"][rows[row], part].astype(self.word)
            if self.signs:
                first = part.start // 8
                bits = records["signs"][rows[row], first : -(-part.stop // 8)]
                odd = np.unpackbits(bits, axis=1, count=part.stop - part.start)
                to[row, part] = self.numbers(found, odd)
            elif self.dtype.kind == "i":
                to[row, part] = found ^ self._sign
            elif self.dtype.kind in "mM":
                to[row, part] = (found + self.word.type(1)) ^ self._sign
            else:
                to[row, part] = found

    def numbers(self, found: NDArray[Any], odd: NDArray[np.uint8]) -> NDArray[Any]:
        """Bits of floats from their words, and the signs of zeros and NaNs."""
        last, sign = self._nan, self._sign
        if self.dtype.kind == "c":
            real, imag = found[:, 0::2], found[:, 1::2]
            second = real == last - self.word.type(2)
            first = real == last - self.word.type(1)
            np.copyto(real, imag, where=second)
            imag[second], real[first] = last, last
        nan = found == last
        found = np.where(found < sign, ~found, found ^ sign)
        found[nan] = np.array(np.nan, f"f{self.word.itemsize}").view(self.word)
        shift = self.word.type(8 * self.word.itemsize - 1)
        found |= odd.astype(self.word) << shift
        return found

    def place(self, block: NDArray[Any]) -> NDArray[np.int64]:
        """Where records come from."""
        found: NDArray[np.int64] = self.of(block)["place"].astype(np.int64)
        return found

    def differ(
        self, block: NDArray[Any], before: NDArray[Any], *, nans: bool = True
    ) -> NDArray[np.bool_]:
        """Which records are not equal to those before: other keys, or a NaN if that counts."""
        here = self.of(block)
        new = np.asarray(here["key"] != self.of(before)["key"])
        if self.nans and nans:
            new |= here["nan"] != 0
        return new

    @property
    def _sign(self) -> Any:
        """The word whose highest bit alone is set."""
        return self.word.type(1 << (8 * self.word.itemsize - 1))

    @property
    def _nan(self) -> Any:
        """The word of NaN: the last one, but NumPy compares sub-arrays of float16 with NaN first."""
        return self.word.type(0 if self.word.itemsize == 2 else 2 ** (8 * self.word.itemsize) - 1)


def sort_records(records: NDArray[Any], nbytes: int) -> None:
    """Sorts a contiguous block of records as strings of bytes, in place."""
    records.reshape(-1).view(f"S{nbytes}").sort()


def merge_records(
    loaded: NDArray[Any],
    parts: Sequence[tuple[int, int]],
    skipped: int,
    out: NDArray[Any],
    nbytes: int,
) -> None:
    """
    Merges sorted runs, which lie one behind the other, until `out` is full.

    NumPy's stable sort finds the runs, and merges them; it takes memory for half of them. What is
    loaded is changed.
    """
    found = loaded.view(f"S{nbytes}")[: sum(count for _, count in parts)]
    if len(parts) > 1:
        found.sort(kind="stable")
    to = out.view(f"S{nbytes}")
    to[...] = found[skipped : skipped + len(to)]


def cut_records(
    samples: NDArray[Any],
    lens: Sequence[int],
    ranks: Sequence[int],
    out: NDArray[np.int64],
    nbytes: int,
) -> None:
    """How many of each run are among the first so many of all, for each of `ranks`, which ascend."""
    order = np.argsort(samples.view(f"S{nbytes}"), kind="stable")
    of_run = np.repeat(np.arange(len(lens)), lens)[order]
    reached, counts = 0, np.zeros(len(lens), np.int64)
    for row, rank in zip(out, ranks, strict=True):
        end = min(rank, len(of_run))
        counts += np.bincount(of_run[reached:end], minlength=len(lens))
        row[...] = counts
        reached = end
