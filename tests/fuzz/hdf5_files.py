"""HDF5 and NetCDF4 files: superblocks, object headers, indices of chunks, heaps."""

from __future__ import annotations

import functools
import io
import math
import os
from pathlib import Path

import numpy as np

from fuzz.chance import Chance
from fuzz.documents import taste
from fuzz.hdf5_checksums import repaired, structures
from fuzz.lane import Files, Target
from outcore import errors, formats
from outcore.formats.layout import Chunked

NAMES = {"h5": ["c", "k", "z", "g/s"], "nc": ["t", "g/u", "x"]}


@functools.cache
def original(kind: str, libver: str) -> bytes:
    """A valid file with datasets of every storage."""
    import h5py

    stream = io.BytesIO()
    data = np.arange(60).reshape(10, 6)
    with h5py.File(stream, "w", libver=libver, track_order=kind == "nc") as file:
        if kind == "h5":
            file["c"] = np.arange(50.0)
            file.create_dataset("k", data=data, chunks=(3, 4))
            file.create_dataset("z", data=data, chunks=(3, 4), compression=1, shuffle=True)
            file["z"].attrs["text"] = "of variable length"
            file["z"].attrs["list"] = ["a", "bc"]
            file["z"].attrs["number"] = 3.5
            file["g/s"] = np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])
        else:
            file["x"] = np.arange(6.0)
            file.create_dataset("y", data=np.arange(7.0), maxshape=(None,))
            file["y"].make_scale("y")
            file["x"].make_scale("x")
            for name in ("t", "g/u"):
                part = data if name == "t" else data[:7]  # which shares an unlimited dimension
                options = {"chunks": (3, 4), "maxshape": (None, 6), "compression": 1}
                file.create_dataset(name, data=part, **options)
                file[name].dims[0].attach_scale(file["y"])
                file[name].dims[1].attach_scale(file["x"])
                file[name].attrs["units"] = "K"
    return stream.getvalue()


def make_repaired(kind: str, chance: Chance) -> Files:
    """Damage that no checksum tells of, as somebody makes it on purpose."""
    good = original(kind, "latest")
    start, end = chance.choice(structures(good))
    body = chance.damage(good[start:end], 4)[: end - start]  # behind the signature
    damaged = good[:start] + body + good[start + len(body) :]
    return {f"a.{kind}": repaired(damaged, good)}


def make(kind: str, chance: Chance) -> Files:
    good = original(kind, chance.choice(["earliest", "latest"]))
    low, high = 0, None
    # Small structures are hit more often when they are aimed at.
    marks = [
        b"GCOL",
        b"OHDR",
        b"TREE",
        b"HEAP",
        b"SNOD",
        b"FRHP",
        b"BTHD",
        b"DIMENSION_LIST",
        b"REFERENCE_LIST",
        b"FADB",
    ]
    if chance.one_in(2) and (found := [good.find(m) for m in marks if m in good]):
        low = chance.choice(found)
        high = low + 200
    return {f"a.{kind}": chance.damage(good, low, high)}


def attempt(kind: str, folder: Path) -> None:
    """Whatever is promised must lie inside the file."""
    path = folder / f"a.{kind}"
    size = os.path.getsize(path)
    opened = 0
    refusal = None
    for name in NAMES[kind]:
        try:
            info = formats.open_info(f"{path}::{name}")
            if isinstance(info.layout, Chunked):
                grid = [-(-n // c) for n, c in zip(info.shape, info.layout.chunks, strict=True)]
                count = tuple(min(n, 50) for n in grid)
                table = info.layout.source.fetch((0,) * len(grid), count)
                there = table[table[:, 0] >= 0]
                assert len(table) == math.prod(count)
                assert (there[:, 0] + there[:, 1] <= size).all() and (there[:, 1] >= 0).all()
            else:
                assert all(p.offset >= 0 and p.offset + p.nbytes <= size for p in info.layout.parts)
            taste(f"{path}::{name}")
            opened += 1
        except errors.InternalError:
            raise
        except errors.OutcoreError as error:
            refusal = error
    try:
        repr(formats.ls(path))
    except errors.OutcoreError as error:
        refusal = error
    if refusal is not None:
        raise refusal


TARGETS = [
    Target(
        f"{name}_{what}",
        functools.partial(maker, kind),
        functools.partial(attempt, kind),
        inputs,
        library="HDF5",
    )
    for name, kind in (("hdf5", "h5"), ("netcdf4", "nc"))
    for what, maker, inputs in (("files", make, 120), ("repaired", make_repaired, 60))
]
