"""
xarray's own tests of its engines, run on ours: written by netCDF4 or zarr, opened by outcore.

Wherever these tests open a path with the engine of the format, by whatever function, ours takes its
place. Those that open nothing, or something other than a path, are left out, each with its reason.
"""

import os

import pytest

pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("netCDF4")
pytest.importorskip("zarr")

from xarray.backends import plugins
from xarray.tests import test_backends as theirs
from xarray.tests.test_backends import default_zarr_format  # noqa: F401

from outcore.xarray_engine import OutcoreBackendEntrypoint

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of xarray, zarr and netCDF4 about each other
]

#: What our engine opened, by test.
OPENED = {}
FOREIGN = ("consolidated", "zarr_format", "storage_options", "mode", "lock", "cache_members")
FOREIGN += (
    "phony_dims",
    "invalid_netcdf",
    "decode_vlen_strings",
    "auto_complex",
    "store",
    "engine",
)


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
        OPENED[os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]] = True
        return dataset


@pytest.fixture(autouse=True)
def ours(request, monkeypatch):
    name = request.node.originalname
    reason = request.cls.LEFT_OUT.get(name) or LEFT_OUT.get(name)
    if reason:
        pytest.skip(reason)
    find = plugins.get_backend
    taken = request.cls.TAKEN
    monkeypatch.setattr(plugins, "get_backend", lambda e: Ours() if e in taken else find(e))


#: Tests, and why our engine has no part in them.
LEFT_OUT = {}


class TestNetCDF4(theirs.TestNetCDF4Data):
    TAKEN = ("netcdf4",)
    LEFT_OUT = {}


class TestH5netcdf(theirs.TestH5NetCDFData):
    TAKEN = ("h5netcdf", "netcdf4")
    LEFT_OUT = {}


class TestZarr(theirs.TestZarrDirectoryStore):
    TAKEN = ("zarr",)
    LEFT_OUT = {}
