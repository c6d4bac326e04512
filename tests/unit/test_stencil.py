"""Stencils on disk against one step after the other in NumPy, and against SciPy."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

import outcore
from outcore.arrays.schedule import ScheduleRun, count_elements
from outcore.compute.jobs import DeferredPhase, DiskSpeed, InMemory, InsufficientBuffersError, Terms
from outcore.compute.stencils import plan as stencil_plan
from outcore.compute.stencils.function import find_sources
from outcore.compute.stencils.plan import plan_stencil
from outcore.compute.stencils.stencil import _task
from outcore.errors import BudgetError, UsageError
from schedule_check import check_schedule

BOUNDARIES = ("constant", "mirror", "nearest", "reflect", "untouched", "wrap")
DISK = DiskSpeed(1 << 15, 15e-6, 2e9)


def one_step(
    old: NDArray[Any], weights: NDArray[Any], boundary: tuple[str, ...], cval: complex
) -> NDArray[Any]:
    """As the words say: products in the order of the weights, each rounded."""
    kind = old.dtype
    index = np.indices(old.shape)
    new = None
    for at in np.argwhere(weights):
        shifted, outside = [], np.zeros(old.shape, bool)
        for axis, n in enumerate(old.shape):
            far = int(at[axis]) - weights.shape[axis] // 2
            found = find_sources(boundary[axis], far, n + far, n)[index[axis]]
            outside |= found < 0
            shifted.append(found)
        x = np.where(outside, kind.type(cval), old[tuple(shifted)])
        product = times(x, weights[tuple(at)], complex_weights=bool(weights.imag.any()))
        new = product if new is None else new + product
    new = np.zeros_like(old) if new is None else new
    far = [
        max(
            (abs(int(at[axis]) - weights.shape[axis] // 2) for at in np.argwhere(weights)),
            default=0,
        )
        for axis in range(old.ndim)
    ]
    for axis, word in enumerate(boundary):
        n = old.shape[axis]
        if word == "untouched":
            stays = np.isin(np.arange(n), np.arange(far[axis], n - far[axis]), invert=True)
            new[(slice(None),) * axis + (stays,)] = old[(slice(None),) * axis + (stays,)]
    return new


def times(x: NDArray[Any], weight: complex, *, complex_weights: bool) -> NDArray[Any]:
    """A product with each operation rounded: NumPy's own of complex numbers may fuse them."""
    real = x.real.dtype.type
    re, im = real(weight.real), real(weight.imag)
    if x.dtype.kind != "c":
        return x * re
    product = np.empty_like(x)
    product.real, product.imag = x.real * re, x.imag * re
    if complex_weights:
        product.real, product.imag = x.real * re - x.imag * im, x.imag * re + x.real * im
    return product


def bits(a: Any) -> bytes:
    return np.ascontiguousarray(a).tobytes()


def planned(x: NDArray[Any], room: int, cores: int = 2, **how: Any) -> Any:
    source = InMemory(x, "x")
    words = {
        "steps": 1,
        "boundary": "reflect",
        "cval": 0.0,
        "until": None,
        "halo": None,
        "dtype": None,
    }
    task = _task(source, how.pop("weights"), **{**words, "callback": None, **how})
    # These arrays are small; their rows are cut all the same.
    with mock.patch.object(stencil_plan, "_SHORT_RUN", 1):
        return task, plan_stencil(task)(Terms(room, (None, None), DISK, cores))


def run(x: NDArray[Any], program: Any, dtype: Any) -> NDArray[Any]:
    """All phases, checked, with all arrays in memory."""
    order = "F" if x.flags.fnc else "C"
    result = InMemory(np.full(x.shape, 77, dtype, order), "result")
    arrays = [InMemory(x, "x"), result]
    names = [
        name
        for phase in program.phases[:1]
        if isinstance(phase, DeferredPhase)
        for name in ["changes"]
    ]
    names = ["between"] * (len(program.temporaries) - len(names)) + names
    pairs = zip(program.temporaries, names, strict=True)
    arrays += [InMemory(np.full(t.shape, 88, t.dtype), name) for t, name in pairs]
    for phase in program.phases:
        schedule = phase if not isinstance(phase, DeferredPhase) else phase.make(arrays)
        if isinstance(phase, DeferredPhase):
            assert schedule.steps == phase.steps and schedule.held <= phase.held
        stores = [one.array for k in range(schedule.steps) for one in schedule.step(k).stores]
        # Of changes each pass stores its part.
        results = {k for k in stores if arrays[k].path != "changes"}
        check_schedule(schedule, [a.shape for a in arrays], results, again=True)
        with ScheduleRun(schedule, arrays) as under_way:
            under_way.finish()
    return result.data


