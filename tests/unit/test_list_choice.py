"""What ranks say of their lists before a way is chosen: bins, blocks, jumps; what is told of it."""

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.collective.list_choice import Bins, ListPrices, ListReport, choose, jumps_in
from outcore.index_schedule import points_of
from outcore.masks import Held


def bins_of(array, key, owners=2, ranks=2):
    with Held(array._core, writes=False) as held:
        points, lists = points_of(array, key, held)
        flat = points.flat(lists)
    rest = points.core_shape[len(points.points) :]
    row = int(np.prod(rest, dtype=int)) * array.dtype.itemsize
    return Bins.of(points, array.info.layout, row, owners, ranks), flat


def test_touched_blocks_are_about_those_that_random_indices_touch(tmp_path):
    array = outcore.create(str(tmp_path / "a.npy"), (1 << 20,), "f8")
    rng = np.random.default_rng(0)
    for number in (10, 1000, 100_000):
        indices = rng.integers(0, 1 << 20, number)
        bins, flat = bins_of(array, indices)
        exact = len(np.unique(indices // 512))
        found = bins.touched(_core.count_bins(flat, bins.width, bins.number))
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
    found = bins.touched(_core.count_bins(flat, bins.width, bins.number))
    assert 1 <= found <= most


def test_jumps_are_counted_or_estimated():
    rng = np.random.default_rng(1)
    for indices in (np.arange(1 << 20), rng.permutation(1 << 20), np.repeat(np.arange(512), 2048)):
        exact = int(np.count_nonzero(np.diff(indices // 512)))
        assert abs(jumps_in(indices, 512) - exact) <= 0.02 * exact + 2048
    assert jumps_in(np.zeros(0, np.int64), 512) == 0


def test_what_is_asked_for_is_done_and_the_report_says_why():
    prices = ListPrices(5_000_000, 3_000_000, 4_000_000)
    assert choose(prices, "collective", "auto", write=False) == ("collective", "it costs least")
    assert choose(prices, "collective", "direct", write=False) == ("direct", "asked for")
    write = ListPrices(None, 3_000_000, 4_000_000)
    method, why = choose(write, "collective", "auto", write=True)
    assert method == "collective"
    assert "no rank writes alone" in why
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
