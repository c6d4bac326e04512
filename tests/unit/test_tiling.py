"""Tiles cover the array once, keep whole what must be whole, and fit."""

import itertools
import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outcore.arrays.tiling import (
    DiskSpeed,
    Side,
    Tiling,
    choose,
    count_passes,
    estimate_seconds,
    find_smallest,
)
from outcore.arrays.tiling.sides import order_axes


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
    assert 4 * tiles.tile[1] >= 3 << 12
    assert 4 * tiles.tile[0] >= 1 << 12


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


# How often chunks are handled


@st.composite
def axes(draw):
    """Shape, chunks of one side, chunks of the other and where index 0 lies in them."""
    ndim = draw(st.integers(1, 2))
    lists = [draw(st.lists(st.integers(1, n), min_size=ndim, max_size=ndim)) for n in (14, 6, 6)]
    start = tuple(draw(st.integers(0, n - 1)) for n in lists[2])
    return (*map(tuple, lists), start)


def boxes(tiles, cells_of):
    """Cells that each tile meets, what it shares with the one before it left out."""
    total, last = 0, None
    for k in range(len(tiles)):
        box = [(s.start, s.stop) for s in tiles.key(k)]
        new = list(box)
        moved = [d for d in range(len(box)) if last and last[d] != box[d]]
        if len(moved) == 1:
            (d,) = moved
            new[d] = (max(last[d][1], box[d][0]), box[d][1])
        pairs = zip(new, cells_of, strict=True)
        total += math.prod(
            len({(i * p + s) // n for i in range(b, e)}) for (b, e), (n, s, p) in pairs
        )
        last = box
    return total


@settings(deadline=None, max_examples=150)
@given(axes(), st.data())
def test_what_is_told_is_what_happens(case, data):
    shape, _, chunks, start = case
    step = tuple(data.draw(st.integers(1, 7)) for _ in shape)
    side = Side(1, data.draw(st.sampled_from("CF")), chunks, True, None, start, step)
    tile = tuple(data.draw(st.integers(1, n)) for n in shape)
    overlap = tuple(data.draw(st.integers(0, n)) for n in tile)
    first = tuple(data.draw(st.integers(-n, t - 1)) for n, t in zip(overlap, tile, strict=True))
    tiles = Tiling(shape, tile, side.order, first, overlap)
    assert count_passes(tiles, chunks, side) == boxes(tiles, side.cells(chunks, len(shape)))
    seen = np.zeros(shape, bool)
    for k in range(len(tiles)):
        seen[tiles.key(k)] = True
    assert seen.all()


@settings(deadline=None, max_examples=60)
@given(axes(), st.integers(1, 80))
def test_each_chunk_is_handled_once_whenever_any_tiles_of_that_size_do(case, most):
    shape, chunks, others, start = case
    source, target = Side(8, "C", chunks, True), Side(8, "C", others, True, None, start)

    def once(tiles):
        return all(
            count_passes(tiles, side.chunks, side)
            == math.prod(
                (n - 1 + s) // c + 1
                for n, (c, s) in zip(shape, side.edges(side.chunks, len(shape)), strict=True)
            )
            for side in (source, target)
        )

    chosen = choose(shape, source, target, most)
    if isinstance(chosen, Tiling) and once(chosen):
        assert find_smallest(shape, source, target) <= most
        return
    assert find_smallest(shape, source, target) > most
    sizes = [
        t for t in itertools.product(*(range(1, n + 1) for n in shape)) if math.prod(t) <= most
    ]
    for tile in sizes:
        for first in itertools.product(*map(range, tile)):
            assert not once(Tiling(shape, tile, "C", first))


def test_a_copy_whose_chunks_lie_askew_grows_where_that_saves_decoding():
    """Along the rows, where no edges are in common, though the other axis is the fast one."""
    source = Side(8, "C", (10, 10), True)
    target = Side(8, "C", (10, 10), True, None, (5, 0))
    tiles = choose((60, 60), source, target, 600)
    assert tiles.tile == (60, 10)
    assert count_passes(tiles, source.chunks, source) == 36
    tiles = choose((60, 60), source, target, 300)
    assert tiles.tile == (30, 10)
    assert count_passes(tiles, source.chunks, source) == (3 + 4 + 1) * 6


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.one_of(st.integers(1, 300), st.just(256)), min_size=1, max_size=2),
    st.sampled_from([1, 2, 4, 8, 16, 12]),
    st.sampled_from([(0, "C", "F"), (128, "F", "C"), (10, "C", "C")]),
    st.integers(400, 9000),
)
def test_edges_lie_between_pages_where_all_rows_have_them_there(shape, item, sides, most):
    page, (lead, here, there) = 256, sides
    target = Side(item, there, pages=(page, lead % page))
    tiles = choose(tuple(shape), Side(8, here), target, most)
    assert isinstance(tiles, Tiling)
    assert math.prod(tiles.tile) <= most
    seen = np.zeros(shape, np.int8)
    for k in range(len(tiles)):
        seen[tiles.key(k)] += 1
    assert (seen == 1).all()
    fast = 0 if there == "F" else len(shape) - 1
    alike = len(shape) == 1 or shape[fast] * item % page == 0
    if page % item == 0 and lead % item == 0 and alike and page // item <= most:
        edges = [tiles.ends(fast, k)[0] for k in range(1, tiles.grid[fast])]
        assert all((lead + edge * item) % page == 0 for edge in edges)


