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


def _say(args: Any, target: str) -> None:
    if args.json:
        print_json({"source": args.source, "target": target})


def _copy(args: Any) -> None:
    folders = None if args.folders is None else args.folders.split(",")
    _say(args, whole.copy(args.source, args.target, overwrite=args.overwrite, folders=folders))


def _move(args: Any) -> None:
    _say(args, whole.move(args.source, args.target, overwrite=args.overwrite))


def _gather(args: Any) -> None:
    convert(args.source, args.target, overwrite=args.overwrite)
    _say(args, args.target)


def _remove(args: Any) -> None:
    for path in args.paths:
        whole.remove(path)
    if args.json:
        print_json({"removed": args.paths})


def _chmod(args: Any) -> None:
    mode = -1
    with contextlib.suppress(ValueError):
        mode = int(args.mode, 8)
    if not 0 <= mode <= 0o7777:
        raise UsageError(
            f"{args.mode!r} is not a mode; write it in base 8, such as 640", code="bad-option"
        )
    for path in args.paths:
        whole.chmod(path, mode)
    if args.json:
        print_json({"changed": args.paths})


def _measure_usage(args: Any) -> None:
    found = []
    for name in whole.list_files(args.path):
        status = os.stat(name)
        found.append({"file": name, "nbytes": status.st_size, "on_disk": status.st_blocks * 512})
    total = {key: sum(int(str(one[key])) for one in found) for key in ("nbytes", "on_disk")}
    if args.json:
        print_json({"path": args.path, **total, "files": found})
        return
    for one in found if len(found) > 1 else ():
        print(f"{format_bytes(int(str(one['on_disk']))):>12}  {one['file']}")
    print(f"{format_bytes(total['on_disk']):>12}  {args.path}")
