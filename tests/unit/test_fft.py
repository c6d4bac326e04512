"""Fourier transforms: NumPy's, of arrays on disk, whatever fits in memory."""

import gc
import importlib
import math
import os
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore.arrays.schedule import ScheduleRun, count_elements
from outcore.compute import jobs
from outcore.compute.fourier import kernels as fft_kernels
from outcore.compute.fourier import plan as fft_plan
from outcore.compute.fourier.kernels import FourierStage, find_mirrored, transform
from outcore.compute.fourier.plan import Transform, plan_transforms
from outcore.compute.jobs import Terms
from outcore.compute.jobs.operation import DiskSpeed
from outcore.compute.passes.places import Panels
from outcore.public import find_public
from schedule_check import check_schedule

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = tuple(f"{kind}{d}" for kind in ("fft", "ifft", "rfft", "irfft") for d in ("2", "n"))
REAL = ("f4", ">f8", "i2", ">u4", "?", "f2")
DTYPES = (*REAL, "c8", ">c16", "c16")
quick = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def every_schedule_is_checked(monkeypatch):
    """And may be done again, step by step."""
    carry = importlib.import_module("outcore.compute.jobs.carry")

    def run(schedule, arrays, plain=ScheduleRun, **more):
        stored = {s.array for k in range(schedule.steps) for s in schedule.step(k).stores}
        # Panels have edges where nothing is, of one row its end is stored; all else is stored whole.
        names = {n: schedule.arrays[n] for n in stored}
        whole = [n for n in stored if not names[n].startswith("temporary")]
        whole = [n for n in whole if not names[n].endswith("one row")]
        check_schedule(schedule, [a.shape for a in arrays], whole, again=True)
        return plain(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)


def random(shape, dtype, seed=0):
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind in "biu":
        return rng.integers(0, 2 if kind.kind == "b" else 100, shape).astype(kind)
    data = rng.standard_normal(shape)
    if kind.kind == "c":
        data = data + 1j * rng.standard_normal(shape)
    return np.asarray(data).astype(kind)


def assert_equal(expected, actual):
    assert expected.dtype == actual.dtype
    assert expected.shape == actual.shape
    single = expected.dtype in (np.complex64, np.float32)
    largest = np.abs(expected).max(initial=0.0)
    error = np.abs(expected - actual[...]).max(initial=0.0)
    assert error <= (1e-5 if single else 1e-13) * max(largest, 1e-30) * 4


def smallest(call):
    """What `call(memory=...)` gives with the least that it says it needs."""
    memory = 1
    for _ in range(3):
        try:
            return call(memory=memory), memory
        except outcore.BudgetError as error:
            memory = max(error.needed, memory + 1)
    return call(memory=memory), memory


