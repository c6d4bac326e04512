"""Jobs that were interrupted, gone on with by ranks: whichever began them, and however many."""

import importlib
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import outcore
from algorithm_runs import content, left
from algorithms import CASES
from outcore.compute import jobs
from outcore.compute.jobs.journal import Journal
from outcore.testing.sim import SimWorld
from ranks import once, ranks
from stopping import Stop, stop_after

NAMED = [name for name in CASES if CASES[name]().outs]


@pytest.fixture(autouse=True)
def each_step_is_recorded(monkeypatch):
    checkpoints = importlib.import_module("outcore.compute.jobs.checkpoints")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)


class Files:
    """A case with its inputs and results in a folder."""

    def __init__(self, name, folder):
        self.case, self.folder = CASES[name](), folder
        self.inputs = [str(folder / f"in{n}.npy") for n in range(len(self.case.inputs))]
        self.out = tuple(str(folder / f"out{n}{s}") for n, s in enumerate(self.case.outs))

    def make(self):
        """The inputs, and the bytes of undisturbed results."""
        self.folder.mkdir()
        for path, data in zip(self.inputs, self.case.inputs, strict=True):
            np.save(path, data)
        self.call()
        self.whole = self.results()
        for path in self.out:
            remove(path)

    def call(self, **words):
        out = self.out if len(self.out) > 1 else self.out[0]
        found = self.case.call(
            *self.inputs, out=out, **{"memory": self.case.memory, **self.case.words, **words}
        )
        for one in found if isinstance(found, tuple) else (found,):
            if one is not None:
                one.close()

    def results(self):
        return [content(path) for path in self.out]

    def is_right(self):
        assert left(self.folder) == []
        if self.case.bits:
            assert self.results() == self.whole


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def interrupted(files, t):
    """Begin it on all ranks, of which the first that has something to do stops."""
    with suppress(Stop, outcore.errors.CollectiveError):
        files.call(comm=t, progress=stop_after(files.case.begun))


@ranks(2, 3, most=5)
def test_resume_goes_on_with_all_jobs_of_a_folder(world, folder, monkeypatch):
    """Calls that were written down, of all of them; each ends in the same bytes."""
    names = ["transpose", "stencil in several passes", "lu", "argsort", "convert", "sum"]
    every, states = [Files(name, folder / name) for name in names], []

    def body(t):
        once(t, lambda: [one.make() for one in every])
        for one in every:
            interrupted(one, t)
            t.barrier()
            # Who looks holds the journal: one of them does.
            once(t, lambda one=one: states.append([j.state for j in jobs.unfinished(one.folder)]))
            complete = jobs.resume(one.folder, comm=t)
            assert complete == list(one.out)
            t.barrier()
            once(t, one.is_right)
            assert jobs.resume(one.folder, comm=t) == []
        once(t, lambda: states == [["resumable"]] * len(every) or pytest.fail(str(states)))

    world.run(body)


@ranks(2, 3)
def test_ranks_share_what_a_process_alone_has_left(world, folder, monkeypatch):
    carry, done = importlib.import_module("outcore.compute.jobs.carry"), {}
    part = carry.Carrier.run_part

    def noted(self, schedule, parts, *more):
        done[self.ranks.rank] = len(parts[self.ranks.rank])
        return part(self, schedule, parts, *more)

    monkeypatch.setattr(carry.Carrier, "run_part", noted)
    files = Files("transpose", folder / "a")

    def body(t):
        def begin():
            files.make()
            with pytest.raises(Stop):
                files.call(progress=stop_after(3))
            done.clear()

        once(t, begin)
        assert jobs.resume(files.folder, comm=t) == list(files.out)
        t.barrier()
        assert done[t.rank] > 0 or t.size > 5
        once(t, files.is_right)

    world.run(body)


@ranks(2, 3)
def test_a_rank_that_cannot_open_an_input_ends_resume_on_all(world, folder, monkeypatch):
    files, unwilling = Files("transpose", folder / "a"), {}
    plain = outcore.open

    def opened(path, *words, **more):
        if unwilling.get(threading.get_ident()):
            raise FileNotFoundError(path)
        return plain(path, *words, **more)

    monkeypatch.setattr(outcore, "open", opened)

    def body(t):
        once(t, files.make)
        interrupted(files, t)
        t.barrier()
        unwilling[threading.get_ident()] = t.rank == t.size - 1
        with pytest.raises(outcore.errors.CollectiveError, match=f"on rank {t.size - 1}"):
            jobs.resume(files.folder, comm=t)
        unwilling.clear()
        t.barrier()
        assert jobs.resume(files.folder, comm=t) == list(files.out)
        t.barrier()
        once(t, files.is_right)

    world.run(body)


