"""Keys with arrays: what is refused, what is held, what the core is asked, and who else uses them."""

import threading
import tracemalloc

import numpy as np
import pytest

import outcore
import points_by_numpy
from outcore import _core
from outcore.arrays.indices import sieved_masks
from outcore.arrays.indices.keys import parse
from outcore.arrays.indices.masks import IndexWorkspace

DATA = np.arange(60 * 50, dtype="f8").reshape(60, 50)


@pytest.fixture(autouse=True)
def core(monkeypatch):
    """Where the core has no points yet, NumPy does its part."""
    points_by_numpy.install(monkeypatch)


@pytest.fixture
def a(tmp_path):
    with outcore.create(tmp_path / "a.npy", data=DATA) as array:
        yield array


@pytest.fixture
def calls(monkeypatch):
    """What the core is asked: the name of the call and its arguments, one after the other."""
    asked = []

    def listen(name):
        plain = getattr(_core.Array, name)

        def call(self, *words):
            asked.append((name, *words))
            return plain(self, *words)

        monkeypatch.setattr(_core.Array, name, call)

    listen("read_points")
    listen("write_points")
    return asked


# What is written


@pytest.mark.parametrize("engine", ["threads", "uring"])
def test_of_values_for_one_element_one_request_is_made(tmp_path, engine):
    """Requests are served in any order, so only the last value is sent."""
    hints = {"method": "straight", "engine": engine, "threads": 2}
    with outcore.create(tmp_path / "a.raw", (40,), "f8", hints=hints) as a:
        a[[7, 3, 7, 30, 7, 30]] = [1, 2, 3, 4, 5, 6]
        assert a.stats()["writes"] == 3
        assert a[[3, 7, 30]].tolist() == [2, 5, 6]
        # Runs that meet: 10 to 15, then 12 to 17.
        a[[*range(10, 16), *range(12, 18)]] = np.arange(12)
        assert a.stats()["writes"] == 5
        assert a[10:18].tolist() == [0, 1, 6, 7, 8, 9, 10, 11]


# Masks that choose some of almost every page


def dense(shape, seed=0):
    return np.random.default_rng(seed).random(shape) < 0.1


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        *((dtype, {}) for dtype in ("f4", "u1", ">i2", "c16", [("a", "i4"), ("b", "f4")])),
        ("f4", {"chunks": (64, 128)}),
        ("i8", {"compression": None}),
    ],
)
def test_dense_masks_take_elements_out_of_blocks(tmp_path, dtype, options):
    """One read of all elements, whatever the format; no indices."""
    shape = (1101, 1024)
    data = (np.arange(np.prod(shape)) * 7 % 251).astype("u1").reshape(shape).astype(dtype)
    name = "a.zarr" if options else "a.npy"
    mask = dense(shape)
    mask[40:90] = True
    with outcore.create(tmp_path / name, data=data, **options) as a:
        told, before = a.explain(mask), a.stats()
        assert np.array_equal(a[mask], data[mask])
        assert "almost every page" in told.why
        assert told.useful_bytes == mask.sum() * data.itemsize
        moved = {k: a.stats()[k] - before[k] for k in ("read_bytes", "mapped_bytes", "decodes")}
        assert moved["read_bytes"] == told.read_bytes
        assert moved["mapped_bytes"] == told.mapped_bytes
        assert moved["decodes"] == told.decodes
        out = np.empty(int(mask.sum()), data.dtype)
        assert a.read(mask, out=out) is out
        assert np.array_equal(out, data[mask])
        assert np.array_equal(a[mask, None], data[mask, None])


def test_integers_beside_masks_of_several_axes(tmp_path):
    """A mask takes as many axes as it has: an integer beside it is no index of the one at its place."""
    data = np.arange(129 * 2 * 65.0).reshape(129, 2, 65)
    a = outcore.create(tmp_path / "a.npy", data=data)
    last, first = np.zeros((2, 65), bool), np.zeros((129, 2), bool)
    last[[0, 1, 1], [4, 15, 62]] = first[[0, 99, 128], [1, 0, 1]] = True
    for key in ((..., -95, last), (-95, ..., last), (-95, last), (first, 64), (..., first, -65)):
        assert np.array_equal(a[key], data[key])
        a.write(key, 3)
        data[key] = 3
    for key in ((..., last, 64), (-130, last), (first, 65), (-95, ..., last[0], 0)):
        with pytest.raises(outcore.errors.SectionError):
            a[key]
        with pytest.raises(IndexError):
            data[key]
    assert np.array_equal(a[...], data)


