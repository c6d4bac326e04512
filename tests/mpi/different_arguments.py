"""
Collective calls of which one rank gives another argument than the others.

A case makes, of a transport, a folder and the number of the choice (0, or 1 on the odd rank), a call.
Everything that all ranks need is made before it is returned.
"""

import functools

import numpy as np

import outcore
from outcore.compute import jobs
from outcore.mpi import DistArray, Distribution
from outcore.public import find_public
from ranks import once

SHAPE = (6, 4)
METHODS = ("two-phase", "direct")
CASES = {}


def case(name, *more):
    def add(make):
        CASES[name] = functools.partial(make, *more) if more else make
        return make

    return add


def done(found):
    return found.wait() if hasattr(found, "wait") else found


def rows_of(t):
    return np.arange(t.rank, SHAPE[0], t.size)


# Arrays and schedules


def arrays(t, folder):
    """Two arrays of equal shape, and one of other elements."""

    def make():
        for name, data in (("a", 0.0), ("b", 100.0), ("c", 0)):
            np.save(folder / f"{name}.npy", np.arange(24).reshape(SHAPE) + data)

    once(t, make)
    return [outcore.open(folder / f"{name}.npy", "r+", comm=t) for name in "abc"]


def of_arrays(name, call):
    CASES[name] = lambda t, folder, x: functools.partial(call, t, *arrays(t, folder), x)


def of_schedules(name, call):
    def make(t, folder, x):
        a, b, c = arrays(t, folder)
        one, other = a.schedule_all(rows_of(t)), a.schedule_all(rows_of(t)[::-1])
        return lambda: done(call(t, (a, b, c), (one, other), x))

    CASES[name] = make


for name, values in (("chunk", (64, 128)), ("io_ranks", (1, 2)), ("groups", (1, 2))):
    of_arrays(
        f"schedule_all {name}",
        lambda t, a, b, c, x, name=name, values=values: a.schedule_all(
            rows_of(t), **{name: values[x]}
        ),
    )
of_arrays("schedule_all array", lambda t, a, b, c, x: (a, b)[x].schedule_all(rows_of(t)))
of_arrays("schedule_all dtype", lambda t, a, b, c, x: (a, c)[x].schedule_all(rows_of(t)))
of_arrays("schedule_all slice", lambda t, a, b, c, x: a.schedule_all(np.s_[rows_of(t), : 2 + x]))
for name in ("gather_all", "igather_all", "explain_all"):
    of_schedules(f"{name} of", lambda t, a, s, x, n=name: getattr(s[0], n)(of=a[x]))
    of_schedules(f"{name} schedule", lambda t, a, s, x, n=name: getattr(s[x], n)())
    of_schedules(
        f"{name} method",
        lambda t, a, s, x, n=name: getattr(s[0], n)(method=("collective", "pipelined")[x]),
    )
of_schedules("explain_all write", lambda t, a, s, x: s[0].explain_all(write=bool(x)))
for name in ("scatter_all", "iscatter_all"):
    of_schedules(f"{name} of", lambda t, a, s, x, n=name: getattr(s[0], n)(1.0, of=a[x]))
    of_schedules(f"{name} dtype", lambda t, a, s, x, n=name: getattr(s[0], n)(1.0, of=a[2 * x]))
    of_schedules(f"{name} schedule", lambda t, a, s, x, n=name: getattr(s[x], n)(1.0))
    for word, values in {
        "combine": ("add", "last"),
        "method": ("collective", "pipelined"),
        "fill": (1, 2),
        "no fill": (None, 2),
    }.items():
        of_schedules(
            f"{name} {word}",
            lambda t, a, s, x, n=name, w=word, v=values: getattr(s[0], n)(
                1.0, **{w.removeprefix("no "): v[x]}
            ),
        )
for name in ("read_all", "iread_all", "explain_all"):
    of_arrays(name, lambda t, a, b, c, x, n=name: done(getattr((a, b)[x], n)()))
    of_arrays(
        f"{name} method", lambda t, a, b, c, x, n=name: done(getattr(a, n)(method=METHODS[x]))
    )
    of_arrays(
        f"{name} kind of key",
        lambda t, a, b, c, x, n=name: done(getattr(a, n)(np.array([0]) if x else np.s_[:1])),
    )
