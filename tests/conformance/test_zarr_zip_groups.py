"""Groups of Zarr stores in zip files, as those of the folders that were zipped."""

import os
import warnings
import zipfile

import numpy as np
import pytest
import xarray as xr
import zarr

import outcore


def zipped(folder, target, top):
    with zipfile.ZipFile(target, "w") as file:
        for above, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(above, name)
                file.write(path, path if top else os.path.relpath(path, folder))


@pytest.mark.parametrize("suffix", ["zarr", "zarr2"])
def test_groups_in_zip_files_are_those_of_the_folder(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    folder = f"a.{suffix}"
    with outcore.open_group(folder, "w") as group:
        group.attrs["title"] = "T"
        group.create_group("s").attrs["n"] = 3
    outcore.create(
        f"{folder}::/a", data=np.arange(6.0), chunks=4, dims=("x",), attrs={"u": "m"}
    ).close()
    outcore.create(f"{folder}::/s/t/b", data=np.arange(4), chunks=2, dims=("y",)).close()
    for top in (False, True):
        path = f"{suffix}-{top}.zip"
        zipped(folder, path, top)
        with outcore.open_group(folder) as theirs, outcore.open_group(path) as ours:
            assert [n for n, _ in ours.walk()] == [n for n, _ in theirs.walk()]
            assert ours.tree() == theirs.tree()
            for name in ("/", "s", "s/t"):
                one, other = (ours, theirs) if name == "/" else (ours[name], theirs[name])
                assert list(one) == list(other) and dict(one.attrs) == dict(other.attrs)
            for name in ("a", "s/t/b"):
                np.testing.assert_array_equal(ours[name][...], theirs[name][...])
                assert dict(ours[name].attrs) == dict(theirs[name].attrs)
                assert ours[name].dims == theirs[name].dims
        for group in ("/", "s/t"):
            pair = [xr.open_dataset(one, engine="outcore", group=group) for one in (path, folder)]
            xr.testing.assert_identical(*pair)
        outcore.convert(path, "b.zarr", whole=True, overwrite=True)
        with outcore.open_group("b.zarr") as made, outcore.open_group(folder) as theirs:
            assert made.tree() == theirs.tree() and dict(made["s"].attrs) == {"n": 3}
        for change in (
            lambda path=path: outcore.open_group(path, "r+"),
            lambda path=path: outcore.open_group(path, "a").create_group("new"),
            lambda path=path: outcore.create(f"{path}::/new", (3,), "f4"),
        ):
            with pytest.raises(outcore.errors.UnsupportedError, match="format zarrzip") as raised:
                change()
            assert raised.value.code == "cannot-change"
        for name in ("nothing", "a"):
            with pytest.raises(outcore.errors.FormatError):
                outcore.open_group(f"{path}::/{name}")


def test_groups_without_documents_are_told_by_what_is_in_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zarr.storage.ZipStore("a.zip", mode="w") as store:
        zarr.create_array(store, name="g/h/x", data=np.arange(3), zarr_format=2)
    with zipfile.ZipFile("a.zip") as old, zipfile.ZipFile("b.zip", "w") as new:
        for name in old.namelist():
            if not name.endswith((".zgroup", ".zattrs")):
                new.writestr(name, old.read(name))
    with outcore.open_group("b.zip") as group:
        assert list(group) == ["g"] and list(group["g"]) == ["h"] and not group.attrs
        assert group["g/h/x"][...].tolist() == [0, 1, 2]
