"""Chunked arrays (HDF5, Zarr): sections read and written equal NumPy's."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore.testing import oracle, strategies

KINDS = {
    "h5": {},
    "h5 chunks": {"chunks": True},
    "h5 gzip": {"chunks": True, "compression": "gzip"},
    "zarr": {"chunks": True},
    "zarr zstd": {"chunks": True, "compression": "zstd"},
    "zarr blosc F": {"chunks": True, "compression": "blosc", "order": "F"},
    "zarr shards": {"chunks": True, "shards": True},
    "zarr shards gzip": {"chunks": True, "shards": True, "compression": "gzip"},
}
HINTS = [
    {},
    {"engine": "threads", "threads": 1},
    {"cache": "bypass"},
    {"method": "window"},
    {"method": "mapped"},
    {"memory": "24 KiB"},
]
DTYPES = ["i1", "<u2", ">i4", "<f8", ">f4", "?", "<c8"]
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)


def hints(draw, kind: str) -> dict[str, object]:
    """Hints; where chunks are compressed, the least memory is what a codec's tables take."""
    chosen = draw(st.sampled_from(HINTS))
    coded = any(word in kind for word in ("gzip", "zstd", "blosc"))
    return {"memory": "704 KiB"} if "memory" in chosen and coded else chosen


def make(folder: str, kind: str, shape: tuple[int, ...], draw, **more) -> outcore.DiskArray:
    suffix, *_ = kind.split()
    options = dict(KINDS[kind])
    if options.get("chunks"):
        options["chunks"] = tuple(draw(st.integers(1, max(n, 1))) for n in shape)
    if options.get("shards"):
        options["shards"] = tuple(c * draw(st.integers(1, 3)) for c in options["chunks"])
    path = Path(folder) / f"a.{suffix}"
    return outcore.create(f"{path}::/x" if suffix == "h5" else path, shape, **options, **more)


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(st.data())
def test_sections_of_chunked_arrays_equal_numpy(kind, data):
    shape = data.draw(strategies.shapes(3, 8).filter(lambda s: len(s) > 0 and 0 not in s))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    fill = data.draw(st.sampled_from([None, 1]))
    with tempfile.TemporaryDirectory() as folder:
        more = {"dtype": dtype, "fill_value": fill, "hints": hints(data.draw, kind)}
        with make(folder, kind, shape, data.draw, **more) as a:
            expected = np.full(shape, fill or 0, dtype)
            np.testing.assert_array_equal(expected, a[...])
            for seed in range(3):
                key = data.draw(strategies.keys(shape))
                value = strategies.fill(np.shape(expected[key]), dtype, "C", seed)
                if dtype.kind in "iuf":
                    value = value.astype(data.draw(st.sampled_from([dtype, "i2", "f8"])))
                expected[key] = value
                a[key] = value
                look = data.draw(strategies.keys(shape))
                np.testing.assert_array_equal(expected[look], a[look])
            path = a.path
        with outcore.open(path) as again:
            assert (shape, dtype) == (again.shape, again.dtype)
            np.testing.assert_array_equal(expected, again[...])
            if "blosc" not in kind:
                np.testing.assert_array_equal(expected, oracle.read_all(again.info))
