"""
``outcore completion bash | zsh | fish``: a script that completes commands, options and their values.

Problem. There are some eighty commands with a dozen options each, and nobody knows all of them.
Idea. The script is made of the parsers themselves, so it knows what they know, and is a text that the
shell runs alone: a completion that asked Python each time would take as long as importing NumPy does.
What the words so far mean is told by one table: a command, and the word that leads from it to one below
it.
Invariants. What is offered is what the parsers take. Where a value or a path is free the shell offers
files.

`shtab` makes such scripts too, but not for fish, and not of parsers that get their arguments late (those
of ``outcore run``); `argcomplete` starts Python at each press of the key. So there is no library to be
installed.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import outcore
from outcore import formats
from outcore.cli.output import print_json
from outcore.cli.run import OperationParser

__all__ = ["arguments", "commands", "script"]

SHELLS = ("bash", "zsh", "fish")
# Values that parsers take as text.
_KNOWN = {
    "--compression": ("none", "zstd", "gzip", "lz4", "blosc", "lzf"),
    "--format": tuple(one.name for one in formats.every(of_packages=False)),
    "--order": ("C", "F"),
}


def arguments(
    command: Callable[..., argparse.ArgumentParser], parser: Callable[[], argparse.ArgumentParser]
) -> None:
    """Add the command; `parser` makes the parser of all commands."""

    def run(words: Any) -> None:
        text = script(words.shell, commands(parser()))
        if words.json:
            print_json({"shell": words.shell, "script": text})
        else:
            print(text, end="")

    sub = command(
        "completion", run, "print a script that completes commands and options in a shell"
    )
    sub.add_argument("shell", choices=SHELLS)
    sub.formatter_class = argparse.RawDescriptionHelpFormatter
    sub.epilog = (
        "bash:  outcore completion bash > ~/.local/share/bash-completion/completions/outcore\n"
        "zsh:   outcore completion zsh > DIR/_outcore, where DIR is one of $fpath\n"
        "fish:  outcore completion fish > ~/.config/fish/completions/outcore.fish"
    )


@dataclass
class Option:
    """An option: its names, what it is, whether it takes a value, and which ones, if they are known."""

    names: list[str]
    text: str
    takes: bool
    values: Sequence[str] = ()


@dataclass
class Command:
    """What may stand after some words: ``""`` after the program alone, ``"run sum"``."""

    path: str
    options: list[Option] = field(default_factory=list)
    #: Words that lead further, or that are an argument, with what they are.
    words: dict[str, str] = field(default_factory=dict)
    leads: bool = False


def commands(parser: argparse.ArgumentParser, path: str = "") -> list[Command]:
    """A parser, and all below it."""
    known: dict[str, Sequence[str]] = {}
    if isinstance(parser, OperationParser):
        parser.fill()
        operation = parser.operation
        known = {f"--{name}": option.choices or () for name, option in operation.options.items()}
    here, below = Command(path), []
    # argparse has no public way to list the options of a parser.
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            texts = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            here.leads = True
            for name, sub in action.choices.items():
                here.words[name] = texts.get(name, "")
                below += commands(sub, f"{path} {name}".strip())
        elif action.option_strings:
            here.options.append(_option(action, known))
        elif action.choices is not None:
            here.words |= {str(choice): "" for choice in action.choices}
    return [here, *below]


def _option(action: argparse.Action, known: dict[str, Sequence[str]]) -> Option:
    names, takes = list(action.option_strings), action.nargs != 0
    values: Iterable[Any] = action.choices or ()
    for name in names:
        values = values or known.get(name, ()) or (_KNOWN.get(name, ()) if takes else ())
    text = " ".join((action.help or "").replace("%%", "%").split())
    return Option(names, text, takes, [str(value) for value in values])


def script(shell: str, found: Sequence[Command]) -> str:
    """
    The script for a shell.

    Parameters
    ----------
    shell
        ``"bash"``, ``"zsh"`` or ``"fish"``.
    found
        Of `commands`.
    """
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    head = f"# Completion of outcore {outcore.__version__}; made by `outcore completion {shell}`."
    lines = made(found)
    first = [lines[0], head] if lines[0].startswith("#compdef") else [head, lines[0]]
    return "\n".join([*first, *lines[1:]]) + "\n"


def _steps(found: Sequence[Command]) -> list[str]:
    """The command so far, a space, and the word that leads from it to another one."""
    return [f"{one.path} {word}" for one in found if one.leads for word in one.words]


def _with_values(found: Sequence[Command]) -> dict[tuple[str, ...], list[str]]:
    """Values of options, and after which command and option they come; of free ones none."""
    table: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        for option in one.options:
            if option.takes:
                places = table.setdefault(tuple(option.values), [])
                places += [f"{one.path} {name}" for name in option.names]
    return table


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(f'"{word}"' for word in words)


def _names(one: Command) -> list[str]:
    return [name for option in one.options for name in option.names]


def _bash(found: Sequence[Command]) -> list[str]:
    lines = [
        "_outcore() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}",
        '    local command="" below="" options="" i',
        "    COMPREPLY=()",
        "    # The equals sign of --format=zarr is a word of its own here.",
        '    if [[ $cur == "=" ]]; then',
        '        cur=""',
        '    elif [[ $prev == "=" ]]; then',
        "        prev=${COMP_WORDS[COMP_CWORD-2]}",
        "    fi",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        '        case "$command ${COMP_WORDS[i]}" in',
        f"            {_alternatives(_steps(found))})",
        '                command="${command:+$command }${COMP_WORDS[i]}" ;;',
        "        esac",
        "    done",
        '    case "$command $prev" in',
    ]
    for values, places in _with_values(found).items():
        lines.append(f"        {_alternatives(places)})")
        if values:
            lines.append(f'            COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$cur"))')
        lines.append("            return ;;")
    lines += ["    esac", '    case "$command" in']
    for one in found:
        lines += [
            f'        "{one.path}")',
            f'            below="{" ".join(one.words)}"',
            f'            options="{" ".join(_names(one))}" ;;',
        ]
    return [
        *lines,
        "    esac",
        "    if [[ $cur == -* ]]; then",
        '        COMPREPLY=($(compgen -W "$options" -- "$cur"))',
        "    elif [[ -n $below ]]; then",
        '        COMPREPLY=($(compgen -W "$below" -- "$cur"))',
        "    fi",
        "}",
        "# Where there is nothing else to offer: names of files.",
        "complete -o bashdefault -o default -F _outcore outcore",
    ]


def _described(name: str, text: str) -> str:
    """A word for `_describe` of zsh, in quotes."""
    told = f":{text}" if text else ""
    return shlex.quote(name.replace(":", "\\:") + told)


def _zsh(found: Sequence[Command]) -> list[str]:
    lines = [
        "#compdef outcore",
        "compdef _outcore outcore",
        "_outcore() {",
        '    local command=""',
        "    local -i i",
        "    local -a below options values",
        "    for ((i = 2; i < CURRENT; i++)); do",
        '        case "$command ${words[i]}" in',
        f"            {_alternatives(_steps(found))})",
        '                command="${command:+$command }${words[i]}" ;;',
        "        esac",
        "    done",
        '    case "$command ${words[CURRENT-1]}" in',
    ]
    for values, places in _with_values(found).items():
        lines.append(f"        {_alternatives(places)})")
        if values:
            lines += [f"            values=({' '.join(values)})", "            compadd -a values"]
        else:
            lines.append("            _files")
        lines.append("            return ;;")
    lines += ["    esac", '    case "$command" in']
    for one in found:
        below = " ".join(_described(name, text) for name, text in one.words.items())
        options = " ".join(
            _described(name, option.text) for option in one.options for name in option.names
        )
        lines += [
            f'        "{one.path}")',
            f"            below=({below})",
            f"            options=({options}) ;;",
        ]
    return [
        *lines,
        "    esac",
        "    if [[ ${words[CURRENT]} == -* ]]; then",
        "        _describe -o option options",
        "    elif (( ${#below} )); then",
        "        _describe command below",
        "    else",
        "        _files",
        "    fi",
        "}",
        "# Not when it is only read in.",
        'if [ "$funcstack[1]" = "_outcore" ]; then',
        "    _outcore",
        "fi",
    ]


def _fish(found: Sequence[Command]) -> list[str]:
    lines = [
        "function __outcore_at --description 'Whether the words so far lead to this command'",
        "    set -l command ''",
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$command $word"',
        f"            case {' '.join(map(_fished, _steps(found)))}",
        '                set command (string trim "$command $word")',
        "        end",
        "    end",
        '    test "$command" = "$argv"',
        "end",
    ]
    for one in found:
        at = f"complete -c outcore -n {_fished(f'__outcore_at {one.path}'.strip())}"
        for name, text in one.words.items():
            about = f" -d {_fished(text)}" if text else ""
            lines.append(f"{at} -f -a {_fished(name)}{about}")
        for option in one.options:
            named = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = f" -x -a {_fished(' '.join(option.values))}" if option.values else " -r"
            lines.append(f"{at} {named}{value if option.takes else ''} -d {_fished(option.text)}")
    return lines


def _fished(text: str) -> str:
    """Text in quotes of fish, which knows two escapes in them."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
