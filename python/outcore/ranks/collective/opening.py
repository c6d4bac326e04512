"""
Open arrays and groups by many ranks: all ranks return, or all raise.

Serves the calls with ``comm=`` of `outcore.open`, `outcore.open_many`, `outcore.create` and
`outcore.open_group` (`outcore.base.ranked.CollectiveService`).

Invariants. The ranks mean the same file, mode and options, or all raise. Nothing is created or replaced
before they have agreed.
"""

from __future__ import annotations

import functools
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from outcore import _core, formats
from outcore.arrays import groups, opening
from outcore.arrays.creating import get_creation_options
from outcore.arrays.disk import Mode
from outcore.arrays.groups import Group, check_mode, make_group
from outcore.arrays.opening import Path, describe_paths, get_new_options
from outcore.base.hints import Hints
from outcore.errors import UnsupportedError
from outcore.formats import groups as of_formats
from outcore.formats.layout import ArrayInfo, Codec
from outcore.formats.spec import as_dtype
from outcore.formats.texts import Texts
from outcore.ranks.agreement import hash_text
from outcore.ranks.collective.array import CollectiveArray
from outcore.ranks.collective.items import hash_elements, hash_numbers, hash_path
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Communicator, Transport

__all__ = ["open", "open_group", "open_many", "run_on_first_rank"]

T = TypeVar("T")
HintsOrWords = Hints | Mapping[str, Any] | None
Comm = Communicator | Transport


def open(
    comm: Comm,
    path: Path,
    mode: Mode,
    hints: HintsOrWords,
    options: Mapping[str, Any],
) -> CollectiveArray:
    """Open an array on all ranks; see `outcore.open`. Collective."""
    ranks = Ranks.of_call(comm, "outcore.open")
    made: _core.Records | None = None

    def tell() -> str:
        return (
            f"open of {describe_paths(path)} with mode {mode!r}, {_describe_array(options, None)}"
        )

    def words(*, resolved: bool = False) -> list[int]:
        return [
            opening.MODES.index(mode),
            hash_path(path, resolved=resolved),
            _hash_options(options),
        ]

    if mode in ("w", "x", "a"):
        # Nothing is replaced before all ranks agree.
        again = functools.partial(words, resolved=True)
        ranks.gather_numbers(words, tell, equal=3, recompute=again)

        def make() -> list[int]:
            if not ranks.is_first:
                return [0]
            with opening.open(path, mode, hints=hints, **options) as array:
                return [_format_names().index(array.format)]

        made = ranks.gather_numbers(make, tell)

    def look() -> tuple[list[Path], list[ArrayInfo], dict[str, Any]]:
        opening.check_mode(mode)
        known = dict(options)
        if made is not None:
            name = _format_names()[made.setting(0)[0]]
            # Options needed to open it again; the others were only for creating it.
            unrecorded = formats.get_format(name).unrecorded_options
            said = get_new_options(options) if unrecorded else {}
            known = {k: v for k, v in said.items() if k in unrecorded} | {"format": name}
        return [path], [formats.open_info(path, writable=mode != "r", **known)], known

    return _open_on_all_ranks(ranks, mode, hints, options, look)[0]


def open_many(
    comm: Comm,
    paths: Iterable[str | os.PathLike[str]],
    mode: Mode,
    hints: HintsOrWords,
    options: Mapping[str, Any],
) -> list[CollectiveArray]:
    """Open arrays on all ranks, with one synchronisation; see `outcore.open_many`. Collective."""

    def look() -> tuple[list[Path], list[ArrayInfo], dict[str, Any]]:
        opening.check_many(paths, mode)
        asked: list[Path] = list(paths)
        infos = formats.open_infos(asked, writable=mode == "r+", **options)  # type: ignore[arg-type]
        return asked, infos, dict(options)

    ranks = Ranks.of_call(comm, "outcore.open_many")
    return _open_on_all_ranks(ranks, mode, hints, options, look)


