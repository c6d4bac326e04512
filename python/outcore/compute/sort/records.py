"""
Sub-arrays as records whose order as bytes is NumPy's order.

Problem. `numpy.unique` with an axis compares sub-arrays element by element, of any number of
elements; the kernels that sort words support a few widths.
Idea. Each element becomes a word as in the sort of elements (`crates/compute/src/order.rs`), stored
with its highest byte first. The words of a sub-array, one after the other, are its key: a string of
bytes of fixed length, which NumPy can sort and merge. After the key comes the index of the
sub-array, so that the first one of equal ones comes first.

A key has one word for both zeros and one for all NaNs, otherwise (-0.0, 1) would come before (0.0,
0). The lost information follows after the index: a bit for the sign of each zero or NaN, and a byte
that marks a NaN (or NaT), since such a sub-array differs from all others.

Rejected, on paper: the sub-array itself after the key, which moves twice as much to keep the bits
of NaNs; a record with a field for each element, which NumPy compares field by field.

Invariants. Records that are equal as bytes up to the index are equal for NumPy, except for NaNs.
Conversion uses pieces of bounded size, however long a sub-array is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LONGEST",
    "PIECE",
    "SCRATCH",
    "Records",
    "cut_records",
    "has_words",
    "merge_records",
    "sort_records",
]

#: Bytes of a record that NumPy can sort.
LONGEST = 2**31 - 1
#: Elements that are converted together, a multiple of 8, and the bytes for that in addition to blocks.
PIECE = 2048
SCRATCH = PIECE * 64
# Item sizes, in bytes, of elements whose order is that of words.
_INTEGERS = (1, 2, 4, 8)
_SIZES = {
    "b": (1,),
    "i": _INTEGERS,
    "u": _INTEGERS,
    "f": (2, 4, 8),
    "c": (8, 16),
    "m": (8,),
    "M": (8,),
}


def has_words(dtype: np.dtype[Any]) -> bool:
    """Return whether elements of a dtype, which is not text, can be ordered as words."""
    return dtype.itemsize in _SIZES.get(dtype.kind, ())


class Records:
    """
    Storage of sub-arrays of `elements` elements of a native dtype.

    `length` is the number of sub-arrays; None: records have no indices. With `nans`, records have
    the mark of NaN for any dtype.
    """

    def __init__(
        self, dtype: np.dtype[Any], elements: int, length: int | None, *, nans: bool = False
    ) -> None:
        self.dtype, self.elements = dtype, elements
        self.places = length is not None
        # Unsigned integers stand for parts of an element; `each` is the number of its parts.
        kind, size, each = dtype.kind, dtype.itemsize, 1
        if kind == "c":
            size, each = size // 2, 2
        elif kind == "S":
            size, each = 1, size
        elif kind == "U":
            size, each = 4, size // 4
        self.word, self.parts = np.dtype(f"u{size}"), elements * each
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

    def view_records(self, block: NDArray[Any]) -> NDArray[Any]:
        """Return a block of bytes as records, with one axis."""
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

    def cut_pieces(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """Yield ranges of sub-arrays, and of their parts, that cover `rows` sub-arrays."""
        many = max(PIECE // max(self.parts, 1), 1)
        for row in range(0, rows, many):
            for part in range(0, self.parts, PIECE):
                end = min(part + PIECE, self.parts)
                yield slice(row, min(row + many, rows)), slice(part, end)

    def encode(self, block: NDArray[Any], first: int, out: NDArray[Any]) -> None:
        """Convert sub-arrays along the first axis to records; `first` is the index of the first one."""
        records = self.view_records(out)
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
        words = self.view_words(block, rows)
        for row, part in self.cut_pieces(rows):
            found, nan, odd = self.make_keys(words[row, part])
            records["words"][row, part] = found
            if nan.size:
                records["nan"][row] |= nan.any(axis=1)
            if self.signs:
                bits = np.packbits(odd, axis=1)
                records["signs"][row, part.start // 8 : part.start // 8 + bits.shape[1]] = bits

    def view_words(self, block: NDArray[Any], rows: int) -> NDArray[Any]:
        """Return the bits of the elements as words."""
        return block.reshape(-1).view(self.word).reshape(rows, self.parts)

    def make_keys(self, bits: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return words in the order of the elements; which are NaN; which signs the words lack."""
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
            # Numbers without NaN first; then those with a real part; then those with an imaginary part.
            real, imag = found[:, 0::2], found[:, 1::2]
            first, second = nan[:, 0::2] & ~nan[:, 1::2], nan[:, 1::2] & ~nan[:, 0::2]
            np.copyto(imag, real, where=second)
            last = self._nan
            real[second], real[first] = last - self.word.type(2), last - self.word.type(1)
        return found, nan, negative & (nan | zero)

    def decode(self, block: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Convert some records back to sub-arrays."""
        if not self.parts or not len(rows):
            return
        records = self.view_records(block)
        to = self.view_words(out, len(rows))
        for row, part in self.cut_pieces(len(rows)):
            found = records["words"][rows[row], part].astype(self.word)
            if self.signs:
                first = part.start // 8
                bits = records["signs"][rows[row], first : -(-part.stop // 8)]
                odd = np.unpackbits(bits, axis=1, count=part.stop - part.start)
                to[row, part] = self.decode_numbers(found, odd)
            elif self.dtype.kind == "i":
                to[row, part] = found ^ self._sign
            elif self.dtype.kind in "mM":
                to[row, part] = (found + self.word.type(1)) ^ self._sign
            else:
                to[row, part] = found

    def decode_numbers(self, found: NDArray[Any], odd: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the bits of floats from their words, and the signs of zeros and NaNs."""
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

    def read_places(self, block: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of records."""
        found: NDArray[np.int64] = self.view_records(block)["place"].astype(np.int64)
        return found

    def find_different(
        self, block: NDArray[Any], before: NDArray[Any], *, nans: bool = True
    ) -> NDArray[np.bool_]:
        """Return which records differ from those before: another key, or, with `nans`, a NaN."""
        here = self.view_records(block)
        new = np.asarray(here["key"] != self.view_records(before)["key"])
        if self.nans and nans:
            new |= here["nan"] != 0
        return new

    @property
    def _sign(self) -> Any:
        """Word with only its highest bit set."""
        return self.word.type(1 << (8 * self.word.itemsize - 1))

    @property
    def _nan(self) -> Any:
        """Word of NaN: the last one, except that NumPy puts sub-arrays of float16 with NaN first."""
        return self.word.type(0 if self.word.itemsize == 2 else 2 ** (8 * self.word.itemsize) - 1)


def sort_records(records: NDArray[Any], nbytes: int) -> None:
    """Sort a contiguous block of records as strings of bytes, in place."""
    records.reshape(-1).view(f"S{nbytes}").sort()


def merge_records(
    loaded: NDArray[Any],
    parts: Sequence[tuple[int, int]],
    skipped: int,
    out: NDArray[Any],
    nbytes: int,
) -> None:
    """
    Merge sorted runs, which are stored one after the other, until `out` is full.

    NumPy's stable sort finds the runs and merges them; it allocates memory for half of them. The
    contents of `loaded` are changed.
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
    """Count, for each of the ascending `ranks`, the elements of each run among the first `rank`."""
    order = np.argsort(samples.view(f"S{nbytes}"), kind="stable")
    of_run = np.repeat(np.arange(len(lens)), lens)[order]
    reached, counts = 0, np.zeros(len(lens), np.int64)
    for row, rank in zip(out, ranks, strict=True):
        end = min(rank, len(of_run))
        counts += np.bincount(of_run[reached:end], minlength=len(lens))
        row[...] = counts
        reached = end
