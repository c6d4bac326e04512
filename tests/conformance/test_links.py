"""
Stores with symbolic links in them: read through, never written or removed through if they lead out.

A store may come from elsewhere. Whoever appends to it, writes it or makes it smaller must not change
what its links lead to.
"""

import contextlib
import os
import shutil

import numpy as np
import pytest

import outcore
from outcore import formats

ONES = np.ones((8, 8), "f4")


def snapshot(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def outside(tmp_path):
    """Somebody else's files, under the names that chunks have."""
    folder = tmp_path / "outside"
    for name in ("0", "1", "9"):
        (folder / name).mkdir(parents=True)
        for below in ("0", "1", "7"):
            (folder / name / below).write_bytes(b"precious" * 8)
            (folder / f"{name}.{below}").write_bytes(b"precious" * 8)
    return folder


STORES = {
    "raw": {"suffix": ".zarr", "compression": None},
    "zstd": {"suffix": ".zarr", "compression": "zstd"},
    "shards": {"suffix": ".zarr", "compression": "zstd", "shards": (8, 8)},
    "zarr2": {"suffix": ".zarr2", "compression": None, "separator": "/"},
    "zarr2 zstd": {"suffix": ".zarr2", "compression": "zstd", "separator": "/"},
}
CHANGES = {
    "append": lambda a: a.append(np.ones((40, 8), "f4")),
    "longer": lambda a: a.resize((48, 8)),
    "smaller": lambda a: a.resize((3, 3)),
    "write": lambda a: a.write(..., 2),
    "part": lambda a: a.write(np.s_[1, 1], 2),
}


def store(tmp_path, suffix, **options):
    path = tmp_path / f"a{suffix}"
    outcore.create(path, data=ONES, chunks=(4, 4), **options).close()
    return path


def replaced(path, target):
    """Put a link in the place of a folder or file."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("level", ["top", "numeric"])
def test_nothing_outside_a_store_changes(tmp_path, outside, kind, what, level):
    path = store(tmp_path, **STORES[kind])
    top = path if kind.startswith("zarr2") else path / "c"
    if level == "numeric" or kind.startswith("zarr2"):
        replaced(top / "0", outside / "0")
        (top / "9").symlink_to(outside / "9")
    else:
        replaced(top, outside)
    before = snapshot(outside)
    with outcore.open(path, "r+") as a:
        shape = a.shape
        if what == "smaller" and level == "top" and not kind.startswith("zarr2"):
            with pytest.raises(outcore.errors.StorageError) as refused:
                CHANGES[what](a)
            assert (refused.value.code, a.shape) == ("link-leads-out", shape)
            assert "mount" in refused.value.message
        else:  # refused, or done without what lies outside
            with contextlib.suppress(outcore.errors.StorageError, outcore.errors.FormatError):
                CHANGES[what](a)
    assert before == snapshot(outside)


def test_write_through_a_link_out_of_the_store_is_refused(tmp_path, outside):
    path = store(tmp_path, ".zarr", compression=None)
    replaced(path / "c" / "0", outside / "0")
    with outcore.open(path, "r+") as a:
        with pytest.raises(outcore.errors.StorageError, match="mount the other folder") as refused:
            a[0, 0] = 2
        assert (refused.value.code, refused.value.path) == (
            "link-leads-out",
            str(path / "c" / "0" / "0"),
        )
        a[4:] = 2  # not on the way


def test_a_chunk_that_is_a_link_is_not_followed_in_writing(tmp_path, outside):
    before = snapshot(outside)
    path = store(tmp_path, ".zarr", compression=None)
    replaced(path / "c" / "0" / "0", outside / "0" / "0")
    with outcore.open(path, "r+") as a:
        with pytest.raises(outcore.errors.StorageError) as refused:
            a[0, 0] = 2
        assert refused.value.code == "link-leads-out"
    assert before == snapshot(outside)
    # A chunk that is replaced whole takes the place of the link.
    shutil.rmtree(path)
    path = store(tmp_path, ".zarr", compression="zstd")
    replaced(path / "c" / "0" / "0", outside / "0" / "0")
    with outcore.open(path, "r+") as a:
        a[...] = 3
        assert (a[...] == 3).all()
    assert before == snapshot(outside) and not (path / "c" / "0" / "0").is_symlink()


def test_chunks_on_another_disk_are_read_through_a_link(tmp_path):
    path = store(tmp_path, ".zarr", compression="zstd")
    (path / "c").rename(tmp_path / "elsewhere")
    (path / "c").symlink_to(tmp_path / "elsewhere")
    with outcore.open(path) as a:
        np.testing.assert_array_equal(a[...], ONES)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_link_that_stays_inside_is_followed(tmp_path, compression):
    path = store(tmp_path, ".zarr", compression=compression)
    (path / "c").rename(path / "chunks")
    (path / "c").symlink_to("chunks")
    with outcore.open(path, "r+") as a:
        a[1:5, 2] = 7
        a[7] = 5
        ours = ONES.copy()
        ours[1:5, 2], ours[7] = 7, 5
        np.testing.assert_array_equal(a[...], ours)
    assert (path / "c").is_symlink()


@pytest.mark.parametrize("suffix", [".zarr", ".zarr2"])
def test_an_array_of_a_group_that_is_a_link_out_is_neither_opened_for_writing_nor_replaced(
    tmp_path, suffix
):
    root, other = f"{tmp_path}/g{suffix}", tmp_path / f"other{suffix}"
    outcore.create(f"{root}::/x", data=ONES).close()
    outcore.create(other, data=ONES).close()
    os.symlink(other, f"{root}/y")
    before = snapshot(other)
    with outcore.open(f"{root}::/y") as a:
        assert (a[...] == 1).all()
    with pytest.raises(outcore.errors.StorageError) as refused:
        outcore.open(f"{root}::/y", "r+")
    assert refused.value.code == "link-leads-out"
    with pytest.raises(outcore.errors.StorageError) as refused:
        outcore.create(f"{root}::/y", (3,), "f4")
    assert refused.value.code == "link-leads-out"
    with pytest.raises(outcore.errors.StorageError):
        outcore.convert(f"{root}::/x", f"{root}::/y", overwrite=True)
    assert before == snapshot(other)
    # A link that the user names is one that he means.
    os.symlink(other, f"{tmp_path}/link{suffix}")
    with outcore.open(f"{tmp_path}/link{suffix}", "r+") as a:
        a[0] = 5
    assert (outcore.open(other)[0] == 5).all()


def test_metadata_that_are_a_link_out_are_not_written(tmp_path):
    path = store(tmp_path, ".zarr")
    (path / "zarr.json").rename(tmp_path / "precious.json")
    (path / "zarr.json").symlink_to(tmp_path / "precious.json")
    before = (tmp_path / "precious.json").read_bytes()
    with outcore.open(path, "r+") as a:
        for change in (lambda: a.attrs.update(x=1), lambda: a.append(ONES)):
            with pytest.raises(outcore.errors.StorageError) as refused:
                change()
            assert refused.value.code == "link-leads-out"
        assert a.shape == (8, 8)
    assert before == (tmp_path / "precious.json").read_bytes()


def test_journals_and_unfinished_copies_are_never_reached_through_links(tmp_path):
    """Their names can be told in advance: in a shared folder somebody may have put links there."""
    np.save(tmp_path / "a.npy", ONES)
    victim = tmp_path / "victim"
    (tmp_path / "b.zarr.outcore-journal").symlink_to(victim)
    with pytest.raises(outcore.errors.StorageError):
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.zarr")
    assert not victim.exists()
    (tmp_path / "b.zarr.outcore-journal").unlink()
    (tmp_path / "c.npy").symlink_to(victim)
    info = formats.create_info(tmp_path / "c.npy", (3,), "f4")
    assert info.shape == (3,)  # a link that the user names is followed


def test_removal_never_goes_through_a_link(tmp_path, outside):
    """A folder beyond the new shape that is a link: the link goes, not what it leads to."""
    path = store(tmp_path, ".zarr")
    replaced(path / "c" / "1", outside / "1")
    before = snapshot(outside)
    with outcore.open(path, "r+") as a:
        a.resize((4, 8))
    assert before == snapshot(outside) and not (path / "c" / "1").is_symlink()
