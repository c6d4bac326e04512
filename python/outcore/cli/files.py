"""Handle arrays with all their files: ``outcore cp | mv | rm | chmod | du | gather``."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from typing import Any

from outcore.base.report import format_bytes
from outcore.cli.output import print_json
from outcore.compute.copies.convert import convert
from outcore.errors import UsageError
from outcore.formats import whole

__all__ = ["add_commands"]


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module."""
    copy = command("cp", _copy, "copy an array as it is stored, with all its files")
    _add_two_paths(copy)
    copy.add_argument(
        "--folders", metavar="FOLDERS", help="folders for the parts, such as /disk1,/disk2"
    )
    _add_two_paths(command("mv", _move, "rename or move an array, with all its files"))
    gather = command("gather", _gather, "copy an array in parts into one file")
    _add_two_paths(gather)
    remove = command("rm", _remove, "remove arrays, with all their files")
    remove.add_argument("paths", nargs="+", metavar="path")
    mode = command("chmod", _chmod, "set the permissions of all files of arrays")
    mode.add_argument("mode", help="octal mode, such as 640")
    mode.add_argument("paths", nargs="+", metavar="path")
    usage = command("du", _measure_usage, "show the disk space that the files of an array use")
    usage.add_argument("path")


def _add_two_paths(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("source")
    sub.add_argument("target")
    sub.add_argument("--overwrite", action="store_true", help="replace the target")


def _say(words: Any, target: str) -> None:
    if words.json:
        print_json({"source": words.source, "target": target})


def _copy(words: Any) -> None:
    folders = None if words.folders is None else words.folders.split(",")
    _say(words, whole.copy(words.source, words.target, overwrite=words.overwrite, folders=folders))


def _move(words: Any) -> None:
    _say(words, whole.move(words.source, words.target, overwrite=words.overwrite))


def _gather(words: Any) -> None:
    convert(words.source, words.target, overwrite=words.overwrite)
    _say(words, words.target)


def _remove(words: Any) -> None:
    for path in words.paths:
        whole.remove(path)
    if words.json:
        print_json({"removed": words.paths})


def _chmod(words: Any) -> None:
    mode = -1
    with contextlib.suppress(ValueError):
        mode = int(words.mode, 8)
    if not 0 <= mode <= 0o7777:
        raise UsageError(
            f"{words.mode!r} is not a mode; write it in base 8, such as 640", code="bad-option"
        )
    for path in words.paths:
        whole.chmod(path, mode)
    if words.json:
        print_json({"changed": words.paths})


def _measure_usage(words: Any) -> None:
    found = []
    for name in whole.list_files(words.path):
        status = os.stat(name)
        found.append({"file": name, "nbytes": status.st_size, "on_disk": status.st_blocks * 512})
    total = {key: sum(int(str(one[key])) for one in found) for key in ("nbytes", "on_disk")}
    if words.json:
        print_json({"path": words.path, **total, "files": found})
        return
    for one in found if len(found) > 1 else ():
        print(f"{format_bytes(int(str(one['on_disk']))):>12}  {one['file']}")
    print(f"{format_bytes(total['on_disk']):>12}  {words.path}")
