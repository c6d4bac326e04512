"""
The pages of the API reference, made from what the package says of itself.

Problem. A list of names that somebody keeps by hand lacks the newest ones. Idea. `outcore.public` has
the list. What stands together is what one package defines, under the first sentence of its docstring;
each name has a page, which Sphinx fills from docstrings. A name that is added appears by itself.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outcore.public import list_public

__all__ = ["Group", "groups", "write"]

#: What a reader looks for first; other groups follow by name. A name here that is gone does no harm.
_FIRST = (
    *(
        "outcore.arrays.opening",
        "outcore.arrays.creating",
        "outcore.arrays.disk",
        "outcore.arrays.blocks",
        "outcore.base.hints",
    ),
    "outcore.errors",
)
#: Floors, whose packages are groups of their own.
_FLOORS = ("base", "arrays", "ranks", "compute", "problems", "model")
#: Public, and not in ``outcore.__all__``: what `docs/release.md` counts as interface.
_BESIDE = (
    "outcore.testing.sim.SimWorld",
    "outcore.testing.conformance.check_transport",
)


@dataclass
class Group:
    """Names that one package defines."""

    home: str
    title: str
    names: list[str] = field(default_factory=list)


def home_of(public: Any) -> str:
    """Tell the package, or the module that is in none, that defines something public."""
    parts = str(getattr(public, "__module__", "outcore")).split(".")
    return ".".join(parts[: 3 if parts[1:2] and parts[1] in _FLOORS else 2])


def title_of(home: str) -> str:
    """The first paragraph of its docstring, as a title."""
    paragraph = (inspect.getdoc(importlib.import_module(home)) or home).strip().split("\n\n")[0]
    return " ".join(paragraph.split()).replace("`", "").removesuffix(".")


def found(full: str) -> Any:
    """The object with this full name."""
    module, _, name = full.rpartition(".")
    return getattr(importlib.import_module(module), name)


def groups() -> list[Group]:
    """All public names, in groups."""
    made: dict[str, Group] = {}
    listed = [name for name, _ in list_public() if not name.endswith("__")]
    for full in [*listed, *_BESIDE]:
        home = home_of(found(full))
        made.setdefault(home, Group(home, title_of(home))).names.append(full)
    first = [home for home in _FIRST if home in made]
    return [made[home] for home in [*first, *sorted(set(made) - set(first))]]


def kind_of(public: Any) -> str:
    """Tell the directive of Sphinx for something public."""
    if inspect.isclass(public):
        return "exception" if issubclass(public, BaseException) else "class"
    return "function" if callable(public) else "data"


def page_of(full: str) -> tuple[str, str]:
    """Give the name of the file and the text for one public name."""
    public = found(full)
    kind = kind_of(public)
    lines = [full, "=" * len(full), "", f".. auto{kind}:: {full}"]
    if kind in ("class", "exception"):
        lines += ["   :members:", "   :inherited-members:", "   :member-order: groupwise"]
    # `Slab` and `slab` would be one file on some file systems.
    folder = "classes" if inspect.isclass(public) else "functions"
    return f"{folder}/{full}.rst", "\n".join([*lines, ""])


def index_of(made: list[Group]) -> str:
    """Give the text of the page with all names."""
    head = "API reference"
    lines = [head, "=" * len(head), ""]
    lines += ["Every public name, by what it is for. Most are used as ``outcore.NAME``.", ""]
    for group in made:
        lines += [
            group.title,
            "-" * len(group.title),
            "",
            ".. autosummary::",
            "   :nosignatures:",
            "",
        ]
        lines += [f"   ~{name}" for name in group.names] + [""]
    lines += [".. toctree::", "   :hidden:", "   :glob:", "", "   classes/*", "   functions/*", ""]
    return "\n".join(lines)


def write(folder: Path) -> list[Path]:
    """Write all pages into a folder; which these are."""
    made = groups()
    pages = dict(page_of(name) for group in made for name in group.names)
    pages["index.rst"] = index_of(made)
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [folder / name for name in pages]
