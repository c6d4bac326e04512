"""What public calls return has a name in `outcore`: other people say with it what they take."""

import ast
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import outcore
from outcore.formats import layout
from outcore.formats.registry import OWN
from outcore.public import find_public, list_public
from outcore.ranks import transport

# Of `ArrayInfo`: what a format tells others about its elements and chunks. Whoever needs them writes a
# format.
SOURCES = {
    *("FileSource", "Identity", "ShardSource", "TableGuard", "TableSource"),
    *("Fill", "Strings", "VirtualMapping", "VirtualSource"),
}
# What only the packages of outcore use of an object of a user.
OF_PACKAGES = {"arguments", "core", "handle", "part", "tables"}
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
        if not name.startswith("_") and name not in OF_PACKAGES:
            classes(hint, found)
    for name, member in inspect.getmembers(thing):
        function = member.fget if isinstance(member, property) else member
        public = name in SPECIAL or not (name.startswith("_") or name in OF_PACKAGES)
        ours = getattr(function, "__module__", None) or ""
        if public and inspect.isroutine(function) and ours.startswith("outcore"):
            classes(typing.get_type_hints(function).get("return"), found)
    return found


def test_what_public_calls_return_can_be_imported():
    todo = list(list_public())
    public = [thing for _, thing in todo]
    seen, nameless = set(), {}
    while todo:
        where, thing = todo.pop()
        if thing in seen or not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        seen.add(thing)
        name = thing.__name__
        of_transport = getattr(transport, name, None) is thing
        if inspect.isclass(thing) and thing not in public and not of_transport:
            nameless[name] = where
        todo += [(f"{where} -> {kind.__name__}", kind) for kind in given_by(thing)]
    assert {name: where for name, where in nameless.items() if name not in SOURCES} == {}
    assert set(nameless) == SOURCES <= set(vars(layout)), "the list above is out of date"
    # It has looked at something.
    assert {
        outcore.types.ArrayInfo,
        outcore.types.Attributes,
        outcore.types.Entry,
        outcore.types.MemoryLimit,
    } <= seen
    assert {
        outcore.types.Part,
        outcore.mpi.OwnerReport,
        outcore.mpi.ArrayReport,
        outcore.mpi.Transport,
    } <= seen


def test_open_with_a_communicator_is_known_to_give_a_collective_array():
    plain, together = typing.get_overloads(outcore.open)
    assert typing.get_type_hints(plain)["return"] is outcore.DiskArray
    hints = typing.get_type_hints(together)
    assert hints["return"] is outcore.mpi.CollectiveArray
    assert hints["comm"] == outcore.mpi.Communicator | outcore.mpi.Transport
    assert inspect.signature(together).parameters["comm"].default is inspect.Parameter.empty
    assert not set(outcore.__all__) - set(dir(outcore))


def test_the_top_level_is_short_and_each_name_is_public_once():
    assert len(outcore.__all__) + len(outcore._MODULES) <= 80
    names = [full.rpartition(".")[2] for full, _ in list_public()]
    assert len(names) == len(set(names)) and set(outcore.__all__) < set(names)
    with pytest.raises(AttributeError, match="no public object 'nonsense'"):
        find_public("nonsense")


