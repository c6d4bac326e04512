"""The site of the documentation, as far as it can be seen without Sphinx; `./x docs` builds it."""

import fnmatch
import importlib.util
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import outcore
from outcore.public import list_public

ROOT = Path(__file__).resolve().parents[2]


def of_site(name):
    """A module of docs/site."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs/site" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build, reference = of_site("build"), of_site("reference")


def test_every_public_name_has_one_page_and_stands_in_the_index(tmp_path):
    pages = reference.write(tmp_path)
    names = [path.stem for path in pages if path.name != "index.rst"]
    public = [name for name, _ in list_public() if not name.endswith("__")]
    assert len(names) == len(set(names)) and set(public) <= set(names)
    index = (tmp_path / "index.rst").read_text()
    assert sorted(re.findall(r"^   ~(\S+)$", index, re.M)) == sorted(names)
    text = (tmp_path / "classes" / "outcore.DiskArray.rst").read_text()
    assert ".. autoclass:: outcore.DiskArray\n   :members:\n" in text
    assert ".. autoexception:: outcore.errors.FormatError\n" in (
        (tmp_path / "classes" / "outcore.errors.FormatError.rst").read_text()
    )


def test_a_name_that_is_new_appears(tmp_path, monkeypatch):
    def fresh() -> None:
        """Nothing."""

    fresh.__module__ = "outcore.arrays.opening"
    monkeypatch.setattr(outcore, "fresh", fresh, raising=False)
    monkeypatch.setattr(outcore, "__all__", [*outcore.__all__, "fresh"])
    assert tmp_path / "functions/outcore.fresh.rst" in reference.write(tmp_path)
    assert "outcore.fresh" in reference.groups()[0].names


def entries():
    """What the tables of contents of the site name: documents, or globs of them."""
    text = (ROOT / "docs/index.md").read_text()
    tables = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.S | re.M)
    lines = [line for table in tables for line in table.splitlines() if line[:1] not in ("", ":")]
    return [line[1:] if line.startswith("/") else f"docs/{line}" for line in lines]


def listed(name, among):
    parts = name.removesuffix(".md").split("/")
    return any(
        len(parts) == len(entry.split("/"))
        and all(map(fnmatch.fnmatchcase, parts, entry.split("/")))
        for entry in among
    )


def test_every_page_is_in_a_table_of_contents():
    pages, _ = build.documents()
    names = {str(page.relative_to(ROOT)) for page in pages} - {"docs/index.md"}
    assert {"README.md", "docs/tutorial.md", "docs/howto/coming-from.md"} <= names
    assert [name for name in sorted(names) if not listed(name, entries())] == []
    assert not listed("docs/elsewhere/page.md", entries())


def test_pages_in_tables_of_contents_exist():
    pages, _ = build.documents()
    names = [str(page.relative_to(ROOT)) for page in pages]
    for entry in entries():
        if "*" not in entry and entry != "docs/reference/index":
            assert f"{entry}.md" in names


def test_links_of_the_site_lead_to_its_pages():
    page = ROOT / "docs" / "tutorial.md"
    text = "[a](howto) [b](design) [c](howto/fft.md#x) [d](../examples/columns.py)\n"
    code = "```text\n[e](howto)\n```\n"
    assert build.for_site(page, text + code) == (
        "[a](index.md) [b](design/README.md) [c](howto/fft.md#x) [d](../examples/columns.py)\n"
        + code
    )


def test_pictures_are_where_their_comments_are():
    page = ROOT / "docs" / "gallery.md"
    text = page.read_text()
    names = [name for name, _ in build.PICTURE.findall(text)]
    assert len(names) == len(set(names)) >= 5
    assert [name for name in names if f"]({name})" not in build.for_site(page, text)] == []


def test_pictures_are_drawn_by_the_code_of_their_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nopen('a.svg', 'w').write('<svg/>')\n```\n<!-- picture: a.svg: a -->\n"
    )
    build.draw(page, ["a.svg"], tmp_path / "out")
    assert (tmp_path / "out" / "a.svg").read_text() == "<svg/>"


SETTINGS = (ROOT / "docs/status/settings.md").read_text()


def rows(heading):
    """The first cells of the first table below a heading, and the cells of each row."""
    lines = SETTINGS.partition(f"\n## {heading}\n")[2].splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("|"))
    last = next(n for n, line in enumerate([*lines, ""]) if n > first and not line.startswith("|"))
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines[first + 2 : last]]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_environment_variable_is_told():
    files = list((ROOT / "python/outcore").rglob("*.py"))
    # Of crates what only tests read is in files of tests.
    files += [
        path
        for path in (ROOT / "crates").glob("*/src/**/*.rs")
        if not re.search(r"(^|_)(tests|timing)\.rs$", path.name)
    ]
    read = {
        name for path in files for name in re.findall(r"\bOUTCORE_[A-Z0-9_]+", path.read_text())
    }
    assert set(rows("Environment variables")) == read


def test_every_hint_is_told_with_its_values():
    table = rows("Hints")
    assert list(table) == [field.name for field in fields(outcore.Hints)]
    default = outcore.Hints()
    for name, cells in table.items():
        values = re.findall(r"`(\w+)`", cells[0])
        if not values:
            continue
        assert cells[1] == f"`{getattr(default, name)}`"
        for value in values:
            outcore.Hints(**{name: value})
        with pytest.raises(outcore.errors.UsageError) as refused:
            outcore.Hints(**{name: "nothing"})
        assert set(re.findall(r"'?(\w+)'?", str(refused.value))) >= set(values)
