"""Some crash cases for every day, and one that must fail; all of them: `test_prefixes_slow`."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from cases import MORE, NEW, OLD, OPEN, old_or, run
from outcore import FormatError

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: crashes are NOT tested"
)


@pytest.mark.parametrize("kind", ["npy", "zarr zstd"])
def test_create(tmp_path, kind):
    script = "outcore.create(path, (60, 40), '<i4', **options).flush()"
    run(tmp_path, kind, script, False, old_or(np.zeros_like(OLD), absent=True))


@pytest.mark.parametrize("kind", ["npy", "zarr shards gzip"])
def test_write(tmp_path, kind):
    expected = OLD.copy()
    expected[5:33, 7:] = NEW[5:33, 7:]
    script = OPEN + "a[5:33, 7:] = NEW[5:33, 7:]\na.flush()"
    run(tmp_path, kind, script, True, old_or(expected, mixed=True))


@pytest.mark.parametrize("kind", ["zarr", "zarr zstd", "zarr shards gzip"])
def test_write_of_new_chunks(tmp_path, kind):
    """Chunks that were missing are so afterwards, or hold the new elements: none is torn."""
    script = "a = outcore.create(path, (60, 40), '<i4', **options)\na[...] = NEW\na.flush()"
    run(tmp_path, kind, script, False, old_or(NEW, absent=True, mixed=True))


@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_append(tmp_path, kind):
    judge = old_or(np.concatenate([OLD, MORE]))
    run(tmp_path, kind, OPEN + "a.append(MORE)\na.flush()", True, judge)


CARELESS = {
    "no sync before the rename": "np.save(path + '.npy', OLD); os.rename(path + '.npy', path)",
    "written in place": "np.save(path, OLD)",
}


@pytest.mark.parametrize("script", CARELESS.values(), ids=list(CARELESS))
def test_careless_programs_are_found_out(tmp_path, script):
    """The models of crashes have teeth."""
    with pytest.raises((FormatError, AssertionError)):
        run(tmp_path, "npy", "import os\n" + script, True, old_or(OLD))


def test_a_flush_that_is_forgotten_is_found_out(tmp_path):
    script = OPEN + "a[...] = NEW\na.close()"
    with pytest.raises(AssertionError, match="at the end"):
        run(tmp_path, "npy", script, True, old_or(NEW, mixed=True))
