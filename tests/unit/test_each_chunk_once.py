"""
Loops, rows, copies and casts handle each chunk once, and say so, or say what would do.

Chunks have codecs that need little memory (checksums), so that budgets can be small. What `stats` counts
is exact: a chunk that is cut is decoded, or encoded, again.
"""

import math
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core, cli

SHAPE, CHUNKS = (20, 160, 160), (5, 20, 20)
DATA = np.arange(math.prod(SHAPE)).astype("i2").reshape(SHAPE)
ALL = 4 * 8 * 8
# As 64 MiB are to 800 MB. A slab of whole chunks, 256 kB, does not fit.
LITTLE = 86_000
KINDS = {
    "zarr": ("a.zarr", {"compression": "crc32c"}),
    "zarr 2": ("b.zarr", {"compression": "zlib:1", "format": "zarr2"}),
    "F": ("f.zarr", {"compression": "crc32c", "order": "F"}),
    "shards": ("s.zarr", {"compression": "crc32c", "shards": (10, 40, 40)}),
    "hdf5": ("h.h5::/x", {"compression": "gzip:1"}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walks")
    arrays = {}
    for kind, (name, options) in KINDS.items():
        path = f"{folder}/{name}"
        outcore.create(path, data=DATA, chunks=CHUNKS, **options).close()
        arrays[kind] = outcore.open(path, hints={"cache": "bypass"})  # no chunk is kept
    yield arrays
    for a in arrays.values():
        a.close()


class Counting:
    """What an array did since."""

    def __init__(self, array):
        self.array, self.before = array, array.stats()

    def __getitem__(self, name):
        return self.array.stats()[name] - self.before[name]


def walked(array, data, loop):
    """Every element of a loop is right; how many chunks were decoded."""
    done, seen = Counting(array), np.zeros(data.shape, bool)
    for key, block in loop:
        np.testing.assert_array_equal(data[key], block)
        seen[key] = True
    assert seen.all()
    return done["decodes"]


def cells(shape, chunks):
    """Chunks of an array."""
    return math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True))


# Loops over blocks


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_decode_each_chunk_once(made, kind):
    a = made[kind]
    budget = 180_000 if kind in ("zarr 2", "hdf5") else LITTLE
    with outcore.memory(budget), closing(a.blocks()) as loop:
        assert walked(a, DATA, loop) == ALL
        told = loop.report
        assert (told.is_single_pass, told.chunks, told.needed) == (True, ALL, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{}, {"axis": 0}, {"axis": 2}, {"overlap": 2}], ids=str)
def test_slabs_of_whole_chunks_decode_each_chunk_once(made, kind, how):
    a = made[kind]
    with outcore.memory(1_200_000), closing(a.blocks(**how)) as loop:
        assert walked(a, DATA, loop) == ALL
        assert loop.report.is_single_pass
        slow = how.get("axis", 2 if a.order == "F" else 0)
        assert [n == m for n, m in zip(loop.report.shape, SHAPE, strict=True)].count(False) == 1
        assert loop.report.shape[slow] < SHAPE[slow]
        assert loop.report.blocks > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{"axis": 0}, {"axis": 1}, {"axis": 0, "overlap": 1}], ids=str)
def test_slabs_that_cut_chunks_say_how_often_and_what_would_do(made, kind, how):
    a, budget = made[kind], 300_000 if how["axis"] else 420_000
    with outcore.memory(budget), closing(a.blocks(**how)) as loop:
        told = loop.report
        assert not told.is_single_pass
        assert told.needed > budget
        assert walked(a, DATA, loop) == told.decodes > ALL
        assert f"a budget of {told.needed} bytes" in str(told)
    with outcore.memory(told.needed), closing(a.blocks(**how)) as loop:
        assert loop.report.is_single_pass
        assert walked(a, DATA, loop) == ALL
    with outcore.memory(told.needed - 8192), closing(a.blocks(**how)) as loop:
        assert loop.report.decodes > ALL


def test_rows_decode_each_chunk_once_if_a_slab_of_chunks_fits(made):
    a = made["zarr"]
    for budget, decodes in ((1_200_000, ALL), (900_000, ALL)):
        with outcore.memory(budget):
            done = Counting(a)
            for row, expected in zip(a, DATA, strict=True):
                np.testing.assert_array_equal(expected, row)
            assert done["decodes"] == decodes


def test_slabs_that_cut_chunks_are_as_thick_as_they_can_be(made):
    """Two rows of a chunk of five: 12 slabs of chunks, not 20."""
    with outcore.memory(420_000), closing(made["zarr"].blocks(0)) as loop:
        assert loop.report.decodes == 12 * 64


