"""Every algorithm on several ranks: the same calls, the same results."""

import contextlib
import gc
import importlib
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import outcore
from algorithm_runs import in_memory, must_be_right
from algorithms import CASES
from outcore.arrays.schedule import Schedule, ScheduleRun
from outcore.arrays.schedule.divide import divide_steps
from outcore.compute import jobs
from outcore.compute.factors.blas import Routines
from outcore.compute.jobs.carry import Carrier
from outcore.compute.jobs.journal import Journal, find_rank_journals, make_rank_path
from outcore.testing.sim import SimWorld
from ranks import once, ranks
from stopping import Stop, stop_after


def stored(case, folder):
    """Its inputs, in files."""
    folder.mkdir()
    paths = [folder / f"in{n}.npy" for n in range(len(case.inputs))]
    for path, data in zip(paths, case.inputs, strict=True):
        np.save(path, data)
    return paths


def called(case, folder, prefix, **words):
    """The results of a call, as arrays in memory."""
    paths = [str(folder / f"in{n}.npy") for n in range(len(case.inputs))]
    out = tuple(str(folder / f"{prefix}{n}{suffix}") for n, suffix in enumerate(case.outs))
    if out:
        words["out"] = out if len(out) > 1 else out[0]
    found = case.call(*paths, **{"memory": case.memory, **case.words, **words})
    if found is None:  # convert
        found = outcore.open(out[0], comm=words.get("comm"))
    return in_memory(found)


@pytest.mark.parametrize("name", CASES)
@ranks(2, 5)
def test_results_are_those_of_one_process(world, folder, name, monkeypatch):
    """Bit for bit where it is promised; each rank gets them."""
    # Panels of stencils on all ranks, also where that does not pay.
    monkeypatch.setattr("outcore.base.assumed_costs.STENCIL_ELEMENT_SECONDS", 1.0)
    case = CASES[name]()
    alone = []

    def body(t):
        def make():
            stored(case, folder / "a")
            alone.extend(called(case, folder / "a", "alone"))

        once(t, make)
        found = called(case, folder / "a", "shared", comm=t)
        t.barrier()
        if t.rank == 0:
            left = {one.name for one in (folder / "a").iterdir()}
            assert not [one for one in left if "outcore-" in one]
        t.barrier()
        return found

    for found in world.run(body):
        must_be_right(case, found)
        for one, wanted in zip(found, alone, strict=True) if case.bits and alone else ():
            np.testing.assert_array_equal(wanted, one)


#: Cases whose steps are divided by a rate, one of each family.
RATED = ["cholesky by tiles", "fft of a long signal", "gaussian_filter", "lu", "matmul by blocks"]
RATED += ["qr", "solve", "stencil in several passes", "svd", "tensordot"]


@pytest.mark.parametrize("name", RATED)
@ranks(3)
def test_ranks_that_measured_other_rates_divide_steps_alike(world, folder, name, monkeypatch):
    """Each rank tries its processor by itself, beside other programs; no step may be nobody's."""
    real = Carrier.run_phase

    def phase(self, phase, *arguments):
        if isinstance(phase, Schedule) and phase.rate:
            phase = replace(phase, rate=phase.rate / 1000.0 ** (self.ranks.rank % 3))
        real(self, phase, *arguments)

    monkeypatch.setattr(Carrier, "run_phase", phase)
    case = CASES[name]()

    def body(t):
        once(t, lambda: stored(case, folder / "a"))
        return called(case, folder / "a", "shared", comm=t)

    for found in world.run(body):
        must_be_right(case, found)


@ranks(2, 3)
def test_steps_that_ranks_divide_differently_are_an_error_on_all(world, folder, monkeypatch):
    def rounds(self, schedule):
        def weigh(step):
            return float(self.ranks.rank * sum(part.start for part in step.loads[0].section))

        return divide_steps(schedule, self.ranks.size, weigh)

    monkeypatch.setattr(Carrier, "divide_rounds", rounds)

    def body(t):
        path = folder / "a.npy"
        once(t, lambda: np.save(path, np.arange(1 << 20).reshape(1024, 1024)))
        with pytest.raises(outcore.errors.CollectiveError, match="divided as") as error:
            outcore.transpose(path, out=folder / "b.npy", memory="1 MiB", comm=t)
        assert error.value.code == "mismatched-call"
        t.barrier()
        assert not (folder / "b.npy").exists()

    world.run(body)


