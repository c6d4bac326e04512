"""
Salt and pepper taken off an image that does not fit in memory, by a median filter.

Look at the share of wrong pixels before and after, and at the bytes that were moved: the image is
read once and written once, though each pixel is looked at nine times. (PASSION, section 4.5.)

    python examples/median.py                             2000 x 3000, 4 MiB
    python examples/median.py --size 40000 --memory 512MiB --picture median.png
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
    parser.add_argument("--size", type=int, default=2000, help="rows; half as many columns more")
    parser.add_argument("--memory", default="4MiB")
    parser.add_argument("--window", type=int, default=3)
    parser.add_argument("--picture", metavar="FILE", help="draw a part of it (needs matplotlib)")
    words = parser.parse_args(arguments)

    rng = np.random.default_rng(0)
    rows, columns = words.size, words.size * 3 // 2
    image = outcore.create("image.npy", (rows, columns), "f4")
    for low in range(0, rows, 100):
        slab = clean(low, min(low + 100, rows), columns)
        noise = rng.random(slab.shape)
        slab[noise < 0.02], slab[noise > 0.98] = 0, 2
        image[low : low + 100] = slab
    planned: Any = outcore.median_filter(
        image, words.window, out="cleaned.npy", overwrite=True, memory=words.memory, explain=True
    )
    with planned.run() as cleaned:
        print(planned)
        for name, array in (("before", image), ("after", cleaned)):
            wrong = sum(
                int(
                    (
                        np.abs(array[low : low + 100] - clean(low, min(low + 100, rows), columns))
                        > 0.2
                    ).sum()
                )
                for low in range(0, rows, 100)
            )
            print(f"wrong pixels {name}: {wrong / (rows * columns):.3%}")
        if words.picture:
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(1, 2)
            for axis, array in zip(axes, (image, cleaned), strict=True):
                axis.imshow(array[:200, :200], cmap="gray", vmin=0, vmax=2)
            plt.savefig(words.picture)
    image.close()


def clean(low: int, high: int, columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Rows of the image without noise."""
    rows = np.arange(low, high, dtype="f4")[:, None]
    return np.sin(rows / 60) * np.cos(np.arange(columns, dtype="f4") / 90) * np.float32(0.5) + 1


if __name__ == "__main__":
    main()
