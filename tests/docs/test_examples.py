"""The applications in `examples/` run, and say what they promise."""

import pytest

from applications import SMALL, results, run

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(name)
    assert results(name, capsys.readouterr().out)


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
