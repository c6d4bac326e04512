"""Two ranks move elements of arrays in memory, in their own processes; run by test_resident_peak.py."""

import json
import os
import sys

case, group, folder, budget = sys.argv[1:5]
if group:
    # Before anything is imported, so that all of this process counts.
    with open(os.path.join(group, "cgroup.procs"), "w") as stream:
        stream.write(str(os.getpid()))

import numpy as np  # noqa: E402

import outcore  # noqa: E402
from mpi import forked  # noqa: E402
from outcore.mpi import DistArray, Distribution  # noqa: E402
from outcore.testing.sim import SimWorld  # noqa: E402

ROWS, COLUMNS = 6144, 3072
STRIP = ROWS // 8


def sections(t, name, **options):
    """Strips of rows are written, strips of columns read: transposed, and as another type."""
    rows = Distribution((STRIP, COLUMNS), ["block", "*"], t.size)
    a = DistArray.empty(rows, transport=t)
    d = outcore.mpi.disk_array(os.path.join(folder, name), (ROWS, COLUMNS), "f8", comm=t, **options)
    i = np.arange(a.owned.shape[0])[:, None] + t.rank * a.owned.shape[0]
    j = np.arange(COLUMNS)
    for first in range(0, ROWS, STRIP):
        np.add(1000.0 * (i + first), j, out=a.owned)
        d.write_section(np.s_[first : first + STRIP], a)
    del a
    wide = COLUMNS // 8
    b = DistArray.empty(Distribution((wide, ROWS), ["*", "block"], t.size), "f4", transport=t)
    for first in range(0, COLUMNS, wide):
        d.read_section(np.s_[:, first : first + wide], b, transpose=True, method="two-phase")
        low = t.rank * b.owned.shape[1]
        for k in (0, wide - 1):
            row = np.float32(1000.0 * np.arange(low, low + b.owned.shape[1]) + first + k)
            assert (b.owned[k] == row).all()
    d.close()


def one_sided(t):
    """Everything is got, put and added to by each rank, on nodes of their own."""
    n = 1024
    a = DistArray.shared_all(Distribution((n, n), ["block", "cyclic"], (t.size, 1)), transport=t)
    if t.rank == 0:
        a.put(np.s_[:], np.arange(n)[:, None])
    a.fence_all()
    a.acc(np.s_[:, ::2], np.broadcast_to(1.0, (n, n // 2)), factor=0.5)
    a.fence_all()
    whole = a.get(np.s_[::-1])
    assert (whole[:, 1] == np.arange(n)[::-1]).all()
    assert (whole[:, 0] == whole[:, 1] + 0.5 * t.size).all()
    del whole
    some = np.arange(50_000) * 7 % n, np.arange(50_000) * 11 % n
    assert (a.gather(some) == some[0] + (some[1] % 2 == 0) * 0.5 * t.size).all()
    a.fence_all()
    if t.rank == 1:
        a.scatter(some, some[0])
    a.fence_all()
    a.scatter_acc(some, -1.0, factor=0.25)
    a.fence_all()
    assert a.get((0, 0)) == -0.25 * t.size * np.count_nonzero((some[0] == 0) & (some[1] == 0))
    a.close_all()


def checkpoints(t):
    """Kept where it is, then as a copy, and read in another distribution."""
    shape = 1024, 3072
    place = os.path.join(folder, "state")
    u = DistArray.from_function(
        lambda i, j: i - j, Distribution(shape, ["block", "*"], t.size), transport=t
    )
    outcore.mpi.checkpoint(place, {"u.zarr": u, "step": 1})
    outcore.mpi.icheckpoint(place, {"u": u, "step": 2}).wait()
    columns = Distribution(shape, ["*", "cyclic"], t.size)
    found = outcore.mpi.restore(place, into={"u": columns}, comm=t)
    assert found["step"] == 2
    assert (found["u"].owned[5] == 5.0 - np.arange(t.rank, 3072, t.size)).all()


CASES = {
    "plain": lambda t: sections(t, "d.npy"),
    "chunks": lambda t: sections(t, "d.zarr", chunks=(512, 384)),
    "checkpoint": checkpoints,
}


def told():
    """What this process took at most, and holds."""
    held, _, peak = outcore._core.memory_state()
    with open("/proc/self/status") as stream:
        lines = dict(line.split(":", 1) for line in stream)
    return {"peak": peak, "held": held, "resident": int(lines["VmHWM"].split()[0]) * 1024}


def work(t, pids):
    """Of one of two processes, each of which has the budget."""
    CASES[case](t)
    with open(os.path.join(folder, f"told-{t.rank}"), "w") as out:
        json.dump(told(), out)
    return 0


outcore.memory(int(budget))
if case == "one-sided":  # messages go between nodes, and these ranks are threads
    SimWorld(2, 1).run(one_sided)
    found = [told()]
else:
    codes = forked.run(2, work, os.path.join(folder, "said"))
    with open(os.path.join(folder, "said")) as said:
        assert codes == [0, 0], (codes, said.read())
    found = []
    for rank in range(2):
        with open(os.path.join(folder, f"told-{rank}")) as one:
            found.append(json.load(one))
print(json.dumps(found))
