"""Operations on whole distributed arrays: against NumPy, in any distribution, with the same bits."""

import contextlib
import math
import random
from fractions import Fraction

import numpy as np
import pytest

import outcore
from mpi.distribution_cases import random_distribution
from mpi.test_one_sided import values_of
from outcore import _core
from outcore.errors import CollectiveError
from outcore.mpi import DistArray, Distribution, ProcessGrid
from outcore.ranks.dist import products, sums
from ranks import UNDER_MPI, collect, ranks

SIZES = (1, 2, 3, 5, 8)
PER_NODE = (None, 2)


def a_distribution(rng, shape, size):
    return random_distribution(random.Random(int(rng.integers(1 << 30))), shape, size).make()


def divided(t, how, whole, **options):
    made = DistArray.empty(how, whole.dtype, transport=t, **options)
    for key, view in made.pieces(ghosts=True):
        view[...] = whole[key]
    return made


def equal(expected, made):
    whole = made.gather_all()
    assert expected.dtype == whole.dtype
    np.testing.assert_array_equal(expected, whole)
    for key, view in made.pieces():  # copies too
        np.testing.assert_array_equal(expected[key], view)


@ranks(*SIZES, per_node=PER_NODE)
def test_elementwise_operations_are_those_of_numpy(world):
    def body(t):
        for seed in range(5):
            rng = np.random.default_rng([world.size, seed])
            shape = tuple(int(n) for n in rng.integers(1, 12, int(rng.integers(1, 4))))
            kinds = [("f8", "f4"), ("i4", "i8"), ("c16", "f8"), ("u1", "i2"), ("f8", "f8")][seed]
            x, y = (values_of(rng, shape, kind) for kind in kinds)
            how, other, third = (a_distribution(rng, shape, t.size) for _ in range(3))
            a, b = divided(t, how, x), divided(t, other, y)

            equal(2 * x + 3 * y, a.add_all(b, 2, 3))
            equal(x - y, a.add_all(b, b=-1) if seed != 3 else divided(t, how, x - y))
            out = DistArray.zeros(third, np.result_type(x, y), transport=t)
            assert a.add_all(b, 2, out=out) is out
            equal(2 * x + y, out)
            equal(np.maximum(x, y), a.map_all(np.maximum, b))
            equal((x + x * y).astype("c16"), a.map_all(lambda p, q: p + p * q, b, dtype="c16"))
            a.map_all(np.add, b, out=out)
            equal(np.add(x, y).astype(out.dtype), out)

            equal(x, a.copy_all())
            a.copy_all(out)
            equal(x.astype(out.dtype), out)
            c = DistArray.zeros(third, x.dtype, transport=t)
            a.copy_all(c)
            equal(x, c)
            c.add_all(c, out=c)
            equal(x + x, c)
            c.scale_all(3)
            equal(3 * (x + x), c)
            c.fill_all(5)
            equal(np.full(shape, 5, x.dtype), c)
            axes = tuple(int(axis) for axis in rng.permutation(len(shape)))
            equal(x.transpose(axes), a.transpose_all(axes))
            turned = a_distribution(rng, shape[::-1], t.size)
            equal(x.T, a.transpose_all(distribution=turned))
            equal(x, a)
            equal(y, b)

    world.run(body)


@ranks(*SIZES, per_node=PER_NODE)
def test_products_of_matrices_are_those_of_numpy(world):
    def body(t):
        for seed in range(6):
            rng = np.random.default_rng([world.size, seed])
            m, k, n = (int(x) for x in rng.integers(0 if seed == 5 else 1, 20, 3))
            kinds = [
                ("i8", "i8"),
                ("f8", "f4"),
                ("c16", "f8"),
                ("i4", "u1"),
                ("f8", "f8"),
                ("f8", "f8"),
            ][seed]
            x, y = values_of(rng, (m, k), kinds[0]), values_of(rng, (k, n), kinds[1])
            how = (
                a_distribution
                if seed != 5
                else lambda _, shape, size: Distribution(shape, ["block", "*"], size)
            )
            a, b = divided(t, how(rng, (m, k), t.size), x), divided(t, how(rng, (k, n), t.size), y)
            # Of small integers: no rounding.
            equal(x @ y, a.matmul_all(b))
            out = DistArray.zeros(how(rng, (m, n), t.size), (x @ y).dtype, transport=t)
            assert a.matmul_all(b, out=out) is out
            equal(x @ y, out)
            square = a.matmul_all(b, distribution=how(rng, (m, n), t.size))
            equal(x @ y, square)

    world.run(body)


