"""Record variables of classic NetCDF files, read and written by ranks together."""

import numpy as np
import pytest

import outcore
from ranks import ranks

netCDF4 = pytest.importorskip("netCDF4")

DATA = np.arange(40 * 30, dtype="f8").reshape(40, 30)


@ranks(1, 2, 3, 5, per_node=(None, 2))
@pytest.mark.parametrize("method", ["auto", "two-phase", "direct"])
def test_ranks_share_the_records_of_a_file(world, folder, method):
    path = folder / "a.nc"

    def body(t):
        with outcore.open_group(path, "w", format="netcdf3_64bit_offset", comm=t) as group:
            for name in ("a", "b"):
                kind = "f8" if name == "a" else "i2"
                words = {"dims": ("t", "x"), "unlimited": "t"}
                group.create(name, (40, 30), kind, **words).close()
        with outcore.open(f"{path}::/a", "r+", comm=t) as a:
            a.write_all(np.s_[t.rank :: t.size, :], DATA[t.rank :: t.size], method=method)
            np.testing.assert_array_equal(
                DATA[:, t.rank :: 2], a.read_all(np.s_[:, t.rank :: 2], method=method)
            )
        with outcore.open(f"{path}::/b", "r+", comm=t) as b:
            assert not b.read_all().any()  # what lies between the records of the other one
            b.write_all(
                np.s_[:, t.rank :: t.size], DATA[:, t.rank :: t.size].astype("i2"), method=method
            )
        with outcore.open(f"{path}::/a", comm=t) as a:
            np.testing.assert_array_equal(DATA, a.read_all())
        if t.rank == 0:
            with netCDF4.Dataset(path) as file:
                np.testing.assert_array_equal(DATA, file["a"][:])
                np.testing.assert_array_equal(DATA, file["b"][:])
        t.barrier()

    world.run(body)
