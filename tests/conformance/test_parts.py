"""Arrays in parts: NumPy reads each, outcore all; what is missing, short or foreign is named; kills."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import killed
import outcore
from outcore import formats
from outcore.cli import main as command
from outcore.compute import jobs
from outcore.formats import whole
from outcore.formats.parts import manifest as part_manifest
from outcore.testing.sim import SimWorld

DTYPES = ("f8", ">i2", "?", "S3", "c16", [("a", "i2"), ("b", "f4", (2,))], "M8[ms]")


def random_case(seed, folder):
    """An array, and how it is laid out."""
    chance = random.Random(seed)
    shape = tuple(chance.choice((0, 1, 2, 5, 9, 16)) for _ in range(chance.randint(0, 3)))
    data = np.zeros(shape, chance.choice(DTYPES))
    raw = np.random.default_rng(seed).integers(0, 100, shape)
    if data.dtype.names:
        data["a"], data["b"] = raw, np.repeat(raw[..., None], 2, -1) / 3
    else:
        data[...] = raw.astype(data.dtype)
    where = [folder / f"disk{k}" for k in range(chance.randint(1, 3))]
    for one in where:
        one.mkdir(exist_ok=True)
    options = {"order": chance.choice("CF")}
    for name, most in (("parts", 6), ("stripe", 5)):
        if chance.random() < 0.6:
            options[name] = chance.randint(1, most)
    if chance.random() < 0.8:
        options["folders"] = where
    return data, options


def by_numpy(path):
    """The array put together from its parts, by the manifest and NumPy alone."""
    said = json.loads(path.read_text())
    held = [np.load(path.parent / name) for name in said["parts"]]
    if not said["shape"]:
        return held[0]
    axis = 0 if said["order"] == "C" else len(said["shape"]) - 1
    rows, turn = said["shape"][axis], said["stripe"]
    found = np.empty(said["shape"], held[0].dtype)
    for k, first in enumerate(range(0, rows, turn)):
        part, behind = held[k % len(held)], k // len(held) * turn
        count = min(turn, rows - first)
        there = [slice(None)] * found.ndim
        here = list(there)
        there[axis], here[axis] = slice(first, first + count), slice(behind, behind + count)
        found[tuple(there)] = part[tuple(here)]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_numpy_reads_what_outcore_writes(tmp_path, seed):
    data, options = random_case(seed, tmp_path)
    path = tmp_path / "a.parts"
    with outcore.create(path, data.shape, data.dtype, **options) as a:
        assert a.format == "parts"
        np.testing.assert_array_equal(np.zeros_like(data), a[...])
        a[...] = data
    np.testing.assert_array_equal(data, by_numpy(path))
    with outcore.open(path, "r+") as a:
        assert (a.shape, a.dtype) == (data.shape, data.dtype)
        np.testing.assert_array_equal(data, a[...])
        chance = random.Random(seed)
        for _ in range(4):
            key = tuple(
                slice(*sorted(chance.choices(range(n + 1), k=2)), chance.choice((1, 2, 3)))
                for n in data.shape
            )
            np.testing.assert_array_equal(data[key], a[key])
            a[key] = data[key][::-1] if data[key].ndim else data
            data[key] = data[key][::-1].copy() if data[key].ndim else data
    np.testing.assert_array_equal(data, by_numpy(path))
    assert outcore.verify(path) == []
    assert left(tmp_path) == known(path)


def known(path):
    """The files of an array."""
    return sorted(os.path.realpath(name) for name in whole.list_files(str(path)))


def left(folder):
    """All files below a folder, but for the marks of arrays that may have parts there."""
    found = (p for p in Path(folder).rglob("*") if p.is_file())
    return sorted(os.path.realpath(p) for p in found if not p.name.startswith(".outcore-home-"))


DATA = np.arange(70.0).reshape(10, 7)


@pytest.fixture
def array(tmp_path):
    """Three parts in two folders."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    path = tmp_path / "field.parts"
    where = [tmp_path / "one", tmp_path / "two"]
    outcore.create(path, data=DATA, folders=where, parts=3, stripe=2).close()
    return path


