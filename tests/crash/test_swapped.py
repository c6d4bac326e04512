"""A flush covers what was written while another thread changed the shape, and what is still owed."""

from __future__ import annotations

import shutil
import textwrap
import threading

import numpy as np
import pytest

import outcore
from cases import MORE, NEW, OLD, OPEN, run

traced = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: crashes are NOT tested"
)
KINDS = ["npy", "raw", "zarr", "zarr zstd", "zarr shards"]

# A write that has begun, and stops where its key is read, until the shape has changed.
RUNNING = """
    import threading
    inside, go = threading.Event(), threading.Event()
    class Row:
        def __index__(self):
            inside.set()
            assert go.wait(60)
            return 5
    def write():
        a[Row()] = NEW[5]
    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(60)
    CHANGE
    go.set()
    thread.join()
    a.flush()
"""
# A write that ends, or is started, between the flush that precedes the change and the change.
BETWEEN = """
    from outcore import formats
    growing = formats.begin_growing
    def later(info):
        WRITE
        return growing(info)
    formats.begin_growing = later
    CHANGE
    a.flush()
"""
WRITES = {
    "running": RUNNING,
    "ended": BETWEEN.replace("WRITE", "a[5] = NEW[5]"),
    "started": BETWEEN.replace("WRITE", "a.iwrite(5, NEW[5])"),
}


@traced
@pytest.mark.parametrize(
    ("kind", "write"),
    [(kind, "running") for kind in KINDS]
    + [(kind, write) for kind in ("npy", "zarr zstd") for write in ("ended", "started")],
)
def test_a_write_while_the_array_grows(tmp_path, kind, write):
    change, grown = "a.append(MORE)", np.concatenate([OLD, MORE])
    if kind == "raw":  # its length is its shape: bytes beyond the old ones may be anything
        change, grown = "a.resize((60, 40))", OLD
    expected = grown.copy()
    expected[5] = NEW[5]

    def judge(found, when, done=False):
        rows = len(found)
        assert rows in (len(OLD), len(grown)), when
        assert ((found == grown[:rows]) | (found == expected[:rows])).all(), when
        assert not done or np.array_equal(expected, found), when

    script = OPEN + textwrap.dedent(WRITES[write]).replace("CHANGE", change)
    run(tmp_path, kind, script, True, judge)


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.h5"])
def test_a_flush_after_close_does_not_say_safe_of_what_is_not(tmp_path, name):
    with outcore.create(tmp_path / name, data=OLD) as a:
        a.flush()
    a.flush()  # nothing is owed
    a = outcore.open(tmp_path / name, "r+")
    a[3] = 0
    a.close()
    for _ in range(2):
        with pytest.raises(
            outcore.errors.UsageError, match=r"before its writes were flushed.*write the data again"
        ) as caught:
            a.flush()
        assert caught.value.code == "closed"


def test_a_write_that_ends_after_another_thread_closed_the_array_is_owed(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=OLD)
    a.flush()
    inside, go = threading.Event(), threading.Event()

    class Row:
        def __index__(self) -> int:
            inside.set()
            assert go.wait(60)
            return 5

    def write() -> None:
        a[Row()] = NEW[5]
        with pytest.raises(outcore.errors.UsageError, match="by another thread"):
            a.flush()
        done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(60)
    a.close()
    a.flush()  # the write has not ended
    go.set()
    thread.join()
    assert done
    np.testing.assert_array_equal(NEW[5], np.load(tmp_path / "a.npy")[5])
