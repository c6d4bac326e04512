"""
Open arrays whose files were replaced, or removed, by somebody else.

What a handle reads are the elements of the array that was opened, or of one that means the same; never
bytes of another array in the old one's shape. What it writes goes nowhere else.
"""

import shutil
import threading

import numpy as np
import pytest

import outcore
from outcore import formats
from outcore.testing.sim import SimWorld

OLD, NEW = np.arange(64, dtype="f4").reshape(8, 8), np.full((8, 8), 7, "f4")


def refused(work, *codes):
    with pytest.raises(outcore.errors.StorageError) as error:
        work()
    assert error.value.code in codes, error.value
    assert "open" in error.value.message and "again" in error.value.message


def tree(path):
    return {str(name): name.stat().st_ino for name in sorted(path.rglob("*"))}


BY = {
    "create": lambda path, **words: outcore.create(path, data=NEW, **words, overwrite=True).close(),
    "convert": lambda path, **words: outcore.convert(
        path.parent / "b.npy", path, overwrite=True, **words
    ),
}
OTHERS = {
    "chunks": {"chunks": (2, 8)},
    "order": {"chunks": (4, 4), "order": "F"},
    "codec": {"chunks": (4, 4), "compression": "gzip"},
    "same": {"chunks": (4, 4)},
}


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("suffix", [".zarr", ".zarr2"])
def test_a_zarr_array_that_was_replaced(tmp_path, suffix, other, by, touched):
    path = tmp_path / f"a{suffix}"
    np.save(tmp_path / "b.npy", NEW)
    outcore.create(path, data=OLD, chunks=(4, 4)).close()
    with outcore.open(path, "r+") as a, outcore.open(path) as b:
        if touched:
            np.testing.assert_array_equal(a[...], OLD)
            np.testing.assert_array_equal(b[1], OLD[1])
        BY[by](path, **OTHERS[other])
        before = tree(path)
        refused(lambda: b[...], "file-changed")
        refused(lambda: a.write(np.s_[1, 1], 3), "file-changed")
        refused(lambda: a.write(..., 3), "file-changed")
        refused(lambda: a.append(OLD), "file-changed")
        refused(lambda: a.resize((3, 3)), "file-changed")
        refused(lambda: a.attrs.update(x=1), "file-changed")
    assert before == tree(path)
    np.testing.assert_array_equal(outcore.open(path)[...], NEW)


@pytest.mark.parametrize("step", ["reserve", "finish"])
@pytest.mark.parametrize("suffix", [".zarr", ".zarr2"])
def test_a_zarr_array_that_is_replaced_while_it_grows(tmp_path, suffix, step):
    """Who appends asks when he makes room, and once more when he tells the length."""
    path = tmp_path / f"a{suffix}"
    outcore.create(path, data=OLD, chunks=(4, 4)).close()
    before = {}

    def append(info):
        with formats.begin_growing(info) as array:
            if step == "finish":
                array.reserve((16, 8))
            outcore.create(path, data=NEW, chunks=(2, 8), overwrite=True).close()
            before.update(tree(path))
            array.reserve((16, 8)) if step == "reserve" else array.finish()

    with outcore.open(path, "r+") as a:
        refused(lambda: append(a.info), "file-changed")
    assert before == tree(path)
    np.testing.assert_array_equal(outcore.open(path)[...], NEW)


FILES = {
    "order": ("a.npy", {}, {"order": "F"}),
    "dtype": ("a.npy", {}, {"dtype": "f8"}),
    "axes": ("a.npy", {}, {"axes": 3}),
    "chunks": ("a.h5", {"chunks": (4, 4)}, {"chunks": (2, 8)}),
    "codec": ("a.h5", {"chunks": (4, 4)}, {"chunks": (4, 4), "compression": "gzip"}),
    "type": ("a.h5", {"chunks": (4, 4)}, {"chunks": (4, 4), "dtype": "f8"}),
}


@pytest.mark.parametrize("other", FILES)
def test_a_file_with_another_array_is_not_appended_to(tmp_path, other):
    name, old, new = FILES[other]
    path, more = tmp_path / name, {"resizable": True} if name == "a.h5" else {}
    a = outcore.create(path, data=OLD, **old, **more)
    words = {**new, **more}
    data = NEW.reshape((4, 2, 8) if words.pop("axes", 2) == 3 else NEW.shape)
    data = data.astype(words.pop("dtype", "f4"))
    outcore.create(path, data=data, **words, overwrite=True).close()
    before = path.read_bytes()
    for change in (lambda: a.append(OLD), lambda: a.resize((16, 8))):
        with pytest.raises(outcore.OutcoreError, match="open it again") as error:
            change()
        assert error.value.code == "file-changed"
    assert before == path.read_bytes()


