"""
True bytes: what the system sees equals what `explain` said.

A child reads or writes one section under `strace`; the calls on the array's file between two marks
are counted and compared with the plan's cost.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import outcore

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

# In the child, before it looks: `first` is a section that is read, once the file has settled.
CHILD = textwrap.dedent(
    """
    import os, sys, time
    import numpy as np
    import outcore

    path, key, engine, method, write, *first = sys.argv[1:]
    hints = outcore.Hints(engine=engine, method=method)
    array = outcore.open(path, "r+", hints=hints)
    key = eval("np.s_" + key)
    for other in first:
        outcore._core.keep_chunks_after(0.02)
        time.sleep(0.05)
        array.read(eval("np.s_" + other))
    said = array.explain(key, write=write == "write")
    value = np.ones(array[key].shape, array.dtype) if write == "write" else None
    os.access("/outcore-mark", os.F_OK)
    if write == "write":
        array.write(key, value)
    else:
        array.read(key)
    os.access("/outcore-mark", os.F_OK)
    print(said.reads, said.read_bytes, said.writes, said.written_bytes)
    """
)

LINE = re.compile(r"^(\d+\.\d+) (\w+)\((.*)\s=\s(-?\d+)")


def _trace(tmp_path: Path, path: str, *words: str) -> tuple[list[int], list[int]]:
    """What explain said, and what strace saw: reads, bytes read, writes, bytes written."""
    tmp_path.mkdir(exist_ok=True)
    log = tmp_path / "strace"  # one file per thread, so that no call is cut in two
    calls = "read,readv,pread64,preadv,preadv2,write,writev,pwrite64,pwritev,pwritev2"
    done = subprocess.run(
        ["strace", "-ff", "-ttt", "-y", "-o", str(log)]
        + ["-e", f"trace={calls},access,faccessat,faccessat2", sys.executable, "-c", CHILD]
        + [path, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(outcore.__file__).parents[1])},
    )
    said = [int(word) for word in done.stdout.split()]
    lines = sorted(
        (float(found[1]), found[2], found[3], int(found[4]))
        for file in tmp_path.glob("strace.*")
        for line in file.read_text(errors="replace").splitlines()
        if (found := LINE.match(line))
    )
    begin, end = (when for when, _, words, _ in lines if "outcore-mark" in words)
    seen = [0, 0, 0, 0]
    for when, call, arguments, result in lines:
        if call == "pread64" and arguments.rstrip().endswith(", 128, 0)"):
            continue  # the first access sees whether the header is still what was read at opening
        if begin < when < end and re.search(f"<{re.escape(path.split('::')[0])}[>/]", arguments):
            at = 0 if "read" in call else 2
            seen[at] += 1
            seen[at + 1] += result
    return said, seen


KEYS = ["[100:200, ::3]", "[:, 7]", "[::7, ::5]", "[5, 3:900]", "[10:400]", "[::-2, 5:-5]"]


@pytest.fixture
def npy(tmp_path: Path) -> str:
    """An array of 4 MB."""
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000 * 1000, dtype=np.float32).reshape(1000, 1000))
    return str(path)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("method", ["auto", "window", "list", "straight"])
def test_reads_are_what_explain_said(tmp_path: Path, npy: str, key: str, method: str) -> None:
    """Calls and bytes, for every method that is made of calls."""
    try:
        outcore.open(npy, hints={"method": method}).explain(eval("np.s_" + key))
    except outcore.OutcoreError:
        pytest.skip("the method does not serve this section")
    said, seen = _trace(tmp_path, npy, key, "threads", method, "read")
    # Past the page cache whole blocks are asked for; the last one is cut off by the end of the file.
    if 0 < said[1] - seen[1] < 4096:
        said[1] = seen[1]
    assert said == seen


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("method", ["auto", "straight"])
def test_writes_are_what_explain_said(tmp_path: Path, npy: str, key: str, method: str) -> None:
    """Calls and bytes of writes; mapped stores are no calls and are said to be none."""
    try:
        a = outcore.open(npy, "r+", hints={"method": method})
        a.explain(eval("np.s_" + key), write=True)
    except outcore.OutcoreError:
        pytest.skip("the method does not serve this section")
    said, seen = _trace(tmp_path, npy, key, "threads", method, "write")
    assert said == seen


@pytest.mark.parametrize("name", ["a.zarr", "a.h5::/x"])
def test_reads_of_chunks_are_what_explain_said(tmp_path: Path, name: str) -> None:
    """Chunks that are kept are said not to be read, and are not; others are."""
    data = np.random.default_rng(0).integers(0, 2**20, (200, 300), dtype="i4")
    path = f"{tmp_path}/{name}"
    outcore.create(path, data=data, chunks=(40, 60), compression="gzip").close()
    words = ("[:, 7:70]", "threads", "auto", "read")
    first = ["[...]"]  # so that HDF5's table of chunks is there
    said, seen = _trace(tmp_path / "one", path, *words, *first)
    assert said == seen and said[0] == 10
    kept, seen = _trace(tmp_path / "two", path, *words, *first, "[:, 5]")
    assert kept == seen
    assert kept[0] in (5, 10)  # nothing is kept on some file systems
    assert kept[0] == 10 or kept[1] < said[1]
