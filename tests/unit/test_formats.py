"""How `outcore.formats` finds the format and normalises what is asked."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_unknown(tmp_path):
    with pytest.raises(errors.StorageError) as missing:
        formats.open_info(tmp_path / "a.npy")
    assert missing.value.code == "not-found" and missing.value.errno == 2
    (tmp_path / "a.xyz").write_bytes(b"hello")
    with pytest.raises(errors.FormatError, match="pass dtype="):
        formats.open_info(tmp_path / "a.xyz")
    with pytest.raises(errors.UsageError, match="formats: npy"):
        formats.open_info(tmp_path / "a.xyz", format="nyp")
    with pytest.raises(errors.UsageError, match="tells no format"):
        formats.create_info(tmp_path / "b.xyz", 3, "f8")


def test_spec():
    spec = make_spec("p", (4, 6), ("f4", (2,)), chunks=2, compression=["shuffle", "zstd:7"])
    assert spec.shape == (4, 6, 2) and spec.dtype == "f4" and spec.chunks == (2, 2, 2)
    assert spec.compression == (Codec("shuffle"), Codec("zstd", {"level": 7}))
    assert make_spec("p", (4, 0), "i1", chunks=(-1, None)).chunks == (4, 1)
    assert make_spec("p", 3, "f8", fill_value=-0.0).fill_is_zero() is False
    assert make_spec("p", 3, "i8", fill_value=0).fill_is_zero() is True
    for wrong in [
        {"chunks": 0}, {"chunks": (1, 2)}, {"order": "A"}, {"dims": ["x", "y"]},
        {"compression": "zstd:x"}, {"compression": [3]}, {"fill_value": "x"}, {"fill_value": [1, 2]},
    ]:  # fmt: skip
        with pytest.raises(errors.UsageError):
            make_spec("p", 3, "f8", **wrong)
