"""`outcore.mpi.read_all` and `write_all` of many arrays by index arrays, and their started forms."""

import numpy as np
import pytest

import outcore
from ranks import ranks

SHAPES = {"a.npy": (40, 10), "b.zarr": (30,), "c.h5::/x": (25, 4)}
OPTIONS = {"a.npy": {}, "b.zarr": {"chunks": (7,)}, "c.h5::/x": {"chunks": (4, 3)}}


def data(name):
    shape = SHAPES[name]
    return np.arange(np.prod(shape), dtype="f8").reshape(shape)


def made(t, folder):
    paths = {name: str(folder / name) for name in SHAPES}
    if t.rank == 0:
        for name, path in paths.items():
            outcore.create(path, data=data(name), **OPTIONS[name]).close()
    t.barrier()
    return paths


def keys(rank):
    """Of each array: lists of any lengths, some empty, with repeats; a section of one."""
    rng = np.random.default_rng(100 + rank)
    number = 0 if rank == 1 else int(rng.integers(1, 50))
    return {
        "a.npy": (rng.integers(-40, 40, number), np.s_[2:9:3]),
        "b.zarr": rng.integers(0, 30, 2 * number),
        "c.h5::/x": (rng.integers(0, 25, number), rng.integers(0, 4, number)),
    }


def section(rank, size):
    return np.s_[rank::size]


@pytest.mark.parametrize("method", ["auto", "direct", "two-phase"])
@ranks(1, 2, 3, 5, per_node=(None, 2))
def test_lists_and_sections_of_many_arrays_are_those_of_numpy(world, folder, method):
    def body(t):
        paths, mine = made(t, folder), keys(t.rank)
        expected = {name: data(name) for name in SHAPES}
        here = section(t.rank, t.size)
        opened = {name: outcore.open(path, "r+", comm=t) for name, path in paths.items()}
        out = np.empty(data("b.zarr")[mine["b.zarr"]].shape)
        wanted = [
            (opened["a.npy"], mine["a.npy"]),
            (opened["b.zarr"], here),
            (opened["b.zarr"], mine["b.zarr"], out),
            (opened["c.h5::/x"], mine["c.h5::/x"], None),
        ]
        got = outcore.mpi.read_all(wanted, method=method)
        assert np.array_equal(expected["a.npy"][mine["a.npy"]], got[0])
        assert np.array_equal(expected["b.zarr"][here], got[1])
        assert got[2] is out
        assert np.array_equal(expected["b.zarr"][mine["b.zarr"]], out)
        assert np.array_equal(expected["c.h5::/x"][mine["c.h5::/x"]], got[3])

        def values(rank, name):
            shape = data(name)[keys(rank)[name]].shape
            return np.random.default_rng(rank).standard_normal(shape)

        outcore.mpi.write_all(
            [
                (opened["c.h5::/x"], mine["c.h5::/x"], values(t.rank, "c.h5::/x")),
                (opened["a.npy"], mine["a.npy"], values(t.rank, "a.npy")),
                (opened["b.zarr"], here, -1.0 - t.rank),
                (opened["b.zarr"], mine["b.zarr"], values(t.rank, "b.zarr")),
            ],
            method=method,
        )
        for rank in range(t.size):
            expected["b.zarr"][section(rank, t.size)] = -1.0 - rank
        for rank in range(t.size):
            for name in SHAPES:
                expected[name][keys(rank)[name]] = values(rank, name)
        for name, array in opened.items():
            t.barrier()
            assert np.array_equal(expected[name], array[...]), name
        for array in opened.values():
            array.close()

    world.run(body)


@ranks(2, 3)
def test_nothing_is_written_if_any_list_is_wrong_on_any_rank(world, folder):
    def body(t):
        paths = made(t, folder)
        opened = {name: outcore.open(path, "r+", comm=t) for name, path in paths.items()}
        a, b = opened["a.npy"], opened["b.zarr"]
        last = t.rank == t.size - 1
        good = (a, np.array([0, 1]), 9.0)
        wrong = [
            # Outside; a value that does not fit; one that is no array; too few words.
            ([good, (b, np.array([30 if last else 0]), 9.0)], "30"),
            ([good, (b, np.array([0]), np.zeros(3 if last else 1))], "broadcast"),
            ([good, (b if not last else 7, np.array([0]), 9.0)], "not an array on disk"),
            ([good, (b, np.array([0]))] if last else [good, good], "wrong length"),
        ]
        for requests, text in wrong:
            with pytest.raises(outcore.errors.CollectiveError, match=text):
                outcore.mpi.write_all(requests, comm=t)
        # Other arrays, another order, or sections where others have lists.
        for requests in (
            [good, (b, [0], 9.0)][:: -1 if last else 1],
            [(a, np.s_[0], 9.0)] if last else [good],
            [good] if last else [good, good],
        ):
            with pytest.raises(outcore.errors.CollectiveError) as caught:
                outcore.mpi.write_all(requests, comm=t)
            assert caught.value.code == "mismatched-call"
        with pytest.raises(outcore.errors.CollectiveError, match="not known"):
            outcore.mpi.read_all([(a, np.array([0]))], comm=t, method="sideways")
        for name, array in opened.items():
            t.barrier()
            assert np.array_equal(data(name), array[...]), name
            array.close()

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
def test_started_reads_and_writes_of_lists_have_turns(world, folder):
    def body(t):
        path = made(t, folder)["a.npy"]
        expected = data("a.npy")
        with outcore.open(path, "r+", comm=t) as a:
            mine = np.arange(t.rank, 40, t.size)[::-1]
            schedule = a.schedule_all(mine)
            first = a.iread_all(mine)
            requests = []
            for k in range(3):
                requests.append(schedule.iscatter_all(float(k), "add"))
                requests.append(a.iwrite_all((mine, 0), -1.0 * k))
            got = schedule.igather_all(method="collective")
            out = np.empty((len(mine), 10))
            again = schedule.igather_all(out)
            assert np.array_equal(expected[mine], first.wait())
            for k in range(3):
                expected += k
                expected[:, 0] = -1.0 * k
            # In any order.
            assert again.wait() is out
            assert np.array_equal(expected[mine], out)
            for request in reversed(requests):
                assert request.wait() is None
                assert request.test()
            assert np.array_equal(expected[mine], got.wait())
            # What has failed on one rank, all are told when they wait; and they go on.
            failed = schedule.igather_all(np.empty(3 if t.rank == t.size - 1 else out.shape))
            late = schedule.igather_all()
            with pytest.raises(
                (outcore.errors.CollectiveError, outcore.errors.UsageError), match="shape"
            ):
                failed.wait()
            assert np.array_equal(expected[mine], late.wait())
            t.barrier()
            assert np.array_equal(expected, a[...])

    world.run(body)


@ranks(2)
def test_a_started_write_that_failed_is_not_lost(world, folder):
    def body(t):
        path = made(t, folder)["b.zarr"]
        with outcore.open(path, "r+", comm=t) as a:
            schedule = a.schedule_all([t.rank])
            schedule.iscatter_all(np.zeros(1 + 2 * t.rank))
            with pytest.raises(outcore.errors.CollectiveError, match="broadcast"):
                a.flush_all()
            a.flush_all()

    world.run(body)
