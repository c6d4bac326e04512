"""Properties of a dataset that a program has opened with h5py, for new arrays like it."""

from __future__ import annotations

from typing import Any

from outcore.formats.hdf5.attrs import describe_axes, read_attrs
from outcore.formats.hdf5.library import h5py
from outcore.formats.hdf5.types import read_codecs
from outcore.formats.missing_values import ATTRIBUTE, Fill, parse_attribute

__all__ = ["read_options"]


def read_options(dset: Any) -> dict[str, Any]:
    """
    Return layout and labels of a dataset as options of `outcore.create`.

    Its file, perhaps open for writing, is not opened again.
    """
    name = f"{dset.file.filename}::{dset.name}"
    if dset.file.mode != "r":
        dset.file.flush()  # attributes are also read from the file
    plist = dset.id.get_create_plist()
    words: dict[str, Any] = {}
    if dset.chunks is not None:
        codecs = read_codecs(dset.id.get_type(), dset.dtype, plist, name)
        words = {"chunks": tuple(dset.chunks), "compression": codecs}
    if dset.maxshape != dset.shape:
        words["maxshape"] = tuple(dset.maxshape)
    stored = plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    missing = (
        parse_attribute(dset.attrs[ATTRIBUTE], dset.dtype) if ATTRIBUTE in dset.attrs else None
    )
    if stored or missing is not None:
        words["fill_value"] = Fill(dset.fillvalue if stored else None, missing)
    words["dims"] = describe_axes(dset)
    words["attrs"] = read_attrs(dset, netcdf=False) or None
    return {key: word for key, word in words.items() if word is not None}