def test_one_array_to_collectives_computations_and_conversions(array, tmp_path):
    def work(t):
        with outcore.open(array, "r+", comm=t) as a:
            mine = np.s_[:, t.rank :: t.size]
            np.testing.assert_array_equal(DATA[mine], a.read_all(mine, method="two-phase"))
            a.write_all(mine, DATA[mine] + 1, method="two-phase")
            a.flush_all()
            np.testing.assert_array_equal(DATA + 1, a.read_all())

    SimWorld(3, ranks_per_node=2).run(work)
    np.testing.assert_array_equal(DATA + 1, by_numpy(array))
    assert outcore.sum(array) == (DATA + 1).sum()
    outcore.transpose(array, out=tmp_path / "t.parts").close()
    np.testing.assert_array_equal(DATA.T + 1, by_numpy(tmp_path / "t.parts"))
    outcore.convert(array, tmp_path / "a.npy")
    np.testing.assert_array_equal(DATA + 1, np.load(tmp_path / "a.npy"))
    # What is replaced goes with its parts, and nothing of what grew is left.
    outcore.convert(tmp_path / "t.parts", array, folders=[tmp_path / "two"], overwrite=True)
    np.testing.assert_array_equal(DATA.T + 1, by_numpy(array))
    # A result whose shape is known at the end.
    values = np.unique(DATA % 9)
    out = {"out": tmp_path / "u.parts", "memory": "1 MiB"}
    np.save(tmp_path / "a.npy", DATA % 9)
    outcore.unique(tmp_path / "a.npy", **out).close()
    np.testing.assert_array_equal(values, by_numpy(tmp_path / "u.parts"))
    whole.remove(str(tmp_path / "u.parts"))
    both = {*known(array), *known(tmp_path / "t.parts"), str(tmp_path / "a.npy")}
    assert {*left(tmp_path)} == both


def test_an_interrupted_job_leaves_nothing_when_it_is_discarded(array, tmp_path):
    before = left(tmp_path)

    def progress(done, total):
        if 0 < done < total:
            raise KeyboardInterrupt

    np.save(tmp_path / "a.npy", np.zeros((1000, 700)))
    with pytest.raises(KeyboardInterrupt):
        outcore.convert(
            tmp_path / "a.npy",
            array,
            folders=[tmp_path / "one"],
            overwrite=True,
            memory="2 MiB",
            progress=progress,
        )
    np.testing.assert_array_equal(DATA, by_numpy(array))
    assert len(left(tmp_path)) > len(before) + 2
    (one,) = jobs.unfinished(tmp_path)
    jobs.clean(one)
    assert left(tmp_path) == sorted([*before, str(tmp_path / "a.npy")])


def part(path, number):
    return Path(whole.list_files(str(path))[1 + number])


def refused(path, kind, match):
    with pytest.raises(kind, match=match) as caught:
        outcore.open(path)
    assert "part 1 of 3" in str(caught.value)
    return caught.value.code


def test_a_missing_part_is_named(array):
    part(array, 1).unlink()
    assert refused(array, outcore.errors.NotFoundError, part(array, 1).name) == "not-found"


def test_a_short_part_is_named(array):
    os.truncate(part(array, 1), part(array, 1).stat().st_size - 1)
    assert refused(array, outcore.errors.FormatError, part(array, 1).name) == "file-too-short"


@pytest.mark.parametrize(
    "other", [np.zeros((4, 7), "f4"), np.zeros((4, 6)), np.zeros((4, 7), order="F")]
)
def test_a_foreign_part_is_named(array, other):
    np.save(part(array, 1), other)
    assert refused(array, outcore.errors.FormatError, part(array, 1).name) == "bad-part"


def test_a_part_that_is_no_array_is_named(array):
    part(array, 1).write_bytes(b"years of work")
    assert refused(array, outcore.errors.FormatError, part(array, 1).name) == "bad-magic"


def test_a_part_that_is_replaced_while_the_array_is_open(array):
    with outcore.open(array) as a:
        np.testing.assert_array_equal(DATA[:2], a[:2])
        np.save(part(array, 1), np.zeros((3, 3)))
        with pytest.raises(outcore.errors.StorageError):
            a[...]


