"""Links that lead nowhere, to themselves or back up: they hide no other member, and are told."""

import os

import h5py
import numpy as np
import pytest

import outcore
from outcore import formats
from outcore.cli import main

DATA = np.arange(6.0)
BROKEN = {
    "self": "a soft link to '/g/self'",
    "ping": "a soft link to 'pong'",
    "pong": "a soft link to 'ping'",
    "dangling": "a soft link to '/nowhere/x'",
    "gone": "an external link to '/x' in 'gone.h5'",
    "empty": "an external link to '/nothing' in 'b.h5'",
}


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["far"] = DATA + 1
        file["far"].attrs["units"] = "m"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("g")
        group["x"] = DATA
        group["self"] = h5py.SoftLink("/g/self")
        group["ping"], group["pong"] = h5py.SoftLink("pong"), h5py.SoftLink("ping")
        group["dangling"] = h5py.SoftLink("/nowhere/x")
        group["gone"] = h5py.ExternalLink("gone.h5", "/x")
        group["empty"] = h5py.ExternalLink("b.h5", "/nothing")
        group["far"] = h5py.ExternalLink("b.h5", "/far")
        group["soft"] = h5py.SoftLink("/g/x")
        group["h/z"] = DATA[:2]
    return tmp_path / "a.h5"


@pytest.fixture
def circles(path):
    with h5py.File(path, "r+") as file:
        file["g/again"] = file["g"]
        file["g/h/top"] = file["/"]
        file["g/h/up"] = h5py.SoftLink("/g")
    return path


def test_the_other_members_are_listed(path):
    group = outcore.open_group(f"{path}::/g")
    assert list(group) == ["far", "h", "soft", "x"]
    assert not any(name in group for name in BROKEN)
    for name, item in group.items():
        if name != "h":
            np.testing.assert_array_equal(DATA + (name == "far"), item[:])
    found = formats.groups.describe(path, "g")
    assert {"far", "soft", "x"} == set(found.arrays) and found.groups == ("h",)
    assert found.arrays["far"].attrs == {"units": "m"}


def test_links_that_lead_nowhere_are_told_with_the_reason(path, capsys):
    notes = {e.path.rpartition("/")[2]: e.note for e in outcore.ls(path) if e.kind == "link"}
    assert set(BROKEN) == set(notes)
    for name, why in BROKEN.items():
        assert f"it is {why}" in notes[name]
        with pytest.raises(
            outcore.errors.FormatError, match=r"that is (a soft|an external) link"
        ) as raised:
            outcore.open(f"{path}::/g/{name}")
        assert raised.value.code == "no-such-array"
        with pytest.raises(KeyError, match="broken links"):
            outcore.open_group(path)[f"g/{name}"]
    assert "self  (cannot be opened" in str(outcore.open_group(path).tree())
    for word in ("ls", "info"):
        assert main([word, str(path)]) == 0
        told = capsys.readouterr().out
        assert (
            "link that cannot be opened: it is a soft link to '/g/self', which does not exist"
            in told
        )
        assert "a.h5::/g/x" in told


@pytest.mark.parametrize("new", ["c.h5", "c.zarr"])
def test_a_conversion_refuses_them_or_skips_them(path, tmp_path, new):
    with pytest.raises(outcore.errors.UnsupportedError, match=r"6 members .* skip=True") as raised:
        outcore.convert(path, tmp_path / new)
    assert raised.value.code == "no-such-array" and not (tmp_path / new).exists()
    with pytest.warns(UserWarning, match="is skipped") as told:
        outcore.convert(path, tmp_path / new, skip=True)
    for name, why in BROKEN.items():
        assert (
            sum(f"g/{name}'" in str(one.message) and why in str(one.message) for one in told) == 1
        )
    (links,) = [str(one.message) for one in told if "links are not followed" in str(one.message)]
    assert "'g/far' is an external link to '/far' in 'b.h5'" in links
    assert "'g/soft' is a soft link to '/g/x'. Convert" in links
    assert [n for n, _ in outcore.open_group(tmp_path / new).walk()] == ["g", "g/h", "g/h/z", "g/x"]
    outcore.convert(f"{path}::/g/far", f"{tmp_path / new}::/g/far")  # as the warning says
    np.testing.assert_array_equal(DATA + 1, outcore.open_group(tmp_path / new)["g/far"][:])


def test_a_conversion_says_what_has_several_names(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = DATA, DATA
        file["y again"] = file["y"]
    with pytest.warns(UserWarning, match=r"'y again' is another name of the same object\. Convert"):
        outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr")
    assert list(outcore.open_group(tmp_path / "b.zarr")) == ["x", "y"]


def test_broken_links_are_not_written_through(path):
    before = path.read_bytes()
    for name in ("self", "dangling", "gone"):
        with pytest.raises(outcore.OutcoreError):
            outcore.create(f"{path}::/g/{name}", data=DATA)
        with pytest.raises(outcore.OutcoreError):
            outcore.open_group(f"{path}::/g/{name}/below", "a")
    assert before == path.read_bytes()


def test_groups_that_hold_themselves_have_an_end(circles, tmp_path):
    walked = [name for name, _ in outcore.open_group(circles).walk()]
    assert walked == ["g", "g/h", "g/h/z", "g/x"]
    listed = [e.path.partition("::/")[2] for e in outcore.ls(circles) if e.kind != "link"]
    assert walked == listed
    assert str(outcore.open_group(circles).tree())
    with pytest.warns(UserWarning, match="is skipped"):
        outcore.convert(circles, tmp_path / "c.zarr", skip=True)
    assert walked == [name for name, _ in outcore.open_group(tmp_path / "c.zarr").walk()]
    again = outcore.open_group(f"{circles}::/g/again/h/top/g")
    assert list(again) == ["again", "far", "h", "soft", "x"]


def test_xarray_opens_what_there_is(circles):
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(circles, group="g", engine="outcore") as dataset:
        assert {"far", "soft", "x"} == set(dataset.variables)
        np.testing.assert_array_equal(DATA + 1, dataset["far"].values)
    found = xarray.open_groups(circles, engine="outcore")
    for dataset in found.values():
        dataset.close()
    assert {"/", "/g", "/g/h"} == set(found), "none of what is above it"


@pytest.mark.parametrize("suffix", [".zarr", ".zarr2"])
def test_symbolic_links_of_a_store(tmp_path, suffix):
    xarray = pytest.importorskip("xarray")
    path = tmp_path / f"a{suffix}"
    with outcore.open_group(path, "w") as group:
        group.create("x", data=DATA).close()
        group.create_group("h")
    os.symlink("self", path / "self")
    os.symlink("nowhere", path / "dangling")
    os.symlink("..", path / "h" / "up")
    group = outcore.open_group(path)
    assert ["h", "x"] == list(group) == [name for name, _ in group.walk()]
    for name in ("self", "self/y", "dangling"):
        assert name not in group
        with pytest.raises(KeyError, match="has no array and no group"):
            group[name]
    with pytest.raises(outcore.errors.FormatError, match="arrays here: 'x'"):
        outcore.open(f"{path}::/self")
    assert [e.path.partition("::")[2] for e in outcore.ls(path)] == ["/h", "/x"]
    found = xarray.open_groups(path, engine="outcore")
    for dataset in found.values():
        dataset.close()
    assert {"/", "/h"} == set(found)