@ranks(2, 3)
def test_ranks_whose_lapack_works_in_more_are_an_error_on_all(world, folder, monkeypatch):
    """Then blocks have fewer rows there: together the ranks would factor some rows twice."""
    here, real = threading.local(), Routines.qr_work
    monkeypatch.setattr(Routines, "qr_work", lambda one, n: real(one, n) + 4000 * here.rank)

    def body(t):
        here.rank = t.rank
        path = folder / "a.npy"
        once(t, lambda: np.save(path, np.random.default_rng(0).random((9000, 20))))
        with pytest.raises(outcore.errors.CollectiveError, match="with blocks of") as error:
            outcore.linalg.qr(path, out=folder / "q.npy", memory="1 MiB", comm=t)
        assert error.value.code == "mismatched-call"
        t.barrier()
        assert not (folder / "q.npy").exists()

    world.run(body)


NAMED = [name for name in CASES if CASES[name]().outs]


@pytest.mark.parametrize("name", NAMED)
@ranks(3)
def test_interrupted_runs_resume_on_other_numbers_of_ranks(world, folder, name, monkeypatch):
    """One rank stops; all raise; other numbers of ranks end in the same bytes."""
    checkpoints = importlib.import_module("outcore.compute.jobs.checkpoints")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    case = CASES[name]()
    whole = []

    def body(t):
        def make():
            stored(case, folder / "a")
            called(case, folder / "a", "alone")
            whole.extend(content(case, folder / "a", "alone"))

        once(t, make)
        for stopped in range(t.size):
            prefix = f"stopped{stopped}-"
            calls = []

            def stop(done, total, calls=calls, stopped=stopped):
                calls.append(done)
                if t.rank == stopped and len(calls) > 2:
                    raise Stop

            with contextlib.suppress(
                outcore.errors.CollectiveError
            ):  # unless it had too little to do
                called(case, folder / "a", prefix, comm=t, progress=stop)
                continue
            t.barrier()
            if stopped % 2:
                once(t, lambda p=prefix: called(case, folder / "a", p, resume=True))
            else:
                called(case, folder / "a", prefix, comm=t, resume=True)
            t.barrier()
            if t.rank == 0:
                if case.bits:
                    assert content(case, folder / "a", prefix) == whole
                names = [f"{prefix}{n}{suffix}" for n, suffix in enumerate(case.outs)]
                must_be_right(case, [outcore.open(folder / "a" / name)[...] for name in names])
                assert jobs.unfinished(folder / "a") == []
                left = [one.name for one in (folder / "a").iterdir() if ".outcore" in one.name]
                assert left == []
            t.barrier()

    world.run(body)


def content(case, folder, prefix):
    """All bytes of the results."""
    found = []
    for n, suffix in enumerate(case.outs):
        path = Path(folder) / f"{prefix}{n}{suffix}"
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        found.append([one.read_bytes() for one in files if one.is_file()])
    return found


@pytest.mark.parametrize("name", ["matmul by blocks", "matmul by slabs", "tensordot"])
@ranks(2, 4)
def test_common_inputs_are_read_once_and_handed_round(world, folder, name, monkeypatch):
    """As where a disk is slow; one process reads blocks again for each block of the result."""
    case, moved = CASES[name](), []
    carry = importlib.import_module("outcore.compute.jobs.carry")
    monkeypatch.setattr(carry, "read_all", partial(outcore.mpi.read_all, method="two-phase"))
    monkeypatch.setattr("outcore.base.assumed_costs.REQUEST_DELAY", 0.0)  # tiles that move least
    measured = carry.Carrier.sum_measured

    def noted(self):
        found = measured(self)
        moved.append(found.read_bytes)
        return found

    monkeypatch.setattr(carry.Carrier, "sum_measured", noted)

    def body(t):
        gc.collect()  # what earlier tests left is in the budget until then, and tiles are smaller
        once(t, lambda: stored(case, folder / "a"))
        must_be_right(case, called(case, folder / "a", "shared", comm=t))

    world.run(body)
    size = sum(data.nbytes for data in case.inputs)
    # Blocks of the result that meet less than a whole block of an input read some of it again.
    assert max(moved) <= (1.6 if world.size <= 4 else 1.75) * size


