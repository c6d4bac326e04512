"""Checkpoints: kept by some ranks, restored by others; started ones; failures on one rank."""

import json
import os
import random
import threading

import numpy as np
import pytest

import outcore
from mpi.distribution_cases import random_distribution
from outcore import _core
from outcore.errors import BudgetError, CollectiveError
from outcore.mpi import DistArray, Distribution
from outcore.ranks.restart import calls
from ranks import once, ranks

DTYPES = ("f8", ">i4", "c8", "?", "u2", [("a", "i2"), ("b", "f8")], "S5", "M8[s]")


def whole_of(shape, dtype, seed):
    raw = np.random.default_rng(seed).integers(0, 100, shape)
    if isinstance(dtype, list):
        made = np.zeros(shape, dtype)
        made["a"], made["b"] = raw, raw / 3
        return made
    return raw.astype(dtype)


def divided(t, distribution, whole, **more):
    """The part of a rank, in memory of an order of its own."""
    made = DistArray.empty(distribution, whole.dtype, transport=t, **more)
    for key, view in made.pieces():
        view[...] = whole[key]
    return made


def random_state(seed):
    """Whole arrays: those that are distributed, those that all have, and values."""
    chance = random.Random(seed)
    arrays = {}
    for name in ("u", "v", "w", "deep.zarr", "x.h5"):
        shape = tuple(chance.choice((0, 1, 3, 7, 12)) for _ in range(chance.randint(1, 3)))
        dtype = chance.choice(DTYPES if name in "uvw" else DTYPES[:1])
        arrays[name] = whole_of(shape, dtype, seed)
    every = {
        "all": np.asfortranarray(whole_of((3, 4), "f4", seed)),
        "one": np.float32(seed),
        "none": np.array(7),
    }
    rng = np.random.default_rng(seed)
    rng.random(3)
    values = {"step": seed, "time": 0.1 * seed, "rng": rng.bit_generator.state, "a b": [None, "ä"]}
    return arrays, every, values


def must_equal(expected, found, told=""):
    assert expected.dtype == found.dtype, told
    assert expected.shape == found.shape, told
    np.testing.assert_array_equal(expected, found, err_msg=told)


@pytest.mark.parametrize("block", range(4))
@ranks(1, 2, 3, 5, 8, per_node=(None, 2))
def test_kept_by_some_and_restored_by_others(world, folder, block):
    """Random states, distributions and numbers of ranks, twice over the same name."""
    place = str(folder / "state")

    def body(t):
        for turn in range(2):
            seed = 100 * world.size + 10 * block + turn
            chance = random.Random(seed)
            arrays, every, values = random_state(seed)
            keepers, readers = (chance.randint(1, t.size) for _ in "ab")
            some = t.split(0 if t.rank < keepers else -1, t.rank)
            if some is not None:
                parts = {}
                for name, whole in arrays.items():
                    how = random_distribution(chance, whole.shape, some.size).make()
                    parts[name] = divided(some, how, whole)
                outcore.mpi.checkpoint(place, {**parts, **every, **values}, comm=some)
                some.close()
            t.barrier()
            some = t.split(0 if t.rank >= t.size - readers else -1, t.rank)
            if some is not None:
                chance = random.Random(seed + 1)
                into = {}
                for name, whole in arrays.items():
                    if chance.random() < 0.5:
                        into[name] = random_distribution(chance, whole.shape, some.size).make()
                found = outcore.mpi.restore(place, into=into, comm=some)
                for name, whole in arrays.items():
                    must_equal(whole, found[name].gather_all(), name)
                    assert name not in into or found[name].distribution == into[name]
                for name, whole in every.items():
                    must_equal(whole, found[name], name)
                    assert type(whole) is type(found[name])
                assert values == {name: found[name] for name in values}
                assert {*arrays, *every, *values} == {*found}
                some.close()
            t.barrier()

    world.run(body)


