"""Conversions give the same elements, keep what belongs to them, and survive being stopped."""

import importlib
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.base import assumed_costs
from outcore.base.requests import IORequest
from outcore.compute.jobs.checkpoints import Checkpoints
from stopping import Stop, stop_after

SUFFIX = {"raw": "bin", "npy": "npy", "hdf5": "h5", "netcdf4": "nc", "zarr": "zarr"}
SUFFIX["netcdf3_64bit_data"] = "nc"
CHUNKED = ("hdf5", "netcdf4", "zarr")
BUDGET = 8 << 20


def leftovers(folder):
    return [p.name for p in folder.iterdir() if "outcore" in p.name or p.name.startswith(".")]


def opened(path, format, shape, dtype, order="C"):
    raw = {"dtype": dtype, "shape": shape, "order": order} if format == "raw" else {}
    return outcore.open(path, format=format, **raw)


@st.composite
def jobs(draw):
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    ends = []
    for _ in range(2):
        words = {"format": draw(st.sampled_from(sorted(SUFFIX)))}
        if words["format"] in CHUNKED and draw(st.booleans()):
            words["chunks"] = tuple(draw(st.integers(1, n)) for n in shape)
            if draw(st.booleans()):
                words["compression"] = draw(st.sampled_from(["gzip", "zstd"]))
        elif words["format"] in ("raw", "npy"):
            words["order"] = draw(st.sampled_from("CF"))
        ends.append(words)
    dtypes = st.sampled_from(["<i4", ">i4", "<f8", "<i2"])
    return shape, draw(dtypes), draw(st.none() | dtypes), *ends


@settings(max_examples=120, suppress_health_check=list(HealthCheck), deadline=None)
@given(jobs())
def test_any_format_to_any_other(tmp_path_factory, job):
    shape, dtype, wanted, here, there = job
    folder = tmp_path_factory.mktemp("convert")
    data = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    source = folder / f"source.{SUFFIX[here['format']]}"
    target = folder / f"target.{SUFFIX[there['format']]}"
    outcore.create(source, data=data, **here).close()
    raw = {"dtype": dtype, "shape": shape, "order": here.get("order", "C")}
    options = raw if here["format"] == "raw" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some formats have names of axes that others cannot keep
        outcore.convert(
            source, target, dtype=wanted, memory=BUDGET, source=options, casting="unsafe", **there
        )
    kept = there.get("order", here.get("order", "C") if there["format"] == "raw" else "C")
    stored = np.dtype(wanted or dtype)
    if there["format"].startswith("netcdf3") or (not wanted and "netcdf3" in here["format"]):
        stored = stored.newbyteorder(">")
    with opened(target, there["format"], shape, stored, kept) as made:
        assert made.dtype == stored
        np.testing.assert_array_equal(made[...], data.astype(wanted or dtype))
        if "chunks" in there:
            assert made.chunks == there["chunks"]
    assert leftovers(folder) == []


def make(path, shape=(300, 400), dtype="f4", **words):
    data = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    outcore.create(path, data=data, **words, overwrite=True).close()
    return data


@pytest.mark.parametrize("order", ["C", "F"])
def test_many_tiles_with_little_memory(tmp_path, order):
    data = make(tmp_path / "a.npy", (2000, 1500), "f8")
    seen = []
    outcore.convert(
        tmp_path / "a.npy",
        tmp_path / "b.npy",
        order=order,
        memory="4 MiB",
        progress=lambda done, total: seen.append((done, total)),
    )
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), data)
    assert len(seen) > 8
    assert seen == sorted(seen)
    assert seen[-1] == (data.nbytes, data.nbytes)


