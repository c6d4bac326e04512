"""Arrays on disk in xarray and dask: the right elements of the right array, missing ones told."""

from mutants import Mutant

ENGINE = "python/outcore/xarray_engine.py"
OPERATORS = "python/outcore/arrays/disk/operators.py"
XARRAY = "tests/conformance/test_xarray.py"
DASK = "tests/conformance/test_dask.py"

MUTANTS = [
    Mutant(
        file="python/outcore/formats/hdf5/groups.py",
        before="        if h5py.h5a.exists(file.id, _NETCDF):",
        after='        if h5py.h5a.exists(file.id, b"nothing"):',
        killed_by=f"{XARRAY}::test_variables_are_as_long_as_their_unlimited_dimension",
        why="in a NetCDF file of another suffix, what a variable was never written to would be cut off",
    ),
    Mutant(
        file=ENGINE,
        before='            options = {"format": member.info.format}\n',
        after="            options: dict[str, str] = {}\n",
        killed_by=f"{XARRAY}::test_variables_are_as_long_as_their_unlimited_dimension",
        why="a copy in another process would open that file as HDF5, with other lengths",
    ),
    Mutant(
        file=ENGINE,
        before="            if (array.shape, array.dtype) != self._told:",
        after="            if array.ndim != len(self.shape):",
        killed_by=f"{XARRAY}::test_a_closed_dataset_is_opened_again_by_who_reads_it",
        why="another array that has the name by now would be read with the keys of the old one",
    ),
    Mutant(
        file=ENGINE,
        before='                way = "oindex"\n',
        after='                way = "vindex"\n',
        killed_by=f"{XARRAY}::test_much_text_is_read_when_it_is_asked_for",
        why="of text, points would be read where the product of indices was asked for",
    ),
    Mutant(
        file=ENGINE,
        before="            self.fixed = array.size <= _FIXED and ",
        after="            self.fixed = True or ",
        killed_by=f"{XARRAY}::test_text_that_does_not_fit_the_budget_stays_on_the_disk",
        why="a file with more text than fits the budget could not be opened",
    ),
    Mutant(
        file=ENGINE,
        before="            method = array.vindex.__getitem__",
        after="            method = array.oindex.__getitem__",
        killed_by=f"{XARRAY}::test_keys_read_only_what_they_mean",
        why="of points, the product of their coordinates would be read",
    ),
    Mutant(
        file=ENGINE,
        before="            mask = self._serves is not None and self._serves.fill_means_missing\n",
        after="            mask = False\n",
        killed_by=f"{XARRAY}::test_a_dataset_is_that_of_xarrays_own_engine",
        why="missing values of Zarr version 2 would be numbers",
    ),
    Mutant(
        file=ENGINE,
        before='            attrs["_FillValue"] = member.fill\n',
        after="            pass\n",
        killed_by=f"{XARRAY}::test_a_dataset_is_that_of_xarrays_own_engine",
        why="missing values of NetCDF4 would be numbers",
    ),
    Mutant(
        file=OPERATORS,
        before="        if array.writable:\n            return uuid.uuid4().hex\n",
        after="",
        killed_by=f"{DASK}::test_names_tell_equal_arrays_from_others",
        why="dask would take what an array had before a write for what it has",
    ),
    Mutant(
        file=OPERATORS,
        before="            state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)",
        after="            state = (found.st_dev,)",
        killed_by=f"{DASK}::test_names_tell_equal_arrays_from_others",
        why="dask would take what a file had before it was replaced for what it has",
    ),
]
