"""NetCDF: `netcdf4.py` holds NetCDF4, which is HDF5 with the conventions of the NetCDF library."""
