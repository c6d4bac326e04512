"""
The manifest of an array in parts, and the names of its parts.

Problem: a manifest may come from elsewhere, and names files that are read, written and removed.
Approach: all of it is checked before any of it is used; the position of each row follows from it by
arithmetic.
Invariants: a part is accepted only if its name has the id of the manifest and the part's number, and it
is where parts of this array were created (`homes`), or in a folder that the user gives. A manifest that
was read is valid: its stripes and parts do not exceed the limits.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outcore.errors import UsageError
from outcore.formats import durable
from outcore.formats.documents import Document, dtype_from_descr
from outcore.formats.manifests import ManifestKind
from outcore.formats.spec import check_dtype, check_shape, make_descr

KIND = ManifestKind(
    "outcore parts",
    1,
    "outcore",
    "the array",
    indent=None,
    encoding_errors="surrogateescape",
)
#: Limits: each stripe needs memory in the layout, and more stripes would be single elements.
MOST_STRIPES = 1 << 16
MOST_PARTS = 1 << 12
_ID = re.compile(r"[0-9a-f]{16}")
_LONGEST = 255
# Suffix of unfinished arrays (`jobs.target.PARTIAL`), which names of parts omit.
_PARTIAL = ".outcore-partial"


def make_part_name(folder: str, manifest: str, array_id: str, number: int) -> str:
    """Return the file of a part."""
    stem = os.path.splitext(os.path.basename(manifest))[0].removesuffix(_PARTIAL)
    ending = f"-{array_id}-{number}.npy"
    return os.path.join(folder, durable.shorten_name(stem, _LONGEST - len(ending)) + ending)


def is_part(path: str, array_id: str, number: int | None = None) -> bool:
    """Return whether a file has the name of a part of that id."""
    which = r"[0-9]+" if number is None else str(number)
    return re.search(rf"-{array_id}-{which}\.npy$", os.path.basename(path)) is not None


@dataclass(frozen=True, slots=True)
class PartsManifest:
    """The contents of a manifest; `parts` are absolute paths."""

    path: str
    id: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str
    stripe: int
    parts: tuple[str, ...]
    #: Further folders that the user allowed when it was opened.
    folders: tuple[str, ...] = field(default=(), compare=False)

    @property
    def axis(self) -> int:
        """The slowest axis."""
        return 0 if self.order == "C" else len(self.shape) - 1

    @property
    def rows(self) -> int:
        """Number of indices of the slowest axis; 1 for an array without axes."""
        return self.shape[self.axis] if self.shape else 1

    @property
    def stripes(self) -> int:
        """Number of stripes."""
        return -(-self.rows // self.stripe)

    def rows_of(self, part: int) -> int:
        """Return the number of rows in a part."""
        turns, rest = divmod(self.stripes, len(self.parts))
        mine = turns + (part < rest)
        last = self.stripes - 1
        short = self.stripes * self.stripe - self.rows
        return mine * self.stripe - (short if mine and last % len(self.parts) == part else 0)

    def shape_of(self, part: int) -> tuple[int, ...]:
        """Return the shape of the array in a part."""
        if not self.shape:
            return ()
        rows = self.rows_of(part)
        return tuple(rows if d == self.axis else n for d, n in enumerate(self.shape))

    def document(self, *, absolute: bool = False) -> Document:
        """Return the JSON document; parts below its folder have relative paths, unless `absolute`."""
        folder = os.path.dirname(self.path)
        names = [
            name if absolute or not name.startswith(os.path.join(folder, "")) else relative
            for name in self.parts
            for relative in [os.path.relpath(name, folder)]
        ]
        return {
            **KIND.header,
            "id": self.id,
            "shape": list(self.shape),
            "dtype": _make_descr(self.path, self.dtype),
            "order": self.order,
            "stripe": self.stripe,
            "parts": names,
        }


def read_manifest(path: str, folders: Sequence[str] = ()) -> PartsManifest:
    """
    Read a manifest; `folders` are further folders in which its parts may be.

    `FormatError`, `UnsupportedError`: it is invalid; it names files in other folders
    (``names-outside``); it has a later version. `StorageError`: it cannot be read.
    """
    place = os.path.realpath(path)
    document, judge = KIND.read_existing(place, path), KIND.make_judge(path)
    name = judge.text(document.get("id"), "id")
    if not _ID.fullmatch(name):
        raise judge.bad(f"id is {name!r:.100}, not 16 hexadecimal digits")
    shape = judge.lengths(document.get("shape"), "shape", 0)
    order = judge.text(document.get("order"), "order")
    if order not in ("C", "F"):
        raise judge.bad(f"order is {order!r:.100}, not 'C' or 'F'")
    dtype = judge.dtype(document.get("dtype"))
    dtype = check_dtype(dtype, path, stored=True)
    shape = check_shape(shape, dtype.itemsize, path, stored=True)
    folder = os.path.dirname(place)
    parts = []
    for number, one in enumerate(judge.sequence(document.get("parts"), "parts", MOST_PARTS)):
        text = judge.text(one, f"part {number}")
        if "\0" in text or not is_part(text, name, number):
            raise judge.bad(
                f"part {number} is {text!r:.200}, whose name is not that of part {number}"
            )
        parts.append(os.path.normpath(os.path.join(folder, text)))
    if not parts or (not shape and len(parts) > 1):
        raise judge.bad(f"{len(parts)} parts of an array of shape {shape}")
    stripe = judge.integer(document.get("stripe"), "stripe", 1)
    KIND.check_folders(path, parts, name, folder, folders)
    found = PartsManifest(place, name, shape, dtype, order, stripe, tuple(parts), tuple(folders))
    if found.stripes > MOST_STRIPES:
        raise judge.bad(f"{found.stripes} stripes are more than {MOST_STRIPES}")
    return found


def _make_descr(path: str, dtype: np.dtype[Any]) -> Any:
    """Return the JSON form of a dtype; raise if reading it back would give another dtype."""
    descr = json.loads(json.dumps(make_descr(dtype, path)))
    if dtype_from_descr(descr) != dtype:
        raise UsageError(
            f"{path!r}: a manifest cannot represent dtype {dtype!r}; save a view with a plain dtype",
            code="bad-dtype",
            path=path,
        )
    return descr
