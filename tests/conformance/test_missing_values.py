"""
What is missing in the source is missing in the target, and nothing else.

Every pair of NetCDF4, HDF5, Zarr v2 and Zarr v3, judged by the libraries that users read files with:
xarray (decoded) reads source and target, netCDF4 (masked) those of both that are NetCDF4 or HDF5.
"""

import h5py
import numpy as np
import pytest

import outcore

netCDF4 = pytest.importorskip("netCDF4")
xarray = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

NAN = float("nan")
# Of each variable: elements, the value that is declared (None: none), attributes.
CASES = {
    "plain": (np.array([0, 5, 7], "i4"), None, {}),
    "default_of_netcdf": (np.array([-2147483647, 5, 7], "i4"), None, {}),
    "zero": (np.array([0, 5, 7], "i2"), 0, {}),
    "packed": (np.array([0, -999, 7], "i2"), -999, {"scale_factor": 0.5, "add_offset": 2.0}),
    "nan": (np.array([0, NAN, 7], "f4"), NAN, {"units": "K"}),
    "number": (np.array([0, 1e20, 7], "f4"), np.float32(1e20), {}),
    "infinite": (np.array([0, -np.inf, 7], "f8"), -np.inf, {}),
    "unsigned": (np.array([0, 65535, 7], "u2"), 65535, {}),
    "unsigned_in_signed": (np.array([0, -1, 7], "i1"), -1, {"_Unsigned": "true"}),
    "time": (np.array([0, 1, 2], "i8"), None, {"units": "days since 2000-01-01"}),
    "time_missing": (np.array([0, -1, 2], "i8"), -1, {"units": "days since 2000-01-01"}),
    "x": (np.array([0, 1, 2], "i4"), None, {}),
    "missing_value": (np.array([0, -1, 7], "i2"), None, {"missing_value": np.int16(-1)}),
    "valid_range": (np.array([0, 5, 7], "i2"), None, {"valid_range": np.array([1, 6], "i2")}),
    "letters": (np.array([b"a", b"-", b"c"], "S1"), b"-", {}),
    "big_endian": (np.array([0, -999, 7], ">i4"), -999, {}),
}
# These NetCDF4 does not have; its library crashes on the last one.
BEYOND = {
    "bytes": (np.array([b"", b"ab", b"-"], "S3"), None, {}),
    "truth": (np.array([False, True, False]), None, {}),
    "complex": (np.array([0, 1j, 2]), None, {}),
    "half": (np.array([0, -1, 2], "f2"), -1, {}),
}
FORMATS = {"nc": "netcdf4", "h5": "hdf5", "zarr2": "zarr2", "zarr3": "zarr"}
FORMATS["nc3"] = "netcdf3_64bit_data"
NAMES = {"nc": "a.nc", "h5": "a.h5", "zarr2": "a2.zarr", "zarr3": "a3.zarr", "nc3": "classic.nc"}


def cases(source, target):
    """What both formats can say."""
    found = dict(CASES)
    if not {"nc", "nc3"} & {source, target}:
        found |= BEYOND
    if "h5" in (source, target):
        found.pop("half", None)
    if "zarr3" in (source, target):
        del found["letters"]  # xarray opens no such array
    return found


def make(folder, kind, cases):
    """A file of all cases, made by the library of its format."""
    path = folder / NAMES[kind]
    if kind in ("nc", "nc3"):
        model = "NETCDF4" if kind == "nc" else "NETCDF3_64BIT_DATA"
        with netCDF4.Dataset(path, "w", format=model) as file:
            file.createDimension("x", 3)
            for name, (data, missing, attrs) in cases.items():
                made = file.createVariable(name, data.dtype, ("x",), fill_value=missing)
                made.set_auto_maskandscale(False)
                made[:] = data
                made.setncatts(attrs)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file["x"] = cases["x"][0]
            file["x"].make_scale("x")
            for name, (data, missing, attrs) in cases.items():
                if name != "x":
                    file[name] = data
                    file[name].dims[0].attach_scale(file["x"])
                if missing is not None:
                    shape = () if data.dtype.kind == "S" else (1,)
                    file[name].attrs["_FillValue"] = np.full(shape, missing, data.dtype)
                file[name].attrs.update(attrs)
    else:
        group = zarr.create_group(path, zarr_format=int(kind[-1]))
        for name, (data, missing, attrs) in cases.items():
            attrs = {k: np.asarray(v).tolist() for k, v in attrs.items()}
            options = {"attributes": attrs, "zarr_format": int(kind[-1])}
            if kind == "zarr2":
                attrs["_ARRAY_DIMENSIONS"] = ["x"]
                options["fill_value"] = missing
            else:
                options["dimension_names"] = ["x"]
                if missing is not None:
                    coder = xarray.backends.zarr.FillValueCoder
                    attrs["_FillValue"] = coder.encode(data.dtype.type(missing), data.dtype)
            made = zarr.create_array(path, name=name, shape=(3,), dtype=data.dtype, **options)
            made[:] = data
        assert len(list(group.arrays())) == len(cases)
    return str(path)


def decoded(path):
    """Elements of all variables as xarray gives them."""
    engine = "zarr" if path.endswith(".zarr") else "h5netcdf"
    more = {"consolidated": False} if engine == "zarr" else {"phony_dims": "sort"}
    if path.endswith("classic.nc"):
        engine, more = "netcdf4", {}
    with xarray.open_dataset(path, engine=engine, **more) as found:
        return {name: found[name].values for name in found.variables}


