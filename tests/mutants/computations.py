"""Computations: durable points, restart, and what a schedule may do."""

from mutants import Mutant

JOB = "python/outcore/compute/jobs/job.py"
CARRY = "python/outcore/compute/jobs/carry.py"
JOBS = "tests/unit/test_jobs.py"
BAD_INPUT = "tests/unit/test_bad_input.py"
CHAINS = "tests/unit/test_resumed_chains.py"
SCHEDULE = "tests/unit/test_schedule.py"
MEMORY = "python/outcore/arrays/schedule/memory.py"
MEMORY_TESTS = "tests/unit/test_memory_of_runs.py"

MUTANTS = [
    Mutant(
        file="python/outcore/compute/jobs/job.py",
        before="            if state.is_resumed:\n                self._check_chunks",
        after="            if False:\n                self._check_chunks",
        killed_by="tests/unit/test_lost_chunks.py::test_resumed_job_with_a_lost_chunk_is_refused",
        why="a chunk that an earlier run wrote and that is gone would be zeros in the result",
    ),
    Mutant(
        file="python/outcore/compute/jobs/temporaries.py",
        before='    hints = Hints.of(Hints(exclusive=True, missing="error"))',
        after="    hints = Hints.of(Hints(exclusive=True))",
        killed_by="tests/unit/test_lost_chunks.py"
        "::test_returned_temporary_with_a_lost_chunk_is_refused",
        why="a chunk of a temporary array that is gone would be read as zeros",
    ),
    Mutant(
        file="python/outcore/arrays/handle.py",
        before="                self._remove()\n",
        after="                pass\n",
        killed_by="tests/crash/test_termination.py"
        "::test_a_temporary_array_gives_its_disk_space_back_when_it_is_closed",
        why="the disk would fill up with results that the program has closed",
    ),
    Mutant(
        file="python/outcore/formats/scratch.py",
        before="            action()\n",
        after="            pass\n",
        killed_by="tests/crash/test_termination.py::test_sigterm_removes_temporary_arrays",
        why="a job that a batch system ends would leave its temporary arrays",
    ),
    Mutant(
        file="python/outcore/compute/jobs/leftovers.py",
        before="        if (_read_operation(journal), _read_targets(journal)) != (one.operation, one.targets):\n",
        after="        if False:\n",
        killed_by="tests/crash/test_removed_meanwhile.py::test_job_that_ended_or_changed_is_not_removed",
        why="what another job has done by then would be removed",
    ),
    Mutant(
        file="python/outcore/compute/jobs/leftovers.py",
        before='            if _read_operation(now) != "unknown":\n',
        after="            if False:\n",
        killed_by="tests/crash/test_removed_meanwhile.py"
        "::test_damaged_journal_that_makes_sense_by_then_stays",
        why="the journal of another job would be removed for a damaged one that was there before",
    ),
    Mutant(
        file=CARRY,
        before="            describe,\n        )\n",
        after="        )\n",
        killed_by="tests/mpi/test_algorithms.py::"
        "test_ranks_whose_lapack_works_in_more_are_an_error_on_all",
        why="ranks with blocks of other lengths compute with some rows twice",
    ),
    Mutant(
        file=CARRY,
        before="        if checkpoints is not None and len(self.program.phases) > 1:\n",
        after="        if False:\n",
        killed_by=f"{JOBS}::test_a_phase_begins_when_those_before_it_are_durable",
        why="a phase would store over what a step before it, done again after a crash, has to load",
    ),
    Mutant(
        file=CARRY,
        before="            self.ranks.run_long_step(checkpoints.finish)\n        self.measured",
        after="            pass\n        self.measured",
        killed_by=f"{JOBS}::test_a_result_gets_its_name_when_it_is_durable",
        why="after a crash there would be half an array under the name of the result",
    ),
    Mutant(
        file=JOB,
        before=' or record["program"] != journal.cut["program"]',
        after="",
        killed_by=f"{JOBS}::test_steps_that_were_cut_otherwise_are_not_mixed",
        why="steps of two programs would be mixed, some elements never computed",
    ),
    Mutant(
        file="python/outcore/compute/jobs/state.py",
        before="            if self.is_resumed:\n                self._reopen",
        after="            if self.is_resumed and __import__('os').path.exists(path):\n                self._reopen",
        killed_by=f"{JOBS}::test_temporary_arrays_are_what_the_job_left_or_it_does_not_go_on",
        why="a job would go on with an empty temporary array",
    ),
    Mutant(
        file=JOB,
        before="        self._check_existing()\n        if journal",
        after="        if journal",
        killed_by=f"{JOBS}::test_resume_does_not_replace_a_file_created_since",
        why="a job that goes on would work for hours and then be refused its name",
    ),
    Mutant(
        file="python/outcore/arrays/schedule/run.py",
        before="            for k in range(begin, number):\n",
        after="            for k in ():\n",
        killed_by=f"{SCHEDULE}::test_what_was_kept_is_made_again",
        why="who goes on would add to sums that nobody has begun",
    ),
    Mutant(
        file="python/outcore/arrays/schedule/run.py",
        before="            yield PendingStep(number, first)\n",
        after="            yield PendingStep(number, step)\n",
        killed_by=f"{CHAINS}::test_chains_continue_after_their_last_durable_step",
        why="who continues a cumulative sum would begin with what memory held by chance",
    ),
    Mutant(
        file="python/outcore/compute/stencils/plan.py",
        before="        count = -(-2 * self.cut.levels",
        after="        count = -(-self.cut.levels",
        killed_by=f"{CHAINS}::test_chains_continue_after_their_last_durable_step",
        why="rows of an intermediate step would be computed from neighbours that are not there",
    ),
    Mutant(
        file="python/outcore/compute/stencils/plan.py",
        before="        return not ring and self.planner.task.until is None\n",
        after="        return self.planner.task.until is None\n",
        killed_by=f"{CHAINS}::test_chains_continue_after_their_last_durable_step",
        why="the last rows of a ring would be computed without its first rows",
    ),
    Mutant(
        file=MEMORY,
        before="    return begin if begin % max(_ALIGN, buffer.dtype.alignment) == 0 else 0\n",
        after="    return begin\n",
        killed_by=f"{MEMORY_TESTS}::test_a_block_begins_at_a_multiple_of_its_elements",
        why="kernels would be given elements where the processor cannot read them at once",
    ),
    Mutant(
        file=MEMORY,
        before="    begin = (there - here) % _PAGE\n",
        after="    begin = there % _PAGE\n",
        killed_by=f"{MEMORY_TESTS}::test_blocks_lie_in_their_pages_as_in_the_file",
        why="what is read into a part of a block would be copied once more",
    ),
    Mutant(
        file=MEMORY,
        before="schedule.held + more)",
        after="schedule.held)",
        killed_by=f"{MEMORY_TESTS}::test_large_buffers_are_in_huge_pages",
        why="memory would be taken that nobody has counted",
    ),
    Mutant(
        file="tests/schedule_check.py",
        before="            self.found[load.array].add(wanted, self.number)\n",
        after="            pass\n",
        killed_by=f"{SCHEDULE}::test_what_was_found_is_not_stored_over_if_steps_may_be_done_again",
        why="a step that is done again could load what it has stored",
    ),
    Mutant(
        file="python/outcore/compute/jobs/outputs.py",
        before="    if any(can_overlap(a, out) for a in inputs):\n",
        after="    if False:\n",
        killed_by=f"{JOBS}::test_invalid_jobs_are_refused_without_changes[itself, open]",
        why="a computation would read what it has written over its input",
    ),
    Mutant(
        file="python/outcore/compute/jobs/leftovers.py",
        before="        if scratch and not _is_alive(int(scratch[1] or scratch[2])):\n",
        after="        if scratch:\n",
        killed_by=f"{JOBS}::test_files_of_dead_processes_are_found_and_removed",
        why="the temporary array of a running process would be removed",
    ),
    Mutant(
        file="python/outcore/compute/jobs/outputs.py",
        before="    if any(can_overlap(a, b) for a, b in combinations(given, 2)):\n",
        after="    if False:\n",
        killed_by=f"{BAD_INPUT}::test_results_that_overlap_each_other_are_refused[svd]",
        why="one result would be stored over another",
    ),
    Mutant(
        file="python/outcore/formats/layout.py",
        before="    return found.st_dev, found.st_ino\n",
        after="    return os.path.realpath(path)\n",
        killed_by=f"{BAD_INPUT}::test_results_that_overlap_an_input_are_refused[transpose]",
        why="a computation would be stored over its input, which has two names",
    ),
    Mutant(
        file="python/outcore/compute/jobs/overlap.py",
        before="        return _list_mapped_ranges(array.data)\n",
        after="        return []\n",
        killed_by=f"{BAD_INPUT}::test_results_that_overlap_an_input_are_refused[transpose]",
        why="a computation would be stored over its input, which is mapped",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="            return os.fstat(self._fd).st_nlink > 0\n",
        after="            return True\n",
        killed_by="tests/unit/test_journal.py::test_a_journal_that_is_removed_meanwhile_is_made_anew",
        why="a job would note its steps in a file without a name, and nobody could go on with it",
    ),
    Mutant(
        file=CARRY,
        before='rate = self.ranks.broadcast_from_first(partial(getattr, schedule, "rate"))',
        after="rate = schedule.rate",
        killed_by="tests/mpi/test_algorithms.py::"
        "test_ranks_that_measured_other_rates_divide_steps_alike[3-svd]",
        why="each rank would divide the steps by a rate that it measured itself: some would be nobody's",
    ),
    Mutant(
        file="python/outcore/ranks/ranks.py",
        before="        self.gather_numbers(say, share, equal=1)",
        after="        self.gather_numbers(say, share, equal=0)",
        killed_by="tests/mpi/test_algorithms.py::test_steps_that_ranks_divide_differently_are_an_error_on_all",
        why="steps that nobody has done would be missing from a result that takes its name",
    ),
]
