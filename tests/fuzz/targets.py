"""The targets that are written in Python."""

from fuzz import documents, hdf5_files, hdf5_writes, kept

_ALL = (*documents.TARGETS, *kept.TARGETS, *hdf5_files.TARGETS, *hdf5_writes.TARGETS)

TARGETS = {target.name: target for target in _ALL}