DAMAGE = {
    "no JSON": lambda d: "{",
    "a list": lambda d: "[]",
    "version": lambda d: {**d, "version": 2},
    "id": lambda d: {**d, "id": "../../x"},
    "shape": lambda d: {**d, "shape": [-1, 7]},
    "a large shape": lambda d: {**d, "shape": [2**62, 2**62]},
    "dtype": lambda d: {**d, "dtype": "O"},
    "no dtype": lambda d: {**d, "dtype": "zz"},
    "order": lambda d: {**d, "order": "K"},
    "stripe": lambda d: {**d, "stripe": 0},
    "many stripes": lambda d: {**d, "shape": [10**6, 7], "stripe": 1},
    "no parts": lambda d: {**d, "parts": []},
    "another file": lambda d: {**d, "parts": [d["parts"][0], "../secret.npy", d["parts"][2]]},
    "a part twice": lambda d: {**d, "parts": [d["parts"][0], d["parts"][0], d["parts"][2]]},
    "numbers": lambda d: {**d, "parts": [1, 2, 3]},
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_manifests(array, what):
    before = left(array.parent)
    damaged = DAMAGE[what](json.loads(array.read_text()))
    array.write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
    for call in (outcore.open, lambda path: whole.remove(str(path))):
        with pytest.raises(
            (outcore.errors.FormatError, outcore.errors.UnsupportedError, outcore.errors.UsageError)
        ):
            call(array)
    assert left(array.parent) == before, "nothing is removed that the manifest does not know"


def test_invalid_options_of_parts_create_no_file(array, tmp_path):
    before = left(tmp_path)
    for options in (
        {"folders": [tmp_path / "nowhere"]},
        {"folders": [array]},
        {"parts": 0},
        {"stripe": 1.5},
        {"parts": 10**6},
        {"chunks": 3},
        {"attrs": {"a": 1}},
        {},
    ):
        with pytest.raises(outcore.OutcoreError):
            outcore.create(array, (10, 7), **{"dtype": "f8", **options})
    assert left(tmp_path) == before
    np.testing.assert_array_equal(DATA, by_numpy(array))


# Commands


def test_commands_treat_it_as_one_thing(array, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(["cp", "field.parts", "copy.parts"]) == 0
    np.testing.assert_array_equal(DATA, by_numpy(Path("copy.parts")))
    assert len(left(tmp_path)) == 8
    assert command(["cp", "field.parts", "copy.parts"]) == 2
    assert command(["cp", "field.parts", "copy.parts", "--overwrite", "--folders", "two"]) == 0
    assert {os.path.dirname(p) for p in known("copy.parts")[1:]} <= {
        str(tmp_path),
        str(tmp_path / "two"),
    }
    assert command(["mv", "copy.parts", "moved.parts"]) == 0
    assert not os.path.exists("copy.parts")
    assert command(["chmod", "640", "moved.parts"]) == 0
    assert {os.stat(p).st_mode & 0o777 for p in known("moved.parts")} == {0o640}
    capsys.readouterr()
    assert command(["du", "moved.parts", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["nbytes"] == sum(os.path.getsize(p) for p in known("moved.parts"))
    assert command(["gather", "moved.parts", "one.npy"]) == 0
    np.testing.assert_array_equal(DATA, np.load("one.npy"))
    assert command(["ls", "moved.parts"]) == 0
    assert command(["info", "moved.parts"]) == 0
    assert command(["verify", "moved.parts"]) == 0
    assert (
        command(["convert", "one.npy", "two.parts", "--folders", "one,two", "--stripe", "3"]) == 0
    )
    np.testing.assert_array_equal(DATA, by_numpy(Path("two.parts")))
    assert command(["rm", "moved.parts", "two.parts", "field.parts", "one.npy"]) == 0
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["a.npy", "a.h5", "a.zarr", "a.bin"])
def test_commands_take_any_array(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    other = "b" + name[1:]
    known = {"shape": DATA.shape, "dtype": "f8"} if name.endswith("bin") else {}
    outcore.create(name, data=DATA).close()
    assert command(["cp", name, other]) == 0
    assert command(["rm", name]) == 0
    assert command(["mv", other, name]) == 0
    os.mkdir("folder")
    assert command(["mv", name, "folder"]) == 0
    assert command(["chmod", "600", f"folder/{name}"]) == 0
    assert command(["du", f"folder/{name}"]) == 0
    with outcore.open(f"folder/{name}", **known) as a:
        np.testing.assert_array_equal(DATA, a[...])
    assert sorted(os.listdir()) == ["folder"]


def test_a_folder_that_is_no_array_stays(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "one.tex").write_text("years of work")
    for words in (["rm", "thesis"], ["mv", "thesis", "x"], ["cp", "thesis", "x"]):
        assert command([words[0], *(str(tmp_path / one) for one in words[1:])]) == 2
    assert len(left(tmp_path)) == 1


def test_moved_into_another_folder_with_what_lies_beside_it(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "there").mkdir()
    path = tmp_path / "field.parts"
    outcore.create(path, data=DATA, folders=[tmp_path, tmp_path / "disk"]).close()
    whole.move(str(path), str(tmp_path / "there" / "new.parts"))
    np.testing.assert_array_equal(DATA, by_numpy(tmp_path / "there" / "new.parts"))
    folders = [Path(p).parent.name for p in whole.list_files(str(tmp_path / "there" / "new.parts"))]
    assert folders == ["there", "there", "disk"]
    assert left(tmp_path) == known(tmp_path / "there" / "new.parts")


# Kills


@pytest.fixture
def quick(tmp_path):
    with killed.quick_folder(tmp_path) as folder:
        yield folder


STEPS = ("open", "pwrite", "fsync", "rename", "unlink", "link", "ftruncate")


def state(path):
    """The elements, or None."""
    if not os.path.lexists(path):
        return None
    with outcore.open(path) as a:
        return float(a[...].sum())


def each_kill(quick, prepare, action, look, settle):
    """Kill before each step; what was found each time. Afterwards nothing is left that nobody names."""
    seen = []
    for step in range(1, 1000):
        folder = quick / str(step)
        for name in ("one", "two", "there"):
            (folder / name).mkdir(parents=True)
        prepare(folder)
        died = killed.dies_at(step, lambda: action(folder), STEPS)  # noqa: B023
        seen.append(look(folder))
        settle(folder)
        names = {p for path in folder.rglob("*.parts") for p in known(path)}
        assert {*left(folder)} == names, f"left after step {step}"
        shutil.rmtree(folder)
        if not died:
            break
    assert step > 6
    return seen


def make(folder, value, name="a.parts"):
    data = np.full((6, 3), float(value))
    where = [folder / "one", folder / "two", folder]
    outcore.create(folder / name, data=data, folders=where, overwrite=True).close()


def switched(seen, old, new):
    change = seen.index(new)
    assert seen == [old] * change + [new] * (len(seen) - change), seen


def again(folder):
    """The next change of the array."""
    make(folder, 3)
    assert state(folder / "a.parts") == 54


@pytest.mark.parametrize("old", [False, True])
def test_killed_at_each_step_of_create(quick, old):
    seen = each_kill(
        quick,
        lambda folder: old and make(folder, 1),
        lambda folder: formats.create_info(
            folder / "a.parts", (6, 3), "f8", folders=[folder / "one", folder / "two"]
        ),
        lambda folder: state(folder / "a.parts"),
        again,
    )
    switched(seen, 18.0 if old else None, 0.0)


@pytest.mark.parametrize("old", [False, True])
def test_killed_at_each_step_of_cp(quick, old):
    def prepare(folder):
        make(folder, 1)
        if old:
            make(folder, 2, "b.parts")

    def look(folder):
        assert state(folder / "a.parts") == 18
        return state(folder / "b.parts")

    seen = each_kill(
        quick,
        prepare,
        lambda folder: whole.copy(str(folder / "a.parts"), str(folder / "b.parts"), overwrite=old),
        look,
        lambda folder: make(folder, 3, "b.parts"),
    )
    switched(seen, 36.0 if old else None, 18.0)


@pytest.mark.parametrize("target", ["b.parts", "there/b.parts"])
@pytest.mark.parametrize("old", [False, True])
def test_killed_at_each_step_of_mv(quick, target, old):
    def prepare(folder):
        make(folder, 1)
        if old:
            make(folder, 2, target)

    def settle(folder):
        moved = state(folder / target)
        make(folder, 3)
        assert state(folder / target) == moved, "what is made under the old name leaves it alone"
        make(folder, 3, target)

    seen = each_kill(
        quick,
        prepare,
        lambda folder: whole.move(str(folder / "a.parts"), str(folder / target), overwrite=old),
        lambda folder: (state(folder / "a.parts"), state(folder / target)),
        settle,
    )
    switched(seen, (18.0, 36.0 if old else None), (None, 18.0))


def test_killed_at_each_step_of_rm(quick):
    seen = each_kill(
        quick,
        lambda folder: make(folder, 1),
        lambda folder: whole.remove(str(folder / "a.parts")),
        lambda folder: state(folder / "a.parts"),
        again,
    )
    switched(seen, 18.0, None)


def test_many_make_the_same_array_at_once(quick):
    """One of them is there, whole, and nothing of the others."""
    children = []
    for value in range(6):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(5):
                    outcore.create(
                        quick / "a.parts", (4, 3), "f8", parts=2 + value, overwrite=True
                    ).close()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert all(os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) == 0 for one in children)
    assert state(quick / "a.parts") == 0
    assert left(quick) == known(quick / "a.parts")


def test_the_rows_of_parts_add_up():
    chance = random.Random(1)
    for _ in range(500):
        rows, count, stripe = chance.randint(0, 40), chance.randint(1, 7), chance.randint(1, 9)
        names = tuple(str(k) for k in range(count))
        found = part_manifest.PartsManifest(
            "/x", "0" * 16, (rows,), np.dtype("f8"), "C", stripe, names
        )
        held = [0] * count
        for row in range(rows):
            held[row // stripe % count] += 1
        assert held == [found.rows_of(k) for k in range(count)]


@pytest.mark.parametrize("name", ["a.parts", "a.npy", "a.zarr"])
def test_moved_to_another_file_system(tmp_path, quick, name):
    if os.stat(tmp_path).st_dev == os.stat(quick).st_dev:
        pytest.skip("one file system: moves to another are NOT tested")
    outcore.create(tmp_path / name, data=DATA).close()
    whole.move(str(tmp_path / name), str(quick / name))
    with outcore.open(quick / name) as a:
        np.testing.assert_array_equal(DATA, a[...])
    assert left(tmp_path) == []
    assert left(quick) == sorted(map(os.path.realpath, whole.list_files(str(quick / name))))
