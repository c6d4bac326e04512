"""Random distributions, equal on every rank."""

import math
import random

import numpy as np

from owners import Case

STRIDES = [1, 1, 1, -1, 2, -3, 5]


def grid_of(rng, ranks, ndim):
    """A grid of so many ranks in so many axes, as unequal as chance has it."""
    grid = [1] * ndim
    left, factor = ranks, 2
    while left > 1:
        if left % factor:
            factor += 1
            continue
        left //= factor
        grid[rng.randrange(ndim)] *= factor
    return tuple(grid)


def random_distribution(rng: random.Random, shape, ranks, *, one_piece=False):
    """A distribution of an array of a shape; with `one_piece` no rank has more than one block."""
    ndim = len(shape)
    # More axes of the grid than are used: copies. None are used: everybody has all of it.
    grid = grid_of(rng, ranks, rng.randint(1, ndim + 1))
    used = rng.randint(rng.random() > 0.1, min(ndim, len(grid)))
    along = rng.sample(range(len(grid)), used) + [None] * (ndim - used)
    rng.shuffle(along)
    formats, align, cells = [], [], []
    for n, axis in zip(shape, along, strict=True):
        over = 1 if axis is None else grid[axis]
        stride = rng.choice(STRIDES)
        before, behind = (rng.choice([0, 0, 1, 7]) for _ in range(2))
        span = abs(stride) * max(n - 1, 0)
        used_cells = before + span + 1 if n else 0
        cells.append(used_cells + behind)
        extent = cells[-1] if behind else None
        align.append((stride, before if stride > 0 else before + span, extent))
        lengths = [rng.randint(0, 5) for _ in range(over)]
        lengths[rng.randrange(over)] += max(0, cells[-1] - sum(lengths))
        least = max(1, math.ceil(cells[-1] / over))
        kinds = ["block", ("block", least + rng.randint(0, 3)), ("general", lengths)]
        if not one_piece:
            kinds += ["cyclic", ("cyclic", rng.randint(1, 5))]
        formats.append("*" if axis is None else rng.choice(kinds))
    return Case(shape, formats, grid, align, cells, along)


def random_shape(rng: random.Random):
    """1 to 4 axes, short ones where there are many; one may be empty."""
    ndim = rng.randint(1, 4)
    most = (60, 24, 11, 6)[ndim - 1]
    shape = [rng.randint(1, most) for _ in range(ndim)]
    if rng.random() < 0.05:
        shape[rng.randrange(ndim)] = 0
    return tuple(shape)


def widths_of(rng: random.Random, case):
    """Ghost widths for a distribution: none on axes that are assigned in turns."""
    turns = [f == "cyclic" or f[0] == "cyclic" for f in case.formats]
    return [(0, 0) if t else (rng.randint(0, 3), rng.randint(0, 3)) for t in turns]


def part(data, indices):
    """Of an array what lies at these indices of each axis."""
    return data[np.ix_(*indices)]
