"""
Edge loops that go on after a kill: whenever they end, each node gets its contributions once.

A child process ends before each of the system's calls that it makes on the way, one after the other.
Then the array that is updated is as it was, or the loop is known to be half put in place; the same call
completes it, and what is left can be removed.
"""

import os
import shutil

import numpy as np
import pytest

import outcore
from killed import dies_at, quick_folder
from meshes import spread
from outcore.compute import jobs

STEPS = ("open", "link", "rename", "unlink", "fsync", "fdatasync", "write")
NODES = 600
PATHS = {
    "npy": ("x.npy", {}),
    "zarr": ("x.zarr", {"chunks": (50,)}),
    "h5": ("a.h5::/x", {"chunks": (64,)}),
}


def loop(path, kernel=spread):
    with outcore.unstructured.EdgeSchedule.open("loop") as schedule:
        outcore.unstructured.edge_loop(
            schedule, reads={"y": "y.npy"}, updates={"x": path}, kernel=kernel, resume=True
        )


def content(path):
    with outcore.open(path) as x:
        return x[:].tobytes()


def left():
    return [one for one in os.listdir() if "outcore" in one]


@pytest.fixture(params=PATHS)
def prepared(request, tmp_path, monkeypatch):
    """The path; how to begin anew; contents before and after."""
    with quick_folder(tmp_path) as folder:
        monkeypatch.chdir(folder)
        yield prepare(request.param, monkeypatch)
        monkeypatch.chdir(tmp_path)


def prepare(kind, monkeypatch):
    monkeypatch.setattr("outcore.compute.jobs.checkpoints._CHECKPOINT", 0.0)
    rng = np.random.default_rng(1)
    edges = (rng.integers(0, NODES, (2000, 1)) + rng.integers(-9, 9, (2000, 2))) % NODES
    x, y = rng.standard_normal(NODES), rng.standard_normal(NODES)
    outcore.create("y.npy", data=y).close()
    outcore.unstructured.edge_schedule(
        edges, NODES, partition=outcore.unstructured.Partition.blocks(NODES, 5), out="loop"
    ).close()
    path, words = PATHS[kind]
    added = np.zeros(NODES)
    spread(edges, added, y)

    def anew():
        for one in (path.split("::")[0], *left()):
            if os.path.exists(one):
                shutil.rmtree(one) if os.path.isdir(one) else os.unlink(one)
        outcore.create(path, data=x, **words).close()

    return path, anew, x.tobytes(), (x + added).tobytes()


def test_whenever_it_is_killed_the_same_call_completes_it(prepared):
    path, anew, before, after = prepared
    step, seen, died = 1, set(), True
    stride = 1 if path.endswith("npy") else 3
    while died:
        anew()
        died = dies_at(step, lambda: loop(path), STEPS)
        step += stride
        found = jobs.unfinished()
        if not found:
            # It has not begun, or has ended: nothing but the array tells.
            assert content(path) in (before, after)
            seen.add("before" if content(path) == before else "after")
            assert left() == []
            continue
        assert [one.state for one in found] in (["repeat"], ["left"])
        half = False
        if content(path) != before:
            half = jobs.leftovers.is_half_replaced(opened(found[0].path))
            seen.add("half" if half else "all")
        else:
            seen.add("old")
        if half:
            with pytest.raises(outcore.errors.UsageError) as caught:
                jobs.clean(found[0])
            assert caught.value.code == "half-replaced"
        loop(path)
        assert content(path) == after, step
        assert left() == [], step
    assert {"before", "after", "old"} <= seen
    assert step > 20


def opened(path):
    journal = jobs.leftovers.acquire_journal(path)
    journal.close()
    return journal


def test_whenever_it_is_killed_what_is_left_can_be_removed(prepared):
    path, anew, before, after = prepared
    step, cleaned, died = 1, 0, True
    while died:
        anew()
        died = dies_at(step, lambda: loop(path), STEPS)
        step += 6
        for one in jobs.unfinished():
            if jobs.leftovers.is_half_replaced(opened(one.path)):
                loop(path)
            else:
                jobs.clean(one)
            cleaned += 1
        assert left() == [], step
        assert content(path) in (before, after), step
    assert cleaned > 2


def test_loop_killed_while_replacing_rows_is_completed(prepared, monkeypatch):
    """What is half old and half new no other loop takes, and nobody cleans up."""
    path, anew, before, after = prepared
    anew()
    from outcore.problems.unstructured import staging

    def half(rows, updates, *_):
        def work():
            updates[0].table[: NODES // 2] = rows[0][: NODES // 2]
            os._exit(77)

        return work

    with monkeypatch.context() as patch:
        patch.setattr(staging, "put_in_place", half)
        assert dies_at(10**6, lambda: loop(path), STEPS)
    mixed = content(path)
    assert mixed not in (before, after)
    (found,) = jobs.unfinished()
    with pytest.raises(
        outcore.errors.UsageError, match="resume=True to write the others"
    ) as caught:
        jobs.clean(found)
    assert caught.value.code == "half-replaced"
    with pytest.raises(outcore.errors.UsageError, match="was interrupted"):
        outcore.unstructured.edge_loop([[0, 1]], updates={"x": path}, kernel=spread, nodes=NODES)

    def other(edges, x, y):
        pass

    with pytest.raises(outcore.errors.UsageError) as caught:
        loop(path, other)
    assert caught.value.code == "half-replaced"
    assert content(path) == mixed
    loop(path)
    assert content(path) == after
    assert left() == []


def test_loop_does_not_resume_on_changed_arrays(prepared):
    path, anew, _, _ = prepared
    anew()
    calls = []

    def late(edges, x, y):
        calls.append(1)
        if len(calls) == 4:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop(path, late)
    with outcore.open(path, "r+") as x:
        x[7] = 0.0
    with pytest.raises(outcore.errors.UsageError, match="content of updated arrays") as caught:
        loop(path, late)
    assert caught.value.code == "other-job"
    with outcore.open(path) as x:
        assert x[7] == 0.0


def test_rows_are_durable_before_they_are_forgotten(prepared, monkeypatch):
    """In this order: rows flushed, all computed, the array flushed, in place, rows gone."""
    from outcore.compute.jobs.journal import Journal

    path, anew, _, _ = prepared
    anew()
    seen = []

    def noted(owner, name, what):
        whole = getattr(owner, name)

        def call(self, *more):
            found = whole(self, *more)
            seen.append(what(self, *more))
            return found

        monkeypatch.setattr(owner, name, call)

    noted(outcore.DiskArray, "flush", lambda self: "rows" if "partial" in self.path else "array")
    noted(Journal, "commit", lambda self, steps: sorted(steps))
    noted(Journal, "remove", lambda self: os.path.exists(f"{path}.outcore-partial.npy"))
    loop(path)
    assert seen[-1] is False
    computed, placed = seen.index([5]), seen.index([6])
    assert "rows" in seen[:computed]
    steps = [step for one in seen[:computed] if isinstance(one, list) for step in one]
    assert sorted(steps) == list(range(5))
    assert seen[computed + 1 : placed] == ["array"]
