"""Distributions and distributed arrays against a table of owners that is built element by element."""

from __future__ import annotations

import copy
import math
import pickle
import time
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.base.distribution import take_range
from outcore.errors import DistributionError
from outcore.mpi import Align, DistArray, Distribution, ProcessGrid
from outcore.ranks.collective import traffic
from owners import Case
from property.ranks import World

quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(quick, max_examples=60)


@st.composite
def shapes(draw):
    shape = draw(st.lists(st.integers(0, 30), max_size=3))
    assume(math.prod(shape) <= 2000)
    return tuple(shape)


@st.composite
def cases(draw, shape=None, ranks=None, one_piece=False):
    shape = draw(shapes()) if shape is None else shape
    ranks = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 40])) if ranks is None else ranks
    grids = [(ranks,), (1, ranks), (ranks, 1), (1, 1, ranks)]
    grids += [(n, ranks // n) for n in range(2, ranks) if ranks % n == 0]
    grid = draw(st.sampled_from(grids))
    free = list(range(len(grid)))
    formats, align, cells, axes = [], [], [], []
    for n in shape:
        axis = draw(st.sampled_from([None, *free, *free]))
        if axis is not None:
            free.remove(axis)
        over = 1 if axis is None else grid[axis]
        stride = draw(st.sampled_from([1, 1, -1, 2, -3, 5, 17, -64]))
        before, behind = draw(st.integers(0, 9)), draw(st.integers(0, 9))
        span = abs(stride) * max(n - 1, 0)
        used = before + span + 1 if n else 0
        extent = used + behind if behind else None
        cells.append(used + behind)
        align.append((stride, before if stride > 0 else before + span, extent))
        least = max(1, math.ceil(cells[-1] / over))
        kinds = ["block", ("block", least + draw(st.integers(0, 5)))]
        lengths = draw(st.lists(st.integers(0, 9), min_size=over, max_size=over))
        lengths[draw(st.integers(0, over - 1))] += max(0, cells[-1] - sum(lengths))
        kinds.append(("general", lengths))
        if not one_piece:
            kinds += ["cyclic", ("cyclic", draw(st.integers(1, 9)))]
        formats.append("*" if axis is None else draw(st.sampled_from(kinds)))
        axes.append(axis)
    return Case(shape, formats, grid, align, cells, axes)


# -------------------------------------------------------------------------- distributions


@quick
@given(cases())
def test_owners_and_places_are_those_of_the_table(case):
    made = case.make()
    index = tuple(np.indices(case.shape, sparse=True)) if case.shape else ()
    owners = made.owner(index)
    np.testing.assert_array_equal(case.owners(), owners)
    places = made.local_index(index)
    total = 0
    for rank in range(case.ranks):
        has = case.has(rank)
        assert tuple(map(len, has)) == made.local_shape(rank)
        mine = np.ix_(*has)
        for d, place in enumerate(places):
            here = np.indices([len(axis) for axis in has])[d]
            np.testing.assert_array_equal(here, np.broadcast_to(place, case.shape)[mine])
        if math.prod(made.local_shape(rank)):
            at = tuple(np.ix_(*[np.arange(len(axis)) for axis in has]))
            back = made.global_index(rank, at)
            for expected, actual in zip(np.broadcast_arrays(*mine), back, strict=True):
                np.testing.assert_array_equal(expected, actual)
        total += math.prod(made.local_shape(rank)) if made.is_owner(rank) else 0
    assert math.prod(case.shape) == total


def test_blocks_of_a_part_end_where_those_of_the_whole_array_do():
    part = take_range(Distribution(10, ["block"], 2), 0, 0, 7)
    assert [part.local_shape(rank) for rank in range(2)] == [(5,), (2,)]


@quick
@given(st.data(), cases())
def test_parts_along_an_axis_lie_as_in_the_whole_array(data, case):
    assume(all(case.shape))
    whole = case.make()
    for axis, n in enumerate(case.shape):
        low = data.draw(st.integers(0, n - 1))
        high = data.draw(st.integers(low + 1, n))
        part = take_range(whole, axis, low, high)
        index = tuple(np.indices(part.shape, sparse=True))
        there = tuple(one + low * (d == axis) for d, one in enumerate(index))
        np.testing.assert_array_equal(whole.owner(there), part.owner(index))
        for d, (one, other) in enumerate(
            zip(whole.local_index(there), part.local_index(index), strict=True)
        ):
            # In a row behind what the owner has before it.
            before = [
                take_range(whole, axis, 0, low).local_shape(rank)[axis] if d == axis and low else 0
                for rank in range(case.ranks)
            ]
            np.testing.assert_array_equal(one - np.array(before)[part.owner(index)], other)


@quick
@given(cases())
def test_sections_of_all_ranks_tile_the_array(case):
    made = case.make()
    copies = math.prod(case.grid[a] for a in made.replicated_axes)
    count = np.zeros(case.shape, np.int64)
    for rank in range(case.ranks):
        mine = np.zeros(case.shape, np.int64)
        for key in made.sections(rank):
            mine[key] += 1
        expected = np.zeros(case.shape, np.int64)
        expected[np.ix_(*case.has(rank))] = 1
        np.testing.assert_array_equal(expected, mine)
        count += mine
    assert (count == copies).all()


@quick
@given(cases(one_piece=True), st.lists(st.tuples(*[st.integers(0, 6)] * 2), min_size=3, max_size=3))
def test_ghosts_are_the_neighbours(case, widths):
    made, widths = case.make(), widths[: len(case.shape)]
    for rank in range(case.ranks):
        near = case.near(rank, widths)
        expected, mine = np.zeros(case.shape, np.int64), np.zeros(case.shape, np.int64)
        expected[np.ix_(*near)] = 1
        for key in made.sections(rank, widths):
            mine[key] += 1
        np.testing.assert_array_equal(expected, mine)
        assert tuple(map(len, near)) == made.local_shape(rank, widths)


@quick
@given(cases(), cases())
def test_equal_distributions_are_written_the_same(case, other):
    a, b = case.make(), other.make()
    again = pickle.loads(pickle.dumps(a))
    assert a == again == copy.deepcopy(a) and hash(a) == hash(again) and str(a) == str(again)
    assert (a == b) == ((str(a), a.shape, a.grid) == (str(b), b.shape, b.grid))
    if a == b:
        assert hash(a) == hash(b)


@pytest.mark.parametrize(
    ("text", "arguments", "keywords"),
    [
        (
            "(BLOCK, CYCLIC(4), *) onto 2 x 3",
            ((9, 9, 9), ["block", ("CYCLIC", 4), "*"], (2, 3)),
            {},
        ),
        ("(BLOCK) onto 4", (10, ["block"], 4), {}),
        ("(BLOCK) onto 4", (10, [("block", 3)], 4), {}),
        ("(BLOCK(5)) onto 4", (10, [("block", 5)], 4), {}),
        ("(GEN_BLOCK(3, 5, 2)) onto 3", (10, [("general", [3, 5, 2])], 3), {}),
        ("(CYCLIC) onto 3", (10, [("cyclic", 1)], [3]), {}),
        ("(BLOCK of t(2*i + 1)) onto 3", (10, ["block"], 3), {"align": [(2, 1)]}),
        (
            "(BLOCK of t(9 - i) in 0:12) onto 3",
            (10, ["block"], 3),
            {"align": [Align(-1, 9, 12)]},
        ),
        (
            "(BLOCK, *) onto 2 x 3, replicated along its axis 0",
            ((4, 4), ["block", "*"], (2, 3)),
            {"axes": [1, None]},
        ),
        (
            "(BLOCK, CYCLIC) onto 2 x 3, along its axes 1, 0",
            ((4, 4), ["block", "cyclic"], (2, 3)),
            {"axes": [1, 0]},
        ),
    ],
)
def test_the_text_is_hpf(text, arguments, keywords):
    assert text == str(Distribution(*arguments, **keywords))


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("bad-distribution", lambda: Distribution((4, 4), ["block"], 2)),
        ("bad-distribution", lambda: Distribution((4, 4), ["block", "block"], 2)),
        ("bad-distribution", lambda: Distribution(4, ["block"], (2, 2))),
        ("bad-distribution", lambda: Distribution(4, ["blocks"], 2)),
        ("bad-distribution", lambda: Distribution(4, [("block", 1)], 2)),
        ("bad-distribution", lambda: Distribution(4, [("block", 2.5)], 2)),
        ("bad-distribution", lambda: Distribution(4, [("cyclic", True)], 2)),
        ("bad-distribution", lambda: Distribution(4, [("cyclic", 2**70)], 2)),
        ("bad-distribution", lambda: Distribution(4, [("general", [1, 1])], 2)),
        ("bad-distribution", lambda: Distribution(4, [3], 2)),
        ("bad-distribution", lambda: Distribution(-4, ["block"], 2)),
        ("bad-distribution", lambda: Distribution("4", ["block"], 2)),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, align=[(0, 0)])),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, align=[(1, -1)])),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, align=[(1, 0, 3)])),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, align=[(1, 0), None])),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, align=["11"])),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, axes=[1])),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, axes=[-1])),
        ("bad-distribution", lambda: Distribution(4, ["block"], 2, axes=[None])),
        ("bad-distribution", lambda: Distribution(4, ["*"], 2, axes=[0])),
        ("bad-distribution", lambda: Distribution((4, 4), ["block"] * 2, (2, 2), axes=[0, 0])),
        ("bad-distribution", lambda: Distribution(9, ["cyclic"], 2).local_shape(0, 1)),
        ("bad-distribution", lambda: Distribution(9, ["block"], 2).local_shape(0, -1)),
        ("bad-distribution", lambda: Distribution(9, ["block"], 2).local_shape(0, [1, 1])),
        ("bad-distribution", lambda: Distribution(9, ["block"], 2).local_shape(0, [(1, 1, 1)])),
        ("bad-distribution", lambda: Distribution(9, ["block"], 2).sections(0, 1.5)),
        ("bad-distribution", lambda: Distribution(9, ["block"], 2).sections(0, np.array([1, 2]))),
        ("bad-grid", lambda: Distribution(9, ["block"], 2).sections(2)),
        ("bad-grid", lambda: Distribution(9, ["block"], 0)),
        ("bad-grid", lambda: ProcessGrid()),
        ("bad-grid", lambda: ProcessGrid((2, 2), size=4)),
        ("bad-grid", lambda: ProcessGrid(size=4, ndim=-1)),
        ("bad-grid", lambda: ProcessGrid((2, "3"))),
        ("bad-grid", lambda: ProcessGrid((2, 3)).rank_of(2, 0)),
        ("bad-grid", lambda: ProcessGrid((2, 3)).coordinates(-1)),
        ("index-out-of-bounds", lambda: Distribution(9, ["block"], 2).owner(9)),
        ("index-out-of-bounds", lambda: Distribution(9, ["block"], 2).owner(np.uint64(2**63))),
        ("index-out-of-bounds", lambda: Distribution(9, ["block"], 2).global_index(0, 5)),
        ("bad-section", lambda: Distribution(9, ["block"], 2).owner((1, 1))),
        ("bad-index", lambda: Distribution(9, ["block"], 2).owner(1.5)),
        ("bad-index", lambda: Distribution((9, 9), ["*"] * 2, 1).owner(([1, 2], [1, 2, 3]))),
        ("bad-grid", lambda: DistArray.zeros(Distribution(9, ["block"], 2))),
        ("bad-distribution", lambda: DistArray(Distribution(9, ["block"], 1), np.zeros(8))),
        ("object-dtype", lambda: DistArray.zeros(Distribution(9, ["block"], 1), object)),
    ],
)
def test_invalid_distributions_are_refused(code, make):
    with pytest.raises(outcore.OutcoreError) as caught:
        make()
    assert code == caught.value.code
    assert isinstance(caught.value, (DistributionError, outcore.errors.SectionError, ValueError))


