"""What Sphinx is told: see `build.py`, which lays out what it reads."""

from __future__ import annotations

import inspect
from typing import Any

import outcore

project = "outcore"
author = "the authors of outcore"
project_copyright = author
release = version = outcore.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# Documents are read on GitHub-like viewers, too: anchors are made of headings in the same way.
myst_heading_anchors = 4
highlight_language = "none"
# In docstrings `name` is a name of the package where there is one, and else set apart.
default_role = "autolink"

autosummary_generate = False
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = f"outcore {release}"
html_show_sourcelink = False
html_copy_source = False

# Globs of `docs/index.md` that match nothing today.
suppress_warnings = ["toc.empty_glob"]


def skip_what_is_inherited(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Members that others document (of exceptions, mappings, ...) are left out."""
    for inner in ("fget", "func", "__func__"):  # of properties, cached ones, class methods
        member = getattr(member, inner, None) or member
    definer = getattr(member, "__objclass__", None)  # of what is written in C
    if callable(member) and not inspect.isclass(member):
        home = getattr(inspect.unwrap(member), "__module__", None) or "builtins"
    else:
        home = "outcore" if definer is None else definer.__module__
    return None if str(home).startswith("outcore") else True


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_what_is_inherited)
