"""A tight limit of processes and threads: the kernel starts no workers for io_uring."""

import os
import subprocess
import sys
import tempfile

import pytest

PROGRAM = """
import os, resource, sys
import numpy as np
import outcore

def work(name, **hints):
    for suffix, words in (
        ("npy", {}),
        ("zarr", {"chunks": (100, 500)}),
        ("h5", {"chunks": (100, 500), "compression": "gzip"}),
    ):
        with outcore.create(f"{name}.{suffix}", (2000, 500), "f8", hints=hints, **words) as a:
            a[...] = np.ones((2000, 500))
            a[::3, ::5] = 2
            a.flush()
            expected = np.ones((2000, 500))
            expected[::3, ::5] = 2
            assert (a[...] == expected).all(), (name, suffix)
            assert (a[::7, 1] == expected[::7, 1]).all(), (name, suffix)

work("before", engine="threads")  # imports what it takes: another user may not read these files
resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[1]),) * 2)
if os.geteuid() == 0:  # whom the limit does not bind
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
for engine in ("uring", "threads", "auto"):
    work(f"{engine}-cached", engine=engine)
    work(f"{engine}-direct", engine=engine, cache="bypass", exclusive=True)
"""


@pytest.mark.parametrize("most", [1, 10])
def test_all_goes_on_without_workers(most):
    words = [sys.executable, "-c", PROGRAM, str(most)]
    with tempfile.TemporaryDirectory() as folder:  # others may not enter those of pytest
        os.chmod(folder, 0o777)
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