@ranks(*SIZES, per_node=PER_NODE)
def test_products_in_panels_are_those_of_numpy(world, monkeypatch):
    """Panels of a few indices, and tiles of a few elements."""
    kinds = [("i8", "i8"), ("f8", "f4"), ("c16", "f8"), ("i1", "u1"), ("?", "?"), (">f8", "f2")]

    def body(t):
        for seed, (one, other) in enumerate(kinds):
            rng = np.random.default_rng([world.size, seed])
            m, k, n = (int(x) for x in rng.integers(1, 24, 3))
            x, y = values_of(rng, (m, k), one), values_of(rng, (k, n), other)
            a = divided(t, a_distribution(rng, (m, k), t.size), x)
            b = divided(t, a_distribution(rng, (k, n), t.size), y)
            equal(x @ y, a.matmul_all(b, distribution=a_distribution(rng, (m, n), t.size)))
            out = DistArray.zeros(a_distribution(rng, (m, n), t.size), "c16", transport=t)
            equal((x @ y).astype("c16"), a.matmul_all(b, out=out))

    monkeypatch.setattr(products, "_TILE", 200)
    for room in (1, 400):
        monkeypatch.setattr(products, "_LARGEST", room)
        world.run(body)


@ranks(1, 3)
def test_a_product_is_rounded_once_however_many_panels_there_are(world, monkeypatch):
    monkeypatch.setattr(products, "_LARGEST", 1)

    def body(t):
        # In the type of the result the 1 would be lost beside what is taken away again.
        for kind, to, large in (("f8", "f4", 2.0**24), ("f2", "f2", 2.0**11)):
            x, y = np.array([[large, 1, -large]], kind), np.ones((3, 2), kind)
            a = divided(t, Distribution((1, 3), ["*", "block"], t.size), x)
            b = divided(t, Distribution((3, 2), ["block", "*"], t.size), y)
            out = DistArray.zeros(Distribution((1, 2), ["*", "block"], t.size), to, transport=t)
            equal(np.ones((1, 2), to), a.matmul_all(b, out=out))

    world.run(body)


@contextlib.contextmanager
def budget(t, each):
    """So much for each rank beside what is held: threads have one budget; the peak begins anew."""
    collect(t)
    held, before = _core.memory_state()[0], outcore.memory()
    t.barrier()
    if t.rank == 0 or UNDER_MPI:
        outcore.memory(held + each * (1 if UNDER_MPI else t.size))
        _core.reset_memory_peak()
    t.barrier()
    try:
        yield
        t.barrier()
        assert _core.memory_state()[2] <= outcore.memory()
    finally:
        t.barrier()
        if t.rank == 0 or UNDER_MPI:
            outcore.memory(before)
        t.barrier()
        after = _core.memory_state()[0]
        t.barrier()
        assert after <= held


@ranks(1, 2, 5, per_node=PER_NODE)
def test_panels_are_as_wide_as_the_rank_with_the_least_room_has_them(world, monkeypatch):
    panels, allocate = [], products._Product.allocate

    def noted(product, wide):
        found = allocate(product, wide)
        panels.append(len(product.cuts))
        return found

    def body(t):
        n = 96
        lengths = [n - 2 * (t.size - 1), *[2] * (t.size - 1)]
        uneven = Distribution((n, n), [("general", lengths), "*"], t.size)
        columns = Distribution((n, n), ["*", "cyclic"], t.size)
        a = DistArray.from_function(lambda i, j: (3 * i + j) % 7, columns, transport=t)
        b = DistArray.from_function(lambda i, j: (i - 2 * j) % 5, columns, transport=t)
        expected = a.gather_all() @ b.gather_all()
        for each in (64 << 10, 16 << 10):
            out = DistArray.zeros(uneven, transport=t)
            with budget(t, each):
                a.matmul_all(b, out=out)
            equal(expected, out)

    monkeypatch.setattr(products._Product, "allocate", noted)
    world.run(body)
    assert max(panels) > 4


@ranks(1, 3)
def test_a_product_for_which_there_is_no_room_is_refused_on_all(world):
    def body(t):
        how = Distribution((400, 400), ["block", "*"], t.size)
        a = divided(t, how, np.eye(400, dtype="f4"))
        same = DistArray.zeros(how, "f4", transport=t)
        # A sum in float32 beside it.
        other = DistArray.zeros(how, "f8", transport=t)
        with budget(t, 64 << 10):
            with pytest.raises(CollectiveError) as caught:
                a.matmul_all(a, out=other)
            assert isinstance(caught.value.__cause__, outcore.BudgetError)
            a.matmul_all(a, out=same)
        equal(np.eye(400, dtype="f4"), same)

    world.run(body)