@ranks(1, 2, 4)
def test_plain_readers_and_one_process_alone(world, folder):
    whole = whole_of((9, 4), "f8", 1)

    def body(t):
        u = divided(t, Distribution((9, 4), ["cyclic", "*"], t.size), whole)
        outcore.mpi.checkpoint(folder / "state", {"u": u, "v": np.arange(3)})
        if t.rank == 0:
            np.testing.assert_array_equal(whole, np.load(folder / "state/arrays-1/u.npy"))
            np.testing.assert_array_equal(whole, outcore.mpi.restore(folder / "state")["u"])
            found = outcore.mpi.restore(folder / "state", names=["v"])
            assert list(found) == ["v"] and isinstance(found["v"], np.ndarray)
        t.barrier()

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
def test_restored_into_what_is_there(world, folder):
    whole = whole_of((8, 5), "f8", 2)

    def body(t):
        u = divided(t, Distribution((8, 5), ["block", "*"], t.size), whole)
        outcore.mpi.checkpoint(folder / "state", {"u": u, "w": whole})
        ghosts = DistArray.zeros(
            Distribution((8, 5), ["block", "*"], t.size), transport=t, ghosts=[1, 0]
        )
        memory = np.zeros((8, 5), order="F")
        found = outcore.mpi.restore(folder / "state", into={"u": ghosts, "w": memory})
        assert found["u"] is ghosts and found["w"] is memory
        np.testing.assert_array_equal(whole, memory)
        for key, view in ghosts.pieces(ghosts=True):
            np.testing.assert_array_equal(whole[key], view)
        again = outcore.mpi.restore(folder / "state", comm=t)
        assert again["u"].distribution == Distribution((8, 5), ["block", "*"], t.size)
        with pytest.raises(outcore.OutcoreError):
            outcore.mpi.restore(folder / "state", into={"u": np.zeros((8, 5), "f4")}, comm=t)
        with pytest.raises(outcore.errors.FormatError, match="does not have an array 'z'"):
            outcore.mpi.restore(folder / "state", names=["z"], comm=t)

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
def test_started_checkpoints_keep_what_was_there_then(world, folder):
    """Several in flight, waited for in any order, while the arrays change; the last one stands."""

    def body(t):
        blocks = Distribution(40, ["block"], t.size)
        u = DistArray.zeros(blocks, transport=t)
        requests = []
        for step in range(6):
            u.owned[...] = step
            place = folder / ("even" if step % 2 == 0 else "odd")
            requests.append(outcore.mpi.icheckpoint(place, {"u": u, "step": step}))
            u.owned[...] = -1
        random.Random(t.rank).shuffle(requests)
        for request in requests:
            assert request.wait() is None
            assert request.test()
        for place, step in (("even", 4), ("odd", 5)):
            found = outcore.mpi.restore(folder / place, comm=t)
            assert found["step"] == step
            np.testing.assert_array_equal(np.full(40, step), found["u"].gather_all())
        # Whoever reads, or keeps, next waits for what is in flight.
        outcore.mpi.icheckpoint(folder / "even", {"u": u, "step": 6})
        assert outcore.mpi.restore(folder / "even", comm=t)["step"] == 6
        outcore.mpi.icheckpoint(folder / "even", {"u": u, "step": 7})
        outcore.mpi.checkpoint(folder / "even", {"u": u, "step": 8})
        assert outcore.mpi.restore(folder / "even", comm=t)["step"] == 8

    world.run(body)


@ranks(1)  # simulated ranks have one budget, and would take the place that another waits for
def test_copies_are_counted_and_given_back(world, folder):
    def body(t):
        blocks = Distribution(4 * 2**20 * t.size, ["block"], t.size)
        u = DistArray.zeros(blocks, "u1", transport=t)
        before = outcore.memory()
        t.barrier()
        request = outcore.mpi.icheckpoint(folder / "state", {"u": u})
        request.wait()
        t.barrier()
        if t.rank == 0:
            outcore.memory("16 MiB")
        t.barrier()
        try:
            # Copies of all at once would not fit: those in flight are waited for.
            requests = [outcore.mpi.icheckpoint(folder / "state", {"u": u}) for _ in range(8)]
            for request in requests:
                request.wait()
            t.barrier()
            assert _core.memory_state()[0] < 2**20 + 8 * 2**20
        finally:
            t.barrier()
            outcore.memory(before)

    world.run(body)


