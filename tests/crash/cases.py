"""
Crash cases: a script, the array before it, and what may be found after a crash.

See `traced` for what is lost at a crash. Each case says what may be found; after the last call,
which is that of a `flush`, only the new array may be.
"""

from __future__ import annotations

import shutil
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from traced import Trace

import outcore
from outcore.formats import unfinished
from outcore.formats.hdf5 import redo as hdf5_redo

SHAPE = (60, 40)
OLD = np.arange(1, 2401, dtype="<i4").reshape(SHAPE)
NEW = OLD + 100_000
MORE = np.arange(1, 401, dtype="<i4").reshape(10, 40) + 500_000
KINDS = {
    "npy": ("a.npy", {}),
    "npy F": ("a.npy", {"order": "F"}),
    "raw": ("a.raw", {}),
    "zarr": ("a.zarr", {"chunks": (20, 40)}),
    "zarr zstd": ("a.zarr", {"chunks": (20, 20), "compression": "zstd"}),
    "zarr shards": ("a.zarr", {"chunks": (10, 20), "shards": (20, 40)}),
    "zarr shards gzip": ("a.zarr", {"chunks": (10, 20), "shards": (20, 40), "compression": "gzip"}),
    "h5": ("a.h5", {}),
}
#: What takes its name as one thing, and may replace another.
MADE = {**KINDS, "parts": ("a.parts", {"parts": 2, "stripe": 7})}
# Of these formats, arrays that can become longer are stored otherwise than those that cannot.
GROWING = {
    **{kind: what for kind, what in KINDS.items() if kind not in ("npy F", "h5")},
    "h5": ("a.h5", {"chunks": (16, 40), "resizable": True}),
    "h5 gzip": ("a.h5", {"chunks": (16, 40), "resizable": True, "compression": "gzip"}),
    "nc": ("a.nc", {"chunks": (16, 20), "dims": ("t", "x"), "unlimited": ("t",)}),
    "netcdf3": (
        "a.nc",
        {"format": "netcdf3_classic", "dims": ("t", "x"), "unlimited": "t", "fill_value": 0},
    ),
    "parts": MADE["parts"],
}
# No mapped writes: they are no calls. One thread: calls come in one order.
START = textwrap.dedent(
    """
    import sys
    import numpy as np, outcore
    path, options = sys.argv[1] + "/" + sys.argv[2], eval(sys.argv[3])
    hints = {"engine": "threads", "threads": 1, "method": "straight", "cache": "keep"}
    OLD = np.arange(1, 2401, dtype="<i4").reshape(60, 40)
    NEW = OLD + 100_000
    MORE = np.arange(1, 401, dtype="<i4").reshape(10, 40) + 500_000
    known = {"shape": (60, 40), "dtype": "<i4"} if path.endswith("raw") else {}
    """
)
# From a file elsewhere: what a conversion does to its target's folder.
CONVERT = textwrap.dedent(
    """
    import tempfile
    outcore.memory("8 MiB")
    with tempfile.TemporaryDirectory() as elsewhere:
        np.save(elsewhere + "/source.npy", NEW)
        outcore.convert(elsewhere + "/source.npy", path, overwrite=True, **options)
    """
)
OPEN = 'a = outcore.open(path, "r+", hints=hints, **known)\n'


def run(
    tmp_path: Path,
    kind: str,
    script: str,
    old: bool,
    judge: Callable,
    kinds: dict[str, tuple[str, dict]] = KINDS,
) -> None:
    """Record `script` on a folder, with or without an old array; look at every crash."""
    name, options = kinds[kind]
    folder = tmp_path / "disk"
    folder.mkdir()
    if old:
        outcore.create(folder / name, data=OLD, **options).close()
    trace = Trace(folder, START + script, name, repr(options))
    last = {}
    count = 0
    for when, copy in trace.crashes(tmp_path / "crashes"):
        adopt(copy / name)
        found = look(copy / name)
        judge(found, when)
        loss = when.partition(" after ")[0]
        last[loss] = found
        shutil.rmtree(copy)
        count += 1
    assert count >= 8, "nothing was recorded"
    for loss, found in last.items():
        judge(found, f"{loss} at the end", done=True)


def adopt(path: Path) -> None:
    """Let logs beside a copy of a file be of that copy: they name the inode of the original."""
    log, record = (
        Path(hdf5_redo.make_log_path(str(path))),
        Path(unfinished.make_record_path(str(path))),
    )
    for place, layout, check in (
        (log, hdf5_redo._FOOTER, hdf5_redo._CHECK),
        (record, unfinished._RECORD, unfinished._CHECK),
    ):
        if not place.exists() or not path.exists():
            continue
        raw, found = place.read_bytes(), path.stat()
        at = len(raw) - check.size - layout.size
        if at < 0 or raw[at : at + 3] != b"out":
            continue
        magic, _, _, *rest = layout.unpack(raw[at : at + layout.size])
        body = layout.pack(magic, found.st_ino, found.st_dev, *rest)
        place.write_bytes(raw[:at] + body + check.pack(zlib.crc32(body)))


def look(path: Path) -> np.ndarray | None:
    """The array, element by element as far as that goes; None if there is none."""
    if not path.exists():
        return None
    options = {}
    if path.suffix == ".raw":
        options = {"dtype": "<i4", "shape": (-1, 40)}
    with outcore.open(path, **options) as a:
        return a[...]


def old_or(*news: np.ndarray, absent: bool = False, mixed: bool = False) -> Callable:
    """Judge: the old array whole, or a new one; `mixed`: each element old or that of the last."""

    def judge(found: np.ndarray | None, when: str, done: bool = False) -> None:
        if done:
            assert found is not None and np.array_equal(found, news[-1]), when
        elif found is None:
            assert absent, f"the array is gone: {when}"
        elif mixed and found.shape == news[-1].shape:
            known = [OLD, *news] if not absent else [np.zeros_like(OLD), *news]
            fits = np.logical_or.reduce([found == k for k in known if k.shape == found.shape])
            assert fits.all(), f"{(~fits).sum()} elements are neither old nor new: {when}"
        else:
            known = news if absent else (OLD, *news)
            assert any(np.array_equal(found, k) for k in known), f"{found}: {when}"

    return judge