for name in ("write_all", "iwrite_all"):
    of_arrays(name, lambda t, a, b, c, x, n=name: done(getattr((a, b)[x], n)(..., 1)))
    of_arrays(
        f"{name} of rows", lambda t, a, b, c, x, n=name: done(getattr((a, b)[x], n)(rows_of(t), 1))
    )
    of_arrays(
        f"{name} method",
        lambda t, a, b, c, x, n=name: done(getattr(a, n)(..., 1, method=METHODS[x])),
    )
of_arrays("explain_all of a write", lambda t, a, b, c, x: a.explain_all(write=bool(x)))
of_arrays("read_all of rows", lambda t, a, b, c, x: (a, b)[x].read_all(rows_of(t)))
of_arrays("flush_all", lambda t, a, b, c, x: (a, b)[x].flush_all())
of_arrays(
    "outcore.mpi.read_all method",
    lambda t, a, b, c, x: outcore.mpi.read_all([(a, ...)], method=METHODS[x]),
)
of_arrays(
    "outcore.mpi.read_all of rows",
    lambda t, a, b, c, x: outcore.mpi.read_all([((a, b)[x], rows_of(t))]),
)
of_arrays(
    "outcore.mpi.write_all method",
    lambda t, a, b, c, x: outcore.mpi.write_all([(a, ..., 1)], method=METHODS[x]),
)
of_arrays(
    "outcore.mpi.write_all of rows",
    lambda t, a, b, c, x: outcore.mpi.write_all([((a, b)[x], rows_of(t), 1)]),
)
of_arrays(
    "outcore.mpi.explain_all method",
    lambda t, a, b, c, x: outcore.mpi.explain_all([(a, ...)], method=METHODS[x]),
)


# Opening and making


of_arrays("open path", lambda t, a, b, c, x: outcore.open((a, b)[x].path, comm=t))
of_arrays("open mode", lambda t, a, b, c, x: outcore.open(a.path, ("r", "r+")[x], comm=t))
of_arrays(
    "open_many paths", lambda t, a, b, c, x: outcore.open_many([a.path, (a, b)[x].path], comm=t)
)
of_arrays("open_many number", lambda t, a, b, c, x: outcore.open_many([a.path] * (1 + x), comm=t))

WORDS = {
    "shape": (SHAPE, (6, 5)),
    "dtype": ("f8", "f4"),
    "chunks": ((2, 2), (3, 2)),
    "compression": (None, "zstd"),
    "fill_value": (1, 2),
    "attrs": ({"a": 1}, {"a": 2}),
}


def making(word, values, t, folder, x):
    words = {"shape": SHAPE, "dtype": "f8", word: values[x]}
    return lambda: outcore.open(folder / "n.zarr", "w", comm=t, **words)


def creating(word, values, t, folder, x):
    words = {"shape": SHAPE, "dtype": "f8", word: values[x]}
    return lambda: outcore.create(folder / "n.zarr", comm=t, **words)


def making_in_group(word, values, t, folder, x):
    words = {"shape": SHAPE, "dtype": "f8", word: values[x]}
    group = outcore.open_group(folder / "g.zarr", "w", comm=t)
    return lambda: group.create("a", **words)


for word, values in WORDS.items():
    case(f"open to create {word}", word, values)(making)
    case(f"create {word}", word, values)(creating)
    case(f"Group.create {word}", word, values)(making_in_group)
case("create overwrite", "overwrite", (False, True))(creating)


def of_groups(name, call):
    def make(t, folder, x):
        groups = [outcore.open_group(folder / f"{one}.zarr", "w", comm=t) for one in "gh"]
        for group in groups:
            group.create("a", (3,), "f8")
            group.create("b", (3,), "f8")
            group.create_group("s")
        return lambda: call(t, folder, groups, x)

    CASES[name] = make


