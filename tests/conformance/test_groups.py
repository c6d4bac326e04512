"""Groups: what h5py, netCDF4, zarr and xarray made we read, and they read what we made."""

from __future__ import annotations

import json
import os
import pickle
import threading

import numpy as np
import pytest

import outcore
from outcore import formats

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
zarr = pytest.importorskip("zarr")

DATA = np.arange(24.0).reshape(4, 6)
FILES = ["a.h5", "a.nc", "a.zarr", "a.zarr2"]
#: What the group's owner keeps among its attributes.
OWN = {"_NCProperties"}


def plain(value):
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return list(map(plain, value)) if isinstance(value, (list, tuple)) else value


def said(attrs):
    return {name: plain(attrs[name]) for name in attrs if name not in OWN}


class Owner:
    """A file or store as the library that owns its format sees it."""

    def __init__(self, path):
        self._path = str(path)

    def use(self, mode, work):
        if self._path.endswith(".h5"):
            with h5py.File(self._path, mode) as file:
                return work(file)
        if self._path.endswith(".nc"):
            with netCDF4.Dataset(self._path, mode) as file:
                return work(file)
        version = 2 if self._path.endswith("2") else 3
        return work(zarr.open_group(self._path, mode=mode, zarr_format=version))

    def attrs(self, name="/"):
        def work(file):
            item = file if name == "/" else file[name.strip("/")]
            return said(item.__dict__ if self._path.endswith(".nc") else item.attrs)

        return self.use("r", work)

    def make(self):
        """The tree of `made`, by the owner."""
        if self._path.endswith(".nc"):
            with netCDF4.Dataset(self._path, "w") as file:
                file.setncatts({"title": "t", "n": 3})
                file.createDimension("t", 4)
                file.createDimension("bare", 6)
                file.createVariable("t", "f8", ("t",))[:] = np.arange(4.0)
                file.createVariable("u", "f8", ("t", "bare"))[:] = DATA
                file.createGroup("grid").units = "m"
                file["grid"].createDimension("x", 3)
                file["grid"].createVariable("x", "f8", ("x",))[:] = np.arange(3.0)
                file.createGroup("e").createGroup("f").level = 2
            return

        def work(file):
            file.attrs.update({"title": "t", "n": 3})
            for name, data in (("t", np.arange(4.0)), ("u", DATA), ("grid/x", np.arange(3.0))):
                if self._path.endswith(".h5"):
                    file[name] = data
                else:
                    file.create_array(name, data=data)
            file["grid"].attrs["units"] = "m"
            file.create_group("e/f").attrs["level"] = 2

        self.use("w", work)

    def arrays(self):
        """The arrays of the same tree."""
        return self.use(
            "r", lambda file: {n: np.asarray(file[n][...]) for n in ("t", "u", "grid/x")}
        )


