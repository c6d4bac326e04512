"""
Tables 10 and 11 of the PASSION report: sections of 64 local arrays of 2048 x 32, element by element,
sieved, and as outcore chooses.

One process does one local array after the other; the report had a processor for each. Files have their
order: the first axis of the report is the one that lies in a row.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

import outcore
from harness import Row, evict, interleave, warm
from outcore.model.machines import tables

# The methods of the report, and what is not in it.
WAYS = {"direct": "straight", "sieve": "window", "outcore": "auto"}
Key = tuple[slice, ...]


def _files(folder: Path, count: int, shape: tuple[int, ...]) -> list[Path]:
    home = folder / "local-arrays"
    home.mkdir(exist_ok=True)
    found = []
    for number in range(count):
        path = home / f"{number:02}.npy"
        if not path.exists():
            data = np.arange(np.prod(shape), dtype="f4").reshape(shape)
            np.save(path, data + number)
        found.append(path)
    return found


def _opened(path: Path, way: str, slab: int) -> outcore.DiskArray:
    hints = outcore.Hints(method=WAYS[way], memory=slab, exclusive=True)
    return outcore.open(path, "r+", hints=hints)


def _sections(table: int) -> dict[tuple[str, str], Key]:
    """The sections of a table with their operations, along the axes of the files."""
    return {
        (cell.section, cell.operation): tables.sections(cell.section, 1)[0][::-1]
        for cell in tables.passion(table)
    }


def sieving(folder: Path, cache: str, repeat: int, files: int) -> dict[tuple[str, str], Row]:
    """Seconds for all files, reading and writing, for each section and each way."""
    cell = tables.passion(10)[0]
    shape, slab = cell.shape[::-1], tables.SIEVED_COLUMNS * cell.shape[0] * cell.itemsize
    paths = _files(folder, files, shape)
    return {
        place: _row(paths, key, place, slab, cache, repeat) for place, key in _sections(10).items()
    }


def _row(
    paths: list[Path], key: Key, place: tuple[str, str], slab: int, cache: str, repeat: int
) -> Row:
    section, operation = place
    wanted = [np.load(path)[key] for path in paths]
    with contextlib.ExitStack() as stack:
        arrays: dict[str, list[outcore.DiskArray]] = {
            way: [stack.enter_context(_opened(path, way, slab)) for path in paths] for way in WAYS
        }
        found = [np.empty_like(one) for one in wanted]

        def one(way: str) -> None:
            for array, out, value in zip(arrays[way], found, wanted, strict=True):
                if operation == "read":
                    array.read(key, out=out)
                else:
                    array.write(key, value)

        def before(_way: str) -> None:
            for out in found:
                out.fill(-1)
            if cache == "cold":
                evict(paths)
            else:
                warm(paths)

        def check(_way: str) -> bool:
            there = found if operation == "read" else [np.load(path)[key] for path in paths]
            return all(map(np.array_equal, there, wanted))

        return interleave(
            Row(f"{section} {operation}, {cache}", sum(one.nbytes for one in wanted)),
            {way: (lambda way=way: one(way)) for way in WAYS},
            repeat=repeat,
            before=before,
            check=check,
        )


def counts(folder: Path) -> dict[tuple[str, str], dict[str, int]]:
    """Requests, and elements that are read, of one local array: what `explain` says."""
    cell = tables.passion(11)[0]
    shape, slab = cell.shape[::-1], tables.SIEVED_COLUMNS * cell.shape[0] * cell.itemsize
    (path,) = _files(folder, 1, shape)
    evict([path])  # of what is not cached, or a mapping needs no request
    found: dict[tuple[str, str], dict[str, int]] = {}
    for (section, operation), key in _sections(11).items():
        ways: dict[str, Any] = {}
        for way in WAYS:
            with _opened(path, way, slab) as array:
                report = array.explain(key)
            moved = report.read_bytes + report.mapped_bytes
            ways[way] = report.reads if operation == "requests" else moved // cell.itemsize
        found[section, operation] = ways
    return found
