"""Decoded chunks that are kept: counted as free, used instead of reading, never older than the file."""

from __future__ import annotations

import mmap
import os
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import outcore
from outcore import _core

DATA = np.random.default_rng(1).integers(0, 2**20, (200, 300), dtype="i4")
KINDS = {
    "zarr2": ("a.zarr", {"format": "zarr2", "compression": "zstd"}),
    "zarr3": ("a.zarr", {"compression": "zstd"}),
    "shards": ("a.zarr", {"shards": (80, 96), "compression": "gzip"}),
    "h5": ("a.h5::/x", {"compression": "gzip"}),
}
CHUNKS = (40, 48)
QUIET = 0.03
"""A file that was left alone for so long is kept; in reality it is longer, for slow disks."""


def let_settle():
    time.sleep(QUIET + 0.02)


def forget():
    with outcore.memory("4 KiB"):
        assert _core.kept_chunks() == (0, 0)


@pytest.fixture(autouse=True)
def quiet():
    _core.keep_chunks_after(QUIET)
    forget()
    yield
    _core.keep_chunks_after(10**6)
    forget()


@pytest.fixture(params=KINDS)
def array(request, tmp_path):
    """An array that nobody has changed for a while."""
    name, options = KINDS[request.param]
    with outcore.create(f"{tmp_path}/{name}", data=DATA, chunks=CHUNKS, **options) as made:
        path = made.path
    probe = outcore.create(tmp_path / "probe.zarr", data=DATA, chunks=CHUNKS, compression="zstd")
    let_settle()
    probe[:, 0]
    if _core.kept_chunks() == (0, 0):
        pytest.skip("nothing is kept on this file system")
    probe.close()
    forget()
    with outcore.open(path, "r+") as a:
        yield a


def counted(a, key):
    """Elements of a section, and what was done for them."""
    before = a.stats()
    result = a[key]
    counts = {name: n for name, n in a.stats().items() if not name.endswith("_seconds")}
    return result, {name: n - before[name] for name, n in counts.items() if n != before[name]}


def numbers(report):
    return report.reads, report.read_bytes, report.decodes, report.cached_chunks


def test_the_second_column_reads_nothing(array):
    said = array.explain(np.s_[:, 5])
    _core.reset_memory_peak()
    column, done = counted(array, np.s_[:, 5])
    np.testing.assert_array_equal(DATA[:, 5], column)
    assert (5, said.read_bytes, 5) == (done["reads"], done["read_bytes"], done["decodes"])
    assert "cached_chunks" not in done
    assert _core.kept_chunks() == (5, 5 * 8192)  # of 7680 bytes, in whole pages
    peak = _core.memory_state()[2]
    again = array.explain(np.s_[:, 6])
    assert numbers(again) == (0, 0, 0, 5)
    assert "5 cached" in str(again)
    _core.reset_memory_peak()
    column, done = counted(array, np.s_[:, 6])
    np.testing.assert_array_equal(DATA[:, 6], column)
    assert {"rounds": said.rounds, "cached_chunks": 5} == done
    assert _core.memory_state()[2] == peak
    # All else that a plan says is the same, and another array of the same file finds them too.
    assert said.peak_bytes == again.peak_bytes and said.budget == again.budget
    with outcore.open(array.path) as other:
        column, done = counted(other, np.s_[::-3, 7])
        np.testing.assert_array_equal(DATA[::-3, 7], column)
        assert done["cached_chunks"] == 5 and "reads" not in done


def test_what_is_used_whole_or_does_not_fit_is_not_kept(array):
    np.testing.assert_array_equal(DATA, array[...])
    np.testing.assert_array_equal(DATA[40:120, 48:], array[40:120, 48:])
    assert _core.kept_chunks() == (0, 0)
    with outcore.memory("256 KiB" if "zarr" not in array.path else "1 MiB"):
        array[::7, ::5]  # 35 chunks
        kept = _core.kept_chunks()[1]
    assert kept <= 2**18
    forget()
    with outcore.memory("4 MiB"):
        array[:50, :50]  # one of four is used whole
    assert _core.kept_chunks()[0] == 3