of_groups("Group item", lambda t, folder, g, x: g[0]["ab"[x]])
of_groups("Group", lambda t, folder, g, x: g[x]["a"])
of_groups("Group.create name", lambda t, folder, g, x: g[0].create("cd"[x], (3,), "f8"))
of_groups("Group.create", lambda t, folder, g, x: g[x].create("c", (3,), "f8"))
of_groups(
    "Group.create overwrite",
    lambda t, folder, g, x: g[0].create("c", (3,), "f8", overwrite=bool(x)),
)
of_groups("Group.create_group name", lambda t, folder, g, x: g[0].create_group("uv"[x]))
of_groups("Group.create_group", lambda t, folder, g, x: g[x].create_group("u"))
of_groups(
    "Group.create_group attrs", lambda t, folder, g, x: g[0].create_group("u", attrs={"a": x})
)
of_groups(
    "Group.create_group exist_ok",
    lambda t, folder, g, x: g[0].create_group("s", exist_ok=bool(x)),
)
of_groups("open_group path", lambda t, folder, g, x: outcore.open_group(g[x].path, comm=t))
of_groups(
    "open_group mode",
    lambda t, folder, g, x: outcore.open_group(g[0].path, ("r", "r+")[x], comm=t),
)


# Arrays in memory


def forms(t):
    return [Distribution(SHAPE, form, t.size) for form in (["block", "*"], ["*", "block"])]


def parts(t, **how):
    rows, columns = forms(t)
    one = DistArray.from_function(lambda i, j: i + j, rows, "f8", transport=t, **how)
    return one, DistArray.from_function(lambda i, j: i + j, columns, "f8", transport=t)


def of_parts(name, call):
    def make(t, folder, x):
        p, q = parts(t)
        return lambda: done(call(t, p, q, x))

    CASES[f"DistArray {name}"] = make


def of_parts_on_disk(name, call):
    def make(t, folder, x):
        a, p, g = arrays(t, folder), parts(t), parts(t, ghosts=[1, 0])
        return lambda: done(call(a, p, g[0], x))

    CASES[f"DistArray {name}"] = make


for name in ("read_all", "iread_all", "write_all", "iwrite_all"):
    of_parts_on_disk(name, lambda a, p, g, x, n=name: getattr(p[0], n)(a[x]))
    of_parts_on_disk(
        f"{name} method", lambda a, p, g, x, n=name: getattr(p[0], n)(a[0], method=METHODS[x])
    )
    of_parts_on_disk(f"{name} distribution", lambda a, p, g, x, n=name: getattr(p[x], n)(a[0]))
of_parts_on_disk("read_all ghosts", lambda a, p, g, x: g.read_all(a[0], ghosts=bool(x)))

PRODUCT = functools.partial(Distribution, (6, 6), ["block", "*"])
TURNED = functools.partial(Distribution, SHAPE[::-1], ["block", "*"])
for name in ("redistribute_all", "iredistribute_all"):
    of_parts(name, lambda t, p, q, x, n=name: getattr(p, n)(forms(t)[1 - x]))
    of_parts(f"{name} source", lambda t, p, q, x, n=name: getattr((p, q)[x], n)(forms(t)[1]))
    of_parts(f"{name} ghosts", lambda t, p, q, x, n=name: getattr(p, n)(forms(t)[0], ghosts=x))
    of_parts(
        f"{name} periodic",
        lambda t, p, q, x, n=name: getattr(p, n)(
            forms(t)[0], ghosts=[1, 0], periodic=[bool(x), False]
        ),
    )