def made(path, mode="w"):
    group = outcore.open_group(path, mode)
    group.attrs.update(title="t", n=3)
    group.create("t", data=np.arange(4.0), dims=("t",)).close()
    group.create("u", data=DATA, dims=("t", "bare")).close()
    group.create("grid/x", data=np.arange(3.0), dims=("x",)).close()
    group["grid"].attrs["units"] = "m"
    group.create_group("e/f", attrs={"level": 2})
    return group


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "theirs"])
def test_a_group_is_a_mapping(tmp_path, name, ours):
    path = tmp_path / name
    made(path) if ours else Owner(path).make()
    with outcore.open_group(path) as group:
        assert list(group) == list(group.keys()) == ["e", "grid", "t", "u"]
        assert (
            len(group) == 4
            and group.name == "/"
            and group.format == formats.find_format_name(str(path))
        )
        for there in ("u", "grid", "grid/x", "/grid/x", "e/f", "/", "grid/"):
            assert there in group, there
        for gone in ("nix", "u/x", "grid/nix", "bare", "..", "", 3, None):
            assert gone not in group, gone
        with group["u"] as u:
            assert isinstance(u, outcore.DiskArray) and u.mode == "r"
            np.testing.assert_array_equal(DATA, u[...])
        grid = group["grid"]
        assert isinstance(grid, outcore.Group) and grid.name == "/grid"
        assert list(grid) == ["x"] and said(grid.attrs) == {"units": "m"}
        np.testing.assert_array_equal(np.arange(4.0), grid["/t"][...])
        assert grid["/"].name == "/" and list(group["e"]) == ["f"] and list(group["e/f"]) == []
        assert said(group.attrs) == {"title": "t", "n": 3}
        assert said(group["e"]["f"].attrs) == {"level": 2}
        assert [n for n, _ in group.arrays()] == ["t", "u"]
        assert [n for n, _ in group.groups()] == ["e", "grid"]
        assert [n for n, _ in group.walk()] == ["e", "e/f", "grid", "grid/x", "t", "u"]
        assert {n: type(v).__name__ for n, v in group.items()} == {
            "e": "Group", "grid": "Group", "t": "DiskArray", "u": "DiskArray"
        }  # fmt: skip
        assert str(group.tree()).splitlines() == [
            "/", "├── e", "│   └── f", "├── grid", "│   └── x  float64 (3,)",
            "├── t  float64 (4,)", "└── u  float64 (4, 6)",
        ]  # fmt: skip
        assert repr(grid.tree()) == "/grid\n└── x  float64 (3,)"
        assert repr(group) == f"<Group {str(path)!r}: 4 members, {group.format}, mode 'r'>"
        assert "1 member, " in repr(grid)
    assert "closed" in repr(group)
    for use in (lambda: group["u"], lambda: list(group), lambda: len(group), lambda: group.tree()):
        with pytest.raises(outcore.errors.UsageError) as caught:
            use()
        assert caught.value.code == "closed"


@pytest.mark.parametrize("name", FILES)
def test_the_owner_reads_what_we_made(tmp_path, name):
    made(tmp_path / name)
    owner = Owner(tmp_path / name)
    for key, data in owner.arrays().items():
        expected = {"t": np.arange(4.0), "u": DATA, "grid/x": np.arange(3.0)}[key]
        np.testing.assert_array_equal(expected, data)
    assert owner.attrs() == {"title": "t", "n": 3}
    assert owner.attrs("grid") == {"units": "m"} and owner.attrs("e/f") == {"level": 2}


def test_xarray_reads_what_we_made(tmp_path):
    xarray = pytest.importorskip("xarray")
    made(tmp_path / "a.nc")
    made(tmp_path / "a.zarr")
    for engine, name in (("netcdf4", "a.nc"), ("zarr", "a.zarr")):
        words = {"consolidated": False} if engine == "zarr" else {}
        with xarray.open_dataset(tmp_path / name, engine=engine, **words) as dataset:
            assert dataset.attrs["title"] == "t"
            assert dataset.u.dims == ("t", "bare") and dataset.u.coords["t"].values[3] == 3
        words = {"group": "grid", **words}
        with xarray.open_dataset(tmp_path / name, engine=engine, **words) as dataset:
            assert dataset.attrs["units"] == "m" and dataset.sizes["x"] == 3


@pytest.mark.parametrize("name", FILES)
def test_attributes_of_groups_are_set_changed_and_removed(tmp_path, name):
    made(tmp_path / name)
    owner = Owner(tmp_path / name)
    root = outcore.open_group(tmp_path / name, "r+")
    for group, where in ((root, "/"), (root["grid"], "grid")):
        start = owner.attrs(where)
        group.attrs["long_name"] = "temperature in °"
        group.attrs.update({"levels": [1, 2, 3], "words": ["a", "b"]}, offset=273.15)
        more = {"levels": [1, 2, 3], "words": ["a", "b"], "offset": 273.15}
        expected = {**start, "long_name": "temperature in °", **more}
        assert expected == said(group.attrs) == owner.attrs(where)
        del group.attrs["levels"]
        assert group.attrs.pop("words") == ["a", "b"]
        with pytest.raises(KeyError):
            del group.attrs["words"]
        expected = {k: v for k, v in expected.items() if k not in ("levels", "words")}
        again = outcore.open_group(f"{tmp_path / name}::/{group.name.strip('/')}")
        assert expected == said(group.attrs) == owner.attrs(where) == said(again.attrs)
        group.attrs.clear()
        assert dict(group.attrs) == {} == owner.attrs(where)
    assert list(root) == ["e", "grid", "t", "u"], "nothing else has changed"


