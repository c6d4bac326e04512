"""Ghosts that go round, on any blocks and of any width, against ``numpy.pad(mode="wrap")``."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpi.test_periodic import made, numbers, padded
from outcore.mpi import Distribution, ProcessGrid
from outcore.ranks.collective import traffic
from outcore.testing.sim import SimWorld

# Under mpiexec each rank would draw cases of its own.
pytestmark = pytest.mark.simulated

# Bytes of the largest message: one of several elements, of a few, of all.
LIMITS = [24, 100, 1 << 20]


@st.composite
def grids(draw, ranks, ndim):
    """Lengths along the axes whose product is the number of ranks; 1 where nothing is divided."""
    grid, left = [1] * ndim, ranks
    for factor in (5, 3, 2, 2):
        if left % factor == 0:
            grid[draw(st.integers(0, ndim - 1))] *= factor
            left //= factor
    return grid


@st.composite
def cases(draw):
    """A distribution in blocks, its ghosts, which axes go round, ranks, those of a node, a limit."""
    ranks = draw(st.integers(1, 5))
    ndim = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(1, (12, 7, 4)[ndim - 1]), min_size=ndim, max_size=ndim))
    formats, over = [], []
    for n, along in zip(shape, draw(grids(ranks, ndim)), strict=True):
        if along == 1:
            formats.append("*")
            continue
        over.append(along)
        ends = sorted(draw(st.lists(st.integers(0, n), min_size=along - 1, max_size=along - 1)))
        lengths = [b - a for a, b in zip([0, *ends], [*ends, n], strict=True)]
        size = math.ceil(n / along) + draw(st.integers(0, 2))
        formats.append(draw(st.sampled_from(["block", ("block", size), ("general", lengths)])))
    distribution = Distribution(shape, formats, ProcessGrid(over) if over else ranks)
    # Wider than a block, and than all of the axis.
    ghosts = [tuple(draw(st.integers(0, 2 * n + 2)) for _ in range(2)) for n in shape]
    periodic = draw(st.lists(st.booleans(), min_size=ndim, max_size=ndim))
    nodes = draw(st.sampled_from([None, 1, 2]))
    return distribution, ghosts, periodic, ranks, nodes, draw(st.sampled_from(LIMITS))


RING = (Distribution(3, [("general", [0, 1, 0, 2])], 4), [(8, 7)], [True], 4, 2, 24)


@settings(deadline=None, max_examples=120)
@given(cases())
@example(RING)
def test_they_are_what_numpy_wraps(case):
    """As they are brought; and added to what they are copies of, each as often as it is there."""
    distribution, ghosts, periodic, ranks, nodes, limit = case

    def body(t):
        a = made(t, distribution, ghosts, periodic)
        a.update_ghosts_all()
        np.testing.assert_array_equal(padded(a), a.local)
        index = a.local.copy()
        a.local[...] = np.random.default_rng(t.rank).integers(-99, 99, a.local.shape)
        given_values = a.local.copy()
        a.accumulate_ghosts_all("add")
        return index, given_values, a.gather_all()

    with mock.patch.object(traffic, "_LARGEST", limit):
        found = SimWorld(ranks, nodes, timeout=60).run(body)
    expected = np.zeros(math.prod(distribution.shape), "i8")
    for index, values, _ in found:
        np.add.at(expected, index.reshape(-1), values.reshape(-1))
    for _, _, gathered in found:
        np.testing.assert_array_equal(expected.reshape(distribution.shape), gathered)


@settings(deadline=None, max_examples=60)
@given(cases(), st.randoms(use_true_random=False))
def test_elements_change_hands_with_them(case, chance):
    """To other ghosts of the same blocks: those that go round stay what NumPy says."""
    distribution, ghosts, periodic, ranks, nodes, limit = case
    other = [(chance.randint(0, 2 * n), chance.randint(0, n)) for n in distribution.shape]
    goes = [not one for one in periodic]

    def body(t):
        a = made(t, distribution, ghosts, periodic)
        again = a.redistribute_all(distribution, ghosts=other, periodic=goes)
        np.testing.assert_array_equal(padded(again), again.local)
        np.testing.assert_array_equal(numbers(distribution.shape), again.gather_all())

    with mock.patch.object(traffic, "_LARGEST", limit):
        SimWorld(ranks, nodes, timeout=60).run(body)