@ranks(1, 2, 3)
def test_one_operand_may_be_in_memory(world, folder):
    """It is read by nobody; the other one is read together."""
    a, x = np.random.default_rng(1).random((1000, 500)), np.arange(500.0)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", a))
        found = outcore.matmul(folder / "a.npy", x, memory="1 MiB", comm=t)
        np.testing.assert_allclose(found[...], a @ x)
        found = outcore.matmul(x.reshape(1, 500), a.T.copy(), memory="8 MiB", comm=t)
        np.testing.assert_allclose(found[...], (a @ x)[None])

    world.run(body)


@ranks(3, most=4)
def test_steps_are_divided_by_what_they_take(world, folder, monkeypatch):
    """Each rank has about as much, also of what begins with what the step before has read."""
    carry = importlib.import_module("outcore.compute.jobs.carry")
    part, steps = carry.Carrier.run_part, {}

    def noted(self, schedule, parts, *more):
        for rank, one in enumerate(parts):
            steps.setdefault(schedule.name, {}).setdefault(rank, len(one))
        return part(self, schedule, parts, *more)

    monkeypatch.setattr(carry.Carrier, "run_part", noted)
    for name in ("transpose", "map_blocks", "median_filter", "matmul by blocks", "sort"):
        case = CASES[name]()

        def body(t, case=case, where=folder / name):
            once(t, lambda: stored(case, where))
            called(case, where, "shared", comm=t)

        world.run(body)
    assert len(steps) == 6  # a sort has two
    for found in steps.values():
        assert max(found.values()) <= 2 * min(found.values())


@ranks(2, 3)
def test_different_arguments_raise_on_all_ranks(world, folder):
    np.save(folder / "a.npy", np.arange(100_000.0).reshape(100, 1000)) if world else None

    def body(t):
        axes = (1, 0) if t.rank == 0 else (0, 1)
        with pytest.raises(outcore.errors.CollectiveError, match="every rank must make the same"):
            outcore.transpose(folder / "a.npy", axes, out=folder / "b.npy", comm=t)
        name = "a.npy" if t.rank else "none.npy"
        with pytest.raises(outcore.errors.CollectiveError, match="on rank 0") as told:
            outcore.transpose(folder / name, out=folder / "b.npy", comm=t)
        assert isinstance(told.value.__cause__, FileNotFoundError)
        memory = 2**20 if t.rank else 1000
        with pytest.raises(outcore.errors.CollectiveError, match="budget-too-small"):
            outcore.transpose(folder / "a.npy", out=folder / "b.npy", comm=t, memory=memory)
        t.barrier()
        assert {one.name for one in folder.iterdir()} == {"a.npy"}
        t.barrier()
        with outcore.transpose(folder / "a.npy", out=folder / "b.npy", comm=t) as found:
            assert found.shape == (1000, 100)

    world.run(body)


@pytest.mark.parametrize("suffix", [".npy", ".zarr", ".h5"])
@ranks(2, 3)
def test_a_result_without_a_name_stays_until_the_last_rank_lets_go(world, folder, suffix):
    """Whoever that is: the others read it meanwhile."""
    format = {".npy": "npy", ".zarr": "zarr", ".h5": "hdf5"}[suffix]

    def body(t):
        def make():
            (folder / "a").mkdir(exist_ok=True)
            np.save(folder / "a" / "a.npy", np.arange(60_000.0).reshape(200, 300))

        once(t, make)
        for last in range(t.size):
            found = outcore.transpose(folder / "a" / "a.npy", comm=t, format=format)
            if t.rank != last:
                found.close()
                del found
            t.barrier()
            if t.rank == last:
                assert found[299, 0] == 299
                assert len(list((folder / "a").iterdir())) == 2
                found.close()
                del found
            t.barrier()
            assert [one.name for one in (folder / "a").iterdir()] == ["a.npy"]
            t.barrier()

    world.run(body)


