"""
Create arrays and groups: ``outcore create``, and the options of a target that `convert` shares.

Approach: options have the names of `outcore.create`, and their values are parsed as Python literals:
``--attr scale=0.5`` is a number, ``--attr units=K`` is text.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from typing import Any

import outcore
from outcore.cli.output import print_json
from outcore.cli.parsing import parse_lengths, parse_literal, parse_named
from outcore.errors import FormatError, UsageError

__all__ = ["add_command", "add_target_arguments", "get_target_options", "read_attributes"]


def add_command(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `create`."""
    create = command("create", _create, "create a group, or an array filled with its fill value")
    create.add_argument("target", help="path of the new array; its suffix determines the format")
    create.add_argument("--shape", help="such as 100,200; none for an array without axes")
    for name, text in (
        ("dtype", "such as f4 or '>i2'"),
        ("format", "name of the format, instead of the suffix"),
        ("order", "C or F"),
        ("chunks", "such as 100,200"),
        ("shards", "such as 1000,2000"),
        ("compression", "such as zstd, zstd:3, gzip"),
    ):
        create.add_argument(f"--{name}", help=text)
    create.add_argument("--group", action="store_true", help="create a group; accepts only --attr")
    create.add_argument("--overwrite", action="store_true", help="replace an existing array")
    add_target_arguments(create)


def add_target_arguments(sub: argparse.ArgumentParser) -> None:
    """Add the options of a new array other than its elements."""
    group = sub.add_argument_group("options of the new array")
    for name, metavar, text in (
        (
            "dims",
            "NAMES",
            "names of the axes, such as time,lat,lon; empty for an axis without a name",
        ),
        ("fill-value", "VALUE", "value of elements that were never written"),
        ("unlimited", "NAMES", "names of axes that may grow, or all (NetCDF4)"),
        ("maxshape", "LENGTHS", "maximum lengths, such as none,200 (HDF5)"),
        ("separator", "MARK", "separator of coordinates in chunk names: / or . (Zarr)"),
    ):
        group.add_argument(f"--{name}", metavar=metavar, help=text)
    group.add_argument(
        "--attr",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="attribute to set, in addition to those copied from the source; repeatable",
    )


def get_target_options(
    args: Any, attributes: Callable[[], Mapping[str, Any]] = dict
) -> dict[str, Any]:
    """
    Return the options of a new array as keywords of `outcore.create`.

    `attributes` returns the attributes that new ones are added to; it is called only if there are new
    ones.
    """
    options: dict[str, Any] = {}
    if args.dims is not None:
        options["dims"] = [name or None for name in args.dims.split(",")]
    if args.fill_value is not None:
        options["fill_value"] = parse_literal(args.fill_value)
    if args.unlimited is not None:
        everything = args.unlimited == "all"
        options["unlimited"] = True if everything else args.unlimited.split(",")
    if args.maxshape is not None:
        options["maxshape"] = [_parse_length(part) for part in args.maxshape.split(",")]
    if args.separator is not None:
        options["separator"] = args.separator
    if args.attr:
        options["attrs"] = {**attributes(), **parse_named(args.attr, "attr")}
    return options


def _parse_length(text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not re.fullmatch(r"[0-9]+", text):
        raise UsageError(
            f"--maxshape: {text!r} is not a length; write whole numbers, or none for no limit, such as "
            "none,200",
            code="bad-option",
        )
    return int(text)


def read_attributes(path: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of an array; none for other paths, which `convert` rejects."""
    try:
        with outcore.open(path, **options) as array:
            return dict(array.attrs)
    except FormatError:
        return {}


def _create(args: Any) -> None:
    if args.group:
        made = _create_group(args)
    else:
        made = _create_array(args)
    if args.json:
        print_json(made)
    elif not args.quiet:
        what = "group" if args.group else f"{made['dtype']} {tuple(made['shape'])}"
        print(f"{made['path']}: {what}")


def _create_group(args: Any) -> dict[str, Any]:
    wrong = [
        name
        for name in ("shape", "dtype", "chunks", "shards", "compression", "order", "dims")
        if getattr(args, name) is not None
    ]
    if wrong:
        raise UsageError(
            f"--{wrong[0]} is an option of arrays; omit it, or omit --group", code="bad-option"
        )
    attrs = parse_named(args.attr, "attr")
    with outcore.open_group(args.target, "x", format=args.format) as group:
        group.attrs.update(attrs)
    return {"path": args.target, "attrs": attrs}


def _create_array(args: Any) -> dict[str, Any]:
    if args.shape is None or args.dtype is None:
        raise UsageError(
            "a new array needs --shape and --dtype, such as --shape 100,200 --dtype f4",
            code="missing-argument",
        )
    shape: Any = () if args.shape == "none" else parse_lengths(args.shape, "shape")
    options = {
        name: getattr(args, name) for name in ("format", "order") if getattr(args, name) is not None
    }
    for name in ("chunks", "shards"):
        lengths = parse_lengths(getattr(args, name), name)
        if lengths is not None:
            options[name] = lengths
    if args.compression is not None:
        options["compression"] = args.compression.split(",")
    options |= get_target_options(args)
    array = outcore.create(args.target, shape, args.dtype, overwrite=args.overwrite, **options)
    with array:
        array.flush()
        return {
            "path": args.target,
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "nbytes": array.nbytes,
        }
