"""
Lines whose length cannot be divided: a transform as a convolution of another length.

Problem. A line that does not fit in memory is transformed as a matrix of N1 rows and N2 columns. A
prime length, or one with a large prime factor, has no such matrix that fits.
Idea. Bluestein's: since ``2 j k = j^2 + k^2 - (k - j)^2``, a transform of length n is a convolution
with a chirp, between two products with chirps. A convolution may be longer than necessary; this one
has a length N1 N2 with small factors. It has three passes: columns forward (after the product with
the chirp); rows forward, times the transform of the other chirp, and back; columns back (before the
product with the chirp). Since the product is element by element, frequencies need no reordering
between the passes: the third pass reads what the second one wrote, in the same order. Rows are
counted in the order of the line, so it is read and written in place, as rows of which the last one
is incomplete. A kernel makes the chirp of the convolution: its columns are transformed once, its
rows together with the rows of the lines.

Invariants. Angles of chirps are reduced as integers, so long lines lose no digits.

References: Bluestein, "A linear filtering approach to the computation of discrete Fourier
transform", IEEE Trans. Audio Electroacoustics 18 (1970); Bailey, "FFTs in external or hierarchical
memory", J. Supercomputing 4 (1990).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from outcore.compute.fourier.kernels import FourierStage
from outcore.compute.fourier.transforms import Transforms
from outcore.compute.jobs import InsufficientBuffersError, Terms

__all__ = ["PaddedWork", "choose_sizes", "make_padded_work"]

Shape = tuple[int, ...]
# Largest ratio of the two parts of a length to its square root.
_UNEVEN = 64


class PaddedWork(NamedTuple):
    """Work of the passes: one over the chirp, then three over the lines."""

    chirp: Transforms
    columns: Transforms
    rows: Transforms
    back: Transforms


def make_padded_work(
    line: FourierStage,
    conj: bool,
    dtypes: Sequence[np.dtype[Any]],
    parts: Shape,
    axes: Shape,
    made: int,
    count: int,
) -> PaddedWork:
    """
    Return the work of each pass.

    `parts` are the rows of a line and the elements of a row, along `axes`. `dtypes` are those of
    the input, of complex elements, and of the result, which has `made` elements. `count` elements
    of the input count; the others are 0. With `conj`, the result is conjugated.
    """
    (n1, n2), (down, along) = parts, axes
    read, between, written = dtypes
    whole, n = n1 * n2, line.length
    chirp = FourierStage("chirp", down, n, line.forward, "backward", along, n2, count)
    chirp = chirp if line.forward else replace(chirp, norm="forward")
    columns = FourierStage("c2c", down, n1)
    twiddle = FourierStage("twiddle", down, whole, other=along)
    wave = FourierStage("filter", down, n, line.forward, other=along, row=n2, count=made)
    first: tuple[FourierStage, ...] = (chirp, columns, twiddle)
    blocks: tuple[np.dtype[Any], ...] = (between,)
    if read != between:
        first, blocks = (FourierStage("cast"), *first), (read, between)
    rows = (
        FourierStage("c2c", along, n2),
        FourierStage("product", along, n2),
        FourierStage("c2c", along, n2, False),
        FourierStage("twiddle", along, whole, False, other=down),
    )
    last: tuple[FourierStage, ...] = (
        FourierStage("c2c", down, n1, False),
        replace(chirp, norm=line.norm, count=made),
    )
    if conj:
        last = (*last, FourierStage("conj"))
    ends: tuple[np.dtype[Any], ...] = (between,)
    if written != between:
        last, ends = (*last, FourierStage("real")), (between, written)
    return PaddedWork(
        Transforms((between,), ({down: n1},), stages=(wave, columns, twiddle)),
        Transforms(blocks, ({down: n1},) * len(blocks), stages=first),
        Transforms((between,), ({along: n2},), stages=rows, beside=True),
        Transforms(ends, ({down: n1},) * len(ends), stages=last),
    )


def choose_sizes(
    line: FourierStage, conj: bool, dtypes: Sequence[np.dtype[Any]], made: int, terms: Terms
) -> Shape:
    """
    Return rows and columns of the longer line, such that one column and one row fit.

    Arguments are as for `make_padded_work`, with the complete line as input. Raises
    `InsufficientBuffersError` with a sufficient number of bytes.
    """
    wanted = line.length + made - 1
    itemsize, cores = dtypes[1].itemsize, terms.cores
    fits: list[tuple[bool, float, Shape]] = []
    least: list[int] = []
    for n1, n2 in _iterate_matrices(wanted):
        done = make_padded_work(line, conj, dtypes, (n1, n2), (0, 1), made, line.length)
        needed = max(one.least(cores) for one in done)
        least.append(needed)
        if needed > terms.room:
            continue
        busy = all(one.most(terms.room, cores, busy=True) for one in done)
        most = [one.most(terms.room, cores, busy=busy) for one in done]
        wide, high = min(most[0], most[1], most[3], n2), min(most[2], n1)
        # The line is read and written in pieces of rows; tiles between passes are written and read.
        requests = 2 * line.length / wide + 5 * n1 * n2 / (wide * high)
        seconds = terms.disk.seconds(int(requests), 5 * n1 * n2 * itemsize)
        fits.append((not busy, seconds, (n1, n2)))
    if not fits:
        raise InsufficientBuffersError(min(least))
    return min(fits)[2]


def _iterate_matrices(wanted: int) -> Iterator[Shape]:
    """Yield pairs of smooth numbers with the smallest products of at least `wanted`."""
    smooth = _list_smooth((math.isqrt(wanted) + 1) * 2 * _UNEVEN)
    low, high = math.isqrt(wanted) // _UNEVEN, math.isqrt(wanted) * _UNEVEN
    for n1 in smooth[bisect_left(smooth, max(low, 2)) : bisect_left(smooth, max(high, 3))]:
        yield n1, smooth[bisect_left(smooth, max(-(-wanted // n1), 2))]


@cache
def _list_smooth(most: int) -> list[int]:
    """Return the numbers up to `2 * most`, so one above `most` too, whose prime factors are 2, 3, 5."""
    found = [1]
    for p in (2, 3, 5):
        for n in found:  # grows
            if n * p <= 2 * most:
                found.append(n * p)
    return sorted(found)
