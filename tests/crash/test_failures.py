"""
Disks that fail, fill up, shrink or say no; and Ctrl-C: what a caller of `open` and `create` sees.

Failing calls are injected from the outside by ``strace``; the full disk is a real one.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from traced import FEW_STOPS

import outcore

traced = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: failing disks are NOT tested"
)
SHAPE = (500, 400)
DATA = np.arange(200_000, dtype="<i4").reshape(SHAPE)
KINDS = {
    "npy": ("a.npy", {}),
    "zarr": ("a.zarr", {"chunks": (100, 400)}),
    "zarr zstd": ("a.zarr", {"chunks": (100, 400), "compression": "zstd"}),
    "zarr shards": ("a.zarr", {"chunks": (50, 400), "shards": (100, 400), "compression": "gzip"}),
    "h5": ("a.h5", {}),
    "h5 gzip": ("a.h5", {"chunks": (100, 400), "compression": "gzip"}),
}
CHILD = textwrap.dedent(
    """
    import json, os, sys
    import numpy as np, outcore
    path, options = sys.argv[1], eval(sys.argv[2])
    hints = {"engine": "threads", "method": "straight", "cache": "keep"}
    DATA = np.arange(200_000, dtype="<i4").reshape(500, 400)
    said = {}
    def mark():
        os.access("/outcore-mark", os.F_OK)
    try:
        SCRIPT
    except outcore.OutcoreError as error:
        said = {
            "class": type(error).__name__, "code": error.code, "errno": getattr(error, "errno", 0),
            "path": error.path, "offset": getattr(error, "offset", None), "text": str(error),
            "os": isinstance(error, OSError),
        }
    print(json.dumps(said))
    """
)


def fail(path: Path, script: str, inject: str, options: object = None) -> dict:
    """Run `script` with failing calls; what it raised."""
    child = CHILD.replace("SCRIPT", script.replace("\n", "\n    "))
    command = ["strace", "-f", *FEW_STOPS, "-qq", "-o", os.devnull]
    command += ["-e", f"trace={inject.partition(':')[0]}"]
    if "read" in inject:  # the loader of programs reads as well
        files = [path, *path.rglob("*")] if path.is_dir() else [path]
        command += [word for file in files for word in ("-P", str(file))]
    command += ["-e", f"inject={inject}", sys.executable, "-c", child]
    done = subprocess.run(
        [*command, str(path), repr(options or {})],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def check(said: dict, name: str, path: Path) -> None:
    number = getattr(errno, name)
    assert said, "nothing was raised"
    assert said["class"] == "StorageError" and said["os"], said
    assert said["errno"] == number, said
    assert said["code"] == {"EIO": "disk-failure", "ENOSPC": "disk-full"}[name], said
    assert path.name in said["path"], said
    for word in (said["text"], said["path"]):
        assert ".outcore-tmp" not in word, said


@traced
@pytest.mark.parametrize("kind", [k for k in KINDS if not k.startswith("h5")])
def test_a_read_that_fails(tmp_path, kind):
    name, options = KINDS[kind]
    outcore.create(tmp_path / name, data=DATA, **options).close()
    script = "a = outcore.open(path, hints=hints)\na.read(np.s_[150:])"
    # Of a file that was changed lately the header is read twice, and compared before elements are read.
    first = ""
    if kind == "npy":
        first = ":when=4+"
        os.utime(tmp_path / name, (2**33, 2**33))
    said = fail(tmp_path / name, script, f"pread64,preadv,preadv2:error=EIO{first}")
    check(said, "EIO", tmp_path / name)
    assert said["offset"] is not None
    if kind == "npy":
        assert said["offset"] >= 128 + 150 * 1600


@traced
@pytest.mark.parametrize("kind", ["zarr", "npy"])
def test_arrays_take_names_where_the_system_can_only_rename(tmp_path, kind):
    """No exchange of two names, and no rename that refuses to replace."""
    name, options = KINDS[kind]
    path = tmp_path / name
    script = textwrap.dedent(
        """\
        def same(expected):
            with outcore.open(path) as a:
                assert np.array_equal(a[...], expected)
        outcore.create(path, data=DATA, **options).close()
        same(DATA)
        try:
            outcore.create(path, data=DATA + 1, **options)
        except outcore.errors.AlreadyExistsError:
            same(DATA)
            outcore.create(path, data=DATA + 2, overwrite=True, **options).close()
            same(DATA + 2)
            np.save(path + ".npy", DATA + 3)
            outcore.convert(path + ".npy", path, overwrite=True, **options)
            os.unlink(path + ".npy")
            same(DATA + 3)
            raise outcore.errors.UsageError("done", code="done")"""
    )
    said = fail(path, script, "renameat2:error=ENOSYS", options)
    assert said.get("code") == "done", said
    assert os.listdir(tmp_path) == [name]


@traced
def test_reading_goes_on_after_a_failure(tmp_path):
    outcore.create(tmp_path / "a.npy", data=DATA).close()
    os.utime(tmp_path / "a.npy", (2**33, 2**33))
    script = textwrap.dedent(
        """\
        a = outcore.open(path, hints=hints)
        for i in range(3):
            try:
                a.read(np.s_[100:, ::40])
            except outcore.errors.StorageError:
                failed = i
        assert failed == 0
        assert np.array_equal(a[...], DATA)
        raise outcore.errors.UsageError("done", code="done")"""
    )
    child = fail(tmp_path / "a.npy", script, "pread64,preadv,preadv2:error=EIO:when=4")
    assert child.get("code") == "done"


@traced
@pytest.mark.parametrize("name", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("kind", [k for k in KINDS if not k.startswith("h5")])
def test_a_write_that_fails(tmp_path, kind, name):
    file, options = KINDS[kind]
    outcore.create(tmp_path / file, data=DATA, **options).close()
    script = 'a = outcore.open(path, "r+", hints=hints)\na[150:300] = 7'
    said = fail(tmp_path / file, script, f"pwrite64,pwritev,pwritev2:error={name}")
    check(said, name, tmp_path / file)
    assert said["offset"] is not None
    with outcore.open(tmp_path / file) as a:
        assert np.array_equal(a[...], DATA)


@traced
@pytest.mark.parametrize("kind", KINDS)
def test_a_flush_that_fails(tmp_path, kind):
    file, options = KINDS[kind]
    outcore.create(tmp_path / file, data=DATA, **options).close()
    script = 'a = outcore.open(path, "r+", hints=hints)\na[150:300] = 7\na.flush()'
    check(fail(tmp_path / file, script, "fsync,fdatasync:error=EIO"), "EIO", tmp_path / file)


@traced
@pytest.mark.parametrize(
    "inject",
    ["fallocate:error=ENOSPC", "fsync:error=EIO", "rename,renameat,renameat2,link:error=EIO"],
)
@pytest.mark.parametrize("kind", ["npy", "zarr", "h5"])
@pytest.mark.parametrize("over", [False, True])
def test_a_creation_that_fails(tmp_path, kind, inject, over):
    """The old array, or none, is left, and no temporary file."""
    file, options = KINDS[kind]
    if kind == "h5" and over:
        pytest.skip("a dataset is added to the file, which is there already")
    if inject.startswith("fallocate") and kind != "npy":
        pytest.skip("nothing is allocated")
    if over:
        outcore.create(tmp_path / file, data=DATA, **options).close()
    script = f"outcore.create(path, (500, 400), '<i4', overwrite={over}, **options)"
    name = inject.partition("error=")[2]
    check(fail(tmp_path / file, script, inject, options), name, tmp_path / file)
    assert os.listdir(tmp_path) == ([file] if over else [])
    if over:
        with outcore.open(tmp_path / file) as a:
            assert np.array_equal(a[...], DATA)


@traced
@pytest.mark.parametrize("kind", ["h5", "h5 gzip"])
def test_hdf5_on_a_disk_that_fails(tmp_path, kind):
    """Whether the library or we meet the failure, it is the disk's and not the format's."""
    file, options = KINDS[kind]
    outcore.create(tmp_path / file, data=DATA, **options).close()
    failures = 0
    for number in (1, 2, 4, 8, "2+"):
        script = "a = outcore.open(path, hints=hints)\nassert np.array_equal(a[...], DATA)"
        said = fail(tmp_path / file, script, f"pread64,preadv:error=EIO:when={number}")
        if said:  # the number of calls is the library's affair
            failures += 1
            check(said, "EIO", tmp_path / file)
    assert failures >= 2


# A real full disk


@pytest.mark.parametrize("suffix", ["npy", "raw"])
def test_creating_what_does_not_fit(small_disk, suffix):
    with pytest.raises(outcore.errors.StorageError) as caught:
        outcore.create(small_disk / f"a.{suffix}", (3000, 3000), "f8")
    assert (caught.value.errno, caught.value.code) == (errno.ENOSPC, "disk-full")
    assert os.listdir(small_disk) == []


@pytest.mark.parametrize("engine", ["threads", "uring"])
@pytest.mark.parametrize("method", ["auto", "straight", "window", "list", "mapped"])
def test_writing_into_a_sparse_file_on_a_full_disk(small_disk, engine, method):
    """An error, never SIGBUS: therefore a child."""
    with open(small_disk / "a.raw", "wb") as file:
        file.truncate(32 << 20)
    script = textwrap.dedent(
        f"""
        import sys, numpy as np, outcore
        hints = {{"engine": {engine!r}, "method": {method!r}, "exclusive": True}}
        a = outcore.open(sys.argv[1], "r+", dtype="f8", shape=(2048, 2048), hints=hints)
        try:
            a[:, 100:2000] = np.ones((2048, 1900))
            a.flush()
        except outcore.errors.StorageError as error:
            print(error.code, error.errno, error.path)
        # Not through a mapping: a hole of this file system would want a page on the full disk.
        hints = {{"method": "straight"}}
        with outcore.open(sys.argv[1], dtype="f8", shape=(2048, 2048), hints=hints) as b:
            print(b[0, :3].tolist())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(small_disk / "a.raw")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    first, second = done.stdout.splitlines()
    assert first == f"disk-full {errno.ENOSPC} {small_disk / 'a.raw'}"
    assert second == "[0.0, 0.0, 0.0]"


