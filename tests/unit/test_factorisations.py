"""Factorisations of matrices on disk: equal to LAPACK's by residual, within any memory, resumable."""

import importlib
import itertools
import sys
import threading
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
from outcore.arrays.schedule import ScheduleRun
from outcore.compute.factors import blas as blas_module
from outcore.compute.factors import separate
from outcore.compute.factors.blas import load_routines, working_dtype
from outcore.compute.jobs import DiskSpeed, InMemory, InsufficientBuffersError, Terms
from outcore.public import find_public
from schedule_check import check_schedule
from stopping import Stop

cholesky = importlib.import_module("outcore.compute.factors.cholesky")
lu = importlib.import_module("outcore.compute.factors.lu")
solving = importlib.import_module("outcore.compute.factors.solve")
tall = importlib.import_module("outcore.compute.factors.qr")

DISK = DiskSpeed(1 << 15, 15e-6, 2e9)
SINGLE = ("f4", "c8", ">f4")
DTYPES = st.sampled_from(["f8", "f4", "c16", "c8", "i4", "u2", "?", ">f8", ">c16", ">i2"])
ORDERS = st.sampled_from("CF")


def some(rng, shape, dtype, order="C"):
    """Elements of about one, of any dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        data = rng.random(shape) < 0.5
    elif dtype.kind in "iu":
        data = rng.integers(0 if dtype.kind == "u" else -9, 9, shape)
    else:
        data = rng.standard_normal(shape)
        if dtype.kind == "c":
            data = data + 1j * rng.standard_normal(shape)
    return np.array(data, dtype, order=order)


def definite(rng, n, dtype, order="C"):
    """Positive definite, and Hermitian, in any dtype."""
    x = some(rng, (n, n), dtype).astype(working_dtype(np.dtype(dtype)))
    if np.dtype(dtype).kind in "biu":
        return (
            np.array(np.eye(n) * 3, dtype, order=order)
            if np.dtype(dtype).kind != "b"
            else (np.eye(n, dtype=bool))
        )
    return np.array(x @ x.conj().T + n * np.eye(n), dtype, order=order)


def precision(dtype, n):
    return 20 * (n + 1) * np.finfo(working_dtype(np.dtype(dtype))).eps


def ran(plan, arrays, room):
    """The results of a program in so little room; None if it says that this is too little."""
    terms = Terms(room, (None,) * len(arrays), DISK, 2)
    try:
        program = plan(terms)
    except InsufficientBuffersError as error:
        needed = error.needed
    else:
        needed = 0
    if needed:
        assert needed > room
        return None
    held = [InMemory(one, "array") for one in arrays]
    for one in program.temporaries:
        held.append(
            InMemory(np.full(one.shape, 77, one.dtype, one.kept.get("order", "C")), "temporary")
        )
    for phase in program.phases:
        assert phase.held <= room
        check_schedule(phase, [one.shape for one in held], again=True)
        with ScheduleRun(phase, held) as run:
            run.finish()
    return program


@settings(max_examples=60, deadline=None)
@given(
    n=st.sampled_from([0, 1, 2, 7, 13, 23]),
    dtype=DTYPES,
    order=ORDERS,
    upper=st.booleans(),
    part=st.sampled_from([1 / 6, 1 / 3, 0.6, 1.2, 4]),
    seed=st.integers(0, 9),
)
def test_cholesky(n, dtype, order, upper, part, seed):
    room = 80 + int(part * n * n * working_dtype(np.dtype(dtype)).itemsize)
    a = definite(np.random.default_rng(seed), n, dtype, order)
    used = working_dtype(a.dtype)
    given_ = a.copy()
    if a.dtype.kind in "fc":  # of the other triangle nothing is used
        given_[(np.tril_indices if upper else np.triu_indices)(n, -1 if upper else 1)] = np.nan
    found = np.full((n, n), 88, used)
    plan = cholesky._CholeskyPlan(n, a.dtype, load_routines(used, "test"), upper)
    if ran(plan, [given_, found], room) is None or not n:
        return
    factor = found.conj().T if upper else found
    a = a.astype(used)
    assert np.all((np.tril if upper else np.triu)(found, -1 if upper else 1) == 0)
    assert np.linalg.norm(factor @ factor.conj().T - a) <= precision(dtype, n) * np.linalg.norm(a)
    np.testing.assert_allclose(
        found, np.linalg.cholesky(a, upper=upper), atol=1e3 * precision(dtype, n)
    )


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*[st.sampled_from([1, 2, 7, 13, 23])] * 2),
    dtype=DTYPES,
    order=ORDERS,
    apart=st.booleans(),
    room=st.integers(100, 9000),
    seed=st.integers(0, 9),
)
def test_lu_factor(shape, dtype, order, apart, room, seed):
    m, n = shape
    a = some(np.random.default_rng(seed), shape, dtype, order)
    used = working_dtype(a.dtype)
    found, pivots = np.full(shape, 88, used), np.full(min(shape), -1, np.int32)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        patch.setattr(lu, "is_by_columns", lambda terms, face: apart)
        plan = lu._LuPlan(m, n, a.dtype, load_routines(used, "test"))
        if ran(plan, [a, found, pivots], room) is None:
            return
        _, order_ = scipy.linalg.lu_factor(a.astype(used), check_finite=False)
    k = min(shape)
    low, up = np.tril(found[:, :k], -1) + np.eye(m, k), np.triu(found[:k])
    rows = np.arange(m)
    for i, other in enumerate(pivots):
        rows[[i, other]] = rows[[other, i]]
    if a.dtype.kind == "f":  # no two elements are equal
        np.testing.assert_array_equal(order_, pivots)
    a = a.astype(used)
    scale = np.linalg.norm(low) * np.linalg.norm(up) + np.linalg.norm(a)
    assert np.linalg.norm(low @ up - a[rows]) <= precision(dtype, max(shape)) * scale
    assert np.abs(low).max() <= 1 + (0.5 if used.kind == "c" else 0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (90, 33), (90, 90), (40, 100), (300, 64), (70, 1)], ids=str
)
@pytest.mark.parametrize("zero", [False, True])
def test_halves_are_factored_as_lapack_does(dtype, shape, zero):
    a = some(np.random.default_rng(3), shape, dtype, "F")
    if zero:
        a[:, shape[1] // 2] = 0
    expected, rows, info = scipy.linalg.get_lapack_funcs(("getrf",), (a,))[0](a)
    pivots = np.zeros(min(shape), np.int32)
    assert load_routines(a.dtype, "lu").getrf(a, pivots) == info
    np.testing.assert_array_equal(rows, pivots)
    error = np.abs(expected - a).max()
    assert error <= 100 * precision(dtype, max(shape)) * max(np.abs(expected).max(), 1)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("n", [1, 64, 65, 150, 300])
def test_halves_of_triangles_are_solved(dtype, n):
    rng = np.random.default_rng(4)
    factor = np.asfortranarray(np.tril(some(rng, (n, n), dtype)) + n * np.eye(n, dtype=dtype))
    sides = some(rng, (70, n), dtype, "F")
    found = sides.copy(order="F")
    load_routines(sides.dtype, "cholesky").trsm(factor, found, side="R", trans="C")
    assert np.abs(found @ factor.conj().T - sides).max() <= precision(dtype, n)


def test_threads_that_ask_what_lapack_works_in_get_their_own_answers():
    """With a wrong answer a rank plans other blocks of rows than the others."""
    blas, found = load_routines(np.dtype("f8"), "test"), set()

    def ask():
        for _ in range(1000):
            found.add(blas.qr_work(20))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(found) == 1


@settings(max_examples=50, deadline=None)
@given(
    shape=st.tuples(*[st.sampled_from([1, 2, 7, 13, 23])] * 2),
    dtype=st.sampled_from(["f8", "f4", "c16", "c8", ">f8"]),
    order=ORDERS,
    kind=st.sampled_from(["p", "p_indices", "permute_l"]),
    room=st.integers(300, 9000),
    seed=st.integers(0, 9),
)
def test_lu(shape, dtype, order, kind, room, seed):
    a = some(np.random.default_rng(seed), shape, dtype, order)
    used = working_dtype(a.dtype)
    words = {} if kind == "p" else {kind: True}
    expected = scipy.linalg.lu(a.astype(used), **words)
    found = [np.full(one.shape, 88, one.dtype) for one in expected]
    if kind == "p_indices":
        found[0] = found[0].astype(np.int32)
    plan = separate._LuPartsPlan(
        shape, a.dtype, load_routines(used, "test"), tuple(f.shape for f in found)
    )
    if ran(plan, [a, *found], room) is None:
        return
    close = 1e3 * precision(dtype, max(shape))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=close, atol=close)


def test_factors_have_places_of_their_own(tmp_path):
    rng = np.random.default_rng(8)
    a = rng.standard_normal((53, 41))
    for words in ({}, {"p_indices": True}, {"permute_l": True}):
        expected = scipy.linalg.lu(a, **words)
        places = tuple(f"{tmp_path}/{n}.npy" for n in range(len(expected)))
        for out in (None, places):
            found = outcore.linalg.lu(a, out=out, overwrite=True, **words)
            assert [type(one) for one in found[-2:]] == [outcore.DiskArray] * 2
            for one, other in zip(expected, found, strict=True):
                np.testing.assert_allclose(other[...], one, atol=1e-12)
                assert out is None or other.path in places
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.linalg.lu(a, out=f"{tmp_path}/all.npy")
    assert caught.value.code == "bad-out"
    for shape in ((0, 3), (3, 0)):
        for words in ({}, {"p_indices": True}, {"permute_l": True}):
            expected = scipy.linalg.lu(np.ones(shape), **words)
            for one, other in zip(
                expected, outcore.linalg.lu(np.ones(shape), **words), strict=True
            ):
                np.testing.assert_array_equal(other[...], one)
    a[:, 3] = 0
    with pytest.warns(RuntimeWarning, match="lu: pivot 3 is exactly zero"):
        outcore.linalg.lu(a[:4, :4] * 0 + np.diag([1.0, 2, 3, 0]))


@settings(max_examples=50, deadline=None)
@given(
    n=st.sampled_from([1, 2, 7, 13, 23]),
    sides=st.sampled_from([None, 1, 3]),
    dtypes=st.tuples(DTYPES, DTYPES),
    orders=st.tuples(ORDERS, ORDERS),
    room=st.integers(300, 9000),
    seed=st.integers(0, 9),
)
def test_solve(n, sides, dtypes, orders, room, seed):
    rng = np.random.default_rng(seed)
    a = some(rng, (n, n), dtypes[0], orders[0])
    a = a | np.eye(n, dtype=bool) if a.dtype.kind == "b" else a + np.array(20 * np.eye(n), a.dtype)
    a = np.triu(a) if a.dtype.kind == "b" else a
    b = some(rng, (n,) if sides is None else (n, sides), dtypes[1], orders[1])
    used = working_dtype(a.dtype, b.dtype)
    x = np.full(b.shape, 88, used)
    plan = solving._SolvePlan(n, b.shape, (a.dtype, b.dtype), load_routines(used, "test"))
    if ran(plan, [a, b, x], room) is None:
        return
    assert (
        used
        == np.linalg.solve(
            np.eye(2, dtype=a.dtype.newbyteorder("=")), np.ones(2, b.dtype.newbyteorder("="))
        ).dtype
    )
    a, b = a.astype(used), b.astype(used)
    scale = np.linalg.norm(a) * np.linalg.norm(x) + np.linalg.norm(b)
    assert np.linalg.norm(a @ x - b) <= precision(used, n) * scale


@settings(max_examples=50, deadline=None)
@given(
    shape=st.sampled_from([(1, 1), (7, 3), (101, 4), (53, 5), (3, 8), (13, 13)]),
    dtype=DTYPES,
    order=ORDERS,
    room=st.integers(6000, 40000),
    seed=st.integers(0, 9),
)
def test_qr_and_svd(shape, dtype, order, room, seed):
    a = some(np.random.default_rng(seed), shape, dtype, order)
    (m, n), k, used = shape, min(shape), working_dtype(a.dtype)
    blas, real = load_routines(used, "test"), np.empty(0, used).real.dtype
    close = precision(dtype, m) * (1 + np.linalg.norm(a.astype(used)))
    q, r, alone = (np.full(one, 88, used) for one in ((m, k), (k, n), (k, n)))
    u, vh = (np.full(one, 88, used) for one in ((m, k), (k, n)))
    s, values = np.full(k, 88, real), np.full(k, 88, real)
    if ran(tall._QrPlan("qr", shape, (a.dtype,), blas, True), [a, q, r], room):
        a_ = a.astype(used)
        assert np.linalg.norm(q @ r - a_) <= close
        assert np.linalg.norm(q.conj().T @ q - np.eye(k)) <= precision(dtype, m)
        assert np.all(np.tril(r, -1) == 0)
        assert ran(tall._QrPlan("qr", shape, (a.dtype,), blas, False), [a, alone], room)
        np.testing.assert_allclose(np.abs(np.diag(alone)), np.abs(np.diag(r)), atol=close)
    if ran(tall._QrPlan("svd", shape, (a.dtype,), blas, True), [a, u, s, vh], room):
        a_ = a.astype(used)
        assert np.linalg.norm(u * s @ vh - a_) <= close
        assert np.linalg.norm(u.conj().T @ u - np.eye(k)) <= precision(dtype, m)
        np.testing.assert_allclose(s, np.linalg.svd(a_, compute_uv=False), atol=close)
        assert ran(tall._QrPlan("svd", shape, (a.dtype,), blas, False), [a, values], room)
        np.testing.assert_allclose(s, values, atol=close)


@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from([(7, 3), (101, 4), (3, 8), (5, 5)]),
    sides=st.sampled_from([None, 1, 2]),
    dtypes=st.tuples(st.sampled_from(["f8", "c16", "i4", ">f8"]), st.sampled_from(["f8", "i2"])),
    twice=st.booleans(),
    rcond=st.sampled_from([None, 1e-3, -1]),
    seed=st.integers(0, 9),
)
def test_lstsq(shape, sides, dtypes, twice, rcond, seed):
    rng = np.random.default_rng(seed)
    a = some(rng, shape, dtypes[0])
    if twice:  # the rank is less than the number of columns
        a = np.concatenate([a, a[:, :1]], axis=1)
        rcond = 1e-3
    b = some(rng, shape[:1] if sides is None else (shape[0], sides), dtypes[1])
    expected = np.linalg.lstsq(a, b, rcond=rcond)
    found = outcore.linalg.lstsq(a, b, rcond)
    assert found[2] == expected[2]
    for one, other in zip(expected, found, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", ["f8", "c16", "f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_solutions_with_factors(tmp_path, dtype, order):
    rng = np.random.default_rng(1)
    a, b = some(rng, (29, 29), dtype), some(rng, (29, 3), dtype)
    factors, pivots = scipy.linalg.lu_factor(a)
    close = 1e3 * precision(dtype, 29)
    np.save(tmp_path / "lu.npy", np.array(factors, order=order))
    for trans in (0, 1, 2):
        x = outcore.linalg.lu_solve((tmp_path / "lu.npy", pivots), b, trans)
        np.testing.assert_allclose(
            x[...], scipy.linalg.lu_solve((factors, pivots), b, trans), atol=close
        )
    h = definite(rng, 29, dtype)
    for lower in (True, False):
        factor, _ = scipy.linalg.cho_factor(h, lower=lower)
        np.save(tmp_path / "c.npy", np.array(factor, order=order))
        x = outcore.linalg.cho_solve((tmp_path / "c.npy", lower), b[:, 0])
        np.testing.assert_allclose(h @ x, b[:, 0], atol=close)
    assert outcore.linalg.cho_solve((h[:0, :0], True), b[:0]).shape == (0, 3)


FILES = [
    ("a.npy", {}), ("a.npy", {"order": "F"}), ("a.zarr", {"chunks": (50, 70)}), ("a.h5::/x", {}),
]  # fmt: skip


@pytest.mark.parametrize(("file", "words"), FILES, ids=str)
@pytest.mark.parametrize(
    "target", [("b.npy", {}), ("b.npy", {"order": "C"}), ("b.zarr", {})], ids=str
)
def test_files(tmp_path, file, words, target):
    rng = np.random.default_rng(2)
    n = 210
    a = some(rng, (n, n), "f8")
    h = definite(rng, n, "f8")
    name, options = target
    how = {"memory": "3 MiB", "overwrite": True, **options}
    source, out = f"{tmp_path}/{file}", f"{tmp_path}/{name}"
    with outcore.create(source, data=a, **words):
        pass
    found, pivots = outcore.linalg.lu_factor(source, out=out, **how)
    expected = scipy.linalg.lu_factor(a)
    np.testing.assert_allclose(found[...], expected[0], atol=1e-9)
    np.testing.assert_array_equal(expected[1], pivots)
    np.testing.assert_allclose(
        a @ outcore.linalg.lu_solve((found, pivots), a[:, 0]), a[:, 0], atol=1e-9
    )
    found.close()
    b = a[:, :3]
    with outcore.linalg.solve(source, b, out=out, **how) as x:
        np.testing.assert_allclose(x[...], np.eye(n)[:, :3], atol=1e-9)
    with outcore.create(f"{tmp_path}/h-{file}", data=h, **words) as there:
        factor = outcore.linalg.cholesky(there, out=out, **how)
    np.testing.assert_allclose(factor[...], np.linalg.cholesky(h), atol=1e-10)
    factor.close()


def counted(operation, *arguments, **words):
    planned = operation(*arguments, explain=True, **words)
    before = planned.report
    assert before.read_bytes + before.written_bytes >= before.lower_bound_bytes
    result = planned.run()
    report = planned.report
    moved = report.measured.read_bytes + report.measured.written_bytes
    assert moved >= report.lower_bound_bytes
    assert moved <= 1.1 * (report.read_bytes + report.written_bytes)
    assert report.measured.peak_bytes <= report.peak_bytes
    return result


def test_factorisations_move_the_reported_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    n = 1200
    np.save("a.npy", rng.standard_normal((n, n)))
    np.save("h.npy", definite(rng, n, "f8"))
    np.save("t.npy", rng.standard_normal((60_000, 12)))
    for memory in ("6 MiB", "9 MiB"):
        words = {"memory": memory, "overwrite": True}
        for one in counted(outcore.linalg.lu_factor, "a.npy", out="lu.npy", **words)[:1]:
            one.close()
        counted(outcore.linalg.cholesky, "h.npy", out="l.npy", **words).close()
        counted(outcore.linalg.solve, "a.npy", np.ones(n), **words)
        counted(outcore.linalg.qr, "t.npy", out="q.npy", **words)[0].close()
        counted(outcore.linalg.svd, "t.npy", out="u.npy", **words)[0].close()


CALLS = {
    "lu_factor": lambda how: outcore.linalg.lu_factor("a.npy", out="out.npy", **how)[0],
    "lu_factor C": lambda how: outcore.linalg.lu_factor("a.npy", out="out.npy", order="C", **how)[
        0
    ],
    "cholesky": lambda how: outcore.linalg.cholesky("h.npy", out="out.npy", **how),
    "cholesky C": lambda how: outcore.linalg.cholesky("h.npy", out="out.npy", order="C", **how),
    "solve": lambda how: outcore.linalg.solve("a.npy", "a.npy", out="out.npy", **how),
    "qr": lambda how: outcore.linalg.qr("t.npy", out="out.npy", **how)[0],
    "svd": lambda how: outcore.linalg.svd("t.npy", out="out.npy", **how)[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_interrupted_and_resumed(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    n = 300
    np.save("a.npy", rng.standard_normal((n, n)))
    np.save("h.npy", definite(rng, n, "f8"))
    np.save("t.npy", rng.standard_normal((9000, 9)))
    how = {"memory": "400 KiB", "overwrite": True}
    told = []
    CALLS[name]({**how, "progress": lambda done, total: told.append(done)}).close()
    undisturbed = (tmp_path / "out.npy").read_bytes()
    for at in sorted({1, len(told) // 3, len(told) // 2, len(told) - 2}):
        (tmp_path / "out.npy").unlink()
        calls = []

        def progress(done, total, at=at, calls=calls):
            calls.append(done)
            if len(calls) == at + 1:
                raise Stop

        with pytest.raises(Stop):
            CALLS[name]({**how, "progress": progress})
        CALLS[name]({**how, "resume": True}).close()
        assert undisturbed == (tmp_path / "out.npy").read_bytes(), at
        assert sorted(one.name for one in tmp_path.iterdir()) == [
            "a.npy",
            "h.npy",
            "out.npy",
            "t.npy",
        ]


def test_matrices_that_cannot_be_factored_raise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(6)
    a = rng.standard_normal((40, 40))
    a[:, 17] = a[:, 3] = 0

    def refused(code, call):
        np.save("a.npy", a)
        before = (tmp_path / "a.npy").read_bytes()
        with pytest.raises(outcore.errors.LinAlgError) as caught:
            call()
        assert caught.value.code == code
        assert isinstance(caught.value, np.linalg.LinAlgError)
        assert before == (tmp_path / "a.npy").read_bytes()
        left = {one.name for one in tmp_path.iterdir()} - {"a.npy"}
        assert not [one for one in left if "outcore" not in one], left

    refused("singular-matrix", lambda: outcore.linalg.solve("a.npy", a[0]))
    with pytest.warns(RuntimeWarning, match="pivot 3 is exactly zero"):
        factors, pivots = outcore.linalg.lu_factor("a.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        np.testing.assert_allclose(factors[...], scipy.linalg.lu_factor(a)[0], atol=1e-12)
    refused("singular-matrix", lambda: outcore.linalg.lu_solve((factors, pivots), a[0]))
    refused("not-positive-definite", lambda: outcore.linalg.cholesky("a.npy"))
    refused("not-square", lambda: outcore.linalg.cholesky(a[:5]))
    refused("not-square", lambda: outcore.linalg.solve(a[:5], a[:5]))
    for bad in (np.nan, np.inf):
        a[23, 5] = bad
        refused("not-finite", lambda: outcore.linalg.lu_factor("a.npy"))
        refused("not-finite", lambda: outcore.linalg.solve("a.npy", np.ones(40)))
        refused("not-finite", lambda: outcore.linalg.svd("a.npy"))
        refused("not-finite", lambda: outcore.linalg.lstsq("a.npy", np.ones(40)))
        refused("not-finite", lambda: outcore.linalg.qr("a.npy"))
        refused("not-finite", lambda: outcore.linalg.lu("a.npy"))
        refused("not-positive-definite", lambda: outcore.linalg.cholesky(np.eye(40) * 99 + a))
        for sides in (a, a[23], np.full(40, bad)):
            refused("not-finite", lambda: outcore.linalg.solve(np.eye(40), sides))  # noqa: B023
            refused("not-finite", lambda: outcore.linalg.lstsq(np.eye(40), sides))  # noqa: B023


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_factors_with_nan(order, bad):
    """Wherever it is in the triangle that is used, and nowhere else."""
    n = 9
    whole = np.random.default_rng(8).random((n, n)) + 3 * np.eye(n)
    for row, column in itertools.product(range(n), range(n)):
        factor = whole.copy(order=order)
        factor[row, column] = bad
        pivots, sides = range(n), np.ones(n)
        calls = [
            partial(outcore.linalg.lu_solve, (factor, pivots), sides, kind) for kind in range(3)
        ]
        calls.append(partial(outcore.linalg.cho_solve, (factor, row >= column), sides))
        for call in calls:
            with pytest.raises(outcore.errors.LinAlgError) as caught:
                call()
            assert caught.value.code == "not-finite"
            assert f"element ({row}, {column}) of the factor is {bad}" in str(caught.value)
        if row != column:
            found = outcore.linalg.cho_solve((factor, row < column), np.ones(n))
            expected = outcore.linalg.cho_solve((whole, row < column), np.ones(n))
            np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize(
    "call",
    [
        outcore.linalg.cholesky,
        outcore.linalg.lu,
        outcore.linalg.lu_factor,
        outcore.linalg.qr,
        outcore.linalg.svd,
        lambda a: outcore.linalg.solve(a, [1.0]),
        lambda a: outcore.linalg.lstsq(a, [1.0]),
        lambda a: outcore.linalg.lu_solve((a, [0]), [1.0]),
        lambda a: outcore.linalg.cho_solve((a, True), [1.0]),
        lambda a: outcore.linalg.solve(np.eye(3), a[..., :2]),
        lambda a: outcore.linalg.lstsq(np.eye(3), a[..., :2]),
        lambda a: outcore.linalg.lu_solve((np.eye(3), [0, 1, 2]), a[..., :2]),
        lambda a: outcore.linalg.cho_solve((np.eye(3), True), a[..., :2]),
    ],
)
@pytest.mark.parametrize("shape", [(3,), (2, 3, 3)])
def test_arrays_that_are_not_matrices_are_refused(call, shape):
    with pytest.raises(np.linalg.LinAlgError) as caught:
        call(np.ones(shape))
    assert caught.value.code == "bad-shape"


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("bad-dtype", lambda: outcore.linalg.cholesky(np.eye(3, dtype="f2"))),
        ("bad-dtype", lambda: outcore.linalg.qr(np.zeros((3, 2), "M8[s]"))),
        ("bad-shape", lambda: outcore.linalg.lu_factor(np.ones(3))),
        ("bad-shape", lambda: outcore.linalg.solve(np.eye(3), np.ones(4))),
        ("bad-shape", lambda: outcore.linalg.lstsq(np.ones((3, 2)), np.ones((2, 2)))),
        ("bad-shape", lambda: outcore.linalg.lu_solve((np.eye(3), [0, 1]), np.ones(3))),
        ("bad-value", lambda: outcore.linalg.lu_solve((np.eye(3), [0, 1, 3]), np.ones(3))),
        ("bad-value", lambda: outcore.linalg.lu_solve((np.eye(3), [0, 1, 2]), np.ones(3), 3)),
        ("bad-option", lambda: outcore.linalg.qr(np.eye(3), "complete")),
        ("bad-option", lambda: outcore.linalg.svd(np.eye(3), True)),
        ("budget-too-small", lambda: outcore.linalg.qr(np.ones((9, 2000)), memory="1 MiB")),
    ],
)
def test_invalid_calls_are_refused(code, call):
    with pytest.raises(outcore.OutcoreError) as caught:
        call()
    assert caught.value.code == code


def test_empty_operands():
    assert outcore.linalg.cholesky(np.ones((0, 0))).shape == (0, 0)
    factors, pivots = outcore.linalg.lu_factor(np.ones((0, 3)))
    assert factors.shape == (0, 3) and pivots.shape == (0,)
    assert outcore.linalg.solve(np.ones((0, 0)), np.ones(0)).shape == (0,)
    assert outcore.linalg.solve(np.eye(3), np.ones((3, 0))).shape == (3, 0)
    q, r = outcore.linalg.qr(np.ones((5, 0)))
    assert q.shape == (5, 0) and r.shape == (0, 0)
    assert [one.shape for one in outcore.linalg.svd(np.ones((5, 0)))] == [(5, 0), (0,), (0, 0)]
    found, expected = (
        outcore.linalg.lstsq(np.ones((5, 0)), np.ones(5)),
        np.linalg.lstsq(np.ones((5, 0)), np.ones(5)),
    )
    assert [np.shape(one) for one in found] == [np.shape(one) for one in expected]


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.parametrize("rows", [3, 300_000])
def test_least_squares_without_columns_leaves_the_right_hand_sides(dtype, rows):
    a, b = np.zeros((rows, 0), dtype), (np.arange(rows * 2) % 7).reshape(rows, 2).astype(dtype)
    for system in ((a, b), (a, b[:, 0]), (a, b[:, :0]), (np.eye(rows, 2, dtype=dtype), b[:, :0])):
        found = outcore.linalg.lstsq(*system, memory="1 MiB")
        for one, expected in zip(found, np.linalg.lstsq(*system), strict=True):
            assert np.shape(expected) == np.shape(one)
            np.testing.assert_allclose(one, expected, rtol=1e-3)


def test_a_budget_that_is_told_does(tmp_path):
    a = np.random.default_rng(7).standard_normal((2000, 20))
    np.save(tmp_path / "a.npy", a)
    with pytest.raises(outcore.BudgetError) as caught:
        outcore.linalg.lu_factor(tmp_path / "a.npy", memory=30_000)
    factors, _ = outcore.linalg.lu_factor(tmp_path / "a.npy", memory=caught.value.needed)
    np.testing.assert_allclose(factors[...], scipy.linalg.lu_factor(a)[0], atol=1e-10)


def test_factors_as_long_as_the_rows_are_refused_by_naming_those_that_are_not():
    for mode in ("complete", "raw"):
        with pytest.raises(outcore.errors.UsageError, match="'reduced'"):
            outcore.linalg.qr(np.ones((5, 2)), mode)
    with pytest.raises(outcore.errors.UsageError, match="pass False"):
        outcore.linalg.svd(np.ones((5, 2)), full_matrices=True)


def test_narrow_factorisations_use_one_thread(tmp_path, monkeypatch):
    """Of 20,000 x 60 with the threads of BLAS 28 s, with one 1.4 s: threads wait for each other."""
    threads = blas_module.find_threads()
    if not threads.count:
        pytest.skip("SciPy has another library than OpenBLAS")
    seen = set()
    call = blas_module.Routines._call

    def noted(self, name, *arguments):
        asks = isinstance(arguments[-2], int) and arguments[-2] == -1  # how much memory it wants
        if not asks:
            seen.add((name, threads.count))
        return call(self, name, *arguments)

    monkeypatch.setattr(blas_module.Routines, "_call", noted)
    a = np.random.default_rng(1).random((4_000, 30))
    before = threads.count
    threads._set(2)
    try:
        for name, more in (("qr", ()), ("svd", ()), ("lstsq", (a[:, 0],))):
            words = {"full_matrices": False} if name == "svd" else {}
            find_public(name)(a, *more, memory="1 MiB", **words)
        outcore.linalg.lu_factor(a[:300].T @ a[:300], memory="1 MiB")
        assert {one for one, _ in seen} >= {"geqrf", "ormqr", "getrf"}
        assert {count for name, count in seen if name in ("geqrf", "ormqr", "getrf")} == {1}
        assert threads.count == 2, "others have their threads again"
        with threads.use_one(), threads.use_one():
            assert threads.count == 1
        assert threads.count == 2
        with blas_module._threads_for(10_000):
            assert threads.count == 2
    finally:
        threads._set(before)
