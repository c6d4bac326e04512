"""
The candidates of one process: outcore, NumPy on a mapping, h5py, zarr-python and tensorstore.

Each gathers into a new array and scatters from a given one, in the order of the index list, its own best
way. h5py takes lists that ascend without repeats, so it is given such a one and the result is spread out
("fancy"); "points" is HDF5's own selection of elements, which takes any order, but is 40 times slower
where the order does not ascend, so it gets a sorted one, and sorting counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from irregular.files import Stored, tensorstore_of
from irregular.patterns import ROW, Pattern
from irregular.timed import Candidate, Opened


def candidates(
    stored: Stored, wanted: Pattern, *, write: bool, cold: bool, threads: list[int], others: bool
) -> list[Candidate]:
    """All that can do this on a file of its format."""
    path, key = stored.path, wanted.key
    found = [Candidate(f"outcore/{t}", _ours(path, key, write, t)) for t in threads]
    if not others:
        return found
    if stored.format.startswith("npy"):
        found += [
            # A page fault for each element, and a read-ahead for each page fault.
            Candidate("memmap", _memmap(path, key, write), apart=cold and _unsorted(wanted)),
        ]
        if _unsorted(wanted):
            found.append(Candidate("memmap sorted", _memmap_sorted(path, wanted, write)))
    elif stored.format.startswith("HDF5"):
        found += [
            Candidate("h5py points", _h5py_points(path, wanted, write)),
            Candidate("h5py fancy", _h5py_fancy(path, wanted, write), apart=True),
        ]
    else:
        found += [
            Candidate("zarr vindex", _zarr(path, key, write, "vindex")),
            Candidate("zarr oindex", _zarr(path, key, write, "oindex")),
            Candidate("tensorstore", _tensorstore(path, wanted, write)),
        ]
    return found


def device(stored: Stored, wanted: Pattern) -> Candidate:
    """The disk alone reading what is needed past the page cache: pages at depth, near ones in one
    request.

    Where pages lie so close that gaps are cheaper to read than to skip, that is a stream over the range.
    """
    from device import PAGE, Floor, measured, touched

    base = _first_byte(stored)

    @functools.cache
    def requests() -> tuple[np.ndarray, np.ndarray]:
        item = 8 * (ROW if wanted.rows else 1)
        begin, end = touched(measured(stored.path.parent), wanted.where, item, base)
        # The last page of a file may be a part of one.
        return begin, np.minimum(end, -(-stored.path.stat().st_size // PAGE) * PAGE)

    def opened() -> Opened:
        floor = Floor(stored.path, *requests())
        return (lambda _: floor.run()), floor.close

    return Candidate("device", opened, checked=False)


def _first_byte(stored: Stored) -> int:
    if stored.format.startswith("npy"):
        return int(np.load(stored.path, mmap_mode="r").offset)
    import h5py

    with h5py.File(stored.path, "r") as file:
        return int(file["d"].id.get_offset())


def _unsorted(wanted: Pattern) -> bool:
    return wanted.kind in ("random", "clustered", "rows of 4 kB")


def _ours(path: Path, key: np.ndarray, write: bool, threads: int) -> Callable[[], Opened]:
    def opened() -> Opened:
        import outcore

        hints = outcore.Hints(threads=threads)
        array = outcore.open(path, "r+" if write else "r", hints=hints)
        if write:
            return (lambda value: array.__setitem__(key, value)), array.close
        return (lambda _: array[key]), array.close

    return opened


def _memmap(path: Path, key: np.ndarray, write: bool) -> Callable[[], Opened]:
    def opened() -> Opened:
        mapped = [np.load(path, mmap_mode="r+" if write else "r")]
        if write:
            return (lambda value: mapped[0].__setitem__(key, value)), mapped.clear
        return (lambda _: np.asarray(mapped[0])[key]), mapped.clear

    return opened


def _memmap_sorted(path: Path, wanted: Pattern, write: bool) -> Callable[[], Opened]:
    """Sorted, done in ascending order, and put back into the order asked for; all of it counts."""
    index = wanted.index

    def opened() -> Opened:
        mapped = [np.load(path, mmap_mode="r+" if write else "r")]

        def gather(_: Any) -> np.ndarray:
            order = np.argsort(index)
            some = np.asarray(mapped[0])[index[order]]
            out = np.empty_like(some)
            out[order] = some
            return out

        def scatter(value: np.ndarray) -> None:
            order = np.argsort(index, kind="stable")  # the last of equal ones stays last
            mapped[0][index[order]] = value[order]

        return (scatter if write else gather), mapped.clear

    return opened


def _h5py_fancy(path: Path, wanted: Pattern, write: bool) -> Callable[[], Opened]:
    def opened() -> Opened:
        import h5py

        file = h5py.File(path, "r+" if write else "r")
        dataset = file["d"]

        def gather(_: Any) -> np.ndarray:
            if wanted.key.dtype == bool:
                return dataset[wanted.key]
            once, places = np.unique(wanted.key, return_inverse=True)
            return dataset[once][places]

        def scatter(value: np.ndarray) -> None:
            if wanted.key.dtype == bool:
                dataset[wanted.key] = value
                return
            backwards = wanted.key[::-1]
            once, last = np.unique(backwards, return_index=True)
            dataset[once] = value[::-1][last]

        return (scatter if write else gather), file.close

    return opened


def _h5py_points(path: Path, wanted: Pattern, write: bool) -> Callable[[], Opened]:
    def opened() -> Opened:
        import h5py

        file = h5py.File(path, "r+" if write else "r")
        dataset = file["d"].id

        def spaces(index: np.ndarray) -> tuple[Any, Any]:
            space = dataset.get_space()
            space.select_elements(index[:, None])
            return h5py.h5s.create_simple((len(index),)), space

        def ascending() -> tuple[np.ndarray, np.ndarray | None]:
            if wanted.key.dtype == bool:
                return np.flatnonzero(wanted.key), None
            if wanted.kind == "sorted":
                return wanted.key, None
            order = np.argsort(wanted.key, kind="stable")
            return wanted.key[order], order

        def gather(_: Any) -> np.ndarray:
            index, order = ascending()
            memory, space = spaces(index)
            some = np.empty(len(index))
            dataset.read(memory, space, some)
            if order is None:
                return some
            out = np.empty_like(some)
            out[order] = some
            return out

        def scatter(value: np.ndarray) -> None:
            index, order = ascending()
            memory, space = spaces(index)
            dataset.write(memory, space, value if order is None else value[order])
            file.flush()

        return (scatter if write else gather), file.close

    return opened


def _zarr(path: Path, key: np.ndarray, write: bool, way: str) -> Callable[[], Opened]:
    def opened() -> Opened:
        import zarr

        array = zarr.open_array(path, mode="r+" if write else "r")
        selected = getattr(array, way)
        if write:
            return (lambda value: selected.__setitem__(key, value)), lambda: None
        return (lambda _: np.asarray(selected[key])), lambda: None

    return opened


def _tensorstore(path: Path, wanted: Pattern, write: bool) -> Callable[[], Opened]:
    def opened() -> Opened:
        store = [tensorstore_of(path)]
        key = wanted.key
        if write:
            return (lambda value: store[0][key].write(value).result()), store.clear
        return (lambda _: store[0][key].read().result()), store.clear

    return opened
