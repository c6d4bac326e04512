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
    "hdf5": ("a.h5::/group/x", {}),
    "hdf5 chunked": ("a.h5::/x", {"chunks": 5}),
    "hdf5 gzip": ("a.h5::/x", {"chunks": 7, "compression": "gzip"}),
    "netcdf4": ("a.nc::x", {}),
    "zarr": ("a.zarr", {"chunks": 6}),
    "zarr zstd": ("a.zarr", {"chunks": 4, "compression": "zstd"}),
    "zarr shards": ("a.zarr", {"chunks": 3, "shards": 9, "compression": "zstd"}),
}
METHODS = ("auto", "two-phase", "two-phase", "direct", "sieve")
CUTS = ("requested", "bounding", "fixed", "cyclic")


@dataclass
class Case:
    """One collective: equal on all ranks, from a seed."""

    seed: int
    ranks: int
    format: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    keys: list[Any] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    method: str = "auto"
    hints: dict[str, Any] = field(default_factory=dict)
    slot: int = 0
    least: int = 0

    def __post_init__(self):
        rng = random.Random(self.seed)
        self.format = rng.choice(list(FORMATS))
        self.shape = tuple(rng.randint(1, 40) for _ in range(rng.randint(1, 3)))
        self.dtype = rng.choice(["f4", "i2", "f8", "u1"])
        self.keys = [_key(rng, self.shape) for _ in range(self.ranks)]
        if rng.random() < 0.15:  # common sections
            self.keys = [self.keys[0]] * self.ranks
        self.values = [rng.randint(1, 99) for _ in range(self.ranks)]
        self.method = rng.choice(METHODS)
        self.hints = {"domains": rng.choice(CUTS)}
        if rng.random() < 0.4:
            self.hints["io_ranks"] = rng.randint(1, 3)
        if rng.random() < 0.3:
            self.hints["io_groups"] = rng.randint(1, 4)
        self.slot, self.least = rng.choice([2000, 20_000, 1 << 20]), rng.choice([1, 500])

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

    def open(self, folder, mode, comm):
        more = {}
        if self.format == "raw":
            more = {"dtype": self.dtype, "shape": self.shape}
        return outcore.open(self.name(folder), mode, comm=comm, hints=self.hints, **more)


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