def test_values_do_not_change():
    d = Distribution(9, ["block"], 3)
    with pytest.raises(AttributeError):
        d._shape = (8,)
    with pytest.raises(AttributeError):
        d.grid._shape = (8,)
    assert d.grid == pickle.loads(pickle.dumps(d.grid)) and d != "text" and d.grid != (3,)
    assert {d: 1}[Distribution(9, ["block"], ProcessGrid(size=3))] == 1


def test_a_hundred_thousand_ranks_are_cheap():
    """Counts would be better than time, but there is nothing to count: it is arithmetic."""
    made = Distribution((10**9, 10**9), ["block", ("cyclic", 16)], (320, 320))
    best = math.inf
    for _ in range(20):
        begun = time.perf_counter()
        made.sections(77_777)
        best = min(best, time.perf_counter() - begun)
    assert best < 1e-3
    assert made.grid.size == 320**2
    index = (10**9 - 1, 123_456_789)
    rank = made.owner(index)
    assert index == made.global_index(rank, made.local_index(index))


def test_more_than_memory_of_sections_is_refused_not_tried():
    made = Distribution((2**40, 2**40), [("cyclic", 2**12)] * 2, (2, 2))
    with pytest.raises(DistributionError, match="longer CYCLIC blocks"):
        made.sections(0)
    assert made.local_shape(0) == (2**39, 2**39)