def test_what_dense_masks_are_not(tmp_path):
    """Indices are listed where fewer pages are touched, or blocks say nothing of the order."""
    data = np.arange(1500 * 1024, dtype="f4").reshape(1500, 1024)
    half = dense(data.shape)
    half[750:] = False
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        for mask in (half, dense(data.T.shape).T, dense(data.shape).view("u1").astype(bool)[:, :]):
            assert np.array_equal(a[mask], data[mask])
        assert "almost every page" not in a.explain(half).why
        assert "almost every page" not in a.explain(dense(data.T.shape).T).why
        assert "almost every page" not in a.explain((dense(1500),)).why
        with outcore.open(a.path, hints={"method": "list"}) as forced:
            assert forced.explain(dense(data.shape)).method == "list"
    with outcore.create(tmp_path / "f.npy", data=data, order="F") as a:
        assert np.array_equal(a[dense(data.shape)], data[dense(data.shape)])


@pytest.mark.parametrize("value", [True, False])
def test_a_dense_mask_that_is_changed_meanwhile_is_told(tmp_path, value):
    """No element of the result is left as its memory was."""
    data = np.arange(1 << 20, dtype="f8")
    mask = dense(data.shape)
    with (
        outcore.create(tmp_path / "a.npy", data=data) as a,
        IndexWorkspace(a.handle.core, writes=False) as held,
    ):
        points, before = parse(mask, a.shape, a.path, held, "numpy"), _core.memory_state()[0]
        blocks = sieved_masks.plan_blocks(a, points)
        mask[: 1 << 10] = value
        with pytest.raises(outcore.errors.UsageError, match="changed while"):
            sieved_masks.read(a, points, blocks, points.empty(a.dtype, a.order))
        assert _core.memory_state()[0] == before


def test_dense_masks_keep_to_the_budget(tmp_path):
    data = np.arange(1 << 20, dtype="f8")
    mask = dense(data.shape)
    outcore.create(tmp_path / "a.npy", data=data).close()
    with outcore.open(tmp_path / "a.npy", hints={"memory": "300 kB"}) as a:
        told = a.explain(mask)
        assert "almost every page" in told.why and told.peak_bytes <= 300_000
        assert np.array_equal(a[mask], data[mask])


# What is refused


@pytest.mark.parametrize(
    ("key", "code", "words"),
    [
        ([60], "index-out-of-bounds", ["60", "axis 0", "position 0"]),
        ([[0, 1], [2, -61]], "index-out-of-bounds", ["-61", "axis 0", "position 3"]),
        ((3, np.array([4, 50], "u8")), "index-out-of-bounds", ["50", "axis 1", "position 1"]),
        (np.array([1, 2**63], "u8"), "index-out-of-bounds", [str(2**63), "position 1"]),
        (np.array([2**64 - 1], "u8"), "index-out-of-bounds", [str(2**64 - 1), "position 0"]),
        ((60, [0, 1]), "index-out-of-bounds", ["60", "axis 0"]),
        ([1.0], "bad-index", ["float64"]),
        (np.array(["a"], object), "bad-index", ["object"]),
        ((..., [0], ...), "bad-index", ["'...'"]),
        ([[1], [1, 2]], "bad-index", ["list"]),
        (([0], [0], [0]), "too-many-indices", ["3 indices", "2 axes"]),
        ((DATA > 3, 0), "too-many-indices", ["3 indices"]),
        (np.ones((60, 49), bool), "bad-mask", ["axis 1", "50", "49"]),
        (
            (slice(None), np.ones(60, bool)),
            "bad-mask",
            ["axis 1", "50", "axis 0 of the mask", "60"],
        ),
        (([0, 1], [0, 1, 2]), "broadcast", ["(2,), (3,)", "oindex"]),
    ],
)
def test_a_refusal_says_what_and_where_and_nothing_was_written(a, key, code, words):
    for call in (lambda: a[key], lambda: a.write(key, -1.0), lambda: a.explain(key)):
        with pytest.raises(outcore.errors.SectionError) as caught:
            call()
        assert caught.value.code == code and caught.value.path == a.path
        assert [word for word in words if word not in caught.value.message] == []
        # The user did not ask the core.
        assert caught.value.__context__ is None or caught.value.__suppress_context__
    np.testing.assert_array_equal(DATA, a[...])


