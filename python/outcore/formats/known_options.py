"""
Which options formats take, and errors for those that none takes.

Problem. A misspelt option reaches the format of one of several arrays, deep inside of a call that the
user did not write. Idea. A public call that hands options on asks here first, and is named by the error,
with the nearest of all names that it takes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, Literal

from outcore import formats
from outcore.errors import UsageError, advice
from outcore.formats.format import Format
from outcore.formats.registry import every

__all__ = ["check_options", "refuse_unknown", "unknown_option"]

Verb = Literal["create", "open"]
# What the public calls take in addition to what their formats do.
_OF_CALLS = {
    "create": ("shape", "dtype", "data", "like", "typical", "overwrite", "hints"),
    "open": ("mode", "hints", "comm"),
}
# What only outcore itself says to a format.
_OURS = {"writable", "files", "exclusive"}


def keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the arguments that go by name only."""
    code = getattr(function, "__func__", function).__code__
    count = code.co_argcount
    return code.co_varnames[count : count + code.co_kwonlyargcount]


def unknown_option(call: str, word: str, known: set[str], more: str) -> UsageError:
    """The error for an option that a call does not take."""
    return UsageError(
        f"{call}() has no option {word!r}{advice(word, sorted(known))} {more}",
        code="unknown-option",
    )


def refuse_unknown(
    call: Callable[..., Any], verb: Verb, options: Iterable[str], more: Iterable[str] = ()
) -> None:
    """
    Refuse options that no format takes, in the name of the public call that was given them.

    Parameters
    ----------
    call
        The public function or method.
    verb
        What it does with the options.
    options
        Their names.
    more
        What the call takes in addition to its own arguments.

    Raises
    ------
    UsageError
        ``unknown-option``.
    """
    common = {*_common(verb), *more}
    wrong = [name for name in options if name not in common]
    if not wrong:
        return
    known = common.union(*(_of_format(one.load(), verb) for one in every())) - _OURS
    wrong = [name for name in wrong if name not in known]
    if wrong:
        import inspect  # long to import, and only for errors

        parameters = inspect.signature(call).parameters.values()
        own = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        own = list(dict.fromkeys([*(name for name in own if name != "self"), *more]))
        others = sorted(known - {*own})
        takes = f"It takes {', '.join(own)}; and as outcore.{verb} {', '.join(others)}"
        raise unknown_option(call.__qualname__, wrong[0], {*known, *own}, takes)


def check_options(format: Format, verb: Verb, options: Iterable[str]) -> None:
    """
    Raise `UsageError` for options that a format does not take.

    Parameters
    ----------
    format
        The format.
    verb
        Method that gets the options.
    options
        Their names.
    """
    allowed = _of_format(format, verb)
    wrong = [name for name in options if name not in allowed]
    if not wrong:
        return
    word, known = wrong[0], {*_common(verb), *allowed}
    known -= _OURS
    told = f"Options of format {format.name}: {', '.join(sorted(known))}"
    known_formats = [one.load() for one in every()]
    others = [f.name for f in known_formats if f is not format and word in _of_format(f, verb)]
    if others:
        raise UsageError(
            f"format {format.name} has no option {word!r} for {verb}; {', '.join(others)} "
            f"{'has' if len(others) == 1 else 'have'} it. {told}",
            code="unknown-option",
        )
    raise unknown_option(verb, word, {*known, *_OF_CALLS[verb]}, told)


def _common(verb: Verb) -> set[str]:
    """Options that every format has."""
    function: types.FunctionType = getattr(formats, f"{verb}_info")
    return {*keywords(function), "hints"} - _OURS


def _of_format(format: Format, verb: Verb) -> set[str]:
    return set(keywords(format.describe if verb == "open" else format.create))
