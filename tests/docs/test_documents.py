"""Every example runs: README, tutorial, docstrings. Every link inside the repository leads somewhere."""

import doctest
import importlib
import inspect
import pkgutil
import re
import runpy
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import outcore
from docs.blocks import FLAGS, blocks_of, commands_of, run
from outcore.cli import main
from outcore.cli.commands import _parse
from outcore.formats import registry
from outcore.public import list_public

ROOT = Path(__file__).resolve().parents[2]
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


def told(path):
    """The name of a document in the repository."""
    return str(path.relative_to(ROOT))


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


# Whose blocks are parts of test files.
FRAGMENTS = {"CONTRIBUTING.md"}
WITH_CODE = [
    name
    for path in DOCUMENTS
    if blocks_of(path.read_text()) and (name := told(path)) not in FRAGMENTS
]


def test_documents_with_code_are_found():
    howto = {told(path) for path in (ROOT / "docs" / "howto").glob("*.md")}
    assert {"README.md", "docs/tutorial.md", *howto} <= set(WITH_CODE)


@pytest.mark.parametrize("name", WITH_CODE)
def test_documents_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", [])  # what a document registers
    monkeypatch.chdir(tmp_path)
    run((ROOT / name).read_text(), name)


def test_the_way_to_a_section_of_a_file_of_ones_own(tmp_path, monkeypatch, capsys):
    """The first part of the README, with the file that it speaks of."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: the README is NOT tried")
    monkeypatch.chdir(tmp_path)
    data = np.arange(300 * 70.0).reshape(300, 70)
    with h5py.File("mine.h5", "w") as file:
        file["run/temperature"] = data
    part = (ROOT / "README.md").read_text().partition("\n## From nothing")[2].partition("\n## ")[0]
    commands = commands_of(part)
    assert [words[0] for words in commands] == ["ls", "info"]
    assert [main(words) for words in commands] == [0, 0]
    assert capsys.readouterr().out.count("/run/temperature") >= 2
    *before, last = re.findall(r"^>>> (.+)$", part, re.M)
    names = {}
    for line in before:
        exec(line, names)
    np.testing.assert_array_equal(data[100:200, ::7], eval(last, names))
    names["a"].close()


WITH_COMMANDS = [
    told(path) for path in DOCUMENTS if "design" not in path.parts and commands_of(path.read_text())
]


def test_documents_with_commands_are_found():
    assert {"README.md", "docs/howto/command-line.md", "docs/howto/ranks.md"} <= set(WITH_COMMANDS)


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_are_those_of_today(name, capsys):
    """Their arguments are ones that the command takes; the files are made up."""
    refused = []
    for words in commands_of((ROOT / name).read_text()):
        try:
            _parse(words)
        except SystemExit as ended:
            if ended.code:
                refused.append(f"outcore {shlex.join(words)}: {capsys.readouterr().err}")
    assert refused == []


def test_the_picture_is_what_its_command_draws(tmp_path, monkeypatch, capsys):
    """With the memory of a usual machine, and a disk that nobody measured (as in all tests)."""
    monkeypatch.chdir(tmp_path)
    document = ROOT / "docs" / "howto" / "collective.md"
    text = document.read_text()
    (command,) = re.findall(r"^outcore (explain .* --svg columns\.svg)$", text, re.M)
    ((picture,),) = [re.findall(r"!\[[^]]*\]\((.*\.svg)\)", text)]
    outcore.create("field.npy", (4096, 4096), "f8").close()
    with outcore.open("field.npy", hints={"cache": "bypass"}) as field:
        if field.explain((slice(None), slice(1024))).read_bytes != 4096 * (8192 + 512):
            pytest.skip("drawn for a disk with blocks of 512 bytes")
    with outcore.memory("1 GiB"):
        assert main(shlex.split(command)) == 0, capsys.readouterr().err
    assert Path("columns.svg").read_text() == (document.parent / picture).read_text(), (
        f"{picture} is stale: `outcore {command}` on zeros of 4096 x 4096 draws another"
    )


WITH_EXAMPLES = [
    name for name in ("outcore", *MODULES) if ">>>" in Path(find_spec(name).origin).read_text()
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstrings_run(name, tmp_path, monkeypatch, capsys):
    """Each in an empty folder, as a user would try it."""
    module = importlib.import_module(name)
    # The finder walks through the members of a package, and to look at some of them imports others.
    for below in MODULES:
        if below.startswith(f"{name}."):
            importlib.import_module(below)
    for number, test in enumerate(doctest.DocTestFinder(exclude_empty=True).find(module, name)):
        if test.examples:
            folder = tmp_path / str(number)
            folder.mkdir()
            monkeypatch.chdir(folder)
            run_doctest(test, capsys)


def test_links_lead_somewhere():
    missing = [
        (told(path), link)
        for path in DOCUMENTS
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
        if not (path.parent / link).exists()
    ]
    assert missing == []


def test_every_decision_record_is_listed():
    folder = ROOT / "docs" / "design"
    listed = set(re.findall(r"\((\d{4}-[^)]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


PUBLIC = {name: public for name, public in list_public() if not name.endswith("__")}


def test_public_names_are_documented():
    missing = [name for name, public in PUBLIC.items() if not (public.__doc__ or "").strip()]
    assert missing == []


WHOLE = [
    name
    for name, public in PUBLIC.items()
    if inspect.isfunction(public)
    or (inspect.isclass(public) and not issubclass(public, BaseException))
    # What mpi4py has, and documents.
    if public is not outcore.mpi.Communicator
]


# Methods that only the packages of outcore call. The list only shrinks.
OF_PACKAGES = {
    *("check_open", "check_values", "damages", "describe_in", "identity", "part", "read_as"),
    "text_bytes",
}


def test_docstrings_are_whole():
    """Each parameter is explained, so is what is returned, and there is an example."""
    assert [line for name in WHOLE for line in lacking(name)] == []


def lacking(name):
    """Name what the docstrings of a function or class, and of its methods, do not have."""
    public = PUBLIC[name]
    calls = [(name, public)] if inspect.isfunction(public) else []
    # Members of bases count, too: their modules need not be public.
    bases = inspect.getmro(public) if inspect.isclass(public) else ()
    ours = [vars(one) for one in reversed(bases) if one.__module__.startswith("outcore")]
    members = {member: value for one in ours for member, value in one.items()}
    for member, value in members.items():
        function = getattr(value, "__func__", value)
        if member.startswith("_") or member in OF_PACKAGES:
            continue
        if inspect.isfunction(function):
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
    return missing


def test_the_example_of_many_ranks_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["columns.py", "--ranks", "3"])
    runpy.run_path(str(ROOT / "examples" / "columns.py"), run_name="__main__")
    told = capsys.readouterr().out
    assert "3 ranks want 8.19 MB together" in told and "every element was compared" in told