# ---------------------------------------------------------------------- distributed arrays


def whole(shape, dtype):
    values = np.arange(math.prod(shape)).reshape(shape)
    if np.dtype(dtype).names:
        made = np.zeros(shape, dtype)
        made["a"], made["b"] = values % 100, values
        return made
    return values.astype(dtype)


def filled(case, world_rank, dtype, ghosts=0):
    """The part of `whole` that a rank has; ghosts are zero."""
    made = DistArray.zeros(case.make(), dtype, transport=world_rank, ghosts=ghosts)
    full = whole(case.shape, dtype)
    for key, view in made.pieces():
        view[...] = full[key]
    return made


def results(world, function):
    found = world.run(function)
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


dtypes = st.sampled_from(["f8", "i2", "u1", "c16", ">i4", np.dtype([("a", "i1"), ("b", "f8")])])


@few
@given(st.data(), shapes(), st.sampled_from([1, 2, 3, 4, 6]), dtypes)
def test_redistribution_keeps_every_element(data, shape, ranks, dtype):
    source = data.draw(cases(shape, ranks))
    target = data.draw(cases(shape, ranks))
    root = data.draw(st.sampled_from([None, *range(ranks)]))
    full = whole(shape, dtype)

    def work(rank):
        a = filled(source, rank, dtype)
        np.testing.assert_array_equal(full[np.ix_(*source.has(rank.rank))], a.owned)
        b = a.redistribute_all(target.make())
        assert b.distribution == target.make() and b.local.dtype == full.dtype
        np.testing.assert_array_equal(full[np.ix_(*target.has(rank.rank))], b.local)
        got = b.gather_all(root)
        if root in (None, rank.rank):
            np.testing.assert_array_equal(full, got)
        else:
            assert got is None

    results(World(ranks), work)
    assert _core.memory_state()[0] == 0


