"""Python integers that an element cannot hold: OverflowError as in NumPy, and nothing is written."""

import numpy as np

import outcore
from outcore.errors import CollectiveError
from outcore.mpi import DistArray, Distribution
from ranks import once, ranks

SHAPE = (32, 3)  # two rows for each of 16 ranks
ROWS = Distribution(SHAPE, ["block", "*"], 1)


def alone(a, folder):
    """Calls of one process; each takes a value."""
    indices = np.array([0, 1])
    places = ([0, 1], [1, 2])
    shared = DistArray.shared_all(ROWS, "i1")
    schedule = a.schedule(indices)
    placed = {
        name: outcore.mpi.create_placed(folder / path, ROWS, "i1", placement=name)
        for name, path in (("global", "g.npy"), ("local", "l"), ("partitioned", "p.npy"))
    }
    calls = {
        "a[...]": lambda v: a.__setitem__(..., v),
        "a[rows]": lambda v: a.__setitem__(indices, v),
        "a[mask]": lambda v: a.__setitem__(np.ones(SHAPE, bool), v),
        "oindex": lambda v: a.oindex.__setitem__(places, v),
        "vindex": lambda v: a.vindex.__setitem__(places, v),
        "write": lambda v: a.write(..., v),
        "iwrite": lambda v: a.iwrite(..., v).wait(),
        "put": lambda v: a.put([0, 1], v),
        "append": lambda v: a.append([[0, 0, v[0] if isinstance(v, list) else v]]),
        "schedule": schedule.scatter,
        "schedule add": lambda v: schedule.scatter(v, "add"),
        "DistArray.put": lambda v: shared.put(np.s_[0], v),
        "DistArray.acc": lambda v: shared.acc(np.s_[0], v),
        "DistArray.scatter": lambda v: shared.scatter(places, v),
        "DistArray.scatter_acc": lambda v: shared.scatter_acc(places, v),
        "create": lambda v: outcore.create(folder / "new.npy", data=v, dtype="i1"),
    }
    for name, array in placed.items():
        calls |= {
            f"{name} write_section": lambda v, array=array: array.write_section(..., v),
            f"{name} iwrite_section": lambda v, array=array: array.iwrite_section(..., v).wait(),
            f"{name} write_slab": lambda v, array=array: array.write_slab(next(array.slabs()), v),
        }
    numbers = {
        "acc factor": lambda v: shared.acc(np.s_[0], 1, v),
        "scatter_acc factor": lambda v: shared.scatter_acc(places, 1, v),
    }
    return calls, numbers, [a, *placed.values(), shared]


def together(a, t):
    """Calls of all ranks."""
    rows = np.array([t.rank, t.size + t.rank])
    part = DistArray.zeros(Distribution(SHAPE, ["block", "*"], t.size), "i1", transport=t)
    schedule = a.schedule_all(rows)
    calls = {
        "write_all": lambda v: a.write_all(..., v),
        "write_all of rows": lambda v: a.write_all(rows, v),
        "iwrite_all": lambda v: a.iwrite_all(..., v).wait(),
        "iwrite_all of rows": lambda v: a.iwrite_all(rows, v).wait(),
        "outcore.mpi.write_all": lambda v: outcore.mpi.write_all([(a, ..., v)]),
        "outcore.mpi.write_all of rows": lambda v: outcore.mpi.write_all([(a, rows, v)]),
        "scatter_all": schedule.scatter_all,
        "scatter_all add": lambda v: schedule.scatter_all(v, "add"),
        "iscatter_all": lambda v: schedule.iscatter_all(v).wait(),
    }
    numbers = {
        "scatter_all fill": lambda v: schedule.scatter_all(0, fill=v),
        "fill_all": part.fill_all,
        "scale_all": part.scale_all,
        "add_all": lambda v: part.add_all(part, v, out=part),
        "add_all b": lambda v: part.add_all(part, 1, v, out=part),
        "from_function": lambda v: DistArray.from_function(
            lambda i, j: v, part.distribution, "i1", transport=t
        ),
    }
    return calls, numbers, [a, part]


def overflows(call, value):
    """Whether a call says so, itself or through the error that all ranks raise."""
    try:
        call(value)
    except OverflowError:
        return True
    except CollectiveError as error:
        return "[OverflowError]" in str(error)
    return False


def refused(calls, numbers):
    for given in (300, -200, 2**70):
        for name, call in (calls | numbers).items():
            assert overflows(call, given), (name, given)
    for name, call in calls.items():
        for given in ([300], [-200]):
            assert overflows(call, given), (name, given)


def test_calls_of_one_process_refuse_integers_that_do_not_fit(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(SHAPE, "i1"))
    calls, numbers, arrays = alone(outcore.open(tmp_path / "a.npy", "r+"), tmp_path)
    refused(calls, numbers)
    for array in arrays:
        read = array.get if isinstance(array, DistArray) else getattr(array, "read_section", None)
        assert not np.any(read(...) if read else array[...])


@ranks(2)
def test_calls_of_ranks_refuse_integers_that_do_not_fit(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.zeros(SHAPE, "i1")))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            calls, numbers, (_, part) = together(a, t)
            refused(calls, numbers)
            assert not a[...].any()
            assert not part.owned.any()

    world.run(body)