def test_explain_looks_and_does_not_touch(array):
    """Chunks of which a part is used count; a chunk that is used whole is read anew."""
    array[:, 5]
    assert numbers(array.explain(np.s_[:39, :50]))[::3] == (1, 1)
    assert numbers(array.explain(np.s_[:40, :50]))[::3] == (2, 0)
    assert array.explain(np.s_[:, 5], write=True).cached_chunks == 0
    forget()
    assert array.explain(np.s_[:, 5]).cached_chunks == 0


def test_kept_chunks_are_free_memory(array):
    array[...]  # HDF5's table of chunks is held from now on
    with outcore.memory("64 MiB") as limit:
        before = array.explain(np.s_[:, 5])
        free = _core.memory_state()
        for column in range(0, 300, 48):
            array[:, column]
        assert _core.kept_chunks()[0] == 35
        assert (free[:2], before.budget) == (_core.memory_state()[:2], array.budget)
        assert before.peak_bytes == array.explain(np.s_[:, 5]).peak_bytes
        # Whoever takes all gets it at once, and nothing is refused for what was kept.
        with _core.Reservation("a task", _core.memory_state()[1]):
            assert _core.kept_chunks() == (0, 0)
            assert int(limit) == _core.memory_state()[0]
            with pytest.raises(outcore.BudgetError) as caught:
                array[:, 5]
        needed = caught.value.needed
        array[:, 5]
        with (
            _core.Reservation("a task", _core.memory_state()[1]),
            pytest.raises(outcore.BudgetError) as again,
        ):
            array[:, 5]
        assert needed == again.value.needed
        array[:, 5]
        assert _core.kept_chunks()[0] == 5
    with outcore.memory("64 KiB"):
        assert _core.kept_chunks()[1] <= 16 << 10


def test_a_hint_switches_it_off(array):
    with outcore.open(array.path, hints={"cache": "bypass"}) as plain:
        for _ in range(2):
            _, done = counted(plain, np.s_[:, 5])
            assert done["decodes"] == 5
    assert _core.kept_chunks() == (0, 0)
    array[:, 5]
    with outcore.open(array.path, hints={"cache": "bypass"}) as plain:
        assert plain.explain(np.s_[:, 5]).reads == 5
        assert counted(plain, np.s_[:, 5])[1]["reads"] == 5


def test_own_writes_are_seen_by_every_handle(array):
    other = outcore.open(array.path, "r+")
    expected = DATA.copy()
    for k in range(4):
        for a in (array, other):
            np.testing.assert_array_equal(expected[:, 5], a[:, 5])
        expected[10:150, k] = expected[7, 5] = -k
        (array, other)[k % 2][10:150, k] = -k
        other[7, 5] = -k
        np.testing.assert_array_equal(expected[:, :9], array[:, :9])
        let_settle()
    array[:, 5]
    assert array.explain(np.s_[:, 5]).cached_chunks == 5
    array.resize((230, 300)) if array.format != "hdf5" else None
    np.testing.assert_array_equal(expected[:, 5], array[:200, 5])
    other.close()
    np.testing.assert_array_equal(expected[:, 5], array[:200, 5])


def test_a_write_that_fails_half_way_leaves_no_old_elements(array):
    """The disk is full: some chunks are replaced, some are not."""
    array[:, 5], array[:, 50]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        with pytest.raises(outcore.errors.StorageError):
            array[:, :60] = 7  # chunks of sevens only are small
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with outcore.open(array.path, hints={"cache": "bypass"}) as plain:
        for column in (5, 50):
            np.testing.assert_array_equal(plain[:, column], array[:, column])


