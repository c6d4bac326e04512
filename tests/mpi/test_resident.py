"""Disk resident arrays: sections go between them and memory, also while nobody waits; nothing stays."""

import errno
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import outcore
import outcore.arrays.opening
from mpi.collective_cases import METHODS
from mpi.distribution_cases import random_distribution, random_shape, widths_of
from mpi.test_collective import NODES
from mpi.test_faults_of_calls import Core, steps_of_core, struck_at_every_step
from outcore import _core
from outcore.compute import jobs
from outcore.compute.jobs import leftovers
from outcore.errors import CollectiveError, OutcoreError, StorageError, UsageError
from outcore.mpi import DistArray, Distribution
from outcore.ranks.resident import making, movement, naming, temporary
from ranks import UNDER_MPI, once, ranks

__all__ = ["steps_of_core"]

FILES = [
    ("d", {"typical_sections": True}),
    ("d.npy", {}),
    ("d.npy", {"order": "F"}),
    ("d.h5::/x", {}),
    ("d.h5::/x", {"chunks": 4, "compression": "gzip"}),
    ("d.zarr", {"typical_sections": True}),
    ("d.zarr", {"chunks": 3, "compression": "zstd"}),
]
DTYPES = ["f8", "f4", "i2", ">i4", "c8"]
HOW_MANY = 12 if UNDER_MPI else 7


def random_key(rng, shape):
    """A key of basic indexing that may be anything, but seldom chooses nothing."""
    key = []
    for n in shape:
        while rng.random() < 0.1:
            key.append(None)
        kind = rng.random()
        if kind < 0.15 and n:
            key.append(rng.randrange(-n, n))
        elif kind < 0.3:
            key.append(slice(None))
        else:
            ends = sorted(rng.randrange(n + 1) for _ in range(2))
            step = rng.choice([1, 1, 1, 2, 3, -1, -2])
            if step < 0:
                low, high = ends
                key.append(slice(high, low - 1 if low else None, step))
            else:
                key.append(slice(*ends, step))
    return tuple(key)


def placed(rng, lengths):
    """A shape, and a key of it whose section has these lengths."""
    shape, key = [], []
    for n in lengths:
        while rng.random() < 0.15:
            shape.append(rng.randint(1, 4))
            key.append(rng.randrange(-shape[-1], shape[-1]))
        if n == 1 and rng.random() < 0.3:
            key.append(None)
            continue
        step, before = rng.choice([1, 1, 2, 3]), rng.choice([0, 0, 1, 5])
        span = (n - 1) * step + 1 if n else 0
        shape.append(before + span + rng.choice([0, 0, 1, 4]))
        if n and rng.random() < 0.3:
            last = before + span - 1
            key.append(slice(last, before - 1 if before else None, -step))
        else:
            key.append(slice(before, before + span, step))
    return tuple(shape), tuple(key)


