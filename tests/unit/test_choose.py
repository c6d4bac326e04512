"""What accesses are taken to cost, of ranks by themselves and of owners; and what is chosen for that."""

import os

import numpy as np
import pytest

import outcore
from disks import SLOW
from outcore import _core
from outcore.arrays import measured
from outcore.ranks.collective.dry_run import dry_run
from outcore.ranks.collective.items import make_key
from outcore.ranks.collective.rounds import make_owner

RANKS = 4


def price(array, key, **words):
    return _core.own_price([(array.handle.core, key)], **{"write": False, **words})[0]


def owner_price(plan, array, owner, **words):
    return make_owner(plan, owner, [array]).price(write=True, **words)


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
            read, write = (price(array, make_key(box), write=w) for w in (False, True))
            cost = owner_price(plan, array, owner)
            assert read > 0 and cost == write + holes * read


@pytest.mark.parametrize("exclusive", [False, True])
def test_sparse_writes_are_not_collective(tmp_path, exclusive):
    """Every eighth element: 4.4 s together, piece by piece, on a slow device; MPI-IO 2.1."""
    hints = {"exclusive": exclusive}
    array = outcore.create(tmp_path / "a.npy", data=np.zeros((1024, 1024), "f4"), hints=hints)
    keys = [np.s_[r :: 2 * RANKS, r :: 2 * RANKS] for r in range(RANKS)]
    plan = dry_run(array, keys, write=True, method="two-phase").plan
    together = sum(owner_price(plan, array, owner) for owner in plan.owners())
    alone = sum(price(array, key, write=True) for key in keys)
    boxes = [make_key(box) for owner in plan.owners() for _, box, _ in plan.needed(owner)]
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
    measured.apply_parameters()


@pytest.mark.parametrize("sync", [False, True])
def test_writes_that_read_first_use_the_page_cache(tmp_path, slow_disk, sync):
    """Requests of a slow disk counted twice: neighbours in each row went direct, 134 ms; together 24."""
    path = tmp_path / "a.npy"
    outcore.create(path, data=np.zeros((512, 4096), "f4")).close()
    with path.open("rb") as other, outcore.open(path, "r+", hints={"sync": sync}) as array:
        os.fsync(other.fileno())
        os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        keys = [np.s_[:, 200 * r : 200 * (r + 1)] for r in range(RANKS)]
        found = array.explain(keys[0], write=True)
        few, cached = array.handle.core.price(keys[0], True)
        if cached:
            pytest.skip("what this file system holds does not leave the memory")
        _, request_ns, device, stream = array.handle.core.disk()
        assert 0 < found.reads < found.writes + found.mapped_bytes // 4096
        busy = found.reads * request_ns + found.read_bytes * 10**9 // device
        cold = max(busy, found.read_bytes * 10**9 // stream)
        assert cold < few < cold + 5_000_000
        assert dry_run(array, keys, write=True).report.method == "two-phase"


def cached_method(array, key):
    found = array.explain(key)
    if found.page_cache_fraction != 1:
        pytest.skip("what was just written is not in the page cache, or nobody tells")
    return found.method


@pytest.mark.parametrize("name", ["a.zarr", "a.h5::/x"])
def test_page_faults_of_chunks_count(tmp_path, name):
    """Eight rows of each chunk through a new mapping: 13.9 ms, row by row 7.2."""
    path, more = f"{tmp_path}/{name}", {"chunks": (512, 1024), "compression": None}
    outcore.create(path, data=np.zeros((1024, 1024), "f4"), **more).close()
    with outcore.open(path) as array:
        assert cached_method(array, np.s_[::64]) == "straight"
        assert cached_method(array, np.s_[:, 5]) == "mapped"


@pytest.mark.parametrize(("name", "method"), [("a.zarr", "window"), ("a.h5::/x", "mapped")])
def test_a_mapping_that_serves_many_chunks_is_made_once(tmp_path, name, method):
    path, more = f"{tmp_path}/{name}", {"chunks": (64, 64), "compression": None}
    outcore.create(path, data=np.zeros((6400, 64)), **more).close()
    with outcore.open(path) as array:
        assert cached_method(array, np.s_[:, 5]) == method