def test_shards_that_were_replaced(tmp_path):
    path = tmp_path / "a.zarr"
    a = outcore.create(path, data=OLD, chunks=(2, 2), shards=(4, 4))
    outcore.create(path, data=NEW, chunks=(4, 4), shards=(8, 8), overwrite=True).close()
    refused(lambda: a[...], "file-changed")
    refused(lambda: a.write(..., 3), "file-changed")
    np.testing.assert_array_equal(outcore.open(path)[...], NEW)


@pytest.mark.parametrize("suffix", [".zarr", ".zarr2"])
def test_attributes_and_lengths_may_change_through_another_handle(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    a = outcore.create(path, data=OLD, chunks=(4, 4))
    with outcore.open(path, "r+") as b:
        b.attrs["x"] = 1
        np.testing.assert_array_equal(a[...], OLD)
        b.append(NEW)
        np.testing.assert_array_equal(a[...], OLD)
        a[0] = 5
        assert (b[0] == 5).all() and b.shape == (16, 8)
        b.resize((4, 8))
        np.testing.assert_array_equal(a[1:4], OLD[1:4])
        refused(lambda: a[...], "file-changed")  # chunks that are gone are not the fill value
        refused(lambda: a.write(np.s_[7], 1), "file-changed")


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("suffix", [".zarr", ".zarr2"])
def test_nothing_is_made_anew_of_a_store_that_was_removed(tmp_path, suffix, compression, touched):
    path = tmp_path / f"a{suffix}"
    a = outcore.create(path, (8, 8), "f4", chunks=(4, 4), compression=compression)
    if touched:
        a[:4] = 1
    shutil.rmtree(path)
    refused(lambda: a[...], "not-found")
    refused(lambda: a.write(..., 1), "not-found")
    refused(lambda: a.append(NEW), "not-found", "file-changed")
    assert not path.exists()


def test_an_array_without_a_folder_of_its_own_reads_as_its_fill_value(tmp_path):
    """Only the metadata of a group above tell of it; nothing was written to it yet."""
    import json

    path = tmp_path / "g.zarr"
    outcore.create(f"{path}::/x", (4, 4), "f4", fill_value=3).close()
    member = json.loads((path / "x" / "zarr.json").read_text())
    group = json.loads((path / "zarr.json").read_text())
    group["consolidated_metadata"] = {
        "kind": "inline",
        "must_understand": False,
        "metadata": {"x": member},
    }
    (path / "zarr.json").write_text(json.dumps(group))
    shutil.rmtree(path / "x")
    with outcore.open(f"{path}::/x") as a:
        assert (a[...] == 3).all()
        group["consolidated_metadata"]["metadata"]["x"] = {**member, "fill_value": 4.0}
        (path / "zarr.json").write_text(json.dumps(group))
        refused(lambda: a[...], "file-changed")


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_several_who_create_one_array_leave_one_of_theirs(tmp_path, compression):
    path = tmp_path / "a.zarr"
    start = threading.Barrier(3)

    def make(number):
        start.wait()
        for _ in range(4):
            try:
                with outcore.create(
                    path,
                    (16, 16),
                    "f4",
                    chunks=(2, 16),
                    compression=compression,
                    overwrite=True,
                ) as a:
                    for row in range(0, 16, 2):
                        a[row : row + 2] = number
            except (outcore.errors.StorageError, outcore.errors.FormatError):
                pass  # somebody else's took its place

    makers = [threading.Thread(target=make, args=(k + 1,)) for k in range(3)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    found = outcore.open(path)[...]
    assert len(np.unique(found)) == 1 and found[0, 0] in (1, 2, 3)


def test_who_writes_into_an_array_of_another_is_told(tmp_path):
    path = tmp_path / "a.zarr"
    first = outcore.create(path, (8, 8), "f4", chunks=(2, 8), compression=None)
    first[:4] = 1
    second = outcore.create(path, (8, 8), "f4", chunks=(2, 8), compression=None, overwrite=True)
    second[:6] = 2
    refused(lambda: first.write(np.s_[4:], 1), "file-changed")
    second[6:] = 2
    assert (outcore.open(path)[...] == 2).all()


def test_ranks_are_told_of_an_array_that_was_replaced(tmp_path):
    path = tmp_path / "a.zarr"
    outcore.create(path, data=OLD, chunks=(4, 4)).close()

    def body(t):
        with outcore.open(path, comm=t) as a:
            t.barrier()
            if t.rank == 0:
                outcore.create(path, data=NEW, chunks=(2, 8), overwrite=True).close()
            t.barrier()
            with pytest.raises(outcore.errors.CollectiveError, match="file-changed"):
                a.read_all(np.s_[t.rank :: 2])

    SimWorld(2).run(body)