@pytest.mark.parametrize("name", FILES)
def test_group_attributes_set_by_another_library_stay(tmp_path, name):
    made(tmp_path / name)
    group = outcore.open_group(tmp_path / name, "r+")
    assert group.attrs["n"] == 3

    def work(file):
        if name.endswith(".nc"):
            file.setncattr("theirs", "x")
            file.setncattr("n", 4)
        else:
            file.attrs.update({"theirs": "x", "n": 4})

    Owner(tmp_path / name).use("r+", work)
    group.attrs["ours"] = 1
    assert Owner(tmp_path / name).attrs() == {"title": "t", "n": 4, "theirs": "x", "ours": 1}
    assert said(group.attrs) == {"title": "t", "n": 4, "theirs": "x", "ours": 1}


@pytest.mark.parametrize("name", ["a.h5", "a.zarr", "a.zarr2"])
def test_changes_of_several_threads_all_count(tmp_path, name):
    made(tmp_path / name)
    handles = [outcore.open_group(tmp_path / name, "r+") for _ in range(2)]
    failed = []

    def work(number):
        try:
            for k in range(3):
                handles[number % 2].attrs[f"{number}-{k}"] = k
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    expected = {f"{number}-{k}": k for number in range(4) for k in range(3)}
    assert {"title": "t", "n": 3, **expected} == Owner(tmp_path / name).attrs()


def test_nested_json_of_ome_ngff(tmp_path):
    """As images of microscopes have it: written by us and by zarr."""
    image = {
        "multiscales": [
            {
                "version": "0.4",
                "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
                "datasets": [
                    {
                        "path": str(level),
                        "coordinateTransformations": [{"type": "scale", "scale": [1.0, 2.0]}],
                    }
                    for level in range(2)
                ],
            }
        ]
    }
    for version, name in ((2, "a.zarr2"), (3, "a.zarr")):
        with outcore.open_group(tmp_path / name, "w") as group:
            group.attrs.update(image)
            group.attrs["omero"] = {"channels": [{"active": True, "window": {"max": None}}]}
        found = zarr.open_group(tmp_path / name, mode="r+", zarr_format=version)
        assert dict(found.attrs) == {
            **image, "omero": {"channels": [{"active": True, "window": {"max": None}}]}
        }  # fmt: skip
        found.attrs["labels"] = {"nested": [{"deep": [1, {"x": 2.5}]}]}
        group = outcore.open_group(tmp_path / name)
        assert group.attrs["labels"]["nested"][0]["deep"][1] == {"x": 2.5}
        group.attrs["labels"]["nested"][0]["deep"].append(4)
        assert group.attrs["labels"] == {"nested": [{"deep": [1, {"x": 2.5}]}]}, "a copy"


