"""
xarray's own tests of its engines, run on ours: written by netCDF4, h5netcdf or zarr, opened by outcore.

Wherever these tests open a path with the engine of the format, by whatever function, ours takes its
place. Those in `READS` are about reading; all of them, also those that write and open what they wrote,
are in the long lane. What is left out has a reason.
"""

import pytest

pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("netCDF4")
pytest.importorskip("zarr")

from xarray.backends import plugins
from xarray.tests import test_backends as theirs
from xarray.tests.conftest import time_unit, use_dask  # noqa: F401
from xarray.tests.test_backends import default_zarr_format  # noqa: F401

from outcore.xarray_engine import OutcoreBackendEntrypoint

pytestmark = pytest.mark.filterwarnings("ignore")  # of xarray, zarr and netCDF4 about each other

READS = """
    load pickle dataset_caching roundtrip_string_data roundtrip_numpy_datetime_data orthogonal_indexing
    vectorized_indexing_negative_step outer_indexing_reversed empty_isel_multidim dropna
    array_type_after_indexing roundtrip_mask_and_scale roundtrip_unsigned coordinates_encoding
    write_groups open_subgroup child_group_with_inconsistent_dimensions open_encodings mask_and_scale
    auto_chunking_is_based_on_disk_chunk_sizes preferred_chunks_are_disk_chunk_sizes
    0dimensional_variable read_variable_len_strings roundtrip_character_array default_to_char_arrays
    variable_order group roundtrip_boolean_dtype zarr_fill_value_in_encoding_on_read
""".split()  # noqa: SIM905

WARNS = "the warning of another engine"
ENUMS = "enumerations are read as integers, without their names"
COMPRESSORS = "the encoding does not name objects of zarr"
FILTERS = "of filters, the encoding names zlib, zstd, shuffle and fletcher32, in NetCDF's words"
LEFT_OUT = {
    "test_load_async": "needs pytest-asyncio; test_xarray.py has a test of its own",
    "test_byte_attrs": "attributes that are not UTF-8 stay bytes",
    "test_open_group": "a missing group is a FormatError, no OSError; the rest is open_subgroup",
    "test_refresh_from_disk": "a classic NetCDF file",
    "test_encoding_enum__no_fill_value": ENUMS,
    "test_encoding_enum__multiple_variable_with_enum": ENUMS,
    "test_encoding_enum__error_multiple_variable_with_changing_enum": ENUMS,
    "test_zarr_fill_value_setting": "zarr's own does not do what use_zarr_fill_value_as_mask says",
    "test_compression_encoding": FILTERS,
    "test_compression_encoding_h5py": FILTERS,
    "test_dump_encodings_h5py": FILTERS,
    "test_phony_dims_warning": WARNS,
    "test_decode_utf8_warning": WARNS,
    "test_read_non_consolidated_warning": WARNS,
    "test_compressor_encoding": COMPRESSORS,
    "test_check_encoding_is_consistent_after_append": COMPRESSORS,
}
FOREIGN = (
    "consolidated",
    "zarr_format",
    "storage_options",
    "mode",
    "lock",
    "cache_members",
    "store",
)
FOREIGN += ("phony_dims", "invalid_netcdf", "decode_vlen_strings", "auto_complex", "engine")
#: What our engine opened during a test.
OPENED = []


class Ours(OutcoreBackendEntrypoint):
    """Ours, under the names and with the parameters of the others."""

    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "mask_and_scale",
        "decode_times",
    )
    open_dataset_parameters += (
        "concat_characters",
        "decode_coords",
        "use_cftime",
        "decode_timedelta",
    )

    def open_dataset(self, filename_or_obj, **options):
        options = {name: value for name, value in options.items() if name not in FOREIGN}
        dataset = super().open_dataset(filename_or_obj, **options)
        OPENED.append(filename_or_obj)
        return dataset


@pytest.fixture(autouse=True)
def ours(request, monkeypatch):
    for mark in request.node.iter_markers("skip_if_param"):  # xarray's own, of its conftest
        given = getattr(request.node, "callspec", None)
        wanted = {k: v for k, v in mark.kwargs.items() if k not in ("reason", "condition")}
        if mark.kwargs.get("condition", True) and given and wanted.items() <= given.params.items():
            pytest.skip(mark.kwargs["reason"])
    if request.node.originalname in LEFT_OUT:
        pytest.skip(LEFT_OUT[request.node.originalname])
    find = plugins.get_backend
    taken = request.cls.TAKEN
    monkeypatch.setattr(plugins, "get_backend", lambda e: Ours() if e in taken else find(e))
    OPENED.clear()
    yield
    if request.node.originalname.removeprefix("test_") in READS:
        # Of `mask_and_scale`, the test itself skips what netCDF4 alone can write.
        name = request.node.name
        assert OPENED or "bad_unsigned" in name or "unsigned_false" in name


def of_reading(cls):
    """Without the tests that are not in `READS`."""
    for name in dir(cls):
        if name.startswith("test_") and name.removeprefix("test_") not in READS:
            setattr(cls, name, None)
    return cls


@of_reading
class TestNetCDF4(theirs.TestNetCDF4Data):
    TAKEN = ("netcdf4",)


@of_reading
class TestNetCDF3(theirs.TestNetCDF3ViaNetCDF4Data):
    TAKEN = ("netcdf4",)


@of_reading
class TestZarr(theirs.TestZarrDirectoryStore):
    TAKEN = ("zarr",)


class TestNetCDF4_slow(theirs.TestNetCDF4Data):
    TAKEN = ("netcdf4",)


class TestNetCDF3_slow(theirs.TestNetCDF3ViaNetCDF4Data):
    TAKEN = ("netcdf4",)


class TestH5netcdf_slow(theirs.TestH5NetCDFData):
    TAKEN = ("h5netcdf", "netcdf4")


class TestZarr_slow(theirs.TestZarrDirectoryStore):
    TAKEN = ("zarr",)