def started(monkeypatch, *conversion, **words):
    """
    What a conversion starts, in order: R for the read of a tile, W for the write of one.

    The disk is slow: nothing is over before somebody waits for it.
    """
    log = []
    monkeypatch.setattr(IORequest, "done", property(lambda self: False))
    for kind, name in (("R", "iread"), ("W", "iwrite")):
        start = getattr(outcore.DiskArray, name)

        def logged(self, *args, kind=kind, start=start, **kwargs):
            log.append(kind)
            return start(self, *args, **kwargs)

        monkeypatch.setattr(outcore.DiskArray, name, logged)
    outcore.convert(*conversion, **words)
    monkeypatch.undo()
    return "".join(log)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_the_disk_has_the_next_read_before_one_ends(tmp_path, monkeypatch, dtype):
    from outcore import _core

    data = make(tmp_path / "a.npy", (2048, 2048), "f8")
    paths = (tmp_path / "a.npy", tmp_path / "b.npy")
    monkeypatch.setattr(assumed_costs, "STEP_SECONDS", 0.0)
    _core.reset_memory_peak()
    log = started(monkeypatch, *paths, memory="16 MiB", dtype=dtype)
    tiles = log.count("W")
    assert tiles > 8
    # Where nothing is cast a tile is written out of the buffer that it was read into: there is one more.
    first = "RRRWWR" if dtype == "f8" else "RRWRWR"
    assert log == first + "WR" * (tiles - 4) + "WW"
    assert _core.memory_state()[2] <= 16 * 2**20
    np.testing.assert_array_equal(np.load(paths[1]), data.astype(dtype))


@pytest.mark.parametrize(
    ("codec", "order", "memory"), [("zstd", "C", "32 MiB"), ("none", "F", "8 MiB")]
)
def test_tiles_are_read_one_by_one_where_that_is_better_or_all_that_fits(
    tmp_path, monkeypatch, codec, order, memory
):
    """Encoded chunks keep the processor busy; tiles of a transposition take all memory there is."""
    data = make(tmp_path / "a.zarr", (2048, 2048), "f8", chunks=(256, 256), compression=codec)
    paths = (tmp_path / "a.zarr", tmp_path / "b.npy")
    monkeypatch.setattr(assumed_costs, "STEP_SECONDS", 0.0)
    log = started(monkeypatch, *paths, memory=memory, order=order)
    assert log == "RRW" + "WR" * (log.count("W") - 2) + "W"
    assert len(log) > 8
    np.testing.assert_array_equal(np.load(paths[1]), data)


@pytest.mark.parametrize(("codec", "most"), [("none", 3 / 4), ("zstd", 1 / 2)])
def test_tiles_take_more_of_the_budget_where_nothing_is_encoded(tmp_path, monkeypatch, codec, most):
    from outcore import _core

    carry = importlib.import_module("outcore.compute.jobs.carry")
    held = []

    def run(schedule, *rest, run=carry.ScheduleRun, **words):
        held.append(schedule.held)
        return run(schedule, *rest, **words)

    data = make(tmp_path / "a.npy", (2048, 2048), "f8")
    monkeypatch.setattr(carry, "ScheduleRun", run)
    words = {"order": "F"} if codec == "none" else {"chunks": (128, 128), "compression": codec}
    target = tmp_path / ("b.npy" if codec == "none" else "b.zarr")
    _core.reset_memory_peak()
    outcore.convert(tmp_path / "a.npy", target, memory="16 MiB", **words)
    assert (most - 1 / 4) * 2**24 < held[0] <= most * 2**24
    assert _core.memory_state()[2] <= 2**24
    with outcore.open(target) as made:
        np.testing.assert_array_equal(made[...], data)


def test_attributes_names_and_fill_value_are_carried_over(tmp_path):
    words = {"attrs": {"units": "K", "levels": [1, 2]}, "dims": ("y", "x"), "fill_value": -9.0}
    make(tmp_path / "a.zarr", chunks=(100, 100), **words)
    outcore.convert(tmp_path / "a.zarr", f"{tmp_path}/b.nc::/field")
    outcore.convert(f"{tmp_path}/b.nc::/field", tmp_path / "c.zarr")
    for name in ("b.nc::/field", "c.zarr"):
        with outcore.open(f"{tmp_path}/{name}") as made:
            assert made.attrs["units"] == "K"
            assert list(made.attrs["levels"]) == [1, 2]
            assert made.dims == ("y", "x")
            assert made.fill_value == -9.0
            assert made.chunks == (100, 100)


