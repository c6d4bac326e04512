"""The applications in `examples/` run, and say what they promise."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: Arguments of a small run, and what it prints.
SMALL = {
    "laplace": (["--size", "60"], "largest change"),
    "median": (["--size", "300", "--memory", "2MiB"], "wrong pixels after: 0.0"),
    "climate": (["--days", "120", "--latitudes", "20"], "standard deviation at the equator"),
    "products": (["--size", "200", "--memory", "1MiB"], "largest difference"),
    "linear_equations": (["--size", "200", "--memory", "1MiB"], "residual"),
}


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words, expected = SMALL[name]
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](words)
    assert expected in capsys.readouterr().out
