"""What belongs to its process, or to ranks, cannot be pickled or copied."""

import copy
import pickle

import numpy as np
import pytest

import outcore
from outcore.errors import UsageError
from outcore.mpi import DistArray, Distribution
from ranks import once, ranks

SHAPE = (6, 4)


def staying(t, folder):
    rows = Distribution(SHAPE, ["block", "*"], t.size)
    once(t, lambda: np.save(folder / "a.npy", np.zeros(SHAPE)))
    a, alone = outcore.open(folder / "a.npy", comm=t), outcore.open(folder / "a.npy")
    shared = DistArray.shared_all(rows, transport=t)
    request = a.iread_all()
    request.wait()
    return [
        a,
        a.schedule_all(np.array([t.rank % SHAPE[0]])),
        alone.schedule(np.array([1])),
        alone.iread(...),
        alone.blocks(),
        request,
        DistArray.zeros(rows, transport=t),
        shared,
        shared.lock(np.s_[:1]),
        outcore.mpi.disk_array(folder / "d.npy", SHAPE, "f8", comm=t),
        outcore.mpi.create_placed(folder / "p.npy", rows, "f8", placement="global", comm=t),
        outcore.open_group(folder / "g.zarr", "w", comm=t),
        outcore.transpose(alone, explain=True),
    ]


@ranks(1, 2)
def test_objects_of_one_process_refuse_pickling(world, folder):
    def body(t):
        for one in staying(t, folder):
            for away in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(UsageError, match="belongs to this process") as raised:
                    away(one)
                assert raised.value.code == "other-process", type(one)
        t.barrier()

    world.run(body)