def test_fill_values_of_structures_are_carried_over(tmp_path):
    """zarr-python gives every structured array one."""
    kind = np.dtype([("a", "<i4"), ("b", "<f8")])
    data = np.array([(1, 2.5), (3, 4.5), (5, 6.5)], kind)
    fill = np.array((7, 8.5), kind)
    outcore.create(tmp_path / "a.zarr", data=data, chunks=2, fill_value=fill).close()
    outcore.convert(tmp_path / "a.zarr", tmp_path / "b.zarr", chunks=1)
    with outcore.open(tmp_path / "b.zarr") as made:
        np.testing.assert_array_equal(made[...], data)
        assert made.fill_value == fill
    with pytest.warns(UserWarning, match="cannot keep fill_value"):
        outcore.convert(tmp_path / "a.zarr", tmp_path / "b.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), data)


@pytest.mark.parametrize("how", ["open", "source", "environment"])
def test_the_source_keeps_its_hints(tmp_path, monkeypatch, how):
    source, target = tmp_path / "a.zarr", tmp_path / "b.npy"
    outcore.create(source, (4, 4), "f4", chunks=2).close()
    hints = {"hints": {"missing": "error"}}
    if how == "environment":
        monkeypatch.setenv("OUTCORE_HINTS", "missing=error")
    words = {"source": hints} if how == "source" else {}
    with (
        outcore.open(source, **hints) if how == "open" else nullcontext(source) as array,
        pytest.raises(outcore.errors.StorageError) as caught,
    ):
        outcore.convert(array, target, **words)
    assert caught.value.code == "missing-chunk"


def test_conversion_warns_of_attributes_it_drops(tmp_path):
    data = make(tmp_path / "a.zarr", chunks=(100, 100), attrs={"units": "K"})
    with pytest.warns(UserWarning, match="cannot keep attrs") as told:
        outcore.convert(tmp_path / "a.zarr", tmp_path / "b.npy")
    assert [__file__] == [warning.filename for warning in told]  # the line of the caller
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), data)


@pytest.mark.parametrize("name", ["b.h5", "b.nc", "b.zarr"])
def test_one_attribute_that_cannot_be_kept_does_not_cost_the_others(tmp_path, name):
    odd = {"deep": {"a": 1}} if name != "b.zarr" else {"odd": 1j}
    source = "a.zarr" if name != "b.zarr" else "a.h5"
    attrs = {"units": "K", **odd, "scale": 0.5}
    outcore.create(tmp_path / source, data=np.arange(3), attrs=attrs).close()
    with pytest.warns(UserWarning, match=f"cannot keep attribute '{next(iter(odd))}' of"):
        outcore.convert(tmp_path / source, tmp_path / name)
    with outcore.open(tmp_path / name) as made:
        assert dict(made.attrs) == {"units": "K", "scale": 0.5}
        assert made[...].tolist() == [0, 1, 2]
    with pytest.raises(outcore.errors.UsageError):
        outcore.convert(tmp_path / source, tmp_path / f"c{name}", attrs=attrs)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (1,)])
def test_arrays_with_next_to_nothing_in_them(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.ones(shape))
    outcore.convert(tmp_path / "a.npy", tmp_path / "b.zarr")
    with outcore.open(tmp_path / "b.zarr") as made:
        assert made.shape == shape
        np.testing.assert_array_equal(made[...], np.ones(shape))


@pytest.mark.parametrize("suffix", ["npy", "zarr", "h5"])
def test_an_existing_target_is_replaced_only_on_request(tmp_path, suffix):
    data = make(tmp_path / "a.npy")
    target = tmp_path / f"b.{suffix}"
    make(target, (3, 4))
    with pytest.raises(outcore.errors.StorageError) as caught:
        outcore.convert(tmp_path / "a.npy", target)
    assert caught.value.code == "already-exists"
    with outcore.open(target) as old:
        assert old.shape == (3, 4)
    outcore.convert(tmp_path / "a.npy", target, overwrite=True)
    with outcore.open(target) as new:
        np.testing.assert_array_equal(new[...], data)
    assert leftovers(tmp_path) == []


