"""Disks that nobody measured are learned while they are read."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.arrays import measured
from page_cache import cached_pages, forget

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import throttle  # noqa: E402

SLOW = (500_000, 5_000_000, 100_000_000, 100_000_000)
ROWS = np.s_[::16]


@pytest.fixture
def figures(tmp_path, monkeypatch):
    """A cache folder of its own, and nothing known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _core.set_disks({})
    yield
    _core.set_disks({})


def scattered(folder):
    """1000 rows of 4 kB, 64 kB apart, on the disk."""
    path = folder / "a.npy"
    data = np.random.default_rng(0).random((16_000, 512))
    np.save(path, data)
    forget(path)
    return path, data


def test_what_was_learned_is_used_and_told(tmp_path, figures):
    path, _ = scattered(tmp_path)
    a = outcore.open(path)
    assert a.explain(ROWS).disk == "assumed"
    fast = a.explain(ROWS)
    _core.set_disks({}, {os.stat(tmp_path).st_dev: SLOW})
    slow = a.explain(ROWS)
    assert (slow.disk, slow.disk_latency_ns, slow.disk_rate) == ("learned", *SLOW[1:3])
    assert "disk     learned: 5e+03 us a request, 100 MB/s" in str(slow)
    assert slow.reads < 200 < fast.reads
    _core.set_disks({os.stat(tmp_path).st_dev: SLOW})
    assert a.explain(ROWS).disk == "measured"


def test_what_was_learned_is_kept_for_the_next_process(tmp_path, figures, monkeypatch):
    learned = [(str(tmp_path / "a.npy"), *SLOW)]
    monkeypatch.setattr(_core, "learned_disks", lambda: learned)
    measured.store_learned()
    (kept,) = measured.read_parameters()
    assert kept["learned"] and kept["mount"] == measured.find_mount(str(tmp_path))
    assert kept["latency_ns"] == SLOW[1]
    measured.apply_parameters()
    path, _ = scattered(tmp_path)
    assert outcore.open(path).explain(ROWS).disk == "learned"


def test_what_was_measured_is_not_replaced(tmp_path, figures, monkeypatch):
    known = {"gap": 1, "latency_ns": 2, "device": 3, "stream": 4}
    known["mount"] = measured.find_mount(str(tmp_path))
    measured._store(known)
    monkeypatch.setattr(_core, "learned_disks", lambda: [(str(tmp_path / "a.npy"), *SLOW)])
    measured.store_learned()
    assert measured.read_parameters() == [known]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, figures, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(_core, "learned_disks", lambda: [(str(tmp_path / "a.npy"), *SLOW)])
    measured.store_learned()


@pytest.fixture
def learning(figures):
    _core.set_learning(True)
    yield
    _core.set_learning(False)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "key",
    [
        np.s_[:, ::2, 5:40],
        np.s_[1:, 3::2, 3],
        np.s_[::-1, 98::-1, -3:-90:-5],
        np.s_[1:6:2, 1:, 10:12],
    ],
)
def test_parts_of_a_read_are_in_their_places(tmp_path, learning, order, key):
    """A trial comes first, and then what is left."""
    path = tmp_path / "a.npy"
    data = np.arange(6 * 100 * 9000, dtype="i4").reshape(6, 100, 9000)
    if order == "F":
        data, key = data.T, key[::-1]
    np.save(path, data)
    with outcore.open(path) as a:
        for out in (None, np.zeros(data[key].shape[::-1], "i4").T[..., ::-1]):
            _core.set_disks({})
            forget(path)
            planned, before = a.explain(key), a.stats()["rounds"]
            assert planned.reads >= 128
            np.testing.assert_array_equal(a.read(key, out=out), data[key])
            assert a.stats()["rounds"] - before > planned.rounds


def test_a_trial_comes_before_a_scattered_read(tmp_path, learning):
    """Until such reads of this disk were timed."""
    path, data = scattered(tmp_path)
    a = outcore.open(path)
    before = a.stats()["rounds"]
    one = a.explain(ROWS).rounds
    for more in (1, 0):
        forget(path)
        np.testing.assert_array_equal(a[ROWS], data[ROWS])
        rounds = a.stats()["rounds"] - before
        assert rounds >= one + more if more else rounds == one
        before += rounds


