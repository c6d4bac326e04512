"""
Indexing with arrays and masks equals NumPy's, over formats, options and budgets.

Reads are compared with ``array[key]`` of NumPy. So are writes, but for duplicates: there the last value
in C order wins, whatever order the indices have in memory. Outer and pointwise keys are compared with
NumPy's advanced indexing by one index array for each axis.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from pathlib import Path

import foreign
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from test_equality import again, chunks_for, lane, options, same, value_for

import outcore
import points_by_numpy
from outcore.testing import strategies

NAMES = [
    *("npy C", "npy F", "raw C", "raw F", "raw in 3 files", "hdf5 contiguous", "hdf5 chunked"),
    *("hdf5 gzip", "zarr plain", "zarr zstd", "zarr F", "zarr shards", "zarr shards zstd"),
]
KINDS = {kind.name: kind for kind in foreign.KINDS}
EXAMPLES = int(os.environ.get("OUTCORE_EXAMPLES", "12"))


@pytest.fixture(autouse=True, scope="module")
def core():
    """Where the core has no points yet, NumPy does its part."""
    with pytest.MonkeyPatch.context() as patch:
        points_by_numpy.install(patch)
        yield


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    large = st.sampled_from([(300, 70), (9000,), (3, 50, 61), (129, 2, 65)])
    return st.one_of(strategies.shapes(4, 6), strategies.shapes(3, 12), large)


def within(a: outcore.DiskArray, work):
    """`work(a)`; with larger budgets, as errors tell them, until one does."""
    for _ in range(4):
        try:
            return work(a)
        except outcore.BudgetError as error:
            event("budget refused")
            needed = error.needed
        assert needed is not None and needed > a.budget
        a = again(a, memory=needed)
    raise AssertionError("no budget that an error told did")


def drawn(draw, shape):
    """How to index an array on disk, and the key that means the same for NumPy and positions."""
    kind = draw(st.sampled_from(["numpy", "numpy", "numpy", "outer", "pointwise", "basic"]))
    event(kind)
    if kind == "numpy":
        return kind, draw(strategies.keys_with_arrays(shape))
    if kind == "basic":
        return kind, draw(strategies.keys(shape))
    make = strategies.outer_keys if kind == "outer" else strategies.pointwise_keys
    return kind, draw(make(shape))


def chosen(array, kind, key):
    """What NumPy gives for a key of this kind."""
    if kind in ("numpy", "basic") or not array.ndim:
        return array[key]
    lists, drop, front, behind = [], [], [], []
    for d, (item, n) in enumerate(zip(key, array.shape, strict=True)):
        if isinstance(item, slice):
            behind.append(d)
            lists.append(np.arange(n)[item])
        elif isinstance(item, int):
            drop.append(d)
            lists.append(np.array(item))
        else:
            front.append(d)
            item = np.asarray(item)
            lists.append(np.flatnonzero(item) if item.dtype == bool else item.astype(np.int64))
    if kind == "outer":
        found = array[np.ix_(*(one.reshape(-1) for one in lists))]
        return found[tuple(0 if d in drop else slice(None) for d in range(array.ndim))]
    for k, d in enumerate(behind):
        lists[d] = lists[d].reshape(-1, *(1,) * (len(behind) - 1 - k))
    for d in front:
        lists[d] = lists[d].reshape(*lists[d].shape, *(1,) * len(behind))
    return array[tuple(lists)]


def access(a, kind):
    return {"outer": a.oindex, "pointwise": a.vindex}.get(kind, a)


def read_one(draw, a, array):
    kind, key = drawn(draw, array.shape)
    expected = chosen(array, kind, key)
    same(expected, within(a, lambda a: access(a, kind)[key]))
    if kind == "numpy" and isinstance(expected, np.ndarray) and draw(st.booleans()):
        out = np.empty(expected.shape[::-1], expected.dtype).T
        if draw(st.booleans()):
            out = np.empty((*expected.shape, 2), expected.dtype)[..., 1]
        assert within(a, lambda a: a.read(key, out=out)) is out
        same(expected, out)


def write_one(draw, a, array, seed):
    kind, key = drawn(draw, array.shape)
    places = np.asarray(chosen(np.arange(array.size).reshape(array.shape), kind, key))
    part = chosen(array, kind, key)
    value = value_for(draw, part, array.dtype, seed)
    while value.ndim > places.ndim:
        value = value[0]  # NumPy takes such values for some keys only

    def assign(a):
        access(a, kind)[key] = value

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        flat = np.empty(places.shape, array.dtype)
        try:
            flat[...] = value
        except (OverflowError, TypeError, ValueError) as error:
            event("refused by NumPy")
            with pytest.raises(type(error)):
                within(a, assign)
            # What was cast before the part that cannot be is written, as for sections.
            array[...] = within(a, lambda a: a.read())
            return
        line = array.reshape(-1)  # a copy, or not
        line[places.reshape(-1)] = flat.reshape(-1)
        array[...] = line.reshape(array.shape)
        within(a, assign)


def check(data: st.DataObject, kind: foreign.Kind, folder: Path) -> None:
    draw = data.draw
    shape, dtype = draw(shapes()), draw(strategies.dtypes())
    if not kind.takes(shape, dtype):
        shape = tuple(max(n, 1) for n in shape or (5,))
        dtype = (
            dtype if kind.takes(shape, dtype) else np.dtype(draw(st.sampled_from(["<i8", ">f4"])))
        )
    chunks = draw(chunks_for(shape, "zarr" in kind.path)) if kind.chunked else None
    array = strategies.fill(shape, dtype, kind.order, draw(st.integers(0, 999)))
    kind.create(folder, array, chunks, data=array).close()
    with kind.open(folder, array, "r+", hints=draw(options())) as a:
        for seed in range(draw(st.integers(1, 3))):
            read_one(draw, a, array)
            write_one(draw, a, array, seed)
        same(array[...], within(a, lambda a: a.read()))
    with kind.open(folder, array) as a:
        same(array[...], a.read())


def run_many(name: str, examples: int) -> None:
    @lane(examples)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(data, KINDS[name], Path(folder))

    run()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_keys_with_arrays_on_every_format_equal_numpy(name: str) -> None:
    """Reads and writes at random, then the file whole."""
    run_many(name, EXAMPLES)


@lane(EXAMPLES * 4)
@given(st.data())
def test_take_and_put_equal_numpy(data: st.DataObject) -> None:
    draw = data.draw
    array = strategies.fill(draw(strategies.shapes(3, 6)), np.dtype("f8"))
    axis = draw(st.sampled_from([None, *range(-array.ndim, array.ndim)]))
    length = array.size if axis is None else array.shape[axis]
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=2))) if length else (0,)
    mode = draw(st.sampled_from(["raise", "wrap", "clip"]))
    places = draw(strategies.indices(length, shape))
    if mode != "raise" and length:
        places = np.asarray(places, np.int64) * draw(st.integers(-3, 3))
    values = draw(strategies.values_for((draw(st.integers(0, 9)),)))
    whole = draw(strategies.indices(array.size, shape if array.size else (0,)))
    with (
        tempfile.TemporaryDirectory() as folder,
        outcore.create(f"{folder}/a.npy", data=array, hints={"memory": "20 KiB"}) as a,
    ):
        # NumPy refuses uint64 here, and takes it in keys.
        wide = np.asarray(places, np.int64)
        same(np.take(array, wide, axis, mode=mode), np.take(a, places, axis, mode=mode))
        np.put(a, whole, values)
        np.put(array, np.asarray(whole, np.int64), values)
        same(array, a.read())


@lane(EXAMPLES * 4)
@given(st.data())
def test_masks_on_disk_equal_numpy(data: st.DataObject) -> None:
    """In memory and on disk, in C and Fortran order and in chunks; of all axes or of the first ones."""
    draw = data.draw
    shape = draw(st.one_of(strategies.shapes(3, 9), st.sampled_from([(70, 90), (20_000,)])))
    shape = shape or (3,)
    array = strategies.fill(shape, np.dtype(draw(st.sampled_from(["f8", "i1", "S3"]))))
    first = draw(st.integers(1, len(shape)))
    size = math.prod(shape[:first])
    number = draw(st.one_of(st.integers(0, min(size, 9)), st.just(size), st.just(size // 2)))
    chosen = strategies.mask(shape[:first], number, draw(st.integers(0, 999)))
    name, words = draw(
        st.sampled_from([("m.npy", {}), ("m.npy", {"order": "F"}), ("m.h5::/m", {"chunks": True})])
    )
    if 0 in chosen.shape:
        name, words = "m.npy", {}
    if "chunks" in words:
        words = {"chunks": tuple(-(-n // 3) for n in chosen.shape), "compression": "gzip"}
    budget = draw(st.sampled_from(["20 KiB", "256 KiB", "64 MiB"]))
    before = int(outcore.memory())
    with tempfile.TemporaryDirectory() as folder:
        m = outcore.create(f"{folder}/{name}", data=chosen, **words)
        a = outcore.create(f"{folder}/a.npy", data=array)
        try:
            outcore.memory("64 MiB" if "chunks" in words else budget)
            for mask in (chosen, m):
                same(array[chosen], a[mask])
                a[mask] = array[chosen][::-1]
                array[chosen] = array[chosen][::-1]
                a[mask] = array.flat[0] if array.size else 0
                array[chosen] = array.flat[0] if array.size else 0
            same(array, a.read())
            outcore.memory("64 MiB")
            for ours, theirs in zip(m.nonzero(), chosen.nonzero(), strict=True):
                same(theirs, ours)
            if first == 1:
                same(np.compress(chosen, array, 0), np.compress(m, a, 0))
        finally:
            outcore.memory(before)
            a.close()
            m.close()
