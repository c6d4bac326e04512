"""Types and layouts of HDF5 that h5py reads, read and written alike."""

import warnings

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

import outcore
from outcore.cli import main
from outcore.formats.spec import order_fields


def enum(base, **values):
    kind = h5t.enum_create(base)
    for name, value in values.items():
        kind.enum_insert(name.encode(), value)
    return kind


def compound(*members):
    kind = h5t.create(h5t.COMPOUND, sum(member.get_size() for *_, member in members) + 3)
    for name, offset, member in members:
        kind.insert(name.encode(), offset, member)
    return kind


def kinds():
    """HDF5 types, and the dtype that they have in memory."""
    boolean = {"FALSE": 0, "TRUE": 1}
    found = {
        f"{word}{order}": (getattr(h5t, f"STD_{word}{order}"), None)
        for word in ("I8", "U8")
        for order in ("LE", "BE")
    }
    for size in (8, 16, 32, 64):
        for order, sign in (("LE", "<"), ("BE", ">")):
            found[f"B{size}{order}"] = getattr(h5t, f"STD_B{size}{order}"), f"{sign}u{size // 8}"
    for base in ("I8LE", "I8BE", "U8LE", "U8BE"):
        found[f"bool-{base}"] = enum(getattr(h5t, f"STD_{base}"), **boolean), None
    found["enum"] = enum(h5t.STD_U8BE, A=0, B=1), None
    swapped = compound(
        ("late", 8, h5t.STD_I32BE), ("early", 0, h5t.IEEE_F64LE), ("byte", 13, h5t.STD_I8BE)
    )
    for order in ("LE", "BE"):
        for size in (32, 64):
            if name := getattr(h5t, f"COMPLEX_IEEE_F{size}{order}", None):  # of HDF5 2.0
                found[f"complex{size}{order}"] = name, None
    found["swapped"] = swapped, None
    found["bits"] = compound(("x", 0, h5t.STD_B16BE), ("in", 2, swapped)), None
    rows = h5t.array_create(h5t.array_create(h5t.STD_I16BE, (2, 3)), (4,))
    found["rows"] = rows, None
    found["deep"] = h5t.array_create(h5t.array_create(rows, (2,)), (1,)), None
    found["member"] = compound(("rows", 1, rows), ("b", 0, h5t.STD_U8BE)), None
    return found


def make(file, name, kind, layout="contiguous", shape=(5, 3), dcpl=None):
    plist = h5p.create(h5p.DATASET_CREATE)
    if layout == "compact":
        plist.set_layout(h5d.COMPACT)
    if layout in ("chunks", "gzip"):
        plist.set_chunk((2,) * len(shape))
    if layout == "gzip":
        plist.set_deflate(1)
    dset = h5d.create(file.id, name.encode(), kind, h5s.create_simple(shape), plist)
    count = int(np.prod(shape)) * kind.get_size()
    raw = np.arange(count, dtype=np.uint8) % (2 if "enum" in type(kind).__name__.lower() else 251)
    if count:
        dset.write(h5s.ALL, h5s.ALL, raw, mtype=kind)
    return raw.tobytes()


def expected_of(dset, kind, raw):
    """What h5py reads; bits of a byte marked big-endian, which it cannot convert, by their bytes."""
    try:
        return dset[...]
    except OSError:
        return np.frombuffer(raw, "u1").reshape(dset.shape).copy()


def same(found, expected, case):
    found = np.asarray(found)
    assert found.shape == expected.shape, case
    if found.dtype.names is None:
        assert found.tolist() == expected.tolist(), case
    else:
        for name in found.dtype.names:
            same(found[name], expected[name], (case, name))


