"""What new users write: patterns, addresses, homes, ``progress=True``, misspelt keywords."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcore
from outcore import cli, errors
from outcore.compute import jobs
from outcore.public import list_public

SOURCES = Path(outcore.__file__).parent
DATA = np.arange(24.0).reshape(4, 6)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path


# Paths


def calls_with_paths() -> dict[str, tuple[str, Callable[[str], Any]]]:
    """A name in the home of the user, and what opens or makes it."""
    rows = outcore.mpi.Distribution((4, 6), ["block", "*"], 1)
    make: dict[str, tuple[str, Callable[[str], Any]]] = {
        "create": ("n1.npy", lambda p: outcore.create(p, data=DATA)),
        "open w": ("n2.npy", lambda p: outcore.open(p, "w", shape=3, dtype="f8")),
        "open a": ("n3.npy", lambda p: outcore.open(p, "a", shape=3, dtype="f8")),
        "parts": ("n4.parts", lambda p: outcore.create(p, data=DATA, folders=[os.path.dirname(p)])),
        "open_group": ("n5.zarr", lambda p: outcore.open_group(p, "w")),
        "out=": ("n6.npy", lambda p: outcore.transpose("a.npy", out=p)),
        "convert dst": ("n7.zarr", lambda p: outcore.convert("a.npy", p)),
        "convert group dst": ("n8.zarr", lambda p: outcore.convert("s.h5", p)),
        "disk_array": ("n9.npy", lambda p: outcore.mpi.disk_array(p, (3,), "f8")),
        "folders=": (
            "n10.npy",
            lambda p: outcore.mpi.disk_array("n10.npy", 3, "f8", folders=os.path.dirname(p)),
        ),
        "create_placed": (
            "n11",
            lambda p: outcore.mpi.create_placed(p, rows, "f8", placement="local"),
        ),
        "create_placed global": ("n12.npy", lambda p: outcore.mpi.create_placed(p, rows, "f8")),
        "checkpoint": ("n13", lambda p: outcore.mpi.checkpoint(p, {"a": DATA})),
        "partition": (
            "n14",
            lambda p: outcore.unstructured.partition(DATA[:, :2].copy(), 2, out=p),
        ),
        "edge_schedule": (
            "n15",
            lambda p: outcore.unstructured.edge_schedule(np.array([[0, 1]]), 2, out=p),
        ),
        "partition save": ("n18", lambda p: outcore.unstructured.Partition([0, 1], 2).save(p)),
        "schedule save": ("n16", lambda p: outcore.open("a.npy").schedule([1, 2]).save(p)),
        "rename": ("n17.npy", lambda p: outcore.mpi.disk_array("t", 3, "f8", keep=False).rename(p)),
    }
    read: dict[str, tuple[str, Callable[[str], Any]]] = {
        "open": ("a.npy", outcore.open),
        "open_many": ("a.npy", lambda p: outcore.open_many([p])),
        "raw": ("a.raw", lambda p: outcore.open(p, dtype="f8", shape=(4, 6))),
        "raw files": ("a.raw", lambda p: outcore.open([p], dtype="f8", shape=(4, 6))),
        "ls": ("a.npy", outcore.ls),
        "verify": ("a.npy", outcore.verify),
        "input": ("a.npy", lambda p: outcore.sum(p)),
        "second input": ("a.npy", lambda p: outcore.tensordot(DATA, p, 2)),
        "convert": ("a.npy", lambda p: outcore.convert(p, "m1.npy")),
        "convert group": ("s.h5", lambda p: outcore.convert(p, "m2.zarr")),
        "open_placed": ("a.npy", lambda p: outcore.mpi.open_placed(p, rows)),
        "restore": ("c", outcore.mpi.restore),
        "partition open": ("p", outcore.unstructured.Partition.open),
        "edge_schedule open": ("e", outcore.unstructured.EdgeSchedule.open),
        "schedule open": ("i", lambda p: outcore.IndexSchedule.open(p, outcore.open("a.npy"))),
        "disk_map": ("", lambda p: outcore.mpi.disk_map([p], 2)[1].startswith("/")),
        "cp": ("a.npy", lambda p: not cli.main(["cp", p, "m4.npy"])),
        "jobs": ("", lambda p: jobs.unfinished(p)),
        "like": ("a.npy", lambda p: outcore.create("m3.npy", like=outcore.open(p))),
        "ls of the command": ("a.npy", lambda p: not cli.main(["ls", p])),
    }
    return {**make, **{f"{name} (there)": call for name, call in read.items()}}


def test_every_call_takes_a_home_and_an_address_of_a_file(folder: Path) -> None:
    home = folder / "home"
    np.save("a.npy", DATA)
    for place in (Path(), home):
        np.save(place / "a.npy", DATA)
        DATA.tofile(place / "a.raw")
        outcore.create(f"{place}/s.h5::/g/x", data=DATA).close()
        outcore.mpi.checkpoint(place / "c", {"a": DATA})
    outcore.unstructured.Partition([0, 1], 2).save(home / "p")
    outcore.unstructured.edge_schedule(np.array([[0, 1]]), 2, out=home / "e").close()
    outcore.open("a.npy").schedule([1, 2]).save(home / "i")
    for case, (name, call) in calls_with_paths().items():
        for prefix in ("~/", f"file://{home}/", f"file://localhost{home}/"):
            before = set(os.listdir())
            found = call(prefix + name)
            assert found is not False, case
            if hasattr(found, "close"):
                found.close()
            assert (home / name).exists(), (case, prefix)
            assert not {"~", "file:"} & set(os.listdir()) - before, (case, prefix)
            if "(there)" not in case:
                remove(home / name)
            for one in set(os.listdir()) - before:
                remove(folder / one)
    for name in ("%41.npy", "b c.npy", "~name.npy"):  # names stay what they are
        outcore.create(name, data=DATA).close()
        assert Path(name).exists()
    assert outcore.open(f"file://{folder}/b%20c.npy").shape == (4, 6)


def remove(path: Path) -> None:
    import shutil

    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def test_addresses_of_other_machines_are_named() -> None:
    for address in (
        "s3://bucket/a.zarr",
        "https://host/a.nc",
        "gs://b/a.h5::/x",
        "file://host/a.npy",
    ):
        calls: list[Callable[[], Any]] = [
            lambda address=address: outcore.open(address),
            lambda address=address: outcore.create(address, (3,), "f8"),
            lambda address=address: outcore.ls(address),
            lambda address=address: outcore.sum(address),
            lambda address=address: outcore.convert("a.npy", address),
            lambda address=address: outcore.open_group(address),
        ]
        for call in calls:
            with pytest.raises(errors.UsageError, match=re.escape(address[:9])) as caught:
                call()
            assert caught.value.code == "remote-path"
    assert os.listdir() == ["home"]


@pytest.mark.parametrize("name", ["*.nc", "*.npy", "a[0-9].h5", "?.zarr", "run.*"])
def test_patterns_are_advised_to_open_many(name: str) -> None:
    for there in (False, True):
        if there:
            np.save(name.replace("*", "x").replace("?", "x").replace("[0-9]", "1"), DATA)
        for call in (outcore.open, outcore.ls, outcore.sum, outcore.open_group, outcore.verify):
            with pytest.raises(errors.NotFoundError, match=r"open_many\(sorted\(glob.glob\("):
                call(name)  # type: ignore[operator]
    with pytest.raises(errors.PathTypeError, match=r"glob.glob\("):
        outcore.open_many(name)


# Progress


def test_progress_may_be_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", DATA)
    outcore.create("s.h5::/x", data=DATA).close()
    outcore.create("s.h5::/g/y", data=DATA).close()
    calls: dict[str, Callable[[Any], Any]] = {
        "transpose": lambda p: outcore.transpose("a.npy", out="t.npy", overwrite=True, progress=p),
        "sum": lambda p: outcore.sum("a.npy", progress=p),
        "convert": lambda p: outcore.convert("a.npy", "c.zarr", overwrite=True, progress=p),
        "convert group": lambda p: outcore.convert("s.h5", "g.zarr", overwrite=True, progress=p),
        "verify": lambda p: outcore.verify("a.npy", progress=p),
    }
    for name, call in calls.items():
        call(True)
        shown = capsys.readouterr().err
        assert "100%" in shown and name.split()[0][:6] in shown, (name, shown)
        for quiet in (None, False):
            call(quiet)
            assert capsys.readouterr().err == "", name
        with pytest.raises(errors.UsageError, match="True for a bar"):
            call(5)


# Keywords


def misspelt(word: str) -> str:
    return word[:-1] + "x" if len(word) < 4 else word[:2] + word[3] + word[2] + word[4:]


def names_of(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]


def takes_options(function: Callable[..., Any]) -> bool:
    return any(p.kind == p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def public_calls() -> Iterator[tuple[str, Any]]:
    for full, found in list_public():
        name = full.rpartition(".")[2]
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found) and found.__module__.startswith("outcore"):
            for method, function in vars(found).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function


# Keywords of these go on to the function of the user, or are names of attributes.
THEIRS = {"apply_along_axis", "Attributes.update"}


def arguments(name: str, function: Callable[..., Any]) -> tuple[Any, ...]:
    """What a computation takes in front of its keywords, or what comes closest."""
    square = DATA[:, :4] + 9 * np.eye(4)
    special: dict[str, tuple[Any, ...]] = {
        "cho_solve": ((square, True), DATA),
        "lu_solve": ((square, np.arange(4)), DATA),
        "convert": ("a.npy", "b.npy"),
        "create": ("b.npy", 3, "f8"),
        "disk_array": ("b.npy", 3, "f8"),
        "create_placed": ("b.npy", outcore.mpi.Distribution(3, ["block"], 1), "f8"),
        "open_placed": ("a.npy", outcore.mpi.Distribution((4, 6), ["block", "*"], 1)),
        "map_blocks": (np.negative, DATA),
        "bincount": (np.arange(4),),
        "transpose": (DATA,),
        "stencil": (DATA, [[0, 1, 0], [1, 0, 1], [0, 1, 0]]),
        "percentile_filter": (DATA, 50, 3),
        "rank_filter": (DATA, 1, 3),
        "generic_filter": (DATA, np.mean, 3),
        "rechunk": (DATA, 2),
        "solve": (square, DATA),
        "lstsq": (DATA.T.copy(), np.arange(6.0)),
        "searchsorted": (np.arange(4.0), DATA),
        "outer": (np.arange(3.0), np.arange(3.0)),
        "dot": (DATA, DATA.T.copy()),
        "matmul": (DATA, DATA.T.copy()),
        "vecdot": (DATA, DATA),
        "vdot": (DATA, DATA),
        "inner": (DATA, DATA),
        "tensordot": (DATA, DATA, 2),
        "qr": (DATA.T.copy(),),
        "svd": (DATA.T.copy(),),
        "lu": (square,),
        "lu_factor": (square,),
        "cholesky": (square @ square.T,),
        "correlate": (DATA, np.ones((3, 3))),
        "convolve": (DATA, np.ones((3, 3))),
        "correlate1d": (DATA, np.ones(3)),
        "convolve1d": (DATA, np.ones(3)),
        "gaussian_filter": (DATA, 1.0),
        "gaussian_filter1d": (DATA, 1.0),
    }
    if name in special:
        return special[name]
    if "filter" in name:
        return DATA, 3
    if "quantile" in name or "percentile" in name:
        return DATA, 0.5
    return ("a.npy",)


def test_an_unknown_keyword_names_the_call_and_the_nearest_name() -> None:
    np.save("a.npy", DATA)
    seen = 0
    for name, function in public_calls():
        if name in THEIRS:
            continue
        own = names_of(function)
        word = misspelt(max((n for n in own if n != "self"), key=len, default="progress"))
        if word in own:
            continue
        given: tuple[Any, ...] = ()
        if takes_options(function):
            words = [word]
            if name.startswith("Group."):
                group = outcore.open_group("g.zarr", "w")
                given = (group, "x", 3, "f8")
            elif name == "copy_placed":
                rows = outcore.mpi.Distribution((4, 6), ["block", "*"], 1)
                placed = outcore.mpi.open_placed("a.npy", rows)
                given = (placed, "d.npy")
                word, words = "odrer", ["odrer"]
                with pytest.raises(errors.OutcoreError, match=r"copy_placed\(\).*'order'"):
                    function(*given, placement="global", odrer="C")
                continue
            else:
                given = arguments(name, function)
            if "how" in inspect.signature(function).parameters:
                words += ["progressed", "overwrte", "comprssion", "chunk"]
            for one in words:
                with pytest.raises(errors.OutcoreError) as caught:  # that of a rank, if collective
                    function(*given, **{one: 1})
                message = str(caught.value)
                assert f"{name}() has no option {one!r}; did you mean '" in message, (name, message)
                assert "[unknown-option]" in message, name
        else:
            parameters = inspect.signature(function).parameters.values()
            given = (None,) * sum(p.default is p.empty for p in parameters if p.kind < 2)
            # Python names the call.
            with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected.*'{word}'"):
                function(*given, **{word: 1})
        seen += 1
    assert seen > 200
    with pytest.raises(
        errors.UsageError,
        match=r"format npy has no option 'unlimited'.*netcdf4, netcdf3_classic.* have it",
    ):
        outcore.create("b.npy", 3, "f8", unlimited="t")
    with pytest.raises(errors.UsageError, match=r"median_filter\(\) has no option 'prefetch'"):
        outcore.ndimage.median_filter("a.npy", 3, prefetch=False)
    with pytest.raises(errors.UsageError, match=r"verify\(\) has no option"):
        outcore.verify("a.npy", hint=None)
    assert sorted(os.listdir()) == ["a.npy", "g.zarr", "home"]


# Packages


def test_advice_is_about_packages_that_can_be_installed() -> None:
    """Outcore itself is in no index: `pip install outcore[hdf5]` cannot work."""
    root = SOURCES.parents[1]
    files = [
        *SOURCES.rglob("*.py"),
        *(root / "examples").glob("*.py"),
        *(root / "docs").rglob("*.md"),
    ]
    wrong = re.compile(r"pip install [\"']?outcore")
    assert not [str(path) for path in files if wrong.search(path.read_text())]
