"""The solver of tile shapes: against nests that are walked step by step, and against known numbers."""

import itertools
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcore.arrays.schedule.solve import Nest, NestArray, Solution, Speed, solve

# A disk so slow that bytes are all that counts.
SLOW = Speed(0.0, 1e-3)


def product(width=8, **more):
    """The operands of a matrix product: loops are rows, columns and the inner axis."""
    a, b = (
        NestArray((0, 2), width, 2 * width, width, **more),
        NestArray((2, 1), width, 2 * width, width, **more),
    )
    return a, b, NestArray((0, 1), width, 2 * width, width, result=True, **more)


def walked(nest, order, tile):
    """Bytes moved and memory held, by doing it."""
    counts = [math.ceil(n / t) for n, t in zip(nest.extents, tile, strict=True)]
    steps = list(itertools.product(*[range(counts[axis]) for axis in order]))
    moved = memory = 0
    for one in nest.operands:

        def extent(axis, at):
            return min(tile[axis], nest.extents[axis] - at * tile[axis])

        last, again, seen = None, 0, set()
        for step in steps:
            at = dict(zip(order, step, strict=True))
            block = tuple(at[axis] for axis in one.axes)
            if block == last:
                again += 1
                continue
            last = block
            size = math.prod(extent(axis, at[axis]) for axis in one.axes) * one.width
            moved += size
            if one.result and block in seen:
                moved += size
            seen.add(block)
        kept = again > 0 or len(steps) == 1
        memory += math.prod(tile[axis] for axis in one.axes) * (one.kept if kept else one.streamed)
    return moved, memory


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.integers(1, 7)] * 3),
    st.integers(30, 1500),
    st.sampled_from([(), ((0, 1, 2), (1, 0, 2))]),
)
def test_small_nests_have_the_best_of_all_tiles_and_orders(extents, room, orders):
    # Chunks of one element: no request is better than another.
    operands = tuple(
        NestArray(one.axes, 8, 16, 8, result=one.result, chunks=(1, 1), whole=True)
        for one in product()
    )
    nest = Nest(extents, operands, orders)
    found = solve(nest, room, SLOW)
    best, least = math.inf, math.inf
    for order in orders or itertools.permutations(range(3)):
        for tile in itertools.product(*[range(1, n + 1) for n in extents]):
            moved, memory = walked(nest, order, tile)
            least = min(least, memory)
            if memory <= room:
                best = min(best, moved)
    if best == math.inf:
        assert found == least
    else:
        assert found.nbytes == best
        assert (found.nbytes, found.memory) == walked(nest, found.order, found.tile)
        assert found.memory <= room


def test_the_product_of_the_design_keeps_a_block_of_the_result():
    """50000^3 at 1 GiB: 220 GB, where 170 GB are the bound and slabs move 800 GB."""
    n, room = 50_000, 2**30
    operands = product(chunks=(1, 1), whole=True)  # long runs are not worth more memory
    found = solve(Nest((n, n, n), operands), room, Speed(0.0, 2.6e9))
    assert found.kept == (False, False, True)
    assert found.order[-1] == 2
    assert 170e9 < found.nbytes <= 221e9
    slabs = solve(Nest((n, n, n), operands, uncut=(2,)), room, Speed(0.0, 2.6e9))
    assert slabs.nbytes > 1.5 * found.nbytes


def test_a_thin_panel_is_read_once():
    found = solve(Nest((50_000, 50_000, 64), product()), 2**30, Speed(0.0, 2.6e9))
    assert 20.05e9 <= found.nbytes < 20.1e9
    assert sum(found.kept) == 1


def test_all_fits():
    nest = Nest((100, 100, 100), product())
    found = solve(nest, 3 * 100 * 100 * 8, SLOW)
    assert found.tile == (100, 100, 100)
    assert found.nbytes == found.memory == 240_000


def test_tiles_end_where_chunks_do():
    a, b, c = product(chunks=(300, 300), whole=True)
    found = solve(Nest((3000, 3000, 3000), (a, b, c)), 30 * 2**20, Speed(1e-5, 2e9))
    assert all(tile % 300 == 0 for tile in found.tile)


def test_a_halo_is_counted():
    """Rows with a border of 2 on each side: whole slabs, as high as there is memory for."""
    field = NestArray((0, 1), 8, 16, 8, halo=(4, 4))
    result = NestArray((0, 1), 8, 16, 8, result=True)
    found = solve(Nest((4000, 4096), (field, result)), 16 * 2**20, SLOW)
    assert found.tile[1] == 4096
    slabs = math.ceil(4000 / found.tile[0])
    elements, pages = (2 * 4000 + 4 * (slabs - 1)) * 4096, 5 * slabs
    assert elements * 8 <= found.nbytes <= elements * 8 + pages * 4096


def test_what_is_loaded_again_because_of_the_order_is_counted():
    """With the inner loop outside, parts of sums are stored and loaded again."""
    nest = Nest((4, 4, 4), product(chunks=(1, 1), whole=True), orders=((2, 0, 1),))
    found = solve(nest, 100, SLOW)
    assert (found.nbytes, found.memory) == walked(nest, found.order, found.tile)


@pytest.mark.parametrize("axes", [3, 4, 6])
def test_it_is_quick_and_pure(axes):
    extents = (4096, 5000, 3001, 17, 40, 9)[:axes]
    first, second = tuple(range(0, axes - 1)), tuple(range(1, axes))
    operands = (
        NestArray(first, 8, 16, 8),
        NestArray(second, 4, 8, 4, chunks=(100,) * (axes - 1), whole=True),
        NestArray((0, axes - 1), 8, 16, 8, result=True),
    )
    nest = Nest(extents, operands, orders=(tuple(range(axes)),))
    found = [solve(nest, 2**26, Speed(1e-5, 2e9, 1e11, 1e11)) for _ in range(2)]
    assert found[0] == found[1]
    assert isinstance(found[0], Solution)
    assert found[0].memory <= 2**26
    clock = time.process_time()
    solve(nest, 2**26, Speed(1e-5, 2e9, 1e11, 1e11))
    assert time.process_time() - clock < 1


def test_requests_keep_processors_from_a_product(monkeypatch):
    nest = Nest((12288,) * 3, product(), ((0, 1, 2), (1, 0, 2)), operations=2)
    speed = Speed(15e-6, 2e9, 160e9, 8e9)
    found = solve(nest, 384 * 2**20, speed)
    # Whole rows of b and c: more bytes than with squarer tiles, and half of the requests.
    assert found.tile[1] == 12288
    assert found.requests < 150_000
    monkeypatch.setattr("outcore.base.assumed_costs.REQUEST_DELAY", 0.0)
    other = solve(nest, 384 * 2**20, speed)
    assert other.nbytes < found.nbytes
    assert other.requests > 1.8 * found.requests
