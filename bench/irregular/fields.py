"""
Many fields at the same indices: what a schedule that was made once saves.

A time step of an unstructured code reads every variable at the same indices. The index list is looked
at, sorted and checked once; each field costs only its own I/O. The peers do the same by hand: NumPy
sorts once and gathers each field in ascending order.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, evict, interleave, touch, warm
from irregular.patterns import field_values, pattern, slabs
from irregular.timed import not_there

FIELDS = 20


def make(folder: Path, n: int) -> list[Path]:
    """The files of the fields, of `n` elements each."""
    found = []
    for number in range(FIELDS):
        path = folder / f"irregular-field-{number:02}-{n}.npy"
        found.append(path)
        if path.exists() and np.load(path, mmap_mode="r").shape == (n,):
            continue
        part = path.with_suffix(".part")
        mapped = np.lib.format.open_memmap(part, mode="w+", dtype=np.float64, shape=(n,))
        for at, slab in slabs(n):
            mapped[at : at + len(slab)] = slab + number / 65536
        mapped.flush()
        del mapped
        part.replace(path)
    return found


class _Fields:
    """All candidates on the open fields."""

    def __init__(self, paths: list[Path], index: np.ndarray, threads: int) -> None:
        import outcore

        self._index = index
        hints = outcore.Hints(threads=threads)
        self._arrays = [outcore.open(path, hints=hints) for path in paths]
        self._mapped = [np.load(path, mmap_mode="r") for path in paths]
        self.out = np.empty((len(paths), len(index)))

    def schedule(self) -> None:
        """A schedule made and used for every field."""
        schedule = self._arrays[0].schedule(self._index)
        for array, out in zip(self._arrays, self.out, strict=True):
            schedule.gather(out, of=array)

    def each(self) -> None:
        """The index list given anew for every field."""
        for array, out in zip(self._arrays, self.out, strict=True):
            out[...] = array[self._index]

    def memmap(self) -> None:
        """NumPy, as it comes."""
        for mapped, out in zip(self._mapped, self.out, strict=True):
            out[...] = np.asarray(mapped)[self._index]

    def memmap_sorted(self) -> None:
        """NumPy, in ascending order, sorted once."""
        order = np.argsort(self._index)
        ascending = self._index[order]
        for mapped, out in zip(self._mapped, self.out, strict=True):
            out[order] = np.asarray(mapped)[ascending]

    def close(self) -> None:
        """Give up files and mappings."""
        for array in self._arrays:
            array.close()
        self._mapped.clear()


def row(folder: Path, n: int, points: int, cache: str, options: Any) -> Row:
    """Gather `points` random elements of each field of `n`."""
    paths = make(folder, n)
    index = pattern("random", n, points).index
    found = Row(f"{FIELDS} fields, one index list: gather random", 8 * FIELDS * len(index))
    found.extra.update(cache=cache, over={}, missing=[])
    opened: list[_Fields] = []
    names = {
        "outcore schedule": _Fields.schedule,
        "outcore each": _Fields.each,
        **({"memmap": _Fields.memmap} if cache == "warm" and options.others else {}),
        **({"memmap sorted": _Fields.memmap_sorted} if options.others else {}),
    }

    def before(_name: str) -> None:
        if cache == "cold" or not opened:
            while opened:
                opened.pop().close()
            if cache == "cold":
                evict(paths)
            opened.append(_Fields(paths, index, max(options.threads)))
        opened[0].out.fill(-1)

    found.extra["order"] = list(names)
    warm(paths)
    for name, call in list(names.items()):
        before(name)
        try:
            call(opened[0])
        except BaseException as error:
            if not not_there(error):
                raise
            found.extra["missing"].append(name)
            del names[name]
    interleave(
        found,
        {name: (lambda call=call: call(opened[0])) for name, call in names.items()},
        repeat=options.repeat,
        before=before,
        check=lambda _name: all(
            np.array_equal(out, field_values(number, index))
            for number, out in enumerate(opened[0].out)
        ),
    )
    while opened:
        opened.pop().close()
    return found


def made(stored: Any, points: int, options: Any) -> Row:
    """How long it takes to make a schedule, beside NumPy's sort of the same indices."""
    import outcore

    index = pattern("random", stored.n, points).index
    found = Row(f"schedule of {len(index) / 1e6:g} M random indices made", index.nbytes)
    found.extra.update(cache="warm", over={}, missing=[], points=len(index))
    with outcore.open(stored.path, hints=outcore.Hints(threads=max(options.threads))) as array:
        calls: dict[str, Any] = {
            "outcore schedule": lambda: array.schedule(index),
            "argsort": lambda: np.argsort(index),
        }
        for _ in range(options.repeat):
            for name, call in calls.items():
                if name in found.extra["missing"]:
                    continue
                touch(2 * index.nbytes)
                start = time.perf_counter()
                try:
                    call()
                except BaseException as error:
                    if not not_there(error):
                        raise
                    found.extra["missing"].append(name)
                    continue
                found.seconds.setdefault(name, []).append(time.perf_counter() - start)
    return found
