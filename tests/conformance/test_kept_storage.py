"""
Copies keep how their source is stored: chunks, shards, codecs, as far as the new format has words.

Every pair of NetCDF4, HDF5, Zarr v2 and Zarr v3, judged by h5py and zarr.
"""

import subprocess
import sys
import warnings

import h5py
import numpy as np
import pytest

import outcore
from outcore.cli.commands import main

netCDF4 = pytest.importorskip("netCDF4")
zarr = pytest.importorskip("zarr")

DATA = np.arange(60 * 40, dtype="i4").reshape(60, 40) // 100
FORMATS = {"nc": "netcdf4", "h5": "hdf5", "zarr2": "zarr2", "zarr3": "zarr"}
NAMES = {"nc": "a.nc", "h5": "a.h5", "zarr2": "a2.zarr", "zarr3": "a3.zarr"}


def make(folder, kind):
    """An array with shuffle and gzip in chunks of (20, 10); besides in shards, or with checksums."""
    path = folder / NAMES[kind]
    if kind == "nc":
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("y", 60)
            file.createDimension("x", 40)
            made = file.createVariable(
                "v", "i4", ("y", "x"), zlib=True, complevel=7, shuffle=True, chunksizes=(20, 10)
            )
            made[...] = DATA
    elif kind == "h5":
        words = {"chunks": (20, 10), "compression": "gzip", "compression_opts": 7, "shuffle": True}
        with h5py.File(path, "w") as file:
            file.create_dataset("v", data=DATA, fletcher32=True, **words)
    else:
        words = {"shape": DATA.shape, "chunks": (20, 10), "dtype": "i4"}
        if kind == "zarr2":
            import numcodecs

            words |= {
                "zarr_format": 2,
                "filters": [numcodecs.Shuffle(4)],
                "compressors": numcodecs.GZip(7),
            }
        else:
            shuffle = zarr.codecs.numcodecs.Shuffle(elementsize=4)
            words |= {"shards": (40, 20), "compressors": [shuffle, zarr.codecs.GzipCodec(level=7)]}
        zarr.create_array(path, name="v", **words)[...] = DATA
    return f"{path}::/v"


def stored(path):
    """How an array lies, as its library says: chunks, shards, names of its codecs, level of gzip."""
    outer, inner = path.split("::/")
    if outer.endswith((".h5", ".nc")):
        with h5py.File(outer) as file:
            v = file[inner]
            names = {"shuffle"} if v.shuffle else set()
            names |= {"fletcher32"} if v.fletcher32 else set()
            names |= {"gzip"} if v.compression == "gzip" else set()
            return v.chunks, None, names, v.compression_opts
    v = zarr.open_array(outer, path=inner, mode="r")
    codecs = [*v.filters, *v.compressors] if v.metadata.zarr_format == 2 else v.compressors
    said = [
        codec.get_config() if hasattr(codec, "get_config") else codec.to_dict() for codec in codecs
    ]
    names, level = set(), None
    for one in said:
        name = one.get("id") or one.get("name").removeprefix("numcodecs.")
        names.add("gzip" if name in ("gzip", "zlib") else name)
        level = one.get("level", one.get("configuration", {}).get("level", level))
    return v.chunks, v.shards, names, level


COPIES = {
    "convert": lambda source, new, **how: outcore.convert(source, new, **how),
    "section": lambda source, new, **how: outcore.convert(source, new, section=np.s_[:], **how),
    "transpose": lambda source, new, **how: outcore.transpose(source, out=new, **how).close(),
    "rechunk": lambda source, new, **how: outcore.rechunk(source, (10, 10), out=new, **how).close(),
    "group": lambda source, new, **how: outcore.convert(
        source.split("::")[0], new.split("::")[0], whole=True, **how
    ),
}
SAYS = {"transpose": ((10, 20), (20, 40)), "rechunk": ((10, 10), (40, 20))}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("copy", COPIES)
def test_copies_keep_chunks_shards_and_codecs(tmp_path, copy):
    sources = {kind: make(tmp_path, kind) for kind in FORMATS}
    for source, path in sources.items():
        for target in FORMATS:
            new = f"{tmp_path / source}-{NAMES[target]}::/v"
            COPIES[copy](path, new, format=FORMATS[target])
            chunks, shards = SAYS.get(copy, ((20, 10), (40, 20)))
            if (source, target) != ("zarr3", "zarr3"):
                shards = None
            codecs = {"shuffle", "gzip"} | ({"fletcher32"} if source == "h5" else set())
            assert stored(new) == (chunks, shards, codecs, 7), (source, target)
            with outcore.open(new) as a, outcore.open(path) as b:
                both = b[...].T if copy == "transpose" else b[...]
                assert (a[...] == both).all(), (source, target)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_compression_is_dropped_on_request(tmp_path):
    for kind in FORMATS:
        path = make(tmp_path, kind)
        for number, (name, copy) in enumerate(COPIES.items()):
            target = list(FORMATS)[number % len(FORMATS)]
            new = f"{tmp_path}/{kind}-{name}-{NAMES[target]}::/v"
            copy(path, new, format=FORMATS[target], compression=None)
            assert stored(new)[2] == set(), (kind, target, name)


