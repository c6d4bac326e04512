"""The applications in `examples/` run, and say what they promise."""

import re
import threading

import pytest

import outcore
from applications import SMALL, results, run
from outcore import transport
from outcore.testing.sim import SimWorld

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(name)
    assert results(name, capsys.readouterr().out)


def test_a_sweep_goes_on_on_other_numbers_of_ranks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    here, before = threading.local(), outcore.memory()
    monkeypatch.setattr(transport, "world", lambda: here.transport)
    monkeypatch.setattr(transport, "transport", lambda comm: comm)

    def go(t, *more):
        here.transport = t
        run("mesh_sweep", *more)

    try:
        SimWorld(2).run(lambda t: go(t, "--checkpoint", "4", "--steps", "10"))
        # Killed after the tenth sweep: what was kept last is older.
        assert sorted(p.name for p in tmp_path.glob("mesh-kept-*")) == [
            "mesh-kept-000000004.npy",
            "mesh-kept-000000008.npy",
        ]
        capsys.readouterr()
        SimWorld(3).run(lambda t: go(t, "--resume"))
    finally:
        outcore.memory(before)  # ranks that are threads set it in any order
    said = capsys.readouterr().out
    assert re.search("^12 sweeps in ", said, re.M)
    assert results("mesh_sweep", said)


@pytest.mark.parametrize("name", SMALL)
def test_it_draws_a_picture(name, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pictures are NOT tested")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    run(name, "--picture", "drawn.png")
    drawn = (tmp_path / "drawn.png").read_bytes()
    assert drawn.startswith(PNG)
    assert len(drawn) > 5000, "an empty page has less"


@pytest.mark.parametrize("name", SMALL)
def test_it_says_at_once_what_a_picture_needs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(SystemExit):
        run(name, "--picture", "drawn.png")
    assert "outcore[pictures]" in capsys.readouterr().err
    assert not any(tmp_path.iterdir()), "nothing was computed"
