"""
The executor of schedules: loads ahead, computes, and stores in the background.

Problem: a disk waits for the next request, or a processor waits for the disk, unless every algorithm
manages overlap and buffers by itself.
Approach: steps begin in order: the loads of a step start as soon as each of its buffers has a free
copy. Kernels run in order on the caller's thread, while the next steps load and the last ones store. If
ranks read together, which needs the caller's thread, the kernel runs on another thread. The caller
drives a run step by step (`ScheduleRun.advance`), so several runs can be in progress, and each can stop
between any two steps.

Invariants: only one of load, kernel and store accesses a block at a time, and its memory outlives the
requests that use it, whatever fails. A step loads after everything that it waits for has been stored.
Steps are reported as stored in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule.memory import Pages, find_lead
from outcore.arrays.schedule.value import (
    Block,
    Buffer,
    InvalidScheduleError,
    Load,
    Schedule,
    ScheduleStep,
    Section,
)
from outcore.base.background import Background
from outcore.base.closable import Closable
from outcore.base.requests import IORequest

__all__ = ["AsyncArray", "ScheduleRun", "Together", "iterate_pending"]


class AsyncArray(Protocol):
    """Interface of an array that a schedule needs."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""

    def iread(self, key: Section, *, out: NDArray[Any]) -> IORequest[Any]:
        """Start reading a section."""

    def iwrite(self, key: Section, value: NDArray[Any]) -> IORequest[None]:
        """Start writing a section."""


#: Function that reads sections of arrays, given by number, into their destinations.
Together = Callable[[Sequence[tuple[int, Section, NDArray[Any]]]], object]


class Memory(Protocol):
    """Memory of the blocks of a run; `take` determines the type of a copy."""

    def has(self, buffer: int, copies: int = 1) -> bool:
        """Return whether this number of copies of a buffer is free."""

    def take(self, buffer: int, lead: int = 0) -> Any:
        """Return a free copy, whose block should begin at byte `find_lead` of a page."""

    def give(self, buffer: int, copy: Any) -> None:
        """Mark a copy as free."""

    def view(self, block: Block, copy: Any) -> NDArray[Any]:
        """Return a block in a copy."""

    def close(self) -> None:
        """Release the memory, which is no longer in use."""


class _Live:
    """A step that has begun, and its copies of its buffers."""

    def __init__(self, due: PendingStep, memory: Memory) -> None:
        self.number, self.step, self.is_repeated = due.number, due.step, due.is_repeated
        step, self._memory = due.step, memory
        self.loads: list[IORequest[Any]] = []
        self.stores: list[IORequest[None]] = []
        self.loaded = step.loaded
        self.stored = {store.block for store in step.stores}
        #: Byte of a page at which each block begins that is loaded or stored.
        self.leads: dict[int, int] = {}
        self._copies: list[Any] = [None] * len(step.blocks)

    def take(self, blocks: Iterable[int]) -> None:
        """Take a copy for each of these blocks."""
        for n in blocks:
            self._copies[n] = self._memory.take(self.step.blocks[n].buffer, self.leads.get(n, 0))

    def view(self, block: int) -> NDArray[Any]:
        """Return the memory of a block."""
        return self._memory.view(self.step.blocks[block], self._copies[block])

    def give_back(self, *, stored: bool) -> None:
        """Release unused copies: all if the step is stored, else those that are not being stored."""
        for n, copy in enumerate(self._copies):
            if copy is not None and (stored or n not in self.stored):
                self._memory.give(self.step.blocks[n].buffer, copy)
                self._copies[n] = None

    @property
    def missing(self) -> list[int]:
        """Blocks that have no copy yet."""
        return [n for n, copy in enumerate(self._copies) if copy is None]

    def wants(self, buffer: int) -> int:
        """Return the number of copies of a buffer that the step must still take."""
        return sum(self.step.blocks[n].buffer == buffer for n in self.missing)