@few
@given(
    st.data(),
    cases(one_piece=True),
    st.lists(st.tuples(*[st.integers(0, 6)] * 2), min_size=3, max_size=3),
)
def test_ghosts_become_what_their_owners_have(data, case, widths):
    assume(case.ranks <= 8)
    widths = widths[: len(case.shape)]
    other = data.draw(cases(case.shape, case.ranks))
    full = whole(case.shape, "i8")

    def check(a):
        for key, view in a.pieces(ghosts=True):
            np.testing.assert_array_equal(full[key], view)
        assert all(view.base is not None or view.ndim == 0 for _, view in a.pieces())
        np.testing.assert_array_equal(full[np.ix_(*case.has(a.rank))], a.owned)
        assert a.owned.size == 0 or np.shares_memory(a.owned, a.local)

    def work(rank):
        a = filled(case, rank, "i8", widths)
        a.update_ghosts_all()
        check(a)
        check(filled(other, rank, "i8").redistribute_all(case.make(), ghosts=widths))
        b = a.redistribute_all(other.make())
        np.testing.assert_array_equal(full[np.ix_(*other.has(rank.rank))], b.local)

        def count(*index):
            place = 0
            for i, n in zip(index, case.shape, strict=True):
                place = place * n + i
            return place

        check(DistArray.from_function(count, case.make(), "i8", transport=rank, ghosts=widths))

    results(World(case.ranks), work)


COMBINE = {
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "last": lambda _element, ghost: ghost,
}


