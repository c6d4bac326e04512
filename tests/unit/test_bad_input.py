"""
What no algorithm can do is refused, by all of them alike, before anything changes.

Every case of `algorithms` is called with results that cannot be stored, that overlap an input, on disks
that are full, with too little memory. After each of these the inputs are as they were, and nothing is
left but jobs that go on.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

import outcore
from algorithm_runs import call, content, expected, in_files, left, must_be_right
from algorithms import CASES
from outcore.compute import jobs
from outcore.public import find_public


@pytest.fixture(params=CASES)
def case(request, tmp_path, monkeypatch):
    """A case in a folder; when the test is over, its inputs are as they were and nothing is left."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    found = in_files(request.param)
    found.results = expected(found)
    before = [content(path) for path in found.paths]
    yield found
    assert [content(path) for path in found.paths] == before
    assert [name for name in left() if not name.startswith("made")] == []


def refused(case, code, *inputs, **words):
    """The call raises this error, whose message says where to go on."""
    with pytest.raises(outcore.OutcoreError) as raised:
        call(case, *inputs, **words)
    assert raised.value.code == code, repr(raised.value)
    return raised.value


def takes_arrays(case):
    """Skip those whose out= is a name."""
    if {"convert", "rechunk"} & set(case.call.__code__.co_names):
        pytest.skip("it makes a new array")


def one_or_tuple(outs):
    return outs[0] if len(outs) == 1 else tuple(outs)


def test_results_that_do_not_fit_are_refused(case):
    takes_arrays(case)
    for n, result in enumerate(case.results):
        fit = [np.zeros(one.shape, one.dtype) for one in case.results]
        for shape in (
            (result.shape[0] + 1, *result.shape[1:]),
            (*result.shape, 1),
            result.shape[1:],
        ):
            fit[n] = np.zeros(shape, result.dtype)
            error = refused(case, "out-mismatch", out=one_or_tuple(fit))
            assert str(shape) in str(error) and str(result.shape) in str(error)
        with outcore.create(f"made{n}.npy", (3, *result.shape), result.dtype) as made:
            fit[n] = made
            refused(case, "out-mismatch", out=one_or_tuple(fit))


def test_casts_that_lose_are_refused(case):
    takes_arrays(case)
    for n, result in enumerate(case.results):
        fit = [np.zeros(one.shape, one.dtype) for one in case.results]
        fit[n] = np.ones(result.shape, "?")
        error = refused(case, "bad-cast", out=one_or_tuple(fit))
        assert "bool" in str(error) and str(result.dtype) in str(error)
        assert fit[n].all()
        with outcore.create(f"made{n}.npy", data=np.ones(result.shape, "?")) as made:
            fit[n] = made
            refused(case, "bad-cast", out=one_or_tuple(fit))
            assert made[...].all()


def test_as_many_results_as_there_are(case):
    takes_arrays(case)
    refused(case, "bad-out", out=("made.npy",) * (len(case.results) + 1))
    assert left() == []
    refused(case, "bad-out", out=3.5)


def test_an_input_is_no_result(case):
    """By its name, by a link, and where it may be replaced."""
    os.symlink("in0.npy", "made-link.npy")
    rest = list(case.out[1:])
    for name in ("in0.npy", "./in0.npy", os.path.abspath("in0.npy"), "made-link.npy"):
        for words in ({}, {"overwrite": True}):
            refused(case, "same-file", out=one_or_tuple([name, *rest]), **words)


def test_another_name_of_an_input_is_replaced_and_the_input_stays(case):
    if case.outs[0] != ".npy":
        pytest.skip("its result is a folder")
    os.link("in0.npy", "made-link.npy")
    refused(case, "already-exists", out=one_or_tuple(["made-link.npy", *case.out[1:]]))
    call(case, out=one_or_tuple(["made-link.npy", *case.out[1:]]), overwrite=True)
    found = [outcore.open(name)[...] for name in ("made-link.npy", *case.out[1:])]
    must_be_right(case, found)


def test_results_that_overlap_an_input_are_refused(case):
    """Elements of an input lie where those of a result are to go."""
    takes_arrays(case)
    for how in ("a view", "a link", "a hard link", "mapped", "mapped by a link"):
        overlaps_an_input(case, how)
        for path in ("made.raw", "made-link.raw"):
            Path(path).unlink(missing_ok=True)