HDF5_KINDS = {
    "contiguous": {},
    "chunked": {"chunks": (100, 400)},
    "growing": {"chunks": (100, 400), "resizable": True},
    "gzip": {"chunks": (100, 400), "compression": "gzip"},
    "filled": {"fill_value": 7},
}


def check_no_hdf5_file_is_left(folder: Path) -> None:
    # A file that the library cannot close may stay with it, half-destroyed, and crash it later.
    assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE) == 0
    held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert [name for name in held if name.startswith(str(folder))] == []


@pytest.mark.parametrize("kind", HDF5_KINDS)
@pytest.mark.parametrize("free", [0, 4096, 16384])
def test_a_new_hdf5_file_on_a_full_disk(small_disk, tmp_path, kind, free):
    with open(small_disk / "filler", "wb", buffering=0) as file:
        disk = os.statvfs(small_disk)
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - free)
    failures: list[outcore.errors.StorageError] = []
    for number in range(3):
        path = small_disk / f"{number}.h5"
        try:
            outcore.create(path, (500, 400), "i8", **HDF5_KINDS[kind]).close()
        except outcore.errors.StorageError as error:
            failures.append(error)
        check_no_hdf5_file_is_left(small_disk)
        assert not [name for name in os.listdir(small_disk) if name.endswith("-tmp")]
        for error in failures[-1:]:
            assert (error.errno, error.code) == (errno.ENOSPC, "disk-full")
            assert error.path == str(path) and "-tmp" not in str(error)
    # A header, or the little that is there before chunks are, may still find room.
    assert failures or (kind, free) == ("gzip", 16384)
    outcore.create(tmp_path / "b.h5", data=DATA, **HDF5_KINDS[kind]).close()
    with h5py.File(tmp_path / "b.h5") as file:
        assert np.array_equal(file["data"], DATA)