def test_an_overlap_that_is_longer_than_a_chunk_decodes_none_again(tmp_path):
    data = DATA[0, :40, :100].copy()
    coded = {"chunks": (2, 20), "compression": "crc32c"}
    with outcore.create(tmp_path / "a.zarr", data=data, **coded) as a:
        with outcore.memory(4096), pytest.raises(outcore.BudgetError) as least:
            a.blocks(overlap=3)
        with outcore.memory(least.value.needed), closing(a.blocks(overlap=3)) as loop:
            told = loop.report
            assert walked(a, data, loop) == told.decodes > 100
        with outcore.memory(told.needed), closing(a.blocks(overlap=3)) as loop:
            assert walked(a, data, loop) == 100
            assert loop.report.shape == (7, 100)
            assert loop.report.blocks == 10


def test_blocks_of_a_given_shape_tell_what_they_cost(made):
    a = made["zarr"]
    for how, decodes in (
        ({"shape": (5, 40, 160)}, ALL),
        ({"shape": (5, 50, 160)}, 4 * (3 + 3 + 3 + 1) * 8),
        ({"shape": (8, 160, 160), "overlap": (3, 0, 0)}, (2 + 2 + 2 + 1) * 64),
        ({"shape": (5, 42, 160), "overlap": (0, 2, 0)}, 4 * (3 + 3 + 3 + 2) * 8),
    ):
        with closing(a.blocks(**how)) as loop:
            assert loop.report.decodes == decodes
            assert loop.report.needed is None
            assert walked(a, DATA, loop) == decodes


def test_a_row_that_does_not_fit_is_cut(tmp_path):
    """Rows of 1 MB, chunked or not, in 400 kB."""
    data = np.arange(3 * 125_000.0).reshape(3, 125_000)
    for name, options in (("a.npy", {}), ("a.zarr", {"chunks": (3, 700), "compression": "crc32c"})):
        with outcore.create(tmp_path / name, data=data, **options) as a, outcore.memory(400_000):
            walked(a, data, a.blocks())
            with pytest.raises(outcore.BudgetError):
                a.blocks(0)


def test_the_memory_of_a_loop_that_never_began_comes_back_when_it_is_closed(made):
    before = _core.memory_state()[0]
    loop = made["zarr"].blocks()
    assert _core.memory_state()[0] > before
    loop.close()
    assert before == _core.memory_state()[0]
    assert list(loop) == []


def test_the_command_line_tells_what_a_loop_costs(made, capsys):
    path = made["zarr"].path
    assert cli.main(["explain", path, "--blocks", "--memory", "100000"]) == 0
    assert "256 for 256, each once" in capsys.readouterr().out
    assert cli.main(["explain", path, "--blocks", "--axis", "0", "--memory", "420000"]) == 0
    assert "768 for 256, 3 times each" in capsys.readouterr().out
    assert cli.main(["explain", path, "--axis", "0"]) == 2
    assert cli.main(["explain", path, "[0]", "--blocks"]) == 2
    capsys.readouterr()


# Copies between arrays on disk


TARGETS = {
    "same chunks": {"chunks": CHUNKS, "compression": "crc32c"},
    "columns": {"chunks": (20, 160, 1), "compression": "crc32c"},
    "others": {"chunks": (4, 16, 16), "compression": "crc32c"},
    "shards": {"chunks": (4, 20, 20), "shards": (20, 20, 40), "compression": "crc32c"},
    "F": {"chunks": (5, 20, 40), "compression": "crc32c", "order": "F"},
    "plain": {"chunks": (7, 30, 30)},
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["zarr", "F", "shards"])
def test_a_copy_handles_each_chunk_of_both_arrays_once(made, tmp_path, kind, target):
    a, options = made[kind], TARGETS[target]
    with outcore.create(tmp_path / "b.zarr", SHAPE, "i2", **options) as b, outcore.memory(600_000):
        done = Counting(a)
        b[...] = a
        assert done["decodes"] == ALL
        coded = "compression" in options
        count = cells(SHAPE, options["chunks"]) if coded else 0
        assert (b.stats()["encodes"], b.stats()["decodes"]) == (count, 0)
        told = b.explain_copy(a)
        assert told.is_single_pass, str(told)
        assert (told.decodes, told.encodes) == (ALL, count)
        np.testing.assert_array_equal(DATA, b[...])