def overlaps_an_input(case, how):
    data, result = case.inputs[-1], case.results[0]
    name = "made.raw"
    data.tofile(name)
    with open(name, "ab") as stream:
        stream.write(bytes(result.nbytes))
    before = content(name)
    last = outcore.open(name, shape=data.shape, dtype=data.dtype)
    if "link" in how:
        (os.link if "hard" in how else os.symlink)(name, "made-link.raw")
        name = "made-link.raw"
    offset = (data.nbytes - 1) // 8 * 8  # of the last bytes of the input
    if how.startswith("mapped"):
        out = np.memmap(name, result.dtype, "r+", offset, result.shape)
    else:
        out = outcore.open(name, "r+", shape=result.shape, dtype=result.dtype, offset=offset)
    outs = one_or_tuple([out, *case.out[1:]])
    refused(case, "same-file", *case.paths[:-1], last, out=outs)
    last.close()
    if isinstance(out, outcore.DiskArray):
        out.close()
    assert content("made.raw") == before


def test_results_in_memory_that_overlap_an_input_are_refused(case):
    takes_arrays(case)
    data, result = case.inputs[-1], case.results[0]
    memory = np.zeros(data.nbytes + result.nbytes, np.uint8)
    source = memory[: data.nbytes].view(data.dtype).reshape(data.shape)
    source[...] = data
    start = (data.nbytes - 1) // 16 * 16
    out = memory[start : start + result.nbytes].view(result.dtype).reshape(result.shape)
    outs = one_or_tuple([out, *case.out[1:]])
    refused(case, "same-file", *case.paths[:-1], source, out=outs)
    np.testing.assert_array_equal(data, source)


def test_results_that_overlap_each_other_are_refused(case):
    takes_arrays(case)
    if len(case.results) == 1:
        pytest.skip("it has one result")
    most = max(case.results, key=lambda one: one.nbytes)
    memory = np.zeros(most.nbytes, np.uint8)
    mapped, same = [], []
    with open("made.raw", "wb") as stream:
        stream.write(bytes(most.nbytes))
    for one in case.results:
        mapped.append(memory[: one.nbytes].view(one.dtype).reshape(one.shape))
        same.append(outcore.open("made.raw", "r+", shape=one.shape, dtype=one.dtype, offset=0))
    refused(case, "bad-out", out=tuple(mapped))
    refused(case, "bad-out", out=tuple(same))
    refused(case, "bad-out", out=("made.npy",) * len(case.results))
    for one in same:
        one.close()


def test_read_only_results_are_refused(case):
    takes_arrays(case)
    result = case.results[0]
    fixed = np.zeros(result.shape, result.dtype)
    fixed.flags.writeable = False
    refused(case, "read-only", out=one_or_tuple([fixed, *case.out[1:]]))
    with outcore.create("made.npy", result.shape, result.dtype):
        pass
    with outcore.open("made.npy") as made:
        refused(case, "read-only", out=one_or_tuple([made, *case.out[1:]]))


def test_inputs_and_folders_that_are_not_there(case):
    refused(case, "not-found", *case.paths[:-1], "nothing.npy")
    refused(case, "not-found", out=one_or_tuple(["nowhere/out.npy", *case.out[1:]]))
    if "apply_along_axis" not in case.call.__code__.co_names:  # has it for the function
        with pytest.raises((outcore.errors.UsageError, TypeError), match="shape"):
            call(case, shape=(3,))


