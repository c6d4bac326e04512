"""
Print a completion script: ``outcore completion bash | zsh | fish``.

Problem: there are about eighty commands with a dozen options each, too many to remember.
Approach: the script is generated from the parsers. It is a static text that the shell runs without
Python: starting Python at each completion would take as long as importing NumPy. One table maps a
command and the next word to the command below it.
Invariants: the script offers only what the parsers accept. For a free value or path the shell offers
files.

`shtab` also generates such scripts, but not for fish, and not from parsers that get their arguments late
(those of ``outcore run``). `argcomplete` starts Python at each key press. So no library needs to be
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

__all__ = ["add_command", "list_commands", "make_script"]

SHELLS = ("bash", "zsh", "fish")
# Values of options that the parsers accept as free text.
_KNOWN = {
    "--compression": ("none", "zstd", "gzip", "lz4", "blosc", "lzf"),
    "--format": tuple(one.name for one in formats.list_formats(of_packages=False)),
    "--order": ("C", "F"),
}


def add_command(
    command: Callable[..., argparse.ArgumentParser], parser: Callable[[], argparse.ArgumentParser]
) -> None:
    """Add the command `completion`; `parser` builds the parser of all commands."""

    def run(args: Any) -> None:
        text = make_script(args.shell, list_commands(parser()))
        if args.json:
            print_json({"shell": args.shell, "script": text})
        else:
            print(text, end="")

    sub = command("completion", run, "print a shell script that completes commands and options")
    sub.add_argument("shell", choices=SHELLS)
    sub.formatter_class = argparse.RawDescriptionHelpFormatter
    sub.epilog = (
        "bash:  outcore completion bash > ~/.local/share/bash-completion/completions/outcore\n"
        "zsh:   outcore completion zsh > DIR/_outcore, where DIR is one of $fpath\n"
        "fish:  outcore completion fish > ~/.config/fish/completions/outcore.fish"
    )


@dataclass
class ParserOption:
    """Option with its names, its help text, whether it takes a value, and the known values."""

    names: list[str]
    text: str
    has_value: bool
    values: Sequence[str] = ()


@dataclass
class Command:
    """Command, identified by the words that lead to it: ``""`` for the program alone, ``"run sum"``."""

    path: str
    options: list[ParserOption] = field(default_factory=list)
    #: Subcommands and fixed arguments, with their help texts.
    words: dict[str, str] = field(default_factory=dict)
    has_subcommands: bool = False


def list_commands(parser: argparse.ArgumentParser, path: str = "") -> list[Command]:
    """Return the command of a parser and all commands below it."""
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
            here.has_subcommands = True
            for name, sub in action.choices.items():
                here.words[name] = texts.get(name, "")
                below += list_commands(sub, f"{path} {name}".strip())
        elif action.option_strings:
            here.options.append(_make_option(action, known))
        elif action.choices is not None:
            here.words |= {str(choice): "" for choice in action.choices}
    return [here, *below]


def _make_option(action: argparse.Action, known: dict[str, Sequence[str]]) -> ParserOption:
    names, has_value = list(action.option_strings), action.nargs != 0
    values: Iterable[Any] = action.choices or ()
    for name in names:
        values = values or known.get(name, ()) or (_KNOWN.get(name, ()) if has_value else ())
    text = " ".join((action.help or "").replace("%%", "%").split())
    return ParserOption(names, text, has_value, [str(value) for value in values])


def make_script(shell: str, found: Sequence[Command]) -> str:
    """Return the completion script for a shell, from the result of `list_commands`."""
    made = {"bash": _make_bash, "zsh": _make_zsh, "fish": _make_fish}[shell]
    head = f"# Completion of outcore {outcore.__version__}; made by `outcore completion {shell}`."
    lines = made(found)
    first = [lines[0], head] if lines[0].startswith("#compdef") else [head, lines[0]]
    return "\n".join([*first, *lines[1:]]) + "\n"


def _list_steps(found: Sequence[Command]) -> list[str]:
    """Return each command followed by a space and a word that leads to a subcommand."""
    return [f"{one.path} {word}" for one in found if one.has_subcommands for word in one.words]


def _map_values(found: Sequence[Command]) -> dict[tuple[str, ...], list[str]]:
    """Map the known values of options (none for free values) to their commands and options."""
    table: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        for option in one.options:
            if option.has_value:
                places = table.setdefault(tuple(option.values), [])
                places += [f"{one.path} {name}" for name in option.names]
    return table


def _join_alternatives(words: Iterable[str]) -> str:
    return "|".join(f'"{word}"' for word in words)


def _list_names(one: Command) -> list[str]:
    return [name for option in one.options for name in option.names]


def _make_bash(found: Sequence[Command]) -> list[str]:
    lines = [
        "_outcore() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}",
        '    local command="" below="" options="" i',
        "    COMPREPLY=()",
        "    # Bash treats the equals sign of --format=zarr as a separate word.",
        '    if [[ $cur == "=" ]]; then',
        '        cur=""',
        '    elif [[ $prev == "=" ]]; then',
        "        prev=${COMP_WORDS[COMP_CWORD-2]}",
        "    fi",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        '        case "$command ${COMP_WORDS[i]}" in',
        f"            {_join_alternatives(_list_steps(found))})",
        '                command="${command:+$command }${COMP_WORDS[i]}" ;;',
        "        esac",
        "    done",
        '    case "$command $prev" in',
    ]
    for values, places in _map_values(found).items():
        lines.append(f"        {_join_alternatives(places)})")
        if values:
            lines.append(f'            COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$cur"))')
        lines.append("            return ;;")
    lines += ["    esac", '    case "$command" in']
    for one in found:
        lines += [
            f'        "{one.path}")',
            f'            below="{" ".join(one.words)}"',
            f'            options="{" ".join(_list_names(one))}" ;;',
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
        "# If there is nothing else to offer, offer file names.",
        "complete -o bashdefault -o default -F _outcore outcore",
    ]


def _quote_zsh(name: str, text: str) -> str:
    """Quote a word for `_describe` of zsh."""
    told = f":{text}" if text else ""
    return shlex.quote(name.replace(":", "\\:") + told)


def _make_zsh(found: Sequence[Command]) -> list[str]:
    lines = [
        "#compdef outcore",
        "compdef _outcore outcore",
        "_outcore() {",
        '    local command=""',
        "    local -i i",
        "    local -a below options values",
        "    for ((i = 2; i < CURRENT; i++)); do",
        '        case "$command ${words[i]}" in',
        f"            {_join_alternatives(_list_steps(found))})",
        '                command="${command:+$command }${words[i]}" ;;',
        "        esac",
        "    done",
        '    case "$command ${words[CURRENT-1]}" in',
    ]
    for values, places in _map_values(found).items():
        lines.append(f"        {_join_alternatives(places)})")
        if values:
            lines += [f"            values=({' '.join(values)})", "            compadd -a values"]
        else:
            lines.append("            _files")
        lines.append("            return ;;")
    lines += ["    esac", '    case "$command" in']
    for one in found:
        below = " ".join(_quote_zsh(name, text) for name, text in one.words.items())
        options = " ".join(
            _quote_zsh(name, option.text) for option in one.options for name in option.names
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
        "# Do not complete when the file is only sourced.",
        'if [ "$funcstack[1]" = "_outcore" ]; then',
        "    _outcore",
        "fi",
    ]


def _make_fish(found: Sequence[Command]) -> list[str]:
    lines = [
        "function __outcore_at --description 'Check whether the words so far lead to this command'",
        "    set -l command ''",
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$command $word"',
        f"            case {' '.join(map(_quote_fish, _list_steps(found)))}",
        '                set command (string trim "$command $word")',
        "        end",
        "    end",
        '    test "$command" = "$argv"',
        "end",
    ]
    for one in found:
        at = f"complete -c outcore -n {_quote_fish(f'__outcore_at {one.path}'.strip())}"
        for name, text in one.words.items():
            about = f" -d {_quote_fish(text)}" if text else ""
            lines.append(f"{at} -f -a {_quote_fish(name)}{about}")
        for option in one.options:
            named = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = f" -x -a {_quote_fish(' '.join(option.values))}" if option.values else " -r"
            lines.append(
                f"{at} {named}{value if option.has_value else ''} -d {_quote_fish(option.text)}"
            )
    return lines


def _quote_fish(text: str) -> str:
    """Quote text for fish, whose single quotes know two escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
