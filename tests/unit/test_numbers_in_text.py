"""Numbers in names and texts of files consist of ASCII digits; `int` takes others, too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import errors
from outcore.compute import jobs
from outcore.compute.jobs.journal import Journal
from outcore.formats.parts import manifest as part_manifest

SOURCES = Path(outcore.__file__).parent
#: 3 in another script, and what int() takes for a number beside that.
WORDS = "\u0663", "+3", " 3", "3 ", "3_0", "-3"
#: Calls and patterns that take digits of all scripts.
LOOSE = re.compile(r"\.is(digit|decimal|numeric)\(|\\d")


def test_no_source_takes_digits_of_other_scripts() -> None:
    found = {
        f"{path.relative_to(SOURCES)}:{number}"
        for path in sorted(SOURCES.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LOOSE.search(line) and not line.lstrip().startswith("#")
    }
    assert not found, "write [0-9]"


def test_scratch_files_of_a_process(tmp_path: Path) -> None:
    for word in WORDS:
        (tmp_path / f".outcore-scratch-{word}-0a.npy").write_bytes(b"mine")
    assert jobs.unfinished(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == len(WORDS)


def test_steps_of_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "x.outcore-journal"
    with Journal(str(path)) as journal:
        journal.begin({"operation": "sum"}, None, 90)
        journal.commit([1])
    lines = path.read_text()
    for word in WORDS:
        for line in (word, f"{word}-4", f"1-{word}"):
            path.write_text(f"{lines}{line}\n")
            with pytest.raises(errors.FormatError), Journal(str(path)):
                raise AssertionError(line)
    for steps in ('"90"', '"\u0669"', "90.5", "true", "null"):
        path.write_text(lines.replace(": 90", f": {steps}"))
        with pytest.raises(errors.FormatError), Journal(str(path)):
            raise AssertionError(steps)


def test_numbers_of_parts_and_types(tmp_path: Path) -> None:
    for word in WORDS:
        assert not part_manifest.is_part(f"a-{'0' * 16}-{word}.npy", "0" * 16), word
    outcore.create(tmp_path / "a.zarr", data=np.arange(3.0), chunks=(3,), format="zarr2").close()
    path = tmp_path / "a.zarr" / ".zarray"
    document = json.loads(path.read_text())
    for dtype in ("<f\u0668", "<f+8", "<f 8", "<f8_", "<f0_8"):
        path.write_text(json.dumps({**document, "dtype": dtype}))
        with pytest.raises(errors.FormatError):
            outcore.open(tmp_path / "a.zarr")
    manifest = tmp_path / "placed" / "placement.json"
    distribution = outcore.mpi.Distribution((8,), ["block"], (1,))
    outcore.mpi.create_placed(tmp_path / "placed", distribution, "f8", placement="local").close()
    document = json.loads(manifest.read_text())
    for ghosts in ([["\u0663", 0]], [["0", "0"]], [[0.5, 0]], [[0]], [[True, 0]], [[0, 0, 0]]):
        manifest.write_text(json.dumps({**document, "ghosts": ghosts}))
        with pytest.raises(errors.CollectiveError, match="ghosts"):
            outcore.mpi.open_placed(tmp_path / "placed")


def test_names_of_raw_files_in_their_order(tmp_path: Path) -> None:
    """A superscript is a digit for Python, and no number."""
    for number, name in enumerate(("a1\xb2.raw", "a2.raw", "a10.raw")):
        np.full(2, number, "u1").tofile(tmp_path / name)
    found = outcore.open(f"{tmp_path}/a*.raw", format="raw", shape=(6,), dtype="u1")[...]
    assert found.tolist() == [0, 0, 1, 1, 2, 2]
