"""
Arrays of text, or bytes, of variable length: their description by a format.

Problem: such elements have no bytes of their own in an array: HDF5 stores references to them, Zarr
writes them one after another, each with its length. The core cannot address elements in either layout.
Approach: a format describes what the core can read, references or encoded chunks, and provides a
function that makes elements of it.
Invariants: memory for elements is counted, by their lengths, before they are created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import BudgetError, FormatError, UnsupportedError, budget_error
from outcore.formats.layout import ArrayInfo
from outcore.formats.spec import Entry

__all__ = [
    "Texts",
    "choose_text_dtype",
    "decode_text",
    "make_entry",
    "raise_read_only",
    "reserve_text",
    "too_large_error",
]

#: Bytes of an element in addition to its text: in a NumPy array of strings, and as an object.
EACH, OBJECT = 16, 72


@dataclass(frozen=True, slots=True)
class Texts(ArrayInfo):
    """
    An array of text or bytes.

    `encoding` is ``"utf-8"`` or ``"ascii"``; None: elements are bytes. `missing` is the value of an
    element that was never written; `stated`: the file specifies it (Zarr: a fill value that is text).
    `elements` and `lengths` are for references (HDF5) along one axis: they return the bytes of each,
    and the total length. `chunk` is for chunks (Zarr): it returns all elements of the chunk at some
    coordinates, None if it is missing.
    """

    encoding: str | None = field(default="utf-8", compare=False)
    missing: bytes = field(default=b"", compare=False)
    stated: bool = field(default=False, compare=False)
    elements: Callable[[NDArray[Any]], Iterator[bytes]] | None = field(
        default=None, compare=False, repr=False
    )
    lengths: Callable[[NDArray[Any]], int] | None = field(default=None, compare=False, repr=False)
    chunk: Callable[[ArrayInfo, tuple[int, ...]], list[bytes] | None] | None = field(
        default=None, compare=False, repr=False
    )

    @classmethod
    def of(cls, info: ArrayInfo, **more: Any) -> Texts:
        """Return a description of text: that of its stored elements, with further fields."""
        return cls(**({one.name: getattr(info, one.name) for one in fields(ArrayInfo)} | more))

    @property
    def has_references(self) -> bool:
        """Whether elements are references to text, and not text in chunks."""
        return self.elements is not None


def choose_text_dtype(encoding: str | None) -> np.dtype[Any]:
    """Return the dtype that users see: NumPy's strings of variable length, or objects (bytes)."""
    return np.dtype(object) if encoding is None else np.dtypes.StringDType()


def make_entry(path: str, info: ArrayInfo) -> Entry:
    """Return the line of a list for an array, with the dtype that users see."""
    dtype = choose_text_dtype(info.encoding) if isinstance(info, Texts) else info.dtype
    return Entry(path, "array", info.shape, dtype)


def decode_text(info: Texts, raw: bytes) -> str:
    """Return the text of an element."""
    try:
        return raw.decode("utf-8")  # includes ASCII
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{info.path!r}: the element {raw[:40]!r} is not valid UTF-8 ({error.reason}); use "
            "read_bytes(), which does not decode elements",
            code="bad-text",
            path=info.path,
        ) from None


def reserve_text(path: str, nbytes: int, elements: int, total: int) -> _core.Reservation:
    """Reserve memory for elements of a section of `total`; the error states a sufficient budget."""
    try:
        return _core.Reservation("text", nbytes)
    except BudgetError as error:
        raise too_large_error(path, nbytes, elements, total, error) from None


def too_large_error(
    path: str, nbytes: int, done: int, total: int, error: BudgetError
) -> BudgetError:
    """Return the error for a section of `total` elements; `done` of them take `nbytes` bytes or more."""
    needed = max(error.needed or 0, nbytes * -(-total // max(done, 1)))
    return budget_error(
        f"reading {total} elements of text of {path!r}",
        needed,
        "the memory budget has less left",
        needed,
        reason="an estimate",
        instead="read a smaller section or iterate with blocks()",
        code="array-too-large",
        path=path,
    )


def raise_read_only(path: str) -> NoReturn:
    """Raise: an array of text cannot be opened for writing."""
    raise UnsupportedError(
        f"{path!r} holds text of variable length, which outcore cannot write; open it with mode 'r', "
        "and write it with h5py, netCDF4 or zarr",
        code="cannot-change",
        path=path,
    )
