"""The applications in `examples/` run, and say what they promise."""

import pytest

from applications import SMALL, results, run


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(name)
    assert results(name, capsys.readouterr().out)
