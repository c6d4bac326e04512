"""Parts of arrays: walked through in blocks, and copied; with any key of basic indexing."""

import itertools
import json
import os

import h5py
import numpy as np
import pytest
import zarr

import outcore
from outcore.arrays import tiling
from outcore.arrays.schedule import (
    Block,
    Buffer,
    InvalidScheduleError,
    Load,
    Schedule,
    ScheduleStep,
    Store,
    get_shape,
)
from outcore.arrays.tiling import Side
from outcore.base.sections import Selection
from outcore.cli import main
from schedule_check import check_schedule

SHAPE = (60, 50, 7)
WHOLE = np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)
KEYS = {
    "steps": np.s_[3:50:2, ::-3],
    "one index, a new axis": np.s_[5, None, 10:40, ::-2],
    "an inner index": np.s_[..., 3],
    "the last one first": np.s_[::-1, ::-1, ::-1],
    "two new axes": np.s_[None, 7:9, :, None, 2],
    "a box": np.s_[10:33, 16:32],
    "nothing": np.s_[4:4],
    "one element": np.s_[1, 2, 3],
    "all": np.s_[...],
}
MAKES = {
    "plain.npy": {},
    "turned.npy": {"order": "F"},
    "chunks.zarr": {"chunks": (16, 16, 4), "compression": "zstd"},
    "sharded.zarr": {"chunks": (8, 8, 7), "shards": (32, 16, 7)},
    "chunks.h5": {"chunks": (13, 50, 2), "compression": "gzip"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sections")
    for name, words in MAKES.items():
        outcore.create(folder / name, data=WHOLE, **words).close()
    return folder


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_part_of_a_section_is_a_section_of_the_array(made, key):
    rng = np.random.default_rng(3)
    with outcore.open(made / "plain.npy") as a:
        selection = Selection.of_disk(a, key)
    part = WHOLE[key]
    assert part.shape == selection.shape
    assert np.array_equal(part, WHOLE[selection.key])
    for _ in range(30):
        ends = [sorted(rng.integers(0, n + 1, 2).tolist()) for n in part.shape]
        inner = tuple(
            slice(0, 1) if axis is None else slice(*pair)
            for pair, axis in zip(ends, selection.axes, strict=True)
        )
        assert np.array_equal(part[inner], WHOLE[selection.within(inner)])
        there = selection.make_array_slices(inner)
        assert WHOLE[there].shape == get_shape(there)
        assert np.array_equal(part[inner], WHOLE[there].reshape(part[inner].shape))


def test_equal_sections_have_equal_keys(made):
    with outcore.open(made / "plain.npy") as a:
        same = [
            np.s_[1:60:2, 4],
            np.s_[1::2, 4, ...],
            np.s_[-59:99:2, -46, :],
            (slice(-59, None, 2), 4),
        ]
        assert len({repr(Selection.of_disk(a, key).key) for key in same}) == 1


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_blocks_cover_a_section_once(made, name, key):
    """By default, in slabs, and in blocks of a shape: with the elements, and both positions."""
    part = WHOLE[key]
    ways = [{}, {"shape": 4}, {"axis": 0}] if part.ndim else [{}]
    with outcore.open(made / name, hints={"memory": "512 kB"}) as a:
        for how in ways:
            found, seen = np.full(part.shape, -1, "f4"), np.zeros(part.shape, int)
            loop = a.blocks(key=key, **how)
            for at, data in loop:
                assert np.array_equal(WHOLE[at], data) and np.array_equal(a[at], data)
                found[loop.within] = data
                seen[loop.within] += 1
            assert (seen == 1).all() and np.array_equal(part, found)


def test_neighbours_in_a_section_overlap(made):
    with outcore.open(made / "chunks.zarr") as a:
        part = WHOLE[::-2, 3]
        blocks = list(a.blocks(key=np.s_[::-2, 3], shape=(10, None), overlap=(2, 0)))
        keys = [key[0].start for key, _ in blocks]
        assert keys == [59, 43, 27, 11]
        for (_, data), first in zip(blocks, range(0, 30, 8), strict=True):
            assert np.array_equal(part[first : first + 10], data)


def test_only_chunks_of_the_section_are_decoded(made):
    """As many as it touches, by arithmetic; each once, and as the report says."""
    with outcore.open(made / "chunks.zarr") as a:
        key = np.s_[
            10:33, 16:32
        ]  # rows of chunks 0, 1 and 2; one column of them; both along the last axis
        loop = a.blocks(key=key)
        assert (loop.report.chunks, loop.report.decodes) == (6, 6)
        before = a.stats()["decodes"]
        for _ in loop:
            pass
        assert a.stats()["decodes"] - before == 6
        # Every index has a chunk of its own along the first axis, where the step leaps over chunks.
        assert a.blocks(key=np.s_[::32, 0, 0]).report.chunks == 2


def test_a_loop_over_a_section_keeps_within_its_budget(tmp_path):
    outcore.create(tmp_path / "wide.npy", data=np.arange(2.0**18).reshape(512, 512)).close()
    with outcore.open(tmp_path / "wide.npy", hints={"memory": 300_000}) as a:
        loop = a.blocks(key=np.s_[::2])
        report = loop.report
        assert report.bytes == 2**20 and report.held_bytes + report.least_bytes <= 300_000
        assert sum(float(data.sum()) for _, data in loop) == a[::2].sum()


def test_there_is_no_place_before_the_first_block(made):
    with outcore.open(made / "plain.npy") as a, pytest.raises(outcore.errors.UsageError) as caught:
        a.blocks(key=np.s_[::2]).within
    assert caught.value.code == "bad-blocks"


@pytest.mark.parametrize("key", [[1, 2], np.s_[99], np.s_[0, 0, 0, 0], WHOLE > 3])
def test_other_keys_are_refused(made, key, tmp_path):
    with outcore.open(made / "plain.npy") as a:
        with pytest.raises(outcore.errors.SectionError):
            a.blocks(key=key)
        with pytest.raises(outcore.errors.SectionError):
            outcore.convert(a, tmp_path / "b.npy", section=key)
    assert os.listdir(tmp_path) == []


def test_a_section_of_an_encoded_array_presents_its_chunks():
    side = Side(4, "C", (16, 16), whole=True)
    part = Selection(((10, 23, 1), (3, 1, 1)), ((0, False),)).side(side)
    assert (part.chunks, part.start, part.step) == ((16,), (10,), (1,))
    tiles = tiling.choose((23,), part, part, 16)
    assert [tiles.ends(0, k) for k in range(len(tiles))] == [(0, 6), (6, 22), (22, 23)]


# ------------------------------------------------------------------------------------- schedules


def copy(section, shape, *, store=False):
    kind = Store if store else Load
    step = ScheduleStep(
        (Block(0, shape),),
        loads=() if store else (kind(0, section, 0),),
        stores=(kind(0, section, 0),) if store else (),
    )
    return Schedule("copy", ("a",), (Buffer(100, np.dtype("f8")),), 1, lambda _: step)


def test_steps_of_loads_are_checked():
    check_schedule(copy((slice(0, 10, 3),), (4,)), [(10,)])
    check_schedule(copy((slice(9, None, -3),), (4,)), [(10,)])
    for section, shape in [((slice(0, 12, 3),), (4,)), ((slice(10, None, -3),), (4,))]:
        with pytest.raises(InvalidScheduleError, match="no section"):
            check_schedule(copy(section, shape), [(9,)])
    with pytest.raises(InvalidScheduleError, match="does not fit"):
        check_schedule(copy((slice(0, 10, 3),), (3,)), [(10,)])
    with pytest.raises(InvalidScheduleError, match="no section"):
        check_schedule(copy((slice(0, 10, 3),), (4,), store=True), [(10,)])


# ------------------------------------------------------------------------------------- conversion


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_section_is_converted(made, name, key, tmp_path):
    target = tmp_path / "part.zarr"
    outcore.convert(made / name, target, section=key, dtype="f8", memory="2 MB")
    assert np.array_equal(WHOLE[key], zarr.open_array(target)[...])


def test_levels_of_a_pyramid(made, tmp_path):
    """Level after level with a step, as zarr, h5py and numpy see them; names and attributes stay."""
    with outcore.create(
        tmp_path / "level0.zarr",
        data=WHOLE,
        chunks=(16, 16, 7),
        dims=("y", "x", "c"),
        attrs={"k": 1},
    ) as first:
        first.flush()
    for level in (1, 2):
        outcore.convert(
            tmp_path / f"level{level - 1}.zarr",
            tmp_path / f"level{level}.zarr",
            section=np.s_[::2, ::2],
        )
    last = zarr.open_array(tmp_path / "level2.zarr")
    assert np.array_equal(WHOLE[::4, ::4], last[...])
    assert last.chunks == (15, 13, 7)  # a chunk is not longer than the array
    assert last.metadata.dimension_names == ("y", "x", "c") and last.attrs["k"] == 1
    outcore.convert(tmp_path / "level2.zarr", tmp_path / "c.h5", section=np.s_[..., 2])
    with h5py.File(tmp_path / "c.h5") as file:
        assert np.array_equal(WHOLE[::4, ::4, 2], file["data"][...])
        assert [dim.label for dim in file["data"].dims] == ["y", "x"]


class Stopped(Exception):
    pass


def stop(done, total):
    if done > total // 3:
        raise Stopped


def test_an_interrupted_section_goes_on_and_is_no_other(tmp_path):
    data = np.arange(800.0 * 700).reshape(800, 700)
    np.save(tmp_path / "a.npy", data)
    call = {"memory": "1 MiB", "chunks": (100, 70)}
    source, target = tmp_path / "a.npy", tmp_path / "b.zarr"
    with pytest.raises(Stopped):
        outcore.convert(source, target, section=np.s_[::-1, 5:], progress=stop, **call)
    for other in (np.s_[:, 5:], None):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.convert(source, target, section=other, resume=True, **call)
        assert caught.value.code == "other-job"
    seen = []
    outcore.convert(
        source,
        target,
        section=np.s_[::-1, 5:700],  # the same, written otherwise
        resume=True,
        progress=lambda done, total: seen.append((done, total)),
        **call,
    )
    assert np.array_equal(data[::-1, 5:], zarr.open_array(target)[...])
    assert seen[0][0] > 0 and seen[-1] == (800 * 695 * 8,) * 2


def test_the_command_goes_on_with_a_section(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = np.arange(800.0 * 700).reshape(800, 700)
    np.save("a.npy", data)
    with pytest.raises(Stopped):
        outcore.convert("a.npy", "b.npy", section=np.s_[::2], memory="1 MiB", progress=stop)
    assert main(["resume", "-q"]) == 0, capsys.readouterr().err
    assert np.array_equal(data[::2], np.load("b.npy"))


def test_the_command_takes_sections(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", WHOLE)
    words = ["convert", "a.npy", "b.h5", "--section", "0:30,::2", "--chunks", "auto", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["nbytes"] == WHOLE[:30, ::2].nbytes
    with h5py.File("b.h5") as file:
        assert np.array_equal(WHOLE[:30, ::2], file["data"][...])
    assert main(["convert", "a.npy", "c.npy", "--section=-5:, 0", "-q"]) == 0
    assert np.array_equal(WHOLE[-5:, 0], np.load("c.npy"))
    assert main(["convert", "a.npy", "d.npy", "--section", "0:1:x"]) == 2
    assert "bad-section" in capsys.readouterr().err


def test_what_is_told_of_a_section_is_what_is_moved(made, tmp_path):
    for name, key in itertools.product(
        ("plain.npy", "chunks.zarr"), (np.s_[::2], np.s_[5:20, :, 1])
    ):
        planned = outcore.convert(
            made / name, tmp_path / "out.npy", section=key, overwrite=True, explain=True
        )
        planned.run()
        report = planned.report
        assert report.written_bytes == report.measured.written_bytes == WHOLE[key].nbytes
        if name == "plain.npy":
            assert WHOLE[key].nbytes <= report.read_bytes <= WHOLE.nbytes + 4096
