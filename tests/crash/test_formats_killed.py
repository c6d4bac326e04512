"""
Formats, killed before each of their steps: what was there is there, or what was to be.

A child process runs the action with the system calls of Python counted, and ends itself before a given
one; the parent looks at what is left. The steps between, in HDF5's own library and in the core, are not
counted: `test_prefixes` cuts there.
"""

from __future__ import annotations

import numpy as np
import pytest

import killed
import outcore
from outcore import formats

STEPS = (
    "open",
    "write",
    "pwrite",
    "fsync",
    "rename",
    "unlink",
    "link",
    "ftruncate",
)


def dies_at(step: int, action) -> bool:
    """Run `action` in a child that ends before its step number `step`; False if it comes to its end."""
    return killed.dies_at(step, action, STEPS)


def each_step(prepare, action, look, at_least):
    """Kill at every step; `look` returns what was found. All that was found, in order."""
    seen = []
    for step in range(1, 1000):
        prepared = prepare(step)
        died = dies_at(step, lambda: action(prepared))  # noqa: B023
        seen.append(look(prepared))
        if not died:
            break
    assert step > at_least
    return seen


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".nc", ".bin"])
@pytest.mark.parametrize("exclusive", [False, True])
def test_create(tmp_path, suffix, exclusive):
    def look(path):
        if not path.exists():
            return None
        options = {"dtype": "f8", "shape": (50, 4)} if suffix == ".bin" else {}
        return formats.open_info(path, **options).shape

    seen = each_step(
        lambda step: tmp_path / f"{step}{suffix}",
        lambda path: formats.create_info(path, (50, 4), "f8", exclusive=exclusive),
        look,
        3,
    )
    killed.check_switched_once(seen, None, (50, 4))


@pytest.mark.parametrize("suffix", [".npy", ".h5"])
def test_replace(tmp_path, suffix):
    def prepare(step):
        outcore.create(tmp_path / f"{step}{suffix}", data=np.arange(5)).close()
        return tmp_path / f"{step}{suffix}"

    def look(path):
        with outcore.open(path) as array:
            return array[...].tolist()

    seen = each_step(prepare, lambda p: formats.create_info(p, (3,), "f8"), look, 4)
    killed.check_switched_once(seen, [0, 1, 2, 3, 4], [0, 0, 0])


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("length", [2, 5, 100])
def test_append_and_resize(tmp_path, order, length):
    """NumPy and we agree on what is there at every step; elements that stay keep their values."""

    def prepare(step):
        path = tmp_path / f"{step}.npy"
        np.save(path, np.asarray(np.arange(20).reshape(5, 4), order=order))
        return path

    shape = (length, 4) if order == "C" else (5, length)
    old = np.arange(20).reshape(5, 4)
    new = np.zeros(shape, old.dtype)
    both = tuple(slice(min(a, b)) for a, b in zip(old.shape, shape, strict=True))
    new[both] = old[both]

    def look(path):
        ours = formats.open_info(path).shape
        theirs = np.load(path)
        assert theirs.shape == ours
        return theirs.tolist()

    def action(path):
        formats.resize(formats.open_info(path, writable=True), shape)

    seen = each_step(prepare, action, look, 3)
    killed.check_switched_once(seen, old.tolist(), new.tolist())


@pytest.mark.parametrize("order", "CF")
def test_append(tmp_path, order):
    """Through `DiskArray`: the new shape is never seen with anything but the new elements."""
    old = np.arange(20).reshape(5, 4)
    axis = 0 if order == "C" else 1
    more = np.full((3, 4) if order == "C" else (5, 3), 7)

    def prepare(step):
        path = tmp_path / f"{step}.npy"
        np.save(path, np.asarray(old, order=order))
        return path

    def action(path):
        with outcore.open(path, "r+") as array:
            array.append(more, axis=axis)

    seen = each_step(prepare, action, lambda path: np.load(path).tolist(), 5)
    killed.check_switched_once(seen, old.tolist(), np.concatenate([old, more], axis).tolist())


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr", "a.zarr2"])
def test_attributes(tmp_path, name):
    """All that one change sets and drops, or nothing of it."""
    old, new = {"a": 1, "b": 2}, {"a": 3, "c": 4}

    def prepare(step):
        path = tmp_path / str(step) / name
        path.parent.mkdir()
        outcore.create(path, (50, 4), "f8", attrs=old).close()
        return path

    def action(path):
        with outcore.open(path, "r+") as array:
            array.handle.change_attrs(new, ["b"])

    def look(path):
        with outcore.open(path) as array:
            assert array.shape == (50, 4)
            return dict(array.attrs)

    killed.check_switched_once(each_step(prepare, action, look, 4), old, new)