def masked(path):
    """Elements of all variables as netCDF4 gives them: values, and which are missing."""
    with netCDF4.Dataset(path) as file:
        found = {}
        for name, variable in file.variables.items():
            got = variable[...]
            found[name] = np.ma.getdata(got), np.ma.getmaskarray(got)
        return found


def differences(source, target, case):
    """The variables of which a library gives something else of the target."""
    found = []
    theirs, ours = decoded(source), decoded(target)
    for name, got in ours.items():
        want = theirs[name]
        same = got.dtype.kind == want.dtype.kind and got.shape == want.shape
        nothing = xarray.Variable("x", want).isnull().values
        same = same and (xarray.Variable("x", got).isnull().values == nothing).all()
        if same and want.dtype.kind in "fc":
            same = np.allclose(got[~nothing], want[~nothing], rtol=1e-6)
        elif same:
            same = (got[~nothing] == want[~nothing]).all()
        if not same:
            found.append((*case, "xarray", name, want, got))
    if not source.endswith(".zarr") and not target.endswith(".zarr"):
        theirs, ours = masked(source), masked(target)
        for name, (got, lost) in ours.items():
            want, missing = theirs[name]
            if want.dtype.names:  # the parts of complex numbers
                continue
            there = ~missing & (want == want)
            if not ((lost == missing).all() and (got[there] == want[there]).all()):
                found.append((*case, "netCDF4", name, want, missing, got, lost))
    return found


def test_files_and_groups_keep_what_is_missing(tmp_path):
    wrong = []
    for source in FORMATS:
        for target in FORMATS:
            folder = tmp_path / f"{source}-{target}"
            folder.mkdir()
            path = make(folder, source, cases(source, target))
            new = str(folder / f"new-{NAMES[target]}")
            outcore.convert(path, new, format=FORMATS[target], whole=True)
            wrong += differences(path, new, (source, target))
    assert not wrong, "\n".join(map(str, wrong))


def rechunk(source, target, format):
    outcore.rechunk(source, 2, out=target, format=format).close()


def transpose(source, target, format):
    outcore.transpose(source, out=target, format=format).close()


def like(source, target, format):
    with outcore.open(source) as a:
        outcore.create(target, like=a, data=a[...], format=format).close()


@pytest.mark.parametrize("copy", [outcore.convert, rechunk, transpose, like])
def test_single_arrays_keep_what_is_missing(tmp_path, copy):
    wrong, some = [], ("packed", "time")
    for source in FORMATS:
        path = make(tmp_path, source, {name: CASES[name] for name in (*some, "x")})
        for target in FORMATS:
            new = str(tmp_path / f"{source}-{NAMES[target]}")
            if target == "nc3" and copy is rechunk:
                continue  # it has no chunks
            for name in some:
                copy(f"{path}::/{name}", f"{new}::/{name}", format=FORMATS[target])
            wrong += differences(path, new, (source, target))
    assert not wrong, "\n".join(map(str, wrong))


def test_copies_as_stored_keep_what_is_missing(tmp_path):
    from outcore.formats import whole

    for kind in FORMATS:
        path = make(tmp_path, kind, cases(kind, kind))
        new = str(tmp_path / f"new-{NAMES[kind]}")
        whole.copy(path, new)
        assert not differences(path, new, (kind, kind))


def test_results_declare_nothing(tmp_path):
    """What is computed has no missing values, though its input has."""
    calls = {
        "sort": outcore.sort,
        "cumsum": outcore.cumsum,
        "map_blocks": lambda a, **out: outcore.map_blocks(np.negative, a, **out),
    }
    for source in FORMATS:
        path = make(tmp_path, source, {"v": (np.array([0, -1, 1], "f8"), -1, {}), "x": CASES["x"]})
        for target, (name, call) in zip(FORMATS, [*calls.items(), *calls.items()], strict=False):
            new = tmp_path / f"{source}-{name}{NAMES[target]}"
            with call(f"{path}::/v", out=f"{new}::/v", format=FORMATS[target]) as result:
                want = result[...]
            if target == "zarr3":  # xarray asks for names
                assert "_FillValue" not in dict(zarr.open_array(new, path="v").attrs)
            elif target == "zarr2":
                assert zarr.open_array(new, path="v").fill_value is None
            else:
                assert (decoded(str(new))["v"] == want).all(), (source, target, name)
                assert not masked(str(new))["v"][1].any(), (source, target, name)


def test_elements_that_are_cast_keep_what_is_missing(tmp_path):
    """The value is cast as they are."""
    path = make(tmp_path, "nc", {"v": CASES["packed"], "x": CASES["x"]})
    for target in FORMATS:
        new = str(tmp_path / f"new{NAMES[target]}")
        outcore.convert(f"{path}::/v", f"{new}::/v", format=FORMATS[target], dtype="f8")
        assert np.isnan(decoded(new)["v"]).tolist() == [False, True, False], target


def test_values_that_cannot_be_declared_are_told(tmp_path):
    letters = {"letters": CASES["letters"], "x": CASES["x"]}
    path = make(tmp_path, "nc", letters)
    with pytest.warns(UserWarning, match="cannot keep fill_value"):
        outcore.convert(f"{path}::/letters", tmp_path / "letters.zarr")
    with pytest.warns(UserWarning, match="cannot keep.*fill_value"):
        outcore.convert(f"{make(tmp_path, 'zarr2', CASES)}::/packed", tmp_path / "packed.npy")