@ranks(1, 2, 4)
def test_a_copy_without_memory_fails_on_all_when_they_wait(world, folder, monkeypatch):
    plain, here = calls._copy_items, threading.local()

    def copied(group, *args):
        if getattr(here, "fails", False):
            raise BudgetError("no place for the copy", code="budget-too-small")
        return plain(group, *args)

    # Once: of several threads that patch it and put it back one would put back the patch.
    monkeypatch.setattr(calls, "_copy_items", copied)

    def body(t):
        u = DistArray.zeros(Distribution(12, ["block"], t.size), transport=t)
        outcore.mpi.checkpoint(folder / "state", {"u": u, "step": 1})
        here.fails = t.rank == t.size - 1
        request = outcore.mpi.icheckpoint(folder / "state", {"u": u, "step": 2})
        here.fails = False
        with pytest.raises(CollectiveError if t.size > 1 else BudgetError) as caught:
            request.wait()
        if t.size > 1:
            assert caught.value.ranks == (t.size - 1,)
        assert outcore.mpi.restore(folder / "state", comm=t)["step"] == 1

    world.run(body)


def bad_calls(t, u):
    """What rank 0 says that cannot be kept; and what it says that the others do not."""
    wrong = {
        "a name with a folder": {"u/v": u},
        "a hidden name": {".u": u},
        "an object": {"u": u, "x": object()},
        "a set": {"u": u, "x": {"a": [{1, 2}]}},
        "one file twice": {"u": u, "u.npy": np.zeros(3)},
        "Python objects": {"u": u, "x": np.array([None])},
        "no mapping": [u],
    }
    others = {
        "another value": {"u": u, "step": 5},
        "another array": {"u": u, "step": 1, "more": np.zeros(2)},
        "another shape": {"u": u, "step": 1, "v": np.zeros(t.rank)},
    }
    return wrong, others


@ranks(1, 2, 4, per_node=(None, 2))
def test_invalid_checkpoint_of_one_rank_raises_on_all(world, folder):
    def body(t):
        u = DistArray.zeros(Distribution(12, ["block"], t.size), transport=t)
        good = {"u": u, "step": 1, "v": np.zeros(3)}
        outcore.mpi.checkpoint(folder / "state", good)
        wrong, others = bad_calls(t, u)
        for title, arrays in {**wrong, **(others if t.size > 1 else {})}.items():
            mine = arrays if t.rank == 0 else good
            with pytest.raises(outcore.OutcoreError) as caught:
                outcore.mpi.checkpoint(folder / "state", mine, comm=t)
            if t.size > 1:
                assert isinstance(caught.value, CollectiveError), title
                code = "rank-failed" if title in wrong else "mismatched-call"
                assert caught.value.code == code, (title, caught.value)
            assert outcore.mpi.restore(folder / "state", comm=t)["step"] == 1

    world.run(body)


@ranks(2, 3)
def test_a_name_that_is_none_on_one_rank_fails_on_all(world, folder):
    def body(t):
        u = DistArray.zeros(Distribution(12, ["block"], t.size), transport=t)
        place = 3 if t.rank == 1 else folder / "state"
        for call in (
            lambda: outcore.mpi.checkpoint(place, {"u": u}),
            lambda: outcore.mpi.icheckpoint(place, {"u": u}).wait(),
            lambda: outcore.mpi.restore(place, into={"u": u}),
        ):
            with pytest.raises(CollectiveError) as caught:
                call()
            assert caught.value.ranks == (1,)
        t.barrier()
        assert os.listdir(folder) == []

    world.run(body)


