"""
Arrays eight times larger than the memory budget, in the formats people have.

Files are made by the libraries that own the formats (numpy, h5py, netCDF4, zarr), in a process of
their own. Then outcore reads and writes sections, walks, converts. Each step prints its rate and the
memory that the process took for it, measured by the kernel; every element is compared with what it
must be, files that outcore wrote by reading them with the library that owns the format.

    ./x demo                     512 MiB arrays, 64 MiB budget, in ./demo-data
    ./x demo --mib 128           smaller
"""

# h5py, netCDF4, zarr and xarray do not type all that they offer; what is outcore's is checked.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore

CHUNKS = (256, 1024)


def truth(key: tuple[Any, ...], shape: tuple[int, int]) -> NDArray[np.float32]:
    """What the elements of a section must be: exact in float32, and different almost everywhere."""
    rows = np.arange(shape[0], dtype=np.float32)[key[0]]
    columns = np.arange(shape[1], dtype=np.float32)[key[1]]
    return np.asarray(np.add.outer(rows * np.float32(0.5), columns * np.float32(0.25)))


def slabs(shape: tuple[int, int]) -> list[tuple[slice, slice]]:
    return [(slice(i, min(i + 512, shape[0])), slice(None)) for i in range(0, shape[0], 512)]


def make_files(folder: Path, shape: tuple[int, int]) -> None:
    """The inputs, each by the library that owns the format."""
    import h5py
    import netCDF4
    import zarr.codecs

    npy = np.lib.format.open_memmap(folder / "in.npy", "w+", "f4", shape)
    with (
        h5py.File(folder / "in.h5", "w") as h5,
        netCDF4.Dataset(folder / "in.nc", "w") as nc,
    ):
        h5set = h5.create_dataset(
            "group/field",
            shape,
            "f4",
            chunks=CHUNKS,
            compression="gzip",
            compression_opts=1,
            shuffle=True,
        )
        h5set.attrs["units"] = "kelvin"
        nc.createDimension("y", shape[0])
        nc.createDimension("x", shape[1])
        variable = nc.createVariable("field", "f4", ("y", "x"), contiguous=True)
        z = zarr.create_array(
            folder / "in.zarr",
            shape=shape,
            dtype="f4",
            chunks=CHUNKS,
            compressors=zarr.codecs.ZstdCodec(),
        )
        for key in slabs(shape):
            data = truth(key, shape)
            npy[key] = data
            h5set[key] = data
            variable[key] = data
            z[key] = data
    npy.flush()


def walk(array: outcore.DiskArray) -> None:
    """Read all of an array, a block at a time."""
    for _ in array.blocks():
        pass


def compare(array: outcore.DiskArray, shape: tuple[int, int]) -> None:
    """Compare all elements of an array."""
    for key, block in array.blocks():
        np.testing.assert_array_equal(block, truth(key, shape))


def check_with_owner(path: Path, shape: tuple[int, int]) -> None:
    """Compare every element of a file that outcore wrote, read by its own library."""
    import h5py
    import xarray
    import zarr

    def check(array: Any) -> None:
        assert tuple(array.shape) == shape, (array.shape, shape)
        for key in slabs(shape):
            np.testing.assert_array_equal(np.asarray(array[key]), truth(key, shape))

    if path.suffix == ".npy":
        check(np.load(path, mmap_mode="r"))
    elif path.suffix == ".zarr":
        check(zarr.open_array(path, mode="r"))
    elif path.suffix == ".nc":
        with xarray.open_dataset(path, cache=False) as data:
            check(data["field"])
    else:
        with h5py.File(path) as file:
            check(file["field"])


