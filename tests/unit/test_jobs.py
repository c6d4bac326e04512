"""Where results go, what jobs leave behind, and how they end."""

import gc
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

import outcore
from killed import dies_at
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Store
from outcore.compute import jobs
from outcore.compute.jobs import Bound, Operation, Program, Result, complete, open_inputs
from outcore.compute.jobs.journal import Journal
from outcore.formats.scratch import scratch_folder
from outcore.public import find_public
from stopping import Stop, stop_after

DATA = np.arange(35_000.0).reshape(250, 140)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)


@pytest.mark.parametrize("name", ["b.npy", "b.zarr", "b.h5::/x", "b.nc::/x"])
def test_an_open_array_is_written_in_place(name):
    out = outcore.create(name, (140, 250), "f8")
    assert outcore.transpose("a.npy", out=out) is out
    np.testing.assert_array_equal(DATA.T, out[...])
    out.close()
    np.testing.assert_array_equal(DATA.T, outcore.open(name)[...])


def test_a_result_in_memory_and_a_cast():
    out = np.zeros((140, 250), "f4")
    assert outcore.transpose("a.npy", out=out) is out
    np.testing.assert_array_equal(DATA.T.astype("f4"), out)


def test_temporary_arrays_go_away_with_their_handle():
    b = outcore.transpose("a.npy")
    assert len(os.listdir()) == 2
    np.testing.assert_array_equal(DATA.T, b[...])
    c = outcore.transpose(b, out="c.npy")
    del b
    gc.collect()
    assert sorted(os.listdir()) == ["a.npy", "c.npy"]
    np.testing.assert_array_equal(DATA, c[...])


def test_temporary_arrays_go_away_with_the_process():
    code = "import outcore; b = outcore.transpose('a.npy'); print(b.path)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert os.listdir() == ["a.npy"]


def test_files_of_dead_processes_are_found_and_removed():
    code = "import os, outcore; b = outcore.transpose('a.npy'); os._exit(0)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    alive = outcore.transpose("a.npy")
    (left,) = jobs.unfinished()
    assert left.state == "left"
    jobs.clean(left)
    assert sorted(os.listdir()) == sorted(["a.npy", os.path.basename(alive.path)])


