"""The targets that are written in Python."""

from fuzz import documents, hdf5_files

TARGETS = {target.name: target for target in (*documents.TARGETS, *hdf5_files.TARGETS)}
