"""Every prefix of the calls of `create`, `write`, `append` and `resize` opens as old or new."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from cases import GROWING, KINDS, MORE, NEW, OLD, OPEN, old_or, run

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: crashes are NOT tested"
)


@pytest.mark.parametrize("kind", KINDS)
def test_create(tmp_path, kind):
    script = "a = outcore.create(path, (60, 40), '<i4', hints=hints, **options)\na.flush()"
    run(tmp_path, kind, script, False, old_or(np.zeros_like(OLD), absent=True))


@pytest.mark.parametrize("kind", ["npy", "raw", "zarr", "zarr zstd"])
def test_create_exclusively(tmp_path, kind):
    script = "outcore.create(path, (60, 40), '<i4', **options).flush()"
    run(tmp_path, kind, script, False, old_or(np.zeros_like(OLD), absent=True))


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "h5"])
def test_create_over_an_old_array(tmp_path, kind):
    words = "'<i4', hints=hints, overwrite=True, **options"
    script = f"a = outcore.create(path, (60, 40), {words})\na.flush()"
    run(tmp_path, kind, script, True, old_or(np.zeros_like(OLD)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["...", "np.s_[5:33, 7:]", "np.s_[::3, ::2]"])
def test_write(tmp_path, kind, key):
    script = OPEN + f"a[{key}] = NEW[{key}]\na.flush()"
    expected = OLD.copy()
    expected[eval(key)] = NEW[eval(key)]
    run(tmp_path, kind, script, True, old_or(expected, mixed=True))


@pytest.mark.parametrize("kind", GROWING)
def test_append(tmp_path, kind):
    judge = old_or(np.concatenate([OLD, MORE]))
    run(tmp_path, kind, OPEN + "a.append(MORE)\na.flush()", True, judge, GROWING)


@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize("rows", [35, 83])
def test_resize(tmp_path, kind, rows):
    new = np.zeros((rows, 40), "<i4")
    new[: min(rows, 60)] = OLD[:rows]
    run(tmp_path, kind, OPEN + f"a.resize(({rows}, 40))\na.flush()", True, old_or(new), GROWING)
