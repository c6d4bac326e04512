"""The lane `irregular` of `bench`: its index lists, files, checks and rows, all tiny."""

import argparse
import time
from pathlib import Path

import numpy as np
import pytest

import outcore
from bench_modules import bench_modules

N = 1 << 21


@pytest.fixture(scope="module", autouse=True)
def bench():
    """The modules of `bench`, for these tests only."""
    with bench_modules():
        yield


def whole(n=N):
    from irregular.patterns import slabs

    return np.concatenate([slab.copy() for _, slab in slabs(n)])


def stored(folder, format, n=N):
    from irregular.files import Stored

    suffix = {"n": ".npy", "H": ".h5", "Z": ".zarr"}[format[0]]
    return Stored(format, folder / f"{format.replace(' ', '-')}{suffix}", n).make()


# ------------------------------------------------------------------------------------- index lists


def test_elements_differ_and_slabs_are_those_of_indices():
    from irregular.patterns import SLAB, values

    n = 2 * SLAB + 77
    everything = whole(n)
    assert len(np.unique(everything)) == n
    assert np.array_equal(values(np.arange(n)), everything)
    # What a scatter adds is exact, and another value.
    assert np.array_equal((everything + 15 / 16) - 15 / 16, everything)


@pytest.mark.parametrize("number", range(5))
def test_patterns_name_what_they_say(number):
    from irregular.patterns import KINDS, ROW, pattern

    one = pattern(KINDS[number], N, 5000)
    rows = one.kind == "rows of 4 kB"
    assert one.index.min() >= 0
    assert one.index.max() < N // (ROW if rows else 1)
    assert np.array_equal(one.where, np.unique(one.index))
    everything = whole().reshape(-1, ROW) if rows else whole()
    right = everything[one.key]
    assert one.nbytes == right.nbytes
    assert np.array_equal(one.value(), right)
    assert one.right(right)
    wrong = right.copy()
    wrong.reshape(-1)[-1] += 1
    assert not one.right(wrong)
    assert not one.right(right[:-1])
    assert not one.right(None)
    if one.kind == "sorted":
        assert (np.diff(one.key) >= 0).all()
    if one.kind == "clustered":
        assert (np.diff(one.key.reshape(-1, 1000)) == 1).all()
    if one.kind == "mask 10 %":
        assert 0.09 < one.key.mean() < 0.11