def test_missing_chunks_are_looked_for_each_time(tmp_path, array):
    suffix, options = (".h5::/x", KINDS["h5"][1]) if ".h5" in array.path else (".zarr", {})
    options = {"compression": "gzip", **options}
    made = outcore.create(
        f"{tmp_path}/m{suffix}", (80, 96), "i4", chunks=CHUNKS, fill_value=9, **options
    )
    made[:40, :48] = 1
    made.close()
    let_settle()
    with outcore.open(made.path) as reader:
        for _ in range(3):
            np.testing.assert_array_equal([1] * 40 + [9] * 40, reader[:, 3])
        assert reader.explain(np.s_[:, 3]).cached_chunks == 1
        with outcore.open(made.path, "r+") as writer:
            writer[40:, :48] = 2
        np.testing.assert_array_equal([1] * 40 + [2] * 40, reader[:, 3])


def test_a_damaged_file_is_not_hidden(array):
    """Chunks that were kept before the damage, by somebody who sets the time back."""
    array[:, 5]
    assert _core.kept_chunks()[0] == 5
    root = array.path.split("::")[0]
    files = [root] if os.path.isfile(root) else []
    for folder, _, names in os.walk(root):
        files += [os.path.join(folder, name) for name in names if not name.endswith((".json", "y"))]
    for name in files:
        then = os.stat(name)
        with open(name, "r+b") as file:
            whole = file.read()
            file.seek(0)
            file.write(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
        os.utime(name, ns=(then.st_atime_ns, then.st_mtime_ns))
    try:
        seen = array[:, 5]
    except outcore.OutcoreError:
        return
    assert not np.array_equal(DATA[:, 5], seen)


def test_verify_reads_the_disk(array):
    array[:, 5]
    before = _core.kept_chunks()
    assert outcore.verify(array.path) == []
    assert before == _core.kept_chunks()
    assert array.explain(np.s_[:40, :48]).reads == 1


def test_a_forked_child_begins_without_any(array):
    array[:, 5]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _core.keep_chunks_after(QUIET)
        right = _core.kept_chunks() == (0, 0) and (array[:, 5] == DATA[:, 5]).all()
        right = right and (array[:, 6] == DATA[:, 6]).all() and _core.kept_chunks()[0] == 5
        os.write(write, b"y" if right else b"n")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 1) == b"y"
    os.close(read)
    os.close(write)
    assert _core.kept_chunks()[0] == 5


def test_threads_that_want_the_same_chunks(array):
    """Some find what others keep, some see it give way; all get true elements."""
    stop = threading.Event()

    def press():
        while not stop.is_set():
            with _core.Reservation("a task", _core.memory_state()[1] // 2):
                pass

    def columns(seed):
        rng = np.random.default_rng(seed)
        for column in rng.integers(0, 300, 60):
            np.testing.assert_array_equal(DATA[:, column], array[:, column])

    with outcore.memory("8 MiB"), ThreadPoolExecutor(5) as pool:
        pressing = pool.submit(press)
        try:
            list(pool.map(columns, range(4)))
        finally:
            stop.set()
        pressing.result()
        assert _core.memory_state()[0] <= 8 << 20
    assert array.stats()["cached_chunks"] > 0


def test_stores_through_a_mapping_of_another_program(tmp_path):
    """What `docs/explain/memory.md` says: they need not show, but to who bypasses the cache."""
    path = tmp_path / "a.zarr"
    words = {"format": "zarr2", "compression": outcore.types.Codec("shuffle")}
    outcore.create(path, data=np.zeros((64, 64), "i4"), chunks=64, **words).close()
    name = path / "0.0"
    with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as theirs, outcore.open(path) as a:
        theirs[0] = 1  # the page is dirty, and the file has a new time
        let_settle()
        assert a[0, 0] == 1 and a[0, 0] == 1
        theirs[0] = 2
        assert a[0, 0] in (1, 2)
        with outcore.open(path, hints={"cache": "bypass"}) as b:
            assert b[0, 0] == 2
        theirs[0] = 3
        os.utime(name)
        assert a[0, 0] == 3
    plain = tmp_path / "a.npy"
    np.save(plain, np.zeros((64, 64), "i4"))
    with outcore.open(plain) as a:
        theirs = np.load(plain, mmap_mode="r+")
        for value in range(4):
            theirs[5, 5] = value
            assert a[5, 5] == value and a[:, 5].max() == value
