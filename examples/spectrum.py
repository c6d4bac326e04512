"""
The spectrum of a long signal: windowed pieces, and all of it at once.

    python examples/spectrum.py                            2^20 samples, a budget of a quarter of them
    python examples/spectrum.py --samples 1073741824 --memory "512 MiB"
    python examples/spectrum.py --picture spectrum.png     draws it; needs matplotlib
    mpiexec -n 4 python examples/spectrum.py               ranks share the work

Two tones lie so close together that no windowed piece can tell them apart; the transform of the whole
signal does, although it does not fit in memory. Look at the plan: the signal is a matrix on disk, whose
columns and rows are transformed.
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

PIECE = 1024


def windowed() -> NDArray[np.float64]:
    """Power of each frequency: the mean over windowed pieces (Welch's method, without overlap)."""
    window = np.hanning(PIECE)
    power, count = np.zeros(PIECE // 2 + 1), 0
    with outcore.open("signal.npy") as signal:
        for _, block in signal.blocks((64 * PIECE,)):
            pieces = block[: len(block) // PIECE * PIECE].reshape(-1, PIECE)
            power += (abs(np.fft.rfft(pieces * window)) ** 2).sum(axis=0)
            count += len(pieces)
    return power / count


def make(samples: int) -> None:
    """The signal: two tones, and noise."""
    first = samples // 8
    rng = np.random.default_rng(0)
    with outcore.create("signal.npy", (samples,), "f4", overwrite=True) as signal:
        for start in range(0, samples, 1 << 20):
            k = np.arange(start, min(start + (1 << 20), samples))
            tones = [
                np.sin(2 * np.pi * (k * tone % samples) / samples) for tone in (first, first + 3)
            ]
            signal[start : start + len(k)] = sum(tones) + rng.standard_normal(len(k))


def loudest(spectrum: outcore.DiskArray) -> list[int]:
    """The two loudest frequencies, in waves of the whole."""
    found: list[tuple[float, int]] = []
    for (part,), block in spectrum.blocks((1 << 16,)):
        sizes = abs(block)
        best = np.argsort(sizes)[-2:]
        found += [(float(sizes[k]), part.start + int(k)) for k in best]
    return sorted(k for _, k in sorted(found)[-2:])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1 << 20)
    parser.add_argument("--memory", help="the budget; by default a quarter of the signal")
    parser.add_argument("--picture", metavar="FILE", help="draw both (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    samples = words.samples
    if comm.rank == 0:
        make(samples)
    comm.barrier()
    planned: Any = outcore.fft.rfft(
        "signal.npy",
        out="spectrum.npy",
        overwrite=True,
        memory=words.memory or samples,
        comm=comm,
        explain=True,
    )
    with planned.run() as spectrum:
        if comm.rank == 0:
            print(planned.report)
            power, found = windowed(), loudest(spectrum)
            peak = int(power[1:].argmax()) + 1
            print(f"windowed: one peak, at {peak / PIECE:.6f} of the sampling rate")
            print("all at once: peaks at " + " and ".join(f"{k / samples:.6f}" for k in found))
            if words.picture:
                draw(power, spectrum, found, words.picture)


def draw(
    power: NDArray[np.float64], spectrum: outcore.DiskArray, found: list[int], picture: str
) -> None:
    """Power by pieces, and the whole around its peaks."""
    import matplotlib.pyplot as plt

    low, high = max(found[0] - 20, 0), min(found[-1] + 20, spectrum.shape[0])
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    left.set(title="windowed pieces", xlabel="of the sampling rate", ylabel="power")
    left.semilogy(np.arange(len(power)) / PIECE, power)
    right.set(title="all at once, around the peaks", xlabel="waves in the signal")
    right.plot(np.arange(low, high), abs(spectrum[low:high]))
    plt.savefig(picture)


if __name__ == "__main__":
    main()
