"""What is kept beside arrays: manifests of placements, schedules of indices and of edges, partitions."""

from __future__ import annotations

import functools
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import outcore
from fuzz.chance import LIES, Chance
from fuzz.documents import HURTFUL, damaged, other_words, saved
from fuzz.lane import Files, Target

# Placements

PLACED = {
    "outcore-placement": 1,
    "id": "53f0c2a9d1e84b70",
    "shape": [4, 3],
    "dtype": [["a", "<i2"], ["b", "<f8", [2]]],
    "order": "C",
    "formats": ["block", "*"],
    "grid": [1],
    "align": [[1, 0, None], [1, 0, None]],
    "axes": [0, None],
    "ghosts": [[1, 1], [0, 0]],
    "files": ["rank-0000.npy"],
}


def placement(chance: Chance) -> Files:
    file = saved(np.zeros((4, 3), [("a", "<i2"), ("b", "<f8", (2,))]))
    return {
        "a/placement.json": json.dumps(PLACED).encode()
        if chance.one_in(5)
        else damaged(chance, PLACED),
        "a/rank-0000.npy": chance.damage(file) if chance.one_in(4) else file,
    }


def open_placed(folder: Path) -> None:
    with outcore.mpi.open_placed(folder / "a", mode="r+") as a:
        repr(a)
        a.write_section(..., a.read_section())
        sum(1 for _ in a.slabs())
        a.shift_all()


# Schedules of indices

SAID = {
    "version": 1,
    "shape": [6, 5],
    "axes": [0],
    "mode": "points",
    "points": [3],
    "rest": [[0, 6, 1], [1, 4, 1]],
    "result": [["point", 0, False], ["array", 1, True]],
}
LISTS = ({"indices0": [4, 2, 4]}, {"starts0": [1, 0], "lengths0": [2, 1]})


def schedule(chance: Chance) -> Files:
    said = damaged(chance, SAID) if chance.one_in(2) else json.dumps(SAID).encode()
    members = {name: np.array(words, np.int64) for name, words in chance.choice(LISTS).items()}
    for words in members.values():
        if chance.one_in(3):
            words[chance.randrange(words.size)] = chance.choice([-1, -6, 7, *LIES[:-1]])
    stream = io.BytesIO()
    np.savez(stream, schedule=np.frombuffer(said, np.uint8), **members)
    data = stream.getvalue()
    if chance.one_in(3):  # a member with another header, and the CRC of what it has
        data = _with_another_header(chance, data)
    return {"s.npz": chance.damage(data) if chance.one_in(4) else data}


def _with_another_header(chance: Chance, good: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as file, zipfile.ZipFile(stream, "w") as other:
        changed = chance.choice(file.namelist())
        for name in file.namelist():
            data = file.read(name)
            if name == changed:
                length = int.from_bytes(data[8:10], "little")
                text = other_words(chance, data[10 : 10 + length].rstrip()) + b"\n"
                text = chance.damage(text) if chance.one_in(2) else text
                data = (
                    data[:8]
                    + min(len(text), 2**16 - 1).to_bytes(2, "little")
                    + text
                    + data[10 + length :]
                )
            other.writestr(name, data)
    return stream.getvalue()


def use_schedule(folder: Path) -> None:
    np.save(folder / "a.npy", np.zeros((6, 5)))
    with outcore.open(folder / "a.npy", "r+") as a:
        made = outcore.IndexSchedule.open(folder / "s.npz", a)
        assert made.gather().shape == made.shape
        made.scatter(1.0, "add")


# Partitions, and schedules of edges


@functools.cache
def good() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of a partition, and of an edge schedule."""
    with tempfile.TemporaryDirectory() as place:
        parts = outcore.unstructured.Partition(np.array([1, 0, 1, 1, 0, 0]), 2)
        parts.save(Path(place, "parts"))
        edges = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
        outcore.unstructured.edge_schedule(
            edges, 6, partition=parts, out=Path(place, "loop")
        ).close()
        run_loop(Path(place))  # its threads take address space, once
        found = [
            {one.name: one.read_bytes() for one in sorted(Path(place, name).iterdir())}
            for name in ("parts", "loop")
        ]
    return found[0], found[1]


def _some_damaged(chance: Chance, folder: str, files: dict[str, bytes]) -> Files:
    made = {f"{folder}/{name}": data for name, data in files.items()}
    name = chance.choice(list(made))
    if name.endswith("json"):
        document: Any = json.loads(made[name])
        made[name] = damaged(chance, document)
        if chance.one_in(3):
            document[chance.choice(list(document))] = chance.choice([*LIES, *HURTFUL])
            made[name] = json.dumps(document).encode()
    else:
        made[name] = chance.damage(made[name])
    return made


def partition(chance: Chance) -> Files:
    return _some_damaged(chance, "parts", good()[0])


def use_partition(folder: Path) -> None:
    with outcore.unstructured.Partition.open(folder / "parts") as parts:
        assert int(parts.counts.sum()) == parts.elements
        parts.members(0)
        with outcore.unstructured.TranslationTable(parts) as table:
            table.dereference([0])


def edge_schedule(chance: Chance) -> Files:
    return _some_damaged(chance, "loop", good()[1])


def run_loop(folder: Path) -> None:
    with outcore.unstructured.EdgeSchedule.open(folder / "loop") as found:
        if found.nodes > 1000:
            return
        x, y = np.zeros(found.nodes), np.ones(found.nodes)

        def kernel(edges: Any, x: Any, y: Any) -> None:
            np.add.at(x, edges[:, 0], y[edges[:, -1]])

        outcore.unstructured.edge_loop(found, reads={"y": y}, updates={"x": x}, kernel=kernel)


TARGETS = [
    Target("placements", placement, open_placed, 120),
    Target("index_schedules", schedule, use_schedule, 150),
    Target("partitions", partition, use_partition, 100),
    Target("edge_schedules", edge_schedule, run_loop, 100),
]
