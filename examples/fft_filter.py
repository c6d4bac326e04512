"""
A low-pass filter of an image that is larger than memory, through its 2-D Fourier transform.

    python examples/fft_filter.py                          1024 x 768 pixels, a budget of a quarter of it
    python examples/fft_filter.py --rows 16384 --columns 16384 --memory "256 MiB" --folder /scratch
    python examples/fft_filter.py --picture filtered.png   draws it; needs matplotlib

Look at the plan: everything is moved in a few passes, whatever the budget is, and the report says how
much that is beside what any way has to move. The noise goes, the waves stay.
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore


def waves(rows: slice, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Three waves along each axis, which the filter keeps."""
    y = np.arange(rows.start, rows.stop)[:, None] / shape[0]
    x = np.arange(shape[1])[None, :] / shape[1]
    return np.asarray(np.sin(6 * np.pi * y) + np.cos(6 * np.pi * x))


def slabs(shape: tuple[int, int]) -> list[slice]:
    return [slice(k, min(k + 64, shape[0])) for k in range(0, shape[0], 64)]


def run(folder: Path, shape: tuple[int, int], memory: str | int, picture: Path | None) -> float:
    """Make an image, filter it; the largest error that is left."""
    rng = np.random.default_rng(0)
    with outcore.create(folder / "image.npy", shape, "f4") as image:
        for rows in slabs(shape):
            noise = rng.standard_normal((rows.stop - rows.start, shape[1]))
            image[rows] = waves(rows, shape) + 0.5 * noise

    planned: Any = outcore.rfft2(
        folder / "image.npy", out=folder / "spectrum.npy", memory=memory, explain=True
    )
    with planned.run() as spectrum:
        print(planned.report)
        # Frequencies above some waves across the image go, a slab at a time.
        across = np.arange(spectrum.shape[1])[None, :]
        for rows in slabs(spectrum.shape):
            along = np.arange(rows.start, rows.stop)[:, None]
            along = np.minimum(along, shape[0] - along)
            spectrum[rows] = spectrum[rows] * (along**2 + across**2 < 8**2)

    error = 0.0
    with outcore.irfft2(
        folder / "spectrum.npy", shape, out=folder / "filtered.npy", memory=memory
    ) as filtered:
        for rows in slabs(shape):
            error = max(error, float(abs(filtered[rows] - waves(rows, shape)).max()))
        if picture is not None:
            draw(folder, filtered, picture)
    print(f"largest difference from the waves without noise: {error:.3f}")
    return error


def draw(folder: Path, filtered: outcore.DiskArray, picture: Path) -> None:
    """Every so many pixels of both, side by side."""
    from matplotlib import pyplot

    step = max(filtered.shape[0] // 512, 1)
    _, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    with outcore.open(folder / "image.npy") as image:
        left.imshow(image[::step, ::step])
    right.imshow(filtered[::step, ::step])
    pyplot.savefig(picture)
    print(f"drew {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--memory", help="the budget; by default a quarter of the image")
    parser.add_argument(
        "--folder", type=Path, help="where the files go; by default a temporary one"
    )
    parser.add_argument("--picture", type=Path, help="draw it there; needs matplotlib")
    words = parser.parse_args()
    shape = (words.rows, words.columns)
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        run(Path(folder), shape, words.memory or shape[0] * shape[1], words.picture)


if __name__ == "__main__":
    main()
