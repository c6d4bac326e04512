"""Raw files: one, several, patterns; sizes that do not fit."""

from __future__ import annotations

import elements
import numpy as np
import pytest

from outcore import errors, formats


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (0, 3)])
def test_one_file_both_ways(tmp_path, order, shape):
    data = np.arange(np.prod(shape), dtype=">i4").reshape(shape)
    path = tmp_path / "a.bin"
    path.write_bytes(b"x" * 10 + data.tobytes(order) + b"tail")
    info = formats.open_info(path, shape=shape, dtype=">i4", offset=10, order=order)
    assert np.array_equal(data, elements.read(info))
    made = formats.create_info(tmp_path / "b.bin", shape, ">i4", order=order, offset=16)
    elements.write(made, data)
    assert (tmp_path / "b.bin").read_bytes() == bytes(16) + data.tobytes(order)


@pytest.mark.parametrize("order", "CF")
def test_split_over_files(tmp_path, order):
    data = np.arange(11 * 6.0).reshape(11, 6) if order == "C" else np.arange(66.0).reshape(6, 11)
    names = [tmp_path / f"part{k}.bin" for k in range(12)]
    made = formats.create_info(names, data.shape, "f8", order=order, offset=4)
    assert (tmp_path / "part0.bin").stat().st_size == 4  # 11 rows over 12 files: one gets none
    elements.write(made, data)
    info = formats.open_info(names, shape=data.shape, dtype="f8", order=order, offset=4)
    assert np.array_equal(data, elements.read(info))
    # A pattern sorts naturally: part2 before part10.
    info = formats.open_info(
        tmp_path / "part*.bin", shape=data.shape, dtype="f8", order=order, offset=4
    )
    assert np.array_equal(data, elements.read(info))
    assert len(info.layout.parts) == 11


def test_shape_from_size(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(48))
    assert formats.open_info(path, dtype="f8").shape == (6,)
    assert formats.open_info(path, dtype="f4", shape=(-1, 4)).shape == (3, 4)
    with pytest.raises(errors.UsageError, match="48 bytes are not a whole number of 20-byte steps"):
        formats.open_info(path, dtype="f4", shape=(-1, 5))


def test_sizes_that_do_not_fit(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(48))
    with pytest.raises(errors.FormatError, match="should hold 56 bytes but has 48"):
        formats.open_info(path, dtype="f8", shape=7)
    with pytest.raises(errors.FormatError, match="fewer than the offset"):
        formats.open_info(path, dtype="f8", offset=49)
    with pytest.raises(errors.FormatError, match="the array ends before file"):
        formats.open_info([path, path], dtype="f8", shape=6)
    with pytest.raises(errors.UsageError, match="pass dtype="):
        formats.open_info(path)
    with pytest.raises(errors.UsageError, match="63 bits"):
        formats.open_info(path, dtype="f8", shape=(2**62, 0))
    with pytest.raises(errors.StorageError, match="no file matches"):
        formats.open_info(tmp_path / "b*.bin", dtype="f8")


def test_resize(tmp_path):
    info = formats.create_info([tmp_path / "a.bin", tmp_path / "b.bin"], (4, 3), "f8")
    data = np.arange(12.0).reshape(4, 3)
    elements.write(info, data)
    info = formats.resize(info, (6, 3))
    assert np.array_equal(np.vstack([data, np.zeros((2, 3))]), elements.read(info))
    info = formats.resize(info, (3, 3))
    assert np.array_equal(data[:3], elements.read(info))
    assert (tmp_path / "b.bin").stat().st_size == 24
    with pytest.raises(errors.UnsupportedError, match="would leave the last"):
        formats.resize(info, (1, 3))
    with pytest.raises(
        errors.UnsupportedError, match=r"cannot store attributes; .* netcdf4, .*, hdf5, zarr"
    ):
        formats.set_attrs(info, {"a": 1})