CREATIONS = textwrap.dedent(
    """
    import ctypes, errno, os, sys
    import h5py, outcore
    place, kinds, failing = sys.argv[1], eval(sys.argv[2]), ctypes.CDLL(os.environ["FAILING"])
    for kind, words in kinds.items():
        for for_good in (0, 1):
            failures = 0
            for turn in range(1, 100):
                folder = f"{place}/{kind}-{for_good}-{turn}"
                os.mkdir(folder)
                said = None
                failing.failing_arm(folder.encode(), ctypes.c_long(turn), errno.ENOSPC, for_good)
                try:
                    outcore.create(f"{folder}/a.h5", (60, 400), "i8", **words).close()
                except outcore.errors.StorageError as error:
                    said = error.code, str(error)  # not the error, which keeps what it met alive
                calls = failing.failing_disarm()
                if said is not None:
                    assert said[0] == "disk-full" and "-tmp" not in said[1], said
                else:  # what is only looked at, and what libraries do not need
                    with h5py.File(f"{folder}/a.h5") as file:
                        assert file["data"].shape == (60, 400), (kind, for_good, turn)
                failures += said is not None
                left = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
                names = [name for name in os.listdir(folder) if "tmp" in name]
                assert (left, names) == (0, []), (kind, for_good, turn, calls, said, left, names)
                if calls < turn:
                    break
            assert failures > 4, (kind, for_good, failures, turn)
    """
)


