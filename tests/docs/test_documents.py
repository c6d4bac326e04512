"""Every example runs: README, tutorial, docstrings. Every link inside the repository leads somewhere."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import outcore

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "crates/*/*.md", "bench/*.md")
    for path in ROOT.glob(pattern)
)
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(outcore.__path__, "outcore.")
    if not module.name.endswith(("__main__", "_core"))
)


@pytest.fixture(autouse=True)
def budget_as_before():
    """Examples set the budget of the process, and it is that of the tests which follow."""
    before = int(outcore.memory())
    yield
    outcore.memory(before)


def run_doctest(test, capsys):
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test)
    assert runner.failures == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["README.md", "docs/tutorial.md", "docs/howto/collective.md", "docs/howto/simulate.md"],
)
def test_documents_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text()
    names = {"np": np, "outcore": outcore}
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert blocks
    for number, block in enumerate(blocks):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, name, name, number)
            test.globs = names
            runner = doctest.DocTestRunner(optionflags=FLAGS)
            runner.run(test, clear_globs=False)
            assert runner.failures == 0, capsys.readouterr().out
        else:
            exec(compile(block, f"{name} (block {number})", "exec"), names)


@pytest.mark.parametrize("name", ["outcore", *MODULES])
def test_docstrings_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        if test.examples:
            run_doctest(test, capsys)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert missing == []


def test_every_decision_record_is_listed():
    folder = ROOT / "docs" / "design"
    listed = set(re.findall(r"\((\d{4}-[^)]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


PUBLIC = {name: getattr(outcore, name) for name in outcore.__all__ if not name.startswith("__")}


def test_public_names_are_documented():
    missing = [name for name, public in PUBLIC.items() if not (public.__doc__ or "").strip()]
    assert missing == []


WHOLE = [
    name
    for name, public in PUBLIC.items()
    if inspect.isfunction(public)
    or (inspect.isclass(public) and not issubclass(public, BaseException))
]


@pytest.mark.parametrize("name", WHOLE)
def test_docstrings_are_whole(name):
    """Each parameter is explained, so is what is returned, and there is an example."""
    public = PUBLIC[name]
    calls = [(name, public)] if inspect.isfunction(public) else []
    for member, value in vars(public).items():
        function = getattr(value, "__func__", value)
        if not member.startswith("_") and inspect.isfunction(function):
            calls.append((f"{name}.{member}", function))
    missing = []
    for call, function in calls:
        text, signature = inspect.getdoc(function) or "", inspect.signature(function)
        # As "ghosts", or as "transport, ghosts", on a line of their own.
        lines = re.findall(r"^[*\w]+(?:, [*\w]+)*$", text, re.M)
        said = {"self", "cls", *re.findall(r"\w+", " ".join(lines))}
        missing += [f"{call}: {word}" for word in signature.parameters if word not in said]
        heads = ["Examples"]
        if signature.return_annotation not in (None, "None"):
            heads.append("Returns")
        missing += [f"{call}: {head}" for head in heads if f"{head}\n-----" not in text]
    assert missing == []
