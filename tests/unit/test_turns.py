"""Computations that several threads begin at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcore
from outcore.compute.jobs import turns


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = str(tmp_path / "a.npy")
    np.save(path, np.random.default_rng(0).standard_normal((1000, 1000)))
    return path


def _all(calls: list[Callable[[], Any]]) -> list[Any]:
    """The results of calls that threads make at once."""
    results: list[Any] = [None] * len(calls)

    def run(n: int) -> None:
        try:
            results[n] = calls[n]()
        except BaseException as error:
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(calls))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(50)
        assert not one.is_alive()
    return results


@pytest.mark.parametrize("memory", [None, "2 MiB"])
def test_threads_that_compute_at_once_are_not_refused_memory(source: str, memory: Any) -> None:
    a = np.load(source)
    how = {} if memory is None else {"memory": memory}
    before = outcore.memory()
    outcore.memory("4 MiB")
    try:
        found = _all(
            [
                lambda: outcore.transpose(source, **how)[:],
                lambda: outcore.sum(source, axis=0, **how),
                lambda: outcore.matmul(source, source, **how)[:],
            ]
            * 3
        )
    finally:
        outcore.memory(before)
    for n, result in enumerate(found):
        assert not isinstance(result, BaseException), result
        assert np.allclose(result, (a.T, a.sum(axis=0), a @ a)[n % 3])


def _turns_of(threads: list[tuple[int, int]], log: list[str], hold: float = 0.05) -> None:
    def take(n: int, budget: int, limit: int) -> None:
        with turns.take_turn(budget, limit):
            log.append(f"begins {n}")
            time.sleep(hold)
            log.append(f"ends {n}")

    _all([lambda n=n, b=b, limit=limit: take(n, b, limit) for n, (b, limit) in enumerate(threads)])


def test_what_fits_side_by_side_goes_side_by_side_and_the_rest_waits() -> None:
    log: list[str] = []
    _turns_of([(4, 8), (4, 8)], log, hold=0.5)
    assert sorted(log[:2]) == ["begins 0", "begins 1"]
    log.clear()
    _turns_of([(5, 8), (5, 8), (8, 8)], log)
    assert [one.split()[0] for one in log] == ["begins", "ends"] * 3
    assert [one.split()[1] for one in log[::2]] == [one.split()[1] for one in log[1::2]]


def test_what_a_function_of_ones_own_begins_does_not_wait(source: str) -> None:
    total = np.load(source).sum()

    def inner(block: Any) -> Any:
        return block + outcore.sum(source, memory="2 MiB")

    before = outcore.memory()
    outcore.memory("8 MiB")
    try:
        found = outcore.map_blocks(inner, source, memory="6 MiB")[0, :2]
    finally:
        outcore.memory(before)
    assert np.allclose(found, np.load(source)[0, :2] + total)


def test_who_waits_for_one_that_does_not_go_on_begins_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.3)
    entered = threading.Event()

    def other() -> None:
        with turns.take_turn(8, 8):
            entered.set()

    with turns.take_turn(8, 8) as touch:
        one = threading.Thread(target=other)
        one.start()
        for _ in range(10):  # as long as this one goes on, it waits
            touch()
            assert not entered.wait(0.1)
        assert entered.wait(5)
        one.join()


def test_who_is_interrupted_while_waiting_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, timeout: float) -> None:
        raise KeyboardInterrupt

    caught: list[BaseException] = []

    def other() -> None:
        try:
            with turns.take_turn(8, 8):
                pass
        except KeyboardInterrupt as error:
            caught.append(error)

    with turns.take_turn(8, 8):
        monkeypatch.setattr(threading.Condition, "wait", interrupted)
        one = threading.Thread(target=other, name="other")
        one.run()  # in this thread it would not wait
        assert not caught
        monkeypatch.setattr(turns.threading, "get_ident", lambda: -1)
        one = threading.Thread(target=other)
        one.run()
    assert caught
    assert not turns._turns.waiting and not turns._turns.under_way
