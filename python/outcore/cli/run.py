"""
Run computations on files: ``outcore run OPERATION``, ``outcore jobs`` and ``outcore resume``.

Approach: each operation is a command made from the table in `outcore.cli.operations`; the options that
all share (memory, restart, storage of the result) are defined once. Under mpiexec all ranks run these
commands and share the work.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

import outcore
from outcore.base.report import format_bytes, format_count
from outcore.cli.operations import OPERATIONS, RunOperation
from outcore.cli.output import Bar, print_json
from outcore.cli.parsing import parse_lengths, parse_options
from outcore.compute import jobs
from outcore.compute.jobs.leftovers import SCRATCH
from outcore.errors import UnsupportedError, UsageError
from outcore.public import find_public
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import world

__all__ = ["OperationParser", "add_commands"]


class OperationParser(argparse.ArgumentParser):
    """Parser of an operation, which adds its arguments only when the operation is chosen."""

    operation: RunOperation

    def fill(self) -> None:
        """Add the arguments."""
        _fill(self, self.operation)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the arguments, then parse as any parser does."""
        self.fill()
        return super().parse_known_args(_join_values(args, self.operation), namespace)


def _join_values(args: Sequence[str], operation: RunOperation) -> list[str]:
    """
    Join each value that begins with a minus to its option, as ``--option=value``.

    Argparse takes ``-2,-1`` and ``-inf`` for options, but not ``-1``.
    """
    named = {f"--{name}" for name, option in operation.options.items() if option.read is not None}
    joined: list[str] = []
    for word in args:
        if joined and joined[-1] in named and re.match(r"-(\.?[0-9]|inf)", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module."""
    text = "compute with arrays in files: transpose, matmul, fft2, sort, mean, ..."
    run = command("run", _run, text, together=True)
    operations = run.add_subparsers(
        dest="operation", required=True, metavar="OPERATION", parser_class=OperationParser
    )
    for name, operation in sorted(OPERATIONS.items()):
        one = operations.add_parser(
            name, help=operation.text, description=operation.text, allow_abbrev=False
        )
        one.operation = operation

    left = command("jobs", _list_jobs, "list interrupted jobs in a folder, and the files they left")
    left.add_argument("folder", nargs="?", default=".")
    left.add_argument("--clean", action="store_true", help="remove these jobs and all their files")
    going = command("resume", _resume, "resume all interrupted jobs in a folder", together=True)
    going.add_argument("folder", nargs="?", default=".")


def _fill(parser: argparse.ArgumentParser, operation: RunOperation) -> None:
    """Add the arguments of an operation."""
    for name in operation.inputs:
        text = "input: file, file.h5::/group/name, or Zarr folder"
        parser.add_argument(name, metavar=name.upper(), help=text)
    for name in operation.results:
        text = "path of the result; its suffix determines the format"
        parser.add_argument(name, metavar=name.upper(), help=text)
    for name, option in operation.options.items():
        if option.read is None:
            parser.add_argument(f"--{name}", action="store_true", help=option.help)
            continue
        default = ""
        if option.default is not None and "(default: " not in option.help:
            default = f" (default: {option.default})"
        among = f": {', '.join(option.choices)}" if option.choices else ""
        text = option.help + among + default
        parser.add_argument(f"--{name}", help=text, required=option.required)
    if operation.results or operation.out:
        _fill_results(parser, operation)
    parser.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option for opening the inputs, such as dtype=f4 or shape=100,200 for raw files",
    )
    budget = "memory budget, such as 512MiB"
    parser.add_argument("--memory", metavar="BYTES", default=argparse.SUPPRESS, help=budget)
    parser.add_argument("--explain", action="store_true", help="report the cost, and stop")
    parser.add_argument(
        "--progress", action="store_true", help="show a progress bar even if output is piped"
    )
    quiet = "no progress bar and no notes: print only errors and the requested numbers"
    parser.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help=quiet)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def _fill_results(parser: argparse.ArgumentParser, operation: RunOperation) -> None:
    """Add the options of the new files."""
    if not operation.results:
        parser.add_argument("--out", metavar="PATH", help="write the result to PATH")
    for name, text in (
        ("format", "name of the format of the result"),
        ("order", "order of the result: C or F"),
        ("chunks", "chunks of the result, such as 100,200"),
        ("shards", "shards of the result, such as 1000,2000"),
        ("compression", "compression of the result, such as zstd, zstd:3, gzip, none"),
    ):
        needed = name in operation.required
        parser.add_argument(f"--{name}", help=text, required=needed)
    parser.add_argument("--resume", action="store_true", help="resume an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace existing results")


def _run(args: Any) -> int:
    run = OPERATIONS[args.operation]
    outs = tuple(getattr(args, name) for name in run.results)
    how = _get_shared_options(args, run)
    to = outs or getattr(args, "out", None)
    if to:
        how["out"] = to[0] if outs and len(outs) == 1 else to
    ranks = Ranks.of(world(), f"outcore run {args.operation}")
    # If one rank cannot open them, the other ranks must not wait for it.
    with ExitStack() as opened:
        arrays, others = ranks.run_on_all(lambda: _open_inputs(args, run, opened))
        started = time.monotonic()
        name, positional, given = ranks.run_on_all(lambda: _get_call(args, run, arrays, others))
        how["comm"] = ranks.comm
        function = find_public(name)
        with Bar(args.operation, quiet=args.quiet or args.json, piped=args.progress) as bar:
            found = function(
                *positional, **given, **how, **({} if args.explain else {"progress": bar})
            )
    if args.explain:
        return _tell(args, found.report)
    names = tuple(found) if isinstance(found, dict) else run.names
    results = tuple(found.values()) if isinstance(found, dict) else found
    results = results if isinstance(results, tuple) else (results,)
    _print(args, results, names, time.monotonic() - started)
    return 0


def _open_inputs(
    args: Any, run: RunOperation, opened: ExitStack
) -> tuple[list[outcore.DiskArray], dict[str, outcore.DiskArray]]:
    """Open the inputs and the arrays that options name; the stack closes all of them."""
    how = parse_options(args.set)
    inputs = [opened.enter_context(outcore.open(getattr(args, name), **how)) for name in run.inputs]
    paths = {name: getattr(args, name) for name, option in run.options.items() if option.is_array}
    # --set applies to the inputs only: a file of weights has its own dtype.
    return inputs, {
        name: opened.enter_context(outcore.open(path))
        for name, path in paths.items()
        if path is not None
    }


def _get_shared_options(args: Any, run: RunOperation) -> dict[str, Any]:
    """Return the keyword arguments that all operations share."""
    how: dict[str, Any] = {} if args.memory is None else {"memory": args.memory}
    if args.explain:
        how["explain"] = True
    if not (run.results or run.out):
        return how
    for name in ("format", "order", "compression"):
        if getattr(args, name) is not None:
            how[name] = getattr(args, name)
    for name in ("chunks", "shards"):
        lengths = parse_lengths(getattr(args, name), name)
        if lengths is not None:
            how[name] = lengths
    for name in ("resume", "overwrite"):
        if getattr(args, name):
            how[name] = True
    return how


def _get_call(
    args: Any,
    run: RunOperation,
    inputs: Sequence[outcore.DiskArray],
    others: Mapping[str, outcore.DiskArray],
) -> tuple[str, Sequence[Any], dict[str, Any]]:
    """Return the name of the function, its positional arguments and its keyword arguments."""
    if run.is_array(inputs) and args.out is None and not args.explain:
        raise UsageError(
            f"{args.operation} of shapes {' and '.join(str(one.shape) for one in inputs)} is an array, "
            "not a number; use --out PATH to write it to a file",
            code="missing-argument",
        )
    given: dict[str, Any] = dict(others)
    for name, option in run.options.items():
        if option.is_array:
            continue
        text = getattr(args, name)
        if text is None:
            if option.default is not None:
                given[name] = option.default
            continue
        if option.read is None:
            if text:
                given[name] = True
            continue
        try:
            given[name] = option.read(text)
        except ValueError as error:
            raise UsageError(f"--{name} {text!r}: {error}", code="bad-option") from None
        if option.choices and given[name] not in option.choices:
            raise UsageError(
                f"--{name} {text!r}: use one of {', '.join(option.choices)}", code="bad-option"
            )
    function = run.function(given) or args.operation
    if run.call is not None:
        given = run.call(given, inputs[0].ndim)
    return function, run.positional(inputs, given), given


def _tell(args: Any, report: outcore.types.ComputeReport) -> int:
    if args.json:
        print_json(report)
    else:
        print(report)
    return 0


def _print(args: Any, results: Sequence[Any], names: Sequence[str], seconds: float) -> None:
    told: list[dict[str, Any]] = []
    for n, one in enumerate(results):
        name = {"name": names[n]} if names else {}
        if isinstance(one, outcore.DiskArray):
            entry: dict[str, Any] = {
                "path": one.path,
                "shape": one.shape,
                "dtype": one.dtype.str,
                "nbytes": one.nbytes,
            }
            told.append(name | entry)
            one.close()
        else:
            told.append(name | {"value": np.asarray(one)})
    if args.json:
        print_json({"operation": args.operation, "results": told, "seconds": seconds})
        return
    width = max((len(name) + 2 for name in names), default=0)
    for entry in told:
        if "path" in entry:
            if args.quiet:
                continue
            size, rate = (
                format_bytes(entry["nbytes"]),
                format_bytes(int(entry["nbytes"] / max(seconds, 1e-9))),
            )
            print(f"{entry['path']}: shape {entry['shape']}, {size} in {seconds:.1f} s, {rate}/s")
        else:
            prefix = entry.get("name", "").ljust(width)
            text = np.array2string(entry["value"], threshold=1000, precision=17, prefix=prefix)
            print(prefix + text)


def _list_jobs(args: Any) -> int:
    found = jobs.unfinished(args.folder)
    if args.clean:
        for one in found:
            if one.state != "running":
                jobs.clean(one)
    if args.json:
        print_json({"folder": args.folder, "jobs": found, "removed": bool(args.clean)})
        return 0
    if not found:
        print(f"{args.folder}: no unfinished jobs")
    for one in found:
        what = f"{one.operation} to {', '.join(one.targets)}" if one.targets else one.operation
        share = f", {one.done} of {format_count(one.steps, 'step')} done" if one.steps else ""
        print(
            f"{one.path}: {what}{share}: {_STATES[one.state]}"
            + ("; removed" if args.clean and one.state != "running" else "")
        )
    return 0


_STATES = {
    "running": "another process is working on it",
    "resumable": "resume it with `outcore resume`",
    "repeat": "resume it by the same call with resume=True",
    "left": "it cannot be resumed; remove it with `outcore jobs --clean`",
}


def _resume(args: Any) -> int:
    with Bar("resuming", quiet=args.quiet or args.json) as bar:
        complete = jobs.resume(args.folder, progress=bar, comm=world())
    # The first rank checks, so that all ranks end with the same status.
    left = Ranks.of(world(), "outcore resume").broadcast_from_first(lambda: _list_left(args.folder))
    if args.json:
        print_json({"folder": args.folder, "complete": complete, "left": left})
    elif not args.quiet:
        for path in complete:
            print(f"{path}: complete")
        for one in left:
            if one["state"] == "running":
                print(f"{one['path']}: {_STATES['running']}")
        if not complete and not left:
            print(f"{args.folder}: nothing to resume")
    told = [_explain_state(one) for one in left if one["state"] != "running"]
    if told:
        error = UnsupportedError(told[0], code="cannot-repeat")
        for line in told[1:]:
            error.add_note(f"[cannot-repeat] {line}")
        raise error
    return 0


def _list_left(folder: str) -> list[dict[str, Any]]:
    """Return jobs that `resume` did not continue, without temporary arrays."""
    found = [
        one for one in jobs.unfinished(folder) if one.call is None and one.state != "resumable"
    ]
    return [
        {name: getattr(one, name) for name in ("path", "operation", "targets", "state")}
        for one in found
        if one.operation != SCRATCH
    ]


def _explain_state(one: dict[str, Any]) -> str:
    """Explain why `resume` cannot continue a job, and what can."""
    if one["state"] == "left":
        return f"{one['path']} is damaged: {_STATES['left']}"
    return (
        f"{one['path']}: {one['operation']} to {', '.join(one['targets'])} cannot be resumed from its "
        "journal, which does not contain the whole call (a function, an array in memory, factors to "
        "solve with); repeat the Python call with resume=True, or `outcore run` with --resume"
    )
