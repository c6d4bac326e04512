"""
Many fields at the same indices: what a schedule that was made once saves.

A time step of an unstructured code reads, and writes, every variable at the same indices. The index
list is looked at, sorted and checked once; each field costs only its own I/O. All that is in the time
of a row. The peers do the same by hand: NumPy sorts once, and gathers and scatters each field in
ascending order.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, evict, interleave, touch, warm
from irregular.files import Stored
from irregular.patterns import Pattern, pattern, values

FIELDS = 20


def make(folder: Path, n: int) -> list[Stored]:
    """The files of the fields, of `n` elements each; no two fields have the same."""
    return [
        Stored("npy", folder / f"irregular-field-{k:02}-{n}.npy", n, k / 65536).make()
        for k in range(FIELDS)
    ]


class _Ours:
    """outcore, with a schedule for all fields, or with the index list given anew for each."""

    def __init__(self, fields: list[Stored], wanted: Pattern, mode: Any, threads: int) -> None:
        import outcore

        hints = outcore.Hints(threads=threads)
        self._index = wanted.index
        self._arrays = [outcore.open(field.path, mode, hints=hints) for field in fields]

    def schedule(self, out: np.ndarray) -> None:
        schedule = self._arrays[0].schedule(self._index)
        for array, row in zip(self._arrays, out, strict=True):
            schedule.gather(row, of=array)

    def each(self, out: np.ndarray) -> None:
        for array, row in zip(self._arrays, out, strict=True):
            array.read(self._index, out=row)

    def put_schedule(self, value: np.ndarray) -> None:
        schedule = self._arrays[0].schedule(self._index)
        for array, row in zip(self._arrays, value, strict=True):
            schedule.scatter(row, of=array)

    def put_each(self, value: np.ndarray) -> None:
        for array, row in zip(self._arrays, value, strict=True):
            array[self._index] = row

    def close(self) -> None:
        for array in self._arrays:
            array.close()


class _Mapped:
    """NumPy, as it comes, and in ascending order, sorted once."""

    def __init__(self, fields: list[Stored], wanted: Pattern, mode: Any) -> None:
        self._index = wanted.index
        self._mapped = [np.load(field.path, mmap_mode=mode) for field in fields]

    def plain(self, out: np.ndarray) -> None:
        for mapped, row in zip(self._mapped, out, strict=True):
            np.take(mapped, self._index, out=row, mode="clip")

    def ascending(self, out: np.ndarray) -> None:
        order = np.argsort(self._index)
        index = self._index[order]
        for mapped, row in zip(self._mapped, out, strict=True):
            row[order] = np.asarray(mapped)[index]

    def put_plain(self, value: np.ndarray) -> None:
        for mapped, row in zip(self._mapped, value, strict=True):
            mapped[self._index] = row

    def put_ascending(self, value: np.ndarray) -> None:
        order = np.argsort(self._index, kind="stable")
        index = self._index[order]
        for mapped, row in zip(self._mapped, value, strict=True):
            mapped[index] = row[order]

    def close(self) -> None:
        self._mapped.clear()


_GATHER = {
    "outcore schedule": _Ours.schedule,
    "outcore each": _Ours.each,
    "memmap": _Mapped.plain,
    "memmap sorted": _Mapped.ascending,
}
_SCATTER = {
    "outcore schedule": _Ours.put_schedule,
    "outcore each": _Ours.put_each,
    "memmap": _Mapped.put_plain,
    "memmap sorted": _Mapped.put_ascending,
}


class _Row:
    """A row: its memory, its turn, and the files that a candidate has open."""

    def __init__(self, fields: list[Stored], wanted: Pattern, threads: int) -> None:
        self._fields, self._wanted, self._threads = fields, wanted, threads
        base = values(wanted.index)
        self._right = np.stack([base + field.more for field in fields])
        self.memory = np.empty_like(self._right)
        self._turn = 0
        self._opened: dict[str, Any] = {}

    def before(self, name: str, *, write: bool, cold: bool) -> None:
        """Open what a candidate needs, as the run is to find it."""
        if write or cold:
            self.close()
        paths = [field.path for field in self._fields]
        if cold:
            evict(paths)
        elif write:
            for path in paths:
                with path.open("r+b") as file:
                    os.fsync(file.fileno())
        if write:
            self._turn = self._turn % 15 + 1
            np.add(self._right, self._turn / 16, out=self.memory)
        else:
            self.memory.fill(-1)
        if name not in self._opened:
            words = self._fields, self._wanted, "r+" if write else "r"
            ours = name.startswith("outcore")
            self._opened[name] = _Ours(*words, self._threads) if ours else _Mapped(*words)

    def run(self, name: str, call: Any) -> None:
        call(self._opened[name], self.memory)

    def right(self, *, write: bool) -> bool:
        if not write:
            return np.array_equal(self.memory, self._right)
        self.close()
        return all(field.holds(self._wanted.where, self._turn / 16) for field in self._fields)

    def close(self) -> None:
        while self._opened:
            self._opened.popitem()[1].close()
        gc.collect()


def row(folder: Path, n: int, points: int, op: str, cache: str, options: Any) -> Row:
    """Gather, or scatter to, `points` random elements of each field of `n`."""
    fields, wanted = make(folder, n), pattern("random", n, points)
    write, cold = op == "write", cache == "cold"
    calls: dict[str, Any] = dict(_SCATTER if write else _GATHER)
    if not options.others:
        calls = {name: call for name, call in calls.items() if name.startswith("outcore")}
    if cold:  # a read-ahead for each element: minutes
        calls.pop("memmap", None)
    calls = {name: call for name, call in calls.items() if name not in options.without}
    verb = "scatter" if write else "gather"
    case = f"{FIELDS} fields, one index list: {verb} random, {cache}"
    found = Row(case, 8 * FIELDS * len(wanted.index))
    found.extra.update(cache=cache, order=list(calls))
    of = _Row(fields, wanted, max(options.threads))
    if write:
        for field in fields:
            field.spoiled()
    warm([field.path for field in fields])
    before = lambda name: of.before(name, write=write, cold=cold)  # noqa: E731
    if not cold:  # fault in mappings, caches and code
        for name, call in calls.items():
            before(name)
            of.run(name, call)
    interleave(
        found,
        {name: (lambda name=name, call=call: of.run(name, call)) for name, call in calls.items()},
        repeat=options.repeat,
        before=before,
        check=lambda _name: of.right(write=write),
    )
    of.close()
    if write:
        for field in fields:
            field.restore(wanted.where)
    return found


def used(stored: Stored, kind: str, points: int, options: Any) -> Row:
    """Gather into memory that is there, with a schedule that was made before, beside NumPy's `take`."""
    import outcore

    wanted = pattern(kind, stored.n, points)
    index, right = wanted.index, values(wanted.index)
    out = np.empty(len(index))
    found = Row(f"schedule made before: gather {kind}, warm", 8 * len(index))
    warm([stored.path])
    mapped = np.asarray(np.load(stored.path, mmap_mode="r"))
    with outcore.open(stored.path, hints=outcore.Hints(threads=max(options.threads))) as array:
        schedule = array.schedule(index)
        calls: dict[str, Any] = {
            "outcore schedule": lambda: schedule.gather(out),
            "memmap": lambda: np.take(mapped, index, out=out, mode="clip"),
        }
        found.extra.update(cache="warm", order=list(calls), nbytes=schedule.nbytes)
        for call in calls.values():
            call()
        return interleave(
            found,
            calls,
            repeat=options.repeat,
            before=lambda _name: out.fill(-1),
            check=lambda _name: np.array_equal(out, right),
        )


def made(stored: Stored, points: int, options: Any) -> Row:
    """How long it takes to make a schedule, beside NumPy's sort of the same indices."""
    import outcore

    index = pattern("random", stored.n, points).index
    found = Row(f"schedule of {len(index) / 1e6:g} M random indices made", index.nbytes)
    found.extra.update(cache="warm", points=len(index))
    with outcore.open(stored.path, hints=outcore.Hints(threads=max(options.threads))) as array:
        calls: dict[str, Any] = {
            "outcore schedule": lambda: array.schedule(index),
            "argsort": lambda: np.argsort(index),
        }
        found.extra["order"] = list(calls)
        return interleave(
            found, calls, repeat=options.repeat, before=lambda _name: touch(2 * index.nbytes)
        )
