"""How `outcore.formats` finds the format and normalises what is asked."""

from __future__ import annotations

import os
import socket

import numpy as np
import pytest

import outcore
from outcore import errors, formats
from outcore.formats.layout import Codec
from outcore.formats.spec import make_spec


def test_split_path(tmp_path):
    assert formats.split_path("a.h5::/g/x") == ("a.h5", "/g/x")
    assert formats.split_path("a.h5::g/x/") == ("a.h5", "/g/x")
    assert formats.split_path("a.h5::") == ("a.h5", "/")
    odd = tmp_path / "a::b.npy"
    np.save(odd, np.arange(3))
    assert formats.split_path(str(odd)) == (str(odd), None)
    assert formats.open_info(odd).shape == (3,)


def test_marks_win_over_the_suffix(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.dat")
    assert formats.open_info(tmp_path / "a.dat").format == "npy"


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_what_has_the_suffix_of_npy_and_other_marks(tmp_path, mode):
    outcore.create(tmp_path / "a.npy::/x", 3, "f8", format="hdf5").close()
    outcore.create(tmp_path / "b.npy", 3, "f8", format="zarr").close()
    outcore.create(tmp_path / "c.npy", 3, "f8", format="hdf5").close()
    for name, known in (("a.npy::/x", "hdf5"), ("b.npy", "zarr"), ("c.npy", "hdf5")):
        with outcore.open(tmp_path / name, mode) as array:
            assert array.format == known and array.shape == (3,)
    (tmp_path / "d.npy").write_bytes(b"neither this nor that")
    with pytest.raises(errors.FormatError) as unmarked:
        outcore.open(tmp_path / "d.npy", mode)
    assert unmarked.value.code == "bad-magic"
    np.save(tmp_path / "d.npy", np.arange(3))
    os.truncate(tmp_path / "d.npy", 140)
    with pytest.raises(errors.FormatError) as short:
        outcore.open(tmp_path / "d.npy", mode)
    assert short.value.code == "file-too-short"


def test_a_pattern_with_the_suffix_of_npy_names_raw_files(tmp_path):
    (tmp_path / "a1.npy").write_bytes(bytes(24))
    (tmp_path / "a1.raw").write_bytes(bytes(24))
    with pytest.raises(errors.UsageError) as caught:
        outcore.open(tmp_path / "a?.raw")
    assert caught.value.code == "raw-needs-dtype"
    found = outcore.open(tmp_path / "a?.npy", dtype="f8", shape=3, format="raw")
    assert found[...].tolist() == [0, 0, 0]
    with pytest.raises(errors.StorageError) as missing:
        outcore.open(tmp_path / "b?.npy")
    assert missing.value.code == "not-found"


def test_unknown(tmp_path):
    with pytest.raises(errors.StorageError) as missing:
        formats.open_info(tmp_path / "a.npy")
    assert missing.value.code == "not-found" and missing.value.errno == 2
    (tmp_path / "a.xyz").write_bytes(b"hello")
    with pytest.raises(errors.FormatError, match="pass dtype="):
        formats.open_info(tmp_path / "a.xyz")
    with pytest.raises(errors.UsageError, match="use one of npy"):
        formats.open_info(tmp_path / "a.xyz", format="nyp")
    with pytest.raises(errors.UsageError, match="cannot determine the format"):
        formats.create_info(tmp_path / "b.xyz", 3, "f8")


def test_spec():
    spec = make_spec("p", (4, 6), ("f4", (2,)), chunks=2, compression=["shuffle", "zstd:7"])
    assert spec.shape == (4, 6, 2) and spec.dtype == "f4" and spec.chunks == (2, 2, 2)
    assert spec.compression == (Codec("shuffle"), Codec("zstd", {"level": 7}))
    assert make_spec("p", (4, 0), "i1", chunks=(-1, None)).chunks == (4, 1)
    assert make_spec("p", 3, "f8", fill_value=-0.0).fill_is_zero() is False
    assert make_spec("p", 3, "i8", fill_value=0).fill_is_zero() is True
    for wrong in [
        {"chunks": 0}, {"chunks": (1, 2)}, {"chunks": True}, {"order": "A"}, {"dims": ["x", "y"]},
        {"compression": "zstd:x"}, {"compression": [3]}, {"compression": 5},
        {"compression": {"name": "zstd"}}, {"fill_value": "x"}, {"fill_value": [1, 2]},
    ]:  # fmt: skip
        with pytest.raises(errors.UsageError):
            make_spec("p", 3, "f8", **wrong)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_pipes_and_sockets_are_neither_waited_for_nor_replaced(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the path of a socket may not be long
    if kind == "pipe":
        os.mkfifo("a.npy")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("a.npy")
    os.symlink("a.npy", "link.npy")
    np.save("b.npy", np.arange(3))
    raw = {"dtype": "f4", "shape": (3,)}
    for name in ("a.npy", "link.npy"):
        for call in (
            lambda name=name: outcore.open(name),
            lambda name=name: outcore.open(name, "r+", format="hdf5"),
            lambda name=name: outcore.open(name, **raw),
            lambda name=name: outcore.open(["b.npy", name], **raw),
            lambda name=name: outcore.ls(name),
            lambda name=name: outcore.verify(name),
            lambda name=name: outcore.create(name, 3, "f4"),
            lambda name=name: outcore.create(name, 3, "f4", format="zarr"),
            lambda name=name: outcore.create(["c.raw", name], 4, "f4", overwrite=True),
            lambda name=name: outcore.convert("b.npy", name, overwrite=True),
        ):
            with pytest.raises(errors.UsageError) as caught:
                call()
            assert caught.value.code == "not-a-file"
    assert not os.path.isfile("a.npy")


def test_paths_with_a_zero_byte():
    for call in (outcore.open, outcore.ls, lambda path: outcore.create(path, 3, "f4")):
        with pytest.raises(errors.UsageError) as caught:
            call("a\0b.npy")
        assert caught.value.code == "bad-name"


def test_create_takes_no_mode(tmp_path):
    with pytest.raises(errors.UsageError, match="overwrite=True"):
        outcore.create(tmp_path / "a.npy", 3, "f4", mode="x")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.npy", {}),
        ("a.h5", {"chunks": (4, 5), "resizable": True, "compression": "gzip"}),
        ("a.nc", {"chunks": (4, 5), "dims": ("t", "x"), "unlimited": ("t",)}),
        ("c.nc", {"format": "netcdf3_classic", "dims": ("t", "x"), "unlimited": ("t",)}),
    ],
)
def test_a_call_that_reads_less_than_was_asked_for_changes_nothing(
    tmp_path, monkeypatch, name, words
):
    """An HDF5 file whose superblock was read in part was refused as damaged."""
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, 32), at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:32]], at))
    old = np.arange(60.0).reshape(12, 5)
    outcore.create(tmp_path / name, data=old, **words).close()
    if name != "a.npy":
        # As a killed program leaves it: longer than its end, so that all of it is looked at.
        with open(tmp_path / name, "ab") as stream:
            stream.write(bytes(64))
    with outcore.open(tmp_path / name, "r+") as a:
        a[2:4] = -1
        a.append(old)
        old[2:4] = -1
        assert np.array_equal(old, a[:12])
        assert a.shape == (24, 5)
