"""
Blocked by hand with NumPy and SciPy: what an expert writes in an afternoon.

Slabs and panels are as large as the memory allows, contiguous parts are read and written as such,
strided parts by a call for each run, eight at a time (mappings read ahead there what nobody wants, and
thrash where memory is limited), kernels run on all cores, and nothing is read twice that need not be.
What it lacks is what takes longer than an afternoon: reading ahead, writing behind, direct I/O.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from by_hand_factors import cholesky, lu  # noqa: F401


def made(out: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.lib.format.open_memmap(out, "w+", dtype, shape)


def cut(length: int, each: int) -> Iterator[slice]:
    each = max(each, 1)
    return (slice(at, min(at + each, length)) for at in range(0, length, each))


def read_rows(array: np.ndarray, part: slice, into: np.ndarray) -> np.ndarray:
    """Rows of a mapped array by plain reads, which need no page of the mapping."""
    row = array.nbytes // len(array)
    slab = into[: part.stop - part.start]
    with open(array.filename, "rb", buffering=0) as file:
        file.seek(array.offset + part.start * row)
        view = memoryview(slab.reshape(-1).view(np.uint8))
        while view:
            view = view[file.readinto(view) :]
    return slab


def write_rows(array: np.ndarray, part: slice, slab: np.ndarray) -> None:
    """The same for writing."""
    row = array.nbytes // len(array)
    with open(array.filename, "r+b", buffering=0) as file:
        file.seek(array.offset + part.start * row)
        view = memoryview(slab.reshape(-1).view(np.uint8))
        while view:
            view = view[file.write(view) :]


def read_part(array: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    """A part of a mapped matrix in C order, by a read for each of its rows."""
    found = np.empty((rows.stop - rows.start, columns.stop - columns.start), array.dtype)
    _each_run(array, rows, columns, found, os.preadv, os.O_RDONLY)
    return found


def write_part(array: np.ndarray, rows: slice, columns: slice, block: np.ndarray) -> None:
    """The same for writing a block in C order."""
    _each_run(array, rows, columns, block, os.pwritev, os.O_WRONLY)


def _each_run(
    array: np.ndarray, rows: slice, columns: slice, block: np.ndarray, call: Any, mode: int
) -> None:
    item, length = array.itemsize, block.shape[1] * block.itemsize
    memory = block.reshape(-1).view(np.uint8)
    fd = os.open(array.filename, mode)

    def some(part: slice) -> None:
        for k in range(part.start, part.stop):
            place = array.offset + ((rows.start + k) * array.shape[1] + columns.start) * item
            done = call(fd, [memory[k * length : (k + 1) * length]], place)
            if done != length:
                raise OSError(f"{done} of {length} bytes")

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(some, cut(len(block), 64)))
    finally:
        os.close(fd)


# -------------------------------------------------------------------------------------- movement


def transpose(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """Slabs of rows, read at once; each becomes a strip of columns."""
    a = np.load(inputs[0], mmap_mode="r")
    rows, columns = a.shape
    b = made(out, (columns, rows), a.dtype)
    each = max(memory // 2 // (columns * a.itemsize), 1)
    slab = np.empty((min(each, rows), columns), a.dtype)
    for part in cut(rows, each):
        block = read_rows(a, part, slab)
        # Transposed in squares that the cache holds, and written in long runs.
        for at in cut(columns, max(columns // 8, 1)):
            turned = np.empty((at.stop - at.start, len(block)), a.dtype)

            def square(
                j: slice,
                block: np.ndarray = block,
                turned: np.ndarray = turned,
                first: int = at.start,
            ) -> None:
                for i in cut(len(block), 64):
                    turned[j, i] = block[i, first + j.start : first + j.stop].T

            with ThreadPoolExecutor(cores) as pool:
                list(pool.map(square, cut(len(turned), 64)))
            write_part(b, at, part, turned)


def rechunk(inputs: list[str], out: str, memory: int, cores: int, chunks: list[int]) -> None:
    """Chunk files of row slabs: as many as memory has place for, then a run of each target chunk."""
    import json

    with open(f"{inputs[0]}/.zarray") as file:
        about = json.load(file)
    (rows, columns), dtype = about["shape"], np.dtype(about["dtype"])
    high, wide = about["chunks"][0], chunks[1]
    if about["chunks"][1] != columns or chunks[0] != rows:
        raise ValueError("row slabs to column slabs only")
    os.mkdir(out)
    with open(f"{out}/.zarray", "w") as file:
        json.dump({**about, "chunks": chunks}, file)
    group = max(memory // 2 // (high * columns * dtype.itemsize), 1)
    slab = np.empty((group * high, columns), dtype)
    with ThreadPoolExecutor(cores) as pool:
        for some in cut(rows // high, group):
            block = slab[: (some.stop - some.start) * high]

            def load(k: int, block: np.ndarray = block, first: int = some.start) -> None:
                with open(f"{inputs[0]}/{k}.0", "rb", buffering=0) as file:
                    file.readinto(block[(k - first) * high :][:high].reshape(-1).view(np.uint8))

            def store(k: int, block: np.ndarray = block, first: int = some.start) -> None:
                with open(f"{out}/0.{k}", "r+b" if first else "wb", buffering=0) as file:
                    file.seek(first * high * wide * dtype.itemsize)
                    file.write(np.ascontiguousarray(block[:, k * wide : (k + 1) * wide]).data)

            list(pool.map(load, range(some.start, some.stop)))
            list(pool.map(store, range(columns // wide)))


# ----------------------------------------------------------------------------------- arithmetic


def matmul(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """A square block of the product stays in memory; panels of both factors pass by."""
    a, b = (np.load(path, mmap_mode="r") for path in inputs)
    n, k, m = a.shape[0], a.shape[1], b.shape[1]
    item = a.itemsize
    # A block of t x t and two panels of t x t/6 in three fifths of the memory.
    t = int((memory * 3 / 5 / item / (1 + 2 / 6)) ** 0.5)
    t = -(-n // -(-n // max(t, 1)))
    depth = max(t // 6, 1)
    c = made(out, (n, m), a.dtype)
    for i in cut(n, t):
        for j in cut(m, t):
            block = np.zeros((i.stop - i.start, j.stop - j.start), a.dtype)
            for p in cut(k, depth):
                left = read_part(a, i, p)
                right = read_part(b, p, j)
                add_product(block, left, right)
            write_part(c, i, j, block)


def add_product(block: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Block += left @ right, by BLAS, in place: column-major it is a product of transposes."""
    from scipy.linalg.blas import dgemm

    done = dgemm(1.0, right.T, left.T, beta=1.0, c=block.T, overwrite_c=True)
    assert np.shares_memory(done, block)


