"""
Mean and standard deviation over time of a climate cube in NetCDF, which does not fit in memory.

The cube (time, latitude, longitude) is compressed in chunks of some days. Look at the bytes: both
statistics come from one pass, in which each chunk is decoded once.

    python examples/climate.py                            two years of 45 x 90 points, 6 MiB
    python examples/climate.py --days 36500 --latitudes 180 --memory 512MiB --picture climate.png
    mpiexec -n 4 python examples/climate.py               ranks share the work
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import numpy as np

import outcore
from outcore.mpi import transport, world


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--days", type=int, default=730)
    parser.add_argument("--latitudes", type=int, default=45)
    parser.add_argument("--memory", default="6MiB")
    parser.add_argument("--picture", metavar="FILE", help="draw both maps (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    shape = (words.days, words.latitudes, 2 * words.latitudes)
    if comm.rank == 0:
        make(shape)
    comm.barrier()
    planned: Any = outcore.statistics(
        "climate.nc::/temperature",
        axis=0,
        what=("mean", "std"),
        memory=words.memory,
        comm=comm,
        explain=True,
    )
    found = planned.run()
    if comm.rank == 0:
        print(planned)
        for name, told in (("mean", "mean"), ("std", "standard deviation")):
            equator, pole = found[name][shape[1] // 2].mean(), found[name][0].mean()
            print(f"{told} at the equator {equator:.1f} K, at the poles {pole:.1f} K")
        if words.picture:
            draw(found["mean"], found["std"], words.picture)


def make(shape: tuple[int, int, int]) -> None:
    """The cube: seasons, and weather."""
    rng = np.random.default_rng(0)
    latitude = np.linspace(-np.pi / 2, np.pi / 2, shape[1], dtype="f4")[:, None]
    with outcore.create(
        "climate.nc::/temperature",
        shape,
        "f4",
        chunks=(min(10, shape[0]), shape[1], shape[2]),
        compression="zstd",
        dims=("time", "lat", "lon"),
        attrs={"units": "K"},
        overwrite=True,
    ) as cube:
        for low in range(0, shape[0], 30):
            day = np.arange(low, min(low + 30, shape[0]), dtype="f4")[:, None, None]
            season = -15 * np.sin(latitude) * np.cos(2 * np.pi * day / 365)
            weather = rng.normal(0, 3, (len(day), *shape[1:])).astype("f4")
            cube[low : low + 30] = 288 - 40 * np.sin(latitude) ** 2 + season + weather


def draw(mean: Any, std: Any, picture: str) -> None:
    """Both maps."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(2, 1, layout="constrained")
    for axis, name, values in zip(axes, ("mean", "standard deviation"), (mean, std), strict=True):
        axis.set_title(f"{name}, K")
        plt.colorbar(axis.imshow(values), ax=axis)
    plt.savefig(picture)


if __name__ == "__main__":
    main()