@st.composite
def chunk_files(draw):
    """Shape, chunks, order and itemsize of an array whose chunks are files of their own."""
    ndim = draw(st.integers(1, 3))
    chunks = draw(
        st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 32]), min_size=ndim, max_size=ndim)
    )
    shape = [draw(st.integers(1, 3 * chunk)) for chunk in chunks]
    order = draw(st.one_of(st.sampled_from("CF"), st.permutations(range(ndim)).map(tuple)))
    return tuple(shape), tuple(chunks), order, draw(st.sampled_from([1, 2, 4, 8, 12]))


def cut_pages(shape, chunks, order, item, section, page):
    """Whether a page of a chunk has bytes of a section and bytes of others, byte by byte."""
    fast = order_axes(order, len(shape))
    for cell in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks, strict=True))):
        # Nobody has what a chunk holds beyond the end of the array.
        owner = np.zeros(chunks, np.int8)
        owner[tuple(slice(0, n - k * c) for n, k, c in zip(shape, cell, chunks, strict=True))] = 2
        parts = tuple(
            slice(max(part.start - k * c, 0), max(part.stop - k * c, 0))
            for part, k, c in zip(section, cell, chunks, strict=True)
        )
        owner[parts] = np.minimum(owner[parts], 1)
        there = np.repeat(owner.transpose([*reversed(fast)]).ravel(), item)
        pages = (there[at : at + page] for at in range(0, len(there), page))
        if any({1, 2} <= set(one.tolist()) for one in pages):
            return True
    return False


@example(((1, 5, 1), (1, 6, 2), "F", 4), 16, 4)
@settings(deadline=None, max_examples=150)
@given(chunk_files(), st.sampled_from([16, 32]), st.integers(1, 4000))
def test_tiles_end_between_pages_of_chunks_that_are_files(array, page, most):
    shape, chunks, order, item = array
    target = Side(item, order, chunks, pages=(page, 0))
    tiles = choose(shape, Side(8, "C"), target, most)
    if not isinstance(tiles, Tiling):
        return
    seen = np.zeros(shape, np.int8)
    for section in map(tiles.key, range(len(tiles))):
        seen[section] += 1
        if target.count_shared_ends(shape, section) == 0:
            assert not cut_pages(shape, chunks, order, item, section, page)
    assert (seen == 1).all()


def test_parts_of_chunks_are_whole_pages_unless_that_is_bad_for_the_source():
    page = (4096, 0)
    rows, most = Side(4, "C", (128, 32768)), 1 << 25
    # 729 rows of 512 bytes would be no whole pages.
    assert choose((32768, 32768), rows, Side(4, "C", (32768, 128)), most).tile == (729, 32768)
    columns = Side(4, "C", (32768, 128), pages=page)
    tile = choose((32768, 32768), rows, columns, most).tile
    assert (tile[0] % 8, tile[1]) == (0, 32768)
    # Only whole columns have ends between pages; they would be read in runs of 4 bytes.
    thin = Side(4, "C", (4099, 1), pages=page)
    assert choose((8198, 8192), Side(4, "C"), thin, 1 << 20).tile[1] > 64


def test_whole_rows_are_taken_where_runs_would_end_within_pages():
    """Of 786 432 elements, rows of 8248 bytes as they are, not cut in two."""
    source, target = Side(8, "F"), Side(8, "C", pages=(4096, 128))
    assert choose((8000, 1031), source, target, 786_432).tile[1] == 1031
    # Without pages short writes wait for their neighbours, where reads are dear.
    dear = DiskSpeed(0, 1e-3, 1e8)
    assert choose((8000, 1031), source, Side(8, "C"), 786_432, disk=dear).tile[0] == 8000
    assert choose((8000, 1031), source, target, 786_432, disk=dear).tile[1] == 1031
    # As many requests on both sides.
    assert choose((8192, 8192), Side(4, "F"), target, 1 << 22).tile == (2048, 2048)