of_parts(
    "update_ghosts_all",
    lambda t, p, q, x: [p.redistribute_all(forms(t)[0], ghosts=[n, 0]) for n in (1, 2)][
        x
    ].update_ghosts_all(),
)
of_parts(
    "accumulate_ghosts_all",
    lambda t, p, q, x: p.redistribute_all(forms(t)[0], ghosts=[1, 0]).accumulate_ghosts_all(
        ("add", "minimum")[x]
    ),
)
of_parts("gather_all root", lambda t, p, q, x: p.gather_all(x))
of_parts("gather_all no root", lambda t, p, q, x: p.gather_all((None, 0)[x]))
of_parts("gather_all", lambda t, p, q, x: (p, q)[x].gather_all())
of_parts(
    "shared_all distribution",
    lambda t, p, q, x: DistArray.shared_all(forms(t)[x], transport=t),
)
of_parts(
    "shared_all dtype",
    lambda t, p, q, x: DistArray.shared_all(forms(t)[0], ("f8", "f4")[x], transport=t),
)
of_parts(
    "shared_all ghosts",
    lambda t, p, q, x: DistArray.shared_all(forms(t)[0], ghosts=x, transport=t),
)
of_parts("fill_all value", lambda t, p, q, x: p.fill_all(x))
of_parts("fill_all", lambda t, p, q, x: (p, q)[x].fill_all(1))
of_parts("scale_all factor", lambda t, p, q, x: p.scale_all(x))
of_parts("copy_all out", lambda t, p, q, x: p.copy_all((None, q)[x]))
of_parts("copy_all", lambda t, p, q, x: (p, q)[x].copy_all())
of_parts("add_all other", lambda t, p, q, x: p.add_all((p, q)[x]))
of_parts("add_all of a number", lambda t, p, q, x: p.add_all((p, 1)[x]))
of_parts("add_all a", lambda t, p, q, x: p.add_all(q, x))
of_parts("add_all b", lambda t, p, q, x: p.add_all(q, 1, x))
of_parts("add_all out", lambda t, p, q, x: p.add_all(q, out=(p, q)[x]))
of_parts("add_all no out", lambda t, p, q, x: p.add_all(q, out=(None, p)[x]))
of_parts("map_all others", lambda t, p, q, x: p.map_all(np.add, (p, q)[x]))
of_parts("map_all number", lambda t, p, q, x: p.map_all(lambda *a: a[0], *([p] * (1 + x))))
of_parts("map_all of a number", lambda t, p, q, x: p.map_all(np.add, (p, 1)[x]))
of_parts("map_all out", lambda t, p, q, x: p.map_all(np.negative, out=(None, q)[x]))
of_parts("map_all dtype", lambda t, p, q, x: p.map_all(np.negative, dtype=("f8", "f4")[x]))
of_parts("dot_all other", lambda t, p, q, x: p.dot_all((p, q)[x]))
of_parts("dot_all of a number", lambda t, p, q, x: p.dot_all((p, 1)[x]))
of_parts(
    "matmul_all other",
    lambda t, p, q, x: p.matmul_all((p.transpose_all(), q.transpose_all())[x]),
)
of_parts(
    "matmul_all distribution",
    lambda t, p, q, x: p.matmul_all(q.transpose_all(), distribution=(None, PRODUCT(t.size))[x]),
)
of_parts(
    "matmul_all out",
    lambda t, p, q, x: p.matmul_all(
        q.transpose_all(), out=(None, DistArray.zeros(PRODUCT(t.size), transport=t))[x]
    ),
)
of_parts("transpose_all", lambda t, p, q, x: (p, q)[x].transpose_all())
of_parts("transpose_all axes", lambda t, p, q, x: p.transpose_all(((1, 0), (0, 1))[x]))
of_parts(
    "transpose_all distribution",
    lambda t, p, q, x: p.transpose_all(distribution=(None, TURNED(t.size))[x]),
)


def shared(name, call):
    def make(t, folder, x):
        both = [DistArray.shared_all(forms(t)[0], transport=t) for _ in range(2)]
        return lambda: call(both[x])

    CASES[f"DistArray {name}"] = make


shared("fence_all", lambda one: one.fence_all())
shared("close_all", lambda one: one.close_all())


# Disk resident arrays


def of_resident(name, call):
    def make(t, folder, x):
        p, q = parts(t)
        made = [outcore.mpi.disk_array(folder / f"{n}.npy", SHAPE, "f8", comm=t) for n in "rs"]
        for one in made:
            one.write(p)
        return lambda: done(call(made, p, q, x))

    CASES[f"DiskResidentArray {name}"] = make


HEAD = np.s_[:2]
for name in ("read", "iread", "write", "iwrite"):
    of_resident(name, lambda d, p, q, x, n=name: getattr(d[x], n)(p))
    of_resident(f"{name} memory", lambda d, p, q, x, n=name: getattr(d[0], n)((p, q)[x]))
    of_resident(f"{name} method", lambda d, p, q, x, n=name: getattr(d[0], n)(p, method=METHODS[x]))