def test_the_budget_that_is_told_is_the_smallest(case):
    """With nine tenths of it, it is refused with as much; that it works is tested elsewhere."""
    needed = refused(case, "budget-too-small", memory=1000).needed
    assert 1000 < needed <= case.memory
    again = refused(case, "budget-too-small", memory=needed * 9 // 10).needed
    assert needed * 9 // 10 < again <= needed * 11 // 10


@pytest.fixture
def full_disk(tmp_path):
    """A function that mounts a file system of so many bytes at `full`, or makes it larger."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = []

    def mount(size):
        options = f"{'remount,' if mounted else ''}size={size}"
        words = ["mount", "-t", "tmpfs", "-o", options, "outcore-test", str(place)]
        if os.geteuid() or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("no right to mount a small file system: a full disk is NOT tested for real")
        mounted.append(size)
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("coded", [False, True])
def test_a_full_disk(case, full_disk, coded):
    """What is begun goes on when there is space, or nothing is left of it."""
    if coded:
        # Not allocated before it is written, and too random to become smaller.
        case.out = tuple(name.replace(".npy", ".zarr") for name in case.out)
        case.words = {**case.words, "compression": "zstd"}
        case.memory *= 32
    size = max(sum(one.nbytes for one in case.results) // 2**15, 1) * 4096
    place = full_disk(size)
    case.out = tuple(str(place / name) for name in case.out)
    full = 0
    for _ in range(20):
        if not fails_for_space(case, place):
            break
        full += 1
        size = size * 3 // 2 // 4096 * 4096 + 4096
        full_disk(size)
    assert full >= 1
    must_be_right(case, [outcore.open(name)[...] for name in case.out])
    assert sorted(os.listdir(place)) == sorted(map(os.path.basename, case.out))


def fails_for_space(case, place):
    """Whether the disk is too small; then what has begun can go on, or nothing is left."""
    try:
        call(case, resume=True)
    except outcore.errors.StorageError as error:
        told, code = str(error), error.code
    else:
        return False
    assert code == "disk-full", told
    assert "free" in told and "space" in told
    begun = jobs.unfinished(place)
    assert [one.done > 0 for one in begun] == [True] * bool(begun)
    assert begun or os.listdir(place) == []
    return True


@pytest.mark.parametrize("name", ["transpose", "sort", "fft", "cholesky", "median_filter"])
def test_a_dtype_of_the_result_is_refused_with_what_makes_one(tmp_path, name):
    """It was a TypeError of the function that makes the new array."""
    np.save(tmp_path / "a.npy", np.eye(6))
    more = (3,) if name == "median_filter" else ()
    with pytest.raises(outcore.errors.UsageError, match=r"outcore\.convert") as refused:
        find_public(name)(tmp_path / "a.npy", *more, dtype="f4", out=tmp_path / "b.npy")
    assert refused.value.code == "unknown-option"
    assert not (tmp_path / "b.npy").exists()


@pytest.mark.parametrize(
    "shared",
    [
        np.lib.stride_tricks.as_strided(np.zeros(3), (4, 3), (0, 8)),
        np.lib.stride_tricks.sliding_window_view(np.zeros(6), 3, writeable=True),
        # Windows that overlap in one element: no two steps are equal.
        np.lib.stride_tricks.sliding_window_view(np.zeros(9), 3, writeable=True)[::2],
    ],
    ids=["broadcast", "windows", "windows in steps"],
)
def test_a_result_is_not_stored_where_elements_share_memory(shared):
    with pytest.raises(outcore.errors.UsageError, match="elements occur more than once"):
        outcore.transpose(np.ones((3, 4)), out=shared)
    assert (shared == 0).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda: np.zeros((4, 3))[::-1],
        lambda: np.zeros((3, 4)).T,
        lambda: np.zeros((8, 9))[::2, 1::3],
        lambda: np.zeros((1, 4, 3))[0][:, ::-1],
        lambda: np.zeros((4, 3, 2))[..., 1],
        lambda: np.zeros((4, 3), "f4,f8")["f1"],
    ],
)
def test_a_result_is_stored_into_views_whose_elements_are_apart(view):
    out = view()
    data = np.arange(12.0).reshape(3, 4)
    outcore.transpose(data, out=out)
    np.testing.assert_array_equal(out, data.T)


def test_a_constant_that_is_not_used_may_be_anything():
    """As in SciPy: -1 is no uint8, and nothing is taken from it unless the mode is constant."""
    a = np.arange(25, dtype="u1").reshape(5, 5)
    found = outcore.ndimage.median_filter(a, 3, mode="nearest", cval=-1)[...]
    np.testing.assert_array_equal(ndimage.median_filter(a, 3, mode="nearest", cval=-1), found)
    with pytest.raises(outcore.errors.UsageError, match="cval"):
        outcore.ndimage.median_filter(a, 3, mode="constant", cval=-1)