def test_what_is_imported_later_is_what_type_checkers_see():
    tree = ast.parse(Path(outcore.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {node.module: {one.name for one in node.names} for node in block.body}
    assert seen.pop("outcore") == set(outcore._MODULES)
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


# What ``import outcore`` brings, and what the first `open` or `create` brings of any format.
AT_IMPORT = {"_core", "arrays", "arrays.measured", "base", "base.ranked", "errors"}
AT_OPEN = {
    *AT_IMPORT,
    *(f"base.{name}" for name in ("casting", "hints", "report", "requests")),
    *(f"base.report.{name}" for name in ("access", "bars", "phases")),
    *(f"arrays.{name}" for name in ("creating", "disk", "handle", "opening")),
    *(f"arrays.disk.{name}" for name in ("array", "attributes", "described", "growth")),
    *(f"arrays.disk.{name}" for name in ("operators", "selecting", "walking")),
    "formats",
    *(f"formats.{name}" for name in ("durable", "fill_values", "growing", "layout", "locks")),
    *(f"formats.{name}" for name in ("missing_values", "paths", "spec", "members")),
    *(f"formats.{name}" for name in ("defaults", "finding", "format", "registry", "texts")),
    "base.closable",
}
# Libraries that are long to import, beside those that NumPy brings.
LONG = ("ctypes.util", "difflib", "h5py", "hashlib", "json", "mpi4py", "scipy", "secrets", "shutil")
LONG += ("socket", "ssl", "subprocess", "tomllib", "urllib", "zarr")


def imported(program):
    """Modules that a program has at its end and NumPy does not bring."""
    text = (
        f"import sys, numpy; before = set(sys.modules); {program}; "
        "print(*(set(sys.modules) - before), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def ours(found):
    return {name.removeprefix("outcore.") for name in found if name.startswith("outcore.")}


@pytest.mark.parametrize(
    ("first", "brings"), [("outcore", AT_IMPORT), ("outcore; outcore.open", AT_OPEN)]
)
def test_import_brings_little(first, brings, tmp_path):
    """
    ``import outcore`` took five times as long as NumPy, then 1.6 times; now 1.1 (of both together).

    No figures of disks are there to be read.
    """
    program = f"import os; os.environ['XDG_CACHE_HOME'] = {str(tmp_path)!r}; import {first}"
    found = imported(program)
    assert ours(found) == brings
    assert not found & set(LONG)
    if brings == AT_IMPORT:  # of the standard library next to nothing that NumPy has not brought
        assert len(found) <= len(AT_IMPORT) + 8, sorted(found)


def test_modules_are_attributes_without_an_import_of_their_own():
    for name in outcore._MODULES:
        assert name in ours(imported(f"import outcore; outcore.{name}"))


def test_what_is_imported_first_at_the_end_of_the_process_works(tmp_path):
    where = str(tmp_path / "a.npy")
    program = f"""
import atexit, outcore

def last():
    with outcore.create({where!r}, (3,), "i8") as a:
        a.iwrite(..., [1, 2, 3]).wait()

atexit.register(last)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert outcore.open(where)[:].tolist() == [1, 2, 3]


def test_what_is_imported_later_is_found_all_the_same():
    modules = ", ".join(f"outcore.{name}" for name in outcore._MODULES)
    assert "outcore.compute.jobs.leftovers" in imported(
        f"import outcore; {modules}; outcore.jobs.resume"
    )


@pytest.mark.parametrize(
    ("path", "brings"),
    [
        ("a.npy", {"npy", "raw", "locks"}),
        ("a.raw", {"raw"}),
        ("a.zarr", {"zarr.version3"}),
        ("a.h5", {"hdf5.format"}),
    ],
)
def test_a_format_is_imported_when_it_is_used(path, brings, tmp_path):
    where = str(tmp_path / path)
    call = f"outcore.create({where!r}, (3,), 'f8').close()"
    program = f"import outcore; {call}"
    if path != "a.raw":
        program += f"; outcore.open({where!r}).close()"
    found = {
        name.removeprefix("outcore.formats.")
        for name in imported(program)
        if name.startswith("outcore.formats.")
    }
    assert brings <= found
    modules = [one.where.partition(":")[0] for one in OWN]
    main = {name.removeprefix("outcore.formats.") for name in modules}
    others = main - brings
    if path == "a.h5":
        others -= {"npy", "raw", "netcdf.netcdf4"}  # marks of these are looked for before
    assert not found & others


def test_registry_agrees_with_the_classes_of_formats():
    for one in OWN:
        found = one.load()
        facts = (found.name, found.suffixes, found.is_folder, found.checks_marks, found.library)
        assert facts == (one.name, one.suffixes, one.is_folder, one.checks_marks, one.library)