def _open_on_all_ranks(
    ranks: Ranks,
    mode: Mode,
    hints: HintsOrWords,
    options: Mapping[str, Any],
    look: Callable[[], tuple[list[Path], list[ArrayInfo], dict[str, Any]]],
) -> list[CollectiveArray]:
    """
    Open the same arrays on each rank; all return them, or all raise. One synchronisation.

    `look` returns this rank's paths, the metadata of the arrays, and the options to open them again.
    """
    asked: list[Path] = []
    found: list[CollectiveArray] = []

    def join() -> list[int]:
        fair = _limit_threads(max(1, len(os.sched_getaffinity(0)) // ranks.ranks_on_node))
        settings = Hints.of(hints).over(fair)
        paths, infos, known = look()
        asked.extend(paths)
        for info in infos:
            if isinstance(info, Texts):
                raise UnsupportedError(
                    f"{info.path!r} has text of variable length, which ranks cannot read together; "
                    "open it on each rank without comm=",
                    code="text-elements",
                    path=info.path,
                )
            as_if: Mode = "r+" if mode == "a" else mode
            found.append(CollectiveArray(info, as_if, settings, known, ranks.group))
        return words()

    def words(*, resolved: bool = False) -> list[int]:
        for array, path in zip(found, asked, strict=True):
            array.place = hash_path(path, resolved=resolved)
        places = hash_numbers([array.place for array in found])
        return [
            opening.MODES.index(mode),
            places,
            hash_numbers([hash_elements(a.info) for a in found]),
        ]

    def tell() -> str:
        with_mode = f"with mode {mode!r}"
        if ranks.call == "outcore.open":
            means = _describe_array(options, found[0].info)
            return f"open of {describe_paths(asked[0])} {with_mode}, {means}"
        # The first array on which the ranks disagree.
        mine = np.array([(a.place, hash_elements(a.info)) for a in found], np.int64).reshape(-1, 2)
        rows = [np.frombuffer(said, np.int64) for said in ranks.gather_bytes(mine.tobytes())]
        least = min(map(len, rows)) // 2
        both = np.array([row[: 2 * least] for row in rows]).reshape(len(rows), least, 2)
        differ = np.flatnonzero((both != both[0]).any(axis=(0, 2)))
        first = int(differ[0]) if differ.size else least
        if first >= len(found):
            return f"open_many of {len(found)} arrays {with_mode}"
        means = f"{describe_paths(asked[first])}, {_describe_array(options, found[first].info)}"
        return f"open_many of {len(found)} arrays {with_mode}, of which paths[{first}] is {means}"

    try:
        again = functools.partial(words, resolved=True)
        ranks.gather_numbers(join, tell, equal=3, recompute=again)
    except BaseException:
        for array in found:
            array.close()
        raise
    return found


def _describe_array(options: Mapping[str, Any], info: ArrayInfo | None) -> str:
    """Describe the opened array or, before opening, the options."""
    if info is None:
        told = [f"{name}={reprlib.repr(options[name])}" for name in sorted(options)]
        return ", ".join(told) or "without options"
    offset = info.extra.get("offset")
    start = "" if offset is None else f", from byte {offset}"
    return f"shape {info.shape}, dtype {info.dtype!s:.200}, order {info.order}{start}"


def _hash_options(options: Mapping[str, Any]) -> int:
    """Return a hash of the array to create, the same on all ranks."""
    said = {"order": "C", "offset": 0, "fill_value": None, **options}
    # Only the elements of the rank that creates the array are used.
    said.pop("data", None)
    like = said.pop("like", None)
    if like is not None:
        said = {**get_creation_options(like), **{k: v for k, v in said.items() if v is not None}}
    if isinstance(said.get("shape"), SupportsIndex):
        said["shape"] = [said["shape"]]
    if said.get("dtype") is not None:
        said["dtype"] = repr(as_dtype(said["dtype"], "an array"))
    return hash_text(_canonicalize({k: v for k, v in said.items() if v is not None}))


def _canonicalize(value: Any) -> str:
    """Return equal text for equivalent values; only the type for values of unknown types."""
    if isinstance(value, str | bytes | bool | None):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{sorted((str(k), _canonicalize(v)) for k, v in value.items())}}}"
    if isinstance(value, np.generic | np.ndarray):
        return _canonicalize(value.tolist())
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_canonicalize, value))}]"
    if isinstance(value, SupportsIndex):
        return repr(operator.index(value))
    if isinstance(value, Codec):
        return _canonicalize([value.name, value.options])
    return repr(value) if isinstance(value, float | complex) else type(value).__qualname__


@functools.lru_cache(maxsize=16)
def _limit_threads(threads: int) -> Hints:
    return Hints(threads=threads)


def open_group(
    comm: Comm,
    path: str | os.PathLike[str],
    mode: groups.Mode,
    hints: HintsOrWords,
    format: str | None,
) -> Group:
    """Open a group on all ranks; see `outcore.open_group`. Collective."""
    ranks = Ranks.of_call(comm, "outcore.open_group")
    found: list[Group] = []

    def tell() -> str:
        return f"open_group of {path!r} with mode {mode!r}"

    def words(*, resolved: bool = False) -> list[int]:
        check_mode(mode)
        return [
            groups.MODES.index(mode),
            hash_path(path, resolved=resolved),
            hash_text(str(format)),
        ]

    again = functools.partial(words, resolved=True)
    if mode in ("a", "w", "x"):
        # Nothing is created before all ranks agree.
        ranks.gather_numbers(words, tell, equal=3, recompute=again)

        def make() -> None:
            if ranks.is_first:
                make_group(path, mode, format)

        ranks.gather_numbers(make, tell)

    def join() -> list[int]:
        check_mode(mode)
        info = of_formats.describe_group(path, writable=mode != "r", format=format)
        found.append(Group(info, mode, Hints.of(hints), ranks.group))
        return words()

    ranks.gather_numbers(join, tell, equal=3, recompute=again)
    return found[0]


def run_on_first_rank(group: Transport, verb: str, where: str, work: Callable[[], T]) -> T:
    """
    Run a short step on the first rank, and return its result on all ranks. Collective.

    `verb` and `where` are the operation and the path, for messages; the same on all ranks.
    """
    text = f"{verb} of {where!r}"
    ranks = Ranks(group, text, "Group")
    ranks.gather_numbers(list, lambda: text, meaning=lambda: text)
    found: T = ranks.broadcast_from_first(work)
    return found


def _format_names() -> list[str]:
    """Return the names of the formats, in the same order on all ranks."""
    return [one.name for one in formats.list_formats()]
