"""No call needs what another one has imported: each is made in a process of its own."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import outcore

FRESH = Path(__file__).parents[1] / "fresh.py"


def must_work(kind, most):
    command = [sys.executable, str(FRESH), kind, str(most)]
    done = subprocess.run(command, capture_output=True, text=True)
    *failed, ran = done.stdout.splitlines() or [""]
    assert (done.stderr, failed) == ("", []), "\n".join(failed)
    assert int(ran.removesuffix(" ran")) > 80


@pytest.mark.parametrize(("kind", "most"), [("operators", 12), ("functions", 16), ("names", 40)])
def test_calls_in_fresh_processes_work(kind, most):
    """`most` of them share a process; products of matrices, which import most, have their own."""
    must_work(kind, most)


@pytest.mark.parametrize("kind", ["operators", "functions", "names", "examples"])
def test_each_call_in_its_own_process_works_slow(kind):
    must_work(kind, 1)


def test_truth_of_several_elements_is_refused(tmp_path):
    for n, shape in enumerate(((2,), (0,), (3, 0), (1, 2))):
        a = outcore.create(tmp_path / f"a{n}.npy", shape, "f8")
        with pytest.raises(outcore.errors.UsageError, match=r"use outcore.any\(a\)") as refused:
            bool(a)
        assert refused.value.code == "ambiguous-truth"
        assert a.stats()["reads"] == 0
    for value in (0.0, 2.5):
        for shape in ((), (1,), (1, 1)):
            a = outcore.create(tmp_path / f"b{value}{shape}.npy", data=np.full(shape, value))
            assert bool(a) == bool(value)
    with h5py.File(tmp_path / "t.h5", "w") as f:
        f.create_dataset("t", data=["a", ""], dtype=h5py.string_dtype())
        f.create_dataset("one", data=[""], dtype=h5py.string_dtype())
    with pytest.raises(outcore.errors.UsageError, match="2 elements is ambiguous"):
        bool(outcore.open(tmp_path / "t.h5::/t"))
    assert not outcore.open(tmp_path / "t.h5::/one")
