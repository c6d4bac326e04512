"""Changes of groups, killed before each of their steps: what was there, or what was to be."""

from __future__ import annotations

import contextlib
import os
import shutil

import numpy as np
import pytest
from test_formats_killed import dies_at, each_step

import killed
import outcore

pytest.importorskip("h5py")
FILES = ["h5", "zarr", "zarr2"]


@pytest.fixture
def quick(tmp_path):
    with killed.quick_folder(tmp_path) as folder:
        yield folder


@pytest.mark.parametrize("suffix", FILES)
def test_attributes_of_a_group_change_in_one_step(quick, suffix):
    old, new = {"a": 1, "b": "x"}, {"a": 2, "c": [1, 2, 3]}

    def prepare(step):
        path = quick / f"{step}.{suffix}"
        with outcore.open_group(path, "w") as group:
            group.create_group("g", attrs=old)
        return path

    def change(path):
        outcore.open_group(f"{path}::/g", "r+")._change_attrs(new, ["b"])

    def look(path):
        found = outcore.open_group(f"{path}::/g").attrs
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in found.items()}

    killed.check_switched_once(each_step(prepare, change, look, 3), old, new)


@pytest.mark.parametrize("suffix", FILES)
def test_a_group_is_made_with_its_attributes_or_not_at_all(quick, suffix):
    def prepare(step):
        path = quick / f"{step}.{suffix}"
        outcore.open_group(path, "w").close()
        return path

    def look(path):
        group = outcore.open_group(path)
        if "g" not in group:
            return None
        return dict(group["g/h"].attrs) == {"a": "x"}

    seen = each_step(
        prepare,
        lambda path: outcore.open_group(path, "r+").create_group("g/h", attrs={"a": "x"}),
        look,
        3,
    )
    killed.check_switched_once(seen, None, True)


@pytest.mark.parametrize("suffix", FILES)
def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one(quick, suffix):
    def prepare(step):
        path = quick / f"{step}.{suffix}"
        with outcore.open_group(path, "w") as group:
            group.create("u", data=[1.0, 2.0]).close()
        return path

    seen = each_step(
        prepare,
        lambda path: outcore.open_group(path, "w").close(),
        lambda path: list(outcore.open_group(path)),
        3,
    )
    killed.check_switched_once(seen, ["u"], [])


@pytest.mark.parametrize("suffix", ["h5", "zarr"])
def test_a_conversion_of_a_whole_file_goes_on_wherever_it_was_killed(quick, suffix):
    """At every few steps: there is nothing at its name, or all of it, and `resume` makes it whole."""
    data = np.arange(600).reshape(20, 30)
    with outcore.open_group(quick / "a.nc", "w") as group:
        group.attrs["title"] = "t"
        group.create("g/u", data=data, chunks=(5, 30)).close()
        group.create("v", data=-data).close()
    place = quick / "place"
    died = 0
    for step in range(1, 5000, 29):
        place.mkdir()
        target = place / f"b.{suffix}"
        ended_early = dies_at(step, lambda: outcore.convert(quick / "a.nc", target))  # noqa: B023
        died += ended_early
        if target.exists():
            check(target, data)
        with contextlib.suppress(outcore.errors.AlreadyExistsError):  # it had come to its end
            outcore.convert(quick / "a.nc", target, resume=True)
        check(target, data)
        assert [n for n in os.listdir(place) if n != target.name and "outcore-tmp" not in n] == []
        shutil.rmtree(place)
        if not ended_early:
            break
    assert died > 3


def check(target, data):
    group = outcore.open_group(target)
    assert dict(group.attrs) == {"title": "t"} and list(group) == ["g", "v"]
    np.testing.assert_array_equal(data, group["g/u"][...])
    np.testing.assert_array_equal(-data, group["v"][...])
