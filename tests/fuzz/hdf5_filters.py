"""Chunks, and parameters, of filters that HDF5's library decodes in memory."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path

import numpy as np

from fuzz.chance import LIES, Chance
from fuzz.lane import Files, Target
from outcore.errors import FormatError
from outcore.formats.hdf5 import filters as hdf5_filters


@functools.cache
def originals() -> list[tuple[dict[str, int | str], bytes, int]]:
    """Options, what is stored, and its bytes when it is decoded: of each filter that is checked."""
    import h5py

    found = []
    data = (np.arange(320) ** 2 % 991).reshape(16, 20)
    twelve, twenty = h5py.h5t.STD_I16LE.copy(), h5py.h5t.STD_U32BE.copy()
    twelve.set_precision(12)
    twenty.set_precision(20)
    pair = h5py.h5t.create(h5py.h5t.COMPOUND, 14)
    pair.insert(b"a", 0, twelve)
    pair.insert(b"b", 2, h5py.h5t.array_create(twenty, (3,)))
    with h5py.File(io.BytesIO(), "w") as file:
        for kind in ("i2", ">i4", "f4", "f8"):
            options = {"chunks": (16, 20)}
            scale = 2 if kind.startswith("f") else 0
            file.create_dataset(f"o{kind}", data=data.astype(kind), scaleoffset=scale, **options)
            file.create_dataset(f"z{kind}", data=data.astype(kind), compression="szip", **options)
        for name, kind in ((b"n12", twelve), (b"n20", twenty), (b"pair", pair)):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((16, 20))
            plist.set_filter(hdf5_filters.NBIT, 0, ())
            dset = h5py.h5d.create(file.id, name, kind, h5py.h5s.create_simple((16, 20)), plist)
            values = np.zeros((16, 20), kind.dtype)
            if name != b"pair":
                values[...] = data
            dset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
        for name in file:
            dset = file[name].id
            number, _, values, word = dset.get_create_plist().get_filter(0)
            codec = hdf5_filters.make_codec(number, values, word, name)
            if name[0] in "np":
                codec = hdf5_filters.add_type(codec, dset.get_type())
            _, stored = dset.read_direct_chunk((0, 0))
            found.append((dict(codec.options), stored, 320 * dset.get_type().get_size()))
    return found


def make(chance: Chance) -> Files:
    options, stored, nbytes = chance.choice(originals())
    if chance.one_in(3):
        values = str(options["values"]).split()
        lie = chance.choice([*LIES, chance.randrange(70)]) % 2**32
        values[chance.randrange(len(values))] = str(lie)
        if chance.one_in(4):
            del values[chance.randrange(len(values)) :]
        options = {**options, "values": " ".join(values)}
    if not chance.one_in(4):
        stored = chance.damage(stored)
    return {"options": json.dumps([options, nbytes]).encode(), "stored": stored}


def attempt(folder: Path) -> None:
    options, nbytes = json.loads((folder / "options").read_text())
    try:
        out = hdf5_filters.decode(options, (folder / "stored").read_bytes(), nbytes)
    except ValueError as error:
        raise FormatError(str(error), code="codec-failure") from error
    assert out.nbytes == nbytes


TARGETS = [Target("hdf5_filters", make, attempt, 300)]
