"""Virtual datasets that ranks read together; text, of which each rank reads its own."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
import pytest

import outcore
from outcore import errors
from ranks import once, ranks

h5py = pytest.importorskip("h5py")


def make(folder: Any) -> Any:
    """Four compressed frames in as many files, one of another type, one missing; and what h5py reads."""
    layout = h5py.VirtualLayout(shape=(5, 6, 8), dtype="f8")
    for k in range(5):
        layout[k] = h5py.VirtualSource(f"f{k}.h5", "frame", shape=(6, 8))
        if k != 3:
            with h5py.File(folder / f"f{k}.h5", "w") as file:
                data = 100 * k + np.arange(48.0).reshape(6, 8)
                kind = "f4" if k == 4 else "f8"
                file.create_dataset(
                    "frame", data=data, dtype=kind, chunks=(3, 4), compression="gzip"
                )
    with h5py.File(folder / "v.h5", "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-7)


def whole(folder: Any) -> Any:
    expected = np.full((5, 6, 8), -7.0)
    for k in (0, 1, 2, 4):
        expected[k] = 100 * k + np.arange(48.0).reshape(6, 8)
    return expected


@ranks(1, 2)
@pytest.mark.parametrize("method", ["direct", "two-phase"])
def test_the_last_of_mappings_that_overlap_counts(world: Any, folder: Any, method: Any) -> None:
    def write() -> None:
        layout = h5py.VirtualLayout((30,), "f8")
        with h5py.File(folder / "o.h5", "w") as file:
            for number, (low, step) in enumerate(((0, 1), (3, 2), (5, 1), (4, 3), (20, 1))):
                data = 100.0 * number + np.arange(len(range(low, 30, step)))
                dtype = "f4" if number % 2 else "f8"
                file.create_dataset(f"d{number}", data=data, dtype=dtype, chunks=(4,))
                layout[low::step] = h5py.VirtualSource(file[f"d{number}"])
            file.create_virtual_dataset("v", layout)

    def body(t: Any) -> None:
        once(t, write)
        expected = np.arange(30.0)
        for number, (low, step) in enumerate(((3, 2), (5, 1), (4, 3), (20, 1)), 1):
            expected[low::step] = 100 * number + np.arange(len(range(low, 30, step)))
        with outcore.open(f"{folder / 'o.h5'}::/v", comm=t) as array:
            for key in (np.s_[:], np.s_[t.rank :: 2], np.s_[::-3]):
                assert np.array_equal(array.read_all(key, method=method), expected[key])

    world.run(body)


@ranks(1, 2, 3, per_node=(None, 1))
@pytest.mark.parametrize("method", ["auto", "direct", "two-phase"])
def test_read_all(world: Any, folder: Any, method: Any) -> None:
    def body(t: Any) -> None:
        once(t, lambda: make(folder))
        expected = whole(folder)
        with outcore.open(folder / "v.h5", comm=t) as array:
            columns = np.s_[:, :, t.rank :: t.size]
            assert np.array_equal(array.read_all(columns, method=method), expected[columns])
            out = np.empty((5, 6, 8))
            assert array.read_all(out=out, method=method) is out
            assert np.array_equal(out, expected)
            # One wants an element, the others nothing.
            key = (4, 5, 7) if t.rank == 0 else np.s_[0:0]
            assert np.array_equal(array.read_all(key, method=method), expected[key])
            found = array.iread_all(np.s_[::-2, 1], method=method).wait()
            assert np.array_equal(found, expected[::-2, 1])
            other = outcore.open(folder / "f1.h5", comm=t)
            both = outcore.mpi.read_all(
                [(array, np.s_[1:3]), (other, np.s_[t.rank % 6])], method=method
            )
            assert np.array_equal(both[0], expected[1:3])
            assert np.array_equal(both[1], expected[1, t.rank % 6])
            lists = [4, t.rank % 5, 3]
            assert np.array_equal(array.read_all(lists), expected[lists])
            told = array.explain_all(np.s_[:, : t.rank + 1], method=method)
            assert [one.path.rpartition("::")[2] for one in told.arrays] == ["frame"] * 4
            assert told.wanted_bytes == sum(8 * min(r + 1, 6) * (3 * 8 + 4) for r in range(t.size))

    world.run(body)


@ranks(2, 3)
def test_each_chunk_is_read_once(world: Any, folder: Any) -> None:
    """Of all ranks, although each wants all of it."""

    def body(t: Any) -> None:
        once(t, lambda: make(folder))
        with outcore.open(folder / "v.h5", comm=t) as array:
            found = array.read_all(np.s_[:, :, 1:], method="two-phase")
            assert np.array_equal(found, whole(folder)[:, :, 1:])
            t.barrier()
            mine = sum(one.stats()["decodes"] for one in array.handle.core.handles.values())
        decodes = [
            int.from_bytes(one, "little") for one in t.allgather_bytes(mine.to_bytes(8, "little"))
        ]
        assert sum(decodes) == 16

    world.run(body)


@ranks(2, 3)
def test_all_ranks_raise(world: Any, folder: Any) -> None:
    def body(t: Any) -> None:
        once(t, lambda: make(folder))
        with outcore.open(folder / "v.h5", comm=t) as array:
            with pytest.raises(errors.CollectiveError):
                array.read_all(np.s_[: 1 + t.rank] if t.rank else np.s_[99])
            once(t, lambda: (folder / "f2.h5").write_bytes(b"noise" * 1000))
            with pytest.raises(errors.CollectiveError) as caught:
                array.read_all(np.s_[2] if t.rank == t.size - 1 else np.s_[0:0])
            assert caught.value.__cause__ is not None
            assert np.array_equal(array.read_all(np.s_[0]), whole(folder)[0])
            with pytest.raises(errors.UnsupportedError, match=r"outcore\.convert"):
                array.schedule_all([0])

    world.run(body)


@ranks(1, 3)
def test_text_is_read_by_each_rank(world: Any, folder: Any) -> None:
    def body(t: Any) -> None:
        def make_text() -> None:
            with h5py.File(folder / "t.h5", "w") as file:
                file["t"] = [f"rank {k}" for k in range(8)]

        once(t, make_text)
        with pytest.raises(errors.CollectiveError) as caught:
            outcore.open(folder / "t.h5", comm=t)
        assert "without comm=" in str(caught.value.__cause__)
        with outcore.open(folder / "t.h5") as array:
            assert array[t.rank] == f"rank {t.rank}"
        t.barrier()

    world.run(body)


@ranks(1, 2, 3)
@pytest.mark.parametrize("method", ["direct", "two-phase"])
def test_zarr_in_a_zip_file(world: Any, folder: Any, method: Any) -> None:
    data = np.arange(60 * 40, dtype="f4").reshape(60, 40)

    def pack() -> None:
        outcore.create(
            f"{folder}/s.zarr::/t", data=data, chunks=(7, 40), compression="zstd"
        ).close()
        with zipfile.ZipFile(folder / "s.zip", "w") as file:
            for one in (folder / "s.zarr").rglob("*"):
                file.write(one, one.relative_to(folder / "s.zarr"))

    def body(t: Any) -> None:
        once(t, pack)
        with outcore.open(folder / "s.zip" / "t", comm=t) as array:
            columns = np.s_[3:, t.rank :: t.size]
            assert np.array_equal(array.read_all(columns, method=method), data[columns])
            rows = [59 - t.rank, 0]
            assert np.array_equal(array.read_all(rows, method=method), data[rows])

    world.run(body)