def stored(tmp_path, data, kind):
    """An array on disk, or the array itself."""
    if kind == "memory":
        return data
    name = f"in-{len(list(tmp_path.iterdir()))}"
    if kind in "CF":
        return outcore.create(tmp_path / f"{name}.npy", data=data, order=kind)
    chunks = tuple(min(max((n + 1) // 2, 1), 700) for n in data.shape)
    words = {} if kind == "zarr" else {"compression": "gzip"}
    suffix = "zarr" if kind == "zarr" else "h5::/x"
    return outcore.create(tmp_path / f"{name}.{suffix}", data=data, chunks=chunks, **words)


LENGTHS = st.sampled_from((1, 2, 3, 4, 5, 7, 12, 17))


@st.composite
def calls(draw):
    name = draw(st.sampled_from(ONE + MANY))
    least = 2 if name.endswith("2") else 1
    shape = tuple(draw(st.lists(LENGTHS, min_size=least, max_size=4)))
    real = name.startswith(("rfft", "ihfft"))
    dtype = draw(st.sampled_from(REAL if real else DTYPES))
    words = {"norm": draw(st.sampled_from((None, "backward", "ortho", "forward")))}
    axis = st.integers(-len(shape), len(shape) - 1)
    if name in ONE:
        words["axis"] = draw(axis)
        words["n"] = draw(st.none() | LENGTHS)
        if name in ("irfft", "hfft") and words["n"] is None and shape[words["axis"]] == 1:
            words["n"] = 1
    else:
        words["axes"] = draw(st.lists(axis, min_size=1, max_size=4))
        lengths = st.lists(LENGTHS, min_size=len(words["axes"]), max_size=len(words["axes"]))
        words["s"] = draw(st.none() | lengths)
        if name.startswith("irfft") and words["s"] is None and shape[words["axes"][-1]] == 1:
            words["s"] = [2] * len(words["axes"])
    return name, shape, dtype, words


@quick
@given(
    call=calls(),
    source=st.sampled_from(("memory", "C", "F", "zarr", "hdf5")),
    target=st.sampled_from(("npy", "F", "zarr", "hdf5")),
    least=st.booleans(),
)
def test_it_is_what_numpy_says(tmp_path_factory, call, source, target, least):
    tmp_path = tmp_path_factory.mktemp("fft")
    name, shape, dtype, words = call
    data = random(shape, dtype)
    # NumPy rounds factors to half precision where the input has it.
    native = np.dtype("f4") if dtype == "f2" else data.dtype.newbyteorder("=")
    expected = getattr(np.fft, name)(data.astype(native), **words)
    more = {"out": tmp_path / {"hdf5": "out.h5::/x", "zarr": "out.zarr"}.get(target, "out.npy")}
    if target == "F":
        more["order"] = "F"
    elif target != "npy":
        more["chunks"] = tuple(max((n + 1) // 2, 1) for n in expected.shape)

    def run(**memory):
        a = stored(tmp_path, data, source)
        return find_public(name)(a, **words, **more, **memory)

    result = smallest(run)[0] if least else run()
    assert_equal(expected, result)
    result.close()


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (3, 0, 2)])
def test_of_nothing(shape):
    data = np.ones(shape)
    for axis in range(len(shape)):
        for n in (None, 3):
            if shape[axis] or n:
                assert_equal(np.fft.fft(data, n, axis), outcore.fft.fft(data, n, axis))


def test_of_no_axes_it_is_a_copy():
    data = np.arange(6).reshape(2, 3)
    for one in (outcore.fft.fftn(data, axes=()), outcore.fft.fftn(data, s=(), axes=())):
        np.testing.assert_array_equal(data, one[...])
        assert one.dtype == data.dtype
    assert outcore.fft.fftn(np.float64(5))[()] == 5


def test_a_length_of_minus_one_is_as_it_is():
    data = random((4, 6), "c16")
    assert_equal(np.fft.fftn(data, (-1, 5), (0, 1)), outcore.fft.fftn(data, (-1, 5), (0, 1)))
    assert_equal(np.fft.fftn(data, (4, 5), (0, 1)), outcore.fft.fftn(data, (None, 5), (0, 1)))


BAD = {
    "axis": (lambda a: outcore.fft.fft(a, axis=2), "bad-axis"),
    "no axes": (lambda a: outcore.fft.fft(np.float32(1)), "bad-axis"),
    "too few axes": (lambda a: outcore.fft.fft2(a[0]), "bad-axis"),
    "none to halve": (lambda a: outcore.fft.rfftn(a, axes=()), "bad-axis"),
    "no points": (lambda a: outcore.fft.fft(a, 0), "bad-value"),
    "fewer": (lambda a: outcore.fft.ifft(a, -1), "bad-value"),
    "half": (lambda a: outcore.fft.irfft(a[:, :1]), "bad-value"),
    "an empty axis": (lambda a: outcore.fft.fft(a[:, :0]), "bad-value"),
    "norm": (lambda a: outcore.fft.fft(a, norm="unit"), "bad-value"),
    "not whole": (lambda a: outcore.fft.fft(a, 2.0), "bad-value"),
    "lengths": (lambda a: outcore.fft.fftn(a, (2,), (0, 1)), "bad-value"),
    "complex": (lambda a: outcore.fft.rfft(a + 1j), "bad-dtype"),
    "text": (lambda a: outcore.fft.fft(np.array(["a"])), "bad-dtype"),
    "longdouble": (lambda a: outcore.fft.fft(a.astype("g")), "bad-dtype"),
    "its complex": (lambda a: outcore.fft.ifft2(a.astype("G")), "bad-dtype"),
    "option": (lambda a: outcore.fft.fft(a, workers=3), "unknown-option"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_transforms_are_refused(case):
    call, code = BAD[case]
    with pytest.raises(outcore.errors.UsageError) as told:
        call(np.ones((3, 4)))
    assert code == told.value.code


@pytest.mark.parametrize("s", [(3, None), (None, 6), (-1, 4), (3, -1), (None, None)])
@pytest.mark.parametrize("name", ["fft2", "irfft2", "rfftn", "irfftn"])
@pytest.mark.filterwarnings("ignore")
def test_lengths_that_are_not_said(name, s):
    """None is what there would be without `s`, -1 what `a` has: for half a spectrum these differ."""
    a = np.random.default_rng(2).random((6, 5))
    expected = getattr(np.fft, name)(a, s, axes=(0, 1))
    actual = find_public(name)(a, s, axes=(0, 1))
    assert expected.shape == actual.shape
    np.testing.assert_allclose(expected, actual[...], atol=1e-12)


# Lines that do not fit: N = N1 N2 on disk.

LONG = [
    ("fft", (9000,), "c16", {}, "C"),
    ("ifft", (10000,), ">c8", {"norm": "ortho"}, "C"),
    ("fft", (10010,), "f4", {}, "zarr"),
    ("fft", (8000,), "c16", {"n": 9216}, "C"),
    ("fft", (9000,), "c16", {"n": 8100}, "C"),
    ("rfft", (9000,), "f8", {}, "C"),
    ("rfft", (9999,), "i4", {"norm": "forward"}, "zarr"),
    ("irfft", (4501,), "c16", {}, "C"),
    ("irfft", (4000,), "c16", {"n": 9000}, "zarr"),
    ("irfft", (6000,), "c8", {"n": 9999, "norm": "ortho"}, "C"),
    ("hfft", (4501,), "c16", {"norm": "ortho"}, "C"),
    ("ihfft", (9000,), "f8", {}, "C"),
    ("fft", (3, 9000), "c16", {}, "F"),
    ("fft", (9000, 3), "c16", {"axis": 0}, "C"),
    ("fftn", (3, 9000, 2), "c16", {}, "C"),
    ("rfftn", (3, 9000), "f8", {}, "zarr"),
    ("irfftn", (3, 4501), "c16", {}, "C"),
    ("rfft2", (9000, 4), "f4", {}, "C"),
    ("fftn", (9000, 2), "c16", {"axes": (0, 1, 0)}, "F"),
]


@pytest.mark.parametrize("case", LONG, ids=str)
def test_a_line_that_does_not_fit(tmp_path, case):
    name, shape, dtype, words, source = case
    data = random(shape, dtype)
    expected = getattr(np.fft, name)(data.astype(data.dtype.newbyteorder("=")), **words)
    a = stored(tmp_path, data, source)
    zarr = {"chunks": tuple(min(n, 700) for n in expected.shape)} if source == "zarr" else {}
    target = tmp_path / ("out.zarr" if zarr else "out.npy")
    planned = find_public(name)(a, **words, out=target, memory="256 KiB", explain=True, **zarr)
    assert "columns and rows" in planned.report.method
    with planned.run() as result:
        assert_equal(expected, result)
    assert planned.report.measured.peak_bytes <= 256 * 2**10


# Lines that do not fit and have no divisors that would do: a convolution of another length (Bluestein).

PRIME = [
    ("fft", (10007,), "c16", {}, "C"),
    ("ifft", (10007,), ">c8", {"norm": "ortho"}, "C"),
    ("fft", (2 * 10007,), "f4", {"norm": "forward"}, "C"),
    ("fft", (10000,), "c16", {"n": 10007}, "C"),
    ("ifft", (10100,), "i2", {"n": 10007, "norm": "forward"}, "C"),
    ("fft", (200,), "c16", {"n": 10007}, "C"),
    ("fft", (10009,), "c8", {}, "zarr"),
    ("rfft", (10007,), ">f8", {}, "C"),
    ("rfft", (10007,), "f4", {"norm": "ortho"}, "zarr"),
    ("irfft", (5004,), "c16", {"n": 10007}, "C"),
    ("irfft", (6000,), "c8", {"n": 10007, "norm": "forward"}, "zarr"),
    ("hfft", (5004,), "c16", {"n": 10007, "norm": "ortho"}, "C"),
    ("ihfft", (10007,), "f8", {}, "C"),
    ("fft", (3, 10007), "c16", {}, "F"),
    ("fft", (10007, 3), "c8", {"axis": 0}, "C"),
    ("fftn", (2, 10007, 3), "c8", {}, "C"),
    ("rfftn", (3, 10007), "f4", {}, "C"),
    ("irfftn", (3, 5004), "c8", {"s": (3, 10007), "axes": (0, 1)}, "C"),
    ("fftn", (10007, 2), "c8", {"axes": (0, 1, 0)}, "F"),
]


@pytest.mark.parametrize("case", PRIME, ids=str)
def test_a_line_that_cannot_be_divided(tmp_path, case):
    name, shape, dtype, words, source = case
    data = random(shape, dtype)
    expected = getattr(np.fft, name)(data.astype(data.dtype.newbyteorder("=")), **words)
    a = stored(tmp_path, data, source)
    zarr = {"chunks": tuple(min(n, 700) for n in expected.shape)} if source == "zarr" else {}
    target = tmp_path / ("out.zarr" if zarr else "out.npy")
    memory = 300 * 2**10
    planned = find_public(name)(a, **words, out=target, memory=memory, explain=True, **zarr)
    assert "Bluestein" in planned.report.method
    with planned.run() as result:
        assert_equal(expected, result)
    assert planned.report.measured.peak_bytes <= memory


@pytest.mark.parametrize("order", "CF")
def test_a_line_that_cannot_be_divided_in_memory_and_with_the_least(order):
    data = random((2, 10007), "c8").astype("c8", order=order)
    result, memory = smallest(lambda memory: outcore.fft.fft(data, memory=memory))
    assert memory < 2 * 10007 * 8 * 2
    assert_equal(np.fft.fft(data), result)
    made = np.empty((2, 10007), "c8", order)
    outcore.fft.fft(data, out=made, memory=memory + made.nbytes)
    assert_equal(np.fft.fft(data), made)


def test_angles_of_chirps_are_exact():
    """Where squares have more digits than numbers of double precision, or of 64 bits."""
    n, row = (1 << 41) + 9, 1 << 20
    starts = ((n // row) - 2, row - 40)
    x = np.full((2, 40), 2.0, "c16")
    stage = FourierStage("chirp", 0, n, other=1, row=row, count=n)
    transform([x], (stage,), starts, 1)
    k = [[(starts[0] + r) * row + starts[1] + c for c in range(40)] for r in range(2)]
    angles = np.array([[j * j % (2 * n) / n for j in line] for line in k])
    np.testing.assert_allclose(x, 2 * np.exp(-1j * np.pi * angles), rtol=0, atol=4e-15)


@pytest.mark.parametrize("forward", [True, False])
def test_what_a_line_is_convolved_with(forward):
    n, made, points, row = 11, 7, 18, 6
    x = np.full((3, row), np.nan + 0j)
    stage = FourierStage("filter", 0, n, forward, other=1, row=row, count=made)
    transform([x[:, :4], x[:, :4]], (stage,), (0, 0), 1)
    transform([x[:, 4:], x[:, 4:]], (stage,), (0, 4), 1)
    expected = np.zeros(points, complex)
    for d in range(1 - n, made):
        expected[d % points] = np.exp((1j if forward else -1j) * np.pi * d * d / n)
    np.testing.assert_allclose(x.ravel(), expected, rtol=0, atol=1e-14)


# What it moves

MATRICES = [
    ("fft2", (1100, 1000), "c8", {}),
    ("irfft2", (1400, 801), "c8", {}),
    ("fftn", (60, 100, 200), "c8", {}),
    ("fft", (1_000_000,), "c8", {}),
    ("fft", (300_007,), "c8", {}),
]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("case", MATRICES, ids=str)
def test_it_moves_what_it_says_and_no_less_than_it_must(tmp_path, case, order):
    gc.collect()  # what earlier tests left is in the budget until then, and tiles are smaller
    name, shape, dtype, words = case
    data = random(shape, dtype)
    a = stored(tmp_path, data, "C")
    planned = find_public(name)(
        a, **words, out=tmp_path / "out.npy", memory="5 MiB", explain=True, order=order
    )
    report = planned.report
    expected = getattr(np.fft, name)(data, **words)
    assert report.lower_bound_bytes == data.nbytes + expected.nbytes
    moved = report.read_bytes + report.written_bytes
    assert moved >= report.lower_bound_bytes
    with planned.run() as result:
        assert_equal(expected, result)
    done = planned.report.measured
    # Where other tests hold memory, tiles are smaller than was told.
    assert report.lower_bound_bytes <= done.read_bytes + done.written_bytes <= 1.15 * moved
    assert done.peak_bytes <= 5 * 2**20


def terms(room, latency=1e-5, rate=2e9):
    return Terms(room, (None, None), DiskSpeed(1 << 15, latency, rate), 2)


def test_a_matrix_takes_two_passes_where_requests_cost_nothing_and_short_runs_are_avoided():
    c8 = np.dtype("c8")
    both = [Transform("c2c", 1, 4096), Transform("c2c", 0, 4096)]
    plan = plan_transforms("fft2", (4096, 4096), (c8, c8, c8), both, 1e9)
    assert len(plan(terms(1 << 40)).phases) == 1
    fast, slow = plan(terms(16 << 20, latency=0)), plan(terms(16 << 20, latency=1e-4))
    assert (len(fast.phases), len(slow.phases)) == (2, 3)
    for program in (fast, slow):
        assert program.held <= 16 << 20
        # However many tiles there are, a step has few operations.
        for phase in program.phases:
            assert all(len(phase.step(k).stores) <= 18 for k in (0, phase.steps - 1))
            assert all(len(phase.step(k).loads) <= 2 for k in (0, phase.steps - 1))


def test_equal_terms_give_equal_programs():
    c8 = np.dtype("c8")
    plan = plan_transforms("fft", (1 << 20,), (c8, c8, c8), [Transform("c2c", 0, 1 << 20)], 1e9)
    one, other = plan(terms(1 << 20)), plan(terms(1 << 20))
    assert one.temporaries == other.temporaries and one.views == other.views
    for a, b in zip(one.phases, other.phases, strict=True):
        assert [a.step(k) for k in range(a.steps)] == [b.step(k) for k in range(b.steps)]


@pytest.mark.parametrize(
    ("name", "shape", "made"),
    [
        ("fft2", (1 << 14, 1 << 14), (1 << 14, 1 << 14)),
        ("rfft2", (1 << 14, 1 << 14), (1 << 14, (1 << 13) + 1)),
        ("irfft2", (1 << 14, (1 << 13) + 1), (1 << 14, 1 << 14)),
    ],
)
def test_a_line_that_fits_is_divided_where_that_makes_two_passes_of_long_runs(name, shape, made):
    kinds = {"fft2": "c2c", "rfft2": "r2c", "irfft2": "c2r"}
    last = Transform(kinds[name], 1, 1 << 14)
    ones = [last, Transform("c2c", 0, 1 << 14)]
    real, between = np.dtype("f4"), np.dtype("c8")
    dtypes = (real if name == "rfft2" else between, between, real if name == "irfft2" else between)
    ones = ones[::-1] if name == "irfft2" else ones
    program = plan_transforms(name, shape, dtypes, ones, 1e9)(terms(400 << 20, latency=1.5e-5))
    assert len(program.phases) == 2 and program.held <= 400 << 20
    assert len(program.temporaries) == 1 and "divided" in program.method
    moved = [0, 0]
    for phase in program.phases:
        for k in range(phase.steps):
            for n, parts in enumerate((phase.step(k).loads, phase.step(k).stores)):
                assert len(parts) <= 18
                moved[n] += sum(count_elements(one.section) for one in parts)
    # What comes from the one array, goes to the other, and what is between them: nothing else.
    between_them = count_elements(tuple(slice(0, n) for n in program.temporaries[0].shape))
    assert moved == [math.prod(shape) + between_them, math.prod(made) + between_them]
    # A line of columns and one of rows, in half the memory, is as few.
    few = plan_transforms(name, shape, dtypes, ones, 1e9)(terms(100 << 20, latency=1.5e-5))
    assert len(few.phases) == 2


DIVIDED = [
    ("fft2", (1536, 70), "c8", {}, "C"),
    ("ifft2", (70, 1536), ">c16", {"norm": "ortho"}, "F"),
    ("fft2", (1400, 60), "f8", {"s": (1536, 70)}, "C"),
    ("rfft2", (1536, 70), "f4", {}, "C"),
    ("rfft2", (1800, 31), "i2", {"s": (1536, 40), "norm": "forward"}, "C"),
    ("irfft2", (1536, 40), "c8", {}, "C"),
    ("irfft2", (1400, 40), "c16", {"s": (1600, 61)}, "C"),
    ("fftn", (480, 8, 24), "c16", {}, "C"),
    ("irfftn", (480, 8, 13), "c16", {}, "C"),
    ("rfftn", (10, 1200, 24), "f8", {"axes": (1, 2)}, "C"),
    ("fft2", (1536, 70), "c8", {}, "zarr"),
    ("rfft2", (1536, 70), "f8", {}, "zarr"),
    ("rfftn", (480, 120), "f8", {"axes": (0, 1, 0)}, "C"),
]


@pytest.mark.parametrize("case", DIVIDED, ids=str)
def test_lines_that_fit_and_are_divided(tmp_path, monkeypatch, case):
    name, shape, dtype, words, source = case
    # Wherever it can be done.
    monkeypatch.setattr(fft_plan, "_WORTH", math.inf)
    data = random(shape, dtype)
    expected = getattr(np.fft, name)(data.astype(data.dtype.newbyteorder("=")), **words)
    a = stored(tmp_path, data, source)
    call = find_public(name)
    planned = call(a, **words, out=tmp_path / "out.npy", memory="400 KiB", explain=True)
    assert ("divided" in planned.report.method) == (words.get("axes") != (0, 1, 0))
    with planned.run() as result:
        assert_equal(expected, result)
    assert planned.report.measured.peak_bytes <= 400 * 2**10


@pytest.mark.parametrize("name", ["fft2", "rfft2", "irfft2"])
def test_memory_changes_no_bit_as_long_as_no_line_is_divided(tmp_path, name):
    data = random((307, 210), "f4" if name == "rfft2" else "c8")
    call = find_public(name)
    whole = call(data)[...]
    for memory in ("1 MiB", "300 KiB", "140 KiB"):
        np.testing.assert_array_equal(whole, call(data, memory=memory)[...])


def test_without_scipy(monkeypatch):
    monkeypatch.setattr(fft_kernels, "_import_scipy", lambda: None)
    monkeypatch.setattr(fft_kernels, "_BATCH", 1000)
    for name, data in (
        ("fft2", random((50, 70), "c8")),
        ("rfft2", random((50, 70), "f4")),
        ("irfft2", random((50, 70), "c8")),
    ):
        assert_equal(getattr(np.fft, name)(data), find_public(name)(data, memory="200 KiB"))


# Restart


class Enough(Exception):
    pass


@pytest.mark.parametrize("case", [MATRICES[0], LONG[5][:4], LONG[7][:4], PRIME[0][:4]], ids=str)
def test_resumed_transforms_give_the_same_bytes(tmp_path, case):
    name, shape, dtype, words = case
    a = stored(tmp_path, random(shape, dtype), "C")
    memory = "1 MiB" if len(shape) == 2 else "256 KiB"
    call = find_public(name)
    call(a, **words, out=tmp_path / "whole.npy", memory=memory).close()
    expected = (tmp_path / "whole.npy").read_bytes()

    stops = 0
    for stop in (1, 4, 7, 11, 20, 10**9):
        seen = 0

        def progress(done, total, stop=stop):
            nonlocal seen
            seen += 1
            if seen > stop:
                raise Enough

        try:
            call(
                a, **words, out=tmp_path / "b.npy", memory=memory, resume=True, progress=progress
            ).close()
            break
        except Enough:
            stops += 1
    assert stops >= 2
    assert expected == (tmp_path / "b.npy").read_bytes()
    assert {"whole.npy", "b.npy"} == {p.name for p in tmp_path.iterdir() if "in-" not in p.name}


@pytest.mark.parametrize("name", [*ONE, *MANY])
@pytest.mark.parametrize("norm", [None, "forward"])
def test_a_journal_says_how_to_go_on_with_each_of_them(tmp_path, monkeypatch, name, norm):
    """With the arguments of the call: points, axes and scaling, which `outcore resume` has to repeat."""
    monkeypatch.setattr("outcore.compute.jobs.checkpoints._CHECKPOINT", 0.0)
    kind = "f8" if name.startswith(("rfft", "ihfft")) else "c16"
    data, a = random((90, 130), kind), tmp_path / "a.npy"
    np.save(a, data)
    words = {"n": 120, "axis": 0} if name in ONE else {"s": (80, 110), "axes": (1, 0)}
    seen = 0

    def progress(done, total):
        nonlocal seen
        seen += 1
        if seen > 3:
            raise Enough

    where = {"out": tmp_path / "b.npy", "memory": "128 KiB"}
    with pytest.raises(Enough):
        find_public(name)(a, **words, norm=norm, **where, progress=progress)
    (job,) = jobs.unfinished(tmp_path)
    assert job.state == "resumable"
    assert 0 < job.done < job.steps
    assert jobs.resume(tmp_path) == [str(tmp_path / "b.npy")]
    expected = getattr(np.fft, name)(data, **words, norm=norm)
    assert_equal(expected, np.load(tmp_path / "b.npy"))


# Parts


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_panels_keep_what_they_are_given(data):
    ndim = data.draw(st.integers(1, 3))
    lengths = tuple(data.draw(st.integers(1, 9)) for _ in range(ndim))
    reader, writer = (tuple(data.draw(st.integers(1, n)) for n in lengths) for _ in range(2))
    fast = tuple(data.draw(st.permutations(range(ndim))))
    panels = Panels(0, lengths, reader, writer, fast, 8)
    kept = np.full(panels.shape, np.nan)
    truth = np.arange(float(math.prod(lengths))).reshape(lengths)

    def tiles(tile):
        grid = [range(0, n, t) for n, t in zip(lengths, tile, strict=True)]
        for at in np.ndindex(*map(len, grid)):
            starts = [g[k] for g, k in zip(grid, at, strict=True)]
            yield tuple((s, min(s + t, n)) for s, t, n in zip(starts, tile, lengths, strict=True))

    for ends in tiles(writer):
        block = truth[tuple(slice(*e) for e in ends)].copy(order="F")
        for store in panels.stores(ends, 0):
            kept[store.section] = store.place(block)
    for ends in tiles(reader):
        shape = tuple(high - low for low, high in ends)
        block = np.full(shape, np.nan)
        for load in panels.load(ends, [low for low, _ in ends], shape):
            load.place(block)[...] = kept[load.section]
        np.testing.assert_array_equal(truth[tuple(slice(*e) for e in ends)], block)


@given(n=st.integers(1, 40), data=st.data())
def test_what_mirrors_a_part_of_a_hermitian_axis(n, data):
    low = data.draw(st.integers(0, n - 1))
    high = data.draw(st.integers(low + 1, n))
    there = data.draw(st.integers(0, n // 2 + 1))
    half = np.zeros(n // 2 + 1, complex)
    half[:there] = random((there,), "c16")
    whole = np.concatenate([half, half[1 : (n + 1) // 2][::-1].conj()])
    middle, first, last = find_mirrored(n, low, high)
    assert last - first == high - middle
    block = np.full(high - low, np.nan + 0j)
    block[: middle - low] = half[low:middle]
    block[middle - low :] = half[first:last]
    block[: middle - low][max(there - low, 0) :] = np.nan
    block[middle - low :][max(there - first, 0) :] = np.nan
    transform([block], (FourierStage("mirror", 0, n, other=there),), (low,), 1)
    np.testing.assert_array_equal(whole[low:high], block)


@pytest.mark.parametrize("forward", [True, False])
def test_twiddle_factors(forward):
    n, first = 1 << 30, (1 << 30) - 70
    x = np.ones((100, 70), "c16")
    stage = FourierStage("twiddle", 0, n, forward, other=1)
    transform([x], (stage,), (0, first), 1)
    k, j = np.arange(100)[:, None], first + np.arange(70)
    expected = np.exp((-2j if forward else 2j) * np.pi * (k * j % n / n))
    np.testing.assert_allclose(x, expected, rtol=0, atol=4e-15)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ["c2c", "r2c", "c2r"])
def test_threads_share_the_lines(kind, axis):
    """And end with the call: a fork of the process may wait for ever for those that SciPy keeps."""
    pytest.importorskip("scipy.fft")  # which starts those of its BLAS
    rng = np.random.default_rng(3)
    real = rng.standard_normal((60, 70, 64))
    half = np.fft.rfft(real, axis=axis)
    x = {"c2c": real + 1j * real[::-1], "r2c": real, "c2r": half}[kind]
    wanted = {"c2c": np.fft.fft(x, axis=axis), "r2c": half, "c2r": real}[kind]
    stage = FourierStage(kind, axis, real.shape[axis], forward=kind != "c2r")
    blocks = [x.copy()] if kind == "c2c" else [x, np.empty_like(wanted)]
    before = set(os.listdir("/proc/self/task"))
    transform(blocks, [stage], (0, 0, 0), 3)
    give_up = time.monotonic() + 5
    while (
        not set(os.listdir("/proc/self/task")) <= before
    ):  # a thread that was joined is about to go
        assert time.monotonic() < give_up
        time.sleep(0.01)
    assert np.allclose(blocks[-1], wanted)
