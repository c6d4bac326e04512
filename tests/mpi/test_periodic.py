"""Ghosts that go round: as ``numpy.pad(mode="wrap")`` has them, on any ranks and of any width."""

import random

import numpy as np
import pytest

import outcore
from outcore.errors import DistributionError
from outcore.mpi import DistArray, Distribution, ProcessGrid
from outcore.ranks.collective import traffic
from outcore.ranks.dist.periodic import Torus
from ranks import ranks

NODES = (None, 2)


def numbers(shape, dtype="i8"):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def made(t, distribution, ghosts, periodic, dtype="i8"):
    """Elements are their numbers, ghosts are zero."""
    whole = numbers(distribution.shape, dtype)
    a = DistArray.zeros(distribution, dtype, transport=t, ghosts=ghosts, periodic=periodic)
    for key, view in a.pieces():
        view[...] = whole[key]
    return a


def padded(a):
    """What `local` has to be, of a part that is one box; by NumPy."""
    if not a.owned.size:
        return np.empty(a.distribution.local_shape(a.rank, list(a.ghosts), periodic=a.periodic))
    ((*own,),) = a.global_slices
    widths = [w if p else (0, 0) for w, p in zip(a.ghosts, a.periodic, strict=True)]
    whole = np.pad(numbers(a.shape, a.dtype), widths, mode="wrap")
    key = []
    for s, (low, high), goes, n in zip(own, a.ghosts, a.periodic, a.shape, strict=True):
        ends = (
            (s.start, s.stop + low + high)
            if goes
            else (max(s.start - low, 0), min(s.stop + high, n))
        )
        key.append(slice(*ends))
    return whole[tuple(key)]


@ranks(1, 2, 3, 5, 8, per_node=NODES)
@pytest.mark.parametrize("ghosts", [1, [(3, 5)], [(0, 2)], [(17, 1)]])
def test_on_a_ring(world, ghosts):
    """Wider than a part, and than all of the array; some ranks have nothing."""

    def body(t):
        for n in (1, 6, 7):
            a = made(t, Distribution(n, ["block"], t.size), ghosts, True)
            a.update_ghosts_all()
            assert np.array_equal(padded(a), a.local)
            assert a.owned.size or not a.local.size

    world.run(body)


@ranks(1, 2, 4, 6, per_node=NODES)
@pytest.mark.parametrize("periodic", [True, [True, False], [False, True]])
def test_on_a_torus_with_corners(world, periodic):
    def body(t):
        grid = ProcessGrid(size=t.size, ndim=2)
        a = made(t, Distribution((6, 9), ["block", "block"], grid), [(2, 1), 3], periodic)
        a.update_ghosts_all()
        assert np.array_equal(padded(a), a.local)
        owned = a.owned
        a.local[...] = -1
        owned[...] = 5
        a.update_ghosts_all()
        assert (a.local == 5).all()

    world.run(body)


