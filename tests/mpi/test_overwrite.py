"""Calls of several ranks that make arrays refuse to replace one, unless overwrite says so."""

import os

import pytest

import outcore
from ranks import ranks


@ranks(1, 2)
def test_other_calls_refuse_what_exists_too(world, folder):
    rows = outcore.mpi.Distribution((6, 4), ["block", "*"], world.size)

    def body(t):
        def placed(name, placement, **words):
            outcore.mpi.create_placed(
                str(folder / name), rows, "f8", placement=placement, comm=t, **words
            ).close()

        def resident(**words):
            outcore.mpi.disk_array(str(folder / "d.npy"), (4, 4), "f8", comm=t, **words).close()

        def in_group(**words):
            with outcore.open_group(folder / "g.h5", "r+", comm=t) as group:
                group.create("a", (3,), "f8", **words).close()

        def renamed(**words):
            name = str(folder / "moved.npy")
            if not os.path.exists(name):
                t.barrier()
                outcore.mpi.disk_array(name, (4, 4), "f8", comm=t).close()
            with outcore.mpi.disk_array(str(folder / "new"), (4, 4), "i2", keep=False, comm=t) as d:
                d.rename(name, **words)

        outcore.open_group(folder / "g.h5", "w", comm=t).close()
        makers = {
            "global": lambda **w: placed("p.npy", "global", **w),
            "local": lambda **w: placed("local", "local", **w),
            "partitioned": lambda **w: placed("p.h5::/v", "partitioned", **w),
            "disk_array": resident,
            "group": in_group,
            "rename": renamed,
        }
        for name, make in makers.items():
            if name != "rename":
                make()
            with pytest.raises(outcore.OutcoreError) as caught:
                make()
            error = caught.value.__cause__ if caught.value.code == "rank-failed" else caught.value
            assert error.code == "already-exists", (name, caught.value)
            make(overwrite=True)

    world.run(body)
