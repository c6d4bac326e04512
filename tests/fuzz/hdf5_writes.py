"""Damaged HDF5 and NetCDF4 files that are written to: what was readable stays so."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

import numpy as np

import outcore
from fuzz.chance import Chance
from fuzz.hdf5_files import NAMES, make, make_repaired, original
from fuzz.lane import Files, Target
from outcore import errors

Values = dict[str, "np.ndarray | None"]

CHANGES = ("write", "append", "resize", "attribute", "create")


def make_either(kind: str, chance: Chance) -> Files:
    files = (make if chance.one_in(2) else make_repaired)(kind, chance)
    return {**files, "change": f"{chance.choice(NAMES[kind])} {chance.choice(CHANGES)}".encode()}


def read(path: Path, kind: str) -> Values:
    """What can be read; None for what is refused."""
    found: Values = {}
    for name in NAMES[kind]:
        found[name] = None
        try:
            with outcore.open(f"{path}::{name}") as array:
                found[name] = array[...]
        except errors.InternalError:
            raise
        except errors.OutcoreError:
            pass
    return found


@functools.cache
def whole(kind: str) -> Values:
    """What can be read of the files before they are damaged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{kind}")
        path.write_bytes(original(kind, "latest"))
        return read(path, kind)


def alike(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def change(path: Path, name: str, how: str, values: Values) -> None:
    """Make a change; `values` becomes what has to be there then."""
    if how == "create":
        outcore.create(f"{path}::new", data=np.arange(7.0)).close()
        return
    old = values[name]
    with outcore.open(f"{path}::{name}", "r+") as array:
        if how == "write":
            # If it is refused, any part of it may be there.
            values[name] = None
            array[...] = np.zeros(array.shape, array.dtype)
            values[name] = np.zeros(array.shape, array.dtype)
        elif how == "append":
            more = np.ones((3, *array.shape[1:]), array.dtype)
            array.append(more)
            values[name] = None if old is None else np.concatenate([old, more])
        elif how == "resize":
            array.resize((max(array.shape[0] - 2, 0), *array.shape[1:]))
            values[name] = None if old is None else old[: max(len(old) - 2, 0)]
        else:
            array.attrs["note"] = "new"


def attempt(kind: str, folder: Path) -> None:
    path = folder / f"a.{kind}"
    name, how = (folder / "change").read_text().split()
    values = read(path, kind)
    if how != "create" and not alike(values[name], whole(kind)[name]):
        # Its elements may lie anywhere, in the tables of others too, and nobody can tell.
        values = dict.fromkeys(values)
    refusal = None
    try:
        change(path, name, how, values)
    except errors.InternalError:
        raise
    except errors.OutcoreError as error:
        refusal = error
    after = read(path, kind)
    for other, expected in values.items():
        found = after[other]
        if kind == "nc" and how in ("append", "resize") and found is not None:
            continue  # the dimension that they share has another length
        assert expected is None or alike(expected, found), f"{how} of {name} changed {other}"
    assert set(os.listdir(folder)) == {path.name, "change"}
    if refusal is not None:
        raise refusal


TARGETS = [
    Target(
        f"{name}_written",
        functools.partial(make_either, kind),
        functools.partial(attempt, kind),
        60,
        library="HDF5",
    )
    for name, kind in (("hdf5", "h5"), ("netcdf4", "nc"))
]