@pytest.mark.simulated
def test_rank_journals_of_an_earlier_run_are_ignored(tmp_path, monkeypatch):
    """It began anew: the arrays of the earlier job, and what its ranks had stored, are gone."""
    checkpoints = importlib.import_module("outcore.compute.jobs.checkpoints")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    a = np.random.default_rng(0).random((500, 900))
    np.save(tmp_path / "a.npy", a)
    words = {"out": tmp_path / "b.npy", "memory": 2**20}

    def body(t):
        last = stop_after(3) if t.rank == 1 else None
        outcore.transpose(tmp_path / "a.npy", comm=t, progress=last, **words)

    with pytest.raises(outcore.errors.CollectiveError):
        SimWorld(2).run(body)
    (noted,) = find_rank_journals(str(tmp_path / "b.npy.outcore-journal"))
    kept = Path(noted).read_bytes()
    assert kept.count(b"\n") > 1
    with pytest.raises(Stop), pytest.warns(UserWarning, match="discarded"):
        outcore.transpose(tmp_path / "a.npy", progress=stop_after(3), **words)
    outcore.transpose(tmp_path / "a.npy", resume=True, **words).close()
    np.testing.assert_array_equal(a.T, np.load(tmp_path / "b.npy"))
    assert {one.name for one in tmp_path.iterdir()} == {"a.npy", "b.npy"}


@pytest.mark.simulated
def test_rank_journals_without_a_main_journal_are_ignored(tmp_path, monkeypatch):
    """Somebody removed the first one by hand: the arrays are made anew, for the same job."""
    checkpoints = importlib.import_module("outcore.compute.jobs.checkpoints")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    a = np.random.default_rng(0).random((500, 900))
    np.save(tmp_path / "a.npy", a)
    words = {"out": tmp_path / "b.npy", "memory": 2**20}
    path = str(tmp_path / "b.npy.outcore-journal")
    with pytest.raises(Stop):
        outcore.transpose(tmp_path / "a.npy", progress=stop_after(3), **words)
    with Journal(path) as journal, Journal(make_rank_path(path, 1)) as other:
        other.begin(journal.job, journal.cut, journal.steps)
        other.commit(range(journal.steps - 1))
    Path(path).unlink()
    with pytest.raises(Stop):
        outcore.transpose(tmp_path / "a.npy", progress=stop_after(3), **words)
    outcore.transpose(tmp_path / "a.npy", resume=True, **words).close()
    np.testing.assert_array_equal(a.T, np.load(tmp_path / "b.npy"))
    assert {one.name for one in tmp_path.iterdir()} == {"a.npy", "b.npy"}


@pytest.mark.simulated
def test_rank_journals_of_another_job_are_ignored(tmp_path, monkeypatch):
    checkpoints = importlib.import_module("outcore.compute.jobs.checkpoints")
    monkeypatch.setattr(checkpoints, "_CHECKPOINT", 0.0)
    a = np.random.default_rng(0).random((500, 900))
    np.save(tmp_path / "a.npy", a)
    words = {"out": tmp_path / "b.npy", "memory": 2**20}
    with pytest.raises(Stop):
        outcore.transpose(tmp_path / "a.npy", progress=stop_after(3), **words)
    path = str(tmp_path / "b.npy.outcore-journal")
    with Journal(path) as journal, Journal(make_rank_path(path, 1)) as other:
        other.begin({"operation": "another"}, journal.cut, journal.steps)
        other.commit(range(journal.steps))
    assert jobs.unfinished(tmp_path)[0].done < 10
    outcore.transpose(tmp_path / "a.npy", resume=True, **words).close()
    np.testing.assert_array_equal(a.T, np.load(tmp_path / "b.npy"))
    assert {one.name for one in tmp_path.iterdir()} == {"a.npy", "b.npy"}


@pytest.mark.simulated
def test_ranks_write_as_those_who_are_not_alone(tmp_path, monkeypatch):
    """Who is told that nobody else writes reads, changes and writes whole blocks without a lock."""
    carry, seen = importlib.import_module("outcore.compute.jobs.carry"), []

    def run(schedule, arrays, **more):
        seen.extend(a.hints.exclusive for a in arrays if a.writable)
        return ScheduleRun(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    np.save(tmp_path / "a.npy", np.ones((300, 200)))
    words = {"out": tmp_path / "b.npy", "overwrite": True}
    outcore.transpose(tmp_path / "a.npy", **words).close()
    assert seen == [True]
    SimWorld(2).run(lambda t: outcore.transpose(tmp_path / "a.npy", comm=t, **words).close())
    assert seen == [True, False, False]
