"""Results of an interrupted job that have no name: they went with the process, and are made again."""

import importlib

import numpy as np
import pytest
import scipy.linalg

import outcore
from outcore.public import find_public
from stopping import Stop


def test_small_results_of_an_interrupted_job_are_there(tmp_path, monkeypatch):
    """Pivots are returned in memory: what was stored there is gone with the first run."""
    monkeypatch.chdir(tmp_path)
    a = np.random.default_rng(5).standard_normal((300, 300))
    np.save("a.npy", a)
    job = importlib.import_module("outcore.compute.jobs.job")

    def stop(self):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(job._JobRun, "publish", stop)
        with pytest.raises(Stop):
            outcore.linalg.lu_factor("a.npy", out="lu.npy", memory="400 KiB")
    found, pivots = outcore.linalg.lu_factor("a.npy", out="lu.npy", memory="400 KiB", resume=True)
    expected = scipy.linalg.lu_factor(a)
    np.testing.assert_array_equal(expected[1], pivots)
    np.testing.assert_allclose(found[...], expected[0], atol=1e-9)


def test_a_result_without_a_name_is_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a = np.random.default_rng(5).standard_normal((9000, 9))
    np.save("a.npy", a)
    counted = []

    def stop(done, total):
        counted.append(done)
        if done >= total:
            raise Stop

    with pytest.raises(Stop):
        outcore.linalg.qr("a.npy", out=(None, "r.npy"), memory="400 KiB", progress=stop)
    q, r = outcore.linalg.qr("a.npy", out=(None, "r.npy"), memory="400 KiB", resume=True)
    np.testing.assert_allclose(q[...] @ r[...], a, atol=1e-10)


@pytest.mark.parametrize("name", ["sum", "min", "argmax", "median", "histogram", "bincount", "dot"])
def test_what_is_no_argument_is_refused(name):
    """Also where NumPy has one of this name: left alone, it would change nothing."""
    arrays = (np.arange(5),) * (2 if name == "dot" else 1)
    for word in ("subok", "overwrit", "chunks"):
        with pytest.raises(outcore.errors.UsageError, match=f"no option '{word}'") as told:
            find_public(name)(*arrays, **{word: (2,)})
        assert told.value.code == "unknown-option"


@pytest.mark.parametrize(
    "call",
    [
        lambda m: outcore.sum("m.npy", axis=0, memory=m),
        lambda m: outcore.linalg.norm("m.npy", memory=m),
        lambda m: outcore.statistics("m.npy", memory=m),
        lambda m: outcore.dot("v.npy", "v.npy", memory=m),
        lambda m: outcore.linalg.svd("m.npy", memory=m),
        lambda m: outcore.linalg.qr("m.npy", memory=m),
        lambda m: outcore.linalg.lstsq("m.npy", np.ones(3000), memory=m),
        lambda m: outcore.linalg.lu_factor("q.npy", memory=m),
    ],
)
def test_the_first_budget_that_is_named_does(tmp_path, monkeypatch, call):
    """Also where not even the result fits: it is what the whole job needs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("m.npy", rng.random((3000, 30)))
    np.save("v.npy", rng.random(100_000))
    np.save("q.npy", rng.random((200, 200)))
    with pytest.raises(outcore.BudgetError) as refused:
        call(1)
    call(refused.value.needed)