# What tiles have the disk do


@st.composite
def dense(draw):
    """Shape, tile, itemsize and order of an array that tiles divide evenly."""
    ndim = draw(st.integers(1, 3))
    tile = tuple(draw(st.lists(st.integers(1, 5), min_size=ndim, max_size=ndim)))
    parts = draw(st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim))
    shape = tuple(n * k for n, k in zip(tile, parts, strict=True))
    order = draw(st.one_of(st.sampled_from("CF"), st.permutations(range(ndim)).map(tuple)))
    return shape, tile, draw(st.sampled_from([1, 4, 8])), order


def fast_length(shape, order):
    """Elements along the axis that runs fastest."""
    return shape[order_axes(order, len(shape))[0]]


def extents(shape, section, itemsize, order, gap):
    """First and last byte of what is read for a section, by looking at each element."""
    fast = order_axes(order, len(shape))
    stride, strides = itemsize, {}
    for axis in fast:
        strides[axis], stride = stride, stride * shape[axis]
    places = np.zeros((), int)
    for axis in range(len(shape)):
        part = np.arange(section[axis].start, section[axis].stop) * strides[axis]
        places = np.add.outer(places, part)
    found = []
    for first in sorted(places.ravel().tolist()):
        if found and first - found[-1][1] < gap:
            found[-1][1] = first + itemsize
        else:
            found.append([first, first + itemsize])
    return found


@settings(deadline=None)
@given(dense(), st.integers(1, 200))
def test_reads_are_counted_as_they_will_be(array, gap):
    shape, tile, item, order = array
    told = Side(item, order).cost(shape, np.array([tile]), gap, write=False)
    tiles = Tiling(shape, tile, "C")
    # A hole between inner loops is joined before one that is further out, whatever is shorter.
    found = [extents(shape, tiles.key(k), item, order, gap) for k in range(len(tiles))]
    assert told.requests[0] >= sum(map(len, found))
    if gap == 1:
        assert told.requests[0] == sum(map(len, found))
        nbytes = sum(end - first for one in found for first, end in one)
        assert told.nbytes[0] == nbytes + 512 * told.requests[0]


@settings(deadline=None)
@given(dense(), st.sampled_from([16, 32]), st.integers(0, 31), st.data())
def test_ends_of_runs_within_pages_are_counted_as_they_are(array, page, lead, data):
    shape, tile, item, order = array
    tiles = Tiling(shape, tile, "C")
    section = tiles.key(data.draw(st.integers(0, len(tiles) - 1)))
    side = Side(item, order, pages=(page, lead % page))
    found = extents(shape, section, item, order, 1)
    ends = sum((place + lead % page) % page > 0 for run in found for place in run)
    told = side.count_shared_ends(shape, section)
    # Each of them, or all if runs do not begin alike.
    assert told in (ends, 2 * len(found)) and told >= ends
    if len(found) == 1 or (fast_length(shape, order) * item) % page == 0:
        assert told == ends


def test_tiles_follow_the_figures_of_the_disk():
    """Where requests are dear one side is read, or written, in order; where they are not, both alike."""
    shape, most = (32768, 32768), 192 << 20
    rows, columns = Side(4, "C"), Side(4, "F", pages=(4096, 0))
    fast, slow = DiskSpeed(30_000, 15e-6, 2e9), DiskSpeed(500_000, 5e-3, 1e8)

    def cut(disk):
        return choose(shape, rows, columns, most, disk=disk, ahead=False)

    assert cut(fast).tile == (11264, 16384)
    assert cut(slow).tile[0] == 32768
    for disk, other, times in ((fast, slow, 1), (slow, fast, 1.25)):
        mine, theirs = (
            estimate_seconds(cut(one), rows, columns, disk, ahead=False) for one in (disk, other)
        )
        assert mine < theirs / times


@settings(deadline=None, max_examples=60)
@given(copies(), st.integers(2, 8))
def test_each_rank_has_a_tile_if_there_are_so_many(copy, ranks):
    shape, source, target, most = copy
    alone, tiles = (choose(shape, source, target, most, ranks=n) for n in (1, ranks))
    if isinstance(alone, int):
        assert tiles == alone
        return
    chunk = (target.chunks if target.whole else None) or (1,) * len(shape)
    axes = [(n, min(c, max(n, 1))) for n, c in zip(shape, chunk, strict=True)]
    assert len(tiles) >= min(ranks, math.prod(-(-n // c) for n, c in axes))
