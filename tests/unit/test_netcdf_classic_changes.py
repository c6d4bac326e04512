"""Changes of classic NetCDF files: records, variables and attributes, whole or not at all."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

import killed
import outcore
from outcore import errors, formats
from outcore.formats.netcdf.classic import changes, files, moving

netCDF4 = pytest.importorskip("netCDF4")

STEPS = ("open", "write", "pwrite", "fsync", "rename", "unlink", "link", "ftruncate")
VERSIONS = ["netcdf3_classic", "netcdf3_64bit_offset", "netcdf3_64bit_data"]
DATA = np.arange(12, dtype="f8").reshape(4, 3)


def write_records(path, format="netcdf3_64bit_offset", *, foreign=True):
    """A file with three record variables, one of two bytes and odd length, and a fixed one."""
    if not foreign:
        group = outcore.open_group(path, "w", format=format)
        group.create("v", data=DATA, dims=("t", "x"), unlimited="t").close()
        group.create("w", data=np.arange(4, dtype="i2"), dims=("t",), fill_value=-5).close()
        group.create("x", data=np.arange(3, dtype="f4"), dims=("x",)).close()
        group.create("c", data=np.full((4, 3), b"c", "S1"), dims=("t", "x")).close()
        return path
    model = {"netcdf3_classic": "NETCDF3_CLASSIC"}.get(format, format.upper())
    with netCDF4.Dataset(path, "w", format=model) as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("v", "f8", ("t", "x"))[:] = DATA
        file.createVariable("w", "i2", ("t",), fill_value=-5)[:] = np.arange(4)
        file.createVariable("x", "f4", ("x",))[:] = np.arange(3)
        file.createVariable("c", "S1", ("t", "x"))[:] = np.full((4, 3), "c", "S1")
    return path


def contents(path):
    """All elements, as outcore reads them; the library must agree."""
    found = {}
    for entry in outcore.ls(path):
        name = entry.path.rpartition("/")[2]
        with outcore.open(entry.path) as array:
            found[name] = array[...]
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        theirs = {name: one[...] for name, one in file.variables.items()}
    assert list(theirs) == list(found)
    for name, values in theirs.items():
        np.testing.assert_array_equal(values, found[name], err_msg=name)
    return {name: values.tolist() for name, values in found.items()}


# Records


@pytest.mark.parametrize("format", VERSIONS)
@pytest.mark.parametrize("foreign", [True, False], ids=["theirs", "ours"])
def test_append_grows_all_record_variables(tmp_path, format, foreign):
    path = write_records(tmp_path / "a.nc", format, foreign=foreign)
    with outcore.open(f"{path}::/v", "r+") as v, outcore.open(f"{path}::/w") as w:
        v.append(DATA[:2] + 100)
        v.append(DATA[3] + 200)
        assert v.shape == (7, 3) and w.shape == (4,)
        np.testing.assert_array_equal(np.arange(4), w[...])  # it is as it was opened
    found = contents(path)
    assert found["v"] == [*DATA.tolist(), *(DATA[:2] + 100).tolist(), (DATA[3] + 200).tolist()]
    assert found["w"] == [0, 1, 2, 3, -5, -5, -5]
    assert found["c"][4:] == [[b""] * 3] * 3 and found["x"] == [0, 1, 2]


def test_append_continues_where_another_process_ended(tmp_path):
    path = write_records(tmp_path / "a.nc")
    with outcore.open(f"{path}::/w", "r+") as w:
        with netCDF4.Dataset(path, "a") as file:
            file["w"][4] = 44
        w.append([55])
        assert w[...].tolist() == [0, 1, 2, 3, 44, 55]
    assert contents(path)["v"][4:] == [[netCDF4.default_fillvals["f8"]] * 3] * 2


def test_bytes_after_the_last_record_do_not_show(tmp_path):
    """As an interrupted append leaves them."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        file.createVariable("w", "i2", ("t",))[:] = np.arange(4)
        file.createVariable("c", "S1", ("t",))[:] = np.full(4, b"c", "S1")
    with path.open("ab") as file:
        file.write(b"\xff" * 1000)
    with outcore.open(f"{path}::/w", "r+") as w:
        w.append([9])
    assert contents(path) == {"w": [0, 1, 2, 3, 9], "c": [*[b"c"] * 4, b""]}


