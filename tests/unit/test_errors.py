"""The tree of errors: what callers of NumPy and of `open` catch, they catch here, too."""

import contextlib
import copy
import errno
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core, errors
from outcore.public import find_public

NOBODY = 65534


@contextlib.contextmanager
def without_rights():
    """Root may open everything; who has no rights meets the modes of files."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def missing(tmp_path):
    where = f"{tmp_path}/missing"
    np.save(tmp_path / "a.npy", np.zeros(3))
    source = f"{tmp_path}/a.npy"
    return {
        "npy": lambda: outcore.open(f"{where}.npy"),
        "npy to write": lambda: outcore.open(f"{where}.npy", "r+"),
        "hdf5": lambda: outcore.open(f"{where}.h5::/x"),
        "netcdf4": lambda: outcore.open(f"{where}.nc::/x"),
        "zarr": lambda: outcore.open(f"{where}.zarr"),
        "zarr inside": lambda: outcore.open(f"{where}.zarr::/x"),
        "raw": lambda: outcore.open(f"{where}.bin", dtype="f8", shape=3),
        "pattern": lambda: outcore.open(f"{where}-*.bin", dtype="f8"),
        "folder": lambda: outcore.create(f"{where}/b.npy", 3, "f8"),
        "folder of zarr": lambda: outcore.create(f"{where}/b/c.zarr", 3, "f8"),
        "folder of hdf5": lambda: outcore.create(f"{where}/b.h5::/x", 3, "f8"),
        "below a file": lambda: outcore.open(f"{source}/b.npy"),
        "ls": lambda: outcore.ls(where),
        "verify": lambda: outcore.verify(f"{where}.npy"),
        "convert": lambda: outcore.convert(f"{where}.npy", f"{where}.zarr"),
        "convert into": lambda: outcore.convert(source, f"{where}/b.npy"),
    }


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    for name, call in missing(tmp_path).items():
        with pytest.raises(outcore.OutcoreError) as caught:
            call()
        error = caught.value
        assert isinstance(error, FileNotFoundError), (name, error)
        assert type(error) is outcore.errors.NotFoundError, name
        assert error.errno in (errno.ENOENT, errno.ENOTDIR), name
        assert error.filename == error.path and error.filename.startswith(str(tmp_path)), name
        assert error.strerror == os.strerror(error.errno), name


def test_a_file_that_vanished_is_a_file_not_found_error(tmp_path):
    # The compiled module raises it, at the first access.
    np.save(tmp_path / "a.npy", np.arange(8.0))
    array = outcore.open(tmp_path / "a.npy")
    os.unlink(tmp_path / "a.npy")
    with pytest.raises(FileNotFoundError) as caught:
        array[...]
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(tmp_path / "a.npy")


@pytest.mark.parametrize("name", ["a.npy", "a.h5", "a.nc", "a.zarr", "a.bin", "b.h5::/x"])
def test_a_file_that_exists_is_a_file_exists_error(tmp_path, name):
    path = f"{tmp_path}/{name}"
    outcore.create(path, 3, "f8").close()
    np.save(tmp_path / "source.npy", np.zeros(3))
    calls = [
        lambda: outcore.create(path, 3, "f8"),
        lambda: outcore.open(path, "x", shape=3, dtype="f8"),
    ]
    if "::" not in name:
        calls.append(lambda: outcore.convert(tmp_path / "source.npy", path))
    for call in calls:
        with pytest.raises(FileExistsError) as caught:
            call()
        error = caught.value
        assert type(error) is outcore.errors.AlreadyExistsError
        assert (error.errno, error.code) == (errno.EEXIST, "already-exists")
        assert error.filename.startswith(path.partition("::")[0])


def test_forbidden_access_raises_a_permission_error():
    # Not below the folder of pytest, which nobody else may look into.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        refused(Path(folder))


def refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(8.0))
    with outcore.create(tmp_path / "a.h5", data=np.arange(8.0)):
        pass
    lazy = outcore.open(tmp_path / "a.npy")
    for path in (tmp_path / "a.npy", tmp_path / "a.h5"):
        path.chmod(0)
    calls = {
        "npy": lambda: outcore.open(tmp_path / "a.npy"),
        "hdf5": lambda: outcore.open(tmp_path / "a.h5"),
        "create": lambda: outcore.create(tmp_path / "b.npy", 3, "f8"),
        # The compiled module opens the file.
        "read": lambda: lazy[...],
    }
    os.chmod(tmp_path, 0o555)
    try:
        for name, call in calls.items():
            with without_rights(), pytest.raises(PermissionError) as caught:
                call()
            error = caught.value
            assert type(error) is outcore.errors.PermissionDeniedError, name
            assert (error.errno, error.code) == (errno.EACCES, "permission-denied"), name
            assert error.filename.startswith(str(tmp_path)), name
    finally:
        os.chmod(tmp_path, 0o755)
        lazy.close()


def test_a_budget_that_is_too_small_is_a_memory_error(tmp_path):
    array = outcore.create(tmp_path / "a.zarr", data=np.zeros(1 << 17), compression="zstd")
    array.close()
    calls = {
        "read": lambda a: a[...],
        "as a whole": np.asarray,
        "blocks": lambda a: next(iter(a.blocks(shape=(1 << 17,)))),
    }
    with outcore.open(tmp_path / "a.zarr", hints={"memory": "64KiB"}) as array:
        for name, call in calls.items():
            with pytest.raises(MemoryError) as caught:
                call(array)
            error = caught.value
            assert type(error) is outcore.BudgetError and isinstance(error, ValueError), name
            assert error.needed > 1 << 16, name
    with pytest.raises(MemoryError):
        _core.Reservation("a test", int(outcore.memory()) + 1)


@pytest.mark.parametrize(
    "key",
    [
        99,
        (0, -99),
        (0, 0, 0),
        10**30,
        1.5,
        "field",
        [1.5],
        np.array([1.5]),
        (0, 0, True, [0]),
        np.ones((4, 2), bool),
        ([0, 1], [0, 1, 2]),
        [None],
        [[1], [1, 2]],
        np.array([2**63], np.uint64),
        object(),
        {1},
        (..., ...),
        b"x",
        1j,
    ],
    ids=lambda key: type(key).__name__,
)
def test_an_index_that_is_none_is_an_index_error(tmp_path, key):
    with outcore.create(tmp_path / "a.npy", (4, 3), "f8") as array:
        for call in (
            lambda: array[key],
            lambda: array.write(key, 0.0),
            lambda: array.explain(key),
            lambda: array.read(key),
            lambda: array.iread(key).wait(),
        ):
            with pytest.raises(IndexError) as caught:
                call()
            assert isinstance(caught.value, outcore.errors.SectionError)


def test_calls_for_sections_only_refuse_lists(tmp_path):
    with outcore.create(tmp_path / "a.npy", (4, 3), "f8") as array:
        refuse = (
            lambda: array["name"],
            lambda: array[["name", "other"]],
            lambda: array.write("name", 0.0),
            lambda: array.oindex["name"],
            lambda: array.prefetch([1, 2]),
            lambda: array.explain_copy(array, [1, 2]),
        )
        for call in refuse:
            with pytest.raises(outcore.errors.UnsupportedError) as caught:
                call()
            assert type(caught.value) is outcore.errors.FancyIndexError
            assert caught.value.code == "fancy-index"
        # As in NumPy.
        with pytest.raises(ValueError):
            array[::0]


def every_kind():
    return [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_errors_can_be_pickled_and_copied(kind):
    assert find_public(kind.__name__) is kind
    error = kind("text", code="some-code", path="a.npy", rank=2, offset=7, needed=9, ranks=(1, 4))
    error.__cause__ = errors.StorageError("no such file", code="not-found", path="b.npy")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind and str(again) == str(error) == "[some-code] text"
        assert again.args == ("text",)
        for name in ("code", "path", "rank", "offset", "needed", "ranks"):
            assert getattr(error, name) == getattr(again, name), name
        assert getattr(error, "errno", None) == getattr(again, "errno", None)
        assert getattr(error, "filename", None) == getattr(again, "filename", None)
        assert type(again.__cause__) is errors.NotFoundError
        assert (again.__cause__.errno, again.__cause__.filename) == (errno.ENOENT, "b.npy")


def test_the_code_makes_the_class_more_exact_and_never_another():
    exact = {
        "not-found": errors.NotFoundError,
        "already-exists": errors.AlreadyExistsError,
        "permission-denied": errors.PermissionDeniedError,
        "fancy-index": errors.FancyIndexError,
    }
    for code, kind in exact.items():
        for asked in every_kind():
            made = type(asked("text", code=code))
            assert made is (kind if issubclass(kind, asked) else asked)
    # Whatever the system said exactly: EPERM is a PermissionError as well.
    error = errors.StorageError("text", code="permission-denied", errno=errno.EPERM)
    assert isinstance(error, PermissionError) and error.errno == errno.EPERM