for name in ("read_section", "iread_section", "write_section", "iwrite_section"):
    of_resident(name, lambda d, p, q, x, n=name: getattr(d[x], n)(HEAD, p, HEAD))
    of_resident(
        f"{name} key", lambda d, p, q, x, n=name: getattr(d[0], n)(np.s_[x : x + 2], p, HEAD)
    )
    of_resident(
        f"{name} other key", lambda d, p, q, x, n=name: getattr(d[0], n)(HEAD, p, np.s_[x : x + 2])
    )
of_resident("explain", lambda d, p, q, x: d[x].explain(..., p))
of_resident("explain write", lambda d, p, q, x: d[0].explain(..., p, write=bool(x)))
of_resident("flush", lambda d, p, q, x: d[x].flush())
of_resident("rename name", lambda d, p, q, x: d[0].rename(f"{d[0].path}{x}.npy"))
of_resident("rename", lambda d, p, q, x: d[x].rename(f"{d[0].path}.npy"))
of_resident(
    "rename overwrite", lambda d, p, q, x: d[0].rename(f"{d[0].path}.npy", overwrite=bool(x))
)
of_resident("delete", lambda d, p, q, x: d[x].delete())


def disk_array(word, values, t, folder, x):
    words = {"name": folder / "k.zarr", "shape": SHAPE, "dtype": "f8", word: values[x]}
    words["name"] = folder / words["name"]
    return lambda: outcore.mpi.disk_array(comm=t, **words)


for word, values in {
    "name": ("k.zarr", "l.zarr"),
    "shape": WORDS["shape"],
    "dtype": WORDS["dtype"],
    "typical_sections": ((3, None), (2, None)),
    "keep": (True, False),
    "compression": WORDS["compression"],
}.items():
    case(f"disk_array {word}", word, values)(disk_array)
of_arrays(
    "disk_array of another", lambda t, a, b, c, x: outcore.mpi.disk_array((a, b)[x].path, comm=t)
)
of_arrays(
    "disk_array mode",
    lambda t, a, b, c, x: outcore.mpi.disk_array(a.path, mode=("r", "r+")[x], comm=t),
)


# Placed arrays

SUFFIX = {"global": ".npy", "local": "", "partitioned": ".npy"}


def of_placed(name, call, placements=tuple(SUFFIX), ghosts=0):
    for placement in placements:

        def make(t, folder, x, placement=placement):
            made = [
                outcore.mpi.create_placed(
                    folder / f"{one}{SUFFIX[placement]}",
                    forms(t)[0],
                    "f8",
                    placement=placement,
                    ghosts=ghosts,
                    comm=t,
                )
                for one in "pq"
            ]
            return lambda: call(t, folder, made, x)

        CASES[f"PlacedArray {name} {placement}"] = make


def multicast(t, folder, key, array):
    array.multicast_all(key, outcore.create(folder / f"m{t.rank}.npy", (2, 4), "f8"))


of_placed("flush_all", lambda t, folder, p, x: p[x].flush_all())
of_placed("in_core_all", lambda t, folder, p, x: p[x].in_core_all())
of_placed("read_global_all", lambda t, folder, p, x: p[x].read_global_all())
of_placed("multicast_all", lambda t, folder, p, x: multicast(t, folder, HEAD, p[x]))
of_placed("multicast_all key", lambda t, folder, p, x: multicast(t, folder, np.s_[x : x + 2], p[0]))
of_placed("slabs", lambda t, folder, p, x: list(p[x].slabs()), ("partitioned",))
of_placed("slabs rows", lambda t, folder, p, x: list(p[0].slabs(rows=1 + x)), ("partitioned",))
of_placed(
    "write_slab",
    lambda t, folder, p, x: [p[x].write_slab(slab, 1) for slab in p[0].slabs(rows=2)],
    ("partitioned",),
)
of_placed("in_core_all ghosts", lambda t, f, p, x: p[0].in_core_all(ghosts=bool(x)), ghosts=[1, 0])
of_placed("shift_all", lambda t, folder, p, x: p[x].shift_all(), ghosts=[1, 0])
of_placed(
    "shift_all method",
    lambda t, folder, p, x: p[0].shift_all(("direct", "in-core")[x]),
    ghosts=[1, 0],
)
of_placed(
    "shift_all explain", lambda t, folder, p, x: p[0].shift_all(explain=bool(x)), ghosts=[1, 0]
)


