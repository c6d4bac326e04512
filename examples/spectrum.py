"""
The spectrum of a long signal: windowed pieces, and all of it at once.

    python examples/spectrum.py                            2^20 samples, a budget of a quarter of them
    python examples/spectrum.py --samples 1073741824 --memory "512 MiB" --folder /scratch
    python examples/spectrum.py --picture spectrum.png     draws it; needs matplotlib

Two tones lie so close together that no windowed piece can tell them apart; the transform of the whole
signal does, although it does not fit in memory. Look at the plan: the signal is a matrix on disk, whose
columns and rows are transformed.
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

PIECE = 1024


def windowed(path: Path) -> NDArray[np.float64]:
    """Power of each frequency: the mean over windowed pieces (Welch's method, without overlap)."""
    window = np.hanning(PIECE)
    power, count = np.zeros(PIECE // 2 + 1), 0
    with outcore.open(path) as signal:
        for _, block in signal.blocks((64 * PIECE,)):
            pieces = block[: len(block) // PIECE * PIECE].reshape(-1, PIECE)
            power += (abs(np.fft.rfft(pieces * window)) ** 2).sum(axis=0)
            count += len(pieces)
    return power / count


def run(folder: Path, samples: int, memory: str | int, picture: Path | None) -> list[int]:
    """Make a signal, look at it both ways; the two loudest frequencies, in waves of the whole."""
    first = samples // 8
    tones = (first, first + 3)
    rng = np.random.default_rng(0)
    with outcore.create(folder / "signal.npy", (samples,), "f4") as signal:
        for start in range(0, samples, 1 << 20):
            k = np.arange(start, min(start + (1 << 20), samples))
            data = sum(np.sin(2 * np.pi * (k * tone % samples) / samples) for tone in tones)
            signal[start : start + len(k)] = data + rng.standard_normal(len(k))

    power = windowed(folder / "signal.npy")
    peak = int(power[1:].argmax()) + 1
    print(f"windowed: one peak, at {peak / PIECE:.6f} of the sampling rate")

    planned: Any = outcore.rfft(
        folder / "signal.npy", out=folder / "spectrum.npy", memory=memory, explain=True
    )
    loudest: list[tuple[float, int]] = []
    with planned.run() as spectrum:
        print(planned.report)
        for (part,), block in spectrum.blocks((1 << 16,)):
            sizes = abs(block)
            best = np.argsort(sizes)[-2:]
            loudest += [(float(sizes[k]), part.start + int(k)) for k in best]
        found = sorted(k for _, k in sorted(loudest)[-2:])
        if picture is not None:
            draw(power, spectrum, found, samples, picture)
    print("all at once: peaks at " + " and ".join(f"{k / samples:.6f}" for k in found))
    return found


def draw(
    power: NDArray[np.float64],
    spectrum: outcore.DiskArray,
    found: list[int],
    samples: int,
    picture: Path,
) -> None:
    """Power by pieces, and the whole around its peaks."""
    from matplotlib import pyplot

    low, high = max(found[0] - 20, 0), min(found[-1] + 20, spectrum.shape[0])
    _, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    left.semilogy(np.arange(len(power)) / PIECE, power)
    right.plot(np.arange(low, high) / samples, abs(spectrum[low:high]))
    pyplot.savefig(picture)
    print(f"drew {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=1 << 20)
    parser.add_argument("--memory", help="the budget; by default a quarter of the signal")
    parser.add_argument(
        "--folder", type=Path, help="where the files go; by default a temporary one"
    )
    parser.add_argument("--picture", type=Path, help="draw it there; needs matplotlib")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        run(Path(folder), words.samples, words.memory or words.samples, words.picture)


if __name__ == "__main__":
    main()
