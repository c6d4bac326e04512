"""Random collectives, equal on every rank: what ranks ask for, and what NumPy says of it."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import outcore

FORMATS = {
    "npy": ("a.npy", {}),
    "npy F": ("a.npy", {"order": "F"}),
    "raw": ("a.raw", {}),
    "raw F": ("a.raw", {"order": "F"}),
    "hdf5": ("a.h5::/group/x", {}),
    "hdf5 chunked": ("a.h5::/x", {"chunks": 5}),
    "hdf5 gzip": ("a.h5::/x", {"chunks": 7, "compression": "gzip"}),
    "netcdf4": ("a.nc::x", {}),
    "netcdf3": ("a.nc::x", {"format": "netcdf3_64bit_data"}),
    "zarr": ("a.zarr", {"chunks": 6}),
    "zarr F": ("a.zarr", {"chunks": 5, "order": "F", "compression": "zstd"}),
    "zarr 2 F": ("a.zarr", {"format": "zarr2", "chunks": 4, "order": "F"}),
    "zarr zstd": ("a.zarr", {"chunks": 4, "compression": "zstd"}),
    "zarr shards": ("a.zarr", {"chunks": 3, "shards": 9, "compression": "zstd"}),
}
METHODS = ("auto", "two-phase", "two-phase", "direct", "sieve")
CUTS = ("requested", "bounding", "fixed", "cyclic")
# Hints that all ranks give alike, each in some cases.
ALIKE = {
    "io_ranks": (1, 2, 3, 7),
    "io_groups": (1, 2, 3, 4),
    "overlap": ("error",),
    "stripe": (512, 10_000),
    "exclusive": (True,),
}
# And those in which every rank may have its own way.
OWN = {
    "cache": ("keep", "bypass"),
    "method": ("straight", "window", "mapped", "list"),
    "engine": ("threads", "uring"),
    "threads": (1, 2),
}
# Of the budget: less than a chunk, than a tile, than all; plenty.
BUDGETS = (600, 3000, 20_000, 100_000, 1 << 20, 16 << 20)


@dataclass
class Case:
    """One collective: equal on all ranks, from a seed."""

    seed: int
    ranks: int
    format: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    method: str = "auto"
    hints: list[dict[str, Any]] = field(default_factory=list)
    slot: int = 0
    least: int = 0
    fortran: list[bool] = field(default_factory=list)

    def __post_init__(self):
        rng = random.Random(self.seed)
        self.format = rng.choice(list(FORMATS))
        self.shape = tuple(rng.randint(1, 40) for _ in range(rng.randint(1, 3)))
        self.dtype = rng.choice(["f4", "i2", "f8", "u1"])
        self.keys = [_key(rng, self.shape) for _ in range(self.ranks)]
        if rng.random() < 0.15:  # common sections
            self.keys = [self.keys[0]] * self.ranks
        # Memory of ranks is in either order.
        self.fortran = [rng.random() < 0.3 for _ in range(self.ranks)]
        self.values = [self._value(rng, rank) for rank in range(self.ranks)]
        self.method = rng.choice(METHODS)
        alike = {"domains": rng.choice(CUTS)} | _some(rng, ALIKE, 0.25)
        self.hints = [alike | _some(rng, OWN, 0.06) for _ in range(self.ranks)]
        self.slot, self.least = rng.choice([2000, 20_000, 1 << 20]), rng.choice([1, 500])

    def _value(self, rng, rank):
        """One element for all, or each its own: those of two ranks are never in the same order."""
        if rng.random() < 0.3:
            return rng.randint(1, 99)
        shape = self.data[self.keys[rank]].shape
        value = (np.arange(np.prod(shape)) * (2 * rank + 3) + rng.randint(1, 99)) % 113
        return np.array(value.reshape(shape).astype(self.dtype), order="CF"[self.fortran[rank]])

    def out(self, rank):
        """Memory to read into, or None: that is made by the call then."""
        shape = self.data[self.keys[rank]].shape
        dtype = np.dtype(self.dtype).newbyteorder(">" if self.format == "netcdf3" else "=")
        return np.zeros(shape, dtype, order="F") if self.fortran[rank] else None

    @property
    def refused(self):
        """Whether a write is refused: ranks write the same elements, and a hint is against it."""
        count = np.zeros(self.shape, int)
        for key in self.keys:
            count[key] += 1
        return self.hints[0].get("overlap") == "error" and bool((count > 1).any())

    @property
    def data(self):
        """What the file holds at first."""
        count = int(np.prod(self.shape))
        return (np.arange(count) % 101).reshape(self.shape).astype(self.dtype)

    @property
    def written(self):
        """What it holds after all ranks wrote: the highest rank wins."""
        data = self.data
        for key, value in zip(self.keys, self.values, strict=True):
            data[key] = value
        return data

    def name(self, folder):
        return str(folder / FORMATS[self.format][0])

    def create(self, folder):
        options = dict(FORMATS[self.format][1])
        if "shards" in options and len(self.shape) > 0:
            options = {k: options[k] for k in ("chunks", "shards", "compression")}
        outcore.create(self.name(folder), data=self.data, **options).close()

    def open(self, folder, mode, comm, **hints):
        more = {}
        if self.format.startswith("raw"):
            more = {"dtype": self.dtype, "shape": self.shape} | FORMATS[self.format][1]
        hints = self.hints[comm.rank] | hints
        return outcore.open(self.name(folder), mode, comm=comm, hints=hints, **more)


def _some(rng, hints, share):
    return {name: rng.choice(values) for name, values in hints.items() if rng.random() < share}


def _key(rng, shape):
    key = []
    for n in shape:
        low, high = sorted((rng.randint(0, n), rng.randint(0, n)))
        step = rng.choice([1, 1, 2, 3, 7, -1, -2])
        if step > 0:
            key.append(slice(low, high, step))
        else:
            key.append(slice(high if high < n else None, low if low else None, step))
    return tuple(key)