def test_folders_that_are_no_array_are_never_replaced(tmp_path):
    make(tmp_path / "a.npy")
    for name in ("folder", "b.zarr"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "letter").write_text("dear")
    outcore.create(f"{tmp_path}/group.zarr::/x", data=np.arange(3)).close()
    for name in ("folder", "b.zarr", "group.zarr", "."):
        for words in ({}, {"format": "npy"}):
            with pytest.raises(outcore.errors.UsageError) as caught:
                outcore.convert(tmp_path / "a.npy", f"{tmp_path}/{name}", overwrite=True, **words)
            assert caught.value.code in ("not-an-array", "unknown-format")
    assert (tmp_path / "folder" / "letter").exists() and (tmp_path / "b.zarr" / "letter").exists()
    assert outcore.open(f"{tmp_path}/group.zarr::/x").shape == (3,)
    assert leftovers(tmp_path) == []


def test_a_link_is_followed(tmp_path):
    data = make(tmp_path / "a.npy")
    (tmp_path / "there").mkdir()
    np.save(tmp_path / "there" / "b.npy", np.arange(3))
    os.symlink("there/b.npy", tmp_path / "link.npy")
    outcore.convert(tmp_path / "a.npy", tmp_path / "link.npy", overwrite=True)
    assert os.path.islink(tmp_path / "link.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "there" / "b.npy"), data)
    assert leftovers(tmp_path) == [] and leftovers(tmp_path / "there") == []


def test_a_dtype_that_adds_axes_is_refused(tmp_path):
    make(tmp_path / "a.npy")
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", dtype="(2,)f4")
    assert caught.value.code == "bad-dtype"


def test_an_array_is_added_to_a_container(tmp_path):
    data = make(tmp_path / "a.npy")
    make(f"{tmp_path}/b.h5::/first", (3, 4))
    outcore.convert(tmp_path / "a.npy", f"{tmp_path}/b.h5::/group/second", chunks=(64, 64))
    with pytest.raises(outcore.errors.StorageError):
        outcore.convert(tmp_path / "a.npy", f"{tmp_path}/b.h5::/first")
    assert [e.path.partition("::")[2] for e in outcore.ls(tmp_path / "b.h5") if e.shape] == [
        "/first",
        "/group/second",
    ]
    with outcore.open(f"{tmp_path}/b.h5::/group/second") as made:
        np.testing.assert_array_equal(made[...], data)
    assert leftovers(tmp_path) == []


def test_a_conversion_onto_itself_is_refused(tmp_path):
    data = make(tmp_path / "a.npy")
    os.symlink(tmp_path / "a.npy", tmp_path / "link.npy")
    for name in ("a.npy", "link.npy"):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.convert(tmp_path / "a.npy", tmp_path / name, overwrite=True)
        assert caught.value.code == "same-file"
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), data)


def test_casts_that_lose_need_to_be_asked_for(tmp_path):
    make(tmp_path / "a.npy", dtype="f8")
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", dtype="i4")
    assert caught.value.code == "bad-cast"
    assert leftovers(tmp_path) == []
    outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", dtype="i4", casting="unsafe")
    assert np.load(tmp_path / "b.npy")[1, 2] == 402


@pytest.mark.parametrize("rule", ["foo", "", None, ["safe"]])
def test_rules_for_casts_that_do_not_exist(tmp_path, rule):
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(outcore.errors.UsageError, match="same_kind, unsafe") as caught:
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", casting=rule)
    assert caught.value.code == "bad-casting"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("name", ["b.npy", "b.h5", "b.h5::/x", "b.nc", "b.zarr", "b.zarr::/x"])