@pytest.mark.parametrize(
    ("access", "key"),
    [
        ("oindex", ([[0, 1]], slice(None))),
        ("oindex", (True, 0)),
        ("oindex", (DATA > 3,)),
        ("vindex", ([0], None)),
        ("vindex", ("name",)),
    ],
)
def test_other_kinds_of_keys_refuse_what_they_do_not_mean(a, access, key):
    with pytest.raises(IndexError):
        getattr(a, access)[key]
    with pytest.raises(IndexError):
        getattr(a, access)[key] = 0
    np.testing.assert_array_equal(DATA, a[...])


def test_steps_of_zero_and_writes_without_the_right_to_are_refused_as_ever(a, tmp_path):
    with pytest.raises(ValueError, match="step of the slice on axis 1"):
        a[[0], ::0]
    a.flush()
    with outcore.open(tmp_path / "a.npy") as readonly:
        for write in (
            lambda: readonly.write([0], 1.0),
            lambda: readonly.oindex.__setitem__(([0], [1]), 1.0),
            lambda: readonly.put([], []),
        ):
            with pytest.raises(outcore.errors.UsageError) as caught:
                write()
            assert caught.value.code == "read-only"
    for read in (lambda: readonly[[0]], lambda: readonly.take([]), lambda: readonly.vindex[[0], 0]):
        with pytest.raises(outcore.errors.UsageError) as caught:
            read()
        assert caught.value.code == "closed"


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros((2, 2)), np.zeros((2, 2, 50))])
def test_values_that_do_not_broadcast_are_refused(a, value):
    with pytest.raises(ValueError, match="broadcast"):
        a[[4, 5]] = value
    with pytest.raises(ValueError, match="broadcast"):
        a[[]] = value
    np.testing.assert_array_equal(DATA, a[...])


def test_results_that_do_not_fit_are_refused(a):
    shared = np.lib.stride_tricks.as_strided(np.zeros(99), (2, 50), (8, 8))
    for out in (
        np.empty((2, 49)),
        np.empty((2, 50), "f4"),
        [0.0],
        np.broadcast_to(np.zeros(50), (2, 50)),
        shared,
    ):
        with pytest.raises(outcore.errors.UsageError) as caught:
            a.read([4, 5], out=out)
        assert caught.value.code == "out-mismatch"
    # The core does not see this one: its axes of points cannot be seen as one.
    shared = np.lib.stride_tricks.as_strided(np.zeros(999), (2, 2, 50), (8, 400, 8))
    with pytest.raises(outcore.errors.UsageError, match="share memory"):
        a.read([[0, 1], [2, 3]], out=shared)


def test_take_put_and_compress_refuse_as_numpy_does(a):
    for call, kind in (
        (lambda: a.take([1], axis=2), ValueError),
        (lambda: a.take([1], mode="nearest"), ValueError),
        (lambda: a.take([1.5]), IndexError),
        (lambda: a.take([3000]), IndexError),
        (lambda: a.put([0, -3001], 1.0), IndexError),
        (lambda: a.compress([[True]]), ValueError),
        (lambda: a.compress(np.ones(61), axis=0), IndexError),
    ):
        with pytest.raises(kind):
            call()
    np.testing.assert_array_equal(DATA, a[...])


def test_values_that_repeat_are_not_written_if_an_index_is_wrong(a):
    """They go in several calls of the core: the first one would be right."""
    with outcore.memory("16 KiB"), pytest.raises(IndexError, match="position 2999"):
        a.put([*range(2999), 3000], np.zeros(700))
    np.testing.assert_array_equal(DATA, a[...])


def test_nothing_can_be_taken_of_an_empty_axis(tmp_path):
    with outcore.create(tmp_path / "e.npy", (0, 3), "f8") as empty:
        for mode in ("raise", "wrap", "clip"):
            with pytest.raises(IndexError):
                empty.take([0], axis=0, mode=mode)
            assert empty.take([], axis=0, mode=mode).shape == (0, 3)
            assert empty.take([1, 1], axis=1, mode=mode).shape == (0, 2)
    with outcore.create(tmp_path / "z.npy", (), "f8") as point:
        with pytest.raises(ValueError):
            point.nonzero()
        point.put([0, 0], [3.0, 4.0])
        assert point.take([0, -1, 0]).tolist() == [4.0, 4.0, 4.0]


