"""
The task of a job: an operation, the places of its results, a budget, and the ranks that share the
work.

Problem. An interrupted job is resumed by another process, perhaps without the program that began
it. It must not be mixed with another job.
Idea. The task returns, as values that JSON can hold, what identifies a job (`Task.describe`), what
may be left on the disk and how to repeat the call (`Task.announce`), and what determines the
program (`Task.record`). The journal records all three.

Invariants. `Task.describe` returns the state of the files before the job has written anything.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import Schedule
from outcore.compute.jobs.calls import encode_call
from outcore.compute.jobs.changed import Files, fingerprint_input
from outcore.compute.jobs.journal import SUFFIX
from outcore.compute.jobs.operation import Operation, Program
from outcore.compute.jobs.outputs import NamedOutput, Output
from outcore.compute.jobs.shares import BudgetedProgram, sample_steps
from outcore.compute.jobs.target import PARTIAL, make_absolute
from outcore.compute.jobs.temporaries import choose_suffix
from outcore.formats import durable
from outcore.ranks.ranks import Ranks

__all__ = ["Task"]


@dataclass(slots=True)
class Task:
    """An operation whose results have places, within a memory budget."""

    operation: Operation
    outputs: Sequence[Output]
    budget: int
    #: Other options of the results, for the journal.
    options: Mapping[str, Any]
    ranks: Ranks
    _description: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def named(self) -> list[NamedOutput]:
        """The outputs that get names."""
        return [one for one in self.outputs if isinstance(one, NamedOutput)]

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the budget that results in memory hold."""
        return sum(one.reserved_bytes for one in self.outputs)

    @property
    def first_result(self) -> int:
        """Number of the first result among the arrays of the program: the inputs come first."""
        return len(self.operation.inputs)

    @property
    def lost_results(self) -> frozenset[int]:
        """Numbers of the results that end with the process: in memory, or without a name."""
        first = self.first_result
        return frozenset(first + n for n, one in enumerate(self.outputs) if not one.is_resumable)

    @property
    def cores(self) -> int:
        """Processors for this rank."""
        return max(len(os.sched_getaffinity(0)) // self.ranks.ranks_on_node, 1)

    def agree(self, **choices: bool) -> None:
        """
        Check that all ranks make the same call with the same `choices`. Collective over the ranks.

        The smallest budget of any rank applies.
        """

        def describe_call() -> str:
            overwrite = any(one.place.overwrite for one in self.named)
            return json.dumps({**self.describe(), "overwrite": overwrite, **choices})

        self.budget = self.ranks.check_same_call(describe_call, self.budget)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the job."""
        if not self._description:
            self._description |= self._describe()
        return self._description

    def _describe(self) -> dict[str, Any]:
        own_files = Files().union(*(one.containers for one in self.outputs))
        description: dict[str, Any] = {"operation": self.operation.name}
        for n, array in enumerate(self.operation.inputs):
            name = "source" if n == 0 else f"source {n + 1}"
            description |= {
                name: make_absolute(array.path) if isinstance(array, DiskArray) else "in memory",
                f"{name} shape": list(array.shape),
                f"{name} dtype": repr(array.dtype),
            }
            kind, value = fingerprint_input(array, own_files)
            description[f"{name} {kind}"] = value
        for n, output in enumerate(self.outputs):
            name = "target" if n == 0 else f"target {n + 1}"
            if isinstance(output, NamedOutput):
                description[name] = make_absolute(output.place.final)
            result = self.operation.results[n]
            description |= {
                f"{name} shape": list(result.shape),
                f"{name} dtype": repr(result.dtype),
            }
        arguments = {**self.operation.arguments, **self.options}
        return description | {k: _format_argument(v) for k, v in arguments.items()}

    def announce(self) -> dict[str, Any]:
        """Return what the journal records first: what may be left, and how to repeat the call."""
        partial = [[make_absolute(one.place.listed_path), one.place.format] for one in self.named]
        stand_ins = self.find_stand_ins().values()
        partial += [[make_absolute(path), options["format"]] for path, options in stand_ins]
        outs = [
            make_absolute(one.place.final) if isinstance(one, NamedOutput) else None
            for one in self.outputs
        ]
        overwrite = any(one.place.overwrite for one in self.named)
        call = encode_call(self.operation, outs, self.budget, self.options, overwrite=overwrite)
        return {"partial": partial, "call": call}

    def record(self, settled: BudgetedProgram) -> dict[str, Any]:
        """Return what the journal records when all arrays exist: also what determines the program."""
        program = {"cut": asdict(settled.cut), "program": _digest(settled.program)}
        return program | {"inodes": [_inode(one) for one in self.named]} | self.announce()

    def find_stand_ins(self) -> dict[int, tuple[str, dict[str, Any]]]:
        """Return path and creation options of the stand-in of each named result of unknown shape."""
        found = {}
        for n, (output, result) in enumerate(
            zip(self.outputs, self.operation.results, strict=True)
        ):
            if result.at_most and isinstance(output, NamedOutput):
                options = output.model_options()
                suffix, inner = choose_suffix(options)
                stem = output.place.journal.removesuffix(SUFFIX)
                found[n] = (
                    durable.make_sibling_path(stem, f"{PARTIAL}-like{suffix}") + inner,
                    options,
                )
        return found


def _digest(program: Program) -> str:
    """Return a text that differs between programs that were cut differently."""
    parts: list[Any] = [program.method, program.temporaries]
    for phase in program.phases:
        parts += [phase.name, phase.steps, phase.held]
        if isinstance(phase, Schedule):
            parts += [(s.loads, s.stores) for s in map(phase.step, sample_steps(phase))]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _inode(output: NamedOutput) -> int:
    """Return the inode of the array that gets the name; 0 if it is created later."""
    try:
        return output.place.find_inode()
    except FileNotFoundError:
        return 0


def _format_argument(value: Any) -> str:
    """Return an argument as text that differs from the text of other values."""
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(value.tobytes()).hexdigest()[:16]
        return f"{value.dtype.str} array of {value.shape}, {digest}"
    return repr(value)