@pytest.mark.parametrize("name", ["b.zarr", "b.h5::/x"])
def test_create_from_an_array_on_disk_handles_each_chunk_once(made, tmp_path, name):
    a, done = made["zarr"], Counting(made["zarr"])
    # 32 chunks of 100 x 125 x 125 and slabs of 3 rows took 33 passes over all chunks.
    options = {"chunks": (10, 20, 40), "compression": "gzip:1"}
    with (
        outcore.memory(1_100_000),
        outcore.create(f"{tmp_path}/{name}", data=a, dtype="f4", **options) as b,
    ):
        assert done["decodes"] == ALL
        assert b.stats()["encodes"] == cells(SHAPE, options["chunks"])
        assert b.stats()["decodes"] == 0
        np.testing.assert_array_equal(DATA, b[...])


SECTIONS = {
    "behind an edge": (np.s_[2:12, 7:87, 11:91], (13, 100, 95)),
    "on an edge": (np.s_[5:, 20:, :80], (15, 100, 95)),
    "reversed": (np.s_[11:1:-1, 7:87, 11:91], (15, 100, 95)),
    "every other": (np.s_[2:22:2, 7:87, 11:91], (25, 100, 95)),
    "every third": (np.s_[2:32:3, 7:87, 11:91], (35, 100, 95)),
    "one of each": (np.s_[3::45, 7:87, 11:91], (450, 100, 95)),
    "with an axis more": (np.s_[2:12, 3, 7:87, 11:91], (15, 5, 100, 95)),
}


@pytest.mark.parametrize("where", SECTIONS)
def test_a_copy_into_a_section_encodes_each_chunk_once(tmp_path, where):
    """Pieces end at edges of the target, wherever the section begins."""
    key, shape = SECTIONS[where]
    data, chunks = DATA[:10, :80, :80], (6, *CHUNKS)[-len(shape) :]
    expected = np.zeros(shape, "i2")
    expected[key] = data
    touched = [np.zeros(n, bool) for n in shape]
    for axis, part in enumerate(key):
        touched[axis][part] = True
    count = math.prod(
        sum(t[k : k + c].any() for k in range(0, len(t), c))
        for t, c in zip(touched, chunks, strict=True)
    )
    coded = {"chunks": CHUNKS, "compression": "crc32c"}
    with (
        outcore.create(tmp_path / "a.zarr", data=data, **coded) as a,
        outcore.create(tmp_path / "b.zarr", shape, "i2", **{**coded, "chunks": chunks}) as b,
    ):
        # The smaller one holds no slab of both.
        for budget in (100_000, 200_000) if len(shape) > 3 else (50_000, 100_000):
            with outcore.memory(budget):
                done, wrote = Counting(a), Counting(b)
                b[key] = a
                assert wrote["encodes"] == count
                told = b.explain_copy(a, key)
                assert (told.encodes, told.written_chunks) == (count, count)
                assert done["decodes"] == told.decodes
        np.testing.assert_array_equal(expected, b[...])


def test_a_copy_that_cannot_handle_each_chunk_once_says_what_would_do(made, tmp_path):
    a = made["zarr"]
    options = {"chunks": (20, 160, 1), "compression": "crc32c"}
    with outcore.create(tmp_path / "b.zarr", SHAPE, "i2", **options) as b:
        with outcore.memory(100_000):
            told, done = b.explain_copy(a), Counting(a)
            assert told.encodes == told.written_chunks == 160
            assert told.needed > 100_000
            b[...] = a
            assert done["decodes"] == told.decodes > ALL
        with outcore.memory(told.needed):
            done = Counting(a)
            b[...] = a
            assert done["decodes"] == ALL
        assert b.stats()["encodes"] == 2 * 160
        with pytest.raises(outcore.errors.UsageError, match="broadcast"):
            b.explain_copy(a, np.s_[:, :3])


# Values in memory


