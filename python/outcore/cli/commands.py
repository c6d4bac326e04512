"""
Command line: ``outcore info | ls | explain | convert | run | jobs | ...``.

Each command prints human-readable text, or one JSON document with ``--json``. Errors go to stderr with
their stable code. Exit status: 0 success, and no damage found; 1 damage; 2 invalid call; 3 the operation
or the check was not possible (the file does not exist, permission denied, an unreadable format or
header, not enough space); 130 interrupted; 141 the reader of the output has closed it.

Under mpiexec all ranks share the work of ``run``, ``resume`` and ``convert``; the first rank runs every
other command alone. Only the first rank prints. An error on one rank ends all ranks with the same
status.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import outcore
from outcore.arrays import measured
from outcore.arrays.disk import DiskArray
from outcore.base.hints import check_environment, parse_bytes
from outcore.base.report import format_bytes, format_count
from outcore.cli import completion, create, files, paths, run
from outcore.cli.output import Bar, print_json
from outcore.cli.parsing import parse_lengths, parse_options, parse_section
from outcore.cli.status import DONE, INTERRUPTED, STATUS, UNREAD, UNSEEN, report_error, say
from outcore.errors import (
    OutcoreError,
    UnsupportedError,
    UsageError,
)
from outcore.formats import durable
from outcore.model.picture import draw
from outcore.model.simulate import command as simulation
from outcore.ranks.collective.dry_run import DiskTransfers, dry_run
from outcore.ranks.collective.planning import METHODS
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import transport, world

__all__ = ["main", "parse_section"]

# HPF formats and process grid of each `--distribution`, from the number of axes and of ranks.
_DISTRIBUTIONS: dict[str, Callable[[int, int], tuple[list[str], outcore.mpi.ProcessGrid]]] = {
    "rows": lambda n, p: (["block"] + ["*"] * (n - 1), outcore.mpi.ProcessGrid((p,))),
    "columns": lambda n, p: (["*"] * (n - 1) + ["block"], outcore.mpi.ProcessGrid((p,))),
    "blocks": lambda n, p: (["block"] * n, outcore.mpi.ProcessGrid(size=p, ndim=n)),
    "cyclic": lambda n, p: (["*"] * (n - 1) + ["cyclic"], outcore.mpi.ProcessGrid((p,))),
}
_MOST_RANKS = 100_000
# One minute for each of about forty measurements.
_LONGEST_SLICE = 60_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names need not be valid text; they are escaped instead of raising an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    if _is_first():
        return _run_reporting_errors(arguments, first=True)
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        return _run_reporting_errors(arguments, first=False)


def _is_first() -> bool:
    """Return whether this process prints: it runs alone or is the first rank under mpiexec."""
    try:
        return transport(world()).rank == 0
    except UnsupportedError:
        return True  # commands that need the other ranks raise the error


def _run_reporting_errors(arguments: Sequence[str] | None, *, first: bool) -> int:
    """Run one command; print an error and return its exit status."""
    try:
        return _run(arguments, first=first)
    except OutcoreError as error:
        return report_error(error)
    except BrokenPipeError:
        _drop_output()  # the reader of the output closed it
        return UNREAD
    except KeyboardInterrupt as error:
        say("interrupted", error)
        return INTERRUPTED
    except Exception as error:
        # An error with a file name is a `StorageError`, so this one comes from writing the output.
        if isinstance(error, OSError) and error.filename is None:
            _drop_output()
            say(f"[{durable.find_code(error.errno)}] writing the output: {error.strerror or error}")
            return UNSEEN
        traceback.print_exc()
        say(f"[internal] {type(error).__name__}: {error}; please report this with the text above")
        return UNSEEN


def _run(arguments: Sequence[str] | None, *, first: bool) -> int:
    try:
        args = _parse(arguments)
        if not (first or args.together):
            return DONE
        check_environment()
        if not args.quiet:
            return int(args.run(args) or DONE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(args.run(args) or DONE)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _make_parser()
    args, left = parser.parse_known_args(arguments)
    # argparse sets an optional argument to its default if an option precedes it (bpo-15112).
    all_of_it = getattr(args, "section", "") == "..."
    if len(left) == 1 and all_of_it and re.match(r"[^-]|-[0-9]", left[0]):
        args.section = left[0]
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return args


def _drop_output() -> None:
    """Redirect stdout to the null device, so that exit does not write the failed output again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _show_warning(message: Warning | str, *_: Any) -> None:
    say(f"note: {message}")


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="outcore",
        description="Arrays larger than memory, at the speed of the disks.",
        epilog=STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=outcore.__version__)
    parser.add_argument("--memory", metavar="BYTES", help="memory budget, such as 512MiB")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[Any], int | None], text: str, *, together: bool = False
    ) -> argparse.ArgumentParser:
        # A later version may add an option with the same prefix, and `--ord` must not mean `--order`.
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(run=_limit_memory(run), together=together)
        sub.add_argument("--json", action="store_true", help="print one JSON document")
        quiet = "no progress bar and no notes: print only errors and the requested output"
        sub.add_argument("-q", "--quiet", action="store_true", help=quiet)
        budget = "memory budget, such as 512MiB"
        sub.add_argument("--memory", metavar="BYTES", default=argparse.SUPPRESS, help=budget)
        return sub

    def reads(sub: argparse.ArgumentParser, name: str = "path", **several: Any) -> None:
        sub.add_argument(name, help="file, file.h5::/group/name, or Zarr folder", **several)
        sub.add_argument(
            "-s",
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="option for opening the file, such as dtype=f4 or shape=100,200 for a raw file",
        )

    paths.add_commands(command, reads)
    explain = command(
        "explain", _explain, "show how a section would be read or written, and the cost"
    )
    reads(explain)
    explain.add_argument("section", nargs="?", default="...", help="such as '[100:200, ::3]'")
    explain.add_argument("--write", action="store_true", help="explain a write instead of a read")
    explain.add_argument(
        "--blocks",
        action="store_true",
        help="explain a loop over the whole array in blocks: how often its chunks are decoded",
    )
    explain.add_argument(
        "--axis",
        type=int,
        metavar="K",
        help="with --blocks: loop over slabs across axis K (0: rows)",
    )
    _add_rank_arguments(explain)

    convert = command(
        "convert",
        _convert,
        "copy an array into another format, chunking, order or dtype",
        together=True,
    )
    reads(convert, "source")
    convert.add_argument("target", help="path of the copy; its suffix determines the format")
    for name, text in (
        ("format", "name of the new format"),
        ("dtype", "such as f4 or '>i2'"),
        ("order", "C or F"),
        ("chunks", "such as 100,200, or auto"),
        ("shards", "such as 1000,2000"),
        ("compression", "such as zstd, zstd:3, gzip, none"),
        ("folders", "folders for the parts, such as /disk1,/disk2"),
        ("parts", "number of parts (default: one for each folder)"),
        ("stripe", "number of consecutive rows in a part before the next part follows"),
        ("casting", "safe, same_kind (default) or unsafe"),
    ):
        allowed = ("safe", "same_kind", "unsafe") if name == "casting" else None
        convert.add_argument(f"--{name}", help=text, choices=allowed)
    convert.add_argument("--section", help="copy only this section, such as '0:100,::2'")
    convert.add_argument("--resume", action="store_true", help="resume an interrupted copy")
    convert.add_argument("--overwrite", action="store_true", help="replace the target")
    whole = convert.add_argument_group("whole files and groups")
    whole.add_argument(
        "--whole",
        action="store_true",
        help="copy a whole file, store or group, even if it holds one array (automatic for several)",
    )
    whole.add_argument(
        "--skip", action="store_true", help="skip arrays that cannot be read or stored"
    )
    create.add_target_arguments(convert)

    create.add_command(command)

    run.add_commands(command)

    files.add_commands(command)

    bench = command("bench", _bench, "measure the disk of a folder; later plans use the result")
    bench.add_argument("folder", nargs="?", default=".")
    bench.add_argument("--size", default="1GiB", help="size of the test file (default: 1GiB)")
    bench.add_argument(
        "--slice", type=int, default=250, metavar="MS", help="time per measurement (default: 250)"
    )

    simulation.arguments(command("simulate", _simulate, simulation.TEXT))
    completion.add_command(command, _make_parser)
    return parser