def test_requests_of_the_device_cover_what_is_wanted():
    from device import PAGE, Device, touched

    disk = Device(latency=1e-6, rate=PAGE * 1e6)  # a page costs as much to read as a request
    begin, end = touched(disk, np.array([0, 1, 511, 512 * 9, 512 * 9 + 511]), 8, 128)
    # 511 ends in the second page, 512 * 9 + 511 in the eleventh.
    assert begin.tolist() == [0, 9 * PAGE]
    assert end.tolist() == [2 * PAGE, 11 * PAGE]
    begin, end = touched(disk, np.arange(100_000), 8, 128)
    assert (begin[0], end[-1]) == (0, -(-800_128 // PAGE) * PAGE)
    assert (begin[1:] == end[:-1]).all()
    assert touched(disk, np.zeros(0, np.int64), 8, 128)[0].size == 0


# ------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("number", range(6))
def test_files_are_made_checked_and_restored(tmp_path, number):
    from irregular.files import FORMATS, flat
    from irregular.patterns import ROW

    format = FORMATS[number]
    one = stored(tmp_path, format)
    rows = format == "npy rows"
    nothing = np.zeros(0, np.int64)
    assert one.holds(nothing, 0.0)
    with outcore.open(one.path) as array:
        assert array.shape == ((N // ROW, ROW) if rows else (N,))
        assert np.array_equal(array[...].reshape(-1), whole())
    where = flat(np.array([0, 3, N // ROW - 1]), rows)
    one.spoiled()
    with outcore.open(one.path, "r+") as array:
        for at in np.array([0, 3, N // ROW - 1]):
            array[at] = array[at] + 0.5
    assert one.holds(where, 0.5)
    assert not one.holds(where, 0.25)
    assert not one.holds(where[:-1], 0.5)
    # A run that was ended here leaves no mark, and the file is made anew.
    assert not one._mark.exists()
    one.restore(where)
    assert one.holds(nothing, 0.0)
    assert one._mark.exists()


def test_a_file_without_its_mark_is_made_anew(tmp_path):
    one = stored(tmp_path, "npy")
    np.load(one.path, mmap_mode="r+")[5] = -1
    assert not one.make().holds(np.zeros(0, np.int64), 0.0)
    one.spoiled()
    assert one.make().holds(np.zeros(0, np.int64), 0.0)


def test_the_netcdf_file_of_pio_is_one(tmp_path):
    netcdf4 = pytest.importorskip("netCDF4")
    from irregular.patterns import slabs
    from peers import pio

    pio.create(tmp_path / "a.nc", 5000, slabs(5000))
    with netcdf4.Dataset(tmp_path / "a.nc") as file:
        assert file.data_model == "NETCDF3_64BIT_DATA"
        assert np.array_equal(file["v"][:], whole(5000))


# -------------------------------------------------------------------------------------------- rows


def timed(folder, kind="random", format="npy", *, write=False, cache="warm"):
    from irregular.patterns import pattern
    from irregular.timed import Timed

    wanted = pattern(kind, N, 3000)
    return Timed(stored(folder, format), wanted, write=write, cache=cache), wanted


def test_a_row_tells_who_is_right_wrong_and_late(tmp_path, monkeypatch):
    from irregular import timed as module

    monkeypatch.setattr(module, "LIMIT", 0.3)
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    row, wanted = timed(tmp_path)
    right = whole()[wanted.key]

    calls = {
        "right": lambda _: right,
        "wrong": lambda _: right + 1,
        "slow": lambda _: (time.sleep(0.15), right)[1],
    }
    some = [module.Candidate(n, lambda c=c: (c, lambda: None)) for n, c in calls.items()]
    late = lambda: ((lambda _: time.sleep(60)), lambda: None)  # noqa: E731
    some.append(module.Candidate("late", late, apart=True))
    swift = lambda: ((lambda _: right), lambda: None)  # noqa: E731
    some.append(module.Candidate("apart", swift, apart=True))
    odd = lambda: ((lambda _: right + 1), lambda: None)  # noqa: E731
    some.append(module.Candidate("apart and wrong", odd, apart=True))
    some.append(module.Candidate("device", odd, checked=False))
    found = row.run(some, 3)
    assert found.wrong == {"wrong", "apart and wrong"}
    assert found.extra["over"] == {"late": 0.3}
    counts = {name: len(seconds) for name, seconds in found.seconds.items()}
    assert counts == {"right": 3, "slow": 1, "apart": 3, "device": 3}
    from mpi_ranks import show

    line = show([found], ["right"], {}).splitlines()[2]
    assert "| wrong |" in line
    assert "| > 300 |" in line


def test_an_error_that_is_none_of_these_ends_the_run(tmp_path):
    from irregular.timed import Candidate

    row, _ = timed(tmp_path)
    broken = lambda: ((lambda _: [][1]), lambda: None)  # noqa: E731
    with pytest.raises(IndexError):
        row.run([Candidate("broken", broken)], 1)


def test_a_scatter_that_misses_an_element_is_wrong_and_the_file_is_restored_slow(tmp_path):
    from irregular.timed import Candidate

    row, wanted = timed(tmp_path, write=True)
    path = tmp_path / "npy.npy"

    def writer(key, drop=0, elsewhere=False):
        def opened():
            mapped = np.load(path, mmap_mode="r+")

            def put(value):
                mapped[key[drop:]] = value[drop:]
                if elsewhere:
                    mapped[N - 1] = 7.0

            return put, lambda: None

        return opened

    found = row.run(
        [
            Candidate("all", writer(wanted.key)),
            Candidate("all but one", writer(wanted.key, drop=1)),
            Candidate("one too many", writer(wanted.key, elsewhere=True)),
        ],
        2,
    )
    assert "all" not in found.wrong or wanted.where[-1] == N - 1
    assert {"all but one", "one too many"} <= found.wrong
    assert len(found.seconds["all"]) == 2


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder whose files several tests use: each leaves them as it found them."""
    return tmp_path_factory.mktemp("irregular")


@pytest.mark.parametrize(
    ("format", "kind", "op", "cache"),
    [
        *(("npy", kind, "read", "warm") for kind in ("random", "sorted", "clustered", "mask 10 %")),
        *(("npy", kind, "write", "warm") for kind in ("random", "mask 10 %")),
        *(("npy rows", "rows of 4 kB", op, "warm") for op in ("read", "write")),
        *((format, "random", "read", "cold") for format in ("npy", "HDF5 contiguous")),
        ("npy", "random", "write", "cold"),
        *(("HDF5 chunks", "random", op, "warm") for op in ("read", "write")),
        *(("Zarr zstd", "random", op, "warm") for op in ("read", "write")),
    ],
)
def test_every_candidate_is_right(made, format, kind, op, cache):
    from irregular.candidates import candidates, device

    write = op == "write"
    row, wanted = timed(made, kind, format, write=write, cache=cache)
    words = {"write": write, "cold": cache == "cold", "threads": [1, 2], "others": True}
    some = candidates(stored(made, format), wanted, **words)
    if cache == "cold" and not write:
        some.append(device(stored(made, format), wanted))
    found = row.run(some, 1)
    assert not found.wrong
    assert {*found.seconds, *found.extra["over"]} == {c.name for c in some}
    if write:
        assert stored(made, format).holds(np.zeros(0, np.int64), 0.0)


@pytest.mark.parametrize(("op", "cache"), [("read", "warm"), ("read", "cold"), ("write", "warm")])
def test_many_fields(made, op, cache):
    from irregular import fields

    options = argparse.Namespace(threads=[2], repeat=2, others=True, without=[])
    found = fields.row(made, N // 32, 2000, op, cache, options)
    assert not found.wrong
    names = {"outcore schedule", "outcore each", "memmap", "memmap sorted"}
    assert set(found.seconds) == (names - {"memmap"} if cache == "cold" else names)
    assert found.nbytes == 8 * 20 * 2000
    # Each field has its own elements, also after a scatter.
    for number, field in enumerate(fields.make(made, N // 32)):
        assert np.array_equal(np.load(field.path), whole(N // 32) + number / 65536)


def test_a_field_that_was_left_out_shows_slow(made, monkeypatch):
    from irregular import fields

    def all_but_one(self, value):
        fields._Mapped.put_plain(self, value)
        self._mapped[7][self._index[0]] = 0

    monkeypatch.setitem(fields._SCATTER, "memmap", all_but_one)
    options = argparse.Namespace(threads=[2], repeat=1, others=True, without=["outcore each"])
    found = fields.row(made, N // 32, 2000, "write", "warm", options)
    assert found.wrong == {"memmap"}


# ------------------------------------------------------------------------------------------ ranks


def alone(folder, op):
    """The program of a rank that is the only one, and its file."""
    from types import SimpleNamespace

    from irregular import many_ranks

    paths = many_ranks.files(folder, N)
    ranks = SimpleNamespace(
        comm=SimpleNamespace(rank=0, size=1),
        node_barrier=SimpleNamespace(barrier=lambda: None),
        by_one=lambda work: work(),
        mpi=None,
    )
    return many_ranks.Permuted(ranks, {"op": op, "n": N, "files": paths})


def test_a_rank_reads_a_permutation(tmp_path):
    of = alone(tmp_path, "read")
    assert len(np.unique(of._index)) == N
    of.begin(["memmap", "PIO"])
    assert of.path("memmap") == of._base
    call, close = of.memmap("memmap")
    of.spoil()
    assert not of.check("memmap")
    call()
    close()
    assert of.check("memmap")
    # The file of PIO has the same elements, big-endian, behind its header.
    path = of.path("PIO")
    there = np.memmap(path, ">f8", "r", path.stat().st_size - 8 * N, (N,))
    assert np.array_equal(there, whole())


def test_a_rank_writes_a_permutation_to_a_file_of_its_own(tmp_path):
    of = alone(tmp_path, "write")
    of.begin(["memmap"])
    path = of.path("memmap")
    assert path != of._base
    for _ in range(2):  # each run writes other values
        of.spoil()
        call, close = of.memmap("memmap")
        before = np.load(path)
        call()
        close()
        assert of.check("memmap")
        assert not (before == np.load(path)).any()
    np.load(path, mmap_mode="r+")[N // 2] += 1
    assert not of.holds("memmap")
    assert np.array_equal(np.load(of._base), whole())


# ------------------------------------------------------------------------------------------ the case


def asked(folder, **words):
    usual = {
        **{"folder": folder, "size": "quick", "cache": ["warm", "cold"], "op": ["read", "write"]},
        **{"threads": [1, 2], "others": True, "only": None, "repeat": 1, "without": []},
        **{"results": folder, "ranks": [2], "library": ["openmpi"], "pio": None},
    }
    return argparse.Namespace(**{**usual, **words})


def test_jobs_are_chosen():
    from cases import irregular

    everything = irregular.jobs(asked(Path()))
    assert len(everything) == len(set(everything)) == 37
    assert {job.format for job in everything} >= {"npy", "npy rows", "Zarr zstd", "HDF5 chunks"}
    assert all(not job.write for job in irregular.jobs(asked(Path(), op=["read"])))
    some = irregular.jobs(asked(Path(), only=["scatter random, warm"]))
    assert {job.format for job in some} == {
        "npy",
        *(j.format for j in everything if "5" in j.format),
    } | {
        "Zarr",
        "Zarr zstd",
    }


def test_tables_are_printed_slow(tmp_path, capsys, monkeypatch):
    from cases import irregular

    monkeypatch.setitem(irregular.ELEMENTS, "quick", N)
    irregular.run(asked(tmp_path, only=["npy: gather sorted", "fields, warm", "schedule made"]))
    said = capsys.readouterr().out
    assert "| npy: gather sorted, cold | 0.3 |" in said
    assert "| / best peer | / device |" in said
    assert "20 fields, one index list: gather random, warm" in said
    assert "argsort" in said
    assert "Zarr" not in said
    assert "wrong" not in said
    assert "fields, one index list: scatter random, warm" in said
    assert "M indices/s" in said
    assert (tmp_path / "irregular.jsonl").read_text().count("\n") == 8