def test_errors_name_the_target_not_what_it_grows_in(tmp_path, name, monkeypatch):
    np.save(tmp_path / "a.npy", np.arange(3))
    target, file = tmp_path / name, tmp_path / name.partition(":")[0]
    refused = {"shards": 5} if "zarr" not in name else {"chunks": (3, 3)}
    with pytest.raises(outcore.OutcoreError) as caught:
        outcore.convert(tmp_path / "a.npy", target, **refused)
    assert caught.value.path is None or caught.value.path.startswith(str(file))
    assert "partial" not in str(caught.value)

    def full(*words):
        raise OSError(28, "No space left on device")

    class Full:
        """A temporary file that cannot be completed."""

        def __init__(self, *words, **more):
            self.file = plain(*words, **more)
            self.name, self.fileno, self.close = self.file.name, self.file.fileno, self.file.close

        publish = full

    plain = _core.TempFile
    # While it is made, then while it gets its name.
    for making in (True, False):
        with monkeypatch.context() as patch:
            if making:
                patch.setattr(os, "fsync", full)
                patch.setattr(_core, "TempFile", Full)
            else:
                patch.setattr(os, "link", full)
                patch.setattr(os, "rename", full)
                patch.setattr(_core, "move_into_place", full)
            # The journal, which is written first, has an error of its own.
            patch.setattr(_core, "fsync_folder", lambda path: None)
            with pytest.raises(outcore.errors.StorageError) as caught:
                outcore.convert(tmp_path / "a.npy", target)
        assert caught.value.path == str(file)
        text = str(caught.value)
        assert f"'{file}" in text
        assert not [
            w for w in ("partial", ".tmp", ".outcore-") if w in text.replace("journal", "")
        ], text


def test_a_budget_that_is_too_small_says_what_would_do(tmp_path):
    data = make(tmp_path / "a.npy", (1024, 2048), "f8")
    words = {"chunks": (1024, 1024), "compression": "zstd"}
    with pytest.raises(outcore.BudgetError) as caught:
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.zarr", memory="4 MiB", **words)
    assert leftovers(tmp_path) == []
    outcore.convert(tmp_path / "a.npy", tmp_path / "b.zarr", memory=caught.value.needed, **words)
    with outcore.open(tmp_path / "b.zarr") as made:
        np.testing.assert_array_equal(made[...], data)


TARGETS = [
    ("b.npy", {}),
    ("b.npy", {"order": "F"}),
    ("b.zarr", {"chunks": (64, 64), "compression": "zstd"}),
    ("b.h5::/x", {"chunks": (64, 64)}),
    ("b.nc::/x", {}),
    ("b.parts", {"parts": 3, "stripe": 100}),
]


@pytest.mark.parametrize(("name", "words"), TARGETS, ids=lambda v: v if isinstance(v, str) else "")
def test_an_interrupted_conversion_goes_on(tmp_path, name, words, monkeypatch):
    data = make(tmp_path / "a.npy", (1000, 700), "f8")
    call = {"memory": "2 MiB", **words}
    with pytest.raises(Stop):
        outcore.convert(tmp_path / "a.npy", f"{tmp_path}/{name}", progress=stop_after(4), **call)
    assert not (tmp_path / name.partition("::")[0]).exists()
    steps = []
    monkeypatch.setattr(
        Checkpoints,
        "note_written",
        lambda self, k, old=Checkpoints.note_written: (steps.append(k), old(self, k)),
    )
    seen = []
    outcore.convert(
        tmp_path / "a.npy",
        f"{tmp_path}/{name}",
        resume=True,
        progress=lambda done, total: seen.append(done),
        **call,
    )
    assert seen[0] > 0
    assert min(steps) > 0, "steps that were done are not done again"
    with outcore.open(f"{tmp_path}/{name}") as made:
        np.testing.assert_array_equal(made[...], data)
    assert leftovers(tmp_path) == []


def test_another_job_is_not_resumed(tmp_path):
    make(tmp_path / "a.npy", (1000, 700), "f8")
    call = {"memory": "2 MiB"}
    with pytest.raises(Stop):
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", progress=stop_after(3), **call)
    with pytest.raises(outcore.errors.UsageError, match="dtype"):
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", resume=True, dtype="f4", **call)
    time.sleep(0.01)
    data = make(tmp_path / "a.npy", (1000, 700), "f8") + 0
    with pytest.raises(outcore.errors.UsageError, match="source time"):
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", resume=True, **call)
    outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", **call)
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), data)
    assert leftovers(tmp_path) == []


KILLED = """
import importlib, sys, time, outcore
importlib.import_module("outcore.compute.jobs.checkpoints")._CHECKPOINT = 0.0
src, dst = sys.argv[1:3]
pause = float(sys.argv[4])
def progress(done, total):
    print(done, flush=True)
    time.sleep(pause)
words = eval(sys.argv[3])
outcore.convert(src, dst, memory="2 MiB", resume=True, progress=progress, **words)
"""


