"""Tiles cover the array once, keep whole what must be whole, and fit."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outcore.tiling import Side, Tiling, choose


@st.composite
def sides(draw, ndim):
    order = draw(st.sampled_from("CF"))
    item = draw(st.sampled_from([1, 2, 4, 8, 24]))
    kind = draw(st.sampled_from(["dense", "chunked", "encoded", "sharded"]))
    if kind == "dense":
        return Side(item, order)
    chunks = tuple(draw(st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim)))
    if kind != "sharded":
        return Side(item, order, chunks, kind == "encoded")
    times = draw(st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim))
    return Side(item, order, chunks, True, tuple(n * k for n, k in zip(chunks, times, strict=True)))


@st.composite
def copies(draw):
    shape = tuple(draw(st.lists(st.integers(0, 40), max_size=3)))
    return shape, draw(sides(len(shape))), draw(sides(len(shape))), draw(st.integers(1, 5000))


@given(copies())
def test_tiles_cover_the_array_once_and_fit(copy):
    shape, source, target, most = copy
    tiles = choose(shape, source, target, most)
    if isinstance(tiles, int):
        chunk = target.chunks or (1,) * len(shape)
        least = math.prod(min(c, max(n, 1)) for c, n in zip(chunk, shape, strict=True))
        assert tiles == least
        assert least > most
        return
    assert math.prod(tiles.tile) <= most
    seen = np.zeros(shape, int)
    for k in range(len(tiles)):
        seen[tiles.key(k)] += 1
    assert (seen == 1).all()


@given(copies())
def test_no_encoded_chunk_is_written_twice(copy):
    shape, source, target, most = copy
    tiles = choose(shape, source, target, most)
    if isinstance(tiles, int) or not target.whole:
        return
    for size, chunk, length in zip(tiles.tile, target.chunks, shape, strict=True):
        assert size >= length or size % chunk == 0


@given(copies())
def test_nothing_is_handled_twice_if_the_budget_allows(copy):
    shape, source, target, _ = copy
    tiles = choose(shape, source, target, 10**9)
    assert isinstance(tiles, Tiling)
    for side in (source, target):
        whole = side.shards or (side.chunks if side.whole else None)
        for size, unit, length in zip(tiles.tile, whole or (1,) * len(shape), shape, strict=True):
            assert size >= length or size % unit == 0 or (side is source and side.shards)


def test_tiles_are_numbered_in_the_order_of_the_target():
    tiles = Tiling((4, 4), (2, 2), "F")
    assert tiles.key(1) == (slice(2, 4), slice(0, 2))
    assert Tiling((4, 4), (2, 2), "C").key(1) == (slice(0, 2), slice(2, 4))


def test_a_transposition_has_long_runs_on_both_sides():
    shape = (1 << 14, 1 << 14)
    rows, columns = Side(4, "C"), Side(4, "F")
    tiles = choose(shape, rows, columns, 1 << 22)
    assert rows.run(tiles.tile, shape) >= 1 << 14
    assert columns.run(tiles.tile, shape) >= 1 << 12


def test_runs_that_are_read_are_longer_than_those_that_are_written():
    """Both ways; at a budget of 256 MiB the runs are 32 KiB and about 11."""
    shape, most = (1 << 14, 1 << 14), 3 << 23
    rows, columns = Side(4, "C"), Side(4, "F")
    assert choose(shape, rows, columns, most).tile == (2731, 8192)
    assert choose(shape, columns, rows, most).tile == (8192, 2731)


def test_a_plain_copy_goes_in_slabs_that_leave_time_to_overlap():
    shape = (1 << 14, 1 << 14)
    tiles = choose(shape, Side(4, "C"), Side(4, "C"), 1 << 30)
    assert tiles.tile[1] == shape[1]
    assert len(tiles) >= 16