def test_a_new_hdf5_file_whose_calls_fail(tmp_path, failing_calls):
    """Each call in turn, and all that follow; in one process, which a half-closed file would crash."""
    done = subprocess.run(
        [sys.executable, "-c", CREATIONS, str(tmp_path), repr(HDF5_KINDS)],
        env={**os.environ, "LD_PRELOAD": str(failing_calls), "FAILING": str(failing_calls)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize("kind", ["zarr", "zarr shards", "h5 gzip"])
def test_writing_chunks_on_a_full_disk(small_disk, kind):
    name, options = KINDS[kind]
    big = np.random.default_rng(1).integers(0, 2**60, (2000, 400))
    a = outcore.create(small_disk / name, big.shape, big.dtype, **options)
    with pytest.raises(outcore.errors.StorageError) as caught:
        a[...] = big
    assert (caught.value.errno, caught.value.code) == (errno.ENOSPC, "disk-full")
    assert a.shape == big.shape
    a.close()
    # A file that the library cannot close stays with it, half-destroyed.
    assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE) == 0


# Files that change, or cannot be used


@pytest.mark.parametrize("method", ["auto", "straight", "window", "list", "mapped"])
@pytest.mark.parametrize("cut", [0, 1000, 100_000])
def test_a_file_that_shrinks_under_an_open_array(tmp_path, method, cut):
    np.save(tmp_path / "a.npy", DATA)
    with outcore.open(tmp_path / "a.npy", hints={"method": method}) as a:
        assert a[1, 1] == DATA[1, 1]
        os.truncate(tmp_path / "a.npy", cut)
        for key in (np.s_[...], np.s_[:, 5], np.s_[::3, ::-2], np.s_[-1, -1]):
            with pytest.raises(outcore.errors.StorageError, match=r"a\.npy") as caught:
                a[key]
            assert caught.value.code in ("file-truncated", "file-changed")
        if cut > 10_000:
            assert np.array_equal(a[3:5], DATA[3:5])


def unprivileged(script: str, *words: str) -> str:
    """Run a script as a user whom file modes bind."""
    drop = "import os\nif os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
    # Imports come first: the folder of the library may be out of reach afterwards.
    child = (
        "import sys, numpy as np, outcore, encodings.utf_8_sig, outcore.formats\n"
        "[one.load() for one in outcore.formats.list_formats()]\n"
        "outcore.open, outcore.create\n"
    )
    child += drop + script
    done = subprocess.run(
        [sys.executable, "-c", child, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture
def public_path():
    """A folder that everybody can reach, unlike pytest's own."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


ASK = """
try:
    SCRIPT
except outcore.errors.StorageError as error:
    print(error.code, error.errno, error.path)
"""


@pytest.mark.parametrize("kind", ["npy", "zarr"])
@pytest.mark.parametrize("verb", ["open(path)", "create(path, 3, 'f8')"])
def test_an_unreadable_folder(public_path, kind, verb):
    closed = public_path / "closed"
    closed.mkdir()
    name, options = KINDS[kind]
    outcore.create(closed / name, data=DATA, **options).close()
    closed.chmod(0)
    script = ASK.replace("SCRIPT", f"outcore.{verb.replace('path', 'sys.argv[1]')}")
    said = unprivileged(script, str(closed / name))
    assert said == f"permission-denied {errno.EACCES} {closed / name}"


@pytest.mark.parametrize("kind", ["npy", "zarr zstd", "h5"])
def test_files_that_may_only_be_read(public_path, kind):
    name, options = KINDS[kind]
    outcore.create(public_path / name, data=DATA, **options).close()
    for entry in [public_path / name, *(public_path / name).rglob("*")]:
        entry.chmod(0o555 if entry.is_dir() else 0o444)
    script = "print(outcore.open(sys.argv[1])[3, 4])" + ASK.replace(
        "SCRIPT", 'outcore.open(sys.argv[1], "r+")[0] = 1'
    )
    first, second = unprivileged(script, str(public_path / name)).splitlines()
    assert first == str(DATA[3, 4])
    assert second.startswith(f"permission-denied {errno.EACCES} {public_path / name}")


# Ctrl-C


@pytest.mark.parametrize("method", ["auto", "straight", "window", "list", "mapped"])
def test_ctrl_c_stops_a_long_read(tmp_path, method):
    with open(tmp_path / "a.raw", "wb") as file:
        file.truncate(60 << 30)
    hints = {"method": method}
    # Every 6000th byte of a file of holes: ten million requests, or 60 GB of windows.
    a = outcore.open(tmp_path / "a.raw", dtype="u1", shape=(-1,), hints=hints)
    sent = []

    def send() -> None:
        sent.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(0.3, send)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        a[::6000]
    assert time.monotonic() - sent[0] < 3.0
    timer.join()
    assert np.array_equal(a[:100], np.zeros(100, "u1"))
    a.close()
