"""Who does a row: outcore, the kernel in memory, and the peers, each with its environment."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from compute.contained import ALLOWANCE, HERE, Ended, Work, run
from compute.rows import Row
from peers.venvs import ROOT, python_of

_PEERS = HERE.parent / "peers" / "compute"
OURS = "outcore"


@dataclass(frozen=True)
class Peer:
    """A module of ``peers/compute``, and the environment that it runs in (ours by default)."""

    name: str
    module: str
    environment: str = ""
    suffix: str = ".npy"


PEERS = (
    Peer("by hand", "by_hand"),
    Peer("dask", "with_dask", "dask"),
    Peer("cubed", "with_cubed", "cubed", ".zarr"),
    Peer("rechunker", "with_rechunker", "rechunker"),
    Peer("tensorstore", "with_tensorstore", "tensorstore"),
    Peer("numexpr", "with_numexpr", "numexpr"),
)


def can(peer: Peer, row: Row) -> bool:
    """Whether its module has a function for the row."""
    text = (_PEERS / f"{peer.module}.py").read_text()
    more = (_PEERS / "by_hand_factors.py").read_text() if peer.module == "by_hand" else ""
    return f"\ndef {row.task}(" in text + more


def result(name: str, row: Row, folder: Path) -> Path:
    """Where somebody is to put the result."""
    suffix = next((peer.suffix for peer in PEERS if peer.name == name), ".npy")
    if row.task == "rechunk":
        suffix = ".zarr"
    if not row.written:
        suffix = ".npy"
    return folder / f"result-{row.name}{suffix}"


def compute(
    name: str, row: Row, inputs: list[Path], folder: Path, cores: int, patience: float
) -> Ended:
    """Have outcore or a peer do a row; its result stays."""
    out = result(name, row, folder)
    words = {
        "inputs": [str(path) for path in inputs],
        "out": str(out),
        "memory": row.budget,
        "cores": cores,
        **row.words,
    }
    more = [out.with_name(f"{out.name}.permutation.npy")]
    common = {
        "task": row.task,
        "words": words,
        "memory": row.budget + ALLOWANCE,
        "results": [out, *more] if row.written else [],
        "patience": patience,
    }
    if name == OURS:
        path = [ROOT / "python"]
        return run(Work(HERE / "ours.py", path=path, outside=False, **common), cores)
    peer = next(peer for peer in PEERS if peer.name == name)
    try:
        python = python_of(peer.environment) if peer.environment else Path(sys.executable)
    except OSError as error:
        return Ended(None, f"not installed: {error}")
    module = _PEERS / f"{peer.module}.py"
    return run(Work(module, python=python, path=[_PEERS], **common), cores)


def in_core(row: Row, cores: int, patience: float) -> Ended:
    """The kernel of a row on data in memory, without a group."""
    shape = row.inputs[0].shape
    words = {"n": shape[0], "cores": cores, **row.words}
    path = [HERE, ROOT / "python"]
    return run(Work(HERE / "incore.py", row.task, words, path=path, patience=patience), cores)


def clean(folder: Path) -> None:
    """Remove results, and what somebody left who was stopped."""
    import shutil

    for path in folder.glob("*result-*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