def random_case(seed, size):
    """A distribution of many kinds over so many ranks, with ghosts on what is in blocks."""
    rng = random.Random(seed)
    ndim = rng.randint(1, 3)
    shape = tuple(rng.randint(1, 9) for _ in range(ndim))
    divided = rng.randint(0, ndim - 1)
    formats, ghosts = [], []
    for d, n in enumerate(shape):
        kind = rng.choice(["block", "general", "cyclic", "size"]) if d == divided else "*"
        if kind == "general":
            ends = sorted(rng.randint(0, n) for _ in range(size - 1))
            lengths = [b - a for a, b in zip([0, *ends], [*ends, n], strict=True)]
            kind = ("general", lengths)
        elif kind == "size":
            kind = ("block", -(-n // size) + rng.randint(0, 1))
        formats.append(kind)
        wide = (0, 0) if kind == "cyclic" else (rng.randint(0, 4), rng.randint(0, 12))
        ghosts.append(wide)
    periodic = [rng.random() < 0.7 for _ in shape]
    return Distribution(shape, formats, size), ghosts, periodic


@ranks(1, 2, 3, 5)
def test_any_distribution(world):
    """Updated, made by a function, redistributed, copied; and accumulated, element by element."""

    def body(t):
        for seed in range(15):
            distribution, ghosts, periodic = random_case(seed, t.size)
            a = made(t, distribution, ghosts, periodic)
            a.update_ghosts_all()
            shape = distribution.shape
            same = DistArray.from_function(
                lambda *i, shape=shape: np.ravel_multi_index(np.broadcast_arrays(*i), shape),
                distribution, "i8", transport=t, ghosts=ghosts, periodic=periodic,
            )  # fmt: skip
            assert np.array_equal(same.local, a.local), seed
            assert a.local.shape == distribution.local_shape(t.rank, ghosts, periodic=periodic)
            again = a.redistribute_all(distribution, ghosts=ghosts, periodic=periodic)
            assert np.array_equal(again.local, a.local), seed
            assert np.array_equal(numbers(shape), a.gather_all()), seed
            copied = a.copy_all()
            assert copied.periodic == a.periodic and np.array_equal(copied.local, a.local)
            # Each rank adds its number to all that it has; by hand the same, piece by piece.
            a.local[...] = t.rank + 1
            a.accumulate_ghosts_all("add")
            expected = np.zeros(shape, "i8")
            widths = list(a.ghosts)
            for rank in range(t.size):
                around = Torus(distribution, widths, tuple(periodic))
                for key in around.list_pieces(rank)[0]:
                    expected[key] += rank + 1
            assert np.array_equal(expected, a.gather_all()), seed

    world.run(body)


@ranks(1, 3, per_node=NODES)
@pytest.mark.parametrize("operation", ["add", "maximum", "last"])
def test_bits_do_not_depend_on_the_budget(world, operation, monkeypatch):
    """Floating-point sums in many rounds, of messages of a few elements, and in one."""

    def body(t):
        rng = np.random.default_rng(t.rank)
        start = rng.random((30, 12)) * 10.0 ** rng.integers(-9, 9, (30, 12))
        found = []
        for nbytes in (1 << 20, 200, 40):
            if t.rank == 0:
                monkeypatch.setattr(traffic, "_LARGEST", nbytes)
            t.barrier()
            a = DistArray.zeros(
                Distribution((7, 5), ["block", "*"], t.size),
                transport=t,
                ghosts=[4, 3],
                periodic=True,
            )
            a.local[...] = start[: a.local.shape[0], : a.local.shape[1]]
            a.accumulate_ghosts_all(operation)
            found.append(a.owned.copy())
            a.update_ghosts_all()
            whole = np.pad(a.gather_all(), ((4, 4), (3, 3)), mode="wrap")
            ((rows, _),) = a.global_slices if a.owned.size else ((slice(0, 0), None),)
            if a.owned.size:
                assert np.array_equal(whole[rows.start : rows.stop + 8], a.local)
            t.barrier()
        assert all(one.tobytes() == found[0].tobytes() for one in found)

    world.run(body)
    monkeypatch.undo()


@ranks(1, 3, 4)
def test_a_stencil_on_a_torus(world):
    """As with `numpy.roll`, and as the stencil of an array on disk has it."""
    x = np.random.default_rng(1).random((12, 10))
    laplace = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]) / 4

    def body(t):
        a = DistArray.zeros(
            Distribution(x.shape, ["block", "*"], t.size), transport=t, ghosts=1, periodic=True
        )
        for key, view in a.pieces():
            view[...] = x[key]
        for _ in range(4):
            request = a.iupdate_ghosts_all()
            request.wait()
            u = a.local
            if a.owned.size:
                a.owned[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        return a.gather_all()

    expected = x
    for _ in range(4):
        expected = sum(np.roll(expected, s, axis) for axis in (0, 1) for s in (1, -1)) / 4
    found = world.run(body)[0]
    assert np.allclose(expected, found)
    with outcore.stencil(x, laplace, steps=4, boundary="wrap") as b:
        assert np.allclose(found, b[...])


@ranks(1, 2, 3)
def test_files_and_copies_of_elements(world, folder):
    """Read with ghosts; written without; and of replicated axes each copy is its own torus."""
    path = f"{folder}/whole.npy"

    def body(t):
        if t.rank == 0:
            np.save(path, numbers((6, 5)))
        t.barrier()
        distribution = Distribution((6, 5), ["block", "*"], t.size)
        a = DistArray.zeros(distribution, "i8", transport=t, ghosts=[2, 1], periodic=True)
        with outcore.open(path, "r+", comm=t) as file:
            a.read_all(file, ghosts=True)
            assert np.array_equal(padded(a), a.local)
            a.local[...] += 100
            a.write_all(file)
        t.barrier()
        assert np.array_equal(numbers((6, 5)) + 100, np.load(path))
        copies = made(t, Distribution.replicated((4,), t.size), 2, True)
        copies.owned[...] += 10 * t.rank
        copies.update_ghosts_all()
        assert copies.local.tolist() == [n + 10 * t.rank for n in (2, 3, 0, 1, 2, 3, 0, 1)]
        t.barrier()

    world.run(body)


@ranks(2, 3)
def test_ranks_that_disagree_all_raise(world):
    def body(t):
        blocks = Distribution(6, ["block"], t.size)
        a = DistArray.zeros(blocks, transport=t, ghosts=1, periodic=t.rank == 0)
        for call in (a.update_ghosts_all, a.accumulate_ghosts_all):
            with pytest.raises(DistributionError) as caught:
                call()
            assert caught.value.code == "ranks-disagree"
        with pytest.raises(DistributionError) as caught:
            a.redistribute_all(blocks, ghosts=1, periodic=t.rank == 1)
        assert caught.value.code == "ranks-disagree"
        assert t.agree(t.rank) == t.size - 1  # they go on in step

    world.run(body)


@pytest.mark.parametrize("words", ["yes", [True], [True, 1], 1, None])
def test_words_that_are_none(words):
    with pytest.raises(DistributionError) as caught:
        DistArray.zeros(Distribution((4, 4), ["*", "*"], 1), ghosts=1, periodic=words)
    assert caught.value.code == "bad-distribution"


def test_memory_has_the_shape_of_ghosts_that_go_round():
    ring = Distribution(6, ["block"], 1)
    DistArray(ring, np.zeros(8), ghosts=1, periodic=True)
    with pytest.raises(DistributionError) as caught:
        DistArray(ring, np.zeros(6), ghosts=1, periodic=True)
    assert caught.value.code == "bad-distribution"
    assert DistArray.zeros(ring, ghosts=1).local.shape == (6,)
