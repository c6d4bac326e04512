"""Arguments of `blocks`, amounts of memory, hints: odd ones are taken or refused with advice."""

from __future__ import annotations

import numpy as np
import pytest

import outcore

DATA = np.arange(6000.0).reshape(60, 100)


def test_arguments_of_blocks_may_be_numpys_and_errors_say_what_would_do(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=DATA)
    keys = [key for key, _ in a.blocks(shape=(40, 40), overlap=(1, 0))]
    assert keys == [k for k, _ in a.blocks(shape=np.array([40, 40]), overlap=np.array([1, 0]))]
    assert len(list(a.blocks(shape=np.int64(40)))) == 6
    for wrong, advice in (
        ({"shape": (2, -1)}, "at least 1"),
        ({"shape": 2, "overlap": -1}, "at least 0"),
        ({"axis": 2}, "-2..1"),
        ({"shape": 2, "overlap": (1, 1, 1)}, "one per axis"),
    ):
        with pytest.raises(outcore.UsageError, match=advice):
            a.blocks(**wrong)


def test_amounts_and_hints_that_are_none_are_usage_errors(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    np.save(path, DATA)
    before = int(outcore.memory())
    for wrong in (float("nan"), 1.5, [1], True, 0, -1):
        with pytest.raises(outcore.UsageError, match="512 MiB"):
            outcore.memory(wrong)
    assert before == outcore.memory()
    for wrong in ("x", 1.5, True, 0):
        with pytest.raises(outcore.UsageError, match="threads"):
            outcore.Hints(threads=wrong)
    with pytest.raises(outcore.UsageError, match="mapping"):
        outcore.open(path, hints="engine=threads")
    with pytest.raises(outcore.UsageError, match="write it as NumPy does"):
        outcore.create(tmp_path / "b.npy", 3, "foo")
    with pytest.raises(TypeError, match="a path must be"):
        outcore.open(b"a.npy")
    monkeypatch.setenv("OUTCORE_HINTS", "junk")
    with pytest.raises(outcore.UsageError, match="OUTCORE_HINTS"):
        outcore.open(path)


def test_a_budget_for_a_while_can_be_entered_again():
    before = int(outcore.memory())
    limit = outcore.memory("7 MiB")
    for _ in range(2):
        with limit:
            assert outcore.memory() == 7 * 2**20
        assert before == outcore.memory()
