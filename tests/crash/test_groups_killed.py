"""Changes of groups, killed before each of their steps: what was there, or what was to be."""

from __future__ import annotations

import pytest
from test_formats_killed import each_step, switched_once

import outcore

pytest.importorskip("h5py")
FILES = ["h5", "nc", "zarr", "zarr2"]


@pytest.mark.parametrize("suffix", FILES)
def test_attributes_of_a_group_change_in_one_step(tmp_path, suffix):
    old, new = {"a": 1, "b": "x"}, {"a": 2, "c": [1, 2, 3]}

    def prepare(step):
        path = tmp_path / f"{step}.{suffix}"
        with outcore.open_group(path, "w") as group:
            group.create_group("g", attrs=old)
        return path

    def change(path):
        outcore.open_group(f"{path}::/g", "r+")._change_attrs(new, ["b"])

    def look(path):
        found = outcore.open_group(f"{path}::/g").attrs
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in found.items()}

    switched_once(each_step(prepare, change, look, 3), old, new)


@pytest.mark.parametrize("suffix", FILES)
def test_a_group_is_made_with_its_attributes_or_not_at_all(tmp_path, suffix):
    def prepare(step):
        path = tmp_path / f"{step}.{suffix}"
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
    switched_once(seen, None, True)


@pytest.mark.parametrize("suffix", FILES)
def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one(tmp_path, suffix):
    def prepare(step):
        path = tmp_path / f"{step}.{suffix}"
        with outcore.open_group(path, "w") as group:
            group.create("u", data=[1.0, 2.0]).close()
        return path

    seen = each_step(
        prepare,
        lambda path: outcore.open_group(path, "w").close(),
        lambda path: list(outcore.open_group(path)),
        3,
    )
    switched_once(seen, ["u"], [])