def test_a_few_elements_are_read_before_a_scattered_write(tmp_path, learning):
    """Until such requests of this disk were timed: what a write takes tells nothing."""
    path, data = scattered(tmp_path)
    a = outcore.open(path, "r+", hints={"sync": True})
    reads = []
    for learns in (False, True, True):
        _core.set_learning(learns)
        forget(path)
        before = a.stats()["reads"]
        a[ROWS] = data[ROWS] + 1
        reads.append(a.stats()["reads"] - before)
    assert reads[1] - reads[0] in (44, 84) and reads[2] == reads[0], reads
    data[ROWS] += 1
    np.testing.assert_array_equal(np.load(path), data)


def test_pages_of_a_trial_do_not_stay_in_the_cache(tmp_path, learning):
    """A long read that follows would be cut in two at each of them, and cost a request more."""
    path, _ = scattered(tmp_path)
    if not forget(path):
        pytest.skip("files of this folder are in memory")
    with outcore.open(path) as a, open(path, "rb") as file:
        _core.try_disk([(a.handle.core, ROWS)])
        assert a.stats()["reads"] in (44, 84)
        assert cached_pages(file.fileno()) < 22


def test_ranks_plan_with_what_one_of_their_node_timed(tmp_path, learning):
    path, _ = scattered(tmp_path)
    disk, latency, rate, untried = 10, 11, 12, 13
    with outcore.open(path) as a:
        said = _core.settings(0, a.hints, 2, [(a.handle.core, ROWS)])
        device = os.stat(path).st_dev
        assert (said[disk], said[latency]) == (device, 0) and said[untried] >= 1000
        told = list(said)
        told[latency], told[rate] = SLOW[1:3]
        records = _core.Records(np.array([_core.record(0, words, []) for words in (said, told)]))
        assert records.agree_on_disks([0, 1], 0) == [0]
        assert a.explain(ROWS).disk == "assumed"
        assert records.agree_on_disks([0, 0], 0) == []
        assert (a.explain(ROWS).disk, a.explain(ROWS).disk_latency_ns) == ("learned", SLOW[1])
        # It is told what it did not time itself, and needs no trial any longer.
        said = _core.settings(0, a.hints, 2, [(a.handle.core, ROWS)])
        assert (said[latency], said[untried]) == (0, 0)
        _core.set_disks({device: SLOW})
        told[latency] = 1
        records = _core.Records(np.array([_core.record(0, words, []) for words in (said, told)]))
        records.agree_on_disks([0, 0], 0)
        assert a.explain(ROWS).disk == "measured"


def test_reads_beside_those_of_other_ranks_are_not_timed(tmp_path, learning):
    path, _ = scattered(tmp_path)
    with outcore.open(path) as a:
        for shared in (True, False):
            forget(path)
            if shared:
                _core.share_disks(True)
            a[ROWS]
            if shared:
                _core.share_disks(False)
            timed = _core.settings(0, a.hints, 2, [(a.handle.core, ROWS)])[11]
            assert (timed == 0) is shared


READ = """
import sys, zlib, numpy as np, outcore
sys.path.insert(0, sys.argv[1])
import throttle
throttle.enter(__import__("pathlib").Path(sys.argv[2]))
a = outcore.open(sys.argv[3])
planned = a.explain(np.s_[::16]).reads
print(planned, zlib.crc32(a[::16].tobytes()), a.stats()["reads"])
"""


def test_a_disk_of_long_requests_is_learned_within_the_first_read_slow(tmp_path):
    path, data = scattered(tmp_path)
    words = [sys.executable, "-c", READ, str(ROOT / "bench")]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "OUTCORE_LEARN_DISKS": "1"}
    env["PYTHONPATH"] = str(ROOT / "python")
    try:
        group = throttle.Group(path, throttle.Limits(requests=100, rate=200_000_000))
    except throttle.Unavailable as error:
        pytest.skip(str(error))
    with group:
        found = []
        for learning in ("0", "1", "1"):
            forget(path)
            env["OUTCORE_LEARN_DISKS"] = learning
            line = subprocess.run(
                [*words, str(group.folder), str(path)],
                env=env,
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            ).stdout
            planned, checksum, reads = line.split()
            assert int(checksum) == zlib.crc32(data[ROWS].tobytes())
            found.append((int(planned), int(reads)))
    (without, blind), (first, tried), (second, known) = found
    assert without == blind == first >= 1000
    # Two trials at most, and the rest in long requests.
    assert tried <= 300
    assert second == known <= 200
    (kept,) = json.loads((tmp_path / "cache/outcore/disk.json").read_text())["disks"]
    assert kept["learned"] and kept["latency_ns"] > 1_000_000
