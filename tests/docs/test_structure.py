"""What the documents promise of the structure and of the words, checked on the files."""

import re
import subprocess
from pathlib import Path

import pytest

from docs.rust_modules import Crate

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


@pytest.mark.parametrize("crate", ["plan", "io", "access", "compute"])
def test_files_of_a_crate_use_each_other_in_no_circle(crate):
    assert Crate(ROOT / "crates" / crate / "src").circles() == []
