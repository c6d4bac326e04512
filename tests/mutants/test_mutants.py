"""The lists of mutants fit the code: what they change is there, and so are the tests that must notice."""

import ast
import builtins
import re
import tomllib

import pytest

from mutants import LISTS, Mutant, every
from mutants.lane import ROOT, SURVIVORS, change_of, without_place

ALL = every()


def test_every_entry_fits_the_code():
    bad = [problem for mutant in ALL for problem in mutant.problems(ROOT)]
    assert not bad, "\n".join(["the lists in tests/mutants must follow the code:", *bad])
    assert len({(one.file, one.before, one.after) for one in ALL}) == len(ALL)


def names_of(tree):
    """Names that a module uses, and names that it defines anywhere."""
    used, defined = set(), set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
    return used, defined


def test_changed_code_can_run():
    """A change that cannot be compiled, or names what does not exist, is killed by any test."""
    wrong = []
    for one in ALL:
        if not one.file.endswith(".py"):
            continue
        text = (ROOT / one.file).read_text().replace(one.before, one.after)
        try:
            used, defined = names_of(ast.parse(text))
        except SyntaxError as error:
            wrong.append(f"{one.title}: {error}")
        else:
            wrong += [f"{one.title}: there is no {name}" for name in used - defined]
    assert wrong == []


def test_every_list_is_tried():
    here = {path.stem for path in SURVIVORS.parent.glob("*.py")}
    assert here == {"__init__", "lane", "test_mutants", *LISTS}


def test_survivors_have_reasons_and_their_files_are_there():
    known = tomllib.loads(SURVIVORS.read_text())
    files = [part["file"] for part in known["part"]]
    assert len(set(files)) == len(files)
    for part in known["part"]:
        assert (ROOT / part["file"]).is_file() and part["tests"], part
    for one in known["survivor"]:
        assert one["file"] in files and len(one["why"]) >= 15, one
        # A function that is gone has no survivors.
        named = re.search(r" in (?:<impl .*>::)?(?:\w+(?:<.*>)?::)*(\w+)$", one["change"])
        if named and "*" not in named[0]:
            assert f"fn {named[1]}" in (ROOT / one["file"]).read_text(), one


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"before": "x" * 99}, "0 times"),
        ({"before": "import"}, "times, not once"),
        ({"after": "import re\n"}, "nothing is changed"),
        ({"killed_by": "tests/mutants/test_mutants.py::test_gone"}, "no test 'tests"),
        ({"killed_by": "tests/gone.py::test_every_list_is_tried"}, "no test 'tests/gone"),
        ({"killed_by": "cargo outcore-io crash gone"}, "no test 'cargo"),
        ({"killed_by": "cargo outcore-io lock::tests::gone"}, "no test 'cargo"),
        ({"killed_by": ()}, "no test, or no reason"),
        ({"why": "so"}, "no test, or no reason"),
    ],
)
def test_an_entry_that_does_not_fit_is_named(change, problem):
    good = {
        "file": "tests/mutants/test_mutants.py",
        "before": "import re\n",
        "after": "",
        "killed_by": (
            "tests/mutants/test_mutants.py::test_every_list_is_tried",
            "cargo outcore-io lock::tests::waiting_can_be_cancelled",
            "cargo outcore-io claim who_opens_a_claimed_file_waits",
        ),
        "why": "an example that fits the code",
    }
    assert Mutant(**good).problems(ROOT) == []
    (found,) = Mutant(**{**good, **change}).problems(ROOT)
    assert problem in found


def test_changes_are_named_without_their_place():
    name = "crates/io/src/lock.rs:55:51: replace << with >>"
    assert without_place(name) == "crates/io/src/lock.rs: replace << with >>"
    assert change_of(without_place(name)) == "replace << with >>"