@ranks(1, 3, most=4)
def test_resume_replaces_what_the_call_would_have_replaced(world, folder):
    files = Files("transpose", folder / "a")

    def body(t):
        def make():
            files.make()
            np.save(files.out[0], np.ones(3))

        once(t, make)
        with pytest.raises((Stop, outcore.errors.CollectiveError)):
            files.call(comm=t, progress=stop_after(3), overwrite=True)
        t.barrier()
        np.testing.assert_array_equal(np.ones(3), np.load(files.out[0]))
        t.barrier()
        assert jobs.resume(files.folder, comm=t) == list(files.out)
        once(t, files.is_right)

    world.run(body)


#: One of each family, and a call that is another job by its arguments.
FAMILIES = {
    "transpose of 3 axes": lambda a, **how: outcore.transpose(a, (1, 0, 2), **how),
    "map_blocks": None,
    "stencil": lambda a, **how: outcore.stencil(
        a, [[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]], steps=19, boundary="untouched", **how
    ),
    "median_filter": lambda a, **how: outcore.ndimage.median_filter(a, 5, **how),
    "sum": lambda a, **how: outcore.sum(a, 0, keepdims=True, **how),
    "cumsum": lambda a, **how: outcore.cumsum(a, 1, **how),
    "quantile": lambda a, **how: outcore.quantile(a, [0.1, 0.6], 1, **how),
    "sort": lambda a, **how: outcore.argsort(a, **how),
    "matmul by blocks": lambda a, b, **how: outcore.matmul(a, b, method="slabs", **how),
    "fft": lambda a, **how: outcore.fft.fft(a, axis=1, **how),
    "cholesky": None,
    "solve": None,
}


@pytest.mark.simulated
@pytest.mark.parametrize("name", FAMILIES)
def test_nobody_goes_on_with_another_input_call_or_too_little_memory(name, tmp_path):
    """Neither one process nor ranks; and nothing is lost by trying. More memory or other ranks do."""
    files = Files(name, tmp_path / "a")
    files.make()
    with pytest.raises(Stop):
        files.call(progress=stop_after(files.case.begun))
    journal = Path(files.out[0] + ".outcore-journal")
    kept = journal.read_bytes()

    def refused(error, match, **words):
        def body(t):
            comm = {} if t is None else {"comm": t}
            with pytest.raises((error, outcore.errors.CollectiveError), match=match):
                files.call(resume=True, **words, **comm)

        body(None)
        SimWorld(3).run(body)
        assert journal.read_bytes() == kept, "what was done is not lost"

    for n, (path, data) in enumerate(zip(files.inputs, files.case.inputs, strict=True)):
        before = os.stat(path)
        np.save(path, data)
        refused(outcore.errors.UsageError, f"different source{f' {n + 1}' if n else ''} time")
        np.save(path, data[:-1])
        refused(outcore.OutcoreError, "shape|align|square|fit")
        np.save(path, data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    call, other = files.case.call, FAMILIES[name]
    if other is not None:
        files.case.call = other
        refused(outcore.errors.UsageError, "belongs to another job")
        files.case.call = call
    if name != "sort":  # there it is NumPy's, the order of fields
        refused(outcore.errors.UsageError, "belongs to another job: different order", order="F")
    refused(outcore.BudgetError, "it resumes steps that were planned", memory=100_000)
    SimWorld(3).run(lambda t: files.call(resume=True, comm=t, memory=16 * files.case.memory))
    files.is_right()


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["transpose", "argsort", "stencil in several passes", "cumsum"])
def test_each_time_other_ranks_go_on_with_other_memory(name, tmp_path):
    """The plan stays that of the first run."""
    files = Files(name, tmp_path / "a")
    files.make()
    memory, journal = files.case.memory, Path(files.out[0] + ".outcore-journal")
    cut = None
    for size, more in ((2, 1), (5, 4), (1, 2), (3, 8)):
        ended, failures, words = [], [], {"resume": True, "memory": memory * more}

        def body(t, ended=ended, failures=failures, words=words):
            try:
                files.call(comm=t, progress=stop_after(2), **words)
                ended.append(True)
            except (Stop, outcore.errors.CollectiveError) as error:
                failures.append(repr(error))

        SimWorld(size).run(body)
        assert all("Stop" in one for one in failures)
        if ended:
            break
        with Journal(str(journal), look=True) as seen:
            cut = cut or seen.cut["cut"]
            assert seen.cut["cut"] == cut
    else:
        files.call(resume=True)
    assert cut is not None
    files.is_right()