# What the core is asked


def test_int64_lists_are_not_copied(a, calls):
    rows = np.array([5, 3, -1, 5])
    a[rows]
    (_, axes, (given,), mode, rest, out) = calls.pop()
    assert np.shares_memory(given, rows) and (axes, mode) == ((0,), "points")
    assert rest[3:] == [0, 50, 1] and out.shape == (4, 50)
    a[rows, rows] = 1.0
    (_, axes, given, mode, _, value) = calls.pop()
    assert all(np.shares_memory(one, rows) for one in given)
    assert (axes, mode, value.shape, value.strides) == ((0, 1), "points", (4,), (0,))


def test_outer_products_and_masks_are_never_expanded(a, calls):
    a[np.ix_([3, 1], [4, 5, 6])]
    a.oindex[[3, 1], [4, 5, 6]]
    for _, axes, lists, mode, _, out in calls:
        assert (axes, mode, out.shape) == ((0, 1), "outer", (6,))
        assert [one.tolist() for one in lists] == [[3, 1], [4, 5, 6]]
    calls.clear()
    a[DATA % 7 == 0]
    a.take([3, 4])
    for _, axes, lists, mode, _, _ in calls:
        assert (axes, mode, len(lists)) == ((0, 1), "flat", 1)
    calls.clear()
    a[3, [1, 2, 2]]
    a[[3], [1, 2, 2]]
    for _, axes, _, _, rest, _ in calls:
        assert axes == (1,) and rest[:3] == [3, 1, 1]


def test_results_are_read_in_place(a, calls, tmp_path):
    out = np.empty((50, 3)).T
    assert a.read([1, 2, 3], out=out) is out
    assert np.shares_memory(calls.pop()[-1], out)
    # Two axes of points between others cannot be one where the memory is in Fortran order.
    with outcore.create(tmp_path / "b.npy", data=np.arange(24.0).reshape(2, 3, 4)) as b:
        rows = np.array([[0, 2], [1, 1]])
        out = np.empty((4, 2, 2, 2)).T
        assert b.read(np.s_[:, rows], out=out) is out
        np.testing.assert_array_equal(np.arange(24.0).reshape(2, 3, 4)[:, rows], out)
        assert not np.shares_memory(calls.pop()[-1], out)


def test_explain_tells_what_is_useful(a):
    assert a.explain([1, 2, 2]).useful_bytes == 3 * 50 * 8
    assert a.explain(DATA < 10, write=True).useful_bytes == 80
    assert a.explain([]).useful_bytes == 0


# What is held