def copying(word, values):
    def call(t, folder, p, x):
        words = {"path": "z.npy", "placement": "global", word: values[x]}
        if "distribution" in words:
            words["distribution"] = forms(t)[words["distribution"]]
        words["path"] = folder / words["path"]
        outcore.mpi.copy_placed(p[0], **words)

    return call


of_placed(
    "copy_placed source",
    lambda t, folder, p, x: outcore.mpi.copy_placed(p[x], folder / "z.npy", placement="global"),
)
for word, values in {
    "path": ("z.npy", "y.npy"),
    "placement": ("global", "partitioned"),
    "distribution": (0, 1),
    "overwrite": (False, True),
}.items():
    of_placed(f"copy_placed {word}", copying(word, values), ("global",))


def create_placed(word, values, t, folder, x):
    words = {"path": "p.npy", "distribution": 0, "dtype": "f8", "placement": "global"}
    words[word] = values[x]
    words["distribution"] = forms(t)[words["distribution"]]
    if word == "ghosts":
        words["placement"] = "local"
    return lambda: outcore.mpi.create_placed(folder / words.pop("path"), comm=t, **words)


for word, values in {
    "path": ("p.npy", "q.npy"),
    "distribution": (0, 1),
    "dtype": ("f8", "f4"),
    "placement": ("global", "partitioned"),
    "order": ("C", "F"),
    "ghosts": ([1, 0], [2, 0]),
}.items():
    case(f"create_placed {word}", word, values)(create_placed)
of_arrays(
    "open_placed path",
    lambda t, a, b, c, x: outcore.mpi.open_placed((a, b)[x].path, forms(t)[0], comm=t),
)
of_arrays(
    "open_placed distribution",
    lambda t, a, b, c, x: outcore.mpi.open_placed(a.path, forms(t)[x], comm=t),
)
of_arrays(
    "open_placed mode",
    lambda t, a, b, c, x: outcore.mpi.open_placed(a.path, forms(t)[0], ("r", "r+")[x], comm=t),
)


# Checkpoints


def of_checkpoints(name, call):
    def make(t, folder, x):
        p, q = parts(t)
        for place in "kl":
            outcore.mpi.checkpoint(folder / place, {"u": p})
        return lambda: done(call(t, folder, p, q, x))

    CASES[name] = make


for name in ("checkpoint", "icheckpoint"):
    of_checkpoints(
        f"{name} path", lambda t, f, p, q, x, n=name: find_public(n)(f / "kl"[x], {"u": p})
    )
    of_checkpoints(
        f"{name} name", lambda t, f, p, q, x, n=name: find_public(n)(f / "k", {"uv"[x]: p})
    )
    of_checkpoints(
        f"{name} array",
        lambda t, f, p, q, x, n=name: find_public(n)(f / "k", {"u": (p, q)[x]}),
    )
    of_checkpoints(
        f"{name} value",
        lambda t, f, p, q, x, n=name: find_public(n)(f / "k", {"u": p, "s": x}),
    )
of_checkpoints("restore path", lambda t, f, p, q, x: outcore.mpi.restore(f / "kl"[x], comm=t))
of_checkpoints(
    "restore into",
    lambda t, f, p, q, x: outcore.mpi.restore(f / "k", into={"u": forms(t)[x]}, comm=t),
)
of_checkpoints(
    "restore names",
    lambda t, f, p, q, x: outcore.mpi.restore(f / "k", names=(None, ["u"])[x], comm=t),
)


# Computations


def of_jobs(name, call):
    def make(t, folder, x):
        a, b, _ = arrays(t, folder)
        words = {"out": folder / "o.npy", "comm": t}
        return lambda: call(words, a, b, x)

    CASES[name] = make


