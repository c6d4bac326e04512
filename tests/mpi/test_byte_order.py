"""Every way by which elements travel between ranks, for every byte order and structure."""

import numpy as np
import pytest

import outcore
from outcore.mpi import DistArray, Distribution
from ranks import once, ranks

STRUCTURES = [
    np.dtype([("a", ">i4"), ("b", "<f8"), ("c", ">u2", (2,))]),
    np.dtype({"names": ["a", "b"], "formats": [">i4", ">f8"], "offsets": [4, 16], "itemsize": 32}),
    np.dtype([("a", "<i4"), ("b", "<f8")], align=True),
]
PLAIN = [np.dtype(name) for name in ("<f8", ">f8", ">i4", ">c16", ">U3")]
DTYPES = PLAIN + STRUCTURES
SHAPE = (30, 4)
ROWS = np.random.default_rng(3).permutation(SHAPE[0])


def values(dtype, seed, shape=SHAPE):
    """Values that look otherwise with their bytes swapped."""
    rng = np.random.default_rng(seed)
    if dtype.names is None:
        return rng.integers(1, 1000, shape).astype(dtype)
    made = np.zeros(shape, dtype)
    for name in dtype.names:
        made[name] = rng.integers(1, 1000, made[name].shape)
    return made


def equal(found, expected, *case):
    found = np.asarray(found)
    assert found.dtype == expected.dtype, case
    assert np.array_equal(found, expected), case


def kept(folder, t, name, data):
    """An array on disk of this rank."""
    path = folder / f"{name}{t.rank}.npy"
    np.save(path, data)
    return outcore.open(path, "r+")


WRITES = {
    "write_all": lambda a, rows, new: a.write_all(rows, new),
    "iwrite_all": lambda a, rows, new: a.iwrite_all(rows, new).wait(),
    "outcore.mpi.write_all": lambda a, rows, new: outcore.mpi.write_all([(a, rows, new)]),
    "scatter_all": lambda a, rows, new: a.schedule_all(rows).scatter_all(new),
    "pipelined": lambda a, rows, new: a.schedule_all(rows).scatter_all(new, method="pipelined"),
    "iscatter_all": lambda a, rows, new: a.schedule_all(rows).iscatter_all(new).wait(),
}
READS = {
    "read_all": lambda a, rows, out: a.read_all(rows, out=out),
    "iread_all": lambda a, rows, out: a.iread_all(rows, out=out).wait(),
    "direct": lambda a, rows, out: a.schedule_all(rows).gather_all(out, method="direct"),
    "collective": lambda a, rows, out: a.schedule_all(rows).gather_all(out, method="collective"),
    "pipelined": lambda a, rows, out: a.schedule_all(rows).gather_all(out, method="pipelined"),
    "igather_all": lambda a, rows, out: a.schedule_all(rows).igather_all(out).wait(),
}


def lists(t, folder, dtype, suffix, *, passes):
    """Values and results on disk go in passes, those in memory through owners."""
    old, new, mine = values(dtype, 1), values(dtype, 2), ROWS[t.rank :: t.size]
    case = str(dtype), suffix, passes
    path = folder / f"{DTYPES.index(dtype)}{passes}{suffix}"
    once(t, lambda: outcore.create(path, data=old).close())
    with outcore.open(path, "r+", comm=t) as a:
        for name, read in READS.items():
            out = kept(folder, t, "out", old[: len(mine)]) if passes else None
            equal(read(a, mine, out)[...], old[mine], name, *case)
        (found,) = outcore.mpi.read_all([(a, mine)])
        equal(found, old[mine], "outcore.mpi.read_all", *case)
        given = kept(folder, t, "new", new[mine]) if passes else new[mine]
        for name, write in WRITES.items():
            a.write_all(np.s_[t.rank :: t.size], old[t.rank :: t.size])
            write(a, mine, given)
            t.barrier()
            equal(a[...], new, name, *case)
            t.barrier()
        if dtype.kind in "fic":
            a.schedule_all(mine).scatter_all(given, "add")
            t.barrier()
            equal(a[...], (2 * new).astype(dtype), "add", *case)
        elif not passes:
            # Elements that nobody writes.
            a.schedule_all(mine[1:]).scatter_all(new[mine[1:]], fill=old[0, 0])
            t.barrier()
            expected = new.copy()
            expected[ROWS[: t.size]] = old[0, 0]
            equal(a[...], expected, "fill", *case)
        t.barrier()


@ranks(3, per_node=(None, 1))
def test_lists_keep_byte_order(world, folder):
    def body(t):
        for dtype in DTYPES:
            for passes in (False, True):
                lists(t, folder, dtype, ".npy", passes=passes)
        for dtype in PLAIN[:2]:
            lists(t, folder, dtype, ".zarr", passes=True)

    world.run(body)


def sections(t, folder, dtype):
    """Regular sections, of one array and of many."""
    old, new, case = values(dtype, 1), values(dtype, 2), str(dtype)
    path = folder / f"{DTYPES.index(dtype)}.npy"
    once(t, lambda: np.save(path, old))
    with outcore.open(path, "r+", comm=t) as a:
        mine = np.s_[t.rank :: t.size, ::-1]
        for method in ("two-phase", "direct"):
            equal(a.read_all(mine, method=method), old[mine], method, case)
            a.write_all(mine, new[mine], method=method)
            t.barrier()
            equal(a[...], new, method, case)
            t.barrier()
            outcore.mpi.write_all([(a, mine, old[mine])], method=method)
            t.barrier()
            equal(outcore.mpi.read_all([(a, ...)], method=method)[0], old, method, case)
            t.barrier()


