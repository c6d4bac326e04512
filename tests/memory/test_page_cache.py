"""
What is moved where the page cache is small, measured from outside.

A process converts an array in a memory control group that leaves the page cache less than the result
takes. If pages were written in part, put on the disk, and read again for their other parts, the kernel
would count those bytes for this process: `read_bytes` and `write_bytes` of /proc/self/io.
"""

import json

import numpy as np
import pytest
from groups import group_of, told_by

import outcore
from page_cache import forget

MIB = 2**20
BUDGET = 16 * MIB
ALLOWANCE = 64 * MIB


def cold(path, array):
    """A file with this array, of which nothing is in the page cache."""
    np.save(path, array)
    forget(path)


@pytest.fixture
def group():
    with group_of(BUDGET + ALLOWANCE) as made:
        if made is None:
            pytest.skip("no control group can be made: what a small page cache costs is NOT tested")
        yield made


def moved(group, source, target, **words):
    """Bytes that a conversion reads and writes."""
    return told_by("moved_work.py", group, source, target, BUDGET, json.dumps(words))


# Rows of whole pages, and rows that begin anywhere in theirs.
@pytest.mark.parametrize("shape", [(8192, 1024), (8000, 1031)])
def test_a_transposing_conversion_moves_each_byte_once(tmp_path, group, shape):
    source, target = tmp_path / "a.npy", tmp_path / "b.npy"
    data = np.arange(shape[0] * shape[1], dtype="f8").reshape(shape)
    cold(source, np.asfortranarray(data))
    read, written = moved(group, source, target, order="C")
    result = np.load(target)
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(data, result)
    if read == 0:
        pytest.skip("files of the temporary folder are on no disk: nothing is moved")
    print(f"{read / data.nbytes:.3f} read, {written / data.nbytes:.3f} written")
    assert read <= 1.1 * data.nbytes
    assert written <= 1.1 * data.nbytes


def test_chunks_in_files_of_their_own_are_written_once(tmp_path, group):
    """Row slabs to column slabs, none of whose rows is a whole page: tiles end between pages."""
    source, target = tmp_path / "a.zarr", tmp_path / "b.zarr"
    # Of these lengths no even part is a whole number of pages.
    data = np.arange(5000 * 6016, dtype="f4").reshape(5000, 6016)
    outcore.create(source, data=data, chunks=(50, 6016), compression="none").close()
    for path in source.rglob("*"):
        if path.is_file():
            forget(path)
    read, written = moved(group, source, target, chunks=(5000, 64), compression="none")
    with outcore.open(target) as result:
        np.testing.assert_array_equal(data, result[...])
    if read == 0:
        pytest.skip("files of the temporary folder are on no disk: nothing is moved")
    print(f"{read / data.nbytes:.3f} read, {written / data.nbytes:.3f} written")
    assert read <= 1.1 * data.nbytes
    # 1.05 with parts that end within pages.
    assert written <= 1.02 * data.nbytes


def test_new_chunks_in_files_of_their_own_are_told_as_written_past_the_cache(tmp_path):
    """Also before the first chunk is there, when tiles are cut."""
    told = {}
    hints = {"exclusive": True, "cache": "bypass"}
    for name, words in {
        "own": {"compression": "none"},
        "coded": {"compression": "zstd"},
        "shards": {"shards": (64, 4096)},
    }.items():
        with outcore.create(
            tmp_path / f"{name}.zarr",
            (256, 4096),
            "f8",
            chunks=(32, 4096),
            hints=hints,
            **words,
        ) as a:
            told[name] = a.handle.core.past_cache() > 0
    with outcore.create(tmp_path / "a.npy", (256, 4096), "f8", hints=hints) as a:
        direct = a.handle.core.past_cache() > 0
    if not direct:
        pytest.skip("the file system has no direct I/O: writes past the page cache are NOT tested")
    assert told == {"own": True, "coded": False, "shards": False}


def test_writes_pass_a_page_cache_that_is_too_small_and_wait_in_one_that_is_not(tmp_path):
    """Whoever asks is told, and nothing changes for arrays that others may write."""
    made = []
    for name, hints in {
        "auto": {"exclusive": True},
        "past": {"exclusive": True, "cache": "bypass"},
        "kept": {"exclusive": True, "cache": "keep"},
        "shared": {"cache": "bypass"},
    }.items():
        with outcore.create(tmp_path / f"{name}.npy", (256, 4096), "f8", hints=hints) as a:
            # At pages of the file, in which elements of large arrays begin at one.
            report = str(a.explain(np.s_[:, 512:2560], write=True))
            made.append(
                (name, a.handle.core.past_cache() > 0, "bypassing the page cache" in report)
            )
            counts = a.explain(np.s_[:, 512:2560], write=True).writes
            beside = a.explain(np.s_[:, 512 + 64 : 2560], write=True).writes
            if name == "past" and made[-1][1]:
                # 512 bytes further there is a part of a page, whatever the blocks of the disk are.
                assert (counts, beside) == (256, 512)
    if not made[1][1]:
        pytest.skip("the file system has no direct I/O: writes past the page cache are NOT tested")
    assert made == [
        ("auto", False, False),
        ("past", True, True),
        ("kept", False, False),
        ("shared", False, False),
    ]
