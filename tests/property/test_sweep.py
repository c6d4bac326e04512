"""
Every public algorithm beside NumPy and SciPy: dtypes, shapes, formats, chunks, orders, budgets, outputs.

`OUTCORE_EXAMPLES` sets the number of examples of each algorithm in the long lane.
"""

import contextlib
import doctest
import inspect
import os
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.public import find_public
from outcore.testing.sim import SimWorld
from sweep import CALLS, Chance, algorithms, native

EXAMPLES = int(os.environ.get("OUTCORE_EXAMPLES", "60"))
FORMATS = ("memory", "C.npy", "F.npy", "raw", "zarr", "gzip.zarr", "h5", "gzip.h5")
OUTS = ("default", "default", "npy", "zarr", "h5", "open", "wider", "memory", "view")


def stored(folder, number, data, kind, chance):
    """An array on disk in one of the formats, or the array itself."""
    if kind == "memory":
        return data
    if kind.endswith("npy"):
        return outcore.create(f"{folder}/in{number}.npy", data=data, order=kind[0])
    if kind == "raw":
        return outcore.create(f"{folder}/in{number}.raw", data=data)
    words = {"compression": "gzip"} if "gzip" in kind else {}
    if data.ndim and data.size:
        words["chunks"] = tuple(chance.number(1, n) for n in data.shape)
        # Few of them.
        words["chunks"] = tuple(
            max(c, -(-n // 5)) for c, n in zip(words["chunks"], data.shape, strict=True)
        )
    else:
        words = {}
    suffix = "zarr" if "zarr" in kind else "h5::/x"
    return outcore.create(f"{folder}/in{number}.{suffix}", data=data, **words)


def target(folder, kind, wanted, chance):
    """Words of a call that say where its one result goes."""
    if kind == "default":
        return {}
    if kind == "memory":
        return {"out": np.empty(wanted.shape, wanted.dtype)}
    if kind == "view":
        wide = np.zeros([2 * n for n in wanted.shape], wanted.dtype, chance.of("C", "F"))
        return {"out": wide[(slice(None, None, -2),) * wide.ndim] if wide.ndim else wide}
    if kind == "wider" and wanted.dtype.kind in "biufc":
        dtype = np.result_type(wanted.dtype, "f8").newbyteorder(chance.of("<", ">"))
        return {"out": outcore.create(f"{folder}/wider.npy", wanted.shape, dtype)}
    if kind in ("open", "wider"):
        suffix = chance.of("npy", "F.npy", "zarr", "h5::/x")
        order = {"order": "F"} if suffix == "F.npy" else {}
        path = f"{folder}/open.{suffix}"
        return {"out": outcore.create(path, wanted.shape, wanted.dtype, **order)}
    words = {}
    if kind in ("zarr", "h5") and wanted.size and wanted.ndim:
        words["chunks"] = tuple(max(n // 2, 1) for n in wanted.shape)
    suffix = "h5::/x" if kind == "h5" else kind
    return {"out": f"{folder}/out.{suffix}", "overwrite": True, **words}


def least(call):
    """What it gives with the budget that it says it needs, at the first try."""
    try:
        return call(memory=1), 1
    except outcore.BudgetError as error:
        needed = error.needed
    return call(memory=needed), needed


def many(found):
    return list(found) if isinstance(found, tuple) else [found]


def one_example(name, seed, folder):
    chance = Chance(seed)
    case = CALLS[name](chance)
    kinds = [chance.of(*FORMATS) for _ in case.inputs]
    small = chance.of(False, True)
    plain = [native(one) for one in case.inputs]
    wanted, refused = None, None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if case.truth is not None:
            try:
                wanted = [np.asarray(one) for one in many(case.truth(*plain))]
            except (ValueError, TypeError, IndexError) as error:
                refused = error
    handles = [
        stored(folder, n, *one, chance)
        for n, one in enumerate(zip(case.inputs, kinds, strict=True))
    ]
    words = {}
    if wanted is not None and len(wanted) == 1 and name not in ("rechunk", "convert"):
        takes = "out" in inspect.signature(find_public(name)).parameters
        words = target(folder, chance.of(*OUTS), wanted[0], chance) if takes else {}

    def call(**more):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return case.call(*handles, **words, **more)

    if refused is not None:
        with pytest.raises((outcore.OutcoreError, ValueError, TypeError, IndexError)):
            call()
        return
    before = _core.memory_state()[0]
    _core.reset_memory_peak()
    if small:
        found, memory = least(call)
        assert _core.memory_state()[2] - before <= memory
    else:
        found = call()
    results = [
        np.asarray(one[...] if isinstance(one, outcore.DiskArray) else one) for one in many(found)
    ]
    if case.right is not None:
        case.right(results, *case.inputs)
        return
    compared(case, wanted, results)
    for right, one in zip(wanted, results, strict=True):
        if not isinstance(words.get("out"), outcore.DiskArray):
            assert right.dtype == one.dtype or right.dtype == one.dtype.newbyteorder("=")


def compared(case, wanted, results, exact=False):
    """Results of which some may be close."""
    assert len(wanted) == len(results)
    for right, one in zip(wanted, results, strict=True):
        assert right.shape == one.shape
        if exact or not case.close:
            np.testing.assert_array_equal(one, right)
            continue
        scale = np.nanmax(np.abs(np.where(np.isfinite(right), right, 0)), initial=1e-12)
        np.testing.assert_allclose(one, right, rtol=case.close, atol=case.close * scale)


def sweep(examples):
    return settings(
        deadline=None,
        max_examples=examples,
        derandomize=examples < 10,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("name", CALLS)
def test_it_is_what_numpy_says(tmp_path_factory, monkeypatch, name):
    run(tmp_path_factory, monkeypatch, name, 3)


@pytest.mark.parametrize("name", CALLS)
def test_it_is_what_numpy_says_slow(tmp_path_factory, monkeypatch, name):
    run(tmp_path_factory, monkeypatch, name, EXAMPLES)


def run(tmp_path_factory, monkeypatch, name, examples):
    @sweep(examples)
    @given(st.integers(0, 2**40))
    def check(seed):
        folder = tmp_path_factory.mktemp("sweep")
        monkeypatch.chdir(folder)
        one_example(name, seed, folder)

    check()


@pytest.mark.parametrize("name", CALLS)
def test_ranks_have_what_one_process_has_slow(tmp_path_factory, monkeypatch, name):
    """The same bits, but where products and factors are divided otherwise."""

    @sweep(max(EXAMPLES // 6, 1))
    @given(st.integers(0, 2**40), st.integers(2, 8), st.sampled_from([None, 2]))
    def check(seed, size, per_node):
        folder = tmp_path_factory.mktemp("ranks")
        case = CALLS[name](Chance(seed))
        if case.truth is not None and fails(case.truth, *case.inputs):
            return
        paths = [f"{folder}/in{n}.npy" for n in range(len(case.inputs))]
        for path, data in zip(paths, case.inputs, strict=True):
            outcore.create(path, data=data).close()

        def body(t):
            with contextlib.ExitStack() as stack:
                arrays = [stack.enter_context(outcore.open(path)) for path in paths]
                found = case.call(*arrays, **({} if t is None else {"comm": t}))
                return [np.array(one[...]) for one in map(np.asarray, many(found))]

        results = []
        for n in (None, size):
            (folder / str(n)).mkdir()
            monkeypatch.chdir(folder / str(n))
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results.append([body(None)] if n is None else SimWorld(n, per_node).run(body))
        (alone,), shared = results
        for one in shared:
            if case.right is not None:
                case.right(one, *case.inputs)
            else:
                compared(case, alone, one, exact=name not in DIVIDED)

    check()


# A product is a sum, of which ranks may have other parts.
DIVIDED = {"matmul", "tensordot", "inner", "dot", "vdot", "vecdot", "norm", "solve"}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_result_in_the_memory_of_its_input_is_right_or_refused(
    tmp_path, monkeypatch, name, turned
):
    monkeypatch.chdir(tmp_path)
    if "out" not in inspect.signature(find_public(name)).parameters:
        return
    for seed in range(6):
        case = CALLS[name](Chance(seed))
        if case.truth is None or name in ("rechunk", "convert") or fails(case.truth, *case.inputs):
            continue
        inputs = [native(one).copy() for one in case.inputs]
        with np.errstate(all="ignore"):
            wanted = many(case.truth(*inputs))
        whole = [k for k, one in enumerate(inputs) if one.shape == np.shape(wanted[0])]
        if len(wanted) != 1 or not whole or not inputs[whole[0]].ndim:
            continue
        place = inputs[whole[0]]
        before = place.copy()
        try:
            case.call(*inputs, out=place[::-1] if turned else place)
        except (outcore.OutcoreError, ValueError, TypeError):
            np.testing.assert_array_equal(before, place)
        else:
            compared(case, [wanted[0].astype(place.dtype)], [place[::-1] if turned else place])


def test_the_sweep_has_every_algorithm():
    assert set(CALLS) == set(algorithms())


# What holds for each of them


@pytest.mark.parametrize("name", CALLS)
def test_it_explains_itself(tmp_path, monkeypatch, name):
    """With the name of its bound; what it says of memory holds, and is within the budget."""
    monkeypatch.chdir(tmp_path)
    seed = 0
    while True:
        case = CALLS[name](Chance(seed))
        seed += 1
        if case.inputs[0].size > 1 and not (
            case.truth is not None and fails(case.truth, *case.inputs)
        ):
            break
    inputs = [outcore.create(f"in{n}.npy", data=one) for n, one in enumerate(case.inputs)]
    planned = case.call(*inputs, memory="4 MiB", explain=True)
    report = planned.report
    assert report.name and report.method and report.lower_bound_name
    assert report.steps >= 1
    assert 0 < report.peak_bytes <= 4 * 2**20
    assert report.read_bytes + report.written_bytes >= report.lower_bound_bytes
    text = str(planned)
    assert report.lower_bound_name in text and report.method in text
    planned.run()
    done = planned.report.measured
    assert done.peak_bytes <= report.peak_bytes <= 4 * 2**20
    assert "measured" in str(planned)


def fails(truth, *inputs):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            truth(*(native(one) for one in inputs))
        except (ValueError, TypeError, IndexError):
            return True
    return False


def test_docstrings_have_examples():
    """That they run, `tests/docs/test_documents.py` sees."""
    for name, public in algorithms().items():
        function = inspect.unwrap(public)
        (test,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
        assert len(test.examples) > 1, name
        for section in ("Parameters", "Returns", "Examples"):
            assert f"{section}\n" in inspect.getdoc(function), (name, section)
