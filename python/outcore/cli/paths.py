"""
Show and verify arrays on disk, in one path or several: ``outcore info | ls | verify``.

Approach: each path is processed independently. An error in one goes to stderr, and the others are still
processed; the exit status is the worst of them (`outcore.cli.status`).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import outcore
from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.base.report import Report, format_bytes
from outcore.cli.output import Bar, print_json
from outcore.cli.parsing import parse_options
from outcore.cli.status import DAMAGE, DAMAGED, DONE, NOT_READ, UNSEEN, process_each
from outcore.errors import SectionError
from outcore.formats import durable
from outcore.formats.layout import Chunked, Strided, TableSource, VirtualSource
from outcore.formats.spec import order_fields

__all__ = ["add_commands"]


def add_commands(
    command: Callable[..., argparse.ArgumentParser], reads: Callable[..., None]
) -> None:
    """Add the commands of this module."""
    info = command("info", _info, "show shape, dtype and storage of arrays, and the cost of reads")
    reads(info, "paths", nargs="+", metavar="path")
    listing = command("ls", _ls, "list the arrays and groups in files or folders")
    listing.add_argument("paths", nargs="+", metavar="path")
    listing.add_argument("--tree", action="store_true", help="print a tree")
    verify = command("verify", _verify, "read all elements and list the damaged parts")
    verify.epilog = (
        "Exit status: 0 no damage, 1 damage found, 2 invalid call, 3 no damage in the parts that could "
        "be read, but some files could not be opened or do not exist."
    )
    reads(verify, "paths", nargs="+", metavar="path")


def _print(args: Any, told: list[Any], status: int) -> int:
    """Print one JSON document with --json: the result of a single path, or a list."""
    if args.json:
        print_json(told[0] if len(args.paths) == 1 else told)
    return status


def _info(args: Any) -> int:
    options = parse_options(args.set)
    shown = 0

    def look(path: str) -> tuple[Any, int]:
        nonlocal shown
        told = _collect_facts(path, options)
        if not args.json:
            if shown:
                print()
            _show(told)
        elif isinstance(told, list):
            entries = [_convert_entry(one) for one in told]
            return entries if len(args.paths) == 1 else {"path": path, "entries": entries}, DONE
        shown += 1
        return told, DONE

    return _print(args, *process_each(args.paths, look))


def _ls(args: Any) -> int:
    def look(path: str) -> tuple[Any, int]:
        if args.tree and not args.json:
            with outcore.open_group(path) as group:
                print(f"{path}\n{group.tree()}" if len(args.paths) > 1 else group.tree())
            return None, DONE
        entries = formats.ls(path)
        if not args.json:
            _show(entries)
            return None, DONE
        told = [_convert_entry(one) for one in entries]
        return told if len(args.paths) == 1 else {"path": path, "entries": told}, DONE

    return _print(args, *process_each(args.paths, look))


def _verify(args: Any) -> int:
    options = parse_options(args.set)

    def look(path: str) -> tuple[Any, int]:
        with Bar("verifying", quiet=args.quiet or args.json) as bar:
            found = outcore.verify(path, progress=bar, **options)
        closed = sum(d.code in NOT_READ and d.reason not in DAMAGE for d in found)
        damaged = len(found) - closed
        if not args.json:
            for damage in found:
                print(damage)
            if not args.quiet:
                count = f"{damaged} damaged" if damaged else "no damage found"
                print(f"{path}: {count}" + (f", {closed} could not be opened" if closed else ""))
        status = DAMAGED if damaged else UNSEEN if closed else DONE
        return {"path": path, "damages": found}, status

    return _print(args, *process_each(args.paths, look))


# Facts about a path


def _convert_entry(one: formats.Entry) -> dict[str, Any]:
    return {
        "path": one.path,
        "kind": one.kind,
        "shape": None if one.shape is None else list(one.shape),
        "dtype": None if one.dtype is None else _format_dtype(one.dtype),
        "note": one.note,
    }


def _format_dtype(dtype: np.dtype[Any]) -> Any:
    if not dtype.names:
        return dtype.str
    # `descr` requires fields in the order of their offsets.
    return dtype.descr if order_fields(dtype) is dtype else str(dtype)


def _collect_facts(path: str, options: dict[str, Any]) -> dict[str, Any] | list[formats.Entry]:
    """Return the facts about an array, or the entries of a path that holds several."""
    if not options and formats.split_path(path)[1] is None:
        entries = formats.ls(path)
        arrays = [e for e in entries if e.kind == "array"]
        if len(arrays) > 1 or (arrays and arrays[0].path != path):
            if len(arrays) != 1:
                return entries
            path = arrays[0].path
    with outcore.open(path, **options) as array:
        info = array.info
        layout = info.layout
        stored, whole = _measure_on_disk(array)
        reports = {name: _explain_access(array, key) for name, key in _list_accesses(array).items()}
        return {
            "path": array.path,
            "format": array.format,
            "shape": list(array.shape),
            "dtype": _format_dtype(array.dtype),
            "order": array.order,
            "nbytes": array.nbytes,
            "chunks": None if array.chunks is None else list(array.chunks),
            "codecs": [
                f"{codec.name} {dict(codec.options)}" if codec.options else codec.name
                for codec in (layout.codecs if isinstance(layout, Chunked) else ())
            ],
            "fill_value": array.fill_value,
            "dims": array.dims,
            "attrs": dict(array.attrs),
            "extra": dict(info.extra),
            "stored_bytes": stored,
            "file_bytes": whole,
            "accesses": {
                name: report if isinstance(report, dict) else dataclasses.asdict(report)
                for name, report in reports.items()
            },
        }


def _show(told: dict[str, Any] | list[formats.Entry]) -> None:
    if isinstance(told, list):
        width = max((len(e.path) for e in told), default=0)
        for e in told:
            what = f"{e.dtype} {e.shape}" if e.kind == "array" else e.kind
            if e.note:
                why = e.note.removeprefix(f"{e.path!r}").lstrip(" :")
                what = f"{e.kind} that cannot be opened: {why}"
            print(f"{e.path:<{width}}  {what}")
        return
    stored, whole = told["stored_bytes"], told["file_bytes"]
    for name, value in told.items():
        if name == "nbytes":
            around = f", in {format_bytes(whole)}" if whole != stored else ""
            print(
                f"{'size':<10} {format_bytes(value)} of elements, {format_bytes(stored)} on disk{around}"
            )
        elif name in ("stored_bytes", "file_bytes", "accesses"):
            continue
        elif name in ("attrs", "extra"):
            for key, item in value.items():
                print(f"{name.removesuffix('s') if name == 'attrs' else '':<10} {key} = {item!r}")
        elif value is not None and not (isinstance(value, list) and not value):
            print(f"{name:<10} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    print(f"\n{'access':<10} {'useful':>10} {'moved':>10} {'requests':>9}  method")
    for name, report in told["accesses"].items():
        if "refused" in report:
            print(f"{name:<10} {report['refused']}")
            continue
        requests = report["reads"] + report["writes"]
        moved = report["read_bytes"] + report["written_bytes"] + report["mapped_bytes"]
        sizes = f"{format_bytes(report['useful_bytes']):>10} {format_bytes(moved):>10}"
        print(f"{name:<10} {sizes} {requests:>9}  {report['method']}")


def _list_accesses(array: DiskArray) -> dict[str, Any]:
    """Return keys of common accesses: a row, a column, a chunk, the whole array."""
    middle = tuple(n // 2 for n in array.shape)
    found: dict[str, Any] = {}
    if array.ndim and array.size:
        for axis, name in ((array.ndim - 1, "row"), (0, "column")):
            if array.ndim > 1 or name == "row":
                key: list[Any] = [*middle]
                key[axis] = slice(None)
                found[name] = tuple(key)
        if array.chunks:
            chunk = zip(middle, array.chunks, strict=True)
            found["chunk"] = tuple(slice(i // c * c, i // c * c + c) for i, c in chunk)
    found["whole"] = ...
    return found


def _measure_on_disk(array: DiskArray) -> tuple[int, int]:
    """Return the stored bytes of an array, and the bytes of the files or the store that contain it."""
    info, (outer, inner) = array.info, formats.split_path(array.path)
    whole = sum(map(_count_bytes, info.extra.get("files", (outer,))))
    whole += sum(map(_count_bytes, info.extra.get("parts", ())))
    if isinstance(info.layout, Strided):
        # Records of NetCDF variables have those of others between them.
        parts = min(sum(part.nbytes for part in info.layout.parts), array.nbytes)
        stored = whole if inner is None else parts
    elif isinstance(info.layout.source, TableSource):
        count = info.layout.source.nbytes
        stored = 0 if count is None else count()
    elif isinstance(info.layout.source, VirtualSource):
        stored = 0  # all elements are stored in other arrays
    else:
        stored = _count_bytes(info.layout.source.root)
    return stored, whole


def _count_bytes(path: str) -> int:
    """Return the size of a file, or of all files in a folder."""
    with durable.os_errors("looking at", path):
        if not os.path.isdir(path):
            return os.stat(path).st_size
    found = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                found += os.lstat(os.path.join(folder, name)).st_size
    return found


def _explain_access(array: DiskArray, key: Any) -> Report | dict[str, str]:
    """Return the report of an access, or the error that rejects it."""
    try:
        return array.explain(key)
    except SectionError as error:
        return {"refused": error.message, "code": error.code}
