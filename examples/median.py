"""
Salt and pepper taken off an image that does not fit in memory, by a median filter.

Look at the share of wrong pixels before and after, and at the bytes that were moved: the image is
read once and written once, though each pixel is looked at nine times. (PASSION, section 4.5.)

    python examples/median.py                             2000 x 3000, 4 MiB
    python examples/median.py --size 40000 --memory 512MiB --picture median.png
    mpiexec -n 4 python examples/median.py                ranks share the work
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
    parser.add_argument("--size", type=int, default=2000, help="rows; half as many columns more")
    parser.add_argument("--memory", default="4MiB")
    parser.add_argument("--window", type=int, default=3)
    parser.add_argument("--picture", metavar="FILE", help="draw a part of it (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    if comm.rank == 0:
        make(words.size, words.size * 3 // 2)
    comm.barrier()
    planned: Any = outcore.ndimage.median_filter(
        "image.npy",
        words.window,
        out="cleaned.npy",
        overwrite=True,
        memory=words.memory,
        comm=comm,
        explain=True,
    )
    with planned.run() as cleaned, outcore.open("image.npy") as image:
        if comm.rank == 0:
            print(planned)
            for name, array in (("before", image), ("after", cleaned)):
                print(f"wrong pixels {name}: {wrong(array) / array.size:.3%}")
            if words.picture:
                draw(image, cleaned, words.picture)


def make(rows: int, columns: int) -> None:
    """The image, with salt and pepper."""
    rng = np.random.default_rng(0)
    with outcore.create("image.npy", (rows, columns), "f4", overwrite=True) as image:
        for low in range(0, rows, 100):
            slab = clean(low, min(low + 100, rows), columns)
            noise = rng.random(slab.shape)
            slab[noise < 0.02], slab[noise > 0.98] = 0, 2
            image[low : low + 100] = slab


def wrong(array: outcore.DiskArray) -> int:
    """Pixels that are far from what they should be."""
    count, (rows, columns) = 0, array.shape
    for low in range(0, rows, 100):
        slab = clean(low, min(low + 100, rows), columns)
        count += int((np.abs(array[low : low + 100] - slab) > 0.2).sum())
    return count


def clean(low: int, high: int, columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Rows of the image without noise."""
    rows = np.arange(low, high, dtype="f4")[:, None]
    return np.sin(rows / 60) * np.cos(np.arange(columns, dtype="f4") / 90) * np.float32(0.5) + 1


def draw(image: outcore.DiskArray, cleaned: outcore.DiskArray, picture: str) -> None:
    """A corner of both, side by side."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 2)
    for axis, name, array in zip(axes, ("before", "after"), (image, cleaned), strict=True):
        axis.set_title(name)
        axis.imshow(array[:200, :200], cmap="gray", vmin=0, vmax=2)
    plt.savefig(picture)


if __name__ == "__main__":
    main()
