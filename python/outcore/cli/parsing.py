"""
Parse sections, options and lengths that are typed on the command line.

Problem: arguments arrive as text, but sections and options are Python values; `eval` would run code.
Approach: the grammar is Python's, parsed by `ast`; only integers, slices and a little arithmetic are
evaluated.
Invariants: text from the command line never runs as code. Invalid text raises `UsageError`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outcore.errors import UsageError

__all__ = ["parse_lengths", "parse_literal", "parse_named", "parse_options", "parse_section"]

_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# Arguments of `open` and `verify` that have an option of their own, or that a command does not accept.
_NOT_TO_SET = ("comm", "hints", "mode", "path", "progress")


def parse_section(text: str, **names: int) -> Any:
    """
    Convert text into an index key: integers, slices, ``...`` and ``None``; brackets are optional.

    With `names`, integers may be expressions of these names with ``+ - * // %`` and parentheses.

    >>> parse_section("[100:200, ::3]")
    (slice(100, 200, None), slice(None, None, 3))
    >>> parse_section("...")
    Ellipsis
    >>> parse_section("[:, 10 * rank : 10 * (rank + 1)]", rank=3, size=4)
    (slice(None, None, None), slice(30, 40, None))
    """
    inside = text.strip()
    if inside.startswith("[") and inside.endswith("]"):
        inside = inside[1:-1].strip()
    try:
        tree = ast.parse(f"_[{inside}]" if inside else "_[()]", mode="eval").body
        if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name):
            return _evaluate_index(tree.slice, names)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        pass
    known = "" if names else "; with --ranks N, it may contain 'rank' and 'size'"
    raise UsageError(
        f"{text!r} is not a section; write integers and slices, such as '[100:200, ::3]'{known}",
        code="bad-section",
    )


def _evaluate_index(node: ast.expr, names: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_evaluate_index(part, names) for part in node.elts)
    if isinstance(node, ast.Slice):
        ends = (node.lower, node.upper, node.step)
        return slice(*(None if end is None else _evaluate_index(end, names) for end in ends))
    if isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
        return node.value
    return _evaluate_integer(node, names)


def _evaluate_integer(node: ast.expr, names: Mapping[str, int]) -> int:
    """Evaluate an integer: only numbers, names and arithmetic that cannot grow without bound."""
    value: int | None = None
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.Name):
        value = names.get(node.id)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -_evaluate_integer(node.operand, names)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and names:
        compute = _ARITHMETIC[type(node.op)]
        value = compute(_evaluate_integer(node.left, names), _evaluate_integer(node.right, names))
    if value is None:
        raise ValueError(ast.dump(node))
    return value


def parse_options(settings: Sequence[str]) -> dict[str, Any]:
    """Convert ``["dtype=f4", "shape=100,200"]`` into keyword arguments."""
    options = parse_named(settings, "set")
    for name in options:
        if not name.isidentifier():
            raise UsageError(f"--set {name!r}: write NAME=VALUE", code="bad-option")
        if name in _NOT_TO_SET:
            raise UsageError(
                f"--set {name!r}: {name} is not an option of a format; use --set for what a file does "
                "not state, such as dtype=f4 or shape=100,200",
                code="bad-option",
            )
    return options


def parse_named(settings: Sequence[str], option: str) -> dict[str, Any]:
    """
    Convert ``name=value`` items into a dict; a value is a Python literal, otherwise text.

    >>> parse_named(["units=K", "scale=0.5", "levels=[1, 2]"], "attr")
    {'units': 'K', 'scale': 0.5, 'levels': [1, 2]}
    """
    found: dict[str, Any] = {}
    for item in settings:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"--{option} {item!r}: write NAME=VALUE", code="bad-option")
        found[name] = parse_literal(value)
    return found


def parse_literal(value: str) -> Any:
    """Return the value of a Python literal, or the text itself if it is not one."""
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return value


def parse_lengths(text: str | None, name: str) -> Any:
    """Convert ``"100,200"`` into integers; return None for None."""
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]+([,x]-?[0-9]+)*", text):
        raise UsageError(
            f"--{name} {text!r}: write whole numbers, such as 100,200", code="bad-option"
        )
    lengths = tuple(int(part) for part in re.split("[,x]", text))
    return lengths[0] if len(lengths) == 1 else lengths