@pytest.mark.parametrize(("name", "words"), TARGETS[:3], ids=["npy", "npy-F", "zarr"])
def test_a_killed_conversion_goes_on_from_what_was_durable(tmp_path, name, words):
    data = make(tmp_path / "a.npy", (1500, 1400), "f8")
    command = [sys.executable, "-c", KILLED, tmp_path / "a.npy", tmp_path / name, repr(words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    starts = []
    for after in (2, 3, 5, 10**9):
        # Time for the signal to come between two tiles, in a run that gets one.
        words = [*command, "0.05" if after < 10**9 else "0"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        with process:
            for number, line in enumerate(process.stdout):
                if number == 0:
                    starts.append(int(line))
                if number == after:
                    process.send_signal(signal.SIGKILL)
            process.wait()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / name).exists()
    assert process.returncode == 0
    assert starts == sorted(starts)
    assert starts[-1] > 0
    with outcore.open(tmp_path / name) as made:
        np.testing.assert_array_equal(made[...], data)
    assert leftovers(tmp_path) == []


def test_a_source_that_fails_leaves_what_resume_needs(tmp_path):
    data = make(tmp_path / "a.zarr", (512, 512), "f4", chunks=(64, 64), compression="zstd")
    chunk = tmp_path / "a.zarr" / "c" / "6" / "3"
    whole = chunk.read_bytes()
    chunk.write_bytes(b"\0" * len(whole))
    call = {"memory": "8 MiB"}
    with pytest.raises(outcore.errors.FormatError):
        outcore.convert(tmp_path / "a.zarr", tmp_path / "b.npy", **call)
    assert not (tmp_path / "b.npy").exists()
    chunk.write_bytes(whole)
    outcore.convert(tmp_path / "a.zarr", tmp_path / "b.npy", resume=True, **call)
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), data)
    assert leftovers(tmp_path) == []


def test_the_budget_is_kept(tmp_path):
    from outcore import _core

    make(tmp_path / "a.npy", (2048, 2048), "f8")
    with outcore.memory("8 MiB") as limit:
        _core.reset_memory_peak()
        outcore.convert(
            tmp_path / "a.npy", tmp_path / "b.zarr", chunks=(256, 256), compression="zstd"
        )
        outcore.convert(tmp_path / "b.zarr", tmp_path / "c.npy", order="F")
        assert _core.memory_state()[2] <= limit
        assert _core.memory_state()[0] == 0


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = make("a.npy")
    Path("deep.folder/x").mkdir(parents=True)
    outcore.convert("a.npy", "deep.folder/x/name-without-suffix", format="npy")
    np.testing.assert_array_equal(np.load("deep.folder/x/name-without-suffix"), data)
    with pytest.raises(outcore.errors.StorageError):
        outcore.convert("a.npy", "no/such/folder/b.npy")
    with pytest.raises(outcore.errors.UsageError):
        outcore.convert("a.npy", "b.unknown")
    assert leftovers(tmp_path) == []


def test_an_array_in_several_files_given_as_paths_or_open(tmp_path):
    data = np.arange(60, dtype="i4").reshape(6, 10)
    names = [tmp_path / f"part{i}.bin" for i in range(3)]
    for name, part in zip(names, np.split(data, 3), strict=True):
        part.tofile(name)
    raw = {"dtype": "i4", "shape": (6, 10)}
    outcore.convert(names, tmp_path / "a.npy", source=raw)
    with outcore.open(names, **raw) as array:
        outcore.convert(array, tmp_path / "b.npy")
        assert array[5, 9] == 59
    for name in ("a.npy", "b.npy"):
        np.testing.assert_array_equal(np.load(tmp_path / name), data)


def test_a_journal_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    """Before anything is made; nothing is left."""
    np.save(tmp_path / "a.npy", np.arange(3))

    def full(*words):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_core, "fsync_folder", full)
        with pytest.raises(outcore.errors.StorageError, match="journal") as caught:
            outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy")
    assert caught.value.code == "disk-full"
    assert [one.name for one in tmp_path.iterdir()] == ["a.npy"]