def without_out(words):
    return {"comm": words["comm"]}


of_jobs("transpose source", lambda w, a, b, x: outcore.transpose((a, b)[x], **w))
of_jobs("transpose out", lambda w, a, b, x: outcore.transpose(a, **w | {"out": f"{a.path}{x}.npy"}))
of_jobs("transpose overwrite", lambda w, a, b, x: outcore.transpose(a, overwrite=bool(x), **w))
of_jobs("transpose resume", lambda w, a, b, x: outcore.transpose(a, resume=bool(x), **w))
of_jobs("transpose explain", lambda w, a, b, x: outcore.transpose(a, explain=bool(x), **w))
of_jobs("transpose format", lambda w, a, b, x: outcore.transpose(a, order="CF"[x], **w))
of_jobs("sum source", lambda w, a, b, x: outcore.sum((a, b)[x], **without_out(w)))
of_jobs("sum axis", lambda w, a, b, x: outcore.sum(a, axis=x, **without_out(w)))
of_jobs("sum keepdims", lambda w, a, b, x: outcore.sum(a, keepdims=bool(x), **without_out(w)))
of_jobs("sum or max", lambda w, a, b, x: (outcore.sum, outcore.max)[x](a, **without_out(w)))
of_jobs("map_blocks", lambda w, a, b, x: outcore.map_blocks((np.negative, np.abs)[x], a, **w))
of_jobs("sort axis", lambda w, a, b, x: outcore.sort(a, axis=x, **w))
of_jobs("matmul", lambda w, a, b, x: outcore.matmul(a, np.full((4, 2), 1.0 + x), **w))
of_jobs("correlate1d", lambda w, a, b, x: outcore.ndimage.correlate1d(a, [1.0, 2.0 + x], **w))
of_jobs("convert", lambda w, a, b, x: outcore.convert((a, b)[x], w["out"], comm=w["comm"]))


@case("jobs.resume")
def _(t, folder, x):
    once(t, lambda: [(folder / name).mkdir() for name in "gh"])
    return lambda: jobs.resume(folder / "gh"[x], comm=t)


# Unstructured problems


def of_meshes(name, call):
    def make(t, folder, x):
        def save():
            for n in range(2):
                edges = (np.arange(16).reshape(8, 2) + n) % 8
                np.save(folder / f"e{n}.npy", edges)
                np.save(folder / f"c{n}.npy", np.random.default_rng(n).random((8, 2)))
                np.save(folder / f"u{n}.npy", np.zeros(8))

        once(t, save)
        return lambda: call(t, folder, x)

    CASES[name] = make


def sweep(edges, *, x, y):
    """Of no use."""


def edge_loop(t, folder, edges=0, updates=0, reads=1):
    outcore.unstructured.edge_loop(
        folder / f"e{edges}.npy",
        reads={"y": folder / f"{'uc'[reads]}0.npy"},
        updates={"x": folder / f"u{updates}.npy"},
        kernel=sweep,
        comm=t,
    )


of_meshes(
    "partition coordinates",
    lambda t, f, x: outcore.unstructured.partition(f / f"c{x}.npy", 2, out=f / "P", comm=t),
)
of_meshes(
    "partition parts",
    lambda t, f, x: outcore.unstructured.partition(f / "c0.npy", 2 + x, out=f / "P", comm=t),
)
of_meshes(
    "partition out",
    lambda t, f, x: outcore.unstructured.partition(f / "c0.npy", 2, out=f / "PQ"[x], comm=t),
)
of_meshes(
    "edge_schedule edges",
    lambda t, f, x: outcore.unstructured.edge_schedule(
        f / f"e{x}.npy", nodes=8, out=f / "S", comm=t
    ),
)
of_meshes(
    "edge_schedule out",
    lambda t, f, x: outcore.unstructured.edge_schedule(
        f / "e0.npy", nodes=8, out=f / "ST"[x], comm=t
    ),
)
of_meshes("edge_loop edges", lambda t, f, x: edge_loop(t, f, edges=x))
of_meshes("edge_loop updates", lambda t, f, x: edge_loop(t, f, updates=x))