def _add_rank_arguments(explain: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain` for many ranks."""
    explain.epilog = (
        "With --ranks N the section is the section of each rank and may contain `rank`, `size` and "
        "arithmetic, such as '[:, rank::size]' or '[100*rank:100*rank+100]'. MPI is not needed."
    )
    group = explain.add_argument_group("many ranks")
    group.add_argument(
        "--ranks", type=int, metavar="N", help="number of ranks of a collective access"
    )
    group.add_argument(
        "--distribution",
        choices=sorted(_DISTRIBUTIONS),
        help="distribution of the array over the ranks, instead of a section for each rank",
    )
    group.add_argument(
        "--method", choices=METHODS, default="auto", help="method (default: the cheapest)"
    )
    group.add_argument("--cold", action="store_true", help="assume an empty page cache")
    group.add_argument("--svg", metavar="FILE", help="write a picture: array, file, owners, rounds")


def _limit_memory(run: Callable[[Any], int | None]) -> Callable[[Any], int | None]:
    def limit(args: Any) -> int | None:
        with outcore.memory(args.memory):
            return run(args)

    return limit


def _make_keys(array: DiskArray, args: Any) -> tuple[list[Any], str]:
    """Return the key of each rank, and its description in the user's terms."""
    ranks = args.ranks
    if not 1 <= ranks <= _MOST_RANKS:
        raise UsageError(
            f"--ranks {ranks} is out of range; use 1 to {_MOST_RANKS}", code="bad-option"
        )
    if args.distribution is None:
        keys = [parse_section(args.section, rank=rank, size=ranks) for rank in range(ranks)]
        return keys, args.section
    if args.section != "...":
        raise UsageError(
            f"--distribution {args.distribution} and the section {args.section!r} both select the "
            "elements of each rank; omit one of them",
            code="bad-option",
        )
    if not array.ndim:
        raise UsageError(
            "an array without axes cannot be distributed; omit --distribution", code="bad-option"
        )
    formats, grid = _DISTRIBUTIONS[args.distribution](array.ndim, ranks)
    divided = outcore.mpi.Distribution(array.shape, formats, grid)
    nothing = (slice(0, 0),)
    keys = [next(iter(divided.sections(rank)), nothing) for rank in range(ranks)]
    return keys, f"by {args.distribution}"


# Commands


def _explain(args: Any) -> int:
    if args.ranks is not None:
        return _explain_ranks(args)
    given = [name for name in ("distribution", "svg") if getattr(args, name) is not None]
    given += ["method"] * (args.method != "auto") + ["cold"] * args.cold
    if given:
        raise UsageError(f"--{given[0]} is for many ranks; add --ranks N", code="bad-option")
    if args.axis is not None and not args.blocks:
        raise UsageError("--axis is for loops; add --blocks", code="bad-option")
    if args.blocks and (args.section != "..." or args.write):
        raise UsageError(
            "--blocks reads the whole array; omit the section and --write", code="bad-option"
        )
    key = parse_section(args.section)
    mode: Any = "r+" if args.write else "r"
    report: outcore.types.Report | outcore.types.BlocksReport
    with outcore.open(args.path, mode, **parse_options(args.set)) as array:
        if args.blocks:
            with contextlib.closing(array.blocks(args.axis)) as loop:
                report = loop.report
        else:
            report = array.explain(key, write=args.write)
    if args.json:
        print_json(report)
    else:
        print(report)
    return 0


def _explain_ranks(args: Any) -> int:
    """Explain a collective access of many ranks."""
    mode: Any = "r+" if args.write else "r"
    cold = outcore.Hints(cache="bypass")
    # Disk transfers are counted with an empty page cache, because only these are shared.
    with (
        outcore.open(args.path, mode, hints=cold, **parse_options(args.set)) as uncached,
        outcore.open(args.path, mode, **parse_options(args.set)) as array,
    ):
        keys, what = _make_keys(array, args)
        given = {"write": args.write, "method": args.method, "cold": args.cold}
        seen = dry_run(uncached if args.cold else array, keys, **given)
        plan = dataclasses.replace(seen, array=uncached)
        alone = sum((plan.count_alone(rank) for rank in range(args.ranks)), DiskTransfers())
        together, exact = plan.count_together()
        if args.svg is not None:
            _write_picture(args.svg, draw(plan, what))
    if args.json:
        print_json({**dataclasses.asdict(seen.report), "alone": alone, "together": together})
        return 0
    print(seen.report)
    about = "" if exact else "about "
    for name, disk, way in (("alone", alone, ""), ("together", together, about)):
        chunks = f", {format_count(disk.chunks, 'chunk')} coded" if disk.chunks else ""
        requests = format_count(disk.requests, "request")
        print(f"{name:<8} {way}{requests}, {format_bytes(disk.nbytes)}{chunks} (not cached)")
    if args.svg is not None:
        print(f"picture  {args.svg}")
    return 0


def _write_picture(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(
            f"--svg {path}: {error.strerror}; use a file in a writable folder",
            code="bad-option",
        ) from None


def _convert(args: Any) -> int:
    started = time.monotonic()
    names = ("format", "dtype", "order", "compression", "casting")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    for name in ("chunks", "shards"):
        text = getattr(args, name)
        lengths = "auto" if (name, text) == ("chunks", "auto") else parse_lengths(text, name)
        if lengths is not None:
            options[name] = lengths
    for name in ("parts", "stripe"):
        lengths = parse_lengths(getattr(args, name), name)
        if lengths is not None:
            options[name] = lengths
    if args.folders is not None:
        options["folders"] = args.folders.split(",")
    if args.section is not None:
        options["section"] = parse_section(args.section)
    if "," in (args.compression or ""):
        options["compression"] = args.compression.split(",")
    source = parse_options(args.set)
    options |= create.get_target_options(args, lambda: create.read_attributes(args.source, source))
    if args.whole:
        options["whole"] = True
    if args.skip:
        options["skip"] = True
    size, kept = 0, -1
    ranks = Ranks.of(world(), "outcore convert")
    with Bar("converting", quiet=args.quiet or args.json) as bar:

        def progress(done: int, total: int) -> None:
            nonlocal size, kept
            size = total
            if kept < 0:
                kept = done
                if done and not args.quiet:
                    # Each rank reports an equal share of both.
                    there, all_of_it = (
                        format_bytes(done * ranks.size),
                        format_bytes(total * ranks.size),
                    )
                    say(f"note: resuming: {there} of {all_of_it} already done")
            bar(done, total)

        outcore.convert(
            args.source,
            args.target,
            progress=progress,
            resume=args.resume,
            overwrite=args.overwrite,
            source=source,
            comm=ranks.comm,
            **options,
        )
    size, kept = ranks.add_up([size, max(kept, 0)])
    seconds = time.monotonic() - started
    if args.json:
        answer = {"target": args.target, "nbytes": size, "seconds": seconds}
        print_json({**answer, "resumed_nbytes": kept})
    elif not args.quiet:
        rate = format_bytes(int((size - kept) / max(seconds, 1e-9)))
        before = f", {format_bytes(kept)} already done" if kept else ""
        print(f"{args.target}: {format_bytes(size)} in {seconds:.1f} s{before}, {rate}/s")
    return 0


def _bench(args: Any) -> int:
    if not 1 <= args.slice <= _LONGEST_SLICE:
        raise UsageError(
            f"--slice {args.slice} is out of range; use 1 to {_LONGEST_SLICE} milliseconds",
            code="bad-option",
        )
    figures = measured.measure(args.folder, file_bytes=parse_bytes(args.size), slice_ms=args.slice)
    if args.json:
        print_json(figures)
        return 0
    way = (
        "bypassing the page cache"
        if figures["direct"]
        else "through the page cache (no direct I/O)"
    )
    print(f"{figures['mount']}, {figures['engine']}, {way}")
    if figures["fallback"]:
        print(f"not io_uring: {figures['fallback']}")
    print(f"\n{'request':>10} {'depth':>6}  {'':5} {'requests/s':>11} {'rate':>12}")
    for sample in figures["samples"]:
        seconds = max(sample["elapsed_ns"], 1) / 1e9
        count, rate = sample["requests"] / seconds, sample["request"] * sample["requests"] / seconds
        verb = "write" if sample["write"] else "read"
        size = format_bytes(sample["request"])
        print(
            f"{size:>10} {sample['depth']:>6}  {verb:5} {count:>11.0f} {format_bytes(int(rate)):>10}/s"
        )
    print(f"\nbuffered read, cold, 1 and 2 threads: {_format_rates(figures['buffered_read'])}")
    print(f"buffered write: {_format_rates([figures['buffered_write']])}, ", end="")
    print(f"with fsync {_format_rates([figures['buffered_write_sync']])}")
    for name, text in (
        ("pread", "small pread"),
        ("pread_large", "large pread"),
        ("mapped", "mapping"),
    ):
        print(f"cached, {text}, 1 and 2 threads: {_format_rates(figures['warm'][name])}")
    print(f"\na request at depth: {figures['latency_ns'] / 1000:.1f} us + bytes at ", end="")
    print(f"{_format_rates([figures['device']])}; stream {_format_rates([figures['stream']])}")
    print(f"a gap under {format_bytes(figures['gap'])} is cheaper to read than to skip")
    print(f"stored in {measured.get_path()}")
    return 0


def _simulate(args: Any) -> int:
    return simulation.run(args, print_json, _write_picture)


def _format_rates(rates: Sequence[int]) -> str:
    return ", ".join(f"{format_bytes(rate)}/s" for rate in rates)
