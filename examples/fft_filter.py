"""
A low-pass filter of an image that is larger than memory, through its 2-D Fourier transform.

    python examples/fft_filter.py                          1024 x 768 pixels, a budget of a quarter of it
    python examples/fft_filter.py --rows 16384 --columns 16384 --memory "256 MiB"
    python examples/fft_filter.py --picture filtered.png   draws it; needs matplotlib
    mpiexec -n 4 python examples/fft_filter.py             ranks share the work

Look at the plan: everything is moved in a few passes, whatever the budget is, and the report says how
much that is beside what any way has to move. The noise goes, the waves stay.
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore.mpi import transport, world


def waves(rows: slice, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Three waves along each axis, which the filter keeps."""
    y = np.arange(rows.start, rows.stop)[:, None] / shape[0]
    x = np.arange(shape[1])[None, :] / shape[1]
    return np.asarray(np.sin(6 * np.pi * y) + np.cos(6 * np.pi * x))


def slabs(shape: tuple[int, int]) -> list[slice]:
    return [slice(k, min(k + 64, shape[0])) for k in range(0, shape[0], 64)]


def make(shape: tuple[int, int]) -> None:
    """The image: waves, and noise."""
    rng = np.random.default_rng(0)
    with outcore.create("image.npy", shape, "f4", overwrite=True) as image:
        for rows in slabs(shape):
            noise = rng.standard_normal((rows.stop - rows.start, shape[1]))
            image[rows] = waves(rows, shape) + 0.5 * noise


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--memory", help="the budget; by default a quarter of the image")
    parser.add_argument("--picture", metavar="FILE", help="draw both (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    shape = (words.rows, words.columns)
    how: Any = {"memory": words.memory or shape[0] * shape[1], "overwrite": True, "comm": comm}
    if comm.rank == 0:
        make(shape)
    comm.barrier()
    planned: Any = outcore.fft.rfft2("image.npy", out="spectrum.npy", explain=True, **how)
    with planned.run() as spectrum:
        # Frequencies above some waves across the image go; each rank takes slabs in turn.
        across = np.arange(spectrum.shape[1])[None, :]
        for rows in slabs(spectrum.shape)[comm.rank :: comm.size]:
            along = np.arange(rows.start, rows.stop)[:, None]
            along = np.minimum(along, shape[0] - along)
            spectrum[rows] = spectrum[rows] * (along**2 + across**2 < 8**2)
    comm.barrier()
    with outcore.fft.irfft2("spectrum.npy", shape, out="filtered.npy", **how) as filtered:
        if comm.rank == 0:
            print(planned.report)
            error = max(
                float(abs(filtered[rows] - waves(rows, shape)).max()) for rows in slabs(shape)
            )
            print(f"largest difference from the waves without noise: {error:.3f}")
            if words.picture:
                draw(filtered, words.picture)


def draw(filtered: outcore.DiskArray, picture: str) -> None:
    """Every so many pixels of both, side by side."""
    import matplotlib.pyplot as plt

    step = max(filtered.shape[0] // 512, 1)
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    left.set_title("with noise")
    right.set_title("filtered")
    with outcore.open("image.npy") as image:
        left.imshow(image[::step, ::step])
    right.imshow(filtered[::step, ::step])
    plt.savefig(picture)


if __name__ == "__main__":
    main()