def apart(work: Callable[..., None], *arguments: Any) -> None:
    """Run in a process of its own, so that its memory is not ours."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"demo: {work.__name__} failed")


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


class Steps:
    """
    Runs and prints one step after the other.

    An array that a step returns is its result, which does not count as memory of outcore.
    """

    def __init__(self) -> None:
        self.highest = 0
        print(f"\n{'step':<44} {'MiB':>6} {'s':>6} {'MiB/s':>7} {'peak MiB':>9}")

    def __call__(self, name: str, nbytes: int, work: Callable[[], Any]) -> Any:
        Path("/proc/self/clear_refs").write_text("5")  # starts the high-water mark anew
        before, started = status("VmRSS"), time.monotonic()
        result = work()
        seconds = max(time.monotonic() - started, 1e-6)
        own: int = result.nbytes if isinstance(result, np.ndarray) else 0
        peak = max(status("VmHWM") - before - own, 0)
        self.highest = max(self.highest, peak)
        mib = nbytes / 2**20
        print(f"{name:<44} {mib:>6.0f} {seconds:>6.2f} {mib / seconds:>7.0f} {peak / 2**20:>9.1f}")
        return result


def run(folder: Path, mib: int) -> None:
    shape = (8192, mib * 2**20 // 4 // 8192)
    nbytes = shape[0] * shape[1] * 4
    budget = nbytes // 8
    print(f"arrays of {shape[0]} x {shape[1]} float32, {mib} MiB; budget {budget / 2**20:.0f} MiB")
    started = time.monotonic()
    apart(make_files, folder, shape)
    print(f"made in.npy, in.h5, in.nc, in.zarr in {time.monotonic() - started:.1f} s")
    inputs = ["in.npy", "in.h5::/group/field", "in.nc::/field", "in.zarr"]
    outcore.memory(budget)

    with outcore.open(folder / "in.npy") as a:
        for title, key in (
            ("every 7th row, every 5th column", np.s_[::7, ::5]),
            ("a column", np.s_[:, 5]),
        ):
            print(f"\nplan for {title} of in.npy:")
            print("\n".join(f"  {line}" for line in str(a.explain(key)).splitlines()))

    step = Steps()
    for name in inputs:
        with outcore.open(f"{folder}/{name}") as a:
            assert a.shape == shape
            sections: dict[str, tuple[slice, slice]] = {
                "rows": np.s_[1000:1500, :],
                "columns": np.s_[:, 100:400],
                "strided": np.s_[-1::-7, 3::5],
            }
            for what, section in sections.items():
                useful = truth(section, shape).nbytes
                read = functools.partial(a.read, section)
                got = step(f"read {what} of {name}", useful, read)
                np.testing.assert_array_equal(got, truth(section, shape))
                del got

            step(f"walk through {name}", nbytes, functools.partial(walk, a))
            compare(a, shape)

    def write() -> None:
        with outcore.create(folder / "out.npy", shape, "f4") as out:
            for key in slabs(shape):
                out[key[0], ::2] = truth((key[0], slice(None, None, 2)), shape)
                out[key[0], 1::2] = truth((key[0], slice(1, None, 2)), shape)
            out.flush()

    step("write out.npy by strided sections, fsync", nbytes, write)
    apart(check_with_owner, folder / "out.npy", shape)
    (folder / "out.npy").unlink()

    conversions: list[tuple[str, str, dict[str, Any]]] = [
        ("in.npy", "out.zarr", {"chunks": (512, 512), "compression": "zstd"}),
        ("in.zarr", "out.h5::/field", {"chunks": (256, 1024)}),
        ("in.h5::/group/field", "out.npy", {"order": "F"}),
        ("in.npy", "out.nc::/field", {"dims": ("y", "x")}),
    ]
    for source, target, options in conversions:
        words = ", ".join(f"{k}={v}" for k, v in options.items() if k in ("order", "compression"))
        step(
            f"convert {source} to {target} {words}",
            nbytes,
            functools.partial(
                outcore.convert, f"{folder}/{source}", f"{folder}/{target}", **options
            ),
        )
        made = folder / target.partition("::")[0]
        apart(check_with_owner, made, shape)
        shutil.rmtree(made) if made.is_dir() else made.unlink()

    allowed = budget + 64 * 2**20
    print(f"\nhighest peak besides results {step.highest / 2**20:.1f} MiB, ", end="")
    print(f"budget {budget / 2**20:.0f} MiB; every element was compared")
    if step.highest > allowed:
        sys.exit(f"demo: that is more than the budget and 64 MiB ({allowed / 2**20:.0f} MiB)")


def note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"  note: {message}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mib", type=int, default=512, help="size of the arrays, at least 128")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parents[1] / "demo-data")
    words = parser.parse_args()
    room, needed = shutil.disk_usage(words.folder.parent).free, 7 * words.mib * 2**20
    if room < needed:
        sys.exit(
            f"demo: needs {needed / 2**30:.1f} GiB in {words.folder.parent}, {room / 2**30:.1f} are free"
        )
    warnings.showwarning = note
    started = time.monotonic()
    folder = words.folder / "outcore-demo"
    shutil.rmtree(folder, ignore_errors=True)  # what a demo that was killed left
    os.makedirs(folder)
    try:
        run(folder, words.mib)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"demo done in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