def test_values_are_cast_and_lists_converted_within_the_budget(tmp_path, calls):
    random = np.random.default_rng(3)
    with outcore.create(tmp_path / "l.npy", (400_000,), "f8") as large:
        places = random.integers(-400_000, 400_000, 300_000).astype(">i4")
        values = random.integers(0, 9999, 300_000).astype("i4")
        expected = np.zeros(400_000)
        expected[places.astype("i8")] = values
        with outcore.memory("4 MiB"):
            _core.reset_memory_peak()
            large[places] = values
            assert _core.memory_state()[2] <= 4 << 20
        written = [words for words in calls if words[0] == "write_points"]
        assert len(written) > 2
        assert all(words[-1].size * 16 <= (4 << 20) // 3 for words in written)
        assert sum(words[-1].size for words in written) == 300_000
        np.testing.assert_array_equal(expected, large[...])
        calls.clear()
        with outcore.memory("4 MiB"):
            np.testing.assert_array_equal(expected[places.astype("i8")], large[places])
        assert len(calls) >= 2
        # The last index of all is wrong: nothing is written, of no part.
        places[-1] = 400_000
        calls.clear()
        with outcore.memory("4 MiB"), pytest.raises(IndexError, match="position 299999"):
            large[places] = 1
        assert calls == []
        assert _core.memory_state()[0] == 0


def test_a_budget_for_neither_indices_nor_access_is_refused_with_one_that_does(tmp_path):
    words = {"chunks": (500, 500), "compression": "zstd"}
    with outcore.create(tmp_path / "z.zarr", data=np.ones((1000, 500)), **words) as z:
        for places in (np.arange(2000, dtype="i4") % 1000, np.arange(2000) % 1000):
            with outcore.memory("1 MiB"), pytest.raises(outcore.BudgetError) as caught:
                z[places]
            assert "blocks" not in caught.value.message
            with outcore.memory(caught.value.needed):
                assert z[places].sum() == 2000 * 500


def test_rows_larger_than_memory_are_cut(tmp_path, calls):
    with outcore.create(tmp_path / "r.npy", (3, 400_000), "f8") as rows:
        value = np.arange(400_000, dtype="f4")
        with outcore.memory("1 MiB"):
            rows[[2, 0, 2]] = value[::-1]
        assert max(words[-1].nbytes for words in calls) <= (1 << 20) // 3
        np.testing.assert_array_equal(np.stack([value[::-1], value * 0, value[::-1]]), rows[...])


def test_a_core_that_is_refused_memory_gets_smaller_boxes(a, calls, monkeypatch):
    """What is converted leaves the core too little: it is cut smaller, until nothing more helps."""
    plain = _core.Array.write_points
    most = 200

    def write(self, axes, lists, mode, rest, value):
        if value.size > most:
            raise outcore.BudgetError("too many points.", code="budget-too-small", needed=12_345)
        plain(self, axes, lists, mode, rest, value)

    monkeypatch.setattr(_core.Array, "write_points", write)
    places = np.arange(3000, dtype="i4").reshape(60, 50)
    a.put(places[::-1], np.arange(3000, dtype="i2"))
    np.testing.assert_array_equal(np.arange(3000).reshape(60, 50)[::-1], a[...])
    assert max(words[-1].size for words in calls[-15:]) <= 200 and len(calls) >= 15
    most = 0
    with pytest.raises(outcore.BudgetError) as caught:
        a.put(places, np.arange(3000, dtype="i2"))
    assert caught.value.needed > 12_345 and "converting" in caught.value.message
    assert _core.memory_state()[0] == 0


def test_threads_that_convert_do_not_stop_each_other(tmp_path):
    failed = []
    places = np.random.default_rng(0).permutation(100_000).astype("i4")

    def work(number):
        try:
            with outcore.create(tmp_path / f"{number}.npy", (100_000,), "f8") as mine:
                for _ in range(3):
                    mine[places] = places
                    if not (mine[places] == places).all():
                        failed.append(number)
        except Exception as error:  # told by the thread that waits
            failed.append(error)

    with outcore.memory("1 MiB"):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []


# Masks


@pytest.mark.parametrize("store", [{}, {"order": "F"}, {"chunks": (7, 50)}, {"chunks": (60, 9)}])
@pytest.mark.parametrize("budget", ["200 KiB", "64 MiB"])
def test_masks_larger_than_the_budget(tmp_path, store, budget):
    data = np.arange(600 * 500).reshape(600, 500)
    chosen = data % 3 > 0
    name = "m.zarr" if "chunks" in store else "m.npy"
    with (
        outcore.create(tmp_path / name, data=chosen, **store) as mask,
        outcore.create(tmp_path / "b.npy", data=data) as b,
        outcore.memory(budget),
    ):
        _core.reset_memory_peak()
        for key in (mask, chosen):
            np.testing.assert_array_equal(data[chosen], b[key])
            out = np.empty(2 * 200_000, "i8")[::2]
            assert b.read(key, out=out) is out
            np.testing.assert_array_equal(data[chosen], out)
            b[key] = -1
            assert np.array_equal(np.where(chosen, -1, data), b[...])
            b[key] = data[chosen].astype("f8")
            assert np.array_equal(data, b[...])
            with pytest.raises(ValueError, match="broadcast"):
                b[key] = np.zeros(199_999)
            np.testing.assert_array_equal(data[chosen], b.compress(chosen.reshape(-1)))
        assert _core.memory_state()[2] <= int(outcore.memory())
        with outcore.memory("64 MiB"):
            for ours, theirs in zip(mask.nonzero(), chosen.nonzero(), strict=True):
                np.testing.assert_array_equal(theirs, ours)
    assert _core.memory_state()[0] == 0


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_holds_is_within_the_budget_too(tmp_path, order):
    chosen = np.random.default_rng(4).random((1000, 1000)) < 0.5
    places = np.random.default_rng(5).integers(0, 10**6, 400_000).astype("i4")
    out, values = np.empty(int(chosen.sum())), np.ones(400_000, "f4")
    turned = np.asarray(chosen, order=order)
    with (
        outcore.create(tmp_path / "m.npy", data=chosen, order=order) as mask,
        outcore.create(tmp_path / "b.npy", (1000, 1000), "f8") as b,
        outcore.memory("2 MiB"),
    ):
        peaks = []
        for access in (
            lambda: b.write(mask, 1.0),
            lambda: b.read(mask, out=out),
            lambda: b.write(turned, 1.0),
            lambda: b.put(places, np.float32(3)),
            lambda: b.put(places, values),
            lambda: b.put(places, values[:77]),
            lambda: b.take(places, out=out[:400_000]),
        ):
            access()  # what is imported is no part of it
            tracemalloc.start()
            access()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert max(peaks) <= 2 << 20, peaks


def test_a_mask_beside_other_arrays_has_to_fit_and_says_so(tmp_path):
    data = np.arange(300_000).reshape(100_000, 3)
    chosen = np.ones(100_000, bool)
    with outcore.create(tmp_path / "b.npy", data=data) as b:
        with outcore.memory("200 KiB"), pytest.raises(outcore.BudgetError) as caught:
            b[chosen, [2]]
        assert "800000 bytes for each axis" in caught.value.message
        with outcore.memory(caught.value.needed):
            np.testing.assert_array_equal(data[chosen, [2]], b[chosen, [2]])


def test_what_is_not_zero_fits_or_the_error_says_what_would(tmp_path):
    with outcore.create(tmp_path / "n.npy", data=np.ones((300, 200), "i1")) as ones:
        with outcore.memory("256 KiB"), pytest.raises(outcore.BudgetError) as caught:
            ones.nonzero()
        assert caught.value.needed == 300 * 200 * 16 and caught.value.code == "array-too-large"
        with outcore.memory(caught.value.needed):
            assert [one.size for one in ones.nonzero()] == [60_000, 60_000]


def test_indices_on_disk_are_read_a_part_at_a_time(tmp_path, calls):
    places = np.random.default_rng(1).integers(-3000, 3000, (400, 100)).astype("i2")
    with (
        outcore.create(tmp_path / "i.npy", data=places) as indices,
        outcore.create(tmp_path / "b.npy", data=np.arange(3000.0)) as b,
        outcore.memory("256 KiB"),
    ):
        np.testing.assert_array_equal(np.arange(3000.0)[places], b[indices])
        assert len(calls) > 2
        np.testing.assert_array_equal(np.arange(3000.0)[places], b.take(indices))
        b[indices] = 7
        expected = np.arange(3000.0)
        expected[places] = 7
        np.testing.assert_array_equal(expected, b[...])


# Values on disk


@pytest.mark.parametrize("dtype", ["f8", "i2"])
def test_values_may_be_on_disk(a, tmp_path, dtype):
    key = np.s_[::-1, [3, 1, 3], None]
    value = np.arange(180).reshape(60, 3, 1).astype(dtype)
    with outcore.create(tmp_path / "v.npy", data=value) as there:
        with outcore.memory("64 KiB"):
            a[key] = there
        expected = DATA.copy()
        expected[key] = value
        np.testing.assert_array_equal(expected, a[...])
        with pytest.raises(ValueError, match="not broadcast"):
            a[[1, 2]] = there
        with outcore.create(tmp_path / "w.npy", data=np.array([5.0])) as one:
            a[[0, 1], [2, 3]] = one
            assert a[[0, 1], [2, 3]].tolist() == [5.0, 5.0]


@pytest.mark.parametrize("budget", ["256 KiB", "64 MiB"])
def test_values_on_disk_meet_a_mask_on_disk(tmp_path, budget):
    """Both go in windows; rows of the array are chosen, or elements."""
    data = np.zeros((30_000, 3), "i4")
    rows = np.arange(30_000) % 4 > 0
    with (
        outcore.create(tmp_path / "b.npy", data=data) as b,
        outcore.create(tmp_path / "m.npy", data=rows) as mask,
        outcore.create(tmp_path / "v.npy", data=np.arange(67_500.0).reshape(22_500, 3)) as value,
        outcore.memory(budget),
    ):
        b[mask] = value
        data[rows] = value[...]
        np.testing.assert_array_equal(data, b[...])
        np.testing.assert_array_equal(data[rows, ::-2], b[mask, ::-2])
        b[mask, ::-2] = 7
        data[rows, ::-2] = 7
        np.testing.assert_array_equal(data, b[...])


def test_an_array_that_is_written_to_itself_is_read_first(a):
    order = np.arange(60)[::-1]
    with outcore.memory("64 KiB"):  # it is written in parts
        a[order] = a
    expected = DATA.copy()
    expected[order] = DATA
    np.testing.assert_array_equal(expected, a[...])


# Who else uses them


class Convertible:
    """What has `__array__`, as series, data arrays and tensors do."""

    def __init__(self, data):
        self.data = np.asarray(data)

    def __array__(self, dtype=None, copy=None):
        return self.data if dtype is None else self.data.astype(dtype)


def test_anything_that_becomes_an_array_is_one(a):
    for given in (range(3), Convertible([0, 1, 2]), (0, 1, 2), memoryview(np.arange(3))):
        np.testing.assert_array_equal(DATA[[0, 1, 2]], a[given,])
    np.testing.assert_array_equal(DATA[[True] * 60], a[Convertible([True] * 60)])
    assert a[np.array(3), np.array(4)] == DATA[3, 4]
    np.testing.assert_array_equal(DATA[np.array(3), [4]], a[Convertible(3), [4]])


def test_started_reads_and_writes_take_them(a):
    request = a.iwrite(np.s_[[5, 3]], 7.0)
    request.wait()
    assert a.iread(np.s_[[3, 4], 0]).wait().tolist() == [7.0, 200.0]


def test_writes_that_are_to_be_durable_are(tmp_path):
    with outcore.create(tmp_path / "s.npy", (9,), "f8", hints={"sync": True}) as synced:
        for write in (
            lambda: synced.write([1], 2.0),
            lambda: synced.oindex.__setitem__([1], 2.0),
            lambda: synced.put([1, 2], 2.0),
        ):
            before = synced.handle.core.flushes()
            write()
            assert synced.handle.core.flushes() == before + 1


def test_functions_of_numpy_read_what_they_give(a, calls):
    np.testing.assert_array_equal(np.take(DATA, [3, 1], axis=1), np.take(a, [3, 1], axis=1))
    np.testing.assert_array_equal(np.compress([0, 1], DATA, axis=0), np.compress([0, 1], a, axis=0))
    out = np.empty((60, 2))
    assert np.take(a, [3, 1], 1, out) is out
    np.put(a, [0, 1, 2], [7, 8])
    assert a[0, :4].tolist() == [7, 8, 7, 3]
    assert len(calls) == 4
    np.testing.assert_array_equal(np.argwhere(a[...]), np.argwhere(a))
    np.testing.assert_array_equal(a[...].nonzero(), np.nonzero(a))


def test_xarray_indexes_it(a):
    """Outer and vectorised keys of xarray are those of ``oindex`` and ``vindex``."""
    xarray = pytest.importorskip("xarray")
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class Backend(BackendArray):
        shape, dtype = a.shape, a.dtype

        def __getitem__(self, key):
            support = indexing.IndexingSupport.VECTORIZED
            outer = isinstance(key, indexing.OuterIndexer)
            method = a.oindex if outer else a.vindex
            return indexing.explicit_indexing_adapter(key, self.shape, support, method.__getitem__)

    lazy = indexing.LazilyIndexedArray(Backend())
    array = xarray.DataArray(xarray.Variable(("y", "x"), lazy))
    same = xarray.DataArray(DATA, dims=("y", "x"))
    along = xarray.DataArray([3, 1, 3], dims="along")
    for words in (
        {"y": [5, 1], "x": [2, 2, 0]},
        {"y": slice(None, None, -7), "x": np.array([4, 1])},
        {"y": 3, "x": [1, 2]},
        {"y": along, "x": along},
        {"y": along},
    ):
        xarray.testing.assert_equal(same.isel(words), array.isel(words).load())


def test_dask_indexes_it(a):
    dask = pytest.importorskip("dask.array")
    lazy = dask.from_array(a, chunks=(20, 25))
    np.testing.assert_array_equal(DATA[[3, 59, 3]], lazy[[3, 59, 3]].compute())
    np.testing.assert_array_equal(DATA[DATA > 100], lazy[lazy > 100].compute())