@few
@given(
    cases(one_piece=True),
    st.lists(st.tuples(*[st.integers(0, 6)] * 2), min_size=3, max_size=3),
    st.sampled_from(sorted(COMBINE)),
    st.sampled_from(["f8", "f4", "i2", ">i4"]),
    st.sampled_from([8, 64, 400, 2**20]),
    st.integers(0, 2**32),
)
def test_ghosts_are_combined_with_the_elements_of_their_owners(
    case, widths, operation, dtype, room, seed
):
    """To the last bit, in one round and in many: sums of floating-point numbers depend on the order."""
    assume(case.ranks <= 8)
    widths = widths[: len(case.shape)]
    made = case.make()
    rng = np.random.default_rng(seed)
    parts = []
    for rank in range(case.ranks):
        values = rng.standard_normal(made.local_shape(rank, widths)) * 1000
        parts.append(np.array(values ** (3 if dtype[0] == "f" else 1), dtype))
    expected = case.accumulated(parts, widths, COMBINE[operation])

    def work(rank):
        local = parts[rank.rank].copy()
        a = DistArray(made, local, transport=rank, ghosts=widths)
        a.accumulate_ghosts_all(operation)
        # Of an array without axes NumPy gives a scalar, in the byte order of the machine.
        mine = expected[case.copy(rank.rank)][np.ix_(*case.has(rank.rank))]
        assert np.array(mine, a.dtype).tobytes() == a.owned.tobytes()
        # Ghosts stay.
        a.owned[...] = 0
        ghosts = parts[rank.rank].copy()
        DistArray(made, ghosts, transport=rank, ghosts=widths).owned[...] = 0
        assert ghosts.tobytes() == local.tobytes()

    with mock.patch.object(traffic, "_LARGEST", room):
        results(World(case.ranks), work)
    assert _core.memory_state()[0] == 0


def wide_ghosts(rank):
    """Parts of 16 elements and ghosts of 20: rank 2 has 4 elements of rank 0, rank 1 all of them."""
    made = Distribution(64, ["block"], 4)
    rng = np.random.default_rng(rank.rank)
    values = rng.standard_normal(made.local_shape(rank.rank, 20)) * 10.0 ** rng.integers(-8, 9)
    return DistArray(made, values, transport=rank, ghosts=20)


@pytest.mark.parametrize("budget", [1000, 1500, "1 MiB"])
def test_the_order_of_sums_is_that_of_ranks_in_any_number_of_rounds(budget):
    parts = World(4).run(lambda rank: wide_ghosts(rank).local)
    case = Case((64,), ["block"], (4,), [(1, 0, None)], (64,), (0,))
    ((_, whole),) = case.accumulated(parts, [(20, 20)], np.add).items()
    world = World(4)

    def work(rank):
        a = wide_ghosts(rank)
        a.accumulate_ghosts_all()
        assert whole[a.global_slices[0]].tobytes() == a.owned.tobytes()

    with outcore.memory(budget):
        _core.reset_memory_peak()
        results(world, work)
        assert 0 < _core.memory_state()[2] <= outcore.memory()
    # Neighbours, and the ones behind them.
    assert world.messages == 10 if budget == "1 MiB" else world.messages > 10


@pytest.mark.parametrize(
    ("odd", "codes"),
    [
        ("adds", ["bad-option", "failed-elsewhere", "failed-elsewhere"]),
        ("maximum", ["ranks-disagree"] * 3),
    ],
)
def test_ranks_that_combine_in_different_ways_all_raise(odd, codes):
    made = Distribution(9, ["block"], 3)

    def work(rank):
        a = DistArray.zeros(made, transport=rank, ghosts=1)
        a.accumulate_ghosts_all("add" if rank.rank else odd)

    assert codes == [one.code for one in World(3).run(work)]


def test_elements_that_cannot_be_combined_are_refused_before_anything_is_sent():
    made = Distribution(9, ["block"], 3)
    record = np.dtype([("a", "i1"), ("b", "f8")])

    def work(operation, dtype):
        world = World(3)

        def call(rank):
            DistArray.zeros(made, dtype, transport=rank, ghosts=1).accumulate_ghosts_all(operation)

        found = world.run(call)
        return [getattr(one, "code", one) for one in found], world.messages

    assert work("add", record) == (["bad-dtype"] * 3, 0)
    assert work("minimum", "M8[s]") == ([None] * 3, 4)
    assert work("add", "M8[s]") == (["bad-dtype"] * 3, 0)
    assert work("last", record) == ([None] * 3, 4)


@pytest.mark.parametrize("budget", [1000, 5000, "1 MiB"])
def test_redistribution_beyond_the_budget_runs_in_rounds(budget):
    source = Case((60, 50), ["block", ("cyclic", 3)], (2, 2), [(1, 0, None)] * 2, (60, 50), (0, 1))
    target = Case((60, 50), [("cyclic", 7), "block"], (2, 2), [(1, 0, None)] * 2, (60, 50), (1, 0))
    full = whole((60, 50), "f8")
    world = World(4)

    def work(rank):
        a = filled(source, rank, "f8")
        b = a.redistribute_all(target.make())
        np.testing.assert_array_equal(full[np.ix_(*target.has(rank.rank))], b.local)

    with outcore.memory(budget):
        _core.reset_memory_peak()
        results(world, work)
        peak = _core.memory_state()[2]
        assert 0 < peak <= outcore.memory()
    sent = sum(r != s for r in range(4) for s in range(4))
    assert world.messages == sent if budget == "1 MiB" else world.messages > sent