def test_conversion_warns_of_layouts_it_cannot_keep(tmp_path):
    path = make(tmp_path, "zarr3")
    for name in ("new.h5", "new.nc", "new.zarr2"):
        with pytest.warns(UserWarning, match="cannot keep shards of"):
            outcore.convert(path, f"{tmp_path / name}::/v")
    with h5py.File(tmp_path / "lzf.h5", "w") as file:
        file.create_dataset("v", data=DATA, chunks=(20, 10), compression="lzf", shuffle=True)
    for version in (2, 3):
        new = tmp_path / f"new{version}.zarr{version}"
        with pytest.warns(UserWarning, match="the codec lzf .it has zstd instead."):
            outcore.convert(tmp_path / "lzf.h5", f"{new}::/v")
        assert stored(f"{new}::/v")[2] == {"shuffle", "zstd"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcore.convert(make(tmp_path, "h5"), f"{tmp_path / 'h5.zarr'}::/v")  # all of it has words


WITHOUT_PLUGINS = """
import h5py, sys
for path in sys.argv[1:]:
    with h5py.File(path) as file:
        print(file["v"].compression, file["v"].shuffle, file["v"][()].sum())
"""


@pytest.mark.parametrize("version", ["zarr", "zarr2"])
def test_hdf5_from_zarr_needs_no_plugin(tmp_path, version):
    """Codecs that only a plug-in reads stay if asked for, or if the source has them in such a file."""
    made = {}
    for codec in ("zstd", "blosc", "lz4"):
        source = f"{tmp_path / codec}.{version}::/v"
        outcore.create(source, data=DATA, chunks=(20, 10), compression=codec).close()
        for number, (name, copy) in enumerate(COPIES.items()):
            new = f"{tmp_path}/{codec}-{name}.{('h5', 'nc')[number % 2]}"
            with pytest.warns(UserWarning, match="codec .*need a plug-in .it has deflate instead"):
                copy(source, f"{new}::/v")
            made[new] = DATA.sum()
    words = [sys.executable, "-c", WITHOUT_PLUGINS, *made]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"gzip False {total}" for total in made.values()]
    pytest.importorskip("hdf5plugin")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = f"{tmp_path / 'zstd'}.{version}::/v"
        outcore.convert(source, f"{tmp_path / 'a.h5'}::/v", compression="zstd")
        outcore.convert(f"{tmp_path / 'a.h5'}::/v", f"{tmp_path / 'b.nc'}::/v")
        with outcore.open(f"{tmp_path / 'b.nc'}::/v") as b:
            outcore.create(f"{tmp_path / 'c.h5'}::/v", like=b).close()
    for name in ("a.h5", "b.nc", "c.h5"):
        with outcore.open(f"{tmp_path / name}::/v") as a:
            assert a.codecs == ("zstd",), name


def test_codecs_with_an_equal_one_are_kept(tmp_path):
    hdf5plugin = pytest.importorskip("hdf5plugin")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, codec in {"bits": hdf5plugin.Bitshuffle(), "lz4": hdf5plugin.LZ4()}.items():
            file.create_dataset(name, data=DATA, chunks=(20, 10), **codec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcore.convert(tmp_path / "a.h5", tmp_path / "a.zarr")
    assert stored(f"{tmp_path / 'a.zarr'}::/bits")[2] == {"blosc"}
    assert stored(f"{tmp_path / 'a.zarr'}::/lz4")[2] == {"blosc"}


@pytest.mark.parametrize(("version", "format"), [(2, "zarr2"), (3, "zarr")])
def test_new_zarr_arrays_have_the_compression_of_zarr(tmp_path, monkeypatch, version, format):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    outcore.create("made.hdf5", data=DATA, format="hdf5").close()
    own = zarr.create_array("own", shape=DATA.shape, dtype="i4", zarr_format=version).compressors
    command = ["--shape", "60,40", "--dtype", "i4", "--format", format]

    def create(new, **words):
        outcore.create(new, format=format, **words).close()

    create("created", shape=DATA.shape, dtype="i4")
    outcore.convert("a.npy", "from_npy", format=format)
    outcore.convert("made.hdf5", "from_hdf5", format=format)
    outcore.sort("a.npy", out="computed", format=format).close()
    main(["create", "by_command", *command])
    for name in ("created", "from_npy", "from_hdf5", "computed", "by_command"):
        assert zarr.open_array(name).compressors == own, name
    create("plain", shape=DATA.shape, dtype="i4", compression=None)
    create("auto", shape=DATA.shape, dtype="i4", chunks="auto", typical_sections=(10, 10))
    with outcore.open("plain") as plain:
        create("like_plain", like=plain)
        create("as_plain", like=outcore.open("created"), compression=None)
    outcore.convert("plain", "from_plain", format=format)
    main(["create", "plain_by_command", *command, "--compression", "none"])
    for name in ("plain", "auto", "like_plain", "as_plain", "from_plain", "plain_by_command"):
        assert zarr.open_array(name).compressors == (), name