def test_resize_fills_new_records(tmp_path):
    path = write_records(tmp_path / "a.nc")
    with outcore.open(f"{path}::/w", "r+") as w:
        w.resize((6,))
        assert w[...].tolist() == [0, 1, 2, 3, -5, -5]
        with pytest.raises(
            errors.UnsupportedError, match="3 variables share the 6 records"
        ) as caught:
            w.resize((2,))
        assert caught.value.code == "cannot-resize"
    with (
        outcore.open(f"{path}::/x", "r+") as x,
        pytest.raises(errors.UnsupportedError, match="unlimited"),
    ):
        x.resize((5,))
    assert len(contents(path)["v"]) == 6


def test_the_only_record_variable_becomes_shorter(tmp_path):
    path = tmp_path / "a.nc"
    data = np.arange(9, dtype="i1").reshape(3, 3)
    outcore.create(
        f"{path}::/v", data=data, dims=("t", "x"), unlimited="t", format=VERSIONS[0]
    ).close()
    with outcore.open(f"{path}::/v", "r+") as v:
        v.resize((1, 3))
        assert v[...].tolist() == [[0, 1, 2]]
        v.append(data[1:])
    assert contents(path) == {"v": data.tolist()}


@pytest.mark.parametrize("step", ["small", "large", "huge"])
def test_fill_values_of_many_records(tmp_path, monkeypatch, step):
    """In blocks of whole records, one slot at a time, and of records larger than a block."""
    monkeypatch.setattr(moving, "_BLOCK", 1000)
    monkeypatch.setattr(moving, "_APART", 100 if step == "large" else 1 << 16)
    across = {"small": 5, "large": 60, "huge": 700}[step]
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("t", None)
        file.createDimension("x", across)
        file.createVariable("v", "f4", ("t", "x"))[:] = np.ones((2, across))
        file.createVariable("w", "i1", ("t",))[:] = [1, 2]
        file.createVariable("u", "i2", ("t",))[:] = [3, 4]
    with outcore.open(f"{path}::/v", "r+") as v:
        v.append(np.full((100, across), 7.0))
    found = contents(path)
    assert found["w"] == [1, 2, *[-127] * 100] and found["u"] == [3, 4, *[-32767] * 100]
    assert np.array(found["v"])[2:].min() == 7
    with outcore.open(f"{path}::/w", "r+") as w:
        w.resize((150,))
    found = contents(path)
    assert set(found["w"][102:]) == {-127} and set(np.array(found["v"])[102:].flat) == {
        np.float32(netCDF4.default_fillvals["f4"])
    }


# Variables and attributes


@pytest.mark.parametrize("format", VERSIONS)
def test_variables_are_added_and_replaced(tmp_path, format):
    path = write_records(tmp_path / "a.nc", format)
    expected = contents(path)
    group = outcore.open_group(path, "r+")
    more = {
        "fixed": (np.arange(7, dtype="i4"), ("seven",)),
        "record": (np.arange(8, dtype="i2").reshape(4, 2), ("t", "two")),
        "longer": (np.arange(6, dtype="f4"), ("t",)),
        "scalar": (np.float64(3), ()),
    }
    for name, (data, dims) in more.items():
        group.create(name, data=data, dims=dims).close()
        expected[name] = data.tolist()
        found = contents(path)
        if name == "longer":
            assert found["v"][4:] == [[netCDF4.default_fillvals["f8"]] * 3] * 2
            assert found["w"][4:] == [-5, -5] and found["record"][4:] == [[-32767] * 2] * 2
            expected = found
        assert found == expected, name
    outcore.create(
        f"{path}::/record", data=np.ones((6, 2), "f4"), dims=("t", "two"), overwrite=True
    ).close()
    outcore.create(
        f"{path}::/fixed", data=np.ones(7, "i2"), dims=("seven",), overwrite=True
    ).close()
    found = contents(path)
    assert found["record"] == [[1, 1]] * 6 and found["fixed"] == [1] * 7
    assert {n: v for n, v in found.items() if n not in more} == {
        n: v for n, v in expected.items() if n not in more
    }
    with pytest.raises(errors.AlreadyExistsError):
        outcore.create(f"{path}::/record", (6, 2), "f4", dims=("t", "two"))
    for words, text in [
        ({"shape": (2,), "dims": ("t",)}, "has length 6"),
        ({"shape": (5,), "dims": ("x",)}, "has length 3"),
        ({"shape": (3, 6), "dims": ("x", "t")}, "must be the first axis"),
        ({"shape": (3,), "dims": ("other",), "unlimited": "other"}, "one such dimension"),
    ]:
        with pytest.raises(errors.UsageError, match=text):
            outcore.create(f"{path}::/new", dtype="f4", **words)
    assert contents(path) == found


