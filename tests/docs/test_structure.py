"""What the documents promise of the structure and of the words, checked on the files."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from docs.rust_modules import Crate
from outcore.formats import registry

ROOT = Path(__file__).resolve().parents[2]
#: Of docs/design/0027; a word that is also English or NumPy's is looked for where it had our meaning.
RETIRED = re.compile(
    r"\b(meetings?|vigils?|foresight|foreseen?|crowds?|crowded|crew|loans?|lent|wish(?:es)?|at.hand"
    r"|lets? go of|letting go|gates?|boards?)\b",
    re.IGNORECASE,
)
ALLOWED = re.compile(r"Van Loan|dashboards?")
KINDS = (".py", ".pyi", ".rs", ".md")
#: Tables of retired words, and pages of figures of earlier commits.
PAGES = ("docs/design/0027-words-of-the-field.md", "bench/figures/", "tests/docs/test_structure.py")


def files():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [name for name in listed if name.endswith(KINDS) and not name.startswith(PAGES)]


def test_no_file_has_a_word_that_was_retired():
    found = []
    for name in files():
        if not (ROOT / name).exists():
            continue
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
            word = RETIRED.search(ALLOWED.sub("", line).replace("_", " "))
            if word:
                found.append(f"{name}:{number}: {word[0]}")
    assert not found, "words that docs/design/0027 retired:\n" + "\n".join(found)


def test_only_names_that_end_so_are_in_the_slow_lane():
    """`./x test` leaves out what has `_slow` in its name: where it is another word, nobody runs it."""
    found = []
    for name in files():
        if name.endswith((".py", ".rs")) and (ROOT / name).exists():
            text = (ROOT / name).read_text("utf-8")
            found += [
                f"{name}: {of}" for of in re.findall(r"\b(?:def test|fn \w)(\w*_slow\w+)\(", text)
            ]
    assert not found, "tests that only the long lane runs by accident:\n" + "\n".join(found)


def test_circles_are_found(tmp_path):
    for name, text in {
        "lib.rs": "mod a; mod b; mod c;\npub use c::Third;",
        "a.rs": "use crate::b::{self, Second};",
        "b.rs": "// use crate::c\nuse super::c;\n",
        "c.rs": "fn f() { crate::a::g() }\n#[cfg(test)]\nmod tests { use crate::a; }",
    }.items():
        (tmp_path / name).write_text(text)
    assert Crate(tmp_path).circles() == [{("a",), ("b",), ("c",)}]
    (tmp_path / "c.rs").write_text("fn f() {}\n#[cfg(test)]\nmod tests { use crate::a; }")
    assert Crate(tmp_path).circles() == []


@pytest.mark.parametrize("crate", ["plan", "io", "access", "compute", "py"])
def test_files_of_a_crate_use_each_other_in_no_circle(crate):
    assert Crate(ROOT / "crates" / crate / "src").circles() == []


#: Where a file, an item of it, or the module that it declares may have unsafe code.
ALLOWS = re.compile(
    r"^ *#!?\[allow\(unsafe_code\b[^\]]*\)\](?:\n(?:pub )?mod (\w+)(;| \{))?", re.MULTILINE
)
TESTS = re.compile(r"(?:^|_)tests\.rs$")


def allowing_unsafe(root):
    """The files of crates, below their `src`, that allow unsafe code; those of tests left out."""
    found = set()
    for path in root.glob("*/src/**/*.rs"):
        if TESTS.search(path.name):
            continue
        for module, ends in ALLOWS.findall(path.read_text("utf-8")):
            if module != "tests":
                assert ends != " {", f"{path}: a module in a file allows unsafe code"
                found.add(path.with_name(f"{module}.rs") if module else path)
    return {str(path.relative_to(root)).replace("/src/", "/") for path in found}


def listed(text):
    """The paths in a table of files, of which several in a folder have braces around their names."""
    found = []
    for folder, names, name in re.findall(r"`([\w/]*/)(?:\{([\w,]+)\}|(\w+))\.rs`", text):
        found += [f"{folder}{one}.rs" for one in (names or name).split(",")]
    return found


def test_unsafe_code_is_where_the_architecture_says():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    section = text.partition("## Where unsafe code is")[2].partition("\n## ")[0]
    assert sorted(listed(section)) == sorted(allowing_unsafe(ROOT / "crates"))


def test_files_that_allow_unsafe_code_are_found(tmp_path):
    for name, text in {
        "a/src/lib.rs": "#![deny(unsafe_code)]\n#[allow(unsafe_code)]\nmod told;\nmod safe;",
        "a/src/safe.rs": "#[cfg(test)]\n#[allow(unsafe_code)]\nmod tests {}",
        "a/src/deep/file.rs": "//! Words.\n\n#![allow(unsafe_code)]\n",
        "a/src/item.rs": "impl A {\n    #[allow(unsafe_code)]\n    fn f() {}\n}",
        "a/src/deep/tests.rs": "#![allow(unsafe_code)]",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert allowing_unsafe(tmp_path) == {"a/told.rs", "a/deep/file.rs", "a/item.rs"}
    assert listed("`io/b/{c,d}.rs`, `io/e.rs`") == ["io/b/c.rs", "io/b/d.rs", "io/e.rs"]


@pytest.mark.parametrize(
    ("crate", "lint"),
    [
        ("plan", "forbid"),
        ("access", "forbid"),
        ("io", "deny"),
        ("compute", "deny"),
        ("py", "deny"),
    ],
)
def test_the_compiler_refuses_unsafe_code_elsewhere(crate, lint):
    root = (ROOT / "crates" / crate / "src/lib.rs").read_text("utf-8")
    assert f"#![{lint}(unsafe_code)]\n" in root


def test_a_file_that_allows_unsafe_code_allows_it_in_no_other():
    # A lint of a file is one of the modules below it, too.
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        if "#![allow(unsafe_code" in path.read_text("utf-8"):
            below = path.with_suffix("") if path.name != "mod.rs" else path.parent
            assert path.name != "mod.rs" and not below.is_dir(), path


PACKAGE = ROOT / "python/outcore"
NAMES = {one.name for one in registry.OWN} | set(registry._ALIASES) | {"netcdf", "netcdf3", "hdf"}
SUFFIXES = tuple(suffix for one in registry.OWN for suffix in one.suffixes)
#: Modules of formats, directly below `outcore.formats`.
MODULES = {one.where.partition(":")[0].split(".")[2] for one in registry.OWN}
#: Names that are also words: they are names only as the value of `format`, and in comparisons.
WORDS = {"parts"}
#: Where code outside of `formats/` may name a format, and why. Entries are only removed.
NAMED = {
    ("arrays/indices/schedule_files.py", ".npy"): "members of a zip file that numpy.load reads",
}


def formats_named(text):
    """Names and suffixes of formats in the strings of a module without docstrings, and imports."""
    tree = ast.parse(text)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            value = node.value
            if isinstance(above[node], ast.Expr):
                continue
            if value in NAMES and (value not in WORDS or is_format(node, above)):
                yield value
            elif value.endswith(SUFFIXES) and " " not in value:
                yield "." + value.rpartition(".")[2]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for one in node.names:
                path = (start + one.name).split(".")
                if path[:2] == ["outcore", "formats"] and set(path[2:3]) & MODULES:
                    yield f"import {path[2]}"


def is_format(node, above):
    """Whether a string is compared, or the value of `format`."""
    parent = above[node]
    while isinstance(parent, ast.Tuple | ast.List | ast.Set):
        node, parent = parent, above[parent]
    if isinstance(parent, ast.Dict):
        keys = dict(zip(parent.values, parent.keys, strict=True))
        return isinstance(keys.get(node), ast.Constant) and keys[node].value == "format"
    return isinstance(parent, ast.Compare) or (
        isinstance(parent, ast.keyword) and parent.arg == "format"
    )


def test_no_format_is_named_outside_of_formats():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if not name.startswith("formats/"):
            found |= {(name, one) for one in formats_named(path.read_text("utf-8"))}
    new = sorted(found - set(NAMED))
    assert not new, f"ask the format (outcore.formats.format) instead of naming one: {new}"
    gone = sorted(set(NAMED) - found)
    assert not gone, f"entries of NAMED that are no longer needed: {gone}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("if info.format == 'zarr': pass", ["zarr"]),
        ("create(path, format='npy')", ["npy"]),
        ("known = {'hdf5': 1}", ["hdf5"]),
        ("name.startswith('netcdf')", ["netcdf"]),
        ("f'{name}.h5'", [".h5"]),
        ("path = 'rows.npy'", [".npy"]),
        ("from outcore.formats.zarr.tree import place", ["import zarr"]),
        ("from outcore.formats import raw", ["import raw"]),
        ("import outcore.formats.hdf5.access", ["import hdf5"]),
        ("array.format in ('parts', other)", ["parts"]),
        ("{'format': 'parts'}", ["parts"]),
        ("f(format='parts')", ["parts"]),
        ("f(parts, 'parts'); {'parts': 1}; words['parts']", []),
        ("'docs: zarr'\n'zarr'", []),
        ("from outcore.formats import durable", []),
        ("raise ValueError('use a file such as a.npy')", []),
    ],
)
def test_names_of_formats_are_found(text, named):
    assert list(formats_named(text)) == named
