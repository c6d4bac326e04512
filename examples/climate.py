"""
Mean and standard deviation over time of a climate cube in NetCDF, which does not fit in memory.

The cube (time, latitude, longitude) is compressed in chunks of some days. Look at the bytes: both
statistics come from one pass, in which each chunk is decoded once.

    python examples/climate.py                            two years of 45 x 90 points, 4 MiB
    python examples/climate.py --days 36500 --latitudes 180 --memory 512MiB --picture climate.png
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import outcore


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--days", type=int, default=730)
    parser.add_argument("--latitudes", type=int, default=45)
    parser.add_argument("--memory", default="4MiB")
    parser.add_argument("--picture", metavar="FILE", help="draw both maps (needs matplotlib)")
    words = parser.parse_args(arguments)

    shape = (words.days, words.latitudes, 2 * words.latitudes)
    cube = outcore.create(
        "climate.nc::/temperature",
        shape,
        "f4",
        chunks=(min(30, words.days), shape[1], shape[2]),
        compression="zstd",
        dims=("time", "lat", "lon"),
        attrs={"units": "K"},
    )
    rng = np.random.default_rng(0)
    latitude = np.linspace(-np.pi / 2, np.pi / 2, shape[1], dtype="f4")[:, None]
    for low in range(0, words.days, 30):
        day = np.arange(low, min(low + 30, words.days), dtype="f4")[:, None, None]
        season = -15 * np.sin(latitude) * np.cos(2 * np.pi * day / 365)
        weather = rng.normal(0, 3, (len(day), *shape[1:])).astype("f4")
        cube[low : low + 30] = 288 - 40 * np.sin(latitude) ** 2 + season + weather

    found: Any = outcore.statistics(cube, axis=0, memory=words.memory)
    mean, std = found["mean"], found["std"]
    print(
        f"mean at the equator {mean[shape[1] // 2].mean():.1f} K, at the poles {mean[0].mean():.1f} K"
    )
    print(
        f"standard deviation at the equator {std[shape[1] // 2].mean():.1f} K, "
        f"at the poles {std[0].mean():.1f} K"
    )
    if words.picture:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(2, 1)
        for axis, name, values in zip(
            axes, ("mean", "standard deviation"), (mean, std), strict=True
        ):
            axis.set_title(f"{name}, K")
            plt.colorbar(axis.imshow(values), ax=axis)
        plt.savefig(words.picture)
    cube.close()


if __name__ == "__main__":
    main()
