"""Figures of disks are kept, found again, and used by plans; rubbish is ignored."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import outcore
from fuzz import documents
from outcore import _core
from outcore.arrays import measured

FIGURES = {"gap": 5, "latency_ns": 9000, "device": 2 * 10**9, "stream": 2 * 10**9}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "outcore" / "disk.json"
    _core.set_disks({})


def write(cache, disks):
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps({"version": 1, "disks": disks}))


def requests(path):
    """How many requests a section of runs of 4 KiB with gaps of 60 KiB takes."""
    hints = {"method": "list", "cache": "bypass"}
    with outcore.open(path, hints=hints) as a:
        return a.explain(np.s_[:, :512]).reads


def test_a_measured_gap_changes_the_plan_and_not_the_result(tmp_path, cache):
    data = np.arange(256 * 8192.0).reshape(256, 8192)
    np.save(tmp_path / "a.npy", data)
    mount = measured.find_mount(str(tmp_path))
    write(cache, [{"mount": mount, **FIGURES, "gap": 0}])
    measured.apply_parameters()
    apart = requests(tmp_path / "a.npy")
    wide = {"mount": mount, **FIGURES, "gap": 1 << 20}
    cache.write_text(json.dumps({"version": 1, "disks": [wide]}))
    measured.apply_parameters()
    together = requests(tmp_path / "a.npy")
    assert together < apart
    with outcore.open(tmp_path / "a.npy", hints={"method": "list"}) as a:
        np.testing.assert_array_equal(a[:, :512], data[:, :512])


def test_measured_rates_are_the_prices_of_plans(tmp_path, cache):
    np.save(tmp_path / "a.npy", np.zeros((2048, 8192)))
    mount = measured.find_mount(str(tmp_path))

    def why(stream):
        cache.parent.mkdir(parents=True, exist_ok=True)
        slow = {"mount": mount, **FIGURES, "device": stream, "stream": stream}
        cache.write_text(json.dumps({"version": 1, "disks": [slow]}))
        measured.apply_parameters()
        with outcore.open(tmp_path / "a.npy", hints={"cache": "bypass"}) as a:
            return str(a.explain(np.s_[:1024]))

    assert "about 67 ms" in why(10**9)
    assert "about 671 ms" in why(10**8)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", '{"disks": 3}', '{"disks": [{"gap": "x"}]}', '{"disks": [1]}']
)
def test_rubbish_is_ignored(cache, text):
    cache.parent.mkdir(parents=True)
    cache.write_text(text)
    measured.apply_parameters()
    assert measured.read_parameters() == []


def test_a_disk_that_is_gone_is_ignored(cache):
    write(cache, [{"mount": "/no/such/place", **FIGURES}, FIGURES, {"mount": [], **FIGURES}])
    measured.apply_parameters()


def test_measuring_again_replaces_the_figures_of_that_disk_only(tmp_path, cache):
    write(cache, [{"mount": "/elsewhere", **FIGURES}])
    for _ in range(2):
        measured.measure(str(tmp_path), file_bytes=16 << 20, slice_ms=1)
    assert [disk["mount"] for disk in measured.read_parameters()] == [
        "/elsewhere",
        measured.find_mount(str(tmp_path)),
    ]
    assert os.listdir(tmp_path) == ["cache"]


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(outcore.errors.UsageError) as caught:
        measured.measure(str(tmp_path / "missing"))
    assert caught.value.code == "bad-folder"


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.h5::/x"])
def test_collectives_are_priced_for_the_disk_of_the_array(tmp_path, monkeypatch, name):
    """Who skips much on a disk where a request is dear had better read it all."""
    data = np.zeros((512, 512), "f4")
    more = {} if name == "a.npy" else {"chunks": (64, 512)}
    outcore.create(f"{tmp_path}/{name}", data=data, **more).close()
    with outcore.open(f"{tmp_path}/{name}") as a:
        assert a.handle.core.disk() == (24 << 10, 9500, 2_600_000_000, 2_800_000_000)
    device = os.stat(tmp_path).st_dev
    _core.set_disks({device: (1 << 20, 5_000_000, 100_000_000, 120_000_000)})
    with outcore.open(f"{tmp_path}/{name}") as a:
        assert a.handle.core.disk() == (1 << 20, 5_000_000, 100_000_000, 120_000_000)
        report = a.explain(np.s_[::64])
        assert report.decodes == 0
        each = report.reads * 5_000_000 + report.read_bytes * 10
        expected = max(each, report.read_bytes * 1000 // 120)
        assert a.handle.core.price(np.s_[::64], False, True) == (expected, 0)
    with outcore.open(f"{tmp_path}/{name}", hints={"cache": "bypass"}) as a:
        assert a.handle.core.price(...)[1] == 0, "past the page cache nothing is cached"


def test_figures_that_make_no_sense_are_none(cache):
    """``import outcore`` reads them: it must not raise, whatever they are."""
    path = Path(measured.get_path())
    path.parent.mkdir(parents=True, exist_ok=True)
    disk = {"gap": 1, "latency_ns": 2, "device": 10**9, "stream": 10**9, "mount": "/"}
    good = {"version": 1, "disks": [disk]}
    for where in documents.paths_of(good):
        for value in (None, 5, "x", [], {}, [1], -1, True, 1e400, "\ud800", "a\0b", 10**30):
            path.write_text(json.dumps(documents.changed(good, where, value, False)))
            measured.read_parameters()
            measured.apply_parameters()
    for text in (b"[" * 100_000, b'{"a":' * 50_000, b"", b"\xff\xfe"):
        path.write_bytes(text)
        measured.apply_parameters()
        assert measured.read_parameters() == []