def test_files_of_outcore_have_room_for_attributes(tmp_path):
    path = write_records(tmp_path / "a.nc", foreign=False)
    before, inode = contents(path), path.stat().st_ino
    with outcore.open(f"{path}::/v", "r+") as v, outcore.open(f"{path}::/w", "r+") as w:
        v.attrs.update(units="K", long_name="x" * 2000)
        del v.attrs["units"]
        w[0] = 9  # another array of the file may still be written
        assert path.stat().st_ino == inode
        v.attrs["history"] = "y" * 100_000  # now it does not fit
        assert path.stat().st_ino != inode
        v[0, 0] = -1
        with pytest.raises(errors.StorageError) as caught:
            w[1] = 8
        assert caught.value.code == "file-changed"
    before["v"][0][0], before["w"][0] = -1, 9
    assert contents(path) == before
    with netCDF4.Dataset(path) as file:
        assert file["v"].history == "y" * 100_000 and "units" not in file["v"].ncattrs()


def test_attributes_of_files_without_room(tmp_path):
    path = write_records(tmp_path / "a.nc")
    before = contents(path)
    os.chmod(path, 0o640)
    with outcore.open_group(path, "r+") as group:
        group.attrs["title"] = "x" * 1000
    with outcore.open(f"{path}::/w", "r+") as w:
        w.attrs["units"] = "m"
        w.append([4])
        assert w.attrs["units"] == "m" and w.info.declared == -5
    assert path.stat().st_mode & 0o777 == 0o640
    with outcore.open(f"{path}::/v", "r+") as v:
        assert v.shape == (5, 3)
    found = contents(path)
    assert found.pop("w") == [*before.pop("w"), 4] and found["v"][:4] == before["v"]


def test_a_variable_is_filled_under_a_name_of_its_own(tmp_path):
    path = str(write_records(tmp_path / "a.nc"))
    before = contents(path)
    kind = formats.find_format(path)
    where = kind.find_staging_path(path, "/new")
    formats.create_info(where, (4, 3), "f4", dims=("t", "x"))
    names = {entry.path.rpartition("/")[2] for entry in outcore.ls(path)}
    assert names == set(before) and "new" not in outcore.open_group(path)
    kind.discard(path, "/new")
    kind.discard(path, "/new")
    assert contents(path) == before
    formats.create_info(where, (4, 3), "f4", dims=("t", "x"))
    kind.publish(path, "/new", True)
    kind.publish(path, "/new", True)
    assert contents(path) == {**before, "new": np.zeros((4, 3)).tolist()}
    formats.create_info(kind.find_staging_path(path, "/v"), (4, 3), "i2", dims=("t", "x"))
    with pytest.raises(errors.AlreadyExistsError):
        kind.publish(path, "/v", True)
    kind.publish(path, "/v", False)
    assert contents(path)["v"] == np.zeros((4, 3)).tolist()


