"""
HDF5.

| file | content |
|---|---|
| `format.py`, `groups.py` | the format: datasets; groups of a file |
| `access.py`, `guard.py` | sessions of the library; trials in a separate process |
| `describe.py`, `create.py`, `growing.py` | from a dataset to an `ArrayInfo`; new datasets; growth |
| `likeness.py` | properties of a dataset that a program has opened with h5py |
| `types.py`, `attrs.py`, `strings.py`, `heaps.py` | element types, attributes, text of variable length |
| `links.py`, `elsewhere.py`, `virtual.py` | links; other files; virtual datasets |
| `chunks.py`, `index.py`, `lookup.py`, `filters.py` | tables of chunks; filters |
| `origin.py`, `end.py`, `drivers.py`, `redo.py` | addresses, ends and drivers of files; the redo log |
| `netcdf_names.py`, `netcdf_lengths.py` | names and lengths of NetCDF4 in an HDF5 file |
"""