class Case:
    """A section of memory and one of a disk, one transposed, whatever they are."""

    def __init__(self, seed, size):
        rng = random.Random(seed)
        self.form = random_distribution(rng, random_shape(rng), size, one_piece=rng.random() < 0.3)
        self.widths = widths_of(rng, self.form)
        self.shape = tuple(self.form.shape)
        self.key = random_key(rng, self.shape)
        self.write = rng.random() < 0.5
        lengths = np.broadcast_to(np.int8(0), self.shape)[self.key].shape
        axes = rng.sample(range(len(lengths)), len(lengths))
        self.transpose = rng.choice([False, True, axes, [a - len(axes) for a in axes]])
        order = {False: list(range(len(lengths))), True: list(range(len(lengths)))[::-1]}.get(
            self.transpose if isinstance(self.transpose, bool) else None, axes
        )
        self.order = order
        if self.write:
            there = [lengths[a] for a in order]
        else:
            there = [lengths[order.index(a)] for a in range(len(order))]
        self.disk_shape, self.disk_key = placed(rng, there)
        self.dtype = rng.choice(DTYPES)
        self.disk_dtype = self.dtype if rng.random() < 0.6 else rng.choice(DTYPES[:4])
        if self.dtype == "c8":
            self.disk_dtype = "c8"
        self.name, options = rng.choice(FILES)
        self.options = dict(options)
        if self.options.pop("typical_sections", None):
            self.options["typical_sections"] = tuple(max(1, n // 2) for n in self.disk_shape)
        if not self.disk_shape or 0 in self.disk_shape:  # HDF5 makes no chunks of these
            self.options = {}
        self.method = rng.choice(METHODS)
        self.ghosts = not self.write and rng.random() < 0.4
        self.on_disk = self.numbers(self.disk_shape, self.disk_dtype, 100)
        self.there = self.numbers(self.shape, self.dtype, 0)
        self.expected_disk, self.expected = self.on_disk.copy(), self.there.copy()
        if self.write:
            self.expected_disk[self.disk_key] = self.there[self.key].transpose(order)
        else:
            self.expected[self.key] = self.on_disk[self.disk_key].transpose(order)

    @staticmethod
    def numbers(shape, dtype, first):
        return ((np.arange(int(np.prod(shape))) + first) % 30_000).reshape(shape).astype(dtype)

    def __str__(self):
        way = "written" if self.write else "read"
        return (
            f"{way}: memory {self.shape} {self.dtype} {self.form.make()} ghosts {self.widths} "
            f"{self.key}, transpose {self.transpose}, disk {self.disk_shape} {self.disk_dtype} "
            f"{self.disk_key}, {self.name} {self.options}, {self.method}, ghosts {self.ghosts}"
        )

    def memory(self, t):
        """The array in memory; ghosts are wrong on purpose."""
        made = DistArray.zeros(self.form.make(), self.dtype, transport=t, ghosts=self.widths)
        made.local[...] = 99
        for section, view in made.pieces():
            view[...] = self.there[section]
        return made

    def disk(self, t, folder):
        made = outcore.mpi.disk_array(
            folder / self.name, self.disk_shape, self.disk_dtype, comm=t, **self.options
        )
        once(t, lambda: made.array.write(..., self.on_disk))
        return made

    def start(self, d, a):
        words = {"transpose": self.transpose, "method": self.method}
        if self.write:
            return d.iwrite_section(self.disk_key, a, self.key, **words)
        return d.iread_section(self.disk_key, a, self.key, ghosts=self.ghosts, **words)

    def check(self, d, a):
        np.testing.assert_array_equal(
            self.expected_disk, d.array.read_all(method="direct"), err_msg=str(self)
        )
        touched = np.zeros(self.shape, bool)
        touched[self.key] = not self.write
        wanted = self.memory(a.transport)
        for section, view in wanted.pieces(ghosts=self.ghosts):
            view[touched[section]] = self.expected[section][touched[section]]
        np.testing.assert_array_equal(wanted.local, a.local, err_msg=str(self))


@pytest.mark.parametrize("block", range(4))
@ranks(1, 2, 3, 5, 8, per_node=NODES)
def test_random_sections_equal_numpy(world, folder, block, agree_on):
    """Any distribution, format, key, permutation and dtype; several in flight at once."""
    cases = [
        Case(1000 * block + 10 * number + world.size, world.size) for number in range(HOW_MANY)
    ]
    rng = random.Random(block)
    agree_on(slot=rng.choice([2000, 1 << 20]), least=rng.choice([1, 500]))

    def body(t):
        once(t, lambda: [(folder / str(n)).mkdir() for n in range(len(cases))])
        moving = []
        for number, case in enumerate(cases):
            d, a = case.disk(t, folder / str(number)), case.memory(t)
            moving.append((case.start(d, a), case, d, a))
        for number in random.Random(t.rank).sample(range(len(cases)), len(cases)):
            assert moving[number][0].wait() is None
            assert moving[number][0].test()
        for _, case, d, a in moving:
            case.check(d, a)
            d.close()

    world.run(body)


DATA = np.arange(48 * 40.0).reshape(48, 40)


def columns(t, data=DATA, dtype="f8", ghosts=0):
    form = Distribution(data.shape, ["*", "block"], t.size)
    made = DistArray.zeros(form, dtype, transport=t, ghosts=ghosts)
    for section, view in made.pieces():
        view[...] = data[section]
    return made


@ranks(1, 2, 4, per_node=NODES)
def test_whole_arrays_come_back_transposed(world, folder):
    def body(t):
        a = columns(t)
        with outcore.mpi.disk_array(folder / "d", DATA.T.shape, "f4", comm=t) as d:
            d.iwrite(a, transpose=True).wait()
            np.testing.assert_array_equal(DATA.T, d.array.read_all())
            back, turned = columns(t, 0 * DATA), columns(t, 0 * DATA.T)
            requests = d.iread(back, transpose=(1, 0)), d.iread(turned)
            for request in requests:
                request.wait()
            np.testing.assert_array_equal(DATA, back.gather_all())
            d.write(turned)
            d.read(turned)
            np.testing.assert_array_equal(DATA.T, turned.gather_all())

    world.run(body)


@ranks(1, 2, 4)
def test_requests_end_while_nobody_asks(world, folder):
    """Ranks compute, call nothing of outcore, and the requests end nevertheless."""

    def body(t):
        a = columns(t)
        hints = {"cache": "bypass"}
        with outcore.mpi.disk_array(
            folder / "d.zarr", DATA.shape, "f8", chunks=(7, 9), comm=t, hints=hints
        ) as d:
            written = d.iwrite_section(..., a, method="two-phase")
            parts = [columns(t, 0 * DATA) for _ in range(3)]
            reads = [d.iread_section(..., part) for part in parts]
            until = time.monotonic() + 60
            while not reads[-1].test():
                assert time.monotonic() < until
                np.linalg.norm(DATA)
            assert written.test()
            for read, part in zip(reads, parts, strict=True):
                read.wait()
                np.testing.assert_array_equal(a.local, part.local)

    world.run(body)


@ranks(2, 3, 4, per_node=NODES)
def test_ranks_that_mean_different_sections_all_raise(world, folder):
    def body(t):
        a = columns(t)
        with outcore.mpi.disk_array(folder / "d.npy", DATA.shape, "f8", comm=t) as d:
            last = t.rank == t.size - 1
            with pytest.raises(CollectiveError, match="write_section") as raised:
                d.write_section(np.s_[: 8 + 8 * last], a, np.s_[: 8 + 8 * last])
            assert raised.value.code == "mismatched-call"
            call = (lambda: d.array.read_all(np.s_[:0])) if last else lambda: d.read(a)
            with pytest.raises(CollectiveError) as raised:
                call()
            assert raised.value.code == "mismatched-call"
            with pytest.raises((CollectiveError, UsageError), match="same shape") as raised:
                d.read_section(np.s_[:5], a, np.s_[:4])
            assert (raised.value.__cause__ or raised.value).code == "shapes-differ"
            with pytest.raises((CollectiveError, UsageError), match="DistArray"):
                d.read_section(np.s_[:5], np.zeros((5, 40)))
            np.testing.assert_array_equal(0 * DATA, d.array.read_all())

    world.run(body)


@pytest.mark.parametrize("error", ["EIO", "interrupt"])
@ranks(1, 4)
def test_movements_fail_on_all_ranks(world, folder, steps_of_core, error):
    """Every call of the core fails once on one rank, plain, through owners, and with a cast."""

    def body(t):
        a, b = columns(t), columns(t, dtype="i4")
        made = [
            outcore.mpi.disk_array(folder / name, DATA.shape, "f8", comm=t, **options)
            for name, options in (("d.npy", {}), ("d.zarr", {"chunks": (16, 16)}))
        ]
        for d in made:
            d.write(a)
            core = d.array.handle.core
            for method in ("direct", "two-phase"):
                for partner in (a, b):
                    calls = [
                        lambda d=d, p=partner, m=method: d.write(p, method=m),
                        lambda d=d, p=partner, m=method: d.read_section(
                            np.s_[:40], p, np.s_[8:], method=m
                        ),
                        lambda d=d, p=partner, m=method: d.iread(p, method=m).wait(),
                    ]
                    for call in calls:

                        def arm(bomb, d=d, core=core):
                            d.array.handle.core = Core(core, bomb)

                        def disarm(d=d, core=core):
                            d.array.handle.core = core

                        found = struck_at_every_step(
                            t, arm, disarm, call, error, t.size - 1, sparse=True
                        )
                        assert t.agree(found) >= 2
            for section, view in a.pieces():
                view[...] = DATA[section]
            d.write(a)
            np.testing.assert_array_equal(DATA, d.array.read_all())
            d.close()

    world.run(body, timeout=120)


STEPS = [
    (making.layouts, "choose", 0),
    (making.TemporaryClaim, "make", 0),
    (making.TemporaryClaim, "join", -1),
    (outcore.arrays.opening, "create", 0),
    (outcore.formats, "open_info", -1),
]


@pytest.mark.parametrize("step", range(len(STEPS)))
@ranks(1, 4)
def test_an_array_that_cannot_be_made_is_made_on_no_rank(world, folder, step, monkeypatch):
    """Each step of making a temporary array fails on one rank: all raise, and no file stays."""
    where, name, victim = STEPS[step]
    plain = getattr(where, name)
    here = {}

    def fails(*args, **words):
        if here.get(threading.get_ident()):
            raise OSError(errno.EIO, "input/output error")
        return plain(*args, **words)

    if world.size == 1 and name in ("join", "open_info"):
        pytest.skip("one process does not do this")

    def body(t):
        here[threading.get_ident()] = t.rank == victim % t.size
        with pytest.raises((CollectiveError, OSError)):
            outcore.mpi.disk_array(folder / "d", (40, 40), keep=False, dtype="f8", comm=t)
        here[threading.get_ident()] = False
        t.barrier()
        assert os.listdir(folder) == []
        t.barrier()
        with outcore.mpi.disk_array(folder / "d", (40, 40), keep=False, dtype="f8", comm=t) as d:
            assert d.temporary

    with monkeypatch.context() as patch:
        patch.setattr(where, name, fails)
        world.run(body)


@pytest.mark.parametrize("name", ["d", "d.zarr", "d.h5::/x"])
@ranks(1, 2, 4)
def test_temporary_arrays_go_with_the_last_rank(world, folder, name):
    def body(t):
        words = {"typical_sections": (8, 40), "keep": False, "comm": t}
        d, e = (outcore.mpi.disk_array(folder / name, DATA.shape, "f8", **words) for _ in range(2))
        for one in (d, e):
            one.write(columns(t))
        t.barrier()
        if t.rank != t.size - 1:
            d.close()
        t.barrier()
        if t.rank == t.size - 1:
            np.testing.assert_array_equal(DATA, d.array[...])
            d.close()
        t.barrier()
        assert len({n.split(".")[1] for n in os.listdir(folder)}) == 1
        e.close()
        t.barrier()
        assert os.listdir(folder) == []

    world.run(body)


def test_a_temporary_array_that_nobody_has_any_more_is_gone(tmp_path):
    d = outcore.mpi.disk_array("d", (30, 30), "f8", keep=False, folders=tmp_path)
    request = d.iwrite(np.ones((30, 30)))
    assert len(os.listdir(tmp_path)) == 2
    request.wait()
    del d
    gc.collect()
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
import numpy as np, outcore
name, folder = "d" + sys.argv[2], sys.argv[1]
d = outcore.mpi.disk_array(name, (50, 50), "f8", keep=False, folders=folder, typical_sections=(5, 50))
d.write(np.ones((50, 50)))
print("made", flush=True)
if len(sys.argv) > 3:
    sys.stdin.read()
else:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("suffix", ["", ".zarr"])
def test_files_of_killed_processes_go_with_the_next_creation(tmp_path, suffix):
    words = [sys.executable, "-c", KILLED, tmp_path, suffix]
    lives = subprocess.Popen(
        [*words, "lives"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert lives.stdout.readline() == "made\n"
        alive = set(os.listdir(tmp_path))
        assert len(alive) == 2
        killed = subprocess.run(words, check=False, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        left = set(os.listdir(tmp_path)) - alive
        assert len(left) == 2
        assert len(list(temporary.find_left_over(str(tmp_path)))) == 1
        with outcore.mpi.disk_array("e", (5, 5), "f8", keep=False, folders=tmp_path):
            assert set(os.listdir(tmp_path)) & left == set()
            assert alive <= set(os.listdir(tmp_path))
    finally:
        lives.communicate("")
    assert lives.returncode == 0
    assert os.listdir(tmp_path) == []


def test_unfinished_files_of_killed_processes_are_removed(tmp_path):
    hold = temporary.TemporaryClaim.make(str(tmp_path))
    begun = _core.temporary_name(hold.get_path(".npy"), "0123456789ab")
    for path in (begun, hold.get_path(".npy")):
        open(path, "w").close()
    os.close(hold._fd)  # as the system does when a process is killed
    temporary.sweep(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_files_of_killed_processes_are_listed_and_cleaned(tmp_path):
    words = [sys.executable, "-c", KILLED, tmp_path, ".zarr"]
    subprocess.run(words, check=False, capture_output=True)
    (tmp_path / "other").mkdir()
    with outcore.mpi.disk_array("e", (5, 5), "f8", keep=False, folders=tmp_path / "other"):
        (left,) = jobs.unfinished(tmp_path)
        assert (left.state, left.operation) == ("left", leftovers.SCRATCH)
        jobs.clean(left)
        assert os.listdir(tmp_path) == ["other"]
        assert jobs.unfinished(tmp_path / "other") == []


def test_a_lock_file_that_is_swept_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    shares, made = temporary._lock_shared, []

    def slowly(fd):
        if not made:
            made.append(sorted(os.listdir(tmp_path)))
            temporary.sweep(str(tmp_path))
            assert os.listdir(tmp_path) == []
        shares(fd)

    monkeypatch.setattr(temporary, "_lock_shared", slowly)
    hold = temporary.TemporaryClaim.make(str(tmp_path))
    assert made[0] != sorted(os.listdir(tmp_path)) != []
    hold.release()
    assert os.listdir(tmp_path) == []


def test_a_forked_child_keeps_and_removes_nothing(tmp_path):
    d = outcore.mpi.disk_array("d", (5, 5), "f8", keep=False, folders=tmp_path)
    child = os.fork()
    if child == 0:
        d.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(os.listdir(tmp_path)) == 2
    d.close()
    assert os.listdir(tmp_path) == []


@ranks(1, 2, 4)
def test_names_change_and_arrays_go(world, folder):
    def body(t):
        a = columns(t)
        d = outcore.mpi.disk_array(folder / "one", DATA.shape, "f8", comm=t)
        d.write(a)
        d.rename(folder / "two")
        assert d.path == str(folder / "two.npy")
        t.barrier()
        assert sorted(os.listdir(folder)) == ["two.npy"]
        t.barrier()
        once(t, lambda: (folder / "three.npy").write_bytes(b"somebody else's"))
        with pytest.raises((CollectiveError, StorageError)):
            d.rename(folder / "three")
        # It has its old name, and goes on.
        assert d.path == str(folder / "two.npy")
        d.read(a)
        with pytest.raises((CollectiveError, UsageError), match="suffix"):
            d.rename(folder / "three.zarr")
        d.rename(folder / "three", overwrite=True)
        d.write(a)
        d.close()
        t.barrier()
        np.testing.assert_array_equal(DATA, np.load(folder / "three.npy"))
        t.barrier()
        kept = outcore.mpi.disk_array(folder / "t.zarr", DATA.shape, "f8", keep=False, comm=t)
        kept.write(a)
        kept.rename(folder / "kept")
        assert not kept.temporary
        kept.close()
        t.barrier()
        assert sorted(os.listdir(folder)) == ["kept.zarr", "three.npy"]
        for name in ("kept.zarr", "three.npy"):
            again = outcore.mpi.disk_array(folder / name, comm=t)
            np.testing.assert_array_equal(DATA, again.array.read_all())
            again.delete()
            assert again.closed
        t.barrier()
        assert os.listdir(folder) == []

    world.run(body)


@ranks(2, 3)
def test_ranks_that_mean_different_names_all_raise_and_no_file_moves(world, folder):
    def body(t):
        last = t.rank == t.size - 1
        with outcore.mpi.disk_array(folder / "one", DATA.shape, "f8", comm=t) as d:
            with pytest.raises(CollectiveError, match="rename") as raised:
                d.rename(folder / ("two" if last else "three"))
            assert raised.value.code == "mismatched-call"
            with pytest.raises(CollectiveError, match="suffix"):
                d.rename(folder / ("two.zarr" if last else "two"))
            with pytest.raises(CollectiveError, match="rename") as raised:
                d.rename(folder / "two", overwrite=last)
            assert raised.value.code == "mismatched-call"
            t.barrier()
            assert os.listdir(folder) == ["one.npy"]
            d.write(columns(t))

    world.run(body)


@ranks(1, 3)
def test_named_arrays_are_flushed_before_the_rename(world, folder, monkeypatch):
    done = []
    for where, name in ((outcore.DiskArray, "flush"), (outcore.mpi.CollectiveArray, "flush_all")):
        plain = getattr(where, name)

        def noted(self, *, plain=plain):
            plain(self)
            done.append("flushed")

        monkeypatch.setattr(where, name, noted)
    moved = naming.durable.move_into_place

    def moves(*args, **words):
        done.append("moved")
        moved(*args, **words)

    monkeypatch.setattr(naming.durable, "move_into_place", moves)

    def body(t):
        d = outcore.mpi.disk_array(folder / "one", DATA.shape, "f8", comm=t)
        d.iwrite(columns(t))
        d.rename(folder / "two")
        d.close()

    world.run(body)
    if not UNDER_MPI:
        assert done[-1] == "moved" and done.count("flushed") == world.size


@ranks(2, 4)
def test_of_copies_that_of_the_owner_is_written(world, folder):
    def body(t):
        grid = outcore.mpi.ProcessGrid((t.size,))
        form = Distribution.replicated(DATA.shape, grid)
        a = DistArray.zeros(form, "f8", transport=t)
        a.local[...] = DATA if t.rank == 0 else -1
        with outcore.mpi.disk_array(folder / "d.npy", DATA.shape, "f8", comm=t) as d:
            d.write_section(np.s_[::-1], a, np.s_[::-1])
            np.testing.assert_array_equal(DATA, d.array.read_all())
            d.read(a)
            np.testing.assert_array_equal(DATA, a.local)

    world.run(body)


@ranks(1, 2, 4)
def test_an_array_lies_over_several_folders(world, folder):
    def body(t):
        where = [folder / name for name in "abc"]
        once(t, lambda: [one.mkdir() for one in where])
        a = columns(t)
        d = outcore.mpi.disk_array(
            "d", DATA.shape, "f8", folders=where, typical_sections=(8, None), comm=t
        )
        assert (d.layout.format, d.layout.chunks) == ("parts", None)
        d.write_section(np.s_[::-1], a, np.s_[::-1])
        t.barrier()
        found = [np.load(next(one.glob("*.npy"))) for one in where]
        np.testing.assert_array_equal(DATA, np.concatenate(found))
        d.rename(where[0] / "e")
        with outcore.mpi.disk_array("e", folders=where, comm=t) as again:
            again.read(a)
            np.testing.assert_array_equal(DATA, a.gather_all())
        d.delete()
        t.barrier()
        assert not any(os.listdir(one) for one in where)

    world.run(body)


def test_the_other_arrays_of_a_file_stay(tmp_path):
    path = tmp_path / "a.h5"
    d = outcore.mpi.disk_array(f"{path}::/x", (4, 4), "f8")
    outcore.create(f"{path}::/y", data=np.ones(3)).close()
    with pytest.raises(OutcoreError, match="2 arrays"):
        d.rename(f"{tmp_path}/b.h5::/x")
    assert d.path.endswith("a.h5::/x")
    with pytest.raises(OutcoreError, match="2 arrays"):
        d.delete()
    assert outcore.open(f"{path}::/y")[0] == 1


@pytest.mark.parametrize("write", [False, True])
def test_casts_stay_in_the_budget(tmp_path, write):
    """64 MiB are cast in 16 MiB, besides the caller's array."""
    before = outcore.memory()
    big = np.zeros((2048, 4096), "f4")
    d = outcore.mpi.disk_array("d.npy", big.shape, "f8", folders=tmp_path)
    try:
        outcore.memory("16MiB")
        _core.reset_memory_peak()
        for transpose in (False, True):
            partner = np.ascontiguousarray(big.T) if transpose else big
            if write:
                partner[...] = 1 + transpose
                d.write(partner, transpose=transpose)
            else:
                d.read(partner, transpose=transpose)
        assert _core.memory_state()[2] <= 16 << 20
        assert _core.memory_state()[2] >= 1 << 20
        assert float(np.load(d.path, mmap_mode="r")[2047, 4095]) == 2 * write
    finally:
        outcore.memory(before)
        d.close()


@ranks(2, 4, per_node=NODES)
def test_all_ranks_make_the_passes_of_the_one_that_needs_most(world, folder, monkeypatch):
    monkeypatch.setattr(movement, "_LARGEST", 1000)

    def body(t):
        # The first rank has nearly all, the last one nothing.
        lengths = [40 - (t.size - 2)] + [1] * (t.size - 2) + [0]
        form = Distribution(DATA.shape, ["*", ("general", lengths)], t.size)
        a = DistArray.from_function(lambda i, j: 40 * i + j, form, "f4", transport=t)
        with outcore.mpi.disk_array(folder / "d.zarr", DATA.shape, "f8", chunks=8, comm=t) as d:
            d.write(a)
            np.testing.assert_array_equal(DATA, d.array.read_all())
            a.local[...] = 0
            d.read(a)
            np.testing.assert_array_equal(DATA, a.gather_all())

    world.run(body)


@pytest.mark.parametrize("name", ["d.npy", "d.zarr", "d.h5::/x"])
def test_persistent_arrays_are_read_by_their_own_libraries(tmp_path, name):
    with outcore.mpi.disk_array(
        name, DATA.shape, "f8", typical_sections=(12, 10), folders=tmp_path
    ) as d:
        d.write(DATA)
    if name == "d.npy":
        found = np.load(tmp_path / name)
    elif name == "d.zarr":
        zarr = pytest.importorskip("zarr")
        found = zarr.open_array(tmp_path / name, mode="r")[...]
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "d.h5") as file:
            found = file["x"][...]
    np.testing.assert_array_equal(DATA, found)


def test_the_layout_follows_from_what_is_typical_and_is_explained(tmp_path):
    def made(typical, name="d", **options):
        options |= {"typical_sections": typical, "keep": False, "folders": tmp_path}
        with outcore.mpi.disk_array(name, (8192, 8192), "f8", **options) as d:
            return d.layout, os.path.splitext(d.path)[1]

    rows, suffix = made((64, None))
    assert (rows.order, rows.chunks, suffix) == ("C", None, ".npy")
    turned, suffix = made((-1, 64))
    assert (turned.order, turned.chunks, suffix) == ("F", None, ".npy")
    both, suffix = made({(64, None): 1, (None, 64): 20})
    assert suffix == ".zarr"
    assert all(64 % edge == 0 or edge % 64 == 0 for edge in both.chunks)
    assert "8192x64, 20 times" in str(both)
    assert "plain C order" in str(both)
    assert both.candidates[0].ns < min(c.ns for c in both.candidates[1:])
    assert both.largest_chunk >= 8 * np.prod(both.chunks)
    blocks, _ = made([(512, 512)], "d.h5::/x")
    assert blocks.chunks is not None and not any(512 % edge for edge in blocks.chunks)
    asked, _ = made((64, None), chunks=(100, 100))
    assert (asked.chunks, asked.candidates) == ((100, 100), ())
    assert "asked for" in str(asked)
    nothing, suffix = made(None)
    assert (nothing.order, nothing.chunks, suffix) == ("C", None, ".npy")


def test_sections_that_are_not_aligned_say_what_they_touch(tmp_path):
    d = outcore.mpi.disk_array("d.zarr", (100, 100), "f8", chunks=(20, 50), folders=tmp_path)
    memory = np.zeros((50, 50))
    report = d.explain(np.s_[10:60, :50], memory)
    # Rows 0 to 60 of 50 columns.
    assert (report.section_bytes, report.aligned_bytes) == (20_000, 24_000)
    assert not report.aligned and "1.20 times as much" in str(report)
    assert report.access.wanted_bytes == 20_000
    assert d.explain(np.s_[80:, 50:], memory[:20], write=True).aligned
    plain = outcore.mpi.disk_array("d.npy", (100, 100), "f8", folders=tmp_path)
    assert plain.explain(np.s_[1:3, 5], memory[0, :2]).aligned


def test_words_that_mean_nothing_say_what_to_do(tmp_path):
    def raises(code, **words):
        with pytest.raises(OutcoreError) as raised:
            outcore.mpi.disk_array(
                **{"name": tmp_path / "d", "shape": (4, 6), "dtype": "f8", **words}
            )
        assert raised.value.code == code, raised.value
        assert os.listdir(tmp_path) == []

    raises("bad-typical", typical_sections=(4,))
    raises("bad-typical", typical_sections=(0, 6))
    raises("bad-typical", typical_sections={(4, 6): 0})
    raises("bad-typical", typical_sections=[(4, 6), (1, 2, 3)])
    raises("one-folder", folders=[tmp_path, tmp_path], name="d", keep=False)
    # Several folders take parts; every other format was replaced in silence.
    for suffix in (".npy", ".zarr", ".h5", ".nc", ".raw"):
        raises("one-folder", folders=[tmp_path, tmp_path], name=f"d{suffix}")
    for format in ("npy", "zarr", "zarr2", "hdf5", "netcdf4", "netcdf3_classic", "raw"):
        for name in ("d", "d.parts"):
            raises("one-folder", folders=[tmp_path, tmp_path], name=name, format=format)
    raises("unknown-format", folders=[tmp_path, tmp_path], name="d.what")
    raises("missing-argument", dtype=None)
    raises("missing-argument", shape=None, keep=False)
    raises("not-found", shape=None)
    raises("not-found", folders=tmp_path / "none", name="d")
    raises("unknown-option", data=np.zeros((4, 6)))
    raises("unknown-format", name=tmp_path / "d.what")
    raises("object-dtype", dtype=object)
    d = outcore.mpi.disk_array(tmp_path / "d", (4, 6), "f8")
    for transpose in ((0,), (0, 0), (0, 2), "x", 3.5):
        with pytest.raises(UsageError) as raised:
            d.read(np.zeros((4, 6)), transpose=transpose)
        assert raised.value.code == "bad-axis"
    with pytest.raises(UsageError) as raised:
        d.write(3.5)
    assert raised.value.code == "bad-partner"
    with pytest.raises(OutcoreError):
        d.read_section(np.s_[[0, 1]], np.zeros((2, 6)))
    d.close()
    with pytest.raises(UsageError) as raised:
        d.read(np.zeros((4, 6)))
    assert raised.value.code == "closed"
    outcore.create(tmp_path / "d.zarr", (4, 6), "f8").close()
    with pytest.raises(UsageError, match="with its suffix"):
        outcore.mpi.disk_array(tmp_path / "d")
    with pytest.raises(OutcoreError) as raised:
        outcore.mpi.disk_array(tmp_path / "d", (4, 6), "f8")
    assert raised.value.code == "already-exists"


def test_parts_are_cut_in_the_order_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(movement, "_LARGEST", 8 * 77)
    for order in "CF":
        d = outcore.mpi.disk_array(
            "d.npy", (9, 11, 7), "f8", folders=tmp_path, order=order, overwrite=True
        )
        data = np.arange(9 * 11 * 7, dtype="i4").reshape(9, 11, 7)
        d.write(data)
        np.testing.assert_array_equal(data, d.array[...])
        got = np.zeros((7, 11, 9), "f4")
        d.read(got, transpose=True)
        np.testing.assert_array_equal(data.T, got)
        d.close()