class ScheduleRun(Closable):
    """
    Execution of a schedule.

    `done` are the numbers of finished steps. They are not repeated, unless a later unfinished step
    needs what they have kept; `iterate_pending` determines these. `stored` is called with the number of
    each step that was completely handed to the system, in order, on the thread that drives the run.
    `steps` is a part of the schedule that starts at a step that does not continue another (default:
    all).

    `together` reads sections of the arrays in `Schedule.common`, called once for each step with the
    array, section and destination of each; by default they are read like others. `memory` has the
    blocks, if the caller has allocated them; by default the run allocates them at the beginning
    (`BudgetError`). The end of the ``with`` block waits for stores, stops loads, and releases the
    memory.
    """

    def __init__(
        self,
        schedule: Schedule,
        arrays: Sequence[AsyncArray],
        *,
        done: Container[int] = (),
        stored: Callable[[int], object] = lambda number: None,
        steps: range | None = None,
        together: Together | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.schedule, self._arrays, self._stored = schedule, arrays, stored
        self._todo = iterate_pending(
            schedule, done, range(schedule.steps) if steps is None else steps
        )
        self._together = together
        self._next = next(self._todo, None)
        self._loading: deque[_Live] = deque()
        self._current: _Live | None = None
        self._storing: deque[_Live] = deque()
        self._memory = Pages(schedule) if memory is None else memory

    def advance(self) -> int | None:
        """Execute the next step without waiting for its stores; return its number, None at the end."""
        blocks = self.load()
        if blocks is None or self._current is None:
            return None
        live, step = self._current, self._current.step
        if step.kernel is not None:
            kernel = partial(self.schedule.kernels[step.kernel], blocks, *step.arguments)
            if self._together is None:
                kernel()
            else:
                self._run_kernel_during_reads(kernel)
            del kernel
        del blocks
        self.store()
        return live.number

    def _run_kernel_during_reads(self, kernel: Callable[[], None]) -> None:
        """Run a kernel on another thread, while this one reads with other ranks for the next step."""
        # This thread communicates: MPI may allow no other. A failure here waits for the kernel.
        with Background("outcore-kernel") as background:
            background.start(kernel)
            self._begin_loads()

    def load(self) -> list[NDArray[Any]] | None:
        """Return the loaded blocks of the next step for the caller's computation; None at the end."""
        while not self._loading:
            self._begin_loads()
            if self._loading:
                break
            if self._next is None:
                return None
            self._retire()
        live = self._loading.popleft()
        self._current = live
        for request in live.loads:
            request.wait()
        for load in live.step.loads:
            self._swap_bytes(load, live)
        while not self._can_compute(live):
            self._retire()
        live.take(live.missing)
        if self._together is None or live.step.kernel is None or self._has_reuse():
            self._begin_loads()
        while not self._loading and self._has_reuse():
            self._retire()
            self._begin_loads()
        return [live.view(n) for n in range(len(live.step.blocks))]

    def _has_reuse(self) -> bool:
        """Return whether the next step reuses blocks of the current one."""
        return self._next is not None and bool(self._next.step.reuses)

    def store(self) -> None:
        """Store the results of computing with the blocks of `load`, in the background."""
        live = self._current
        assert live is not None, "store() without load()"
        while len(self._storing) >= self.schedule.writing:
            self._retire()
        self._current = None
        self._storing.append(live)
        for store in live.step.stores:
            part = store.place(live.view(store.block))
            live.stores.append(self._arrays[store.array].iwrite(store.section, part))
        live.give_back(stored=False)
        self._begin_loads()

    def finish(self) -> None:
        """Execute the rest of the schedule, and wait until all of it is stored."""
        while self.advance() is not None:
            pass
        while self._storing:
            self._retire()

    def close(self) -> None:
        """Cancel the loads, wait until all requests have ended, and release the memory."""
        # The memory belongs to the requests until they end.
        begun = [*self._loading, *([self._current] if self._current else []), *self._storing]
        for live in begun:
            for load in live.loads:
                load.cancel()
        for live in begun:
            for request in (*live.loads, *live.stores):
                request.finish(unwanted=True)
        self._memory.close()

    def _begin_loads(self) -> None:
        # Finished stores release their memory, although no step waits for it yet.
        while self._storing and all(store.done for store in self._storing[0].stores):
            self._retire()
        while self._next is not None and len(self._loading) < self.schedule.reading:
            live = _Live(self._next, self._memory)
            if not self._can_load(live):
                return
            live.leads = self._find_leads(live.step)
            live.take(live.loaded)
            self._loading.append(live)
            self._next = next(self._todo, None)
            for reuse in live.step.reuses:
                assert self._current is not None
                live.view(reuse.block)[reuse.at] = self._current.view(reuse.source)[reuse.source_at]
            common = []
            for load in live.step.loads:
                place = self._place(load, live)
                if self._together is not None and load.array in self.schedule.common:
                    common.append((load.array, load.section, place))
                else:
                    live.loads.append(self._arrays[load.array].iread(load.section, out=place))
            if self._together is not None:
                self._together(common)

    def _find_leads(self, step: ScheduleStep) -> dict[int, int]:
        """Return the byte of a page at which each block should begin, from its first load or store."""
        # If axes are permuted, everything is copied, whatever its alignment.
        plain = [one for one in (*step.loads, *step.stores) if one.axes is None]
        firsts = {one.block: one for one in reversed(plain)}
        buffers = self.schedule.buffers
        return {
            n: find_lead(
                load, step.blocks[n], buffers[step.blocks[n].buffer], self._arrays[load.array]
            )
            for n, load in firsts.items()
        }

    def _place(self, load: Load, live: _Live) -> NDArray[Any]:
        array, place = self._arrays[load.array], load.place(live.view(load.block))
        if array.dtype != place.dtype and array.dtype.newbyteorder("=") == place.dtype:
            # In the byte order of the file, for now.
            place = place.view(array.dtype)
        return place

    def _swap_bytes(self, load: Load, live: _Live) -> None:
        place = load.place(live.view(load.block))
        if self._arrays[load.array].dtype != place.dtype:
            place.byteswap(inplace=True)

    def _can_load(self, live: _Live) -> bool:
        """Return whether the steps that the step waits for are stored, and memory for loads is free."""
        current = [self._current] if self._current else []
        before = [*self._storing, *current, *self._loading]
        if before and before[0].number < live.step.after:
            return False
        if live.step.reuses:
            if self._loading or not current:
                return False
            if current[0].number != live.number - 1:
                raise InvalidScheduleError(
                    f"{self.schedule.name}: step {live.number} reuses a block of a step that is "
                    "not executed"
                )
        return all(
            # A kept block may change only when no step uses it any more.
            not self._is_stored_from(number)
            and not any(_has(one, number) for one in (*current, *self._loading))
            if buffer.kept
            # Do not take memory that an earlier step will need.
            else self._memory.has(number, 1 + sum(one.wants(number) for one in self._loading))
            for number, buffer in self._iterate_buffers(live, live.loaded)
        )

    def _can_compute(self, live: _Live) -> bool:
        """Return whether there is memory for the results, none of which is still being stored."""
        return all(
            not self._is_stored_from(number)
            if buffer.kept
            else n in live.loaded or self._memory.has(number)
            for n in range(len(live.step.blocks))
            for number, buffer in self._iterate_buffers(live, [n])
        )

    def _is_stored_from(self, buffer: int) -> bool:
        return any(
            number == buffer
            for one in self._storing
            for number, _ in self._iterate_buffers(one, one.stored)
        )

    def _iterate_buffers(self, live: _Live, blocks: Iterable[int]) -> Iterator[tuple[int, Buffer]]:
        numbers = (live.step.blocks[n].buffer for n in blocks)
        return ((number, self.schedule.buffers[number]) for number in numbers)

    def _retire(self) -> None:
        """Wait until the oldest step is stored."""
        if not self._storing:
            raise InvalidScheduleError(
                f"{self.schedule.name}: a step waits for memory that no other step will release"
            )
        live = self._storing[0]
        for store in live.stores:
            store.wait()
        self._storing.popleft()
        live.give_back(stored=True)
        if not live.is_repeated:
            self._stored(live.number)


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step that a run must execute, with its number in the schedule."""

    number: int
    step: ScheduleStep
    #: True if the step is finished and is repeated only for what it leaves in memory; it stores
    #: nothing.
    is_repeated: bool = False


def iterate_pending(
    schedule: Schedule, done: Container[int], steps: range
) -> Iterator[PendingStep]:
    """Yield the steps to execute, including finished steps that must be repeated."""
    # One at a time, because a list of very many steps may not fit in memory.
    if schedule.restart is not None:
        return _iterate_with_restart(schedule, schedule.restart, done, steps)
    return _iterate_chains(schedule, done, steps)


def _iterate_with_restart(
    schedule: Schedule,
    restart: Callable[[int], tuple[ScheduleStep, ...]],
    done: Container[int],
    steps: range,
) -> Iterator[PendingStep]:
    """Yield each unfinished step, after steps that restore what its predecessor leaves in memory."""
    before_is_run = False
    for number in steps:
        if number in done:
            before_is_run = False
            continue
        step = schedule.step(number)
        if before_is_run or not step.is_chained:
            yield PendingStep(number, step)
        else:
            *lead, first = restart(number)
            for k, one in enumerate(lead, number - len(lead)):
                yield PendingStep(k, one, is_repeated=True)
            yield PendingStep(number, first)
        before_is_run = True


def _iterate_chains(
    schedule: Schedule, done: Container[int], steps: range
) -> Iterator[PendingStep]:
    """Yield completely each chain of steps that has an unfinished step."""
    begin, complete = steps.start, True
    for number in steps:
        step = schedule.step(number)
        if not step.is_chained:
            begin, complete = number, True
        if complete and number not in done:
            for k in range(begin, number):
                yield PendingStep(k, schedule.step(k))
            complete = False
        if not complete:
            yield PendingStep(number, step)


def _has(live: _Live, buffer: int) -> bool:
    return any(block.buffer == buffer for block in live.step.blocks)