@ranks(*SIZES, per_node=PER_NODE)
def test_dots_have_the_same_bits_whoever_has_the_elements(world):
    def body(t):
        for seed, kind in enumerate(["f8", "f4", "c16", "f2", "c8", "g"]):
            rng = np.random.default_rng(seed)  # not of the number of ranks
            x, y = (
                rng.standard_normal((43, 11)) * 10.0 ** rng.integers(-12, 12, (43, 11))
                for _ in "xy"
            )
            if kind in ("c16", "c8"):
                x = x + 1j * y[::-1]
            if kind == "f2":
                x, y = x % 8, y % 8
            x, y = x.astype(kind), y.astype(kind)
            alone = DistArray(Distribution((43, 11), ["*", "*"], 1), x)
            expected = alone.dot_all(DistArray(alone.distribution, y))
            assert expected.dtype == x.dtype
            for trial in range(3):
                more = np.random.default_rng([world.size, seed, trial])
                a = divided(t, a_distribution(more, (43, 11), t.size), x)
                b = divided(t, a_distribution(more, (43, 11), t.size), y)
                assert a.dot_all(b).tobytes() == expected.tobytes()
            if kind == "f8":
                exact = sum(Fraction(float(p * q)) for p, q in zip(x.flat, y.flat, strict=True))
                assert expected == float(exact)

    world.run(body)


@ranks(1, 3)
def test_dots_of_odd_numbers(world):
    largest = np.finfo("f8").max
    cases = [
        ([np.inf, 1.0], [1.0, 1.0], np.inf),
        ([np.inf, 1.0, -np.inf], [1.0, 1.0, 1.0], np.nan),
        ([np.nan, 1.0], [0.0, 1.0], np.nan),
        ([largest, largest, -largest], [1.0, 1.0, 1.0], largest),
        ([largest, largest], [1.0, 1.0], np.inf),
        ([2.0**-1074, 2.0**-1074, 1.0], [1.0, 1.0, -0.0], 2.0**-1073),
        ([1e300, 1.0, -1e300], [1.0, 1.0, 1.0], 0.0),  # 1 is more than 80 bits below
        ([2.0**60, 1.0, -(2.0**60)], [1.0, 1.0, 1.0], 1.0),
        ([0.0, -0.0], [1.0, 1.0], 0.0),
        ([], [], 0.0),
    ]

    def body(t):
        for x, y, expected in cases:
            how = Distribution(len(x), ["cyclic"], t.size)
            a, b = divided(t, how, np.array(x, "f8")), divided(t, how, np.array(y, "f8"))
            np.testing.assert_equal(a.dot_all(b), expected)
        for kind, expected in [("i1", np.int8(-16)), ("u8", np.uint64(240)), ("?", np.True_)]:
            x = np.full(60, 2, kind)
            a = divided(t, Distribution(60, [("cyclic", 7)], t.size), x)
            got = a.dot_all(a)
            assert (got.dtype, got) == (expected.dtype, expected)
            assert got == np.dot(x, x)

    world.run(body)