@st.composite
def calls(draw: st.DrawFn) -> tuple[NDArray[Any], dict[str, Any]]:
    ndim = draw(st.integers(1, 4))
    most = (60, 17, 8, 5)[ndim - 1]
    shape = draw(st.tuples(*[st.integers(1, most)] * ndim))
    size = draw(st.tuples(*[st.integers(1, 5 if ndim < 3 else 3)] * ndim))
    dtype = draw(st.sampled_from(["f4", "f8", ">f8", "c8", "c16", "i4", "u1", "f2"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = (rng.random(shape) * 100).astype(dtype)
    if x.dtype.kind == "c":
        x += (1j * rng.random(shape)).astype(dtype)
    x = x.copy(order=draw(st.sampled_from("CF")))
    weights = np.where(rng.random(size) < 0.6, rng.normal(size=size), 0.0)
    if draw(st.booleans()) and x.dtype.kind == "c":
        weights = weights * (1 + 0.5j)
    boundary = draw(st.tuples(*[st.sampled_from(BOUNDARIES)] * ndim))
    return x, {
        "weights": weights,
        "boundary": boundary,
        "cval": 0.75,
        "steps": draw(st.integers(0, 7)),
    }


@settings(max_examples=250, deadline=None)
@given(calls(), st.integers(6, 16), st.integers(1, 3))
def test_any_budget_has_the_bits_of_one_step_after_the_other(
    call: tuple[NDArray[Any], dict[str, Any]], doublings: int, cores: int
) -> None:
    x, how = call
    try:
        task, program = planned(x, 1 << doublings, cores, **dict(how))
    except InsufficientBuffersError as refused:
        task, program = planned(x, refused.needed, cores, **dict(how))
    expected = x.astype(task.dtype)
    for _ in range(how["steps"]):
        expected = one_step(expected, how["weights"].astype(complex), how["boundary"], how["cval"])
    actual = run(x, program, task.dtype)
    assert bits(expected) == bits(actual)


@settings(max_examples=80, deadline=None)
@given(calls(), st.integers(8, 16))
def test_a_function_makes_the_same_as_its_weights(
    call: tuple[NDArray[Any], dict[str, Any]], doublings: int
) -> None:
    x, how = call
    x = x.real.astype("f8", order="K")
    weights = how["weights"].real
    halo = tuple(n // 2 for n in weights.shape)
    taps = [(tuple(at), weights[tuple(at)]) for at in np.argwhere(weights)]

    def function(block: NDArray[Any]) -> NDArray[Any]:
        inner = tuple(n - 2 * h for n, h in zip(block.shape, halo, strict=True))
        new = np.zeros(inner)
        for k, (at, weight) in enumerate(taps):
            part = block[tuple(slice(n, n + m) for n, m in zip(at, inner, strict=True))] * weight
            new = part if k == 0 else new + part
        return new

    # What is untouched depends on how far the function may look, not on its weights.
    how["boundary"] = tuple("nearest" if word == "untouched" else word for word in how["boundary"])
    expected = x
    for _ in range(how["steps"]):
        expected = one_step(expected, weights.astype(complex), how["boundary"], how["cval"])
    words = {**how, "weights": function, "halo": halo}
    try:
        task, program = planned(x, 1 << doublings, **dict(words))
    except InsufficientBuffersError as refused:
        task, program = planned(x, refused.needed, **dict(words))
    assert bits(expected) == bits(run(x, program, task.dtype))


@settings(max_examples=80, deadline=None)
@given(calls(), st.integers(6, 14), st.floats(0, 1))
def test_it_stops_after_the_first_step_that_changes_little(
    call: tuple[NDArray[Any], dict[str, Any]], doublings: int, part: float
) -> None:
    x, how = call
    how["weights"] = np.abs(how["weights"].real)
    how["weights"] /= max(how["weights"].sum(), 1.0)  # so that it comes to rest
    how["steps"] += 1
    how["boundary"] = tuple("nearest" if word == "wrap" else word for word in how["boundary"])
    kind = planned(x, 1 << 20, **dict(how))[0].dtype
    levels = [x.astype(kind)]
    for _ in range(how["steps"]):
        levels.append(
            one_step(levels[-1], how["weights"].astype(complex), how["boundary"], how["cval"])
        )
    differences = [new - old for old, new in itertools.pairwise(levels)]
    wide = complex if kind.kind == "c" else float
    changes = [float(np.abs(one.astype(wide)).max()) for one in differences]
    until = sorted(changes)[int(part * (len(changes) - 1))] * (1 + 1e-12)
    stop = next((k + 1 for k, change in enumerate(changes) if change <= until), how["steps"])
    seen: list[tuple[int, float]] = []
    how |= {"until": until, "callback": lambda step, change: seen.append((step, change))}
    try:
        task, program = planned(x, 1 << doublings, **dict(how))
    except InsufficientBuffersError as refused:
        task, program = planned(x, refused.needed, **dict(how))
    assert bits(levels[stop]) == bits(run(x, program, task.dtype))
    assert [k + 1 for k in range(stop)] == [step for step, _ in seen]
    np.testing.assert_allclose([change for _, change in seen], changes[:stop], rtol=1e-6)


@pytest.mark.parametrize("mode", ["reflect", "constant", "nearest", "mirror", "wrap", "grid-wrap"])
def test_a_step_of_doubles_is_correlate_of_scipy(mode: str) -> None:
    rng = np.random.default_rng(5)
    x, weights = rng.normal(size=(40, 31, 6)), rng.normal(size=(3, 5, 2))
    expected = ndimage.correlate(x, weights, mode=mode, cval=2.5)
    actual = outcore.stencil(x, weights, boundary=mode, cval=2.5)
    np.testing.assert_array_equal(expected, actual[...])


LAPLACE = np.array([[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]])


def test_all_steps_that_fit_are_one_pass_that_reads_and_writes_once() -> None:
    x = np.zeros((4096, 512))
    n = x.nbytes
    for steps in (1, 100):
        for boundary in ("untouched", "wrap"):
            _, program = planned(x, n // 4, weights=LAPLACE, steps=steps, boundary=boundary)
            (schedule,) = program.phases
            assert (n, n) == moved(schedule)
            assert schedule.held <= n // 4
    # A sixteenth of that holds the rows of 9 steps or so.
    _, program = planned(x, n // 64, weights=LAPLACE, steps=100)
    assert len(program.phases) > 1
    assert all(moved(schedule) == (n, n) for schedule in program.phases)


def moved(schedule: Any) -> tuple[int, int]:
    steps = [schedule.step(k) for k in range(schedule.steps)]
    itemsize = schedule.buffers[0].dtype.itemsize
    return (
        sum(count_elements(one.section) for step in steps for one in step.loads) * itemsize,
        sum(count_elements(one.section) for step in steps for one in step.stores) * itemsize,
    )


@pytest.mark.parametrize("name", ["b.npy", "b.zarr", "b.h5::x"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_on_disk(tmp_path: Path, name: str, order: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.random((300, 200)).astype(">f4")
    np.save(tmp_path / "a.npy", x.copy(order=order))
    how: dict[str, Any] = {"chunks": (32, 50)} if name != "b.npy" else {}
    out = str(tmp_path / name)
    b = outcore.stencil(
        tmp_path / "a.npy", LAPLACE, steps=25, boundary="wrap", out=out, memory="400 kB", **how
    )
    expected = x.astype("f4")
    for _ in range(25):
        expected = one_step(expected, LAPLACE.astype(complex), ("wrap", "wrap"), 0.0)
    np.testing.assert_array_equal(expected, b[...])
    b.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["a.npy", name.split("::")[0]])


def test_what_was_interrupted_goes_on_and_ends_in_the_same_bits(tmp_path: Path) -> None:
    x = np.random.default_rng(4).random((400, 100))
    np.save(tmp_path / "a.npy", x)
    words: dict[str, Any] = {"steps": 60, "boundary": "nearest", "memory": "200 kB"}
    whole = outcore.stencil(tmp_path / "a.npy", LAPLACE, **words)[...]

    class Stop(Exception):
        pass

    for part in (0.2, 0.55, 0.9):

        def stop(done: int, total: int, part: float = part) -> None:
            if done > part * total:
                raise Stop

        with pytest.raises(Stop):
            outcore.stencil(
                tmp_path / "a.npy",
                LAPLACE,
                out=tmp_path / "b.npy",
                resume=True,
                progress=stop,
                **words,
            )
    b = outcore.stencil(tmp_path / "a.npy", LAPLACE, out=tmp_path / "b.npy", resume=True, **words)
    assert bits(whole) == bits(b[...])
    b.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.npy"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"weights": [1.0, 2.0]}, "bad-stencil"),
        ({"weights": [["a"]]}, "bad-stencil"),
        ({"weights": np.empty((0, 3))}, "bad-stencil"),
        ({"weights": LAPLACE, "steps": -1}, "bad-stencil"),
        ({"weights": LAPLACE, "steps": 1.5}, "bad-stencil"),
        ({"weights": LAPLACE, "boundary": "edge"}, "bad-stencil"),
        ({"weights": LAPLACE, "boundary": ("wrap",) * 3}, "bad-stencil"),
        ({"weights": LAPLACE, "until": float("nan")}, "bad-stencil"),
        ({"weights": LAPLACE, "halo": 1}, "bad-stencil"),
        ({"weights": LAPLACE, "dtype": "i4"}, "bad-stencil"),
        ({"weights": LAPLACE * 1j, "dtype": "f8"}, "bad-stencil"),
        ({"weights": np.sin}, "bad-stencil"),
        ({"weights": np.sin, "halo": -1}, "bad-stencil"),
        ({"weights": lambda block: block[0], "halo": 1}, "bad-function"),
        ({"weights": lambda block: block + 1j, "halo": 1}, "bad-function"),
        ({"weights": LAPLACE, "shape": (3,)}, "unknown-option"),
    ],
)
def test_what_makes_no_sense_is_refused(words: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError) as error:
        outcore.stencil(np.ones((6, 7)), **words)
    assert code == error.value.code


def test_a_budget_that_is_too_small_says_which_one_would_do(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((30, 4000)))
    with pytest.raises(BudgetError) as error:
        outcore.stencil(tmp_path / "a.npy", LAPLACE, steps=9, memory=5000)
    assert error.value.needed is not None
    b = outcore.stencil(tmp_path / "a.npy", LAPLACE, steps=9, memory=error.value.needed)
    assert (b[...] == 1).all()


def test_empty_arrays_and_no_steps(tmp_path: Path) -> None:
    assert outcore.stencil(np.ones((0, 5)), LAPLACE).shape == (0, 5)
    np.testing.assert_array_equal([[1.0, 2.0]], outcore.stencil([[1, 2]], LAPLACE, steps=0)[...])


def test_until_with_arrays_on_disk(tmp_path: Path) -> None:
    x = np.zeros((60, 50))
    x[0] = 1.0
    np.save(tmp_path / "a.npy", x)
    seen: list[tuple[int, float]] = []
    b = outcore.stencil(
        tmp_path / "a.npy",
        LAPLACE,
        steps=1000,
        boundary="untouched",
        until=1e-3,
        callback=lambda step, change: seen.append((step, change)),
        out=tmp_path / "b.npy",
        memory="100 kB",
    )
    expected = x
    for step, change in seen:
        new = one_step(expected, LAPLACE.astype(complex), ("untouched",) * 2, 0.0)
        assert np.abs(new - expected).max() == change
        expected = new
        assert (change <= 1e-3) == (step == len(seen))
    assert 10 < len(seen) < 1000
    assert bits(expected) == bits(b[...])
    b.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.npy"]


@pytest.mark.parametrize(
    ("steps", "ranks", "panels", "again"),
    [
        (1, 8, 1, 0),
        (10, 2, 2, 20),
        (10, 4, 4, 60),
        (10, 8, 8, 140),
        (100, 2, 2, 200),
        (100, 4, 4, 600),
        (100, 8, 8, 1400),
    ],
)
def test_ranks_read_and_compute_again_what_decision_25_says(tmp_path, steps, ranks, panels, again):
    """Columns of one pass over 16384 x 16384 elements."""
    n, path = 16384, tmp_path / "a.npy"
    np.lib.format.open_memmap(path, "w+", np.float64, (n, n)).flush()  # no bytes of it are written
    taps = tuple(((dy, dx), 0.25) for dy, dx in ((-1, 0), (0, -1), (0, 1), (1, 0)))
    dtype, edges = np.dtype("f8"), ("untouched",) * 2
    with outcore.open(path) as a:
        task = stencil_plan.StencilTask(
            a.shape, dtype, dtype, edges, 0.0, steps, None, None, taps=taps
        )
        room = 512 * 2**20 * 3 // 4 * 7 // 8
        terms = Terms(room, (a.info,) * 2, DiskSpeed(1 << 17, 20e-6, 2e9), 2, 0, ranks)
        (phase,) = plan_stencil(task)(terms).phases
    found = {}
    for k in range(phase.steps):
        step = phase.step(k)
        for load in step.loads:
            columns = (load.section[1].start, load.section[1].stop)
            found[columns] = found.get(columns, 0) + load.section[0].stop - load.section[0].start
    assert set(found.values()) == {n}, "each row of a panel once"
    assert len(found) == panels
    assert sum(stop - start for start, stop in found) == n + again


def test_predictions_until_little_changes_count_what_is_computed() -> None:
    x = np.random.default_rng(3).random((200, 100))
    words: dict[str, Any] = {"steps": 40, "until": 0.0, "memory": "200 kB", "explain": True}
    report = outcore.stencil(x, np.full((3, 3), 1 / 9), **words).report
    assert report.operations >= 40 * x.size
    assert report.seconds > 0