REFUSED = {
    "a.h5": [None, {"a": 1}, object(), [1, "a"]],
    "a.nc": [None, {"a": 1}, np.zeros((2, 2)), 1j],
    "a.zarr": [object(), {1, 2}],
    "a.zarr2": [object()],
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_cannot_be_kept_change_nothing(tmp_path, name):
    group = made(tmp_path / name)
    for value in REFUSED[name]:
        for change in (
            lambda: group.attrs.update({"good": 1, "wrong": value}),  # noqa: B023
            lambda: group.create_group("fresh", attrs={"wrong": value}),  # noqa: B023
        ):
            with pytest.raises(outcore.errors.UsageError) as caught:
                change()
            assert caught.value.code in ("bad-attribute", "bad-attributes"), value
    assert said(group.attrs) == Owner(tmp_path / name).attrs() == {"title": "t", "n": 3}
    assert "fresh" not in group
    assert [n for n in os.listdir(tmp_path) if "outcore" in n] == []


@pytest.mark.parametrize("name", FILES)
def test_group_opened_for_reading_refuses_changes(tmp_path, name):
    made(tmp_path / name)
    group = outcore.open_group(tmp_path / name)
    for change in (
        lambda: group.attrs.update(a=1),
        lambda: group.create("x", 3, "f4"),
        lambda: group.create_group("x"),
    ):
        with pytest.raises(outcore.errors.UsageError) as caught:
            change()
        assert caught.value.code == "read-only"
    assert "x" not in group


@pytest.mark.parametrize("name", FILES)
def test_missing_members_raise_key_errors(tmp_path, name):
    made(tmp_path / name)
    group = outcore.open_group(tmp_path / name, "r+")
    for gone in ("nix", "grid/nix", "/nix"):
        with pytest.raises(KeyError) as caught:
            group[gone]
        assert isinstance(caught.value, outcore.errors.FormatError)
        assert caught.value.code == "no-such-member" and repr(gone) in str(caught.value)
        assert group.get(gone) is None
    for wrong in ("", "..", "a/../b"):
        with pytest.raises(outcore.errors.UsageError):
            group[wrong]
    with pytest.raises(outcore.errors.PathTypeError):
        group[3]
    with pytest.raises(outcore.errors.FormatError) as caught:
        outcore.open_group(f"{tmp_path / name}::/u")
    assert caught.value.code == "not-a-group" and "outcore.open()" in str(caught.value)
    with pytest.raises(outcore.errors.FormatError) as caught:
        outcore.open_group(f"{tmp_path / name}::/nix")
    assert caught.value.code == "not-a-group"
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            outcore.open_group(tmp_path / f"b{name}", mode)
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.open_group(tmp_path / name, "rw")
    assert caught.value.code == "bad-mode"


@pytest.mark.parametrize("name", FILES)
def test_groups_are_made(tmp_path, name):
    path = tmp_path / name
    group = made(path, "x")
    with pytest.raises(FileExistsError):
        outcore.open_group(path, "x")
    for there in ("e", "e/f", "u"):
        with pytest.raises(FileExistsError) as caught:
            group.create_group(there)
        assert caught.value.code == "already-exists"
    again = group.create_group("e/f", exist_ok=True, attrs={"more": 1})
    assert said(again.attrs) == {"level": 2, "more": 1}
    with pytest.raises(outcore.errors.UsageError):
        group.create_group("u/below")
    with pytest.raises(FileExistsError):
        group.create("u", 3, "f4")
    group.create("u", data=DATA + 1, dims=("t", "bare"), overwrite=True).close()
    np.testing.assert_array_equal(DATA + 1, Owner(path).arrays()["u"])
    # Opened, or made where they are not there.
    with outcore.open_group(path, "a") as same:
        assert list(same) == ["e", "grid", "t", "u"]
    with outcore.open_group(f"{path}::/deep/er", "a") as deep:
        assert deep.name == "/deep/er" and list(deep) == []
    with outcore.open_group(tmp_path / f"new-{name}", "a") as new:
        assert list(new) == []
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.open_group(f"{path}::/e", "w")
    assert caught.value.code == "bad-mode" and "deep" in group
    # In place of all that was there.
    with outcore.open_group(path, "w") as empty:
        assert list(empty) == [] and said(empty.attrs) == {}
    assert Owner(path).attrs() == {}
    assert sorted(os.listdir(tmp_path)) == sorted([name, f"new-{name}"])


@pytest.mark.parametrize("name", ["a.zarr", "a.zarr2"])
def test_a_store_with_files_of_others_is_not_replaced(tmp_path, name):
    made(tmp_path / name)
    (tmp_path / name / "notes.txt").write_text("mine")
    with pytest.raises(outcore.errors.UsageError, match=r"notes\.txt") as caught:
        outcore.open_group(tmp_path / name, "w")
    assert caught.value.code == "not-a-group"
    assert (tmp_path / name / "notes.txt").read_text() == "mine"
    assert list(outcore.open_group(tmp_path / name)) == ["e", "grid", "t", "u"]


def test_formats_without_groups(tmp_path):
    np.save(tmp_path / "a.npy", DATA)
    for mode in ("r", "a", "x", "w"):
        with pytest.raises(outcore.errors.UnsupportedError) as caught:
            outcore.open_group(tmp_path / "a.npy", mode)
        assert caught.value.code == "not-a-group"
    np.testing.assert_array_equal(DATA, np.load(tmp_path / "a.npy"))
    with pytest.raises(outcore.errors.FormatError):
        outcore.open_group(tmp_path)


def test_links_and_types_of_hdf5(tmp_path):
    path, other = tmp_path / "a.h5", tmp_path / "b.h5"
    with h5py.File(other, "w") as file:
        file["far/x"] = DATA
    with h5py.File(path, "w") as file:
        file["g/x"] = DATA
        file["hard"] = file["g"]
        file["soft"] = h5py.SoftLink("/g/x")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["circle"] = h5py.SoftLink("/")
        file["elsewhere"] = h5py.ExternalLink("b.h5", "/far")
        file["lost"] = h5py.ExternalLink("c.h5", "/far")
        file["type"] = np.dtype("f8")
        file["text"] = "of variable length"
    group = outcore.open_group(path, "r+")
    assert list(group) == ["circle", "elsewhere", "g", "hard", "soft", "text"]
    assert "dangling" not in group and "lost" not in group and "type" not in group
    np.testing.assert_array_equal(DATA, group["soft"][...])
    np.testing.assert_array_equal(DATA, group["elsewhere/x"][...])
    np.testing.assert_array_equal(DATA, group["circle/circle/g/x"][...])
    with pytest.raises(outcore.errors.UnsupportedError):
        group["text"]  # as outcore.open says
    names = [name for name, _ in formats.groups.list_members(str(path), deep=True)]
    assert names == ["g", "g/x", "text"], "each once, and no circle"
    assert "text  StringDType() ()" in str(group.tree())
    group["elsewhere"].attrs["units"] = "m"
    with h5py.File(other) as file:
        assert file["far"].attrs["units"] == "m"


def test_consolidated_metadata_are_kept_up_to_date(tmp_path):
    for version, name in ((2, "a.zarr2"), (3, "a.zarr")):
        path = tmp_path / name
        made(path)
        zarr.consolidate_metadata(path, zarr_format=version)
        group = outcore.open_group(path, "r+")
        group.attrs["title"] = "new"
        group["grid"].attrs["units"] = "km"
        group.create_group("late", attrs={"k": 1})
        group["e/f"].attrs["level"] = 3
        found = zarr.open_consolidated(path, zarr_format=version)
        assert found.attrs["title"] == "new" and found["grid"].attrs["units"] == "km"
        assert found["late"].attrs["k"] == 1 and found["e/f"].attrs["level"] == 3
        np.testing.assert_array_equal(DATA, found["u"][...])
        # What only the consolidated metadata know is a member, too.
        if version == 3:
            document = json.loads((path / "zarr.json").read_text())
            members = document["consolidated_metadata"]["metadata"]
            members["told"] = {"zarr_format": 3, "node_type": "group", "attributes": {"k": 2}}
            (path / "zarr.json").write_text(json.dumps(document))
            assert "told" in group and "told" in list(group)
            assert said(outcore.open_group(path)["told"].attrs) == {"k": 2}
            assert list(outcore.open_group(path)["told"]) == [], "it has no folder"
            with pytest.raises(outcore.errors.FormatError) as caught:
                group["told"]
            assert caught.value.code == "not-a-group" and "for reading" in str(caught.value)


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr", "a.zarr2"])
def test_a_description_has_the_members_of_a_listing(tmp_path, name):
    """Of all at once and of names alone; what has two names is a member by both."""
    path = tmp_path / name
    made(path)
    if name in ("a.h5", "a.nc"):
        with h5py.File(path, "r+") as file:
            file["also"] = file["u"]
            file["lost"] = h5py.ExternalLink("c.h5", "/far")
            file["nowhere"] = h5py.SoftLink("/missing")
    else:
        (path / "also").symlink_to(path / "u")
        (path / "nowhere").symlink_to(path / "missing")
    group = outcore.open_group(path)
    found = formats.groups.describe(path)
    assert {"also", "u"} <= set(group) == {*found.arrays, *found.groups}
    assert set(found.groups) == {name for name, _ in group.groups()}
    np.testing.assert_array_equal(DATA, group["also"][...])
    assert found.arrays["also"].info.shape == group["u"].shape
    assert "u" not in formats.groups.describe(path, drop=["u"]).arrays


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr", "a.zarr2"])
def test_a_large_group_is_listed_without_opening_its_arrays(tmp_path, name, monkeypatch):
    count = 1000 if name != "a.nc" else 200
    path = tmp_path / name
    if name == "a.h5":
        with h5py.File(path, "w") as file:
            for k in range(count):
                file.create_dataset(f"{k:04}", (3,), "f4")
    elif name == "a.nc":
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 3)
            for k in range(count):
                file.createVariable(f"{k:04}", "f4", ("x",))
    else:
        one = outcore.create(f"{path}::/0000", (3,), "f4")
        one.close()
        marks = {"a.zarr": ["zarr.json"], "a.zarr2": [".zarray", ".zattrs"]}[name]
        texts = {mark: (path / "0000" / mark).read_bytes() for mark in marks}
        for k in range(1, count):
            (path / f"{k:04}").mkdir()
            for mark, text in texts.items():
                (path / f"{k:04}" / mark).write_bytes(text)
    opened = []
    for one in formats.list_formats():
        kind = type(one.load())
        plain = kind.describe
        monkeypatch.setattr(
            kind, "describe", lambda *a, plain=plain, **k: opened.append(a) or plain(*a, **k)
        )
    monkeypatch.setattr(
        outcore.DiskArray, "__init__", lambda *_, **__: opened.append("array"), raising=True
    )
    group = outcore.open_group(path)
    names = [f"{k:04}" for k in range(count)]
    assert (list(group) == names and len(group) == count and "0500" in group) or count == 200
    assert f"{count} members" in repr(group)
    assert [name for name, _ in formats.groups.list_members(str(path), deep=True)] == names
    assert opened == []


def test_paths_mean_the_same_after_a_chdir_and_in_another_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made("a.h5")
    group = outcore.open_group("a.h5", "r+")
    assert group["u"].path == "a.h5::/u" and group["grid"].path == "a.h5::/grid"
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    np.testing.assert_array_equal(DATA, group["u"][...])
    group.attrs["late"] = 1
    again = pickle.loads(pickle.dumps(group["grid"]))
    assert again.name == "/grid" and again.writable and list(again) == ["x"]
    assert group == group and group != outcore.open_group(tmp_path / "a.h5") and {group: 1}
    assert group and not outcore.open_group(tmp_path / "a.h5").close()


def test_hints_and_formats_are_those_of_the_group(tmp_path):
    path = tmp_path / "odd.name"
    with outcore.open_group(path, "w", format="hdf5", hints={"threads": 1}) as group:
        with group.create("x", data=DATA) as x:
            assert x.hints.threads == 1 and x.format == "hdf5"
        assert group["x"].hints.threads == 1 and group.create_group("g").format == "hdf5"
    with h5py.File(path) as file:
        assert sorted(file) == ["g", "x"]
    assert outcore.open_group(path).format == "hdf5", "by its marks"
