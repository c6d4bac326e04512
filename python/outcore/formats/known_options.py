"""
Options that formats accept, and errors for options that no format accepts.

Problem: a misspelt option reaches the format of one of several arrays, deep inside a call that the user
did not write.
Approach: a public call that passes options on checks them here first; the error names that call, and
the most similar option.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, Literal

from outcore import formats
from outcore.errors import UsageError, suggest_name
from outcore.formats.format import Format
from outcore.formats.registry import list_formats

__all__ = ["check_known", "check_options", "has_option", "unknown_option_error"]

Verb = Literal["create", "open"]
# Options of the public calls in addition to those of their formats.
_OF_CALLS = {
    "create": ("shape", "dtype", "data", "like", "typical_sections", "overwrite", "hints"),
    "open": ("mode", "hints", "comm"),
}
# Arguments of formats that only outcore itself passes.
_OURS = {"writable", "files", "exclusive"}


def list_keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of keyword-only arguments."""
    code = getattr(function, "__func__", function).__code__
    count = code.co_argcount
    return code.co_varnames[count : count + code.co_kwonlyargcount]


def unknown_option_error(call: str, word: str, known: set[str], more: str) -> UsageError:
    """Return the error for an option that a call does not accept."""
    return UsageError(
        f"{call}() has no option {word!r}{suggest_name(word, sorted(known))} {more}",
        code="unknown-option",
    )


def check_known(
    call: Callable[..., Any], verb: Verb, options: Iterable[str], more: Iterable[str] = ()
) -> None:
    """
    Raise `UsageError` ``unknown-option`` for options that no format accepts, naming the public call.

    `verb` is the purpose of the options, and `more` are options that the call accepts in addition to
    its own arguments.
    """
    common = {*_list_common(verb), *more}
    wrong = [name for name in options if name not in common]
    if not wrong:
        return
    known = common.union(*(_list_of_format(one.load(), verb) for one in list_formats())) - _OURS
    wrong = [name for name in wrong if name not in known]
    if wrong:
        import inspect  # slow to import, and only needed for errors

        parameters = inspect.signature(call).parameters.values()
        own = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        own = list(dict.fromkeys([*(name for name in own if name != "self"), *more]))
        others = sorted(known - {*own})
        takes = f"It takes {', '.join(own)}; and as outcore.{verb} {', '.join(others)}"
        raise unknown_option_error(call.__qualname__, wrong[0], {*known, *own}, takes)


def has_option(format: Format, verb: Verb, name: str) -> bool:
    """Return whether a format has an option of its own."""
    return name in _list_of_format(format, verb)


def check_options(format: Format, verb: Verb, options: Iterable[str]) -> None:
    """Raise `UsageError` for options that a format does not accept."""
    allowed = _list_of_format(format, verb)
    wrong = [name for name in options if name not in allowed]
    if not wrong:
        return
    word, known = wrong[0], {*_list_common(verb), *allowed}
    known -= _OURS
    told = f"Options of format {format.name}: {', '.join(sorted(known))}"
    known_formats = [one.load() for one in list_formats()]
    others = [f.name for f in known_formats if f is not format and word in _list_of_format(f, verb)]
    if others:
        raise UsageError(
            f"format {format.name} has no option {word!r} for {verb}; {', '.join(others)} "
            f"{'has' if len(others) == 1 else 'have'} it. {told}",
            code="unknown-option",
        )
    raise unknown_option_error(verb, word, {*known, *_OF_CALLS[verb]}, told)


def _list_common(verb: Verb) -> set[str]:
    """Return the options that every format has."""
    function: types.FunctionType = getattr(formats, f"{verb}_info")
    return {*list_keywords(function), "hints"} - _OURS


def _list_of_format(format: Format, verb: Verb) -> set[str]:
    return set(list_keywords(format.describe if verb == "open" else format.create))
