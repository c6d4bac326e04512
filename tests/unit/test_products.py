"""Products of arrays on disk: NumPy's results, within the budget, near the bytes that have to move."""

import importlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore.arrays.schedule import ScheduleRun
from outcore.base.hints import parse_bytes
from outcore.compute.products import contraction, gemm
from outcore.compute.products.matmul import matmul
from schedule_check import check_schedule

carry = importlib.import_module("outcore.compute.jobs.carry")

DTYPES = ["f8", "f4", "c8", "c16", "f2", ">f8", ">c8", "i8", "i4", ">i2", "u1", "?", "g"]
FORMATS = ["npy", "npy F", "zarr", "h5", "memory"]


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    """Every schedule that is run passes the check, and can be done again from any step."""
    seen = []

    def run(schedule, arrays, plain=ScheduleRun, **more):
        check_schedule(schedule, [a.shape for a in arrays], range(2, len(arrays)), again=True)
        for step in map(schedule.step, range(schedule.steps)):
            inner, first = step.arguments[3:5]
            if not first or (inner and len(step.loads) < 2):
                assert step.continues  # it needs a part of the sum, or an operand, of steps before
        seen.append(schedule)
        return plain(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    return seen


@pytest.fixture
def tiny(monkeypatch):
    """Budgets for which nobody would use it: many blocks of small arrays."""
    monkeypatch.setattr(contraction, "SMALLEST", 1)


@pytest.fixture(params=[True, False], ids=["scipy", "numpy only"])
def blas(request, monkeypatch):
    """With and without a BLAS that adds products."""
    if not request.param:
        monkeypatch.setattr(gemm, "_find_function", lambda char: None)
    return request.param


def some(shape, dtype, seed=0):
    """Small integers in any type: products of them are exact, unless they are meant to wrap."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.2
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype.newbyteorder("=")).astype(dtype)
    found = rng.integers(-3, 4, shape).astype(dtype)
    if dtype.kind == "c":
        found = (found + 1j * rng.integers(-3, 4, shape)).astype(dtype)
    return found


def stored(folder, name, data, format):
    """An operand as it may come."""
    if format == "memory":
        return data
    if format.startswith("npy"):
        np.save(folder / f"{name}.npy", np.asarray(data, order="C" if format == "npy" else "F"))
        return folder / f"{name}.npy"
    if data.dtype.char == "g" or (format == "h5" and data.dtype.char == "?"):
        return data
    chunks = tuple(max(n // 3, 1) for n in data.shape)
    path = folder / (f"{name}.zarr" if format == "zarr" else f"{name}.h5::/x")
    words = {"compression": "zlib"} if format == "zarr" else {}
    a = outcore.create(path, data=data, chunks=chunks, **words)
    a.close()
    return path


LENGTHS = st.sampled_from([0, 1, 2, 3, 7, 13, 31, 40])
STACKS = st.sampled_from(
    [((), ()), ((2,), ()), ((), (3,)), ((3, 2), (2,)), ((1, 2), (3, 1)), ((4, 1), (1,))]
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.data(),
    dtypes=st.one_of(
        st.sampled_from(DTYPES).map(lambda d: (d, d)), st.tuples(*[st.sampled_from(DTYPES)] * 2)
    ),
    formats=st.tuples(*[st.sampled_from(FORMATS)] * 2),
    sizes=st.tuples(*[LENGTHS] * 3),
    stacks=STACKS,
    method=st.sampled_from(["auto", "auto", "slabs", "blocks"]),
)
def test_products_are_those_of_numpy(
    tmp_path_factory, data, dtypes, formats, sizes, stacks, method
):
    folder = tmp_path_factory.mktemp("products")
    m, n, k = sizes
    vectors = data.draw(
        st.sampled_from([(False, False)] * 4 + [(True, False), (False, True), (True, True)])
    )
    a = some((k,) if vectors[0] else (*stacks[0], m, k), dtypes[0], 1)
    b = some((k,) if vectors[1] else (*stacks[1], k, n), dtypes[1], 2)
    x, y = stored(folder, "a", a, formats[0]), stored(folder, "b", b, formats[1])
    budget = data.draw(st.sampled_from(["least", 40_000, 200_000, "64 MiB"]))
    kind = data.draw(st.sampled_from(["npy", "npy", "F", "zarr"]))
    words = {"order": "F"} if kind == "F" else {}
    expected = a @ b
    path = folder / ("c.zarr" if kind == "zarr" and expected.dtype.char not in "gG" else "c.npy")
    if budget == "least":
        with pytest.raises(outcore.BudgetError) as refused:
            matmul(x, y, out=path, memory=1, method=method, **words)
        budget = refused.value.needed
    try:
        c = matmul(x, y, out=path, memory=budget, method=method, **words)
    except outcore.BudgetError as error:
        c = matmul(x, y, out=path, memory=error.needed, method=method, **words)
    with c:
        assert (expected.shape, expected.dtype.newbyteorder("=")) == (
            c.shape,
            c.dtype.newbyteorder("="),
        )
        rounded = any(d in dtypes for d in ("f2", "i8", "i4")) and expected.dtype.kind in "fc"
        if rounded:  # what does not fit the bits of the type, in other orders of the sum
            scale = np.abs(a.astype("c16")) @ np.abs(b.astype("c16"))
            error = np.abs(c[...].astype("c16") - expected.astype("c16"))
            assert np.all(error <= 4 * np.finfo(expected.dtype).eps * scale)
        else:
            np.testing.assert_array_equal(c[...], expected)


@pytest.mark.parametrize("order", ["CCC", "FCC", "CFF", "FFC", "FFF"])
@pytest.mark.parametrize("dtype", ["f8", "c8", "i4"])
def test_sums_over_blocks(tmp_path, tiny, blas, checked, dtype, order):
    """The inner axis in parts, in every order, with the BLAS and without it."""
    a, b = some((90, 210), dtype, 1), some((210, 70), dtype, 2)
    np.save(tmp_path / "a.npy", np.asarray(a, order=order[0]))
    np.save(tmp_path / "b.npy", np.asarray(b, order=order[1]))
    with matmul(
        tmp_path / "a.npy",
        tmp_path / "b.npy",
        out=tmp_path / "c.npy",
        order=order[2],
        memory=90_000,
        method="blocks",
    ) as c:
        np.testing.assert_array_equal(a @ b, c[...])
    assert any(step.continues for step in map(checked[-1].step, range(checked[-1].steps)))


def test_random_numbers_are_close(tmp_path, tiny, blas):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 131, 257)), rng.standard_normal((257, 101))
    with matmul(a, b, out=tmp_path / "c.npy", memory=200_000) as c:
        np.testing.assert_allclose(c[...], a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["slabs", "blocks"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_bytes_are_those_that_were_planned(tmp_path, method, prefetch):
    # Long ones for slabs: their parts of the result are narrow, and pages are stored twice.
    m, k, limit = (1024, 1536, "6 MiB") if method == "blocks" else (512, 6144, "16 MiB")
    a = outcore.create(tmp_path / "a.npy", data=np.ones((m, k)))
    b = outcore.create(tmp_path / "b.npy", data=np.ones((k, m)))
    planned = outcore.matmul(
        a, b, out=tmp_path / "c.npy", memory=limit, method=method, prefetch=prefetch, explain=True
    )
    report = planned.report
    assert report.method.startswith(method)
    assert report.lower_bound_bytes >= a.nbytes + b.nbytes + m * m * 8
    assert report.operations == 2 * m * m * k
    planned.run().close()
    report = planned.report
    moved = report.measured.read_bytes + report.measured.written_bytes
    assert report.lower_bound_bytes <= moved <= 1.1 * (report.read_bytes + report.written_bytes)
    assert report.measured.peak_bytes <= parse_bytes(limit)


def test_a_narrow_product_reads_its_operands_once(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.ones((20_000, 40)))
    b = outcore.create(tmp_path / "b.npy", data=np.ones((40, 30)))
    planned = outcore.matmul(a, b, out=tmp_path / "c.npy", memory="1 MiB", explain=True)
    assert planned.report.method.startswith("slabs: 30 columns of b stay")
    assert planned.report.read_bytes < 1.05 * (a.nbytes + b.nbytes)
    planned.run().close()


def test_what_is_kept_for_long_is_loaded_again_now_and_then(tmp_path, tiny, checked):
    """Who goes on with an interrupted product does not begin at its first step."""
    a, b = some((50_000, 4), "f8", 1), some((4, 5), "f8", 2)
    with matmul(a, b, out=tmp_path / "c.npy", memory=50_000) as c:
        np.testing.assert_array_equal(a @ b, c[...])
    schedule = checked[-1]
    begins = [n for n in range(schedule.steps) if not schedule.step(n).continues]
    assert len(begins) > 3
    first = schedule.step(0)
    assert first.loads[1].array == 1
    assert any(len(schedule.step(n).loads) == 1 for n in range(1, schedule.steps))


def test_many_small_matrices(tmp_path):
    a, b = some((3000, 3, 4), "f4", 1), some((3000, 4, 2), "f4", 2)
    planned = matmul(a, b, out=tmp_path / "c.npy", memory="1 MiB", explain=True)
    assert planned.report.steps < 20
    with planned.run() as c:
        np.testing.assert_array_equal(a @ b, c[...])


SUMMED = [
    ((3, 4, 5), (4, 3, 2), ((1, 0), (0, 1))),
    ((3, 4, 5), (5, 4, 2), ((-1, -2), (0, 1))),
    ((7, 3, 2, 5), (2, 6, 3), ((2, 1), (0, 2))),
    ((6, 5), (6, 5), 2),
    ((6, 5), (5, 6), 1),
    ((6, 5), (3, 4), 0),
    ((6,), (6,), 1),
    ((4, 0), (0, 3), 1),
    ((0, 4), (4, 3), 1),
    ((1, 13, 2, 3), (13, 1, 4), ((1, 0), (0, 1))),
    ((), (3,), 0),
    ((4, 3), (3,), (1, 0)),
]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    case=st.sampled_from(SUMMED),
    times=st.sampled_from([1, 1, 3]),
    dtypes=st.tuples(*[st.sampled_from(["f8", "c8", "i4", ">f4", "?", "u1"])] * 2),
    formats=st.tuples(*[st.sampled_from(FORMATS)] * 2),
    budget=st.sampled_from([1, 30_000, "64 MiB"]),
    order=st.sampled_from("CF"),
)
def test_tensordot_is_that_of_numpy(
    tmp_path_factory, tiny, case, times, dtypes, formats, budget, order
):
    folder = tmp_path_factory.mktemp("tensordot")
    if budget == 1:
        times = 1  # the least budget does a step for every few elements: 50,000 of 3 x longer axes
    shapes, axes = [tuple(n * times if n > 1 else n for n in one) for one in case[:2]], case[2]
    a, b = (
        some(shape, dtype, n) for n, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    )
    x, y = stored(folder, "a", a, formats[0]), stored(folder, "b", b, formats[1])
    words = {"out": folder / "c.npy", "order": order}
    expected = np.tensordot(a, b, axes)
    try:
        c = outcore.tensordot(x, y, axes, memory=budget, **words)
    except outcore.BudgetError as error:
        c = outcore.tensordot(x, y, axes, memory=error.needed, **words)
    with c:
        assert expected.dtype.newbyteorder("=") == c.dtype.newbyteorder("=")
        np.testing.assert_array_equal(c[...], expected)


def test_inner_and_outer(tmp_path):
    a, b = some((5, 7, 6), "f8", 1), some((4, 6), "f4", 2)
    x = outcore.create(tmp_path / "a.zarr", data=a, chunks=(2, 3, 6))
    with outcore.inner(x, b) as c:
        np.testing.assert_array_equal(np.inner(a, b), c[...])
    with outcore.inner(x, 3.0) as c:
        np.testing.assert_array_equal(np.inner(a, 3.0), c[...])
    with outcore.outer(a[0, 0], b[1]) as c:
        np.testing.assert_array_equal(np.outer(a[0, 0], b[1]), c[...])
    assert outcore.inner(b[0], b[1]) == np.inner(b[0], b[1])
    assert outcore.inner(np.array(2.0), np.array(3)) == outcore.tensordot(2.0, 3.0, 0) == 6
    with outcore.outer(x, b) as c:
        np.testing.assert_array_equal(np.outer(a, b), c[...])


@pytest.mark.parametrize("dtype", ["f8", ">c8", "i4", "?"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((5, 6), (6, 4)),
        ((5, 6), (6,)),
        ((6,), (6, 4)),
        ((2, 5, 6), (6,)),
        ((2, 5, 6), (3, 6, 4)),
        ((6,), (3, 6, 4)),
        ((), (5, 6)),
        ((5, 6), ()),
        ((), ()),
        ((0, 6), (6, 4)),
        ((5, 0), (0, 4)),
    ],
    ids=str,
)
def test_dot_is_that_of_numpy(tmp_path, tiny, dtype, first, second):
    a, b = some(first, dtype, 1), some(second, dtype, 2)
    x = outcore.create(tmp_path / "a.npy", data=a, order="F") if a.ndim else a
    expected = np.dot(a, b)
    found = outcore.dot(x, b, memory="64 KiB")
    assert found.shape == expected.shape
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(expected, found[...] if expected.ndim else found)


@pytest.mark.parametrize("shapes", [((5, 6), (5, 6)), ((6,), (5,)), ((6,), (6, 5, 4))], ids=str)
def test_dot_of_axes_that_differ(shapes):
    a, b = (np.ones(shape) for shape in shapes)
    with pytest.raises(ValueError, match="shapes"):
        np.dot(a, b)
    with pytest.raises(outcore.errors.UsageError, match="dot: ") as refused:
        outcore.dot(a, b)
    vectors = a.ndim == b.ndim == 1
    assert refused.value.code == ("bad-shape" if vectors else "shape-mismatch")


@pytest.mark.parametrize(
    ("axes", "code"),
    [
        (3, "bad-axis"),
        (-1, "bad-axis"),
        ((0, 5), "bad-axis"),
        (((0, 0), (0, 1)), "bad-axis"),
        (((0,), (0, 1)), "bad-axis"),
        ("ab", "bad-axis"),
        (1, "shape-mismatch"),
    ],
)
def test_axes_that_do_not_go_together(axes, code):
    with pytest.raises(outcore.errors.UsageError) as refused:
        outcore.tensordot(np.ones((3, 4)), np.ones((3, 4)), axes)
    assert refused.value.code == code


def test_into_memory(tmp_path):
    a, b = some((30, 20), "f8", 1), some((20, 10), "f8", 2)
    x, y = outcore.create(tmp_path / "a.npy", data=a), outcore.create(tmp_path / "b.zarr", data=b)
    for found in (x @ y, x @ b, a @ y, x @ b.tolist(), a.tolist() @ y, np.matmul(a, y)):
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(a @ b, found)
    v = outcore.create(tmp_path / "v.npy", data=a[0])
    assert v @ v == a[0] @ a[0]
    assert isinstance(v @ v, np.float64)


def test_other_functions_of_numpy_read_the_array_as_before(tmp_path):
    data = some((5, 4), "f8")
    a = outcore.create(tmp_path / "a.npy", data=data)
    np.testing.assert_array_equal(data + data, data + a)
    np.testing.assert_array_equal(np.sqrt(np.abs(data)), np.sqrt(np.abs(a)))
    np.testing.assert_array_equal(data.sum(axis=0), np.add.reduce(a, axis=0))
    out = np.empty_like(data)
    assert np.add(a, 1, out=out) is out
    with pytest.raises(TypeError):
        np.add(data, 1, out=a)


def test_a_result_that_does_not_fit_names_the_function(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.ones((600, 2)))
    with (
        outcore.memory("4 MiB"),
        pytest.raises(outcore.BudgetError, match=r"outcore.matmul\(a, b, out=") as e,
    ):
        a @ a[...].T
    assert e.value.needed == 2 * 600 * 600 * 8
    with outcore.memory(e.value.needed):
        np.testing.assert_array_equal(np.full((600, 600), 2.0), a @ a[...].T)


def test_out_is_an_array_that_exists(tmp_path):
    a, b = some((30, 20), "f8", 1), some((20, 10), "f8", 2)
    out = np.zeros((30, 10))
    assert matmul(a, b, out=out) is out
    np.testing.assert_array_equal(a @ b, out)
    with outcore.create(tmp_path / "c.h5::/c", (30, 10), "c16") as c:
        assert matmul(a, b, out=c) is c
        np.testing.assert_array_equal(a @ b, c[...])
    x = outcore.create(tmp_path / "x.npy", data=np.ones((8, 8)))
    with pytest.raises(outcore.errors.UsageError, match="shares elements"):
        matmul(x, x, out=x)
    np.testing.assert_array_equal(np.ones((8, 8)), x[...])


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        (np.ones((3, 4)), np.ones((3, 4)), "shape-mismatch"),
        (np.ones(()), np.ones(3), "shape-mismatch"),
        (np.ones((2, 3, 4)), np.ones((3, 4, 5)), "shape-mismatch"),
        (np.ones(3, "M8[s]"), np.ones(3), "bad-dtype"),
    ],
)
def test_what_has_no_product(a, b, code):
    with pytest.raises(ValueError) as numpy_says:  # noqa: PT012
        try:
            np.matmul(a, b)
        except TypeError as error:
            raise ValueError from error
    assert numpy_says.value
    with pytest.raises(outcore.errors.UsageError) as refused:
        matmul(a, b)
    assert refused.value.code == code


def test_a_method_that_is_none():
    with pytest.raises(outcore.errors.UsageError, match="auto, slabs, blocks"):
        matmul(np.ones((2, 2)), np.ones((2, 2)), method="fast")


def test_products_are_added_in_place():
    assert gemm.can_add(np.dtype("f8"))
    assert not gemm.can_add(np.dtype(">f8"))
    assert not gemm.can_add(np.dtype("i8"))
    c = np.ones((3, 2))
    with pytest.raises(ValueError, match="does not fit"):
        gemm.multiply(c, np.ones((3, 4)), np.ones((3, 2)), add=True)
    with pytest.raises(ValueError, match="strides"):
        gemm.multiply(c, np.ones((6, 8))[::2, ::2], np.ones((4, 2)), add=True)
    np.testing.assert_array_equal(np.ones((3, 2)), c)


@pytest.mark.parametrize("char", "fdFD")
def test_every_way_matrices_are_stored(monkeypatch, char):
    for longest in (2**30, 3):
        monkeypatch.setattr(gemm, "_LONGEST", longest)
        for m, n, k in np.ndindex(3, 3, 4):
            for orders in ("CCC", "FCC", "CFC", "CCF", "FFC", "CFF", "FCF", "FFF"):
                shapes = (2 * m + 1, k), (k, 3 * n + 1), (2 * m + 1, 3 * n + 1)
                a, b, c = (
                    np.asarray(some(shape, char, at), order=order)
                    for at, (shape, order) in enumerate(zip(shapes, orders, strict=True))
                )
                sums = c + a @ b
                gemm.multiply(c, a, b, add=True)
                np.testing.assert_array_equal(sums, c)
                c[...] = np.nan
                gemm.multiply(c, a, b, add=False)
                np.testing.assert_array_equal(a @ b, c)


def test_the_cut_does_not_depend_on_how_fast_the_machine_is_today(tmp_path, monkeypatch):
    reports = []
    for rate in (1e9, 1e12):
        monkeypatch.setattr(contraction, "measure_product_rate", lambda char, rate=rate: rate)
        planned = matmul(
            np.ones((500, 600)), np.ones((600, 500)), out=tmp_path / "c.npy", explain=True
        )
        reports.append((planned.report.method, planned.report.steps, planned.report.read_bytes))
    assert reports[0] == reports[1]


@pytest.mark.parametrize("memory", ["400 KiB", "16 MiB"])
@pytest.mark.parametrize(
    ("a", "b", "axes"),
    [
        ((70, 90), (90, 60), [(0, 1), (0, 1), (1, 0)]),
        ((90, 70), (60, 90), [(1, 0), (-1, 0), (0, 1)]),
        ((70, 3, 90), (90, 60, 3), [(0, 2), (0, 1), (2, 0)]),
        ((70, 3, 90), (90, 60, 1), [(0, -1), (0, 1), (0, 1)]),
        ((70, 3, 90), (60, 90), [(0, 2), (1, 0), (-1, 0)]),
        ((90, 4, 50), (90,), [(1, 0), 0, (0,)]),
        ((90,), (2, 90, 60), [(0,), (-2, -1), 1]),
        ((90,), (90,), [(0,), (0,), ()]),
    ],
)
def test_axes_of_matrices_are_numpys(tmp_path, a, b, axes, memory):
    rng = np.random.default_rng(6)
    x, y = rng.integers(-9, 9, a).astype("f8"), rng.integers(-9, 9, b).astype("f8")
    expected = np.matmul(x, y, axes=axes)
    with outcore.create(tmp_path / "a.npy", data=x, order="F") as left:
        found = outcore.matmul(left, y, axes=axes, memory=memory)
        assert np.shape(expected) == np.shape(found)
        np.testing.assert_array_equal(expected, found[...] if a != b else found)


def test_axes_of_matrices_that_are_none():
    a = np.ones((3, 3))
    for axes in (
        [(0, 1), (0, 1)],
        (0, 1),
        3,
        [(0, 1), (0, 1), (0, 2)],
        [(0, 0), (0, 1), (0, 1)],
        [0, (0, 1), (0, 1)],
        [(0, 1), ("x", 1), (0, 1)],
    ):
        with pytest.raises(outcore.errors.UsageError, match="axes") as refused:
            outcore.matmul(a, a, axes=axes)
        assert refused.value.code == "bad-axis"
