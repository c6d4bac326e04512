"""What two-phase is taken to cost: what is done side by side counts once."""

import os
from dataclasses import replace

import numpy as np
import pytest

import outcore
from disks import SLOW
from outcore import _core, measured
from outcore.collective.choose import TOO_SMALL, Exchange, Prices, choose, share_of_price
from outcore.collective.communication_costs import ASSUMED
from outcore.collective.dry_run import dry_run
from outcore.collective.holes import key_of
from outcore.collective.price import counts, of_requests, price

RANKS, MIB = 4, 1 << 20


@pytest.fixture
def plan(tmp_path):
    """Of 64 MiB by columns: two rounds of four owners."""
    array = outcore.create(tmp_path / "a.npy", (4096, 4096), "f4", hints={"memory": 24 * MIB})
    seen = dry_run(array, [np.s_[:, r::RANKS] for r in range(RANKS)], method="two-phase")
    assert seen.plan.rounds >= 2 and len(seen.plan.owners()) == RANKS
    return seen.plan


def prices(parts, *, cached=0, own=10**12, arrays=1, **costs):
    exchange = Exchange((0,) * RANKS, replace(ASSUMED, barrier_ns=1_000, **costs))
    return Prices([(own, cached)] * RANKS, parts, exchange, arrays)


@pytest.mark.parametrize("oversubscription", [1000, 2000, 4000])
def test_disk_and_copies_of_other_rounds_go_on_at_once(plan, oversubscription):
    moved = plan.given_bytes * 10**9 // ASSUMED.copy
    beside, little = moved * oversubscription // (1000 * RANKS), 600_000 * oversubscription // 1000
    for parts in (10 * moved, moved, moved // 10):
        both = prices(parts, oversubscription=oversubscription).rounds(plan, write=False)
        alone = min(parts, beside) // plan.rounds  # the first read, or the last copy
        assert max(parts, beside) + alone <= both <= max(parts, beside) + alone + little
        # Copies out of the page cache take the processors that the exchange takes.
        assert prices(parts, cached=1000).rounds(plan, write=False) >= parts + moved
        assert prices(parts).rounds(plan, write=True) >= parts + moved


def test_ranks_copy_side_by_side(plan):
    """16 ranks on 2 processors went on their own, 437 ms: together took 289, the copies summed more."""
    ms = 1_000_000
    copy = plan.given_bytes * 10**9 // (480 * ms)
    for oversubscription, method in ((2000, "two-phase"), (4000, "direct")):
        found = prices(
            180 * ms, own=360 * ms // RANKS, oversubscription=oversubscription, copy=copy
        )
        assert choose(plan, found, write=False).method == method


def test_each_array_costs_a_processor_that_ranks_share(plan):
    one, many, contended = (
        prices(10**6, cached=1000, **more).rounds(plan, write=False)
        for more in ({}, {"arrays": 101}, {"arrays": 101, "oversubscription": 3000})
    )
    assert many - one == pytest.approx(100 * 50_000)
    assert contended - one == pytest.approx(302 * 50_000 + 2 * 300_000)


def test_what_the_disk_hardly_notices_is_not_exchanged(plan):
    """Two megabytes, of which two-phase reads half as much: it took 4.9 ms, and direct 3.0."""
    halved = prices(300_000, own=150_000, copy=10**12)
    assert choose(plan, halved, write=False).method == "direct"
    assert choose(plan, replace(halved, parts=10_000), write=False).method == "two-phase"


@pytest.mark.parametrize(
    ("own", "arrays", "oversubscription", "method"),
    [(3 * 10**6, 100, 1000, "direct"), (5 * 10**6, 100, 1000, "two-phase"),
     (5 * 10**6, 100, 2000, "direct"), (10**6, 1, 1000, "two-phase"),
     (10**5, 1, 1000, "direct"), (2 * 10**5, 1, 1000, "two-phase"), (2 * 10**5, 1, 2000, "direct"),
     (0, 1, 1000, "direct")],
)  # fmt: skip
def test_small_sections_are_not_planned(plan, own, arrays, oversubscription, method):
    """Whatever two-phase would save: here all but nothing is left of what they cost."""
    cheap = prices(0, own=own, arrays=arrays, oversubscription=oversubscription, copy=10**12)
    chosen = choose(plan, cheap, write=False)
    assert chosen.method == method
    assert (chosen.why == TOO_SMALL) == (method == "direct")
    assert choose(plan, cheap, write=True).why != TOO_SMALL


@pytest.mark.parametrize("name", ["a.zarr", "a.h5::/x"])
def test_chunks_that_ranks_share_are_decoded_once(tmp_path, name):
    """Every rank that wants a part of a chunk decodes all of it."""
    more = {"chunks": (256, 256), "compression": "gzip"}
    outcore.create(f"{tmp_path}/{name}", data=np.zeros((1024, 1024)), **more).close()
    with outcore.open(f"{tmp_path}/{name}") as array:
        for keys, method in (
            ([np.s_[:, r::RANKS] for r in range(RANKS)], "two-phase"),
            ([np.s_[:, 256 * r : 256 * (r + 1)] for r in range(RANKS)], "direct"),
        ):
            assert dry_run(array, keys).report.method == method


def test_holes_are_in_the_price_of_a_write(tmp_path):
    """Whose price was forgotten: where a quarter is given, together took 850 ms and each alone 640."""
    array = outcore.create(tmp_path / "a.npy", data=np.zeros((1024, 1024), "f4"))
    for step, holes in ((RANKS, False), (2 * RANKS, True)):
        keys = [np.s_[r::step] for r in range(RANKS)]
        plan = dry_run(array, keys, write=True, method="two-phase").plan
        for owner in plan.owners():
            ((_, box, given),) = plan.needed(owner)
            assert (given < np.prod([count for _, count, _ in box])) == holes
            read, write = (price(array, key_of(box), write=w) for w in (False, True))
            cost = share_of_price(plan, [array], owner, write=True)
            assert read > 0 and cost == write + holes * read


@pytest.mark.parametrize("exclusive", [False, True])
def test_what_is_too_sparse_to_be_rewritten_is_not_written_together(tmp_path, exclusive):
    """Every eighth element: 4.4 s together, piece by piece, on a slow device; MPI-IO 2.1."""
    hints = {"exclusive": exclusive}
    array = outcore.create(tmp_path / "a.npy", data=np.zeros((1024, 1024), "f4"), hints=hints)
    keys = [np.s_[r :: 2 * RANKS, r :: 2 * RANKS] for r in range(RANKS)]
    plan = dry_run(array, keys, write=True, method="two-phase").plan
    together = sum(share_of_price(plan, [array], owner, write=True) for owner in plan.owners())
    alone = sum(price(array, key, write=True) for key in keys)
    boxes = [key_of(box) for owner in plan.owners() for _, box, _ in plan.needed(owner)]
    rewritten = sum(price(array, box) + price(array, box, write=True) for box in boxes)
    if exclusive:
        assert together == rewritten
    else:
        assert together >= max(rewritten, 2 * alone)
        assert dry_run(array, keys, write=True).report.method == "direct"


@pytest.fixture
def slow_disk(tmp_path):
    _core.set_disks({os.stat(tmp_path).st_dev: SLOW})
    yield
    measured.use()


@pytest.mark.parametrize("sync", [False, True])
def test_what_is_read_first_is_changed_in_the_page_cache(tmp_path, slow_disk, sync):
    """Requests of a slow disk counted twice: neighbours in each row went direct, 134 ms; together 24."""
    path = tmp_path / "a.npy"
    outcore.create(path, data=np.zeros((512, 4096), "f4")).close()
    with path.open("rb") as other, outcore.open(path, "r+", hints={"sync": sync}) as array:
        os.fsync(other.fileno())
        os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        keys = [np.s_[:, 200 * r : 200 * (r + 1)] for r in range(RANKS)]
        found = counts(array, keys[0], write=True)
        if found.cached:
            pytest.skip("what this file system holds does not leave the memory")
        _, request_ns, device, stream = array._core.disk()
        assert found.reads < found.writes + found.pages
        few = price(array, keys[0], write=True)
        cold = of_requests(found.reads, found.read, (request_ns, device, stream))
        assert cold < few < cold + 5_000_000
        assert dry_run(array, keys, write=True).report.method == "two-phase"
