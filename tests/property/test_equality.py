"""
Equality: reads and writes of sections equal NumPy's, over all formats, options and budgets.

A file is made by its own library or by us, sections are read and written at random, and in the end
the file is read by us, by us through a new handle, and by its own library.

`OUTCORE_EXAMPLES` sets the number of examples per kind of file; `test_equality_slow` runs thousands.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import foreign
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

import outcore
from outcore.testing import strategies

KINDS = {kind.name: kind for kind in foreign.KINDS}
EXAMPLES = int(os.environ.get("OUTCORE_EXAMPLES", "12"))
BUDGETS = ["4 KiB", "20 KiB", "256 KiB", "64 MiB", None]


def lane(examples: int) -> settings:
    # Shrinking costs minutes where every try is made of files: OUTCORE_SHRINK=1 turns it on.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    if os.environ.get("OUTCORE_SHRINK"):
        phases.append(Phase.shrink)
    return settings(
        deadline=None,
        phases=phases,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@st.composite
def options(draw) -> dict:
    """Hints of every sort; what a layout cannot fulfil is not followed."""
    return {
        "engine": draw(st.sampled_from(["auto", "threads", "uring"])),
        "method": draw(st.sampled_from(["auto", "auto", "straight", "window", "mapped", "list"])),
        "cache": draw(st.sampled_from(["auto", "keep", "bypass"])),
        "threads": draw(st.sampled_from([None, 1, 2])),
        "exclusive": draw(st.booleans()),
        "sync": draw(st.sampled_from([False, False, False, True])),
        "memory": draw(st.sampled_from(BUDGETS)),
    }


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    """Mostly small with up to five axes, at times one that spans many pages."""
    large = st.sampled_from([(300, 70), (9000,), (3, 50, 61), (129, 2, 65), (1, 20000)])
    return st.one_of(strategies.shapes(5, 6), strategies.shapes(3, 12), large)


def chunks_for(shape: tuple[int, ...], beyond: bool) -> st.SearchStrategy[tuple[int, ...]]:
    """Chunks from single elements to the array's length, or `beyond`; not too many of them."""
    more = 4 if beyond else 3
    return st.tuples(*(st.integers(max(1, n // 6), max(n * more // 3, 1)) for n in shape))


def same(expected: object, actual: object) -> None:
    """Equal in shape, dtype and value; NaN nowhere occurs in what the strategies make."""
    left, right = np.asarray(expected), np.asarray(actual)
    assert left.shape == right.shape and left.dtype == right.dtype
    assert type(expected) is type(actual)
    if left.dtype.names:
        assert left.tolist() == right.tolist()
    else:
        assert left.tobytes() == right.tobytes()


def within(a: outcore.DiskArray, work):
    """`work(a)`; if the budget does not do, again with the budget that the error says would do."""
    try:
        return work(a)
    except outcore.BudgetError as error:
        event("budget refused")
        needed = error.needed
    assert needed is not None and needed > a.budget
    with again(a, memory=needed) as larger:
        return work(larger)


def again(a: outcore.DiskArray, **changed) -> outcore.DiskArray:
    words = {name: getattr(a.hints, name) for name in a.hints.__dataclass_fields__} | changed
    _, (where, mode, _, options) = a.__reduce__()
    return outcore.open(where, mode, hints=words, **options)


def value_for(draw, part: object, dtype: np.dtype, seed: int) -> object:
    """Something to assign: its own shape and dtype, or to be cast and broadcast, with odd strides."""
    shape = np.shape(part)
    if not isinstance(part, np.ndarray) or (dtype.kind not in "biuf") or draw(st.booleans()):
        value = strategies.fill(shape, dtype, draw(strategies.orders()), seed)
    else:
        value = draw(strategies.values_for(shape))
    turn = draw(st.sampled_from(["as is", "reversed", "strided", "scalar"]))
    if turn == "reversed":
        flip = (slice(None, None, -1),) * value.ndim
        value = np.asarray(value[flip]).copy("K")[flip]
    elif turn == "strided" and value.ndim:
        wide = np.zeros(tuple(2 * n for n in value.shape), value.dtype)
        every = (slice(None, None, 2),) * value.ndim
        wide[every] = value
        value = wide[every]
    elif turn == "scalar" and value.size and isinstance(part, np.ndarray):
        value = value.flat[0]
    return value if turn == "scalar" else np.asarray(value)


def check(data: st.DataObject, kind: foreign.Kind, folder: Path) -> None:
    """One example: make, read, write, compare."""
    draw = data.draw
    shape, dtype = draw(shapes()), draw(strategies.dtypes())
    if not kind.takes(shape, dtype):
        shape = shape or (5,)
        shape = tuple(max(n, 1) for n in shape)
        dtype = dtype if kind.takes(shape, dtype) else np.dtype(draw(st.sampled_from(SAFE)))
    chunks = draw(chunks_for(shape, "zarr" in kind.path)) if kind.chunked else None
    hints = draw(options())
    array = strategies.fill(shape, dtype, kind.order, draw(st.integers(0, 999)))
    theirs = draw(st.booleans())
    if theirs:
        event("made by its library")
        kind.write(folder, array, chunks)
    else:
        event("made by outcore")
        kind.create(folder, array, chunks, data=array).close()
    with kind.open(folder, array, "r+", hints=hints) as a:
        if theirs and a.dtype.newbyteorder("=") == dtype.newbyteorder("="):
            dtype = a.dtype  # zarr-python stores text in its own byte order
            array = array.astype(dtype)
        assert (a.shape, a.dtype) == (shape, dtype)
        for seed in range(draw(st.integers(1, 3))):
            read_one(draw, a, array)
            write_one(draw, a, array, seed)
        same(array[...], within(a, lambda a: a.read()))
    with kind.open(folder, array) as a:
        same(array[...], a.read())
    by_library = kind.read(folder)
    if kind.path == "a.raw":
        by_library = by_library.view(dtype).reshape(shape, order=kind.order)
    if dtype.kind in "SUV" or dtype.names:
        assert array.tolist() == by_library.tolist()
    else:
        np.testing.assert_array_equal(array, by_library)


SAFE = ["i1", "<u2", ">i4", "<i8", ">f4", "<f8"]


def read_one(draw, a: outcore.DiskArray, array: np.ndarray) -> None:
    key = draw(strategies.keys(array.shape))
    expected = array[key]
    same(expected, within(a, lambda a: a[key]))
    if isinstance(expected, np.ndarray) and draw(st.booleans()):
        out = np.empty(expected.shape[::-1], expected.dtype).T
        if draw(st.booleans()) and out.ndim:
            out = np.empty((*expected.shape, 2), expected.dtype)[..., 1]
        assert within(a, lambda a: a.read(key, out=out)) is out
        same(expected, out)


def write_one(draw, a: outcore.DiskArray, array: np.ndarray, seed: int) -> None:
    key = draw(strategies.keys(array.shape))
    value = value_for(draw, array[key], array.dtype, seed)
    before = np.array(value, copy=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            array[key] = value
        except (OverflowError, TypeError, ValueError) as error:
            event("refused by NumPy")
            with pytest.raises(type(error)):
                within(a, lambda a: a.write(key, value))
        else:
            within(a, lambda a: a.write(key, value))
    same(before, np.array(value, copy=True))


def run_many(name: str, examples: int) -> None:
    """Check random examples of one kind of file."""

    @lane(examples)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(data, KINDS[name], Path(folder))

    run()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_sections_of_every_format_equal_numpy(name: str) -> None:
    """Reads and writes at random, then the file whole, by us and by its own library."""
    run_many(name, EXAMPLES)
