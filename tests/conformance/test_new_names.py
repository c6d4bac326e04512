"""Names of new arrays and groups that no format takes are refused, and the name is blamed."""

import os

import numpy as np
import pytest

import outcore

CALLS = {
    "convert": lambda path: outcore.convert("a.npy", path),
    "create": lambda path: outcore.create(path, data=np.arange(3)).close(),
    "open": lambda path: outcore.open(path, "w", shape=(3,), dtype="i4").close(),
    "computed": lambda path: outcore.sort("a.npy", out=path).close(),
    "group": lambda path: outcore.open_group(path, "x").close(),
    "whole": lambda path: outcore.convert("many.h5", path, whole=True),
}


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".zarr", ".zarr2"])
def test_names_of_dots_are_blamed(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(3))
    outcore.create("many.h5::/u", data=np.arange(3)).close()
    outcore.create(f"old{suffix}::/w", data=np.arange(3)).close()
    before = sorted(os.listdir())
    for file in ("old", "new"):
        for name in ("/./u", "/../u", "/g/./u", "/g/../u", "/g/.."):
            for call, make in CALLS.items():
                with pytest.raises(outcore.errors.UsageError) as caught:
                    make(f"{file}{suffix}::{name}")
                assert name in str(caught.value) and "dots" in str(caught.value), (name, call)
    assert sorted(os.listdir()) == before
    assert [e.path for e in outcore.ls(f"old{suffix}")] == [f"old{suffix}::/w"]


@pytest.mark.parametrize("suffix", [".h5", ".nc"])
def test_dots_in_names_of_what_is_there_lead_to_it(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    outcore.create(f"a{suffix}::/g/u", (3,), "i4", chunks=3, dims=("t",)).close()
    with outcore.open(f"a{suffix}::/./g/./u", "r+") as a:
        a[...] = 1
        a.attrs["units"] = "m"
    with outcore.open(f"a{suffix}::/g/u") as a:
        assert a[...].tolist() == [1, 1, 1] and a.attrs["units"] == "m"