def test_cuts_leave_exact_sums_for_many_products():
    """As if there were 2**40 products: cuts are close together then, and more of them."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 2000)) * 2.0 ** rng.integers(-30, 30, (2, 2000))
    f8 = np.dtype("f8")
    exact = float(sum(Fraction(float(p)) for p in x * y))
    for count in (2000, 2**20, 2**40, 2**44 - 1):
        looked = sums.measure_products(x, y, f8)
        order = rng.permutation(2000)
        parts = [
            sums.sum_above_cuts(x[some], y[some], f8, looked, count)
            for some in np.array_split(order, 7)
        ]
        assert float(sums.combine_sums(parts, f8, looked, count)) == exact
    assert math.isclose(exact, float(np.dot(x, y)), rel_tol=1e-9)


def test_many_products_of_one_size_are_added_exactly():
    rng = np.random.default_rng(2)
    x, y = 1 + rng.random((2, 40000))
    x[::2] *= -1
    f8, exact = np.dtype("f8"), math.fsum(x * y)
    looked = sums.measure_products(x, y, f8)
    for pieces in (1, 3, 8):
        order = rng.permutation(x.size)
        parts = [
            sums.sum_above_cuts(x[k], y[k], f8, looked, x.size)
            for k in np.array_split(order, pieces)
        ]
        assert float(sums.combine_sums(parts, f8, looked, x.size)) == exact


@ranks(*SIZES, per_node=PER_NODE)
def test_whole_operations_on_shared_arrays_with_ghosts(world):
    """Ghosts keep what they have; what is computed is seen by all when the call returns."""

    def body(t):
        how = Distribution((12, 6), ["block", "*"], t.size)
        a = DistArray.shared_all(how, "f8", transport=t, ghosts=[1, 0])
        a.local[...] = -1
        a.fill_all(2)
        b = a.add_all(a, out=a)
        assert b is a
        assert (a.get(...) == 4).all()
        t.barrier()
        assert a.local.sum() - a.owned.sum() == -6 * (a.local.shape[0] - a.owned.shape[0])
        whole = DistArray.from_function(lambda i, j: 10 * i + j, how, transport=t)
        whole.copy_all(a)
        assert (a.get(np.s_[3]) == 30 + np.arange(6)).all()
        a.update_ghosts_all()
        copy = a.copy_all()
        np.testing.assert_array_equal(a.local, copy.local)
        assert copy.ghosts == a.ghosts and copy._window is None
        a.close_all()

    world.run(body)


@ranks(1, 2, 5, per_node=PER_NODE)
def test_failure_of_one_rank_raises_on_all(world):
    def body(t):
        how = Distribution((10, 3), ["block", "*"], t.size)
        last = t.rank == how.owner((9, 0))  # of very many ranks the last ones have no elements
        a = divided(t, how, np.arange(30.0).reshape(10, 3))
        small = DistArray.zeros(Distribution((4, 4), ["block", "*"], t.size), transport=t)

        alias = DistArray(small.distribution, small.local[...], transport=t)
        whole = DistArray.zeros(Distribution((10, 10), ["block", "*"], t.size), "i8", transport=t)

        def bad_map(x):
            if last:
                raise ZeroDivisionError("on purpose")
            return x

        wrong = [
            (lambda: a.map_all(bad_map), ZeroDivisionError),
            (lambda: a.map_all(lambda x: x[:0] if last else x, dtype="f8"), "bad-function"),
            (lambda: a.matmul_all(a), "bad-shape"),
            (lambda: a.matmul_all(a.transpose_all(), out=small), "bad-out"),
            (lambda: small.matmul_all(small, out=alias), "bad-out"),
            (lambda: a.matmul_all(a.transpose_all(), out=whole), TypeError),
            (lambda: a.transpose_all((0, 0)), "bad-axis"),
            (lambda: a.fill_all([1, 2] if last else 1), "bad-value"),
            (lambda: a.scale_all(1j if last else 1), "bad-cast"),
        ]
        for call, why in wrong:
            with pytest.raises(CollectiveError) as caught:
                call()
            cause = caught.value.__cause__
            if isinstance(why, str):
                assert cause.code == why
            else:
                assert isinstance(cause, why)
        if t.size > 1:
            for call in (lambda: a.fill_all(t.rank), lambda: a.add_all(a, t.rank)):
                with pytest.raises(CollectiveError) as caught:
                    call()
                assert caught.value.code == "mismatched-call"
        with pytest.raises((outcore.errors.DistributionError, CollectiveError)):
            a.add_all(small)
        names = DistArray.empty(how, "S2", transport=t)
        with pytest.raises(CollectiveError) as caught:
            names.dot_all(names)
        assert caught.value.__cause__.code == "bad-dtype"
        equal(
            np.arange(30.0).reshape(10, 3) @ np.arange(30.0).reshape(10, 3).T,
            a.matmul_all(a.transpose_all()),
        )

    world.run(body)


@ranks(1, 4, per_node=PER_NODE)
def test_gathered_operands_are_counted_and_released(world):
    def body(t):
        n = 512
        before = _core.memory_state()[0]
        rows = Distribution((n, n), ["block", "*"], t.size)
        grid = Distribution((n, n), ["block", "block"], ProcessGrid(size=t.size, ndim=2))
        a = DistArray.from_function(lambda i, j: i == j, rows, transport=t)
        b = DistArray.from_function(lambda i, j: i + j, grid, transport=t)
        t.barrier()
        _core.reset_memory_peak()
        t.barrier()
        c = a.matmul_all(b)
        t.barrier()
        peak = _core.memory_state()[2] - before
        assert peak >= (8 * n * n // 2 if t.size > 1 else 0)
        np.testing.assert_array_equal(b.gather_all(), c.gather_all())
        a.dot_all(b)
        a.add_all(b)
        t.barrier()
        assert _core.memory_state()[0] <= before
        t.barrier()

    world.run(body)
