"""
Question: is anything that users do every day much slower than in the library they would use instead?

Rows that the other cases don't hold: opening one array and many, importing, the first section of an
array of very many chunks, sparse columns of small chunks, a column written, walking in blocks, columns
of an F-ordered array. Held fair: the same files, cached; candidates by turns in random order; results
equal. Target: at most 1.2 x the best peer in rows of 10 ms and more.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import peers
from harness import Row, interleave, save, warm

Candidates = dict[str, Callable[[], Any]]
# Edge of square arrays of float32, and number of small datasets in one file.
EDGE, DATASETS = 8192, 1000


def run(options: Any) -> None:
    """Print a table; append raw figures to ``results/everyday.jsonl``."""
    folder = Path(options.folder) / "everyday"
    folder.mkdir(exist_ok=True)
    rows = []
    print("\n| row | outcore ms | peer | ms | outcore / peer |\n|---|---:|---|---:|---:|")
    for make in (_imports, _openings, _many_chunks, _small_chunks, _plain):
        for case, candidates in make(folder):
            if options.only and not any(part in case for part in options.only):
                continue
            results: dict[str, Any] = {}

            def keep(name: str, work: Callable[[], Any], into: dict[str, Any] = results) -> Any:
                return lambda: into.__setitem__(name, work())

            timed = {name: keep(name, work) for name, work in candidates.items()}
            row = interleave(Row(case, 0), timed, repeat=max(options.repeat, 5))
            first, *others = results.values()
            if not all(np.array_equal(first, other) for other in others):
                raise SystemExit(f"{case}: candidates do not agree")
            rows.append(row)
            ours, peer = row.median("outcore"), min(set(candidates) - {"outcore"}, key=row.median)
            told = f"{ours * 1e3:.2f} | {peer} | {row.median(peer) * 1e3:.2f}"
            print(f"| {case} | {told} | {ours / row.median(peer):.2f} |", flush=True)
    save(options.results / "everyday.jsonl", "everyday", rows)
    shutil.rmtree(folder)


def _imports(folder: Path) -> Any:
    def process(name: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {name}"], check=True) and 0

    yield "import in a new process", {"outcore": process("outcore"), "numpy": process("numpy")}


def _openings(folder: Path) -> Any:
    import h5py

    import outcore

    path = folder / "many.h5"
    with h5py.File(path, "w") as file:
        for k in range(DATASETS):
            file[f"d{k:04}"] = np.full((8, 8), k, "f4")
    names = [f"{path}::/d{k:04}" for k in range(DATASETS)]

    def ours(many: list[str]) -> list[tuple[int, ...]]:
        arrays = outcore.open_many(many) if len(many) > 1 else [outcore.open(many[0])]
        shapes = [array.shape for array in arrays]
        for array in arrays:
            array.close()
        return shapes

    def theirs(many: list[str]) -> list[tuple[int, ...]]:
        with h5py.File(path) as file:
            return [file[name.split("::")[1]].shape for name in many]

    for case, many in (("one HDF5 dataset opened", names[:1]), ("1000 HDF5 datasets", names)):
        yield case, {"outcore": lambda m=many: ours(m), "h5py": lambda m=many: theirs(m)}


def _many_chunks(folder: Path) -> Any:
    import h5py
    import tensorstore as ts

    import outcore

    edge, cut = 4000, 4
    path, store = folder / "chunks.h5", folder / "sharded.zarr"
    values = np.arange(edge * edge, dtype="f4").reshape(edge, edge)
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=(cut, cut))
    outcore.create(
        store,
        data=values,
        chunks=(cut, cut),
        shards=(edge, edge),
        compression=None,
        overwrite=True,
    ).close()
    warm([path, store])
    key = (slice(100, 104), slice(200, 240))

    def ours(path: Any, key: Any) -> Any:
        with outcore.open(path) as array:
            return array[key]

    def theirs(key: Any) -> Any:
        with h5py.File(path) as file:
            return file["v"][key]

    def tensorstore(key: Any) -> Any:
        kvstore = {"driver": "file", "path": str(store)}
        return ts.open({"driver": "zarr3", "kvstore": kvstore}).result()[key].read().result()

    h5 = f"{path}::/v"
    yield (
        "HDF5, 10^6 chunks, 10 of them",
        {
            "outcore": lambda: ours(h5, key),
            "h5py": lambda: theirs(key),
        },
    )
    yield (
        "Zarr, shard of 10^6 chunks, one element",
        {
            "outcore": lambda: ours(store, (7, 9)),
            "tensorstore": lambda: tensorstore((7, 9)),
        },
    )


def _small_chunks(folder: Path) -> Any:
    values = np.arange(EDGE * EDGE, dtype="f4").reshape(EDGE, EDGE)
    import outcore

    for cut in (80, 400):
        store = folder / f"cut-{cut}.zarr"
        outcore.create(
            store, data=values, chunks=(cut, cut), compression=None, overwrite=True
        ).close()
        warm([store])
        ours, theirs = peers.outcore_peer(store, 2), peers.tensorstore_peer(store)
        for text, key in (
            ("a[::64]", np.s_[::64, :]),
            ("a[:, ::512]", np.s_[:, ::512]),
            ("a[4000:4100]", np.s_[4000:4100, :]),
        ):
            out = {name: np.empty_like(values[key]) for name in ("outcore", "tensorstore")}

            def read(peer: Any, name: str, key: Any = key, out: Any = out) -> Any:
                return lambda: (peer.read(key, out[name]), out[name])[1]

            number = (-(-EDGE // cut)) ** 2
            yield (
                f"Zarr, {number} chunks of {4 * cut * cut // 1000} kB, {text}",
                {
                    "outcore": read(ours, "outcore"),
                    "tensorstore": read(theirs, "tensorstore"),
                },
            )
        ours.close()
        theirs.close()
        shutil.rmtree(store)


def _plain(folder: Path) -> Any:
    import outcore

    paths = {name: folder / f"{name}.npy" for name in ("outcore", "memmap", "fortran")}
    values = np.arange(EDGE * EDGE, dtype="f4").reshape(EDGE, EDGE)
    for name, path in paths.items():
        np.save(path, np.asfortranarray(values) if name == "fortran" else values)
    column = np.arange(EDGE, dtype="f4")
    array = outcore.open(paths["outcore"], "r+", hints={"threads": 2})
    mapped = np.load(paths["memmap"], mmap_mode="r+")
    counts = {"outcore": itertools.count(), "memmap": itertools.count()}

    def write(name: str, to: Any) -> Callable[[], Any]:
        def work() -> int:
            for _ in range(8):
                to[:, 37 * next(counts[name]) % EDGE] = column
            return 0

        return work

    yield (
        "8 columns written",
        {"outcore": write("outcore", array), "memmap": write("memmap", mapped)},
    )
    whole = array[...]
    assert np.array_equal(whole, mapped)

    def walk() -> float:
        return sum(float(block[0, 0]) for _, block in array.blocks())

    sizes = [len(block) for _, block in array.blocks()]

    def by_hand() -> float:
        out, total, at = np.empty((max(sizes), EDGE), "f4"), 0.0, 0
        for rows in sizes:
            out[:rows] = mapped[at : at + rows]
            total, at = total + float(out[0, 0]), at + rows
        return total

    yield "walking in blocks", {"outcore": walk, "memmap": by_hand}
    fortran = outcore.open(paths["fortran"], hints={"threads": 2})
    other = np.load(paths["fortran"], mmap_mode="r")
    out = {name: np.empty((EDGE, 1024), "f4", order="F") for name in ("outcore", "memmap")}
    yield (
        "1024 columns of an F-ordered array",
        {
            "outcore": lambda: fortran.read(np.s_[:, 100:1124], out=out["outcore"]),
            "memmap": lambda: (np.copyto(out["memmap"], other[:, 100:1124]), out["memmap"])[1],
        },
    )
    array.close()
    fortran.close()
