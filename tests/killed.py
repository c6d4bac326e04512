"""A child process that dies before one of its steps: calls of ``os``, and others that are told."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any


def dies_at(
    step: int,
    action: Callable[[], object],
    names: Sequence[str],
    more: Sequence[tuple[Any, str]] = (),
) -> bool:
    """
    Run `action` in a child that ends before its step number `step`; False if it comes to its end.

    Steps are the functions `names` of ``os`` and those in `more`: (module, name).
    """
    child = os.fork()
    if child == 0:
        try:
            _count_steps(step, [*((os, name) for name in names), *more])
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 77), "the action itself failed"
    return code == 77


def _count_steps(last: int, steps: Sequence[tuple[Any, str]]) -> None:
    count = 0

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == last:
                os._exit(77)
            return function(*args, **kwargs)

        return call

    for module, name in steps:
        setattr(module, name, counting(getattr(module, name)))