@ranks(1, 3)
def test_folders_without_a_checkpoint_are_refused(world, folder):
    def body(t):
        def make():
            (folder / "mine").mkdir()
            (folder / "mine" / "thesis.tex").write_text("years of work")
            (folder / "file").write_text("years of work")

        once(t, make)
        for name in ("mine", "file"):
            for call in (
                lambda name=name: outcore.mpi.checkpoint(folder / name, {"a": 1}, comm=t),
                lambda name=name: outcore.mpi.restore(folder / name, comm=t),
            ):
                with pytest.raises(outcore.OutcoreError):
                    call()
        with pytest.raises(outcore.OutcoreError):
            outcore.mpi.restore(folder / "nothing", comm=t)
        with pytest.raises(outcore.OutcoreError):
            outcore.mpi.checkpoint(folder / "no" / "such", {"a": 1}, comm=t)
        t.barrier()
        assert os.listdir(folder / "mine") == ["thesis.tex"]

    world.run(body)


@ranks(1, 2, 4)
def test_a_checkpoint_that_is_replaced_while_it_is_read(world, folder, monkeypatch):
    """All of it is of one state, the first or the second."""
    plain, turns = calls._read, {}

    def read(ranks, *args, **more):
        turn = turns[ranks.rank] = turns.get(ranks.rank, 0) + 1
        found = plain(ranks, *args, **more)
        if turn == 1:
            ranks.run_on_first(
                lambda: outcore.mpi.checkpoint(folder / "state", {"u": np.full(9, 2), "step": 2})
            )
            return {**found, **plain(ranks, *args[:-3], ["u"], *args[-2:], **more)}
        return found

    def body(t):
        u = divided(t, Distribution(9, ["block"], t.size), np.full(9, 1))
        outcore.mpi.checkpoint(folder / "state", {"u": u, "step": 1})
        monkeypatch.setattr(calls, "_read", read)
        found = outcore.mpi.restore(folder / "state", comm=t)
        assert found["step"] == 2
        assert turns[t.rank] == 2
        np.testing.assert_array_equal(np.full(9, 2), found["u"])

    world.run(body)


def manifest(version=1, generation=1, **arrays):
    """The text of a manifest."""
    found = {"format": "outcore checkpoint", "version": version, "generation": generation}
    return json.dumps({**found, "arrays": arrays, "values": {}})


U = {"file": "u.npy", "kind": "array", "shape": [3], "dtype": "<f8"}
HOSTILE = {
    "no JSON": "{",
    "another format": '{"format": "x"}',
    "a later version": manifest(9),
    "outside": manifest(u={**U, "file": "../../secret.npy"}),
    "a generation": manifest(generation="../1"),
    "a kind": manifest(u={**U, "kind": "?"}),
    "another shape": manifest(u={**U, "shape": [4]}),
    "another dtype": manifest(u={**U, "dtype": "<f4"}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_manifests_that_lie(tmp_path, what):
    outcore.mpi.checkpoint(tmp_path / "state", {"u": np.zeros(3)})
    np.save(tmp_path / "secret.npy", np.zeros(3))
    (tmp_path / "state" / "checkpoint.json").write_text(HOSTILE[what])
    told = "not the name of a file" if what == "outside" else ""
    with pytest.raises((outcore.errors.FormatError, outcore.errors.UnsupportedError), match=told):
        outcore.mpi.restore(tmp_path / "state")
    if what in ("another format", "a later version"):  # somebody else's
        with pytest.raises((outcore.errors.FormatError, outcore.errors.UnsupportedError)):
            outcore.mpi.checkpoint(tmp_path / "state", {"u": np.ones(3)})
        return
    outcore.mpi.checkpoint(tmp_path / "state", {"u": np.ones(3)})
    np.testing.assert_array_equal(np.ones(3), outcore.mpi.restore(tmp_path / "state")["u"])
    np.testing.assert_array_equal(np.zeros(3), np.load(tmp_path / "secret.npy"))


def test_a_missing_part_is_named(tmp_path):
    outcore.mpi.checkpoint(tmp_path / "state", {"u": np.zeros(3), "v": np.zeros(3)})
    (tmp_path / "state" / "arrays-1" / "v.npy").unlink()
    with pytest.raises(outcore.errors.StorageError, match=r"v\.npy"):
        outcore.mpi.restore(tmp_path / "state")
    assert list(outcore.mpi.restore(tmp_path / "state", names=["u"])) == ["u"]