def test_no_memory_on_one_rank_is_an_error_on_all():
    source = Distribution((8, 8), ["block", "*"], 4)
    target = Distribution((8, 8), ["*", "block"], 4)

    def work(rank):
        return DistArray.zeros(source, transport=rank).redistribute_all(target)

    with outcore.memory(40):
        found = World(4).run(work)
    assert any(isinstance(one, outcore.BudgetError) for one in found)
    assert all(one.code in ("budget-too-small", "failed-elsewhere") for one in found)
    assert _core.memory_state()[0] == 0


@pytest.mark.parametrize("odd", ["method", "target", "dtype", "ghosts"])
def test_ranks_that_disagree_all_raise(odd):
    source = Distribution((8, 8), ["block", "*"], 3)

    def work(rank):
        mine = odd if rank.rank == 1 else ""
        a = DistArray.zeros(source, "f4" if mine == "dtype" else "f8", transport=rank)
        if mine == "method":
            return a.gather_all()
        form = "cyclic" if mine == "target" else "block"
        ghosts = 1 if mine == "ghosts" else 0
        return a.redistribute_all(Distribution((8, 8), ["*", form], 3), ghosts=ghosts)

    found = World(3).run(work)
    assert [one.code for one in found] == ["ranks-disagree"] * 3
    assert [one.rank for one in found] == [1] * 3


def test_a_failure_on_one_rank_names_it_on_the_others():
    source = Distribution((8, 8), ["block", "*"], 3)

    def work(rank):
        shape = (8, 9) if rank.rank == 2 else (8, 8)
        target = Distribution(shape, ["*", "block"], 3)
        return DistArray.zeros(source, transport=rank).redistribute_all(target)

    found = World(3).run(work)
    assert [e.code for e in found] == ["failed-elsewhere", "failed-elsewhere", "bad-distribution"]
    assert found[0].rank == 2
    assert [
        e.code
        for e in World(3).run(lambda r: DistArray.zeros(source, transport=r).gather_all(root=7))
    ] == ["bad-grid"] * 3


def test_memory_that_cannot_be_written_is_refused_before_anything_is_sent():
    made = Distribution(9, ["block"], 3)

    def work(rank):
        local = np.zeros(made.local_shape(rank.rank, 1))
        local.flags.writeable = rank.rank != 1
        DistArray(made, local, transport=rank, ghosts=1).update_ghosts_all()

    codes = [one.code for one in World(3).run(work)]
    assert codes == ["failed-elsewhere", "bad-distribution", "failed-elsewhere"]


def test_neighbours_are_all_that_ghosts_talk_to():
    """A stencil on 4 x 4 ranks: 8 neighbours inside, 5 at edges, 3 in corners."""
    world = World(16)
    made = Distribution((40, 40), ["block", "block"], (4, 4))
    results(world, lambda r: DistArray.zeros(made, transport=r, ghosts=1).update_ghosts_all())
    assert world.messages == 4 * 8 + 8 * 5 + 4 * 3
    world.messages = 0
    results(world, lambda r: DistArray.zeros(made, transport=r, ghosts=1).accumulate_ghosts_all())
    assert world.messages == 4 * 8 + 8 * 5 + 4 * 3


def test_an_array_tells_what_it_is():
    a = DistArray.zeros(Distribution((4, 6), ["block", "*"], 1), "i4", ghosts=[(1, 2), 0])
    assert ((4, 6), 2, 24, np.dtype("i4")) == (a.shape, a.ndim, a.size, a.dtype)
    assert (
        a.ghosts,
        DistArray.zeros(Distribution(4, ["block"], 1)).ghosts,
    ) == (((1, 2), (0, 0)), ((0, 0),))
    assert ((slice(0, 4), slice(0, 6)),) == a.global_slices
    assert "DistArray (4, 6) int32, (BLOCK, *) onto 1, rank 0" in repr(a)
    scalar = DistArray.from_function(lambda: 7, Distribution.replicated((), 1))
    assert (scalar.gather_all(), scalar.redistribute_all(scalar.distribution).local) == (7.0, 7.0)