@pytest.mark.parametrize("dtype", ["i2", "f4"])
@pytest.mark.parametrize(
    "chunks", [(20, 160, 1), (1, 160, 160), (5, 20, 20), (20, 80, 80)], ids=str
)
def test_a_value_is_encoded_once_even_if_it_is_cast_with_little_memory(tmp_path, chunks, dtype):
    """A chunk that is larger than the share of a cast was cut, read back, and encoded again."""
    count = cells(SHAPE, chunks)
    chunk = math.prod(chunks) * np.dtype(dtype).itemsize
    options = {"chunks": chunks, "compression": "crc32c", "dtype": dtype}
    with (
        outcore.memory(max(3 * chunk + chunk // 4, 60_000) + 20_000),
        outcore.create(tmp_path / "b.zarr", data=DATA, **options) as b,
    ):
        assert (b.stats()["encodes"], b.stats()["decodes"]) == (count, 0)
        b[...] = DATA.astype("i8")
        assert (b.stats()["encodes"], b.stats()["decodes"]) == (2 * count, 0)
        b[::3, 1:, 5::7] = DATA[::3, 1:, 5::7].astype("i8")
        part = math.prod(
            sum(any(k <= i < k + c for i in range(n)[s]) for k in range(0, n, c))
            for n, c, s in zip(SHAPE, chunks, np.s_[::3, 1:, 5::7], strict=True)
        )
        assert b.stats()["encodes"] == 2 * count + part
        np.testing.assert_array_equal(DATA, b[...])


def written_by_calls():
    """Bytes that this process gave to the system."""
    with open("/proc/self/io") as stream:
        return int(dict(line.split(": ") for line in stream)["wchar"])


def test_a_shard_is_written_once_even_if_its_value_is_cast(tmp_path):
    """Half a shard at a time, each part copied what the one before had written."""
    options = {"chunks": (5, 20, 20), "shards": (20, 80, 160), "compression": "crc32c"}
    hints = {"engine": "threads", "cache": "keep"}
    with outcore.create(tmp_path / "b.zarr", SHAPE, "f8", hints=hints, **options) as b:
        with outcore.memory(4_000_000):
            before = written_by_calls()
            b[...] = DATA
            assert b.nbytes < written_by_calls() - before < 1.2 * b.nbytes
        np.testing.assert_array_equal(DATA, b[...])


# Any arrays


@st.composite
def copies(draw):
    """Two arrays, and a section of the second one of the shape of the first."""
    ndim = draw(st.integers(1, 3))
    numbers = st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim)
    shape = tuple(draw(numbers))
    sides = []
    for _ in "ab":
        chunks = tuple(draw(numbers))
        shards = tuple(n * draw(st.integers(1, 3)) for n in chunks)
        words = {"chunks": chunks, "compression": "crc32c", "order": draw(st.sampled_from("CF"))}
        sides.append({**words, **draw(st.sampled_from([{}, {"shards": shards}]))})
    key, full = [], []
    for n in shape:
        step, begin = draw(st.integers(1, 4)), draw(st.integers(0, 5))
        full.append(begin + (n - 1) * step + 1 + draw(st.integers(0, 4)))
        part = slice(begin, begin + (n - 1) * step + 1, step)
        key.append(
            slice(part.stop - 1, begin - 1 if begin else None, -step)
            if draw(st.booleans())
            else part
        )
    return shape, tuple(full), tuple(key), sides


@settings(deadline=None, max_examples=60)
@given(copies(), st.integers(0, 3), st.sampled_from(["i8", "f4"]))
def test_random_loops_and_copies(tmp_path_factory, case, more, dtype):
    shape, full, key, (ours, theirs) = case
    folder = tmp_path_factory.mktemp("random", numbered=True)
    data = np.arange(math.prod(shape)).reshape(shape)
    expected = np.full(full, -1, dtype)
    expected[key] = data
    with (
        outcore.create(folder / "a.zarr", data=data, **ours) as a,
        outcore.create(folder / "b.zarr", data=np.full(full, -1, dtype), **theirs) as b,
    ):
        chunks = cells(shape, ours["chunks"])
        budget = 4096
        while True:
            try:
                with outcore.memory(budget):
                    b.explain_copy(a, key)
                    a.blocks(0).close()
                break
            except outcore.BudgetError as refused:
                budget = refused.needed
        budget += more * 400
        with outcore.memory(budget):
            for how in ({}, {"axis": 0}, {"axis": -1, "overlap": 1}):
                try:
                    loop = a.blocks(**how)
                except outcore.BudgetError:
                    continue
                with closing(loop):
                    told = loop.report
                    assert walked(a, data, loop) == told.decodes >= chunks
                    assert told.is_single_pass == (told.needed is None)
            # What a request held that has just ended may be free a moment later, on another thread: with
            # a budget as tight as this, blocks are smaller then than was told.
            for _ in range(3):
                told, done, wrote = b.explain_copy(a, key), Counting(a), Counting(b)
                b[key] = a
                if wrote["encodes"] == told.encodes:
                    break
            assert done["decodes"] == told.decodes
            assert wrote["encodes"] == told.encodes
        if told.needed:
            with outcore.memory(told.needed):
                done = Counting(a)
                b[key] = a
                assert done["decodes"] == chunks
        np.testing.assert_array_equal(expected, b[...])
