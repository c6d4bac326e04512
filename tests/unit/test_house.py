"""The house keeps its own rules: `x`, the lints, what the folder promises."""

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def x():
    loader = importlib.machinery.SourceFileLoader("x", str(ROOT / "x"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("x", loader))
    loader.exec_module(module)
    return module


def test_x_needs_only_the_standard_library():
    command = [sys.executable, "-I", "-S", str(ROOT / "x"), "help"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "./x demo" in result.stdout


def test_x_refuses_an_unknown_verb():
    result = subprocess.run(
        [sys.executable, str(ROOT / "x"), "fly"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "./x test" in result.stdout


def test_x_names_what_is_missing(x, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SystemExit):
        x.check_machine()
    message = capsys.readouterr().err
    assert re.search(r"Rust [\d.]+ or newer is needed", message)


@pytest.mark.parametrize(
    ("name", "lines", "allowed", "problem"),
    [
        ("a.py", 800, "", None),
        ("a.py", 801, "", "ceiling 800"),
        ("a.rs", 801, "one table that nobody edits by hand", None),
        ("a.rs", 801, "because", "ceiling 800"),
        ("a.rs", 10, "one table that nobody edits by hand", "no longer needs"),
        ("utils.py", 3, "", "find the noun"),
    ],
)
def test_file_rules(x, monkeypatch, tmp_path, name, lines, allowed, problem):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / name).write_text("#\n" * lines)
    entry = f'"{name}" = "{allowed}"\n' if allowed else ""
    (tmp_path / "pyproject.toml").write_text(f"[tool.outcore.long-files]\n{entry}")
    monkeypatch.setattr(x, "ROOT", tmp_path)
    found = x.file_rules()
    assert bool(problem) == bool(found)
    if problem:
        assert problem in found[0]


def test_ci_calls_lint_the_fast_lane_and_a_part_of_the_long_one():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    called = [line for line in commands if "./x" in line]
    assert called == ["./x lint", "./x test", './x test all --part "$part/8"']
    assert len(commands) == 8  # set, cd, CI, stdin, part, and these


@pytest.mark.parametrize(
    ("args", "runs"),
    [
        ([], ["fast"]),
        (["all"], ["long"]),
        (["all", "--part", "3/8"], ["long --part 3/8"]),
        (["mpi", "-k", "word"], ["mpi -k word"]),
        (["tests/unit", "-k", "word"], ["pytest tests/unit -k word"]),
        (["all", "tests/unit"], None),
    ],
)
def test_test_runs_the_lane_that_is_asked_for(x, monkeypatch, args, runs):
    seen = []
    for lane, name in (
        ("fast", "run_fast_lane"),
        ("long", "run_long_lane"),
        ("mpi", "run_mpi_lane"),
        ("pytest", "run_pytest"),
    ):

        def noted(summary, options=(), lane=lane):
            seen.append(" ".join([lane, *options]))

        monkeypatch.setattr(x, name, noted)
    if runs is None:
        with pytest.raises(SystemExit):
            x.test(args)
    else:
        x.test(args)
        assert seen == runs


def test_each_part_of_the_long_lane_runs_its_share(x, monkeypatch):
    """Tests of crates run in one part; every run of pytest is told the part."""
    for part in (["--part", "1/8"], ["--part", "2/8"], []):
        cargo, told = [], []
        monkeypatch.setattr(x, "mpi_setup", lambda library: None)
        monkeypatch.setattr(x, "run_cargo", lambda summary, options, to=cargo: to.append(options))
        monkeypatch.setattr(x, "run_pytest", lambda summary, options, to=told: to.append(options))
        monkeypatch.setattr(x, "mpi_tests", lambda n, options, to=told: to.append(options) or [])
        x.run_long_lane(x.Summary(), part)
        assert len(cargo) == (0 if "2/8" in part else 1)
        assert len(told) == 2 + 7
        assert all(options[-2:] == part for options in told if part)


def test_threads_have_names_that_the_kernel_keeps_whole():
    """A process list then tells whose threads they are; beyond 15 bytes a name is cut."""
    unnamed, names = [], set()
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        source = path.read_text().split("#[cfg(test)]\nmod ")[0]
        if path.name.endswith("tests.rs") or path.name in ("conformance.rs", "timing.rs"):
            continue
        unnamed += [(path.name, m) for m in re.findall(r"thread::spawn\(|\bscope\.spawn\(", source)]
        names |= set(re.findall(r"Builder::new\(\)\s*\.name\(\"([^\"]+)\"", source))
    assert [found for found in unnamed if found != ("cpu.rs", "scope.spawn(")] == []  # rayon's
    assert len(names) >= 5
    assert [n for n in names if not n.startswith("outcore-") or len(n) > 15] == []