@pytest.mark.parametrize("layout", ["contiguous", "compact", "chunks", "gzip"])
def test_types_that_h5py_reads_are_read_and_written(layout, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    known = {}
    with h5py.File("a.h5", "w") as file:
        for name, (kind, _) in kinds().items():
            raw = make(file, name, kind, layout)
            known[name] = expected_of(file[name], kind, raw)
    for name, (_, dtype) in kinds().items():
        with outcore.open(f"a.h5::/{name}") as a:
            same(a[...], known[name], name)
            assert a.shape == a[...].shape and a.dtype == a[...].dtype, name
            if dtype is not None:
                assert a.dtype == dtype, name
            same(a[1:4:2, 1:], known[name][1:4:2, 1:], name)
        if layout == "compact":
            with pytest.raises(outcore.errors.UnsupportedError, match="compact") as raised:
                outcore.open(f"a.h5::/{name}", "r+")
            assert raised.value.code == "hdf5-layout"
        else:
            with outcore.open(f"a.h5::/{name}", "r+") as a:
                a[3] = a[1]
                known[name][3] = known[name][1]
            with h5py.File("a.h5") as file:
                if name != "B8BE":
                    same(file[name][...], known[name], name)
        assert main(["info", f"a.h5::/{name}"]) == 0
    assert "late" in capsys.readouterr().out
    assert outcore.verify("a.h5") == []


@pytest.mark.parametrize("target", ["b.npy", "b.h5", "b.zarr", "b.zarr2", "b.raw"])
def test_structures_with_fields_in_any_order_are_converted(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File("a.h5", "w") as file:
        for name in ("swapped", "bits"):
            make(file, name, kinds()[name][0])
        known = {name: dset[...] for name, dset in file.items()}
    for name, expected in known.items():
        outcore.convert(f"a.h5::/{name}", target, overwrite=True)
        options = (
            {"shape": expected.shape, "dtype": order_fields(expected.dtype)}
            if target.endswith("raw")
            else {}
        )
        with outcore.open(target, **options) as b:
            same(b[...], expected, name)


def test_compact_datasets_are_found_in_every_object_header(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {}
    for number, libver in enumerate(("earliest", "v108", "v110", "latest")):
        for block in (0, 512):
            path = f"{number}-{block}.h5"
            with h5py.File(path, "w", libver=libver, userblock_size=block) as file:
                for shape in [(), (7,), (2, 3, 4), (0, 3), (20000,)]:
                    name = f"d{shape}"
                    make(file, name, h5t.STD_U16BE, "compact", shape)
                    for k in range(len(shape) * 3):  # the header goes on elsewhere
                        file[name].attrs[f"a{k}"] = np.arange(100)
                    known[path, name] = file[name][...]
    for (path, name), expected in known.items():
        with outcore.open(f"{path}::/{name}") as a:
            same(a[...], expected, (path, name))
            assert a.info.extra["storage"] == "compact"


def test_a_compact_dataset_that_changes_is_read_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for libver in ("earliest", "latest"):
        with h5py.File("a.h5", "w", libver=libver) as file:
            make(file, "a", h5t.STD_U16LE, "compact", (50,))
        with outcore.open("a.h5::/a") as a:
            for round_ in range(6):
                with h5py.File("a.h5", "r+") as file:
                    file["a"][...] = np.arange(50) + round_
                    for k in range(5):
                        file["a"].attrs[f"{round_}-{k}"] = np.arange(40)
                assert a[...].tolist() == list(range(round_, 50 + round_)), (libver, round_)
            with h5py.File("a.h5", "r+") as file:
                del file["a"]
                make(file, "a", h5t.STD_U16LE, "compact", (60,))
            with pytest.raises(outcore.errors.StorageError) as raised:
                a[...]
            assert raised.value.code == "file-changed"


def test_big_endian_bytes_of_netcdf_are_read_and_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with netCDF4.Dataset("a.nc", "w") as file:
        file.createDimension("x", 4)
        for kind in ("i1", "u1", "i2"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a byte has no order
                variable = file.createVariable(kind, kind, ("x",), endian="big")
            variable[:] = np.array([1, 2, 3, 4]).astype(kind)
    for kind in ("i1", "u1", "i2"):
        with outcore.open(f"a.nc::/{kind}", "r+") as a:
            assert a[...].tolist() == [1, 2, 3, 4]
            a[1] = 9
    with netCDF4.Dataset("a.nc") as file:
        assert [file[kind][...].tolist() for kind in ("i1", "u1", "i2")] == [[1, 9, 3, 4]] * 3


def odd_kinds():
    """All HDF5 types that h5py names, and others that it makes: some without a NumPy dtype."""
    found = {name: kind for name, kind in vars(h5t).items() if isinstance(kind, h5t.TypeID)}
    for size in (3, 5, 16):
        found[f"i{size}"] = h5t.STD_I64LE.copy()
        found[f"i{size}"].set_size(size)
        found[f"i{size}"].set_precision(8 * size)
    found["latin"] = compound(("é", 0, h5t.STD_I32LE))
    found["bytes"] = h5t.create(h5t.COMPOUND, 4)
    found["bytes"].insert("é".encode("latin1"), 0, h5t.STD_I32LE)
    found["opaque"] = h5t.create(h5t.OPAQUE, 4)
    found["opaque"].set_tag(b"NUMPY:nonsense")
    found["lists"] = h5t.array_create(h5t.vlen_create(h5t.STD_I8LE), (2,))
    return found


def test_verify_calls_no_sound_type_damaged(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with h5py.File("a.h5", "w") as file:
        for name, kind in odd_kinds().items():
            h5d.create(file.id, name.encode(), kind, h5s.create_simple((2,)))
        file["null"] = h5py.Empty("f4")
        names = sorted(file)
    found = outcore.verify("a.h5")
    assert {one.code for one in found} == {"cannot-open"}
    assert {one.reason for one in found} == {"hdf5-type", "hdf5-null"}
    assert main(["verify", "-q", "a.h5"]) == 3
    assert main(["ls", "a.h5"]) == 0
    for name in names:
        assert main(["verify", "-q", f"a.h5::/{name}"]) in (0, 3), name
    capsys.readouterr()


def test_members_of_files_in_several_files_name_the_driver(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for libver in ("earliest", "v108", "latest"):
        for driver, options in {"family": {"memb_size": 2000}, "split": {}}.items():
            path = f"{driver}-{libver}-%02d.h5" if driver == "family" else f"{driver}-{libver}.h5"
            with h5py.File(path, "w", driver=driver, libver=libver, **options) as file:
                file["a"] = np.arange(1000.0)
    members = sorted(str(one) for one in tmp_path.iterdir())
    assert len(members) > 12
    for member in members:
        with pytest.raises(
            outcore.errors.UnsupportedError, match=r"driver (family|multi)"
        ) as raised:
            outcore.open(member)
        assert raised.value.code == "hdf5-driver", member
    assert main(["verify", "-q", *members]) == 3
    with open("cut-1.h5", "wb") as file:  # named as a member, and none
        file.write(b"\x89HDF\r\n\x1a\n")
    assert main(["verify", "-q", "cut-1.h5"]) == 1
    capsys.readouterr()
