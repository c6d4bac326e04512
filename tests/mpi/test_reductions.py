"""Reductions on several ranks: each reads a part, and the bits are those of one process."""

import importlib

import numpy as np
import pytest

import outcore
from outcore.arrays.schedule import ScheduleRun
from outcore.base import assumed_costs
from outcore.public import find_public
from ranks import of_all, once, ranks
from schedule_check import check_schedule

# Shape, reduced axes, in what order the file is.
CUTS = [
    ((70_001,), None, "C"),
    ((1000,), None, "C"),
    ((300, 401), None, "C"),
    ((300, 401), None, "F"),
    ((3, 50_021), None, "C"),
    ((50_021, 3), None, "C"),
    ((3, 50_021), (0, 1), "F"),
    ((5003, 17), 0, "C"),
    ((5003, 17), 0, "F"),
    ((17, 5003), 1, "F"),
    ((7, 130, 33), (0, 1), "C"),
    ((7, 1300, 5), (1, 2), "F"),
    ((7, 1300, 5), (0, 2), "C"),
    ((3, 4, 5, 600), None, "C"),
    ((2000, 3, 2), (0, 2), "F"),
]
DTYPES = ["f4", "f8", "c8", ">f8", "i2", "?"]
NAMES = [
    "sum",
    "prod",
    "mean",
    "var",
    "nansum",
    "nanstd",
    "max",
    "argmin",
    "nanmean",
    "any",
    "norm",
]


def content(shape, dtype, rng):
    data = rng.standard_normal(shape) * 10 ** rng.uniform(-2, 2, shape)
    if dtype == "c8":
        data = data + 1j * rng.standard_normal(shape)
    if np.dtype(dtype).kind in "fc":
        data.reshape(-1)[7::11] = np.nan
    return (data > 0) if dtype == "?" else data.astype(dtype)


