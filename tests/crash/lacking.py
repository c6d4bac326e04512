"""The child of `test_lacking`: all that outcore does to files, where a file system lacks a call."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable

import numpy as np

import outcore
from outcore.testing.sim import SimWorld

DATA = np.arange(60 * 40, dtype="<i4").reshape(60, 40)
#: A path of each format, and what it is created with.
KINDS = {
    "npy": ("a.npy", {}),
    "raw": ("a.raw", {}),
    "parts": ("a.parts", {"parts": 2}),
    "zarr": ("a.zarr", {"chunks": (20, 40)}),
    "zarr zstd": ("z.zarr", {"chunks": (20, 40), "compression": "zstd"}),
    "zarr shards": ("s.zarr", {"chunks": (10, 40), "shards": (20, 40), "compression": "gzip"}),
    "zarr2": ("a.zarr2", {"chunks": (20, 40), "compression": "zstd"}),
    "zarr in a store": ("g.zarr::/g/a", {"chunks": (20, 40), "compression": "zstd"}),
    "hdf5": ("a.h5::/a", {}),
    "hdf5 gzip": ("g.h5::/g/a", {"chunks": (20, 40), "compression": "gzip", "resizable": True}),
    "netcdf4": ("a.nc::/a", {"dims": ("y", "x")}),
    "netcdf3": ("c.nc::/a", {"format": "netcdf3_classic", "dims": ("y", "x")}),
}
HINTS = [{}, {"method": "mapped"}, {"method": "list"}, {"threads": 1, "cache": "bypass"}]


def main() -> None:
    failed = []

    def attempt(name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception:
            failed.append(f"{name}: {traceback.format_exc()}")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for kind, (path, options) in KINDS.items():
            attempt(kind, lambda: of_one_array(kind, path, options))  # noqa: B023
        attempt("checkpoints", checkpoints)
        attempt("ranks", ranks)
        attempt("jobs", jobs)
    for one in failed:
        print(one, file=sys.stderr)
    said = [str(one.message) for one in told if "file system" in str(one.message)]
    print(len(said), *said, sep="\n")
    sys.exit(bool(failed))


def of_one_array(kind: str, path: str, options: dict[str, object]) -> None:
    """Create, read, write, append, replace, convert, compute."""
    known = {"dtype": "<i4", "shape": (-1, 40)} if kind == "raw" else {}
    outcore.create(path, data=DATA, **options).close()
    expected = DATA.copy()
    for hints in HINTS:
        with outcore.open(path, "r+", hints=hints, **known) as a:
            same(a[...], expected)
            same(a[3:50:3, ::7], expected[3:50:3, ::7])
            same(a[[5, 3, 59], 2:], expected[[5, 3, 59], 2:])
            a[7:33, 5::2] = expected[7:33, 5::2] = -7
            a.flush()
        with outcore.open(path, hints=hints, **known) as a:
            same(a[...], expected)
    if kind in ("npy", "raw", "parts", "hdf5 gzip") or kind.startswith("zarr"):
        with outcore.open(path, "r+", **known) as a:
            a.append(DATA[:3])
            same(a[-3:], DATA[:3])
    outcore.create(path, data=DATA, overwrite=True, **options).close()
    with outcore.open(path, **known) as a:
        for suffix in ("npy", "zarr", "h5"):
            outcore.convert(a, f"to-{kind}.{suffix}")
            with outcore.open(f"to-{kind}.{suffix}") as b:
                same(b[...], DATA)
        with outcore.transpose(a, out=f"turned-{kind}.npy") as b:
            same(b[...], DATA.T)
        with outcore.sum(a, axis=0, out=f"sum-{kind}.npy") as b:
            same(b[...], DATA.sum(axis=0))
    group = outcore.open_group(f"group-{kind}.{'zarr' if 'zarr' in kind else 'h5'}", "w")
    group.create("v", data=DATA[0]).close()
    group.attrs["a"] = 1
    same(group["v"][...], DATA[0])


def checkpoints() -> None:
    values = DATA.astype("f8")
    with (
        outcore.create("m.npy", data=values) as a,
        outcore.matmul(a, values.T, out="product.npy") as product,
    ):
        same(product[...], values @ values.T)
    for number in range(2):
        outcore.mpi.checkpoint("state", {"x": DATA + number, "n": number})
    with_all = outcore.mpi.restore("state")
    same(with_all["x"], DATA + 1)


def ranks() -> None:
    def work(comm: object) -> None:
        with outcore.open("ranks.zarr", "w", shape=(60, 40), dtype="i4", chunks=(20, 40),
                          compression="zstd", comm=comm) as a:  # fmt: skip
            a.write_all(np.s_[comm.rank :: 2], DATA[comm.rank :: 2])
            same(a.read_all(), DATA)
        rows = outcore.mpi.Distribution((60, 40), ["block", "*"], 2)
        for number in range(2):
            with outcore.mpi.create_placed(
                "local", rows, "i4", placement="local", comm=comm, overwrite=bool(number)
            ) as a:
                a.write_section(..., DATA[comm.rank * 30 :][:30])
        with outcore.mpi.disk_array("d", (60, 40), "f8", keep=False, comm=comm) as d:
            d.array.write_all(np.s_[comm.rank :: 2], DATA[comm.rank :: 2])
            same(d.array.read_all(), DATA)

    SimWorld(2).run(work)


def jobs() -> None:
    """Temporary results, a job that is interrupted and goes on."""
    with outcore.open("a.npy") as a:
        t = outcore.transpose(a)
        same(t[...], DATA.T)
        t.close()

        def stop(now: int, total: int) -> None:
            raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            outcore.transpose(a, out="resumed.npy", progress=stop)
        with outcore.transpose(a, out="resumed.npy", resume=True) as b:
            same(b[...], DATA.T)
    assert not outcore.jobs.unfinished("."), os.listdir(".")


def same(found: object, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(found), expected)


if __name__ == "__main__":
    main()
