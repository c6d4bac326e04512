"""Every algorithm on several ranks: the same calls, the same results."""

import contextlib
import importlib
from pathlib import Path

import numpy as np
import pytest

import outcore
from algorithms import CASES
from outcore import jobs
from ranks import once, ranks


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


def in_memory(found):
    arrays = []
    for one in found if isinstance(found, tuple) else (found,):
        arrays.append(np.asarray(one[...]))
        if isinstance(one, outcore.DiskArray):
            one.close()
    return arrays


@pytest.mark.parametrize("name", CASES)
@ranks(1, 2, 3, 5, 8)
def test_results_are_those_of_one_process(world, folder, name):
    """Bit for bit where it is promised; each rank gets them."""
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
        expected = case.expected(*case.inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for n, (one, wanted) in enumerate(zip(found, expected, strict=True)):
            if case.exact:
                np.testing.assert_array_equal(wanted, one)
            else:
                np.testing.assert_allclose(one, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
            if case.bits and alone:
                np.testing.assert_array_equal(alone[n], one)


class Stop(Exception):
    pass


NAMED = [name for name in CASES if CASES[name]().outs]


@pytest.mark.parametrize("name", NAMED)
@ranks(2, 3)
def test_who_is_interrupted_goes_on(world, folder, name, monkeypatch):
    """One rank stops; all raise; other numbers of ranks end in the same bytes."""
    checkpoints = importlib.import_module("outcore.jobs.checkpoints")
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

            with contextlib.suppress(outcore.CollectiveError):  # unless it had too little to do
                called(case, folder / "a", prefix, comm=t, progress=stop)
                continue
            t.barrier()
            if stopped % 2:
                once(t, lambda p=prefix: called(case, folder / "a", p, resume=True))
            else:
                called(case, folder / "a", prefix, comm=t, resume=True)
            t.barrier()
            if t.rank == 0:
                assert content(case, folder / "a", prefix) == whole
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
