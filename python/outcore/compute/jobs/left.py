"""
Arrays that a job leaves on the disk, found by its journal: unfinished and temporary ones.

Problem. Whatever a journal lists is removed, and a journal may come from elsewhere.
Idea. Temporary arrays are found by their names. Unfinished ones are listed; nothing outside the
folder of the journal is removed, unless the user passes the other folders.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from outcore import formats
from outcore.compute.jobs.journal import Journal
from outcore.errors import FormatError
from outcore.formats import durable, homes

__all__ = [
    "check_folders",
    "list_removable",
    "list_temporaries",
    "list_unfinished",
    "make_temporary_path",
]


def list_temporaries(journal: str) -> list[str]:
    """List the temporary arrays of the job with this journal: the first one last, as for removal."""
    every = (make_temporary_path(journal, n) for n in itertools.count())
    return list(itertools.takewhile(os.path.exists, every))[::-1]


def make_temporary_path(journal: str, n: int) -> str:
    """Return the path of temporary array `n` of the job with this journal."""
    stem = journal.removesuffix(".outcore-journal")
    return durable.make_sibling_path(stem, f".outcore-temporary-{n}")


def list_unfinished(journal: Journal) -> list[tuple[str, str | None]]:
    """Return the unfinished arrays that a journal lists, and their formats."""
    kept = journal.cut if isinstance(journal.cut, dict) else {}
    try:
        found = [(path, format) for path, format in kept.get("partial", ())]
        known = all(type(p) is str and "\0" not in p and type(f) in _FORMAT for p, f in found)
    except (TypeError, ValueError):
        known = False
    if not known:
        raise journal.damaged_error()
    return found


_FORMAT = (str, type(None))


def list_removable(journal: Journal, folders: Sequence[str] = ()) -> list[tuple[str, str | None]]:
    """Return the unfinished arrays that a journal lists, after `check_folders`."""
    found = list_unfinished(journal)
    check_folders(journal.path, [path for path, _ in found], folders)
    return found


def check_folders(journal: str, paths: Sequence[str], folders: Sequence[str]) -> None:
    """Raise ``names-outside`` for an array outside of the folder of the journal and of `folders`."""
    files = [formats.split_path(path)[0] for path in paths]
    odd = homes.find_outside(files, "", os.path.dirname(journal) or ".", folders)
    if odd is not None:
        raise FormatError(
            f"{journal!r} lists {odd!r}, which is not in its folder; if that belongs to the job, "
            "pass its folder as folders=, or repeat the call with resume=True",
            code="names-outside",
            path=journal,
        )