def divided(t, folder, dtype):
    """Arrays in memory, divided over ranks, and on disk below them."""
    old, case = values(dtype, 1), str(dtype)
    rows, columns = (Distribution(SHAPE, d, t.size) for d in (["block", "*"], ["*", "cyclic"]))
    path = folder / f"d{DTYPES.index(dtype)}.npy"
    once(t, lambda: np.save(path, old))
    a = DistArray.empty(rows, dtype, transport=t, ghosts=[1, 0])
    with outcore.open(path, "r+", comm=t) as disk:
        for method in ("two-phase", "direct"):
            a.read_all(disk, method=method)
            equal(a.gather_all(), old, "read_all", case)
            a.write_all(disk, method=method)
            t.barrier()
            equal(disk[...], old, "write_all", case)
    b = a.redistribute_all(columns)
    equal(b.owned, old[:, t.rank :: t.size], "redistribute_all", case)
    a.update_ghosts_all()
    low = len(old) * t.rank // t.size
    if low and len(old) % t.size == 0:
        equal(a.local[0], old[low - 1], "update_ghosts_all", case)
    around = a.redistribute_all(rows, ghosts=[1, 0], periodic=[True, False])
    around.update_ghosts_all()
    if len(old) % t.size == 0:
        equal(around.local[0], old[low - 1], "periodic", case)
    equal(b.copy_all().gather_all(), old, "copy_all", case)
    equal(b.transpose_all().gather_all(), old.T, "transpose_all", case)
    if dtype.kind in "fic":
        for name, found, expected in (
            ("add_all", b.add_all(b), old + old),
            ("map_all", b.map_all(np.negative), -old),
            ("matmul_all", b.matmul_all(b.transpose_all()), old @ old.T),
        ):
            equal(found.gather_all().astype(dtype), expected.astype(dtype), name, case)
        equal(b.dot_all(b), np.vdot(old, old), "dot_all", case)
        ones = DistArray.zeros(rows, dtype, transport=t, ghosts=[1, 0])
        ones.local[...] = 1
        ones.accumulate_ghosts_all()
        total = ones.gather_all().real
        assert total.sum() == sum(ones.transport.allgather(np.array([ones.local.size])))[0], case
        assert set(total.reshape(-1).tolist()) <= {1, 2}, case
    shared = DistArray.shared_all(rows, dtype, transport=t)
    mine = ROWS[t.rank :: t.size]
    columns = np.arange(SHAPE[1])
    if t.rank == 0:
        shared.put(np.s_[::2], old[::2])
    if t.rank == t.size - 1:
        shared.scatter((np.arange(1, len(old), 2)[:, None], columns), old[1::2])
    shared.fence_all()
    equal(shared.get(...), old, "get", case)
    equal(shared.gather((mine[:, None], columns)), old[mine], "gather", case)
    shared.fence_all()
    if dtype.kind in "fic":
        shared.acc(np.s_[:], old)
        shared.scatter_acc((mine[:, None], columns), old[mine], 2)
        shared.fence_all()
        equal(shared.get(...), (old * (3 + t.size)).astype(dtype), "acc", case)
    shared.fence_all()
    if dtype.kind == "i":
        shared.read_inc((0, 0), 5)
        shared.fence_all()
        assert shared.get((0, 0)) == old[0, 0] * (3 + t.size) + 5 * t.size
    shared.fence_all()
    shared.close_all()


def below(t, folder, dtype):
    """Disk resident and placed arrays, and checkpoints."""
    old, case = values(dtype, 1), str(dtype)
    rows = Distribution(SHAPE, ["block", "*"], t.size)
    name = f"r{DTYPES.index(dtype)}"
    a = DistArray.empty(rows, dtype, transport=t)
    a.owned[...] = old[a.global_slices[0]]
    again = DistArray.zeros(Distribution(SHAPE, ["*", "cyclic"], t.size), dtype, transport=t)
    with outcore.mpi.disk_array(folder / f"{name}.npy", SHAPE, dtype, comm=t) as d:
        d.write(a)
        d.read(again)
        equal(again.gather_all(), old, "disk_array", case)
        d.write_section(np.s_[:10], again, np.s_[10:20], transpose=False)
        d.read_section(np.s_[:10], a, np.s_[20:], transpose=False)
        equal(a.gather_all()[20:], old[10:20], "read_section", case)
    for placement in ("global", "local", "partitioned"):
        p = outcore.mpi.create_placed(
            folder / f"{name}{placement}",
            rows,
            dtype,
            placement=placement,
            comm=t,
            ghosts=[1, 0] if placement == "local" else 0,
            **({} if placement == "local" else {"format": "npy"}),
        )
        p.write_section(..., again.redistribute_all(rows).owned)
        p.flush_all()
        equal(p.read_global_all(), old, placement, case)
        equal(p.in_core_all().gather_all(), old, placement, case)
        p.close()
    outcore.mpi.checkpoint(folder / f"{name}state", {"u": again})
    equal(
        outcore.mpi.restore(folder / f"{name}state", into={"u": rows}, comm=t)["u"].gather_all(),
        old,
    )


@pytest.mark.parametrize("moves", [sections, divided, below])
@ranks(3, per_node=(None, 1))
def test_parts_keep_byte_order(world, folder, moves):
    def body(t):
        for dtype in DTYPES:
            moves(t, folder, dtype)

    world.run(body)
