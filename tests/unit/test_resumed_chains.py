"""Who continues an interrupted job does not repeat steps that are done, or says how many."""

import importlib
import os
import re

import numpy as np
import pytest
from scipy import ndimage

import algorithm_runs
import outcore
from algorithms import CASES, JACOBI, Case, jacobi, random
from outcore.arrays.schedule import ScheduleRun
from outcore.public import find_public

CHECKPOINTS = importlib.import_module("outcore.compute.jobs.checkpoints")
COMPLEX = random(300, 500) / 1000 + 1j * random(300, 500, seed=1) / 1000


class Stopped(Exception):
    pass


@pytest.fixture
def ran(monkeypatch):
    """Numbers of the steps that runs have done."""
    found = []
    store = ScheduleRun.store

    def noted(self):
        found.append(self._current.number)
        store(self)

    monkeypatch.setattr(ScheduleRun, "store", noted)
    monkeypatch.setattr(CHECKPOINTS, "_CHECKPOINT", 0.0)
    return found


def interrupted(case, calls):
    """Stop after so many calls of `progress`: steps that are done, steps in all, and those repeated."""
    left = calls

    def progress(done, total):
        nonlocal left
        left -= 1
        if left < 0:
            raise Stopped

    with pytest.raises(Stopped) as stopped:
        algorithm_runs.call(case, progress=progress, resume=True)
    (note,) = stopped.value.__notes__
    done, total = map(int, re.match(r"(\d+) of (\d+) steps of ", note).groups())
    repeated = re.search(r", and repeats (\d+) for their results in memory$", note)
    return done, total, int(repeated.group(1)) if repeated else 0


def must_continue(name, case, ran):
    """Interrupted early and late, it does what is left, and repeats what it said."""
    algorithm_runs.run(case)
    steps, found = len(ran), []
    for out in case.out:
        algorithm_runs.remove(out)
    for calls in {max(steps // 3, case.begun), max(steps * 4 // 5, case.begun)}:
        done, total, repeated = interrupted(case, calls)
        assert 0 < done < total, name
        ran.clear()
        found = algorithm_runs.run(case, resume=True)
        algorithm_runs.must_be_right(case, found)
        assert name in SHORTER or total == steps, (name, calls)
        assert len(ran) == steps - done + repeated, (name, calls)
        whole = done if name in WHOLE else 0
        assert repeated == (whole or REPEATED.get(name, 0)) or name in PANELS, (name, calls)
        for out in case.out:
            algorithm_runs.remove(out)


def case(data, call, expected, **words):
    return Case([data], call, expected, memory=words.pop("memory", 400_000), **words)


def scan(data, name, axis, *, exact=True, **words):
    function, numpys = find_public(name), getattr(np, name)
    return case(
        data,
        lambda a, **how: function(a, axis, **how),
        lambda a: numpys(a, axis),
        exact=exact,
        **words,
    )


#: Chains of all kinds: steps that take a part of the block before, and those that need what was kept.
CHAINS = {
    "cumsum of all": lambda: scan(random(300, 500), "cumsum", None),
    "cumsum of columns": lambda: scan(np.asfortranarray(random(300, 500)), "cumsum", 1),
    "cumsum of the middle axis": lambda: scan(
        np.asfortranarray(random(60, 50, 60, dtype="i4")), "cumsum", 1
    ),
    "cumprod of complex": lambda: scan(COMPLEX, "cumprod", 0, exact=False),
    "cumsum in chunks": lambda: scan(
        random(600, 500, dtype=">f4"),
        "cumsum",
        0,
        outs=[".h5"],
        words={"compression": "gzip", "chunks": (20, 500)},
        memory=2**21,
    ),
    "correlate": lambda: case(
        random(300, 500),
        lambda a, **how: outcore.ndimage.correlate(
            a, np.arange(15).reshape(5, 3), mode="constant", **how
        ),
        lambda a: ndimage.correlate(a, np.arange(15).reshape(5, 3), mode="constant"),
        exact=False,
    ),
    "minimum_filter": lambda: case(
        random(60, 50, 60),
        lambda a, **how: outcore.ndimage.minimum_filter(a, 5, mode="mirror", **how),
        lambda a: ndimage.minimum_filter(a, 5, mode="mirror"),
        memory=900_000,
    ),
    "gaussian_filter1d": lambda: case(
        random(300, 500),
        lambda a, **how: outcore.ndimage.gaussian_filter1d(a, 2.0, 0, **how),
        lambda a: ndimage.gaussian_filter1d(a, 2.0, 0),
        exact=False,
        memory=700_000,
    ),
    "one step": lambda: case(
        np.asfortranarray(random(300, 500)),
        lambda a, **how: outcore.stencil(a, JACOBI, boundary="untouched", **how),
        lambda a: jacobi(a, 1),
    ),
    "one step of a ring": lambda: case(
        random(300, 500),
        lambda a, **how: outcore.stencil(a, JACOBI, boundary="wrap", **how),
        lambda a: ndimage.correlate(a, np.array(JACOBI), mode="wrap"),
        exact=False,
    ),
    "a function": lambda: case(
        random(300, 500),
        lambda a, **how: outcore.stencil(
            a, lambda b: b[:-2, 1:-1] + b[2:, 1:-1], halo=1, boundary="nearest", steps=2, **how
        ),
        lambda a: twice_added(twice_added(a)),
    ),
}


def twice_added(a):
    b = np.pad(a, 1, mode="edge")
    return b[:-2, 1:-1] + b[2:, 1:-1]


#: Slabs that are repeated, as rows that are kept follow from them.
REPEATED = {"one step": 1, "a function": 1, "stencil": 2, "stencil in several passes": 6}
#: All is repeated: the rows that are kept follow from the first ones, or from all.
WHOLE = {"one step of a ring", "stencil until"}
#: The number of passes depends on the elements.
SHORTER = {"quantile of more than fits", "stencil until"}
#: A panel that is not complete is repeated.
PANELS = {"cholesky by tiles"}
BEFORE = ("cumsum", "nancumsum", "median_filter", "gaussian_filter", "uniform_filter", "stencil")


def made(make):
    found = make()
    found.paths = [f"in{n}.npy" for n in range(len(found.inputs))]
    for path, data in zip(found.paths, found.inputs, strict=True):
        np.save(path, data)
    found.out = tuple(f"out{n}{suffix}" for n, suffix in enumerate(found.outs))
    return found


def test_chains_continue_after_their_last_durable_step(tmp_path, monkeypatch, ran):
    others = (*BEFORE, *SHORTER, "matmul by slabs", "tensordot")
    chosen = {**CHAINS, **{name: CASES[name] for name in others}}
    for n, (name, make) in enumerate(chosen.items()):
        folder = tmp_path / str(n)
        folder.mkdir()
        monkeypatch.chdir(folder)
        ran.clear()
        must_continue(name, made(make), ran)


def test_every_algorithm_says_what_it_repeats_slow(tmp_path, monkeypatch, ran):
    for n, (name, make) in enumerate(CASES.items()):
        found = make()
        if not found.outs or not found.repeatable:
            continue
        folder = tmp_path / str(n)
        folder.mkdir()
        monkeypatch.chdir(folder)
        ran.clear()
        must_continue(name, made(make), ran)
        os.chdir(tmp_path)
