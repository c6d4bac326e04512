"""What ranks say of their lists before a way is chosen: bins, blocks, jumps; what is told of it."""

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.arrays.indices.masks import IndexWorkspace
from outcore.arrays.indices.prepared import parse_points
from outcore.ranks.collective.lists.choice import (
    BinLayout,
    ListPrices,
    ListReport,
    choose_list_method,
    count_jumps,
)


def bins_of(array, key, owners=2):
    with IndexWorkspace(array.handle.core, writes=False) as held:
        points, lists = parse_points(array, key, held)
        flat = points.flat(lists)
    rest = points.core_shape[len(points.points) :]
    row = int(np.prod(rest, dtype=int)) * array.dtype.itemsize
    return BinLayout.of(points, array.info.layout, row, owners), flat


def test_touched_blocks_are_about_those_that_random_indices_touch(tmp_path):
    array = outcore.create(str(tmp_path / "a.npy"), (1 << 20,), "f8")
    rng = np.random.default_rng(0)
    for number in (10, 1000, 100_000):
        indices = rng.integers(0, 1 << 20, number)
        bins, flat = bins_of(array, indices)
        exact = len(np.unique(indices // 512))
        found = bins.estimate_touched(_core.count_bins(flat, bins.width, bins.number))
        assert bins.all == 2048
        assert 0.5 * exact <= found <= min(1.5 * exact + 1, bins.all)


@pytest.mark.parametrize(
    ("chunks", "key", "most"),
    [
        ((8, 10), (np.arange(64),), 8 * 4),  # all rows: all chunks
        ((8, 10), (np.zeros(5, int), np.s_[:10]), 1),
        ((8, 10), (np.array([0, 63]), np.array([0, 39])), 2),
    ],
)
def test_chunks_that_are_touched_are_at_most_those_there_are(tmp_path, chunks, key, most):
    array = outcore.create(str(tmp_path / "a.zarr"), (64, 40), "f8", chunks=chunks)
    bins, flat = bins_of(array, key)
    assert bins.encoded
    assert (bins.block, bins.all) == (8 * 10 * 8, 32)
    found = bins.estimate_touched(_core.count_bins(flat, bins.width, bins.number))
    assert 1 <= found <= most


@pytest.mark.parametrize("owners", [1, 64, 5000, 100_000])
@pytest.mark.parametrize("row", [1, 2])
def test_each_owner_of_many_gets_its_part_of_the_bytes(tmp_path, owners, row):
    elements = 1 << 24
    array = outcore.create(str(tmp_path / "a.npy"), (elements,), f"u{row}")
    rng = np.random.default_rng(owners)
    bins, _ = bins_of(array, [0], owners)
    # So many for each owner, and no more than few owners need.
    most = {1: 4096, 64: 1 << 18, 5000: 1 << 18, 100_000: 3_200_000}[owners]
    assert 0.8 * most < bins.number <= most
    everywhere = rng.integers(0, elements, 1 << 22)
    clustered = elements // 4 + rng.integers(0, elements // 4, 1 << 22)
    # An element of a bin is in one part: so parts differ by one bin more or less.
    for flat, share in ((everywhere, 1), (clustered, 4)):
        sums = _core.count_bins(flat, bins.width, bins.number)
        part = _core.cut_bins(sums, owners, 1)
        asked = np.bincount(part, weights=sums * row, minlength=owners)
        mean = flat.size * row / owners
        assert asked.sum() == flat.size * row
        assert asked.min() > 0
        assert asked.max() <= mean + 2 * sums.max() * row
        if owners <= 5000:
            assert asked.max() <= (1 + 0.1 * share) * mean
        # A share in the order of the file for each owner.
        assert (np.diff(part.astype(np.int64)) >= 0).all()


def test_jumps_are_counted_or_estimated():
    rng = np.random.default_rng(1)
    for indices in (np.arange(1 << 20), rng.permutation(1 << 20), np.repeat(np.arange(512), 2048)):
        exact = int(np.count_nonzero(np.diff(indices // 512)))
        assert abs(count_jumps(indices, 512) - exact) <= 0.02 * exact + 2048
    assert count_jumps(np.zeros(0, np.int64), 512) == 0


def test_what_is_asked_for_is_done_and_the_report_says_why():
    prices = ListPrices(5_000_000, 3_000_000, 4_000_000)
    assert choose_list_method(prices, "collective", "auto", write=False) == (
        "collective",
        "it costs least",
    )
    assert choose_list_method(prices, "collective", "direct", write=False) == (
        "direct",
        "asked for",
    )
    write = ListPrices(None, 3_000_000, 4_000_000)
    method, why = choose_list_method(write, "collective", "auto", write=True)
    assert method == "collective"
    assert "do not write independently" in why
    report = ListReport(
        *("read", 4, "collective", "it costs least", prices, 1 << 20, 256, 4096, 1000),
        *((0, 1, 2, 3), 2, 2, 1 << 19),
    )
    lines = str(report).splitlines()
    assert lines[0] == "read     4 ranks want 1.05 MB of listed elements together"
    assert "prices   direct 5 ms, collective 3 ms, pipelined 4 ms" in lines
    assert lines[-1] == "owners   4, 2 rounds of 524 kB at most, 2 groups in turn"


def test_more_ranks_that_decode_the_same_chunks_make_owners_cheaper():
    def cheapest(ranks):
        wanted = [(1 << 20, 1 << 20, 1000, 0)] * ranks
        stored = (8, 1 << 20, 1000, 1000, True)
        owned = (ranks, 1, True, False)
        disk = (1 << 14, 9_500, 2_600_000_000, 2_800_000_000)
        said = {"oversubscription": 1000, "disk": disk, "write": False}
        return _core.list_prices(wanted, stored, owned, **said)[3]

    assert cheapest(4) == "collective"
