"""The targets that are written in Python."""

from fuzz import documents, hdf5_files, hdf5_filters, hdf5_writes, kept

_HDF5 = (*hdf5_files.TARGETS, *hdf5_filters.TARGETS, *hdf5_writes.TARGETS)
_ALL = (*documents.TARGETS, *kept.TARGETS, *_HDF5)

TARGETS = {target.name: target for target in _ALL}
