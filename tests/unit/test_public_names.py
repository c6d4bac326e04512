"""What public calls return has a name in `outcore`: other people say with it what they take."""

import ast
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import outcore
from outcore import transport
from outcore.formats import layout

# Of `Chunked.source`: what a format tells the core about its chunks. Whoever needs them writes a format.
SOURCES = {"FileSource", "Identity", "ShardSource", "TableGuard", "TableSource"}
SPECIAL = {"__enter__", "__getitem__", "__iter__", "__next__"}


def classes(hint, found):
    """Add the classes of outcore that a type is made of to `found`."""
    for part in typing.get_args(hint):
        for each in part if isinstance(part, list | tuple) else (part,):
            classes(each, found)
    kind = typing.get_origin(hint) or hint
    if inspect.isclass(kind) and kind.__module__.split(".")[0] == "outcore":
        found.add(kind)
    return found


def given_by(thing):
    """Classes that a function, or the members of a class, give."""
    found = set()
    if not inspect.isclass(thing):
        return classes(typing.get_type_hints(thing).get("return"), found)
    for name, hint in typing.get_type_hints(thing).items():
        if not name.startswith("_"):
            classes(hint, found)
    for name, member in inspect.getmembers(thing):
        function = member.fget if isinstance(member, property) else member
        public = not name.startswith("_") or name in SPECIAL
        ours = getattr(function, "__module__", None) or ""
        if public and inspect.isroutine(function) and ours.startswith("outcore"):
            classes(typing.get_type_hints(function).get("return"), found)
    return found


def test_what_public_calls_return_can_be_imported():
    todo = [(name, getattr(outcore, name)) for name in outcore.__all__]
    seen, nameless = set(), {}
    while todo:
        where, thing = todo.pop()
        if thing in seen or not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        seen.add(thing)
        name = thing.__name__
        homes = [outcore, *([transport] if thing.__module__.startswith(transport.__name__) else [])]
        if inspect.isclass(thing) and not any(getattr(home, name, None) is thing for home in homes):
            nameless[name] = where
        todo += [(f"{where} -> {kind.__name__}", kind) for kind in given_by(thing)]
    assert {name: where for name, where in nameless.items() if name not in SOURCES} == {}
    assert set(nameless) == SOURCES <= set(vars(layout)), "the list above is out of date"
    # It has looked at something.
    assert {outcore.ArrayInfo, outcore.Attributes, outcore.Entry, outcore.MemoryLimit} <= seen
    assert {outcore.Part, outcore.OwnerReport, outcore.ArrayReport, outcore.Transport} <= seen


def test_open_with_a_communicator_is_known_to_give_a_collective_array():
    plain, together = typing.get_overloads(outcore.open)
    assert typing.get_type_hints(plain)["return"] is outcore.DiskArray
    hints = typing.get_type_hints(together)
    assert hints["return"] is outcore.CollectiveArray
    assert hints["comm"] == outcore.Communicator | outcore.Transport
    assert inspect.signature(together).parameters["comm"].default is inspect.Parameter.empty
    assert not set(outcore.__all__) - set(dir(outcore))


def test_what_is_imported_later_is_what_type_checkers_see():
    tree = ast.parse(Path(outcore.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {node.module: {one.name for one in node.names} for node in block.body}
    assert seen == {module: set(names.split()) for module, names in outcore._LATER.items()}
    assert set(outcore._HOMES) <= set(outcore.__all__) <= set(dir(outcore))
    # A module of that name would be found instead of the function.
    folder = Path(outcore.__file__).parent
    assert not [
        name
        for name in outcore._HOMES
        if list(folder.glob(f"{name}.py")) or (folder / name).is_dir()
    ]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        outcore.nonsense


def test_import_brings_no_algorithm():
    """Half of the time of ``import outcore`` was theirs; `outcore.jobs` is found all the same."""
    program = (
        "import sys, outcore; found = [m for m in sys.modules if m.startswith('outcore.ooc')]; "
        "outcore.jobs.resume, outcore.ooc, outcore.dist, outcore.assignment; print(*found)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
