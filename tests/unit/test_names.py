"""Functions are verbs, and a class name means one thing. Both lists may only shrink."""

import ast
import re
from collections import Counter
from pathlib import Path

import outcore

SOURCES = Path(outcore.__file__).parent
IRREGULAR = {
    *("begun", "broken", "chosen", "done", "drawn", "found", "given", "gone", "grown", "held"),
    *("hidden", "kept", "known", "left", "lost", "made", "meant", "said", "seen", "sent", "shown"),
    *("taken", "thrown", "told", "won", "written"),
}
NOT_PARTICIPLES = {"embed", "feed", "need", "seed", "speed"}
# Names of NumPy, of futures and transports, public names, and what arrays share with the core.
PARTICIPLES = {"done", "replicated", "searchsorted", "shared", "stored", "unfinished"}
TWICE: set[str] = set()


def nodes(kind):
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, kind):
                yield path, node


def is_property(function):
    names = {getattr(one, "id", getattr(one, "attr", "")) for one in function.decorator_list}
    return bool(names & {"property", "cached_property"})


def test_functions_are_not_named_by_bare_participles():
    found = set()
    for _, function in nodes(ast.FunctionDef):
        word = function.name.strip("_")
        regular = re.fullmatch("[a-z]+ed", word) and word not in NOT_PARTICIPLES
        if (regular or word in IRREGULAR) and not is_property(function):
            found.add(function.name)
    assert found == PARTICIPLES, "a name that is gone leaves the list; a new one needs a verb"


def test_public_class_names_are_defined_once():
    counts = Counter(node.name for _, node in nodes(ast.ClassDef) if node.name[0] != "_")
    assert {name for name, times in counts.items() if times > 1} == TWICE
