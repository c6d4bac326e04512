"""
The others: each peer does the same section of the same data its own best way.

A peer is opened once on files made by `make`; `read(key, out)` fills `out`, `write(key, value)`
stores, `sync()` makes durable. What a peer cannot do it says with `None`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Key = tuple[slice, ...]


@dataclass
class Peer:
    """One way to the data: a name, the files it reads (for eviction), and its calls."""

    name: str
    paths: list[Path]
    read: Callable[[Key, np.ndarray], Any]
    write: Callable[[Key, np.ndarray], Any] | None = None
    sync: Callable[[], Any] | None = None
    close: Callable[[], Any] = lambda: None
    threads: int = 1
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def outcore_peer(path: Path, threads: int, label: str | None = None, **hints: Any) -> Peer:
    """The subject itself."""
    import outcore

    array = outcore.open(path, "r+", hints=outcore.Hints(threads=threads, **hints))
    return Peer(
        label or f"outcore/{threads}",
        [path],
        lambda key, out: array.read(key, out=out),
        lambda key, value: array.write(key, value),
        lambda: array.flush(),
        array.close,
        threads,
        extra={"array": array},
    )


def memmap_peer(path: Path) -> Peer:
    """`numpy.load(mmap_mode=...)` and an assignment."""
    mapped = np.load(path, mmap_mode="r+")
    return Peer(
        "memmap",
        [path],
        lambda key, out: np.copyto(out, mapped[key]),
        lambda key, value: mapped.__setitem__(key, value),
        mapped.flush,
    )


def compiled(source: Path) -> Any:
    """A C file as a loaded library, compiled unless the same text was before."""
    text = zlib.crc32(source.read_bytes())
    name = f"outcore-bench-{source.stem}-{text:08x}-{os.getuid()}.so"
    library = Path(tempfile.gettempdir()) / name
    if not library.exists():
        # Other ranks may compile it too; each finds a whole one under its name.
        mine = library.with_name(f"{library.name}.{os.getpid()}")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", mine, source], check=True)
        mine.replace(library)
    return ctypes.CDLL(str(library))


def _compile_runs() -> Any:
    runs = compiled(Path(__file__).with_name("runs.c")).runs
    runs.restype = ctypes.c_int64
    runs.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_void_p,
    ]
    return runs


def file_runs(
    shape: tuple[int, ...], item: int, key: Key, base: int
) -> tuple[list[int], list[int], int, int]:
    """Contiguous runs of a section of a C-order array: counts, byte strides, first byte, length."""
    ranges = [range(n)[s] for n, s in zip(shape, key, strict=True)]
    strides = [item * int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))]
    offset = base + sum(r.start * s for r, s in zip(ranges, strides, strict=True))
    axes = [(len(r), r.step * s) for r, s in zip(ranges, strides, strict=True)]
    length = item
    while axes and axes[-1][1] == length:
        length *= axes.pop()[0]
    return [n for n, _ in axes], [s for _, s in axes], offset, length


def pread_peer(path: Path) -> Peer:
    """One `pread` per contiguous run, in C."""
    runs = _compile_runs()
    mapped = np.load(path, mmap_mode="r")
    shape, item, base = mapped.shape, mapped.dtype.itemsize, mapped.offset
    del mapped
    fd = os.open(path, os.O_RDWR)

    def call(key: Key, memory: np.ndarray, write: int) -> int:
        count, stride, offset, length = file_runs(shape, item, key, base)
        n = len(count)
        done = runs(
            fd,
            write,
            n,
            (ctypes.c_int64 * max(n, 1))(*count),
            (ctypes.c_int64 * max(n, 1))(*stride),
            offset,
            length,
            memory.ctypes.data,
        )
        if done < 0:
            raise OSError("pread or pwrite failed")
        return int(done)

    return Peer(
        "pread",
        [path],
        lambda key, out: call(key, out, 0),
        lambda key, value: call(key, value, 1),
        lambda: os.fsync(fd),
        lambda: os.close(fd),
    )


def h5py_peer(path: Path, name: str, label: str, mode: str = "r+") -> Peer:
    """h5py's `read_direct` and assignment."""
    import h5py

    file = h5py.File(path, mode)
    dataset = file[name]

    def sync() -> None:
        file.flush()
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    return Peer(
        label,
        [path],
        lambda key, out: dataset.read_direct(out, key),
        lambda key, value: dataset.__setitem__(key, value),
        sync,
        file.close,
    )


def zarr_peer(path: Path) -> Peer:
    """zarr-python."""
    import zarr

    array = zarr.open_array(path, mode="r+")
    return Peer(
        "zarr-python",
        [path],
        lambda key, out: np.copyto(out, array[key]),
        lambda key, value: array.__setitem__(key, value),
        None,
        threads=2,
    )


def tensorstore_peer(
    path: Path, driver: str = "zarr3", threads: int = 2, sync: bool = True
) -> Peer:
    """tensorstore, its own thread pools limited to `threads`; with `sync` (its default) each file
    it writes is synced.
    """
    import tensorstore as ts

    context = ts.Context(
        {
            "data_copy_concurrency": {"limit": threads},
            "file_io_concurrency": {"limit": 8},
            "file_io_sync": sync,
        }
    )
    store = ts.open(
        {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}},
        context=context,
        open=True,
    ).result()

    def read(key: Key, out: np.ndarray) -> None:
        # Straight into `out`, without an array in between.
        target = ts.array(out, context=context, copy=False, write=True)
        target.write(store[key]).result()

    def write(key: Key, value: np.ndarray) -> None:
        store[key].write(value).result()

    return Peer(f"tensorstore/{threads}", [path], read, write, None, threads=threads)