@pytest.fixture
def seen(monkeypatch):
    """Steps that each rank was given, by schedule; all schedules are checked, and nodes always used."""
    carry, found = importlib.import_module("outcore.compute.jobs.carry"), []
    monkeypatch.setattr(assumed_costs, "SYNCHRONISATION_SECONDS", -100.0)

    def run(schedule, arrays, plain=ScheduleRun, **more):
        stored = {s.array for k in range(schedule.steps) for s in schedule.step(k).stores}
        check_schedule(schedule, [a.shape for a in arrays], stored, again=True)
        found.append((schedule.name, len(more["steps"])))
        return plain(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    return found


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:Degrees of freedom")
@pytest.mark.parametrize(("shape", "axis", "order"), CUTS, ids=str)
@ranks(4)
def test_bits_are_those_of_one_process(world, folder, seen, shape, axis, order):
    rng = np.random.default_rng(len(shape) * shape[0])
    chosen = [(str(d), str(n)) for d, n in zip(DTYPES, rng.choice(NAMES, len(DTYPES)), strict=True)]
    alone = {}

    def body(t):
        for number, (dtype, name) in enumerate(chosen):
            path, words = folder / f"{number}.npy", {"axis": axis, "memory": "1 MiB"}
            if name == "argmin" and isinstance(axis, tuple) and len(axis) < len(shape):
                name = "mean"
            if name == "argmin":
                words["axis"] = axis if isinstance(axis, int) else None
            if name == "norm" and axis is not None and not isinstance(axis, int):
                words["axis"] = None

            def make(path=path, name=name, words=words, dtype=dtype, number=number):
                outcore.create(path, data=content(shape, dtype, rng), order=order).close()
                alone[number] = find_public(name)(path, **words)

            once(t, make)
            found = find_public(name)(path, comm=t, keepdims=True, **words)
            t.barrier()
            assert sorted(folder.glob(".outcore*")) == []
            t.barrier()
            if alone:
                assert alone[number].tobytes() == found.tobytes(), (dtype, name)

    world.run(body)
    given = [steps for one in of_all(seen) for _, steps in one]
    assert sum(steps > 0 for steps in given) > 2 * len(chosen)


@pytest.mark.parametrize(("shape", "axis", "order"), CUTS[2:9], ids=str)
@ranks(3)
def test_chosen_elements_have_the_bits_of_one_process(world, folder, seen, shape, axis, order):
    rng, alone = np.random.default_rng(shape[0]), {}
    choices = [shape, (*shape[:-1], 1), shape[-1:]]

    def body(t):
        for number, choice in enumerate(choices):
            path, where = folder / f"{number}.npy", folder / f"w{number}.npy"

            def make(path=path, where=where, choice=choice, number=number):
                outcore.create(path, data=content(shape, "f8", rng), order=order).close()
                np.save(where, rng.random(choice) < 0.7)
                for name in ("nansum", "nanvar", "mean"):
                    alone[number, name] = find_public(name)(path, axis, where=where)

            once(t, make)
            for name in ("nansum", "nanvar", "mean"):
                words = {"where": where, "memory": "1 MiB", "comm": t}
                found = find_public(name)(path, axis, **words)
                if alone:
                    assert alone[number, name].tobytes() == found.tobytes(), (number, name)

    world.run(body)
    assert sum(steps > 0 for one in of_all(seen) for _, steps in one) > 2 * len(choices)


@ranks(2, 3, 4)
def test_each_rank_reads_its_part(world, folder, monkeypatch):
    """Also of one number, of a single row of results, and of an inner product."""
    carry = importlib.import_module("outcore.compute.jobs.carry")
    monkeypatch.setattr(assumed_costs, "SYNCHRONISATION_SECONDS", 0.0)
    part, read = carry.Carrier.run_part, {}

    def noted(self, schedule, parts, *more):
        steps = parts[self.ranks.rank]
        bytes_of = sum(
            np.prod([p.stop - p.start for p in load.section])
            * self.arrays[load.array].dtype.itemsize
            for k in steps
            for load in schedule.step(k).loads
        )
        read.setdefault(name, {}).setdefault(self.ranks.rank, []).append(int(bytes_of))
        return part(self, schedule, parts, *more)

    monkeypatch.setattr(carry.Carrier, "run_part", noted)
    data = np.random.default_rng(0).random((2048, 512))
    calls = {
        "all": lambda t: outcore.sum(folder / "a.npy", comm=t),
        "rows": lambda t: outcore.mean(folder / "a.npy", axis=0, comm=t),
        "vector": lambda t: outcore.max(folder / "v.npy", comm=t),
        "dot": lambda t: outcore.dot(folder / "v.npy", folder / "v.npy", comm=t),
        "statistics": lambda t: outcore.statistics(folder / "a.npy", comm=t)["std"],
    }
    wanted = {
        "all": data.sum(),
        "rows": data.mean(axis=0),
        "vector": data.max(),
        "dot": np.dot(data.reshape(-1), data.reshape(-1)),
        "statistics": data.std(),
    }
    for name, call in calls.items():

        def body(t, call=call):
            def make():
                np.save(folder / "a.npy", data)
                np.save(folder / "v.npy", data.reshape(-1))

            once(t, make)
            return call(t)

        for found in world.run(body):
            np.testing.assert_allclose(found, wanted[name])
        # Nodes are few: the second pass weighs nothing.
        sizes = [sum(mine) for mine in read[name].values()]
        assert max(sizes) <= 1.35 * data.nbytes * (2 if name == "dot" else 1) / world.size


@ranks(2, 3, most=4)
def test_counts_are_those_of_one_process(world, folder, seen):
    """Each rank counts a part."""
    rng = np.random.default_rng(5)
    data, values = rng.standard_normal((700, 331)), rng.integers(0, 3000, 300_007)

    def body(t):
        def make():
            np.save(folder / "a.npy", data)
            np.save(folder / "v.npy", values)

        once(t, make)
        words = {"memory": "4 MiB", "comm": t}
        counts, edges = outcore.histogram(folder / "a.npy", 50, (-2, 2.5), **words)
        expected = np.histogram(data, 50, (-2, 2.5))
        np.testing.assert_array_equal(expected[0], counts)
        np.testing.assert_array_equal(expected[1], edges)
        found = outcore.bincount(folder / "v.npy", minlength=3100, **words)
        np.testing.assert_array_equal(np.bincount(values, minlength=3100), found)
        found = outcore.bincount(folder / "v.npy", minlength=60_000, **words)
        np.testing.assert_array_equal(np.bincount(values, minlength=60_000), found)

    world.run(body)
    parts = [steps for one in of_all(seen) for name, steps in one if name == "histogram"]
    assert sum(steps > 0 for steps in parts) == 2 * world.size  # also in the pass that adds them


@ranks(1, 2, 3)
def test_norms_of_matrices_on_ranks(world, folder):
    data = np.random.default_rng(4).standard_normal((300, 20_000))

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        for power in (1, -1, np.inf):
            found = outcore.linalg.norm(folder / "a.npy", power, memory="4 MiB", comm=t)
            np.testing.assert_allclose(found, np.linalg.norm(data, power), rtol=1e-12)
        once(t, lambda: np.save(folder / "b.npy", data[:3].T))
        found = outcore.linalg.norm(folder / "b.npy", "nuc", memory="4 MiB", comm=t)
        np.testing.assert_allclose(found, np.linalg.norm(data[:3], "nuc"), rtol=1e-12)

    world.run(body)


@ranks(1, 2, 3)
def test_ranks_add_weights(world, folder):
    data = np.random.default_rng(4).standard_normal((300, 401))
    values = np.random.default_rng(5).integers(0, 3000, 100_000)

    def body(t):
        def make():
            np.save(folder / "a.npy", data)
            np.save(folder / "v.npy", values)

        once(t, make)
        words = {"memory": "4 MiB", "comm": t}
        found = outcore.bincount(folder / "v.npy", folder / "v.npy", 3100, **words)
        np.testing.assert_allclose(found, np.bincount(values, values, 3100), rtol=1e-12)
        name = folder / "a.npy"
        found, _ = outcore.histogram(name, 50, (-2, 2.5), weights=name, **words)
        expected = np.histogram(data, 50, (-2, 2.5), weights=data)[0]
        np.testing.assert_allclose(found, expected, atol=1e-9)

    world.run(body)


@pytest.mark.parametrize("axis", [None, 1])
@ranks(1, 2, 3)
def test_quantiles_of_more_than_fits(world, folder, axis):
    """Each rank counts a part in each pass."""
    data = np.random.default_rng(7).standard_normal((2, 150_001)).astype("f4")
    data[1] = 1 + np.arange(150_001) * np.float32(2.0**-22)
    gaps = np.where(data > 0.5, data, np.nan)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        words = {"axis": axis, "method": "higher", "comm": t}
        found = outcore.quantile(folder / "a.npy", [0.1, 0.9], memory="1500 KiB", **words)
        expected = np.quantile(data.astype("f8"), [0.1, 0.9], axis=axis, method="higher")
        np.testing.assert_array_equal(expected, found)
        with outcore.median(folder / "a.npy", out=folder / "m.npy", memory="1500 KiB", comm=t) as m:
            assert m[()] == np.median(data)
        once(t, lambda: np.save(folder / "g.npy", gaps))
        for name in ("nanmedian", "median"):
            words = {"axis": axis, "memory": "1500 KiB", "comm": t}
            found = find_public(name)(folder / "g.npy", **words)
            np.testing.assert_array_equal(getattr(np, name)(gaps, axis=axis), found)
        t.barrier()
        assert sorted(folder.glob(".outcore*")) == []

    world.run(body)


SCANS = [
    ((200_003,), None),
    ((200_003,), 0),
    ((300, 701), None),
    ((300, 701), 0),
    ((701, 300), 1),
    ((3, 50_021), 1),
    ((50_021, 3), 0),
    ((7, 1300, 5), 1),
]


@pytest.mark.parametrize(("shape", "axis"), SCANS, ids=str)
@ranks(3)
def test_scans_have_the_bits_of_one_process(world, folder, seen, shape, axis):
    """Integers overflow as they do on one process, and floating lines are not cut."""
    rng = np.random.default_rng(shape[0])
    kinds = [("i8", {}), (">i2", {}), ("u1", {"dtype": "u1"}), (">f4", {}), ("c8", {})]

    def body(t):
        for n, (dtype, words) in enumerate(kinds):
            data = (rng.standard_normal(shape) * 1e4).astype(dtype) if t.rank == 0 else None
            order = "F" if n % 2 else "C"
            for name, operation in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
                path, out = folder / f"{n}{name}.npy", folder / f"{n}{name}out.npy"
                once(t, lambda p=path, d=data, o=order: outcore.create(p, data=d, order=o).close())
                how = {"out": out, "memory": "1 MiB", "comm": t, **words}
                with find_public(name)(path, axis, **how) as found:
                    values = found[...]
                if t.rank == 0:
                    native = data.astype(data.dtype.newbyteorder("="))
                    with np.errstate(all="ignore"):
                        expected = operation(native, axis, **words)
                        if dtype == "c8" and name == "cumprod":
                            expected = outcore.cumprod(native, axis)[...]
                    assert expected.tobytes() == values.tobytes(), (dtype, name, order)
                t.barrier()

    world.run(body)


@ranks(2, 4)
def test_ranks_share_a_scan(world, folder, monkeypatch):
    """Integers of one line in parts, floating lines side by side."""
    carry = importlib.import_module("outcore.compute.jobs.carry")
    monkeypatch.setattr(assumed_costs, "SYNCHRONISATION_SECONDS", 0.0)
    part, steps = carry.Carrier.run_part, {}

    def noted(self, schedule, parts, *more):
        steps.setdefault(self.ranks.rank, []).append(len(parts[self.ranks.rank]))
        return part(self, schedule, parts, *more)

    monkeypatch.setattr(carry.Carrier, "run_part", noted)

    def body(t):
        def make():
            np.save(folder / "v.npy", np.arange(400_000))
            np.save(folder / "a.npy", np.ones((64, 8192)))

        once(t, make)
        for name, axis in (("v", 0), ("a", 0)):
            out = folder / f"{name}{t.size}.npy"
            outcore.cumsum(folder / f"{name}.npy", axis, out=out, memory="1 MiB", comm=t).close()

    world.run(body)
    for mine in steps.values():
        assert len(mine) == 3 and min(mine[1:]) > 1
    assert sum(mine[0] for one in of_all(steps) for mine in one.values()) > 1
