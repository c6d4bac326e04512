"""Order of imports: h5py and its plugins bind to one HDF5 library, which must not be netCDF4's."""

import contextlib

with contextlib.suppress(ImportError):
    import h5py  # noqa: F401
    import hdf5plugin  # noqa: F401