def test_scratch_is_where_the_user_says(monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("OUTCORE_SCRATCH", str(elsewhere))
    assert scratch_folder(["a.npy"]) == str(elsewhere)
    b = outcore.transpose("a.npy")
    assert os.path.dirname(b.path) == str(elsewhere)


REFUSED = {
    "itself": (lambda: outcore.transpose("a.npy", out="a.npy"), "is an input of the call"),
    "itself, open": (
        lambda: outcore.transpose("a.npy", (0, 1), out=outcore.open("a.npy", "r+")),
        "shares elements",
    ),
    "its memory": (lambda: (lambda x: outcore.transpose(x, out=x))(np.ones((3, 3))), "shares"),
    "shape": (lambda: outcore.transpose("a.npy", out=np.ones((3, 3))), "shape"),
    "dtype": (lambda: outcore.transpose("a.npy", out=np.ones((140, 250), int)), "cannot be cast"),
    "read only": (
        lambda: outcore.transpose("a.npy", (0, 1), out=outcore.open("a.npy")),
        "cannot be written",
    ),
    "nothing": (lambda: outcore.transpose("a.npy", out=3), "not a path"),
    "two for one": (lambda: outcore.transpose("a.npy", out=("b.npy", "c.npy")), "has 2 arrays"),
    "twice": (
        lambda: outcore.map_blocks(lambda b: (b, b), "a.npy", out=("b.npy", "b.npy")),
        "one array twice",
    ),
    "options for an open array": (
        lambda: outcore.transpose("a.npy", out=np.ones((140, 250)), chunks=3),
        "apply only to new arrays",
    ),
    "resume without a name": (lambda: outcore.transpose("a.npy", resume=True), "pass a path"),
    "option": (lambda: outcore.transpose("a.npy", out="b.npy", chunsk=3), "chunsk"),
    "hints": (lambda: outcore.transpose("a.npy", out="b.npy", hints={}), "no option 'hints'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_jobs_are_refused_without_changes(case):
    call, match = REFUSED[case]
    with pytest.raises(outcore.errors.UsageError, match=match):
        call()
    gc.collect()
    assert os.listdir() == ["a.npy"]
    np.testing.assert_array_equal(DATA, np.load("a.npy"))


def test_old_result_stays_until_it_is_replaced():
    np.save("b.npy", np.ones(3))
    with pytest.raises(outcore.errors.AlreadyExistsError, match="overwrite=True"):
        outcore.transpose("a.npy", out="b.npy")
    with pytest.raises(ZeroDivisionError):
        outcore.map_blocks(lambda b: 1 / 0, "a.npy", dtype="f8", out="b.npy", overwrite=True)
    assert sorted(os.listdir()) == ["a.npy", "b.npy"]
    np.testing.assert_array_equal(np.ones(3), np.load("b.npy"))
    outcore.transpose("a.npy", out="b.npy", overwrite=True).close()
    np.testing.assert_array_equal(DATA.T, np.load("b.npy"))


def test_job_killed_between_two_renames_is_completed(monkeypatch):
    """All is durable, one result has its name, the other has not: only that is left to be done."""

    def both(**how):
        return outcore.map_blocks(
            lambda b: (b + 1, b * 2), "a.npy", dtype=("f8", "f8"), out=("b.npy", "c.npy"), **how
        )

    publish = jobs.job.NamedOutput.publish

    def killed(self):
        if self.place.final == "c.npy":
            raise KeyboardInterrupt
        publish(self)

    with monkeypatch.context() as patch:
        patch.setattr(jobs.job.NamedOutput, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            both()
    assert os.path.exists("b.npy")
    assert not os.path.exists("c.npy")
    with pytest.raises(outcore.errors.AlreadyExistsError):
        both()
    for one in both(resume=True):
        one.close()
    np.testing.assert_array_equal(DATA + 1, np.load("b.npy"))
    np.testing.assert_array_equal(DATA * 2, np.load("c.npy"))
    assert sorted(os.listdir()) == ["a.npy", "b.npy", "c.npy"]


def two_phases(log, *, backwards=False):
    """Twice the array, through a temporary one; what is done is logged."""
    cut = 50

    def kernel(blocks):
        blocks[0] *= 2

    def phase(source, target, kernels):
        def step(k):
            k = 4 - k if backwards else k
            section = (slice(k * cut, (k + 1) * cut), slice(0, 140))
            return ScheduleStep(
                (Block(0, (cut, 140)),),
                (Load(source, section, 0),),
                (Store(target, section, 0),),
                kernel=0 if kernels else None,
            )

        buffer = Buffer(cut * 140, np.dtype("f8"), copies=2)
        return Schedule("phase", ("a", "b", "t"), (buffer,), 5, step, kernels)

    def plan(terms):
        phases = phase(0, 2, ()), phase(2, 1, (kernel,))
        temporary = (Result((250, 140), np.dtype("f8")),)
        return Program(phases, "two phases", Bound(2 * DATA.nbytes, "once"), temporary)

    def call(**how):
        with open_inputs("a.npy") as inputs:
            result = (Result(DATA.shape, DATA.dtype),)
            operation = Operation("double", inputs, result, plan, repeatable=False)
            return complete(operation, "b.npy", {"memory": "4 MiB", **how})

    return call


@pytest.fixture
def log(monkeypatch):
    """What becomes of the files of a job, in order: reads, writes, flushes, and the new name."""
    found = []
    for name in ("iread", "iwrite", "flush"):
        old = getattr(outcore.DiskArray, name)

        def logged(self, *words, name=name, old=old, **more):
            found.append((name, os.path.basename(self.path).rpartition("outcore-")[2]))
            return old(self, *words, **more)

        monkeypatch.setattr(outcore.DiskArray, name, logged)
    publish = jobs.job.NamedOutput.publish
    monkeypatch.setattr(
        jobs.job.NamedOutput, "publish", lambda self: (found.append(("name", "")), publish(self))
    )
    return found


def test_a_phase_begins_when_those_before_it_are_durable(log):
    two_phases(log)().close()
    np.testing.assert_array_equal(2 * DATA, np.load("b.npy"))
    last = max(k for k, entry in enumerate(log) if entry == ("iwrite", "temporary-0"))
    first = log.index(("iread", "temporary-0"))
    assert ("flush", "temporary-0") in log[last:first]
    assert sorted(os.listdir()) == ["a.npy", "b.npy"]


def test_a_result_gets_its_name_when_it_is_durable(log):
    outcore.transpose("a.npy", out="b.npy").close()
    last = max(k for k, entry in enumerate(log) if entry[0] == "iwrite")
    assert ("flush", "partial.npy") in log[last : log.index(("name", ""))]


#: Calls before which a process is killed.
STEPS = ("open", "link", "rename", "unlink", "mkdir", "rmdir", "fsync", "fdatasync", "write")


@pytest.mark.parametrize("name", ["b.npy", "b.zarr", "b.h5", "c.h5::/x", "c.zarr::/x"])
def test_a_job_that_had_ended_is_not_gone_on_with(name):
    """Nothing tells whether what is there is its result; the error says so, and what to do."""
    if "::" in name:
        outcore.create(name.replace("/x", "/y"), (3,), "f8").close()
    outcore.transpose("a.npy", out=name, resume=True).close()
    with pytest.raises(outcore.errors.AlreadyExistsError) as caught:
        outcore.transpose("a.npy", out=name, resume=True)
    told = str(caught.value)
    assert "no journal" in told and "open it" in told and "overwrite=True" in told
    with pytest.raises(
        outcore.errors.AlreadyExistsError, match="; pass overwrite=True to replace it"
    ) as no:
        outcore.transpose("a.npy", out=name)
    assert "no journal" not in str(no.value)
    with outcore.open(name) as kept:
        np.testing.assert_array_equal(DATA.T, kept[...])
    assert not [one for one in os.listdir() if "journal" in one]
    outcore.transpose("a.npy", out=name, resume=True, overwrite=True).close()


def test_temporary_arrays_are_what_the_job_left_or_it_does_not_go_on(log, monkeypatch):
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    call = two_phases(log)
    with pytest.raises(Stop):
        call(progress=stop_after(7))
    os.rename("b.npy.outcore-temporary-0", "elsewhere")
    with pytest.raises(outcore.errors.NotFoundError):
        call(resume=True)
    os.rename("elsewhere", "b.npy.outcore-temporary-0")
    log.clear()
    call(resume=True).close()
    assert ("iwrite", "temporary-0") not in log, "the first phase was done"
    np.testing.assert_array_equal(2 * DATA, np.load("b.npy"))
    assert sorted(os.listdir()) == ["a.npy", "b.npy"]


def test_steps_that_were_cut_otherwise_are_not_mixed(log, monkeypatch):
    """As after an update of outcore whose plans differ."""
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    with pytest.raises(Stop):
        two_phases(log)(progress=stop_after(3))
    with pytest.raises(outcore.errors.FormatError, match="start the job again"):
        two_phases(log, backwards=True)(resume=True)


def test_resume_does_not_replace_a_file_created_since(log, monkeypatch):
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    with pytest.raises(Stop):
        two_phases(log)(progress=stop_after(7))
    np.save("b.npy", np.ones(3))
    log.clear()
    with pytest.raises(outcore.errors.AlreadyExistsError):
        two_phases(log)(resume=True)
    assert log == []
    np.testing.assert_array_equal(np.ones(3), np.load("b.npy"))


def test_a_running_job_is_left_alone():
    with Journal("b.npy.outcore-journal") as journal:
        journal.begin({"operation": "transpose"}, {}, 3)
        (one,) = jobs.unfinished()
        assert one.state == "running"
        with pytest.raises(outcore.errors.UsageError, match="locked by another"):
            jobs.clean(one)
    assert jobs.unfinished()[0].state == "repeat"


def test_a_damaged_journal_is_told_and_can_be_removed():
    with open("b.npy.outcore-journal", "w") as file:
        file.write("no journal\n")
    (one,) = jobs.unfinished()
    assert (one.operation, one.state) == ("unknown", "left")
    jobs.clean(one)
    assert os.listdir() == ["a.npy"]


@pytest.mark.parametrize(
    ("name", "words", "outs"),
    [
        ("transpose", {}, ["b.npy"]),
        ("argsort", {"axis": None, "memory": 10**6}, ["b.npy"]),
        ("lu_factor", {"memory": 10**6}, ["b.npy", "c.npy"]),
    ],
)
def test_whenever_it_is_killed_all_that_is_left_can_be_removed(name, words, outs):
    """Also while its arrays are made, before it has done a step."""
    np.save("a.npy", np.random.default_rng(1).random((40, 40) if name == "lu_factor" else 150_000))
    if name == "transpose":
        np.save("a.npy", DATA)

    def compute():
        out = outs[0] if len(outs) == 1 else tuple(outs)
        find_public(name)("a.npy", out=out, **words)

    step = 1
    while dies_at(step, compute, STEPS):
        for one in jobs.unfinished():
            jobs.clean(one)
        assert {"a.npy"} <= set(os.listdir()) <= {"a.npy", *outs}, step
        for path in {*outs} & set(os.listdir()):
            outcore.open(path).close()
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        step += 1
    assert step > 10


def everything():
    """All files and folders here."""
    return {
        os.path.relpath(os.path.join(folder, name))
        for folder, folders, files in os.walk(".")
        for name in (*folders, *files)
    }


@pytest.mark.parametrize("name", ["b.zarr", "b.zarr::/x", "g.zarr::/x", "g.zarr::/new/x"])
def test_whenever_the_making_of_a_zarr_result_ends_nothing_stays_in_hiding(name, monkeypatch):
    """What was to become the array, or the groups above it, is listed and removed with the job."""
    if "g.zarr" in name:
        outcore.create("g.zarr::/other", data=np.ones(3)).close()
    before, step, died = everything(), 1, True

    def make():
        # Only that: what comes after it has tests of its own.
        monkeypatch.setattr(jobs.job, "settle_task", lambda *_: os._exit(0))
        outcore.transpose("a.npy", out=name, chunks=(70, 125))

    while died:
        died = dies_at(step, make, STEPS)
        for one in jobs.unfinished():
            jobs.clean(one)
        left = {one.split(os.sep)[1] for one in everything() - before if os.sep in one}
        assert left <= {"new", "x"}, "what is made in place has its name"
        assert {one.split(os.sep)[0] for one in everything() - before} <= {"g.zarr"}
        for one in left:
            shutil.rmtree(f"g.zarr/{one}")
        step += 1
    assert step > 12


def interrupted(**words):
    with pytest.raises(Stop):
        outcore.map_blocks(
            both, "a.npy", dtype=("f8", "f8"), memory="1 MiB", progress=stop_after(3), **words
        )


def both(block):
    return block + 1, block * 2


def test_whenever_it_is_killed_nothing_is_left_of_the_job_that_was_given_up(monkeypatch):
    """Its results had other names; they are listed until they are gone."""
    np.save("a.npy", np.arange(500_000.0).reshape(1000, 500))
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)

    def anew(**words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that steps are given up
            outcore.map_blocks(
                both, "a.npy", dtype=("f8", "f8"), out=("b.npy", "d.npy"), memory="1 MiB", **words
            )

    step, died, cleaned = 1, True, 0
    while died:
        interrupted(out=("b.npy", "c.npy"))
        assert "c.outcore-partial.npy" in os.listdir()
        died = dies_at(step, anew, STEPS)
        left = jobs.unfinished()
        if left and step % 2:
            cleaned += 1
            jobs.clean(left[0])
        elif left and left[0].targets[1].endswith("d.npy"):
            anew(resume=True)
            np.testing.assert_array_equal(np.load("a.npy") * 2, np.load("d.npy"))
        elif left:
            # The first one is still told whole, and can be gone on with.
            outcore.map_blocks(
                both,
                "a.npy",
                dtype=("f8", "f8"),
                memory="1 MiB",
                out=("b.npy", "c.npy"),
                resume=True,
            )
            np.testing.assert_array_equal(np.load("a.npy") * 2, np.load("c.npy"))
        assert set(os.listdir()) <= {"a.npy", "b.npy", "c.npy", "d.npy"}, step
        for name in {"b.npy", "c.npy", "d.npy"} & set(os.listdir()):
            os.unlink(name)
        step += 1
    assert step > 20
    assert cleaned > 10


def test_whenever_it_is_killed_the_new_folder_replaces_the_old_one(monkeypatch):
    """Also between the exchange of their names and the removal of the old one."""
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)

    def replace(**words):
        outcore.transpose("a.npy", out="b.zarr", chunks=(70, 125), overwrite=True, **words).close()

    step, died = 1, True
    while died:
        outcore.create("b.zarr", data=np.ones((3, 3))).close()
        died = dies_at(step, replace, STEPS)
        with outcore.open("b.zarr") as there:
            now = there[...]
        assert (now == (1 if now.shape == (3, 3) else DATA.T)).all()
        replace(resume=True)
        with outcore.open("b.zarr") as there:
            np.testing.assert_array_equal(DATA.T, there[...])
        assert set(os.listdir()) == {"a.npy", "b.zarr"}, step
        shutil.rmtree("b.zarr")
        step += 1
    assert step > 20