Stepper = Callable[[np.ndarray, np.ndarray, int], None]


def five_points(old: np.ndarray, new: np.ndarray, cores: int) -> None:
    """One step inside the border of a block, in strips that stay in the cache."""
    scratch = [np.empty((32, old.shape[1] - 2), old.dtype) for _ in range(cores)]

    def strip(job: tuple[int, slice]) -> None:
        part = job[1]
        low, high = part.start + 1, part.stop + 1
        total = scratch[job[0] % cores][: high - low]
        np.add(old[low - 1 : high - 1, 1:-1], old[low + 1 : high + 1, 1:-1], out=total)
        total += old[low:high, :-2]
        total += old[low:high, 2:]
        np.multiply(total, 0.25, out=new[low:high, 1:-1])

    jobs = list(cut(old.shape[0] - 2, 32))

    def all_of(first: int) -> None:
        for part in jobs[first::cores]:
            strip((first, part))

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(all_of, range(cores)))


def jacobi(
    inputs: list[str],
    out: str,
    memory: int,
    cores: int,
    steps: int,
    step: Stepper = five_points,
) -> None:
    """Slabs of rows with a halo as high as there are steps in a pass, at most 50: blocked in time."""
    a = np.load(inputs[0], mmap_mode="r")
    rows, columns = a.shape
    together = min(steps, 50)
    high = memory * 4 // 5 // 2 // (columns * a.itemsize)
    while high <= 4 * together and together > 1:
        together //= 2
    passes = [together] * (steps // together) + ([steps % together] if steps % together else [])
    names = [out, f"{out}.other"]
    if len(passes) % 2 == 0:
        names.reverse()
    one, two = (np.empty((high, columns), a.dtype) for _ in range(2))
    source = a
    for number, count in enumerate(passes):
        target = made(names[number % 2], a.shape, a.dtype)
        for part in cut(rows, high - 2 * count):
            begin, end = max(part.start - count, 0), min(part.stop + count, rows)
            old = read_rows(source, slice(begin, end), one)
            new = two[: end - begin]
            new[...] = old  # the border of the array stays as it is
            for _ in range(count):
                step(old, new, cores)
                old, new = new, old
            write_rows(target, part, old[part.start - begin : part.stop - begin])
        source = target
    if os.path.exists(f"{out}.other"):
        os.unlink(f"{out}.other")


def fft2(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """Rows in slabs, then columns in strips of the result, in place."""
    from scipy import fft

    a = np.load(inputs[0], mmap_mode="r")
    rows, columns = a.shape
    b = made(out, a.shape, a.dtype)
    each = memory // 4 // (columns * a.itemsize)
    slab = np.empty((min(each, rows), columns), a.dtype)
    for part in cut(rows, each):
        block = read_rows(a, part, slab)
        write_rows(b, part, fft.fft(block, axis=1, workers=cores, overwrite_x=True))
    del slab
    each = memory // 4 // (rows * a.itemsize)
    for part in cut(columns, each):
        block = read_part(b, slice(0, rows), part)
        block = fft.fft(block, axis=0, workers=cores, overwrite_x=True)
        write_part(b, slice(0, rows), part, block)


def median(inputs: list[str], out: str, memory: int, cores: int, size: int) -> None:
    """Slabs of rows with a halo, each divided among the cores."""
    from scipy.ndimage import median_filter

    a = np.load(inputs[0], mmap_mode="r")
    rows, columns = a.shape
    b = made(out, a.shape, a.dtype)
    halo = size // 2
    each = memory // 4 // (columns * a.itemsize) // cores * cores

    def filtered(part: slice) -> None:
        begin, end = max(part.start - halo, 0), min(part.stop + halo, rows)
        block = read_rows(a, slice(begin, end), np.empty((end - begin, columns), a.dtype))
        found = median_filter(block, size, mode="reflect")
        write_rows(b, part, found[part.start - begin : part.stop - begin])

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(filtered, cut(rows, each // cores)))


# ---------------------------------------------------------------------------------- reductions


def sum(inputs: list[str], out: str, memory: int, cores: int, axis: int) -> dict[str, Any]:
    """Slabs of rows, by plain reads."""
    a = np.load(inputs[0], mmap_mode="r")
    rows, columns = a.shape
    each = memory // 2 // cores // (columns * a.itemsize)
    found = np.zeros(columns if axis == 0 else rows)

    def some(part: slice) -> tuple[slice, np.ndarray]:
        slab = read_rows(a, part, np.empty((part.stop - part.start, columns), a.dtype))
        return part, slab.sum(axis)

    with ThreadPoolExecutor(cores) as pool:
        for part, partial in pool.map(some, cut(rows, min(each, 256))):
            if axis == 0:
                found += partial
            else:
                found[part] = partial
    return {"save": lambda: np.save(out, found)}


def mean_var(inputs: list[str], out: str, memory: int, cores: int) -> dict[str, Any]:
    """Along axis 0; those of slabs are put together as Chan, Golub and LeVeque do."""
    a = np.load(inputs[0], mmap_mode="r")
    rows, columns = a.shape
    each = memory // 4 // cores // (columns * a.itemsize)

    def some(part: slice) -> tuple[int, np.ndarray, np.ndarray]:
        slab = read_rows(a, part, np.empty((part.stop - part.start, columns), a.dtype))
        middle = slab.mean(0)
        slab -= middle
        return len(slab), middle, np.einsum("ij,ij->j", slab, slab)

    count, mean, square = 0, np.zeros(columns), np.zeros(columns)
    with ThreadPoolExecutor(cores) as pool:
        for n, middle, more in pool.map(some, cut(rows, min(each, 256))):
            apart = middle - mean
            square += more + apart * apart * (count * n / (count + n))
            mean += apart * (n / (count + n))
            count += n
    return {"save": lambda: np.save(out, np.stack([mean, square / count]))}


def sort(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """Sorted runs, each made of parts that cores sort at the same time; then merged, block by block."""
    a = np.load(inputs[0], mmap_mode="r")
    b = made(out, a.shape, a.dtype)
    runs_file = f"{out}.runs"
    each = max(memory // 2 // a.itemsize // cores, 1)
    parts = list(cut(len(a), each))
    with open(runs_file, "wb") as file:
        file.truncate(a.nbytes)
    runs = np.memmap(runs_file, a.dtype, "r+", shape=a.shape)

    def run(part: slice) -> None:
        block = read_rows(a, part, np.empty(part.stop - part.start, a.dtype))
        block.sort()
        write_rows(runs, part, block)

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(run, parts))
    block = max(memory // 4 // a.itemsize // len(parts), 1)
    at = [part.start for part in parts]
    heads: list[np.ndarray] = [np.empty(0, a.dtype)] * len(parts)
    done = 0
    while done < len(a):
        for k, part in enumerate(parts):
            if not len(heads[k]) and at[k] < part.stop:
                more = slice(at[k], min(at[k] + block, part.stop))
                heads[k] = read_rows(runs, more, np.empty(more.stop - more.start, a.dtype))
                at[k] = more.stop
        # What is not above the smallest last element of what is there can go.
        bound = min(head[-1] for head in heads if len(head))
        cuts = [int(np.searchsorted(head, bound, "right")) for head in heads]
        merged = np.concatenate([head[:cut] for head, cut in zip(heads, cuts, strict=True)])
        heads = [head[cut:] for head, cut in zip(heads, cuts, strict=True)]
        merged.sort()
        write_rows(b, slice(done, done + len(merged)), merged)
        done += len(merged)
    os.unlink(runs_file)