def test_whole_files_are_converted(tmp_path):
    path = write_records(tmp_path / "a.nc")
    before = contents(path)
    outcore.convert(path, tmp_path / "b.nc")
    assert formats.find_format_name(str(tmp_path / "b.nc")) == "netcdf4"
    outcore.convert(tmp_path / "b.nc", tmp_path / "c.nc", format="NETCDF3_64BIT_DATA")
    outcore.convert(path, tmp_path / "d.zarr")
    assert {n: sorted(v) for n, v in contents(tmp_path / "c.nc").items()} == {
        n: sorted(v) for n, v in before.items()
    }
    with netCDF4.Dataset(tmp_path / "b.nc") as file:
        assert file["w"]._FillValue == -5 and file["v"].dimensions == ("t", "x")
    for name, values in before.items():
        with outcore.open(tmp_path / f"d.zarr/{name}") as array:
            np.testing.assert_array_equal(values, array[...])


def test_a_whole_file_is_converted_without_moving_elements(tmp_path, monkeypatch):
    """Each array is created in the place that the file has for it from the beginning."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.title = "of many records"
        for name, length in (("t", None), ("u", None), ("x", 50)):
            file.createDimension(name, length)
        file.createVariable("t", "f8", ("t",))[:] = np.arange(30.0)
        for k in range(4):
            one = file.createVariable(f"v{k}", "f4", ("t", "x"), fill_value=-1.0)
            one[:] = np.arange(1500).reshape(30, 50) + k
            one.units = "K" * 5000
        file.createVariable("x", "i4", ("x",))[:] = np.arange(50)
        file.createVariable("w", "i2", ("u",))[:] = np.arange(5)

    def refuse(*_):
        raise AssertionError("elements moved")

    monkeypatch.setattr(changes, "rebuild", refuse)
    for name in ("netcdf3_64bit_offset", "netcdf3_64bit_data"):
        outcore.convert(path, tmp_path / f"{name}.nc", format=name)
        with netCDF4.Dataset(tmp_path / f"{name}.nc") as made, netCDF4.Dataset(path) as file:
            for variable in file.variables.values():
                np.testing.assert_array_equal(variable[:], made[variable.name][:])
                assert variable.__dict__ == made[variable.name].__dict__
            assert made.title == file.title and made.dimensions["t"].isunlimited()
            assert not made.dimensions["u"].isunlimited()  # there is one such dimension
    outcore.convert(tmp_path / f"{name}.nc", tmp_path / "back.nc")
    with netCDF4.Dataset(tmp_path / "back.nc") as made:
        assert made.dimensions["t"].isunlimited()


def test_places_that_nothing_took_are_removed(tmp_path):
    """Properties that cannot be stored are omitted; the file has no gap for them."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 50)
        file.createVariable("v", "f4", ("t", "x"))[:] = np.ones((30, 50))
        file.createVariable("w", "i2", ("t",))[:] = np.arange(30)
    kind = formats.find_format(str(write_records(tmp_path / "b.nc")))
    infos = [(name, formats.open_info(f"{path}::/{name}")) for name in "vw"]
    target = str(tmp_path / "c.nc")
    kind.create_group(target, None, {}, False)
    kind.expect(target, infos)
    assert outcore.ls(target) == [] and os.path.getsize(target) > 30 * 50 * 4
    kind.complete(target)
    assert contents(target) == {} and os.path.getsize(target) < 9000


def test_gaps_do_not_grow_without_end(tmp_path):
    path = tmp_path / "a.nc"
    outcore.create(f"{path}::/b", data=np.arange(100.0), format="netcdf3_classic").close()
    data = np.zeros(100_000, "u1").view("i1")
    sizes = set()
    for turn in range(8):
        outcore.create(f"{path}::/a", data=data + turn, dims=("x",), overwrite=turn > 0).close()
        sizes.add(path.stat().st_size)
    assert max(sizes) < 4 * len(data)
    assert set(contents(path)["a"]) == {7} and contents(path)["b"] == list(range(100))


# Kills


def killed_at_each_step(tmp_path, prepare, action, look):
    """States that are found after a kill before each step, in order."""
    found = []
    with killed.quick_folder(tmp_path) as folder:
        for step in range(1, 500):
            path = folder / f"{step}.nc"
            prepare(path)
            died = killed.dies_at(step, lambda path=path: action(path), STEPS)
            found.append(look(path))
            if not died:
                return found
    raise AssertionError("it never ends")


@pytest.mark.parametrize("foreign", [True, False], ids=["moved", "in place"])
def test_attributes_change_whole_after_a_kill(tmp_path, foreign):
    def action(path):
        with outcore.open(f"{path}::/v", "r+") as v:
            v.handle.change_attrs({"a": "x" * 500, "b": 2}, ())

    def look(path):
        with outcore.open(f"{path}::/v") as v:
            np.testing.assert_array_equal(DATA, v[...])
            found = dict(v.attrs)
        with outcore.open(f"{path}::/v", "r+"):  # completes what was left, for other libraries too
            pass
        assert not os.path.lexists(files.get_record_path(str(path)))
        contents(path)
        return found

    found = killed_at_each_step(
        tmp_path, lambda path: write_records(path, foreign=foreign), action, look
    )
    killed.check_switched_once(found, {}, {"a": "x" * 500, "b": 2})


@pytest.mark.parametrize("name", ["fixed", "record"])
@pytest.mark.parametrize("empty", [True, False], ids=["first", "more"])
def test_a_variable_is_added_whole_after_a_kill(tmp_path, name, empty):
    dims, shape = (("t", "two"), (4, 2)) if name == "record" else (("two",), (2,))

    def prepare(path):
        if empty:
            outcore.open_group(path, "w", format="netcdf3_classic").close()
        else:
            write_records(path, foreign=False)

    def action(path):
        words = {"unlimited": "t"} if name == "record" and empty else {}
        formats.create_info(f"{path}::/new", shape, "i4", dims=dims, fill_value=6, **words)

    def look(path):
        with outcore.open_group(path, "r+") as group:
            is_there = "new" in group
        found = contents(path)
        if is_there and found["new"] and found["new"] != []:
            assert np.array(found["new"]).min() == 6
        return is_there and len(found["new"]) == shape[0]

    assert set(killed_at_each_step(tmp_path, prepare, action, look)) == {False, True}


def test_records_are_counted_after_they_are_written(tmp_path):
    new = {"v": 7.0, "w": -5, "c": b""}

    def action(path):
        with outcore.open(f"{path}::/v", "r+") as v:
            v.append(np.full((2, 3), 7.0))

    def look(path):
        found = contents(path)
        for name, value in new.items():
            assert np.array_equal(np.unique(found[name][4:]), [value][: len(found[name]) - 4 and 1])
        with outcore.open(f"{path}::/w", "r+") as w:
            w.append([1])
        assert len(contents(path)["w"]) == len(found["w"]) + 1
        return len(found["v"])

    killed.check_switched_once(killed_at_each_step(tmp_path, write_records, action, look), 4, 6)


def test_a_record_of_a_change_counts_only_for_its_file(tmp_path):
    """Another program may have changed the file, or another file may have its name."""
    path = write_records(tmp_path / "a.nc", foreign=False)
    pristine, side = path.read_bytes(), files.get_record_path(str(path))

    def interrupted():
        path.write_bytes(pristine)
        kept = None

        def stop(fd, new):
            nonlocal kept
            kept = shutil.copy(side, tmp_path / "kept")
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, outcore.open(f"{path}::/v", "r+") as v:
            patch.setattr(files, "_write", stop)
            with pytest.raises(KeyboardInterrupt):
                v.attrs["units"] = "K"
        assert kept is not None and os.path.exists(side)

    interrupted()
    assert outcore.open(f"{path}::/v").attrs["units"] == "K"  # what is decided is read
    raw = bytearray(pristine)
    raw[pristine.index(b"v\0\0\0")] = ord("q")  # another program renames a variable
    path.write_bytes(raw)
    assert {one.path.rpartition("/")[2] for one in outcore.ls(path)} >= {"q"}
    with outcore.open(f"{path}::/q", "r+") as q:
        assert "units" not in q.attrs
    assert not os.path.lexists(side)
    interrupted()
    os.rename(path, tmp_path / "b.nc")
    path.write_bytes(pristine)
    assert "units" not in outcore.open(f"{path}::/v").attrs
    with outcore.open(f"{path}::/v", "r+") as v:
        assert "units" not in v.attrs
